"""Any JSON value as a filter gives rows or a ParameterError; any text parses or is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ganeti import errors, objects
from ganeti.objects import codec
from ganeti.query import engine, resources
from ganeti.query import filter as query_filter
from ganeti.query.field import Resource
from ganeti.query.view import View, by_name

CONFIG = codec.from_dict(
    objects.ConfigData,
    json.loads((Path(__file__).parents[2] / "data/query_cluster.json").read_text()),
)
INSTANCES = resources.lookup("instance")
NAMES = ["name", "admin_up", "be/maxmem", "disk.sizes", "tags", "status", "nosuch", "mac", "ctime"]
OPS = ["&", "|", "!", "?", "==", "=", "!=", "<", "<=", ">", ">=", "=~", "=[]", "bogus"]
LEAF = (
    st.none()
    | st.integers(-5, 300)
    | st.booleans()
    | st.sampled_from(["web", "instance1", "prod", "(", "^i"])
    | st.sampled_from(NAMES)
)
FILTERS = st.recursive(
    st.tuples(st.sampled_from(OPS), st.sampled_from(NAMES), LEAF).map(list) | LEAF,
    lambda inner: st.builds(
        lambda op, parts: [op, *parts], st.sampled_from(OPS), st.lists(inner, max_size=3)
    ),
    max_leaves=8,
)


class Nothing:
    def collect(self, view, kinds, items):
        for kind in kinds:
            view.live[kind] = {}


# The same fields, but all objects are looked at.
WITHOUT_INDEX = Resource(
    "instance", INSTANCES.fields.values(), lambda view: by_name(view.config.instances.values())
)
CHOICES = st.recursive(
    st.tuples(
        st.sampled_from(["==", "=", "!="]),
        st.sampled_from(["name", "uuid", "os"]),
        st.sampled_from(
            ["instance1", "instance2.example.com", "inst", "noop", *list(CONFIG.instances)[:2]]
        ),
    ).map(list),
    lambda inner: st.builds(
        lambda op, parts: [op, *parts],
        st.sampled_from(["&", "|", "!"]),
        st.lists(inner, min_size=1, max_size=10),
    ),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(CHOICES)
def test_looking_at_a_few_objects_finds_what_looking_at_all_finds(qfilter):
    def ask(resource):
        try:
            return engine.run(resource, View(CONFIG), ["name"], qfilter, Nothing())
        except errors.ParameterError:
            return None

    assert ask(INSTANCES) == ask(WITHOUT_INDEX)


def test_a_query_gives_no_more_values_than_the_daemon_can_bear(monkeypatch):
    count = len(engine.run(INSTANCES, View(CONFIG), ["name"], None, Nothing())["data"])
    monkeypatch.setattr(engine, "MAX_CELLS", 3 * count)
    engine.run(INSTANCES, View(CONFIG), ["name"] * 3, None, Nothing())
    with pytest.raises(errors.ParameterError, match=f"4 fields of {count} objects"):
        engine.run(INSTANCES, View(CONFIG), ["name"] * 4, None, Nothing())


@settings(max_examples=400, deadline=None)
@given(FILTERS)
def test_any_value_as_filter(qfilter):
    try:
        answer = engine.run(INSTANCES, View(CONFIG), ["name"], qfilter, Nothing())
    except errors.ParameterError:
        return
    assert all(cell[0] == 0 for row in answer["data"] for cell in row)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                "name",
                "up",
                "==",
                "!=",
                "<=",
                "=~",
                "=*",
                "and",
                "or",
                "not",
                "in",
                "(",
                ")",
                '"a"',
                "'b'",
                "5",
                "-3",
                "m/x/",
                "/y/is",
                "#z#",
                "1.5",
                "\\",
            ]
        ),
        max_size=8,
    ).map(" ".join)
    | st.text(max_size=20)
)
def test_any_text_as_filter(text):
    try:
        tree = query_filter.parse(text)
    except errors.QueryFilterParseError as err:
        assert err.text == text and 0 <= err.column <= len(text) + 1
        return
    assert isinstance(tree, list) and tree[0] in OPS
    json.dumps(tree)
