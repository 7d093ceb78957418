"""Holding the vote about the master's role: asks the nodes, lets :mod:`ganeti.config.role` decide.

Used by the master daemon when it starts and by ``gnt-cluster master-failover``. Asking changes
nothing; promises are asked for only after a vote was won, because they end the present master.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from ganeti import errors
from ganeti.config import role
from ganeti.config.members import Members
from ganeti.config.role import Ballot, Outcome, Standing, Verdict
from ganeti.platform.master_epoch import NONE, Epoch, parse
from ganeti.rpc.results import Result
from ganeti.rpc.runner import AddressRunner
from ganeti.wire.calls import MASTER_CLAIM, MASTER_VOTE, Call

_log = logging.getLogger(__name__)

# Nodes that are just being started get so long to answer, asked so often.
PATIENCE_S = 10.0
PAUSE_S = 0.5


class Votes(NamedTuple):
    """What came back. ``failures``: why a node said nothing; ``known``: every epoch heard of."""

    answers: dict[str, Standing]
    failures: dict[str, str]
    known: tuple[Epoch, ...]


class Won(NamedTuple):
    """The role is ours. ``override``: without asking whether others agree."""

    epoch: Epoch
    promises: dict[str, Standing]
    override: bool


class Voting:
    """Vote and promises of one node that wants to be master.

    :param me: its name.
    :param members: the nodes, by its own configuration.
    :param ballot: whose majority is needed.
    """

    def __init__(self, runner: AddressRunner, me: str, members: Members, ballot: Ballot) -> None:
        self._runner = runner
        self._me = me
        self._members = members
        self.ballot = ballot

    def ask(self) -> Votes:
        """Ask all nodes for their vote; changes nothing."""
        return self._ask(MASTER_VOTE, self._members.nodes)

    def ask_patiently(
        self,
        patience_s: float = PATIENCE_S,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> tuple[Votes, Verdict]:
        """As :meth:`ask` until a quorum answers, for a while."""
        deadline = clock() + patience_s
        while True:
            votes = self.ask()
            verdict = role.judge(self.ballot, votes.answers)
            if verdict.outcome is not Outcome.NO_QUORUM or clock() >= deadline:
                return votes, verdict
            sleep(PAUSE_S)

    def claim(self, votes: Votes, *, override: bool = False) -> Won:
        """Take a new epoch and have it promised; nobody obeys an older master afterwards.

        Who did not vote is not asked again: a node that hangs would only hold this up. It hears of
        the epoch with the first call.

        :param override: go on without a quorum, and whatever the others have.
        :raises RoleNotWonError: too few promised, or somebody has something newer after all.
        """
        owner = self._members.nodes[self._me].uuid
        epoch = role.next_epoch(owner, votes.known)
        got = self._ask(MASTER_CLAIM, votes.answers, epoch=str(epoch))
        got.failures.update(
            {name: why for name, why in votes.failures.items() if name not in votes.answers}
        )
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
            raise RoleNotWonError(verdict, got.failures)
        _log.info("epoch %s promised by %s", epoch, ", ".join(sorted(got.answers)))
        return Won(epoch, got.answers, override)

    def _ask(self, call: Call, names: Iterable[str], **args: Any) -> Votes:
        answers: dict[str, Standing] = {}
        failures: dict[str, str] = {}
        known: list[Epoch] = [NONE]
        results: Mapping[str, Result] = self._runner.call_addresses(
            call, {name: self._members.nodes[name].primary_ip for name in names}, **args
        )
        for name, result in results.items():
            try:
                answers[name] = role.standing(result.payload())
                known.append(answers[name].epoch)
            except (errors.RpcError, errors.ParseError) as err:
                failures[name] = str(err)
                if isinstance(err, errors.NodeRefused) and err.known_epoch:
                    known.append(parse(err.known_epoch))
        return Votes(answers, failures, tuple(known))


class RoleNotWonError(errors.GenericError):
    """This node may not be the master; `verdict` says why, `failures` who did not answer why."""

    def __init__(self, verdict: Verdict, failures: Mapping[str, str] | None = None) -> None:
        super().__init__(str(verdict))
        self.verdict = verdict
        self.failures = dict(failures or {})

    def __str__(self) -> str:
        text = str(self.verdict)
        if self.verdict.outcome is Outcome.NO_QUORUM and self.failures:
            text += ". " + "; ".join(self.failures[name] for name in sorted(self.failures))
        return text


def start_ballot(me: str, members: Members) -> Ballot:
    """The question when the daemon starts: all nodes count, those marked offline too (seed 001)."""
    return Ballot(me, frozenset(members.nodes), members.candidates | {me})


def failover_ballot(me: str, members: Members, *, ignore_offline: bool) -> Ballot:
    """The question when the role is to be moved here.

    :param ignore_offline: nodes marked offline count neither way.
    """
    voters = members.online if ignore_offline else frozenset(members.nodes)
    return Ballot(me, voters | {me}, members.candidates | {me}, moving=True)
