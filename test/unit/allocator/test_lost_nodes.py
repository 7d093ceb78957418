"""Placements while nodes are lost: what is known of their disks comes from the other nodes."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from fakes.config import GROUP, FakeConfig, cluster_of, commit, instance_of, uuid_of
from fakes.disks import drbd_of, volume
from fakes.rpc import FakeRpc
from ganeti import allocator, errors
from ganeti.objects import Disk, Nic, NodeGroup, updated

NAME = "web.example.com"
FACTS = {
    "memory_total": 8192, "memory_free": 8192, "memory_dom0": 0, "cpu_total": 8, "cpu_dom0": 0,
}  # fmt: skip


def in_group(disk: Disk, group: str) -> Disk:
    """The same disk in another volume group."""
    return dataclasses.replace(
        disk,
        children=tuple(
            dataclasses.replace(child, logical_id=(group, child.logical_id[1]))
            for child in disk.children
        ),
    )


def cluster(
    *, disk: Disk | None = None, free: dict[str, int] | None = None, nics: tuple[Nic, ...] = ()
) -> FakeRpc:
    """A mirrored instance on node1 and node2; nodes 4 and 5 are in a second group.

    :param free: volume group -> free MiB on every node; a group which is missing does not exist.
    """
    disk = disk or drbd_of("web")
    data = cluster_of(
        5, (instance_of("web", disks=(disk.uuid,), nics=nics),), (disk,),
        node_changes={number: {"group": "group-2"} for number in (4, 5)},
        enabled_disk_templates=("drbd", "plain"), volume_group_name="xenvg",
    )  # fmt: skip
    data.nodegroups["group-2"] = NodeGroup(
        name="rack2", alloc_policy="preferred", ndparams={}, ipolicy={}, diskparams={},
        networks={}, uuid="group-2", serial_no=1,
    )  # fmt: skip
    made = FakeRpc(FakeConfig(data))
    known = {"xenvg": 4000000} if free is None else free

    def units(_node: str, args: dict[str, Any]) -> list[Any]:
        found = [
            {"type": kind, "name": key, "storage_free": known.get(key),
             "storage_size": None if key not in known else 4000000}
            for kind, key, _ in args["storage_units"]
        ]  # fmt: skip
        return ["boot-id", found, [dict(FACTS) for _ in args["hv_specs"]]]

    made.answers["node_info"] = units
    return made


def lose(rpc: FakeRpc, name: str, *, marked: bool) -> None:
    """Let a node be lost; the administrator has marked it offline, or not yet."""
    if marked:
        commit(rpc.config).nodes.update(updated(rpc.config.node(uuid_of(name)), offline=True))
    for call in ("node_info", "all_instances_info"):
        rpc.errors[call, f"{name}.example.com"] = errors.NodeUnreachable(name, call, "no route")


def ask(rpc: FakeRpc, request: allocator.AllocationRequest[Any]) -> Any:
    return allocator.ask(rpc, rpc.config.snapshot(), "hail", request)


@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize(
    ("lost", "mode", "nodes"),
    [
        ("node1", "primary-only", {"node2", "node1"}),
        ("node1", "all", None),
        ("node2", "secondary-only", {"node1", "node3"}),
        ("node2", "all", None),
    ],
)
def test_a_node_that_is_lost_is_evacuated(
    lost: str, mode: str, nodes: set[str] | None, marked: bool
) -> None:
    rpc = cluster()
    lose(rpc, lost, marked=marked)
    if mode == "all":
        # Both of its nodes are left for two others; the group has one more only.
        commit(rpc.config).nodes.update(updated(rpc.config.node("uuid-node4"), group=GROUP))
    moves = ask(rpc, allocator.NodeEvacuate((uuid_of("web"),), mode))
    assert moves.failed == ()
    ((name, _, found),) = moves.moved
    assert name == NAME
    wanted = nodes or {"node3", "node4"}
    assert {one.removesuffix(".example.com") for one in found} == wanted


@pytest.mark.parametrize("lost", ["node1", "node2"])
def test_an_instance_leaves_the_group_of_a_lost_node(lost: str) -> None:
    rpc = cluster()
    lose(rpc, lost, marked=True)
    moves = ask(rpc, allocator.ChangeGroup((uuid_of("web"),), ("group-2",)))
    assert moves.failed == ()
    ((_, group, found),) = moves.moved
    assert group == "rack2"
    assert set(found) == {"node4.example.com", "node5.example.com"}


def test_a_lost_secondary_node_is_replaced() -> None:
    rpc = cluster()
    lose(rpc, "node2", marked=True)
    assert ask(rpc, allocator.Relocate(uuid_of("web"), ("uuid-node2",))) == ("uuid-node3",)


def test_a_disk_needs_space_in_its_own_volume_group() -> None:
    rpc = cluster(disk=in_group(drbd_of("web"), "ssd"), free={"xenvg": 0, "ssd": 4000})
    lose(rpc, "node2", marked=True)
    request = allocator.Relocate(uuid_of("web"), ("uuid-node2",))
    assert ask(rpc, request) == ("uuid-node3",)
    (disk,) = allocator.prepare(rpc, rpc.config.snapshot(), request)["instances"][NAME]["disks"]
    assert disk["vg"] == "ssd"
    rpc = cluster(disk=in_group(drbd_of("web"), "ssd"), free={"xenvg": 4000, "ssd": 0})
    with pytest.raises(errors.NoPlacement, match="FailDisk"):
        ask(rpc, request)


def test_a_disk_in_the_volume_group_of_the_cluster_is_described_as_by_the_original() -> None:
    rpc = cluster()
    described = allocator.prepare(
        rpc, rpc.config.snapshot(), allocator.NodeEvacuate((uuid_of("web"),), "all")
    )
    (disk,) = described["instances"][NAME]["disks"]
    assert set(disk) == {"dev_type", "size", "mode", "spindles"}


@pytest.mark.parametrize(
    ("free", "placed"), [({"xenvg": 0, "ssd": 4000}, True), ({"xenvg": 4000}, False)]
)
@pytest.mark.parametrize("several", [False, True])
def test_the_first_disk_in_a_volume_group(
    free: dict[str, int], placed: bool, several: bool
) -> None:
    """No disk of the cluster lies there yet, so only the request names the volume group."""
    rpc = cluster(free=free)
    new = allocator.Allocate(
        name="new.example.com", hypervisor="fake", os="noop", memory_mib=512, vcpus=1,
        spindle_use=1, disk_template="plain", nics=(),
        disks=({"size": 1024, "mode": "rw", "name": None, "vg": "ssd"},),
    )  # fmt: skip
    if several:
        found = ask(rpc, allocator.MultiAllocate((new,)))
        assert bool(found.nodes) == placed
    elif placed:
        assert len(ask(rpc, new)) == 1
    else:
        with pytest.raises(errors.NoPlacement, match="FailDisk"):
            ask(rpc, new)


def test_a_node_whose_answer_lacks_a_fact_does_not_prevent_instances_on_others() -> None:
    rpc = cluster()
    answer = rpc.answers["node_info"]
    rpc.answers["node_info"] = lambda node, args: (
        ["boot-id", [], [{"memory_total": "a lot"}]]
        if node == "node1.example.com"
        else answer(node, args)
    )
    moves = ask(rpc, allocator.NodeEvacuate((uuid_of("web"),), "primary-only"))
    assert moves.failed == ()


def test_a_nic_in_a_network_names_it() -> None:
    rpc = cluster(
        nics=(Nic(mac="aa:00:00:00:00:01", nicparams={}, uuid="nic", network="net-uuid"),)
    )
    described = allocator.prepare(
        rpc, rpc.config.snapshot(), allocator.NodeEvacuate((uuid_of("web"),), "all")
    )
    assert described["instances"][NAME]["nics"][0]["network"] == "net-uuid"


def test_a_plain_disk_of_another_volume_group() -> None:
    disk = dataclasses.replace(
        volume("web-lv"), iv_name="disk/0", uuid="uuid-web-disk0", logical_id=("ssd", "web-lv")
    )
    rpc = cluster(disk=disk)
    described = allocator.prepare(
        rpc, rpc.config.snapshot(), allocator.NodeEvacuate((uuid_of("web"),), "all")
    )
    assert described["instances"][NAME]["disks"][0]["vg"] == "ssd"
