"""What users are shown about the two replicas of a mirrored disk.

``gnt-instance info`` and ``gnt-cluster verify`` say for each mirrored disk whether both replicas
are known to be good, since when not, and what to do. There are two sources: the record of the
configuration (:mod:`.replicas`), and the states which the nodes report while the disk is active.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypedDict

from ganeti.cmdlib.ops.disks import convert, replicas
from ganeti.constants.disk import LDS_OKAY, LDS_UNKNOWN
from ganeti.objects import BlockDevStatus
from ganeti.utils import clock
from ganeti.utils.text import comma_join
from ganeti.wire.calls import BLOCKDEV_GETDIMENSIONS
from ganeti.wire.calls.base import Failed

if TYPE_CHECKING:
    from ganeti.config import Config
    from ganeti.objects import Disk, Instance, Node
    from ganeti.rpc import RpcRunner

#: Both replicas are connected and equal, or were found equal when the disk was deactivated.
IN_SYNC = "in sync"
#: A replica receives what it lacks.
SYNCHRONISING = "synchronising"
#: A node reports that its replica is not a complete copy of the data, or has lost its storage.
INCOMPLETE = "incomplete"
#: The configuration has the record that a replica missed writes.
OUTDATED = "outdated"
#: The disk is active, and its replicas are not connected.
NOT_CONNECTED = "not connected"
#: The disk is inactive, and nobody compared its replicas since it was active.
NOT_COMPARED = "not compared"
#: No node reported the state of an active disk.
UNKNOWN = "unknown"

# A node in maintenance has such a replica as long as it is switched off.
_REPAIRED_AFTER_MAINTENANCE = (OUTDATED, NOT_CONNECTED, UNKNOWN)

#: A sentence for replicas which may refuse to connect.
_IF_NOT = " If they do not connect, see WHEN A MIRROR WAS INTERRUPTED in gnt-instance(8)."

NodeReport: TypeAlias = BlockDevStatus | str | None
"""What a node reports of a disk: its state; why it did not report it; None: it is not active."""


class ReplicaReport(NamedTuple):
    """What is known about the replicas of a disk.

    :ivar state: one of the states above.
    :ivar node: name of the node whose replica misses writes, as far as that is known.
    :ivar since: time from which on it missed writes, in seconds since 1970.
    :ivar compared: time at which the replicas of an inactive disk were found equal.
    :ivar percent: progress of the synchronisation.
    :ivar text: the same for users; it goes on after "replicas:".
    :ivar hint: what to do, as a whole sentence; empty when there is nothing to do.
    """

    state: str
    text: str
    hint: str = ""
    node: str | None = None
    since: float | None = None
    compared: float | None = None
    percent: float | None = None


def judge(
    disk: Disk, instance: Instance, nodes: Mapping[str, Node], reports: Mapping[str, NodeReport]
) -> ReplicaReport:
    """Say what is known about the replicas of a mirrored disk.

    What nodes report counts more than the record, which was made earlier.

    :param nodes: by UUID.
    :param reports: what the nodes reported, by UUID; a node is missing if it was not asked.
    """
    return _Judge(disk, instance, nodes, reports).report()


class _Judge:
    def __init__(
        self,
        disk: Disk,
        instance: Instance,
        nodes: Mapping[str, Node],
        reports: Mapping[str, NodeReport],
    ) -> None:
        self._disk = disk
        self._instance = instance
        self._nodes = [nodes[uuid] for uuid in disk.all_node_uuids()]
        self._outdated = nodes[disk.outdated_node] if disk.outdated_node else None
        self._reports = reports
        self._live = {
            uuid: found for uuid, found in reports.items() if isinstance(found, BlockDevStatus)
        }

    def report(self) -> ReplicaReport:
        for one in (self._from_nodes, self._from_record, self._without_record, self._unknown):
            found = one()
            if found is not None:
                return self._in_maintenance(found)
        raise AssertionError("there is always a report")

    def _in_maintenance(self, found: ReplicaReport) -> ReplicaReport:
        """Say that nobody has to act, where a replica only waits for the end of a maintenance."""
        names = [node.name for node in self._nodes if node.may_be_off()]
        if not names or found.state not in _REPAIRED_AFTER_MAINTENANCE:
            return found
        text = f"{found.text}; node {comma_join(names)} is in maintenance, and its replica is"
        return found._replace(text=f"{text} connected and synchronised afterwards", hint="")

    def _from_nodes(self) -> ReplicaReport | None:
        """Return what counts without, or in spite of, the record."""
        live = self._live
        lacking = [
            node
            for node in self._nodes
            if node.uuid in live
            and live[node.uuid].ldisk_status not in (None, LDS_OKAY, LDS_UNKNOWN)
        ]
        percents = [found.sync_percent for found in live.values() if found.sync_percent is not None]
        if percents:
            percent = min(percents)
            target = lacking[0].name if len(lacking) == 1 else None
            about = "" if target is None else f", node {target} lacks data until the end"
            return ReplicaReport(
                SYNCHRONISING,
                f"synchronising, {percent:.1f} %{about}",
                node=target,
                since=self._since(lacking),
                percent=percent,
            )
        if lacking:
            since = "" if self._since(lacking) is None else f" since {replicas.since(self._disk)}"
            return ReplicaReport(
                INCOMPLETE,
                f"incomplete on node {comma_join(node.name for node in lacking)}{since}",
                f"{self._activate('connects and synchronises them')} If the node has lost its"
                f" storage, use 'gnt-instance replace-disks --auto {self._instance.name}' instead.",
                node=lacking[0].name if len(lacking) == 1 else None,
                since=self._since(lacking),
            )
        if len(live) == len(self._nodes) and not any(one.is_degraded for one in live.values()):
            alone = ", and none confirms a write alone" if self._disk.never_alone else ""
            return ReplicaReport(IN_SYNC, f"both in sync{alone}")
        return None

    def _from_record(self) -> ReplicaReport | None:
        if self._disk.in_sync_at is not None:
            when = clock.format_time(self._disk.in_sync_at)
            return ReplicaReport(
                IN_SYNC, f"both in sync (compared {when})", compared=self._disk.in_sync_at
            )
        if self._outdated is not None:
            name = self._outdated.name
            return ReplicaReport(
                OUTDATED,
                f"node {name} has missed writes since {replicas.since(self._disk)}",
                self._activate("connects and synchronises them", _IF_NOT),
                node=name,
                since=self._disk.outdated_since,
            )
        return None

    def _without_record(self) -> ReplicaReport | None:
        if self._live:
            names = {node.uuid: node.name for node in self._nodes}
            if not any(one.is_degraded for one in self._live.values()):
                (uuid,) = self._live
                return ReplicaReport(
                    UNKNOWN,
                    f"both in sync, as only node {names[uuid]} reports; {self._why_not()}",
                )
            away = [node.name for node in self._nodes if not self._is_writable(node)]
            other = away[0] if len(away) == 1 else None
            which = (
                "one of them may miss writes" if other is None else f"node {other} misses writes"
            )
            return ReplicaReport(
                NOT_CONNECTED,
                f"not connected, so {which}",
                self._activate("connects and synchronises them", _IF_NOT),
                node=other,
            )
        all_inactive = len(self._reports) == len(self._nodes) and all(
            found is None for found in self._reports.values()
        )
        if all_inactive or not self._instance.disks_active:
            return ReplicaReport(
                NOT_COMPARED,
                "not compared since the disks were active",
                self._activate("connects and compares them"),
            )
        return None

    def _unknown(self) -> ReplicaReport:
        if not self._reports:
            return ReplicaReport(UNKNOWN, "not known, because no node was asked")
        return ReplicaReport(
            UNKNOWN,
            f"not known; {self._why_not()}",
            self._activate("connects and compares them"),
        )

    def _since(self, lacking: Sequence[Node]) -> float | None:
        """Return the time of the record, when it is about the replica which lacks data."""
        return self._disk.outdated_since if lacking == [self._outdated] else None

    def _why_not(self) -> str:
        reasons = []
        for node in self._nodes:
            if node.uuid in self._live:
                continue
            found = self._reports.get(node.uuid, "it was not asked")
            if node.offline:
                reasons.append(f"node {node.name} is offline")
            elif isinstance(found, str):
                reasons.append(f"node {node.name} did not report its replica ({found})")
            else:
                reasons.append(f"the replica on node {node.name} is not active")
        return ", ".join(reasons)

    def _is_writable(self, node: Node) -> bool:
        """Return True if the replica on a node is in use, so that it was known to have all data."""
        return node.uuid in self._live and bool(self._live[node.uuid].writable)

    def _activate(self, effect: str, more: str = "") -> str:
        away = comma_join(node.name for node in self._nodes if node.offline)
        use = f"When node {away} is not offline any more, use" if away else "Use"
        return f"{use} 'gnt-instance activate-disks {self._instance.name}', which {effect}.{more}"


class KeptVolume(TypedDict):
    """Storage which an operation on disks of an instance left, and which no disk uses.

    ``size`` is in MiB. ``exists`` is None when the node did not report it. ``hint`` says how the
    storage is removed.
    """

    node: str
    name: str
    size: int
    exists: bool | None
    hint: str


def kept_hint(instance: Instance) -> str:
    """Say how kept volumes of an instance are removed, in whole sentences."""
    name = instance.name
    return (
        f"The next 'gnt-instance replace-disks {name}', a conversion or move of its disks, or the"
        " removal of the instance destroys them. Before that, make sure that its disks have all"
        " data: a kept volume may be the last copy."
    )


def kept_volumes(
    config: Config, rpc: RpcRunner, instance: Instance, *, ask: bool
) -> list[KeptVolume]:
    """Describe what interrupted operations on disks of an instance have left on the nodes.

    :param ask: ask the nodes whether it exists; a mark is made before a volume is.
    """
    by_node: dict[str, list[Disk]] = {}
    for disk in convert.marked(config, instance):
        for uuid in disk.nodes or (instance.primary_node,):
            by_node.setdefault(uuid, []).append(disk)
    found: list[KeptVolume] = []
    for uuid, disks in by_node.items():
        node = config.node(uuid)
        exists: list[bool | None] = [None] * len(disks)
        if ask and not node.offline:
            answer = rpc.call(
                BLOCKDEV_GETDIMENSIONS, uuid, disks=[(disk, instance) for disk in disks]
            )
            if answer.failure is None:
                exists = [
                    None if isinstance(size, Failed) else size is not None for size in answer.data
                ]
        found += [
            KeptVolume(
                node=node.name,
                name=volume_name(disk),
                size=disk.size,
                exists=known,
                hint=kept_hint(instance),
            )
            for disk, known in zip(disks, exists, strict=True)
        ]
    return found


def volume_name(disk: Disk) -> str:
    """Return the name of a device on its node: ``group/volume``, or the path of a file."""
    parts = [str(part) for part in disk.logical_id]
    return "/".join(parts) if disk.is_volume else parts[-1]
