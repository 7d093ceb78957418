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


# -- after a crash, and on another node ------------------------------------------------------------


def finished(number: int, received: float, end: float, status: str = "success") -> QueuedJob:
    made = job(number, status, received)
    op = made.ops[0]
    op.published = op.state = op.state._replace(end=clock.split(end))
    return made


def full_rows(directory: Path) -> list[tuple[int, str, str, float]]:
    text = (directory / "audit.log").read_text(encoding="ascii")
    found = [json.loads(line) for line in text.splitlines()]
    return [(one["job"], one["event"], one["status"], one["time"]) for one in found]


def test_lines_which_a_dead_daemon_did_not_write_come_from_the_jobs(tmp_path: Path) -> None:
    first = audit.JobLog(
        str(tmp_path / "jobs.log"), str(tmp_path / "audit.log"), now=lambda: NOW - 100
    )
    first.start()
    first.jobs_published([job(1, "queued", NOW - 100)])
    first.jobs_published([finished(1, NOW - 100, NOW - 100)])
    first.jobs_published([job(2, "queued", NOW - 100)])
    first.close()
    second = audit.JobLog(str(tmp_path / "jobs.log"), str(tmp_path / "audit.log"), now=lambda: NOW)
    second.start()
    present = [
        finished(1, NOW - 100, NOW - 100),
        finished(2, NOW - 100, NOW - 90),
        job(3, "running", NOW - 80),
        finished(4, NOW - 70, NOW - 60, "error"),
    ]
    second.recover(present)
    # The start of the queue has ended this one.
    second.jobs_published([change(present[2], "error")])
    second.close()
    assert full_rows(tmp_path)[3:] == [
        (2, "ended", "success", NOW - 90),
        (3, "accepted", "queued", NOW - 80),
        (4, "accepted", "queued", NOW - 70),
        (4, "ended", "error", NOW - 60),
        (3, "ended", "error", NOW),
    ]
    lines = (tmp_path / "audit.log").read_text().splitlines()
    assert [json.loads(line).get("late") for line in lines] == [None] * 3 + [NOW] * 4 + [None]
    third = audit.JobLog(
        str(tmp_path / "jobs.log"), str(tmp_path / "audit.log"), now=lambda: NOW + 9
    )
    third.start()
    third.recover([*present[:2], finished(3, NOW - 80, NOW), present[3]])
    third.close()
    assert len((tmp_path / "audit.log").read_text().splitlines()) == len(lines)
    assert [problem for _row, problem in store.verify([str(tmp_path / "audit.log")])] == [
        None
    ] * len(lines)


def test_lines_of_jobs_which_were_archived_at_once(tmp_path: Path) -> None:
    """A job may be accepted, end and be archived in the last seconds of a master."""
    logs = str(tmp_path / "jobs.log"), str(tmp_path / "audit.log")
    first = audit.JobLog(*logs, now=lambda: NOW - 100)
    first.start()
    first.jobs_published([job(3, "queued", NOW - 100)])
    first.jobs_published([finished(3, NOW - 100, NOW - 100)])
    first.jobs_published([job(5, "queued", NOW - 100)])
    first.close()
    archived = {
        2: finished(2, NOW - 200, NOW - 190),
        3: finished(3, NOW - 100, NOW - 100),
        5: finished(5, NOW - 100, NOW - 90),
        6: None,  # its file is damaged
        7: finished(7, NOW - 80, NOW - 70, "error"),
    }
    read = []

    def ids(least: int) -> list[int]:
        return sorted((one for one in archived if one >= least), reverse=True)

    def read_one(number: int) -> QueuedJob | None:
        read.append(number)
        return archived[number]

    second = audit.JobLog(*logs, now=lambda: NOW)
    second.start()
    second.recover([finished(8, NOW - 60, NOW - 50)], audit.Archive(ids, read_one))
    second.close()
    assert full_rows(tmp_path)[3:] == [
        (5, "ended", "success", NOW - 90),
        (7, "accepted", "queued", NOW - 80),
        (7, "ended", "error", NOW - 70),
        (8, "accepted", "queued", NOW - 60),
        (8, "ended", "success", NOW - 50),
    ]
    # Neither what is noted, nor what is older than the log.
    assert read == [7, 6, 5]


def test_an_archive_which_cannot_be_read_hides_no_other_line(tmp_path: Path) -> None:
    logs = str(tmp_path / "jobs.log"), str(tmp_path / "audit.log")
    log = audit.JobLog(*logs, now=lambda: NOW - 100)
    log.start()
    log.jobs_published([job(1, "queued", NOW - 100)])
    log.close()

    def broken(_least: int) -> list[int]:
        raise FileNotFoundError(2, "No such file or directory")

    again = audit.JobLog(*logs, now=lambda: NOW)
    again.start()
    again.recover([finished(2, NOW - 60, NOW - 50)], audit.Archive(broken, lambda _number: None))
    again.close()
    assert [row[:2] for row in full_rows(tmp_path)[1:]] == [(2, "accepted"), (2, "ended")]


def test_jobs_older_than_what_is_read_are_not_noted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "_RECENT_BYTES", 1000)
    log = audit.JobLog(
        str(tmp_path / "jobs.log"), str(tmp_path / "audit.log"), now=lambda: NOW - 50
    )
    log.start()
    for number in range(1, 9):
        log.jobs_published([job(number, "queued", NOW - 50)])
    log.close()
    before = full_rows(tmp_path)
    again = audit.JobLog(str(tmp_path / "jobs.log"), str(tmp_path / "audit.log"), now=lambda: NOW)
    again.start()
    again.recover([job(1, "queued", NOW - 60)])
    again.close()
    assert full_rows(tmp_path) == before
