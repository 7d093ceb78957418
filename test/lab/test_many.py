"""Proof 5: many mirrored instances at once; and what an activation costs."""

from __future__ import annotations

import json
import re
import time

import pytest

from lab import drbd
from lab.cluster import Cluster

COUNT = 20


@pytest.fixture(scope="module", autouse=True)
def instances(cluster: Cluster) -> None:
    """Twenty instances, created at the same time, in both directions between the nodes."""
    wishes = {f"many{number}": {
        "disk_template": "drbd", "disks": [{"size": 16}], "os_type": "tiny", "no_install": True,
        "nics": [], "start": False, "name_check": False, "ip_check": False, "mode": "create",
        "hypervisor": "fake", "wait_for_sync": False, "beparams": {"minmem": 32, "maxmem": 32},
        "pnode": f"node{number % 2 + 1}", "snode": f"node{2 - number % 2}",
    } for number in range(COUNT)}
    opcodes = json.dumps([{"OP_ID": "OP_INSTANCE_CREATE", "instance_name": name, **wish}
                          for name, wish in wishes.items()])
    cluster.master.write("/root/many.json", opcodes)
    cluster.gnt("debug", "submit-job", "--each", "/root/many.json", timeout_s=1500)


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
    def activation() -> tuple[int, float]:
        cluster.gnt("instance", "deactivate-disks", "many0")
        log = "/var/log/ganeti/node-daemon.log"
        machine = cluster.lab["node1"]
        before = int(machine.run(f"wc -l <{log}"))
        begin = time.monotonic()
        cluster.gnt("instance", "activate-disks", "many0")
        took_s = time.monotonic() - begin
        lines = machine.run(f"tail -n +{before + 1} {log}").splitlines()
        return sum(bool(re.search(r"INFO running (drbd|lv|pv|vg)", line)) for line in lines), took_s

    beside_many = activation()
    for number in range(1, COUNT):
        cluster.gnt("instance", "deactivate-disks", f"many{number}")
    alone = activation()
    print(f"activation: {alone[0]} commands, {alone[1]:.1f} s alone;"
          f" {beside_many[0]} commands, {beside_many[1]:.1f} s beside {COUNT - 1} devices")
    assert beside_many[0] == alone[0]


def test_end(cluster: Cluster) -> None:
    for number in range(COUNT):
        cluster.remove(f"many{number}")
    for name in ("node1", "node2"):
        assert drbd.minors(cluster.lab[name]) == {}
        assert drbd.volumes(cluster.lab[name]) == []
