"""What is left of the job queue when the power fails at any moment."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fakes.power import ALL_WAYS, NOTHING, Disk, Moment, write_tree
from ganeti.jobstore.journal import journaled_serial
from ganeti.jobstore.store import QueueStore

# The newest content of each live and each archived job.
State = tuple[dict[int, str], dict[int, str]]


class Queue:
    """A queue on a disk which may lose power.

    :ivar promised: what the queue has promised, one state after the other; the disk's note says how
        many of them.
    """

    def __init__(self, disk: Disk, directory: Path, **kwargs: int) -> None:
        self._disk = disk
        self._live: dict[int, str] = {}
        self._archived: dict[int, str] = {}
        self.promised: list[State] = []
        self.store = QueueStore(str(directory), **kwargs)
        self._promise()
        self.store.open()

    def commit(self, files: dict[int, str], archive: tuple[int, ...] = ()) -> None:
        self.store.commit({f"job-{number}": text for number, text in files.items()}, archive)
        self._live.update(files)
        for number in archive:
            self._archived[number] = self._live.pop(number)
        self._promise()

    def _promise(self) -> None:
        self.promised.append((dict(self._live), dict(self._archived)))
        self._disk.note = len(self.promised)


@pytest.fixture(autouse=True)
def _flushes_are_only_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda fd: None)


def test_the_version_is_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "disk"
    root.mkdir()
    with Disk(root).watched(monkeypatch) as disk:
        QueueStore(str(root / "queue")).open()
        for how in ALL_WAYS:
            assert disk.now().left(how)["queue"]["version"] == b"1\n"


def found_in(directory: Path) -> State:
    store = QueueStore(str(directory))
    store.open()
    live = {number: store.read_job(number) or "" for number in store.job_ids()}
    archived = {number: store.read_archived(number) or "" for number in store.archived_ids()}
    store.abandon()
    return live, archived


def check(moments: list[Moment], promised: list[State], tmp_path: Path) -> None:
    """After a power failure in any moment all promises until then hold.

    The commit which was under way may be there or not.
    """
    seen: dict[str, State] = {}
    for moment in moments:
        for how in ALL_WAYS:
            left = moment.left(how)
            if moment.note is None or "queue" not in left:
                assert moment.note in (None, 1)
                continue
            key = repr(left)
            if key not in seen:
                seen[key] = found_in(write_tree(left, tmp_path / f"left-{len(seen)}") / "queue")
            allowed = promised[moment.note - 1 : moment.note + 1]
            assert seen[key] in allowed, f"power failed before {moment.before}; {how}"
    assert len(seen) > len(promised)


def play(queue: Queue) -> None:
    for number in range(1, 5):
        queue.commit({number: f"queued {number} " + "x" * 40})
        queue.store.apply()
    queue.commit({1: "success 1", 2: "success 2"})
    queue.commit({3: "success 3"}, (1,))
    queue.store.apply()
    queue.store.end_journal()
    queue.commit({}, (2,))
    queue.store.checkpoint()
    queue.store.apply()
    queue.commit({4: "success 4"}, (3,))
    queue.store.end_journal()
    queue.store.checkpoint()
    # Its content is in its file only now; the next journal says nothing but that it was archived.
    queue.commit({}, (4,))
    queue.store.apply()


@pytest.mark.parametrize("journal_bytes", [1 << 20, 150], ids=["one", "many"])
def test_the_power_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, journal_bytes: int
) -> None:
    root = tmp_path / "disk"
    root.mkdir()
    with Disk(root).watched(monkeypatch) as disk:
        queue = Queue(disk, root / "queue", journal_bytes=journal_bytes)
        play(queue)
        queue.store.close()
        disk.moments.append(disk.now())
    check(disk.moments, queue.promised, tmp_path)


def test_the_power_fails_again_while_journals_are_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "disk"
    root.mkdir()
    with Disk(root).watched(monkeypatch) as first:
        queue = Queue(first, root / "queue", journal_bytes=1)
        for number in range(1, 12):
            queue.commit({number: f"queued {number} " + "x" * 40, 1: f"running {number}"})
        queue.commit({2: "success 2"}, (1,))
        queue.commit({}, (2,))
        before = first.now()
    again = write_tree(before.left(NOTHING), tmp_path / "again")
    with Disk(again).watched(monkeypatch) as second:
        second.note = len(queue.promised)
        QueueStore(str(again / "queue")).open()
        second.moments.append(second.now())
    check(second.moments, queue.promised, tmp_path)


def test_the_power_fails_again_after_an_archived_job_was_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its content was flushed long ago; the journal says only that it was archived."""
    root = tmp_path / "disk"
    root.mkdir()
    with Disk(root).watched(monkeypatch) as first:
        queue = Queue(first, root / "queue")
        queue.commit({1: "success"})
        queue.store.end_journal()
        queue.store.checkpoint()
        queue.commit({}, (1,))
        before = first.now()
    again = write_tree(before.left(NOTHING), tmp_path / "again")
    with Disk(again).watched(monkeypatch) as second:
        QueueStore(str(again / "queue")).open()
        for place, how in enumerate(ALL_WAYS):
            left = write_tree(second.now().left(how), tmp_path / f"left-{place}")
            assert found_in(left / "queue") == queue.promised[-1], how


def test_the_drain_flag_and_a_file_set_aside_are_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "disk"
    root.mkdir()
    with Disk(root).watched(monkeypatch) as disk:
        store = QueueStore(str(root / "queue"))
        store.open()
        store.commit({"job-1": "odd"})
        store.end_journal()
        store.checkpoint()
        store.set_aside(1)
        store.set_drained(True)
        for how in ALL_WAYS:
            left = disk.now().left(how)["queue"]
            assert left["damaged"] == {"job-1": b"odd"}
            assert "drain" in left and "job-1" not in left
        store.set_drained(False)
        for how in ALL_WAYS:
            assert "drain" not in disk.now().left(how)["queue"]


def test_every_serial_which_was_given_out_counts_in_a_vote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "disk"
    root.mkdir()
    with Disk(root).watched(monkeypatch) as disk:
        store = QueueStore(str(root / "queue"))
        store.open()
        for number in range(1, 4):
            store.commit({"serial": f"{number}\n"})
            disk.note = number
            moment = disk.now()
            for how in ALL_WAYS:
                left = write_tree(moment.left(how), tmp_path / f"{number}-{ALL_WAYS.index(how)}")
                assert journaled_serial(str(left / "queue")) == number
