"""What this node knows about the master daemon: its own one, and what its failover daemon has seen.

The candidates ask the master about once a second whether it serves, so the answer must be cheap: it
is given by a process which stays (``keep`` in the table of calls), and costs one request to the
local socket. Nothing here decides; ``ganeti-failoverd`` and the administrator do.
"""

from __future__ import annotations

import os
import time

from ganeti import errors
from ganeti.backend.cluster import ssconf
from ganeti.backend.node.info import watcher_pause
from ganeti.backend.registry import serves
from ganeti.constants import failover as const
from ganeti.constants import ssconf as ssconf_const
from ganeti.luxi.client import Client
from ganeti.objects.transfer import MasterStatus
from ganeti.platform import failover_report, master_epoch, paths
from ganeti.utils import filelock
from ganeti.wire import calls

# A master which needs longer for the smallest answer serves nobody at this moment.
_ANSWER_S = 1.5


@serves(calls.MASTER_STATUS)
def status() -> MasterStatus:
    """Describe the master daemon of this node, and the report of its failover daemon.

    :raises ConfigurationError: a file of this node is missing or damaged.
    """
    here = paths.current()
    report = failover_report.read()
    watching = filelock.is_locked(here.pid_file("ganeti-failoverd"))
    try:
        paused_until = watcher_pause()
    except errors.ParseError:
        paused_until = None
    daemon, commit_age_s = master_daemon()
    seen_s = commit_age_s
    if seen_s is None and watching and report.seen_at is not None:
        seen_s = max(0.0, time.monotonic() - report.seen_at)
    return MasterStatus(
        master=ssconf.read(ssconf_const.MASTER_NODE),
        epoch=str(master_epoch.read().epoch),
        daemon=daemon,
        watching=watching,
        watched=report.watched if watching else "",
        state=report.state if watching else "",
        seen_s=seen_s,
        text=report.text if watching else "",
        acted=report.acted,
        paused_until=paused_until,
    )


def master_daemon() -> tuple[str, float | None]:
    """Describe the master daemon of this node.

    :returns: its state, a word of its constants, and the seconds since a majority confirmed last
        that it can commit; None if it does not know that.
    """
    here = paths.current()
    if not filelock.is_locked(here.pid_file("ganeti-masterd")):
        return const.STOPPED if os.path.exists(here.master_stopped_file) else const.DEAD, None
    try:
        with Client(here.master_socket, connect_timeout_s=_ANSWER_S, timeout_s=_ANSWER_S) as client:
            (age,) = client.call("QueryConfigValues", ["commit_age"])
    except errors.GenericError:
        return const.MUTE, None
    return const.SERVING, float(age) if isinstance(age, int | float) else None
