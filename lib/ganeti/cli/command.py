"""What a program is: a table of commands, each with its arguments and options.

The tables in :mod:`ganeti.client` are values of these classes and nothing else. They are read by
the parser, by the help, by the shell completion and by the tests that compare them with the manual
pages, so a thing is said once. Plain classes with slots, because a table is built at every start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

TYPE_CHECKING = False  # the name type checkers look for; importing typing costs milliseconds
if TYPE_CHECKING:
    from typing import Any

    from ganeti.cli.options import Option


class Values:
    """The values of a command's options: an attribute per ``dest``, and what was asked for."""

    #: Program and command as the user knows them, for the reason trail and for messages.
    program: str
    command: str

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def __repr__(self) -> str:
        return f"Values({self.__dict__!r})"

    def get(self, name: str, default: Any = None) -> Any:
        """The value of an option this command may not have."""
        return self.__dict__.get(name, default)

    def set(self, name: str, value: Any) -> None:
        """Let an option have another value, for one that says it in another spelling."""
        self.__dict__[name] = value


_KIND_WORDS = {"jobid": "job-id", "unknown": "argument", "suggest": "argument"}


class Argument:
    """Positional arguments of one kind.

    :param kind: what they name: instance, node, host, jobid, os, file, suggest, unknown.
    :param maximum: None for any number.
    :param choices: what completion may offer.
    """

    __slots__ = ("choices", "kind", "maximum", "minimum")

    def __init__(
        self, kind: str, minimum: int = 0, maximum: int | None = None, choices: Sequence[str] = ()
    ) -> None:
        self.kind = kind
        self.minimum = minimum
        self.maximum = maximum
        self.choices = tuple(choices)

    def usage(self) -> str:
        """How the usage line shows them: ``<node>``, ``[<node>...]``."""
        word = f"<{_KIND_WORDS.get(self.kind, self.kind)}>"
        if self.maximum is None:
            return f"{word}..." if self.minimum else f"[{word}...]"
        return " ".join([word] * self.minimum)


class Command:
    """One command of a program.

    :param run: called with the option values and the arguments; returns the exit code.
    :param usage: what follows the command's name in the usage line; made from the arguments when
        empty.
    :param summary: one line for the list of commands.
    """

    __slots__ = ("arguments", "name", "options", "run", "summary", "usage")

    def __init__(
        self,
        name: str,
        run: Callable[[Values, list[str]], int],
        arguments: Sequence[Argument],
        options: Sequence[Option],
        summary: str,
        usage: str = "",
    ) -> None:
        self.name = name
        self.run = run
        self.arguments = tuple(arguments)
        self.options = tuple(options)
        self.summary = summary
        self.usage = usage or " ".join(
            [*(["[<options>]"] if options else []), *(arg.usage() for arg in arguments)]
        )


class Program:
    """One ``gnt-*`` program.

    :param aliases: other names of commands.
    :param env_commands: commands whose default arguments may stand in the environment
        (``GNT_INSTANCE_LIST`` for ``gnt-instance list``).
    """

    __slots__ = ("aliases", "commands", "env_commands", "name", "summary")

    def __init__(
        self,
        name: str,
        summary: str,
        commands: Sequence[Command],
        aliases: Mapping[str, str] | None = None,
        env_commands: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.summary = summary
        self.commands = {command.name: command for command in commands}
        self.aliases = dict(aliases or {})
        self.env_commands = frozenset(env_commands)

    def find(self, word: str) -> Command | None:
        """The command of this name or alias."""
        return self.commands.get(self.aliases.get(word, word))

    def env_variable(self, command: str) -> str:
        """Name of the variable with default arguments of a command."""
        return f"{self.name}_{command}".upper().replace("-", "_")
