"""Mutation tests (``make mutants``): does a test fail when a known fault is put into the program?

``test/mutants/*.toml`` lists realistic faults, one file for each package: the file, its exact old
text, the new text, and the tests which ought to fail. This program puts in one fault at a time and
runs these tests. A fault without a failing test *survives*: a test is missing, or the line is
needless.

The faults are put into a copy of the project in a temporary directory; the checkout stays as it
is. The tests of each group run once without a fault before, because a test which always fails would
find every fault. A run that lasts much longer than that one hangs, and counts as found.

The long check runs a part which rotates: with ``--part today/7`` each fault is tried once a week.
"""

from __future__ import annotations

import argparse
import datetime
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parents[1]
FAULTS = TOP / "test/mutants"
# The parts of the project which tests read.
_COPIED = ("lib", "test", "devel", "daemons", "scripts", "tools", "man", "doc", "packaging")
_FILES = ("pyproject.toml", "setup.py", "Makefile", "README.md", "CONTRIBUTING.md")
# A run with a fault may last so many times as long as without, and so many seconds at least.
_PATIENCE = 10
_LEAST_S = 60.0

KILLED = "found"
HANGS = "found, the tests hang"
SURVIVED = "SURVIVED"


class ListError(Exception):
    """A list of faults does not fit the program."""


@dataclass(frozen=True)
class Fault:
    """A fault.

    :ivar package: name of its list.
    :ivar what: what the program does wrong with it.
    :ivar file: the file, relative to ``lib/ganeti``.
    :ivar tests: files or directories of tests, relative to the top; those which find it.
    :ivar open: why no test finds it yet; it counts in the score, and is no failure.
    """

    package: str
    what: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    open: str = ""

    def apply(self, text: str) -> str:
        """Return the content of the file with the fault.

        :raises ListError: the old text is not there exactly once, or nothing changes.
        """
        found = text.count(self.old)
        if found != 1:
            raise ListError(f"{self}: the old text occurs {found} times in lib/ganeti/{self.file}")
        changed = text.replace(self.old, self.new)
        if changed == text:
            raise ListError(f"{self}: the new text is the old one")
        return changed

    def __str__(self) -> str:
        return f"{self.package}: {self.what}"


def read_lists(directory: Path = FAULTS) -> list[Fault]:
    """Read all lists of faults.

    :raises ListError: a list is malformed, or two faults have the same name.
    """
    faults: list[Fault] = []
    for path in sorted(directory.glob("*.toml")):
        faults += _read(path)
    seen: set[str] = set()
    for fault in faults:
        if str(fault) in seen:
            raise ListError(f"{fault}: there are two faults of this name")
        seen.add(str(fault))
    return faults


def _read(path: Path) -> list[Fault]:
    try:
        content: dict[str, Any] = tomllib.loads(path.read_text())
        default = content.get("tests", [])
        faults = [
            Fault(
                path.stem,
                entry.pop("what"),
                entry.pop("file"),
                entry.pop("old"),
                entry.pop("new"),
                tuple(entry.pop("tests", default)),
                entry.pop("open", ""),
            )
            for entry in content["fault"]
        ]
        for fault, entry in zip(faults, content["fault"], strict=True):
            if entry:
                raise ListError(f"{fault}: unknown keys {', '.join(entry)}")
    except (tomllib.TOMLDecodeError, KeyError, TypeError) as err:
        raise ListError(f"{path}: {type(err).__name__}: {err}") from err
    return faults


def problems(faults: Iterable[Fault], top: Path = TOP) -> list[str]:
    """Return what is wrong with the list itself: old text which is gone, tests which are gone."""
    found = []
    for fault in faults:
        try:
            changed = fault.apply((top / "lib/ganeti" / fault.file).read_text())
            compile(changed, fault.file, "exec")
        except (ListError, OSError) as err:
            found.append(str(err))
        except SyntaxError as err:
            found.append(f"{fault}: the new text is no Python: {err}")
        if not fault.tests:
            found.append(f"{fault}: no tests are named")
        found += [
            f"{fault}: there is no {test}" for test in fault.tests if not (top / test).exists()
        ]
    return found


def part_of(faults: Sequence[Fault], part: str, day: int) -> list[Fault]:
    """Return every M-th fault, from the N-th.

    :param part: ``N/M``, or ``today/M`` for a part which changes from day to day.
    :param day: number of the day.
    :raises ValueError: the part is none.
    """
    which, _, count = part.partition("/")
    parts = int(count)
    number = day % parts if which == "today" else int(which) - 1
    if not 0 <= number < parts:
        raise ValueError(f"there is no part {part}")
    return list(faults[number::parts])


class Workplace:
    """A copy of the project in which faults are tried."""

    def __init__(self, directory: Path, python: str) -> None:
        self._directory = directory
        self._python = python
        self._normal_s: dict[tuple[str, ...], float | None] = {}
        for name in _COPIED:
            if (TOP / name).is_dir():
                shutil.copytree(TOP / name, directory / name, symlinks=True)
        (directory / "tmp").mkdir()
        for name in _FILES:
            if (TOP / name).is_file():
                shutil.copy2(TOP / name, directory / name)

    def healthy(self, tests: tuple[str, ...]) -> bool:
        """Tell whether tests pass without a fault."""
        if tests not in self._normal_s:
            begin = time.monotonic()
            passed = self._run(tests, 1800.0) == 0
            self._normal_s[tests] = time.monotonic() - begin if passed else None
        return self._normal_s[tests] is not None

    def outcome(self, fault: Fault) -> str:
        """Try a fault; the tests have to be healthy."""
        path = self._directory / "lib/ganeti" / fault.file
        text = path.read_text()
        limit_s = max(_LEAST_S, _PATIENCE * (self._normal_s[fault.tests] or 0.0))
        _put(path, fault.apply(text))
        try:
            code = self._run(fault.tests, limit_s)
        finally:
            _put(path, text)
        return HANGS if code is None else SURVIVED if code == 0 else KILLED

    def _run(self, tests: tuple[str, ...], limit_s: float) -> int | None:
        """Run tests; returns the exit code, or None when the time was over."""
        with subprocess.Popen(
            [self._python, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests],
            cwd=self._directory,
            env={
                **os.environ,
                "PYTHONPATH": f"{self._directory}/lib:{self._directory}",
                "HYPOTHESIS_STORAGE_DIRECTORY": f"{self._directory}/.hypothesis",
                "TMPDIR": f"{self._directory}/tmp",
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as running:
            try:
                return running.wait(limit_s)
            except subprocess.TimeoutExpired:
                return None
            finally:
                # A hanging test may have children.
                try:
                    os.killpg(running.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass


def _put(path: Path, text: str) -> None:
    # A compiled file is taken for current when time and size of its source agree.
    for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
        compiled.unlink()
    path.write_text(text)


def table(results: Iterable[tuple[Fault, str]]) -> str:
    """Return the score for each package, as a table in reStructuredText."""
    counts: dict[str, list[int]] = {}
    for fault, outcome in results:
        count = counts.setdefault(fault.package, [0, 0])
        count[0] += 1
        count[1] += outcome != SURVIVED
    rule = f"{'=' * 24} ====== ===== ====="
    lines = [rule, f"{'list':<24} {'faults':>6} {'found':>5} score", rule]
    lines += [
        f"{name:<24} {tried:>6} {found:>5} {100 * found // tried:>3} %"
        for name, (tried, found) in sorted(counts.items())
    ]
    tried, found = (sum(count[place] for count in counts.values()) for place in (0, 1))
    if tried:
        lines.append(f"{'all':<24} {tried:>6} {found:>5} {100 * found // tried:>3} %")
    return "\n".join([*lines, rule])


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0: no fault survived, except open ones. 1: one did. 2: a list or test is wrong."""
    parser = argparse.ArgumentParser(prog="devel.mutate", description=__doc__.splitlines()[0])
    parser.add_argument("lists", nargs="*", metavar="LIST", help="lists to try (default: all)")
    parser.add_argument("--part", metavar="N/M", help="every M-th fault; today/M: another each day")
    parser.add_argument("--only", metavar="TEXT", help="faults whose description contains this")
    parser.add_argument("--seconds", type=float, help="begin no further fault after this time")
    parser.add_argument("--check", action="store_true", help="check the lists and run nothing")
    args = parser.parse_args(argv)
    try:
        faults = read_lists()
        unknown = set(args.lists) - {fault.package for fault in faults}
        if unknown:
            raise ListError(f"there is no list {', '.join(sorted(unknown))}")
        faults = [fault for fault in faults if not args.lists or fault.package in args.lists]
        faults = [fault for fault in faults if not args.only or args.only in fault.what]
        wrong = problems(faults)
        if args.part:
            faults = part_of(faults, args.part, datetime.date.today().toordinal())
    except (ListError, ValueError) as err:
        print(f"mutate: {err}", file=sys.stderr)
        return 2
    for problem in wrong:
        print(f"mutate: {problem}", file=sys.stderr)
    if wrong or args.check:
        return 2 if wrong else 0
    # Tests flush and rename much; in memory they take a fraction of the time.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="ganeti-mutants-", dir=memory) as directory:
        results, unhealthy = _try(faults, Workplace(Path(directory), sys.executable), args.seconds)
    print(table(results))
    for fault, outcome in results:
        if outcome == SURVIVED:
            print(f"survived: {fault} (lib/ganeti/{fault.file}) {fault.open}".rstrip())
        elif fault.open:
            print(f"found now, so it is no longer open: {fault}")
    for tests in unhealthy:
        print(f"mutate: these tests fail without a fault: {' '.join(tests)}", file=sys.stderr)
    if unhealthy:
        return 2
    return 1 if any(one == SURVIVED and not fault.open for fault, one in results) else 0


def _try(
    faults: Sequence[Fault], workplace: Workplace, seconds: float | None
) -> tuple[list[tuple[Fault, str]], set[tuple[str, ...]]]:
    results = []
    unhealthy = set()
    begin = time.monotonic()
    for number, fault in enumerate(faults, 1):
        if seconds is not None and time.monotonic() - begin > seconds:
            print(f"stopped after {seconds:g} seconds and {number - 1} of {len(faults)} faults")
            break
        if not workplace.healthy(fault.tests):
            unhealthy.add(fault.tests)
            continue
        outcome = workplace.outcome(fault)
        results.append((fault, outcome))
        print(f"{number}/{len(faults)} {outcome}: {fault}", flush=True)
    return results, unhealthy


if __name__ == "__main__":
    sys.exit(main())
