"""Runs a program: finds the command, reads its options, calls it, turns errors into exit codes.

This is the one place of the commands where every error is caught. An error that nobody declared is
shown in one line like all others; ``-d`` adds where it came from.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from ganeti.cli import failures, parser, terminal
from ganeti.cli.command import Command, Program, Values


def run(
    program: Program, argv: Sequence[str] | None = None, environ: Mapping[str, str] = os.environ
) -> int:
    """Run a program to its end.

    :param argv: command and options, without the program's name.
    :returns: the exit code.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            # Closed by whoever started us; what would go there is not wanted.
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  to the end
    try:
        return _run(program, sys.argv[1:] if argv is None else list(argv), environ)
    except BrokenPipeError:
        # The reader has seen enough (head, less). Nothing may be flushed into the pipe any more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return failures.EXIT_FAILURE


def _run(program: Program, argv: list[str], environ: Mapping[str, str]) -> int:
    words = list(argv)
    if words and words[0] in ("-h", "--help"):
        terminal.out(parser.program_help(program))
        return failures.EXIT_SUCCESS
    if words and words[0] == "--version":
        terminal.out(_version(program))
        return failures.EXIT_SUCCESS
    command = program.find(words[0]) if words else None
    if command is None and words and words[0] == "help":
        # Not published, but what people try first.
        command = program.find(words[1]) if words[1:] else None
        terminal.out(
            parser.program_help(program)
            if command is None
            else parser.command_help(program, command)
        )
        return failures.EXIT_SUCCESS
    if command is None:
        terminal.out(parser.program_help(program))
        if words:
            known = (*program.commands, *program.aliases)
            terminal.err(
                f"Error: unknown command '{words[0]}' of {program.name}."
                f"{parser.suggest(words[0], known)}"
            )
        return failures.EXIT_FAILURE
    return _run_command(program, command, words[1:], environ)


def _run_command(
    program: Program, command: Command, words: list[str], environ: Mapping[str, str]
) -> int:
    debug = any(word == "--debug" or word.startswith("-d") for word in words)
    try:
        values, arguments = parser.parse(command, [*_defaults(program, command, environ), *words])
        if values.help:
            terminal.out(parser.command_help(program, command))
            return failures.EXIT_SUCCESS
        values.program, values.command = program.name, command.name
        debug = values.debug > 0
        return command.run(values, arguments)
    except parser.OptionSyntaxError as err:
        terminal.err(
            f"Usage\n=====\n  {parser.command_usage(program, command)}\n\n"
            f"{program.name}: error: {err}"
        )
        return failures.EXIT_USAGE
    except parser.ArgumentCountError as err:
        terminal.err(f"Error: {err}.\nUsage: {parser.command_usage(program, command)}")
        return failures.EXIT_FAILURE
    except BrokenPipeError:
        raise
    except (KeyboardInterrupt, Exception) as err:  # noqa: BLE001  the door: nothing passes
        return _report(err, debug)


def _report(err: BaseException, debug: bool) -> int:
    """Tell the user; returns the exit code."""
    from ganeti import errors
    from ganeti.cli import jobs  # already loaded when a job could be meant

    if isinstance(err, errors.JobSubmittedException):
        terminal.err(f"JobID: {err.job_id}")
        return failures.EXIT_SUCCESS
    if isinstance(err, jobs.WaitInterrupted):
        terminal.err(interrupted_text(err.job_ids))
        return failures.EXIT_FAILURE
    if isinstance(err, KeyboardInterrupt):
        terminal.err("Interrupted; nothing was submitted by this command that has not been shown.")
        return failures.EXIT_FAILURE
    if isinstance(err, errors.NoMasterError):
        err = failures.explain_no_master(err)
    if debug:
        import traceback

        terminal.err("".join(traceback.format_exception(err)).rstrip())
    code, text = failures.describe(err)
    if text:
        terminal.err(text)
    return code


def interrupted_text(job_ids: Sequence[int]) -> str:
    """What to say to a user who stopped waiting for jobs."""
    if len(job_ids) == 1:
        job_id = job_ids[0]
        return (
            f"\nInterrupted; job {job_id} goes on. Watch it with 'gnt-job watch {job_id}', stop"
            f" it with 'gnt-job cancel {job_id}'."
        )
    listed = " ".join(str(job_id) for job_id in job_ids)
    return (
        f"\nInterrupted; jobs {listed} go on. See them with 'gnt-job list {listed}', watch one"
        f" with 'gnt-job watch', stop them with 'gnt-job cancel {listed}'."
    )


def _defaults(program: Program, command: Command, environ: Mapping[str, str]) -> list[str]:
    """Default arguments of a command, from the environment.

    :raises OptionSyntaxError: quotes that do not end.
    """
    if command.name not in program.env_commands:
        return []
    variable = program.env_variable(command.name)
    text = environ.get(variable, "")
    if not text:
        return []
    import shlex

    try:
        return shlex.split(text)
    except ValueError as err:
        raise parser.OptionSyntaxError(f"environment variable {variable}: {err}") from err


def _version(program: Program) -> str:
    from ganeti import __version__

    return f"{program.name} (ganeti {__version__}) {__version__}"


__all__ = ["Values", "interrupted_text", "run"]
