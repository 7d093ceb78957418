"""Proof 5: many mirrored instances at once; and what an activation costs."""

from __future__ import annotations

import json
import os
import re
from datetime import datetime
from typing import Any

import pytest

from lab import drbd
from lab.cluster import Cluster

# From the first program of an activation to the end of the last, in the log of a node daemon.
_ACTIVATION = (r"^(.{23}): [^\n]*running drbdsetup new-resource.*"
               r"running drbdsetup primary[^\n]*\n(.{23}): ")
COUNT = int(os.environ.get("LAB_MANY", "20"))


@pytest.fixture(scope="module", autouse=True)
def instances(cluster: Cluster) -> None:
    """Twenty instances, created at the same time, in both directions between the nodes."""
    wishes = {f"many{number}": {
        "disk_template": "drbd", "disks": [{"size": 16}], "os_type": "tiny", "no_install": True,
        "nics": [], "start": False, "name_check": False, "ip_check": False, "mode": "create",
        "hypervisor": "fake", "wait_for_sync": False, "beparams": {"minmem": 32, "maxmem": 32},
        "pnode": f"node{number % 2 + 1}", "snode": f"node{2 - number % 2}",
    } for number in range(COUNT)}
    at_once(cluster, [{"OP_ID": "OP_INSTANCE_CREATE", "instance_name": name, **wish}
                      for name, wish in wishes.items()])


def at_once(cluster: Cluster, opcodes: list[dict[str, Any]]) -> None:
    """Run opcodes, each as a job of its own, and wait for all."""
    cluster.master.write("/root/many.json", json.dumps(opcodes))
    cluster.gnt("debug", "submit-job", "--each", "/root/many.json", timeout_s=3600)


def test_minors_and_ports_are_unique(cluster: Cluster) -> None:
    disks = cluster.config()["disks"].values()
    assert len(disks) == COUNT
    ids = [disk["logical_id"] for disk in disks]
    assert len({one[2] for one in ids}) == COUNT
    assert len({one[5] for one in ids}) == COUNT
    minors = {(one[0], one[3]) for one in ids} | {(one[1], one[4]) for one in ids}
    assert len(minors) == 2 * COUNT
    for name in ("node1", "node2"):
        assert sorted(drbd.minors(cluster.lab[name])) == list(range(COUNT))


def test_activation_does_not_grow_with_the_number(cluster: Cluster) -> None:
    """Commands of one activation beside 19 other devices, and beside none."""
    log, machine = "/var/log/ganeti/node-daemon.log", cluster.lab["node1"]

    def activation() -> tuple[int, float]:
        """How many programs node1 runs for one instance, and the seconds it takes there."""
        cluster.gnt("instance", "deactivate-disks", "many0")
        before = int(machine.run(f"wc -l <{log}"))
        cluster.gnt("instance", "activate-disks", "many0")
        text = machine.run(f"tail -n +{before + 1} {log}")
        found = re.search(_ACTIVATION, text, re.MULTILINE | re.DOTALL)
        assert found is not None, text
        begin, end = (datetime.strptime(when, "%Y-%m-%d %H:%M:%S,%f") for when in found.groups())
        count = len(re.findall(r"INFO running (?:drbd|lv|pv|vg)", text))
        return count, (end - begin).total_seconds()

    def smallest() -> tuple[int, float]:
        """The least of three: whatever else the machine does only adds."""
        return min(activation() for _attempt in range(3))

    beside_many = smallest()
    at_once(cluster, [{"OP_ID": "OP_INSTANCE_DEACTIVATE_DISKS", "instance_name": f"many{number}"}
                      for number in range(1, COUNT)])
    alone = smallest()
    print(f"activation: {alone[0]} commands, {alone[1]:.2f} s alone;"
          f" {beside_many[0]} commands, {beside_many[1]:.2f} s beside {COUNT - 1} devices")
    assert beside_many[0] == alone[0]


def test_end(cluster: Cluster) -> None:
    at_once(cluster, [{"OP_ID": "OP_INSTANCE_REMOVE", "instance_name": f"many{number}"}
                      for number in range(COUNT)])
    for name in ("node1", "node2"):
        assert drbd.minors(cluster.lab[name]) == {}
        assert drbd.volumes(cluster.lab[name]) == []
