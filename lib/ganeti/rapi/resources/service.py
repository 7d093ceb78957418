"""The description of this interface, and the stream of events."""

from __future__ import annotations

from typing import Any, Final

from ganeti import ht
from ganeti.http.messages import Refused
from ganeti.rapi import declare
from ganeti.rapi.call import Call
from ganeti.rapi.declare import GET, READERS, Query, Read, Resource, Result
from ganeti.rapi.events import KINDS, stream

_TEXT: Final = Result(ht.Str, "text")


async def _openapi(call: Call) -> Any:
    return call.state.description()


async def _page(call: Call) -> bytes:
    return call.state.page().encode("utf-8")


async def _events(call: Call) -> Any:
    wanted = call.query["kinds"] or list(KINDS)
    unknown = sorted(set(wanted) - set(KINDS))
    if unknown:
        raise Refused(
            400, f"there are no events of kind '{unknown[0]}'. Known are {', '.join(KINDS)}."
        )
    last = call.headers.get("last-event-id") or call.query["last-event-id"]
    return await stream(call.state.hub, frozenset(wanted), last)


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
                "Changes of jobs and instances, as server-sent events."
                " Send Last-Event-ID to continue after the end of a connection.",
                _TEXT,
                (
                    Query(
                        "kinds",
                        "only these kinds, separated by commas: " + ", ".join(KINDS),
                        declare.WORDS,
                    ),
                    Query("last-event-id", "for clients that cannot send the header", declare.TEXT),
                ),
                access=READERS,
                produces="text/event-stream",
                waits=True,
            ),
        },
    ),
)
