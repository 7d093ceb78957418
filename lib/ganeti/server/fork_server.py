"""The program which makes the processes of jobs, and its start by the master daemon.

It is the only program that the master daemon starts: a new interpreter, because a copy of the
master daemon might find a lock held by a thread which the copy does not have. It belongs to the
same node, user and log as the master daemon, and ends with it. Its work is in
:mod:`ganeti.jobexec.fork_server`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import sys
from typing import Final

from ganeti.jobexec import fork_server
from ganeti.jobexec.forker import Started
from ganeti.platform import paths
from ganeti.server import daemon
from ganeti.utils import daemonize, log, memory, process
from ganeti.wire import json

_MODULE: Final = "ganeti.server.fork_server"
#: The name which programs like ps(1) show.
NAME: Final = "gnt-fork-server"
# Standard input is the connection to the master daemon.
_CONNECTION: Final = 0


def start() -> Started:
    """Start the program.

    :raises OSError: the system cannot make a process.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-P", "-m", _MODULE, json.dumps(daemon.log_settings())],
            {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            file_actions=[(os.POSIX_SPAWN_DUP2, theirs.fileno(), _CONNECTION)],
            setsigmask=(),
        )
    except OSError:
        ours.close()
        raise
    finally:
        theirs.close()
    return Started(ours, pid)


def main() -> None:
    """Make the processes of jobs until the master daemon ends."""
    settings = json.loads(sys.argv[1])
    os.setsid()
    log.setup(**settings)
    try:
        if not settings["stderr"]:
            # A program which starts the master daemon waits until its output is closed.
            daemonize.close_output(log.log_fileno())
        with contextlib.suppress(OSError), open("/proc/self/comm", "w", encoding="ascii") as comm:
            comm.write(NAME)
        memory.use_one_heap()
        process.forbid("jobs run no programs, a node daemon does")
        connection = socket.socket(fileno=os.dup(_CONNECTION))
        # The copies shall not have it, and a log file may be opened in its place.
        os.dup2(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC), _CONNECTION)
        # devel/install-ganeti removes no package which a process has open.
        os.open(os.path.dirname(paths.package_dir()), os.O_PATH | os.O_CLOEXEC)
        fork_server.serve(connection)
    except BaseException:  # noqa: BLE001 -- the main function of a process
        logging.critical("the fork server ends by an internal error", exc_info=True)
        logging.shutdown()
        os._exit(1)


if __name__ == "__main__":
    main()
