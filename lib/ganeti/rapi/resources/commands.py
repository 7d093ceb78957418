"""What the ``gnt-*`` commands need on a machine which is not in the cluster.

The commands send opcodes, ask for objects by their names, and change settings of the queue and the
watcher. Programs may use these resources as well.

Source: ``doc/design-commands-over-rest.rst``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ganeti import errors, ht
from ganeti.http.messages import Refused
from ganeti.opcodes.base import QUERY, OpCode
from ganeti.rapi import declare, opcode_rights
from ganeti.rapi.call import Call
from ganeti.rapi.declare import (
    DELETE,
    GET,
    POST,
    PUT,
    READERS,
    DirectChange,
    Field,
    Query,
    Read,
    Resource,
    Result,
)
from ganeti.rapi.resources.common import job_number
from ganeti.utils import author

_OPS: Final = ht.ListOf(ht.Dict)
_MOST_JOBS: Final = 1000
_ROWS: Final = ht.ListOf(ht.Tuple(ht.Bool, ht.Or(ht.NonNegInt, ht.Str)))
_PRIORITY: Final = Result(ht.Tuple(ht.Bool, ht.Str), "[whether it was changed, a sentence]")
_CHANGED: Final = Result(ht.Bool, "whether the queue refuses new jobs now")
_PAUSE: Final = Result(
    ht.Maybe(ht.Or(ht.Int, ht.Float)),
    "end of the pause in seconds since 1970; null without a pause",
)
_JOB_PATH: Final = "/2/jobs/{job_id}"
# Seconds for which one request archives jobs.
_ARCHIVE_S: Final = 30


async def _checked(call: Call, rows: Sequence[Mapping[str, Any]]) -> list[OpCode]:
    """Return the opcodes of a request, if the user may submit them, with their reason.

    :raises Refused: 400 for a wrong opcode, 403 for one which the user may not submit.
    """
    try:
        ops = opcode_rights.from_dicts(rows)
    except (errors.OpPrereqError, errors.OpCodeUnknown) as err:
        raise Refused(400, f"invalid request: {err}") from err
    assert call.who is not None
    await call.state.check_opcodes(call.who, ops)
    for op in ops:
        op.reason = [*author.without_persons(op.reason), *call.reason()]
    return ops


async def _submit(call: Call) -> Any:
    one, several = call.body["ops"], call.body["jobs"]
    if (one is None) == (several is None):
        raise Refused(400, "give 'ops', the opcodes of one job, or 'jobs', a list of such lists")
    if one is not None:
        return await call.state.job_limits.submit(call.user, await _checked(call, one))
    if len(several) > _MOST_JOBS:
        raise Refused(400, f"a request may submit {_MOST_JOBS} jobs, not {len(several)}")
    jobs = [await _checked(call, rows) for rows in several]
    found = await call.state.job_limits.submit_many(call.user, jobs)
    return [[isinstance(one, int), one] for one in found]


async def _run_query(call: Call) -> Any:
    (op,) = await _checked(call, [call.body["op"]])
    if op.KIND != QUERY:
        raise Refused(400, f"{op.OP_ID} changes the cluster, so it needs a job (POST /2/jobs)")
    return await call.master.call("RunQuery", op.to_dict())


async def _config_values(call: Call) -> Any:
    return await call.master.call("QueryConfigValues", call.query["fields"])


async def _drain(call: Call) -> Any:
    return await call.master.call("SetDrainFlag", True)


async def _undrain(call: Call) -> Any:
    return await call.master.call("SetDrainFlag", False)


async def _watcher_pause(call: Call) -> Any:
    (until,) = await call.master.call("QueryConfigValues", ["watcher_pause"])
    return until


async def _pause_watcher(call: Call) -> Any:
    return await call.master.call("SetWatcherPause", call.body["until"])


async def _end_pause(call: Call) -> Any:
    return await call.master.call("SetWatcherPause", None)


async def _archive(call: Call) -> Any:
    return await call.master.call("ArchiveJob", job_number(call))


async def _archive_old(call: Call) -> Any:
    return await call.master.call("AutoArchiveJobs", call.body["age"], _ARCHIVE_S)


async def _priority(call: Call) -> Any:
    return await call.master.call("ChangeJobPriority", job_number(call), call.body)


async def _usage(call: Call) -> Any:
    return await call.master.call("QueryGuestsUsage")


async def _console_log(call: Call) -> Any:
    lines = call.query["lines"]
    if lines is not None and lines < 0:
        raise Refused(400, "query argument 'lines' must be 0 or more")
    return await call.master.call(
        "ReadConsoleLog",
        call.uri["instance_name"],
        100 if lines is None else lines,
        call.query["position"] or "",
    )


RESOURCES: Final = (
    Resource(
        "/2/run-query",
        "run_query",
        {
            PUT: Read(
                _run_query,
                "Carry out an opcode that only reads, without a job.",
                Result(ht.Dict, "result of the opcode, and warnings: a list of sentences"),
                fields={
                    "op": Field(ht.Dict, "the opcode: OP_ID and parameters", required=True),
                },
                access=declare.USERS,
            ),
        },
    ),
    Resource(
        "/2/config-values",
        "config_values",
        {
            GET: Read(
                _config_values,
                "Read single values of the configuration.",
                Result(ht.List, "the values in the order of the fields; null for an unknown one"),
                (
                    Query(
                        "fields",
                        "names, separated by commas: cluster_name, master_node, drain_flag,"
                        " queue_pause, watcher_pause",
                        declare.WORDS,
                        required=True,
                    ),
                ),
                access=READERS,
            ),
        },
    ),
    Resource(
        "/2/queue/drain",
        "queue_drain",
        {
            PUT: DirectChange(_drain, "Let the queue refuse new jobs.", _CHANGED),
            DELETE: DirectChange(_undrain, "Let the queue accept new jobs again.", _CHANGED),
        },
    ),
    Resource(
        "/2/watcher/pause",
        "watcher_pause",
        {
            GET: Read(
                _watcher_pause, "Read until when the watcher pauses.", _PAUSE, access=READERS
            ),
            PUT: DirectChange(
                _pause_watcher,
                "Pause the watcher.",
                _PAUSE,
                fields={
                    "until": Field(
                        ht.NonNeg(ht.Or(ht.Int, ht.Float)),
                        "end of the pause in seconds since 1970",
                        required=True,
                    )
                },
            ),
            DELETE: DirectChange(_end_pause, "End the pause of the watcher.", _PAUSE),
        },
    ),
    Resource(
        "/2/jobs/archive",
        "jobs_archive",
        {
            POST: DirectChange(
                _archive_old,
                f"Archive the jobs which ended some time ago, for at most {_ARCHIVE_S} seconds.",
                Result(
                    ht.Tuple(ht.NonNegInt, ht.NonNegInt),
                    "[number of archived jobs, number of jobs for which there was no time]",
                ),
                fields={
                    "age": Field(
                        ht.Int, "seconds since the end of a job; -1: all ended jobs", required=True
                    )
                },
            ),
        },
    ),
    Resource(
        f"{_JOB_PATH}/archive",
        "jobs_id_archive",
        {
            POST: DirectChange(
                _archive,
                "Archive an ended job.",
                Result(ht.Bool, "whether the job was archived; false for one which has not ended"),
            ),
        },
    ),
    Resource(
        f"{_JOB_PATH}/priority",
        "jobs_id_priority",
        {
            PUT: DirectChange(
                _priority,
                "Change the priority of the unfinished opcodes of a job.",
                _PRIORITY,
                fields=ht.Within(ht.Int, -20, 19),
            ),
        },
    ),
    Resource(
        "/2/guests/usage",
        "guests_usage",
        {
            GET: Read(
                _usage,
                "Measure processor time, memory and traffic of the running guests.",
                Result(ht.Dict, "time of the measurement, and values of each guest"),
                access=READERS,
            ),
        },
    ),
    Resource(
        "/2/instances/{instance_name}/console-log",
        "instances_name_console_log",
        {
            GET: Read(
                _console_log,
                "Read what an instance wrote to its serial console.",
                Result(
                    ht.Dict,
                    "text; position of its end, for the next request; lost: whether text before"
                    " is missing; node: name of the node",
                ),
                (
                    Query("lines", "number of lines at the end of the log (100)", declare.NUMBER),
                    Query("position", "only what follows this position", declare.TEXT),
                ),
                access=READERS,
            ),
        },
    ),
)
#: Operations of ``/2/jobs`` besides reading: see :mod:`ganeti.rapi.resources.jobs`.
SUBMIT: Final = DirectChange(
    _submit,
    "Submit one job or several, made of opcodes. A user may submit the opcodes of the operations"
    " which he may use.",
    Result(
        ht.Or(ht.NonNegInt, _ROWS),
        "number of the job; for several jobs [true, number] or [false, a sentence] each",
    ),
    fields={
        "ops": Field(ht.Maybe(_OPS), "opcodes of one job: OP_ID and parameters each"),
        "jobs": Field(ht.Maybe(ht.ListOf(_OPS)), "opcodes of several jobs"),
    },
    access=declare.USERS,
)
