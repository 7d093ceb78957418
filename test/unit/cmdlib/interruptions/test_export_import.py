"""Export and import are broken at every node call, in four ways, and done again.

See :mod:`fakes.node_side` for the ways. Nodes have their real code but for the transfer itself,
which here copies at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fakes import node_side
from fakes.breaking import WEB, everywhere
from fakes.config import cluster_of, disk_of, instance_of
from fakes.node_side import BREAKS, Cluster
from fakes.transfers import Transfers
from ganeti import errors
from ganeti.backend.backup import exports
from ganeti.cmdlib.ops.transfer import disk_copy
from ganeti.objects import ipolicy
from ganeti.opcodes import instance as ops
from ganeti.opcodes.backup import OpBackupExport, OpBackupRemove
from ganeti.opcodes.base import OpCode
from ganeti.platform import paths

DATA = bytes([7]) * (2 << 20)
NEWER = bytes([8]) * (2 << 20)
LONG = bool(os.environ.get("GANETI_LONG"))


class TransferNodeSide(Transfers):
    """Nodes with exports."""

    def exported(self) -> dict[str, list[str]]:
        """Node to what is in its export directory, finished or not."""
        found = {}
        for node in self.config.nodes():
            here = paths.Paths(str(self.root(node.name)))
            names = sorted(os.listdir(here.export_dir)) if os.path.isdir(here.export_dir) else []
            if names:
                found[node.name.split(".")[0]] = names
        return found


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    monkeypatch.setattr(node_side, "NodeSide", TransferNodeSide)
    monkeypatch.setattr(disk_copy, "POLL_MIN_S", 0.0)
    monkeypatch.setattr(disk_copy, "UNRESPONSIVE_S", 0.0)


def fresh(directory: Path, *, up: bool) -> Cluster:
    """Three nodes and an instance ``web`` with two disks which really exist."""
    directory.mkdir()
    rules = ipolicy.defaults()
    rules["minmax"][0]["min"]["disk-size"] = 1
    disks = tuple(replace(disk_of("web", index, "file"), size=2) for index in range(2))
    instance = instance_of("web", disks=tuple(disk.uuid for disk in disks))
    cluster = Cluster(cluster_of(3, (instance,), disks, ipolicy=rules), directory)
    for disk in disks:
        path = Path(str(cluster.rpc.root("node1.example.com")) + disk.logical_id[1])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(DATA)
    if up:
        cluster.run(ops.OpInstanceStartup(instance_name=WEB))
        cluster.rpc.restart()
    return cluster


def export() -> OpCode:
    return OpBackupExport(instance_name=WEB, target_node="node2", long_sleep=True)


def remove_by_export() -> OpCode:
    return OpBackupExport(instance_name=WEB, target_node="node2", remove_instance=True)


def import_() -> OpCode:
    return ops.OpInstanceCreate(
        instance_name=WEB, mode="import", disks=[], nics=[], pnode="node3", start=False
    )


def breaks(count: int) -> list[tuple[str, int]]:
    """At each call: two ways in turn, or all four."""
    if LONG:
        return [(how, at) for at in range(count) for how in BREAKS]
    return [(("kill", "cut")[at % 2], at) for at in range(count)]


def maker(directory: Path, *, up: bool, exported: bool = False) -> Callable[[], Cluster]:
    def make() -> Cluster:
        cluster = fresh(directory / str(len(list(directory.iterdir()))), up=up)
        if exported:
            cluster.run(remove_by_export())
            cluster.rpc.restart()
        return cluster

    return make


def check_export(cluster: Cluster) -> None:
    rpc: Any = cluster.rpc
    assert rpc.exported() == {"node2": [WEB]}
    here = paths.Paths(str(rpc.root("node2.example.com")))
    found = Path(here.export_dir, WEB)
    assert len(list(found.iterdir())) == 3
    assert all(path.read_bytes() == DATA for path in found.iterdir() if path.suffix != ".ini")


# -- setting right ---------------------------------------------------------------------------


def export_again(cluster: Cluster) -> None:
    """The watcher starts what shall run and does not; then the same command."""
    if not cluster.rpc.running():
        cluster.run(ops.OpInstanceStartup(instance_name=WEB))
    cluster.run(export())
    check_export(cluster)


def remove_by_export_again(cluster: Cluster) -> None:
    """The same command; when the disks are gone already, the export is complete."""
    if cluster.config.instances():
        try:
            cluster.run(remove_by_export())
        except (errors.OpExecError, errors.OpPrereqError):
            check_export(cluster)
            cluster.run(ops.OpInstanceRemove(instance_name=WEB))
    check_export(cluster)


def import_again(cluster: Cluster) -> None:
    """Half an instance is removed, then imported anew; the export is whole."""
    if cluster.config.instances():
        cluster.run(ops.OpInstanceRemove(instance_name=WEB))
    cluster.check_clean()
    cluster.run(import_())
    (instance,) = cluster.config.instances()
    root = str(cluster.rpc.root("node3.example.com"))
    for disk in cluster.config.instance_disks(instance):
        assert Path(root + disk.logical_id[1]).read_bytes() == DATA
    check_export(cluster)


def remove_again(cluster: Cluster) -> None:
    """The same command."""
    rpc: Any = cluster.rpc
    cluster.run(remove())
    assert rpc.exported() == {}


def remove() -> OpCode:
    return OpBackupRemove(instance_name=WEB)


#: name: the operation, whether there is an export at the begin, whether the instance runs, how it
#: is set right.
CASES: dict[str, tuple[Callable[[], OpCode], bool, bool, Callable[[Cluster], None]]] = {
    "export": (export, False, True, export_again),
    "export-and-remove": (remove_by_export, False, True, remove_by_export_again),
    "import": (import_, True, False, import_again),
    "remove-export": (remove, True, False, remove_again),
}


@pytest.mark.larger
@pytest.mark.parametrize("name", CASES)
def test_what_broke_is_set_right(tmp_path: Path, name: str) -> None:
    op, exported, up, recover = CASES[name]
    broken = everywhere(maker(tmp_path, up=up, exported=exported), op, recover, breaks=breaks)
    assert broken > 20 or (name == "remove-export" and broken >= 4)


@pytest.mark.larger
def test_there_is_a_complete_export_at_every_moment(tmp_path: Path) -> None:
    """The older one, until the new one takes its place."""

    def again() -> Cluster:
        cluster = fresh(tmp_path / str(len(list(tmp_path.iterdir()))), up=False)
        cluster.run(export())
        for disk in cluster.config.instance_disks(cluster.config.instances()[0]):
            path = Path(str(cluster.rpc.root("node1.example.com")) + disk.logical_id[1])
            path.write_bytes(NEWER)
        cluster.rpc.restart()
        return cluster

    def check(cluster: Cluster) -> None:
        with paths.override(paths.Paths(str(cluster.rpc.root("node2.example.com")))) as here:
            # Refuses an export which is not complete.
            exports.export_info(WEB)
            files = [path for path in Path(here.export_dir, WEB).iterdir() if path.suffix != ".ini"]
            contents = {path.read_bytes() for path in files}
        assert len(files) == 2 and contents in ({DATA}, {NEWER})

    assert everywhere(again, export, check, breaks=breaks) > 20
