"""The hardware watchdog: a device which restarts the machine unless somebody feeds it.

The device counts from the moment at which it is opened. It is disarmed by the letter ``V`` as the
last one before it is closed (*magic close*); when it is closed without that, because the process
was killed, it goes on counting. A driver which cannot do this is refused, because the end of a
process would disarm it while guests run.

On a node of a virtual cluster the device is a FIFO, at whose other end ``devel/fake_watchdog.py``
plays the hardware.

Source: the kernel's ``Documentation/watchdog/watchdog-api.rst``.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import struct
from typing import Final, NamedTuple

from ganeti import errors

# From <linux/watchdog.h>; the same on all architectures with the common layout of requests.
_GET_SUPPORT: Final = 0x80285700
_SET_TIMEOUT: Final = 0xC0045706
_GET_TIMEOUT: Final = 0x80045707
_CAN_SET_TIMEOUT: Final = 0x0080
_MAGIC_CLOSE: Final = 0x0100
_INFO: Final = struct.Struct("=II32s")

_FEED: Final = b"\0"
_DISARM: Final = b"V"
#: The driver which counts inside the kernel: it stops together with it.
_SOFTWARE: Final = "Software Watchdog"


class Identity(NamedTuple):
    """What the driver says about itself: its name, and flags ``WDIOF_*``."""

    name: str
    options: int


def parse_identity(data: bytes) -> Identity:
    """Read a ``struct watchdog_info``.

    :raises ParseError: it is too short.
    """
    if len(data) < _INFO.size:
        raise errors.ParseError("the description of the watchdog is too short")
    options, _version, name = _INFO.unpack_from(data)
    return Identity(name.partition(b"\0")[0].decode("ascii", "replace"), options)


def why_unfit(identity: Identity) -> str | None:
    """Return why a device does not certainly restart the machine; None if it does."""
    if identity.name == _SOFTWARE:
        return (
            "it counts in the kernel (module softdog), so it does nothing when the kernel hangs"
            " while guests still run"
        )
    if not identity.options & _MAGIC_CLOSE:
        return "its driver disarms it when a process ends, because it has no magic close"
    if not identity.options & _CAN_SET_TIMEOUT:
        return "its driver does not set timeouts"
    return None


class Device:
    """An armed device. From :meth:`open` on it has to be fed.

    :ivar timeout_s: seconds after the last feeding at which it restarts the machine, as the driver
        has reported them.
    """

    def __init__(self, fd: int, path: str) -> None:
        self._fd = fd
        self._path = path
        self._is_fifo = stat.S_ISFIFO(os.fstat(fd).st_mode)
        self.timeout_s = 0

    @classmethod
    def open(cls, path: str, timeout_s: int) -> Device:
        """Open and arm a device; when it is refused, it is disarmed again.

        :param timeout_s: the timeout to set.
        :raises HypervisorError: there is no device, another program holds it, or it is unfit.
        """
        try:
            fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as err:
            raise errors.HypervisorError(_why_closed(path, err)) from err
        found = cls(fd, path)
        try:
            found._arm(timeout_s)
        except errors.HypervisorError:
            found.disarm()
            raise
        except (OSError, errors.ParseError) as err:
            found.disarm()
            raise errors.HypervisorError(f"watchdog {path} cannot be used: {err}") from err
        return found

    def _arm(self, timeout_s: int) -> None:
        if self._is_fifo:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as err:
                raise errors.HypervisorError(_why_closed(self._path, err)) from err
            os.write(self._fd, f"{timeout_s}\n".encode())
            self.timeout_s = timeout_s
            return
        data = fcntl.ioctl(self._fd, _GET_SUPPORT, bytes(_INFO.size))
        reason = why_unfit(parse_identity(data))
        if reason is not None:
            raise errors.HypervisorError(f"watchdog {self._path} is not used: {reason}")
        fcntl.ioctl(self._fd, _SET_TIMEOUT, struct.pack("i", timeout_s))
        (real_s,) = struct.unpack("i", fcntl.ioctl(self._fd, _GET_TIMEOUT, bytes(4)))
        if not 0 < real_s <= 2 * timeout_s:
            raise errors.HypervisorError(
                f"watchdog {self._path} is not used: it has the timeout {real_s} s instead of"
                f" {timeout_s} s"
            )
        self.timeout_s = real_s

    def feed(self) -> None:
        """Let the device count from the beginning.

        :raises HypervisorError: the device does not exist any more.
        """
        try:
            os.write(self._fd, _FEED)
        except OSError as err:
            raise errors.HypervisorError(
                f"watchdog {self._path} cannot be fed: {err.strerror}"
            ) from err

    def disarm(self) -> None:
        """Disarm and close the device."""
        with contextlib.suppress(OSError):
            os.write(self._fd, _DISARM)
        os.close(self._fd)


def _why_closed(path: str, err: OSError) -> str:
    if err.errno in (errno.EBUSY, errno.EAGAIN):
        return (
            f"watchdog {path} is used by another program. If that is systemd, remove"
            " RuntimeWatchdogSec from /etc/systemd/system.conf"
        )
    if err.errno in (errno.ENOENT, errno.ENXIO, errno.ENODEV):
        return f"there is no watchdog {path}. Load the kernel module of its driver"
    return f"watchdog {path} cannot be opened: {err.strerror}"
