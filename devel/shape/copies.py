"""Runs of lines which stand in two places to the letter."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import combinations
from typing import NamedTuple

from devel.shape.source import Source, code_lines

#: Equal lines of code, one after the other, which make a copy.
RUN = 6
#: A run which stands in more places is a common form and no copy.
COMMON = 8


class Copy(NamedTuple):
    """Two places with the same lines: file and first line of each, and the number of lines."""

    first: str
    first_line: int
    second: str
    second_line: int
    lines: int

    def __str__(self) -> str:
        return (
            f"{self.first}:{self.first_line} ~ {self.second}:{self.second_line} {self.lines} lines"
        )


def copies(sources: Iterable[Source]) -> list[Copy]:
    """Return the longest copy of each pair of files, or inside a file; the longest first.

    Lines count as :func:`devel.shape.source.code_lines` yields them, so indentation, comments and
    docstrings make no difference.
    """
    lines = {source.name: list(code_lines(source)) for source in sources}
    places: dict[tuple[str, ...], list[tuple[str, int]]] = defaultdict(list)
    for name, numbered in lines.items():
        texts = [text for _number, text in numbered]
        for start in range(len(texts) - RUN + 1):
            places[tuple(texts[start : start + RUN])].append((name, start))
    longest: dict[tuple[str, str], Copy] = {}
    for found in places.values():
        if not 1 < len(found) <= COMMON:
            continue
        for (one, start), (other, begin) in combinations(found, 2):
            if one == other and begin - start < RUN:
                continue
            count = _equal(lines[one], start, lines[other], begin)
            copy = Copy(one, lines[one][start][0], other, lines[other][begin][0], count)
            known = longest.get((one, other))
            if known is None or known.lines < count:
                longest[one, other] = copy
    return sorted(longest.values(), key=lambda copy: (-copy.lines, copy))


def _equal(one: list[tuple[int, str]], start: int, other: list[tuple[int, str]], begin: int) -> int:
    count = 0
    while (
        start + count < len(one)
        and begin + count < len(other)
        and one[start + count][1] == other[begin + count][1]
    ):
        count += 1
    return count
