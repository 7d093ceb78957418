"""The last events of the cluster, and waiting for the next one.

LUXI method ``WaitForEvents``, an extension, answers with events, so that clients need not query
every job and every object again and again. The log keeps the last :data:`KEPT` events in memory,
and as many lines and steps of jobs. Each has a number; numbers count up from one in the life of the
process, which the *epoch* identifies. These kinds of events exist:

``job``
    a job has another status: id, status, summary, and the time of the change. The event follows the
    publication of the change.
``instance``
    the configuration of an instance changed: name, uuid, what happened (``added``, ``changed``,
    ``removed``), and the new ``admin_state``, primary node and serial number. Or the state of its
    guest changed without that (``state``, with the new ``status``).
``node``, ``group``, ``network``, ``filter``, ``cluster``
    likewise for other objects of the configuration
``finding``
    a verification found a problem (``appeared``), or does not find it any more (``gone``):
    :mod:`ganeti.master.event_findings`
``log``, ``progress``
    a line in the log of a job, and how far it is; made only while a client asks for them

A client which names no kinds gets those of jobs and instances. One which names kinds gets with each
event what else is known *about* it: the objects and the user of a job, the changed fields and the
tags of an object (:mod:`ganeti.master.event_data`).

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
from typing import Any, Final, NamedTuple, NotRequired, TypedDict

from ganeti import errors
from ganeti.cmdlib.base import MasterContext
from ganeti.config.api import Config
from ganeti.constants import events as const
from ganeti.jqueue.job import FINALIZED, QueuedJob
from ganeti.locking import EXCLUSIVE, Level
from ganeti.luxi.answers import VerifyReport
from ganeti.master import event_data
from ganeti.master.event_findings import KnownFindings
from ganeti.objects import ConfigData, Instance, Network, Node, NodeGroup
from ganeti.opcodes import subjects
from ganeti.query.resources import instance as instance_fields
from ganeti.query.view import View
from ganeti.utils import clock, text

#: Number of events which the log keeps.
KEPT: Final = 5000
# Seconds after a request during which the client counts as a listener. It repeats the request at
# least once a minute.
_LISTENING_S: Final = 300.0

#: An event, which the wire shows as a list: its number, its kind, its data as the text of this
#: module says; and what is known about it, only for clients which name kinds.
Event = tuple[Any, ...]

_Place = tuple[str, int]
_Kinds = frozenset[str] | None


class _Kept(NamedTuple):
    number: int
    kind: str
    data: dict[str, Any]
    about: dict[str, Any]


class EventsAnswer(TypedDict):
    """The answer to ``WaitForEvents``.

    ``last`` is the number of the newest event; ``lost`` says that events after the place of the
    client are no longer in the log. A client which names kinds also gets ``dropped``: the numbers
    of the newest event which is no longer in the log, of the usual kinds and of the noisy ones.
    """

    epoch: str
    last: int
    events: list[Event]
    lost: bool
    dropped: NotRequired[list[int]]


_Notify = Callable[[EventsAnswer], None]


class _Waiting(NamedTuple):
    notify: _Notify
    place: _Place
    kinds: _Kinds


class _Ring:
    """The last events of some kinds."""

    def __init__(self, kept: int) -> None:
        self._events: deque[_Kept] = deque(maxlen=kept)
        #: Number of the newest event which is not kept any more.
        self.dropped = 0

    def add(self, event: _Kept) -> None:
        if len(self._events) == self._events.maxlen:
            self.dropped = self._events[0].number
        self._events.append(event)

    def after(self, number: int) -> list[_Kept]:
        """Return the events with a higher number, in their order."""
        found = []
        for event in reversed(self._events):
            if event.number <= number:
                break
            found.append(event)
        found.reverse()
        return found


def finder(config: Config) -> event_data.Find:
    """Return the function ``find`` of :class:`EventLog` for the objects of a configuration."""
    find: dict[str, Callable[[str], Instance | Node | NodeGroup | Network]] = {
        subjects.INSTANCE: config.expand_instance,
        subjects.NODE: config.expand_node,
        subjects.GROUP: config.expand_group,
        subjects.NETWORK: config.expand_network,
    }

    def named(kind: str, name: str) -> event_data.Named:
        if kind == const.CLUSTER:
            return event_data.Named(name, config.cluster().tags)
        try:
            found = find[kind](name)
        except (errors.GenericError, KeyError):
            # It does not exist yet, or any more.
            return event_data.Named(name)
        groups = event_data.groups_of(config.snapshot(), found)
        return event_data.Named(found.name, found.tags, groups)

    return named


class EventLog:
    """The last events. Thread-safe; to add an event never waits for a client.

    :param kept: number of events to keep, of the usual kinds and of lines and steps of jobs.
    :param find: knows the objects which jobs and findings name.
    :ivar epoch: identifies this log.
    """

    def __init__(self, *, kept: int = KEPT, find: event_data.Find = event_data.unknown) -> None:
        self.epoch: str = text.new_uuid()
        self._lock = threading.Lock()
        self._find = find
        self._usual, self._noisy = _Ring(kept), _Ring(kept)
        self._last = 0
        self._waiting: list[_Waiting] = []
        self._asked_at = self._noise_asked_at = -_LISTENING_S
        # Status of each unfinished job in its last event, so that only changes become events.
        self._statuses: dict[int, str] = {}
        # What is known about each of these jobs.
        self._abouts: dict[int, dict[str, Any]] = {}
        # Of jobs whose lines are wanted: the last line which became an event, the last progress.
        self._lines: dict[int, int] = {}
        self._progress: dict[int, dict[str, Any]] = {}
        self._findings = KnownFindings(find)

    def recover(self, jobs: Iterable[QueuedJob]) -> None:
        """Learn from the jobs in the queue which findings are not new."""
        self._findings.recover(jobs)

    def verified(self, groups: Collection[str]) -> VerifyReport:
        """Return the last findings of the verification of the cluster.

        :param groups: the names of all node groups.
        """
        return self._findings.report(groups)

    def jobs_published(self, published: Iterable[QueuedJob]) -> None:
        """Add events for jobs whose published status changed; called by the queue."""
        found: list[event_data.Made] = []
        now = clock.now()
        for job in published:
            self._note_job(job, now, found)
        self._add(found)

    def _note_job(self, job: QueuedJob, now: float, found: list[event_data.Made]) -> None:
        # Without the lock of this object: it asks the configuration.
        about = self._about(job)
        with self._lock:
            status = self._note_status(job, about, now, found)
        if status in FINALIZED:
            found.extend(self._findings.of_job(job, now))

    def _note_status(
        self, job: QueuedJob, about: dict[str, Any], now: float, found: list[event_data.Made]
    ) -> str | None:
        """Note the status of a job; return it if it is another one."""
        status = job.published_status
        begins = job.id not in self._statuses
        if self._noise_wanted and not (begins and status in FINALIZED):
            if begins:
                self._lines.setdefault(job.id, 0)
            self._note_lines(job, about, found)
        if self._statuses.get(job.id) == status:
            return None
        if status in FINALIZED:
            for kept in (self._statuses, self._abouts, self._lines, self._progress):
                kept.pop(job.id, None)
        else:
            self._statuses[job.id] = status
            self._abouts[job.id] = about
        what = {
            "id": job.id,
            "status": status,
            "summary": [op.summary() for op in job.ops],
            "timestamp": now,
        }
        found.append((const.JOB, what, about))
        return status

    def _about(self, job: QueuedJob) -> dict[str, Any]:
        about = self._abouts.get(job.id)
        return event_data.of_job(job, self._find) if about is None else about

    def job_logged(self, job: QueuedJob) -> None:
        """Add events for new lines in the log of a job, if a client wants them."""
        if not self._noise_wanted:
            if self._lines:
                with self._lock:
                    self._lines.clear()
                    self._progress.clear()
            return
        found: list[event_data.Made] = []
        about = self._about(job)
        with self._lock:
            self._note_lines(job, about, found)
        self._add(found)

    @property
    def _noise_wanted(self) -> bool:
        return time.monotonic() - self._noise_asked_at < _LISTENING_S

    def _note_lines(
        self, job: QueuedJob, about: dict[str, Any], found: list[event_data.Made]
    ) -> None:
        # Of a job whose earlier lines nobody wanted: the last line.
        known = self._lines.get(job.id, max(0, job.next_log_serial - 2))
        entries = job.log_after(known)
        if entries:
            self._lines[job.id] = entries[-1][0]
            found.extend((const.LOG, event_data.of_line(job.id, entry), about) for entry in entries)
        progress = event_data.progress_of(job, entries)
        if self._progress.get(job.id) != progress:
            self._progress[job.id] = progress
            found.append((const.PROGRESS, {**progress, "timestamp": clock.now()}, about))

    def config_changed(
        self, before: ConfigData, after: ConfigData, changed: Collection[tuple[str, str]]
    ) -> None:
        """Add events for changed objects; called by the store of the configuration.

        :param changed: kind and uuid of each changed object.
        """
        now = clock.now()
        found = list(event_data.of_changes(before, after, changed, now))
        for kind, what, _about in tuple(found):
            if kind == const.GROUP and what["change"] == "removed":
                found.extend(self._findings.forget_group(what["name"], now))
        self._add(found)

    def guests_changed(self, config: ConfigData, found: Iterable[tuple[Instance, str]]) -> None:
        """Add events for guests whose state changed.

        :param found: the instances with their new statuses.
        """
        now = clock.now()
        self._add(
            [
                (
                    const.INSTANCE,
                    {
                        "name": instance.name,
                        "uuid": instance.uuid,
                        "change": "state",
                        "status": status,
                        "admin_state": instance.admin_state,
                        "primary_node": config.nodes[instance.primary_node].name
                        if instance.primary_node in config.nodes
                        else None,
                        "serial_no": instance.serial_no,
                        "timestamp": now,
                    },
                    {
                        "members": [],
                        "tags": sorted(instance.tags),
                        "groups": event_data.groups_of(config, instance),
                    },
                )
                for instance, status in found
            ]
        )

    @property
    def listened(self) -> bool:
        """True if a client has asked for events in the last minutes."""
        return time.monotonic() - self._asked_at < _LISTENING_S

    def after(self, place: _Place | None, kinds: _Kinds = None) -> EventsAnswer:
        """Return the events after a place.

        :param place: epoch and number; None for all events in the log.
        :param kinds: the kinds which the client wants; None for those of jobs and instances, in the
            form without what is known about an event.
        """
        self._note_request(kinds)
        with self._lock:
            return self._after(place, kinds)

    def wait(self, place: _Place, notify: _Notify, kinds: _Kinds = None) -> bool:
        """Call `notify` once with the events after a place, as soon as there are any.

        :param kinds: as for :meth:`after`.
        :returns: True when `notify` will be called later; False when it was called already.
        """
        self._note_request(kinds)
        with self._lock:
            found = self._after(place, kinds)
            if not found["events"] and not found["lost"]:
                self._waiting.append(_Waiting(notify, place, kinds))
                return True
        notify(found)
        return False

    def _note_request(self, kinds: _Kinds) -> None:
        self._asked_at = time.monotonic()
        if kinds is not None and kinds & const.NOISY:
            self._noise_asked_at = self._asked_at

    def stop_waiting(self, notify: _Notify) -> bool:
        """End a subscription; False when it was notified already, or is being notified."""
        with self._lock:
            left = [one for one in self._waiting if one.notify != notify]
            found = len(left) < len(self._waiting)
            self._waiting = left
            return found

    def _after(self, place: _Place | None, kinds: _Kinds) -> EventsAnswer:
        wanted = const.DEFAULT_KINDS if kinds is None else kinds
        rings = [
            ring
            for ring, has in (
                (self._usual, wanted - const.NOISY),
                (self._noisy, wanted & const.NOISY),
            )
            if has
        ]
        number, lost = 0, False
        if place is not None:
            epoch, number = place
            lost = epoch != self.epoch or number > self._last
            lost = lost or any(number < ring.dropped for ring in rings)
        found = [
            event
            for ring in rings
            for event in ring.after(0 if lost else number)
            if event.kind in wanted
        ]
        if len(rings) > 1:
            found.sort()
        answer: EventsAnswer = {
            "epoch": self.epoch,
            "last": self._last,
            "events": [tuple(one) if kinds is not None else one[:3] for one in found],
            "lost": lost,
        }
        if kinds is not None:
            answer["dropped"] = [self._usual.dropped, self._noisy.dropped]
        return answer

    def _add(self, found: Collection[event_data.Made]) -> None:
        if not found:
            return
        with self._lock:
            for kind, what, about in found:
                self._last += 1
                ring = self._noisy if kind in const.NOISY else self._usual
                ring.add(_Kept(self._last, kind, what, about))
            kinds = {one[0] for one in found}
            ready: list[_Waiting] = []
            waiting: list[_Waiting] = []
            for one in self._waiting:
                wanted = const.DEFAULT_KINDS if one.kinds is None else one.kinds
                (waiting if kinds.isdisjoint(wanted) else ready).append(one)
            self._waiting = waiting
            answers = {one[1:]: self._after(one.place, one.kinds) for one in ready}
        for one in ready:
            one.notify(answers[one[1:]])


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
        config = self._context.config.snapshot()
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
                    config.instances.get(instance.uuid) is not instance
                    or f"{Level.INSTANCE.label}/{instance.uuid}" in busy
                ):
                    continue
                if instance.uuid in self._known:
                    changed.append((instance, status))
                self._known[instance.uuid] = status
            for uuid in self._known.keys() - config.instances.keys():
                del self._known[uuid]
        self._log.guests_changed(config, changed)
