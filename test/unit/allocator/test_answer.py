"""Answers of allocators: recorded ones, and everything that can be wrong with one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fakes.config import GROUP, FakeConfig, cluster_of, instance_of, uuid_of
from fakes.rpc import FakeRpc
from ganeti import allocator, errors
from ganeti.allocator import answers

DATA = Path(__file__).resolve().parents[2] / "data" / "iallocator"


def answer(result: object, **changes: object) -> str:
    return json.dumps({"success": True, "info": "done", "result": result, **changes})


@pytest.fixture
def config() -> FakeConfig:
    return FakeConfig(
        cluster_of(
            5,
            tuple(instance_of(f"instance{number}") for number in range(1, 9)),
            node_changes={
                3: {"offline": True},
                4: {"drained": True},
                5: {"vm_capable": False},
            },
            default_iallocator_params={"max-cpu": 5},
        )
    )


@pytest.fixture
def rpc(config: FakeConfig) -> FakeRpc:
    return FakeRpc(config)


def new(name="new.example.com", template="diskless", **changes):
    return allocator.Allocate(
        name=name, hypervisor="fake", os="noop", memory_mib=128, vcpus=1, spindle_use=1,
        disk_template=template, disks=(), nics=(), **changes
    )  # fmt: skip


def ask(rpc: FakeRpc, request: allocator.AllocationRequest, text: str) -> object:
    rpc.answers["iallocator_runner"] = text
    return allocator.ask(rpc, rpc.config.snapshot(), "chooser", request)


def refused(rpc: FakeRpc, request: allocator.AllocationRequest, text: str) -> str:
    with pytest.raises(errors.AllocatorError) as caught:
        ask(rpc, request, text)
    assert not isinstance(caught.value, errors.NoPlacement)
    assert "instance allocator chooser" in str(caught.value)
    return str(caught.value)


# -- the outer shape -------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["allocate", "allocate-disks", "change-group", "multi-allocate", "node-evacuate"]
)
def test_recorded_answers_are_read(name):
    found = answers.parse("chooser", (DATA / f"3.0.2-{name}-answer.json").read_text())
    assert found.success
    assert found.info.startswith("Request successful")
    assert isinstance(found.result, list)


def test_it_runs_on_the_master_with_the_clusters_parameters(rpc):
    ask(rpc, allocator.NodeEvacuate((), "all", ignore_soft_errors=True), answer([[], [], []]))
    ((node, args),) = rpc.of("iallocator_runner")
    assert node == "node1.example.com"
    assert args["name"] == "chooser"
    assert args["parameters"] == {"max-cpu": 5, "ignore-soft-errors": None}
    assert json.loads(args["request"])["request"]["type"] == "node-evacuate"


def test_the_old_name_of_the_result(rpc):
    text = json.dumps({"success": True, "info": "", "nodes": ["node2.example.com"]})
    assert ask(rpc, new(), text) == ("uuid-node2",)


def test_no_place_is_an_answer_of_its_own(rpc):
    with pytest.raises(errors.NoPlacement, match="chooser found no place: FailMem: 3"):
        ask(rpc, new(), answer([], success=False, info="FailMem: 3"))
    with pytest.raises(errors.NoPlacement, match="gives no reason"):
        ask(rpc, new(), answer([], success=False, info=""))


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        ("", "cannot be read"),
        ("Traceback (most recent call last)", "begins with 'Traceback"),
        ("[]", "not a JSON object"),
        ('"fine"', "not a JSON object"),
        ("{}", "no key 'success'"),
        ('{"success": true, "result": []}', "no key 'info'"),
        ('{"success": true, "info": ""}', "no key 'result'"),
        ('{"success": 1, "info": "", "result": []}', "1 for success"),
        ('{"success": true, "info": null, "result": []}', "None for info"),
        ('{"success": true, "info": "", "result": NaN}', "cannot be read"),
    ],
)
def test_what_is_no_answer(rpc, text, fragment):
    assert fragment in refused(rpc, new(), text)


def test_a_failing_allocator(rpc):
    rpc.errors["iallocator_runner"] = (
        "instance allocator chooser exited with exit code 1: no memory"
    )
    assert refused(rpc, new(), "").endswith("exit code 1: no memory")
    rpc.errors["iallocator_runner"] = errors.NodeUnreachable("node1", "iallocator_runner", "gone")
    assert "cannot be run" in refused(rpc, new(), "")


# -- nodes -----------------------------------------------------------------------


def test_nodes_come_back_by_uuid_primary_first(rpc):
    assert ask(rpc, new(), answer(["node2.example.com"])) == ("uuid-node2",)
    pair = answer(["node2.example.com", "node1.example.com"])
    assert ask(rpc, new(template="drbd"), pair) == ("uuid-node2", "uuid-node1")


@pytest.mark.parametrize(
    ("request_", "result", "fragment"),
    [
        (new(), "node1.example.com", "not a list of node names"),
        (new(), None, "not a list"),
        (new(), [], "needs 1 node, not 0"),
        (new(), ["node1.example.com", "node2.example.com"], "needs 1 node, not 2"),
        (new(template="drbd"), ["node1.example.com"], "needs 2 nodes, not 1"),
        (new(template="drbd"), ["node1.example.com"] * 2, "node1.example.com twice"),
        (new(), ["node9.example.com"], "no node 'node9.example.com'"),
        (new(), ["node1"], "no node 'node1'"),
        (new(), [7], "no node 7"),
        (new(), [["node1.example.com"]], "no node ['node1"),
        (new(), ["node3.example.com"], "is offline"),
        (new(), ["node4.example.com"], "is drained"),
        (new(), ["node5.example.com"], "not vm_capable"),
        (
            new(only_nodes=frozenset(("uuid-node2",))),
            ["node1.example.com"],
            "not one of the nodes which",
        ),
    ],
)
def test_nodes_that_cannot_be(rpc, request_, result, fragment):
    assert fragment in refused(rpc, request_, answer(result))


def test_a_node_of_another_group(config, rpc):
    other = config.group(GROUP)
    data = cluster_of(2, node_changes={2: {"group": "group-2"}})
    data.nodegroups["group-2"] = type(other)(**{
        **{name: getattr(other, name) for name in other.__dataclass_fields__},
        "name": "rack2", "uuid": "group-2",
    })  # fmt: skip
    elsewhere = FakeRpc(FakeConfig(data))
    text = answer(["node2.example.com"])
    assert "is not in group default" in refused(elsewhere, new(group=GROUP), text)
    assert ask(elsewhere, new(group="group-2"), text) == ("uuid-node2",)
    moved = FakeRpc(FakeConfig(cluster_with(data)))
    relocate = allocator.Relocate(uuid_of("instance1"), ("uuid-node1",))
    assert "in group rack2, but" in refused(moved, relocate, text)


def cluster_with(data):
    instance = instance_of("instance1")
    data.instances[instance.uuid] = instance
    return data


def test_relocation(rpc):
    request = allocator.Relocate(uuid_of("instance1"), ("uuid-node1",))
    assert ask(rpc, request, answer(["node2.example.com"])) == ("uuid-node2",)
    text = refused(rpc, request, answer(["node1.example.com"]))
    assert "instance1.example.com is on node node1.example.com already" in text


def test_a_secondary(rpc):
    request = allocator.AllocateSecondary(uuid_of("instance1"))
    assert ask(rpc, request, answer("node2.example.com")) == "uuid-node2"
    assert "primary node" in refused(rpc, request, answer("node1.example.com"))
    assert "no node ['node2" in refused(rpc, request, answer(["node2.example.com"]))


# -- several instances -----------------------------------------------------------


def test_several_placements(rpc):
    request = allocator.MultiAllocate((new("a"), new("b")))
    found = ask(rpc, request, answer([[["a", ["node2.example.com"]]], ["b"]]))
    assert found == allocator.Placements({"a": ("uuid-node2",)}, ("b",))


@pytest.mark.parametrize(
    ("result", "fragment"),
    [
        ([[]], "not a list of 2"),
        ([[], []], "instance a, b of the request is not in the answer"),
        ([[["a", ["node2.example.com"]]], []], "instance b of the request is not in the answer"),
        ([[["c", ["node2.example.com"]]], ["a", "b"]], "'c', which is not in the request"),
        ([[["a"]], ["a", "b"]], "an instance and its nodes"),
        ([[["a", ["node3.example.com"]]], ["b"]], "offline"),
        ([{"a": []}, []], "not a list of placed instances"),
    ],
)
def test_placements_that_cannot_be(rpc, result, fragment):
    request = allocator.MultiAllocate((new("a"), new("b")))
    assert fragment in refused(rpc, request, answer(result))


# -- moves -----------------------------------------------------------------------


def test_recorded_moves(rpc):
    request = allocator.NodeEvacuate((uuid_of("instance8"),), "primary-only")
    text = (DATA / "3.0.2-node-evacuate-answer.json").read_text()
    text = text.replace("node3.example.com", "node2.example.com")
    found = ask(rpc, request, text)
    assert found.moved == (("instance8.example.com", "default", ("node2.example.com",)),)
    assert found.failed == ()
    ((op,),) = found.jobs
    assert op.OP_ID == "OP_INSTANCE_MIGRATE"
    assert (op.instance_name, op.target_node) == ("instance8.example.com", "node2.example.com")
    assert op.allow_failover is True


def test_recorded_refusal_to_move(rpc):
    request = allocator.ChangeGroup((uuid_of("instance4"),), (GROUP,))
    found = ask(rpc, request, (DATA / "3.0.2-change-group-answer.json").read_text())
    (failed,) = found.failed
    assert failed[0] == "instance4.example.com"
    assert "FailN1: 1" in failed[1]
    assert found.moved == () and found.jobs == ()


@pytest.mark.parametrize(
    ("result", "fragment"),
    [
        ([], "not a list of 3"),
        ([[], []], "not a list of 3"),
        ([[["instance1.example.com", "default"]], [], []], "its group and its nodes"),
        ([[["x", "default", []]], [], []], "no instance 'x'"),
        ([[["instance1.example.com", "rack9", []]], [], []], "no node group 'rack9'"),
        ([[["instance1.example.com", "default", ["n"]]], [], []], "no node 'n'"),
        ([[], [["instance1.example.com", 5]], []], "5 is not a reason"),
        ([[], ["instance1.example.com"], []], "an instance and a reason"),
        ([[], [], [{}]], "not a list of opcodes"),
        ([[], [], [["migrate"]]], "'migrate' is not an opcode"),
        ([[], [], [[{"OP_ID": "OP_CLUSTER_DESTROY"}]]], "not an opcode that moves"),
        ([[], [], [[{"OP_ID": "OP_INSTANCE_MIGRATE"}]]], "OP_INSTANCE_MIGRATE"),
        (
            [[], [], [[{"OP_ID": "OP_INSTANCE_MIGRATE", "instance_name": "gone.example.com"}]]],
            "no instance 'gone.example.com'",
        ),
        (
            [[], [], [[{"OP_ID": "OP_INSTANCE_FAILOVER", "instance_name": "x", "colour": "red"}]]],
            "colour",
        ),
    ],
)
def test_moves_that_cannot_be(rpc, result, fragment):
    request = allocator.NodeEvacuate((uuid_of("instance1"),), "all")
    assert fragment in refused(rpc, request, answer(result))
