"""Snapshots that stay: made, listed, removed, restored; and what refuses to destroy them."""

from __future__ import annotations

import dataclasses

import pytest

from fakes.config import cluster_of, commit, disk_of, instance_of, uuid_of
from fakes.disks import drbd_of, plain_of
from fakes.master import Master
from ganeti import errors
from ganeti.objects import BlockDevStatus, Disk, ipolicy
from ganeti.opcodes import instance as ops
from ganeti.opcodes.backup import OpBackupExport
from ganeti.utils import clock

ALL = ("blockdev", "diskless", "drbd", "ext", "file", "gluster", "plain", "rbd", "sharedfile")
RULES = ipolicy.defaults()
RULES["minmax"][0]["min"]["disk-size"] = 1
N1, N2 = "node1.example.com", "node2.example.com"
OKAY = BlockDevStatus(dev_path="/dev/drbd0", is_degraded=False, ldisk_status=1)


def file_disk(index=0, template="file"):
    return dataclasses.replace(disk_of("web", index, template), size=1024)


def of_kind(template):
    ids = {
        "blockdev": ("manual", "/dev/sdz"),
        "rbd": ("rbd", "x"),
        "ext": ("prov", "vol"),
        "gluster": ("g", "ganeti/x"),
    }
    return Disk(
        dev_type=template,
        logical_id=ids[template],
        size=1024,
        iv_name="disk/0",
        uuid=uuid_of("web-disk0"),
        serial_no=1,
        nodes=(),
    )


class Nodes:
    """What nodes say: snapshots by (node, volume or path), and free space."""

    def __init__(self, *disks, kept=(), free=8192, **changes):
        web = instance_of(
            "web",
            **{
                "admin_state": "down",
                "disks_active": False,
                "disks": tuple(disk.uuid for disk in disks),
                **changes,
            },
        )
        self.master = Master(
            cluster_of(
                3,
                (web,),
                disks,
                enabled_disk_templates=ALL,
                volume_group_name="xenvg",
                ipolicy=RULES,
            )
        )
        self.rpc = self.master.rpc
        self.kept = {}
        for node, volume, *row in kept:
            found = self.kept.setdefault((node, volume), [])
            found.append([*row, *(1024 << 20, 1795256100.0, True)[len(row) - 1 :]])
        self.rpc.answers.update(
            {
                "blockdev_snapshot_list": lambda node, args: [
                    self.kept.get((node, str(disk.logical_id[1])), []) for disk in args["disks"]
                ],
                "blockdev_find_multi": OKAY,
                "node_info": lambda node, args: [
                    "boot",
                    [
                        {
                            "type": unit[0],
                            "name": unit[1],
                            "storage_free": free,
                            "storage_size": 9999,
                        }
                        for unit in args["storage_units"] or ()
                    ],
                    [
                        {
                            "memory_free": 4096,
                            "memory_total": 8192,
                            "memory_dom0": 1,
                            "cpu_total": 4,
                            "cpu_dom0": 1,
                        }
                        for _ in args["hv_specs"]
                    ],
                ],
            }
        )

    def run(self, op):
        return self.master.run(op)

    def refused(self, op, text, ecode=None):
        with pytest.raises(errors.OpPrereqError, match=text) as caught:
            self.run(op)
        assert ecode is None or caught.value.ecode == ecode
        assert self.rpc.acting() == []

    def acted(self):
        return [
            (name, node.split(".")[0])
            for name, node, _args in self.rpc.calls
            if name in self.rpc.acting()
        ]


def take(**changes):
    return ops.OpInstanceSnapshot(**{"instance_name": "web", "snapshot_name": "a", **changes})


def remove(name="a"):
    return ops.OpInstanceSnapshotRemove(instance_name="web", snapshot_name=name)


def restore(name="a"):
    return ops.OpInstanceSnapshotRestore(instance_name="web", snapshot_name=name)


# -- making ------------------------------------------------------------------------------------


def test_a_stopped_instance_on_files():
    nodes = Nodes(file_disk(0), file_disk(1))
    assert nodes.run(take()) == "a"
    assert nodes.acted() == [("blockdev_snapshot_keep", "node1")]
    ((_node, args),) = nodes.rpc.of("blockdev_snapshot_keep")
    assert (args["name"], args["at_rest"]) == ("a", True)
    assert [disk.uuid for disk in args["disks"]] == [file_disk(index).uuid for index in (0, 1)]
    assert not nodes.master.job.said("WARNING")


def test_the_name_is_the_time(monkeypatch):
    monkeypatch.setattr(clock, "now", lambda: 1795256100.0)
    assert Nodes(file_disk()).run(take(snapshot_name=None)) == "20261121-101500"


def test_volumes_get_room_for_everything():
    nodes = Nodes(plain_of("web"))
    nodes.run(take())
    ((_node, args),) = nodes.rpc.of("blockdev_snapshot_keep")
    (disk,) = args["disks"]
    assert (args["sizes_mib"], disk.logical_id) == ([1038], ("xenvg", "web-lv"))
    Nodes(plain_of("web"), free=1037).refused(
        take(), "1038 MiB needed .*1037 MiB free", "insufficient_resources"
    )


def test_mirrors_must_have_all_data():
    nodes = Nodes(drbd_of("web"))
    nodes.run(take())
    # Only active halves know whether they are complete.
    assert nodes.acted() == [
        ("blockdev_assemble_multi", "node2"),
        ("blockdev_assemble_multi", "node1"),
        ("blockdev_snapshot_keep", "node1"),
        ("blockdev_shutdown_multi", "node1"),
        ("blockdev_shutdown_multi", "node2"),
    ]
    ((_node, args),) = nodes.rpc.of("blockdev_snapshot_keep")
    # The mirrored disk, whose device decides, and not its data volume.
    assert [disk.dev_type for disk in args["disks"]] == ["drbd"]
    nodes = Nodes(drbd_of("web"))
    nodes.rpc.errors["blockdev_snapshot_keep"] = "has no complete replica"
    with pytest.raises(errors.OpExecError, match="disk 0 .*has no complete replica"):
        nodes.run(take())
    assert nodes.acted()[-1] == ("blockdev_shutdown_multi", "node2")


def running(*disks, **changes):
    nodes = Nodes(*disks, admin_state="up", disks_active=True, **changes)
    nodes.rpc.run("web", "node1")
    return nodes


def test_a_running_instance_is_told_what_it_gets():
    nodes = running(file_disk(0), file_disk(1))
    nodes.run(take())
    assert nodes.master.job.said("are of different moments")
    assert nodes.master.job.said("--shutdown")
    assert not nodes.rpc.of("blockdev_snapshot_keep")[0][1]["at_rest"]
    nodes = running(file_disk(0), file_disk(1))
    nodes.run(take(disks=[1, 1]))
    assert not nodes.master.job.said("WARNING")
    ((_node, args),) = nodes.rpc.of("blockdev_snapshot_keep")
    assert [disk.uuid for disk in args["disks"]] == [file_disk(1).uuid]


@pytest.mark.parametrize("fails", [False, True])
def test_it_is_stopped_and_runs_again_in_any_case(fails):
    nodes = running(file_disk(0), file_disk(1))
    if fails:
        nodes.rpc.errors["blockdev_snapshot_keep"] = "no"
        with pytest.raises(errors.OpExecError, match="disk 0 .*: no$"):
            nodes.run(take(shutdown=True))
    else:
        nodes.run(take(shutdown=True))
        assert nodes.rpc.of("blockdev_snapshot_keep")[0][1]["at_rest"]
    acted = [name for name, _node in nodes.acted()]
    assert acted[0] == "instance_shutdown" and acted[-1] == "instance_start"
    assert nodes.rpc.where("web") == ["node1"]
    assert nodes.master.config.instances()[0].admin_state == "up"


def test_it_does_not_start_again():
    for fails, wanted in ((False, "snapshot a was made. Start it"), (True, "disk 0 .*: no$")):
        nodes = running(file_disk(0))
        nodes.rpc.errors["instance_start"] = "out of memory"
        if fails:
            nodes.rpc.errors["blockdev_snapshot_keep"] = "no"
        with pytest.raises(errors.OpExecError, match=wanted):
            nodes.run(take(shutdown=True))
        assert nodes.master.job.said("out of memory") == fails


def test_a_disk_that_fails_undoes_the_others():
    nodes = Nodes(file_disk(0), file_disk(1), file_disk(2))
    refused = errors.DeviceCreationError("no space")

    def keep(node, args):
        return refused if args["disk"].uuid == file_disk(1).uuid else None

    nodes.rpc.answers["blockdev_snapshot_keep"] = keep
    with pytest.raises(errors.OpExecError, match="disk 1 .*no space$"):
        nodes.run(take())
    # The node has not made the snapshot of disk 1.
    assert [args["disk"].logical_id[1] for _node, args in nodes.rpc.of("blockdev_remove")] == [
        f"{file_disk(index).logical_id[1]}.snap.a" for index in (2, 0)
    ]


def test_what_cannot_be_undone_is_named():
    nodes = Nodes(file_disk(0))
    nodes.rpc.errors["blockdev_snapshot_keep"] = errors.NodeUnreachable(N1, "x", "gone")
    nodes.rpc.errors["blockdev_remove"] = errors.NodeUnreachable(N1, "x", "gone")
    with pytest.raises(
        errors.OpExecError,
        match="left behind: snapshot a of disk 0 on node node1.*remove-snapshot web.example.com a'",
    ):
        nodes.run(take())


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("blockdev", "the administrator manages the device"),
        ("rbd", "rbd snap create"),
        ("gluster", "gluster snapshot"),
    ],
)
def test_kinds_without(template, why):
    Nodes(of_kind(template)).refused(take(), f"disk 0 .* has template {template}.*{why}")


def test_external_storage_makes_them_and_no_more():
    nodes = Nodes(of_kind("ext"))
    nodes.run(take())
    assert nodes.acted() == [
        ("blockdev_snapshot_keep", "node1"),
        ("blockdev_shutdown_multi", "node1"),
    ]
    assert nodes.master.job.said("vol.snap.a of disk 0 belongs to its storage provider")
    for op in (remove, restore):
        with pytest.raises(errors.OpPrereqError, match="only the storage provider knows"):
            nodes.run(op())
    assert nodes.run(ops.OpInstanceSnapshotList()) == []


def test_what_is_refused():
    Nodes().refused(take(), "has no disks", "wrong_input")
    Nodes(file_disk()).refused(take(disks=[3]), "has no disk 3", "wrong_input")
    Nodes(file_disk()).refused(take(snapshot_name="a/b"), "cannot be the name", "wrong_input")
    Nodes(file_disk(), kept=[(N1, file_disk().logical_id[1], "a")]).refused(
        take(),
        "already has a snapshot a .disk 0.*remove-snapshot web.example.com a",
        "already_exists",
    )
    silent = Nodes(file_disk())
    silent.rpc.errors["blockdev_snapshot_list"] = "broken"
    silent.refused(take(), "node1.* did not report its snapshots: broken")


def test_exclusive_storage():
    nodes = Nodes(plain_of("web"))
    node = nodes.master.config.node(uuid_of("node1"))
    group = nodes.master.config.group(node.group)
    commit(nodes.master.config).groups.update(
        dataclasses.replace(group, ndparams={**group.ndparams, "exclusive_storage": True})
    )
    nodes.refused(take(), "exclusive storage: a snapshot would share")


# -- listing and removing ----------------------------------------------------------------------


def test_the_list_shows_both_nodes():
    nodes = Nodes(
        drbd_of("web"),
        kept=[(N2, "web-data", "old"), (N1, "web-data", "new", 5 << 20, None, False)],
    )
    assert nodes.run(ops.OpInstanceSnapshotList(instances=["web"])) == [
        {
            "instance": "web.example.com",
            "snapshot": "new",
            "disk": 0,
            "disk_uuid": drbd_of("web").uuid,
            "node": N1,
            "size": 5,
            "ctime": None,
            "usable": False,
        },
        {
            "instance": "web.example.com",
            "snapshot": "old",
            "disk": 0,
            "disk_uuid": drbd_of("web").uuid,
            "node": N2,
            "size": 1024,
            "ctime": 1795256100.0,
            "usable": True,
        },
    ]
    assert nodes.rpc.acting() == []


def test_the_list_goes_on_without_a_node():
    nodes = Nodes(drbd_of("web"), kept=[(N2, "web-data", "old")])
    nodes.rpc.errors["blockdev_snapshot_list", N1] = "broken"
    (row,) = nodes.run(ops.OpInstanceSnapshotList())
    assert row["node"] == N2
    assert nodes.master.job.said("node1.example.com did not report its snapshots: broken")
    with pytest.raises(errors.OpPrereqError, match="nosuch"):
        nodes.run(ops.OpInstanceSnapshotList(instances=["nosuch"]))


def test_removal_is_everywhere():
    nodes = Nodes(
        drbd_of("web"), kept=[(N1, "web-data", "a"), (N2, "web-data", "a"), (N2, "web-data", "b")]
    )
    nodes.run(remove())
    assert [
        (node, disk.dev_type, disk.logical_id[1])
        for node, args in nodes.rpc.of("blockdev_remove_multi")
        for disk in args["disks"]
    ] == [(N1, "plain", "web-data.snap.a"), (N2, "plain", "web-data.snap.a")]


def test_removal_of_a_name_that_is_not_there():
    Nodes(file_disk()).refused(remove(), "has no snapshot a, nor any other", "unknown_entity")
    Nodes(file_disk(), kept=[(N1, file_disk().logical_id[1], "b")]).refused(
        remove(), "has no snapshot a; it has b", "unknown_entity"
    )
    Nodes(file_disk()).refused(remove("../../etc"), "has no snapshot", "unknown_entity")


def test_a_removal_that_fails_goes_on_and_says_what_is_left():
    nodes = Nodes(drbd_of("web"), kept=[(N1, "web-data", "a"), (N2, "web-data", "a")])
    nodes.rpc.errors["blockdev_remove_multi", N1] = "in use"
    with pytest.raises(errors.OpExecError, match="disk 0 on node node1.*: in use. Repeat"):
        nodes.run(remove())
    assert len(nodes.rpc.of("blockdev_remove_multi")) == 2


# -- restoring ---------------------------------------------------------------------------------


def test_a_restore_activates_copies_and_deactivates():
    paths = [file_disk(index).logical_id[1] for index in range(3)]
    nodes = Nodes(
        *(file_disk(index) for index in range(3)), kept=[(N1, paths[0], "a"), (N1, paths[2], "a")]
    )
    seen = []
    nodes.rpc.answers["blockdev_snapshot_restore"] = lambda node, args: seen.append(
        nodes.master.config.instances()[0].tags
    )
    nodes.run(restore())
    assert [name for name, _node in nodes.acted()] == [
        "blockdev_assemble_multi",
        "blockdev_snapshot_restore",
        "blockdev_snapshot_restore",
        "blockdev_shutdown_multi",
    ]
    first, third = (f"snapshot-restore:a:{file_disk(index).uuid}" for index in (0, 2))
    assert seen == [(first, third), (third,)]
    assert nodes.master.config.instances()[0].tags == ()
    assert nodes.master.job.said("does not contain disk 1, which stays as it is")


def test_a_restore_that_fails_says_which_disk_is_half_written():
    paths = [file_disk(index).logical_id[1] for index in range(2)]
    nodes = Nodes(file_disk(0), file_disk(1), kept=[(N1, path, "a") for path in paths])
    nodes.rpc.errors["blockdev_snapshot_restore"] = "disk is full"
    with pytest.raises(
        errors.OpExecError,
        match=(
            "disk is full; disk 0 is written partly, or not at all. Disk 1 was not touched. .*"
            "Repeat 'gnt-instance restore-snapshot web.example.com a'"
        ),
    ):
        nodes.run(restore())
    assert nodes.acted()[-1] == ("blockdev_shutdown_multi", "node1")
    start = ops.OpInstanceStartup(instance_name="web")
    with pytest.raises(
        errors.OpPrereqError,
        match="disk 0 .*not completely restored .*disk 1 .*startup --force web.example.com",
    ):
        nodes.run(start)
    with pytest.raises(errors.OpPrereqError, match="not completely restored"):
        nodes.run(ops.OpInstanceReboot(instance_name="web", reboot_type="full"))
    for op in (
        SET(instance_name="web", disk_template="sharedfile"),
        OpBackupExport(instance_name="web", target_node="node2", mode="local"),
    ):
        with pytest.raises(errors.OpPrereqError, match="not completely restored"):
            nodes.run(op)
    nodes.run(take(snapshot_name="half"))
    assert nodes.master.job.said(
        "WARNING: disk 0 of instance web.example.com was not completely restored"
    )
    del nodes.rpc.errors["blockdev_snapshot_restore"]
    nodes.run(restore())
    nodes.run(start)


def test_tags_of_others_stay():
    path = file_disk().logical_id[1]
    nodes = Nodes(file_disk(), kept=[(N1, path, "a")], tags=("mine", "snapshot-restore:x:gone"))
    nodes.run(restore())
    assert nodes.master.config.instances()[0].tags == ("mine", "snapshot-restore:x:gone")
    nodes.run(ops.OpInstanceStartup(instance_name="web"))  # a disk it has no more


@pytest.mark.parametrize(
    ("changes", "kept", "why"),
    [
        ({"admin_state": "up"}, (N1, "web-data", "a"), "gnt-instance shutdown"),
        ({}, (N2, "web-data", "a"), "on its secondary node node2.*gnt-instance failover"),
        ({}, (N1, "web-data", "b"), "has no snapshot a; it has b"),
        (
            {},
            (N1, "web-data", "a", 1025 << 20),
            "has 1024 MiB, less than the 1025 MiB of snapshot a",
        ),
        ({}, (N1, "web-data", "a", 1 << 20, None, False), "has lost its content"),
    ],
)
def test_no_restore(changes, kept, why):
    Nodes(drbd_of("web"), kept=[kept], **changes).refused(restore(), why)


def test_a_disk_which_has_grown():
    nodes = Nodes(file_disk(), kept=[(N1, file_disk().logical_id[1], "a", 512 << 20)])
    nodes.run(restore())
    assert nodes.master.job.said("has grown since: the data after the first 512 MiB")


def test_not_while_it_runs_though_marked_down():
    nodes = Nodes(file_disk(), kept=[(N1, file_disk().logical_id[1], "a")])
    nodes.rpc.run("web", "node1")
    nodes.refused(restore(), "it runs on node node1")


# -- what else there is to do ------------------------------------------------------------------

_FILE = file_disk().logical_id[1]
SET = ops.OpInstanceSetParams
REFUSED = {
    "move file": (
        file_disk(),
        (N1, _FILE),
        ops.OpInstanceMove(instance_name="web", target_node="node2"),
    ),
    "move plain": (
        plain_of("web"),
        (N1, "web-lv"),
        ops.OpInstanceMove(instance_name="web", target_node="node2"),
    ),
    "convert": (file_disk(), (N1, _FILE), SET(instance_name="web", disk_template="sharedfile")),
    "convert plain": (
        plain_of("web"),
        (N1, "web-lv"),
        SET(instance_name="web", disk_template="file"),
    ),
    "convert mirror": (
        drbd_of("web"),
        (N2, "web-data"),
        SET(instance_name="web", disk_template="plain"),
    ),
    "replace on primary": (
        drbd_of("web"),
        (N1, "web-data"),
        ops.OpInstanceReplaceDisks(instance_name="web", mode="replace_on_primary"),
    ),
    "replace on secondary": (
        drbd_of("web"),
        (N2, "web-data"),
        ops.OpInstanceReplaceDisks(instance_name="web", mode="replace_on_secondary"),
    ),
    "new secondary": (
        drbd_of("web"),
        (N2, "web-data"),
        ops.OpInstanceReplaceDisks(
            instance_name="web", mode="replace_new_secondary", remote_node="node3"
        ),
    ),
    "failover anywhere": (
        drbd_of("web"),
        (N1, "web-data"),
        ops.OpInstanceFailover(instance_name="web", target_node="node3"),
    ),
    "grow plain": (
        plain_of("web"),
        (N1, "web-lv"),
        ops.OpInstanceGrowDisk(instance_name="web", disk=0, amount=1),
    ),
    "grow mirror": (
        drbd_of("web"),
        (N2, "web-data"),
        ops.OpInstanceGrowDisk(instance_name="web", disk=0, amount=1),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_destroy_snapshots_is_refused(name):
    disk, where, op = REFUSED[name]
    Nodes(disk, kept=[(*where, "precious")]).refused(
        op, r"\(precious, on node node.*remove-snapshot web.example.com precious'", "wrong_state"
    )


@pytest.mark.parametrize("name", REFUSED)
def test_without_snapshots_it_is_not(name):
    disk, _where, op = REFUSED[name]
    values = {key: value for key, value in op.to_dict().items() if key != "OP_ID"}
    op = type(op)(**{**values, "dry_run": True})
    nodes = Nodes(disk)
    nodes.run(op)
    assert any(call == "blockdev_snapshot_list" for call, *_rest in nodes.rpc.calls)


def test_a_lost_snapshot_hinders_nobody():
    disk, where, op = REFUSED["new secondary"]
    nodes = Nodes(disk, kept=[(*where, "full", 1, None, False)])
    nodes.run(
        ops.OpInstanceReplaceDisks(
            instance_name="web", mode="replace_new_secondary", remote_node="node3", dry_run=True
        )
    )
    disk, where, op = REFUSED["grow plain"]
    Nodes(disk, kept=[(*where, "full", 1, None, False)]).refused(op, "LVM does not grow a volume")


def test_a_dead_secondary_is_left_all_the_same():
    disk, _where, op = REFUSED["new secondary"]
    nodes = Nodes(disk)
    nodes.rpc.errors["blockdev_snapshot_list", N2] = errors.NodeUnreachable(N2, "x", "dead")
    nodes.run(
        ops.OpInstanceReplaceDisks(
            instance_name="web", mode="replace_new_secondary", remote_node="node3", dry_run=True
        )
    )
    assert nodes.master.job.said("did not report its snapshots")
    nodes = Nodes(disk)
    nodes.rpc.errors["blockdev_snapshot_list", N2] = "does not work"
    nodes.refused(op, "node2.* did not report its snapshots: does not work")


def test_lost_files_whose_snapshots_remain_are_not_made_anew():
    nodes = Nodes(file_disk(), kept=[(N1, _FILE, "last")])
    nodes.rpc.answers["blockdev_getdimensions"] = [None]
    nodes.refused(
        ops.OpInstanceRecreateDisks(instance_name="web"),
        r"the snapshots, perhaps the only data which are left, would belong to no disk \(last",
    )


def test_a_file_grows_with_its_snapshots():
    nodes = Nodes(file_disk(), kept=[(N1, _FILE, "a")])
    nodes.run(ops.OpInstanceGrowDisk(instance_name="web", disk=0, amount=1, dry_run=True))
    assert nodes.rpc.of("blockdev_snapshot_list") == []


def test_the_volumes_that_stay_carry_their_snapshots():
    nodes = Nodes(plain_of("web"), kept=[(N1, "web-lv", "a")])
    nodes.run(SET(instance_name="web", disk_template="drbd", remote_node="node2", dry_run=True))
    nodes = Nodes(drbd_of("web"), kept=[(N1, "web-data", "a")])
    nodes.run(SET(instance_name="web", disk_template="plain", dry_run=True))


def test_a_snapshot_is_not_adopted():
    nodes = Nodes(plain_of("web"))
    nodes.refused(
        ops.OpInstanceCreate(
            instance_name="www.example.com",
            mode="create",
            disk_template="plain",
            pnode="node1",
            os_type="noop",
            disks=[{"adopt": "web-lv.snap.a"}],
            nics=[{}],
            no_install=True,
        ),
        "xenvg/web-lv.snap.a is a snapshot of a disk",
        "resource_not_unique",
    )


@pytest.mark.parametrize("op", [take, restore])
def test_not_while_it_runs_on_another_node(op):
    """Somebody's hands, or a migration that broke off; several nodes see the disk."""
    disk = file_disk(template="sharedfile")
    nodes = Nodes(disk, kept=[(N1, disk.logical_id[1], "b")])
    nodes.rpc.run("web", "node3")
    nodes.refused(op(), "runs on node node3.*migrate --cleanup", "wrong_state")


def test_dry_runs_say_what_would_be_done():
    nodes = running(file_disk(0))
    assert nodes.run(take(shutdown=True, dry_run=True)) == "a"
    assert nodes.master.job.said("make snapshot a of disk 0 (file, 1024 MiB) on node1.example.com")
    assert nodes.master.job.said("start instance web.example.com on node1.example.com")
    for op, wanted in (
        (remove, "remove snapshot a of disk 0 from node1"),
        (restore, "copy snapshot a (1024 MiB) to disk 0"),
    ):
        nodes = Nodes(file_disk(), kept=[(N1, _FILE, "a")])
        nodes.run(type(op())(instance_name="web", snapshot_name="a", dry_run=True))
        assert nodes.master.job.said(wanted)
        assert nodes.rpc.acting() == []
