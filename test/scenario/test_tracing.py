"""One trace of a command, over all processes: command, master daemon, node daemons."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import IN_PROCESSES, Cluster, made, wait_until

from fakes.otlp_receiver import Received, Receiver

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with Receiver() as one:
        yield one


@pytest.fixture(scope="module")
def traced(cluster_directory: Path, receiver: Receiver) -> Iterator[Cluster]:
    """A cluster whose daemons and commands send traces."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.address)
        # The master daemon sends every so many milliseconds.
        patch.setenv("OTEL_BSP_SCHEDULE_DELAY", "200")
        with made(Cluster(cluster_directory, 2, "--hypervisor", "fake")) as one:
            yield one


def whole(receiver: Receiver, command: str, last: str) -> list[Received]:
    """Wait for the trace of a command which has a span of that name; return its spans."""
    found: list[Received] = []

    def arrived() -> bool:
        found.clear()
        for first in receiver.named(command):
            spans = [one for one in list(receiver.spans) if one.trace == first.trace]
            known = {one.identity for one in spans}
            if any(one.name == last for one in spans) and all(
                not one.parent or one.parent in known for one in spans
            ):
                found.extend(spans)
        return bool(found)

    wait_until(arrived, f"the whole trace of {command} has arrived")
    return found


def test_a_job_is_one_trace_over_all_processes(traced: Cluster, receiver: Receiver) -> None:
    other = next(name for name in traced.node_names if name != traced.master)
    traced.add_instance("traced", other).ok()
    traced.run("gnt-instance", "start", "traced").ok()
    spans = whole(receiver, "gnt-instance startup", "node instance_start")
    assert len({one.trace for one in spans}) == 1
    assert {one.service for one in spans} == {"gnt-instance", "ganeti-masterd", "ganeti-noded"}
    (first,) = (one for one in spans if not one.parent)
    assert first.facts["process.exit.code"] == 0 and not first.failed
    (started,) = (one for one in spans if one.name == "node instance_start")
    assert receiver.path(started) == [
        "gnt-instance startup",
        "LUXI SubmitManyJobs",  # of the command, then of the master daemon
        "LUXI SubmitManyJobs",
        "job OP_INSTANCE_STARTUP",
        "OP_INSTANCE_STARTUP",
        *(["job process"] if IN_PROCESSES else []),
        "exec",
        "node call instance_start",
        "node instance_start",
    ]
    by_name = {one.name: one for one in spans}
    job = by_name["job OP_INSTANCE_STARTUP"]
    assert by_name["OP_INSTANCE_STARTUP"].facts["ganeti.job.id"] == job.facts["ganeti.job.id"]
    assert by_name["node call instance_start"].facts["server.address"].startswith(other)
    for name in ("queued", "locks", "check_prereq"):
        assert by_name[name].begin_ns <= by_name[name].end_ns
        assert job.begin_ns <= by_name[name].begin_ns <= job.end_ns


def test_what_failed_is_marked(traced: Cluster, receiver: Receiver) -> None:
    """No such node: the command fails, and so do its job and its opcode."""
    traced.run("gnt-debug", "test-jobqueue").ok()
    traced.run("gnt-node", "modify", "--offline=yes", "--force", "nowhere").failed("nowhere")
    spans = whole(receiver, "gnt-node modify", "OP_NODE_SET_PARAMS")
    failed = {one.name for one in spans if one.failed}
    assert failed >= {"gnt-node modify", "job OP_NODE_SET_PARAMS", "OP_NODE_SET_PARAMS"}


def test_a_receiver_which_does_not_answer_harms_nothing(
    traced: Cluster, receiver: Receiver
) -> None:
    receiver.refuses = 400
    try:
        done = traced.run("gnt-instance", "stop", "traced").ok()
    finally:
        receiver.refuses = 0
    assert f"the receiver of traces at {receiver.address}" in done.stderr
    assert "Traceback" not in done.text
