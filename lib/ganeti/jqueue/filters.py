"""Filter rules: whether a worker may take up a job.

:class:`FilterChain` is pure: the rules in their order (priority, watermark, uuid). The first rule
which matches the job and whose action is not CONTINUE decides; without such a rule the job is
accepted.

============== ===================================================================================
ACCEPT         the job may run; no later rule is looked at
CONTINUE       the next rule is looked at
PAUSE          the job stays queued until the rules change
REJECT         the job is canceled, with the rule as the reason
RATE_LIMIT n   the job stays queued while n jobs which this rule decides about are at work
============== ===================================================================================

A job which a worker has taken up once is *at work* until it ends. The rules never stop it; but it
counts for a rate limit whose rule matches it, also if the rule is newer than the job.

:class:`FilterGate` records which jobs the rules keep back and which are at work. After the end of a
job, or a change of the rules, it names the jobs which may be tried again, those with the highest
priority first. It is guarded by the queue's lock.

Source: manual page **gnt-filter**.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ganeti import errors
from ganeti.constants import job as const
from ganeti.objects import FilterRule
from ganeti.query import job_rules

_log = logging.getLogger(__name__)

Ops = Sequence[Mapping[str, Any]]


class FilterVerdict(NamedTuple):
    """The decision of the rules on a job.

    :ivar action: ``ACCEPT``, ``PAUSE``, ``REJECT`` or ``RATE_LIMIT``.
    :ivar rule: the rule that decided; None when none did.
    :ivar limit: number of jobs under a rate limit, else 0.
    """

    action: str
    rule: FilterRule | None = None
    limit: int = 0

    @property
    def uuid(self) -> str:
        """The uuid of the rule; empty when none decided."""
        return "" if self.rule is None else self.rule.uuid


NO_RULE = FilterVerdict(const.FILTER_ACCEPT)


class FilterChain:
    """The rules in their order.

    A rule that cannot be applied is logged and left out, so that the queue can start;
    ``gnt-cluster verify`` reports it. The master accepts no such rule, but an administrator may
    have edited the configuration file.
    """

    def __init__(self, rules: Iterable[FilterRule] = ()) -> None:
        ordered = sorted(rules, key=lambda rule: (rule.priority, rule.watermark, rule.uuid))
        self._rules = []
        for rule in ordered:
            try:
                action, limit = parse_action(rule.action)
                matches = job_rules.compile_predicates(rule.predicates, rule.watermark)
            except errors.ParameterError as err:
                _log.error("filter rule %s is not applied: %s", rule.uuid, err)
                continue
            # A rule with CONTINUE decides nothing.
            if action != const.FILTER_CONTINUE:
                self._rules.append((matches, FilterVerdict(action, rule, limit)))

    def __bool__(self) -> bool:
        return bool(self._rules)

    def judge(self, job_id: int, ops: Ops) -> FilterVerdict:
        """Return the decision of the rules on a job with these opcodes."""
        for matches, verdict in self._rules:
            if matches(job_id, ops):
                return verdict
        return NO_RULE


def parse_action(action: Any) -> tuple[str, int]:
    """Return the name of a rule's action and its number (0 where it has none).

    :raises errors.ParameterError: no such action.
    """
    job_rules.check_action(action)
    return (action, 0) if isinstance(action, str) else (action[0], action[1])


def rejection(verdict: FilterVerdict) -> errors.JobCanceled:
    """Return the error with which a rejected job ends."""
    return errors.JobCanceled(f"rejected by {describe_rule(verdict.rule)}")


def describe_rule(rule: FilterRule | None) -> str:
    """Return the rule for people, with the reason which its author gave."""
    if rule is None:
        return "no filter rule"
    return f"filter rule {rule.uuid}{_reason_of(rule)}"


def _reason_of(rule: FilterRule) -> str:
    # Read like the reason trails of jobs: the configuration may have been edited.
    reasons = "; ".join(
        str(entry[1])
        for entry in rule.reason_trail
        if isinstance(entry, list | tuple)
        and len(entry) == 3
        and entry[0] == const.REASON_USER
        and entry[1]
    )
    return f" ({reasons})" if reasons else ""


class FilterGate:
    """Which jobs the rules keep back. Guarded by the queue's lock."""

    def __init__(self, rules: Iterable[FilterRule] = ()) -> None:
        self._chain = FilterChain(rules)
        self._at_work: dict[int, str] = {}
        self._count: dict[str, int] = {}
        self._held: dict[int, tuple[FilterVerdict, int]] = {}
        # Jobs held for a place under a rate limit, by rule; entries no longer in _held are skipped.
        self._lines: dict[str, list[tuple[int, int]]] = {}

    def __bool__(self) -> bool:
        """Whether there is any rule; without one every job may start."""
        return bool(self._chain)

    def set_rules(self, rules: Iterable[FilterRule], at_work: Iterable[tuple[int, Ops]]) -> None:
        """Use other rules; the caller releases held jobs and judges them anew.

        :param at_work: jobs that a worker has taken up and that have not ended.
        """
        self._chain = FilterChain(rules)
        self._at_work.clear()
        self._count.clear()
        for job_id, ops in at_work:
            self.enter(job_id, self.judge(job_id, ops))

    def judge(self, job_id: int, ops: Ops) -> FilterVerdict:
        """Return the decision of the rules on a job with these opcodes."""
        return self._chain.judge(job_id, ops) if self._chain else NO_RULE

    def has_free_place(self, verdict: FilterVerdict) -> bool:
        """Whether one more job may be at work under a rate limit."""
        return self._count.get(verdict.uuid, 0) < verdict.limit

    def enter(self, job_id: int, verdict: FilterVerdict) -> None:
        """Record that a worker has taken up the job."""
        if verdict.action == const.FILTER_RATE_LIMIT and job_id not in self._at_work:
            self._at_work[job_id] = verdict.uuid
            self._count[verdict.uuid] = self._count.get(verdict.uuid, 0) + 1

    def hold(self, job_id: int, priority: int, verdict: FilterVerdict) -> None:
        """Keep a job back: for a place under a rate limit, or until the rules change."""
        self._held[job_id] = (verdict, priority)
        if verdict.action == const.FILTER_RATE_LIMIT:
            heapq.heappush(self._lines.setdefault(verdict.uuid, []), (priority, job_id))

    def release(self, job_id: int) -> bool:
        """Keep a job back no longer; False when it was not kept back."""
        return self._held.pop(job_id, None) is not None

    def reprioritise(self, job_id: int, priority: int) -> None:
        """Give a job that is kept back another priority; any other job is left alone."""
        held = self._held.get(job_id)
        if held is not None:
            self.hold(job_id, priority, held[0])

    def ended(self, job_id: int) -> list[int]:
        """Record that a job ended, or does not use its place.

        :returns: the jobs which may be tried again, highest priority first. They are released; the
            caller holds those again which find no place.
        """
        self._held.pop(job_id, None)
        uuid = self._at_work.pop(job_id, None)
        if uuid is not None:
            self._count[uuid] -= 1
            if not self._count[uuid]:
                del self._count[uuid]
        freed: list[int] = []
        for uuid, line in list(self._lines.items()):
            places: int | None = None
            while line and (places is None or places > 0):
                priority, waiting = line[0]
                held = self._held.get(waiting)
                if held is None or held[1] != priority or held[0].uuid != uuid:
                    heapq.heappop(line)
                    continue
                if places is None:
                    places = held[0].limit - self._count.get(uuid, 0)
                    continue
                heapq.heappop(line)
                del self._held[waiting]
                freed.append(waiting)
                places -= 1
            if not line:
                del self._lines[uuid]
        return freed

    def held(self, job_id: int) -> FilterVerdict | None:
        """Return the verdict which keeps a job back; None when none does."""
        held = self._held.get(job_id)
        return None if held is None else held[0]

    def held_ids(self) -> list[int]:
        """Return the ids of all jobs that are kept back."""
        return sorted(self._held)

    def at_work_under(self, uuid: str) -> list[int]:
        """Return the ids of the jobs at work under the rate limit of a rule."""
        return sorted(job_id for job_id, rule in self._at_work.items() if rule == uuid)
