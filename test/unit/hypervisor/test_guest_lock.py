"""The lock of one guest: processes exclude each other, and guests do not."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from ganeti import errors
from ganeti.hypervisor import guest_lock

_FORK = multiprocessing.get_context("fork")


def _hold(directory: str, name: str, end: Connection) -> None:
    with guest_lock.locked(directory, name):
        end.send("locked")
        end.recv()
        os._exit(0)


@contextlib.contextmanager
def held_elsewhere(directory: Path, name: str) -> Iterator[None]:
    """Let another process have the lock."""
    here, there = _FORK.Pipe()
    process = _FORK.Process(target=_hold, args=(str(directory), name, there))
    process.start()
    try:
        assert here.poll(60) and here.recv() == "locked"
        yield
    finally:
        here.send("end")
        process.join()


def test_operations_on_a_guest_exclude_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guest_lock, "_TIMEOUT_S", 0.1)
    with (
        held_elsewhere(tmp_path, "web1"),
        pytest.raises(errors.HypervisorError, match="another operation on instance web1 takes"),
        guest_lock.locked(str(tmp_path), "web1"),
    ):
        pytest.fail("two processes have the lock")
    # Its end frees the lock.
    with guest_lock.locked(str(tmp_path), "web1"):
        pass


def test_guests_do_not_wait_for_each_other(tmp_path: Path) -> None:
    with held_elsewhere(tmp_path, "web1"), guest_lock.locked(str(tmp_path), "web2"):
        pass


def test_a_directory_which_is_missing(tmp_path: Path) -> None:
    with (
        pytest.raises(errors.HypervisorError, match="cannot open .*/none/.lock: No such file"),
        guest_lock.locked(f"{tmp_path}/none", "web1"),
    ):
        pytest.fail("there is no lock")
