"""Whole runs of ``burnin`` against a simulated cluster."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from fakes.burnin_cluster import NODES, Burnin, BurninCluster
from ganeti import errors
from ganeti.burnin import cluster as questions
from ganeti.burnin import steps
from ganeti.platform import paths

ONE, TWO = "one.example.com", "two.example.com"
BASE = ("-o", "debian")


def report_of(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def results(report: dict[str, Any]) -> dict[str, str]:
    return {step["name"]: step["result"] for step in report["steps"]}


def test_all_steps_of_mirrored_instances(
    cluster: BurninCluster, burnin: Burnin, tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    ended = burnin(*BASE, "-p", "--report", str(report), ONE, TWO)
    assert ended.code == 0, ended.out
    written = report_of(report)
    skipped = {name for name, result in results(written).items() if result == "skipped"}
    assert skipped == {"move", "rename"}
    assert list(results(written)) == ["create", *steps.NAMES, "remove"]
    assert written["result"] == "done" and written["left"] == [] and not cluster.names()
    assert not cluster.exports
    assert "All 21 steps were carried out" in ended.out
    for op_id in ("MIGRATE", "FAILOVER", "REINSTALL", "CHANGE_GROUP", "RENAME"):
        assert set(cluster.done(f"INSTANCE_{op_id}")) == {ONE, TWO}
    assert len(cluster.done("INSTANCE_REBOOT")) == 6
    # The jobs which another job submits are awaited and recorded, too.
    (evacuate,) = (step for step in written["steps"] if step["name"] == "evacuate")
    assert len(evacuate["jobs"]) == 2 * len(set(cluster.done("NODE_EVACUATE"))) > 0
    assert all(job["seconds"] is not None for job in evacuate["jobs"])


def test_an_instance_without_replica_moves_and_is_renamed(
    cluster: BurninCluster, burnin: Burnin
) -> None:
    ended = burnin(*BASE, "-t", "plain", "--rename", TWO, "-n", f"{NODES[0]},{NODES[1]}", ONE)
    assert ended.code == 0, ended.out
    assert "Migrating: skipped, because disks of template plain are on one node only" in ended.out
    assert cluster.done("INSTANCE_MOVE") == [ONE]
    assert cluster.done("INSTANCE_RENAME") == [ONE, ONE, TWO]
    assert not cluster.names()


def test_in_series_each_job_waits_for_the_one_before(
    cluster: BurninCluster, burnin: Burnin
) -> None:
    burnin(*BASE, "--steps", "startstop", ONE, TWO)
    submissions = [
        args[0] for method, args in cluster.master.requests if method == "SubmitManyJobs"
    ]
    assert all(len(jobs) == 1 for jobs in submissions)
    cluster.master.requests.clear()
    burnin(*BASE, "-p", "--steps", "startstop", ONE, TWO)
    submissions = [
        args[0] for method, args in cluster.master.requests if method == "SubmitManyJobs"
    ]
    assert all(len(jobs) == 2 for jobs in submissions)


def test_each_job_says_which_step_submitted_it(cluster: BurninCluster, burnin: Burnin) -> None:
    burnin(*BASE, "--steps", "tags", ONE)
    reasons = {tuple(op["reason"][0][:2]) for op in cluster.master.opcodes()}
    assert reasons == {("gnt:client:burnin", step) for step in ("create", "tags", "remove")}


def test_a_failed_step_ends_the_run_and_the_instances_are_removed(
    cluster: BurninCluster, burnin: Burnin, tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    problem = errors.OpPrereqError("not enough memory", errors.ECODE_NORES)
    cluster.master.results["OP_INSTANCE_MIGRATE"] = problem
    ended = burnin(*BASE, "--report", str(report), ONE, TWO)
    assert ended.code == 1
    assert f"Step 'migrate' failed: {ONE}: not enough memory" in ended.out
    written = report_of(report)
    assert list(results(written))[-2:] == ["migrate", "remove"]
    assert written["result"] == "failed" and not cluster.names()
    # In series the second instance does not have its turn any more.
    (migrate,) = (step for step in written["steps"] if step["name"] == "migrate")
    assert [job["error"] for job in migrate["jobs"]] == ["not enough memory"]


def test_a_job_that_failed_is_submitted_again(cluster: BurninCluster, burnin: Burnin) -> None:
    works = cluster.master.results["OP_INSTANCE_FAILOVER"]

    def fail_once(_op: dict[str, Any]) -> Exception:
        cluster.master.results["OP_INSTANCE_FAILOVER"] = works
        return errors.OpExecError("the peer does not answer")

    cluster.master.results["OP_INSTANCE_FAILOVER"] = fail_once
    ended = burnin(*BASE, "--retries", "1", "--steps", "failover", ONE)
    assert ended.code == 0, ended.out
    assert "attempt 1 failed: the peer does not answer" in ended.out
    cluster.master.results["OP_INSTANCE_FAILOVER"] = fail_once
    assert burnin(*BASE, "--steps", "failover", ONE).code == 1


def test_a_job_which_cannot_begin_in_the_middle_is_not_repeated(
    cluster: BurninCluster, burnin: Burnin
) -> None:
    cluster.master.results["OP_INSTANCE_SET_PARAMS"] = errors.OpExecError("no space")
    burnin(*BASE, "--retries", "3", "--steps", "add-disks", ONE)
    jobs = [job for job in cluster.master.jobs.values() if len(job.ops) == 6]
    assert len(jobs) == 1


def test_a_job_which_the_queue_refuses(cluster: BurninCluster, burnin: Burnin) -> None:
    cluster.master.submit_errors[0] = "the queue is full"
    ended = burnin(*BASE, ONE)
    assert ended.code == 1
    assert f"Step 'create' failed: {ONE}: the queue is full" in ended.out


@pytest.mark.parametrize(
    "op_id, problem",
    [
        ("INSTANCE_FAILOVER", f"{ONE} is still on {NODES[0]}"),
        ("INSTANCE_MIGRATE", f"{ONE} is still on {NODES[0]}"),
        ("INSTANCE_REPLACE_DISKS", f"{ONE} still has the secondary node {NODES[1]}"),
        ("TAGS_SET", f"{ONE} has the tags []"),
        ("INSTANCE_STARTUP", f"{ONE} does not run on {NODES[0]}"),
        ("INSTANCE_SHUTDOWN", f"{ONE} still runs on {NODES[0]}"),
    ],
)
def test_an_operation_that_does_nothing_is_noticed(
    cluster: BurninCluster, burnin: Burnin, op_id: str, problem: str
) -> None:
    cluster.master.results[f"OP_{op_id}"] = lambda _op: None
    step = {
        "INSTANCE_FAILOVER": "failover",
        "INSTANCE_MIGRATE": "migrate",
        "INSTANCE_REPLACE_DISKS": "replace2",
        "TAGS_SET": "tags",
    }.get(op_id, "startstop")
    ended = burnin(*BASE, "--steps", step, ONE)
    assert ended.code == 1
    assert problem in ended.out


def test_an_incomplete_export_keeps_the_instance(cluster: BurninCluster, burnin: Burnin) -> None:
    cluster.master.results["OP_BACKUP_EXPORT"] = lambda _op: [True, [False]]
    ended = burnin(*BASE, "-K", "--steps", "importexport", ONE)
    assert ended.code == 1
    assert f"the export of {ONE} is not complete" in ended.out
    assert cluster.done("INSTANCE_REMOVE") == []


def test_an_import_keeps_the_sizes_of_the_disks_and_the_hardware_addresses(
    cluster: BurninCluster, burnin: Burnin
) -> None:
    assert burnin(*BASE, "-K", "--steps", "grow,importexport", ONE).code == 0
    assert cluster.done("INSTANCE_CREATE") == [ONE, ONE]
    row = cluster.instance(ONE)
    assert (row["disk.sizes"], row["nic.macs"]) == ([1024 + 128], ["aa:00:00:00:00:01"])


def test_what_exists_is_not_touched(cluster: BurninCluster, burnin: Burnin) -> None:
    cluster.add(ONE)
    ended = burnin(*BASE, ONE, TWO)
    assert ended.code == 1 and f"exist already: {ONE}." in ended.err
    cluster.exports[TWO] = NODES[0]
    ended = burnin(*BASE, "--rename", TWO, "three.example.com")
    assert ended.code == 1 and f"exports with these names: {TWO}." in ended.err
    assert not cluster.master.jobs


def test_nodes_with_instances_of_others_are_not_evacuated(
    cluster: BurninCluster, burnin: Burnin
) -> None:
    cluster.add("other.example.com", NODES[1])
    ended = burnin(*BASE, "--steps", "evacuate", ONE, TWO)
    assert ended.code == 0, ended.out
    # The secondary nodes are the second and the third one.
    assert cluster.done("NODE_EVACUATE") == [NODES[2]]
    cluster.add("another.example.com", NODES[2])
    ended = burnin(*BASE, "--steps", "evacuate", ONE, TWO)
    assert "Evacuating nodes: skipped, because each node has instances of others" in ended.out


@pytest.mark.parametrize(
    "words, changed, problem",
    [
        (("-H", "kvm"), {}, "hypervisor kvm is not enabled"),
        (("-t", "file"), {}, "disk template file is not enabled"),
        (("-n", NODES[0]), {}, "disk template drbd needs two nodes"),
    ],
)
def test_what_the_cluster_cannot_do_is_said_first(
    cluster: BurninCluster,
    burnin: Burnin,
    words: tuple[str, ...],
    changed: dict[str, Any],
    problem: str,
) -> None:
    cluster.master.cluster_info.update(changed)
    ended = burnin(*BASE, *words, ONE)
    assert ended.code == 1 and problem in ended.err
    assert not cluster.master.jobs


def test_without_a_master_the_user_is_told_where_to_go(here: paths.Paths, burnin: Burnin) -> None:
    Path(here.ssconf_file("master_node")).write_text(f"{NODES[1]}\n", encoding="utf-8")
    ended = burnin(*BASE, ONE)
    assert ended.code == 11 and NODES[1] in ended.err


def test_an_interrupt_ends_the_jobs_and_removes_the_instances(
    cluster: BurninCluster, burnin: Burnin, tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    cluster.master.results["OP_INSTANCE_MIGRATE"] = lambda _op: os.kill(os.getpid(), signal.SIGINT)
    ended = burnin(*BASE, "--report", str(report), ONE, TWO)
    assert ended.code == 130, ended.out
    written = report_of(report)
    assert written["result"] == "interrupted" and written["left"] == [] and not cluster.names()
    assert results(written)["migrate"] == "interrupted"


def test_instances_which_are_left_are_named(
    cluster: BurninCluster, burnin: Burnin, tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    cluster.master.results["OP_INSTANCE_REMOVE"] = errors.OpExecError("the disk is busy")
    ended = burnin(*BASE, "--report", str(report), "--steps", "tags", ONE)
    assert ended.code == 1
    assert f"Remove them with 'gnt-instance remove --force {ONE}'" in ended.out
    assert report_of(report)["left"] == [ONE]
    # The second attempt tolerates failures.
    flags = [
        op["ignore_failures"]
        for op in cluster.master.opcodes()
        if op["OP_ID"] == "OP_INSTANCE_REMOVE"
    ]
    assert flags == [False, True]


def test_kept_instances(cluster: BurninCluster, burnin: Burnin) -> None:
    ended = burnin(*BASE, "-K", "--steps", "tags", ONE)
    assert ended.code == 0 and f"These instances were kept: {ONE}." in ended.out
    assert cluster.names() == [ONE]


def test_the_report_alone_is_on_standard_output(cluster: BurninCluster, burnin: Burnin) -> None:
    ended = burnin(*BASE, "--steps", "tags", "--report", "-", ONE)
    assert json.loads(ended.out)["result"] == "done"
    assert "Adding and removing tags" in ended.err


def test_a_report_which_cannot_be_written(cluster: BurninCluster, burnin: Burnin) -> None:
    ended = burnin(*BASE, "--steps", "tags", "--report", "/nonexistent/report", ONE)
    assert ended.code == 1 and "cannot write /nonexistent/report" in ended.err


def test_guests_are_asked_for_their_names(
    cluster: BurninCluster, burnin: Burnin, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = {ONE: ONE, TWO: "somebody else"}
    monkeypatch.setattr(
        questions,
        "_http_get",
        lambda address, _path: answers[address],
    )
    assert burnin(*BASE, "-C", "--steps", "tags", ONE).code == 0
    ended = burnin(*BASE, "-C", "--net-timeout", "1", "--steps", "tags", TWO)
    assert ended.code == 1
    assert f"{TWO}: the guest says that its name is 'somebody else'" in ended.out
