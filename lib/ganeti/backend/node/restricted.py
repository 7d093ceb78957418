"""Restricted commands: programs which the administrator put on the nodes for everybody to start.

A command is an executable file in ``CONF_DIR/restricted-commands``, without arguments and without
environment. Because whoever may submit a job may name one, nothing is trusted but that directory:
it and the file must belong to root (in a virtual cluster: to the user of the daemon), nobody else
may be able to write them, and the name is a plain word. One runs at a time. Whoever names something
else waits for ten seconds and learns nothing but that it failed, as with a command that fails; the
reason is in this node's log.
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
#: No bit outside of this: no write for group and others, no setuid.
MAX_MODE = 0o755
DELAY_AFTER_FAILURE_S = 10.0
LOCK_TIMEOUT_S = 8.0
# A little less than the master waits for the call.
_COMMAND_TIMEOUT_S = 3500.0


def owner() -> tuple[int, int]:
    """User and group to whom directory and commands must belong."""
    return machine.current().trusted_owner()


def problem_with(path: str, wanted: tuple[int, int], *, directory: bool) -> str:
    """Why a directory or command cannot be trusted; empty when it can."""
    try:
        status = os.lstat(path)
    except OSError as err:
        return f"cannot look at {path}: {err.strerror}"
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
    """Path of a command which may be run.

    :raises ConfigurationError: it may not; the reason is for this node's administrator only.
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
    """Run a prepared command.

    :returns: its output and its errors, together.
    :raises OpExecError: it failed, or there is none that may be run; names only the command.
    """
    return run_command(cmd, sleep=time.sleep)


def run_command(cmd: str, *, sleep: Callable[[float], None]) -> str:
    """As :func:`run`, with a clock of one's own."""
    try:
        return _run_one(cmd)
    except (errors.LockError, errors.ConfigurationError, errors.CommandError) as err:
        logging.error("restricted command %r: %s", cmd[:80], err)
        # Trying names out takes long, and a bad name looks like a command that fails.
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
