"""What an allocator is told, next to what the original told it in recorded requests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fakes.config import GROUP, FakeConfig, cluster_of, commit, disk_of, instance_of, uuid_of
from fakes.rpc import FakeRpc
from ganeti import allocator, errors
from ganeti.allocator import describe, live
from ganeti.objects import Disk, Nic, updated

DATA = Path(__file__).resolve().parents[2] / "data" / "iallocator"
MODES = ("allocate", "allocate-disks", "change-group", "multi-allocate", "node-evacuate")
NODE_NUMBERS = {
    "total_memory", "reserved_memory", "free_memory", "total_disk", "free_disk", "total_spindles",
    "free_spindles", "total_cpus", "reserved_cpus", "i_pri_memory", "i_pri_up_memory",
}  # fmt: skip
# Of an interface to be made the original gave only what was asked for; the rest is documented.
NIC_KEYS = {"mac", "ip", "mode", "link", "bridge", "network", "name", "nicparams", "uuid"}


def recorded(name: str) -> dict:
    found: dict = json.loads((DATA / f"3.0.2-{name}-request.json").read_text())
    return found


def kind(value: object) -> str:
    """Type of a JSON value; all numbers are alike."""
    return "number" if type(value) in (int, float) else type(value).__name__


def shape(entry: dict) -> dict[str, str]:
    return {key: kind(value) for key, value in entry.items()}


@pytest.fixture
def config() -> FakeConfig:
    """Two instances on the first node, one with disks that is down."""
    disks = (disk_of("data", 0), disk_of("data", 1))
    return FakeConfig(
        cluster_of(
            3,
            (
                instance_of("web", admin_state="up", disks_active=True, tags=("b", "a")),
                instance_of("data", disks=tuple(disk.uuid for disk in disks)),
            ),
            disks,
            node_changes={3: {"offline": True}},
            tags=("site:lab",),
        )
    )


@pytest.fixture
def rpc(config: FakeConfig) -> FakeRpc:
    made = FakeRpc(config)
    made.run("web", "node1")
    return made


def new(**changes):
    values = {
        "name": "new.example.com",
        "hypervisor": "fake",
        "os": "noop",
        "memory_mib": 512,
        "vcpus": 2,
        "spindle_use": 1,
        "disk_template": "sharedfile",
        "disks": ({"size": 8, "mode": "rw", "name": "root"}, {"size": 4, "mode": "rw"}),
        "nics": (
            allocator.allocate_nic(
                Nic(mac="aa:00:00:00:00:99", nicparams={}, uuid="nic"),
                {"mode": "bridged", "link": "br0", "vlan": ""},
            ),
        ),
    }
    return allocator.Allocate(**{**values, **changes})


def prepare(rpc: FakeRpc, request: allocator.AllocationRequest) -> dict:
    return allocator.prepare(rpc, rpc.config.snapshot(), request)


# -- shape -----------------------------------------------------------------------


@pytest.mark.parametrize("name", MODES)
def test_the_cluster_has_the_recorded_shape(rpc, name):
    theirs, ours = recorded(name), prepare(rpc, new())
    assert list(ours) == list(theirs)
    assert shape(ours) == shape(theirs)
    (group,) = ours["nodegroups"].values()
    assert shape(group) == shape(next(iter(theirs["nodegroups"].values())))
    assert set(group["ipolicy"]) == set(theirs["ipolicy"])
    for node in ours["nodes"].values():
        wanted = shape(next(iter(theirs["nodes"].values())))
        if node["offline"]:
            wanted = {key: value for key, value in wanted.items() if key not in NODE_NUMBERS}
        else:
            # Only since seed 002; older allocators do not look for it.
            wanted = {**wanted, "storage": "list"}
        assert shape(node) == wanted
    for instance in ours["instances"].values():
        assert shape(instance) == shape(theirs["instances"]["instance1.example.com"])
        for nic in instance["nics"]:
            their_nic = theirs["instances"]["instance2.example.com"]["nics"][0]
            assert set(nic) == set(their_nic)
        for disk in instance["disks"]:
            assert shape(disk) == shape(theirs["instances"]["instance3.example.com"]["disks"][0])


@pytest.mark.parametrize("name", ["allocate", "allocate-disks"])
def test_an_allocation_has_the_recorded_shape(rpc, name):
    theirs, ours = recorded(name)["request"], prepare(rpc, new())["request"]
    assert list(ours) == list(theirs)
    assert shape(ours) == shape(theirs)
    for disk in theirs["disks"]:
        assert all(set(own) == set(disk) for own in ours["disks"])
    (nic,) = ours["nics"]
    assert set(theirs["nics"][0]) <= NIC_KEYS
    assert {"mac", "nicparams", "uuid"} <= set(nic) <= NIC_KEYS


def test_the_other_modes_have_the_recorded_keys(rpc):
    web, data = uuid_of("web"), uuid_of("data")
    requests = {
        "node-evacuate": allocator.NodeEvacuate((web, data), "primary-only"),
        "change-group": allocator.ChangeGroup((web,), (GROUP,)),
        "multi-allocate": allocator.MultiAllocate((new(name="a"), new(name="b"))),
    }
    for mode, request in requests.items():
        theirs, ours = recorded(mode)["request"], prepare(rpc, request)["request"]
        assert list(ours) == list(theirs)
        assert shape(ours) == shape(theirs)
        assert ours["type"] == mode
    theirs = recorded("multi-allocate")["request"]["instances"][0]
    ours = prepare(rpc, requests["multi-allocate"])["request"]["instances"][0]
    assert shape(ours) == shape(theirs)
    evacuate = prepare(rpc, requests["node-evacuate"])["request"]
    assert evacuate["instances"] == ["web.example.com", "data.example.com"]
    assert evacuate["evac_mode"] == "primary-only"


# -- content ---------------------------------------------------------------------


def test_an_allocation(rpc):
    request = prepare(rpc, new(tags=("x",), group=GROUP, only_nodes=frozenset(("uuid-node2",))))
    assert request["request"] == {
        "name": "new.example.com",
        "disk_template": "sharedfile",
        "group_name": "default",
        "tags": ["x"],
        "os": "noop",
        "vcpus": 2,
        "memory": 512,
        "spindle_use": 1,
        "disks": [
            {"vg": None, "name": "root", "size": 8, "mode": "rw", "dev_type": "sharedfile"},
            {"vg": None, "name": None, "size": 4, "mode": "rw", "dev_type": "sharedfile"},
        ],
        "disk_space_total": 12,
        "nics": [
            {
                "mac": "aa:00:00:00:00:99", "ip": None, "mode": "bridged", "link": "br0",
                "bridge": "br0", "nicparams": {}, "uuid": "nic",
            }
        ],
        "required_nodes": 1,
        "hypervisor": "fake",
        "restrict-to-nodes": ["node2.example.com"],
        "type": "allocate",
    }  # fmt: skip


def test_mirrored_disks_need_two_nodes_and_room_for_their_records():
    request = new(disk_template="drbd")
    assert request.required_nodes == 2
    assert request.to_dict(cluster_of(1))["disk_space_total"] == 8 + 128 + 4 + 128
    diskless = new(disk_template="diskless", disks=())
    assert diskless.to_dict(cluster_of(1))["disk_space_total"] == 0


def test_an_instance(rpc):
    told = prepare(rpc, new())["instances"]
    assert list(told) == ["data.example.com", "web.example.com"]
    assert told["data.example.com"] == {
        "tags": [], "admin_state": "down", "vcpus": 1, "memory": 128, "spindle_use": 1,
        "os": "noop", "nodes": ["node1.example.com"],
        "nics": [{"mac": "aa:00:00:00:00:04", "ip": None, "mode": "bridged", "link": "xen-br0",
                  "bridge": "xen-br0"}],
        "disks": [{"dev_type": "sharedfile", "size": 1024, "mode": "rw", "spindles": None}] * 2,
        "disk_template": "sharedfile", "disks_active": False, "hypervisor": "fake",
        "disk_space_total": 2048,
    }  # fmt: skip
    assert told["web.example.com"]["tags"] == ["a", "b"]


def test_only_bridged_interfaces_have_a_bridge(config, rpc):
    instance = config.instance(uuid_of("web"))
    nic = Nic(mac="aa:00:00:00:00:77", ip="192.0.2.9", uuid="n",
              nicparams={"mode": "routed", "link": "100"})  # fmt: skip
    commit(config).instances.update(updated(instance, nics=(nic,)))
    assert prepare(rpc, new())["instances"]["web.example.com"]["nics"] == [
        {"mac": "aa:00:00:00:00:77", "ip": "192.0.2.9", "mode": "routed", "link": "100"}
    ]


def test_the_mode_of_virtual_clusters_is_not_told():
    """Allocators by others refuse modes which they do not know."""
    assert describe.nic_dict("aa:00:00:00:00:01", None, {"mode": "user", "link": ""}) == {
        "mac": "aa:00:00:00:00:01",
        "ip": None,
        "mode": "routed",
        "link": "",
    }


def test_a_mirrored_instance_names_both_nodes():
    disk = Disk(
        dev_type="drbd",
        logical_id=("uuid-node2", "uuid-node1", 11000, 0, 0, "secret"),
        size=100,
        uuid="d",
        serial_no=1,
    )
    data = cluster_of(2, (instance_of("m", "node2", disks=("d",)),), (disk,))
    config = FakeConfig(data)
    told = allocator.prepare(
        FakeRpc(config), config.snapshot(), allocator.Relocate(uuid_of("m"), ("uuid-node1",))
    )
    assert told["instances"]["m.example.com"]["nodes"] == [
        "node2.example.com",
        "node1.example.com",
    ]
    assert told["request"] == {
        "name": "m.example.com",
        "disk_space_total": 228,
        "required_nodes": 1,
        "relocate_from": ["node1.example.com"],
        "type": "relocate",
    }


def test_what_cannot_be_relocated_is_not_asked_about(rpc):
    disk = disk_of("stuck", 0, "file")
    data = cluster_of(2, (instance_of("stuck", disks=(disk.uuid,)),), (disk,))
    with pytest.raises(errors.AllocatorError, match="stuck.example.com cannot be relocated"):
        allocator.Relocate(uuid_of("stuck"), ("uuid-node1",)).to_dict(data)


def test_an_allocation_of_a_secondary(rpc):
    request = allocator.AllocateSecondary(uuid_of("web"))
    assert prepare(rpc, request)["request"] == {
        "name": "web.example.com",
        "type": "allocate-secondary",
    }


def test_soft_errors_are_an_option_of_the_program():
    assert allocator.NodeEvacuate((), "all").parameters() == {}
    soft = allocator.NodeEvacuate((), "all", ignore_soft_errors=True)
    assert soft.parameters() == {"ignore-soft-errors": None}


# -- live data -------------------------------------------------------------------


def test_numbers_of_a_node(rpc, config):
    nodes = prepare(rpc, new())["nodes"]
    first = nodes["node1.example.com"]
    # web runs with all of its 128 MiB, data does not run: nothing is taken off.
    assert {key: first[key] for key in NODE_NUMBERS} == {
        "total_memory": 8192, "reserved_memory": 512, "free_memory": 4096, "total_disk": 0,
        "free_disk": 0, "total_spindles": 0, "free_spindles": 0, "total_cpus": 4,
        "reserved_cpus": 1, "i_pri_memory": 256, "i_pri_up_memory": 128,
    }  # fmt: skip
    assert not NODE_NUMBERS & set(nodes["node3.example.com"])
    assert "node3.example.com" not in {node for name, node, _ in rpc.calls}


def test_memory_which_a_guest_may_still_claim_is_not_free(rpc, config):
    instance = config.instance(uuid_of("web"))
    commit(config).instances.update(updated(instance, beparams={"maxmem": 1128}))
    assert prepare(rpc, new())["nodes"]["node1.example.com"]["free_memory"] == 4096 - 1000


def test_the_recorded_numbers_come_out_of_their_own_facts():
    """Free memory, assigned memory and memory of instances that shall run, as recorded."""
    theirs = recorded("allocate")["nodes"]["node2.example.com"]
    facts = {"memory_total": 24105, "memory_free": 23226, "memory_dom0": 479, "cpu_total": 2,
             "cpu_dom0": 2}  # fmt: skip
    down = instance_of("instance2", "node2", beparams={"maxmem": 256})
    up = instance_of("instance3", "node2", admin_state="up", beparams={"maxmem": 64, "minmem": 64})
    config = FakeConfig(cluster_of(2, (down, up)))
    rpc = FakeRpc(config)
    rpc.answers["node_info"] = ["boot", [], [facts]]
    rpc.answers["all_instances_info"] = lambda node, args: (
        {"instance3.example.com": {"memory": 64, "vcpus": 1, "state": 0, "time": 0}}
        if node.startswith("node2")
        else {}
    )
    ours = prepare(rpc, new())["nodes"]["node2.example.com"]
    assert {key: ours[key] for key in NODE_NUMBERS} == {key: theirs[key] for key in NODE_NUMBERS}


def test_a_silent_node_is_told_as_offline(rpc):
    rpc.errors["node_info", "node2.example.com"] = errors.NodeUnreachable(
        "node2.example.com", "node_info", "no route"
    )
    node = prepare(rpc, new())["nodes"]["node2.example.com"]
    assert node["offline"] is True
    assert not NODE_NUMBERS & set(node)


@pytest.mark.parametrize("facts", [[], [{}], [{"memory_total": "a lot"}], [None]])
def test_a_node_that_tells_nonsense_is_told_as_offline(rpc, facts, caplog):
    rpc.answers["node_info"] = ["boot", [], facts]
    for node in prepare(rpc, new())["nodes"].values():
        assert node["offline"] is True
        assert not NODE_NUMBERS & set(node)
    assert "node node1.example.com did not report its memory total" in caplog.text


@pytest.mark.parametrize(
    ("enabled", "wanted", "group", "asked"),
    [
        (("diskless", "sharedfile"), "sharedfile", None, []),
        (("diskless", "file"), "diskless", None, [["file", "/srv/ganeti/file-storage", []]]),
        (("plain", "file"), "file", "xenvg", [["file", "/srv/ganeti/file-storage", []]]),
        (("file", "plain"), None, "xenvg", [["file", "/srv/ganeti/file-storage", []]]),
        (("plain", "file"), "drbd", "xenvg", [["lvm-vg", "xenvg", [False]]]),
        (("plain",), "plain", None, []),
    ],
)
def test_which_storage_counts(enabled, wanted, group, asked):
    data = cluster_of(1, enabled_disk_templates=enabled, volume_group_name=group)
    (node,) = data.nodes.values()
    assert live.storage_units(data, node, live.storage_template(data, wanted)) == asked


def test_spindles_count_where_disks_have_them_for_themselves():
    data = cluster_of(
        1,
        enabled_disk_templates=("plain",),
        volume_group_name="xenvg",
        node_changes={1: {"ndparams": {"exclusive_storage": True}}},
    )
    (node,) = data.nodes.values()
    assert live.storage_units(data, node, "plain") == [
        ["lvm-vg", "xenvg", [True]],
        ["lvm-pv", "xenvg", [True]],
    ]
    facts = {"memory_total": 9, "memory_free": 5, "memory_dom0": 1, "cpu_total": 2, "cpu_dom0": 1}
    units = [
        {"type": "lvm-vg", "name": "xenvg", "storage_size": 1000, "storage_free": 400},
        {"type": "lvm-pv", "name": "xenvg", "storage_size": 4, "storage_free": 3},
    ]
    found = live.live_node("node1", ["boot", units, [facts]], {})
    assert (found.disk_total_mib, found.disk_free_mib) == (1000, 400)
    assert (found.spindles_total, found.spindles_free) == (4, 3)


def test_a_directory_without_size_counts_nothing():
    facts = {"memory_total": 9, "memory_free": 5, "memory_dom0": 1, "cpu_total": 2, "cpu_dom0": 1}
    unit = {"type": "file", "name": "/srv/x", "storage_size": None, "storage_free": None}
    assert live.live_node("node1", ["boot", [unit], [facts]], {}).disk_total_mib == 0
