"""The history of the configuration: what was changed, when, and by which job.

Files beside the configuration have a record for each commit: its author, and for each changed
object the attributes before and after; of a long list, only the part which is different. The state
of any earlier moment follows from the present state and the records: :func:`state_at` takes back
the newest changes one by one.

Records are written before the configuration itself and are not flushed, so they cost a commit very
little and survive the end of the process. When the machine loses its power, the last seconds of the
history may be missing; so are commits which were made while the disk was full. Such a gap is
detected, because every record names the state before it, and states before the gap are refused.

The other candidates get the records of a commit in the message with the commit, and keep the same
files (:mod:`ganeti.configfile.history_files`). So the history goes on under a new master.

The files contain the same data as the configuration, including secrets; only root may read them.
Their size is bounded: the oldest files are removed when they reach back more than
:data:`MAX_COMMITS` serial numbers, or when all have more than :data:`MAX_BYTES`.

File format: the first line ``{"format": 2, "version": ...}``, then one line of JSON for each
commit, the oldest first. A new version of the configuration begins a new file. Format 1 had no
parts of lists.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from ganeti import errors
from ganeti.config.draft import CLUSTER
from ganeti.configfile.history_files import (
    APPEND,
    DIR_MODE,
    FILE_MODE,
    Addition,
    first_serial,
    name_of,
    names,
)
from ganeti.objects import ConfigData, codec
from ganeti.utils import fs
from ganeti.wire import json

log = logging.getLogger(__name__)

MAX_COMMITS: Final = 10_000
MAX_BYTES: Final = 64 * 1024 * 1024
# Files are removed as a whole. A file with this number of commits or bytes is full.
FILE_COMMITS: Final = 500
FILE_BYTES: Final = 2 * 1024 * 1024
# The record of a larger commit does not contain its changes.
MAX_RECORD_BYTES: Final = 8 * 1024 * 1024

_FORMAT: Final = 2
_READABLE: Final = (1, 2)


class Author(NamedTuple):
    """The author of a change of the configuration: a job and its opcode, or another source.

    :ivar source: source of the request: the first entry of the reason trail.
    :ivar reason: the reason which the user gave.
    :ivar person: the name of the person; empty when it is not known.
    """

    job_id: int | None = None
    opcode: str | None = None
    source: str = ""
    reason: str = ""
    person: str = ""


class ObjectChange(NamedTuple):
    """The change of one object.

    :ivar kind: ``cluster`` or the name of a table of the configuration.
    :ivar old: the old values of the changed attributes; all attributes if the object was removed;
        None if it was added.
    :ivar new: the new values of the changed attributes; all attributes if the object was added;
        None if it was removed.
    :ivar pieces: lists which changed in one place, and are in neither of the two, by attribute: the
        index, the items before, the items after the change.
    """

    kind: str
    uuid: str
    name: str
    old: dict[str, Any] | None
    new: dict[str, Any] | None
    pieces: Mapping[str, tuple[int, list[Any], list[Any]]] = MappingProxyType({})

    @property
    def what(self) -> str:
        """``added``, ``removed`` or ``changed``."""
        if self.old is None:
            return "added"
        return "removed" if self.new is None else "changed"

    @property
    def attributes(self) -> list[str]:
        """Names of the changed attributes, without those which change with every commit."""
        if self.old is None or self.new is None:
            return []
        return sorted({*self.old, *self.new, *self.pieces} - {"serial_no", "mtime"})


class Commit(NamedTuple):
    """One step from a state of the configuration to the next.

    :ivar serial: serial number of the new state; ``before_serial`` is that of the old one.
    :ivar time_s: time of the new state in seconds since 1970; ``before_time_s`` is that of the old
        one.
    :ivar changes: None if they were too large to be kept.
    :ivar version: version of the configuration.
    """

    serial: int
    time_s: float
    before_serial: int
    before_time_s: float
    author: Author
    changes: tuple[ObjectChange, ...] | None
    version: int


def commit_of(
    before: ConfigData, after: ConfigData, changed: Iterable[tuple[str, str]], author: Author
) -> Commit:
    """Describe one transaction.

    :param changed: kind and UUID of the objects which it changed.
    """
    return Commit(
        after.serial_no,
        after.mtime,
        before.serial_no,
        before.mtime,
        author,
        tuple(_changes(before, after, changed)),
        after.version,
    )


def _changes(
    before: ConfigData, after: ConfigData, changed: Iterable[tuple[str, str]]
) -> Iterator[ObjectChange]:
    for kind, uuid in sorted(changed):
        if (kind, uuid) == CLUSTER:
            old, new = before.cluster, after.cluster
        else:
            old, new = getattr(before, kind).get(uuid), getattr(after, kind).get(uuid)
        if old is new:
            continue
        change = change_of(
            kind,
            uuid,
            None if old is None else codec.to_dict(old),
            None if new is None else codec.to_dict(new),
        )
        if change is not None:
            yield _shortened(change)


def _shortened(change: ObjectChange) -> ObjectChange:
    """Replace lists of which little changed by pieces.

    Otherwise a thousand tags which are added one by one would make a thousand lists of up to a
    thousand tags.
    """
    if change.old is None or change.new is None:
        return change
    old, new, pieces = dict(change.old), dict(change.new), {}
    for key, was in change.old.items():
        now = new.get(key)
        if not isinstance(was, list) or not isinstance(now, list):
            continue
        shorter = min(len(was), len(now))
        start = next((place for place in range(shorter) if was[place] != now[place]), shorter)
        same = next(
            (place for place in range(shorter - start) if was[-1 - place] != now[-1 - place]),
            shorter - start,
        )
        if start + same > shorter // 2:
            pieces[key] = (start, was[start : len(was) - same], now[start : len(now) - same])
            del old[key], new[key]
    return change._replace(old=old, new=new, pieces=pieces)


def change_of(
    kind: str, uuid: str, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None
) -> ObjectChange | None:
    """Compare two states of an object, given as dictionaries; return None if they are equal."""
    known = new if new is not None else old if old is not None else {}
    name = str(known.get("name") or known.get("cluster_name") or uuid)
    if old is None or new is None:
        if old is new:
            return None
        return ObjectChange(
            kind, uuid, name, None if old is None else dict(old), None if new is None else dict(new)
        )
    was = {key: value for key, value in old.items() if key not in new or new[key] != value}
    now = {key: value for key, value in new.items() if key not in old or old[key] != value}
    if not was and not now:
        return None
    return ObjectChange(kind, uuid, name, was, now)


class History:
    """The records of one configuration. Only one thread at a time may write."""

    def __init__(
        self,
        directory: str,
        *,
        max_commits: int = MAX_COMMITS,
        max_bytes: int = MAX_BYTES,
        file_commits: int = FILE_COMMITS,
        file_bytes: int = FILE_BYTES,
    ) -> None:
        self._directory = directory
        self._max_commits = max_commits
        self._max_bytes = max_bytes
        self._file_commits, self._file_bytes = file_commits, file_bytes
        # Names and sizes of the finished files; then the present file, its size and its number of
        # records.
        self._finished: list[tuple[str, int]] = []
        self._fd: int | None = None
        self._name = ""
        self._size = self._count = 0
        self._version = 0
        # Size and number of records before the last addition.
        self._before: tuple[int, int] | None = None
        #: What the last :meth:`append` has added, for the other candidates.
        self.addition: Addition | None = None

    def open(self, data: ConfigData) -> None:
        """Begin after a start of the program.

        Records of commits which were not carried out are dropped: the process ended after the
        records were written.

        :param data: the content of the configuration file.

        :raises OSError: the files cannot be read or changed.
        """
        for name in reversed(names(self._directory)):
            text = fs.read_bytes(f"{self._directory}/{name}")
            keep = _length_until(text, data)
            if keep == len(text):
                break
            log.info(
                "removing the end of history file %s/%s: its commits were not carried out",
                self._directory,
                name,
            )
            if keep:
                os.truncate(f"{self._directory}/{name}", keep)
                break
            fs.remove_file(f"{self._directory}/{name}")
        self._finished = [
            (name, os.stat(f"{self._directory}/{name}").st_size) for name in names(self._directory)
        ]
        self._go_on(data.version)

    def _go_on(self, version: int) -> None:
        """Continue the newest file, if it has the present format and version and is not full."""
        if not self._finished:
            return
        name, size = self._finished[-1]
        path = f"{self._directory}/{name}"
        header, *lines = fs.read_bytes(path).split(b"\n")
        try:
            known = json.loads(header)
            good = (known["format"], known["version"]) == (_FORMAT, version)
        except (errors.ParseError, KeyError, TypeError):
            good = False
        if good and size < self._file_bytes:
            self._fd = os.open(path, APPEND)
            self._name, self._version = name, version
            self._size, self._count = size, len(lines) - 1
            self._finished.pop()

    def append(self, commits: Sequence[Commit]) -> None:
        """Add records with one write; :meth:`take_back` removes them again.

        :raises OSError: nothing was added.
        """
        self._before = self.addition = None
        lines = [_line(commit) for commit in commits]
        block = b"".join(lines)
        header = b""
        if (
            self._fd is None
            or self._count >= self._file_commits
            or self._size >= self._file_bytes
            or self._version != commits[0].version
        ):
            header = self._begin_file(commits[0])
        assert self._fd is not None
        try:
            written = os.write(self._fd, block)
            if written != len(block):
                written += os.write(self._fd, block[written:])
                if written != len(block):
                    raise OSError(f"only {written} of {len(block)} bytes could be written")
        except OSError:
            os.ftruncate(self._fd, self._size)
            raise
        self._before = (self._size, self._count)
        self.addition = Addition(
            self._finished[0][0] if self._finished else self._name,
            self._name,
            self._size - len(header),
            (commits[0].before_serial, commits[0].before_time_s),
            (header + block).decode(),
        )
        self._size += len(block)
        self._count += len(commits)

    def take_back(self) -> None:
        """Remove the records of the last :meth:`append`: the commits were not carried out."""
        if self._before is None or self._fd is None:
            return
        self._size, self._count = self._before
        self._before = None
        os.ftruncate(self._fd, self._size)

    def _begin_file(self, first: Commit) -> bytes:
        """Begin a file; return its header."""
        fs.make_dirs(self._directory, DIR_MODE)
        self.close()
        name = name_of(first.serial)
        header = json.dumps({"format": _FORMAT, "version": first.version}).encode() + b"\n"
        path = f"{self._directory}/{name}"
        # A file of this name can only contain records which were taken back.
        fd = os.open(path, APPEND | os.O_CREAT | os.O_TRUNC, FILE_MODE)
        try:
            os.fchmod(fd, FILE_MODE)
            os.write(fd, header)
        except OSError:
            os.close(fd)
            fs.remove_file(path)
            raise
        self._finished = [item for item in self._finished if item[0] != name]
        self._fd, self._name, self._version = fd, name, first.version
        self._size, self._count = len(header), 0
        total = sum(size for _name, size in self._finished)
        # The new file counts as if it were full.
        reach = first.serial + self._file_commits - self._max_commits
        while self._finished and (
            total > self._max_bytes or first_serial(self._finished[0][0]) < reach
        ):
            oldest, size = self._finished.pop(0)
            fs.remove_file(f"{self._directory}/{oldest}")
            total -= size
        return header

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Finish the present file."""
        if self._fd is not None:
            os.close(self._fd)
            self._finished.append((self._name, self._size))
            self._fd = None

    def commits(self, before: int | None = None) -> Iterator[Commit]:
        """Iterate over all records, the newest first. A file is read when its records are needed.

        :param before: only those with smaller serial numbers; files without any are not read.
        :raises ConfigurationError: a file cannot be read, or is not a file of the history.
        """
        for name in reversed(names(self._directory)):
            if before is not None and first_serial(name) >= before:
                continue
            path = f"{self._directory}/{name}"
            try:
                text = fs.read_bytes(path)
            except FileNotFoundError:
                return  # it was the oldest file and has just been removed
            except OSError as err:
                raise errors.ConfigurationError(f"cannot read {path}: {err.strerror}") from err
            for commit in reversed(_parse(path, text)):
                if before is None or commit.serial < before:
                    yield commit


def _line(commit: Commit) -> bytes:
    author = commit.author
    record: dict[str, Any] = {
        "serial": commit.serial,
        "time": commit.time_s,
        "was": [commit.before_serial, commit.before_time_s],
        "job": author.job_id,
        "op": author.opcode,
        "source": author.source,
        "reason": author.reason,
        **({"person": author.person} if author.person else {}),
        "changes": None
        if commit.changes is None
        else [
            [*item[:5], dict(item.pieces)] if item.pieces else item[:5] for item in commit.changes
        ],
    }
    line = json.dumps(record).encode() + b"\n"
    if len(line) > MAX_RECORD_BYTES:
        line = json.dumps({**record, "changes": None}).encode() + b"\n"
    return line


def _parse(path: str, text: bytes) -> list[Commit]:
    lines = text.split(b"\n")
    # A record after the last newline is incomplete: it is being written, or the power failed.
    lines.pop()
    try:
        header = json.loads(lines[0]) if lines else {"format": _FORMAT, "version": 0}
        if header["format"] not in _READABLE:
            raise errors.ConfigurationError(f"{path} has format {header['format']}, not {_FORMAT}")
        return [_commit(json.loads(line), header["version"]) for line in lines[1:]]
    except (errors.ParseError, AttributeError, KeyError, TypeError, ValueError) as err:
        raise errors.ConfigurationError(f"{path} is not a history of the configuration") from err


def _commit(record: dict[str, Any], version: int) -> Commit:
    changes = record["changes"]
    before_serial, before_time_s = record["was"]
    return Commit(
        record["serial"],
        record["time"],
        before_serial,
        before_time_s,
        Author(
            record["job"],
            record["op"],
            record["source"],
            record["reason"],
            record.get("person", ""),
        ),
        None if changes is None else tuple(map(_read_change, changes)),
        version,
    )


def _read_change(row: list[Any]) -> ObjectChange:
    kind, uuid, name, old, new, *more = row
    pieces = {
        key: (int(start), list(was), list(now))
        for key, (start, was, now) in (more[0] if more else {}).items()
    }
    return ObjectChange(kind, uuid, name, old, new, pieces)


def _length_until(text: bytes, data: ConfigData) -> int:
    """Return how many bytes of a file are records of states up to this one; 0 for none."""
    end = len(text)
    while True:
        # After the last newline there is nothing, or an incomplete line.
        end = text.rfind(b"\n", 0, end) + 1
        start = text.rfind(b"\n", 0, end - 1) + 1
        if start == 0:
            return 0
        try:
            record = json.loads(text[start:end])
            serial, time_s = record["serial"], record["time"]
        except (errors.ParseError, KeyError, TypeError):
            end = start  # incomplete after a loss of power
            continue
        if serial < data.serial_no or (serial, time_s) == (data.serial_no, data.mtime):
            return end
        end = start


# -- going back ------------------------------------------------------------------------------------


class PastState:
    """A state of the configuration as plain dictionaries; commits can be taken back from it."""

    def __init__(self, data: ConfigData) -> None:
        whole = codec.to_dict(data)
        self.cluster: dict[str, Any] = whole.pop("cluster")
        # A table which may be empty, such as that of the documents, is not there then.
        self.tables: dict[str, dict[str, Any]] = {
            kind: value for kind, value in whole.items() if isinstance(value, dict)
        }
        self.root: dict[str, Any] = {
            key: value for key, value in whole.items() if not isinstance(value, dict)
        }

    @property
    def serial(self) -> int:
        """Serial number of the state."""
        serial: int = self.root["serial_no"]
        return serial

    @property
    def time_s(self) -> float:
        """Time of the state, in seconds since 1970."""
        time_s: float = self.root["mtime"]
        return time_s

    def whole(self) -> dict[str, Any]:
        """Return the whole state in the form of the configuration file."""
        return {"cluster": self.cluster, **self.tables, **self.root}

    def get(self, kind: str, uuid: str) -> dict[str, Any] | None:
        """Return one object, or None."""
        return self.cluster if (kind, uuid) == CLUSTER else self.tables.get(kind, {}).get(uuid)

    def take_back(self, commit: Commit) -> None:
        """Take back a commit: become the state before it.

        :raises OpPrereqError: it is not the commit which made this state, or it cannot be taken
            back.
        """
        if (commit.serial, commit.time_s) != (self.serial, self.time_s):
            raise errors.OpPrereqError(
                f"the history has a gap between serial numbers {commit.serial} and {self.serial}; "
                "older states are not known",
                errors.ECODE_STATE,
            )
        if commit.version != self.root["version"]:
            raise errors.OpPrereqError(
                f"the configuration was upgraded after serial number {commit.serial}; older states "
                "are not known",
                errors.ECODE_STATE,
            )
        if commit.changes is None:
            raise errors.OpPrereqError(
                f"the commit with serial number {commit.serial} was too large to be kept; older "
                "states are not known",
                errors.ECODE_STATE,
            )
        for change in commit.changes:
            self._take_back_change(change)
        self.root["serial_no"], self.root["mtime"] = commit.before_serial, commit.before_time_s

    def _take_back_change(self, change: ObjectChange) -> None:
        present = self.get(change.kind, change.uuid)
        if change.old is None:
            self.tables.get(change.kind, {}).pop(change.uuid, None)
            return
        old = dict(change.old)
        if change.new is not None:
            kept = {key: value for key, value in (present or {}).items() if key not in change.new}
            for key, (start, was, now) in change.pieces.items():
                whole = kept[key]
                kept[key] = [*whole[:start], *was, *whole[start + len(now) :]]
            old = {**kept, **old}
        if (change.kind, change.uuid) == CLUSTER:
            self.cluster = old
        else:
            self.tables.setdefault(change.kind, {})[change.uuid] = old


def state_at(data: ConfigData, history: History, point: int | float) -> PastState:
    """Return an earlier state of the configuration.

    :param data: the present state.
    :param point: a serial number; or, as a float, seconds since 1970.
    :raises OpPrereqError: there was no such state, or the history does not reach back to it.
    """
    state = PastState(data)
    _go_back(state, _older(history, state), point)
    return state


def compare(
    data: ConfigData,
    history: History,
    first: int | float,
    last: int | float,
) -> tuple[int, int, list[ObjectChange]]:
    """Compare two states.

    :param first: the older state, like ``point`` of :func:`state_at`.
    :param last: the newer state.
    :returns: the serial numbers of both, and the changes from one to the other, sorted by kind and
        name.
    :raises OpPrereqError: as for :func:`state_at`, or the first state is not the older one.
    """
    state = PastState(data)
    commits = _older(history, state)
    _go_back(state, commits, last)
    newest = state.serial
    if _reached(state, first) and not (isinstance(first, int) and first == newest):
        raise errors.OpPrereqError(
            f"{_point_text(first)} is not before {_point_text(last)}", errors.ECODE_INVAL
        )
    later: dict[tuple[str, str], dict[str, Any] | None] = {}

    def remember(commit: Commit) -> None:
        for change in commit.changes or ():
            later.setdefault((change.kind, change.uuid), state.get(change.kind, change.uuid))

    _go_back(state, commits, first, remember)
    found = (
        change_of(kind, uuid, state.get(kind, uuid), new) for (kind, uuid), new in later.items()
    )
    changes = sorted(
        (change for change in found if change is not None),
        key=lambda change: (change.kind, change.name, change.uuid),
    )
    return state.serial, newest, changes


def _older(history: History, state: PastState) -> Iterator[Commit]:
    """Iterate over the records up to a state; the history may already have the next commit."""
    serial = state.serial
    return (commit for commit in history.commits() if commit.serial <= serial)


def _go_back(
    state: PastState, commits: Iterator[Commit], point: int | float, before: Any = None
) -> None:
    if isinstance(point, int) and point > state.serial:
        raise errors.OpPrereqError(
            f"there is no serial number {point} yet; the newest is {state.serial}",
            errors.ECODE_NOENT,
        )
    while not _reached(state, point):
        commit = next(commits, None)
        if commit is None:
            raise errors.OpPrereqError(
                f"the history reaches back to serial number {state.serial}, not to "
                f"{_point_text(point)}",
                errors.ECODE_NOENT,
            )
        if before is not None:
            before(commit)
        state.take_back(commit)
    if isinstance(point, int) and state.serial != point:
        raise errors.OpPrereqError(f"there was no serial number {point}", errors.ECODE_NOENT)


def _reached(state: PastState, point: int | float) -> bool:
    return state.serial <= point if isinstance(point, int) else state.time_s <= point


def _point_text(point: int | float) -> str:
    return f"serial number {point}" if isinstance(point, int) else f"time {point:g}"
