"""Mutation tests (``make mutants``): does a test fail when a known fault is put into the program?

``test/mutants/*.toml`` lists realistic faults, one file for each package: the file, its exact old
text, the new text, and the tests which ought to fail. This program puts in one fault at a time and
runs these tests. A fault without a failing test *survives*: a test is missing, or the line is
needless.

The faults are put into a copy of the project in a temporary directory; the checkout stays as it
is. The tests of each group run once without a fault before, because a test which always fails would
find every fault. A test which does not end hangs, and counts as a failing one. On a machine with
other work a test may fail or last long for want of time: a fault is found when the test fails or
hangs twice.

With ``--record`` the outcomes are written to ``test/mutants/outcomes.jsonl``, one by one, so that
an interrupted run goes on with ``--untried``; at its end the table in ``doc/mutation.rst`` is made
from them. The test which found a fault last time runs first, then those which call what it changes;
the others run only when these pass.

The long check runs a part which rotates: with ``--part today/7`` each fault is tried once a week.
With ``--regressions`` it fails when a fault survives which was found before, and only then.
"""

from __future__ import annotations

import argparse
import ast
import datetime
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devel import mutation_record, mutation_server
from devel.mutation_record import HANGS, KILLED, SURVIVED, Entry, RecordError

TOP = Path(__file__).resolve().parents[1]
FAULTS = TOP / "test/mutants"
RECORD = FAULTS / "outcomes.jsonl"
PAGE = TOP / "doc/mutation.rst"
# The parts of the project which tests read.
_COPIED = ("lib", "test", "devel", "daemons", "scripts", "tools", "man", "doc", "packaging")
_FILES = ("pyproject.toml", "setup.py", "Makefile", "README.md", "CONTRIBUTING.md")
# A test hangs when it lasts so many seconds. Without a fault it may last so many times as long.
_LIMIT_S = 40.0
_PATIENCE = 6
# Number of places at which a part that changes from day to day may begin.
_BEGINNINGS = 4
# Number of tests which are tried first, because they call what a fault changes.
_NEAREST = 30
# Exit codes of pytest when it has run nothing: a wrong argument, and no test.
_NOT_RUN = (4, 5)
# A line of pytest's summary; the parameters of a test may contain anything.
_FAILED = re.compile(r"^(?:FAILED|ERROR) (test/[^\s\[]+)", re.MULTILINE)


class ListError(Exception):
    """A list of faults does not fit the program."""


@dataclass(frozen=True)
class Fault:
    """A fault.

    :ivar package: name of its list.
    :ivar what: what the program does wrong with it.
    :ivar file: the file, relative to ``lib/ganeti``.
    :ivar tests: files or directories of tests, relative to the top; those which find it.
    :ivar open: why no test finds it yet; it counts in the score, and is not a failure.
    """

    package: str
    what: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    open: str = ""

    @property
    def digest(self) -> str:
        """Digest of the file and both texts: it changes when the fault becomes another one."""
        text = "\0".join((self.file, self.old, self.new))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

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
    files: dict[str, list[Fault]] = {}
    for fault in faults:
        files.setdefault(fault.file, []).append(fault)
        if not fault.tests:
            found.append(f"{fault}: no tests are named")
        found += [
            f"{fault}: there is no {test}" for test in fault.tests if not (top / test).exists()
        ]
    for file, inside in files.items():
        try:
            found += _wrong_texts((top / "lib/ganeti" / file).read_text(), inside)
        except OSError as err:
            found += [f"{fault}: {err}" for fault in inside]
    return found


def _wrong_texts(text: str, faults: Sequence[Fault]) -> list[str]:
    """Return what is wrong with the old and new texts of the faults of one file.

    To compile a file takes long, so faults which change different places are compiled together,
    and one by one only when that fails.

    :param text: content of the file.
    """
    found, fitting = [], []
    for fault in faults:
        try:
            fault.apply(text)
            fitting.append(fault)
        except ListError as err:
            found.append(str(err))
    while fitting:
        changed, together, later = text, [], []
        end = len(text)
        for fault in sorted(fitting, key=lambda fault: text.index(fault.old), reverse=True):
            begin = text.index(fault.old)
            if begin + len(fault.old) <= end:
                changed = changed[:begin] + fault.new + changed[begin + len(fault.old) :]
                together.append(fault)
                end = begin
            else:
                later.append(fault)
        if _syntax_error(changed):
            for fault in together:
                if error := _syntax_error(fault.apply(text)):
                    found.append(f"{fault}: the new text is not Python: {error}")
        fitting = later
    return found


def _syntax_error(text: str) -> str:
    """Return what is wrong with the text of a module; empty when it can be compiled."""
    try:
        compile(text, "module", "exec")
    except SyntaxError as err:
        return str(err)
    return ""


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
    chosen = list(faults[number::parts])
    # A run with a limit of time tries only the first ones, so a part begins at another place the
    # next time.
    begin = day // parts % _BEGINNINGS * len(chosen) // _BEGINNINGS if which == "today" else 0
    return chosen[begin:] + chosen[:begin]


@dataclass(frozen=True)
class _Run:
    """What came of a run of tests.

    :ivar code: exit code of pytest; None when a test did not end.
    :ivar culprit: the test which failed or did not end; empty when none is known.
    """

    code: int | None
    culprit: str

    @property
    def found(self) -> bool:
        """A test failed or did not end."""
        return self.code not in (0, *_NOT_RUN)


class Workplace:
    """A copy of the project in which faults are tried; a context manager."""

    def __init__(self, directory: Path, python: str) -> None:
        self._directory = directory
        self._healthy: dict[tuple[str, ...], bool] = {}
        # The tests which call each function, for each set of tests; see devel/mutation_server.py.
        self._callers: dict[tuple[str, ...], dict[str, list[str]]] = {}
        for name in _COPIED:
            if (TOP / name).is_dir():
                shutil.copytree(TOP / name, directory / name, symlinks=True)
        (directory / "tmp").mkdir()
        for name in _FILES:
            if (TOP / name).is_file():
                shutil.copy2(TOP / name, directory / name)
        self._server = subprocess.Popen(
            [python, str(Path(mutation_server.__file__).resolve())],
            cwd=directory,
            env={
                **os.environ,
                "PYTHONPATH": f"{directory}/lib:{directory}",
                "HYPOTHESIS_STORAGE_DIRECTORY": f"{directory}/.hypothesis",
                "TMPDIR": f"{directory}/tmp",
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )

    def __enter__(self) -> Workplace:
        return self

    def __exit__(self, *_exception: object) -> None:
        assert self._server.stdin is not None and self._server.stdout is not None
        self._server.stdin.close()
        self._server.wait()
        self._server.stdout.close()

    def healthy(self, tests: tuple[str, ...]) -> bool:
        """Tell whether tests pass without a fault."""
        if tests not in self._healthy:
            calls = self._directory / "calls"
            run = self._run(tests, _PATIENCE * _LIMIT_S, calls)
            if run.code == 0:
                self._callers[tests] = callers(json.loads(calls.read_text()))
            else:
                # A test which measures something may not bear that its calls are recorded.
                self._callers[tests] = {}
                run = self._run(tests, _PATIENCE * _LIMIT_S)
            self._healthy[tests] = run.code == 0
            if run.code != 0:
                print(f"fails without a fault: {run.culprit or ' '.join(tests)}", flush=True)
        return self._healthy[tests]

    def nearest(self, fault: Fault) -> tuple[str, ...]:
        """Return some of the tests of a fault: those which call what it changes.

        The tests of the fault have to be healthy. Tests which call few functions come first. None
        are returned when the fault is outside of functions.
        """
        text = (self._directory / "lib/ganeti" / fault.file).read_text()
        found: dict[str, None] = {}
        for line in functions_of(text, fault.apply(text)):
            found.update(dict.fromkeys(self._callers[fault.tests].get(f"{fault.file}:{line}", ())))
        return tuple(found)[:_NEAREST]

    def outcome(
        self, fault: Fault, tests: tuple[str, ...], *, some_of: tuple[str, ...] = ()
    ) -> tuple[str, str]:
        """Try a fault with tests, which have to be healthy.

        :param some_of: run these of them only.
        :return: the outcome, and the first test which failed (empty when none did).
        """
        path = self._directory / "lib/ganeti" / fault.file
        text = path.read_text()
        _put(path, fault.apply(text))
        try:
            return self._judged(some_of or tests)
        finally:
            _put(path, text)

    def _judged(self, tests: tuple[str, ...]) -> tuple[str, str]:
        run = self._run(tests, _LIMIT_S)
        if run.found and run.culprit:
            again = self._run((run.culprit,), _LIMIT_S)
            if again.found:
                return (HANGS if again.code is None else KILLED), run.culprit
        if run.found:
            run = self._run(tests, _LIMIT_S)
        if not run.found:
            return SURVIVED, ""
        return (HANGS if run.code is None else KILLED), run.culprit

    def _run(self, tests: tuple[str, ...], limit_s: float, calls: Path | None = None) -> _Run:
        """Run tests.

        :param limit_s: end them when one of them lasts longer.
        """
        assert self._server.stdin is not None and self._server.stdout is not None
        # A file and no pipe: a process which a test left behind would keep the pipe open.
        output = self._directory / "output"
        request = {
            "tests": tests,
            "output": str(output),
            "calls": None if calls is None else str(calls),
            "limit_s": limit_s,
        }
        self._server.stdin.write(f"{json.dumps(request)}\n")
        self._server.stdin.flush()
        line = self._server.stdout.readline()
        if not line:
            raise RuntimeError("devel/mutation_server.py has ended; its error is above")
        answer = json.loads(line)
        failed = _first_failure(output.read_text(errors="replace"))
        return _Run(answer["code"], answer["at"] if answer["code"] is None else failed)


def callers(calls: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return the tests which call each function; tests which call few functions come first.

    :param calls: the functions which each test calls.
    """
    found: dict[str, list[str]] = {}
    for test in sorted(calls, key=lambda test: len(calls[test])):
        for function in calls[test]:
            found.setdefault(function, []).append(test)
    return found


def functions_of(before: str, after: str) -> list[int]:
    """Return the first lines of the functions in which two texts of a module differ.

    :param before: the text for which the numbers of lines count.
    """
    old, new = before.splitlines(), after.splitlines()
    shortest = min(len(old), len(new))
    same = next((at for at in range(shortest) if old[at] != new[at]), shortest)
    last = next(
        (at for at in range(shortest - same) if old[-1 - at] != new[-1 - at]), shortest - same
    )
    # Lines which are only new stand between two old ones.
    changed = range(same + 1, len(old) - last + 1) or range(max(same, 1), same + 2)
    functions = [
        (min([node.lineno, *(one.lineno for one in node.decorator_list)]), node.end_lineno or 0)
        for node in ast.walk(ast.parse(before))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    found = set()
    for line in changed:
        around = [first for first, end in functions if first <= line <= end]
        found.update([max(around)] if around else [])
    return sorted(found)


def _first_failure(output: str) -> str:
    """Return the first test which failed, from the output of pytest; empty when none did."""
    failed = _FAILED.search(output)
    return failed.group(1) if failed else ""


def _put(path: Path, text: str) -> None:
    # A compiled file is taken for current when time and size of its source agree.
    for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
        compiled.unlink()
    path.write_text(text)


@dataclass(frozen=True)
class Attempt:
    """What came of a fault in this run."""

    fault: Fault
    outcome: str
    by: str

    def entry(self, date: str) -> Entry:
        """Return it as it is recorded."""
        return Entry(str(self.fault), self.fault.digest, self.outcome, self.by, date)


def recorded(fault: Fault, entries: Mapping[str, Entry]) -> Entry | None:
    """Return what is recorded of a fault, unless the fault has changed since."""
    entry = entries.get(str(fault))
    return entry if entry is not None and entry.digest == fault.digest else None


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0: no fault survived, except open ones. 1: one did. 2: a list or test is wrong."""
    parser = argparse.ArgumentParser(prog="devel.mutate", description=__doc__.splitlines()[0])
    parser.add_argument("lists", nargs="*", metavar="LIST", help="lists to try (default: all)")
    parser.add_argument("--part", metavar="N/M", help="every M-th fault; today/M: another each day")
    parser.add_argument("--only", metavar="TEXT", help="faults whose description contains this")
    parser.add_argument("--untried", action="store_true", help="faults which were never recorded")
    parser.add_argument("--survivors", action="store_true", help="faults recorded as not found")
    parser.add_argument("--record", action="store_true", help="write the outcomes and the table")
    parser.add_argument("--file", type=Path, default=RECORD, help="record (default: %(default)s)")
    parser.add_argument(
        "--regressions", action="store_true", help="only faults recorded as found must be found"
    )
    parser.add_argument("--seconds", type=float, help="begin no further fault after this time")
    parser.add_argument("--check", action="store_true", help="check the lists and run nothing")
    args = parser.parse_args(argv)
    try:
        every = read_lists()
        entries = mutation_record.read(args.file)
        faults = choose(args, every, entries)
    except (ListError, RecordError, ValueError) as err:
        print(f"mutate: {err}", file=sys.stderr)
        return 2
    wrong = problems(faults)
    for problem in wrong:
        print(f"mutate: {problem}", file=sys.stderr)
    if wrong or args.check:
        return 2 if wrong else 0
    # Tests flush and rename much; in memory they take a fraction of the time.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="ganeti-mutants-", dir=memory) as directory:
        with Workplace(Path(directory), sys.executable) as workplace:
            series = Series(workplace, entries)
            series.run(faults, args.seconds, args.file if args.record else None)
    if args.record:
        mutation_record.keep(args.file, map(str, every))
        mutation_record.write_page(PAGE, mutation_record.read(args.file).values())
    return series.report(regressions=args.regressions)


def choose(
    args: argparse.Namespace, faults: list[Fault], entries: Mapping[str, Entry]
) -> list[Fault]:
    """Return the faults which the command line asks for.

    :param entries: what is recorded of earlier runs.
    :raises ListError: a list is unknown.
    :raises ValueError: the part is none.
    """
    unknown = set(args.lists) - {fault.package for fault in faults}
    if unknown:
        raise ListError(f"there is no list {', '.join(sorted(unknown))}")
    faults = [fault for fault in faults if not args.lists or fault.package in args.lists]
    faults = [fault for fault in faults if not args.only or args.only in fault.what]
    if args.untried:
        faults = [fault for fault in faults if recorded(fault, entries) is None]
    if args.survivors:
        known = [(fault, recorded(fault, entries)) for fault in faults]
        faults = [fault for fault, entry in known if entry and entry.outcome == SURVIVED]
    if args.part:
        faults = part_of(faults, args.part, datetime.date.today().toordinal())
    return faults


class Series:
    """Tries faults one after the other.

    :param entries: what is recorded of earlier runs.
    """

    def __init__(self, workplace: Workplace, entries: Mapping[str, Entry]) -> None:
        self._workplace = workplace
        self._entries = entries
        self.attempts: list[Attempt] = []
        self.unhealthy: set[tuple[str, ...]] = set()

    def run(self, faults: Sequence[Fault], seconds: float | None, record: Path | None) -> None:
        """Try the faults, and record each outcome at once when a record is given.

        :param seconds: begin no further fault after this time.
        """
        begin = time.monotonic()
        today = datetime.date.today().isoformat()
        for number, fault in enumerate(faults, 1):
            if seconds is not None and time.monotonic() - begin > seconds:
                print(f"stopped after {seconds:g} seconds and {number - 1} of {len(faults)} faults")
                break
            attempt = self._try(fault)
            if attempt is None:
                self.unhealthy.add(fault.tests)
                continue
            self.attempts.append(attempt)
            print(f"{number}/{len(faults)} {attempt.outcome}: {fault}", flush=True)
            if record is not None:
                mutation_record.add(record, [attempt.entry(today)])

    def _try(self, fault: Fault) -> Attempt | None:
        """Try a fault; returns None when its tests fail without it."""
        place, entry = self._workplace, recorded(fault, self._entries)
        # One test is faster than all of them; when it does not find the fault, another one may.
        before = (entry.by,) if entry is not None and entry.by else ()
        if before and place.healthy(before):
            outcome, by = place.outcome(fault, before)
            if outcome != SURVIVED:
                return Attempt(fault, outcome, by or before[0])
        if not place.healthy(fault.tests):
            return None
        nearest = place.nearest(fault)
        if nearest:
            outcome, by = place.outcome(fault, fault.tests, some_of=nearest)
            if outcome != SURVIVED:
                return Attempt(fault, outcome, by)
        return Attempt(fault, *place.outcome(fault, fault.tests))

    def report(self, *, regressions: bool = False) -> int:
        """Print the scores and the survivors, and return the exit code.

        :param regressions: a fault which is not recorded as found may survive, and tests which
            fail without a fault are not a failure.
        """
        print(mutation_record.table((one.fault.package, one.outcome) for one in self.attempts))
        code = 0
        for attempt in self.attempts:
            fault = attempt.fault
            if attempt.outcome == SURVIVED:
                print(f"survived: {fault} (lib/ganeti/{fault.file}) {fault.open}".rstrip())
                entry = recorded(fault, self._entries)
                new = entry is None or entry.outcome == SURVIVED
                code = code if fault.open or (regressions and new) else 1
            elif fault.open:
                print(f"found now, so it is no longer open: {fault}")
        for tests in self.unhealthy:
            text = f"mutate: these tests fail without a fault: {' '.join(tests)}"
            print(text, file=sys.stderr)
        # The other parts of the check report a test which always fails.
        return 2 if self.unhealthy and not regressions else code


if __name__ == "__main__":
    sys.exit(main())
