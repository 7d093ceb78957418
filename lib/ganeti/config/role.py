"""Who may be master: counting votes, choosing epochs, and when a change counts. Decides only.

The algorithm is that of seed 001, *Master startup/failover*: a *confirmation* of the role, no
election. A node becomes master when a quorum (half plus one) of the nodes answers, when among those
who answer nobody has a newer configuration or job queue, and, unless the role is just being moved,
when a quorum takes it for the master. It then takes an epoch higher than all that were heard of and
asks everybody to promise it; the promises tell once more what is there, now for good, because who
has promised takes nothing from an older master. Only with a quorum of promises it acts as master.

Two quorums are needed, and both are checked here:

* of the nodes: that is the design's own, and keeps a small part of a cluster from taking over;
* of the master candidates: a change counts when a majority of them has it (:func:`is_committed`),
  so a majority of them has to be heard, or a change that counts could be missed.

Why nothing that counts is lost: let a change be on a majority of the candidates under epoch *e*. A
later master holds promises of a majority too, so one node is in both. That node took the change
before it promised (afterwards it would have refused it), so its promise tells of it, and a node
with less does not become master. Its own state has the change, and all its later states are built
upon it. Copies are compared by (epoch, serial number), because a master that nobody listened to may
have counted on in its own files. Candidates come and go one at a time, and each change of them is
itself committed before the next; majorities of two such neighbours always meet.

``test/unit/config/test_role_model.py`` explores the whole protocol for three and five nodes.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ganeti.objects import MasterVote
from ganeti.platform.master_epoch import NONE, Epoch, parse


def majority(count: int) -> int:
    """Half plus one of so many."""
    return count // 2 + 1


def has_quorum(present: Collection[str], members: Collection[str]) -> bool:
    """Whether a majority of the members is present."""
    return len(set(present) & set(members)) >= majority(len(members))


def is_committed(have: Collection[str], candidates: Collection[str]) -> bool:
    """Whether a change counts that these nodes have.

    :param candidates: the master candidates that are online by the changed configuration.
    """
    return has_quorum(have, candidates)


class Standing(NamedTuple):
    """What one node has, and whom it obeys.

    ``digest`` is of the configuration's content: what is the same is not newer, whoever wrote it.
    """

    master: str
    epoch: Epoch
    config: tuple[Epoch, int]
    jobs: tuple[Epoch, int]
    digest: str = ""

    def has_newer_config(self, other: Standing) -> bool:
        """Whether the other one has not seen this configuration: compared by epoch, then serial."""
        return self.config > other.config and (not self.digest or self.digest != other.digest)

    def has_newer_jobs(self, other: Standing) -> bool:
        """Whether there are jobs here which the other one has not, and which count.

        Ids that were given away under an epoch which was over for the other one do not count.
        """
        return self.jobs[0] >= other.jobs[0] and self.jobs[1] > other.jobs[1]


def standing(vote: MasterVote) -> Standing:
    """Read a vote.

    :raises ParseError: an epoch in it is none.
    """
    return Standing(
        vote.master.lower(),
        parse(vote.epoch),
        (parse(vote.config_epoch), vote.config_serial),
        (parse(vote.queue_epoch), vote.last_job),
        vote.config_digest,
    )


class Outcome(enum.Enum):
    """What came of a vote."""

    WON = "won"
    #: Too few nodes answer; may be different a moment later.
    NO_QUORUM = "no quorum"
    #: Somebody has what this node has not.
    STALE = "stale"
    #: A quorum, or the newest epoch, belongs to another master.
    OTHER_MASTER = "other master"


@dataclass(frozen=True, slots=True)
class Ballot:
    """The question: may ``me`` become master?

    :ivar voters: names of the nodes whose majority is needed; ``me`` among them.
    :ivar candidates: names of the master candidates that are online.
    :ivar moving: the role is being moved here, so nobody has to take ``me`` for the master yet.
    """

    me: str
    voters: frozenset[str]
    candidates: frozenset[str]
    moving: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer, with all reasons against (a text each, about nodes by name)."""

    outcome: Outcome
    reasons: tuple[str, ...] = ()
    #: The master, when it is another one.
    master: str | None = None

    @property
    def won(self) -> bool:
        """Whether the node may become master."""
        return self.outcome is Outcome.WON

    def __str__(self) -> str:
        return "; ".join(self.reasons) or self.outcome.value


def judge(ballot: Ballot, answers: Mapping[str, Standing]) -> Verdict:
    """Count the votes.

    :param answers: what the nodes said that answered, by name; others count as silent.
    """
    missing = _missing(ballot, answers)
    own = answers.get(ballot.me)
    if own is None:
        return Verdict(
            Outcome.NO_QUORUM, (f"the node daemon of {ballot.me} itself does not answer", *missing)
        )
    newer = _newer(ballot.me, own, answers)
    other = None if ballot.moving else _other_master(ballot, answers)
    if other is not None:
        name, count = other
        return Verdict(
            Outcome.OTHER_MASTER,
            (f"{count} of {len(ballot.voters)} nodes take {name} for the master", *newer),
            name,
        )
    if newer:
        return Verdict(Outcome.STALE, newer)
    if missing:
        return Verdict(Outcome.NO_QUORUM, missing)
    if not ballot.moving:
        agreeing = [
            name
            for name, one in answers.items()
            if one.master == ballot.me and name in ballot.voters
        ]
        if len(agreeing) < majority(len(ballot.voters)):
            return Verdict(
                Outcome.NO_QUORUM,
                (
                    f"only {len(agreeing)} of {len(ballot.voters)} nodes take {ballot.me} for the"
                    f" master, {majority(len(ballot.voters))} have to",
                ),
            )
    return Verdict(Outcome.WON)


def _missing(ballot: Ballot, answers: Collection[str]) -> tuple[str, ...]:
    found = []
    for members, what in ((ballot.voters, "nodes"), (ballot.candidates, "master candidates")):
        if not has_quorum(answers, members):
            silent = ", ".join(sorted(members - set(answers)))
            found.append(
                f"only {len(members & set(answers))} of {len(members)} {what} answer,"
                f" {majority(len(members))} have to (no answer from {silent})"
            )
    return tuple(found)


def _newer(me: str, own: Standing, answers: Mapping[str, Standing]) -> tuple[str, ...]:
    found = []
    for name in sorted(answers):
        one = answers[name]
        if name != me and one.has_newer_config(own):
            found.append(
                f"node {name} has a newer configuration ({_version(one.config)}) than"
                f" {me} ({_version(own.config)})"
            )
        if name != me and one.has_newer_jobs(own):
            found.append(
                f"node {name} has newer jobs (up to {_version(one.jobs)}) than {me} (up to"
                f" {_version(own.jobs)})"
            )
    return tuple(found)


def _version(state: tuple[Epoch, int]) -> str:
    epoch, number = state
    return f"{number} of epoch {epoch.number}" if epoch != NONE else str(number)


def _other_master(ballot: Ballot, answers: Mapping[str, Standing]) -> tuple[str, int] | None:
    votes: dict[str, int] = {}
    for name, one in answers.items():
        if name in ballot.voters:
            votes[one.master] = votes.get(one.master, 0) + 1
    for name, count in votes.items():
        if name != ballot.me and count >= majority(len(ballot.voters)):
            return name, count
    return None


def next_epoch(owner: str, known: Iterable[Epoch]) -> Epoch:
    """An epoch above all that were heard of.

    :param owner: UUID of the node that becomes master.
    """
    return Epoch(max((epoch.number for epoch in known), default=0) + 1, owner)


def judge_promises(ballot: Ballot, promises: Mapping[str, Standing]) -> Verdict:
    """Count the promises to the new epoch, and look once more at what is there, now for good.

    :param promises: by name, of the nodes that promised.
    """
    missing = _missing(ballot, promises)
    if missing:
        return Verdict(
            Outcome.NO_QUORUM, tuple(reason.replace("answer", "promise") for reason in missing)
        )
    own = promises.get(ballot.me)
    if own is None:
        return Verdict(
            Outcome.NO_QUORUM, (f"the node daemon of {ballot.me} itself did not promise",)
        )
    newer = _newer(ballot.me, own, promises)
    if newer:
        return Verdict(Outcome.STALE, newer)
    return Verdict(Outcome.WON)
