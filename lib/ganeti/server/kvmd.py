"""Notices guests that are shut down from inside; the program ``ganeti-kvmd``.

When a guest powers itself off, its QEMU ends as after a crash. This daemon listens on a control
socket of every QEMU of the node (the one named ``<instance>.kvmd``, which nobody else uses), and
when QEMU says that the guest itself wanted the end, it leaves an empty file
``<instance>.shutdown`` beside the socket. The hypervisor shows such an instance as shut down, not
as failed; starting it, or shutting it down officially, removes the file.

It runs on nodes of a cluster with ``enabled_user_shutdown`` and the hypervisor kvm. It owns nothing
and may be restarted at any time; what happens in between looks like a crash of the guest.

Source: seed 004 (daemons), QEMU's QMP reference (event ``SHUTDOWN``).
"""

from __future__ import annotations

import argparse
import logging
import os
import select
import sys
from collections.abc import Sequence
from typing import NamedTuple, NoReturn

from ganeti import errors
from ganeti.platform import paths
from ganeti.server import daemon
from ganeti.utils import clock, fs, inotify, net
from ganeti.wire import json

NAME = "ganeti-kvmd"

_SUFFIX = ".kvmd"
# New sockets are also looked for when inotify says nothing.
_LOOK_S = 5.0
_CONNECT_S = 2.0
# A socket that is no older may have a QEMU that does not listen yet; it is tried often.
_YOUNG_S = 30.0
_AGAIN_S = 0.05
# QEMU's events are a few hundred bytes; more without an end is no QEMU.
_LINE_MAX_BYTES = 1 << 20


class Monitor:
    """The connection to one QEMU.

    :raises OSError: nobody listens on the socket.
    """

    def __init__(self, path: str) -> None:
        self.instance_name = os.path.basename(path).removesuffix(_SUFFIX)
        self._marker = f"{path.removesuffix(_SUFFIX)}.shutdown"
        self._buffer = b""
        self._socket = net.unix_connect(path, _CONNECT_S)
        # Events come after this; its answer and the greeting are read with them.
        self._socket.sendall(b'{"execute": "qmp_capabilities"}\n')
        self._socket.setblocking(False)

    def fileno(self) -> int:
        """Readable when QEMU says something."""
        return self._socket.fileno()

    def close(self) -> None:
        """Leave."""
        self._socket.close()

    def read(self) -> bool:
        """Take what QEMU says; whether it may say more."""
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
        if not by_guest(line):
            return
        logging.info("instance %s was shut down from inside", self.instance_name)
        try:
            fs.write_file(self._marker, "", mode=0o644, sync=False)
        except OSError as err:
            logging.error("cannot write %s: %s", self._marker, err.strerror)


def by_guest(line: bytes) -> bool:
    """Whether a message of QEMU says that the guest has switched itself off."""
    try:
        message = json.loads(line)
    except errors.ParseError:
        return False
    if not isinstance(message, dict) or message.get("event") != "SHUTDOWN":
        return False
    data = message.get("data")
    # A reset with -no-reboot ends QEMU, too, and is no shutdown.
    return isinstance(data, dict) and data.get("reason") == "guest-shutdown"


class Watcher:
    """All QEMUs of the node.

    :param directory: where the control sockets are.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._monitors: dict[str, Monitor] = {}

    def look(self) -> bool:
        """Connect to those that are new; whether there is one that should listen at any moment.

        QEMU makes its socket, which is when we are told of it, before it listens on it.
        """
        try:
            names = [name for name in os.listdir(self._directory) if name.endswith(_SUFFIX)]
        except FileNotFoundError:
            return False
        expected = False
        for name in names:
            if name in self._monitors:
                continue
            path = f"{self._directory}/{name}"
            try:
                self._monitors[name] = Monitor(path)
            except OSError:
                # A stale socket never listens.
                expected = expected or _is_young(path)
            else:
                logging.info("following instance %s", self._monitors[name].instance_name)
        return expected

    def monitors(self) -> list[Monitor]:
        """The connections."""
        return list(self._monitors.values())

    def read(self, ready: set[int]) -> None:
        """Take what has come on these file descriptors."""
        for name, monitor in list(self._monitors.items()):
            if monitor.fileno() in ready and not monitor.read():
                monitor.close()
                del self._monitors[name]

    def close(self) -> None:
        """Leave all of them."""
        for monitor in self._monitors.values():
            monitor.close()
        self._monitors.clear()


def _is_young(path: str) -> bool:
    try:
        return abs(clock.now() - os.stat(path).st_mtime) < _YOUNG_S
    except OSError:
        return False


class _Prepared(NamedTuple):
    watcher: Watcher
    changes: inotify.DirectoryWatch | None


def check(options: argparse.Namespace) -> None:
    """Only where guests of KVM can be.

    :raises Refuse: this machine is no node.
    """
    daemon.require_member(paths.current().noded_cert_file)


def prepare(options: argparse.Namespace) -> _Prepared:
    """Look for guests that run."""
    directory = f"{paths.current().kvm_root}/ctrl"
    fs.make_dirs(directory, 0o775)
    watcher = Watcher(directory)
    # Before the first look, so that no guest falls between the two.
    changes = inotify.watch(directory, created=True)
    watcher.look()
    return _Prepared(watcher, changes)


def run(options: argparse.Namespace, prepared: _Prepared, signals: daemon.Signals) -> int | None:
    """Listen until a signal says to stop."""
    watcher, changes = prepared
    while True:
        pause_s = _AGAIN_S if watcher.look() else _LOOK_S
        poll = select.poll()
        for one in (signals, changes, *watcher.monitors()):
            if one is not None:
                poll.register(one.fileno(), select.POLLIN)
        ready = {fd for fd, _ in poll.poll(pause_s * 1000)}
        if signals.fileno() in ready and any(
            number in daemon.STOP_SIGNALS for number in signals.take()
        ):
            watcher.close()
            return None
        if changes is not None and changes.fileno() in ready:
            changes.take()
        watcher.read(ready)


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Entry point of ``ganeti-kvmd``."""
    daemon.main(NAME, sys.argv[1:] if argv is None else argv, check=check, prepare=prepare, run=run)
