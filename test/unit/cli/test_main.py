"""The entry point: everything around a command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from ganeti import FULL_VERSION, __version__, errors
from ganeti.cli import jobs, main
from ganeti.cli import options as opt
from ganeti.cli.command import Argument, Command, Program, Values


class Recorder:
    """A program with one command that notes how it was called, or raises."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error
        self.values: Values | None = None
        self.arguments: list[str] = []
        self.program = Program(
            "gnt-test",
            "For tests.",
            [
                Command("list", self.run, [Argument("instance")], [opt.FORCE], "List"),
                Command("other", self.run, [Argument("host", 1, 1)], [], "Other"),
            ],
            aliases={"ls": "list"},
            env_commands=["list"],
        )

    def run(self, values: Values, arguments: list[str]) -> int:
        self.values, self.arguments = values, arguments
        if self.error is not None:
            raise self.error
        return 14

    def __call__(self, *words: str, environ: Mapping[str, str] | None = None) -> int:
        return main.run(self.program, list(words), environ or {})


def test_runs_the_command() -> None:
    recorder = Recorder()
    assert recorder("list", "-f", "web1") == 14
    assert recorder.arguments == ["web1"]
    assert recorder.values is not None
    assert recorder.values.force
    assert (recorder.values.program, recorder.values.command) == ("gnt-test", "list")


def test_an_alias_is_the_command() -> None:
    recorder = Recorder()
    assert recorder("ls") == 14
    assert recorder.values is not None
    assert recorder.values.command == "list"


@pytest.mark.parametrize("word", ["--help", "-h"])
def test_help(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert Recorder()(word) == 0
    assert "gnt-test <command>" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "part"),
    [(["help"], "Commands"), (["help", "list"], "gnt-test list")],
)
def test_the_word_help(words: Sequence[str], part: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert Recorder()(*words) == 0
    assert part in capsys.readouterr().out


def test_help_of_an_unknown_command_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert Recorder()("help", "lisst") == 1
    assert "unknown command 'lisst' of gnt-test. Did you mean 'list'?" in capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert Recorder()("--version") == 0
    assert capsys.readouterr().out == f"gnt-test (ganeti {FULL_VERSION}) {__version__}\n"


def test_help_of_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    recorder = Recorder()
    assert recorder("other", "--help") == 0
    assert "gnt-test other <host>" in capsys.readouterr().out
    assert recorder.values is None


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ([], ""),
        (["lst"], "unknown command 'lst' of gnt-test. Did you mean 'list'"),
        (["zzz"], "unknown command 'zzz' of gnt-test. 'gnt-test --help' lists the commands"),
        (["-x"], "unknown command '-x'"),
    ],
)
def test_no_or_unknown_command(
    words: Sequence[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert Recorder()(*words) == 1
    captured = capsys.readouterr()
    # A mistake gets its reason and not the whole list, which would push it off the screen.
    assert ("Usage" in captured.out) == (not words)
    assert hint in captured.err
    assert len(captured.err.splitlines()) == (1 if words else 0)


def test_wrong_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert Recorder()("list", "--forse") == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "gnt-test: error: no such option: --forse. Did you mean '--force'?" in captured.err
    assert "gnt-test list [<options>] [<instance>...]" in captured.err


def test_wrong_number_of_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    assert Recorder()("other") == 1
    assert "Error: Command other expects 1 argument(s)" in capsys.readouterr().err


def test_default_arguments_from_the_environment() -> None:
    recorder = Recorder()
    recorder("list", "web2", environ={"GNT_TEST_LIST": "--force --reason='old habit'"})
    assert recorder.values is not None
    assert (recorder.values.force, recorder.values.reason) == (True, "old habit")
    assert recorder.arguments == ["web2"]


def test_environment_of_another_command_is_not_read() -> None:
    recorder = Recorder()
    assert recorder("other", "x", environ={"GNT_TEST_OTHER": "--nosuch"}) == 14


def test_environment_with_open_quotes(capsys: pytest.CaptureFixture[str]) -> None:
    assert Recorder()("list", environ={"GNT_TEST_LIST": "'open"}) == 2
    assert "environment variable GNT_TEST_LIST" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (errors.OpPrereqError("x", errors.ECODE_STATE), 1, "error type: wrong_state"),
        (errors.ConfigurationError("torn"), 2, "torn"),
        (errors.JobSubmittedException(17), 0, "JobID: 17\n"),
        (jobs.WaitInterrupted([5]), 1, "job 5 continues. Watch it with 'gnt-job watch 5'"),
        (jobs.WaitInterrupted([5, 6]), 1, "jobs 5 6 continue"),
        (
            jobs.SubmissionInterrupted(),
            1,
            "may have been accepted. Look for them with 'gnt-job list'",
        ),
        (KeyboardInterrupt(), 1, "Interrupted; the command has not submitted any job"),
        (RuntimeError("a bug"), 1, "Unhandled error (RuntimeError): a bug"),
    ],
)
def test_every_error_ends_here(
    error: BaseException, code: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert Recorder(error)("list") == code
    captured = capsys.readouterr()
    assert text in captured.err
    assert captured.out == ""
    assert "Traceback" not in captured.err


def test_debug_shows_where_an_error_came_from(capsys: pytest.CaptureFixture[str]) -> None:
    assert Recorder(RuntimeError("a bug"))("list", "-d") == 1
    assert "Traceback" in capsys.readouterr().err


def test_streams_that_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What would go there is not wanted; everything else goes on."""
    monkeypatch.setattr("sys.stdout", None)
    monkeypatch.setattr("sys.stderr", None)
    assert main.run(Recorder().program, ["--help"], {}) == 0
    assert main.run(Recorder(errors.OpExecError("it broke")).program, ["list"], {}) == 1
