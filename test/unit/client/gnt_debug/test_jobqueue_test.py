"""``gnt-debug``: the test of the queue finds faults; secret parameters; locks by other names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from fakes.luxi_master import FakeJob, FakeMaster
from ganeti import errors
from ganeti.client.gnt_debug import jobqueue_test
from ganeti.utils import net

from ..conftest import Gnt


@pytest.fixture
def rendezvous(tmp_path: Path) -> Any:
    """Somebody listens where jobs say they stop."""
    path = str(tmp_path / "sock")
    listener = net.unix_listen(path)
    yield path
    listener.close()
    os.unlink(path)


class Queue(FakeMaster):
    """A queue that runs test jobs as it should, but for one fault.

    :param fault: name of what is wrong.
    """

    def __init__(self, path: str, fault: str = "") -> None:
        super().__init__()
        self.path = path
        self.fault = fault

    def _do_SubmitManyJobs(self, given: list[list[dict[str, Any]]]) -> list[list[Any]]:
        rows: list[list[Any]] = []
        for ops in given:
            # A job without opcodes is accepted, as in Ganeti.
            good = all(
                op.get("OP_ID") in ("OP_TEST_DELAY",)
                and not isinstance(op["duration"], str)
                and op.get("priority") != 99
                and "nosuch" not in op
                for op in ops
            )
            rows.append(
                [True, self._submit(ops)]
                if good or self.fault == "takes everything"
                else [False, "refused"]
            )
        return rows

    def _do_WaitForJobChange(
        self, job_id: int, fields: Any, info: Any, serial: Any, timeout_s: Any
    ) -> Any:
        job = self.jobs[job_id]
        if job.ops[0]["OP_ID"] != "OP_TEST_JQUEUE":
            return super()._do_WaitForJobChange(job_id, fields, info, serial, timeout_s)
        script = self._script(job)
        done = serial or 0
        if done < len(script) and job.status != "canceled":
            # One line at a time, in the state which it was written in.
            status, states, kind, message = script[done]
            job.status, job.states = status, states
            entries = [[done + 1, list(self.STAMP), kind, message]]
        else:
            entries = []
            if job.status != "canceled":
                self._end(job)
        return [[self._job_field(job, field) for field in fields], entries]

    def _job_field(self, job: FakeJob, field: str) -> Any:
        # One job after the other; or all at once.
        if field in ("start_ts", "end_ts") and self.fault != "ignores dependencies":
            return [job.job_id, int(field == "end_ts")]
        return super()._job_field(job, field)

    def _script(self, job: FakeJob) -> list[Any]:
        lines: list[Any] = []
        count = len(job.ops)
        for index, op in enumerate(job.ops):

            def states(now: str, index: int = index) -> list[str]:
                return ["success"] * index + [now] + ["queued"] * (count - index - 1)

            def stop(status: str, where: str, argument: Any, index: int = index) -> None:
                if self.fault == "says queued":
                    status = "queued"
                lines.append(
                    (status, states(status, index), "jqueue-test", [self.path, where, argument])
                )

            stop("waiting", "expandnames", None)
            stop("running", "exec", None)
            if op["log_messages"]:
                stop("running", "startmsg", len(op["log_messages"]))
            for number, message in enumerate(op["log_messages"], 1):
                if self.fault != "loses a message" or number != 3:
                    lines.append(("running", states("running"), "message", f"TESTMSG={message}"))
                stop("running", "logmsg", number)
            if op["fail"]:
                break
        return lines

    def _end(self, job: FakeJob) -> None:
        failing = [op["fail"] for op in job.ops]
        first = failing.index(True) if True in failing else len(failing)
        ill = self.fault == "never fails"
        job.states = [
            "success" if ill or index < first else "error" for index in range(len(failing))
        ]
        job.results = [True] * first + [["OpExecError", ["Opcode failure was requested"]]] * (
            len(failing) - first
        )
        job.status = "success" if ill or first == len(failing) else "error"


@pytest.mark.parametrize(
    ("fault", "fragment"),
    [
        ("", ""),
        ("takes everything", "was accepted"),
        ("ignores dependencies", "began before"),
        ("says queued", "is queued"),
        ("loses a message", "messages were sent"),
        ("never fails", "though it had to fail"),
    ],
)
def test_the_queue_under_test(
    gnt: Gnt, here: Any, rendezvous: str, fault: str, fragment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobqueue_test, "_SETTLE_S", 0.0)
    with Queue(rendezvous, fault).serve(here):
        ended = gnt("debug test-jobqueue")
    assert ended.code == (1 if fault else 0), ended
    if fault:
        assert f"job queue test failed: {ended.err.split('failed: ')[-1]}" in ended.err
        assert fragment in ended.err
    else:
        assert ended.out.endswith("Job queue test successful\n")
        assert ended.out.count("Ignoring error for 'job fail' test") == 2


def test_a_job_which_does_not_listen(gnt: Gnt, here: Any, tmp_path: Path) -> None:
    with Queue(str(tmp_path / "nobody")).serve(here):
        ended = gnt("debug test-jobqueue")
    assert ended.code == 1
    assert "cannot connect to the job's socket" in ended.err


def test_secret_parameters(gnt: Gnt, master: FakeMaster) -> None:
    done = gnt("debug test-osparams --os-parameters-secret=a=b,c=d")
    assert (done.code, done.out) == (0, "Secret OS parameters: {'a': 'b', 'c': 'd'}\n")
    assert master.opcode()["osparams_secret"] == {"a": "b", "c": "d"}
    master.results["OP_TEST_OS_PARAMS"] = errors.OpPrereqError("none", errors.ECODE_INVAL)
    assert gnt("debug test-osparams").code == 1


def test_secret_parameters_of_a_file(gnt: Gnt, master: FakeMaster, tmp_path: Path) -> None:
    (tmp_path / "secrets").write_text("a=x y\ne=f,g\n")
    words = f"--os-parameters-secret=a=b,c=d --os-parameters-secret-file={tmp_path}/secrets"
    assert gnt(f"debug test-osparams {words}").code == 0
    assert master.opcode()["osparams_secret"] == {"a": "x y", "c": "d", "e": "f,g"}


@pytest.fixture
def locks(master: FakeMaster) -> FakeMaster:
    master.fields["lock"] = [
        {"name": name, "title": name, "kind": "other", "doc": name}
        for name in ("name", "mode", "owner", "pending")
    ]
    master.rows["lock"] = [
        {"name": "node/a", "mode": "exclusive", "owner": ["7"], "pending": [["shared", ["8"]]]},
        {"name": "cluster/BGL", "mode": "shared", "owner": ["7", "9"], "pending": None},
        {"name": "node/b", "mode": None, "owner": None, "pending": None},
    ]
    return master


@pytest.mark.parametrize(
    ("words", "out"),
    [
        ("echo a b", "a b\n"),
        ("listlocks 7", "node/a exclusive\ncluster/BGL shared\n"),
        ("listlocks 8", ""),
        ("listalllocks", "node/a\ncluster/BGL\n"),
        ("listalllocksstatus", "node/a exclusive 7\ncluster/BGL shared 7,9\n"),
        ("listlockswaitingstatus", "node/a shared 8\n"),
    ],
)
def test_wconfd(gnt: Gnt, locks: FakeMaster, words: str, out: str) -> None:
    assert gnt(f"debug wconfd {words}") == (0, out, "")


def test_wconfd_with_nothing_to_do(gnt: Gnt, locks: FakeMaster) -> None:
    assert "Nothing to do" in gnt("debug wconfd flushconfig").out
    assert "'nosuch' is not a request" in gnt("debug wconfd nosuch").err
    assert "number of a job" in gnt("debug wconfd listlocks x").err
