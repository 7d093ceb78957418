"""Filter rules: whether a worker may take up a job.

:class:`FilterChain` is pure: the rules in their order (priority, watermark, uuid). The first rule
which matches the job and whose action is not CONTINUE decides; without such a rule the job is
accepted.

============== ===================================================================================
ACCEPT         the job may run; no later rule is looked at
CONTINUE       the next rule is looked at
PAUSE          the job stays queued until the rules change
REJECT         the job is canceled, with the rule as the reason
RATE_LIMIT n   the job stays queued while n jobs which this rule decides about are running
============== ===================================================================================

A job whose reason trail has a reason ``rate-limit:N:LABEL`` is limited by it as by a rule
``RATE_LIMIT N``: at most N jobs with exactly this reason are running (manual page **ganeti**).
Several limits may hold for a job; it needs a place under each of them.

A job which a worker has taken up once is *running* until it ends. The rules never stop it; but it
counts for a rate limit whose rule matches it, also if the rule is newer than the job.

:class:`FilterGate` records which jobs the rules keep back and which are running. After the end of a
job, or a change of the rules, it names the jobs which may be tried again, those with the highest
priority first. It is guarded by the queue's lock.

Source: manual page **gnt-filter**.
"""

from __future__ import annotations

import heapq
import logging
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ganeti import errors
from ganeti.constants import job as const
from ganeti.objects import FilterRule
from ganeti.query import job_rules
from ganeti.utils import linear_re
from ganeti.utils.effort import Effort

_log = logging.getLogger(__name__)

Ops = Sequence[Mapping[str, Any]]

# Work of the regular expressions of all rules with one job, in steps: some tenths of a second.
_JOB_WORK = 500_000


class FilterVerdict(NamedTuple):
    """The decision of the rules on a job.

    :ivar action: ``ACCEPT``, ``PAUSE``, ``REJECT`` or ``RATE_LIMIT``.
    :ivar rule: the rule that decided; None when none did.
    :ivar limit: number of jobs under a rate limit, else 0.
    :ivar reason: the reason of the job which limits it; empty for the limit of a rule.
    :ivar further: the other rate limits which hold for the job.
    """

    action: str
    rule: FilterRule | None = None
    limit: int = 0
    reason: str = ""
    further: tuple[FilterVerdict, ...] = ()

    @property
    def uuid(self) -> str:
        """The uuid of the rule; empty when none decided."""
        return "" if self.rule is None else self.rule.uuid

    @property
    def key(self) -> str:
        """What the jobs under one rate limit share: the uuid of the rule, or the reason."""
        return self.uuid or self.reason

    @property
    def limits(self) -> tuple[FilterVerdict, ...]:
        """The rate limits which hold for the job, each as a verdict of its own."""
        if self.action != const.FILTER_RATE_LIMIT:
            return ()
        return (self._replace(further=()), *self.further)


NO_RULE = FilterVerdict(const.FILTER_ACCEPT)

#: A reason which limits its jobs. The length of the number is bounded, as no queue has more jobs.
_LIMITING_REASON = re.compile(r"rate-limit:0*([1-9][0-9]{0,8}):.+", re.ASCII | re.DOTALL)


def reason_limits(ops: Ops) -> tuple[FilterVerdict, ...]:
    """Return the rate limits which the reason trails of a job state, sorted by their reasons."""
    found = {}
    for entry in job_rules.reasons(ops):
        text = entry[1]
        if isinstance(text, str) and text.startswith("rate-limit:"):
            match = _LIMITING_REASON.fullmatch(text)
            if match is not None:
                found[text] = FilterVerdict(
                    const.FILTER_RATE_LIMIT, limit=int(match[1]), reason=text
                )
    return tuple(found[text] for text in sorted(found))


class FilterChain:
    """The rules in their order.

    A rule that cannot be applied is logged and left out, so that the queue can start;
    ``gnt-cluster verify`` reports it. The master accepts no such rule, but an administrator may
    have edited the configuration file.

    The work of all regular expressions with one job is limited. One which takes more is neither
    true nor false, and what depends on it does not match.
    """

    def __init__(self, rules: Iterable[FilterRule] = ()) -> None:
        ordered = sorted(rules, key=lambda rule: (rule.priority, rule.watermark, rule.uuid))
        self._rules = []
        self._effort = Effort(_JOB_WORK)
        budget = linear_re.Budget(self._effort)
        applied: list[Any] = []
        for rule in ordered:
            try:
                job_rules.check_rules([*applied, rule.predicates])
                action, limit = parse_action(rule.action)
                matches = job_rules.compile_predicates(rule.predicates, rule.watermark, budget)
            except errors.ParameterError as err:
                _log.error("filter rule %s is not applied: %s", rule.uuid, err)
                continue
            applied.append(rule.predicates)
            # A rule with CONTINUE decides nothing.
            if action != const.FILTER_CONTINUE:
                self._rules.append((matches, FilterVerdict(action, rule, limit)))

    def __bool__(self) -> bool:
        return bool(self._rules)

    def judge(self, job_id: int, ops: Ops) -> FilterVerdict:
        """Return the decision of the rules on a job with these opcodes."""
        self._effort.renew()
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


_NONE_GIVEN: Mapping[str, int] = {}


class FilterGate:
    """Which jobs rules and rate limits keep back. Guarded by the queue's lock."""

    def __init__(self, rules: Iterable[FilterRule] = ()) -> None:
        self._chain = FilterChain(rules)
        # The keys of the rate limits under which a job is running.
        self._running: dict[int, tuple[str, ...]] = {}
        self._count: dict[str, int] = {}
        # Verdict, priority, and the key of the limit for which the job waits.
        self._held: dict[int, tuple[FilterVerdict, int, str]] = {}
        # Jobs held for a place under a rate limit, by its key; entries which do not agree with
        # _held are skipped.
        self._lines: dict[str, list[tuple[int, int]]] = {}

    def set_rules(self, rules: Iterable[FilterRule], running: Iterable[tuple[int, Ops]]) -> None:
        """Use other rules; the caller releases held jobs and judges them anew.

        :param running: jobs that a worker has taken up and that have not ended.
        """
        self._chain = FilterChain(rules)
        self._running.clear()
        self._count.clear()
        for job_id, ops in running:
            self.enter(job_id, self.judge(job_id, ops))

    def judge(self, job_id: int, ops: Ops) -> FilterVerdict:
        """Return the decision on a job with these opcodes: of the rules, and of its reasons."""
        verdict = self._chain.judge(job_id, ops) if self._chain else NO_RULE
        if verdict.action in (const.FILTER_PAUSE, const.FILTER_REJECT):
            return verdict
        own = reason_limits(ops)
        if not own:
            return verdict
        if verdict.action == const.FILTER_RATE_LIMIT:
            return verdict._replace(further=own)
        return own[0]._replace(further=own[1:])

    def _places(self, limit: FilterVerdict) -> int:
        return limit.limit - self._count.get(limit.key, 0)

    def _full(
        self, verdict: FilterVerdict, given: Mapping[str, int] = _NONE_GIVEN
    ) -> FilterVerdict | None:
        """Return the first limit without a free place; None when the job may be running.

        :param given: places which were just given to other jobs, by the key of the limit.
        """
        return next(
            (one for one in verdict.limits if self._places(one) <= given.get(one.key, 0)), None
        )

    def has_free_place(self, verdict: FilterVerdict) -> bool:
        """Return True if one more job may be running under all limits of a verdict."""
        return self._full(verdict) is None

    def enter(self, job_id: int, verdict: FilterVerdict) -> None:
        """Record that a worker has taken up the job."""
        if verdict.limits and job_id not in self._running:
            keys = tuple(limit.key for limit in verdict.limits)
            self._running[job_id] = keys
            for key in keys:
                self._count[key] = self._count.get(key, 0) + 1

    def hold(self, job_id: int, priority: int, verdict: FilterVerdict) -> None:
        """Keep a job back: for a place under a rate limit, or until the rules change."""
        full = self._full(verdict)
        self._hold_for("" if full is None else full.key, job_id, priority, verdict)

    def _hold_for(self, key: str, job_id: int, priority: int, verdict: FilterVerdict) -> None:
        """Put a job into the line of a limit; no line for the empty key."""
        self._held[job_id] = (verdict, priority, key)
        if key:
            heapq.heappush(self._lines.setdefault(key, []), (priority, job_id))

    def release(self, job_id: int) -> bool:
        """Keep a job back no longer; False when it was not kept back."""
        return self._held.pop(job_id, None) is not None

    def reprioritise(self, job_id: int, priority: int) -> None:
        """Give a job that is kept back another priority; any other job is left alone."""
        held = self._held.get(job_id)
        if held is not None:
            self._hold_for(held[2], job_id, priority, held[0])

    def ended(self, job_id: int) -> list[int]:
        """Record that a job ended, or does not use its place.

        :returns: the jobs which may be tried again, highest priority first. They are released; the
            caller holds those which find no place again.
        """
        self._held.pop(job_id, None)
        for key in self._running.pop(job_id, ()):
            self._count[key] -= 1
            if not self._count[key]:
                del self._count[key]
        return self.take_ready()

    def take_ready(self) -> list[int]:
        """Release the jobs for which there is a place now, and return them.

        To be called when a place became free, and when a job that had been released is held again,
        because it then leaves its place under another limit to the next job.

        :returns: job ids, those with the highest priority first in each line. The caller holds
            those which find no place again.
        """
        freed: list[int] = []
        given: Counter[str] = Counter()
        for key, line in list(self._lines.items()):
            while line:
                priority, waiting = line[0]
                held = self._held.get(waiting)
                if held is None or held[1:] != (priority, key):
                    heapq.heappop(line)
                    continue
                verdict = held[0]
                full = self._full(verdict, given)
                if full is not None and self._places(_limit_of(verdict, key)) <= given[key]:
                    break
                heapq.heappop(line)
                if full is not None:
                    self._hold_for(full.key, waiting, priority, verdict)
                    continue
                del self._held[waiting]
                freed.append(waiting)
                given.update(limit.key for limit in verdict.limits)
            if not line:
                self._lines.pop(key, None)
        return freed

    def held(self, job_id: int) -> FilterVerdict | None:
        """Return the verdict which keeps a job back; None when none does.

        Of several rate limits, it is the one for which the job waits.
        """
        held = self._held.get(job_id)
        if held is None:
            return None
        verdict, _priority, key = held
        return _limit_of(verdict, key) if key else verdict

    def held_ids(self) -> list[int]:
        """Return the ids of all jobs that are kept back."""
        return sorted(self._held)

    def running_under(self, key: str) -> list[int]:
        """Return the ids of the jobs running under a rate limit, see :attr:`FilterVerdict.key`."""
        return sorted(job_id for job_id, keys in self._running.items() if key in keys)


def _limit_of(verdict: FilterVerdict, key: str) -> FilterVerdict:
    return next(limit for limit in verdict.limits if limit.key == key)
