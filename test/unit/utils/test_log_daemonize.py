"""Logs that can be rotated, pid files, and how a daemon reports to who started it."""

from __future__ import annotations

import errno
import logging
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti import errors
from ganeti.http.access_log import AccessLog
from ganeti.utils import daemonize, log


@pytest.fixture(autouse=True)
def _keep_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    # Handlers of the test runner must not be closed by setup().
    root.handlers[:] = []
    yield
    for handler in root.handlers:
        handler.close()
    root.handlers[:] = handlers
    root.setLevel(level)


def test_log_file(tmp_path: Path) -> None:
    path = tmp_path / "node-daemon.log"
    log.setup("ganeti-noded", logfile=str(path))
    logging.info("größer %s", 1)
    logging.debug("not shown")
    line = path.read_text().rstrip("\n")
    assert line.endswith(f": ganeti-noded pid={os.getpid()} INFO größer 1")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_no_text_looks_like_another_record(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    log.setup("prog", logfile=str(path))
    logging.info("user %s", "eve\n2026-01-31 12:00:00,123: prog pid=1 INFO all is well\r\x1b[2J")
    try:
        raise ValueError("first\nsecond")
    except ValueError:
        logging.exception("failed")
    lines = path.read_text().split("\n")
    assert [line for line in lines if line[:1].isdigit()] == [lines[0], lines[2]]
    assert lines[1] == "    2026-01-31 12:00:00,123: prog pid=1 INFO all is well\\x0d\\x1b[2J"
    assert "ValueError: first" in path.read_text()


def test_what_a_full_disk_does_not_take_goes_to_standard_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.log"
    log.setup("prog", logfile=str(path))

    def write(_fd: int, _data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as full:
        full.setattr(os, "write", write)
        logging.error("web1 is not restarted")
        logging.error("wrong %d", "format")
    first, *others = capsys.readouterr().err.splitlines()
    assert first.endswith(f"ERROR web1 is not restarted (not in {path}: No space left on device)")
    assert "--- Logging error ---" in others  # a fault of the program is shown as before
    # Standard error of a daemon is the log itself.
    monkeypatch.setattr(sys, "stderr", (tmp_path / "closed").open("w"))
    sys.stderr.close()
    with monkeypatch.context() as full:
        full.setattr(os, "write", write)
        logging.error("lost")
    logging.info("again")
    assert path.read_text().endswith("INFO again\n")


def test_a_log_file_is_never_opened_through_a_link(tmp_path: Path) -> None:
    target = tmp_path / "shadow"
    target.write_text("secret")
    (tmp_path / "x.log").symlink_to(target)
    with pytest.raises(errors.ConfigurationError, match="cannot open log file"):
        log.setup("prog", logfile=str(tmp_path / "x.log"))
    with pytest.raises(errors.ConfigurationError, match="cannot open access log"):
        AccessLog(str(tmp_path / "x.log"))
    assert target.read_text() == "secret"


def test_rotation(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    log.setup("x", logfile=str(path), debug=1)
    logging.info("one")
    path.rename(tmp_path / "x.log.1")
    logging.info("still one")
    log.reopen()
    logging.info("two")
    assert "one" in (tmp_path / "x.log.1").read_text()
    assert path.read_text().endswith("INFO two\n")


def test_rotation_into_a_missing_directory_goes_on(tmp_path: Path) -> None:
    directory = tmp_path / "d"
    directory.mkdir()
    log.setup("x", logfile=str(directory / "x.log"))
    directory.rename(tmp_path / "e")
    log.reopen()
    logging.info("kept")
    text = (tmp_path / "e/x.log").read_text()
    assert "cannot open log file" in text and text.endswith("kept\n")


def test_log_file_that_cannot_be_opened(tmp_path: Path) -> None:
    log.setup("x", logfile=str(tmp_path / "good.log"))
    with pytest.raises(errors.ConfigurationError, match="cannot open log file .*/no/x.log"):
        log.setup("x", logfile=str(tmp_path / "no/x.log"))
    logging.info("unchanged")
    assert (tmp_path / "good.log").read_text().endswith("unchanged\n")


def test_program_name_with_percent(tmp_path: Path) -> None:
    log.setup("100%", logfile=str(tmp_path / "x.log"))
    logging.info("x")
    assert "100% pid=" in (tmp_path / "x.log").read_text()


def test_pid_file(tmp_path: Path) -> None:
    path = str(tmp_path / "x.pid")
    assert daemonize.read_pid(path) is None
    (tmp_path / "x.pid").write_text("1\n")
    assert daemonize.read_pid(path) is None  # a stale number proves nothing
    one = daemonize.PidFile(path)
    one.acquire()
    assert daemonize.read_pid(path) == os.getpid()
    two = daemonize.PidFile(path)
    with pytest.raises(errors.PidFileLockError, match=f"running as process {os.getpid()}"):
        two.acquire()
    two.close()
    one.release()
    assert not os.path.exists(path)


@pytest.mark.parametrize(
    ("message", "code", "fragment"),
    [
        (b"ok", 0, ""),
        (b"11 not the master", 11, "not the master"),
        (b"", 1, "ended while it started"),
        (b"garbage", 1, "ended while it started"),
    ],
)
def test_report_of_a_daemon(message: bytes, code: int, fragment: str) -> None:
    assert daemonize.parse_report(message, "x")[0] == code
    assert fragment in daemonize.parse_report(message, "x")[1]
