"""Aligned columns."""

from __future__ import annotations

from ganeti.cli.table import Column, format_table

COLUMNS = [Column("Name"), Column("Size", right=True), Column("Tags")]
ROWS = [["web1", "128M", "a,b"], ["database", "-", ""]]


def test_aligned() -> None:
    assert format_table(COLUMNS, ROWS) == [
        "Name     Size Tags",
        "web1     128M a,b",
        "database    - ",
    ]


def test_right_aligned_last_column_is_padded() -> None:
    assert format_table([Column("N"), Column("Memory", right=True)], [["x", "1"]]) == [
        "N Memory",
        "x      1",
    ]


def test_without_titles_their_width_does_not_count() -> None:
    assert format_table([Column("A long title"), Column("B")], [["x", "y"]], header=False) == [
        "x y"
    ]


def test_separator() -> None:
    assert format_table(COLUMNS, ROWS, separator="|") == [
        "Name|Size|Tags",
        "web1|128M|a,b",
        "database|-|",
    ]
    assert format_table(COLUMNS, ROWS, separator=":", header=False) == [
        "web1:128M:a,b",
        "database:-:",
    ]


def test_a_cell_cannot_add_a_row() -> None:
    columns = [Column("Name"), Column("Reason")]
    rows = [["web1", "x\nweb2 forged"], ["web3", "y"]]
    assert format_table(columns, rows, header=False) == [
        r"web1 x\nweb2 forged",
        "web3 y",
    ]


def test_no_rows() -> None:
    assert format_table(COLUMNS, []) == ["Name Size Tags"]
    assert format_table(COLUMNS, [], header=False) == []


def test_braces_are_text() -> None:
    assert format_table([Column("{x}"), Column("B")], [["{}", "{0}"]]) == ["{x} B", "{}  {0}"]


def test_colours_do_not_count_as_width() -> None:
    painted = format_table(COLUMNS, ROWS, painter=lambda row, column, text: f"<{text}>")
    assert painted == [
        "<Name>     <Size> <Tags>",
        "<web1>     <128M> <a,b>",
        "<database>    <-> <>",
    ]
