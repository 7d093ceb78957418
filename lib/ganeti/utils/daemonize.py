"""Going into the background, and reporting the result of the start to the starting process.

:func:`daemonize` forks twice. The starting process stays and waits on a pipe until the daemon
reports *ready* (exit code 0) or *failed* (a text for standard error, and an exit code), or ends
without a report. So ``daemon-util start`` returns only when the daemon serves.

:class:`PidFile` is locked as long as the daemon lives; the number in it alone proves nothing.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys

from ganeti import errors
from ganeti.utils import filelock

_READY = b"ok"


class Ready:
    """The daemon's end of the pipe to the starting process. Only the first report is sent.

    :param fd: the end of the pipe; None when there is no starting process.
    """

    def __init__(self, fd: int | None) -> None:
        self._fd = fd

    def ready(self) -> None:
        """Report that the daemon serves; the starting process exits with 0."""
        self._report(_READY)

    def failed(self, text: str, exit_code: int = 1) -> None:
        """Report a failure; the starting process prints the text and exits with the code."""
        self._report(f"{exit_code} {text}".encode("utf-8", "backslashreplace"))

    def close(self) -> None:
        """Close the pipe in a process which is not the daemon; no report is sent."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _report(self, message: bytes) -> None:
        if self._fd is None:
            return
        fd, self._fd = self._fd, None
        try:
            while message:
                message = message[os.write(fd, message) :]
        except BrokenPipeError:
            # The starting process was interrupted; the log of the daemon has the same text.
            pass
        finally:
            os.close(fd)


_EXIT_CODE = re.compile(r"[0-9]{1,3}")


def parse_report(message: bytes, program: str) -> tuple[int, str]:
    """Read a report of the daemon: the exit code for the starting process, and a text to print.

    :param message: the bytes from the pipe; empty when the daemon has sent no report.
    """
    if message == _READY:
        return 0, ""
    code, _, text = message.decode("utf-8", "replace").partition(" ")
    if _EXIT_CODE.fullmatch(code) and text:
        return int(code), text
    return 1, f"{program} ended while it started. Its log file may have the reason."


def daemonize(program: str) -> Ready:
    """Go into the background; only the daemon returns from this function.

    It is called before any thread exists. The daemon has a session of its own, the directory ``/``,
    umask 022 and standard input from ``/dev/null``; it shares the output of the starting process
    until :func:`close_output`.

    :param program: name of the daemon, for messages.
    :raises OSError: the system cannot create a process.
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
    """Wait for the report of the daemon, and end this process with its exit code."""
    message = b""
    try:
        while chunk := os.read(receive, 65536):
            message += chunk
        os.waitpid(child, 0)
    except KeyboardInterrupt:
        os.write(2, f"{program}: interrupted, the daemon goes on starting\n".encode())
        os._exit(1)
    code, text = parse_report(message, program)
    if text:
        os.write(2, f"{program}: {text}\n".encode("utf-8", "backslashreplace"))
    os._exit(code)


def close_output(log_fd: int | None) -> None:
    """Send standard output and error to the log file; the text of a crash then ends up there.

    :param log_fd: the open log file; None sends the output to ``/dev/null``.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    target = os.open(os.devnull, os.O_RDWR) if log_fd is None else log_fd
    os.dup2(target, 1)
    os.dup2(target, 2)
    if log_fd is None:
        os.close(target)


class PidFile:
    """A locked file with the number of this process.

    :raises OSError: the file cannot be opened.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._lock = filelock.FileLock(path)

    def acquire(self) -> None:
        """Lock the file and write the number of this process into it.

        :raises PidFileLockError: another process has locked it.
        """
        try:
            # Not without a wait, because is_locked() locks the file for a moment.
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
        """Remove the file and release the lock; for the process that acquired it."""
        # A user with fewer rights may not remove it; an unlocked file counts as no file.
        with contextlib.suppress(FileNotFoundError, PermissionError):
            os.unlink(self.path)
        self._lock.close()

    def close(self) -> None:
        """Close the file of a forked child, without releasing the lock of the parent."""
        self._lock.close()


def _read_number(path: str) -> int | None:
    try:
        with open(path, encoding="ascii", errors="replace") as stream:
            text = stream.read(32).strip()
    except FileNotFoundError:
        return None
    return int(text) if text.isdecimal() else None


def read_pid(path: str) -> int | None:
    """Return the number of the process which has locked a pid file; None when no process has.

    :raises OSError: the file exists but cannot be read.
    """
    return _read_number(path) if filelock.is_locked(path) else None
