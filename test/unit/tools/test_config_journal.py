"""``cfgshell --journal`` and copies: what an administrator does by hand while a journal exists."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ganeti import errors
from ganeti.config.api import load
from ganeti.config.members import read_members
from ganeti.configfile import by_hand, files
from ganeti.tools import cfgshell
from ganeti.utils import filelock

from ..configfile.samples import change_to, path, serial_of, text_of, unlocked

__all__ = ["path"]

EDITED = text_of(7).replace(b"aaa", b"bbb")
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(path: str, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run cfgshell on the file; exit code and output."""

    def call(*words: str) -> tuple[int, str, str]:
        code = cfgshell.main([*words, path])
        return code, *capsys.readouterr()

    return call


@pytest.fixture
def edited(path: str) -> str:
    """States 8 and 9 are in the journal of a killed master, and somebody has edited state 7."""
    for serial in (8, 9):
        assert files.change(path, change_to(serial))
    shutil.copy(path, f"{path}~")
    Path(path).write_bytes(EDITED)
    return path


def _beside(path: str) -> set[str]:
    return {name.removeprefix("config.data") for name in os.listdir(os.path.dirname(path))}


def test_nothing_to_decide(path: str, run: Run) -> None:
    assert run("--journal=show")[0] == 0
    for action in ("set-aside", "apply"):
        code, _out, err = run("--write", f"--journal={action}")
        assert code == 1 and err.startswith("cfgshell: ")
    assert files.change(path, change_to(8))
    code, out, _err = run("--journal=show")
    assert code == 0
    assert "8: " in out and "lacks 1 change." in out and "daemon-util fold-journal" in out
    code, _out, err = run("--write", "--journal=set-aside")
    assert code == 1 and "Nothing has to be decided" in err
    assert serial_of(files.read(path)) == 8


def test_the_message_names_the_ways_out(edited: str, run: Run) -> None:
    before = _beside(edited)
    code, out, _err = run("--journal=show")
    assert code == 0
    assert "2 changes of another text" in out and "(serial number 7)" in out
    assert "8: " in out and '"serial_no":9' in out
    assert "gnt-cluster master-failover" in out
    assert f"cfgshell --write --journal=apply --base={edited}~ {edited}\n" in out
    assert f"cfgshell --write --journal=set-aside {edited}\n" in out
    assert _beside(edited) == before


def test_every_program_refuses_and_names_the_command(edited: str, run: Run) -> None:
    code, out, err = run("-c", "ls")
    assert (code, out) == (1, "")
    assert f"cannot read {edited}.journal: its acknowledged changes" in err
    assert "cfgshell --journal=show" in err


def test_go_on_with_the_edited_file(edited: str, run: Run) -> None:
    code, out, _err = run("--write", "--journal=set-aside")
    assert code == 0 and f"kept as {edited}.journal.set-aside-1" in out
    assert files.read(edited) == EDITED
    assert _beside(edited) == {"", "~", ".journal.set-aside-1"}
    code, out, _err = run("--journal=show")
    assert code == 0 and "was set aside earlier" in out
    assert files.change(edited, change_to(8)._replace(parts=[text_of(8)]))


@pytest.mark.parametrize("words", [["--base={}~"], []])
def test_go_back_to_the_changes(edited: str, run: Run, words: list[str]) -> None:
    code, out, _err = run("--write", "--journal=apply", *(one.format(edited) for one in words))
    assert code == 0 and f"kept as {edited}.replaced" in out
    assert serial_of(files.read(edited)) == serial_of(Path(edited).read_bytes()) == 9
    assert Path(f"{edited}.replaced").read_bytes() == EDITED
    assert _beside(edited) == {"", "~", ".replaced", ".journal.set-aside-1"}


def test_a_wrong_copy_changes_nothing(edited: str, run: Run) -> None:
    Path(f"{edited}.other").write_bytes(text_of(6))
    before = {name: Path(edited + name).read_bytes() for name in _beside(edited)}
    code, _out, err = run("--write", "--journal=apply", f"--base={edited}.other")
    assert code == 1 and "belong to another text" in err
    code, _out, err = run("--write", "--journal=apply", f"--base={edited}.none")
    assert code == 1 and f"{edited}.none: No such file" in err
    os.unlink(f"{edited}~")
    del before["~"]
    code, _out, err = run("--write", "--journal=apply")
    assert code == 1 and "Name one with --base" in err
    assert {name: Path(edited + name).read_bytes() for name in _beside(edited)} == before


def test_changes_need_an_option_and_a_stopped_master(edited: str, run: Run) -> None:
    code, _out, err = run("--journal=set-aside")
    assert code == 1 and "Add --write" in err
    queue = Path(edited).parent / "queue"
    queue.mkdir()
    with filelock.FileLock(str(queue / "lock")) as lock:
        lock.acquire()
        for action in ("set-aside", "apply"):
            code, _out, err = run("--write", f"--journal={action}")
            assert code == 1 and "a master daemon uses the configuration" in err
    assert files.read_journal(edited)


def test_the_file_was_moved_away(path: str, run: Run) -> None:
    assert files.change(path, change_to(8))
    os.rename(path, f"{path}.mine")
    with pytest.raises(errors.ConfigurationError, match="Put it back; 'cfgshell --journal=show'"):
        read_members(path)
    with pytest.raises(errors.ConfigurationError, match="Put it back; 'cfgshell --journal=show'"):
        load(path)
    code, out, _err = run("--journal=show")
    assert code == 0 and "is missing" in out and f"--base={path}.mine" in out
    code, _out, err = run("--write", "--journal=set-aside")
    assert code == 1 and "is missing" in err
    assert run("--write", "--journal=apply")[0] == 0
    assert serial_of(Path(path).read_bytes()) == 8


# -- copies and backups ----------------------------------------------------------------------------


def test_a_whole_copy_while_a_master_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "JOURNAL_FROM_BYTES", 1)
    data = Path(__file__).parents[2] / "data" / "cluster_config"
    text = sorted(data.glob("cluster_config_*.json"))[-1].read_bytes()
    here, copy = str(tmp_path / "config.data"), tmp_path / "copy"
    files.write_config_file(here, text)
    name = json.loads(text)["cluster"]["cluster_name"].encode()
    new = text.replace(b'"%s"' % name, b'"other"')
    assert files.change(here, files.Change(len(text), text[-40:], [new], len(new)))
    assert cfgshell.main([here, "-c", f"copy {copy}"]) == 0
    assert copy.read_bytes() == files.read(here) == new != Path(here).read_bytes()
    assert copy.stat().st_mode & 0o777 == 0o600
    assert cfgshell.main([here, "-c", f"copy {copy}"]) == 1


def test_copies_of_the_directory_at_any_moment(path: str, tmp_path: Path) -> None:
    """Journal and file are copied at different moments. A copy is a state, or it is refused."""
    moments: list[tuple[bytes, bytes | None, int]] = []

    def note(serial: int) -> None:
        moments.append((Path(path).read_bytes(), files.read_journal(path), serial))

    serial = 7
    note(serial)
    for _ in range(3):
        for _ in range(3):
            serial += 1
            assert files.change(path, change_to(serial))
            note(serial)
        assert files.fold(path, unlocked())
        note(serial)
    refused = whole = 0
    for place, (file, _journal, _reached) in enumerate(moments):
        for other, (_file, journal, journaled) in enumerate(moments):
            directory = tmp_path / f"{place}-{other}"
            directory.mkdir()
            copy = directory / "config.data"
            copy.write_bytes(file)
            if journal is not None:
                Path(files.journal_of(str(copy))).write_bytes(journal)
            try:
                found = serial_of(files.read(str(copy)))
            except files.OtherBaseError:
                refused += 1
                assert serial_of(file) != journaled
                by_hand.look(str(copy))
                continue
            whole += 1
            # Nothing which one of the two files has is left out.
            assert found == max(serial_of(file), journaled if journal is not None else 0)
    assert refused > 10 and whole > 50
