"""Making the moves of a solution with jobs, one set after the other."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
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


def opcodes(step: Step, cluster: Cluster, values: Values) -> list[OpCode]:
    """The opcodes of one move."""
    name = cluster.instances[step.instance].name
    running = cluster.instances[step.instance].running
    target = cluster.nodes[step.move.target].name if step.move.target >= 0 else None
    common: dict[str, Any] = {"reason": _reason(values)}
    priority = _PRIORITIES.get(values.options.get("priority") or "")
    if priority is not None:
        common["priority"] = priority

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


def _reason(values: Values) -> list[list[Any]]:
    trail: list[list[Any]] = []
    if values.options.get("reason"):
        trail.append(["gnt:user", values.reason, time.time_ns()])
    trail.append(["gnt:client:hbal", "hbal", time.time_ns()])
    return trail


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
    try:
        with luxi.connect(values.luxi) as client, _until_interrupted() as stop:
            for steps in sets:
                if stop.is_set():
                    raise prog.Failure("interrupted; the remaining moves were not begun")
                _run_set(client, values, steps, cluster)
    except KeyboardInterrupt:
        raise prog.Failure(
            "interrupted; jobs that were submitted go on, see 'gnt-job list'"
        ) from None


def _run_set(client: Any, values: Values, steps: Sequence[Step], cluster: Cluster) -> None:
    names = ",".join(cluster.instances[step.instance].alias for step in steps)
    prog.out(f"Executing jobset for instances {names}")
    rows = client.submit_many_jobs([opcodes(step, cluster, values) for step in steps])
    refused = [str(message) for success, message in rows if not success]
    ids = [int(number) for success, number in rows if success]
    prog.out(f"Got job IDs {','.join(str(number) for number in ids)}")
    failed = list(refused)
    for number in ids:
        try:
            jobs.wait_for_job(client, number, lambda _line: None)
        except errors.GenericError as err:
            failed.append(f"job {number}: {err}")
    if failed:
        raise prog.Failure(
            "not all jobs of this set succeeded, so no more are begun:\n  " + "\n  ".join(failed)
        )
