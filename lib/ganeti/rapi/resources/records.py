"""What the cluster knows about its work: queue, findings, history, audit, earlier states.

Each answer has a limit. Longer lists are sent page by page: ``next`` of an answer is ``before`` of
the next request, and null at the end.
"""

from __future__ import annotations

from typing import Any, Final

from ganeti import ht
from ganeti.constants import cluster as cluster_const
from ganeti.constants import query as query_const
from ganeti.http.messages import Refused
from ganeti.luxi import answers, explain_text
from ganeti.opcodes.cluster import OpClusterVerify
from ganeti.rapi import typed
from ganeti.rapi.call import Call
from ganeti.rapi.declare import (
    GET,
    NUMBER,
    POST,
    READERS,
    TEXT,
    WORDS,
    Job,
    Query,
    Read,
    Resource,
    Result,
)  # fmt: skip
from ganeti.rapi.resources import groups, instances, networks, nodes
from ganeti.rapi.resources.cluster import with_aliases
from ganeti.rapi.resources.common import job_number, job_number_of, rows_at, serial_of
from ganeti.utils import clock

#: Lines of an answer, unless the client asks for another number.
_LIMIT: Final = 100
_MOST_LINES: Final = 1000
_MOST_JOBS: Final = 5000
# Numbers of jobs, commits and lines, and times.
_MOST_NUMBER: Final = 1 << 40
_EVENTS: Final = ("accepted", "ended")
_KINDS: Final = ("cluster", *cluster_const.OBJECT_KINDS)

_BEFORE: Final = "the member next of the page before; the newest ones without it"
_PERSON: Final = Query("user", "only those of this user", TEXT)
_JOB: Final = Query("job", "only those of the job with this number", NUMBER)
_TIMES: Final = (
    Query("since", "only those from this time on, in seconds since 1970", NUMBER),
    Query("until", "only those up to this time, in seconds since 1970", NUMBER),
)
# Argument -> what the master searches for.
_CHOSEN: Final = {"user": "person"}
_CHOSEN_FINDINGS: Final = ("severity", "object", "name", "group")
_CHOICES: Final = ("user", "job", "since", "until", "object", "kind", "opcode", "event", "status")


class _Explained(answers.Explanation):
    """An explanation with the sentences which ``gnt-job explain`` writes."""

    lines: list[str]


async def _explain(call: Call) -> Any:
    found = await call.master.call("ExplainJob", job_number(call))
    return {**found, "lines": explain_text.describe(found, clock.now())}


async def _explain_several(call: Call) -> Any:
    numbers = []
    for word in call.query["ids"]:
        number = job_number_of(word)
        if number is None:
            raise Refused(400, f"query argument 'ids': no job has the number '{word[:100]}'")
        numbers.append(number)
    return await call.master.call("ExplainJob", numbers)


async def _queue(call: Call) -> Any:
    return await call.master.call("QueryQueue", _limit(call, _MOST_JOBS))


async def _failover_status(call: Call) -> Any:
    return await call.master.call("QueryFailoverStatus")


async def _findings(call: Call) -> Any:
    found = await call.master.call("QueryFindings")
    chosen = {name: call.query[name] for name in _CHOSEN_FINDINGS if call.query[name] is not None}
    findings = [
        one
        for one in found["findings"]
        if all(one[name] == value for name, value in chosen.items())
    ]
    return {**found, "findings": findings}


async def _history(call: Call) -> Any:
    return await _page(call, "FindCommits")


async def _audit(call: Call) -> Any:
    return await _page(call, "FindAuditLines")


async def _page(call: Call, method: str) -> Any:
    limit, before = _limit(call, _MOST_LINES), _number(call, "before")
    return await call.master.call(method, _chosen(call), limit, before)


def _chosen(call: Call) -> dict[str, Any]:
    """Return what the client searches for.

    :raises Refused: an argument is empty, or a number is out of range.
    """
    found = {}
    for name in _CHOICES:
        value = call.query.get(name)
        if value is None:
            continue
        if value == "":
            raise Refused(400, f"query argument '{name}' is empty")
        found[_CHOSEN.get(name, name)] = _number(call, name) if isinstance(value, int) else value
    return found


def _limit(call: Call, most: int) -> int:
    limit: int = call.query["limit"]
    if not 1 <= limit <= most:
        raise Refused(400, f"query argument 'limit' must be from 1 to {most}, not {limit}")
    return limit


def _number(call: Call, name: str) -> int | None:
    value: int | None = call.query[name]
    if value is not None and not 0 <= value <= _MOST_NUMBER:
        raise Refused(400, f"query argument '{name}' must be from 0 to {_MOST_NUMBER}, not {value}")
    return value


async def _info_at(call: Call) -> dict[str, Any]:
    # The same members as those of the present; what the program says about itself is null.
    serial_of(call)
    names = list(await call.master.call("QueryClusterInfo"))
    (row,) = await rows_at(call, query_const.CLUSTER, [], names)
    return with_aliases(dict(zip(names, row, strict=True)))


def _limit_argument(most: int) -> Query:
    return Query("limit", f"largest number of entries, at most {most}", NUMBER, default=_LIMIT)


def _answer(hint: Any, doc: str) -> Result:
    return Result(typed.of(hint), doc)


_FAILOVER_STATUS: Final = Read(
    _failover_status,
    "What each node knows about the master, and whether its role would move by itself.",
    _answer(answers.FailoverReport, "the master, the nodes, and the witness"),
    access=READERS,
)
_FINDINGS: Final = Read(
    _findings,
    "The findings of the last verification of the configuration and of each node group.",
    _answer(
        answers.VerifyReport,
        "the findings, errors first; when each part was verified; parts that were not",
    ),
    (
        Query("severity", "only those of this severity", TEXT, choices=("error", "warning")),
        Query("object", "only those about objects of this kind, such as node", TEXT),
        Query("name", "only those about the object with this name", TEXT),
        Query("group", "only those of the verification of this node group", TEXT),
    ),
    access=READERS,
)
_VERIFY: Final = Job(
    OpClusterVerify,
    "Verify the cluster. The result of the job names the jobs which verify the configuration and"
    " each node group; GET has what they find.",
    body=True,
    fixed={"error_codes": True},
)
_HISTORY: Final = Read(
    _history,
    "The commits of the configuration, the newest first: who changed what, and when.",
    _answer(answers.CommitPage, "commits, and where the next page begins"),
    (
        _limit_argument(_MOST_LINES),
        Query("before", f"only commits with smaller serial numbers: {_BEFORE}", NUMBER),
        Query("object", "only those which changed the object with this name or UUID", TEXT),
        Query("kind", "only those which changed an object of this kind", TEXT, choices=_KINDS),
        Query("opcode", "only those of this opcode, such as OP_INSTANCE_CREATE", TEXT),
        _PERSON,
        _JOB,
        *_TIMES,
    ),
    access=READERS,
)
_AUDIT: Final = Read(
    _audit,
    "The lines of the audit log, the newest first: two for each job, when it was accepted and when"
    " it had ended.",
    _answer(answers.AuditPage, "entries, and where the next page begins"),
    (
        _limit_argument(_MOST_LINES),
        Query("before", f"only lines with smaller numbers: {_BEFORE}", NUMBER),
        Query("object", "only those of jobs whose summary names this object", TEXT),
        Query("event", "only those of this event", TEXT, choices=_EVENTS),
        Query("status", "only those with this state of the job, such as error", TEXT),
        _PERSON,
        _JOB,
        *_TIMES,
    ),
    access=READERS,
)

RESOURCES: Final = (
    Resource(
        "/2/jobs/{job_id}/explain",
        "jobs_id_explain",
        {
            GET: Read(
                _explain,
                "Explain what a job does, or why it waits, with the jobs for which it waits.",
                _answer(_Explained, "the facts, and the same as lines of text"),
                access=READERS,
            ),
        },
    ),
    Resource(
        "/2/jobs/explain",
        "jobs_explain",
        {
            GET: Read(
                _explain_several,
                "Explain several jobs, without the jobs for which they wait.",
                _answer(
                    list[answers.BriefExplanation | None],
                    "one for each number, null for a job that does not exist",
                ),
                (Query("ids", "numbers of jobs, separated by commas", WORDS, required=True),),
                access=READERS,
            ),
        },
    ),
    Resource(
        "/2/queue",
        "queue",
        {
            GET: Read(
                _queue,
                "The jobs that have not ended, in the order in which they are expected to go on,"
                " why they wait, and the locks in use.",
                _answer(answers.QueueOverview, "the queue, its first jobs, and the locks"),
                (_limit_argument(_MOST_JOBS),),
                access=READERS,
            ),
        },
    ),
    Resource("/2/failover-status", "failover_status", {GET: _FAILOVER_STATUS}),
    Resource("/2/verify", "verify", {GET: _FINDINGS, POST: _VERIFY}),
    Resource("/2/history", "history", {GET: _HISTORY}),
    Resource("/2/audit", "audit", {GET: _AUDIT}),
    Resource(
        "/2/at/{serial}/info",
        "at_info",
        {
            GET: Read(
                _info_at,
                "The cluster as a whole, in an earlier state of the configuration. Null stands for"
                " what it does not say.",
                Result(ht.Dict, "name -> value"),
                access=READERS,
            ),
        },
    ),
    *instances.TABLE.at_resources("instances"),
    *nodes.TABLE.at_resources("nodes"),
    *groups.TABLE.at_resources("groups"),
    *networks.TABLE.at_resources("networks"),
)
