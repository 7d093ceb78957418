"""Locks of the cluster: who may change which instance, group, node or network right now.

The room is read from the bottom: :mod:`.levels` names locks and their order, :mod:`.shared_lock`
is one fair lock, :mod:`.lock_set` the locks of a level with the lock that stands for all of them,
:mod:`.request` what an owner holds and wants, :mod:`.table` the rules by which that changes.
:mod:`.manager` takes and gives back sets of locks for owners, and lets their threads wait;
:mod:`.monitor` tells who holds and who waits. Only the master daemon holds locks; nothing here is
written to disk.
"""

from __future__ import annotations

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
from ganeti.locking.manager import LockManager
from ganeti.locking.monitor import LockRow, LockWait

__all__ = [
    "ALL",
    "BGL",
    "EXCLUSIVE",
    "LEVELS",
    "MODIFIABLE",
    "SHARED",
    "Level",
    "LockId",
    "LockManager",
    "LockRow",
    "Owner",
    "LockWait",
    "lock_name",
]
