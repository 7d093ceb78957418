"""Every command once, over real daemons: what it does, prints and exits with."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator

import pytest
from harness import Cluster, alive, wait_until

ADD = ("gnt-instance", "add", "-t", "diskless", "-o", "noop", "--no-nics")


@pytest.fixture(scope="module", autouse=True)
def noop_os(cluster: Cluster) -> None:
    """An OS definition whose create script has nothing to do, on every node."""
    cluster.make_os("noop")


@pytest.fixture
def instance(cluster: Cluster) -> Iterator[str]:
    """A running diskless instance on the second node."""
    name = "inst1.example.com"
    cluster.run(*ADD, "-n", cluster.node_names[1], name).ok()
    yield name
    cluster.run("gnt-instance", "remove", "--force", name)


def status_of(cluster: Cluster, name: str) -> str:
    return cluster.rows("gnt-instance", "list", "-o", "status", name)[0][0]


def test_cluster_commands(cluster: Cluster) -> None:
    assert cluster.run("gnt-cluster", "getmaster").ok().stdout.strip() == cluster.node_names[0]
    version = cluster.run("gnt-cluster", "version").ok().stdout
    assert "Software version: 3.1" in version
    info = cluster.run("gnt-cluster", "info").ok().stdout
    assert "Cluster name: " in info and "Enabled hypervisors: " in info
    as_json = json.loads(cluster.run("gnt-cluster", "info", "--output", "json").ok().stdout)
    assert as_json


def test_verify_finds_a_healthy_cluster_healthy(cluster: Cluster) -> None:
    done = cluster.run("gnt-cluster", "verify").ok()
    assert "ERROR" not in done.text
    verdict = done.stdout.splitlines()[-1]
    assert re.fullmatch(r"3 nodes, (no|\d+) instances?: no errors, (no|\d+) warnings?", verdict)


def test_second_init_is_refused(cluster: Cluster) -> None:
    cluster.run("gnt-cluster", "init", "other.example.com").failed("already")


def test_node_list_and_info(cluster: Cluster) -> None:
    rows = cluster.rows("gnt-node", "list", "-o", "name,pinst_cnt,role")
    assert [row[2] for row in rows] == ["M", "C", "C"]
    info = cluster.run("gnt-node", "info", rows[1][0]).ok().stdout
    assert rows[1][0] in info and "primary ip" in info.lower()
    listed = json.loads(cluster.run("gnt-node", "list", "--output", "json").ok().stdout)
    assert len(listed) == 3


def test_os_list(cluster: Cluster) -> None:
    assert "noop" in cluster.run("gnt-os", "list").ok().stdout.split()


def test_life_of_an_instance(cluster: Cluster, instance: str) -> None:
    run = cluster.run
    assert status_of(cluster, instance) == "running"
    run("gnt-instance", "shutdown", instance).ok()
    assert status_of(cluster, instance) == "ADMIN_down"
    run("gnt-instance", "start", instance).ok()
    assert status_of(cluster, instance) == "running"
    for kind in ("soft", "hard", "full"):
        run("gnt-instance", "reboot", "-t", kind, instance).ok()
    assert status_of(cluster, instance) == "running"
    info = run("gnt-instance", "info", instance).ok().stdout
    assert instance in info and "diskless" in info


def test_history_tells_who_did_what_and_how_it_was(cluster: Cluster, instance: str) -> None:
    run = cluster.run
    newest = json.loads(run("gnt-cluster", "history", "--output", "json", "-n", "1").ok().stdout)
    before = newest[0]["serial"]
    run("gnt-instance", "shutdown", "--reason", "for a test", instance).ok()
    job = cluster.rows("gnt-job", "list", "-o", "id")[-1][0]
    pid = cluster.kill(cluster.master, "ganeti-masterd", signal.SIGKILL)
    wait_until(lambda: not alive(pid), "masterd is gone")
    run("ganeti-masterd").ok()

    rows = [
        line.split(";")
        for line in run("gnt-cluster", "history", "--no-headers", "--separator", ";")
        .ok()
        .stdout.splitlines()
    ]
    serial, _time, by_job, opcode, author, changes, reason = rows[0]
    assert (by_job, opcode, reason) == (job, "OP_INSTANCE_SHUTDOWN", "for a test")
    assert author == "gnt:client:gnt-instance"
    assert f"instance {instance} changed" in changes
    assert any(
        "OP_INSTANCE_CREATE" in row and f"instance {instance} added" in row[5] for row in rows
    )
    difference = run("gnt-cluster", "history", "--diff", str(before), serial).ok().stdout
    assert '  admin_state: "up" -> "down"\n' in difference
    state = json.loads(run("gnt-cluster", "history", f"--at={before}").ok().stdout)
    (found,) = [one for one in state["instances"].values() if one["name"] == instance]
    assert found["admin_state"] == "up"
    run("gnt-cluster", "history", "--at=999999").failed("there is no serial number 999999 yet")
    directory = cluster.path(cluster.master, "var/lib/ganeti/config.data.history")
    assert {path.stat().st_mode & 0o777 for path in directory.iterdir()} == {0o600}
    run("gnt-instance", "start", instance).ok()


def test_migrate_and_failover_move_the_instance(cluster: Cluster, instance: str) -> None:
    first, second, third = cluster.node_names

    def primary() -> str:
        return cluster.rows("gnt-instance", "list", "-o", "pnode", instance)[0][0]

    assert primary() == second
    cluster.run("gnt-instance", "migrate", "-f", "-n", third, instance).ok()
    assert primary() == third and status_of(cluster, instance) == "running"
    cluster.run("gnt-instance", "failover", "-f", "-n", first, instance).ok()
    assert primary() == first and status_of(cluster, instance) == "running"
    assert "ERROR" not in cluster.run("gnt-cluster", "verify").ok().text


def test_the_missing_console_is_named(cluster: Cluster, instance: str) -> None:
    """A guest of the fake hypervisor has none; the answer is a sentence and no empty command."""
    shown = cluster.run("gnt-instance", "console", "--show-cmd", instance).ok().stdout
    assert instance in shown and "runs under the fake hypervisor, which has no console" in shown


def test_submit_then_wait_watch_info_archive(cluster: Cluster, instance: str) -> None:
    done = cluster.run("gnt-instance", "shutdown", "--submit", instance).ok()
    job, _, about = done.stdout.strip().partition(": ")
    assert about == instance
    cluster.run("gnt-job", "wait", job).ok()
    assert cluster.rows("gnt-job", "list", "-o", "status,summary", job) == [
        ["success", f"INSTANCE_SHUTDOWN({instance})"]
    ]
    cluster.run("gnt-job", "watch", job).ok()
    assert "INSTANCE_SHUTDOWN" in cluster.run("gnt-job", "info", job).ok().stdout.upper()
    cluster.run("gnt-job", "archive", job).ok()
    cluster.run("gnt-job", "info", job)
    assert job not in [row[0] for row in cluster.rows("gnt-job", "list", "-o", "id")]


def test_cancel_a_queued_job(cluster: Cluster) -> None:
    ids = []
    for options in (("5",), ("0",)):
        done = cluster.run("gnt-debug", "delay", "--submit", "--print-jobid", *options).ok()
        ids.append(done.stdout.strip())
    blocker = ids[0]
    wait_until(
        lambda: cluster.rows("gnt-job", "list", "-o", "status", blocker) == [["running"]],
        "the delay runs",
    )
    cluster.run("gnt-job", "cancel", "--force", ids[1])
    cluster.run("gnt-job", "cancel", "--force", blocker)
    wait_until(
        lambda: (
            cluster.rows("gnt-job", "list", "-o", "status", blocker)[0][0]
            in ("canceled", "error", "success")
        ),
        "the delay ends",
    )


def test_add_and_remove_a_node(cluster: Cluster) -> None:
    name = cluster.vcluster("add-node", str(cluster.directory)).ok().stdout.split()[-1]
    wait_until(lambda: len(cluster.node_names) == 4, "the node is listed")
    added = cluster.node_names[-1]
    assert added in name or name in added
    cluster.make_os("noop")
    cluster.run(*ADD, "-n", added, "onfourth.example.com").ok()
    cluster.run("gnt-node", "remove", added).failed("instance")
    cluster.run("gnt-instance", "remove", "--force", "onfourth.example.com").ok()
    cluster.run("gnt-node", "remove", added).ok()
    assert len(cluster.node_names) == 3
    assert "ERROR" not in cluster.run("gnt-cluster", "verify").ok().text


def test_lists_for_programs_and_people(cluster: Cluster, instance: str) -> None:
    people = cluster.run("gnt-instance", "list").ok().stdout.splitlines()
    assert people[0].split() == ["Instance", "Hypervisor", "OS", "Primary_node", "Status", "Memory"]
    assert cluster.rows("gnt-instance", "list", "-o", "name,status") == [[instance, "running"]]
    cluster.run("gnt-instance", "list", "-o", "name,nosuch").failed(exit_code=14)
    yaml_text = cluster.run("gnt-instance", "list", "--output", "yaml").ok().stdout
    assert instance in yaml_text
