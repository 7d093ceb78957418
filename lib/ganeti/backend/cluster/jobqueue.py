"""The copy of the job queue that every master candidate keeps.

The master sends whole files, many times a second. They are written as the master's own: one record
in a journal, flushed, then, a moment after the answer, the files (:mod:`ganeti.jobstore.copy`).
The process that serves a kept connection holds the directory meanwhile; when no message comes any
more it flushes the files and removes the journal (:func:`settle`). Only files of the queue can be
named.

A node whose own master daemon runs refuses: two masters must not write one queue.
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
from ganeti.jobstore import inventory as queue_inventory
from ganeti.jobstore.copy import QueueCopy
from ganeti.jobstore.store import VERSION, QueueStore, has_journals
from ganeti.platform import master_epoch, paths, users
from ganeti.utils import filelock, fs
from ganeti.wire import calls

_log = logging.getLogger(__name__)

# serial, version, live jobs, archived jobs; relative to the queue directory.
_NAME = re.compile(r"(?:serial|version|(?:archive/[0-9]{1,12}/)?job-[0-9]{1,16})")
_DRAIN_MODE = 0o644
_DIR_MODE = 0o750
# Another process that has the copy open lets go of it when it has nothing more to do.
_LOCK_WAIT_S = 10.0

# This process's hold on the copy, between the first message and a pause.
_copy: QueueCopy | None = None


def _relative(name: str) -> str:
    """Name of a file of the queue in its directory.

    :raises JobQueueError: not such a file.
    """
    here = paths.current()
    relative = name.removeprefix(f"{here.to_virtual(here.queue_dir)}/")
    if not _NAME.fullmatch(relative):
        raise errors.JobQueueError(f"not a file of the job queue: {name!r:.200}")
    return relative


def _local(name: str) -> str:
    """As :func:`_relative`, with the directory."""
    return f"{paths.current().queue_dir}/{_relative(name)}"


def _refuse_second_master() -> None:
    lock_file = paths.current().queue_lock_file
    if filelock.is_locked(lock_file):
        raise errors.JobQueueError(
            "the master daemon of this node holds the job queue, so no other master may write it"
        )


@contextlib.contextmanager
def _writing() -> Iterator[QueueCopy]:
    """The block writes the queue for the master that calls."""
    global _copy
    _refuse_second_master()
    with caller.writing(master_epoch.QUEUE):
        _leave_removed()
        if _copy is None:
            store = QueueStore(paths.current().queue_dir, lock_wait_s=_LOCK_WAIT_S)
            # Journals of a process that was killed here, a master perhaps, are applied now: before
            # anything newer is written, and never after it.
            store.open()
            _copy = QueueCopy(store)
        yield _copy


def _leave_removed() -> None:
    """Begin anew where another process has emptied the directory: this node was no candidate."""
    global _copy
    if _copy is not None and _copy.removed:
        copy, _copy = _copy, None
        copy.close(abandon=True)


def settle() -> None:
    """Leave only the published files, flushed, and let others write the queue."""
    global _copy
    if _copy is not None:
        copy, _copy = _copy, None
        # When a master has begun to work here, the directory is no longer ours.
        copy.close(abandon=filelock.is_locked(paths.current().queue_lock_file))


@serves(calls.JOBQUEUE_UPDATE)
def update(file_name: str, content: str) -> None:
    """Write one file.

    :raises JobQueueError: as :func:`update_many`; a copy is begun where there was none.
    """
    _update({_relative(file_name): content})


@serves(calls.JOBQUEUE_UPDATE_MANY)
def update_many(files: list[tuple[str, str]]) -> None:
    """Write several files; either all names are good or nothing is written.

    :raises JobQueueError: not a file of the queue, or a master daemon runs here, or the disk
        refuses, or there is no copy here to which changes could be made; nothing was changed.
    """
    texts = {_relative(name): text for name, text in files}
    version_file = paths.current().queue_version_file
    if VERSION not in texts and not os.path.exists(version_file):
        # A new disk, perhaps. The master compares, and sends the version with all the rest.
        raise errors.JobQueueError(f"there is no copy of the job queue here ({version_file})")
    _update(texts)


def _update(texts: dict[str, str]) -> None:
    with _writing() as copy:
        copy.write(texts)


@serves(calls.JOBQUEUE_RENAME)
def rename(rename: list[list[str]]) -> list[None]:
    """Move files, as a rule into the archive; one that was moved before is no error.

    :raises JobQueueError: not files of the queue, or one exists under neither name.
    """
    pairs = []
    for pair in rename:
        if len(pair) != 2:
            raise errors.JobQueueError("a rename needs an old and a new name")
        pairs.append((_local(pair[0]), _local(pair[1])))
    with _writing() as copy:
        copy.apply()
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


@serves(calls.JOBQUEUE_INVENTORY)
def inventory(parts: list[int]) -> dict[str, Any]:
    """What lies in the queue directory; takes no lock, each file is whole at every moment.

    What another process writes here may be :data:`~ganeti.jobstore.copy.APPLY_AFTER_S` ahead.

    :raises JobQueueError: it cannot be read.
    """
    directory = paths.current().queue_dir
    _leave_removed()
    if _copy is not None:
        _copy.apply()
    else:
        _finish(directory)
    try:
        return queue_inventory.take(directory, parts).to_wire()
    except OSError as err:
        raise errors.JobQueueError(f"cannot read the job queue in {directory}: {err}") from err


def _finish(directory: str) -> None:
    """Do what a process that was killed here has left undone."""
    if has_journals(directory) and not filelock.is_locked(paths.current().queue_lock_file):
        store = QueueStore(directory, lock_wait_s=0)
        # Another process is at work, which does it itself, or it cannot be done.
        with contextlib.suppress(errors.JobQueueError):
            store.open()
            store.close()


@serves(calls.JOBQUEUE_PURGE)
def purge() -> None:
    """Remove all job files, live and archived."""
    # The journal must not bring them back.
    settle()
    with _writing():
        remove_jobs()


def remove_jobs() -> None:
    """As :func:`purge`, whoever asks."""
    queue = paths.current().queue_dir
    if not os.path.isdir(queue):
        return
    # First of all: a process that writes the copy stops when it finds its journal removed.
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
    """Set or remove the mark that the queue takes no new jobs."""
    path = paths.current().queue_drain_file
    if flag:
        fs.write_file(path, "", mode=_DRAIN_MODE)
    else:
        fs.remove_file(path)
