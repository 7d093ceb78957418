"""The livelock of a job process, and the record of what it holds.

The livelock is a file which the process keeps locked while it lives; its name is in the job file,
so anybody can find out whether the process of a job is alive. The file has one number: it is not 0
when the process has to ask whether its job was canceled.

The *record* is a file beside it, with the locks and reservations of the job. A master daemon which
was restarted reads the records of the processes which are alive, because its predecessor had the
locks in memory only. The process adds a lock before it relies on it, and removes one before it
releases it, so that two records never contradict each other. The record need not survive a crash
of the machine, which ends the process, too. It also says which protocol the process has: a master
daemon with another one cannot use it, and does not read the rest of the record.

Source: Ganeti daemons design, *Job death detection*, *WConfD details*.
"""

from __future__ import annotations

import contextlib
import os
import re
from functools import partial
from typing import Any, Final, NamedTuple

from ganeti import RELEASE, errors
from ganeti.jobexec import messages
from ganeti.locking import Level, LockId
from ganeti.utils import filelock, fs, shortage
from ganeti.wire import json

_PREFIX: Final = "job_"
_RECORD: Final = ".held"
_NAME: Final = re.compile(r"job_(\d+)_([0-9a-f]{16})")
# A process which looks whether the file is locked holds it for a moment.
_LOCK_WAIT_S: Final = 10.0
#: Seconds for which a job waits when there is no space for its record: a full directory is no fault
#: of it, and it is in the middle of something.
PATIENCE_S: Final = 300.0

#: A reserved value: kind, value, execution.
Reservation = tuple[str, Any, str]


class Held(NamedTuple):
    """What a job process holds.

    :ivar locks: the modes of its locks.
    :ivar reservations: names and addresses which are not in the configuration yet.
    """

    locks: dict[LockId, str]
    reservations: list[Reservation]


class OtherProtocol(errors.ParseError):
    """The process has another protocol than this program, so its record cannot be read.

    :ivar protocol: that of the process; empty for a release before protocols had names.
    :ivar release: the release of this project which has made the process; empty as above.
    """

    def __init__(self, protocol: str, release: str) -> None:
        super().__init__(
            f"it was made by release {release or 'unknown'} with protocol {protocol or 'unknown'},"
            f" and this is release {RELEASE} with protocol {messages.protocol()}"
        )
        self.protocol = protocol
        self.release = release


def path_of(directory: str, job_id: int, token: str) -> str:
    """Return the path of a livelock.

    :param token: 16 hexadecimal digits, the name of the process.
    """
    return f"{directory}/{_PREFIX}{job_id}_{token}"


def token_of(path: str) -> str | None:
    """Return the token in the path of a livelock; None for a file which is not a job process's."""
    found = _NAME.fullmatch(os.path.basename(path))
    return None if found is None else found[2]


def take(directory: str, job_id: int, token: str) -> filelock.FileLock:
    """Create the livelock of this process and lock it.

    :raises OSError: it cannot be created.
    :raises LockError: another process has locked it.
    """
    lock = filelock.FileLock(path_of(directory, job_id, token))
    lock.acquire(timeout_s=_LOCK_WAIT_S)
    return lock


def forget(path: str) -> None:
    """Remove a livelock and its record."""
    for name in (path + _RECORD, path):
        with contextlib.suppress(OSError):
            fs.remove_file(name)


def remove_stale(directory: str) -> None:
    """Remove the files of processes which have ended; called while none is being made."""
    for path in fs.abandoned_files(directory):
        with contextlib.suppress(OSError):
            fs.remove_file(path)
    for name in fs.list_visible(directory):
        path = f"{directory}/{name.removesuffix(_RECORD)}"
        if token_of(path) is None:
            continue
        with contextlib.suppress(OSError):
            if not filelock.is_locked(path):
                forget(path)


class Record:
    """The record of this process; see the text of the module.

    :param path: the livelock.
    :ivar wait_s: seconds for which a change waits when there is no space for the record.
    """

    def __init__(self, path: str) -> None:
        self._path = path + _RECORD
        self.wait_s = 0.0
        self._locks: dict[LockId, str] = {}
        self._reservations: list[Reservation] = []

    @property
    def held(self) -> Held:
        """What this process holds."""
        return Held(dict(self._locks), list(self._reservations))

    def set_locks(self, locks: dict[LockId, str]) -> None:
        """Replace the locks."""
        if locks != self._locks:
            self._locks = dict(locks)
            self._write()

    def reserve(self, kind: str, value: Any, ec_id: str) -> None:
        """Add a reservation."""
        self._reservations.append((kind, value, ec_id))
        self._write()

    def release(self, ec_id: str) -> bool:
        """Remove the reservations of an execution; return whether there were any."""
        left = [one for one in self._reservations if one[2] != ec_id]
        if left == self._reservations:
            return False
        self._reservations = left
        self._write()
        return True

    def _write(self) -> None:
        text = json.dumps(
            {
                "protocol": messages.protocol(),
                "release": RELEASE,
                "locks": [[int(one.level), one.key, mode] for one, mode in self._locks.items()],
                "reservations": [list(one) for one in self._reservations],
            }
        )

        shortage.outlast(
            partial(fs.write_file, self._path, text, mode=0o600, sync=False),
            timeout_s=self.wait_s,
            what=f"writing {self._path}",
        )


def parse_record(text: str) -> Held:
    """Read the text of a record.

    :raises ParseError: it is not a record.
    :raises OtherProtocol: its process has another protocol.
    """
    data = json.loads(text)
    if not isinstance(data, dict):
        raise errors.ParseError("not the record of a job process")
    protocol, release = (str(data.get(key, "")) for key in ("protocol", "release"))
    if protocol != messages.protocol():
        raise OtherProtocol(protocol, release)
    try:
        locks = {
            LockId(Level(level), None if key is None else str(key)): str(mode)
            for level, key, mode in data["locks"]
        }
        reservations = [
            (str(kind), tuple(value) if isinstance(value, list) else value, str(ec_id))
            for kind, value, ec_id in data["reservations"]
        ]
    except (KeyError, TypeError, ValueError) as err:
        raise errors.ParseError(f"not the record of a job process: {err}") from err
    if not set(locks.values()) <= {"shared", "exclusive"}:
        raise errors.ParseError("the record of a job process has an unknown mode of a lock")
    return Held(locks, reservations)


def read_record(path: str) -> Held:
    """Read the record of the process with a livelock; empty when it has written none.

    :raises ParseError: it is damaged.
    :raises OtherProtocol: its process has another protocol.
    :raises OSError: it cannot be read.
    """
    try:
        return parse_record(fs.read_file(path + _RECORD))
    except FileNotFoundError:
        return Held({}, [])
