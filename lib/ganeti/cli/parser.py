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

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import options as opt
from ganeti.cli import terminal
from ganeti.cli.command import Command, Option, Program, Values

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
    line = _Line(command, argv)
    line.read(for_another=any(argument.kind == "command" for argument in command.arguments))
    if not line.values.help:
        check_arguments(command, line.arguments)
    return line.values, line.arguments


class _Line:
    """The words of a command line which are not read yet, and what was read.

    :ivar values: values of the options.
    """

    def __init__(self, command: Command, argv: Sequence[str]) -> None:
        known = (*command.options, *opt.COMMON)
        self._options = {name: option for option in known for name in option.names}
        self._words = list(argv)
        self.arguments: list[str] = []
        self.values = Values(output_format=None)
        for option in known:
            if option.default is not None or option.dest not in self.values.__dict__:
                self.values.__dict__[option.dest] = _fresh(option.default)

    def read(self, *, for_another: bool) -> None:
        """Read all words.

        :param for_another: whether the first argument ends the options.
        :raises OptionSyntaxError: unknown option, missing or wrong value.
        """
        while self._words:
            word = self._words.pop(0)
            if word == "--":
                self.arguments += self._words
                return
            if word == "-" or not word.startswith("-"):
                self.arguments.append(word)
                if for_another:
                    self.arguments += self._words
                    return
            elif word.startswith("--"):
                self._read_long(word)
            else:
                self._read_short(word)

    def _read_long(self, word: str) -> None:
        """Read one long option."""
        name, equals, value = word.partition("=")
        option = self._options.get(name)
        if option is None:
            matching = sorted(known for known in self._options if known.startswith(name))
            targets = {id(self._options[known]) for known in matching}
            if len(targets) > 1:
                raise OptionSyntaxError(f"ambiguous option: {name} ({', '.join(matching)}?)")
            if not matching:
                raise self._no_such_option(name)
            option = self._options[matching[0]]
        if not option.takes_value:
            if equals:
                raise OptionSyntaxError(f"option {name} takes no value")
            _apply(option, name, None, self.values)
        else:
            _apply(option, name, value if equals else self._next_word(name), self.values)

    def _read_short(self, word: str) -> None:
        """Read short options which are joined in one word."""
        letters = word[1:]
        while letters:
            name, letters = f"-{letters[0]}", letters[1:]
            option = self._options.get(name)
            if option is None:
                raise self._no_such_option(name)
            if option.takes_value:
                _apply(option, name, letters or self._next_word(name), self.values)
                return
            _apply(option, name, None, self.values)

    def _next_word(self, name: str) -> str:
        """Take the next word as the value of an option."""
        if not self._words:
            raise OptionSyntaxError(f"option {name} needs a value")
        return self._words.pop(0)

    def _no_such_option(self, name: str) -> OptionSyntaxError:
        near = suggest(name, self._options) if name.startswith("--") else ""
        # Behind an argument the word may be an argument, such as a tag.
        for_argument = self.arguments and not near
        how = " Put '--' before arguments which begin with a dash." if for_argument else ""
        return OptionSyntaxError(f"no such option: {name}.{near}{how}".rstrip("."))


def _fresh(default: Any) -> Any:
    """Copy a default: the parser changes lists and dictionaries."""
    if isinstance(default, dict):
        return dict(default)
    return list(default) if isinstance(default, list) else default


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
        raise OptionSyntaxError(_wrong_choice(name, text, option.choices))
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
    elif option.kind in ("keyval", "keyprivateval", "keyvalfile"):
        # If the option is given several times, the parameters are merged; the last value counts.
        target[option.dest] = {**(target[option.dest] or {}), **value}
    else:
        target[option.dest] = value


def _wrong_choice(name: str, text: str, choices: Sequence[str]) -> str:
    """Return the text about a value of an option which is not one of its choices."""
    near = suggest(text, choices)
    start = f"option {name}: invalid choice: '{text}'"
    if len(choices) > _FEW_CHOICES:
        # Nobody finds the error above or the right word inside of a long list.
        return f"{start}.{near or ' The manual page lists all choices'}"
    listed = ", ".join(f"'{choice}'" for choice in choices)
    return f"{start} (choose from {listed}).{near}".rstrip(".")


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


_FEW_CHOICES = 12
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
