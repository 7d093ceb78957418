"""Which storage units a node has, and what it is asked to learn about them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fakes.config import cluster_of, disk_of
from ganeti.objects import storage_units as units

BASE = cluster_of(1).cluster


def cluster(*templates, **changes):
    return replace(
        BASE,
        enabled_disk_templates=templates,
        **{
            "volume_group_name": "xenvg",
            "file_storage_dir": "/srv/file",
            "shared_file_storage_dir": "/srv/shared",
            "gluster_storage_dir": "",
            **changes,
        },
    )


def volume(group):
    return replace(disk_of("web"), dev_type="plain", logical_id=(group, "disk0"))


def test_a_group_counts_for_plain_and_mirrored_disks():
    found = units.units(cluster("drbd", "plain", "file"), ["xenvg", "ssd"], exclusive=True)
    assert found == [
        ["drbd8", "xenvg", []],
        ["lvm-vg", "xenvg", [True]],
        ["drbd8", "ssd", []],
        ["lvm-vg", "ssd", [True]],
        ["file", "/srv/file", []],
    ]
    # The node is asked once about each pool.
    assert units.questions(found, exclusive=True) == [
        ["lvm-vg", "xenvg", [True]],
        ["lvm-vg", "ssd", [True]],
        ["file", "/srv/file", []],
    ]


def test_space_of_units():
    wanted = units.units(cluster("drbd", "plain", "sharedfile"), ["xenvg", "gone"], exclusive=False)
    answers = [
        {"type": "lvm-vg", "name": "xenvg", "storage_free": 2000, "storage_size": 4000},
        {"type": "lvm-vg", "name": "gone", "storage_free": None, "storage_size": None},
        {"type": "sharedfile", "name": "/srv/shared", "storage_free": 7, "storage_size": 9},
    ]
    assert units.described(wanted, answers) == [
        {"sunit": ["drbd8", "xenvg", []], "free": 2000, "total": 4000},
        {"sunit": ["lvm-vg", "xenvg", [False]], "free": 2000, "total": 4000},
        {"sunit": ["sharedfile", "/srv/shared", []], "free": 7, "total": 9},
    ]


@pytest.mark.parametrize(
    ("templates", "changes", "disks", "expected"),
    [
        (("plain",), {}, [volume("ssd"), volume("xenvg"), volume("ssd")], ["xenvg", "ssd"]),
        (("plain",), {"volume_group_name": None}, [volume("ssd")], ["ssd"]),
        (("file",), {}, [volume("ssd")], []),
        (("drbd",), {}, [disk_of("web")], ["xenvg"]),
    ],
)
def test_groups_in_use(templates, changes, disks, expected):
    table = {str(number): disk for number, disk in enumerate(disks)}
    assert units.volume_groups(cluster(*templates, **changes), table) == expected
    assert units.volume_groups(cluster(*templates, **changes), table) == expected


def test_directories_that_are_not_there():
    assert units.units(cluster("gluster", "diskless"), [], exclusive=False) == []
