"""One job, whatever is in it, never ends the queue or prevents its start."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ganeti import errors, opcodes
from ganeti.jobstore.store import QueueStore
from ganeti.jqueue import job as jobs
from ganeti.jqueue.callbacks import Callbacks
from ganeti.jqueue.execution import Execution
from ganeti.jqueue.queue import JobQueue
from ganeti.objects import FilterRule
from ganeti.opcodes.base import OpCode
from ganeti.opcodes.test import OpTestDelay

from .queue_lab import Lab, op

PATIENCE_S = 60.0


class Run:
    """A queue on a directory; ``died`` says that a thread of it ended."""

    def __init__(self, directory: Path, filters: Sequence[FilterRule] = ()) -> None:
        self.died = threading.Event()
        self.queue = JobQueue(
            QueueStore(str(directory)),
            Execution(self._execute),
            livelock="/livelock",
            filters=filters,
            fatal=self.died.set,
        )

    def _execute(self, op: OpCode, callbacks: Callbacks) -> Any:
        callbacks.notify_start()
        return op.comment

    def wait(self, job_id: int) -> str:
        """Wait until a job has ended; return its status."""
        ended = threading.Event()
        seen: list[str] = []

        def look(change: Any) -> None:
            seen.append(change[0][0])
            if seen[-1] in jobs.FINALIZED:
                ended.set()
            else:
                self.queue.operations.subscribe(job_id, ["status"], change[0], 1 << 40, look)

        self.queue.operations.subscribe(job_id, ["status"], None, 1 << 40, look)
        assert ended.wait(PATIENCE_S), seen
        return seen[-1]

    def check(self) -> None:
        """The queue still takes and executes jobs, answers queries, and archives."""
        job_id = self.queue.submit([OpTestDelay(duration=0.0)])
        assert self.wait(job_id) == "success"
        self.queue.query(None, sorted(jobs.FIELDS), archived=True)
        self.queue.operations.auto_archive(3600.0, PATIENCE_S)
        self.queue.operations.auto_archive(-1, PATIENCE_S)
        assert not self.died.is_set()

    def stop(self) -> None:
        self.queue.stop()
        assert not self.died.is_set()


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    run = Run(tmp_path)
    run.queue.start()
    yield run
    run.stop()


def job_file(job_id: int = 1, **changes: Any) -> dict[str, Any]:
    """A queued job with two opcodes, as a job file holds it."""
    ops = [
        {
            "input": OpTestDelay(duration=0.0).validate().to_dict(),
            "status": "queued",
            "result": None,
            "log": [],
            "start_timestamp": None,
            "exec_timestamp": None,
            "end_timestamp": None,
            "priority": 0,
        }
        for _ in range(2)
    ]
    return {
        "id": job_id,
        "ops": ops,
        "start_timestamp": None,
        "end_timestamp": None,
        "received_timestamp": [1795213513, 660939],
        **changes,
    }


def with_input(**values: Any) -> dict[str, Any]:
    """A job whose first opcode has other parameters."""
    data = job_file()
    data["ops"][0]["input"].update(values)
    return data


def with_op(number: int = 0, **values: Any) -> dict[str, Any]:
    """A job with another state of an opcode."""
    data = job_file()
    data["ops"][number].update(values)
    return data


def nested(depth: int) -> Any:
    """Lists inside each other."""
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


ODD_FILES = {
    "depends on a name": with_input(depends=[["x", 3]]),
    "depends on text": with_input(depends="1"),
    "depends on a list": with_input(depends=[[[1], ["success"]]]),
    "depends on a huge id": with_input(depends=[["9" * 5000, ["success"]]]),
    "depends on an unhashable state": with_input(depends=[[1, [["success"]]]]),
    "end of time": job_file(end_timestamp=[10**400, 0]),
    "received before time": job_file(received_timestamp=[-(10**400), 0]),
    "huge priority": with_op(priority=10**400),
    "huge log serial": with_op(log=[[10**400, [1, 2], "message", "x"]]),
    "nested result": with_op(status="error", result=nested(600)),
    "nested parameter": with_input(osparams_secret=nested(600)),
    "a list": [],
    "no opcodes": job_file(ops=None),
    "an opcode is a number": job_file(ops=[1]),
    "huge id": job_file(10**30),
    "id is text": job_file(ops=[], id="1"),
}


@pytest.mark.parametrize("name", ODD_FILES)
def test_an_odd_file_does_not_stop_the_start(name: str, tmp_path: Path) -> None:
    (tmp_path / "job-1").write_text(json.dumps(ODD_FILES[name]))
    (tmp_path / "job-2").write_text(json.dumps(job_file(2)))
    (tmp_path / "serial").write_text("2\n")
    run = Run(tmp_path)
    run.queue.start()
    assert run.wait(2) == "success"
    run.check()
    assert 1 in run.queue.table.lost
    run.stop()
    assert not (tmp_path / "job-1").exists()
    assert json.loads((tmp_path / "damaged/job-1").read_text()) == ODD_FILES[name]


def test_a_delay_of_any_length_is_refused_or_shown(run: Run) -> None:
    with pytest.raises(errors.OpPrereqError, match="duration"):
        run.queue.submit([OpTestDelay(duration=1e300)])
    with pytest.raises(errors.OpPrereqError, match="duration"):
        run.queue.submit([OpTestDelay(duration=10**400)])  # type: ignore[arg-type]
    with pytest.raises(errors.OpPrereqError, match="depends"):
        run.queue.submit([OpTestDelay(duration=0.0, depends=[["9" * 5000, []]])])
    with pytest.raises(errors.OpPrereqError, match="nested"):
        run.queue.submit([OpTestDelay(duration=0.0, reason=nested(300))])
    run.check()


def test_a_delay_that_an_older_version_accepted(tmp_path: Path) -> None:
    (tmp_path / "job-1").write_text(json.dumps(with_input(duration=1e300)))
    run = Run(tmp_path)
    run.queue.start()
    assert run.wait(1) == "error"
    row = run.queue.query([1], ["summary", "opresult"])[0]
    assert row is not None and row[0][0] == "TEST_DELAY(1e+300)"
    run.check()
    run.stop()


@pytest.mark.parametrize("status", ["waiting", "running", "canceling"])
def test_a_later_opcode_which_runs(status: str, tmp_path: Path) -> None:
    (tmp_path / "job-1").write_text(json.dumps(with_op(1, status=status)))
    run = Run(tmp_path)
    run.queue.start()
    assert run.wait(1) in jobs.FINALIZED
    run.check()
    run.stop()


def test_one_unreadable_file_does_not_stop_the_start(tmp_path: Path) -> None:
    (tmp_path / "job-1").symlink_to("job-1")
    (tmp_path / "job-2").write_text(json.dumps(job_file(2)))
    run = Run(tmp_path)
    run.queue.start()
    assert run.wait(2) == "success" and 1 in run.queue.table.lost
    assert run.queue.submit([OpTestDelay(duration=0.0)]) == 3
    run.stop()
    # The next start names it again.
    run = Run(tmp_path)
    run.queue.start()
    assert 1 in run.queue.table.lost
    run.stop()


def test_a_file_with_the_name_of_no_job(tmp_path: Path) -> None:
    (tmp_path / f"job-{10**15}{10**15}").write_text(json.dumps(job_file(2)))
    run = Run(tmp_path)
    run.queue.start()
    run.check()
    run.stop()


def test_a_serial_that_no_queue_has_given_out(tmp_path: Path) -> None:
    (tmp_path / "serial").write_text("1" * 40 + "\n")
    with pytest.raises(errors.JobQueueError, match="contains no job id"):
        Run(tmp_path).queue.start()


def test_an_error_that_no_file_can_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(tmp_path)

    def fail(_op: OpCode, _callbacks: Callbacks) -> Any:
        raise errors.OpExecError("odd", {1, 2})

    monkeypatch.setattr(run.queue.scheduler._own_process, "_execute", fail)
    run.queue.start()
    assert run.wait(run.queue.submit([OpTestDelay(duration=0.0)])) == "error"
    monkeypatch.undo()
    run.check()
    run.stop()


def test_an_internal_error_before_a_job_ends_only_that_job(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug in what is asked before a job starts: filters, dependencies, its state."""
    scheduler = run.queue.scheduler
    real = scheduler._may_start

    def odd(job: jobs.QueuedJob, op: jobs.QueuedOpCode) -> Any:
        if op.input["comment"] == "odd":
            raise KeyError("bug")
        return real(job, op)

    monkeypatch.setattr(scheduler, "_may_start", odd)
    job_id = run.queue.submit([OpTestDelay(duration=0.0, comment="odd")])
    assert run.wait(job_id) == "error"
    begun = iter([real])

    def once(job: jobs.QueuedJob, op: jobs.QueuedOpCode) -> Any:
        """The second question, by the worker, fails."""
        if op.input["comment"] == "odd" and next(begun, None) is None:
            raise KeyError("bug")
        return real(job, op)

    monkeypatch.setattr(scheduler, "_may_start", once)
    job_id = run.queue.submit([OpTestDelay(duration=0.0, comment="odd")])
    assert run.wait(job_id) == "error"
    run.check()


# -- any content -----------------------------------------------------------------------------------

NUMBERS = (
    st.integers(-3, 3)
    | st.sampled_from([2**53, 2**63, 2**64, 10**300, -(10**300)])
    | st.floats(allow_nan=False, allow_infinity=False)
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | NUMBERS
    | st.text(max_size=4)
    | st.sampled_from(["queued", "running", "success", "OP_TEST_DELAY", "\ud800", "1"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["input", "status", "x", ""]), inner, max_size=3)
    ),
    max_leaves=6,
)
PLACES = (
    [(name,) for name in job_file()]
    + [("ops", 0, name) for name in job_file()["ops"][0]]
    + [("ops", 1, name) for name in job_file()["ops"][0]]
    + [("ops", 0, "input", name) for name in (*OpTestDelay.PARAMS, "OP_ID")]
)


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    files=st.lists(
        st.lists(st.tuples(st.sampled_from(PLACES), VALUES), min_size=1, max_size=3),
        min_size=1,
        max_size=8,
    )
)
def test_any_job_files(
    files: list[list[tuple[tuple[Any, ...], Any]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """However files are changed, the queue starts, and every job ends or is set aside."""
    directory = tmp_path_factory.mktemp("queue")
    for job_id, changes in enumerate(files, 1):
        data = job_file(job_id)
        for place, value in changes:
            target: Any = data
            # An earlier change may have removed the place.
            with contextlib.suppress(KeyError, IndexError, TypeError):
                for part in place[:-1]:
                    target = target[part]
                target[place[-1]] = value
        (directory / f"job-{job_id}").write_text(json.dumps(data))
    (directory / "job-99").write_text(json.dumps(job_file(99)))
    run = Run(directory)
    run.queue.start()
    assert run.wait(99) == "success"
    for job_id in range(1, len(files) + 1):
        assert job_id in run.queue.table.lost or run.wait(job_id) in jobs.FINALIZED
    run.check()
    run.stop()


@settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(op_id=st.sampled_from(opcodes.op_ids()), data=st.data())
def test_any_submitted_opcode(run: Run, op_id: str, data: st.DataObject) -> None:
    """A submission is refused, or the job ends."""
    names = list(opcodes.lookup(op_id).PARAMS)
    chosen = data.draw(st.lists(st.sampled_from(names), unique=True, max_size=8))
    values = {name: data.draw(VALUES) for name in chosen}
    try:
        job_id = run.queue.submit([opcodes.from_dict({"OP_ID": op_id, **values})])
    except errors.GenericError:
        return
    assert run.wait(job_id) in jobs.FINALIZED
    run.queue.query(None, sorted(jobs.FIELDS))
    assert not run.died.is_set()


@pytest.mark.parametrize("op_id", opcodes.op_ids())
def test_every_valid_opcode_has_a_summary(op_id: str) -> None:
    cls = opcodes.lookup(op_id)
    if not cls.SUMMARY_FIELD:
        return
    word = cls.PARAMS[cls.SUMMARY_FIELD].type
    for value in (0, 1, 2**62, -(2**62), 1e9, -1e9, 0.5, "", "x", True, None, [], ["x"], {}):
        if word.check(value):
            assert cls(**{cls.SUMMARY_FIELD: value}).summary().startswith(op_id[3:])


ODD_RULES = {
    "reason trail": {"reason_trail": (3, ["gnt:user"], ["gnt:user", 5, None])},
    "predicates": {"predicates": (["jobid", None],)},
    "action": {"action": {"RATE_LIMIT": 1}},
    "comparison": {"predicates": (["opcode", [">", "reason.x", 3]],)},
    "unhashable": {"predicates": (["opcode", ["=[]", "on_nodes", {}]],)},
}


@pytest.mark.parametrize("name", ODD_RULES)
def test_an_odd_filter_rule_stops_nothing(name: str, tmp_path: Path) -> None:
    values: dict[str, Any] = {
        "watermark": 0,
        "priority": 0,
        "predicates": (),
        "action": "ACCEPT" if name != "reason trail" else "REJECT",
        "reason_trail": (),
        "uuid": "rule",
    }
    rule = FilterRule(**{**values, **ODD_RULES[name]})
    run = Run(tmp_path, filters=[rule])
    run.queue.start()
    job_id = run.queue.submit([OpTestDelay(duration=0.0)])
    assert run.wait(job_id) == ("canceled" if name == "reason trail" else "success")
    run.stop()
    assert os.path.exists(tmp_path / f"job-{job_id}")


def test_the_log_says_once_that_an_opcode_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its process asks the next master daemon, when the first one ended before it answered."""
    caplog.set_level(logging.INFO)
    lab = Lab(tmp_path / "queue")

    def execute(_opcode: OpCode, callbacks: Callbacks) -> None:
        own = (callbacks._table, callbacks._committer, callbacks._publisher)
        of_next = Callbacks(*own, callbacks._job, callbacks._op, callbacks._submit)
        for one in (callbacks, of_next, of_next):
            one.notify_start()

    monkeypatch.setattr(lab, "execute", execute)
    lab.queue = lab.new()
    lab.queue.start()
    job_id = lab.queue.submit([op("x")])
    assert lab.wait(job_id) == "success"
    lab.queue.stop()
    said = [one.split()[2:4] for one in caplog.messages if one.startswith(f"job {job_id} ")]
    assert said[:2] == [["begins", "with"], ["goes", "on"]]
    assert len([words for words in said if words[0] in ("begins", "goes")]) == 2
