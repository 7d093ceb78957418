"""The life of jobs in the queue, from submission to their results."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ganeti import errors
from ganeti.jqueue import job as jobs
from ganeti.opcodes.test import OpTestDelay

from .queue_lab import PATIENCE_S, Lab, op


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
    assert job.state.livelock is not None
    # The name of the daemon's, or of the job's own process.
    assert lab.processes == job.state.livelock.rpartition("/")[2].startswith(f"job_{job_id}_")
    assert lab.processes or job.state.livelock == "/livelock"
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
    with pytest.raises(errors.OpPrereqError, match="before the first"):
        lab.queue.submit([op(depends=[[-1, []]])])


def test_a_job_without_opcodes_has_succeeded(lab: Lab) -> None:
    job_id = lab.queue.submit([])
    assert lab.wait(job_id) == "success"
    assert lab.queue.operations.archive(job_id)


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


def test_nobody_holds_the_lock_while_files_are_written(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a slow disk would keep all clients and all other jobs waiting."""
    steps: list[str] = []
    holding: list[str] = []

    def look(step: str) -> None:
        steps.append(step)
        if lab.queue.table.lock._is_owned():  # type: ignore[attr-defined]
            holding.append(step)

    monkeypatch.setattr(lab, "_fault", look)
    lab.restart()
    gate = lab.gate("work")
    first = lab.queue.submit([op("work")])
    assert lab.reached["work"].wait(PATIENCE_S)
    waiting = lab.queue.submit([op("late", depends=[[first, ["success"]]])])
    lab.queue.operations.change_priority(waiting, -5)
    lab.queue.operations.cancel(waiting)
    lab.queue.set_drain(True)
    lab.queue.set_drain(False)
    gate.set()
    assert lab.wait(first) == "success"
    assert lab.queue.operations.archive(first)
    lab.restart()
    assert {"write journal", "flush journal", "write file", "rename file"} <= set(steps)
    assert holding == []


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
                lab.queue.operations.cancel(job_id)
            elif step == "priority":
                lab.queue.operations.change_priority(job_id, random.randint(-20, 19))
            else:
                lab.queue.operations.archive(job_id)
    assert len(set(known)) == len(known)
    for job_id in known:
        assert lab.wait(job_id) in jobs.FINALIZED
    names = [name for name in lab.order if name.startswith("op ")]
    assert len(set(names)) == len(names), "ran twice"
    lab.queue.stop(PATIENCE_S)
    assert not lab.died.is_set()
