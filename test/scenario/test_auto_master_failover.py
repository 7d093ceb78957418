"""The role of a lost master moves by itself, and stays where it should.

Real daemons in virtual clusters. A power cut is played by killing all processes of a node, or, as
the worse case, by stopping them all: then connections are made and nobody answers. Nothing which
was acknowledged may be missing afterwards (:meth:`role_lab.Lab.settled`).
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator

import pytest
from harness import Cluster, alive, wait_until
from role_lab import MASTERD, Lab, fill, make_lab, present, read_only, small_disk

FAILOVERD = "ganeti-failoverd"
# The limit of these clusters; the shortest which is allowed. With ``MASTER_FAILOVER_S`` another one
# is measured.
LIMIT_S = int(os.environ.get("MASTER_FAILOVER_S", "3"))
# The limit where the role has to stay: a busy machine may not answer for several seconds.
PATIENT_S = 120


class AutoLab:
    """A cluster whose role moves by itself."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.cluster: Cluster = lab.cluster
        self.limit(LIMIT_S)
        self.wait_watching()

    def limit(self, seconds: int) -> None:
        """Set the time after which the role moves, on all nodes."""
        self.cluster.run("gnt-cluster", "modify", f"--auto-failover={seconds}s").ok()
        files = [self.lab.file(node, "ssconf_auto_failover") for node in self.lab.nodes]
        wait_until(
            lambda: all(file.read_text().strip() == str(seconds) for file in files),
            "all nodes know the limit",
        )

    def master(self) -> str:
        """The node whose master daemon serves."""
        found: list[str] = []

        def one() -> bool:
            found[:] = [node for node in self.lab.nodes if self.accepts(node)]
            return len(found) == 1

        wait_until(one, "one master serves")
        return found[0]

    def accepts(self, node: str) -> bool:
        """Whether the master daemon of a node accepts a job."""
        return (
            self.lab.master_runs(node)
            and self.cluster.path(node, "var/run/ganeti/socket/ganeti-master").exists()
            and self.cluster.on(node, "gnt-debug", "delay", "--submit", "0").exit_code == 0
        )

    def report(self, node: str) -> dict[str, str]:
        """The report of the failover daemon of a node."""
        path = self.cluster.path(node, "var/run/ganeti/failover-report")
        if not path.exists():
            return {}
        return dict(line.partition(" ")[::2] for line in path.read_text().splitlines())

    def log(self, node: str) -> str:
        return self.cluster.path(node, "var/log/ganeti/failover-daemon.log").read_text()

    def master_log(self, node: str) -> str:
        return self.cluster.path(node, "var/log/ganeti/master-daemon.log").read_text()

    def wait_watching(self) -> None:
        """Wait until all candidates have seen the master serve."""

        def watching() -> bool:
            names = [
                self.cluster.path(node, "var/lib/ganeti/ssconf_master_node").read_text().strip()
                for node in self.lab.nodes
            ]
            reports = [self.report(node) for node in self.lab.nodes if node not in names]
            return len(set(names)) == 1 and all(
                one.get("watched") == names[0] and one.get("state") == "serving" for one in reports
            )

        wait_until(watching, "all candidates see the master")

    def forget(self) -> None:
        """Start the daemons again: each remembers how often the role has moved, and then rests."""
        for node in self.lab.nodes:
            pid = self.cluster.kill(node, FAILOVERD, signal.SIGTERM)
            wait_until(lambda pid=pid: not alive(pid), f"the failover daemon of {node} has ended")
            self.cluster.on(node, "daemon-util", "start", FAILOVERD).ok()
        self.wait_watching()

    def reasons(self) -> str:
        """What the failover daemon of each node logged last, for the message of a failed test."""
        return "".join(f"\n{node}:\n{self.log(node)[-1500:]}" for node in self.lab.nodes)

    def first_job(self, nodes: list[str], begun: float) -> tuple[str, float]:
        """Wait for the first job which one of these nodes accepts; the node, and the seconds."""
        found: list[str] = []

        def accepted() -> bool:
            found[:] = [node for node in nodes if self.accepts(node)]
            return bool(found)

        wait_until(accepted, "a new master accepts a job")
        return found[0], time.monotonic() - begun


@pytest.fixture(scope="module")
def used() -> Iterator[AutoLab]:
    for lab in make_lab(5):
        yield AutoLab(lab)


@pytest.fixture
def five(used: AutoLab) -> AutoLab:
    """Five nodes whose daemons have seen no move of the role."""
    used.forget()
    return used


@pytest.fixture
def patient(five: AutoLab) -> Iterator[AutoLab]:
    """The same with a limit which nothing but a lost node exceeds."""
    five.limit(PATIENT_S)
    yield five
    five.limit(LIMIT_S)


@pytest.fixture(autouse=True)
def whole_network(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    request.getfixturevalue("used").cluster.cut()


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_power_cut(
    five: AutoLab,
    number: signal.Signals,
    record_property: Callable[[str, object], None],
) -> None:
    """Jobs submitted and changes made before the cut are there; the old master becomes a candidate
    again when it comes back, or goes on."""
    lab = five.lab
    five.wait_watching()
    old = five.master()
    others = [node for node in lab.nodes if node != old]
    jobs = [
        lab.cluster.on(old, "gnt-debug", "delay", "--submit", "--print-jobid", "0")
        .ok()
        .stdout.strip()
        for _ in range(5)
    ]
    assert lab.change(old)
    begun = time.monotonic()
    doomed = five.cluster.cut_power(old, number)
    new, taken_s = five.first_job(others, begun)
    record_property(f"failover_{number.name}_s", taken_s)
    print(f"{number.name}: first job accepted after {taken_s:.1f} s, with a limit of {LIMIT_S} s")
    known = lab.cluster.on(new, "gnt-job", "list", "--no-headers", "-o", "id").ok().stdout.split()
    assert set(jobs) <= set(known), "an acknowledged job is lost"
    assert lab.change(new)
    assert "asks for the role of the master" in five.report(new)["acted"] + five.log(new)
    if number == signal.SIGKILL:
        five.cluster.power_on(old)
    else:
        for pid in doomed:
            if alive(pid):
                os.kill(pid, signal.SIGCONT)
    wait_until(lambda: not lab.master_runs(old), "the old master daemon has ended")
    lab.settled(new)
    five.wait_watching()


@pytest.mark.long
def test_a_cut_off_master_acknowledges_nothing(five: AutoLab) -> None:
    """The network is split: the larger part gets a master, the smaller one says why it has none."""
    lab = five.lab
    five.wait_watching()
    old = five.master()
    others = [node for node in lab.nodes if node != old]
    alone, rest = others[0], others[1:]
    lab.cluster.cut([old, alone], rest)
    # Both kinds of changes, before and after the new master is there.
    refused = lab.cluster.on(old, "gnt-debug", "delay", "--submit", "0").failed("not acknowledged")
    assert "only 2 of 5 master candidates" in refused.text
    assert not lab.change(old)
    begun = time.monotonic()
    new, _ = five.first_job(rest, begun)
    assert lab.change(new)
    assert not lab.change(old)
    # The master knows that it has no majority, and ends. The candidate beside it has none either.
    wait_until(lambda: not lab.master_runs(old), "the master without a majority has ended")
    assert "has not been able to commit" in five.master_log(old)
    lab.cluster.cut()
    wait_until(lambda: not lab.master_runs(old), "the old master daemon has ended")
    lab.settled(new)
    five.wait_watching()


@pytest.mark.long
def test_a_master_whose_requests_are_cut_off(five: AutoLab) -> None:
    """It answers everybody and can commit nothing: the role moves, and it ends."""
    lab = five.lab
    five.wait_watching()
    old = five.master()
    others = [node for node in lab.nodes if node != old]
    assert lab.change(old)
    lab.cluster.cut([old], others, one_way=True)
    new, _ = five.first_job(others, time.monotonic())
    assert "cannot commit changes" in "".join(five.log(node) for node in others)
    wait_until(lambda: not lab.master_runs(old), "the old master daemon has ended")
    assert lab.change(new)
    assert lab.masters() == [new]
    lab.cluster.cut()
    lab.settled(new)
    five.wait_watching()


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small file system")
def test_a_master_whose_disk_is_full(five: AutoLab) -> None:
    """It answers everybody and can write nothing: the role moves, it ends, and comes back later."""
    lab = five.lab
    old, (chosen, *_rest) = present(lab)
    data = lab.cluster.path(chosen, "var/lib/ganeti")
    five.cluster.cut_power(chosen)
    with small_disk(data) as filler:
        five.cluster.power_on(chosen)
        lab.settled(old)
        lab.failover(chosen)
        lab.settled(chosen)
        five.forget()
        fill(filler)
        new = _replaced(five, chosen, "No space left on device")
        filler.unlink()
        lab.settled(new)
        five.wait_watching()
        five.cluster.cut_power(chosen)
    five.cluster.power_on(chosen)
    lab.settled(new)


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a file system")
def test_a_master_whose_disk_is_read_only(five: AutoLab) -> None:
    """As a kernel makes it after an error of the disk."""
    lab = five.lab
    old = five.master()
    with read_only(lab.cluster.path(old, "var/lib/ganeti")):
        new = _replaced(five, old, "Read-only file system")
    lab.settled(new)
    five.wait_watching()


def _replaced(auto: AutoLab, old: str, why: str) -> str:
    """Wait until another node is the master, because the daemon of the old one cannot write.

    Nobody asks it for a change: it finds out by itself.
    """
    others = [node for node in auto.lab.nodes if node != old]
    new, _ = auto.first_job(others, time.monotonic())
    assert "cannot commit changes" in "".join(auto.log(node) for node in others)
    wait_until(lambda: not auto.lab.master_runs(old), "the old master daemon has ended")
    log = auto.master_log(old)
    assert "this master cannot commit changes" in log and why in log
    assert auto.lab.change(new)
    assert auto.lab.masters() == [new]
    return new


@pytest.mark.long
def test_no_quorum(five: AutoLab) -> None:
    """Three of five nodes are lost, the master among them: nothing happens, and it says so."""
    lab = five.lab
    five.wait_watching()
    old = five.master()
    lost = [old, *[node for node in lab.nodes if node != old][:2]]
    left = [node for node in lab.nodes if node not in lost]
    for node in lost:
        five.cluster.cut_power(node)
    wait_until(
        lambda: all("have to" in five.report(node).get("acted", "") for node in left),
        "both have asked in vain",
    )
    assert lab.masters() == []
    shown = lab.cluster.on(left[0], "gnt-cluster", "failover-status").ok().stdout
    assert "only 2 of 5 nodes answer" in shown
    five.cluster.power_on(lost[1])
    new = five.master()
    assert new in (*left, lost[1])
    for node in (lost[0], lost[2]):
        five.cluster.power_on(node)
    lab.settled(new)
    five.wait_watching()


@pytest.mark.long
def test_a_flapping_master_keeps_its_role(patient: AutoLab) -> None:
    """A master which is away for less than the limit, again and again."""
    lab = patient.lab
    patient.wait_watching()
    master = patient.master()
    epoch = lab.epoch(master)
    others = [node for node in lab.nodes if node != master]
    for _ in range(3):
        doomed = patient.cluster.cut_power(master, signal.SIGSTOP)
        wait_until(
            lambda: any(patient.report(node).get("state") != "serving" for node in others),
            "the candidates miss the master",
        )
        for pid in doomed:
            if alive(pid):
                os.kill(pid, signal.SIGCONT)
        patient.wait_watching()
    assert lab.masters() == [master]
    assert lab.epoch(master) == epoch
    lab.settled(master)


@pytest.mark.long
def test_a_dead_daemon_is_started_again(patient: AutoLab) -> None:
    """The node is well, so the role stays there."""
    lab = patient.lab
    patient.wait_watching()
    master = patient.master()
    pid = lab.cluster.kill(master, MASTERD, signal.SIGKILL)
    wait_until(lambda: not alive(pid), "the master daemon is gone")
    assert patient.master() == master, patient.reasons()
    assert "started again" in patient.log(master)
    lab.settled(master)
    patient.wait_watching()


@pytest.mark.long
def test_a_daemon_stopped_on_purpose_stays_stopped(patient: AutoLab) -> None:
    lab = patient.lab
    patient.wait_watching()
    master = patient.master()
    lab.cluster.on(master, "daemon-util", "stop-master").ok()
    others = [node for node in lab.nodes if node != master]
    wait_until(
        lambda: all("on purpose" in patient.report(node).get("text", "") for node in others),
        "the candidates know why",
    )
    assert "on purpose" in patient.report(master).get("text", "") or lab.masters() == []
    assert lab.masters() == []
    lab.cluster.on(master, "daemon-util", "start-master").ok()
    assert patient.master() == master
    patient.wait_watching()


@pytest.mark.long
def test_a_pause_holds_for_the_role(five: AutoLab) -> None:
    """While the watcher is paused, the role stays where it is."""
    lab = five.lab
    five.wait_watching()
    master = five.master()
    lab.cluster.run("gnt-cluster", "watcher", "pause", "1h").ok()
    five.cluster.cut_power(master)
    others = [node for node in lab.nodes if node != master]
    wait_until(
        lambda: any("is paused" in five.report(node).get("text", "") for node in others),
        "a candidate says that the watcher is paused",
    )
    assert lab.masters() == []
    five.cluster.power_on(master)
    assert five.master() == master
    lab.cluster.run("gnt-cluster", "watcher", "continue").ok()
    five.wait_watching()
    lab.settled(master)


@pytest.mark.long
def test_by_hand_at_the_same_time(five: AutoLab) -> None:
    """An administrator moves the role in the moment in which candidates do; one master remains."""
    lab = five.lab
    five.wait_watching()
    old = five.master()
    others = [node for node in lab.nodes if node != old]
    five.cluster.cut_power(old)
    wait_until(
        lambda: any("asks for the role" in five.log(node)[-3000:] for node in others),
        "a candidate is about to act",
    )
    process = lab.cluster.start_on(others[-1], "gnt-cluster", "master-failover")
    out, err = process.communicate()
    assert "Traceback" not in out + err
    new = five.master()
    five.cluster.power_on(old)
    lab.settled(new)
    five.wait_watching()


@pytest.mark.long
def test_off(five: AutoLab) -> None:
    """Without the parameter no daemon watches, and a lost master stays lost."""
    lab = five.lab
    five.wait_watching()
    master, _others = present(lab)
    pids = [lab.cluster.pid(node, FAILOVERD) for node in lab.nodes]
    lab.cluster.run("gnt-cluster", "modify", "--auto-failover=no").ok()
    wait_until(lambda: not any(map(alive, pids)), "the daemons have ended")
    lab.settled(master)
