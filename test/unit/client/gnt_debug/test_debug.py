"""``gnt-debug``."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from fakes.luxi_master import FakeMaster
from ganeti.cli import terminal

from ..conftest import Gnt


def test_delay(gnt: Gnt, master: FakeMaster) -> None:
    assert gnt("debug delay 0.5") == (0, "", "")
    sent = master.opcode()
    wanted = {
        "OP_ID": "OP_TEST_DELAY",
        "duration": 0.5,
        "on_master": True,
        "on_nodes": [],
        "on_node_uuids": None,
        "repeat": 0,
        "interruptible": False,
        "no_locks": False,
        "dry_run": False,
    }
    assert {name: sent[name] for name in wanted} == wanted


def test_delay_options(gnt: Gnt, master: FakeMaster) -> None:
    assert gnt("debug delay -i -l --no-master -n node1 -n node2 -r 3 --dry-run 1").code == 0
    sent = master.opcode()
    wanted = {
        "on_master": False,
        "on_nodes": ["node1", "node2"],
        "repeat": 3,
        "interruptible": True,
        "no_locks": True,
        "dry_run": True,
    }
    assert {name: sent[name] for name in wanted} == wanted


def test_delay_mistakes(gnt: Gnt, master: FakeMaster) -> None:
    ended = gnt("debug delay soon")
    assert ended.code == 1
    assert "duration: 'soon' is not a number" in ended.err
    assert gnt("debug delay --on-node=x 1").code == 2
    assert master.requests == []
    # What is wrong beyond the form is for the master to say.
    gnt("debug delay -- -1")
    assert master.opcode()["duration"] == -1.0


def test_locks_by_name_on_a_terminal(
    gnt: Gnt, master: FakeMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    uuid, gone = "a5552c57-9ff3-48d7-9ba3-c2a17a18abd9", "cbe02c55-a92b-4485-b964-9af8921b0f37"
    master.fields["lock"] = [{"name": "name", "title": "Name", "kind": "other", "doc": "name"}]
    master.fields["node"] = [
        {"name": name, "title": name, "kind": "text", "doc": name} for name in ("uuid", "name")
    ]
    master.rows["node"] = [{"uuid": uuid, "name": "node1.example.com"}]
    master.rows["lock"] = [
        {"name": name}
        for name in (
            "cluster/BGL",
            "node/[lockset]",
            f"node/{uuid}",
            f"node-res/{uuid}",
            f"node/{gone}",
        )
    ]
    published = [
        "cluster/BGL",
        "node/[lockset]",
        f"node/{uuid}",
        f"node-res/{uuid}",
        f"node/{gone}",
    ]
    assert gnt("debug locks --no-headers -o name").out.splitlines() == published
    monkeypatch.setattr(terminal, "is_terminal", lambda stream: True)
    monkeypatch.setenv("NO_COLOR", "1")
    assert gnt("debug locks --no-headers -o name").out.splitlines() == [
        "cluster/BGL",
        "node/[lockset]",
        "node/node1.example.com",
        "node-res/node1.example.com",
        f"node/{gone}",
    ]
    assert gnt("debug locks --no-headers --separator=, -o name").out.splitlines() == published


LOCK_FIELDS = [
    {"name": name, "title": name.capitalize(), "kind": "other", "doc": name}
    for name in ("name", "mode", "owner", "pending")
]


@pytest.mark.parametrize("interval", ["-1", "-30"])
def test_an_interval_is_not_negative(gnt: Gnt, interval: str) -> None:
    ended = gnt(f"debug locks --interval={interval}")
    assert ended.code == 1
    assert f"interval must be 0 or more seconds, not {interval}" in ended.err


def test_an_interrupt_ends_the_view_of_locks(
    gnt: Gnt, master: FakeMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", sleep)
    master.fields["lock"], master.rows["lock"] = LOCK_FIELDS, []
    ended = gnt("debug locks --no-headers --interval=7")
    assert (ended.code, ended.err, pauses) == (0, "", [7, 7, 7])


def test_a_column_which_does_not_exist(gnt: Gnt, master: FakeMaster) -> None:
    master.fields["lock"], master.rows["lock"] = LOCK_FIELDS, []
    ended = gnt("debug locks --interval=7 -o nosuch")
    assert ended.code == 14
    assert "unknown fields nosuch. Known are mode, name, owner, pending." in ended.err


def test_locks(gnt: Gnt, master: FakeMaster) -> None:
    master.fields["lock"] = LOCK_FIELDS
    master.rows["lock"] = [
        {"name": "cluster/BGL", "mode": "shared", "owner": [["1", "x"][0], "2"], "pending": []},
        {"name": "node/a", "mode": "exclusive", "owner": ["1"], "pending": [["exclusive", ["2"]]]},
        {"name": "node/[lockset]", "mode": None, "owner": None, "pending": None},
    ]
    master.statuses[("node/[lockset]", "mode")] = 3
    assert gnt("debug locks").out == (
        "Name           Mode      Owner Pending\n"
        "cluster/BGL    shared    1,2   -\n"
        "node/a         exclusive 1     exclusive:2\n"
        "node/[lockset] -         -     -\n"
    )


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    path = tmp_path / "job.json"
    path.write_text(json.dumps([{"OP_ID": "OP_TEST_DELAY", "duration": 1.0}]), encoding="utf-8")
    return path


def test_submit_job(gnt: Gnt, master: FakeMaster, job_file: Path) -> None:
    ended = gnt(f"debug submit-job {job_file}")
    assert ended == (0, f"Waiting for job 1 for file {job_file}/0 ...\n", "")
    assert master.opcode()["duration"] == 1.0
    assert master.opcode()["reason"][0][:2] == ["gnt:client:gnt-debug", "submit-job"]


def test_submit_job_repeated(gnt: Gnt, master: FakeMaster, job_file: Path) -> None:
    ended = gnt(f"debug submit-job -v --job-repeat 2 --op-repeat 3 --timing-stats {job_file}")
    assert ended.code == 0
    assert [len(job.ops) for job in master.jobs.values()] == [3, 3]
    assert "Submitted jobs 1, 2\n" in ended.out
    assert "C:op      6\nC:job     2\n" in ended.out
    assert "T:total" in ended.out


def test_submit_job_each(gnt: Gnt, master: FakeMaster, job_file: Path) -> None:
    assert gnt(f"debug submit-job --each --op-repeat 2 {job_file}").code == 0
    assert [len(job.ops) for job in master.jobs.values()] == [1, 1]


def test_submit_job_from_standard_input(
    gnt: Gnt, master: FakeMaster, job_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(job_file.read_text(encoding="utf-8")))
    assert gnt("debug submit-job -").code == 0
    assert len(master.jobs) == 1


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("{", "invalid JSON"),
        ("{}", "does not contain a list of opcodes"),
        ('[{"OP_ID": "OP_NOSUCH"}]', "OP_NOSUCH"),
        ('[{"duration": 1}]', "OP_ID"),
        ('[{"OP_ID": "OP_TEST_DELAY", "nosuch": 1}]', "nosuch"),
        (None, "No such file"),
    ],
)
def test_submit_job_mistakes(
    content: str | None, text: str, gnt: Gnt, master: FakeMaster, tmp_path: Path
) -> None:
    path = tmp_path / "bad.json"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    ended = gnt(f"debug submit-job {path}")
    assert ended.code == 1
    assert text in ended.err
    assert master.jobs == {}


def test_a_job_that_fails(gnt: Gnt, master: FakeMaster, job_file: Path) -> None:
    def fail(op: dict[str, Any]) -> Any:
        from ganeti import errors

        return errors.OpExecError("broken")

    master.results["OP_TEST_DELAY"] = fail
    ended = gnt(f"debug submit-job {job_file}")
    assert ended.code == 1
    assert "has failed: Failure: command execution error:\nbroken" in ended.err


def test_some_locks(gnt: Gnt, master: FakeMaster) -> None:
    """A slash belongs to the name of a lock; only -F makes an expression of it."""
    master.fields["lock"] = [{"name": "name", "title": "Name", "kind": "other", "doc": "name"}]
    gnt("debug locks -o name cluster/BGL")
    assert master.requests[-1][1][2] == ["|", ["==", "name", "cluster/BGL"]]
    gnt("debug locks -o name -F", 'name =~ "/node/"'.replace('"', ""))
    assert master.requests[-1][1][2] == ["=~", "name", "node"]
