"""Disks which are made again get new names, so what was believed lost survives when it returns."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from fakes import mirror
from fakes.breaking import WEB, contents, create, empty, web
from fakes.config import FakeConfig, cluster_of, uuid_of
from fakes.node_side import BREAKS, Cluster
from ganeti import errors
from ganeti.cmdlib.ops.disks import specs
from ganeti.objects import Disk
from ganeti.opcodes import instance as ops
from ganeti.rpc import Result
from ganeti.wire.calls import Call

CONTENT = b"confirmed" * 1000


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    mirror.install(monkeypatch)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def recreate(**changes: Any) -> ops.OpInstanceRecreateDisks:
    return ops.OpInstanceRecreateDisks(instance_name=WEB, **changes)


class Away:
    """The storage of the instance's disks, which is away for a while."""

    def __init__(self, directory: Path, template: str, disks: int = 1) -> None:
        self.cluster = empty(directory)
        self.cluster.run(create(template, disks=[{"size": 1}] * disks))
        self.paths = contents(self.cluster)
        for path in self.paths:
            path.write_bytes(CONTENT)
        self.disks = self.cluster.config.instance_disks(web(self.cluster))
        if template == "drbd":
            self.paths += [
                self.cluster.rpc.root(self.cluster.config.node(node).name)
                / mirror.LVM
                / "/".join(disk.children[1].logical_id)
                for disk in self.disks
                for node in disk.nodes
            ]
        self._kept = {path: mirror.Image.read(path) for path in self.paths}
        self.cluster.rpc.restart()

    def goes(self, paths: Sequence[Path] | None = None) -> None:
        for path in self.paths if paths is None else paths:
            path.unlink()

    def returns(self) -> None:
        for path, image in self._kept.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            image.write(path)

    def is_untouched(self) -> bool:
        return all(
            path.exists() and mirror.Image.read(path) == image for path, image in self._kept.items()
        )

    def as_before(self) -> bool:
        """Whether the configuration has the old disks; whether they are in sync, nobody knows."""
        return all(
            dataclasses.replace(
                disk, serial_no=was.serial_no, mtime=was.mtime, in_sync_at=was.in_sync_at
            )
            == was
            for disk, was in zip(
                self.cluster.config.instance_disks(web(self.cluster)), self.disks, strict=True
            )
        )

    def names(self) -> set[tuple[Any, ...]]:
        """The names of all devices of the instance."""
        return {
            device.logical_id
            for disk in self.cluster.config.instance_disks(web(self.cluster))
            for device in disk.walk()
        }


def breaks(count: int) -> list[tuple[str, int]]:
    """How and at which call the command is broken: in turn, or everywhere in every way."""
    if os.environ.get("GANETI_LONG"):
        return [(how, at) for how in BREAKS for at in range(count)]
    return [(BREAKS[at // 2 % len(BREAKS)], at) for at in range(0, count, 1 + count // 20)]


TEMPLATES = ["plain", "file", "sharedfile", "drbd"]


@pytest.mark.parametrize("template", TEMPLATES)
def test_recreated_disks_have_new_names(tmp_path: Path, template: str) -> None:
    away = Away(tmp_path / "cluster", template, disks=2)
    old, before = away.names(), away.disks
    away.goes()
    away.cluster.run(recreate())
    assert not away.names() & old
    assert any(
        "/".join(map(str, (before[0].children or before)[0].logical_id)) in line
        for line in away.cluster.job.log
    )
    for disk, was in zip(
        away.cluster.config.instance_disks(web(away.cluster)), before, strict=True
    ):
        assert (disk.uuid, disk.size, disk.nodes) == (was.uuid, was.size, was.nodes)
        assert disk.forthcoming is None
        if template == "drbd":
            # The same port and minors, and another secret.
            assert disk.logical_id[:5] == was.logical_id[:5]
            assert disk.logical_id[5] != was.logical_id[5]
            assert disk.outdated_node is None
    away.returns()
    away.cluster.run(ops.OpInstanceStartup(instance_name=WEB))
    # The directory of files stays, with what has come back.
    away.cluster.run(ops.OpInstanceRemove(instance_name=WEB, ignore_failures=True))
    assert away.is_untouched()


@pytest.mark.larger
@pytest.mark.parametrize("template", TEMPLATES)
def test_what_comes_back_after_a_broken_attempt_is_never_destroyed(
    tmp_path: Path, template: str
) -> None:
    whole = Away(tmp_path / "whole", template)
    whole.goes()
    whole.cluster.run(recreate())
    for how, at in breaks(len(whole.cluster.rpc.calls)):
        away = Away(tmp_path / f"{how}-{at}", template)
        away.goes()
        ended = away.cluster.broken(recreate(), at, how)
        away.returns()
        # The advice of the error: repeat the command.
        try:
            away.cluster.run(recreate())
        except errors.OpPrereqError as err:
            assert err.ecode == errors.ECODE_EXISTS, (at, err)
        assert away.is_untouched(), (how, at, ended)
        assert all(
            disk.forthcoming is None
            for disk in away.cluster.config.instance_disks(web(away.cluster))
        ), at


def refuse(cluster: Cluster, refused: Callable[[str], bool]) -> None:
    """Let no node answer those calls."""
    rpc = cluster.rpc
    one = rpc._one

    def call(call: Call, uuid: str, args: dict[str, Any]) -> Result:
        if not refused(call.name):
            return one(call, uuid, args)
        node = cluster.config.node(uuid).name
        return Result(node, failure=errors.NodeUnreachable(node, call.name, "cut off by the test"))

    rpc._one = call  # type: ignore[method-assign]


def lose(cluster: Cluster, done: str, refused: str) -> None:
    """Let the answers to one call get lost, and let no node answer another one."""
    refuse(cluster, lambda name: name == refused)
    one = cluster.rpc._one

    def call(call: Call, uuid: str, args: dict[str, Any]) -> Result:
        answer = one(call, uuid, args)
        if call.name != done:
            return answer
        failure = errors.NodeUnreachable(answer.node_name, call.name, "the answer was lost")
        return Result(answer.node_name, failure=failure)

    cluster.rpc._one = call  # type: ignore[method-assign]


def answer_again(cluster: Cluster) -> None:
    """End :func:`refuse`."""
    del cluster.rpc._one


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_failed_attempt_leaves_the_old_names(tmp_path: Path, template: str) -> None:
    away = Away(tmp_path / "cluster", template, disks=2)
    away.goes()
    count = 0
    while True:
        called: list[str] = []

        def nth(name: str) -> bool:
            called.extend([name] * (name == "blockdev_create_multi"))  # noqa: B023
            return name == "blockdev_create_multi" and len(called) == count + 1  # noqa: B023

        refuse(away.cluster, nth)
        try:
            away.cluster.run(recreate())
            break
        except errors.OpExecError as err:
            assert "could not create disk" in str(err) and "left behind" not in str(err)
        finally:
            answer_again(away.cluster)
        assert away.as_before()
        count += 1
    # Volumes and mirrored devices are made one after the other, on both nodes at the same time.
    assert count == (4 if template == "drbd" else 1)


def test_what_comes_back_after_a_failed_attempt_is_in_use_again(tmp_path: Path) -> None:
    away = Away(tmp_path / "cluster", "drbd")
    away.goes()
    refuse(away.cluster, lambda name: name == "blockdev_create_multi")
    with pytest.raises(errors.OpExecError, match="could not create disk 0"):
        away.cluster.run(recreate())
    answer_again(away.cluster)
    away.returns()
    away.cluster.run(ops.OpInstanceStartup(instance_name=WEB))
    assert all(path.read_bytes().startswith(CONTENT) for path in contents(away.cluster))


def test_when_nobody_can_tell_nothing_is_made(tmp_path: Path) -> None:
    away = Away(tmp_path / "cluster", "file")
    (path,) = away.paths
    hidden = path.parent.with_name("not mounted")
    path.parent.rename(hidden)
    snapshot = away.cluster.config.snapshot()
    for op in (recreate(), recreate(disks=[0]), recreate(nodes=["node2"])):
        with pytest.raises(errors.OpPrereqError, match="cannot tell (which|whether) disk.* lost"):
            away.cluster.run(op)
    assert away.cluster.config.snapshot() is snapshot
    hidden.rename(path.parent)
    with pytest.raises(errors.OpPrereqError, match="all disks .* exist"):
        away.cluster.run(recreate())
    assert away.is_untouched()


@pytest.mark.parametrize("template", ["plain", "drbd"])
def test_on_other_nodes_nothing_of_the_old_storage_is_used(tmp_path: Path, template: str) -> None:
    away = Away(tmp_path / "cluster", template)
    old = away.names()
    away.goes()
    nodes = ["node3"] if template == "plain" else ["node3", "node1"]
    away.cluster.run(recreate(nodes=nodes))
    assert not away.names() & old
    (disk,) = away.cluster.config.instance_disks(web(away.cluster))
    assert disk.nodes == tuple(map(uuid_of, nodes))
    away.returns()
    away.cluster.run(ops.OpInstanceRemove(instance_name=WEB))
    assert away.is_untouched()


def test_new_devices_which_cannot_be_removed_stay_recorded(tmp_path: Path) -> None:
    """The next run removes them, and them only."""
    away = Away(tmp_path / "cluster", "file", disks=2)
    away.goes()
    lose(away.cluster, "blockdev_create_multi", "blockdev_remove_multi")
    with pytest.raises(
        errors.OpExecError, match="left behind: new disks .disk 0.*disk 1.*the new names"
    ):
        away.cluster.run(recreate())
    answer_again(away.cluster)
    (first, _second) = away.cluster.config.instance_disks(web(away.cluster))
    assert first.forthcoming and first.logical_id != away.disks[0].logical_id
    left = Path(str(away.cluster.rpc.root("node1.example.com")) + first.logical_id[1])
    assert left.exists()
    away.returns()
    away.cluster.run(recreate())
    assert not left.exists() and away.is_untouched()


@pytest.mark.parametrize(
    ("template", "logical_id", "expected"),
    [
        ("plain", ("othervg", "old.disk3"), ("othervg", ".disk3")),
        ("file", ("blktap", "/srv/f/web/old"), ("blktap", "/srv/f/web/")),
        ("sharedfile", ("loop", "/srv/s/web/old"), ("loop", "/srv/s/web/")),
        ("gluster", ("loop", "ganeti/old"), ("loop", "ganeti/")),
        ("rbd", ("rbd", "old.rbd.disk3"), ("rbd", ".rbd.disk3")),
        ("ext", ("shop", "old.ext.disk3"), ("shop", ".ext.disk3")),
    ],
)
def test_a_new_name_stays_in_the_same_place(
    template: str, logical_id: tuple[Any, ...], expected: tuple[str, str]
) -> None:
    config: Any = FakeConfig(cluster_of(2)).reserving_for("job")
    nodes = (uuid_of("node1"),) if template in ("plain", "file") else ()
    params = {"pool": "p"} if template == "rbd" else None
    disk = Disk(
        dev_type=template, logical_id=logical_id, size=5, uuid="u", nodes=nodes, params=params
    )
    new = specs.renewed(config, disk, 3, ())
    assert new == dataclasses.replace(disk, logical_id=new.logical_id)
    assert new.logical_id[0] == expected[0] and new.logical_id != logical_id
    assert expected[1] in new.logical_id[1] and "old" not in new.logical_id[1]
    elsewhere = specs.renewed(config, disk, 3, (uuid_of("node2"),))
    assert elsewhere.nodes == ((uuid_of("node2"),) if nodes else ())
