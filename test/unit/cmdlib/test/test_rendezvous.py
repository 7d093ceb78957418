"""Units for tests: jobs that stop where a program looks at them, delays, secret parameters."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from fakes.config import cluster_of
from fakes.master import FakeJob, Master
from ganeti import errors
from ganeti.cmdlib.ops.test import rendezvous
from ganeti.cmdlib.test import delay, jqueue
from ganeti.constants.job import LOG_DELAY_TEST, LOG_JQUEUE_TEST
from ganeti.opcodes.test import OpTestDelay, OpTestJqueue, OpTestOsParams
from ganeti.platform import paths
from ganeti.utils import net


@pytest.fixture(autouse=True)
def here(tmp_path: Any) -> Iterator[paths.Paths]:
    with paths.override(paths.Paths(str(tmp_path))):
        yield paths.current()


class Visited(FakeJob):
    """A job whose every stop is visited by somebody from another thread."""

    def __init__(self, visit: bool = True) -> None:
        super().__init__(1)
        self.visit = visit
        self.stops: list[tuple[str, Any]] = []
        self.threads: list[threading.Thread] = []

    def feedback(self, *args: Any) -> None:
        if args[0] not in (LOG_JQUEUE_TEST, LOG_DELAY_TEST):
            super().feedback(*args)
            return
        path, *rest = args[1]
        self.stops.append(tuple(rest) if rest else (args[0], None))
        if self.visit:
            thread = threading.Thread(target=lambda: net.unix_connect(path, 30).close())
            self.threads.append(thread)
            thread.start()


def run(op: Any, job: Visited) -> Any:
    master = Master(cluster_of(1))
    master.jobs.append(job)
    try:
        return master.run(op, job)
    finally:
        for thread in job.threads:
            thread.join(30)


def test_a_job_stops_at_each_point(here: paths.Paths) -> None:
    job = Visited()
    assert (
        run(OpTestJqueue(notify_waitlock=True, notify_exec=True, log_messages=["a", "b"]), job)
        is True
    )
    assert job.stops == [
        ("expandnames", None),
        ("exec", None),
        ("startmsg", 2),
        ("logmsg", 1),
        ("logmsg", 2),
    ]
    assert [line for line in job.log if line.startswith(jqueue.PREFIX)] == [
        "TESTMSG=a",
        "TESTMSG=b",
    ]
    # The sockets are gone.
    import os

    assert os.listdir(here.run_dir) == []


def test_a_job_that_has_to_fail() -> None:
    with pytest.raises(errors.OpExecError, match="Opcode failure was requested"):
        run(OpTestJqueue(fail=True), Visited())


def test_a_job_that_nobody_visits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jqueue, "_CONNECT_S", 0.01)
    with pytest.raises(errors.OpExecError, match="no client connected"):
        run(OpTestJqueue(notify_exec=True), Visited(visit=False))


def test_a_visitor_who_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jqueue, "_STAY_S", 0.01)
    held: list[Any] = []

    class Staying(Visited):
        def feedback(self, *args: Any) -> None:
            if args[0] == LOG_JQUEUE_TEST:
                held.append(net.unix_connect(args[1][0], 30))

    with pytest.raises(errors.OpExecError, match="did not disconnect"):
        run(OpTestJqueue(notify_exec=True), Staying())
    for one in held:
        one.close()


def test_a_job_that_waits_can_be_canceled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "_STEP_S", 0.01)
    job = Visited(visit=False)

    def stop(*args: Any) -> None:
        job.cancel = True

    monkeypatch.setattr(job, "feedback", stop)
    with pytest.raises(errors.JobCanceled):
        run(OpTestJqueue(notify_waitlock=True), job)


def test_a_delay_is_ended_early() -> None:
    job = Visited()
    assert run(OpTestDelay(duration=3600.0, interruptible=True), job) is None
    assert job.said("ended early")
    job = Visited(visit=False)
    run(OpTestDelay(duration=0.01, interruptible=True, repeat=2), job)
    assert len(job.stops) == 2
    Master(cluster_of(1)).refused(
        OpTestDelay(duration=1.0, interruptible=True, on_nodes=["node1"]), errors.ECODE_INVAL
    )


def test_a_delay_without_a_place_is_one_on_the_master(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(delay.LUTestDelay, "_sleep", lambda self, seconds: waits.append(seconds))
    run(OpTestDelay(duration=3600.0, on_master=False), Visited())
    assert waits == [3600.0]
    run(OpTestDelay(duration=0.0, on_master=False, on_nodes=["node1"]), Visited())
    assert waits == [3600.0]


def test_a_delay_can_be_canceled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between rounds, and also while it sleeps."""
    monkeypatch.setattr(delay, "_SLICE_S", 0.001)
    for op in (OpTestDelay(duration=3600.0), OpTestDelay(duration=0.0, repeat=1000000000)):
        job = Visited(visit=False)
        calls: list[int] = []

        def check(job: Visited = job, calls: list[int] = calls) -> None:
            calls.append(1)
            if len(calls) > 30:
                raise errors.JobCanceled("canceled")

        monkeypatch.setattr(job, "check_cancel", check)
        with pytest.raises(errors.JobCanceled):
            run(op, job)


def test_secret_parameters_are_named_only() -> None:
    master = Master(cluster_of(1))
    master.run(OpTestOsParams(osparams_secret={"password": "geheim"}))
    assert master.job.said("secret parameter password has 6 characters")
    assert not master.job.said("geheim")
    master.refused(OpTestOsParams(), errors.ECODE_INVAL)
