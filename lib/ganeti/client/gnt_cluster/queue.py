"""The command ``gnt-cluster queue``: the drain flag of the job queue."""

from __future__ import annotations

from ganeti import errors
from ganeti.cli import failures, jobs, terminal
from ganeti.cli import options as opt
from ganeti.cli.command import Argument, Command, Values


def queue(values: Values, arguments: list[str]) -> int:
    """Set, reset or show the drain flag of the job queue (``queue``).

    :raises OpPrereqError: unknown argument.
    """
    command = _one_of(arguments[0], ("drain", "undrain", "info"))
    client = jobs.connect()
    if command == "info":
        drained, pause = client.query_config_values(["drain_flag", "queue_pause"])
        if values.output_format in opt.DATA_FORMATS:
            from ganeti.cli import output

            output.write_data({"drained": bool(drained), "paused": pause}, values.output_format)
        else:
            terminal.out(f"The drain flag is {'set' if drained else 'unset'}")
            if pause:
                terminal.out(jobs.pause_text(pause))
    else:
        client.set_queue_drain_flag(command == "drain")
    return failures.EXIT_SUCCESS


def _one_of(word: str, known: tuple[str, ...]) -> str:
    if word not in known:
        raise errors.OpPrereqError(
            f"unknown argument '{word}'. Known are: {', '.join(known)}.", errors.ECODE_INVAL
        )
    return word


QUEUE = Command(
    "queue",
    queue,
    [Argument("choice", 1, 1, ("drain", "info", "undrain"))],
    [opt.OUTPUT_FORMAT],
    "Make the job queue refuse new jobs (drain) or accept them again (undrain), or show its state",
    usage="{drain|undrain|[<options>] info}",
)
