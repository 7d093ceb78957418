"""The file and its journal: what a reader finds, and what accidents leave."""

from __future__ import annotations

import hashlib
import logging
import os
import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from ganeti.configfile import files
from ganeti.configfile.journal import encode
from ganeti.platform import users
from ganeti.utils import fs

from .samples import change_to, path, serial_of, text_of, unlocked

__all__ = ["path"]


def _present(path: str) -> int:
    return serial_of(files.read(path))


def _journal(path: str) -> Path:
    return Path(files.journal_of(path))


def test_changes_are_in_the_journal_until_it_is_folded_in(path: str) -> None:
    for serial in (8, 9, 10):
        assert files.change(path, change_to(serial))
        assert _present(path) == serial
        assert serial_of(Path(path).read_bytes()) == 7
    inode = os.stat(path).st_ino
    with files.opened(path) as found:
        assert found.digest("sha256") == hashlib.sha256(text_of(10)).hexdigest()
        assert found.end(20) == text_of(10)[-20:]
        assert found.end(9999) == text_of(10)
    assert files.fold(path, unlocked())
    assert os.listdir(os.path.dirname(path)) == ["config.data"]
    assert serial_of(Path(path).read_bytes()) == 10
    assert os.stat(path).st_ino != inode
    assert not files.fold(path, unlocked())


def test_a_small_file_has_no_journal(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "JOURNAL_FROM_BYTES", 1 << 20)
    assert files.change(path, change_to(8))
    assert not _journal(path).exists()
    assert serial_of(Path(path).read_bytes()) == 8


@pytest.mark.parametrize("limit", ["_JOURNAL_MAX_BYTES", "_RECORD_MAX_BYTES", "_MAX_PARTS"])
def test_a_journal_is_bounded(path: str, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    assert files.change(path, change_to(8))
    monkeypatch.setattr(files, limit, 2)
    assert files.change(path, change_to(9))
    assert not _journal(path).exists()
    assert serial_of(Path(path).read_bytes()) == 9


def test_another_base_changes_nothing(path: str) -> None:
    assert not files.change(path, change_to(9))
    assert files.change(path, change_to(8))
    size = _journal(path).stat().st_size
    assert not files.change(path, change_to(8))
    assert not files.change(path, change_to(9, before="x"))
    assert not files.change(path + "-none", change_to(8))
    assert (_present(path), _journal(path).stat().st_size) == (8, size)


@pytest.mark.parametrize("wrong", [[(0, 5000)], [(0, 41), b"short"]])
def test_parts_which_make_no_text(path: str, wrong: list[object]) -> None:
    good = change_to(8)
    with pytest.raises(ValueError, match="bytes"):
        files.change(path, good._replace(parts=wrong))  # type: ignore[arg-type]
    assert not _journal(path).exists()


def test_a_whole_file_ends_the_journal(path: str) -> None:
    assert files.change(path, change_to(8))
    files.write_config_file(path, text_of(20))
    assert not _journal(path).exists()
    assert files.change(path, change_to(21))
    assert _present(path) == 21


def test_other_processes_write_too(path: str) -> None:
    """What this process remembers is used only while nobody else has changed anything."""
    assert files.change(path, change_to(8))
    content = _journal(path).read_bytes()
    assert files.change(path, change_to(9))
    longer = _journal(path).read_bytes()
    _journal(path).unlink()
    assert not files.change(path, change_to(10))
    fs.write_file(str(_journal(path)), content)
    assert not files.change(path, change_to(10))
    fs.write_file(str(_journal(path)), longer)
    assert files.change(path, change_to(10))
    assert _present(path) == 10


# -- odd journals ----------------------------------------------------------------------------------


def test_a_record_counts_when_it_is_complete(path: str) -> None:
    assert files.change(path, change_to(8))
    short = _journal(path).stat().st_size
    assert files.change(path, change_to(9))
    whole = _journal(path).read_bytes()
    for size in range(len(whole)):
        _journal(path).write_bytes(whole[:size])
        assert _present(path) == (7 if size < short else 8)
    for size in range(0, len(whole), 7):
        for rest in (b"\0" * 50, b"garbage\n", whole[:30]):
            _journal(path).write_bytes(whole[:size] + rest)
            wanted = 7 if size < short else 8
            assert _present(path) == wanted
            # The next change replaces what is left of the incomplete one.
            assert files.change(path, change_to(wanted + 1))
            assert _present(path) == wanted + 1
            assert files.fold(path, unlocked())
            assert serial_of(Path(path).read_bytes()) == wanted + 1
            files.write_config_file(path, text_of(7))


def test_any_damaged_byte_ends_the_journal(path: str, caplog: pytest.LogCaptureFixture) -> None:
    ends = [0]
    for serial in (8, 9, 10):
        assert files.change(path, change_to(serial))
        ends.append(_journal(path).stat().st_size)
    whole = _journal(path).read_bytes()
    for place in range(0, len(whole), 3):
        damaged = bytes([*whole[:place], whole[place] ^ 1, *whole[place + 1 :]])
        _journal(path).write_bytes(damaged)
        assert _present(path) == 7 + sum(end <= place for end in ends[1:])
    _journal(path).write_bytes(whole[: ends[1] + 40] + b"x" + whole[ends[1] + 41 :])
    with caplog.at_level(logging.INFO):
        assert files.fold(path, unlocked())
    assert f"is damaged after {ends[1]} bytes" in caplog.text
    assert serial_of(Path(path).read_bytes()) == 8
    assert not _journal(path).exists()
    # The changes behind the damage were acknowledged.
    (kept,) = files.set_aside_journals(path)
    assert Path(kept).read_bytes()[ends[1] + 41 :] == whole[ends[1] + 41 :]


def test_a_torn_journal_is_explained(path: str, caplog: pytest.LogCaptureFixture) -> None:
    assert files.change(path, change_to(8))
    with open(_journal(path), "ab") as stream:
        stream.write(b"GC1 0000")
    with caplog.at_level(logging.INFO):
        assert files.fold(path, unlocked())
    assert "ends with 8 bytes which were never acknowledged" in caplog.text
    assert _present(path) == 8


def _rename(path: str, text: bytes) -> None:
    fs.write_file(path, text)


def _in_place(path: str, text: bytes) -> None:
    with open(path, "r+b") as stream:
        stream.truncate()
        stream.write(text)


# What somebody may have made of state 7, while state 9 is in the journal: an edit, one of the same
# length, with a higher serial number, an older copy, a newer state of an older version.
OTHERS = (
    text_of(7).replace(b"aaa", b"bbbb"),
    text_of(7).replace(b"aaa", b"bbb"),
    text_of(7).replace(b'"serial_no":7', b'"serial_no":8').replace(b"aaa", b"bbb"),
    text_of(9).replace(b"aaa", b"bbb").replace(b'"m"', b'"n"'),
    text_of(5),
    text_of(30),
)


@pytest.mark.parametrize("write", [_rename, _in_place])
@pytest.mark.parametrize("text", OTHERS)
def test_a_file_which_somebody_else_has_written(
    path: str, text: bytes, write: Callable[[str, bytes], None]
) -> None:
    """Nobody guesses what the state is; the file and the acknowledged changes stay."""
    for serial in (8, 9):
        assert files.change(path, change_to(serial))
    journal = _journal(path).read_bytes()
    write(path, text)
    for use in (files.read, lambda name: files.fold(name, unlocked())):
        with pytest.raises(files.OtherBaseError, match="up to serial number 9") as caught:
            use(path)
        assert caught.value.filename == files.journal_of(path)
        assert "cfgshell --journal=show" in str(caught.value)
    for serial in (6, 8, 9, 10, 31):
        assert not files.change(path, change_to(serial))
    assert (Path(path).read_bytes(), _journal(path).read_bytes()) == (text, journal)
    # A whole file comes from a master who has everything; the journal is kept even then.
    files.write_config_file(path, text_of(40))
    assert _present(path) == 40
    assert not _journal(path).exists()
    (kept,) = files.set_aside_journals(path)
    assert Path(kept).read_bytes() == journal
    assert files.change(path, change_to(41))
    assert _present(path) == 41


@pytest.mark.parametrize("write", [_rename, _in_place])
def test_a_copy_of_the_same_file_is_the_same_file(
    path: str, write: Callable[[str, bytes], None]
) -> None:
    """A restored copy has other times and another inode; the checksum decides."""
    for serial in (8, 9):
        assert files.change(path, change_to(serial))
    write(path, text_of(7))
    os.chmod(path, 0o600)
    assert _present(path) == 9
    assert files.change(path, change_to(10))
    assert files.fold(path, unlocked())
    assert serial_of(Path(path).read_bytes()) == 10


def test_a_file_which_has_all_changes_already(path: str) -> None:
    """A copy of the directory, in which the journal was read before the file."""
    for serial in (8, 9):
        assert files.change(path, change_to(serial))
    journal = _journal(path).read_bytes()
    assert files.fold(path, unlocked())
    _journal(path).write_bytes(journal)
    assert _present(path) == 9
    assert files.change(path, change_to(10))
    _journal(path).write_bytes(journal)
    assert files.fold(path, unlocked())
    assert serial_of(Path(path).read_bytes()) == 9
    assert not _journal(path).exists() and files.set_aside_journals(path) == []


def test_a_file_which_is_edited_while_it_is_folded_in(path: str) -> None:
    assert files.change(path, change_to(8))
    edited = text_of(7).replace(b"aaa", b"bbb")
    assert not files.fold(path, unlocked(lambda: _in_place(path, edited)))
    assert Path(path).read_bytes() == edited
    with pytest.raises(files.OtherBaseError):
        files.read(path)


def test_a_journal_of_an_earlier_version(path: str) -> None:
    """It does not say to which file it belongs: its changes follow, or the file has them."""
    records = [encode(change_to(serial)) for serial in (8, 9)]
    for start, present in ((7, 9), (8, 9), (9, 9), (30, 30)):
        fs.write_file(path, text_of(start))
        _journal(path).write_bytes(b"".join(records))
        assert _present(path) == present
        assert files.fold(path, unlocked())
        assert serial_of(Path(path).read_bytes()) == present
    fs.write_file(path, text_of(5))
    _journal(path).write_bytes(b"".join(records))
    with pytest.raises(files.OtherBaseError, match="up to serial number 9"):
        files.read(path)


def test_only_some_journals_are_kept(path: str) -> None:
    for number in range(files.MOST_SET_ASIDE + 5):
        _journal(path).write_bytes(b"%d" % number)
        assert files.set_aside(path)
    assert files.set_aside(path) is None
    kept = {Path(name).read_bytes() for name in files.set_aside_journals(path)}
    assert kept == {b"%d" % number for number in range(5, files.MOST_SET_ASIDE + 5)}
    files.remove(path)
    assert os.listdir(os.path.dirname(path)) == []


def test_a_journal_alone_is_no_configuration(path: str) -> None:
    assert files.change(path, change_to(8))
    os.rename(path, f"{path}.mine")
    with pytest.raises(FileNotFoundError):
        files.read(path)
    assert not files.change(path, change_to(9))
    with pytest.raises(FileNotFoundError, match="config.data, is missing") as caught:
        files.fold(path, unlocked())
    assert caught.value.filename == files.journal_of(path)
    os.rename(f"{path}.mine", path)
    assert _present(path) == 8


@pytest.mark.parametrize("how", ["directory", "link"])
def test_a_journal_which_cannot_be_read_is_never_left_out(path: str, how: str) -> None:
    if how == "directory":
        os.mkdir(files.journal_of(path))
    else:
        os.symlink("config.data.journal", files.journal_of(path))
    with pytest.raises(OSError, match="config.data.journal") as caught:
        files.read(path)
    assert caught.value.filename == files.journal_of(path)
    with pytest.raises(OSError, match="config.data.journal"):
        files.change(path, change_to(8))


def test_a_journal_has_mode_and_owner_of_the_file(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "fchown", lambda _fd, uid, gid: given.append((uid, gid)))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(users, "same_owner", lambda name: (11, 12) if name == path else (1, 1))
    os.chmod(path, 0o600)
    assert files.change(path, change_to(8))
    assert _journal(path).stat().st_mode & 0o777 == 0o600
    assert given == [(11, 12)]


# -- a disk which refuses --------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["pwrite", "fdatasync"])
def test_a_refused_change_did_not_happen(
    path: str, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    assert files.change(path, change_to(8))
    before = _journal(path).read_bytes()

    def refuse(*_args: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, refuse)
        with pytest.raises(OSError, match="No space left.*config.data.journal"):
            files.change(path, change_to(9))
    assert _journal(path).read_bytes() == before
    assert files.change(path, change_to(9))
    assert _present(path) == 9


def test_a_write_which_ends_early_goes_on(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert files.change(path, change_to(8))
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real(fd, bytes(data)[:7], at))
    assert files.change(path, change_to(9))
    assert _present(path) == 9


def test_a_full_disk_while_folding_in(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert files.change(path, change_to(8))

    def refuse(*_args: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "copy_file_range", refuse)
        with pytest.raises(OSError, match="No space left"):
            files.fold(path, unlocked())
    assert sorted(os.listdir(os.path.dirname(path))) == ["config.data", "config.data.journal"]
    assert _present(path) == 8
    assert files.fold(path, unlocked())


# -- folding in beside others ----------------------------------------------------------------------


def test_changes_which_come_while_folding_in(path: str) -> None:
    assert files.change(path, change_to(8))

    def meanwhile() -> None:
        for serial in (9, 10):
            assert files.change(path, change_to(serial))

    assert files.fold(path, unlocked(meanwhile))
    assert serial_of(Path(path).read_bytes()) == 8
    assert _present(path) == 10
    assert files.change(path, change_to(11))
    assert files.fold(path, unlocked())
    assert serial_of(Path(path).read_bytes()) == 11
    assert not _journal(path).exists()


def test_a_whole_file_which_comes_while_folding_in(path: str) -> None:
    assert files.change(path, change_to(8))
    assert not files.fold(path, unlocked(lambda: files.write_config_file(path, text_of(40))))
    assert os.listdir(os.path.dirname(path)) == ["config.data"]
    assert _present(path) == 40


def test_a_demotion_which_comes_while_folding_in(path: str) -> None:
    assert files.change(path, change_to(8))
    assert not files.fold(path, unlocked(lambda: files.remove(path)))
    assert os.listdir(os.path.dirname(path)) == []


def test_a_refused_change_which_comes_while_folding_in(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record was seen, and then taken back: it must not get into the file."""
    assert files.change(path, change_to(8))
    good = _journal(path).read_bytes()
    assert files.change(path, change_to(9))

    def meanwhile() -> None:
        os.truncate(_journal(path), len(good))
        assert files.change(path, change_to(9, by="other"))

    assert not files.fold(path, unlocked(meanwhile))
    assert files.read(path) == text_of(9, "other")


@pytest.mark.parametrize("last", [False, True])
def test_folding_in_while_another_process_does_so(
    path: str, monkeypatch: pytest.MonkeyPatch, last: bool
) -> None:
    """What was there is in the file; what came meanwhile may stay in the journal."""
    assert files.change(path, change_to(8))
    real, serials, tries = files.fold, iter((9, 10)), iter((False, False))

    def fold(name: str, lock: Callable[[], AbstractContextManager[None]]) -> bool:
        if next(tries, None) is False:
            return False
        found = real(name, lock)
        for serial in serials:
            assert files.change(path, change_to(serial))
            break
        return found

    monkeypatch.setattr(files, "fold", fold)
    files.fold_now(path, unlocked(), timeout_s=60.0, last=last)
    assert serial_of(Path(path).read_bytes()) == (10 if last else 8)
    assert _present(path) == (10 if last else 9)
    assert _journal(path).exists() is not last


def test_a_journal_which_others_write_all_the_time(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert files.change(path, change_to(8))
    monkeypatch.setattr(files, "fold", lambda _path, _lock: False)
    with pytest.raises(OSError, match="other processes still write it") as caught:
        files.fold_now(path, unlocked(), timeout_s=0.0)
    assert caught.value.filename == files.journal_of(path)


def test_two_processes_do_not_fold_in_at_once(path: str) -> None:
    assert files.change(path, change_to(8))
    inner: list[bool] = []
    assert files.fold(path, unlocked(lambda: inner.append(files.fold(path, unlocked()))))
    assert inner == [False]


def test_a_reader_never_goes_back(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before and after the reading of the journal, anything may happen."""
    source = random.Random(5)
    real = files.read_journal
    present = 7

    def write_something() -> None:
        nonlocal present
        what = source.choice(("change", "change", "fold", "whole"))
        if what == "fold":
            files.fold(path, unlocked())
            return
        present += 1
        if what == "whole":
            files.write_config_file(path, text_of(present))
        else:
            assert files.change(path, change_to(present))

    def slow(name: str) -> bytes | None:
        monkeypatch.setattr(files, "read_journal", real)
        for _ in range(source.randrange(3)):
            write_something()
        found = real(name)
        for _ in range(source.randrange(4)):
            write_something()
        monkeypatch.setattr(files, "read_journal", slow)
        return found

    monkeypatch.setattr(files, "read_journal", slow)
    for _ in range(40):
        if present > 40:
            monkeypatch.setattr(files, "read_journal", real)
            files.write_config_file(path, text_of(7))
            present = 7
            monkeypatch.setattr(files, "read_journal", slow)
        before = present
        assert before <= _present(path) <= present
