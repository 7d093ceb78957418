"""Guesses at misspelt names."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ganeti.utils import suggest

HOSTS = ["web1.example.com", "database.example.com", "mail.example.org", "node10.example.com"]


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("databse", ["database.example.com"]),
        ("dattabase", ["database.example.com"]),
        ("datbaase", ["database.example.com"]),
        ("datebase.example.com", ["database.example.com"]),
        ("mail.exmaple.org", ["mail.example.org"]),
        ("MAIL", ["mail.example.org"]),
        ("mails", ["mail.example.org"]),
        ("wbe1", ["web1.example.com"]),
        ("noed10", ["node10.example.com"]),
        # Another number is another machine.
        ("web2", []),
        ("node1", []),
        ("something", []),
        ("", []),
        ("x" * 200, []),
    ],
)
def test_hosts(word: str, found: list[str]) -> None:
    assert suggest.nearest(word, HOSTS) == found


def test_words() -> None:
    commands = ["list", "list-fields", "failover", "migrate", "startup"]
    assert suggest.nearest("migrte", commands) == ["migrate"]
    assert suggest.nearest("failvoer", commands) == ["failover"]
    assert suggest.nearest("listfield", commands) == ["list-fields"]
    assert suggest.nearest("zzz", commands) == []


def test_a_name_in_many() -> None:
    many = [f"instance{number}.example.com" for number in range(10000)]
    assert suggest.nearest("instnace77", many) == ["instance77.example.com"]
    assert suggest.nearest("instance10001", many) == []


def test_sentences() -> None:
    assert suggest.did_you_mean("databse", HOSTS) == " Did you mean 'database.example.com'?"
    assert suggest.did_you_mean("abx", ["abc", "abd"]) == " Did you mean 'abc' or 'abd'?"
    # Of two letters one is too much.
    assert (
        suggest.did_you_mean("x", ["h", "m"]) == suggest.did_you_mean("hx", ["h", "m", "hy"]) == ""
    )
    assert suggest.did_you_mean("H", ["h", "m"]) == " Did you mean 'h'?"
    assert suggest.did_you_mean("nothing", HOSTS) == ""


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=90), st.lists(st.text(max_size=30), max_size=5))
def test_any_text(word: str, known: list[str]) -> None:
    found = suggest.nearest(word, known)
    assert set(found) <= set(known) and len(found) <= 3
