"""The destinations of log lines: a file of each program, the terminal, syslog.

A log file has mode 0600 before its first byte; for its name see
:meth:`ganeti.platform.paths.Paths.log_file`. Only the first line of a record begins at the margin,
and control characters are escaped, so that a text from outside cannot look like another record. All
code uses the standard :mod:`logging`; only the main functions of daemons and commands call
:func:`setup`. To rotate logs, a program renames the file and sends SIGHUP to the daemon, which
calls :func:`reopen`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys

from ganeti import errors
from ganeti.utils import fs

SYSLOG_CHOICES = ("no", "yes", "only")
_SYSLOG_SOCKET = "/dev/log"


class ReopenableFile(logging.StreamHandler["_Stream"]):
    """A log file that can be opened again under the same name.

    :raises OSError: the file cannot be opened.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(_open(path))

    def reopen(self) -> None:
        """Open the name again and write to that file from now on.

        :raises OSError: the file cannot be opened; the old one stays in use.
        """
        fresh = _open(self.path)
        self.acquire()
        try:
            old, self.stream = self.stream, fresh
        finally:
            self.release()
        old.close()

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  as in the library
        """Write a line which the file does not take to standard error, as with a full disk.

        There it reaches the journal of systemd, or the mail of cron. It is lost when standard error
        takes nothing, either.
        """
        problem = sys.exc_info()[1]
        if not isinstance(problem, OSError):
            super().handleError(record)
            return
        with contextlib.suppress(OSError, ValueError):
            text = f"{self.format(record)} (not in {self.path}: {problem.strerror})\n"
            sys.stderr.write(text)
            sys.stderr.flush()

    def fileno(self) -> int:
        """Return the file descriptor, for a process that sends its error output to the log."""
        return self.stream.fileno()

    def close(self) -> None:
        self.stream.close()
        super().close()


class _Stream:
    """A text file which is only appended to, with one system call for each record."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def write(self, text: str) -> int:
        return os.write(self._fd, text.encode("utf-8", "backslashreplace"))

    def flush(self) -> None:
        """Do nothing; there is no buffer."""

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _open(path: str) -> _Stream:
    return _Stream(fs.open_or_create(path, os.O_WRONLY | os.O_APPEND))


_CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))} | {
    ord("\t"): "\t",
    ord("\n"): "\n    ",
}


class _Formatter(logging.Formatter):
    """Lines such as ``2026-01-31 12:00:00,123: ganeti-noded pid=77 INFO text``.

    :param stamp: begin with the time, and not in the form of syslog.
    :param threads: name the thread in each line.
    """

    def __init__(self, program: str, *, stamp: bool, threads: bool) -> None:
        # The text goes into a %-format, so a percent sign in a name must be doubled.
        name = program.replace("%", "%%")
        parts = [f"%(asctime)s: {name} pid=%(process)d" if stamp else f"{name}[%(process)d]:"]
        if threads:
            parts[0] += "/%(threadName)s"
        super().__init__(" ".join([*parts, "%(levelname)s", "%(message)s"]))

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        return text if text.isprintable() else text.translate(_CONTROL)


def setup(
    program: str,
    *,
    logfile: str | None = None,
    debug: int = 0,
    stderr: bool = False,
    syslog: str = "no",
    threads: bool = False,
) -> None:
    """Set up logging for this process; a second call replaces the first.

    :param program: its name, for the lines.
    :param logfile: file to append to; None for no file.
    :param debug: above 0 all lines are logged, else lines of level INFO and higher.
    :param stderr: log to standard error, too: warnings and errors only, unless ``debug`` is given
        or there is no other destination.
    :param syslog: ``no``, ``yes`` (in addition to the file) or ``only`` (instead of the file).
    :param threads: name the thread in each line.
    :raises ConfigurationError: the log file or syslog cannot be opened; logging is unchanged.
    """
    if syslog not in SYSLOG_CHOICES:
        raise errors.ProgrammerError(f"unknown way to use syslog: {syslog}")
    handlers: list[logging.Handler] = []
    level = logging.DEBUG if debug else logging.INFO
    formatter = _Formatter(program, stamp=True, threads=threads)
    if logfile is not None and syslog != "only":
        try:
            handlers.append(ReopenableFile(logfile))
        except OSError as err:
            raise errors.ConfigurationError(
                f"cannot open log file {logfile}: {err.strerror}"
            ) from err
        handlers[-1].setFormatter(formatter)
    if syslog != "no":
        from logging.handlers import SysLogHandler  # 0.4 MiB, which is seldom needed

        try:
            handlers.append(SysLogHandler(_SYSLOG_SOCKET, facility="daemon"))
        except OSError as err:
            for handler in handlers:
                handler.close()
            raise errors.ConfigurationError(
                f"cannot open syslog at {_SYSLOG_SOCKET}: {err.strerror}"
            ) from err
        handlers[-1].setFormatter(_Formatter(program, stamp=False, threads=threads))
    if stderr:
        terminal = logging.StreamHandler(sys.stderr)
        terminal.setFormatter(formatter)
        if handlers and not debug:
            terminal.setLevel(logging.WARNING)
        handlers.append(terminal)
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
        old.close()
    for handler in handlers or [logging.NullHandler()]:
        root.addHandler(handler)
    root.setLevel(level)


def reopen() -> None:
    """Open the log files again after they were renamed; one that cannot be opened stays in use."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, ReopenableFile):
            try:
                handler.reopen()
            except OSError as err:
                logging.error("cannot open log file %s again: %s", handler.path, err.strerror)


def log_fileno() -> int | None:
    """Return the file descriptor of the log file of this process, or None."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, ReopenableFile):
            return handler.fileno()
    return None
