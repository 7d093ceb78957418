"""An operation removes only devices which it has made.

A device of somebody else gets the name of a new device, right before an operation makes its own:
the node refuses that, and the device survives the operation, its undo, and all that follows.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fakes import mirror
from fakes.breaking import WEB, create, empty, known
from fakes.node_side import Cluster
from ganeti import cmdlib, errors, storage
from ganeti.cmdlib.ops.transfer import disk_copy
from ganeti.opcodes import instance as ops
from ganeti.opcodes.base import OpCode
from ganeti.platform import paths
from ganeti.rpc import Result
from ganeti.wire.calls import BLOCKDEV_CREATE_MULTI, Call

THEIRS = b"data of somebody else"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    mirror.install(monkeypatch)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    for name in ("POLL_MIN_S", "POLL_MAX_S"):
        monkeypatch.setattr(disk_copy, name, 0.0)


class Before:
    """Does something right before one of the creations of devices, and counts them."""

    def __init__(self, cluster: Cluster, at: int | None, act: Callable[[str, Any], None]) -> None:
        self.count = 0
        one = cluster.rpc._one

        def call(call: Call, uuid: str, args: dict[str, Any]) -> Result:
            if call is BLOCKDEV_CREATE_MULTI:
                for disk, _instance in args["disks"]:
                    if disk.dev_type == "drbd":
                        continue
                    if self.count == at:
                        act(cluster.config.node(uuid).name, disk)
                    self.count += 1
            return one(call, uuid, args)

        cluster.rpc._one = call  # type: ignore[method-assign]


def path_of(cluster: Cluster, node: str, device: Any) -> Path:
    with paths.override(paths.Paths(str(cluster.rpc.root(node)))):
        return Path(storage.device(device).path)


def modify(**changes: Any) -> OpCode:
    return ops.OpInstanceSetParams(instance_name=WEB, **changes)


def replace(mode: str, **changes: Any) -> OpCode:
    return ops.OpInstanceReplaceDisks(instance_name=WEB, mode=mode, disks=[], **changes)


#: Operation, and the template of the disks which are there before it.
CASES: dict[str, tuple[Callable[[], OpCode], str | None]] = {
    "create plain": (lambda: create("plain", disks=[{"size": 1}] * 2), None),
    "create file": (lambda: create("file", disks=[{"size": 1}] * 2), None),
    "create drbd": (lambda: create("drbd"), None),
    "add": (lambda: modify(disks=[["add", -1, {"size": 1}]]), "plain"),
    "add mirrored": (lambda: modify(disks=[["add", -1, {"size": 1}]]), "drbd"),
    "copy to file": (lambda: modify(disk_template="file"), "plain"),
    "copy to plain": (lambda: modify(disk_template="plain"), "file"),
    "mirror": (lambda: modify(disk_template="drbd", remote_node="node2"), "plain"),
    "move": (lambda: ops.OpInstanceMove(instance_name=WEB, target_node="node2"), "plain"),
    "move file": (lambda: ops.OpInstanceMove(instance_name=WEB, target_node="node2"), "file"),
    "replace on secondary": (lambda: replace("replace_on_secondary"), "drbd"),
    "new secondary": (lambda: replace("replace_new_secondary", remote_node="node3"), "drbd"),
    "fail over to a third node": (
        lambda: ops.OpInstanceFailover(instance_name=WEB, target_node="node3"),
        "drbd",
    ),
}


def cluster_for(directory: Path, template: str | None) -> Cluster:
    cluster = empty(directory)
    if template is not None:
        cluster.run(create(template))
    return cluster


def attempt(cluster: Cluster, op: OpCode) -> None:
    with pytest.raises(errors.GenericError, match="exists"):
        cluster.run(op)
    cluster.rpc.restart()


@pytest.mark.larger
@pytest.mark.parametrize("name", CASES)
def test_what_a_node_refused_to_make_is_never_removed(tmp_path: Path, name: str) -> None:
    op, template = CASES[name]
    whole = cluster_for(tmp_path / "whole", template)
    counted = Before(whole, None, lambda node, device: None)
    whole.run(op())
    assert counted.count
    for at in range(counted.count):
        cluster = cluster_for(tmp_path / str(at), template)
        theirs: list[Path] = []

        def appear(node: str, device: Any) -> None:
            path = path_of(cluster, node, device)  # noqa: B023
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(THEIRS)
            theirs.append(path)  # noqa: B023

        Before(cluster, at, appear)
        attempt(cluster, op())
        assert [path.read_bytes() for path in theirs] == [THEIRS], at
        # The next operation clears what the failed one has left; then everything goes.
        if known(cluster):
            cluster.run(ops.OpInstanceRemove(instance_name=WEB))
        assert [path.read_bytes() for path in theirs] == [THEIRS], at
        left = {str(path) for path in found(cluster)} - {str(theirs[0])}
        assert not left, (at, left)
        assert cluster.config.snapshot().disks == {}


def found(cluster: Cluster) -> list[Path]:
    """The files of all volumes and disks of all nodes."""
    tops = [cluster.rpc.root(node.name) for node in cluster.config.nodes()]
    return [
        path
        for top in tops
        for below in (mirror.LVM, "srv/ganeti/file-storage")
        for path in (top / below).rglob("*")
        if path.is_file()
    ]


#: Operations whose new devices keep names, or get names which follow from others.
NAMED = {
    "mirror": ("node2", lambda disk: disk),
    "move": ("node2", lambda disk: disk),
    "move file": ("node2", lambda disk: disk),
    "new secondary": ("node3", lambda disk: disk.children[0]),
    "fail over to a third node": ("node3", lambda disk: disk.children[1]),
}


@pytest.mark.parametrize("name", NAMED)
def test_a_name_which_is_taken_is_found_before_anything_is_recorded(
    tmp_path: Path, name: str
) -> None:
    op, template = CASES[name]
    cluster = cluster_for(tmp_path / "cluster", template)
    node, part = NAMED[name]
    (disk,) = cluster.config.snapshot().disks.values()
    path = path_of(cluster, f"{node}.example.com", part(disk))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(THEIRS)
    attempt(cluster, op())
    assert cluster.rpc.calls == []
    assert [one.uuid for one in cluster.config.snapshot().disks.values()] == [disk.uuid]
    cluster.run(ops.OpInstanceRemove(instance_name=WEB))
    assert path.read_bytes() == THEIRS


@pytest.mark.parametrize("suffix", ["_new", "_old"])
def test_volumes_with_the_names_of_a_replacement_are_not_destroyed(
    tmp_path: Path, suffix: str
) -> None:
    cluster = cluster_for(tmp_path / "cluster", "drbd")
    (disk,) = cluster.config.snapshot().disks.values()
    group, volume = disk.children[0].logical_id
    path = cluster.rpc.root("node2.example.com") / mirror.LVM / group / f"{volume}{suffix}"
    path.write_bytes(THEIRS)
    for _again in range(2):
        attempt(cluster, replace("replace_on_secondary"))
    cluster.run(ops.OpInstanceRemove(instance_name=WEB))
    assert path.read_bytes() == THEIRS


@pytest.mark.parametrize("name", ["create plain", "create drbd", "add", "copy to file", "move"])
def test_a_device_whose_answer_was_lost_is_removed(tmp_path: Path, name: str) -> None:
    op, template = CASES[name]
    whole = cluster_for(tmp_path / "whole", template)
    whole.rpc.restart()
    whole.run(op())
    creations = [
        at for at, (call, _node) in enumerate(whole.rpc.calls) if call == "blockdev_create_multi"
    ]
    for at in creations:
        cluster = cluster_for(tmp_path / str(at), template)
        before = set(found(cluster))
        assert cluster.broken(op(), at, "cut") is not None
        assert set(found(cluster)) == before, at


#: The modules of the master side which create or remove devices of disks, and those which remove
#: snapshots only.
CREATE, REMOVE = {"ops/disks/devices.py"}, {"ops/disks/devices.py"}
SNAPSHOTS = {"instance/snapshot.py", "instance/snapshot_remove.py", "backup/export.py"}


def test_no_operation_passes_the_rule_by() -> None:
    """Whoever creates or removes a device calls the functions which obey it."""
    top = Path(cmdlib.__file__).parent
    texts = {
        str(path.relative_to(top)): path.read_text(encoding="utf-8") for path in top.rglob("*.py")
    }
    assert {name for name, text in texts.items() if "BLOCKDEV_CREATE" in text} == CREATE
    removes = re.compile(r"\bBLOCKDEV_REMOVE(_MULTI)?\b")
    assert {name for name, text in texts.items() if removes.search(text)} == {
        *REMOVE,
        *SNAPSHOTS,
    }
