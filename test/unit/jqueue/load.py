"""An ordinary load on a job queue, everything acknowledged noted on disk, and the promises checked.

Used by the tests that kill the queue (:mod:`.crash_driver`) and by those that let its disk and its
messages fail (``test_faults.py``). One injection point, a function called with a name before every
write, flush, rename, removal and message, is given by them.

The candidate is a directory of its own, written as a node daemon does it; what it does to its disk
is a step, too, whose name begins with "copy". What an opcode does is
one line in a file, so that executions can be counted.
"""

from __future__ import annotations

import os
import re
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ganeti import errors
from ganeti.jobstore import inventory as queue_inventory
from ganeti.jobstore.copy import QueueCopy
from ganeti.jobstore.files import archive_file
from ganeti.jobstore.inventory import Inventory
from ganeti.jobstore.store import QueueStore
from ganeti.jqueue import job as jobs
from ganeti.jqueue.callbacks import Callbacks
from ganeti.jqueue.execution import Execution
from ganeti.jqueue.queue import JobQueue
from ganeti.jqueue.replication import Candidates
from ganeti.locking import Level, LockManager
from ganeti.opcodes.base import OpCode
from ganeti.opcodes.test import OpTestDelay

CANDIDATE = "candidate"

Inject = Callable[[str], None]


def no_step(_step: str) -> None:
    """Nothing happens."""


class Transport:
    """One candidate; a message is a step, once before it arrives and once after."""

    def __init__(self, directory: str, inject: Inject) -> None:
        self.directory = f"{directory}/{CANDIDATE}"
        self._inject = inject
        self._copy: QueueCopy | None = None

    def _open(self) -> QueueCopy:
        if self._copy is None:
            store = QueueStore(self.directory, lock_wait_s=10.0, fault=self._of_the_copy)
            store.open()
            self._copy = QueueCopy(store, apply_after_s=0.005)
        return self._copy

    def _of_the_copy(self, step: str) -> None:
        self._inject(f"copy {step}")

    def _message(self, name: str, action: Callable[[], Any]) -> Any:
        try:
            self._inject(f"rpc {name}")
            result = action()
            self._inject(f"rpc {name} answered")
        except OSError as err:
            raise errors.NodeUnreachable(CANDIDATE, name, str(err)) from err
        return result

    def close(self) -> None:
        if self._copy is not None:
            self._copy.close()
            self._copy = None

    def candidates(self) -> Sequence[str]:
        return (CANDIDATE,)

    def update(self, node_uuid: str, files: dict[str, str]) -> None:
        self._message("update", lambda: self._open().write(files))

    def inventory(self, node_uuid: str, parts: Sequence[int]) -> Inventory:
        def take() -> Inventory:
            self._open().apply()
            return queue_inventory.take(self.directory, parts)

        found: Inventory = self._message("inventory", take)
        return found

    def read(self, node_uuid: str, names: Sequence[str]) -> dict[str, str]:
        def look() -> dict[str, str]:
            self._open().apply()
            paths = {name: Path(self.directory, name) for name in names}
            return {name: path.read_text() for name, path in paths.items() if path.exists()}

        found: dict[str, str] = self._message("read", look)
        return found

    def archive(self, node_uuid: str, job_ids: Sequence[int]) -> None:
        def move() -> None:
            self._open().apply()
            for job_id in job_ids:
                target = Path(self.directory, archive_file(job_id))
                target.parent.mkdir(parents=True, exist_ok=True)
                source = Path(self.directory, f"job-{job_id}")
                if source.exists() or not target.exists():
                    source.rename(target)

        self._message("archive", move)

    def purge(self, node_uuid: str) -> None:
        def empty() -> None:
            # A journal left by a killed process must not bring the jobs back.
            self._open().close()
            self._copy = None
            for path in Path(self.directory).rglob("job-*"):
                path.unlink()

        self._message("purge", empty)

    def set_drained(self, node_uuids: Sequence[str], drained: bool) -> list[str]:
        mark = Path(self.directory, "drain")

        def change() -> None:
            if drained:
                mark.touch()
            else:
                mark.unlink(missing_ok=True)

        try:
            self._message("drain", change)
        except errors.NodeUnreachable:
            return [CANDIDATE]
        return []


class Run:
    """A queue in this process."""

    def __init__(self, directory: str, inject: Inject) -> None:
        # Many runs die, and nobody closes their files.
        self._acknowledged = open(f"{directory}/acknowledged", "ab", buffering=0)
        self._executed = open(f"{directory}/executed", "ab", buffering=0)
        os.makedirs(f"{directory}/{CANDIDATE}", exist_ok=True)
        self.store = QueueStore(f"{directory}/queue", journal_bytes=4000, fault=inject)
        self.locks = LockManager({Level.INSTANCE: ["web"]})
        self.died = threading.Event()
        self.hold = threading.Event()
        self._transport = Transport(directory, inject)
        self.queue = JobQueue(
            self.store,
            Execution(self._execute, locks=self.locks, max_running=3),
            candidates=Candidates(self._transport),
            fatal=self.died.set,
        )
        replicator = self.queue.replicator
        assert replicator is not None
        replicator._retry_s = 0.01
        self.queue.committer._retry_s = 0.01

    def _execute(self, op: OpCode, callbacks: Callbacks) -> Any:
        words = (op.comment or "").split()
        if "locked" in words:
            self.locks.acquire(
                callbacks.owner,
                Level.INSTANCE,
                ["web"],
                shared=False,
                priority=callbacks.priority,
                canceled=callbacks.check_cancel,
            )
        try:
            callbacks.notify_start()
            self._executed.write(f"{callbacks.owner.job_id} {op.comment}\n".encode())
            callbacks.feedback("did it")
            if "held" in words:
                self.hold.wait()
                callbacks.check_cancel()
            if "submits" in words:
                return {"jobs": callbacks.submit_jobs([[op_of("child")]])}
            if "fails" in words:
                raise errors.OpExecError("as the test wants")
        finally:
            self.locks.release(callbacks.owner)
        return None

    def stop(self) -> None:
        """Stop the queue, and the candidate, whose directory another run may then open."""
        self.queue.stop()
        self.settle()

    def settle(self) -> None:
        """Let the candidate finish what it was sent."""
        self._transport.close()

    def close(self) -> None:
        """Give the files back, once the queue has stopped."""
        self.store.close()
        self._transport.close()
        self._acknowledged.close()
        self._executed.close()

    def acknowledge(self, what: str, job_id: int) -> None:
        self._acknowledged.write(f"{what} {job_id}\n".encode())

    def wait(self, job_id: int) -> str:
        ended = threading.Event()
        statuses: list[str] = []

        def look(change: list[list[str]]) -> None:
            statuses.append(change[0][0])
            if statuses[-1] in jobs.FINALIZED:
                ended.set()
            else:
                self.queue.operations.subscribe(job_id, ["status"], change[0], 1 << 30, look)

        self.queue.operations.subscribe(job_id, ["status"], None, 1 << 30, look)
        ended.wait()
        return statuses[-1]

    def submit(self, *ops: OpCode) -> int | None:
        """One job; None when it was refused, which a broken disk may do."""
        try:
            job_id = self.queue.submit(ops)
        except errors.JobQueueError:
            return None
        self.acknowledge("job", job_id)
        return job_id

    def end(self, job_id: int | None) -> None:
        if job_id is not None:
            self.acknowledge(self.wait(job_id), job_id)


def op_of(comment: str, depends: object = None) -> OpCode:
    return OpTestDelay(duration=0.0, comment=comment, depends=depends)


def work(run: Run) -> None:
    """Submissions of every kind, dependencies, priorities, cancels in every state, archiving."""
    queue = run.queue

    def singles() -> None:
        for number in range(3):
            run.end(run.submit(op_of(f"single {number}"), op_of(f"second {number} locked")))

    thread = threading.Thread(target=singles)
    thread.start()
    results = queue.submit_many(
        [
            [op_of("many 0")],
            [op_of("many 1", [[-1, []]])],
            [op_of("many 2", [[-1, ["success"]]])],
            [op_of("many 3 locked")],
            [op_of("many 4 fails"), op_of("never")],
            [op_of("many 5 submits")],
        ]
    )
    ids = [int(answer) if accepted else None for accepted, answer in results]
    for job_id in ids:
        if job_id is not None:
            run.acknowledge("job", job_id)
    held = run.submit(op_of("held"), op_of("perhaps"))
    if held is not None:
        _try(lambda: queue.operations.cancel(held))
    run.hold.set()
    if ids[3] is not None:
        _try(lambda: queue.operations.change_priority(ids[3] or 0, -20))
    if ids[2] is not None and _try(lambda: queue.operations.cancel(ids[2] or 0)[0]):
        run.acknowledge("canceled", ids[2])
    for job_id in (*ids[:2], *ids[4:], held):
        run.end(job_id)
    _try(lambda: queue.set_drain(True))
    _try(lambda: queue.set_drain(False))
    if ids[0] is not None and _try(lambda: queue.operations.archive(ids[0] or 0)):
        run.acknowledge("archived", ids[0])
    thread.join()
    _try(lambda: queue.operations.auto_archive(-1, 60))


def _try(action: Callable[[], Any]) -> Any:
    try:
        return action()
    except errors.JobQueueError:
        return None


def check(directory: str, run: Run) -> None:
    """After everything: no acknowledged job is missing, none ran twice, all is whole and equal.

    :param run: a queue on the directory, which has not been started.
    """
    with open(f"{directory}/acknowledged") as stream:
        acknowledged = [line.split() for line in stream.read().splitlines()]
    whole(f"{directory}/queue")
    whole(f"{directory}/{CANDIDATE}")
    run.hold.set()
    queue = run.queue
    queue.start()
    queue.set_drain(False)
    for what, text in acknowledged:
        job_id = int(text)
        status = run.wait(job_id)
        rows = queue.query([job_id], ["status", "archived", "opresult"])
        assert rows[0] is not None, f"job {job_id} was lost"
        if what in jobs.FINALIZED - {"canceled"}:
            assert status == what, f"job {job_id} was acknowledged as {what}, is {status}"
        if what == "archived":
            assert rows[0][1], f"job {job_id} left the archive"
    known = [int(text) for _what, text in acknowledged]
    for row in queue.query(None, ["id"], archived=True):
        assert row is not None
        run.wait(row[0])
        known.append(row[0])
    fresh = queue.submit([op_of("after")])
    assert fresh > max(known, default=0), "an id was given out twice"
    assert run.wait(fresh) == "success"
    queue.stop()
    assert run.locks.owners() == [], "a lock is held"
    assert run.locks.table() == []
    assert not run.died.is_set(), "a thread died"
    whole(f"{directory}/queue")
    run.settle()
    here = queue_inventory.take(f"{directory}/queue")
    there = queue_inventory.take(f"{directory}/{CANDIDATE}")
    assert there == here, f"the candidate differs: {there} {here}"
    with open(f"{directory}/executed") as stream:
        counted = Counter(stream.read().splitlines())
    twice = [line for line, count in counted.items() if count > 1]
    assert not twice, f"ran twice: {twice}"
    never = [line for line in counted if line.endswith("never")]
    assert not never, f"ran in spite of all: {never}"
    left = [
        name
        for name in os.listdir(f"{directory}/queue")
        if name.startswith(("journal-", ".queue-", ".drain", ".version"))
    ]
    assert not left, left


def whole(directory: str) -> None:
    """Every file that other programs may read can be read."""
    for parent, _dirs, names in os.walk(directory):
        for name in names:  # directories are foreign
            if re.fullmatch(r"job-[0-9]+", name) and not parent.endswith("/notes"):
                with open(f"{parent}/{name}") as stream:
                    assert jobs.decode(stream.read()).id == int(name[4:])
