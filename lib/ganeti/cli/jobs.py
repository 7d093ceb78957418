"""Submit jobs and wait for them.

Every change of the cluster is a job: a list of opcodes. The master keeps it even if the command
that submitted it has ended. A command that waits for a job shows new log lines of the job. When the
command is interrupted, the job continues, and the command prints how to watch the job.

==================== =============================================================================
:func:`connect`      return a client of the master
:func:`run_opcode`   submit one opcode, wait for it, return its result
:class:`JobSet`      submit several jobs together, wait for each of them, report each
==================== =============================================================================

With ``--submit`` a command prints ``JobID: <id>`` on standard error and ends. ``--print-jobid``
also prints the bare number of the job on standard output, with or without waiting. Commands that
work on several objects print ``<id>: <object>`` on standard output for each job instead.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import failures, terminal
from ganeti.cli.command import Values
from ganeti.cli.over_rest import address
from ganeti.constants import job as const
from ganeti.luxi import client as luxi

if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

    from ganeti.opcodes.base import OpCode

    #: Makes a line from time ``[seconds, microseconds]``, kind and message of an entry of a log.
    LineOf = Callable[[Sequence[int], str, Any], str]

# Longest time of one request that waits for a change. On a terminal the time that has passed is
# shown, so requests are shorter.
_POLL_S = 60
_POLL_TERMINAL_S = 2

# After this time the line on the terminal names "gnt-job explain".
_LONG_S = 10
_EXPLAINED = ("queued", "waiting")

#: The fields of a job from which :func:`job_result` makes the results. A command that waits for the
#: job asks for them, so the answer which brings the end of the job brings the results, too.
RESULT_FIELDS = ("status", "opstatus", "opresult")

# Programs look for this text.
_CANCELED = "Job was canceled"

_WAITING_FOR = {
    "queued": "is waiting in the queue",
    "waiting": "is waiting for locks",
    "canceling": "is being canceled",
    "running": "is running",
}


class WaitInterrupted(KeyboardInterrupt):
    """The user interrupted the waiting; the jobs `job_ids` continue."""

    def __init__(self, job_ids: Sequence[int]) -> None:
        super().__init__()
        self.job_ids = list(job_ids)


class SubmissionInterrupted(KeyboardInterrupt):
    """The user interrupted a submission before its answer came: the jobs may exist."""

    def __str__(self) -> str:
        return (
            "Interrupted before the master daemon confirmed the submission, so the jobs may have"
            " been accepted. Look for them with 'gnt-job list'."
        )


@contextlib.contextmanager
def submission() -> Iterator[None]:
    """Turn an interrupt while a request that submits jobs is under way into an error of its own.

    :raises SubmissionInterrupted: the user interrupted it.
    """
    try:
        yield
    except KeyboardInterrupt as err:
        raise SubmissionInterrupted from err


# The client library waits 30 s for a master that is starting. A user at a terminal gets the error
# earlier; the start takes 3 s at most.
_CONNECT_TIMEOUT_S = 5.0


def connect() -> luxi.Client:
    """Return a client of the master daemon of this node, or of a cluster over REST.

    It connects with the first request, which raises :class:`~ganeti.errors.NoMasterError` when no
    master daemon answers. :func:`ganeti.cli.main.run` explains this error to the user.

    :raises ParameterError: the environment has a wrong address of a REST interface.
    """
    if address.is_given():
        from ganeti.cli.over_rest import master

        return master.RestMaster(address.read())
    return luxi.Client(connect_timeout_s=_CONNECT_TIMEOUT_S)


def pause_text(reason: str) -> str:
    """Return a sentence which says that the job queue pauses.

    :param reason: the value ``queue_pause`` of ``QueryConfigValues``.
    """
    return f"Jobs cannot be executed, and wait: {reason}. They go on when the cause is gone."


def common_params(values: Values) -> dict[str, Any]:
    """Return the opcode parameters which every command can set, from its options."""
    return {
        "dry_run": values.get("dry_run"),
        "debug_level": values.debug,
        "priority": values.get("priority") or 0,
        "reason": reason_trail(values),
    }


def reason_trail(values: Values, now_ns: Callable[[], int] = time.time_ns) -> list[list[Any]]:
    """Return the reason trail of a job: the reason from ``--reason``, the command, the person.

    :returns: rows of source, reason and time (nanoseconds since the epoch).
    """
    trail: list[list[Any]] = []
    if values.reason:
        trail.append(["gnt:user", values.reason, now_ns()])
    trail.append([f"gnt:client:{values.program}", values.command, now_ns()])
    from ganeti.utils import author  # only for commands which submit jobs

    return trail + author.entry_for(author.of_process(), now_ns())


def run_opcode(opcode: OpCode, values: Values, *, client: luxi.Client | None = None) -> Any:
    """Submit one opcode as a job and wait for its result.

    :raises JobSubmittedException: ``--submit`` was given; it contains the number of the job.
    :raises SubmissionInterrupted: the user interrupted the submission.
    :raises WaitInterrupted: the user interrupted the waiting.
    :raises GenericError: the error with which the job failed.
    """
    return run_opcodes([opcode], values, client=client)[0]


def run_opcodes(
    opcodes: Sequence[OpCode], values: Values, *, client: luxi.Client | None = None
) -> list[Any]:
    """Submit opcodes as one job, wait for it, and return a result for each opcode.

    The errors are those of :func:`run_opcode`.
    """
    client = client or connect()
    with submission():
        job_id = client.submit_job(list(opcodes))
    if values.get("print_jobid"):
        terminal.out(str(job_id))
    if values.get("submit_only"):
        raise errors.JobSubmittedException(job_id)
    # With a format for programs, standard output contains only the data.
    show = terminal.out if values.get("output_format") in (None, "table") else terminal.err
    ending = _ending(values)
    try:
        results = wait_for_job(
            client, job_id, show, _without_already if ending else format_log_entry
        )
    except KeyboardInterrupt as err:
        raise WaitInterrupted([job_id]) from err
    if ending:
        ending.show(client, job_id, opcodes, results)
    return results


def has_closing_line(values: Values) -> bool:
    """Tell whether a job of the command ends with a closing line, which then says what changed."""
    return _ending(values) is not None


def _ending(values: Values) -> ModuleType | None:
    """Return the module of the closing lines if the command ends with them."""
    for_programs = values.get("output_format") not in (None, "table") or values.get("print_jobid")
    if for_programs or values.get("dry_run") or not terminal.is_terminal(sys.stdout):
        return None
    from ganeti.cli import closing

    return closing


def format_log_entry(timestamp: Sequence[int], kind: str, message: Any) -> str:
    """Return one line of a job's log as the commands show it; empty for nothing.

    Programs read the whole date, and nothing about what a job waits for. On a terminal the time of
    day suffices for what happened today, and the line is wrapped between words.
    """
    text = message if kind == "message" or isinstance(message, str) else repr(message)
    if not terminal.is_terminal(sys.stdout):
        if kind == const.LOG_WAITING:
            return ""
        return f"{time.ctime(timestamp[0])} {text}"
    stamp = time.localtime(timestamp[0])
    today = stamp[:3] == time.localtime()[:3]
    when = time.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M:%S", stamp)
    return terminal.wrapped(f"{when} {text}", sys.stdout, " " * (len(when) + 1))


def _without_already(timestamp: Sequence[int], kind: str, message: Any) -> str:
    """Return a line of the log before a closing line, which says what was so already."""
    return "" if kind == const.LOG_ALREADY else format_log_entry(timestamp, kind, message)


class _Progress:
    """Show that a job makes no progress: a changing line on a terminal, otherwise one notice."""

    def __init__(self, job_id: int) -> None:
        self._job_id = job_id
        self._live = terminal.is_terminal(sys.stderr) and terminal.is_terminal(sys.stdout)
        self._shown = False
        self._notices: set[str] = set()
        self._since = time.monotonic()
        self._status = ""

    @property
    def poll_s(self) -> int:
        """Longest time of one request that waits for a change, in seconds."""
        return _POLL_TERMINAL_S if self._live else _POLL_S

    def unchanged(self, status: str) -> None:
        """Show the state of the job after a request without news."""
        if status != self._status:
            self._status, self._since = status, time.monotonic()
        doing = _WAITING_FOR.get(status)
        if doing is None:
            return
        if self._live:
            passed_s = int(time.monotonic() - self._since) + self.poll_s
            line = f"Job {self._job_id} {doing} ({passed_s} s)"
            if passed_s >= _LONG_S and status in _EXPLAINED:
                longer = f"{line}; 'gnt-job explain {self._job_id}' shows why"
                # A line that is longer than the terminal is wide could not be overwritten.
                line = longer if len(longer) < terminal.width(sys.stderr) else line
            sys.stderr.write(f"\r\033[K{line}")
            sys.stderr.flush()
            self._shown = True
        elif status != "running" and status not in self._notices:
            self._notices.add(status)
            terminal.err(f"Job {self._job_id} {doing}")

    def clear(self) -> None:
        """Remove the changing line before other output."""
        if self._shown:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()
            self._shown = False


def follow_job(
    client: luxi.Client,
    job_id: int,
    show: Callable[[str], None] = terminal.out,
    line_of: LineOf = format_log_entry,
) -> Sequence[Any]:
    """Show the log of a job until it ends.

    :param show: called with each line of the log.
    :param line_of: makes the line from time, kind and message; an empty one is not shown.
    :returns: the final values of :data:`RESULT_FIELDS`.
    :raises JobLost: the job does not exist, or does not exist any more.
    """
    progress = _Progress(job_id)
    info: list[Any] | None = None
    serial: int | None = None
    try:
        while True:
            answer = client.wait_for_job_change(
                job_id, RESULT_FIELDS, info, serial, progress.poll_s
            )
            # Some masters repeat the known state instead of the answer "nochange".
            if answer is None or (answer[0] == info and not answer[1]):
                if info and info[0] in const.FINALIZED:
                    return info
                progress.unchanged(str(info[0]) if info else "")
                continue
            info, entries = answer
            if info is None:
                raise errors.JobLost(f"job {job_id} does not exist")
            if entries:
                progress.clear()
            for entry_serial, timestamp, kind, message in entries:
                line = line_of(timestamp, kind, message)
                if line:
                    show(line)
                serial = max(serial or 0, entry_serial)
            # An answer contains the state and all log entries before it, so no entry follows the
            # end.
            if info[0] in const.FINALIZED:
                return info
    finally:
        progress.clear()


def wait_for_job(
    client: luxi.Client,
    job_id: int,
    show: Callable[[str], None] = terminal.out,
    line_of: LineOf = format_log_entry,
) -> list[Any]:
    """Wait for a job and show its log, as :func:`follow_job` does.

    :returns: a result for each opcode.
    :raises JobLost: the job does not exist.
    :raises JobCanceled: the job was canceled.
    :raises GenericError: the error with which the job failed.
    """
    return job_result(job_id, follow_job(client, job_id, show, line_of))


def job_result(job_id: int, values: Sequence[Any]) -> list[Any]:
    """Return the results of a finished job.

    :param values: the values of :data:`RESULT_FIELDS`.
    :raises JobCanceled: the job was canceled.
    :raises GenericError: the error with which the job failed.
    """
    status, states, results = values
    if status == "success":
        return list(results)
    if status in ("canceled", "canceling"):
        raise errors.JobCanceled(_CANCELED + _why_canceled(results))
    some_succeeded = False
    for index, (state, result) in enumerate(zip(states, results, strict=False)):
        if state == "success":
            some_succeeded = True
        elif state == "error":
            _raise_result(
                result, f"partial failure (opcode {index + 1}): " if some_succeeded else ""
            )
    raise errors.OpExecError(
        f"job {job_id} ended with status {status}, and no opcode of it has an error"
    )


def _why_canceled(results: Iterable[Any]) -> str:
    """Return ``: `` and the recorded reason why the queue canceled a job; empty without one."""
    from ganeti.wire import errors as wire_errors

    for result in results:
        error = wire_errors.decode(result)
        if isinstance(error, errors.JobCanceled) and str(error) not in ("", _CANCELED):
            return f": {error}"
    return ""


def _raise_result(result: Any, prefix: str) -> None:
    """Raise the error which a failed opcode left as its result."""
    from ganeti.wire import errors as wire_errors

    error = wire_errors.decode(result)
    if error is None:
        raise errors.OpExecError(f"{prefix}{result}")
    if prefix:
        raise errors.OpExecError(f"{prefix}{failures.describe(error)[1]}") from error
    raise error


class JobOutcome:
    """The end of one job of a :class:`JobSet`.

    :param success: whether the job succeeded.
    :param result: results of the opcodes, or the text of the error.
    :param name: name of the object on which the job works; may be empty.
    :param job_id: None when the job could not be submitted.
    """

    __slots__ = ("job_id", "name", "result", "success")

    def __init__(self, success: bool, result: Any, name: str, job_id: int | None) -> None:
        self.success = success
        self.result = result
        self.name = name
        self.job_id = job_id


class _SubmittedJob:
    """A job of a :class:`JobSet`; the opcodes are None when another job has submitted it."""

    __slots__ = ("error", "job_id", "name", "opcodes")

    def __init__(
        self, job_id: int | None, error: str, name: str, opcodes: list[OpCode] | None = None
    ) -> None:
        self.job_id = job_id
        self.error = error
        self.name = name
        self.opcodes = opcodes


class JobSet:
    """Several jobs which are submitted together and awaited one after the other.

    :param verbose: print the numbers of the submitted jobs.
    :param quiet: print neither these numbers, nor the job which is awaited.
    :param line_of: as of :func:`follow_job`.
    """

    def __init__(
        self,
        client: luxi.Client,
        values: Values,
        *,
        verbose: bool = True,
        quiet: bool = False,
        line_of: LineOf = format_log_entry,
    ) -> None:
        self._client = client
        self._values = values
        self._verbose = verbose and not quiet
        self._quiet = quiet
        self._line_of = line_of
        self._queue: list[tuple[str, list[OpCode]]] = []
        self._jobs: list[_SubmittedJob] = []

    def add(self, name: str, *opcodes: OpCode) -> None:
        """Add a job; `name` is the object on which it works."""
        self._queue.append((name, list(opcodes)))

    def add_submitted(self, rows: Iterable[Sequence[Any]], *, named: bool = False) -> None:
        """Add jobs which another job has submitted: rows ``[True, id]`` or ``[False, message]``.

        :param named: ask the master what each job does, and show it.
        """
        rows = list(rows)
        ids = [int(value) for success, value in rows if success]
        names: dict[int, str] = {}
        if named and ids:
            answers = self._client.query_jobs(ids, ["summary"])
            names = {
                job_id: ", ".join(row[0])
                for job_id, row in zip(ids, answers, strict=True)
                if row is not None
            }
        for success, value in rows:
            self._jobs.append(
                _SubmittedJob(int(value), "", names.get(int(value), ""))
                if success
                else _SubmittedJob(None, str(value), "")
            )

    def submit(self) -> None:
        """Submit the added jobs in one request."""
        if not self._queue:
            return
        with submission():
            rows = self._client.submit_many_jobs([opcodes for _, opcodes in self._queue])
        for (name, opcodes), (success, value) in zip(self._queue, rows, strict=True):
            self._jobs.append(
                _SubmittedJob(int(value), "", name, opcodes)
                if success
                else _SubmittedJob(None, str(value), name)
            )
            if success and self._values.get("print_jobid") and not self._values.get("submit_only"):
                terminal.out(str(value))
        self._queue = []

    def show_submitted(self) -> bool:
        """Print the submitted jobs, for ``--submit``.

        :returns: whether all jobs were submitted.
        """
        for job in self._jobs:
            if job.job_id is not None:
                terminal.out(f"{job.job_id}: {job.name}")
            else:
                terminal.err(f"Failure{_for(job.name)}: {job.error}")
        return all(job.job_id is not None for job in self._jobs)

    def run(self) -> bool:
        """Submit the jobs, then wait for all of them; with ``--submit`` only print their numbers.

        :returns: whether all jobs succeeded, or were submitted.
        """
        self.submit()
        if self._values.get("submit_only"):
            return self.show_submitted()
        return all(outcome.success for outcome in self.wait())

    def wait(self) -> list[JobOutcome]:
        """Wait for every job and print failures on standard error.

        :raises WaitInterrupted: the user interrupted the waiting; it contains the jobs that have
            not ended.
        """
        self.submit()
        submitted = [job for job in self._jobs if job.job_id is not None]
        if self._verbose and submitted:
            terminal.out(f"Submitted jobs {', '.join(str(job.job_id) for job in submitted)}")
        outcomes = []
        for job in self._jobs:
            if job.job_id is None:
                terminal.err(f"Failed to submit job{_for(job.name)}: {job.error}")
                outcomes.append(JobOutcome(False, job.error, job.name, None))
        remaining = list(submitted)
        try:
            while remaining:
                job = self._choose(remaining)
                outcomes.append(self._wait_for(job))
                remaining.remove(job)
        except KeyboardInterrupt as err:
            raise WaitInterrupted([job.job_id for job in remaining if job.job_id]) from err
        return outcomes

    def _choose(self, remaining: Sequence[_SubmittedJob]) -> _SubmittedJob:
        """Return the first job that runs already, so that its log is shown at once."""
        if len(remaining) == 1:
            return remaining[0]
        rows = self._client.query_jobs([job.job_id for job in remaining if job.job_id], ["status"])
        for job, row in zip(remaining, rows, strict=False):
            if row is not None and row[0] not in ("queued", "waiting", "canceling"):
                return job
        return remaining[0]

    def _wait_for(self, job: _SubmittedJob) -> JobOutcome:
        assert job.job_id is not None
        ending = None if self._line_of is not format_log_entry else _ending(self._values)
        if not self._quiet:
            terminal.out(f"Waiting for job {job.job_id}{_for(job.name)} ...")
        try:
            results = wait_for_job(
                self._client, job.job_id, line_of=_without_already if ending else self._line_of
            )
        except errors.JobLost as err:
            text = f"the job is archived or lost, so its result is not known ({err})"
        except errors.LuxiError:
            raise
        except errors.GenericError as err:
            text = failures.describe(err)[1]
            if terminal.is_terminal(sys.stderr):
                about = job.name or f"job {job.job_id}"
                terminal.err(f"Error: {about}: {failures.sentence(err)}")
                return JobOutcome(False, text, job.name, job.job_id)
        else:
            if ending:
                ending.show(self._client, job.job_id, job.opcodes, results)
            return JobOutcome(True, results, job.name, job.job_id)
        terminal.err(f"Job {job.job_id}{_for(job.name)} has failed: {text}")
        return JobOutcome(False, text, job.name, job.job_id)


def await_submitted(
    rows: Iterable[Sequence[Any]], values: Values, client: luxi.Client
) -> list[JobOutcome]:
    """Wait for the jobs which another job has submitted, and print failures.

    :param rows: as of :meth:`JobSet.add_submitted`.
    :raises WaitInterrupted: the user interrupted the waiting.
    """
    job_set = JobSet(client, values)
    job_set.add_submitted(rows)
    return job_set.wait()


def _for(name: str) -> str:
    return f" for {name}" if name else ""
