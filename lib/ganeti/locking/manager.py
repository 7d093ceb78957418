"""The lock manager: takes and releases sets of locks for owners.

The master daemon has one manager. Logical units use it through the processor; the job queue reports
changed priorities and canceled jobs to it; queries read its table.

How it works: one mutex guards everything, and is held only for steps which never wait. A request is
a list of locks in the linear order (:mod:`ganeti.locking.levels`); it takes one after the other and
stops in the queue of the first lock which is not free. When an owner releases a lock, the manager
moves the requests in its queue on as far as possible, and wakes only the threads whose requests are
complete; no thread polls.

Promises:

* **No deadlock.** A request is refused at once when it asks for a lock that does not come after all
  locks of its owner; so an owner waits only for later locks than it holds, and chains of waiting
  owners end. There are two exceptions, and they never wait for each other: an owner which raises
  the mode of a lock it has (:meth:`LockManager.update`; a second owner which would wait for the
  first one is refused), and requests which do not wait at all.
* **All or nothing.** A request that times out, is canceled or fails leaves the owner with exactly
  the locks which it had before.
* **Fair.** Smaller priority first, older request first within a priority, everywhere.
* **No lost wake-up.** A priority that changes, or a job that is canceled, between the decision to
  wait and the wait is noticed: both are checked again after the request has entered its queue.

An owner has at most one request at a time. A dead owner (:meth:`LockManager.free_dead`) loses its
locks and its request; a waiter notices a dead owner in front of it when it begins to wait, and then
every few seconds.

The request forms of the Ganeti daemons design, *Locking*, are :meth:`~LockManager.update`,
:meth:`~LockManager.opportunistic_union`, :meth:`~LockManager.list_locks` and
:meth:`~LockManager.intersection`; logical units use :meth:`~LockManager.acquire`.
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
from ganeti.utils import clock, filelock, metrics

_log = logging.getLogger(__name__)

_REQUESTS = metrics.Counter("ganeti_master_lock_requests", "Requests for locks", ("level",))
_WAITS = metrics.Histogram(
    "ganeti_master_lock_wait_seconds",
    "Time which requests for locks waited; those which were granted at once are not counted",
    ("level",),
)

# Seconds between two checks of a waiter whether the owners in front of it, if they belong to other
# processes, are alive.
_CHECK_INTERVAL_S: Final = 5.0


def _level_of(request: LockRequest) -> str:
    """Return the name of the level of a request's locks; a request has one level."""
    return next((lock.level.label for lock in request.gains), "")


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
        check_interval_s: float = _CHECK_INTERVAL_S,
    ) -> None:
        """Make a manager without owners.

        :param keys: the first members of each level.
        :param now: the time in seconds since the epoch, for the lock query.
        :param is_dead: whether the process which locked a livelock file has ended.
        :param check_interval_s: after which a waiter checks again whether the owners in front live.
        """
        self._mutex = threading.Lock()
        self._is_dead = is_dead
        self._check_interval_s = check_interval_s
        self._table = LockTable(now)
        for level, names in (keys or {}).items():
            self.add(level, names)

    # -- members ------------------------------------------------------------------------------

    def add(self, level: Level, keys: Iterable[str]) -> None:
        """Create locks, all of them or none, without waiting.

        An owner of the level's own lock owns the new locks, too.

        :raises LockError: a lock exists already, or the level has a fixed set of locks.
        """
        wanted = list(keys)
        with self._mutex:
            self._table.check_modifiable(level)
            self._table.sets[level].add(wanted)

    def remove(self, level: Level, keys: Iterable[str], owner: Owner) -> None:
        """Remove locks which the owner holds exclusively; requests which wait for them fail.

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
        """Return the keys of the level's present members."""
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
        canceled: Callable[[], None] | None = None,
    ) -> frozenset[str] | None:
        """Take locks of one level, waiting for them in order.

        :param keys: members, or :data:`~ganeti.locking.levels.ALL` for the whole level.
        :param timeout_s: longest wait in seconds; 0 does not wait, None waits without a limit.
        :param priority: a smaller number is served first; a function is called outside the mutex.
        :param opportunistic: take the locks which are free now and do not wait for the others; keys
            without a lock are left out.
        :param canceled: called in this thread when the request begins to wait and after each
            :meth:`wake`; an exception which it raises withdraws the request.
        :returns: keys of the locks taken (all present members for the whole level); None after a
            timeout, and then the owner got none of the locks.
        :raises LockError: a key without a lock; a lock of this or a later level is held already; a
            lock was removed while waiting; the owner was found dead. The owner got none of the
            locks.
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
            canceled=canceled,
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
        """Begin a request for locks of one level and return without waiting.

        The caller then calls :meth:`wait` or :meth:`withdraw`. Parameters and errors are those of
        :meth:`acquire`.
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
            _REQUESTS.add(level.label)
            return self._table.begin(owner, steps, gains, priority)

    def withdraw(self, request: LockRequest) -> None:
        """End a request and release its locks, also when it was granted meanwhile."""
        with self._mutex:
            self._table.give_up(request)

    def wait(
        self,
        request: LockRequest,
        *,
        timeout_s: float | None = None,
        priority: int | Callable[[], int] = 0,
        canceled: Callable[[], None] | None = None,
    ) -> bool:
        """Wait until a request is granted or has failed.

        The parameters are those of :meth:`acquire`; an exception which ``canceled`` or
        ``priority`` raises withdraws the request.

        :returns: whether it was granted; False after a timeout.
        :raises LockError: the request failed.
        """
        if request.event is None:
            if request.error is not None:
                raise request.error
            return True
        begun = time.monotonic()
        try:
            return self._wait(request, timeout_s, priority, canceled)
        finally:
            _WAITS.observe(time.monotonic() - begun, _level_of(request))

    def _wait(
        self,
        request: LockRequest,
        timeout_s: float | None,
        priority: int | Callable[[], int],
        canceled: Callable[[], None] | None,
    ) -> bool:
        assert request.event is not None
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        try:
            if callable(priority):
                wanted = priority()
                with self._mutex:
                    self._table.move(request, wanted)
            self._free_dead_blockers(request)
            if canceled is not None:
                canceled()
            while True:
                left_s = None if deadline is None else deadline - time.monotonic()
                expired = left_s is not None and left_s <= 0
                if not expired and not request.event.wait(
                    self._check_interval_s
                    if left_s is None
                    else min(left_s, self._check_interval_s)
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
                if woken and canceled is not None:
                    canceled()
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
        canceled: Callable[[], None] | None = None,
    ) -> bool:
        """Bring locks to the given modes, all or none of them.

        Other locks stay as they are. If the whole level is held, the release of a member ends only
        the request for that member.

        :param changes: lock to ``shared``, ``exclusive``, or None for release.
        :returns: False after a timeout; the owner then holds the same locks as before.
        :raises LockError: as in :meth:`acquire`; or a new or raised lock does not come after all
            held ones; a member of a level held shared is wanted exclusively; two owners would wait
            for each other to raise the mode of one lock.

        Source: Ganeti daemons design, *Locking* (Update).
        """
        first = _number(priority)
        with self._mutex:
            self._table.check_no_request(owner)
            gains, losses = self._table.split(owner, changes)
            self._table.check_order(owner, gains)
            request = self._table.begin(owner, self._table.steps(gains), gains, first)
        if not self.wait(request, timeout_s=timeout_s, priority=priority, canceled=canceled):
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
        """Take those of the given locks which are free, without waiting.

        Locks which are unknown, taken, or do not come after the owner's locks are left out.

        :returns: the locks taken by this call.

        Source: Ganeti daemons design, *Locking* (Opportunistic union).
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

    # -- releasing ----------------------------------------------------------------------------

    def release(
        self,
        owner: Owner,
        level: Level | None = None,
        keys: Collection[str] | None = ALL,
    ) -> None:
        """Release the named locks, all locks of a level, or all locks.

        It is not an error to hold none.

        When members are released while the whole level is held, the owner keeps the other present
        members, each separately, and no longer holds the level.

        :raises LockError: a named lock is not held, or the owner has a request; nothing was
            released.
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
        """Release all locks except these.

        Wanted members of a level which is held as a whole stay held, each separately.

        Source: Ganeti daemons design, *Locking* (Intersection).
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
                if holding.whole is not None:  # no member is released, only the level itself
                    touched.extend(self._table.explode(owner, level, holding))
            self._table.settle(touched)

    def free(self, owner: Owner) -> None:
        """Release all locks of an owner which cannot do it itself; its request fails."""
        with self._mutex:
            touched: Touched = []
            request = self._table.requests.get(owner)
            if request is not None:
                touched.extend(
                    self._table.fail(
                        request,
                        errors.LockError(f"the process of {owner} ended while it waited for locks"),
                    )
                )
            touched.extend(self._table.release(owner, None, ALL))
            self._table.settle(touched)

    def free_dead(self, owners: Iterable[Owner] | None = None) -> list[Owner]:
        """Release the locks of owners whose process has ended.

        :param owners: the owners to check; None for all. An owner which has the livelock file of a
            dead one is dead, too. The files are checked outside the mutex.
        :returns: the dead owners.

        Source: Ganeti daemons design, *Job death detection*.
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
            # Unknown. To release the locks of a living owner would be the greater harm.
            _log.warning("cannot check whether the owner of %s is alive: %s", livelock, err)
            return False
        if dead:
            _log.warning("the process of %s has ended, its locks are released", livelock)
        return dead

    # -- for the job queue --------------------------------------------------------------------

    def wake(self, owner: Owner) -> None:
        """Let a waiting request of this owner call its ``canceled`` function again."""
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

    # -- queries ------------------------------------------------------------------------------

    def owned(self, owner: Owner, level: Level) -> dict[str, str]:
        """Return the members which the owner holds, each ``shared`` or ``exclusive``.

        An owner of the level's own lock holds all members.
        """
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
        """Return True if the owner holds a member, or with no key the whole level.

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
        """Return the locks which the owner asked for and holds, in the linear order.

        Source: Ganeti daemons design, *Locking* (List).
        """
        with self._mutex:
            held: dict[LockId, str] = {}
            for level, holding in sorted(self._table.holdings.get(owner, {}).items()):
                if holding.whole is not None:
                    held[LockId(level, ALL)] = holding.whole
                for key in sorted(holding.members):
                    held[LockId(level, key)] = holding.members[key]
            return held

    def owners(self) -> list[Owner]:
        """Return all owners which hold a lock or wait for one."""
        with self._mutex:
            return list(dict.fromkeys((*self._table.holdings, *self._table.requests)))

    def table(self) -> list[monitor.LockRow]:
        """Return all locks in use, in the linear order."""
        with self._mutex:
            return monitor.rows(self._table.sets.values(), self._table.since)

    def waiting(self, owner: Owner) -> monitor.LockWait | None:
        """Return the wait of an owner; None when it does not wait."""
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

    def _free_dead_blockers(self, request: LockRequest) -> None:
        """Release the locks of dead owners in front of a request."""
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
