"""The other master candidates get the jobs of the queue."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from ganeti import errors
from ganeti.jobstore import inventory as queue_inventory
from ganeti.jobstore.files import archive_file
from ganeti.jobstore.inventory import Inventory
from ganeti.jqueue import replication
from ganeti.opcodes.base import OpCode
from ganeti.opcodes.cluster import OpClusterSetParams
from ganeti.opcodes.node import OpNodeSetParams

from .queue_lab import PATIENCE_S, Lab, op, until


def inventory_of(files: dict[str, str], parts: Sequence[int]) -> Inventory:
    """As a candidate's node daemon would tell it."""
    with tempfile.TemporaryDirectory() as directory:
        for name, text in files.items():
            path = Path(directory, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return queue_inventory.take(directory, parts)


class Candidates:
    """Two candidates that may fail or hang."""

    def __init__(self) -> None:
        self.files: dict[str, dict[str, str]] = {"one": {}, "two": {}}
        self.messages: list[tuple[str, int]] = []
        self.failing: set[str] = set()
        self.purged: list[str] = []
        self.present = ["one", "two"]

    def candidates(self) -> Sequence[str]:
        return tuple(self.present)

    def _check(self, uuid: str) -> None:
        if uuid in self.failing:
            raise errors.NodeUnreachable(uuid, "jobqueue_update_many", "no route")

    def update(self, uuid: str, files: dict[str, str]) -> None:
        self._check(uuid)
        self.messages.append((uuid, len(files)))
        self.files.setdefault(uuid, {}).update(files)

    def inventory(self, uuid: str, parts: Sequence[int]) -> Inventory:
        self._check(uuid)
        return inventory_of(self.files.setdefault(uuid, {}), parts)

    def archive(self, uuid: str, job_ids: Sequence[int]) -> None:
        self._check(uuid)
        for job_id in job_ids:
            self.files[uuid][archive_file(job_id)] = self.files[uuid].pop(f"job-{job_id}")

    def purge(self, uuid: str) -> None:
        self._check(uuid)
        self.purged.append(uuid)
        self.files[uuid] = {}

    def set_drained(self, uuids: Sequence[str], drained: bool) -> list[str]:
        for uuid in uuids:
            self.files[uuid].pop("drain", None)
            if drained:
                self.files[uuid]["drain"] = ""
        return sorted(self.failing)


def test_candidates_get_everything(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lab = Lab(tmp_path / "queue")
    candidates = Candidates()
    lab.queue = lab.new(candidates=replication.Candidates(candidates))
    lab.queue.start()
    results = lab.queue.submit_many([[op("a")] for _ in range(20)])
    for _, job_id in results:
        lab.wait(job_id)
    lab.queue.operations.archive(1)
    lab.queue.set_drain(True)
    assert ["drain" in candidates.files[uuid] for uuid in ("one", "two")] == [True, True]
    lab.queue.set_drain(False)
    assert ["drain" in candidates.files[uuid] for uuid in ("one", "two")] == [False, False]

    def same(uuid: str) -> bool:
        here = {
            name: (lab.path / name).read_text()
            for name in os.listdir(lab.path)
            if name.startswith("job-") or name in ("serial", "version")
        }
        there = {
            name: text
            for name, text in candidates.files[uuid].items()
            if not name.startswith("archive/") and name != "drain"
        }
        return here == there

    until(lambda: same("one") and same("two"))
    assert "archive/0/job-1" in candidates.files["one"]
    assert len(candidates.messages) < 80, "messages are shared by jobs"

    candidates.failing = {"one", "two"}
    job_id = lab.queue.submit([op("b")])
    assert lab.wait(job_id) == "success"
    assert any("2 of 2 master candidates" in record.message for record in caplog.records)
    candidates.present = ["two", "three"]
    candidates.failing = set()
    assert lab.wait(lab.queue.submit([op("c")])) == "success"
    candidates.files.setdefault("three", {})
    until(lambda: same("three") and same("two"))
    assert "archive/0/job-1" in candidates.files["three"], "a newcomer gets the archive, too"
    assert candidates.purged == []
    lab.queue.stop()


def test_a_hanging_candidate_is_not_waited_for_twice(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "queue")
    candidates = Candidates()
    hang = threading.Event()
    free = candidates.update

    def update(uuid: str, files: dict[str, str]) -> None:
        if uuid == "one":
            assert hang.wait(PATIENCE_S)
        free(uuid, files)

    candidates.update = update  # type: ignore[method-assign]
    lab.queue = lab.new(candidates=replication.Candidates(candidates))
    lab.queue.start()
    for _ in range(10):
        assert lab.wait(lab.queue.submit([op("a")])) == "success"
    until(lambda: "job-10" in candidates.files["two"])
    assert candidates.files["one"] == {}
    hang.set()
    until(lambda: candidates.files["one"].get("job-10") == candidates.files["two"]["job-10"])
    lab.queue.stop()


def test_many_jobs_are_answered_before_they_begin(tmp_path: Path) -> None:
    """Otherwise their work would hold up the answer; the one of few begins at once."""
    lab = Lab(tmp_path / "queue")
    candidates = Candidates()
    hang, hanging = threading.Event(), threading.Event()
    free = candidates.update

    def update(uuid: str, files: dict[str, str]) -> None:
        hanging.set()
        assert hang.wait(PATIENCE_S)
        free(uuid, files)

    lab.queue = lab.new(candidates=replication.Candidates(candidates), max_running=1)
    replicator = lab.queue.replicator
    assert replicator is not None
    replicator._wait_s = PATIENCE_S
    lab.queue.start()
    assert lab.wait(lab.queue.submit([op("before")])) == "success"
    until(lambda: not replicator.lagging())
    candidates.update = update  # type: ignore[method-assign]
    answered = threading.Event()
    lab.queue.submit_many_async(
        [
            [op("late", priority=10)],
            *([op(f"job {number}")] for number in range(8)),
            [op("early", priority=-10)],
        ],
        lambda results, error: answered.set(),
    )
    assert hanging.wait(PATIENCE_S)
    lab.queue.submit_async([op("single")], lambda result, error: None)
    until(lambda: "single" in lab.order)
    assert not answered.is_set()
    assert lab.order == ["before", "single"]
    hang.set()
    assert answered.wait(PATIENCE_S)
    until(lambda: len(lab.order) == 12)
    assert lab.order[2] == "early"
    assert lab.order[-1] == "late"
    lab.queue.stop()


def of_majority(tmp_path: Path) -> tuple[Lab, Candidates]:
    """A queue whose master is replaced automatically; all candidates are up to date."""
    lab = Lab(tmp_path / "queue")
    candidates = Candidates()
    lab.queue = lab.new(candidates=replication.Candidates(candidates, majority=lambda: True))
    replicator = lab.queue.replicator
    assert replicator is not None
    lab.queue.start()
    assert lab.wait(lab.queue.submit([op("before")])) == "success"
    until(lambda: not replicator.lagging())
    return lab, candidates


def test_an_opcode_begins_when_a_majority_knows_it(tmp_path: Path) -> None:
    """Another master may be there already, and would run the job again (found by the chaos run)."""
    lab, candidates = of_majority(tmp_path)
    candidates.failing = {"one", "two"}
    answers: list[object] = []
    lab.queue.submit_async([op("single")], lambda result, error: answers.append(error))
    until(lambda: answers)
    assert "not acknowledged" in str(answers[0])
    # It waits in the state in which a successor would find it, if this one can still send it.
    (job,) = [job for job in lab.queue.table.jobs.values() if not job.finalized]
    until(lambda: job.ops[0].state.exec is not None)
    assert lab.order == ["before"]
    candidates.failing = {"two"}
    until(lambda: lab.order == ["before", "single"])
    assert lab.wait(job.id) == "success"
    lab.queue.stop()


@pytest.mark.parametrize(
    ("wanted", "begins"),
    [
        (OpNodeSetParams(node_name="node2", offline=True, comment="wanted"), True),
        (OpNodeSetParams(node_name="node2", drained=True, comment="wanted"), False),
        (OpClusterSetParams(witness="none", comment="wanted"), True),
        (OpClusterSetParams(witness="https://witness/document", comment="wanted"), False),
    ],
)
def test_what_ends_the_wait_for_a_majority_does_not_wait_for_it(
    tmp_path: Path, wanted: OpCode, begins: bool
) -> None:
    """Otherwise nobody could say that both, the other candidate and the witness, are lost."""
    lab, candidates = of_majority(tmp_path)
    candidates.failing = {"one", "two"}
    answers: list[object] = []
    lab.queue.submit_async([wanted], lambda result, error: answers.append(error))
    until(lambda: answers)
    assert "gnt-cluster modify --witness=none" in str(answers[0])
    job = list(lab.queue.table.jobs.values())[-1]
    until(lambda: job.ops[0].state.exec is not None)
    if not begins:
        assert lab.order == ["before"]
        candidates.failing = set()
    until(lambda: lab.order == ["before", "wanted"])
    lab.queue.stop()


def test_a_job_which_waits_for_a_majority_can_be_canceled(tmp_path: Path) -> None:
    lab, candidates = of_majority(tmp_path)
    candidates.failing = {"one", "two"}
    lab.queue.submit_async([op("single")], lambda result, error: None)
    until(lambda: any(not job.finalized for job in lab.queue.table.jobs.values()))
    (job,) = [job for job in lab.queue.table.jobs.values() if not job.finalized]
    until(lambda: job.ops[0].state.exec is not None)
    lab.queue.operations.cancel(job.id)
    until(lambda: job.finalized)
    candidates.failing = set()
    assert lab.wait(job.id) == "canceled"
    assert lab.order == ["before"]
    lab.queue.stop()


def test_the_end_of_a_job_is_shown_when_a_majority_has_it(tmp_path: Path) -> None:
    """A successor would call the job an error (found by the chaos run)."""
    lab, candidates = of_majority(tmp_path)
    gate = lab.gate("slow")
    job_id = lab.queue.submit([op("slow")])
    assert lab.reached["slow"].wait(PATIENCE_S)
    candidates.failing = {"one", "two"}
    gate.set()
    job = lab.queue.table.jobs[job_id]
    until(lambda: job.finalized)
    replicator = lab.queue.replicator
    assert replicator is not None
    until(lambda: len(replicator.lagging()) == 2)
    # More commits which too few candidates have.
    for _ in range(3):
        answers: list[object] = []
        lab.queue.submit_async([op("other")], lambda result, error: answers.append(error))  # noqa: B023
        until(lambda: answers)  # noqa: B023
        assert lab.row(job_id, "status") == ["running"]
    candidates.failing = {"one"}
    assert lab.wait(job_id) == "success"
    lab.queue.stop()
