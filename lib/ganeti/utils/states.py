"""The life of an object as states, with a table of the moves between them.

The class of the object has one method which makes a move, with :func:`moved`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeVar

from ganeti import errors

State = TypeVar("State", bound=str)


def moved(moves: Mapping[State, Collection[State]], old: State, new: State, what: str) -> State:
    """Return the new state.

    :param moves: for each state those which may follow it.
    :param what: the object, for the message.
    :raises errors.ProgrammerError: the table does not have this move.
    """
    if new not in moves[old]:
        raise errors.ProgrammerError(f"{what} cannot go from {old} to {new}")
    return new
