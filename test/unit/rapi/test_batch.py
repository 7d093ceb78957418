"""Several operations in one request: each as its own request, all checked before one is done."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.http_lab import HttpLab
from fakes.rest_client import Rest, rest_lab
from fakes.rest_master import busy_master
from ganeti import errors
from ganeti.rapi import batch
from ganeti.rapi.application import RestApplication
from ganeti.rapi.identify import Identities
from ganeti.rapi.job_limits import JobLimits
from ganeti.rapi.resources import RESOURCES
from ganeti.rapi.users import Users

USERS = "root pw write\nlook pw read\noper pw @operator\nnone pw\n"
READ = {"id": "read", "method": "GET", "path": "/2/nodes"}
START = {"id": "start", "method": "PUT", "path": "/2/instances/web/startup"}
TAG = {"id": "tag", "method": "PUT", "path": "/2/tags", "query": {"tag": ["a", "b"]}}
RULE = {"id": "rule", "method": "POST", "path": "/2/filters", "body": {"priority": 3}}


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[Rest]:
    with rest_lab(tmp_path, busy_master(), USERS) as one:
        yield one


def run(
    rest: Rest, *operations: Any, check: str | None = None, user: str = "root:pw", query: str = ""
) -> tuple[int, Any]:
    body = {"operations": list(operations)} | ({} if check is None else {"check": check})
    return rest("POST", f"/2/batch{query}", body, user=user)[:2]


def jobs(rest: Rest) -> list[list[dict[str, Any]]]:
    """The jobs that were submitted, in one request."""
    (args,) = [args for method, args in rest.master.asked if method == "SubmitManyJobs"]
    return list(args[0])


def changes(rest: Rest) -> list[str]:
    """Everything that changes something, by its method of the master."""
    return [
        method
        for method, _args in rest.master.asked
        if not method.startswith("Query") and method != "RunQuery"
    ]


def refused(rest: Rest, *operations: Any, user: str = "root:pw") -> tuple[int, str]:
    """The answer to a batch of which nothing is done."""
    status, value = run(rest, *operations, user=user)
    assert changes(rest) == []
    return status, value["reason"]


def test_one_answer_per_operation(rest: Rest) -> None:
    status, found = run(rest, READ, START, RULE, TAG)
    assert status == 200
    assert [(one["id"], one["status"]) for one in found] == [
        ("read", 200),
        ("start", 200),
        ("rule", 200),
        ("tag", 200),
    ]
    assert found[0]["body"] == [{"id": "node1", "uri": "/2/nodes/node1"}]
    assert (found[1]["body"], found[3]["body"]) == (20, 21)
    assert found[2]["body"] == rest.master.answers["ReplaceFilter"]
    # One request for all jobs; changes without a job come after it.
    assert changes(rest) == ["SubmitManyJobs", "ReplaceFilter"]
    (start,), (tag,) = jobs(rest)
    assert start["OP_ID"] == "OP_INSTANCE_STARTUP" and start["instance_name"] == "web"
    assert tag["OP_ID"] == "OP_TAGS_SET" and tag["tags"] == ["a", "b"]


def test_a_job_is_the_same_as_that_of_its_own_request(rest: Rest) -> None:
    op = rest.job("PUT", "/2/instances/web/startup?dry-run=1&reason=monday", {"priority": 10})
    own = {**START, "query": {"dry-run": True, "reason": "monday"}, "body": {"priority": 10}}
    assert run(rest, own)[0] == 200
    ((same,),) = jobs(rest)
    for one in (op, same):
        one["reason"] = [entry[:2] for entry in one["reason"]]
    assert same == op and op["reason"][0] == ["gnt:user", "monday"]


def test_dependencies_count_back_in_the_submission(rest: Rest) -> None:
    middle = {**TAG, "after": ["start"]}
    last = {**START, "id": "last", "after": ["tag", "start", "tag"]}
    assert run(rest, START, READ, middle, RULE, last)[0] == 200
    found = [job[0].get("depends") for job in jobs(rest)]
    assert found == [None, [[-1, []]], [[-1, []], [-2, []]]]


def test_dependencies_of_the_body_stay(rest: Rest) -> None:
    last = {**TAG, "after": ["start"], "body": {"depends": [[7, ["error"]]]}}
    assert run(rest, START, last)[0] == 200
    assert jobs(rest)[1][0]["depends"] == [[7, ["error"]], [-1, []]]


def test_only_the_first_opcode_of_a_job_depends_on_others(rest: Rest) -> None:
    job = {"method": "POST", "path": "/2/instances/web/reinstall", "body": {"os": "noop"}}
    assert run(rest, START, {**job, "after": ["start"]})[0] == 200
    assert [op.get("depends") for op in jobs(rest)[1]] == [[[-1, []]], None, None]


@pytest.mark.parametrize(
    ("operation", "status", "fragment"),
    [
        ({"method": "GET", "path": "/2/nosuch"}, 404, "there is no resource /2/nosuch"),
        ({"method": "GET", "path": "x2/nodes"}, 400, "must begin with '/'"),
        ({"method": "GET", "path": "/2/instances/\u0100"}, 404, "there is no resource /2/inst"),
        ({"method": "GET", "path": "/2/\ud800"}, 400, "the path is not UTF-8"),
        ({"method": "GET", "path": "/2/instances/a%2Fb"}, 404, "no name has a slash"),
        ({"method": "PUT", "path": "/2/nodes"}, 405, "method PUT is unsupported"),
        ({**START, "id": "x", "query": {"dryrun": 1}}, 400, "there is no query argument"),
        ({**START, "id": "x", "query": {"force": [0, 1]}}, 400, "cannot have a list"),
        ({**START, "id": "x", "query": {"force": {}}}, 400, "must be a text, a number"),
        ({**START, "id": "x", "body": {"nosuch": 1}}, 400, "no parameter 'nosuch'"),
        ({**START, "id": "x", "body": {"depends": [[-1, []]]}}, 400, "'depends' in a batch"),
        ({**START, "id": "x", "path": "/2/instances/web/startup?force=1"}, 400, "'query'"),
        ({"method": "GET", "path": "/2/nodes", "body": {}}, 413, "takes no body"),
        ({"method": "GET", "path": "/2/nodes", "after": ["start"]}, 400, "cannot run after"),
        ({**RULE, "after": ["start"]}, 400, "cannot run after others"),
        ({**RULE, "query": {"dry-run": 1}}, 400, "has no dry run"),
        ({"method": "GET", "path": "/2/events"}, 400, "no batch has it"),
        ({"method": "GET", "path": "/2/doc"}, 400, "no batch has it"),
        ({"method": "GET", "path": "/2/jobs/1/wait"}, 400, "no batch has it"),
        ({"method": "POST", "path": "/2/batch", "body": {}}, 400, "part of a batch"),
        ({"method": "PUT", "path": "/2/documents/d", "body": {}}, 428, "if_none_match"),
        ({**START, "id": "x", "if_match": '"old"'}, 412, "the instance has changed"),
        (
            {
                "method": "GET",
                "path": "/2/instances/web/snapshots",
                "after": ["start"],
            },
            400,
            "submits no job",
        ),
    ],
)
def test_a_refused_operation_stops_all(
    rest: Rest, operation: dict[str, Any], status: int, fragment: str
) -> None:
    got, reason = refused(rest, START, operation)
    assert got == status
    assert fragment in reason and reason.endswith("Nothing was changed.")
    assert f"operation '{operation.get('id', '1')}'" in reason


def test_each_operation_needs_its_own_right(rest: Rest) -> None:
    assert refused(rest, READ, START, user="look:pw")[0] == 403
    assert refused(rest, START, TAG, user="oper:pw")[0] == 403
    assert refused(rest, READ, RULE, user="none:pw")[0] == 403
    assert run(rest, START, READ, user="oper:pw")[0] == 200
    assert rest("POST", "/2/batch", {"operations": [READ]}, user=None)[0] == 401
    # The right for the resource itself gives no other one.
    status, found = run(rest, READ, START, check="each", user="none:pw")
    assert status == 200 and [one["status"] for one in found] == [200, 403]


def test_check_each_carries_out_the_others(rest: Rest) -> None:
    wrong = {"id": "wrong", "method": "PUT", "path": "/2/instances/web/nosuch"}
    after = {**TAG, "after": ["wrong"]}
    chain = {**START, "id": "chain", "after": ["tag"]}
    status, found = run(rest, START, wrong, after, chain, RULE, check="each")
    assert status == 200
    assert [one["status"] for one in found] == [200, 404, 424, 424, 200]
    assert found[1]["body"]["reason"].startswith("there is no resource")
    assert found[2]["body"]["reason"] == (
        "operation 'wrong', after which it would run, was refused"
    )
    assert len(jobs(rest)) == 1


def test_the_error_says_how_many_are_refused(rest: Rest) -> None:
    wrong = {"method": "GET", "path": "/2/x"}
    assert refused(rest, wrong, wrong)[1].endswith(". So is one other. Nothing was changed.")
    assert "So are 2 others." in refused(rest, wrong, wrong, wrong)[1]


def test_a_failed_read_stops_all(rest: Rest) -> None:
    """It is carried out before anything is changed, so it can be a condition for the rest."""
    rest.master.answers["QueryNodes"] = errors.OpPrereqError("no node x", errors.ECODE_NOENT)
    assert refused(rest, START, {"method": "GET", "path": "/2/nodes/x"})[0] == 404
    found = run(rest, START, {"method": "GET", "path": "/2/nodes/x"}, check="each")[1]
    assert [one["status"] for one in found] == [200, 404]


@pytest.mark.parametrize(
    ("body", "fragment"),
    [
        ({}, "required parameter 'operations' is missing"),
        ([], "the body must be a JSON object"),
        ({"operations": []}, "the batch has no operations"),
        ({"operations": [3]}, "'operations' must be"),
        ({"operations": [{}] * (batch.MOST_OPERATIONS + 1)}, "'operations' must be"),
        ({"operations": [READ], "check": "none"}, "'check' must be"),
        ({"operations": [READ], "nosuch": 1}, "nosuch"),
        ({"operations": [READ, READ]}, "operation 1: the id 'read' occurs twice"),
        ({"operations": [{"method": "GET"}]}, "operation 0: required parameter 'path'"),
        ({"operations": [{**READ, "method": "HEAD"}]}, "operation 0: parameter 'method'"),
        ({"operations": [{**READ, "afterr": []}]}, "Did you mean 'after'?"),
        ({"operations": [{**READ, "after": ["start"]}, START]}, "no earlier operation 'start'"),
        ({"operations": [{**START, "after": ["start"]}]}, "no earlier operation 'start'"),
        ({"operations": [READ, {**START, "after": ["read"]}]}, "'read' submits no job"),
        ({"operations": [{**READ, "id": "x" * 65}]}, "operation 0: parameter 'id'"),
    ],
)
def test_a_wrong_batch(rest: Rest, body: Any, fragment: str) -> None:
    status, value, _headers = rest("POST", "/2/batch", body)
    assert status == 400 and fragment in value["explain"], value
    assert changes(rest) == []


def test_a_batch_has_a_largest_size(rest: Rest) -> None:
    operation = {**START, "body": {"comment": "x" * batch.MOST_BODY_BYTES}}
    assert run(rest, operation)[0] == 413


def test_the_answers_of_reads_have_a_largest_size(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "MOST_ANSWER_BYTES", 60)
    found = run(rest, READ, {**READ, "id": "more"}, check="each")[1]
    assert [one["status"] for one in found] == [200, 413]
    assert "as a request of its own" in found[1]["body"]["reason"]
    assert refused(rest, READ, {**READ, "id": "more"}, START)[0] == 413


def test_the_reason_of_the_batch_is_that_of_its_jobs(rest: Rest) -> None:
    own = {**TAG, "query": {"tag": "a", "reason": "mine"}}
    assert run(rest, START, own, READ, query="?reason=monday")[0] == 200
    assert [job[0]["reason"][0][1] for job in jobs(rest)] == ["monday", "mine"]
    assert [job[0]["reason"][-1][1] for job in jobs(rest)] == ["root", "root"]


def test_the_queue_refuses_some_jobs(rest: Rest) -> None:
    rest.master.answers["SubmitManyJobs"] = [
        [True, 5],
        [False, "the job queue is full"],
        [False, "x"],
    ]
    last = {**START, "id": "last", "after": ["tag"]}
    found = run(rest, START, TAG, last)[1]
    assert [(one["status"], one["body"]) for one in found[:1]] == [(200, 5)]
    assert (found[1]["status"], found[1]["body"]["reason"]) == (503, "the job queue is full")
    assert found[2]["status"] == 424


def test_no_master_changes_nothing_more(rest: Rest) -> None:
    """The jobs may have been taken, so the client is asked to look; no other change is made."""
    rest.master.answers["SubmitManyJobs"] = errors.ConnectionClosedError("the master has ended")
    status, value = run(rest, START, RULE)
    assert (status, value["reason"]) == (502, "the master has ended")
    assert changes(rest) == ["SubmitManyJobs"]


def test_an_etag_is_in_the_answer(rest: Rest) -> None:
    found = run(rest, {"method": "GET", "path": "/2/documents/d"})[1]
    assert found == [{"id": "0", "status": 200, "body": {}, "etag": '"1"'}]
    change = {"method": "PUT", "path": "/2/documents/d", "body": {}, "if_match": '"1"'}
    assert run(rest, change)[1][0]["body"] == '"2"'
    assert rest.master.asked[-1] == ("ReplaceDocument", ("d", ['"1"'], "{}"))


def test_a_page_of_a_list_has_its_headers(rest: Rest) -> None:
    page = {"method": "GET", "path": "/2/instances", "query": {"limit": 1}}
    found = run(rest, page)[1][0]
    assert found["headers"]["X-Total-Count"] == "1"
    ordered = {**page, "query": {"limit": 1, "sort": "name"}}
    assert run(rest, page, user="none:pw")[0] == 200
    assert run(rest, ordered, user="none:pw")[0] == 403


def test_the_jobs_count_for_the_limits_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "users").write_text(USERS)
    master = busy_master()
    queue: dict[int, str] = {}

    def submit(wanted: list[Any]) -> list[Any]:
        first = len(queue) + 1
        queue.update({first + place: "queued" for place in range(len(wanted))})
        return [[True, first + place] for place in range(len(wanted))]

    master.answers["SubmitManyJobs"] = submit
    master.answers["QueryJobs"] = lambda ids, _fields: [[queue[one]] for one in ids]
    users = Users(str(tmp_path / "users"), {one.handler for one in RESOURCES})
    now = [1000.0]
    limits = JobLimits(master, 3, 0, clock=lambda: now[0])
    lab = HttpLab(lambda: RestApplication(master, Identities([users]), job_limits=limits))
    rest = Rest(lab, master)
    try:
        two = [{**START, "id": str(number)} for number in range(2)]
        assert run(rest, *two)[0] == 200
        status, value = run(rest, *two, RULE)
        assert (status, value["explain"]) == (
            429,
            "user root has 2 unfinished jobs, and this request has 2 more; the limit is 3. Wait"
            " until some of them have ended.",
        )
        assert "ReplaceFilter" not in changes(rest) and len(queue) == 2
        assert run(rest, *two, user="oper:pw")[0] == 200
        queue[1] = "success"
        now[0] += 2
        assert run(rest, *two)[0] == 200
    finally:
        lab.close()


def test_every_operation_is_possible_or_refused_with_a_reason(rest: Rest) -> None:
    """No operation of the interface makes a batch fail as a whole with an internal error."""
    operations = [
        {
            "method": method,
            "path": resource.path.replace("{job_id}", "1")
            .replace("{disk_index}", "0")
            .replace("{resource}", "node")
            .replace("{", "")
            .replace("}", ""),
        }
        for resource in RESOURCES
        for method in resource.operations
    ]
    for operation in operations:
        status, found = run(rest, operation, check="each")
        assert status == 200, (operation, found)
        assert found[0]["status"] < 500, (operation, found)
