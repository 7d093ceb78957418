"""The queue stops and starts again, and its disk is full."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ganeti import errors
from ganeti.jobstore import journal
from ganeti.jobstore.store import QueueStore
from ganeti.jqueue import job as jobs
from ganeti.jqueue.execution import Adopted
from ganeti.locking import Level

from .queue_lab import PATIENCE_S, Lab, op, until
from .wire_processes import WireExecutor


def test_a_queue_which_stops_takes_and_starts_nothing(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[int] = []
    monkeypatch.setattr(
        lab.queue.scheduler.pool, "add", lambda number, *_rank: begun.append(number)
    )
    job = jobs.QueuedJob(99, [jobs.QueuedOpCode.from_opcode(op())], (5, 6))
    with lab.queue.table.lock:
        lab.queue.table.stopping = True
        lab.queue.scheduler.schedule(job)
        with pytest.raises(errors.JobQueueError, match="is ending"):
            lab.queue._accept([op()], [], False)
        lab.queue.table.stopping = False
        assert begun == []
        lab.queue.scheduler.schedule(job)
        assert begun == [99]


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
    assert lab.queue.table.unfinished == 0
    lab.restart()
    assert [row[0] for row in lab.queue.query(None, ["id"])] == [running, fresh]


def test_jobs_submitted_together_are_all_there_after_a_crash_or_none(
    lab: Lab, tmp_path: Path
) -> None:
    """A batch whose client has no answer was taken as a whole, or not at all."""
    lab.gate("slow")
    wanted = [[op("slow")], [op("a", depends=[[-1, []]])], [op("b", depends=[[-1, []]])]]
    ids = {f"job-{job_id}" for _, job_id in lab.queue.submit_many(wanted)}
    content = (lab.path / "journal-1").read_bytes()
    lab.gates["slow"].set()
    (tmp_path / "after").mkdir()
    cut, found = tmp_path / "after" / "journal-1", set()
    for size in range(len(content) + 1):
        cut.write_bytes(content[:size])
        (one,) = journal.read_journals(str(cut.parent), [cut.name])
        found.add(frozenset(one.files) & ids)
    assert found == {frozenset(), frozenset(ids)}


def test_who_asks_right_after_a_start_sees_no_thread_as_running(lab: Lab) -> None:
    """A start needs no flush to say so, as another start would come to the same."""
    gate = lab.gate("slow")
    running = lab.queue.submit([op("slow")])
    assert lab.reached["slow"].wait(PATIENCE_S)
    lab.stop_while_running(running)
    lab.fail_names = {"write journal"}
    lab.queue = lab.new()
    lab.queue.start()
    assert lab.row(running, "status") == ["running" if lab.processes else "error"]
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
    assert lab.queue.operations.auto_archive(-1, 60) == (3, 0)
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
    lab.stop_while_running(job_id)
    if not lab.processes:
        gate.set()
    lab.queue = lab.new()
    lab.queue.start()
    gate.set()
    assert lab.wait(job_id) == ("success" if lab.processes else "error")


def test_a_job_goes_on_in_the_next_queue_as_often_as_there_is_one(lab: Lab) -> None:
    """Its later opcodes get another process, because the first may be of an older release."""
    gate = lab.gate("slow")
    job_id = lab.queue.submit([op("slow"), op("b"), op("c")])
    assert lab.reached["slow"].wait(PATIENCE_S)
    until(lambda: lab.row(job_id, "status") == ["running"])
    begun = lab.row(job_id, "opexec")[0][0]
    for _ in range(3 if lab.processes else 1):
        lab.stop_while_running(job_id)
        lab.queue = lab.new()
        lab.queue.start()
    gate.set()
    if not lab.processes:
        assert lab.wait(job_id) == "error"
        assert lab.order == ["slow"]
        return
    assert lab.wait(job_id) == "success"
    assert lab.order == ["slow", "b", "c"]
    assert lab.row(job_id, "opexec")[0][0] == begun
    executor = lab.queue._execution.executor
    assert isinstance(executor, WireExecutor)
    assert executor.opened == 1


def test_a_job_whose_process_could_not_go_on_says_why(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = lab.gate("slow")
    job_id = lab.queue.submit([op("slow"), op("b")])
    assert lab.reached["slow"].wait(PATIENCE_S)
    lab.stop_while_running(job_id)
    monkeypatch.setattr(
        WireExecutor, "adopt", lambda *_args: Adopted({}, {job_id: "of release 0.8.0"})
    )
    lab.queue = lab.new()
    lab.queue.start()
    gate.set()
    assert lab.wait(job_id) == "error"
    why = "of release 0.8.0" if lab.processes else "the master daemon ended while this ran"
    first, second = lab.row(job_id, "opresult")[0]
    assert why in first[1][0] and why in second[1][0]
    assert why in lab.row(job_id, "oplog")[0][0][0][3]


def test_a_process_gets_the_next_opcode_when_the_end_of_the_last_one_is_durable(lab: Lab) -> None:
    """It forgets the result then; a daemon which is killed before would fail the job."""
    gate = lab.gate("slow")
    lab.gate("lock-next").set()
    job_id = lab.queue.submit([op("slow"), op("lock-next")])
    assert lab.reached["slow"].wait(PATIENCE_S)
    refused = lab.count_faults("write journal")
    gate.set()
    until(lambda: len(refused) >= 2)
    job = lab.queue.table.jobs[job_id]
    assert job.ops[0].state.status == jobs.SUCCESS
    assert lab.reached["lock-next"].is_set() != lab.processes
    lab.fail_names = set()
    assert lab.wait(job_id) == "success"
    assert lab.order == ["slow", "lock-next"]
