"""Run a program: find the command, read its options, call it, turn errors into exit codes.

This module catches every error of the commands. An unexpected error is shown in one line like all
others; ``-d`` adds its traceback.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from ganeti.cli import command_log, failures, parser, terminal
from ganeti.cli.command import Command, Program, Values
from ganeti.cli.over_rest import address
from ganeti.utils import tracing

#: What users of other programs type -> the commands which do that here, the first that exists.
_HABITS: dict[str, tuple[str, ...]] = {
    "create": ("add", "init"),
    "new": ("add", "init"),
    "delete": ("remove", "destroy"),
    "del": ("remove", "delete"),
    "rm": ("remove", "delete"),
    "ls": ("list", "info"),
    "ps": ("list",),
    "status": ("list", "info"),
    "state": ("list", "info"),
    "describe": ("info",),
    "edit": ("modify",),
    "set": ("modify",),
    "update": ("modify",),
    "config": ("modify",),
    "restart": ("reboot",),
    "reset": ("reboot", "powercycle"),
    "kill": ("shutdown", "cancel"),
    "halt": ("shutdown",),
    "poweroff": ("shutdown", "power"),
    "resize": ("grow-disk",),
    "ssh": ("console", "command"),
    "check": ("verify",),
    "log": ("info",),
}


def run(
    program: Program, argv: Sequence[str] | None = None, environ: Mapping[str, str] = os.environ
) -> int:
    """Run a program to its end.

    :param argv: command, options and arguments, without the name of the program; by default those
        of this process.
    :param environ: environment variables, for default options.
    :returns: the exit code.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            # The parent process has closed the stream, so its output is not wanted.
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  to the end
    try:
        return _run(program, sys.argv[1:] if argv is None else list(argv), environ)
    except BrokenPipeError:
        # The reader has closed the pipe (head, less). Nothing may be flushed into it any more.
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
        # This form is not published, but users often try it.
        if not words[1:]:
            terminal.out(parser.program_help(program))
            return failures.EXIT_SUCCESS
        command = program.find(words[1])
        if command is not None:
            terminal.out(parser.command_help(program, command))
            return failures.EXIT_SUCCESS
        words = words[1:]
    if command is None:
        if not words:
            terminal.out(parser.program_help(program))
        else:
            terminal.err(
                f"Error: unknown command '{words[0]}' of {program.name}."
                f"{_suggest_command(program, words[0])} '{program.name} --help' lists the commands."
            )
        return failures.EXIT_FAILURE
    return _run_command(program, command, words[1:], environ)


def _suggest_command(program: Program, word: str) -> str:
    for name in _HABITS.get(word, ()):
        if name in program.commands:
            return f" Did you mean '{name}'?"
    return parser.suggest(word, (*program.commands, *program.aliases))


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
        if address.is_given(environ):
            from ganeti.cli.over_rest import refusal

            refusal.check(program.name, command.name)
        else:
            command_log.record(program.name, command, words, values, environ)
        if tracing.wanted(environ):
            return _run_traced(program, command, values, arguments)
        return command.run(values, arguments)
    except parser.OptionSyntaxError as err:
        usage = parser.command_usage(program, command)
        terminal.err(
            f"Error: {err}\nUsage: {usage}\n"
            f"'{program.name} {command.name} --help' shows the options."
            if terminal.is_terminal(sys.stderr)
            else f"Usage\n=====\n  {usage}\n\n{program.name}: error: {err}"
        )
        return failures.EXIT_USAGE
    except parser.ArgumentCountError as err:
        terminal.err(f"Error: {err}.\nUsage: {parser.command_usage(program, command)}")
        return failures.EXIT_FAILURE
    except BrokenPipeError:
        raise
    except (KeyboardInterrupt, Exception) as err:  # noqa: BLE001  every error becomes an exit code
        return _report(err, debug)


def _run_traced(program: Program, command: Command, values: Values, arguments: list[str]) -> int:
    """Run a command, and send its span; a receiver that does not answer costs seconds."""
    problem = tracing.set_up(program.name)
    try:
        with tracing.span(f"{program.name} {command.name}") as span:
            code = command.run(values, arguments)
            span.set(process_exit_code=code)
            if code != failures.EXIT_SUCCESS:
                span.end(f"exit code {code}")
            return code
    finally:
        problem = problem or tracing.flush()
        if problem:
            terminal.err(f"Warning: {problem}")


def _report(err: BaseException, debug: bool) -> int:
    """Print an error; return the exit code."""
    from ganeti import errors
    from ganeti.cli import jobs  # already loaded when the error is about a job

    if isinstance(err, errors.JobSubmittedException):
        terminal.err(f"JobID: {err.job_id}")
        return failures.EXIT_SUCCESS
    if isinstance(err, jobs.WaitInterrupted):
        terminal.err(interrupted_text(err.job_ids))
        return failures.EXIT_FAILURE
    if isinstance(err, jobs.SubmissionInterrupted):
        terminal.err(str(err))
        return failures.EXIT_FAILURE
    if isinstance(err, KeyboardInterrupt):
        terminal.err("Interrupted; the command has not submitted any job that it has not shown.")
        return failures.EXIT_FAILURE
    if isinstance(err, errors.NoMasterError):
        err = failures.explain_no_master(err)
    if debug:
        import traceback

        terminal.err("".join(traceback.format_exception(err)).rstrip())
    code, text = failures.describe(err)
    terminal.err(failures.for_people(err) if terminal.is_terminal(sys.stderr) else text)
    return code


def interrupted_text(job_ids: Sequence[int]) -> str:
    """Return the message for a user who interrupted the waiting for jobs."""
    if len(job_ids) == 1:
        job_id = job_ids[0]
        return (
            f"\nInterrupted; job {job_id} continues. Watch it with 'gnt-job watch {job_id}', cancel"
            f" it with 'gnt-job cancel {job_id}'."
        )
    listed = " ".join(str(job_id) for job_id in job_ids)
    return (
        f"\nInterrupted; jobs {listed} continue. List them with 'gnt-job list {listed}', watch one"
        f" with 'gnt-job watch', cancel them with 'gnt-job cancel {listed}'."
    )


def _defaults(program: Program, command: Command, environ: Mapping[str, str]) -> list[str]:
    """Return the default options of a command from the environment.

    :raises OptionSyntaxError: a quotation mark is missing.
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
    from ganeti import FULL_VERSION, __version__

    # Programs read the last word, the version of Ganeti with which this project is compatible.
    return f"{program.name} (ganeti {FULL_VERSION}) {__version__}"


__all__ = ["Values", "interrupted_text", "run"]
