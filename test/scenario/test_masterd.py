"""The master daemon as a process: many clients, all kinds of ends, nothing acknowledged lost."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import IN_PROCESSES, Cluster, alive, wait_until
from luxi_client import Luxi

DELAY = {"OP_ID": "OP_TEST_DELAY", "duration": 0.0}


@pytest.fixture(scope="module")
def master(cluster: Cluster) -> str:
    return cluster.master


@pytest.fixture(scope="module")
def _many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 8000:
        pytest.skip(f"only {hard} open files are allowed here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 8000), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def kill_masterd(cluster: Cluster, master: str, number: signal.Signals) -> None:
    pid = cluster.kill(master, "ganeti-masterd", number)
    wait_until(lambda: not alive(pid), "masterd is gone")


def job_files(directory: Path) -> dict[str, dict[str, Any]]:
    return {path.name: json.loads(path.read_text()) for path in directory.glob("job-*")}


@pytest.mark.usefixtures("_many_files")
def test_five_thousand_idle_and_a_thousand_waiting_clients(cluster: Cluster, master: str) -> None:
    idle = [Luxi(cluster, master) for _ in range(5000)]
    client = Luxi(cluster, master)
    job = client.call("SubmitJob", [{**DELAY, "duration": 5.0}])
    info: list[str] | None = None
    while info != ["running"]:
        answer = client.call("WaitForJobChange", job, ["status"], info, None, 60)
        info = info if answer == "nochange" else answer[0]
    waiting = [Luxi(cluster, master) for _ in range(1000)]
    for each in waiting:
        each.send("WaitForJobChange", job, ["status"], ["running"], None, 60)
    pid = cluster.pid(master, "ganeti-masterd")
    assert len(os.listdir(f"/proc/{pid}/task")) < 60, "no thread per client"
    assert client.call("QueryConfigValues", ["drain_flag"]) == [False]
    assert [each.receive() for each in waiting] == [[["success"], []]] * 1000
    for each in (*idle, *waiting):
        each.sock.close()
    assert client.call("QueryJobs", [job], ["status"]) == [["success"]]


def test_nothing_acknowledged_is_lost_when_masterd_is_killed_under_load(
    cluster: Cluster, master: str
) -> None:
    acknowledged: set[int] = set()
    stop = threading.Event()

    def submit() -> None:
        while not stop.is_set():
            try:
                client = Luxi(cluster, master)
                while not stop.is_set():
                    acknowledged.add(client.call("SubmitJob", [DELAY]))
                    acknowledged.update(
                        job
                        for accepted, job in client.call("SubmitManyJobs", [[DELAY]] * 5)
                        if accepted
                    )
            except OSError:
                stop.wait(0.01)

    clients = [threading.Thread(target=submit) for _ in range(4)]
    for thread in clients:
        thread.start()
    try:
        for _ in range(3):
            before = len(acknowledged)
            wait_until(lambda before=before: len(acknowledged) >= before + 60, "jobs are accepted")
            kill_masterd(cluster, master, signal.SIGKILL)
            cluster.vcluster("start", str(cluster.directory)).ok()
    finally:
        stop.set()
        for thread in clients:
            thread.join()
    client = Luxi(cluster, master)
    wait_until(
        lambda: all(
            row[0] in ("success", "error", "canceled")
            for row in client.call("QueryJobs", None, ["status"])
        ),
        "all jobs have ended",
    )
    rows = client.call("QueryJobs", sorted(acknowledged), ["status", "opresult"])
    assert None not in rows, "a job was lost"
    for status, results in rows:
        assert status == "success" or "master daemon ended" in str(results), results

    queue = cluster.path(master, "var/lib/ganeti/queue")
    here = job_files(queue)
    assert {f"job-{job}" for job in acknowledged} <= set(here)
    for name in cluster.node_names:
        there = cluster.path(name, "var/lib/ganeti/queue")
        wait_until(lambda there=there: job_files(there) == here, f"{name} has the same jobs")
        wait_until(
            lambda there=there: (there / "serial").read_text() == (queue / "serial").read_text(),
            f"{name} has the same last job id",
        )


def test_an_orderly_end_lets_the_running_job_finish(cluster: Cluster, master: str) -> None:
    """In a thread before the daemon ends, in a process while there is none."""
    client = Luxi(cluster, master)
    running = client.call("SubmitJob", [{**DELAY, "duration": 2.0}])
    wait_until(lambda: client.call("QueryJobs", [running], ["status"]) == [["running"]], "it runs")
    pid = cluster.kill(master, "ganeti-masterd", signal.SIGTERM)
    wait_until(lambda: not alive(pid), "masterd is gone")
    queue = cluster.path(master, "var/lib/ganeti/queue")
    ended = job_files(queue)[f"job-{running}"]["ops"][0]["status"]
    assert ended == "success" or (IN_PROCESSES and ended == "running")
    assert not list(queue.glob("journal-*"))
    cluster.vcluster("start", str(cluster.directory)).ok()
    cluster.run("gnt-job", "wait", str(running)).ok()
    assert cluster.rows("gnt-job", "list", "-o", "status", str(running)) == [["success"]]


def test_another_node_refuses_to_be_master(cluster: Cluster, master: str) -> None:
    other = next(name for name in cluster.node_names if name != master)
    cluster.run(
        "env",
        f"GANETI_ROOTDIR={cluster.node_root(other)}",
        f"GANETI_HOSTNAME={other}",
        "ganeti-masterd",
        "--foreground",
    ).failed("is not the master", master, exit_code=11)


def test_both_socket_names(cluster: Cluster, master: str) -> None:
    for which in ("master", "query"):
        done = cluster.run("env", f"FORCE_LUXI_SOCKET={which}", "gnt-cluster", "info")
        assert "cluster.example.com" in done.ok().stdout
    mode = cluster.path(master, "var/run/ganeti/socket/ganeti-query").stat().st_mode
    assert mode & 0o777 == 0o660


def test_every_command_about_jobs(cluster: Cluster, master: str) -> None:
    """By id and by state, on jobs in each state."""
    nodes = cluster.node_names

    def submit(*words: str) -> str:
        done = cluster.run("gnt-debug", "delay", "--submit", "--print-jobid", "--no-master", *words)
        return done.ok().stdout.strip()

    def state(job: str) -> str:
        ((found,),) = cluster.rows("gnt-job", "list", "-o", "status", job)
        return found

    def listed(*options: str) -> set[str]:
        return {row[0] for row in cluster.rows("gnt-job", "list", "-o", "id", *options)}

    client = Luxi(cluster, master)
    failed = str(
        client.call(
            "SubmitJob",
            [{"OP_ID": "OP_TAGS_DEL", "kind": "cluster", "name": None, "tags": ["nowhere"]}],
        )
    )
    running = (
        cluster.run("gnt-debug", "delay", "--submit", "--print-jobid", "3600").ok().stdout.strip()
    )
    holder = submit("-n", nodes[1], "--repeat", "3600", "0.5")
    wait_until(lambda: state(holder) == "running" and state(running) == "running", "they run")
    waiting = submit("-n", nodes[1], "0.1")
    wait_until(lambda: state(waiting) == "waiting", "it waits for the lock")
    queued = str(client.call("SubmitJob", [{**DELAY, "depends": [[int(waiting), []]]}]))
    wait_until(lambda: state(failed) == "error", "it has failed")

    assert listed("--running") >= {running, holder}
    assert listed("--pending") == {waiting, queued}
    assert failed in listed("--error") and not {running, queued} & listed("--error")
    assert failed in listed("--finished") and not {running, queued} & listed("--finished")
    assert listed("--filter", f'id == {running} or status == "waiting"') == {running, waiting}
    assert f"Job ID: {queued}" in cluster.run("gnt-job", "info", queued).ok().stdout

    cluster.run("gnt-job", "change-priority", "--priority", "high", queued).ok()
    cluster.run("gnt-job", "change-priority", "--waiting", "--priority", "low").failed("--force")
    cluster.run("gnt-job", "change-priority", "--waiting", "--priority", "low", "--force").ok()
    assert cluster.rows("gnt-job", "list", "-o", "id,priority", waiting, queued) == [
        [waiting, "10"],
        [queued, "-10"],
    ]
    cluster.run("gnt-job", "change-priority", "--priority", "high", failed).failed("has already")

    # At the next point where it can stop, and it says why it did not go on.
    said = cluster.run("gnt-job", "cancel", running).ok().stdout
    assert f"Job {running} (" in said and f"Job {running} was canceled after " in said
    cluster.run("gnt-job", "wait", running).failed("canceled by request while it was running")
    assert state(running) == "canceled"
    assert (
        "canceled by request while it was running"
        in cluster.run("gnt-job", "info", running).ok().stdout
    )
    cluster.run("gnt-job", "cancel", "--queued", "--force").ok()
    assert state(queued) == "canceled"
    cluster.run("gnt-job", "cancel", "--pending", "--force").ok()
    wait_until(lambda: state(waiting) == "canceled", "it is canceled while it waits")
    cluster.run("gnt-job", "cancel", failed).failed("has already ended (error)")
    cluster.run("gnt-job", "cancel", "--kill", holder).failed("--yes-do-it")
    cluster.run("gnt-job", "watch", failed).failed("does not have the tags", f"job {failed}")

    cluster.run("gnt-job", "archive", holder).failed("Failed to archive")
    cluster.run("gnt-job", "archive", failed, running).ok()
    assert not {failed, running} & listed()
    assert {failed, running} <= listed("--archived")
    assert state(failed) == "error", "an archived job is found by its id"
    archived = cluster.run("gnt-job", "autoarchive", "all").ok().stdout
    assert re.fullmatch(r"Archived \d+ jobs, 0 unchecked left\n", archived), archived
    assert listed("--finished") == set()
    cluster.run("gnt-job", "cancel", holder).ok()
    cluster.run("gnt-job", "wait", holder).failed("canceled by request")


def test_a_message_above_the_limit_is_answered(cluster: Cluster, master: str) -> None:
    client = Luxi(cluster, master)
    client.sock.sendall(b'{"method": "SubmitJob", "args": ["' + b"x" * (33 << 20) + b'"]}\x03')
    answer = client.receive_any()
    assert not answer["success"]
    assert "larger than" in answer["result"]
    assert client.call("QueryConfigValues", ["drain_flag"]) == [False], "the connection lives"


@pytest.mark.long
def test_a_full_queue_refuses_more(cluster: Cluster, master: str) -> None:
    client = Luxi(cluster, master)
    uuid = client.call("ReplaceFilter", None, 0, [["jobid", [">", "id", 0]]], "PAUSE", [])
    refused: list[str] = []
    accepted: list[int] = []
    while not refused:
        answers = client.call("SubmitManyJobs", [[DELAY]] * 500)
        accepted += [job for success, job in answers if success]
        refused += [text for success, text in answers if not success]
    assert len(accepted) <= 5000
    assert set(refused) == {"the job queue is full"}
    cluster.run("gnt-debug", "delay", "0.1").failed("Failure: the job queue is full")
    assert len(cluster.rows("gnt-job", "list", "--pending", "-o", "id")) == len(accepted)
    client.call("ReplaceFilter", uuid, 0, [["jobid", [">", "id", 0]]], "REJECT", [])
    client.call("DeleteFilter", uuid)
    wait_until(
        lambda: cluster.rows("gnt-job", "list", "--pending", "-o", "id") == [],
        "all of them are rejected",
    )
    cluster.run("gnt-debug", "delay", "0.1").ok()
    client.call("AutoArchiveJobs", -1, 60)
