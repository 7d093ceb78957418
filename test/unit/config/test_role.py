"""Counting votes: who may become master, and the reasons against."""

from __future__ import annotations

import pytest

from ganeti import errors
from ganeti.config import role
from ganeti.config.role import Ballot, Outcome, Standing
from ganeti.objects import MasterVote
from ganeti.platform.master_epoch import NONE, Epoch

E1, E2 = Epoch(1, "u1"), Epoch(2, "u2")


def standing(
    master: str = "n1",
    config: tuple[Epoch, int] = (E1, 5),
    jobs: tuple[Epoch, int] = (E1, 7),
    digest: str = "",
) -> Standing:
    return Standing(master, E1, config, jobs, digest)


def ballot(
    count: int, *, me: str = "n1", moving: bool = False, candidates: int | None = None
) -> Ballot:
    names = [f"n{number}" for number in range(1, count + 1)]
    return Ballot(me, frozenset(names), frozenset(names[:candidates]) | {me}, moving)


def judge(asked: Ballot, *answers: tuple[str, Standing]) -> role.Verdict:
    return role.judge(asked, dict(answers))


def test_a_single_node_confirms_itself() -> None:
    assert judge(ballot(1), ("n1", standing())).won


def test_two_nodes_need_both() -> None:
    assert judge(ballot(2), ("n1", standing()), ("n2", standing())).won
    verdict = judge(ballot(2), ("n1", standing()))
    assert verdict.outcome is Outcome.NO_QUORUM
    assert "only 1 of 2 nodes answer, 2 have to (no answer from n2)" in str(verdict)


def test_a_minority_may_be_unresponsive() -> None:
    assert judge(ballot(5), *[(f"n{n}", standing()) for n in (1, 3, 5)]).won
    assert not judge(ballot(5), *[(f"n{n}", standing()) for n in (1, 3)]).won


def test_a_quorum_of_the_candidates_too() -> None:
    """A majority of the nodes, but only one of three candidates: changes could be missed."""
    asked = ballot(7, candidates=3)
    verdict = judge(asked, *[(f"n{n}", standing()) for n in (1, 4, 5, 6)])
    assert verdict.outcome is Outcome.NO_QUORUM
    assert "1 of 3 master candidates" in str(verdict)
    assert judge(asked, *[(f"n{n}", standing()) for n in (1, 2, 4, 5)]).won


def test_own_node_daemon_is_unresponsive() -> None:
    verdict = judge(ballot(3), ("n2", standing()), ("n3", standing()))
    assert verdict.outcome is Outcome.NO_QUORUM
    assert "node daemon of n1 itself" in str(verdict)


@pytest.mark.parametrize(
    ("other", "word"),
    [
        (standing(config=(E1, 6)), "a newer configuration (6 of epoch 1)"),
        (standing(config=(E2, 4)), "a newer configuration (4 of epoch 2)"),
        (standing(jobs=(E1, 8)), "newer jobs (up to 8 of epoch 1)"),
        (standing(jobs=(E2, 8)), "newer jobs (up to 8 of epoch 2)"),
    ],
)
def test_somebody_has_something_newer(other: Standing, word: str) -> None:
    verdict = judge(ballot(3), ("n1", standing()), ("n2", standing()), ("n3", other))
    assert verdict.outcome is Outcome.STALE
    assert f"node n3 has {word}" in str(verdict)


@pytest.mark.parametrize(
    "other",
    [
        standing(config=(E1, 4)),
        standing(config=(NONE, 9)),
        standing(jobs=(NONE, 99)),
        standing(jobs=(E2, 7)),
        standing(config=(E2, 9), digest="same"),
    ],
)
def test_what_is_not_newer(other: Standing) -> None:
    """Of an epoch that is over, or the same content whoever wrote it."""
    assert judge(ballot(3), ("n1", standing(digest="same")), ("n3", other)).won


def test_another_master() -> None:
    verdict = judge(ballot(3), ("n1", standing()), ("n2", standing("n2")), ("n3", standing("n2")))
    assert (verdict.outcome, verdict.master) == (Outcome.OTHER_MASTER, "n2")
    assert "2 of 3 nodes take n2 for the master" in str(verdict)


def test_no_agreement() -> None:
    verdict = judge(ballot(3), ("n1", standing()), ("n2", standing("n2")), ("n3", standing("n3")))
    assert verdict.outcome is Outcome.NO_QUORUM
    assert "only 1 of 3 nodes take n1 for the master" in str(verdict)


def test_moving_needs_no_agreement() -> None:
    others = [("n1", standing("n9")), ("n2", standing("n9"))]
    assert judge(ballot(3, moving=True), *others).won
    assert not judge(ballot(3), *others).won


def test_promises() -> None:
    asked = ballot(3)
    good = {"n1": standing(), "n2": standing()}
    assert role.judge_promises(asked, good).won
    few = role.judge_promises(asked, {"n1": standing()})
    assert few.outcome is Outcome.NO_QUORUM
    assert "only 1 of 3 nodes promise" in str(few)
    own = role.judge_promises(asked, {"n2": standing(), "n3": standing()})
    assert own.outcome is Outcome.NO_QUORUM
    late = role.judge_promises(asked, {**good, "n2": standing(config=(E1, 6))})
    assert late.outcome is Outcome.STALE


def test_epochs() -> None:
    assert role.next_epoch("u", []) == Epoch(1, "u")
    assert role.next_epoch("u", [E2, NONE, E1]) == Epoch(3, "u")
    assert role.next_epoch("a", [E1]) < role.next_epoch("b", [E1])


def test_votes_are_read() -> None:
    vote = MasterVote(
        master="N1",
        epoch="3 u",
        config_epoch="2 u",
        config_serial=9,
        config_digest="d",
        queue_epoch="0",
        last_job=4,
    )
    assert role.standing(vote) == Standing("n1", Epoch(3, "u"), (Epoch(2, "u"), 9), (NONE, 4), "d")
    with pytest.raises(errors.ParseError):
        role.standing(
            MasterVote(
                master="n1",
                epoch="x",
                config_epoch="0",
                config_serial=9,
                config_digest="",
                queue_epoch="0",
                last_job=4,
            )
        )


@pytest.mark.parametrize("numbers", [(10**40, 1), (-1, 1), (1, 10**40), (1, -1)])
def test_numbers_which_no_master_gives_out(numbers: tuple[int, int]) -> None:
    serial, job = numbers
    vote = MasterVote(
        master="n1",
        epoch="3 u",
        config_epoch="2 u",
        config_serial=serial,
        config_digest="",
        queue_epoch="0",
        last_job=job,
    )
    with pytest.raises(errors.ParseError, match="out of range"):
        role.standing(vote)


def test_only_voters_decide_who_is_master() -> None:
    strangers = [("n8", standing("n9")), ("n9", standing("n9"))]
    own = [("n1", standing()), ("n2", standing())]
    assert judge(ballot(3), *own, *strangers).won
    split = [("n1", standing()), ("n2", standing("n2")), ("n3", standing("n3"))]
    friends = [("n8", standing()), ("n9", standing())]
    assert judge(ballot(3), *split, *friends).outcome is Outcome.NO_QUORUM
