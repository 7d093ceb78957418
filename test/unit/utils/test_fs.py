"""Files are replaced whole, or not at all."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from ganeti.utils import fs


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_open_or_create(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file which is there is opened without O_CREAT, which the kernel may refuse."""
    path = tmp_path / "file"
    seen: list[int] = []
    real = os.open

    def spy(name: str, flags: int, mode: int = 0o777) -> int:
        seen.append(flags)
        return real(name, flags, mode)

    monkeypatch.setattr(os, "open", spy)
    os.close(fs.open_or_create(str(path), os.O_WRONLY, 0o640))
    assert seen[-1] & os.O_CREAT and seen[-1] & os.O_EXCL
    assert path.stat().st_mode & 0o777 == 0o640
    seen.clear()
    os.close(fs.open_or_create(str(path), os.O_WRONLY))
    assert len(seen) == 1 and not seen[0] & os.O_CREAT
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(OSError, match="symbolic links"):
        fs.open_or_create(str(tmp_path / "link"), os.O_WRONLY)


def test_write_and_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    fs.write_file(str(path), "Größe", mode=0o640)
    assert fs.read_file(str(path)) == "Größe"
    assert _mode(path) == 0o640
    fs.write_file(str(path), b"\xff", mode=0o600)
    assert fs.read_bytes(str(path)) == b"\xff"
    assert _mode(path) == 0o600
    assert os.listdir(tmp_path) == ["file"]


def test_mode_does_not_depend_on_umask(tmp_path: Path) -> None:
    old = os.umask(0o077)
    try:
        fs.write_file(str(tmp_path / "file"), "", mode=0o644)
        fs.make_dirs(str(tmp_path / "a/b"), 0o750)
    finally:
        os.umask(old)
    assert _mode(tmp_path / "file") == 0o644
    assert _mode(tmp_path / "a") == 0o755
    assert _mode(tmp_path / "a/b") == 0o750


@pytest.mark.parametrize("broken", ["write", "fsync", "rename"])
def test_a_full_disk_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    path = tmp_path / "file"
    fs.write_file(str(path), "old")

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, broken, full)
    with pytest.raises(OSError, match="No space left") as caught:
        fs.write_file(str(path), "new")
    monkeypatch.undo()
    assert caught.value.filename == str(path)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, bytes(data[:3])))
    fs.write_file(str(tmp_path / "file"), "0123456789")
    assert (tmp_path / "file").read_text() == "0123456789"


def test_a_stale_temporary_file_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fs, "_serial", iter([7]))
    (tmp_path / f".file.{os.getpid()}.7.new").write_text("stale")
    fs.write_file(str(tmp_path / "file"), "new")
    assert os.listdir(tmp_path) == ["file"]


def test_order_of_system_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mode before the first byte; flush before rename; directory flushed last."""
    calls: list[str] = []
    for name in ("fchmod", "write", "fsync", "rename"):
        real = getattr(os, name)

        def spy(*args: object, name: str = name, real: object = real) -> object:
            calls.append(name)
            return real(*args)  # type: ignore[operator]

        monkeypatch.setattr(os, name, spy)
    fs.write_file(str(tmp_path / "file"), "x")
    assert calls == ["fchmod", "write", "fsync", "rename", "fsync"]
    calls.clear()
    fs.write_file(str(tmp_path / "file"), "x", sync=False)
    assert calls == ["fchmod", "write", "rename"]


def test_missing_directory(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        fs.write_file(str(tmp_path / "no/file"), "")


def test_make_dirs_over_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError):
        fs.make_dirs(str(tmp_path / "file"))
    with pytest.raises(NotADirectoryError):
        fs.make_dirs(str(tmp_path / "file/below"))


def test_remove_and_list(tmp_path: Path) -> None:
    for name in ("b", "a", ".hidden"):
        (tmp_path / name).write_text("")
    assert fs.list_visible(str(tmp_path)) == ["a", "b"]
    fs.remove_file(str(tmp_path / "a"))
    fs.remove_file(str(tmp_path / "a"))
    with pytest.raises(FileNotFoundError):
        fs.remove_file(str(tmp_path / "a"), missing_ok=False)


def test_a_file_in_pieces(tmp_path):
    pieces = [b"%d," % number for number in range(5000)]
    fs.write_file(str(tmp_path / "file"), [*pieces, b"", b"end"])
    assert (tmp_path / "file").read_bytes() == b"".join(pieces) + b"end"
    fs.write_file(str(tmp_path / "file"), [])
    assert (tmp_path / "file").read_bytes() == b""


def test_a_file_of_parts_of_its_old_self(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    path.chmod(0o604)
    fs.rewrite_file(str(path), [(5, 5), b"-", (0, 2), (0, 0), b""])
    assert path.read_bytes() == b"56789-01"
    assert path.stat().st_mode & 0o777 == 0o604
    for parts in ([(5, 5)], [(-1, 2)], [(9, 1)]):
        with pytest.raises(ValueError, match="are not in"):
            fs.rewrite_file(str(path), [b"new", *parts])
    assert path.read_bytes() == b"56789-01"
    assert os.listdir(tmp_path) == ["file"]


def test_replacing_a_large_file(tmp_path):
    path = str(tmp_path / "file")
    for letter in (b"a", b"b", b"c"):
        fs.write_file(path, letter * (2 << 20))
        with open(path, "rb") as stream:
            assert stream.read() == letter * (2 << 20)
    fs.rewrite_file(path, [(0, 1 << 20), b"d"])
    assert os.stat(path).st_size == (1 << 20) + 1
    assert os.listdir(tmp_path) == ["file"]
    os.chmod(path, 0)
    fs.write_file(path, b"e" * (2 << 20))
    assert os.stat(path).st_size == 2 << 20


def test_files_whose_writer_died(tmp_path: Path) -> None:
    for name in (".key.12.3.new", ".a.b.1.0.new", ".key.new", "key.1.2.new", ".key.1.x.new"):
        (tmp_path / name).touch()
    found = fs.unfinished_files(str(tmp_path))
    assert [os.path.basename(path) for path in found] == [".a.b.1.0.new", ".key.12.3.new"]
    assert fs.unfinished_files(str(tmp_path / "missing")) == []
