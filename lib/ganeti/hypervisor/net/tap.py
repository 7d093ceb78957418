"""Tap devices: the host's end of a guest's NIC.

A device is made before the virtual machine monitor starts, and is persistent: the monitor opens it
by name, and it is still there when a guest ended unexpectedly. Making one needs root.

Source: Linux, ``Documentation/networking/tuntap.rst``; ``linux/if_tun.h``.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ganeti import errors
from ganeti.utils import net, process

_TIMEOUT_S = 30.0
#: Name of a new device; the kernel replaces ``%d`` by a number.
TAP_NAME = "gnt.tap%d"

# linux/if_tun.h
_TUNSETIFF = 0x400454CA
_TUNGETIFF = 0x800454D2
_TUNSETPERSIST = 0x400454CB
_TUNSETOWNER = 0x400454CC
_IFF_TAP = 0x0002
_IFF_NO_PI = 0x1000
_IFF_VNET_HDR = 0x4000
_IFF_MULTI_QUEUE = 0x0100


@dataclass(frozen=True, slots=True)
class TapFeatures:
    """What the virtual machine monitor expects of a tap device."""

    queues: int = 1  # pairs of queues between guest and host
    vnet_hdr: bool = False  # guest and host exchange facts about checksums and large packets
    vhost: bool = False  # the kernel moves the packets, where it can
    owner_uid: int | None = None  # user of the monitor, when it is not root

    def make(self, name: str, nic: Mapping[str, Any]) -> str:
        """Make the interface of a NIC, see :func:`create`."""
        return create(self, name)


def open_tap(name: str, features: TapFeatures) -> int:
    """Open a device, or make one: the kernel replaces ``%d`` in the name by a free number.

    :returns: a file descriptor, which the caller closes.
    :raises OSError: the kernel refuses.
    """
    flags = _IFF_TAP | _IFF_NO_PI
    if features.queues > 1:
        flags |= _IFF_MULTI_QUEUE
    if features.vnet_hdr:
        flags |= _IFF_VNET_HDR
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.ioctl(fd, _TUNSETIFF, struct.pack("16sH22x", name.encode(), flags))
    except BaseException:
        os.close(fd)
        raise
    return fd


def create(features: TapFeatures, name: str = TAP_NAME) -> str:
    """Make a persistent device.

    :returns: its name.
    :raises HypervisorError: the kernel refuses.
    """
    try:
        fd = open_tap(name, features)
        try:
            answer = fcntl.ioctl(fd, _TUNGETIFF, bytes(40))
            if features.owner_uid is not None:
                fcntl.ioctl(fd, _TUNSETOWNER, features.owner_uid)
            fcntl.ioctl(fd, _TUNSETPERSIST, 1)
        finally:
            os.close(fd)
    except OSError as err:
        raise errors.HypervisorError(f"cannot make a tap interface: {err.strerror}") from err
    return answer[:16].rstrip(b"\0").decode()


def delete(tap: str) -> None:
    """Delete a device; one that does not exist is not an error."""
    if net.has_interface(tap):
        process.run(["ip", "link", "delete", tap], timeout_s=_TIMEOUT_S, check=False)


def vhost_works() -> bool:
    """Return True if the kernel of this node can move the packets of guests itself."""
    return os.access("/dev/vhost-net", os.R_OK | os.W_OK)


def open_vhost() -> int:
    """Open the kernel's side of one pair of queues.

    :returns: a file descriptor, which the caller closes.
    :raises OSError: the kernel refuses.
    """
    return os.open("/dev/vhost-net", os.O_RDWR | os.O_CLOEXEC)
