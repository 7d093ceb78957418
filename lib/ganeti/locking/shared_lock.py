"""One fair lock, as a plain state machine: no thread, no clock, no mutex of its own.

The manager calls it under the manager's mutex and lets threads wait. So a lock can be understood
and tested as a sequence of steps.

A lock has five modes. A member of a level uses two of them; the lock of a level needs the others,
because an owner of a member must keep others from locking the whole level:

==========================  ================================================================
``INTENT_SHARED``           holds some members shared
``INTENT_EXCLUSIVE``        holds some members exclusively
``SHARED``                  holds the lock shared; for a level: reads all members
``SHARED_AND_INTENT``       reads all members and holds some exclusively (after a downgrade)
``EXCLUSIVE``               holds the lock; for a level: all members, now and later
==========================  ================================================================

Promises:

* two owners never hold modes which exclude each other;
* waiters are served by priority (smaller first), then by age. No waiter overtakes another one, even
  if its mode is compatible, so neither readers nor writers starve;
* an owner which raises the mode it already has is served before owners which have none. If two
  owners would wait for each other in that way, the second one is refused at once;
* a removed lock refuses all present and later waiters.
"""

from __future__ import annotations

from bisect import insort
from enum import IntEnum
from typing import Generic, TypeVar

from ganeti import errors
from ganeti.locking.levels import EXCLUSIVE, SHARED, LockId, Owner


class Mode(IntEnum):
    """The mode in which a lock is held; see the table above."""

    INTENT_SHARED = 0
    INTENT_EXCLUSIVE = 1
    SHARED = 2
    SHARED_AND_INTENT = 3
    EXCLUSIVE = 4


_IS, _IX, _S, _SIX, _X = Mode

# For each mode the modes of other owners which it excludes.
_EXCLUDES: tuple[tuple[Mode, ...], ...] = (
    (_X,),
    (_S, _SIX, _X),
    (_IX, _SIX, _X),
    (_IX, _S, _SIX, _X),
    (_IS, _IX, _S, _SIX, _X),
)

_JOINS: tuple[tuple[Mode, ...], ...] = (
    (_IS, _IX, _S, _SIX, _X),
    (_IX, _IX, _SIX, _SIX, _X),
    (_S, _SIX, _S, _SIX, _X),
    (_SIX, _SIX, _SIX, _SIX, _X),
    (_X, _X, _X, _X, _X),
)

# The mode as people see it: an intention has the mode of the member for which it is needed.
_PUBLIC = (SHARED, EXCLUSIVE, SHARED, EXCLUSIVE, EXCLUSIVE)


def excludes(one: Mode, other: Mode) -> bool:
    """Return True if two owners cannot hold these modes of a lock at the same time."""
    return other in _EXCLUDES[one]


def join(one: Mode | None, other: Mode | None) -> Mode | None:
    """Return the weakest mode that includes both; None stands for no mode."""
    if one is None:
        return other
    if other is None:
        return one
    return _JOINS[one][other]


def public_mode(mode: Mode) -> str:
    """Return ``shared`` or ``exclusive``."""
    return _PUBLIC[mode]


class Ticket:
    """The request of an owner for one mode of one lock, with its place in the queue.

    :ivar order: the age of the whole request: of two requests with one priority, the one with the
        smaller number is served first.
    """

    __slots__ = ("mode", "order", "owner", "priority")

    def __init__(self, owner: Owner, mode: Mode, priority: int, order: int) -> None:
        self.owner = owner
        self.mode = mode
        self.priority = priority
        self.order = order


def _place(ticket: Ticket) -> tuple[int, int]:
    return (ticket.priority, ticket.order)


TicketT = TypeVar("TicketT", bound=Ticket)


class SharedLock(Generic[TicketT]):
    """A lock, its holders and its waiters."""

    __slots__ = ("_counts", "holders", "ident", "queue", "rank", "removed", "upgrades")

    def __init__(self, ident: LockId) -> None:
        self.ident = ident
        self.rank = ident.rank
        self.holders: dict[Owner, Mode] = {}
        self.queue: list[TicketT] = []  # by place; their owners do not hold the lock
        self.upgrades: list[TicketT] = []  # by age; their owners hold the lock
        self.removed = False
        self._counts = [0] * len(Mode)  # holders per mode

    def __str__(self) -> str:
        return str(self.ident)

    @property
    def idle(self) -> bool:
        """True if the lock has neither holders nor waiters."""
        return not self.holders and not self.queue

    def mode_of(self, owner: Owner) -> Mode | None:
        """Return the mode in which the owner holds the lock; None when it does not."""
        return self.holders.get(owner)

    def ask(self, ticket: TicketT) -> bool:
        """Give the lock at once, or put the ticket into the queue.

        :returns: whether the owner now holds at least the ticket's mode.
        :raises LockError: the lock was removed, or the wait would never end, because this owner and
            another one both hold the lock and each waits for the other to raise its mode; nothing
            has changed.
        """
        if self.try_now(ticket.owner, ticket.mode, _place(ticket)):
            return True
        current = self.holders.get(ticket.owner)
        if current is None:
            insort(self.queue, ticket, key=_place)
            return False
        target = _JOINS[current][ticket.mode]
        for rival in self.upgrades:
            rival_current = self.holders[rival.owner]
            rival_target = _JOINS[rival_current][rival.mode]
            if excludes(target, rival_current) and excludes(rival_target, current):
                raise errors.LockError(
                    f"{ticket.owner} cannot raise its mode of lock {self}: {rival.owner} also "
                    "holds the lock and waits to raise its mode"
                )
        self.upgrades.append(ticket)
        return False

    def try_now(self, owner: Owner, mode: Mode, place: tuple[int, int]) -> bool:
        """Give the mode in addition to the owner's present mode, or change nothing.

        :param place: priority and age which the owner would have in the queue.
        :returns: False when a holder excludes the mode, or another waiter is before this owner.
        :raises LockError: the lock was removed.
        """
        if self.removed:
            raise errors.LockError(f"lock {self} was removed")
        current = self.holders.get(owner)
        if current is None:
            if self.queue and _place(self.queue[0]) < place:
                return False
            if not self._grantable(mode):
                return False
            self.holders[owner] = mode
            self._counts[mode] += 1
            return True
        return self._raise(owner, current, _JOINS[current][mode])

    def weaken(self, owner: Owner, mode: Mode | None) -> None:
        """Lower the mode of an owner, or with None take the lock from it.

        Waiters are served by :meth:`settle`, not here.

        :param mode: a mode which the present one includes.
        """
        current = self.holders[owner]
        self._counts[current] -= 1
        if mode is None:
            del self.holders[owner]
        else:
            self.holders[owner] = mode
            self._counts[mode] += 1

    def settle(self) -> list[TicketT]:
        """Give the lock to the waiters whose turn has come; return their tickets in order."""
        granted: list[TicketT] = []
        if self.upgrades:
            for ticket in list(self.upgrades):
                current = self.holders[ticket.owner]
                if self._raise(ticket.owner, current, _JOINS[current][ticket.mode]):
                    self.upgrades.remove(ticket)
                    granted.append(ticket)
        served = 0
        for ticket in self.queue:
            if not self._grantable(ticket.mode):
                break
            self.holders[ticket.owner] = ticket.mode
            self._counts[ticket.mode] += 1
            granted.append(ticket)
            served += 1
        if served:
            del self.queue[:served]
        return granted

    def withdraw(self, ticket: TicketT) -> None:
        """Remove a waiting ticket; the caller then calls :meth:`settle`."""
        (self.queue if ticket in self.queue else self.upgrades).remove(ticket)

    def move(self, ticket: TicketT, priority: int) -> None:
        """Give a waiting ticket another priority; the caller then calls :meth:`settle`."""
        if ticket in self.queue:
            self.queue.remove(ticket)
            ticket.priority = priority
            insort(self.queue, ticket, key=_place)
        else:
            ticket.priority = priority  # upgrades are ordered by age alone

    def remove(self) -> list[TicketT]:
        """Close the lock for ever; return the tickets of its waiters.

        An owner which holds it exclusively removes it, so no other holder waits for another mode.
        """
        waiting, self.queue = self.queue, []
        self.removed = True
        return waiting

    def blockers(self, ticket: TicketT) -> tuple[list[Owner], list[Owner]]:
        """Return the holders which exclude a ticket, and the owners which are served before it."""
        current = self.holders.get(ticket.owner)
        mode = ticket.mode if current is None else _JOINS[current][ticket.mode]
        holders = [
            owner
            for owner, held in self.holders.items()
            if owner != ticket.owner and excludes(mode, held)
        ]
        before = [
            other.owner
            for other in self.upgrades
            if other.owner != ticket.owner and current is None
        ]
        if current is None:
            for other in self.queue:
                if other is ticket:
                    break
                before.append(other.owner)
        return holders, before

    def _grantable(self, mode: Mode) -> bool:
        """Return True if an owner without this lock may get the mode, if the queue is ignored."""
        counts = self._counts
        for other in _EXCLUDES[mode]:
            if counts[other]:
                return False
        for ticket in self.upgrades:
            # Another holder would make the owner of this ticket, which has the lock, wait longer.
            if excludes(mode, _JOINS[self.holders[ticket.owner]][ticket.mode]):
                return False
        return True

    def _raise(self, owner: Owner, current: Mode, target: Mode) -> bool:
        if target is current:
            return True
        for other in _EXCLUDES[target]:
            if self._counts[other] > (1 if other is current else 0):
                return False
        self._counts[current] -= 1
        self._counts[target] += 1
        self.holders[owner] = target
        return True
