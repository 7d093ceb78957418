"""Names of locks, their order, and who may own them.

Every lock has a place in one linear order: first by level (cluster, instance, node group, node,
node resource, network), inside a level the lock of the whole level comes before its members, and
members follow each other by key. Whoever waits for a lock holds only earlier ones; that is why
nobody ever waits in a circle. The order, and the rule that everything between the lock of a level
and a member of it belongs to that level, are seed 001 *The Locks* and seed 004 *Locking*.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

SHARED: Final = "shared"
EXCLUSIVE: Final = "exclusive"

# Asks for the lock of a whole level: it stands for all present and future members.
ALL: Final = None

# The only lock of the cluster level: exclusive it stops every other operation.
BGL: Final = "BGL"


class Level(IntEnum):
    """Levels in the order in which an operation takes its locks."""

    CLUSTER = 0
    INSTANCE = 1
    NODEGROUP = 2
    NODE = 3
    NODE_RES = 4
    NETWORK = 5

    @property
    def label(self) -> str:
        """The level as it is written in the name of a lock."""
        return _LABELS[self]


_LABELS: Final = ("cluster", "instance", "nodegroup", "node", "node-res", "network")
LEVELS: Final = tuple(Level)

# Levels whose locks come and go with the things they stand for.
MODIFIABLE: Final = frozenset(LEVELS[1:])

_WHOLE: Final = "[lockset]"


class LockId(NamedTuple):
    """One lock: a member of a level, or with the key :data:`ALL` the level itself."""

    level: Level
    key: str | None

    def __str__(self) -> str:
        return lock_name(self.level, self.key)

    @property
    def rank(self) -> tuple[int, str]:
        """The lock's place in the linear order; no member has an empty key."""
        return (int(self.level), self.key or "")


def lock_name(level: Level, key: str | None) -> str:
    """The published name: ``cluster/BGL``, ``node/<uuid>``, ``node/[lockset]``."""
    return f"{_LABELS[level]}/{_WHOLE if key is None else key}"


class Owner(NamedTuple):
    """Who holds a lock: a job, or a part of the daemon which has only a name.

    ``livelock`` is the path of a file which the owner's process keeps locked while it lives (seed
    004 *Job death detection*); None for an owner that cannot die alone.
    """

    job_id: int | None
    name: str
    livelock: str | None = None

    def __str__(self) -> str:
        return self.name if self.job_id is None else f"job {self.job_id}"

    @property
    def label(self) -> str:
        """What the lock query shows: the job id, or else the name."""
        return self.name if self.job_id is None else str(self.job_id)
