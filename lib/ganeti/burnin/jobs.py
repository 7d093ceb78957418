"""Submits the jobs of a step, waits for them, repeats what failed, and keeps their times."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from ganeti import errors
from ganeti.cli import failures, jobs
from ganeti.luxi import client as luxi
from ganeti.opcodes.base import OpCode

log = logging.getLogger("burnin")

_SOURCE: Final = "gnt:client:burnin"


class BurninError(errors.GenericError):
    """An error of this program, whose message is complete."""


def text_of(err: errors.GenericError) -> str:
    """Return an error in one line, as the user and the report get it."""
    if isinstance(err, (BurninError, errors.OpPrereqError, errors.OpExecError)):
        return str(err).replace("\n", " ")
    return failures.describe(err)[1].replace("\n", " ")


class JobsFailed(BurninError):
    """Jobs failed, and will not be submitted again.

    :ivar reasons: name of the object -> text of the error.
    """

    def __init__(self, reasons: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"{name}: {text}" for name, text in reasons.items()))
        self.reasons = dict(reasons)


@dataclasses.dataclass(slots=True)
class JobRecord:
    """One job which has ended, or was refused.

    :ivar job_id: None when the queue refused it.
    :ivar name: the object on which it worked.
    :ivar attempt: 1 for the first submission of this work.
    :ivar seconds: from its submission to its end; None when the job left no times.
    :ivar error: None when it succeeded.
    """

    job_id: int | None
    name: str
    attempt: int
    seconds: float | None
    error: str | None


@contextlib.contextmanager
def _interrupted_later() -> Iterator[None]:
    """Let an interrupt wait for the end of the block, so that each accepted job is known."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


class Runner:
    """Runs jobs for the steps.

    :param parallel: submit the jobs for all objects at once; otherwise one after the other.
    :param retries: how often a job that failed is submitted again.
    :param show: prints a line of a job's log; None for no printing.
    :ivar records: the jobs of the present step which have ended, in this order.
    """

    def __init__(
        self,
        client: luxi.Client,
        *,
        parallel: bool,
        retries: int,
        say: Callable[[str], None],
        show: Callable[[str], None] | None,
    ) -> None:
        self._client = client
        self._parallel = parallel
        self._retries = retries
        self._say = say
        self._show = show
        self._step = ""
        self._open: dict[int, str] = {}
        self.records: list[JobRecord] = []

    def begin(self, step: str) -> None:
        """Begin a step: forget the records of the one before.

        :param step: name of the step, for the reason of each job.
        """
        self._step = step
        self.records = []

    def run(
        self, work: Mapping[str, Sequence[OpCode]], *, repeatable: bool = True
    ) -> dict[str, list[Any]]:
        """Run a job for each object, and the jobs which such a job submits.

        :param work: name of the object -> opcodes of its job.
        :param repeatable: whether the same opcodes may be submitted again when the job failed.
        :returns: name of the object -> result of each opcode.
        :raises JobsFailed: jobs failed in all attempts; the others have ended, too.
        """
        results: dict[str, list[Any]] = {}
        remaining = dict(work)
        for attempt in range(1, 2 + (self._retries if repeatable else 0)):
            failed: dict[str, str] = {}
            for batch in self._batches(remaining):
                self._run_batch(batch, attempt, results, failed)
                if failed and attempt > self._retries:
                    break
            if not failed:
                return results
            remaining = {name: work[name] for name in work if name not in results}
            for name, text in failed.items():
                log.warning("%s: %s: attempt %d failed: %s", self._step, name, attempt, text)
                if repeatable and attempt <= self._retries:
                    self._say(f"   {name}: attempt {attempt} failed: {text}")
        raise JobsFailed(failed)

    def _batches(
        self, work: Mapping[str, Sequence[OpCode]]
    ) -> Iterator[dict[str, Sequence[OpCode]]]:
        if self._parallel and work:
            yield dict(work)
            return
        for name, opcodes in work.items():
            yield {name: opcodes}

    def _run_batch(
        self,
        batch: Mapping[str, Sequence[OpCode]],
        attempt: int,
        results: dict[str, list[Any]],
        failed: dict[str, str],
    ) -> None:
        """Submit jobs at once and wait for them; adds to the results and to the failures."""
        for opcodes in batch.values():
            for opcode in opcodes:
                opcode.reason = [[_SOURCE, self._step, time.time_ns()]]
        submitted = {}
        with _interrupted_later():
            rows = self._client.submit_many_jobs(list(batch.values()))
            for name, (accepted, value) in zip(batch, rows, strict=True):
                if accepted:
                    submitted[name] = int(value)
                    self._open[int(value)] = name
                else:
                    failed[name] = str(value)
                    self.records.append(JobRecord(None, name, attempt, None, str(value)))
        for name, job_id in submitted.items():
            try:
                results[name] = self._finish(job_id, name, attempt)
            except errors.LuxiError:
                raise
            except errors.GenericError as err:
                failed[name] = text_of(err)

    def _finish(self, job_id: int, name: str, attempt: int) -> list[Any]:
        """Wait for a job and those which it submits; returns the results of its opcodes.

        :raises GenericError: the error with which one of these jobs failed.
        """
        results = self._wait(job_id, name, attempt)
        children = [
            row
            for result in results
            if isinstance(result, Mapping)
            for row in result.get("jobs", ())
        ]
        self._open.update({int(value): name for accepted, value in children if accepted})
        for accepted, value in children:
            if not accepted:
                raise errors.OpExecError(f"a job was not accepted: {value}")
            self._wait(int(value), name, attempt)
        return results

    def _wait(self, job_id: int, name: str, attempt: int) -> list[Any]:
        """Wait for one job, and record it."""
        log.info("%s: %s: job %d", self._step, name, job_id)
        while True:
            try:
                values = jobs.follow_job(self._client, job_id, self._show or log.debug)
                break
            except errors.ConnectionClosedError as err:
                # The master daemon is being restarted. The job is in the queue, and the next
                # request waits until the daemon answers again, or fails.
                log.warning("%s: job %d: %s; asking again", self._step, job_id, err)
        record = JobRecord(job_id, name, attempt, self._seconds(job_id), None)
        self.records.append(record)
        self._open.pop(job_id, None)
        try:
            return jobs.job_result(job_id, values)
        except errors.LuxiError:
            raise
        except errors.GenericError as err:
            record.error = text_of(err)
            raise

    def _seconds(self, job_id: int) -> float | None:
        """Return the time from the submission of a job to its end."""
        (row,) = self._client.query_jobs([job_id], ["received_ts", "end_ts"])
        if row is None or None in row:
            return None
        (start_s, start_us), (end_s, end_us) = row
        return round(float(end_s - start_s + (end_us - start_us) / 1e6), 3)

    def stop(self) -> None:
        """Cancel the jobs which have not started, and wait for those which run.

        After an interrupt or an error: nothing that this program started goes on afterwards.
        """
        for job_id in list(self._open):
            with contextlib.suppress(errors.GenericError):
                self._client.cancel_job(job_id)
        for job_id, name in list(self._open.items()):
            self._say(f"   waiting for job {job_id} ({name}) to end")
            with contextlib.suppress(errors.JobLost):
                jobs.follow_job(self._client, job_id, log.debug)
            self._open.pop(job_id, None)
