"""Guesses at misspelt names."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ganeti.utils import near

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
    assert near.nearest(word, HOSTS) == found


def test_words() -> None:
    commands = ["list", "list-fields", "failover", "migrate", "startup"]
    assert near.nearest("migrte", commands) == ["migrate"]
    assert near.nearest("failvoer", commands) == ["failover"]
    assert near.nearest("listfield", commands) == ["list-fields"]
    assert near.nearest("zzz", commands) == []


def test_a_name_in_many() -> None:
    many = [f"instance{number}.example.com" for number in range(10000)]
    assert near.nearest("instnace77", many) == ["instance77.example.com"]
    assert near.nearest("instance10001", many) == []


def test_sentences() -> None:
    assert near.did_you_mean("databse", HOSTS) == " Did you mean 'database.example.com'?"
    assert near.did_you_mean("abx", ["abc", "abd"]) == " Did you mean 'abc' or 'abd'?"
    # Of two letters one is too much.
    assert near.did_you_mean("x", ["h", "m"]) == near.did_you_mean("hx", ["h", "m", "hy"]) == ""
    assert near.did_you_mean("H", ["h", "m"]) == " Did you mean 'h'?"
    assert near.did_you_mean("nothing", HOSTS) == ""


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=90), st.lists(st.text(max_size=30), max_size=5))
def test_any_text(word: str, known: list[str]) -> None:
    found = near.nearest(word, known)
    assert set(found) <= set(known) and len(found) <= 3
