"""Pages of lists: no object is left out or given twice while others come and go."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from ganeti import errors
from ganeti.constants import query as query_c
from ganeti.query import order, page
from ganeti.query.field import NODATA, UNAVAIL, Field, Resource
from ganeti.utils.effort import Effort

FIELDS = [
    Field("name", "Name", query_c.KIND_TEXT, "", lambda _view, item: item["name"]),
    *(
        Field(
            name,
            name,
            query_c.KIND_OTHER,
            "",
            lambda _view, item, name=name: UNAVAIL if item[name] is None else item[name],
        )
        for name in ("size", "where", "words")
    ),
    Field(
        "load",
        "load",
        query_c.KIND_NUMBER,
        "",
        lambda view, item: view.live["live"].get(item["name"], NODATA),
        live="live",
    ),
]


def resource(items: list[dict[str, Any]]) -> Resource:
    return Resource("thing", FIELDS, lambda _view: list(items))


def thing(name: str, size: int | None = None, where: str | None = None, **more: Any) -> Any:
    return {"name": name, "size": size, "where": where, "words": None, **more}


class Source:
    """Collects the load of things, and notes of how many."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def collect(self, view: Any, kinds: frozenset[str], items: list[Any]) -> None:
        assert kinds == {"live"}
        self.asked.append(len(items))
        view.live["live"] = {item["name"]: item["size"] for item in items}


def ask(
    items: list[dict[str, Any]],
    fields: tuple[str, ...] = ("name",),
    qfilter: Any = None,
    source: Source | None = None,
    **request: Any,
) -> page.PageAnswer:
    view = SimpleNamespace(live={})
    wanted = page.parse_request(request)
    return page.run(resource(items), view, fields, qfilter, wanted, source or Source(), Effort())


def names(found: page.PageAnswer) -> list[str]:
    assert found["answer"] is not None
    return [row[0][1] for row in found["answer"]["data"]]


def walk(items: list[dict[str, Any]], limit: int, **request: Any) -> list[str]:
    """All names, page by page."""
    found, after = [], None
    for _ in range(len(items) + 2):
        one = ask(items, limit=limit, after=after, **request)
        found += names(one)
        assert one["total"] == len(items)
        after = one["next"]
        if after is None:
            return found
    raise AssertionError("the pages do not end")


THINGS = [
    thing("web10", 3, "b"),
    thing("web2", 1, "a"),
    thing("db1", None, "b"),
    thing("db2", 1, None),
    thing("web1", 2, "a"),
    thing("app", None, None),
]


def test_without_an_order_names_decide() -> None:
    assert names(ask(THINGS)) == ["app", "db1", "db2", "web1", "web2", "web10"]
    assert walk(THINGS, 1) == names(ask(THINGS))


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("size", ["db2", "web2", "web1", "web10", "app", "db1"]),
        ("-size", ["web10", "web1", "db2", "web2", "app", "db1"]),
        ("where,-size", ["web1", "web2", "web10", "db1", "db2", "app"]),
        ("-where,size", ["web10", "db1", "web2", "web1", "db2", "app"]),
        ("-name", ["web10", "web2", "web1", "db2", "db1", "app"]),
    ],
)
@pytest.mark.parametrize("limit", [1, 2, 3, 5, 6, 7])
def test_objects_without_a_value_are_the_last_ones_on_every_page_size(
    wanted: str, expected: list[str], limit: int
) -> None:
    assert names(ask(THINGS, order=wanted)) == expected
    assert walk(THINGS, limit, order=wanted) == expected


def test_the_last_page_has_no_next_one() -> None:
    assert ask(THINGS, limit=6)["next"] is None
    assert ask(THINGS, limit=5)["next"] == ["web2"]
    assert ask(THINGS)["next"] is None
    assert ask([], limit=5) == {
        "answer": {"fields": ask([])["answer"]["fields"], "data": []},  # type: ignore[index]
        "total": 0,
        "next": None,
        "next_offset": None,
        "state": None,
    }


def test_no_object_asked_for_is_their_number_alone() -> None:
    found = ask(THINGS, limit=0)
    assert (names(found), found["total"], found["next"]) == ([], 6, None)
    assert ask(THINGS, limit=0, qfilter=["==", "where", "a"])["total"] == 4


def test_a_page_begins_after_an_object_which_has_gone() -> None:
    after = ask(THINGS, limit=3, order="-size")["next"]
    rest = names(ask(THINGS, after=after, order="-size"))
    without = [one for one in THINGS if one["name"] != "db2"]
    assert rest == ["web2", "app", "db1"]
    assert names(ask(without, after=after, order="-size")) == rest


def test_objects_come_and_go_between_two_pages() -> None:
    """Each object that is there all the time is given exactly once."""
    rng = random.Random(3)
    for _ in range(200):
        things = [
            thing(f"t{n}", rng.choice([None, 1, 2, 3]), rng.choice([None, "a", "b"]))
            for n in range(rng.randrange(1, 30))
        ]
        wanted = rng.choice(["", "size", "-size", "where,-size", "-where,size,-name"])
        staying = {one["name"] for one in things if rng.random() < 0.7}
        found: list[str] = []
        after = None
        while True:
            answer = ask(things, limit=rng.randrange(1, 5), after=after, order=wanted)
            found += names(answer)
            after = answer["next"]
            if after is None:
                break
            things = [one for one in things if one["name"] in staying or rng.random() < 0.8]
            things.append(thing(f"new{rng.randrange(10**9)}", rng.choice([None, 2]), "a"))
            rng.shuffle(things)
            if len(found) > 300:
                raise AssertionError("the pages do not end")
        assert len(found) == len(set(found))
        assert staying <= set(found)


def test_objects_of_one_name_are_given_once_each() -> None:
    """Backups of one instance on several nodes."""
    things = [thing("web1", 1, where) for where in "abcde"] + [thing("web0"), thing("web2")]
    for limit in range(1, 9):
        assert walk(things, limit) == ["web0", *["web1"] * 5, "web2"]
    assert ask(things, limit=3)["next"] == ["web1", 2]


def test_nodes_are_asked_for_the_objects_of_the_page_alone() -> None:
    source = Source()
    found = ask(THINGS, ("name", "load"), source=source, limit=2)
    assert source.asked == [2]
    assert found["answer"]["data"] == [[[0, "app"], [0, None]], [[0, "db1"], [0, None]]]  # type: ignore[index]


@pytest.mark.parametrize(
    "request_", [{"order": "load"}, {"qfilter": ["|", ["==", "load", 1], ["==", "name", "app"]]}]
)
def test_nodes_are_asked_once_about_all_where_the_filter_or_the_order_needs_it(
    request_: dict[str, Any],
) -> None:
    things = [thing(f"t{n}", n) for n in range(5)] + [thing("app", 0)]
    source = Source()
    ask(things, ("name", "load"), source=source, limit=2, **request_)
    assert source.asked == [6]


def test_values_which_are_too_long_for_a_place_are_passed_by_their_number() -> None:
    things = [thing(f"t{n}", words=["x" * 3000, n]) for n in range(3)]
    found = ask(things, limit=1, order="words")
    assert (found["next"], found["next_offset"]) == (None, 1)
    found = ask(things, limit=1, order="words", offset=1)
    assert (names(found), found["next_offset"]) == (["t1"], 2)
    assert ask(things, limit=1, order="words", offset=2)["next_offset"] is None


def test_values_of_any_kind_come_back_in_a_place() -> None:
    kinds: list[Any] = [True, 2, 1.5, "a10", "a9", ["b", 1], [], {"b": 1, "a": (2,)}, None, ("c",)]
    things = [thing(f"t{n}", words=value) for n, value in enumerate(kinds)]
    for wanted in ("words", "-words"):
        whole = names(ask(things, order=wanted))
        assert len(whole) == len(kinds)
        assert walk(things, 1, order=wanted) == whole
        assert whole[-1] == "t8"


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        ({"order": "nosuch"}, "cannot sort by 'nosuch': there is no such field"),
        ({"order": "siez"}, "Did you mean 'size'?"),
        ({"order": "size,,name"}, "different fields, separated by commas"),
        ({"order": "size,-size"}, "different fields"),
        ({"order": ",".join("abcdefghijk")}, "at most 10 fields"),
        ({"order": 3}, "must be text"),
        ({"limit": -1}, "'limit' must be a number from 0"),
        ({"limit": True}, "'limit' must be"),
        ({"limit": 1.5}, "'limit' must be"),
        ({"limit": 1 << 60}, "'limit' must be"),
        ({"offset": "1"}, "'offset' must be"),
        ({"after": []}, "has a name"),
        ({"after": "web1"}, "has a name"),
        ({"after": ["a", "b", "c"]}, "has a name"),
        ({"after": ["a", -1]}, "number of equal objects"),
        ({"after": ["a", None]}, "number of equal objects"),
        ({"after": [None]}, "has a name"),
        ({"after": [["a"]]}, "has a name"),
        ({"after": ["a"], "order": "size"}, "has 1 values and a name"),
        ({"after": [{"a": 1}, "a"], "order": "size"}, "has 1 values and a name"),
        ({"after": [[[[[[1]]]]], "a"], "order": "size"}, "has 1 values and a name"),
        ({"within": "name"}, "'within' of a page must be a filter"),
        ({"nosuch": 1}, "no member 'nosuch' of a page"),
    ],
)
def test_a_wrong_request_says_what_is_wrong(request_: dict[str, Any], text: str) -> None:
    with pytest.raises(errors.ParameterError) as caught:
        ask(THINGS, **request_)
    assert text in str(caught.value)


def test_a_place_with_another_kind_of_value_is_a_place() -> None:
    """A value has changed its kind since; numbers come before text, and text before lists."""
    for value in (0, "x", ["x"], None, True):
        ask(THINGS, order="size", after=[value, "web1"])
        ask(THINGS, order="-size", after=[value, 5])
    assert names(ask(THINGS, order="size", after=["x", "web1"])) == ["app", "db1"]


def test_an_offset_counts_from_the_place() -> None:
    assert names(ask(THINGS, offset=4)) == ["web2", "web10"]
    assert names(ask(THINGS, offset=9)) == []
    assert names(ask(THINGS, after=["db1"], offset=1, limit=2)) == ["web1", "web2"]


def test_the_order_of_commands_and_of_pages_is_the_same() -> None:
    things = [thing(f"t{n}", n % 3 or None, "ab"[n % 2]) for n in range(12)]
    for text in ("size", "-size,where", "where,-size"):
        rows = order.ordered(
            sorted(things, key=lambda one: order.sort_key(one["name"])),
            order.parse_order(text, "--sort-by"),
            lambda one, name: order.MISSING if one[name] is None else one[name],
        )
        assert [one["name"] for one in rows] == names(ask(things, order=text))


def test_names_with_the_same_numbers_have_one_order() -> None:
    """web01 and web1 are equal to people who count; a page still begins after one of them."""
    things = [thing(name) for name in ("web01", "web1", "web001", "web2", "web02")]
    whole = names(ask(things))
    assert whole == ["web001", "web01", "web1", "web02", "web2"]
    for limit in (1, 2, 3):
        assert walk(things, limit) == whole
        assert walk(list(reversed(things)), limit) == whole


def test_the_order_of_names_is_kept_while_the_names_are_the_same() -> None:
    table = Resource("thing", FIELDS, table="things")
    kept = page.NameOrder()

    def ranks(*found: str) -> Any:
        objects = {f"uuid-{name}": SimpleNamespace(name=name) for name in found}
        return kept.ranks(table, SimpleNamespace(config=SimpleNamespace(things=objects)))

    first = ranks("b10", "b9")
    assert first == {"uuid-b9": 0, "uuid-b10": 1}
    assert ranks("b9", "b10") is first
    assert ranks("b9", "b10", "a") == {"uuid-a": 0, "uuid-b9": 1, "uuid-b10": 2}
    assert ranks("b9") == {"uuid-b9": 0}
    renamed = {"uuid-b9": SimpleNamespace(name="c"), "uuid-b10": SimpleNamespace(name="b")}
    view = SimpleNamespace(config=SimpleNamespace(things=renamed))
    assert kept.ranks(table, view) == {"uuid-b10": 0, "uuid-b9": 1}
    assert kept.ranks(resource([]), view) is None
