"""Making the moves of a solution with jobs, one set after the other."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from ganeti import errors
from ganeti.cli import jobs
from ganeti.client.htools import luxi
from ganeti.client.htools import program as prog
from ganeti.client.htools.options import Values
from ganeti.constants import job as job_c
from ganeti.htools.balance import Step
from ganeti.htools.cluster import Cluster
from ganeti.htools.moves import Kind
from ganeti.opcodes.base import OpCode
from ganeti.opcodes.instance import (
    OpInstanceFailover,
    OpInstanceMigrate,
    OpInstanceReplaceDisks,
)

_PRIORITIES = {
    "low": job_c.PRIO_LOW,
    "normal": job_c.PRIO_NORMAL,
    "high": job_c.PRIO_HIGH,
}


def opcodes_with(step: Step, cluster: Cluster, common: Mapping[str, Any]) -> list[OpCode]:
    """Return the opcodes of one move.

    :param common: parameters of all of them, such as ``reason``.
    """
    name = cluster.instances[step.instance].name
    running = cluster.instances[step.instance].running
    target = cluster.nodes[step.move.target].name if step.move.target >= 0 else None

    def over(node: str | None = None) -> OpCode:
        if not running:
            return OpInstanceFailover(instance_name=name, target_node=node, **common)
        return OpInstanceMigrate(
            instance_name=name, target_node=node, allow_failover=True, **common
        )

    def replace() -> OpCode:
        return OpInstanceReplaceDisks(
            instance_name=name, mode="replace_new_secondary", disks=[], remote_node=target,
            **common,
        )  # fmt: skip

    made: dict[Kind, Callable[[], list[OpCode]]] = {
        Kind.FAILOVER: lambda: [over()],
        Kind.FAILOVER_TO_ANY: lambda: [over(target)],
        Kind.REPLACE_SECONDARY: lambda: [replace()],
        Kind.REPLACE_AND_FAILOVER: lambda: [replace(), over()],
        Kind.REPLACE_PRIMARY: lambda: [over(), replace(), over()],
        Kind.FAILOVER_AND_REPLACE: lambda: [over(), replace()],
    }
    return made[step.move.kind]()


def common_parameters(values: Values, program: str) -> dict[str, Any]:
    """Return the parameters which all opcodes of a program share: the reason and the priority."""
    trail: list[list[Any]] = []
    if values.options.get("reason"):
        trail.append(["gnt:user", values.reason, time.time_ns()])
    trail.append([f"gnt:client:{program}", program, time.time_ns()])
    from ganeti.utils import author  # only for jobs

    trail += author.entry_for(author.of_process(), time.time_ns())
    common: dict[str, Any] = {"reason": trail}
    priority = _PRIORITIES.get(values.options.get("priority") or "")
    if priority is not None:
        common["priority"] = priority
    return common


class Runner:
    """Runs sets of jobs one after the other, until a job fails or the user interrupts.

    :ivar client: a client of the master daemon.
    """

    def __init__(self, client: Any, stop: threading.Event) -> None:
        self.client = client
        self._stop = stop

    def run_set(self, title: str, steps: Sequence[Sequence[OpCode]]) -> None:
        """Submit a job for each list of opcodes, all at once, and wait for all of them.

        :param title: what is printed before; empty for nothing.
        :raises Failure: a job failed, or the user had interrupted before.
        """
        self.require_going_on()
        if title:
            prog.out(title)
        with jobs.submission():
            rows = self.client.submit_many_jobs(steps)
        failed = [str(message) for success, message in rows if not success]
        ids = [int(number) for success, number in rows if success]
        prog.out(f"Got job IDs {','.join(str(number) for number in ids)}")
        for number in ids:
            try:
                jobs.wait_for_job(self.client, number, lambda _line: None)
            except errors.GenericError as err:
                failed.append(f"job {number}: {err}")
        if failed:
            raise prog.Failure(
                "not all jobs of this set succeeded, so no more are begun:\n  "
                + "\n  ".join(failed)
            )

    def require_going_on(self) -> None:
        """Check that the user has not interrupted.

        :raises Failure: the user has.
        """
        if self._stop.is_set():
            raise prog.Failure("interrupted; the remaining moves were not begun")

    def pause(self, seconds: float) -> None:
        """Wait, at most until the user interrupts."""
        self._stop.wait(seconds)


@contextmanager
def interruptible() -> Iterator[None]:
    """Turn an interrupt by the user into an error which says what became of jobs.

    :raises Failure: the user interrupted.
    """
    try:
        yield
    except jobs.SubmissionInterrupted as interrupt:
        raise prog.Failure(str(interrupt)) from None
    except KeyboardInterrupt:
        raise prog.Failure(
            "interrupted; jobs that were submitted go on, see 'gnt-job list'"
        ) from None


@contextmanager
def runner(socket: str) -> Iterator[Runner]:
    """Connect to the master daemon and note interrupts.

    The first interrupt lets the present set of jobs end; a second one stops waiting for it.

    :param socket: path of the master daemon's socket; empty for that of this machine.
    :raises Failure: the user interrupted twice.
    """
    with interruptible(), luxi.connect(socket) as client, _until_interrupted() as stop:
        yield Runner(client, stop)


@contextmanager
def _until_interrupted() -> Iterator[threading.Event]:
    """Note the first interrupt instead of stopping; a second one stops at once."""
    wanted = threading.Event()

    def note(_number: int, _frame: FrameType | None) -> None:
        if wanted.is_set():
            raise KeyboardInterrupt
        wanted.set()
        prog.err(
            "Interrupted: the running set of jobs goes on to its end, then no more are begun."
            " Another interrupt stops waiting for them."
        )

    before = signal.signal(signal.SIGINT, note)
    try:
        yield wanted
    finally:
        signal.signal(signal.SIGINT, before)


def run_sets(values: Values, sets: Sequence[Sequence[Step]], cluster: Cluster) -> None:
    """Make the moves; a set begins when all jobs of the one before have succeeded.

    :raises Failure: a job failed, or waiting was interrupted; the rest was not begun.
    """
    if values.first_job_group:
        sets = sets[:1]
    with runner(values.luxi) as running:
        make_moves(running, sets, cluster, common_parameters(values, "hbal"))


def make_moves(
    running: Runner, sets: Sequence[Sequence[Step]], cluster: Cluster, common: Mapping[str, Any]
) -> None:
    """Make moves, one set after the other.

    :param common: parameters of all opcodes.
    :raises Failure: a job failed, or the user interrupted.
    """
    for steps in sets:
        names = ",".join(cluster.instances[step.instance].alias for step in steps)
        running.run_set(
            f"Executing jobset for instances {names}",
            [opcodes_with(step, cluster, common) for step in steps],
        )
