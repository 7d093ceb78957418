"""The host's side of a guest's network cards.

A card in a mode with an interface on the host gets a tap interface of its own, made before QEMU
starts and persistent, so that QEMU opens it by name and a guest that ends unexpectedly leaves
something that :func:`remove` finds. Its name is in
``RUN_DIR/kvm-hypervisor/nic/<instance>/<index>``. Making it needs root; mode ``user`` (virtual
clusters only) needs neither interface nor privileges.

How an interface is connected to its network is told in :mod:`ganeti.hypervisor.net.link`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ganeti import errors
from ganeti.constants import net
from ganeti.hypervisor.kvm import communication, devices
from ganeti.hypervisor.kvm.layout import Layout
from ganeti.hypervisor.net import link
from ganeti.platform import paths
from ganeti.utils import fs, process

_TIMEOUT_S = 30.0
#: Name of the host's end; the kernel puts a number there.
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


def check_mode(nic: Mapping[str, Any], instance_name: str) -> None:
    """Refuse a mode that cannot work here.

    :raises HypervisorError: says which card, and why.
    """
    mode = nic["nicparams"].get("mode")
    if communication.by_qemu(nic):
        return
    if mode == net.NIC_MODE_USER:
        if not paths.is_virtual():
            raise errors.HypervisorError(
                f"instance {instance_name}: NIC mode {mode} exists in virtual clusters only"
            )
    elif mode not in devices.TAP_MODES:
        raise errors.HypervisorError(f"instance {instance_name}: NIC mode '{mode}' is not known")
    elif os.geteuid() != 0:
        raise errors.HypervisorError(
            f"instance {instance_name}: NIC mode {mode} needs root. "
            f"A virtual cluster of an ordinary user has mode {net.NIC_MODE_USER}."
        )
    elif shutil.which("ip") is None:
        # Found out before there is an interface that could not be deleted again.
        raise errors.HypervisorError(
            f"instance {instance_name}: NIC mode {mode} needs the program ip (package iproute2)"
        )
    else:
        try:
            link.check(nic)
        except errors.HypervisorError as err:
            raise errors.HypervisorError(f"instance {instance_name}: {err}") from err


def _open_tap(name: str, hvparams: Mapping[str, Any]) -> int:
    """Open an interface, or make one: ``%d`` in the name becomes a free number."""
    flags = _IFF_TAP | _IFF_NO_PI
    if devices.nic_queues(hvparams) > 1:
        flags |= _IFF_MULTI_QUEUE
    # Whether guest and host tell each other about checksums and large packets.
    if hvparams["nic_type"] == "paravirtual" and hvparams.get("vnet_hdr", True):
        flags |= _IFF_VNET_HDR
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.ioctl(fd, _TUNSETIFF, struct.pack("16sH22x", name.encode(), flags))
    except BaseException:
        os.close(fd)
        raise
    return fd


def _make_tap(hvparams: Mapping[str, Any], owner_uid: int | None, name: str = TAP_NAME) -> str:
    try:
        fd = _open_tap(name, hvparams)
        try:
            answer = fcntl.ioctl(fd, _TUNGETIFF, bytes(40))
            if owner_uid is not None:
                fcntl.ioctl(fd, _TUNSETOWNER, owner_uid)
            fcntl.ioctl(fd, _TUNSETPERSIST, 1)
        finally:
            os.close(fd)
    except OSError as err:
        raise errors.HypervisorError(f"cannot make a tap interface: {err.strerror}") from err
    return answer[:16].rstrip(b"\0").decode()


def set_up(
    nics: Sequence[Mapping[str, Any]],
    hvparams: Mapping[str, Any],
    layout: Layout,
    tags: Sequence[str] = (),
    owner_uid: int | None = None,
    *,
    incoming: bool = False,
) -> list[str | None]:
    """Make and connect the interfaces of a guest.

    :param owner_uid: user that QEMU will run as, when not root.
    :param incoming: the guest still runs on another node; :func:`arrived` connects the rest.
    :returns: for each card its interface, or None for user networking.
    :raises HypervisorError: nothing is left behind.
    """
    for nic in nics:
        check_mode(nic, layout.name)
    try:
        return [
            _connect(nic, index, hvparams, layout, tags, owner_uid, incoming=incoming)
            for index, nic in enumerate(nics)
        ]
    except BaseException:
        remove(layout)
        raise


def _connect(
    nic: Mapping[str, Any],
    index: int,
    hvparams: Mapping[str, Any],
    layout: Layout,
    tags: Sequence[str],
    owner_uid: int | None,
    *,
    incoming: bool = False,
) -> str | None:
    """Make and connect the interface of one card; a failure leaves its file, see :func:`remove`."""
    if nic["nicparams"]["mode"] == net.NIC_MODE_USER or communication.by_qemu(nic):
        return None
    own = communication.is_communication(nic)
    with _telling(layout):
        tap = _make_tap(hvparams, owner_uid, communication.TAP_NAME if own else TAP_NAME)
        try:
            fs.make_dirs(layout.nic_dir, 0o755)
            fs.write_file(_tap_file(layout, index), tap, mode=0o644, sync=False)
        except OSError:
            _delete(tap)
            raise
        if not (incoming and link.waits_for_arrival(nic)):
            link.connect(tap, index, nic, layout, tags, phase=link.PHASE_PRE if incoming else None)
    return tap


def arrived(nics: Sequence[Mapping[str, Any]], layout: Layout, tags: Sequence[str]) -> None:
    """Connect what has waited for a migrated guest; the program for mode ``ext`` is told again.

    :raises HypervisorError: an interface cannot be connected.
    """
    for index, nic in enumerate(nics):
        if communication.by_qemu(nic):
            continue
        if link.waits_for_arrival(nic) or nic["nicparams"]["mode"] == net.NIC_MODE_EXT:
            with _telling(layout):
                link.connect(
                    fs.read_file(_tap_file(layout, index)).strip(), index, nic, layout, tags
                )


@contextlib.contextmanager
def _telling(layout: Layout) -> Iterator[None]:
    """Name the instance in whatever goes wrong inside."""
    try:
        yield
    except (errors.GenericError, OSError) as err:
        raise errors.HypervisorError(
            f"cannot set up the network of instance {layout.name}: {err}"
        ) from err


def _tap_file(layout: Layout, index: int) -> str:
    return f"{layout.nic_dir}/{index}"


# Cards that come and go while the guest runs


@dataclass(frozen=True, slots=True)
class Plug:
    """The host's side of a card that is about to come, opened for QEMU."""

    interface: str | None  # None for user networking
    tap_fds: Sequence[int] = ()  # one for each pair of queues
    vhost_fds: Sequence[int] = ()  # as many, or none when QEMU itself carries the packets


@contextlib.contextmanager
def plug(
    nic: Mapping[str, Any],
    index: int,
    count: int,
    hvparams: Mapping[str, Any],
    layout: Layout,
    tags: Sequence[str] = (),
    owner_uid: int | None = None,
) -> Iterator[Plug]:
    """Make, connect and open the interface of a card; what fails inside takes it away again.

    :param index: position of the card among the cards of the guest.
    :param count: number of cards so far; those from ``index`` on move up.
    :raises HypervisorError: nothing is left behind.
    """
    check_mode(nic, layout.name)
    for number in reversed(range(index, count)):
        _move_tap(layout, number, number + 1)
    fds: list[int] = []
    try:
        tap = _connect(nic, index, hvparams, layout, tags, owner_uid)
        if tap is None:
            yield Plug(None)
            return
        try:
            taps = [_open_tap(tap, hvparams) for _ in range(devices.nic_queues(hvparams))]
            fds += taps
            vhosts = (
                [os.open("/dev/vhost-net", os.O_RDWR | os.O_CLOEXEC) for _ in taps]
                if devices.wants_vhost(hvparams) and vhost_works()
                else []
            )
            fds += vhosts
        except OSError as err:
            raise errors.HypervisorError(
                f"cannot open the interface {tap} of instance {layout.name}: {err.strerror}"
            ) from err
        yield Plug(tap, taps, vhosts)
    except BaseException:
        unplug(layout, index, count + 1)
        raise
    finally:
        for fd in fds:
            os.close(fd)


def unplug(layout: Layout, index: int, count: int) -> None:
    """Remove the interface of the card at ``index``; the cards after it move down.

    :param count: number of cards before.
    """
    path = _tap_file(layout, index)
    with contextlib.suppress(FileNotFoundError):
        tap = fs.read_file(path).strip()
        link.disconnect(tap, index, layout)
        _delete(tap)
        fs.remove_file(path)
    for number in range(index + 1, count):
        _move_tap(layout, number, number - 1)


def _move_tap(layout: Layout, old: int, new: int) -> None:
    # A card with user networking has no file.
    with contextlib.suppress(FileNotFoundError):
        os.rename(_tap_file(layout, old), _tap_file(layout, new))


def vhost_works() -> bool:
    """Whether this kernel can carry a guest's packets itself."""
    return os.access("/dev/vhost-net", os.R_OK | os.W_OK)


def remove(layout: Layout) -> None:
    """Remove the interfaces that :func:`set_up` has made; none is no error."""
    try:
        names = fs.list_visible(layout.nic_dir)
    except FileNotFoundError:
        return
    for name in names:
        with contextlib.suppress(OSError, ValueError):
            tap = fs.read_file(f"{layout.nic_dir}/{name}").strip()
            link.disconnect(tap, int(name), layout)
            _delete(tap)
    shutil.rmtree(layout.nic_dir, ignore_errors=True)


def _delete(tap: str) -> None:
    if os.path.exists(f"/sys/class/net/{tap}"):
        process.run(["ip", "link", "delete", tap], timeout_s=_TIMEOUT_S, check=False)
