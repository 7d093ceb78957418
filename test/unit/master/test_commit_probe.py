"""Whether a master can commit changes, and the end of one which cannot."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.config import cluster_of
from ganeti import errors
from ganeti.master.commit_probe import DISK_S, PATIENCE_S, CommitProbe, write_probe
from ganeti.master.fence import Fence, FencedQueueStore
from ganeti.objects import ConfigData, updated
from ganeti.platform import master_epoch, paths
from ganeti.rpc import Result
from ganeti.wire.calls import NODE_WORK

LIMIT_S = 10
FULL = OSError(errno.ENOSPC, "No space left on device", "/srv/queue")


class Lab:
    """A master; it stands for its configuration, its runner, its fence and its witness."""

    def __init__(self, nodes: int = 3, *, override: bool = False) -> None:
        data = cluster_of(nodes)
        self.data = self.changed(data, auto_failover=LIMIT_S)
        self.now = 100.0
        self.cut: set[str] = set()
        self.asked: list[list[str]] = []
        self.witness_failure: str | None = None
        self.recorded = 0
        self.disk_failure: OSError | None = None
        self.writes = 0
        self.blocked: threading.Event | None = None
        self.is_paused = False
        self.ended: list[str] = []
        self.probe = CommitProbe(
            self,  # type: ignore[arg-type]
            self,  # type: ignore[arg-type]
            self,  # type: ignore[arg-type]
            self,  # type: ignore[arg-type]
            write=self.write,
            paused=lambda: self.is_paused,
            override=override,
            monotonic=lambda: self.now,
        )

    @staticmethod
    def changed(data: ConfigData, **values: Any) -> ConfigData:
        return updated(data, cluster=updated(data.cluster, **values))

    @property
    def others(self) -> list[str]:
        return [uuid for uuid in self.data.nodes if uuid != self.data.cluster.master_node]

    # -- in place of the services ----------------------------------------------------------------

    def snapshot(self) -> ConfigData:
        return self.data

    def call_together(self, questions, on_result):
        ((call, uuids, args, _offline),) = questions
        assert (call.name, args) == (NODE_WORK.name, {"revoke": []})
        assert not call.any_epoch, "a node which obeys another master must refuse the call"
        self.asked.append(list(uuids))
        for uuid in uuids:
            failure = errors.NodeUnreachable(uuid, call.name, "cut") if uuid in self.cut else None
            on_result(call, uuid, Result(uuid, [], failure=failure))
        return []

    def record(self, last_job: int) -> str | None:
        assert last_job == 0
        self.recorded += 1
        return self.witness_failure

    def give_up(self, why: str) -> None:
        self.ended.append(why)

    def write(self) -> None:
        self.writes += 1
        if self.blocked is not None:
            self.blocked.wait()
        if self.disk_failure is not None:
            raise self.disk_failure

    # -- what tests do ---------------------------------------------------------------------------

    def run(self, seconds: float = 0.0) -> float | None:
        """Let rounds follow each other for some time; return the age after the last one."""
        end = self.now + seconds
        while True:
            pause_s = self.probe.round()
            if self.blocked is None:
                for thread in threading.enumerate():
                    if thread.name == "disk-probe":
                        thread.join()
            if self.now >= end or self.ended:
                return self.probe.age_s()
            self.now = min(end, self.now + pause_s)


def test_a_master_with_a_majority_is_well() -> None:
    lab = Lab()
    lab.cut = {lab.others[0]}
    assert lab.run(100.0) == 0.0
    assert lab.ended == []
    assert set(map(tuple, lab.asked)) == {tuple(lab.others)}


def test_an_idle_cluster_flushes_six_times_a_minute() -> None:
    lab = Lab()
    lab.run(60.0)
    assert lab.writes == 1 + 60 / DISK_S


def test_a_busy_cluster_flushes_nothing_more() -> None:
    lab = Lab()
    lab.run()
    for _ in range(60):
        lab.probe.note_write(master_epoch.QUEUE, None)
        lab.run(1.0)
    assert lab.writes == 1


def test_requests_which_are_cut_off() -> None:
    lab = Lab()
    lab.run(1.0)
    lab.cut = set(lab.others)
    assert lab.run(9.0) == 9.0
    assert lab.ended == []
    lab.run(3.0)
    (why,) = lab.ended
    assert "has not been able to commit changes for" in why
    assert "only 1 of 3 master candidates answer" in why


def test_a_commit_counts_as_a_probe() -> None:
    lab = Lab()
    lab.run(1.0)
    lab.cut = set(lab.others)
    lab.run(8.0)
    lab.probe.note_commit(None)
    assert lab.probe.age_s() == 0.0
    lab.run(8.0)
    lab.probe.note_commit("only 1 of 3 candidates")
    assert lab.probe.age_s() == 8.0
    assert lab.ended == []
    lab.run(4.0)
    assert len(lab.ended) == 1


def test_a_full_disk() -> None:
    """The write which fails is noticed at once, and a probe which succeeds ends that."""
    lab = Lab()
    lab.run(1.0)
    lab.disk_failure = FULL
    lab.probe.note_write(master_epoch.CONFIG, "the disk is full")
    assert lab.run(2.0) == 2.0
    lab.disk_failure = None
    assert lab.run(2.0) == 0.0
    lab.disk_failure = FULL
    lab.run(DISK_S + LIMIT_S + 3.0)
    (why,) = lab.ended
    assert why.endswith("/srv/queue: No space left on device")


def test_a_queue_which_can_be_written_does_not_hide_the_configuration() -> None:
    lab = Lab()
    lab.run()
    lab.disk_failure = FULL
    lab.probe.note_write(master_epoch.CONFIG, "the disk is full")
    for _ in range(5):
        lab.probe.note_write(master_epoch.QUEUE, None)
        lab.run(1.0)
    assert lab.probe.age_s() == 5.0


def test_a_disk_which_does_not_respond() -> None:
    lab = Lab()
    lab.run()
    lab.blocked = threading.Event()
    try:
        lab.run(DISK_S)
        assert lab.run(DISK_S - 1.0) == 0.0, "a slow disk is no fault"
        lab.run(LIMIT_S + 5.0)
        (why,) = lab.ended
        assert "a write has not ended for" in why
        assert lab.writes == 2
    finally:
        lab.blocked.set()


def test_a_short_limit_leaves_time_for_the_answer_to_a_submission() -> None:
    lab = Lab()
    lab.data = lab.changed(lab.data, auto_failover=3)
    lab.run()
    lab.cut = set(lab.others)
    lab.run(PATIENCE_S)
    assert lab.ended == []
    lab.run(2.0)
    assert len(lab.ended) == 1


def test_a_pause_of_the_process_is_not_a_fault() -> None:
    lab = Lab()
    lab.run()
    lab.now += 1000.0
    lab.cut = set(lab.others)
    lab.run()
    assert lab.ended == []


def test_no_end_while_the_watcher_is_paused() -> None:
    lab = Lab()
    lab.run()
    lab.is_paused, lab.cut = True, set(lab.others)
    lab.run(100.0)
    assert lab.ended == []
    lab.is_paused = False
    lab.run()
    assert len(lab.ended) == 1


def test_two_candidates_cannot_elect_without_each_other() -> None:
    lab = Lab(2)
    lab.run()
    lab.disk_failure, lab.cut = FULL, set(lab.others)
    assert lab.run(100.0) == 100.0
    assert lab.ended == []


def test_the_witness_counts_when_the_partner_does_not_answer() -> None:
    lab = Lab(2)
    lab.data = lab.changed(lab.data, witness="https://witness.example.com/d")
    lab.run(5.0)
    assert lab.recorded == 0
    lab.cut = set(lab.others)
    assert lab.run(50.0) == 0.0
    lab.witness_failure = "no answer"
    # The administrator must be able to mark the partner as offline.
    assert lab.run(50.0) == 50.0
    assert lab.ended == []
    lab.cut, lab.disk_failure = set(), FULL
    lab.run(DISK_S + LIMIT_S + 3.0)
    assert len(lab.ended) == 1


def test_a_master_which_began_without_a_majority_stays() -> None:
    lab = Lab(override=True)
    lab.cut = set(lab.others)
    lab.run(100.0)
    assert lab.ended == []
    lab.cut = set()
    lab.run(5.0)
    lab.cut = set(lab.others)
    lab.run(15.0)
    assert len(lab.ended) == 1


@pytest.mark.parametrize("limit", [None, LIMIT_S])
def test_where_the_role_does_not_move_nothing_is_probed(limit: int | None) -> None:
    lab = Lab(3 if limit is None else 1)
    lab.data = lab.changed(lab.data, auto_failover=limit)
    assert lab.run(100.0) is None
    assert (lab.asked, lab.writes) == ([], 0)


# -- the disk --------------------------------------------------------------------------------------


@pytest.fixture
def here(tmp_path: Path) -> Iterator[paths.Paths]:
    with paths.override(paths.Paths(str(tmp_path))) as found:
        for directory in (found.data_dir, found.lock_dir, found.queue_dir):
            os.makedirs(directory)
        Path(found.cluster_conf_file).write_text("x" * 1000)
        yield found


def test_the_probe_flushes_one_file_and_leaves_nothing(
    here: paths.Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed = []
    sizes = []

    def flush(fd: int) -> None:
        flushed.append(os.readlink(f"/proc/self/fd/{fd}"))
        sizes.append(os.fstat(fd).st_size)

    monkeypatch.setattr(os, "fsync", flush)
    write_probe()
    assert flushed == [f"{here.data_dir}/.commit-probe"]
    assert sizes[0] > 1000
    assert sorted(os.listdir(here.data_dir)) == ["config.data", "queue"]


def test_a_disk_without_space_is_found(here: paths.Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_fd: int, _offset: int, length: int) -> None:
        assert length > 1000
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space left") as caught:
        write_probe()
    assert caught.value.filename == f"{here.data_dir}/.commit-probe"
    assert sorted(os.listdir(here.data_dir)) == ["config.data", "queue"]


def test_a_file_system_which_reserves_nothing(
    here: paths.Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_args: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(os, "posix_fallocate", refused)
    write_probe()


def test_the_fence_reports_writes(here: paths.Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    epoch = master_epoch.Epoch(1, "u1")
    master_epoch.claim(epoch)
    fence = Fence(epoch, lambda: None)
    noted: list[tuple[str, str | None]] = []
    fence.on_write = lambda kind, failure: noted.append((kind, failure))
    fence.write_config(here.cluster_conf_file, b"text")
    store = FencedQueueStore(here.queue_dir)
    store.open()
    store.use_fence(fence)
    store.commit({"job-1": "{}"})
    assert noted == [(master_epoch.CONFIG, None), (master_epoch.QUEUE, None)]
    noted.clear()
    monkeypatch.setattr(os, "fsync", lambda _fd: (_ for _ in ()).throw(FULL))
    monkeypatch.setattr(os, "fdatasync", lambda _fd: (_ for _ in ()).throw(FULL))
    with pytest.raises(OSError, match="No space left"):
        fence.write_config(here.cluster_conf_file, b"more")
    with pytest.raises(errors.JobQueueError):
        store.commit({"job-2": "{}"})
    assert [kind for kind, failure in noted if failure and "No space left" in failure] == [
        master_epoch.CONFIG,
        master_epoch.QUEUE,
    ]


def test_the_end_is_that_of_a_fence() -> None:
    steps: list[str] = []
    fence = Fence(master_epoch.Epoch(1, "u1"), lambda: steps.append("end"))
    fence.before_end = lambda: steps.append("jobs end")
    fence.give_up("it cannot work")
    assert steps == ["jobs end", "end"]
