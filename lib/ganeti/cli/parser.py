"""Reading a command line, and the help texts.

``<program> <command> [options] [arguments]``: options come before arguments and have no effect
behind the first one. Since whoever writes ``add-tags web1 prod --dry-run`` does not mean a tag, one
of the command's options there is refused, except after ``--``, which ends options, and in what
another program is to read (``gnt-cluster command``). Long options may be shortened as long as they
stay unique; short ones may be joined (``-fv``).

Written here rather than with the library's parsers because of start-up time (they cost more than
the rest of the command line together) and of the answers to mistakes: the near miss is suggested.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from ganeti import errors
from ganeti.cli import options as opt
from ganeti.cli import terminal
from ganeti.cli.command import Command, Program, Values
from ganeti.cli.options import Option

TYPE_CHECKING = False  # the name type checkers look for; importing typing costs milliseconds
if TYPE_CHECKING:
    from typing import Any


class OptionSyntaxError(errors.GenericError):
    """An option that does not exist or whose value cannot be read; ends with exit code 2."""


class ArgumentCountError(errors.GenericError):
    """Too few or too many arguments; ends with exit code 1."""


def suggest(word: str, known: Iterable[str]) -> str:
    """A sentence with the nearest known word, with a blank in front; empty if nothing is near."""
    from ganeti.utils import suggest as near  # only mistakes pay for it

    return near.did_you_mean(word, known)


def parse(command: Command, argv: Sequence[str]) -> tuple[Values, list[str]]:
    """Read what follows the command's name.

    :returns: option values and arguments; with ``values.help`` set the arguments are not checked.
    :raises OptionSyntaxError: unknown or incomplete option, unreadable value.
    :raises ArgumentCountError: the arguments do not fit the command, or an option is behind them.
    """
    known = (*command.options, *opt.COMMON)
    by_name = {name: option for option in known for name in option.names}
    values = Values(output_format=None)
    for option in known:
        if option.default is not None or option.dest not in values.__dict__:
            values.__dict__[option.dest] = _fresh(option.default)
    arguments = list(argv)
    ended = any(argument.kind == "command" for argument in command.arguments)
    while arguments and arguments[0].startswith("-") and arguments[0] != "-":
        word = arguments.pop(0)
        if word == "--":
            ended = True
            break
        if word.startswith("--"):
            _read_long(word, arguments, by_name, values)
        else:
            _read_short(word, arguments, by_name, values)
    if not ended and any(word in opt.HELP.names for word in arguments):
        values.__dict__["help"] = True
    if not values.help:
        check_arguments(command, arguments)
        late = None if ended else _late_option(command, arguments)
        if late is not None:
            raise ArgumentCountError(_LATE.format(late))
    return values, arguments


def _fresh(default: Any) -> Any:
    """A default of its own for each run; lists and dictionaries are changed while parsing."""
    if isinstance(default, dict):
        return dict(default)
    return list(default) if isinstance(default, list) else default


def _read_long(word: str, rest: list[str], by_name: dict[str, Option], values: Values) -> None:
    name, equals, value = word.partition("=")
    option = by_name.get(name)
    if option is None:
        matching = sorted(known for known in by_name if known.startswith(name))
        targets = {id(by_name[known]) for known in matching}
        if len(targets) > 1:
            raise OptionSyntaxError(f"ambiguous option: {name} ({', '.join(matching)}?)")
        if not matching:
            raise OptionSyntaxError(f"no such option: {name}.{suggest(name, by_name)}".rstrip("."))
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


def _read_short(word: str, rest: list[str], by_name: dict[str, Option], values: Values) -> None:
    letters = word[1:]
    while letters:
        name, letters = f"-{letters[0]}", letters[1:]
        option = by_name.get(name)
        if option is None:
            raise OptionSyntaxError(f"no such option: {name}")
        if not option.takes_value:
            _apply(option, name, None, values)
            continue
        if not letters and not rest:
            raise OptionSyntaxError(f"option {name} needs a value")
        _apply(option, name, letters or rest.pop(0), values)
        return


def _apply(option: Option, name: str, text: str | None, values: Values) -> None:
    """Store one option as it was given."""
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
        # Given twice, parameters add up; the later one of the same name counts.
        target[option.dest] = {**(target[option.dest] or {}), **value}
    else:
        target[option.dest] = value


def check_arguments(command: Command, arguments: Sequence[str]) -> None:
    """Check the number of arguments.

    :raises ArgumentCountError: it does not fit.
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
    late = _late_option(command, arguments)
    hint = "" if late is None else f". {_LATE.format(late)}"
    raise ArgumentCountError(f"Command {command.name} expects {wanted}{hint}")


_LATE = "Options such as {} must come before the arguments"


def _late_option(command: Command, arguments: Sequence[str]) -> str | None:
    """An option among the arguments, which is the commonest reason of too many of them."""
    names = {name for option in (*command.options, *opt.COMMON) for name in option.names}
    return next((word for word in arguments if word.partition("=")[0] in names), None)


def command_usage(program: Program, command: Command) -> str:
    """The usage line of a command."""
    return f"{program.name} {command.name} {command.usage}".rstrip()


def command_help(program: Program, command: Command) -> str:
    """The help of a command."""
    columns = terminal.width(sys.stdout)
    lines = [
        "Usage",
        "=====",
        f"  {command_usage(program, command)}",
        "",
        command.summary,
        "",
        "Options",
        "=======",
    ]
    for option in (*command.options, *opt.COMMON):
        lines += _beside(f"  {option.usage()}", option.help, _HELP_COLUMN, columns)
    env = command.name in program.env_commands
    lines += (
        ["", f"See also {program.name}(8)."]
        if not env
        else [
            "",
            f"Default options may stand in the variable {program.env_variable(command.name)}.",
            f"See also {program.name}(8).",
        ]
    )
    return "\n".join(lines)


_HELP_COLUMN = 28
# A narrow terminal has the texts below the words, and not far to the right.
_NARROW, _NARROW_COLUMN = 60, 8
_WIDEST, _LEAST = 100, 24


def _beside(left: str, text: str, column: int, columns: int) -> list[str]:
    """Lines with a text beside a word (or below it, where there is no room) from a column on."""
    import textwrap  # only --help pays for it

    if columns < _NARROW:
        column = _NARROW_COLUMN
    body = textwrap.wrap(text, width=max(_LEAST, min(columns, _WIDEST) - column))
    if len(left) + 2 > column:
        return [left, *(" " * column + line for line in body)]
    first, *others = body
    return [left.ljust(column) + first, *(" " * column + line for line in others)]


def program_help(program: Program) -> str:
    """The list of commands."""
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
