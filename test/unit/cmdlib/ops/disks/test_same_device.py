"""One device under two names: refused when it is adopted, and found by the verification."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest

from fakes.config import cluster_of, disk_of, instance_of, uuid_of
from fakes.master import Master
from ganeti import errors
from ganeti.objects import Disk
from ganeti.objects.device_names import DeviceNames, rbd_image
from ganeti.opcodes.cluster import OpClusterVerifyGroup
from ganeti.opcodes.instance import OpInstanceCreate

BY_ID, BY_PATH, OTHER = "/dev/disk/by-id/lun7", "/dev/disk/by-path/fc-lun-7", "/dev/disk/by-id/lun8"
NODES = (uuid_of("node1"),)
SAN7, SAN8 = "san:naa.600140507", "san:naa.600140508"
DEVICES = {
    BY_ID: [["dev:8:16", SAN7], []],
    BY_PATH: [["dev:8:16", SAN7], []],
    OTHER: [["dev:8:32", SAN8], []],
}


def existing(dev_type: str, *logical_id: Any, **changes: Any) -> Disk:
    return named("web", dev_type, *logical_id, **changes)


def named(name: str, dev_type: str, *logical_id: Any, **changes: Any) -> Disk:
    """The only disk of an instance."""
    return dataclasses.replace(
        disk_of(name), **{"dev_type": dev_type, "logical_id": logical_id, **changes}
    )


def master_with(*disks: Disk, owner: bool = True) -> Master:
    instances = (instance_of("web", disks=tuple(disk.uuid for disk in disks)),) if owner else ()
    master = Master(
        cluster_of(
            2,
            instances,
            disks,
            enabled_disk_templates=("blockdev", "plain", "sharedfile", "rbd", "drbd"),
            volume_group_name="xenvg",
        )
    )
    master.rpc.answers["blockdev_getdimensions"] = lambda node, args: [
        [1 << 30, None] for _ in args["disks"]
    ]
    answer_devices(master, DEVICES)
    return master


def answer_devices(master: Master, *devices: Mapping[str, Any]) -> None:
    """Let the nodes see these devices; each its own if several are given."""
    usual = master.rpc._node_verify

    def answer(node: str, args: dict[str, Any]) -> dict[str, Any]:
        seen = devices[int(node.partition(".")[0][-1]) - 1] if len(devices) > 1 else devices[0]
        asked = args["checks"].get("devices", ())
        found = {path: seen.get(path, "No such file or directory") for path in asked}
        return {**usual(node, args), **({"devices": found} if asked else {})}

    master.rpc.answers["node_verify"] = answer


def adopting(*names: str, template: str = "blockdev", name: str = "new") -> OpInstanceCreate:
    return OpInstanceCreate(
        instance_name=f"{name}.example.com",
        mode="create",
        disk_template=template,
        disks=[{"adopt": name} for name in names],
        nics=[],
        os_type="noop",
        no_install=True,
        pnode="node1",
        ignore_ipolicy=True,
        start=False,
    )


WEB = "disk/0 of instance web.example.com"


@pytest.mark.parametrize(
    ("there", "devices"),
    [
        (existing("blockdev", "manual", BY_ID), {}),
        # A part of it, and the whole of which it is a part.
        (
            existing("blockdev", "manual", "/dev/disk/by-id/lun7-part1"),
            {"/dev/disk/by-id/lun7-part1": [["dev:8:17"], ["dev:8:16", SAN7]]},
        ),
        # The disks of other templates have devices, too.
        (existing("plain", "xenvg", "lv", nodes=NODES), {"/dev/xenvg/lv": [["dev:8:16"], []]}),
        (existing("sharedfile", "loop", "/srv/f"), {"/srv/f": [["dev:8:16"], []]}),
        (
            existing(
                "drbd", uuid_of("node1"), uuid_of("node2"), 11000, 3, 0, "s",
                nodes=(uuid_of("node1"), uuid_of("node2")),
            ),
            {"/dev/drbd3": [["dev:8:16"], []]},
        ),
        (
            existing("rbd", "rbd", "img"),
            {BY_PATH: [["dev:252:0", rbd_image("rbd", "img")], []]},
        ),
    ],
)  # fmt: skip
def test_a_device_of_a_disk_is_not_adopted_under_another_name(
    there: Disk, devices: dict[str, Any]
) -> None:
    master = master_with(there)
    answer_devices(master, {**DEVICES, **devices})
    text = master.refused(adopting(BY_PATH), errors.ECODE_NOTUNIQUE)
    assert WEB in text and BY_PATH in text and "node1.example.com" in text
    assert master.run(adopting(OTHER)) == ["node1.example.com"]


def test_a_detached_disk_still_has_its_device() -> None:
    master = master_with(existing("blockdev", "manual", BY_ID), owner=False)
    text = master.refused(adopting(BY_PATH), errors.ECODE_NOTUNIQUE)
    assert "the detached disk" in text


def test_two_links_in_one_request() -> None:
    text = master_with().refused(adopting(BY_ID, BY_PATH), errors.ECODE_NOTUNIQUE)
    assert f"device {BY_ID}, which is named for another disk" in text


def test_two_jobs_adopt_one_device_at_the_same_time() -> None:
    """The second one is refused, although no disk of the first one is recorded yet."""
    master = master_with()
    other = master.config.reserving_for("job-7")
    for name in DeviceNames.parse(DEVICES[BY_ID]).unique(uuid_of("node2")):
        other.reserve_device(name)
    # Numbers of devices are those of a node; the SAN has one name for all nodes.
    text = master.refused(adopting(BY_PATH), errors.ECODE_NOTUNIQUE)
    assert "being adopted by another job" in text
    assert master.run(adopting(OTHER)) == ["node1.example.com"]
    other.release_reservations()
    assert master.run(adopting(BY_PATH, name="second")) == ["node1.example.com"]


def test_a_volume_whose_device_is_a_disk_is_not_adopted() -> None:
    master = master_with(existing("blockdev", "manual", BY_ID))
    answer_devices(master, {**DEVICES, "/dev/xenvg/theirs": DEVICES[BY_ID]})
    assert WEB in master.refused(adopting("theirs", template="plain"), errors.ECODE_NOTUNIQUE)
    # An inactive volume has no device.
    assert master.run(adopting("resting", template="plain")) == ["node1.example.com"]


def test_a_cluster_without_such_disks_asks_no_node() -> None:
    master = master_with(existing("plain", "xenvg", "lv"))
    master.run(adopting("theirs", template="plain"))
    assert "node_verify" not in master.rpc.names()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [({"devices": {BY_PATH: "it is away"}}, "it is away"), ({}, "it gave no answer")],
)
def test_a_device_that_the_node_cannot_name_is_not_adopted(
    answer: dict[str, Any], reason: str
) -> None:
    master = master_with()
    master.rpc.answers["node_verify"] = lambda node, args: answer
    assert reason in master.refused(adopting(BY_PATH), errors.ECODE_ENVIRON)
    master.rpc.errors["node_verify", "node1.example.com"] = "it is tired"
    assert "it is tired" in master.refused(adopting(BY_PATH), errors.ECODE_ENVIRON)


# -- verification ----------------------------------------------------------------


def verified(*devices: dict[str, Any], second: str = BY_PATH) -> list[str]:
    """Verify a cluster with two instances, and return the findings about devices."""
    disks = [
        named(name, "blockdev", "manual", path) for name, path in (("web", BY_ID), ("mail", second))
    ]
    instances = [
        instance_of(name, disks=(disk.uuid,))
        for name, disk in zip(("web", "mail"), disks, strict=True)
    ]
    master = Master(cluster_of(2, instances, disks, enabled_disk_templates=("blockdev",)))
    answer_devices(master, *devices)
    master.run(OpClusterVerifyGroup(group_name="default", error_codes=True))
    return [line for line in master.job.log if "EINSTANCELAYOUT" in line]


def test_verification_finds_one_device_of_two_disks() -> None:
    (line,) = verified(DEVICES)
    assert "ERROR" in line and WEB.partition(" of ")[0] in line
    assert "web.example.com" in line and "mail.example.com" in line
    assert "node1.example.com, node2.example.com" in line
    assert verified(DEVICES, second=OTHER) == []


def test_verification_finds_a_path_with_another_device_on_another_node() -> None:
    swapped = {**DEVICES, BY_ID: DEVICES[OTHER], OTHER: DEVICES[BY_ID]}
    found = verified(DEVICES, swapped, second=OTHER)
    assert len(found) == 2
    assert all("leads to different devices" in line for line in found)
    assert all(SAN7 in line and SAN8 in line for line in found)
    # Numbers of devices differ from node to node, and a node may not see a device.
    assert verified(DEVICES, {BY_ID: [["dev:65:0", SAN7], []]}, second=OTHER) == []
