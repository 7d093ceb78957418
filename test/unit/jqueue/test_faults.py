"""The disk or the messages fail under a running load; the promises hold, and the log says what is
wrong.

Faults are injected at the one point through which every step goes, and, where this user may mount,
made for real: a small disk that is full, and one that becomes read-only.
"""

from __future__ import annotations

import errno
import logging
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ganeti import errors
from ganeti.jqueue import facts
from ganeti.jqueue import job as jobs

from . import load
from .load import op_of

PATIENCE_S = 60.0

KINDS = (errno.ENOSPC, errno.EROFS, errno.EIO)


class Fault:
    """Lets steps fail.

    :param wrong: whether the step of this number and name fails.
    """

    def __init__(self, wrong: Callable[[int, str], bool], error: int) -> None:
        self._wrong = wrong
        self._error = error
        self._lock = threading.Lock()
        self.count = 0
        self.failed: list[str] = []
        self.healed = False

    def __call__(self, step: str) -> None:
        with self._lock:
            # Those on the candidate's disk come whenever its threads come to them.
            numbered = not step.startswith("copy ")
            self.count += numbered
            fails = not self.healed and self._wrong(self.count if numbered else 0, step)
            if fails:
                self.failed.append(step)
        if fails:
            raise OSError(self._error, os.strerror(self._error))


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def go_through(directory: Path, fault: Fault) -> None:
    """The load with the fault; then the promises, first on the same directory's next start."""
    directory.mkdir()
    run = load.Run(str(directory), fault)
    try:
        run.queue.start()
    except errors.JobQueueError:
        # Refused to start, with nothing changed; nothing was acknowledged.
        assert not (directory / "acknowledged").read_text()
    else:
        load.work(run)
        run.queue.stop()
        assert not run.died.is_set()
    fault.healed = True
    run.close()
    again = load.Run(str(directory), load.no_step)
    load.check(str(directory), again)
    again.close()


@pytest.mark.parametrize("share", range(4))
def test_each_step_fails_once(tmp_path: Path, share: int) -> None:
    """One after the other: every second step of the disk and every message."""
    failed: set[str] = set()
    step = share + 1
    while True:
        fault = Fault(
            lambda number, _step, at=step: number == at,  # type: ignore[misc]
            KINDS[step // 4 % len(KINDS)],
        )
        go_through(tmp_path / str(step), fault)
        if not fault.failed:
            break
        failed.update(fault.failed)
        step += 8
    assert step > 150
    assert len(failed) > 5


@pytest.mark.parametrize(
    "step",
    [
        "create journal",
        "write journal",
        "flush journal",
        "remove journal",
        "write file",
        "rename file",
        "flush file",
        "flush directory",
        "archive job",
        "remove drain",
        "copy write journal",
        "copy flush journal",
        "copy write file",
    ],
)
def test_several_steps_of_a_kind_fail(tmp_path: Path, step: str) -> None:
    for error in KINDS:
        seen: list[int] = []

        def wrong(number: int, name: str, seen: list[int] = seen) -> bool:
            if name == step:
                seen.append(number)
            return name == step and len(seen) in (2, 3, 5)

        fault = Fault(wrong, error)
        go_through(tmp_path / str(error), fault)
        assert fault.failed or step == "remove drain"


@pytest.mark.parametrize(
    "step",
    [
        "rpc update",
        "rpc update answered",
        "rpc inventory",
        "rpc archive",
        "rpc archive answered",
        "rpc drain",
        "rpc drain answered",
    ],
)
def test_every_message_of_a_kind_fails_for_a_while(tmp_path: Path, step: str) -> None:
    """Nobody waits long for the candidate, and it has everything in the end."""
    fault = Fault(lambda _number, name: name == step, errno.EHOSTUNREACH)
    fault_free = threading.Timer(0.5, lambda: setattr(fault, "healed", True))
    fault_free.start()
    go_through(tmp_path / "q", fault)
    fault_free.join()


@pytest.mark.parametrize(
    ("step", "error", "words"),
    [
        ("write journal", errno.ENOSPC, "No space left on device"),
        ("create journal", errno.EROFS, "Read-only file system"),
        ("flush journal", errno.EIO, "Input/output error"),
    ],
)
def test_a_broken_disk_is_named_and_heals(
    tmp_path: Path,
    step: str,
    error: int,
    words: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    fault = Fault(lambda _number, name: name == step, error)
    fault.healed = True
    run = load.Run(str(tmp_path), fault)
    run.queue.start()
    before = run.submit(op_of("held"))
    assert before is not None
    until(lambda: (tmp_path / "executed").read_text())
    until(lambda: run.queue.query([before], ["status"]) == [["running"]])
    run.store.end_journal()  # so that the next commit has to make one
    fault.healed = False
    with pytest.raises(errors.JobQueueError, match=f"cannot write to the job queue in .*{words}"):
        run.queue.submit([op_of("refused")])
    run.hold.set()
    until(lambda: not run.queue.scheduler.pool.busy())
    assert run.queue.query([before], ["status"]) == [["running"]], "published before it was stored"
    reasons = facts.job_facts(run.queue, before)
    assert reasons is not None and reasons.real_status == "success"
    assert any(
        words in record.message and record.levelno == logging.ERROR for record in caplog.records
    )
    fault.healed = True
    assert run.wait(before) == "success"
    assert run.submit(op_of("after")) is not None
    run.stop()
    load.check(str(tmp_path), load.Run(str(tmp_path), load.no_step))
    assert "refused" not in (tmp_path / "executed").read_text()


def test_everything_fails_until_the_daemon_gives_up(tmp_path: Path) -> None:
    """A stop on a broken disk ends; the next start finds what was acknowledged."""
    fault = Fault(lambda _number, step: not step.startswith("rpc"), errno.EIO)
    fault.healed = True
    run = load.Run(str(tmp_path), fault)
    run.queue.start()
    held = run.submit(op_of("held"))
    assert held is not None
    until(lambda: (tmp_path / "executed").read_text())
    fault.healed = False
    run.hold.set()
    until(lambda: not run.queue.scheduler.pool.busy())
    run.queue.stop()
    fault.healed = True
    run.settle()
    again = load.Run(str(tmp_path), load.no_step)
    again.queue.start()
    assert again.wait(held) == "error", "nobody knows any more that it succeeded"
    assert again.queue.query([held], ["opresult"])[0] is not None
    again.stop()
    load.check(str(tmp_path), load.Run(str(tmp_path), load.no_step))


# -- real disks ----------------------------------------------------------------------------------


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 1 MiB of its own."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place],
        capture_output=True,
        check=False,
        text=True,
    )
    if mount.returncode != 0:
        pytest.skip(f"cannot mount here: {mount.stderr.strip()}")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


@pytest.mark.programs
def test_a_disk_that_is_really_full(disk: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = load.Run(str(disk), load.no_step)
    run.queue.start()
    first = run.submit(op_of("first"))
    run.end(first)
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as stream:
        for size in (65536, 4096, 1):
            try:
                while stream.write(b"x" * size) == size:
                    continue
            except OSError as err:
                assert err.errno == errno.ENOSPC
    refused = 0
    while refused < 3:  # what is in half a page may still fit
        try:
            job_id = run.queue.submit([op_of(f"squeezed {'x' * 3000}")])
        except errors.JobQueueError as err:
            assert "No space left on device" in str(err)
            refused += 1
        else:
            # Sparing the file of acknowledgements, which lies on this disk, too.
            assert job_id
    assert any("No space left" in record.message for record in caplog.records)
    filler.unlink()
    second = run.submit(op_of("second"))
    assert second is not None
    run.end(second)
    run.stop()
    load.check(str(disk), load.Run(str(disk), load.no_step))


@pytest.mark.programs
def test_a_disk_that_becomes_read_only(disk: Path, caplog: pytest.LogCaptureFixture) -> None:
    queue_dir = disk / "queue"
    queue_dir.mkdir()
    # A mount of its own, so that only the queue becomes read-only.
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", queue_dir], check=True)
    try:
        run = load.Run(str(disk), load.no_step)
        run.queue.start()
        first = run.submit(op_of("first"))
        run.end(first)
        assert first is not None
        # As the kernel does it after an error of the disk: also for files which are open.
        run.store.end_journal()
        run.store.checkpoint()
        subprocess.run(["mount", "-o", "remount,ro", queue_dir], check=True)
        with pytest.raises(errors.JobQueueError, match="Read-only file system"):
            run.queue.submit([op_of("refused")])
        success, _message = run.queue.operations.cancel(first)
        assert not success, "it has ended"
        assert run.queue.query([first], ["status"]) == [["success"]], "questions are answered"
        with pytest.raises(errors.JobQueueError, match="drain flag of the queue: .*Read-only"):
            run.queue.set_drain(True)
        assert not run.queue.drained
        run.stop()
        run = load.Run(str(disk), load.no_step)
        run.queue.start()
        with pytest.raises(errors.JobQueueError, match="Read-only file system"):
            run.queue.submit([op_of("refused")])
        assert run.queue.query([first], ["status"]) == [["success"]], "also after a new start"
        assert any("Read-only" in record.message for record in caplog.records)
        subprocess.run(["mount", "-o", "remount,rw", queue_dir], check=True)
        second = run.submit(op_of("second"))
        run.end(second)
        run.stop()
        load.check(str(disk), load.Run(str(disk), load.no_step))
    finally:
        subprocess.run(["umount", "--lazy", queue_dir], check=True)


# -- what lies in the directory ------------------------------------------------------------------


def _stopped_queue(directory: Path) -> tuple[int, int]:
    run = load.Run(str(directory), load.no_step)
    run.queue.start()
    first, second = run.submit(op_of("first")), run.submit(op_of("second"))
    run.end(first)
    run.end(second)
    run.stop()
    assert first is not None and second is not None
    return first, second


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "invalid JSON"),
        ('{"id": 2, "ops": [{"inp', "invalid JSON"),
        ("\udc80\udcff", "invalid JSON"),
        ('{"id": 2, "version": 99, "operations": []}', "not a job: KeyError 'ops'"),
        ("[1, 2]", "not a job"),
        (
            '{"id": 1, "ops": [], "received_timestamp": null, "start_timestamp": null,'
            ' "end_timestamp": null}',
            "it holds job 1",
        ),
    ],
)
def test_a_job_file_that_cannot_be_read(
    tmp_path: Path, text: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Torn, of another version, somebody else's: named, set aside, its id not used again."""
    first, second = _stopped_queue(tmp_path)
    damaged = tmp_path / "queue" / f"job-{second}"
    damaged.write_bytes(text.encode("utf-8", "surrogateescape"))
    # Otherwise the job comes back from there.
    (tmp_path / load.CANDIDATE / f"job-{second}").unlink()
    run = load.Run(str(tmp_path), load.no_step)
    run.queue.start()
    assert run.queue.query([first, second], ["status"]) == [["success"], None]
    (record,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert f"job {second} cannot be read, its file is set aside" in record.message
    assert said in record.message
    fresh = run.queue.submit([op_of("fresh")])
    assert fresh > second
    assert run.wait(fresh) == "success"
    run.stop()
    damaged = tmp_path / "queue/damaged" / f"job-{second}"
    assert damaged.read_bytes() == text.encode("utf-8", "surrogateescape")


def test_an_opcode_of_another_version_fails_alone(tmp_path: Path) -> None:
    first, second = _stopped_queue(tmp_path)
    path = tmp_path / "queue" / f"job-{second}"
    text = (
        path.read_text()
        .replace('"OP_TEST_DELAY"', '"OP_OF_THE_FUTURE"')
        .replace('"status":"success"', '"status":"queued"')
    )
    path.write_text(text)
    run = load.Run(str(tmp_path), load.no_step)
    run.queue.start()
    assert run.wait(second) == "error"
    row = run.queue.query([second], ["opresult", "summary"])[0]
    assert row is not None
    assert "OP_OF_THE_FUTURE" in str(row[0]) and row[1] == ["OF_THE_FUTURE"]
    assert run.queue.query([first], ["status"]) == [["success"]]
    run.stop()
    assert jobs.decode(path.read_text()).status == "error"


def test_foreign_files_stay_and_go_nowhere(tmp_path: Path) -> None:
    _stopped_queue(tmp_path)
    queue = tmp_path / "queue"
    (queue / "archive" / "notes").mkdir()
    foreign = ["notes", "job-x", "job-1.bak", "archive/notes/job-1", "core", ".job-1.swp"]
    for name in foreign:
        (queue / name).write_text("mine")
    (queue / "directory").mkdir()
    (queue / "job-7777").mkdir()
    load.check(str(tmp_path), load.Run(str(tmp_path), load.no_step))
    assert all((queue / name).read_text() == "mine" for name in foreign)
    assert not any((tmp_path / load.CANDIDATE / name).exists() for name in foreign)
