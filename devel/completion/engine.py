"""Generates ``gnt-complete``, a POSIX shell script which prints the possible next words.

``gnt-complete PROGRAM WORD... CURRENT`` prints a line for each word which can replace the last one
(which is incomplete, and may be empty): the word, and after a tab its meaning. Two lines are
instructions for the shell: ``:files`` (offer names of files) and ``:open`` (do not add a blank
after the word).

It is a shell script because it runs each time when the user presses the tab key: it takes 5 ms,
where Python takes 50 ms.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

from devel.completion import tables
from devel.completion.tables import PlainProgram
from ganeti.cli.command import Program
from ganeti.htools import what_if

_ABOUT = 70

_HEAD = r"""#!/bin/sh
# Prints the possible next words on the command line of a program. Generated from the tables of
# commands and options by devel/completion; changes here are lost.
#
#   gnt-complete PROGRAM WORD... CURRENT
"""

_TAIL = r"""
# Prints the words of a kind, one per line; $word is the incomplete word.
words() {
    data=${GANETI_ROOTDIR:-}/var/lib/ganeti
    case $1 in
        instance) cat "$data/ssconf_instance_list" 2>/dev/null ;;
        node) cat "$data/ssconf_node_list" 2>/dev/null ;;
        nodegroup|network)
            [ ! -r "$data/ssconf_${1}s" ] ||
                while read -r _ name; do echo "$name"; done <"$data/ssconf_${1}s" ;;
        jobid)
            for name in "$data"/queue/job-"$word"*; do
                [ ! -e "$name" ] || echo "${name##*/job-}"
            done ;;
        image)
            for name in "${GANETI_ROOTDIR:-}/srv/ganeti/images"/*.json; do
                [ ! -e "$name" ] || { name=${name##*/}; echo "${name%.json}"; }
            done
            ask gnt-os images known --no-headers -o name ;;
        version)
            for name in "${GANETI_ROOTDIR:-}"/usr/lib/ganeti/[0-9]*.[0-9]* \
                "${GANETI_ROOTDIR:-}"/usr/local/lib/ganeti/[0-9]*.[0-9]*; do
                [ ! -d "$name" ] || echo "${name##*/}"
            done ;;
        filter) ask gnt-filter list --no-headers -o uuid ;;
        tag)
            case $program in
                gnt-cluster) cat "$data/ssconf_cluster_tags" 2>/dev/null ;;
                *) ask "$program" list-tags "$object" ;;
            esac ;;
        snapshot)
            ask gnt-instance list-snapshots --no-headers -o snapshot "$object" | sort -u
            cat "$data/ssconf_instance_list" 2>/dev/null ;;
        tag-new) [ "$program" = gnt-cluster ] || tags_of "$program" | sort -u ;;
        tag-any)
            {
                cat "$data/ssconf_cluster_tags" 2>/dev/null
                for name in gnt-instance gnt-node gnt-group gnt-network; do tags_of "$name" & done
                wait
            } | sort -u ;;
        os|iallocator)
            # The master daemon has this allocator inside.
            [ "$1" = os ] || echo hail
            for place in srv/ganeti usr/local/lib/ganeti usr/lib/ganeti usr/share/ganeti; do
                for name in "${GANETI_ROOTDIR:-}/$place/$1"/* "${GANETI_ROOTDIR:-}/$place/$1s"/*; do
                    [ ! -e "$name" ] || variants "$name" "${name##*/}"
                done
            done ;;
        '='*) (set -f; printf '%s\n' ${1#?}) ;;
    esac
}

# Runs a command, if the socket of the master daemon exists.
ask() {
    [ ! -S "${GANETI_ROOTDIR:-}/var/run/ganeti/socket/ganeti-master" ] ||
        "$@" 2>/dev/null </dev/null
}

# Prints the tags of all objects of a program, one per line.
tags_of() {
    ask "$1" list -o tags -o json | sed -n 's/^ *"\(.*\)",\{0,1\}$/\1/p'
}

variants() {
    if [ -r "$1/variants.list" ]; then
        while read -r variant _; do
            case $variant in ''|'#'*) ;; *) echo "$2+$variant" ;; esac
        done <"$1/variants.list"
    else
        echo "$2"
    fi
}

# Prints the lines of standard input which begin with $word, each with the prefix $1.
offer() {
    GNT_FRONT=$1 GNT_WORD=$word awk \
        'index($0, ENVIRON["GNT_WORD"]) == 1 { print ENVIRON["GNT_FRONT"] $0 }'
}

# Prints the words of kind $1 which begin with $word, each with the prefix $2.
complete() {
    front=$2
    case $1 in
        ''|command) ;;
        file) echo :files ;;
        ,*|%*)
            case $word in
                *,*) front=$front${word%,*},; word=${word##*,} ;;
                '+'*) front=$front+; word=${word#+} ;;
            esac
            # The value after an equals sign can be anything.
            case $1$word in %*=*) return ;; esac
            echo :open
            end=
            case $1 in %*) end== ;; esac
            (set -f; printf "%s$end\n" ${1#?}) | offer "$front" ;;
        '&'*)
            case $word in *,*) front=$front${word%,*},; word=${word##*,} ;; esac
            echo :open
            words "${1#?}" | offer "$front" ;;
        what-if)
            case $word in
                remove-node=*) front=${front}remove-node=; word=${word#*=} ;;
                add-nodes=*:*) front=$front${word%%:*}:; word=${word#*:} ;;
                *=*) return ;;
                *)
                    echo :open
                    printf '%s=\n' @WHAT_IF@ | offer "$front"
                    return ;;
            esac
            words node | offer "$front" ;;
        pnode:snode)
            case $word in *:*) front=$front${word%%:*}:; word=${word#*:} ;; esac
            echo :open
            words node | offer "$front" ;;
        *) words "$1" | offer "$front" ;;
    esac
}

[ $# -ge 2 ] || exit 2
program=${1##*/}
shift
command=
if ! plain "$program"; then
    if [ $# -eq 1 ]; then
        word=$1
        { commands "$program"; printf '%s\n' '--help' '--version'; } | offer ''
        exit
    fi
    command=$(canonical "$program" "$1")
    shift
fi
position=0 waiting= ended= kind= object=
while [ $# -gt 1 ]; do
    if [ -n "$waiting" ]; then
        waiting=
    elif [ -z "$ended" ]; then
        case $1 in
            --) ended=yes ;;
            --*=*) ;;
            -?*) kind=; if value "$program" "$command" "$1"; then waiting=yes; fi ;;
            *)
                # Options may follow an argument, unless it is a command for another program.
                argument "$program" "$command" "$position"
                case $kind in command) ended=yes ;; esac
                [ "$position" -gt 0 ] || object=$1
                position=$((position + 1)) ;;
        esac
    else
        [ "$position" -gt 0 ] || object=$1
        position=$((position + 1))
    fi
    shift
done
word=$1
if [ -n "$waiting" ]; then
    complete "$kind" ''
    exit
fi
if [ -z "$ended" ]; then
    case $word in
        --*=*)
            option=${word%%=*}
            value "$program" "$command" "$option"
            if [ $? -ne 1 ]; then
                word=${word#*=}
                complete "$kind" "$option="
            fi
            exit ;;
        -*)
            options "$program" "$command" | offer ''
            exit ;;
    esac
fi
argument "$program" "$command" "$position"
complete "$kind" ''
"""


def _case(function: str, subject: str, arms: Iterable[tuple[str, str]], default: str) -> list[str]:
    """Return a shell function with a ``case`` statement."""
    return [
        f"{function}() {{",
        f"    case {subject} in",
        *(f"        {pattern}) {action} ;;" for pattern, action in arms),
        f"        *) {default} ;;",
        "    esac",
        "}",
    ]


def about(text: str) -> str:
    """Return the first clause of a help text, shortened for a list."""
    first = text.split("; ")[0].split(". ")[0]
    return first if len(first) <= _ABOUT else f"{first[: _ABOUT - 3].rstrip()}..."


def _lines(pairs: Iterable[tuple[str, str]]) -> str:
    """Return a shell command which prints words with their meanings."""
    texts = [shlex.quote(f"{word}\t{about(meaning)}") for word, meaning in pairs]
    return f"printf '%s\\n' {' '.join(texts)}" if texts else ":"


def generate(programs: Sequence[Program], plain: Sequence[PlainProgram] = ()) -> str:
    """Return the script for these programs, with and without commands."""
    commands, aliases, options, values, arguments = [], [], [], [], []
    for program in programs:
        commands.append(
            (
                shlex.quote(program.name),
                _lines(
                    [
                        *((name, command.summary) for name, command in program.commands.items()),
                        *(
                            (alias, f"the same as {name}")
                            for alias, name in program.aliases.items()
                        ),
                    ]
                ),
            )
        )
        aliases += [
            (f"'{program.name} {alias}'", f"echo {name}") for alias, name in program.aliases.items()
        ]
        for command in program.commands.values():
            key = f"{program.name} {command.name}"
            known = tables.options(program, command)
            options.append(
                (
                    shlex.quote(key),
                    _lines((name, option.help) for option in known for name in option.names),
                )
            )
            by_kind: dict[str, list[str]] = {}
            for option in known:
                if option.takes_value:
                    kind = tables.option_kind(program, command, option)
                    by_kind.setdefault(kind, []).extend(option.names)
            values += [
                (
                    "|".join(shlex.quote(f"{key} {name}") for name in names),
                    f"kind={shlex.quote(kind)}",
                )
                for kind, names in by_kind.items()
            ]
            arguments += _positions(key, tables.argument_kinds(program, command))
    for one in plain:
        # The command of these programs is empty.
        key = f"{one.name} "
        options.append(
            (
                shlex.quote(key),
                _lines((name, option.help) for option in one.options for name in option.names),
            )
        )
        values += [
            (
                "|".join(shlex.quote(f"{key} {name}") for name in option.names),
                f"kind={shlex.quote(option.kind)}{'; return 2' * option.optional}",
            )
            for option in one.options
            if option.kind is not None
        ]
        arguments += _positions(key, one.arguments)
    without = [("|".join(shlex.quote(one.name) for one in plain), ":")] if plain else []
    lines = [
        "# Succeeds if a program has no commands.",
        *_case("plain", '"$1"', without, "return 1"),
        *_case("commands", '"$1"', commands, ":"),
        *_case("canonical", '"$1 $2"', aliases, 'echo "$2"'),
        *_case("options", '"$1 $2"', options, ":"),
        "# Succeeds if an option takes a value, and sets its kind; 2 if the value may be left out.",
        *_case("value", '"$1 $2 $3"', values, "return 1"),
        "# Sets the kind of the argument at a position, counted from 0.",
        *_case("argument", '"$1 $2 $3"', arguments, "kind="),
    ]
    return _HEAD + "\n".join(lines) + "\n" + _TAIL.replace("@WHAT_IF@", " ".join(what_if.KINDS))


def _positions(key: str, kinds: Sequence[str]) -> list[tuple[str, str]]:
    arms = []
    for place, kind in enumerate(kinds):
        repeated = kind.endswith("*")
        pattern = f"{shlex.quote(f'{key} ')}*" if repeated else shlex.quote(f"{key} {place}")
        arms.append((pattern, f"kind={shlex.quote(kind.removesuffix('*'))}"))
    return arms
