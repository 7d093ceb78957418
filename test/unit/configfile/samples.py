"""A configuration in miniature, whose states follow each other as real ones do."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from ganeti.configfile import files
from ganeti.configfile.content import Change


def text_of(serial: int, by: str = "m") -> bytes:
    """Return a state; the end has its serial number and who made it, in place of the time."""
    return (
        b'{"values":"'
        + b"a" * (40 + serial % 3)
        + b'","by":"%s","serial_no":%d}\n'
        % (
            by.encode(),
            serial,
        )
    )


def change_to(serial: int, by: str = "m", before: str = "m") -> Change:
    """Return the change from the state before to a state."""
    old, new = text_of(serial - 1, before), text_of(serial, by)
    end = old[old.index(b'","by"') :]
    return Change(len(old), end, [(0, 41), new[41:]], len(new))


def serial_of(text: bytes) -> int:
    """Return the serial number of a state, which must be whole."""
    for serial in range(1, 60):
        if text == text_of(serial):
            return serial
    raise AssertionError(f"no state: {text!r}")


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A directory with state 7, in which every file has a journal."""
    monkeypatch.setattr(files, "JOURNAL_FROM_BYTES", 1)
    directory = tmp_path / "data"
    directory.mkdir()
    made = str(directory / "config.data")
    files.write_config_file(made, text_of(7))
    return made


def unlocked(
    inside: Callable[[], None] = lambda: None,
) -> Callable[[], AbstractContextManager[None]]:
    """Return a lock for one process; ``inside`` runs just before it is taken."""

    @contextlib.contextmanager
    def lock() -> Iterator[None]:
        inside()
        yield

    return lock
