"""The audit log: a chain of lines of which none can be changed or removed unseen."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ganeti.jobstore import audit


def chain(path: Path, count: int) -> audit.Chain:
    made = audit.Chain(str(path))
    made.open()
    for number in range(count):
        made.add([{"job": number}])
    return made


def problems(*paths: Path) -> list[str]:
    found = audit.verify([str(path) for path in paths])
    return [f"{one.place.rpartition('/')[2]} {one.text}" for _, one in found if one is not None]


def test_lines_are_numbered_and_chained(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    chain(path, 3)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["n"] for line in lines] == [1, 2, 3]
    assert lines[0]["prev"] == audit.NOTHING
    assert problems(path) == []
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_new_writer_continues(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    chain(path, 2)
    chain(path, 2)
    assert problems(path) == []
    assert json.loads(path.read_text().splitlines()[-1])["n"] == 4


def test_the_chain_goes_on_in_a_new_file_after_a_rotation(tmp_path: Path) -> None:
    path, old = tmp_path / "audit.log", tmp_path / "audit.log.1"
    writer = chain(path, 2)
    path.rename(old)
    writer.add([{"job": 9}])
    assert problems(old, path) == []
    assert problems(path) == []
    assert problems(path, old) != []


@pytest.mark.parametrize(
    ("number", "change"),
    [
        (1, lambda line: line.replace(b'"job":1', b'"job":7')),
        (1, lambda line: b""),
        (0, lambda line: b""),
        (1, lambda line: line + line),
        (1, lambda line: b"junk\n"),
        (1, lambda line: b"[]\n"),
        (1, lambda line: b'{"n": 2}\n'),
        (1, lambda line: b"\xff\xfe\n"),
    ],
)
def test_no_change_is_unseen(number: int, change: object, tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    chain(path, 4)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[number] = change(lines[number])  # type: ignore[operator]
    path.write_bytes(b"".join(lines))
    if number == 0:
        # An older file may have been removed; what is left is whole.
        assert problems(path) == []
    else:
        assert problems(path) != []


def test_an_incomplete_line_of_a_crash_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    chain(path, 2)
    with path.open("ab") as stream:
        stream.write(b'{"n":3,"jo')
    chain(path, 1)
    assert problems(path) == []
    assert len(path.read_text().splitlines()) == 3


def test_a_full_disk_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "audit.log"
    writer = chain(path, 1)
    plain = os.write
    calls = []

    def full(fd: int, data: bytes) -> int:
        if calls:
            raise OSError(28, "No space left on device")
        calls.append(fd)
        return plain(fd, data[:5])

    monkeypatch.setattr(audit.os, "write", full)
    with pytest.raises(OSError, match="No space"):
        writer.add([{"job": 5}])
    monkeypatch.undo()
    writer.add([{"job": 6}])
    assert problems(path) == []
    assert len(path.read_text().splitlines()) == 2


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "audit.log").symlink_to(tmp_path / "target")
    writer = audit.Chain(str(tmp_path / "audit.log"))
    with pytest.raises(OSError, match="symbolic links"):
        writer.add([{}])


def test_an_empty_and_a_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.touch()
    assert problems(path) == []
    assert chain(path, 1).number == 1
    with pytest.raises(FileNotFoundError):
        problems(tmp_path / "missing")
