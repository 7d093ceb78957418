"""Filter rules, and the answer to why a job waits, on a real cluster and over its restart."""

from __future__ import annotations

import json
import re
import signal
from typing import Any

import pytest
from harness import PATIENCE_S, Cluster, alive, wait_until

IS_DELAY = '[["opcode", ["=", "OP_ID", "OP_TEST_DELAY"]]]'
LATER = '[["jobid", [">", "id", "watermark"]]]'


@pytest.fixture(autouse=True)
def _clean(cluster: Cluster) -> Any:
    yield
    for (uuid,) in cluster.rows("gnt-filter", "list", "-o", "uuid"):
        cluster.run("gnt-filter", "delete", uuid).ok()
    wait_until(lambda: not unfinished(cluster), "every job has ended")


def unfinished(cluster: Cluster) -> list[str]:
    return [
        row[0]
        for row in cluster.rows("gnt-job", "list", "-o", "id,status")
        if row[1] not in ("success", "error", "canceled")
    ]


def add(cluster: Cluster, *options: str) -> str:
    return cluster.run("gnt-filter", "add", *options).ok().stdout.strip()


def submit(cluster: Cluster, *words: str) -> str:
    """A job that only takes time; its id."""
    done = cluster.run("gnt-debug", "delay", "--submit", "--print-jobid", *words).ok()
    return done.stdout.strip()


def status(cluster: Cluster, job_id: str) -> str:
    ((found,),) = cluster.rows("gnt-job", "list", "-o", "status", job_id)
    return found


def explain(cluster: Cluster, job_id: str) -> dict[str, Any]:
    out = cluster.run("gnt-job", "explain", "--output", "json", job_id).ok().stdout
    (found,) = json.loads(out)
    assert isinstance(found, dict)
    return found


def test_reject(cluster: Cluster) -> None:
    uuid = add(cluster, f"--predicates={IS_DELAY}", "--action=REJECT", "--reason=no tests today")
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", uuid)
    cluster.run("gnt-debug", "delay", "0.1").failed(
        f"Job was canceled: rejected by filter rule {uuid} (no tests today)"
    )
    # Other jobs are none of its business.
    assert "ERROR" not in cluster.run("gnt-cluster", "verify").ok().text
    cluster.run("gnt-filter", "delete", uuid).ok()
    cluster.run("gnt-debug", "delay", "0.1").ok()
    cluster.run("gnt-filter", "delete", uuid).failed(f"filter rule {uuid} does not exist")


def test_first_rule_that_decides(cluster: Cluster) -> None:
    add(cluster, "--priority=2", "--action=REJECT")
    accept = add(cluster, "--priority=1", f"--predicates={IS_DELAY}", "--action=ACCEPT")
    add(cluster, "--priority=0", "--action=CONTINUE")
    assert [row[0] for row in cluster.rows("gnt-filter", "list", "-o", "priority")] == [
        "0",
        "1",
        "2",
    ]
    cluster.run("gnt-debug", "delay", "0.1").ok()
    cluster.run("gnt-filter", "replace", "--priority=3", "--action=ACCEPT", accept).ok()
    cluster.run("gnt-debug", "delay", "0.1").failed("Job was canceled")


def test_pause_from_a_watermark_on_and_over_a_restart(cluster: Cluster) -> None:
    node = cluster.master
    before = submit(cluster, "2")
    uuid = add(cluster, f"--predicates={LATER}", "--action=PAUSE", "--reason=lunch")
    after = submit(cluster, "0.1")
    wait_until(lambda: status(cluster, before) == "success", "the older job has ended")
    assert status(cluster, after) == "queued"
    (reason,) = explain(cluster, after)["reasons"]
    assert (reason["kind"], reason["rule"]) == ("filter", uuid)
    assert "(lunch) pauses it" in cluster.run("gnt-job", "explain", after).ok().stdout

    pid = cluster.kill(node, "ganeti-masterd", signal.SIGKILL)
    wait_until(lambda: not alive(pid), "the master daemon is gone")
    cluster.vcluster("start", str(cluster.directory)).ok()
    assert status(cluster, after) == "queued"
    assert explain(cluster, after)["reasons"][0]["rule"] == uuid
    cluster.run("gnt-job", "cancel", submit(cluster, "0.1")).ok()

    cluster.run("gnt-filter", "delete", uuid).ok()
    wait_until(lambda: status(cluster, after) == "success", "the paused job has run")


def test_rate_limit(cluster: Cluster) -> None:
    add(cluster, f"--predicates={IS_DELAY}", "--action=RATE_LIMIT 2")
    ids = [submit(cluster, "1") for _ in range(6)]
    most = 0

    def over() -> bool:
        nonlocal most
        states = [row[1] for row in cluster.rows("gnt-job", "list", "-o", "id,status", *ids)]
        most = max(most, sum(state in ("waiting", "running") for state in states))
        return set(states) == {"success"}

    wait_until(over, "all six have ended")
    assert most <= 2
    # Two at a time: the third began when one of the first two had ended, and so on.
    rows = json.loads(cluster.run("gnt-job", "info", "--output", "json", *ids).ok().stdout)
    begun = sorted(tuple(row["start_ts"]) for row in rows)
    ended = sorted(tuple(row["end_ts"]) for row in rows)
    assert all(start >= end for start, end in zip(begun[2:], ended, strict=False))


def test_why_a_chain_of_jobs_waits(cluster: Cluster) -> None:
    """The third waits for the end of the second, which waits for a lock of the first."""
    node = cluster.node_names[1]
    holder = submit(cluster, "-n", node, "--no-master", "--repeat", "6000", "0.1")
    wait_until(lambda: status(cluster, holder) == "running", "the first one runs")
    waiter = submit(cluster, "-n", node, "--no-master", "0.1")
    operations = cluster.directory / "third.json"
    operations.write_text(
        json.dumps(
            [{"OP_ID": "OP_TEST_DELAY", "duration": 0.1, "depends": [[int(waiter), ["success"]]]}]
        )
    )
    third_command = cluster.start("gnt-debug", "submit-job", str(operations))
    third = str(int(waiter) + 1)
    wait_until(lambda: third in unfinished(cluster), "the third one is there")
    wait_until(lambda: status(cluster, waiter) == "waiting", "the second one waits")

    found = explain(cluster, third)
    (reason,) = found["reasons"]
    assert (reason["kind"], reason["jobs"]) == ("dependency", [int(waiter)])
    assert [entry["job"]["id"] for entry in found["chain"]] == [int(waiter), int(holder)]
    lock = found["chain"][0]["reasons"][0]
    assert (lock["kind"], lock["name"], lock["jobs"]) == ("lock", f"node/{node}", [int(holder)])
    assert "cluster/BGL" in [held["lock"] for held in explain(cluster, waiter)["holds"]]
    text = cluster.run("gnt-job", "explain", third).ok().stdout
    assert f"  the end of job {waiter} (waiting), as success" in text
    assert f"    waits for lock node/{node} (exclusive), held by job {holder}" in text

    # The same from the other side, and under the published names.
    (row,) = [row for row in cluster.rows("gnt-debug", "locks") if row[2] == holder]
    assert re.fullmatch(r"node/[0-9a-f-]{36}", row[0])
    assert row[1:] == ["exclusive", holder, f"exclusive:{waiter}"]
    top = cluster.run("gnt-job", "top", "--once").ok().stdout
    assert "1 running, 1 waiting, 1 queued; 2 of 20 workers busy" in top
    assert f"lock node/{node} (exclusive), held by job {holder}" in top

    cluster.run("gnt-job", "cancel", holder).ok()
    out, err = third_command.communicate(timeout=PATIENCE_S)
    assert third_command.returncode == 0, out + err
    ends = [status(cluster, job_id) for job_id in (holder, waiter, third)]
    assert ends == ["canceled", "success", "success"]
    cluster.run("gnt-job", "explain", "999999").failed("job 999999 does not exist")


def test_priority_of_a_job_that_is_held_back(cluster: Cluster) -> None:
    uuid = add(cluster, f"--predicates={IS_DELAY}", "--action=RATE_LIMIT 1")
    running, early, late = (submit(cluster, seconds) for seconds in ("600", "0.5", "0.5"))
    cluster.run("gnt-job", "change-priority", "--priority", "high", late).ok()
    assert explain(cluster, late)["reasons"][0]["rule"] == uuid
    cluster.run("gnt-job", "cancel", running).ok()
    wait_until(lambda: status(cluster, early) == "success", "all have ended")
    rows = json.loads(
        cluster.run("gnt-job", "info", "--output", "json", running, early, late).ok().stdout
    )
    started = {row["id"]: tuple(row["start_ts"]) for row in rows}
    assert started[int(running)] < started[int(late)] < started[int(early)]


def test_many_jobs_while_rules_come_and_go(cluster: Cluster) -> None:
    """None is lost, none runs twice, and the list answers meanwhile."""
    operations = cluster.directory / "many.json"
    operations.write_text(
        json.dumps([{"OP_ID": "OP_TEST_DELAY", "duration": 0.01, "comment": "many"}])
    )
    first = int(submit(cluster, "0.1")) + 1
    command = cluster.start("gnt-debug", "submit-job", "--job-repeat", "300", str(operations))
    while command.poll() is None:
        uuid = add(cluster, f"--predicates={IS_DELAY}", "--action=RATE_LIMIT 3")
        cluster.run("gnt-job", "top", "--once").ok()
        cluster.run("gnt-filter", "replace", "--action=PAUSE", uuid).ok()
        cluster.run("gnt-filter", "delete", uuid).ok()
    out, err = command.communicate(timeout=PATIENCE_S)
    assert command.returncode == 0, out + err
    rows = cluster.rows("gnt-job", "list", "-o", "id,status")
    ended = [row[1] for row in rows if int(row[0]) >= first]
    assert ended == ["success"] * 300
