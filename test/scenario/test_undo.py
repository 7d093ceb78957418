"""Commands and their undo, over real daemons: the configuration is as it was before."""

from __future__ import annotations

import json
from typing import Any

import pytest
from harness import Cluster

WEB, DB = "web.example.com", "db.example.com"
# What each commit changes, and what an undo makes anew.
IGNORED = frozenset({"serial_no", "mtime", "ctime", "uuid", "candidate_certs"})
COMMANDS = (
    f"gnt-instance modify -B memory=200,vcpus=2 {WEB}",
    f"gnt-instance modify --net 0:mac=aa:00:00:99:99:99,name=eth {WEB}",
    f"gnt-instance modify --net 0:remove {WEB}",
    f"gnt-instance modify --disk 0:name=root,mode=ro {WEB}",
    f"gnt-instance modify --disk add:size=4M {WEB}",
    f"gnt-instance modify --disk 0:detach {WEB}",
    f"gnt-instance modify --offline {WEB}",
    f"gnt-instance add-tags {WEB} a b",
    f"gnt-instance rename {WEB} www.example.com",
    f"gnt-instance move -f -n node2 {WEB}",
    f"gnt-instance startup {DB}",
    f"gnt-instance failover -f -n node2 {DB}",
    "gnt-node modify --drained=yes node2",
    "gnt-node modify --node-parameters=cpu_speed=2 node2",
    "gnt-group modify --ipolicy-vcpu-ratio=3 --alloc-policy=last_resort default",
    "gnt-group rename default rack1",
    "gnt-network modify --gateway=10.9.0.9 --add-reserved-ips=10.9.0.30 net1",
    "gnt-network connect -N mode=routed,link=100 net1 default",
    "gnt-cluster modify -B vcpus=4 --max-running-jobs=9",
)


@pytest.fixture(scope="module", autouse=True)
def _objects(cluster: Cluster) -> None:
    add = ["gnt-instance", "add", "-n", cluster.node_names[0], "--no-install", "--ignore-ipolicy"]
    add += ["--no-name-check", "--no-ip-check"]
    cluster.run(*add, "-t", "file", "-s", "4M", WEB).ok()
    cluster.run(*add, "-t", "diskless", DB).ok()
    cluster.run("gnt-network", "add", "--network=10.9.0.0/24", "--gateway=10.9.0.1", "net1").ok()


def newest(cluster: Cluster) -> int:
    found = json.loads(
        cluster.run("gnt-cluster", "history", "-n", "1", "--output=json").ok().stdout
    )
    return int(found[0]["serial"])


def state(cluster: Cluster) -> Any:
    found = cluster.run("gnt-cluster", "history", f"--at={newest(cluster)}", "--output=json").ok()
    return without(json.loads(found.stdout))


def without(value: Any) -> Any:
    if isinstance(value, list):
        return [without(one) for one in value]
    if isinstance(value, dict):
        return {key: without(one) for key, one in value.items() if key not in IGNORED}
    return value


# Most of them run with the long tests only.
SHORT = ("--net 0:remove", "move -f", "failover -f", "--gateway=")


@pytest.mark.parametrize(
    "line",
    [
        line if any(word in line for word in SHORT) else pytest.param(line, marks=pytest.mark.long)
        for line in COMMANDS
    ],
)
def test_undone(cluster: Cluster, line: str) -> None:
    before = state(cluster)
    cluster.run(*line.split()).ok()
    serial = newest(cluster)
    assert state(cluster) != before
    assert "Undo of commit" in cluster.run("gnt-cluster", "undo", "-f", str(serial)).ok().text
    assert state(cluster) == before


def test_a_second_undo_brings_the_change_back(cluster: Cluster) -> None:
    before = state(cluster)
    cluster.run("gnt-instance", "modify", "-B", "vcpus=3", WEB).ok()
    after = state(cluster)
    cluster.run("gnt-instance", "undo", "-f", WEB).ok()
    assert state(cluster) == before
    cluster.run("gnt-instance", "undo", "-f", WEB).ok()
    assert state(cluster) == after


def test_a_removed_instance(cluster: Cluster) -> None:
    cluster.run("gnt-instance", "remove", "-f", WEB).ok()
    ended = cluster.run("gnt-instance", "undo", "-f", WEB)
    assert ended.exit_code == 1
    assert "it was removed with its disks" in ended.text
