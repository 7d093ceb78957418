"""Prints which tests were skipped and why; fails when a test that ran before is skipped now.

A test run with ``SKIPPED_TESTS=FILE`` in its environment appends its skipped tests to the file
(``test/conftest.py``). ``.ci/skipped-tests`` names those which may be skipped where CI runs, with
the reason.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

TOP = Path(__file__).resolve().parents[1]
EXPECTED = TOP / ".ci/skipped-tests"


class Skipped(NamedTuple):
    """A skipped test, or a skipped file."""

    test: str
    reason: str


def read_report(text: str) -> list[Skipped]:
    """Read the lines which ``test/conftest.py`` has written; a test may be in several runs."""
    lines = (json.loads(line) for line in text.splitlines())
    return sorted({Skipped(line["test"], line["reason"]) for line in lines})


def read_expected(text: str) -> list[str]:
    """Read the patterns of tests which may be skipped.

    :raises ValueError: a pattern has no reason.
    """
    patterns = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        pattern, _, reason = line.partition("  ")
        if not reason.strip():
            raise ValueError(f"line {number} has no reason after two spaces: {line}")
        patterns.append(pattern)
    return patterns


def unexpected(found: Iterable[Skipped], patterns: Sequence[str]) -> list[Skipped]:
    """Return the skipped tests which no pattern allows to be skipped."""
    return [
        one
        for one in found
        if not any(fnmatch.fnmatchcase(_plain(one.test), _plain(each)) for each in patterns)
    ]


def _plain(text: str) -> str:
    # The parameters of a test are not a set of characters.
    return text.replace("[", "(").replace("]", ")")


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0: all skipped tests are expected. 1: one is not. 2: a file cannot be read."""
    parser = argparse.ArgumentParser(prog="devel.skipped", description=__doc__.splitlines()[0])
    parser.add_argument("report", type=Path, help="the file of SKIPPED_TESTS")
    parser.add_argument("--expected", type=Path, default=EXPECTED, help="default: %(default)s")
    args = parser.parse_args(argv)
    try:
        # No file: no test was skipped.
        found = read_report(args.report.read_text()) if args.report.exists() else []
        patterns = read_expected(args.expected.read_text())
    except (OSError, ValueError, KeyError) as err:
        print(f"skipped: {err}", file=sys.stderr)
        return 2
    print(f"{len(found)} tests were skipped")
    for one in found:
        print(f"  {one.test}: {one.reason}")
    new = unexpected(found, patterns)
    if new:
        print(f"{len(new)} of them ran before, or are not in {args.expected}:")
        for one in new:
            print(f"  {one.test}: {one.reason}")
    return 1 if new else 0


if __name__ == "__main__":
    sys.exit(main())
