"""Selecting objects by a filter, tags or node groups."""

from __future__ import annotations

from typing import Any

import pytest

from ganeti import errors
from ganeti.cli import selector
from ganeti.cli.command import Values


class Client:
    """Keeps the queries; knows the group ``rack2`` and two nodes."""

    def __init__(self, *found: str) -> None:
        self.found = found
        self.asked: list[Any] = []

    def query(self, resource: str, fields: list[str], qfilter: Any) -> dict[str, Any]:
        self.asked.append((resource, fields, qfilter))
        return {"fields": [], "data": [[[0, name]] for name in self.found]}

    def query_groups(self, names: list[str], fields: list[str], lock: bool) -> list[list[str]]:
        if names != ["rack"]:
            raise errors.OpPrereqError(f"no group {names[0]}", errors.ECODE_NOENT)
        return [["rack2"]]


@pytest.mark.parametrize(
    ("resource", "mode", "words", "wanted"),
    [
        ("node", "filter", ["offline"], ["?", "offline"]),
        ("node", "tags", ["a", "b"], ["|", ["=[]", "tags", "a"], ["=[]", "tags", "b"]]),
        ("node", "group", ["rack"], ["|", ["==", "group", "rack2"]]),
        ("instance", "group", ["rack"], ["|", ["==", "pnode.group", "rack2"]]),
    ],
)
def test_what_is_asked(resource: str, mode: str, words: list[str], wanted: Any) -> None:
    client: Any = Client("x2", "x10")
    assert selector.names(resource, Values(multi_mode=mode), words, client) == ["x2", "x10"]
    assert client.asked == [(resource, ["name"], wanted)]


def test_names_are_not_asked_for() -> None:
    client: Any = Client()
    assert selector.names("node", Values(multi_mode=None), ["a"], client) == ["a"]
    assert selector.names("node", Values(multi_mode=None), [], client) == []
    assert client.asked == []


@pytest.mark.parametrize(
    ("mode", "words", "text"),
    [
        ("filter", [], "--filter needs an argument"),
        ("tags", [], "--tags needs an argument"),
        ("filter", ["a", "b"], "exactly one argument"),
        ("tags", ["a"], "no node is selected by --tags a"),
        ("group", ["other"], "no group other"),
    ],
)
def test_mistakes(mode: str, words: list[str], text: str) -> None:
    client: Any = Client()
    with pytest.raises(errors.OpPrereqError, match=text):
        selector.select("node", mode, words, client)
