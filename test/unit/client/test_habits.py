"""What users expect of every command, checked for all of them: a table of commands, not samples.

Every list can be sorted, watched and widened; options may stand behind arguments; commands on
several objects choose them in one way; every help text has an example and the defaults; a mistyped
command is answered with the nearest one.
"""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from fakes.luxi_master import FakeMaster
from ganeti import client, errors
from ganeti.cli import options as opt
from ganeti.cli import parser, terminal
from ganeti.cli.command import Command, Program

from .conftest import Gnt, fields_of

NODE1, NODE2 = "node1.example.com", "node2.example.com"


def program(name: str) -> Program:
    loaded: Program = importlib.import_module(client.PROGRAMS[name]).PROGRAM
    return loaded


ALL = [(name, command) for name in client.PROGRAMS for command in sorted(program(name).commands)]


def command(place: tuple[str, str]) -> Command:
    return program(place[0]).commands[place[1]]


def names(place: tuple[str, str]) -> set[str]:
    return {name for option in command(place).options for name in option.names}


# -- lists ------------------------------------------------------------------------------------------

#: Lists without rows of fields: of tags and of fields, which are already sorted and short.
SHORT_LISTS = {"list-fields", "list-tags"}
LISTS = [
    (name, word)
    for name, word in ALL
    if (word.startswith("list") and word not in SHORT_LISTS)
    or (name, word) in {("gnt-debug", "locks"), ("gnt-node", "volumes"), ("gnt-os", "images")}
]


def test_the_lists_are_all_there() -> None:
    """Whatever lets its user choose columns is a list."""
    fields = {
        place for place in ALL if any(one.completion == "fields" for one in command(place).options)
    }
    assert fields - {("gnt-instance", "top")} <= set(LISTS)


@pytest.mark.parametrize("place", LISTS, ids=" ".join)
def test_every_list_can_be_sorted_and_watched_and_widened(place: tuple[str, str]) -> None:
    assert {"--sort-by", "--watch", "--interval", "--no-headers", "--separator"} <= names(place)
    assert opt.OUTPUT in command(place).options


# -- objects ----------------------------------------------------------------------------------------

#: Kind of objects -> the options by which several of them can be chosen.
SELECTORS = {
    "instance": {"--filter", "--tags", "--node", "--group"},
    "node": {"--filter", "--tags", "--group"},
    "group": {"--filter", "--tags"},
    "network": {"--filter", "--tags"},
    "jobid": {"--filter"},
}
#: Commands whose several arguments are not several objects: a network or a group, and its new name.
NOT_SEVERAL = {("gnt-group", "rename"), ("gnt-network", "rename")}


@pytest.mark.parametrize("place", ALL, ids=" ".join)
def test_several_objects_are_chosen_in_one_way(place: tuple[str, str]) -> None:
    for argument in command(place).arguments:
        several = argument.maximum is None or argument.maximum > 1
        if several and place not in NOT_SEVERAL:
            assert SELECTORS.get(argument.kind, set()) <= names(place)


# -- help -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ALL, ids=" ".join)
def test_every_help_has_an_example_and_the_defaults(place: tuple[str, str]) -> None:
    text = " ".join(parser.command_help(program(place[0]), command(place)).split())
    assert f"Example ======= {' '.join(place)}" in text
    for option in command(place).options:
        if option.takes_value and option.default not in (None, "", [], {}):
            assert "default" in parser.option_help(option), option.names


# -- words ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", client.PROGRAMS)
def test_a_mistyped_command_is_answered_with_the_nearest_one(name: str, gnt: Gnt) -> None:
    for word in program(name).commands:
        mistyped = word[:-1] + word[-1] * 2
        done = gnt(f"{name.removeprefix('gnt-')} {mistyped}")
        assert (done.code, done.out) == (1, "")
        assert f"unknown command '{mistyped}' of {name}. Did you mean" in done.err
        assert f"'{word}'" in done.err
        assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("instance ls", "list"),
        ("instance create -t plain web1", "add"),
        ("instance rm web1", "remove"),
        # "start" is more similar, and does something else.
        ("instance restart web1", "reboot"),
        ("instance status web1", "list"),
        ("node delete node3", "remove"),
        ("cluster create cluster.example.com", "init"),
        ("cluster status", "info"),
        ("cluster check", "verify"),
        ("job kill 5", "cancel"),
        ("filter rm x", "delete"),
    ],
)
def test_words_of_other_programs(gnt: Gnt, line: str, meant: str) -> None:
    done = gnt(line)
    assert (done.code, done.out) == (1, "")
    assert f"Did you mean '{meant}'?" in done.err


#: Its arguments are a command with options of its own.
PASSED_ON = {("gnt-cluster", "command")}


@pytest.mark.parametrize("place", sorted(set(ALL) - PASSED_ON), ids=" ".join)
def test_options_may_stand_behind_arguments(place: tuple[str, str]) -> None:
    words = ["x"] * sum(argument.minimum for argument in command(place).arguments)
    values, arguments = parser.parse(command(place), [*words, "--debug"])
    assert (values.debug, arguments) == (1, words)
    _, arguments = parser.parse(command(place), ["--", *words])
    assert arguments == words


# -- lists which jobs make --------------------------------------------------------------------------


def storage(master: FakeMaster) -> None:
    rows: list[dict[str, Any]] = [
        {"node": NODE1, "name": "/srv/10", "free": 5},
        {"node": NODE2, "name": "/srv/9", "free": None},
        {"node": NODE1, "name": "/srv/2", "free": 70},
    ]
    master.results["OP_NODE_QUERY_STORAGE"] = lambda op: [
        [row.get(field) for field in op["output_fields"]] for row in rows
    ]


@pytest.mark.parametrize(
    ("order", "wanted"),
    [
        ("name", "/srv/2 /srv/9 /srv/10"),
        ("-name", "/srv/10 /srv/9 /srv/2"),
        ("free", "/srv/10 /srv/2 /srv/9"),
        ("-free", "/srv/2 /srv/10 /srv/9"),
        ("node,-free", "/srv/2 /srv/10 /srv/9"),
    ],
)
def test_the_list_of_a_job_is_sorted(order: str, wanted: str, gnt: Gnt, master: FakeMaster) -> None:
    """Also by columns which are not shown; rows without a value are the last ones."""
    storage(master)
    done = gnt(f"node list-storage --no-headers -o name --sort-by={order}")
    assert (done.code, done.out.split()) == (0, wanted.split())


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("--sort-by=fre", "cannot sort by 'fre': there is no such field. Did you mean 'free'?"),
        ("--sort-by=name,name", "--sort-by needs different fields"),
        ("-o nme", "unknown fields: nme. Did you mean 'name'?"),
        ("--interval=5", "--interval needs --watch"),
        ("--watch", "--watch shows a table on a terminal"),
    ],
)
def test_mistakes_in_the_list_of_a_job(
    words: str, problem: str, gnt: Gnt, master: FakeMaster
) -> None:
    storage(master)
    done = gnt(f"node list-storage {words}")
    assert (done.code, done.out) == (1, "")
    assert problem in done.err
    assert not master.jobs


# -- lists of chosen objects ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("instance list --tags a b", ["|", ["=[]", "tags", "a"], ["=[]", "tags", "b"]]),
        (
            f"instance list {NODE2} --node",
            ["|", ["|", ["==", "pnode", NODE2], ["=[]", "snodes", NODE2]]],
        ),
        ("instance list --group g1", ["|", ["==", "pnode.group", "g1"]]),
        ("node list --group g1", ["|", ["==", "group", "g1"]]),
        ("node list --tags a", ["|", ["=[]", "tags", "a"]]),
        ("group list --tags a", ["|", ["=[]", "tags", "a"]]),
        ("network list --tags a", ["|", ["=[]", "tags", "a"]]),
    ],
)
def test_lists_choose_like_other_commands(
    line: str, wanted: Any, gnt: Gnt, master: FakeMaster
) -> None:
    kind = line.split()[0]
    master.fields[kind] = fields_of(kind)
    master.rows.setdefault("node", [{"name": NODE2}])
    master.rows.setdefault("group", [{"name": "g1"}])
    done = gnt(f"{line} -o name")
    assert done.code == 0, done.err
    (asked,) = [args for method, args in master.requests if method == "Query" and args[0] == kind]
    assert list(asked) == [kind, ["name"], wanted]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("-F --tags a", "give either --filter or --tags"),
        ("--tags", "--tags needs an argument"),
        ("--node nosuch", "nosuch"),
    ],
)
def test_mistakes_in_choosing(words: str, problem: str, gnt: Gnt, master: FakeMaster) -> None:
    master.rows["node"] = [{"name": NODE1}]
    done = gnt(f"instance list {words}")
    assert (done.code, done.out) == (1, "")
    assert problem in done.err


@pytest.mark.parametrize("other", ["--all", "--groups g1"])
def test_nodes_to_switch_are_chosen_in_one_way_only(
    other: str, gnt: Gnt, master: FakeMaster
) -> None:
    done = gnt(f"cluster epo -f --tags {other} rack2")
    assert (done.code, done.out) == (1, "")
    assert "neither --all nor --groups" in done.err
    assert not master.jobs


@pytest.fixture
def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Output goes to a terminal with 40 columns and colours."""
    monkeypatch.setattr(terminal, "is_terminal", lambda stream: True)
    monkeypatch.setattr(terminal, "width", lambda stream, otherwise=80: 40)
    monkeypatch.setenv("TERM", "xterm")


@pytest.mark.usefixtures("on_a_terminal")
def test_an_error_on_a_terminal_is_red_and_wrapped(gnt: Gnt, master: FakeMaster) -> None:
    text = "instance web9.example.com is not in this cluster. Did you mean 'web1'?"
    master.results["OP_INSTANCE_REMOVE"] = errors.OpPrereqError(text, errors.ECODE_NOENT)
    ended = gnt("instance remove -f web9.example.com")
    assert (ended.code, ended.err) == (
        1,
        "\033[31mError\033[0m: instance web9.example.com is not\n"
        "in this cluster. Did you mean 'web1'?\n",
    )


@pytest.mark.usefixtures("on_a_terminal")
def test_a_wrong_option_on_a_terminal(gnt: Gnt) -> None:
    ended = gnt("job wait --submt 7")
    assert ended.code == 2
    assert ended.err == (
        "\033[31mError\033[0m: no such option: --submt\n"
        "Usage: gnt-job wait [<options>] <job-id>\n".replace("[<options>] ", "")
        + "'gnt-job wait --help' shows the options.\n"
    )


def test_a_long_list_of_choices_is_not_shown(gnt: Gnt) -> None:
    ended = gnt("cluster verify -I ENODERCP")
    assert ended.code == 2
    assert ended.err.endswith("invalid choice: 'ENODERCP'. Did you mean 'ENODERPC'?\n")
    ended = gnt("cluster verify -I X")
    assert ended.err.endswith("invalid choice: 'X'. The manual page lists all choices\n")


def test_an_unknown_parameter_never_lists_all(gnt: Gnt) -> None:
    near = gnt("instance modify -H vnc_bind_adress=0.0.0.0 web1").err
    assert near == "Parameter Error: unknown parameter 'vnc_bind_adress'. Did you mean" + (
        " 'vnc_bind_address'?\n"
    )
    far = gnt("instance modify -H zzz=1 web1").err
    assert far == "Parameter Error: unknown parameter 'zzz'. The manual page lists all names.\n"
    few = gnt("instance modify -B zzz=1 web1").err
    assert " Known are: " in few
