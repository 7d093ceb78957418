"""Prints the table of crash points: ``python -m crash_points [OPTIONS] [WORD...]``.

Each word is a part of the names of subjects. Exit code 1: a promise was broken, or a subject has
fewer points than recorded.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from crash_points import jobs, keys, masters, operations
from crash_points.engine import Result, Subject, Trial, say

RECORDED = Path(__file__).with_name("recorded.json")
# Threads come to their points in another order each time, and commit more or less together.
_UNSTEADY = 0.7


def subjects(base: Path, patch: pytest.MonkeyPatch) -> Iterator[Subject]:
    """Return all subjects, one after the other: some change this process."""
    yield jobs.Queue(base / "queue")
    yield masters.Configuration(base / "configuration")
    yield masters.Journal(base / "journal")
    yield masters.RoleMoved(base / "moved", patch)
    yield masters.RoleTaken(base / "taken", patch)
    yield keys.Join(base / "join", patch)
    yield keys.NodeAdded(base / "added")
    yield keys.Renewal(base / "renewal", patch)
    yield from operations.subjects(base, patch)


def fallen(result: Result, recorded: dict[str, int] | None, *, steady: bool) -> str:
    """Tell how the number of points has fallen; empty when it has not.

    :param recorded: ``points`` and ``kinds`` of the subject; None for a new one.
    """
    if recorded is None:
        return f"{result.name} is new: record it with --record"
    for what, found in (("points", result.points), ("kinds", result.kinds)):
        least = recorded[what] if steady else int(recorded[what] * _UNSTEADY)
        if found < least:
            return (
                f"{result.name} had {recorded[what]} {what}, and has {found}. If that is meant, for"
                " example because the work became shorter, record it with --record."
            )
    return ""


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m crash_points", description=__doc__)
    add = parser.add_argument
    add("words", nargs="*", metavar="WORD", help="only subjects whose names contain one of these")
    add("--every", type=int, default=1, metavar="N", help="die at every Nth point (default: 1)")
    add("--first", type=int, default=0, metavar="N", help="begin with this point")
    add("--count", action="store_true", help="count the points, and do not die")
    add("--record", action="store_true", help="write the numbers into recorded.json")
    options = parser.parse_args(argv)
    logging.disable(logging.CRITICAL)
    recorded = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    wrong: list[str] = []
    total = Result("together")
    say(f"{'subject':44} {'points':>6} {'kinds':>6} {'deaths':>6}  broken promises")
    with tempfile.TemporaryDirectory(prefix="crash") as base, pytest.MonkeyPatch.context() as patch:
        for subject in subjects(Path(base), patch):
            if options.words and not any(word in subject.name for word in options.words):
                continue
            trial = Trial(subject)
            every = sys.maxsize if options.count else options.every
            first = sys.maxsize - 1 if options.count else options.first
            result = trial.run(every, first)
            trial.clean_up()
            say(
                f"{result.name:44} {result.points:6} {result.kinds:6} {result.killed:6}"
                f"  {len(result.broken) or '-'}"
            )
            wrong += result.broken
            if options.record:
                recorded[result.name] = {"points": result.points, "kinds": result.kinds}
            elif problem := fallen(result, recorded.get(result.name), steady=subject.steady):
                wrong.append(problem)
            total.points += result.points
            total.kinds += result.kinds
            total.killed += result.killed
            total.broken += result.broken
    say(f"{'together':44} {total.points:6} {total.kinds:6} {total.killed:6}  {len(total.broken)}")
    if options.record:
        RECORDED.write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n")
    for problem in wrong:
        say(f"\n{problem}")
    return 1 if wrong else 0


if __name__ == "__main__":
    os.environ.pop("GANETI_LONG", None)
    sys.exit(main())
