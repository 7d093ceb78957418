"""Who is asked, with what, and for how long."""

import dataclasses

import pytest

from fakes.config import cluster_of, disk_of, instance_of, uuid_of
from fakes.otlp_receiver import recorded
from ganeti import errors
from ganeti.http import client
from ganeti.platform import paths
from ganeti.rpc import AddressRunner, Question, RpcRunner, open_client
from ganeti.rpc.runner import OFFLINE_TIMEOUT_S
from ganeti.utils import tracing, x509
from ganeti.wire import calls, json


class Wire:
    """Keeps requests, answers with ``[true, null]`` or what a test wants."""

    def __init__(self):
        self.requests = []
        self.answer = client.Reply(200, b"[true, null]", "")

    def perform(self, requests, on_outcome=None):
        self.requests.append(list(requests))
        if on_outcome is not None:
            on_outcome(len(requests) - 1, self.answer)
        return [self.answer for _ in requests]


@pytest.fixture
def wire():
    return Wire()


@pytest.fixture
def runner(wire):
    config = cluster_of(4, node_changes={3: {"offline": True}}, instances=(instance_of("web"),))
    return RpcRunner(lambda: config, wire, 1811)


NODES = [uuid_of(f"node{number}") for number in range(1, 5)]


def test_one_fan_out(runner, wire):
    answers = runner.call_many(calls.TEST_DELAY, NODES, duration_s=1)
    assert list(answers) == NODES
    assert len(wire.requests) == 1
    assert [request.body for request in wire.requests[0]] == [b"[1]"] * 3
    assert {request.timeout_s for request in wire.requests[0]} == {6}
    assert {request.procedure for request in wire.requests[0]} == {"test_delay"}
    assert [answer.offline for answer in answers.values()] == [False, False, True, False]
    assert isinstance(answers[NODES[2]].failure, errors.NodeOffline)
    assert answers[NODES[0]].payload() is None


def test_results_are_reported_as_soon_as_nodes_have_answered(runner, wire):
    """The fake client reports one answer before all have come."""
    seen = []
    answers = runner.call_together(
        [
            Question(calls.TEST_DELAY, NODES, {"duration_s": 1}),
            Question(calls.VERSION, NODES[:1], {}),
        ],
        lambda call, uuid, result: seen.append((call.name, uuid, result)),
    )
    assert seen[0] == ("version", NODES[0], answers[1][NODES[0]])
    assert sorted(seen[1:]) == sorted(
        ("test_delay", uuid, result) for uuid, result in answers[0].items() if not result.offline
    )


def test_call_that_is_made_on_offline_nodes_too(runner, wire):
    wire.answer = client.Reply(200, b"[true, 1]", "")
    assert runner.call(calls.VERSION, NODES[2]).payload() == 1


def test_a_caller_who_does_not_believe_the_mark(runner, wire):
    """A node which is marked offline is asked with the others, and has little time to answer."""
    wire.answer = client.Reply(200, b"[true, {}]", "")
    answers = runner.call_many(
        calls.INSTANCE_INFO,
        NODES[1:3],
        even_offline=True,
        instance_name="web",
        hypervisor="fake",
        hvparams={},
    )
    assert [answer.payload() for answer in answers.values()] == [{}, {}]
    assert [request.timeout_s for request in wire.requests[0]] == [60, OFFLINE_TIMEOUT_S]


def test_a_machine_which_is_on_without_its_daemon(runner, wire):
    wire.answer = client.Failure(client.UNREACHABLE, "Connection refused", machine_is_on=True)
    failure = runner.call(calls.VERSION, NODES[0]).failure
    assert isinstance(failure, errors.NodeUnreachable)
    assert failure.machine_is_on


def test_unknown_node(runner, wire):
    result = runner.call(calls.VERSION, "no-such-uuid")
    assert isinstance(result.failure, errors.NodeUnreachable)
    assert "not in the configuration" in str(result.failure)
    assert wire.requests == [[]]


def test_nobody_to_ask(runner):
    assert runner.call_many(calls.VERSION, []) == {}


def test_a_node_twice_is_asked_once(runner, wire):
    runner.call_many(calls.TEST_DELAY, [NODES[0], NODES[0]], duration_s=0)
    assert len(wire.requests[0]) == 1


def test_arguments_per_node(runner, wire):
    runner.call_many(
        calls.BLOCKDEV_SETINFO,
        NODES[:2],
        info="text",
        per_node={
            uuid: {"disk": (disk_of("web", number), instance_of("web"))}
            for number, uuid in enumerate(NODES[:2])
        },
    )
    bodies = [json.loads(request.body) for request in wire.requests[0]]
    assert [body[0]["iv_name"] for body in bodies] == ["disk/0", "disk/1"]
    assert [body[1] for body in bodies] == ["text", "text"]


def test_wrong_arguments_reach_nobody(runner, wire):
    with pytest.raises(errors.ProgrammerError):
        runner.call(calls.TEST_DELAY, NODES[0], duration_ms=1)
    assert wire.requests == []


def test_disk_of_unknown_node(runner):
    instance = dataclasses.replace(instance_of("web"), primary_node="gone")
    with pytest.raises(errors.ConfigurationError, match="gone is not in the configuration"):
        runner.call(calls.BLOCKDEV_FIND, NODES[0], disk=(disk_of("web"), instance))


def test_by_address(wire):
    runner = AddressRunner(wire, 4711)
    answers = runner.call_addresses(calls.TEST_DELAY, {"new": "192.0.2.9"}, duration_s=0)
    assert answers["new"].node_name == "new"
    assert wire.requests[0][0][:2] == ("192.0.2.9", 4711)


def test_without_configuration_nothing_is_filled(wire):
    with pytest.raises(errors.ProgrammerError, match="without the configuration"):
        AddressRunner(wire, 1).call_addresses(
            calls.INSTANCE_MIGRATABLE, {"n": "192.0.2.9"}, instance=instance_of("web")
        )


def test_client_wants_a_cluster(tmp_path):
    here = paths.Paths(str(tmp_path))
    with pytest.raises(errors.ConfigurationError, match="belongs to no cluster"):
        open_client(here)
    (tmp_path / "var/lib/ganeti").mkdir(parents=True)
    with open(here.noded_cert_file, "w") as stream:
        stream.write(x509.create_self_signed())
    assert isinstance(open_client(here), client.Client)


def test_calls_of_a_traced_job(runner, wire, monkeypatch):
    with recorded(monkeypatch) as receiver:
        tracing.set_up("ganeti-masterd")
        with tracing.span("exec"):
            runner.call_many(calls.TEST_DELAY, NODES, duration_s=1)
        # What no job asks for is not recorded.
        runner.call_many(calls.TEST_DELAY, NODES, duration_s=1)
        tracing.flush()
        sent = [
            line.removeprefix("traceparent: ").split("-")[2]
            for request in wire.requests[0]
            for line in request.headers
            if line.startswith("traceparent: ")
        ]
        spans = receiver.named("node call test_delay")
        assert sorted(sent) == sorted(one.identity for one in spans) and len(sent) == 3
        assert {one.facts["server.address"] for one in spans} == {
            f"node{number}.example.com" for number in (1, 2, 4)
        }
        assert not any("traceparent" in line for r in wire.requests[1] for line in r.headers)
        assert [receiver.path(one)[0] for one in spans] == ["exec"] * 3
