"""Reading command lines."""

from __future__ import annotations

import importlib
import re
import shlex
from typing import Any

import pytest

from ganeti import client
from ganeti.cli import options as opt
from ganeti.cli import parser
from ganeti.cli.command import Argument, Command, Option, Program, Values
from ganeti.query import resources


def command(*options: Option, arguments: list[Argument] | None = None) -> Command:
    return Command(
        "do",
        lambda values, words: 0,
        [Argument("host")] if arguments is None else arguments,
        options,
        "Do it",
    )


OPTIONS = (
    opt.FORCE,
    opt.DRY_RUN,
    opt.PRIORITY,
    opt.OUTPUT,
    opt.YES_DO_IT,
    opt.negative("--no-start", dest="start", help="h"),
    Option("-n", "--node", kind="string", help="h"),
    Option("--net", kind="identkeyval", action="append", dest="nics", help="h"),
    Option("-s", "--size", kind="unit", help="h"),
    Option("--all", action="store_const", const="cluster", dest="mode", help="h"),
    Option("-B", "--backend", kind="keyval", dest="beparams", default={}, help="h"),
)


def parse(*words: str) -> tuple[Values, list[str]]:
    return parser.parse(command(*OPTIONS), words)


def test_defaults() -> None:
    values, arguments = parse()
    assert arguments == []
    assert (
        values.force,
        values.dry_run,
        values.start,
        values.node,
        values.nics,
        values.mode,
        values.beparams,
        values.priority,
        values.debug,
        values.output,
        values.output_format,
        values.yes_do_it,
        values.reason,
    ) == (False, False, True, None, [], None, {}, None, 0, None, None, None, None)


def test_defaults_are_fresh_each_time() -> None:
    first, _ = parse("--net", "0:ip=1")
    first.beparams["memory"] = "1"
    second, _ = parse()
    assert second.nics == []
    assert second.beparams == {}


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        (["-f"], "force", True),
        (["--no-start"], "start", False),
        (["-n", "node1"], "node", "node1"),
        (["-nnode1"], "node", "node1"),
        (["--node", "node1"], "node", "node1"),
        (["--node=node1"], "node", "node1"),
        (["--node="], "node", ""),
        (["--nod=node1"], "node", "node1"),
        (["-fn", "node1"], "node", "node1"),
        (["-dd", "--debug"], "debug", 3),
        (["-s", "1g"], "size", 1024),
        (["--all"], "mode", "cluster"),
        (["--net", "0:ip=1", "--net=1"], "nics", [("0", {"ip": "1"}), ("1", {})]),
        (["-B", "memory=1g,auto"], "beparams", {"memory": "1g", "auto": True}),
        (
            ["-B", "memory=1g,vcpus=2", "-B", "memory=2g"],
            "beparams",
            {"memory": "2g", "vcpus": "2"},
        ),
        (["--priority", "high"], "priority", -10),
        (["--ya-rly"], "yes_do_it", True),
        (["--reason=because"], "reason", "because"),
        (["-n", "-f"], "node", "-f"),
    ],
)
def test_options(words: list[str], name: str, value: Any) -> None:
    values, arguments = parse(*words)
    assert getattr(values, name) == value
    assert arguments == []


@pytest.mark.parametrize(
    "words",
    [
        ["-f", "-n", "x", "web1", "prod"],
        ["web1", "-f", "-n", "x", "prod"],
        ["web1", "prod", "-fnx"],
        ["web1", "--force", "prod", "--node=x"],
        ["web1", "-n", "x", "--force", "--", "prod"],
    ],
)
def test_options_may_stand_anywhere(words: list[str]) -> None:
    values, arguments = parse(*words)
    assert values.force
    assert values.node == "x"
    assert arguments == ["web1", "prod"]


@pytest.mark.parametrize("word", ["-x", "-1g", "--other"])
def test_an_argument_with_a_dash_needs_two_dashes_before(word: str) -> None:
    with pytest.raises(parser.OptionSyntaxError, match="Put '--' before arguments"):
        parse("-f", "web1", word)
    assert parse("-f", "web1", "--", word)[1] == ["web1", word]
    with pytest.raises(parser.OptionSyntaxError) as caught:
        parse(word)
    assert "Put" not in str(caught.value)


@pytest.mark.parametrize(
    ("words", "arguments"), [(["--", "-1"], ["-1"]), (["-"], ["-"]), (["-f", "--", "--"], ["--"])]
)
def test_double_dash_and_dash(words: list[str], arguments: list[str]) -> None:
    assert parse(*words)[1] == arguments


@pytest.mark.parametrize(
    ("words", "fields", "output_format"),
    [
        (["-o", "name,status"], "name,status", None),
        (["-o", "json"], None, "json"),
        (["-o", "name", "--output", "yaml"], "name", "yaml"),
        (["--output=table", "-o", "+tags"], "+tags", "table"),
        (["-o", "name", "-o", "uuid"], "uuid", None),
    ],
)
def test_fields_and_formats_share_an_option(
    words: list[str], fields: str | None, output_format: str | None
) -> None:
    values, _ = parse(*words)
    assert (values.output, values.output_format) == (fields, output_format)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--nosuch"], "no such option: --nosuch"),
        (["--dry-rum"], "Did you mean '--dry-run'?"),
        (["-x"], "no such option: -x"),
        (["-fx"], "no such option: -x"),
        (["--n"], "ambiguous option: --n (--net, --no-start, --node?)"),
        (["--node"], "option --node needs a value"),
        (["-n"], "option -n needs a value"),
        (["--force=yes"], "option --force takes no value"),
        (
            ["--priority=urgent"],
            "option --priority: invalid choice: 'urgent' (choose from 'low', 'normal', 'high')",
        ),
        (["-s", "big"], "option -s: cannot read 'big' as a size"),
        (["-B", "a=1,a=2"], "option -B: key 'a' is given twice"),
    ],
)
def test_syntax_errors(words: list[str], text: str) -> None:
    with pytest.raises(parser.OptionSyntaxError) as caught:
        parse(*words)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "words", "text"),
    [
        ([], ["x"], "expects no arguments"),
        ([Argument("host", 1, 1)], [], "expects 1 argument(s)"),
        ([Argument("host", 1, 1)], ["a", "b"], "expects 1 argument(s)"),
        ([Argument("jobid", 1)], [], "expects at least 1 argument(s)"),
        (
            [Argument("host", 1, 1), Argument("host", 0, 1)],
            ["a", "b", "c"],
            "expects between 1 and 2 arguments",
        ),
    ],
)
def test_argument_counts(arguments: list[Argument], words: list[str], text: str) -> None:
    with pytest.raises(parser.ArgumentCountError) as caught:
        parser.parse(command(opt.FORCE, arguments=arguments), words)
    assert text in str(caught.value)


def test_the_command_of_another_program_keeps_its_options() -> None:
    other = command(opt.FORCE, arguments=[Argument("command", 1)])
    values, arguments = parser.parse(other, ["-f", "ls", "--force", "--help", "-x"])
    assert arguments == ["ls", "--force", "--help", "-x"]
    assert values.force
    assert not values.help
    assert not parser.parse(other, ["ls", "--force"])[0].force


def test_help_behind_an_argument() -> None:
    many = command(arguments=[Argument("instance")])
    assert parser.parse(many, ["a", "--help"])[0].help


def test_help_needs_no_arguments() -> None:
    values, _ = parser.parse(command(arguments=[Argument("host", 1, 1)]), ["--help"])
    assert values.help


def test_help_texts() -> None:
    program = Program("gnt-test", "For tests.", [command(*OPTIONS)], {"make": "do"}, ["do"])
    text = parser.command_help(program, program.commands["do"])
    for option in (*OPTIONS, *opt.COMMON):
        for name in option.names:
            assert name in text
    assert "  gnt-test do [<options>] [<host>...]" in text.splitlines()
    assert "GNT_TEST_DO" in text
    assert max(len(line) for line in text.splitlines()) <= 100
    overview = parser.program_help(program)
    assert "  do  Do it" in overview
    assert "make for do" in overview
    assert program.find("make") is program.find("do")
    assert program.find("nosuch") is None


@pytest.mark.parametrize("columns", [30, 44, 60, 80, 300])
def test_help_fits_the_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parser.terminal, "width", lambda stream: columns)
    help_text = ("look at " + "many things " * 20).strip()
    program = Program("gnt-test", "For tests.", [command(opt.flag("--check", help=help_text))])
    for text, word in (
        (parser.command_help(program, program.commands["do"]), "Options"),
        (parser.program_help(program), "Commands"),
    ):
        part = text.split(f"{word}\n{'=' * len(word)}\n")[1].split("\n\n")[0]
        assert max(len(line) for line in part.splitlines()) <= max(40, min(columns, 100))
        if word == "Options":
            assert help_text in " ".join(part.split())


def test_suggestions() -> None:
    assert parser.suggest("lst", ["list", "info"]) == " Did you mean 'list'?"
    assert parser.suggest("xyzzy", ["list", "info"]) == ""


def test_a_misspelt_choice_is_guessed() -> None:
    command = Command(
        "list",
        lambda values, arguments: 0,
        [],
        [Option("--mode", choices=("live", "non-live"), help="how")],
        "List",
    )
    with pytest.raises(parser.OptionSyntaxError, match=r"'liev' \(choose .*\)\. Did you mean 'li"):
        parser.parse(command, ["--mode", "liev"])
    with pytest.raises(parser.OptionSyntaxError, match=r"'x' \(choose from 'live', 'non-live'\)$"):
        parser.parse(command, ["--mode=x"])


def test_the_help_shows_defaults() -> None:
    options = (
        Option("--number", kind="int", default=7, help="how many"),
        Option("--said", kind="int", default=8, help="how many; 8 by default"),
        Option("--none", kind="string", help="which"),
        opt.FORCE,
    )
    program = Program("gnt-test", "For tests.", [command(*options)])
    text = parser.command_help(program, program.commands["do"])
    assert "how many; 7 by default" in text
    assert text.count("8 by default") == 1
    assert text.count("by default") == 2


@pytest.mark.parametrize("name", sorted(client.PROGRAMS))
def test_every_default_is_in_the_help(name: str) -> None:
    program = importlib.import_module(client.PROGRAMS[name]).PROGRAM
    for one in program.commands.values():
        for option in one.options:
            if option.takes_value and option.default not in (None, "", [], {}):
                assert "default" in parser.option_help(option), (one.name, option.names)


@pytest.mark.parametrize("name", sorted(client.PROGRAMS))
def test_every_command_has_an_example_which_parses(name: str) -> None:
    program = importlib.import_module(client.PROGRAMS[name]).PROGRAM
    assert set(program.examples) == set(program.commands)
    for one in program.commands.values():
        text = parser.command_help(program, one)
        line = text.split("Example\n=======\n  ")[1].splitlines()[0]
        words = shlex.split(line)
        assert words[:2] == [name, one.name]
        assert not parser.parse(one, words[2:])[0].help


#: Commands whose ``-o`` and filters name fields of another kind of objects than the program.
_LISTED = {("gnt-backup", "list"): "export", ("gnt-debug", "locks"): "lock"}


@pytest.mark.parametrize("name", sorted(client.PROGRAMS))
def test_examples_name_fields_which_exist(name: str) -> None:
    program = importlib.import_module(client.PROGRAMS[name]).PROGRAM
    for command_name, example in program.examples.items():
        if command_name not in ("list", "locks"):
            continue
        kind = _LISTED.get((name, command_name), name.removeprefix("gnt-"))
        known = set(resources.lookup(kind).fields)
        values, arguments = parser.parse(program.commands[command_name], shlex.split(example))
        if values.output:
            assert set(values.output.split(",")) <= known
        if values.force_filter:
            names = set(re.findall(r"[a-z_]+", re.sub(r'"[^"]*"', "", arguments[0])))
            assert names - {"and", "or", "not"} <= known


def test_a_command_without_an_example_has_a_help() -> None:
    program = Program("gnt-test", "For tests.", [command()])
    assert "Example" not in parser.command_help(program, program.commands["do"])
    program = Program("gnt-test", "For tests.", [command()], examples={"do": ""})
    assert "Example\n=======\n  gnt-test do\n" in parser.command_help(
        program, program.commands["do"]
    )
