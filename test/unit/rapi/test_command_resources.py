"""What the commands on a machine outside of the cluster ask."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.rest_client import Rest, rest_lab
from fakes.rest_master import busy_master
from ganeti import errors

START = {"OP_ID": "OP_INSTANCE_STARTUP", "instance_name": "web1"}
REMOVE = {"OP_ID": "OP_INSTANCE_REMOVE", "instance_name": "web1"}


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[Rest]:
    users = "root pw write\nlook pw read\nolga pw @operator\nnone pw\n"
    with rest_lab(tmp_path, busy_master(), users=users) as one:
        yield one


def test_one_job(rest: Rest) -> None:
    assert rest("POST", "/2/jobs?reason=why", {"ops": [START]}, user="olga:pw")[:2] == (200, 12)
    (op,) = rest.master.ops
    assert (op["OP_ID"], op["instance_name"]) == ("OP_INSTANCE_STARTUP", "web1")
    assert [row[:2] for row in op["reason"]] == [
        ["gnt:user", "why"],
        ["gnt:library:rlib2:jobs", ""],
        ["gnt:person", "olga"],
    ]


def test_nobody_says_who_he_is_in_the_reason(rest: Rest) -> None:
    op = {**START, "reason": [["gnt:client:gnt-instance", "startup", 1], ["gnt:person", "root", 2]]}
    assert rest("POST", "/2/jobs", {"ops": [op]}, user="olga:pw")[0] == 200
    (sent,) = rest.master.ops
    assert [row[:2] for row in sent["reason"]] == [
        ["gnt:client:gnt-instance", "startup"],
        ["gnt:library:rlib2:jobs", ""],
        ["gnt:person", "olga"],
    ]


def test_several_jobs(rest: Rest) -> None:
    status, rows, _headers = rest("POST", "/2/jobs", {"jobs": [[START], [REMOVE]]})
    assert (status, rows) == (200, [[True, 20], [True, 21]])
    assert [name for name, _ in rest.master.asked] == ["SubmitManyJobs"]


def test_nothing_is_submitted_when_one_opcode_is_refused(rest: Rest) -> None:
    status, body, _headers = rest("POST", "/2/jobs", {"jobs": [[START], [REMOVE]]}, user="olga:pw")
    assert status == 403 and "olga may not submit OP_INSTANCE_REMOVE" in body["explain"]
    assert rest("POST", "/2/jobs", {"ops": [START]}, user=None)[0] == 401
    assert rest("POST", "/2/jobs", {"ops": [START]}, user="none:pw")[0] == 403
    assert not rest.master.asked


@pytest.mark.parametrize(
    ("body", "part"),
    [
        ({}, "give 'ops'"),
        ({"ops": [START], "jobs": [[START]]}, "give 'ops'"),
        ({"ops": [{"OP_ID": "OP_NOSUCH"}]}, "there is no opcode 'OP_NOSUCH'"),
        ({"ops": [{"instance_name": "web1"}]}, "must have a key OP_ID"),
        ({"ops": [{**START, "nosuch": 1}]}, "nosuch"),
        ({"ops": [{"OP_ID": "OP_INSTANCE_STARTUP"}]}, "'instance_name' is missing"),
        ({"ops": "x"}, "ops"),
        ({"jobs": [[START]] * 1001}, "1000 jobs"),
    ],
)
def test_wrong_jobs(rest: Rest, body: Any, part: str) -> None:
    status, answer, _headers = rest("POST", "/2/jobs", body)
    assert status == 400 and part in answer["explain"]
    assert not rest.master.asked


def test_a_query_without_a_job(rest: Rest) -> None:
    query = {"OP_ID": "OP_INSTANCE_QUERY_DATA", "instances": ["web1"]}
    status, found, _headers = rest("PUT", "/2/run-query", {"op": query}, user="look:pw")
    assert status == 200 and set(found) == {"result", "warnings"}
    status, body, _headers = rest("PUT", "/2/run-query", {"op": START})
    assert status == 400 and "needs a job" in body["explain"]


def test_objects_by_their_names(rest: Rest) -> None:
    def query(what: str, fields: list[str], qfilter: Any) -> dict[str, Any]:
        assert qfilter == ["|", ["=", "name", "b"], ["=", "name", "a"]]
        return {"fields": ["-"] * len(fields), "data": [[[0, "A"], [0, "a"]], [[0, "B"], [0, "b"]]]}

    rest.master.answers["Query"] = query
    body = {"fields": ["status"], "names": ["b", "a"]}
    status, found, _headers = rest("PUT", "/2/query/instance", body, user="look:pw")
    assert (status, found) == (200, {"fields": ["-"], "data": [[[0, "B"]], [[0, "A"]]]})
    unknown = errors.OpPrereqError("instance 'c' is not in the cluster", errors.ECODE_NOENT)
    rest.master.answers["QueryInstances"] = unknown
    status, body, headers = rest("PUT", "/2/query/instance", {"fields": ["name"], "names": ["c"]})
    assert status == 404 and body["reason"] == str(unknown)
    assert headers["x-ganeti-error"] == "OpPrereqError unknown_entity"
    both = {"fields": ["name"], "names": ["a"], "qfilter": ["=", "name", "a"]}
    assert rest("PUT", "/2/query/instance", both)[0] == 400
    assert rest("PUT", "/2/query/lock", {"fields": ["name"], "names": ["a"]})[0] == 400


def test_rights_of_the_settings(rest: Rest) -> None:
    for method, path, body in (
        ("PUT", "/2/queue/drain", None),
        ("DELETE", "/2/queue/drain", None),
        ("PUT", "/2/watcher/pause", {"until": 5}),
        ("POST", "/2/jobs/archive", {"age": -1}),
        ("POST", "/2/jobs/5/archive", None),
        ("PUT", "/2/jobs/5/priority", 3),
    ):
        assert rest(method, path, body, user="look:pw")[0] == 403, path
        assert rest(method, path, body)[0] == 200, path
    assert rest("PUT", "/2/jobs/5/priority", 20)[0] == 400
    assert rest("PUT", "/2/watcher/pause", {"until": -1})[0] == 400
    assert ("SetWatcherPause", (5,)) in rest.master.asked
    for path in ("/2/config-values?fields=cluster_name", "/2/guests/usage", "/2/watcher/pause"):
        assert rest("GET", path, user="look:pw")[0] == 200, path
        assert rest("GET", path, user="none:pw")[0] == 403, path


def test_the_log_of_a_console(rest: Rest) -> None:
    path = "/2/instances/web1/console-log"
    assert rest("GET", f"{path}?lines=5", user="look:pw")[0] == 200
    assert rest.master.asked[-1] == ("ReadConsoleLog", ("web1", 5, ""))
    assert rest("GET", f"{path}?position=7-1")[0] == 200
    assert rest.master.asked[-1] == ("ReadConsoleLog", ("web1", 100, "7-1"))
    assert rest("GET", f"{path}?lines=-1")[0] == 400


def test_an_error_has_its_class(rest: Rest) -> None:
    for error, header in {
        errors.JobLost("no job 5"): "JobLost",
        errors.JobQueueFull(): "JobQueueFull",
        errors.OpPrereqError("x", errors.ECODE_STATE): "OpPrereqError wrong_state",
        errors.NoMasterError("x"): "LuxiError",
    }.items():
        rest.master.answers["CancelJob"] = error
        assert rest("DELETE", "/2/jobs/5")[2]["x-ganeti-error"] == header
