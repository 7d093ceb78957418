"""Holding the vote: who is asked, how often, and what is made of the answers."""

from __future__ import annotations

import dataclasses

import pytest

from fakes.config import cluster_of
from ganeti import errors
from ganeti.config.members import Members
from ganeti.config.role import Outcome
from ganeti.objects import MasterVote
from ganeti.platform.master_epoch import Epoch
from ganeti.rpc import Result
from ganeti.rpc.voting import RoleNotWonError, Voting, failover_ballot, start_ballot

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
