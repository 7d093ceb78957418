"""The locks which a master daemon takes before it serves."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ganeti import errors
from ganeti.master import startup
from ganeti.utils import filelock


def test_two_on_one_queue(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    with filelock.FileLock(path) as other:
        other.acquire()
        with pytest.raises(errors.LockError, match="locked by another process"):
            startup.lock_queue(path)
    startup.lock_queue(path).close()


def test_a_livelock_replaces_those_of_the_dead(tmp_path: Path) -> None:
    (tmp_path / "masterd_1_1").touch()
    (tmp_path / "job_7").touch()
    lock = startup.take_livelock(str(tmp_path))
    assert filelock.is_locked(lock.path)
    assert sorted(os.listdir(tmp_path)) == ["job_7", os.path.basename(lock.path)]
    lock.close()
