"""Every operation on an instance is broken at every node call, in four ways, and set right again.

See :mod:`fakes.node_side` for the ways. Whatever happened, no instance runs twice and the
configuration holds together; after the same command (or its clean-up) no file, no guest and no lock
is left over or missing.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fakes.breaking import (
    WEB,
    again,
    again_unless_done,
    clean_up_move,
    everywhere,
    known,
    remove_disk_again,
    remove_then_again,
    web,
)
from fakes.config import cluster_of, disk_of, instance_of, uuid_of
from fakes.node_side import BREAKS, Cluster
from ganeti.cmdlib.ops.transfer import disk_copy
from ganeti.objects import ipolicy
from ganeti.opcodes import backup
from ganeti.opcodes import instance as ops
from ganeti.opcodes.base import OpCode
from ganeti.utils import shared_dir
from ganeti.wire import json

COPY = "two.example.com"
LONG = bool(os.environ.get("GANETI_LONG"))


def fresh(
    directory: Path, template: str, *, up: bool = False, exists: bool = True, lost: bool = False
) -> Cluster:
    """Three nodes and an instance ``web`` with two disks which really exist."""
    instances, disks = (), ()
    if exists and template != "diskless":
        disks = tuple(replace(disk_of("web", index, template), size=1) for index in range(2))
    if exists:
        instances = (instance_of("web", disks=tuple(disk.uuid for disk in disks)),)
    directory.mkdir()
    rules = ipolicy.defaults()
    rules["minmax"][0]["min"]["disk-size"] = 1
    cluster = Cluster(cluster_of(3, instances, disks, ipolicy=rules), directory)
    if exists:
        for disk in disks:
            top = cluster.rpc.root("node1.example.com")
            path = Path(str(top) + disk.logical_id[1])
            path.parent.mkdir(parents=True, exist_ok=True)
            if not lost:
                path.write_bytes(bytes([1]) * (disk.size << 20))
    if up:
        cluster.run(ops.OpInstanceStartup(instance_name=WEB))
        cluster.rpc.restart()
    return cluster


# -- setting right ---------------------------------------------------------------------------


def remove_third_disk(cluster: Cluster, op: Callable[[], OpCode]) -> None:
    """A disk that was not finished is removed, then added anew."""
    if len(web(cluster).disks) > 2:
        cluster.run(ops.OpInstanceSetParams(instance_name=WEB, disks=[["remove", 2, {}]]))
    cluster.check_clean()
    cluster.run(op())


def move_again(cluster: Cluster, op: Callable[[], OpCode]) -> None:
    """There when it is not there yet; else back, which destroys what the first move has left."""
    arrived = web(cluster).primary_node == uuid_of("node2")
    cluster.run(ops.OpInstanceMove(instance_name=WEB, target_node="node1" if arrived else "node2"))


def convert_again(cluster: Cluster, op: Callable[[], OpCode]) -> None:
    """The next conversion destroys what is left; there and back again when it had been done."""
    if cluster.config.disk_template(web(cluster)) == op().disk_template:
        cluster.run(ops.OpInstanceSetParams(instance_name=WEB, disk_template="file"))
    cluster.run(op())


def fail_over_again(cluster: Cluster, op: Callable[[], OpCode]) -> None:
    """The same command; when the instance is there already, it is only started."""
    again_unless_done(cluster, op)
    if web(cluster).admin_state == "up":
        cluster.run(ops.OpInstanceStartup(instance_name=WEB))


def modify(**changes):
    return lambda: ops.OpInstanceSetParams(instance_name=WEB, **changes)


def create(template: str):
    return lambda: ops.OpInstanceCreate(
        instance_name=WEB,
        mode="create",
        disk_template=template,
        pnode="node1",
        os_type="noop",
        disks=[] if template == "diskless" else [{"size": 1}, {"size": 1}],
        nics=[{}],
    )


def copy() -> OpCode:
    return ops.OpInstanceCopy(instance_name=WEB, new_name=COPY, pnode="node2")


def remove_copy_again(cluster: Cluster, op: Callable[[], OpCode]) -> None:
    """Half a copy is removed, as by the watcher; the disks of the source may have stayed active."""
    if known(cluster, COPY):
        cluster.run(ops.OpInstanceRemove(instance_name=COPY))
    cluster.run(ops.OpInstanceDeactivateDisks(instance_name=WEB))
    cluster.check_clean()
    assert [instance.name for instance in cluster.config.instances()] == [WEB]
    cluster.run(op())


CASES = {
    "create-file": (create("file"), {"template": "file", "exists": False}, remove_then_again()),
    "create-sharedfile": (
        create("sharedfile"),
        {"template": "sharedfile", "exists": False},
        remove_then_again(),
    ),
    "create-diskless": (
        create("diskless"),
        {"template": "diskless", "exists": False},
        remove_then_again(),
    ),
    "remove": (
        lambda: ops.OpInstanceRemove(instance_name=WEB),
        {"template": "file", "up": True},
        again_unless_done,
    ),
    "startup": (lambda: ops.OpInstanceStartup(instance_name=WEB), {"template": "file"}, again),
    "shutdown": (
        lambda: ops.OpInstanceShutdown(instance_name=WEB),
        {"template": "file", "up": True},
        again,
    ),
    "reboot-hard": (
        lambda: ops.OpInstanceReboot(instance_name=WEB, reboot_type="hard"),
        {"template": "file", "up": True},
        again,
    ),
    "reboot-full": (
        lambda: ops.OpInstanceReboot(instance_name=WEB, reboot_type="full"),
        {"template": "file", "up": True},
        again,
    ),
    "reinstall": (
        lambda: ops.OpInstanceReinstall(instance_name=WEB, os_type="other"),
        {"template": "file"},
        again,
    ),
    "rename": (
        lambda: ops.OpInstanceRename(instance_name=WEB, new_name="www.example.com"),
        {"template": "file"},
        again_unless_done,
    ),
    "activate-disks": (
        lambda: ops.OpInstanceActivateDisks(instance_name=WEB),
        {"template": "file"},
        again,
    ),
    "deactivate-disks": (
        lambda: ops.OpInstanceDeactivateDisks(instance_name=WEB),
        {"template": "file"},
        again,
    ),
    "grow-disk": (
        lambda: ops.OpInstanceGrowDisk(instance_name=WEB, disk=1, amount=8, absolute=True),
        {"template": "file"},
        again,
    ),
    "recreate-disks": (
        lambda: ops.OpInstanceRecreateDisks(instance_name=WEB),
        {"template": "file", "lost": True},
        again_unless_done,
    ),
    "migrate": (
        lambda: ops.OpInstanceMigrate(instance_name=WEB, target_node="node2"),
        {"template": "sharedfile", "up": True},
        clean_up_move,
    ),
    "failover": (
        lambda: ops.OpInstanceFailover(instance_name=WEB, target_node="node2"),
        {"template": "sharedfile", "up": True},
        fail_over_again,
    ),
    "failover-stopped": (
        lambda: ops.OpInstanceFailover(instance_name=WEB, target_node="node2"),
        {"template": "sharedfile"},
        fail_over_again,
    ),
    "move": (
        lambda: ops.OpInstanceMove(instance_name=WEB, target_node="node2"),
        {"template": "file", "up": True},
        move_again,
    ),
    "move-stopped": (
        lambda: ops.OpInstanceMove(instance_name=WEB, target_node="node2"),
        {"template": "file"},
        move_again,
    ),
    "copy": (copy, {"template": "file"}, remove_copy_again),
    "copy-sharedfile": (copy, {"template": "sharedfile"}, remove_copy_again),
    "detach-disk": (
        modify(disks=[["detach", 1, {}]]),
        {"template": "file", "up": True},
        remove_disk_again,
    ),
    "add-disk": (modify(disks=[["add", -1, {"size": 1}]]), {"template": "file"}, remove_third_disk),
    "add-disk-running": (
        modify(disks=[["add", -1, {"size": 1}]]),
        {"template": "file", "up": True},
        remove_third_disk,
    ),
    "remove-disk": (modify(disks=[["remove", 0, {}]]), {"template": "file"}, remove_disk_again),
    "remove-disk-running": (
        modify(disks=[["remove", 0, {}]]),
        {"template": "file", "up": True},
        remove_disk_again,
    ),
    "convert": (modify(disk_template="sharedfile"), {"template": "file"}, convert_again),
    "parameters": (
        modify(beparams={"memory": 256}, nics=[["add", -1, {}]]),
        {"template": "file", "up": True},
        again,
    ),
}


def breaks(count: int) -> list[tuple[str, int]]:
    """How and at which call: two ways in turn show nearly everything; or everywhere in all four."""
    if LONG:
        return [(how, at) for how in BREAKS for at in range(count)]
    return [(("kill", "cut")[at % 2], at) for at in range(count)]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here loses power or takes time; flushing and waiting would be most of the work."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    monkeypatch.setattr(disk_copy, "POLL_MIN_S", 0.0)
    monkeypatch.setattr(disk_copy, "POLL_MAX_S", 0.0)


@pytest.mark.larger
@pytest.mark.parametrize("name", CASES)
def test_every_operation_can_be_set_right(tmp_path: Path, name: str) -> None:
    op, start, recover = CASES[name]
    numbers = itertools.count()
    everywhere(
        lambda: fresh(tmp_path / str(next(numbers)), **start),
        op,
        lambda cluster: recover(cluster, op),
        breaks=breaks,
    )


def test_a_broken_creation_that_nobody_repeats_is_removed(tmp_path: Path) -> None:
    cluster = fresh(tmp_path / "cluster", "file", exists=False)
    cluster.broken(create("file")(), 12, "kill")
    assert known(cluster)
    cluster.run(ops.OpInstanceRemove(instance_name=WEB, ignore_failures=True))
    cluster.check_clean()
    assert cluster.rpc.stored() == set()


def test_what_a_conversion_left_goes_with_the_instance(tmp_path: Path) -> None:
    op = modify(disk_template="sharedfile")
    whole = fresh(tmp_path / "whole", "file")
    whole.run(op())
    for at in range(len(whole.rpc.calls)):
        cluster = fresh(tmp_path / f"kill-{at}", "file")
        cluster.broken(op(), at, "kill")
        cluster.run(ops.OpInstanceRemove(instance_name=WEB))
        assert cluster.rpc.stored() == set(), at
        assert not cluster.config.snapshot().disks


@pytest.mark.larger
def test_the_content_survives_every_interruption(tmp_path: Path) -> None:
    op = modify(disk_template="sharedfile")
    whole = fresh(tmp_path / "whole", "file")
    whole.run(op())
    for how, at in breaks(len(whole.rpc.calls)):
        cluster = fresh(tmp_path / f"{how}-{at}", "file")
        cluster.broken(op(), at, how)
        convert_again(cluster, op)
        for disk in cluster.config.instance_disks(web(cluster)):
            path = Path(str(cluster.rpc.root("node1.example.com")) + disk.logical_id[1])
            assert path.read_bytes() == bytes([1]) * (1 << 20), (how, at)


def test_the_mark_of_a_dead_master_goes_with_a_later_comparison(tmp_path: Path) -> None:
    """One of a directory which nodes share; that of an old master, and after an hour."""
    op, start, _recover = CASES["failover-stopped"]
    whole = fresh(tmp_path / "whole", **start)
    whole.run(op())
    assert whole.rpc.marks() == []
    at = whole.rpc.calls.index(("directory_unmark", "node1.example.com"))
    cluster = fresh(tmp_path / "kill", **start)
    cluster.broken(op(), at, "kill")
    (mark,) = cluster.rpc.marks()
    cluster.run(op())
    assert cluster.rpc.marks() == [mark]
    hour_ago = time.time() - 3700
    os.utime(mark, (hour_ago, hour_ago))
    cluster.run(ops.OpInstanceFailover(instance_name=WEB, target_node="node1"))
    assert cluster.rpc.marks() == []


def test_the_mark_of_a_dead_master_goes_with_the_instance(tmp_path: Path) -> None:
    """One of the instance's own directory."""
    op, start, _recover = CASES["move-stopped"]
    whole = fresh(tmp_path / "whole", **start)
    whole.run(op())
    at = whole.rpc.calls.index(("directory_unmark", "node1.example.com"))
    cluster = fresh(tmp_path / "kill", **start)
    cluster.broken(op(), at, "kill")
    (left,) = cluster.rpc.stored() - cluster.rpc.recorded()
    assert left.startswith(f"node1:{WEB}/{shared_dir.PREFIX}")
    cluster.run(ops.OpInstanceRemove(instance_name=WEB))
    assert cluster.rpc.stored() == set()


def test_uuids_are_those_of_the_fakes(tmp_path: Path) -> None:
    assert web(fresh(tmp_path / "one", "file")).uuid == uuid_of("web")


#: Opcodes about instances which have no steps that could be left half done, and why.
ONLY_ASK = {
    "OP_INSTANCE_CHANGE_GROUP": "asks an allocator and submits jobs",
    "OP_INSTANCE_MULTI_ALLOC": "asks an allocator and submits jobs",
    "OP_INSTANCE_CONSOLE": "asks a node",
    "OP_INSTANCE_QUERY_DATA": "asks nodes",
    "OP_INSTANCE_SNAPSHOT_LIST": "asks nodes",
    "OP_BACKUP_PREPARE": "makes a key which the node removes by itself when it has expired",
}
#: Those of other files.
BROKEN_ELSEWHERE = {
    "OP_INSTANCE_REPLACE_DISKS": "test_mirrored.py",
    "OP_INSTANCE_SNAPSHOT": "test_snapshots.py",
    "OP_INSTANCE_SNAPSHOT_REMOVE": "test_snapshots.py",
    "OP_INSTANCE_SNAPSHOT_RESTORE": "test_snapshots.py",
    "OP_BACKUP_EXPORT": "test_export_import.py",
    "OP_BACKUP_REMOVE": "test_export_import.py",
}


def test_no_opcode_is_forgotten() -> None:
    every = {
        value.OP_ID
        for module in (ops, backup)
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, OpCode) and value is not OpCode
    }
    here = {op().OP_ID for op, _start, _recover in CASES.values()}
    assert here | set(ONLY_ASK) | set(BROKEN_ELSEWHERE) == every
    for op_id, file in BROKEN_ELSEWHERE.items():
        name = "Op" + op_id.removeprefix("OP_").title().replace("_", "")
        assert name in Path(__file__).with_name(file).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "op",
    [
        lambda: ops.OpInstanceChangeGroup(instance_name=WEB, iallocator="any"),
        lambda: ops.OpInstanceMultiAlloc(
            iallocator="any",
            instances=[
                ops.OpInstanceCreate(
                    instance_name="www.example.com",
                    mode="create",
                    disk_template="diskless",
                    disks=[],
                    nics=[{}],
                    os_type="noop",
                )
            ],
        ),
    ],
)
def test_who_only_asks_changes_nothing(tmp_path: Path, op: Callable[[], OpCode]) -> None:
    def cluster_at(name: str) -> Cluster:
        cluster = fresh(tmp_path / name, "sharedfile")
        with cluster.config.transaction() as change:
            old = cluster.config.group("group-1")
            change.groups.add(replace(old, name="other", uuid=uuid_of("other")))
        cluster._new_master()  # who has a lock for it
        multi = isinstance(op(), ops.OpInstanceMultiAlloc)
        result = (
            [[["www.example.com", ["node2.example.com"]]], []]
            if multi
            else [
                [[WEB, "other", ["node3.example.com"]]],
                [],
                [[{"OP_ID": "OP_INSTANCE_MIGRATE", "instance_name": WEB}]],
            ]
        )
        answer = json.dumps({"success": True, "info": "", "result": result})
        cluster.rpc._iallocator_runner = lambda **_args: answer
        return cluster

    whole = cluster_at("whole")
    whole.run(op())
    assert whole.job.submitted
    for how in BREAKS:
        for at in range(len(whole.rpc.calls)):
            cluster = cluster_at(f"{how}-{at}")
            before = cluster.config.snapshot()
            ended = cluster.broken(op(), at, how)
            assert cluster.config.snapshot() is before
            assert bool(cluster.job.submitted) == (ended is None)
            cluster.check_clean()
