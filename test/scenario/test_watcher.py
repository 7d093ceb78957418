"""What is done without being asked, with real daemons: ganeti-watcher on virtual clusters."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Cluster, SteadyCluster, alive, children, made, wait_until

MASTER, OTHER = "node1.example.com", "node2.example.com"


@pytest.fixture(scope="module")
def cluster(cluster_directory: Path) -> Iterator[Cluster]:
    with made(SteadyCluster(cluster_directory, 3, "--hypervisor", "fake")) as one:
        yield one


@pytest.fixture
def web(cluster: Cluster) -> Iterator[list[str]]:
    """Three running instances, two on the master and one on another node."""
    names = [f"web{number}.example.com" for number in (1, 2, 3)]
    for name, node in zip(names, (MASTER, MASTER, OTHER), strict=True):
        cluster.add_instance(name, node).ok()
    cluster.start_instances(*names)
    yield names
    for path in cluster.directory.glob("node*/var/lib/ganeti/watcher.*"):
        path.unlink()
    remove(cluster, names)


def remove(cluster: Cluster, names: list[str]) -> None:
    for name in names:
        cluster.run("gnt-instance", "remove", "-f", "--shutdown-timeout=0", name).ok()


def states(cluster: Cluster) -> dict[str, str]:
    return {name: status for name, (_node, status) in cluster.places().items()}


def log(cluster: Cluster, node: str = MASTER) -> str:
    path = cluster.path(node, "var/log/ganeti/watcher.log")
    return path.read_text() if path.exists() else ""


def memory(cluster: Cluster) -> dict[str, dict[str, dict[str, float]]]:
    (path,) = cluster.node_root(MASTER).glob("var/lib/ganeti/watcher.*.data")
    found: dict[str, dict[str, dict[str, float]]] = json.loads(path.read_text())
    return found


def test_guests_which_died_run_again(cluster: Cluster, web: list[str]) -> None:
    cluster.run("gnt-instance", "shutdown", web[1]).ok()
    cluster.crash_guests(MASTER, web[0])
    cluster.crash_guests(OTHER, web[2])
    cluster.run("ganeti-watcher").ok()
    assert states(cluster) == {web[0]: "running", web[1]: "ADMIN_down", web[2]: "running"}
    assert memory(cluster)["instance"].keys() == {web[0], web[2]}
    status = cluster.path(MASTER, "var/run/ganeti/instance-status").read_text()
    assert f"{web[0]} ERROR_down\n{web[1]} ADMIN_down\n{web[2]} ERROR_down\n" == status
    shown = cluster.run("gnt-job", "list", "--no-headers", "-o", "summary").ok().stdout
    assert f"INSTANCE_STARTUP({web[0]})" in shown


def test_a_guest_which_dies_at_once_is_not_restarted_for_ever(
    cluster: Cluster, web: list[str]
) -> None:
    cluster.crash_guests(MASTER, web[0])
    cluster.run("ganeti-watcher").ok()
    cluster.crash_guests(MASTER, web[0])
    cluster.run("ganeti-watcher").ok()
    assert states(cluster)[web[0]] == "ERROR_down"
    assert f"instance {web[0]}: it is down again after 1 of at most 5 restarts" in log(cluster)
    # An administrator may start it at any time.
    cluster.run("gnt-instance", "startup", web[0]).ok()
    assert states(cluster)[web[0]] == "running"


def test_daemons_which_died_run_again(cluster: Cluster) -> None:
    daemons = ("ganeti-masterd", "ganeti-rapi", "ganeti-confd", "ganeti-noded")
    for daemon in daemons:
        pid = cluster.kill(MASTER, daemon, signal.SIGKILL)
        wait_until(lambda pid=pid: not alive(pid), f"{daemon} has ended")
    cluster.kill_whole(OTHER, "ganeti-noded")
    cluster.on(OTHER, "ganeti-watcher").ok()
    cluster.on(MASTER, "ganeti-watcher").ok()
    for daemon in daemons:
        assert alive(cluster.pid(MASTER, daemon)), daemon
        assert f"{daemon} does not run, and is started" in log(cluster)
    assert "ganeti-noded does not run, and is started" in log(cluster, OTHER)
    assert "ganeti-masterd" not in log(cluster, OTHER)
    cluster.run("gnt-cluster", "verify").ok()


def test_a_pause_holds_and_ends(cluster: Cluster, web: list[str]) -> None:
    cluster.crash_guests(MASTER, web[0])
    cluster.run("gnt-cluster", "watcher", "pause", "1h").ok()
    cluster.run("ganeti-watcher").ok()
    assert states(cluster)[web[0]] == "ERROR_down"
    cluster.run("gnt-cluster", "watcher", "continue").ok()
    cluster.run("ganeti-watcher").ok()
    assert states(cluster)[web[0]] == "running"


def test_a_drained_queue_takes_nothing(cluster: Cluster, web: list[str]) -> None:
    cluster.crash_guests(MASTER, web[0])
    cluster.run("gnt-cluster", "queue", "drain").ok()
    try:
        cluster.run("ganeti-watcher").ok()
        assert states(cluster)[web[0]] == "ERROR_down"
        assert "the job queue is drained" in log(cluster)
    finally:
        cluster.run("gnt-cluster", "queue", "undrain").ok()


def test_a_dry_run_says_what_would_be_done(cluster: Cluster, web: list[str]) -> None:
    cluster.crash_guests(OTHER, web[2])
    shown = cluster.run("ganeti-watcher", "--dry-run").ok().stdout
    assert f"instance {web[2]}: start it, because it should run, but is down" in shown
    assert states(cluster)[web[2]] == "ERROR_down"


def hook(cluster: Cluster, body: str) -> Path:
    """Let each start of an instance run a script on the master."""
    directory = cluster.path(MASTER, "etc/ganeti/hooks/instance-start-pre.d")
    directory.mkdir(parents=True, exist_ok=True)
    script = directory / "wait"
    script.write_text(f"#!/bin/sh\n{body}\n")
    script.chmod(0o755)
    return script


def test_a_watcher_which_is_killed_while_its_job_runs(cluster: Cluster, web: list[str]) -> None:
    cluster.crash_guests(MASTER, web[0])
    begun, go_on = cluster.directory / "begun", cluster.directory / "go-on"
    script = hook(cluster, f"touch {begun}; while [ ! -e {go_on} ]; do sleep 0.1; done")
    try:
        first = cluster.start("ganeti-watcher", "--no-verify-disks")
        wait_until(begun.exists, "the job runs")
        # A second one at the same time finds the first one, and does nothing.
        cluster.run("ganeti-watcher", "--no-verify-disks").ok()
        assert "another watcher is at work" in log(cluster)
        for pid in (first.pid, *children(first.pid)):
            os.kill(pid, signal.SIGKILL)
        first.wait()
        # The next one leaves the instance to the job which is still at work.
        cluster.run("ganeti-watcher", "--no-verify-disks").ok()
        assert "is at work on it" in log(cluster)
    finally:
        go_on.touch()
        script.unlink()
    wait_until(lambda: states(cluster)[web[0]] == "running", "the instance runs")
    summaries = [row[0] for row in cluster.rows("gnt-job", "list", "-o", "summary")]
    assert summaries.count(f"INSTANCE_STARTUP({web[0]})") >= 1
    assert memory(cluster)["instance"][web[0]]["restart_count"] == 1


def test_with_a_full_disk_nothing_restarts_and_the_reason_is_shown(
    cluster: Cluster, web: list[str]
) -> None:
    """No file grows: neither the count of the restarts, nor the status, nor the log."""
    cluster.crash_guests(MASTER, web[0])
    full = ("prlimit", "--fsize=0", "ganeti-watcher", "--no-verify-disks")
    told = cluster.run(*full).failed("the run ends early").stderr
    assert "watcher.log: File too large" in told
    assert states(cluster)[web[0]] == "ERROR_down"
    cluster.run("ganeti-watcher", "--no-verify-disks").ok()
    assert states(cluster)[web[0]] == "running"
    assert memory(cluster)["instance"][web[0]]["restart_count"] == 1


def test_the_master_daemon_dies_while_the_watcher_waits(cluster: Cluster, web: list[str]) -> None:
    cluster.crash_guests(MASTER, web[0])
    begun, go_on = cluster.directory / "begun2", cluster.directory / "go-on2"
    script = hook(cluster, f"touch {begun}; while [ ! -e {go_on} ]; do sleep 0.1; done")
    try:
        watcher = cluster.start("ganeti-watcher", "--no-verify-disks")
        wait_until(begun.exists, "the job runs")
        cluster.kill_whole(MASTER, "ganeti-masterd")
        _, errors = watcher.communicate(timeout=180)
        assert watcher.returncode == 1, errors
        assert "Traceback" not in errors
        assert "the run ends early" in log(cluster)
    finally:
        go_on.touch()
        script.unlink()
    # The next run starts the master daemon, and the instance when its time has come.
    cluster.run("ganeti-watcher").ok()
    assert alive(cluster.pid(MASTER, "ganeti-masterd"))
    assert memory(cluster)["instance"][web[0]]["restart_count"] <= 2


def test_an_offline_node_stops_its_guests(cluster: Cluster, web: list[str]) -> None:
    cluster.run("gnt-cluster", "modify", "--maintain-node-health=yes").ok()
    guest = cluster.path(OTHER, f"var/run/ganeti/fake-hypervisor/{web[2]}")
    cluster.on(OTHER, "ganeti-watcher").ok()
    assert guest.exists()
    cluster.run("gnt-node", "modify", "--offline=yes", "--force", OTHER).ok()

    def stopped() -> bool:
        # The query daemons of the candidates read the new configuration within some seconds.
        cluster.on(OTHER, "ganeti-watcher").ok()
        return not guest.exists()

    try:
        wait_until(stopped, "the guest is stopped")
        assert f"instance {web[2]} is stopped, because this node is marked offline" in log(
            cluster, OTHER
        )
    finally:
        cluster.run("gnt-node", "modify", "--offline=no", OTHER).ok()
        cluster.run("gnt-cluster", "modify", "--maintain-node-health=no").ok()


def test_old_jobs_are_archived(cluster: Cluster) -> None:
    def archived() -> bool:
        # An age is a whole number of seconds, so that the last jobs may be too young at first.
        cluster.run("ganeti-watcher", "--job-age=0", "--no-verify-disks").ok()
        return cluster.rows("gnt-job", "list") == []

    wait_until(archived, "all jobs are archived")
    assert "jobs were archived" in log(cluster)


@pytest.mark.long
def test_a_power_cut_of_many_guests(cluster: Cluster) -> None:
    names = [f"many{number:02}.example.com" for number in range(30)]
    for name in names:
        cluster.add_instance(name, MASTER, "--submit").ok()
    wait_until(lambda: len(states(cluster)) == len(names), "all exist")
    cluster.run("gnt-instance", "add-tags", names[29], "ganeti:watcher:order:1").ok()
    cluster.start_instances(*names)
    cluster.crash_guests(MASTER, *names)
    cluster.run("ganeti-watcher").ok()
    assert set(states(cluster).values()) == {"running"}
    started = [line for line in log(cluster).splitlines() if "many" in line and "start it" in line]
    assert names[29] in started[0]
    remove(cluster, names)


def test_a_virtual_cluster_runs_it_by_itself(tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("w") / "vc"
    with made(Cluster(directory, 2, "--hypervisor", "fake", "--watch-every=1")) as one:
        one.add_instance("web1.example.com", OTHER).ok()
        one.start_instances("web1.example.com")
        one.crash_guests(OTHER, "web1.example.com")
        wait_until(lambda: states(one)["web1.example.com"] == "running", "it runs again")
        pid = int((one.directory / ".watch.pid").read_text())
        one.vcluster("stop", str(one.directory)).ok()
        assert not alive(pid)
        one.vcluster("start", str(one.directory)).ok()
        wait_until(lambda: (one.directory / ".watch.pid").exists(), "the timer runs")


@pytest.mark.long
def test_the_master_moves_while_it_waits(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The run on the former master ends with an error; the one on the new master does the work."""
    directory = tmp_path_factory.mktemp("w") / "vc"
    begun, go_on = directory / "begun", directory / "go-on"
    name = "web1.example.com"
    with made(Cluster(directory, 3, "--hypervisor", "fake")) as one:
        one.add_instance(name, "node3.example.com").ok()
        one.start_instances(name)
        hook(one, f"touch {begun}; while [ ! -e {go_on} ]; do sleep 0.1; done")
        one.crash_guests("node3.example.com", name)
        watcher = one.start("ganeti-watcher", "--no-verify-disks")
        wait_until(begun.exists, "the job runs")
        one.kill_whole(MASTER, "ganeti-masterd")
        go_on.touch()
        one.on(OTHER, "gnt-cluster", "master-failover").ok()
        _, errors = watcher.communicate(timeout=180)
        assert watcher.returncode == 1 and "Traceback" not in errors
        one.on(MASTER, "ganeti-watcher", "--no-verify-disks").ok()
        assert not one.path(OTHER, "var/log/ganeti/watcher.log").exists()
        one.on(OTHER, "ganeti-watcher", "--no-verify-disks").ok()
        rows = one.on(OTHER, "gnt-instance", "list", "--no-headers", "-o", "status").ok()
        assert rows.stdout.split() == ["running"]
