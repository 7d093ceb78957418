"""The main function of ``ganeti-failoverd``: loop and signals. The work is in its own package.

The daemon runs on every node of a cluster with the parameter ``auto_failover``, so that a new
master candidate watches at once. It keeps no state on disk and may be restarted at any time; a
restart begins to watch anew.

Source: ``doc/design-auto-failover.rst``.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Final

from ganeti.master_failover import child
from ganeti.master_failover.master_poll import MasterPoll
from ganeti.platform import paths
from ganeti.rpc import AddressRunner, open_client
from ganeti.server import daemon
from ganeti.utils.net import wait_readable

NAME = "ganeti-failoverd"


def check(options: argparse.Namespace) -> None:
    """Refuse to start on a machine that is not a node.

    :raises StartRefused: this machine is not a node.
    """
    daemon.require_member(paths.current().noded_cert_file)


def prepare(options: argparse.Namespace) -> AddressRunner:
    """Read the credentials.

    :raises ConfigurationError: this node has no certificate of the cluster.
    """
    return AddressRunner(open_client())


def run(options: argparse.Namespace, runner: AddressRunner, signals: daemon.Signals) -> int | None:
    """Watch until a signal says to stop."""
    leave = partial(daemon.leave_parent, signals)
    poll = MasterPoll(runner, lambda task: child.start(task, leave))
    while True:
        pause_s = poll.poll()
        readable = wait_readable([signals, *poll.descriptors()], pause_s)
        if signals.fileno() in readable and signals.take_stop():
            poll.close()
            return None


DAEMON: Final = daemon.Daemon(NAME, check, prepare, run)
main = DAEMON.main
