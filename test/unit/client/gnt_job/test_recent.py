"""``gnt-job list`` for people, and the jobs of an object."""

from __future__ import annotations

import types
from typing import Any

import pytest

from fakes.luxi_master import FakeJob, FakeMaster
from ganeti import errors, opcodes
from ganeti.cli import terminal
from ganeti.client.gnt_job import recent
from ganeti.opcodes import base
from ganeti.wire import errors as wire_errors

from ..conftest import Gnt, fields_of
from .test_job import JOB_FIELDS

NOW = FakeMaster.STAMP[0] + 90
UUID = "4b9cdc1c-ece7-49ba-8864-7ad984b54bff"
START = {"OP_ID": "OP_INSTANCE_STARTUP", "instance_name": "web1.example.com"}
VERIFY = {"OP_ID": "OP_CLUSTER_VERIFY_GROUP", "group_name": UUID}
TRAIL = [["gnt:user", "because", 1], ["gnt:client:gnt-instance", "startup", 2]]
BY_ALICE = [*TRAIL, ["gnt:person", "alice", 2]]


def summary(job: FakeJob) -> list[str]:
    """Return what a real master has as the summary."""
    return [opcodes.lookup(op["OP_ID"])(**_known(op)).summary() for op in job.ops]


def _known(op: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in op.items() if key not in ("OP_ID", "reason")}


@pytest.fixture(autouse=True)
def _master(master: FakeMaster, monkeypatch: pytest.MonkeyPatch) -> None:
    master.fields["job"] = JOB_FIELDS
    for kind in ("group", "node", "instance", "network"):
        master.fields[kind] = [*fields_of(kind), {"name": "uuid", "title": "UUID", "kind": "text"}]
    master.rows["group"] = [{"name": "default", "uuid": UUID}]
    monkeypatch.setattr(FakeJob, "summary", property(summary))


@pytest.fixture
def people(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "is_terminal", lambda stream: True)
    monkeypatch.setattr(terminal, "width", lambda stream, otherwise=80: 80)
    monkeypatch.setattr(recent, "time", types.SimpleNamespace(time=lambda: float(NOW)))
    monkeypatch.setenv("NO_COLOR", "1")


def ended(master: FakeMaster, *ops: dict[str, Any]) -> int:
    job_id: int = master.add_job(*ops)
    master.finish(job_id)
    return job_id


@pytest.mark.usefixtures("people")
def test_a_job_in_words_with_its_error_below(gnt: Gnt, master: FakeMaster) -> None:
    ended(master, {**START, "reason": TRAIL})
    master.results["OP_INSTANCE_SHUTDOWN"] = errors.OpPrereqError(
        "OP_INSTANCE_SHUTDOWN: the node does not answer. " + "Look at it. " * 20,
        errors.ECODE_STATE,
    )
    ended(master, {"OP_ID": "OP_INSTANCE_SHUTDOWN", "instance_name": "web2"})
    ended(master, VERIFY)
    ended(master, {"OP_ID": "OP_TAGS_SET", "kind": "instance", "name": "web1", "tags": ["a"]})
    assert gnt("job list").out == (
        "ID  Age  Took Status  What                              Author\n"
        " 1 90 s 0.3 s success instance startup web1.example.com gnt-instance\n"
        " 2 90 s 0.3 s error   instance shutdown web2            \n"
        "    Error: the node does not answer. Look at it. Look at it. Look at it. Look at\n"
        "    it. Look at it. Look at it. Look at it. Look at it. Look at it. Look at ...\n"
        " 4 90 s 0.3 s success add-tags instance web1            \n"
        "Not shown: 1 job which only read (--all shows them)\n"
    )


@pytest.mark.usefixtures("people")
def test_the_last_jobs_the_newest_last(gnt: Gnt, master: FakeMaster) -> None:
    for _ in range(23):
        ended(master, START)
    master.jobs[2].status = "running"
    ended(master, VERIFY)
    ended(master, VERIFY)
    lines = gnt("job list").out.splitlines()
    assert [line.split()[0] for line in lines[1:-1]] == [str(one) for one in (2, *range(4, 24))]
    assert lines[-1] == ("Not shown: 2 older jobs and 2 jobs which only read (--all shows them)")
    lines = gnt("job list --all").out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == [str(one) for one in range(1, 26)]
    # The name of the group, not its UUID.
    assert "cluster verify group default" in lines[-1]
    assert UUID not in gnt("job list --all").out


@pytest.mark.usefixtures("people")
def test_jobs_by_number_or_state_are_all_listed(gnt: Gnt, master: FakeMaster) -> None:
    master.add_job(VERIFY)
    for arguments in ("1", "--running", "-F 'id == 1'"):
        assert "cluster verify group default" in gnt(f"job list {arguments}").out


def test_jobs_of_an_object(gnt: Gnt, master: FakeMaster) -> None:
    ended(master, START)
    ended(master, {"OP_ID": "OP_INSTANCE_SHUTDOWN", "instance_name": "web1"})
    ended(master, {"OP_ID": "OP_INSTANCE_SHUTDOWN", "instance_name": "web11"})
    ended(master, {"OP_ID": "OP_NODE_EVACUATE", "node_name": "node1", "mode": "all"})
    ended(master, {"OP_ID": "OP_INSTANCE_MIGRATE", "instance_name": "db", "target_node": "node1"})
    expected = {"web1": "1 2", "web1.example.com": "1 2", "node1": "4 5", "3 web1": "1 2 3"}
    for name, numbers in expected.items():
        lines = gnt(f"job list --no-headers -o id {name}").out.split()
        assert lines == numbers.split(), name
    missing = gnt("job list web9")
    assert missing.code == 1
    assert "no job in the queue works on 'web9'" in missing.err
    # The mode of an evacuation is no name.
    assert gnt("job list all").code == 1


@pytest.mark.usefixtures("people")
def test_the_person_who_submitted_a_job(gnt: Gnt, master: FakeMaster) -> None:
    ended(master, {**START, "reason": BY_ALICE})
    assert gnt("job list").out.splitlines()[1].endswith(" alice (gnt-instance)")
    assert "  Submitted by: alice (gnt-instance)\n" in gnt("job info 1").out


@pytest.mark.usefixtures("people")
def test_a_list_fits_80_columns(gnt: Gnt, master: FakeMaster) -> None:
    name = f"{'a' * 60}.example.com"
    ended(master, {**START, "instance_name": name, "reason": TRAIL})
    line = gnt("job list").out.splitlines()[1]
    assert len(line) == 80
    assert line.endswith("... gnt-instance")


def test_the_list_for_programs_has_all_jobs(gnt: Gnt, master: FakeMaster) -> None:
    ended(master, VERIFY)
    assert gnt("job list").out.splitlines() == [
        "ID Status  Summary",
        f" 1 success CLUSTER_VERIFY_GROUP({UUID})",
    ]


def test_what_only_reads() -> None:
    queries = {name for name in opcodes.op_ids() if opcodes.lookup(name).KIND == base.QUERY}
    checks = {
        "OP_CLUSTER_VERIFY",
        "OP_CLUSTER_VERIFY_CONFIG",
        "OP_CLUSTER_VERIFY_DISKS",
        "OP_CLUSTER_VERIFY_GROUP",
        "OP_GROUP_VERIFY_DISKS",
        "OP_BACKUP_PREPARE",
        "OP_INSTANCE_CONSOLE",
        "OP_INSTANCE_SNAPSHOT_LIST",
    }
    assert {f"OP_{name}" for name in recent.READING} == queries | checks


@pytest.mark.parametrize("junk", [None, 5, "x", {}, [5], [[]], [["gnt:client:x", "y"]]])
def test_a_trail_of_another_program(junk: Any, gnt: Gnt, people: None, master: FakeMaster) -> None:
    ended(master, {**START, "reason": junk})
    assert gnt("job list").code == 0


def test_an_unknown_error_and_other_shapes() -> None:
    response = {
        "fields": [{"name": name} for name in recent.FIELDS],
        "data": [
            [[0, one] for one in (7, None, None, None, "error", None, None, None)],
            [[0, one] for one in (8, [5, 0], [5, 0], None, "error", ["X(y)"], ["z"], ["text"])],
            [
                [0, one]
                for one in (9, [5, 0], None, None, "error", [], [], [wire_errors.encode(OSError())])
            ],
        ],
    }
    found = recent.adapt(response, {}, 6.0)
    assert [row[4][1] for row in found["data"]] == ["", "x y", ""]
    assert len(found["notes"]) == 3
