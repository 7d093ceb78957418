"""Every published code of ``gnt-cluster verify`` is reported for at least one injected fault.

Each row breaks one thing in a healthy cluster which has everything: LVM, DRBD, files, Gluster,
exclusive storage in a group of its own, out-of-band helpers, a script for the master's address.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.config import GROUP, cluster_of, instance_of, uuid_of
from fakes.master import Master
from ganeti import errors
from ganeti.bootstrap import node_state
from ganeti.cmdlib.ops.disks import convert
from ganeti.cmdlib.ops.verify import answers as shapes
from ganeti.constants import disk as disk_c
from ganeti.constants import hv
from ganeti.constants import verify as verify_const
from ganeti.objects import BlockDevStatus, ConfigData, Disk, Maintenance, codec
from ganeti.objects.halt import Halt
from ganeti.opcodes.cluster import OpClusterVerifyConfig, OpClusterVerifyGroup
from ganeti.platform import paths
from ganeti.utils import clock
from ganeti.utils.text import secret_digest
from ganeti.wire.calls import Guests

NODE1, NODE2, NODE3 = (f"node{number}.example.com" for number in (1, 2, 3))
VG = "xenvg"
EXCLUSIVE = {"exclusive_storage": True}


def volume(name: str, size: int = 1024) -> Disk:
    return Disk(dev_type="plain", logical_id=(VG, name), size=size, spindles=1)


def plain(name: str) -> Disk:
    return dataclasses.replace(
        volume(f"{name}-lv"),
        iv_name="disk/0",
        nodes=(uuid_of("node1"),),
        uuid=uuid_of(f"{name}-disk0"),
        serial_no=1,
    )


def mirror(name: str, second: str = "node2", minor: int = 0) -> Disk:
    first = uuid_of("node1")
    return Disk(
        dev_type="drbd",
        size=1024,
        iv_name="disk/0",
        serial_no=1,
        spindles=1,
        uuid=uuid_of(f"{name}-disk{minor}"),
        nodes=(first, uuid_of(second)),
        logical_id=(first, uuid_of(second), 11000 + minor, minor, minor, "secret"),
        children=(volume(f"{name}-data{minor}"), volume(f"{name}-meta{minor}", 128)),
    )


def healthy() -> ConfigData:
    disks = (plain("flat"), mirror("web"))
    instances = tuple(
        instance_of(name, admin_state="up", disks_active=True, disks=(disk.uuid,))
        for name, disk in zip(("flat", "web"), disks, strict=True)
    )
    data = cluster_of(
        3,
        instances,
        disks,
        volume_group_name=VG,
        drbd_usermode_helper="/bin/true",
        enabled_disk_templates=("diskless", "drbd", "file", "gluster", "plain", "sharedfile"),
        use_external_mip_script=True,
    )
    return dataclasses.replace(
        data,
        cluster=dataclasses.replace(
            data.cluster, ndparams={**data.cluster.ndparams, "oob_program": "/bin/oob"}
        ),
    )


def minor(node: int, **changes: Any) -> dict[str, Any]:
    """How the minor of the mirrored disk is connected on one of its nodes."""
    return {
        "minor": 0,
        "connection": "Connected",
        "role": "Primary" if node == 1 else "Secondary",
        "peer_role": "Secondary" if node == 1 else "Primary",
        "disk": "UpToDate",
        "peer_disk": "UpToDate",
        "storage": f"/dev/{VG}/web-data0",
        "local": [f"192.0.2.{node}", 11000],
        "remote": [f"192.0.2.{3 - node}", 11000],
        "secret": secret_digest("secret"),
        "dual_primary": False,
        **changes,
    }


FACTS: dict[str, Any] = {
    "vglist": {VG: 100000.0},
    "lvlist": {
        f"{VG}/{name}": ["1024", False, True] for name in ("flat-lv", "web-data0", "web-meta0")
    },
    "pvlist": [["/dev/sda", VG, 50000.0, 1.0, "a--", []]],
    "drbd-version": [8, 4, 11],
    "drbd-list": [0],
    "drbd-connections": [minor(1)],
    "drbd-helper": [True, "/bin/true"],
    "master-ip": True,
}
# The third node has no disk.
FREE = {"lvlist": {}, "drbd-list": [], "drbd-connections": []}


class Cluster:
    """A healthy cluster to be broken."""

    def __init__(self, data: ConfigData) -> None:
        self.node_facts: dict[str, dict[str, Any]] = {
            NODE2: {
                "lvlist": {
                    f"{VG}/web-data0": ["1024", False, True],
                    f"{VG}/web-meta0": ["128", False, True],
                },
                "drbd-connections": [minor(2)],
            },
            NODE3: dict(FREE),
        }
        self.become(data)

    def become(self, data: ConfigData) -> None:
        """Be configured otherwise."""
        self.master = master = Master(data)
        master.config.verify = list  # type: ignore[method-assign,assignment]
        master.rpc.answers["time"] = lambda node: list(clock.split(clock.now()))
        usual = master.rpc._node_verify
        master.rpc.answers["node_verify"] = lambda node, args: {
            name: self.node_facts.get(node, {}).get(name, FACTS.get(name, known))
            for name, known in usual(node, args).items()
        }
        master.rpc.answers["blockdev_getmirrorstatus_multi"] = lambda node, args: [
            [
                True,
                BlockDevStatus(
                    dev_path="/dev/drbd0", is_degraded=False, ldisk_status=disk_c.LDS_OKAY
                ),
            ]
            for _ in args["disks"]
        ]
        for instance in data.instances.values():
            if instance.admin_state == "up" and instance.primary_node in data.nodes:
                node = data.nodes[instance.primary_node].name
                master.rpc.run(instance.name.split(".")[0], node.split(".")[0])

    @property
    def data(self) -> ConfigData:
        return self.master.config.snapshot()

    def tell(self, node: str, **facts: Any) -> None:
        """Let a node say something else."""
        self.node_facts.setdefault(node, {}).update(
            {name.replace("_", "-"): value for name, value in facts.items()}
        )

    def instance(self, name: str, **changes: Any) -> None:
        data = self.data
        changed = dataclasses.replace(data.instances[uuid_of(name)], **changes)
        self.become(dataclasses.replace(data, instances={**data.instances, changed.uuid: changed}))

    def node(self, number: int, **changes: Any) -> None:
        data = self.data
        changed = dataclasses.replace(data.nodes[uuid_of(f"node{number}")], **changes)
        self.become(dataclasses.replace(data, nodes={**data.nodes, changed.uuid: changed}))

    def cluster(self, **changes: Any) -> None:
        data = self.data
        self.become(dataclasses.replace(data, cluster=dataclasses.replace(data.cluster, **changes)))

    def add(self, name: str, *disks: Disk, **changes: Any) -> None:
        data = self.data
        new = instance_of(name, nics=(), disks=tuple(disk.uuid for disk in disks), **changes)
        self.become(
            dataclasses.replace(
                data,
                instances={**data.instances, new.uuid: new},
                disks={**data.disks, **{disk.uuid: disk for disk in disks}},
            )
        )

    def findings(self) -> list[list[str]]:
        """Severity, code, kind, name, text of everything that is found."""
        log: list[str] = []
        for op in (
            OpClusterVerifyConfig(error_codes=True),
            OpClusterVerifyGroup(group_name="default", error_codes=True),
        ):
            self.master.run(op)
            log += self.master.job.log
        return [
            line[4:].split(":", 4)
            for line in log
            if line.startswith(("  - ERROR:", "  - WARNING:"))
        ]


@pytest.fixture(scope="module")
def credentials(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the files of a node; making certificates takes a while."""
    root = tmp_path_factory.mktemp("root")
    node_state.write_credentials(paths.Paths(str(root)), node_state.new_credentials(), NODE1)
    return root


@pytest.fixture
def broken(credentials: Path) -> Iterator[Cluster]:
    with paths.override(paths.Paths(str(credentials))):
        yield Cluster(healthy())


def no_certificate(c: Cluster) -> None:
    os.rename(paths.current().noded_cert_file, paths.current().noded_cert_file + ".away")


def contradiction(c: Cluster) -> None:
    c.master.config.verify = lambda: ["it contradicts itself"]  # type: ignore[method-assign]


def failing_hook(c: Cluster) -> None:
    c.master.rpc.answers["hooks_runner"] = lambda node, args: [["x", 1, "no"]]


def no_group(c: Cluster) -> None:
    c.node(3, group="gone")


def exclusive(c: Cluster) -> None:
    c.cluster(ndparams={**c.data.cluster.ndparams, **EXCLUSIVE})


def no_spindles(c: Cluster) -> None:
    exclusive(c)
    data = c.data
    disk = dataclasses.replace(data.disks[uuid_of("flat-disk0")], spindles=None)
    c.become(dataclasses.replace(data, disks={**data.disks, disk.uuid: disk}))


def sizes_differ(c: Cluster) -> None:
    exclusive(c)
    c.tell(NODE2, pvlist=[["/dev/sdb", VG, 70000.0, 1.0, "a--", []]])


def two_groups(c: Cluster) -> None:
    data = c.data
    other = dataclasses.replace(data.nodegroups[GROUP], name="rack2", uuid="group-2")
    c.become(dataclasses.replace(data, nodegroups={**data.nodegroups, "group-2": other}))
    c.node(2, group="group-2")


def two_secondaries(c: Cluster) -> None:
    other = dataclasses.replace(mirror("web", "node3", 1), iv_name="disk/1")
    data = c.data
    web = data.instances[uuid_of("web")]
    c.become(
        dataclasses.replace(
            data,
            disks={**data.disks, other.uuid: other},
            instances={
                **data.instances,
                web.uuid: dataclasses.replace(web, disks=(*web.disks, other.uuid)),
            },
        )
    )


def hypervisor_fails(c: Cluster) -> None:
    c.master.rpc.answers["all_instances_info"] = Guests({}, {"fake": "xl does not answer"})


def recorded_too_large(c: Cluster) -> None:
    disk = c.data.disks[mirror("web", "node2", 0).uuid]
    large = dataclasses.replace(disk, size=5 << 20)
    c.become(dataclasses.replace(c.data, disks={**c.data.disks, disk.uuid: large}))


def group_for_metadata(c: Cluster) -> None:
    group = dataclasses.replace(c.data.nodegroups[GROUP], diskparams={"drbd": {"metavg": "fast"}})
    c.become(dataclasses.replace(c.data, nodegroups={**c.data.nodegroups, GROUP: group}))


def together(c: Cluster) -> None:
    c.cluster(tags=("htools:iextags:service",))
    for name in ("flat", "web"):
        c.instance(name, tags=("service:dns",))


def mirrors_say(state: Any) -> Callable[[Cluster], None]:
    def inject(c: Cluster) -> None:
        c.master.rpc.answers["blockdev_getmirrorstatus_multi"] = lambda node, args: [
            [not isinstance(state, str), state] for _ in args["disks"]
        ]

    return inject


def status(**values: Any) -> BlockDevStatus:
    return BlockDevStatus(dev_path="/dev/drbd0", **values)


def change_disk(c: Cluster, key: str, **changes: Any) -> None:
    changed = dataclasses.replace(c.data.disks[uuid_of(key)], **changes)
    c.become(dataclasses.replace(c.data, disks={**c.data.disks, changed.uuid: changed}))


def outdated(c: Cluster) -> None:
    change_disk(c, "web-disk0", outdated_node=uuid_of("node2"), outdated_since=1795377601.0)
    mirrors_say(status(is_degraded=True, ldisk_status=disk_c.LDS_OKAY))(c)


def tells(node: str, **facts: Any) -> Callable[[Cluster], None]:
    return lambda c: c.tell(node, **facts)


def halted(state: str, kind: str) -> Callable[[Cluster], None]:
    """The guest lives on its primary node, and does not run."""

    def inject(c: Cluster) -> None:
        c.master.rpc.halts["web.example.com", NODE1] = Halt(state, kind, "it says so")

    return inject


def answers(call: str, problem: str) -> Callable[[Cluster], None]:
    def inject(c: Cluster) -> None:
        c.master.rpc.errors[call, NODE2] = errors.NodeCallFailed(NODE2, call, problem)

    return inject


def kept(c: Cluster) -> None:
    detached = dataclasses.replace(
        volume("kept"),
        name=convert.mark(uuid_of("web")),
        nodes=(uuid_of("node3"),),
        uuid="uuid-kept",
        serial_no=1,
    )
    c.become(dataclasses.replace(c.data, disks={**c.data.disks, detached.uuid: detached}))
    c.tell(NODE3, lvlist={f"{VG}/kept": ["1024", False, False]})


#: Code, how it comes about, what the text has to contain.
FAULTS: list[tuple[str, Callable[[Cluster], None], str]] = [
    ("ECLUSTERCERT", no_certificate, "server.pem does not exist"),
    ("ECLUSTERCFG", contradiction, "it contradicts itself"),
    ("ECLUSTERCLIENTCERT", tells(NODE2, client_cert=[None, "other"]), NODE2),
    ("ECLUSTERDANGLINGINST", lambda c: c.instance("flat", primary_node="gone"), "flat"),
    ("ECLUSTERDANGLINGNODES", no_group, "gone"),
    ("ECLUSTERFILECHECK", tells(NODE2, filelist={}), "missing on node2"),
    ("EEXTAGS", together, "flat.example.com, web.example.com share the exclusive tag service:dns"),
    ("EGROUPDIFFERENTPVSIZE", sizes_differ, "/dev/sdb on node2.example.com has 70000"),
    (
        "EINSTANCEBADNODE",
        lambda c: c.node(2, offline=True, master_candidate=False),
        "secondary node node2.example.com is offline",
    ),
    ("EINSTANCEBADNODE", lambda c: c.node(1, vm_capable=False), "not vm_capable"),
    ("EINSTANCEDOWN", lambda c: c.master.rpc.running.clear(), "does not run"),
    (
        "EINSTANCEDOWN",
        halted("io-error", hv.HALT_CONTINUES),
        "does not run, although it was started: io-error (it says so). Remove the reason",
    ),
    ("EINSTANCEDOWN", halted("paused", hv.HALT_PAUSED), "'gnt-instance startup --continue web"),
    ("EINSTANCEFAULTYDISK", mirrors_say("no such minor"), "no such minor"),
    ("EINSTANCEFAULTYDISK", mirrors_say(status(is_degraded=True)), "not connected"),
    (
        "EINSTANCEFAULTYDISK",
        mirrors_say(status(ldisk_status=disk_c.LDS_FAULTY)),
        "lost its storage",
    ),
    ("EINSTANCEFAULTYDISK", mirrors_say(status(is_degraded=True, sync_percent=42.0)), "42.0 %"),
    ("EINSTANCEFAULTYDISK", outdated, f"node {NODE2} has missed writes since"),
    (
        "EINSTANCEFAULTYDISK",
        tells(NODE1, drbd_connections=[minor(1, dual_primary=True)]),
        f"disk/0 is dual-primary on node {NODE1}",
    ),
    (
        "EINSTANCEFAULTYDISK",
        tells(NODE2, drbd_connections=[minor(2, role="Primary")]),
        f"disk/0 is writable on node {NODE1}, {NODE2}, but the instance belongs to node {NODE1}",
    ),
    (
        "EINSTANCEFAULTYDISK",
        lambda c: (
            c.tell(NODE1, drbd_connections=[minor(1, role="Secondary")]),
            c.tell(NODE2, drbd_connections=[minor(2, role="Primary")]),
        )[0],
        f"disk/0 is writable on node {NODE2}, but the instance belongs to node {NODE1}",
    ),
    (
        "EINSTANCELAYOUT",
        recorded_too_large,
        "disk 0 is recorded with 5242880 MiB, but its metadata on each node have 128 MiB, which is"
        " enough for 4193152 MiB",
    ),
    ("EINSTANCELAYOUT", two_secondaries, "node2.example.com, node3.example.com"),
    ("EINSTANCEMISSINGCFGPARAMETER", no_spindles, "spindles of disk 0"),
    ("EINSTANCEMISSINGDISK", tells(NODE2, lvlist={}), f"{VG}/web-data0 is missing on node {NODE2}"),
    ("EINSTANCEPOLICY", lambda c: c.instance("web", beparams={"vcpus": 99}), "cpu-count"),
    ("EINSTANCESPLITGROUPS", two_groups, "default, rack2"),
    ("EINSTANCEUNSUITABLENODE", exclusive, "template drbd"),
    ("EINSTANCEWRONGNODE", lambda c: c.master.rpc.run("web", "node3"), NODE3),
    ("ENODEDRBD", tells(NODE2, drbd_list=[0, 7]), "minor 7 is in use"),
    ("ENODEDRBD", tells(NODE2, drbd_list=[]), "minor 0 of instance web.example.com is not active"),
    ("ENODEDRBD", tells(NODE2, drbd_list="no module"), "no module"),
    ("ENODEDRBD", tells(NODE2, drbd_connections="no drbdsetup"), "connected: no drbdsetup"),
    (
        "ENODEDRBD",
        tells(NODE2, drbd_connections=[{"minor": 0, "role": "Secondary", "problem": "no answer"}]),
        "minor 0 of disk/0 of instance web.example.com did not show its configuration: no answer",
    ),
    (
        "ENODEDRBD",
        tells(NODE2, drbd_connections=[minor(2, remote=["192.0.2.3", 11000])]),
        f"connects to 192.0.2.3:11000, not to its peer on node {NODE1}, 192.0.2.1:11000",
    ),
    (
        "ENODEDRBD",
        tells(NODE2, drbd_connections=[minor(2, secret=secret_digest("earlier"))]),
        "has another secret than the configuration",
    ),
    (
        "ENODEDRBD",
        tells(NODE2, drbd_connections=[minor(2, storage=f"/dev/{VG}/mail-data0")]),
        f"uses /dev/{VG}/mail-data0, not its own volume /dev/{VG}/web-data0",
    ),
    (
        "ENODEDRBD",
        tells(NODE2, drbd_minors=0),
        "loaded for 0 minors, so the disk of instance web.example.com with minor 0 cannot be used",
    ),
    ("ENODEHV", hypervisor_fails, "hypervisor fake does not tell its guests: xl does not answer"),
    ("ENODEDRBDHELPER", tells(NODE2, drbd_helper=[True, "/bin/false"]), "/bin/false"),
    ("ENODEDRBDHELPER", tells(NODE2, drbd_helper=[False, "no module"]), "no module"),
    ("ENODEDRBDVERSION", tells(NODE2, drbd_version=[8, 3, 11]), "other nodes have 8.4.11"),
    ("ENODEDRBDVERSION", tells(NODE2, drbd_version="no module"), "no module"),
    ("ENODEFILECHECK", tells(NODE2, filelist="unreadable"), "checksums"),
    ("ENODEFILESTORAGEPATHS", tells(NODE1, allowed_file_storage_paths=["/etc"]), "/etc"),
    ("ENODEFILESTORAGEPATHUNUSABLE", tells(NODE2, file_storage_path="no directory"), "no dir"),
    (
        "ENODEGLUSTERSTORAGEPATHUNUSABLE",
        tells(NODE2, gluster_storage_path="not mounted"),
        "not mounted",
    ),
    ("ENODEHOOKS", failing_hook, "hook x failed"),
    ("ENODEHV", tells(NODE2, hypervisor={"kvm": "no QEMU"}), "no QEMU"),
    ("ENODELVM", tells(NODE2, vglist={}), f"no volume group {VG}"),
    ("ENODELVM", group_for_metadata, "has no volume group fast, which is for metadata of DRBD"),
    ("ENODELVM", tells(NODE2, vglist={VG: 100.0}), "at least 20480"),
    ("ENODELVM", tells(NODE2, vg_duplicates=[VG, "ubuntu-vg"]), f"have the name {VG}, so LVM"),
    ("ENODELVM", tells(NODE2, vglist="no vgs"), "no vgs"),
    ("ENODELVM", tells(NODE2, lvlist="no lvs"), "no lvs"),
    (
        "ENODELVM",
        tells(NODE2, lvlist={VG: "cannot query LVM"}),
        f"did not report volume group {VG}: cannot query LVM",
    ),
    ("ENODELVM", tells(NODE2, pvlist="no pvs"), "no pvs"),
    ("ENODELVM", tells(NODE2, pvlist=[["/dev/a:b", VG, 50000.0, 1.0, "a--", []]]), "a colon"),
    (
        "ENODELVM",
        tells(NODE2, pvlist=[["[unknown]", VG, 50000.0, 0.0, "a-m", ["lv2", "lv1"]]]),
        "lacks physical volumes with lv1, lv2",
    ),
    (
        "ENODELVM",
        lambda c: (exclusive(c), c.tell(NODE2, exclusive_pvs=[["/dev/sda", ["a", "b"]]]))[0],
        "several logical volumes (a, b)",
    ),
    ("ENODEN1", lambda c: c.master.rpc.free_mib.update({NODE2: 1}), "cannot take over"),
    ("ENODENET", tells(NODE2, node_net_test={NODE1: "no route"}), "no route"),
    ("ENODENET", tells(NODE2, master_ip=False), "cannot reach the master address 192.0.2.100"),
    ("ENODENET", tells(NODE1, master_ip=False), "does not have the master address 192.0.2.100"),
    ("ENODEOOBPATH", tells(NODE2, oob_paths=["program /bin/oob does not exist"]), "/bin/oob"),
    ("ENODEORPHANINSTANCE", lambda c: c.master.rpc.run("ghost", "node3"), "ghost"),
    ("ENODEORPHANLV", tells(NODE3, lvlist={f"{VG}/old": ["1", True, False]}), f"{VG}/old"),
    ("ENODEORPHANLV", kept, f"{VG}/kept, which an interrupted operation on disks of instance web"),
    ("ENODEOS", tells(NODE2, oslist=[]), "lacks OS noop"),
    (
        "ENODEOS",
        tells(
            NODE2,
            oslist=[["noop", "/usr/share/ganeti/os/noop", True, "", [], [], [20], True, "2", []]],
        ),
        "OS noop has version '2'",
    ),
    ("ENODERPC", answers("node_verify", "it is tired"), "it is tired"),
    (
        "ENODEFILECHECK",
        tells(NODE2, config_journal=["cannot read config.data.journal: it", []]),
        "cannot read config.data.journal: it",
    ),
    ("ENODESETUP", tells(NODE2, nodesetup=["no /proc"]), "no /proc"),
    (
        "ENODESETUP",
        tells(NODE2, watcher=[[["", 71, 7500.0]], 7600.0]),
        "the watcher (process 71) has been running for 2 h 5 min and probably hangs",
    ),
    (
        "ENODESETUP",
        tells(NODE2, watcher=[[["unknown", 71, 90000.0]], None]),
        "the watcher for node group unknown (process 71) has been running for 1 d 1 h",
    ),
    (
        "ENODESHAREDFILESTORAGEPATHUNUSABLE",
        tells(NODE2, shared_file_storage_path="no dir"),
        "no dir",
    ),
    ("ENODETIME", tells(NODE2, time=[0, 0]), "its clock is behind"),
    (
        "ENODEUSERSCRIPTS",
        tells(NODE2, user_scripts=["/etc/ganeti/scripts/master-ip-setup"]),
        "master-ip-setup",
    ),
    ("ENODEVERSION", tells(NODE2, version=[1, "1.0"]), "uses protocol 1"),
]

#: Where SSH is set up by the cluster; tested with that.
ELSEWHERE = {"ENODESSH"}


def test_a_healthy_cluster(broken: Cluster) -> None:
    assert broken.findings() == []


def test_every_published_code_is_in_the_table() -> None:
    assert {code for code, _inject, _text in FAULTS} | ELSEWHERE == set(verify_const.ALL_CODES)


@pytest.mark.parametrize(("code", "inject", "text"), FAULTS)
def test_fault(broken: Cluster, code: str, inject: Callable[[Cluster], None], text: str) -> None:
    inject(broken)
    moved = paths.current().noded_cert_file + ".away"
    try:
        found = broken.findings()
    finally:
        if os.path.exists(moved):
            os.rename(moved, paths.current().noded_cert_file)
    mine = [row for row in found if row[1] == code]
    assert mine, found
    assert any(text in row[4] or text in row[3] for row in mine), mine
    assert {row[2] for row in mine} == {verify_const.OBJECT_OF[code]}


@pytest.mark.parametrize("odd", [7, "x", [5], [[]], {"a": []}, [None], {}], ids=repr)
def test_an_odd_answer_of_a_node_ends_nothing(broken: Cluster, odd: Any) -> None:
    """It is named, and all other checks are made."""
    named = set()
    for check in sorted(shapes._SHAPES):
        # Absent, so that the right answer of the healthy cluster is back.
        broken.node_facts[NODE3] = {**FREE, check: odd}
        broken.tell(NODE1, nodesetup=["a directory is missing"])
        found = broken.findings()
        assert any("a directory is missing" in row[4] for row in found), check
        if any(row[1] == "ENODERPC" and row[3] == NODE3 for row in found):
            assert not shapes._SHAPES[check](odd)
            named.add(check)
    # The others were not asked for in this cluster.
    assert len(named) >= 10


def test_what_entries_that_were_set_aside_use_is_not_unknown(broken: Cluster) -> None:
    odd = codec.to_dict(mirror("lost", minor=7)) | {"size": "large"}
    data = broken.data
    broken.tell(NODE2, lvlist={f"{VG}/lost-data7": ["1024", False, False]}, drbd_list=[7])
    broken.become(
        dataclasses.replace(
            data, damaged={"disks/d": odd, "instances/i": {"name": "lost.example.com"}}
        )
    )
    broken.master.rpc.run("lost", "node2")
    found = [row for row in broken.findings() if "lost" in row[4] or "minor 7" in row[4]]
    assert found == []


def test_snapshots_belong_to_their_volumes(broken: Cluster) -> None:
    broken.tell(
        NODE2,
        lvlist={
            f"{VG}/{name}": ["1", False, True]
            for name in ("web-data0", "web-meta0", "web-data0.snap.a", "web-data0.snap.b.c")
        },
    )
    assert broken.findings() == []
    # Of the volume of another node, of nobody's, what an export left, and no name of ours.
    strange = ("flat-lv.snap.a", "gone.snap.a", "web-data0.snap", "web-data0.snap.a b")
    broken.tell(
        NODE2,
        lvlist={
            f"{VG}/{name}": ["1", False, True] for name in ("web-data0", "web-meta0", *strange)
        },
    )
    found = [row[4] for row in broken.findings() if row[1] == "ENODEORPHANLV"]
    assert len(found) == len(strange)
    assert all(any(f"{VG}/{name}," in text for text in found) for name in strange)


def test_a_pattern_of_an_older_configuration_may_be_unusable_now(broken: Cluster) -> None:
    broken.cluster(reserved_lvs=("(?!x)", f"{VG}/swap.*"))
    broken.tell(NODE3, lvlist={f"{VG}/swap1": ["1", True, False], f"{VG}/x": ["1", True, False]})
    assert [row[4] for row in broken.findings() if row[1] == "ENODEORPHANLV"] == [
        f"has volume {VG}/x, which belongs to no disk"
    ]


def test_reserved_and_foreign_volumes_are_left_alone(broken: Cluster) -> None:
    broken.cluster(reserved_lvs=(f"{VG}/swap.*",))
    broken.tell(
        NODE3,
        lvlist={
            f"{VG}/swap1": ["1", True, False],
            f"{VG}/coming": ["1", True, False],
            "other/root": ["1", True, False],
        },
        drbd_list=[5],
    )
    broken.master.config.reserving_for("job").reserve_lv(f"{VG}/coming")
    broken.master.config.reserving_for("job").allocate_minors([uuid_of("node3")] * 6)
    assert broken.findings() == []


def test_mirrors_that_are_not_in_use_need_no_minor(broken: Cluster) -> None:
    broken.instance("web", admin_state="down", disks_active=False)
    for node in (NODE1, NODE2):
        broken.tell(node, drbd_list=[], drbd_connections=[])
    assert broken.findings() == []
    assert broken.master.rpc.of("blockdev_getmirrorstatus_multi") == []


# -- mirrored disks --------------------------------------------------------------


def severities(found: list[list[str]], code: str) -> list[str]:
    return [row[0] for row in found if row[1] == code]


def test_a_synchronisation_and_kept_volumes_are_warnings(broken: Cluster) -> None:
    kept(broken)
    mirrors_say(status(is_degraded=True, sync_percent=42.0))(broken)
    found = broken.findings()
    assert severities(found, "EINSTANCEFAULTYDISK") == ["WARNING"]
    assert severities(found, "ENODEORPHANLV") == ["WARNING"]


def test_a_mirror_with_one_good_replica_is_an_error_and_says_what_to_do(broken: Cluster) -> None:
    outdated(broken)
    (found,) = broken.findings()
    assert found[:2] == ["ERROR", "EINSTANCEFAULTYDISK"]
    assert "Use 'gnt-instance activate-disks web.example.com'" in found[4]


def test_a_mirror_of_which_one_node_reports_that_it_is_in_sync(broken: Cluster) -> None:
    call = "blockdev_getmirrorstatus_multi"
    broken.master.rpc.errors[call, NODE2] = errors.NodeUnreachable(NODE2, call, "no route")
    found = broken.findings()
    assert severities(found, "ENODERPC") == ["ERROR"]
    assert severities(found, "EINSTANCEFAULTYDISK") == ["WARNING"]


def test_a_detached_disk_is_no_unknown_volume(broken: Cluster) -> None:
    kept(broken)
    change_disk(broken, "kept", name="spare")
    assert broken.findings() == []


def left(c: Cluster, template: str, *ident: str, owner: str = "web", node: str = "node1") -> Disk:
    """Have a disk which an interrupted conversion left."""
    disk = Disk(
        dev_type=template,
        logical_id=ident,
        size=1024,
        name=convert.mark(uuid_of(owner)),
        nodes=(uuid_of(node),) if node else (),
        uuid=f"uuid-left-{template}",
        serial_no=1,
    )
    c.become(dataclasses.replace(c.data, disks={**c.data.disks, disk.uuid: disk}))
    return disk


LEFT = [
    ("file", ("loop", "/srv/ganeti/file-storage/web/disk0")),
    ("sharedfile", ("loop", "/srv/shared/web/disk0")),
    ("rbd", ("rbd", "old.rbd.disk0")),
    ("ext", ("provider", "old.ext.disk0")),
]


@pytest.mark.parametrize(("template", "ident"), LEFT)
@pytest.mark.parametrize("node", ["node1", ""])
def test_an_old_disk_which_a_conversion_left_is_named(
    broken: Cluster, template: str, ident: tuple[str, ...], node: str
) -> None:
    """Also one which is no logical volume, and of which the record names no node."""
    left(broken, template, *ident, node=node)
    (found,) = broken.findings()
    assert found[:4] == ["WARNING", "ENODEORPHANLV", "node", NODE1]
    assert found[4].startswith(f"has disk {ident[-1]} ({template}), which an interrupted operation")
    assert "instance web.example.com left" in found[4]
    assert "The next 'gnt-instance replace-disks web.example.com', a conversion" in found[4]


def test_a_record_of_a_disk_which_was_never_made_is_no_finding(broken: Cluster) -> None:
    disk = left(broken, "file", "loop", "/srv/ganeti/file-storage/web/disk0")
    broken.master.rpc.answers["blockdev_getdimensions"] = lambda node, args: [
        None if one.uuid == disk.uuid else [1 << 30, None] for one in args["disks"]
    ]
    assert broken.findings() == []


def test_whether_an_old_disk_exists_is_not_always_known(broken: Cluster) -> None:
    left(broken, "file", "loop", "/srv/ganeti/file-storage/web/disk0")
    odd = errors.BlockDeviceError("not mounted")
    broken.master.rpc.answers["blockdev_getdimensions"] = lambda node, args: [odd]
    (found,) = broken.findings()
    assert found[4].startswith("may have disk /srv/ganeti/file-storage/web/disk0 (file), which")
    del broken.master.rpc.answers["blockdev_getdimensions"]
    call = "blockdev_getdimensions"
    broken.master.rpc.errors[call, NODE1] = errors.NodeUnreachable(NODE1, call, "no route")
    broken.findings()
    (note,) = (line for line in broken.master.job.log if "it is unknown whether node" in line)
    assert note.endswith("operations left: /srv/ganeti/file-storage/web/disk0 (file)")


def test_an_old_volume_where_lvm_is_not_used_any_more(broken: Cluster) -> None:
    data = broken.data
    flat = dataclasses.replace(data.instances[uuid_of("flat")], disks=())
    volume_left = dataclasses.replace(
        data.disks[uuid_of("flat-disk0")], name=convert.mark(flat.uuid), iv_name=""
    )
    broken.become(
        dataclasses.replace(
            data,
            instances={flat.uuid: flat},
            disks={volume_left.uuid: volume_left},
            cluster=dataclasses.replace(
                data.cluster, enabled_disk_templates=("diskless", "file"), volume_group_name=None
            ),
        )
    )
    (found,) = [row for row in broken.findings() if row[1] == "ENODEORPHANLV"]
    assert found[4].startswith(f"has disk {VG}/flat-lv (plain), which an interrupted operation")


def test_an_old_disk_of_an_instance_which_was_removed(broken: Cluster) -> None:
    """Nothing removes it any more, so that the text says how somebody does."""
    left(broken, "file", "loop", "/srv/ganeti/file-storage/gone/disk0", owner="gone")
    assert broken.findings() == []
    (note,) = (line for line in broken.master.job.log if "removed since then" in line)
    assert "has disk /srv/ganeti/file-storage/gone/disk0 (file) on node node1.example.com" in note
    assert "--disk attach:uuid=uuid-left-file" in note


def test_an_old_volume_of_an_instance_which_was_removed(broken: Cluster) -> None:
    left(broken, "plain", VG, "old", owner="gone", node="node3")
    broken.tell(NODE3, lvlist={f"{VG}/old": ["1024", False, False]})
    (found,) = broken.findings()
    assert found[:4] == ["WARNING", "ENODEORPHANLV", "node", NODE3]
    assert "--disk attach:uuid=uuid-left-plain" in found[4]


def stopped(c: Cluster, **record: Any) -> list[str]:
    """Verify while the mirrored instance is stopped; returns the notices."""
    c.instance("web", admin_state="down", disks_active=False)
    change_disk(c, "web-disk0", **record)
    for node in (NODE1, NODE2):
        c.tell(node, drbd_list=[], drbd_connections=[])
    c.master.rpc.running.pop(("web.example.com", NODE1), None)
    assert c.findings() == [], "no error, and nothing that a program counts"
    return [line for line in c.master.job.log if "NOTICE" in line and "compare" in line]


def test_inactive_replicas_which_nobody_compared_are_a_notice(broken: Cluster) -> None:
    (notice,) = stopped(broken)
    assert "1 mirrored disk(s)" in notice
    assert notice.endswith("web.example.com")
    assert broken.master.rpc.of("blockdev_getmirrorstatus_multi") == []


def test_inactive_replicas_which_were_compared_are_good(broken: Cluster) -> None:
    assert stopped(broken, in_sync_at=1795377601.0) == []


# -- maintenance -----------------------------------------------------------------


def in_maintenance(c: Cluster, number: int, **record: Any) -> None:
    """Mark a node, whose machine is switched off."""
    mark = Maintenance(since=1795377601.0, **{"ready_at": 1795377700.0, **record})
    c.node(number, maintenance=mark, drained=True, master_candidate=number == 1)
    name = f"node{number}.example.com"
    for call in ("node_verify", "blockdev_getmirrorstatus_multi"):
        c.master.rpc.errors[call, name] = errors.NodeUnreachable(name, call, "no route")


def notice(c: Cluster) -> str:
    (found,) = [line for line in c.master.job.log if "is in maintenance since" in line]
    return found


def test_a_node_which_may_be_switched_off_is_no_error(broken: Cluster) -> None:
    change_disk(broken, "web-disk0", outdated_node=uuid_of("node2"), outdated_since=1795377700.0)
    in_maintenance(broken, 2)
    broken.tell(NODE1, node_net_test={NODE2: "no route"})
    mirrors_say(status(is_degraded=True, ldisk_status=disk_c.LDS_OKAY))(broken)
    found = broken.findings()
    assert [row[0] for row in found] == ["WARNING"]
    assert "disk/0" in found[0][4] and f"node {NODE2} is in maintenance" in found[0][4]
    assert "does not answer" in notice(broken)


def test_what_was_stopped_for_a_maintenance_need_not_run(broken: Cluster) -> None:
    in_maintenance(broken, 1, stopped=(uuid_of("flat"),))
    broken.master.rpc.errors.clear()
    broken.master.rpc.running.pop(("flat.example.com", NODE1))
    assert broken.findings() == []
    assert "stopped until its end: flat.example.com" in notice(broken)
    broken.master.rpc.running.clear()
    assert [row[1:4:2] for row in broken.findings()] == [["EINSTANCEDOWN", "web.example.com"]]


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({"ready_at": None}, "the machine is still needed"),
        ({"ready_at": None, "returning": True}, "its end has begun"),
    ],
)
def test_a_node_which_is_still_needed_has_to_answer(
    broken: Cluster, record: dict[str, Any], words: str
) -> None:
    in_maintenance(broken, 2, **record)
    assert "ENODERPC" in {row[1] for row in broken.findings() if row[0] == "ERROR"}
    assert words in notice(broken)


def test_another_machine_at_the_address_of_a_node_in_maintenance_is_an_error(
    broken: Cluster,
) -> None:
    in_maintenance(broken, 2)
    mismatch = errors.NodeKeyMismatch(NODE2, "node_verify", "another key")
    broken.master.rpc.errors["node_verify", NODE2] = mismatch
    assert "ENODERPC" in {row[1] for row in broken.findings() if row[0] == "ERROR"}
