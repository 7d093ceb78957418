"""All names of a block device or file on one node: which paths lead to the same storage.

A path is no identity: links below ``/dev/disk`` are many for one device, a partition is a part of
another device, and two paths of a SAN lead to one volume. A node gives a device every name that it
has (:mod:`ganeti.storage.device_names`); the master compares them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from ganeti import errors, ht

#: A name begins with one of these. Only the names of volumes of a SAN mean the same on every node.
DEVICE, INODE, RBD_IMAGE, SAN_VOLUME = "dev:", "inode:", "rbd:", "san:"

#: How names travel: ``[own, below]``.
WIRE = ht.Tuple(ht.ListOf(ht.NonEmptyString), ht.ListOf(ht.NonEmptyString))


class DeviceNames(NamedTuple):
    """The names of a device.

    :ivar own: names of the device itself.
    :ivar below: names of the devices of which it is a part, or on which it is built.
    """

    own: frozenset[str]
    below: frozenset[str] = frozenset()

    @classmethod
    def parse(cls, wire: Any) -> DeviceNames:
        """Read the form :data:`WIRE`.

        :raises ParseError: it has another form.
        """
        if not WIRE(wire):
            raise errors.ParseError(f"expected the names of a device, found {wire!r:.100}")
        return cls(frozenset(wire[0]), frozenset(wire[1]))

    def wire(self) -> list[list[str]]:
        """Return the form :data:`WIRE`."""
        return [sorted(self.own), sorted(self.below)]

    def overlaps(self, other: DeviceNames) -> bool:
        """Tell whether a write to one device can change what is on the other one, on one node."""
        return bool(self.own & (other.own | other.below) or self.below & other.own)

    @property
    def san(self) -> frozenset[str]:
        """The names by which a SAN knows the device itself."""
        return frozenset(name for name in self.own if name.startswith(SAN_VOLUME))

    def unique(self, node_uuid: str) -> list[str]:
        """Return the own names in a form which no other device of any node has."""
        return sorted(
            name if name.startswith((SAN_VOLUME, RBD_IMAGE)) else f"{node_uuid}/{name}"
            for name in self.own
        )


def united(several: Iterable[DeviceNames]) -> DeviceNames:
    """Return the names of a disk which consists of several devices."""
    found = list(several)
    return DeviceNames(
        frozenset().union(*(names.own for names in found)),
        frozenset().union(*(names.below for names in found)),
    )


def rbd_image(pool: str, image: str, namespace: str = "", snapshot: str = "") -> str:
    """Return the name of an RBD image, or of a snapshot of it, on every node."""
    return f"{RBD_IMAGE}{pool}/{namespace}/{image}@{snapshot}"
