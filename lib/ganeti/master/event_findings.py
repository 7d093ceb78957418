"""The last findings of the cluster verification: which are new, and which have gone.

Each job of a verification checks the configuration or one node group. Its findings are compared
with those of the last job before it which checked the same. A job counts that has ended with
success and was submitted with ``error_codes``, as ``gnt-cluster verify`` does; one that simulates
errors never counts.

:meth:`KnownFindings.report` answers LUXI method ``QueryFindings``, an extension, with all of them.

The findings are kept in memory. A new master daemon reads them from the jobs which are still in the
queue (:meth:`KnownFindings.recover`); when there is none, every finding of the first verification
is new.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final, NamedTuple

from ganeti.constants.events import FINDING, GROUP
from ganeti.constants.job import LOG_MESSAGE
from ganeti.constants.verify import ALL_CODES
from ganeti.jqueue.job import SUCCESS, QueuedJob, QueuedOpCode
from ganeti.luxi.answers import FindingReport, VerifiedPart, VerifyReport
from ganeti.master.event_data import Find, Made
from ganeti.query.findings import Finding, parse_finding
from ganeti.utils.text import natural_key

APPEARED: Final = "appeared"
GONE: Final = "gone"

_CONFIG: Final = "OP_CLUSTER_VERIFY_CONFIG"
_GROUP: Final = "OP_CLUSTER_VERIFY_GROUP"
_MAX_TEXT: Final = 2000


class _Kept(NamedTuple):
    """A finding, and the end of the first of the successive verifications which found it."""

    finding: Finding
    since: float


class _Part(NamedTuple):
    """The last verification of the configuration or of a group: its job, its end, its findings."""

    job: int | None
    time: float
    found: dict[tuple[str, ...], _Kept]


_NOTHING: Final = _Part(None, 0.0, {})


class KnownFindings:
    """The findings of the last verification of each group, and of the configuration."""

    def __init__(self, find: Find) -> None:
        self._find = find
        # Name of the group, empty for the configuration -> findings. Each operation replaces one
        # entry, so no lock is needed.
        self._known: dict[str, _Part] = {}

    def recover(self, jobs: Iterable[QueuedJob]) -> None:
        """Learn the findings of jobs which have ended before this process began."""
        for job in sorted(jobs, key=lambda one: one.id):
            for op in job.ops:
                self._replace(op, job.id)

    def report(self, groups: Collection[str]) -> VerifyReport:
        """Return all findings, and when the configuration and these groups were verified.

        Errors come first.

        :param groups: the names of all groups.
        """
        parts: list[VerifiedPart] = []
        unchecked: list[str | None] = []
        findings: list[FindingReport] = []
        for name in ("", *sorted(groups, key=natural_key)):
            part, group = self._known.get(name), name or None
            if part is None or part.job is None:
                unchecked.append(group)
                continue
            reports = [_report(kept, part.job, group) for kept in part.found.values()]
            errors = sum(one["severity"] == "error" for one in reports)
            parts.append(
                {
                    "group": group,
                    "job": part.job,
                    "time": part.time,
                    "errors": errors,
                    "warnings": len(reports) - errors,
                }
            )
            findings += reports
        findings.sort(key=lambda one: (one["severity"], one["object"], natural_key(one["name"])))
        return {"parts": parts, "unchecked": unchecked, "findings": findings}

    def of_job(self, job: QueuedJob, now: float) -> Iterator[Made]:
        """Return the events for a job which has ended."""
        for op in job.ops:
            replaced = self._replace(op, job.id)
            if replaced is not None:
                before, found = replaced
                yield from self._changes(before, found, job.id, now)

    def forget_group(self, name: str, now: float) -> Iterator[Made]:
        """Return the events for a group which was removed: its findings have gone."""
        yield from self._changes(self._known.pop(name, _NOTHING), _NOTHING, None, now)

    def _replace(self, op: QueuedOpCode, job_id: int) -> tuple[_Part, _Part] | None:
        given = op.input
        if (
            given.get("OP_ID") not in (_CONFIG, _GROUP)
            or op.published.status != SUCCESS
            or not given.get("error_codes")
            or given.get("debug_simulate_errors")
            or given.get("dry_run")
        ):
            return None
        scope = ""
        if given["OP_ID"] == _GROUP:
            scope = self._find(GROUP, str(given.get("group_name"))).name
        before, end = self._known.get(scope, _NOTHING), op.published.end
        ended_at = 0.0 if end is None else end[0] + end[1] / 1e6
        found = {}
        for _serial, _when, kind, message in op.log:
            one = parse_finding(message) if kind == LOG_MESSAGE else None
            if one is not None and one.code in ALL_CODES:
                known = before.found.get(one.key())
                found[one.key()] = _Kept(one, ended_at if known is None else known.since)
        self._known[scope] = now = _Part(job_id, ended_at, found)
        return before, now

    def _changes(
        self, before: _Part, after: _Part, job_id: int | None, now: float
    ) -> Iterator[Made]:
        one, other = before.found, after.found
        for change, some, others in ((GONE, one, other), (APPEARED, other, one)):
            for key, (finding, _since) in some.items():
                if key not in others:
                    named = self._find(finding.kind, finding.name)
                    about = {"tags": sorted(named.tags), "groups": sorted(named.groups)}
                    yield FINDING, _shown(change, finding, job_id, now), about


def _shown(change: str, finding: Finding, job_id: int | None, now: float) -> dict[str, Any]:
    return {
        "change": change,
        "severity": finding.severity.lower(),
        "code": finding.code,
        "object": finding.kind,
        "name": finding.name,
        "text": finding.text[:_MAX_TEXT],
        "job": job_id,
        "timestamp": now,
    }


def _report(kept: _Kept, job_id: int, group: str | None) -> FindingReport:
    finding = kept.finding
    return {
        "severity": finding.severity.lower(),
        "code": finding.code,
        "object": finding.kind,
        "name": finding.name,
        "text": finding.text[:_MAX_TEXT],
        "group": group,
        "job": job_id,
        "since": kept.since,
    }
