"""A guest which confirms blocks, on mirrored disks whose nodes fail: what must never be lost.

:class:`Lab` has the instance ``web`` with one mirrored disk: its primary node is :data:`PRIMARY`,
its secondary node :data:`SECONDARY`; the master, :data:`SPARE`, has none of it. The guest writes
numbered blocks; a block is confirmed when all replicas have it which are connected. Each copy of
the content is a file somewhere below the directory of the cluster, so :meth:`Lab.copies` finds all
of them: replicas, those which were kept, snapshots, exports.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fakes import mirror, node_side
from fakes.breaking import WEB, create, empty
from fakes.config import uuid_of
from fakes.node_side import Cluster
from fakes.transfers import Transfers
from ganeti import errors
from ganeti.cmdlib.ops.transfer import disk_copy
from ganeti.hypervisor.base import Hypervisor
from ganeti.objects import ConfigData, Disk, Instance
from ganeti.opcodes import instance as ops
from ganeti.opcodes.base import OpCode
from ganeti.platform import paths
from ganeti.rpc import Result

SPARE, PRIMARY, SECONDARY = "node1", "node2", "node3"
_BLOCK = 512
#: Blocks are scattered over one MiB, so that a half copy has some and lacks others.
_BLOCKS, _STEP, _STRIDE = 96, 37, 8192
_TEXT = b"confirmed block "


class Nodes(Transfers, mirror.MirrorNodeSide):
    """Nodes which may be without power, or not answer though they have it."""

    def __init__(self, config: Any, directory: Path) -> None:
        super().__init__(config, directory)
        self.silent: set[str] = set()

    def _one(self, call: Any, uuid: str, args: dict[str, Any]) -> Result:
        node = self.config.node(uuid)
        if node.name.split(".")[0] in self.silent and not (node.offline and not call.offline_ok):
            self.calls.append((call.name, node.name))
            return Result(
                node.name, failure=errors.NodeUnreachable(node.name, call.name, "no route to host")
            )
        return super()._one(call, uuid, args)

    def _probe(self, call: Any, uuid: str, args: dict[str, Any]) -> Result:
        name = self.config.node(uuid).name
        if name.split(".")[0] in self.silent:
            self.alive.discard(name)
        else:
            self.alive.add(name)
        return super()._probe(call, uuid, args)

    def _storage_execute(self, su_name: str, su_args: Any, name: str, op: str) -> None:
        """The physical volume is lost, and with it all logical volumes."""
        root = paths.current().root
        for key, minor in self.kernel.minors.items():
            if key[0] == root and minor.data is not None:
                self.kernel.detach(key)
        for path in Path(root, mirror.LVM, name).iterdir():
            path.unlink()

    def _blockdev_wipe(self, disk: Disk, offset_mib: int, size_mib: int) -> None:
        """Without a program."""
        from ganeti import storage

        with open(storage.device(disk).path, "r+b") as stream:
            stream.seek(offset_mib << 20)
            stream.write(bytes(size_mib << 20))


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let clusters of this test have such nodes."""
    mirror.install(monkeypatch)
    monkeypatch.setattr(node_side, "NodeSide", Nodes)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    monkeypatch.setattr(Hypervisor, "wait_end", lambda *args, **options: None)
    monkeypatch.setattr(disk_copy, "POLL_MIN_S", 0.0)
    monkeypatch.setattr(disk_copy, "UNRESPONSIVE_S", 0.0)


def _full(node: str) -> str:
    return f"{node}.example.com"


#: The configuration and the files (name, size, beginning) of a new instance, which is made once.
_begun: dict[str, tuple[ConfigData, list[tuple[str, int, bytes]]]] = {}


def _begin(directory: Path, template: str) -> tuple[ConfigData, list[tuple[str, int, bytes]]]:
    cluster = empty(directory)
    snode = SECONDARY if template == "drbd" else None
    cluster.run(create(template, pnode=PRIMARY, snode=snode))
    files = []
    for path in directory.rglob("*"):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as stream:
                head = stream.read(1 << 16)
            files.append((str(path.relative_to(directory)), path.stat().st_size, head))
    return cluster.config.snapshot(), files


class Lab:
    """The cluster, the guest of ``web``, and what was confirmed to it."""

    def __init__(self, directory: Path, template: str = "drbd") -> None:
        if template not in _begun:
            _begun[template] = _begin(directory, template)
            shutil.rmtree(directory)
        data, files = _begun[template]
        directory.mkdir()
        self.cluster = Cluster(data, directory)
        self.directory = directory
        for name, size, head in files:
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(head)
            os.truncate(path, size)
        self.confirmed: set[int] = set()
        self._next = 0

    # -- the cluster -----------------------------------------------------------------

    @property
    def nodes(self) -> Nodes:
        rpc = self.cluster.rpc
        assert isinstance(rpc, Nodes)
        return rpc

    @property
    def kernel(self) -> mirror.Kernel:
        return self.nodes.kernel

    @property
    def instance(self) -> Instance | None:
        """The instance, whatever it is called now; None when it is gone."""
        found = self.cluster.config.instances()
        return found[0] if found else None

    @property
    def disks(self) -> tuple[Disk, ...]:
        return () if self.instance is None else self.cluster.config.instance_disks(self.instance)

    @property
    def name(self) -> str:
        assert self.instance is not None
        return self.instance.name

    def key(self, node: str) -> mirror.Key:
        """The minor of the disk on a node."""
        disk = self.disks[0]
        minors = dict(zip(disk.logical_id[:2], disk.logical_id[3:5], strict=True))
        return str(self.nodes.root(_full(node))), minors[uuid_of(node)]

    def run(self, *changes: OpCode) -> None:
        """Execute opcodes, and the jobs which they submit."""
        for op in changes:
            job = self.cluster.new_job()
            self.cluster.run(op, job)
            for submitted in job.submitted:
                self.run(*submitted)

    def said(self) -> str:
        """The logs of all jobs until now."""
        return "\n".join(line for job in self.cluster.jobs for line in job.log)

    def start(self) -> None:
        assert self.instance is not None
        self.run(ops.OpInstanceStartup(instance_name=self.instance.name))

    def stop(self) -> None:
        self.run(ops.OpInstanceShutdown(instance_name=WEB))

    def activate(self) -> None:
        self.run(ops.OpInstanceActivateDisks(instance_name=WEB))

    def forget_records(self) -> None:
        """As after an upgrade: the configuration knows nothing about the replicas."""
        with self.cluster.config.transaction() as change:
            for disk in self.disks:
                change.disks.forget_in_sync(disk.uuid)
                change.disks.forget_outdated(disk.uuid)

    # -- what happens to machines ------------------------------------------------------

    def cut(self) -> None:
        """The two nodes of the disk lose contact; the master reaches both."""
        self.kernel.cut(PRIMARY, SECONDARY)

    def restart_node(self, node: str) -> None:
        """It loses its power and is there again, without guests."""
        self.kernel.restart_node(node)
        with paths.override(paths.Paths(str(self.nodes.root(_full(node))))):
            shutil.rmtree(paths.current().fake_root, ignore_errors=True)

    def power_off(self, node: str) -> None:
        self.restart_node(node)
        self.nodes.silent.add(node)

    def mark_offline(self, node: str, offline: bool = True) -> None:
        """As the administrator records it."""
        with self.cluster.config.transaction() as change:
            change.nodes.update(
                replace(
                    self.cluster.config.node(uuid_of(node)),
                    offline=offline,
                    master_candidate=not offline,
                )
            )

    def mark_data(self, node: str) -> None:
        self.kernel.mark(self.nodes.root(_full(node)))

    def old_data(self, node: str) -> None:
        """It comes back without guests, with the volumes of an earlier time."""
        self.restart_node(node)
        self.kernel.old_data(node)

    def heal(self) -> None:
        """All is well again: power, network, answers; and the administrator says so."""
        self.nodes.silent.clear()
        for node in (SPARE, PRIMARY, SECONDARY):
            if self.cluster.config.node(uuid_of(node)).offline:
                self.mark_offline(node, False)
        self.kernel.sync_s = 0.0
        self.kernel.heal()
        self.kernel.settle()
        self.kernel.replicate()

    # -- the guest ---------------------------------------------------------------------

    def where(self) -> list[str]:
        """Nodes on which the guest runs."""
        assert self.instance is not None
        return self.nodes.running().get(self.instance.name, [])

    def write(self, count: int = 3) -> None:
        """The running guest writes more blocks."""
        (node,) = self.where()
        for _ in range(count):
            number = self._next
            self._next += 1
            content = (_TEXT + f"{number}\n".encode()).ljust(_BLOCK, b"\0")
            if self._write(node, number * _STEP % _BLOCKS * _STRIDE, content):
                self.confirmed.add(number)

    def _write(self, node: str, offset: int, content: bytes) -> bool:
        if self.disks[0].dev_type == "drbd":
            return self.kernel.write(self.key(node), offset, content)
        path = self._file(node)
        if not path.exists():
            return False
        with path.open("r+b") as stream:
            stream.seek(offset)
            stream.write(content)
        return True

    def _file(self, node: str) -> Path:
        """What the guest on a node finds at the path of its disk."""
        disk, root = self.disks[0], self.nodes.root(_full(node))
        if disk.dev_type == "drbd":
            return Path(mirror.device_path(*self.key(node)))
        if disk.dev_type == "plain":
            return Path(root, mirror.LVM, *map(str, disk.logical_id))
        return Path(str(root) + str(disk.logical_id[1]))

    def seen(self) -> set[int]:
        """The blocks which the running guest reads."""
        (node,) = self.where()
        path = self._file(node)
        return blocks(path) if path.exists() else set()

    # -- copies --------------------------------------------------------------------------

    def copies(self) -> dict[str, set[int]]:
        """The blocks of each file which has some, by its path below the directory."""
        found = {}
        for directory, _subdirectories, names in os.walk(self.directory):
            for name in names:
                path = Path(directory, name)
                if not path.is_symlink():
                    content = blocks(path)
                    if content:
                        found[str(path.relative_to(self.directory))] = content
        return found

    def best(self) -> set[int]:
        """The blocks which the best copy has."""
        return max(self.copies().values(), key=len, default=set())

    def lost(self, found: Iterable[int]) -> set[int]:
        return self.confirmed - set(found)


def blocks(path: Path) -> set[int]:
    """The numbers of the blocks in a file."""
    found = set()
    with path.open("rb", buffering=0) as stream:
        for place in range(_BLOCKS):
            head = os.pread(stream.fileno(), 32, place * _STRIDE)
            if not head:
                break
            if head.startswith(_TEXT):
                found.add(int(head[len(_TEXT) :].split(b"\n")[0]))
    return found
