"""The witness in the master daemon: informed, looked after, obeyed."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from fakes.config import cluster_of
from ganeti import errors
from ganeti.master import witness as witness_module
from ganeti.master.witness import MasterWitness
from ganeti.objects import ConfigData, MasterVote, updated
from ganeti.platform.master_epoch import Epoch
from ganeti.replication.quorum import CommitQuorum
from ganeti.rpc import Result
from ganeti.rpc.witness import HigherEpoch, WitnessError

EPOCH = Epoch(4, "uuid-1")
URL = "https://witness.example.com/d"
FIRST, SECOND = "node1.example.com", "node2.example.com"


class FakeWitness:
    """Notes what it is asked, or fails."""

    def __init__(self) -> None:
        self.url = URL
        self.failure: WitnessError | None = None
        self.lost = self.followed = False
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def _call(self, name: str, epoch: Epoch, master: str, **args: Any) -> None:
        assert (epoch, master) == (EPOCH, FIRST)
        if self.failure is not None:
            raise self.failure
        self.calls.append((name, args))

    def record(self, epoch: Epoch, master: str, **args: Any) -> None:
        self._call("record", epoch, master, **args)

    def renew(self, epoch: Epoch, master: str, **args: Any) -> bool:
        self._call("renew", epoch, master, **args)
        lost, self.lost = self.lost, False
        return lost

    def follow(self, other: object) -> None:
        self.followed = True

    def probe(self) -> None:
        self.calls.append(("probe", {}))


class Lab:
    """A master of two nodes; it stands for its configuration, its fence and its runner."""

    def __init__(self) -> None:
        self.data = self.with_witness(cluster_of(2))
        self.witness = FakeWitness()
        self.epoch = EPOCH
        self.newer_than: list[str] = []
        self.checks = 0
        self.behind: dict[str, frozenset[str]] = {}
        self.quorum = CommitQuorum()
        self.vote: MasterVote | errors.RpcError = MasterVote(
            master=FIRST,
            epoch=str(EPOCH),
            config_epoch=str(EPOCH),
            config_serial=self.data.serial_no,
            config_digest="",
            queue_epoch=str(EPOCH),
            last_job=7,
        )
        self.master = MasterWitness(
            self,  # type: ignore[arg-type]
            self,  # type: ignore[arg-type]
            self,  # type: ignore[arg-type]
            lambda: 7,
            opened=lambda _url, _cluster: self.witness,  # type: ignore[arg-type,return-value]
        )

    @staticmethod
    def with_witness(data: ConfigData) -> ConfigData:
        return dataclasses.replace(data, cluster=updated(data.cluster, witness=URL))

    # -- in place of the configuration, the fence and the runner ---------------------------------

    def snapshot(self) -> ConfigData:
        return self.data

    def lagging(self) -> dict[str, frozenset[str]]:
        return self.behind

    def is_alone(self) -> bool:
        return self.quorum.is_alone(self.data)

    def newer(self, node: str, known: str) -> None:
        self.newer_than.append(f"{node} {known}")

    def check(self) -> None:
        self.checks += 1

    def call_many(self, _call: Any, uuids: list[str]) -> dict[str, Result]:
        return {
            uuid: Result(uuid, failure=self.vote)
            if isinstance(self.vote, errors.RpcError)
            else Result(uuid, self.vote)
            for uuid in uuids
        }


@pytest.fixture
def lab() -> Lab:
    return Lab()


def test_it_is_informed_and_the_own_node_is_looked_at_again(lab: Lab) -> None:
    assert lab.master.record_config(lab.data) is None
    assert lab.master.record(9) is None
    assert lab.witness.calls == [
        ("record", {"config_serial": lab.data.serial_no, "last_job": 0}),
        ("record", {"config_serial": 0, "last_job": 9}),
    ]
    assert lab.checks == 2


def test_without_an_answer_there_is_a_reason(lab: Lab) -> None:
    lab.witness.failure = WitnessError("no answer")
    assert lab.master.record(9) == "no answer"
    assert lab.master.poll() == "no answer"
    assert lab.newer_than == []


def test_a_higher_epoch_ends_the_master(lab: Lab) -> None:
    lab.witness.failure = HigherEpoch(Epoch(5, "uuid-2"), SECOND)
    lab.master.record_config(lab.data)
    lab.master.poll()
    assert lab.newer_than == ["the witness 5 uuid-2"] * 2


def test_the_document_is_made_again_only_when_the_partner_agrees(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    good = lab.vote
    assert isinstance(good, MasterVote)
    for vote in (
        errors.NodeUnreachable(SECOND, "master_vote", "dead"),
        dataclasses.replace(good, epoch="5 uuid-2"),
        dataclasses.replace(good, config_serial=good.config_serial - 1),
        dataclasses.replace(good, last_job=6),
    ):
        lab.vote = vote
        lab.master.poll()
    lab.vote = good
    lab.behind = {node.uuid: frozenset() for node in lab.data.nodes.values()}
    lab.master.poll()
    assert [name for name, _ in lab.witness.calls] == ["record"] * 5
    lab.behind = {}
    lab.witness.lost = True
    assert lab.master.poll(touch=True) == ""
    assert lab.witness.calls[-1] == ("renew", {"touch": True})
    assert "written again" in caplog.text


def test_a_change_of_its_state_is_logged_once(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    for text in ("", "no answer", "no answer", "", ""):
        lab.master._say(text)
    assert caplog.text.count("does not count: no answer") == 1


def test_it_counts_for_two_candidates_only(lab: Lab) -> None:
    assert lab.master.needed()
    lab.data = lab.with_witness(cluster_of(3))
    assert not lab.master.needed()
    assert lab.master.poll() is None
    lab.data = cluster_of(2)
    assert not lab.master.needed()
    assert lab.master.poll() is None
    assert lab.master.record(9) == "the cluster has no witness"


def test_the_last_candidate_needs_it_until_it_knows(lab: Lab) -> None:
    lab.quorum.use_witness(lab.master.record_config)
    lab.data = lab.with_witness(cluster_of(1))
    assert lab.master.needed()
    assert lab.quorum.reached(lab.data, {lab.data.cluster.master_node})
    assert not lab.master.needed()


def test_a_server_is_tried_before_it_is_used(lab: Lab) -> None:
    lab.master.set_up(URL)
    assert [name for name, _ in lab.witness.calls] == ["renew", "probe"]


def test_a_document_is_not_made_without_the_partner(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have been promised to the partner, which is the master now."""
    monkeypatch.setattr(witness_module, "_PAUSE_S", 0.0)
    lab.vote = errors.NodeUnreachable(SECOND, "master_vote", "dead")
    lab.master.set_up(URL)
    assert [name for name, _ in lab.witness.calls] == ["record", "probe"]
    assert lab.witness.followed
