"""Locks of the cluster: which job may use which instance, group, node or network at this moment.

The modules, from the bottom:

=================== ==================================================================
:mod:`.levels`      names of locks and their order
:mod:`.shared_lock` one fair lock
:mod:`.lock_set`    the locks of a level, with the lock that stands for all of them
:mod:`.request`     the request of an owner, and what it holds
:mod:`.table`       the rules by which requests and locks change
:mod:`.manager`     takes and releases sets of locks for owners, and lets threads wait
:mod:`.monitor`     lists owners and waiters
=================== ==================================================================

Only the master daemon holds locks; nothing here is written to disk.

Source: Ganeti design 2.0, *Granular locking*; Ganeti daemons design, *Locking*.
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
