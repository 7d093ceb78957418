"""A master for tests of logical units: fake configuration and nodes, real locks, a job that
remembers.

``Master(cluster_of(...)).run(OpInstanceStartup(...))`` executes an opcode as the job queue would.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fakes.config import FakeConfig
from fakes.rpc import FakeRpc
from ganeti import errors
from ganeti.cmdlib.processor import MasterContext, Processor
from ganeti.locking import Level, LockManager, Owner
from ganeti.master import queries
from ganeti.objects import ConfigData
from ganeti.opcodes.base import OpCode


class FakeJob:
    """The callbacks of one job."""

    def __init__(self, number: int) -> None:
        self.owner = Owner(number, f"job {number}")
        self.log: list[str] = []
        self.started = False
        self.cancel = False
        self.submitted: list[list[OpCode]] = []

    def notify_start(self) -> None:
        self.started = True

    def feedback(self, *args: Any) -> None:
        self.log.append(str(args[-1]))

    def check_cancel(self) -> None:
        if self.cancel:
            raise errors.JobCanceled(f"job {self.owner.job_id} was canceled")

    def priority(self) -> int:
        return 0

    def submit_jobs(self, jobs: Sequence[Sequence[OpCode]]) -> list[list[Any]]:
        first = 100 + len(self.submitted)
        self.submitted.extend(list(job) for job in jobs)
        return [[True, first + number] for number in range(len(jobs))]

    def said(self, fragment: str) -> bool:
        """Did a log line contain this?"""
        return any(fragment in line for line in self.log)


class Master:
    """The parts of the master which an opcode uses."""

    def __init__(self, data: ConfigData) -> None:
        self.config = FakeConfig(data)
        self.rpc = FakeRpc(self.config)
        self.locks = LockManager(
            {
                Level.INSTANCE: list(data.instances),
                Level.NODEGROUP: list(data.nodegroups),
                Level.NODE: list(data.nodes),
                Level.NODE_RES: list(data.nodes),
                Level.NETWORK: list(data.networks),
            }
        )
        self.context = MasterContext(self.config, self.locks, self.rpc)  # type: ignore[arg-type]
        self.context.queries = queries.QueryService(self.context)
        self.processor = Processor(self.context)
        self.jobs: list[FakeJob] = []

    @property
    def job(self) -> FakeJob:
        """The last job."""
        return self.jobs[-1]

    def new_job(self) -> FakeJob:
        """A job which has not run anything yet."""
        job = FakeJob(len(self.jobs) + 1)
        self.jobs.append(job)
        return job

    def run(self, op: OpCode, job: FakeJob | None = None) -> Any:
        """Execute an opcode; afterwards nobody holds a lock or a reservation."""
        job = job or self.new_job()
        try:
            return self.processor.execute(op.validate(), job)
        finally:
            assert self.locks.owners() == [], "locks are left behind"
            assert self.config.released, "reservations were not released"

    def refused(self, op: OpCode, ecode: str) -> str:
        """Execute an opcode which must be refused with a code, without any change; returns the
        text."""
        writes = len(self.config.writes)
        try:
            self.run(op)
        except errors.OpPrereqError as err:
            assert err.ecode == ecode, f"{err.ecode}: {err}"
            assert len(self.config.writes) == writes, self.config.writes
            assert self.rpc.acting() == [], self.rpc.acting()
            return str(err)
        raise AssertionError(f"{op.OP_ID} was not refused")

    def failed(self, op: OpCode) -> str:
        """Execute an opcode which must fail while acting; returns the text."""
        try:
            self.run(op)
        except errors.OpExecError as err:
            return str(err)
        raise AssertionError(f"{op.OP_ID} did not fail")
