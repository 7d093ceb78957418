"""Fetching newer copies: from a node whose files are real, by the handlers of node calls."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.config import cluster_of, uuid_of
from ganeti import errors
from ganeti.backend.cluster import config_file, jobqueue
from ganeti.bootstrap import newer_copies
from ganeti.config.members import Members
from ganeti.constants import job as job_const
from ganeti.jobstore import inventory
from ganeti.jobstore.store import QueueStore
from ganeti.jqueue import job as jobs
from ganeti.objects import codec
from ganeti.opcodes.test import OpTestDelay
from ganeti.platform import master_epoch, paths
from ganeti.platform.master_epoch import Epoch
from ganeti.rpc import Result
from ganeti.utils import filelock
from ganeti.wire import calls

OLD = "node1.example.com"
BEFORE, NOW = Epoch(4, uuid_of("node1")), Epoch(5, uuid_of("node2"))

HANDLERS = {
    calls.CONFIG_READ: config_file.read,
    calls.JOBQUEUE_INVENTORY: jobqueue.inventory,
    calls.JOBQUEUE_READ: jobqueue.read,
}


class OtherNode:
    """The node with the newer copies, as a runner sees it."""

    def __init__(self, root: Path) -> None:
        self.here = paths.Paths(str(root))
        os.makedirs(self.here.data_dir)
        os.makedirs(self.here.lock_dir)
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def call_addresses(
        self, call: calls.Call, addresses: dict[str, str], **args: Any
    ) -> dict[str, Result]:
        assert addresses == {OLD: "192.0.2.1"}
        self.asked.append((call.name, args))
        try:
            with paths.override(self.here):
                made = call.result.encode(HANDLERS[call](**args))
        except errors.GenericError as err:
            return {OLD: Result(OLD, failure=errors.NodeCallFailed(OLD, call.name, str(err)))}
        return {OLD: Result(OLD, call.result.decode(json.loads(json.dumps(made))))}


@pytest.fixture
def other(tmp_path: Path) -> OtherNode:
    return OtherNode(tmp_path / "other")


@pytest.fixture
def here(tmp_path: Path) -> Iterator[paths.Paths]:
    found = paths.Paths(str(tmp_path / "here"))
    for directory in (found.data_dir, found.lock_dir):
        os.makedirs(directory)
    with paths.override(found):
        master_epoch.claim(NOW)
        yield found


def source(other: OtherNode) -> newer_copies.Source:
    return newer_copies.Source(other, OLD, "192.0.2.1")  # type: ignore[arg-type]


def text_of(job_id: int, *, done: bool = False) -> str:
    job = jobs.QueuedJob(job_id, [jobs.QueuedOpCode.from_opcode(OpTestDelay(duration=1.0))], (5, 6))
    content = json.loads(jobs.encode(job.snapshot()))
    if done:
        content["ops"][0]["status"] = "success"
    return json.dumps(content)


def queue(here: paths.Paths, live: dict[int, str], archived: dict[int, str]) -> Path:
    """A queue directory with these jobs, and the highest id as its serial."""
    directory = Path(here.queue_dir)
    store = QueueStore(str(directory))
    store.open()
    files = {f"job-{job_id}": text for job_id, text in live.items()}
    for job_id, text in archived.items():
        files[f"archive/{job_id // job_const.JOBS_PER_ARCHIVE_DIR}/job-{job_id}"] = text
    store.commit({**files, "serial": f"{max([*live, *archived])}\n"})
    store.close()
    return directory


def fetch(other: OtherNode, copies: tuple[Epoch, Epoch] = (BEFORE, BEFORE)) -> list[float]:
    pauses: list[float] = []
    newer_copies.fetch_jobs(source(other), NOW, copies, sleep=pauses.append)
    return pauses


def test_a_queue_is_copied_whole(here: paths.Paths, other: OtherNode) -> None:
    """Jobs which are missing, have changed, or were archived meanwhile."""
    theirs = queue(
        other.here,
        {2: text_of(2, done=True), **{number: text_of(number) for number in range(10, 150)}},
        {1: text_of(1, done=True), 3: text_of(3, done=True), 20007: text_of(20007, done=True)},
    )
    queue(here, {1: text_of(1, done=True), 2: text_of(2)}, {})
    assert fetch(other), "a process of that node may have had changes in memory"
    assert inventory.take(here.queue_dir, [0, 2]) == inventory.take(str(theirs), [0, 2])
    assert master_epoch.read().queue == BEFORE, "its master gave out the ids: a gap is left"


def test_changes_which_are_only_in_a_journal_are_fetched(
    here: paths.Paths, other: OtherNode
) -> None:
    """The master daemon of that node was killed."""
    queue(other.here, {1: text_of(1)}, {})
    killed = QueueStore(other.here.queue_dir)
    killed.open()
    killed.commit({"job-1": text_of(1, done=True), "job-2": text_of(2), "serial": "2\n"})
    fetch(other)
    directory = Path(here.queue_dir)
    assert (directory / "job-1").read_text() == text_of(1, done=True)
    assert (directory / "job-2").read_text() == text_of(2)
    assert (directory / "serial").read_text() == "2\n"


def test_damaged_and_older_copies_replace_nothing(here: paths.Paths, other: OtherNode) -> None:
    theirs = queue(other.here, {1: "{", 2: text_of(2), 4: text_of(4)}, {})
    (theirs / "job-3").mkdir()
    queue(
        here, {1: text_of(1), 2: text_of(2, done=True), 3: text_of(3)}, {5: text_of(5, done=True)}
    )
    before = {number: (Path(here.queue_dir) / f"job-{number}").read_text() for number in (1, 2, 3)}
    fetch(other)
    for number, text in before.items():
        assert (Path(here.queue_dir) / f"job-{number}").read_text() == text
    assert (Path(here.queue_dir) / "job-4").exists()


def test_an_unreadable_file_does_not_keep_the_others_back(
    here: paths.Paths, other: OtherNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue(other.here, {1: text_of(1), 2: text_of(2), 3: text_of(3)}, {})
    real = HANDLERS[calls.JOBQUEUE_READ]

    def read(names: list[str]) -> dict[str, str]:
        if "job-2" in names:
            raise errors.JobQueueError("input/output error")
        return real(names=names)  # type: ignore[no-any-return, operator]

    monkeypatch.setitem(HANDLERS, calls.JOBQUEUE_READ, read)
    fetch(other)
    assert {path.name for path in Path(here.queue_dir).glob("job-*")} == {"job-1", "job-3"}


def test_jobs_of_an_older_history_do_not_stay(here: paths.Paths, other: OtherNode) -> None:
    """A later master never had job 2: it would run now, or be listed."""
    queue(other.here, {1: text_of(1), 10005: text_of(10005)}, {})
    queue(here, {1: text_of(1, done=True), 2: text_of(2)}, {})
    fetch(other, (Epoch(3, uuid_of("node2")), BEFORE))
    assert inventory.take(here.queue_dir) == inventory.take(other.here.queue_dir)
    assert master_epoch.read().queue == BEFORE


def test_an_interrupted_copy_counts_as_the_old_one(here: paths.Paths, other: OtherNode) -> None:
    queue(other.here, {number: text_of(number) for number in range(1, 200)}, {})
    real = other.call_addresses

    def break_down(call: calls.Call, addresses: dict[str, str], **args: Any) -> dict[str, Result]:
        if call is calls.JOBQUEUE_READ and "job-100" in args["names"]:
            return {OLD: Result(OLD, failure=errors.NodeUnreachable(OLD, call.name, "cut"))}
        return real(call, addresses, **args)

    other.call_addresses = break_down  # type: ignore[method-assign]
    with pytest.raises(errors.NodeUnreachable):
        fetch(other)
    assert not (Path(here.queue_dir) / "serial").exists()
    assert master_epoch.read().queue == master_epoch.NONE
    other.call_addresses = real  # type: ignore[method-assign]
    fetch(other)
    assert inventory.take(here.queue_dir) == inventory.take(other.here.queue_dir)


def test_nothing_is_fetched_where_a_master_daemon_runs(here: paths.Paths, other: OtherNode) -> None:
    """It has more than its files."""
    queue(other.here, {1: text_of(1)}, {})
    with filelock.FileLock(other.here.queue_lock_file) as lock:
        lock.acquire()
        with pytest.raises(errors.NodeCallFailed, match="master daemon of this node holds"):
            fetch(other)


def write_config(here: paths.Paths, serial_no: int) -> str:
    text = json.dumps(codec.to_dict(dataclasses.replace(cluster_of(3), serial_no=serial_no)))
    Path(here.cluster_conf_file).write_text(text)
    return text


def test_the_configuration_is_copied(here: paths.Paths, other: OtherNode) -> None:
    write_config(here, 7)
    newer = write_config(other.here, 9)
    seen: list[Members] = []
    newer_copies.fetch_config(source(other), NOW, seen.append)
    assert Path(here.cluster_conf_file).read_text() == newer
    assert [one.serial_no for one in seen] == [9]
    assert master_epoch.read().config == NOW


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff\xfe", None])
def test_a_damaged_configuration_is_refused(
    here: paths.Paths, other: OtherNode, content: bytes | None
) -> None:
    text = write_config(here, 7)
    if content is not None:
        Path(other.here.cluster_conf_file).write_bytes(content)
    with pytest.raises(errors.GenericError):
        newer_copies.fetch_config(source(other), NOW, lambda members: None)
    assert Path(here.cluster_conf_file).read_text() == text
    assert master_epoch.read().config == master_epoch.NONE


def test_a_refused_configuration_changes_nothing(here: paths.Paths, other: OtherNode) -> None:
    text = write_config(here, 7)
    write_config(other.here, 9)

    def refuse(_members: Members) -> None:
        raise errors.OpPrereqError("no candidate", errors.ECODE_STATE)

    with pytest.raises(errors.OpPrereqError):
        newer_copies.fetch_config(source(other), NOW, refuse)
    assert Path(here.cluster_conf_file).read_text() == text
