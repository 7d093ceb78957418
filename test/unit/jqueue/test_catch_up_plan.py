"""The steps which bring a candidate's copy up to date, decided without threads and messages.

What the master has lost or damaged is never sent in place of a whole copy.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ganeti import errors
from ganeti.jobstore import inventory
from ganeti.jobstore.files import archive_file, job_file
from ganeti.jobstore.store import QueueStore
from ganeti.jqueue import catch_up, recovery
from ganeti.jqueue import job as jobs
from ganeti.jqueue.restore import Restorer
from ganeti.jqueue.table import JobTable
from ganeti.opcodes.test import OpTestDelay

HIGHEST = 20


def text_of(job_id: int, comment: str = "", status: str = "queued") -> str:
    """The file of a job with one opcode."""
    op = jobs.QueuedOpCode.from_opcode(OpTestDelay(duration=1.0, comment=comment))
    text = jobs.encode(jobs.QueuedJob(job_id, [op], (5, 6)).snapshot())
    return text.replace('"status":"queued"', f'"status":"{status}"')


class Lab:
    """The directories of the master and of a candidate, equal at first."""

    def __init__(self, path: Path) -> None:
        self.mine, self.theirs = path / "mine", path / "theirs"
        self.store = QueueStore(str(self.mine))
        self.store.open()
        self.restored: list[int] = []
        self.here = catch_up.LocalQueue(
            self.store, lambda job_id: job_id <= HIGHEST, self.restored.extend
        )
        for directory in (self.mine, self.theirs):
            directory.mkdir(exist_ok=True)
            (directory / "serial").write_text(f"{HIGHEST}\n")
            (directory / "version").write_text("1\n")
        self.write(*range(1, 4))
        self.write(*range(11, 14), archived=True)

    def write(self, *job_ids: int, archived: bool = False) -> None:
        for directory, job_id in itertools.product((self.mine, self.theirs), job_ids):
            path = directory / (archive_file(job_id) if archived else job_file(job_id))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text_of(job_id, status="success" if archived else "queued"))

    def plan(self) -> catch_up.CatchUpPlan:
        def ask(parts: Sequence[int]) -> inventory.Inventory:
            return inventory.take(str(self.theirs), parts)

        return catch_up.plan("node2", self.here, time.monotonic(), ask)


@pytest.fixture
def lab(tmp_path: Path) -> Any:
    made = Lab(tmp_path)
    yield made
    made.store.close()


NOTHING = catch_up.CatchUpPlan(False, {}, [], [], None)


def test_equal_copies_need_nothing(lab: Lab) -> None:
    assert lab.plan() == NOTHING
    assert lab.restored == []


def test_a_job_which_the_master_lost_stays_on_the_candidate(lab: Lab) -> None:
    (lab.mine / "job-2").unlink()
    assert lab.plan() == NOTHING
    assert lab.restored == [2]


def test_a_job_which_never_was_empties_the_copy(lab: Lab) -> None:
    (lab.theirs / f"job-{HIGHEST + 1}").write_text(text_of(HIGHEST + 1))
    plan = lab.plan()
    assert plan.purge
    assert sorted(plan.names) == sorted(
        [*(f"job-{number}" for number in (1, 2, 3)), *map(archive_file, (11, 12, 13))]
    )
    assert plan.first == {"serial": f"{HIGHEST}\n", "version": "1\n"}


@pytest.mark.parametrize("content", ["", "{}", text_of(3), text_of(2)[:40]])
def test_a_damaged_file_of_the_master_does_not_replace_a_copy(lab: Lab, content: str) -> None:
    (lab.mine / "job-2").write_text(content)
    assert lab.plan() == NOTHING
    assert lab.restored == [2]


def test_a_damaged_file_is_sent_to_nobody_who_has_another(lab: Lab) -> None:
    """It is the only thing which differs; a whole file which differs beside it is sent."""
    (lab.mine / "job-2").write_text("{}")
    (lab.mine / "job-3").write_text(text_of(3, "newer"))
    assert lab.plan().names == ["job-3"]
    assert lab.restored == [2]


def test_a_damaged_archived_file_does_not_replace_a_copy(lab: Lab) -> None:
    (lab.mine / archive_file(12)).write_text("{}")
    (lab.mine / archive_file(13)).write_text(text_of(13, "longer", "success"))
    assert lab.plan().names == [archive_file(13)]
    assert lab.restored == [12]


def test_a_job_archived_meanwhile_is_sent_before_it_is_archived_there(lab: Lab) -> None:
    """The candidate has an older content of it."""
    (lab.theirs / "job-3").write_text(text_of(3, "older"))
    (lab.mine / "job-3").rename(lab.mine / archive_file(3))
    plan = lab.plan()
    assert (plan.names, plan.moved) == (["job-3"], [3])
    assert lab.here.read("job-3") == text_of(3)


def test_bytes_which_are_no_text_are_not_sent(lab: Lab) -> None:
    (lab.mine / "job-2").write_bytes(b"\xff\xfe")
    assert lab.here.read("job-2") is None
    assert lab.here.read("job-3") == text_of(3)


@pytest.mark.parametrize("drained", [False, True])
def test_the_drain_flag_of_the_master_counts(lab: Lab, drained: bool) -> None:
    (lab.mine if drained else lab.theirs).joinpath("drain").touch()
    assert lab.plan().drained is drained


# -- copies of candidates ------------------------------------------------------------------------


class _Committer:
    def __init__(self) -> None:
        self.touched: list[int] = []

    def touch(self, job: jobs.QueuedJob) -> None:
        self.touched.append(job.id)

    def archive(self, job_ids: Sequence[int]) -> None:
        raise AssertionError("no copy is archived here")


class _Scheduler:
    def __init__(self) -> None:
        self.committer = _Committer()


class _Copies:
    """Candidates with one copy each; ``before`` is called when the first one is read."""

    def __init__(self, *texts: str) -> None:
        self.texts = dict(enumerate(texts))
        self.before: Any = None

    def candidates(self) -> list[str]:
        return [str(number) for number in self.texts]

    def read(self, node_uuid: str, names: Sequence[str]) -> dict[str, str]:
        if self.before is not None:
            self.before()
        return {name: self.texts[int(node_uuid)] for name in names if name.startswith("job-")}


def _table(lab: Lab) -> JobTable:
    return JobTable(lab.store, now=lambda: (7, 8), livelock=None)


@pytest.mark.parametrize("order", list(itertools.permutations(["success", "queued", "damaged"])))
def test_of_several_copies_the_one_which_got_furthest_is_taken(
    lab: Lab, order: Sequence[str]
) -> None:
    texts = {
        "success": text_of(5, status="success"),
        "queued": text_of(5),
        "damaged": text_of(5)[:50],
    }
    table = _table(lab)
    scheduler: Any = _Scheduler()
    Restorer(table, scheduler, _Copies(*(texts[one] for one in order))).restore([5])
    assert table.jobs[5].status == "success"
    assert scheduler.committer.touched == [5]


def test_a_job_which_came_back_meanwhile_is_not_replaced(lab: Lab) -> None:
    """Another candidate was compared at the same time, and the job went on."""
    table = _table(lab)
    scheduler: Any = _Scheduler()
    copies = _Copies(text_of(5, "a copy", "success"))
    present = jobs.decode(text_of(5, "present", "success"))
    copies.before = lambda: table.jobs.setdefault(5, present)
    Restorer(table, scheduler, copies).restore([5])
    assert table.jobs[5] is present
    assert scheduler.committer.touched == []


# -- ids after a loss ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "serial"),
    [
        (lambda lab: None, 13),
        (lambda lab: (lab.mine / "job-15").write_text(text_of(15)), 15),
        (lambda lab: (lab.mine / "job-16").write_text("{"), 16),
        (lambda lab: ((lab.mine / "damaged").mkdir(), (lab.mine / "damaged/job-17").touch()), 17),
    ],
)
def test_without_the_serial_no_id_is_given_again(lab: Lab, make: Any, serial: int) -> None:
    (lab.mine / "serial").unlink()
    make(lab)
    table = _table(lab)
    recovery.load(table)
    assert table.serial == serial


def test_a_job_which_was_set_aside_earlier_is_known_as_lost(lab: Lab) -> None:
    (lab.mine / "damaged").mkdir()
    for job_id in (2, 12, 17):
        (lab.mine / f"damaged/job-{job_id}").touch()
    table = _table(lab)
    recovery.load(table)
    # The others were brought back since then.
    assert table.lost == {17: "its file was damaged"}


def test_a_queue_which_cannot_be_read_is_an_error(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> list[int]:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(lab.store, "job_ids", refuse)
    with pytest.raises(errors.JobQueueError, match="Input/output error"):
        recovery.load(_table(lab))
