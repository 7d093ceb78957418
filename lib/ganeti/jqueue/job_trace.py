"""The spans of a job and of its opcodes (:mod:`ganeti.utils.tracing`).

The span of a job begins when the job is received, and ends when the job has ended. Its parent is
the request which submitted the job, or the opcode which did. The parent is kept in the job file, so
that a job which waits while the master daemon is restarted still belongs to the trace of its
command. Below the job are a span for the time in the queue, and one for each opcode.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ganeti.jqueue import job as jobs
from ganeti.utils import tracing
from ganeti.wire import errors as wire_errors


def _ns(time: jobs.Timestamp | None) -> int | None:
    return None if time is None else time[0] * 1_000_000_000 + time[1] * 1000


def _begin_job(job: jobs.QueuedJob) -> None:
    """Begin the span of a job, if it has none in this process."""
    if job.span is not tracing.NOTHING:
        return
    job.span = tracing.begin(
        f"job {job.ops[0].input.get('OP_ID') if job.ops else ''}",
        tracing.CONSUMER,
        job.trace,
        _ns(job.received),
        ganeti_job_id=job.id,
    )


@contextlib.contextmanager
def opcode(job: jobs.QueuedJob, op: jobs.QueuedOpCode) -> Iterator[None]:
    """Record the execution of an opcode; its span is the current one in the block."""
    if not tracing.active():
        yield
        return
    _begin_job(job)
    parent = job.span.traceparent
    if op is job.ops[0]:
        tracing.begin("queued", parent=parent, at_ns=_ns(job.received)).end(
            at_ns=_ns(op.state.start)
        )
    name = str(op.input.get("OP_ID"))
    span = tracing.begin(
        name, parent=parent, at_ns=_ns(op.state.start), ganeti_job_id=job.id, ganeti_opcode=name
    )
    with span.current():
        yield
    span.set(ganeti_status=op.state.status)
    span.end(_error_of(op))


def ended(job: jobs.QueuedJob) -> None:
    """End the span of a job which has ended."""
    if not tracing.active():
        return
    _begin_job(job)
    job.span.set(ganeti_status=job.status)
    failed = next((op for op in job.ops if op.state.status == jobs.ERROR), None)
    job.span.end("" if failed is None else _error_of(failed), _ns(job.state.end))
    job.span = tracing.NOTHING


def _error_of(op: jobs.QueuedOpCode) -> str:
    if op.state.status != jobs.ERROR:
        return ""
    return str(wire_errors.decode(op.state.result) or op.state.result)
