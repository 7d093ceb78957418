"""Disks, which are trees of block devices."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

from ganeti.constants import disk as disk_c
from ganeti.objects import disk_templates
from ganeti.objects.base import unstored


class DrbdId(NamedTuple):
    """A mirrored disk; the replica of ``node_a`` has the DRBD node id 0.

    :ivar secret: shared by the replicas; empty when nobody may see it.
    """

    node_a: str
    node_b: str
    port: int
    minor_a: int
    minor_b: int
    secret: str = ""

    @property
    def nodes(self) -> tuple[str, str]:
        """The UUIDs of the two nodes."""
        return (self.node_a, self.node_b)

    @property
    def minors(self) -> dict[str, int]:
        """UUID of the node -> minor of its replica."""
        return {self.node_a: self.minor_a, self.node_b: self.minor_b}


class VolumeId(NamedTuple):
    """A logical volume."""

    group: str
    name: str

    def __str__(self) -> str:
        return f"{self.group}/{self.name}"


class FileId(NamedTuple):
    """A file; its path is relative where the storage is a volume of its own."""

    driver: str
    path: str


class ExtId(NamedTuple):
    """A volume of a storage provider."""

    provider: str
    name: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """A disk, or a device below one. Devices below a disk need no UUID of their own.

    :ivar logical_id: depends on ``dev_type``: plain ``(vg, lv)``; file, sharedfile and gluster
        ``(driver, path)``; drbd ``(node uuid a, node uuid b, port, minor a, minor b, secret)``; rbd
        ``("rbd", volume)``; ext ``(provider, volume)``; blockdev ``("manual", path)``. The
        properties below name the parts, each for its own kind of device.
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

    @property
    def title(self) -> str:
        """Return what a message for people calls the disk: ``disk 0``, by its place."""
        return f"disk {self.iv_name.partition('/')[2] or self.uuid}"

    @property
    def has_replicas(self) -> bool:
        """Whether we keep a replica of it on each of two nodes."""
        return self.dev_type in disk_templates.INT_MIRRORED

    @property
    def is_volume(self) -> bool:
        """Whether the device itself is a logical volume."""
        return self.dev_type in disk_templates.LOGICAL_VOLUMES

    @property
    def data_device(self) -> Disk:
        """The device with the content: of a disk with replicas, its data volume."""
        return self.children[0] if self.has_replicas and self.children else self

    @property
    def metadata_device(self) -> Disk | None:
        """The device with the metadata of a disk with replicas; None where it has none."""
        return self.children[1] if self.has_replicas and len(self.children) > 1 else None

    @property
    def space_mib(self) -> int:
        """The space (MiB) which it takes on each of its nodes, with its metadata."""
        metadata = self.metadata_device
        if metadata is not None:
            return self.size + metadata.size
        return disk_templates.space_mib(self.dev_type, self.size)

    @property
    def largest_mib(self) -> int | None:
        """The size (MiB) up to which it may grow; None when only its storage limits it."""
        template, device = disk_templates.of(self.dev_type), self.metadata_device
        if template.metadata is None or device is None:
            return template.largest_mib
        return template.metadata.enough_for_mib(device.size)

    @property
    def drbd_id(self) -> DrbdId:
        """The id of a mirrored disk."""
        return DrbdId(*self.logical_id[:6])

    @property
    def has_whole_drbd_id(self) -> bool:
        """Whether this is a mirrored disk whose id can be read; it can be damaged."""
        return self.has_replicas and len(self.logical_id) >= 5

    @property
    def volume_id(self) -> VolumeId:
        """The id of a logical volume."""
        return VolumeId(*self.logical_id)

    @property
    def file_id(self) -> FileId:
        """The id of a file."""
        return FileId(*self.logical_id)

    @property
    def ext_id(self) -> ExtId:
        """The id of a volume of a storage provider."""
        return ExtId(*self.logical_id)

    @property
    def stored_name(self) -> str:
        """The name which its storage has for a device that is not mirrored by us."""
        _place, name = self.logical_id
        return str(name)

    def walk(self) -> Iterator[Disk]:
        """Iterate over this device and all devices below it, parents first."""
        yield self
        for child in self.children:
            yield from child.walk()

    def all_node_uuids(self) -> tuple[str, ...]:
        """Return the UUIDs of the two nodes of a mirrored disk; an empty tuple for other disks."""
        if self.has_replicas:
            first, second = self.logical_id[:2]
            return (first, second)
        for child in self.children:
            found = child.all_node_uuids()
            if found:
                return found
        return ()

    def secondary_nodes(self, primary_node: str) -> tuple[str, ...]:
        """Return the UUIDs of the nodes with peer replicas, except ``primary_node``."""
        return tuple(uuid for uuid in self.all_node_uuids() if uuid != primary_node)
