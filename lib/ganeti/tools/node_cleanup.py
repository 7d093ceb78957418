"""The program ``node-cleanup``: removes what makes this machine a node, when no master can do it.

``gnt-node remove`` asks the node to leave its cluster. A node which was off at that time, or whose
cluster is lost, keeps the keys and the configuration; this program removes them, with a copy of
them in an archive. Guests, disks and logs stay. The files are those which
:func:`ganeti.backend.cluster.credentials.leave_files` names.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence

from ganeti import errors
from ganeti.backend.cluster import credentials
from ganeti.config.ssconf import SimpleStore
from ganeti.constants import ssconf
from ganeti.constants.cli import EXIT_SUCCESS, EXIT_USAGE
from ganeti.platform import machine, paths
from ganeti.tools.entry import reports_errors
from ganeti.utils import clock, daemonize, fs

PROGRAM = "node-cleanup"
_MODE = 0o600


def make_parser() -> argparse.ArgumentParser:
    """Describe the options of the program."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        allow_abbrev=False,
        description="Remove the keys and the configuration of a cluster from this machine.",
    )
    add = parser.add_argument
    add("--yes-do-it", action="store_true", help="really do it; without this, show what would go")
    add(
        "--no-backup",
        dest="backup",
        action="store_false",
        help="do not keep a copy of the files in an archive",
    )
    add("-v", "--verbose", action="store_true", help="print the name of each file")
    add("-d", "--debug", action="store_true", help="the same as --verbose")
    return parser


def require_removable(here: paths.Paths, *, name: str) -> None:
    """Check that the cluster does not need this machine.

    :param name: the name of this machine.
    :raises OpPrereqError: a master daemon runs here, or this is the master of other nodes.
    """
    if daemonize.read_pid(here.pid_file("ganeti-masterd")) is not None:
        raise errors.OpPrereqError(
            "the master daemon runs here. Move the role with 'gnt-cluster master-failover' on"
            " another node, or destroy the cluster with 'gnt-cluster destroy'",
            errors.ECODE_STATE,
        )
    store = SimpleStore(here)
    try:
        master = store.get(ssconf.MASTER_NODE).strip()
        nodes = store.get_list(ssconf.NODE_LIST)
    except errors.ConfigurationError:
        # Nothing is known about the cluster, which is what this program is for.
        return
    others = [node for node in nodes if node != name]
    if master == name and others:
        raise errors.OpPrereqError(
            f"this machine is the master of {', '.join(others)}. Move the role first, with"
            " 'gnt-cluster master-failover' on one of them",
            errors.ECODE_STATE,
        )


def back_up(here: paths.Paths, files: Sequence[str]) -> str:
    """Write the files into a new archive beside the directory of the data; return its path."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(clock.now()))
    path = f"{here.data_dir}.removed-{stamp}.tar.gz"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE)
    with os.fdopen(descriptor, "wb") as stream:
        with tarfile.open(fileobj=stream, mode="w:gz") as archive:
            for file in files:
                archive.add(file)
        stream.flush()
        os.fsync(stream.fileno())
    fs.flush_dir(os.path.dirname(path))
    return path


def clean_up(options: argparse.Namespace, here: paths.Paths, *, name: str) -> int:
    """Do what the program is for; return the exit code.

    :raises OpPrereqError: the cluster needs this machine; nothing was changed.
    :raises OSError: a file cannot be read or removed.
    """
    require_removable(here, name=name)
    files = [path for path in credentials.leave_files(here) if os.path.lexists(path)]
    if not files:
        print(f"{PROGRAM}: this machine belongs to no cluster; nothing was changed")
        return EXIT_SUCCESS
    if options.verbose or options.debug or not options.yes_do_it:
        print("\n".join(files))
    if not options.yes_do_it:
        print(
            f"{PROGRAM}: nothing was changed. With --yes-do-it the daemons are stopped and these"
            " files are removed. Guests and disks stay.",
            file=sys.stderr,
        )
        return EXIT_USAGE
    _stop_daemons()
    if options.backup:
        print(f"{PROGRAM}: the files are in {back_up(here, files)}, which contains keys")
    credentials.remove_files(here)
    print(f"{PROGRAM}: this machine belongs to no cluster any more. Guests and disks stay.")
    return EXIT_SUCCESS


def _stop_daemons() -> None:
    done = subprocess.run([paths.daemon_util(), "stop-all"], stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise errors.OpPrereqError(
            "the daemons of this node cannot be stopped; nothing was removed", errors.ECODE_STATE
        )


@reports_errors(PROGRAM)
def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; returns the exit code."""
    options = make_parser().parse_args(argv)
    return clean_up(options, paths.current(), name=machine.current().hostname())
