"""Filters and fields of the list commands; whole lists are tested with the programs."""

from __future__ import annotations

from typing import Any

import pytest

from ganeti import errors
from ganeti.cli import listing


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
    assert listing.make_filter(arguments) == qfilter


def test_job_ids() -> None:
    assert listing.make_filter(["3", "17"], name_field="id", numeric=True) == [
        "|",
        ["==", "id", 3],
        ["==", "id", 17],
    ]
    with pytest.raises(errors.OpPrereqError, match="'abc' is not a job id"):
        listing.make_filter(["abc"], name_field="id", numeric=True)


def test_a_filter_is_one_argument() -> None:
    with pytest.raises(errors.OpPrereqError, match="exactly one argument"):
        listing.make_filter(["name", "==", "x"], force_filter=True)
    with pytest.raises(errors.OpPrereqError, match="exactly one argument"):
        listing.make_filter([], force_filter=True)


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
    assert listing.both_filters(first, second) == both


@pytest.mark.parametrize("force", [False, True])
def test_an_expression(force: bool) -> None:
    assert listing.make_filter(['status == "running" and be/maxmem > 64'], force_filter=force) == [
        "&",
        ["==", "status", "running"],
        [">", "be/maxmem", 64],
    ]
    # One word is a name, unless it is said to be a filter.
    assert listing.make_filter(["admin_up"], force_filter=force) == (
        ["?", "admin_up"] if force else ["|", ["==", "name", "admin_up"]]
    )


def test_an_expression_that_cannot_be_read() -> None:
    with pytest.raises(errors.QueryFilterParseError):
        listing.make_filter(["broken (("])


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
