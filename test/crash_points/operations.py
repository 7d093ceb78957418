"""Each operation on an instance: the master and its nodes die together, at any point.

The clusters, the operations and how each is set right are those of the tests of interruptions
(``test/unit/cmdlib/interruptions``), which break node calls. Here the process which has
master and nodes dies: at every change of a disk by the real code of the nodes, before and after
every node call, before and after every commit. Files, guests, volumes and the made-up kernel with
the mirrored disks go on.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from crash_points.engine import Points, Subject
from fakes import mirror, node_side
from fakes.node_side import Cluster
from ganeti import cmdlib
from ganeti.cmdlib.ops.transfer import disk_copy
from ganeti.config import Transaction
from ganeti.config.local_file import LocalFile
from ganeti.config.store import ConfigStore

_PROMISE = (
    "no guest runs twice, and the same command, or its clean-up, leaves nothing over or missing"
)
# What of the nodes is in memory; the rest is on disk.
_IN_MEMORY = ("kernel", "_transfers", "_awaited")


class Operation(Subject):
    """An operation on the instance ``web``.

    :param fresh: makes the cluster in a directory.
    :param op: makes the opcode.
    """

    promise = _PROMISE

    def __init__(
        self,
        directory: Path,
        name: str,
        fresh: Callable[[Path], Cluster],
        op: Callable[[], Any],
        recover: Callable[[Cluster], None],
        check: Callable[[Cluster], None],
        check_clean: Callable[[Cluster], None],
    ) -> None:
        super().__init__(directory)
        self.name = name
        self._fresh, self._op = fresh, op
        self._recover, self._check, self._check_clean = recover, check, check_clean
        self._cluster: Cluster | None = None

    @property
    def cluster(self) -> Cluster:
        assert self._cluster is not None
        return self._cluster

    def make(self) -> None:
        self._cluster = self._fresh(self.directory)

    def work(self, points: Points) -> None:
        cluster = self.cluster
        real = cluster.rpc._answer
        transaction = cluster.config.transaction

        def answer(call: Any, node_name: str, args: dict[str, Any]) -> Any:
            points.reach(f"call {call.name}")
            result = real(call, node_name, args)
            points.reach(f"called {call.name}")
            return result

        @contextlib.contextmanager
        def committed() -> Iterator[Transaction]:
            with transaction() as change:
                yield change
                points.reach("commit")
            points.reach("committed")

        cluster.rpc._answer = answer  # type: ignore[method-assign]
        cluster.config.transaction = committed  # type: ignore[assignment,method-assign]
        with points.on_disk(self.directory):
            cluster.run(self._op())

    def survivors(self) -> Any:
        rpc = self.cluster.rpc
        kept = {name: getattr(rpc, name) for name in _IN_MEMORY if hasattr(rpc, name)}
        return self.cluster.config.snapshot(), kept

    def recover(self, survivors: Any) -> None:
        cluster = self.cluster
        data, kept = survivors
        cluster.config._store = ConfigStore(LocalFile("config.data", lambda path, text: None), data)
        for name, value in kept.items():
            setattr(cluster.rpc, name, value)
        self._release_disks()
        cluster._new_master()
        cluster.rpc.restart()
        self._check(cluster)
        self._recover(cluster)
        self._check_clean(cluster)

    def _release_disks(self) -> None:
        """A guest which ended has its disks open no longer, whatever its node still noted of it."""
        rpc = self.cluster.rpc
        kernel = getattr(rpc, "kernel", None)
        if kernel is not None:
            roots = {
                str(rpc.root(f"{node}.example.com"))
                for nodes in rpc.running().values()
                for node in nodes
            }
            kernel.held = {key for key in kernel.held if key[0] in roots}


def _module(name: str) -> Any:
    return importlib.import_module(f"unit.cmdlib.interruptions.{name}")


def subjects(base: Path, patch: pytest.MonkeyPatch) -> Iterator[Operation]:
    """Return all operations.

    :param patch: replaces the kernel and the waits of this process, until it is undone.
    """
    # Not once in each of thousands of children.
    cmdlib.load()
    patch.setattr(os, "fsync", lambda descriptor: None)
    for name in ("POLL_MIN_S", "POLL_MAX_S", "UNRESPONSIVE_S"):
        patch.setattr(disk_copy, name, 0.0)
    yield from _files(base)
    yield from _exports(base, patch)
    mirror.install(patch)
    yield from _mirrored(base)
    yield from _snapshots(base)


def _files(base: Path) -> Iterator[Operation]:
    tests = _module("test_instance")
    for name, (op, start, recover) in tests.CASES.items():
        yield Operation(
            base / f"file-{name}",
            f"{name} (files)",
            lambda directory, start=start: tests.fresh(directory, **start),
            op,
            lambda cluster, recover=recover, op=op: recover(cluster, op),
            Cluster.check,
            Cluster.check_clean,
        )


def _mirrored(base: Path) -> Iterator[Operation]:
    tests = _module("test_mirrored")
    for name, (op, start, recover, content) in tests.CASES.items():
        yield Operation(
            base / f"lvm-{name}",
            f"{name} (volumes)",
            lambda directory, start=start: tests.fresh(directory, **start),
            op,
            lambda cluster, recover=recover, op=op: recover(cluster, op),
            tests.check,
            lambda cluster, content=content: tests.check_clean(cluster, content=content),
        )


def _snapshots(base: Path) -> Iterator[Operation]:
    tests = _module("test_snapshots")
    for template in ("file", "drbd"):
        for name, (op, start, recover, wanted) in tests.CASES.items():
            yield Operation(
                base / f"snapshot-{template}-{name}",
                f"snapshot {name} ({template})",
                lambda directory, start=start, template=template: tests.fresh(
                    directory, template, **start
                ),
                op,
                lambda cluster, recover=recover, op=op: recover(cluster, op),
                tests.check,
                lambda cluster, wanted=wanted: tests.is_whole(cluster, **wanted),
            )


def _exports(base: Path, patch: pytest.MonkeyPatch) -> Iterator[Operation]:
    tests = _module("test_export_import")

    def fresh(directory: Path, exported: bool, up: bool) -> Cluster:
        with pytest.MonkeyPatch.context() as nodes:
            nodes.setattr(node_side, "NodeSide", tests.TransferNodeSide)
            cluster: Cluster = tests.fresh(directory, up=up)
            if exported:
                cluster.run(tests.remove_by_export())
                cluster.rpc.restart()
        return cluster

    for name, (op, exported, up, recover) in tests.CASES.items():
        yield Operation(
            base / f"backup-{name}",
            f"{name} (files)",
            lambda directory, exported=exported, up=up: fresh(directory, exported, up),
            op,
            recover,
            lambda cluster: None,
            lambda cluster: None,
        )
