"""The allocator in the master daemon answers like the program ``hail``."""

from __future__ import annotations

import contextlib
import io
import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.config import GROUP, FakeConfig, cluster_of, disk_of, instance_of, uuid_of
from fakes.rpc import FakeRpc
from ganeti import allocator, errors
from ganeti.allocator import builtin
from ganeti.client.htools import hail, program
from ganeti.objects import NodeGroup

HERE = Path(__file__).resolve()
RECORDED = sorted((HERE.parents[2] / "data/htools").glob("hail-*.json"))
SEEDS = range(12)
MODES = ("allocate", "multi-allocate", "relocate", "node-evacuate", "change-group")


def answer_of_program(request: Path, *options: str) -> object:
    """What the program prints; None when it fails."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = program.main(hail.PROGRAM, [str(request), *options])
    return json.loads(out.getvalue()) if code == 0 else None


def answer_inside(description: dict, parameters: dict) -> object:
    """What the master daemon computes; None when it fails."""
    try:
        found = builtin.answer(description, parameters)
    except errors.AllocatorError:
        return None
    return {"success": found.success, "info": found.info, "result": found.result}


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
@pytest.mark.parametrize("flags", [(), ("ignore-soft-errors",), ("no-capacity-checks",)])
def test_recorded_requests(path, flags):
    expected = answer_of_program(path, *(f"--{flag}" for flag in flags))
    assert answer_inside(json.loads(path.read_text()), dict.fromkeys(flags)) == expected


def made_up(seed: int) -> FakeRpc:
    """A cluster with two groups, and nodes of different sizes."""
    r = random.Random(seed)
    count = r.randint(3, 7)
    disks, instances = [], []
    for number in range(r.randint(1, 8)):
        name = f"one{number}"
        own = [disk_of(name, 0)] if r.random() < 0.6 else []
        disks += own
        instances.append(
            instance_of(
                name, f"node{r.randint(1, count)}", disks=tuple(one.uuid for one in own),
                admin_state=r.choice(["up", "up", "down"]),
                beparams={"maxmem": r.choice([128, 512, 1024]), "vcpus": r.randint(1, 3)},
            )
        )  # fmt: skip
    data = cluster_of(
        count, tuple(instances), tuple(disks),
        node_changes={number: {"group": "group-2"} for number in range(1, count + 1)
                      if r.random() < 0.4},
    )  # fmt: skip
    data.nodegroups["group-2"] = NodeGroup(
        name="rack2", alloc_policy=r.choice(["preferred", "last_resort", "unallocable"]),
        ndparams={}, ipolicy={"vcpu-ratio": r.choice([1.0, 4.0])}, diskparams={}, networks={},
        uuid="group-2", serial_no=1,
    )  # fmt: skip
    made = FakeRpc(FakeConfig(data))
    made.free_mib = {f"node{n}.example.com": r.randint(500, 4096) for n in range(1, count + 1)}
    for one in instances:
        if one.admin_state == "up":
            made.run(one.name.split(".")[0], data.nodes[one.primary_node].name.split(".")[0])
    return made


def new(name: str, r: random.Random) -> allocator.Allocate:
    return allocator.Allocate(
        name=name, hypervisor="fake", os="noop", memory_mib=r.choice([128, 700, 2000]),
        vcpus=r.randint(1, 4), spindle_use=1, disk_template=r.choice(["sharedfile", "diskless"]),
        disks=({"size": 1024, "mode": "rw", "name": None},), nics=(),
        group=r.choice([None, None, GROUP]),
    )  # fmt: skip


def request_of(mode: str, rpc: FakeRpc, r: random.Random) -> allocator.AllocationRequest:
    instances = tuple(one.uuid for one in rpc.config.instances() if one.disks)
    if mode == "allocate":
        return new("new.example.com", r)
    if mode == "multi-allocate":
        return allocator.MultiAllocate(tuple(new(f"new{n}.example.com", r) for n in range(3)))
    if mode == "change-group":
        return allocator.ChangeGroup(instances)
    if mode == "node-evacuate" or not instances:
        return allocator.NodeEvacuate(instances, "primary-only", ignore_soft_errors=True)
    first = rpc.config.snapshot().instances[instances[0]]
    return allocator.Relocate(first.uuid, (first.primary_node,))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", SEEDS)
def test_random_clusters(seed, mode, tmp_path):
    rpc = made_up(seed)
    config = rpc.config.snapshot()
    request = request_of(mode, rpc, random.Random(seed))
    file = tmp_path / "request"
    file.write_text(json.dumps(allocator.prepare(rpc, config, request)))
    options = [f"--{key}" for key in request.parameters()]
    text = allocator.run(rpc, config, "hail", request)
    assert json.loads(text) == answer_of_program(file, *options)
    assert not rpc.of("iallocator_runner")


# -- in the master daemon ------------------------------------------------------------------------


@pytest.fixture
def rpc() -> FakeRpc:
    data = cluster_of(3, (instance_of("web"),), node_changes={3: {"drained": True}})
    made = FakeRpc(FakeConfig(data))
    made.free_mib = {"node1.example.com": 1000, "node2.example.com": 3000}
    return made


def place(rpc: FakeRpc, **changes: object) -> tuple[str, ...]:
    values: dict = {
        "name": "new.example.com", "hypervisor": "fake", "os": "noop", "memory_mib": 512,
        "vcpus": 1, "spindle_use": 1, "disk_template": "diskless", "disks": (), "nics": (),
    }  # fmt: skip
    request = allocator.Allocate(**{**values, **changes})
    return allocator.ask(rpc, rpc.config.snapshot(), "hail", request)


def test_the_best_node_is_chosen_without_a_program(rpc):
    assert place(rpc) == ("uuid-node2",)
    assert sorted(rpc.names()) == ["all_instances_info"] + ["node_info"] * 3


def test_no_place(rpc):
    with pytest.raises(errors.NoPlacement) as caught:
        place(rpc, memory_mib=30000)
    assert str(caught.value) == (
        "instance allocator hail found no place: new.example.com needs 29.3 GiB of memory, and the"
        " most free is 2.9 GiB, on node2.example.com (so on 2 of 2 nodes): use less memory"
        " (-B memory=SIZE), or stop or move other instances [FailMem]; not usable:"
        " node3.example.com is drained (gnt-node modify --drained=no node3.example.com)"
    )


def test_the_answer_for_programs_keeps_its_form(rpc):
    request = allocator.Allocate(
        name="new.example.com", hypervisor="fake", os="noop", memory_mib=30000, vcpus=1,
        spindle_use=1, disk_template="diskless", disks=(), nics=(),
    )  # fmt: skip
    found = json.loads(allocator.run(rpc, rpc.config.snapshot(), "hail", request))
    assert found == {
        "success": False,
        "info": "Request failed: Group default (preferred): No valid allocation solutions, failure"
        " reasons: FailMem: 2",
        "result": [],
    }


def test_each_of_several_new_instances_has_its_reason(rpc):
    large = allocator.Allocate(
        name="large.example.com", hypervisor="fake", os="noop", memory_mib=30000, vcpus=1,
        spindle_use=1, disk_template="diskless", disks=(), nics=(),
    )  # fmt: skip
    found = allocator.ask(rpc, rpc.config.snapshot(), "hail", allocator.MultiAllocate((large,)))
    assert found.failed == ("large.example.com",)
    assert found.reasons["large.example.com"].startswith("large.example.com needs 29.3 GiB")


def test_an_evacuation_says_why(rpc):
    for name in ("node1.example.com", "node2.example.com"):
        rpc.free_mib[name] = 0
    request = allocator.NodeEvacuate((uuid_of("web"),), "primary-only")
    moves = allocator.ask(rpc, rpc.config.snapshot(), "hail", request)
    ((name, reason),) = moves.failed
    assert name == "web.example.com"
    assert "of memory, and node2.example.com has 0 MiB free" in reason


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"restrict-allocation-to": "node1.example.com"}, ("uuid-node1",)),
        ({"verbose": None, "print-nodes": "name"}, ("uuid-node2",)),
        ({"ignore-soft-errors": False}, ("uuid-node2",)),
    ],
)
def test_parameters_of_the_cluster(rpc, parameters, expected):
    rpc.config.snapshot().cluster.default_iallocator_params.update(parameters)
    assert place(rpc) == expected


@pytest.mark.parametrize("name", ["simulate", "text-data", "max-cpu", "mond"])
def test_a_parameter_which_only_the_program_has(rpc, name):
    rpc.config.snapshot().cluster.default_iallocator_params[name] = None
    with pytest.raises(errors.AllocatorError, match=f"no parameter '{name}'"):
        place(rpc)


def test_an_instance_whose_node_is_lost_does_not_move(rpc):
    request = allocator.NodeEvacuate((uuid_of("web"),), "secondary-only")
    moves = allocator.ask(rpc, rpc.config.snapshot(), "hail", request)
    assert [name for name, _ in moves.failed] == ["web.example.com"]


@pytest.mark.programs
def test_the_master_daemon_does_not_load_numpy():
    code = (
        "import sys; import ganeti.allocator.ask, ganeti.cmdlib.instance.create;"
        " sys.exit('numpy' in sys.modules)"
    )
    top = HERE.parents[3]
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(top / "lib")}, check=False
    )
    assert done.returncode == 0
