"""jobs.log and audit.log of the master daemon."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ganeti.jobstore import audit as store
from ganeti.jqueue.job import OpState, QueuedJob, QueuedOpCode
from ganeti.master import audit
from ganeti.utils import clock

NOW = 1_800_000_000.0


def job(number: int = 5, status: str = "queued", received: float = NOW) -> QueuedJob:
    op = QueuedOpCode(
        {
            "OP_ID": "OP_INSTANCE_STARTUP",
            "instance_name": "web1",
            "reason": [["gnt:client:gnt-instance", "startup", 5], ["gnt:user", "a\nb", 6], 7],
        }
    )
    made = QueuedJob(number, [op], clock.split(received))
    op.published = op.state = OpState(status=status)
    return made


def change(one: QueuedJob, status: str) -> QueuedJob:
    one.ops[0].published = one.ops[0].state = OpState(status=status)
    return one


@pytest.fixture
def log(tmp_path: Path) -> audit.JobLog:
    made = audit.JobLog(str(tmp_path / "jobs.log"), str(tmp_path / "audit.log"), now=lambda: NOW)
    made.start()
    return made


def rows(directory: Path) -> list[tuple[int, str, str]]:
    text = (directory / "audit.log").read_text(encoding="ascii")
    found = [json.loads(line) for line in text.splitlines()]
    return [(one["job"], one["event"], one["status"]) for one in found]


def test_a_job_has_two_lines_in_each_log(log: audit.JobLog, tmp_path: Path) -> None:
    one = job()
    for status in ("queued", "waiting", "running", "success"):
        log.jobs_published([change(one, status)])
    log.close()
    assert rows(tmp_path) == [(5, "accepted", "queued"), (5, "ended", "success")]
    first = json.loads((tmp_path / "audit.log").read_text().splitlines()[0])
    assert first["ops"] == ["INSTANCE_STARTUP(web1)"]
    assert first["reason"] == [["gnt:client:gnt-instance", "startup"], ["gnt:user", "a\nb"]]
    assert first["time"] == NOW
    lines = (tmp_path / "jobs.log").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 2
    assert "job 5 accepted: INSTANCE_STARTUP(web1) (gnt:client:gnt-instance: startup;" in lines[0]
    assert "job 5 ended with success: INSTANCE_STARTUP(web1)" in lines[1]


def test_a_job_that_ends_at_once(log: audit.JobLog, tmp_path: Path) -> None:
    log.jobs_published([job(status="canceled")])
    log.close()
    assert rows(tmp_path) == [(5, "accepted", "canceled"), (5, "ended", "canceled")]


def test_a_job_of_an_earlier_daemon_is_not_accepted_again(
    log: audit.JobLog, tmp_path: Path
) -> None:
    one = job(received=NOW - 60)
    log.jobs_published([change(one, "running")])
    log.jobs_published([change(one, "error")])
    log.close()
    assert rows(tmp_path) == [(5, "ended", "error")]


def test_lines_which_could_not_be_written_are_counted(
    log: audit.JobLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    plain = store.append
    monkeypatch.setattr(store, "append", full)
    log.jobs_published([job(1, "success")])
    log._entries.put(None)
    log._thread.join()
    monkeypatch.setattr(store, "append", plain)
    log._write([audit._Entry(NOW, "ended", job(2, "success"), "success")])
    (line,) = (tmp_path / "audit.log").read_text().splitlines()
    assert json.loads(line)["lost"] == 2
    assert [one for _, one in store.verify([str(tmp_path / "audit.log")])] == [None]
