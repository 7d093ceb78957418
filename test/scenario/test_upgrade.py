"""``gnt-cluster upgrade`` between two versions side by side, interrupted and refused."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import two_versions
from harness import Cluster, made
from role_lab import enlarge
from two_versions import NEXT, OWN, PAINTED_S, SETTING

from ganeti import RELEASE

#: By name, because no list can be asked for while the daemons are stopped.
NODES = ("node1.example.com", "node2.example.com")
MASTER = NODES[0]
MASTERS = ("ganeti-masterd", "ganeti-rapi")


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A short path: the names of unix sockets are limited."""
    path = Path(tempfile.mkdtemp(prefix="gnt-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
def cluster(place: Path) -> Iterator[Cluster]:
    """Two nodes with this version and the next one, and a guest on each of them."""
    checkout = two_versions.make_next(place / "next")
    with made(Cluster(place / "vc", 2, "--hypervisor", "fake", "--no-tiny")) as one:
        one.vcluster("add-version", str(one.directory), str(checkout)).ok()
        for guest, node in (("web1.example.com", "node2"), ("web2.example.com", "node1")):
            one.run(
                "gnt-instance", "add", "-t", "diskless", "--no-install", "--no-nics", "-n", node,
                guest,
            ).ok()  # fmt: skip
            one.run("gnt-instance", "start", guest).ok()
        yield one


def active(cluster: Cluster, node: str) -> str:
    return json.loads(cluster.on(node, "daemon-util", "versions").ok().stdout)["active"]


def require_version(cluster: Cluster, version: str) -> None:
    """All nodes and all daemons have the version, the guests run, and nothing is left behind."""
    place = os.path.realpath(cluster.path(MASTER, f"usr/lib/ganeti/{version}"))
    for node in NODES:
        assert active(cluster, node) == version
        for daemon in ("ganeti-noded", "ganeti-confd", *(MASTERS if node == MASTER else ())):
            # The programs of a version run from its own directory.
            words = Path(f"/proc/{cluster.pid(node, daemon)}/cmdline").read_text().split("\0")
            program = next(word for word in words if word.endswith(daemon))
            assert os.path.realpath(program).startswith(f"{place}/"), (node, daemon)
    assert f"release {version}." in cluster.run("gnt-cluster", "--version").ok().stdout
    # A node daemon of another release would be a warning.
    verified = cluster.run("gnt-cluster", "verify").ok().text
    assert "runs version" not in verified
    assert cluster.rows("gnt-instance", "list", "-o", "status") == [["running"]] * 2
    assert "unset" in cluster.run("gnt-cluster", "queue", "info").ok().stdout
    assert "not paused" in cluster.run("gnt-cluster", "watcher", "info").ok().stdout
    assert not cluster.path(MASTER, "var/lib/ganeti/intent-to-upgrade").exists()


def test_refusals(cluster: Cluster) -> None:
    """Whatever is missing is said before anything is changed."""
    gone = cluster.path("node2.example.com", f"usr/lib/ganeti/{NEXT}")
    target = os.readlink(gone)
    upgrade = ("gnt-cluster", "upgrade", f"--to={NEXT}")
    gone.unlink()
    try:
        cluster.run(*upgrade).failed(f"node2.example.com: version {NEXT} is not installed")
    finally:
        gone.symlink_to(target)
    cluster.run("gnt-cluster", "upgrade", "--to=9.9").failed(f"installed: {OWN}, {NEXT}")
    cluster.run(*upgrade, "--leave-out=node2").failed("node2.example.com is online")
    cluster.on("node2.example.com", *upgrade).failed("not the master", exit_code=11)
    cluster.run("gnt-cluster", "upgrade", "--resume").ok()
    require_version(cluster, OWN)


def switch_by_hand(cluster: Cluster, node: str, version: str) -> None:
    for words in (("stop-all",), ("use-version", version), ("start-all",)):
        cluster.on(node, "daemon-util", *words).ok()


def use_both_nodes(cluster: Cluster) -> str:
    """Let jobs use nodes of two versions; returns what the commands said."""
    said = cluster.run("gnt-instance", "reboot", "web1.example.com").ok().text
    for node in ("node1", "node2"):
        text = cluster.run("gnt-instance", "failover", "-f", "-n", node, "web1.example.com").ok()
        said += text.text
    for _ in range(2):
        said += cluster.run("gnt-instance", "migrate", "-f", "web1.example.com").ok().text
    cluster.run("gnt-node", "modify", "--drained=yes", "node2").ok()
    cluster.run("gnt-node", "modify", "--drained=no", "--master-candidate=yes", "node2").ok()
    cluster.run("gnt-cluster", "redist-conf").ok()
    cluster.run("gnt-debug", "delay", "-n", "node2", "0.1").ok()
    return said


@pytest.mark.long
def test_nodes_of_two_versions_work_together(cluster: Cluster) -> None:
    """A master with a node of the next version, whose answers have another field."""
    switch_by_hand(cluster, NODES[1], NEXT)
    assert [active(cluster, node) for node in NODES] == [OWN, NEXT]
    verified = cluster.run("gnt-cluster", "verify").ok().text
    assert f"node2.example.com: runs version 3.1.0, release {NEXT}.0" in verified
    assert "ignores" not in use_both_nodes(cluster)
    # The nodes which were left behind, or went ahead, follow the master.
    text = cluster.run("gnt-cluster", "upgrade", f"--to={OWN}").ok().stdout
    assert f"Switching node2.example.com from version {NEXT} to {OWN}" in text
    require_version(cluster, OWN)


@pytest.mark.long
def test_a_node_of_the_version_before(cluster: Cluster) -> None:
    """It ignores fields which it does not know, and refuses an argument which it does not know."""
    cluster.run("gnt-cluster", "upgrade", f"--to={NEXT}").ok()
    switch_by_hand(cluster, NODES[1], OWN)
    said = use_both_nodes(cluster)
    ignored = f"node node2.example.com has release {RELEASE} and ignores what it does not know:"
    assert f"{ignored} instance/paint" in said
    refused = cluster.run("gnt-debug", "delay", "-n", "node2", str(PAINTED_S))
    refused.failed("takes 1 arguments, got 2", f"release {NEXT}.0", f"this node {RELEASE}")
    cluster.run("gnt-debug", "delay", str(PAINTED_S)).ok()
    cluster.run("gnt-cluster", "upgrade", f"--to={NEXT}").ok()
    assert "ignores" not in use_both_nodes(cluster)
    require_version(cluster, NEXT)
    cluster.run("gnt-cluster", "upgrade", f"--to={OWN}").ok()
    require_version(cluster, OWN)


def archives(cluster: Cluster) -> set[str]:
    """The archives of former upgrades."""
    try:
        return set(os.listdir(cluster.path(MASTER, "var/backups/ganeti")))
    except FileNotFoundError:
        return set()


def set_setting(cluster: Cluster, value: str | None) -> None:
    """Change the setting of the later version in the file, and let the master write it again."""
    config = cluster.path(MASTER, "var/lib/ganeti/config.data")
    cluster.vcluster("stop", str(cluster.directory)).ok()
    changed = json.loads(config.read_text())
    changed["cluster"][SETTING] = value
    changed["serial_no"] += 1
    config.write_text(json.dumps(changed))
    cluster.vcluster("start", str(cluster.directory)).ok()
    cluster.run("gnt-cluster", "add-tags", f"setting-{value}").ok()


@pytest.mark.long
def test_upgrade_and_back(cluster: Cluster) -> None:
    """Everything once without an interruption; a setting of the later version stands in the way."""
    kept = archives(cluster)
    cluster.run("gnt-cluster", "upgrade", f"--to={NEXT}").ok()
    require_version(cluster, NEXT)
    set_setting(cluster, "x")
    back = ("gnt-cluster", "upgrade", f"--to={OWN}")
    cluster.run(*back).failed(f"version {OWN} does not have this", f"the cluster: {SETTING}")
    require_version(cluster, NEXT)
    set_setting(cluster, None)
    cluster.run(*back).ok()
    require_version(cluster, OWN)
    config = cluster.path(MASTER, "var/lib/ganeti/config.data")
    assert SETTING not in config.read_text()
    new = archives(cluster) - kept
    assert len(new) == 2 and all(name.endswith(".tar.gz") for name in new)


def kill_at(cluster: Cluster, number: int, *argv: str) -> bool:
    """Kill the command when it begins its step; returns whether there was such a step."""
    program = cluster.start_on(MASTER, *argv)
    assert program.stdout is not None
    try:
        for line in program.stdout:
            if line.startswith(f"[{number}/"):
                os.killpg(program.pid, signal.SIGKILL)
                return True
    finally:
        program.communicate()
    assert program.returncode == 0
    return False


@pytest.mark.long
@pytest.mark.parametrize("target", [NEXT, OWN])
def test_killed_at_every_step_and_resumed(cluster: Cluster, target: str) -> None:
    assert kill_at(cluster, 1, "gnt-cluster", "upgrade", f"--to={target}")
    for number in range(2, 11):
        assert kill_at(cluster, number, "gnt-cluster", "upgrade", "--resume"), number
        if number == 5:
            # Both versions can go on, whichever is found first.
            other = OWN if target == NEXT else NEXT
            cluster.run("gnt-cluster", "upgrade", "--to=9.9").failed("is not installed")
            assert active(cluster, MASTER) == other
    cluster.run("gnt-cluster", "upgrade", "--resume").ok()
    require_version(cluster, target)


@pytest.mark.long
@pytest.mark.parametrize("number", [4, 5, 6, 7, 8])
@pytest.mark.parametrize("goes_on", [True, False])
def test_killed_and_the_machines_start_again(cluster: Cluster, number: int, goes_on: bool) -> None:
    """A machine starts its daemons, as the version of its link, which may be the other one."""
    assert kill_at(cluster, number, "gnt-cluster", "upgrade", f"--to={NEXT}")
    for node in NODES:
        cluster.on(node, "daemon-util", "start-all")
    cluster.run("gnt-cluster", "upgrade", "--resume" if goes_on else f"--to={OWN}").ok()
    require_version(cluster, NEXT if goes_on else OWN)
    if goes_on:
        cluster.run("gnt-cluster", "upgrade", f"--to={OWN}").ok()
        require_version(cluster, OWN)


@pytest.mark.long
def test_a_torn_record_says_what_to_do(cluster: Cluster) -> None:
    assert kill_at(cluster, 6, "gnt-cluster", "upgrade", f"--to={NEXT}")
    record = cluster.path(MASTER, "var/lib/ganeti/intent-to-upgrade")
    record.write_bytes(record.read_bytes()[:50])
    failed = cluster.run("gnt-cluster", "upgrade", "--resume")
    failed.failed("Its copy is whole: 'cp ", "repeat the command", exit_code=2)
    shutil.copy(f"{record}.copy", record)
    cluster.run("gnt-cluster", "upgrade", "--resume").ok()
    require_version(cluster, NEXT)
    cluster.run("gnt-cluster", "upgrade", f"--to={OWN}").ok()
    require_version(cluster, OWN)


@pytest.mark.long
@pytest.mark.parametrize("number", [1, 3, 5, 6, 7, 9])
def test_killed_and_taken_back(cluster: Cluster, number: int) -> None:
    assert kill_at(cluster, number, "gnt-cluster", "upgrade", f"--to={NEXT}")
    cluster.run("gnt-cluster", "upgrade", f"--to={OWN}").ok()
    require_version(cluster, OWN)


@pytest.mark.long
def test_a_node_which_is_offline(cluster: Cluster) -> None:
    node = "node2.example.com"
    cluster.run("gnt-instance", "stop", "web1.example.com").ok()
    cluster.run("gnt-node", "modify", "--offline=yes", node).ok()
    upgrade = ("gnt-cluster", "upgrade", f"--to={NEXT}")
    cluster.run(*upgrade).failed(f"offline: {node}. With '--leave-out=NODE'")
    text = cluster.run(*upgrade, "--leave-out=node2").ok().stdout
    assert f"Left out, because they are offline: {node}" in text
    assert active(cluster, node) == OWN
    cluster.run("gnt-node", "modify", "--offline=no", node).ok()
    cluster.run("gnt-node", "modify", "--master-candidate=yes", node)
    cluster.run(*upgrade).ok()
    cluster.run("gnt-instance", "start", "web1.example.com").ok()
    require_version(cluster, NEXT)
    cluster.run("gnt-cluster", "upgrade", f"--to={OWN}").ok()
    require_version(cluster, OWN)


@pytest.mark.long
def test_jobs_which_run_are_waited_for(cluster: Cluster) -> None:
    job = (
        cluster.run("gnt-debug", "delay", "--submit", "--print-jobid", "8").ok().stdout.split()[-1]
    )
    cluster.run("gnt-cluster", "upgrade", f"--to={NEXT}").ok()
    assert cluster.rows("gnt-job", "list", "-o", "status", job) == [["success"]]
    require_version(cluster, NEXT)
    # A queue which was drained and a watcher which was paused are so afterwards, too.
    cluster.run("gnt-cluster", "watcher", "pause", "2h").ok()
    cluster.run("gnt-cluster", "upgrade", f"--to={OWN}").ok()
    assert "is paused until" in cluster.run("gnt-cluster", "watcher", "info").ok().stdout
    cluster.run("gnt-cluster", "watcher", "continue").ok()
    require_version(cluster, OWN)


@pytest.mark.long
def test_simulation(cluster: Cluster) -> None:
    """It changes nothing: neither the files of this cluster nor its daemons."""
    config = cluster.path(MASTER, "var/lib/ganeti/config.data")
    before = config.read_bytes()
    pids = [cluster.pid(name, "ganeti-noded") for name in NODES]
    text = cluster.run("gnt-cluster", "upgrade", "--simulate", f"--to={NEXT}").ok().stdout
    for line in ("2 instances run", f"Going to version {NEXT}", f"Going to version {OWN}",
                 "The simulation has succeeded"):  # fmt: skip
        assert line in text
    assert config.read_bytes() == before
    assert pids == [cluster.pid(name, "ganeti-noded") for name in NODES]
    # A version which cannot read the configuration: that is seen, and nothing is left behind.
    broken = Path(os.path.realpath(cluster.path(MASTER, f"usr/lib/ganeti/{NEXT}")))
    program = broken / "lib/ganeti/config/releases.py"
    good = program.read_text()
    program.write_text("raise SystemExit('it cannot start')\n")
    try:
        failed = cluster.run("gnt-cluster", "upgrade", "--simulate", f"--to={NEXT}")
        failed.failed("it cannot start", "The simulation has failed. This cluster was not changed.")
    finally:
        program.write_text(good)
    require_version(cluster, OWN)


@pytest.mark.long
def test_a_version_which_does_not_start(cluster: Cluster) -> None:
    """The step fails, the way back works, and the cluster is as before."""
    broken = Path(os.path.realpath(cluster.path(MASTER, f"usr/lib/ganeti/{NEXT}")))
    program = broken / "lib/ganeti/server/masterd.py"
    good = program.read_text()
    program.write_text("raise SystemExit('it cannot start')\n")
    try:
        cluster.run("gnt-cluster", "upgrade", f"--to={NEXT}").failed(
            "step 'start' failed", "--resume", f"--to={OWN}"
        )
        cluster.run("gnt-cluster", "upgrade", f"--to={NEXT}").failed("is not complete")
    finally:
        program.write_text(good)
    cluster.run("gnt-cluster", "upgrade", f"--to={OWN}").ok()
    require_version(cluster, OWN)


@pytest.mark.long
def test_two_at_the_same_time(cluster: Cluster) -> None:
    argv = ("gnt-cluster", "upgrade", f"--to={NEXT}")
    first = cluster.start_on(MASTER, *argv)
    assert first.stdout is not None
    try:
        assert first.stdout.readline().startswith("[1/")
        cluster.run(*argv).failed("another 'gnt-cluster upgrade' runs")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(first.pid, signal.SIGKILL)
        first.communicate()
    cluster.run("gnt-cluster", "upgrade", f"--to={OWN}").ok()
    require_version(cluster, OWN)


@pytest.mark.long
def test_a_journal_of_a_node_daemon_which_was_killed(cluster: Cluster) -> None:
    """No version starts beside a journal, which an earlier one would not read."""
    enlarge(cluster, MASTER)
    node = NODES[1]
    file = cluster.path(node, "var/lib/ganeti/config.data")
    journals = [cluster.path(name, "var/lib/ganeti/config.data.journal") for name in NODES]
    # The first change sends the whole file to the candidate.
    cluster.run("gnt-cluster", "add-tags", "whole").ok()
    # Its children go on with calls, and it folds nothing in.
    cluster.kill(node, "ganeti-noded", signal.SIGSTOP)
    cluster.run("gnt-cluster", "add-tags", "in-a-journal").ok()
    cluster.kill_whole(node, "ganeti-noded")
    assert journals[1].exists() and "in-a-journal" not in file.read_text()
    assert kill_at(cluster, 4, "gnt-cluster", "upgrade", f"--to={NEXT}")
    assert not any(journal.exists() for journal in journals)
    assert "in-a-journal" in file.read_text()
    cluster.run("gnt-cluster", "upgrade", "--resume").ok()
    require_version(cluster, NEXT)
    cluster.run("gnt-cluster", "upgrade", f"--to={OWN}").ok()
    require_version(cluster, OWN)
    assert "in-a-journal" in cluster.run("gnt-cluster", "list-tags").ok().stdout
