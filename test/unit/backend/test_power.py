"""What a node has promised is there after a power failure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fakes.power import ALL_WAYS, Disk, write_tree
from ganeti import errors
from ganeti.backend.cluster import config_file, jobqueue
from ganeti.backend.node import files
from ganeti.configfile import files as configfile
from ganeti.jobstore.store import QueueStore
from ganeti.platform import master_epoch
from ganeti.platform.master_epoch import Epoch
from ganeti.platform.paths import Paths, override
from ganeti.utils import fs
from ganeti.wire.calls import FileDetails

OLD = '{"a":1,"serial_no":7}\n'
NEW = '{"a":2,"serial_no":8}\n'
END = '"serial_no":7}\n'


def _upload(here: Paths) -> None:
    path = here.to_virtual(here.cluster_conf_file)
    files.upload_file(FileDetails(path, NEW, 0o640, "root", "root", 0, 0))


def _rewrite(here: Paths) -> None:
    assert config_file.rewrite(len(OLD), END, [[0, 5], '2,"serial_no":8}\n'], len(NEW))


def _append(here: Paths) -> None:
    _rewrite(here)


@pytest.mark.parametrize("write", [_upload, _rewrite, _append])
def test_the_configuration_of_a_candidate(
    here: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[Paths], None]
) -> None:
    """The old one or the new one, whole, and the new one from the moment of the answer."""
    path = Path(here.cluster_conf_file)
    fs.write_file(str(path), OLD, mode=0o640)
    if write is _append:
        monkeypatch.setattr(configfile, "JOURNAL_FROM_BYTES", 1)
    with Disk(path.parent).watched(monkeypatch) as disk:
        write(here)
        disk.moments.append(disk.now())

    def left(place: int, how: str) -> str:
        target = tmp_path / f"left-{place}-{ALL_WAYS.index(how)}"
        again = write_tree(disk.moments[place].left(how), target) / path.name
        if write is _append:
            assert again.read_text() == OLD
        return configfile.read(str(again)).decode()

    for place, moment in enumerate(disk.moments):
        for how in ALL_WAYS:
            assert left(place, how) in (OLD, NEW), f"power failed before {moment.before}; {how}"
    for number, how in enumerate(ALL_WAYS):
        target = tmp_path / f"last-{number}"
        again = write_tree(disk.moments[-1].left(how), target) / path.name
        assert configfile.read(str(again)).decode() == NEW, how


def test_a_promised_epoch(here: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node which forgets a promise obeys two masters."""
    old, new = Epoch(3, "old"), Epoch(4, "new")
    master_epoch.claim(old)
    with Disk(Path(here.data_dir)).watched(monkeypatch) as disk:
        disk.note = old
        master_epoch.claim(new)
        disk.note = new
        disk.moments.append(disk.now())
    for place, moment in enumerate(disk.moments):
        for how in ALL_WAYS:
            root = tmp_path / f"after-{place}-{ALL_WAYS.index(how)}"
            with override(Paths(str(root))) as after:
                Path(after.data_dir).parent.mkdir(parents=True)
                write_tree(moment.left(how), Path(after.data_dir))
                known = master_epoch.read(after).epoch
            assert moment.note <= known <= new, f"power failed before {moment.before}; {how}"


def test_an_acknowledged_job_on_a_candidate(
    here: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Disk(Path(here.queue_dir)).watched(monkeypatch) as disk:
        jobqueue.update("version", "1\n")
        jobqueue.update_many([("job-1", "one"), ("job-2", "two"), ("serial", "2\n")])
        moment = disk.now()
        jobqueue.rename([["job-1", "archive/0/job-1"]])
        archived = disk.now()
        jobqueue.settle()
        settled = disk.now()
    for place, (when, live) in enumerate([(moment, [1, 2]), (archived, [2]), (settled, [2])]):
        for how in ALL_WAYS:
            where = write_tree(when.left(how), tmp_path / f"left-{place}-{ALL_WAYS.index(how)}")
            store = QueueStore(str(where))
            store.open()
            assert store.job_ids() == live, how
            assert (store.read_published("job-1"), store.read_job(2)) == ("one", "two"), how
            store.abandon()


def test_a_job_is_not_archived_before_its_last_content_is_written(
    here: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = Path(here.queue_dir)
    jobqueue.update("version", "1\n")
    jobqueue.update("job-1", "running")
    jobqueue.settle()
    jobqueue.update("job-1", "success")
    with monkeypatch.context() as full:

        def refuse(self: QueueStore, name: str, text: str) -> None:
            raise OSError(28, "No space left on device", name)

        full.setattr(QueueStore, "_replace", refuse)
        with pytest.raises(errors.JobQueueError, match="job-1 cannot be archived yet"):
            jobqueue.rename([["job-1", "archive/0/job-1"]])
    jobqueue.rename([["job-1", "archive/0/job-1"]])
    jobqueue.settle()
    assert (queue / "archive/0/job-1").read_text() == "success"
    assert not (queue / "job-1").exists()
