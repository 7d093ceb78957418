"""Jobs in processes of their own: they can be killed, their death is noticed, restarts do no harm.

One cluster serves all tests of this module; the last one moves the role of the master.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Cluster, alive, wait_until
from held_install import MASTERD, NAME, HeldInstall

from devel.bench import queue
from devel.simnodes.cluster import SimulatedCluster, Size, node_name, running
from ganeti.luxi import client as luxi
from ganeti.opcodes.cluster import OpClusterSetParams
from ganeti.opcodes.instance import OpInstanceCreate


class Lab(HeldInstall):
    """A cluster with job processes."""

    def configure(self) -> None:
        self.cluster.run("gnt-cluster", "modify", "--job-execution=processes").ok()

    def submit(self, *words: str) -> str:
        found = self.cluster.run(*words[:2], "--submit", "--print-jobid", *words[2:]).ok()
        return found.stdout.split(":")[-1].split()[0].strip()

    def delay(self, *options: str) -> str:
        """Begin a job which waits, and return its number when it is running."""
        found = self.cluster.run("gnt-debug", "delay", "--submit", "--print-jobid", *options).ok()
        job = "".join(filter(str.isdigit, found.stdout.split("\n")[0]))
        self.await_running(job)
        return job

    def reinstall(self) -> str:
        """Reinstall, up to the middle of the script; returns the job."""
        before = len(self.lines())
        self.hold.touch()
        words = ("gnt-instance", "reinstall", "--submit", "--print-jobid", "-f", NAME)
        job = self.cluster.run(*words).ok().stdout.split(":")[0].strip()
        wait_until(lambda: len(self.lines()) > before, "the script runs")
        return job

    def status(self, job: str) -> str:
        return self.cluster.rows("gnt-job", "list", "-o", "status", job)[0][0]

    def await_running(self, job: str) -> None:
        wait_until(lambda: self.status(job) == "running", f"job {job} runs")

    def file(self, job: str, node: str | None = None) -> dict[str, Any]:
        path = self.cluster.path(node or self.cluster.master, f"var/lib/ganeti/queue/job-{job}")
        found: dict[str, Any] = json.loads(path.read_text())
        return found

    def result(self, job: str) -> str:
        return str(self.file(job)["ops"][0]["result"])

    def process(self, job: str) -> int:
        """The process of a job, which has locked the file that the job file names."""
        pid = int(self.file(job)["process_id"])
        assert Path(f"/proc/{pid}/comm").read_text().strip() == f"gnt-job-{job}"
        assert pid != self.cluster.pid(self.cluster.master, MASTERD)
        return pid

    def names(self) -> dict[int, str]:
        """The processes of the master's node with their names."""
        found = {}
        for pid in self.cluster.processes(self.cluster.master):
            with contextlib.suppress(OSError):
                found[pid] = Path(f"/proc/{pid}/comm").read_text().strip()
        return found

    def job_processes(self) -> list[str]:
        """The names of the processes which have a job, or had one and wait for another."""
        return [name for name in self.names().values() if name.startswith("gnt-job-")]

    def fork_server(self) -> int | None:
        """The process which makes job processes; its copies have its name until they get a job."""
        master = str(self.cluster.pid(self.cluster.master, MASTERD))
        for pid, name in self.names().items():
            with contextlib.suppress(OSError):
                status = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                if name == "gnt-fork-server" and status[1] == master and status[0] != "Z":
                    return pid
        return None

    def end_spare(self) -> None:
        """End the processes which could take a job without the fork server."""
        server = self.fork_server()
        for pid, name in self.names().items():
            if name in ("gnt-fork-server", "gnt-job-idle") and pid != server:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def locks(self) -> str:
        return self.cluster.run("gnt-debug", "locks", "-o", "name,mode,owner,pending").ok().stdout

    def kill(self, job: str) -> str:
        return self.cluster.run("gnt-job", "cancel", "--kill", "--yes-do-it", job).ok().stdout

    def restart_masterd(self) -> None:
        self.cluster.on(self.cluster.master, "daemon-util", "restart", MASTERD).ok()

    def kill_masterd(self) -> None:
        pid = self.cluster.kill(self.cluster.master, MASTERD, signal.SIGKILL)
        wait_until(lambda: not alive(pid), "masterd is gone")
        self.cluster.on(self.cluster.master, "daemon-util", "start", MASTERD).ok()


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    directory = tmp_path_factory.mktemp("processes")
    with tempfile.TemporaryDirectory(prefix="gnt-") as short:
        made = Cluster(Path(short) / "vc", 3, "--hypervisor", "fake")
        made.create.ok()
        try:
            yield Lab(made, directory)
        finally:
            (directory / "hold").unlink(missing_ok=True)
            made.destroy()


def test_a_thread_cannot_be_killed_and_says_so(lab: Lab) -> None:
    lab.cluster.run("gnt-cluster", "modify", "--job-execution=threads").ok()
    job = lab.delay("600")
    answer = lab.cluster.run("gnt-job", "cancel", "--kill", "--yes-do-it", job)
    answer.failed("a thread cannot be killed", "--job-execution=processes")
    assert lab.status(job) == "running"
    lab.cluster.run("gnt-job", "cancel", job).ok()
    lab.cluster.run("gnt-job", "wait", job)
    assert lab.status(job) == "canceled"
    lab.cluster.run("gnt-cluster", "modify", "--job-execution=processes").ok()
    assert "execution of jobs: in processes" in lab.cluster.run("gnt-cluster", "info").ok().stdout


def test_the_killed_job_says_who_and_what_is_left_and_its_script_keeps_the_lock(lab: Lab) -> None:
    job = lab.reinstall()
    pid = lab.process(job)
    said = lab.kill(job)
    assert f"job {job} was killed during INSTANCE_REINSTALL({NAME})" in said
    assert f"'gnt-instance reinstall {NAME}' again" in said
    assert not alive(pid)
    assert lab.status(job) == "error"
    assert "killed by user " in lab.result(job) and f"process {pid} was ended" in lab.result(job)
    assert f"'gnt-instance reinstall {NAME}' again" in lab.result(job)
    lab.cluster.run("gnt-job", "cancel", "--kill", "--yes-do-it", job).failed("has already ended")
    # Its script goes on, so the instance stays locked until it is over.
    owner = f"work of job {job} on {lab.node} for instance {NAME}"
    assert owner in lab.locks()
    words = ("gnt-instance", "startup", "--submit", "--print-jobid", NAME)
    other = lab.cluster.run(*words).ok().stdout.split(":")[0].strip()
    wait_until(lambda: lab.status(other) == "waiting", "the other job waits")
    lab.hold.unlink()
    lab.cluster.run("gnt-job", "wait", other).ok()
    assert lab.status(other) == "success"
    assert owner not in lab.locks()
    lab.cluster.run("gnt-instance", "shutdown", "--timeout=0", NAME).ok()


def test_a_job_which_waits_for_a_lock_is_canceled_and_killed(lab: Lab) -> None:
    job = lab.reinstall()
    waiting = []
    for _ in range(2):
        words = ("gnt-instance", "startup", "--submit", "--print-jobid", NAME)
        waiting.append(lab.cluster.run(*words).ok().stdout.split(":")[0].strip())
        wait_until(lambda: lab.status(waiting[-1]) == "waiting", "the job waits")
    assert lab.process(waiting[0]) != lab.process(waiting[1])
    lab.cluster.run("gnt-job", "cancel", waiting[0]).ok()
    lab.cluster.run("gnt-job", "wait", waiting[0])
    lab.kill(waiting[1])
    assert [lab.status(one) for one in waiting] == ["canceled", "canceled"]
    assert lab.status(job) == "running"
    lab.hold.unlink()
    lab.cluster.run("gnt-job", "wait", job).ok()


def test_a_process_which_does_nothing_delays_no_other_job(lab: Lab) -> None:
    """Neither one which is stopped, nor one which has connected and says nothing."""
    job = lab.delay("600")
    pid = lab.process(job)
    os.kill(pid, signal.SIGSTOP)
    address = lab.cluster.path(lab.cluster.master, "var/run/ganeti/socket/ganeti-jobs")
    with socket.socket(socket.AF_UNIX) as silent:
        silent.connect(str(address))
        # More at once than rest, so that some processes are new and have to connect.
        others = [lab.delay("600") for _ in range(4)]
        for other in others:
            lab.kill(other)
    assert lab.status(job) == "running"
    lab.kill(job)
    assert not alive(pid)


def test_no_more_processes_than_jobs_may_be_watched(lab: Lab) -> None:
    lab.cluster.run("gnt-cluster", "modify", "--max-running-jobs=2", "--max-tracked-jobs=2").ok()
    running = [lab.delay("600") for _ in range(2)]
    words = ("gnt-debug", "delay", "--submit", "--print-jobid", "0")
    found = lab.cluster.run(*words).ok().stdout
    third = "".join(filter(str.isdigit, found.split("\n")[0]))
    assert lab.status(third) == "queued"
    # Some may rest from the jobs before.
    wait_until(lambda: len(lab.job_processes()) == 2, "only two processes are left")
    lab.kill(running[0])
    lab.cluster.run("gnt-job", "wait", third).ok()
    assert lab.status(third) == "success"
    assert len(lab.job_processes()) == 2
    lab.kill(running[1])
    lab.cluster.run("gnt-cluster", "modify", "--max-tracked-jobs=25").ok()
    lab.cluster.run("gnt-cluster", "modify", "--max-running-jobs=20").ok()


def test_a_process_which_dies_is_noticed_at_once(lab: Lab) -> None:
    job = lab.delay("600")
    pid = lab.process(job)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: lab.status(job) == "error", "the death is noticed")
    assert f"process {pid} of the job is gone" in lab.result(job)
    assert f" {job} " not in lab.locks()
    assert lab.cluster.run("gnt-cluster", "verify").ok()


def test_a_killed_fork_server_costs_no_job(lab: Lab) -> None:
    """Neither a running job, nor one which is submitted before another server is there."""
    running = lab.delay("600")
    for _ in range(3):
        wait_until(lambda: lab.fork_server() is not None, "there is a fork server")
        server = lab.fork_server()
        assert server is not None
        os.kill(server, signal.SIGKILL)
        lab.end_spare()
        jobs = [lab.submit("gnt-debug", "delay", "0") for _ in range(3)]
        for job in jobs:
            lab.cluster.run("gnt-job", "wait", job).ok()
            assert lab.status(job) == "success", lab.result(job)
    assert lab.status(running) == "running"
    lab.kill(running)


def test_jobs_wait_while_no_process_can_be_made(lab: Lab) -> None:
    """The fork server lacks descriptors; nothing of that is an error of a job."""
    wait_until(lambda: lab.fork_server() is not None, "there is a fork server")
    server = lab.fork_server()
    assert server is not None
    before = resource.prlimit(server, resource.RLIMIT_NOFILE)
    resource.prlimit(server, resource.RLIMIT_NOFILE, (3, before[1]))
    lab.end_spare()
    jobs = [lab.submit("gnt-debug", "delay", "0") for _ in range(4)]
    info = ("gnt-cluster", "queue", "info")
    wait_until(lambda: "Too many open files" in lab.cluster.run(*info).ok().stdout, "it pauses")
    assert [lab.status(job) for job in jobs] == ["queued"] * 4
    reason = "Jobs cannot be executed, and wait: cannot make a process"
    assert reason in lab.cluster.run(*info).ok().stdout
    assert "pauses: cannot make a process" in lab.cluster.run("gnt-cluster", "info").ok().stdout
    explained = lab.cluster.run("gnt-job", "explain", jobs[-1]).ok().stdout
    assert "jobs cannot be executed: cannot make a process" in explained
    watcher = lab.cluster.on(lab.cluster.master, "ganeti-watcher", "--ignore-pause")
    assert watcher.exit_code == 1
    resource.prlimit(server, resource.RLIMIT_NOFILE, before)
    for job in jobs:
        lab.cluster.run("gnt-job", "wait", job).ok()
        assert lab.status(job) == "success", lab.result(job)
    assert "Jobs cannot" not in lab.cluster.run(*info).ok().stdout


def test_a_process_which_has_no_space_in_run_costs_no_job(lab: Lab) -> None:
    """As when the file system of /run is full."""
    livelocks = lab.cluster.path(lab.cluster.master, "var/run/ganeti/livelocks")
    running = lab.delay("600")
    away = livelocks.with_name("away")
    livelocks.rename(away)
    try:
        jobs = [lab.submit("gnt-debug", "delay", "0") for _ in range(3)]
        info = ("gnt-cluster", "queue", "info")
        wait_until(
            lambda: "a process cannot execute the job" in lab.cluster.run(*info).ok().stdout,
            "the queue pauses",
        )
        assert [lab.status(job) for job in jobs] == ["queued"] * 3
    finally:
        away.rename(livelocks)
    for job in jobs:
        lab.cluster.run("gnt-job", "wait", job).ok()
        assert lab.status(job) == "success", lab.result(job)
    assert lab.status(running) == "running"
    lab.kill(running)


def test_a_restart_in_the_middle_of_a_script(lab: Lab) -> None:
    """The call goes on, the job gets its answer, and keeps its locks meanwhile."""
    job = lab.reinstall()
    pid = lab.process(job)
    lab.restart_masterd()
    assert alive(pid) and lab.status(job) == "running"
    assert f"{NAME} exclusive {job}" in " ".join(_instance_lock(lab))
    words = ("gnt-instance", "startup", "--submit", "--print-jobid", NAME)
    other = lab.cluster.run(*words).ok().stdout.split(":")[0].strip()
    wait_until(lambda: lab.status(other) == "waiting", "the other job waits")
    lab.hold.unlink()
    lab.cluster.run("gnt-job", "wait", job).ok()
    assert lab.status(job) == "success", lab.result(job)
    lab.cluster.run("gnt-job", "wait", other).ok()
    assert lab.status(other) == "success", lab.result(other)
    wait_until(lambda: not alive(pid), "the process of the earlier release ends")
    lab.cluster.run("gnt-instance", "shutdown", "--timeout=0", NAME).ok()


def _instance_lock(lab: Lab) -> list[str]:
    rows = lab.cluster.rows("gnt-debug", "locks", "-o", "name,mode,owner")
    uuid = lab.cluster.rows("gnt-instance", "list", "-o", "uuid", NAME)[0][0]
    return [f"{NAME} {mode} {owner}" for name, mode, owner in rows if name == f"instance/{uuid}"]


def test_a_killed_master_daemon_between_many_node_calls(lab: Lab) -> None:
    """Nodes refuse the old epoch; the process takes the new one and makes its calls again."""
    job = lab.delay("--no-master", "-n", lab.node, "--repeat", "25", "0.2")
    pid = lab.process(job)
    lab.kill_masterd()
    assert lab.status(job) in ("running", "success")
    lab.cluster.run("gnt-job", "wait", job)
    assert lab.status(job) == "success", lab.result(job)
    assert int(lab.file(job)["process_id"]) == pid
    log = [entry[3] for entry in lab.file(job)["ops"][0]["log"]]
    assert log == [f" - INFO: round {number} of 25" for number in range(1, 26)], log


def test_a_process_which_died_while_there_was_no_master_daemon(lab: Lab) -> None:
    job = lab.reinstall()
    pid = lab.process(job)
    lab.cluster.on(lab.cluster.master, "daemon-util", "stop", MASTERD).ok()
    os.kill(pid, signal.SIGKILL)
    lab.cluster.on(lab.cluster.master, "daemon-util", "start", MASTERD).ok()
    assert lab.status(job) == "error"
    assert f"work of job {job} on {lab.node}" in lab.locks()
    lab.hold.unlink()
    wait_until(lambda: f"work of job {job}" not in lab.locks(), "the script is over")


def test_a_restart_in_the_middle_of_an_export(lab: Lab) -> None:
    """The transfer between two nodes is work of a job which goes on, so nobody ends it."""
    script = lab.cluster.path(lab.node, "srv/ganeti/os/slow/export")
    script.write_text(
        f"#!/bin/sh\necho $$ >> {lab.log}\n"
        f"while [ -e {lab.hold} ]; do sleep 0.05; done\nexec cat $EXPORT_DEVICE\n"
    )
    script.chmod(0o755)
    before = len(lab.lines())
    lab.hold.touch()
    target = lab.cluster.node_names[1]
    job = lab.submit("gnt-backup", "export", "-n", target, "--noshutdown", NAME)
    wait_until(lambda: len(lab.lines()) > before, "the script runs")
    sender, pid = int(lab.lines()[-1]), lab.process(job)
    lab.restart_masterd()
    assert alive(sender) and alive(pid) and lab.status(job) == "running"
    lab.hold.unlink()
    lab.cluster.run("gnt-job", "wait", job).ok()
    assert lab.status(job) == "success", lab.result(job)
    lab.cluster.run("gnt-backup", "remove", NAME).ok()


def test_a_process_of_another_release_is_ended_and_its_job_says_so(lab: Lab) -> None:
    """As after an upgrade which changed the messages: the record says the protocol."""
    job = lab.reinstall()
    pid = lab.process(job)
    lab.cluster.on(lab.cluster.master, "daemon-util", "stop", MASTERD).ok()
    record = Path(f"{lab.file(job)['livelock']}.held")
    found = {**json.loads(record.read_text()), "protocol": "0-00000000", "release": "0.8.0"}
    record.write_text(json.dumps(found))
    lab.cluster.on(lab.cluster.master, "daemon-util", "start", MASTERD).ok()
    assert not alive(pid) and not record.exists()
    assert lab.status(job) == "error"
    assert "was made by release 0.8.0 with protocol 0-00000000" in lab.result(job)
    assert f"'gnt-instance reinstall {NAME}' again" in lab.result(job)
    # Its script goes on, and its instance is locked until that is over.
    assert f"work of job {job} on {lab.node}" in lab.locks()
    lab.hold.unlink()
    wait_until(lambda: f"work of job {job}" not in lab.locks(), "the script is over")


def test_a_failover_ends_the_processes_of_the_old_master(lab: Lab) -> None:
    job = lab.delay("600")
    pid = lab.process(job)
    second = lab.cluster.node_names[1]
    lab.cluster.on(second, "gnt-cluster", "master-failover").ok()
    wait_until(lambda: not alive(pid), "the process has ended")
    wait_until(
        lambda: lab.cluster.on(second, "gnt-job", "list").exit_code == 0, "the new master serves"
    )
    assert lab.cluster.on(second, "gnt-job", "list", "--no-headers", "-o", "status", job).ok()
    assert lab.file(job, second)["ops"][0]["status"] == "error"


@pytest.mark.long
def test_a_restart_in_the_middle_of_a_disk_synchronisation() -> None:
    """The nodes are simulated: their mirrored disks need half a minute to be in sync."""
    directory = tempfile.mkdtemp(prefix="gnt-")
    try:
        with running(f"{directory}/vc", Size(3, 0, 1, 2), options=("--sync-mib-s=8",)) as nodes:
            _create_across_a_restart(nodes)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _create_across_a_restart(nodes: SimulatedCluster) -> None:
    with luxi.Client(nodes.paths().master_socket) as client:
        queue.wait(client, client.submit_job([OpClusterSetParams(job_execution="processes")]))
        job = client.submit_job(
            [
                OpInstanceCreate(
                    instance_name=NAME,
                    mode="create",
                    disk_template="drbd",
                    disks=[{"size": 256}],
                    nics=[],
                    os_type="debian+default",
                    pnode=node_name(1),
                    snode=node_name(2),
                    beparams={"memory": 128},
                    start=False,
                    wait_for_sync=True,
                    name_check=False,
                    ip_check=False,
                )
            ]
        )

    def file() -> dict[str, Any]:
        path = Path(nodes.paths().queue_dir) / f"job-{job}"
        found: dict[str, Any] = json.loads(path.read_text())
        return found

    def log() -> str:
        with luxi.Client(nodes.paths().master_socket) as client:
            ((entries,),) = client.query_jobs([job], ["oplog"])
        return str(entries)

    wait_until(lambda: "% done" in log(), "the disk is being synchronised")
    before = file()
    assert before["ops"][0]["status"] == "running"
    nodes.daemon("restart")
    with luxi.Client(nodes.paths().master_socket) as client:
        queue.wait(client, job)
    after = file()
    assert after["ops"][0]["status"] == "success", after["ops"][0]["result"]
    assert after["process_id"] == before["process_id"]
    assert "in sync" in log()
