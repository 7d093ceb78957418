"""A job id is never given twice, and a job which only one node has says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from ganeti import errors
from ganeti.constants import job as const
from ganeti.jobstore.inventory import Inventory
from ganeti.jqueue import queue as job_queue
from ganeti.jqueue.catch_up import LocalQueue
from ganeti.jqueue.commit import Delivered
from ganeti.jqueue.replication import Candidates, Replicator
from ganeti.opcodes.node import OpNodeSetParams

from . import load
from .load import op_of
from .test_catch_up import Away, until


class Copies:
    """Candidates which take everything, except for those in ``away``."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.away: set[str] = set()
        self.serials = dict.fromkeys(names, "3\n")

    def _reach(self, node: str) -> None:
        if node in self.away:
            raise errors.NodeUnreachable(node, "call", "no route")

    def candidates(self) -> Sequence[str]:
        return self.names

    def update(self, node_uuid: str, files: dict[str, str]) -> None:
        self._reach(node_uuid)
        self.serials[node_uuid] = files.get("serial", self.serials[node_uuid])

    def inventory(self, node_uuid: str, parts: Sequence[int]) -> Inventory:
        self._reach(node_uuid)
        return Inventory({}, {"serial": self.serials[node_uuid], "version": "1\n"}, False, {}, {})

    def read(self, node_uuid: str, names: Sequence[str]) -> dict[str, str]:
        return {}

    def archive(self, node_uuid: str, job_ids: Sequence[int]) -> None:
        self._reach(node_uuid)

    def purge(self, node_uuid: str) -> None:
        self._reach(node_uuid)

    def set_drained(self, node_uuids: Sequence[str], drained: bool) -> list[str]:
        return []


class Here(LocalQueue):
    """A queue whose highest job id is 3."""

    def __init__(self) -> None:
        self.had = lambda _job_id: True

    def inventory(self, since: float) -> Inventory:
        return Inventory({}, {"serial": "3\n", "version": "1\n"}, False, {}, {})


@pytest.mark.parametrize(
    ("count", "away", "confirmed"),
    [(1, 0, 9), (1, 1, 3), (2, 1, 9), (2, 2, 3), (3, 1, 9), (3, 2, 3), (4, 2, 9), (4, 3, 3)],
)
def test_what_a_majority_knows(count: int, away: int, confirmed: int) -> None:
    """The master is one of them."""
    copies = Copies(*(f"n{number}" for number in range(count)))
    replicator = Replicator(Candidates(copies), Here(), retry_s=0.01)
    replicator.start(3)
    until(lambda: not replicator.lagging())
    copies.away = set(copies.names[:away])
    replicator.send({"serial": "9\n"}, ())()
    until(lambda: replicator.confirmed_serial == confirmed)
    assert replicator.wait_confirmed(9, 0.0) is (confirmed == 9)
    replicator.stop()


def test_without_other_candidates_everything_is_confirmed() -> None:
    replicator = Replicator(Candidates(Copies()), Here())
    replicator.start(3)
    assert replicator.confirmed_serial is None and replicator.wait_confirmed(9, 0.0)
    assert replicator.send({"serial": "9\n"}, ())() == Delivered(alone=False, shortfall="")
    replicator.stop()


# -- the queue -----------------------------------------------------------------------------------


@pytest.fixture
def away() -> Away:
    return Away()


def started(directory: Path, away: Callable[[str], None], *, taken_over: bool = False) -> load.Run:
    run = load.Run(str(directory), away)
    run.store.taken_over = taken_over
    run.queue.start()
    return run


def test_a_new_master_leaves_a_gap(tmp_path: Path, away: Away) -> None:
    """As many ids as the one before may have given to jobs which nobody else has."""
    run = started(tmp_path, away)
    assert run.queue.submit([op_of("one")]) == 1
    run.stop()
    run = started(tmp_path, away)
    assert run.queue.submit([op_of("two")]) == 2, "the same master goes on"
    until(lambda: (tmp_path / load.CANDIDATE / "job-2").exists())
    run.stop()
    run = started(tmp_path, away, taken_over=True)
    first = const.JOB_ID_GAP + 3
    # The candidate knows before any job gets an id: otherwise the next gap would begin as low.
    assert (tmp_path / load.CANDIDATE / "serial").read_text() == f"{first - 1}\n" or (
        run.queue.replicator is not None and run.queue.replicator.wait_confirmed(first - 1, 0.0)
    )
    assert run.queue.submit([op_of("three")]) == first
    assert run.queue.table.had(2) and run.queue.table.had(first)
    assert not run.queue.table.had(3) and not run.queue.table.had(first - 1)
    run.stop()
    run = started(tmp_path, away)
    assert run.queue.submit([op_of("four")]) == first + 1
    run.stop()


def test_jobs_of_a_master_that_was_cut_off_do_not_come_back(tmp_path: Path, away: Away) -> None:
    """Their ids are in the gap; the copy of the returning node is replaced."""
    run = started(tmp_path, away)
    run.wait(run.queue.submit([op_of("one")]))
    until(lambda: (tmp_path / load.CANDIDATE / "job-1").exists())
    run.stop()
    copy = tmp_path / load.CANDIDATE
    (copy / "job-2").write_text((copy / "job-1").read_text().replace('"id":1', '"id":2'))
    run = started(tmp_path, away, taken_over=True)
    until(lambda: not (copy / "job-2").exists())
    until(lambda: (copy / "job-1").exists())
    assert run.queue.query([2], ["id"]) == [None]
    run.stop()


def test_no_more_ids_than_the_gap_has(
    tmp_path: Path, away: Away, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the next master would give the same ones; marking nodes offline goes on."""
    monkeypatch.setattr(const, "JOB_ID_GAP", 6)
    monkeypatch.setattr(job_queue, "_KEPT_IDS", 2)
    run = started(tmp_path, away)
    replicator = run.queue.replicator
    assert replicator is not None
    until(lambda: not replicator.lagging())
    away.dead = True
    for _ in range(4):
        run.queue.submit([op_of("alone")])
    with pytest.raises(errors.JobQueueError, match="mark them as offline"):
        run.queue.submit([op_of("alone")])
    offline = OpNodeSetParams(node_name="node2", offline=True)
    run.queue.submit([offline])
    run.queue.submit([offline])
    with pytest.raises(errors.JobQueueError, match="mark them as offline"):
        run.queue.submit([offline])
    away.dead = False
    until(lambda: replicator.confirmed_serial == 6)
    assert run.queue.submit([op_of("again")]) == 7
    run.stop()


def test_a_job_that_only_this_node_has_says_so_at_once(tmp_path: Path, away: Away) -> None:
    run = started(tmp_path, away)
    replicator = run.queue.replicator
    assert replicator is not None
    until(lambda: not replicator.lagging())
    first = run.queue.submit([op_of("with a copy")])
    run.wait(first)
    away.dead = True
    second = run.queue.submit([op_of("held alone")])
    # The answer to the submission comes after the warning.
    assert "no other master candidate has stored this job" in str(
        run.queue.query([second], ["oplog"])
    )
    run.hold.set()
    run.wait(second)
    assert "no other master candidate" not in str(run.queue.query([first], ["oplog"]))
    assert str(run.queue.query([second], ["oplog"])).count("no other master candidate") == 1
    run.stop()
    text = (tmp_path / f"queue/job-{second}").read_text()
    assert "no other master candidate" in text
