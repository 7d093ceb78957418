"""The command ``gnt-debug submit-job``: submit jobs which JSON files describe."""

from __future__ import annotations

import sys
import time

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import failures, jobs, terminal
from ganeti.cli import options as opt
from ganeti.cli.command import Argument, Command, Values

if TYPE_CHECKING:
    from typing import Any


def submit_job(values: Values, arguments: list[str]) -> int:
    """Submit a job for each file and wait for all of them (``submit-job``)."""
    from ganeti import opcodes

    started = time.monotonic()
    client = jobs.connect()
    job_set = jobs.JobSet(client, values, verbose=values.verbose)
    count = 0
    for name in arguments:
        operations = _read_opcodes(name)
        for number in range(values.rep_job):
            batch = [
                opcodes.from_dict(fields) for _ in range(values.rep_op) for fields in operations
            ]
            for operation in batch:
                for key, value in jobs.common_params(values).items():
                    setattr(operation, key, value)
            if values.each:
                for index, operation in enumerate(batch):
                    job_set.add(f"file {name}/{number}/{index}", operation)
            else:
                job_set.add(f"file {name}/{number}", *batch)
            count += len(batch)
    read = time.monotonic()
    job_set.submit()
    submitted = time.monotonic()
    outcomes = job_set.wait()
    if values.timing_stats:
        _show_timing(count, len(outcomes), started, read, submitted)
    return (
        failures.EXIT_SUCCESS
        if all(outcome.success for outcome in outcomes)
        else failures.EXIT_FAILURE
    )


def _read_opcodes(name: str) -> list[Any]:
    """Read the opcodes in a file, a JSON list; ``-`` means standard input.

    :raises OpPrereqError: the file cannot be read, or does not contain a list.
    """
    from ganeti.utils import fs
    from ganeti.wire import json

    try:
        operations = json.loads(sys.stdin.read() if name == "-" else fs.read_edited_file(name))
    except OSError as err:
        raise errors.OpPrereqError(
            f"cannot read '{name}': {err.strerror}", errors.ECODE_INVAL
        ) from err
    except errors.ParseError as err:
        raise errors.OpPrereqError(f"file '{name}': {err}", errors.ECODE_INVAL) from err
    if not isinstance(operations, list):
        raise errors.OpPrereqError(
            f"file '{name}' does not contain a list of opcodes", errors.ECODE_INVAL
        )
    return operations


def _show_timing(
    operations: int, job_count: int, started: float, read: float, submitted: float
) -> None:
    ended = time.monotonic()
    for label, number in (("C:op", operations), ("C:job", job_count)):
        terminal.out(f"{label:10}{number}")
    for label, seconds in (
        ("T:prepare", read - started),
        ("T:submit", submitted - read),
        ("T:exec", ended - submitted),
        ("T:total", ended - started),
    ):
        terminal.out(f"{label:10}{seconds:.3f}")


SUBMIT_JOB = Command(
    "submit-job",
    submit_job,
    [Argument("file", 1)],
    [
        opt.DRY_RUN,
        opt.PRIORITY,
        opt.VERBOSE,
        opt.flag("--each", help="submit one job for each opcode"),
        opt.number(
            "--job-repeat",
            dest="rep_job",
            default=1,
            metavar="N",
            help="submit each job N times; 1 by default",
        ),
        opt.number(
            "--op-repeat",
            dest="rep_op",
            default=1,
            metavar="N",
            help="put the opcodes into each job N times; 1 by default",
        ),
        opt.flag("--timing-stats", help="show how long preparation, submission and execution took"),
    ],
    "Submit a job for each JSON file of opcodes, and wait for all of them",
)
