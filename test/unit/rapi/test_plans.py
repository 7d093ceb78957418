"""The plan of an operation over REST, instead of the operation."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from fakes.rest_client import Rest, rest_lab
from fakes.rest_master import FakeMaster
from ganeti import errors
from ganeti.luxi import protocol as wire
from ganeti.rapi import client, declare, openapi, plans
from ganeti.rapi.resources import RESOURCES

PLAN = {
    "summary": "INSTANCE_STARTUP(web1)",
    "asked": {"instance_name": "web1"},
    "locks": [{"level": "node", "name": None, "shared": True, "new": False}],
    "checks": ["node node1 is online"],
    "nodes": ["node1"],
    "hooks": [{"name": "instance-start-pre", "phase": "pre", "nodes": ["node1"]}],
    "decided": [],
    "steps": ["start it on node1"],
}
REFUSED = ["OpPrereqError", ["node node1 is offline", "wrong_state"]]
STARTUP = "/2/instances/web1/startup?plan=1"


class PlanningMaster(FakeMaster):
    """Answers for a dry run which ends as a test wants.

    :ivar changes: the answers to the questions for changes of the job.
    """

    def __init__(self) -> None:
        super().__init__()
        self.row: list[Any] = ["success", [PLAN], ["success"]]
        self.changes: list[Any] = [[["queued"], []], [["running"], [[3, [0, 0], "message", "x"]]]]
        self.answers["QueryJobs"] = lambda _ids, _fields: [self.row]
        self.answers["WaitForJobChange"] = lambda *_args: (
            self.changes.pop(0) if self.changes else [["success"], []]
        )


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[Rest]:
    users = "root pw write\nlook pw read\n"
    with rest_lab(tmp_path, PlanningMaster(), users) as made:
        yield made


def _submitted(rest: Rest) -> list[dict[str, Any]]:
    (ops,) = [args[0] for method, args in rest.master.asked if method == "SubmitJob"]
    return list(ops)


def test_the_answer_has_the_plan_and_the_job_is_a_dry_run(rest: Rest) -> None:
    status, value, headers = rest("PUT", STARTUP)
    assert status == 200 and headers["cache-control"] == "no-store"
    assert value == {
        "job": 12,
        "status": "success",
        "possible": True,
        "reason": None,
        "ecode": None,
        "plans": [PLAN],
    }
    (op,) = _submitted(rest)
    assert op["dry_run"] is True and op["plan"] is True
    # It waits for news only: after the entry with the number 3, and from the state that it knows.
    asked = [args for method, args in rest.master.asked if method == "WaitForJobChange"]
    assert [args[:4] for args in asked] == [
        (12, ["status"], None, 0),
        (12, ["status"], ["queued"], 0),
        (12, ["status"], ["running"], 3),
    ]
    assert all(0 < args[4] <= plans.WAIT_S for args in asked)


def test_an_operation_that_is_not_possible(rest: Rest) -> None:
    assert isinstance(rest.master, PlanningMaster)
    rest.master.row = ["error", [REFUSED], ["error"]]
    status, value, _headers = rest("PUT", STARTUP)
    assert (status, value["possible"], value["plans"]) == (200, False, [])
    assert (value["reason"], value["ecode"]) == ("node node1 is offline", "wrong_state")


def test_a_job_of_several_opcodes_has_a_plan_for_each_up_to_the_error(rest: Rest) -> None:
    assert isinstance(rest.master, PlanningMaster)
    rest.master.row = [
        "error",
        [PLAN, REFUSED, ["OpPrereqError", ["an earlier one failed", ""]]],
        ["success", "error", "error"],
    ]
    value = rest("POST", "/2/instances/web1/reinstall?plan=1", {"start": True})[1]
    assert len(_submitted(rest)) > 1 and all(op["plan"] for op in _submitted(rest))
    assert value["plans"] == [PLAN] and value["reason"] == "node node1 is offline"


def test_a_dry_run_that_waits_for_locks_is_answered_without_plan(rest: Rest) -> None:
    assert isinstance(rest.master, PlanningMaster)
    rest.master.changes = [[["waiting"], None], wire.NO_CHANGE]
    rest.master.row = ["waiting", [None], ["waiting"]]
    value = rest("PUT", STARTUP)[1]
    assert value == {
        "job": 12,
        "status": "waiting",
        "possible": None,
        "reason": None,
        "ecode": None,
        "plans": [],
    }


def test_the_wait_has_an_end() -> None:
    """A job that logs again and again is not a reason to wait longer."""
    master = PlanningMaster()
    number = iter(range(1, 1000))
    master.answers["WaitForJobChange"] = lambda *_args: [
        ["running"],
        [[next(number), [0, 0], "message", "x"]],
    ]
    master.row = ["running", [None], ["running"]]
    times = iter(range(1000))
    found = asyncio.run(plans.of_job(master, 12, clock=lambda: next(times)))
    assert found["possible"] is None
    asked = [args for method, args in master.asked if method == "WaitForJobChange"]
    assert 0 < len(asked) < plans.WAIT_S


def test_a_job_that_was_archived_meanwhile(rest: Rest) -> None:
    assert isinstance(rest.master, PlanningMaster)
    rest.master.row = None  # type: ignore[assignment]
    assert rest("PUT", STARTUP)[0] == 404


def test_a_plan_needs_the_right_to_change(rest: Rest) -> None:
    assert rest("PUT", STARTUP, user="look:pw")[0] == 403
    assert rest("PUT", STARTUP, user=None)[0] == 401
    assert not rest.master.asked


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/2/jobs", {"ops": [{"OP_ID": "OP_TAGS_SET", "kind": "cluster", "tags": ["a"]}]}),
        ("DELETE", "/2/jobs/12", None),
        ("PUT", "/2/watcher/pause", {"until": 99}),
        ("POST", "/2/filters", {}),
        ("POST", "/2/batch", {"operations": [{"method": "GET", "path": "/2/info"}]}),
    ],
)
def test_operations_without_jobs_have_no_plan(
    rest: Rest, method: str, path: str, body: Any
) -> None:
    status, value, _headers = rest(method, f"{path}?plan=1", body)
    assert status == 400 and "has no plan" in value["reason"], value
    assert not rest.master.asked


def test_an_operation_of_a_batch_has_no_plan(rest: Rest) -> None:
    one = {"method": "PUT", "path": "/2/instances/web1/startup", "query": {"plan": 1}}
    status, value, _headers = rest("POST", "/2/batch", {"operations": [one]})
    assert status == 400 and "of a batch has no plan" in value["reason"]
    assert not rest.master.asked


def test_every_job_that_changes_something_has_a_plan() -> None:
    """The description says so, and has the shape of the answer."""
    paths = openapi.description()["paths"]
    for resource in RESOURCES:
        for method, operation in resource.operations.items():
            found = paths[resource.path][method.lower()]
            names = {one["name"] for one in found.get("parameters", ())}
            wanted = isinstance(operation, declare.Job) and declare.changes(operation)
            assert ("plan" in names) == wanted, resource.path
            assert ("schemas/Plan" in str(found["responses"]["200"])) == wanted, resource.path


def test_the_answer_has_the_shape_of_the_description(rest: Rest) -> None:
    whole = Draft202012Validator(openapi.description()["components"]["schemas"]["Plan"])
    whole.validate(rest("PUT", STARTUP)[1])
    assert not whole.is_valid({"job": 12})


# -- the client ------------------------------------------------------------------------------------


class Asking(client.GanetiRapiClient):
    """A client which keeps its requests instead of sending them."""

    link = '</2/openapi.json>; rel="service-desc"'

    def __init__(self) -> None:
        super().__init__("cluster.example.com")
        self.sent: list[tuple[str, str, Any]] = []

    def _SendRequest(
        self, method: str, path: str, query: Any, content: Any, headers: Any = None
    ) -> Any:
        self.sent.append((method, path, query))
        if path == "/2" and headers is not None:
            headers["link"] = self.link
        return {"job": 12, "possible": True}


def test_the_client_asks_for_the_plan_of_any_function() -> None:
    asking = Asking()
    assert asking.Plan("StartupInstance", "web1", reason="why") == {"job": 12, "possible": True}
    assert asking.sent == [
        ("GET", "/2", None),
        ("PUT", "/2/instances/web1/startup", [("reason", "why"), ("dry-run", 1), ("plan", 1)]),
    ]
    # The client itself still makes changes.
    assert "_SendRequest" not in vars(asking)


def test_the_client_does_not_ask_a_server_which_would_make_the_change() -> None:
    asking = Asking()
    asking.link = ""
    with pytest.raises(client.GanetiApiError, match="makes no plans"):
        asking.Plan("StartupInstance", "web1")
    assert [path for _method, path, _query in asking.sent] == ["/2"]


def test_a_function_that_reads_has_no_plan() -> None:
    with pytest.raises(client.Error, match="changes nothing"):
        Asking().Plan("GetInstance", "web1")


def test_texts_of_unknown_errors_are_shown_as_they_are() -> None:
    assert plans._error(["Other", ["x"]]) == ("['Other', ['x']]", None)
    assert plans._error(["OpExecError", ["x"]]) == ("x", None)
    assert errors.ECODE_STATE == "wrong_state"
