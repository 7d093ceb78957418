"""The work of this node: which calls change instances or disks now, and for which job.

Such a call may take hours, and it goes on when its caller has gone: the master daemon was killed,
the role moved to another node, or the connection broke. So each of them leaves a *record* below
``RUN_DIR/node-work`` as long as it works: a file with the lock of flock(2), which the process of
the call has open, and which the programs inherit that may survive it (scripts, copies, transfers).
The kernel releases the lock when the last of them has ended, in any way, and at no other time.

- A call is refused while another job, or a job of another master, works on one of its
  instances or disks. Calls of one job never exclude each other: the job knows what it does.
- A master asks for the records, when it starts and when the answer to a call was lost.
- A caller which has given up a call *revokes* it; when the call arrives afterwards, it is refused.

A record is made before the epoch of its master is checked. So a new master, which asks after the
node has promised its epoch, misses no call of an older one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import itertools
import logging
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any

from ganeti import errors
from ganeti.objects import codec
from ganeti.objects.disk import Disk
from ganeti.objects.instance import FilledInstance
from ganeti.objects.transfer import NodeWork
from ganeti.platform import paths
from ganeti.utils import clock, filelock, fs, process
from ganeti.wire import json

_log = logging.getLogger(__name__)

_REVOKED = "revoked"
_TOKEN = re.compile(r"[0-9a-f]{1,64}")
# Longer than a message stays in the queue of a socket.
_REVOKED_S = 86400.0
# Digits of a token which are the token of a process.
_PREFIX = 16
_MAX_HOLDERS = 5
# A file of this size is not a record.
_MAX_BYTES = 1 << 16

_numbers = itertools.count(1)


class WorkInProgressError(errors.GenericError):
    """Another job works on the instance or the disk, or the caller has given this call up."""


class Work:
    """The record of the call which this process serves.

    :raises WorkInProgressError: another job is running, or the call was revoked; there is no
        record.
    :raises OSError: the record cannot be written.
    """

    def __init__(self, what: NodeWork) -> None:
        directory = paths.current().node_work_dir
        fs.make_dirs(directory, 0o700)
        self._what = what
        self._inherited = False
        self._name = f"{os.getpid()}-{next(_numbers)}-{what.token or 'unnamed'}"
        self._path = f"{directory}/{self._name}"
        # The name of a file which is not locked yet begins with a dot, and no process reads it.
        hidden = f"{directory}/.{self._name}"
        self._fd = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX)
                self._write()
                os.rename(hidden, self._path)
            except BaseException:
                fs.remove_file(hidden)
                raise
            # Each of two calls which begin at the same time sees the other one.
            self._require_alone(directory)
        except BaseException:
            self.close()
            raise

    def _write(self) -> None:
        data = json.dumps(codec.to_dict(self._what)).encode("ascii")
        os.pwrite(self._fd, data, 0)
        os.truncate(self._fd, len(data))

    def _require_alone(self, directory: str) -> None:
        token = self._what.token
        # A process which makes calls for one job begins their tokens with its own, and that counts
        # for all of them.
        if token and any(
            os.path.exists(f"{directory}/{_REVOKED}/{one}") for one in (token, token[:_PREFIX])
        ):
            raise WorkInProgressError(
                "the caller has given this call up before it arrived, so it is not carried out"
            )
        mine = {*self._what.instances, *self._what.disks}
        for path, other in _records(directory):
            if (
                path != self._path
                and not _same_job(other, self._what)
                and not mine.isdisjoint((*other.instances, *other.disks))
                and filelock.is_locked(path)
            ):
                raise WorkInProgressError(_refusal(path, other))

    @property
    def fds(self) -> tuple[int, ...]:
        """File descriptors which a program must inherit that may survive this process."""
        self._inherited = True
        return (self._fd,)

    def is_transfer(self, name: str) -> None:
        """Add the name of the transfer which was started; it can be ended by this name."""
        self._what = dataclasses.replace(self._what, transfer=name)
        self._write()

    def close(self) -> None:
        """End the work of this process; programs which inherited the lock keep the record."""
        os.close(self._fd)
        if not (self._inherited and filelock.is_locked(self._path)):
            fs.remove_file(self._path)


#: The record of the call which this process serves.
_current: Work | None = None


class Serving:
    """A context manager: this process works on a call.

    The parameter and the errors are those of :class:`Work`.
    """

    def __init__(self, what: NodeWork) -> None:
        self._what = what

    def __enter__(self) -> None:
        global _current
        _current = Work(self._what)

    def __exit__(self, *_: object) -> None:
        global _current
        if _current is not None:
            _current.close()
        _current = None


def inherited_fds() -> tuple[int, ...]:
    """Files which a program must inherit that may survive the call which this process serves."""
    return () if _current is None else _current.fds


def started_transfer(name: str) -> None:
    """Note that the call which this process serves has started a transfer of this name."""
    if _current is not None:
        _current.is_transfer(name)


def subjects(value: Any) -> Iterator[FilledInstance | Disk]:
    """Find all instances and disks in the arguments of a call."""
    if isinstance(value, FilledInstance | Disk):
        yield value
        if isinstance(value, FilledInstance):
            yield from value.disks_info
    elif isinstance(value, dict):
        for item in value.values():
            yield from subjects(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from subjects(item)


def describe(
    call: str, doing: str, args: Any, *, job: int | None, epoch: str, token: str
) -> NodeWork:
    """Make the record of a call.

    :param doing: what the call does, such as ``script 'create' of the OS``.
    :param args: the decoded arguments.
    """
    found = list(subjects(args))
    return NodeWork(
        job=job,
        epoch=epoch,
        token=token,
        call=call,
        doing=doing,
        instances=tuple(
            dict.fromkeys(one.uuid for one in found if isinstance(one, FilledInstance) and one.uuid)
        ),
        disks=tuple(dict.fromkeys(one.uuid for one in found if isinstance(one, Disk) and one.uuid)),
        since=clock.now(),
    )


def running() -> list[NodeWork]:
    """Return the records of all calls which are being carried out, with their processes.

    Records whose processes have ended are removed.
    """
    directory = paths.current().node_work_dir
    found = []
    for path, record in _records(directory):
        if filelock.is_locked(path):
            processes = tuple(f"{pid} ({name})" for pid, name in holders(path))
            found.append(dataclasses.replace(record, processes=processes))
        else:
            fs.remove_file(path)
    return sorted(found, key=lambda record: record.since)


def revoke(tokens: Sequence[str]) -> None:
    """Refuse calls which their callers have given up, when they arrive later.

    :raises ParseError: a token is malformed.
    :raises OSError: a token cannot be stored.
    """
    directory = f"{paths.current().node_work_dir}/{_REVOKED}"
    for token in tokens:
        if not _TOKEN.fullmatch(token):
            raise errors.ParseError(f"not the token of a call: {token!r:.80}")
    if tokens:
        fs.make_dirs(directory, 0o700)
        for path in _outdated_revocations(directory):
            fs.remove_file(path)
    for token in tokens:
        os.close(os.open(f"{directory}/{token}", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))


def _outdated_revocations(directory: str) -> Iterator[str]:
    """Yield the files of calls which were given up so long ago that they do not arrive."""
    limit = clock.now() - _REVOKED_S
    for name in fs.list_visible(directory):
        with contextlib.suppress(FileNotFoundError):
            if os.path.getmtime(f"{directory}/{name}") < limit:
                yield f"{directory}/{name}"


def leftovers() -> Iterator[str]:
    """Yield the files which nobody needs: of processes which have ended, and old revocations."""
    directory = paths.current().node_work_dir
    for name in os.listdir(directory) if os.path.isdir(directory) else ():
        path = f"{directory}/{name}"
        if name == _REVOKED:
            yield from _outdated_revocations(path)
            continue
        # The file of a call which is about to begin is not locked yet. Programs may keep the lock.
        pid = name.removeprefix(".").partition("-")[0]
        if pid.isdecimal() and not process.is_alive(int(pid)) and not filelock.is_locked(path):
            yield path


def _records(directory: str) -> Iterator[tuple[str, NodeWork]]:
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return
    for name in names:
        if name.startswith(".") or name == _REVOKED:
            continue
        path = f"{directory}/{name}"
        try:
            with open(path, "rb") as stream:
                record = codec.from_any_release(NodeWork, json.loads(stream.read(_MAX_BYTES)))
        except FileNotFoundError:
            continue
        except (OSError, errors.GenericError) as err:
            if filelock.is_locked(path):
                _log.error("the record of work %s cannot be read: %s", path, err)
            else:
                fs.remove_file(path)
            continue
        yield path, record


def _same_job(one: NodeWork, other: NodeWork) -> bool:
    """Tell whether two records belong to one job.

    A master daemon which is started again on its node has another epoch, and its jobs may go on in
    their processes; their ids are not used again. Another node may have given an id to another job.
    """
    if one.job != other.job:
        return False
    if one.job is None:
        return one.epoch == other.epoch
    return one.epoch.partition(" ")[2] == other.epoch.partition(" ")[2]


def _refusal(path: str, other: NodeWork) -> str:
    pids = list(holders(path))
    who = "a program without a job" if other.job is None else f"job {other.job}"
    names = ", ".join(f"{pid} ({name})" for pid, name in pids) or "which is about to end"
    ending = f", or end it with 'kill {' '.join(pid for pid, _name in pids)}'" if pids else ""
    return (
        f"{who} is running on this instance or disk: {other.doing}, since"
        f" {clock.format_time(other.since)} (process {names} of this node). Wait until that has"
        f" ended{ending} when nobody needs its result; then repeat the command."
    )


def holders(path: str) -> Iterator[tuple[str, str]]:
    """Find number and name of the processes which have the file of a lock open, at most five.

    This process is left out. Source: proc(5).
    """
    count = 0
    for pid in sorted(filter(str.isdigit, os.listdir("/proc")), key=int):
        if int(pid) == os.getpid() or count == _MAX_HOLDERS:
            continue
        try:
            files = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
            if path in files:
                name = fs.read_file(f"/proc/{pid}/comm").strip()
                count += 1
                yield pid, name
        except (OSError, ValueError):
            # The process has ended, or belongs to another user.
            continue
