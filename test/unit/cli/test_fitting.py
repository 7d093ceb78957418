"""Tables which fit the terminal."""

from __future__ import annotations

import io
import sys

import pytest

from ganeti.cli import fitting, table

COLUMNS = (
    table.Column("Instance", hosts=True),
    table.Column("Status"),
    table.Column("Primary_node", hosts=True),
    table.Column("Memory", right=True),
    table.Column("OS"),
)
ROWS = (
    ["web1.example.com", "running", "node1.example.com", "1.0G", "debian-12+a-variant"],
    ["db1.example.com", "ADMIN_down", "node2.example.com", "-", "noop"],
)


@pytest.fixture(autouse=True)
def _utf8(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))


def test_a_table_which_fits_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fitting.table_lines(COLUMNS, ROWS, 80) == table.format_table(COLUMNS, ROWS)


def test_the_common_domain_goes_first() -> None:
    assert fitting.table_lines(COLUMNS, ROWS, 60) == [
        "Instance Status     Primary_node Memory OS",
        "web1     running    node1          1.0G debian-12+a-variant",
        "db1      ADMIN_down node2             - noop",
    ]


def test_then_the_longest_text_is_cut_and_no_number() -> None:
    assert fitting.table_lines(COLUMNS, ROWS, 53) == [
        "Instance Status     Primary_node Memory OS",
        "web1     running    node1          1.0G debian-12+a-\u2026",
        "db1      ADMIN_down node2             - noop",
    ]


def test_names_of_two_domains_stay_whole() -> None:
    rows = [*ROWS, ["web1.example.org", "running", "node1.example.com", "1.0G", "noop"]]
    lines = fitting.table_lines(COLUMNS, rows, 68)
    assert [line.split()[0] for line in lines[1:]] == [
        "web1.example.com",
        "db1.example.com",
        "web1.example.org",
    ]
    assert max(map(len, lines)) <= 68


def test_lists_of_names_and_marks_have_no_domain() -> None:
    columns = (table.Column("Instance", hosts=True), table.Column("Secondaries", hosts=True))
    rows = [["a.example.com", "node1.example.com,node2.example.com"], ["b.example.com", "-"]]
    assert fitting.table_lines(columns, rows, 30) == [
        "Instance Secondaries",
        "a        node1,node2",
        "b        -",
    ]


@pytest.mark.parametrize("width", range(45, 90))
def test_no_line_is_longer_than_the_terminal(width: int) -> None:
    lines = fitting.table_lines(COLUMNS, ROWS, width)
    assert max(map(len, lines)) <= width and len(lines) == 3


def test_too_many_columns_become_lines() -> None:
    columns = [table.Column(f"Field{number}") for number in range(30)]
    rows = [[f"value {number} of {row}" for number in range(30)] for row in "ab"]
    lines = fitting.table_lines(columns, rows, 80, whole=True)
    assert lines[:2] == ["Field0   value 0 of a", "Field1   value 1 of a"]
    assert lines[30] == "" and lines[31] == "Field0   value 0 of b"
    assert len(lines) == 61
    (long, rest) = fitting.records([table.Column("Tags")], [["x" * 20 + " " + "y" * 20]], 30)
    assert (long, rest) == ("Tags  " + "x" * 20, "      " + "y" * 20)


def test_the_mark_is_in_the_character_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    assert "debian-12+a-~" in fitting.table_lines(COLUMNS, ROWS, 53)[1]


def test_colours_do_not_count() -> None:
    lines = fitting.table_lines(COLUMNS, ROWS, 53, painter=lambda row, column, text: f"<{text}>")
    assert lines[1].endswith("<debian-12+a-\u2026>")


def test_the_last_columns_are_left_out_and_named() -> None:
    columns = [*COLUMNS, *(table.Column(f"Number{index}", right=True) for index in range(4))]
    rows = [[*row, *"1234"] for row in ROWS]
    assert fitting.table_lines(columns, rows, 66) == [
        "Instance Status     Primary_no\u2026 Memory OS          Number0 Number1",
        "web1     running    node1         1.0G debian-12+\u2026       1       2",
        "db1      ADMIN_down node2            - noop              1       2",
        "Not shown, because the terminal has 66 columns: Number2, Number3.",
        "A wider terminal or '-o json' shows all.",
    ]


def test_names_with_numbers_are_one_line_and_sentences_are_wrapped() -> None:
    pairs = [
        ("disk.size", "Number of disks"),
        *((f"disk.size/{index}", f"Size of disk {index}") for index in range(3)),
        ("hv/acpi", "Whether the guest has ACPI, which is a long word for a long thing"),
    ]
    assert fitting.described(("Name", "Description"), fitting.series(pairs), 50) == [
        "Name             Description",
        "disk.size        Number of disks",
        "disk.size/0 to 2 Size of disk N",
        "hv/acpi          Whether the guest has ACPI, which",
        "                 is a long word for a long thing",
    ]
