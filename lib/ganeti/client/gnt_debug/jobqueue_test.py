"""The commands ``gnt-debug test-jobqueue`` and ``gnt-debug test-osparams``.

``test-jobqueue`` runs jobs that stop at known points and checks at each point whether the queue
shows the right state. It changes nothing in the cluster and can be used with any running master.
"""

from __future__ import annotations

import time

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import failures, jobs, terminal
from ganeti.cli import options as opt
from ganeti.cli.command import Command, Values
from ganeti.constants import job as const

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from ganeti.luxi import client as luxi
    from ganeti.opcodes.base import OpCode

_PREFIX = "TESTMSG="
_POLL_S = 60
_CONNECT_S = 30.0
_SETTLE_S = 20.0
_PAUSE_S = 0.02
_MESSAGES = ("first", "", "with blanks and 'quotes'", "ümläut", "a" * 1000, "[1, 2]", "last")
_REQUESTED = "Opcode failure was requested"
# Where a job stops -> the status which its opcode has there.
_STATUS_AT = {
    "expandnames": "waiting",
    "exec": "running",
    "startmsg": "running",
    "logmsg": "running",
}


def _require(condition: object, text: str) -> None:
    if not condition:
        raise errors.OpExecError(f"job queue test failed: {text}")


def test_jobqueue(values: Values, arguments: list[str]) -> int:
    """Test the job queue (``test-jobqueue``); a dry run shows the plans of the two types of jobs.

    :raises OpExecError: a check failed; the text names it.
    """
    client = jobs.connect()
    if values.dry_run:
        from ganeti.opcodes.test import OpTestDelay, OpTestJqueue

        common = jobs.common_params(values)
        jobs.run_opcodes(
            [
                OpTestDelay(duration=0.0, **common),
                OpTestJqueue(notify_exec=True, log_messages=list(_MESSAGES), **common),
            ],
            values,
            client=client,
        )
        return failures.EXIT_SUCCESS
    _test_submission(client)
    _test_dependencies(client, values)
    for title, failing in (
        ("job success", [False]),
        ("multiple successful opcodes", [False, False]),
        ("job failure", [True]),
        ("partial job failure", [False, False, True, False]),
    ):
        terminal.out(f"Testing {title}")
        _TestJob(client, values, failing).run()
    _test_cancel(client, values)
    terminal.out("Job queue test successful")
    return failures.EXIT_SUCCESS


def _test_submission(client: luxi.Client) -> None:
    terminal.out("Testing job submission")
    good: dict[str, Any] = {"OP_ID": "OP_TEST_DELAY", "duration": 0.0}
    wanted = [
        ([good], True),
        ([{**good, "priority": 10}], True),
        ([good, good], True),
        # As in Ganeti, it has ended with success.
        ([], True),
        ([{"OP_ID": "OP_NOSUCH"}], False),
        ([{**good, "duration": "x"}], False),
        ([{**good, "priority": 99}], False),
        ([good, {**good, "nosuch": 1}], False),
    ]
    rows = client.call("SubmitManyJobs", [ops for ops, _ in wanted])
    for (ops, accepted), (success, answer) in zip(wanted, rows, strict=True):
        _require(success is accepted, f"{ops} was {'accepted' if success else 'refused'}: {answer}")
    terminal.out("Job submission tests were successful")


def _test_dependencies(client: luxi.Client, values: Values) -> None:
    from ganeti.opcodes.test import OpTestDelay

    terminal.out("Testing job dependencies")
    # Relative numbers of jobs in the same submission, and the states in which these may end.
    depends: tuple[list[list[Any]], ...] = (
        [],
        [[-1, []]],
        [],
        [[-1, ["success"]]],
        [[-1, []], [-4, ["success"]]],
    )
    job_set = jobs.JobSet(client, values)
    for needed in depends:
        job_set.add(
            "", OpTestDelay(duration=0.0, depends=needed or None, **_without_dry_run(values))
        )
    outcomes = job_set.wait()
    _require(all(outcome.success for outcome in outcomes), "a job with dependencies failed")
    ids = sorted(outcome.job_id for outcome in outcomes if outcome.job_id is not None)
    rows = client.query_jobs(ids, ["start_ts", "end_ts"])
    for number, needed in enumerate(depends):
        for back, _states in needed:
            begun, ended = rows[number][0], rows[number + back][1]
            _require(
                list(begun) >= list(ended),
                f"job {ids[number]} began before job {ids[number + back]} had ended",
            )
    terminal.out("Job dependency tests were successful")


def _without_dry_run(values: Values) -> dict[str, Any]:
    return {key: value for key, value in jobs.common_params(values).items() if key != "dry_run"}


def _visit(path: str) -> None:
    """Make the job continue: connect to its socket and disconnect.

    :raises OpExecError: the connection failed.
    """
    from ganeti.utils import net

    try:
        net.unix_connect(path, _CONNECT_S).close()
    except OSError as err:
        raise errors.OpExecError(f"cannot connect to the job's socket {path}: {err}") from err


class _TestJob:
    """One test job, which is checked at each of its stops and at its end.

    :param failing: for each opcode, whether it has to fail.
    """

    def __init__(self, client: luxi.Client, values: Values, failing: Sequence[bool]) -> None:
        from ganeti.opcodes.test import OpTestJqueue

        self._client = client
        self._failing = failing
        ops: list[OpCode] = [
            OpTestJqueue(
                notify_waitlock=True,
                notify_exec=True,
                log_messages=list(_MESSAGES),
                fail=fail,
                **_without_dry_run(values),
            )
            for fail in failing
        ]
        with jobs.submission():
            self._job_id = client.submit_job(ops)
        self._messages: list[str] = []
        self._stops: list[str] = []
        self._expected = 0

    def run(self) -> None:
        """Follow the job to its end.

        :raises OpExecError: a check failed; the text names it.
        """
        info: list[Any] | None = None
        serial: int | None = None
        while True:
            answer = self._client.wait_for_job_change(
                self._job_id, jobs.RESULT_FIELDS, info, serial, _POLL_S
            )
            if answer is None:
                continue
            known, entries = answer
            _require(known is not None, f"job {self._job_id} is gone")
            info = known
            for entry_serial, timestamp, kind, message in entries:
                _require(serial is None or entry_serial > serial, "log entries are out of order")
                serial = entry_serial
                self._entry(timestamp, kind, message)
            if not entries and info is not None and info[0] in const.FINALIZED:
                break
        self._check_end(info)

    def _entry(self, timestamp: Sequence[int], kind: str, message: Any) -> None:
        if kind == const.LOG_JQUEUE_TEST:
            path, where, argument = message
            self._stop(where, argument)
            _visit(path)
        elif isinstance(message, str) and message.startswith(_PREFIX):
            self._messages.append(message.removeprefix(_PREFIX))
        else:
            terminal.out(jobs.format_log_entry(timestamp, kind, message))

    def _stop(self, where: str, argument: Any) -> None:
        self._stops.append(where)
        current = self._stops.count("expandnames") - 1
        wanted = _STATUS_AT.get(where)
        _require(wanted is not None, f"the job stopped at an unknown point, {where}")
        # A state is published after the other candidates have it, a log line at once.
        deadline = time.monotonic() + _SETTLE_S
        while True:
            ((status, states),) = self._client.query_jobs([self._job_id], ["status", "opstatus"])
            if status == states[current] == wanted or time.monotonic() > deadline:
                break
            time.sleep(_PAUSE_S)
        _require(
            status == wanted and states[current] == wanted,
            f"at {where} the job is {status} and its opcode {states[current]}, not {wanted}",
        )
        done = ["success"] * current
        _require(list(states[:current]) == done, f"opcodes before the {current + 1}. are {states}")
        _require(
            all(state == "queued" for state in states[current + 1 :]),
            f"opcodes after the {current + 1}. are {states}",
        )
        if where == "startmsg":
            self._expected += argument
        elif where == "logmsg":
            seen = len(self._messages) - current * len(_MESSAGES)
            _require(seen == argument, f"{argument} messages were sent, {seen} were received")

    def _check_end(self, values: Sequence[Any]) -> None:
        """Check how the job has ended, by the values of ``jobs.RESULT_FIELDS``."""
        status, states, _results = values
        run = next(
            (number + 1 for number, fail in enumerate(self._failing) if fail), len(self._failing)
        )
        _require(self._messages == list(_MESSAGES) * run, "messages are missing or changed")
        _require(self._expected == len(_MESSAGES) * run, "not all opcodes announced messages")
        if not any(self._failing):
            _require(status == "success", f"the job ended as {status}")
            _require(
                jobs.job_result(self._job_id, values) == [True] * run,
                "the results are not those of the opcodes",
            )
            return
        _require(status == "error", f"the job ended as {status}, though it had to fail")
        wanted = ["success"] * (run - 1) + ["error"] * (len(self._failing) - run + 1)
        _require(list(states) == wanted, f"the opcodes ended as {states}")
        try:
            jobs.job_result(self._job_id, values)
        except errors.OpExecError as err:
            _require(_REQUESTED in str(err), f"the job failed with another error: {err}")
            terminal.out(f"Ignoring error for 'job fail' test: {_REQUESTED}")
        else:
            _require(False, "a failed job has results")


def _test_cancel(client: luxi.Client, values: Values) -> None:
    """Check that a waiting job can be canceled and is not executed."""
    from ganeti.opcodes.test import OpTestJqueue

    terminal.out("Testing job cancellation")
    op = OpTestJqueue(notify_waitlock=True, notify_exec=True, **_without_dry_run(values))
    with jobs.submission():
        job_id = client.submit_job([op])
    info: list[Any] | None = None
    serial: int | None = None
    canceled = False
    while True:
        answer = client.wait_for_job_change(job_id, ["status"], info, serial, _POLL_S)
        if answer is None:
            continue
        info, entries = answer
        for entry_serial, _timestamp, kind, _message in entries:
            serial = entry_serial
            if kind == const.LOG_JQUEUE_TEST:
                _require(not canceled, "a canceled job continued")
                success, text = client.cancel_job(job_id)
                _require(success, f"job {job_id} could not be canceled: {text}")
                canceled = True
        if info is not None and not entries and info[0] in const.FINALIZED:
            break
    _require(info is not None and info[0] == "canceled", f"the canceled job ended as {info}")


def test_osparams(values: Values, arguments: list[str]) -> int:
    """Send secret OS parameters to the master, and print them (``test-osparams``).

    The job only checks them: a job log with their values would be a file with secrets.
    """
    from ganeti.opcodes.test import OpTestOsParams

    secret = values.osparams_secret or None
    jobs.run_opcode(OpTestOsParams(osparams_secret=secret, **jobs.common_params(values)), values)
    if not values.dry_run:
        terminal.out(f"Secret OS parameters: {dict(secret or {})}")
    return failures.EXIT_SUCCESS


#: The commands of this module.
COMMANDS = (
    Command(
        "test-jobqueue",
        test_jobqueue,
        [],
        [opt.DRY_RUN, opt.PRIORITY],
        "Test the job queue with jobs that stop at known points",
    ),
    Command(
        "test-osparams",
        test_osparams,
        [],
        [
            opt.key_values(
                "--os-parameters-secret",
                dest="osparams_secret",
                help="secret OS parameters, which do not appear in logs and are never stored",
                kind="keyprivateval",
            ),
            opt.OS_PARAMETERS_SECRET_FILE,
            opt.DRY_RUN,
            *opt.SUBMIT_OPTIONS,
        ],
        "Send secret OS parameters to the master",
    ),
)
