"""Kills a job queue at every step on the disk and every message, and looks what is left.

Run as a program, because it forks and its children kill themselves::

    crash_driver.py DIRECTORY FIRST STRIDE

For each step number, from FIRST in strides, a child works through a load and is killed (SIGKILL, by
itself) just before that step; what it acknowledged and what it executed is in two files. A second
child opens the queue again and is killed as well at some step; a third one lets everything finish
and checks the promises. Ends with "ok N" after the step that was never reached.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Sequence

from ganeti.jqueue import job as jobs
from ganeti.jqueue.queue import Callbacks, JobQueue
from ganeti.opcodes.base import OpCode
from ganeti.opcodes.test import OpTestDelay
from ganeti.wire.queue_store import QueueStore


class Killer:
    """Counts steps of all threads and kills the process at one of them."""

    def __init__(self, at: int) -> None:
        self._at = at
        self._count = 0
        self._lock = threading.Lock()

    def __call__(self, _step: str) -> None:
        with self._lock:
            self._count += 1
            if self._count == self._at:
                os.kill(os.getpid(), signal.SIGKILL)


class Transport:
    """One candidate; a message is a step too."""

    def __init__(self, killer: Killer) -> None:
        self._killer = killer

    def candidates(self) -> Sequence[str]:
        return ("candidate",)

    def update(self, node_uuid: str, files: dict[str, str]) -> None:
        self._killer("rpc")

    def archive(self, node_uuid: str, job_ids: Sequence[int]) -> None:
        self._killer("rpc")

    def purge(self, node_uuid: str) -> None:
        self._killer("rpc")

    def set_drained(self, node_uuids: Sequence[str], drained: bool) -> list[str]:
        self._killer("rpc")
        return []


class Run:
    """A queue in this process."""

    def __init__(self, directory: str, killer: Killer) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._acknowledged = os.open(f"{directory}/acknowledged", flags, 0o600)
        self._executed = os.open(f"{directory}/executed", flags, 0o600)
        self.store = QueueStore(f"{directory}/queue", journal_bytes=4000, fault=killer)
        self.queue = JobQueue(self.store, self._execute, transport=Transport(killer),
                              max_running=3)

    def _execute(self, op: OpCode, callbacks: Callbacks) -> None:
        callbacks.notify_start()
        os.write(self._executed, f"{callbacks.owner.job_id} {op.comment}\n".encode())
        callbacks.feedback("did it")

    def acknowledge(self, what: str, job_id: int) -> None:
        os.write(self._acknowledged, f"{what} {job_id}\n".encode())

    def wait(self, job_id: int) -> str:
        ended = threading.Event()
        statuses: list[str] = []

        def look(change: list[list[str]]) -> None:
            statuses.append(change[0][0])
            if statuses[-1] in jobs.FINALIZED:
                ended.set()
            else:
                self.queue.watch(job_id, ["status"], change[0], 1 << 30, look)

        self.queue.watch(job_id, ["status"], None, 1 << 30, look)
        ended.wait()
        return statuses[-1]


def op(comment: str, depends: object = None) -> OpCode:
    return OpTestDelay(duration=0.0, comment=comment, depends=depends)


def load(directory: str, step: int) -> None:
    """Ordinary work, every acknowledgement noted at once."""
    run = Run(directory, Killer(step))
    queue = run.queue
    queue.start()

    def singles() -> None:
        for number in range(3):
            job_id = queue.submit([op(f"single {number}"), op("second")])
            run.acknowledge("job", job_id)
            run.acknowledge(run.wait(job_id), job_id)

    thread = threading.Thread(target=singles)
    thread.start()
    results = queue.submit_many([[op("many 0")], [op("many 1", [[-1, []]])],
                                 [op("many 2", [[-1, ["success"]]])], [op("many 3")]])
    ids = [job_id for accepted, job_id in results if accepted]
    for job_id in ids:
        run.acknowledge("job", job_id)
    queue.change_priority(ids[-1], -20)
    success, _ = queue.cancel(ids[2])
    if success:
        run.acknowledge("canceled", ids[2])
    for job_id in ids[:2]:
        run.acknowledge(run.wait(job_id), job_id)
    if queue.archive(ids[0]):
        run.acknowledge("archived", ids[0])
    thread.join()
    queue.auto_archive(-1, 60)
    queue.stop()


def recover(directory: str, step: int) -> None:
    """A start after the crash, which is killed as well when it comes to this step."""
    run = Run(directory, Killer(step))
    run.queue.start()
    run.queue.stop()


def check(directory: str) -> None:
    """After the crash: everything finishes, and the promises hold."""
    with open(f"{directory}/acknowledged") as stream:
        told = [line.split() for line in stream.read().splitlines()]
    whole(f"{directory}/queue")
    run = Run(directory, Killer(0))
    queue = run.queue
    queue.start()
    for what, text in told:
        job_id = int(text)
        status = run.wait(job_id)
        rows = queue.query([job_id], ["status", "archived", "opresult"])
        assert rows[0] is not None, f"job {job_id} was lost"
        if what in jobs.FINALIZED - {"canceled"}:
            assert status == what, f"job {job_id} was told {what}, is {status}"
        if what == "archived":
            assert rows[0][1], f"job {job_id} left the archive"
    known = [int(text) for _what, text in told]
    for row in queue.query(None, ["id"], archived=True):
        assert row is not None
        run.wait(row[0])
        known.append(row[0])
    fresh = queue.submit([op("after")])
    assert fresh > max(known, default=0), "an id was given out twice"
    assert run.wait(fresh) == "success"
    queue.stop()
    whole(f"{directory}/queue")
    with open(f"{directory}/executed") as stream:
        counted = Counter(stream.read().splitlines())
    twice = [line for line, count in counted.items() if count > 1]
    assert not twice, f"ran twice: {twice}"
    left = [name for name in os.listdir(f"{directory}/queue")
            if name.startswith(("journal-", "."))]
    assert not left, left


def whole(directory: str) -> None:
    """Every file that other programs may read can be read."""
    for parent, _dirs, names in os.walk(directory):
        for name in names:
            if name.startswith("job-"):
                with open(f"{parent}/{name}") as stream:
                    assert jobs.decode(stream.read()).id == int(name[4:])


def in_child(action: object, *args: object) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            action(*args)  # type: ignore[operator]
            code = 0
        except BaseException:
            traceback.print_exc(file=sys.stdout)
            raise
        finally:
            sys.stdout.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main() -> None:
    base, first, stride = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    step = first
    while True:
        directory = f"{base}/step-{step}"
        os.makedirs(directory)
        code = in_child(load, directory, step)
        if code not in (0, -signal.SIGKILL):
            sys.exit(f"step {step}: the load ended with {code}")
        in_child(recover, directory, step % 23 + 1)
        if (code_after := in_child(check, directory)) != 0:
            sys.exit(f"step {step}: a promise was broken ({code_after}), see {directory}")
        shutil.rmtree(directory)
        if code == 0:
            print(f"ok {step}")
            return
        step += stride


if __name__ == "__main__":
    main()
