"""Completion for bash, made from the command tables; the program ``build-bash-completion``.

The tables of :mod:`ganeti.client` become shell arrays, and one function (:data:`ENGINE`) reads
them. Names of instances, nodes, groups and jobs come from files every node has, so completing
neither starts Python nor asks the master. In a virtual cluster ``GANETI_ROOTDIR`` leads to its
files.
"""

from __future__ import annotations

import importlib
import shlex
import sys
from collections.abc import Iterable, Sequence

from ganeti.cli.command import Command, Program
from ganeti.cli.options import COMMON, Option
from ganeti.client import PROGRAMS

# Kinds of argument whose words the engine can find.
_KNOWN_KINDS = frozenset(
    {"instance", "node", "group", "nodegroup", "host", "jobid", "os", "file", "iallocator",
     "network"}
)

ENGINE = r"""
# Words of one kind, one per line.
_ganeti_words() {
    local root=${GANETI_ROOTDIR:-} data line dir
    data=$root/var/lib/ganeti
    case $1 in
        instance) [ ! -r "$data/ssconf_instance_list" ] || cat "$data/ssconf_instance_list" ;;
        node|host) [ ! -r "$data/ssconf_node_list" ] || cat "$data/ssconf_node_list" ;;
        group|nodegroup)
            [ ! -r "$data/ssconf_nodegroups" ] || while read -r _ line; do echo "$line"; done \
                <"$data/ssconf_nodegroups" ;;
        network)
            [ ! -r "$data/ssconf_networks" ] || while read -r _ line; do echo "$line"; done \
                <"$data/ssconf_networks" ;;
        jobid)
            for line in "$data"/queue/job-*; do
                [ ! -e "$line" ] || echo "${line##*/job-}"
            done ;;
        os|iallocator)
            for dir in "$root"/{srv/ganeti,usr/local/lib/ganeti,usr/lib/ganeti,usr/share/ganeti}; do
                for line in "$dir/$1"/* "$dir/$1s"/*; do
                    [ ! -e "$line" ] || echo "${line##*/}"
                done
            done ;;
    esac
}

# Offers words of a kind ("node", "=a b c" for a fixed choice, "file") that begin with $2.
_ganeti_offer() {
    local IFS=$'\n' words
    case $1 in
        '') return ;;
        =*) words=${1#=}; words=${words// /$'\n'} ;;
        file) COMPREPLY+=($(compgen -f -- "$2")); return ;;
        *) words=$(_ganeti_words "$1") ;;
    esac
    COMPREPLY+=($(compgen -W "$words" -- "$2"))
}

_ganeti_complete() {
    local program=${1##*/} word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}
    local command=${COMP_WORDS[1]} key kind index position=0 kinds
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        _ganeti_offer "=${_ganeti_commands[$program]} --help --version" "$word"
        return
    fi
    command=${_ganeti_aliases["$program $command"]:-$command}
    # "--option=value" arrives as three words, because = ends a word.
    if [ "$word" = = ]; then
        word=; previous=${COMP_WORDS[COMP_CWORD-1]}
    elif [ "$previous" = = ]; then
        previous=${COMP_WORDS[COMP_CWORD-2]}
    fi
    key="$program $command $previous"
    if [ -n "${_ganeti_values[$key]+yes}" ]; then
        kind=${_ganeti_values[$key]}
        if [ "$kind" = pnode:snode ]; then
            [[ $word != *:* ]] || word=${word##*:}
            kind=node
        fi
        _ganeti_offer "$kind" "$word"
        return
    fi
    if [[ $word == -* ]]; then
        _ganeti_offer "=${_ganeti_options["$program $command"]-}" "$word"
        return
    fi
    # How many arguments stand before this word; a value of an option is none.
    for ((index = 2; index < COMP_CWORD; index++)); do
        if [[ ${COMP_WORDS[index]} == -* ]]; then
            if [ -n "${_ganeti_values["$program $command ${COMP_WORDS[index]}"]+yes}" ]; then
                ((++index))
                [ "${COMP_WORDS[index]}" != = ] || ((++index))
            fi
        else
            ((++position))
        fi
    done
    IFS='|' read -r -a kinds <<<"${_ganeti_arguments["$program $command"]-}"
    [ ${#kinds[@]} -gt 0 ] || return
    # A last kind with a star goes on for ever.
    if [ "$position" -ge ${#kinds[@]} ]; then
        position=$((${#kinds[@]} - 1))
        [[ ${kinds[position]} == *'*' ]] || return
    fi
    _ganeti_offer "${kinds[position]%'*'}" "$word"
}
"""


def load_programs(names: Iterable[str] = PROGRAMS) -> list[Program]:
    """The tables of all programs."""
    return [importlib.import_module(PROGRAMS[name]).PROGRAM for name in sorted(names)]


def value_kind(option: Option) -> str:
    """What to offer after an option: a kind, ``=choices``, or nothing."""
    if option.choices:
        return "=" + " ".join(option.choices)
    if option.completion in _KNOWN_KINDS or option.completion == "pnode:snode":
        return option.completion or ""
    return "file" if option.kind == "file" else ""


def argument_kinds(command: Command) -> str:
    """The kinds of a command's arguments, ``|`` between them, a star after one that repeats."""
    kinds: list[str] = []
    for argument in command.arguments:
        if argument.choices:
            kind = "=" + " ".join(argument.choices)
        else:
            kind = argument.kind if argument.kind in _KNOWN_KINDS else ""
        if argument.maximum is None:
            kinds.append(kind + "*")
        else:
            kinds += [kind] * argument.maximum
    return "|".join(kinds)


def _options(command: Command) -> list[Option]:
    found = {name: option for option in (*COMMON, *command.options) for name in option.names}
    return list(dict.fromkeys(found.values()))


def _assign(array: str, entries: Iterable[tuple[str, str]]) -> list[str]:
    lines = [f"  [{shlex.quote(key)}]={shlex.quote(value)}" for key, value in entries]
    return [f"declare -gA {array}=(", *lines, ")"]


def generate(programs: Sequence[Program]) -> str:
    """The completion file for these programs."""
    commands, aliases, options, values, arguments = [], [], [], [], []
    for program in programs:
        commands.append((program.name, " ".join([*program.commands, *program.aliases])))
        aliases += [(f"{program.name} {one}", real) for one, real in program.aliases.items()]
        for command in program.commands.values():
            key = f"{program.name} {command.name}"
            known = _options(command)
            options.append((key, " ".join(name for option in known for name in option.names)))
            values += [
                (f"{key} {name}", value_kind(option))
                for option in known
                if option.takes_value
                for name in option.names
            ]
            if command.arguments:
                arguments.append((key, argument_kinds(command)))
    names = " ".join(program.name for program in programs)
    lines = [
        "# Completion of the gnt-* commands for bash. Generated from the command tables by",
        "# tools/build-bash-completion; changes here are lost.",
        *_assign("_ganeti_commands", commands),
        *_assign("_ganeti_aliases", aliases),
        *_assign("_ganeti_options", options),
        *_assign("_ganeti_values", values),
        *_assign("_ganeti_arguments", arguments),
        ENGINE.strip("\n"),
        "",
        f"complete -F _ganeti_complete {names}",
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write the completion file to standard output."""
    sys.stdout.write(generate(load_programs()))
    return 0
