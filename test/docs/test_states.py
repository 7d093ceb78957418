"""The tables of ``doc/states.rst`` have the moves of the code."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path

import pytest

from ganeti.config.disk_changes import DiskChanges
from ganeti.jobexec import process_handle
from ganeti.jqueue import job, replication
from ganeti.replication import peer

PAGE = Path(__file__).resolve().parents[2] / "doc/states.rst"
_ROW = re.compile(r"^``([a-z]+)`` +(nothing|``.*``)$", re.MULTILINE)


def section(title: str) -> str:
    """Return the text of one section of the page."""
    (_, _, after) = PAGE.read_text(encoding="utf-8").partition(f"\n{title}\n{'=' * len(title)}\n")
    assert after, title
    return re.split(r"\n\n[^\n]+\n={4,}\n\n", after)[0]


@pytest.mark.parametrize(
    ("title", "moves"),
    [
        ("An opcode, and its job", job.LEGAL_MOVES),
        ("The process of a job", process_handle._MOVES),
        ("The copy of a candidate", peer.MOVES),
        ("The delivery to a candidate", replication.PHASES),
    ],
)
def test_the_moves_are_those_of_the_code(title: str, moves: Mapping[str, Collection[str]]) -> None:
    found = {
        state: set(re.findall("``([a-z]+)``", after))
        for state, after in _ROW.findall(section(title))
    }
    assert found == {str(state): set(map(str, after)) for state, after in moves.items()}


def test_every_operation_on_the_record_of_replicas_is_named() -> None:
    named = set(re.findall("``((?:mark|forget)_[a-z_]+)``", section("The replicas of a disk")))
    there = {name for name in dir(DiskChanges) if name.startswith(("mark_", "forget_"))}
    assert named == there
