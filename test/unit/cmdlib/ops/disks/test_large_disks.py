"""Limits of mirrored disks: each operation knows how large their metadata must be for more than
4 TiB, and how many minors an old module has."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from fakes.config import cluster_of, instance_of, uuid_of
from fakes.master import Master
from ganeti import errors
from ganeti.allocator import describe
from ganeti.objects import Disk
from ganeti.objects.transfer import BlockDevStatus
from ganeti.opcodes import instance as ops

TIB = 1 << 20
#: The largest disk for which metadata of 128 MiB are enough.
OLD_LIMIT_MIB = 4193152
NODE1, NODE2 = uuid_of("node1"), uuid_of("node2")


def mirrored(size: int, metadata: int) -> Disk:
    nodes = (NODE1, NODE2)
    parts = (("data", size), ("meta", metadata))
    return Disk(
        dev_type="drbd",
        logical_id=(*nodes, 11000, 0, 0, "secret"),
        size=size,
        iv_name="disk/0",
        uuid=uuid_of("web-disk0"),
        serial_no=1,
        nodes=nodes,
        children=tuple(
            Disk(dev_type="plain", logical_id=("xenvg", f"w0_{part}"), size=mib, nodes=nodes)
            for part, mib in parts
        ),
    )


def plain(size: int) -> Disk:
    return Disk(
        dev_type="plain",
        logical_id=("xenvg", "w0"),
        size=size,
        nodes=(NODE1,),
        iv_name="disk/0",
        uuid=uuid_of("web-disk0"),
        serial_no=1,
    )


def master_with(
    *disks: Disk, free_mib: int = 1 << 40, minors: dict[str, int] | None = None
) -> Master:
    """A master with one instance.

    :param minors: name of a node -> how many minors its DRBD module has.
    """
    web = instance_of("web", disks=tuple(disk.uuid for disk in disks))
    cluster = cluster_of(
        3,
        (web,),
        disks,
        enabled_disk_templates=("drbd", "plain"),
        volume_group_name="xenvg",
    )
    master = Master(cluster)
    master.rpc.answers["node_info"] = lambda node, args: [
        "boot",
        [
            {
                "type": unit[0],
                "name": unit[1],
                "storage_free": free_mib,
                "storage_size": free_mib,
                **({"drbd_minors": minors[node]} if minors and node in minors else {}),
            }
            for unit in args["storage_units"]
        ],
        [
            {"memory_free": 4096, "memory_total": 8192, "memory_dom0": 1, "cpu_total": 4}
            for _ in args["hv_specs"]
        ],
    ]
    master.rpc.answers["blockdev_getmirrorstatus"] = lambda node, args: [
        BlockDevStatus(dev_path="/dev/drbd0", is_degraded=False) for _ in args["disks"]
    ]
    master.rpc.answers["blockdev_find_multi"] = BlockDevStatus(
        dev_path="/dev/drbd0", is_degraded=False, ldisk_status=1
    )
    master.rpc.answers["drbd_wait_sync"] = [True, 100.0]
    master.rpc.answers["blockdev_assemble_multi"] = lambda node, args: ["/dev/x", "/run/l", None]
    return master


def disk_of(master: Master, name: str = "web") -> Disk:
    (found,) = [one for one in master.config.instances() if one.name.startswith(name)]
    (disk,) = master.config.instance_disks(found)
    return disk


def create(*sizes: int) -> ops.OpInstanceCreate:
    return ops.OpInstanceCreate(
        instance_name="new.example.com",
        mode="create",
        disk_template="drbd",
        disks=[{"size": size} for size in sizes],
        nics=[],
        os_type="noop",
        pnode="node1",
        snode="node2",
        ignore_ipolicy=True,
    )


def metadata_mib(disk: Disk) -> int:
    assert disk.metadata_device is not None
    return disk.metadata_device.size


@pytest.mark.parametrize(
    ("size", "metadata"),
    [(1024, 128), (OLD_LIMIT_MIB, 128), (OLD_LIMIT_MIB + 4, 132), (8 * TIB, 260)],
)
def test_a_new_disk_has_metadata_for_its_size(size: int, metadata: int) -> None:
    master = master_with()
    master.run(create(size))
    disk = disk_of(master, "new")
    assert metadata_mib(disk) == metadata
    assert disk.space_mib == describe.space_mib([disk]) == size + metadata
    assert disk.largest_mib is not None and disk.largest_mib >= size


def test_the_space_for_metadata_is_checked_before_a_disk_is_made() -> None:
    size = 8 * TIB
    master = master_with(free_mib=size + 259)
    text = master.refused(create(size), errors.ECODE_NORES)
    assert f"{size + 260} MiB needed in volume group xenvg" in text
    assert master.rpc.of("blockdev_create_multi") == []
    master_with(free_mib=size + 260).run(create(size))


def test_a_disk_that_drbd_cannot_have_is_refused() -> None:
    text = master_with().refused(create((1 << 30) + 4), errors.ECODE_INVAL)
    assert "a disk of template drbd has at most 1024.0T" in text


def test_an_added_disk_needs_space_for_its_metadata() -> None:
    size = 8 * TIB
    master = master_with(mirrored(1024, 128), free_mib=size + 259)
    op = ops.OpInstanceSetParams(
        instance_name="web", disks=[["add", {"size": size}]], ignore_ipolicy=True
    )
    assert f"{size + 260} MiB needed" in master.refused(op, errors.ECODE_NORES)


def grow(size: int) -> ops.OpInstanceGrowDisk:
    return ops.OpInstanceGrowDisk(
        instance_name="web", disk=0, amount=size, absolute=True, ignore_ipolicy=True
    )


def test_a_disk_grows_as_far_as_its_metadata_allow() -> None:
    master = master_with(mirrored(4 * TIB - 8192, 128))
    assert master.rpc.of("blockdev_grow") == []
    text = master.refused(grow(OLD_LIMIT_MIB + 4), errors.ECODE_STATE)
    assert "its metadata on each node have 128 MiB, which is enough for 4193152 MiB" in text
    assert "gnt-instance modify -t plain web.example.com" in text
    assert master.rpc.of("blockdev_grow") == []
    master.run(grow(OLD_LIMIT_MIB))
    assert disk_of(master).size == OLD_LIMIT_MIB


def test_a_disk_with_larger_metadata_grows_further() -> None:
    """Clusters whose administrator changed the constant of the original have such disks."""
    master = master_with(mirrored(4 * TIB - 8192, 1024))
    master.run(grow(16 * TIB))
    disk = disk_of(master)
    assert (disk.size, metadata_mib(disk)) == (16 * TIB, 1024)
    assert disk.space_mib == 16 * TIB + 1024


def test_what_an_older_version_recorded_is_explained() -> None:
    master = master_with(mirrored(5 * TIB, 128))
    text = master.refused(grow(5 * TIB), errors.ECODE_STATE)
    assert "The configuration says 5242880 MiB already" in text
    assert "gnt-cluster repair-disk-sizes web.example.com" in text


def test_a_converted_disk_has_metadata_for_its_size() -> None:
    size = 8 * TIB
    op = ops.OpInstanceSetParams(
        instance_name="web", disk_template="drbd", remote_node="node2", ignore_ipolicy=True
    )

    def master(free_mib: int) -> Master:
        made = master_with(plain(size), free_mib=free_mib)
        made.rpc.answers["blockdev_getdimensions"] = lambda node, args: [
            [size << 20, None] if disk.logical_id[1] == "w0" and node.startswith("node1") else None
            for disk in args["disks"]
        ]
        return made

    text = master(size + 259).refused(op, errors.ECODE_NORES)
    assert f"{size + 260} MiB needed in volume group xenvg" in text
    good = master(size + 260)
    good.run(op)
    assert metadata_mib(disk_of(good)) == 260


def test_a_recreated_disk_has_metadata_for_its_new_size() -> None:
    size = 8 * TIB
    op = ops.OpInstanceRecreateDisks(instance_name="web", disks=[[0, {"size": size}]])

    def master(free_mib: int) -> Master:
        made = master_with(mirrored(1024, 128), free_mib=free_mib)
        made.rpc.answers["blockdev_getdimensions"] = lambda node, args: [None] * len(args["disks"])
        return made

    text = master(size + 259).refused(op, errors.ECODE_NORES)
    assert f"{size + 260} MiB needed in volume group xenvg" in text
    good = master(size + 260)
    good.run(op)
    assert (disk_of(good).size, metadata_mib(disk_of(good))) == (size, 260)


def test_a_disk_without_replica_here_has_the_space_of_a_new_one() -> None:
    disk: Any = dataclasses.replace(mirrored(8 * TIB, 260), children=())
    assert disk.space_mib == 8 * TIB + 260
    assert disk.largest_mib == 1 << 30


_MANY = {
    "create": create(1024, 1024),
    "add": ops.OpInstanceSetParams(
        instance_name="web", disks=[["add", {"size": 1024}]], ignore_ipolicy=True
    ),
    "replace": ops.OpInstanceReplaceDisks(
        instance_name="web", mode="replace_new_secondary", remote_node="node3", ignore_ipolicy=True
    ),
    "recreate": ops.OpInstanceRecreateDisks(instance_name="web", nodes=["node1", "node3"]),
    "convert": ops.OpInstanceSetParams(
        instance_name="web", disk_template="drbd", remote_node="node3", ignore_ipolicy=True
    ),
    "convert here": ops.OpInstanceSetParams(
        instance_name="web", disk_template="drbd", remote_node="node3", ignore_ipolicy=True
    ),
}


@pytest.mark.parametrize(
    ("name", "node", "enough"),
    [
        ("create", "node2", 3),
        ("add", "node2", 2),
        ("replace", "node3", 1),
        ("recreate", "node3", 1),
        ("convert", "node3", 1),
        ("convert here", "node1", 1),
    ],
)
def test_a_minor_which_an_old_module_cannot_have(name: str, node: str, enough: int) -> None:
    """DRBD 8.3 has as many minors as it was loaded for; the other node has more of them."""

    def master(minors: int) -> Master:
        disk = plain(1024) if name.startswith("convert") else mirrored(1024, 128)
        made = master_with(disk, minors={f"{node}.example.com": minors, "node9": 255})
        made.rpc.answers["blockdev_getdimensions"] = lambda where, args: [
            [1024 << 20, None] if one.logical_id[1] == "w0" and where.startswith("node1") else None
            for one in args["disks"]
        ]
        return made

    text = master(enough - 1).refused(_MANY[name], errors.ECODE_NORES)
    assert f"DRBD module of node {node}.example.com was loaded for {enough - 1} minors" in text
    assert f"the new disk would be minor {enough - 1}" in text
    master(enough).run(_MANY[name])


def test_a_conversion_needs_space_for_metadata_on_the_primary_node() -> None:
    master = master_with(plain(1024))
    facts = master.rpc.answers["node_info"]

    def full(node: str, args: dict[str, Any]) -> Any:
        found = facts(node, args)
        for unit in found[1] if node.startswith("node1") else ():
            unit["storage_free"] = 127
        return found

    master.rpc.answers["node_info"] = full
    text = master.refused(_MANY["convert"], errors.ECODE_NORES)
    assert "not enough space on node node1.example.com: 128 MiB needed" in text
    assert master.rpc.of("blockdev_create_multi") == []
