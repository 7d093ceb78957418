"""Secret parameters of a job leave the memory when their opcode ends, and stand in no text."""

from __future__ import annotations

import gc
import json
import logging
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ganeti import errors
from ganeti.jobstore.store import QueueStore
from ganeti.jqueue.callbacks import Callbacks
from ganeti.jqueue.execution import Execution
from ganeti.jqueue.queue import JobQueue
from ganeti.opcodes.base import OpCode
from ganeti.opcodes.instance import OpInstanceReinstall

PATIENCE_S = 60.0
_SECRET = "hunter2-hunter2"


class _Password(str):
    """A text whose end can be noticed."""


class Lab:
    """A queue whose opcodes end as their comment says.

    :ivar seen: the secrets which the opcodes got.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.died = threading.Event()
        self.go_on = threading.Event()
        self.seen: list[str] = []
        self.queue = JobQueue(
            QueueStore(str(directory)),
            Execution(self._execute),
            livelock="/livelock",
            fatal=self.died.set,
        )
        self.queue.start()

    def _execute(self, op: OpCode, callbacks: Callbacks) -> Any:
        assert isinstance(op, OpInstanceReinstall)
        if op.comment == "wait":
            assert self.go_on.wait(PATIENCE_S)
        callbacks.notify_start()
        self.seen.append(f"{op.osparams_secret['password'][:7]}...")
        callbacks.check_cancel()
        if op.comment == "fail":
            raise errors.OpExecError(f"cannot execute {op!r}")
        if op.comment == "bug":
            raise KeyError(f"{op} {op.osparams_secret}")
        return None

    def submit(self, *comments: str) -> tuple[int, list[weakref.ref[_Password]]]:
        """Submit a job with a secret in each opcode."""
        secrets = [_Password(_SECRET) for _ in comments]
        ops: list[OpCode] = [
            OpInstanceReinstall(
                instance_name="web1",
                comment=comment,
                osparams_secret={"password": secret},
                osparams_private={"key": "private-private"},
            )
            for comment, secret in zip(comments, secrets, strict=True)
        ]
        return self.queue.submit(ops), [weakref.ref(secret) for secret in secrets]

    def status(self, job_id: int) -> str:
        row = self.queue.query([job_id], ["status"])[0]
        assert row is not None
        return str(row[0])


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path / "queue")
    yield made
    made.go_on.set()
    made.queue.stop(PATIENCE_S)
    assert not made.died.is_set()


def _until(condition: Any) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def _gone(secrets: list[weakref.ref[_Password]]) -> bool:
    # An error and its traceback refer to each other.
    gc.collect()
    return all(secret() is None for secret in secrets)


@pytest.mark.parametrize(
    ("comments", "status"),
    [
        (("",), "success"),
        (("", ""), "success"),
        (("fail",), "error"),
        (("bug",), "error"),
        (("fail", "never executed"), "error"),
    ],
)
def test_secrets_leave_the_memory_with_the_end_of_the_job(
    lab: Lab, comments: tuple[str, ...], status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # pytest keeps what is logged, and with it the traceback of an internal error.
    monkeypatch.setattr(logging.getLogger("ganeti"), "propagate", False)
    job_id, secrets = lab.submit(*comments)
    _until(lambda: lab.status(job_id) == status)
    assert lab.seen, "the opcode got its secret"
    _until(lambda: _gone(secrets))


def test_secrets_of_a_canceled_job_leave_the_memory(lab: Lab) -> None:
    job_id, secrets = lab.submit("wait", "")
    _until(lambda: lab.status(job_id) != "queued")
    done, _text = lab.queue.operations.cancel(job_id)
    assert done
    lab.go_on.set()
    _until(lambda: lab.status(job_id) == "canceled")
    _until(lambda: _gone(secrets))


def test_the_secret_of_an_ended_opcode_leaves_the_memory_before_the_job_ends(lab: Lab) -> None:
    job_id, secrets = lab.submit("", "wait")
    _until(lambda: _gone(secrets[:1]))
    assert lab.status(job_id) in ("queued", "waiting", "running")
    assert secrets[1]() is not None, "it is needed still"


@pytest.mark.parametrize("comment", ["fail", "bug", ""])
def test_no_text_of_a_job_has_a_secret(
    lab: Lab, comment: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither errors, nor logs, nor files, nor what clients are shown."""
    caplog.set_level(logging.DEBUG)
    job_id, _ = lab.submit(comment)
    _until(lambda: lab.status(job_id) in ("success", "error"))
    row = lab.queue.query([job_id], ["ops", "opresult", "oplog", "summary"])[0]
    files = [path.read_text() for path in lab.directory.rglob("*") if path.is_file()]
    assert len(files) > 1
    for text in (json.dumps(row), caplog.text, *files):
        assert _SECRET not in text
    for text in (json.dumps(row), caplog.text):
        assert "private-private" not in text
