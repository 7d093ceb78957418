"""The state of simulated nodes: memory, volumes, mirrored disks, guests, copies of the master."""

from __future__ import annotations

import dataclasses
import fnmatch
import hashlib
import os
import random
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from devel.simnodes.shared_text import SharedText
from ganeti import errors
from ganeti.configfile.content import Change, Content
from ganeti.configfile.journal import State, advance, applied, encode, is_base, joined
from ganeti.constants import disk as disk_const
from ganeti.constants import hv
from ganeti.jobstore.audit import NOTHING
from ganeti.objects import ConfigData, Disk
from ganeti.platform import master_epoch

#: Space of the volume group of a node, its memory (both in MiB), and its processors.
DISK_MIB: Final = 4 << 20
MEMORY_MIB: Final = 256 << 10
NODE_MEMORY_MIB: Final = 4 << 10
CPUS: Final = 64
DEFAULT_SYNC_MIB_S: Final = 1024.0

RUNS, WAITS, SENT = "runs", "waits", "sent"
#: Faults which a node may have; see :class:`Fault`.
FAULTS: Final = ("fail", "stall", "off", "lie", "refuse-epoch")


@dataclasses.dataclass(slots=True)
class Guest:
    """A guest on a node.

    :ivar state: :data:`RUNS`; :data:`WAITS` for one which is to arrive by a migration;
        :data:`SENT` for one which has left.
    :ivar since: when it was started, in seconds of the monotonic clock.
    """

    hypervisor: str
    memory_mib: int
    vcpus: int
    state: str = RUNS
    since: float = 0.0


@dataclasses.dataclass(slots=True)
class Replica:
    """The local side of a mirrored disk; ``has_disk`` is False while it has no local storage."""

    disk: Disk
    minor: int
    size_mib: int
    connected: bool = True
    primary: bool = False
    has_disk: bool = True


class Pair:
    """The synchronisation of a mirrored disk.

    :param clock: seconds.
    :ivar missing_mib: what the replica with older data lacks.
    """

    def __init__(self, clock: Callable[[], float], rate_mib_s: float, missing_mib: float) -> None:
        self._clock = clock
        self._rate = rate_mib_s
        self._at = clock()
        self.missing_mib = missing_mib

    def go_on(self, connected: bool) -> float:
        """Let the time pass since the last call, in this state; return what is still missing."""
        now = self._clock()
        if connected:
            self.missing_mib = max(0.0, self.missing_mib - self._rate * (now - self._at))
        self._at = now
        return self.missing_mib


class Fault:
    """What a node does wrong.

    :ivar kind: one of :data:`FAULTS`. ``fail``: the calls fail; ``stall``: they get no answer, for
        ``seconds`` or for ever; ``off``: the machine has no power; ``lie``: the answers have the
        right form and false content; ``refuse-epoch``: the node has promised to obey another
        master.
    :ivar calls: a pattern of the names of calls which it concerns.
    """

    __slots__ = ("calls", "kind", "seconds")

    def __init__(self, kind: str, calls: str = "*", seconds: float | None = None) -> None:
        if kind not in FAULTS:
            raise errors.ParameterError(f"there is no fault '{kind}' of a node")
        self.kind = kind
        self.calls = calls
        self.seconds = seconds

    def concerns(self, call: str) -> bool:
        """Tell whether the fault concerns a call."""
        return fnmatch.fnmatchcase(call, self.calls)


@dataclasses.dataclass(slots=True)
class Copies:
    """What the master has written to a node: the files below the data directory.

    :ivar text: the file of the configuration; ``journal`` is what is beside it.
    """

    epoch: master_epoch.Epoch = master_epoch.NONE
    config_epoch: master_epoch.Epoch = master_epoch.NONE
    queue_epoch: master_epoch.Epoch = master_epoch.NONE
    text: SharedText = dataclasses.field(default_factory=lambda: SharedText(b""))
    journal: bytes = b""
    ssconf: dict[str, str] = dataclasses.field(default_factory=dict)
    history: dict[str, str] = dataclasses.field(default_factory=dict)
    audit_end: tuple[int, str] = (0, NOTHING)
    files: dict[str, str] = dataclasses.field(default_factory=dict)
    queue: dict[str, str] = dataclasses.field(default_factory=dict)
    drained: bool = False

    @property
    def config(self) -> bytes:
        """The content of the file of the configuration."""
        return self.text.whole()

    @config.setter
    def config(self, text: bytes) -> None:
        if text is not self.text.whole():
            self.text = SharedText(text)

    @property
    def config_state(self) -> State:
        """The file of the configuration with its journal, as real nodes understand both."""
        return advance(State(Content.of_file(len(self.config))), self.journal, self._read)

    @property
    def config_text(self) -> bytes:
        """The present configuration."""
        if not self.journal or not self.config:
            return self.config
        return joined(iter(self.config_state.content.parts), self._read)

    def change_config(self, wanted: Change, *, journal: bool) -> bytes | None:
        """Change the configuration; None, and no change, when it is not the one before this one.

        :param journal: append to the journal; otherwise replace the file.
        :returns: the new text.
        :raises ValueError: the parts do not add up.
        """
        state = self.config_state
        if not is_base(state.content, wanted, self._read):
            return None
        after = applied(state.content, wanted, self._read)
        if after is None:
            raise ValueError(f"the parts are not {wanted.new_bytes} bytes")
        text = joined(iter(after.parts), self._read)
        if journal and not state.ended:
            self.journal = (self.journal[: state.read] if state.in_use else b"") + encode(wanted)
        else:
            self.config, self.journal = text, b""
        return text

    def fold(self, *, interrupted: bool = False) -> None:
        """Write the journal into the file.

        :param interrupted: the machine stops before the journal is removed.
        """
        self.config = self.config_text
        if not interrupted:
            self.journal = b""

    def _read(self, offset: int, length: int) -> bytes:
        return self.config[offset : offset + length]

    def snapshot(self) -> Copies:
        """Return a copy which later writes do not change."""
        return dataclasses.replace(
            self, ssconf=dict(self.ssconf), files=dict(self.files), queue=dict(self.queue)
        )


class SimNode:
    """One simulated node."""

    def __init__(self, fleet: Fleet, uuid: str, name: str, address: str) -> None:
        self.fleet = fleet
        self.uuid = uuid
        self.name = name
        self.address = address
        self.guests: dict[str, Guest] = {}
        self.volumes: dict[str, int] = {}
        self.replicas: dict[str, Replica] = {}
        self.copies = Copies()
        self.old: Copies | None = None
        self.fault: Fault | None = None
        self.watcher_pause: float | None = None
        self.boots = 1
        #: Whether the node keeps a journal beside its configuration; older versions do not.
        self.keeps_journal = False
        #: Number of answered calls by name, and the bytes of their requests.
        self.answered: dict[str, int] = {}
        self.received: dict[str, int] = {}

    @property
    def boot_id(self) -> str:
        """The identifier of this start of the machine."""
        return f"{self.uuid[:24]}{self.boots:012d}"

    @property
    def lies(self) -> bool:
        """True if the answers are false."""
        return self.fault is not None and self.fault.kind == "lie"

    def free_memory_mib(self) -> int:
        """Return the memory which no guest uses."""
        used = sum(guest.memory_mib for guest in self.guests.values())
        return max(0, MEMORY_MIB - NODE_MEMORY_MIB - used)

    def free_disk_mib(self) -> int:
        """Return the space of the volume group which no volume uses."""
        return max(0, DISK_MIB - sum(self.volumes.values()))

    def lose_power(self) -> None:
        """End the guests and deactivate the mirrored disks, as the loss of power does."""
        self.guests.clear()
        self.replicas.clear()
        self.boots += 1

    def lose_disk(self) -> None:
        """Lose all volumes; mirrored disks lose their local storage. The guests go on."""
        self.volumes.clear()
        for uuid, replica in self.replicas.items():
            replica.has_disk = False
            self.fleet.pair(uuid, replica.size_mib).missing_mib = replica.size_mib

    def keep_old(self) -> None:
        """Remember the present copies for :meth:`restore_old`."""
        self.old = self.copies.snapshot()

    def restore_old(self) -> None:
        """Come back with the data of an earlier moment, as from a backup of the disk.

        :raises ParameterError: no earlier moment was remembered.
        """
        if self.old is None:
            raise errors.ParameterError(f"node {self.name} has no old data: use 'keep-old' before")
        self.copies = self.old.snapshot()

    def connected(self, uuid: str) -> bool:
        """Tell whether the replica of a mirrored disk on this node sees its peer."""
        own = self.replicas.get(uuid)
        if own is None or not own.connected:
            return False
        return any(
            peer.connected
            for node in self.fleet.holders.get(uuid, ())
            if node is not self and (peer := node.replicas.get(uuid)) is not None
        )


class Fleet:
    """All simulated nodes.

    :param certificate_digest: digest of the certificate of the cluster.
    """

    def __init__(
        self,
        certificate_digest: str = "",
        *,
        seed: int = 0,
        clock: Callable[[], float] = time.monotonic,
        sync_mib_s: float = DEFAULT_SYNC_MIB_S,
    ) -> None:
        self.certificate_digest = certificate_digest
        self.random = random.Random(seed)
        self.clock = clock
        self.sync_mib_s = sync_mib_s
        self.uid = os.geteuid()
        #: Digest of the certificate which the nodes show.
        self.client_digest = certificate_digest
        #: Returns the digest of a file which all nodes have as the master has it; None without it.
        self.common_file: Callable[[str], str | None] = lambda _path: None
        self.nodes: dict[str, SimNode] = {}
        # Disk UUID -> the nodes with a replica, and how far it is in sync.
        self.holders: dict[str, list[SimNode]] = {}
        self._pairs: dict[str, Pair] = {}
        # The last text made from another one: candidates get the same difference.
        self._made: tuple[SharedText, list[Any], SharedText] | None = None
        #: Name, body and arguments of the last large request; the answers do not change them.
        self.decoded: tuple[str, bytes, dict[str, Any]] | None = None
        self._shared = SharedText(b"")
        self._digest: tuple[bytes, str] = (b"", "")

    def shared(self, text: bytes) -> SharedText:
        """Return the object which stands for this text, so that candidates share one."""
        if self._shared.whole() != text:
            self._shared = SharedText(text)
        return self._shared

    def checksum(self, node: SimNode, path: str) -> str | None:
        """Return the SHA1 digest of a file of a node; None when it has none."""
        copies, name = node.copies, path.rpartition("/")[2]
        if name == "config.data":
            if not copies.config:
                return None
            if copies.journal:
                return _sha1(copies.config_text)
            if self._digest[0] is not copies.config:
                self._digest = (copies.config, _sha1(copies.config))
            return self._digest[1]
        key = name.removeprefix("ssconf_")
        if key != name and key in copies.ssconf:
            return _sha1(copies.ssconf[key].encode())
        if path in copies.files:
            return _sha1(copies.files[path].encode())
        return self.common_file(path)

    def pair(self, uuid: str, size_mib: int) -> Pair:
        """Return the synchronisation of a mirrored disk; a new one lacks everything."""
        found = self._pairs.get(uuid)
        if found is None:
            found = self._pairs[uuid] = Pair(self.clock, self.sync_mib_s, size_mib)
        return found

    def add_replica(self, node: SimNode, disk: Disk, *, primary: bool, in_sync: bool) -> Replica:
        """Activate the local side of a mirrored disk."""
        index = disk.logical_id.index(node.uuid)
        replica = node.replicas[disk.uuid] = Replica(
            disk, int(disk.logical_id[3 + index]), disk.size, primary=primary
        )
        holders = self.holders.setdefault(disk.uuid, [])
        if node not in holders:
            holders.append(node)
        if disk.uuid not in self._pairs:
            self._pairs[disk.uuid] = Pair(
                self.clock, self.sync_mib_s, 0.0 if in_sync else float(disk.size)
            )
        return replica

    def forget_pair(self, uuid: str) -> None:
        """Forget a mirrored disk which has no replica any more."""
        if not any(uuid in node.replicas for node in self.holders.get(uuid, ())):
            self.holders.pop(uuid, None)
            self._pairs.pop(uuid, None)

    def rewritten(self, base: SharedText, parts: list[Any]) -> SharedText:
        """Make a text from another one; all candidates share the result.

        :raises ValueError: a part is not inside the text.
        """
        if self._made is None or self._made[0] is not base or self._made[1] != parts:
            changes = [
                part.encode() if isinstance(part, str) else (part[0], part[1]) for part in parts
            ]
            self._made = (base, parts, base.changed(changes))
        return self._made[2]

    def chosen(self, patterns: Iterable[str]) -> list[SimNode]:
        """Return the nodes whose names match a pattern, such as ``node7*`` or ``all``.

        :raises ParameterError: a pattern matches no node.
        """
        found: dict[str, SimNode] = {}
        for pattern in patterns:
            wanted = "*" if pattern == "all" else pattern
            matching = {
                node.name: node
                for node in self.nodes.values()
                if fnmatch.fnmatchcase(node.name, wanted) or node.name.partition(".")[0] == wanted
            }
            if not matching:
                raise errors.ParameterError(f"no simulated node matches '{pattern}'")
            found.update(matching)
        return list(found.values())

    def fill(self, data: ConfigData, config: bytes, ssconf: dict[str, str]) -> None:
        """Give the nodes what a configuration says that they have: guests run, mirrors are in sync.

        :param config: the text of the configuration, which candidates have.
        """
        now = self.clock()
        for node in self.nodes.values():
            node.copies.ssconf = dict(ssconf)
            known = data.nodes.get(node.uuid)
            if known is not None and known.master_candidate:
                node.copies.text = self.shared(config)
        defaults = data.cluster.beparams["default"]
        for instance in data.instances.values():
            home = self.nodes.get(instance.primary_node)
            runs = instance.admin_state == "up"
            if home is not None and runs:
                home.guests[instance.name] = Guest(
                    instance.hypervisor,
                    int(instance.beparams.get("maxmem", defaults["maxmem"])),
                    int(instance.beparams.get("vcpus", defaults["vcpus"])),
                    since=now,
                )
            for uuid in instance.disks:
                self._fill_disk(data.disks[uuid], instance.primary_node, active=runs)

    def _fill_disk(self, disk: Disk, primary: str, *, active: bool) -> None:
        holders = disk.all_node_uuids() or (primary,)
        for uuid in holders:
            node = self.nodes.get(uuid)
            if node is None:
                continue
            for part in disk.walk():
                if part.dev_type != disk_const.DRBD8:
                    node.volumes[volume_name(part)] = part.size
            if disk.dev_type == disk_const.DRBD8 and active:
                self.add_replica(node, disk, primary=uuid == primary, in_sync=True)


def volume_name(disk: Disk) -> str:
    """Return the name of a volume or file on its node."""
    return f"{disk.logical_id[0]}/{disk.logical_id[1]}"


def guest_info(guest: Guest, now: float) -> dict[str, Any]:
    """Return the state of a guest, as the calls have it."""
    state = hv.STATE_SHUTDOWN if guest.state == WAITS else hv.STATE_RUNNING
    return {
        "memory": guest.memory_mib,
        "state": state,
        "time": round(now - guest.since, 1),
        "vcpus": guest.vcpus,
    }


def _sha1(content: bytes) -> str:
    return hashlib.sha1(content, usedforsecurity=False).hexdigest()
