"""The copies of the job queue on the other master candidates, over deaths and new starts."""

from __future__ import annotations

import json
import shutil
from typing import Any

import pytest
from harness import Cluster, wait_until
from luxi_client import Luxi

DELAY = {"OP_ID": "OP_TEST_DELAY", "duration": 0.0, "on_master": False}


@pytest.fixture(scope="module")
def master(cluster: Cluster) -> str:
    return cluster.master


@pytest.fixture(scope="module")
def copy(cluster: Cluster, master: str) -> str:
    """A candidate which is not the master."""
    return next(name for name in cluster.node_names if name != master)


def files(cluster: Cluster, node: str) -> dict[str, str]:
    queue = cluster.path(node, "var/lib/ganeti/queue")
    return {
        str(path.relative_to(queue)): path.read_text()
        for path in queue.rglob("*")
        if path.is_file()
        and (path.name.startswith("job-") or path.name in ("serial", "version", "drain"))
    }


def run_jobs(cluster: Cluster, master: str, count: int) -> list[int]:
    luxi = Luxi(cluster, master)
    ids = [job_id for _, job_id in luxi.call("SubmitManyJobs", [[DELAY]] * count)]
    for job_id in ids:
        info: Any = None
        while info != ["success"]:
            answer = luxi.call("WaitForJobChange", job_id, ["status"], info, None, 60)
            info = info if answer == "nochange" else answer[0]
    luxi.close()
    return ids


def verify(cluster: Cluster) -> str:
    return cluster.run("gnt-cluster", "verify").text


def test_a_candidate_whose_node_daemon_was_dead_while_jobs_ran(
    cluster: Cluster, master: str, copy: str
) -> None:
    archived = run_jobs(cluster, master, 3)
    wait_until(lambda: files(cluster, copy) == files(cluster, master), "both are the same")
    cluster.kill_whole(copy, "ganeti-noded")
    run_jobs(cluster, master, 20)
    cluster.run("gnt-job", "archive", str(archived[0])).ok()
    cluster.run("gnt-cluster", "queue", "drain").ok()
    assert files(cluster, copy) != files(cluster, master)
    cluster.on(copy, "ganeti-noded").ok()
    wait_until(lambda: files(cluster, copy) == files(cluster, master), "it has what it missed")
    cluster.run("gnt-cluster", "queue", "undrain").ok()
    wait_until(lambda: files(cluster, copy) == files(cluster, master), "also the drain flag")
    assert "ERROR" not in verify(cluster)


def test_the_master_daemon_was_killed_meanwhile(cluster: Cluster, master: str, copy: str) -> None:
    """The new one knows nothing of what the old one had still to send."""
    archived = run_jobs(cluster, master, 3)
    cluster.kill_whole(copy, "ganeti-noded")
    run_jobs(cluster, master, 20)
    cluster.run("gnt-job", "archive", str(archived[0])).ok()
    cluster.kill_whole(master, "ganeti-masterd")
    cluster.on(master, "ganeti-masterd").ok()
    run_jobs(cluster, master, 3)
    assert files(cluster, copy) != files(cluster, master)
    cluster.on(copy, "ganeti-noded").ok()
    wait_until(lambda: files(cluster, copy) == files(cluster, master), "it has what it missed")


def test_verify_finds_a_copy_that_differs_and_redist_conf_mends_it(
    cluster: Cluster, master: str, copy: str
) -> None:
    first, second, third = run_jobs(cluster, master, 3)
    wait_until(lambda: files(cluster, copy) == files(cluster, master), "both are the same")
    queue = cluster.path(copy, "var/lib/ganeti/queue")
    (queue / f"job-{first}").unlink()
    (queue / f"job-{second}").write_text("{}")
    shutil.copy(queue / f"job-{third}", queue / "job-999999")
    said = verify(cluster)
    assert f"ERROR: node {copy}: its copy of the job queue differs in job-{first}, " in said
    assert f"job-{second}" in said and "job-999999" in said and f"job-{third}," not in said
    cluster.run("gnt-cluster", "redist-conf").ok()
    wait_until(lambda: files(cluster, copy) == files(cluster, master), "it was brought up to date")
    assert "ERROR" not in verify(cluster)


def test_a_copy_on_a_new_disk_and_a_new_master(cluster: Cluster, master: str, copy: str) -> None:
    """Everything is sent anew, the archive, too; then the role moves there."""
    ids = run_jobs(cluster, master, 12)
    cluster.run("gnt-job", "archive", *map(str, ids[:4])).ok()
    cluster.kill_whole(copy, "ganeti-noded")
    shutil.rmtree(cluster.path(copy, "var/lib/ganeti/queue"))
    cluster.on(copy, "ganeti-noded").ok()
    run_jobs(cluster, master, 1)
    wait_until(lambda: files(cluster, copy) == files(cluster, master), "it has all of it")
    before = files(cluster, copy)
    assert f"archive/0/job-{ids[0]}" in before
    cluster.on(copy, "gnt-cluster", "master-failover").ok()
    rows = Luxi(cluster, copy).call("QueryJobs", [ids[0], ids[-1]], ["id", "status", "archived"])
    assert rows == [[ids[0], "success", True], [ids[-1], "success", False]]
    after = files(cluster, copy)
    changed = [name for name, text in before.items() if after.get(name) != text]
    assert set(changed) <= {"serial"}, "a job changed with the master"
    assert json.loads(after[f"job-{ids[-1]}"])["id"] == ids[-1]
