"""Selecting objects by a filter, tags or node groups."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from ganeti import errors
from ganeti.cli import jobs, parser, selector
from ganeti.cli.command import Values


class Client:
    """Keeps the queries; knows the group ``rack2`` and two nodes."""

    def __init__(self, *found: str | int) -> None:
        self.found = found
        self.asked: list[Any] = []

    def query(self, resource: str, fields: list[str], qfilter: Any) -> dict[str, Any]:
        self.asked.append((resource, fields, qfilter))
        return {"fields": [], "data": [[[0, name]] for name in self.found]}

    def query_groups(self, names: list[str], fields: list[str], lock: bool) -> list[list[str]]:
        if names != ["rack"]:
            raise errors.OpPrereqError(f"no group {names[0]}", errors.ECODE_NOENT)
        return [["rack2"]]

    def query_nodes(self, names: list[str], fields: list[str], lock: bool) -> list[list[str]]:
        if names != ["n1"]:
            raise errors.OpPrereqError(f"no node {names[0]}", errors.ECODE_NOENT)
        return [["n1.example.com"]]


@pytest.mark.parametrize(
    ("resource", "mode", "words", "wanted"),
    [
        ("node", "filter", ["offline"], ["?", "offline"]),
        ("node", "tags", ["a", "b"], ["|", ["=[]", "tags", "a"], ["=[]", "tags", "b"]]),
        ("node", "group", ["rack"], ["|", ["==", "group", "rack2"]]),
        ("instance", "group", ["rack"], ["|", ["==", "pnode.group", "rack2"]]),
        (
            "instance",
            "node",
            ["n1"],
            [
                "|",
                ["|", ["==", "pnode", "n1.example.com"], ["=[]", "snodes", "n1.example.com"]],
            ],
        ),
    ],
)
def test_what_is_asked(resource: str, mode: str, words: list[str], wanted: Any) -> None:
    client: Any = Client("x2", "x10")
    assert selector.names(resource, Values(multi_mode=mode), words, client) == ["x2", "x10"]
    assert client.asked == [(resource, ["name"], wanted)]


def test_jobs_are_found_by_number() -> None:
    client: Any = Client(7, 12)
    assert selector.names("job", Values(multi_mode="filter"), ["archived"], client) == ["7", "12"]
    assert client.asked == [("job", ["id"], ["?", "archived"])]


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
        ("node", ["other"], "no node other"),
    ],
)
def test_mistakes(mode: str, words: list[str], text: str) -> None:
    client: Any = Client()
    with pytest.raises(errors.OpPrereqError, match=text):
        selector.select("node", mode, words, client)


#: Commands which take several objects -> the kind of these, and how many arguments stand before.
SEVERAL = {
    "cluster epo": ("node", 0),
    "cluster repair-disk-sizes": ("instance", 0),
    "group assign-nodes": ("node", 1),
    "group info": ("group", 0),
    "group show-ispecs-cmd": ("group", 0),
    "instance info": ("instance", 0),
    "instance list-snapshots": ("instance", 0),
    "job archive": ("job", 0),
    "job cancel": ("job", 0),
    "job change-priority": ("job", 0),
    "job explain": ("job", 0),
    "job info": ("job", 0),
    "network connect": ("group", 1),
    "network disconnect": ("group", 1),
    "network info": ("network", 0),
    "node health": ("node", 0),
    "node info": ("node", 0),
    "node list-storage": ("node", 0),
    "node power": ("node", 1),
    "node restricted-command": ("node", 1),
    "node volumes": ("node", 0),
}
OPTIONS = {
    "instance": {"--filter", "--tags", "--node", "--group"},
    "node": {"--filter", "--tags", "--group"},
    "group": {"--filter", "--tags"},
    "network": {"--filter", "--tags"},
    "job": {"--filter"},
}


#: Commands which need an option, too.
NEEDED = {
    "job change-priority": ["--priority=high"],
    "network connect": ["-N", "mode=bridged,link=br0"],
}
#: Whole groups have an older option there, of another name.
OTHERWISE = {"cluster epo": {"--filter", "--tags"}}


class Asked(Exception):
    """The selector was asked for objects."""


@pytest.mark.parametrize("line", SEVERAL)
def test_commands_ask_the_selector(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, before = SEVERAL[line]
    program_name, command_name = line.split()
    program = importlib.import_module(f"ganeti.client.gnt_{program_name}.program").PROGRAM
    command = program.commands[command_name]
    modes = {option.names[-1] for option in command.options if option.dest == "multi_mode"}
    assert modes == OTHERWISE.get(line, OPTIONS[kind])
    first = ["status"] * before
    extra = NEEDED.get(line, [])
    for option in sorted(modes):

        def select(resource: str, mode: str, words: list[str], client: Any) -> list[str]:
            raise Asked(resource, f"--{mode}", list(words))

        monkeypatch.setattr(selector, "select", select)
        monkeypatch.setattr(jobs, "connect", lambda: object())
        values, arguments = parser.parse(command, [*first, option, "word", *extra])
        with pytest.raises(Asked) as asked:
            command.run(values, arguments)
        assert asked.value.args == (kind, option, ["word"])
