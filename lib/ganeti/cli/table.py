"""Tables with aligned columns.

The layout is published, because scripts split these lines: one blank between columns, texts aligned
to the left, numbers and sizes to the right, no blanks after a last column that is aligned to the
left. With a separator nothing is aligned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

#: Colours a cell: (row number, or None for titles; column number; text) -> text with colours.
Painter = Callable[[int | None, int, str], str]


class Column:
    """One column of a table.

    :param right: whether its cells are aligned to the right.
    :param hosts: whether its cells are names of machines, or lists of them with commas.
    """

    __slots__ = ("hosts", "right", "title")

    def __init__(self, title: str, right: bool = False, *, hosts: bool = False) -> None:
        self.title = title
        self.right = right
        self.hosts = hosts


def format_table(
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    *,
    header: bool = True,
    separator: str | None = None,
    painter: Painter | None = None,
) -> list[str]:
    """Return the lines of a table.

    :param rows: rows with a text for each column.
    :param header: whether the first line contains the titles.
    :param separator: text between cells; with it, cells are not aligned.
    :param painter: function which colours cells.
    """
    titles = [column.title for column in columns]
    if any("\n" in text for row in rows for text in row):
        # A text cannot add a line which looks like another row.
        rows = [[text.replace("\n", "\\n") for text in row] for row in rows]
    if separator is not None:
        cells = [titles, *rows] if header else list(rows)
        return [separator.join(row) for row in cells]
    widths = [
        max([len(titles[index]) if header else 0, *(len(row[index]) for row in rows)])
        for index in range(len(columns))
    ]
    # Large tables have no colours; one format string for all rows is fast.
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
    """Return the lines of a table with colours, which do not count for the widths."""
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


def line_width(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> int:
    """Return the width of the longest line of a table with titles."""
    widths = [
        max([len(column.title), *(len(row[index]) for row in rows)])
        for index, column in enumerate(columns)
    ]
    return sum(widths) + len(widths) - 1
