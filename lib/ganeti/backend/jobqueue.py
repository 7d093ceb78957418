"""The copy of the job queue that every master candidate keeps.

The master sends whole files. They are written as everywhere (temporary name, flush, rename, flush
of the directory), but the files of one message together: all are written, then each is flushed,
then all take their names. Only files of the queue can be named.

A node whose own master daemon runs refuses: two masters must not write one queue.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
from collections.abc import Iterator

from ganeti import errors
from ganeti.backend import caller
from ganeti.backend.registry import serves
from ganeti.utils import filelock, fs, master_state, paths
from ganeti.wire import calls

# serial, version, live jobs, archived jobs; relative to the queue directory.
_NAME = re.compile(r"(?:serial|version|(?:archive/[0-9]{1,12}/)?job-[0-9]{1,16})")
_FILE_MODE = 0o640
_DRAIN_MODE = 0o644
_DIR_MODE = 0o750


def _local(name: str) -> str:
    """Local path of a file of the queue.

    :raises JobQueueError: not such a file.
    """
    here = paths.current()
    base = here.to_virtual(here.queue_dir)
    relative = name.removeprefix(f"{base}/")
    if not _NAME.fullmatch(relative):
        raise errors.JobQueueError(f"not a file of the job queue: {name!r:.200}")
    return f"{here.queue_dir}/{relative}"


def _refuse_second_master() -> None:
    lock_file = paths.current().queue_lock_file
    if filelock.is_locked(lock_file):
        raise errors.JobQueueError(
            "the master daemon of this node holds the job queue, so no other master may write it")


@contextlib.contextmanager
def _writing() -> Iterator[None]:
    """The block writes the queue for the master that calls.

    Journals are left by a master that was killed here. Once another one writes this queue, they
    must not be read into it again.
    """
    is_first = master_state.read().queue < caller.epoch()
    with caller.writing(master_state.QUEUE):
        if is_first:
            for path in glob.glob(f"{glob.escape(paths.current().queue_dir)}/journal-*"):
                fs.remove_file(path)
        yield


@serves(calls.JOBQUEUE_UPDATE)
def update(file_name: str, content: str) -> None:
    """Write one file."""
    update_many([(file_name, content)])


@serves(calls.JOBQUEUE_UPDATE_MANY)
def update_many(files: list[tuple[str, str]]) -> None:
    """Write several files; either all names are good or nothing is written.

    :raises JobQueueError: not a file of the queue, or a master daemon runs here.
    """
    texts = {_local(name): text for name, text in files}
    _refuse_second_master()
    with _writing():
        _write_together(texts)


def _write_together(texts: dict[str, str]) -> None:
    opened: list[tuple[int, str, str]] = []
    try:
        for path, text in texts.items():
            fs.make_dirs(os.path.dirname(path), _DIR_MODE)
            temporary = f"{os.path.dirname(path)}/.{os.path.basename(path)}.{os.getpid()}.new"
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
            fd = os.open(temporary, flags, _FILE_MODE)
            opened.append((fd, temporary, path))
            os.fchmod(fd, _FILE_MODE)
            view = memoryview(text.encode("utf-8", "surrogateescape"))
            while view:
                view = view[os.write(fd, view):]
        for fd, _, _ in opened:
            os.fdatasync(fd)
        for _, temporary, path in opened:
            os.rename(temporary, path)
    finally:
        for fd, temporary, _ in opened:
            os.close(fd)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
    for directory in {os.path.dirname(path) for path in texts}:
        fs.flush_dir(directory)


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
    _refuse_second_master()
    with _writing():
        _move(pairs)
    return [None] * len(pairs)


def _move(pairs: list[tuple[str, str]]) -> None:
    touched = set()
    for old, new in pairs:
        fs.make_dirs(os.path.dirname(new), _DIR_MODE)
        try:
            os.rename(old, new)
        except FileNotFoundError:
            if not os.path.exists(new):
                raise errors.JobQueueError(f"job file {old} does not exist") from None
        touched |= {os.path.dirname(old), os.path.dirname(new)}
    for directory in touched:
        fs.flush_dir(directory)


@serves(calls.JOBQUEUE_PURGE)
def purge() -> None:
    """Remove all job files, live and archived."""
    _refuse_second_master()
    with _writing():
        remove_jobs()


def remove_jobs() -> None:
    """As :func:`purge`, whoever asks."""
    queue = paths.current().queue_dir
    for directory, _, names in os.walk(queue):
        for name in names:
            if name.startswith(("job-", ".job-")):
                fs.remove_file(os.path.join(directory, name))
    if os.path.isdir(queue):
        fs.flush_dir(queue)


@serves(calls.JOBQUEUE_SET_DRAIN_FLAG)
def set_drain_flag(flag: bool) -> None:
    """Set or remove the mark that the queue takes no new jobs."""
    path = paths.current().queue_drain_file
    if flag:
        fs.write_file(path, "", mode=_DRAIN_MODE)
    else:
        fs.remove_file(path)
