"""Who holds which lock, who waits for it, since when, and because of whom.

The rows are what the lock query, ``gnt-debug locks`` and ``gnt-job explain`` show. Only locks which
are in use are listed; the lock of a level is listed when a member is in use too, without owners,
because an intention is nothing anybody asked for. The manager calls these functions under its
mutex; what they return is a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from ganeti.locking.levels import EXCLUSIVE, SHARED, Owner
from ganeti.locking.lock_set import LockSet
from ganeti.locking.shared_lock import Mode, SharedLock, TicketT, public_mode


class LockRow(NamedTuple):
    """One lock in use.

    ``mode`` is None when nobody holds it; ``pending`` lists waiters in the order in which they will
    be served, neighbours of one mode together; ``since`` is the time (seconds since the epoch) at
    which the longest of the present owners got it.
    """

    name: str
    mode: str | None
    owners: tuple[Owner, ...]
    pending: tuple[tuple[str, tuple[Owner, ...]], ...]
    since: float | None


class LockWait(NamedTuple):
    """What one owner waits for.

    ``holders`` hold the lock in a way that excludes him, ``before`` wait for it and are served
    first. ``wanted`` names all locks of the request, ``lock`` the one it has got to.
    """

    owner: Owner
    lock: str
    mode: str
    since: float
    priority: int
    holders: tuple[Owner, ...]
    before: tuple[Owner, ...]
    wanted: tuple[str, ...]


# The modes which an owner asked for by name; the others follow from holding members.
_EXPLICIT = {
    Mode.SHARED: SHARED,
    Mode.SHARED_AND_INTENT: SHARED,
    Mode.EXCLUSIVE: EXCLUSIVE,
}


def rows(
    sets: Iterable[LockSet[TicketT]],
    since_of: Callable[[Owner, SharedLock[TicketT]], float],
) -> list[LockRow]:
    """All locks in use, in the linear order."""
    table: list[LockRow] = []
    for lock_set in sets:
        if not lock_set.gate.idle:
            table.append(_row(lock_set.gate, since_of))
        busy = sorted((lock for lock in lock_set if not lock.idle), key=lambda lock: lock.rank)
        table.extend(_row(lock, since_of) for lock in busy)
    return table


def _row(
    lock: SharedLock[TicketT],
    since_of: Callable[[Owner, SharedLock[TicketT]], float],
) -> LockRow:
    holders = {owner: _EXPLICIT[mode] for owner, mode in lock.holders.items() if mode in _EXPLICIT}
    mode = None
    if holders:
        mode = EXCLUSIVE if EXCLUSIVE in holders.values() else SHARED
    pending: list[tuple[str, list[Owner]]] = []
    for ticket in lock.upgrades + lock.queue:
        wanted = public_mode(ticket.mode)
        if pending and pending[-1][0] == wanted:
            pending[-1][1].append(ticket.owner)
        else:
            pending.append((wanted, [ticket.owner]))
    return LockRow(
        str(lock),
        mode,
        tuple(holders),
        tuple((wanted, tuple(who)) for wanted, who in pending),
        min((since_of(owner, lock) for owner in holders), default=None),
    )
