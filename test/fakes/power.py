"""A disk which records what was flushed, and which may lose power at any moment.

What a program writes is at first in the memory of the kernel. A flush of a file makes its content
durable; a flush of a directory makes the names in it durable. Everything else may or may not be on
the disk after a power failure. :class:`Disk` watches the real calls of the program below one
directory, takes a *moment* before each of them, and can make from each moment the directory which
the next start finds.

The content of files is taken at each flush from the file system itself, so it does not matter how
it was written. The flush itself is only recorded, which saves the time of the real disk.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

#: What a power failure leaves of the things which were not flushed.
NOTHING = "nothing that was not flushed"
NAMES = "all names, but no content that was not flushed"
CONTENT = "all content, but no name that was not flushed"
ALL_WAYS = (NOTHING, NAMES, CONTENT)

# Calls which change something or flush; a moment is before each of them.
_CALLS = (
    "open", "write", "writev", "pwrite", "copy_file_range", "ftruncate", "rename", "replace",
    "link", "symlink", "unlink", "remove", "mkdir", "rmdir", "fsync", "fdatasync",
)  # fmt: skip

# The names in a directory with the number of each file, and the content of a file.
_Names = dict[str, int]

#: Names in a directory with the content of each file, or a tree for a directory.
Tree = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Moment:
    """The state before a call: what is visible, and what is durable.

    :ivar before: the call and the file, for people.
    :ivar note: what the test had noted in :attr:`Disk.note`.
    """

    before: str
    note: Any
    root: int
    visible: dict[int, _Names | bytes]
    durable: dict[int, _Names | bytes]

    def left(self, how: str) -> Tree:
        """Return what is found after a power failure in this moment.

        :param how: one of :data:`ALL_WAYS`.
        """
        found = self._left(self.root, how)
        assert isinstance(found, dict)
        return found

    def _left(self, number: int, how: str) -> Tree | bytes:
        visible = self.visible.get(number)
        durable = self.durable.get(number)
        if isinstance(visible if durable is None else durable, dict):
            names = visible if how == NAMES and visible is not None else durable
            if not isinstance(names, dict):
                return {}
            return {name: self._left(below, how) for name, below in names.items()}
        content = visible if how == CONTENT and visible is not None else durable
        return content if isinstance(content, bytes) else b""


def write_tree(tree: Tree, target: Path) -> Path:
    """Make a directory with the result of :meth:`Moment.left`."""
    target.mkdir()
    for name, content in tree.items():
        if isinstance(content, dict):
            write_tree(content, target / name)
        else:
            (target / name).write_bytes(content)
    return target


class Disk:
    """Watches a directory; everything which is there at the start is durable.

    :ivar note: anything; the test puts here what the program has promised until now.
    :ivar moments: the moments until now.
    """

    def __init__(self, root: Path) -> None:
        self._root = str(root)
        self.note: Any = None
        self.moments: list[Moment] = []
        # One open file for each number, so that the file system gives no number to another file.
        self._kept: dict[int, int] = {}
        self._durable: dict[int, _Names | bytes] = {}
        self._watching = True
        self._durable = self._visible()

    def now(self) -> Moment:
        """Return the present moment."""
        return self._moment("now")

    @contextlib.contextmanager
    def watched(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
        """Watch the calls of this process in a block."""
        with monkeypatch.context() as patch:
            for name in _CALLS:
                patch.setattr(os, name, self._watching_call(name, getattr(os, name)))
            try:
                yield self
            finally:
                patch.undo()
                for fd in self._kept.values():
                    os.close(fd)
                self._kept.clear()

    def _watching_call(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(real)
        def call(*args: Any, **kwargs: Any) -> Any:
            if not self._watching:
                return real(*args, **kwargs)
            place = self._place(args[0])
            concerned = place is not None and (name != "open" or self._creates(args, kwargs))
            if concerned:
                self.moments.append(self._moment(f"{name} {place}"))
            if concerned and name in ("fsync", "fdatasync"):
                return self._flushed(args[0])
            return real(*args, **kwargs)

        return call

    @staticmethod
    def _creates(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        flags = args[1] if len(args) > 1 else kwargs["flags"]
        return bool(flags & (os.O_CREAT | os.O_TRUNC))

    def _place(self, what: Any) -> str | None:
        """Return the path below the directory; None for anything outside."""
        try:
            path = os.readlink(f"/proc/self/fd/{what}") if isinstance(what, int) else str(what)
        except OSError:
            return None
        if path == self._root or path.startswith(f"{self._root}/"):
            return path[len(self._root) :].lstrip("/") or "."
        return None

    def _moment(self, before: str) -> Moment:
        visible = self._visible()
        root = os.stat(self._root).st_ino
        return Moment(before, self.note, root, visible, dict(self._durable))

    def _flushed(self, fd: int) -> None:
        number, content = self._look(f"/proc/self/fd/{fd}")
        self._durable[number] = content

    def _visible(self) -> dict[int, _Names | bytes]:
        found: dict[int, _Names | bytes] = {}

        def look(path: str) -> None:
            number, content = self._look(path)
            found[number] = content
            if isinstance(content, dict):
                for name in content:
                    look(f"{path}/{name}")

        look(self._root)
        return found

    def _look(self, path: str) -> tuple[int, _Names | bytes]:
        self._watching = False
        try:
            info = os.stat(path)
            if info.st_ino not in self._kept:
                self._kept[info.st_ino] = os.open(path, os.O_PATH | os.O_CLOEXEC)
            if stat.S_ISDIR(info.st_mode):
                with os.scandir(path) as entries:
                    return info.st_ino, {entry.name: entry.inode() for entry in entries}
            with open(path, "rb") as stream:
                return info.st_ino, stream.read()
        finally:
            self._watching = True
