"""Cancel jobs, and say how they ended (``gnt-job cancel``).

A job which has not begun is canceled at once. A job which runs goes on to the next point where it
can stop, and may succeed or fail before it comes there. So the command waits for the end of each.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import failures, jobs, listing, terminal
from ganeti.constants import job as const

if TYPE_CHECKING:
    from typing import Any

    from ganeti.luxi import client as luxi

# States of a job which has begun, before a client cancels it.
_BEGUN = (const.STATUS_RUNNING, const.STATUS_CANCELING)

# Programs look for this text.
_CANCELED = "Job successfully cancelled"


def cancel(client: luxi.Client, job_ids: Sequence[int], *, wait: bool) -> int:
    """Cancel jobs, and write what becomes of each.

    :param wait: wait for the end of each job; otherwise only of those that had not begun.
    :returns: the exit code: 0 when all were canceled, or when they are left to end later.
    :raises WaitInterrupted: the user interrupted the waiting; the jobs end later.
    """
    code = failures.EXIT_SUCCESS
    awaited: list[tuple[int, bool]] = []
    for job_id in job_ids:
        (before,) = client.query_jobs([job_id], ["status", "summary"])
        success, message = client.cancel_job(job_id)
        if not success:
            terminal.out(str(message))
            code = failures.EXIT_FAILURE
            continue
        begun = before is not None and before[0] in _BEGUN
        if begun:
            terminal.out(_goes_on(job_id, before, wait))
        if wait or not begun:
            awaited.append((job_id, begun))
    started = time.monotonic()
    for place, (job_id, begun) in enumerate(awaited):
        try:
            ended = jobs.follow_job(client, job_id, lambda line: None)
        except KeyboardInterrupt as err:
            raise jobs.WaitInterrupted([job_id for job_id, _ in awaited[place:]]) from err
        except errors.JobLost:
            # Archived by now, so it has ended; "gnt-job list" shows how.
            terminal.out(f"Job {job_id} has ended")
            continue
        passed_s = time.monotonic() - started if begun else None
        code = max(code, _report(job_id, ended, passed_s))
    return code


def _goes_on(job_id: int, before: Sequence[Any], wait: bool) -> str:
    """Return the lines about a job which runs.

    :param before: its state and its summary.
    """
    text = (
        f"Job {job_id} ({listing.join_list(before[1])}) has begun, so it goes on until it can stop"
        " without leaving its work incomplete."
    )
    return (
        f"{text} Waiting for its end; Ctrl-C ends only the waiting."
        if wait
        else f"{text} 'gnt-job wait {job_id}' shows its end."
    )


def _report(job_id: int, ended: Sequence[Any], passed_s: float | None) -> int:
    """Write how a job ended; return the exit code.

    :param ended: the values of :data:`ganeti.cli.jobs.RESULT_FIELDS`.
    :param passed_s: seconds since it was canceled; None when it had not begun.
    """
    if ended[0] == const.STATUS_CANCELED:
        terminal.out(
            _CANCELED if passed_s is None else f"Job {job_id} was canceled after {passed_s:.1f} s"
        )
        return failures.EXIT_SUCCESS
    if ended[0] == const.STATUS_SUCCESS:
        terminal.err(
            f"Job {job_id} was not canceled: it ended with success before it came to a point where"
            " it can stop"
        )
        return failures.EXIT_FAILURE
    try:
        jobs.job_result(job_id, ended)
    except errors.GenericError as err:
        terminal.err(f"Job {job_id} failed before it could stop: {failures.sentence(err)}")
    return failures.EXIT_FAILURE
