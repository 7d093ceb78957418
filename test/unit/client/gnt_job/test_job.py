"""``gnt-job``: a section per command."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from fakes.luxi_master import FakeMaster
from ganeti import errors
from ganeti.cli import terminal

from ..conftest import Gnt

DELAY = {"OP_ID": "OP_TEST_DELAY", "duration": 1.0, "on_nodes": [], "depends": None}

JOB_FIELDS = [
    {"name": name, "title": title, "kind": kind, "doc": name}
    for name, title, kind in (
        ("id", "ID", "number"),
        ("status", "Status", "text"),
        ("summary", "Summary", "other"),
        ("received_ts", "Received", "other"),
        ("opstart", "OpCode_start", "other"),
        ("oplog", "OpCode_log", "other"),
        ("opresult", "OpCode_result", "other"),
        ("archived", "Archived", "bool"),
        ("ops", "OpCodes", "other"),
        ("opstatus", "OpCode_status", "other"),
        ("opexec", "OpCode_exec", "other"),
        ("opend", "OpCode_end", "other"),
        ("start_ts", "Start", "other"),
        ("end_ts", "End", "other"),
    )
]


@pytest.fixture(autouse=True)
def _fields(master: FakeMaster) -> None:
    master.fields["job"] = JOB_FIELDS


# -- list -----------------------------------------------------------------------------------------


def test_list(gnt: Gnt, master: FakeMaster) -> None:
    master.add_job(DELAY)
    master.add_job(DELAY, DELAY)
    master.finish(1)
    assert gnt("job list").out == (
        "ID Status  Summary\n 1 success TEST_DELAY\n 2 queued  TEST_DELAY,TEST_DELAY\n"
    )
    assert master.requests == [("Query", ["job", ["id", "status", "summary"], None])]


@pytest.mark.parametrize(
    ("option", "states"),
    [
        ("--pending", ["canceling", "queued", "waiting"]),
        ("--running", ["running"]),
        ("--error", ["error"]),
        ("--finished", ["canceled", "error", "success"]),
    ],
)
def test_list_by_state(option: str, states: list[str], gnt: Gnt, master: FakeMaster) -> None:
    assert gnt(f"job list {option}").code == 0
    by_state = ["|", *(["==", "status", state] for state in states)]
    assert master.requests[-1][1][2] == by_state
    gnt(f"job list {option} 7")
    assert master.requests[-1][1][2] == ["&", ["|", ["==", "id", 7]], by_state]


def test_list_archived_adds_the_field(gnt: Gnt, master: FakeMaster) -> None:
    master.add_job(DELAY)
    assert gnt("job list --archived").out.splitlines()[0] == "ID Status Summary    Archived"


def test_list_times_and_logs_for_programs(gnt: Gnt, master: FakeMaster) -> None:
    master.logs["OP_TEST_DELAY"] = ["hello"]
    master.add_job(DELAY)
    master.finish(1)
    line = gnt("job list --no-headers --separator=| -o received_ts,opstart,opresult,oplog").out
    assert line == (
        "2026-11-20 22:16:50.684568|2026-11-20 22:16:50.684568|None|"
        "[[1, [1795213010, 684568], 'message', 'hello']]\n"
    )


def test_list_fields(gnt: Gnt) -> None:
    assert gnt("job list-fields --no-headers id").out == "id Number ID id\n"


def test_list_with_a_wrong_id(gnt: Gnt, master: FakeMaster) -> None:
    ended = gnt("job list 1 a,b")
    assert ended.code == 1
    assert "'a,b' is not a job id" in ended.err
    assert master.requests == []


# -- info -----------------------------------------------------------------------------------------


def test_info(gnt: Gnt, master: FakeMaster) -> None:
    master.logs["OP_TEST_DELAY"] = [" - INFO: hello"]
    master.results["OP_TEST_DELAY"] = errors.OpPrereqError("no time", errors.ECODE_INVAL)
    master.add_job({**DELAY, "reason": [["gnt:client:gnt-debug", "delay", 17]]})
    master.finish(1)
    assert gnt("job info 1").code == 0
    ended = gnt("job info 1 9")
    assert ended.code == gnt("job info --output json 1 9").code == 1
    assert (
        ended.out
        == """\
- Job ID: 1
  Status: error
  Received:         2026-11-20 22:16:50.684568
  Processing start: 2026-11-20 22:16:50.684568 (delta 0.000000s)
  Processing end:   2026-11-20 22:16:51.000000 (delta 0.315432s)
  Total processing time: 0.315432 seconds
  Opcodes: \n\
    - Opcode: OP_TEST_DELAY
      Status: error
      Processing start: 2026-11-20 22:16:50.684568
      Execution start:  2026-11-20 22:16:50.684568
      Processing end:   2026-11-20 22:16:50.684568
      Input fields: \n\
        OP_ID: OP_TEST_DELAY
        depends: None
        duration: 1.0
        on_nodes: \n\
        reason: \n\
          - - gnt:client:gnt-debug
            - delay
            - 17
      Result: \n\
        - OpPrereqError
        - - no time
          - wrong_input
      Execution log: \n\
        - Time: 2026-11-20 22:16:50.684568
          Content: [1, message,  - INFO: hello]
- Job ID 9 not found
"""
    )
    assert master.requests[-1][1][2] == ["|", ["==", "id", 1], ["==", "id", 9]]


def test_info_of_a_job_that_has_not_ended(gnt: Gnt, master: FakeMaster) -> None:
    master.add_job(DELAY)
    text = gnt("job info 1").out
    assert "  Processing end:   unknown (None)\n" in text
    assert "  Total processing time: N/A\n" in text
    assert "      Processing end:   N/A\n" in text


def test_info_for_programs(gnt: Gnt, master: FakeMaster) -> None:
    master.add_job(DELAY)
    (job,) = json.loads(gnt("job info --output json 1").out)
    assert (job["id"], job["status"], job["ops"]) == (1, "queued", [DELAY])


# -- watch and wait -------------------------------------------------------------------------------


def test_watch(gnt: Gnt, master: FakeMaster) -> None:
    master.logs["OP_TEST_DELAY"] = ["half", "done"]
    master.add_job(DELAY)
    assert gnt("job watch 1") == (
        0,
        "Output from job 1 follows\n-------------------------\n"
        "Fri Nov 20 22:16:50 2026 half\n"
        "Fri Nov 20 22:16:50 2026 done\n",
        "",
    )


def test_wait_says_nothing(gnt: Gnt, master: FakeMaster) -> None:
    master.logs["OP_TEST_DELAY"] = ["half"]
    master.add_job(DELAY)
    assert gnt("job wait 1") == (0, "", "")


@pytest.mark.parametrize("command", ["watch", "wait"])
def test_a_job_that_fails(command: str, gnt: Gnt, master: FakeMaster) -> None:
    master.results["OP_TEST_DELAY"] = errors.JobCanceled("Job was canceled")
    master.add_job(DELAY)
    ended = gnt(f"job {command} 1")
    assert ended.code == 1
    assert ended.err == "Job 1 failed: Failure: the job was canceled: Job was canceled\n"


def test_several_opcodes_of_which_the_second_fails(gnt: Gnt, master: FakeMaster) -> None:
    calls = iter([None, errors.OpExecError("no")])
    master.results["OP_TEST_DELAY"] = lambda op: next(calls)
    master.add_job(DELAY, DELAY)
    ended = gnt("job wait 1")
    assert ended.code == 1
    assert "partial failure (opcode 2)" in ended.err


@pytest.mark.parametrize("command", ["watch", "wait"])
def test_no_such_job(command: str, gnt: Gnt) -> None:
    ended = gnt(f"job {command} 99")
    assert (ended.code, ended.out) == (1, "")
    assert "job 99 does not exist" in ended.err


def test_a_slow_job_is_reported_once(gnt: Gnt, master: FakeMaster) -> None:
    """Without a terminal there is one notice per state, not one per request."""
    job_id = master.add_job(DELAY)
    master.jobs[job_id].held = "waiting"
    asked = 0
    step = master._do_WaitForJobChange

    def count(*args: Any) -> Any:
        nonlocal asked
        asked += 1
        if asked > 6:
            master.jobs[job_id].held = None
        return step(*args)

    master.answers["WaitForJobChange"] = count
    ended = gnt("job wait 1")
    assert (ended.code, ended.err) == (0, "Job 1 is waiting for locks\n")
    assert asked > 6


# -- cancel and change-priority -------------------------------------------------------------------


def test_cancel(gnt: Gnt, master: FakeMaster) -> None:
    master.add_job(DELAY)
    assert gnt("job cancel 1") == (0, "Job successfully cancelled\n", "")
    assert ("CancelJob", [1, False]) in master.requests
    assert gnt("job cancel 1") == (1, "Job 1 not found in queue\n", "")


class _GoesOn:
    """Make the job of a simulated master run on after it was canceled."""

    def __init__(self, master: FakeMaster, end: str) -> None:
        self._master, self._end = master, end
        self.job_id = master.add_job(DELAY)
        master.jobs[self.job_id].status = "running"
        master.jobs[self.job_id].held = "running"
        master.answers["CancelJob"] = self._cancel

    def _cancel(self, job_id: int, kill: bool) -> list[Any]:
        job = self._master.jobs[job_id]
        if self._end == "canceled":
            job.status = "canceled"
        else:
            self._master._finish(job)
        return [True, "it will be canceled at the next point where it can stop"]


def test_cancel_of_a_job_which_goes_on_reports_its_end(gnt: Gnt, master: FakeMaster) -> None:
    """It said "successfully cancelled", and then the job succeeded."""
    _GoesOn(master, "success")
    ended = gnt("job cancel 1")
    assert ended.code == 1
    assert ended.out.startswith("Job 1 (TEST_DELAY) has begun, so it goes on until it can stop")
    assert "cancelled" not in ended.out
    assert ended.err == (
        "Job 1 was not canceled: it ended with success before it came to a point where it can"
        " stop\n"
    )


def test_cancel_of_a_job_which_fails_meanwhile(gnt: Gnt, master: FakeMaster) -> None:
    master.results["OP_TEST_DELAY"] = errors.OpExecError("the disk is gone")
    _GoesOn(master, "error")
    ended = gnt("job cancel 1")
    assert ended.code == 1
    assert ended.err.startswith("Job 1 failed before it could stop: ")
    assert "the disk is gone" in ended.err


def test_cancel_of_a_running_job_which_stops(gnt: Gnt, master: FakeMaster) -> None:
    _GoesOn(master, "canceled")
    ended = gnt("job cancel 1")
    assert (ended.code, ended.err) == (0, "")
    assert re.search(r"\nJob 1 was canceled after \d+\.\d s\n$", ended.out)


def test_cancel_without_waiting(gnt: Gnt, master: FakeMaster) -> None:
    _GoesOn(master, "success")
    ended = gnt("job cancel --no-wait 1")
    assert ended.code == 0
    assert ended.out.endswith(" 'gnt-job wait 1' shows its end.\n")
    assert "WaitForJobChange" not in master.methods()


def test_kill_needs_to_be_meant(gnt: Gnt, master: FakeMaster) -> None:
    master.add_job(DELAY)
    ended = gnt("job cancel --kill 1")
    assert ended.code == 1
    assert "--yes-do-it" in ended.err
    assert master.requests == []
    assert gnt("job cancel --kill --yes-do-it 1").code == 0
    assert master.requests == [("CancelJob", [1, True])]


@pytest.mark.parametrize(
    "line", ["job cancel", "job cancel --queued 1", "job change-priority --priority=low"]
)
def test_either_ids_or_a_state(line: str, gnt: Gnt, master: FakeMaster) -> None:
    ended = gnt(line)
    assert ended.code == 1
    assert (
        "either job ids, or -F and a filter, or one of --pending, --queued and --waiting"
        in ended.err
    )
    assert master.requests == []


def test_cancel_by_state(gnt: Gnt, master: FakeMaster, monkeypatch: pytest.MonkeyPatch) -> None:
    master.rows["job"] = [{"id": 1, "status": "queued", "summary": ["TEST_DELAY"]}]
    master.add_job(DELAY)
    ended = gnt("job cancel --queued")
    assert ended.code == 1
    assert "1 queued TEST_DELAY" in ended.out
    assert "--force" in ended.err
    monkeypatch.setattr(terminal, "can_ask", lambda: True)
    monkeypatch.setattr(terminal, "confirm", lambda question: False)
    assert gnt("job cancel --queued").code == 13
    assert "CancelJob" not in master.methods()
    assert gnt("job cancel --queued --force").out == "Job successfully cancelled\n"


def test_cancel_by_filter_asks_first(gnt: Gnt, master: FakeMaster) -> None:
    master.rows["job"] = [{"id": 1, "status": "queued", "summary": ["TEST_DELAY"]}]
    master.add_job(DELAY)
    ended = gnt("job cancel -F", 'status == "queued"')
    assert ended.code == 1
    assert "1 queued TEST_DELAY" in ended.out
    assert "--force" in ended.err
    assert "CancelJob" not in master.methods()
    assert ("Query", ["job", ["id"], ["==", "status", "queued"]]) in master.requests
    assert gnt("job cancel --force -F", 'status == "queued"').out == "Job successfully cancelled\n"
    assert ("CancelJob", [1, False]) in master.requests


def test_archive_by_filter(gnt: Gnt, master: FakeMaster) -> None:
    master.rows["job"] = [{"id": 1, "status": "success", "summary": ["TEST_DELAY"]}]
    master.add_job(DELAY)
    master.finish(1)
    assert gnt("job archive -F", 'status == "success"').code == 0
    assert master.requests[-1] == ("ArchiveJob", [1])


def test_cancel_by_state_without_such_jobs(gnt: Gnt, master: FakeMaster) -> None:
    assert gnt("job cancel --waiting") == (0, "No job is in this state\n", "")


def test_change_priority(gnt: Gnt, master: FakeMaster) -> None:
    master.add_job(DELAY)
    assert gnt("job change-priority --priority=high 1 2") == (
        1,
        "Priority of job 1 is now -10\nJob 2 not found in queue\n",
        "",
    )
    assert master.requests == [("ChangeJobPriority", [1, -10]), ("ChangeJobPriority", [2, -10])]
    ended = gnt("job change-priority 1")
    assert ended.code == 1
    assert "no priority is given" in ended.err


# -- archive and autoarchive ----------------------------------------------------------------------


def test_archive(gnt: Gnt, master: FakeMaster) -> None:
    master.add_job(DELAY)
    master.finish(1)
    assert gnt("job archive 1") == (0, "", "")
    ended = gnt("job archive 1 9")
    assert ended.code == 1
    assert "Failed to archive job with ID '9'" in ended.err
    assert [args for _, args in master.requests] == [[1], [1], [9]]


@pytest.mark.parametrize(
    ("age", "seconds"), [("all", -1), ("90", 90), ("1h", 3600), ("4w", 2419200)]
)
def test_auto_archive(age: str, seconds: int, gnt: Gnt, master: FakeMaster) -> None:
    assert gnt(f"job autoarchive {age}") == (0, "Archived 0 jobs, 0 unchecked left\n", "")
    assert master.requests == [("AutoArchiveJobs", [seconds, 89])]


def test_auto_archive_mistakes(gnt: Gnt, master: FakeMaster) -> None:
    assert gnt("job autoarchive").code == 1
    ended = gnt("job autoarchive soon")
    assert ended.code == 1
    assert "'soon' is not a time span" in ended.err
    assert master.requests == []
