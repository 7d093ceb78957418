"""Events: changes of jobs and instances, for clients which would otherwise poll.

The master keeps its last events in memory, and a client can wait for the next one
(:mod:`ganeti.master.events`). One :class:`Hub` waits for all clients of this daemon, so a thousand
of them cost the master one connection. Each client has a position in the copy of the events, and
gets the events after it. A client which is too slow, or returns after too long a time, gets an
event ``reset``: events are missing, and it must read the objects again.

That a guest has stopped by itself, a master notices when live data comes in with a query. So while
anybody listens to events of instances, the hub lets it poll every :data:`POLL_S` seconds: one
question to each node, for all clients, instead of one by each client.

The id of an event is ``<epoch>-<number>``. The epoch identifies the process of the master daemon:
after numbers of another process, the client gets ``reset``.

Source: WHATWG HTML, *Server-sent events*.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Collection
from typing import Any, Final

from ganeti import errors
from ganeti.rapi.master import Master
from ganeti.wire import json

_log = logging.getLogger(__name__)

JOB, INSTANCE = "job", "instance"
KINDS: Final = (JOB, INSTANCE)
# Proxies and clients regard a connection as dead when it is idle for longer.
_HEARTBEAT_S: Final = 15.0
_WAIT_S: Final = 60
_RETRY_S: Final = 1.0
_KEPT: Final = 5000
#: Seconds between checks for guests which have stopped (or started) by themselves.
POLL_S: Final = 20.0
_AT_ONCE: Final = 500

_Place = tuple[str, int]


class Hub:
    """Waits for the events of the master while at least one client listens."""

    def __init__(
        self, master: Master, *, heartbeat_s: float = _HEARTBEAT_S, poll_s: float = POLL_S
    ) -> None:
        self._master = master
        self.heartbeat_s = heartbeat_s
        self._poll_s = poll_s
        self._events: deque[list[Any]] = deque(maxlen=_KEPT)
        self._epoch = ""
        self._last = 0
        self._changed = asyncio.Condition()
        self._listeners = 0
        self._task: asyncio.Task[None] | None = None
        self._watchers = 0
        self._watch_task: asyncio.Task[None] | None = None
        self.closed = False

    async def poll(self) -> None:
        """Learn where we are, before anything is promised to a client.

        :raises errors.GenericError: the master is not there.
        """
        if self._task is None:
            self._take(await self._master.call("WaitForEvents", None, 0))

    def join(self, wanted: str | None, kinds: Collection[str]) -> _Place:
        """Begin to listen to events.

        :param wanted: the id of the last event which the client has seen.
        :returns: the position after which the client gets events.
        """
        self._listeners += 1
        if INSTANCE in kinds:
            self._watchers += 1
            if self._watch_task is None:
                self._watch_task = asyncio.create_task(self._watch())
        if self._task is None:
            self._task = asyncio.create_task(self._follow())
        epoch, _, number = (wanted or "").rpartition("-")
        if epoch and number.isascii() and number.isdigit() and len(number) < 19:
            return epoch, int(number)
        return self._epoch, self._last

    def leave(self, kinds: Collection[str]) -> None:
        """Remove a client."""
        self._listeners -= 1
        if INSTANCE in kinds:
            self._watchers -= 1
            if self._watchers == 0 and self._watch_task is not None:
                self._watch_task.cancel()
                self._watch_task = None
        if self._listeners == 0 and self._task is not None:
            self._task.cancel()
            self._task = None
            self._events.clear()
            self._epoch = ""

    async def after(self, place: _Place) -> tuple[list[list[Any]], _Place, bool]:
        """Return the events after a position, at once or after at most one heartbeat.

        :returns: the events, the new position, and whether events before them are missing.
        """
        async with self._changed:
            if place == (self._epoch, self._last) and not self.closed:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self.heartbeat_s):
                        await self._changed.wait()
            here = self._epoch, self._last
            epoch, number = place
            first = self._last - len(self._events)
            if epoch != self._epoch or not first <= number <= self._last:
                return [], here, True
            found = [event for event in self._events if event[0] > number]
            return found[:_AT_ONCE], (epoch, found[:_AT_ONCE][-1][0]) if found else here, False

    async def close(self) -> None:
        """End the streams of all clients."""
        self.closed = True
        for task in (self._task, self._watch_task):
            if task is not None:
                task.cancel()
        async with self._changed:
            self._changed.notify_all()

    async def _follow(self) -> None:
        while True:
            try:
                answer = await self._master.call(
                    "WaitForEvents", [self._epoch, self._last], _WAIT_S
                )
            except errors.GenericError as err:
                _log.info("cannot get events from the master now: %s", err)
                await asyncio.sleep(_RETRY_S)
                continue
            async with self._changed:
                if self._take(answer):
                    self._changed.notify_all()

    async def _watch(self) -> None:
        """Let the master query the guests; changes arrive as events."""
        while True:
            try:
                await self._master.call("CheckGuests")
            except errors.GenericError as err:
                _log.info("cannot query the guests now: %s", err)
            await asyncio.sleep(self._poll_s)

    def _take(self, answer: dict[str, Any]) -> bool:
        """Add events from the master; return whether there are new ones."""
        events = answer["events"]
        if answer["epoch"] != self._epoch or answer["lost"]:
            self._events.clear()
        new = bool(events) or answer["epoch"] != self._epoch
        self._epoch = answer["epoch"]
        self._last = answer["last"]
        self._events.extend(events)
        return new


async def stream(hub: Hub, kinds: frozenset[str], last: str | None) -> AsyncIterator[bytes]:
    """Make the text of a stream, from now on or after an event.

    :raises errors.GenericError: the master does not run.
    """
    await hub.poll()
    return _stream(hub, kinds, last)


async def _stream(hub: Hub, kinds: frozenset[str], last: str | None) -> AsyncIterator[bytes]:
    place = hub.join(last, kinds)
    try:
        yield f"retry: {int(_RETRY_S * 1000)}\n\n".encode("ascii")
        while not hub.closed:
            events, place, lost = await hub.after(place)
            parts = []
            if lost:
                parts.append(
                    f"id: {place[0]}-{place[1]}\nevent: reset\n"
                    'data: {"reason": "events are missing, look at the objects again"}'
                    "\n\n"
                )
            for number, kind, data in events:
                if kind in kinds:
                    parts.append(
                        f"id: {place[0]}-{number}\nevent: {kind}\n"
                        f"data: {json.dumps_spaced(data)}\n\n"
                    )
            yield "".join(parts).encode("ascii") if parts else b": still here\n\n"
    finally:
        hub.leave(kinds)
