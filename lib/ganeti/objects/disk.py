"""Disks, which are trees of block devices."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from ganeti.constants import disk as disk_c
from ganeti.objects.base import unstored


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """A disk, or a device below one. Devices below a disk need no UUID of their own.

    :ivar logical_id: depends on ``dev_type``: plain ``(vg, lv)``; file, sharedfile and gluster
        ``(driver, path)``; drbd ``(node uuid a, node uuid b, port, minor a, minor b, secret)``; rbd
        ``("rbd", volume)``; ext ``(provider, volume)``; blockdev ``("manual", path)``.
    :ivar size: in MiB.
    :ivar outdated_node: DRBD only: UUID of the node whose replica is known to have missed writes;
        None when no replica is known to have missed any.
    :ivar outdated_since: time from which on it missed writes, in seconds since 1970; a replica
        which nobody observed may have missed earlier ones.
    :ivar in_sync_at: DRBD only: time at which the inactive disk was deactivated with both replicas
        equal, in seconds since 1970; None while it is active, or when nobody compared them.
    :ivar never_alone: DRBD only: UUID of the node on which the device is writable and confirms no
        write which the other replica does not have; None when that is not known.
    :ivar unwiped_from: a growth has begun and was not completed; the storage may hold data of
        former owners from this size (MiB) on. None when there is nothing of that kind.
    """

    dev_type: str
    logical_id: tuple[Any, ...]
    children: tuple[Disk, ...] = ()
    nodes: tuple[str, ...] = ()
    iv_name: str = ""
    size: int
    mode: str = disk_c.RDWR
    name: str | None = None
    spindles: int | None = None
    params: dict[str, Any] | None = None
    uuid: str = unstored("")
    serial_no: int = unstored(0)
    ctime: float = 0
    mtime: float = 0
    forthcoming: bool | None = None
    outdated_node: str | None = None
    outdated_since: float | None = None
    in_sync_at: float | None = None
    never_alone: str | None = None
    unwiped_from: int | None = None
    # The fields below occur only in node calls and in the record of a running guest.
    dynamic_params: dict[str, Any] | None = None
    pci: int | None = None
    hvinfo: dict[str, Any] | None = None

    def walk(self) -> Iterator[Disk]:
        """Iterate over this device and all devices below it, parents first."""
        yield self
        for child in self.children:
            yield from child.walk()

    def all_node_uuids(self) -> tuple[str, ...]:
        """Return the UUIDs of the two nodes of a mirrored disk; an empty tuple for other disks."""
        if self.dev_type == disk_c.DRBD8:
            return (self.logical_id[0], self.logical_id[1])
        for child in self.children:
            found = child.all_node_uuids()
            if found:
                return found
        return ()

    def secondary_nodes(self, primary_node: str) -> tuple[str, ...]:
        """Return the UUIDs of the nodes with peer replicas, except ``primary_node``."""
        return tuple(uuid for uuid in self.all_node_uuids() if uuid != primary_node)
