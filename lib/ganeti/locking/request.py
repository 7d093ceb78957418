"""A wish for locks, and what an owner holds of a level: the entries in the books of the manager.

Plain data, guarded by the manager's mutex; the rules are those of :mod:`ganeti.locking.table`.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from enum import Enum

from ganeti import errors
from ganeti.locking.levels import ALL, EXCLUSIVE, SHARED, Level, LockId, Owner
from ganeti.locking.lock_set import LockStep
from ganeti.locking.shared_lock import Mode, SharedLock, Ticket, join


class RequestState(Enum):
    """What became of a request."""

    WAITING = "waiting"
    GRANTED = "granted"
    FAILED = "failed"
    WITHDRAWN = "withdrawn"


class LockRequest(Ticket):
    """A wish for several locks, on its way through their queues.

    ``position`` is the step it has got to and ``before`` the mode in which the owner held that
    step's lock when the request came to it; ``undo`` are the same for the steps behind. ``former``
    is how the owner held the gains before they were granted.
    """

    __slots__ = (
        "before",
        "error",
        "event",
        "former",
        "gains",
        "position",
        "since",
        "state",
        "steps",
        "undo",
        "woken",
    )

    def __init__(
        self,
        owner: Owner,
        steps: list[LockStep[LockRequest]],
        gains: Mapping[LockId, str],
        priority: int,
        order: int,
        since: float,
    ) -> None:
        super().__init__(owner, Mode.SHARED, priority, order)
        self.steps = steps
        self.gains = gains
        self.position = 0
        self.before: Mode | None = None
        self.undo: list[tuple[Lock, Mode | None]] = []
        self.former: dict[LockId, str | None] = {}
        self.state = RequestState.WAITING
        self.error: errors.LockError | None = None
        self.event: threading.Event | None = None
        self.woken = False
        self.since = since


Lock = SharedLock[LockRequest]
Touched = list[Lock]


class Holding:
    """What an owner holds at one level, as he asked for it."""

    __slots__ = ("members", "since", "whole", "writers")

    def __init__(self, since: float) -> None:
        self.whole: str | None = None
        self.members: dict[str, str] = {}
        self.writers = 0  # members held exclusively
        self.since = since

    def get(self, key: str | None) -> str | None:
        """How this lock itself is held, whatever else covers it."""
        return self.whole if key is None else self.members.get(key)

    def set(self, key: str | None, mode: str | None) -> None:
        if key is None:
            self.whole = mode
            return
        if self.members.get(key) == EXCLUSIVE:
            self.writers -= 1
        if mode is None:
            self.members.pop(key, None)
        else:
            self.members[key] = mode
            if mode == EXCLUSIVE:
                self.writers += 1

    def gate_mode(self) -> Mode | None:
        """The mode of the level's own lock that this holding needs."""
        whole = None if self.whole is None else mode_of(self.whole)
        if self.writers:
            return join(whole, Mode.INTENT_EXCLUSIVE)
        if self.members:
            return join(whole, Mode.INTENT_SHARED)
        return whole

    def last(self, level: Level) -> LockId:
        """The held lock which comes last in the linear order."""
        return LockId(level, max(self.members) if self.members else ALL)

    def empty(self) -> bool:
        return self.whole is None and not self.members


def mode_of(public: str) -> Mode:
    return Mode.SHARED if public == SHARED else Mode.EXCLUSIVE
