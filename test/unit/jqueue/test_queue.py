"""The job queue in one process, with an execute function made for the test."""

from __future__ import annotations

import errno
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ganeti import errors
from ganeti.jobstore import inventory as queue_inventory
from ganeti.jobstore.files import archive_file
from ganeti.jobstore.inventory import Inventory
from ganeti.jobstore.store import QueueStore
from ganeti.jqueue import job as jobs
from ganeti.jqueue.callbacks import Callbacks
from ganeti.jqueue.queue import JobQueue
from ganeti.locking import Level, LockManager
from ganeti.opcodes.base import OpCode
from ganeti.opcodes.test import OpTestDelay

PATIENCE_S = 60.0


def op(comment: str = "", **kwargs: Any) -> OpCode:
    return OpTestDelay(duration=0.0, comment=comment, **kwargs)


class Lab:
    """A queue whose opcodes do what their comment says."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.order: list[str] = []
        self.gates: dict[str, threading.Event] = {}
        self.reached: dict[str, threading.Event] = {}
        self.fail_names: set[str] = set()
        self.locks = LockManager({Level.INSTANCE: ["web"]})
        self.died = threading.Event()
        self.queue = self.new()
        self.open = True

    def new(self, **kwargs: Any) -> JobQueue:
        store = QueueStore(str(self.path), fault=self._fault)
        return JobQueue(
            store,
            self.execute,
            locks=self.locks,
            fatal=self.died.set,
            livelock="/livelock",
            **kwargs,
        )

    def _fault(self, step: str) -> None:
        if step in self.fail_names:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def gate(self, name: str) -> threading.Event:
        self.reached[name] = threading.Event()
        return self.gates.setdefault(name, threading.Event())

    def execute(self, opcode: OpCode, callbacks: Callbacks) -> Any:
        name = opcode.comment or ""
        if name.startswith("lock"):
            self.reached[name].set()
            self.locks.acquire(
                callbacks.owner,
                Level.INSTANCE,
                ["web"],
                shared=False,
                priority=callbacks.priority,
                cancelled=callbacks.check_cancel,
            )
            self.locks.release(callbacks.owner)
        if name == "no-start":
            return "never started"
        callbacks.notify_start()
        self.order.append(name)
        if name in self.gates:
            self.reached[name].set()
            assert self.gates[name].wait(PATIENCE_S)
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
            queue.subscribe(job_id, ["status"], change[0], 1 << 40, look)

    queue.subscribe(job_id, ["status"], None, 1 << 40, look)
    assert ended.wait(PATIENCE_S), f"job {job_id} is {seen[-1]}"
    return seen[-1]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path / "queue")
    made.queue.start()
    yield made
    for gate in made.gates.values():
        gate.set()
    made.queue.stop(PATIENCE_S)
    assert not made.died.is_set()


def test_a_job_from_submission_to_its_end(lab: Lab) -> None:
    job_id = lab.queue.submit([op("a"), op("log")])
    assert lab.wait(job_id) == "success"
    status, results, log, summary = lab.row(job_id, "opstatus", "opresult", "oplog", "summary")
    assert status == ["success", "success"]
    assert results == ["a", "log"]
    assert [entry[2:] for entry in log[1]] == [("message", "one"), ("delay-test", {"a": 1})]
    assert len(summary) == 2
    text = (lab.path / f"job-{job_id}").read_text()
    job = jobs.decode(text)
    assert job.state.livelock == "/livelock"
    assert job.state.process_id == os.getpid()
    reason = job.ops[1].input["reason"]
    assert reason[-1][:2] == ["gnt:opcode:test_delay", f"job={job_id};index=1"]
    received = job.received
    assert received is not None
    assert reason[-1][2] == received[0] * 10**9 + received[1] * 1000
    assert (lab.path / "serial").read_text() == f"{job_id}\n"


def test_ids_go_up_and_files_appear(lab: Lab) -> None:
    results = lab.queue.submit_many([[op(str(number))] for number in range(50)])
    assert results == [[True, number] for number in range(1, 51)]
    assert all((lab.path / f"job-{number}").exists() for number in range(1, 51))
    assert [lab.wait(number) for _, number in results] == ["success"] * 50


def test_failures_of_opcodes(lab: Lab) -> None:
    job_id = lab.queue.submit([op("a"), op("fail"), op("b")])
    assert lab.wait(job_id) == "error"
    assert lab.row(job_id, "opstatus", "opresult") == [
        ["success", "error", "error"],
        [
            "a",
            ["OpPrereqError", ["not like this", "wrong_state"]],
            ["OpExecError", ["an earlier opcode of this job failed"]],
        ],
    ]
    assert "b" not in lab.order
    job_id = lab.queue.submit([op("bug")])
    assert lab.wait(job_id) == "error"
    assert "KeyError: 'oops'" in lab.row(job_id, "opresult")[0][0][1][0]
    job_id = lab.queue.submit([op("odd")])
    assert lab.wait(job_id) == "error"
    job_id = lab.queue.submit([op("no-start")])
    assert lab.wait(job_id) == "success"
    assert lab.row(job_id, "opexec")[0][0] is not None


def test_bad_opcodes_are_refused_each_for_itself(lab: Lab) -> None:
    bad = OpTestDelay(duration="x")
    results = lab.queue.submit_many(
        [
            [op()],
            [bad],
            [op(depends=[[-1, []]])],
            [op(depends=[[-3, []]])],
            [op(depends=[[-9, []]])],
        ]
    )
    assert [accepted for accepted, _ in results] == [True, False, False, True, False]
    assert "duration" in results[1][1]
    assert "refused" in results[2][1]
    with pytest.raises(errors.OpPrereqError, match="job 999"):
        lab.queue.submit([op(depends=[[999, []]])])
    with pytest.raises(errors.OpPrereqError, match="before the first"):
        lab.queue.submit([op(depends=[[-1, []]])])


def test_a_job_without_opcodes_has_succeeded(lab: Lab) -> None:
    job_id = lab.queue.submit([])
    assert lab.wait(job_id) == "success"
    assert lab.queue.archive(job_id)


def test_priorities_decide_who_is_next(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "queue")
    lab.queue = lab.new(max_running=1)
    lab.queue.start()
    gate = lab.gate("first")
    lab.queue.submit([op("first")])
    assert lab.reached["first"].wait(PATIENCE_S)
    ids = {
        name: lab.queue.submit([op(name, priority=priority)])
        for name, priority in (("low", 10), ("normal", 0), ("later", 0), ("high", -10))
    }
    assert lab.queue.change_priority(ids["later"], -20) == (
        True,
        f"priority of job {ids['later']} is now -20",
    )
    assert lab.row(ids["later"], "priority", "oppriority") == [-20, [-20]]
    gate.set()
    for job_id in ids.values():
        lab.wait(job_id)
    assert lab.order == ["first", "later", "high", "normal", "low"]
    assert lab.queue.change_priority(ids["low"], 5)[0] is False
    assert lab.queue.change_priority(999, 5)[0] is False
    with pytest.raises(errors.OpPrereqError, match="priority"):
        lab.queue.change_priority(ids["low"], 20)
    lab.queue.stop()


def test_more_workers_while_running(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "queue")
    lab.queue = lab.new(max_running=1)
    lab.queue.start()
    gates = [lab.gate("one"), lab.gate("two")]
    lab.queue.submit_many([[op("one")], [op("two")]])
    assert lab.reached["one"].wait(PATIENCE_S)
    assert not lab.reached["two"].is_set()
    lab.queue.set_max_running(2)
    assert lab.reached["two"].wait(PATIENCE_S)
    for gate in gates:
        gate.set()
    lab.queue.stop()


def test_cancel_a_queued_job(lab: Lab) -> None:
    gate = lab.gate("slow")
    slow = lab.queue.submit([op("slow")])
    waiting = lab.queue.submit([op("b", depends=[[slow, []]])])
    assert lab.queue.cancel(waiting) == (True, f"job {waiting} was canceled")
    assert lab.row(waiting, "status", "opresult") == [
        "canceled",
        [["JobCanceled", ["canceled by request"]]],
    ]
    assert lab.queue.cancel(waiting)[0] is False
    assert lab.queue.cancel(12345)[0] is False
    gate.set()
    assert lab.wait(slow) == "success"
    assert lab.order == ["slow"]


def test_cancel_a_job_that_waits_for_its_locks(lab: Lab) -> None:
    from ganeti.locking import Owner

    holder = Owner(None, "test")
    lab.locks.acquire(holder, Level.INSTANCE, ["web"], shared=False)
    lab.gate("lock")
    job_id = lab.queue.submit([op("lock"), op("rest")])
    assert lab.reached["lock"].wait(PATIENCE_S)
    until(
        lambda: bool(lab.locks.table()[0].pending or any(row.pending for row in lab.locks.table()))
    )
    assert lab.queue.change_priority(job_id, -5)[0]
    assert lab.queue.cancel(job_id)[0]
    assert lab.wait(job_id) == "canceled"
    assert lab.row(job_id, "opstatus", "opexec") == [["canceled", "canceled"], [None, None]]
    lab.locks.release(holder)


def test_cancel_a_running_job_at_its_next_safe_point(lab: Lab) -> None:
    gate = lab.gate("slow")
    job_id = lab.queue.submit([op("slow"), op("rest")])
    assert lab.reached["slow"].wait(PATIENCE_S)
    success, message = lab.queue.cancel(job_id)
    assert success and "running" in message
    assert lab.row(job_id, "status") == ["canceling"]
    assert lab.queue.cancel(job_id) == (True, f"job {job_id} is being canceled")
    gate.set()
    assert lab.wait(job_id) == "canceled"
    assert lab.row(job_id, "opstatus", "opresult")[1][0] == [
        "JobCanceled",
        ["canceled by request while it was running"],
    ]
    assert lab.order == ["slow"]


def test_canceled_too_late_the_work_done_counts(lab: Lab) -> None:
    job_id = lab.queue.submit([op("a"), op("rest")])
    assert lab.wait(job_id) == "success"
    assert lab.queue.cancel(job_id) == (False, f"job {job_id} has already ended (success)")


def test_dependencies(lab: Lab) -> None:
    gate = lab.gate("slow")
    results = lab.queue.submit_many(
        [
            [op("slow"), op("fail")],
            [op("wants success", depends=[[-1, ["success"]]])],
            [op("wants error", depends=[[-2, ["error"]]])],
            [op("wants default", depends=[[-1, []]])],
            [op("wants end of the refused", depends=[[-3, ["error", "canceled"]]])],
            [op("first"), op("late", depends=[[-5, ["error"]]])],
        ]
    )
    ids = [job_id for _, job_id in results]
    until(lambda: "first" in lab.order)
    until(lambda: lab.row(ids[5], "opstatus")[0][0] == "success")
    assert lab.row(ids[5], "status", "opstatus") == ["queued", ["success", "queued"]]
    assert lab.row(ids[1], "status") == ["queued"]
    gate.set()
    assert [lab.wait(job_id) for job_id in ids] == [
        "error",
        "error",
        "success",
        "success",
        "success",
        "success",
    ]
    assert lab.row(ids[1], "opresult")[0][0][1] == [
        f"depends on job {ids[0]}, which ended as error, not success",
        "wrong_state",
    ]


def test_a_canceled_dependency_cancels(lab: Lab) -> None:
    gate = lab.gate("slow")
    results = lab.queue.submit_many(
        [[op("slow")], [op("a", depends=[[-1, []]])], [op("b", depends=[[-1, []]])]]
    )
    ids = [job_id for _, job_id in results]
    lab.queue.cancel(ids[1])
    assert lab.wait(ids[2]) == "canceled"
    gate.set()
    assert lab.wait(ids[0]) == "success"


def test_dependency_on_an_archived_job(lab: Lab) -> None:
    first = lab.queue.submit([op("a")])
    lab.wait(first)
    assert lab.queue.archive(first)
    second = lab.queue.submit([op("b", depends=[[first, ["success"]]])])
    assert lab.wait(second) == "success"


def test_jobs_that_submit_jobs(lab: Lab) -> None:
    lab.queue.set_drain(True)
    job_id = lab.queue.submit([op("spawn")], drained_ok=True)
    assert lab.wait(job_id) == "success"
    children = lab.row(job_id, "opresult")[0][0]["jobs"]
    assert [accepted for accepted, _ in children] == [True, True]
    assert [lab.wait(child) for _, child in children] == ["success", "success"]
    lab.queue.set_drain(False)


def test_drained_and_full(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "queue")
    lab.queue = lab.new(size_limit=3)
    lab.queue.start()
    lab.queue.set_drain(True)
    assert lab.queue.drained
    with pytest.raises(errors.JobQueueDrainError):
        lab.queue.submit([op()])
    lab.restart()
    assert lab.queue.drained, "the flag survives a restart"
    lab.queue.set_drain(False)
    lab.queue.stop()
    lab.queue = lab.new(size_limit=3)
    lab.queue.start()
    gate = lab.gate("slow")
    ids = [lab.queue.submit([op("slow")]) for _ in range(3)]
    with pytest.raises(errors.JobQueueFull):
        lab.queue.submit([op()])
    gate.set()
    for job_id in ids:
        lab.wait(job_id)
    lab.wait(lab.queue.submit([op()]))
    lab.queue.stop()


def test_archive(lab: Lab) -> None:
    gate = lab.gate("slow")
    running = lab.queue.submit([op("slow")])
    done = lab.queue.submit([op("a")])
    lab.wait(done)
    assert not lab.queue.archive(running)
    assert not lab.queue.archive(12345)
    assert lab.queue.archive(done)
    assert not lab.queue.archive(done)
    assert not (lab.path / f"job-{done}").exists()
    assert (lab.path / f"archive/0/job-{done}").exists()
    assert lab.queue.query([done, 999], ["id", "status", "archived"]) == [
        [done, "success", True],
        None,
    ]
    assert lab.queue.query(None, ["id"]) == [[running]]
    assert lab.queue.query(None, ["id"], archived=True) == [[running], [done]]
    assert lab.wait(done) == "success"
    gate.set()
    lab.wait(running)


def test_auto_archive_by_age(lab: Lab) -> None:
    for _ in range(5):
        lab.wait(lab.queue.submit([op("a")]))
    assert lab.queue.auto_archive(3600, 60) == (0, 0)
    assert lab.queue.auto_archive(-1, -1) == (0, 5), "no time: all are left"
    assert lab.queue.auto_archive(-1, 60) == (5, 0)
    assert lab.queue.query(None, ["id"]) == []


def test_a_client_of_a_chattering_job_gets_all_lines_in_few_answers(lab: Lab) -> None:
    gate = lab.gate("go")
    job_id = lab.queue.submit([op("go"), op("chatter")])
    ended = threading.Event()
    lines: list[str] = []
    answers: list[Any] = []

    def look(change: Any) -> None:
        answers.append(change)
        lines.extend(entry[3] for entry in change[1])
        if change[0][0] in jobs.FINALIZED:
            ended.set()
        else:
            serial = change[1][-1][0] if change[1] else None
            seen.append(serial if serial is not None else seen[-1])
            lab.queue.subscribe(job_id, ["status"], change[0], seen[-1], look)

    seen: list[Any] = [None]
    lab.queue.subscribe(job_id, ["status"], None, None, look)
    gate.set()
    assert ended.wait(PATIENCE_S)
    assert lines == [str(number) for number in range(200)]


def test_unknown_fields_and_jobs(lab: Lab) -> None:
    with pytest.raises(errors.OpPrereqError, match="nosuch"):
        lab.queue.query(None, ["id", "nosuch"])
    with pytest.raises(errors.JobLost):
        lab.queue.subscribe(77, ["status"], None, None, print)


def test_watches_are_told_log_lines_and_may_be_ended(lab: Lab) -> None:
    gate = lab.gate("slow")
    job_id = lab.queue.submit([op("slow"), op("log")])
    assert lab.reached["slow"].wait(PATIENCE_S)
    until(lambda: lab.row(job_id, "status") == ["running"])
    received: list[Any] = []
    subscription = lab.queue.subscribe(job_id, ["status"], ["running"], None, received.append)
    assert subscription is not None
    assert lab.queue.unsubscribe(subscription)
    assert not lab.queue.unsubscribe(subscription)
    got = threading.Event()
    assert (
        lab.queue.subscribe(
            job_id,
            ["opstatus"],
            [["running", "queued"]],
            None,
            lambda change: (received.append(change), got.set()),
        )
        is not None
    )
    gate.set()
    assert got.wait(PATIENCE_S)
    assert received[0] != [[["running", "queued"]], []]
    assert lab.wait(job_id) == "success"
    lab.queue.subscribe(job_id, ["status"], ["success"], 0, received.append)
    info, entries = received[-1]
    assert info == ["success"]
    assert [entry[3] for entry in entries] == ["one", {"a": 1}]
    assert len(received) == 2


def test_thousand_waiters(lab: Lab) -> None:
    gate = lab.gate("slow")
    job_id = lab.queue.submit([op("slow")])
    assert lab.reached["slow"].wait(PATIENCE_S)
    until(lambda: lab.row(job_id, "status") == ["running"])
    before = threading.active_count()
    received: list[Any] = []
    for _ in range(1000):
        assert (
            lab.queue.subscribe(job_id, ["status"], ["running"], None, received.append) is not None
        )
    assert threading.active_count() == before
    gate.set()
    until(lambda: len(received) == 1000)
    assert all(change == [["success"], []] for change in received)


def test_full_disk_refuses_new_work_and_loses_none(lab: Lab) -> None:
    gate = lab.gate("slow")
    running = lab.queue.submit([op("slow")])
    assert lab.reached["slow"].wait(PATIENCE_S)
    lab.fail_names = {"write journal"}
    with pytest.raises(errors.JobQueueError, match="No space left"):
        lab.queue.submit([op("refused")])
    assert [result[0] for result in lab.queue.submit_many([[op("refused")]] * 2)] == [False] * 2
    gate.set()
    until(lambda: not lab.queue.scheduler.pool.busy())
    assert lab.row(running, "status") == ["running"], "not published before it is on disk"
    lab.fail_names = set()
    assert lab.wait(running) == "success"
    fresh = lab.queue.submit([op("b")])
    assert lab.wait(fresh) == "success"
    assert lab.order == ["slow", "b"]
    lab.restart()
    assert [row[0] for row in lab.queue.query(None, ["id"])] == [running, fresh]


def test_who_asks_right_after_a_start_sees_no_job_as_running(lab: Lab) -> None:
    """A start needs no flush to say so, as another start would come to the same."""
    gate = lab.gate("slow")
    running = lab.queue.submit([op("slow")])
    assert lab.reached["slow"].wait(PATIENCE_S)
    assert lab.queue.stop(0.0) == {running}
    lab.fail_names = {"write journal"}
    lab.queue = lab.new()
    lab.queue.start()
    assert lab.row(running, "status") == ["error"]
    gate.set()
    lab.fail_names = set()


def test_restart_with_jobs_in_every_state(tmp_path: Path) -> None:
    path = tmp_path / "queue"
    store = QueueStore(str(path))
    store.open()
    files = {}
    states = {
        1: ["queued"],
        2: ["waiting"],
        3: ["running", "queued"],
        4: ["canceling"],
        5: ["success", "queued"],
        6: ["success"],
        7: ["canceling"],
    }
    for job_id, statuses in states.items():
        ops = [jobs.QueuedOpCode.from_opcode(op(f"job {job_id}")) for _ in statuses]
        job = jobs.QueuedJob(job_id, ops, (1, 1))
        for each, status in zip(ops, statuses, strict=True):
            begun = (2, 2) if status in ("running", "success") or job_id == 7 else None
            each.state = each.state._replace(status=status, exec=begun)
        files[f"job-{job_id}"] = jobs.encode(job.snapshot())
    store.commit(files)
    store.apply()
    (path / "job-8").write_text("{broken")
    (path / "job-9").write_text(files["job-1"])
    lab = Lab(path)
    lab.queue.start()
    ends = {job_id: lab.wait(job_id) for job_id in states}
    assert ends == {
        1: "success",
        2: "success",
        3: "error",
        4: "canceled",
        5: "success",
        6: "success",
        7: "error",
    }
    assert sorted(lab.order) == ["job 1", "job 2", "job 5"]
    assert "master daemon ended while this ran" in lab.row(3, "opresult")[0][0][1][0]
    assert "master daemon ended" in lab.row(3, "oplog")[0][0][0][3]
    assert lab.queue.query([8, 9], ["id"]) == [None, None]
    assert (path / "damaged/job-8").read_text() == "{broken"
    assert not (path / "job-8").exists() and set(lab.queue.table.lost) == {8, 9}
    assert lab.queue.submit([op("new")]) == 10
    lab.queue.stop()


def test_the_serial_is_found_again_without_its_file(lab: Lab) -> None:
    for _ in range(3):
        lab.wait(lab.queue.submit([op("a")]))
    assert lab.queue.auto_archive(-1, 60) == (3, 0)
    lab.queue.stop()
    (lab.path / "serial").unlink()
    lab.queue = lab.new()
    lab.queue.start()
    assert lab.queue.submit([op("b")]) == 4


def test_a_stop_puts_waiting_jobs_back(lab: Lab) -> None:
    from ganeti.locking import Owner

    lab.locks.acquire(Owner(None, "test"), Level.INSTANCE, ["web"], shared=False)
    lab.gate("lock").set()
    job_id = lab.queue.submit([op("lock")])
    assert lab.reached["lock"].wait(PATIENCE_S)
    assert lab.queue.stop(PATIENCE_S) == set()
    with pytest.raises(errors.JobQueueError, match="ending"):
        lab.queue.submit([op("too late")])
    assert jobs.decode((lab.path / f"job-{job_id}").read_text()).status == "queued"
    assert sorted(os.listdir(lab.path)) == ["archive", "job-1", "serial", "version"]
    lab.locks.release(Owner(None, "test"))
    lab.queue = lab.new()
    lab.queue.start()
    assert lab.wait(job_id) == "success"


def test_a_stop_names_the_jobs_it_did_not_wait_for(lab: Lab) -> None:
    gate = lab.gate("slow")
    job_id = lab.queue.submit([op("slow")])
    assert lab.reached["slow"].wait(PATIENCE_S)
    assert lab.queue.stop(0.01) == {job_id}
    gate.set()
    lab.queue = lab.new()
    lab.queue.start()
    assert lab.wait(job_id) == "error"


def inventory_of(files: dict[str, str], parts: Sequence[int]) -> Inventory:
    """As a candidate's node daemon would tell it."""
    with tempfile.TemporaryDirectory() as directory:
        for name, text in files.items():
            path = Path(directory, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return queue_inventory.take(directory, parts)


class Candidates:
    """Two candidates that may fail or hang."""

    def __init__(self) -> None:
        self.files: dict[str, dict[str, str]] = {"one": {}, "two": {}}
        self.messages: list[tuple[str, int]] = []
        self.failing: set[str] = set()
        self.purged: list[str] = []
        self.present = ["one", "two"]

    def candidates(self) -> Sequence[str]:
        return tuple(self.present)

    def _check(self, uuid: str) -> None:
        if uuid in self.failing:
            raise errors.NodeUnreachable(uuid, "jobqueue_update_many", "no route")

    def update(self, uuid: str, files: dict[str, str]) -> None:
        self._check(uuid)
        self.messages.append((uuid, len(files)))
        self.files.setdefault(uuid, {}).update(files)

    def inventory(self, uuid: str, parts: Sequence[int]) -> Inventory:
        self._check(uuid)
        return inventory_of(self.files.setdefault(uuid, {}), parts)

    def archive(self, uuid: str, job_ids: Sequence[int]) -> None:
        self._check(uuid)
        for job_id in job_ids:
            self.files[uuid][archive_file(job_id)] = self.files[uuid].pop(f"job-{job_id}")

    def purge(self, uuid: str) -> None:
        self._check(uuid)
        self.purged.append(uuid)
        self.files[uuid] = {}

    def set_drained(self, uuids: Sequence[str], drained: bool) -> list[str]:
        for uuid in uuids:
            self.files[uuid].pop("drain", None)
            if drained:
                self.files[uuid]["drain"] = ""
        return sorted(self.failing)


def test_candidates_get_everything(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lab = Lab(tmp_path / "queue")
    candidates = Candidates()
    lab.queue = lab.new(transport=candidates)
    lab.queue.start()
    results = lab.queue.submit_many([[op("a")] for _ in range(20)])
    for _, job_id in results:
        lab.wait(job_id)
    lab.queue.archive(1)
    lab.queue.set_drain(True)
    lab.queue.set_drain(False)

    def same(uuid: str) -> bool:
        here = {
            name: (lab.path / name).read_text()
            for name in os.listdir(lab.path)
            if name.startswith("job-") or name in ("serial", "version")
        }
        there = {
            name: text
            for name, text in candidates.files[uuid].items()
            if not name.startswith("archive/") and name != "drain"
        }
        return here == there

    until(lambda: same("one") and same("two"))
    assert "archive/0/job-1" in candidates.files["one"]
    assert len(candidates.messages) < 80, "messages are shared by jobs"

    candidates.failing = {"one", "two"}
    job_id = lab.queue.submit([op("b")])
    assert lab.wait(job_id) == "success"
    assert any("2 of 2 master candidates" in record.message for record in caplog.records)
    candidates.present = ["two", "three"]
    candidates.failing = set()
    assert lab.wait(lab.queue.submit([op("c")])) == "success"
    candidates.files.setdefault("three", {})
    until(lambda: same("three") and same("two"))
    assert "archive/0/job-1" in candidates.files["three"], "a newcomer gets the archive, too"
    assert candidates.purged == []
    lab.queue.stop()


def test_a_hanging_candidate_is_not_waited_for_twice(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "queue")
    candidates = Candidates()
    hang = threading.Event()
    free = candidates.update

    def update(uuid: str, files: dict[str, str]) -> None:
        if uuid == "one":
            assert hang.wait(PATIENCE_S)
        free(uuid, files)

    candidates.update = update  # type: ignore[method-assign]
    lab.queue = lab.new(transport=candidates)
    lab.queue.start()
    for _ in range(10):
        assert lab.wait(lab.queue.submit([op("a")])) == "success"
    until(lambda: "job-10" in candidates.files["two"])
    assert candidates.files["one"] == {}
    hang.set()
    until(lambda: candidates.files["one"].get("job-10") == candidates.files["two"]["job-10"])
    lab.queue.stop()


def test_many_jobs_are_answered_before_they_begin(tmp_path: Path) -> None:
    """Otherwise their work would hold up the answer; the one of few begins at once."""
    lab = Lab(tmp_path / "queue")
    candidates = Candidates()
    hang, hanging = threading.Event(), threading.Event()
    free = candidates.update

    def update(uuid: str, files: dict[str, str]) -> None:
        hanging.set()
        assert hang.wait(PATIENCE_S)
        free(uuid, files)

    lab.queue = lab.new(transport=candidates, max_running=2)
    replicator = lab.queue.replicator
    assert replicator is not None
    replicator._wait_s = PATIENCE_S
    lab.queue.start()
    assert lab.wait(lab.queue.submit([op("before")])) == "success"
    until(lambda: not replicator.lagging())
    candidates.update = update  # type: ignore[method-assign]
    answered = threading.Event()
    lab.queue.submit_many_async(
        [
            [op("late", priority=10)],
            *([op(f"job {number}")] for number in range(8)),
            [op("early", priority=-10)],
        ],
        lambda results, error: answered.set(),
    )
    assert hanging.wait(PATIENCE_S)
    lab.queue.submit_async([op("single")], lambda result, error: None)
    until(lambda: "single" in lab.order)
    assert not answered.is_set()
    assert lab.order == ["before", "single"]
    hang.set()
    assert answered.wait(PATIENCE_S)
    until(lambda: len(lab.order) == 12)
    assert "early" in lab.order[2:4], "two workers"
    lab.queue.stop()


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.sampled_from(["submit", "many", "fail", "cancel", "priority", "archive", "restart"]),
        max_size=25,
    ),
    st.randoms(use_true_random=False),
)
def test_any_sequence_keeps_the_promises(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str], random: Any
) -> None:
    lab = Lab(tmp_path_factory.mktemp("lab") / "queue")
    lab.queue.start()
    known: list[int] = []
    number = 0
    for step in steps:
        if step == "restart":
            lab.queue.stop(PATIENCE_S)
            lab.queue = lab.new()
            lab.queue.start()
        elif step in ("submit", "fail"):
            number += 1
            known.append(lab.queue.submit([op("fail" if step == "fail" else f"op {number}")]))
        elif step == "many":
            number += 3
            depends = [[-1, ["success", "error", "canceled"]]]
            known += [
                job_id
                for _, job_id in lab.queue.submit_many(
                    [
                        [op(f"op {number}")],
                        [op(f"op {number + 1}", depends=depends), op(f"op {number + 2}")],
                    ]
                )
            ]
            number += 3
        elif known:
            job_id = random.choice(known)
            if step == "cancel":
                lab.queue.cancel(job_id)
            elif step == "priority":
                lab.queue.change_priority(job_id, random.randint(-20, 19))
            else:
                lab.queue.archive(job_id)
    assert len(set(known)) == len(known)
    for job_id in known:
        assert lab.wait(job_id) in jobs.FINALIZED
    names = [name for name in lab.order if name.startswith("op ")]
    assert len(set(names)) == len(names), "ran twice"
    lab.queue.stop(PATIENCE_S)
    assert not lab.died.is_set()
