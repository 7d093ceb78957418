"""Decide which node may be master: count votes, choose epochs, define when a change is committed.

These are pure functions; :mod:`ganeti.rpc.voting` asks the nodes. The algorithm is that of Ganeti
design 2.0, *Master startup/failover*: a *confirmation* of the role, not an election. A node becomes
master when a quorum of the nodes answers (a majority of all), when no node which answers has a
newer configuration or job queue, and, unless the role is just being moved, when a quorum regards it
as the master. The node then chooses an epoch higher than all known ones and asks all nodes to
promise it. With its promise, a node says again which copies it has. This is now definite, because a
node which has promised an epoch accepts nothing from an older master. The node acts as master only
when a quorum has promised.

Two quorums are needed, and both are checked here:

* of the nodes: this is the quorum of the design, and keeps a small part of a cluster from taking
  over;
* of the master candidates: a change is committed when a majority of them has it
  (:func:`.has_quorum`), so a majority of them has to answer, or a committed change could be
  missed.

Why no committed change is lost: let a change be on a majority of the candidates under epoch *e*. A
later master has promises of a majority, too, so one node is in both majorities. That node received
the change before it promised (afterwards it would have refused it), so its promise names the
change, and a node which lacks it does not become master. The state of the new master has the
change, and all its later states are built upon it. Copies are compared by (epoch, serial number),
because a master without a quorum may have increased the serial number in its own files. Master
candidates are added and removed one at a time, and each such change is committed before the next;
two majorities, one before and one after such a change, always have a node in common.

``test/unit/config/test_role_model.py`` explores the whole protocol for three and five nodes.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ganeti import errors, ht
from ganeti.objects import MasterVote
from ganeti.platform.master_epoch import NONE, Epoch, parse
from ganeti.replication.majority import WITNESS, has_quorum, majority

# Every change adds one: a higher serial number is that of a damaged file.
_MAX_SERIAL = 1 << 62


class Standing(NamedTuple):
    """The vote of one node, decoded.

    :ivar master: name of the node which it regards as master.
    :ivar epoch: the epoch which it has promised.
    :ivar config: epoch and serial number of its copy of the configuration.
    :ivar jobs: epoch and last job ID of its copy of the job queue.
    :ivar digest: digest of the content of the configuration. Equal contents are equally new, even
        if epoch and serial number differ.
    """

    master: str
    epoch: Epoch
    config: tuple[Epoch, int]
    jobs: tuple[Epoch, int]
    digest: str = ""

    def has_newer_config(self, other: Standing) -> bool:
        """Tell whether this configuration is newer, by epoch, then by serial number."""
        return self.config > other.config and (not self.digest or self.digest != other.digest)

    def has_newer_jobs(self, other: Standing) -> bool:
        """Tell whether there are committed jobs here which the other node does not have.

        Job IDs which were assigned under an epoch older than that of the other node do not count.
        """
        return self.jobs[0] >= other.jobs[0] and self.jobs[1] > other.jobs[1]


def standing(vote: MasterVote) -> Standing:
    """Decode a vote.

    :raises ParseError: an epoch in it cannot be read, or a number is none that a master gives out.
    """
    if not (0 <= vote.config_serial <= _MAX_SERIAL and 0 <= vote.last_job <= ht.MAX_JOB_ID):
        raise errors.ParseError(
            f"serial number {vote.config_serial:.6g} or job id {vote.last_job:.6g} is out of range"
        )
    return Standing(
        vote.master.lower(),
        parse(vote.epoch),
        (parse(vote.config_epoch), vote.config_serial),
        (parse(vote.queue_epoch), vote.last_job),
        vote.config_digest,
    )


class Outcome(enum.Enum):
    """Result of a vote."""

    WON = "won"
    #: Too few nodes answer; more may answer a moment later.
    NO_QUORUM = "no quorum"
    #: Another node has a newer configuration or newer jobs.
    STALE = "stale"
    #: A quorum, or the newest epoch, belongs to another master.
    OTHER_MASTER = "other master"


@dataclass(frozen=True, slots=True)
class Ballot:
    """The question whether the node ``me`` may become master.

    :ivar voters: names of the nodes of which a majority is needed; ``me`` is one of them.
    :ivar candidates: names of the master candidates which are online.
    :ivar moving: the role is being moved to ``me``, so no node has to regard it as master yet.
    """

    me: str
    voters: frozenset[str]
    candidates: frozenset[str]
    moving: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer, with all reasons against it, a text each, which names the nodes."""

    outcome: Outcome
    reasons: tuple[str, ...] = ()
    #: Name of the master, if another node is master.
    master: str | None = None

    @property
    def won(self) -> bool:
        """Tell whether the node may become master."""
        return self.outcome is Outcome.WON

    def __str__(self) -> str:
        return "; ".join(self.reasons) or self.outcome.value


def judge(ballot: Ballot, answers: Mapping[str, Standing]) -> Verdict:
    """Count the votes.

    :param answers: the votes of the nodes which answered, by name.
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
            unresponsive = ", ".join(sorted(members - set(answers)))
            found.append(
                f"only {len(members & set(answers))} of {len(members)} {what} answer,"
                f" {majority(len(members))} have to (no answer from {unresponsive})"
            )
    return tuple(found)


def _newer(me: str, own: Standing, answers: Mapping[str, Standing]) -> tuple[str, ...]:
    found = []
    for name in sorted(answers):
        one = answers[name]
        if name != me and one.has_newer_config(own):
            found.append(
                f"{_who(name)} has a newer configuration ({_version(one.config)}) than"
                f" {me} ({_version(own.config)})"
            )
        if name != me and one.has_newer_jobs(own):
            found.append(
                f"{_who(name)} has newer jobs (up to {_version(one.jobs)}) than {me} (up to"
                f" {_version(own.jobs)})"
            )
    return tuple(found)


def _who(name: str) -> str:
    return "according to the witness, the other node" if name == WITNESS else f"node {name}"


class NewerCopies(NamedTuple):
    """The nodes which have the newest copies, by name; None where this node itself has it."""

    config: str | None
    jobs: str | None


def newer_copies(me: str, answers: Mapping[str, Standing]) -> NewerCopies:
    """Return the nodes from which this node can get what it lacks; a witness has no data.

    :param answers: the votes of the nodes which answered, this node among them.
    """
    own = answers[me]
    others = sorted(name for name in answers if name not in (me, WITNESS))
    config = [name for name in others if answers[name].has_newer_config(own)]
    jobs = [name for name in others if answers[name].has_newer_jobs(own)]
    return NewerCopies(
        max(config, key=lambda name: answers[name].config, default=None),
        max(jobs, key=lambda name: answers[name].jobs, default=None),
    )


def with_newest(me: str, answers: Mapping[str, Standing]) -> dict[str, Standing]:
    """Return the votes as they would be if this node had the newest copies."""
    newer = newer_copies(me, answers)
    own = answers[me]
    if newer.config is not None:
        one = answers[newer.config]
        own = own._replace(config=one.config, digest=one.digest)
    if newer.jobs is not None:
        own = own._replace(jobs=answers[newer.jobs].jobs)
    return {**answers, me: own}


def witness_counts(own: Standing, witness: Standing) -> bool:
    """Tell whether the answer of a witness counts in a vote.

    A document which is older than the configuration of this node was restored from a backup, or has
    not been written for long. It may not know which changes another node has made.
    """
    return witness.epoch >= own.config[0]


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
    """Return an epoch above all known ones.

    :param owner: UUID of the node which becomes master.
    """
    return Epoch(max((epoch.number for epoch in known), default=0) + 1, owner)


def judge_promises(ballot: Ballot, promises: Mapping[str, Standing]) -> Verdict:
    """Count the promises of the new epoch, and compare the copies of all nodes again.

    :param promises: the votes of the nodes which promised, by name.
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
