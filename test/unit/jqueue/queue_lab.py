"""A job queue in one process, whose opcodes do what their comments say."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ganeti import errors
from ganeti.cmdlib.base import JobLocks
from ganeti.constants import job as const
from ganeti.jobstore.store import QueueStore
from ganeti.jqueue import job as jobs
from ganeti.jqueue.callbacks import Callbacks
from ganeti.jqueue.execution import Execution
from ganeti.jqueue.queue import JobQueue
from ganeti.locking import Level, LockManager, Owner
from ganeti.opcodes.base import OpCode
from ganeti.opcodes.test import OpTestDelay

from .wire_processes import WireExecutor

PATIENCE_S = 60.0
LIVELOCK = "/livelock"


def op(comment: str = "", **kwargs: Any) -> OpCode:
    return OpTestDelay(duration=0.0, comment=comment, **kwargs)


class Lab:
    """A queue whose opcodes do what their comment says.

    :cvar processes: execute them as in job processes (:mod:`.wire_processes`).
    """

    processes = False

    def __init__(self, path: Path) -> None:
        self.path = path
        self.order: list[str] = []
        self.gates: dict[str, threading.Event] = {}
        self.reached: dict[str, threading.Event] = {}
        self.fail_names: set[str] = set()
        self.faults: list[str] = []
        self.locks = LockManager({Level.INSTANCE: ["web"]})
        self.died = threading.Event()
        # Processes of jobs go on in the next queue.
        self.living: dict[int, Any] = {}
        self.queue = self.new()
        self.open = True

    def new(self, *, max_running: int = const.MAX_RUNNING_DEFAULT, **options: Any) -> JobQueue:
        store = QueueStore(str(self.path), fault=self._fault)
        executor = None
        if self.processes:
            executor = WireExecutor(
                self.path.with_name("processes"),
                self.work,
                self.locks,
                lambda job_id: Owner(job_id, f"job-{job_id}", LIVELOCK),
                self.living,
            )
        return JobQueue(
            store,
            Execution(self.execute, executor, locks=self.locks, max_running=max_running),
            fatal=self.died.set,
            livelock=LIVELOCK,
            **options,
        )

    def count_faults(self, step: str) -> list[str]:
        """Let a step on the disk fail from now on; the list grows with each time."""
        self.fail_names = {step}
        self.faults = []
        return self.faults

    def _fault(self, step: str) -> None:
        if step in self.fail_names:
            self.faults.append(step)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def gate(self, name: str) -> threading.Event:
        self.reached[name] = threading.Event()
        return self.gates.setdefault(name, threading.Event())

    def execute(self, opcode: OpCode, callbacks: Callbacks) -> Any:
        return self.work(opcode, callbacks, self.locks)

    def work(self, opcode: OpCode, callbacks: Callbacks, locks: JobLocks) -> Any:
        name = opcode.comment or ""
        if name.startswith("lock"):
            self.reached[name].set()
            locks.acquire(
                callbacks.owner,
                Level.INSTANCE,
                ["web"],
                shared=False,
                priority=callbacks.priority,
                canceled=callbacks.check_cancel,
            )
            locks.release(callbacks.owner)
        if name == "no-start":
            return "never started"
        callbacks.notify_start()
        self.order.append(name)
        if name in self.gates:
            self.reached[name].set()
            assert self.gates[name].wait(PATIENCE_S)
            if name != "unaware":
                callbacks.check_cancel()
        if name == "fail":
            raise errors.OpPrereqError("not like this", errors.ECODE_STATE)
        if name == "bug":
            raise KeyError("oops")
        if name == "odd":
            return {1, 2}
        if name == "log":
            callbacks.feedback("one")
            callbacks.feedback("delay-test", {"a": 1})
        if name == "chatter":
            for number in range(200):
                callbacks.feedback(str(number))
        if name == "spawn":
            return {
                "jobs": callbacks.submit_jobs(
                    [[op("child")], [op("child", depends=[[-1, ["success"]]])]]
                )
            }
        return name

    def wait(self, job_id: int) -> str:
        return wait(self.queue, job_id)

    def stop_while_running(self, job_id: int) -> None:
        """Stop the queue while a job is running; a thread is not waited for, a process goes on."""
        if self.processes:
            assert self.queue.stop(PATIENCE_S) == set()
        else:
            assert self.queue.stop(0.0) == {job_id}

    def restart(self) -> None:
        self.queue.stop(0.0)
        self.queue = self.new()
        self.queue.start()

    def row(self, job_id: int, *fields: str) -> list[Any]:
        row = self.queue.query([job_id], fields)[0]
        assert row is not None
        return row


def wait(queue: JobQueue, job_id: int) -> str:
    ended = threading.Event()
    seen: list[str] = []

    def look(change: Any) -> None:
        seen.append(change[0][0])
        if seen[-1] in jobs.FINALIZED:
            ended.set()
        else:
            queue.operations.subscribe(job_id, ["status"], change[0], 1 << 40, look)

    queue.operations.subscribe(job_id, ["status"], None, 1 << 40, look)
    assert ended.wait(PATIENCE_S), f"job {job_id} is {seen[-1]}"
    return seen[-1]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)
