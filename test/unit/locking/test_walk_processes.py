"""The walks of ``test_walk_*.py``, with owners which are job processes at the end of a socket."""

from __future__ import annotations

from pathlib import Path

import pytest

from .pair import HABITS, OPERATIONS, Habit, walk
from .wire_pair import WirePair


def _walk(directory: Path, seed: int, habit: Habit, operations: int) -> None:
    made: list[WirePair] = []

    def make(owners: int) -> WirePair:
        made.append(WirePair(owners, directory / "master"))
        return made[-1]

    try:
        walk(seed, habit, operations, make)
    finally:
        for pair in made:
            pair.wire.close()


@pytest.mark.parametrize("number", range(len(HABITS)))
def test_walk(tmp_path: Path, number: int) -> None:
    _walk(tmp_path, 20261126 + number, HABITS[number], 2000)


@pytest.mark.long
@pytest.mark.parametrize("number", range(len(HABITS)))
def test_long_walk(tmp_path: Path, number: int) -> None:
    _walk(tmp_path, 20261129 + number, HABITS[number], OPERATIONS // 2)
