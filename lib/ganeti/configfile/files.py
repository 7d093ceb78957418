"""The file of the configuration and its journal: reading, changing, replacing, folding in.

``config.data`` is replaced as a whole, so it is a whole configuration at every moment. When it is
large (:data:`JOURNAL_FROM_BYTES`), a change is appended to ``config.data.journal`` instead, and
flushed there; some seconds later the node daemon *folds the journal in*: it writes a file with all
changes, gives it the name ``config.data``, and removes the journal. A small file has no journal.

The journal knows its file by length and checksum. The state of a node is the file with the changes
of the journal which follow it (:mod:`.journal`). When somebody else has written the file, an editor
or a program which restores a copy, nobody can tell what the state is: reading raises
:exc:`OtherBaseError`, and the journal stays until an administrator has decided (:mod:`.by_hand`).
All of these leave that state unchanged if the process or the machine dies at any moment:

appending
    A record counts when it is complete. It is acknowledged after it was flushed.
folding in
    The new file is durable before it gets its name, and the name is durable before the journal
    becomes shorter. Between the two, the journal begins with records which the file has; readers
    skip them.
replacing
    The journal gets a record with the checksum of the new file first, the new file its name then,
    and the journal is removed last. A journal of which it is not known that the new file has its
    changes is never removed, but set aside under another name.

Writers hold the lock of the configuration (:func:`ganeti.platform.master_epoch.config_lock`).
Readers need no lock, because they read the journal *before* the file: records which leave the
journal meanwhile are in the file by then.

When a file or a journal cannot be read, or do not belong together, the functions raise
:exc:`OSError` with its name: a journal is never left out.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import hashlib
import logging
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Final, NamedTuple

from ganeti import errors
from ganeti.configfile import journal as records
from ganeti.configfile.content import Change, Content, Part
from ganeti.configfile.journal import Base, State
from ganeti.platform import users
from ganeti.utils import fs, retry

_log = logging.getLogger(__name__)

_SHOW_COMMAND: Final = "cfgshell --journal=show"

#: Mode of the file, and of a new journal.
FILE_MODE: Final = 0o640

#: Smallest file which gets a journal. Smaller ones are replaced with each change.
JOURNAL_FROM_BYTES: Final = 1 << 20
# With more than this in the journal or in one record, the file is replaced.
_JOURNAL_MAX_BYTES: Final = 8 << 20
_RECORD_MAX_BYTES: Final = 1 << 20
_MAX_PARTS: Final = 8_000

_FLUSH_EVERY: Final = 2 << 20
_READ_BYTES: Final = 1 << 20
# Between two readings of file and journal, others may write both.
_READ_TRIES: Final = 20
_SET_ASIDE: Final = "set-aside-"
#: So many journals are kept which were set aside.
MOST_SET_ASIDE: Final = 10


def journal_of(path: str) -> str:
    """Return the path of the journal of a file."""
    return f"{path}.journal"


class _SupersededError(Exception):
    """The file or the journal was replaced meanwhile."""


class OtherBaseError(OSError):
    """A journal has changes of another text than the present file.

    :ivar highest: the highest serial number which this node may have; 0 if that is not known.
    """

    def __init__(self, path: str, serial_no: int | None, present: int | None) -> None:
        upto = "" if serial_no is None else f", up to serial number {serial_no},"
        has = "" if present is None else f" (serial number {present})"
        super().__init__(
            errno.ESTALE,
            f"its acknowledged changes{upto} belong to another text than the present"
            f" {os.path.basename(path)}{has}, which somebody has edited, restored or replaced. Stop"
            f" the master daemon, and run '{_SHOW_COMMAND}', which shows the changes and the ways"
            " out",
            journal_of(path),
        )
        self.highest = max(serial_no or 0, present or 0)


class FileAlone:
    """A file which is open, and what tells whether a journal belongs to it."""

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self.fd = fd
        self.stat = os.fstat(fd)
        self._checksum: int | None = None

    def read_range(self, offset: int, length: int) -> bytes:
        """Read a range of the file."""
        return os.pread(self.fd, length, offset)

    def end(self) -> bytes:
        """Return the last bytes of the file."""
        length = min(records.END_BYTES, self.stat.st_size)
        return self.read_range(self.stat.st_size - length, length)

    def chunks(self, parts: Iterable[Part]) -> Iterator[bytes]:
        """Read a text made of parts of the file.

        :raises OSError: the file became shorter.
        """
        for part in parts:
            if isinstance(part, bytes):
                yield part
                continue
            offset, end = part[0], sum(part)
            while offset < end:
                chunk = self.read_range(offset, min(_READ_BYTES, end - offset))
                if not chunk:
                    raise OSError(5, "the file became shorter while it was read", self.path)
                yield chunk
                offset += len(chunk)

    def is_base(self, base: Base) -> bool:
        """Tell whether this is a file which a journal knows."""
        if base.size != self.stat.st_size:
            return False
        return base.stamps == _stamps_of(self.stat) or base.checksum == self.as_base().checksum

    def as_base(self) -> Base:
        """Return what a new journal says of this file."""
        if self._checksum is None:
            self._checksum = checksum_of(self.chunks(((0, self.stat.st_size),)))
        return Base(self.stat.st_size, self._checksum, _stamps_of(self.stat), 0)

    def state(self, journal: bytes) -> State:
        """Return the state which the file and a journal make.

        :raises OtherBaseError: the journal belongs to another file.
        """
        found = records.belonging(journal, self.is_base, self.end())
        begin = found.start or 0
        start = State(Content.of_file(self.stat.st_size), begin, begin)
        state = records.advance(start, journal, self.read_range)
        if found.start is not None and (found.has_base or state.in_use):
            return state
        present = records.serial_of_end(self.end())
        # A journal of an earlier version does not say to which file it belongs.
        if found.start is None or (found.serial_no or 0) > (present or 0):
            raise OtherBaseError(self.path, found.serial_no, present)
        return state


def _stamps_of(stat: os.stat_result) -> tuple[int, ...]:
    return stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns


def checksum_of(chunks: Iterable[bytes]) -> int:
    """Return the checksum of a text as it is in a journal."""
    found = 0
    for chunk in chunks:
        found = zlib.crc32(chunk, found)
    return found


class Snapshot:
    """The state of a configuration at one moment, open for reading; see :func:`opened`.

    :ivar state: the file with its journal.
    """

    def __init__(self, path: str, fd: int, journal: bytes | None) -> None:
        self.path = path
        self.journal = journal
        self._file = FileAlone(path, fd)
        self.state = self._file.state(journal or b"")

    def read(self) -> bytes:
        """Return the whole text."""
        return b"".join(self._chunks())

    def end(self, length: int) -> bytes:
        """Return the last bytes of the text."""
        content = self.state.content
        length = min(length, content.size)
        return records.joined(content.cut(content.size - length, length), self._file.read_range)

    def digest(self, algorithm: str) -> str:
        """Return the digest of the text in hexadecimal.

        :param algorithm: a name of :mod:`hashlib`.
        """
        found = hashlib.new(algorithm, usedforsecurity=False)
        for chunk in self._chunks():
            found.update(chunk)
        return found.hexdigest()

    def checksum(self) -> int:
        """Return the checksum of the text as it is in a journal."""
        return checksum_of(self._chunks())

    def _chunks(self) -> Iterator[bytes]:
        return self._file.chunks(self.state.content.parts)

    def is_present(self) -> bool:
        """Tell whether file and journal still begin with what was read; the caller has the lock."""
        try:
            now, known = os.stat(self.path), self._file.stat
        except FileNotFoundError:
            return False
        # An editor may have written into the file which is open.
        return _content_stamps(now) == _content_stamps(known) and (
            (read_journal(self.path) or b"")[: self.state.read]
            == (self.journal or b"")[: self.state.read]
        )


def _content_stamps(stat: os.stat_result) -> tuple[int, ...]:
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns


@contextlib.contextmanager
def opened(path: str) -> Iterator[Snapshot]:
    """Open the present state of a configuration.

    :param path: of the file; it may have no journal.
    :raises FileNotFoundError: there is no file; a journal alone is not a configuration.
    :raises OtherBaseError: the journal belongs to another file.
    :raises OSError: the file or the journal cannot be read; the error has its name.
    """
    with contextlib.ExitStack() as held:
        for tries_left in reversed(range(_READ_TRIES)):
            journal = read_journal(path)
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            held.callback(os.close, fd)
            try:
                snapshot = Snapshot(path, fd, journal)
                break
            except OtherBaseError:
                # Both may have been written between the two readings.
                if not tries_left or journal == read_journal(path):
                    raise
        yield snapshot


def read(path: str) -> bytes:
    """Return the text of a configuration; see :func:`opened`.

    :raises OSError: it cannot be read.
    """
    with opened(path) as found:
        return found.read()


def why_missing(path: str, otherwise: str) -> str:
    """Return a sentence which says why a file may be missing.

    :param otherwise: the sentence when nothing else is known.
    """
    if not os.path.lexists(journal_of(path)):
        return otherwise
    return (
        f"Its journal {journal_of(path)} is there, so the file was moved away. Put it back;"
        f" '{_SHOW_COMMAND}' looks for it."
    )


@contextlib.contextmanager
def file_alone(path: str) -> Iterator[FileAlone]:
    """Open a file without its journal; :func:`opened` is for everybody who needs the state.

    :raises OSError: it cannot be read.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield FileAlone(path, fd)
    finally:
        os.close(fd)


def read_journal(path: str) -> bytes | None:
    """Return the content of the journal of a file; None without one.

    :raises OSError: it cannot be read.
    """
    try:
        return fs.read_bytes(journal_of(path))
    except FileNotFoundError:
        return None


# -- replacing the file ----------------------------------------------------------------------------


def write_config_file(path: str, text: bytes | Sequence[bytes]) -> None:
    """Write a whole configuration, atomically and with its mode and group; its journal ends.

    :param text: the whole text, or its pieces.
    :raises OSError: the file could not be written; nothing was changed.
    """
    # The file keeps its group: the query daemon may have a user of its own, who is in that group.
    replace(path, text, mode=FILE_MODE, gid=users.kept_group(path))


def replace(
    path: str, text: str | bytes | Sequence[bytes], *, mode: int, uid: int = -1, gid: int = -1
) -> None:
    """Write a whole configuration; parameters and errors are those of :func:`fs.write_file`."""
    pieces = [text.encode("utf-8")] if isinstance(text, str) else text
    if isinstance(pieces, bytes):
        pieces = [pieces]
    if not os.path.lexists(journal_of(path)):
        fs.write_file(path, pieces, mode=mode, uid=uid, gid=gid)
        return
    known = _is_known(path)
    if known:
        _announce(path, sum(map(len, pieces)), checksum_of(pieces))
    fs.write_file(path, pieces, mode=mode, uid=uid, gid=gid)
    if known:
        _drop_journal(path)
    else:
        set_aside(path)


def _is_known(path: str) -> bool:
    """Tell whether a journal belongs to the present file."""
    try:
        with opened(path):
            return True
    except OSError as err:
        _log.error("%s is kept under another name: %s", journal_of(path), err.strerror)
        return False


def _announce(path: str, size: int, checksum: int) -> None:
    """Let the journal know a file which is about to be the next one and has all its changes.

    :param size: length of the file in bytes; ``checksum`` is that of :func:`checksum_of`.
    :raises OSError: the journal was not changed.
    """
    journal = read_journal(path) or b""
    end = _end_of_records(journal)
    # Behind damage no record would be read.
    if end and not _is_damaged(journal[end:]):
        _append(journal_of(path), end, records.encode_base(Base(size, checksum, (), end)))


def _end_of_records(journal: bytes) -> int:
    end = 0
    for entry in records.records(journal):
        end = entry.place
    return end


def _is_damaged(rest: bytes) -> bool:
    """Tell whether there are records behind one which cannot be read."""
    return b"\nGC1 " in rest


def set_aside(path: str) -> str | None:
    """Give a journal another name, under which no program reads it.

    The oldest of more than :data:`MOST_SET_ASIDE` are removed.

    :returns: its new path; None without a journal.
    """
    kept = sorted(set_aside_journals(path), key=_number_of)
    name = f"{journal_of(path)}.{_SET_ASIDE}{_number_of(kept[-1]) + 1 if kept else 1}"
    try:
        os.rename(journal_of(path), name)
    except FileNotFoundError:
        return None
    for old in kept[: -MOST_SET_ASIDE + 1]:
        fs.remove_file(old)
    fs.flush_dir(os.path.dirname(path) or ".")
    _log.warning("%s is kept as %s", journal_of(path), name)
    return name


def set_aside_journals(path: str) -> list[str]:
    """Return the paths of the journals which were set aside."""
    found = glob.glob(f"{glob.escape(journal_of(path))}.{_SET_ASIDE}*")
    return [name for name in found if _number_of(name)]


def _number_of(name: str) -> int:
    number = name.rpartition("-")[2]
    return int(number) if number.isdecimal() and len(number) < 10 else 0


def own_files(path: str) -> list[str]:
    """Return all files which belong to a configuration, in the order of their removal.

    The journals are first: without its file, a journal may be what an administrator looks for.
    """
    return [journal_of(path), *set_aside_journals(path), path]


def remove(path: str) -> None:
    """Remove a configuration and its journals; the caller flushes the directory.

    :raises OSError: a file cannot be removed.
    """
    for name in own_files(path):
        fs.remove_file(name)


def _drop_journal(path: str) -> None:
    """Remove a journal whose changes are in the file."""
    try:
        os.unlink(journal_of(path))
    except FileNotFoundError:
        return
    fs.flush_dir(os.path.dirname(path) or ".")


# -- changing it -----------------------------------------------------------------------------------


class _Known(NamedTuple):
    """What this process knows of a file which it changed last."""

    path: str
    stamps: tuple[object, ...]
    state: State


# Only a hint: it is used when file and journal are exactly what this process left.
_known: _Known | None = None


def change(path: str, wanted: Change) -> bool:
    """Change a configuration; the change is durable when this returns.

    A large file gets a record in its journal, a small one is replaced.

    :returns: False when the present text is not the one to which the change applies, or is not
        known because the journal belongs to another file; nothing was changed.
    :raises ValueError: the parts are not in the present text, or do not add up to the new length;
        nothing was changed.
    :raises OSError: nothing was changed.
    """
    global _known
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        present = FileAlone(path, fd)
        if _known is not None and _known.path == path and _known.stamps == _stamps(path):
            state = _known.state
        else:
            try:
                state = present.state(read_journal(path) or b"")
            except OtherBaseError:
                return False
        if not records.is_base(state.content, wanted, present.read_range):
            return False
        _known = None
        _known = _made(present, state, wanted)
    finally:
        os.close(fd)
    return True


def _made(present: FileAlone, state: State, wanted: Change) -> _Known | None:
    """Make a change which follows the present state.

    :returns: what is known of file and journal then.
    """
    path, size = present.path, present.stat.st_size
    after = state.content.changed(wanted.parts)
    if after.size != wanted.new_bytes:
        raise ValueError(f"the parts are {after.size} bytes, not {wanted.new_bytes}")
    if not _may_append(size, state, after):
        _replaced(present, after)
        return None
    length = min(records.END_BYTES, after.size)
    end = records.joined(after.cut(after.size - length, length), present.read_range)
    record = records.encode(wanted, end)
    if len(record) > _RECORD_MAX_BYTES:
        _replaced(present, after)
        return None
    if state.in_use:
        _append(journal_of(path), state.read, record)
        state = state._replace(content=after, read=state.read + len(record))
    else:
        # Also when there is one whose changes the file has.
        begin = records.encode_base(present.as_base())
        _write_journal(path, begin + record)
        state = State(after, len(begin) + len(record), len(begin))
    return _Known(path, _stamps(path), state)


def _replaced(present: FileAlone, after: Content) -> None:
    """Replace the file by a text which is made of parts of it."""
    path = present.path
    if os.path.exists(journal_of(path)):
        _announce(path, after.size, checksum_of(present.chunks(after.parts)))
    fs.rewrite_file(path, after.parts)
    _drop_journal(path)


def _may_append(file_bytes: int, state: State, after: Content) -> bool:
    return (
        file_bytes >= JOURNAL_FROM_BYTES
        and not state.ended
        and state.read < _JOURNAL_MAX_BYTES
        and len(after.parts) < _MAX_PARTS
    )


def _stamps(path: str) -> tuple[object, ...]:
    """Return what tells whether another process has written the file or its journal."""
    found: list[object] = []
    for name in (path, journal_of(path)):
        try:
            stat = os.stat(name)
        except FileNotFoundError:
            found.append(None)
        else:
            found.append(
                (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
            )
    return tuple(found)


def _write_journal(path: str, content: bytes) -> None:
    """Write a journal anew. It has the mode and the owner of the file: the same users read both."""
    uid, gid = users.same_owner(path) if os.geteuid() == 0 else (-1, users.kept_group(path))
    mode = os.stat(path).st_mode & 0o777
    fs.write_file(journal_of(path), content, mode=mode, uid=uid, gid=gid)


def _append(path: str, at: int, record: bytes) -> None:
    """Append a record behind the valid ones, and flush it.

    :raises OSError: the record does not count.
    """
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        if os.fstat(fd).st_size > at:
            # Of a process which died while it wrote; it has acknowledged nothing of it.
            os.ftruncate(fd, at)
        try:
            left, place = memoryview(record), at
            while left:
                written = os.pwrite(fd, left, place)
                left, place = left[written:], place + written
            os.fdatasync(fd)
        except OSError:
            os.ftruncate(fd, at)
            raise
    except OSError as err:
        raise OSError(err.errno, err.strerror, path) from err
    finally:
        os.close(fd)


# -- folding in ------------------------------------------------------------------------------------


def fold(path: str, lock: Callable[[], AbstractContextManager[None]]) -> bool:
    """Write what a journal has into the file, and remove the journal.

    Changes go on meanwhile; the lock is taken only for the end. Records which were appended
    meanwhile stay in the journal.

    :param lock: takes the lock of the configuration.
    :returns: whether there was something to do, and it was done.
    :raises OtherBaseError: the journal belongs to another file; both are as they were.
    :raises FileNotFoundError: there is a journal without a file.
    :raises OSError: file and journal are as they were.
    :raises LockError: the lock was not free in time; file and journal are as they were.
    """
    name = journal_of(path)
    with contextlib.ExitStack() as held:
        try:
            mutex = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return False
        held.callback(os.close, mutex)
        try:
            # One process folds in at a time; for others there is nothing to do.
            fcntl.flock(mutex, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        try:
            snapshot = held.enter_context(opened(path))
        except FileNotFoundError as err:
            if not os.path.exists(name):
                return False
            raise FileNotFoundError(
                errno.ENOENT,
                f"the file to which its changes belong, {path}, is missing. Put it back, or remove"
                " both",
                name,
            ) from err
        state, checksum = snapshot.state, 0
        if state.in_use:
            checksum = snapshot.checksum()

        def take_lock() -> None:
            held.enter_context(lock())
            if not snapshot.is_present():
                raise _SupersededError
            if state.in_use and os.stat(name).st_size > state.read:
                # Otherwise the end of the file tells that it has everything.
                _announce_part(path, state, checksum)

        try:
            if state.in_use:
                fs.rewrite_file(
                    path, state.content.parts, flush_every=_FLUSH_EVERY, ready=take_lock
                )
            else:
                take_lock()
        except (_SupersededError, ValueError):
            # ValueError: there is another file, which is shorter.
            return False
        if _explain(name, snapshot):
            set_aside(path)
        else:
            _shorten(path, state.read, checksum)
    return True


def _announce_part(path: str, state: State, checksum: int) -> None:
    """Let the journal know a file which is about to have its first changes."""
    journal = read_journal(path) or b""
    end = _end_of_records(journal)
    if not _is_damaged(journal[end:]):
        base = Base(state.content.size, checksum, (), state.read)
        _append(journal_of(path), end, records.encode_base(base))


def fold_now(
    path: str,
    lock: Callable[[], AbstractContextManager[None]],
    *,
    timeout_s: float,
    last: bool = False,
) -> None:
    """Fold the journal in, and wait for another process which does so.

    :param last: no process appends any more, and no journal may be left. Otherwise records which
        come meanwhile stay in it.
    :raises OSError: the file cannot be written, or it was not possible in time.
    :raises LockError: the lock was not free in time.
    """
    journal = journal_of(path)

    def attempt() -> None:
        folded = fold(path, lock)
        if os.path.exists(journal) and (last or not folded):
            raise retry.Again(journal)

    if not os.path.exists(journal):
        return
    try:
        retry.until(attempt, timeout_s=timeout_s, delay=(0.05, 1.5, 1.0))
    except errors.RetryTimeout as err:
        raise OSError(errno.EBUSY, "other processes still write it", journal) from err


def _explain(name: str, snapshot: Snapshot) -> bool:
    """Log what was found in a journal besides the records of a run without accidents.

    :returns: whether it has changes which are not in the file, because it is damaged.
    """
    journal, state = snapshot.journal or b"", snapshot.state
    rest = journal[state.read :]
    damaged = state.ended or _is_damaged(rest)
    if damaged:
        _log.error(
            "%s is damaged after %d bytes: the changes behind that are missing in the configuration"
            " of this node. The master sends it the whole file with the next change.",
            name,
            state.read,
        )
    elif rest:
        _log.info("%s ends with %d bytes which were never acknowledged", name, len(rest))
    if state.skipped and not state.in_use:
        _log.info("removing %s: the configuration has its changes", name)
    return damaged


def _shorten(path: str, done: int, checksum: int) -> None:
    """Remove the changes from a journal which the file has now; the caller holds the lock.

    :param checksum: of the file.
    """
    journal = read_journal(path) or b""
    left, begin = [], done
    for entry in records.records(journal, done):
        # The bases name places in this journal.
        if entry.change is not None:
            left.append(journal[begin : entry.place])
        begin = entry.place
    if not left:
        _drop_journal(path)
        return
    found = os.stat(path)
    base = Base(found.st_size, checksum, _stamps_of(found), 0)
    _write_journal(path, b"".join([records.encode_base(base), *left]))
