"""The classes of which a program is made: a table of commands with their arguments and options.

The tables in :mod:`ganeti.client` are values of these classes. The parser, the help texts, the
shell completion, and the tests which compare the programs with the manual pages read them. The
classes are plain ones with slots, because a table is built at every start of a program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ganeti import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any


class Values:
    """The values of a command's options: an attribute for each ``dest``."""

    #: Names of the program and of the command, for the reason trail and for messages.
    program: str
    command: str

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def __repr__(self) -> str:
        return f"Values({self.__dict__!r})"

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of an option, or the default when the command does not have it."""
        return self.__dict__.get(name, default)

    def set(self, name: str, value: Any) -> None:
        """Replace the value of an option, for an older option with the same meaning."""
        self.__dict__[name] = value


Callback = Callable[[Values, str], None]
#: Permitted values, or a function which finds them when they are needed.
Choices = Sequence[str] | Callable[[], Sequence[str]]


class Option:
    """One option of a command.

    The ``action`` of an option is one of

    =============== ============================================================================
    ``store``       store the value, read as ``kind``
    ``append``      append the value to a list
    ``store_true``  store True
    ``store_false`` store False
    ``store_const`` store ``const``
    ``count``       count how often the option is given
    ``call``        call ``callback(values, text)``, which stores the value
    =============== ============================================================================

    :param names: the spellings, short before long; further ones are other spellings.
    :param help: the help text: one sentence without a full stop.
    :param kind: the name of the type in :data:`ganeti.cli.value_types.PARSERS`; None for an option
        without a value.
    :param completion: kind of values which the completion offers: ``node``, ``nodegroup``, ``os``,
        ``image``, ``iallocator``, ``pnode:snode``.
    """

    __slots__ = (
        "action",
        "callback",
        "_choices",
        "completion",
        "const",
        "default",
        "dest",
        "help",
        "kind",
        "metavar",
        "names",
    )

    def __init__(
        self,
        *names: str,
        help: str,
        dest: str | None = None,
        kind: str | None = None,
        action: str | None = None,
        default: Any = None,
        choices: Choices = (),
        const: Any = None,
        metavar: str | None = None,
        completion: str | None = None,
        callback: Callback | None = None,
    ) -> None:
        self.names = names
        self.help = help
        self.kind = "choice" if choices and kind is None else kind
        self.action = action or ("store" if self.kind else "store_true")
        self.dest = dest or names[-1].lstrip("-").replace("-", "_")
        if default is None and action == "append":
            default = []
        self.default = default
        self._choices = choices
        self.const = const
        self.metavar = metavar
        self.completion = completion
        self.callback = callback

    @property
    def choices(self) -> Sequence[str]:
        """The permitted values; empty when all values are."""
        return self._choices() if callable(self._choices) else self._choices

    @property
    def takes_value(self) -> bool:
        """True if the option has a value."""
        return self.kind is not None

    @property
    def long(self) -> str | None:
        """The long spelling; None when there is none."""
        return next((name for name in self.names if name.startswith("--")), None)

    @property
    def short(self) -> str | None:
        """The short spelling; None when there is none."""
        return next((name for name in self.names if not name.startswith("--")), None)

    def usage(self) -> str:
        """Return the option as the help shows it: ``-o FIELDS, --output=FIELDS``."""
        if not self.takes_value:
            return ", ".join(self.names)
        word = self.metavar or (
            "|".join(self.choices) if self.choices and len(self.choices) < 5 else self.dest.upper()
        )
        return ", ".join(
            f"{name}={word}" if name.startswith("--") else f"{name} {word}" for name in self.names
        )


_KIND_NAMES = {"jobid": "job-id", "unknown": "argument", "suggest": "argument"}


class Argument:
    """Positional arguments of one kind.

    :param kind: kind of object which they name: instance, node, group, network, host, jobid, os,
        image, filter; or file, command, choice, suggest, unknown.
    :param minimum: least number of these arguments.
    :param maximum: greatest number of these arguments; None means any number.
    :param choices: words which the shell completion offers.
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
        """Return the arguments as the usage line shows them: ``<node>``, ``[<node>...]``."""
        word = f"<{_KIND_NAMES.get(self.kind, self.kind)}>"
        if self.maximum is None:
            return f"{word}..." if self.minimum else f"[{word}...]"
        return " ".join([word] * self.minimum)


class Command:
    """One command of a program.

    :param run: function which executes the command; it gets the option values and the arguments and
        returns the exit code.
    :param summary: one line for the list of commands.
    :param usage: the text after the name of the command in the usage line; by default it is made
        from the arguments.
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

    :param aliases: other name of a command -> its name.
    :param env_commands: commands which take default options from an environment variable
        (``GNT_INSTANCE_LIST`` for ``gnt-instance list``).
    :param examples: name of a command -> options and arguments of an example of its use, quoted as
        for a shell.
    """

    __slots__ = ("aliases", "commands", "env_commands", "examples", "name", "summary")

    def __init__(
        self,
        name: str,
        summary: str,
        commands: Sequence[Command],
        aliases: Mapping[str, str] | None = None,
        env_commands: Sequence[str] = (),
        examples: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.summary = summary
        self.commands = {command.name: command for command in commands}
        self.aliases = dict(aliases or {})
        self.env_commands = frozenset(env_commands)
        self.examples = dict(examples or {})

    def find(self, word: str) -> Command | None:
        """Return the command with this name or alias; None when there is none."""
        return self.commands.get(self.aliases.get(word, word))

    def env_variable(self, command: str) -> str:
        """Return the name of the environment variable with default options of a command."""
        return f"{self.name}_{command}".upper().replace("-", "_")
