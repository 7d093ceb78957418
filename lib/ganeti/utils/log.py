"""Where log lines go.

One file a daemon (the published names, see :meth:`ganeti.platform.paths.Paths.log_file`), mode 0600
before the first byte; a terminal when the daemon stays in the foreground; syslog when asked. Code
everywhere uses the standard :mod:`logging`; only daemons and commands call :func:`setup`.

Rotation is by signal: a tool renames the file, the daemon gets SIGHUP and calls :func:`reopen`.
"""

from __future__ import annotations

import logging
import logging.handlers
import os
import sys

from ganeti import errors

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
        """Go on in a new file of the same name; keeps the old one when that fails.

        :raises OSError: the new one cannot be opened.
        """
        fresh = _open(self.path)
        self.acquire()
        try:
            old, self.stream = self.stream, fresh
        finally:
            self.release()
        old.close()

    def fileno(self) -> int:
        """The open file, for a process that sends its error output there too."""
        return self.stream.fileno()

    def close(self) -> None:
        self.stream.close()
        super().close()


class _Stream:
    """An append-only text file whose writes are one system call a record."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def write(self, text: str) -> int:
        return os.write(self._fd, text.encode("utf-8", "backslashreplace"))

    def flush(self) -> None:
        """Nothing is buffered."""

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _open(path: str) -> _Stream:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    return _Stream(os.open(path, flags, 0o600))


class _Formatter(logging.Formatter):
    """``2026-01-31 12:00:00,123: ganeti-noded pid=77 INFO text``; with the thread when asked."""

    def __init__(self, program: str, *, stamp: bool, threads: bool) -> None:
        # The text goes into a %-format, so a percent sign in a name must be doubled.
        name = program.replace("%", "%%")
        parts = [f"%(asctime)s: {name} pid=%(process)d" if stamp else f"{name}[%(process)d]:"]
        if threads:
            parts[0] += "/%(threadName)s"
        super().__init__(" ".join([*parts, "%(levelname)s", "%(message)s"]))


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

    :param logfile: appended to; None for no file.
    :param debug: above 0 everything is logged, else from INFO on.
    :param stderr: to standard error as well; without ``debug`` only warnings and worse, unless
        there is no other place.
    :param syslog: ``no``, ``yes`` (as well) or ``only`` (instead of the file).
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
        try:
            handlers.append(logging.handlers.SysLogHandler(_SYSLOG_SOCKET, facility="daemon"))
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
    """Open the log files again after they were renamed; what cannot be opened goes on as before."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, ReopenableFile):
            try:
                handler.reopen()
            except OSError as err:
                logging.error("cannot open log file %s again: %s", handler.path, err.strerror)


def log_fileno() -> int | None:
    """The open log file of this process, or None."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, ReopenableFile):
            return handler.fileno()
    return None
