"""Jobs: states, moves, files as other programs write and read them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti import errors
from ganeti.jqueue import job as jobs
from ganeti.opcodes.test import OpTestDelay

_STATUSES = st.sampled_from(sorted(jobs.LEGAL_MOVES))

# A job file as the original writes it.
FOREIGN = json.dumps(
    {
        "id": 296,
        "ops": [
            {
                "input": {
                    "duration": 1.5,
                    "on_master": True,
                    "on_nodes": [],
                    "depends": [[294, []]],
                    "comment": "c",
                    "priority": 0,
                    "dry_run": None,
                    "debug_level": 0,
                    "reason": [["gnt:client:x", "y", 1795213440185909760]],
                    "OP_ID": "OP_TEST_DELAY",
                },
                "status": "success",
                "result": None,
                "priority": -10,
                "log": [
                    [1, [1795213515, 20164], "message", "* one"],
                    [2, [1795213515, 24164], "message", "* two"],
                ],
                "start_timestamp": [1795213514, 758174],
                "exec_timestamp": [1795213514, 905434],
                "end_timestamp": [1795213515, 37008],
            }
        ],
        "start_timestamp": [1795213514, 758174],
        "end_timestamp": [1795213515, 37017],
        "received_timestamp": [1795213513, 660939],
        "livelock": "/run/livelocks/job_296",
        "process_id": 29479,
    }
)


def new_job(count: int = 1) -> jobs.QueuedJob:
    ops = [jobs.QueuedOpCode.from_opcode(OpTestDelay(duration=1.0)) for _ in range(count)]
    return jobs.QueuedJob(1, ops, (5, 6))


@pytest.mark.parametrize(
    ("statuses", "wanted"),
    [
        ([], "success"),
        (["queued", "queued"], "queued"),
        (["success", "queued"], "queued"),
        (["success", "success"], "success"),
        (["waiting", "queued"], "waiting"),
        (["running", "queued"], "running"),
        (["success", "running"], "running"),
        (["error", "running"], "error"),
        (["running", "error"], "error"),
        (["success", "canceling", "queued"], "canceling"),
        (["success", "canceled", "canceled"], "canceled"),
        (["canceled", "error"], "canceled"),
    ],
)
def test_state_of_a_job_from_those_of_its_opcodes(statuses: list[str], wanted: str) -> None:
    assert jobs.status_of(statuses) == wanted


@given(st.lists(_STATUSES, min_size=1))
def test_a_job_has_ended_only_when_nothing_runs(statuses: list[str]) -> None:
    status = jobs.status_of(statuses)
    if status == "success":
        assert set(statuses) == {"success"}
    if set(statuses) <= jobs.FINALIZED:
        assert status in jobs.FINALIZED


@given(_STATUSES, _STATUSES)
def test_only_legal_moves(before: str, after: str) -> None:
    op = jobs.QueuedOpCode({"OP_ID": "OP_TEST_DELAY"})
    op.state = op.state._replace(status=before)
    if after in jobs.LEGAL_MOVES[before]:
        op.move(after)
        assert op.state.status == after
    else:
        with pytest.raises(errors.ProgrammerError, match=f"from {before} to {after}"):
            op.move(after)
        assert op.state.status == before


def test_final_states_are_final() -> None:
    for status in jobs.FINALIZED:
        assert jobs.LEGAL_MOVES[status] == frozenset()


def test_a_snapshot_does_not_change_with_the_job() -> None:
    job = new_job()
    job.add_log(job.ops[0], "message", "one", (1, 1))
    snapshot = job.snapshot()
    job.ops[0].move("waiting", start=(7, 8))
    job.add_log(job.ops[0], "message", "two", (1, 2))
    written = json.loads(jobs.encode(snapshot))
    assert written["ops"][0]["status"] == "queued"
    assert [entry[3] for entry in written["ops"][0]["log"]] == ["one"]
    assert job.values(["status"]) == ["queued"], "not committed, not published"
    job.publish(job.snapshot())
    assert job.values(["status"]) == ["waiting"]


def test_the_file_has_the_published_keys() -> None:
    job = new_job()
    written = json.loads(jobs.encode(job.snapshot()))
    assert set(written) == {"id", "ops", "start_timestamp", "end_timestamp", "received_timestamp"}
    assert set(written["ops"][0]) == {
        "input",
        "status",
        "result",
        "log",
        "start_timestamp",
        "exec_timestamp",
        "end_timestamp",
        "priority",
    }
    assert written["ops"][0]["input"]["OP_ID"] == "OP_TEST_DELAY"
    assert written["received_timestamp"] == [5, 6]
    job.state = jobs.JobState((1, 2), (3, 4), "/x", 17)
    written = json.loads(jobs.encode(job.snapshot()))
    assert (written["livelock"], written["process_id"]) == ("/x", 17)


def test_a_foreign_file_reads_and_writes_the_same() -> None:
    job = jobs.decode(FOREIGN)
    assert json.loads(jobs.encode(job.snapshot())) == json.loads(FOREIGN)
    assert job.next_log_serial == 3
    assert job.values(["id", "status", "priority", "oppriority", "end_ts", "nosuch"]) == [
        296,
        "success",
        0,
        [-10],
        (1795213515, 37017),
        None,
    ]


_RESULTS = (
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text() | st.lists(st.text())
)


@given(st.lists(st.tuples(_STATUSES, _RESULTS, st.lists(st.text(), max_size=3)), max_size=3))
def test_any_job_survives_its_file(ops: list[tuple[str, object, list[str]]]) -> None:
    job = new_job(len(ops))
    for op, (status, result, log) in zip(job.ops, ops, strict=True):
        op.state = op.state._replace(status=status, result=result, start=(1, 2))
        for line in log:
            job.add_log(op, "message", line, (3, 4))
    again = jobs.decode(jobs.encode(job.snapshot()))
    assert [op.state for op in again.ops] == [op.state for op in job.ops]
    assert [op.log for op in again.ops] == [op.log for op in job.ops]
    assert [op.input for op in again.ops] == [op.input for op in job.ops]
    assert again.next_log_serial == job.next_log_serial


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "null",
        '{"id": 1, "ops": 5}',
        '{"id": 1, "ops": [5]}',
        FOREIGN.replace('"success"', '"paused"'),
        FOREIGN.replace('"id": 296', '"id": "x"'),
        FOREIGN.replace("[1795213515, 37008]", "[1795213515]"),
        FOREIGN[:-20],
    ],
)
def test_a_corrupted_file_is_named_so(text: str) -> None:
    with pytest.raises(errors.JobFileCorrupted):
        jobs.decode(text)


def test_log_after_a_serial() -> None:
    job = new_job(2)
    for index, text in enumerate(("a", "b", "c")):
        job.add_log(job.ops[index % 2], "message", text, (1, 1))
    assert [entry[0] for entry in job.log_after(None)] == [1, 3, 2]
    assert [entry[3] for entry in job.log_after(1)] == ["c", "b"]
    assert job.log_after(3) == []


def test_secrets_are_not_written_and_missed_after_a_restart() -> None:
    from ganeti.opcodes.instance import OpInstanceReinstall

    op = OpInstanceReinstall(
        instance_name="web",
        osparams_secret={"password": "hunter2"},
        osparams_private={"key": "inside"},
    )
    queued = jobs.QueuedOpCode.from_opcode(op)
    job = jobs.QueuedJob(1, [queued], (1, 1))
    text = jobs.encode(job.snapshot())
    assert "hunter2" not in text
    assert "inside" in text, "private values are needed after a restart"
    assert queued.opcode() is op
    shown = json.dumps(job.values(["ops"]))
    assert "hunter2" not in shown and "inside" not in shown
    with pytest.raises(errors.OpPrereqError, match="osparams_secret are kept in memory only"):
        jobs.decode(text).ops[0].opcode()


def test_an_opcode_read_from_a_file_is_validated() -> None:
    job = jobs.decode(FOREIGN.replace('"duration": 1.5', '"duration": "long"'))
    with pytest.raises(errors.OpPrereqError, match="'duration' must be"):
        job.ops[0].opcode()


def test_unknown_opcodes_of_old_files_still_have_a_summary() -> None:
    job = jobs.decode(FOREIGN.replace("OP_TEST_DELAY", "OP_GONE"))
    assert job.values(["summary"]) == [["GONE"]]
    assert job.values(["ops"])[0][0]["OP_ID"] == "OP_GONE"
    with pytest.raises(errors.OpCodeUnknown):
        job.ops[0].opcode()


def test_ended_rest_says_why() -> None:
    job = new_job(3)
    job.ops[0].move("waiting")
    job.ops[0].move("running")
    job.ops[0].move("success", result=1)
    job.end_rest("error", errors.OpExecError("because"), (9, 9))
    assert job.status == "error"
    assert [op.state.result for op in job.ops] == [
        1,
        ["OpExecError", ["because"]],
        ["OpExecError", ["because"]],
    ]
