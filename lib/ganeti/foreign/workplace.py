"""Directories for the unfinished files of an import.

An appliance is unpacked in a directory of its own, ``/srv/ganeti/import``, which may be a file
system of its own: what an appliance becomes is not known before. Only the converted disks are
written into the directory of the exports, which is beside the configuration of the cluster.

A directory is locked while its program runs. What a killed program has left is removed by the next
one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator

from ganeti.utils import fs

_PREFIX = ".import-"


@contextlib.contextmanager
def work_directory(top: str, mode: int = 0o700) -> Iterator[str]:
    """Make a directory for unfinished files, and remove it at the end.

    :param top: where it is made.
    :param mode: of `top`, which is made when it is missing.
    :raises OSError: it cannot be made.
    """
    fs.make_dirs(top, mode)
    with contextlib.ExitStack() as open_files:
        with contextlib.ExitStack() as making:
            # Nobody takes a new directory for one that was left, before it is locked.
            making.callback(os.close, _locked(top))
            _sweep(top)
            path = tempfile.mkdtemp(prefix=_PREFIX, dir=top)
            open_files.callback(os.close, _locked(path))
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)


def _locked(path: str, *, wait: bool = True) -> int:
    """Open a directory and lock it, where the file system has locks for directories.

    :raises BlockingIOError: another program has it, and `wait` is false.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        os.close(descriptor)
        raise
    except OSError:
        # NFS locks no directories.
        if not wait:
            os.close(descriptor)
            raise
    return descriptor


def _sweep(top: str) -> None:
    """Remove what killed programs have left."""
    for name in os.listdir(top):
        if name.startswith(_PREFIX):
            # In use, or no directory, or nobody knows.
            with contextlib.suppress(OSError):
                descriptor = _locked(f"{top}/{name}", wait=False)
                try:
                    shutil.rmtree(f"{top}/{name}", ignore_errors=True)
                finally:
                    os.close(descriptor)
