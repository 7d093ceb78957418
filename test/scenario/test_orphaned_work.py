"""Work of a dead job goes on: nobody else touches the instance until it is over."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import PATIENCE_S, Cluster, alive, made, wait_until
from held_install import NAME, HeldInstall

NODED = "ganeti-noded"
OPTIONS = ("--hypervisor", "fake")


class Lab(HeldInstall):
    """It begins jobs which are held."""

    def begin(self) -> str:
        """Reinstall, up to the middle of the script; returns the job."""
        before = len(self.lines())
        self.hold.touch()
        job = self.submit("reinstall", "-f")
        wait_until(lambda: len(self.lines()) > before, "the script runs")
        return job

    def submit(self, command: str, *options: str) -> str:
        words = ("gnt-instance", command, "--submit", "--print-jobid", *options, NAME)
        return self.cluster.run(*words).ok().stdout.split(":")[0].strip()

    def submit_and_wait(self, owner: str, *words: str) -> str:
        """Submit a job, and wait until it waits for a lock of this owner."""
        job = self.submit(*words)
        wait_until(
            lambda: owner in self.cluster.run("gnt-job", "explain", job).text, f"job {job} waits"
        )
        return job

    def status(self, job: str) -> str:
        return self.cluster.rows("gnt-job", "list", "-o", "status", job)[0][0]

    def locks(self) -> str:
        return self.cluster.run("gnt-debug", "locks", "-o", "name,mode,owner,pending").ok().stdout

    def verify(self, text: str) -> str:
        """Verify the cluster until it prints a text; its groups are still locked then."""
        printed = self.log.with_name("verified")
        printed.touch()
        command = f"exec gnt-cluster verify --error-codes > {printed} 2>&1"
        self.cluster.start("sh", "-c", command)
        wait_until(lambda: text in printed.read_text(), f"verify says {text!r}")
        return printed.read_text()

    def require_kept(self, job: str) -> None:
        """Others wait for the script of a job, and are told so; they go on when it is over."""
        begun = len(self.lines())
        owner = f"work of job {job} on {self.node} for instance {NAME}"
        others = [
            self.submit_and_wait(owner, *words)
            for words in (
                ("reinstall", "-f"),
                ("startup",),
                ("remove", "-f", "--shutdown-timeout=0"),
            )
        ]
        assert owner in self.locks()
        said = self.verify(
            f"work of job {job} for instance {NAME}, which has ended: script 'create'"
        )
        assert self.node in said
        assert [self.status(other) for other in others] == ["waiting"] * 3
        assert len(self.lines()) == begun, "two scripts at once"
        self.hold.unlink()
        for other in others:
            self.cluster.run("gnt-job", "wait", other)
            assert self.status(other) == "success", self.cluster.run("gnt-job", "info", other).text
        assert self.lines()[begun:] == ["end", "begin 1", "end"]
        assert owner not in self.locks()


@pytest.fixture
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lab]:
    """A cluster which is shared; the long tests, which lose nodes or the master, have their own."""
    with contextlib.ExitStack() as stack:
        if request.node.get_closest_marker("long") is None:
            cluster: Cluster = request.getfixturevalue("cluster")
        else:
            short = stack.enter_context(tempfile.TemporaryDirectory(prefix="gnt-"))
            cluster = stack.enter_context(made(Cluster(Path(short) / "vc", 3, *OPTIONS)))
        try:
            yield Lab(cluster, tmp_path)
        finally:
            (tmp_path / "hold").unlink(missing_ok=True)
        for (name,) in cluster.rows("gnt-instance", "list", "-o", "name"):
            cluster.run("gnt-instance", "remove", "-f", "--shutdown-timeout=0", name)


def test_the_master_daemon_is_killed(lab: Lab) -> None:
    job = lab.begin()
    lab.cluster.kill_with_jobs(lab.cluster.master)
    lab.cluster.vcluster("start", str(lab.cluster.directory)).ok()
    assert lab.status(job) == "error"
    lab.require_kept(job)
    assert lab.cluster.run("gnt-cluster", "verify").ok()


@pytest.mark.long
def test_another_node_becomes_master(lab: Lab) -> None:
    job = lab.begin()
    first, second = lab.cluster.node_names[:2]
    lab.cluster.kill_with_jobs(first)
    lab.cluster.on(second, "gnt-cluster", "master-failover").ok()
    wait_until(lambda: lab.cluster.run("gnt-job", "list").exit_code == 0, "the new master serves")
    assert lab.status(job) == "error"
    lab.require_kept(job)


def test_the_connection_to_the_node_breaks(lab: Lab) -> None:
    """The job does not end before the script does, although its result is not known."""
    job = lab.begin()
    lab.cluster.kill_whole(lab.node, NODED)
    lab.cluster.vcluster("start", str(lab.cluster.directory)).ok()
    other = lab.submit("startup")
    wait_until(lambda: lab.status(other) == "waiting", f"job {other} waits")
    wait_until(
        lambda: (
            "the script 'create' of the OS was lost" in lab.cluster.run("gnt-job", "info", job).text
        ),
        "the job says what it waits for",
    )
    assert lab.status(job) == "running"
    lab.hold.unlink()
    lab.cluster.run("gnt-job", "wait", job)
    assert lab.status(job) == "error"
    assert lab.lines()[-2:] == ["begin 1", "end"]
    lab.cluster.run("gnt-job", "wait", other)
    assert lab.status(other) == "success"


@pytest.mark.long
def test_a_node_does_not_answer_any_more(lab: Lab) -> None:
    """The job ends in the end; the instance stays locked until the node answers again."""
    job = lab.begin()
    lab.cluster.kill_whole(lab.node, NODED)
    wait_until(
        lambda: lab.status(job) == "error", "the job gives up", patience_s=max(PATIENCE_S, 120)
    )
    other = lab.submit("reinstall", "-f")
    owner = f"work of job {job} on {lab.node} for instance {NAME}"
    wait_until(
        lambda: owner in lab.cluster.run("gnt-job", "explain", other).text, "it is explained"
    )
    lab.cluster.vcluster("start", str(lab.cluster.directory)).ok()
    begun = len(lab.lines())
    lab.verify("script 'create' of the OS")
    assert lab.status(other) == "waiting"
    assert len(lab.lines()) == begun
    lab.hold.unlink()
    lab.cluster.run("gnt-job", "wait", other)
    assert lab.lines()[begun:] == ["end", "begin 1", "end"]


@pytest.mark.long
def test_transfers_of_a_dead_job_are_ended(lab: Lab) -> None:
    """Nobody would use what they send; the instance is free when their last process has ended."""
    cluster = lab.cluster
    script = cluster.path(lab.node, "srv/ganeti/os/slow/export")
    script.write_text(f"#!/bin/sh\necho $$ >> {lab.log}\nexec sleep 1000\n")
    script.chmod(0o755)
    target = cluster.node_names[1]
    cluster.start("gnt-backup", "export", "-n", target, "--noshutdown", "--long-sleep", NAME)
    begun = len(lab.lines())
    wait_until(lambda: len(lab.lines()) > begun, "the script runs")
    sender = int(lab.lines()[-1])
    cluster.kill_with_jobs(cluster.master)
    assert alive(sender)
    cluster.vcluster("start", str(cluster.directory)).ok()
    wait_until(lambda: not alive(sender), "the script is ended")
    wait_until(lambda: "work of" not in lab.locks(), "the instance is free")
    for node in (lab.node, target):
        assert list(cluster.path(node, "var/run/ganeti/import-export").iterdir()) == []
    cluster.run("gnt-instance", "startup", NAME).ok()


def test_an_interrupted_migration_is_cleaned_up(lab: Lab) -> None:
    """The master dies in the middle of a migration; the next one completes it or takes it back."""
    cluster, name = lab.cluster, "web2.example.com"
    first, second = cluster.node_names[:2]
    cluster.run(
        *("gnt-instance", "add", "-t", "sharedfile", "-o", "slow", "-n", second, "-s", "64M"),
        *("--no-name-check", "--no-ip-check", name),
    ).ok()
    hooks = cluster.path(first, "etc/ganeti/hooks/instance-migrate-pre.d")
    hooks.mkdir(parents=True)
    script = hooks / "hold"
    script.write_text(
        f"#!/bin/sh\necho hook >> {lab.log}\nwhile [ -e {lab.hold} ]; do sleep 0.05; done\n"
    )
    script.chmod(0o755)
    lab.hold.touch()
    words = ("gnt-instance", "migrate", "-f", "--submit", "--print-jobid", "-n", first, name)
    job = cluster.run(*words).ok().stdout.split(":")[0].strip()
    wait_until(lambda: lab.lines()[-1:] == ["hook"], "the hook runs")
    cluster.kill_with_jobs(first)
    cluster.vcluster("start", str(cluster.directory)).ok()
    assert lab.status(job) == "error"
    assert f"work of job {job}" in lab.locks()
    clean_up, summary = cluster.rows("gnt-job", "list", "-o", "id,summary")[-1]
    assert summary == f"INSTANCE_MIGRATE({name})"
    wait_until(lambda: lab.status(clean_up) == "waiting", "the clean-up waits for the instance")
    lab.hold.unlink()
    cluster.run("gnt-job", "wait", clean_up)
    assert lab.status(clean_up) == "success", cluster.run("gnt-job", "info", clean_up).text
    assert cluster.rows("gnt-instance", "list", "-o", "status,pnode", name) == [["running", second]]
    wait_until(lambda: "work of" not in lab.locks(), "nothing is locked")
    shutil.rmtree(hooks)


@pytest.mark.long
def test_a_node_which_is_marked_as_offline_is_not_waited_for(lab: Lab) -> None:
    job = lab.begin()
    lab.cluster.kill_whole(lab.node, NODED)
    lab.cluster.kill_with_jobs(lab.cluster.master)
    lab.cluster.on(lab.cluster.master, "ganeti-masterd").ok()
    owner = f"work of job {job} on {lab.node} for instance {NAME}"
    wait_until(lambda: owner in lab.locks(), "the lock is kept")
    lab.verify("gnt-node modify --offline=yes")
    lab.cluster.run("gnt-node", "modify", "--offline=yes", lab.node).ok()
    wait_until(lambda: owner not in lab.locks(), "the lock is free")
