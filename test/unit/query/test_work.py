"""The work of a query is limited, and ends when nobody waits for the answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ganeti import errors
from ganeti.query import engine
from ganeti.query.field import Field, Resource
from ganeti.utils import effort
from ganeti.utils.effort import Effort

OBJECTS = 5000
looked: list[int] = []


def number(view: Any, item: int) -> int:
    looked.append(item)
    return item


RESOURCE = Resource(
    "thing",
    [Field("number", "number", "number", "doc", number)],
    lambda view: list(range(OBJECTS)),
    name_field="number",
)
NO_SOURCE = SimpleNamespace(collect=lambda *args: None)


def run(qfilter: Any, one: Effort | None = None) -> Any:
    looked.clear()
    return engine.run(RESOURCE, None, ["number"], qfilter, NO_SOURCE, one)


def below(count: int) -> list[Any]:
    return ["&", *([">", "number", -1 - place] for place in range(count))]


def test_conditions_times_objects_are_refused_before_an_object_is_looked_at() -> None:
    with pytest.raises(errors.ParameterError, match="1001 conditions for each of 5000 objects"):
        run(below(1001))
    assert looked == []
    assert len(run(below(10))["data"]) == OBJECTS


def test_a_query_whose_client_has_gone_ends() -> None:
    with pytest.raises(errors.NoMasterError, match="the client has gone"):
        run(below(500), Effort(unwanted=lambda: "the client has gone"))
    assert len(looked) <= effort.LOOK_EVERY + 1000


def test_making_rows_ends_as_well() -> None:
    gone: list[str] = []

    def unwanted() -> str:
        return gone[0] if gone else ""

    def get(view: Any, item: int) -> int:
        gone[:] = ["the client has gone"]
        return item

    wide = Resource("thing", [Field("a", "a", "number", "doc", get)], lambda view: range(1000))
    with pytest.raises(errors.NoMasterError):
        engine.run(wide, None, ["a"] * 1000, None, NO_SOURCE, Effort(unwanted=unwanted))


def test_a_short_query_is_answered_while_the_daemon_stops() -> None:
    assert run(None, Effort(unwanted=lambda: "the daemon stops"))["data"]
