"""What the placement programs share: reading options, loading the cluster, and printing."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Sequence

from ganeti import errors
from ganeti.client.htools import options as opt
from ganeti.client.htools.options import Values
from ganeti.constants.cli import EXIT_FAILURE as EXIT_FAILURE
from ganeti.constants.cli import EXIT_USAGE as EXIT_USAGE
from ganeti.htools.cluster import Cluster, common_suffix
from ganeti.utils.records import record


class Failure(errors.GenericError):
    """A program cannot go on; it prints the message and exits with 1."""


@record(frozen=True, slots=True)
class Program:
    """A program.

    :ivar options: long names of its options.
    :ivar run: does the work; returns the exit code.
    :ivar arguments: what follows the options, for the help text; empty for no arguments.
    :ivar completion: the kind of its arguments, for shell completion.
    """

    name: str
    options: Sequence[str]
    run: Callable[[Values], int]
    arguments: str = ""
    completion: str = "none"


def out(text: str = "") -> None:
    """Print a line."""
    sys.stdout.write(f"{text}\n")


def err(text: str = "") -> None:
    """Print a line to standard error; what was printed before appears before it."""
    sys.stdout.flush()
    if sys.stderr.isatty():
        from ganeti.cli import terminal  # people have the time to load it

        terminal.err(text)
    else:
        sys.stderr.write(f"{text}\n")


def read_file(name: str) -> str:
    """Read a file, or standard input for ``-``.

    :raises ParseError: it cannot be read.
    """
    try:
        if name == "-":
            return sys.stdin.read()
        with open(name, encoding="utf-8-sig") as stream:
            return stream.read()
    except OSError as failure:
        raise errors.ParseError(f"cannot read {name}: {failure.strerror}") from failure
    except UnicodeDecodeError as failure:
        raise errors.ParseError(f"{name} is not a text file in UTF-8: {failure}") from failure


def main(program: Program, argv: Sequence[str] | None = None) -> int:
    """Run a program to its end.

    :returns: the exit code.
    """
    try:
        return _run(program, list(sys.argv[1:] if argv is None else argv))
    except BrokenPipeError:
        # The reader has closed the pipe (head, less). Nothing may be flushed into it any more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILURE


def run_and_end(program: Program) -> int:
    """Run a program which answers once, and end the process unless its output cannot be written.

    The search for reference cycles, and taking down every object at the end, take a fifth of the
    processor time of such a program and change nothing.
    """
    gc.disable()
    code = main(program)
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        return code  # the interpreter tries again, and reports it
    os._exit(code)


def _run(program: Program, words: list[str]) -> int:
    try:
        values = opt.parse(program.options, words)
    except opt.WrongValueError as failure:
        err(f"Error while parsing command line arguments:\n{failure}\n")
        return EXIT_FAILURE
    except opt.OptionError as failure:
        # Without the list of all options, above which the error would not be seen.
        err(
            f"{'Error' if sys.stderr.isatty() else 'Command line error'}: {failure}\n"
            f"Usage: {program.name} [OPTION...]{program.arguments}\n"
            f"Run '{program.name} --help' to see all options."
        )
        return EXIT_USAGE
    if values.help:
        sys.stdout.write(opt.usage(program.name, program.options, program.arguments))
        return 0
    if values.version:
        from ganeti import __version__

        out(f"{program.name} (ganeti-htools) version {__version__}")
        return 0
    if values.help_completion:
        sys.stdout.write(opt.completions(program.options, program.completion))
        return 0
    try:
        if values.arguments and not program.arguments:
            raise Failure(f"This program doesn't take any arguments.{_hint(values)}")
        return program.run(values)
    except errors.GenericError as failure:
        if str(failure):
            err(f"Error: {failure}")
        return EXIT_FAILURE


def _hint(values: Values) -> str:
    """Explain an argument which was meant as the value of the option before it."""
    if not values.detached:
        return ""
    return (
        f"\nThe value of --{values.detached} follows an equals sign:"
        f" --{values.detached}={values.arguments[0]}"
    )


def plural(count: int, one: str, many: str) -> str:
    """Return a number with its noun."""
    return f"{count} {one if count == 1 else many}"


def print_cluster_facts(values: Values, cluster: Cluster, *, always_tags: bool = False) -> None:
    """Print the tags and the policy of the cluster, as far as the user wants to know."""
    if always_tags or values.verbose > 1:
        out(f"Loaded cluster tags: {','.join(cluster.tags)}")


def print_policy(values: Values, cluster: Cluster, level: int = 1) -> None:
    """Print the policy of the cluster when the user asked for more."""
    if values.verbose > level:
        from ganeti.htools.formats import policy as show_policy

        out(f"Loaded cluster ipolicy: {show_policy(cluster.policy)}")


def print_suffix(values: Values, cluster: Cluster, level: int = 1) -> None:
    """Say which common suffix the names are printed without, when the user asked for more."""
    suffix = common_suffix(cluster.names())
    if suffix and values.verbose > level:
        out(f"Note: Stripping common suffix of '{suffix}' from names")


def print_nodes(values: Values, cluster: Cluster, title: str) -> None:
    """Print the nodes on standard error, when the user wants to see them."""
    if values.print_nodes is not None:
        # Allocators start often, and seldom print tables.
        from ganeti.htools import tables

        wanted = tables.wanted_fields(values.print_nodes)
        err(f"\n{title} status:\n{tables.nodes(cluster.nodes, wanted)}\n")


def print_instances(values: Values, cluster: Cluster, title: str) -> None:
    """Print the instances on standard error, when the user wants to see them."""
    if values.print_instances:
        from ganeti.htools import tables

        err(f"\n{title} instance map:\n{tables.instances(cluster.instances, cluster.nodes)}")


def save(name: str, cluster: Cluster, when: str) -> None:
    """Write a cluster to a file in the text format.

    :raises Failure: the file cannot be written.
    """
    from ganeti.htools.loading import text

    try:
        with open(name, "w", encoding="utf-8") as stream:
            stream.write(text.serialize(cluster))
    except OSError as failure:
        raise Failure(f"cannot write {name}: {failure.strerror}") from failure
    err(f"The cluster state {when} has been written to file '{name}'")
