"""The possible words at each position of a command line, in the form which completion uses.

A word has a *kind*: ``instance``, ``node``, ``nodegroup``, ``network``, ``jobid``, ``os``,
``iallocator``, ``filter``, ``file``; ``tag`` for the tags of the object in the first argument,
``tag-new`` for the tags of all objects of that kind, ``tag-any`` for all tags; ``pnode:snode`` for
two nodes; or a fixed choice: ``=on off`` for one of these, ``,name status`` for several of these
with commas between, ``%memory vcpus`` for several keys which end in an equals sign. Words of the
empty kind are not completed.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable

from ganeti.cli.command import Command, Program
from ganeti.cli.listing import ALL_FIELDS, WIDE_FIELDS
from ganeti.cli.options import COMMON, FORMATS, SORT_BY, Option
from ganeti.client import PROGRAMS
from ganeti.client.gnt_instance import snapshots
from ganeti.constants import instance as instance_c
from ganeti.constants import node as node_c
from ganeti.constants import query as query_c
from ganeti.query import resources

# Published kind of an argument -> kind of a word; other arguments are not completed.
_ARGUMENTS = {
    "instance": "instance",
    "node": "node",
    "host": "node",
    "group": "nodegroup",
    "network": "network",
    "jobid": "jobid",
    "os": "os",
    "file": "file",
    "filter": "filter",
    "command": "command",
}
_OPTIONS = frozenset(
    {"instance", "node", "nodegroup", "network", "os", "iallocator", "pnode:snode"}
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


def load(names: Iterable[str] = PROGRAMS) -> list[Program]:
    """Load the command tables of programs, in the order of their names."""
    return [importlib.import_module(PROGRAMS[name]).PROGRAM for name in sorted(names)]


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
    what = _RESOURCES.get(program.name) if command.name in _LISTS else None
    if (program.name, command.name) == ("gnt-debug", "locks"):
        what = query_c.LOCK
    return [] if what is None else sorted(resources.lookup(what).fields)


def options(command: Command) -> list[Option]:
    """Return the options of a command and the common options of all commands, each one once."""
    found = {name: option for option in (*COMMON, *command.options) for name in option.names}
    return list(dict.fromkeys(found.values()))
