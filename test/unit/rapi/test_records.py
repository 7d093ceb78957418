"""Reading what the cluster knows about its work, over REST: arguments, pages, shapes of answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import pytest
from jsonschema import Draft202012Validator

from fakes.rest_client import Rest, rest_lab
from fakes.rest_master import RECORDS, busy_master
from ganeti import errors
from ganeti.luxi import answers
from ganeti.rapi import client, openapi, schema, typed

READS = (
    "/2/jobs/12/explain",
    "/2/jobs/explain?ids=12,13",
    "/2/queue",
    "/2/failover-status",
    "/2/images",
    "/2/verify",
    "/2/history",
    "/2/audit",
    "/2/at/7/info",
    "/2/at/7/instances?bulk=1",
    "/2/at/7/instances/web1",
    "/2/at/7/nodes/node1",
    "/2/at/7/groups?bulk=1",
    "/2/at/7/networks",
)


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[Rest]:
    users = "root pw write\nlook pw read\nnobody pw\n"
    with rest_lab(tmp_path, busy_master(), users) as made:
        yield made


def _schema(path: str) -> dict[str, Any]:
    for known, one in openapi.description()["paths"].items():
        words, given = known.split("/"), path.partition("?")[0].split("/")
        if known == "/2/jobs/{job_id}" and given[-1] == "explain":
            continue
        if len(words) == len(given) and all(
            word == other or word.startswith("{") for word, other in zip(words, given, strict=True)
        ):
            found: dict[str, Any] = one["get"]["responses"]["200"]["content"]["application/json"]
            return dict(found["schema"])
    raise AssertionError(path)


@pytest.mark.parametrize("path", READS)
def test_answers_have_the_shape_of_the_description(rest: Rest, path: str) -> None:
    status, value, _headers = rest("GET", path)
    assert status == 200, value
    Draft202012Validator(_schema(path)).validate(value)


@pytest.mark.parametrize("path", READS)
def test_they_are_for_users_with_the_right_to_read(rest: Rest, path: str) -> None:
    assert rest("GET", path, user="look:pw")[0] == 200
    assert rest("GET", path, user="nobody:pw")[0] == 403
    assert rest("GET", path, user=None)[0] == 401


def test_the_shapes_are_complete() -> None:
    """A member which an answer lacks, or one that is not described, is found."""
    whole = Draft202012Validator(schema.of(typed.of(answers.QueueOverview)))
    found = RECORDS["QueryQueue"]
    assert whole.is_valid(found)
    assert not whole.is_valid({**found, "other": 1})
    assert not whole.is_valid({name: found[name] for name in ("queue", "jobs")})
    (job,) = found["jobs"]
    assert not whole.is_valid({**found, "jobs": [{**job, "position": "1"}]})
    assert whole.is_valid({**found, "jobs": [{**job, "position": None}]})


class _Inner(TypedDict):
    """A declaration with each form of hint."""

    names: list[str]
    by_name: dict[str, int]
    one: int | str
    maybe: float | None
    more: NotRequired[bool]


def test_a_type_from_a_declaration() -> None:
    found = typed.of(_Inner)
    good = {"names": ["a"], "by_name": {"a": 1}, "one": "x", "maybe": None}
    assert found(good) and found({**good, "more": True, "one": 1, "maybe": 1.5})
    for name, value in (("names", [1]), ("by_name", {"a": "b"}), ("one", None), ("maybe", "x")):
        assert not found({**good, name: value})
    assert not found({**good, "more": None}) and not found({**good, "other": 1})
    with pytest.raises(errors.ProgrammerError, match="no type for"):
        typed.of(set[int])


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", ["web1", "node1"]),
        ("?severity=error", ["web1"]),
        ("?object=node&name=node1", ["node1"]),
        ("?object=node&name=web1", []),
        ("?group=default", ["web1", "node1"]),
        ("?group=g2", []),
    ],
)
def test_findings_are_chosen(rest: Rest, query: str, names: list[str]) -> None:
    status, value, _headers = rest("GET", f"/2/verify{query}")
    assert status == 200 and [one["name"] for one in value["findings"]] == names
    # When something was verified is of interest, whatever is chosen.
    assert len(value["parts"]) == 2 and value["unchecked"] == ["g2", None]


def test_a_severity_that_does_not_exist(rest: Rest) -> None:
    status, value, _headers = rest("GET", "/2/verify?severity=notice")
    assert status == 400 and "error, warning" in value["reason"]


def test_a_verification_is_a_job_whose_findings_can_be_read(rest: Rest) -> None:
    op = rest.job("POST", "/2/verify", {"group_name": "default", "skip_checks": ["nplusone_mem"]})
    assert op["OP_ID"] == "OP_CLUSTER_VERIFY" and op["error_codes"] is True
    assert (op["group_name"], op["skip_checks"]) == ("default", ["nplusone_mem"])
    assert rest("POST", "/2/verify", {"error_codes": False})[0] == 400
    assert rest("POST", "/2/verify", {}, user="look:pw")[0] == 403


@pytest.mark.parametrize(
    ("path", "method", "chosen", "limit", "before"),
    [
        ("history", "FindCommits", {}, 100, None),
        ("history?object=web1&kind=instances", "FindCommits",
         {"object": "web1", "kind": "instances"}, 100, None),
        ("history?user=alice&job=5&opcode=OP_TAGS_SET&limit=7&before=9", "FindCommits",
         {"person": "alice", "job": 5, "opcode": "OP_TAGS_SET"}, 7, 9),
        ("audit?since=0&until=99&limit=1000", "FindAuditLines",
         {"since": 0, "until": 99}, 1000, None),
        ("audit?event=ended&status=error&object=web1", "FindAuditLines",
         {"event": "ended", "status": "error", "object": "web1"}, 100, None),
    ],
)  # fmt: skip
def test_what_the_master_is_asked(
    rest: Rest, path: str, method: str, chosen: Any, limit: int, before: int | None
) -> None:
    assert rest("GET", f"/2/{path}")[0] == 200
    assert rest.master.asked[-1] == (method, (chosen, limit, before))


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("history?limit=0", "'limit' must be from 1 to 1000, not 0"),
        ("audit?limit=1001", "'limit' must be from 1 to 1000, not 1001"),
        ("queue?limit=5001", "'limit' must be from 1 to 5000, not 5001"),
        ("history?before=-1", "'before' must be from 0 to"),
        ("audit?since=9999999999999999", "'since' must be from 0 to"),
        ("audit?user=", "'user' is empty"),
        ("history?kind=disk", "'kind' must be one of cluster, nodes,"),
        ("audit?event=begun", "'event' must be one of accepted, ended, not 'begun'"),
        ("jobs/explain?ids=1,x", "no job has the number 'x'"),
        ("jobs/explain", "'ids' is missing"),
        ("history?limit=many", "'limit' must be a number, not 'many'"),
        ("history?bevore=5", "Did you mean"),
    ],
)
def test_arguments_which_are_refused(rest: Rest, path: str, said: str) -> None:
    status, value, _headers = rest("GET", f"/2/{path}")
    assert (status, said in value["explain"]) == (400, True), value
    assert rest.master.asked == []


@pytest.mark.parametrize(
    "path",
    [
        f"/2/jobs/{'9' * 17}/explain",
        f"/2/jobs/{'9' * 17}",
        f"/2/at/{'9' * 30}/info",
        "/2/at/x/info",
        "/2/at/7",
    ],
)
def test_numbers_which_nothing_has(rest: Rest, path: str) -> None:
    assert rest("GET", path)[0] == 404
    assert rest.master.asked == []


def test_the_lines_are_those_of_the_command(rest: Rest) -> None:
    lines = rest("GET", "/2/jobs/12/explain")[1]["lines"]
    assert lines[1] == "It waits for:" and "held by job 11" in lines[2]


def test_the_client_refuses_arguments_which_nobody_knows() -> None:
    """The server would ignore them, and return everything."""
    one = client.GanetiRapiClient("h")
    for function, name in ((one.GetHistory, "event"), (one.GetAudit, "opcode")):
        with pytest.raises(TypeError, match=f"there is no argument '{name}'"):
            function(**{name: "x"})


def test_each_number_has_its_answer(rest: Rest) -> None:
    assert rest("GET", "/2/jobs/explain?ids=5,6,5")[0] == 200
    assert rest.master.asked[-1] == ("ExplainJob", ([5, 6, 5],))


def test_the_past_has_the_members_of_the_present(rest: Rest) -> None:
    for kind in ("instances", "nodes", "groups", "networks"):
        (then,) = rest("GET", f"/2/at/7/{kind}?bulk=1")[1]
        now = rest("GET", f"/2/{kind}?bulk=1")[1][0]
        assert then.keys() == now.keys()
    assert rest("GET", "/2/at/7/info")[1].keys() == rest("GET", "/2/info")[1].keys()
    (short,) = rest("GET", "/2/at/7/instances")[1]
    assert short == {"id": "a", "uri": "/2/at/7/instances/a"}
