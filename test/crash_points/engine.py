"""Counts the points of a piece of work, and kills a process at each of them."""

from __future__ import annotations

import abc
import contextlib
import os
import pickle
import re
import shutil
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: How a process ends which was killed at a point.
DIED = 77
_BROKEN = 1

#: Calls which change a disk, or flush it. The first argument is a path or a descriptor.
_CALLS = (
    "write", "writev", "pwrite", "copy_file_range", "sendfile", "truncate", "ftruncate",
    "posix_fallocate", "rename", "replace", "link", "symlink", "unlink", "remove", "mkdir", "rmdir",
    "fsync", "fdatasync", "open",
)  # fmt: skip

# What differs from run to run in the name of a file.
_CHANGING = re.compile(
    r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9]+|(?<=\.)[A-Za-z0-9_]{6,8}$"
)


class Points:
    """The points which a process passes.

    :param at: the number of the point at which it dies; None to count only.
    :param on_death: called before the process dies, to hand over what outlives it.
    :ivar labels: what each point was.
    """

    def __init__(self, at: int | None, on_death: Callable[[], None]) -> None:
        self.labels: list[str] = []
        self._at = at
        self._on_death = on_death
        self._lock = threading.RLock()

    def reach(self, label: str) -> None:
        """Pass a point, or die there."""
        with self._lock:
            self.labels.append(label)
            if len(self.labels) - 1 == self._at:
                self._on_death()
                os._exit(DIED)

    @contextlib.contextmanager
    def on_disk(self, root: Path) -> Iterator[None]:
        """Make each call which changes something below a directory a point."""
        real = {name: getattr(os, name) for name in _CALLS}
        top = str(root)

        def watching(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
            def watched(*args: Any, **kwargs: Any) -> Any:
                place = _place(args[0] if args else kwargs.get("path"), top)
                if place is not None and (name != "open" or _creates(args, kwargs)):
                    self.reach(f"{name} {place}")
                return call(*args, **kwargs)

            return watched

        for name, call in real.items():
            setattr(os, name, watching(name, call))
        try:
            yield
        finally:
            for name, call in real.items():
                setattr(os, name, call)


def _creates(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    flags = args[1] if len(args) > 1 else kwargs.get("flags", 0)
    return bool(flags & (os.O_CREAT | os.O_TRUNC))


def _place(what: Any, top: str) -> str | None:
    """Return the path below a directory, without what changes; None for anything outside."""
    try:
        path = os.readlink(f"/proc/self/fd/{what}") if isinstance(what, int) else os.fspath(what)
    except (OSError, TypeError):
        return None
    if not isinstance(path, str) or not path.startswith(f"{top}/"):
        return None
    return _CHANGING.sub("*", path[len(top) + 1 :].removesuffix(" (deleted)"))


class Subject(abc.ABC):
    """A piece of work, and what must hold when the process which does it dies.

    :param directory: what is on disk is below it.
    """

    #: For the table.
    name: str
    #: What must hold, in a sentence.
    promise: str
    #: Each run passes the same points; with threads it does not.
    steady = True

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @abc.abstractmethod
    def make(self) -> None:
        """Make what is there before the work; the directory does not exist yet."""

    @abc.abstractmethod
    def work(self, points: Points) -> None:
        """Do the work, in a child process."""

    def survivors(self) -> Any:
        """Return what is not on disk and outlives the process; it is pickled."""

    @abc.abstractmethod
    def recover(self, survivors: Any) -> None:
        """Start again in a new process, set right what is to be set right, and check.

        :raises AssertionError: the promise is broken.
        """


@dataclass
class Result:
    """What was found for one subject."""

    name: str
    points: int = 0
    kinds: int = 0
    killed: int = 0
    broken: list[str] = field(default_factory=list)


def _in_child(action: Callable[[], None], log: Path) -> int:
    pid = os.fork()
    if pid == 0:
        code = _BROKEN
        try:
            action()
            code = 0
        except BaseException:  # noqa: BLE001 -- the child must not return
            with open(log, "w", encoding="utf-8") as stream:
                traceback.print_exc(file=stream)
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


class Trial:
    """Tries the points of one subject."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        base = subject.directory
        self._before = base.with_name(f"{base.name}.before")
        self._log = base.with_name(f"{base.name}.log")
        self._labels = base.with_name(f"{base.name}.labels")
        self._survivors = base.with_name(f"{base.name}.survivors")
        subject.make()
        if base.exists():
            shutil.copytree(base, self._before, symlinks=True)

    def _begin(self) -> None:
        """Put the disk back to what it was before the work, under the same name."""
        shutil.rmtree(self.subject.directory, ignore_errors=True)
        if self._before.exists():
            shutil.copytree(self._before, self.subject.directory, symlinks=True)

    def _hand_over(self) -> None:
        with open(self._survivors, "wb") as stream:
            pickle.dump(self.subject.survivors(), stream)

    def _work(self, at: int | None) -> None:
        points = Points(at, self._hand_over)
        self.subject.work(points)
        self._labels.write_text("\n".join(points.labels), encoding="utf-8")
        self._hand_over()

    def _recover(self) -> None:
        with open(self._survivors, "rb") as stream:
            survivors = pickle.load(stream)  # noqa: S301 -- written by our own child
        self.subject.recover(survivors)

    def attempt(self, at: int | None) -> str:
        """Let the work die at a point, start again and check.

        :returns: what was broken; empty for nothing.
        """
        self._begin()
        code = _in_child(lambda: self._work(at), self._log)
        if code not in (0, DIED):
            return f"the work ended with {code}: {self._log.read_text()}"
        code = _in_child(self._recover, self._log)
        return "" if code == 0 else self._log.read_text() or f"ended with {code}"

    def labels(self) -> list[str]:
        """Do the whole work once; return its points.

        :raises AssertionError: the work, or its promise, fails without a crash.
        """
        problem = self.attempt(None)
        assert not problem, f"{self.subject.name}, not interrupted: {problem}"
        return self._labels.read_text(encoding="utf-8").splitlines()

    def run(self, every: int = 1, first: int = 0) -> Result:
        """Kill at every so-manieth point; all are counted."""
        labels = self.labels()
        result = Result(self.subject.name, len(labels), len(set(labels)))
        for at in range(first % every, len(labels), every):
            result.killed += 1
            problem = self.attempt(at)
            if problem:
                result.broken.append(f"{self.subject.name}: point {at}, {labels[at]}: {problem}")
        return result

    def clean_up(self) -> None:
        """Remove the directories."""
        for path in (self.subject.directory, self._before):
            shutil.rmtree(path, ignore_errors=True)
        for path in (self._log, self._labels, self._survivors):
            path.unlink(missing_ok=True)


def say(text: str) -> None:
    """Print a line at once."""
    print(text, flush=True)
    sys.stdout.flush()
