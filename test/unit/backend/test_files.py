"""Uploads, ssconf, the queue: what is accepted and what is not."""

import os
import stat

import pytest

from ganeti import errors
from ganeti.backend import reasons
from ganeti.backend.cluster import jobqueue, master_vote, ssconf
from ganeti.backend.node import files
from ganeti.jobstore.inventory import Inventory
from ganeti.jobstore.store import QueueStore
from ganeti.utils import filelock
from ganeti.wire.calls import FileDetails


def details(path="/var/lib/ganeti/hmac.key", mode=0o440, content="secret"):
    return FileDetails(path, content, mode, "root", "root", 1e9, 1.1e9)


def test_upload(here):
    files.upload_file(details())
    found = os.stat(here.hmac_key)
    assert stat.S_IMODE(found.st_mode) == 0o440
    assert (found.st_atime, found.st_mtime) == (1e9, 1.1e9)
    files.upload_file_single("/var/lib/ganeti/hmac.key", "new", 0o440, "root", "root", 1, 2)
    with open(here.hmac_key) as stream:
        assert stream.read() == "new"


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "/etc/hosts",
        "/var/lib/ganeti/../../../etc/passwd",
        "/var/lib/ganeti/server.pem",
        "hmac.key",
        "",
        "/var/lib/ganeti/ssconf_master_node",
    ],
)
def test_upload_elsewhere_is_refused(here, path):
    with pytest.raises(errors.ConfigurationError, match="may not be uploaded"):
        files.upload_file(details(path))
    assert os.listdir(here.data_dir) == ["queue"]


def test_upload_of_a_setuid_file_is_refused(here):
    with pytest.raises(errors.ConfigurationError, match="mode 4755"):
        files.upload_file(details(mode=0o4755))
    assert not os.path.exists(here.hmac_key)


def test_reasons_of_removed_instances_are_removed(here):
    for name in ("web1", "web2", "web3"):
        reasons.store(name, [["user", "because", 1]], "instance_start")
    ssconf.write({"instance_list": "web1\nweb3\nweb9\n"})
    assert sorted(os.listdir(here.instance_reason_dir)) == ["web1", "web3"]
    ssconf.write({"instance_list": ""})
    assert os.listdir(here.instance_reason_dir) == []
    os.rmdir(here.instance_reason_dir)
    ssconf.write({"instance_list": "web1\n"})


def test_ssconf(here):
    ssconf.write({"master_node": "node1\n", "cluster_name": "c", "cluster_tags": ""})
    assert ssconf.master_node_name() == "node1"
    assert ssconf.read("cluster_name") == "c"
    assert ssconf.read("cluster_tags") == ""
    path = here.ssconf_file("master_node")
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o444
    before = os.stat(path)
    ssconf.write({"master_node": "node1\n", "cluster_name": "d"})
    assert os.stat(path).st_ino == before.st_ino
    assert ssconf.read("cluster_name") == "d"


@pytest.mark.parametrize(
    "values", [{"../x": "a"}, {"a/b": "a"}, {"": "a"}, {"A": "a"}, {"good": "x" * (4 << 20) + "x"}]
)
def test_bad_ssconf_changes_nothing(here, values):
    with pytest.raises(errors.ConfigurationError):
        ssconf.write({"cluster_name": "c", **values})
    assert not os.path.exists(here.ssconf_file("cluster_name"))


def test_the_names_of_20_000_instances_fit(here):
    names = "".join(f"instance-{number}.{'x' * 30}.example.com\n" for number in range(20_000))
    ssconf.write({"instance_list": names})
    assert ssconf.read("instance_list") == names.rstrip("\n")


def test_ssconf_missing(here):
    with pytest.raises(errors.ConfigurationError, match="No such file"):
        ssconf.master_node_name()


def test_ssconf_waits_for_its_lock(here, monkeypatch):
    monkeypatch.setattr(ssconf, "_LOCK_TIMEOUT_S", 0.05)
    with filelock.FileLock(here.ssconf_lock_file) as lock:
        lock.acquire()
        with pytest.raises(errors.LockError):
            ssconf.write({"cluster_name": "c"})


QUEUE = "/var/lib/ganeti/queue"


@pytest.fixture(autouse=True)
def _let_go_of_the_queue(here):
    """As a child does at its end."""
    yield
    jobqueue.settle()


def visible(here):
    return [name for name in sorted(os.listdir(here.queue_dir)) if not name.startswith("journal-")]


def test_queue_update_and_archive(here):
    jobqueue.update(f"{QUEUE}/job-7", "seven")
    jobqueue.update_many(
        [("version", "1\n"), ("job-8", "eight"), ("serial", "8\n"), ("archive/0/job-1", "one")]
    )
    jobqueue.settle()
    assert visible(here) == ["archive", "job-7", "job-8", "serial", "version"]
    assert stat.S_IMODE(os.stat(f"{here.queue_dir}/job-8").st_mode) == 0o640
    pair = [f"{QUEUE}/job-7", f"{QUEUE}/archive/0/job-7"]
    assert jobqueue.rename([pair]) == [None]
    assert jobqueue.rename([pair]) == [None]
    assert sorted(os.listdir(f"{here.queue_archive_dir}/0")) == ["job-1", "job-7"]
    with pytest.raises(errors.JobQueueError, match="does not exist"):
        jobqueue.rename([["job-99", "archive/0/job-99"]])
    jobqueue.settle()
    assert sorted(os.listdir(here.queue_dir)) == ["archive", "job-8", "serial", "version"]
    jobqueue.update("job-8", "newer")
    jobqueue.purge()
    jobqueue.settle()
    assert sorted(os.listdir(here.queue_dir)) == ["archive", "serial", "version"]
    assert os.listdir(f"{here.queue_archive_dir}/0") == []


@pytest.mark.parametrize(
    "name",
    [
        "",
        "job-",
        "job-x",
        "lock",
        "../config.data",
        "/etc/passwd",
        "archive/../job-1",
        "drain",
        f"{QUEUE}/../config.data",
        "job-1\n",
    ],
)
def test_queue_takes_only_its_own_files(here, name):
    with pytest.raises(errors.JobQueueError, match="not a file of the job queue"):
        jobqueue.update_many([("job-1", "x"), (name, "x")])
    with pytest.raises(errors.JobQueueError, match="not a file of the job queue"):
        jobqueue.rename([["job-1", name]])
    assert os.listdir(here.queue_dir) == ["archive"]


def test_queue_of_a_running_master_is_its_own(here):
    with filelock.FileLock(here.queue_lock_file) as lock:
        lock.acquire()
        for action in (
            lambda: jobqueue.update("job-1", "x"),
            jobqueue.purge,
            lambda: jobqueue.rename([["job-1", "archive/0/job-1"]]),
        ):
            with pytest.raises(errors.JobQueueError, match="no other master"):
                action()
    jobqueue.update("job-1", "x")


def test_queue_write_that_fails_leaves_the_old(here, monkeypatch):
    jobqueue.update_many([("version", "1\n"), ("job-1", "old"), ("job-2", "old")])

    def full(fd):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fdatasync", full)
    with pytest.raises(errors.JobQueueError, match="No space"):
        jobqueue.update_many([("job-1", "new"), ("job-2", "new")])
    monkeypatch.undo()
    jobqueue.settle()
    assert visible(here) == ["archive", "job-1", "job-2", "version"]
    assert read(here, "job-1") == "old"


def read(here, name):
    with open(f"{here.queue_dir}/{name}") as stream:
        return stream.read()


def test_queue_copy_of_a_killed_process_is_finished_first(here):
    """What it had acknowledged is there, and older than what comes now."""
    store = QueueStore(here.queue_dir, lock_wait_s=0)
    store.open()
    store.commit({"job-1": "one", "job-2": "two"})
    os.close(store._lock_fd)  # the kernel does this at a process's end
    jobqueue.update("job-2", "newer")
    assert read(here, "job-1") == "one"
    jobqueue.settle()
    assert (read(here, "job-1"), read(here, "job-2")) == ("one", "newer")


def test_queue_copy_is_written_by_one_process_at_a_time(here, monkeypatch):
    monkeypatch.setattr(jobqueue, "_LOCK_WAIT_S", 0.05)
    other = QueueStore(here.queue_dir, lock_wait_s=0)
    other.open()
    with pytest.raises(errors.JobQueueError, match="another process works on"):
        jobqueue.update("job-1", "x")
    other.close()
    jobqueue.update("job-1", "x")


def test_queue_copy_is_left_to_a_master_that_begins_here(here):
    jobqueue.update("job-1", "x")
    journals = [name for name in os.listdir(here.queue_dir) if name.startswith("journal-")]
    assert journals
    with filelock.FileLock(here.queue_lock_file) as lock:
        lock.acquire()
        jobqueue.settle()
        # It is the master's now to replay.
        assert set(journals) <= set(os.listdir(here.queue_dir))
        store = QueueStore(here.queue_dir, lock_wait_s=0)
        store.open()
        assert store.read_job(1) == "x"
        store.close()


def test_queue_changes_need_a_copy(here):
    """Otherwise a node with a new disk would have the newest jobs and no others."""
    with pytest.raises(errors.JobQueueError, match="there is no copy of the job queue here"):
        jobqueue.update_many([("job-9", "nine")])
    assert not os.path.exists(f"{here.queue_dir}/job-9")
    jobqueue.update_many([("job-9", "nine"), ("version", "1\n")])
    jobqueue.update_many([("job-10", "ten")])


def test_queue_tells_what_it_holds(here):
    jobqueue.update_many(
        [("version", "1\n"), ("job-1", "one"), ("serial", "2\n"), ("archive/0/job-2", "two")]
    )
    found = Inventory.from_wire(jobqueue.inventory([0]))
    assert found.live.keys() == {1}
    assert found.plain == {"serial": "2\n", "version": "1\n"}
    assert found.archived == {0: {2: 3}}
    jobqueue.settle()
    os.unlink(here.queue_serial_file)
    os.mkdir(here.queue_serial_file)
    with pytest.raises(errors.JobQueueError, match="cannot read the job queue"):
        jobqueue.inventory([])


def test_files_of_the_copy_are_read(here):
    """Also those whose content is in a journal only; others than files of the queue never."""
    jobqueue.update_many([("version", "1\n"), ("job-1", "one"), ("archive/0/job-2", "two\udc80")])
    names = [f"{QUEUE}/job-1", "archive/0/job-2", "job-3"]
    assert jobqueue.read(names) == {"job-1": "one", "archive/0/job-2": "two\udc80"}
    jobqueue.settle()
    assert jobqueue.read(["job-1"]) == {"job-1": "one"}
    for name in ("../ssconf_master_node", "drain", "damaged/job-1", "journal-1"):
        with pytest.raises(errors.JobQueueError, match="not a file of the job queue"):
            jobqueue.read([name])


def test_what_a_killed_process_left_undone_is_done_by_who_asks(here):
    store = QueueStore(here.queue_dir, lock_wait_s=0)
    store.open()
    store.commit({"job-1": "one", "serial": "1\n"})
    # It lives: it does that itself.
    assert Inventory.from_wire(jobqueue.inventory([])).live == {}
    assert master_vote.last_job(here.queue_dir) == 1
    os.close(store._lock_fd)
    with filelock.FileLock(here.queue_lock_file) as lock:
        lock.acquire()
        assert Inventory.from_wire(jobqueue.inventory([])).live == {}
    assert Inventory.from_wire(jobqueue.inventory([])).live.keys() == {1}
    assert visible(here) == sorted(os.listdir(here.queue_dir))
    assert visible(here) == ["archive", "job-1", "lock", "serial", "version"]


def test_a_copy_that_is_given_up_does_not_come_back(here):
    """A node that is not a candidate any more; the process with the old connection still lives."""
    jobqueue.update_many([("version", "1\n"), ("job-1", "one")])
    jobqueue.remove_jobs()
    jobqueue.settle()
    assert visible(here) == ["archive", "version"]


@pytest.mark.parametrize("look_first", [False, True])
def test_a_candidate_again_at_once(here, look_first):
    """Between two messages it was not a candidate: nothing goes to the old copy."""
    jobqueue.update_many([("version", "1\n"), ("job-1", "one")])
    jobqueue.remove_jobs()  # by another process, as the node was told to give up its copies
    if look_first:
        assert Inventory.from_wire(jobqueue.inventory([])).live == {}
    jobqueue.update_many([("version", "1\n"), ("job-2", "two")])
    assert Inventory.from_wire(jobqueue.inventory([])).live.keys() == {2}
    jobqueue.settle()
    assert visible(here) == ["archive", "job-2", "version"]


def test_queue_journals_that_have_grown_are_freed(here, monkeypatch):
    monkeypatch.setattr(
        QueueStore.__init__,
        "__kwdefaults__",
        {**QueueStore.__init__.__kwdefaults__, "journal_bytes": 1000},
    )
    for number in range(1, 40):
        jobqueue.update(f"job-{number}", "x" * 200)
    jobqueue._copy._flushing.join()
    # Journals which grew while a slow flush ran are freed by the flush after the next message.
    jobqueue.update("job-40", "x" * 200)
    jobqueue._copy._flushing.join()
    assert len([name for name in os.listdir(here.queue_dir) if name.startswith("journal-")]) < 6
    jobqueue.settle()
    assert visible(here) == sorted(["archive", "version", *(f"job-{n}" for n in range(1, 41))])


def test_queue_of_another_version_is_refused(here):
    with open(here.queue_version_file, "w") as stream:
        stream.write("2\n")
    with pytest.raises(errors.JobQueueError, match="has version '2'"):
        jobqueue.update("job-1", "x")
    assert visible(here) == ["archive", "version"]


def test_drain_flag(here):
    jobqueue.set_drain_flag(True)
    assert os.path.exists(here.queue_drain_file)
    jobqueue.set_drain_flag(False)
    jobqueue.set_drain_flag(False)
    assert not os.path.exists(here.queue_drain_file)
