"""Jobs, and filter rules of the job queue."""

from __future__ import annotations

from typing import Any, Final

from ganeti import ht
from ganeti.constants import query as query_const
from ganeti.http.messages import Refused
from ganeti.luxi import protocol as wire
from ganeti.rapi import declare
from ganeti.rapi.call import Call
from ganeti.rapi.declare import (
    DELETE,
    GET,
    NUMBER,
    POST,
    PUT,
    VALUES,
    WORDS,
    DirectChange,
    Field,
    Query,
    Read,
    Resource,
    Result,
)  # fmt: skip
from ganeti.rapi.resources import commands, lists
from ganeti.rapi.resources.common import NULL, job_number, uris

_BULK_FIELDS: Final = (
    "id",
    "ops",
    "status",
    "summary",
    "opstatus",
    "received_ts",
    "start_ts",
    "end_ts",
)
_FIELDS: Final = (*_BULK_FIELDS, "oplog", "opresult")
# HTTP clients and proxies often do not wait longer.
_WAIT_S: Final = 10
_RULE_FIELDS: Final = ("watermark", "priority", "predicates", "action", "reason_trail", "uuid")
_PATH: Final = "/2/jobs/{job_id}"


async def _list(call: Call) -> Any:
    if lists.wanted(call):
        return await lists.objects(
            call,
            query_const.JOB,
            "/2/jobs",
            _BULK_FIELDS,
            id_name="id",
            adjust=lambda _job: None,
        )
    if call.query["bulk"]:
        rows = await call.master.call("QueryJobs", None, _BULK_FIELDS)
        found = [dict(zip(_BULK_FIELDS, row, strict=True)) for row in rows]
        return sorted(found, key=lambda job: int(job["id"]))
    rows = await call.master.call("QueryJobs", None, ["id"])
    return uris("/2/jobs", "id", [row[0] for row in rows])


async def _show(call: Call) -> Any:
    number = job_number(call)
    (row,) = await call.master.call("QueryJobs", [number], _FIELDS)
    if row is None:
        raise Refused(404, f"job {number} does not exist")
    return dict(zip(_FIELDS, row, strict=True))


async def _cancel(call: Call) -> Any:
    if call.query["kill"]:
        return await call.master.call("CancelJob", job_number(call), True)
    return await call.master.call("CancelJob", job_number(call))


async def _wait(call: Call) -> Any:
    # Programs for Ganeti send a body; others cannot send one with GET, and use the query.
    wanted = {name: _either(call.body[name], call.query[name]) for name in call.body}
    if wanted["fields"] is None:
        raise Refused(400, "required parameter 'fields' is missing")
    timeout_s = call.query["timeout"]
    answer = await call.master.call(
        "WaitForJobChange",
        job_number(call),
        wanted["fields"],
        wanted["previous_job_info"],
        wanted["previous_log_serial"],
        _WAIT_S if timeout_s is None else max(0, min(timeout_s, _WAIT_S)),
    )
    if answer == wire.NO_CHANGE:
        return None
    info, entries = answer
    return {"job_info": info, "log_entries": entries or []}


def _either(first: Any, second: Any) -> Any:
    return second if first is None else first


_KNOWN_INFO: Final = "the values of these fields which the client knows"
_KNOWN_SERIAL: Final = "serial number of the last log entry which the client knows"
_RULE: Final = {
    "priority": Field(
        ht.Int, "position of the rule; rules with lower numbers are tried first", default=0
    ),
    "predicates": Field(ht.List, "conditions on a job: [name, filter] each", default=[]),
    "action": Field(
        ht.Or(ht.Str, ht.List),
        "ACCEPT, CONTINUE, PAUSE, REJECT, or [RATE_LIMIT, number]",
        default="CONTINUE",
    ),
    "reason": Field(
        ht.List, "reason trail: [source, reason, time in nanoseconds] each", default=[]
    ),
}
_RULE_UUID: Final = Result(ht.NonEmptyString, "UUID of the rule")


async def _rules(call: Call) -> Any:
    if call.query["bulk"]:
        rows = await call.master.call("QueryFilters", None, _RULE_FIELDS)
        return [dict(zip(_RULE_FIELDS, row, strict=True)) for row in rows]
    rows = await call.master.call("QueryFilters", None, ["uuid"])
    return uris("/2/filters", "uuid", [row[0] for row in rows])


async def _rule(call: Call) -> Any:
    rows = await call.master.call("QueryFilters", [call.uri["filter_uuid"]], _RULE_FIELDS)
    if not rows:
        raise Refused(404, f"filter rule {call.uri['filter_uuid']} does not exist")
    return dict(zip(_RULE_FIELDS, rows[0], strict=True))


async def _put_rule(call: Call) -> Any:
    body = call.body
    # The master adds its own entry; those of this daemon precede it.
    reason = [*body["reason"], *call.user_reason()]
    return await call.master.call(
        "ReplaceFilter",
        call.uri.get("filter_uuid"),
        body["priority"],
        body["predicates"],
        body["action"],
        reason,
    )


async def _delete_rule(call: Call) -> None:
    await call.master.call("DeleteFilter", call.uri["filter_uuid"])


RESOURCES: Final = (
    Resource(
        "/2/jobs",
        "jobs",
        {
            GET: Read(
                _list,
                "List the jobs which are not archived.",
                Result(ht.ListOf(ht.Dict), "[{id, uri}], or with bulk whole jobs", _BULK_FIELDS),
                (declare.BULK, *lists.ARGUMENTS),
                headers=lists.HEADERS,
            ),
            POST: commands.SUBMIT,
        },
    ),
    Resource(
        _PATH,
        "jobs_id",
        {
            GET: Read(
                _show,
                "Show a job.",
                Result(ht.Dict, "the job", _FIELDS),
                # Results of opcodes: that of OP_BACKUP_PREPARE has a signed key.
                secret=True,
            ),
            DELETE: DirectChange(
                _cancel,
                "Cancel a job.",
                Result(ht.Tuple(ht.Bool, ht.Str), "[whether it is canceled, a sentence]"),
                (
                    Query(
                        "kill",
                        "1: also end a running job whose process can be ended",
                        default=False,
                    ),
                ),
            ),
        },
    ),
    Resource(
        f"{_PATH}/wait",
        "jobs_id_wait",
        {
            GET: Read(
                _wait,
                f"Wait until a job changes, at most {_WAIT_S} seconds. The parameters are in"
                " the query, or, as in Ganeti, in a JSON body.",
                Result(
                    ht.Maybe(ht.Dict),
                    "null when nothing changed, else job_info: values of"
                    " the fields, and log_entries: [serial, [seconds, microseconds], type,"
                    " message] each",
                ),
                query=(
                    Query("fields", "fields of the job, separated by commas", WORDS),
                    Query("previous_job_info", f"{_KNOWN_INFO}, as a JSON list", VALUES),
                    Query("previous_log_serial", _KNOWN_SERIAL, NUMBER),
                    Query("timeout", f"longest time in seconds, at most {_WAIT_S}", NUMBER),
                ),
                fields={
                    "fields": Field(ht.Maybe(ht.ListOf(ht.Str)), "fields of the job"),
                    "previous_job_info": Field(ht.Maybe(ht.List), _KNOWN_INFO),
                    "previous_log_serial": Field(ht.Maybe(ht.Int), _KNOWN_SERIAL),
                },
                access=declare.WRITERS,
                waits=True,
                secret=True,
            ),
        },
    ),
    Resource(
        "/2/filters",
        "filters",
        {
            GET: Read(
                _rules,
                "List the filter rules of the queue.",
                Result(ht.ListOf(ht.Dict), "[{uuid, uri}], or with bulk whole rules", _RULE_FIELDS),
                (declare.BULK,),
            ),
            POST: DirectChange(_put_rule, "Add a filter rule.", _RULE_UUID, fields=_RULE),
        },
    ),
    Resource(
        "/2/filters/{filter_uuid}",
        "filters_uuid",
        {
            GET: Read(_rule, "Show a filter rule.", Result(ht.Dict, "the rule", _RULE_FIELDS)),
            PUT: DirectChange(
                _put_rule,
                "Replace a filter rule, or add one with this UUID.",
                _RULE_UUID,
                fields=_RULE,
            ),
            DELETE: DirectChange(_delete_rule, "Remove a filter rule.", NULL),
        },
    ),
)
