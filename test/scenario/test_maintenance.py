"""Maintenance of a node with real daemons: the node is emptied, restarted and filled again."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Cluster, SteadyCluster, made, wait_until

MASTER, NODE, OTHER = (f"node{number}.example.com" for number in (1, 2, 3))
SHARED, FILED, DOWN = "web.example.com", "db.example.com", "old.example.com"


@pytest.fixture(scope="module")
def cluster(cluster_directory: Path) -> Iterator[Cluster]:
    """Node2 has an instance with shared disks, one with own disks, and a stopped one."""
    with made(SteadyCluster(cluster_directory, 3, "--hypervisor", "fake")) as one:
        one.add_instance(SHARED, NODE, "-s", "16M", template="sharedfile").ok()
        one.add_instance(FILED, NODE, "-s", "16M", template="file").ok()
        one.add_instance(DOWN, NODE).ok()
        one.start_instances(SHARED, FILED)
        yield one


def state(cluster: Cluster) -> list[str]:
    return cluster.node_fields(NODE, "maintenance", "drained", "master_candidate")


def maintenance(action: str, *options: str) -> tuple[str, ...]:
    target = ("-n", OTHER) if action == "start" else ()
    return ("gnt-node", "maintenance", "-f", *target, *options, action, NODE)


def test_a_node_is_emptied_and_filled_again(cluster: Cluster) -> None:
    before = cluster.places()
    # What cannot move is named, and nothing has happened.
    cluster.run(*maintenance("start")).failed(FILED, "--stop")
    cluster.run("gnt-node", "maintenance", "start", "-f", MASTER).failed("master-failover")
    plan = cluster.run(*maintenance("start", "--stop", "--dry-run")).ok().stdout
    assert f"stop instance {FILED}" in plan and f"move instance {SHARED}" in plan
    assert cluster.places() == before
    assert state(cluster) == ["-", "N", "Y"]

    shown = cluster.run(*maintenance("start", "--stop")).ok().stdout
    assert "safe to switch it off" in shown and f"INSTANCE_SHUTDOWN({FILED})" in shown
    during = cluster.places()
    assert during[SHARED][0] != NODE and during[SHARED][1] == "running"
    assert during[FILED] == (NODE, "ERROR_down")
    assert during[DOWN] == (NODE, "ADMIN_down")
    assert state(cluster) == ["ready", "Y", "N"]
    record = cluster.node_info(NODE)["maintenance.record"]
    assert (record["primaries"], record["stopped"]) == ([SHARED], [FILED])
    assert "brings back" in cluster.run("gnt-node", "info", NODE).ok().stdout

    # Said again, it is still safe; nobody places anything there, or starts what was stopped.
    cluster.run(*maintenance("start")).ok()
    cluster.add_instance("new.example.com", NODE).failed("drained")
    cluster.kill_whole(NODE, "ganeti-noded")
    cluster.run("ganeti-watcher").ok()
    assert cluster.places()[FILED][1] != "running"
    shown = cluster.run("gnt-cluster", "verify").ok().stdout
    assert f"node {NODE} is in maintenance since" in shown and "does not answer" in shown
    assert f"stopped until its end: {FILED}" in shown
    log = cluster.path(MASTER, "var/log/ganeti/watcher.log").read_text()
    assert f"instance {FILED}: its primary node {NODE} is in maintenance" in log

    # The machine does not answer yet: nothing is brought back, and the record stays.
    cluster.run(*maintenance("end")).failed("still in maintenance")
    cluster.on(NODE, "ganeti-watcher").ok()
    shown = cluster.run(*maintenance("end")).ok().stdout
    assert "has ended" in shown
    assert cluster.places() == before
    assert state(cluster) == ["-", "N", "Y"]
    cluster.run(*maintenance("end")).failed("is not in maintenance")
    cluster.run("gnt-cluster", "verify").ok()


@pytest.mark.long
def test_the_master_daemon_dies_in_the_middle(cluster: Cluster) -> None:
    """Whatever was reached, the same command completes it; then the end does."""
    before = cluster.places()
    directory = cluster.path(MASTER, "etc/ganeti/hooks/instance-stop-pre.d")
    directory.mkdir(parents=True)
    begun, go_on, script = cluster.directory / "begun", cluster.directory / "go-on", directory / "w"
    script.write_text(f"#!/bin/sh\ntouch {begun}; while [ ! -e {go_on} ]; do sleep 0.1; done\n")
    script.chmod(0o755)
    waiting = cluster.start(*maintenance("start", "--stop"))
    wait_until(begun.exists, "an instance is being stopped")
    waiting.send_signal(signal.SIGKILL)
    waiting.wait()
    cluster.kill_whole(MASTER, "ganeti-masterd")
    script.unlink()
    go_on.touch()
    cluster.run("ganeti-watcher", "--no-verify-disks").ok()
    assert state(cluster)[0] == "leaving"
    cluster.run(*maintenance("start")).ok()
    assert state(cluster) == ["ready", "Y", "N"]
    cluster.kill_whole(MASTER, "ganeti-masterd")
    cluster.run("ganeti-watcher", "--no-verify-disks").ok()
    assert state(cluster) == ["ready", "Y", "N"]
    cluster.run(*maintenance("end")).ok()
    assert cluster.places() == before


@pytest.mark.long
def test_an_end_is_given_twice(cluster: Cluster) -> None:
    """The second one comes while the first one is starting an instance, and waits for it."""

    def ends() -> int:
        rows = cluster.rows("gnt-job", "list", "-o", "summary")
        return sum("NODE_MAINTENANCE_END" in row[0] for row in rows)

    before, ended = cluster.places(), ends()
    cluster.run(*maintenance("start", "--stop")).ok()
    directory = cluster.path(MASTER, "etc/ganeti/hooks/instance-start-pre.d")
    directory.mkdir(parents=True)
    begun, go_on, script = cluster.directory / "begun", cluster.directory / "go-on", directory / "w"
    for path in (begun, go_on):
        path.unlink(missing_ok=True)
    script.write_text(f"#!/bin/sh\ntouch {begun}; while [ ! -e {go_on} ]; do sleep 0.1; done\n")
    script.chmod(0o755)
    first = cluster.start(*maintenance("end"))
    wait_until(begun.exists, "an instance is being started")
    shown = cluster.run(*maintenance("end", "--submit")).ok().stdout
    assert "was asked for before, and goes on until job" in shown
    second = cluster.start(*maintenance("end"))
    go_on.touch()
    for process in (first, second):
        out, err = process.communicate()
        assert process.returncode == 0 and "has ended" in out, out + err
    script.unlink()
    assert cluster.places() == before
    assert state(cluster) == ["-", "N", "Y"]
    assert ends() == ended + 1, "only the first one has submitted anything"
    cluster.run(*maintenance("end")).failed("Nothing was changed")


def test_an_allocator_chooses_the_nodes_and_two_are_emptied(cluster: Cluster) -> None:
    """The second node gives up what it had taken over from the first one, and both get it back."""
    before = cluster.places()
    start = ("gnt-node", "maintenance", "start", "-f")
    cluster.run(*start, "--stop", NODE).ok()
    assert cluster.places()[SHARED][0] in (MASTER, OTHER)
    cluster.run(*start, OTHER).ok()
    assert cluster.places()[SHARED] == (MASTER, "running")
    for node in (NODE, OTHER):
        assert cluster.node_fields(node, "maintenance") == ["ready"]
    cluster.cut_power(NODE)
    cluster.cut_power(OTHER)
    shown = cluster.run("gnt-cluster", "verify").ok().stdout
    for node in (NODE, OTHER):
        assert f"node {node} is in maintenance since" in shown
        cluster.power_on(node)
    # Wherever it was in between, it belongs to the first node.
    for node in (NODE, OTHER):
        cluster.run("gnt-node", "maintenance", "end", "-f", node).ok()
    assert cluster.places() == before
    assert state(cluster) == ["-", "N", "Y"]


def test_a_node_which_was_drained_before_stays_so(cluster: Cluster) -> None:
    """Its instances are not moved back to it, because nobody wants instances there."""
    before = cluster.places()
    cluster.run("gnt-node", "modify", "--drained=yes", NODE).ok()
    assert state(cluster) == ["-", "Y", "N"]
    cluster.run(*maintenance("start", "--stop")).ok()
    assert cluster.places()[SHARED] == (OTHER, "running")
    shown = cluster.run(*maintenance("end")).ok().stdout
    assert "was drained before" in shown and SHARED in shown
    assert state(cluster) == ["-", "Y", "N"]
    assert cluster.places() == {**before, SHARED: (OTHER, "running")}
    cluster.run("gnt-node", "modify", "--drained=no", NODE).ok()
    cluster.run("gnt-node", "modify", "--master-candidate=yes", NODE)
    cluster.run("gnt-instance", "migrate", "-f", "-n", NODE, SHARED).ok()
    assert cluster.places() == before
