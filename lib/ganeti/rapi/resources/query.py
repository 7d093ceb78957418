"""Queries: fields of objects of any kind, selected by a filter."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

from ganeti import ht
from ganeti.constants import query as query_const
from ganeti.http.messages import Refused
from ganeti.opcodes import types
from ganeti.rapi import declare
from ganeti.rapi.call import Call
from ganeti.rapi.declare import GET, PUT, READERS, Field, Query, Read, Resource, Result
from ganeti.rapi.resources import lists

_ROWS: Final = Result(
    types.QueryResponse, "fields, and data: [status, value] for each, a list for each object"
)
# The methods of the master which complete names, and refuse unknown ones.
_BY_NAMES: Final = {
    query_const.INSTANCE: "QueryInstances",
    query_const.NODE: "QueryNodes",
    query_const.GROUP: "QueryGroups",
    query_const.NETWORK: "QueryNetworks",
}
_RESULT: Final = "opresult"
_FIELDS: Final = Query("fields", "fields wanted, separated by commas", declare.WORDS)


def _resource(call: Call) -> str:
    what = call.uri["resource"]
    if what not in query_const.RESOURCES:
        raise Refused(
            404,
            f"there is no kind of object '{what}'. Known are"
            f" {', '.join(sorted(query_const.RESOURCES))}.",
        )
    return what


def _mark_secret(call: Call, fields: Collection[str]) -> None:
    """Results of opcodes may have secrets: that of OP_BACKUP_PREPARE has a signed key."""
    call.secret = call.uri["resource"] == query_const.JOB and _RESULT in fields


async def _query(call: Call) -> Any:
    _mark_secret(call, call.query["fields"])
    if lists.wanted_of_query(call):
        return await _page(call, call.query["fields"], lists.filter_of(call))
    return await call.master.call("Query", _resource(call), call.query["fields"], None)


async def _query_filtered(call: Call) -> Any:
    body = call.body
    # Clients which do not know the version of the server send both.
    if None not in (body["filter"], body["qfilter"]) and body["filter"] != body["qfilter"]:
        raise Refused(400, "'filter' and 'qfilter' are the same parameter and differ")
    fields = body["fields"] or call.query["fields"]
    if not fields:
        raise Refused(400, "required parameter 'fields' is missing")
    _mark_secret(call, fields)
    qfilter = body["qfilter"] if body["filter"] is None else body["filter"]
    if body["names"] is not None:
        if qfilter is not None or lists.wanted_of_query(call):
            raise Refused(400, "'names' and a filter, an order or a page exclude each other")
        return await _named(call, fields, body["names"])
    if lists.wanted_of_query(call):
        return await _page(call, fields, qfilter)
    return await call.master.call("Query", _resource(call), fields, qfilter)


async def _page(call: Call, fields: list[str], qfilter: Any) -> Any:
    what = _resource(call)
    return await lists.page(call, what, f"/2/query/{what}", fields, qfilter)


async def _named(call: Call, fields: Sequence[str], names: Sequence[str]) -> Any:
    """Query objects by their names, in this order."""
    what = _resource(call)
    method = _BY_NAMES.get(what)
    if method is None:
        raise Refused(400, f"objects of kind '{what}' are selected by a filter, not by names")
    if not names:
        return await call.master.call("Query", what, fields, None)
    full = [row[0] for row in await call.master.call(method, names, ["name"], False)]
    condition = ["|", *(["=", "name", name] for name in full)]
    found = await call.master.call("Query", what, [*fields, "name"], condition)
    rows = {row[-1][1]: row[:-1] for row in found["data"]}
    for name in full:
        if name not in rows:
            raise Refused(404, f"{what} {name} does not exist")
    return {"fields": found["fields"][:-1], "data": [rows[name] for name in full]}


async def _fields(call: Call) -> Any:
    return await call.master.call("QueryFields", _resource(call), call.query["fields"] or None)


RESOURCES: Final = (
    Resource(
        "/2/query/{resource}",
        "query",
        {
            GET: Read(
                _query,
                "Query all objects of a kind.",
                _ROWS,
                (_FIELDS._replace(required=True), lists.FILTER, *lists.PAGE),
                access=READERS,
                headers=lists.HEADERS,
            ),
            PUT: Read(
                _query_filtered,
                "Query objects of a kind, selected by a filter.",
                _ROWS,
                (_FIELDS, *lists.PAGE),
                headers=lists.HEADERS,
                fields={
                    "fields": Field(ht.Maybe(ht.ListOf(ht.Str)), "fields wanted"),
                    "qfilter": Field(ht.Maybe(ht.List), "filter, as [operator, ...]"),
                    "filter": Field(ht.Maybe(ht.List), "older name of qfilter"),
                    "names": Field(
                        ht.Maybe(ht.ListOf(ht.NonEmptyString)),
                        "names or UUIDs instead of a filter; the answer has their order, a short"
                        " name is completed, and an unknown one is an error",
                    ),
                },
                access=READERS,
            ),
        },
    ),
    Resource(
        "/2/query/{resource}/fields",
        "query_fields",
        {
            GET: Read(
                _fields,
                "List the fields of a kind of object.",
                Result(types.QueryFieldsResponse, "fields: name, title, kind and documentation"),
                (_FIELDS._replace(doc="only these, separated by commas"),),
            ),
        },
    ),
)
