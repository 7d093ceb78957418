"""Node groups and networks over real daemons: what is connected where, who gets which address."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from harness import Cluster, Finished, SteadyCluster, made

ADD = ("gnt-instance", "add", "-t", "diskless", "-o", "noop", "--no-install")
ROUTED = "mode=routed,link=main"


@pytest.fixture(scope="module")
def cluster(cluster_directory: Path) -> Iterator[Cluster]:
    with made(SteadyCluster(cluster_directory, 4, "--hypervisor", "fake")) as one:
        one.make_os("noop")
        one.install_allocator()
        yield one


def groups(cluster: Cluster) -> dict[str, str]:
    return dict(cluster.rows("gnt-node", "list", "-o", "name,group"))


def addresses(cluster: Cluster) -> dict[str, str]:
    return dict(cluster.rows("gnt-instance", "list", "-o", "name,nic.ips"))


def put_hook(cluster: Cluster, directory: str, body: str) -> None:
    for node in cluster.node_names:
        place = cluster.path(node, f"etc/ganeti/hooks/{directory}.d")
        place.mkdir(parents=True, exist_ok=True)
        script = place / "10-test"
        script.write_text(f"#!/bin/sh\n{body}\n")
        script.chmod(0o755)


def test_groups(cluster: Cluster) -> None:
    """The life of a group, its parameters, and who is in it."""
    nodes = cluster.node_names
    cluster.run("gnt-group", "add", "--node-parameters", "spindle_count=7", "rack2").ok()
    cluster.run("gnt-group", "add", "rack2").failed("already_exists", "rack2")
    cluster.run("gnt-group", "add", "a b").failed("wrong_input")
    cluster.run("gnt-group", "assign-nodes", "rack2", nodes[2], nodes[3]).ok()
    assert groups(cluster) == {
        nodes[0]: "default",
        nodes[1]: "default",
        nodes[2]: "rack2",
        nodes[3]: "rack2",
    }
    assert cluster.rows("gnt-node", "list", "-o", "ndp/spindle_count") == [["1"]] * 2 + [["7"]] * 2
    cluster.run("gnt-group", "remove", "rack2").failed("wrong_state", nodes[3])
    done = cluster.run(
        "gnt-group",
        "modify",
        "--node-parameters",
        "spindle_count=default",
        "--alloc-policy",
        "last_resort",
        "-D",
        "drbd:resync-rate=2048",
        "rack2",
    )
    assert " - ndparams -> {}" in done.ok().stdout
    info = cluster.run("gnt-group", "info", "rack2").ok().stdout
    assert "spindle_count: default (1)" in info
    assert "resync-rate: 2048" in info
    put_hook(
        cluster,
        "group-rename-post",
        'echo "$GANETI_OLD_NAME $GANETI_NEW_NAME'
        ' $GANETI_OBJECT_TYPE" >> "$GANETI_DATA_DIR/renamed"',
    )
    cluster.run("gnt-group", "rename", "rack2", "rackB").ok()
    cluster.run("gnt-group", "rename", "rackB", "rack2").ok()
    # The master and both nodes of the group were told; all wrote into the master's directory.
    told = cluster.path(nodes[0], "var/lib/ganeti/renamed").read_text().splitlines()
    assert sorted(told) == ["rack2 rackB GROUP"] * 3 + ["rackB rack2 GROUP"] * 3
    cluster.run("gnt-group", "add-tags", "rack2", "cold").ok()
    assert cluster.rows(
        "gnt-group", "list", "-o", "name,node_cnt,alloc_policy", "-F", '"cold" in tags'
    ) == [["rack2", "2", "last_resort"]]
    assert cluster.run("gnt-cluster", "verify").ok()


def test_policy_of_a_group(cluster: Cluster) -> None:
    """Bounds of its own; who does not fit any more is named, and a new one is refused."""
    node = cluster.node_names[3]
    cluster.run(*ADD, "--no-nics", "-B", "memory=256", "-n", node, "big").ok()
    small = (
        "min:memory-size=1,cpu-count=1,disk-count=0,disk-size=1,nic-count=0,spindle-use=1"
        "/max:memory-size=128,cpu-count=1,disk-count=1,disk-size=1024,nic-count=8,"
        "spindle-use=1"
    )
    done = cluster.run("gnt-group", "modify", "--ipolicy-bounds-specs", small, "rack2").ok()
    assert "big" in done.text
    cluster.run(*ADD, "--no-nics", "-B", "memory=256", "-n", node, "big2").failed(
        "policy of group rack2 allows at most 128 MiB of memory"
    )
    shown = cluster.run("gnt-group", "show-ispecs-cmd", "rack2").ok().stdout
    assert shown.startswith("gnt-group add --ipolicy-bounds-specs min:cpu-count=1,")
    cluster.run("gnt-group", "modify", "--ipolicy-bounds-specs", "default", "rack2").ok()
    cluster.run(*ADD, "--no-nics", "-B", "memory=256", "-n", node, "big2").ok()
    for name in ("big", "big2"):
        cluster.run("gnt-instance", "remove", "-f", name).ok()


def test_instances_change_groups(cluster: Cluster) -> None:
    """One by one, and all of a group; nothing moves when one cannot."""
    first = cluster.node_names[0]
    names = ["roam1.example.com", "roam2.example.com"]
    for name in names:
        cluster.run(
            "gnt-instance",
            "add",
            "-t",
            "sharedfile",
            "-s",
            "1m",
            "-o",
            "noop",
            "--no-nics",
            "-n",
            first,
            name,
        ).ok()

    def where() -> set[str]:
        rows = cluster.rows("gnt-instance", "list", "-o", "name,pnode,status")
        assert {status for _name, _node, status in rows} == {"running"}
        return {groups(cluster)[node] for _name, node, _status in rows}

    cluster.run(
        "gnt-instance", "change-group", "-I", "most-memory", "--to", "default", names[0]
    ).failed("is in group default already")
    cluster.run("gnt-instance", "change-group", "-I", "most-memory", "--to", "rack2", names[0]).ok()
    assert where() == {"default", "rack2"}
    cluster.run("gnt-group", "evacuate", "-I", "most-memory", "--sequential", "default").ok()
    assert where() == {"rack2"}
    done = cluster.run("gnt-group", "evacuate", "-I", "most-memory", "default").ok()
    assert "has no instances" in done.text
    cluster.run(
        "gnt-group", "evacuate", "-I", "most-memory", "--force-failover", "--to", "default", "rack2"
    ).ok()
    assert where() == {"default"}
    cluster.run(
        "gnt-instance",
        "add",
        "-t",
        "file",
        "-s",
        "1m",
        "-o",
        "noop",
        "--no-nics",
        "-n",
        first,
        "fixed.example.com",
    ).ok()
    cluster.run("gnt-group", "evacuate", "-I", "most-memory", "default").failed(
        "fixed.example.com", "Nothing was moved"
    )
    assert where() == {"default"}
    for name in (*names, "fixed.example.com"):
        cluster.run("gnt-instance", "remove", "-f", name).ok()


def add(cluster: Cluster, name: str, net: str, *options: str) -> Finished:
    return cluster.run(
        *ADD, "-n", cluster.node_names[0], "--net", net, *options, f"{name}.example.com"
    )


def test_networks(cluster: Cluster) -> None:
    """Instances get what the network's connection says, and addresses nobody else has."""
    cluster.run("gnt-network", "add", "--network", "nonsense", "lan").failed("wrong_input")
    put_hook(cluster, "network-add-pre", 'test "$GANETI_NETWORK_GATEWAY" = 203.0.113.1')
    cluster.run(
        "gnt-network",
        "add",
        "--network",
        "203.0.113.0/28",
        "--gateway",
        "203.0.113.1",
        "--add-reserved-ips",
        "203.0.113.2,203.0.113.3",
        "-m",
        "aa:bb:cc",
        "--tags",
        "dmz",
        "lan",
    ).ok()
    cluster.run("gnt-network", "add", "--network", "192.0.2.0/24", "lan2").failed("10-test")
    add(cluster, "early", "0:network=lan,ip=pool").failed("not connected to node group default")
    cluster.run("gnt-network", "connect", "-N", "mode=bogus", "lan").failed("network_mode")
    cluster.run("gnt-network", "connect", "-N", ROUTED, "lan").ok()
    assert "already" in cluster.run("gnt-network", "connect", "-N", ROUTED, "lan").ok().text
    assert cluster.rows("gnt-network", "list", "-o", "group_list,free_count,tags") == [
        ["default (routed, main, ), rack2 (routed, main, )", "11", "dmz"]
    ]

    add(cluster, "one", "0:network=lan,ip=pool").ok()
    add(cluster, "two", "0:network=lan,ip=203.0.113.9").ok()
    add(cluster, "three", "0:network=lan,ip=203.0.113.9").failed("resource_not_unique")
    add(cluster, "three", "0:network=lan,ip=203.0.113.2").failed("resource_not_unique")
    add(cluster, "three", "0:network=lan,ip=192.0.2.9").failed("not in network lan")
    add(cluster, "three", "0:network=lan,mode=routed,ip=pool").failed("together with a network")
    add(cluster, "three", "0:ip=pool").failed("network=")
    add(cluster, "three", "0:mode=routed,ip=203.0.113.8").failed("belongs to network lan")
    add(cluster, "three", "0:network=lan,ip=203.0.113.2", "--no-conflicts-check").ok()
    assert addresses(cluster) == {
        "one.example.com": "203.0.113.4",
        "two.example.com": "203.0.113.9",
        "three.example.com": "203.0.113.2",
    }
    (row,) = cluster.rows(
        "gnt-instance", "list", "-o", "nic.macs,nic.modes,nic.links", "one.example.com"
    )
    assert (row[0][:8], *row[1:]) == ("aa:bb:cc", "routed", "main")

    info = cluster.run("gnt-network", "info", "lan").ok().stdout
    assert "        0 XXXXX....X.....X " in info
    assert "  Free: 9 (56.25%)" in info
    assert "    three.example.com: 0:203.0.113.2\n" in info
    cluster.run("gnt-network", "disconnect", "lan", "default").failed("one.example.com")
    cluster.run("gnt-network", "disconnect", "lan", "rack2").ok()
    cluster.run("gnt-network", "remove", "-f", "lan").failed("two.example.com")
    assert cluster.run("gnt-cluster", "verify").ok()


def test_addresses_are_given_out_once(cluster: Cluster) -> None:
    """Many instances at once empty the pool to its last address; what is removed comes back."""
    names = [f"many{index}" for index in range(9)]
    with ThreadPoolExecutor(len(names)) as pool:
        for done in pool.map(lambda name: add(cluster, name, "0:network=lan,ip=pool"), names):
            done.ok()
    given = addresses(cluster)
    assert len(set(given.values())) == len(given) == 12
    add(cluster, "late", "0:network=lan,ip=pool").failed("insufficient_resources", "lan")
    cluster.run("gnt-instance", "remove", "-f", "many3").ok()
    add(cluster, "late", "0:network=lan,ip=pool").ok()
    assert addresses(cluster)["late.example.com"] == given["many3.example.com"]
    for name in cluster.rows("gnt-instance", "list", "-o", "name"):
        cluster.run("gnt-instance", "remove", "-f", name[0]).ok()
    assert cluster.rows("gnt-network", "list", "-o", "free_count,inst_cnt") == [["11", "0"]]


def test_networks_change_and_go(cluster: Cluster) -> None:
    cluster.run(
        "gnt-network",
        "modify",
        "--gateway",
        "203.0.113.5",
        "--remove-reserved-ips",
        "203.0.113.3",
        "-m",
        "none",
        "lan",
    ).ok()
    cluster.run("gnt-network", "modify", "lan").failed("at least one")
    found = json.loads(
        cluster.run("gnt-network", "list", "-o", "json", "-o", "gateway,mac_prefix,map").ok().stdout
    )
    assert found[0]["gateway"] == "203.0.113.5"
    assert found[0]["mac_prefix"] is None
    assert found[0]["map"] == "X.X..X.........X"
    cluster.run("gnt-network", "rename", "lan", "yard").ok()
    cluster.run("gnt-network", "remove", "yard").failed("wrong_state", "default")
    cluster.run("gnt-network", "remove", "-f", "yard").ok()
    assert cluster.rows("gnt-network", "list") == []
    nodes = cluster.node_names
    cluster.run("gnt-group", "assign-nodes", "default", *nodes).ok()
    cluster.run("gnt-group", "remove", "rack2").ok()
    cluster.run("gnt-group", "remove", "default").failed("wrong_state")
    assert cluster.run("gnt-cluster", "verify").ok()
