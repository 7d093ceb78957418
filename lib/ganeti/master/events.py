"""The master's last events, and waiting for the next: method ``WaitForEvents``, an extension.

Who wants to know what happens would otherwise ask for every job and every instance again and again.
The log keeps the last :data:`KEPT` events in memory; each has a number, and numbers count up from
one in the life of the process, which the *epoch* names. Two kinds of events exist:

``job``
    a job has another status: id, status, summary, and the time of the change. Told when the change
    is as safe as the job itself, like everything the queue tells.
``instance``
    the configuration of an instance is another: name, uuid, what happened (``added``, ``changed``,
    ``removed``), and the new ``admin_state``, primary node and serial number. Or its guest does
    something else than before without that (``state``, with the new ``status``).

That a guest stopped by itself no node tells by itself. The master notices it when live data comes
in with a query, whoever asked (:class:`Guests`); while clients listen to the REST daemon, that asks
now and then.

Waiting is a subscription which the next event feeds; it costs no thread.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

from ganeti.cmdlib.base import MasterContext
from ganeti.jqueue.job import FINALIZED, QueuedJob
from ganeti.locking import EXCLUSIVE, Level
from ganeti.objects import ConfigData, Instance
from ganeti.query.resources import instance as instance_fields
from ganeti.query.view import View
from ganeti.utils import clock, text

KEPT: Final = 5000
# Who listens asks again at least once a minute.
_LISTENING_S: Final = 300.0

_Tell = Callable[[dict[str, Any]], None]


class EventLog:
    """The last events. Thread-safe; adding one never waits for anybody."""

    def __init__(self, *, kept: int = KEPT) -> None:
        self.epoch: str = text.new_uuid()
        self._lock = threading.Lock()
        self._events: deque[list[Any]] = deque(maxlen=kept)
        self._last = 0
        self._waiting: list[_Tell] = []
        self._asked_at = -_LISTENING_S
        # What was told of the jobs that have not ended, so that only news are told.
        self._statuses: dict[int, str] = {}

    def jobs_published(self, shown: Iterable[QueuedJob]) -> None:
        """Jobs as they are now known to be; called by the queue."""
        found = []
        now = clock.now()
        with self._lock:
            for job in shown:
                status = job.published_status
                if self._statuses.get(job.id) == status:
                    continue
                if status in FINALIZED:
                    self._statuses.pop(job.id, None)
                else:
                    self._statuses[job.id] = status
                found.append(
                    [
                        "job",
                        {
                            "id": job.id,
                            "status": status,
                            "summary": [op.summary() for op in job.ops],
                            "timestamp": now,
                        },
                    ]
                )
        self._add(found)

    def config_changed(
        self, before: ConfigData, after: ConfigData, changed: Collection[tuple[str, str]]
    ) -> None:
        """Objects of the configuration are others; called by the configuration's store.

        :param changed: kind and uuid of each.
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
                [
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
                ]
            )
        self._add(found)

    def guests_changed(self, data: ConfigData, found: Iterable[tuple[Instance, str]]) -> None:
        """Guests do something else than they did, told with their new statuses."""
        now = clock.now()
        self._add(
            [
                [
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
                ]
                for instance, status in found
            ]
        )

    @property
    def listened(self) -> bool:
        """Whether anybody has asked in the last minutes."""
        return time.monotonic() - self._asked_at < _LISTENING_S

    def after(self, place: tuple[str, int] | None) -> dict[str, Any]:
        """What happened after a place.

        :param place: epoch and number; None for everything that is kept.
        """
        self._asked_at = time.monotonic()
        with self._lock:
            return self._after(place)

    def wait(self, place: tuple[str, int], tell: _Tell) -> bool:
        """Call `tell` once with what happened after a place, when there is anything.

        :returns: whether it will be called later; False when there is something already, and it
            was called.
        """
        self._asked_at = time.monotonic()
        with self._lock:
            if place == (self.epoch, self._last):
                self._waiting.append(tell)
                return True
            found = self._after(place)
        tell(found)
        return False

    def stop_waiting(self, tell: _Tell) -> bool:
        """End a subscription; False when it was told already, or is being told."""
        with self._lock:
            if tell not in self._waiting:
                return False
            self._waiting.remove(tell)
            return True

    def _after(self, place: tuple[str, int] | None) -> dict[str, Any]:
        events, lost = list(self._events), False
        if place is not None:
            epoch, number = place
            lost = epoch != self.epoch or not self._last - len(events) <= number <= self._last
            if not lost:
                events = events[len(events) - (self._last - number) :]
        return {"epoch": self.epoch, "last": self._last, "events": events, "lost": lost}

    def _add(self, found: Iterable[list[Any]]) -> None:
        with self._lock:
            before = self._last
            for kind, data in found:
                self._last += 1
                self._events.append([self._last, kind, data])
            if self._last == before:
                return
            waiting, self._waiting = self._waiting, []
            told = self._after((self.epoch, before))
        for tell in waiting:
            tell(told)


class Guests:
    """Compares what guests do with what they did when somebody looked the last time.

    Costs nothing while nobody listens to events. The first look at a guest is no event. Neither is
    what a job that works on the instance does meanwhile: it is compared when the job has ended.
    """

    def __init__(self, log: EventLog, context: MasterContext) -> None:
        self._log = log
        self._context = context
        self._lock = threading.Lock()
        self._known: dict[str, str] = {}

    def seen(self, view: View, instances: Iterable[Instance]) -> None:
        """Live data about instances has come in; called by queries, on any thread."""
        if not self._log.listened:
            with self._lock:
                self._known.clear()
            return
        found = [(instance, instance_fields.status(view, instance)) for instance in instances]
        data = self._context.config.snapshot()
        with self._lock:
            news = [
                (instance, status)
                for instance, status in found
                if self._known.get(instance.uuid) != status
            ]
            if not news:
                return
            busy = {row.name for row in self._context.locks.table() if row.mode == EXCLUSIVE}
            told = []
            for instance, status in news:
                # Overtaken by a change of its configuration, or in the middle of one.
                if (
                    data.instances.get(instance.uuid) is not instance
                    or f"{Level.INSTANCE.label}/{instance.uuid}" in busy
                ):
                    continue
                if instance.uuid in self._known:
                    told.append((instance, status))
                self._known[instance.uuid] = status
            for uuid in self._known.keys() - data.instances.keys():
                del self._known[uuid]
        self._log.guests_changed(data, told)
