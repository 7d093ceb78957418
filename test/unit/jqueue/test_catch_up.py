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
from ganeti.jqueue import outbox
from ganeti.jqueue.restore import Restorer

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
    assert run.queue.operations.archive(first[0])
    assert run.queue.operations.archive(second[0])
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
    run.queue.operations.archive(first[1])
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
    monkeypatch.setattr(outbox, "MESSAGE_BYTES", 3000)
    run = started(tmp_path, away)
    ids = some_jobs(run, 30)
    for job_id in ids[:10]:
        assert run.queue.operations.archive(job_id)
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
    run.queue.operations.archive(ids[0])
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
        replicator.here.inventory(time.monotonic())
    wrong[0] = False
    until(lambda: equal(tmp_path))
    run.stop()


# -- damage on the master ------------------------------------------------------------------------


def queued_copy(directory: Path, job_id: int) -> None:
    """Make the candidate's copy of a job older than its end."""
    path = directory / load.CANDIDATE / f"job-{job_id}"
    path.write_text(path.read_text().replace('"status":"success"', '"status":"queued"'))


def damage(path: Path, kind: str) -> None:
    if kind == "missing":
        path.unlink()
    elif kind == "loop":
        path.unlink()
        path.symlink_to(path.name)
    else:
        path.write_text(
            {
                "empty": "",
                "torn": path.read_text()[:60],
                "of another job": path.read_text().replace('{"id":', '{"id":1'),
            }[kind]
        )


KINDS = ["missing", "loop", "empty", "torn", "of another job"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_copy_of_a_candidate_replaces_a_damaged_file(
    tmp_path: Path, away: Away, kind: str
) -> None:
    """Whatever happened to the master's file, the copies are the job, and are not touched."""
    run = started(tmp_path, away)
    ids = some_jobs(run)
    until(lambda: equal(tmp_path))
    before = run.queue.query(ids, ["id", "status", "opresult", "oplog"])
    run.stop()
    for job_id in ids[1:3]:
        damage(tmp_path / f"queue/job-{job_id}", kind)
    run = started(tmp_path, away)
    until(lambda: run.queue.query(ids, ["id", "status", "opresult", "oplog"]) == before)
    until(lambda: equal(tmp_path))
    assert not run.queue.lost_jobs()
    run.stop()


def test_a_copy_that_may_be_older_does_not_run_again(tmp_path: Path, away: Away) -> None:
    run = started(tmp_path, away)
    first, second = some_jobs(run, 2)
    until(lambda: equal(tmp_path))
    run.stop()
    queued_copy(tmp_path, first)
    (tmp_path / f"queue/job-{first}").unlink()
    executed = (tmp_path / "executed").read_text()
    run = started(tmp_path, away)
    until(lambda: run.queue.query([first], ["status"]) == [["error"]])
    until(lambda: equal(tmp_path))
    row = run.queue.query([first], ["opresult"])[0]
    assert row is not None and "was lost on the master" in str(row)
    assert run.queue.table.unfinished == 0
    run.stop()
    assert (tmp_path / "executed").read_text() == executed


def test_an_archived_job_is_brought_back(tmp_path: Path, away: Away) -> None:
    run = started(tmp_path, away)
    ids = some_jobs(run)
    assert run.queue.operations.archive(ids[0])
    until(lambda: equal(tmp_path))
    run.stop()
    whole = (tmp_path / f"queue/archive/0/job-{ids[0]}").read_text()
    (tmp_path / f"queue/archive/0/job-{ids[0]}").write_text("")
    run = started(tmp_path, away)
    until(lambda: (tmp_path / f"queue/archive/0/job-{ids[0]}").read_text() == whole)
    until(lambda: equal(tmp_path))
    assert run.queue.query([ids[0]], ["status", "archived"]) == [["success", True]]
    run.stop()
    assert (tmp_path / load.CANDIDATE / f"archive/0/job-{ids[0]}").read_text() == whole


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_in_memory_is_written_again(tmp_path: Path, away: Away, kind: str) -> None:
    """The damage happens while the daemon runs."""
    run = started(tmp_path, away)
    ids = some_jobs(run)
    until(lambda: equal(tmp_path))
    run.store.checkpoint()
    path = tmp_path / f"queue/job-{ids[0]}"
    whole = path.read_text()
    damage(path, kind)
    run.queue.compare_copies()
    until(lambda: path.exists() and path.read_text() == whole)
    until(lambda: equal(tmp_path))
    run.stop()
    assert (tmp_path / load.CANDIDATE / f"job-{ids[0]}").read_text() == whole


@pytest.mark.parametrize("kind", [*KINDS, "another result"])
def test_verification_writes_damaged_files_again(tmp_path: Path, away: Away, kind: str) -> None:
    run = started(tmp_path, away)
    ids = some_jobs(run)
    until(lambda: equal(tmp_path))
    assert run.queue.repair_files() == {}
    path = tmp_path / f"queue/job-{ids[0]}"
    whole = path.read_text()
    if kind == "another result":
        path.write_text(whole.replace('"status":"success"', '"status":"error"'))
    else:
        damage(path, kind)
    assert list(run.queue.repair_files()) == [ids[0]]
    until(lambda: path.exists() and path.read_text() == whole)
    assert run.queue.repair_files() == {}
    run.stop()


def test_the_best_of_all_copies_is_taken(tmp_path: Path) -> None:
    """The first candidate lags; the second one has the end."""
    run = load.Run(str(tmp_path), load.no_step)
    run.queue.start()
    (job_id,) = some_jobs(run, 1)
    whole = (tmp_path / f"queue/job-{job_id}").read_text()
    table = run.queue.table
    run.queue.operations.archive(job_id)
    os.remove(tmp_path / f"queue/archive/0/job-{job_id}")
    name = f"job-{job_id}"

    class Two:
        """One copy is older, one cannot be read, one is damaged, one is whole."""

        def candidates(self) -> list[str]:
            return ["older", "away", "damaged", "whole"]

        def read(self, node: str, names: object) -> dict[str, str]:
            if node == "away":
                raise errors.NodeUnreachable(node, "jobqueue_read", "no route")
            older = whole.replace('"status":"success"', '"status":"queued"')
            return {name: {"older": older, "damaged": whole[:50], "whole": whole}[node]}

    Restorer(table, run.queue.scheduler, Two()).restore([job_id, 77])
    assert run.queue.query([job_id, 77], ["status"]) == [["success"], None]
    run.stop()
