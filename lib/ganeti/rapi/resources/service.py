"""The description of this interface, and the stream of events."""

from __future__ import annotations

from typing import Any, Final, TypedDict

from ganeti import errors, ht
from ganeti.constants.events import KINDS
from ganeti.http.messages import Refused
from ganeti.http.websocket import Socket
from ganeti.rapi import event_socket, typed
from ganeti.rapi.call import Call
from ganeti.rapi.declare import GET, NUMBER, READERS, TEXT, WORDS, Query, Read, Resource, Result
from ganeti.rapi.event_socket import Subscription
from ganeti.rapi.events import FIRST_KINDS, OLDEST, Filter, log, make_filter, parse_ident, stream

_TEXT: Final = Result(ht.Str, "text")
_MOST_WAIT_S: Final = 60


async def _openapi(call: Call) -> Any:
    return call.state.description()


async def _page(call: Call) -> bytes:
    return call.state.page().encode("utf-8")


async def _events(call: Call) -> Any:
    return await stream(call.state.hub, _filter(call), _last(call))


async def _event_socket(call: Call, socket: Socket) -> None:
    wanted = _filter(call)
    if not wanted.full:
        wanted = make_filter(wanted.kinds, scope=wanted.scope)
    await event_socket.serve(call.state.hub, socket, Subscription(wanted, _last(call)))


async def _event_log(call: Call) -> Any:
    after, wait_s = call.query["after"], call.query["wait"]
    if not 0 <= wait_s <= _MOST_WAIT_S:
        raise Refused(400, f"query argument 'wait' must be from 0 to {_MOST_WAIT_S}, not {wait_s}")
    if after and after != OLDEST and parse_ident(after) is None:
        raise Refused(
            400,
            f"query argument 'after' must be the member last of an answer, or {OLDEST}, not"
            f" '{after[:100]}'",
        )
    return await log(call.state.hub, _filter(call), after, wait_s)


class _LoggedEvent(TypedDict):
    id: str
    kind: str
    data: dict[str, Any]


class _EventLog(TypedDict):
    last: str
    lost: bool
    events: list[_LoggedEvent]


def _last(call: Call) -> str:
    """Return the id of the last event which the client has seen."""
    return (
        call.headers.get("last-event-id")
        or call.query["last-event-id"]
        or call.query["after"]
        or ""
    )


def _filter(call: Call) -> Filter:
    """Return the filter of a request: with ``kind`` or ``name``, the events are complete."""
    scope = None if call.limits is None else call.limits.event_scope()
    kinds, kind, names = call.query["kinds"], call.query["kind"], call.query["name"]
    if kind or names:
        if kinds:
            raise Refused(400, "use either kinds, or kind and name; kind takes several, too")
        try:
            return make_filter(kind or None, names or (), scope)
        except errors.ParseError as err:
            raise Refused(400, str(err)) from err
    unknown = sorted(set(kinds or ()) - set(FIRST_KINDS))
    if unknown:
        known = ", ".join(FIRST_KINDS)
        more = " The argument kind has further ones." if unknown[0] in KINDS else ""
        raise Refused(400, f"there are no events of kind '{unknown[0]}'. Known are {known}.{more}")
    return Filter(frozenset(kinds or FIRST_KINDS), scope=scope)


_CHOICE: Final = (
    Query("kinds", "only these kinds, separated by commas: " + ", ".join(FIRST_KINDS), WORDS),
    Query(
        "kind",
        "these kinds, separated by commas, each with what is known about it: "
        + ", ".join(KINDS)
        + "; * for all",
        WORDS,
    ),
    Query(
        "name",
        "only events of objects with these names, and of jobs which name such an object: names"
        " without or with their domain, or patterns with * and ?, separated by commas",
        WORDS,
    ),
)

RESOURCES: Final = (
    Resource(
        "/2/openapi.json",
        "openapi",
        {
            GET: Read(
                _openapi,
                "The description of this interface in OpenAPI 3.1.",
                Result(ht.Dict, "the description"),
            ),
        },
    ),
    Resource(
        "/2/doc",
        "doc",
        {
            GET: Read(
                _page, "The description of this interface as a page.", _TEXT, produces="text/html"
            ),
        },
    ),
    Resource(
        "/2/events",
        "events",
        {
            GET: Read(
                _events,
                "Changes of jobs and of objects of the cluster, findings of verifications, lines"
                " and progress of jobs, as server-sent events."
                " Send Last-Event-ID to continue after the end of a connection. Also as a"
                " WebSocket, where the client may change what it wants.",
                _TEXT,
                (
                    *_CHOICE,
                    Query("last-event-id", "for clients that cannot send the header", TEXT),
                    Query("after", "the same as last-event-id", TEXT),
                ),
                access=READERS,
                produces="text/event-stream",
                waits=True,
                socket=_event_socket,
            ),
        },
    ),
    Resource(
        "/2/events/log",
        "events_log",
        {
            GET: Read(
                _event_log,
                "The same events as a list, for programs which ask again and again.",
                Result(
                    typed.of(_EventLog),
                    "the events; last is after of the next request; lost tells that events are"
                    " missing, so that all objects must be read again",
                ),
                (
                    *_CHOICE,
                    Query(
                        "after",
                        "only events after this one: the member last of the answer before, or"
                        f" {OLDEST} for all that are kept; without it, the newest one",
                        TEXT,
                    ),
                    Query(
                        "wait",
                        f"seconds to wait when there is none yet, at most {_MOST_WAIT_S}",
                        NUMBER,
                        default=0,
                    ),
                ),
                access=READERS,
                waits=True,
            ),
        },
    ),
)
