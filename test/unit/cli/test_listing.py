"""Filters and fields of the list commands; whole lists are tested with the programs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ganeti import errors
from ganeti.cli import filters, listing, live
from ganeti.cli import options as opt
from ganeti.cli.command import Values
from ganeti.query import resources


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        (None, ["name", "status"]),
        ("uuid,tags", ["uuid", "tags"]),
        ("+uuid", ["name", "status", "uuid"]),
        ("uuid,", ["uuid"]),
    ],
)
def test_selected_fields(text: str | None, fields: list[str]) -> None:
    assert listing.selected_fields(text, ("name", "status")) == fields


@pytest.mark.parametrize("text", ["", "+", ","])
def test_no_field_left(text: str) -> None:
    with pytest.raises(errors.OpPrereqError, match="no field"):
        listing.selected_fields(text, ("name",))


@pytest.mark.parametrize(
    ("arguments", "qfilter"),
    [
        ([], None),
        (["web1"], ["|", ["==", "name", "web1"]]),
        (["web1", "db*"], ["|", ["==", "name", "web1"], ["=~", "name", r"^db[^.]*(\..*)?$"]]),
    ],
)
def test_names(arguments: list[str], qfilter: Any) -> None:
    assert filters.make_filter(arguments) == qfilter


def test_job_ids() -> None:
    assert filters.make_filter(["3", "17"], name_field="id", numeric=True) == [
        "|",
        ["==", "id", 3],
        ["==", "id", 17],
    ]
    with pytest.raises(errors.OpPrereqError, match="'abc' is not a job id"):
        filters.make_filter(["abc"], name_field="id", numeric=True)


def test_a_filter_is_one_argument() -> None:
    with pytest.raises(errors.OpPrereqError, match="exactly one argument"):
        filters.make_filter(["name", "==", "x"], force_filter=True)
    with pytest.raises(errors.OpPrereqError, match="exactly one argument"):
        filters.make_filter([], force_filter=True)


@pytest.mark.parametrize(
    ("first", "second", "both"),
    [
        (None, None, None),
        (["?", "a"], None, ["?", "a"]),
        (None, ["?", "b"], ["?", "b"]),
        (["?", "a"], ["?", "b"], ["&", ["?", "a"], ["?", "b"]]),
    ],
)
def test_both_filters(first: Any, second: Any, both: Any) -> None:
    assert filters.both_filters(first, second) == both


@pytest.mark.parametrize("force", [False, True])
def test_an_expression(force: bool) -> None:
    assert filters.make_filter(['status == "running" and be/maxmem > 64'], force_filter=force) == [
        "&",
        ["==", "status", "running"],
        [">", "be/maxmem", 64],
    ]
    # One word is a name, unless it is said to be a filter.
    assert filters.make_filter(["admin_up"], force_filter=force) == (
        ["?", "admin_up"] if force else ["|", ["==", "name", "admin_up"]]
    )


def test_an_expression_that_cannot_be_read() -> None:
    with pytest.raises(errors.QueryFilterParseError):
        filters.make_filter(["broken (("])


def test_objects_for_programs() -> None:
    response = {
        "fields": [{"name": "name"}, {"name": "oper_ram"}],
        "data": [[[0, "web1"], [0, 128]], [[0, "web2"], [4, None]]],
    }
    assert listing.as_objects(response) == [
        {"name": "web1", "oper_ram": 128},
        {"name": "web2", "oper_ram": None, "_status": {"oper_ram": "offline"}},
    ]


@pytest.mark.parametrize(
    ("stamp", "text"), [([1795213010, 684], "2026-11-20 22:16:50.000684"), (None, "?"), ([1], "?")]
)
def test_stamps(stamp: Any, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    assert listing.format_stamp(stamp) == text


# -- --sort-by, -o wide, --watch ------------------------------------------------------------------


class Answering:
    """A client whose answer has the asked fields of some rows."""

    def __init__(self, *rows: dict[str, Any]) -> None:
        self.rows = rows
        self.asked: list[list[str]] = []
        self.known = {name for row in rows for name in row}

    def query(self, resource: str, fields: list[str], qfilter: Any) -> dict[str, Any]:
        self.asked.append(list(fields))
        return {
            "fields": [
                {"name": name, "title": name, "kind": "text" if name in self.known else "unknown"}
                for name in fields
            ],
            "data": [
                [[0, row[name]] if row.get(name) is not None else [3, None] for name in fields]
                for row in self.rows
            ],
        }

    def query_fields(self, resource: str) -> dict[str, Any]:
        return {"fields": [{"name": name} for name in sorted(self.known)]}


MACHINES = (
    {"name": "node10", "mfree": 5, "tags": ["b"]},
    {"name": "node2", "mfree": 50, "tags": ["a", "b"]},
    {"name": "node1", "mfree": None, "tags": []},
    {"name": "node3", "mfree": 5, "tags": ["a"]},
)


def listed(capsys: pytest.CaptureFixture[str], client: Any, **given: Any) -> list[str]:
    values = {option.dest: option.default for option in opt.LIST_OPTIONS}
    values.update({"output_format": None, "verbose": False, "no_headers": True}, **given)
    code = listing.Listing("node", ("name",)).run(Values(**values), [], client=client)
    assert code == 0
    return capsys.readouterr().out.split()


@pytest.mark.parametrize(
    ("order", "names"),
    [
        (None, "10 2 1 3"),
        ("name", "1 2 3 10"),
        ("-name", "10 3 2 1"),
        ("mfree,name", "3 10 2 1"),
        ("-mfree,name", "2 3 10 1"),
        ("-mfree,-name", "2 10 3 1"),
        ("tags", "1 3 2 10"),
    ],
)
def test_sort_by(capsys: pytest.CaptureFixture[str], order: str | None, names: str) -> None:
    client = Answering(*MACHINES)
    found = listed(capsys, client, sort_by=order)
    # Numbers in names count as numbers; what has no value is last; the field is not shown.
    assert found == [f"node{number}" for number in names.split()]


@pytest.mark.parametrize(
    ("order", "text"),
    [
        ("mfre", "cannot sort by 'mfre': there is no such field. Did you mean 'mfree'?"),
        ("", "different fields"),
        ("name,", "different fields"),
        ("name,-name", "different fields"),
    ],
)
def test_sort_by_mistakes(capsys: pytest.CaptureFixture[str], order: str, text: str) -> None:
    with pytest.raises(errors.OpPrereqError) as caught:
        listed(capsys, Answering(*MACHINES), sort_by=order)
    assert text in str(caught.value)


def test_wide_adds_fields(capsys: pytest.CaptureFixture[str]) -> None:
    client = Answering({"name": "node1", **dict.fromkeys(listing.WIDE["node"], "x")})
    assert listed(capsys, client, output="wide") == ["node1", *["x"] * len(listing.WIDE["node"])]
    assert client.asked == [["name", *listing.WIDE["node"]]]


@pytest.mark.parametrize("resource", sorted(listing.WIDE))
def test_wide_fields_exist(resource: str) -> None:
    known = resources.lookup(resource).fields
    assert set(listing.WIDE[resource]) <= set(known)
    assert not {listing.WIDE_FIELDS, listing.ALL_FIELDS} & set(known)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"watch": True}, "--watch shows a table on a terminal"),
        ({"watch": True, "output_format": "json"}, "--watch shows a table on a terminal"),
        ({"watch": True, "interval": 0}, "--interval must be at least 1 second, not 0"),
        ({"interval": 5}, "--interval needs --watch"),
    ],
)
def test_watch_mistakes(
    capsys: pytest.CaptureFixture[str], given: dict[str, Any], text: str
) -> None:
    with pytest.raises(errors.OpPrereqError, match=text):
        listed(capsys, Answering(*MACHINES), **given)


@pytest.mark.parametrize(
    ("columns", "wanted"),
    [
        (3, "\033[1mab\033[0mc\033[31m\033[0m"),
        (4, "\033[1mab\033[0mcd\033[31m\033[0m"),
        (6, "\033[1mab\033[0mcd\033[31mef\033[0m"),
    ],
)
def test_colours_take_no_columns(columns: int, wanted: str) -> None:
    assert live.cut("\033[1mab\033[0mcd\033[31mef\033[0m", columns) == wanted


def test_a_kind_of_objects_declares_its_list_once() -> None:
    asked = []

    def run(values: Values, arguments: list[str]) -> int:
        asked.append(arguments)
        return 0

    kind = listing.Listing("network", ("name",))
    assert [command.run for command in listing.commands(kind, "List networks")][0] == kind.run
    chosen, fields = listing.commands(kind, "List networks", (opt.OUTPUT,), run=run)
    assert [chosen.name, fields.name] == ["list", "list-fields"]
    assert [argument.kind for argument in chosen.arguments] == ["network"]
    assert (chosen.options, chosen.summary) == ((opt.OUTPUT,), "List networks")
    assert chosen.usage == "[<options>] [<network>...|<filter>]"
    assert fields.options == opt.LIST_FIELDS_OPTIONS
    assert chosen.run(Values(), ["net1"]) == 0 and asked == [["net1"]]


def test_info_is_for_programs_or_for_users(capsys: pytest.CaptureFixture[str]) -> None:
    shown: list[Any] = []
    rows = [["node1", 3]]
    values = Values(output_format="json")
    assert listing.show_objects(values, ("name", "serial"), rows, shown.extend) == 0
    assert json.loads(capsys.readouterr().out) == [{"name": "node1", "serial": 3}]
    assert not shown
    assert (
        listing.show_objects(Values(output_format=None), ("name", "serial"), rows, shown.extend)
        == 0
    )
    assert shown == [{"name": "node1", "serial": 3}] and not capsys.readouterr().out
