"""Real allocators get our requests, and their answers come through our checks.

The example of this source, and the original's ``hail`` as it stands in Debian: a program by others,
which reads every key that is published.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from fakes.config import GROUP, FakeConfig, cluster_of, disk_of, instance_of, uuid_of
from fakes.rpc import FakeRpc
from ganeti import allocator, errors
from ganeti.objects import Nic, Node, NodeGroup
from ganeti.utils import process

pytestmark = pytest.mark.programs

TOP = Path(__file__).resolve().parents[3]
EXAMPLE = TOP / "doc/examples/iallocators/most-memory"
HAIL_PLACES = (
    "/usr/lib/ganeti/3.0/usr/lib/ganeti/iallocators/hail",
    "/usr/lib/ganeti/iallocators/hail",
)


@pytest.fixture(params=["most-memory", "hail"])
def program(request: pytest.FixtureRequest) -> str:
    """The path of an allocator that can run here."""
    if request.param == "most-memory":
        return str(EXAMPLE)
    for path in HAIL_PLACES:
        if os.access(path, os.X_OK):
            return path
    pytest.skip("no hail. Run: devel/install-packages ganeti-htools-3.0")


@pytest.fixture
def config() -> FakeConfig:
    """Six nodes, two of them in another group, one offline, one drained; three instances."""
    disk = disk_of("files", 0)
    data = cluster_of(
        6,
        (
            instance_of("web", admin_state="up"),
            instance_of("files", "node2", disks=(disk.uuid,)),
            instance_of("db", "node1", admin_state="up", beparams={"maxmem": 1000}),
        ),
        (disk,),
        node_changes={
            3: {"offline": True},
            4: {"drained": True},
            5: {"group": "group-2"},
            # Alone in its group, hail gives a node nothing: nobody could take over.
            6: {"group": "group-2"},
        },
        tags=("site:lab",),
    )
    data.nodegroups["group-2"] = NodeGroup(
        name="rack2", alloc_policy="last_resort", ndparams={}, ipolicy={}, diskparams={},
        networks={}, uuid="group-2", serial_no=1,
    )  # fmt: skip
    return FakeConfig(data)


@pytest.fixture
def rpc(config: FakeConfig, program: str, tmp_path: Path) -> FakeRpc:
    """Nodes of which the master really runs the program."""
    made = FakeRpc(config)
    made.free_mib = {f"node{number}.example.com": 3000 + 100 * number for number in range(1, 7)}
    made.run("web", "node1")

    def run(node: str, args: dict) -> str:
        request = tmp_path / "request"
        request.write_text(args["request"])
        done = process.run([program, str(request)], timeout_s=600, check=False)
        assert not done.failed, done.output
        return done.stdout

    made.answers["iallocator_runner"] = run
    return made


def new(name: str = "new.example.com", **changes: object) -> allocator.Allocate:
    values: dict = {
        "name": name, "hypervisor": "fake", "os": "noop", "memory_mib": 512, "vcpus": 1,
        "spindle_use": 1, "disk_template": "sharedfile",
        "disks": ({"size": 1024, "mode": "rw", "name": None},),
        "nics": (allocator.allocate_nic(
            Nic(mac="aa:00:00:00:00:99", nicparams={}, uuid="nic"),
            {"mode": "bridged", "link": "br0", "vlan": ""}),),
        "tags": ("x",),
    }  # fmt: skip
    return allocator.Allocate(**{**values, **changes})


def ask(rpc: FakeRpc, request: allocator.AllocationRequest) -> object:
    return allocator.ask(rpc, rpc.config.snapshot(), "program", request)


def test_a_place_is_found(rpc):
    (uuid,) = ask(rpc, new())
    assert uuid in ("uuid-node1", "uuid-node2")


@pytest.mark.parametrize("number", [1, 2])
def test_the_choice_can_be_narrowed_to_nodes(rpc, number):
    only = frozenset((f"uuid-node{number}",))
    assert ask(rpc, new(only_nodes=only)) == (f"uuid-node{number}",)


def test_the_choice_can_be_narrowed_to_a_group(rpc):
    (uuid,) = ask(rpc, new(group="group-2"))
    assert uuid in ("uuid-node5", "uuid-node6")
    (uuid,) = ask(rpc, new(group=GROUP))
    assert uuid in ("uuid-node1", "uuid-node2")


def test_no_place(rpc):
    with pytest.raises(errors.NoPlacement):
        ask(rpc, new(memory_mib=30000))


def test_a_silent_node_is_not_chosen(rpc):
    rpc.errors["node_info", "node2.example.com"] = errors.NodeUnreachable(
        "node2.example.com", "node_info", "no route"
    )
    assert ask(rpc, new(group=GROUP)) == ("uuid-node1",)


@pytest.mark.parametrize("template", ["diskless", "file", "sharedfile"])
def test_every_kind_of_disk(rpc, template):
    rpc.answers["node_info"] = lambda node, args: [
        "boot",
        [{"type": kind, "name": key, "storage_size": 90000, "storage_free": 80000}
         for kind, key, _ in args["storage_units"]],
        [{"memory_total": 8192, "memory_free": 4000, "memory_dom0": 512, "cpu_total": 4,
          "cpu_dom0": 1}],
    ]  # fmt: skip
    disks = () if template == "diskless" else ({"size": 2048, "mode": "rw", "name": None},)
    (uuid,) = ask(rpc, new(disk_template=template, disks=disks))
    assert isinstance(rpc.config.node(uuid), Node)


def test_a_node_is_emptied(rpc):
    moves = ask(rpc, allocator.NodeEvacuate((uuid_of("files"),), "primary-only"))
    assert [name for name, _, _ in moves.moved] == ["files.example.com"]
    assert {op.instance_name for job in moves.jobs for op in job} == {"files.example.com"}


def test_a_relocation(rpc):
    (uuid,) = ask(rpc, allocator.Relocate(uuid_of("files"), ("uuid-node2",)))
    assert uuid == "uuid-node1"


# -- what only hail knows --------------------------------------------------------

only_hail = pytest.mark.parametrize("program", ["hail"], indirect=True)


@only_hail
def test_several_at_once(rpc):
    found = ask(rpc, allocator.MultiAllocate((new("a.example.com"), new("b.example.com"))))
    assert set(found.nodes) == {"a.example.com", "b.example.com"}
    assert found.failed == ()


@only_hail
def test_a_group_is_left(rpc):
    moves = ask(rpc, allocator.ChangeGroup((uuid_of("files"),), ("group-2",)))
    assert [name for name, _, _ in moves.moved] + [name for name, _ in moves.failed] == [
        "files.example.com"
    ]


def test_the_request_is_plain_json(rpc):
    ask(rpc, new())
    ((_node, args),) = rpc.of("iallocator_runner")
    assert json.loads(args["request"])["version"] == 2


def test_the_example_refuses_other_modes():
    done = process.run(
        [str(EXAMPLE), "/dev/stdin"], timeout_s=600, check=False,
        stdin=json.dumps({"request": {"type": "multi-allocate"}}),
    )  # fmt: skip
    assert done.exit_code == 1
    assert "not multi-allocate" in done.stderr
