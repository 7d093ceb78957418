"""The loop of the daemon: what it observes, asks and starts, with nodes which are a table."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from ganeti import errors
from ganeti.config import ssconf
from ganeti.constants import failover as const
from ganeti.master_failover.child import FAILOVER, RELEASE_ADDRESS, RESTART, Task, TaskResult
from ganeti.master_failover.master_poll import IDLE_S, Facts, MasterPoll, read_facts
from ganeti.objects.transfer import MasterStatus
from ganeti.platform import failover_report, master_epoch, paths
from ganeti.platform.master_epoch import Epoch
from ganeti.rpc import Result

MASTER, ME, THIRD = NODES = ("node1", "node2", "node3")
STATUS = MasterStatus(
    master=MASTER, epoch="3 uuid-1", daemon=const.SERVING, watching=True, watched=MASTER
)


class FakeChild:
    """A child process which ends when the test says so."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.ended: TaskResult | None = None
        self.killed = False

    def fileno(self) -> int:
        return 0

    def result(self) -> TaskResult | None:
        return self.ended

    def end(self) -> None:
        self.killed = True


class Lab:
    """A daemon on a node, the answers of all nodes, and a clock."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.facts = Facts(5, ME, MASTER, NODES, {name: f"10.0.0.{name[-1]}" for name in NODES})
        self.answers: dict[str, MasterStatus | errors.RpcError] = dict.fromkeys(NODES, STATUS)
        self.started: list[str] = []
        self.child: FakeChild | None = None
        self.trusted = 0
        self.limits: list[float | None] = []
        self.expected: list[dict[str, tuple[str, ...]]] = []
        self.watch = MasterPoll(
            self,  # type: ignore[arg-type]
            self.start,  # type: ignore[arg-type,return-value]
            facts=lambda: self.facts,
            now=lambda: self.now,
        )

    # -- in place of the runner and of a child ---------------------------------------------------

    def call_addresses(self, call, addresses, **_args):
        found = {}
        self.limits.append(call.timeout_s)
        for name in addresses:
            answer = self.answers[name]
            if isinstance(answer, errors.RpcError):
                found[name] = Result(name, failure=answer)
            else:
                found[name] = Result(name, answer)
        return found

    def call_until(
        self, call, addresses, until: Callable[[dict[str, Result]], float | None], **args
    ):
        found = self.call_addresses(call, addresses, **args)
        until(found)
        return found

    def trust_changed(self) -> None:
        self.trusted += 1

    def expect_keys(self, pins: Mapping[str, tuple[str, ...]]) -> None:
        self.expected.append(dict(pins))

    def start(self, task: Task) -> FakeChild:
        self.started.append(task.name)
        self.child = FakeChild(task)
        return self.child

    # -- what tests do ---------------------------------------------------------------------------

    def poll(self, seconds: float = 0.0) -> str:
        """Let time pass in small steps, and look; returns the text of the report."""
        end = self.now + seconds
        while True:
            self.watch.poll()
            if self.now >= end:
                return failover_report.read().text
            self.now += 0.5

    def cut(self, name: str = MASTER) -> None:
        self.answers[name] = errors.NodeUnreachable(name, "master_status", "no route to host")

    def child_ends(self, success: bool, text: str = "") -> None:
        assert self.child is not None
        self.child.ended = TaskResult(success, text)


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    monkeypatch.setenv("GANETI_ROOTDIR", str(tmp_path))
    here = paths.current()
    for directory in (here.data_dir, here.run_dir, here.lock_dir):
        Path(directory).mkdir(parents=True)
    master_epoch.claim(Epoch(3, "uuid-1"))
    yield Lab()


def test_a_lost_master_is_replaced_after_the_limit(lab: Lab) -> None:
    assert lab.poll() == "the master serves"
    lab.cut()
    assert "if that lasts" in lab.poll(4.5)
    assert lab.started == []
    lab.poll(1.0)
    assert lab.started == [FAILOVER]
    # While the child is running, nothing else is begun.
    assert "taking the role" in lab.poll(30.0)
    assert lab.started == [FAILOVER]


def test_the_last_question_ends_when_the_limit_is_over(lab: Lab) -> None:
    """A node which is switched off answers no question before its whole time is over."""
    lab.poll()
    lab.cut()
    lab.poll(4.5)
    lab.limits.clear()
    lab.poll()
    assert lab.limits == [pytest.approx(0.5)]
    lab.answers[MASTER] = STATUS
    lab.poll()
    lab.limits.clear()
    lab.poll()
    assert lab.limits == [1.0]


def test_one_late_answer_is_no_lost_master(lab: Lab) -> None:
    """The master daemon has died and is started again, which takes longer than the limit."""
    lab.poll()
    lab.answers[MASTER] = dataclasses.replace(STATUS, daemon=const.DEAD)
    lab.poll(20.0)
    lab.cut()
    lab.poll(4.5)
    assert lab.started == []
    lab.answers[MASTER] = dataclasses.replace(STATUS, daemon=const.DEAD)
    lab.poll(2.0)
    lab.cut()
    lab.poll(4.5)
    assert lab.started == []
    lab.poll(1.0)
    assert lab.started == [FAILOVER]


def test_a_node_with_the_address_of_the_lost_master_is_not_the_master(lab: Lab) -> None:
    """Its answer, that it serves, would keep the role where no master is."""
    lab.poll()
    lab.answers[MASTER] = errors.NodeKeyMismatch(MASTER, "master_status", "it shows another key")
    lab.poll(5.5)
    assert lab.started == [FAILOVER]


def test_the_keys_of_nodes_are_expected_when_they_change(lab: Lab) -> None:
    keys = {"10.0.0.1": ("A",), "10.0.0.2": ()}
    lab.facts = lab.facts._replace(keys=keys)
    lab.poll(2.0)
    lab.facts = lab.facts._replace(keys={**keys, "10.0.0.1": ("A", "B")})
    lab.poll(2.0)
    assert lab.expected == [keys, {**keys, "10.0.0.1": ("A", "B")}]


def test_facts_have_the_keys_of_nodes(lab: Lab) -> None:
    found = {
        "auto_failover": "5",
        "master_node": MASTER,
        "master_candidates": f"{MASTER}\n{ME}",
        "online_nodes": "\n".join(NODES),
        "node_primary_ips": f"{MASTER} 192.0.2.1\n{ME} 192.0.2.2\n{THIRD} 192.0.2.3",
    }
    ssconf.write_local(found)
    # A master of an older release writes no keys.
    assert set(read_facts().keys.values()) == {()}
    ssconf.write_local({"node_key_pins": f"{MASTER} A B\n{ME} C\n"})
    assert read_facts().keys == {"192.0.2.1": ("A", "B"), "192.0.2.2": ("C",), "192.0.2.3": ()}


def test_what_was_done_is_reported(lab: Lab) -> None:
    lab.poll()
    lab.cut()
    lab.poll(6.0)
    lab.child_ends(False, "only 1 of 3 nodes answer, 2 have to")
    lab.poll()
    assert "only 1 of 3 nodes answer" in failover_report.read().acted
    lab.poll(6.0)
    assert lab.started == [FAILOVER, FAILOVER]


def test_the_second_candidate_leaves_the_first_one_time(lab: Lab) -> None:
    lab.facts = lab.facts._replace(me=THIRD)
    lab.poll()
    lab.cut()
    lab.poll(7.5)
    assert lab.started == []
    master_epoch.claim(Epoch(4, "uuid-2"))
    lab.poll(7.5)
    assert lab.started == [], "the first candidate has just asked"
    lab.poll(2.0)
    assert lab.started == [FAILOVER], "it did not get the role"


def test_others_see_the_master(lab: Lab) -> None:
    lab.poll()
    lab.cut()
    lab.answers[THIRD] = dataclasses.replace(STATUS, seen_s=0.2)
    assert "can still commit" in lab.poll(60.0)
    assert lab.started == []


def test_the_own_node_daemon_is_needed(lab: Lab) -> None:
    lab.poll()
    lab.cut()
    lab.cut(ME)
    assert "node daemon of this node" in lab.poll(20.0)
    assert lab.started == []


def test_an_error_of_the_node_daemon_is_no_absence(lab: Lab) -> None:
    lab.poll()
    lab.answers[MASTER] = errors.NodeCallFailed(MASTER, "master_status", "disk is full")
    assert "disk is full" in lab.poll(50.0)
    assert lab.started == []
    lab.poll(11.0)
    assert lab.started == [FAILOVER]


def test_a_pause_of_this_daemon_is_no_absence(lab: Lab) -> None:
    lab.poll()
    lab.cut()
    lab.now += 3600
    lab.poll(4.5)
    assert lab.started == []
    lab.poll(1.0)
    assert lab.started == [FAILOVER]


def test_nothing_is_watched_without_a_reason(lab: Lab) -> None:
    lab.facts = lab.facts._replace(limit_s=0)
    assert lab.watch.poll() == IDLE_S
    assert failover_report.read().text == "automatic failover is off"
    lab.facts = lab.facts._replace(limit_s=5, candidates=(MASTER, THIRD))
    assert lab.watch.poll() == IDLE_S
    assert "not a master candidate" in failover_report.read().text


def test_files_which_cannot_be_read_end_nothing(lab: Lab) -> None:
    def broken() -> Facts:
        raise errors.ConfigurationError("ssconf is missing")

    lab.watch._facts = broken
    assert lab.watch.poll() == IDLE_S
    assert "ssconf is missing" in failover_report.read().text


def test_the_dead_daemon_of_the_own_node_is_started(lab: Lab) -> None:
    lab.facts = lab.facts._replace(me=MASTER)
    lab.poll()
    assert lab.started == [RESTART]
    lab.child_ends(False, "no quorum")
    lab.poll(4.0)
    assert lab.started == [RESTART]
    lab.poll(2.0)
    assert lab.started == [RESTART, RESTART]


def test_a_master_which_was_replaced_is_not_started_again_and_again(lab: Lab) -> None:
    """A node which was marked offline is not informed that another node is the master."""
    lab.facts = lab.facts._replace(me=MASTER)
    lab.poll()
    lab.child_ends(False, "another node is the master")
    for name in (ME, THIRD):
        lab.answers[name] = dataclasses.replace(STATUS, master=ME, epoch="4 uuid-2", watched=ME)
    text = lab.poll(600.0)
    assert lab.started == [RESTART]
    assert "node2 is the master now (epoch 4" in text
    assert "gnt-node modify --offline=no node1" in text
    # When the other master has gone again, this one is started as before.
    lab.answers[ME] = lab.answers[THIRD] = STATUS
    lab.poll(61.0)
    assert lab.started == [RESTART, RESTART]


def test_a_daemon_stopped_on_purpose_is_not_started(lab: Lab) -> None:
    Path(paths.current().master_stopped_file).touch()
    lab.facts = lab.facts._replace(me=MASTER)
    assert "on purpose" in lab.poll(100.0)
    assert lab.started == []


def test_a_former_master_gives_the_address_up(lab: Lab) -> None:
    Path(paths.current().master_stopped_file).touch()
    lab.facts = lab.facts._replace(me=MASTER)
    lab.poll()
    lab.facts = lab.facts._replace(master=ME)
    lab.poll()
    assert lab.started == [RELEASE_ADDRESS]


def test_new_certificates_are_used(lab: Lab) -> None:
    here = paths.current()
    for path in (here.noded_cert_file, here.noded_client_cert_file):
        Path(path).touch()
    lab.poll()
    assert lab.trusted == 0
    os.utime(here.noded_client_cert_file, (1, 1))
    lab.poll()
    assert lab.trusted == 1


def test_the_end_of_the_daemon_ends_its_child(lab: Lab) -> None:
    lab.poll()
    lab.cut()
    lab.poll(6.0)
    lab.watch.close()
    assert lab.child is not None
    assert lab.child.killed


def commits(lab: Lab, age_s: float, name: str = MASTER) -> None:
    """The master answers, and a majority confirmed so long ago that it can commit."""
    lab.answers[name] = dataclasses.replace(STATUS, seen_s=age_s)


def test_a_master_which_answers_and_cannot_commit_is_replaced(lab: Lab) -> None:
    commits(lab, 1.0)
    assert lab.poll() == "the master serves"
    commits(lab, 5.0)
    assert lab.poll() == "the master serves"
    assert lab.started == []
    commits(lab, 5.5)
    lab.answers[THIRD] = dataclasses.replace(STATUS, seen_s=5.5)
    text = lab.poll()
    assert lab.started == [FAILOVER]
    assert "the master answers and cannot commit changes (for 6 s)" in text
    assert failover_report.read().state == const.STALLED


def test_who_sees_a_master_which_cannot_commit_is_no_objection(lab: Lab) -> None:
    """What the others report is the time of the last commit, too."""
    commits(lab, 4.0)
    lab.poll()
    assert lab.now - (failover_report.read().seen_at or 0.0) == 4.0


def test_the_end_of_a_master_which_cannot_commit_gives_it_no_more_time(lab: Lab) -> None:
    commits(lab, 6.0)
    lab.facts = lab.facts._replace(candidates=(MASTER, "node1b", ME))
    lab.facts = lab.facts._replace(addresses={**lab.facts.addresses, "node1b": "10.0.0.9"})
    lab.answers["node1b"] = dataclasses.replace(STATUS, seen_s=6.0)
    lab.poll()
    assert lab.started == []
    lab.answers[MASTER] = dataclasses.replace(STATUS, daemon=const.DEAD)
    lab.poll(3.0)
    assert lab.started == [FAILOVER]


def test_a_master_which_commits_again_keeps_its_role(lab: Lab) -> None:
    commits(lab, 6.0)
    lab.facts = lab.facts._replace(candidates=(MASTER, THIRD, ME))
    lab.poll()
    commits(lab, 0.5)
    assert lab.poll(20.0) == "the master serves"
    lab.answers[MASTER] = dataclasses.replace(STATUS, daemon=const.DEAD)
    lab.poll(30.0)
    assert lab.started == []


def test_a_master_which_does_not_know_when_it_committed_serves(lab: Lab) -> None:
    """Its release is another one."""
    assert STATUS.seen_s is None
    assert lab.poll(100.0) == "the master serves"
    assert lab.started == []
