"""The command tables against the published ones.

``test/data/cli/commands.json`` holds all published commands with their arguments and options
(spelling, destination, type, default, choices, what completion offers). Every difference is named
below with its reason, and a difference that is gone must go from here, too.
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

#: Options which nobody else has.
ADDED = {
    "--output": "formats for programs on lists and infos",
    "--filter": "every list takes filter expressions",
    "--units": "every list can show fields which are sizes",
    "--separator": "every list can be made for programs",
    "--verbose": "every list can say why a value is not there",
    "--token": "joining without SSH",
    "--token-lifetime": "joining without SSH",
    "--dry-run": "everything that makes a job can show its plan",
    "--hypervisor": "spelling of 2.0",
    "--hotplug": "spelling of 3.0",
    "--hotplug-if-possible": "spelling of 3.0",
}
#: Commands which nobody else has.
OWN = {
    ("gnt-job", "explain"): "why a job waits",
    ("gnt-job", "top"): "what the queue does, again and again",
    ("gnt-cluster", "history"): "what was changed in the configuration, when and by whom",
    ("gnt-os", "list-fields"): "every list that shows fields can tell which there are",
}
#: Lists which also take names or a filter expression.
MORE_ARGUMENTS = {("gnt-backup", "list"), ("gnt-debug", "locks"), ("gnt-os", "list")}
#: Published commands which do not exist here.
MISSING = {
    ("gnt-debug", "metad"): "speaks to a daemon which is no part of this system",
}


def program(name: str) -> Program:
    loaded: Program = importlib.import_module(client.PROGRAMS[name]).PROGRAM
    return loaded


ALL = [(name, command) for name in client.PROGRAMS for command in program(name).commands]
COMMANDS = [command for command in ALL if command not in OWN]


def spellings(published: dict[str, Any]) -> set[str]:
    names = {published["short"], published["long"], *published.get("other_forms", ())}
    return {name for name in names if name}


def test_every_published_command_exists_or_is_missing_for_a_reason() -> None:
    published = {(name, command) for name, its in PUBLISHED.items() for command in its["commands"]}
    assert published - set(ALL) == set(MISSING)
    assert set(ALL) - published == set(OWN)
    assert all((*MISSING.values(), *OWN.values(), *ADDED.values()))


@pytest.mark.parametrize(("program_name", "command_name"), COMMANDS)
def test_arguments_are_the_published_ones(program_name: str, command_name: str) -> None:
    command = program(program_name).commands[command_name]
    published = PUBLISHED[program_name]["commands"][command_name]["args"]
    ours = [(argument.kind, argument.minimum, argument.maximum) for argument in command.arguments]
    wanted = [(one["kind"], one["min"], one["max"]) for one in published]
    if (program_name, command_name) in MORE_ARGUMENTS:
        assert (wanted, [most[1:] for most in ours]) == ([], [(0, None)])
    else:
        assert ours == wanted


@pytest.mark.parametrize(("program_name", "command_name"), COMMANDS)
def test_options_are_the_published_ones(program_name: str, command_name: str) -> None:
    command = program(program_name).commands[command_name]
    published = PUBLISHED[program_name]["commands"][command_name]["options"]
    by_names = {frozenset(option.names): option for option in command.options}
    assert len(by_names) == len(command.options), "an option twice"
    wanted = {frozenset(spellings(one)): one for one in published}
    assert set(wanted) - set(by_names) == set()
    extra = set(by_names) - set(wanted)
    assert {max(names, key=len) for names in extra} <= set(ADDED)
    for names, one in wanted.items():
        check_option(by_names[names], one)


#: Published name of what completion offers -> ours.
COMPLETIONS = {"one-node": "node", "one-nodegroup": "nodegroup", "one-os": "os",
               "one-iallocator": "iallocator", "inst-add-nodes": "pnode:snode"}


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
    wanted = COMPLETIONS.get(published.get("completion"))
    assert wanted is None or option.completion == wanted
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


@pytest.mark.parametrize(("program_name", "command_name"), ALL)
def test_every_option_has_a_help_text(program_name: str, command_name: str) -> None:
    for option in (*program(program_name).commands[command_name].options, *opt.COMMON):
        assert option.help.strip()
        # One style: no capital, no full stop.
        assert not option.help.endswith(".")
        word = option.help.split()[0]
        assert word[0].islower() or any(letter.isupper() for letter in word[1:])
