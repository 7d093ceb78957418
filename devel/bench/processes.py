"""Compares jobs in threads of the master daemon with jobs in processes of their own.

Part of ``make bench`` (:mod:`devel.bench`). Both ways are measured in turn, so that other work on
the machine disturbs both alike. The comparison of jobs which only compute in Python needs two
processors. They run beside each other: verifications of a configuration with 10,000 instances,
whose opcodes take a sixth of a second, and searches of its tags, whose opcodes take 5 ms, so that
their way through the job queue counts as much.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from devel.bench import instances, queue
from ganeti import errors, vcluster
from ganeti.constants import job as job_const
from ganeti.luxi import client as luxi
from ganeti.opcodes.base import OpCode
from ganeti.opcodes.cluster import OpClusterSetParams, OpClusterVerifyConfig
from ganeti.opcodes.instance import OpInstanceRemove
from ganeti.opcodes.tags import OpTagsSearch
from ganeti.opcodes.test import OpTestDelay

# Jobs running at the same time.
_JOBS = 4
#: The opcodes of a job which verifies the configuration, and of one which searches.
VERIFICATIONS: Final[Sequence[OpCode]] = [OpClusterVerifyConfig() for _ in range(2)]
SEARCHES: Final[Sequence[OpCode]] = [OpTagsSearch(pattern="^nothing-has-it$") for _ in range(5)]


class Compared(NamedTuple):
    """Samples of one quantity in threads and in processes, in pairs."""

    threads: list[float]
    processes: list[float]

    @property
    def ratios(self) -> list[float]:
        """How much more it is in processes, for each pair."""
        return [many / one for one, many in zip(self.threads, self.processes, strict=True)]


def execute_in(client: luxi.Client, execution: str) -> None:
    """Let jobs which start from now on be executed in threads or in processes."""
    queue.wait(client, client.submit_job([OpClusterSetParams(job_execution=execution)]))


def creations_ms(cluster: vcluster.VirtualCluster, rounds: int) -> Compared:
    """Measure creations of an instance, each from the submission until the end is known."""
    found = Compared([], [])
    first = cluster.nodes[0].name
    with luxi.Client(cluster.paths(cluster.nodes[0]).master_socket) as client:
        # The first round includes what is made once, and is not counted.
        for number in range(rounds + 1):
            for execution, samples in zip(job_const.EXECUTIONS, found, strict=True):
                execute_in(client, execution)
                # A process begins with what the configuration was changed to.
                queue.wait(client, client.submit_job([queue.small_job()]))
                name = f"{execution}{number}.example.com"
                begun = time.perf_counter()
                queue.wait(client, client.submit_job([instances.creation(name, first)]))
                samples.append((time.perf_counter() - begun) * 1000)
                queue.wait(client, client.submit_job([OpInstanceRemove(instance_name=name)]))
        execute_in(client, job_const.EXECUTION_THREADS)
    return Compared(found.threads[1:], found.processes[1:])


def kills_ms(cluster: vcluster.VirtualCluster, rounds: int) -> list[float]:
    """Measure the end of a running job with ``gnt-job cancel --kill``.

    Each from the request until another job has had the lock of the killed one.
    """
    found = []
    second = cluster.nodes[1].name
    with luxi.Client(cluster.paths(cluster.nodes[0]).master_socket) as client:
        execute_in(client, job_const.EXECUTION_PROCESSES)
        for _ in range(rounds):
            job = client.submit_job([OpTestDelay(duration=600, on_nodes=[second], on_master=True)])
            previous: list[Any] | None = None
            while previous != ["running"]:
                change = client.wait_for_job_change(job, ["status"], previous, None)
                previous = previous if change is None else change[0]
            begun = time.perf_counter()
            done, message = client.cancel_job(job, kill=True)
            queue.wait(client, client.submit_job([OpTestDelay(duration=0, on_nodes=[second])]))
            found.append((time.perf_counter() - begun) * 1000)
            if not done:
                raise errors.OpExecError(f"job {job} was not killed: {message}")
        execute_in(client, job_const.EXECUTION_THREADS)
    return found


def computing_per_s(
    cluster: vcluster.VirtualCluster, job: Sequence[OpCode], rounds: int
) -> Compared:
    """Measure jobs which only compute, several at a time: opcodes per second.

    :param job: the opcodes of each job.
    """
    found = Compared([], [])
    with luxi.Client(cluster.paths(cluster.nodes[0]).master_socket) as client:
        for number in range(rounds + 1):
            for execution, samples in zip(job_const.EXECUTIONS, found, strict=True):
                execute_in(client, execution)
                # The processes exist when the time begins.
                queue.wait_for_all(client, [client.submit_job(job[:1]) for _ in range(_JOBS)])
                begun = time.perf_counter()
                queue.wait_for_all(client, [client.submit_job(job) for _ in range(_JOBS)])
                if number:
                    samples.append(_JOBS * len(job) / (time.perf_counter() - begun))
        execute_in(client, job_const.EXECUTION_THREADS)
    return found
