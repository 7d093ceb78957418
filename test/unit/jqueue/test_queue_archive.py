"""Jobs which have ended leave the queue for the archive."""

from __future__ import annotations

from .queue_lab import Lab, op


def test_archive(lab: Lab) -> None:
    gate = lab.gate("slow")
    running = lab.queue.submit([op("slow")])
    done = lab.queue.submit([op("a")])
    lab.wait(done)
    assert not lab.queue.operations.archive(running)
    assert not lab.queue.operations.archive(12345)
    assert lab.queue.operations.archive(done)
    assert not lab.queue.operations.archive(done)
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


def test_a_job_which_is_being_archived_is_not_archived_again(lab: Lab) -> None:
    job_id = lab.queue.submit([op("a")])
    lab.wait(job_id)
    with lab.queue.table.lock:
        lab.queue.table.jobs[job_id].archived = True
    answers: list[int] = []
    lab.queue.operations.archive_async([job_id], lambda count, _err: answers.append(count))
    assert answers == [0]


def test_auto_archive_by_age(lab: Lab) -> None:
    for _ in range(5):
        lab.wait(lab.queue.submit([op("a")]))
    assert lab.queue.operations.auto_archive(3600, 60) == (0, 0)
    assert lab.queue.operations.auto_archive(-1, -1) == (0, 5), "no time: all are left"
    assert lab.queue.operations.auto_archive(-1, 60) == (5, 0)
    assert lab.queue.query(None, ["id"]) == []
