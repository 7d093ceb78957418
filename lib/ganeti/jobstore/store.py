"""The queue directory of one node: job files, and the journal which makes them durable.

Other programs read ``job-N``, ``serial``, ``version`` and ``archive/`` (Ganeti design 2.0, *Queue
structure*), and each of these appears by a rename, whole. To flush every such file and its
directory for every change would cost two flushes per job. So one commit appends the new content of
all changed files to the *journal* (:mod:`.journal`) and flushes that once. Then the files are
replaced without a flush. After a crash the journal is replayed over the files. When a journal has
grown, a new one is begun, the files named in the old one are flushed, and the old one is removed
(:meth:`QueueStore.checkpoint`). A regular stop leaves no journal.

A full disk makes :meth:`QueueStore.commit` fail with nothing changed. When only a job's file cannot
be replaced, the journal keeps its content until that works.

The master daemon writes the queue of its node; on other candidates the node daemon writes the copy
in the same way (:mod:`.copy`). A process which opens the directory with ``lock_wait_s`` keeps it
locked (a flock on the directory itself) until :meth:`QueueStore.close`.

One thread commits, another may apply, a third may make checkpoints.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from ganeti import errors, ht
from ganeti.constants import job as const
from ganeti.jobstore.files import (
    ARCHIVE,
    DAMAGED,
    DRAIN,
    SERIAL,
    VERSION,
    archive_file,
    damaged_file,
    ids_in,
    job_file,
    job_id_of,
)
from ganeti.jobstore.journal import JournalWriter, journal_file, read_journals, write_all
from ganeti.platform import users
from ganeti.utils import fs, retry

_log = logging.getLogger(__name__)

# A journal above this size in bytes is replaced by a new one at the next commit.
JOURNAL_BYTES = 4 << 20

_TEMPORARY_PREFIX = ".queue-"
# Temporary files which a killed process may leave: ours, and those of fs.write_file.
_TEMPORARY_FILE = re.compile(r"\.queue-.*|\.(drain|version)\.[0-9]+\.[0-9]+\.new")


def _no_fault(_step: str) -> None:
    """Let each step on the disk happen; tests use another function."""


class QueueStore:
    """The queue directory of this node.

    :param journal_bytes: as :data:`JOURNAL_BYTES`.
    :param lock_wait_s: lock the directory, and wait this number of seconds for another process
        which has locked it; None when the caller excludes other processes.
    :param fault: called with a name before every write, flush, rename and removal; tests let it
        raise :exc:`OSError` or kill the process.
    :ivar taken_over: the process which wrote the queue before may have given out job ids which are
        not in this directory.
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
        self.taken_over = False
        self._lock_wait_s = lock_wait_s
        self._lock_fd: int | None = None
        self._fault = fault
        self._journal = JournalWriter(
            directory, max_bytes=journal_bytes, give=self._give, fault=fault
        )
        # Names of files in a journal which were not flushed yet, by journal number.
        self._touched: dict[int, set[str]] = {}
        # Owner of new files. On all nodes the queue belongs to the user of the master daemon.
        self._owner = (-1, -1)
        # Content by name and jobs to be archived which are in a journal and not yet in the files.
        self._unwritten: dict[str, str] = {}
        self._unmoved: list[int] = []
        # Guards _touched, _unwritten and _unmoved; held for moments only.
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
        locked_before = self._lock_fd is not None
        try:
            fs.make_dirs(self.directory, 0o750)
            self._owner = users.owner_inside(self.directory)
            self._make_dirs(self._path(ARCHIVE))
            self._lock_directory()
            self._check_version()
            names = os.listdir(self.directory)
            self._remove_temporary(names)
            self._replay(names)
        except BaseException as err:
            # The next attempt, often in this process, must not find it locked by this one.
            if not locked_before:
                self._unlock_directory()
            if isinstance(err, OSError):
                raise errors.JobQueueError(
                    f"cannot use the job queue in {self.directory}: {err}"
                ) from err
            raise

    def close(self) -> None:
        """Flush every file and remove the journal; an error leaves the journal for the next run."""
        self._journal.close()
        try:
            self.checkpoint()
        except OSError as err:
            _log.warning("cannot flush the job queue, its journal stays: %s", err)
        self._unlock_directory()

    def abandon(self) -> None:
        """Stop writing, because another process uses the directory and has replayed the journal."""
        self._journal.abandon()
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
            text = ""
        # A power failure may have left the name without the content.
        if not text:
            self._replace(VERSION, f"{const.QUEUE_VERSION}\n")
            self._flush_files([VERSION])
            return
        if text != str(const.QUEUE_VERSION):
            raise errors.JobQueueError(
                f"job queue in {self.directory} has version {text!r}, this program reads"
                f" {const.QUEUE_VERSION}"
            )

    def _remove_temporary(self, names: Iterable[str]) -> None:
        """Remove the temporary files of a killed process."""
        for name in names:
            if _TEMPORARY_FILE.fullmatch(name):
                fs.remove_file(self._path(name))

    # -- reading ---------------------------------------------------------------------------------

    def job_ids(self) -> list[int]:
        """Return the ids of the live jobs, ascending; other files are ignored.

        :raises OSError: the directory cannot be read.
        """
        return ids_in(self.directory)

    def archived_ids(self) -> Iterator[int]:
        """Yield the ids of the archived jobs, ascending.

        :raises OSError: the archive cannot be read.
        """
        parts = [int(name) for name in os.listdir(self._path(ARCHIVE)) if name.isdecimal()]
        for part in sorted(parts):
            yield from ids_in(self._path(f"{ARCHIVE}/{part}"))

    def newest_archived_ids(self, least: int) -> Iterator[int]:
        """Yield the ids of the archived jobs, descending, down to one.

        :raises OSError: the archive cannot be read.
        """
        first = least // const.JOBS_PER_ARCHIVE_DIR
        parts = [int(name) for name in os.listdir(self._path(ARCHIVE)) if name.isdecimal()]
        for part in sorted((one for one in parts if one >= first), reverse=True):
            for job_id in reversed(ids_in(self._path(f"{ARCHIVE}/{part}"))):
                if job_id < least:
                    return
                yield job_id

    def read_job(self, job_id: int) -> str | None:
        """Return the text of a live job's file; None when there is no such file.

        :raises OSError: it cannot be read.
        """
        return self._read(job_file(job_id))

    def read_archived(self, job_id: int) -> str | None:
        """Return the text of an archived job's file; None when there is no such file.

        :raises OSError: it cannot be read.
        """
        return self._read(archive_file(job_id))

    def damaged_ids(self) -> list[int]:
        """Return the ids of the jobs whose files were set aside, ascending.

        :raises OSError: the directory cannot be read.
        """
        try:
            return ids_in(self._path(DAMAGED))
        except FileNotFoundError:
            return []

    def set_aside(self, job_id: int) -> None:
        """Move a live job's file into the folder of damaged files; candidates never get it.

        :raises OSError: it cannot be moved.
        """
        self._make_dirs(self._path(DAMAGED))
        self._fault("set aside")
        os.rename(self._path(job_file(job_id)), self._path(damaged_file(job_id)))
        fs.flush_dir(self._path(DAMAGED))
        fs.flush_dir(self.directory)

    def read_published(self, name: str) -> str | None:
        """Return the newest text of a file by its name; None when there is no such file.

        A job that was archived meanwhile is found under its old name, too.

        :raises OSError: it cannot be read.
        """
        text = self._read(name)
        job_id = job_id_of(name)
        if text is None and job_id is not None:
            text = self._read(archive_file(job_id))
        return text

    def read_serial(self) -> int:
        """Return the last job id that was given out; 0 in a new queue.

        :raises errors.JobQueueError: the file ``serial`` contains no job id.
        :raises OSError: the file cannot be read.
        """
        text = self._read(SERIAL)
        if text is None:
            return 0
        if not ht.JobId(text.strip()):
            raise errors.JobQueueError(
                f"file {self._path(SERIAL)} contains no job id. Write the highest id of all jobs,"
                " archived ones included, into it."
            )
        return int(text)

    def drained(self) -> bool:
        """Return True if the queue is marked to take no new jobs."""
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
        """Set or remove the drain flag, durably.

        :raises errors.JobQueueError: the flag cannot be changed.
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
        :param archive: ids of jobs to be archived.
        :raises errors.JobQueueError: the disk refused; nothing was changed.
        """
        try:
            self._journal.append(files, archive)
        except OSError as err:
            raise errors.JobQueueError(
                f"cannot write to the job queue in {self.directory}: {err.strerror or err}"
            ) from err
        with self._lock:
            touched = self._touched.setdefault(self._journal.number, set())
            touched.update(files)
            touched.update(map(archive_file, archive))
            self._unwritten.update(files)
            self._unmoved.extend(archive)

    def apply(self) -> None:
        """Write committed content into the files; of several versions only the newest.

        A file that cannot be written is tried again the next time; its content is in the journal.
        May run in another thread than the one that commits.
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

    def unwritten(self) -> set[str]:
        """Return the names of the files whose newest content is in the journal only."""
        with self._lock:
            return set(self._unwritten)

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
                write_all(fd, text.encode("utf-8", "surrogateescape"))
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
        """Set mode and owner of a new, empty file."""
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

    @property
    def journal_used(self) -> bool:
        """True if a checkpoint would have something to do."""
        with self._lock:
            return bool(self._touched)

    @property
    def removed(self) -> bool:
        """True if another process removed the journal in use, and so the queue with it."""
        return self._journal.removed

    @property
    def has_old_journals(self) -> bool:
        """True if journals wait for a checkpoint besides the one in use."""
        with self._lock:
            return len(self._touched) > 1

    def end_journal(self) -> None:
        """Let the next commit begin a new journal; called in the committing thread."""
        self._journal.close()

    def checkpoint(self) -> None:
        """Flush the files of all journals but the one in use, then remove these journals.

        May run in another thread than the committing one, which calls :meth:`end_journal` before if
        everything is to be flushed.

        :raises OSError: a flush failed; the journals stay.
        """
        with self._checkpoint_lock:
            with self._lock:
                in_use = self._journal.in_use
                old = sorted(number for number in self._touched if number != in_use)
                if not old:
                    return
                names = set().union(*(self._touched[number] for number in old))
                content = {name: self._unwritten[name] for name in names if name in self._unwritten}
            self.apply()
            with self._lock:
                # Newer content that came meanwhile is in the journal in use.
                unwritten = [
                    name for name, text in content.items() if self._unwritten.get(name) is text
                ]
                unwritten += [name for name in map(archive_file, self._unmoved) if name in names]
            if unwritten:
                raise OSError(
                    errno.EAGAIN, "not everything could be written", self._path(unwritten[0])
                )
            self._flush_files(names)
            for number in old:
                self._fault("remove journal")
                fs.remove_file(self._path(journal_file(number)))
                with self._lock:
                    del self._touched[number]
            self._fault("flush directory")
            fs.flush_dir(self.directory)

    def _flush_files(self, names: Iterable[str]) -> None:
        directories = {self.directory}
        for name in names:
            job_id = job_id_of(name)
            # A job may have been archived meanwhile. Its content must be flushed there, because
            # the journal of that move contains only the id.
            places = [name] if job_id is None else [name, archive_file(job_id)]
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
                    # The folders above were flushed when this one was made.
                    directories.add(os.path.dirname(path))
                break
        for directory in sorted(directories, reverse=True):
            self._fault("flush directory")
            fs.flush_dir(directory)

    # -- replay ----------------------------------------------------------------------------------

    def _replay(self, names: Iterable[str]) -> None:
        journals = read_journals(self.directory, names)
        numbers = [journal.number for journal in journals]
        self._journal.number = numbers[-1] if numbers else 0
        changed: set[str] = set()
        for journal in journals:
            for name, text in journal.files.items():
                job_id = job_id_of(name)
                if (
                    job_id is not None
                    and not os.path.exists(self._path(name))
                    and os.path.exists(self._path(archive_file(job_id)))
                ):
                    # A later record archived the job and was applied before the crash; the file
                    # which it moved was perhaps never flushed.
                    name = archive_file(job_id)
                self._replace(name, text)
                changed.add(name)
            for job_id in journal.archived:
                try:
                    self._archive(job_id)
                except FileNotFoundError:
                    _log.warning("job queue: archived job %d has no file", job_id)
                changed.add(archive_file(job_id))
        if numbers:
            self._flush_files(changed)
            for number in numbers:
                self._fault("remove journal")
                fs.remove_file(self._path(journal_file(number)))
            # Not flushed: the same journals replayed once more change nothing.
            _log.info("job queue: replayed %d files from %d journals", len(changed), len(numbers))

    def _path(self, name: str) -> str:
        return f"{self.directory}/{name}"
