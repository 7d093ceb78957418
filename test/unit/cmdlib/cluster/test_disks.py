"""Looking for disks that are not usable, and correcting their recorded sizes."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from fakes.config import GROUP, cluster_of, disk_of, uuid_of
from fakes.disks import NODE1, NODE2, cluster_with, drbd_of, plain_of
from fakes.master import Master
from ganeti import errors
from ganeti.opcodes.cluster import OpClusterRepairDiskSizes, OpClusterVerifyDisks
from ganeti.opcodes.group import OpGroupVerifyDisks


def here(volumes: dict[str, dict[str, list[Any]]]) -> Any:
    return lambda node, args: volumes.get(node, {})


def verify(master: Master, **more: Any) -> Any:
    return master.run(OpGroupVerifyDisks(group_name="default", **more))


def test_a_job_for_each_group() -> None:
    data = cluster_of(1)
    other = dataclasses.replace(data.nodegroups[GROUP], name="rack2", uuid="group-2")
    master = Master(dataclasses.replace(data, nodegroups={**data.nodegroups, "group-2": other}))
    assert len(master.run(OpClusterVerifyDisks(is_strict=False))["jobs"]) == 2
    assert [op.group_name for (op,) in master.job.submitted] == ["default", "rack2"]
    assert all(op.is_strict is False for (op,) in master.job.submitted)
    master.run(OpClusterVerifyDisks(group_name="rack2"))
    assert [op.group_name for (op,) in master.job.submitted] == ["rack2"]
    master.refused(OpClusterVerifyDisks(group_name="nosuch"), errors.ECODE_NOENT)


def test_volumes_are_there_inactive_or_missing() -> None:
    master = cluster_with(plain_of("good"), plain_of("asleep"), plain_of("gone"))
    master.rpc.answers["lv_list"] = here(
        {NODE1: {"xenvg/good-lv": ["1024", False, True], "xenvg/asleep-lv": ["1024", True, False]}}
    )
    unresponsive, inactive, missing = verify(master)
    assert unresponsive == {}
    assert inactive == ["asleep.example.com"]
    assert missing == {"gone.example.com": [[NODE1, "xenvg/gone-lv"]]}


def test_both_halves_of_a_mirror() -> None:
    master = cluster_with(drbd_of("web"))
    volumes = {"xenvg/web-data": ["1024", False, True], "xenvg/web-meta": ["128", False, True]}
    master.rpc.answers["lv_list"] = here({NODE1: volumes, NODE2: volumes})
    master.rpc.answers["drbd_needs_activation"] = lambda node, args: (
        [uuid_of("web-disk0")] if node == NODE2 else []
    )
    assert verify(master) == ({}, ["web.example.com"], {})
    assert {node for node, _args in master.rpc.of("drbd_needs_activation")} == {NODE1, NODE2}
    master.rpc.answers["lv_list"] = here(
        {NODE1: volumes, NODE2: {"xenvg/web-meta": ["128", False, True]}}
    )
    # What is missing cannot be activated.
    assert verify(master) == ({}, [], {"web.example.com": [[NODE2, "xenvg/web-data"]]})


def test_files() -> None:
    master = cluster_with(disk_of("web"))
    assert verify(master) == ({}, [], {})
    master.rpc.answers["blockdev_getdimensions"] = [None]
    path = disk_of("web").logical_id[1]
    assert verify(master) == ({}, [], {"web.example.com": [[NODE1, path]]})


def test_nobody_looks_at_disks_which_are_not_in_use() -> None:
    master = cluster_with(plain_of("web"), disks_active=False)
    assert verify(master) == ({}, [], {})
    assert master.rpc.of("lv_list") == []


def test_nodes_that_do_not_answer() -> None:
    master = cluster_with(plain_of("web"))
    master.rpc.errors["lv_list"] = "lvs is missing"
    assert verify(master) == ({NODE1: "lvs is missing"}, [], {})
    assert verify(master, is_strict=False) == ({}, [], {})
    assert master.job.said("lvs is missing")
    node = dataclasses.replace(
        master.config.node(uuid_of("node1")), offline=True, master_candidate=False
    )
    data = dataclasses.replace(
        master.config.snapshot(), nodes={**master.config.snapshot().nodes, node.uuid: node}
    )
    offline = Master(data)
    assert verify(offline) == ({}, [], {})


def test_a_node_which_is_gone_is_asked_once() -> None:
    """Its automatic failover waits for the locks of this job."""
    master = cluster_with(drbd_of("web"), disk_of("db"))
    volumes = {"xenvg/web-data": ["1024", False, True], "xenvg/web-meta": ["128", False, True]}
    master.rpc.answers["lv_list"] = volumes
    master.rpc.answers["drbd_needs_activation"] = []
    master.rpc.answers["blockdev_getmirrorstatus_multi"] = lambda _node, args: [
        (False, "unknown") for _ in args["disks"]
    ]
    master.rpc.errors["lv_list", NODE1] = errors.NodeUnreachable(NODE1, "lv_list", "no route")
    unresponsive, inactive, missing = verify(master)
    assert list(unresponsive) == [NODE1]
    assert (inactive, missing) == ([], {})
    assert [name for name, node, _args in master.rpc.calls if node == NODE1] == ["lv_list"]
    assert [node for node, _args in master.rpc.of("blockdev_getmirrorstatus_multi")] == [NODE2]


@pytest.mark.parametrize(
    "failure",
    [
        "lvs is missing",
        errors.NodeUnreachable(NODE1, "lv_list", "no answer within 900 s", machine_is_on=True),
    ],
)
def test_a_node_whose_lvm_hangs_is_asked_for_the_rest(failure: str | Exception) -> None:
    master = cluster_with(drbd_of("web"))
    master.rpc.answers["lv_list"] = {}
    master.rpc.answers["blockdev_getmirrorstatus_multi"] = [(False, "unknown")]
    master.rpc.errors["lv_list", NODE1] = failure
    master.rpc.answers["drbd_needs_activation"] = []
    verify(master)
    assert NODE1 in [node for node, _args in master.rpc.of("drbd_needs_activation")]


# -- sizes -----------------------------------------------------------------------


def sizes(*dimensions: Any) -> Any:
    return [
        None if one is None else [one << 20, None] if isinstance(one, int) else one
        for one in dimensions
    ]


def test_sizes_are_corrected() -> None:
    master = cluster_with(plain_of("web"), disk_of("file"))
    master.rpc.answers["blockdev_getdimensions"] = lambda node, args: sizes(
        *(2048 if disk.dev_type == "plain" else 1024 for disk in args["disks"])
    )
    assert master.run(OpClusterRepairDiskSizes()) == [("web.example.com", 0, "size", 2048)]
    assert master.config.disk(uuid_of("web-disk0")).size == 2048
    assert master.job.said("disk 0 of instance web.example.com has 2048 MiB, not 1024")
    assert len(master.config.writes) == 1
    assert master.run(OpClusterRepairDiskSizes()) == []


@pytest.mark.parametrize("template", ["blockdev", "rbd", "ext", "gluster", "file", "plain"])
def test_the_incomplete_last_mib_of_a_device_counts(template: str) -> None:
    disk = dataclasses.replace(plain_of("web"), size=8, dev_type=template)
    master = cluster_with(disk)
    master.rpc.answers["blockdev_getdimensions"] = [[(8 << 20) + (1 << 19), None]]
    assert master.run(OpClusterRepairDiskSizes()) == [("web.example.com", 0, "size", 9)]
    assert master.run(OpClusterRepairDiskSizes()) == []


def test_a_mirror_is_not_recorded_larger_than_its_storage() -> None:
    master = cluster_with(drbd_of("web"))
    master.rpc.answers["blockdev_getdimensions"] = [[(1500 << 20) + 4096, None]]
    assert master.run(OpClusterRepairDiskSizes()) == [("web.example.com", 0, "size", 1500)]


def test_what_is_below_a_mirror_grows_with_it() -> None:
    master = cluster_with(drbd_of("web"))
    master.rpc.answers["blockdev_getdimensions"] = sizes(1500)
    assert master.run(OpClusterRepairDiskSizes(instances=["web"])) == [
        ("web.example.com", 0, "size", 1500)
    ]
    disk = master.config.disk(uuid_of("web-disk0"))
    assert [disk.size, *(child.size for child in disk.children)] == [1500, 1500, 128]


def test_what_cannot_be_measured_stays() -> None:
    master = cluster_with(plain_of("one"), plain_of("two"))
    master.rpc.answers["blockdev_getdimensions"] = [None, [-1, None]]
    assert master.run(OpClusterRepairDiskSizes()) == []
    assert master.job.said("does not exist")
    assert master.job.said("an impossible size")
    master.rpc.errors["blockdev_getdimensions"] = "no answer"
    assert master.run(OpClusterRepairDiskSizes()) == []
    assert master.job.said("no answer")
    assert master.config.writes == []
    master.refused(OpClusterRepairDiskSizes(instances=["nosuch"]), errors.ECODE_NOENT)


# -- one disk, or one volume group, which cannot be examined ---------------------------------------

BROKEN = errors.BlockDeviceError("the directory is not mounted")


def test_one_disk_which_cannot_be_examined_does_not_hide_lost_ones() -> None:
    master = cluster_with(disk_of("odd"), disk_of("lost"), disk_of("good"))
    master.rpc.answers["blockdev_getdimensions"] = [[1 << 30, None], None, BROKEN]
    lost = {"lost.example.com": [[NODE1, disk_of("lost").logical_id[1]]]}
    assert verify(master, is_strict=False) == ({}, [], lost)
    assert master.job.said(
        f"node {NODE1} could not examine disks: disk/0 of instance odd.example.com: {BROKEN}"
    )
    unresponsive, inactive, missing = verify(master, is_strict=True)
    assert (inactive, missing) == ([], lost)
    assert str(BROKEN) in unresponsive[NODE1]


def test_one_volume_group_which_cannot_be_read_does_not_hide_the_others() -> None:
    """What is in it is neither lost nor inactive."""
    other = plain_of("odd")
    other = dataclasses.replace(other, logical_id=("broken", "odd-lv"))
    master = cluster_with(plain_of("gone"), other)
    master.rpc.answers["lv_list"] = {"broken": "cannot query LVM: exit code 5"}
    assert verify(master, is_strict=False) == (
        {},
        [],
        {"gone.example.com": [[NODE1, "xenvg/gone-lv"]]},
    )
    assert master.rpc.of("lv_list")[0][1]["groups"] == ["broken", "xenvg"]
    assert master.job.said("those in volume group broken: cannot query LVM")


def test_one_mirrored_disk_which_cannot_be_asked_does_not_hide_the_others() -> None:
    master = cluster_with(drbd_of("odd"), drbd_of("web"))
    names = [f"xenvg/{name}-{part}" for name in ("odd", "web") for part in ("data", "meta")]
    master.rpc.answers["lv_list"] = {name: ["1024", False, True] for name in names}
    master.rpc.answers["drbd_needs_activation"] = [BROKEN, uuid_of("web-disk0")]
    assert verify(master, is_strict=False) == ({}, ["web.example.com"], {})
    assert master.job.said(str(BROKEN))


def test_one_disk_which_cannot_be_measured_keeps_no_other_size_wrong() -> None:
    master = cluster_with(plain_of("one"), plain_of("two"))
    master.rpc.answers["blockdev_getdimensions"] = [BROKEN, [2 << 30, None]]
    assert master.run(OpClusterRepairDiskSizes()) == [("two.example.com", 0, "size", 2048)]
    assert master.job.said(f"disk 0 of instance one.example.com could not be measured: {BROKEN}")
