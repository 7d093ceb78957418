"""What may follow what on a command line, in the form completion uses.

A word has a *kind*: ``instance``, ``node``, ``nodegroup``, ``network``, ``jobid``, ``os``,
``iallocator``, ``filter``, ``file``; ``tag`` of the object which the first argument names,
``tag-new`` that others of its kind have, ``tag-any`` of anything; ``pnode:snode`` for two nodes; or
a fixed choice: ``=on off``, ``,name status`` for several of these with commas between,
``%memory vcpus`` for several that end in an equals sign. The empty kind offers nothing.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable

from ganeti.cli.command import Command, Program
from ganeti.cli.listing import ALL_FIELDS
from ganeti.cli.options import COMMON, FORMATS, Option
from ganeti.client import PROGRAMS
from ganeti.client.gnt_instance import snapshots
from ganeti.constants import instance as instance_c
from ganeti.constants import node as node_c
from ganeti.constants import query as query_c
from ganeti.query import resources

# Published names of kinds of arguments -> ours; others offer nothing.
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
}
_OPTIONS = frozenset(
    {"instance", "node", "nodegroup", "network", "os", "iallocator", "pnode:snode"}
)
_KEYS = {"beparams": (*instance_c.BE_PARAM_TYPES, "memory"), "ndparams": node_c.ND_PARAM_TYPES}
# Programs whose lists show the fields of a resource; a command may show another.
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
# Command -> kind of the arguments whose published kind says nothing.
_TAGS = {"add-tags": "tag-new", "remove-tags": "tag", "search-tags": "tag-any"}


def load(names: Iterable[str] = PROGRAMS) -> list[Program]:
    """The tables of these programs, in order of their names."""
    return [importlib.import_module(PROGRAMS[name]).PROGRAM for name in sorted(names)]


def option_kind(program: Program, command: Command, option: Option) -> str:
    """What to offer as the value of an option."""
    if option.choices:
        return f"={' '.join(option.choices)}"
    if option.completion == "fields":
        return f",{' '.join([*field_names(program, command), ALL_FIELDS, *FORMATS])}"
    if option.completion in _OPTIONS:
        return option.completion or ""
    if option.dest in _KEYS and option.kind == "keyval":
        return f"%{' '.join(_KEYS[option.dest])}"
    return "file" if option.kind == "file" or option.metavar in ("FILE", "PATH") else ""


def argument_kinds(program: Program, command: Command) -> list[str]:
    """The kinds of a command's arguments; a star at the end of the last one repeats it."""
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
    """Fields which a list command can show; none when it shows no resource."""
    if (program.name, command.name) == ("gnt-instance", "list-snapshots"):
        return sorted(snapshots.FIELDS)
    what = _RESOURCES.get(program.name) if command.name in _LISTS else None
    if (program.name, command.name) == ("gnt-debug", "locks"):
        what = query_c.LOCK
    return [] if what is None else sorted(resources.lookup(what).fields)


def options(command: Command) -> list[Option]:
    """The options of a command with those of all commands, each once."""
    found = {name: option for option in (*COMMON, *command.options) for name in option.names}
    return list(dict.fromkeys(found.values()))
