"""The copies of the job queue are compared while the queue changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fakes.config import cluster_of
from fakes.master import Master
from ganeti import errors
from ganeti.cmdlib.ops.verify import queue
from ganeti.jobstore import inventory
from ganeti.opcodes.cluster import OpClusterRedistConf, OpClusterVerifyConfig, OpClusterVerifyGroup

NODE1, NODE2, NODE3 = (f"node{number}.example.com" for number in (1, 2, 3))


class Copies:
    """A queue directory for each node; ``after_look`` lets things change meanwhile."""

    def __init__(self, top: Path, nodes: tuple[str, ...]) -> None:
        self.top = top
        self.looks = 0
        self.after_look: dict[int, tuple[str, str, str]] = {}
        for node in nodes:
            for name, text in (
                ("serial", "2\n"),
                ("version", "1\n"),
                ("job-1", "{}"),
                ("job-2", "{2}"),
                ("archive/0/job-0", "{0}"),
            ):
                self.put(node, name, text)

    def put(self, node: str, name: str, text: str) -> None:
        path = self.top / node / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def answer(self, node: str, args: dict[str, Any]) -> dict[str, Any]:
        found = inventory.take(str(self.top / node), args["parts"]).to_wire()
        if node == NODE3:
            self.looks += 1
            if self.looks in self.after_look:
                self.put(*self.after_look[self.looks])
        return found


@pytest.fixture
def copies(tmp_path: Path) -> Copies:
    return Copies(tmp_path, (NODE1, NODE2, NODE3))


@pytest.fixture
def master(copies: Copies, monkeypatch: pytest.MonkeyPatch) -> Master:
    made = Master(cluster_of(3))
    made.rpc.answers["jobqueue_inventory"] = copies.answer
    monkeypatch.setattr(queue.compare_copies, "__defaults__", (lambda _seconds: None,))
    return made


def findings(master: Master) -> list[str]:
    master.run(OpClusterVerifyGroup(group_name="default", error_codes=True))
    return [line.strip()[2:] for line in master.job.log if "job queue" in line and "- " in line]


def test_equal_copies(master: Master, copies: Copies) -> None:
    assert findings(master) == []
    assert copies.looks == 1, "one look is enough"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("job-1", "{other}"),
        ("serial", "1\n"),
        ("drain", ""),
        ("archive/0/job-0", "{longer}"),
    ],
)
def test_a_copy_that_differs(master: Master, copies: Copies, name: str, text: str) -> None:
    copies.put(NODE2, name, text)
    assert findings(master) == [
        f"ERROR:ENODEFILECHECK:node:{NODE2}:its copy of the job queue differs in {name}."
        " Use 'gnt-cluster redist-conf' to update it"
    ]


def test_missing_jobs_are_counted(master: Master, copies: Copies) -> None:
    for number in range(10, 30):
        copies.put(NODE1, f"job-{number}", "{}")
        copies.put(NODE2, f"job-{number}", "{}")
    (copies.top / NODE3 / "archive/0/job-0").unlink()
    (line,) = findings(master)
    assert NODE3 in line
    assert "differs in archive/0/job-0, job-10, job-11, job-12, job-13 and 16 more." in line


def test_more_in_the_archive_than_the_master_has(master: Master, copies: Copies) -> None:
    copies.put(NODE2, "archive/0/job-3", "{}")
    copies.put(NODE2, "archive/5/job-50001", "{}")
    assert findings(master) == []


def test_what_changes_meanwhile_is_not_wrong(master: Master, copies: Copies) -> None:
    copies.put(NODE1, "job-2", "{newer}")
    copies.after_look = {1: (NODE2, "job-2", "{newer}"), 2: (NODE3, "job-2", "{newer}")}
    assert findings(master) == []
    assert copies.looks == 3
    # A copy that is always a step behind.
    copies.looks = 0
    copies.put(NODE1, "job-2", "{fourth}")
    copies.after_look = {
        1: (NODE2, "job-2", "{second}"),
        2: (NODE2, "job-2", "{third}"),
        3: (NODE3, "job-2", "{fourth}"),
    }
    assert findings(master) == []


def test_a_node_that_cannot_tell(master: Master) -> None:
    master.rpc.errors["jobqueue_inventory", NODE3] = "cannot read the job queue"
    (line,) = findings(master)
    assert line == (
        f"ERROR:ENODEFILECHECK:node:{NODE3}:did not report the content of its job queue:"
        " cannot read the job queue"
    )
    master.rpc.errors = {
        ("jobqueue_inventory", NODE3): errors.NodeUnreachable(
            NODE3, "jobqueue_inventory", "no route"
        )
    }
    (line,) = findings(master)
    assert "no route" in line


def test_a_job_which_the_master_has_lost(master: Master, copies: Copies) -> None:
    """The copy is right, and the master's queue is wrong."""
    copies.put(NODE2, "job-7", "{}")
    assert findings(master) == [
        f"ERROR:ENODEFILECHECK:node:{NODE1}:its job queue lacks job-7, of which {NODE2} has copies."
        " Use 'gnt-cluster redist-conf' to fetch them"
    ]


class Lossy:
    """A queue that could not read two jobs, and finds another file damaged now."""

    def compare_copies(self) -> None:
        """Do nothing: no candidate has a copy."""

    def repair_files(self) -> dict[int, str]:
        return {5: "invalid JSON"}

    def lost_jobs(self) -> dict[int, str]:
        return {7: "invalid JSON", 3: "its file was damaged"}


def test_lost_jobs_are_named(master: Master) -> None:
    master.context.job_files = Lossy()
    master.run(OpClusterVerifyConfig(error_codes=True))
    lines = [line for line in master.job.log if ":node:" in line]
    assert [line.split(":node:")[0].strip() for line in lines] == ["- ERROR:ENODEFILECHECK"] * 3
    assert "the file of job 5 was damaged (invalid JSON), and has been" in lines.pop(0)
    assert "job 3 is lost: its file was damaged." in lines[0] and "damaged/job-3." in lines[0]
    assert "job 7 is lost: invalid JSON." in lines[1]


def test_redistribution_has_the_copies_compared(master: Master) -> None:
    class Files(Lossy):
        compared = 0

        def compare_copies(self) -> None:
            self.compared += 1

    files = master.context.job_files = Files()
    master.run(OpClusterRedistConf())
    assert files.compared == 1
