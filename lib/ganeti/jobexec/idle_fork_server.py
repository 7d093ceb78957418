"""The fork server before its first request: a small process, which has loaded nothing.

The master daemon makes it before its first thread, and before it loads what a master needs. As long
as jobs run in threads, the process waits and needs a few MiB. When it had been made after the
modules were loaded, it kept all their pages: counters of references are in the pages of the
objects, so the master daemon soon had copies of its own of nearly all of them.
"""

from __future__ import annotations

import gc
import logging
import os
import socket
from collections.abc import Callable


def start(detach: Callable[[], None], begin: Callable[[], None]) -> socket.socket:
    """Make the process; called before this process has any thread.

    :param detach: called in the new process, before anything else.
    :param begin: called in it when the first request has arrived.
    :returns: the connection to it, see :class:`ganeti.jobexec.forker.Forker`.
    """
    # Both processes share the pages which neither of them changes, and a visit of the garbage
    # collector is a change.
    gc.freeze()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    if os.fork() == 0:
        try:
            ours.close()
            detach()
            if not theirs.recv(1, socket.MSG_PEEK):
                # The master daemon has ended.
                logging.shutdown()
                os._exit(0)
            begin()
            from ganeti.jobexec import fork_server  # everything that a job may need

            fork_server.serve(theirs)
        except BaseException:  # noqa: BLE001 -- the main function of a process
            logging.critical("the fork server ends by an internal error", exc_info=True)
            os._exit(1)
    theirs.close()
    return ours
