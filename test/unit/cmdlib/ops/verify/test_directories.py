"""Directories which nodes share, or do not: what verification finds."""

from __future__ import annotations

import dataclasses

import pytest

from fakes.config import GROUP, cluster_of, uuid_of
from fakes.master import Master
from ganeti.cmdlib.ops.verify import directories
from ganeti.cmdlib.ops.verify.findings import Findings
from ganeti.opcodes.cluster import OpClusterVerifyGroup

NAMES = [f"node{number}.example.com" for number in range(1, 5)]
CODE = "ENODESHAREDFILESTORAGEPATHUNUSABLE"
TEMPLATES = ("diskless", "file", "sharedfile")


def found(master, answers=None):
    lines = []
    op = OpClusterVerifyGroup(group_name="default", error_codes=True)
    findings = Findings(lines.append, op)
    nodes = [node for node in master.config.nodes() if node.group == GROUP]
    given = answers if answers is not None else {node.uuid: {} for node in nodes}
    directories.compare(findings, master.config, master.rpc, nodes, given)
    return lines[1:]


def test_a_node_which_has_not_mounted_the_shared_directory():
    master = Master(cluster_of(3, enabled_disk_templates=TEMPLATES))
    assert found(master) == []
    master.rpc.unmounted = {NAMES[2]}
    (line,) = found(master)
    assert line.startswith(
        f"  - ERROR:{CODE}:node:{NAMES[2]}:its directory for shared files, /srv/"
    )
    assert f"is not the one of {NAMES[0]}, {NAMES[1]}: a file which was made there" in line
    # What its own check found is said once.
    answers = {node.uuid: {} for node in master.config.nodes()}
    answers[uuid_of("node3")] = {"shared-file-storage-path": "is not a directory"}
    assert found(master, answers) == []


def test_when_no_directory_is_the_one_of_most_nodes_all_are_reported():
    master = Master(cluster_of(2, enabled_disk_templates=TEMPLATES))
    master.rpc.unmounted = {NAMES[1]}
    assert [line.split(":")[3] for line in found(master)] == NAMES[:2]


@pytest.mark.parametrize("call", ["directory_seen", "directory_mark"])
def test_not_known_is_said(call):
    master = Master(cluster_of(3, enabled_disk_templates=TEMPLATES))
    master.rpc.errors[call, NAMES[2]] = "stale file handle"
    if call == "directory_mark":
        master.rpc.answers["directory_seen"] = lambda node, args: dict.fromkeys(
            args["directories"], [] if node == NAMES[2] else args["keys"][:2]
        )
    lines = found(master)
    if call == "directory_seen":
        # The others see its mark, so it is known.
        assert lines == []
        return
    (line,) = (line for line in lines if CODE in line)
    assert NAMES[2] in line and "it is not known" in line and "stale file handle" in line


def test_a_shared_directory_of_exports_is_named_also_for_another_group():
    data = cluster_of(4, enabled_disk_templates=TEMPLATES)
    rack = dataclasses.replace(data.nodegroups[GROUP], name="rack2", uuid="group-2")
    away = dataclasses.replace(data.nodes[uuid_of("node4")], group="group-2")
    data = dataclasses.replace(
        data,
        nodegroups={**data.nodegroups, "group-2": rack},
        nodes={**data.nodes, away.uuid: away},
    )
    master = Master(data)
    master.rpc.one_directory = {NAMES[1], NAMES[3]}
    exports, files = sorted(found(master), key=lambda line: "template file" in line)
    assert exports == (
        f"  - NOTICE: nodes {NAMES[1]}, {NAMES[3]} have the same directory for exports,"
        " /var/lib/ganeti/export"
    )
    assert f"nodes {NAMES[1]}, {NAMES[3]} have the same directory for disks of template" in files
