"""The queue directory: whole files, a journal that survives, disks that refuse."""

from __future__ import annotations

import errno
import os
import pwd
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ganeti import errors
from ganeti.jobstore.journal import encode_record, journaled_serial, read_journals
from ganeti.jobstore.store import QueueStore


class Disk:
    """Lets the n-th step fail."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.fail_at: set[int] = set()
        self.fail_names: set[str] = set()
        self.error = errno.ENOSPC

    def __call__(self, step: str) -> None:
        self.steps.append(step)
        if len(self.steps) in self.fail_at or step in self.fail_names:
            raise OSError(self.error, os.strerror(self.error))


def opened(path: Path, **kwargs: object) -> QueueStore:
    store = QueueStore(str(path), **kwargs)  # type: ignore[arg-type]
    store.open()
    return store


def save(store: QueueStore, files: dict[str, str], archive: tuple[int, ...] = ()) -> None:
    store.commit(files, archive)
    store.apply()


def journals(path: Path) -> list[str]:
    return sorted(name for name in os.listdir(path) if name.startswith("journal-"))


def test_names_modes_and_version(tmp_path: Path) -> None:
    old = os.umask(0o077)
    try:
        store = opened(tmp_path / "queue")
        save(store, {"job-10001": "{}", "serial": "10001\n"}, ())
        save(store, {}, (10001,))
    finally:
        os.umask(old)
    queue = tmp_path / "queue"
    assert (queue / "version").read_text() == "1\n"
    assert (queue / "archive/1/job-10001").read_text() == "{}"
    assert store.read_serial() == 10001
    for name in ("version", "serial", "archive/1/job-10001"):
        assert (queue / name).stat().st_mode & 0o777 == 0o640
    assert list(store.archived_ids()) == [10001]
    store.close()
    assert sorted(os.listdir(queue)) == ["archive", "serial", "version"]


def test_the_newest_archived_jobs_first(tmp_path: Path) -> None:
    store = opened(tmp_path / "queue")
    ids = (7, 9999, 10000, 20005, 20007)
    save(store, {f"job-{one}": "{}" for one in ids}, ())
    save(store, {}, ids)
    assert list(store.newest_archived_ids(9999)) == [20007, 20005, 10000, 9999]
    assert list(store.newest_archived_ids(20006)) == [20007]
    assert list(store.newest_archived_ids(30000)) == []
    store.close()


def test_content_survives_when_no_file_was_flushed(tmp_path: Path) -> None:
    """What a power failure may do to files which were renamed and not flushed."""
    store = opened(tmp_path)
    save(store, {"job-1": "one", "job-2": "two", "serial": "2\n"})
    save(store, {"job-1": "one again"})
    save(store, {}, (2,))
    (tmp_path / "job-1").write_text("")
    (tmp_path / "archive/0/job-2").unlink()
    (tmp_path / "serial").unlink()
    again = opened(tmp_path)
    assert again.read_job(1) == "one again"
    assert again.read_archived(2) == "two"
    assert again.job_ids() == [1]
    assert again.read_serial() == 2
    assert journals(tmp_path) == []


def test_an_archived_job_with_lost_content_is_restored(tmp_path: Path) -> None:
    store = opened(tmp_path)
    save(store, {"job-2": "two"})
    save(store, {}, (2,))
    (tmp_path / "archive/0/job-2").unlink()
    assert opened(tmp_path).read_archived(2) == "two"


def test_an_archived_job_that_was_never_flushed_is_restored(tmp_path: Path) -> None:
    store = opened(tmp_path)
    save(store, {"job-2": "old"})
    save(store, {"job-2": "two"})
    save(store, {}, (2,))
    (tmp_path / "archive/0/job-2").write_text("")
    again = opened(tmp_path)
    assert again.read_archived(2) == "two"
    assert again.job_ids() == []


def test_one_process_at_a_time(tmp_path: Path) -> None:
    first = opened(tmp_path, lock_wait_s=0)
    with pytest.raises(errors.JobQueueError, match="another process works on the job queue"):
        opened(tmp_path, lock_wait_s=0)
    first.open()
    first.close()
    opened(tmp_path, lock_wait_s=0).close()


@pytest.mark.parametrize("step", ["write file", "rename file", "flush directory"])
def test_a_failed_start_keeps_nobody_out(tmp_path: Path, step: str) -> None:
    """A node daemon whose disk failed once opens the copy again with the next message."""
    disk = Disk()
    disk.fail_names = {step}
    with pytest.raises(errors.JobQueueError, match="cannot use the job queue"):
        opened(tmp_path, lock_wait_s=0, fault=disk)
    opened(tmp_path, lock_wait_s=0).close()


@pytest.mark.parametrize("cut", [1, 5, 20, 60])
def test_a_torn_tail_is_dropped(tmp_path: Path, cut: int) -> None:
    store = opened(tmp_path)
    save(store, {"job-1": "one"})
    store.commit({"job-2": "x" * 100})
    journal = tmp_path / journals(tmp_path)[0]
    journal.write_bytes(journal.read_bytes()[:-cut])
    again = opened(tmp_path)
    assert again.job_ids() == [1]
    assert again.read_job(1) == "one"


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 400), st.integers(1, 255))
def test_a_damaged_journal_never_gives_wrong_content(
    tmp_path_factory: pytest.TempPathFactory, place: int, flip: int
) -> None:
    path = tmp_path_factory.mktemp("queue")
    store = opened(path)
    for number in range(1, 4):
        store.commit({f"job-{number}": f"content {number} " + "z" * 50})
    journal = path / journals(path)[0]
    data = bytearray(journal.read_bytes())
    data[place % len(data)] ^= flip
    journal.write_bytes(bytes(data))
    again = opened(path)
    ids = again.job_ids()
    assert ids == list(range(1, len(ids) + 1))
    for number in ids:
        assert again.read_job(number) == f"content {number} " + "z" * 50


def test_a_full_disk_changes_nothing(tmp_path: Path) -> None:
    disk = Disk()
    store = opened(tmp_path, fault=disk)
    save(store, {"job-1": "one"})
    disk.fail_names = {"write journal"}
    with pytest.raises(errors.JobQueueError, match="No space left"):
        store.commit({"job-2": "two"})
    disk.fail_names = set()
    save(store, {"job-3": "three"})
    again = opened(tmp_path)
    assert again.job_ids() == [1, 3]


def test_a_really_full_disk(tmp_path: Path) -> None:
    """/dev/full stands for it: the record is cut off or the journal abandoned."""
    store = opened(tmp_path)
    save(store, {"job-1": "one"})
    writer = store._journal
    real, writer._fd = writer._fd, os.open("/dev/full", os.O_RDWR)
    with pytest.raises(errors.JobQueueError, match="No space left"):
        store.commit({"job-2": "two"})
    assert real is not None
    os.close(real)
    save(store, {"job-3": "three"})
    assert opened(tmp_path).job_ids() == [1, 3]


def test_a_record_whose_flush_failed_never_comes_back(tmp_path: Path) -> None:
    disk = Disk()
    store = opened(tmp_path, fault=disk)
    save(store, {"job-1": "one"})
    disk.fail_names = {"flush journal"}
    disk.error = errno.EIO
    before = (tmp_path / journals(tmp_path)[0]).read_bytes()
    with pytest.raises(errors.JobQueueError):
        store.commit({"job-2": "refused"})
    disk.fail_names = set()
    # The kernel may have written the record all the same, after we cut it off.
    record = encode_record({"job-2": "refused"}, (), None)
    (tmp_path / "journal-1").write_bytes(before + record)
    save(store, {"job-3": "three"})
    assert opened(tmp_path).job_ids() == [1, 3]


def test_a_journal_whose_flush_failed_takes_no_further_record(tmp_path: Path) -> None:
    """What the disk has of it is unknown, also of its earlier records."""
    disk = Disk()
    store = opened(tmp_path, fault=disk)
    save(store, {"job-1": "one"})
    disk.fail_names = {"flush journal"}
    with pytest.raises(errors.JobQueueError):
        store.commit({"job-2": "refused"})
    disk.fail_names = set()
    save(store, {"job-3": "three"})
    assert journals(tmp_path) == ["journal-1", "journal-2"]


def test_a_journal_says_how_much_of_the_one_before_counts(tmp_path: Path) -> None:
    store = opened(tmp_path)
    save(store, {"job-1": "one"})
    size = (tmp_path / "journal-1").stat().st_size
    store.end_journal()
    save(store, {"job-2": "two"})
    assert f'"after":[1,{size}]' in (tmp_path / "journal-2").read_text().replace(" ", "")
    # Something that was never acknowledged appears at the end of the first one.
    with open(tmp_path / "journal-1", "ab") as stream:
        stream.write(encode_record({"job-3": "never acknowledged"}, (), None))
    assert opened(tmp_path).job_ids() == [1, 2]


def test_journal_10_is_replayed_after_journal_9(tmp_path: Path) -> None:
    """By name it would come before it, and older content would replace newer."""
    store = opened(tmp_path)
    for number in range(1, 12):
        store.commit({"job-1": f"content {number}"})
        store.end_journal()
    store.abandon()
    assert {"journal-9", "journal-10", "journal-11"} <= set(journals(tmp_path))
    assert opened(tmp_path).read_job(1) == "content 11"


def test_a_file_that_cannot_be_written_stays_in_the_journal(tmp_path: Path) -> None:
    disk = Disk()
    store = opened(tmp_path, fault=disk)
    save(store, {"job-1": "one"})
    disk.fail_names = {"write file"}
    save(store, {"job-1": "newer", "job-2": "two"})
    assert store.read_job(1) == "newer"
    store.end_journal()
    with pytest.raises(OSError, match="not everything"):
        store.checkpoint()
    assert (tmp_path / "job-1").read_text() == "one"
    assert journals(tmp_path) == ["journal-1"]
    disk.fail_names = set()
    save(store, {"job-3": "three"})
    assert (tmp_path / "job-1").read_text() == "newer"
    store.close()
    assert journals(tmp_path) == []
    assert opened(tmp_path).job_ids() == [1, 2, 3]


def test_an_unwritten_job_can_be_archived(tmp_path: Path) -> None:
    disk = Disk()
    store = opened(tmp_path, fault=disk)
    disk.fail_names = {"write file"}
    save(store, {"job-1": "one"})
    disk.fail_names = set()
    save(store, {}, (1,))
    assert store.read_archived(1) == "one"
    assert store.job_ids() == []


def test_a_long_journal_is_replaced_and_flushed(tmp_path: Path) -> None:
    store = opened(tmp_path, journal_bytes=300)
    for number in range(1, 10):
        save(store, {f"job-{number}": "x" * 100})
    assert len(journals(tmp_path)) > 1
    assert store.has_old_journals
    store.checkpoint()
    assert len(journals(tmp_path)) == 1
    assert not store.has_old_journals
    assert opened(tmp_path).job_ids() == list(range(1, 10))


def test_an_archived_job_is_flushed_with_the_journal_that_has_its_content(tmp_path: Path) -> None:
    disk = Disk()
    store = opened(tmp_path, fault=disk)
    save(store, {"job-1": "one"})
    store.end_journal()
    save(store, {}, (1,))
    disk.steps.clear()
    store.checkpoint()
    assert disk.steps.count("flush file") == 2, "job-1 is gone, archive/0/job-1 is flushed"


@pytest.mark.parametrize("pieces", ["short writes", "half a record and an error"])
def test_a_record_which_is_not_written_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pieces: str
) -> None:
    store = opened(tmp_path)
    save(store, {"job-1": "one"})
    with monkeypatch.context() as patch:
        real = os.write

        def write(fd: int, data: bytes) -> int:
            written = real(fd, bytes(data)[:7])
            if pieces != "short writes":
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return written

        patch.setattr(os, "write", write)
        if pieces == "short writes":
            store.commit({"job-2": "two"})
        else:
            with pytest.raises(errors.JobQueueError):
                store.commit({"job-2": "two"})
    store.commit({"job-3": "three"})
    assert opened(tmp_path).job_ids() == ([1, 2, 3] if pieces == "short writes" else [1, 3])


def test_what_a_vote_finds_in_journals(tmp_path: Path) -> None:
    store = opened(tmp_path)
    assert journaled_serial(str(tmp_path)) == 0
    store.commit({"job-7": "seven"})
    assert journaled_serial(str(tmp_path)) == 7
    store.commit({"serial": "9\n"})
    assert journaled_serial(str(tmp_path)) == 9
    store.commit({"serial": "many\n"})
    assert journaled_serial(str(tmp_path)) == 7


def test_a_journal_which_is_removed_meanwhile(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.commit({"job-1": "one"})
    (found,) = read_journals(str(tmp_path), ["journal-1", "journal-2"])
    assert found.files == {"job-1": "one"}


def test_a_journal_which_cannot_be_begun_leaves_nothing(tmp_path: Path) -> None:
    disk = Disk()
    store = opened(tmp_path, fault=disk)
    disk.fail_names = {"flush directory"}
    with pytest.raises(errors.JobQueueError):
        store.commit({"job-1": "one"})
    assert journals(tmp_path) == []
    disk.fail_names = set()
    store.commit({"job-1": "one"})
    assert journals(tmp_path) == ["journal-1"]


def test_a_job_is_archived_after_its_last_content(tmp_path: Path) -> None:
    disk = Disk()
    store = opened(tmp_path, fault=disk)
    save(store, {"job-1": "running"})
    disk.fail_names = {"write file"}
    store.commit({"job-1": "success"})
    save(store, {}, (1,))
    assert (tmp_path / "job-1").read_text() == "running"
    assert store.read_archived(1) is None
    disk.fail_names = set()
    store.apply()
    assert store.read_archived(1) == "success"
    assert store.job_ids() == []


def test_a_job_which_cannot_be_archived_is_tried_again(tmp_path: Path) -> None:
    disk = Disk()
    store = opened(tmp_path, fault=disk)
    save(store, {"job-1": "success"})
    disk.fail_names = {"archive job"}
    save(store, {}, (1,))
    store.end_journal()
    with pytest.raises(OSError, match="not everything"):
        store.checkpoint()
    assert journals(tmp_path) == ["journal-1"]
    disk.fail_names = set()
    store.checkpoint()
    assert (store.read_archived(1), store.job_ids(), journals(tmp_path)) == ("success", [], [])


def test_an_archived_job_is_found_under_its_old_name(tmp_path: Path) -> None:
    store = opened(tmp_path)
    save(store, {"job-1": "success", "serial": "1\n"}, (1,))
    assert store.read_published("job-1") == "success"
    assert store.read_published("job-2") is None
    assert store.read_published("serial") == "1\n"


def test_archiving_twice_is_done_once(tmp_path: Path) -> None:
    store = opened(tmp_path)
    save(store, {"job-1": "success"}, (1,))
    save(store, {}, (1,))
    store.end_journal()
    store.checkpoint()
    assert store.read_archived(1) == "success"


def test_an_archived_job_without_a_file_does_not_stop_the_start(tmp_path: Path) -> None:
    opened(tmp_path).commit({"job-2": "two"}, (1,))
    assert opened(tmp_path).job_ids() == [2]


class Meanwhile:
    """Calls something once, in the middle of writing a file."""

    def __init__(self) -> None:
        self.action: Callable[[], None] | None = None

    def __call__(self, step: str) -> None:
        if step == "rename file" and self.action is not None:
            action, self.action = self.action, None
            action()


def test_content_which_comes_while_files_are_written(tmp_path: Path) -> None:
    meanwhile = Meanwhile()
    store = opened(tmp_path, fault=meanwhile)
    store.commit({"job-1": "older"})
    store.end_journal()
    meanwhile.action = lambda: store.commit({"job-1": "newer"})
    store.checkpoint()  # the journal in use has the newer content
    assert (tmp_path / "job-1").read_text() == "older"
    assert store.read_job(1) == "newer"
    assert journals(tmp_path) == ["journal-2"]
    store.apply()
    assert (tmp_path / "job-1").read_text() == "newer"


def test_no_temporary_files_stay(tmp_path: Path) -> None:
    disk = Disk()
    store = opened(tmp_path, fault=disk)
    disk.fail_names = {"rename file"}
    save(store, {"job-1": "one"})
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".queue-")]
    store.abandon()
    for name in (".queue-job-8.new", ".version.12.0.new", ".drain.12.34.new"):
        (tmp_path / name).write_text("left by a killed process")
    opened(tmp_path)
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]


def test_foreign_files_are_left_alone(tmp_path: Path) -> None:
    store = opened(tmp_path)
    for name in ("job-x", "job-01", "notes", "job-7.bak", "journal-", ".hidden"):
        (tmp_path / name).write_text("mine")
    (tmp_path / ".queue-job-1.new").write_text("left by a killed process")
    save(store, {"job-1": "one"})
    again = opened(tmp_path)
    assert again.job_ids() == [1]
    assert (tmp_path / "job-x").read_text() == "mine"
    assert not (tmp_path / ".queue-job-1.new").exists()


def test_another_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "version").write_text("2\n")
    with pytest.raises(errors.JobQueueError, match="version '2'"):
        opened(tmp_path)


def test_a_serial_that_is_none_is_refused(tmp_path: Path) -> None:
    store = opened(tmp_path)
    (tmp_path / "serial").write_text("many")
    with pytest.raises(errors.JobQueueError, match="no job id"):
        store.read_serial()


def test_a_directory_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "queue").write_text("a file")
    with pytest.raises(errors.JobQueueError, match="cannot use the job queue"):
        opened(tmp_path / "queue")


def test_drain_flag(tmp_path: Path) -> None:
    disk = Disk()
    store = opened(tmp_path, fault=disk)
    assert not store.drained()
    store.set_drained(True)
    assert (tmp_path / "drain").read_text() == ""
    assert opened(tmp_path).drained()
    disk.fail_names = {"remove drain"}
    with pytest.raises(errors.JobQueueError, match="drain flag"):
        store.set_drained(False)
    disk.fail_names = set()
    store.set_drained(False)
    store.set_drained(False)
    assert not store.drained()


def test_every_step_may_fail_once(tmp_path: Path) -> None:
    """Whatever step fails: what commit() acknowledged is there after a restart, the rest not."""
    step = 0
    while True:
        step += 1
        path = tmp_path / f"queue-{step}"
        disk = Disk()
        store = opened(path, fault=disk, journal_bytes=200)
        disk.steps.clear()
        disk.fail_at = {step}
        acknowledged: dict[int, str] = {}
        for number in range(1, 6):
            text = f"job {number} " + "y" * 60
            try:
                store.commit({f"job-{number}": text}, ())
            except errors.JobQueueError:
                continue
            acknowledged[number] = text
            store.apply()
            if store.has_old_journals:
                try:
                    store.checkpoint()
                except OSError:
                    pass
        again = opened(path)
        assert {number: again.read_job(number) for number in again.job_ids()} == acknowledged
        if len(disk.steps) < step:
            break
    assert step > 20


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_root_gives_what_it_writes_to_whom_the_directory_belongs(tmp_path: Path) -> None:
    """As a node daemon does for a master daemon with a user of its own."""
    daemon = pwd.getpwnam("daemon")
    directory = tmp_path / "queue"
    directory.mkdir()
    os.chown(directory, daemon.pw_uid, daemon.pw_gid)
    store = opened(directory)
    save(store, {"job-10001": "{}", "serial": "10001\n"}, ())
    save(store, {"job-10002": "{}"}, (10001,))
    found = {
        path
        for path in directory.rglob("*")
        if (path.stat().st_uid, path.stat().st_gid) != (daemon.pw_uid, daemon.pw_gid)
    }
    assert len(list(directory.rglob("job-*"))) == 2 and found == set()
    store.close()
