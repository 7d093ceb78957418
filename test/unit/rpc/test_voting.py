"""Holding the vote: who is asked, how often, and what is made of the answers."""

from __future__ import annotations

import dataclasses
import time

import pytest

from fakes.config import cluster_of
from ganeti import errors
from ganeti.config.members import Members
from ganeti.config.role import Outcome, Standing
from ganeti.config.witness import Document
from ganeti.objects import MasterVote
from ganeti.platform.master_epoch import Epoch
from ganeti.replication.majority import WITNESS
from ganeti.rpc import Result
from ganeti.rpc.voting import (
    HASTE_S,
    LATER_HASTE_S,
    RoleNotWonError,
    Voting,
    failover_ballot,
    start_ballot,
)
from ganeti.rpc.witness import HigherEpoch, WitnessError

ME = "node1.example.com"


def vote(serial: int = 5, epoch: str = "3 u", master: str = ME) -> MasterVote:
    return MasterVote(
        master=master,
        epoch=epoch,
        config_epoch="3 u",
        config_serial=serial,
        config_digest=f"d{serial}",
        queue_epoch="3 u",
        last_job=1,
    )


class Nodes:
    """Nodes that answer as a test says: a vote or a failure; a list is one after another."""

    def __init__(self, members: Members) -> None:
        self.answers: dict[str, object] = {name: vote() for name in members.nodes}
        self.asked: list[tuple[str, dict[str, object]]] = []

    def call_addresses(self, call, addresses, **args):
        self.asked.append((call.name, args))
        results = {}
        for name in addresses:
            answer = self.answers[name]
            if isinstance(answer, list):
                answer = answer.pop(0) if len(answer) > 1 else answer[0]
            if isinstance(answer, errors.RpcError):
                results[name] = Result(name, failure=answer)
            else:
                results[name] = Result(name, answer)
        return results

    def call_until(self, call, addresses, until, **args):
        results = self.call_addresses(call, addresses, **args)
        until(results)
        return results


def members_of(count: int, **changes: dict[int, dict[str, object]]) -> Members:
    data = cluster_of(count, **changes)
    return Members(
        {node.name: node for node in data.nodes.values()}, data.cluster.master_node, data.serial_no
    )


@pytest.fixture
def members() -> Members:
    return members_of(3)


@pytest.fixture
def nodes(members: Members) -> Nodes:
    return Nodes(members)


@pytest.fixture
def voting(nodes: Nodes, members: Members) -> Voting:
    return Voting(nodes, ME, members, start_ballot(ME, members))


def unresponsive(name: str) -> errors.NodeUnreachable:
    return errors.NodeUnreachable(name, "master_vote", "no connection")


def test_won(voting: Voting, nodes: Nodes, members: Members) -> None:
    votes, verdict = voting.ask_patiently()
    assert verdict.won
    won = voting.claim(votes)
    assert won.epoch == Epoch(4, members.nodes[ME].uuid)
    assert nodes.asked == [("master_vote", {}), ("master_claim", {"epoch": str(won.epoch)})]


def test_patience(voting: Voting, nodes: Nodes) -> None:
    for number in (2, 3):
        name = f"node{number}.example.com"
        nodes.answers[name] = [unresponsive(name), unresponsive(name), vote()]
    pauses: list[float] = []
    _, verdict = voting.ask_patiently(sleep=pauses.append, clock=lambda: 0.0)
    assert verdict.won
    assert len(pauses) == 2


def test_patience_ends(voting: Voting, nodes: Nodes) -> None:
    for number in (2, 3):
        nodes.answers[f"node{number}.example.com"] = unresponsive(f"node{number}.example.com")
    times = iter([0.0, 1.0, 11.0])
    _, verdict = voting.ask_patiently(sleep=lambda _s: None, clock=lambda: next(times))
    assert verdict.outcome is Outcome.NO_QUORUM
    assert len(nodes.asked) == 2


def test_nobody_waits_for_the_impossible(voting: Voting, nodes: Nodes) -> None:
    nodes.answers["node2.example.com"] = vote(serial=6)
    _, verdict = voting.ask_patiently(sleep=lambda _s: pytest.fail("waited"))
    assert verdict.outcome is Outcome.STALE


def test_a_change_between_vote_and_promise(voting: Voting, nodes: Nodes) -> None:
    nodes.answers["node2.example.com"] = [vote(), vote(serial=6)]
    with pytest.raises(RoleNotWonError, match="newer configuration"):
        voting.claim(voting.ask())


def test_another_one_promised_meanwhile(voting: Voting, nodes: Nodes) -> None:
    for number in (2, 3):
        name = f"node{number}.example.com"
        nodes.answers[name] = [vote(), errors.NodeRefused(name, "master_claim", "obeys 9", "9 x")]
    with pytest.raises(RoleNotWonError, match="1 of 3 nodes promise.*obeys 9") as caught:
        voting.claim(voting.ask())
    assert caught.value.verdict.outcome is Outcome.NO_QUORUM


def test_the_epoch_of_who_refuses_counts(voting: Voting, nodes: Nodes) -> None:
    nodes.answers["node3.example.com"] = errors.NodeRefused(
        "node3.example.com", "master_vote", "", "12 x"
    )
    assert voting.claim(voting.ask()).epoch.number == 13


def test_override(voting: Voting, nodes: Nodes) -> None:
    for number in (2, 3):
        nodes.answers[f"node{number}.example.com"] = unresponsive(f"node{number}.example.com")
    assert voting.claim(voting.ask(), override=True).override
    nodes.answers[ME] = unresponsive(ME)
    with pytest.raises(RoleNotWonError, match="itself does not answer"):
        voting.claim(voting.ask(), override=True)


def test_who_counts() -> None:
    members = members_of(
        5,
        node_changes={
            4: {"offline": True, "master_candidate": False},
            5: {"master_candidate": False},
        },
    )
    names = [f"node{number}.example.com" for number in range(1, 6)]
    start = start_ballot(ME, members)
    assert start.voters == set(names)
    assert start.candidates == set(names[:3])
    assert failover_ballot(ME, members, ignore_offline=True).voters == set(names) - {names[3]}
    assert failover_ballot(ME, members, ignore_offline=False).voters == set(names)


@pytest.mark.parametrize("name", ["last_job", "config_serial"])
@pytest.mark.parametrize("number", [int("1" * 40), -1])
def test_a_damaged_number_of_one_node_is_not_believed(voting, nodes, name, number):
    """The file of one node must not keep all others from becoming master."""
    nodes.answers["node3.example.com"] = dataclasses.replace(vote(), **{name: number})
    votes, verdict = voting.ask_patiently(sleep=lambda _: None)
    assert verdict.won and "out of range" in votes.failures["node3.example.com"]
    assert voting.claim(votes).epoch.number == 4


def test_a_refusal_that_nobody_understands_ends_no_vote(voting, nodes):
    nodes.answers["node3.example.com"] = errors.NodeRefused(
        "node3.example.com", "master_vote", "obeys what", "nine x"
    )
    votes, verdict = voting.ask_patiently(sleep=lambda _: None)
    assert verdict.won and votes.known


def test_a_hasty_vote_waits_for_a_majority_only() -> None:
    """The limit is set when a majority of both kinds and this node itself have answered."""
    members = members_of(5)
    voting = Voting(None, ME, members, failover_ballot(ME, members, ignore_offline=True))  # type: ignore[arg-type]
    until = voting._limit(members.nodes)
    good = {name: Result(name, vote()) for name in members.nodes}
    others = [name for name in good if name != ME]
    assert until({name: good[name] for name in others}) is None
    failed = Result(ME, failure=errors.NodeUnreachable(ME, "master_vote", "down"))
    assert until({**{name: good[name] for name in others}, ME: failed}) is None
    assert until({name: good[name] for name in (ME, others[0])}) is None
    limit = until({name: good[name] for name in (ME, *others[:2])})
    assert limit is not None
    assert until(good) == limit, "later answers prolong nothing"


# -- a witness --------------------------------------------------------------------------------


class FakeWitness:
    """Answers as a test says."""

    def __init__(self) -> None:
        self.document = Document("c", 1, "n", ME, Epoch(3, "u"), (Epoch(3, "u"), 5))
        self.failure: WitnessError | None = None
        self.promised: list[tuple[Epoch, str]] = []

    def read(self) -> Document:
        if self.failure is not None:
            raise self.failure
        return self.document

    def promise(self, epoch: Epoch, master: str) -> Standing:
        if self.failure is not None:
            raise self.failure
        self.promised.append((epoch, master))
        self.document = self.document._replace(epoch=epoch, master=master)
        return self.document.standing()


@pytest.fixture
def pair() -> tuple[Nodes, FakeWitness, Voting]:
    """Two nodes with a witness, of which the other node is dead."""
    members = members_of(2)._replace(witness="https://w.example.com/d", cluster="c")
    nodes = Nodes(members)
    nodes.answers["node2.example.com"] = errors.NodeUnreachable("node2", "master_vote", "dead")
    witness = FakeWitness()
    ballot = failover_ballot(ME, members, ignore_offline=True)
    assert WITNESS in ballot.voters & ballot.candidates
    return nodes, witness, Voting(nodes, ME, members, ballot, hasty=True, witness=witness)


def test_a_witness_is_the_second_of_three(pair: tuple[Nodes, FakeWitness, Voting]) -> None:
    _nodes, witness, voting = pair
    votes, verdict = voting.ask_patiently(0)
    assert verdict.won
    won = voting.claim(votes)
    assert witness.promised == [(won.epoch, ME)]
    assert won.witnessed
    assert set(won.promises) == {ME}


def test_a_witness_without_an_answer_is_no_voter(pair: tuple[Nodes, FakeWitness, Voting]) -> None:
    nodes, witness, voting = pair
    witness.failure = WitnessError("the server is gone")
    votes, verdict = voting.ask_patiently(0)
    assert verdict.outcome is Outcome.NO_QUORUM
    assert "no answer from node2.example.com, the witness" in str(verdict)
    assert votes.failures[WITNESS] == "the server is gone"
    nodes.answers["node2.example.com"] = vote()
    assert voting.ask_patiently(0)[1].won


def test_a_witness_knows_what_the_other_node_has(pair: tuple[Nodes, FakeWitness, Voting]) -> None:
    _nodes, witness, voting = pair
    witness.document = witness.document._replace(config=(Epoch(3, "u"), 6))
    verdict = voting.ask_patiently(0)[1]
    assert verdict.outcome is Outcome.STALE
    assert "according to the witness, the other node has a newer configuration" in str(verdict)


def test_a_witness_with_an_older_document_does_not_count(
    pair: tuple[Nodes, FakeWitness, Voting],
) -> None:
    _nodes, witness, voting = pair
    witness.document = witness.document._replace(epoch=Epoch(2, "u"))
    votes, verdict = voting.ask_patiently(0)
    assert verdict.outcome is Outcome.NO_QUORUM
    assert "older than the configuration of this node" in votes.failures[WITNESS]


def test_a_witness_obeys_another_master(pair: tuple[Nodes, FakeWitness, Voting]) -> None:
    """Between vote and promise: the promise is refused, and the next attempt takes a higher one."""
    _nodes, witness, voting = pair
    votes = voting.ask()
    witness.failure = HigherEpoch(Epoch(9, "v"), "node2")
    with pytest.raises(RoleNotWonError):
        voting.claim(votes)
    assert max(voting.ask().known).number == 9


def test_a_hasty_vote_waits_once_for_a_node_without_an_answer(members: Members) -> None:
    """Each further step of a failover would take longer by the same time."""
    nodes = Nodes(members)
    lost = "node2.example.com"
    nodes.answers[lost] = unresponsive(lost)
    voting = Voting(
        nodes, ME, members, failover_ballot(ME, members, ignore_offline=True), hasty=True
    )
    have = {name: Result(name, data) for name, data in nodes.answers.items() if name != lost}
    before = time.monotonic()
    first = voting._limit(members.nodes)(have)
    assert first is not None
    assert first >= before + HASTE_S
    voting.ask()
    second = voting._limit(members.nodes)(have)
    assert second is not None
    assert second <= time.monotonic()


def test_a_node_which_has_answered_gets_time_for_the_next_answer(members: Members) -> None:
    """It may be the former master, and have jobs which no other node has."""
    nodes = Nodes(members)
    voting = Voting(
        nodes, ME, members, failover_ballot(ME, members, ignore_offline=True), hasty=True
    )
    voting.ask()
    late = "node2.example.com"
    until = voting._limit(members.nodes)
    before = time.monotonic()
    limit = until({name: Result(name, vote()) for name in members.nodes if name != late})
    assert limit is not None
    assert limit >= before + LATER_HASTE_S
    ended = until({name: Result(name, vote()) for name in members.nodes})
    assert ended is not None
    assert ended <= time.monotonic()


def test_nodes_which_are_starting_get_time_in_a_hasty_vote(members: Members) -> None:
    """Without a majority, nobody knows which nodes are lost."""
    nodes = Nodes(members)
    late = "node2.example.com"
    for number in (2, 3):
        nodes.answers[f"node{number}.example.com"] = unresponsive(f"node{number}.example.com")
    voting = Voting(
        nodes, ME, members, failover_ballot(ME, members, ignore_offline=True), hasty=True
    )
    voting.ask()
    have = {name: Result(name, vote()) for name in members.nodes if name != late}
    before = time.monotonic()
    limit = voting._limit(members.nodes)(have)
    assert limit is not None
    assert limit >= before + HASTE_S
