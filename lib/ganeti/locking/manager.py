"""The lock manager: takes sets of locks for owners, and gives them back.

One manager lives in the master daemon; logical units reach it through the processor, the job queue
tells it about changed priorities and cancelled jobs, queries read its table.

How it works: one mutex guards everything, and is held only for steps which never wait. A request is
a list of locks in the linear order (:mod:`ganeti.locking.levels`); it takes one after the other and
stops in the queue of the first which is not free. Whoever releases a lock moves the requests behind
it on as far as they get, and wakes only those which are complete: no polling, no herd.

Promises:

* **No deadlock.** A request is refused at once when it asks for a lock that does not come after all
  locks its owner holds; so an owner waits only for later locks than he holds, and chains of waiting
  owners end. The two exceptions never wait for each other: an owner who raises a lock he has
  (:meth:`LockManager.update`; a second one who would wait for the first is refused), and requests
  which do not wait at all.
* **All or nothing.** A request that times out, is cancelled or fails leaves the owner with exactly
  what he had before.
* **Fair.** Smaller priority first, older request first inside a priority, everywhere.
* **No lost wake-up.** A priority changed, or a job cancelled, between the decision to wait and the
  waiting is noticed: both are looked at once more after the request stands in its queue.

An owner has at most one request at a time. A dead owner (:meth:`LockManager.free_dead`) loses what
he holds and what he waits for; whoever waits behind him notices it, when he comes and every few
seconds. The request forms of seed 004 *Locking* are
:meth:`~LockManager.update`, :meth:`~LockManager.opportunistic_union`,
:meth:`~LockManager.list_locks` and :meth:`~LockManager.intersection`; logical units
use :meth:`~LockManager.acquire`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from ganeti import errors
from ganeti.locking import monitor
from ganeti.locking.levels import ALL, EXCLUSIVE, SHARED, Level, LockId, Owner, lock_name
from ganeti.locking.request import LockRequest, RequestState, Touched
from ganeti.locking.shared_lock import public_mode
from ganeti.locking.table import LockTable
from ganeti.utils import clock, filelock

_log = logging.getLogger(__name__)

# How often a waiter looks whether those in front are alive, where they live in other processes.
_LOOK_S: Final = 5.0


def _public(shared: bool) -> str:
    return SHARED if shared else EXCLUSIVE


def _number(priority: int | Callable[[], int]) -> int:
    return priority() if callable(priority) else priority


def _livelock_is_free(path: str) -> bool:
    return not filelock.is_locked(path)


class LockManager:
    """All locks of the cluster. Thread-safe."""

    def __init__(
        self,
        keys: Mapping[Level, Iterable[str]] | None = None,
        *,
        now: Callable[[], float] = clock.now,
        is_dead: Callable[[str], bool] = _livelock_is_free,
        look_s: float = _LOOK_S,
    ) -> None:
        """:param keys: the members of each level to begin with.
        :param now: time in seconds since the epoch, for what is shown.
        :param is_dead: whether the process behind a livelock file has gone.
        :param look_s: time between two looks of a waiter at those in front.
        """
        self._mutex = threading.Lock()
        self._is_dead = is_dead
        self._look_s = look_s
        self._table = LockTable(now)
        for level, names in (keys or {}).items():
            self.add(level, names)

    # -- members ------------------------------------------------------------------------------

    def add(self, level: Level, keys: Iterable[str]) -> None:
        """Create locks, all of them or none; waits for nobody.

        Whoever holds the level's own lock stands in front of the new ones too.

        :raises LockError: a lock exists already, or the level has a fixed set of locks.
        """
        wanted = list(keys)
        with self._mutex:
            self._table.check_modifiable(level)
            self._table.sets[level].add(wanted)

    def remove(self, level: Level, keys: Iterable[str], owner: Owner) -> None:
        """Remove locks which the owner holds exclusively; whoever waits for one of them fails.

        :raises LockError: a lock is unknown, or not held exclusively; nothing was removed.
        """
        wanted = sorted(set(keys))
        with self._mutex:
            self._table.check_modifiable(level)
            self._table.check_no_request(owner)
            lock_set = self._table.sets[level]
            lock_set.check_known(wanted)
            holding = self._table.holdings.get(owner, {}).get(level)
            for key in wanted:
                if holding is None or EXCLUSIVE not in (holding.whole, holding.members.get(key)):
                    raise errors.LockError(
                        f"{owner} must hold lock {lock_name(level, key)} exclusively to remove it"
                    )
            touched: Touched = []
            for key in wanted:
                for request in lock_set.remove(key):
                    error = errors.LockError(f"lock {lock_name(level, key)} was removed")
                    touched.extend(self._table.fail(request, error))
                if holding is not None:
                    holding.set(key, None)
            touched.extend(self._table.settle_gate(owner, level))
            self._table.settle(touched)

    def keys(self, level: Level) -> frozenset[str]:
        """Keys of the level's present members."""
        with self._mutex:
            return self._table.sets[level].keys()

    # -- taking -------------------------------------------------------------------------------

    def acquire(
        self,
        owner: Owner,
        level: Level,
        keys: Collection[str] | None,
        *,
        shared: bool,
        timeout_s: float | None = None,
        priority: int | Callable[[], int] = 0,
        opportunistic: bool = False,
        cancelled: Callable[[], None] | None = None,
    ) -> frozenset[str] | None:
        """Take locks of one level, waiting for them in order.

        :param keys: members, or :data:`~ganeti.locking.levels.ALL` for the whole level.
        :param timeout_s: longest time to wait; 0 tries, None waits without end.
        :param priority: smaller is served first; a function is asked outside the mutex.
        :param opportunistic: take those which are free now and do not wait for the others; keys
            without a lock are left out.
        :param cancelled: called in this thread when the request begins to wait and whenever
            :meth:`wake` is called; may raise, which gives up the request.
        :returns: keys of the locks taken (all present members for the whole level); None when the
            time was over, and then nothing is held.
        :raises LockError: a key without a lock; a lock of this or a later level is held already; a
            lock was removed while waiting; the owner was found dead. Nothing is held.
        """
        if opportunistic:
            with self._mutex:
                self._table.check_no_request(owner)
                self._table.check_level(owner, level, keys)
                return self._table.take_free(owner, level, keys, _public(shared))
        if not self.wait(
            self.begin(owner, level, keys, shared=shared, priority=_number(priority)),
            timeout_s=timeout_s,
            priority=priority,
            cancelled=cancelled,
        ):
            return None
        if keys is None:
            with self._mutex:
                return self._table.sets[level].keys()
        return frozenset(keys)

    def begin(
        self,
        owner: Owner,
        level: Level,
        keys: Collection[str] | None,
        *,
        shared: bool,
        priority: int = 0,
    ) -> LockRequest:
        """Start what :meth:`acquire` does and return without waiting.

        The caller owes the request a :meth:`wait` or a :meth:`withdraw`.
        """
        mode = _public(shared)
        with self._mutex:
            self._table.check_no_request(owner)
            steps = self._table.sets[level].steps(keys, shared=shared)
            if steps:
                self._table.check_level(owner, level, keys)
            if keys is None:
                gains = {LockId(level, ALL): mode}
            else:
                gains = {LockId(level, key): mode for key in keys}
            return self._table.begin(owner, steps, gains, priority)

    def withdraw(self, request: LockRequest) -> None:
        """End a request; what it has got is given back, also when it was granted meanwhile."""
        with self._mutex:
            self._table.give_up(request)

    def wait(
        self,
        request: LockRequest,
        *,
        timeout_s: float | None = None,
        priority: int | Callable[[], int] = 0,
        cancelled: Callable[[], None] | None = None,
    ) -> bool:
        """Sleep until the request is granted (True), failed (raises) or late (False).

        The parameters are those of :meth:`acquire`; an exception out of ``cancelled`` or
        ``priority`` withdraws the request.
        """
        if request.event is None:
            if request.error is not None:
                raise request.error
            return True
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        try:
            if callable(priority):
                wanted = priority()
                with self._mutex:
                    self._table.move(request, wanted)
            self._free_dead_blockers(request)
            if cancelled is not None:
                cancelled()
            while True:
                left_s = None if deadline is None else deadline - time.monotonic()
                expired = left_s is not None and left_s <= 0
                if not expired and not request.event.wait(
                    self._look_s if left_s is None else min(left_s, self._look_s)
                ):
                    self._free_dead_blockers(request)
                with self._mutex:
                    if request.state is RequestState.GRANTED:
                        return True
                    if request.error is not None:
                        raise request.error
                    if expired:
                        self._table.give_up(request)
                        return False
                    woken, request.woken = request.woken, False
                    request.event.clear()
                if woken and cancelled is not None:
                    cancelled()
        except BaseException:
            with self._mutex:
                self._table.give_up(request)
            raise

    def update(
        self,
        owner: Owner,
        changes: Mapping[LockId, str | None],
        *,
        timeout_s: float | None = 0,
        priority: int | Callable[[], int] = 0,
        cancelled: Callable[[], None] | None = None,
    ) -> bool:
        """Bring locks to the given modes, all or none of them (seed 004 *Update*).

        Locks not named stay as they are. Releasing a member while the whole level is held takes
        away only what was asked for that member.

        :param changes: lock to ``shared``, ``exclusive``, or None for release.
        :returns: False when the time was over; the owner holds what he held.
        :raises LockError: as :meth:`acquire`; a new or raised lock does not come after all held
            ones; a member is wanted exclusively of a level held shared; two owners would wait for
            each other to raise the same lock.
        """
        first = _number(priority)
        with self._mutex:
            self._table.check_no_request(owner)
            gains, losses = self._table.split(owner, changes)
            self._table.check_order(owner, gains)
            request = self._table.begin(owner, self._table.steps(gains), gains, first)
        if not self.wait(request, timeout_s=timeout_s, priority=priority, cancelled=cancelled):
            return False
        with self._mutex:
            touched: Touched = []
            for ident, less in losses.items():
                touched.extend(self._table.weaken(owner, ident, less))
            self._table.settle(touched)
        return True

    def opportunistic_union(
        self,
        owner: Owner,
        wanted: Mapping[LockId, str],
        *,
        priority: int = 0,
    ) -> frozenset[LockId]:
        """Take what is free of the given locks, without waiting (seed 004 *Opportunistic union*).

        Locks which are unknown, taken, or do not come after those the owner holds are left out.

        :returns: the locks taken by this call.
        """
        with self._mutex:
            self._table.check_no_request(owner)
            last = self._table.last_held(owner)
            taken: list[LockId] = []
            for ident in sorted(wanted, key=lambda ident: ident.rank):
                if last is not None and ident.rank <= last.rank:
                    continue
                if self._table.take_now(owner, ident, wanted[ident], priority):
                    taken.append(ident)
            return frozenset(taken)

    # -- giving back --------------------------------------------------------------------------

    def release(
        self,
        owner: Owner,
        level: Level | None = None,
        keys: Collection[str] | None = ALL,
    ) -> None:
        """Give back locks: those named, all of a level, or all. Holding none is no error.

        Members given back while the whole level is held: the owner keeps the other present
        members, each by itself, and no longer the level.

        :raises LockError: a named lock is not held (nothing was released); the owner waits.
        """
        with self._mutex:
            self._table.check_no_request(owner)
            self._table.settle(self._table.release(owner, level, keys))

    def downgrade(self, owner: Owner, level: Level, keys: Collection[str] | None = ALL) -> None:
        """Turn exclusive locks into shared ones; all of the level when no keys are given.

        :raises LockError: a named lock is not held; nothing was changed.
        """
        with self._mutex:
            self._table.check_no_request(owner)
            holding = self._table.holding_of(owner, level, keys)
            if holding is None:
                return
            touched: Touched = []
            if keys is None:
                if holding.whole == EXCLUSIVE:
                    holding.set(ALL, SHARED)
                names: Collection[str] = list(holding.members)
            else:
                names = keys
                if holding.whole == EXCLUSIVE:
                    touched.extend(self._table.explode(owner, level, holding))
            for key in names:
                if holding.members.get(key) == EXCLUSIVE:
                    touched.append(self._table.set_member(owner, level, holding, key, SHARED))
            touched.extend(self._table.settle_gate(owner, level))
            self._table.settle(touched)

    def intersection(self, owner: Owner, wanted: Collection[LockId]) -> None:
        """Give back everything but these locks (seed 004 *Intersection*).

        Members wanted of a level which is held as a whole stay held, each by itself.
        """
        keep: dict[Level, set[str | None]] = {}
        for ident in wanted:
            keep.setdefault(ident.level, set()).add(ident.key)
        with self._mutex:
            self._table.check_no_request(owner)
            touched: Touched = []
            for level, holding in reversed(list(self._table.holdings.get(owner, {}).items())):
                names = keep.get(level, set())
                if holding.whole is not None and ALL in names:
                    mine = [key for key in holding.members if key not in names]
                    for key in mine:
                        touched.append(self._table.set_member(owner, level, holding, key, None))
                    touched.extend(self._table.settle_gate(owner, level))
                    continue
                held: Collection[str] = holding.members
                if holding.whole is not None:
                    held = self._table.sets[level].keys()
                touched.extend(
                    self._table.release(owner, level, [key for key in held if key not in names])
                )
                if holding.whole is not None:  # nothing to drop, but the level itself
                    touched.extend(self._table.explode(owner, level, holding))
            self._table.settle(touched)

    def free(self, owner: Owner) -> None:
        """Take everything from an owner who cannot do it himself; his request fails."""
        with self._mutex:
            touched: Touched = []
            request = self._table.requests.get(owner)
            if request is not None:
                touched.extend(
                    self._table.fail(
                        request, errors.LockError(f"{owner} was found dead while waiting for locks")
                    )
                )
            touched.extend(self._table.release(owner, None, ALL))
            self._table.settle(touched)

    def free_dead(self, owners: Iterable[Owner] | None = None) -> list[Owner]:
        """Free the locks of owners whose process has gone (seed 004 *Job death detection*).

        :param owners: whom to look at; everybody by default. Their files are looked at outside
            the mutex. Whoever shares the file of a dead one is dead, too.
        :returns: those found dead.
        """
        if owners is None:
            owners = self.owners()
        livelocks = dict.fromkeys(owner.livelock for owner in owners if owner.livelock is not None)
        gone = {livelock for livelock in livelocks if self._looks_dead(livelock)}
        if not gone:
            return []
        dead = [owner for owner in self.owners() if owner.livelock in gone]
        for owner in dead:
            self.free(owner)
        with self._mutex:
            self._table.livelocks -= gone
        return dead

    def _looks_dead(self, livelock: str) -> bool:
        try:
            dead = self._is_dead(livelock)
        except OSError as err:
            # Nobody knows; taking the locks of one who lives would be the greater harm.
            _log.warning("cannot look whether the owner of %s is alive: %s", livelock, err)
            return False
        if dead:
            _log.warning("the owner of %s has died, its locks are freed", livelock)
        return dead

    # -- for the job queue --------------------------------------------------------------------

    def wake(self, owner: Owner) -> None:
        """Make a waiting request of this owner ask its ``cancelled`` function again."""
        with self._mutex:
            request = self._table.requests.get(owner)
            if request is not None and request.event is not None:
                request.woken = True
                request.event.set()

    def reprioritise(self, owner: Owner, priority: int) -> None:
        """Give a waiting request of this owner another priority; it keeps its age."""
        with self._mutex:
            request = self._table.requests.get(owner)
            if request is not None:
                self._table.move(request, priority)

    # -- looking ------------------------------------------------------------------------------

    def owned(self, owner: Owner, level: Level) -> dict[str, str]:
        """Members the owner holds, each ``shared`` or ``exclusive``; all for a held level."""
        with self._mutex:
            holding = self._table.holdings.get(owner, {}).get(level)
            if holding is None:
                return {}
            if holding.whole is None:
                return dict(holding.members)
            held = dict.fromkeys(self._table.sets[level].keys(), holding.whole)
            held.update((key, mode) for key, mode in holding.members.items() if mode == EXCLUSIVE)
            return held

    def is_owned(
        self,
        owner: Owner,
        level: Level,
        key: str | None = ALL,
        *,
        shared: bool | None = None,
    ) -> bool:
        """Whether the owner holds a member, or with no key the whole level.

        :param shared: True: at least shared; False: exclusively; None: in any mode.
        """
        with self._mutex:
            holding = self._table.holdings.get(owner, {}).get(level)
            if holding is None:
                return False
            modes = {holding.whole}
            if key is not None:
                if key not in self._table.sets[level]:
                    return False
                modes.add(holding.members.get(key))
            if shared is False:
                return EXCLUSIVE in modes
            return modes != {None}

    def list_locks(self, owner: Owner) -> dict[LockId, str]:
        """Everything the owner asked for and has, in the linear order (seed 004 *List*)."""
        with self._mutex:
            held: dict[LockId, str] = {}
            for level, holding in sorted(self._table.holdings.get(owner, {}).items()):
                if holding.whole is not None:
                    held[LockId(level, ALL)] = holding.whole
                for key in sorted(holding.members):
                    held[LockId(level, key)] = holding.members[key]
            return held

    def owners(self) -> list[Owner]:
        """Everybody who holds a lock or waits for one."""
        with self._mutex:
            return list(dict.fromkeys((*self._table.holdings, *self._table.requests)))

    def table(self) -> list[monitor.LockRow]:
        """All locks in use, in the linear order."""
        with self._mutex:
            return monitor.rows(self._table.sets.values(), self._table.since)

    def waiting(self, owner: Owner) -> monitor.LockWait | None:
        """What the owner waits for, and because of whom; None when he does not wait."""
        with self._mutex:
            request = self._table.requests.get(owner)
            if request is None:
                return None
            lock = request.steps[request.position].lock
            holders, before = lock.blockers(request)
            return monitor.LockWait(
                owner,
                str(lock),
                public_mode(request.mode),
                request.since,
                request.priority,
                tuple(holders),
                tuple(before),
                tuple(str(ident) for ident in request.gains),
            )

    def waiting_chain(self, owner: Owner) -> list[monitor.LockWait]:
        """The owner's wait, then the wait of the first one he waits for, and so on to the end."""
        chain: list[monitor.LockWait] = []
        seen: set[Owner] = set()
        current: Owner | None = owner
        while current is not None and current not in seen:
            seen.add(current)
            wait = self.waiting(current)
            if wait is None:
                break
            chain.append(wait)
            current = next(iter((*wait.holders, *wait.before)), None)
        return chain

    def _free_dead_blockers(self, request: LockRequest) -> None:
        """Look whether those in front are alive, before sleeping (on) behind them."""
        mine = request.owner.livelock
        with self._mutex:
            if request.state is not RequestState.WAITING or self._table.livelocks <= {mine}:
                return
            holders, before = request.steps[request.position].lock.blockers(request)
        self.free_dead(
            other
            for other in (*holders, *before)
            if other.livelock is not None and other.livelock != mine
        )
