"""The locks in use: their owners and waiters, since when, and which owner makes another one wait.

The lock query, ``gnt-debug locks`` and ``gnt-job explain`` show these rows. Only locks in use are
listed. The lock of a level is listed, too, when a member is in use, but without owners, because no
owner asked for an intention mode. The manager calls these functions under its mutex; the results
are copies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from ganeti.locking.levels import EXCLUSIVE, SHARED, Owner
from ganeti.locking.lock_set import LockSet
from ganeti.locking.shared_lock import Mode, SharedLock, TicketT, public_mode


class LockRow(NamedTuple):
    """One lock in use.

    :ivar mode: ``shared`` or ``exclusive``; None when no owner holds the lock.
    :ivar pending: waiters in the order in which they will be served, as (mode, owners); neighbours
        with one mode share an entry.
    :ivar since: time in seconds since the epoch at which the first of the present owners got it.
    """

    name: str
    mode: str | None
    owners: tuple[Owner, ...]
    pending: tuple[tuple[str, tuple[Owner, ...]], ...]
    since: float | None


class LockWait(NamedTuple):
    """The wait of one owner.

    :ivar lock: name of the lock for which the owner waits now.
    :ivar since: time of the request in seconds since the epoch.
    :ivar holders: owners which hold the lock in a mode that excludes the request.
    :ivar before: owners which wait for the lock and are served before.
    :ivar wanted: names of all locks of the request.
    """

    owner: Owner
    lock: str
    mode: str
    since: float
    priority: int
    holders: tuple[Owner, ...]
    before: tuple[Owner, ...]
    wanted: tuple[str, ...]


# The modes for which owners ask by name; the others follow from the members which they hold.
_EXPLICIT = {
    Mode.SHARED: SHARED,
    Mode.SHARED_AND_INTENT: SHARED,
    Mode.EXCLUSIVE: EXCLUSIVE,
}


def rows(
    sets: Iterable[LockSet[TicketT]],
    since_of: Callable[[Owner, SharedLock[TicketT]], float],
) -> list[LockRow]:
    """Return all locks in use, in the linear order.

    :param since_of: returns the time at which an owner got a lock.
    """
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
        tuple((wanted, tuple(owners)) for wanted, owners in pending),
        min((since_of(owner, lock) for owner in holders), default=None),
    )
