"""The instances of a node follow from one state of the configuration to the next."""

from __future__ import annotations

import dataclasses
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ganeti.constants import disk as disk_const
from ganeti.objects import ConfigData
from ganeti.objects.by_node import instances_of_node

from .samples import disk_of, instance_of, node_of, small_cluster, uuid_of

NODES = [node_of(number).uuid for number in range(1, 5)]


def searched(data: ConfigData, node: str) -> tuple[set[str], set[str]]:
    """Search all instances."""
    primaries = {one.uuid for one in data.instances.values() if one.primary_node == node}
    secondaries = {
        one.uuid
        for one in data.instances.values()
        if any(
            node in data.disks[uuid].all_node_uuids() for uuid in one.disks if uuid in data.disks
        )
    }
    return primaries, secondaries - primaries


def check(data: ConfigData) -> None:
    for node in (*NODES, uuid_of("unknown")):
        found = instances_of_node(data, node)
        assert tuple({one.uuid for one in part} for part in found) == searched(data, node)
        assert [len(part) for part in found] == [len(part) for part in searched(data, node)]


def mirrored(data: ConfigData, number: int, first: str, second: str) -> ConfigData:
    disk = disk_of(number, dev_type=disk_const.DRBD8)
    logical_id = (first, second, 11000 + number, number, number, "secret")
    instance = dataclasses.replace(instance_of(number), primary_node=first, disks=(disk.uuid,))
    return dataclasses.replace(
        data,
        instances={**data.instances, instance.uuid: instance},
        disks={**data.disks, disk.uuid: dataclasses.replace(disk, logical_id=logical_id)},
    )


STEP = st.tuples(
    st.sampled_from(["put", "remove", "move disk", "lose disk", "back"]),
    st.integers(2, 6),
    st.permutations(range(4)),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(STEP, max_size=12))
def test_finds_what_a_search_finds(steps: list[Any]) -> None:
    data = dataclasses.replace(small_cluster(), instances={}, disks={})
    states = [data]
    for kind, number, places in steps:
        first, second = NODES[places[0]], NODES[places[1]]
        instance, disk = instance_of(number).uuid, disk_of(number).uuid
        instances, disks = dict(data.instances), dict(data.disks)
        if kind == "put":
            data = mirrored(data, number, first, second)
        elif kind == "remove":
            instances.pop(instance, None)
            disks.pop(disk, None)
        elif kind == "lose disk":
            disks.pop(disk, None)
        elif kind == "back":
            # A job still has an earlier state.
            check(states[number % len(states)])
        elif disk in disks:
            # As when a replica moves: the instance is not changed.
            logical_id = (first, second, *disks[disk].logical_id[2:])
            disks[disk] = dataclasses.replace(disks[disk], logical_id=logical_id)
        if kind != "put":
            data = dataclasses.replace(data, instances=instances, disks=disks)
        check(data)
        states.append(data)


def test_an_instance_without_a_node_is_on_none() -> None:
    data = small_cluster()
    one = dataclasses.replace(instance_of(3), primary_node="", disks=(), forthcoming=True)
    check(dataclasses.replace(data, instances={one.uuid: one}, disks={}))
    assert instances_of_node(data, "") == ([], [])
