"""Another node with a copy: how far commits can rely on it."""

from __future__ import annotations

import enum
from typing import Final


class CopyState(enum.Enum):
    """How far commits can rely on the copy of a node; ``doc/states.rst`` has a drawing."""

    #: It has never been up to date; what it lacks is on its way.
    NEW = "new"
    #: It has never been up to date, and the last message to it failed.
    ABSENT = "absent"
    #: It has everything, or is about to get the rest: commits wait for it.
    CURRENT = "current"
    #: It lacks something, and answers. No commit waits for it.
    LAGGING = "lagging"
    #: It lacks something, and the last message to it failed.
    UNRESPONSIVE = "unresponsive"


class CopyEvent(enum.Enum):
    """What moves the copy of a node from one state to another."""

    CAUGHT_UP = "it has everything"
    ANSWERED = "it took a message, and may still lack something"
    MISSED = "a commit did not wait for it, or was not sent to it"
    FAILED = "a message to it failed"


MOVES: Final = {
    CopyState.NEW: {
        CopyEvent.CAUGHT_UP: CopyState.CURRENT,
        CopyEvent.ANSWERED: CopyState.NEW,
        CopyEvent.MISSED: CopyState.NEW,
        CopyEvent.FAILED: CopyState.ABSENT,
    },
    CopyState.ABSENT: {
        CopyEvent.CAUGHT_UP: CopyState.CURRENT,
        CopyEvent.ANSWERED: CopyState.NEW,
        CopyEvent.MISSED: CopyState.ABSENT,
        CopyEvent.FAILED: CopyState.ABSENT,
    },
    CopyState.CURRENT: {
        CopyEvent.CAUGHT_UP: CopyState.CURRENT,
        CopyEvent.ANSWERED: CopyState.CURRENT,
        CopyEvent.MISSED: CopyState.LAGGING,
        CopyEvent.FAILED: CopyState.UNRESPONSIVE,
    },
    CopyState.LAGGING: {
        CopyEvent.CAUGHT_UP: CopyState.CURRENT,
        CopyEvent.ANSWERED: CopyState.LAGGING,
        CopyEvent.MISSED: CopyState.LAGGING,
        CopyEvent.FAILED: CopyState.UNRESPONSIVE,
    },
    CopyState.UNRESPONSIVE: {
        CopyEvent.CAUGHT_UP: CopyState.CURRENT,
        CopyEvent.ANSWERED: CopyState.LAGGING,
        CopyEvent.MISSED: CopyState.UNRESPONSIVE,
        CopyEvent.FAILED: CopyState.UNRESPONSIVE,
    },
}


class Peer:
    """A node with a copy. Not thread-safe: its owner has the lock.

    :ivar uuid: UUID of the node.
    """

    def __init__(self, uuid: str, state: CopyState) -> None:
        self.uuid = uuid
        self._state = state

    @property
    def state(self) -> CopyState:
        """The state of the copy; :meth:`note` alone changes it."""
        return self._state

    @property
    def lags(self) -> bool:
        """No commit waits for the node."""
        return self._state is not CopyState.CURRENT

    @property
    def responds(self) -> bool:
        """The last message to the node did not fail."""
        return self._state not in (CopyState.ABSENT, CopyState.UNRESPONSIVE)

    def note(self, event: CopyEvent) -> None:
        """Move to the state which follows an event."""
        self._state = MOVES[self._state][event]
