"""Exports and imports: what is asked of the nodes, and what is left when something fails."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest

from fakes.config import cluster_of, commit, disk_of, instance_of, uuid_of
from fakes.disks import drbd_of
from fakes.master import Master
from ganeti import errors
from ganeti.backend.backup import exports
from ganeti.cmdlib.ops.transfer import disk_copy, handshake, seal, signed
from ganeti.constants.hv import STATE_RUNNING
from ganeti.objects import Disk
from ganeti.objects.transfer import BlockDevStatus, ImportExportStatus
from ganeti.opcodes.backup import OpBackupExport, OpBackupPrepare, OpBackupRemove
from ganeti.opcodes.instance import OpInstanceCreate
from ganeti.platform import paths
from ganeti.utils import x509
from ganeti.utils.receipt import Receipt
from ganeti.wire.calls.base import Failed

NODE1, NODE2, NODE3 = (f"node{n}.example.com" for n in (1, 2, 3))


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Nothing happens between two looks."""
    monkeypatch.setattr(disk_copy, "POLL_MIN_S", 0.0)


class Nodes:
    """Transfers which succeed after two looks, unless somebody says otherwise.

    ``outcome[mode]`` is the error of all ends of that mode.
    """

    def __init__(self, master):
        self.outcome = {}
        self.looks = {}
        self.cleaned = []
        self.aborted = []
        self.identity = ""
        answers = master.rpc.answers
        answers["import_start"] = lambda node, args: self.start("import", node, args)
        answers["export_start"] = lambda node, args: self.start("export", node, args)
        answers["impexp_status"] = lambda node, args: [self.look(name) for name in args["names"]]
        answers["impexp_cleanup"] = lambda node, args: self.cleaned.append(args["name"])
        answers["export_info"] = lambda node, args: description(master, identity=self.identity)
        answers["finalize_export"] = self.finalize
        answers["impexp_abort"] = lambda node, args: self.aborted.append(args["name"])

    def finalize(self, node, args):
        self.identity = args["identity"]

    def start(self, mode, node, args):
        name = f"{mode}-{args['component'].replace('/', '-')}-{node}"
        self.looks[name] = 0
        return name

    def look(self, name):
        mode = name.split("-")[0]
        if name in self.aborted:
            return ImportExportStatus(exit_status=1, error_message="the transfer was aborted")
        self.looks[name] += 1
        others = [n for n in self.looks if n != name and n.split("-")[2] == name.split("-")[2]]
        if mode == "import" and not others and self.looks[name] < 20:
            port = 5000 if self.looks[name] > 1 else None
            return ImportExportStatus(listen_port=port, connected=False)
        error = self.outcome.get(mode)
        # An import has its data only when the export has sent them.
        waits = mode == "import" and "export" in self.outcome
        if error is None and (waits or self.looks[name] < 3):
            return ImportExportStatus(listen_port=5000, connected=True, progress_mbytes=1.0)
        if error is None:
            return ImportExportStatus(listen_port=5000, connected=True, exit_status=0)
        if error == "unresponsive":
            return None
        return ImportExportStatus(
            exit_status=1, error_message=error, recent_output=("line 1", "the cause")
        )


def exporting(template="file", *, running=True, disks=1, **changes):
    """A running instance on the first node, and nodes which transfer."""
    mine = tuple(disk_of("web", index, template) for index in range(disks))
    instance = instance_of(
        "web", disks=tuple(d.uuid for d in mine), admin_state="up", disks_active=True, **changes
    )
    master = Master(cluster_of(3, (instance,), mine, compression_tools=("gzip",)))
    if running:
        master.rpc.run("web", "node1")
    return master, Nodes(master)


def export(**changes):
    return OpBackupExport(
        **{"instance_name": "web", "target_node": "node2", "long_sleep": True, **changes}
    )


def acting(master):
    skipped = ("impexp_status", "impexp_cleanup", "export_list", "hooks_runner")
    return [name for name in master.rpc.acting() if name not in skipped]


# -- export to a node ------------------------------------------------------------


def test_export():
    master, nodes = exporting(disks=2)
    assert master.run(export(compress="gzip")) == (True, [True, True])
    assert acting(master) == [
        "instance_shutdown",
        *["x509_cert_create"] * 2,
        "import_start",
        "import_start",
        "export_start",
        "export_start",
        *["x509_cert_remove"] * 2,
        "finalize_export",
        "blockdev_assemble_multi",
        "instance_start",
    ]
    ((to, first), _) = master.rpc.of("import_start")
    assert (to, first["target"]) == (
        NODE2,
        (
            "file",
            f"/var/lib/ganeti/export/web.example.com~new.{nodes.identity}/{uuid_of('web-disk0')}",
        ),
    )
    ((source, sent), _) = master.rpc.of("export_start")
    assert (source, sent["host"], sent["port"], sent["source"][0]) == (
        NODE1,
        "192.0.2.2",
        5000,
        "script",
    )
    assert sent["options"].magic == first["options"].magic
    assert first["options"].compress == "gzip"
    # Each end has the key of its node, and accepts nothing but the certificate of the other one.
    assert [(args["options"].key_name, args["options"].ca_pem) for args in (first, sent)] == [
        (f"key-of-{NODE2}", f"certificate of {NODE1}"),
        (f"key-of-{NODE1}", f"certificate of {NODE2}"),
    ]
    assert sorted(master.rpc.of("x509_cert_remove")) == [
        (NODE1, {"name": f"key-of-{NODE1}"}),
        (NODE2, {"name": f"key-of-{NODE2}"}),
    ]
    assert sorted(nodes.cleaned) == sorted(nodes.looks)
    assert [node for name, _phase, node in master.rpc.hooks() if name == "instance-export"] == [
        NODE1,
        NODE2,
    ] * 2
    env = master.rpc.of("hooks_runner")[0][1]["env"]
    assert {
        key: env[f"GANETI_{key}"]
        for key in (
            "EXPORT_MODE",
            "EXPORT_NODE",
            "EXPORT_DO_SHUTDOWN",
            "REMOVE_INSTANCE",
            "SHUTDOWN_TIMEOUT",
        )
    } == {
        "EXPORT_MODE": "local",
        "EXPORT_NODE": NODE2,
        "EXPORT_DO_SHUTDOWN": "True",
        "REMOVE_INSTANCE": "False",
        "SHUTDOWN_TIMEOUT": "120",
    }
    assert master.config.instances()[0].admin_state == "up"


def test_an_older_export_elsewhere_goes():
    master, _nodes = exporting()
    master.rpc.answers["export_find"] = lambda node, args: [
        None if node == NODE1 else f"export of {node}",
        ["web.example.com~new.left"] if node == NODE1 else [],
    ]
    master.run(export())
    assert master.rpc.of("export_remove") == [
        (NODE1, {"export": "web.example.com~new.left", "identity": ""}),
        (NODE3, {"export": "web.example.com", "identity": f"export of {NODE3}"}),
    ]


def test_the_new_export_stays_when_another_node_has_the_same_directory():
    """Known by the identity of the export."""
    master, nodes = exporting()
    master.rpc.answers["export_find"] = lambda node, args: [nodes.identity or None, []]
    master.run(export(remove_instance=True))
    assert master.rpc.of("export_remove") == []
    assert master.rpc.of("directory_mark") == []
    assert master.job.said(f"also seen by node {NODE1}, {NODE3}")
    assert master.config.instances() == ()


@pytest.mark.parametrize("failing", ["", NODE2, NODE3])
def test_the_new_export_stays_when_another_node_has_an_older_view_of_the_directory(failing):
    """Its identity is an older one, as a cache says, but a new file is seen there at once."""
    master, _nodes = exporting()
    master.rpc.answers["export_find"] = lambda node, args: [f"old on {node}", []]
    master.rpc.one_directory = {NODE2, NODE3}
    if failing:
        master.rpc.errors["directory_seen" if failing == NODE3 else "directory_mark", failing] = "x"
    master.run(export())
    removed = [node for node, _args in master.rpc.of("export_remove")]
    # Without an answer it is not known, and nothing is removed.
    assert removed == ([] if failing == NODE2 else [NODE1])
    if failing:
        assert master.job.said("was not removed, because it is not known")


def test_the_export_is_looked_at_again_directly_before_the_instance_is_removed():
    master, nodes = exporting()
    older = "export of another node"
    master.rpc.answers["export_find"] = lambda node, args: [older if node == NODE3 else None, []]

    def remove(node, args):
        nodes.identity = "the export of somebody else"
        return True

    master.rpc.answers["export_remove"] = remove
    problem = master.failed(export(remove_instance=True, ignore_remove_failures=True))
    assert "another export has taken its place; the instance was not removed" in problem
    assert len(master.config.instances()) == 1
    assert "blockdev_remove_multi" not in acting(master)


LATER = {"export_find", "directory_mark", "directory_seen", "directory_unmark"}


def with_former(master, *nodes):
    """Nodes of the release before, which knows no identities of exports."""
    master.rpc.former.update(nodes)
    master.rpc.lacking.update(LATER)


def test_an_export_to_a_node_of_the_release_before():
    """Its data arrive where that release looks for them, and it gets no argument it lacks."""
    master, nodes = exporting()
    with_former(master, NODE2)
    assert master.run(export(remove_instance=True)) == (True, [True])
    ((_node, started),) = master.rpc.of("import_start")
    kind, path = started["target"]
    assert path == f"/var/lib/ganeti/export/web.example.com~new/{uuid_of('web-disk0')}"
    assert [args["identity"] for _node, args in master.rpc.of("finalize_export")] == [""]
    assert master.rpc.of("export_remove")[0] == (
        NODE2,
        {"export": "web.example.com~new", "identity": ""},
    )
    assert master.config.snapshot().instances == {}


def test_an_older_export_on_a_node_of_the_release_before_stays():
    """Whether it is in the directory of the target is not known."""
    master, _nodes = exporting()
    with_former(master, NODE3)
    master.rpc.answers["export_list"] = lambda node, args: ["web.example.com"]
    master.run(export())
    removed = [args["export"] for node, args in master.rpc.of("export_remove") if node == NODE3]
    assert removed == ["web.example.com~new"]
    assert master.job.said(f"an older export of web.example.com on node {NODE3} was not removed")


def test_removing_exports_of_a_node_of_the_release_before():
    master, _nodes = exporting()
    with_former(master, NODE2, NODE3)
    master.rpc.answers["export_list"] = lambda node, args: (
        ["web.example.com"] if node == NODE2 else []
    )
    master.run(OpBackupRemove(instance_name="web"))
    assert [(node, args["export"]) for node, args in master.rpc.of("export_remove")] == [
        (NODE2, "web.example.com~new"),
        (NODE3, "web.example.com~new"),
        (NODE2, "web.example.com"),
    ]


def test_a_stopped_instance_gets_its_disks_for_the_export_only():
    master, _nodes = exporting(running=False)
    commit(master.config).instances.mark(uuid_of("web"), "down")
    commit(master.config).instances.set_disks_active(uuid_of("web"), False)
    master.run(export(long_sleep=False))
    assert acting(master)[0] == "blockdev_assemble_multi"
    assert acting(master)[-1] == "blockdev_shutdown_multi"
    assert "instance_start" not in acting(master)


def test_with_snapshots_it_runs_again_before_anything_is_sent():
    disk = Disk(
        dev_type="plain",
        logical_id=("xenvg", "lv"),
        iv_name="disk/0",
        size=1024,
        nodes=(uuid_of("node1"),),
        uuid=uuid_of("web-disk0"),
        serial_no=1,
    )
    instance = instance_of("web", disks=(disk.uuid,), admin_state="up", disks_active=True)
    master = Master(cluster_of(2, (instance,), (disk,), enabled_disk_templates=("plain",)))
    master.rpc.run("web", "node1")
    Nodes(master)
    master.rpc.answers["blockdev_snapshot"] = ["xenvg", "lv.snap"]
    master.rpc.answers["node_info"] = lambda node, args: ["boot", [free_in_group(1024)], []]
    master.run(export(long_sleep=False))
    calls = acting(master)
    assert calls.index("instance_start") < calls.index("import_start")
    assert calls[-1] == "blockdev_remove"
    ((_node, sent),) = master.rpc.of("export_start")
    assert sent["source"][1][0].logical_id == ("xenvg", "lv.snap")
    ((_node, args),) = master.rpc.of("finalize_export")
    assert [found.uuid for found in args["disks"]] == [disk.uuid]
    # One that an interrupted export may have left, and the new one.
    assert [args["disk"].logical_id for _node, args in master.rpc.of("blockdev_remove")] == [
        ("xenvg", "lv.snap")
    ] * 2


def free_in_group(mib):
    return {"type": "lvm-vg", "name": "xenvg", "storage_free": mib, "storage_size": 99999}


@pytest.mark.parametrize(("free", "left", "enough"), [(1023, 0, False), (24, 1000, True)])
def test_a_guest_is_not_stopped_without_space_for_its_snapshots(free, left, enough):
    """What an interrupted export has left is removed first, so its space counts as free."""
    disk = plain_disk()
    instance = instance_of("web", disks=(disk.uuid,), admin_state="up", disks_active=True)
    master = Master(cluster_of(2, (instance,), (disk,), enabled_disk_templates=("plain",)))
    master.rpc.run("web", "node1")
    Nodes(master)
    master.rpc.answers["blockdev_snapshot"] = ["xenvg", "lv.snap"]
    master.rpc.answers["node_info"] = lambda node, args: ["boot", [free_in_group(free)], []]
    master.rpc.answers["blockdev_getdimensions"] = lambda node, args: [
        [1024 << 20, 1]
        if args["disks"][0].logical_id[1] == "lv"
        else ([left << 20, 1] if left else None)
    ]
    if enough:
        master.run(export(long_sleep=False))
        return
    assert "1 GiB needed in volume group xenvg" in master.refused(export(), errors.ECODE_NORES)
    assert master.rpc.where("web") == ["node1"]
    assert acting(master) == []


@pytest.mark.parametrize(
    ("sizes", "free_mib", "problem"),
    [
        ([1024 << 20, 1 << 20], 1025, None),
        ([1024 << 20, (1 << 20) + 1], 1025, "1026 MiB needed in /var/lib/ganeti/export, 1025 MiB"),
        ([1024 << 20, None], 1025, None),
        ([1024 << 20, None], 1024, "1025 MiB needed in /var/lib/ganeti/export, 1024 MiB may"),
        ([None, None], 0, "1 MiB needed in /var/lib/ganeti/export, 0 MiB may"),
    ],
)
def test_a_guest_is_not_stopped_without_space_for_its_export(sizes, free_mib, problem):
    """A raw export has each byte of the disk; what a script writes is not known."""
    master, _nodes = exporting(disks=2)
    left = iter(sizes)
    master.rpc.answers["export_sizes"] = lambda node, args: next(left)
    master.rpc.answers["directory_space"] = lambda node, args: {
        "/var/lib/ganeti/export": free_mib << 20
    }
    if problem is None:
        master.run(export())
    else:
        assert problem in master.refused(export(), errors.ECODE_NORES)
        assert acting(master) == []
        assert master.rpc.where("web") == ["node1"]
    ((node, args),) = master.rpc.of("directory_space")
    assert node == NODE2
    # Of the largest raw file; what an interrupted export of the instance has left goes first.
    largest = max((size for size in sizes if size is not None), default=0)
    assert args["files"] == {"/var/lib/ganeti/export": largest}
    assert args["removed"] == ["/var/lib/ganeti/export/web.example.com~new"]
    assert master.job.said("may need up to") == (None in sizes and problem is None)


def test_a_guest_is_not_stopped_for_a_target_which_cannot_be_written():
    master, _nodes = exporting()
    reason = "/var/lib/ganeti/export: Read-only file system"
    master.rpc.answers["directory_space"] = {"/var/lib/ganeti/export": reason}
    text = master.refused(export(), errors.ECODE_ENVIRON)
    assert f"node {NODE2} cannot take the export of instance web.example.com" in text
    assert "Read-only file system" in text
    assert acting(master) == []


@pytest.mark.parametrize(("call", "node"), [("export_sizes", NODE1), ("directory_space", NODE2)])
def test_a_node_which_cannot_check_the_space(call, node):
    """A release which does not know the question exports as before; a failure is one."""
    master, _nodes = exporting()
    master.rpc.errors[call] = errors.NodeLacksCall(node, call, "no such procedure")
    master.run(export())
    assert master.job.said("the space for the export was not checked")
    other, _nodes = exporting()
    other.rpc.errors[call] = "the operating system is damaged"
    assert "is damaged" in other.refused(export(), errors.ECODE_ENVIRON)
    other.rpc.errors[call] = errors.NodeRefused(node, call, "another cluster")
    assert "another cluster" in other.refused(export(), errors.ECODE_ENVIRON)
    assert acting(other) == []


def test_an_old_snapshot_which_cannot_be_measured_is_no_free_space():
    disk = plain_disk()
    instance = instance_of("web", disks=(disk.uuid,), admin_state="up", disks_active=True)
    master = Master(cluster_of(2, (instance,), (disk,), enabled_disk_templates=("plain",)))
    master.rpc.run("web", "node1")
    Nodes(master)
    master.rpc.answers["node_info"] = lambda node, args: ["boot", [free_in_group(1023)], []]
    master.rpc.answers["blockdev_getdimensions"] = lambda node, args: [
        [1024 << 20, 1]
        if args["disks"][0].logical_id[1] == "lv"
        else Failed("the volume group is damaged", None)
    ]
    assert "1 GiB needed in volume group xenvg" in master.refused(export(), errors.ECODE_NORES)
    assert master.rpc.where("web") == ["node1"]
    assert acting(master) == []


def plain_disk():
    return Disk(
        dev_type="plain",
        logical_id=("xenvg", "lv"),
        iv_name="disk/0",
        size=1024,
        nodes=(uuid_of("node1"),),
        uuid=uuid_of("web-disk0"),
        serial_no=1,
    )


def test_what_lvm_has_added_to_a_volume_is_exported_too():
    disk = Disk(
        dev_type="plain",
        logical_id=("xenvg", "lv"),
        iv_name="disk/0",
        size=1001,
        nodes=(uuid_of("node1"),),
        uuid=uuid_of("web-disk0"),
        serial_no=1,
    )
    instance = instance_of("web", disks=(disk.uuid,))
    master = Master(cluster_of(2, (instance,), (disk,), enabled_disk_templates=("plain",)))
    Nodes(master)
    master.rpc.answers["blockdev_snapshot"] = ["xenvg", "lv.snap"]
    master.rpc.answers["blockdev_getdimensions"] = [[1024 << 20, 1]]
    master.run(export())
    ((_node, sent),) = master.rpc.of("export_start")
    assert sent["source"][1][0].size == 1024
    # An import makes disks of the sizes in the description.
    ((_node, args),) = master.rpc.of("finalize_export")
    assert [found.size for found in args["disks"]] == [1024]


def test_removing_it_afterwards():
    master, _nodes = exporting()
    master.run(export(remove_instance=True, long_sleep=False))
    assert master.config.instances() == ()
    assert "instance_start" not in acting(master)
    assert acting(master)[-3:] == [
        "instance_shutdown",
        "blockdev_remove_multi",
        "file_storage_dir_remove",
    ]


@pytest.mark.parametrize("ignore", [False, True])
@pytest.mark.parametrize(
    ("found", "fragment"),
    [
        ({"disk_count__2": "disk_count = 1"}, "disk/1 is missing"),
        ({"disk0_dump__": "disk0_dump = x"}, "disk/0 is missing"),
        ({"name__web": "name = other"}, "of instance other.example.com"),
        ({"[instance]": "[instant]"}, "cannot be read"),
        ("disk 0: file x has 5 bytes", "cannot be checked: disk 0: file x has 5 bytes"),
    ],
)
def test_nothing_is_removed_before_the_target_has_everything(found, fragment, ignore):
    """Neither the instance nor older exports, whatever option was given."""
    master, _nodes = exporting(disks=2)
    if isinstance(found, dict):
        text = description(master, found)
        master.rpc.answers["export_info"] = lambda node, args: text
    else:
        master.rpc.errors["export_info"] = found
    master.rpc.answers["export_find"] = ["another one", []]
    problem = master.failed(export(remove_instance=True, ignore_remove_failures=ignore))
    assert fragment in problem and "were not removed" in problem
    assert len(master.config.instances()) == 1
    assert "blockdev_remove_multi" not in acting(master)
    assert master.rpc.of("export_remove") == []


@pytest.mark.parametrize("mode", ["export", "import"])
def test_an_instance_of_which_a_disk_did_not_arrive_is_never_removed(mode):
    master, nodes = exporting(disks=2)
    nodes.outcome[mode] = "no space"
    master.failed(export(remove_instance=True, ignore_remove_failures=True))
    assert len(master.config.instances()) == 1
    assert "blockdev_remove_multi" not in acting(master)


def test_ends_which_counted_differently():
    master, nodes = exporting()
    look = nodes.look

    def counting(name):
        status = look(name)
        moved = 1.0 if name.startswith("export") else 0.5
        return replace(status, progress_mbytes=moved) if status.exit_status == 0 else status

    nodes.look = counting
    assert "disk/0 did not arrive" in master.failed(export())
    assert master.job.said("1.0 MiB were sent, but 0.5 MiB were received")
    assert "finalize_export" not in acting(master)


@pytest.mark.parametrize("ldisk", [2, 3, 4, None])
def test_a_guest_is_not_stopped_for_a_replica_without_all_data(ldisk):
    disk = drbd_of("web")
    web = instance_of("web", disks=(disk.uuid,), admin_state="up", disks_active=True)
    master = Master(cluster_of(2, (web,), (disk,), enabled_disk_templates=("drbd",)))
    master.rpc.run("web", "node1")
    status = BlockDevStatus(dev_path="/dev/drbd0", ldisk_status=ldisk)
    master.rpc.answers["blockdev_find_multi"] = None if ldisk is None else status
    assert "no complete replica" in master.refused(export(), errors.ECODE_STATE)
    assert master.rpc.where("web") == ["node1"]
    assert acting(master) == []


@pytest.mark.parametrize(
    ("mode", "text"),
    [
        ("export", "could not be sent on node node1.example.com: no space (line 1; the cause)"),
        ("import", "could not be received on node node2.example.com: no space"),
    ],
)
def test_a_transfer_that_fails(mode, text):
    master, nodes = exporting()
    nodes.outcome[mode] = "no space"
    assert "disk/0 did not arrive" in master.failed(export())
    assert master.job.said(text)
    # It runs again, nothing is on the target, and the other end was told to end.
    assert master.rpc.where("web") == ["node1"]
    ((node, args),) = master.rpc.of("export_remove")
    directory = master.rpc.of("import_start")[0][1]["target"][1]
    assert node == NODE2 and f"/{args['export']}/" in directory
    assert "finalize_export" not in acting(master)
    assert len(nodes.aborted) == 1
    assert sorted(nodes.cleaned) == sorted(nodes.looks)


@pytest.mark.parametrize("call", ["import_start", "export_start", "finalize_export"])
def test_a_step_that_fails(call):
    master, nodes = exporting()
    master.rpc.errors[call] = "disk on fire"
    master.failed(export())
    assert master.rpc.where("web") == ["node1"]
    ((_node, removed),) = master.rpc.of("export_remove")
    assert removed["export"].startswith("web.example.com~new.")
    assert sorted(nodes.cleaned) == sorted(nodes.looks)


def test_a_node_that_forgets_a_transfer(monkeypatch):
    master, nodes = exporting()
    nodes.outcome["export"] = "unresponsive"
    monkeypatch.setattr(disk_copy, "UNRESPONSIVE_S", 0.05)
    master.failed(export())
    assert master.job.said("does not know the transfer any more")
    assert master.rpc.where("web") == ["node1"]


def test_an_instance_that_does_not_start_again_is_a_warning():
    master, _nodes = exporting()
    master.rpc.errors["instance_start"] = "no memory"
    assert master.run(export()) == (True, [True])
    assert master.job.said("no memory")


@pytest.mark.parametrize(
    ("changes", "ecode", "fragment"),
    [
        ({"target_node": "x"}, errors.ECODE_NOENT, "'x'"),
        ({"target_node": ["x"]}, errors.ECODE_INVAL, "must be a node"),
        ({"instance_name": "x"}, errors.ECODE_NOENT, "'x'"),
        ({"compress": "zip"}, errors.ECODE_INVAL, "zip"),
        ({"long_sleep": False}, errors.ECODE_STATE, "--long-sleep"),
        ({"shutdown": False, "remove_instance": True}, errors.ECODE_INVAL, "shut down"),
        ({"ignore_remove_failures": True}, errors.ECODE_INVAL, "removed"),
        ({"zero_free_space": True}, errors.ECODE_STATE, "free space"),
        ({"zeroing_timeout_fixed": 5}, errors.ECODE_INVAL, "overwriting"),
        ({"mode": "remote", "target_node": []}, errors.ECODE_INVAL, "move-instance gets both"),
    ],
)
def test_an_export_is_refused(changes, ecode, fragment):
    master, _nodes = exporting()
    assert fragment in master.refused(export(**changes), ecode)


def test_the_target_must_be_usable():
    master, _nodes = exporting()
    node = master.config.expand_node("node2")
    from ganeti.objects import updated

    commit(master.config).nodes.update(updated(node, drained=True))
    assert "drained" in master.refused(export(), errors.ECODE_STATE)


# -- remove ----------------------------------------------------------------------


def test_remove():
    master, _nodes = exporting()
    master.rpc.answers["export_find"] = lambda node, args: [
        f"{args['export']} of {node}" if node == NODE2 and args["export"] != "nosuch" else None,
        [f"{args['export']}~new"] if node == NODE3 else [],
    ]
    assert "not the one for which" in master.refused(
        OpBackupRemove(instance_name="web", instance_uuid="other-uuid"), errors.ECODE_NOENT
    )
    master.run(OpBackupRemove(instance_name="web"))
    master.run(OpBackupRemove(instance_name="gone.example.com"))
    assert [call for call in master.rpc.of("export_remove") if "~" not in call[1]["export"]] == [
        (
            NODE2,
            {
                "export": f"{name}.example.com",
                "identity": f"{name}.example.com of {NODE2}",
            },
        )
        for name in ("web", "gone")
    ]
    left = {"export": "gone.example.com~new", "identity": ""}
    assert (NODE3, left) in master.rpc.of("export_remove")
    master.run(OpBackupRemove(instance_name="nosuch"))
    assert master.job.said("no export of nosuch")
    master.rpc.errors["export_remove"] = "busy"
    assert f"{NODE2} (busy)" in master.failed(OpBackupRemove(instance_name="web"))


def test_remove_where_all_nodes_have_one_directory():
    """The first one removes it; it is no failure of the others that there is none any more."""
    master, _nodes = exporting()
    master.rpc.answers["export_find"] = ["one export", ["web.example.com~old"]]
    there = {"web.example.com", "web.example.com~old"}
    master.rpc.answers["export_remove"] = lambda node, args: (
        args["export"] in there and not there.remove(args["export"])
    )
    master.run(OpBackupRemove(instance_name="web"))
    assert there == set()
    assert not master.job.said("could not be removed")


# -- import ----------------------------------------------------------------------


def description(master, changes=(), identity=""):
    """What an export of the instance would say."""
    instance = master.config.filled(master.config.instances()[0])
    received = {disk.uuid: Receipt(1 << 30, "5a17") for disk in instance.disks_info}
    text = exports.describe(instance, instance.disks_info, 1, received, identity)
    for old, new in dict(changes).items():
        text = text.replace(old.replace("__", " = "), new)
    return text


def importing(changes=(), identity=None, **more):
    """The second node has an export of ``web`` with a good seal, and the instance is gone."""
    master, nodes = exporting(
        disks=2,
        running=False,
        tags=("blue", "fast"),
        beparams={"maxmem": 512, "minmem": 256},
        osparams={"size": "big"},
        **more,
    )
    if identity is None:
        filled = master.config.filled(master.config.instances()[0])
        identity = seal.sealed_identity(master, filled)
    text = description(master, changes, identity)
    commit(master.config).instances.remove(uuid_of("web"))
    master.rpc.answers["export_list"] = lambda node, args: (
        ["web.example.com"] if node == NODE2 else []
    )
    master.rpc.answers["export_info"] = text
    return master, nodes


def anew(name="web", **changes):
    return OpInstanceCreate(
        **{
            "instance_name": f"{name}.example.com",
            "mode": "import",
            "disks": [],
            "nics": [],
            "pnode": "node1",
            "src_path": "web.example.com",
            "start": False,
            "name_check": False,
            "ip_check": False,
            **changes,
        }
    )


def test_import():
    master, nodes = importing()
    assert master.run(anew()) == [NODE1]
    (instance,) = master.config.instances()
    assert (instance.os, instance.tags, instance.osparams) == (
        "noop",
        ("blue", "fast"),
        {"size": "big"},
    )
    assert (instance.beparams["maxmem"], instance.beparams["minmem"]) == (512, 256)
    assert instance.nics[0].mac == "aa:00:00:00:00:03"
    assert [disk.size for disk in master.config.instance_disks(instance)] == [1024, 1024]
    ((source, sent), _) = master.rpc.of("export_start")
    assert (source, sent["source"]) == (
        NODE2,
        ("file", f"/var/lib/ganeti/export/web.example.com/{uuid_of('web-disk0')}"),
    )
    ((to, received), _) = master.rpc.of("import_start")
    assert (to, received["target"][0], received["target"][1][1]) == (NODE1, "script", 0)
    assert "instance_run_rename" not in acting(master)
    assert "instance_os_add" not in acting(master)
    env = master.rpc.of("hooks_runner")[0][1]["env"]
    assert (env["GANETI_ADD_MODE"], env["GANETI_SRC_NODE"], env["GANETI_SRC_PATH"]) == (
        "import",
        NODE2,
        "/var/lib/ganeti/export/web.example.com",
    )
    assert sorted(nodes.cleaned) == sorted(nodes.looks)


def test_a_copy_has_another_address_and_is_told_its_name():
    master, _nodes = importing()
    master.run(anew("copy"))
    (instance,) = master.config.instances()
    assert instance.nics[0].mac != "aa:00:00:00:00:03"
    ((_node, args),) = master.rpc.of("instance_run_rename")
    assert (args["instance"].name, args["old_name"]) == ("copy.example.com", "web.example.com")


def test_what_the_user_says_goes_first():
    master, _nodes = importing()
    op = anew(
        beparams={"memory": 256},
        tags=["mine"],
        nics=[{}, {}],
        osparams_secret={"size": "small"},
        disks=[{"size": 2048}, {}, {"size": 1500}],
        disk_template="sharedfile",
        identify_defaults=True,
    )
    before = copy.deepcopy(op.to_dict())
    master.run(op)
    assert op.to_dict() == before
    (instance,) = master.config.instances()
    # What equals the cluster's defaults is the cluster's again.
    assert instance.beparams == {"maxmem": 256, "minmem": 256}
    assert (instance.tags, len(instance.nics), instance.osparams) == (("mine",), 2, {})
    disks = master.config.instance_disks(instance)
    assert [(disk.dev_type, disk.size) for disk in disks] == [
        ("sharedfile", 2048),
        ("sharedfile", 1024),
        ("sharedfile", 1500),
    ]
    assert len(master.rpc.of("import_start")) == 2


def test_an_import_that_fails_leaves_nothing():
    master, nodes = importing()
    nodes.outcome["import"] = "no space"
    assert "did not arrive" in master.failed(anew())
    assert master.config.instances() == ()
    ((_node, args),) = master.rpc.of("blockdev_remove_multi")
    assert len(args["disks"]) == 2
    assert acting(master).index("blockdev_shutdown_multi") < acting(master).index(
        "blockdev_remove_multi"
    )


def test_values_nobody_knows_any_more():
    master, _nodes = importing(
        {
            "auto_balance__": "colour = blue\nauto_balance = ",
            "nic0_network__None": "nic0_network = gone",
        }
    )
    master.run(anew(accept_from_description=["os", "os/size"]))
    assert master.job.said("are ignored: colour")
    assert master.job.said("network gone of the export does not exist")


def kvm_with(hvparams):
    """What replaces the hypervisor of the export, and its parameters."""
    lines = "".join(f"{name} = {value}\n" for name, value in hvparams.items())
    return {
        "hypervisor__fake": "hypervisor = kvm",
        "migration_mode__live\n": "",
        "[hypervisor]\n": f"[hypervisor]\n{lines}",
    }


EVIL = {"kvm_extra": "-S", "cdrom_image_path": "/etc/shadow", "security_model": "pool"}


def test_an_export_which_was_changed_on_its_node():
    """What it says about the guest counts; what it names of a node is listed and refused."""
    master, _nodes = importing(
        {
            **kvm_with({**EVIL, "acpi": "False"}),
            "os__noop": "os = evil",
            "size__big": "size = big\nscript = /tmp/x",
            "nic0_link__": "nic0_link = br-admin",
        }
    )
    text = master.refused(anew(), errors.ECODE_INVAL)
    for part in (
        "export /var/lib/ganeti/export/web.example.com on node node2.example.com is not as this"
        " cluster has written it",
        "kvm_extra='-S'",
        "cdrom_image_path='/etc/shadow'",
        "security_model='pool' (privileges and protection of the guest; the cluster has 'none')",
        "os='evil'",
        "OS parameter script='/tmp/x'",
        "interface 0: link='br-admin",
        "--accept-from-description=os,kvm_extra,cdrom_image_path,security_model,os/size,os/script"
        ",nic/link",
    ):
        assert part in text
    assert master.config.instances() == () and acting(master) == []
    # The same for a dry run; and what is given counts.
    assert "kvm_extra='-S'" in master.refused(anew(dry_run=True), errors.ECODE_INVAL)
    mine = {"kvm_extra": "", "cdrom_image_path": "", "security_model": "none"}
    master.run(anew(os_type="noop", hypervisor="kvm", hvparams=mine, nics=[{}]))
    (instance,) = master.config.instances()
    assert (instance.os, instance.osparams) == ("noop", {})
    assert {name: instance.hvparams[name] for name in mine} == mine
    assert instance.hvparams["acpi"] is False


def test_values_of_a_changed_export_which_are_accepted():
    master, _nodes = importing(kvm_with({"kvm_extra": "-S", "acpi": "False"}))
    names = ["os", "os/size", "kvm_extra"]
    master.run(anew(accept_from_description=names))
    (instance,) = master.config.instances()
    assert (instance.os, instance.osparams) == ("noop", {"size": "big"})
    assert instance.hvparams["kvm_extra"] == "-S"
    assert master.job.said("kvm_extra='-S' (options of a program of the node) is taken")
    master, _nodes = importing()
    assert "has no value 'kvm_exra'" in master.refused(
        anew(accept_from_description=["kvm_exra"]), errors.ECODE_INVAL
    )


@pytest.mark.parametrize("identity", ["", "1-2", f"{'0' * 36}-{'0' * 40}", f"x-{'é' * 40}"])
def test_an_export_without_a_good_seal(identity):
    """As one of another cluster, or of an older version."""
    master, _nodes = importing(identity=identity)
    assert "--accept-from-description=os,os/size" in master.refused(anew(), errors.ECODE_INVAL)


def test_changes_which_are_about_the_guest_keep_the_seal():
    master, _nodes = importing({"maxmem__512": "maxmem = 600"})
    master.run(anew())
    assert master.config.instances()[0].beparams["maxmem"] == 600


def test_what_an_instance_may_is_in_its_export():
    """The cluster's own words count, as the administrator has set them."""
    master, _nodes = importing(
        hypervisor="kvm", hvparams={"kvm_extra": "-S"}, osparams_private={"key": "secret"}
    )
    master.run(anew())
    (instance,) = master.config.instances()
    assert instance.hvparams["kvm_extra"] == "-S" and instance.osparams_private["key"] == "secret"


def test_the_export_of_another_instance_in_place_of_this_one():
    """Its seal is good, but for that instance."""
    master, _nodes = importing()
    master.rpc.answers["export_list"] = lambda node, args: (
        ["other.example.com"] if node == NODE2 else []
    )
    op = anew("other", src_path="other.example.com")
    assert "is not as this cluster has written it" in master.refused(op, errors.ECODE_INVAL)


def test_the_key_of_the_seal_stays():
    master, nodes = exporting()
    master.run(export())
    key = master.config.cluster().export_key
    assert len(key) == 64
    first = nodes.identity
    master.run(export())
    assert master.config.cluster().export_key == key and nodes.identity != first


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        ({"version__0": "version = 7"}, "version 7"),
        ({"disk_count__2": "disk_count = many"}, "disk_count is 'many'"),
        (
            {"disk_count__2": "disk_count = 17"},
            "disk_count is '17', but an instance has at most 16",
        ),
        ({"nic_count__1": "nic_count = 1000000000"}, "but an instance has at most 8"),
        ({"disk0_size__1024": "disk0_size = 0"}, "disk 0 has no size"),
        ({"disk0_dump__": "disk0_dump = ../"}, "not the name of a file"),
        ({"maxmem__512": "maxmem = lots"}, "maxmem"),
        ({"[instance]": "[instant]"}, "cannot be read"),
    ],
)
def test_a_damaged_export_is_refused(text, fragment):
    master, _nodes = importing(text)
    assert fragment in master.refused(anew(), errors.ECODE_ENVIRON)


def test_an_export_with_a_short_file_is_refused_before_disks_are_made():
    master, _nodes = importing()
    master.rpc.errors["export_info"] = "the export is damaged: disk 0: file x is missing"
    assert "file x is missing" in master.refused(anew(), errors.ECODE_ENVIRON)
    assert acting(master) == []


def test_an_export_which_is_replaced_while_it_is_read():
    master, _nodes = importing()
    texts = ["another", master.rpc.answers["export_info"]]
    master.rpc.answers["export_info"] = lambda node, args: texts.pop()
    assert "was replaced or removed meanwhile" in master.failed(anew())
    assert master.config.instances() == ()


@pytest.mark.parametrize(
    ("changes", "ecode", "fragment"),
    [
        ({"src_path": "nosuch"}, errors.ECODE_INVAL, "no node has an export 'nosuch'"),
        ({"src_path": "/srv/x"}, errors.ECODE_INVAL, "--src-node"),
        ({"src_node": "x"}, errors.ECODE_NOENT, "'x'"),
        ({"disks": [{"size": 1024}]}, errors.ECODE_INVAL, "has 2 disks"),
        ({"disks": [{"size": 1024}, {"size": 5}]}, errors.ECODE_INVAL, "at least 1024 MiB"),
        ({"disk_template": "diskless"}, errors.ECODE_INVAL, "cannot be diskless"),
    ],
)
def test_an_import_is_refused(changes, ecode, fragment):
    master, _nodes = importing()
    assert fragment in master.refused(anew(**changes), ecode)


# -- between clusters ------------------------------------------------------------


@pytest.fixture
def secret(tmp_path):
    with paths.override(paths.Paths(str(tmp_path))) as here:
        from pathlib import Path

        Path(here.data_dir).mkdir(parents=True)
        Path(here.cluster_domain_secret).write_text("s3cret\n")
        yield "s3cret"


@pytest.fixture(scope="module")
def certificate():
    return x509.certificate_part(x509.create_self_signed())


def test_prepare(secret, certificate):
    master, _nodes = exporting()
    master.rpc.answers["x509_cert_create"] = ["key-1", certificate]
    found = master.run(OpBackupPrepare(instance_name="web", mode="remote"))
    handshake.check_greeting(secret, found["handshake"])
    assert handshake.check_key(secret, found["x509_key_name"]) == "key-1"
    assert handshake.check_certificate(secret, found["x509_ca"], "it") == certificate
    assert master.run(OpBackupPrepare(instance_name="web", mode="local")) is None


def test_remote_export(secret, certificate):
    master, _nodes = exporting()
    op = export(
        mode="remote",
        x509_key_name=handshake.signed_key(secret, "key-1"),
        destination_x509_ca=signed.sign_certificate(secret, certificate, "5a17"),
        target_node=[handshake.signed_disk(secret, 0, "198.51.100.7", 4711, "magic-word")],
    )
    assert master.run(op) == (True, [True])
    ((_node, sent),) = master.rpc.of("export_start")
    options = sent["options"]
    assert (sent["host"], sent["port"], options.key_name, options.ca_pem, options.magic) == (
        "198.51.100.7",
        4711,
        "key-1",
        certificate,
        "magic-word",
    )
    assert master.rpc.of("x509_cert_remove") == [(NODE1, {"name": "key-1"})]
    assert "finalize_export" not in acting(master)
    # The same for another disk, or another port.
    master.rpc.calls.clear()
    disk = op.target_node[0]
    for forged in ([disk[0], 4712, *disk[2:]], ["198.51.100.8", *disk[1:]], disk[:4], "disk"):
        op.target_node = [forged]
        master.refused(op, errors.ECODE_INVAL)
    op.target_node = [handshake.signed_disk(secret, 1, "198.51.100.7", 4711, "magic-word")]
    assert "not signed" in master.refused(op, errors.ECODE_INVAL)


def test_a_remote_export_that_fails_removes_nothing(secret, certificate):
    master, nodes = exporting(disks=2)
    nodes.outcome["export"] = "the other side did not confirm"
    op = export(
        mode="remote",
        remove_instance=True,
        ignore_remove_failures=True,
        x509_key_name=handshake.signed_key(secret, "key-1"),
        destination_x509_ca=signed.sign_certificate(secret, certificate, "5a17"),
        target_node=[
            handshake.signed_disk(secret, index, "198.51.100.7", 4711 + index, "magic-word")
            for index in range(2)
        ],
    )
    assert "disk/0, disk/1 did not arrive" in master.failed(op)
    assert len(master.config.instances()) == 1
    assert "blockdev_remove_multi" not in acting(master)


def test_remote_import(secret, certificate):
    master = Master(cluster_of(2))
    nodes = Nodes(master)
    # The other side is not ours: our ends succeed by themselves.
    nodes.looks["other-disk-0"] = 0
    master.rpc.answers["x509_cert_create"] = ["key-2", certificate]
    logged = []
    job = master.new_job()
    plain = job.feedback
    job.feedback = lambda *args: logged.append(args) if len(args) > 1 else plain(*args)
    op = anew(
        mode="remote-import",
        disks=[{"size": 1024}],
        nics=[{}],
        disk_template="file",
        os_type="noop",
        source_handshake=handshake.greeting(secret),
        source_instance_name="old.example.com",
        source_x509_ca=signed.sign_certificate(secret, certificate, "5a17"),
        src_path=None,
    )
    during = []
    master.rpc.answers["instance_run_rename"] = lambda node, args: during.append(
        master.config.instances()[0].importing_since
    )
    master.run(op, job)
    # While it is imported, it is marked, so that the watcher can remove what is left of it.
    assert during[0] is not None
    assert master.config.instances()[0].importing_since is None
    ((kind, entry),) = logged
    assert kind == "remote-import"
    host, port, magic = handshake.check_disk(secret, 0, entry["disks"][0])
    assert (host, port) == ("192.0.2.1", 5000)
    assert handshake.check_certificate(secret, entry["x509_ca"], "it") == certificate
    ((_node, args),) = master.rpc.of("import_start")
    assert (args["options"].magic, args["options"].key_name) == (magic, "key-2")
    assert args["options"].connect_timeout == disk_copy.REMOTE_CONNECT_S + 120
    assert master.rpc.of("x509_cert_remove") == [(NODE1, {"name": "key-2"})]
    assert master.rpc.of("instance_run_rename")[0][1]["old_name"] == "old.example.com"


@pytest.mark.parametrize("outcome", ["unresponsive", "no space"])
def test_the_end_of_a_remote_import_is_not_known(secret, certificate, monkeypatch, outcome):
    """The source may be gone: then the new instance is the only copy."""
    master = Master(cluster_of(2))
    nodes = Nodes(master)
    nodes.looks["other-disk-0"] = 0
    nodes.outcome["import"] = outcome
    look = nodes.look

    def listening_first(name):
        status = look(name)
        return ImportExportStatus(listen_port=5000) if nodes.looks[name] == 1 else status

    nodes.look = listening_first
    monkeypatch.setattr(disk_copy, "UNRESPONSIVE_S", 0.0)
    master.rpc.answers["x509_cert_create"] = ["key-2", certificate]
    op = anew(
        mode="remote-import",
        disks=[{"size": 1024}],
        nics=[{}],
        disk_template="file",
        os_type="noop",
        source_handshake=handshake.greeting(secret),
        source_instance_name="old.example.com",
        source_x509_ca=signed.sign_certificate(secret, certificate, "5a17"),
        src_path=None,
        start=True,
    )
    problem = master.failed(op)
    assert "instance_start" not in acting(master)
    if outcome == "no space":
        assert "did not arrive" in problem
        assert master.config.instances() == ()
        return
    assert "it is not known whether disk/0" in problem
    (instance,) = master.config.instances()
    assert instance.admin_state == "down"
    assert "blockdev_remove_multi" not in acting(master)


def test_a_complete_import_stays_when_its_disks_stay_active():
    master, _nodes = importing()
    master.rpc.errors["blockdev_shutdown_multi"] = "in use"
    assert "is complete, but has active disks" in master.failed(anew())
    assert len(master.config.instances()) == 1
    assert "blockdev_remove_multi" not in acting(master)


def test_who_does_not_know_the_secret_is_refused(secret, certificate):
    master = Master(cluster_of(1))

    def op(**changes):
        return anew(
            **{
                "mode": "remote-import",
                "disks": [{"size": 64}],
                "disk_template": "file",
                "os_type": "noop",
                "source_handshake": handshake.greeting(secret),
                "source_instance_name": "old",
                "src_path": None,
                "source_x509_ca": signed.sign_certificate(secret, certificate, "5a17"),
                **changes,
            }
        )

    wrong = (
        ({"source_handshake": None}, "handshake"),
        ({"source_handshake": handshake.greeting("other")}, "domain secret"),
        ({"source_handshake": [0, 5, None]}, "wrong form"),
        ({"source_handshake": ["x"]}, "wrong form"),
        ({"source_x509_ca": certificate}, "not signed"),
        ({"source_x509_ca": signed.sign_certificate("other", certificate, "1")}, "domain secret"),
        ({"source_x509_ca": None}, "missing"),
        ({"source_instance_name": None}, "the name of the instance there"),
        ({"disks": []}, "without disks"),
    )
    for changes, fragment in wrong:
        assert fragment in master.refused(op(**changes), errors.ECODE_INVAL)
    version, *rest = handshake.greeting(secret)
    assert "version 7" in master.refused(
        op(source_handshake=[version + 7, *rest]), errors.ECODE_INVAL
    )


def test_progress_is_readable():
    status = ImportExportStatus(
        progress_mbytes=512.0, progress_throughput=110.51, progress_percent=25.2, progress_eta=14.4
    )
    assert disk_copy.progress_text(status) == "512M, 110.5 MiB/s, 25%, ETA 14 s"
    assert STATE_RUNNING == 0
