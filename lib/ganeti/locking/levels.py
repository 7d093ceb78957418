"""Names of locks, their order, and their owners.

Every lock has a place in one linear order: first by level (cluster, instance, node group, node,
node resource, network), inside a level the lock of the whole level comes before its members, and
members follow each other by key. An owner that waits for a lock holds only earlier ones, so owners
never wait for each other in a circle.

Source: Ganeti design 2.0, *The Locks*; Ganeti daemons design, *Locking*.
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
        """The level as part of the name of a lock."""
        return _LABELS[self]


_LABELS: Final = ("cluster", "instance", "nodegroup", "node", "node-res", "network")
LEVELS: Final = tuple(Level)

# Levels whose locks are added and removed together with the objects they stand for.
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
    """Return the published name: ``cluster/BGL``, ``node/<uuid>``, ``node/[lockset]``."""
    return f"{_LABELS[level]}/{_WHOLE if key is None else key}"


class Owner(NamedTuple):
    """The owner of a lock: a job, or a part of the daemon, which has only a name.

    :ivar livelock: path of a file which the owner's process keeps locked while it lives; None for
        an owner which lives in the process of the lock manager.

    Source: Ganeti daemons design, *Job death detection*.
    """

    job_id: int | None
    name: str
    livelock: str | None = None

    def __str__(self) -> str:
        return self.name if self.job_id is None else f"job {self.job_id}"

    @property
    def label(self) -> str:
        """The owner in the lock query: the job id, or else the name."""
        return self.name if self.job_id is None else str(self.job_id)
