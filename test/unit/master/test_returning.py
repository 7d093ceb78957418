"""Candidates which answer again after a cut are sent at once what they lack."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from typing import Any

import pytest

from fakes.config import cluster_of, commit, instance_of
from ganeti import errors
from ganeti.config import Config, Distribution, DistributionFailure
from ganeti.config.local_file import LocalFile
from ganeti.config.sending import CONFIG
from ganeti.config.store import ConfigStore
from ganeti.jqueue import catch_up, replication
from ganeti.jqueue.catch_up import CatchUpPlan
from ganeti.master import returning, witness
from ganeti.master.returning import ANSWER_S, ANSWERING_ROUNDS, PAUSE_S, Returning, knock
from ganeti.master.witness import MasterWitness
from ganeti.replication.background import BackgroundCopies, Copied
from ganeti.rpc import Result
from ganeti.utils import retry
from ganeti.wire.calls import NODE_WORK

PATIENCE_S = 60.0
LONG_S = 3600.0


class Lab:
    """Copies of one kind, and the candidates."""

    def __init__(self) -> None:
        self.lagging: set[str] = set()
        self.cut: set[str] = set()
        self.asked: list[tuple[list[str], float]] = []
        self.tried: list[set[str]] = []
        self.returns = 0
        self.returning = Returning([self], self.knock, self.on_return)

    def unresponsive(self) -> Collection[str]:
        return self.lagging

    def try_again(self, uuids: Collection[str]) -> None:
        self.tried.append(set(uuids))

    def knock(self, uuids: Collection[str], answer_s: float) -> Collection[str]:
        self.asked.append((list(uuids), answer_s))
        return set(uuids) - self.cut

    def on_return(self) -> None:
        self.returns += 1


def test_the_end_of_a_cut_is_noticed_by_the_next_knock() -> None:
    """However long it was. So it takes a pause and an answer, which are less than a second."""
    lab = Lab()
    lab.lagging = lab.cut = {"a", "b"}
    for _ in range(1000):
        assert lab.returning.round() == set()
    assert lab.tried == []
    lab.cut = {"b"}
    assert lab.returning.round() == {"a"}
    assert (lab.tried, lab.returns) == ([{"a"}], 1)
    assert 2 * PAUSE_S + sorted(ANSWER_S)[-2] <= 1.0


def test_nobody_is_asked_while_nobody_lags() -> None:
    lab = Lab()
    for _ in range(10):
        assert lab.returning.round() == set()
    assert lab.asked == []


def test_who_answers_and_refuses_is_left_to_the_pauses() -> None:
    """It is tried once, until it has been away again, and is asked now and then only."""
    lab = Lab()
    lab.lagging = {"a"}
    rounds = [len(lab.returning.round()) for _ in range(4 * ANSWERING_ROUNDS)]
    assert rounds == [1, *[0] * (4 * ANSWERING_ROUNDS - 1)]
    assert len(lab.asked) == 1 + 4
    lab.cut = {"a"}
    for _ in range(ANSWERING_ROUNDS):
        assert lab.returning.round() == set()
    lab.cut = set()
    assert lab.returning.round() == {"a"}
    assert lab.tried == [{"a"}, {"a"}]


def test_a_cut_shorter_than_a_pause() -> None:
    """The message failed, and the first knock is answered already."""
    lab = Lab()
    for _ in range(2):
        lab.lagging = {"a"}
        assert lab.returning.round() == {"a"}
        lab.lagging = set()
        assert lab.returning.round() == set()


def test_a_slow_node_gets_more_time_now_and_then() -> None:
    lab = Lab()
    lab.lagging = lab.cut = {"a"}
    for _ in range(8):
        lab.returning.round()
    assert [answer_s for _, answer_s in lab.asked] == [*ANSWER_S, *ANSWER_S]
    assert max(ANSWER_S) >= 3.0


def test_an_answer_is_any_but_none() -> None:
    """A refusal, such as of a node of another release, comes from a node which was reached."""

    class Runner:
        def call_together(
            self, questions: Sequence[Any], on_result: Callable[[Any, str, Result], None]
        ) -> list[dict[str, Result]]:
            ((call, uuids, args, _offline),) = questions
            assert (call.name, call.timeout_s, args) == (NODE_WORK.name, 0.5, {"revoke": []})
            failures: dict[str, Any] = {
                "away": errors.NodeUnreachable("away", call.name, "cut"),
                "refuses": errors.NodeCallFailed("refuses", call.name, "there is no such call"),
            }
            for uuid in uuids:
                on_result(call, uuid, Result(uuid, [], failure=failures.get(uuid)))
            return []

    runner: Any = Runner()
    assert knock(runner, ["away", "refuses", "well"], 0.5) == {"refuses", "well"}


def test_the_thread_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(returning, "PAUSE_S", 0.0)
    lab = Lab()
    lab.lagging = {"a"}
    done = threading.Event()
    lab.on_return = done.set  # type: ignore[method-assign]
    Returning([lab], lab.knock, done.set).start()
    assert done.wait(PATIENCE_S)
    lab.lagging = set()


# -- each kind of copies, whose own pause would last an hour ---------------------------------------


def test_a_copy_which_no_commit_waits_for() -> None:
    """Also not after the time in which more changes may be gathered."""
    sent = threading.Semaphore(0)
    failing = True

    def send_to(uuid: str) -> bool:
        sent.release()
        if failing:
            raise errors.NodeUnreachable(uuid, "audit_extend", "cut")
        return True

    copies = BackgroundCopies(
        Copied("the log", lambda: ["a"], send_to), gather_s=LONG_S, clock=lambda: 1000.0
    )
    copies.send()
    assert copies.unresponsive() == ["a"]
    copies.start()
    failing = False
    cycle = Returning([copies], lambda uuids, _answer_s: uuids)
    assert sent.acquire(timeout=PATIENCE_S), "the message before"
    assert cycle.round() == {"a"}
    assert sent.acquire(timeout=PATIENCE_S)
    until(lambda: copies.unresponsive() == [])
    copies.stop()


def test_the_configuration() -> None:
    data = cluster_of(3)
    got = threading.Condition()
    received: list[Distribution] = []
    failures: list[DistributionFailure] = []

    def send(message: Distribution) -> list[DistributionFailure]:
        with got:
            received.append(message)
            got.notify_all()
            return list(failures)

    store = ConfigStore(
        LocalFile("config.data", lambda _path, _text: None),
        data,
        distribute=send,
        catch_up_s=(LONG_S, LONG_S),
    )
    config = Config(store)
    (first, *_others) = config.other_candidates()
    failures = [DistributionFailure(first, CONFIG, "cut")]
    commit(config).instances.add(instance_of("web"), [], "ec")
    until(lambda: config.unresponsive() == [first])
    failures = []
    cycle = Returning([config], lambda uuids, _answer_s: uuids)
    assert cycle.round() == {first}
    until(lambda: config.lagging() == {} and config.unresponsive() == [])


def test_the_job_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    class Candidate:
        cut = True

        def candidates(self) -> list[str]:
            return ["one"]

        def update(self, uuid: str, _files: dict[str, str]) -> None:
            if self.cut:
                raise errors.NodeUnreachable(uuid, "jobqueue_update", "cut")

    candidate: Any = Candidate()
    here: Any = None
    monkeypatch.setattr(catch_up, "plan", lambda *_: CatchUpPlan(False, {}, [], [], None))
    replicator = replication.Replicator(
        replication.Candidates(candidate), here, retry_s=LONG_S, wait_s=LONG_S
    )
    replicator.start()
    replicator.send({"job-1": "one"}, [])
    until(lambda: replicator.unresponsive() == ["one"])
    candidate.cut = False
    cycle = Returning([replicator], lambda uuids, _answer_s: uuids)
    assert cycle.round() == {"one"}
    until(lambda: replicator.lagging() == [])
    replicator.stop()


def poll_in_a_thread(
    monkeypatch: pytest.MonkeyPatch, answers: list[str]
) -> tuple[MasterWitness, threading.Semaphore]:
    """Start the thread of the witness; the semaphore counts its polls, with these results."""
    polled = threading.Semaphore(0)

    def poll(_self: object) -> str:
        polled.release()
        return answers.pop(0)

    monkeypatch.setattr(MasterWitness, "poll", poll)
    nothing: Any = None
    master = MasterWitness(nothing, nothing, nothing)
    master.start()
    assert polled.acquire(timeout=PATIENCE_S)
    return master, polled


def test_a_witness_which_does_not_answer_is_asked_all_the_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert witness.RETRY_S <= 0.5
    caplog.set_level("INFO")
    monkeypatch.setattr(witness, "POLL_S", LONG_S)
    monkeypatch.setattr(witness, "RETRY_S", 0.0)
    master, polled = poll_in_a_thread(monkeypatch, ["no answer", "no answer", "", ""])
    assert polled.acquire(timeout=PATIENCE_S) and polled.acquire(timeout=PATIENCE_S)
    until(lambda: "the witness counts again" in caplog.text)
    assert not polled.acquire(blocking=False)
    master.stop()


def test_the_witness_is_looked_at_when_a_candidate_returns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(witness, "POLL_S", LONG_S)
    master, polled = poll_in_a_thread(monkeypatch, ["", "", ""])
    lab = Lab()
    lab.lagging = {"a"}
    Returning([lab], lab.knock, master.poll_soon).round()
    assert polled.acquire(timeout=PATIENCE_S)
    master.stop()


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition which another thread makes true."""

    def look() -> None:
        if not condition():
            raise retry.Again

    retry.until(look, timeout_s=PATIENCE_S, delay=(0.001, 1, 0.001))
