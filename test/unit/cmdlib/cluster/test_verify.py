"""The verification of the cluster: its jobs, its configuration, its groups."""

from __future__ import annotations

import dataclasses

import pytest

from fakes.config import GROUP, cluster_of, commit, disk_of, instance_of, uuid_of
from fakes.master import Master
from ganeti import errors
from ganeti.constants.rpc import PROTOCOL_VERSION
from ganeti.objects import WatchdogPromise
from ganeti.objects.transfer import MasterStatus, WatchdogStatus
from ganeti.opcodes.cluster import (
    OpClusterSetParams,
    OpClusterVerify,
    OpClusterVerifyConfig,
    OpClusterVerifyGroup,
)
from ganeti.platform import paths
from ganeti.utils import clock, x509

NODE1, NODE2, NODE3 = (f"node{number}.example.com" for number in (1, 2, 3))


@pytest.fixture
def root(tmp_path):
    """Files of this node below a directory of the test."""
    with paths.override(paths.Paths(str(tmp_path))) as here:
        yield paths.current() if here is None else here


# -- verification: jobs ----------------------------------------------------------


def test_verification_is_a_job_for_the_configuration_and_one_for_each_group():
    data = cluster_of(2)
    other = dataclasses.replace(data.nodegroups[GROUP], name="rack2", uuid="group-2")
    master = Master(dataclasses.replace(data, nodegroups={**data.nodegroups, "group-2": other}))
    op = OpClusterVerify(error_codes=True, ignore_errors=["ENODERPC"], skip_checks=["nplusone_mem"])
    assert master.run(op) == {"jobs": [[True, 100], [True, 101], [True, 102]]}
    config, first, second = (job[0] for job in master.job.submitted)
    assert isinstance(config, OpClusterVerifyConfig)
    assert config.error_codes is True
    assert (first.group_name, second.group_name) == (GROUP, "group-2")
    assert (first.depends, second.depends) == ([[-1, []]], [[-2, []]])
    assert first.skip_checks == ["nplusone_mem"]
    assert second.ignore_errors == ["ENODERPC"]


def test_verification_of_one_group_leaves_the_configuration_out():
    master = Master(cluster_of(2))
    master.run(OpClusterVerify(group_name="default"))
    ((op,),) = master.job.submitted
    assert isinstance(op, OpClusterVerifyGroup)
    assert op.depends is None
    master.refused(OpClusterVerify(group_name="nosuch"), errors.ECODE_NOENT)


# -- verification of the configuration -------------------------------------------


@pytest.fixture(scope="module")
def certificate():
    return x509.create_self_signed()


@pytest.fixture
def certificates(root, certificate):
    import os

    for path in (root.noded_cert_file, root.noded_client_cert_file):
        os.makedirs(path.rpartition("/")[0], exist_ok=True)
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(certificate)
    return root


def findings(master, code=None):
    """What was reported, without indentation; of one code when given."""
    lines = [line.strip()[2:] for line in master.job.log if line.startswith("  - ")]
    return [line for line in lines if code is None or line.split(":")[1] == code]


def verify_config(**changes):
    return OpClusterVerifyConfig(error_codes=True, **changes)


def test_missing_and_expired_certificates_are_found(certificates, monkeypatch):
    import os

    master = Master(cluster_of(1))
    monkeypatch.setattr(master.config, "verify", list)
    assert master.run(verify_config()) is True
    os.unlink(certificates.noded_client_cert_file)
    assert master.run(verify_config()) is False
    (line,) = findings(master, "ECLUSTERCERT")
    assert line.startswith("ERROR:ECLUSTERCERT:cluster::certificate ")
    now = clock.now()
    monkeypatch.setattr(clock, "now", lambda: now + 100 * 365 * 86400)
    master.run(verify_config())
    assert any("expired" in line for line in findings(master, "ECLUSTERCERT"))


def test_contradictions_of_the_configuration_are_found(certificates, monkeypatch):
    master = Master(cluster_of(1))
    monkeypatch.setattr(master.config, "verify", lambda: ["something contradicts"])
    assert master.run(OpClusterVerifyConfig()) is False
    assert "ERROR: cluster: something contradicts" in findings(master)


def test_bad_hypervisor_parameters_are_found(certificates, monkeypatch):
    web = instance_of("web", hvparams={"nosuch": 1})
    master = Master(cluster_of(1, (web,)))
    monkeypatch.setattr(master.config, "verify", list)
    assert master.run(verify_config()) is False
    assert any("web.example.com" in line for line in findings(master, "ECLUSTERCFG"))


def test_an_instance_whose_name_shortens_another_one_is_a_warning(certificates, monkeypatch):
    master = Master(
        cluster_of(1, (instance_of("web"), dataclasses.replace(instance_of("www"), name="web")))
    )
    monkeypatch.setattr(master.config, "verify", list)
    assert master.run(verify_config()) is True
    (line,) = findings(master, "ECLUSTERCFG")
    assert line.startswith("WARNING:ECLUSTERCFG:cluster::the name of instance web is the short")


# -- verification of a group -----------------------------------------------------


def group(**changes):
    return OpClusterVerifyGroup(group_name="default", error_codes=True, **changes)


@pytest.fixture
def master(root):
    disks = (disk_of("web"),)
    web = instance_of("web", admin_state="up", disks=tuple(disk.uuid for disk in disks))
    made = Master(cluster_of(3, (web, instance_of("db", "node2")), disks))
    made.rpc.run("web", "node1")
    made.rpc.answers["time"] = lambda node: list(clock.split(clock.now()))
    return made


def node_answer(master, node, **changes):
    """Let one node answer differently to node_verify."""
    usual = master.rpc.answers.get("node_verify", master.rpc._node_verify)

    def answer(name, args):
        found = usual(name, args)
        return {**found, **changes} if name == node else found

    master.rpc.answers["node_verify"] = answer


def node_file(master, node, path, checksum):
    """Let one file of a node have another checksum, or (None) be missing."""
    usual = master.rpc._node_verify

    def answer(name, args):
        found = usual(name, args)
        if name == node and path in found["filelist"]:
            if checksum is None:
                del found["filelist"][path]
            else:
                found["filelist"][path] = checksum
        return found

    master.rpc.answers["node_verify"] = answer


@pytest.mark.parametrize("checksum", ["older", None])
def test_facts_that_a_node_missed(master, root, checksum):
    path = root.to_virtual(root.ssconf_file("cluster_tags"))
    node_file(master, NODE2, path, checksum)
    assert master.run(group()) is False
    (line,) = findings(master, "ECLUSTERFILECHECK")
    assert f"file {path} is missing or old on {NODE2}" in line


def test_facts_written_meanwhile_are_no_finding(master, root):
    path = root.to_virtual(root.ssconf_file("cluster_tags"))
    usual = master.rpc._node_verify
    asked = []

    def answer(name, args):
        found = usual(name, args)
        if name == NODE2:
            asked.append(len(args["checks"]))
            if len(asked) < 3:
                found["filelist"][path] = "older"
        return found

    master.rpc.answers["node_verify"] = answer
    assert master.run(group()) is True
    assert asked[1:] == [1, 1]


def test_a_healthy_group(master):
    assert master.run(group()) is True
    assert findings(master) == []
    assert ("cluster-verify", "post", NODE3) in master.rpc.hooks()
    env = master.rpc.of("hooks_runner")[0][1]["env"]
    assert env["GANETI_NODE_TAGS_node1.example.com"] == ""


def test_an_empty_group(root):
    data = cluster_of(1)
    other = dataclasses.replace(data.nodegroups[GROUP], name="rack2", uuid="group-2")
    master = Master(dataclasses.replace(data, nodegroups={**data.nodegroups, "group-2": other}))
    assert master.run(OpClusterVerifyGroup(group_name="rack2")) is True
    assert master.rpc.calls == []


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ({"version": [PROTOCOL_VERSION - 1, "2.0"]}, "ENODEVERSION"),
        ({"time": [0, 0]}, "ENODETIME"),
        ({"time": None}, "ENODETIME"),
        ({"nodesetup": ["no /proc"]}, "ENODESETUP"),
        ({"hypervisor": {"fake": "is broken"}}, "ENODEHV"),
        ({"node-net-test": {NODE1: "no route"}}, "ENODENET"),
        ({"bridges": ["xen-br0"]}, "ENODENET"),
        ({"filelist": None}, "ENODEFILECHECK"),
        ({"client-cert": [None, "another"]}, "ECLUSTERCLIENTCERT"),
        ({"client-cert": ["ERROR", "expired"]}, "ECLUSTERCLIENTCERT"),
        ({"file-storage-path": "not a directory"}, "ENODEFILESTORAGEPATHUNUSABLE"),
        ({"shared-file-storage-path": "x"}, "ENODESHAREDFILESTORAGEPATHUNUSABLE"),
        ({"hvparms": [["instance web", "fake", "no such kernel"]]}, "ENODEHV"),
        ({"allowed-file-storage-paths": ["/etc"]}, "ENODEFILESTORAGEPATHS"),
        ({"oslist": []}, "ENODEOS"),
        ({"oslist": [["noop", "/os", False, "no API", [], [], [], True]]}, "ENODEOS"),
    ],
)
def test_problems_of_a_node(master, answer, code):
    node_answer(master, NODE2, **answer)
    assert master.run(group()) is False
    assert findings(master, code), findings(master)
    assert all(line.startswith("ERROR:") for line in findings(master, code))
    assert any(NODE2 in line for line in findings(master, code))


def test_a_node_which_does_not_answer(master):
    for call in ("node_verify", "all_instances_info", "node_info"):
        master.rpc.errors[call, NODE2] = errors.NodeUnreachable(NODE2, call, "connection refused")
    assert master.run(group()) is False
    assert any("connection refused" in line for line in findings(master, "ENODERPC"))
    assert not findings(master, "EINSTANCEDOWN")


def test_an_unreachable_node_is_one_error(master):
    others = {NODE2: "its node daemon does not answer at the primary address 192.0.2.2"}
    for node in (NODE1, NODE3):
        node_answer(master, node, **{"node-net-test": others})
    calls = ("node_verify", "all_instances_info", "node_info", "hooks_runner", "hooks_present")
    disks = ("blockdev_getdimensions", "blockdev_getmirrorstatus_multi", "node_ssh_keys")
    for call in (*calls, *disks):
        master.rpc.errors[call, NODE2] = errors.NodeUnreachable(NODE2, call, "connection refused")
    assert master.run(group()) is False
    wrong = [line for line in findings(master) if line.startswith(("ERROR", "WARNING"))]
    assert len(wrong) == 1, wrong
    assert wrong[0].startswith(f"ERROR:ENODERPC:node:{NODE2}:")
    assert not [line for line in master.job.log if "hooks of node" in line]
    assert not [line for line in master.job.log if "nodes which answer can reach" in line]


def test_a_node_which_only_the_master_cannot_reach(master):
    for node in (NODE1, NODE3):
        node_answer(master, node, **{"node-net-test": {}})
    master.rpc.errors["node_verify", NODE2] = errors.NodeUnreachable(NODE2, "node_verify", "cut")
    assert master.run(group()) is False
    said = f"2 of 2 nodes which answer can reach node {NODE2}, which the master cannot"
    assert any(said in line for line in master.job.log)


@pytest.mark.parametrize("known", [(), (1, 3), (1, 2, 3)])
def test_a_node_whose_key_is_not_known_is_a_warning(master, known):
    """Its daemon is of an older version; directly after an upgrade no key is known yet."""
    for number in known:
        node = master.config.node_by_name(f"node{number}.example.com")
        pins = (f"{number}" * 43 + "=",)
        commit(master.config).nodes.update(dataclasses.replace(node, key_pins=pins))
    assert master.run(group()) is True
    lines = findings(master, "ECLUSTERCLIENTCERT")
    assert len(lines) == (len(known) == 2)
    for line in lines:
        assert line.startswith("WARNING:") and f"the key of node {NODE2} is not known" in line


def test_another_release_is_a_warning(master):
    node_answer(master, NODE2, version=[PROTOCOL_VERSION, "3.1.0~rc1"])
    assert master.run(group()) is True
    assert findings(master, "ENODEVERSION")[0].startswith("WARNING:ENODEVERSION:node:")


def test_verbose_tells_what_was_looked_at(master):
    node_answer(master, NODE2, nodesetup=["no /proc"])
    master.run(group(verbose=True))
    assert "  - NOTICE: ENODESETUP: 1 check(s), 1 failed" in master.job.log
    assert "  - NOTICE: ENODEVERSION: 6 check(s), none failed" in master.job.log
    master.run(group())
    assert not master.job.said("check(s)")


def test_verbose_shows_the_role_of_each_node(master):
    master.run(group(verbose=True))
    for name, role in ((NODE1, "master"), (NODE2, "master candidate")):
        assert f"  - NOTICE: node {name}: {role}" in master.job.log
    master.run(group())
    assert not master.job.said(f"node {NODE1}: master")


def test_ignored_codes_are_warnings(master):
    node_answer(master, NODE2, nodesetup=["no /proc"])
    assert master.run(group(ignore_errors=["ENODESETUP"])) is True
    assert findings(master)[0].startswith("WARNING:ENODESETUP:")


def test_the_form_for_people(master):
    node_answer(master, NODE2, nodesetup=["no /proc"])
    master.run(OpClusterVerifyGroup(group_name="default"))
    assert f"  - ERROR: node {NODE2}: is not set up correctly: no /proc" in master.job.log


def test_files_which_differ(master, root):
    node_file(master, NODE3, root.to_virtual(root.cluster_conf_file), "other")
    assert master.run(group()) is False
    (line,) = findings(master, "ECLUSTERFILECHECK")
    assert f"version 1 on {NODE1}, {NODE2}; version 2 on {NODE3}" in line


def test_a_configuration_written_meanwhile_is_no_finding(master, root):
    path = root.to_virtual(root.cluster_conf_file)
    usual = master.rpc._node_verify
    asked = []

    def answer(name, args):
        asked.append(name)
        found = usual(name, args)
        if name == NODE3 and asked.count(NODE3) == 1:
            found["filelist"][path] = "older"
        return found

    master.rpc.answers["node_verify"] = answer
    assert master.run(group()) is True
    assert asked.count(NODE3) == 2


def test_only_candidates_need_the_configuration(root):
    changes = {2: {"master_candidate": False}}
    certs = {uuid_of("node1"): "AA:00"}
    master = Master(cluster_of(2, node_changes=changes, candidate_certs=certs))
    master.rpc.answers["time"] = lambda node: list(clock.split(clock.now()))
    here = paths.current()
    path = here.to_virtual(here.cluster_conf_file)
    # It has one from the time when it was a candidate.
    assert master.run(group()) is False
    (line,) = findings(master, "ECLUSTERFILECHECK")
    assert f"file {path}, which holds secrets, exists on {NODE2}" in line
    node_file(master, NODE2, path, None)
    master.job.log.clear()
    master.run(group())
    assert findings(master, "ECLUSTERFILECHECK") == []


def test_an_instance_that_does_not_run(master):
    master.rpc.running.clear()
    assert master.run(group()) is False
    assert "web.example.com" in findings(master, "EINSTANCEDOWN")[0]


def test_an_instance_on_the_wrong_node(master):
    master.rpc.run("db", "node3")
    assert master.run(group()) is False
    (line,) = findings(master, "EINSTANCEWRONGNODE")
    assert NODE3 in line
    assert NODE2 in line
    assert "'gnt-instance migrate --cleanup db.example.com'" in line


def test_an_instance_on_the_wrong_node_whose_disks_are_elsewhere(root):
    """A clean-up refuses it, so that it is no advice."""
    disk = disk_of("db", template="plain", node="node2")
    db = instance_of("db", "node2", disks=(disk.uuid,), admin_state="up")
    master = Master(cluster_of(3, (db,), (disk,)))
    master.rpc.answers["time"] = lambda node: list(clock.split(clock.now()))
    master.rpc.run("db", "node3")
    assert master.run(group()) is False
    (line,) = findings(master, "EINSTANCEWRONGNODE")
    assert "--cleanup" not in line
    assert f"Its disks are on node {NODE2} only. Look on both nodes" in line


def test_an_unknown_instance(master):
    master.rpc.run("ghost", "node3")
    assert master.run(group()) is False
    (line,) = findings(master, "ENODEORPHANINSTANCE")
    assert line.startswith(f"ERROR:ENODEORPHANINSTANCE:node:{NODE3}:")
    assert "ghost.example.com" in line


def test_a_missing_disk(master):
    master.rpc.answers["blockdev_getdimensions"] = lambda node, args: [None]
    assert master.run(group()) is False
    assert "disk/0" in findings(master, "EINSTANCEMISSINGDISK")[0]


def test_a_disk_which_cannot_be_examined_is_not_missing(master):
    odd = errors.BlockDeviceError("not mounted")
    master.rpc.answers["blockdev_getdimensions"] = lambda node, args: [odd]
    assert master.run(group()) is False
    assert "EINSTANCEMISSINGDISK" not in "".join(findings(master))
    (line,) = findings(master, "EINSTANCEFAULTYDISK")
    assert "disk/0 could not be examined on node" in line and "not mounted" in line


def test_an_instance_meant_to_run_on_an_offline_node(root):
    web = instance_of("web", "node2", admin_state="up")
    changes = {2: {"offline": True, "master_candidate": False}}
    master = Master(cluster_of(2, (web,), node_changes=changes))
    master.rpc.answers["time"] = lambda node: list(clock.split(clock.now()))
    assert master.run(group()) is False
    assert [line.split(":")[1] for line in findings(master, None) if line.startswith("ERROR")] == [
        "EINSTANCEBADNODE"
    ]
    assert NODE2 not in {node for _name, node, _args in master.rpc.calls}
    assert master.job.said("1 node(s) are offline")


def test_a_violated_policy_is_a_warning(root):
    web = instance_of("web", beparams={"maxmem": 64, "minmem": 64})
    master = Master(cluster_of(1, (web,)))
    master.rpc.answers["time"] = lambda node: list(clock.split(clock.now()))
    assert master.run(group()) is True
    assert findings(master, "EINSTANCEPOLICY")[0].startswith("WARNING:")


def test_exceeded_ratios_are_warnings(root):
    big = instance_of("big", beparams={"vcpus": 4})
    master = Master(cluster_of(1, (big,)))
    master.rpc.answers["time"] = lambda node: list(clock.split(clock.now()))
    assert master.run(group()) is True
    assert findings(master, "ECLUSTERCFG") == []
    # Four, and one of the node itself, on four processors.
    master.config.cluster().ipolicy["vcpu-ratio"] = 1.0
    assert master.run(group()) is True
    (line,) = findings(master, "ECLUSTERCFG")
    assert line.startswith("WARNING:")
    assert "has 5 virtual CPUs, vcpu-ratio 1 permits 4 on 4 processors" in line


def test_memory_for_the_failure_of_a_node(master, monkeypatch):
    real = master.config.node_instances
    mirrored = [one for one in master.config.instances() if one.name.startswith("web")]
    monkeypatch.setattr(
        master.config,
        "node_instances",
        lambda uuid: (real(uuid)[0], mirrored if uuid == uuid_of("node3") else []),
    )
    master.rpc.free_mib[NODE3] = 100
    assert master.run(group()) is False
    (line,) = findings(master, "ENODEN1")
    assert NODE3 in line
    assert "128 MiB needed, 100 MiB free" in line
    assert master.run(group(skip_checks=["nplusone_mem"])) is True


def test_failing_hooks_are_findings(master):
    def answer(node, args):
        if node == NODE2 and args["hpath"] == "cluster-verify":
            return [["cluster-verify-post.d/10-raid", 1, "disk sdb\nis broken"]]
        return []

    master.rpc.answers["hooks_runner"] = answer
    assert master.run(group()) is False
    assert NODE2 in findings(master, "ENODEHOOKS")[0]
    assert "      disk sdb" in master.job.log
    assert "      is broken" in master.job.log


def test_simulated_errors_report_every_check(master):
    assert master.run(group(debug_simulate_errors=True)) is False
    codes = {line.split(":")[1] for line in findings(master)}
    assert {"ENODERPC", "ENODEVERSION", "ENODETIME", "ENODEHV", "EINSTANCEDOWN"} <= codes


def test_a_group_that_changed_while_waiting_is_refused(master):
    job = master.new_job()
    asked = []

    def add_meanwhile():
        asked.append(1)
        # The instance level is held already when the node level is about to be taken.
        if len(asked) == 5:
            commit(master.config).instances.add(instance_of("newer"), (), "test")

    job.check_cancel = add_meanwhile
    with pytest.raises(errors.OpPrereqError, match="retry"):
        master.run(group(), job)


@pytest.mark.parametrize("count", [2, 3])
def test_verify_says_when_the_role_cannot_move_by_itself(count):
    """There are too few candidates, or a daemon does not run."""
    data = cluster_of(count)
    cluster = dataclasses.replace(data.cluster, auto_failover=5)
    master = Master(dataclasses.replace(data, cluster=cluster))
    status = MasterStatus(master="node1", epoch="1 u", daemon="dead", watching=True)
    asleep = dataclasses.replace(status, watching=False)
    master.rpc.answers["master_status"] = lambda node, _args: (
        asleep if node.startswith("node2.") else status
    )
    master.run(OpClusterVerifyConfig())
    assert master.job.said("cannot move by itself") is (count == 2)
    assert master.job.said("ganeti-failoverd does not run on node node2")
    assert not master.job.said("does not run on node node1")


@pytest.mark.parametrize("count", [2, 3])
def test_verify_says_which_watchdogs_are_not_armed(count):
    """Node 1 keeps its promise, node 2 has lost it; with two candidates none would be armed."""
    token = "12345678-1234-1234-1234-123456789012"
    data = cluster_of(count, node_changes={2: {"watchdog": WatchdogPromise(token=token)}})
    cluster = dataclasses.replace(data.cluster, node_watchdog=10)
    master = Master(dataclasses.replace(data, cluster=cluster))
    armed = WatchdogStatus(state="armed", token=token, timeout_s=10, promised=token)
    lost = WatchdogStatus(state="none", text="there is no watchdog /dev/watchdog")
    master.rpc.answers["watchdog_status"] = lambda node, _args: (
        lost if node.startswith("node2.") else armed
    )
    master.run(OpClusterVerifyConfig())
    assert master.job.said("armed only with 3 master candidates") is (count == 2)
    assert master.job.said(
        "the watchdog of node node2.example.com is not armed: there is no watchdog"
    )
    assert master.job.said("watchdog of node node2.example.com restarts it, but the node has not")
    assert not master.job.said("watchdog of node node1")


class Witness:
    """Looks as a test says."""

    def __init__(self, problem):
        self.problem = problem
        self.set_up_with = []

    def poll(self, *, touch=False):
        assert touch
        return self.problem

    def set_up(self, url):
        if self.problem:
            raise errors.GenericError(self.problem)
        self.set_up_with.append(url)


@pytest.mark.parametrize(
    ("count", "problem", "refused", "said"),
    [
        (2, "", False, ""),
        (2, "no answer", False, "the witness does not count: no answer"),
        (2, "", True, "node node2.example.com cannot read the witness"),
        (3, None, True, "counts only while"),
    ],
)
def test_verify_looks_at_the_witness(count, problem, refused, said):
    """From the master, which writes it, and from the other candidate."""
    data = cluster_of(count)
    cluster = dataclasses.replace(data.cluster, witness="https://w/d")
    master = Master(dataclasses.replace(data, cluster=cluster))
    master.context.witness = Witness(problem)
    master.rpc.answers["witness_read"] = "{}"
    if refused:
        master.rpc.errors["witness_read"] = "refused"
    master.run(OpClusterVerifyConfig())
    for text in ("the witness does not count", "cannot read the witness", "counts only while"):
        assert master.job.said(text) is (text in said)
    assert not said or master.job.said(said)
    reads = [node for name, node, _ in master.rpc.calls if name == "witness_read"]
    assert reads == ["node2.example.com"] * (count == 2)


def test_a_witness_is_set_up_before_the_cluster_uses_it():
    master = Master(cluster_of(2))
    master.context.witness = Witness("cannot be a witness")
    with pytest.raises(errors.OpExecError, match="a witness. The cluster was not changed"):
        master.run(OpClusterSetParams(witness="https://w/d"))
    assert master.config.cluster().witness is None
    master.context.witness = Witness("")
    master.run(OpClusterSetParams(witness="https://w/d"))
    assert master.context.witness.set_up_with == ["https://w/d"]
    assert master.config.cluster().witness == "https://w/d"
    master.run(OpClusterSetParams(witness="none"))
    assert master.config.cluster().witness is None
    with pytest.raises(errors.OpPrereqError, match="--witness-auth"):
        master.run(OpClusterSetParams(witness="https://user:secret@w/d"))


@pytest.mark.parametrize("ready", [False, True])
def test_verify_says_when_instances_would_not_be_started_elsewhere(ready):
    data = cluster_of(3)
    cluster = dataclasses.replace(
        data.cluster,
        auto_instance_failover=15,
        ndparams={"oob_program": "/sbin/oob" if ready else ""},
        drbd_usermode_helper="/bin/true" if ready else "/sbin/drbdadm",
    )
    master = Master(dataclasses.replace(data, cluster=cluster))
    master.run(OpClusterVerifyConfig())
    for said in ("nodes without an out-of-band helper", "with the usermode helper /sbin/drbdadm"):
        assert master.job.said(said) is not ready
    master.run(OpClusterSetParams(auto_instance_failover=20))
    assert master.job.said("nodes without an out-of-band helper") is not ready


@pytest.mark.parametrize("required", [False, True])
def test_verify_says_when_the_rest_interface_can_be_read_without_a_password(required):
    data = cluster_of(1)
    cluster = dataclasses.replace(data.cluster, rapi_require_authentication=required)
    master = Master(dataclasses.replace(data, cluster=cluster))
    master.run(OpClusterVerifyConfig())
    assert master.job.said("REST interface can be read without a password") is not required
