"""Noticing that a guest has switched itself off; used by the daemon ``ganeti-kvmd``.

When a guest powers itself off, its QEMU ends, which looks like a crash. :class:`ShutdownMonitor`
listens on a control socket of every QEMU of the node (the one named ``<instance>.kvmd``, which no
other program uses). When QEMU reports that the guest itself ended the machine, the monitor leaves
an empty file ``<instance>.shutdown`` beside the socket. The hypervisor reports such an instance as
shut down by its user and not as failed; starting it, or shutting it down with a job, removes the
file.

Source: Ganeti daemons design; QEMU QMP reference, event ``SHUTDOWN``.
"""

from __future__ import annotations

import logging
import os
from functools import partial

from ganeti import errors
from ganeti.utils import clock, fs, net, shortage
from ganeti.wire import json

_SUFFIX = ".kvmd"
_CONNECT_S = 2.0
# Seconds for which the mark of a guest is written again while there is no space for it.
_FULL_S = 10.0
# A younger socket may belong to a QEMU which does not listen yet; connections are tried often.
_YOUNG_S = 30.0
# QEMU's events have a few hundred bytes; a peer that sends more without an end is not QEMU.
_LINE_MAX_BYTES = 1 << 20


class QemuConnection:
    """The connection to one QEMU, on which its events arrive.

    :param path: the control socket.
    :raises OSError: no process listens on the socket.
    """

    def __init__(self, path: str) -> None:
        self.instance_name = os.path.basename(path).removesuffix(_SUFFIX)
        self._marker = f"{path.removesuffix(_SUFFIX)}.shutdown"
        self._buffer = b""
        self._socket = net.unix_connect(path, _CONNECT_S)
        # QEMU sends events after this command; its answer and the greeting are read with them.
        self._socket.sendall(b'{"execute": "qmp_capabilities"}\n')
        self._socket.setblocking(False)

    def fileno(self) -> int:
        """Return the file descriptor; it is readable when QEMU has sent something."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def read(self) -> bool:
        """Read the events which have arrived, without waiting.

        :returns: False when QEMU has closed the connection.
        """
        try:
            data = self._socket.recv(65536)
        except BlockingIOError:
            return True
        except OSError:
            data = b""
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            self._note(line)
        return bool(data) and len(self._buffer) <= _LINE_MAX_BYTES

    def _note(self, line: bytes) -> None:
        if not is_guest_shutdown(line):
            return
        logging.info("instance %s was shut down from inside", self.instance_name)
        try:
            # Without it, the guest would be started again.
            shortage.outlast(
                partial(fs.write_file, self._marker, "", mode=0o644, sync=False),
                timeout_s=_FULL_S,
                what=f"writing {self._marker}",
            )
        except OSError as err:
            logging.error("cannot write %s: %s", self._marker, err.strerror)


def is_guest_shutdown(line: bytes) -> bool:
    """Return True if a message of QEMU says that the guest has switched itself off."""
    try:
        message = json.loads(line)
    except errors.ParseError:
        return False
    if not isinstance(message, dict) or message.get("event") != "SHUTDOWN":
        return False
    data = message.get("data")
    # A reset with -no-reboot ends QEMU, too, and is not a shutdown.
    return isinstance(data, dict) and data.get("reason") == "guest-shutdown"


class ShutdownMonitor:
    """The connections to all QEMUs of the node.

    :param directory: where the control sockets are.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._connections: dict[str, QemuConnection] = {}

    def connect(self) -> bool:
        """Connect to the QEMUs which are new.

        QEMU creates its socket some time before it listens on it.

        :returns: whether to look again soon: there is a young socket on which no QEMU listens yet,
            or this process lacks descriptors.
        """
        try:
            names = [name for name in os.listdir(self._directory) if name.endswith(_SUFFIX)]
        except FileNotFoundError:
            return False
        except OSError as err:
            if not shortage.described(err):
                raise
            logging.error("cannot look for new guests yet: %s", err)
            return True
        expected = False
        for name in names:
            if name in self._connections:
                continue
            path = f"{self._directory}/{name}"
            try:
                self._connections[name] = QemuConnection(path)
            except OSError:
                # An old socket without a listener is stale.
                expected = expected or _is_young(path)
            else:
                logging.info("following instance %s", self._connections[name].instance_name)
        return expected

    def connections(self) -> list[QemuConnection]:
        """Return the present connections."""
        return list(self._connections.values())

    def read(self, ready: set[int]) -> None:
        """Read the events which have arrived on these file descriptors."""
        for name, connection in list(self._connections.items()):
            if connection.fileno() in ready and not connection.read():
                connection.close()
                del self._connections[name]

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()


def _is_young(path: str) -> bool:
    try:
        return abs(clock.now() - os.stat(path).st_mtime) < _YOUNG_S
    except OSError:
        return False
