"""Read a command line, and make the help texts.

The form is ``<program> <command> [options] [arguments]``. Options may also stand between and behind
the arguments. ``--`` ends the options, for arguments which begin with a dash; so does the first
argument which is a command for another program (``gnt-cluster command``). A long option may be
shortened as long as the result is unique; short ones may be joined (``-fv``).

The parsers of the standard library are not used: their import takes longer than the whole start of
a command, and this parser suggests similar names after a mistake.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from ganeti import errors
from ganeti.cli import options as opt
from ganeti.cli import terminal
from ganeti.cli.command import Command, Option, Program, Values

TYPE_CHECKING = False  # the name type checkers look for; importing typing costs milliseconds
if TYPE_CHECKING:
    from typing import Any


class OptionSyntaxError(errors.GenericError):
    """An option does not exist or its value is not valid; the exit code is 2."""


class ArgumentCountError(errors.GenericError):
    """There are too few or too many arguments; the exit code is 1."""


def suggest(word: str, known: Iterable[str]) -> str:
    """Return a blank and a sentence with the most similar known word; empty if there is none."""
    from ganeti.utils import suggest as near  # needed after a mistake only

    return near.did_you_mean(word, known)


def parse(command: Command, argv: Sequence[str]) -> tuple[Values, list[str]]:
    """Read the options and arguments after the name of the command.

    :returns: option values and arguments; with ``values.help`` the arguments are not checked.
    :raises OptionSyntaxError: unknown option, missing or wrong value.
    :raises ArgumentCountError: wrong number of arguments.
    """
    known = (*command.options, *opt.COMMON)
    by_name = {name: option for option in known for name in option.names}
    values = Values(output_format=None)
    for option in known:
        if option.default is not None or option.dest not in values.__dict__:
            values.__dict__[option.dest] = _fresh(option.default)
    for_another = any(argument.kind == "command" for argument in command.arguments)
    words, arguments = list(argv), []
    while words:
        word = words.pop(0)
        if word == "--":
            arguments += words
            break
        if word == "-" or not word.startswith("-"):
            arguments.append(word)
            if for_another:
                arguments += words
                break
        elif word.startswith("--"):
            _read_long(word, words, by_name, values, arguments)
        else:
            _read_short(word, words, by_name, values, arguments)
    if not values.help:
        check_arguments(command, arguments)
    return values, arguments


def _fresh(default: Any) -> Any:
    """Copy a default: the parser changes lists and dictionaries."""
    if isinstance(default, dict):
        return dict(default)
    return list(default) if isinstance(default, list) else default


def _read_long(
    word: str,
    rest: list[str],
    by_name: dict[str, Option],
    values: Values,
    arguments: Sequence[str],
) -> None:
    """Read one long option.

    :param rest: the words after it; its value is removed from them.
    :param arguments: the arguments before it.
    """
    name, equals, value = word.partition("=")
    option = by_name.get(name)
    if option is None:
        matching = sorted(known for known in by_name if known.startswith(name))
        targets = {id(by_name[known]) for known in matching}
        if len(targets) > 1:
            raise OptionSyntaxError(f"ambiguous option: {name} ({', '.join(matching)}?)")
        if not matching:
            raise _no_such_option(name, by_name, arguments)
        option = by_name[matching[0]]
    if not option.takes_value:
        if equals:
            raise OptionSyntaxError(f"option {name} takes no value")
        _apply(option, name, None, values)
        return
    if not equals:
        if not rest:
            raise OptionSyntaxError(f"option {name} needs a value")
        value = rest.pop(0)
    _apply(option, name, value, values)


def _no_such_option(
    name: str, by_name: dict[str, Option], arguments: Sequence[str]
) -> OptionSyntaxError:
    near = suggest(name, by_name) if name.startswith("--") else ""
    # Behind an argument the word may be an argument, such as a tag.
    how = " Put '--' before arguments which begin with a dash." if arguments and not near else ""
    return OptionSyntaxError(f"no such option: {name}.{near}{how}".rstrip("."))


def _read_short(
    word: str,
    rest: list[str],
    by_name: dict[str, Option],
    values: Values,
    arguments: Sequence[str],
) -> None:
    """Read short options which are joined in one word; as :func:`_read_long`."""
    letters = word[1:]
    while letters:
        name, letters = f"-{letters[0]}", letters[1:]
        option = by_name.get(name)
        if option is None:
            raise _no_such_option(name, by_name, arguments)
        if not option.takes_value:
            _apply(option, name, None, values)
            continue
        if not letters and not rest:
            raise OptionSyntaxError(f"option {name} needs a value")
        _apply(option, name, letters or rest.pop(0), values)
        return


def _apply(option: Option, name: str, text: str | None, values: Values) -> None:
    """Store the value of one option.

    :param name: the spelling on the command line.
    :param text: the value; None for an option without a value.
    """
    target = values.__dict__
    if text is None:
        target[option.dest] = (
            {
                "store_true": True,
                "store_false": False,
                "store_const": option.const,
            }.get(option.action)
            if option.action != "count"
            else (target[option.dest] or 0) + 1
        )
        if option.action == "call" and option.callback is not None:
            option.callback(values, "")
        return
    if option.choices and text not in option.choices:
        choices = ", ".join(f"'{choice}'" for choice in option.choices)
        raise OptionSyntaxError(
            f"option {name}: invalid choice: '{text}' (choose from {choices})"
            f".{suggest(text, option.choices)}".rstrip(".")
        )
    if option.action == "call" and option.callback is not None:
        option.callback(values, text)
        return
    from ganeti.cli import value_types

    try:
        value: Any = value_types.PARSERS[option.kind or "string"](text)
    except errors.ParameterError as err:
        raise OptionSyntaxError(f"option {name}: {err}") from err
    if option.action == "append":
        target[option.dest] = [*target[option.dest], value]
    elif option.kind in ("keyval", "keyprivateval"):
        # If the option is given several times, the parameters are merged; the last value counts.
        target[option.dest] = {**(target[option.dest] or {}), **value}
    else:
        target[option.dest] = value


def check_arguments(command: Command, arguments: Sequence[str]) -> None:
    """Check the number of arguments.

    :raises ArgumentCountError: the command takes another number of arguments.
    """
    minimum = sum(argument.minimum for argument in command.arguments)
    maximum: int | None = 0
    for argument in command.arguments:
        maximum = (
            None if maximum is None or argument.maximum is None else maximum + argument.maximum
        )
    if len(arguments) >= minimum and (maximum is None or len(arguments) <= maximum):
        return
    if maximum == 0:
        wanted = "no arguments"
    elif maximum is None:
        wanted = f"at least {minimum} argument(s)"
    elif minimum == maximum:
        wanted = f"{minimum} argument(s)"
    else:
        wanted = f"between {minimum} and {maximum} arguments"
    raise ArgumentCountError(f"Command {command.name} expects {wanted}")


def command_usage(program: Program, command: Command) -> str:
    """Return the usage line of a command."""
    return f"{program.name} {command.name} {command.usage}".rstrip()


def command_help(program: Program, command: Command) -> str:
    """Return the help text of a command."""
    columns = terminal.width(sys.stdout)
    lines = [
        "Usage",
        "=====",
        f"  {command_usage(program, command)}",
        "",
        command.summary,
        "",
        *_example(program, command),
        "Options",
        "=======",
    ]
    for option in (*command.options, *opt.COMMON):
        lines += _beside(f"  {option.usage()}", option_help(option), _HELP_COLUMN, columns)
    env = command.name in program.env_commands
    lines += (
        ["", f"See also {program.name}(8)."]
        if not env
        else [
            "",
            f"The environment variable {program.env_variable(command.name)} may contain default"
            " options.",
            f"See also {program.name}(8).",
        ]
    )
    return "\n".join(lines)


def _example(program: Program, command: Command) -> list[str]:
    """Return the lines with the example of a command; none if it has no example."""
    words = program.examples.get(command.name)
    if words is None:
        return []
    return ["Example", "=======", f"  {program.name} {command.name} {words}".rstrip(), ""]


def option_help(option: Option) -> str:
    """Return the help text of an option, with its default if it has one."""
    if not option.takes_value or option.default in (None, "", [], {}) or "default" in option.help:
        return option.help
    return f"{option.help}; {option.default} by default"


_HELP_COLUMN = 28
# On a narrow terminal the help texts are below the options, with a small indentation.
_NARROW, _NARROW_COLUMN = 60, 8
_WIDEST, _LEAST = 100, 24


def _beside(left: str, text: str, column: int, columns: int) -> list[str]:
    """Return lines with a text beside a word, or below it if the word is too long.

    :param column: the column in which the text begins.
    :param columns: width of the terminal.
    """
    import textwrap  # needed for --help only

    if columns < _NARROW:
        column = _NARROW_COLUMN
    body = textwrap.wrap(text, width=max(_LEAST, min(columns, _WIDEST) - column))
    if len(left) + 2 > column:
        return [left, *(" " * column + line for line in body)]
    first, *others = body
    return [left.ljust(column) + first, *(" " * column + line for line in others)]


def program_help(program: Program) -> str:
    """Return the help text of a program: the list of its commands."""
    columns = terminal.width(sys.stdout)
    column = max(len(name) for name in program.commands) + 4
    lines = [
        "Usage",
        "=====",
        f"  {program.name} <command> [<options>] [<arguments>]",
        "",
        program.summary,
        "",
        "Commands",
        "========",
    ]
    for name in sorted(program.commands):
        lines += _beside(f"  {name}", program.commands[name].summary, column, columns)
    if program.aliases:
        lines += [
            "",
            "Other names: "
            + ", ".join(f"{alias} for {name}" for alias, name in sorted(program.aliases.items()))
            + ".",
        ]
    lines += [
        "",
        f"Help on one command: {program.name} <command> --help. Manual: {program.name}(8).",
    ]
    return "\n".join(lines)
