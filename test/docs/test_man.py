"""The manual pages name every command and option of the tables, and nothing that is not there."""

from __future__ import annotations

import argparse
import importlib
import re
import shlex
from pathlib import Path

import pytest
from docutils import nodes
from docutils.core import publish_doctree

from ganeti import client
from ganeti.cli import failures, parser
from ganeti.cli import options as opt
from ganeti.cli.command import Program
from ganeti.client.htools import options as placement_options
from ganeti.objects import hvparams
from ganeti.tools import daemon_util, rapi_passwd

MAN = Path(__file__).resolve().parents[2] / "man"
COMMON_SECTION = "Options of all commands"

#: Programs with a parser of their own: page -> module with a function ``_parser``.
TOOLS = {
    "burnin": "ganeti.burnin.program",
    "cfgshell": "ganeti.tools.cfgshell",
    "cfgupgrade": "ganeti.tools.cfgupgrade",
    "confd-client": "ganeti.tools.confd_client",
    "ensure-dirs": "ganeti.tools.ensure_dirs",
    "node-cleanup": "ganeti.tools.node_cleanup",
    "ganeti-cleaner": "ganeti.tools.cleaner",
    "ganeti-join": "ganeti.tools.join",
    "ganeti-takeover": "ganeti.takeover.command",
    "ganeti-watcher": "ganeti.watcher.command",
    "cluster-merge": "ganeti.merge.command",
    "lvmstrap": "ganeti.tools.lvmstrap",
    "mon-collector": "ganeti.tools.mon_collector",
    "node-daemon-setup": "ganeti.tools.node_daemon_setup",
    "ovfconverter": "ganeti.tools.ovfconverter",
    "query-config": "ganeti.tools.query_config",
    "rapi-passwd": "ganeti.tools.rapi_passwd",
    "sanitize-config": "ganeti.tools.sanitize_config",
    "users-setup": "ganeti.tools.users_setup",
}
#: Programs with the table of options in ``client/htools/options.py``.
PLACEMENT = (
    "hail", "harep", "hbal", "hcheck", "hinfo", "hroller", "hscan", "hspace", "hsqueeze",
)  # fmt: skip
PAGES = [
    *sorted(client.PROGRAMS),
    *TOOLS,
    "daemon-util",
    "ganeti",
    "ganeti-chroot",
    "ganeti-confd",
    "ganeti-extstorage-interface",
    "ganeti-failoverd",
    "ganeti-hooks",
    "ganeti-watchdogd",
    "ganeti-iallocator",
    "ganeti-kvm",
    "ganeti-kvmd",
    "ganeti-lxc",
    "ganeti-masterd",
    "ganeti-metad",
    "ganeti-mond",
    "ganeti-noded",
    "ganeti-os-interface",
    "ganeti-rapi",
    "ganeti-xen",
    "htools",
    *PLACEMENT,
]


def tree(name: str) -> nodes.document:
    path = MAN / f"{name}.rst"
    return publish_doctree(
        path.read_text(encoding="utf-8"),
        source_path=str(path),
        settings_overrides={"halt_level": 2, "report_level": 2},
    )


def sections(name: str) -> dict[str, nodes.section]:
    """The lowest sections of a page, by title."""
    found = {}
    for section in tree(name).findall(nodes.section):
        if not list(section.findall(nodes.section))[1:]:
            found[section[0].astext()] = section
    return found


def literals(section: nodes.Node) -> str:
    return "\n".join(node.astext() for node in section.findall(nodes.literal))


def options_in(text: str) -> set[str]:
    """Spellings of options: ``-f``, ``--force``."""
    return set(re.findall(r"(?<![\w-])--?[a-zA-Z][a-z0-9-]*", text))


def load(name: str) -> Program:
    program: Program = importlib.import_module(client.PROGRAMS[name]).PROGRAM
    return program


COMMANDS = [(name, command) for name in client.PROGRAMS for command in load(name).commands]


@pytest.mark.parametrize("name", PAGES)
def test_page_can_be_rendered(name: str) -> None:
    document = tree(name)
    assert document.astext().startswith(name)
    fields = [field[0].astext() for field in document.findall(nodes.field)]
    assert fields[:2] == ["Manual section", "Manual group"]


@pytest.mark.parametrize("hypervisor", ["chroot", "kvm", "lxc"])
def test_every_parameter_is_explained_with_its_default(hypervisor: str) -> None:
    text = (MAN / f"ganeti-{hypervisor}.rst").read_text(encoding="utf-8")
    explained = dict(
        re.findall(
            r"``(\w+)``(?: \(`*([^`)]*)`*\))?",
            "\n".join(line for line in text.splitlines() if line.startswith("``")),
        )
    )
    for name, parameter in hvparams.TABLES[hypervisor].items():
        assert name in explained, name
        shown = explained[name]
        if shown:
            default = parameter.default
            wanted = ("yes" if default else "no") if isinstance(default, bool) else str(default)
            assert shown == wanted, name


def test_no_page_without_its_program() -> None:
    assert sorted(path.stem for path in MAN.glob("*.rst")) == sorted(PAGES)


@pytest.mark.parametrize(("name", "command"), COMMANDS)
def test_every_option_of_a_command_is_on_its_page(name: str, command: str) -> None:
    page = sections(name)
    assert command in page, f"{name} has no section {command}"
    section = page[command]
    # What several commands share stands in a section of its own, to which the command's refers.
    shared = [
        title
        for title in page
        if title.split(" ")[0] in ("Options", "Choosing")
        and title.lower() in " ".join(section.astext().split()).lower()
    ]
    documented = options_in(
        "\n".join(literals(page[title]) for title in (command, COMMON_SECTION, *shared))
    )
    wanted = {
        spelling
        for option in (*load(name).commands[command].options, *opt.COMMON)
        for spelling in option.names
    }
    assert wanted <= documented, f"not documented: {sorted(wanted - documented)}"
    # The other way round: what the section explains exists, if perhaps on another command.
    known = {
        spelling
        for other in load(name).commands.values()
        for option in (*other.options, *opt.COMMON)
        for spelling in option.names
    }
    assert options_in(literals(section)) <= known


@pytest.mark.parametrize("name", sorted(client.PROGRAMS))
def test_no_section_for_a_command_that_does_not_exist(name: str) -> None:
    document = tree(name)
    (commands,) = [
        section for section in document.findall(nodes.section) if section[0].astext() == "COMMANDS"
    ]
    titles = [child[0].astext() for child in commands if isinstance(child, nodes.section)]
    assert titles == list(dict.fromkeys(titles))
    assert set(titles) == set(load(name).commands)


@pytest.mark.parametrize("name", sorted(client.PROGRAMS))
def test_synopsis_names_program_and_command(name: str) -> None:
    for command, section in sections(name).items():
        if command in load(name).commands:
            assert section[1].astext().startswith(f"{name} {command}")


def test_environment_variables_are_documented() -> None:
    text = (MAN / "ganeti.rst").read_text(encoding="utf-8")
    for name in client.PROGRAMS:
        program = load(name)
        for command in program.env_commands:
            assert program.env_variable(command) in text
            assert program.env_variable(command) in sections(name)[command].astext()


def test_exit_codes_are_documented() -> None:
    codes = {value for name, value in vars(failures).items() if name.startswith("EXIT_")}
    rows = sections("ganeti")["EXIT CODES"].findall(nodes.row)
    assert {int(row[0].astext()) for row in rows} == codes


def test_examples_use_commands_and_options_that_exist() -> None:
    for name in PAGES:
        for block in tree(name).findall(nodes.literal_block):
            for line in block.astext().replace("\\\n", " ").splitlines():
                match = re.search(r"(gnt-[a-z]+) ([a-z-]+)(.*)", line)
                if match is None:
                    continue
                command = load(match[1]).find(match[2])
                assert command is not None, line
                known = {
                    spelling
                    for option in (*command.options, *opt.COMMON)
                    for spelling in option.names
                }
                # What is in quotes is a filter.
                rest = re.sub(r"'[^']*'", "", match[3])
                assert options_in(rest) <= known, line
                if line.startswith(match[1]):
                    # A command line by itself, as the example in the help, parses as a whole.
                    words = shlex.split(match[3])
                    if not {"|", "||", ">", "<", "#"} & set(words):
                        parser.parse(command, words)


# -- programs with a parser of their own ---------------------------------------------------------


def parser_of(name: str) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = importlib.import_module(TOOLS[name]).make_parser()
    return made


@pytest.mark.parametrize("name", sorted(TOOLS))
def test_options_are_those_of_the_program(name: str) -> None:
    wanted = {spelling for action in parser_of(name)._actions for spelling in action.option_strings}
    (section,) = [part for part in tree(name).children if part.astext().startswith("OPTIONS")]
    explained = options_in(literals(section))
    # Every program can say what it takes.
    assert wanted - {"-h", "--help"} <= explained
    assert explained <= wanted


@pytest.mark.parametrize("subject", rapi_passwd.SUBJECTS)
def test_the_page_of_rapi_passwd_explains_all_its_commands(subject: str) -> None:
    made = importlib.import_module(rapi_passwd.SUBJECTS[subject]).make_parser()
    (commands,) = [one for one in made._actions if isinstance(one, argparse._SubParsersAction)]
    title = "ONE-TIME CODES" if subject == "totp" else f"{subject.upper()}S"
    (section,) = [part for part in tree("rapi-passwd").children if part.astext().startswith(title)]
    for command, inner in commands.choices.items():
        assert f"rapi-passwd {subject} {command}" in section.astext()
        wanted = {spelling for action in inner._actions for spelling in action.option_strings}
        assert wanted - {"-h", "--help"} <= options_in(section.astext())


@pytest.mark.parametrize("name", sorted(TOOLS))
def test_the_page_has_the_name_of_the_program(name: str) -> None:
    assert parser_of(name).prog == name


def test_every_command_of_cfgshell_is_explained() -> None:
    shell = importlib.import_module("ganeti.tools.cfgshell")
    source = open(shell.__file__, encoding="utf-8").read()
    commands = set(re.findall(r"def do_([a-z]+)\(", source))
    page = (MAN / "cfgshell.rst").read_text(encoding="utf-8")
    explained = set(re.findall(r"``([a-z]+)``", page.partition("COMMANDS")[2]))
    assert commands <= explained


@pytest.mark.parametrize("name", PLACEMENT)
def test_every_option_of_a_placement_program_is_on_its_page(name: str) -> None:
    program = importlib.import_module(f"ganeti.client.htools.{name}").PROGRAM
    table = [placement_options.ALL[long] for long in program.options]
    table += placement_options.GENERIC.values()
    wanted = {f"--{one.long}" for one in table} | {f"-{one.short}" for one in table if one.short}
    page = sections(name)
    documented = options_in(literals(page["OPTIONS"]))
    assert wanted <= documented, f"not documented: {sorted(wanted - documented)}"
    assert documented <= wanted | {"--mond"}, f"unknown: {sorted(documented - wanted)}"


def test_the_page_of_daemon_util_has_every_command() -> None:
    """With its arguments, and nothing else."""
    text = (MAN / "daemon-util.rst").read_text(encoding="utf-8")
    commands = text[text.index("COMMANDS\n") : text.index("OPTIONS\n")]
    titles = [line for line in commands.splitlines() if line.startswith("``")]
    shown = re.findall(r"``([a-z-]+)``( \*[A-Z]+\*)?", "\n".join(titles))
    documented = {name: bool(argument) for name, argument in shown}
    wanted = {name: one.maximum != 0 for name, one in daemon_util.COMMANDS.items()}
    assert documented == wanted
