"""Lists: the arguments with which a client chooses, orders and divides them.

The master filters, orders and divides (:mod:`ganeti.query.page`), and only the page travels. A list
without these arguments is asked for as ever, and answered as ever.

The entity tag of a list which is made from the configuration alone names the state of the
configuration. When the client has this state, the master compares two texts, and nothing else is
done. Every other list is made, and its tag is that of its content.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Final
from urllib.parse import quote, urlencode

from ganeti import RELEASE, errors
from ganeti.http.messages import Refused
from ganeti.query import resources
from ganeti.rapi import declare
from ganeti.rapi.call import Call
from ganeti.rapi.declare import READERS, Query
from ganeti.utils import suggest
from ganeti.wire import json

FILTER: Final = Query(
    "filter",
    'only objects which match an expression, such as: status == "running" and be/maxmem > 1024',
    declare.TEXT,
    access=READERS,
)
FIELDS: Final = Query(
    "fields",
    "these fields of each object, separated by commas",
    declare.WORDS,
    access=READERS,
)
SORT: Final = Query(
    "sort",
    "fields by which the objects are ordered, separated by commas; a minus reverses the order of a"
    " field. Names decide between equal objects",
    declare.TEXT,
    access=READERS,
)
LIMIT: Final = Query("limit", "number of objects; 0 for their number alone", declare.NUMBER)
AFTER: Final = Query(
    "after",
    "begin after this object: a name, or what the link to the next page has",
    declare.TEXT,
)
OFFSET: Final = Query("offset", "number of objects which are left out before", declare.NUMBER)

#: What divides a list.
PAGE: Final = (SORT, LIMIT, AFTER, OFFSET)
#: All arguments of a list.
ARGUMENTS: Final = (FILTER, *PAGE, FIELDS)
#: Headers of the answer to a request with one of the arguments.
HEADERS: Final = {
    "X-Total-Count": "number of all objects which pass the filter, on all pages",
    "Link": "the address of the next page, with rel=next; missing on the last page",
}


def wanted(call: Call) -> bool:
    """Return whether a request has arguments which the master has to see."""
    return any(one.name in call.given for one in ARGUMENTS)


def wanted_of_query(call: Call) -> bool:
    """Return the same for a query, which always has fields."""
    return any(one.name in call.given for one in (FILTER, *PAGE))


async def objects(
    call: Call,
    what: str,
    path: str,
    fields: Sequence[str],
    *,
    id_name: str,
    adjust: Callable[[dict[str, Any]], None],
) -> list[dict[str, Any]]:
    """Return one page of a list.

    :param what: kind of the objects in queries.
    :param path: the resource of the list.
    :param fields: the fields of whole objects.
    :param id_name: the name of the identifier in the short list, which has no fields.
    :param adjust: changes an object before it is shown.
    :raises Refused: 400 for an argument which is wrong.
    """
    name_field = resources.lookup(what).name_field
    chosen = call.query[FIELDS.name]
    if FIELDS.name in call.given:
        _check_fields(what, chosen)
    elif call.query[declare.BULK.name]:
        chosen = fields
    else:
        answer = await page(call, what, path, [name_field], filter_of(call))
        names = [row[0][1] for row in answer["data"]]
        return [{id_name: name, "uri": f"{path}/{name}"} for name in names]
    found = []
    for row in (await page(call, what, path, list(chosen), filter_of(call)))["data"]:
        one = {name: value for name, (_status, value) in zip(chosen, row, strict=True)}
        adjust(one)
        found.append(one)
    return found


def _check_fields(what: str, names: Sequence[str]) -> None:
    resource = resources.lookup(what)
    if not names:
        raise Refused(400, "query argument 'fields' names no field")
    for name in names:
        if resource.field(name) is None:
            hint = suggest.did_you_mean(name, resource.fields)
            raise Refused(
                400,
                f"there is no field '{name[:100]}' of {what} objects.{hint}"
                f" /2/query/{what}/fields lists all.",
            )


def filter_of(call: Call) -> Any:
    """Return the filter of a request in a form which the master takes.

    :raises Refused: 400 for JSON which cannot be read.
    """
    text = call.query[FILTER.name]
    if text is None or not text.startswith("["):
        return text
    try:
        return json.loads_strict(text)
    except errors.ParseError as err:
        raise Refused(400, f"cannot parse query argument 'filter': {err}") from err


async def page(
    call: Call, what: str, path: str, fields: Sequence[str], qfilter: Any
) -> dict[str, Any]:
    """Ask the master for a page, and set the headers and the tag of the answer.

    :returns: ``fields`` and ``data``, as of the LUXI method ``Query``.
    :raises Refused: 400 for an argument which is wrong.
    """
    kept = _fingerprint(call, path, fields, qfilter)
    found = await call.master.call(
        "QueryPage",
        what,
        list(fields),
        qfilter,
        {
            "order": call.query[SORT.name] or "",
            "limit": _not_negative(call, LIMIT),
            "after": _place(call),
            "offset": _not_negative(call, OFFSET),
            "known": _known_state(call.headers.get("if-none-match", ""), kept),
        },
    )
    if found["state"] is not None:
        call.etag = f'"{found["state"]}-{kept}"'
    if found["answer"] is None:
        call.unchanged = True
        return {"fields": [], "data": []}
    call.answer_headers.append(("X-Total-Count", str(found["total"])))
    following = _next(call, path, found)
    if following:
        call.answer_headers.append(("Link", f'<{following}>; rel="next"'))
    return dict(found["answer"])


def _not_negative(call: Call, one: Query) -> int | None:
    number: int | None = call.query[one.name]
    if number is not None and number < 0:
        raise Refused(400, f"query argument '{one.name}' must not be less than 0")
    return number


def _place(call: Call) -> list[Any] | None:
    """Return the place after which the page begins.

    :raises Refused: 400 when it is a name, and the list is not ordered by names.
    """
    text = call.query[AFTER.name]
    if text is None:
        return None
    if text.startswith("["):
        try:
            found = json.loads_strict(text)
        except errors.ParseError as err:
            raise Refused(400, f"cannot parse query argument 'after': {err}") from err
        return list(found)
    if call.query[SORT.name]:
        raise Refused(
            400,
            "query argument 'after' can be a name only in a list without 'sort'. Take it from the"
            " link to the next page.",
        )
    return [text]


def _next(call: Call, path: str, found: dict[str, Any]) -> str:
    """Return the address of the next page; the empty text if there is none."""
    if found["next"] is None and found["next_offset"] is None:
        return ""
    arguments = {
        name: _shown(value)
        for name, value in sorted(call.query.items())
        if name in call.given and value is not None and name not in (AFTER.name, OFFSET.name)
    }
    place = found["next"]
    if place is None:
        arguments[OFFSET.name] = str(found["next_offset"])
    elif len(place) == 1 and isinstance(place[0], str):
        arguments[AFTER.name] = place[0]
    else:
        arguments[AFTER.name] = json.dumps(place)
    return f"{path}?{urlencode(arguments, quote_via=quote)}"


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(value)
    return str(int(value)) if isinstance(value, bool) else str(value)


def _fingerprint(call: Call, path: str, fields: Sequence[str], qfilter: Any) -> str:
    """Return a text which differs for requests with different answers from one state."""
    # Arguments which are not declared have no effect.
    arguments = {name: call.query[name] for name in sorted(call.given) if name in call.query}
    accept = call.headers.get("accept", "")
    # Users may see different objects.
    parts = [RELEASE, call.user, path, list(fields), qfilter, arguments, accept]
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=9).hexdigest()


def _known_state(header: str, kept: str) -> str | None:
    """Return the state of the configuration which a client has of the same list; None for none."""
    for word in header.split(","):
        tag = word.strip().removeprefix("W/").strip('"')
        if tag.endswith(f"-{kept}"):
            return tag.removesuffix(f"-{kept}")
    return None
