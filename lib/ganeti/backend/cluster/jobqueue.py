"""The copy of the job queue on a master candidate.

The master sends whole files, many times a second. They are written in the same way as on the
master: one flushed record in a journal, and a moment after the answer the files
(:mod:`ganeti.jobstore.copy`). The process that serves a kept connection holds the directory
meanwhile; when no more messages arrive, it flushes the files and removes the journal
(:func:`settle`). A call can name files of the queue only.

A node on which a master daemon runs refuses all of these calls, because two masters must not write
one queue.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Iterator
from typing import Any

from ganeti import errors
from ganeti.backend import caller
from ganeti.backend.registry import serves
from ganeti.jobstore import audit
from ganeti.jobstore import inventory as queue_inventory
from ganeti.jobstore.copy import QueueCopy
from ganeti.jobstore.files import VERSION
from ganeti.jobstore.journal import has_journals
from ganeti.jobstore.store import QueueStore
from ganeti.platform import master_epoch, paths, users
from ganeti.utils import filelock, fs
from ganeti.wire import calls

_log = logging.getLogger(__name__)

# Paths relative to the queue directory: serial, version, live jobs, archived jobs.
_NAME = re.compile(r"(?:serial|version|(?:archive/[0-9]{1,12}/)?job-[0-9]{1,16})")
_DRAIN_MODE = 0o644
_DIR_MODE = 0o750
# Another process which has the copy open closes it when it has no more work.
_LOCK_WAIT_S = 10.0

# The copy which this process has open, from the first message until a pause.
_copy: QueueCopy | None = None


def _relative(name: str) -> str:
    """Return the path of a file of the queue, relative to the queue directory.

    :raises JobQueueError: the name is not that of a file of the queue.
    """
    here = paths.current()
    relative = name.removeprefix(f"{here.to_virtual(here.queue_dir)}/")
    if not _NAME.fullmatch(relative):
        raise errors.JobQueueError(f"not a file of the job queue: {name!r:.200}")
    return relative


def _local(name: str) -> str:
    """Return the absolute path of a file of the queue; checks like :func:`_relative`."""
    return f"{paths.current().queue_dir}/{_relative(name)}"


def _refuse_second_master() -> None:
    lock_file = paths.current().queue_lock_file
    if filelock.is_locked(lock_file):
        raise errors.JobQueueError(
            "the master daemon of this node holds the job queue, so no other master may use it"
        )


@contextlib.contextmanager
def _writing() -> Iterator[QueueCopy]:
    """Run a block which writes the queue for the calling master."""
    global _copy
    _refuse_second_master()
    with caller.writing(master_epoch.QUEUE):
        _leave_removed()
        if _copy is None:
            store = QueueStore(paths.current().queue_dir, lock_wait_s=_LOCK_WAIT_S)
            # Journals of a killed process, perhaps of a master, are applied now: before
            # anything newer is written, and never after it.
            store.open()
            _copy = QueueCopy(store)
        yield _copy


def _leave_removed() -> None:
    """Close the copy when another process has emptied the directory of a demoted node."""
    global _copy
    if _copy is not None and _copy.removed:
        copy, _copy = _copy, None
        copy.close(abandon=True)


def settle() -> None:
    """Flush the published files, remove the journal, and let other processes write the queue."""
    global _copy
    if _copy is not None:
        copy, _copy = _copy, None
        # A master daemon which started here owns the directory now.
        copy.close(abandon=filelock.is_locked(paths.current().queue_lock_file))


@serves(calls.AUDIT_EXTEND)
def extend_audit(number: int, checksum: str, lines: str, apart: bool) -> tuple[int, str]:
    """Add lines of the master to the audit log of this node, the proof of what jobs did.

    :returns: number and checksum of the last line here; nothing was added if the line before the
        given ones was another one.
    :raises JobQueueError: a master daemon runs here, or the file cannot be written.
    :raises StaleEpochError: the caller is no longer master; nothing was changed.
    """
    _refuse_second_master()
    path = paths.current().log_audit_file
    try:
        with caller.writing(master_epoch.OTHER):
            is_new = not os.path.exists(path)
            found = audit.extend(path, (number, checksum), lines.encode(), apart=apart)
            if is_new and os.path.exists(path):
                os.chown(path, *users.owner_inside(paths.current().data_dir))
            return found
    except OSError as err:
        raise errors.JobQueueError(f"cannot write {path}: {err.strerror or err}") from err


@serves(calls.JOBQUEUE_UPDATE)
def update(file_name: str, content: str) -> None:
    """Write one file.

    :raises JobQueueError: see :func:`update_many`, except that a missing copy is created.
    """
    _update({_relative(file_name): content})


@serves(calls.JOBQUEUE_UPDATE_MANY)
def update_many(files: list[tuple[str, str]]) -> None:
    """Write several files; when one name is wrong, nothing is written.

    :raises JobQueueError: not a file of the queue, or a master daemon runs here, or the disk
        refuses, or there is no copy here to which changes could be made; nothing was changed.
    """
    texts = {_relative(name): text for name, text in files}
    version_file = paths.current().queue_version_file
    if VERSION not in texts and not os.path.exists(version_file):
        # Perhaps the disk is new. The master compares, and sends the version with all files.
        raise errors.JobQueueError(f"there is no copy of the job queue here ({version_file})")
    _update(texts)


def _update(texts: dict[str, str]) -> None:
    with _writing() as copy:
        copy.write(texts)


@serves(calls.JOBQUEUE_RENAME)
def rename(rename: list[list[str]]) -> list[None]:
    """Move files, usually into the archive; a file which was moved before is not an error.

    :raises JobQueueError: a name is not that of a file of the queue, a file exists under neither
        name, or the newest content of a file cannot be written; in the last case nothing was moved.
    """
    pairs = []
    for pair in rename:
        if len(pair) != 2:
            raise errors.JobQueueError("a rename needs an old and a new name")
        pairs.append((_local(pair[0]), _local(pair[1])))
    with _writing() as copy:
        copy.apply()
        # Written later, it would make a live job of an archived one.
        late = copy.unwritten() & {os.path.basename(old) for old, _ in pairs}
        if late:
            raise errors.JobQueueError(
                f"{', '.join(sorted(late))} cannot be archived yet, because the newest content"
                " could not be written on this node"
            )
        _move(pairs)
    return [None] * len(pairs)


def _move(pairs: list[tuple[str, str]]) -> None:
    touched = set()
    for old, new in pairs:
        uid, gid = users.owner_inside(paths.current().queue_dir)
        fs.make_dirs(os.path.dirname(new), _DIR_MODE, uid=uid, gid=gid)
        try:
            os.rename(old, new)
        except FileNotFoundError:
            if not os.path.exists(new):
                raise errors.JobQueueError(f"job file {old} does not exist") from None
        touched |= {os.path.dirname(old), os.path.dirname(new)}
    for directory in touched:
        fs.flush_dir(directory)


@serves(calls.JOBQUEUE_READ)
def read(names: list[str]) -> dict[str, str]:
    """Return the content of those of the files which exist, by name.

    :raises JobQueueError: a name is not that of a file of the queue, or a file cannot be read, or a
        master daemon runs here, so that the files may be older than the queue.
    """
    _refuse_second_master()
    directory = paths.current().queue_dir
    _apply(directory)
    found = {}
    for name in map(_relative, names):
        try:
            found[name] = fs.read_file(f"{directory}/{name}")
        except FileNotFoundError:
            continue
        except OSError as err:
            raise errors.JobQueueError(f"cannot read {directory}/{name}: {err}") from err
    return found


def _apply(directory: str) -> None:
    """Write the files whose content is in journals only."""
    _leave_removed()
    if _copy is not None:
        _copy.apply()
    else:
        _finish(directory)


@serves(calls.JOBQUEUE_INVENTORY)
def inventory(parts: list[int]) -> dict[str, Any]:
    """List the content of the queue directory; takes no lock, because each file is always whole.

    Changes which another process writes may be missing for
    :data:`~ganeti.jobstore.copy.APPLY_AFTER_S` seconds.

    :raises JobQueueError: the directory cannot be read.
    """
    directory = paths.current().queue_dir
    _apply(directory)
    try:
        return queue_inventory.take(directory, parts).to_wire()
    except OSError as err:
        raise errors.JobQueueError(f"cannot read the job queue in {directory}: {err}") from err


def _finish(directory: str) -> None:
    """Apply the journals which a killed process left."""
    if has_journals(directory) and not filelock.is_locked(paths.current().queue_lock_file):
        store = QueueStore(directory, lock_wait_s=0)
        # Another process has the queue open and applies them itself, or the disk refuses.
        with contextlib.suppress(errors.JobQueueError):
            store.open()
            store.close()


@serves(calls.JOBQUEUE_PURGE)
def purge() -> None:
    """Remove all job files, live and archived."""
    # Otherwise the journal would create the files again.
    settle()
    with _writing():
        remove_jobs()


def remove_jobs() -> None:
    """Remove all job files, live and archived, without asking which master calls."""
    queue = paths.current().queue_dir
    if not os.path.isdir(queue):
        return
    # The journals go first: a process which writes the copy stops when its journal is gone.
    for name in os.listdir(queue):
        if name.startswith("journal-"):
            fs.remove_file(os.path.join(queue, name))
    for directory, _, names in os.walk(queue):
        for name in names:
            if name.startswith(("job-", ".job-", ".queue-")):
                fs.remove_file(os.path.join(directory, name))
    fs.flush_dir(queue)


@serves(calls.JOBQUEUE_SET_DRAIN_FLAG)
def set_drain_flag(flag: bool) -> None:
    """Set or remove the file which says that the queue accepts no new jobs."""
    path = paths.current().queue_drain_file
    if flag:
        fs.write_file(path, "", mode=_DRAIN_MODE)
    else:
        fs.remove_file(path)
