"""Instances on logical volumes and mirrors, for tests about disks."""

from __future__ import annotations

import dataclasses
from typing import Any

from fakes.config import cluster_of, instance_of, uuid_of
from fakes.master import Master
from ganeti.objects import Disk

NODE1, NODE2, NODE3 = (f"node{number}.example.com" for number in (1, 2, 3))


def volume(name: str, size: int = 1024) -> Disk:
    return Disk(dev_type="plain", logical_id=("xenvg", name), size=size, nodes=(uuid_of("node1"),))


def plain_of(name: str) -> Disk:
    return dataclasses.replace(
        volume(f"{name}-lv"), iv_name="disk/0", uuid=uuid_of(f"{name}-disk0"), serial_no=1
    )


def drbd_of(name: str) -> Disk:
    return Disk(
        dev_type="drbd",
        size=1024,
        iv_name="disk/0",
        uuid=uuid_of(f"{name}-disk0"),
        serial_no=1,
        nodes=(uuid_of("node1"), uuid_of("node2")),
        logical_id=(uuid_of("node1"), uuid_of("node2"), 11000, 0, 0, "secret"),
        children=(volume(f"{name}-data"), volume(f"{name}-meta", 128)),
    )


def cluster_with(*disks: Disk, nodes: int = 3, **changes: Any) -> Master:
    """An instance for each disk, named as the disk is."""
    names = [disk.uuid.removeprefix("uuid-").removesuffix("-disk0") for disk in disks]
    instances = tuple(
        instance_of(
            name,
            **{
                "admin_state": "up",
                "disks_active": True,
                "disks": (disk.uuid,),
                "nics": (),
                **changes,
            },
        )
        for name, disk in zip(names, disks, strict=True)
    )
    return Master(cluster_of(nodes, instances, disks))
