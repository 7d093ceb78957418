"""The sizes which disks really have count where their content is copied."""

from __future__ import annotations

import dataclasses

import pytest

from fakes.config import cluster_of, disk_of, instance_of
from fakes.master import Master
from ganeti import errors
from ganeti.cmdlib.ops.disks import sizes
from ganeti.objects import Disk

ODD = (8 << 20) + (1 << 19)
NODE1 = "node1.example.com"


def measured(template: str, recorded_mib: int, master: Master | None = None) -> int:
    disk = dataclasses.replace(
        disk_of("web"), size=recorded_mib, dev_type=template, logical_id=("a", "b")
    )
    web = instance_of("web", disks=(disk.uuid,))
    asked = master or Master(cluster_of(1, (web,), (disk,)))
    (found,) = sizes.real(asked.rpc, web, [disk])
    return found.size


def answering(*dimensions: object) -> Master:
    master = Master(cluster_of(1))
    master.rpc.answers["blockdev_getdimensions"] = list(dimensions)
    return master


@pytest.mark.parametrize(
    "template", ["blockdev", "rbd", "ext", "gluster", "file", "sharedfile", "plain", "drbd"]
)
def test_each_kind_of_disk_is_measured(template: str) -> None:
    assert measured(template, 8, answering([ODD, None])) == 9
    assert measured(template, 20, answering([ODD, None])) == 20
    assert measured(template, 8, answering(None)) == 8


def test_a_provider_may_offer_its_disk_to_hypervisors_only() -> None:
    master = answering()
    master.rpc.errors["blockdev_getdimensions"] = "has no block device, so its size is not known"
    assert measured("ext", 8, master) == 8
    with pytest.raises(errors.OpPrereqError, match="did not report the size of disk/0"):
        measured("rbd", 8, master)
    master.rpc.errors["blockdev_getdimensions"] = errors.NodeUnreachable(NODE1, "x", "no answer")
    with pytest.raises(errors.OpPrereqError, match="did not report the size of disk/0"):
        measured("ext", 8, master)


def test_one_question_is_asked_for_all_disks_of_the_node() -> None:
    master = answering([ODD, None], [ODD, None])
    one, two = (dataclasses.replace(disk_of("web", number), size=8) for number in range(2))
    web = instance_of("web", disks=(one.uuid, two.uuid))
    found: tuple[Disk, ...] = sizes.real(master.rpc, web, [one, two])
    assert [disk.size for disk in found] == [9, 9]
    assert len(master.rpc.of("blockdev_getdimensions")) == 1
