"""Jobs on disk, on the master and on the other candidates.

The queue directory is an interface: other programs read ``job-N``, ``serial``, ``version`` and
``archive/`` (seed 001 *Queue structure*), and each of these appears by rename, whole. Flushing
every such file and its directory for every change would cost two flushes per job, so durability has
a place of its own, the *journal*: one commit appends the new content of everything that changed to
one file and flushes that once (``fdatasync``). The files themselves are then replaced without a
flush. After a crash the journal is replayed over whatever the files have become; when a journal has
grown, a new one is begun, the files named in the old one are flushed, and the old one is removed
(:meth:`QueueStore.checkpoint`). A stop in good order leaves no journal behind.

A journal is a sequence of records::

    GJ1 <crc32 of the payload> <bytes in the payload>\\n<payload>\\n

whose payload is one line of JSON, ``{"files": [[name, bytes], ...], "archive": [ids]}``, followed
by the contents of these files. A torn record at the end was never acknowledged and is dropped. The
first record of a journal names how much of its predecessor counts (``"after"``), so that a record
whose flush failed, and which was therefore reported as failed, cannot come back later.

A full disk makes :meth:`QueueStore.commit` fail with nothing changed. When only a job's file cannot
be replaced, the journal keeps its content until that works.

The master daemon writes the queue of its node; on other candidates the node daemon writes the copy
in the same way, so that a message costs one flush, too (:mod:`.queue_copy`). Who has opened the
directory with ``lock_wait_s`` keeps it locked (a flock on the directory itself) until
:meth:`QueueStore.close`.

One thread commits, another may apply, a third make checkpoints. Source for the names: seed 001 *Job
Queue*.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import re
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ganeti import errors
from ganeti.constants import job as const
from ganeti.platform import users
from ganeti.utils import fs, retry
from ganeti.wire import json

_log = logging.getLogger(__name__)

# A journal above this size is replaced by a new one at the next commit.
JOURNAL_BYTES = 4 << 20

_JOB_FILE = re.compile(r"job-([1-9][0-9]*|0)\Z")
_JOURNAL_FILE = re.compile(r"journal-([0-9]+)\Z")
_HEADER = re.compile(rb"GJ1 ([0-9a-f]{8}) ([0-9]{1,12})\n")
_TEMPORARY_PREFIX = ".queue-"
# What a killed process may leave: our own, and those of fs.write_file.
_TEMPORARY_FILE = re.compile(r"\.queue-.*|\.(drain|version)\.[0-9]+\.[0-9]+\.new")

SERIAL = "serial"
VERSION = "version"
DRAIN = "drain"
ARCHIVE = "archive"


def job_file(job_id: int) -> str:
    """Name of a live job's file in the queue directory."""
    return f"job-{job_id}"


def archive_file(job_id: int) -> str:
    """Name of an archived job's file, relative to the queue directory."""
    return f"{ARCHIVE}/{job_id // const.JOBS_PER_ARCHIVE_DIR}/job-{job_id}"


def _no_fault(_step: str) -> None:
    """What happens before each step on the disk in normal life."""


class QueueStore:
    """The queue directory of this node.

    :param lock_wait_s: keep other processes out, and wait so long for one that is at work; None:
        the caller sees to it that there is none.
    :param fault: called with a name before every write, flush, rename and removal; tests let it
        raise :exc:`OSError` or kill the process.
    """

    def __init__(
        self,
        directory: str,
        *,
        journal_bytes: int = JOURNAL_BYTES,
        lock_wait_s: float | None = None,
        fault: Callable[[str], None] = _no_fault,
    ) -> None:
        self.directory = directory
        self._journal_bytes = journal_bytes
        self._lock_wait_s = lock_wait_s
        self._lock_fd: int | None = None
        self._fault = fault
        self._fd: int | None = None
        self._number = 0
        self._good_bytes = 0
        # How much of a journal that must not be used further counts: (number, bytes).
        self._after: tuple[int, int] | None = None
        # Names which a journal holds and whose files were not flushed: by journal number.
        self._touched: dict[int, set[str]] = {}
        # To whom files are given: the queue of a master daemon without root is his on all nodes.
        self._owner = (-1, -1)
        # What is in a journal and not yet in its place: content by name, jobs to be archived.
        self._unwritten: dict[str, str] = {}
        self._unmoved: list[int] = []
        # Guards the three above; held for moments only.
        self._lock = threading.Lock()
        # One thread at a time replaces files, and one makes a checkpoint.
        self._apply_lock = threading.Lock()
        self._checkpoint_lock = threading.Lock()

    # -- start and stop --------------------------------------------------------------------------

    def open(self) -> None:
        """Make the directory usable and replay what an earlier run left in its journals.

        :raises errors.JobQueueError: the directory cannot be used, has another version, or another
            process works on it.
        """
        try:
            fs.make_dirs(self.directory, 0o750)
            self._owner = users.owner_inside(self.directory)
            self._make_dirs(self._path(ARCHIVE))
            self._lock_directory()
            self._check_version()
            names = os.listdir(self.directory)
            self._remove_temporary(names)
            self._replay(names)
        except OSError as err:
            raise errors.JobQueueError(
                f"cannot use the job queue in {self.directory}: {err}"
            ) from err

    def close(self) -> None:
        """Flush every file and remove the journal; an error leaves the journal for the next run."""
        self._close_journal()
        try:
            self.checkpoint()
        except OSError as err:
            _log.warning("cannot flush the job queue, its journal stays: %s", err)
        self._unlock_directory()

    def abandon(self) -> None:
        """Do nothing more, for another process works here now; what is missing it has replayed."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
        self._unlock_directory()

    def _lock_directory(self) -> None:
        if self._lock_wait_s is None or self._lock_fd is not None:
            return
        fd = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

        def attempt() -> None:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as err:
                raise retry.Again(self.directory) from err

        try:
            retry.until(attempt, timeout_s=self._lock_wait_s, delay=(0.01, 1.5, 0.2))
        except BaseException as err:
            os.close(fd)
            if isinstance(err, errors.RetryTimeout):
                raise errors.JobQueueError(
                    f"another process works on the job queue in {self.directory}"
                ) from err
            raise
        self._lock_fd = fd

    def _unlock_directory(self) -> None:
        if self._lock_fd is not None:
            fd, self._lock_fd = self._lock_fd, None
            os.close(fd)

    def _check_version(self) -> None:
        path = self._path(VERSION)
        try:
            text = fs.read_file(path).strip()
        except FileNotFoundError:
            self._replace(VERSION, f"{const.QUEUE_VERSION}\n")
            self._flush_files([VERSION])
            return
        if text != str(const.QUEUE_VERSION):
            raise errors.JobQueueError(
                f"job queue in {self.directory} has version {text!r}, this program reads"
                f" {const.QUEUE_VERSION}"
            )

    def _remove_temporary(self, names: Iterable[str]) -> None:
        """Take away what a killed process was writing."""
        for name in names:
            if _TEMPORARY_FILE.fullmatch(name):
                fs.remove_file(self._path(name))

    # -- reading ---------------------------------------------------------------------------------

    def job_ids(self) -> list[int]:
        """Ids of the live jobs, ascending. Foreign files are left alone.

        :raises OSError: the directory cannot be read.
        """
        return ids_in(self.directory)

    def archived_ids(self) -> Iterator[int]:
        """Ids of the archived jobs, ascending.

        :raises OSError: the archive cannot be read.
        """
        parts = [int(name) for name in os.listdir(self._path(ARCHIVE)) if name.isdecimal()]
        for part in sorted(parts):
            yield from ids_in(self._path(f"{ARCHIVE}/{part}"))

    def read_job(self, job_id: int) -> str | None:
        """Text of a live job's file; None when there is none.

        :raises OSError: it cannot be read.
        """
        return self._read(job_file(job_id))

    def read_archived(self, job_id: int) -> str | None:
        """Text of an archived job's file; None when there is none.

        :raises OSError: it cannot be read.
        """
        return self._read(archive_file(job_id))

    def read_published(self, name: str) -> str | None:
        """Newest text of a file by its name in the directory; None when there is none.

        A job that was archived meanwhile is found under its old name, too.

        :raises OSError: it cannot be read.
        """
        text = self._read(name)
        match = _JOB_FILE.match(name)
        if text is None and match is not None:
            text = self._read(archive_file(int(match[1])))
        return text

    def read_serial(self) -> int:
        """The last job id that was given out; 0 in a new queue.

        :raises errors.JobQueueError: the file holds something else.
        :raises OSError: it cannot be read.
        """
        text = self._read(SERIAL)
        if text is None:
            return 0
        if not text.strip().isdecimal():
            raise errors.JobQueueError(
                f"file {self._path(SERIAL)} holds no job id. Write the highest id of all jobs,"
                " archived ones included, into it."
            )
        return int(text)

    def drained(self) -> bool:
        """Whether the queue is marked to take no new jobs."""
        return os.path.exists(self._path(DRAIN))

    def _read(self, name: str) -> str | None:
        with self._lock:
            waiting = self._unwritten.get(name)
        if waiting is not None:
            return waiting
        try:
            return fs.read_file(self._path(name))
        except FileNotFoundError:
            return None

    # -- writing ---------------------------------------------------------------------------------

    def set_drained(self, drained: bool) -> None:
        """Mark the queue, or take the mark away; durable.

        :raises errors.JobQueueError: the disk refused.
        """
        try:
            if drained:
                self._replace(DRAIN, "")
            else:
                self._fault("remove drain")
                fs.remove_file(self._path(DRAIN))
            self._fault("flush directory")
            fs.flush_dir(self.directory)
        except OSError as err:
            raise errors.JobQueueError(f"cannot change the drain flag of the queue: {err}") from err

    def commit(self, files: Mapping[str, str], archive: Sequence[int] = ()) -> None:
        """Make new content of files, and moves into the archive, durable with one flush.

        The files themselves are replaced by the next :meth:`apply`.

        :param files: content by name in the queue directory.
        :raises errors.JobQueueError: nothing was changed.
        """
        try:
            if self._fd is not None and self._good_bytes >= self._journal_bytes:
                self._close_journal()
            if self._fd is None:
                self._begin_journal()
            record = _record(files, archive, self._after)
            self._append(record)
        except OSError as err:
            raise errors.JobQueueError(
                f"cannot write to the job queue in {self.directory}: {err.strerror or err}"
            ) from err
        self._after = None
        with self._lock:
            touched = self._touched.setdefault(self._number, set())
            touched.update(files)
            touched.update(map(archive_file, archive))
            self._unwritten.update(files)
            self._unmoved.extend(archive)

    def apply(self) -> None:
        """Put what was committed into its files; of several versions only the newest.

        What fails is tried again the next time; the journal has it. May run in another thread than
        the one that commits.
        """
        with self._apply_lock:
            with self._lock:
                files = dict(self._unwritten)
                moves = list(self._unmoved)
            written = {}
            for name, text in files.items():
                try:
                    self._replace(name, text)
                except OSError as err:
                    _log.warning("cannot write %s yet: %s", self._path(name), err)
                else:
                    written[name] = text
            moved = set()
            for job_id in moves:
                # Not before its last content is in place.
                if files.get(job_file(job_id)) is not written.get(job_file(job_id)):
                    continue
                try:
                    self._archive(job_id)
                except OSError as err:
                    _log.warning("cannot archive job %d yet: %s", job_id, err)
                else:
                    moved.add(job_id)
            with self._lock:
                for name, text in written.items():
                    if self._unwritten[name] is text:
                        del self._unwritten[name]
                self._unmoved = [job_id for job_id in self._unmoved if job_id not in moved]

    def _replace(self, name: str, text: str) -> None:
        """Write a file and rename it, without a flush."""
        path = self._path(name)
        temporary = self._path(f"{_TEMPORARY_PREFIX}{name.replace('/', '-')}.new")
        if "/" in name:
            self._make_dirs(os.path.dirname(path))
        self._fault("write file")
        fd = os.open(
            temporary,
            os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW,
            const.QUEUE_FILE_MODE,
        )
        try:
            try:
                self._give(fd)
                _write_all(fd, text.encode("utf-8", "surrogateescape"))
            finally:
                os.close(fd)
            self._fault("rename file")
            os.rename(temporary, path)
        except OSError:
            with contextlib.suppress(OSError):
                fs.remove_file(temporary)
            raise

    def _make_dirs(self, path: str) -> None:
        uid, gid = self._owner
        fs.make_dirs(path, 0o750, uid=uid, gid=gid)

    def _give(self, fd: int) -> None:
        """Mode and owner of a file, before anything is in it."""
        os.fchmod(fd, const.QUEUE_FILE_MODE)
        if self._owner != (-1, -1):
            os.fchown(fd, *self._owner)

    def _archive(self, job_id: int) -> None:
        target = self._path(archive_file(job_id))
        name = job_file(job_id)
        self._fault("archive job")
        self._make_dirs(os.path.dirname(target))
        try:
            os.rename(self._path(name), target)
        except FileNotFoundError:
            if not os.path.exists(target):
                raise

    # -- journal ---------------------------------------------------------------------------------

    def _begin_journal(self) -> None:
        number = self._number + 1
        path = self._path(f"journal-{number}")
        self._fault("create journal")
        fd = os.open(
            path,
            os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW,
            const.QUEUE_FILE_MODE,
        )
        try:
            self._give(fd)
            self._fault("flush directory")
            fs.flush_dir(self.directory)
        except OSError:
            os.close(fd)
            with contextlib.suppress(OSError):
                fs.remove_file(path)
            raise
        self._fd = fd
        self._number = number
        self._good_bytes = 0

    def _append(self, record: bytes) -> None:
        assert self._fd is not None
        try:
            self._fault("write journal")
            os.lseek(self._fd, self._good_bytes, os.SEEK_SET)
            _write_all(self._fd, record)
        except OSError:
            # No flush was tried, so cutting the piece off is all there is to do.
            self._cut_journal(abandon=False)
            raise
        try:
            self._fault("flush journal")
            os.fdatasync(self._fd)
        except OSError:
            # What is on the disk now is unknown; this journal takes no further record.
            self._cut_journal(abandon=True)
            raise
        self._good_bytes += len(record)

    def _cut_journal(self, *, abandon: bool) -> None:
        assert self._fd is not None
        try:
            os.ftruncate(self._fd, self._good_bytes)
        except OSError:
            abandon = True
        if abandon:
            self._after = (self._number, self._good_bytes)
            self._close_journal()

    def _close_journal(self) -> None:
        if self._fd is not None:
            fd, self._fd = self._fd, None
            self._after = self._after or (self._number, self._good_bytes)
            os.close(fd)

    @property
    def journal_used(self) -> bool:
        """Whether a checkpoint would have something to do."""
        with self._lock:
            return bool(self._touched)

    @property
    def removed(self) -> bool:
        """Whether somebody took the journal in use away, and so the queue with it."""
        fd = self._fd
        if fd is not None:
            # Another thread may just have closed it, for a new one.
            with contextlib.suppress(OSError):
                return os.fstat(fd).st_nlink == 0
        return False

    @property
    def has_old_journals(self) -> bool:
        """Whether journals wait for a checkpoint besides the one in use."""
        with self._lock:
            return len(self._touched) > 1

    def end_journal(self) -> None:
        """Let the next commit begin a new journal; called by the committing thread."""
        self._close_journal()

    def checkpoint(self) -> None:
        """Flush the files of all journals but the one in use, then remove these journals.

        Safe in another thread than the committing one, which calls :meth:`end_journal` before when
        everything is to be flushed.

        :raises OSError: a flush failed; the journals stay.
        """
        with self._checkpoint_lock:
            with self._lock:
                in_use = self._number if self._fd is not None else None
                old = sorted(number for number in self._touched if number != in_use)
                if not old:
                    return
                names = set().union(*(self._touched[number] for number in old))
                content = {name: self._unwritten[name] for name in names if name in self._unwritten}
            self.apply()
            with self._lock:
                # Newer content that came meanwhile is in the journal in use.
                behind = [
                    name for name, text in content.items() if self._unwritten.get(name) is text
                ]
                behind += [name for name in map(archive_file, self._unmoved) if name in names]
            if behind:
                raise OSError(
                    errno.EAGAIN, "not everything could be written", self._path(behind[0])
                )
            self._flush_files(names)
            for number in old:
                self._fault("remove journal")
                fs.remove_file(self._path(f"journal-{number}"))
                with self._lock:
                    del self._touched[number]
            self._fault("flush directory")
            fs.flush_dir(self.directory)

    def _flush_files(self, names: Iterable[str]) -> None:
        directories = {self.directory}
        for name in names:
            match = _JOB_FILE.match(name)
            # A job may have been archived meanwhile. Its content must be safe all the same: the
            # journal of that move knows only the name.
            places = [name, archive_file(int(match[1]))] if match else [name]
            for place in places:
                path = self._path(place)
                self._fault("flush file")
                try:
                    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
                except FileNotFoundError:
                    continue
                try:
                    os.fdatasync(fd)
                finally:
                    os.close(fd)
                if "/" in place:
                    directories.add(os.path.dirname(path))
                    directories.add(self._path(ARCHIVE))
                break
        for directory in sorted(directories, reverse=True):
            self._fault("flush directory")
            fs.flush_dir(directory)

    # -- replay ----------------------------------------------------------------------------------

    def _replay(self, names: Iterable[str]) -> None:
        journals = _read_journals(self.directory, names)
        numbers = [number for number, _files, _archive in journals]
        self._number = numbers[-1] if numbers else 0
        changed: set[str] = set()
        for _number, files, archived in journals:
            for name, text in files.items():
                match = _JOB_FILE.match(name)
                if (
                    match
                    and not os.path.exists(self._path(name))
                    and os.path.exists(self._path(archive_file(int(match[1]))))
                ):
                    # Archived by a later record, which was applied before the crash; it moved a
                    # file that perhaps was never flushed.
                    name = archive_file(int(match[1]))
                self._replace(name, text)
                changed.add(name)
            for job_id in archived:
                try:
                    self._archive(job_id)
                except FileNotFoundError:
                    _log.warning("job queue: archived job %d has no file", job_id)
                changed.add(archive_file(job_id))
        if numbers:
            self._flush_files(changed)
            for number in numbers:
                self._fault("remove journal")
                fs.remove_file(self._path(f"journal-{number}"))
            fs.flush_dir(self.directory)
            _log.info("job queue: replayed %d files from %d journals", len(changed), len(numbers))

    def _path(self, name: str) -> str:
        return f"{self.directory}/{name}"


def has_journals(directory: str) -> bool:
    """Whether somebody writes this queue, or has left something to be done."""
    try:
        return any(map(_JOURNAL_FILE.match, os.listdir(directory)))
    except (FileNotFoundError, NotADirectoryError):
        return False


def journaled_serial(directory: str) -> int:
    """The highest job id in what was acknowledged and is perhaps not yet in its files; 0 for none.

    Whoever reads the files *after* this misses nothing.

    :raises OSError: it cannot be read.
    """
    highest = 0
    for _number, files, _archive in _read_journals(directory, os.listdir(directory)):
        for name, text in files.items():
            match = _JOB_FILE.match(name)
            if match is not None:
                highest = max(highest, int(match[1]))
            elif name == SERIAL and text.strip().isdecimal():
                highest = max(highest, int(text))
    return highest


def ids_in(directory: str) -> list[int]:
    """Ids of the jobs whose files lie in a directory, ascending.

    :raises OSError: it cannot be read.
    """
    with os.scandir(directory) as entries:
        return sorted(
            int(match[1])
            for entry in entries
            if (match := _JOB_FILE.match(entry.name)) and not entry.is_dir()
        )


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _record(
    files: Mapping[str, str], archive: Sequence[int], after: tuple[int, int] | None
) -> bytes:
    contents = [(name, text.encode("utf-8", "surrogateescape")) for name, text in files.items()]
    head: dict[str, Any] = {"files": [[name, len(data)] for name, data in contents]}
    if archive:
        head["archive"] = list(archive)
    if after is not None:
        head["after"] = list(after)
    payload = b"".join([json.dumps(head).encode("ascii"), b"\n", *(data for _, data in contents)])
    return b"GJ1 %08x %d\n%s\n" % (zlib.crc32(payload), len(payload), payload)


def _read_journals(
    directory: str, names: Iterable[str]
) -> list[tuple[int, dict[str, str], list[int]]]:
    """What counts of the journals among these names, oldest first.

    A journal which is removed meanwhile has become files and is left out.

    :returns: for each its number, the newest content of each file, and which jobs are archived.
    """
    records: dict[int, list[tuple[int, dict[str, Any], dict[str, str]]]] = {}
    valid_bytes: dict[int, int] = {}
    for number in sorted(int(match[1]) for name in names if (match := _JOURNAL_FILE.match(name))):
        try:
            content = fs.read_bytes(f"{directory}/journal-{number}")
        except FileNotFoundError:
            continue
        records[number], valid_bytes[number] = _parse_journal(content)
        if valid_bytes[number] < len(content):
            _log.info(
                "job queue: journal-%d ends with %d bytes that were never acknowledged",
                number,
                len(content) - valid_bytes[number],
            )
    for found in records.values():
        for _end, head, _files in found:
            if head.get("after"):
                number, good = head["after"]
                valid_bytes[number] = min(good, valid_bytes.get(number, good))
    counted = []
    for number, found in records.items():
        files: dict[str, str] = {}
        archived: list[int] = []
        for end, head, contained in found:
            if end > valid_bytes[number]:
                break
            files.update(contained)
            archived.extend(head.get("archive", ()))
        counted.append((number, files, archived))
    return counted


def _parse_journal(content: bytes) -> tuple[list[tuple[int, dict[str, Any], dict[str, str]]], int]:
    """Records of a journal up to the first torn one, and the number of bytes they take.

    Each record is ``(position of its end, head, content by name)``.
    """
    found = []
    position = 0
    while position < len(content):
        match = _HEADER.match(content, position)
        if match is None:
            break
        start = match.end()
        size = int(match[2])
        payload = content[start : start + size]
        end = start + size + 1
        if len(payload) < size or content[end - 1 : end] != b"\n":
            break
        if zlib.crc32(payload) != int(match[1], 16):
            break
        head_line, _, rest = payload.partition(b"\n")
        head = json.loads(head_line)
        files = {}
        offset = 0
        for name, length in head["files"]:
            files[name] = rest[offset : offset + length].decode("utf-8", "surrogateescape")
            offset += length
        found.append((end, head, files))
        position = end
    return found, position
