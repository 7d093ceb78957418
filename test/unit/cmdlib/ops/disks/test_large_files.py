"""Disk files which are larger than the file system of a node allows are refused first."""

from __future__ import annotations

import dataclasses

import pytest

from fakes.config import cluster_of, disk_of, instance_of
from fakes.master import Master
from ganeti import errors
from ganeti.opcodes import instance as ops

GIB = 1024
#: The largest file of the file system, here that of FAT (MiB).
MOST = 4 * GIB


def lab(template="file", size=1024):
    disk = dataclasses.replace(disk_of("web", 0, template), size=size)
    web = instance_of("web", disks=(disk.uuid,))
    master = Master(cluster_of(3, (web,), (disk,)))

    def space(node, args):
        assert args["sparse"]
        return {
            path: f"{path}: File too large" if size > MOST << 20 else 1 << 30
            for path, size in args["files"].items()
        }

    master.rpc.answers["directory_space"] = space
    return master


def create(size, template="file", **changes):
    return ops.OpInstanceCreate(
        instance_name="new.example.com",
        mode="create",
        disk_template=template,
        disks=[{"size": 1024}, {"size": size}],
        nics=[{}],
        os_type="noop",
        pnode="node2",
        ignore_ipolicy=True,
        **changes,
    )


@pytest.mark.parametrize("template", ["file", "sharedfile"])
def test_a_new_instance(template):
    master = lab()
    text = master.refused(create(MOST + 4, template), errors.ECODE_NORES)
    assert f"node node2.example.com cannot have a disk of template {template}" in text
    assert f"with {MOST + 4} MiB: /srv/ganeti/" in text and "File too large" in text
    assert master.rpc.of("file_storage_dir_create") == []
    master.run(create(MOST, template))


def test_a_directory_of_its_own_is_asked_for():
    master = lab()
    master.run(create(MOST, file_storage_dir="large"))
    ((_node, args),) = master.rpc.of("directory_space")
    assert list(args["files"]) == ["/srv/ganeti/file-storage/large/new.example.com"]


def test_no_node_is_asked_for_what_each_file_system_can_have():
    master = lab()
    master.run(create(MOST - 4))
    assert master.rpc.of("directory_space") == []


@pytest.mark.parametrize(
    ("op", "template", "size"),
    [
        (
            ops.OpInstanceSetParams(
                instance_name="web", disks=[["add", {"size": MOST + 4}]], ignore_ipolicy=True
            ),
            "file",
            1024,
        ),
        (
            ops.OpInstanceRecreateDisks(instance_name="web", disks=[[0, {"size": MOST + 4}]]),
            "file",
            1024,
        ),
        (
            ops.OpInstanceSetParams(instance_name="web", disk_template="file", ignore_ipolicy=True),
            "sharedfile",
            MOST + 4,
        ),
        (
            ops.OpInstanceMove(instance_name="web", target_node="node2", ignore_ipolicy=True),
            "file",
            MOST + 4,
        ),
    ],
)
def test_each_operation_that_makes_files(op, template, size):
    master = lab(template, size)
    gone = isinstance(op, ops.OpInstanceRecreateDisks)
    master.rpc.answers["blockdev_getdimensions"] = lambda node, args: [
        None if gone else [one.size << 20, None] for one in args["disks"]
    ]
    text = master.refused(op, errors.ECODE_NORES)
    assert f"cannot have a disk of template file with {MOST + 4} MiB" in text
    assert master.rpc.of("blockdev_create_multi") == []


def test_a_node_which_does_not_answer_is_not_a_full_one():
    master = lab()
    master.rpc.errors["directory_space"] = "no answer"
    master.run(create(MOST))
