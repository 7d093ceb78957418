"""The main function of ``ganeti-kvmd``, which notices guests that are shut down from inside.

The work is in :mod:`ganeti.hypervisor.kvm.user_shutdown`. The daemon runs on nodes of a cluster
with ``enabled_user_shutdown`` and the hypervisor kvm. It keeps no state and may be restarted at any
time; while it does not run, a shutdown from inside looks like a crash of the guest.

Source: Ganeti daemons design.
"""

from __future__ import annotations

import argparse
from typing import Final, NamedTuple

from ganeti.hypervisor.kvm.user_shutdown import ShutdownMonitor
from ganeti.platform import paths
from ganeti.server import daemon
from ganeti.utils import fs, inotify
from ganeti.utils.net import wait_readable

NAME = "ganeti-kvmd"

# New sockets are found after this time even if inotify reports nothing.
_POLL_S = 5.0
_AGAIN_S = 0.05


class KvmDaemon(NamedTuple):
    """The parts of a ganeti-kvmd that has started."""

    monitor: ShutdownMonitor
    watch: inotify.DirectoryWatch | None


def check(options: argparse.Namespace) -> None:
    """Refuse to start on a machine that is not a node.

    :raises StartRefused: this machine is not a node.
    """
    daemon.require_member(paths.current().noded_cert_file)


def prepare(options: argparse.Namespace) -> KvmDaemon:
    """Connect to the guests that run."""
    directory = f"{paths.current().kvm_root}/ctrl"
    fs.make_dirs(directory, 0o775)
    monitor = ShutdownMonitor(directory)
    # Before the first poll, so that no guest is missed between the two.
    watch = inotify.watch(directory, created=True)
    monitor.connect()
    return KvmDaemon(monitor, watch)


def run(options: argparse.Namespace, kvmd: KvmDaemon, signals: daemon.Signals) -> int | None:
    """Listen until a signal says to stop."""
    monitor, watch = kvmd
    while True:
        pause_s = _AGAIN_S if monitor.connect() else _POLL_S
        watches = [] if watch is None else [watch.fileno()]
        ready = wait_readable([signals, *watches, *monitor.connections()], pause_s)
        if signals.fileno() in ready and signals.take_stop():
            monitor.close()
            return None
        if watch is not None and watch.fileno() in ready:
            watch.take()
        monitor.read(ready)


DAEMON: Final = daemon.Daemon(NAME, check, prepare, run)
main = DAEMON.main
