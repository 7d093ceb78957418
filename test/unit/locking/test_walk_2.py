"""A third of a million operations with many owners who want the same; see :mod:`.pair`.

``LOCK_OPERATIONS`` makes the walk longer. The walks are files of their own, so that they can run
beside each other.
"""

from __future__ import annotations

from .pair import HABITS, walk


def test_walk() -> None:
    walk(20130928, HABITS[1])
