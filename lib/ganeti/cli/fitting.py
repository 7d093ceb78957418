"""Make a table fit the terminal, so that no line is wrapped.

First the domain which all names of machines have is left out. Then the longest texts are cut, with
a mark at their end; numbers are never cut. If that is not enough, the last columns are left out
and named below the table, or the table becomes a list of records: one line for each value.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Sequence

from ganeti.cli import table
from ganeti.cli.table import Column, line_width
from ganeti.utils.digits import is_number

#: No text is cut to less than this.
_SHORTEST = 9
# The first column says which object it is.
_SHORTEST_FIRST = 20

_Pairs = Sequence[tuple[str, str]]
_Rows = Sequence[Sequence[str]]


def table_lines(
    columns: Sequence[Column],
    rows: _Rows,
    width: int,
    painter: table.Painter | None = None,
    *,
    whole: bool = False,
) -> list[str]:
    """Return the lines of a table with titles, or of a list of records.

    :param width: columns of the terminal.
    :param painter: function which colours cells; records have no colours.
    :param whole: leave out no column.
    """
    if line_width(columns, rows) <= width:
        return table.format_table(columns, rows, painter=painter)
    for count in range(len(columns), 0 if not whole else len(columns) - 1, -1):
        fitted = fit(columns[:count], [row[:count] for row in rows], width)
        if fitted is not None:
            lines = table.format_table(*fitted, painter=painter)
            return lines + _left_out(columns[count:], width)
    return records(columns, rows, width)


def _left_out(columns: Sequence[Column], width: int) -> list[str]:
    """Return the lines which say that columns are left out."""
    if not columns:
        return []
    import textwrap

    titles = ", ".join(column.title for column in columns)
    return textwrap.wrap(
        f"Not shown, because the terminal has {width} columns: {titles}. A wider terminal or"
        " '-o json' shows all.",
        max(width, _SHORTEST_FIRST),
        break_on_hyphens=False,
    )


def fit(columns: Sequence[Column], rows: _Rows, width: int) -> tuple[list[Column], _Rows] | None:
    """Make a table narrower.

    :param width: columns of the terminal.
    :returns: columns and rows; None when this is not possible.
    """
    rows = _without_domain(columns, rows)
    too_much = line_width(columns, rows) - width
    widths = [
        max([len(column.title), *(len(row[index]) for row in rows)])
        for index, column in enumerate(columns)
    ]
    least = [
        size if column.right else min(size, _SHORTEST if index else _SHORTEST_FIRST)
        for index, (column, size) in enumerate(zip(columns, widths, strict=True))
    ]
    while too_much > 0:
        longest = max(range(len(widths)), key=lambda index: widths[index] - least[index])
        if widths[longest] <= least[longest]:
            return None
        widths[longest] -= 1
        too_much -= 1
    mark = _mark()
    fitted = [
        Column(_cut(column.title, size, mark), column.right)
        for column, size in zip(columns, widths, strict=True)
    ]
    return fitted, [
        [_cut(text, size, mark) for text, size in zip(row, widths, strict=True)] for row in rows
    ]


def records(columns: Sequence[Column], rows: _Rows, width: int) -> list[str]:
    """Return the lines of a list with one line for each value of a row.

    Values which are too long are wrapped below themselves.
    """
    titles = [column.title for column in columns]
    label = max(map(len, titles), default=0)
    lines: list[str] = []
    for row in rows:
        if lines:
            lines.append("")
        for title, text in zip(titles, row, strict=True):
            lines += _wrapped(f"{title:<{label}}  ", text, width)
    return lines


def described(titles: tuple[str, str], pairs: _Pairs, width: int) -> list[str]:
    """Return the lines of a table of names and sentences, which are wrapped below themselves.

    :param width: columns of the terminal.
    """
    label = max(len(name) for name, _ in (titles, *pairs))
    lines: list[str] = []
    for name, sentence in (titles, *pairs):
        lines += _wrapped(f"{name:<{label}} ", sentence, width)
    return lines


def _wrapped(label: str, text: str, width: int) -> list[str]:
    """Return a text behind a label; what is too long continues below itself."""
    import textwrap

    return textwrap.wrap(
        text or "-",
        max(width, len(label) + 20),
        initial_indent=label,
        subsequent_indent=" " * len(label),
        break_on_hyphens=False,
    )


def series(pairs: _Pairs) -> list[tuple[str, str]]:
    """Join names which differ only in their number, such as ``disk.size/0`` to ``disk.size/15``.

    The sentence of the first one stands for all, with ``N`` in place of its number.
    """
    found: list[tuple[str, str]] = []
    for _, members in itertools.groupby(pairs, _series_of):
        same = list(members)
        (name, sentence), (last, _sentence) = same[0], same[-1]
        if len(same) > 1:
            prefix, _, first = name.rpartition("/")
            words = sentence.split(" ")
            sentence = " ".join("N" if word == first else word for word in words)
            name = f"{prefix}/{first} to {last.rpartition('/')[2]}"
        found.append((name, sentence))
    return found


def _series_of(pair: tuple[str, str]) -> str:
    prefix, slash, number = pair[0].rpartition("/")
    return f"{prefix}/" if slash and is_number(number) else pair[0]


def _without_domain(columns: Sequence[Column], rows: _Rows) -> _Rows:
    """Leave out the domain of the names of machines, if all have the same one."""
    hosts = [index for index, column in enumerate(columns) if column.hosts]
    domains = {
        name.partition(".")[2] for row in rows for index in hosts for name in _names(row[index])
    }
    if len(domains) != 1:
        return rows
    suffix = f".{domains.pop()}"
    return [
        [
            ",".join(part.removesuffix(suffix) for part in text.split(","))
            if index in hosts
            else text
            for index, text in enumerate(row)
        ]
        for row in rows
    ]


def _names(text: str) -> Iterator[str]:
    """Return the names of machines in a cell, without marks for missing values."""
    for part in text.split(","):
        if part[:1].isalnum():
            yield part


def _cut(text: str, size: int, mark: str) -> str:
    return text if len(text) <= size else text[: size - 1] + mark


def _mark() -> str:
    """Return what stands at the end of a text which is cut."""
    try:
        "\u2026".encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return "~"
    return "\u2026"
