"""When a node may feed its hardware watchdog: pure functions, explored by a model.

A node may feed its device for the time of the lease after it asked the master candidates, if a
majority of them answered that it is not left behind. The master decides to leave a node behind by a
change of the configuration, which a majority of the candidates has. So one of those which the node
asks later knows it. The list of candidates may have changed, too; therefore each answer names the
candidates of its configuration, and a majority of each of these lists has to answer. Candidates are
added and removed one at a time, so two lists which follow each other have no separate majorities.

``test/unit/watchdogd/test_rule_model.py`` explores the whole protocol.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ganeti import errors
from ganeti.constants import node_watchdog as const

_MAX_CANDIDATES = 10_000


class Opinion(NamedTuple):
    """The answer of one candidate.

    :ivar candidates: primary addresses of the master candidates in its configuration.
    :ivar left: the configuration says that the node is left behind, or does not know the node.
    :ivar age_s: seconds for which the answer may already have been outdated when it was given.
    """

    candidates: frozenset[str]
    left: bool
    age_s: float


class Verdict(NamedTuple):
    """What the answers to one question mean.

    :ivar allowed: the node may feed its device.
    :ivar age_s: seconds between the begin of the lease and the question.
    :ivar reason: why it may not feed the device.
    :ivar candidates: the smallest number of candidates which an answer names; 0 without answers.
    """

    allowed: bool
    age_s: float
    reason: str
    candidates: int


def parse_opinion(answer: Any) -> Opinion:
    """Read the answer of a configuration query daemon.

    :raises ParseError: it has not the form of an answer.
    """
    if not isinstance(answer, dict):
        raise errors.ParseError("the answer is not an object")
    found, left, age_s = (answer.get(name) for name in ("candidates", "left", "age_s"))
    if (
        not isinstance(found, list)
        or not 0 < len(found) <= _MAX_CANDIDATES
        or not all(isinstance(one, str) for one in found)
    ):
        raise errors.ParseError("the answer names no candidates")
    if not isinstance(left, bool):
        raise errors.ParseError("the answer does not say whether the node is left behind")
    # Comparing first: a number of hundreds of digits is not a float.
    if isinstance(age_s, bool) or not isinstance(age_s, int | float) or not 0 <= age_s <= 1e6:
        raise errors.ParseError("the answer has no age")
    return Opinion(frozenset(found), left, float(age_s))


def judge(opinions: Mapping[str, Opinion]) -> Verdict:
    """Return whether these answers let the node feed its device.

    :param opinions: address of a candidate -> its answer.
    """
    if not opinions:
        return Verdict(False, 0.0, "no master candidate answers", 0)
    fewest = min(len(one.candidates) for one in opinions.values())
    if any(one.left for one in opinions.values()):
        return Verdict(False, 0.0, "the cluster has left this node behind", fewest)
    for listed in {one.candidates for one in opinions.values()}:
        answered = len(listed & opinions.keys())
        if answered * 2 <= len(listed):
            reason = f"only {answered} of {len(listed)} master candidates answer"
            return Verdict(False, 0.0, reason, fewest)
    return Verdict(True, max(one.age_s for one in opinions.values()), "", fewest)


class Lease:
    """The time until which the device may be fed. It reads no clock."""

    def __init__(self) -> None:
        self._until = float("-inf")

    def take(self, asked_at: float, verdict: Verdict) -> None:
        """Take in the result of a question which was asked at some time."""
        if verdict.allowed:
            self._until = max(self._until, asked_at - verdict.age_s + const.LEASE_S)

    def is_valid(self, now: float) -> bool:
        """Tell whether the device may be fed now."""
        return now < self._until


def peers(listed: Iterable[str], opinions: Mapping[str, Opinion]) -> frozenset[str]:
    """Return the addresses to ask next.

    :param listed: those which the files of the node name, which may be outdated.
    :param opinions: the last answers.
    """
    return frozenset(listed).union(*(one.candidates for one in opinions.values()))
