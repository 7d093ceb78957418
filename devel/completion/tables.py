"""The possible words at each position of a command line, in the form which completion uses.

A word has a *kind*: ``instance``, ``node``, ``nodegroup``, ``network``, ``jobid``, ``os``,
``image``, ``iallocator``, ``filter``, ``file``, ``version`` for an installed version; ``tag`` for
the tags of the object in the first argument, ``tag-new`` for the tags of all objects of that kind,
``tag-any`` for all tags; ``snapshot`` for the snapshots of the instance in the first argument, or a
further instance;
``pnode:snode`` for two nodes; or a fixed choice: ``=on off`` for one of these, ``,name status``
for several of these with commas between, ``&node`` for several of another kind with commas between,
``%memory vcpus`` for several keys which end in an equals sign; ``what-if`` for a change of a
cluster. Words of the empty kind are not completed.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ganeti.burnin.steps import NAMES as BURNIN_STEPS
from ganeti.cli.command import Argument, Command, Option, Program
from ganeti.cli.listing import ALL_FIELDS, WIDE_FIELDS
from ganeti.cli.options import COMMON, FORMATS, SORT_BY
from ganeti.client import PROGRAMS
from ganeti.client.gnt_instance import snapshots
from ganeti.client.gnt_os import images
from ganeti.client.htools import options as htools
from ganeti.constants import instance as instance_c
from ganeti.constants import node as node_c
from ganeti.constants import query as query_c
from ganeti.query import resources
from ganeti.tools import daemon_util

# Published kind of an argument -> kind of a word; other arguments are not completed.
_ARGUMENTS = {
    "instance": "instance",
    "node": "node",
    "host": "node",
    "group": "nodegroup",
    "network": "network",
    "jobid": "jobid",
    "os": "os",
    "image": "image",
    "file": "file",
    "filter": "filter",
    "command": "command",
    "version": "version",
}
_OPTIONS = frozenset(
    {
        "instance",
        "node",
        "nodegroup",
        "network",
        "os",
        "image",
        "iallocator",
        "pnode:snode",
        "version",
        "what-if",
    }  # fmt: skip
)
_KEYS = {"beparams": (*instance_c.BE_PARAM_TYPES, "memory"), "ndparams": node_c.ND_PARAM_TYPES}
# Program -> resource whose fields its list commands show.
_RESOURCES = {
    "gnt-backup": query_c.EXPORT,
    "gnt-filter": query_c.FILTER,
    "gnt-group": query_c.GROUP,
    "gnt-instance": query_c.INSTANCE,
    "gnt-job": query_c.JOB,
    "gnt-network": query_c.NETWORK,
    "gnt-node": query_c.NODE,
}
_LISTS = frozenset({"list", "list-fields"})
# Command -> kind of its arguments whose published kind is "unknown".
_TAGS = {"add-tags": "tag-new", "remove-tags": "tag", "search-tags": "tag-any"}
#: Commands whose last argument is a snapshot of the instances before it.
_SNAPSHOTS = frozenset({"remove-snapshot", "restore-snapshot"})


#: The placement programs.
PLACEMENT = (
    "hail", "harep", "hbal", "hcheck", "hinfo", "hroller", "hscan", "hspace", "hsqueeze",
)  # fmt: skip
#: Further programs with options and without commands -> the module with their parser.
_PARSERS = {
    "burnin": "ganeti.burnin.program",
    "ganeti-cleaner": "ganeti.tools.cleaner",
    "ganeti-join": "ganeti.tools.join",
    "ganeti-takeover": "ganeti.takeover.command",
    "ganeti-watcher": "ganeti.watcher.command",
    "cluster-merge": "ganeti.merge.command",
    "lvmstrap": "ganeti.tools.lvmstrap",
    "ovfconverter": "ganeti.tools.ovfconverter",
    "query-config": "ganeti.tools.query_config",
    "users-setup": "ganeti.tools.users_setup",
    "vcluster": "ganeti.vcluster.command",
}
# Published kind of a value or an argument of a placement program -> kind of a word.
_PLACEMENT_KINDS = {
    "file": "file",
    "dir": "file",
    "host": "node",
    "onenode": "node",
    "onegroup": "nodegroup",
    "manyinstances": "&instance",
    "manynodes": "&node",
}


# What stands for the value of an option in a parser of argparse -> kind of a word.
_METAVARS = {
    "FILE": "file",
    "DIRECTORY": "file",
    "directory": "file",
    "OS": "os",
    "CONFIG": "file",
    "PLACE": "file",
    "<ADDRESS>": "node",
    "<file>": "file",
    "<OS>": "os",
    "<node,node,...>": "&node",
    "<step,step,...>": f",{' '.join(BURNIN_STEPS)}",
}


class PlainOption(NamedTuple):
    """An option of a program without commands.

    :ivar kind: the kind of its value; None for an option without a value.
    :ivar optional: the value may be left out, so it is never the next word.
    """

    names: tuple[str, ...]
    help: str
    kind: str | None
    optional: bool = False


class PlainProgram(NamedTuple):
    """A program without commands.

    :ivar arguments: as :func:`argument_kinds` gives them.
    """

    name: str
    options: tuple[PlainOption, ...]
    arguments: tuple[str, ...]


def load_plain() -> list[PlainProgram]:
    """Load the options of the programs without commands, in the order of their names."""
    found = [_placement(name) for name in PLACEMENT]
    found += [
        _parsed(name, importlib.import_module(module).make_parser())
        for name, module in _PARSERS.items()
    ]
    return sorted(found)


def _placement(name: str) -> PlainProgram:
    program = importlib.import_module(f"ganeti.client.htools.{name}").PROGRAM
    known = [*(htools.ALL[one] for one in program.options), *htools.GENERIC.values()]
    options = []
    for one in known:
        kind: str | None = _PLACEMENT_KINDS.get(one.completion, "")
        if one.choices:
            kind = f"={' '.join(one.choices)}"
        elif one.dest == "what_if":
            kind = "what-if"
        elif one.argument == htools.NO:
            kind = None
        names = (f"-{one.short}", f"--{one.long}") if one.short else (f"--{one.long}",)
        options.append(PlainOption(names, one.help, kind, one.argument == htools.OPTIONAL))
    argument = _PLACEMENT_KINDS.get(program.completion)
    return PlainProgram(name, tuple(options), () if argument is None else (f"{argument}*",))


def _parsed(name: str, parser: argparse.ArgumentParser) -> PlainProgram:
    options: list[PlainOption] = []
    arguments = []
    for action in _actions(parser):
        if action.help == argparse.SUPPRESS:
            continue
        if any(set(action.option_strings) & set(one.names) for one in options):
            continue
        kind = f"={' '.join(map(str, action.choices))}" if action.choices else ""
        if not action.option_strings:
            arguments.append(kind or _METAVARS.get(str(action.metavar or action.dest), ""))
        else:
            value = kind or _METAVARS.get(str(action.metavar), "")
            options.append(
                PlainOption(
                    tuple(action.option_strings),
                    (action.help or "").replace("%%", "%"),
                    None if action.nargs == 0 else value,
                )
            )
    return PlainProgram(name, tuple(options), tuple(arguments))


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Iterate over the options and arguments of a parser, then over those of its commands."""
    # The module argparse has no other way to ask a parser for its options.
    commands = []
    for action in parser._actions:  # noqa: SLF001
        yield action
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            commands += list(action.choices.values())
    for command in commands:
        yield from _actions(command)


def load(names: Iterable[str] = PROGRAMS) -> list[Program]:
    """Load the command tables of programs, in the order of their names."""
    return [importlib.import_module(PROGRAMS[name]).PROGRAM for name in sorted(names)]


def load_without_options() -> list[Program]:
    """Load the programs whose commands take no options, not even the common ones."""
    commands = []
    for name, one in daemon_util.COMMANDS.items():
        arguments = []
        if one.arguments.startswith(daemon_util.DAEMON):
            arguments.append(Argument("choice", 1, 1, choices=daemon_util.START_ORDER))
        elif one.arguments == daemon_util.VERSION_ARGUMENT:
            arguments.append(Argument("version", 1, 1))
        commands.append(Command(name, lambda values, words: 0, arguments, [], one.about))
    return [Program("daemon-util", "Start and stop the daemons of this node.", commands)]


def option_kind(program: Program, command: Command, option: Option) -> str:
    """Return the kind of the value of an option."""
    if option.choices:
        return f"={' '.join(option.choices)}"
    if option.completion == "fields":
        known = field_names(program, command)
        if option is not SORT_BY:
            known = [*known, ALL_FIELDS, WIDE_FIELDS, *FORMATS]
        return f",{' '.join(known)}"
    if option.completion in _OPTIONS:
        return option.completion or ""
    if option.dest in _KEYS and option.kind == "keyval":
        return f"%{' '.join(_KEYS[option.dest])}"
    return "file" if option.kind == "file" or option.metavar in ("FILE", "PATH") else ""


def argument_kinds(program: Program, command: Command) -> list[str]:
    """Return the kinds of the arguments of a command; a final star repeats the last one."""
    if command.name == "list-fields":
        return [f"={' '.join(field_names(program, command))}*"]
    if command.name in _SNAPSHOTS:
        return ["instance", "snapshot*"]
    kinds: list[str] = []
    for argument in command.arguments:
        kind = (
            f"={' '.join(argument.choices)}"
            if argument.choices
            else _ARGUMENTS.get(argument.kind, "")
        )
        if argument.kind == "unknown":
            kind = _TAGS.get(command.name, "")
        if argument.maximum is None:
            kinds.append(f"{kind}*")
            break
        kinds += [kind] * argument.maximum
    return kinds


def field_names(program: Program, command: Command) -> list[str]:
    """Return the names of the fields of a list command; empty for other commands."""
    if (program.name, command.name) == ("gnt-instance", "list-snapshots"):
        return sorted(snapshots.FIELDS)
    if (program.name, command.name) == ("gnt-os", "images"):
        return sorted(images.FIELDS)
    what = _RESOURCES.get(program.name) if command.name in _LISTS else None
    if (program.name, command.name) == ("gnt-debug", "locks"):
        what = query_c.LOCK
    return [] if what is None else sorted(resources.lookup(what).fields)


def options(program: Program, command: Command) -> list[Option]:
    """Return the options of a command and the common options of all commands, each one once."""
    if program.name == "daemon-util":
        return []
    found = {name: option for option in (*COMMON, *command.options) for name in option.names}
    return list(dict.fromkeys(found.values()))
