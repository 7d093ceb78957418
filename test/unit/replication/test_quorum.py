"""Which nodes must have a change, where a witness is one of the members."""

from __future__ import annotations

import dataclasses

import pytest

from ganeti.config.role import NewerCopies, Standing, newer_copies
from ganeti.objects import ConfigData, updated
from ganeti.platform.master_epoch import NONE, Epoch
from ganeti.replication.majority import WITNESS, with_witness
from ganeti.replication.quorum import CommitQuorum
from test.unit.config.samples import node_of, small_cluster

URL = "https://witness.example.com/doc"


def cluster(*candidates: str, witness: str | None = URL) -> ConfigData:
    """A configuration with these candidates."""
    data = small_cluster()
    nodes = {name: dataclasses.replace(node_of(1), name=name, uuid=name) for name in candidates}
    return dataclasses.replace(
        data,
        nodes={
            name: dataclasses.replace(node, master_candidate=True, offline=False)
            for name, node in nodes.items()
        },
        cluster=updated(data.cluster, witness=witness),
    )


class Lab:
    def __init__(self) -> None:
        self.quorum = CommitQuorum()
        self.asked = 0
        self.failure: str | None = None
        self.quorum.use_witness(self.record)

    def record(self, data: ConfigData) -> str | None:
        self.asked += 1
        return self.failure

    def reached(self, data: ConfigData, *have: str) -> bool:
        return self.quorum.reached(data, set(have))


@pytest.fixture
def lab() -> Lab:
    return Lab()


def test_the_witness_is_asked_only_when_the_partner_lacks_a_change(lab: Lab) -> None:
    assert lab.reached(cluster("a", "b"), "a", "b")
    assert lab.asked == 0
    assert lab.reached(cluster("a", "b"), "a")
    assert lab.asked == 1
    lab.failure = "no answer"
    assert not lab.reached(cluster("a", "b"), "a")
    assert lab.quorum.failure == "no answer"
    assert lab.reached(cluster("a", "b"), "a", "b")


def test_a_state_is_recorded_once(lab: Lab) -> None:
    data = cluster("a", "b")
    assert lab.quorum.inform(data)
    assert lab.reached(data, "a")
    assert lab.asked == 1


def test_three_candidates_need_no_witness(lab: Lab) -> None:
    assert lab.reached(cluster("a", "b", "c"), "a", "b")
    assert not lab.reached(cluster("a", "b", "c"), "a")
    assert lab.asked == 0


def test_without_a_witness_nothing_changes(lab: Lab) -> None:
    assert not lab.reached(cluster("a", "b", witness=None), "a")
    assert lab.reached(cluster("a", witness=None), "a")
    assert lab.asked == 0


def test_the_last_candidate_informs_the_witness_once(lab: Lab) -> None:
    """Otherwise the witness could make the other node the master, which knows of no change."""
    assert lab.reached(cluster("a", "b"), "a", "b")
    lab.failure = "no answer"
    assert not lab.reached(cluster("a"), "a")
    assert not lab.quorum.is_alone(cluster("a"))
    lab.failure = None
    assert lab.reached(cluster("a"), "a")
    assert lab.quorum.is_alone(cluster("a"))
    lab.failure = "no answer"
    assert lab.reached(cluster("a"), "a")
    # The other one comes back, and must not be forgotten when it goes again.
    assert lab.reached(cluster("a", "b"), "a", "b")
    assert not lab.reached(cluster("a"), "a")


def test_a_third_candidate_is_a_change_of_the_members(lab: Lab) -> None:
    """The new node and the master are not a majority of those who decided before."""
    assert lab.reached(cluster("a", "b"), "a", "b")
    lab.failure = "no answer"
    assert not lab.reached(cluster("a", "b", "c"), "a", "c")
    assert lab.reached(cluster("a", "b", "c"), "a", "b")
    assert not lab.reached(cluster("a", "b"), "a")
    assert lab.reached(cluster("a", "b"), "a", "b")


def test_another_witness_needs_the_partner(lab: Lab) -> None:
    assert lab.reached(cluster("a", "b"), "a", "b")
    other = cluster("a", "b", witness=URL + "2")
    assert not lab.reached(other, "a")
    assert lab.reached(other, "a", "b")


def test_a_first_witness_needs_the_partner(lab: Lab) -> None:
    assert lab.reached(cluster("a", "b", witness=None), "a", "b")
    assert not lab.reached(cluster("a", "b"), "a")
    assert lab.reached(cluster("a", "b"), "a", "b")


def test_an_administrator_may_state_that_witness_and_partner_are_gone(lab: Lab) -> None:
    assert lab.reached(cluster("a", "b"), "a", "b")
    lab.failure = "no answer"
    assert not lab.reached(cluster("a"), "a")
    assert lab.reached(cluster("a", witness=None), "a")


def test_a_witness_has_no_data() -> None:
    """Nothing is fetched from it, and it counts for two only."""
    low, high = Epoch(3, "u"), Epoch(4, "u")
    own = Standing("a", low, (low, 5), (low, 1))
    other = Standing("a", low, (low, 6), (low, 2))
    knows = Standing("a", high, (high, 9), (high, 9))
    assert newer_copies("a", {"a": own, WITNESS: knows}) == NewerCopies(None, None)
    assert newer_copies("a", {"a": own, "b": other, WITNESS: knows}) == NewerCopies("b", "b")
    assert with_witness(["a", "b"], witness=True) == {"a", "b", WITNESS}
    assert with_witness(["a", "b"], witness=False) == {"a", "b"}
    assert with_witness(["a", "b", "c"], witness=True) == {"a", "b", "c"}
    assert NONE < low
