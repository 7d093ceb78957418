"""Becoming a daemon, and telling the one who started us how it went.

:func:`daemonize` forks twice. The starting process stays and waits on a pipe until the daemon says
*ready* (exit code 0) or *failed* (the text on standard error, the daemon's exit code), or dies
without a word. So ``daemon-util start`` returns only when the daemon really serves.

:class:`PidFile` is locked as long as the daemon lives; the number inside alone proves nothing.
"""

from __future__ import annotations

import contextlib
import os
import sys

from ganeti import errors
from ganeti.utils import filelock

_READY = b"ok"


class Ready:
    """The daemon's end of the pipe to the process that started it; says one thing, once."""

    def __init__(self, fd: int | None) -> None:
        self._fd = fd

    def ready(self) -> None:
        """The daemon serves; the starter may leave with success."""
        self._say(_READY)

    def failed(self, text: str, exit_code: int = 1) -> None:
        """The daemon gives up; the starter shows the text and leaves with this code."""
        self._say(f"{exit_code} {text}".encode("utf-8", "backslashreplace"))

    def _say(self, message: bytes) -> None:
        if self._fd is None:
            return
        fd, self._fd = self._fd, None
        try:
            while message:
                message = message[os.write(fd, message) :]
        except BrokenPipeError:
            # The starter was interrupted; the daemon's own log has the same.
            pass
        finally:
            os.close(fd)


def parse_report(message: bytes, program: str) -> tuple[int, str]:
    """What the daemon said: exit code for the starter and the text to show."""
    if message == _READY:
        return 0, ""
    code, _, text = message.decode("utf-8", "replace").partition(" ")
    if code.isdecimal() and text:
        return int(code), text
    return 1, f"{program} died while starting. Its log file may say why."


def daemonize(program: str) -> Ready:
    """Go into the background; only the daemon returns from here.

    Called before any thread exists. The daemon is in a session of its own, in ``/``, with umask
    022 and standard input from ``/dev/null``; its output still goes to the starter's until
    :func:`close_output`.

    :raises OSError: the system has no process left.
    """
    receive, send = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        os.close(send)
        _wait_and_leave(receive, child, program)
    os.close(receive)
    os.setsid()
    if os.fork():
        os._exit(0)
    os.chdir("/")
    os.umask(0o022)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    if null > 0:
        os.close(null)
    return Ready(send)


def _wait_and_leave(receive: int, child: int, program: str) -> None:
    """Wait for the daemon's word and end this process with it."""
    message = b""
    try:
        while chunk := os.read(receive, 65536):
            message += chunk
        os.waitpid(child, 0)
    except KeyboardInterrupt:
        os.write(2, f"{program}: interrupted, it goes on starting\n".encode())
        os._exit(1)
    code, text = parse_report(message, program)
    if text:
        os.write(2, f"{program}: {text}\n".encode("utf-8", "backslashreplace"))
    os._exit(code)


def close_output(log_fd: int | None) -> None:
    """Point standard output and error at the log file, else nowhere.

    What the interpreter itself prints when it crashes then ends up in the log.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    target = os.open(os.devnull, os.O_RDWR) if log_fd is None else log_fd
    os.dup2(target, 1)
    os.dup2(target, 2)
    if log_fd is None:
        os.close(target)


class PidFile:
    """A locked file with our process id.

    :raises OSError: the file cannot be opened.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._lock = filelock.FileLock(path)

    def acquire(self) -> None:
        """Lock the file and write our pid into it.

        :raises PidFileLockError: another process has it.
        """
        try:
            # Above zero, because looking at a pid file locks it for a moment.
            self._lock.acquire(timeout_s=0.5)
        except errors.LockError as err:
            other = _read_number(self.path)
            owner = f"process {other}" if other else "another process"
            raise errors.PidFileLockError(
                f"already running as {owner} (pid file {self.path})"
            ) from err
        fd = self._lock.fileno()
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Remove the file and give up the lock; for the process that acquired it."""
        # After privileges were dropped the directory may not be ours; an unlocked file says enough.
        with contextlib.suppress(FileNotFoundError, PermissionError):
            os.unlink(self.path)
        self._lock.close()

    def close(self) -> None:
        """Close our share of the lock without removing the file; for a forked child."""
        self._lock.close()


def _read_number(path: str) -> int | None:
    try:
        with open(path, encoding="ascii", errors="replace") as stream:
            text = stream.read(32).strip()
    except FileNotFoundError:
        return None
    return int(text) if text.isdecimal() else None


def read_pid(path: str) -> int | None:
    """The pid of the daemon that holds a pid file now, or None when none does.

    :raises OSError: the file exists but cannot be read.
    """
    return _read_number(path) if filelock.is_locked(path) else None
