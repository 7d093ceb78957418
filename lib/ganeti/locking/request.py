"""The request of an owner for locks, and its holding at a level: the records of the manager.

Plain data, guarded by the manager's mutex; the rules are in :mod:`ganeti.locking.table`.
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
    """The state of a request."""

    WAITING = "waiting"
    GRANTED = "granted"
    FAILED = "failed"
    WITHDRAWN = "withdrawn"


class LockRequest(Ticket):
    """A request for several locks, which takes them one after the other.

    :ivar steps: the locks in the linear order, with the modes wanted.
    :ivar gains: the locks and modes as the owner asked for them.
    :ivar position: index of the step whose lock is taken next.
    :ivar before: mode in which the owner held that lock when the request came to it.
    :ivar undo: the locks of the earlier steps, each with the mode before.
    :ivar former: modes in which the owner held the gains before they were granted.
    :ivar event: set when the request is granted, has failed or is woken; None when it never waited.
    :ivar since: time of the request in seconds since the epoch.
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
    """The locks which an owner holds at one level, as it asked for them."""

    __slots__ = ("members", "since", "whole", "writers")

    def __init__(self, since: float) -> None:
        self.whole: str | None = None
        self.members: dict[str, str] = {}
        self.writers = 0  # members held exclusively
        self.since = since

    def get(self, key: str | None) -> str | None:
        """Return the mode of this lock itself, without regard to the lock of the whole level."""
        return self.whole if key is None else self.members.get(key)

    def set(self, key: str | None, mode: str | None) -> None:
        """Record the mode of a lock; None when it is held no longer."""
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
        """Return the mode of the level's own lock which this holding needs."""
        whole = None if self.whole is None else mode_of(self.whole)
        if self.writers:
            return join(whole, Mode.INTENT_EXCLUSIVE)
        if self.members:
            return join(whole, Mode.INTENT_SHARED)
        return whole

    def last(self, level: Level) -> LockId:
        """Return the held lock which comes last in the linear order."""
        return LockId(level, max(self.members) if self.members else ALL)

    def empty(self) -> bool:
        """Return True if the owner holds nothing at this level."""
        return self.whole is None and not self.members


def mode_of(public: str) -> Mode:
    """Return the mode for ``shared`` or ``exclusive``."""
    return Mode.SHARED if public == SHARED else Mode.EXCLUSIVE
