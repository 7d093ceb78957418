"""Sorting, sizes, names, identifiers."""

from __future__ import annotations

import shlex
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti import errors
from ganeti.utils import text


def test_natural_order() -> None:
    names = ["node10", "node2", "node1.b", "node1", "10", "9", "a"]
    assert sorted(names, key=text.natural_key) == [
        "9",
        "10",
        "a",
        "node1",
        "node1.b",
        "node2",
        "node10",
    ]


@given(st.lists(st.text()))
def test_natural_order_takes_any_names(names: list[str]) -> None:
    assert sorted(sorted(names, key=text.natural_key)) == sorted(names)


@pytest.mark.parametrize(
    ("given_text", "mib"),
    [
        ("512", 512), ("1", 4), ("513m", 516), ("1g", 1024), ("1.5G", 1536), ("2T", 2097152),
        ("0.1g", 104), (7, 8), ("128 MiB", 128), ("0", 0),
    ],
)  # fmt: skip
def test_parse_unit(given_text: str | int, mib: int) -> None:
    assert text.parse_unit(given_text) == mib


@pytest.mark.parametrize("bad", ["", "g", "-1", "1k", "1.2.3", "1e3", "0x10", "1 2"])
def test_parse_unit_refuses(bad: str) -> None:
    with pytest.raises(errors.UnitParseError, match="size"):
        text.parse_unit(bad)


@pytest.mark.parametrize(
    ("mib", "unit", "shown"),
    [
        (512, "h", "512M"), (1024, "h", "1.0G"), (1536, "h", "1.5G"), (1048576, "h", "1.0T"),
        (1536, "m", "1536"), (1536, "g", "1.5"), (1572864, "t", "1.5"),
    ],
)  # fmt: skip
def test_format_unit(mib: int, unit: str, shown: str) -> None:
    assert text.format_unit(mib, unit) == shown


def test_match_name_component() -> None:
    names = ["web.example.com", "web2.example.com", "db.a", "db.b", "db"]
    match = text.match_name_component
    assert match("web", names) == "web.example.com"
    assert match("we", names) is None
    assert match("web.example", names) == "web.example.com"
    assert match("db", names) == "db"
    assert match("db", ["db.a", "db.b"]) is None
    assert match("WEB", names) is None
    assert match("WEB", names, case_sensitive=False) == "web.example.com"


def test_uuid() -> None:
    made = {text.new_uuid() for _ in range(100)}
    assert len(made) == 100
    for one in made:
        assert text.is_uuid(one)
        assert uuid.UUID(one).version == 4
        assert uuid.UUID(one).variant == uuid.RFC_4122
    assert not text.is_uuid(text.new_uuid().upper())
    assert not text.is_uuid("x" + text.new_uuid())


@given(st.lists(st.text(alphabet=st.characters(exclude_characters="\0")), min_size=1))
def test_shell_join_can_be_split(words: list[str]) -> None:
    assert shlex.split(text.shell_join(words)) == words
