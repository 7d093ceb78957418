"""Restricted commands: programs of the administrator which users may start on nodes.

A command is an executable file in ``CONF_DIR/restricted-commands``; it gets no arguments and no
environment. Every user who may submit jobs can name one, so the directory and the file must belong
to root (in a virtual cluster: to the user of the daemon), no other user may be able to write them,
and the name consists of letters, digits, ``_`` and ``-``. One command runs at a time. A wrong name
is answered after ten seconds with the same error as a failing command; the log of this node has the
reason.
"""

from __future__ import annotations

import logging
import os
import re
import stat
import time
from collections.abc import Callable

from ganeti import errors
from ganeti.backend.registry import serves
from ganeti.platform import machine, paths
from ganeti.utils import fs, process
from ganeti.utils.filelock import FileLock
from ganeti.wire import calls

_NAME = re.compile(r"[a-zA-Z0-9_-]+")
#: Other bits are refused: write access for group and others, setuid, setgid.
MAX_MODE = 0o755
DELAY_AFTER_FAILURE_S = 10.0
LOCK_TIMEOUT_S = 8.0
# Shorter than the time limit of the call.
_COMMAND_TIMEOUT_S = 3500.0


def owner() -> tuple[int, int]:
    """Return the user and group to whom directory and commands must belong."""
    return machine.current().trusted_owner()


def problem_with(path: str, wanted: tuple[int, int], *, directory: bool) -> str:
    """Return why a directory or command is not trusted; empty when it is."""
    try:
        status = os.lstat(path)
    except OSError as err:
        return f"cannot examine {path}: {err.strerror}"
    is_kind = stat.S_ISDIR if directory else stat.S_ISREG
    if not is_kind(status.st_mode):
        return f"{path} is not a {'directory' if directory else 'regular file'}"
    if (status.st_uid, status.st_gid) != wanted:
        return f"{path} belongs to {status.st_uid}:{status.st_gid}, not to {wanted[0]}:{wanted[1]}"
    mode = stat.S_IMODE(status.st_mode)
    if mode & ~MAX_MODE:
        return f"mode {mode:04o} of {path} allows too much, at most {MAX_MODE:04o} is accepted"
    return ""


def find(directory: str, name: str, wanted: tuple[int, int]) -> str:
    """Return the path of a command which may be run.

    :raises ConfigurationError: it may not be run; the reason is for the log of this node only.
    """
    if not _NAME.fullmatch(name):
        raise errors.ConfigurationError(f"{name!r:.80} is not a name of a command")
    path = f"{directory}/{name}"
    for place, is_directory in ((directory, True), (path, False)):
        problem = problem_with(place, wanted, directory=is_directory)
        if problem:
            raise errors.ConfigurationError(problem)
    if not os.access(path, os.X_OK):
        raise errors.ConfigurationError(f"{path} is not executable")
    return path


@serves(calls.RESTRICTED_COMMAND)
def run(cmd: str) -> str:
    """Run a restricted command.

    :returns: its standard output and standard error, in one text.
    :raises OpExecError: it failed or may not be run; the text does not say which.
    """
    return run_command(cmd, sleep=time.sleep)


def run_command(cmd: str, *, sleep: Callable[[float], None]) -> str:
    """Run a restricted command; see :func:`run`. The clock is a parameter for tests."""
    try:
        return _run_one(cmd)
    except (errors.LockError, errors.ConfigurationError, errors.CommandError) as err:
        logging.error("restricted command %r: %s", cmd[:80], err)
        # Guessing names is slow, and a wrong name has the same answer as a failing command.
        sleep(DELAY_AFTER_FAILURE_S)
        raise errors.OpExecError(f"executing command {cmd!r:.80} failed") from err


def _run_one(cmd: str) -> str:
    here = paths.current()
    fs.make_dirs(os.path.dirname(here.restricted_commands_lock_file))
    with FileLock(here.restricted_commands_lock_file) as lock:
        lock.acquire(timeout_s=LOCK_TIMEOUT_S)
        path = find(here.restricted_commands_dir, cmd, owner())
        return process.run(
            [path], timeout_s=_COMMAND_TIMEOUT_S, env={}, exact_env=True, cwd="/"
        ).output
