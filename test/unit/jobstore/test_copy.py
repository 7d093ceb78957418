"""A copy of the queue: durable when it is answered, files a moment later."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from ganeti import errors
from ganeti.jobstore.copy import QueueCopy
from ganeti.jobstore.store import QueueStore


class Steps:
    """Counts what is done to the disk, and may let it fail."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.broken = ""
        self.renamed = threading.Semaphore(0)

    def __call__(self, step: str) -> None:
        self.seen.append(step)
        if step == self.broken:
            raise OSError(28, "No space left on device")
        if step == "rename file":
            self.renamed.release()


@pytest.fixture
def steps() -> Steps:
    return Steps()


def begun(path: Path, steps: Steps, after_s: float) -> QueueCopy:
    store = QueueStore(str(path), fault=steps)
    store.open()
    steps.seen.clear()
    while steps.renamed.acquire(blocking=False):
        pass  # that of the version file
    return QueueCopy(store, apply_after_s=after_s)


def test_the_files_follow(tmp_path: Path, steps: Steps) -> None:
    copy = begun(tmp_path, steps, 0.001)
    copy.write({"job-1": "one"})
    assert steps.renamed.acquire(timeout=60)
    copy.write({"job-2": "two"})
    assert steps.renamed.acquire(timeout=60)
    copy.close()
    assert (tmp_path / "job-1").read_text() == "one"
    assert sorted(os.listdir(tmp_path)) == ["archive", "job-1", "job-2", "version"]


def test_what_changes_again_is_written_once(tmp_path: Path, steps: Steps) -> None:
    copy = begun(tmp_path, steps, 3600)
    for text in ("queued", "running", "success"):
        copy.write({"job-1": text})
    assert steps.seen.count("flush journal") == 3
    assert not (tmp_path / "job-1").exists()
    copy.close()
    assert steps.seen.count("rename file") == 1
    assert (tmp_path / "job-1").read_text() == "success"


def test_what_is_abandoned_is_replayed(tmp_path: Path, steps: Steps) -> None:
    steps.broken = "write file"
    store = QueueStore(str(tmp_path))
    store.open()
    store.close()
    copy = begun(tmp_path, steps, 3600)
    copy.write({"job-1": "one"})
    copy.close(abandon=True)
    assert not (tmp_path / "job-1").exists()
    again = QueueStore(str(tmp_path))
    again.open()
    assert again.read_job(1) == "one"
    again.close()


def test_a_disk_that_refuses_is_tried_again(tmp_path: Path, steps: Steps) -> None:
    copy = begun(tmp_path, steps, 3600)
    steps.broken = "write journal"
    with pytest.raises(errors.JobQueueError, match="No space left"):
        copy.write({"job-1": "never"})
    steps.broken = "write file"
    copy.write({"job-1": "one"})
    copy.apply()
    assert not (tmp_path / "job-1").exists()
    steps.broken = ""
    copy.close()
    assert (tmp_path / "job-1").read_text() == "one"


def test_a_directory_that_was_emptied_stays_empty(tmp_path: Path, steps: Steps) -> None:
    copy = begun(tmp_path, steps, 3600)
    copy.write({"job-1": "one"})
    (tmp_path / "journal-1").unlink()
    copy.close()
    assert sorted(os.listdir(tmp_path)) == ["archive", "version"]


def test_a_journal_that_has_grown_is_freed(tmp_path: Path, steps: Steps) -> None:
    store = QueueStore(str(tmp_path), journal_bytes=100, fault=steps)
    store.open()
    copy = QueueCopy(store, apply_after_s=3600)
    for number in range(1, 30):
        copy.write({f"job-{number}": "x" * 50})
    assert copy._flushing is not None
    copy._flushing.join()
    freed = "remove journal" in steps.seen
    copy.close()
    assert freed
    assert len(store.job_ids()) == 29
    assert not [name for name in os.listdir(tmp_path) if name.startswith("journal-")]


def test_a_closed_copy_writes_nothing_any_more(tmp_path: Path) -> None:
    """The next process may use the directory at once."""
    entered, go_on = threading.Event(), threading.Event()

    def step(name: str) -> None:
        if name == "write file" and armed:
            entered.set()
            go_on.wait()

    armed = False
    store = QueueStore(str(tmp_path), fault=step)
    store.open()
    armed = True
    copy = QueueCopy(store, apply_after_s=0)
    copy.write({"job-1": "one"})
    assert entered.wait(60)
    closed = threading.Event()
    closing = threading.Thread(target=lambda: (copy.close(abandon=True), closed.set()))
    closing.start()
    # It cannot end while a file is being written; abandon() alone would not wait.
    early = closed.wait(0.2)
    go_on.set()
    closing.join()
    assert not early
    assert (tmp_path / "job-1").read_text() == "one"
