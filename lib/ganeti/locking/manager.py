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

import heapq
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum
from typing import Final

from ganeti import errors
from ganeti.locking import monitor
from ganeti.locking.levels import (
    ALL,
    BGL,
    EXCLUSIVE,
    LEVELS,
    MODIFIABLE,
    SHARED,
    Level,
    LockId,
    Owner,
    lock_name,
)
from ganeti.locking.lock_set import LockSet, Step
from ganeti.locking.shared_lock import Mode, SharedLock, Ticket, join, public_mode
from ganeti.utils import clock, filelock

_log = logging.getLogger(__name__)

_STRENGTH: Final = {SHARED: 1, EXCLUSIVE: 2}

# How often a waiter looks whether those in front are alive, where they live in other processes.
_LOOK_S: Final = 5.0

# A place behind everybody: who tries without waiting never goes before one who waits.
_LAST: Final = 1 << 62


class State(Enum):
    """What became of a request."""

    WAITING = "waiting"
    GRANTED = "granted"
    FAILED = "failed"
    WITHDRAWN = "withdrawn"


class Request(Ticket):
    """A wish for several locks, on its way through their queues.

    ``position`` is the step it has got to and ``before`` the mode in which the owner held that
    step's lock when the request came to it; ``undo`` are the same for the steps behind. ``former``
    is how the owner held the gains before they were granted.
    """

    __slots__ = (
        "before", "error", "event", "former", "gains", "position", "since", "state", "steps",
        "undo", "woken",
    )

    def __init__(
        self, owner: Owner, steps: list[Step[Request]], gains: Mapping[LockId, str],
        priority: int, order: int, since: float,
    ) -> None:
        super().__init__(owner, Mode.SHARED, priority, order)
        self.steps = steps
        self.gains = gains
        self.position = 0
        self.before: Mode | None = None
        self.undo: list[tuple[_Lock, Mode | None]] = []
        self.former: dict[LockId, str | None] = {}
        self.state = State.WAITING
        self.error: errors.LockError | None = None
        self.event: threading.Event | None = None
        self.woken = False
        self.since = since


_Lock = SharedLock[Request]
_Touched = list[_Lock]


class _Holding:
    """What an owner holds at one level, as he asked for it."""

    __slots__ = ("members", "since", "whole", "writers")

    def __init__(self, since: float) -> None:
        self.whole: str | None = None
        self.members: dict[str, str] = {}
        self.writers = 0        # members held exclusively
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
        whole = None if self.whole is None else _mode(self.whole)
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


def _mode(public: str) -> Mode:
    return Mode.SHARED if public == SHARED else Mode.EXCLUSIVE


def _public(shared: bool) -> str:
    return SHARED if shared else EXCLUSIVE


def _number(priority: int | Callable[[], int]) -> int:
    return priority() if callable(priority) else priority


def _livelock_is_free(path: str) -> bool:
    return not filelock.is_locked(path)


class LockManager:
    """All locks of the cluster. Thread-safe."""

    def __init__(
        self, keys: Mapping[Level, Iterable[str]] | None = None, *,
        now: Callable[[], float] = clock.now,
        is_dead: Callable[[str], bool] = _livelock_is_free, look_s: float = _LOOK_S,
    ) -> None:
        """:param keys: the members of each level to begin with.
        :param now: time in seconds since the epoch, for what is shown.
        :param is_dead: whether the process behind a livelock file has gone.
        :param look_s: time between two looks of a waiter at those in front.
        """
        self._mutex = threading.Lock()
        self._now = now
        self._is_dead = is_dead
        self._look_s = look_s
        # Where the owners so far live; in one process nobody dies alone.
        self._livelocks: set[str] = set()
        self._order = 0
        self._sets: dict[Level, LockSet[Request]] = {level: LockSet(level) for level in LEVELS}
        self._sets[Level.CLUSTER].add([BGL])
        self._holdings: dict[Owner, dict[Level, _Holding]] = {}
        self._requests: dict[Owner, Request] = {}
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
            self._check_modifiable(level)
            self._sets[level].add(wanted)

    def remove(self, level: Level, keys: Iterable[str], owner: Owner) -> None:
        """Remove locks which the owner holds exclusively; whoever waits for one of them fails.

        :raises LockError: a lock is unknown, or not held exclusively; nothing was removed.
        """
        wanted = sorted(set(keys))
        with self._mutex:
            self._check_modifiable(level)
            self._check_no_request(owner)
            lock_set = self._sets[level]
            lock_set.check_known(wanted)
            holding = self._holdings.get(owner, {}).get(level)
            for key in wanted:
                if holding is None or EXCLUSIVE not in (holding.whole, holding.members.get(key)):
                    raise errors.LockError(
                        f"{owner} must hold lock {lock_name(level, key)} exclusively to remove it")
            touched: _Touched = []
            for key in wanted:
                for request in lock_set.remove(key):
                    error = errors.LockError(f"lock {lock_name(level, key)} was removed")
                    touched.extend(self._fail(request, error))
                if holding is not None:
                    holding.set(key, None)
            touched.extend(self._settle_gate(owner, level))
            self._settle(touched)

    def keys(self, level: Level) -> frozenset[str]:
        """Keys of the level's present members."""
        with self._mutex:
            return self._sets[level].keys()

    # -- taking -------------------------------------------------------------------------------

    def acquire(
        self, owner: Owner, level: Level, keys: Collection[str] | None, *, shared: bool,
        timeout_s: float | None = None, priority: int | Callable[[], int] = 0,
        opportunistic: bool = False, cancelled: Callable[[], None] | None = None,
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
                self._check_no_request(owner)
                self._check_level(owner, level, keys)
                return self._take_free(owner, level, keys, _public(shared))
        if not self.wait(
                self.begin(owner, level, keys, shared=shared, priority=_number(priority)),
                timeout_s=timeout_s, priority=priority, cancelled=cancelled):
            return None
        if keys is None:
            with self._mutex:
                return self._sets[level].keys()
        return frozenset(keys)

    def begin(
        self, owner: Owner, level: Level, keys: Collection[str] | None, *, shared: bool,
        priority: int = 0,
    ) -> Request:
        """Start what :meth:`acquire` does and return without waiting.

        The caller owes the request a :meth:`wait` or a :meth:`withdraw`.
        """
        mode = _public(shared)
        with self._mutex:
            self._check_no_request(owner)
            steps = self._sets[level].steps(keys, shared=shared)
            if steps:
                self._check_level(owner, level, keys)
            if keys is None:
                gains = {LockId(level, ALL): mode}
            else:
                gains = {LockId(level, key): mode for key in keys}
            return self._begin(owner, steps, gains, priority)

    def withdraw(self, request: Request) -> None:
        """End a request; what it has got is given back, also when it was granted meanwhile."""
        with self._mutex:
            self._give_up(request)

    def wait(
        self, request: Request, *, timeout_s: float | None = None,
        priority: int | Callable[[], int] = 0, cancelled: Callable[[], None] | None = None,
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
                    self._move(request, wanted)
            self._free_dead_blockers(request)
            if cancelled is not None:
                cancelled()
            while True:
                left_s = None if deadline is None else deadline - time.monotonic()
                expired = left_s is not None and left_s <= 0
                if not expired and not request.event.wait(
                        self._look_s if left_s is None else min(left_s, self._look_s)):
                    self._free_dead_blockers(request)
                with self._mutex:
                    if request.state is State.GRANTED:
                        return True
                    if request.error is not None:
                        raise request.error
                    if expired:
                        self._give_up(request)
                        return False
                    woken, request.woken = request.woken, False
                    request.event.clear()
                if woken and cancelled is not None:
                    cancelled()
        except BaseException:
            with self._mutex:
                self._give_up(request)
            raise

    def update(
        self, owner: Owner, changes: Mapping[LockId, str | None], *, timeout_s: float | None = 0,
        priority: int | Callable[[], int] = 0, cancelled: Callable[[], None] | None = None,
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
            self._check_no_request(owner)
            gains, losses = self._split(owner, changes)
            self._check_order(owner, gains)
            request = self._begin(owner, self._steps(gains), gains, first)
        if not self.wait(request, timeout_s=timeout_s, priority=priority, cancelled=cancelled):
            return False
        with self._mutex:
            touched: _Touched = []
            for ident, less in losses.items():
                touched.extend(self._weaken(owner, ident, less))
            self._settle(touched)
        return True

    def opportunistic_union(
        self, owner: Owner, wanted: Mapping[LockId, str], *, priority: int = 0,
    ) -> frozenset[LockId]:
        """Take what is free of the given locks, without waiting (seed 004 *Opportunistic union*).

        Locks which are unknown, taken, or do not come after those the owner holds are left out.

        :returns: the locks taken by this call.
        """
        with self._mutex:
            self._check_no_request(owner)
            last = self._last_held(owner)
            taken: list[LockId] = []
            for ident in sorted(wanted, key=lambda ident: ident.rank):
                if last is not None and ident.rank <= last.rank:
                    continue
                if self._try(owner, ident, wanted[ident], priority):
                    taken.append(ident)
            return frozenset(taken)

    # -- giving back --------------------------------------------------------------------------

    def release(
        self, owner: Owner, level: Level | None = None, keys: Collection[str] | None = ALL,
    ) -> None:
        """Give back locks: those named, all of a level, or all. Holding none is no error.

        Members given back while the whole level is held: the owner keeps the other present
        members, each by itself, and no longer the level.

        :raises LockError: a named lock is not held (nothing was released); the owner waits.
        """
        with self._mutex:
            self._check_no_request(owner)
            self._settle(self._release(owner, level, keys))

    def downgrade(self, owner: Owner, level: Level, keys: Collection[str] | None = ALL) -> None:
        """Turn exclusive locks into shared ones; all of the level when no keys are given.

        :raises LockError: a named lock is not held; nothing was changed.
        """
        with self._mutex:
            self._check_no_request(owner)
            holding = self._holding_of(owner, level, keys)
            if holding is None:
                return
            touched: _Touched = []
            if keys is None:
                if holding.whole == EXCLUSIVE:
                    holding.set(ALL, SHARED)
                names: Collection[str] = list(holding.members)
            else:
                names = keys
                if holding.whole == EXCLUSIVE:
                    touched.extend(self._explode(owner, level, holding))
            for key in names:
                if holding.members.get(key) == EXCLUSIVE:
                    touched.append(self._set_member(owner, level, holding, key, SHARED))
            touched.extend(self._settle_gate(owner, level))
            self._settle(touched)

    def intersection(self, owner: Owner, wanted: Collection[LockId]) -> None:
        """Give back everything but these locks (seed 004 *Intersection*).

        Members wanted of a level which is held as a whole stay held, each by itself.
        """
        keep: dict[Level, set[str | None]] = {}
        for ident in wanted:
            keep.setdefault(ident.level, set()).add(ident.key)
        with self._mutex:
            self._check_no_request(owner)
            touched: _Touched = []
            for level, holding in reversed(list(self._holdings.get(owner, {}).items())):
                names = keep.get(level, set())
                if holding.whole is not None and ALL in names:
                    mine = [key for key in holding.members if key not in names]
                    for key in mine:
                        touched.append(self._set_member(owner, level, holding, key, None))
                    touched.extend(self._settle_gate(owner, level))
                    continue
                held = self._sets[level].keys() if holding.whole is not None else holding.members
                touched.extend(self._release(
                    owner, level, [key for key in held if key not in names]))
                if holding.whole is not None:       # nothing to drop, but the level itself
                    touched.extend(self._explode(owner, level, holding))
            self._settle(touched)

    def free(self, owner: Owner) -> None:
        """Take everything from an owner who cannot do it himself; his request fails."""
        with self._mutex:
            touched: _Touched = []
            request = self._requests.get(owner)
            if request is not None:
                touched.extend(self._fail(request, errors.LockError(
                    f"{owner} was found dead while waiting for locks")))
            touched.extend(self._release(owner, None, ALL))
            self._settle(touched)

    def free_dead(self, owners: Iterable[Owner] | None = None) -> list[Owner]:
        """Free the locks of owners whose process has gone (seed 004 *Job death detection*).

        :param owners: whom to look at; everybody by default. Their files are looked at outside
            the mutex. Whoever shares the file of a dead one is dead, too.
        :returns: those found dead.
        """
        if owners is None:
            owners = self.owners()
        livelocks = dict.fromkeys(
            owner.livelock for owner in owners if owner.livelock is not None)
        gone = {livelock for livelock in livelocks if self._looks_dead(livelock)}
        if not gone:
            return []
        dead = [owner for owner in self.owners() if owner.livelock in gone]
        for owner in dead:
            self.free(owner)
        with self._mutex:
            self._livelocks -= gone
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
            request = self._requests.get(owner)
            if request is not None and request.event is not None:
                request.woken = True
                request.event.set()

    def reprioritise(self, owner: Owner, priority: int) -> None:
        """Give a waiting request of this owner another priority; it keeps its age."""
        with self._mutex:
            request = self._requests.get(owner)
            if request is not None:
                self._move(request, priority)

    # -- looking ------------------------------------------------------------------------------

    def owned(self, owner: Owner, level: Level) -> dict[str, str]:
        """Members the owner holds, each ``shared`` or ``exclusive``; all for a held level."""
        with self._mutex:
            holding = self._holdings.get(owner, {}).get(level)
            if holding is None:
                return {}
            if holding.whole is None:
                return dict(holding.members)
            held = dict.fromkeys(self._sets[level].keys(), holding.whole)
            held.update(
                (key, mode) for key, mode in holding.members.items() if mode == EXCLUSIVE)
            return held

    def is_owned(
        self, owner: Owner, level: Level, key: str | None = ALL, *, shared: bool | None = None,
    ) -> bool:
        """Whether the owner holds a member, or with no key the whole level.

        :param shared: True: at least shared; False: exclusively; None: in any mode.
        """
        with self._mutex:
            holding = self._holdings.get(owner, {}).get(level)
            if holding is None:
                return False
            modes = {holding.whole}
            if key is not None:
                if key not in self._sets[level]:
                    return False
                modes.add(holding.members.get(key))
            if shared is False:
                return EXCLUSIVE in modes
            return modes != {None}

    def list_locks(self, owner: Owner) -> dict[LockId, str]:
        """Everything the owner asked for and has, in the linear order (seed 004 *List*)."""
        with self._mutex:
            held: dict[LockId, str] = {}
            for level, holding in sorted(self._holdings.get(owner, {}).items()):
                if holding.whole is not None:
                    held[LockId(level, ALL)] = holding.whole
                for key in sorted(holding.members):
                    held[LockId(level, key)] = holding.members[key]
            return held

    def owners(self) -> list[Owner]:
        """Everybody who holds a lock or waits for one."""
        with self._mutex:
            return list(dict.fromkeys((*self._holdings, *self._requests)))

    def table(self) -> list[monitor.LockRow]:
        """All locks in use, in the linear order."""
        with self._mutex:
            return monitor.rows(self._sets.values(), self._since)

    def waiting(self, owner: Owner) -> monitor.Wait | None:
        """What the owner waits for, and because of whom; None when he does not wait."""
        with self._mutex:
            request = self._requests.get(owner)
            if request is None:
                return None
            lock = request.steps[request.position].lock
            holders, before = lock.blockers(request)
            return monitor.Wait(
                owner, str(lock), public_mode(request.mode), request.since, request.priority,
                tuple(holders), tuple(before), tuple(str(ident) for ident in request.gains))

    def waiting_chain(self, owner: Owner) -> list[monitor.Wait]:
        """The owner's wait, then the wait of the first one he waits for, and so on to the end."""
        chain: list[monitor.Wait] = []
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

    # -- requests; the mutex is held from here on, except in _wait ----------------------------

    def _begin(
        self, owner: Owner, steps: list[Step[Request]], gains: Mapping[LockId, str], priority: int,
    ) -> Request:
        """Start a request and take it as far as it gets at once."""
        self._order += 1
        if owner.livelock is not None:
            self._livelocks.add(owner.livelock)
        request = Request(owner, steps, gains, priority, self._order, self._now())
        touched = self._advance(request)
        if request.state is State.WAITING:
            request.event = threading.Event()
            self._requests[owner] = request
        self._settle(touched)
        return request

    def _advance(self, request: Request) -> _Touched:
        """Take locks until one is not free; returns locks whose waiters may go on."""
        steps = request.steps
        while request.position < len(steps):
            lock, mode = steps[request.position]
            request.before = lock.mode_of(request.owner)
            request.mode = mode
            try:
                if not lock.ask(request):
                    return []
            except errors.LockError as err:
                return self._fail(request, err)
            request.undo.append((lock, request.before))
            request.position += 1
        self._grant(request)
        return []

    def _grant(self, request: Request) -> None:
        request.state = State.GRANTED
        self._requests.pop(request.owner, None)
        if request.gains:
            holdings = self._holdings.setdefault(request.owner, {})
            for ident, mode in request.gains.items():
                request.former[ident] = self._note(holdings, ident, mode)
        if request.event is not None:
            request.event.set()

    def _note(self, holdings: dict[Level, _Holding], ident: LockId, mode: str) -> str | None:
        """Write a lock into its owner's books; returns how he held it before."""
        holding = holdings.get(ident.level)
        if holding is None:
            holding = holdings[ident.level] = _Holding(self._now())
        former = holding.get(ident.key)
        holding.set(ident.key, mode)
        return former

    def _fail(self, request: Request, error: errors.LockError) -> _Touched:
        """End a request without success; the owner has what he had before."""
        touched = self._unwind(request)
        request.state = State.FAILED
        request.error = error
        if request.event is not None:
            request.event.set()
        return touched

    def _unwind(self, request: Request) -> _Touched:
        if self._requests.get(request.owner) is request:
            del self._requests[request.owner]
        touched: _Touched = []
        if request.position < len(request.steps):
            lock = request.steps[request.position].lock
            if request in lock.queue or request in lock.upgrades:
                lock.withdraw(request)
                touched.append(lock)
        for lock, before in reversed(request.undo):
            if lock.mode_of(request.owner) not in (None, before):
                lock.weaken(request.owner, before)
                touched.append(lock)
        return touched

    def _settle(self, touched: _Touched) -> None:
        """Serve the waiters of these locks, earliest lock first, until nobody can go on."""
        heap = [(lock.rank, index, lock) for index, lock in enumerate(touched)]
        heapq.heapify(heap)
        serial = len(heap)
        while heap:
            lock = heapq.heappop(heap)[2]
            for request in lock.settle():
                # settle() has given the lock; account for it and go on with the next one.
                request.undo.append((lock, request.before))
                request.position += 1
                for other in self._advance(request):
                    heapq.heappush(heap, (other.rank, serial, other))
                    serial += 1

    def _move(self, request: Request, priority: int) -> None:
        if priority == request.priority or request.state is not State.WAITING:
            return
        lock = request.steps[request.position].lock
        lock.move(request, priority)
        self._settle([lock])

    def _give_up(self, request: Request) -> None:
        """Withdraw a request in whatever state it is."""
        owner = request.owner
        if request.state is State.WAITING:
            touched = self._unwind(request)
        elif request.state is State.GRANTED:
            # Granted, but nobody will use it. Whoever freed the owner meanwhile took it already.
            touched = self._unwind(request)
            holdings = self._holdings.get(owner, {})
            for ident, former in request.former.items():
                if ident.level in holdings:
                    holdings[ident.level].set(ident.key, former)
            for level in {ident.level for ident in request.former}:
                touched.extend(self._settle_gate(owner, level))
        else:
            return
        request.state = State.WITHDRAWN
        self._settle(touched)

    def _free_dead_blockers(self, request: Request) -> None:
        """Look whether those in front are alive, before sleeping (on) behind them."""
        mine = request.owner.livelock
        with self._mutex:
            if request.state is not State.WAITING or self._livelocks <= {mine}:
                return
            holders, before = request.steps[request.position].lock.blockers(request)
        self.free_dead(
            other for other in (*holders, *before)
            if other.livelock is not None and other.livelock != mine)

    # -- checks -------------------------------------------------------------------------------

    def _check_modifiable(self, level: Level) -> None:
        if level not in MODIFIABLE:
            raise errors.LockError(f"the {level.label} locks are fixed, none comes or goes")

    def _check_no_request(self, owner: Owner) -> None:
        request = self._requests.get(owner)
        if request is not None:
            lock = request.steps[request.position].lock
            raise errors.LockError(f"{owner} already waits for lock {lock}")

    def _check_level(self, owner: Owner, level: Level, keys: Collection[str] | None) -> None:
        """An acquire takes locks of a later level than any the owner holds."""
        held = self._last_held(owner)
        if held is None or held.level < level:
            return
        wanted = lock_name(level, min(keys) if keys else ALL)
        raise errors.LockError(
            f"{owner} asks for lock {wanted} while it holds lock {held}, which does not come "
            "before it. Take the locks level by level in their order, those of a level together.")

    def _check_order(self, owner: Owner, gains: Mapping[LockId, str]) -> None:
        """New and raised locks come after all held ones; no writer below a level held shared."""
        if not gains:
            return
        held = self._holdings.get(owner, {})
        last = self._last_held(owner)
        for ident in sorted(gains, key=lambda ident: ident.rank):
            if last is not None and ident.rank < last.rank:
                raise errors.LockError(
                    f"{owner} asks for lock {ident} while it holds lock {last}, which comes later "
                    "in the order of locks")
            if ident.key is ALL or gains[ident] != EXCLUSIVE:
                continue
            whole = gains.get(LockId(ident.level, ALL))
            if whole is None and ident.level in held:
                whole = held[ident.level].whole
            if whole == SHARED:
                raise errors.LockError(
                    f"{owner} asks for lock {ident} exclusively while it holds lock "
                    f"{lock_name(ident.level, ALL)} shared")

    def _last_held(self, owner: Owner) -> LockId | None:
        held = self._holdings.get(owner)
        if not held:
            return None
        level = max(held)
        return held[level].last(level)

    def _holding_of(
        self, owner: Owner, level: Level, keys: Collection[str] | None,
    ) -> _Holding | None:
        """The owner's holding, after a check that the named members are in it."""
        holding = self._holdings.get(owner, {}).get(level)
        if keys is None:
            return holding
        known = self._sets[level]
        missing = sorted(
            key for key in keys
            if holding is None or (
                key not in known if holding.whole is not None else key not in holding.members))
        if missing:
            names = ", ".join(lock_name(level, key) for key in missing)
            raise errors.LockError(f"{owner} does not hold lock {names}")
        return holding

    # -- changing holdings --------------------------------------------------------------------

    def _split(
        self, owner: Owner, changes: Mapping[LockId, str | None],
    ) -> tuple[dict[LockId, str], dict[LockId, str | None]]:
        """Divide an update into locks to get or raise, and locks to lower or give back."""
        held = self._holdings.get(owner, {})
        gains: dict[LockId, str] = {}
        losses: dict[LockId, str | None] = {}
        for ident, wanted in changes.items():
            if wanted is not None:
                if wanted not in _STRENGTH:
                    raise errors.LockError(f"lock {ident} cannot be held in mode {wanted!r}")
                if ident.key is not ALL:
                    self._sets[ident.level].check_known([ident.key])
            holding = held.get(ident.level)
            present = None if holding is None else holding.get(ident.key)
            if wanted is not None and _STRENGTH[wanted] > (_STRENGTH[present] if present else 0):
                gains[ident] = wanted
            elif wanted != present:
                losses[ident] = wanted
        return gains, losses

    def _steps(self, gains: Mapping[LockId, str]) -> list[Step[Request]]:
        """The locks which these gains need, with what the level's own locks need for them."""
        modes: dict[LockId, Mode] = {}
        for ident, wanted in gains.items():
            mode = _mode(wanted)
            gate = LockId(ident.level, ALL)
            if ident.key is not ALL:
                modes[ident] = mode
                mode = Mode.INTENT_SHARED if wanted == SHARED else Mode.INTENT_EXCLUSIVE
            modes[gate] = join(modes.get(gate), mode) or mode
        steps = []
        for ident in sorted(modes, key=lambda ident: ident.rank):
            lock_set = self._sets[ident.level]
            lock = lock_set.gate if ident.key is ALL else lock_set.member(ident.key)
            steps.append(Step(lock, modes[ident]))
        return steps

    def _try(self, owner: Owner, ident: LockId, wanted: str, priority: int) -> bool:
        """Take one lock if that needs no waiting."""
        lock_set = self._sets[ident.level]
        if owner.livelock is not None:
            self._livelocks.add(owner.livelock)
        holdings = self._holdings.setdefault(owner, {})
        place = (priority, _LAST)
        if ident.key is ALL:
            taken = lock_set.gate.try_now(owner, _mode(wanted), place)
        elif ident.key not in lock_set:
            taken = False
        else:
            holding = holdings.get(ident.level)
            if holding is not None and holding.whole == SHARED and wanted == EXCLUSIVE:
                return False
            intent = Mode.INTENT_SHARED if wanted == SHARED else Mode.INTENT_EXCLUSIVE
            taken = lock_set.gate.try_now(owner, intent, place)
            if taken and not lock_set.member(ident.key).try_now(owner, _mode(wanted), place):
                # The gate goes back to what the rest needs; nobody was kept out meanwhile.
                taken = False
                self._settle(self._settle_gate(owner, ident.level))
        if taken:
            self._note(holdings, ident, wanted)
        elif not holdings:
            self._holdings.pop(owner, None)
        return taken

    def _take_free(
        self, owner: Owner, level: Level, keys: Collection[str] | None, wanted: str,
    ) -> frozenset[str]:
        known = self._sets[level].keys()
        return frozenset(
            key for key in sorted(known if keys is None else known.intersection(keys))
            if self._try(owner, LockId(level, key), wanted, 0))

    def _release(
        self, owner: Owner, level: Level | None, keys: Collection[str] | None,
    ) -> _Touched:
        touched: _Touched = []
        if level is None:
            for held in sorted(self._holdings.get(owner, {}), reverse=True):
                touched.extend(self._release(owner, held, ALL))
            return touched
        holding = self._holding_of(owner, level, keys)
        if holding is None:
            return touched
        if keys is None:
            holding.set(ALL, None)
            names: Iterable[str] = sorted(holding.members, reverse=True)
        else:
            names = sorted(set(keys), reverse=True)
            if holding.whole is not None and names:
                touched.extend(self._explode(owner, level, holding, set(names)))
                names = [key for key in names if key in holding.members]
        for key in names:
            touched.append(self._set_member(owner, level, holding, key, None))
        touched.extend(self._settle_gate(owner, level))
        return touched

    def _explode(
        self, owner: Owner, level: Level, holding: _Holding, without: Collection[str] = (),
    ) -> _Touched:
        """Replace the lock of a level by its present members, some left out.

        Nobody else can hold or wait for a member in a mode this would exclude: he would need an
        intention on the level, which excludes the lock of the level.
        """
        whole = holding.whole
        if whole is None:
            return []
        for lock in self._sets[level]:
            key = lock.ident.key
            if key is ALL or key in without or holding.members.get(key) == EXCLUSIVE:
                continue
            if not lock.try_now(owner, _mode(whole), (-_LAST, 0)):
                raise errors.ProgrammerError(f"lock {lock} is taken below a held level")
            holding.set(key, whole)
        holding.set(ALL, None)
        return self._settle_gate(owner, level)

    def _set_member(
        self, owner: Owner, level: Level, holding: _Holding, key: str, mode: str | None,
    ) -> _Lock:
        """Lower or give back one member; its waiters are served later."""
        lock = self._sets[level].member(key)
        lock.weaken(owner, None if mode is None else _mode(mode))
        holding.set(key, mode)
        return lock

    def _weaken(self, owner: Owner, ident: LockId, mode: str | None) -> _Touched:
        """Lower or give back exactly one lock of an owner."""
        touched: _Touched = []
        holding = self._holdings.get(owner, {}).get(ident.level)
        if holding is None or holding.get(ident.key) is None:
            return touched      # freed as dead meanwhile
        if ident.key is ALL:
            holding.set(ALL, mode)
        else:
            touched.append(self._set_member(owner, ident.level, holding, ident.key, mode))
        touched.extend(self._settle_gate(owner, ident.level))
        return touched

    def _settle_gate(self, owner: Owner, level: Level) -> _Touched:
        """Bring the level's own lock to what the owner's holding needs, and forget empty books."""
        gate = self._sets[level].gate
        holdings = self._holdings.get(owner, {})
        holding = holdings.get(level)
        needed = None if holding is None else holding.gate_mode()
        touched: _Touched = []
        if gate.mode_of(owner) is not needed:
            gate.weaken(owner, needed)
            touched.append(gate)
        if holding is not None and holding.empty():
            del holdings[level]
        if not holdings:
            self._holdings.pop(owner, None)
        return touched

    def _since(self, owner: Owner, lock: _Lock) -> float:
        holding = self._holdings.get(owner, {}).get(lock.ident.level)
        if holding is not None:
            return holding.since
        return self._requests[owner].since
