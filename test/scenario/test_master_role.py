"""The master's role under faults: whatever happens, nobody obeys two masters and nothing
acknowledged is lost.

After each fault :meth:`Lab.settled` looks at all nodes: one master, whose epoch everybody knows;
the same whole configuration on all candidates; and every change that was acknowledged is in it.
``make check-long`` runs the tests which are marked ``long``.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import PATIENCE_S, alive, wait_until
from role_lab import INSTANCE, MASTERD, NODED, Lab, fill, make_lab, present, small_disk


@pytest.fixture(scope="module")
def three() -> Iterator[Lab]:
    yield from make_lab(3)


@pytest.fixture(autouse=True)
def whole_network(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    for name in ("three", "five"):
        if name in request.fixturenames:
            request.getfixturevalue(name).cluster.cut()


def test_dry_run_and_refusals(three: Lab) -> None:
    master, (other, _) = present(three)
    before = three.epoch(master)
    shown = three.cluster.on(other, "gnt-cluster", "master-failover", "--dry-run").ok().stdout
    assert f"{other} may become the master in place of {master}" in shown
    assert shown.count("answers") == 3
    three.cluster.on(master, "gnt-cluster", "master-failover").failed("runs on this node")
    three.cluster.cut([other], [node for node in three.nodes if node != other])
    three.cluster.on(other, "gnt-cluster", "master-failover", "--dry-run").failed(
        "may not become", "only 1 of 3 nodes answer"
    )
    three.cluster.on(other, "gnt-cluster", "master-failover").failed("only 1 of 3 nodes answer")
    three.cluster.cut()
    assert three.epoch(master) == before
    three.settled(master)


def test_failover(three: Lab) -> None:
    """The old master is stopped; the new one works at once."""
    master, (new, _) = present(three)
    assert three.change(master)
    three.failover(new)
    assert three.cluster.on(master, "gnt-cluster", "master-ping").exit_code == 1
    three.cluster.on(new, "gnt-cluster", "master-ping").ok()
    three.settled(new)


def test_failover_from_a_dead_master(three: Lab) -> None:
    """A job that was running has failed, with the reason."""
    master, (new, _) = present(three)
    job = (
        three.cluster.on(master, "gnt-debug", "delay", "--submit", "--print-jobid", "600")
        .ok()
        .stdout.strip()
    )
    wait_until(
        lambda: (
            "running"
            in three.cluster.on(
                master, "gnt-job", "list", "--no-headers", "-o", "status", job
            ).stdout
        ),
        "the job runs",
    )
    pid = three.cluster.kill(master, MASTERD, signal.SIGKILL)
    wait_until(lambda: not alive(pid), "the old master is gone")
    three.failover(new)
    assert (
        three.cluster.on(new, "gnt-job", "list", "--no-headers", "-o", "status", job)
        .ok()
        .stdout.strip()
        == "error"
    )
    assert "master daemon ended" in three.cluster.on(new, "gnt-job", "info", job).ok().stdout
    three.settled(new)


def test_jobs_which_only_the_dead_master_has_are_fetched(three: Lab) -> None:
    """Its master daemon is killed and stays away; its node daemon answers."""
    old, (new, third) = present(three)
    three.cluster.cut([old], [new, third])
    job = (
        three.cluster.on(old, "gnt-debug", "delay", "--submit", "--print-jobid", "0")
        .ok()
        .stdout.strip()
    )
    three.cluster.on(old, "gnt-job", "wait", job).ok()
    pid = three.cluster.kill(old, MASTERD, signal.SIGKILL)
    wait_until(lambda: not alive(pid), "the old master is gone")
    three.cluster.cut()
    assert not three.file(new, f"queue/job-{job}").exists()
    shown = three.cluster.on(new, "gnt-cluster", "master-failover", "--dry-run").ok().stdout
    assert f"{old} has newer jobs, which would be fetched" in shown
    three.failover(new)
    assert (
        three.cluster.on(new, "gnt-job", "list", "--no-headers", "-o", "status", job)
        .ok()
        .stdout.strip()
        == "success"
    )
    three.settled(new)


def test_stale_master_returns(three: Lab) -> None:
    """A master is cut off, another takes over; the old one works on for nobody and then ends."""
    old, (new, third) = present(three)
    three.cluster.cut([old], [new, third])
    assert not three.change(old), "acknowledged without a majority"
    three.failover(new)
    assert three.change(new)
    assert not three.change(old), "acknowledged without a majority"
    pid = three.cluster.pid(old, MASTERD)
    three.cluster.cut()
    wait_until(lambda: not alive(pid), "the old master has ended")
    assert "another master has taken over" in three.log(old)
    three.cluster.on(old, "ganeti-masterd").failed(new, exit_code=11)
    three.settled(new)


def test_paused_master_goes_on(three: Lab) -> None:
    """Paused longer than the failover takes, and unreachable: it ends before it does anything."""
    old, (new, third) = present(three)
    pid = three.cluster.kill(old, MASTERD, signal.SIGSTOP)
    waiting = three.cluster.start_on(old, "gnt-debug", "delay", "--submit", "0.1")
    three.cluster.cut([old], [new, third])
    three.failover(new)
    assert three.change(new)
    three.cluster.cut()
    wait_until(lambda: three.epoch(old) == three.epoch(new), "the old node heard of the new master")
    os.kill(pid, signal.SIGCONT)
    out, err = waiting.communicate(timeout=PATIENCE_S)
    assert waiting.returncode != 0, out + err
    wait_until(lambda: not alive(pid), "the old master has ended")
    three.settled(new)


def test_paused_master_is_stopped(three: Lab) -> None:
    """Reachable: the failover ends it, without waiting for it."""
    old, (new, _) = present(three)
    pid = three.cluster.kill(old, MASTERD, signal.SIGSTOP)
    three.failover(new)
    assert not alive(pid)
    three.settled(new)


def test_partition_during_failover(three: Lab) -> None:
    """The network breaks at any moment of a failover; done once more, it succeeds."""
    old, (new, third) = present(three)
    for pause_s in (0.15, 0.3, 0.45, 0.6):
        running = three.cluster.start_on(new, "gnt-cluster", "master-failover")
        time.sleep(pause_s)  # the moment is the test's input, any outcome is checked
        three.cluster.cut([new], [old, third])
        out, err = running.communicate(timeout=PATIENCE_S)
        assert "Traceback" not in out + err
        three.cluster.cut()
        if running.returncode == 0:
            break
    if not three.masters():
        three.failover(new)
    masters = three.masters()
    if len(masters) > 1:
        wait_until(lambda: len(three.masters()) == 1, "one master remains")
    (master,) = three.masters()
    three.settled(master)


def test_candidate_lost_during_commits(three: Lab) -> None:
    """A minority is killed while changes are made; they go on, and all have them later."""
    master, (other, _) = present(three)
    running = three.cluster.start_on(
        master,
        "sh",
        "-c",
        f"for i in 1 2 3 4 5 6; do gnt-instance add-tags {INSTANCE} during$i && echo done$i; done",
    )
    pid = three.cluster.kill(other, NODED, signal.SIGKILL)
    wait_until(lambda: not alive(pid), "the node daemon is gone")
    out, err = running.communicate(timeout=PATIENCE_S)
    three.tags += [f"during{number}" for number in range(1, 7) if f"done{number}" in out]
    assert len([tag for tag in three.tags if tag.startswith("during")]) == 6, out + err
    three.cluster.on(other, "daemon-util", "start", NODED).ok()
    three.settled(master)


def test_two_failovers_at_once(three: Lab) -> None:
    """At most one wins; afterwards there is one master, or one can be made."""
    _, others = present(three)
    running = [three.cluster.start_on(node, "gnt-cluster", "master-failover") for node in others]
    for process in running:
        out, err = process.communicate(timeout=PATIENCE_S)
        assert "Traceback" not in out + err
    if len(three.masters()) > 1:
        wait_until(lambda: len(three.masters()) == 1, "one master remains")
    if not three.masters():
        for node in others:
            if three.cluster.on(node, "gnt-cluster", "master-failover").exit_code == 0:
                break
    (master,) = three.masters()
    three.settled(master)


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small file system")
def test_full_disk_on_a_candidate(three: Lab) -> None:
    """The others are enough; it does not become master with what it has, and catches up later."""
    master, (full, _) = present(three)
    data = three.cluster.path(full, "var/lib/ganeti")
    # Else the node daemon would go on with a journal that lies below the other file system.
    wait_until(lambda: not list((data / "queue").glob("journal-*")), "its queue is put away")
    with small_disk(data) as filler:
        fill(filler)
        for _ in range(3):
            assert three.change(master)
        three.cluster.on(full, "gnt-cluster", "master-failover").failed("No space left on device")
        assert three.change(master), "the old master was stopped"
        filler.unlink()
        three.settled(master)
    three.settled(master)


@pytest.mark.long
def test_power_loss(three: Lab) -> None:
    """All nodes go back to an image of their disks at an instant; nothing acknowledged is lost."""
    master, _ = present(three)
    before = list(three.tags)
    assert three.change(master)
    acknowledged = list(three.tags)
    running = three.cluster.start_on(
        master, "sh", "-c", f"for i in 1 2 3 4; do gnt-instance add-tags {INSTANCE} power$i; done"
    )
    image = three.cluster.directory.with_name("image")
    image.mkdir()
    # Copies take time: the master's, taken last, is behind nobody, as it is at any one instant.
    for node in sorted(three.nodes, key=lambda node: node == master):
        copy_quickly(three.cluster.path(node, "var/lib/ganeti"), image / node)
    running.communicate(timeout=PATIENCE_S)
    for node in three.nodes:
        for daemon in (MASTERD, NODED, "ganeti-confd"):
            try:
                pid = three.cluster.kill(node, daemon, signal.SIGKILL)
            except (FileNotFoundError, ProcessLookupError, ValueError):
                continue
            wait_until(lambda pid=pid: not alive(pid), f"{daemon} is gone")
        data = three.cluster.path(node, "var/lib/ganeti")
        shutil.rmtree(data)
        shutil.move(str(image / node), data)
    three.tags = acknowledged
    assert len(acknowledged) > len(before)
    three.cluster.vcluster("start", str(three.cluster.directory)).ok()
    three.settled(master)


def copy_quickly(source: Path, target: Path) -> None:
    """Copy while files come and go, as a disk has them at one instant or the next."""
    for path in [source, *sorted(source.rglob("*"))]:
        to = target / path.relative_to(source)
        try:
            if path.is_dir():
                to.mkdir(exist_ok=True)
            else:
                shutil.copy2(path, to)
        except FileNotFoundError:
            continue


def test_switches(three: Lab) -> None:
    """The commands which belong to the master, on the real one."""
    run = three.cluster.run
    run("gnt-cluster", "queue", "drain").ok()
    assert "is set" in run("gnt-cluster", "queue", "info").ok().stdout
    run("gnt-debug", "delay", "0").failed("drained")
    run("gnt-cluster", "queue", "undrain").ok()
    assert "is unset" in run("gnt-cluster", "queue", "info").ok().stdout
    assert "is paused until" in run("gnt-cluster", "watcher", "pause", "1h").ok().stdout
    assert "is paused until" in run("gnt-cluster", "watcher", "info").ok().stdout
    run("gnt-cluster", "watcher", "continue").ok()
    assert "not paused" in run("gnt-cluster", "watcher", "info").ok().stdout
    for command in ("activate-master-ip", "redist-conf"):
        run("gnt-cluster", command).ok()
    run("gnt-cluster", "deactivate-master-ip", "--yes").ok()


@pytest.fixture(scope="module")
def two() -> Iterator[Lab]:
    yield from make_lab(2)


def test_two_nodes(two: Lab) -> None:
    """With both the role moves; with one it takes --no-voting, and a warning says what it costs."""
    master, (other,) = present(two)
    two.failover(other)
    two.settled(other)
    for daemon in (MASTERD, NODED):
        pid = two.cluster.kill(other, daemon, signal.SIGKILL)
        wait_until(lambda pid=pid: not alive(pid), f"{daemon} is gone")
    two.cluster.on(master, "gnt-cluster", "master-failover").failed(
        "only 1 of 2 nodes answer", "--no-voting"
    )
    assert two.masters() == []
    # Nobody can be asked, so nothing is done.
    two.cluster.on(master, "gnt-cluster", "master-failover", "--no-voting").failed(
        "--yes-do-it", exit_code=13
    )
    two.failover(master, "--no-voting", "--yes-do-it")
    assert two.masters() == [master]
    assert "without a vote" in two.log(master)
    # One candidate of two is not a majority; the missing node has to be marked.
    two.cluster.on(master, "gnt-node", "modify", "--offline=yes", "--force", other)
    assert two.change(master)
    two.cluster.on(other, "daemon-util", "start", NODED).ok()
    two.cluster.on(master, "gnt-node", "modify", "--offline=no", other).ok()
    wait_until(
        lambda: (
            two.file(other, "config.data").read_bytes()
            == two.file(master, "config.data").read_bytes()
        ),
        "one configuration",
    )
    two.cluster.on(other, "ganeti-masterd").failed(master, exit_code=11)
    two.settled(master)


@pytest.fixture(scope="module")
def one() -> Iterator[Lab]:
    yield from make_lab(1)


@pytest.mark.long
def test_one_node(one: Lab) -> None:
    """It confirms itself; each start has a higher epoch."""
    (master,) = one.masters()
    before = one.epoch(master)
    pid = one.cluster.kill(master, MASTERD, signal.SIGKILL)
    wait_until(lambda: not alive(pid), "the master is gone")
    one.cluster.on(master, "gnt-cluster", "master-failover", "--dry-run").ok()
    one.cluster.on(master, "daemon-util", "start-master").ok()
    assert one.epoch(master) == before + 1
    one.settled(master)
    one.cluster.on(master, "gnt-cluster", "master-failover").failed("runs on this node")


@pytest.fixture(scope="module")
def five() -> Iterator[Lab]:
    yield from make_lab(5)


@pytest.mark.long
def test_five_nodes(five: Lab, record_property: pytest.RecordProperty) -> None:
    """Two of five may be lost at once; how long it takes until the new master takes a job."""
    taken: list[float] = []
    for _ in range(5):
        master, others = present(five)
        begun = time.monotonic()
        five.failover(others[0])
        five.cluster.on(others[0], "gnt-debug", "delay", "--submit", "0").ok()
        taken.append(time.monotonic() - begun)
        five.settled(others[0])
    record_property("failover_s", sorted(taken))
    print(f"failover to first accepted job: {sorted(taken)} s")
    master, others = present(five)
    five.cluster.cut([master, others[0]], others[1:])
    assert not five.change(master)
    five.failover(others[1])
    for _ in range(3):
        assert five.change(others[1])
    assert not five.change(master)
    five.cluster.cut()
    five.settled(others[1])


@pytest.mark.long
def test_many_partitions(five: Lab) -> None:
    """Networks break at random, roles move, changes are made: again and again."""
    source = random.Random(7)
    for _ in range(8):
        nodes = source.sample(five.nodes, 5)
        five.cluster.cut(nodes[: source.choice((1, 2))], nodes[2:])
        for node in source.sample(five.nodes, 3):
            if five.master_runs(node):
                five.change(node)
            else:
                five.cluster.on(node, "gnt-cluster", "master-failover")
    five.cluster.cut()
    wait_until(lambda: len(five.masters()) <= 1, "at most one master remains")
    if not five.masters():
        assert any(
            five.cluster.on(node, "gnt-cluster", "master-failover").exit_code == 0
            for node in five.nodes
        )
    five.settled(five.masters()[0])
