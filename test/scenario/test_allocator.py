"""Instances whose nodes are chosen by an allocator, over real daemons."""

from __future__ import annotations

import itertools
import json
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from harness import PATIENCE_S, ROOT, Cluster

ADD = ("gnt-instance", "add", "-o", "noop", "--no-nics")
EXAMPLE = ROOT / "doc/examples/iallocators/most-memory"
HAIL = Path("/usr/lib/ganeti/3.0/usr/lib/ganeti/iallocators/hail")
ORIGINAL = "original-hail"
PARALLEL = 6


@pytest.fixture(scope="module", autouse=True)
def prepared(cluster: Cluster) -> None:
    """The example allocator on every node, and an OS with nothing to install."""
    cluster.make_os("noop")
    cluster.install_allocator()
    for node in cluster.node_names:
        directory = cluster.path(node, "usr/local/lib/ganeti/iallocators")
        if HAIL.exists():
            # The program looks at the name under which it is called.
            (directory / ORIGINAL).write_text(f'#!/bin/sh\nexec {HAIL} "$@"\n')
            (directory / ORIGINAL).chmod(0o755)


def nodes_of(cluster: Cluster) -> dict[str, str]:
    return {
        name: node for name, node, status in
        cluster.rows("gnt-instance", "list", "-o", "name,pnode,status") if status == "running"
    }  # fmt: skip


def test_the_allocator_chooses_a_node(cluster: Cluster) -> None:
    name = "chosen.example.com"
    done = cluster.run(*ADD, "-t", "diskless", "-I", "most-memory", name).ok()
    node = nodes_of(cluster)[name]
    assert f"Selected nodes for instance {name} via iallocator most-memory: {node}" in done.text
    cluster.run("gnt-instance", "remove", "--force", name).ok()


def test_the_default_allocator_needs_no_program(cluster: Cluster) -> None:
    assert "default instance allocator: hail" in cluster.run("gnt-cluster", "info").ok().text
    name = "default.example.com"
    done = cluster.run(*ADD, "-t", "sharedfile", "-s", "1g", name).ok()
    assert f"via iallocator hail: {nodes_of(cluster)[name]}" in done.text
    debug = ("gnt-debug", "iallocator", "-m", "allocate", "-t", "file", "--disks", "1g", "-o",
             "noop", "new.example.com")  # fmt: skip
    request = cluster.path(cluster.master, "request")
    request.write_text(cluster.run(*debug).ok().stdout)
    # The program is there, too. The nodes are those of one machine, whose free memory changes.
    for command in ((*debug, "--dir", "out", "-I", "hail"), ("hail", str(request))):
        answer = json.loads(cluster.run(*command).ok().stdout)
        assert answer["success"]
        assert set(answer["result"]) <= set(cluster.node_names)
    cluster.run("gnt-instance", "remove", "--force", name).ok()


def test_the_original_hail_chooses_a_node(cluster: Cluster) -> None:
    if not HAIL.exists():
        pytest.skip("no hail. Run: devel/install-packages ganeti-htools-3.0")
    name = "hailed.example.com"
    cluster.run(*ADD, "-t", "sharedfile", "-s", "1g", "-I", ORIGINAL, name).ok()
    assert nodes_of(cluster)[name] in cluster.node_names
    cluster.run("gnt-instance", "remove", "--force", name).ok()


def allocators() -> list[str]:
    return ["most-memory", "hail", *([ORIGINAL] if HAIL.exists() else [])]


def test_instances_move_to_nodes_that_are_chosen(cluster: Cluster) -> None:
    """One by one, and all of a node, while it works and when it is gone."""
    names = ["roam1.example.com", "roam2.example.com"]
    first = cluster.node_names[1]
    for name in names:
        cluster.run(*ADD, "-t", "sharedfile", "-s", "1g", "-n", first, name).ok()
    places = [nodes_of(cluster)[names[0]]]
    for index, allocator in enumerate(allocators()):
        command = ("migrate", "failover")[index % 2]
        done = cluster.run("gnt-instance", command, "-f", "-I", allocator, names[0]).ok()
        places.append(nodes_of(cluster)[names[0]])
        assert places[-1] != places[-2]
        assert f"via iallocator {allocator}: {places[-1]}" in done.text
    cluster.run("gnt-instance", "failover", "-f", "-n", first, names[0])
    # Each command with another one: what differs is in the answer of the allocator.
    for command, allocator in zip(
        ("migrate", "failover", "evacuate"), itertools.cycle(allocators()), strict=False
    ):
        (node,) = {nodes_of(cluster)[name] for name in names[1:]}
        here = [name for name in names if nodes_of(cluster)[name] == node]
        cluster.run("gnt-node", command, "-f", "-I", allocator, node).ok()
        there = nodes_of(cluster)
        assert all(there[name] != node for name in here), (command, there)
    # A node that died is left by the same command, once it is marked.
    gone = nodes_of(cluster)[names[1]]
    if gone == cluster.master:
        cluster.run("gnt-instance", "migrate", "-f", "-n", first, names[1]).ok()
        gone = first
    cluster.on(gone, "daemon-util", "stop-all").ok()
    shutil.rmtree(cluster.path(gone, "var/run/ganeti/fake-hypervisor"))  # its guests die with it
    cluster.run("gnt-node", "modify", "--offline=yes", "--auto-promote", "--force", gone).ok()
    cluster.run("gnt-node", "evacuate", "-f", "-I", "most-memory", gone).ok()
    assert gone not in {nodes_of(cluster)[name] for name in names}
    cluster.on(gone, "daemon-util", "start", "ganeti-noded").ok()
    cluster.run("gnt-node", "modify", "--offline=no", gone).ok()
    for name in names:
        cluster.run("gnt-instance", "remove", "--force", name).ok()


def test_what_cannot_be_placed(cluster: Cluster) -> None:
    name = "never.example.com"
    cluster.run("gnt-cluster", "modify", "--default-iallocator=").ok()
    cluster.run(*ADD, "-t", "diskless", name).failed("no default instance allocator")
    cluster.run("gnt-cluster", "modify", "--default-iallocator=hail").ok()
    cluster.run(*ADD, "-t", "diskless", "-I", "nosuch", name).failed(
        "instance allocator nosuch is in none of", "environment_error"
    )
    huge = ("-B", "memory=32000g", "--ignore-ipolicy", "-I", "most-memory", name)
    cluster.run(*ADD, "-t", "diskless", *huge).failed("insufficient_resources", name)
    cluster.run(*ADD, "-t", "diskless", "--opportunistic-locking", *huge).failed(
        "temp_insufficient_resources"
    )
    assert name not in nodes_of(cluster)


def test_request_and_answer_can_be_seen(cluster: Cluster) -> None:
    debug = ("gnt-debug", "iallocator", "-m", "allocate", "-t", "file", "--disks", "1g", "-o",
             "noop")  # fmt: skip
    request = json.loads(cluster.run(*debug, "new.example.com").ok().stdout)
    assert sorted(request["nodes"]) == sorted(cluster.node_names)
    assert all(node["total_memory"] > 0 for node in request["nodes"].values())
    assert request["request"]["disk_space_total"] == 1024
    answer = cluster.run(*debug, "--dir", "out", "-I", "most-memory", "new.example.com").ok()
    assert json.loads(answer.stdout)["result"][0] in cluster.node_names


def test_parallel_creations_with_free_nodes_only(cluster: Cluster) -> None:
    """Who finds too few free nodes is told so, and tries again until all are made."""
    names = [f"many{number}.example.com" for number in range(PARALLEL)]
    deadline = time.monotonic() + PATIENCE_S

    def create(name: str) -> int:
        attempts = 1
        while True:
            done = cluster.run(
                *ADD, "-t", "file", "-s", "1g", "-I", "most-memory", "--opportunistic-locking", name
            )
            if done.exit_code == 0:
                return attempts
            done.failed("temp_insufficient_resources")
            assert time.monotonic() < deadline, f"{name} found no free node in time"
            attempts += 1

    with ThreadPoolExecutor(PARALLEL) as pool:
        attempts = list(pool.map(create, names))
    assert len(attempts) == PARALLEL
    placed = nodes_of(cluster)
    assert set(names) <= set(placed)
    # Nothing is left: no lock, no half instance, and the cluster agrees with itself.
    assert not [row for row in cluster.rows("gnt-debug", "locks", "-o", "name,owner,pending")
                if row[1] != "-" or row[2] != "-"]  # fmt: skip
    assert "ERROR" not in cluster.run("gnt-cluster", "verify").ok().text
    cluster.run("gnt-instance", "shutdown", "--all", "--force-multiple").ok()
    for name in names:
        cluster.run("gnt-instance", "remove", "--force", name).ok()


def test_the_choice_is_explained(cluster: Cluster) -> None:
    done = cluster.run(*ADD, "-t", "diskless", "--explain", "--dry-run", "why.example.com").ok()
    assert "the best place: score" in done.text
    assert all(name in done.text for name in cluster.node_names)
    debug = ("gnt-debug", "iallocator", "-m", "allocate", "-t", "diskless", "-o", "noop",
             "--explain", "new.example.com")  # fmt: skip
    assert cluster.run(*debug).ok().text.count("another place is better") >= 1
    (found,) = json.loads(cluster.run(*debug, "--output", "json").ok().stdout)
    assert sorted(row["node"] for row in found["nodes"]) == sorted(cluster.node_names)
    cluster.run(*ADD, "-t", "diskless", "--explain", "-n", cluster.master, "x.example.com").failed(
        "not for a named node"
    )
