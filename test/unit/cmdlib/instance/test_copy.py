"""Copies of instances: what is as before, what is new, and what is refused.

The nodes have their real code (:mod:`fakes.node_side`), so the content of disks is compared.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from fakes import mirror
from fakes.breaking import WEB, contents, create, empty, web
from fakes.config import cluster_of, disk_of, instance_of, uuid_of
from fakes.master import Master
from fakes.node_side import Cluster
from ganeti import errors
from ganeti.cmdlib.ops.transfer import disk_copy
from ganeti.locking import Level
from ganeti.metad import describe, guests, nocloud
from ganeti.objects import Disk, Nic
from ganeti.opcodes import instance as ops
from ganeti.opcodes import network as net_ops

TWO = "two.example.com"
OLD, NEW = bytes(range(256)) * 16384, bytes(reversed(range(256))) * 16384


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    mirror.install(monkeypatch)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    monkeypatch.setattr(disk_copy, "POLL_MIN_S", 0.0)
    monkeypatch.setattr(disk_copy, "POLL_MAX_S", 0.0)


def copy(**changes) -> ops.OpInstanceCopy:
    values = {"instance_name": WEB, "new_name": TWO, "pnode": "node2"}
    return ops.OpInstanceCopy(**{**values, **changes})


def fresh(directory: Path, template: str = "file", **changes) -> Cluster:
    """Three nodes, and an instance with two disks of 4 MiB."""
    cluster = empty(directory)
    disks = [{"size": 4, "name": "system"}, {"size": 4}]
    cluster.run(create(template, **{"disks": disks, **changes}))
    for path in contents(cluster):
        path.write_bytes(OLD)
    return cluster


def found(cluster: Master, name: str = TWO):
    (instance,) = [one for one in cluster.config.instances() if one.name == name]
    return instance


def content_of(cluster: Cluster, disk: Disk, primary: str) -> bytes:
    below = disk.data_device
    root = cluster.rpc.root(cluster.config.node(primary).name)
    if below.dev_type == "plain":
        return (root / mirror.LVM / "/".join(below.logical_id)).read_bytes()
    return Path(str(root) + below.logical_id[1]).read_bytes()


def require_content(cluster: Cluster, wanted: bytes) -> None:
    instance = found(cluster)
    disks = cluster.config.instance_disks(instance)
    assert disks
    for disk in disks:
        assert content_of(cluster, disk, instance.primary_node) == wanted


# -- what is as before, and what is new -----------------------------------------------------------


@pytest.mark.parametrize("to", [None, "file", "sharedfile", "plain", "drbd"])
@pytest.mark.parametrize("template", ["file", "sharedfile", "plain", "drbd"])
def test_every_template_is_copied_to_every_template(
    tmp_path: Path, template: str, to: str | None
) -> None:
    cluster = fresh(tmp_path / "cluster", template)
    snode = "node3" if (to or template) == "drbd" else None
    before = web(cluster)
    nodes = cluster.run(copy(disk_template=to, snode=snode))
    assert nodes == [f"{node}.example.com" for node in ("node2", snode) if node]
    require_content(cluster, OLD)
    assert cluster.config.disk_template(found(cluster)) == (to or template)
    assert found(cluster, WEB).disks == before.disks
    assert not found(cluster).disks_active and not found(cluster, WEB).disks_active
    assert found(cluster).importing_since is None
    assert cluster.rpc.active() == set(), "minors are left in use"
    assert cluster.locks.owners() == []


def test_names_uuids_and_addresses_are_new(tmp_path: Path) -> None:
    cluster = fresh(
        tmp_path / "cluster",
        beparams={"memory": 256, "vcpus": 2},
        hvparams={},
        osparams={"a": "b"},
        osparams_private={"c": "d"},
        tags=["prod"],
    )
    source = web(cluster)
    cluster.run(copy())
    made = found(cluster)
    assert (made.beparams, made.osparams, made.tags) == (
        source.beparams,
        source.osparams,
        ("prod",),
    )
    assert made.osparams_private == source.osparams_private
    assert (made.os, made.hypervisor, made.hvparams) == (source.os, source.hypervisor, {})
    assert made.uuid != source.uuid and made.admin_state == "down"
    assert not {nic.mac for nic in made.nics} & {nic.mac for nic in source.nics}
    assert not {nic.uuid for nic in made.nics} & {nic.uuid for nic in source.nics}
    old, new = cluster.config.instance_disks(source), cluster.config.instance_disks(made)
    assert [disk.name for disk in new] == ["system", None]
    assert [disk.size for disk in new] == [disk.size for disk in old]
    assert not {disk.uuid for disk in new} & {disk.uuid for disk in old}
    assert not {disk.logical_id for disk in new} & {disk.logical_id for disk in old}
    assert cluster.rpc.running() == {}


def connected(cluster: Cluster, name: str, mode: str = "bridged") -> None:
    """Add a network with the addresses 198.51.100.1 to .14, connected to the group."""
    cluster.run(net_ops.OpNetworkAdd(network_name=name, network="198.51.100.0/28"))
    cluster.run(
        net_ops.OpNetworkConnect(
            group_name="default",
            network_name=name,
            network_mode=mode,
            network_link="br0",
            network_vlan="",
        )
    )


def test_cloud_init_takes_it_for_another_guest(tmp_path: Path) -> None:
    cluster = empty(tmp_path / "cluster")
    connected(cluster, "talk", "routed")
    with cluster.config.transaction() as change:
        present = cluster.config.cluster()
        change.cluster.update(replace(present, instance_communication_network="talk"))
    cluster.run(create("file", instance_communication=True))
    cluster.run(copy())
    (talking,) = [nic for nic in found(cluster).nics if nic.name]
    assert (talking.name, talking.ip) == ("ganeti:communication:two.example.com", "198.51.100.2")
    facts = describe.describe(found(cluster), public={}, private={}, secret={})
    text = nocloud.meta_data(guests.parse(facts))
    assert f'"instance-id": "{found(cluster).uuid}"' in text
    assert '"local-hostname": "two.example.com"' in text
    # A definition like "image" writes the disk for cloud-init anew.
    assert ("instance_run_rename", "node2.example.com") in cluster.rpc.calls


def test_a_seed_which_nothing_writes_anew_is_a_warning(tmp_path: Path) -> None:
    cluster = fresh(
        tmp_path / "cluster", no_install=True, os_type=None, disks=[{"size": 4, "name": "cidata"}]
    )
    cluster.run(copy())
    assert cluster.job.said("disk cidata of instance two.example.com still has the name and")
    assert not any(name == "instance_run_rename" for name, _node in cluster.rpc.calls)


def test_the_first_free_address_of_each_network(tmp_path: Path) -> None:
    cluster = empty(tmp_path / "cluster")
    connected(cluster, "lan")
    nics = [{"network": "lan", "ip": "198.51.100.7", "name": "front"}, {"ip": "203.0.113.9"}]
    cluster.run(create("diskless", nics=nics))
    cluster.run(copy())
    front, other = found(cluster).nics
    assert (front.ip, front.name) == ("198.51.100.1", "front")
    assert front.network == found(cluster, WEB).nics[0].network
    assert other.ip is None
    assert cluster.job.said("203.0.113.9 is in no network of the cluster, and stays with web")
    cluster.run(copy(new_name="three", nics=[{"ip": "198.51.100.9"}, {"ip": "203.0.113.10"}]))
    assert [nic.ip for nic in found(cluster, "three").nics] == ["198.51.100.9", "203.0.113.10"]
    cluster.run(copy(new_name="four", nics=[{"network": "none", "link": "br9"}, {}, {}]))
    first, _second, third = found(cluster, "four").nics
    assert (first.network, first.ip, first.nicparams) == (None, None, {"link": "br9"})
    assert third.ip is None


def test_a_routed_interface_outside_of_networks_needs_an_address() -> None:
    nic = Nic(mac="aa:00:00:00:00:01", ip="192.0.2.77", nicparams={"mode": "routed"}, uuid="n")
    master = Master(cluster_of(3, (instance_of("web", nics=(nic,)),)))
    with pytest.raises(errors.OpPrereqError, match=r"192\.0\.2\.77 stays .* --net 0:ip=ADDRESS"):
        master.run(copy())
    master.run(copy(nics=[{"ip": "192.0.2.78"}]))
    assert [nic.ip for nic in found(master).nics] == ["192.0.2.78"]


def test_disks_may_be_different(tmp_path: Path) -> None:
    cluster = fresh(tmp_path / "cluster")
    cluster.run(copy(disks=[{}, {"size": 8, "name": "data", "mode": "ro"}]))
    first, second = cluster.config.instance_disks(found(cluster))
    assert (first.size, first.name) == (4, "system")
    assert (second.size, second.name, second.mode) == (8, "data", "ro")
    assert content_of(cluster, second, uuid_of("node2"))[: 4 << 20] == OLD


def test_a_copy_can_be_started(tmp_path: Path) -> None:
    cluster = fresh(tmp_path / "cluster")
    cluster.run(copy(start=True))
    assert cluster.rpc.running() == {TWO: ["node2"]}
    cluster.check_clean()


# -- snapshots ------------------------------------------------------------------------------------


@pytest.mark.parametrize("template", ["file", "sharedfile", "plain", "drbd"])
def test_a_snapshot_of_a_running_instance(tmp_path: Path, template: str) -> None:
    cluster = fresh(tmp_path / "cluster", template)
    cluster.run(ops.OpInstanceStartup(instance_name=WEB))
    cluster.run(ops.OpInstanceSnapshot(instance_name=WEB, snapshot_name="before", shutdown=True))
    for path in contents(cluster, primary_only=True):
        path.write_bytes(NEW)
    snode = "node3" if template == "drbd" else None
    with pytest.raises(errors.OpPrereqError) as caught:
        cluster.run(copy(snode=snode))
    assert str(caught.value.args[0]) == (
        "instance web.example.com runs, or is marked to run, so its disks change while they are"
        " copied. Stop it with 'gnt-instance shutdown web.example.com', or make a snapshot with"
        " 'gnt-instance snapshot web.example.com NAME' and copy that with --snapshot=NAME."
    )
    cluster.run(copy(snapshot_name="before", snode=snode))
    require_content(cluster, OLD)
    assert cluster.rpc.running() == {WEB: ["node1"]}
    assert found(cluster, WEB).disks_active
    rows = cluster.run(ops.OpInstanceSnapshotList(instances=[WEB, TWO]))
    assert {(row["instance"], row["snapshot"]) for row in rows} == {(WEB, "before")}


def test_a_snapshot_must_have_every_disk(tmp_path: Path) -> None:
    cluster = fresh(tmp_path / "cluster")
    cluster.run(ops.OpInstanceSnapshot(instance_name=WEB, snapshot_name="half", disks=[1]))
    with pytest.raises(errors.OpPrereqError, match="snapshot half of disk 0 .* does not exist"):
        cluster.run(copy(snapshot_name="half"))
    with pytest.raises(errors.OpPrereqError, match="has no snapshot other; it has half"):
        cluster.run(copy(snapshot_name="other"))
    assert [one.name for one in cluster.config.instances()] == [WEB]


def test_a_disk_that_has_grown_since_its_snapshot(tmp_path: Path) -> None:
    cluster = fresh(tmp_path / "cluster")
    cluster.run(ops.OpInstanceSnapshot(instance_name=WEB, snapshot_name="before", shutdown=True))
    cluster.run(ops.OpInstanceGrowDisk(instance_name=WEB, disk=0, amount=4))
    cluster.run(copy(snapshot_name="before"))
    require_content(cluster, OLD)
    cluster.run(copy(new_name="three"))
    assert [disk.size for disk in cluster.config.instance_disks(found(cluster, "three"))] == [8, 4]


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"new_name": "web"}, "web is the short form of web.example.com"),
        ({"new_name": WEB}, "is already in the cluster"),
        ({"disk_template": "diskless"}, "has disks, so its copy cannot"),
        ({"disk_template": "rbd"}, "disk template rbd is not enabled"),
        ({"disks": [{"size": 3}]}, "disk 0 of the copy must be a new disk of at least 4 MiB"),
        ({"disks": [{}, {}, {}]}, "has no disk 2. Add disks to the copy afterwards"),
        ({"disks": [{"adopt": "x"}]}, "must be a new disk"),
        ({"compress": "zip"}, "compression tool 'zip'"),
        ({"disk_template": "drbd"}, "need a secondary node"),
        ({"instance_uuid": "other"}, "is not the one for which the job was submitted"),
    ],
)
def test_wrong_parameters(tmp_path: Path, changes: dict, words: str) -> None:
    cluster = fresh(tmp_path / "cluster")
    before = cluster.config.snapshot()
    with pytest.raises(errors.OpPrereqError, match=words):
        cluster.run(copy(**changes))
    assert cluster.config.snapshot() is before


def test_storage_without_snapshots_is_told_only_what_it_can() -> None:
    disk = Disk(
        dev_type="rbd",
        logical_id=("rbd", "x"),
        size=1024,
        iv_name="disk/0",
        uuid="d",
        serial_no=1,
        nodes=(),
    )
    running = instance_of("web", disks=("d",), admin_state="up", disks_active=True)
    master = Master(cluster_of(3, (running,), (disk,), enabled_disk_templates=("rbd",)))
    with pytest.raises(errors.OpPrereqError, match=r"web\.example\.com', and repeat the command"):
        master.run(copy())


def test_devices_of_the_administrator_need_another_template() -> None:
    disk = replace(disk_of("web"), dev_type="blockdev", logical_id=("manual", "/dev/sdz"))
    master = Master(cluster_of(3, (instance_of("web", disks=(disk.uuid,)),), (disk,)))
    with pytest.raises(errors.OpPrereqError, match="Name another template for the copy with -t"):
        master.run(copy())


def test_a_reservation_has_nothing_to_copy() -> None:
    master = Master(cluster_of(3, (instance_of("web", forthcoming=True),)))
    with pytest.raises(errors.OpPrereqError, match="cannot copy"):
        master.run(copy())


def test_a_partly_restored_disk_is_not_copied() -> None:
    disk = disk_of("web")
    tag = f"snapshot-restore:before:{disk.uuid}"
    source = instance_of("web", disks=(disk.uuid,), tags=(tag,))
    master = Master(cluster_of(3, (source,), (disk,)))
    with pytest.raises(errors.OpPrereqError, match="not completely restored from snapshot before"):
        master.run(copy())


def test_a_change_while_the_job_waited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = fresh(tmp_path / "cluster")
    held = type(cluster.job).notify_start

    def changed(job) -> None:
        with cluster.config.transaction() as change:
            change.instances.update(replace(web(cluster), beparams={"vcpus": 3}))
        held(job)

    monkeypatch.setattr(type(cluster.job), "notify_start", changed)
    with pytest.raises(errors.OpPrereqError, match="was changed while the job waited"):
        cluster.run(copy())


# -- failures -------------------------------------------------------------------------------------


def test_a_failed_transfer_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = fresh(tmp_path / "cluster")
    before = cluster.rpc.stored()

    def fails(**_args) -> str:
        raise errors.OpExecError("the network is gone")

    monkeypatch.setattr(cluster.rpc, "_export_start", fails, raising=False)
    with pytest.raises(errors.OpExecError, match="disk 0, 1 of instance web.* was not made"):
        cluster.run(copy())
    assert [one.name for one in cluster.config.instances()] == [WEB]
    assert cluster.rpc.stored() == before
    assert not found(cluster, WEB).disks_active
    cluster.run(copy(snapshot_name=None, dry_run=True))


def test_an_unfinished_copy_is_marked_for_the_watcher(tmp_path: Path) -> None:
    """The master dies during the transfer."""
    whole = fresh(tmp_path / "whole")
    whole.rpc.restart()
    whole.run(copy())
    at = [name for name, _node in whole.rpc.calls].index("export_start")
    cluster = fresh(tmp_path / "killed")
    cluster.broken(copy(), at, "kill")
    assert found(cluster).importing_since is not None
    cluster.run(ops.OpInstanceRemove(instance_name=TWO, unfinished_import=True))
    cluster.run(ops.OpInstanceDeactivateDisks(instance_name=WEB))
    cluster.check_clean()
    cluster.run(copy())
    require_content(cluster, OLD)


# -- locks, plan and hooks ------------------------------------------------------------------------


def test_locks_of_both_instances_and_of_the_source_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = fresh(tmp_path / "cluster")
    seen = {}

    def look(**args) -> str:
        owner = cluster.job.owner
        for level in (Level.INSTANCE, Level.NODE, Level.NODE_RES):
            seen[level] = dict(cluster.locks.owned(owner, level))
        return type(cluster.rpc)._export_start(cluster.rpc, **args)

    monkeypatch.setattr(cluster.rpc, "_export_start", look, raising=False)
    cluster.run(copy())
    two = found(cluster).uuid
    assert seen[Level.INSTANCE] == {found(cluster, WEB).uuid: "exclusive", two: "exclusive"}
    assert seen[Level.NODE] == {uuid_of("node1"): "shared", uuid_of("node2"): "shared"}
    assert seen[Level.NODE_RES] == {}


def test_an_allocator_chooses_and_the_source_stays_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ganeti.wire import json

    cluster = fresh(tmp_path / "cluster")
    answer = json.dumps({"success": True, "info": "", "result": ["node3.example.com"]})
    monkeypatch.setattr(cluster.rpc, "_iallocator_runner", lambda **_a: answer, raising=False)
    seen = {}

    def look(**args) -> str:
        seen.update(cluster.locks.owned(cluster.job.owner, Level.NODE))
        return type(cluster.rpc)._export_start(cluster.rpc, **args)

    monkeypatch.setattr(cluster.rpc, "_export_start", look, raising=False)
    assert cluster.run(copy(pnode=None, iallocator="hail")) == ["node3.example.com"]
    assert seen == {uuid_of("node1"): "shared", uuid_of("node3"): "shared"}


def test_the_plan_of_a_dry_run(tmp_path: Path) -> None:
    cluster = fresh(tmp_path / "cluster")
    cluster.run(ops.OpInstanceSnapshot(instance_name=WEB, snapshot_name="before", shutdown=True))
    before = cluster.config.snapshot()
    names = cluster.run(copy(snapshot_name="before", dry_run=True, start=True))
    assert names == ["node2.example.com"] and cluster.config.snapshot() is before
    text = "\n".join(cluster.job.log)
    assert "Plan of INSTANCE_COPY(web.example.com), which was not carried out:" in text
    assert "new_name: two.example.com" in text and "beparams" not in text
    steps = text.partition("  steps:\n")[2]
    assert steps == (
        "    1. add instance two.example.com to the configuration, with the parameters of"
        " web.example.com\n"
        "    2. make disk 0 (file, 4 MiB) on node2.example.com\n"
        "    3. make disk 1 (file, 4 MiB) on node2.example.com\n"
        "    4. copy snapshot before of disk 0 of web.example.com from node1.example.com to"
        " node2.example.com\n"
        "    5. copy snapshot before of disk 1 of web.example.com from node1.example.com to"
        " node2.example.com\n"
        "    6. start it on node2.example.com"
    )


def test_hooks_know_that_it_is_a_copy() -> None:
    master = Master(cluster_of(3, (instance_of("web"),)))
    master.rpc.answers["hooks_present"] = lambda node, args: [True] * len(args["wanted"])
    master.run(copy())
    env = master.rpc.of("hooks_runner")[0][1]["env"]
    assert (env["GANETI_OP_CODE"], env["GANETI_ADD_MODE"]) == ("OP_INSTANCE_COPY", "copy")
    assert (env["GANETI_SRC_INSTANCE"], env["GANETI_SRC_SNAPSHOT"]) == (WEB, "")
    assert env["GANETI_INSTANCE_NAME"] == TWO
