"""The main function of the master daemon: whether it may start here, and its end by a signal.

``ganeti-masterd`` runs on the master node only: on other nodes it refuses with exit code 11, before
it loads what a master needs (:mod:`ganeti.server.mastering`). Systemd and ``daemon-util`` start it
on every node.

Source: Ganeti design 2.0, *Master daemon*.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Final

from ganeti.config import ssconf
from ganeti.constants import cli as exit_codes
from ganeti.constants import ssconf as ssconf_const
from ganeti.platform import paths
from ganeti.server import daemon
from ganeti.server.mastership import NAME, OVERRIDE_WARNING, check_master
from ganeti.utils import memory

if TYPE_CHECKING:
    from ganeti.server.mastering import MasterDaemon


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this daemon."""
    parser.add_argument(
        "--no-voting",
        action="store_true",
        help="do not ask the other nodes whether this one may be the master (dangerous)",
    )
    parser.add_argument(
        "--yes-do-it", action="store_true", help="do not ask for confirmation of --no-voting"
    )


def check(options: argparse.Namespace) -> None:
    """Refuse to start anywhere but on the master node.

    :raises StartRefused: exit code 11 on another node, 5 where there is no cluster, 1 if
        ``--no-voting`` is not confirmed.
    """
    here = paths.current()
    if not os.path.exists(here.ssconf_file(ssconf_const.MASTER_NODE)):
        raise daemon.StartRefused(
            "this machine belongs to no cluster. Make one with gnt-cluster init.",
            exit_codes.EXIT_NOTCLUSTER,
        )
    check_master(ssconf.SimpleStore(here).master_node())
    if options.no_voting:
        print(f"{NAME}: warning: {OVERRIDE_WARNING}", file=sys.stderr)
        if not options.yes_do_it and not _confirmed():
            raise daemon.StartRefused(
                "--no-voting was not confirmed. Type YES, or give --yes-do-it."
            )


def _confirmed() -> bool:
    """Ask the user for a confirmation, if there is a terminal."""
    if not sys.stdin.isatty():
        return False
    return input("If you are sure, type YES in capital letters: ").strip() == "YES"


def prepare(options: argparse.Namespace) -> MasterDaemon:
    """Load the master daemon and let it take its role (:func:`ganeti.server.mastering.prepare`)."""
    # No thread runs yet, and little is loaded.
    memory.use_one_heap()
    from ganeti.server import mastering  # 250 modules, which a node that is not the master spares

    return mastering.prepare(options)


def run(options: argparse.Namespace, master: MasterDaemon, signals: daemon.Signals) -> int | None:
    """Serve until a signal says to stop (:func:`ganeti.server.mastering.run`)."""
    from ganeti.server import mastering

    return mastering.run(options, master, signals)


DAEMON: Final = daemon.Daemon(NAME, check, prepare, run, add_options=add_options, early_drop=True)
main = DAEMON.main
