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
from ganeti.cli.command import Option, Program

PUBLISHED: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "data/cli/commands.json").read_text(encoding="utf-8")
)

#: Options which nobody else has.
ADDED = {
    "--accept-from-description": "texts from outside are read, and not obeyed",
    "--os-type": "the OS definition of an import is the choice of the administrator",
    "--output": "formats for programs on lists and infos",
    "--auto-balance": "automatic balance by the watcher",
    "--leave-out": "an upgrade without nodes which are offline",
    "--simulate": "an upgrade tried on a virtual cluster",
    "--conflicts-check": "the choice of a new network can be changed",
    "--continue": "a guest which somebody has paused",
    "--explain": "the reasons for the choice of nodes",
    "--all-parameters": "the whole text in place of one screen",
    "--exact-name": "a name which is the short form of another one",
    "--filter": "every list takes filter expressions",
    "--units": "every list can show fields which are sizes",
    "--separator": "every list can be made for programs",
    "--verbose": "every list can say why a value is not there",
    "--token": "joining without SSH",
    "--token-lifetime": "joining without SSH",
    "--offline": "certificates of the cluster for all nodes, without daemons",
    "--dry-run": "everything that makes a job can show its plan",
    "--hypervisor": "spelling of 2.0",
    "--hypervisor-defaults": "spelling of 2.0",
    "--defaults": "spelling of 2.0",
    "--auto-instance-failover": "instances of a dead node start elsewhere by themselves",
    "--witness": "the third voter of two master candidates",
    "--witness-auth": "credentials for its server",
    "--witness-ca": "what its server must show",
    "--node-watchdog": "whether nodes restart by their hardware watchdogs when they are cut off",
    "--auto-failover": "whether the role of a lost master moves by itself",
    "--job-execution": "jobs which can be killed, and survive a restart of the master daemon",
    "--rapi-require-authentication": "a password for reading is a choice of the administrator",
    "--new-secondary": "design 2.0: the administrator chooses which replica stays",
    "--wait-for-sync": "design 2.0: the restart may be postponed until the replicas are in sync",
    "--tags": "one way to choose objects, in commands which take several",
    "--node": "one way to choose objects, in commands which take several",
    "--group": "one way to choose objects, in commands which take several",
    "--primary": "one way to choose objects, in commands which take several",
    "--secondary": "one way to choose objects, in commands which take several",
    "--force-multiple": "no question before a command on several objects",
    "--yes": "no question before a command on several objects",
    "--sort-by": "every list can be sorted",
    "--watch": "every list can be updated",
    "--interval": "every list can be updated",
    "--target-node": "gnt-node failover -n, as for one instance",
    "--hotplug": "spelling of 3.0",
    "--hotplug-if-possible": "spelling of 3.0",
    "--enabled-hypervisors": "groups whose nodes have other hypervisors",
    "--force": "a volume group of a node group may be made on the nodes later",
    "--log": "what an instance has written to its console",
    "--lines": "likewise",
    "--follow": "likewise",
    "--image": "an instance from an image of the catalogue needs nothing else",
    "--os-parameters-private-file": "parameters which do not stand in the list of processes",
    "--os-parameters-secret-file": "likewise",
    "--metadata": "keys and user data for cloud-init",
    "--no-wait": "leave a canceled job which goes on to its end",
    "--all": "the list of jobs for people has the last ones",
}
#: Commands which nobody else has.
OWN = {
    ("gnt-instance", "import"): "instances from machines of other programs",
    ("gnt-instance", "copy"): "a clone of an instance, or of a snapshot",
    ("gnt-instance", "snapshot"): "snapshots that stay",
    ("gnt-instance", "list-snapshots"): "snapshots that stay",
    ("gnt-instance", "remove-snapshot"): "snapshots that stay",
    ("gnt-instance", "restore-snapshot"): "snapshots that stay",
    ("gnt-node", "maintenance"): "empties a node for work on its machine, and fills it again",
    ("gnt-job", "explain"): "why a job waits",
    ("gnt-job", "top"): "what the queue does, again and again",
    ("gnt-instance", "top"): "what guests use, again and again",
    ("gnt-cluster", "audit"): "what administrators did, and whether the log is whole",
    ("gnt-cluster", "events"): "what happens, as it happens",
    ("gnt-cluster", "failover-status"): "why the role of the master moved by itself, or did not",
    ("gnt-cluster", "history"): "what was changed in the configuration, when and by whom",
    ("gnt-cluster", "renumber"): "other addresses for the nodes of a whole cluster",
    ("gnt-cluster", "undo"): "opposite jobs of a commit of the configuration",
    ("gnt-cluster", "webhook"): "events for servers which wait for them",
    ("gnt-instance", "undo"): "opposite jobs of the last change of an instance",
    ("gnt-cluster", "simulate"): "what the cluster would be after some changes",
    ("gnt-os", "images"): "the catalogue of disk images",
    ("gnt-os", "list-fields"): "every list that shows fields can tell which there are",
}
#: Lists which also take names or a filter expression.
MORE_ARGUMENTS = {("gnt-backup", "list"), ("gnt-debug", "locks"), ("gnt-os", "list")}
#: Published commands on one object, which work on several here.
SEVERAL = {
    *(
        ("gnt-instance", name)
        for name in (
            *("activate-disks", "change-group", "deactivate-disks", "failover", "grow-disk"),
            *("migrate", "modify", "move", "recreate-disks", "remove", "replace-disks"),
        )
    ),
    *(("gnt-node", name) for name in ("evacuate", "failover", "migrate", "modify", "powercycle")),
    ("gnt-node", "remove"),
    ("gnt-backup", "export"),
}
#: Published commands which do not exist here.
MISSING: dict[tuple[str, str], str] = {}


def program(name: str) -> Program:
    loaded: Program = importlib.import_module(client.PROGRAMS[name]).PROGRAM
    return loaded


ALL = [(name, command) for name in client.PROGRAMS for command in program(name).commands]
COMMANDS = [command for command in ALL if command not in OWN]


#: Commands which neither show something in ``--output`` formats nor can show their plan.
PLAIN = {
    ("gnt-cluster", "command"): "prints what programs on the nodes print",
    ("gnt-cluster", "copyfile"): "no job; copies files over SSH",
    ("gnt-cluster", "init"): "there is no master yet which could plan",
    ("gnt-cluster", "master-ping"): "the exit code is the answer",
    ("gnt-cluster", "show-ispecs-cmd"): "prints a command for the shell",
    ("gnt-cluster", "upgrade"): "no job; it stops the daemons. --simulate tries it elsewhere",
    ("gnt-debug", "metad"): "prints what the metadata daemon answers",
    ("gnt-debug", "wconfd"): "prints what the configuration daemon of other versions printed",
    ("gnt-filter", "add"): "no job; a rule acts at once",
    ("gnt-filter", "delete"): "no job; a rule acts at once",
    ("gnt-filter", "replace"): "no job; a rule acts at once",
    ("gnt-group", "show-ispecs-cmd"): "prints a command for the shell",
    ("gnt-instance", "console"): "opens a console",
    ("gnt-job", "archive"): "no job, but about jobs",
    ("gnt-job", "autoarchive"): "no job, but about jobs",
    ("gnt-job", "cancel"): "no job, but about jobs",
    ("gnt-job", "change-priority"): "no job, but about jobs",
    ("gnt-job", "wait"): "the exit code is the answer",
    ("gnt-job", "watch"): "prints the log of a job as it grows",
}


#: Commands with other formats than those of lists and infos.
OWN_FORMATS = {("gnt-cluster", "events"): "has no end, so JSON is one object for each line"}
#: Choices which an option has besides the published ones.
MORE_CHOICES = {"--ssh-key-type": {"ed25519"}}


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
    elif (program_name, command_name) in SEVERAL:
        (kind, *_), *others = wanted
        assert kind in ("instance", "node")
        assert ours == [(kind, 1, None), *others]
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
COMPLETIONS = {
    "one-node": "node",
    "one-nodegroup": "nodegroup",
    "one-os": "os",
    "one-iallocator": "iallocator",
    "inst-add-nodes": "pnode:snode",
}


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
    more = MORE_CHOICES.get(option.names[-1], set())
    assert sorted(option.choices) == sorted({*published.get("choices", ()), *more})
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
    assert [ours.env_variable(command) for command in ours.env_commands] == PUBLISHED[name][
        "env_default_args"
    ]


@pytest.mark.parametrize(("program_name", "command_name"), ALL)
def test_every_option_has_a_help_text(program_name: str, command_name: str) -> None:
    for option in (*program(program_name).commands[command_name].options, *opt.COMMON):
        assert option.help.strip()
        # One style: no capital, no full stop.
        assert not option.help.endswith(".")
        word = option.help.split()[0]
        assert word[0].islower() or any(letter.isupper() for letter in word[1:])


@pytest.mark.parametrize(("program_name", "command_name"), ALL)
def test_whatever_shows_something_can_show_it_to_programs(
    program_name: str, command_name: str
) -> None:
    """A command changes something, with a plan before, or shows something, in all formats."""
    options = program(program_name).commands[command_name].options
    plans = any("--dry-run" in option.names for option in options)
    formats = [option for option in options if "--output" in option.names]
    if formats and (program_name, command_name) not in OWN_FORMATS:
        # Choosing nothing but fields would be too little.
        assert formats[0] in (opt.OUTPUT, opt.OUTPUT_FORMAT) or formats[0].completion == "fields"
    assert (plans or bool(formats)) != ((program_name, command_name) in PLAIN)


def test_what_is_plain_exists_and_says_why() -> None:
    assert set(PLAIN) <= set(ALL) and all(PLAIN.values())
