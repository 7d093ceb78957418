"""A candidate makes the new configuration of its old one, or says that it cannot."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from ganeti import errors
from ganeti.backend import caller
from ganeti.backend.cluster import config_file
from ganeti.configfile import files
from ganeti.platform import master_epoch
from ganeti.platform.master_epoch import Epoch
from ganeti.platform.paths import Paths
from ganeti.utils import fs

OLD = b'{"a":1,"serial_no":7}\n'
END = '"serial_no":7}\n'


@pytest.fixture
def path(here: Paths) -> Path:
    fs.write_file(here.cluster_conf_file, OLD, mode=0o640)
    return Path(here.cluster_conf_file)


def test_a_new_file_of_the_old_one(path: Path) -> None:
    before = path.stat().st_ino
    parts: list[str | list[int]] = [[0, 5], '2,"serial_no":8}\n']
    assert config_file.rewrite(len(OLD), END, parts, 22) is True
    assert path.read_bytes() == b'{"a":2,"serial_no":8}\n'
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert path.stat().st_ino != before
    assert sorted(os.listdir(path.parent)) == ["config.data", "queue"]


@pytest.mark.parametrize(
    ("size", "end"),
    [(len(OLD) + 1, END), (len(OLD), '"serial_no":6}\n'), (5, END), (len(OLD), "x" * 100)],
)
def test_another_base_is_refused(path: Path, size: int, end: str) -> None:
    assert config_file.rewrite(size, end, ["x"], 1) is False
    assert path.read_bytes() == OLD


def test_nothing_to_start_from(here: Paths) -> None:
    assert config_file.rewrite(5, "x", ["x"], 1) is False
    assert not os.path.exists(here.cluster_conf_file)


@pytest.mark.parametrize(
    ("parts", "size"),
    [(["abc"], 4), ([[0, 5]], 4), ([[0, 100]], 100), ([[0]], 0), ([[0, 1, 2]], 1), ([[23, 1]], 1)],
)
def test_parts_which_make_no_file(path: Path, parts: list[str | list[int]], size: int) -> None:
    with pytest.raises(errors.ConfigurationError):
        config_file.rewrite(len(OLD), END, parts, size)
    assert path.read_bytes() == OLD
    assert len(os.listdir(path.parent)) == 2


def test_a_full_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_args: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "copy_file_range", full)
    with pytest.raises(OSError, match="No space left"):
        config_file.rewrite(len(OLD), END, [[0, 5]], 5)
    assert path.read_bytes() == OLD
    assert len(os.listdir(path.parent)) == 2


def test_a_file_system_which_cannot_copy(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unable(*_args: object) -> int:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "copy_file_range", unable)
    assert config_file.rewrite(len(OLD), END, [[0, 5], "x", [20, 2]], 8) is True
    assert path.read_bytes() == b'{"a":x}\n'


def test_a_former_master_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    former, present = Epoch(1, "former"), Epoch(2, "present")
    master_epoch.claim(present)
    monkeypatch.setattr(caller, "_epoch", former)
    parts: list[str | list[int]] = [[0, 5], '2,"serial_no":8}\n']
    with pytest.raises(master_epoch.StaleEpochError):
        config_file.rewrite(len(OLD), END, parts, 22)
    assert path.read_bytes() == OLD
    monkeypatch.setattr(caller, "_epoch", present)
    assert config_file.rewrite(len(OLD), END, parts, 22) is True
    assert master_epoch.read().config == present


# -- the journal of a large configuration ----------------------------------------------------------


@pytest.fixture
def journal(path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every file has a journal; the next state is in it already."""
    monkeypatch.setattr(files, "JOURNAL_FROM_BYTES", 1)
    assert config_file.rewrite(len(OLD), END, [[0, 5], '2,"serial_no":8}\n'], 22)
    return Path(files.journal_of(str(path)))


NEW = b'{"a":2,"serial_no":8}\n'


def test_a_large_file_stays_and_its_journal_has_the_change(path: Path, journal: Path) -> None:
    assert (path.read_bytes(), journal.exists()) == (OLD, True)
    assert config_file.read() == NEW.decode()
    assert config_file.serial_of_file(str(path)) == 8
    assert config_file.rewrite(len(OLD), END, ["x"], 1) is False
    config_file.fold()
    assert (path.read_bytes(), journal.exists()) == (NEW, False)


def test_a_former_master_appends_nothing(
    path: Path, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    master_epoch.claim(Epoch(2, "present"))
    monkeypatch.setattr(caller, "_epoch", Epoch(1, "former"))
    before = journal.read_bytes()
    with pytest.raises(master_epoch.StaleEpochError):
        config_file.rewrite(len(NEW), '"serial_no":8}\n', [[0, 5], '3,"serial_no":9}\n'], 22)
    assert journal.read_bytes() == before


def test_a_journal_which_cannot_be_folded_in_stays(
    path: Path, journal: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_args: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "copy_file_range", full)
    config_file.fold()
    assert f"the changes in {journal} cannot be written into the file yet" in caplog.text
    assert "No space left" in caplog.text
    assert config_file.read() == NEW.decode()


def test_a_journal_which_cannot_be_read_is_an_error(path: Path, journal: Path) -> None:
    journal.unlink()
    journal.mkdir()
    with pytest.raises(errors.ConfigurationError, match=r"cannot read .*config.data.journal"):
        config_file.read()
    with pytest.raises(errors.ConfigurationError, match=r"cannot read .*config.data.journal"):
        config_file.serial_of_file(str(path))


def test_when_it_is_folded_in(path: Path, journal: Path) -> None:
    now = [100.0]
    timer = config_file.FoldingTimer(lambda: now[0])
    assert not timer.is_due()
    for _ in range(14):
        # Changes which go on: at rest it would be due.
        now[0] += 1.9
        with journal.open("ab") as stream:
            stream.write(b"x")
        assert not timer.is_due()
    now[0] += 2.0
    assert timer.is_due()
    # The attempt came to nothing, and the next one is not at once.
    now[0] += 2.0
    assert not timer.is_due()
    now[0] += 30.0
    assert timer.is_due()
    fs.write_file(str(journal), b"a new one")
    assert not timer.is_due()
    now[0] += 2.0
    assert timer.is_due()
    journal.unlink()
    assert not timer.is_due()


def test_changes_without_an_end_are_folded_in(path: Path, journal: Path) -> None:
    now = [100.0]
    timer = config_file.FoldingTimer(lambda: now[0])
    found = []
    for _ in range(31):
        with journal.open("ab") as stream:
            stream.write(b"x")
        found.append(timer.is_due())
        now[0] += 1.0
    assert found == [False] * 30 + [True]
    fs.write_file(str(journal), b"a new one" + b"x" * (1 << 20))
    assert timer.is_due()
