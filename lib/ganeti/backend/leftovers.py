"""Files in ``RUN_DIR`` of processes which were killed; nobody else removes them.

``/run`` is in the memory of the machine, and it is emptied by a boot only. Every file there names
its owner: by a lock of flock(2), by the number of a process in its name, or in a file beside it.
Nothing is removed that a living process owns.

The node daemon calls :func:`remove` when it starts, and ``ganeti-cleaner`` every night.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
from collections.abc import Iterator

from ganeti.backend.backup import transfers
from ganeti.platform import paths
from ganeti.storage import busy, node_work
from ganeti.utils import filelock, fs, process

_log = logging.getLogger(__name__)

# The request to an allocator, and the socket of a test job.
_OF_A_PROCESS = re.compile(r"ganeti-(?:iallocator\.|test-)([0-9]{1,9})[.-].*", re.ASCII)


def found() -> list[str]:
    """Return the files and directories which no living process owns."""
    here = paths.current()
    return [
        *(path for directory in _directories(here) for path in fs.abandoned_files(directory)),
        *_of_ended_processes(here.run_dir),
        *_unlocked(here.disk_locks_dir),
        *node_work.leftovers(),
        *transfers.leftovers(),
    ]


def remove(path: str) -> None:
    """Remove one of these files or directories; a missing one is not an error.

    :raises OSError: it cannot be removed.
    """
    with contextlib.suppress(FileNotFoundError):
        if os.path.dirname(path) == paths.current().disk_locks_dir:
            # A process may have locked it meanwhile.
            busy.discard(path)
        elif os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            fs.remove_file(path)


def remove_all() -> None:
    """Remove all of them; what fails is logged."""
    try:
        paths_found = found()
    except OSError as err:
        _log.warning("cannot look for forgotten files: %s", err)
        return
    for path in paths_found:
        try:
            remove(path)
            _log.info("removed %s, whose process has ended", path)
        except OSError as err:
            _log.warning("cannot remove %s: %s", path, err.strerror)


def _directories(here: paths.Paths) -> Iterator[str]:
    """Yield the directories with files of this node, and none with the disk of a guest."""
    yield here.run_dir
    for directory in _below(here.run_dir):
        yield directory
        if directory in (here.kvm_root, here.xen_root, here.fake_root, here.import_export_dir):
            yield from _below(directory)


def _below(directory: str) -> Iterator[str]:
    with contextlib.suppress(FileNotFoundError), os.scandir(directory) as entries:
        yield from sorted(one.path for one in entries if one.is_dir(follow_symlinks=False))


def _of_ended_processes(directory: str) -> Iterator[str]:
    for name in fs.list_visible(directory) if os.path.isdir(directory) else ():
        owner = _OF_A_PROCESS.fullmatch(name)
        if owner is not None and not process.is_alive(int(owner[1])):
            yield f"{directory}/{name}"


def _unlocked(directory: str) -> Iterator[str]:
    for name in fs.list_visible(directory) if os.path.isdir(directory) else ():
        path = f"{directory}/{name}"
        if not filelock.is_locked(path):
            yield path
