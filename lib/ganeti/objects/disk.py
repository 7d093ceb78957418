"""Disks: trees of block devices."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from ganeti.constants import disk as disk_c
from ganeti.objects.base import unstored


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """A disk, or a device below one.

    What `logical_id` holds depends on `dev_type`: plain ``(vg, lv)``; file, sharedfile and gluster
    ``(driver, path)``; drbd ``(node uuid a, node uuid b, port, minor a, minor b, secret)``;
    rbd ``("rbd", volume)``; ext ``(provider, volume)``; blockdev ``("manual", path)``.
    `size` is in MiB. Devices below a disk need no UUID of their own.
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
    # Below: only on the way to a node or in the record of a running guest.
    dynamic_params: dict[str, Any] | None = None
    pci: int | None = None
    hvinfo: dict[str, Any] | None = None

    def walk(self) -> Iterator[Disk]:
        """This device and all below it, parents first."""
        yield self
        for child in self.children:
            yield from child.walk()

    def all_node_uuids(self) -> tuple[str, ...]:
        """Nodes which a mirrored disk lives on, primary first as recorded; else none."""
        if self.dev_type == disk_c.DRBD8:
            return (self.logical_id[0], self.logical_id[1])
        for child in self.children:
            found = child.all_node_uuids()
            if found:
                return found
        return ()

    def secondary_nodes(self, primary_node: str) -> tuple[str, ...]:
        """Mirror partners of `primary_node` for this disk."""
        return tuple(uuid for uuid in self.all_node_uuids() if uuid != primary_node)
