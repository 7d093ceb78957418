"""The plan of an operation: what a job would do, as data.

The plan is made by a dry run, which is a job: it takes the locks, makes the checks, calls the hooks
which may refuse the operation, and stops before the first change. So a plan needs the same rights
as the operation, and shows the same refusals. The result of each opcode is its plan
(:class:`ganeti.luxi.answers.OperationPlan`); the answer to the request has those of all opcodes.

A dry run waits for locks like other jobs. After :data:`WAIT_S` seconds the answer comes without the
plans; they are in ``opresult`` of the job when it has ended.

Source: ``doc/design-dry-run.rst``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, TypedDict

from ganeti import errors
from ganeti.constants import job as const
from ganeti.http.messages import Refused
from ganeti.luxi import protocol as wire
from ganeti.luxi.answers import OperationPlan
from ganeti.rapi import typed
from ganeti.rapi.master import Master
from ganeti.wire import errors as wire_errors

#: Seconds for which a request waits for the dry run. Clients and proxies often do not wait longer.
WAIT_S: Final = 10.0
_FIELDS: Final = ("status", "opresult", "opstatus")


class Planned(TypedDict):
    """The answer to a request for a plan.

    ``possible`` is None while the dry run has not ended (or if somebody canceled it), and False if
    the operation is refused, with the error as ``reason`` and its code, such as ``wrong_state``, as
    ``ecode``. ``plans`` has an entry for each opcode, up to the one which is refused.
    """

    job: int
    status: str
    possible: bool | None
    reason: str | None
    ecode: str | None
    plans: list[OperationPlan]


_POSSIBLE: Final = {const.STATUS_SUCCESS: True, const.STATUS_ERROR: False}
#: The type of the answer.
ANSWER: Final = typed.of(Planned)


async def of_job(
    master: Master, job_id: int, *, clock: Callable[[], float] = time.monotonic
) -> Planned:
    """Wait for the end of a dry run, and return its plans.

    :param clock: seconds of a clock which never jumps.
    :raises Refused: 404 when the job was archived meanwhile.
    :raises errors.GenericError: the master does not answer.
    """
    deadline = clock() + WAIT_S
    info: list[str] | None = None
    serial = 0
    while (left := deadline - clock()) > 0:
        answer = await master.call("WaitForJobChange", job_id, ["status"], info, serial, left)
        if answer == wire.NO_CHANGE:
            break
        info, entries = answer
        if info is None or info[0] in const.FINALIZED:
            break
        serial = max([serial, *(entry[0] for entry in entries or ())])
    (row,) = await master.call("QueryJobs", [job_id], _FIELDS)
    if row is None:
        raise Refused(404, f"job {job_id} does not exist")
    return _answer(job_id, *row)


def _answer(job_id: int, status: str, results: list[Any], states: list[str]) -> Planned:
    reason, ecode = None, None
    if const.STATUS_ERROR in states:
        reason, ecode = _error(results[states.index(const.STATUS_ERROR)])
    return {
        "job": job_id,
        "status": status,
        "possible": _POSSIBLE.get(status),
        "reason": reason,
        "ecode": ecode,
        "plans": [
            result
            for result, state in zip(results, states, strict=True)
            if state == const.STATUS_SUCCESS and result is not None
        ],
    }


def _error(result: Any) -> tuple[str, str | None]:
    """Return text and code of the error which ended an opcode."""
    err = wire_errors.decode(result)
    if err is None:
        return str(result), None
    return str(err), err.ecode if isinstance(err, errors.OpPrereqError) else None
