"""A call whose answer is lost is not over before the node says so."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from fakes.config import cluster_of, instance_of, uuid_of
from ganeti import errors
from ganeti.http import client
from ganeti.objects import codec
from ganeti.objects.transfer import NodeWork
from ganeti.rpc import RpcRunner
from ganeti.rpc.runner import PATIENCE_S
from ganeti.wire import calls, json

NODE = uuid_of("node1")
LOST = client.Failure(client.FAILED, "the connection broke", sent=True)
NEVER_SENT = client.Failure(client.UNREACHABLE, "Connection refused", machine_is_on=True)


class Wire:
    """A node; ``states`` is what it says when asked for its work, one after the other."""

    def __init__(self, outcome: client.Outcome, states: list[Any]) -> None:
        self.outcome = outcome
        self.states = states
        self.token = ""
        # The token of the work which the node names; empty for that of the call.
        self.work_token = ""
        self.header = ""
        self.asked: list[str] = []
        self.bodies: list[Any] = []
        self.log: list[str] = []

    def perform(self, requests: list[client.OutgoingRequest]) -> list[client.Outcome]:
        return [self._answer(request) for request in requests]

    def _answer(self, request: client.OutgoingRequest) -> client.Outcome:
        self.asked.append(request.procedure)
        self.bodies.append(json.loads(request.body))
        if request.procedure == "impexp_cleanup":
            return client.Reply(200, b"[true, null]", "")
        if request.procedure != "node_work":
            for line in request.headers:
                if line.startswith("X-Ganeti-Work: "):
                    self.header = line.partition(": ")[2]
                    self.token = self.header.split()[1]
            return self.outcome
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        if isinstance(state, client.Failure | client.Reply):
            return state
        works = [] if state is None else [self._work(state)]
        return client.Reply(200, json.dumps([True, works]).encode(), "")

    def _work(self, transfer: str) -> dict[str, Any]:
        return codec.to_dict(
            NodeWork(
                job=7,
                epoch="1 x",
                token=self.work_token or self.token,
                call="x",
                doing="y",
                instances=(),
                disks=(),
                since=1.0,
                transfer=transfer or None,
            )
        )


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def runner_on(wire: Wire) -> tuple[RpcRunner, Clock]:
    clock = Clock()
    config = cluster_of(2, instances=(instance_of("web"),))
    runner = RpcRunner(lambda: config, wire, 1811, sleep=clock.sleep, clock=lambda: clock.now)  # type: ignore[arg-type]
    return runner.for_job(7, wire.log.append), clock


def start(runner: RpcRunner) -> errors.RpcError | None:
    return runner.call(
        calls.INSTANCE_START, NODE, instance=instance_of("web"), startup_paused=False, reason=[]
    ).failure


def test_the_job_is_named() -> None:
    wire = Wire(client.Reply(200, b"[true, null]", ""), [None])
    runner, _clock = runner_on(wire)
    assert start(runner) is None
    assert wire.header.split()[0] == "7"
    assert wire.asked == ["instance_start"]


def test_calls_which_change_nothing_have_no_name() -> None:
    wire = Wire(client.Reply(200, b"[true, 1]", ""), [None])
    runner, _clock = runner_on(wire)
    runner.call(calls.VERSION, NODE)
    assert wire.header == ""


def test_it_waits_until_the_work_is_over() -> None:
    wire = Wire(LOST, ["", "", "", None])
    runner, _clock = runner_on(wire)
    failure = start(runner)
    assert isinstance(failure, errors.NodeCallFailed)
    assert wire.asked == ["instance_start", *["node_work"] * 4]
    # Should it arrive later, it is refused.
    assert wire.bodies[1] == [[wire.token]]
    assert runner.unsure == set()
    # The job says what it waits for.
    assert wire.log == [
        "node node1.example.com: the answer about the start of the instance was lost; waiting"
        " until the node does not work on it any more"
    ]


def test_work_of_other_calls_is_not_waited_for() -> None:
    """The node names all its work, such as that of another job."""
    wire = Wire(LOST, [""])
    wire.work_token = "another"
    runner, _clock = runner_on(wire)
    start(runner)
    assert wire.asked == ["instance_start", "node_work"]


def test_it_waits_for_hours() -> None:
    wire = Wire(LOST, [""] * 5000 + [None])
    runner, clock = runner_on(wire)
    start(runner)
    assert clock.now > 3600


def test_a_request_which_was_never_sent_is_over() -> None:
    wire = Wire(NEVER_SENT, [None])
    runner, _clock = runner_on(wire)
    assert isinstance(start(runner), errors.NodeUnreachable)
    assert wire.asked == ["instance_start"]
    assert runner.unsure == set()


def test_a_node_which_does_not_say_is_unsure() -> None:
    wire = Wire(LOST, [NEVER_SENT])
    runner, clock = runner_on(wire)
    assert start(runner) is not None
    assert PATIENCE_S <= clock.now < PATIENCE_S + 5
    assert runner.unsure == {NODE}
    assert "does not say whether it still works on the start of the instance" in wire.log[1]


def test_another_machine_at_its_address_does_not_say_that_it_is_over() -> None:
    """The node may go on; what refuses the call is another one, or nobody knows."""
    wrong = client.Failure(client.REFUSED, "another key", wrong_key=True)
    wire = Wire(LOST, [wrong])
    runner, clock = runner_on(wire)
    assert start(runner) is not None
    assert PATIENCE_S <= clock.now and runner.unsure == {NODE}


def test_the_patience_begins_anew_with_each_answer() -> None:
    silence = [NEVER_SENT] * 8
    wire = Wire(LOST, [*silence, "", *silence, "", *silence, None])
    runner, clock = runner_on(wire)
    start(runner)
    assert clock.now > PATIENCE_S
    assert runner.unsure == set()


def test_a_node_of_another_master_or_version_is_not_asked_again() -> None:
    wire = Wire(LOST, [client.Reply(404, b"unknown procedure node_work", "")])
    runner, _clock = runner_on(wire)
    start(runner)
    assert wire.asked == ["instance_start", "node_work"]


def test_a_transfer_whose_name_was_lost_is_ended() -> None:
    wire = Wire(LOST, ["export-web-1", None])
    runner, _clock = runner_on(wire)
    start(runner)
    assert wire.asked == ["instance_start", "node_work", "impexp_cleanup", "node_work"]
    assert wire.bodies[2] == ["export-web-1"]


@pytest.mark.parametrize("name", ["EXPORT_START", "IMPORT_START"])
def test_work_which_goes_on_after_the_answer_is_asked_about(name: str) -> None:
    assert getattr(calls, name).lasting


def test_a_node_may_work_on_after_its_answer() -> None:
    wire = Wire(client.Reply(200, b"[true, null]", ""), [None])
    runner, _clock = runner_on(wire)
    lasting = dataclasses.replace(calls.INSTANCE_START, lasting=True)
    runner.call(lasting, NODE, instance=instance_of("web"), startup_paused=False, reason=[])
    assert wire.asked == ["instance_start"]
    assert runner.unsure == {NODE}


def test_each_job_counts_for_itself() -> None:
    wire = Wire(LOST, [NEVER_SENT])
    runner, _clock = runner_on(wire)
    other = runner.for_job(8, wire.log.append)
    start(runner)
    assert (len(runner.unsure), len(other.unsure)) == (1, 0)
