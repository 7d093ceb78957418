"""commands.log: who ran which command."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from ganeti.cli import command_log, main, parser
from ganeti.cli.command import Argument, Command, Option, Program, Values
from ganeti.platform import paths

SECRET = Option(
    "--os-parameters-secret", dest="osparams_secret", kind="keyprivateval", help="secret"
)
COMMAND = Command(
    "add", lambda values, arguments: 0, [Argument("unknown", 0, None)], [SECRET], "Add something"
)
PROGRAM = Program("gnt-test", "Test", [COMMAND])


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GANETI_ROOTDIR", str(tmp_path))
    path = Path(paths.current().log_commands_file)
    path.parent.mkdir(parents=True)
    return path


def line(*words: str, **environ: str) -> str:
    values, _ = parser.parse(COMMAND, words)
    return command_log.line("gnt-test", COMMAND, words, values, environ, now=0.25)


def test_a_line_has_the_published_form(log: Path) -> None:
    assert main.run(PROGRAM, ["add", "web 1"], {}) == 0
    text = log.read_text(encoding="utf-8")
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}: gnt-test add pid=\d+ INFO run with arguments"
        r" ''web 1'' by \S+\n",
        text,
    )
    assert log.stat().st_mode & 0o777 == 0o640


def test_no_arguments() -> None:
    assert "INFO run with no arguments by" in line()


def test_secrets_are_hidden() -> None:
    text = line("--os-parameters-secret", "key=geheim,other=geheim2", "x")
    assert "geheim" not in text
    assert "key=<hidden>" in text
    assert "geheim" not in line("--os-parameters-secret=key=geheim")


def test_an_argument_cannot_forge_a_line() -> None:
    text = line("a\n2026-01-01 00:00:00,000: gnt-cluster destroy", "\x1b[2J")
    assert text.count("\n") == 1
    assert "\x1b" not in text


def test_a_name_which_is_no_text(log: Path) -> None:
    assert main.run(PROGRAM, ["add", "\udcff"], {}) == 0
    assert log.read_bytes().count(b"\n") == 1


def test_sudo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert line(SUDO_USER="alice").endswith("by alice (sudo)\n")


def test_a_user_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 4294967000)
    assert line().endswith("by uid 4294967000\n")


def test_a_full_disk_stops_no_command(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(command_log.os, "write", full)
    assert main.run(PROGRAM, ["add"], {}) == 0


def test_a_missing_directory_stops_no_command(log: Path) -> None:
    log.parent.rmdir()
    assert main.run(PROGRAM, ["add"], {}) == 0


def test_a_link_is_not_followed(log: Path, tmp_path: Path) -> None:
    log.symlink_to(tmp_path / "target")
    assert main.run(PROGRAM, ["add"], {}) == 0
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize("words", [["add", "--help"], ["add", "--wrong"], ["--help"]])
def test_what_runs_nothing_is_not_logged(words: list[str], log: Path) -> None:
    main.run(PROGRAM, words, {})
    assert not log.exists()


def test_values_of_other_kinds() -> None:
    values = Values(osparams_secret=None)
    assert command_log.line("gnt-test", COMMAND, ["x"], values, {}, now=0).count("x") >= 1
