"""A master whose time is over."""

from __future__ import annotations

import contextlib
import os
import resource
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti import errors
from ganeti.configfile.content import Change
from ganeti.jqueue.callbacks import Callbacks
from ganeti.jqueue.execution import Execution
from ganeti.jqueue.queue import JobQueue
from ganeti.master.fence import Fence, FencedQueueStore
from ganeti.opcodes.base import OpCode
from ganeti.opcodes.test import OpTestDelay
from ganeti.platform import master_epoch, paths
from ganeti.platform.master_epoch import Epoch

PATIENCE_S = 60.0
E1, E2 = Epoch(1, "u1"), Epoch(2, "u2")


@pytest.fixture
def here(tmp_path: Path) -> Iterator[paths.Paths]:
    with paths.override(paths.Paths(str(tmp_path))) as found:
        for directory in (found.data_dir, found.lock_dir, found.queue_dir):
            os.makedirs(directory)
        yield found


@pytest.fixture
def ends() -> list[str]:
    return []


@pytest.fixture
def fence(here: paths.Paths, ends: list[str]) -> Fence:
    master_epoch.claim(E1)
    return Fence(E1, lambda: ends.append("end"))


def test_it_writes_while_it_is_master(fence: Fence, here: paths.Paths, ends: list[str]) -> None:
    fence.write_config(here.cluster_conf_file, b"text")
    assert Path(here.cluster_conf_file).read_text() == "text"
    assert master_epoch.read().config == E1
    fence.check()
    assert ends == []


def test_no_write_after_it(
    fence: Fence, here: paths.Paths, ends: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    master_epoch.claim(E2)
    with pytest.raises(OSError, match="epoch 1 is over"):
        fence.write_config(here.cluster_conf_file, b"text")
    assert not os.path.exists(here.cluster_conf_file)
    assert ends == ["end"]
    assert "obeys master epoch 2 u2, ours is 1 u1: another master has taken over" in caplog.text


def test_no_change_of_the_configuration_after_it(
    fence: Fence, here: paths.Paths, ends: list[str]
) -> None:
    wanted = Change(4, b"t", [(0, 4), b"s"], 5)
    assert not fence.change_config(here.cluster_conf_file, wanted)
    fence.write_config(here.cluster_conf_file, b"text")
    assert fence.change_config(here.cluster_conf_file, wanted)
    assert Path(here.cluster_conf_file).read_text() == "texts"
    master_epoch.claim(E2)
    with pytest.raises(OSError, match="epoch 1 is over"):
        fence.change_config(here.cluster_conf_file, Change(5, b"s", [(0, 2)], 2))
    assert Path(here.cluster_conf_file).read_text() == "texts"
    assert ends == ["end"]


def test_it_checks(fence: Fence, ends: list[str]) -> None:
    master_epoch.claim(E2)
    fence.check()
    assert ends == ["end"]


def test_jobs_are_fenced(fence: Fence, here: paths.Paths, ends: list[str]) -> None:
    store = FencedQueueStore(here.queue_dir)
    store.open()
    store.open()
    with pytest.raises(errors.ProgrammerError):
        store.commit({"job-1": "{}"})
    store.use_fence(fence)
    assert master_epoch.read().queue == E1
    store.commit({"job-1": "{}"})
    master_epoch.claim(E2)
    with pytest.raises(errors.JobQueueError, match="epoch 1 is over"):
        store.commit({"job-2": "{}"})
    assert ends == ["end"]
    store.close()


@pytest.mark.parametrize(
    ("before", "override", "taken_over"),
    [
        (None, False, False),
        (Epoch(1, "u2"), False, False),
        (Epoch(1, "u1"), False, True),
        (Epoch(1, "u2"), True, True),
    ],
)
def test_job_ids_which_another_master_may_have_given_out(
    here: paths.Paths, before: Epoch | None, override: bool, taken_over: bool
) -> None:
    """The queue belongs to the new epoch when the gap in the ids is on disk, and not before."""
    if before is not None:
        with master_epoch.writing(master_epoch.QUEUE, before):
            pass
    master_epoch.claim(E2)
    for _ in range(2):  # the first daemon ends before it has written anything
        store = FencedQueueStore(here.queue_dir)
        store.open()
        store.use_fence(Fence(E2), override=override)
        assert store.taken_over is taken_over
        store.close()
    store = FencedQueueStore(here.queue_dir)
    store.open()
    store.use_fence(Fence(E2), override=override)
    store.commit({"serial": "10001\n"})
    store.close()
    assert master_epoch.read().queue == E2
    store = FencedQueueStore(here.queue_dir)
    store.open()
    store.use_fence(Fence(E2))
    assert not store.taken_over
    store.close()


def test_the_processes_of_jobs_end_first(fence: Fence, ends: list[str]) -> None:
    fence.before_end = lambda: ends.append("processes")
    master_epoch.claim(E2)
    fence.check()
    assert ends == ["processes", "end"]


@pytest.fixture
def no_descriptors() -> contextlib.AbstractContextManager[None]:
    """A block in which this process cannot open any file, as the kernel does it."""

    @contextlib.contextmanager
    def block() -> Iterator[None]:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (1, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    return block()


def test_too_many_open_files_end_no_thread_of_the_queue(
    fence: Fence,
    here: paths.Paths,
    no_descriptors: contextlib.AbstractContextManager[None],
) -> None:
    """A new job is refused, one which runs goes on, and its end is written later."""
    died, begun, go_on = threading.Event(), threading.Event(), threading.Event()

    def execute(_op: OpCode, callbacks: Callbacks) -> None:
        callbacks.notify_start()
        begun.set()
        assert go_on.wait(PATIENCE_S)

    store = FencedQueueStore(here.queue_dir)
    store.open()
    store.use_fence(fence)
    queue = JobQueue(store, Execution(execute), livelock="/livelock", fatal=died.set)
    queue.start()
    job_id = queue.submit([OpTestDelay(duration=0.0)])
    assert begun.wait(PATIENCE_S)
    with no_descriptors:
        with pytest.raises(errors.JobQueueError, match="Too many open files"):
            queue.submit([OpTestDelay(duration=0.0)])
        go_on.set()
        deadline = time.monotonic() + PATIENCE_S
        while queue.scheduler.pool.busy():
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert not died.is_set()
    assert queue.submit([OpTestDelay(duration=0.0)]) == job_id + 2
    queue.stop(PATIENCE_S)
    assert '"success"' in (store.read_job(job_id) or "")
    assert not died.is_set()
