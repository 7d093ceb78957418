"""Jobs, and how to wait for them."""

# ruff: noqa: N802 - the names of methods are published

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from .constants import JOB_STATUS_FINALIZED, JOB_STATUS_SUCCESS
from .transport import Transport, options


class Jobs(Transport):
    """Jobs, and how to wait for them."""

    def GetJobs(self, bulk: bool = False) -> list[Any]:
        """Return the numbers of the jobs, or whole objects."""
        found = self._list("jobs", "id", bulk, None)
        return list(found) if bulk else [int(job) for job in found]

    def GetJobStatus(self, job_id: int | str) -> dict[str, Any]:
        """Return a job."""
        return dict(self._get(self._path("jobs", job_id)))

    def WaitForJobCompletion(self, job_id: int | str, period: float = 5, retries: int = -1) -> bool:
        """Poll a job until it has ended.

        :param period: seconds between two requests.
        :param retries: number of requests, -1 for no limit.
        :returns: whether the job succeeded; False also when it has not ended by then.
        """
        while retries != 0:
            status = self.GetJobStatus(job_id)["status"]
            if status == JOB_STATUS_SUCCESS:
                return True
            if status in JOB_STATUS_FINALIZED:
                return False
            if period:
                time.sleep(period)
            if retries > 0:
                retries -= 1
        return False

    def WaitForJobChange(
        self,
        job_id: int | str,
        fields: Sequence[str],
        prev_job_info: Sequence[Any] | None,
        prev_log_serial: int | None,
        timeout: int | None = None,
    ) -> dict[str, Any] | None:
        """Wait some seconds for a change of a job; return None without a change.

        :param timeout: longest time in seconds; the server may wait shorter.
        """
        found: dict[str, Any] | None = self._get(
            self._path("jobs", job_id, "wait"),
            options(timeout=timeout),
            {
                "fields": fields,
                "previous_job_info": prev_job_info,
                "previous_log_serial": prev_log_serial,
            },
        )
        return found

    def CancelJob(
        self, job_id: int | str, dry_run: bool = False, kill: bool | None = None
    ) -> list[Any]:
        """Cancel a job; return whether it is canceled, and a sentence.

        :param kill: also end a running job whose process can be ended.
        """
        return list(self._delete(self._path("jobs", job_id), options(dry_run=dry_run, kill=kill)))

    def ExecuteBatch(
        self,
        operations: Sequence[Mapping[str, Any]],
        check: str = "all",
        reason: str | None = None,
    ) -> list[dict[str, Any]]:
        """Carry out several operations in one request; return the answer to each.

        :param operations: dictionaries with ``method`` and ``path``, and, where needed, ``query``,
            ``body``, ``id``, and ``after``: ids of operations whose jobs must have succeeded
            before this one begins.
        :param check: ``all``: when one operation is refused, nothing is changed, and this method
            raises its error; ``each``: the others are carried out.
        :returns: dictionaries with ``id``, ``status`` (of HTTP) and ``body``, in the same order.
        """
        body: dict[str, Any] = {"operations": list(operations), "check": check}
        return list(self._post(self._path("batch"), options(reason), body))
