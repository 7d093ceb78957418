"""The command tables against the published ones.

``test/data/cli/commands.json`` holds, for the commands that exist, the published arguments and
options (spelling, destination, type, default, choices).
"""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from ganeti import client
from ganeti.cli import options as opt
from ganeti.cli.command import Program
from ganeti.cli.options import Option

PUBLISHED: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "data/cli/commands.json").read_text(encoding="utf-8"))

#: Ours: formats for programs on lists and infos, filters on all lists; joining without SSH; a
#: failover only rehearsed.
ADDED = {"--output", "--token", "--token-lifetime", "--dry-run", "--filter"}
#: Ours: commands that nobody else has.
OWN = {("gnt-job", "explain"), ("gnt-job", "top"), ("gnt-cluster", "history")}


def program(name: str) -> Program:
    loaded: Program = importlib.import_module(client.PROGRAMS[name]).PROGRAM
    return loaded


ALL = [(name, command) for name in client.PROGRAMS for command in program(name).commands]
COMMANDS = [command for command in ALL if command not in OWN]


def spellings(published: dict[str, Any]) -> set[str]:
    names = {published["short"], published["long"], *published.get("other_forms", ())}
    return {name for name in names if name}


@pytest.mark.parametrize(("program_name", "command_name"), COMMANDS)
def test_arguments_are_the_published_ones(program_name: str, command_name: str) -> None:
    command = program(program_name).commands[command_name]
    published = PUBLISHED[program_name]["commands"][command_name]["args"]
    ours = [(argument.kind, argument.minimum, argument.maximum) for argument in command.arguments]
    assert ours == [(one["kind"], one["min"], one["max"]) for one in published]


@pytest.mark.parametrize(("program_name", "command_name"), COMMANDS)
def test_options_are_the_published_ones(program_name: str, command_name: str) -> None:
    command = program(program_name).commands[command_name]
    published = PUBLISHED[program_name]["commands"][command_name]["options"]
    by_names = {frozenset(option.names): option for option in command.options}
    assert len(by_names) == len(command.options), "an option twice"
    wanted = {frozenset(spellings(one)): one for one in published}
    assert set(wanted) - set(by_names) == set()
    extra = set(by_names) - set(wanted)
    assert {max(names, key=len) for names in extra} <= ADDED
    for names, one in wanted.items():
        check_option(by_names[names], one)


def check_option(option: Option, published: dict[str, Any]) -> None:
    if published["action"] == "callback":
        assert option.action == "call"
    elif option.names[-1] == "--output":
        # Fields and formats share it; see test_listing.
        assert option.dest == "output"
    else:
        assert option.action == published["action"]
        assert option.dest == published["dest"]
        kind = {"choice": "choice"}.get(published["type"], published["type"])
        assert option.kind == kind
        # A default that was given as text is read as the option's type there.
        default = published["default"]
        if option.action == "append":
            default = default or []  # some are published as null until they are given
        assert option.default == (int(default) if kind == "int" and default else default)
    assert sorted(option.choices) == sorted(published.get("choices", ()))
    if published["action"] == "store_const":
        assert option.const == published["const"]


@pytest.mark.parametrize("name", client.PROGRAMS)
def test_aliases_and_environment(name: str) -> None:
    ours = program(name)
    published = PUBLISHED[name]["aliases"]
    for alias, command in ours.aliases.items():
        assert published[alias] == command
        assert command in ours.commands
    missing = {alias for alias, command in published.items() if command in ours.commands}
    assert missing == set(ours.aliases)
    assert [ours.env_variable(command) for command in ours.env_commands] \
        == PUBLISHED[name]["env_default_args"]


def test_own_commands_are_not_published() -> None:
    assert OWN <= set(ALL)
    assert not any(command in PUBLISHED[name]["commands"] for name, command in OWN)


@pytest.mark.parametrize(("program_name", "command_name"), ALL)
def test_every_option_has_a_help_text(program_name: str, command_name: str) -> None:
    for option in (*program(program_name).commands[command_name].options, *opt.COMMON):
        assert option.help.strip()
        # One style: no capital, no full stop.
        assert not option.help.endswith(".")
        assert option.help[0].islower() or option.help.startswith(("SSH", "HTTP"))
