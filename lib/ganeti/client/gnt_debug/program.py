"""``gnt-debug``: tools for developers and for bug reports."""

from __future__ import annotations

import sys
import time

from ganeti import errors
from ganeti.cli import failures, jobs, listing, main, terminal
from ganeti.cli import options as opt
from ganeti.cli.command import Argument, Command, Program, Values
from ganeti.cli.options import Option
from ganeti.client.gnt_debug import allocator, metad, queue

TYPE_CHECKING = False  # the name type checkers look for; importing typing costs milliseconds
if TYPE_CHECKING:
    from typing import Any

    from ganeti.luxi import client as luxi

LOCK_FIELDS = ("name", "mode", "owner", "pending")


def delay(values: Values, arguments: list[str]) -> int:
    """``delay``: a job that only takes time."""
    from ganeti.cli import values as value_types
    from ganeti.opcodes.test import OpTestDelay

    try:
        duration_s = value_types.parse_float(arguments[0])
    except errors.ParameterError as err:
        raise errors.OpPrereqError(f"duration: {err}", errors.ECODE_INVAL) from err
    jobs.run_opcode(
        OpTestDelay(
            duration=duration_s,
            on_master=values.on_master,
            on_nodes=values.on_nodes,
            repeat=values.repeat,
            interruptible=values.interruptible,
            no_locks=values.no_locks,
            **jobs.common_params(values),
        ),
        values,
    )
    return failures.EXIT_SUCCESS


def list_locks(values: Values, arguments: list[str]) -> int:
    """``locks``: who holds what and who waits; again and again until the user has seen enough."""
    if values.interval is not None and values.interval < 0:
        raise errors.OpPrereqError(
            f"interval must be 0 or more seconds, not {values.interval}", errors.ECODE_INVAL
        )
    client = jobs.connect()
    formatters: dict[str, listing.Formatter] = {
        "mode": _mode,
        "owner": _owners,
        "pending": _pending,
    }
    # Programs get the names of locks as they are published; a uuid tells people nothing.
    if values.separator is None and terminal.is_terminal(sys.stdout):
        formatters["name"] = _Names(client).label

    def show() -> int:
        # A name of a lock has a slash, which would make it look like an expression.
        names = None if values.force_filter else listing.simple_filter("name", arguments)
        return listing.run_list(
            "lock",
            LOCK_FIELDS,
            values,
            arguments if values.force_filter else [],
            formatters=formatters,
            extra_filter=names,
            client=client,
        )

    if not values.interval:
        return show()
    try:
        while not (code := show()):
            terminal.out("")
            time.sleep(values.interval)
    except KeyboardInterrupt:
        terminal.out("")
        return failures.EXIT_SUCCESS
    return code


class _Names:
    """Names of the things that locks are called after by uuid, asked for when first needed."""

    _KINDS = {
        "instance": "instance",
        "nodegroup": "group",
        "node": "node",
        "node-res": "node",
        "network": "network",
    }

    def __init__(self, client: luxi.Client) -> None:
        self._client = client
        self._tables: dict[str, dict[str, str]] = {}

    def label(self, lock: str) -> str:
        """``node/node1.example.com`` for ``node/<uuid>``."""
        level, _, key = lock.partition("/")
        kind = self._KINDS.get(level)
        if kind is None or key.startswith("["):
            return lock
        if key not in self._tables.get(kind, ()):
            # Also when the thing is younger than the last answer; gone ones keep their uuid.
            found = self._client.query(kind, ["uuid", "name"])["data"]
            self._tables[kind] = {key: key, **{row[0][1]: row[1][1] for row in found}}
        return f"{level}/{self._tables[kind][key]}"


def _mode(value: Any) -> str:
    return str(value) if value else "-"


def _owners(value: Any) -> str:
    return listing.join_list(value) if value else "-"


def _pending(value: Any) -> str:
    if not value:
        return "-"
    return " ".join(f"{mode}:{listing.join_list(owners)}" for mode, owners in value)


def submit_job(values: Values, arguments: list[str]) -> int:
    """``submit-job``: opcodes from files, each with one JSON list of opcodes."""
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
    """The opcodes in a file; ``-`` is standard input.

    :raises OpPrereqError: it cannot be read or is no list of opcodes.
    """
    from ganeti.utils import fs
    from ganeti.wire import json

    try:
        operations = json.loads(sys.stdin.read() if name == "-" else fs.read_file(name))
    except OSError as err:
        raise errors.OpPrereqError(
            f"cannot read '{name}': {err.strerror}", errors.ECODE_INVAL
        ) from err
    except errors.ParseError as err:
        raise errors.OpPrereqError(f"file '{name}': {err}", errors.ECODE_INVAL) from err
    if not isinstance(operations, list):
        raise errors.OpPrereqError(f"file '{name}' holds no list of opcodes", errors.ECODE_INVAL)
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


PROGRAM = Program(
    "gnt-debug",
    "Tools for developers and for bug reports.",
    [
        Command(
            "delay",
            delay,
            [Argument("unknown", 1, 1)],
            [
                opt.DRY_RUN,
                opt.flag("-i", "--interruptible", help="let the delay be ended early"),
                opt.flag("-l", "--no-locks", help="hold no node lock meanwhile"),
                opt.flag(
                    "--no-master",
                    dest="on_master",
                    default=True,
                    value=False,
                    help="do not wait on the master",
                ),
                Option(
                    "-n",
                    kind="string",
                    action="append",
                    dest="on_nodes",
                    metavar="NODE",
                    completion="node",
                    help="wait on this node; may be given several times",
                ),
                Option("-r", "--repeat", kind="int", default=0, help="wait so many times"),
                opt.PRIORITY,
                *opt.SUBMIT_OPTIONS,
            ],
            "Run a job that only takes time",
            usage="[<options>] <duration>",
        ),
        Command(
            "locks",
            list_locks,
            [Argument("unknown")],
            [
                *opt.LIST_OPTIONS,
                Option(
                    "--interval", kind="int", metavar="SECONDS", help="show again every SECONDS"
                ),
            ],
            "Show who holds which lock and who waits for it",
            usage="[<options>] [<lock>...|<filter>]",
        ),
        allocator.COMMAND,
        metad.COMMAND,
        *queue.COMMANDS,
        Command(
            "submit-job",
            submit_job,
            [Argument("file", 1)],
            [
                opt.DRY_RUN,
                opt.PRIORITY,
                opt.VERBOSE,
                opt.flag("--each", help="a job for each opcode"),
                Option(
                    "--job-repeat",
                    kind="int",
                    dest="rep_job",
                    default=1,
                    metavar="N",
                    help="submit each job N times",
                ),
                Option(
                    "--op-repeat",
                    kind="int",
                    dest="rep_op",
                    default=1,
                    metavar="N",
                    help="put the opcodes into each job N times",
                ),
                opt.flag("--timing-stats", help="show how long the steps took"),
            ],
            "Submit jobs written as JSON files",
        ),
    ],
    aliases={"allocator": "iallocator"},
)


def run() -> int:
    """Entry point of the script."""
    return main.run(PROGRAM)
