"""The log of a guest's console: its size, its parts, and whose it is."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti import errors
from ganeti.hypervisor import console_log
from ganeti.platform import paths

UUID, OTHER = "11111111-1111", "22222222-2222"
WEB = "web1.example.com"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[paths.Paths]:
    monkeypatch.setattr(console_log, "MAX_BYTES", 100)
    found = paths.Paths(str(tmp_path))
    Path(found.log_kvm_dir).mkdir(parents=True)
    with paths.override(found):
        yield found


def link(here: paths.Paths, name: str = WEB) -> Path:
    return Path(f"{here.log_kvm_dir}/{name}.console.log")


def prepare(here: paths.Paths, name: str = WEB, uuid: str = UUID) -> None:
    console_log.prepare(name, uuid, str(link(here, name)))


def write(text: str, uuid: str = UUID) -> None:
    with open(console_log.path_of(uuid), "a") as stream:
        stream.write(text)


def text(lines: int = 1000, position: str = "", uuid: str = UUID) -> str:
    piece = console_log.read(uuid, lines, position)
    assert piece is not None
    return piece.text


def test_only_the_daemon_can_read_it_and_the_name_leads_to_it(here: paths.Paths) -> None:
    before = os.umask(0)
    try:
        prepare(here)
    finally:
        os.umask(before)
    write("hello\n")
    prepare(here)  # the next start appends
    write("again\n")
    assert link(here).read_text() == "hello\nagain\n"
    assert stat.S_IMODE(os.stat(link(here)).st_mode) == 0o600


def test_the_next_instance_with_the_name_has_a_log_of_its_own(here: paths.Paths) -> None:
    prepare(here)
    write("secret\n")
    prepare(here, uuid=OTHER)
    assert link(here).read_text() == "" and text(uuid=OTHER) == ""
    assert text() == "secret\n"  # of the first one, which may have been renamed


def test_a_file_of_an_earlier_version_gives_way(here: paths.Paths) -> None:
    link(here).write_text("old")
    prepare(here)
    assert link(here).is_symlink()


def test_it_does_not_write_through_a_link(here: paths.Paths, tmp_path: Path) -> None:
    prepare(here)
    os.remove(console_log.path_of(UUID))
    os.symlink(tmp_path / "victim", console_log.path_of(UUID))
    with pytest.raises(errors.HypervisorError, match="cannot prepare the console log of instance"):
        prepare(here)
    assert not (tmp_path / "victim").exists()


def test_rotation_limits_the_size_while_the_guest_writes(here: paths.Paths) -> None:
    prepare(here)
    with open(console_log.path_of(UUID), "a") as guest:  # it stays open, as in QEMU
        for number in range(50):
            guest.write(f"line {number:03}\n")
            guest.flush()
            if console_log.is_overgrown():
                console_log.rotate()
            sizes = [
                os.path.getsize(path)
                for path in (console_log.path_of(UUID), f"{console_log.path_of(UUID)}.1")
                if os.path.exists(path)
            ]
            assert sum(sizes) <= 2 * console_log.MAX_BYTES + 9
    whole = text()
    assert whole.endswith("line 049\n")
    lines = [int(line.split()[1]) for line in whole.splitlines()]
    assert lines == list(range(lines[0], 50)) and len(lines) >= 10
    assert stat.S_IMODE(os.stat(f"{console_log.path_of(UUID)}.1").st_mode) == 0o600


def test_a_log_which_grew_without_a_daemon_keeps_its_end(here: paths.Paths) -> None:
    prepare(here)
    write("x" * 10_000 + "end\n")
    console_log.rotate()
    assert os.path.getsize(console_log.path_of(UUID)) == 0
    assert os.path.getsize(f"{console_log.path_of(UUID)}.1") == 100
    assert text(lines=1).endswith("end\n")


def test_a_full_disk_empties_the_log_and_leaves_no_file(
    here: paths.Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(here)
    write("x" * 200)

    def full(fd: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    console_log.rotate()
    monkeypatch.undo()
    with paths.override(here):
        assert os.path.getsize(console_log.path_of(UUID)) == 0
        assert os.listdir(os.path.dirname(console_log.path_of(UUID))) == [f"{UUID}.log"]


@pytest.mark.parametrize(
    ("content", "lines", "wanted"),
    [
        ("a\nb\nc\n", 2, "b\nc\n"),
        ("a\nb\nlogin: ", 2, "b\nlogin: "),
        ("a\nb\n", 0, ""),
        ("", 5, ""),
        ("a\n\n\n", 2, "\n\n"),
    ],
)
def test_last_lines(here: paths.Paths, content: str, lines: int, wanted: str) -> None:
    prepare(here)
    write(content)
    assert text(lines) == wanted


def test_a_position_continues_where_the_part_before_ended(here: paths.Paths) -> None:
    prepare(here)
    write("one\n")
    first = console_log.read(UUID, 0, "")
    assert first is not None and first.text == ""
    write("two\n")
    second = console_log.read(UUID, 0, first.position)
    assert second is not None and (second.text, second.lost) == ("two\n", False)
    again = console_log.read(UUID, 0, second.position)
    assert again == ("", second.position, False)


def test_a_position_survives_a_rotation(here: paths.Paths) -> None:
    prepare(here)
    write("one\n")
    first = console_log.read(UUID, 0, "")
    assert first is not None
    write("y" * 96 + "\n")
    console_log.rotate()
    write("new\n")
    second = console_log.read(UUID, 0, first.position)
    assert second is not None and second.text == "y" * 96 + "\nnew\n" and not second.lost


def test_what_is_not_kept_any_more_is_said(here: paths.Paths) -> None:
    prepare(here)
    write("one\n")
    first = console_log.read(UUID, 0, "")
    assert first is not None
    os.truncate(console_log.path_of(UUID), 0)
    second = console_log.read(UUID, 0, first.position)
    assert second is not None and second.lost
    third = console_log.read(UUID, 0, "9.9:3")
    assert third is not None and third.lost


def test_a_character_is_not_divided_between_two_parts(here: paths.Paths) -> None:
    prepare(here)
    with open(console_log.path_of(UUID), "ab", buffering=0) as guest:
        guest.write(b"a\xc3")
        first = console_log.read(UUID, 5, "")
        assert first is not None and first.text == "a"
        guest.write(b"\xa9\xff")
        second = console_log.read(UUID, 5, first.position)
    assert second is not None and second.text == "\u00e9\ufffd"


def test_a_part_has_a_limit(here: paths.Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console_log, "READ_MAX_BYTES", 10)
    prepare(here)
    write("0123456789abcdef")
    assert text() == "6789abcdef"
    first = console_log.read(UUID, 0, "0:0")
    assert first is not None and first.text == "0123456789"
    assert text(0, first.position) == "abcdef"


@pytest.mark.parametrize(
    "position", ["x", ":5", "0:", "0:-1", "0:1e3", "0:" + "9" * 40, "0:\u0663"]
)
def test_a_wrong_position_is_refused(here: paths.Paths, position: str) -> None:
    prepare(here)
    with pytest.raises(errors.HypervisorError, match="is not a position in a console log"):
        console_log.read(UUID, 0, position)


@pytest.mark.parametrize("uuid", ["", "../../etc/passwd", ".hidden"])
def test_a_wrong_uuid_is_refused(here: paths.Paths, uuid: str) -> None:
    with pytest.raises(errors.HypervisorError, match="is not the UUID"):
        console_log.read(uuid, 0, "")


def test_an_instance_which_never_ran_has_none(here: paths.Paths) -> None:
    assert console_log.read(UUID, 5, "") is None
    console_log.remove(WEB, UUID)
    assert not console_log.is_overgrown()


def test_removal(here: paths.Paths) -> None:
    prepare(here)
    write("x" * 200)
    console_log.rotate()
    console_log.remove(WEB, UUID)
    assert os.listdir(here.log_kvm_dir) == ["console"]
    assert os.listdir(f"{here.log_kvm_dir}/console") == []
    prepare(here, uuid=OTHER)
    console_log.remove(WEB, UUID)  # the name belongs to another instance now
    assert link(here).exists()


def test_unused(here: paths.Paths) -> None:
    assert console_log.unused([WEB]) == []
    for name, uuid in ((WEB, UUID), ("db1", OTHER)):
        prepare(here, name, uuid)
        write("x" * 200, uuid)
    console_log.rotate()
    unused = [os.path.basename(path) for path in console_log.unused([WEB, "gone"])]
    assert sorted(unused) == [f"{OTHER}.log", f"{OTHER}.log.1"]
