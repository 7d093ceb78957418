"""Hold the vote about the master: ask the nodes; :mod:`ganeti.config.role` decides.

The master daemon uses this when it starts, and ``gnt-cluster master-failover`` does. Asking for
votes changes nothing; nodes are asked for promises only after a vote was won, because promises end
the role of the present master.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

from ganeti import errors
from ganeti.config import role
from ganeti.config.members import Members
from ganeti.config.role import Ballot, Outcome, Standing, Verdict
from ganeti.platform.master_epoch import NONE, Epoch, parse
from ganeti.replication.majority import WITNESS, has_quorum, with_witness
from ganeti.rpc.results import Result
from ganeti.rpc.runner import AddressRunner
from ganeti.rpc.witness import HigherEpoch, Witness, WitnessError, open_witness
from ganeti.wire.calls import MASTER_CLAIM, MASTER_VOTE, Call

_log = logging.getLogger(__name__)

# Seconds which nodes that are just being started get to answer, and the pause between two attempts.
PATIENCE_S = 10.0
PAUSE_S = 0.5
# Seconds for which a hasty vote waits for the other nodes when a majority has answered.
HASTE_S = 0.5
# Seconds for which the later questions of a hasty vote wait for the nodes which answered before.
# They are alive, and one of them may have data which no other node has.
LATER_HASTE_S = 3.0
# Seconds for which a hasty vote waits for the witness before it asks the nodes.
_WITNESS_FIRST_S = 1.0
_LOGGED_NAMES = 20


def _few(names: list[str]) -> str:
    """Return names for the log; with many nodes, the first ones and the number of the others."""
    more = len(names) - _LOGGED_NAMES
    return ", ".join(names[:_LOGGED_NAMES]) + (f" and {more} more" if more > 0 else "")


class Votes(NamedTuple):
    """The votes.

    :ivar answers: by name of the node.
    :ivar failures: the reason why a node did not vote, by name.
    :ivar known: all epochs in the answers.
    :ivar broken: the nodes which were reached and could not vote, by name: their disk is full, or
        they accept no certificate. They are not lost.
    """

    answers: dict[str, Standing]
    failures: dict[str, str]
    known: tuple[Epoch, ...]
    broken: frozenset[str] = frozenset()


class Won(NamedTuple):
    """The node is master.

    :ivar epoch: its epoch.
    :ivar promises: votes of the nodes which promised the epoch, by name; without the witness.
    :ivar witnessed: the witness has promised the epoch, too.
    :ivar override: the promises were not counted.
    """

    epoch: Epoch
    promises: dict[str, Standing]
    override: bool
    witnessed: bool = False


class Voting:
    """The votes and promises for one node which wants to become master.

    :param me: name of the node.
    :param members: the nodes in its configuration.
    :param ballot: the nodes of which a majority is needed.
    :param witness: the witness, if it is one of the voters.
    :param hasty: do not wait long for the other nodes when a majority has answered. A node which is
        switched off would delay each step by the time limit of a connection; the decision needs no
        more than a majority. A node which did not answer the question before, although a majority
        did, is not waited for at all then; those which did answer get more time.
    """

    def __init__(
        self,
        runner: AddressRunner,
        me: str,
        members: Members,
        ballot: Ballot,
        *,
        hasty: bool = False,
        witness: Witness | None = None,
    ) -> None:
        self._hasty = hasty
        self.witness = witness
        self._runner = runner
        self._me = me
        self._members = members
        self.ballot = ballot
        # After a question which a majority answered: the nodes which did, by name.
        self._responsive: frozenset[str] | None = None

    def ask(self) -> Votes:
        """Ask all nodes for their vote; this changes nothing."""
        return self._ask(MASTER_VOTE, self._members.nodes)

    def ask_patiently(
        self,
        patience_s: float = PATIENCE_S,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> tuple[Votes, Verdict]:
        """Ask all nodes for their vote again and again, until a quorum answers or the time is over.

        :param patience_s: time limit in seconds.
        """
        deadline = clock() + patience_s
        while True:
            votes = self.ask()
            verdict = role.judge(self.ballot, votes.answers)
            if verdict.outcome is not Outcome.NO_QUORUM or clock() >= deadline:
                return votes, verdict
            sleep(PAUSE_S)

    def claim(self, votes: Votes, *, override: bool = False) -> Won:
        """Choose a new epoch and let the nodes promise it; then they refuse calls of older masters.

        Nodes which did not vote are not asked again, because a node which hangs would only delay
        this. They get the epoch with the next call.

        :param override: go on without a quorum, and even if another node has newer copies.
        :raises RoleNotWonError: too few nodes promised, or one of them has newer copies.
        """
        epoch, got = self.promise(votes)
        if override:
            verdict = Verdict(Outcome.WON)
            if self._me not in got.answers:
                verdict = Verdict(
                    Outcome.NO_QUORUM,
                    (
                        f"the node daemon of {self._me} itself does not answer:"
                        f" {got.failures.get(self._me)}",
                    ),
                )
        else:
            verdict = role.judge_promises(self.ballot, got.answers)
        if not verdict.won:
            raise RoleNotWonError(verdict, got.failures, votes.broken | got.broken)
        _log.info("epoch %s promised by %s", epoch, _few(sorted(got.answers)))
        promises = {name: one for name, one in got.answers.items() if name != WITNESS}
        return Won(epoch, promises, override, WITNESS in got.answers)

    def promise(self, votes: Votes) -> tuple[Epoch, Votes]:
        """Let the nodes which voted promise a new epoch, without counting the promises."""
        epoch = role.next_epoch(self._members.nodes[self._me].uuid, votes.known)
        got = self._ask(MASTER_CLAIM, votes.answers, epoch=str(epoch))
        got.failures.update(
            {name: why for name, why in votes.failures.items() if name not in votes.answers}
        )
        return epoch, got

    def _ask(self, call: Call, names: Iterable[str], **args: Any) -> Votes:
        answers: dict[str, Standing] = {}
        failures: dict[str, str] = {}
        known: list[Epoch] = [NONE]
        broken = set()
        names = list(names)
        addresses = {
            name: self._members.nodes[name].primary_ip for name in names if name != WITNESS
        }
        witness = None
        if self.witness is not None and (call is MASTER_VOTE or WITNESS in names):
            epoch = parse(args["epoch"]) if "epoch" in args else None
            witness = _AskWitness(self.witness, epoch, self._me)
            if self._hasty:
                # Its answer may make further answers of nodes unnecessary.
                witness.wait(_WITNESS_FIRST_S)
        results: Mapping[str, Result]
        if self._hasty:
            results = self._runner.call_until(
                call, addresses, self._limit(addresses, witness), **args
            )
        else:
            results = self._runner.call_addresses(call, addresses, **args)
        # While too few have answered, the others may still be starting: they get time.
        self._responsive = (
            frozenset(
                name
                for name, result in results.items()
                if not isinstance(result.failure, errors.NodeUnreachable)
            )
            if self._enough(results, witness)
            else None
        )
        for name, result in results.items():
            try:
                answers[name] = role.standing(result.payload())
                known.append(answers[name].epoch)
            except (errors.RpcError, errors.ParseError) as err:
                failures[name] = str(err)
                if not isinstance(err, errors.NodeUnreachable):
                    broken.add(name)
                if isinstance(err, errors.NodeRefused) and err.known_epoch:
                    # What one node says must not end the vote.
                    with contextlib.suppress(errors.ParseError):
                        known.append(parse(err.known_epoch))
        if witness is not None:
            self._count_witness(witness, answers, failures, known)
        return Votes(answers, failures, tuple(known), frozenset(broken))

    def _count_witness(
        self,
        witness: _AskWitness,
        answers: dict[str, Standing],
        failures: dict[str, str],
        known: list[Epoch],
    ) -> None:
        """Add the answer of the witness, if it counts."""
        enough = has_quorum(answers, self.ballot.voters)
        witness.wait(HASTE_S if enough and self._hasty else None)
        if isinstance(witness.failure, HigherEpoch):
            known.append(witness.failure.known)
        if witness.answer is None:
            failures[WITNESS] = str(witness.failure or "the witness has not answered yet")
            return
        known.append(witness.answer.epoch)
        own = answers.get(self._me)
        if own is not None and not role.witness_counts(own, witness.answer):
            failures[WITNESS] = (
                "the document of the witness is older than the configuration of this node, so it"
                " does not count"
            )
            return
        answers[WITNESS] = witness.answer

    def _enough(self, results: Mapping[str, Result], witness: _AskWitness | None = None) -> bool:
        """Tell whether this node and a majority of both kinds have answered."""
        have = {name for name, result in results.items() if result.failure is None}
        if witness is not None and witness.answer is not None:
            have.add(WITNESS)
        return (
            self._me in have
            and has_quorum(have, self.ballot.voters)
            and has_quorum(have, self.ballot.candidates)
        )

    def _limit(
        self, asked: Collection[str], witness: _AskWitness | None = None
    ) -> Callable[[Mapping[str, Result]], float | None]:
        """Return a function which tells until when to wait for further answers.

        :param asked: the names of the nodes which are asked.
        """
        limit: list[float] = []
        responsive = self._responsive

        def until(results: Mapping[str, Result]) -> float | None:
            if not limit and self._enough(results, witness):
                wait_s = HASTE_S if responsive is None else LATER_HASTE_S
                limit.append(time.monotonic() + wait_s)
            if limit and responsive is not None and responsive.intersection(asked) <= set(results):
                return min(limit[0], time.monotonic())
            return limit[0] if limit else None

        return until


class _AskWitness:
    """A question to the witness, in a thread of its own.

    :param epoch: let it promise this epoch; None to ask for its vote.
    :ivar answer: its answer; None before, and without one.
    :ivar failure: the reason why there is none.
    """

    def __init__(self, witness: Witness, epoch: Epoch | None, me: str) -> None:
        self.answer: Standing | None = None
        self.failure: WitnessError | None = None
        self._witness = witness
        self._epoch = epoch
        self._me = me
        self._thread = threading.Thread(target=self._ask, name="ask-witness", daemon=True)
        self._thread.start()

    def wait(self, timeout_s: float | None) -> None:
        """Wait for the answer; the request has a time limit of its own."""
        self._thread.join(timeout_s)

    def _ask(self) -> None:
        try:
            if self._epoch is None:
                self.answer = self._witness.read().standing()
            else:
                self.answer = self._witness.promise(self._epoch, self._me)
        except WitnessError as err:
            self.failure = err


class RoleNotWonError(errors.GenericError):
    """This node may not become master.

    :ivar verdict: the reasons.
    :ivar failures: the reason why a node did not answer, by name.
    :ivar broken: as in :class:`Votes`.
    """

    def __init__(
        self,
        verdict: Verdict,
        failures: Mapping[str, str] | None = None,
        broken: Collection[str] = (),
    ) -> None:
        super().__init__(str(verdict))
        self.verdict = verdict
        self.failures = dict(failures or {})
        self.broken = frozenset(broken)

    def advice(self) -> str:
        """Return a hint for the lack of a quorum, which is empty for other outcomes."""
        if self.verdict.outcome is not Outcome.NO_QUORUM:
            return ""
        if self.broken:
            return (
                f"{', '.join(sorted(self.broken))} can be reached, so do not override the vote."
                " Repair what the message says, such as a full disk or a certificate, then try"
                " again."
            )
        return "When the other nodes are lost for good, --no-voting overrides this."

    def __str__(self) -> str:
        text = str(self.verdict)
        if self.verdict.outcome is Outcome.NO_QUORUM and self.failures:
            text += ". " + "; ".join(self.failures[name] for name in sorted(self.failures))
        return text


def start_ballot(me: str, members: Members) -> Ballot:
    """Return the ballot for the start of the master daemon: all nodes count, even offline ones.

    Source: Ganeti design 2.0, *Master startup/failover*.
    """
    witness = bool(members.witness)
    return Ballot(
        me,
        with_witness(members.nodes, witness=witness),
        with_witness(members.candidates | {me}, witness=witness),
    )


def failover_ballot(me: str, members: Members, *, ignore_offline: bool) -> Ballot:
    """Return the ballot for moving the role of the master to this node.

    :param ignore_offline: do not count nodes which are marked as offline.
    """
    voters = members.online if ignore_offline else frozenset(members.nodes)
    witness = bool(members.witness)
    return Ballot(
        me,
        with_witness(voters | {me}, witness=witness),
        with_witness(members.candidates | {me}, witness=witness),
        moving=True,
    )


def witness_of(members: Members, ballot: Ballot) -> Witness | None:
    """Return the witness if it is needed in a vote."""
    if WITNESS not in ballot.voters | ballot.candidates:
        return None
    return open_witness(members.witness, members.cluster)
