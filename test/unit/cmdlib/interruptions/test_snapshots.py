"""Making, removing and restoring snapshots, broken at every node call and set right again.

As :mod:`.test_instance`; the disks are files, volumes, or mirrors. Besides what holds there,
no snapshot is left which the command or ``remove-snapshot`` would not find, and after a restore all
disks have the content of the snapshot.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fakes import mirror
from fakes.breaking import (
    WEB,
    again,
    again_unless_done,
    contents,
    create,
    empty,
    everywhere,
    web,
)
from fakes.node_side import BREAKS, Cluster
from ganeti import errors
from ganeti.opcodes import instance as ops
from ganeti.opcodes.base import OpCode

NAME = "before"
# As large as the disks, 4 MiB.
OLD, NEW = bytes(range(256)) * 16384, bytes(reversed(range(256))) * 16384
LONG = bool(os.environ.get("GANETI_LONG"))


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    mirror.install(monkeypatch)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def fresh(directory: Path, template: str, *, up: bool = False, kept: bool = False) -> Cluster:
    """Three nodes, an instance with two disks; and what they had before is kept."""
    cluster = empty(directory)
    cluster.run(create(template, disks=[{"size": 4}] * 2))
    for path in contents(cluster):
        path.write_bytes(OLD if kept else NEW)
    if kept:
        cluster.run(take())
        for path in contents(cluster):
            path.write_bytes(NEW)
    if up:
        cluster.run(ops.OpInstanceStartup(instance_name=WEB))
    cluster.rpc.restart()
    return cluster


def pictures(cluster: Cluster) -> list[Path]:
    """The snapshots, complete or not, by looking for them."""
    return [
        path
        for content in contents(cluster)
        for path in content.parent.glob(f"{content.name}.snap.*")
    ]


def take(**changes) -> ops.OpInstanceSnapshot:
    return ops.OpInstanceSnapshot(
        **{"instance_name": WEB, "snapshot_name": NAME, "shutdown": True, **changes}
    )


def remove() -> ops.OpInstanceSnapshotRemove:
    return ops.OpInstanceSnapshotRemove(instance_name=WEB, snapshot_name=NAME)


def restore() -> ops.OpInstanceSnapshotRestore:
    return ops.OpInstanceSnapshotRestore(instance_name=WEB, snapshot_name=NAME)


# -- setting right ---------------------------------------------------------------------------


def remove_then_take(cluster: Cluster, op: Callable[[], OpCode]) -> None:
    """What is there is removed; the guest is started, as the watcher would do; then anew."""
    again_unless_done(cluster, remove)
    assert pictures(cluster) == []
    if web(cluster).admin_state == "up":
        cluster.run(ops.OpInstanceStartup(instance_name=WEB))
    cluster.run(op())


def take_another(cluster: Cluster, op: Callable[[], OpCode]) -> None:
    """A snapshot of another name can be made at once, whatever is left of the first."""
    if web(cluster).admin_state == "up":
        cluster.run(ops.OpInstanceStartup(instance_name=WEB))
    cluster.run(take(snapshot_name="other"))
    assert len([path for path in pictures(cluster) if path.name.endswith(".other")]) == 2
    again_unless_done(cluster, remove)
    cluster.run(ops.OpInstanceSnapshotRemove(instance_name=WEB, snapshot_name="other"))
    assert pictures(cluster) == []
    cluster.run(op())


def then_deactivated(cluster: Cluster, op: Callable[[], OpCode]) -> None:
    """What was activated for a moment may have stayed so when the answer was lost."""
    again(cluster, op)
    cluster.run(ops.OpInstanceDeactivateDisks(instance_name=WEB))


def check(cluster: Cluster) -> None:
    cluster.check()
    assert cluster.rpc.kernel.split == []


def is_whole(cluster: Cluster, *, kept: int, content: bytes) -> None:
    """Nothing is left or missing; so many snapshots; the disks have this content."""
    found = pictures(cluster)
    assert len(found) == kept, found
    for path in found:
        path.rename(path.with_name("elsewhere"))  # who counts files knows no snapshots
        (path.with_name("elsewhere")).unlink()
    cluster.check_clean()
    check(cluster)
    cluster.rpc.kernel.settle()
    cluster.rpc.kernel.replicate()
    assert not [tag for tag in web(cluster).tags if "snapshot" in tag]
    if not web(cluster).disks_active:
        assert cluster.rpc.active() == set(), "minors are left in use"
    both = not web(cluster).disks_active or web(cluster).admin_state == "up"
    for path in contents(cluster, primary_only=not both):
        assert path.read_bytes() == content, f"{path} has other content"


CASES = {
    "take": (take, {}, remove_then_take, {"kept": 2, "content": NEW}),
    "take-another": (take, {}, take_another, {"kept": 2, "content": NEW}),
    "take-running": (take, {"up": True}, remove_then_take, {"kept": 2, "content": NEW}),
    "remove": (remove, {"kept": True}, again_unless_done, {"kept": 0, "content": NEW}),
    "restore": (restore, {"kept": True}, then_deactivated, {"kept": 2, "content": OLD}),
}


def breaks(template: str, count: int) -> list[tuple[str, int]]:
    """How and at which call: four ways in turn, or everywhere in all four.

    In turn is at each call for files, and at every second one for other disks.
    """
    if LONG:
        return [(how, at) for how in BREAKS for at in range(count)]
    calls = range(0, count, 1 if template == "file" else 2)
    return [(BREAKS[number % 4], at) for number, at in enumerate(calls)]


@pytest.mark.larger
@pytest.mark.parametrize("template", ["file", "sharedfile", "plain", "drbd"])
@pytest.mark.parametrize("name", CASES)
def test_what_broke_is_set_right(tmp_path: Path, name: str, template: str) -> None:
    op, start, recover, wanted = CASES[name]
    numbers = itertools.count()
    broken = everywhere(
        lambda: fresh(tmp_path / str(next(numbers)), template, **start),
        op,
        lambda cluster: recover(cluster, op),
        breaks=functools.partial(breaks, template),
        check=check,
        check_clean=lambda cluster: is_whole(cluster, **wanted),
    )
    assert broken > 1


@pytest.mark.parametrize("template", ["file", "plain", "drbd"])
def test_an_incomplete_restore_is_never_started(tmp_path: Path, template: str) -> None:
    """Whenever a disk was changed and not all have been, nobody starts it without being told."""
    whole = fresh(tmp_path / "whole", template, kept=True)
    whole.run(restore())
    half = 0
    first = [name for name, _node in whole.rpc.calls].index("blockdev_snapshot_restore")
    for how, at in itertools.product(BREAKS, range(first, first + 3)):
        cluster = fresh(tmp_path / f"{how}-{at}", template, kept=True)
        cluster.broken(restore(), at, how)
        if {path.read_bytes() for path in contents(cluster, primary_only=True)} == {OLD, NEW}:
            half += 1
            for op in (
                ops.OpInstanceStartup(instance_name=WEB),
                ops.OpInstanceReboot(instance_name=WEB, reboot_type="hard"),
            ):
                with pytest.raises(errors.OpPrereqError, match="not completely restored"):
                    cluster.run(op)
            cluster.run(ops.OpInstanceStartup(instance_name=WEB, force=True))
            assert cluster.job.said("; it is used as it is")
            cluster.run(ops.OpInstanceShutdown(instance_name=WEB))
            cluster.run(ops.OpInstanceStartup(instance_name=WEB))  # said once
    assert half


def test_a_copy_that_was_broken_off_is_found(tmp_path: Path) -> None:
    """The node itself died while it copied a file."""
    cluster = fresh(tmp_path / "cluster", "file")
    first = contents(cluster)[0]
    Path(f"{first}.snap.{NAME}~").write_bytes(OLD[:1000])
    rows = cluster.run(ops.OpInstanceSnapshotList())
    assert [(row["snapshot"], row["disk"], row["usable"]) for row in rows] == [(NAME, 0, False)]
    with pytest.raises(errors.OpPrereqError, match="already has a snapshot before"):
        cluster.run(take())
    with pytest.raises(errors.OpPrereqError, match="is incomplete"):
        cluster.run(restore())
    cluster.run(remove())
    assert pictures(cluster) == []


@pytest.mark.parametrize("template", ["file", "sharedfile", "plain", "drbd"])
def test_nothing_is_left_of_a_removed_instance(tmp_path: Path, template: str) -> None:
    cluster = fresh(tmp_path / "cluster", template, kept=True)
    cluster.run(ops.OpInstanceSetParams(instance_name=WEB, disks=[["remove", 1, {}]]))
    assert len(pictures(cluster)) == 1
    cluster.run(take(snapshot_name="later"))
    cluster.run(ops.OpInstanceRemove(instance_name=WEB))
    assert cluster.rpc.stored() == set()
