"""Repair of instances: what is broken, what tags allow, and what was tried before.

Tags are the only memory of repairs. All begin with :data:`PREFIX`:

======================================= ==========================================================
``TYPE``                                repairs up to this type are allowed
``suspend``, ``suspend:TIME``           no repairs, for ever or until a time
``pending:TYPE:UUID:TIME:JOBS``         jobs which repair the instance were submitted
``result:TYPE:UUID:TIME:RESULT:JOBS``   how the last repair ended
======================================= ==========================================================

``TIME`` is in seconds since 1970, ``JOBS`` are numbers of jobs with ``+`` between them. The first
two kinds are on the cluster, on groups or on instances; the others, on instances, are written by
the program **harep**.

Source: manual page harep(1); ``ganeti:watcher:autorepair:`` is published.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from ganeti.constants import disk as disk_c
from ganeti.htools.instance import NO_NODE, Instance
from ganeti.htools.node import Node

PREFIX = "ganeti:watcher:autorepair:"

FIX_STORAGE = "fix-storage"
MIGRATE = "migrate"
FAILOVER = "failover"
REINSTALL = "reinstall"
#: The types of repair, the one which destroys least first. A type allows those before it.
TYPES = (FIX_STORAGE, MIGRATE, FAILOVER, REINSTALL)

SUCCESS = "success"
FAILURE = "failure"
NOT_PERMITTED = "enoperm"
RESULTS = (SUCCESS, FAILURE, NOT_PERMITTED)

_RECORD = re.compile(
    rf"(?:pending|result):(?P<type>{'|'.join(TYPES)}):(?P<uuid>[^:]+):(?P<time>[0-9]{{1,18}})"
    rf"(?::(?P<result>{'|'.join(RESULTS)}))?:(?P<jobs>(?:[0-9]{{1,18}}(?:\+[0-9]{{1,18}})*)?)",
    re.ASCII,
)


class State(Enum):
    """What the tags of an instance say about its repair; the values are printed."""

    HEALTHY = "Healthy"
    NEEDS_REPAIR = "Needs repair"
    PENDING = "Pending repair"
    FAILED = "Failure"


@dataclass(frozen=True, slots=True)
class Record:
    """A repair in the tags of an instance.

    :ivar type: one of :data:`TYPES`.
    :ivar uuid: of the repair; its pending tag and its result have the same.
    :ivar time: seconds since 1970.
    :ivar result: one of :data:`RESULTS`; None while the jobs run.
    :ivar text: the tag as it was read; None for a new one.
    """

    type: str
    uuid: str
    time: int
    jobs: tuple[int, ...] = ()
    result: str | None = None
    text: str | None = None

    @property
    def tag(self) -> str:
        """The tag."""
        if self.text is not None:
            return self.text
        kind = "pending" if self.result is None else "result"
        parts = [kind, self.type, self.uuid, str(self.time)]
        if self.result is not None:
            parts.append(self.result)
        return PREFIX + ":".join([*parts, "+".join(str(job) for job in self.jobs)])

    def ended(self, result: str, now: int) -> Record:
        """Return the record of the result of this repair."""
        return replace(self, result=result, time=now, text=None)


@dataclass(frozen=True, slots=True)
class History:
    """What the tags of an instance say about earlier repairs.

    :ivar pending: repairs whose jobs may still run, the oldest first.
    :ivar results: how repairs ended, the oldest first.
    """

    pending: tuple[Record, ...] = ()
    results: tuple[Record, ...] = ()

    @property
    def state(self) -> State:
        """The state; a repair that failed once is not repeated before its tag is removed.

        A repair that runs counts more than an older result: both tags are there when the program
        was interrupted between them.
        """
        if any(one.result == FAILURE for one in self.results):
            return State.FAILED
        return State.PENDING if self.pending else State.HEALTHY


@dataclass(frozen=True, slots=True)
class Permission:
    """What tags allow for an instance.

    :ivar type: the highest type of repair which is allowed; None for no repairs.
    :ivar suspended_until: seconds since 1970 until which repairs are suspended, ``inf`` for ever;
        None for not suspended.
    """

    type: str | None = None
    suspended_until: float | None = None

    def allows(self, wanted: str) -> bool:
        """Return True if a type of repair is allowed now."""
        return self.type is not None and TYPES.index(wanted) <= TYPES.index(self.type)


def parse(tag: str) -> Record | None:
    """Read the tag of a repair; None for every other tag."""
    found = _RECORD.fullmatch(tag.removeprefix(PREFIX)) if tag.startswith(PREFIX) else None
    if found is None or (found["result"] is None) != tag.startswith(f"{PREFIX}pending:"):
        return None
    jobs = tuple(int(job) for job in found["jobs"].split("+") if job)
    return Record(found["type"], found["uuid"], int(found["time"]), jobs, found["result"], tag)


def history(tags: Iterable[str]) -> History:
    """Read what the tags of an instance say about earlier repairs."""
    records = sorted(
        (one for one in map(parse, tags) if one is not None), key=lambda one: (one.time, one.tag)
    )
    return History(
        tuple(one for one in records if one.result is None),
        tuple(one for one in records if one.result is not None),
    )


def permission(levels: Iterable[Sequence[str]], now: float) -> Permission:
    """Return what tags allow for an instance.

    :param levels: tags of the instance, of its group, and of the cluster: the nearest object with a
        tag about repairs decides. On one object a suspension counts most, then the type which
        destroys least.
    :param now: seconds since 1970.
    """
    for tags in levels:
        own = {tag.removeprefix(PREFIX) for tag in tags if tag.startswith(PREFIX)}
        until = [end for end in map(_suspended_until, own) if end is not None and end > now]
        if until:
            return Permission(suspended_until=max(until))
        for one in TYPES:
            if one in own:
                return Permission(one)
    return Permission()


def _suspended_until(text: str) -> float | None:
    word, _, end = text.partition(":")
    if word != "suspend":
        return None
    if text == "suspend":
        return float("inf")
    return float(end) if end.isascii() and end.isdecimal() else None


def needed(instance: Instance, nodes: Sequence[Node]) -> str | None:
    """Return the type of repair which an instance needs because nodes are offline; None for none.

    Only mirrored disks and disks on local volumes are repaired.
    """
    if instance.forthcoming:
        return None
    primary_lost = nodes[instance.primary].offline
    if instance.template == disk_c.PLAIN:
        return REINSTALL if primary_lost else None
    if not instance.mirrored or instance.secondary == NO_NODE:
        return None
    secondary_lost = nodes[instance.secondary].offline
    if primary_lost:
        return REINSTALL if secondary_lost else FAILOVER
    return FIX_STORAGE if secondary_lost else None


# -- how it is printed ----------------------------------------------------------------------------


def show_type(name: str) -> str:
    """Write a type of repair as the program prints it: ``ArFixStorage``."""
    return "Ar" + "".join(part.capitalize() for part in name.split("-"))


def show_permission(allowed: Permission) -> str:
    """Write why an instance is not repaired, when no repairs are allowed at all."""
    until = allowed.suspended_until
    if until is None:
        return "ArNotEnabled" if allowed.type is None else f"ArEnabled {show_type(allowed.type)}"
    if until == float("inf"):
        return "ArSuspended Forever"
    try:
        moment = time.strftime("%a %b %e %H:%M:%S UTC %Y", time.gmtime(until))
    except (OverflowError, ValueError, OSError):
        moment = f"{until:.0f}"
    return f"ArSuspended (Until {moment})"
