"""A machine which lacks something for a moment ends nothing."""

from __future__ import annotations

import errno
import logging
import os
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from ganeti import errors
from ganeti.utils import fs, process, shortage


def lacking(number: int) -> OSError:
    return OSError(number, os.strerror(number))


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shortage, "_PAUSES", 0.0)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (lacking(errno.EMFILE), "Too many open files"),
        (lacking(errno.EAGAIN), "Resource temporarily unavailable"),
        (lacking(errno.ENOSPC), "No space left on device"),
        (MemoryError(), "out of memory"),
        (RuntimeError("can't start new thread"), "no more threads"),
        (lacking(errno.ENOENT), ""),
        (lacking(errno.EACCES), ""),
        (RuntimeError("another one"), ""),
        (errors.OpExecError("no"), ""),
        (None, ""),
    ],
)
def test_what_a_machine_lacks(error: BaseException | None, text: str) -> None:
    found = shortage.described(error)
    assert text in found and bool(found) == bool(text)


def test_the_interpreter_says_that_there_is_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The words are those of this interpreter."""

    def refuse(*_args: Any, **_kwargs: Any) -> None:
        raise RuntimeError("can't start new thread")

    name = "_start_joinable_thread" if hasattr(threading, "_start_joinable_thread") else None
    monkeypatch.setattr(threading, name or "_start_new_thread", refuse)
    done: list[int] = []
    assert shortage.start_thread(done.append, 1, name="x") is None
    assert shortage.start_thread_after(0.0, lambda: done.append(2), name="y") is None
    assert done == []


def test_a_thread_and_a_timer() -> None:
    done = threading.Semaphore(0)
    assert shortage.start_thread(done.release, name="x") is not None
    assert shortage.start_thread_after(0.0, done.release, name="y") is not None
    assert done.acquire(timeout=60) and done.acquire(timeout=60)


def test_it_is_outlasted_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    left: list[Exception] = [lacking(errno.EAGAIN), MemoryError(), lacking(errno.EMFILE)]

    def work() -> str:
        if left:
            raise left.pop()
        return "done"

    with caplog.at_level(logging.WARNING):
        assert shortage.outlast(work, timeout_s=60, what="doing it") == "done"
    assert caplog.messages == ["doing it: [Errno 24] Too many open files; trying again for 60 s"]


def test_it_is_raised_after_the_time_and_others_at_once() -> None:
    tried = []

    def work() -> None:
        tried.append(1)
        raise lacking(errno.ENOSPC if len(tried) < 3 else errno.EIO)

    with pytest.raises(OSError, match="No space left"):
        shortage.outlast(work, timeout_s=0.0, what="doing it")
    tried[:] = [1]
    with pytest.raises(OSError, match="Input/output"):
        shortage.outlast(work, timeout_s=60.0, what="doing it")
    assert len(tried) == 3


@pytest.mark.programs
def test_a_program_is_started_when_the_system_makes_processes_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start = subprocess.Popen
    left = [lacking(errno.EAGAIN), lacking(errno.ENOMEM)]

    def refuse(*args: Any, **kwargs: Any) -> Any:
        if left:
            raise left.pop()
        return start(*args, **kwargs)

    monkeypatch.setattr(subprocess, "Popen", refuse)
    assert process.run(["echo", "yes"], timeout_s=60).stdout == "yes\n"
    monkeypatch.setattr(process, "SHORTAGE_S", 0.0)
    left.append(lacking(errno.EAGAIN))
    with pytest.raises(errors.CommandError, match="cannot be started: Resource temporarily"):
        process.run(["echo", "yes"], timeout_s=60)


def test_a_file_is_replaced_without_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread would only close the old file."""
    path = tmp_path / "file"
    path.write_text("old")
    monkeypatch.setattr(fs, "_LARGE_BYTES", 1)
    closed: list[int] = []
    monkeypatch.setattr(shortage, "start_thread", lambda *args, name: closed.append(args[1]))
    fs.write_file(str(path), "new")
    assert path.read_text() == "new"
    (fd,) = closed
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(fd)


@pytest.mark.parametrize(
    "error", [lacking(errno.EMFILE), MemoryError(), RuntimeError("can't start new thread")]
)
def test_a_loop_gets_what_is_lacking_as_an_error(error: Exception) -> None:
    with pytest.raises(shortage.Lacking, match="this machine lacks something") as caught:
        with shortage.as_error():
            raise error
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("error", [lacking(errno.EIO), RuntimeError("x"), errors.LockError("y")])
def test_another_error_passes_the_loop_unchanged(error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        with shortage.as_error():
            raise error
    assert caught.value is error
