"""The file of the configuration and its journal: reading, changing, replacing, folding in.

``config.data`` is replaced as a whole, so it is a whole configuration at every moment. When it is
large (:data:`JOURNAL_FROM_BYTES`), a change is appended to ``config.data.journal`` instead, and
flushed there; some seconds later the node daemon *folds the journal in*: it writes a file with all
changes, gives it the name ``config.data``, and removes the journal. A small file has no journal.

The state of a node is the file with the changes of the journal which follow it (:mod:`.journal`).
All of these leave that state unchanged if the process or the machine dies at any moment:

appending
    A record counts when it is complete. It is acknowledged after it was flushed.
folding in
    The new file is durable before it gets its name, and the name is durable before the journal
    becomes shorter. Between the two, the journal begins with records which the file has; readers
    skip them.
replacing
    The new file gets its name first, and the journal is removed then. Its records do not follow the
    new file.

Writers hold the lock of the configuration (:func:`ganeti.platform.master_epoch.config_lock`).
Readers need no lock, because they read the journal *before* the file: records which leave the
journal meanwhile are in the file by then.

When a file or a journal cannot be read, the functions raise :exc:`OSError` with its name: a journal
is never left out.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Final, NamedTuple

from ganeti import errors
from ganeti.configfile import journal as records
from ganeti.configfile.content import Change, Content
from ganeti.configfile.journal import State
from ganeti.platform import users
from ganeti.utils import fs, retry

_log = logging.getLogger(__name__)

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


def journal_of(path: str) -> str:
    """Return the path of the journal of a file."""
    return f"{path}.journal"


class _SupersededError(Exception):
    """The file or the journal was replaced meanwhile."""


class Snapshot:
    """The state of a configuration at one moment, open for reading; see :func:`opened`.

    :ivar state: the file with its journal.
    """

    def __init__(self, path: str, fd: int, journal: bytes | None) -> None:
        self.path = path
        self._fd = fd
        self.journal = journal
        start = State(Content.of_file(os.fstat(fd).st_size))
        self.state = records.advance(start, journal or b"", self.read_range)

    def read_range(self, offset: int, length: int) -> bytes:
        """Read a range of the file alone."""
        return os.pread(self._fd, length, offset)

    def read(self) -> bytes:
        """Return the whole text."""
        return b"".join(self._chunks())

    def end(self, length: int) -> bytes:
        """Return the last bytes of the text."""
        content = self.state.content
        length = min(length, content.size)
        return records.joined(content.cut(content.size - length, length), self.read_range)

    def digest(self, algorithm: str) -> str:
        """Return the digest of the text in hexadecimal.

        :param algorithm: a name of :mod:`hashlib`.
        """
        found = hashlib.new(algorithm, usedforsecurity=False)
        for chunk in self._chunks():
            found.update(chunk)
        return found.hexdigest()

    def _chunks(self) -> Iterator[bytes]:
        for part in self.state.content.parts:
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

    def is_present(self) -> bool:
        """Tell whether file and journal still begin with what was read; the caller has the lock."""
        try:
            now, known = os.stat(self.path), os.fstat(self._fd)
        except FileNotFoundError:
            return False
        return (now.st_dev, now.st_ino) == (known.st_dev, known.st_ino) and (
            (_read_journal(self.path) or b"")[: self.state.read]
            == (self.journal or b"")[: self.state.read]
        )


@contextlib.contextmanager
def opened(path: str) -> Iterator[Snapshot]:
    """Open the present state of a configuration.

    :param path: of the file; it may have no journal.
    :raises FileNotFoundError: there is no file; a journal alone is not a configuration.
    :raises OSError: the file or the journal cannot be read; the error has its name.
    """
    journal = _read_journal(path)
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield Snapshot(path, fd, journal)
    finally:
        os.close(fd)


def read(path: str) -> bytes:
    """Return the text of a configuration; see :func:`opened`.

    :raises OSError: it cannot be read.
    """
    with opened(path) as found:
        return found.read()


def _read_journal(path: str) -> bytes | None:
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
    fs.write_file(path, text, mode=mode, uid=uid, gid=gid)
    _drop_journal(path)


def remove(path: str) -> None:
    """Remove a configuration and its journal; the caller flushes the directory.

    :raises OSError: a file cannot be removed.
    """
    fs.remove_file(path)
    fs.remove_file(journal_of(path))


def _drop_journal(path: str) -> None:
    """Remove a journal whose records do not follow the file any more."""
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

    :returns: False when the present text is not the one to which the change applies; nothing was
        changed.
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
        found = os.fstat(fd)
        if _known is not None and _known.path == path and _known.stamps == _stamps(path):
            state = _known.state
        else:
            start = State(Content.of_file(found.st_size))
            state = records.advance(start, _read_journal(path) or b"", _reader(fd))
        if not records.is_base(state.content, wanted, _reader(fd)):
            return False
    finally:
        os.close(fd)
    after = state.content.changed(wanted.parts)
    if after.size != wanted.new_bytes:
        raise ValueError(f"the parts are {after.size} bytes, not {wanted.new_bytes}")
    record = records.encode(wanted) if _may_append(found.st_size, state, after) else None
    _known = None
    if record is None or len(record) > _RECORD_MAX_BYTES:
        fs.rewrite_file(path, after.parts)
        _drop_journal(path)
        return True
    if state.in_use:
        _append(journal_of(path), state.read, record)
        state = state._replace(content=after, read=state.read + len(record))
    else:
        # Also when there is one whose records do not follow the file.
        _write_journal(path, record)
        state = State(after, len(record))
    _known = _Known(path, _stamps(path), state)
    return True


def _may_append(file_bytes: int, state: State, after: Content) -> bool:
    return (
        file_bytes >= JOURNAL_FROM_BYTES
        and not state.ended
        and state.read < _JOURNAL_MAX_BYTES
        and len(after.parts) < _MAX_PARTS
    )


def _reader(fd: int) -> records.ReadRange:
    return lambda offset, length: os.pread(fd, length, offset)


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
        except FileNotFoundError:
            return _remove_orphan(path, lock)

        def take_lock() -> None:
            held.enter_context(lock())
            if not snapshot.is_present():
                raise _SupersededError

        try:
            if snapshot.state.in_use:
                fs.rewrite_file(
                    path, snapshot.state.content.parts, flush_every=_FLUSH_EVERY, ready=take_lock
                )
            else:
                take_lock()
        except (_SupersededError, ValueError):
            # ValueError: there is another file, which is shorter.
            return False
        _explain(name, snapshot)
        _shorten(path, snapshot.state.read)
    return True


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


def _remove_orphan(path: str, lock: Callable[[], AbstractContextManager[None]]) -> bool:
    with lock():
        if os.path.exists(path):
            return False
        _log.info("removing %s: the configuration to which it belonged is gone", journal_of(path))
        _drop_journal(path)
    return True


def _explain(name: str, snapshot: Snapshot) -> None:
    """Log what was found in a journal besides the records of a run without accidents."""
    journal, state = snapshot.journal or b"", snapshot.state
    rest = journal[state.read :]
    if state.ended or b"\nGC1 " in rest:
        _log.error(
            "%s is damaged after %d bytes: the changes behind that are missing in the configuration"
            " of this node. The master sends it the whole file with the next change.",
            name,
            state.read,
        )
    elif rest:
        _log.info("%s ends with %d bytes which were never acknowledged", name, len(rest))
    if state.skipped and not state.in_use:
        _log.info("removing %s: the configuration has its changes, or a newer state", name)


def _shorten(path: str, done: int) -> None:
    """Remove the records from a journal which the file has now; the caller holds the lock."""
    journal = _read_journal(path) or b""
    end = done
    for _change, place in records.records(journal, done):
        end = place
    if end > done:
        _write_journal(path, journal[done:end])
    else:
        _drop_journal(path)
