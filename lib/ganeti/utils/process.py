"""Running other programs.

All programs which end before we go on are started by :func:`run`. It takes a list of words, never a
line for a shell. The program runs in the C locale, with an empty or given standard input, and in a
session of its own, so that a time limit ends its children, too. One line is logged before and one
after it; words of class :class:`Secret` are hidden in them.

Functions in other modules build the commands and read their output; tests use these without running
a program. :func:`forbid` makes :func:`run` fail: in the master daemon, and in unit tests which do
not announce that they run programs.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import shlex
import signal as signals
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ganeti import errors
from ganeti.utils import shortage, text

DEFAULT_PATH = "/sbin:/bin:/usr/sbin:/usr/bin"

#: Seconds for which a program is tried again that cannot be started for lack of processes,
#: descriptors or memory: often another one has just ended then.
SHORTAGE_S = 10.0
# Seconds until a program which does not end after SIGTERM is killed.
_GRACE_S = 3.0
# Interval in seconds at which the errors of a program are polled whose last words are known.
_LISTEN_S = 0.05

_forbidden: list[str] = []


class Secret(str):
    """A word of a command line which the program gets, and which is never printed or logged.

    >>> Secret("hunter2")
    <secret>
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return "<secret>"


class Completed(NamedTuple):
    """The output and the end of a program."""

    argv: tuple[str, ...]
    exit_code: int | None  # None when a signal ended it
    stdout: str
    stderr: str
    signal: int | None

    @property
    def failed(self) -> bool:
        """True if the program ended in another way than with exit code 0."""
        return self.exit_code != 0

    @property
    def output(self) -> str:
        """The standard output of the program, followed by its standard error."""
        return self.stdout + self.stderr

    @property
    def fail_reason(self) -> str:
        """``exited with exit code 1`` or ``was ended by signal 9``; empty after success."""
        if self.signal is not None:
            return f"was ended by signal {self.signal}"
        return f"exited with exit code {self.exit_code}" if self.exit_code else ""

    @property
    def problem(self) -> str:
        """The output of a program that failed, or how it ended when it printed nothing."""
        return self.output.strip() or self.fail_reason

    @property
    def complaint(self) -> str:
        """What the program printed as errors, or its standard output when there are none."""
        return self.stderr.strip() or self.stdout.strip()


def show(argv: Sequence[str]) -> str:
    """Return a command line for messages, with hidden secrets."""
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
    """Undo every :func:`forbid` inside the block; for tests which run a program."""
    kept = list(_forbidden)
    _forbidden.clear()
    try:
        yield
    finally:
        _forbidden[:] = kept


def environment(env: Mapping[str, str] | None = None, *, reset: bool = False) -> dict[str, str]:
    """Return the environment of a program: the C locale, a search path, and the variables of
    ``env``.

    :param reset: do not add the environment of this process.
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
    keep_fds: Sequence[int] = (),
    log: bool = True,
    terminal: bool = False,
    last_words: str | None = None,
) -> Completed:
    """Run a program to its end and return its output.

    :param argv: program and arguments; the program is looked up in ``PATH`` of its environment.
    :param timeout_s: seconds after which the program and its children are ended; None only where
        the caller has a limit of its own.
    :param env: variables in addition to the environment; see :func:`environment`.
    :param stdin: standard input of the program; None means an empty input.
    :param check: raise CommandError when the exit code is not 0.
    :param cwd: directory in which the program starts; None for the present one.
    :param reset_env: do not add the environment of this process.
    :param exact_env: the environment is ``env`` alone, without the C locale; for scripts whose
        environment is a published interface.
    :param output_fd: an open file which gets output and errors; they are not returned then.
    :param keep_fds: files which the program and its children keep open, for their locks.
    :param log: False only for programs which are run very often.
    :param terminal: let the program use the terminal, where it may ask for a password; a time limit
        then ends the program only, not its children.
    :param last_words: text in the errors of the program after which it does nothing more, but does
        not end by itself; it is ended then.
    :returns: the output, decoded as UTF-8; other bytes are replaced.
    :raises CommandError: the program cannot be started; with ``check``, it failed.
    :raises CommandTimeout: the program took longer than ``timeout_s``; it has been ended.
    :raises ProgrammerError: programs are forbidden; see :func:`forbid`.
    """
    if _forbidden:
        raise errors.ProgrammerError(f"{_forbidden[-1]}: {show(argv)}")
    words = [str.__str__(word) for word in argv]
    feed = stdin.encode() if isinstance(stdin, str) else stdin
    if log:
        logging.info("running %s", show(argv))
    started = time.monotonic()
    full_env = dict(env or {}) if exact_env else environment(env, reset=reset_env)
    child = _start(argv, words, full_env, cwd, feed is not None, output_fd, keep_fds, terminal)
    try:
        if last_words is None:
            raw_out, raw_err = child.communicate(feed, timeout=timeout_s)
        else:
            raw_out, raw_err = _listen(child, feed, timeout_s, last_words.encode(), terminal)
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


def require_possible(argv: Sequence[str], words: Sequence[str], env: Mapping[str, str]) -> None:
    """Check that a program can get its arguments and variables.

    :param argv: the command as it is shown.
    :param words: the command.
    :raises CommandError: it cannot; the text names the variable, and not its value.
    """
    for name, value in env.items():
        if wrong := text.wrong_variable(name, value):
            reason = f"cannot be started: variable {name!r:.80}: {wrong}"
            raise errors.CommandError(_hide(argv), None, reason=reason)
    for word in words:
        if wrong := text.wrong_variable("word", word):
            reason = f"cannot be started: an argument: {wrong}"
            raise errors.CommandError(_hide(argv), None, reason=reason)


def _start(
    argv: Sequence[str],
    words: list[str],
    env: dict[str, str],
    cwd: str | None,
    fed: bool,
    output_fd: int | None,
    keep_fds: Sequence[int] = (),
    terminal: bool = False,
) -> subprocess.Popen[bytes]:
    require_possible(argv, words, env)
    stream = subprocess.PIPE if output_fd is None else output_fd

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            words,
            stdin=subprocess.PIPE if fed else subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            env=env,
            cwd=cwd,
            pass_fds=keep_fds,
            start_new_session=not terminal,
        )

    try:
        return shortage.outlast(start, timeout_s=SHORTAGE_S, what=f"starting {argv[0]}")
    except OSError as err:
        reason = err.strerror or str(err)
        raise errors.CommandError(_hide(argv), None, reason=f"cannot be started: {reason}") from err


def _listen(
    child: subprocess.Popen[bytes],
    feed: bytes | None,
    timeout_s: float | None,
    last_words: bytes,
    terminal: bool,
) -> tuple[bytes, bytes]:
    """Return output and errors of a program which ended, or said its last words and was ended.

    :raises subprocess.TimeoutExpired: it did neither within the time.
    """
    deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
    while True:
        try:
            return child.communicate(feed, timeout=_LISTEN_S)
        except subprocess.TimeoutExpired as err:
            if last_words in (err.stderr or b""):
                return _end(child, terminal)
            if time.monotonic() >= deadline:
                raise
            # Catching this exception and calling again loses no input and no output.
            feed = None


def _end(child: subprocess.Popen[bytes], terminal: bool) -> tuple[bytes, bytes]:
    """End a program with all its children, and return its output and errors until then."""
    for number in (signals.SIGTERM, signals.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            (os.kill if terminal else os.killpg)(child.pid, number)
        try:
            raw_out, raw_err = child.communicate(timeout=_GRACE_S)
            return raw_out or b"", raw_err or b""
        except subprocess.TimeoutExpired:
            continue
    # A grandchild in another session still has the pipe open, so the output cannot be read.
    for stream in (child.stdin, child.stdout, child.stderr):
        if stream is not None:
            stream.close()
    child.wait()
    return b"", b""


def is_alive(pid: int) -> bool:
    """Return True if a process exists and has a thread that has not ended.

    The other threads of a zombie may still run, and keep its files open: a thread that waits for a
    disk does so even after the process was killed.
    """
    state, *rest = _stat(pid) or (b"",)
    # Field 20 of proc(5) is the number of threads.
    return state not in (b"", b"X") and (state != b"Z" or int(rest[16]) > 1)


def group_members(group: int) -> list[int]:
    """Return the processes of a process group which have not ended.

    Its leader may have ended before.
    """
    found = []
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        fields = _stat(pid)
        # Field 5 of proc(5) is the process group.
        if fields and int(fields[2]) == group and is_alive(pid):
            found.append(pid)
    return found


def is_paused(pid: int) -> bool:
    """Return True if a signal has stopped a process, so that it does nothing until it is
    continued.
    """
    return _stat(pid)[:1] == [b"T"]


def _stat(pid: int) -> list[bytes]:
    """Return the fields of ``/proc/<pid>/stat`` from the state on.

    The result is empty when there is no such process.

    Source: proc(5).
    """
    if pid <= 0:
        return []
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:
            stat = stream.read()
    except (FileNotFoundError, ProcessLookupError):
        return []
    # The state follows the command, which is in parentheses and may contain any character.
    return stat.rpartition(b")")[2].split()
