"""A job and its opcodes: states, legal moves, the job file, the fields which clients read.

A job is a list of opcodes, executed one after the other. The states (Ganeti design 2.0, *Job
Queue*) and the moves between them stand in :data:`LEGAL_MOVES` alone; :meth:`QueuedOpCode.move`
makes a move and refuses all others. The state of a job is derived from those of its opcodes.

Each job and each opcode holds its state twice: ``state`` is the present one, ``published`` the
committed one which clients see. Both are immutable, so a snapshot of a job for a commit copies only
references. Log entries are not committed one by one; clients see them at once.

Nothing here locks. A job is changed with the lock of its :class:`~ganeti.jqueue.table.JobTable`
held.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from ganeti import errors, ht, opcodes
from ganeti.constants import job as const
from ganeti.opcodes.base import COMMON_PARAMS, OpCode
from ganeti.utils import states, tracing
from ganeti.wire import errors as wire_errors
from ganeti.wire import json

QUEUED = const.STATUS_QUEUED
WAITING = const.STATUS_WAITING
CANCELING = const.STATUS_CANCELING
RUNNING = const.STATUS_RUNNING
CANCELED = const.STATUS_CANCELED
SUCCESS = const.STATUS_SUCCESS
ERROR = const.STATUS_ERROR

FINALIZED = const.FINALIZED
# Taken up by a worker and not finished.
ACTIVE = frozenset((WAITING, CANCELING, RUNNING))

LEGAL_MOVES: dict[str, frozenset[str]] = {
    # An opcode ends from "queued" when an earlier one failed, a dependency did not end as wanted,
    # or the job was canceled in time.
    QUEUED: frozenset((WAITING, CANCELED, ERROR)),
    # Back to "queued" when the daemon ends before the job has got its locks, or when the job could
    # not begin for a reason outside of it.
    WAITING: frozenset((QUEUED, RUNNING, CANCELING, CANCELED, ERROR)),
    RUNNING: frozenset((CANCELING, CANCELED, SUCCESS, ERROR)),
    # "success": a running opcode was finished before it came to a point where it could stop.
    CANCELING: frozenset((CANCELED, SUCCESS, ERROR)),
    CANCELED: frozenset(),
    SUCCESS: frozenset(),
    ERROR: frozenset(),
}

# The end of the year 9999.
_LAST_SECOND = 253402300799

Timestamp = tuple[int, int]
LogEntry = tuple[int, Timestamp, str, Any]


class OpState(NamedTuple):
    """The changing part of an opcode. Times are ``(seconds, microseconds)`` since the epoch."""

    status: str = QUEUED
    result: Any = None
    start: Timestamp | None = None
    exec: Timestamp | None = None
    end: Timestamp | None = None
    priority: int = 0


class JobState(NamedTuple):
    """The changing part of a job besides its opcodes."""

    start: Timestamp | None = None
    end: Timestamp | None = None
    livelock: str | None = None
    process_id: int | None = None


class JobSnapshot(NamedTuple):
    """An unchangeable view of a job, for a commit."""

    job: QueuedJob
    state: JobState
    ops: tuple[OpState, ...]
    log_lengths: tuple[int, ...]


class QueuedOpCode:
    """One opcode of a job.

    :ivar input: the parameters with ``OP_ID``, as in the job file.
    :ivar log: entries ``(serial, time, type, message)``; only grows.
    :ivar state: the present state.
    :ivar published: the state which clients see.
    """

    __slots__ = ("_input_text", "_op", "_summary", "input", "log", "published", "state")

    def __init__(self, input_: dict[str, Any], op: OpCode | None = None) -> None:
        self.input = input_
        self._op = op
        self._input_text: str | None = None
        self._summary: str | None = None
        self.state = OpState()
        self.published = self.state
        self.log: list[LogEntry] = []

    @classmethod
    def from_opcode(cls, op: OpCode) -> QueuedOpCode:
        """Make the opcode of a submission; secret values stay in memory and are never written."""
        created = cls(op.to_dict(redact="secret"), op)
        created.state = created.published = OpState(priority=op.priority)
        return created

    def opcode(self) -> OpCode:
        """Return the opcode to execute.

        It was validated when the job was submitted; one that was read from a file is validated
        here.

        :raises errors.OpCodeUnknown: the file was written by another version.
        :raises errors.OpPrereqError: the parameters in the file are not valid, or secrets are lost
            because the master was restarted.
        """
        if self._op is None:
            op = opcodes.from_dict(self.input)
            lost = [
                name
                for name, declared in op.PARAMS.items()
                if declared.type.hidden == "secret" and _has_redacted(self.input.get(name))
            ]
            if lost:
                raise errors.OpPrereqError(
                    f"secret values of {', '.join(lost)} are kept in memory only and were lost when"
                    " the master was restarted. Submit the job again.",
                    errors.ECODE_STATE,
                )
            # The submission checked this opcode, but the file may have been changed since then.
            self._op = op.validate()
        return self._op

    def drop_opcode(self) -> None:
        """Forget the opcode object, and the secrets in it, because the opcode has ended."""
        self._op = None

    def move(self, status: str, **changes: Any) -> None:
        """Change the status, and with it other parts of the state.

        :raises errors.ProgrammerError: the move is not legal.
        """
        what = f"opcode {self.input.get('OP_ID')}"
        status = states.moved(LEGAL_MOVES, self.state.status, status, what)
        self.state = self.state._replace(status=status, **changes)

    def summary(self) -> str:
        """Return one line for job lists; it also exists for opcodes of other versions."""
        if self._summary is None:
            try:
                self._summary = (self._op or opcodes.from_dict(self.input)).summary()
            except (errors.GenericError, ArithmeticError, TypeError, ValueError):
                # The parameters come from a file, and nothing has validated them.
                self._summary = str(self.input.get("OP_ID", "")).removeprefix("OP_")
        return self._summary

    def public_input(self) -> dict[str, Any]:
        """Return the parameters without private and secret values, for clients."""
        try:
            cls = opcodes.lookup(str(self.input.get("OP_ID")))
        except errors.GenericError:
            return self.input
        hidden = [name for name, declared in cls.PARAMS.items() if declared.type.hidden]
        if not hidden:
            return self.input
        return {
            name: ht.redact(value) if name in hidden else value
            for name, value in self.input.items()
        }

    def input_text(self) -> str:
        """Return the parameters as JSON; the text is kept, because parameters do not change."""
        if self._input_text is None:
            self._input_text = json.dumps(self.input)
        return self._input_text

    def drop_text(self) -> None:
        """Free the text of :meth:`input_text`; a finished job is rarely written again."""
        self._input_text = None

    def set_priority(self, priority: int) -> None:
        """Change the priority of an unfinished opcode."""
        self.state = self.state._replace(priority=priority)


def _has_redacted(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_redacted, value.values()))
    if isinstance(value, list):
        return any(map(_has_redacted, value))
    return bool(value == ht.REDACTED)


class QueuedJob:
    """A job in memory.

    :ivar next_log_serial: log entries are numbered through all opcodes of a job, from 1.
    :ivar cancel_reason: why the job is to stop; None when no client canceled it.
    :ivar new: its first commit is under way, so clients do not see it yet.
    :ivar trace: the ``traceparent`` of the span which submitted the job; empty without one.
    :ivar span: the span of the job itself, while it is recorded (:mod:`.job_trace`).
    :ivar archived: it was read from the archive, or is being moved there.
    """

    __slots__ = (
        "archived",
        "cancel_reason",
        "id",
        "new",
        "next_log_serial",
        "ops",
        "received",
        "published",
        "span",
        "state",
        "trace",
    )

    def __init__(self, job_id: int, ops: list[QueuedOpCode], received: Timestamp | None) -> None:
        self.id = job_id
        self.ops = ops
        self.received = received
        self.state = self.published = JobState()
        self.next_log_serial = 1
        self.cancel_reason: str | None = None
        self.new = False
        self.archived = False
        self.trace = ""
        self.span: tracing.Span = tracing.NOTHING

    # -- state -----------------------------------------------------------------------------------

    @property
    def status(self) -> str:
        """The present state."""
        return status_of(op.state.status for op in self.ops)

    @property
    def published_status(self) -> str:
        """The state which clients see."""
        return status_of(op.published.status for op in self.ops)

    @property
    def finalized(self) -> bool:
        """True if the job has ended; perhaps that is not committed yet."""
        return self.status in FINALIZED

    @property
    def at_rest(self) -> bool:
        """True if clients see the present state, so that it is on disk, too."""
        return self.state is self.published and all(op.state is op.published for op in self.ops)

    @property
    def taken_up(self) -> bool:
        """True if a worker has begun with the job at some time."""
        return any(op.state.status != QUEUED for op in self.ops)

    @property
    def inputs(self) -> list[dict[str, Any]]:
        """The parameters of the opcodes, as filter rules see them."""
        return [op.input for op in self.ops]

    @property
    def priority(self) -> int:
        """The highest priority (lowest number) among the unfinished opcodes; 0 without any."""
        return priority_of(op.state for op in self.ops)

    def current(self) -> QueuedOpCode | None:
        """Return the first opcode which has not ended; None when all have ended."""
        for op in self.ops:
            if op.state.status not in FINALIZED:
                return op
        return None

    def end_rest(self, status: str, error: BaseException, now: Timestamp) -> None:
        """End every unfinished opcode with this status, and with the error as its result."""
        result = wire_errors.encode(error)
        for op in self.ops:
            if op.state.status not in FINALIZED:
                op.move(status, result=result, end=now)
                op.drop_opcode()

    def fail(self, op: QueuedOpCode, error: BaseException, now: Timestamp) -> None:
        """End an opcode with an error as its result."""
        result = wire_errors.encode(error)
        try:
            json.dumps(result)
        except errors.ProgrammerError:
            # An argument of the error is an object, which no file and no message can hold.
            result = ["OpExecError", [str(error)]]
        op.move(ERROR, result=result, end=now)
        op.drop_opcode()

    def cancellation(self) -> errors.JobCanceled:
        """Return the error with which the job is canceled."""
        return errors.JobCanceled(self.cancel_reason or "canceled by request")

    def add_log(self, op: QueuedOpCode, kind: str, message: Any, now: Timestamp) -> None:
        """Append a log entry."""
        op.log.append((self.next_log_serial, now, kind, message))
        self.next_log_serial += 1

    # -- commit ----------------------------------------------------------------------------------

    def snapshot(self) -> JobSnapshot:
        """Return the job as it is now."""
        return JobSnapshot(
            self,
            self.state,
            tuple(op.state for op in self.ops),
            tuple(len(op.log) for op in self.ops),
        )

    def publish(self, snapshot: JobSnapshot) -> None:
        """Let clients see a committed snapshot."""
        self.published = snapshot.state
        for op, state in zip(self.ops, snapshot.ops, strict=True):
            op.published = state

    # -- for clients -----------------------------------------------------------------------------

    def log_after(self, serial: int | None) -> list[LogEntry]:
        """Return the log entries with a higher serial, in order; all when `serial` is None."""
        if serial is None:
            return [entry for op in self.ops for entry in tuple(op.log)]
        if serial >= self.next_log_serial - 1:
            return []
        return [entry for op in self.ops for entry in tuple(op.log) if entry[0] > serial]

    def values(self, fields: Sequence[str]) -> list[Any]:
        """Return the values of these fields; None for a field that does not exist."""
        values = []
        for name in fields:
            read = FIELDS.get(name)
            values.append(None if read is None else read(self))
        return values


def status_of(statuses: Iterable[str]) -> str:
    """Return the state of a job from the states of its opcodes, in order.

    Source: Ganeti design 2.0, *Job and opcode status*.
    """
    result = QUEUED
    all_success = True
    for status in statuses:
        if status == SUCCESS:
            continue
        all_success = False
        if status == QUEUED:
            continue
        result = status
        if status in (CANCELING, CANCELED, ERROR):
            break
    return SUCCESS if all_success else result


def priority_of(states: Iterable[OpState]) -> int:
    """Return the highest priority among unfinished opcodes; the default without any."""
    return min((state.priority for state in states if state.status not in FINALIZED), default=0)


FIELDS: dict[str, Callable[[QueuedJob], Any]] = {
    "archived": lambda job: job.archived,
    "end_ts": lambda job: job.published.end,
    "id": lambda job: job.id,
    "opend": lambda job: [op.published.end for op in job.ops],
    "opexec": lambda job: [op.published.exec for op in job.ops],
    "oplog": lambda job: [list(op.log) for op in job.ops],
    "oppriority": lambda job: [op.published.priority for op in job.ops],
    "opresult": lambda job: [op.published.result for op in job.ops],
    "ops": lambda job: [op.public_input() for op in job.ops],
    "opstart": lambda job: [op.published.start for op in job.ops],
    "opstatus": lambda job: [op.published.status for op in job.ops],
    "priority": lambda job: priority_of(op.published for op in job.ops),
    "received_ts": lambda job: job.received,
    "start_ts": lambda job: job.published.start,
    "status": lambda job: job.published_status,
    "summary": lambda job: [op.summary() for op in job.ops],
}


def check_fields(fields: Sequence[str]) -> None:
    """Refuse fields which no job has.

    :raises errors.OpPrereqError: a field is unknown; names it.
    """
    unknown = [name for name in fields if name not in FIELDS]
    if unknown:
        raise errors.OpPrereqError(f"unknown job fields: {', '.join(unknown)}", errors.ECODE_INVAL)


# -- job files -----------------------------------------------------------------------------------


def encode(snapshot: JobSnapshot) -> str:
    """Return the text of a job file."""
    job = snapshot.job
    ops = []
    for op, state, logged in zip(job.ops, snapshot.ops, snapshot.log_lengths, strict=True):
        log = json.dumps(op.log[:logged]) if logged else "[]"
        result = "null" if state.result is None else json.dumps(state.result)
        ops.append(
            f'{{"input":{op.input_text()},"status":"{state.status}","result":{result},"log":{log},'
            f'"start_timestamp":{_time_text(state.start)},"exec_timestamp":{_time_text(state.exec)}'
            f',"end_timestamp":{_time_text(state.end)},"priority":{state.priority}}}'
        )
    alive = ""
    if snapshot.state.livelock is not None:
        alive += f',"livelock":{json.dumps(snapshot.state.livelock)}'
    if snapshot.state.process_id is not None:
        alive += f',"process_id":{snapshot.state.process_id}'
    # Only jobs with a trace have this key, which other programs ignore.
    trace = f',"{tracing.HEADER}":"{job.trace}"' if job.trace else ""
    return (
        f'{{"id":{job.id},"ops":[{",".join(ops)}],"start_timestamp":{_time_text(snapshot.state.start)}'
        f',"end_timestamp":{_time_text(snapshot.state.end)}'
        f',"received_timestamp":{_time_text(job.received)}{alive}{trace}}}'
    )


def _time_text(time: Timestamp | None) -> str:
    return "null" if time is None else f"[{time[0]},{time[1]}]"


def decode(text: str, *, archived: bool = False) -> QueuedJob:
    """Read a job file.

    Everything on which the queue relies is checked. The other parameters of an opcode are validated
    when it is executed.

    :raises errors.JobFileCorrupted: says what is wrong with it.
    """
    try:
        data = json.loads(text)
        json.check_nesting(data)
    except errors.ParseError as err:
        raise errors.JobFileCorrupted(str(err)) from err
    try:
        return _decode(data, archived)
    except (KeyError, TypeError, ValueError, AttributeError) as err:
        raise errors.JobFileCorrupted(f"not a job: {type(err).__name__} {err}") from err


def _decode(data: dict[str, Any], archived: bool) -> QueuedJob:
    ops = []
    serial = 0
    for entry in data["ops"]:
        if not isinstance(entry["input"], dict):
            raise ValueError("an opcode's input is not an object")
        # The names of parameters are the same objects in all jobs: 2 KiB for each of them.
        op = QueuedOpCode({sys.intern(name): value for name, value in entry["input"].items()})
        if entry["status"] not in LEGAL_MOVES:
            raise ValueError(f"unknown opcode status {entry['status']!r}")
        if entry["status"] not in FINALIZED:
            _check_unfinished(entry)
        op.state = OpState(
            entry["status"],
            entry.get("result"),
            _time(entry["start_timestamp"]),
            _time(entry["exec_timestamp"]),
            _time(entry["end_timestamp"]),
            _number(entry.get("priority", 0)),
        )
        op.published = op.state
        for number, when, kind, message in entry["log"]:
            stamp = _time(when)
            if stamp is None:
                raise ValueError("a log entry has no time")
            op.log.append((_number(number, low=0), stamp, str(kind), message))
            serial = max(serial, number)
        ops.append(op)
    if not ht.JobId(data["id"]):
        raise ValueError("its id is not the number of a job")
    job = QueuedJob(_number(data["id"]), ops, _time(data["received_timestamp"]))
    livelock, process_id = data.get("livelock"), data.get("process_id")
    job.state = JobState(
        _time(data["start_timestamp"]),
        _time(data["end_timestamp"]),
        None if livelock is None else str(livelock),
        None if process_id is None else _number(process_id),
    )
    job.published = job.state
    job.next_log_serial = serial + 1
    job.archived = archived
    job.trace = tracing.parse_traceparent(data.get(tracing.HEADER))
    return job


def _check_unfinished(entry: dict[str, Any]) -> None:
    """Check what the scheduler uses of an unfinished opcode."""
    if not COMMON_PARAMS["depends"].type(entry["input"].get("depends")):
        raise ValueError("its dependencies are not a list of [job id, states]")


def _time(value: Any) -> Timestamp | None:
    if value is None:
        return None
    seconds, microseconds = value
    return _number(seconds, low=0, high=_LAST_SECOND), _number(microseconds, low=0, high=10**6)


def _number(value: Any, *, low: int = -(1 << 62), high: int = 1 << 62) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{value!r:.80} is not a whole number")
    if not low <= value <= high:
        raise ValueError("a number is out of range")
    return value
