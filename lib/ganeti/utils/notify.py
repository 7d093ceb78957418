"""Reports of a daemon to the service manager which started it.

The manager (systemd, for a unit with ``Type=notify``) passes the path of a datagram socket in the
environment variable ``NOTIFY_SOCKET``. Each report is one datagram with lines such as ``READY=1``.
With ``WATCHDOG_USEC`` the manager expects a sign of life at least so often, and restarts a daemon
which sends none. Without these variables nothing is sent.

Source: sd_notify(3), sd_watchdog_enabled(3).
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import MutableMapping

_SOCKET = "NOTIFY_SOCKET"
_WATCHDOG = ("WATCHDOG_USEC", "WATCHDOG_PID")
# Number of signs of life in the time of one, because the machine may be busy and one may be late.
_BEATS = 4
_STATUS_BYTES = 2000


class Notifier:
    """Sends reports of this process; an unreachable manager is not an error.

    :param address: path of the socket, or ``@`` and an abstract name; empty: send nothing.
    :param watchdog_s: seconds within which the manager expects a sign of life; None for never.
    """

    def __init__(self, address: str = "", watchdog_s: float | None = None) -> None:
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._watchdog_s = watchdog_s if address else None
        self._socket: socket.socket | None = None

    @property
    def active(self) -> bool:
        """True if a manager wants reports."""
        return bool(self._address)

    @property
    def beat_interval_s(self) -> float | None:
        """Seconds between two calls of :meth:`beat`; None when the manager expects none."""
        return self._watchdog_s / _BEATS if self._watchdog_s is not None else None

    def ready(self, status: str = "serving") -> None:
        """Report that the daemon serves requests now."""
        self._send("READY=1", f"STATUS={_line(status)}")

    def status(self, text: str) -> None:
        """Report what the daemon does, in one line for people."""
        self._send(f"STATUS={_line(text)}")

    def beat(self) -> None:
        """Report a sign of life."""
        self._send("WATCHDOG=1")

    def stopping(self) -> None:
        """Report that the daemon ends; signs of life are no longer expected."""
        self._send("STOPPING=1", "STATUS=ending")

    def failed(self, text: str) -> None:
        """Report why the daemon ends without having served."""
        self._send(f"STATUS={_line(text)}")

    def unneeded(self, text: str) -> None:
        """Report that the daemon has nothing to do on this machine, and why.

        The manager treats an end without the report *ready* as a failure, with any exit code. So
        this one is sent, and the end counts by its exit code.
        """
        # Without STOPPING=1, which would replace READY=1.
        self._send("READY=1", f"STATUS={_line(text)}")

    def _send(self, *lines: str) -> None:
        if not self._address:
            return
        try:
            if self._socket is None:
                self._socket = socket.socket(
                    socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
                )
            self._socket.sendto("\n".join(lines).encode("utf-8", "replace"), self._address)
        except OSError as err:
            logging.debug("cannot report %s to the service manager: %s", lines[0], err)


def _line(text: str) -> str:
    """Return the text without line breaks, which would begin another report, and not too long."""
    joined = " ".join(text.split())
    return joined.encode("utf-8", "replace")[:_STATUS_BYTES].decode("utf-8", "ignore")


def take(environment: MutableMapping[str, str] | None = None) -> Notifier:
    """Make the notifier which the environment asks for, and remove its variables.

    Programs which this process starts must not report in its name.

    :param environment: the variables; None for those of this process.
    """
    variables = os.environ if environment is None else environment
    address = variables.pop(_SOCKET, "")
    usec, pid = (variables.pop(name, "") for name in _WATCHDOG)
    if not address.startswith(("/", "@")):
        return Notifier()
    ours = pid in ("", str(os.getpid()))
    valid = usec.isascii() and usec.isdigit() and len(usec) < 20 and int(usec) > 0
    return Notifier(address, int(usec) / 1e6 if ours and valid else None)
