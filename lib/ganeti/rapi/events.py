"""Events: changes of jobs and objects, for clients which would otherwise poll.

The master keeps its last events in memory, and a client can wait for the next one
(:mod:`ganeti.master.events`). One :class:`Hub` waits for all clients of this daemon, so a thousand
of them cost the master one connection. Each client has a position in the copy of the events, and
gets the events after it. A client which is too slow, or returns after too long a time, gets an
event ``reset``: events are missing, and it must read the objects again.

Each client has a :class:`Filter`. Clients with the same filter and the same position get the same
text, which is made once. Only clients whose filter lets an event pass are woken, a few at a time,
and the more clients there are, the longer the hub collects events before it wakes them again
(:data:`PAUSE_S`): a burst of events for a thousand clients does not delay other requests.

That a guest has stopped by itself, a master notices when live data comes in with a query. So while
anybody listens to events of instances, the hub lets it poll every :data:`POLL_S` seconds: one
question to each node, for all clients, instead of one by each client.

The id of an event is ``<epoch>-<number>``. The epoch identifies the process of the master daemon:
after numbers of another process, the client gets ``reset``.

Source: WHATWG HTML, *Server-sent events*.
"""

from __future__ import annotations

import asyncio
import fnmatch
import logging
import re
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from functools import lru_cache
from typing import Any, Final, NamedTuple, Protocol

from ganeti import errors
from ganeti.constants.events import (
    DEFAULT_KINDS,
    FINDING,
    INSTANCE,
    INSTANCES,
    JOB,
    KINDS,
    LOG,
    NOISY,
    PROGRESS,
)
from ganeti.rapi.master import Master
from ganeti.wire import json

_log = logging.getLogger(__name__)

#: The kinds which the argument ``kinds`` knows.
FIRST_KINDS: Final = (JOB, INSTANCE)
# Proxies and clients regard a connection as dead when it is idle for longer.
_HEARTBEAT_S: Final = 15.0
_WAIT_S: Final = 60
_RETRY_S: Final = 1.0
_KEPT: Final = 5000
#: Seconds between checks for guests which have stopped (or started) by themselves.
POLL_S: Final = 20.0
_AT_ONCE: Final = 500
#: Seconds for which events are collected after clients were woken, for each of these clients; and
#: the shortest and the longest such pause. To send an event to one client takes a part of this.
PAUSE_S: Final = 0.001
_SHORTEST_PAUSE_S: Final = 0.01
_LONGEST_PAUSE_S: Final = 1.0
# Clients which are woken before other requests have their turn.
_WOKEN_AT_ONCE: Final = 20
_KEPT_TEXTS: Final = 64
# Seconds for which noisy events are collected after the last client for them has gone.
_NOISE_S: Final = 60.0
#: Largest number of patterns in a filter, and the length of each.
MAX_NAMES: Final = 100
MAX_NAME: Final = 300
#: Stands for the position before the oldest event which is kept.
OLDEST: Final = "oldest"
#: Seconds for which the hub goes on to follow the master after an answer of the log, because its
#: client asks again.
_RETURN_S: Final = 30.0

_USUAL_KINDS: Final = sorted(set(KINDS) - NOISY)
#: Kinds of the events of a job.
OF_JOBS: Final = frozenset({JOB, LOG, PROGRESS})

#: A position: the epoch, and the number of an event.
Place = tuple[str, int]


class Event(NamedTuple):
    """An event, as the master sends it (:mod:`ganeti.master.events`).

    :ivar data: what every client gets.
    :ivar about: what clients get besides that name the kinds they want.
    """

    number: int
    kind: str
    data: dict[str, Any]
    about: dict[str, Any]

    @classmethod
    def of_wire(cls, values: list[Any]) -> Event:
        """Read an event from the wire."""
        number, kind, data, *rest = values
        return cls(number, kind, data, rest[0] if rest else {})


class Scope(Protocol):
    """What a user may see. Equal scopes are used for each other."""

    def sees(self, event: Event) -> bool:
        """Tell whether the user may see an event; see :func:`objects_of`."""


def objects_of(event: Event) -> frozenset[tuple[str, str]]:
    """Return the objects which an event is about, as pairs of kind and name.

    Kinds are ``instance``, ``node``, ``group``, ``network``, ``filter`` and ``cluster``. An event
    of a job has the objects which its opcodes name, by their whole names as far as they were known
    when the job was submitted. A renamed object has both names.
    """
    if event.kind in OF_JOBS:
        return frozenset((kind, name) for kind, name in event.about.get("objects", ()))
    kind = event.data["object"] if event.kind == FINDING else event.kind
    names = (event.data.get("name", ""), event.about.get("old_name", ""))
    return frozenset((kind, name) for name in names if name)


class Filter(NamedTuple):
    """Which events a client wants, and in which form.

    :ivar names: patterns with ``*`` and ``?``; one of them must match the name of an object of the
        event, or its first part up to a dot. With none, every name matches.
    :ivar full: the form with what is known about an event.
    :ivar scope: what the user may see; None for everything.
    """

    kinds: frozenset[str] = DEFAULT_KINDS
    names: tuple[str, ...] = ()
    full: bool = False
    scope: Scope | None = None

    def passes(self, event: Event) -> bool:
        """Tell whether the client gets an event; one which cannot be judged stops nobody."""
        if event.kind not in self.kinds:
            return False
        try:
            return self._judge(event)
        except Exception:  # noqa: BLE001 -- one odd event never stops the hub
            _log.exception("event %s of kind %s is left out", event.number, event.kind)
            return False

    def _judge(self, event: Event) -> bool:
        if self.names:
            pattern = _pattern(self.names)
            if not any(pattern.fullmatch(name.lower()) for _kind, name in objects_of(event)):
                return False
        return self.scope is None or self.scope.sees(event)

    def data(self, event: Event) -> dict[str, Any]:
        """Return what the client gets of an event."""
        if not self.full:
            return event.data
        about = {name: value for name, value in event.about.items() if name != INSTANCES}
        return {**event.data, **about}


def make_filter(
    kinds: Iterable[str] | None, names: Iterable[str] = (), scope: Scope | None = None
) -> Filter:
    """Make the filter of a client which names kinds or names, with the full form.

    :param kinds: ``*`` for all; None for the usual ones.
    :raises ParseError: a kind is unknown, or there are too many names; says which.
    """
    wanted = set(DEFAULT_KINDS if kinds is None else kinds)
    if "*" in wanted:
        wanted = set(KINDS)
    unknown = sorted(wanted - set(KINDS))
    if unknown:
        raise errors.ParseError(
            f"there are no events of kind '{unknown[0][:100]}'. Known are {', '.join(KINDS)}."
        )
    patterns = tuple(dict.fromkeys(name.lower() for name in names if name))
    if len(patterns) > MAX_NAMES or any(len(name) > MAX_NAME for name in patterns):
        raise errors.ParseError(
            f"at most {MAX_NAMES} names are possible, of {MAX_NAME} characters each"
        )
    return Filter(frozenset(wanted), patterns, full=True, scope=scope)


@lru_cache(maxsize=1000)
def _pattern(names: tuple[str, ...]) -> re.Pattern[str]:
    # A name without its domain stands for the whole name, as in commands.
    return re.compile(
        "|".join(
            fnmatch.translate(f"{name}{end}".replace("[", "[[]"))
            for name in names
            for end in ("", ".*")
        )
    )


class Form(NamedTuple):
    """How events become text.

    :ivar event: makes the text of one: its id, its kind, its data.
    :ivar heartbeat: the text which says that nothing has happened; empty if the connection has
        another sign of life.
    """

    event: Callable[[str, str, Any], str]
    heartbeat: str


def _sse_event(ident: str, kind: str, data: Any) -> str:
    return f"id: {ident}\nevent: {kind}\ndata: {json.dumps_spaced(data)}\n\n"


#: Server-sent events.
STREAM: Final = Form(_sse_event, ": still here\n\n")
RESET: Final = "reset"
_MISSING: Final = {"reason": "events are missing, look at the objects again"}


class _Ring:
    """The last events of some kinds."""

    def __init__(self) -> None:
        self.events: deque[Event] = deque(maxlen=_KEPT)
        self.dropped = 0

    def add(self, event: Event) -> None:
        if len(self.events) == self.events.maxlen:
            self.dropped = self.events[0].number
        self.events.append(event)

    def clear(self, dropped: int) -> None:
        self.events.clear()
        self.dropped = dropped

    def after(self, number: int) -> list[Event]:
        """Return the events with a higher number, newest first."""
        found = []
        for event in reversed(self.events):
            if event.number <= number:
                break
            found.append(event)
        return found


class _Sleepers:
    """Clients with one filter which know everything up to a position.

    :ivar seen: this position; there is nothing for them up to there.
    """

    def __init__(self, seen: Place) -> None:
        self.seen = seen
        self.woken: set[asyncio.Future[None]] = set()


class Hub:
    """Waits for the events of the master while at least one client listens."""

    def __init__(
        self, master: Master, *, heartbeat_s: float = _HEARTBEAT_S, poll_s: float = POLL_S
    ) -> None:
        self._master = master
        self.heartbeat_s = heartbeat_s
        self._poll_s = poll_s
        self._usual, self._noisy = _Ring(), _Ring()
        self._epoch = ""
        self._last = 0
        self._sleeping: dict[Filter, _Sleepers] = {}
        # Texts which several clients may want: filter, form, position -> text, new position.
        self._texts: dict[tuple[Filter, Form, Place], tuple[str, Place]] = {}
        self._listeners = 0
        self._task: asyncio.Task[None] | None = None
        self._watchers = 0
        self._watch_task: asyncio.Task[None] | None = None
        # Whether the master is asked for noisy events, too; for how long without such clients.
        self._noise = False
        self._noise_listeners = 0
        self._noise_until = 0.0
        self._polling = asyncio.Lock()
        self.closed = False

    async def poll(self, kinds: frozenset[str] = DEFAULT_KINDS) -> None:
        """Learn where we are, before anything is promised to a client that wants these kinds.

        :raises errors.GenericError: the master is not there.
        """
        async with self._polling:
            wants_noise = bool(kinds & NOISY)
            if wants_noise:
                self._noise_until = time.monotonic() + _NOISE_S
            if self._task is not None and (self._noise or not wants_noise):
                return
            # The present question would be answered without the noisy events.
            running, self._task = self._task, None
            if running is not None:
                running.cancel()
            self._noise = wants_noise
            try:
                await self._deliver(await self._ask(None, 0), everything=True)
            finally:
                self._begin_to_follow()

    def join(self, wanted: str | None, kinds: frozenset[str]) -> Place:
        """Begin to listen to events.

        :param wanted: the id of the last event which the client has seen, or :data:`OLDEST`.
        :returns: the position after which the client gets events.
        """
        self._listeners += 1
        if INSTANCE in kinds:
            self._watchers += 1
            if self._watch_task is None:
                self._watch_task = asyncio.create_task(self._watch())
        if kinds & NOISY:
            self._noise_listeners += 1
        self._begin_to_follow()
        if wanted == OLDEST:
            return self._epoch, max(ring.dropped for ring in self._rings(kinds))
        return parse_ident(wanted or "") or (self._epoch, self._last)

    def _rings(self, kinds: frozenset[str]) -> list[_Ring]:
        """Return where the events of these kinds are."""
        return [self._usual, self._noisy] if kinds & NOISY else [self._usual]

    def _begin_to_follow(self) -> None:
        # An answer which nobody has expected has ended it.
        ended = self._task is None or self._task.done()
        if ended and self._listeners and not self.closed:
            self._task = asyncio.create_task(self._follow())

    def leave(self, kinds: frozenset[str]) -> None:
        """Remove a client."""
        self._listeners -= 1
        if INSTANCE in kinds:
            self._watchers -= 1
            if self._watchers == 0 and self._watch_task is not None:
                self._watch_task.cancel()
                self._watch_task = None
        if kinds & NOISY:
            self._noise_listeners -= 1
        if self._listeners == 0 and self._task is not None:
            self._task.cancel()
            self._task = None
            self._usual.clear(0)
            self._noisy.clear(0)
            self._texts.clear()
            self._epoch = ""

    async def after(self, place: Place, wanted: Filter, form: Form) -> tuple[str, Place]:
        """Return the text of the events after a position, at once or after at most one heartbeat.

        A form without a heartbeat is waited for as long as it takes.

        :returns: the text, which is empty after a heartbeat without events, and the new position.
        """
        text, place = self._shared_text(place, wanted, form)
        if text or self.closed:
            return text, place
        longest_s = self.heartbeat_s if form.heartbeat else None
        return self._shared_text(await self._wait(place, wanted, longest_s), wanted, form)

    async def events(
        self, place: Place, wanted: Filter, wait_s: float
    ) -> tuple[list[Event], Place, bool]:
        """Return events after a position, at once or as soon as there are some.

        :param wait_s: seconds to wait at most; 0 for not at all.
        :returns: the events, the new position, and whether events before them are missing.
        """
        found = self._found(place, wanted)
        if found[0] or found[2] or self.closed or not wait_s:
            return found
        return self._found(await self._wait(found[1], wanted, wait_s), wanted)

    async def _wait(self, place: Place, wanted: Filter, longest_s: float | None) -> Place:
        """Wait for an event, or for a heartbeat.

        :param place: where the copy of the events ends now.
        :param longest_s: seconds up to the heartbeat; None for no heartbeat.
        :returns: the position up to which there was nothing.
        """
        sleepers = self._sleeping.get(wanted)
        if sleepers is None:
            sleepers = self._sleeping[wanted] = _Sleepers(place)
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        sleepers.woken.add(woken)
        try:
            async with asyncio.timeout(longest_s):
                await woken
        except TimeoutError:
            pass
        finally:
            sleepers.woken.discard(woken)
            if not sleepers.woken and self._sleeping.get(wanted) is sleepers:
                del self._sleeping[wanted]
        return sleepers.seen

    def _shared_text(self, place: Place, wanted: Filter, form: Form) -> tuple[str, Place]:
        here = self._epoch, self._last
        if place == here:
            return "", here
        key = wanted, form, place
        found = self._texts.get(key)
        if found is None:
            if len(self._texts) >= _KEPT_TEXTS:
                self._texts.clear()
            found = self._texts[key] = self._text(place, wanted, form)
        return found

    def _text(self, place: Place, wanted: Filter, form: Form) -> tuple[str, Place]:
        events, here, is_gap = self._found(place, wanted)
        if is_gap:
            return form.event(ident(here), RESET, _MISSING), here
        parts = [
            form.event(ident((here[0], one.number)), one.kind, wanted.data(one)) for one in events
        ]
        return "".join(parts), here

    def _found(self, place: Place, wanted: Filter) -> tuple[list[Event], Place, bool]:
        here = self._epoch, self._last
        epoch, number = place
        rings = self._rings(wanted.kinds)
        if (
            epoch != self._epoch
            or number > self._last
            or any(number < ring.dropped for ring in rings)
        ):
            return [], here, True
        events = sorted(
            (one for ring in rings for one in ring.after(number) if wanted.passes(one)),
            key=lambda one: one.number,
        )
        if len(events) > _AT_ONCE:
            events = events[:_AT_ONCE]
            here = epoch, events[-1].number
        return events, here, False

    async def close(self) -> None:
        """End the streams of all clients."""
        self.closed = True
        for task in (self._task, self._watch_task):
            if task is not None:
                task.cancel()
        for sleepers in self._sleeping.values():
            _wake(sleepers.woken)

    async def _ask(self, place: list[Any] | None, wait_s: float) -> dict[str, Any]:
        kinds = list(KINDS) if self._noise else _USUAL_KINDS
        answer: dict[str, Any] = await self._master.call("WaitForEvents", place, wait_s, kinds)
        return answer

    async def _follow(self) -> None:
        while True:
            if self._noise_listeners:
                self._noise_until = time.monotonic() + _NOISE_S
            elif self._noise and time.monotonic() > self._noise_until:
                self._noise = False
                self._noisy.clear(self._last)
            try:
                answer = await self._ask([self._epoch, self._last], _WAIT_S)
            except errors.GenericError as err:
                _log.info("cannot get events from the master now: %s", err)
                await asyncio.sleep(_RETRY_S)
                continue
            count = await self._deliver(answer)
            if count:
                pause_s = max(_SHORTEST_PAUSE_S, PAUSE_S * count)
                await asyncio.sleep(min(_LONGEST_PAUSE_S, pause_s))

    async def _deliver(self, answer: dict[str, Any], *, everything: bool = False) -> int:
        """Take an answer of the master, and wake the clients for which there are events.

        :param everything: it has all events, also those which are known.
        :returns: the number of these clients.
        """
        is_gap = answer["epoch"] != self._epoch or answer["lost"]
        new = self._take(answer, everything=everything)
        ready: list[asyncio.Future[None]] = []
        for wanted, sleepers in list(self._sleeping.items()):
            if is_gap or any(map(wanted.passes, new)):
                del self._sleeping[wanted]
                ready.extend(sleepers.woken)
            else:
                sleepers.seen = self._epoch, self._last
        try:
            for place in range(0, len(ready), _WOKEN_AT_ONCE):
                _wake(ready[place : place + _WOKEN_AT_ONCE])
                await asyncio.sleep(0)
        finally:
            _wake(ready)
        return len(ready)

    async def _watch(self) -> None:
        """Let the master query the guests; changes arrive as events."""
        while True:
            try:
                await self._master.call("CheckGuests")
            except errors.GenericError as err:
                _log.info("cannot query the guests now: %s", err)
            await asyncio.sleep(self._poll_s)

    def _take(self, answer: dict[str, Any], *, everything: bool) -> list[Event]:
        """Add events from the master; return those which are new."""
        events = [Event.of_wire(values) for values in answer["events"]]
        is_gap = answer["epoch"] != self._epoch or answer["lost"]
        known = 0 if is_gap else self._last
        if everything or is_gap:
            usual, noisy = answer["dropped"]
            self._usual.clear(usual)
            self._noisy.clear(noisy if self._noise else answer["last"])
        elif not self._noise:
            self._noisy.clear(answer["last"])
        self._texts.clear()
        self._epoch = answer["epoch"]
        self._last = answer["last"]
        for event in events:
            (self._noisy if event.kind in NOISY else self._usual).add(event)
        return [event for event in events if event.number > known]


def _wake(woken: Iterable[asyncio.Future[None]]) -> None:
    for one in woken:
        if not one.done():
            one.set_result(None)


def ident(place: Place) -> str:
    """Return the id of an event."""
    return f"{place[0]}-{place[1]}"


def parse_ident(text: str) -> Place | None:
    """Read the id of an event; None if it is none."""
    epoch, _, number = text.rpartition("-")
    if epoch and number.isascii() and number.isdigit() and len(number) < 19:
        return epoch, int(number)
    return None


async def stream(hub: Hub, wanted: Filter, last: str | None) -> AsyncIterator[bytes]:
    """Make the text of a stream, from now on or after an event.

    :raises errors.GenericError: the master does not run.
    """
    await hub.poll(wanted.kinds)
    return _stream(hub, wanted, last)


async def _stream(hub: Hub, wanted: Filter, last: str | None) -> AsyncIterator[bytes]:
    place = hub.join(last, wanted.kinds)
    try:
        yield f"retry: {int(_RETRY_S * 1000)}\n\n".encode("ascii")
        while not hub.closed:
            text, place = await hub.after(place, wanted, STREAM)
            yield (text or STREAM.heartbeat).encode("ascii")
    finally:
        hub.leave(wanted.kinds)


async def log(hub: Hub, wanted: Filter, last: str | None, wait_s: float) -> dict[str, Any]:
    """Return the events after one, for a client which asks again and again.

    :param last: the id of an event; None for the newest one, :data:`OLDEST` for all that are kept.
    :param wait_s: seconds to wait for the first one at most.
    :returns: ``last``, the id for the next request; ``lost``, whether events are missing before
        that; ``events``, each with ``id``, ``kind`` and ``data``.
    :raises errors.GenericError: the master does not run.
    """
    await hub.poll(wanted.kinds)
    place = hub.join(last, wanted.kinds)
    try:
        events, place, is_gap = await hub.events(place, wanted, wait_s)
    finally:
        asyncio.get_running_loop().call_later(_RETURN_S, hub.leave, wanted.kinds)
    return {
        "last": ident(place),
        "lost": is_gap,
        "events": [
            {"id": ident((place[0], one.number)), "kind": one.kind, "data": wanted.data(one)}
            for one in events
        ],
    }
