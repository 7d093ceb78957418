"""50,000 operations with many owners who want the same; see :mod:`.pair`.

``make check-long`` does 340,000, and ``LOCK_OPERATIONS`` makes the walk as long as it says. The
walks are files of their own, so that they can run beside each other.
"""

from __future__ import annotations

import pytest

from .pair import HABITS, walk


@pytest.mark.larger
def test_walk() -> None:
    walk(20130928, HABITS[1])
