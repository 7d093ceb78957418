"""An opcode is validated once on its way into the queue, and its execution relies on that."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ganeti import errors
from ganeti.cmdlib.base import MasterContext
from ganeti.jobstore.store import QueueStore
from ganeti.jqueue.execution import Execution
from ganeti.jqueue.queue import JobQueue
from ganeti.luxi.client import Client
from ganeti.master.luxi_server import LuxiServer
from ganeti.master.luxi_service import LuxiService
from ganeti.opcodes.base import OpCode
from ganeti.platform import paths
from ganeti.utils import net

from .queue_lab import PATIENCE_S, Lab, op, wait


@pytest.fixture
def validated(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The comments of the opcodes in the order in which they were validated."""
    found: list[str] = []
    original = OpCode.validate

    def validate(self: OpCode) -> OpCode:
        found.append(self.comment or "")
        return original(self)

    monkeypatch.setattr(OpCode, "validate", validate)
    return found


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path / "queue")
    made.queue.start()
    yield made
    made.queue.stop(PATIENCE_S)
    assert not made.died.is_set()


def test_a_submission(lab: Lab, validated: list[str]) -> None:
    assert lab.wait(lab.queue.submit([op("one"), op("two")])) == "success"
    ids = [job_id for _, job_id in lab.queue.submit_many([[op("three")], [op("four")]])]
    for job_id in ids:
        assert lab.wait(job_id) == "success"
    assert validated == ["one", "two", "three", "four"]


def test_jobs_which_a_job_submits(lab: Lab, validated: list[str]) -> None:
    assert lab.wait(lab.queue.submit([op("spawn")])) == "success"
    for job_id in (2, 3):
        assert lab.wait(job_id) == "success"
    assert validated == ["spawn", "child", "child"]


def test_a_job_from_disk(lab: Lab, validated: list[str]) -> None:
    gate = lab.gate("first")
    lab.queue.set_max_running(1)
    first = lab.queue.submit([op("first"), op("rest")])
    assert lab.reached["first"].wait(PATIENCE_S)
    second = lab.queue.submit([op("second")])
    lab.queue.stop(0.0)
    del validated[:]
    lab.queue = lab.new()
    lab.queue.start()
    gate.set()
    assert lab.wait(first) == "error"
    assert lab.wait(second) == "success"
    assert lab.row(second, "summary", "opstatus")[1] == ["success"]
    assert validated == ["second"]


def test_a_damaged_job_from_disk_fails_and_is_not_executed(lab: Lab, tmp_path: Path) -> None:
    lab.queue.scheduler.set_filters([])
    gate = lab.gate("first")
    lab.queue.set_max_running(1)
    lab.queue.submit([op("first")])
    assert lab.reached["first"].wait(PATIENCE_S)
    second = lab.queue.submit([op("second")])
    lab.queue.stop(0.0)
    gate.set()
    file = tmp_path / "queue" / f"job-{second}"
    text = file.read_text()
    assert '"duration":0.0' in text
    file.write_text(text.replace('"duration":0.0', '"duration":"long"'))
    lab.queue = lab.new()
    lab.queue.start()
    assert lab.wait(second) == "error"
    ((error, (message, kind)),) = lab.row(second, "opresult")[0]
    assert (error, kind) == ("OpPrereqError", errors.ECODE_INVAL)
    assert "duration" in message
    assert "second" not in lab.order


def test_requests(tmp_path: Path, validated: list[str]) -> None:
    with paths.override(paths.Paths(str(tmp_path))):
        context: Any = MasterContext(None, None, None)  # type: ignore[arg-type]
        context.queue = queue = JobQueue(
            QueueStore(str(tmp_path / "queue")),
            Execution(lambda _op, callbacks: callbacks.notify_start()),
        )
        queue.start()
        socket = str(tmp_path / "socket")
        server = LuxiServer([net.unix_listen(socket)], LuxiService(context))
        thread = threading.Thread(target=server.serve)
        thread.start()
        try:
            with Client(socket) as client:
                ids = [
                    client.submit_job([op("one")]),
                    client.submit_job([op("two")], drained_ok=True),
                ]
                many = client.submit_many_jobs([[op("three")], [op("four"), op("five")]])
                ids += [int(job_id) for _, job_id in many]
                for job_id in ids:
                    assert wait(queue, job_id) == "success"
        finally:
            queue.stop(PATIENCE_S)
            server.stop(grace_s=1.0)
            thread.join(PATIENCE_S)
        assert validated == ["one", "two", "three", "four", "five"]
