"""The command ``gnt-cluster watcher``: the pause of the watcher."""

from __future__ import annotations

import time

from ganeti import errors
from ganeti.cli import failures, jobs, terminal, value_types
from ganeti.cli import options as opt
from ganeti.cli.command import Argument, Command, Values


def watcher(values: Values, arguments: list[str]) -> int:
    """Pause the watcher, end its pause, or show the end of the pause (``watcher``).

    :raises OpPrereqError: unknown argument, or wrong time span.
    """
    command = _one_of(arguments[0], ("continue", "info", "pause"))
    if (command == "pause") != (len(arguments) == 2):
        raise errors.OpPrereqError(
            "'watcher pause' needs a time span, such as 30m or 4h; 'watcher continue' and"
            " 'watcher info'"
            " take no time span",
            errors.ECODE_INVAL,
        )
    if command == "info":
        (until,) = jobs.connect().query_config_values(["watcher_pause"])
        # A pause that is over counts as none.
        until = until if until is not None and until > time.time() else None
        if values.output_format in opt.DATA_FORMATS:
            from ganeti.cli import output

            output.write_data({"paused_until": until}, values.output_format)
            return failures.EXIT_SUCCESS
        terminal.out(_watcher_text(until, "The watcher is not paused."))
        return failures.EXIT_SUCCESS
    until = None
    if command == "pause":
        try:
            until = time.time() + value_types.parse_time(arguments[1])
        except errors.ParameterError as err:
            raise errors.OpPrereqError(str(err), errors.ECODE_INVAL) from err
    until = jobs.connect().set_watcher_pause(until)
    terminal.out(_watcher_text(until, "The watcher is no longer paused."))
    return failures.EXIT_SUCCESS


def _watcher_text(until: float | None, otherwise: str) -> str:
    return otherwise if until is None else f"The watcher is paused until {time.ctime(until)}."


def _one_of(word: str, known: tuple[str, ...]) -> str:
    if word not in known:
        raise errors.OpPrereqError(
            f"unknown argument '{word}'. Known are: {', '.join(known)}.", errors.ECODE_INVAL
        )
    return word


WATCHER = Command(
    "watcher",
    watcher,
    [
        Argument("choice", 1, 1, ("continue", "info", "pause")),
        Argument("suggest", 0, 1, ("1h", "30m", "4h")),
    ],
    [opt.OUTPUT_FORMAT],
    "Pause the watcher for a time, end the pause, or show its end",
    usage="{pause <timespec>|continue|[<options>] info}",
)
