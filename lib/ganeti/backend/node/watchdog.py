"""What the daemon of the hardware watchdog reports, and the release of this node by the master.

Both calls are answered by a process which stays, because the master asks every few seconds.
"""

from __future__ import annotations

from ganeti.backend.registry import serves
from ganeti.objects.transfer import WatchdogStatus
from ganeti.platform import watchdog_files
from ganeti.wire import calls


@serves(calls.WATCHDOG_STATUS)
def status() -> WatchdogStatus:
    """Return the report of ``ganeti-watchdogd``, and the promise of this node.

    :raises ConfigurationError: the stored promise is damaged.
    """
    # The report first: it may not name a promise which is older than the stored one.
    report = watchdog_files.read_report()
    promise = watchdog_files.read_promise()
    return WatchdogStatus(
        state=report.state,
        token=report.token,
        timeout_s=report.timeout_s,
        text=report.text,
        promised="" if promise is None else promise.token,
    )


@serves(calls.WATCHDOG_RELEASE)
def release(token: str) -> None:
    """Release this node from a promise: nobody relies on it any more."""
    watchdog_files.write_release(token)
