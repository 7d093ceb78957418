"""The one way out to other programs."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ganeti import errors
from ganeti.utils import process, retry

programs = pytest.mark.programs


def test_forbidden_in_unit_tests() -> None:
    with pytest.raises(errors.ProgrammerError, match="pytest.mark.programs"):
        process.run(["true"], timeout_s=10)


def test_forbid_and_permit_nest() -> None:
    with process.permit():
        with process.forbid("not here"), pytest.raises(errors.ProgrammerError, match="not here"):
            process.run(["true"], timeout_s=10)
        assert process.run(["true"], timeout_s=10).exit_code == 0


@programs
def test_output_and_exit_code() -> None:
    done = process.run(
        ["sh", "-c", "cat; echo bad >&2; exit 3"], timeout_s=60, stdin="in\n", check=False
    )
    assert (done.exit_code, done.stdout, done.stderr, done.signal) == (3, "in\n", "bad\n", None)
    assert done.failed and done.output == "in\nbad\n"
    assert done.fail_reason == "exited with exit code 3"
    assert (done.problem, done.complaint) == ("in\nbad", "bad")


@programs
def test_failure_carries_facts() -> None:
    with pytest.raises(errors.CommandError) as caught:
        process.run(["sh", "-c", "echo why >&2; exit 4"], timeout_s=60)
    assert caught.value.exit_code == 4
    assert "why" in str(caught.value)
    assert caught.value.problem == "why"


@programs
def test_signal() -> None:
    done = process.run(["sh", "-c", "kill -9 $$"], timeout_s=60, check=False)
    assert (done.exit_code, done.signal, done.fail_reason) == (None, 9, "was ended by signal 9")
    assert (done.problem, done.complaint) == ("was ended by signal 9", "")


@programs
def test_missing_program() -> None:
    with pytest.raises(errors.CommandError, match="cannot be started: No such file") as caught:
        process.run(["no-such-program"], timeout_s=60)
    assert caught.value.problem == str(caught.value)


@programs
def test_time_limit_ends_children_too(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    script = f"sleep 1000 & echo $! >{pid_file}; echo begun; wait"
    with pytest.raises(errors.CommandTimeout) as caught:
        process.run(["sh", "-c", script], timeout_s=2)
    assert "begun" in str(caught.value)
    pid = int(pid_file.read_text())

    def gone() -> None:
        if process.is_alive(pid):
            raise retry.Again

    retry.until(gone, timeout_s=60)


@programs
def test_a_program_which_said_its_last_words_is_ended() -> None:
    script = "cat; echo out; echo 'fault; the end' >&2; exec sleep 1000"
    done = process.run(
        ["sh", "-c", script], stdin="in\n", timeout_s=600, check=False, last_words="the end"
    )
    assert done.signal == 15
    assert (done.stdout, done.stderr) == ("in\nout\n", "fault; the end\n")
    # One which ends by itself, or says nothing, is treated as without them.
    assert process.run(["echo", "x"], timeout_s=60, last_words="the end").stdout == "x\n"
    with pytest.raises(errors.CommandTimeout):
        process.run(["sleep", "1000"], timeout_s=0.1, last_words="the end")


@programs
def test_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANG", "de_DE.UTF-8")
    monkeypatch.setenv("LC_TIME", "de_DE.UTF-8")
    monkeypatch.setenv("KEPT", "1")
    out = process.run(["env"], timeout_s=60, env={"EXTRA": "2"}).stdout.splitlines()
    assert {"LC_ALL=C", "KEPT=1", "EXTRA=2"} <= set(out)
    assert not [line for line in out if line.startswith(("LANG=", "LC_TIME="))]
    clean = process.run(["env"], timeout_s=60, reset_env=True, env={"A": "b"}).stdout
    assert sorted(clean.split()) == ["A=b", "LC_ALL=C", f"PATH={process.DEFAULT_PATH}"]


@programs
def test_stdin_is_empty_unless_given() -> None:
    assert process.run(["cat"], timeout_s=60).stdout == ""


@programs
def test_secrets_are_passed_but_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    secret = process.Secret("hunter2")
    assert repr(secret) == "<secret>"
    with caplog.at_level(logging.DEBUG):
        done = process.run(["echo", secret], timeout_s=60)
    assert done.stdout == "hunter2\n"
    assert "hunter2" not in caplog.text and "<secret>" in caplog.text
    assert "hunter2" not in repr(done.argv)
    with pytest.raises(errors.CommandError) as caught:
        process.run(["false", secret], timeout_s=60)
    assert "hunter2" not in str(caught.value) + repr(caught.value.args)


@programs
def test_undecodable_output() -> None:
    assert process.run(["printf", r"\377"], timeout_s=60).stdout == "\ufffd"


def test_is_alive() -> None:
    assert process.is_alive(os.getpid())
    assert not process.is_alive(0)
    assert not process.is_alive(2**22 + 1)
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert not process.is_alive(child)  # a zombie
    os.waitpid(child, 0)


@programs
def test_a_process_lives_as_long_as_its_last_thread() -> None:
    """Its first thread is a zombie then; the others still have its files open."""
    code = (
        "import ctypes, platform, threading, sys; "
        "threading.Thread(target=lambda: sys.stdin.read(), daemon=True).start(); "
        "ctypes.CDLL(None).syscall({'x86_64': 60}.get(platform.machine(), 93), 0)"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
    retry.until(lambda: _until_zombie(child.pid), timeout_s=60, delay=0.01)
    assert process.is_alive(child.pid)
    child.kill()
    child.wait()
    assert not process.is_alive(child.pid)


def _until_zombie(pid: int) -> None:
    with open(f"/proc/{pid}/stat") as stream:
        if stream.read().rpartition(")")[2].split()[0] != "Z":
            raise retry.Again


@programs
def test_a_program_on_our_terminal() -> None:
    """It stays in our session, where it may ask for a password; a time limit still ends it."""
    show = ["python3", "-c", "import os; print(os.getsid(0))"]
    assert process.run(show, timeout_s=60, terminal=True).stdout.strip() == str(os.getsid(0))
    assert process.run(show, timeout_s=60).stdout.strip() != str(os.getsid(0))
    with pytest.raises(errors.CommandTimeout):
        process.run(["sleep", "600"], timeout_s=0.1, terminal=True)
