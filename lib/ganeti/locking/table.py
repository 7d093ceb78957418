"""The locks, their owners and requests, and the rules by which these change.

:class:`ganeti.locking.manager.LockManager` calls everything here with its mutex held; nothing here
waits or locks. Methods which release locks return the locks they *touched*; when its records are
consistent again, the caller hands them to :meth:`LockTable.settle`, which moves the requests in
their queues on.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from ganeti import errors
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
from ganeti.locking.lock_set import LockSet, LockStep
from ganeti.locking.request import Holding, Lock, LockRequest, RequestState, Touched, mode_of
from ganeti.locking.shared_lock import Mode, join

_STRENGTH: Final = {SHARED: 1, EXCLUSIVE: 2}

# The last place in a queue: a request which does not wait is never served before one which waits.
_LAST: Final = 1 << 62


class LockTable:
    """The records of the manager.

    :param now: the time in seconds since the epoch, for the lock query.
    :ivar sets: the locks by level.
    :ivar holdings: the locks of each owner, as it asked for them.
    :ivar requests: the waiting request of each owner.
    :ivar livelocks: livelock files of all owners so far. If there is only one, all owners live in
        one process, and no owner can be dead.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._order = 0
        self.sets: dict[Level, LockSet[LockRequest]] = {level: LockSet(level) for level in LEVELS}
        self.sets[Level.CLUSTER].add([BGL])
        self.holdings: dict[Owner, dict[Level, Holding]] = {}
        self.requests: dict[Owner, LockRequest] = {}
        self.livelocks: set[str] = set()

    # -- requests ----------------------------------------------------------------------------

    def begin(
        self,
        owner: Owner,
        steps: list[LockStep[LockRequest]],
        gains: Mapping[LockId, str],
        priority: int,
    ) -> LockRequest:
        """Make a request and let it take locks as far as possible without waiting."""
        self._order += 1
        if owner.livelock is not None:
            self.livelocks.add(owner.livelock)
        request = LockRequest(owner, steps, gains, priority, self._order, self._now())
        touched = self._advance(request)
        if request.state is RequestState.WAITING:
            request.event = threading.Event()
            self.requests[owner] = request
        self.settle(touched)
        return request

    def _advance(self, request: LockRequest) -> Touched:
        """Take locks until one is not free; return the locks which this touched."""
        steps = request.steps
        while request.position < len(steps):
            lock, mode = steps[request.position]
            request.before = lock.mode_of(request.owner)
            request.mode = mode
            try:
                if not lock.ask(request):
                    return []
            except errors.LockError as err:
                return self.fail(request, err)
            request.undo.append((lock, request.before))
            request.position += 1
        self._grant(request)
        return []

    def _grant(self, request: LockRequest) -> None:
        request.state = RequestState.GRANTED
        self.requests.pop(request.owner, None)
        if request.gains:
            holdings = self.holdings.setdefault(request.owner, {})
            for ident, mode in request.gains.items():
                request.former[ident] = self._note(holdings, ident, mode)
        if request.event is not None:
            request.event.set()

    def _note(self, holdings: dict[Level, Holding], ident: LockId, mode: str) -> str | None:
        """Record that an owner holds a lock; return the mode before, None for none."""
        holding = holdings.get(ident.level)
        if holding is None:
            holding = holdings[ident.level] = Holding(self._now())
        former = holding.get(ident.key)
        holding.set(ident.key, mode)
        return former

    def fail(self, request: LockRequest, error: errors.LockError) -> Touched:
        """End a request without success; the owner has the same locks as before."""
        touched = self._unwind(request)
        request.state = RequestState.FAILED
        request.error = error
        if request.event is not None:
            request.event.set()
        return touched

    def _unwind(self, request: LockRequest) -> Touched:
        if self.requests.get(request.owner) is request:
            del self.requests[request.owner]
        touched: Touched = []
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

    def settle(self, touched: Touched) -> None:
        """Serve the waiters of these locks, earliest lock first, as far as possible."""
        heap = [(lock.rank, index, lock) for index, lock in enumerate(touched)]
        heapq.heapify(heap)
        serial = len(heap)
        while heap:
            lock = heapq.heappop(heap)[2]
            for request in lock.settle():
                # lock.settle() has given the lock to the request, which goes on with the next one.
                request.undo.append((lock, request.before))
                request.position += 1
                for other in self._advance(request):
                    heapq.heappush(heap, (other.rank, serial, other))
                    serial += 1

    def move(self, request: LockRequest, priority: int) -> None:
        """Give a waiting request another priority."""
        if priority == request.priority or request.state is not RequestState.WAITING:
            return
        lock = request.steps[request.position].lock
        lock.move(request, priority)
        self.settle([lock])

    def give_up(self, request: LockRequest) -> None:
        """Withdraw a request in any state."""
        owner = request.owner
        if request.state is RequestState.WAITING:
            touched = self._unwind(request)
        elif request.state is RequestState.GRANTED:
            # Granted, but the caller will not use it. A dead owner may have been freed meanwhile.
            touched = self._unwind(request)
            holdings = self.holdings.get(owner, {})
            for ident, former in request.former.items():
                if ident.level in holdings:
                    holdings[ident.level].set(ident.key, former)
            for level in {ident.level for ident in request.former}:
                touched.extend(self.settle_gate(owner, level))
        else:
            return
        request.state = RequestState.WITHDRAWN
        self.settle(touched)

    # -- checks ------------------------------------------------------------------------------

    def check_modifiable(self, level: Level) -> None:
        """Refuse a level whose locks are fixed.

        :raises LockError: locks of this level cannot be added or removed.
        """
        if level not in MODIFIABLE:
            raise errors.LockError(f"{level.label} locks cannot be added or removed")

    def check_no_request(self, owner: Owner) -> None:
        """Refuse an owner which waits, because an owner has at most one request.

        :raises LockError: names the lock for which it waits.
        """
        request = self.requests.get(owner)
        if request is not None:
            lock = request.steps[request.position].lock
            raise errors.LockError(f"{owner} already waits for lock {lock}")

    def check_level(self, owner: Owner, level: Level, keys: Collection[str] | None) -> None:
        """Refuse a request for a level unless it comes after all locks of the owner.

        :raises LockError: names the wanted lock and the held one.
        """
        held = self.last_held(owner)
        if held is None or held.level < level:
            return
        wanted = lock_name(level, min(keys) if keys else ALL)
        raise errors.LockError(
            f"{owner} asks for lock {wanted} while it holds lock {held}, which does not come "
            "before it. Take the locks level by level in their order, those of a level together."
        )

    def check_order(self, owner: Owner, gains: Mapping[LockId, str]) -> None:
        """Refuse a change unless new and raised locks come after all held ones.

        Also refuse an exclusive member of a level which is held shared.

        :raises LockError: names both locks.
        """
        if not gains:
            return
        held = self.holdings.get(owner, {})
        last = self.last_held(owner)
        for ident in sorted(gains, key=lambda ident: ident.rank):
            if last is not None and ident.rank < last.rank:
                raise errors.LockError(
                    f"{owner} asks for lock {ident} while it holds lock {last}, which comes later "
                    "in the order of locks"
                )
            if ident.key is ALL or gains[ident] != EXCLUSIVE:
                continue
            whole = gains.get(LockId(ident.level, ALL))
            if whole is None and ident.level in held:
                whole = held[ident.level].whole
            if whole == SHARED:
                raise errors.LockError(
                    f"{owner} asks for lock {ident} exclusively while it holds lock "
                    f"{lock_name(ident.level, ALL)} shared"
                )

    def last_held(self, owner: Owner) -> LockId | None:
        """Return the lock of the owner that comes last in the linear order; None without any."""
        held = self.holdings.get(owner)
        if not held:
            return None
        level = max(held)
        return held[level].last(level)

    def holding_of(
        self,
        owner: Owner,
        level: Level,
        keys: Collection[str] | None,
    ) -> Holding | None:
        """Return the owner's holding at a level; None when it holds nothing there.

        :raises LockError: the owner does not hold one of the named members; names them.
        """
        holding = self.holdings.get(owner, {}).get(level)
        if keys is None:
            return holding
        known = self.sets[level]
        missing = sorted(
            key
            for key in keys
            if holding is None
            or (key not in known if holding.whole is not None else key not in holding.members)
        )
        if missing:
            names = ", ".join(lock_name(level, key) for key in missing)
            raise errors.LockError(f"{owner} does not hold lock {names}")
        return holding

    # -- changing holdings -------------------------------------------------------------------

    def split(
        self,
        owner: Owner,
        changes: Mapping[LockId, str | None],
    ) -> tuple[dict[LockId, str], dict[LockId, str | None]]:
        """Divide an update into locks to take or raise, and locks to lower or release."""
        held = self.holdings.get(owner, {})
        gains: dict[LockId, str] = {}
        losses: dict[LockId, str | None] = {}
        for ident, wanted in changes.items():
            if wanted is not None:
                if wanted not in _STRENGTH:
                    raise errors.LockError(f"lock {ident} cannot be held in mode {wanted!r}")
                if ident.key is not ALL:
                    self.sets[ident.level].check_known([ident.key])
            holding = held.get(ident.level)
            present = None if holding is None else holding.get(ident.key)
            if wanted is not None and _STRENGTH[wanted] > (_STRENGTH[present] if present else 0):
                gains[ident] = wanted
            elif wanted != present:
                losses[ident] = wanted
        return gains, losses

    def steps(self, gains: Mapping[LockId, str]) -> list[LockStep[LockRequest]]:
        """Return the locks which these gains need, the locks of whole levels included."""
        modes: dict[LockId, Mode] = {}
        for ident, wanted in gains.items():
            mode = mode_of(wanted)
            gate = LockId(ident.level, ALL)
            if ident.key is not ALL:
                modes[ident] = mode
                mode = Mode.INTENT_SHARED if wanted == SHARED else Mode.INTENT_EXCLUSIVE
            modes[gate] = join(modes.get(gate), mode) or mode
        steps = []
        for ident in sorted(modes, key=lambda ident: ident.rank):
            lock_set = self.sets[ident.level]
            lock = lock_set.gate if ident.key is ALL else lock_set.member(ident.key)
            steps.append(LockStep(lock, modes[ident]))
        return steps

    def take_now(self, owner: Owner, ident: LockId, wanted: str, priority: int) -> bool:
        """Take one lock if that needs no wait; whether it was taken."""
        lock_set = self.sets[ident.level]
        if owner.livelock is not None:
            self.livelocks.add(owner.livelock)
        holdings = self.holdings.setdefault(owner, {})
        place = (priority, _LAST)
        if ident.key is ALL:
            taken = lock_set.gate.try_now(owner, mode_of(wanted), place)
        elif ident.key not in lock_set:
            taken = False
        else:
            holding = holdings.get(ident.level)
            if holding is not None and holding.whole == SHARED and wanted == EXCLUSIVE:
                return False
            intent = Mode.INTENT_SHARED if wanted == SHARED else Mode.INTENT_EXCLUSIVE
            taken = lock_set.gate.try_now(owner, intent, place)
            if taken and not lock_set.member(ident.key).try_now(owner, mode_of(wanted), place):
                # The level's lock returns to the mode which the other members need.
                taken = False
                self.settle(self.settle_gate(owner, ident.level))
        if taken:
            self._note(holdings, ident, wanted)
        elif not holdings:
            self.holdings.pop(owner, None)
        return taken

    def take_free(
        self,
        owner: Owner,
        level: Level,
        keys: Collection[str] | None,
        wanted: str,
    ) -> frozenset[str]:
        """Take the locks which are free now and return their keys; unknown keys are left out."""
        known = self.sets[level].keys()
        return frozenset(
            key
            for key in sorted(known if keys is None else known.intersection(keys))
            if self.take_now(owner, LockId(level, key), wanted, 0)
        )

    def release(
        self,
        owner: Owner,
        level: Level | None,
        keys: Collection[str] | None,
    ) -> Touched:
        """Release locks; see :meth:`ganeti.locking.manager.LockManager.release`."""
        touched: Touched = []
        if level is None:
            for held in sorted(self.holdings.get(owner, {}), reverse=True):
                touched.extend(self.release(owner, held, ALL))
            return touched
        holding = self.holding_of(owner, level, keys)
        if holding is None:
            return touched
        if keys is None:
            holding.set(ALL, None)
            names: Iterable[str] = sorted(holding.members, reverse=True)
        else:
            names = sorted(set(keys), reverse=True)
            if holding.whole is not None and names:
                touched.extend(self.explode(owner, level, holding, set(names)))
                names = [key for key in names if key in holding.members]
        for key in names:
            touched.append(self.set_member(owner, level, holding, key, None))
        touched.extend(self.settle_gate(owner, level))
        return touched

    def explode(
        self,
        owner: Owner,
        level: Level,
        holding: Holding,
        without: Collection[str] = (),
    ) -> Touched:
        """Replace the lock of a level by the locks of its present members.

        No other owner can hold a member in a mode which excludes this one: it would need an
        intention mode of the level's lock, which excludes the mode held here.

        :param without: members which are not taken.
        """
        whole = holding.whole
        if whole is None:
            return []
        for lock in self.sets[level]:
            key = lock.ident.key
            if key is ALL or key in without or holding.members.get(key) == EXCLUSIVE:
                continue
            if not lock.try_now(owner, mode_of(whole), (-_LAST, 0)):
                raise errors.ProgrammerError(f"lock {lock} is taken below a held level")
            holding.set(key, whole)
        holding.set(ALL, None)
        return self.settle_gate(owner, level)

    def set_member(
        self,
        owner: Owner,
        level: Level,
        holding: Holding,
        key: str,
        mode: str | None,
    ) -> Lock:
        """Lower or release one member and return its lock; its waiters are served later."""
        lock = self.sets[level].member(key)
        lock.weaken(owner, None if mode is None else mode_of(mode))
        holding.set(key, mode)
        return lock

    def weaken(self, owner: Owner, ident: LockId, mode: str | None) -> Touched:
        """Lower or release exactly one lock of an owner."""
        touched: Touched = []
        holding = self.holdings.get(owner, {}).get(ident.level)
        if holding is None or holding.get(ident.key) is None:
            return touched  # the owner was freed as dead meanwhile
        if ident.key is ALL:
            holding.set(ALL, mode)
        else:
            touched.append(self.set_member(owner, ident.level, holding, ident.key, mode))
        touched.extend(self.settle_gate(owner, ident.level))
        return touched

    def settle_gate(self, owner: Owner, level: Level) -> Touched:
        """Bring the level's own lock to the mode which the owner's holding needs.

        Also removes empty records of the owner.
        """
        gate = self.sets[level].gate
        holdings = self.holdings.get(owner, {})
        holding = holdings.get(level)
        needed = None if holding is None else holding.gate_mode()
        touched: Touched = []
        if gate.mode_of(owner) is not needed:
            gate.weaken(owner, needed)
            touched.append(gate)
        if holding is not None and holding.empty():
            del holdings[level]
        if not holdings:
            self.holdings.pop(owner, None)
        return touched

    def since(self, owner: Owner, lock: Lock) -> float:
        """Return the time since which the owner holds, or waits for, a lock of this level."""
        holding = self.holdings.get(owner, {}).get(lock.ident.level)
        if holding is not None:
            return holding.since
        return self.requests[owner].since
