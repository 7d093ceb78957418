"""A candidate that was away gets what it missed: also after the master daemon was started anew."""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ganeti import errors
from ganeti.jobstore import inventory
from ganeti.jqueue import replication

from . import load
from .load import op_of

PATIENCE_S = 60.0


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


class Away:
    """The candidate's node daemon is dead while this is set."""

    def __init__(self) -> None:
        self.dead = False
        self.messages: list[str] = []

    def __call__(self, step: str) -> None:
        if step.startswith("rpc"):
            if self.dead:
                raise OSError("connection refused")
            self.messages.append(step)


@pytest.fixture
def away() -> Away:
    return Away()


def equal(directory: Path) -> bool:
    try:
        return inventory.take(str(directory / "queue")) == inventory.take(
            str(directory / load.CANDIDATE)
        )
    except OSError:
        return False


def started(directory: Path, away: Away) -> load.Run:
    run = load.Run(str(directory), away)
    run.queue.start()
    return run


def some_jobs(run: load.Run, count: int = 5) -> list[int]:
    ids = [
        int(answer)
        for _, answer in run.queue.submit_many(
            [[op_of(f"number {number}")] for number in range(count)]
        )
    ]
    for job_id in ids:
        assert run.wait(job_id) == "success"
    return ids


def test_it_comes_back_to_the_same_daemon(tmp_path: Path, away: Away) -> None:
    run = started(tmp_path, away)
    first = some_jobs(run)
    until(lambda: equal(tmp_path))
    away.dead = True
    second = some_jobs(run)
    assert run.queue.archive(first[0])
    assert run.queue.archive(second[0])
    run.queue.set_drain(True)
    assert not equal(tmp_path)
    away.dead = False
    until(lambda: equal(tmp_path))
    run.stop()


def test_it_comes_back_to_a_daemon_that_knows_nothing(tmp_path: Path, away: Away) -> None:
    """What the earlier one still had to send was in its memory."""
    run = started(tmp_path, away)
    first = some_jobs(run)
    until(lambda: equal(tmp_path))
    away.dead = True
    some_jobs(run)
    run.queue.archive(first[1])
    run.stop()
    run = started(tmp_path, away)
    more = some_jobs(run, 2)
    away.dead = False
    until(lambda: equal(tmp_path))
    assert (tmp_path / load.CANDIDATE / f"job-{more[-1]}").exists()
    assert (tmp_path / load.CANDIDATE / f"archive/0/job-{first[1]}").exists()
    run.stop()


def test_nothing_is_sent_to_one_that_has_everything(tmp_path: Path, away: Away) -> None:
    run = started(tmp_path, away)
    some_jobs(run)
    until(lambda: equal(tmp_path))
    run.stop()
    away.messages.clear()
    run = started(tmp_path, away)
    replicator = run.queue.replicator
    assert replicator is not None
    until(lambda: not replicator.lagging())
    run.stop()
    assert away.messages == ["rpc inventory", "rpc inventory answered"]


def test_it_lost_its_copy(tmp_path: Path, away: Away, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new disk: everything is sent, in portions, beside what changes meanwhile."""
    monkeypatch.setattr(replication, "MESSAGE_BYTES", 3000)
    run = started(tmp_path, away)
    ids = some_jobs(run, 30)
    for job_id in ids[:10]:
        assert run.queue.archive(job_id)
    until(lambda: equal(tmp_path))
    run.stop()
    shutil.rmtree(tmp_path / load.CANDIDATE)
    run = started(tmp_path, away)
    some_jobs(run, 3)
    until(lambda: equal(tmp_path))
    assert len(os.listdir(tmp_path / load.CANDIDATE / "archive/0")) == 10
    assert away.messages.count("rpc update") > 10
    run.stop()


def test_damage_is_found_when_somebody_asks(tmp_path: Path, away: Away) -> None:
    run = started(tmp_path, away)
    ids = some_jobs(run)
    until(lambda: equal(tmp_path))
    (tmp_path / load.CANDIDATE / f"job-{ids[0]}").write_text("{}")
    (tmp_path / load.CANDIDATE / f"job-{ids[1]}").unlink()
    (tmp_path / load.CANDIDATE / "drain").touch()
    some_jobs(run)
    assert not equal(tmp_path)
    run.queue.compare_copies()
    until(lambda: equal(tmp_path))
    run.stop()


def test_jobs_that_nobody_knows(
    tmp_path: Path, away: Away, caplog: pytest.LogCaptureFixture
) -> None:
    """They are from a time that was undone; a successor must not find them."""
    run = started(tmp_path, away)
    ids = some_jobs(run, 12)
    run.queue.archive(ids[0])
    until(lambda: equal(tmp_path))
    run.stop()
    copy = tmp_path / load.CANDIDATE
    for number in range(100, 120):
        shutil.copy(copy / f"job-{ids[1]}", copy / f"job-{number}")
    caplog.clear()
    run = started(tmp_path, away)
    until(lambda: equal(tmp_path))
    assert not (copy / "job-100").exists()
    (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "has jobs which do not exist (100, 101, " in record.message
    run.stop()


def test_a_damaged_file_of_the_master_does_not_stop_it(tmp_path: Path, away: Away) -> None:
    run = started(tmp_path, away)
    ids = some_jobs(run, 3)
    until(lambda: equal(tmp_path))
    run.stop()
    (tmp_path / "queue" / f"job-{ids[0]}").write_bytes(b"\xff\xfe")
    run = started(tmp_path, away)
    more = some_jobs(run)
    until(lambda: (tmp_path / load.CANDIDATE / f"job-{more[-1]}").exists())
    replicator = run.queue.replicator
    assert replicator is not None
    until(lambda: not replicator.lagging())
    run.stop()


def test_a_queue_that_cannot_be_read_is_tried_again(
    tmp_path: Path, away: Away, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = started(tmp_path, away)
    some_jobs(run)
    until(lambda: equal(tmp_path))
    run.stop()
    shutil.rmtree(tmp_path / load.CANDIDATE)
    (tmp_path / load.CANDIDATE).mkdir()
    real = inventory.take
    wrong = [True]

    def take(directory: str, parts: object = ()) -> inventory.Inventory:
        if wrong[0] and directory.endswith("/queue"):
            raise OSError(5, "Input/output error")
        return real(directory, parts)  # type: ignore[arg-type]

    monkeypatch.setattr(inventory, "take", take)
    run = started(tmp_path, away)
    replicator = run.queue.replicator
    assert replicator is not None
    until(lambda: away.messages.count("rpc inventory") > 3)
    assert replicator.lagging()
    with pytest.raises(errors.JobQueueError, match="Input/output error"):
        replicator._here.inventory(time.monotonic())
    wrong[0] = False
    until(lambda: equal(tmp_path))
    run.stop()
