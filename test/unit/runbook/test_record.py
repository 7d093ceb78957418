"""The record of an operation survives an interruption, and says what is wrong with its file."""

from __future__ import annotations

import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from ganeti import errors
from ganeti.runbook import record


@dataclass(frozen=True)
class Trip:
    """A record of the test."""

    number: int
    done: tuple[str, ...] = ()


def parse_trip(text: str, path: str) -> Trip:
    return record.from_text(Trip, text, path, "the record of a trip")


@pytest.fixture
def file(tmp_path: Path) -> record.RecordFile[Trip]:
    return record.RecordFile(str(tmp_path / "trip.json"), parse_trip, "Walk home")


def test_what_was_written_is_read(file: record.RecordFile[Trip]) -> None:
    assert file.read() is None
    file.write(Trip(7))
    later = file.note(Trip(7), done=("stop",))
    assert later == Trip(7, ("stop",)) == file.read()
    assert stat.S_IMODE(Path(file.path).stat().st_mode) == 0o600
    file.remove()
    assert file.read() is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"number": 7}', '{"format": 2, "number": 7}'])
def test_a_damaged_file_is_named(file: record.RecordFile[Trip], text: str) -> None:
    Path(file.path).write_text(text)
    with pytest.raises(errors.ConfigurationError, match="trip.json"):
        file.read()


def test_a_later_release_may_have_more_fields(file: record.RecordFile[Trip]) -> None:
    Path(file.path).write_text('{"format": 1, "number": 7, "weather": "rain"}')
    assert file.read() == Trip(7)


@pytest.mark.parametrize("text", ["", '{"format": 1, "num', "\0" * 40])
def test_a_torn_record_says_what_to_do(file: record.RecordFile[Trip], text: str) -> None:
    file.write(Trip(7, ("stop",)))
    path = Path(file.path)
    path.write_text(text)
    with pytest.raises(errors.ConfigurationError) as caught:
        file.read()
    command = f"cp {path}.copy {path}"
    assert f"Its copy is whole: '{command}', and repeat the command" in str(caught.value)
    subprocess.run(command.split(), check=True)
    assert file.read() == Trip(7, ("stop",))
    for one in (path, Path(file.copy)):
        one.write_text(text)
    with pytest.raises(errors.ConfigurationError, match=r"trip.json.*no whole copy.*Walk home"):
        file.read()


def test_nothing_is_left_of_a_record_which_is_removed(
    file: record.RecordFile[Trip], tmp_path: Path
) -> None:
    file.write(Trip(7))
    file.remove()
    file.remove()
    assert list(tmp_path.iterdir()) == []
