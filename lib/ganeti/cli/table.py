"""Aligned columns.

The layout is published, because people cut and awk it: one blank between columns, texts to the
left, numbers and sizes to the right, no blanks behind the last left-aligned column. With a
separator nothing is aligned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

#: Paints a cell after it was aligned: (row number or None for titles, column number, aligned text).
Painter = Callable[[int | None, int, str], str]


class Column:
    """One column: its title and to which side its cells go."""

    __slots__ = ("right", "title")

    def __init__(self, title: str, right: bool = False) -> None:
        self.title = title
        self.right = right


def format_table(
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    *,
    header: bool = True,
    separator: str | None = None,
    painter: Painter | None = None,
) -> list[str]:
    """Lines of a table.

    :param rows: a text per column in each.
    :param separator: put between cells that are then not aligned.
    """
    titles = [column.title for column in columns]
    if separator is not None:
        cells = [titles, *rows] if header else list(rows)
        return [separator.join(row) for row in cells]
    widths = [
        max([len(titles[index]) if header else 0, *(len(row[index]) for row in rows)])
        for index in range(len(columns))
    ]
    # The usual table is large and not painted: one format string does the work.
    pattern = " ".join(
        "{}"
        if not column.right and index == len(columns) - 1
        else f"{{:{'>' if column.right else '<'}{width}}}"
        for index, (column, width) in enumerate(zip(columns, widths, strict=True))
    )
    if painter is None:
        lines = [pattern.format(*titles)] if header else []
        lines.extend(pattern.format(*row) for row in rows)
        return lines
    return _painted(columns, rows, widths, header, painter)


def _painted(
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    widths: Sequence[int],
    header: bool,
    painter: Painter,
) -> list[str]:
    """As above with colours, which must not count as width."""
    numbered: list[tuple[int | None, Sequence[str]]] = list(enumerate(rows))
    if header:
        numbered.insert(0, (None, [column.title for column in columns]))
    last = len(columns) - 1
    lines = []
    for number, row in numbered:
        cells = []
        for index, text in enumerate(row):
            right = columns[index].right
            painted = painter(number, index, text)
            filler = " " * (widths[index] - len(text))
            cells.append(
                filler + painted if right else painted if index == last else painted + filler
            )
        lines.append(" ".join(cells))
    return lines
