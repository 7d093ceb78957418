"""Which findings of the cluster verification are new, and which have gone.

Each job of a verification checks the configuration or one node group. Its findings are compared
with those of the last job before it which checked the same. A job counts that has ended with
success and was submitted with ``error_codes``, as ``gnt-cluster verify`` does; one that simulates
errors never counts.

The findings are kept in memory. A new master daemon reads them from the jobs which are still in the
queue (:meth:`KnownFindings.recover`); when there is none, every finding of the first verification
is new.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from ganeti.constants.events import FINDING, GROUP
from ganeti.constants.job import LOG_MESSAGE
from ganeti.constants.verify import ALL_CODES
from ganeti.jqueue.job import SUCCESS, QueuedJob, QueuedOpCode
from ganeti.master.event_data import Find, Made
from ganeti.query.findings import Finding, parse_finding

APPEARED: Final = "appeared"
GONE: Final = "gone"

_CONFIG: Final = "OP_CLUSTER_VERIFY_CONFIG"
_GROUP: Final = "OP_CLUSTER_VERIFY_GROUP"
_MAX_TEXT: Final = 2000

_Found = Mapping[tuple[str, ...], Finding]


class KnownFindings:
    """The findings of the last verification of each group, and of the configuration."""

    def __init__(self, find: Find) -> None:
        self._find = find
        # Name of the group, empty for the configuration -> findings. Each operation replaces one
        # entry, so no lock is needed.
        self._known: dict[str, _Found] = {}

    def recover(self, jobs: Iterable[QueuedJob]) -> None:
        """Learn the findings of jobs which have ended before this process began."""
        for job in sorted(jobs, key=lambda one: one.id):
            for op in job.ops:
                self._replace(op)

    def of_job(self, job: QueuedJob, now: float) -> Iterator[Made]:
        """Return the events for a job which has ended."""
        for op in job.ops:
            replaced = self._replace(op)
            if replaced is not None:
                before, found = replaced
                yield from self._changes(before, found, job.id, now)

    def forget_group(self, name: str, now: float) -> Iterator[Made]:
        """Return the events for a group which was removed: its findings have gone."""
        yield from self._changes(self._known.pop(name, {}), {}, None, now)

    def _replace(self, op: QueuedOpCode) -> tuple[_Found, _Found] | None:
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
        found = {}
        for _serial, _when, kind, message in op.log:
            one = parse_finding(message) if kind == LOG_MESSAGE else None
            if one is not None and one.code in ALL_CODES:
                found[one.key()] = one
        before, self._known[scope] = self._known.get(scope, {}), found
        return before, found

    def _changes(
        self, before: _Found, found: _Found, job_id: int | None, now: float
    ) -> Iterator[Made]:
        for change, one, other in ((GONE, before, found), (APPEARED, found, before)):
            for key, finding in one.items():
                if key not in other:
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
