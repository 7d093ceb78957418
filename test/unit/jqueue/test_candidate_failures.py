"""A candidate which refuses, hangs or comes back: nothing is lost, nothing older overwrites."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from ganeti import errors
from ganeti.jobstore.inventory import Inventory
from ganeti.jqueue import catch_up, outbox, replication
from ganeti.jqueue.catch_up import CatchUpPlan
from ganeti.replication.peer import CopyState

PATIENCE_S = 60.0


class Here:
    """The queue of the master: files by name."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}
        self.flag = False

    def drained(self) -> bool:
        return self.flag

    def read(self, name: str) -> str | None:
        return self.files.get(name)


class Candidate:
    """Takes messages; a message may wait, and calls may be refused."""

    def __init__(self) -> None:
        self.uuids = ["one"]
        self.calls: list[tuple[str, Any]] = []
        self.refuses: list[str] = []
        self.changed = threading.Condition()
        self.gate = threading.Event()
        self.gate.set()
        self.arrived = threading.Semaphore(0)

    def candidates(self) -> Sequence[str]:
        return tuple(self.uuids)

    def _call(self, name: str, value: Any) -> None:
        self.arrived.release()
        assert self.gate.wait(PATIENCE_S)
        with self.changed:
            if name in self.refuses:
                self.refuses.remove(name)
                raise errors.JobQueueError(f"refuses {name}")
            self.calls.append((name, value))
            self.changed.notify_all()

    def update(self, node_uuid: str, files: dict[str, str]) -> None:
        self._call("update", dict(files))

    def archive(self, node_uuid: str, job_ids: Sequence[int]) -> None:
        self._call("archive", list(job_ids))

    def purge(self, node_uuid: str) -> None:
        self._call("purge", None)

    def set_drained(self, node_uuids: Sequence[str], drained: bool) -> list[str]:
        self._call("drained", drained)
        return []

    def inventory(self, node_uuid: str, parts: Sequence[int]) -> Inventory:
        raise AssertionError("the plan is made up")

    def read(self, node_uuid: str, names: Sequence[str]) -> dict[str, str]:
        raise AssertionError("nobody reads here")

    def wait_for(self, *wanted: tuple[str, Any]) -> None:
        with self.changed:
            assert self.changed.wait_for(
                lambda: all(call in self.calls for call in wanted), PATIENCE_S
            ), self.calls

    def archived(self) -> set[int]:
        """The jobs which were archived."""
        return {number for name, ids in self.calls if name == "archive" for number in ids}

    def copy(self) -> dict[str, str]:
        """What the candidate has in the end."""
        found: dict[str, str] = {}
        for name, value in self.calls:
            if name == "update":
                found.update(value)
        return found


class Lab:
    def __init__(self) -> None:
        self.here = Here()
        self.candidate = Candidate()
        self.plans: list[CatchUpPlan] = []
        self.compared = threading.Semaphore(0)
        self.replicator = replication.Replicator(
            replication.Candidates(self.candidate),
            self.here,  # type: ignore[arg-type]
            wait_s=0.2,
            retry_s=0.01,
        )

    def plan(self, *_args: Any) -> CatchUpPlan:
        self.compared.release()
        return self.plans.pop(0) if self.plans else CatchUpPlan(False, {}, [], [], None)

    def start(self) -> None:
        self.replicator.start()
        with self.replicator.progress:
            assert self.replicator.progress.wait_for(
                lambda: (
                    not any(
                        peer.state in (CopyState.NEW, CopyState.ABSENT)
                        for peer in self.replicator._peers.values()
                    )
                ),
                PATIENCE_S,
            )


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    made = Lab()
    monkeypatch.setattr(catch_up, "plan", made.plan)
    monkeypatch.setattr(replication, "GATHER_S", 0.0)
    monkeypatch.setattr(replication, "GATHER_BUSY_S", 0.0)
    yield made
    made.candidate.gate.set()
    made.replicator.stop()


def test_a_refused_message_comes_again_in_its_newest_form(lab: Lab) -> None:
    lab.start()
    lab.candidate.gate.clear()
    lab.candidate.refuses = ["update"]
    lab.replicator.send({"job-1": "older", "job-2": "two"}, [])
    assert lab.candidate.arrived.acquire(timeout=PATIENCE_S)
    lab.replicator.send({"job-1": "newer"}, [])
    lab.candidate.gate.set()
    lab.candidate.wait_for(("update", {"job-1": "newer", "job-2": "two"}))
    assert lab.candidate.copy() == {"job-1": "newer", "job-2": "two"}


def test_an_older_drain_flag_never_arrives_last(lab: Lab) -> None:
    """An administrator takes the flag away while a comparison sends it."""
    lab.here.flag = True
    lab.plans = [CatchUpPlan(False, {}, [], [], True)]
    lab.candidate.gate.clear()
    lab.replicator.start()
    assert lab.candidate.arrived.acquire(timeout=PATIENCE_S)
    lab.here.flag = False
    lab.candidate.gate.set()
    lab.candidate.wait_for(("drained", False))
    assert lab.candidate.calls == [("drained", True), ("drained", False)]


def test_a_refusal_is_not_an_acceptance(lab: Lab) -> None:
    lab.start()
    lab.candidate.refuses = ["update"] * 1000
    wait = lab.replicator.send({"job-1": "one"}, [])
    assert wait().alone  # nobody has it
    assert lab.replicator.lagging() == ["one"]


def test_a_refused_archive_comes_again(lab: Lab) -> None:
    lab.start()
    lab.candidate.refuses = ["archive"]
    lab.replicator.send({"job-1": "success"}, [1])
    lab.candidate.wait_for(("archive", [1]))


def test_who_comes_back_is_compared(lab: Lab) -> None:
    lab.start()
    assert lab.compared.acquire(timeout=PATIENCE_S)
    lab.here.files["job-5"] = "five"
    lab.plans = [CatchUpPlan(False, {}, ["job-5"], [], None)]
    lab.candidate.refuses = ["update"]
    lab.replicator.send({"job-1": "one"}, [])
    assert lab.compared.acquire(timeout=PATIENCE_S)
    with lab.replicator.progress:
        lab.replicator.progress.wait_for(lambda: "job-5" in lab.candidate.copy(), PATIENCE_S)
    assert lab.candidate.copy() == {"job-1": "one", "job-5": "five"}


def test_a_new_candidate_gets_what_it_lacks_in_order(lab: Lab) -> None:
    lab.here.files.update({"job-1": "one", "job-2": "two", "version": "1\n"})
    lab.here.flag = True
    lab.plans = [CatchUpPlan(True, {"version": "1\n"}, ["job-1", "job-2"], [2], True)]
    lab.start()
    lab.candidate.wait_for(("archive", [2]))
    calls = lab.candidate.calls
    assert calls[:2] == [("purge", None), ("drained", True)]
    first = calls[2]
    assert first[0] == "update" and "version" in first[1]
    assert calls[-1] == ("archive", [2])
    assert lab.candidate.copy() == {"version": "1\n", "job-1": "one", "job-2": "two"}


def test_messages_have_a_limit_and_the_rest_follows(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "MESSAGE_BYTES", 100)
    names = [f"job-{number}" for number in range(1, 8)]
    lab.here.files.update({name: f"old {name} " + "x" * 50 for name in names})
    lab.plans = [CatchUpPlan(False, {}, list(names), [7], None)]
    lab.start()
    lab.replicator.send({name: f"new {name} " + "y" * 50 for name in names[:4]}, [1])()
    with lab.candidate.changed:
        assert lab.candidate.changed.wait_for(
            lambda: lab.candidate.archived() == {1, 7}, PATIENCE_S
        )
    for name, value in lab.candidate.calls:
        if name == "update":
            assert len(value) == 1 or sum(map(len, value.values())) <= 100
    copy = lab.candidate.copy()
    assert sorted(copy) == names
    assert all(copy[name].startswith("new") for name in names[:4])
    # Nothing is archived before the files of its commit were sent.
    assert lab.candidate.calls[-1] == ("archive", [1])
    seventh = [place for place, (_, value) in enumerate(lab.candidate.calls) if "job-7" in value]
    assert max(seventh) < lab.candidate.calls.index(("archive", [7]))


def test_a_commit_is_complete_with_its_last_message(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "MESSAGE_BYTES", 100)
    lab.start()
    wait = lab.replicator.send({f"job-{number}": "x" * 60 for number in range(5)}, [])
    assert not wait().alone
    assert len(lab.candidate.copy()) == 5


def test_a_slow_candidate_lags_and_is_waited_for_once(lab: Lab) -> None:
    lab.start()
    lab.candidate.gate.clear()
    wait = lab.replicator.send({"job-1": "one"}, [])
    assert wait().alone
    assert lab.replicator.lagging() == ["one"]
    lab.candidate.gate.set()
    with lab.replicator.progress:
        assert lab.replicator.progress.wait_for(
            lambda: not lab.replicator._peers["one"].lags, PATIENCE_S
        )


def test_a_majority_is_wanted(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where another node may become the master unasked, the number which lacks a commit is told."""
    lab.candidate.uuids = ["one", "two", "three", "four"]
    lab.replicator._majority = lambda: True
    dead: set[str] = set()

    def update(node_uuid: str, files: dict[str, str]) -> None:
        if node_uuid in dead:
            raise errors.NodeUnreachable(node_uuid, "update", "no connection")

    monkeypatch.setattr(lab.candidate, "update", update)
    lab.start()
    assert lab.replicator.send({"job-1": "one"}, [])().shortfall == ""
    dead |= {"one", "two"}
    assert lab.replicator.send({"job-2": "two"}, [])().shortfall == ""
    dead.add("three")
    assert (
        lab.replicator.send({"job-3": "three"}, [])().shortfall == "only 2 of 5 master candidates"
    )
    lab.replicator._majority = lambda: False
    assert lab.replicator.send({"job-4": "four"}, [])().shortfall == ""


def test_two_candidates_cannot_replace_the_master(lab: Lab) -> None:
    """So with one other candidate no majority is wanted."""
    lab.replicator._majority = lambda: True
    lab.start()
    lab.candidate.refuses = ["update"] * 1000
    delivered = lab.replicator.send({"job-1": "one"}, [])()
    assert delivered.alone
    assert delivered.shortfall == ""


class Witness:
    """Stands for the other candidate; ``failure`` says why it does not."""

    def __init__(self) -> None:
        self.known: list[int] = []
        self.failure: str | None = None
        self.wanted = True

    def needed(self) -> bool:
        return self.wanted

    def record(self, last_job: int) -> str | None:
        if self.failure is None:
            self.known.append(last_job)
        return self.failure


def test_a_witness_stands_for_the_other_candidate(lab: Lab) -> None:
    """It is informed of the number of a job, once, and only when the candidate lacks the job."""
    witness = Witness()
    lab.replicator._majority = lambda: True
    lab.replicator._witness = witness
    lab.start()
    assert lab.replicator.send({"serial": "7\n", "job-7": "a"}, [])().shortfall == ""
    lab.candidate.wait_for(("update", {"serial": "7\n", "job-7": "a"}))
    assert witness.known == []
    lab.candidate.refuses = ["update", "inventory"] * 1000
    assert lab.replicator.send({"serial": "8\n", "job-8": "b"}, [])().shortfall == ""
    assert lab.replicator.send({"job-8": "c"}, [])().shortfall == ""
    assert witness.known == [8]
    assert lab.replicator.confirmed_serial == 8
    witness.failure = "no answer"
    shortfall = lab.replicator.send({"serial": "9\n", "job-9": "d"}, [])().shortfall
    assert shortfall == "only this node, and not the witness (no answer),"
    witness.wanted = False
    assert lab.replicator.send({"serial": "10\n", "job-10": "e"}, [])().shortfall == ""


def test_a_witness_knows_the_first_id_of_a_new_master(lab: Lab) -> None:
    """So that nobody else gives that id to another job; without it, the candidate must know."""
    witness = Witness()
    lab.replicator._witness = witness
    lab.candidate.refuses = ["update", "inventory"] * 1000
    lab.start()
    assert lab.replicator.wait_confirmed(10007, PATIENCE_S)
    assert witness.known == [10007]
    witness.failure = "no answer"
    assert not lab.replicator.wait_confirmed(10008, 0.01)


def test_a_single_candidate_needs_the_witness_until_it_knows(lab: Lab) -> None:
    witness = Witness()
    lab.replicator._majority = lambda: True
    lab.replicator._witness = witness
    lab.candidate.uuids = []
    lab.start()
    assert lab.replicator.send({"serial": "8\n", "job-8": "b"}, [])().shortfall == ""
    assert witness.known == [8]
    witness.wanted = False
    witness.failure = "no answer"
    assert lab.replicator.send({"serial": "9\n", "job-9": "b"}, [])().shortfall == ""


def test_who_is_no_candidate_any_more_gets_nothing(lab: Lab) -> None:
    lab.start()
    lab.candidate.uuids = []
    assert not lab.replicator.send({"job-1": "one"}, [])().alone
    lab.candidate.uuids = ["one"]
    lab.replicator.send({"job-2": "two"}, [])
    lab.candidate.wait_for(("update", {"job-2": "two"}))
    assert lab.candidate.copy() == {"job-2": "two"}


def test_a_warning_when_most_candidates_lag(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    lab.start()
    lab.candidate.refuses = ["update"] * 1000
    for number in range(3):
        lab.replicator.send({"job-1": f"{number}"}, [])()
    assert caplog.text.count("1 of 1 master candidates are not up to date") == 1


def test_a_stop_gives_candidates_the_rest(lab: Lab) -> None:
    lab.start()
    lab.candidate.gate.clear()
    lab.replicator.send({"job-1": "one"}, [])
    assert lab.candidate.arrived.acquire(timeout=PATIENCE_S)
    # The first message is under way; the second one is not sent yet.
    lab.replicator.send({"job-2": "two"}, [])
    threading.Timer(0.1, lab.candidate.gate.set).start()
    lab.replicator.stop(PATIENCE_S)
    assert lab.candidate.copy() == {"job-1": "one", "job-2": "two"}


def test_a_candidate_which_needs_long_lags_until_it_has_everything(lab: Lab) -> None:
    """Otherwise each commit would wait for it in vain again."""
    lab.start()
    peer = lab.replicator._peers["one"]
    with lab.replicator.progress:
        peer.missed()
        peer._outbox.add_lacking({}, ["job-9"], [])
        peer._delivered(1, lab.replicator._wait_s)
        with_rest = peer.lags
        peer._outbox.forget_backlog()
        peer._delivered(2, lab.replicator._wait_s)
        with_everything = peer.lags
    assert (with_rest, with_everything) == (True, False)


@pytest.mark.parametrize(
    ("serials", "confirmed"), [((5,), 5), ((5, 3), 5), ((5, 4, 3), 4), ((9, 7, 2, 1), 7)]
)
def test_which_ids_a_majority_knows(serials: tuple[int, ...], confirmed: int) -> None:
    """The master is one of the majority."""
    candidate = Candidate()
    replicator = replication.Replicator(replication.Candidates(candidate), Here())  # type: ignore[arg-type]

    class Peer:
        def __init__(self, serial: int) -> None:
            self.serial = serial

    replicator._peers = {str(place): Peer(one) for place, one in enumerate(serials)}  # type: ignore[misc]
    with replicator.progress:
        replicator.count_serials()
    assert replicator.confirmed_serial == confirmed


def test_the_serial_of_a_copy_may_fall(lab: Lab) -> None:
    """Its disk may be new."""
    lab.start()
    peer = lab.replicator._peers["one"]
    peer._has_serial("9\n", anew=True)
    peer._has_serial("7\n")
    assert peer.serial == 9
    peer._has_serial("2\n", anew=True)
    assert peer.serial == 2
    peer._has_serial("nonsense", anew=True)
    assert peer.serial == 0


def test_nobody_waits_for_a_candidate_which_refuses(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lab.replicator, "_retry_s", 3600.0)
    monkeypatch.setattr(lab.replicator, "_wait_s", 3600.0)
    lab.start()
    peer = lab.replicator._peers["one"]
    peer._retry_s = peer._wait_s = 3600.0
    lab.candidate.refuses = ["update"]
    assert lab.replicator.send({"job-1": "one"}, [])().alone
    assert lab.replicator.lagging() == ["one"]
