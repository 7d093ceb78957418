"""The program ``gnt-debug``: tools for developers and for bug reports."""

from __future__ import annotations

from ganeti import errors
from ganeti.cli import failures, jobs, main
from ganeti.cli import options as opt
from ganeti.cli.command import Argument, Command, Option, Program, Values
from ganeti.client.gnt_debug import iallocator, jobqueue_test, locks, metad, submit_job, wconfd


def delay(values: Values, arguments: list[str]) -> int:
    """Run a job that only waits (``delay``)."""
    from ganeti.cli import value_types
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
                opt.flag(
                    "-i",
                    "--interruptible",
                    help="make it possible to end the delay early through a socket",
                ),
                opt.flag("-l", "--no-locks", help="hold no node lock during the delay"),
                opt.negative("--no-master", dest="on_master", help="do not wait on the master"),
                opt.node(
                    "-n",
                    action="append",
                    dest="on_nodes",
                    help="wait on this node; may be given several times",
                ),
                Option("-r", "--repeat", kind="int", default=0, help="wait this number of times"),
                opt.PRIORITY,
                *opt.SUBMIT_OPTIONS,
            ],
            "Run a job that only waits for some seconds",
            usage="[<options>] <duration>",
        ),
        locks.LOCKS,
        iallocator.COMMAND,
        metad.COMMAND,
        *jobqueue_test.COMMANDS,
        wconfd.WCONFD,
        submit_job.SUBMIT_JOB,
    ],
    aliases={"allocator": "iallocator"},
    examples={
        "delay": "-n node2 --no-master 10",
        "locks": "-o name,mode,owner,pending --watch",
        "iallocator": "--dir=out -m allocate -t diskless --memory=1g -o noop new.example.com",
        "metad": "report web1",
        "test-jobqueue": "",
        "test-osparams": "--os-parameters-secret=password=secret",
        "wconfd": "listalllocks",
        "submit-job": "--each job1.json job2.json",
    },
)


def run() -> int:
    """Run the program; return the exit code."""
    return main.run(PROGRAM)
