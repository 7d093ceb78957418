"""Another node with a copy: how far commits can rely on it."""

from __future__ import annotations

import enum
from typing import Final

from ganeti.utils import states


class CopyState(enum.StrEnum):
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


MOVES: Final = {
    CopyState.NEW: (CopyState.CURRENT, CopyState.ABSENT),
    CopyState.ABSENT: (CopyState.NEW, CopyState.CURRENT),
    CopyState.CURRENT: (CopyState.LAGGING, CopyState.UNRESPONSIVE),
    CopyState.LAGGING: (CopyState.CURRENT, CopyState.UNRESPONSIVE),
    CopyState.UNRESPONSIVE: (CopyState.LAGGING, CopyState.CURRENT),
}


class Peer:
    """A node with a copy. Not thread-safe: its owner has the lock.

    :ivar uuid: UUID of the node.
    :ivar state: the state of the copy; :meth:`_move` changes it.
    """

    def __init__(self, uuid: str, state: CopyState) -> None:
        self.uuid = uuid
        self.state = state

    @property
    def lags(self) -> bool:
        """No commit waits for the node."""
        return self.state is not CopyState.CURRENT

    @property
    def responds(self) -> bool:
        """The last message to the node did not fail."""
        return self.state not in (CopyState.ABSENT, CopyState.UNRESPONSIVE)

    @property
    def _was_current(self) -> bool:
        return self.state not in (CopyState.NEW, CopyState.ABSENT)

    def caught_up(self) -> None:
        """Note that the node has everything."""
        self._move(CopyState.CURRENT)

    def answered(self) -> None:
        """Note that the node took a message; it may still lack something."""
        if not self.responds:
            self._move(CopyState.LAGGING if self._was_current else CopyState.NEW)

    def missed(self) -> None:
        """Note that a commit did not wait for the node, or was not sent to it."""
        if self.state is CopyState.CURRENT:
            self._move(CopyState.LAGGING)

    def failed(self) -> None:
        """Note that a message to the node failed."""
        self._move(CopyState.UNRESPONSIVE if self._was_current else CopyState.ABSENT)

    def _move(self, state: CopyState) -> None:
        if state is not self.state:
            self.state = states.moved(MOVES, self.state, state, f"the copy of node {self.uuid}")
