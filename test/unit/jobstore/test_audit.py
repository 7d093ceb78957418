"""The audit log: a chain of lines of which none can be changed or removed unseen."""

from __future__ import annotations

import gzip
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


def test_a_writer_which_starts_after_a_rotation_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    for suffix in ("-20261101.gz", "-20261201", ""):
        writer = chain(path, 2)
        renamed = Path(f"{path}{suffix}")
        path.rename(renamed)
        if renamed.suffix == ".gz":
            renamed.write_bytes(gzip.compress(renamed.read_bytes()))
    assert writer.number == 6
    (tmp_path / "audit.log.orig").write_text("not ours\n")
    (tmp_path / "audit.log.7").write_text("")
    whole = ["audit.log-20261101.gz", "audit.log-20261201", "audit.log"]
    assert [Path(name).name for name in audit.files(str(path))] == whole
    assert problems(*map(Path, audit.files(str(path)))) == []
    # A damaged beginning does not hide a file.
    (tmp_path / "audit.log.7").write_text("damaged\n")
    assert [Path(name).name for name in audit.files(str(path))] == ["audit.log.7", *whole]
    assert len(problems(*map(Path, audit.files(str(path))))) == 2


def test_a_damaged_compressed_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "audit.log.1.gz"
    path.write_bytes(gzip.compress(b'{"n": 1}\n' * 1000)[:-9])
    with pytest.raises(OSError, match="damaged compressed file") as caught:
        problems(path)
    assert caught.value.filename == str(path)


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
