"""The committer alone: a disk which refuses, and the order in which a batch is acknowledged."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from ganeti import errors
from ganeti.jqueue import job as jobs
from ganeti.jqueue.commit import Batch, Committer, Delivered, Pace
from ganeti.opcodes.test import OpTestDelay

PATIENCE_S = 60.0


def job_of(number: int) -> jobs.QueuedJob:
    made = jobs.QueuedJob(
        number, [jobs.QueuedOpCode.from_opcode(OpTestDelay(duration=0.0))], (number, 0)
    )
    made.new = True
    return made


class Store:
    """A disk which refuses or waits."""

    def __init__(self) -> None:
        self.journal_used = False
        self.has_old_journals = False
        self.refuses = 0
        self.gate = threading.Event()
        self.gate.set()
        self.asked = threading.Semaphore(0)
        self.written: list[tuple[dict[str, str], list[int]]] = []
        self.steps: list[str] = []
        self.checkpoints = threading.Semaphore(0)

    def commit(self, files: Mapping[str, str], archive: Sequence[int] = ()) -> None:
        self.asked.release()
        assert self.gate.wait(PATIENCE_S)
        if self.refuses:
            self.refuses -= 1
            raise errors.JobQueueError("no space left")
        self.steps.append("commit")
        self.written.append((dict(files), list(archive)))

    def apply(self) -> None:
        self.steps.append("apply")

    def end_journal(self) -> None:
        self.journal_used = False

    def checkpoint(self) -> None:
        self.checkpoints.release()

    def close(self) -> None:
        self.steps.append("close")


class Lab:
    def __init__(self, retry_s: float = 0.01, idle_flush_s: float = 3600.0) -> None:
        self.store = Store()
        self.lock = threading.RLock()
        self.steps = self.store.steps
        self.sent: list[tuple[dict[str, str], list[int]]] = []
        self.candidates_have_it = threading.Event()
        self.candidates_have_it.set()
        self.nobody_has_it = False
        self.lonely: list[int] = []
        self.died = threading.Event()
        self.bug: Exception | None = None
        self.committer = Committer(
            self.store,  # type: ignore[arg-type]
            self.lock,
            send=self._send,
            publish=self._publish,
            alone=lambda new: self.lonely.extend(job.id for job in new),
            fatal=self.died.set,
            pace=Pace(retry_s, idle_flush_s),
        )

    def _send(
        self, files: dict[str, str], archived: Sequence[int], *, ended: bool
    ) -> Callable[[], Delivered]:
        self.sent.append((dict(files), list(archived)))

        def wait() -> Delivered:
            assert self.candidates_have_it.wait(PATIENCE_S)
            self.steps.append("candidates")
            return Delivered(self.nobody_has_it)

        return wait

    def _publish(self, batch: Batch) -> None:
        if self.bug is not None:
            raise self.bug
        self.steps.append("publish")

    def mark(self, batch: Batch, name: str = "") -> tuple[threading.Event, list[Any]]:
        """Note the marks of a batch; returns the end, and the errors."""
        ended = threading.Event()
        found: list[Any] = []

        def published(err: errors.JobQueueError | None) -> None:
            self.steps.append(f"{name}answered")
            found.append(err)
            ended.set()

        batch.when_durable(lambda err: self.steps.append(f"{name}durable" if err is None else "-"))
        batch.when_published(published)
        return ended, found

    def touch(self, job: jobs.QueuedJob, name: str = "") -> tuple[threading.Event, list[Any]]:
        with self.lock:
            return self.mark(self.committer.touch(job), name)

    def submit(self, job: jobs.QueuedJob, name: str = "") -> tuple[threading.Event, list[Any]]:
        with self.lock:
            return self.mark(self.committer.add_new([job], job.id), name)


@pytest.fixture
def lab() -> Iterator[Lab]:
    made = Lab()
    made.committer.start()
    yield made
    made.store.gate.set()
    made.candidates_have_it.set()
    made.committer.stop()
    assert not made.died.is_set()


def test_the_marks_come_in_order(lab: Lab) -> None:
    job = job_of(1)
    ended, found = lab.submit(job)
    assert ended.wait(PATIENCE_S)
    assert found == [None]
    assert lab.steps == [
        "commit", "durable", "apply", "candidates", "publish", "answered",
    ]  # fmt: skip
    assert not job.new
    files, archived = lab.store.written[0]
    assert sorted(files) == ["job-1", "serial"]
    assert (files["serial"], archived) == ("1\n", [])


def test_nothing_is_durable_before_the_disk_has_it(lab: Lab) -> None:
    lab.store.gate.clear()
    ended, _ = lab.touch(job_of(1))
    assert lab.store.asked.acquire(timeout=PATIENCE_S)
    assert lab.steps == []
    lab.store.gate.set()
    assert ended.wait(PATIENCE_S)


def test_nothing_is_answered_before_the_candidates_have_it(lab: Lab) -> None:
    lab.candidates_have_it.clear()
    ended, _ = lab.touch(job_of(1))
    # The next commit is durable although the candidates lack the first one.
    durable = threading.Event()
    with lab.lock:
        lab.committer.touch(job_of(2)).when_durable(lambda _err: durable.set())
    assert durable.wait(PATIENCE_S)
    assert not ended.is_set()
    assert "publish" not in lab.steps
    lab.candidates_have_it.set()
    assert ended.wait(PATIENCE_S)


def test_a_refused_change_is_written_later_in_its_newest_form(lab: Lab) -> None:
    job = job_of(1)
    lab.store.refuses = 1
    lab.store.gate.clear()
    first, errors_1 = lab.touch(job, "first ")
    with lab.lock:
        lab.committer.archive([7])
    assert lab.store.asked.acquire(timeout=PATIENCE_S)
    with lab.lock:
        job.add_log(job.ops[0], "message", "newest", (5, 0))
    second, errors_2 = lab.touch(job, "second ")
    lab.store.gate.set()
    assert first.wait(PATIENCE_S) and second.wait(PATIENCE_S)
    assert errors_1 == errors_2 == [None]
    assert lab.steps.index("first durable") < lab.steps.index("second durable")
    assert "newest" in lab.store.written[-1][0]["job-1"]
    assert [7] in [archived for _, archived in lab.store.written]


def test_a_refused_new_job_is_given_up(lab: Lab) -> None:
    lab.store.refuses = 1
    ended, found = lab.submit(job_of(1))
    assert ended.wait(PATIENCE_S)
    assert [str(err) for err in found] == ["no space left"]
    assert lab.store.written == []
    ended, found = lab.submit(job_of(2))
    assert ended.wait(PATIENCE_S)
    assert found == [None]
    assert "job-1" not in lab.store.written[0][0]


def test_a_full_disk_is_not_asked_without_end() -> None:
    lab = Lab(retry_s=3600.0)
    lab.store.refuses = 1
    lab.committer.start()
    ended, _ = lab.touch(job_of(1))
    assert lab.store.asked.acquire(timeout=PATIENCE_S)
    assert not lab.store.asked.acquire(timeout=0.1)
    # Something new is a reason to try again.
    lab.submit(job_of(2))
    assert ended.wait(PATIENCE_S)
    lab.committer.stop()


def test_a_stop_writes_the_last_changes_and_closes_the_disk(lab: Lab) -> None:
    lab.store.gate.clear()
    lab.touch(job_of(1))
    assert lab.store.asked.acquire(timeout=PATIENCE_S)
    ended, found = lab.touch(job_of(2))
    stopping = threading.Thread(target=lab.committer.stop)
    stopping.start()
    lab.store.gate.set()
    stopping.join()
    assert ended.is_set() and found == [None]
    assert "job-2" in lab.store.written[-1][0]
    assert lab.steps[-1] == "close"


def test_a_stop_with_a_full_disk_says_what_was_not_written() -> None:
    lab = Lab()
    lab.store.refuses = 1 << 40
    lab.committer.start()
    ended, found = lab.touch(job_of(1))
    assert lab.store.asked.acquire(timeout=PATIENCE_S)
    lab.committer.stop()
    assert ended.is_set()
    assert "stopped before this could be written" in str(found[0])


def test_nothing_is_taken_after_the_end() -> None:
    lab = Lab()
    lab.committer.start()
    lab.committer.stop()
    for batch in (
        lab.committer.touch(job_of(1)),
        lab.committer.add_new([job_of(2)], 2),
        lab.committer.archive([1]),
    ):
        ended, found = lab.mark(batch)
        assert ended.is_set()
        assert "the job queue is stopped" in str(found[0])
    assert lab.store.written == []


def test_several_commits_reach_the_candidates_as_one_in_the_last_state(lab: Lab) -> None:
    job = job_of(1)
    taken = threading.Event()
    go_on = threading.Event()

    def apply() -> None:
        taken.set()
        assert go_on.wait(PATIENCE_S)

    lab.store.apply = apply  # type: ignore[method-assign]
    lab.touch(job_of(9))
    assert taken.wait(PATIENCE_S)
    for text in ("older", "newer"):
        durable = threading.Event()
        with lab.lock:
            job.add_log(job.ops[0], "message", text, (5, 0))
            lab.committer.touch(job).when_durable(lambda _err, done=durable: done.set())
        assert durable.wait(PATIENCE_S)
    with lab.lock:
        ended, _ = lab.mark(lab.committer.archive([1]))
    go_on.set()
    assert ended.wait(PATIENCE_S)
    files = {name: text for sent, _ in lab.sent for name, text in sent.items()}
    assert "newer" in files["job-1"]
    assert [number for _, archived in lab.sent for number in archived] == [1]


def test_who_submits_learns_that_nobody_else_has_the_job(lab: Lab) -> None:
    lab.nobody_has_it = True
    for change in (lab.submit, lab.touch):
        ended, _ = change(job_of(4))
        assert ended.wait(PATIENCE_S)
    assert lab.lonely == [4]


def test_files_are_flushed_while_the_queue_is_idle() -> None:
    lab = Lab(idle_flush_s=0.01)
    lab.committer.start()
    ended, _ = lab.touch(job_of(1))
    assert ended.wait(PATIENCE_S)
    lab.store.journal_used = True
    assert lab.store.checkpoints.acquire(timeout=PATIENCE_S)
    assert not lab.store.journal_used
    lab.committer.stop()


def test_a_bug_in_a_thread_ends_the_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _args: None)
    lab = Lab()
    lab.bug = KeyError("oops")
    lab.committer.start()
    lab.touch(job_of(1))
    assert lab.died.wait(PATIENCE_S)


def test_a_batch_takes_over_what_is_older() -> None:
    older, newer = Batch(), Batch()
    called: list[str] = []
    first, second, replaced = job_of(1), job_of(2), job_of(1)
    for batch, name in ((older, "older"), (newer, "newer")):
        batch.when_durable(lambda _err, name=name: called.append(f"{name} durable"))
        batch.when_published(lambda _err, name=name: called.append(f"{name} published"))
    older.changed = {1: first, 2: second}
    older.archive, newer.archive = [5], [6]
    older.serial = 7
    newer.changed = {1: replaced}
    newer.take_over(older)
    assert newer.changed == {1: replaced, 2: second}
    assert newer.changed[1] is replaced
    assert (newer.archive, newer.serial) == ([5, 6], 7)
    newer.run_durable()
    newer.run_published()
    assert called == ["older durable", "newer durable", "older published", "newer published"]
    newest = Batch()
    newest.serial = 9
    newest.take_over(newer)
    assert newest.serial == 9
