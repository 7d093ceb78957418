"""Moves between states."""

from __future__ import annotations

import enum

import pytest

from ganeti import errors
from ganeti.utils import states


class Door(enum.StrEnum):
    OPEN = "open"
    SHUT = "shut"
    LOCKED = "locked"


MOVES = {
    Door.OPEN: (Door.SHUT,),
    Door.SHUT: (Door.OPEN, Door.LOCKED),
    Door.LOCKED: (),
}


def test_a_move_of_the_table() -> None:
    assert states.moved(MOVES, Door.OPEN, Door.SHUT, "the door") is Door.SHUT
    assert states.moved(MOVES, Door.SHUT, Door.LOCKED, "the door") is Door.LOCKED


@pytest.mark.parametrize(
    ("old", "new"), [(Door.OPEN, Door.LOCKED), (Door.LOCKED, Door.SHUT), (Door.SHUT, Door.SHUT)]
)
def test_another_move_is_refused(old: Door, new: Door) -> None:
    with pytest.raises(errors.ProgrammerError, match=f"the door cannot go from {old} to {new}"):
        states.moved(MOVES, old, new, "the door")
