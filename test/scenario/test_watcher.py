"""What is done without being asked, with real daemons: ganeti-watcher on virtual clusters."""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import ROOT, Cluster, SteadyCluster, alive, children, made, wait_until

from ganeti.utils.filelock import FileLock
from ganeti.watcher import restarting

MASTER, OTHER = "node1.example.com", "node2.example.com"
#: Guests which lose their power at once.
MANY = 200


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


def halt(cluster: Cluster, node: str, name: str, number: int) -> None:
    """Let a guest of the fake hypervisor live without running (``hypervisor/fake/guests.py``)."""
    path = cluster.path(node, f"var/run/ganeti/fake-hypervisor/{name}")
    _before, *others = path.read_text().split()
    path.write_text("\n".join([str(number), *others, ""]))


def guest_states(cluster: Cluster) -> dict[str, str]:
    shown = cluster.run(
        "gnt-instance", "list", "--no-headers", "--separator= ", "-o", "name,guest_state"
    )
    return dict(line.split() for line in shown.ok().stdout.splitlines())


def test_guests_which_live_and_do_not_run(cluster: Cluster, web: list[str]) -> None:
    paused, full, crashed = web
    halt(cluster, MASTER, paused, 4)
    halt(cluster, MASTER, full, 5)
    halt(cluster, OTHER, crashed, 6)
    assert guest_states(cluster) == {paused: "paused", full: "io-error", crashed: "crashed"}
    assert states(cluster) == {paused: "running", full: "ERROR_down", crashed: "ERROR_down"}
    shown = cluster.run("gnt-instance", "info", full).ok().stdout
    assert "actual state is up, halted: io-error (the number in its file says so)" in shown
    found = cluster.run("gnt-cluster", "verify").stdout
    for name, state in ((paused, "paused"), (full, "io-error"), (crashed, "crashed")):
        assert f"instance {name}: does not run, although it was started: {state}" in found
    cluster.run("ganeti-watcher").ok()
    # What an error has halted runs on or starts again, and what somebody has paused does not.
    assert guest_states(cluster) == {paused: "paused", full: "running", crashed: "running"}
    assert f"instance {paused}: it should run, but is halted (paused)" in log(cluster)
    refused = cluster.run("gnt-instance", "startup", paused)
    assert refused.exit_code != 0
    assert f"Continue it with 'gnt-instance startup --continue {paused}'" in refused.stderr
    cluster.run("gnt-instance", "startup", "--continue", paused).ok()
    assert set(guest_states(cluster).values()) == {"running"}


def test_a_guest_which_dies_at_once_is_not_restarted_for_ever(
    cluster: Cluster, web: list[str]
) -> None:
    for _ in range(5):
        cluster.crash_guests(MASTER, web[0])
        cluster.run("ganeti-watcher").ok()
        assert states(cluster)[web[0]] == "running"
    cluster.crash_guests(MASTER, web[0])
    cluster.run("ganeti-watcher").ok()
    assert states(cluster)[web[0]] == "ERROR_down"
    assert f"instance {web[0]}: it is down, and 5 restarts in the last 8 hours" in log(cluster)
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


def test_a_watcher_which_hangs_is_reported(cluster: Cluster) -> None:
    """A script of the administrator never ends; everybody who looks is told."""
    hooks = cluster.path(OTHER, "etc/ganeti/hooks/watcher")
    hooks.mkdir(parents=True, exist_ok=True)
    script = hooks / "endless"
    script.write_text("#!/bin/sh\nexec sleep 100000\n")
    script.chmod(0o755)
    lock = cluster.path(OTHER, "var/lock/ganeti-watcher.lock")
    complete = cluster.path(OTHER, "var/lib/ganeti/watcher.complete")
    complete.unlink(missing_ok=True)
    hanging = cluster.start_on(OTHER, "ganeti-watcher")
    try:
        wait_until(lambda: lock.exists() and lock.read_text() != "", "the watcher works")
        pid = lock.read_text().split()[0]
        found = cluster.on(OTHER, "ganeti-watcher", "--dry-run").ok()
        assert f"another watcher (process {pid}) has been running for" in found.text
        assert "probably hangs" not in cluster.run("gnt-cluster", "verify").text
        # Some hours later.
        lock.write_text(f"{pid} {time.monotonic() - 7500:.1f}\n")
        found = cluster.on(OTHER, "ganeti-watcher")
        assert found.exit_code == 1
        assert f"(process {pid}) has been running for 2 h 5 min, and probably hangs" in log(
            cluster, OTHER
        )
        verified = cluster.run("gnt-cluster", "verify", "--error-codes")
        assert f"ENODESETUP:node:{OTHER}:the watcher (process {pid}) has been" in verified.text
        assert verified.exit_code == 1
    finally:
        script.unlink()
        for child in [*children(hanging.pid), hanging.pid]:
            os.kill(child, signal.SIGKILL)
        hanging.communicate()
    assert not complete.exists()
    cluster.on(OTHER, "ganeti-watcher").ok()
    assert complete.exists()
    assert "the watcher (process" not in cluster.run("gnt-cluster", "verify").text


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
        assert "another watcher (process" in log(cluster)
        for pid in (first.pid, *children(first.pid)):
            os.kill(pid, signal.SIGKILL)
        first.wait()
        # The next one leaves the instance to the job which is still running.
        cluster.run("ganeti-watcher", "--no-verify-disks").ok()
        assert "is running on it" in log(cluster)
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


#: What Python loads as ``sitecustomize`` kills the process before a step which others can see: a
#: request to the master, or a new content of a file. The steps of all processes are counted.
_KILL_SHIM = """
import os, signal, socket

def _step(path=os.environ["TEST_STEPS"], last=int(os.environ["TEST_LAST_STEP"])):
    with open(path, "ab") as stream:
        stream.write(b".")
    if os.path.getsize(path) >= last:
        os.kill(os.getpid(), signal.SIGKILL)

def _before(function):
    def counted(*args, **kwargs):
        _step()
        return function(*args, **kwargs)
    return counted

os.rename = _before(os.rename)
_sendall = socket.socket.sendall
socket.socket.sendall = lambda self, data: (_step(), _sendall(self, data))[1]
"""


@pytest.mark.long
@pytest.mark.parametrize("first", range(1, 7))
def test_a_watcher_which_is_killed_at_each_step(
    cluster: Cluster, web: list[str], first: int
) -> None:
    """The next one completes the work, and no restart is forgotten, so that none is free.

    All runs of this test together try each step.
    """
    directory, steps = cluster.directory / "kill", cluster.directory / "steps"
    directory.mkdir(exist_ok=True)
    (directory / "sitecustomize.py").write_text(_KILL_SHIM)
    settings = (f"PYTHONPATH={directory}", f"TEST_STEPS={steps}")
    program = (sys.executable, str(ROOT / "daemons/ganeti-watcher"))
    for last in range(first, 100, 6):
        for path in cluster.directory.glob("node*/var/lib/ganeti/watcher.*"):
            path.unlink()
        steps.unlink(missing_ok=True)
        cluster.crash_guests(OTHER, web[2])
        killed = cluster.run("env", *settings, f"TEST_LAST_STEP={last}", *program)
        if killed.exit_code == 0:
            break
        # A job which it has submitted ends without it.
        wait_until(lambda: not unfinished(cluster), "no job is running")
        started = states(cluster)[web[2]] == "running"
        cluster.run_later(1, "ganeti-watcher").ok()
        assert states(cluster)[web[2]] == "running", f"killed before step {last}"
        count = memory(cluster)["instance"].get(web[2], {}).get("restart_count", 0)
        assert count >= 1, f"killed before step {last}: a restart without a count"
        assert count <= (1 if started else 2)
    else:
        pytest.fail("it does not end")
    assert last > 10, "each request and each file is a step"
    assert states(cluster)[web[2]] == "running"


def unfinished(cluster: Cluster) -> list[list[str]]:
    """The jobs which have not ended."""
    filters = 'status != "success" and status != "error" and status != "canceled"'
    return cluster.rows("gnt-job", "list", "-o", "id", "-F", filters)


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
def test_a_power_cut_of_many_guests(tmp_path_factory: pytest.TempPathFactory) -> None:
    """All run again after one run, with a limited number of jobs at once, in the wanted order."""
    directory = tmp_path_factory.mktemp("w") / "vc"
    with made(SteadyCluster(directory, 3, "--hypervisor", "fake")) as cluster:
        _power_cut_of_many_guests(cluster)


def _power_cut_of_many_guests(cluster: Cluster) -> None:
    nodes = cluster.node_names
    names = [f"many{number:03}.example.com" for number in range(MANY)]
    batch = cluster.directory / "batch.json"
    batch.write_text(
        json.dumps(
            [
                {
                    "name": name,
                    "disk_template": "diskless",
                    "os_type": "none",
                    "no_install": True,
                    "start": False,
                    "pnode": nodes[number % len(nodes)],
                    "beparams": {"memory": 128},
                    "nics": [],
                }
                for number, name in enumerate(names)
            ]
        )
    )
    cluster.run("gnt-instance", "batch-create", str(batch)).ok()
    cluster.run("gnt-instance", "add-tags", names[-1], "ganeti:watcher:order:1").ok()
    cluster.start_instances(*names)
    for number, name in enumerate(names):
        cluster.crash_guests(nodes[number % len(nodes)], name)
    before = int(cluster.rows("gnt-job", "list", "-o", "id")[-1][0])
    begin = time.monotonic()
    cluster.run("ganeti-watcher").ok()
    print(f"\n{MANY} guests run again after {time.monotonic() - begin:.1f} s")
    assert set(states(cluster).values()) == {"running"}
    fields = "id,summary,received_ts,end_ts"
    jobs = json.loads(cluster.run("gnt-job", "list", "--output=json", "-o", fields).ok().stdout)
    starts = [job for job in jobs if job["id"] > before and "INSTANCE_STARTUP" in job["summary"][0]]
    assert len(starts) == MANY
    assert names[-1] in min(starts, key=lambda job: int(job["id"]))["summary"][0]
    # How many of them were unfinished at the same time.
    changes = sorted(
        change for job in starts for change in ((job["received_ts"], 1), (job["end_ts"], -1))
    )
    most = max(itertools.accumulate(step for _moment, step in changes))
    assert 1 < most <= restarting.MAX_JOBS


def test_each_node_group_has_its_own_watcher(cluster: Cluster, web: list[str]) -> None:
    """One which hangs does not keep the others from their work."""
    cluster.run("gnt-group", "add", "second").ok()
    cluster.run("gnt-group", "assign-nodes", "second", OTHER).ok()
    (uuid,) = [
        row[0] for row in cluster.rows("gnt-group", "list", "-o", "uuid,name") if row[1] == "second"
    ]
    lock = cluster.path(MASTER, f"var/lock/ganeti-watcher-{uuid}.lock")
    try:
        cluster.crash_guests(MASTER, web[0])
        cluster.crash_guests(OTHER, web[2])
        with FileLock(str(lock)) as held:
            held.acquire()
            cluster.run("ganeti-watcher", "--no-verify-disks").ok()
        assert states(cluster) == {web[0]: "running", web[1]: "running", web[2]: "ERROR_down"}
        cluster.run("ganeti-watcher", "--no-verify-disks", "--node-group=second").ok()
        assert states(cluster)[web[2]] == "running"
        # The states of both groups are in one file.
        cluster.run("ganeti-watcher", "--no-verify-disks").ok()
        status = cluster.path(MASTER, "var/run/ganeti/instance-status").read_text()
        assert status == "".join(f"{name} running\n" for name in web)
    finally:
        cluster.run("gnt-group", "assign-nodes", "default", OTHER).ok()
        cluster.run("gnt-group", "remove", "second").ok()


@pytest.mark.long
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
