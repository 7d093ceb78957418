"""The locks of one level: a lock for the level itself, and one for each member.

The level's own lock stands for all members, those which exist and those which will be added while
it is held. An owner of a member needs an intention mode of the level's lock. So adding a member
never has to wait: an owner of the level's lock excludes others from the new member, too.

Source: Ganeti design 2.0, *Handling conversion to more granularity* (the level's own lock is called
metalock there).

As in :mod:`ganeti.locking.shared_lock` there are no threads here, and no records about owners; the
manager calls it under its mutex.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Generic, NamedTuple

from ganeti import errors
from ganeti.locking.levels import ALL, Level, LockId, lock_name
from ganeti.locking.shared_lock import Mode, SharedLock, TicketT


class LockStep(NamedTuple, Generic[TicketT]):
    """One lock of a request, and the mode wanted of it."""

    lock: SharedLock[TicketT]
    mode: Mode


class LockSet(Generic[TicketT]):
    """All locks of a level."""

    __slots__ = ("_keys", "_members", "gate", "level")

    def __init__(self, level: Level, keys: Iterable[str] = ()) -> None:
        self.level = level
        self.gate: SharedLock[TicketT] = SharedLock(LockId(level, ALL))
        self._members: dict[str, SharedLock[TicketT]] = {}
        self._keys: frozenset[str] | None = None
        self.add(keys)

    def __contains__(self, key: str) -> bool:
        return key in self._members

    def __iter__(self) -> Iterator[SharedLock[TicketT]]:
        """Return the members, in no particular order."""
        return iter(self._members.values())

    def keys(self) -> frozenset[str]:
        """Return the keys of the present members."""
        if self._keys is None:
            self._keys = frozenset(self._members)
        return self._keys

    def member(self, key: str) -> SharedLock[TicketT]:
        """Return the lock of one member.

        :raises KeyError: no such member.
        """
        return self._members[key]

    def add(self, keys: Iterable[str]) -> None:
        """Create locks, all or none of them.

        :raises LockError: a key is empty, or a lock exists already.
        """
        wanted = list(keys)
        for key in wanted:
            if not key:
                raise errors.LockError(f"a {self.level.label} lock needs a name")
        present = sorted(key for key in wanted if key in self._members)
        if present:
            raise errors.LockError(f"lock {self._names(present)} exists already")
        for key in wanted:
            self._members[key] = SharedLock(LockId(self.level, key))
        if wanted:
            self._keys = None

    def remove(self, key: str) -> list[TicketT]:
        """Close a member's lock; return the tickets of its waiters."""
        self._keys = None
        return self._members.pop(key).remove()

    def check_known(self, keys: Collection[str]) -> None:
        """Refuse keys without a lock.

        :raises LockError: names them.
        """
        unknown = sorted(key for key in keys if key not in self._members)
        if unknown:
            raise errors.LockError(
                f"lock {self._names(unknown)} does not exist. It may have been removed meanwhile."
            )

    def steps(self, keys: Collection[str] | None, *, shared: bool) -> list[LockStep[TicketT]]:
        """Return what a request for these members (or :data:`~ganeti.locking.levels.ALL`) takes.

        :returns: locks in the linear order: the level's own lock, then members by key.
        :raises LockError: a key without a lock.
        """
        if keys is None:
            return [LockStep(self.gate, Mode.SHARED if shared else Mode.EXCLUSIVE)]
        if not keys:
            return []
        self.check_known(keys)
        intent, mode = (
            (Mode.INTENT_SHARED, Mode.SHARED) if shared else (Mode.INTENT_EXCLUSIVE, Mode.EXCLUSIVE)
        )
        members = self._members
        return [
            LockStep(self.gate, intent),
            *(LockStep(members[key], mode) for key in sorted(set(keys))),
        ]

    def _names(self, keys: list[str]) -> str:
        return ", ".join(lock_name(self.level, key) for key in keys)
