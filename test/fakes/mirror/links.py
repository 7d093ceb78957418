"""What the made-up kernel knows: minors, their connections, and the copying between them."""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
from pathlib import Path

from fakes.mirror.content import Meta, copied, device_path, short_name
from ganeti.storage.drbd import parse
from ganeti.storage.drbd.argv import Endpoint, NetOptions
from ganeti.storage.drbd.parse import MinorState

#: Seconds which a look at the state of a minor takes.
READING_S = 0.05


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
    #: With ``fencing resource-and-stonith``; forgotten with the storage.
    waits: bool = False
    suspended: bool = False
    #: What the device of this minor leads to.
    shown: str | None = None


@dataclasses.dataclass
class Sync:
    """Copying from one replica to another."""

    source: Key
    begun: float
    paused: bool = False


Key = tuple[str, int]  # root directory of the node, and number of the minor
Pair = frozenset[Key]


class Links:
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
            suspended=own.suspended,
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
        own.suspended = other.suspended = False
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
        self.split.append(f"minor {first[1]} of {short_name(first[0])}")
        self.links.discard(frozenset((first, second)))  # nothing goes from one to the other
        self._part(first, second)

    def _part(self, first: Key, second: Key) -> None:
        """Both do not look for each other any more."""
        self.lose(first, second)
        for key in (first, second):
            minor = self.minors[key]
            minor.local = minor.remote = minor.net = None

    def lose(self, first: Key, second: Key, *, agreed: bool = False) -> None:
        """Two replicas lose contact.

        :param agreed: one of them disconnects; a primary which waits for its peer marks it then.
        """
        pair = frozenset((first, second))
        self._due.pop(pair, None)
        if pair not in self.links:
            return
        self.replicate()
        self.links.discard(pair)
        unfinished = {key for key in (first, second) if self.syncs.pop(key, None)}
        for key, other in ((first, second), (second, first)):
            minor = self.minors[key]
            # A peer which is known to lack data is nothing to wait for.
            if minor.primary and minor.waits and not agreed and other not in unfinished:
                minor.suspended = True
            else:
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
        source, minor = self.minors[self.syncs[target].source], self.minors[target]
        assert source.data and source.meta and minor.data and minor.meta
        copied(source.data, minor.data)
        Meta(self._meta(source).generations).write(minor.meta)
        # At last: where a test dies above, the kernel goes on with the copy.
        del self.syncs[target]

    def _copy_part(self, target: Key) -> None:
        sync = self.syncs[target]
        source, minor = self.minors[sync.source], self.minors[target]
        assert source.data and minor.data
        copied(source.data, minor.data, self._share(sync))

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
                    copied(minor.data, its_peer.data)

    # -- what happens to networks --------------------------------------------------

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
        nodes = frozenset((short_name(first[0]), short_name(second[0])))
        return any(
            nodes == cut and port in (None, local.port if local else None)
            for cut, port in self._cuts
        )
