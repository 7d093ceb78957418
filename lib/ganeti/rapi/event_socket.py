"""Events over a WebSocket: as the stream of events, and the client may change what it wants.

Each message of the server is a JSON object with ``id``, ``event`` (the kind) and ``data``; ids,
kinds and the event ``reset`` are those of the stream (:mod:`ganeti.rapi.events`). A client sends
``{"subscribe": {"kind": ["node", "job"], "name": ["web*"], "after": ID}}``, each member of which
may be missing; the server answers ``subscribed``, and continues where it was, or after the given
id. A wrong message is answered with ``error``, and changes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from ganeti import errors
from ganeti.http import frames
from ganeti.http.websocket import Socket
from ganeti.rapi.events import Filter, Form, Hub, Place, Scope, ident, make_filter, parse_ident
from ganeti.wire import json

SUBSCRIBE: Final = "subscribe"
SUBSCRIBED: Final = "subscribed"
ERROR: Final = "error"
_MEMBERS: Final = frozenset({"kind", "name", "after"})
# Messages of a client which are kept until they are answered.
_MOST_PENDING: Final = 8


def _event(place: str, kind: str, data: Any) -> str:
    return json.dumps({"id": place, "event": kind, "data": data}) + "\n"


# Several events are one text, with a line for each; a heartbeat is a ping of the server.
_FORM: Final = Form(_event, "")


@lru_cache(maxsize=16)
def _frames(text: str) -> bytes:
    """Return the frames of several messages, which many clients get."""
    return b"".join(map(frames.message, text.splitlines()))


class Subscription(NamedTuple):
    """What a client wants.

    :ivar after: the id after which it wants events; empty to continue.
    """

    wanted: Filter
    after: str = ""


def parse_subscription(text: str, scope: Scope | None = None) -> Subscription:
    """Read a message of a client.

    :param scope: what the user may see.
    :raises errors.ParseError: it is no subscription; says why.
    """
    message = json.loads_strict(text.encode("utf-8", "surrogatepass"))
    if not isinstance(message, dict) or set(message) != {SUBSCRIBE}:
        raise errors.ParseError('a message is {"subscribe": {"kind": [...], "name": [...]}}')
    given = message[SUBSCRIBE]
    if not isinstance(given, dict) or not set(given) <= _MEMBERS:
        raise errors.ParseError("a subscription has kind, name and after, and nothing else")
    kinds, names = _words(given, "kind"), _words(given, "name")
    after = given.get("after")
    if after is not None and not isinstance(after, str):
        raise errors.ParseError("'after' must be the id of an event")
    return Subscription(make_filter(kinds, names or (), scope), after or "")


def _words(given: Mapping[str, Any], name: str) -> list[str] | None:
    value = given.get(name)
    if value is None:
        return None
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise errors.ParseError(f"'{name}' must be a list of texts")
    return words


async def serve(hub: Hub, socket: Socket, first: Subscription) -> None:
    """Send events to a client until it goes away.

    :raises errors.GenericError: the master does not run.
    """
    await hub.poll(first.wanted.kinds)
    talk = _Talk(hub, socket, first)
    listening = asyncio.create_task(talk.listen())
    try:
        await talk.send_all()
    finally:
        listening.cancel()
        with contextlib.suppress(asyncio.CancelledError, errors.GenericError):
            await listening
        talk.leave()


class _Talk:
    """The events for one client, and what it says."""

    def __init__(self, hub: Hub, socket: Socket, first: Subscription) -> None:
        self._hub = hub
        self._socket = socket
        self._scope = first.wanted.scope
        self._wanted = first.wanted
        self._place: Place = hub.join(first.after, first.wanted.kinds)
        self._pending: asyncio.Queue[Subscription] = asyncio.Queue(_MOST_PENDING)
        self._waiting: asyncio.Timeout | None = None
        self._gone = False

    def leave(self) -> None:
        self._hub.leave(self._wanted.kinds)

    async def listen(self) -> None:
        """Take the messages of the client; without them, the client has gone."""
        try:
            await self._listen()
        finally:
            self._gone = True
            self._stop_waiting()

    async def _listen(self) -> None:
        while (text := await self._socket.receive()) is not None:
            try:
                wanted = parse_subscription(text, self._scope)
                await self._hub.poll(wanted.wanted.kinds)
            except errors.GenericError as err:
                await self._socket.send(_event(self._ident(), ERROR, {"reason": str(err)}).strip())
                continue
            # Waits when there are too many, so the client has to take the answers first.
            await self._pending.put(wanted)
            self._stop_waiting()

    def _ident(self) -> str:
        return ident(self._place)

    async def send_all(self) -> None:
        """Send events until the client has gone, or the daemon ends."""
        while not self._gone and not self._hub.closed:
            while not self._pending.empty():
                await self._subscribe(self._pending.get_nowait())
            text = await self._text()
            if text:
                await self._socket.send_frame(_frames(text))

    async def _text(self) -> str:
        """Wait for events; end with an empty text when the client has said something."""
        if not self._pending.empty() or self._gone:
            return ""
        try:
            # No task for each wait: that would be most of the work for a client.
            async with asyncio.timeout(None) as self._waiting:
                text, self._place = await self._hub.after(self._place, self._wanted, _FORM)
                return text
        except TimeoutError:
            return ""
        finally:
            self._waiting = None

    def _stop_waiting(self) -> None:
        """Let :meth:`_text` end now; events which have just arrived are found by the next wait."""
        if self._waiting is not None and not self._waiting.expired():
            self._waiting.reschedule(asyncio.get_running_loop().time())

    async def _subscribe(self, wanted: Subscription) -> None:
        present = self._hub.join(wanted.after, wanted.wanted.kinds)
        self._hub.leave(self._wanted.kinds)
        if parse_ident(wanted.after) is not None:
            self._place = present
        self._wanted = wanted.wanted
        await self._socket.send(
            _event(
                self._ident(),
                SUBSCRIBED,
                {"kind": sorted(self._wanted.kinds), "name": list(self._wanted.names)},
            ).strip()
        )
