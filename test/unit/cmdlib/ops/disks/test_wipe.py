"""New storage is overwritten where the cluster wants that."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.config import cluster_of, disk_of, instance_of, uuid_of
from fakes.master import Master
from ganeti import errors
from ganeti.cmdlib.base import LuContext
from ganeti.cmdlib.ops.disks import devices as disk_work
from ganeti.cmdlib.ops.disks import wipe
from ganeti.objects import Disk

NODE1, NODE2 = "node1.example.com", "node2.example.com"

MIB = 1 << 20


def volume(name: str, size: int) -> Disk:
    return Disk(dev_type="plain", logical_id=("xenvg", name), size=size, nodes=(uuid_of("node1"),))


def context_of(**cluster: Any) -> tuple[Master, LuContext]:
    master = Master(cluster_of(2, **{"prealloc_wipe_disks": True, **cluster}))
    master.rpc.answers["blockdev_create_multi"] = None
    return master, LuContext(master.context, master.new_job())


def wiped(master: Master) -> list[tuple[str, str, int, int]]:
    return [
        (node, args["disk"].logical_id[1], args["offset_mib"], args["size_mib"])
        for node, args in master.rpc.of("blockdev_wipe")
    ]


def test_a_volume_is_wiped_in_pieces() -> None:
    master, ctx = context_of()
    disk_work.create_disks(ctx, instance_of("web"), [volume("lv", 25)])
    pieces = wiped(master)
    assert [piece[2] for piece in pieces] == list(range(0, 25, 2))
    assert pieces[-1] == (NODE1, "lv", 24, 1)
    assert master.job.said("wiping 25M of xenvg/lv on node node1.example.com")
    assert master.job.said("96 % wiped")


def test_large_pieces_have_a_limit() -> None:
    master, ctx = context_of()
    wipe.wipe(ctx, instance_of("web"), volume("lv", 100 * 1024), uuid_of("node1"))
    assert {piece[3] for piece in wiped(master)} == {1024}


def test_both_halves_of_a_mirror_are_wiped_below_it() -> None:
    master, ctx = context_of()
    disk = Disk(
        dev_type="drbd",
        size=10,
        nodes=(uuid_of("node1"), uuid_of("node2")),
        logical_id=(uuid_of("node1"), uuid_of("node2"), 11000, 0, 0, "s"),
        children=(volume("data", 10), volume("meta", 128)),
    )
    disk_work.create_disks(ctx, instance_of("web"), [disk])
    assert {piece[:2] for piece in wiped(master)} == {
        (NODE1, "data"),
        (NODE1, "meta"),
        (NODE2, "data"),
        (NODE2, "meta"),
    }
    assert sum(piece[3] for piece in wiped(master)) == 2 * (10 + 128)


def test_only_where_it_is_wanted_and_needed() -> None:
    master, ctx = context_of(prealloc_wipe_disks=False)
    disk_work.create_disks(ctx, instance_of("web"), [volume("lv", 25)])
    assert wiped(master) == []
    master, ctx = context_of()
    disk_work.create_disks(ctx, instance_of("web"), [disk_of("web")])
    assert wiped(master) == []


def test_what_was_added_alone() -> None:
    master, ctx = context_of()
    wipe.wipe(ctx, instance_of("web"), volume("lv", 25), uuid_of("node1"), offset_mib=20)
    assert wiped(master)[0][2] == 20
    assert sum(piece[3] for piece in wiped(master)) == 5


def test_a_volume_is_wiped_up_to_the_end_of_its_last_extent() -> None:
    master, ctx = context_of()
    # 25 MiB, and extents of 6.5 MiB.
    master.rpc.answers["blockdev_getdimensions"] = [[26 * MIB, None]]
    disk_work.create_disks(ctx, instance_of("web"), [volume("lv", 25)])
    assert sum(piece[3] for piece in wiped(master)) == 26
    master.rpc.answers["blockdev_getdimensions"] = [[27 * MIB + 512, None]]
    wipe.wipe(ctx, instance_of("web"), volume("lv", 25), uuid_of("node1"), offset_mib=26)
    assert sum(piece[3] for piece in wiped(master)[-2:]) == 2


def test_a_failure_is_one_of_the_creation() -> None:
    master, ctx = context_of()
    master.rpc.errors["blockdev_wipe"] = "disk is broken"
    with pytest.raises(errors.OpExecError, match="could not create .*disk is broken"):
        disk_work.create_disks(ctx, instance_of("web"), [volume("lv", 25)])
