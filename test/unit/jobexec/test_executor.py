"""Real job processes: start, end, kill, death, lost connections, and another master daemon."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from ganeti import errors
from ganeti.jobexec import changes, executor, forker, livelock, messages
from ganeti.jobexec.forker import ForkServerLost, has_ended
from ganeti.jobexec.messages import Channel
from ganeti.jqueue import job as jobs
from ganeti.jqueue.execution import JobDetached, NotBegun
from ganeti.locking import BGL, EXCLUSIVE, Level, Owner
from ganeti.platform import master_epoch
from ganeti.utils import filelock, fs, metrics, shortage
from ganeti.wire import json

from .process_lab import EPOCH, PATIENCE_S, Lab, Work, delay, ended, kill, until


@pytest.fixture
def make() -> Iterator[Callable[..., Lab]]:
    made: list[Lab] = []

    def new(daemons: int = 1) -> Lab:
        made.append(Lab(daemons))
        made[-1].daemon().start()
        return made[-1]

    yield new
    for lab in made:
        lab.close()


@pytest.fixture
def lab(make: Callable[..., Lab]) -> Lab:
    return make()


def file_of(work: Work) -> jobs.QueuedJob:
    """The job, as its file has it."""
    found = jobs.QueuedJob(work.handle.job_id, [work.op], (1, 1))
    found.state = found.state._replace(
        livelock=work.handle.livelock, process_id=work.handle.process_id
    )
    return found


# -- start and end ----------------------------------------------------------------------------


def test_a_job_in_a_process_with_its_livelock(lab: Lab) -> None:
    work = lab.held(7)
    handle = work.handle
    assert handle.process_id not in (os.getpid(), *lab.servers)
    assert filelock.is_locked(handle.livelock)
    assert Path(f"/proc/{handle.process_id}/comm").read_text() == "gnt-job-7\n"
    assert work.started == 1
    assert work.let_go().finish() is None
    handle.close()
    until(lambda: lab.livelocks() == [], "the livelock is removed")
    assert lab.master.locks.list_locks(work.owner) == {}


def test_a_process_executes_one_job_after_the_other(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = lab.run(1)
    assert [lab.run(2), lab.run(3)] == [first, first]
    work = lab.held(4)
    assert work.handle.process_id == first
    assert lab.run(5) != first, "two jobs have two processes"
    # It ends after so many jobs.
    monkeypatch.setattr(executor, "_MOST_JOBS", 3)
    work.let_go().finish()
    work.handle.close()
    until(lambda: ended(first), "the process ends")


def test_a_process_which_rests_ends_after_a_while(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "REST_S", 0.0)
    pid = lab.run(1)
    until(lambda: ended(pid), "the process ends")
    assert lab.run(2) != pid


def test_an_opcode_which_fails_has_the_error_of_its_class(lab: Lab) -> None:
    work = lab.work(1, delay(on_nodes=["unknown"]))
    with pytest.raises(errors.OpPrereqError, match="unknown"):
        work.finish()
    work.handle.close()
    assert lab.run(2) == work.handle.process_id, "its process is as good as before"


def test_what_a_process_measures_is_counted_once_in_the_master_daemon(lab: Lab) -> None:
    def begun() -> float:
        found = {one["name"]: one["series"] for one in metrics.snapshot()}
        counted = found.get("ganeti_master_node_calls_begun", [])
        return sum(number for labels, number in counted if labels == ["test_delay"])

    before = begun()
    work = lab.work(1, delay(on_master=False, on_nodes=["node1"]))
    with pytest.raises(errors.OpExecError, match="AssertionError: a node call"):
        work.finish()
    work.handle.close()
    assert begun() == before + 1
    assert lab.run(2) == work.handle.process_id
    assert begun() == before + 1


# -- kill and death ---------------------------------------------------------------------------


def test_a_kill_ends_a_job_once_and_frees_its_locks(lab: Lab) -> None:
    work, other = lab.held(1), lab.held(2)
    lab.master.locks.acquire(work.owner, Level.INSTANCE, ["a"], shared=False)
    killer = lab.executors[0]
    assert [killer.kill(1, "killed by user x") for _ in range(3)] == [True, False, False]
    with pytest.raises(errors.OpExecError, match="killed by user x; process .* was ended"):
        work.finish()
    work.handle.close()
    until(lambda: ended(work.handle.process_id), "the process ends")
    assert lab.master.locks.list_locks(work.owner) == {}
    assert not killer.kill(3, "no such job")
    assert other.let_go().finish() is None


def test_a_kill_after_the_end_does_not_touch_the_resting_process(lab: Lab) -> None:
    work = lab.held(1)
    work.let_go().finish()
    assert not lab.executors[0].kill(1, "too late")
    work.handle.close()
    assert not lab.executors[0].kill(1, "too late")
    assert lab.run(2) == work.handle.process_id


def test_a_process_which_dies_is_noticed_and_the_others_go_on(lab: Lab) -> None:
    work, other = lab.held(1), lab.held(2)
    kill(work.handle.process_id)
    with pytest.raises(errors.OpExecError, match="of the job is gone: it has ended unexpectedly"):
        work.finish()
    assert not os.path.exists(work.handle.livelock)
    work.handle.close()
    assert other.let_go().finish() is None
    assert lab.run(3) != work.handle.process_id


def test_a_resting_process_which_dies_gets_no_job(lab: Lab) -> None:
    pid = lab.run(1)
    # The thread which the kernel tells waits for this lock.
    with lab.executors[0]._lock:
        kill(pid)
        (rest,) = lab.executors[0]._resting
        assert has_ended(rest.process.pidfd, PATIENCE_S)
        assert lab.executors[0]._reuse(2) is None
    assert lab.run(2) != pid


def test_locks_of_the_dead_are_kept_until_the_nodes_are_asked(lab: Lab) -> None:
    """The locks are taken over for orphaned work before they are free; calls are revoked."""
    locks = lab.master.locks
    work = lab.held(1)
    locks.acquire(work.owner, Level.INSTANCE, ["a"], shared=False)
    seen = []

    class OrphanedWork:
        def hand_over(
            self, job_id: int, _nodes: Sequence[str], held: Sequence[str], revoke: Sequence[str]
        ) -> None:
            owned = locks.owned(work.owner, Level.INSTANCE)
            seen.append((job_id, list(held), list(revoke), dict(owned)))

    lab.master.context.orphaned_work = OrphanedWork()  # type: ignore[assignment]
    kill(work.handle.process_id)
    with pytest.raises(errors.OpExecError):
        work.finish()
    assert seen == [(1, ["a"], [work.handle.token], {"a": EXCLUSIVE})]
    assert locks.list_locks(work.owner) == {}


# -- the fork server --------------------------------------------------------------------------


def test_a_fork_server_which_dies_is_replaced_and_running_jobs_go_on(lab: Lab) -> None:
    work = lab.held(1)
    for number in range(2, 6):
        kill(lab.servers[-1])
        other = lab.held(number)
        assert len(lab.servers) == number, "one server for each which died"
        assert other.let_go().finish() is None
    assert work.let_go().finish() is None
    work.handle.close()
    assert lab.run(9) == work.handle.process_id, "the process which rests is used"


def test_the_next_fork_server_is_there_before_the_next_job(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forker, "_LIVES_S", 0.0)
    lab.run(1)
    first = lab.servers[0]
    kill(first)
    until(lambda: len(lab.servers) == 2, "another one is started")
    until(lambda: ended(first), "the dead one is collected")
    counted = {one["name"]: one["series"] for one in metrics.snapshot()}
    assert counted["ganeti_master_fork_servers"][0][1] >= 2


def test_a_fork_server_which_does_not_answer_is_replaced(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = lab.held(1)
    os.kill(lab.servers[0], signal.SIGSTOP)
    monkeypatch.setattr(forker, "_ANSWER_S", 0.1)
    with pytest.raises(ForkServerLost, match="does not answer"):
        lab.executors[0]._make(2)
    monkeypatch.undo()
    until(lambda: ended(lab.servers[0]), "the one which did not answer was ended")
    assert lab.held(3).let_go().finish() is None
    assert work.let_go().finish() is None


def test_a_fork_server_which_cannot_be_started_is_no_error_of_the_job(lab: Lab) -> None:
    work = lab.held(1)
    lab.start_error = OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    kill(lab.servers[0])
    with pytest.raises(NotBegun, match="cannot start the process .* temporarily unavailable"):
        lab.held(2)
    lab.start_error = None
    assert lab.held(3).let_go().finish() is None
    assert work.let_go().finish() is None


def test_a_fork_server_of_another_release_makes_no_process(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The programs were replaced while the master daemon runs."""
    monkeypatch.setattr(forker, "RELEASE", "0.8.0")
    with pytest.raises(NotBegun, match=r"release .* now, .* 0\.8\.0\. Restart it with"):
        lab.held(1)
    until(lambda: ended(lab.servers[0]), "it ends")


def test_a_process_whose_livelock_is_locked_by_another_one(
    make: Callable[..., Lab], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It executes nothing, because nobody could see that it lives."""
    monkeypatch.setattr(livelock, "_LOCK_WAIT_S", 0.0)
    lab = make()
    token = "0123456789abcdef"
    monkeypatch.setattr(executor.secrets, "token_hex", lambda _size: token)
    path = livelock.path_of(lab.paths.livelock_dir, 1, token)
    with filelock.FileLock(path) as lock:
        lock.acquire()
        work = lab.work(1, delay())
        with pytest.raises(NotBegun, match="cannot execute the job: .* is locked by another"):
            work.finish()
    assert not work.started


# -- jobs which cannot begin ------------------------------------------------------------------


def test_a_process_which_cannot_make_its_livelock_says_so(lab: Lab) -> None:
    """As when /run is full: the job is not to blame."""
    away = f"{lab.paths.livelock_dir}.away"
    os.rename(lab.paths.livelock_dir, away)
    new = lab.work(1, delay())
    with pytest.raises(NotBegun, match="cannot execute the job: FileNotFoundError: .*job_1_"):
        new.finish()
    assert not new.started
    new.handle.close()
    os.rename(away, lab.paths.livelock_dir)
    pid = lab.run(2)
    os.rename(lab.paths.livelock_dir, away)
    rested = lab.work(3, delay())
    assert rested.handle.process_id == pid
    with pytest.raises(NotBegun, match="cannot execute the job: FileNotFoundError: .*job_3_"):
        rested.finish()
    rested.handle.close()
    os.rename(away, lab.paths.livelock_dir)
    lab.run(4)


def test_a_process_which_dies_before_its_opcode_runs_is_no_error_of_the_job(lab: Lab) -> None:
    """It waits for a lock then."""
    other = Owner(9, "job-9", None)
    lab.master.locks.acquire(other, Level.CLUSTER, [BGL], shared=False)
    work = lab.work(1, delay())
    until(lambda: filelock.is_locked(work.handle.livelock), "it has connected")
    kill(work.handle.process_id)
    with pytest.raises(NotBegun, match="is gone: it has ended unexpectedly") as caught:
        work.finish()
    assert caught.value.ended
    work.handle.close()
    lab.master.locks.release(other)
    lab.run(2)


def test_a_process_without_space_for_its_record_has_not_begun(
    make: Callable[..., Lab], monkeypatch: pytest.MonkeyPatch
) -> None:
    write = fs.write_file

    def full(path: str, *args: Any, **options: Any) -> None:
        if path.endswith(".held") and "job_1_" in path:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        write(path, *args, **options)

    # The processes are copies of this one.
    monkeypatch.setattr(fs, "write_file", full)
    lab = make()
    work = lab.work(1, delay())
    with pytest.raises(NotBegun, match="No space left on device"):
        work.finish()
    assert not work.started
    assert not work.reached_times, "the queue still pauses"
    work.handle.close()
    assert lab.run(2) == work.handle.process_id, "it executes the next job"
    assert lab.works[-1].reached_times


def test_a_job_waits_in_the_middle_until_there_is_space_for_its_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))] * 3
    write = fs.write_file

    def full(*args: Any, **options: Any) -> None:
        if left:
            raise left.pop()
        write(*args, **options)

    monkeypatch.setattr(fs, "write_file", full)
    monkeypatch.setattr(shortage, "_PAUSES", 0.0)
    record = livelock.Record(str(tmp_path / "job_1_0123456789abcdef"))
    record.wait_s = livelock.PATIENCE_S
    record.reserve("mac", "aa:00:00:00:00:01", "job-1-run-1")
    assert livelock.read_record(str(tmp_path / "job_1_0123456789abcdef")) == record.held
    left.append(OSError(errno.EROFS, os.strerror(errno.EROFS)))
    with pytest.raises(OSError, match="Read-only"):
        record.release("job-1-run-1")


def test_connections_wait_while_there_are_no_descriptors_or_threads_for_them(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "_AGAIN_S", 0.01)
    refused = [3]
    start = threading.Thread.start

    def refuse(self: threading.Thread) -> None:
        if self.name == "job-greeting" and refused[0]:
            refused[0] -= 1
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    lab.run(1)
    assert refused == [0]
    listening = lab.executors[0]._socket
    assert listening is not None
    failing = [3]

    class Socket:
        def accept(self) -> Any:
            if failing[0]:
                failing[0] -= 1
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            return listening.accept()

        def __getattr__(self, name: str) -> Any:
            return getattr(listening, name)

    lab.executors[0]._socket = Socket()  # type: ignore[assignment]
    works = [lab.held(number) for number in range(2, 6)]
    assert failing == [0]
    for work in works:
        assert work.let_go().finish() is None


def test_a_process_which_cannot_be_watched_is_ended(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Poll:
        def register(self, *_args: Any) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        def __getattr__(self, name: str) -> Any:
            return getattr(before, name)

    before = lab.executors[0]._poll
    lab.executors[0]._poll = Poll()  # type: ignore[assignment]
    with pytest.raises(NotBegun, match="cannot watch the process of the job: .*No space"):
        lab.executors[0].open(1)
    assert lab.executors[0]._handles == {}
    lab.executors[0]._poll = before
    lab.run(2)


def test_a_number_gets_its_page_when_it_is_made(tmp_path: Path) -> None:
    """A write to a page for which there is no space would end the process."""
    path = tmp_path / "number"
    changes.SharedNumber(str(path)).close()
    assert path.stat().st_blocks > 0


# -- the connection ---------------------------------------------------------------------------


def test_a_broken_connection_is_made_again(lab: Lab) -> None:
    work = lab.held(1)
    for _ in range(3):
        channel = work.handle._channel
        assert channel is not None
        channel.shut_down()
        # The process notices it with its next request.
        work.handle.wake()
        until(lambda old=channel: work.handle._channel is not old, "it connects again")
    work.let_go()
    assert work.finish() is None
    # Where it waits, and that the wait was ended.
    assert len(work.log) == 2, work.log


def test_another_process_cannot_be_a_job(lab: Lab) -> None:
    """The kernel says who is at the other end of a connection."""
    work = lab.held(1)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(lab.here.address)
        channel = Channel(sock)
        channel.send({"job": 1, "token": work.handle.token, "running": 0})
        assert "end" in channel.receive()
    assert work.let_go().finish() is None


@pytest.mark.parametrize("data", [b"", b"\0\0\0\x02[]", b"\0\0\0\x01{", b"\0\0\0\x04null"])
def test_nonsense_on_the_socket_stops_nobody(lab: Lab, data: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(lab.here.address)
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(4096):
            pass
    lab.run(1)


# -- another master daemon --------------------------------------------------------------------


def adopting(lab: Lab, *works: Work) -> Any:
    """Begin the next master daemon; return what it finds, and the daemon."""
    lab.end_daemon()
    for work in works:
        with pytest.raises(JobDetached):
            work.finish()
    made = lab.daemon()
    found = made.adopt([file_of(work) for work in works])
    made.start()
    return found


def test_a_job_goes_on_with_the_next_master_daemon(make: Callable[..., Lab]) -> None:
    lab = make(2)
    work = lab.held(1)
    held_before = lab.master.locks.list_locks(work.owner)
    found = adopting(lab, work)
    assert (list(found.processes), found.ended) == ([1], {})
    assert lab.master.locks.list_locks(work.owner) == held_before != {}
    again = Work(found.processes[1], work.op)
    again.log = list(work.log)
    assert again.let_go().finish() is None
    pid = work.handle.process_id
    again.handle.close()
    until(lambda: ended(pid), "a process of an earlier daemon gets no other job")


def test_a_process_which_died_meanwhile_is_not_found(make: Callable[..., Lab]) -> None:
    lab = make(2)
    work = lab.held(1)
    lab.end_daemon()
    kill(work.handle.process_id)
    until(lambda: not filelock.is_locked(work.handle.livelock), "it has ended")
    made = lab.daemon()
    assert made.adopt([file_of(work)]) == ({}, {})
    assert lab.livelocks() == []


@pytest.mark.programs
def test_another_process_which_got_the_number_is_left_alone(make: Callable[..., Lab]) -> None:
    """The livelock says that the process of the job has ended, although its number is in use."""
    lab = make(2)
    work = lab.held(1)
    lab.end_daemon()
    kill(work.handle.process_id)
    until(lambda: not filelock.is_locked(work.handle.livelock), "it has ended")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        job = file_of(work)
        job.state = job.state._replace(process_id=other.pid)
        made = lab.daemon()
        assert made.adopt([job]) == ({}, {})
        assert not made.kill(1, "nobody")
        made.end_all()
        other.communicate(b"\n")
        assert other.returncode == 0


def test_a_signal_never_reaches_the_next_owner_of_a_number(lab: Lab) -> None:
    """The process was collected, so its number is free; the descriptor still means the old one."""
    work = lab.held(1)
    pid = work.handle.process_id
    pidfd = os.dup(work.handle.pidfd)
    kill(pid)
    with pytest.raises(errors.OpExecError):
        work.finish()
    until(lambda: not os.path.exists(f"/proc/{pid}"), "the fork server has collected it")
    assert not work.handle.kill("too late")
    with pytest.raises(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    os.close(pidfd)
    lab.executors[0].end_all()


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"protocol": "0-00000000", "release": "0.8.0"}, "release 0.8.0 with protocol 0-00000000"),
        ({"protocol": None, "release": None}, "release unknown with protocol unknown"),
        ({"locks": [["odd"]]}, "not the record of a job process"),
    ],
)
def test_a_process_which_cannot_be_used_is_ended_and_the_job_says_why(
    make: Callable[..., Lab], caplog: pytest.LogCaptureFixture, changes: dict[str, Any], why: str
) -> None:
    lab = make(2)
    work, other = lab.held(1), lab.held(2)
    path = f"{work.handle.livelock}.held"
    record = {**json.loads(fs.read_file(path)), **changes}
    fs.write_file(path, json.dumps({key: one for key, one in record.items() if one is not None}))
    found = adopting(lab, work, other)
    assert list(found.processes) == [2]
    assert list(found.ended) == [1]
    assert why in found.ended[1]
    assert "'gnt-cluster verify' shows what does not fit" in found.ended[1]
    assert any(why in line and "job 1: process" in line for line in caplog.messages)
    pid = work.handle.process_id
    until(lambda: ended(pid), "its process has ended")
    assert not os.path.exists(path)
    assert lab.master.locks.list_locks(work.owner) == {}
    again = Work(found.processes[2], other.op)
    again.log = list(other.log)
    assert again.let_go().finish() is None


def test_the_protocol_changes_with_the_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    name = messages.protocol()
    assert name.startswith(f"{messages.PROTOCOL}-")
    messages.protocol.cache_clear()
    assert messages.protocol() == name
    fields = messages.dataclasses.fields
    monkeypatch.setattr(messages.dataclasses, "fields", lambda cls: fields(cls)[1:])
    messages.protocol.cache_clear()
    assert messages.protocol() != name
    monkeypatch.undo()
    messages.protocol.cache_clear()


# -- another master ---------------------------------------------------------------------------


def test_a_process_ends_under_the_epoch_of_another_node(lab: Lab) -> None:
    work = lab.held(1)
    # Another epoch of this node does no harm; the process looks every two seconds.
    master_epoch.claim(EPOCH._replace(number=2), lab.paths)
    watched = time.monotonic()
    until(lambda: time.monotonic() - watched > 2.5, "it has looked at the epoch")
    assert not ended(work.handle.process_id)
    master_epoch.claim(master_epoch.Epoch(3, "uuid-node2"), lab.paths)
    with pytest.raises(errors.OpExecError, match="is gone"):
        work.finish()
    until(lambda: ended(work.handle.process_id), "the process ends")


def test_a_replaced_master_daemon_ends_all_processes(lab: Lab) -> None:
    rests = lab.run(1)
    works = [lab.held(number) for number in (2, 3)]
    assert works[0].handle.process_id == rests
    pids = [work.handle.process_id for work in works]
    lab.executors[0].end_all()
    for work in works:
        with pytest.raises(errors.OpExecError):
            work.finish()
    until(lambda: all(map(ended, pids)), "all have ended")


def test_many_jobs_at_once(lab: Lab) -> None:
    found: list[int] = []

    def some(base: int) -> None:
        found.extend(lab.run(base + number) for number in range(10))

    threads = [threading.Thread(target=some, args=(base,)) for base in (100, 200, 300)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 30
    assert len(set(found)) <= 3 + 1, "processes are used again"
