"""Running other programs: the one way out.

:func:`run` takes a list of words, never a shell line; runs it in the C locale with standard input
closed (or fed), in a session of its own so that a time limit ends its children too; writes one line
to the log before and one after. Words wrapped in :class:`Secret` are hidden there.

Building the words and reading the output are pure functions elsewhere; tests use those, and
:func:`forbid` makes any test fail that would start a program unasked.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import signal as signals
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ganeti import errors

DEFAULT_PATH = "/sbin:/bin:/usr/sbin:/usr/bin"

# How long a program that ignores SIGTERM may take to leave before it is killed.
_GRACE_S = 3.0

_forbidden: list[str] = []


class Secret(str):
    """A word of a command line that is passed on but never shown.

    >>> Secret("hunter2")
    <secret>
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return "<secret>"


class Completed(NamedTuple):
    """What a program left behind."""

    argv: tuple[str, ...]
    exit_code: int | None  # None when a signal ended it
    stdout: str
    stderr: str
    signal: int | None

    @property
    def failed(self) -> bool:
        """Whether it ended in any way but exit code 0."""
        return self.exit_code != 0

    @property
    def output(self) -> str:
        """What it printed: first its output, then its errors."""
        return self.stdout + self.stderr

    @property
    def fail_reason(self) -> str:
        """``exited with exit code 1`` or ``was ended by signal 9``; empty after success."""
        if self.signal is not None:
            return f"was ended by signal {self.signal}"
        return f"exited with exit code {self.exit_code}" if self.exit_code else ""


def show(argv: Sequence[str]) -> str:
    """A command line for people, secrets hidden."""
    return " ".join(repr(word) if isinstance(word, Secret) else shlex.quote(word) for word in argv)


def _hide(argv: Sequence[str]) -> list[str]:
    return [repr(word) if isinstance(word, Secret) else word for word in argv]


class _Ban(contextlib.AbstractContextManager[None]):
    def __init__(self, reason: str) -> None:
        self._reason = reason
        _forbidden.append(reason)

    def __exit__(self, *_: object) -> None:
        _forbidden.remove(self._reason)


def forbid(
    reason: str = "programs may not be started here",
) -> contextlib.AbstractContextManager[None]:
    """Make :func:`run` fail from now on; in a ``with`` statement, until the end of the block.

    The master daemon calls it at its start, and the unit tests around each test.

    :param reason: beginning of the message of the error that :func:`run` raises.
    """
    return _Ban(reason)


@contextlib.contextmanager
def permit() -> Iterator[None]:
    """Lift every :func:`forbid` inside the block; for tests that run a real program on purpose."""
    kept = list(_forbidden)
    _forbidden.clear()
    try:
        yield
    finally:
        _forbidden[:] = kept


def environment(env: Mapping[str, str] | None = None, *, reset: bool = False) -> dict[str, str]:
    """The environment a program gets: C locale, a search path, and ``env`` on top.

    :param reset: start from nothing instead of from our own environment.
    """
    result: dict[str, str] = {}
    if not reset:
        # Messages that we parse must not depend on the administrator's language.
        skip = ("LANGUAGE", "LANG")
        result = {
            key: value
            for key, value in os.environ.items()
            if key not in skip and not key.startswith("LC_")
        }
    result.setdefault("PATH", DEFAULT_PATH)
    result["LC_ALL"] = "C"
    if env:
        result.update(env)
    return result


def run(
    argv: Sequence[str],
    *,
    timeout_s: float | None,
    env: Mapping[str, str] | None = None,
    stdin: str | bytes | None = None,
    check: bool = True,
    cwd: str | None = None,
    reset_env: bool = False,
    exact_env: bool = False,
    output_fd: int | None = None,
    log: bool = True,
    terminal: bool = False,
) -> Completed:
    """Run a program to its end and return what it printed.

    :param argv: program and arguments; the program is looked up in the ``PATH`` it is given.
    :param timeout_s: after this the program and its children are ended; None only where the
        caller's own limit applies.
    :param stdin: fed to the program; None means an empty input.
    :param check: raise when the exit code is not 0.
    :param exact_env: ``env`` is all the program gets, not even the C locale is added; for scripts
        whose environment is a published interface.
    :param output_fd: an open file that takes output and errors; they are not returned then.
    :param log: False only for what is called very often.
    :param terminal: the program stays on our terminal, where it may ask for a password; a time
        limit then ends it alone, not its children.
    :returns: output decoded as UTF-8; undecodable bytes are replaced.
    :raises CommandError: it could not be started, or ``check`` and it failed.
    :raises CommandTimeout: it took longer than ``timeout_s``; it is gone.
    """
    if _forbidden:
        raise errors.ProgrammerError(f"{_forbidden[-1]}: {show(argv)}")
    words = [str.__str__(word) for word in argv]
    feed = stdin.encode() if isinstance(stdin, str) else stdin
    if log:
        logging.info("running %s", show(argv))
    started = time.monotonic()
    full_env = dict(env or {}) if exact_env else environment(env, reset=reset_env)
    child = _start(argv, words, full_env, cwd, feed is not None, output_fd, terminal)
    try:
        raw_out, raw_err = child.communicate(feed, timeout=timeout_s)
    except subprocess.TimeoutExpired as err:
        raw_out, raw_err = _end(child, terminal)
        text = (raw_out + raw_err).decode("utf-8", "replace")
        if log:
            logging.warning("ended %s after %s s", show(argv), timeout_s)
        raise errors.CommandTimeout(_hide(argv), timeout_s or 0.0, text) from err
    except BaseException:
        _end(child, terminal)
        raise
    code = child.returncode
    result = Completed(
        tuple(_hide(argv)),
        code if code >= 0 else None,
        (raw_out or b"").decode("utf-8", "replace"),
        (raw_err or b"").decode("utf-8", "replace"),
        -code if code < 0 else None,
    )
    if log:
        took_s = time.monotonic() - started
        logging.info(
            "%s %s (%.2f s)", argv[0], result.fail_reason or "exited with exit code 0", took_s
        )
        if result.failed:
            logging.debug("output of %s: %s", argv[0], result.output)
    if check and result.failed:
        raise errors.CommandError(_hide(argv), code, result.output)
    return result


def _start(
    argv: Sequence[str],
    words: list[str],
    env: dict[str, str],
    cwd: str | None,
    fed: bool,
    output_fd: int | None,
    terminal: bool = False,
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            words,
            stdin=subprocess.PIPE if fed else subprocess.DEVNULL,
            stdout=subprocess.PIPE if output_fd is None else output_fd,
            stderr=subprocess.PIPE if output_fd is None else output_fd,
            env=env,
            cwd=cwd,
            start_new_session=not terminal,
        )
    except OSError as err:
        reason = err.strerror or str(err)
        raise errors.CommandError(_hide(argv), None, reason=f"cannot be started: {reason}") from err


def _end(child: subprocess.Popen[bytes], terminal: bool) -> tuple[bytes, bytes]:
    """End a program with all its children; returns what it had printed."""
    for number in (signals.SIGTERM, signals.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            (os.kill if terminal else os.killpg)(child.pid, number)
        try:
            raw_out, raw_err = child.communicate(timeout=_GRACE_S)
            return raw_out or b"", raw_err or b""
        except subprocess.TimeoutExpired:
            continue
    # Killed, but a grandchild in another session still holds the pipe: the output is lost with it.
    for stream in (child.stdin, child.stdout, child.stderr):
        if stream is not None:
            stream.close()
    child.wait()
    return b"", b""


def is_alive(pid: int) -> bool:
    """Whether a process exists and has a thread that has not ended.

    A zombie has ended, but not one whose other threads go on: they hold its files, and one that
    waits for a disk may do so after the process was killed.
    """
    state, *rest = _stat(pid) or (b"",)
    # Field 20 of proc(5) is the number of threads.
    return state not in (b"", b"X") and (state != b"Z" or int(rest[16]) > 1)


def is_paused(pid: int) -> bool:
    """Whether a process was stopped by a signal, so that it does nothing until it is continued."""
    return _stat(pid)[:1] == [b"T"]


def _stat(pid: int) -> list[bytes]:
    """The fields of a process from its state on, see proc(5); empty when there is none."""
    if pid <= 0:
        return []
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:
            stat = stream.read()
    except (FileNotFoundError, ProcessLookupError):
        return []
    # The state follows the command, which is in parentheses and may contain any character.
    return stat.rpartition(b")")[2].split()
