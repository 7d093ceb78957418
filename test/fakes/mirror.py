"""Logical volumes and mirrored disks for :mod:`fakes.node_side`, without LVM and without DRBD.

Volumes are files below ``<node>/lvm``. For mirrored disks the real driver
(:mod:`ganeti.storage.drbd.device`) gives its commands to a made-up kernel, which knows the minors
of all nodes and behaves like the real one where it matters here: replicas connect some time after
both look for each other with the same secret; data are copied from the newer replica; a replica
which was primary while it was alone is newer, because guests always write; two of these are a split
brain and leave each other, which :attr:`Kernel.split` remembers.

A test lets replicas lose contact (:meth:`Kernel.cut`), machines start again
(:meth:`Kernel.restart_node`) and come back with old data (:meth:`Kernel.old_data`), and copying
take time (:attr:`Kernel.sync_s`). Nobody waits for real: the time is that of the made-up kernel.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import itertools
import json
import math
import os
import pkgutil
import shutil
import time
import types
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fakes import node_side
from ganeti import errors, storage
from ganeti.constants import disk as disk_c
from ganeti.objects import Disk, FilledInstance, Instance, fill, snapshots
from ganeti.objects.transfer import BlockDevStatus
from ganeti.platform import paths
from ganeti.storage.base import BlockDevice
from ganeti.storage.drbd import device, leftover, parse, status
from ganeti.storage.drbd.argv import Endpoint, NetOptions
from ganeti.storage.drbd.parse import MinorConfig, MinorState
from ganeti.utils import retry
from ganeti.utils.process import Completed

LVM = "lvm"
#: Seconds which a look at the state of a minor takes.
READING_S = 0.05
_MIB = 1 << 20
_META_BYTES = 1024
_GENERATIONS = 50


def _root() -> str:
    return paths.current().root


class Volume(BlockDevice):
    """A logical volume that is a file."""

    @property
    def path(self) -> str:
        return "/".join((_root(), LVM, *map(str, self.disk.logical_id)))

    @property
    def unique_id(self) -> str:
        return "/".join(map(str, self.disk.logical_id))

    def create(self, size_mib: int, *, exclusive: bool = False, owner: str = "") -> None:
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        try:
            with open(self.path, "xb") as stream:
                stream.truncate(size_mib * _MIB)
        except FileExistsError as err:
            raise self.fail("the volume exists already") from err

    def remove(self) -> None:
        for minor in Replica.kernel.minors.values():
            if self.path in (minor.data, minor.meta):
                raise self.fail("is in use")
        for path in (*self._snapshots(), Path(self.path)):
            path.unlink(missing_ok=True)

    def _snapshots(self) -> list[Path]:
        own = Path(self.path)
        return sorted(own.parent.glob(f"{own.name}{snapshots.SEPARATOR}*"))

    def kept_snapshots(self) -> list[snapshots.SnapshotInfo]:
        start = len(Path(self.path).name + snapshots.SEPARATOR)
        return [
            snapshots.SnapshotInfo(path.name[start:], path.stat().st_size, None, True)
            for path in self._snapshots()
        ]

    def exists(self) -> bool:
        return os.path.exists(self.path)

    def assemble(self) -> None:
        if not self.exists():
            raise self.fail("does not exist")

    def grow(
        self, amount_mib: int, *, dry_run: bool, backing_store: bool, exclusive: bool = False
    ) -> None:
        if self._snapshots():
            raise self.fail("cannot grow while it has snapshots")
        if backing_store and not dry_run:
            os.truncate(self.path, self.size_bytes() + amount_mib * _MIB)

    def rename(self, new_id: tuple[object, ...]) -> None:
        new = Volume(dataclasses.replace(self.disk, logical_id=new_id))
        if new.exists():
            if self.exists():
                raise self.fail(f"cannot be renamed to {new.unique_id}, which exists")
            return  # it was renamed already, as the driver of LVM finds out, too
        self.assemble()
        os.rename(self.path, new.path)
        self.disk = new.disk

    def size_bytes(self) -> int:
        self.assemble()
        return os.stat(self.path).st_size

    def snapshot(self, name: str, size_mib: int) -> tuple[object, ...]:
        new = (self.disk.logical_id[0], name)
        shutil.copyfile(self.path, Volume(dataclasses.replace(self.disk, logical_id=new)).path)
        return new

    def sync_status(self) -> BlockDevStatus:
        return BlockDevStatus(dev_path=self.path, is_degraded=False, ldisk_status=disk_c.LDS_OKAY)


@dataclasses.dataclass
class Minor:
    """One replica, as the kernel of its node has it."""

    data: str | None = None
    meta: str | None = None
    local: Endpoint | None = None
    remote: Endpoint | None = None
    net: NetOptions | None = None
    primary: bool = False
    #: The generation of the data which a primary without storage uses at its peer.
    used: str = ""
    #: What the device of this minor leads to.
    shown: str | None = None


class Meta(NamedTuple):
    """The metadata of a replica.

    ``generations`` of its data, newest first; none means that they are not valid. ``complete`` is
    False while they are copied from the peer.
    """

    generations: tuple[str, ...] = ()
    complete: bool = True
    outdated: bool = False

    @property
    def valid(self) -> bool:
        return bool(self.generations) and self.complete

    def newer_than(self, other: Meta) -> bool:
        """Whether the data of the other are an earlier state of these."""
        return self.valid and (not other.valid or other.generations[0] in self.generations)

    def write(self, path: str) -> None:
        text = json.dumps([self.generations[:_GENERATIONS], self.complete, self.outdated])
        with open(path, "r+b") as stream:
            stream.write(text.encode().ljust(_META_BYTES, b"\0"))

    @classmethod
    def read(cls, path: str) -> Meta:
        try:
            with open(path, "rb") as stream:
                text = stream.read(_META_BYTES).rstrip(b"\0").decode()
        except FileNotFoundError:  # the volume was lost while it was in use
            return cls()
        if not text:
            return cls()
        generations, complete, outdated = json.loads(text)
        return cls(tuple(generations), complete, outdated)


@dataclasses.dataclass
class Sync:
    """Copying from one replica to another."""

    source: Key
    begun: float
    paused: bool = False


Key = tuple[str, int]  # root directory of the node, and number of the minor
Pair = frozenset[Key]


def _short(root: str) -> str:
    return os.path.basename(root).split(".")[0]


class Kernel:
    """The minors of all nodes, by root directory and number.

    What is valid is written in the metadata of the replicas, see :class:`Meta`.

    ``now`` is the time of this kernel in seconds. Each reading of a status takes
    :data:`READING_S`, and who sleeps lets it go on. Two replicas which look for each other connect
    after :attr:`connect_s`, which is longer than a command needs to go on, and much shorter than
    the time limits of the driver. Copying takes :attr:`sync_s`: by default none, and with infinity
    until :meth:`finish_syncs`.
    """

    #: Names of generations; a kernel may go on with the volumes of another one.
    _names = itertools.count(1)

    def __init__(self) -> None:
        self.minors: dict[Key, Minor] = {}
        #: Messages about split brains.
        self.split: list[str] = []
        #: Replicas which were attached with a smaller size than they had.
        self.truncated: list[str] = []
        #: Minors which guests have open.
        self.held: set[Key] = set()
        self.now = 0.0
        self.connect_s = 3.0
        self.sync_s = 0.0
        #: Whether a replica without contact calls itself Consistent instead of UpToDate, as with a
        #: fencing policy.
        self.fencing = False
        self.links: set[Pair] = set()
        self.syncs: dict[Key, Sync] = {}  # by target
        self._due: dict[Pair, float] = {}
        self._cuts: set[tuple[frozenset[str], int | None]] = set()
        self._marks: dict[str, dict[str, bytes]] = {}

    # -- time ----------------------------------------------------------------------

    def clock(self) -> float:
        """The time, as programs ask for it."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.now += max(seconds, READING_S)
        self._go_on()

    def settle(self) -> None:
        """Let everything that is under way come to its end."""
        for _ in range(100):
            self._go_on()
            ends = [*self._due.values()]
            ends += [
                sync.begun + self.sync_s
                for sync in self.syncs.values()
                if not sync.paused and self.sync_s != math.inf
            ]
            if not ends:
                return
            self.now = max(self.now, min(ends))
        raise AssertionError("the replicas connect again and again")

    def finish_syncs(self) -> None:
        """Let all copying which is under way end now."""
        for target in list(self.syncs):
            self._finish(target)
        self._show_devices()

    def _go_on(self) -> None:
        for pair in self._looking():
            self._due.setdefault(pair, self.now + self.connect_s)
        for pair in [pair for pair in self._due if pair not in self._looking()]:
            del self._due[pair]
        for pair in [pair for pair, due in self._due.items() if due <= self.now]:
            del self._due[pair]
            self._shake_hands(*sorted(pair))
        for target, sync in list(self.syncs.items()):
            if sync.paused:
                continue
            if self.now >= sync.begun + self.sync_s:
                self._finish(target)
            else:
                self._copy_part(target)
        self._show_devices()

    def _looking(self) -> list[Pair]:
        """Replicas which look for each other, and will connect."""
        found = []
        for key in self.minors:
            other = self._partner(key)
            if other is not None and key < other and not self._is_cut(key, other):
                pair = frozenset((key, other))
                if pair not in self.links:
                    found.append(pair)
        return found

    # -- looking -------------------------------------------------------------------

    def _partner(self, key: Key) -> Key | None:
        """The replica which looks for one, when that looks for it, too."""
        own = self.minors[key]
        if own.local is None or own.net is None:
            return None
        for other, minor in self.minors.items():
            if (
                other != key
                and (minor.local, minor.remote) == (own.remote, own.local)
                and minor.net is not None
                and minor.net.secret == own.net.secret
            ):
                return other
        return None

    def peer(self, key: Key) -> tuple[Key, Minor] | None:
        """The replica with which one is connected."""
        other = self._partner(key)
        if other is None or frozenset((key, other)) not in self.links:
            return None
        return other, self.minors[other]

    def _meta(self, minor: Minor) -> Meta:
        return Meta() if minor.meta is None else Meta.read(minor.meta)

    def disk(self, key: Key) -> str:
        """The state of the local storage."""
        minor = self.minors[key]
        if minor.meta is None:
            return parse.DISKLESS
        meta = self._meta(minor)
        if not meta.valid:
            return "Inconsistent"
        if meta.outdated:
            return "Outdated"
        if self.fencing and not minor.primary and self.peer(key) is None:
            return "Consistent"
        return parse.UP_TO_DATE

    def state(self, key: Key) -> MinorState | None:
        """What ``/proc/drbd`` says; looking takes time."""
        self.sleep(READING_S)
        return self.look(key)

    def look(self, key: Key) -> MinorState | None:
        """The same, without any time."""
        own = self.minors.get(key)
        if own is None or (own.data is None and own.local is None):
            return None
        found = self.peer(key)
        incoming = self.syncs.get(key)
        sync = incoming or (self.syncs.get(found[0]) if found else None)
        if own.local is None:
            connection = parse.STANDALONE
        elif found is None:
            connection = parse.WF_CONNECTION
        elif sync is None:
            connection = parse.CONNECTED
        else:
            side = "Target" if incoming else "Source"
            connection = f"PausedSync{side[0]}" if sync.paused else f"Sync{side}"
        return MinorState(
            minor=key[1],
            connection=connection,
            local_role=self._role(own),
            remote_role="Unknown" if found is None else self._role(found[1]),
            local_disk=self.disk(key),
            remote_disk="DUnknown" if found is None else self.disk(found[0]),
            sync_percent=None if sync is None else 100.0 * self._share(sync),
        )

    @staticmethod
    def _role(minor: Minor) -> str:
        return parse.PRIMARY if minor.primary else "Secondary"

    def _share(self, sync: Sync) -> float:
        if self.sync_s == math.inf:
            return 0.5
        return min(1.0, (self.now - sync.begun) / self.sync_s) if self.sync_s else 1.0

    def _reached(self, key: Key) -> Key | None:
        """The replica with the data which a device has: its own, or that of its peer."""
        if self.disk(key) in (parse.UP_TO_DATE, "Consistent", "Outdated"):
            return key
        found = self.peer(key)
        if found is not None and self.disk(found[0]) == parse.UP_TO_DATE:
            return found[0]
        return None

    def _show_devices(self) -> None:
        """Who opens the device finds the data."""
        for key, minor in self.minors.items():
            reached = self._reached(key) if minor.primary else None
            target = self.minors[reached].data if reached is not None else minor.data
            if target != minor.shown:
                path = Path(device_path(*key))
                path.unlink(missing_ok=True)
                if target is not None:
                    os.symlink(target, path)
                minor.shown = target

    # -- two replicas --------------------------------------------------------------

    def _shake_hands(self, first: Key, second: Key) -> None:
        """What two replicas do when they meet."""
        own, other = self.minors[first], self.minors[second]
        assert own.net is not None and other.net is not None
        if own.net.dual_primary != other.net.dual_primary:
            self._part(first, second)
            return
        if own.primary and other.primary and not own.net.dual_primary:
            self._split(first, second)
            return
        for one, its_peer in ((own, other), (other, own)):
            newest = self._meta(its_peer).generations[:1]
            if one.primary and one.meta is None and one.used and (one.used,) != newest:
                self._part(first, second)  # it would suddenly have older data
                return
        self.links.add(frozenset((first, second)))
        self._compare(first, second)

    def _compare(self, first: Key, second: Key) -> None:
        """Connected replicas with storage find out which one is newer."""
        own, other = self.minors[first], self.minors[second]
        if own.meta is None or other.meta is None:
            return
        mine, theirs = self._meta(own), self._meta(other)
        if mine.valid and theirs.valid and mine.generations[0] == theirs.generations[0]:
            for minor, meta in ((own, mine), (other, theirs)):
                if meta.outdated:
                    assert minor.meta is not None
                    meta._replace(outdated=False).write(minor.meta)
        elif mine.newer_than(theirs):
            self._begin(first, second)
        elif theirs.newer_than(mine):
            self._begin(second, first)
        elif mine.valid or theirs.valid:
            self._split(first, second)

    def _split(self, first: Key, second: Key) -> None:
        self.split.append(f"minor {first[1]} of {_short(first[0])}")
        self.links.discard(frozenset((first, second)))  # nothing goes from one to the other
        self._part(first, second)

    def _part(self, first: Key, second: Key) -> None:
        """Both do not look for each other any more."""
        self.lose(first, second)
        for key in (first, second):
            minor = self.minors[key]
            minor.local = minor.remote = minor.net = None

    def lose(self, first: Key, second: Key) -> None:
        """Two replicas lose contact."""
        pair = frozenset((first, second))
        self._due.pop(pair, None)
        if pair not in self.links:
            return
        self.replicate()
        self.links.discard(pair)
        for key in (first, second):
            self.syncs.pop(key, None)
        for key in (first, second):
            self._alone(key)

    def _alone(self, key: Key) -> None:
        """What a replica writes now, the other will not have."""
        minor = self.minors[key]
        meta = self._meta(minor)
        if minor.primary and minor.meta is not None and meta.valid:
            self._renew(minor)

    def _name(self) -> str:
        return f"generation {next(self._names)}"

    def _renew(self, minor: Minor) -> str:
        """A new generation of the data, which is written to one replica only."""
        meta, new = self._meta(minor), self._name()
        assert minor.meta is not None
        meta._replace(generations=(new, *meta.generations), outdated=False).write(minor.meta)
        return new

    def _begin(self, source: Key, target: Key) -> None:
        meta = self._meta(self.minors[target])
        path = self.minors[target].meta
        assert path is not None
        meta._replace(complete=False).write(path)
        self.syncs[target] = Sync(source, self.now)
        if not self.sync_s:
            self._finish(target)

    def _finish(self, target: Key) -> None:
        source, minor = self.minors[self.syncs.pop(target).source], self.minors[target]
        assert source.data and source.meta and minor.data and minor.meta
        _copied(source.data, minor.data)
        Meta(self._meta(source).generations).write(minor.meta)

    def _copy_part(self, target: Key) -> None:
        sync = self.syncs[target]
        source, minor = self.minors[sync.source], self.minors[target]
        assert source.data and minor.data
        _copied(source.data, minor.data, self._share(sync))

    def replicate(self) -> None:
        """Let what was written since arrive at the other replicas."""
        for pair in self.links:
            for key, other in itertools.permutations(pair):
                minor, its_peer = self.minors[key], self.minors[other]
                if (
                    minor.primary
                    and not its_peer.primary
                    and minor.data
                    and its_peer.data
                    and not self.syncs.keys() & pair
                    and self._meta(minor).valid
                ):
                    _copied(minor.data, its_peer.data)

    # -- commands ------------------------------------------------------------------

    def connect(self, key: Key, local: Endpoint, remote: Endpoint, net: NetOptions) -> None:
        minor = self.minors.setdefault(key, Minor())
        minor.local, minor.remote, minor.net = local, remote, net
        self._go_on()

    def attach(self, key: Key, data: str, meta: str, sectors: int | None = None) -> None:
        minor = self.minors.setdefault(key, Minor())
        if sectors is not None:
            if sectors < agreed_sectors(meta):
                # The real kernel does it, too, with a line in its log only.
                self.truncated.append(f"minor {key[1]} of {_short(key[0])}")
            agree_on(meta, sectors)
        found = self.peer(key)
        present = Meta.read(meta)
        if minor.primary and found is None and present.generations[:1] != (minor.used,):
            raise errors.BlockDeviceError("the storage has not the data which are in use")
        minor.data, minor.meta = data, meta
        if found is not None:
            self._compare(key, found[0])
        self._show_devices()

    def resize(self, key: Key, sectors: int) -> None:
        found = self.peer(key)
        if found is None:
            return  # the real kernel succeeds as well, and waits with the growth for the peer
        for minor in (self.minors[key], found[1]):
            if minor.meta is not None:
                agree_on(minor.meta, sectors)

    def disconnect(self, key: Key) -> None:
        self._require_not_needed(key)
        found = self.peer(key)
        own = self.minors[key]
        if found is not None:
            self.lose(key, found[0])
        own.local = own.remote = own.net = None
        self._go_on()

    def single_primary(self, key: Key) -> None:
        own, found = self.minors[key], self.peer(key)
        assert own.net is not None
        if own.primary and found is not None and found[1].primary:
            raise errors.BlockDeviceError("both replicas are writable")
        own.net = dataclasses.replace(own.net, dual_primary=False)

    def open(self, key: Key, *, force: bool) -> None:
        own, found = self.minors[key], self.peer(key)
        if own.primary:
            return
        if found and found[1].primary and not (own.net and own.net.dual_primary):
            raise errors.BlockDeviceError("the other replica is writable")
        usable = self.disk(key) == parse.UP_TO_DATE or (
            found is not None and self.disk(found[0]) == parse.UP_TO_DATE
        )
        if not usable:
            if not force or own.meta is None:
                raise errors.BlockDeviceError("there are no valid data")
            generations = self._meta(own).generations or (self._name(),)
            Meta(generations).write(own.meta)
        own.primary = True
        reached = self._reached(key)
        own.used = "" if reached is None else self._meta(self.minors[reached]).generations[0]
        if found is None or found[1].meta is None:
            self._alone(key)
        else:
            self._compare(key, found[0])
        self._show_devices()

    def outdate(self, key: Key) -> None:
        """Note that a replica has missed writes."""
        own = self.minors[key]
        found = self.peer(key)
        if own.primary or (found is not None and found[1].primary):
            raise errors.BlockDeviceError("the device is in use")
        if own.meta is None:
            raise errors.BlockDeviceError("the device has no storage")
        self._meta(own)._replace(outdated=True).write(own.meta)

    def detach(self, key: Key) -> None:
        self._require_not_needed(key)
        self.replicate()
        own, found = self.minors[key], self.peer(key)
        if own.primary and self._meta(own).valid:
            own.used = self._meta(own).generations[0]
        own.data = own.meta = None
        if found is not None:
            self.syncs.pop(found[0], None)
            if self._meta(found[1]).valid and (own.primary or found[1].primary):
                own.used = self._renew(found[1])  # what is written now, this storage will not have
        self.syncs.pop(key, None)
        self._show_devices()

    def close(self, key: Key) -> None:
        self._require_free(key)
        self.replicate()
        self.minors[key].primary = False
        self._show_devices()

    def down(self, key: Key) -> None:
        if key in self.minors:
            self._require_free(key)
            self._require_not_needed(key)
            self.replicate()
            self.minors[key].primary = False
            self.disconnect(key)
            del self.minors[key]

    def pause_sync(self, key: Key) -> None:
        self._pause(key, True)

    def resume_sync(self, key: Key) -> None:
        self._pause(key, False)

    def _pause(self, key: Key, paused: bool) -> None:
        found = self.peer(key)
        for one in (key, *([found[0]] if found else [])):
            if one in self.syncs:
                self.syncs[one].paused = paused

    def take_down(self, path: str) -> bool:
        """As :func:`ganeti.storage.drbd.leftover.take_down`."""
        for key, minor in list(self.minors.items()):
            if path in (minor.data, minor.meta):
                self.down(key)
                return True
        return False

    def _require_free(self, key: Key) -> None:
        if key in self.held:
            raise errors.BlockDeviceError("it is held open by somebody")

    def _require_not_needed(self, key: Key) -> None:
        """The peer refuses to lose the only valid data which it uses."""
        found = self.peer(key)
        if found is None or not found[1].primary:
            return
        if parse.UP_TO_DATE == self.disk(key) != self.disk(found[0]):
            raise errors.BlockDeviceError("State change was refused by peer node")

    # -- what happens to networks and machines -------------------------------------------

    def cut(self, first: str, second: str, port: int | None = None) -> None:
        """Two nodes lose contact: of all disks, or of the disk with a port.

        :param first: short name of a node, such as ``node1``.
        """
        self._cuts.add((frozenset((first, second)), port))
        for pair in list(self.links):
            one, other = sorted(pair)
            if self._is_cut(one, other):
                self.lose(one, other)
        self._go_on()

    def heal(self) -> None:
        """All nodes find each other again; their replicas connect after some time."""
        self._cuts.clear()
        self._go_on()

    def _is_cut(self, first: Key, second: Key) -> bool:
        local = self.minors[first].local
        nodes = frozenset((_short(first[0]), _short(second[0])))
        return any(
            nodes == cut and port in (None, local.port if local else None)
            for cut, port in self._cuts
        )

    def restart_node(self, node: str) -> None:
        """A machine loses its power and starts again: no minors, the same volumes."""
        for key in [key for key in self.minors if _short(key[0]) == node]:
            found = self.peer(key)
            # Without power nothing is written any more.
            self.minors[key].primary = False
            if found is not None:
                self.lose(key, found[0])
            self.held.discard(key)
            Path(device_path(*key)).unlink(missing_ok=True)
            del self.minors[key]
        self._go_on()

    def mark(self, root: str | Path) -> None:
        """Remember all volumes of a node, see :meth:`old_data`."""
        self.replicate()
        self._marks[_short(str(root))] = {
            str(path): _beginning(path)
            for path in (Path(root) / LVM).rglob("*")
            if path.is_file() and not path.is_symlink()
        }

    def old_data(self, node: str) -> None:
        """A machine starts again, and its volumes are as they were at the mark."""
        self.restart_node(node)
        for name, content in self._marks[node].items():
            if os.path.exists(name):
                with open(name, "r+b") as stream:
                    stream.write(content)

    # -- what guests write -----------------------------------------------------------

    def write(self, key: Key, offset: int, content: bytes) -> bool:
        """Write through a device; tell whether the write was confirmed to the guest.

        It is confirmed when all replicas have it which are connected; those which cannot be
        reached do not delay it.
        """
        own = self.minors.get(key)
        if own is None or not own.primary or self._reached(key) is None:
            return False
        found = self.peer(key)
        for minor in (own, *([found[1]] if found else [])):
            if minor.data is not None:
                with open(minor.data, "r+b") as stream:
                    stream.seek(offset)
                    stream.write(content)
        return True


def agreed_sectors(meta: str) -> int:
    """The size on which replicas agreed, which is in the metadata behind the rest."""
    with open(meta, "rb") as stream:
        stream.seek(_META_BYTES)
        return int.from_bytes(stream.read(8), "big")


def agree_on(meta: str, sectors: int) -> None:
    """Write the size on which replicas agree."""
    with open(meta, "r+b") as stream:
        stream.seek(_META_BYTES)
        stream.write(sectors.to_bytes(8, "big"))


def device_path(root: str, number: int) -> str:
    """Path of the device of a minor."""
    return f"{root}/drbd{number}"


def _beginning(path: Path) -> bytes:
    """What a test wrote to a volume: metadata are much smaller than their volume."""
    with path.open("rb") as stream:
        return stream.read(2 * _MIB)


def _copied(source: str, target: str, share: float = 1.0) -> None:
    """Copy the content of a volume, or the first part of it; holes are skipped, being zeros."""
    with open(source, "rb") as reading, open(target, "r+b") as writing:
        old, new = reading.fileno(), writing.fileno()
        end = int(os.fstat(old).st_size * share)
        for start, stop in (*_written(old, end), *_written(new, end)):
            content = os.pread(old, stop - start, start)
            if os.pread(new, stop - start, start) != content:
                os.pwrite(new, content, start)


def _written(descriptor: int, end: int) -> Iterator[tuple[int, int]]:
    """The parts of a file before an end which are no holes."""
    at = 0
    while at < end:
        try:
            start = os.lseek(descriptor, at, os.SEEK_DATA)
        except OSError:  # nothing more
            return
        at = os.lseek(descriptor, start, os.SEEK_HOLE)
        if start < end:
            yield start, min(at, end)


class _Commands:
    """Commands as the kernel above takes them: a list with its method and its arguments."""

    resource = None

    def make(self) -> list[list[Any]]:
        return []

    def prepare_attach(self, meta: str) -> list[list[Any]]:
        return []

    def attach(self, data: str, meta: str, sectors: int | None, params: Any) -> list[Any]:
        return ["attach", data, meta, sectors]

    def resize(self, size_mib: int) -> list[Any]:
        return ["resize", size_mib * 2048]

    def connect(self, local: Endpoint, remote: Endpoint, net: NetOptions) -> list[list[Any]]:
        return [["connect", local, remote, net]]

    def disconnect(self, local: Endpoint, remote: Endpoint) -> list[Any]:
        return ["disconnect"]

    def single_primary(self, local: Endpoint, remote: Endpoint) -> list[Any]:
        return ["single_primary"]

    def primary(self, *, force: bool) -> list[Any]:
        return ["open", force]

    def secondary(self) -> list[Any]:
        return ["close"]

    def down(self, resource: str | None = None) -> list[Any]:
        return ["down"]

    def detach(self) -> list[Any]:
        return ["detach"]

    def outdate(self) -> list[Any]:
        return ["outdate"]

    def pause_sync(self) -> list[Any]:
        return ["pause_sync"]

    def resume_sync(self) -> list[Any]:
        return ["resume_sync"]

    def nothing(self, *_args: Any) -> list[Any]:
        return ["nothing"]

    #: What makes no difference here.
    sync_options = nothing


class Replica(device.DrbdDevice):
    """The real driver above the made-up kernel."""

    kernel: Kernel

    @property
    def path(self) -> str:
        return device_path(*self._key)

    @property
    def _key(self) -> tuple[str, int]:
        return _root(), self.minor

    def _commands(self) -> Any:
        return _Commands()

    def _write_metadata(self, meta_path: str) -> None:
        Meta().write(meta_path)
        agree_on(meta_path, 0)

    def _agreed_sectors(self, meta: str) -> int:
        return agreed_sectors(meta)

    def _kernel_sectors(self) -> int:
        own = self.kernel.minors.get(self._key)
        return 0 if own is None or own.meta is None else agreed_sectors(own.meta)

    def remove(self) -> None:
        super().remove()
        Path(self.path).unlink(missing_ok=True)

    def shutdown(self) -> None:
        super().shutdown()
        Path(self.path).unlink(missing_ok=True)

    def _configuration(self) -> MinorConfig:
        own = self.kernel.minors[self._key]
        return MinorConfig(
            minor=self.minor,
            data_device=own.data,
            meta_device=own.meta,
            local_address=None if own.local is None else (own.local.address, own.local.port),
            remote_address=None if own.remote is None else (own.remote.address, own.remote.port),
            secret=None if own.net is None else own.net.secret,
            dual_primary=bool(own.net and own.net.dual_primary),
        )

    def _run(self, words: Sequence[Any], problem: str, *, check: bool = True) -> Completed:
        verb, *args = words
        self.kernel.replicate()
        try:
            if verb == "open":
                self.kernel.open(self._key, force=args[0])
            elif verb != "nothing":
                getattr(self.kernel, verb)(self._key, *args)
        except errors.BlockDeviceError as err:
            if check:
                raise self.fail(f"{problem}: {err}") from err
        return Completed((), 0, "", "", None)


class MirrorConfig(node_side.MortalConfig):
    """Fills in what each node has of a mirrored disk."""

    aim: str | None = None

    def annotated_disk(self, disk: Disk, instance: Instance | FilledInstance) -> Disk:
        return self._aimed(super().annotated_disk(disk, instance))

    def filled_instance(self, instance: Instance, **overrides: Any) -> FilledInstance:
        filled = super().filled_instance(instance, **overrides)
        return dataclasses.replace(
            filled, disks_info=tuple(self._aimed(disk) for disk in filled.disks_info)
        )

    def _aimed(self, disk: Disk) -> Disk:
        if disk.dev_type != disk_c.DRBD8 or self.aim is None:
            return disk
        return fill.for_node(disk, self.aim, self.snapshot())


class MirrorNodeSide(node_side.NodeSide):
    """Nodes with volumes and mirrored disks."""

    def __init__(self, config: MirrorConfig, directory: Path) -> None:
        super().__init__(config, directory)
        self.kernel = Kernel()
        for node in config.nodes():
            (self.root(node.name) / LVM / "xenvg").mkdir(parents=True)

    def _one(self, call: Any, uuid: str, args: dict[str, Any]) -> Any:
        self.config.aim = uuid  # type: ignore[attr-defined]
        Replica.kernel = self.kernel
        return super()._one(call, uuid, args)

    def _answer(self, call: Any, node_name: str, args: dict[str, Any]) -> Any:
        result = super()._answer(call, node_name, args)
        if result.failure is None:
            self._hold(call.name, str(self.root(node_name)), args)
        return result

    def _hold(self, call: str, root: str, args: dict[str, Any]) -> None:
        """Guests have their disks open while they run."""
        held = self.kernel.held
        instance = args.get("instance")
        disks = getattr(instance, "disks_info", ())
        if call == "hotplug_device" and args["dev_type"] == "disk":
            disks = [args["device"]]
        mine = {(root, (disk.dynamic_params or {}).get(device.LOCAL_MINOR)) for disk in disks}
        if call in ("instance_start", "instance_finalize_migration_dst") and args.get(
            "success", True
        ):
            held |= mine
        elif call == "hotplug_device":
            held.update(mine) if args["action"] == "hotadd" else held.difference_update(mine)
        elif call in ("instance_shutdown", "instance_finalize_migration_src"):
            held -= mine

    def _node_info(self, storage_units: Any, hv_specs: Any) -> list[Any]:
        boot, _units, facts = super()._node_info(storage_units, hv_specs)
        return [
            boot,
            [
                {"type": unit[0], "name": unit[1], "storage_free": 9999, "storage_size": 9999}
                for unit in storage_units or ()
            ],
            facts,
        ]

    def stored(self) -> set[str]:
        found = super().stored()
        for node in self.config.nodes():
            top = self.root(node.name) / LVM
            found |= {
                f"{node.name.split('.')[0]}:{path.relative_to(top)}"
                for path in top.rglob("*")
                if path.is_file()
            }
        return found

    def recorded(self) -> set[str]:
        names = {node.uuid: node.name.split(".")[0] for node in self.config.nodes()}
        found = set(
            self.recorded_files(
                disk
                for disk in self.config.snapshot().disks.values()
                if disk.dev_type not in (disk_c.PLAIN, disk_c.DRBD8)
            )
        )
        for disk in self.config.snapshot().disks.values():
            found |= {
                f"{names[node]}:{'/'.join(map(str, part.logical_id))}"
                for part in disk.walk()
                if part.dev_type == disk_c.PLAIN
                for node in part.nodes
            }
        return found

    def active(self) -> set[tuple[str, int]]:
        """Node and number of all minors which are in use."""
        return {
            (os.path.basename(root).split(".")[0], number) for root, number in self.kernel.minors
        }


def install(monkeypatch: Any) -> None:
    """Let nodes of this test have these devices."""
    monkeypatch.setattr(node_side, "NodeSide", MirrorNodeSide)
    monkeypatch.setattr(node_side, "MortalConfig", MirrorConfig)
    monkeypatch.setitem(storage._CLASSES, disk_c.PLAIN, ("fakes.mirror", "Volume"))
    monkeypatch.setattr(device, "DrbdDevice", Replica)
    monkeypatch.setattr(status, "loaded", lambda: True)
    monkeypatch.setattr(status, "minor", lambda number: Replica.kernel.state((_root(), number)))
    monkeypatch.setattr(leftover, "take_down", lambda path: Replica.kernel.take_down(path))
    from ganeti.backend.storage import drbd

    for module in (device, drbd):
        monkeypatch.setattr(module, "retry", types.SimpleNamespace(until=_until, Again=retry.Again))
    for function in _sleepers():
        for name in ("__defaults__", "__kwdefaults__"):
            monkeypatch.setattr(function, name, _with_fake_sleep(getattr(function, name)))


def _until(fn: Callable[[], Any], **options: Any) -> Any:
    """As :func:`ganeti.utils.retry.until`, in the time of the kernel."""
    return retry.until(fn, **{**options, "clock": Replica.kernel.clock, "sleep": _sleep})


def _sleep(seconds: float) -> None:
    Replica.kernel.sleep(seconds)


def _sleepers() -> list[Any]:
    """Functions of the master which wait for disks; they take how to sleep as a parameter."""
    found = []
    for package in ("disks", "migration"):
        parent = importlib.import_module(f"ganeti.cmdlib.ops.{package}")
        for info in pkgutil.iter_modules(parent.__path__, parent.__name__ + "."):
            for value in vars(importlib.import_module(info.name)).values():
                if inspect.isfunction(value) and value.__module__ == info.name:
                    found.append(value)
                elif inspect.isclass(value) and value.__module__ == info.name:
                    found += [one for one in vars(value).values() if inspect.isfunction(one)]
    return [one for one in found if time.sleep in _defaults(one)]


def _defaults(function: Any) -> tuple[Any, ...]:
    return (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())


def _with_fake_sleep(defaults: Any) -> Any:
    if isinstance(defaults, dict):
        return {name: _sleep if value is time.sleep else value for name, value in defaults.items()}
    return defaults and tuple(_sleep if value is time.sleep else value for value in defaults)
