"""Which instances a selector stands for: decided here, and asked of the master as a filter."""

from __future__ import annotations

import copy

import pytest

from ganeti import errors
from ganeti.query import filter as query_filter
from ganeti.query import resources
from ganeti.query.field import Resource
from ganeti.rapi import selectors
from ganeti.rapi.selectors import Facts, Selector

POOLS = {"shop": (Selector("tag", "web"), Selector("instance", "db?"))}
INSTANCES = [
    Facts("web1.example.com", "u1", frozenset({"web", "owner:alice"}), frozenset({"rack1", "g1"})),
    Facts("web10.example.com", "u2", frozenset({"webs"}), frozenset({"rack2", "g2"})),
    Facts("db1", "u3", frozenset(), frozenset({"rack1", "g1"})),
    Facts("db12", "u4", frozenset({"owner:alic"}), frozenset({"rack10", "g10"})),
    Facts("web1", "u5", frozenset({"Web"}), frozenset()),
]
CASES = [
    ("instance:web1", ["web1.example.com", "web1"]),
    ("instance:web1.example.com", ["web1.example.com"]),
    ("instance:web*", ["web1.example.com", "web10.example.com", "web1"]),
    ("instance:web?.example.com", ["web1.example.com"]),
    ("instance:*", ["web1.example.com", "web10.example.com", "db1", "db12", "web1"]),
    ("instance:.*", []),
    ("tag:web", ["web1.example.com"]),
    ("tag:none", []),
    ("group:rack1", ["web1.example.com", "db1"]),
    ("group:g2", ["web10.example.com"]),
    ("pool:shop", ["web1.example.com", "db1"]),
    ("pool:none", []),
    ("own", ["web1.example.com"]),
]


@pytest.mark.parametrize(("word", "names"), CASES)
def test_for_which_instances_a_selector_holds(word: str, names: list[str]) -> None:
    selector = selectors.parse(word)
    assert str(selector) == word
    found = [one.name for one in INSTANCES if selectors.holds(selector, one, "alice", POOLS)]
    assert found == names


@pytest.mark.parametrize(("word", "names"), CASES)
def test_the_filter_selects_the_same(word: str, names: list[str]) -> None:
    compiled = query_filter.compile_filter(
        selectors.as_filter(selectors.parse(word), "alice", POOLS), _instances()
    )
    assert compiled is not None
    found = [one.name for one in INSTANCES if compiled.matches(None, one)]
    assert found == names


def _instances() -> Resource:
    """The resource of instances, whose fields take their values from facts."""
    real = resources.lookup("instance")
    get = {
        "name": lambda _view, one: one.name,
        "uuid": lambda _view, one: one.uuid,
        "tags": lambda _view, one: sorted(one.tags),
        "pnode.group": lambda _view, one: max(one.groups, key=len, default=""),
        "pnode.group.uuid": lambda _view, one: min(one.groups, key=len, default=""),
    }
    fields = [copy.copy(real.fields[name]) for name in selectors.FIELDS]
    for field in fields:
        field.get = get[field.name]
    return Resource("instance", fields, lambda _view: INSTANCES)


@pytest.mark.parametrize(
    "word",
    ["", "web", "tag:", "tags:web", "pool:", "pool:a/b", "instance:a b", "owner:x", "own:alice"],
)
def test_what_is_no_selector(word: str) -> None:
    with pytest.raises(errors.ParseError, match="'"):
        selectors.parse(word)


def test_facts_of_a_row() -> None:
    row = [[0, "web1"], [0, "u1"], [0, ["a", "b"]], [0, "rack1"], [0, "g1"]]
    assert Facts.of_row(row) == Facts("web1", "u1", frozenset("ab"), frozenset({"rack1", "g1"}))
    # What is not known gives no right.
    row[2:] = [[2, None], [3, None], [4, "x"]]
    assert Facts.of_row(row) == Facts("web1", "u1")
    changed = Facts("a", "u", frozenset({"x", "y"})).changed(name="b", more=["z"], less=["x"])
    assert changed == Facts("b", "u", frozenset({"y", "z"}))
