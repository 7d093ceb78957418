"""The parts of a screen which is shown again and again."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from ganeti.cli import live, table
from ganeti.platform import paths

KEYS = "every 2 s  space: now  q: quit"


@pytest.mark.parametrize(
    ("columns", "line"),
    [
        (79, r"prod\.example\.com  \d\d:\d\d:\d\d {23}every 2 s  space: now  q: quit"),
        (52, r"prod  \d\d:\d\d:\d\d {8}every 2 s  space: now  q: quit"),
        (40, r"prod\.example\.com  \d\d:\d\d:\d\d"),
        (10, r"\d\d:\d\d:\d\d"),
    ],
)
def test_the_status_line_fits(columns: int, line: str) -> None:
    found = live.status_line("prod.example.com", 1_000_000.0, KEYS, columns)
    assert re.fullmatch(line, found), found
    assert len(found) <= columns


def test_a_machine_which_does_not_know_the_cluster(tmp_path: Path) -> None:
    with paths.override(paths.Paths(root=str(tmp_path))):
        assert live.cluster_name() == ""
    assert re.match(r"\d\d:\d\d:\d\d +every", live.status_line("", 1_000_000.0, KEYS, 79))


def test_a_long_text_takes_a_quarter_of_the_screen_at_most() -> None:
    text = "six words of a long sentence " * 20
    assert len(live.folded(text, os.terminal_size((30, 22)))) == 5
    assert len(live.folded(text, os.terminal_size((30, 3)))) == 1
    assert live.folded("short", os.terminal_size((30, 3))) == ["short"]


@pytest.mark.parametrize(
    ("rows", "total", "lines", "shown", "hidden"),
    [
        (3, 3, 4, 3, 0),
        (3, 3, 3, 1, 2),
        # Some were left out already.
        (3, 9, 20, 3, 6),
        (3, 9, 4, 2, 7),
        (3, 3, 1, 0, 3),
        (0, 0, 1, 0, 0),
    ],
)
def test_rows_which_fit(rows: int, total: int, lines: int, shown: int, hidden: int) -> None:
    found, more = live.fitting_rows(list(range(rows)), total, lines, header=True)
    assert list(found) == list(range(shown))
    assert more == ([f"... and {hidden} more"] if hidden else [])


def test_a_cut_line_has_a_mark() -> None:
    assert live._marked("12345", 5) == "12345"
    assert live._marked("123456", 5) == "1234>"
    assert live._marked("\033[1m12345\033[0m", 5) == "\033[1m12345\033[0m"


def test_a_table_which_cannot_be_so_narrow_is_no_list_of_records() -> None:
    columns = [table.Column("Name"), table.Column("Number", right=True)]
    made = live.fitting_table(columns, [["web1", "123456789"]], 8)
    assert made == ["Name    Number", "web1 123456789"]
