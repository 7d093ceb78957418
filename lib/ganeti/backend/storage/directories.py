"""Handlers which tell whether this node and others see the same directory, and its free space.

:mod:`ganeti.utils.shared_dir` does the work of the first. Files are made only below the export
directory and below directories which may hold disks.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import TypeVar

from ganeti import errors
from ganeti.backend.registry import serves
from ganeti.platform import paths
from ganeti.storage import file as file_storage
from ganeti.utils import shared_dir
from ganeti.wire import calls

T = TypeVar("T")


def _local(virtual: str) -> str:
    """Return the path of a directory on this node.

    :raises FileStoragePathError: nothing is made there.
    """
    if not paths.is_below(paths.Paths().export_dir, os.path.normpath(virtual)):
        file_storage.check_acceptable(virtual)
    return paths.current().to_local(virtual)


def _each(directories: Sequence[str], ask: Callable[[str], T]) -> dict[str, T | str]:
    """Return an answer for each directory, or the reason why there is none."""
    found: dict[str, T | str] = {}
    for directory in directories:
        try:
            found[directory] = ask(_local(directory))
        except errors.FileStoragePathError as err:
            found[directory] = str(err)
        except OSError as err:
            found[directory] = f"{directory}: {err.strerror}"
    return found


@serves(calls.DIRECTORY_SPACE)
def directory_space(
    files: dict[str, int], removed: list[str], sparse: bool
) -> dict[str, int | str]:
    """Return how many bytes may be written in each directory, or why a file cannot be made there.

    :param files: directory -> the size of the largest file, in bytes.
    :param removed: what begins with one of these paths counts as free.
    :param sparse: the files have holes, so they may be larger than the free space.
    """
    found: dict[str, int | str] = {}
    for directory, size in files.items():
        going = [_local(path) for path in removed if os.path.dirname(path) == directory]
        space = functools.partial(file_storage.space_for, size=size, removed=going, sparse=sparse)
        found |= _each([directory], space)
    return found


@serves(calls.DIRECTORY_MARK)
def directory_mark(directories: list[str], token: str, key: str) -> dict[str, str | None]:
    """Make a mark in each directory: None, or why there is none."""
    return _each(directories, lambda path: shared_dir.mark(path, token, key))


@serves(calls.DIRECTORY_SEEN)
def directory_seen(
    directories: list[str], token: str, keys: list[str]
) -> dict[str, list[str] | str]:
    """Look for the marks of other nodes: their keys, or why it is not known."""
    return _each(directories, lambda path: shared_dir.seen(path, token, keys))


@serves(calls.DIRECTORY_UNMARK)
def directory_unmark(directories: list[str], token: str, key: str) -> None:
    """Remove the mark of a node from each directory.

    :raises OpExecError: a mark stays.
    """
    found = _each(directories, lambda path: shared_dir.unmark(path, token, key))
    problems = [problem for problem in found.values() if problem is not None]
    if problems:
        raise errors.OpExecError(f"marks were not removed: {'; '.join(problems)}")
