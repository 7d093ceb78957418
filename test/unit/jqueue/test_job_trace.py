"""The spans of jobs, and what of them outlives the master daemon."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from fakes.otlp_receiver import Receiver, recorded
from ganeti.jqueue import job as jobs
from ganeti.jqueue.queue import JobQueue
from ganeti.utils import tracing

from .queue_lab import PATIENCE_S, Lab, op

PARENT = f"00-{'a' * 32}-{'b' * 16}-01"


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    with recorded(monkeypatch) as one:
        assert tracing.set_up("ganeti-masterd") == ""
        yield one


def stop(queue: JobQueue) -> None:
    """The threads of the queue end their spans."""
    queue.stop(PATIENCE_S)
    assert tracing.flush() == ""


def test_a_job_its_opcodes_and_its_child(lab: Lab, receiver: Receiver) -> None:
    with tracing.span("LUXI SubmitJob", tracing.SERVER, PARENT) as request:
        job_id = lab.queue.submit([op("first"), op("spawn")])
    assert lab.wait(job_id) == "success"
    children = lab.row(job_id, "opresult")[0][1]["jobs"]
    assert {lab.wait(child) for _accepted, child in children} == {"success"}
    stop(lab.queue)
    assert {one.trace for one in receiver.spans} == {"a" * 32}
    paths = sorted(" > ".join(receiver_path(receiver, one)) for one in receiver.spans)
    job, child = "SubmitJob > job OP_TEST_DELAY", "OP_TEST_DELAY > job OP_TEST_DELAY"
    assert paths == sorted(
        f"LUXI {path}"
        for path in (
            "SubmitJob",
            job,
            f"{job} > queued",
            f"{job} > OP_TEST_DELAY",
            f"{job} > OP_TEST_DELAY",
            *2 * [f"{job} > {child}"],
            *2 * [f"{job} > {child} > queued"],
            *2 * [f"{job} > {child} > OP_TEST_DELAY"],
        )
    )
    (mine,) = (one for one in receiver.spans if one.facts.get("ganeti.job.id") == job_id
               and one.name == "job OP_TEST_DELAY")  # fmt: skip
    assert mine.parent == request.traceparent.split("-")[2]
    assert mine.facts["ganeti.status"] == "success"


def receiver_path(receiver: Receiver, span: object) -> list[str]:
    """The path of a span below the given parent, which is in another program."""
    known = {one.identity: one for one in receiver.spans}
    found: list[str] = []
    at = span
    while at is not None:
        found.insert(0, at.name)  # type: ignore[attr-defined]
        at = known.get(at.parent)  # type: ignore[attr-defined]
    return found


@pytest.mark.parametrize("comment", ["fail", "bug", "odd"])
def test_a_job_which_fails(lab: Lab, receiver: Receiver, comment: str) -> None:
    assert lab.wait(lab.queue.submit([op(comment), op("never")])) == "error"
    stop(lab.queue)
    failed = {one.name for one in receiver.spans if one.failed}
    assert failed == {"job OP_TEST_DELAY", "OP_TEST_DELAY"}
    # Without a parent, the job is the first span.
    assert {one.parent for one in receiver.named("job OP_TEST_DELAY")} == {""}


def test_a_job_which_is_canceled_before_it_begins(lab: Lab, receiver: Receiver) -> None:
    gate = lab.gate("slow")
    first = lab.queue.submit([op("slow")])
    later = lab.queue.submit([op("later", depends=[[first, ["success"]]])])
    assert lab.queue.operations.cancel(later)[0]
    gate.set()
    assert lab.wait(first) == "success" and lab.wait(later) == "canceled"
    stop(lab.queue)
    states = [one.facts["ganeti.status"] for one in receiver.named("job OP_TEST_DELAY")]
    assert sorted(states) == ["canceled", "success"]


def test_a_job_belongs_to_its_trace_after_a_restart(lab: Lab, receiver: Receiver) -> None:
    gate = lab.gate("slow")
    first = lab.queue.submit([op("slow")])
    assert lab.reached["slow"].wait(PATIENCE_S)
    with tracing.span("request", parent=PARENT):
        waits = lab.queue.submit([op("later", depends=[[first, ["success", "error"]]])])
    gate.set()
    lab.restart()
    lab.wait(waits)
    text = (lab.path / f"job-{waits}").read_text()
    assert json.loads(text)["traceparent"].startswith(f"00-{'a' * 32}-")
    stop(lab.queue)
    jobs_of_trace = [one for one in receiver.named("job OP_TEST_DELAY") if one.trace == "a" * 32]
    assert [one.facts["ganeti.job.id"] for one in jobs_of_trace] == [waits]


def test_the_file_of_a_job_without_a_trace_has_the_published_form(lab: Lab) -> None:
    job_id = lab.queue.submit([op()])
    lab.wait(job_id)
    lab.queue.stop(PATIENCE_S)
    text = (lab.path / f"job-{job_id}").read_text()
    assert "traceparent" not in text
    data = json.loads(text)
    assert jobs.decode(json.dumps({**data, "traceparent": PARENT})).trace == PARENT
    for odd in (5, None, "x", [PARENT]):
        assert jobs.decode(json.dumps({**data, "traceparent": odd})).trace == ""
