"""A new instance with shared files gets no node which has not mounted their directory."""

from __future__ import annotations

import json

import pytest

from fakes.config import cluster_of, disk_of, instance_of, uuid_of
from fakes.master import Master
from ganeti import errors
from ganeti.opcodes import instance as ops

NAMES = [f"node{number}.example.com" for number in range(1, 4)]
DIRECTORY = "/srv/ganeti/shared-file-storage"


def create(**changes):
    values = {
        "instance_name": "new.example.com",
        "mode": "create",
        "disk_template": "sharedfile",
        "disks": [{"size": 1024}],
        "nics": [{}],
        "os_type": "noop",
    }
    return ops.OpInstanceCreate(**{**values, **changes})


def last_allowed(node, args):
    """An allocator that takes the last node it may choose."""
    request = json.loads(args["request"])
    names = request["request"].get("restrict-to-nodes", list(request["nodes"]))
    return json.dumps({"success": True, "info": "", "result": sorted(names)[-1:]})


def lab(*, unmounted=(), template="sharedfile", used=True, nodes=3, **changes):
    """Three nodes; the first one has an instance with shared files, if they are used."""
    disks = (disk_of("web", 0, template),) if used else ()
    web = instance_of("web", disks=tuple(disk.uuid for disk in disks))
    master = Master(cluster_of(nodes, (web,), disks, **changes))
    master.rpc.unmounted = {NAMES[number - 1] for number in unmounted}
    master.rpc.answers["iallocator_runner"] = last_allowed
    return master


@pytest.mark.parametrize("used", [True, False])
def test_an_allocator_does_not_choose_it(used):
    master = lab(unmounted=[3], used=used)
    master.run(create(iallocator="chooser"))
    new = next(one for one in master.config.instances() if one.name == "new.example.com")
    assert new.primary_node == uuid_of("node2")
    assert master.job.said("will not be chosen: node3.example.com (its directory /srv/ganeti/")


@pytest.mark.parametrize("used", [True, False])
def test_a_named_node_is_refused(used):
    master = lab(unmounted=[3], used=used)
    text = master.refused(create(pnode="node3"), errors.ECODE_ENVIRON)
    assert f"node {NAMES[2]} cannot get disks of template sharedfile" in text
    assert f"its directory {DIRECTORY} is not the one of {NAMES[0]}" in text
    assert "Mount its file system" in text
    assert master.rpc.of("file_storage_dir_create") == []
    master.run(create(pnode="node2"))


def test_the_directory_in_use_counts_and_not_the_one_of_most_nodes():
    master = lab(unmounted=[2, 3])
    assert NAMES[0] in master.refused(create(pnode="node2"), errors.ECODE_ENVIRON)
    master.run(create(iallocator="chooser"))
    new = next(one for one in master.config.instances() if one.name == "new.example.com")
    assert new.primary_node == uuid_of("node1")


def test_without_a_directory_of_most_nodes_nothing_is_known():
    master = lab(unmounted=[2, 3], used=False)
    master.run(create(pnode="node3"))


def test_no_node_has_it():
    master = lab(unmounted=[2, 3], node_changes={1: {"drained": True}})
    text = master.refused(create(iallocator="chooser"), errors.ECODE_NORES)
    assert "no node has the directory for disks of template sharedfile" in text


def test_a_missing_directory_is_not_the_one_in_use():
    master = lab()
    seen = master.rpc._directory_seen
    master.rpc.answers["directory_seen"] = lambda node, args: (
        dict.fromkeys(args["directories"], []) if node == NAMES[2] else seen(node, args)
    )
    assert "cannot get disks" in master.refused(create(pnode="node3"), errors.ECODE_ENVIRON)


def test_a_node_of_which_it_is_not_known_is_warned_about():
    master = lab()
    problem = errors.NodeCallFailed(NAMES[2], "directory_seen", "no answer")
    master.rpc.errors["directory_seen", NAMES[2]] = problem
    master.run(create(pnode="node3"))
    assert master.job.said(f"it is not known whether node {NAMES[2]} has the directory for disks")


def test_few_calls():
    """Where the directory is in use, only one node makes a mark."""
    master = lab()
    master.run(create(pnode="node3"))
    assert [node for node, _args in master.rpc.of("directory_mark")] == NAMES[:1]
    assert [node for node, _args in master.rpc.of("directory_seen")] == [NAMES[0], NAMES[2]]


@pytest.mark.parametrize("template", ["file", "diskless"])
def test_other_templates_are_not_asked_for(template):
    master = lab(used=False)
    disks = [] if template == "diskless" else [{"size": 1024}]
    master.run(create(pnode="node3", disk_template=template, disks=disks))
    assert master.rpc.of("directory_seen") == []


def test_several_instances_at_once():
    master = lab(unmounted=[3])
    op = ops.OpInstanceMultiAlloc(
        instances=[create(), create(instance_name="other.example.com")], iallocator="chooser"
    )
    requests = []

    def allocator(node, args):
        requests.append(json.loads(args["request"])["request"])
        result = [[[one["name"], [NAMES[1]]] for one in requests[0]["instances"]], []]
        return json.dumps({"success": True, "info": "", "result": result})

    master.rpc.answers["iallocator_runner"] = allocator
    master.run(op)
    assert [one["restrict-to-nodes"] for one in requests[0]["instances"]] == [NAMES[:2]] * 2
    assert len(master.rpc.of("directory_mark")) == 1


def test_a_conversion_and_new_disks_elsewhere():
    master = lab(unmounted=[1], template="file")
    op = ops.OpInstanceSetParams(instance_name="web", disk_template="sharedfile")
    assert "cannot get disks" in master.refused(op, errors.ECODE_ENVIRON)
    other = lab(unmounted=[3])
    op = ops.OpInstanceRecreateDisks(instance_name="web", nodes=["node3"])
    other.rpc.answers["blockdev_getdimensions"] = lambda node, args: [None] * len(args["disks"])
    assert "cannot get disks" in other.refused(op, errors.ECODE_ENVIRON)
