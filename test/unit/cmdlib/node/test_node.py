"""Adding, removing and changing nodes."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from fakes.config import GROUP, cluster_of, commit, disk_of, instance_of, uuid_of
from fakes.master import Master
from ganeti import errors
from ganeti.cmdlib.ops.disks import convert
from ganeti.constants.rpc import PROTOCOL_VERSION
from ganeti.locking import Level
from ganeti.objects import Disk, Nic
from ganeti.opcodes.node import OpNodeAdd, OpNodeRemove, OpNodeSetParams
from ganeti.platform import hosts as platform_hosts
from ganeti.platform import paths
from ganeti.platform.base import Machine
from ganeti.utils import x509

NEW = "node9.example.com"


@pytest.fixture
def hosts(monkeypatch):
    """Names which resolve; tests may add more."""
    table = {f"node{n}.example.com": f"192.0.2.{n}" for n in (1, 2, 3, 9)}

    def lookup(self, name):
        full = name if name in table else f"{name}.example.com"
        if full not in table:
            raise errors.ResolverError(name, -2, "name not known")
        return platform_hosts.Hostname(full, table[full])

    monkeypatch.setattr(Machine, "lookup", lookup)
    return table


def add(**changes):
    return OpNodeAdd(**{"node_name": "node9", **changes})


def by_name(master, name):
    return master.config.node_by_name(name)


# -- adding ----------------------------------------------------------------------


PV = ["/dev/sdb", "xenvg", 30000.0, 20000.0, "a--", ["web"]]


def with_lvm(facts, *, exclusive=False):
    """A cluster with LVM; the new machine reports these facts."""
    master = Master(
        cluster_of(
            2,
            volume_group_name="xenvg",
            enabled_disk_templates=("drbd", "plain"),
            drbd_usermode_helper="/bin/true",
        )
    )
    if exclusive:
        group = master.config.group(GROUP)
        commit(master.config).groups.update(
            dataclasses.replace(group, ndparams={"exclusive_storage": True})
        )
    every = {
        "vglist": {"xenvg": 30000.0},
        "pvlist": [PV],
        "exclusive-pvs": [],
        "drbd-helper": [True, "/bin/true"],
        "hypervisor": {},
        **facts,
    }
    master.rpc.answers["node_verify_light"] = lambda node, args: {
        name: every[name] for name in args["checks"]
    }
    return master


@pytest.mark.parametrize(
    ("facts", "exclusive", "fragment"),
    [
        ({"vglist": {"other": 30000.0}}, False, "it has no volume group xenvg"),
        ({"vglist": "no lvm"}, False, "volume groups are unknown: no lvm"),
        ({"vglist": {"xenvg": 900.0}}, False, "volume group xenvg has only 900 MiB"),
        ({"pvlist": [["/dev/a:b", *PV[1:]]]}, False, "/dev/a:b has a colon in its name"),
        ({"pvlist": [[*PV[:4], "a-m", ["web"]]]}, False, "lacks physical volumes with web"),
        ({"pvlist": "no pvs"}, False, "physical volumes are unknown: no pvs"),
        ({"pvlist": [PV, ["/dev/sdc", "xenvg", 500.0, 0.0, "a--", []]]}, True, "of the same size"),
        ({"exclusive-pvs": [["/dev/sdb", ["a", "b"]]]}, True, "several logical volumes (a, b)"),
    ],
)
def test_the_storage_of_a_new_machine(hosts, facts, exclusive, fragment):
    master = with_lvm(facts, exclusive=exclusive)
    text = master.refused(add(), errors.ECODE_ENVIRON)
    assert fragment in text and "--vm-capable=no" in text
    assert by_name(master, NEW) is None
    # A node without instances needs none.
    with_lvm(facts, exclusive=exclusive).run(add(vm_capable=False))


def test_the_storage_of_a_node_which_may_have_instances_from_now_on():
    """It was not checked when the node was added without instances."""
    master = with_lvm({})
    node = by_name(master, "node2.example.com")
    commit(master.config).nodes.update(dataclasses.replace(node, vm_capable=False))
    present = {"vglist": {"other": 30000.0}, "pvlist": [PV], "drbd-helper": [True, "/sbin/other"]}
    master.rpc.answers["node_verify"] = lambda _node, args: {
        name: present[name] for name in args["checks"]
    }
    op = OpNodeSetParams(node_name="node2", vm_capable=True)
    text = master.refused(op, errors.ECODE_ENVIRON)
    assert "it has no volume group xenvg" in text and "--force" in text
    op.force = True
    master.run(op)
    assert master.job.said("node node2.example.com: it has no volume group xenvg")
    assert by_name(master, "node2.example.com").vm_capable
    # What stays is not asked for again, and other flags ask nobody.
    op.force = False
    asked = len(master.rpc.of("node_verify"))
    master.run(op)
    master.run(OpNodeSetParams(node_name="node2", vm_capable=False))
    assert len(master.rpc.of("node_verify")) == asked
    present["vglist"] = {"xenvg": 30000.0}
    master.run(op)
    assert master.job.said("its DRBD usermode helper is /sbin/other, not /bin/true")
    assert by_name(master, "node2.example.com").vm_capable


def test_the_storage_of_a_node_which_comes_back_and_may_have_instances():
    master = with_lvm({"vglist": {"other": 30000.0}})
    master.rpc.answers["node_verify"] = master.rpc.answers["node_verify_light"]
    node = by_name(master, "node2.example.com")
    away = dataclasses.replace(node, vm_capable=False, offline=True, master_candidate=False)
    commit(master.config).nodes.update(away)
    op = OpNodeSetParams(node_name="node2", offline=False, vm_capable=True)
    text = master.refused(op, errors.ECODE_ENVIRON)
    assert "it has no volume group xenvg" in text and "--force" in text
    assert by_name(master, "node2.example.com").offline
    op.force = True
    master.run(op)
    assert master.job.said("node node2.example.com: it has no volume group xenvg")
    assert by_name(master, "node2.example.com").vm_capable


@pytest.mark.parametrize(("own", "wanted"), [(None, "all"), ("own", "own")])
def test_the_volume_group_for_metadata_of_a_new_machine(hosts, own, wanted):
    """That of its node group counts, else that of the cluster."""

    def lab(*present):
        master = with_lvm({"vglist": {"xenvg": 30000.0, **dict.fromkeys(present, 9.0)}})
        cluster = master.config.cluster()
        commit(master.config).cluster.update(
            dataclasses.replace(cluster, diskparams={"drbd": {"metavg": "all"}})
        )
        group = master.config.group(GROUP)
        commit(master.config).groups.update(
            dataclasses.replace(group, diskparams={"drbd": {"metavg": own}} if own else {})
        )
        return master

    other = {"all": "own", "own": "all"}[wanted]
    assert f"it has no volume group {wanted}" in lab(other).refused(add(), errors.ECODE_ENVIRON)
    master = lab(wanted)
    master.run(add())
    assert by_name(master, NEW) is not None


@pytest.mark.parametrize("exclusive", [False, True])
def test_good_storage_of_a_new_machine(hosts, exclusive):
    master = with_lvm({"drbd-helper": [True, "/sbin/other"]}, exclusive=exclusive)
    master.run(add())
    assert by_name(master, NEW) is not None
    assert master.job.said("its DRBD usermode helper is /sbin/other, not /bin/true")
    asked = [args["checks"] for _node, args in master.rpc.of("node_verify_light")]
    assert {name for checks in asked for name in checks} == {
        "hypervisor",
        "vglist",
        "pvlist",
        "drbd-helper",
        *(("exclusive-pvs",) if exclusive else ()),
    }


def test_a_node_which_is_added_again_gets_its_new_state(hosts):
    master = Master(
        cluster_of(2, node_changes={2: {"hv_state_static": {"kvm": {"mem_hv": 1, "mem_node": 2}}}})
    )
    master.run(
        add(
            node_name="node2",
            readd=True,
            hv_state={"kvm": {"mem_node": 5}},
            disk_state={"plain": {"xenvg": {"disk_total": 7}}},
        )
    )
    node = by_name(master, "node2.example.com")
    assert node.hv_state_static == {"kvm": {"mem_hv": 1, "mem_node": 5}}
    assert node.disk_state_static == {"plain": {"xenvg": {"disk_total": 7}}}


def test_a_node_is_added_as_candidate_with_its_certificate(hosts):
    master = Master(cluster_of(2))
    assert master.run(add()) is None
    node = by_name(master, NEW)
    assert (node.primary_ip, node.secondary_ip) == ("192.0.2.9", "192.0.2.9")
    assert node.master_candidate
    assert node.group == GROUP
    assert master.config.cluster().candidate_certs[node.uuid] == f"CC:{NEW}"
    # One commit: there is never a candidate whose calls are refused.
    assert master.config.writes == ["nodes.add, cluster.set_candidate_cert"]
    assert node.uuid in master.locks.keys(Level.NODE)
    assert node.uuid in master.locks.keys(Level.NODE_RES)


@pytest.fixture
def certificates(tmp_path):
    """The certificate of the cluster in the files of the master, and two which it has signed."""
    here = paths.Paths(str(tmp_path))
    shared = x509.create_self_signed()
    Path(here.data_dir).mkdir(parents=True)
    Path(here.noded_cert_file).write_text(shared)
    with paths.override(here):
        yield shared, x509.create_signed(NEW, shared), x509.create_signed("x", shared)


def test_only_the_machine_which_joined_becomes_the_node(hosts, certificates):
    """The client knows the certificate of the machine; another may have its address."""
    shared, own, other = certificates
    for full in (False, True):
        for shown in (other, shared, ""):
            master = Master(cluster_of(2, candidate_pool_size=2 if full else 10))
            master.rpc.shown[NEW] = shown
            text = master.refused(add(certificate=x509.digest(own)), errors.ECODE_ENVIRON)
            assert f"not {x509.digest(own)}" in text and "192.0.2.9" in text
            assert master.rpc.names() == ["version"], "nothing else is asked of that machine"
    master.rpc.shown[NEW] = own
    assert master.run(add(certificate=x509.digest(own))) is None


def test_the_key_of_a_new_node_is_its_own_from_the_first_contact(hosts, certificates):
    shared, own, other = certificates
    master = Master(cluster_of(2))
    master.rpc.shown[NEW] = own
    master.run(add())
    assert by_name(master, NEW).key_pins == (x509.key_pin(own),)
    assert master.rpc.expected == {"192.0.2.9": (x509.key_pin(own),)}
    # The same machine again, then another one: the command accepts its key, and says so.
    master.run(add(readd=True))
    assert not master.job.said("from now on")
    master.rpc.shown[NEW] = other
    master.run(add(readd=True))
    assert by_name(master, NEW).key_pins == (x509.key_pin(other),)
    assert master.job.said(f"had the key {x509.key_pin(own)}; from now on it has")
    # A node daemon of an older version shows the key of the cluster, which is nobody's own.
    master.rpc.shown[NEW] = shared
    master.run(add(readd=True))
    assert by_name(master, NEW).key_pins is None
    assert master.rpc.expected["192.0.2.9"] is None


def test_a_machine_with_the_key_of_another_node_is_refused(hosts, certificates):
    """Addresses were exchanged, or a machine was copied."""
    _, own, other = certificates
    master = Master(cluster_of(2))
    master.rpc.shown |= {NEW: own, "node3.example.com": own}
    master.run(add())
    text = master.refused(add(node_name="node3"), errors.ECODE_ENVIRON)
    assert f"the machine at 192.0.2.3 has the key of node {NEW}" in text
    assert master.rpc.names().count("version") == 2 and "node3" not in str(master.config.nodes())
    master.rpc.shown["node3.example.com"] = other
    master.run(add(node_name="node3"))
    master.rpc.shown[NEW] = other
    text = master.refused(add(readd=True), errors.ECODE_ENVIRON)
    assert "has the key of node node3.example.com" in text


def test_a_removed_node_leaves_only_if_it_is_the_node(hosts, certificates):
    _, own, _ = certificates
    master = Master(cluster_of(2))
    master.rpc.shown[NEW] = own
    master.run(add())
    master.rpc.expected.clear()
    master.run(OpNodeRemove(node_name=NEW))
    assert master.rpc.expected == {"192.0.2.9": (x509.key_pin(own),)}
    assert "node_leave_cluster" in master.rpc.names()


def test_a_full_pool_gets_no_more_candidates(hosts):
    master = Master(cluster_of(2, candidate_pool_size=2))
    master.run(add())
    node = by_name(master, NEW)
    assert not node.master_candidate
    assert node.uuid not in master.config.cluster().candidate_certs


def test_hooks_run_on_the_new_node_afterwards(hosts):
    master = Master(cluster_of(2))
    master.run(add())
    hooks = [(phase, node) for name, phase, node in master.rpc.hooks() if name == "node-add"]
    others = ["node1.example.com", "node2.example.com"]
    assert hooks == [("pre", n) for n in others] + [("post", n) for n in [*others, NEW]]
    env = master.rpc.of("hooks_runner")[0][1]["env"]
    assert env["GANETI_NODE_NAME"] == NEW
    assert env["GANETI_NODE_PIP"] == "192.0.2.9"
    assert env["GANETI_VM_CAPABLE"] == "True"


def test_common_files_are_copied(hosts, tmp_path):
    master = Master(cluster_of(2))
    with paths.override(paths.Paths(str(tmp_path))):
        secret = paths.current().cluster_domain_secret
        (tmp_path / secret[len(str(tmp_path)) + 1 :]).parent.mkdir(parents=True)
        with open(secret, "w", encoding="utf-8") as stream:
            stream.write("secret\n")
        master.run(add())
        ((node, args),) = master.rpc.of("upload_file")
    assert node == NEW
    assert args["file"].content == "secret\n"
    assert args["file"].path == secret[len(str(tmp_path)) :]
    assert args["file"].mode == 0o640


@pytest.mark.parametrize(
    ("changes", "ecode", "fragment"),
    [
        ({"node_name": "node1"}, errors.ECODE_EXISTS, "--readd"),
        ({"node_name": "nosuch"}, errors.ECODE_RESOLVER, "nosuch"),
        ({"node_name": "a..b"}, errors.ECODE_INVAL, "host name"),
        ({"readd": True}, errors.ECODE_NOENT, "not in the cluster"),
        ({"primary_ip": "192.0.2.2"}, errors.ECODE_NOTUNIQUE, "node2.example.com"),
        ({"primary_ip": "x"}, errors.ECODE_INVAL, "'x'"),
        ({"secondary_ip": "198.51.100.9"}, errors.ECODE_INVAL, "secondary address"),
        ({"group": "nosuch"}, errors.ECODE_NOENT, "nosuch"),
        ({"ndparams": {"nosuch": 1}}, errors.ECODE_INVAL, "nosuch"),
        ({"hv_state": {"nosuch": {}}}, errors.ECODE_INVAL, "no hypervisor 'nosuch'"),
        ({"disk_state": {"tape": {}}}, errors.ECODE_INVAL, "'tape' has no state"),
    ],
)
def test_adding_is_refused(hosts, changes, ecode, fragment):
    master = Master(cluster_of(2))
    assert fragment in master.refused(add(**changes), ecode)
    assert len(master.locks.keys(Level.NODE)) == 2


def test_a_machine_without_daemon_is_refused(hosts):
    master = Master(cluster_of(2))
    master.rpc.errors["version"] = errors.NodeUnreachable(NEW, "version", "connection refused")
    text = master.refused(add(), errors.ECODE_ENVIRON)
    assert "connection refused" in text
    assert "daemon" in text


def test_a_machine_with_another_version_is_refused(hosts):
    master = Master(cluster_of(2))
    master.rpc.answers["version"] = PROTOCOL_VERSION - 1
    assert str(PROTOCOL_VERSION - 1) in master.refused(add(), errors.ECODE_ENVIRON)


def test_two_groups_need_a_choice(hosts):
    data = cluster_of(2)
    other = dataclasses.replace(data.nodegroups[GROUP], name="rack2", uuid="group-2")
    data = dataclasses.replace(data, nodegroups={**data.nodegroups, "group-2": other})
    master = Master(data)
    assert "--node-group" in master.refused(add(), errors.ECODE_INVAL)
    master.run(add(group="rack2"))
    assert by_name(master, NEW).group == "group-2"


def test_adding_again_resets_the_flags(hosts):
    changes = {2: {"offline": True, "master_candidate": False}}
    master = Master(cluster_of(2, node_changes=changes))
    master.run(add(node_name="node2", readd=True))
    node = by_name(master, "node2.example.com")
    assert not node.offline
    assert node.master_candidate
    assert node.uuid == uuid_of("node2")
    assert master.config.cluster().candidate_certs[node.uuid] == "CC:node2.example.com"


def test_adding_again_changes_the_addresses(hosts):
    master = Master(cluster_of(2, node_changes={2: {"offline": True}}, modify_etc_hosts=True))
    hosts["node2.example.com"] = "192.0.2.77"
    master.run(add(node_name="node2", readd=True, dry_run=True))
    assert master.job.said("from 192.0.2.2 to 192.0.2.77")
    # Programs by others send the former secondary address, which was no address of its own.
    master.run(add(node_name="node2", readd=True, secondary_ip="192.0.2.2"))
    node = by_name(master, "node2.example.com")
    assert (node.primary_ip, node.secondary_ip, node.offline) == ("192.0.2.77", "192.0.2.77", False)
    assert node.uuid == uuid_of("node2")
    ((_node, told),) = master.rpc.of("etc_hosts_modify")
    assert (told["mode"], told["name"], told["ip"]) == ("add", node.name, "192.0.2.77")


def test_a_secondary_address_changes_when_the_node_is_added_again(hosts):
    own = {number: {"secondary_ip": f"198.51.100.{number}"} for number in (1, 2)}
    web = instance_of("web", disks=(uuid_of("web-disk0"),), disks_active=True)
    disk = Disk(
        dev_type="drbd",
        logical_id=(uuid_of("node1"), uuid_of("node2"), 11000, 0, 0, "secret"),
        nodes=(uuid_of("node1"), uuid_of("node2")),
        iv_name="disk/0",
        size=1024,
        uuid=uuid_of("web-disk0"),
        serial_no=1,
    )
    master = Master(cluster_of(2, (web,), (disk,), node_changes=own))
    op = add(node_name="node2", readd=True, secondary_ip="198.51.100.22")
    master.run(op)
    node = by_name(master, "node2.example.com")
    assert (node.primary_ip, node.secondary_ip) == ("192.0.2.2", "198.51.100.22")
    assert master.job.said("web.example.com were connected over the former address 198.51.100.2")
    assert master.rpc.of("etc_hosts_modify") == []


@pytest.mark.parametrize("name", ["node2", "node9"])
def test_the_machine_has_the_secondary_address(hosts, name):
    """Else replicas would be sent to whichever machine has it, such as a guest."""
    own = {number: {"secondary_ip": f"198.51.100.{number}"} for number in (1, 2)}
    master = Master(cluster_of(2, node_changes=own))
    master.rpc.answers["node_has_ip_address"] = False
    op = add(node_name=name, readd=name == "node2", secondary_ip="198.51.100.22")
    text = master.refused(op, errors.ECODE_ENVIRON)
    assert "does not have the secondary address 198.51.100.22" in text
    assert [args for _node, args in master.rpc.of("node_has_ip_address")] == [
        {"address": "198.51.100.22"}
    ]
    assert master.config.writes == []


@pytest.mark.parametrize(
    ("ip", "owner"),
    [
        ("192.0.2.1", "node node1"),
        ("192.0.2.100", "the cluster"),
        ("192.0.2.50", "instance web"),
    ],
)
def test_a_node_that_is_added_again_takes_no_address_of_others(hosts, ip, owner):
    nic = Nic(mac="aa:00:00:00:00:01", ip="192.0.2.50", nicparams={}, uuid=uuid_of("nic"))
    master = Master(cluster_of(2, (instance_of("web", nics=(nic,)),)))
    op = add(node_name="node2", readd=True, primary_ip=ip)
    assert owner in master.refused(op, errors.ECODE_NOTUNIQUE)


def test_the_master_cannot_be_added_again(hosts):
    master = Master(cluster_of(2))
    master.refused(add(node_name="node1", readd=True), errors.ECODE_STATE)


def test_the_plan_of_adding_a_machine_that_is_not_prepared(hosts):
    """A dry run of the command touches no machine, so it may find one without a daemon."""
    master = Master(cluster_of(2))
    master.rpc.errors["version"] = errors.NodeUnreachable(NEW, "version", "connection refused")
    assert "daemon" in master.refused(add(dry_run=True), errors.ECODE_ENVIRON)
    master = Master(cluster_of(2))
    master.rpc.errors["version"] = errors.NodeUnreachable(NEW, "version", "connection refused")
    master.run(add(dry_run=True, node_setup=True))
    assert master.job.said(f"before the job: prepare machine {NEW}")
    assert master.job.said(f"make node {NEW} a master candidate")
    assert by_name(master, NEW) is None


def test_the_plan_of_adding_a_prepared_machine(hosts):
    master = Master(cluster_of(2))
    master.run(add(dry_run=True))
    assert not master.job.said("before the job")
    assert master.job.said(f"add node {NEW} with address 192.0.2.9 to node group")
    assert by_name(master, NEW) is None


# -- removing --------------------------------------------------------------------


def remove(name="node2"):
    return OpNodeRemove(node_name=name)


def test_a_node_is_told_its_hooks_then_forgotten_then_told_to_leave():
    master = Master(cluster_of(3))
    master.run(remove())
    assert by_name(master, "node2.example.com") is None
    assert uuid_of("node2") not in master.config.cluster().candidate_certs
    assert master.rpc.of("node_leave_cluster")[0][0] == "node2.example.com"
    hooks = [(phase, node) for name, phase, node in master.rpc.hooks() if name == "node-remove"]
    assert hooks == [
        ("pre", "node1.example.com"),
        ("pre", "node3.example.com"),
        ("post", "node2.example.com"),
        ("post", "node1.example.com"),
        ("post", "node3.example.com"),
    ]
    for level in (Level.NODE, Level.NODE_RES):
        assert uuid_of("node2") not in master.locks.keys(level)


def test_another_node_takes_the_place_of_a_removed_candidate():
    changes = {3: {"master_candidate": False}}
    master = Master(cluster_of(3, node_changes=changes, candidate_pool_size=2))
    master.run(remove())
    assert by_name(master, "node3.example.com").master_candidate
    assert master.config.cluster().candidate_certs[uuid_of("node3")] == "CC:node3.example.com"


@pytest.mark.parametrize("running", [True, False])
def test_a_node_with_instances_stays(running):
    master = Master(cluster_of(3, (instance_of("web", "node2", admin_state="up"),)))
    if running:
        master.rpc.run("web", "node2")
    assert "web.example.com" in master.refused(remove(), errors.ECODE_INVAL)


def test_a_node_with_a_detached_disk_stays():
    """It was refused at the commit, after the hooks, as an error of the configuration."""
    disk = dataclasses.replace(disk_of("web", template="file", node="node2"), iv_name="")
    master = Master(cluster_of(3, disks=(disk,)))
    said = master.refused(remove(), errors.ECODE_INVAL)
    assert disk.uuid in said
    assert "detached" in said


def test_a_node_with_a_disk_which_a_conversion_left_stays():
    """It could not be attached: the text says what removes it."""
    web = instance_of("web", "node1")
    old = disk_of("old", template="file", node="node2")
    old = dataclasses.replace(old, iv_name="", name=convert.mark(web.uuid))
    said = Master(cluster_of(3, (web,), (old,))).refused(remove(), errors.ECODE_STATE)
    assert "an interrupted operation on disks of instance web.example.com left" in said
    assert "a conversion or move of its disks, or the removal of the instance" in said
    assert "attach" not in said


def test_the_master_stays():
    assert "is the master" in Master(cluster_of(3)).refused(remove("node1"), errors.ECODE_INVAL)


def test_an_unknown_node():
    Master(cluster_of(3)).refused(remove("nosuch"), errors.ECODE_NOENT)


def test_a_node_that_does_not_answer_is_removed_with_advice():
    master = Master(cluster_of(3))
    error = errors.NodeUnreachable("node2.example.com", "node_leave_cluster", "timed out")
    master.rpc.errors["node_leave_cluster"] = error
    master.run(remove())
    assert by_name(master, "node2.example.com") is None
    assert master.job.said("Stop its node daemon")


def test_an_offline_node_is_removed_without_asking_it():
    changes = {2: {"offline": True, "master_candidate": False}}
    master = Master(cluster_of(3, node_changes=changes))
    master.run(remove())
    assert "node2.example.com" not in {node for _name, node, _args in master.rpc.calls}


# -- changing --------------------------------------------------------------------


def change(name="node2", **values):
    return OpNodeSetParams(node_name=name, **values)


def test_draining_takes_the_candidate_role():
    master = Master(cluster_of(3))
    result = master.run(change(drained=True))
    assert result == [("master_candidate", "False"), ("drained", "True")]
    node = by_name(master, "node2.example.com")
    assert node.drained
    assert not node.master_candidate
    assert node.uuid not in master.config.cluster().candidate_certs


def test_coming_back_from_draining_fills_the_pool():
    changes = {2: {"drained": True, "master_candidate": False}}
    master = Master(cluster_of(3, node_changes=changes))
    result = master.run(change(drained=False))
    assert result == [("master_candidate", "True"), ("drained", "False")]
    certs = master.config.cluster().candidate_certs
    assert certs[uuid_of("node2")] == "CC:node2.example.com"


def test_a_node_comes_back_online_only_when_it_answers():
    changes = {2: {"offline": True, "master_candidate": False}}
    master = Master(cluster_of(3, node_changes=changes))
    error = errors.NodeUnreachable("node2.example.com", "version", "timed out")
    master.rpc.errors["version"] = error
    text = master.refused(change(offline=False), errors.ECODE_ENVIRON)
    assert "--readd" in text
    master.rpc.errors.clear()
    master.run(change(offline=False))
    assert not by_name(master, "node2.example.com").offline


@pytest.mark.parametrize(
    ("op", "ecode", "fragment"),
    [
        (change(), errors.ECODE_INVAL, "no change"),
        (change(offline=True, drained=True), errors.ECODE_INVAL, "only one"),
        (change("node1", offline=True), errors.ECODE_INVAL, "is the master"),
        (change("node1", master_candidate=False), errors.ECODE_INVAL, "is the master"),
        (change("nosuch", offline=True), errors.ECODE_NOENT, "nosuch"),
        (change(secondary_ip="192.0.2.50"), errors.ECODE_INVAL, "secondary"),
        (change(ndparams={"nosuch": 1}), errors.ECODE_INVAL, "nosuch"),
        (change(hv_state={"nosuch": {}}), errors.ECODE_INVAL, "no hypervisor 'nosuch'"),
        (change(hv_state={"kvm": {"mem_total": "much"}}), errors.ECODE_INVAL, "much"),
        (change(disk_state={"plain": {"vg": {"colour": 1}}}), errors.ECODE_INVAL, "colour"),
        (change(secondary_ip="nonsense"), errors.ECODE_INVAL, "IPv4"),
        (change(secondary_ip="192.0.2.3"), errors.ECODE_NOTUNIQUE, "node3.example.com"),
        (change(ndparams={"exclusive_storage": True}), errors.ECODE_INVAL, "single node"),
        (change(powered=False), errors.ECODE_STATE, "oob_program"),
        (change("node3", vm_capable=False), errors.ECODE_STATE, "has instances"),
    ],
)
def test_changing_is_refused(op, ecode, fragment):
    changes = {3: {"drained": True, "master_candidate": False}}
    master = Master(cluster_of(3, (instance_of("web", "node3"),), node_changes=changes))
    assert fragment in master.refused(op, ecode)


def test_too_few_candidates_need_promotion_or_force():
    changes = {3: {"master_candidate": False}}
    data = cluster_of(3, node_changes=changes, candidate_pool_size=2)
    master = Master(data)
    assert "--auto-promote" in master.refused(change(offline=True), errors.ECODE_STATE)
    master.run(change(offline=True, auto_promote=True))
    assert by_name(master, "node3.example.com").master_candidate
    forced = Master(data)
    forced.run(change(offline=True, force=True))
    assert not by_name(forced, "node3.example.com").master_candidate


def test_parameters_are_merged_and_reset():
    master = Master(cluster_of(3))
    master.run(change(ndparams={"spindle_count": "3", "cpu_speed": 2}))
    assert by_name(master, "node2.example.com").ndparams == {"spindle_count": 3, "cpu_speed": 2.0}
    master.run(change(ndparams={"cpu_speed": "default"}))
    assert by_name(master, "node2.example.com").ndparams == {"spindle_count": 3}


def test_states_set_by_hand_are_merged_and_reset():
    master = Master(cluster_of(3))
    master.run(
        change(
            hv_state={"kvm": {"mem_total": "4096", "mem_hv": 5}},
            disk_state={"plain": {"vg": {"disk_total": 9}}},
        )
    )
    master.run(
        change(
            hv_state={"kvm": {"mem_hv": "default"}, "fake": {"cpu_total": 2}},
            disk_state={"plain": {"vg": {"disk_reserved": 1}}},
        )
    )
    node = by_name(master, "node2.example.com")
    assert node.hv_state_static == {"kvm": {"mem_total": 4096}, "fake": {"cpu_total": 2}}
    assert node.disk_state_static == {"plain": {"vg": {"disk_total": 9, "disk_reserved": 1}}}


def test_a_file_disk_keeps_its_node(hosts):
    disk = disk_of("web", template="file", node="node2")
    web = instance_of("web", "node2", disks=(disk.uuid,))
    Master(cluster_of(3, (web,), (disk,))).refused(remove(), errors.ECODE_INVAL)
