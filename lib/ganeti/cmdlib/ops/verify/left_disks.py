"""Disks which interrupted operations have left: conversions, moves, and replacements.

They are in the configuration as detached disks with a mark (:func:`~.convert.mark`), and use space
until the next such operation of their instance, or its removal, destroys them. The instance may
have been removed without that (``gnt-instance remove --ignore-failures``); then nothing ever does.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ganeti.cmdlib.ops.disks import convert, replica_report
from ganeti.objects import disk_templates
from ganeti.utils.text import comma_join
from ganeti.wire.calls.base import Failed

if TYPE_CHECKING:
    from ganeti.cmdlib.ops.verify.findings import Findings
    from ganeti.objects import ConfigData, Disk, Instance


class LeftDisk(NamedTuple):
    """A disk which an interrupted operation has left.

    :ivar owner: the instance of the operation; None when it was removed.
    :ivar nodes: UUIDs of the nodes which may have the storage; empty when no node is known.
    """

    disk: Disk
    owner: Instance | None
    nodes: tuple[str, ...]

    def name(self) -> str:
        """Return the name of the disk on its node, with its template."""
        return f"{replica_report.volume_name(self.disk)} ({self.disk.dev_type})"

    def text(self) -> str:
        """Say where the disk comes from, and how it is removed."""
        if self.owner is not None:
            return (
                f"which an interrupted operation on disks of instance {self.owner.name} left."
                f" {replica_report.kept_hint(self.owner)}"
            )
        return (
            "which an interrupted operation on disks of an instance left that was removed since"
            " then. If nobody needs it, attach it to a stopped instance with 'gnt-instance modify"
            f" --disk attach:uuid={self.disk.uuid}', and remove it there."
        )


def find(data: ConfigData) -> list[LeftDisk]:
    """Find the disks which interrupted operations have left."""
    instances = data.instances.values()
    used = {uuid for instance in instances for uuid in instance.disks}
    found = [
        disk for uuid, disk in data.disks.items() if uuid not in used and convert.is_mark(disk.name)
    ]
    if not found:
        return []
    owners = {convert.mark(instance.uuid): instance for instance in instances}
    left = []
    for disk in found:
        owner = owners.get(disk.name or "")
        here = disk.nodes or (() if owner is None else (owner.primary_node,))
        left.append(LeftDisk(disk, owner, here))
    return left


def to_ask(
    left: Collection[LeftDisk], nodes: Collection[str], listed: Collection[str]
) -> dict[str, list[LeftDisk]]:
    """Return which nodes have to be asked for which disks.

    :param nodes: UUIDs of the nodes of which the verification is.
    :param listed: UUIDs of those which have listed their logical volumes, so that these are known.
    """
    asked: dict[str, list[LeftDisk]] = {}
    for one in left:
        volume = one.disk.dev_type in disk_templates.LVM_BASED
        for uuid in one.nodes:
            if one.owner is not None and uuid in nodes and not (volume and uuid in listed):
                asked.setdefault(uuid, []).append(one)
    return asked


def report(
    findings: Findings,
    data: ConfigData,
    asked: Mapping[str, Collection[LeftDisk]],
    answers: Mapping[str, Collection[Any]],
) -> None:
    """Name the disks which exist, and those of which it is not known.

    :param asked: as :func:`to_ask` returns it.
    :param answers: UUID of a node which has answered -> for each disk its dimensions, None when it
        does not exist, or why that is not known.
    """
    for uuid, disks in asked.items():
        node = data.nodes[uuid]
        sizes = answers.get(uuid)
        if sizes is None:
            findings.note(
                f"it is unknown whether node {node.name} still has these disks, which interrupted"
                f" operations left: {comma_join(one.name() for one in disks)}"
            )
            continue
        for one, size in zip(disks, sizes, strict=True):
            if size is None:
                continue
            has = "may have" if isinstance(size, Failed) else "has"
            text = f"{has} disk {one.name()}, {one.text()}"
            findings.report("ENODEORPHANLV", node.name, text, warning=True)


def report_without_owner(
    findings: Findings,
    data: ConfigData,
    left: Collection[LeftDisk],
    nodes: Collection[str],
    listed: Collection[str],
) -> None:
    """Name the disks of instances which were removed; nodes are asked for disks of instances only.

    :param nodes: as for :func:`to_ask`, like ``listed``.
    """
    for one in left:
        where = [uuid for uuid in one.nodes if uuid in data.nodes]
        volume = one.disk.dev_type in disk_templates.LVM_BASED
        known = volume and set(where) <= set(listed)
        if one.owner is not None or known or (where and not set(where) & set(nodes)):
            continue
        on = comma_join(data.nodes[uuid].name for uuid in where)
        findings.note(
            f"the configuration has disk {one.name()}{f' on node {on}' if on else ''}, {one.text()}"
        )
