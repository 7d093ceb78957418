"""The last events of the cluster, and waiting for the next one.

LUXI method ``WaitForEvents``, an extension, answers with events, so that clients need not query
every job and every instance again and again. The log keeps the last :data:`KEPT` events in memory.
Each has a number; numbers count up from one in the life of the process, which the *epoch*
identifies. Two kinds of events exist:

``job``
    a job has another status: id, status, summary, and the time of the change. The event follows the
    publication of the change.
``instance``
    the configuration of an instance changed: name, uuid, what happened (``added``, ``changed``,
    ``removed``), and the new ``admin_state``, primary node and serial number. Or the state of its
    guest changed without that (``state``, with the new ``status``).

No node reports that a guest has stopped by itself. The master notices it when the answer to a query
brings live data (:class:`GuestChanges`); while clients listen to the REST daemon, that daemon sends
``CheckGuests`` now and then.

A waiting client is a subscription, which the next event satisfies; it costs no thread.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final, NamedTuple, TypedDict

from ganeti.cmdlib.base import MasterContext
from ganeti.jqueue.job import FINALIZED, QueuedJob
from ganeti.locking import EXCLUSIVE, Level
from ganeti.objects import ConfigData, Instance
from ganeti.query.resources import instance as instance_fields
from ganeti.query.view import View
from ganeti.utils import clock, text

#: Number of events which the log keeps.
KEPT: Final = 5000
# Seconds after a request during which the client counts as a listener. It repeats the request at
# least once a minute.
_LISTENING_S: Final = 300.0


class Event(NamedTuple):
    """An event, which the wire shows as a list.

    :ivar kind: ``job`` or ``instance``.
    :ivar data: as the text of this module says.
    """

    number: int
    kind: str
    data: dict[str, Any]


class EventsAnswer(TypedDict):
    """The answer to ``WaitForEvents``.

    ``last`` is the number of the newest event; ``lost`` says that events after the place of the
    client are no longer in the log.
    """

    epoch: str
    last: int
    events: list[Event]
    lost: bool


_Notify = Callable[[EventsAnswer], None]


class EventLog:
    """The last events. Thread-safe; to add an event never waits for a client.

    :param kept: number of events to keep.
    :ivar epoch: identifies this log.
    """

    def __init__(self, *, kept: int = KEPT) -> None:
        self.epoch: str = text.new_uuid()
        self._lock = threading.Lock()
        self._events: deque[Event] = deque(maxlen=kept)
        self._last = 0
        self._waiting: list[_Notify] = []
        self._asked_at = -_LISTENING_S
        # Status of each unfinished job in its last event, so that only changes become events.
        self._statuses: dict[int, str] = {}

    def jobs_published(self, published: Iterable[QueuedJob]) -> None:
        """Add events for jobs whose published status changed; called by the queue."""
        found = []
        now = clock.now()
        with self._lock:
            for job in published:
                status = job.published_status
                if self._statuses.get(job.id) == status:
                    continue
                if status in FINALIZED:
                    self._statuses.pop(job.id, None)
                else:
                    self._statuses[job.id] = status
                found.append(
                    (
                        "job",
                        {
                            "id": job.id,
                            "status": status,
                            "summary": [op.summary() for op in job.ops],
                            "timestamp": now,
                        },
                    )
                )
        self._add(found)

    def config_changed(
        self, before: ConfigData, after: ConfigData, changed: Collection[tuple[str, str]]
    ) -> None:
        """Add events for changed instances; called by the store of the configuration.

        :param changed: kind and uuid of each changed object.
        """
        found = []
        for kind, uuid in changed:
            if kind != "instances":
                continue
            old, new = before.instances.get(uuid), after.instances.get(uuid)
            what = "added" if old is None else "removed" if new is None else "changed"
            one = new or old
            if one is None or old is new:
                continue
            node = after.nodes.get(one.primary_node)
            found.append(
                (
                    "instance",
                    {
                        "name": one.name,
                        "uuid": uuid,
                        "change": what,
                        "admin_state": None if new is None else new.admin_state,
                        "primary_node": None if node is None else node.name,
                        "serial_no": one.serial_no,
                        "timestamp": clock.now(),
                    },
                )
            )
        self._add(found)

    def guests_changed(self, data: ConfigData, found: Iterable[tuple[Instance, str]]) -> None:
        """Add events for guests whose state changed.

        :param found: the instances with their new statuses.
        """
        now = clock.now()
        self._add(
            [
                (
                    "instance",
                    {
                        "name": instance.name,
                        "uuid": instance.uuid,
                        "change": "state",
                        "status": status,
                        "admin_state": instance.admin_state,
                        "primary_node": data.nodes[instance.primary_node].name
                        if instance.primary_node in data.nodes
                        else None,
                        "serial_no": instance.serial_no,
                        "timestamp": now,
                    },
                )
                for instance, status in found
            ]
        )

    @property
    def listened(self) -> bool:
        """True if a client has asked for events in the last minutes."""
        return time.monotonic() - self._asked_at < _LISTENING_S

    def after(self, place: tuple[str, int] | None) -> EventsAnswer:
        """Return the events after a place.

        :param place: epoch and number; None for all events in the log.
        """
        self._asked_at = time.monotonic()
        with self._lock:
            return self._after(place)

    def wait(self, place: tuple[str, int], notify: _Notify) -> bool:
        """Call `notify` once with the events after a place, as soon as there are any.

        :returns: True when `notify` will be called later; False when it was called already.
        """
        self._asked_at = time.monotonic()
        with self._lock:
            if place == (self.epoch, self._last):
                self._waiting.append(notify)
                return True
            found = self._after(place)
        notify(found)
        return False

    def stop_waiting(self, notify: _Notify) -> bool:
        """End a subscription; False when it was notified already, or is being notified."""
        with self._lock:
            if notify not in self._waiting:
                return False
            self._waiting.remove(notify)
            return True

    def _after(self, place: tuple[str, int] | None) -> EventsAnswer:
        events, lost = list(self._events), False
        if place is not None:
            epoch, number = place
            lost = epoch != self.epoch or not self._last - len(events) <= number <= self._last
            if not lost:
                events = events[len(events) - (self._last - number) :]
        return {"epoch": self.epoch, "last": self._last, "events": events, "lost": lost}

    def _add(self, found: Iterable[tuple[str, dict[str, Any]]]) -> None:
        with self._lock:
            before = self._last
            for kind, data in found:
                self._last += 1
                self._events.append(Event(self._last, kind, data))
            if self._last == before:
                return
            waiting, self._waiting = self._waiting, []
            answer = self._after((self.epoch, before))
        for notify in waiting:
            notify(answer)


class GuestChanges:
    """Compares live data of guests with the previous ones, and adds events for the changes.

    Costs nothing while no client listens to events. The first data of a guest make no event. While
    a job works on an instance, its guest is not compared; that follows after the job's end.
    """

    def __init__(self, log: EventLog, context: MasterContext) -> None:
        self._log = log
        self._context = context
        self._lock = threading.Lock()
        self._known: dict[str, str] = {}

    def seen(self, view: View, instances: Iterable[Instance]) -> None:
        """Compare live data of these instances; queries call this in any thread."""
        if not self._log.listened:
            with self._lock:
                self._known.clear()
            return
        found = [(instance, instance_fields.status(view, instance)) for instance in instances]
        data = self._context.config.snapshot()
        with self._lock:
            different = [
                (instance, status)
                for instance, status in found
                if self._known.get(instance.uuid) != status
            ]
            if not different:
                return
            busy = {row.name for row in self._context.locks.table() if row.mode == EXCLUSIVE}
            changed = []
            for instance, status in different:
                # Its configuration has changed since the query, or is being changed.
                if (
                    data.instances.get(instance.uuid) is not instance
                    or f"{Level.INSTANCE.label}/{instance.uuid}" in busy
                ):
                    continue
                if instance.uuid in self._known:
                    changed.append((instance, status))
                self._known[instance.uuid] = status
            for uuid in self._known.keys() - data.instances.keys():
                del self._known[uuid]
        self._log.guests_changed(data, changed)
