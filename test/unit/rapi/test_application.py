"""Requests over a real socket to the application, in front of a master that is made up."""

from __future__ import annotations

import asyncio
import base64
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.http_lab import WAIT_S, HttpLab, receive_all
from fakes.rest_client import Rest, rest_lab
from fakes.rest_master import UUID, FakeMaster
from ganeti import errors
from ganeti.rapi import application
from ganeti.rapi.application import RestApplication
from ganeti.rapi.declare import Read
from ganeti.rapi.identify import Identities
from ganeti.rapi.resources import RESOURCES
from ganeti.rapi.users import Users


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[Rest]:
    users = "root pw write\nlook pw read\nkeep pw documents_name\nnone pw\n"
    with rest_lab(tmp_path, users=users) as one:
        yield one


def test_lists(rest: Rest) -> None:
    assert rest("GET", "/2/instances", user=None)[1] == [
        {"id": "a", "uri": "/2/instances/a"},
        {"id": "b", "uri": "/2/instances/b"},
    ]
    status, found, _headers = rest("GET", "/2/instances?bulk=1")
    assert [one["name"] for one in found] == ["b", "a"]
    assert found[0]["beparams"] == {"maxmem": 64, "minmem": 32, "memory": 64}
    assert rest("GET", "/2/instances?bulk=x")[0] == 400


def test_path_and_method(rest: Rest) -> None:
    for path in (
        "/3",
        "/2/nosuch",
        "/2/instances/",
        "/2/instances/a/b/c",
        "/2/jobs/abc",
        "/2/instances/a%2Fb",
        "/2%2finfo",
        "/2%2Finstances/web",
        "/2/instances/a%20b",
        "//2",
        "/2/instances/%C3%A4",
    ):
        status, body, _headers = rest("GET", path)
        assert (status, body["code"]) == (404, 404), path
        assert body["reason"].startswith("there is no resource /"), path
        assert body["explain"] == "Nothing matches the given URI"
    for path, meant in (("/2/instancs", "instances"), ("/2/instances/a/shutdwon", "shutdown")):
        assert f"Did you mean '{meant}'?" in rest("GET", path)[1]["reason"]
    assert len(rest("GET", f"/2/{'x' * 900}")[1]["reason"]) < 200
    status, body, headers = rest("PATCH", "/2/info")
    assert status == 405 and headers["allow"] == "GET, HEAD"
    assert body["message"] == "Method Not Allowed"
    assert body["explain"] == "method PATCH is unsupported for path /2/info"
    assert rest("GET", "/2/instances/%ff")[0] == 400


_BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


def test_people_and_programs_find_the_documentation(rest: Rest) -> None:
    for path in ("/", "/2"):
        status, _body, headers = rest("GET", path, Accept=_BROWSER)
        assert (status, headers["location"]) == (303, "/2/doc")
        for accept in ("*/*", "application/json", "text/html;q=0.1,application/json"):
            status, body, headers = rest("GET", path, Accept=accept)
            assert (status, body) == (200, None)
            assert '</2/doc>; rel="service-doc"' in headers["link"]
            assert '</2/openapi.json>; rel="service-desc"' in headers["link"]
    assert "link" not in rest("GET", "/2/info")[2]
    # Everywhere else a browser gets what there is.
    assert rest("GET", "/version", Accept=_BROWSER)[0] == 200


def test_an_answer_401_says_why(rest: Rest) -> None:
    path = "/2/query/node?fields=name"
    assert "rapi-passwd NAME" in rest("GET", path, user=None)[1]["explain"]
    wrong = "the user name or the password is wrong"
    assert rest("GET", path, user="root:no")[1]["explain"] == wrong
    # Whether there is such a user is not said.
    assert rest("GET", path, user="nobody:no")[1]["explain"] == wrong
    found = rest("GET", path, user=None, Authorization="Bearer x")[1]["explain"]
    assert "its form is 'Basic'" in found


def test_rights(rest: Rest) -> None:
    assert rest("PUT", "/2/tags?tag=x", user=None)[0] == 401
    assert rest("PUT", "/2/tags?tag=x", user="look:pw")[0] == 403
    assert rest("PUT", "/2/tags?tag=x", user="root:no")[0] == 401
    assert rest("GET", "/2", user="root:no")[0] == 401
    assert rest("GET", "/2", user="none:pw")[0] == 200
    status, _body, headers = rest("GET", "/2/query/node?fields=name", user=None)
    assert status == 401 and headers["www-authenticate"] == 'Basic realm="Ganeti Remote API"'
    assert not rest.master.asked


@pytest.mark.parametrize("name", ["info", "snapshots?job=1"])
def test_a_request_which_submits_a_job_needs_a_user(rest: Rest, name: str) -> None:
    path = f"/2/instances/web/{name}"
    assert rest("GET", path, user=None)[0] == 401
    assert not rest.master.asked
    assert rest("GET", path, user="none:pw")[:2] == (200, 12)


@pytest.mark.parametrize(
    ("path", "result", "answer", "op"),
    [
        (
            "info?job=0&static=1",
            {"web": {"name": "web", "run_state": None}},
            {"name": "web", "run_state": None},
            {"OP_ID": "OP_INSTANCE_QUERY_DATA", "instances": ["web"], "static": True},
        ),
        (
            "snapshots",
            [{"snapshot": "a"}],
            {"snapshots": [{"snapshot": "a"}], "warnings": ["node b did not report"]},
            {"OP_ID": "OP_INSTANCE_SNAPSHOT_LIST", "instances": ["web"]},
        ),
    ],
)
def test_an_answer_without_a_job(
    rest: Rest, path: str, result: Any, answer: Any, op: dict[str, Any]
) -> None:
    rest.master.answers["RunQuery"] = {"result": result, "warnings": ["node b did not report"]}
    assert rest("GET", f"/2/instances/web/{path}", user=None)[0] == 401
    assert not rest.master.asked
    status, found, headers = rest("GET", f"/2/instances/web/{path}", user="none:pw")
    assert (status, found) == (200, answer)
    assert headers["cache-control"] == "no-store"
    ((method, (sent,)),) = rest.master.asked
    assert method == "RunQuery" and {name: sent[name] for name in op} == op


def test_no_job_is_submitted_without_a_user() -> None:
    anonymous = [
        f"{method} {resource.path}"
        for resource in RESOURCES
        for method, operation in resource.operations.items()
        if not operation.access and not isinstance(operation, Read)
    ]
    assert anonymous == [
        "POST /2/login",
        "POST /2/login/passkey",
        "POST /2/login/passkey/challenge",
        "POST /2/logout",
    ]


@pytest.mark.parametrize(
    ("method", "path", "status", "stored"),
    [
        ("GET", "/2/instances", 200, True),
        ("GET", "/2/doc", 200, True),
        ("GET", "/2/instances/web/info", 200, False),
        ("PUT", "/2/instances/web/startup", 200, False),
        ("GET", "/2/nosuch", 404, False),
        ("PATCH", "/2/info", 405, False),
        ("G\r\n", "/", 400, False),
    ],
)
def test_headers_for_browsers(
    rest: Rest, method: str, path: str, status: int, stored: bool
) -> None:
    found, _body, headers = rest(method, path)
    assert found == status
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert "default-src 'none'" in headers["content-security-policy"]
    assert ("no-store" in headers["cache-control"]) is not stored


def test_nothing_without_a_password(tmp_path: Path) -> None:
    file = tmp_path / "users"
    file.write_text("none pw\n")
    master = FakeMaster()
    lab = HttpLab(
        lambda: RestApplication(master, Identities([Users(str(file))]), require_authentication=True)
    )
    rest = Rest(lab, master)
    assert rest("GET", "/2", user=None)[0] == 401
    assert rest("GET", "/2", user="none:pw")[0] == 200
    lab.close()


def test_a_job(rest: Rest) -> None:
    op = rest.job("PUT", "/2/instances/web/startup?dry-run=1&force=1&reason=why+not")
    assert (op["OP_ID"], op["instance_name"], op["dry_run"], op["force"]) == (
        "OP_INSTANCE_STARTUP",
        "web",
        True,
        True,
    )
    assert [entry[:2] for entry in op["reason"]] == [
        ["gnt:user", "why not"],
        ["gnt:library:rlib2:instances_name_startup", ""],
        ["gnt:person", "root"],
    ]


def test_bodies_that_are_refused(rest: Rest) -> None:
    path = "/2/instances/web/shutdown"
    for body, fragment in (
        (["x"], "must be a JSON object"),
        ({"nosuch": 1}, "nosuch"),
        ({"dry_run": True}, "dry_run"),
        ({"instance_name": "x"}, "instance_name"),
        ({"timeout": "x"}, "timeout"),
        ({"reason": []}, "reason"),
        ({"OP_ID": "OP_CLUSTER_DESTROY"}, "OP_ID"),
    ):
        status, found, _headers = rest("PUT", path, body)
        assert status == 400 and fragment in found["explain"], found
    for raw, fragment in (
        (b"notjson", "invalid JSON"),
        (b'{"timeout":1,"timeout":2}', "twice"),
        (b"[" * 100_000, "nested"),
        (b'{"a":"\xff"}', "UTF-8"),
        (b'{"timeout": NaN}', "JSON"),
        (b"1" * 5000, "JSON"),
    ):
        status, found, _headers = rest("PUT", path, raw=raw)
        assert status == 400 and fragment in found["explain"], found
    assert rest("PUT", path, {}, content_type="text/plain")[0] == 415
    assert rest("PUT", path, {}, content_type="application/json; charset=utf-8")[0] == 200
    assert rest("PUT", "/2/modify", {"compression_tools": ["x"]})[0] == 403
    assert rest("PUT", "/2/instances/web/startup", {"nosuch": 1})[0] == 400
    # The tags are in the query; what a known client says beside it is not looked at.
    assert rest("PUT", "/2/tags?tag=a", ["a"])[0] == 200


def test_creating(rest: Rest) -> None:
    body = {
        "__version__": 1,
        "name": "web",
        "mode": "create",
        "disks": [],
        "nics": [],
        "os": "tiny",
        "disk_template": "diskless",
        "depends": [[3, ["success"]]],
        "hvparams": {"usb_devices": "a b"},
    }
    op = rest.job("POST", "/2/instances", body)
    assert (op["instance_name"], op["os_type"], op["depends"]) == (
        "web",
        "tiny",
        [[3, ["success"]]],
    )
    assert op["hvparams"] == {"usb_devices": "a,b"}
    for version, fragment in ((0, "no longer"), (2, "not supported"), ("1", "number")):
        status, found, _headers = rest("POST", "/2/instances", {**body, "__version__": version})
        assert status == 400 and fragment in found["explain"]
    assert rest("POST", "/2/instances", {**body, "instance_name": "other"})[0] == 400
    op = rest.job("POST", "/2/instances-multi-alloc", {"instances": [body], "iallocator": "hail"})
    assert op["instances"][0]["OP_ID"] == "OP_INSTANCE_CREATE"
    assert op["instances"][0]["instance_name"] == "web"
    assert rest("POST", "/2/instances-multi-alloc", {})[0] == 400
    assert rest("POST", "/2/instances-multi-alloc", {"instances": [{"name": "x"}]})[0] == 400


@pytest.mark.parametrize(
    ("method", "path", "body", "wanted"),
    [
        (
            "PUT",
            "/2/instances/web/tags?tag=a&tag=b",
            None,
            {"kind": "instance", "name": "web", "tags": ["a", "b"]},
        ),
        ("DELETE", "/2/tags?tag=a", None, {"kind": "cluster", "name": None}),
        ("PUT", "/2/groups/g/tags?tag=a", None, {"kind": "nodegroup", "name": "g"}),
        ("PUT", "/2/nodes/n/role", "drained", {"drained": True, "offline": None}),
        ("PUT", "/2/nodes/n/maintenance", {"stop": True}, {"node_name": "n", "stop": True}),
        ("DELETE", "/2/nodes/n/maintenance", {"move_back": False}, {"move_back": False}),
        (
            "PUT",
            "/2/nodes/n/role?force=1&auto-promote=1",
            "regular",
            {
                "drained": False,
                "offline": False,
                "master_candidate": False,
                "force": True,
                "auto_promote": True,
            },
        ),
        (
            "POST",
            "/2/instances/web/reboot?type=soft",
            {"shutdown_timeout": 3},
            {"reboot_type": "soft", "shutdown_timeout": 3, "ignore_secondaries": False},
        ),
        ("POST", "/2/instances/web/reboot", None, {"reboot_type": "hard"}),
        ("POST", "/2/instances/web/disk/2/grow", {"amount": 5}, {"disk": 2, "amount": 5}),
        (
            "GET",
            "/2/instances/web/snapshots?job=1",
            None,
            {"OP_ID": "OP_INSTANCE_SNAPSHOT_LIST", "instances": ["web"]},
        ),
        (
            "POST",
            "/2/instances/web/snapshots",
            {"snapshot_name": "a", "disks": [1], "shutdown": True},
            {"snapshot_name": "a", "disks": [1], "shutdown": True, "shutdown_timeout": 120},
        ),
        (
            "DELETE",
            "/2/instances/web/snapshots/a.b?dry-run=1",
            None,
            {"OP_ID": "OP_INSTANCE_SNAPSHOT_REMOVE", "snapshot_name": "a.b", "dry_run": True},
        ),
        (
            "POST",
            "/2/instances/web/snapshots/a.b/restore",
            None,
            {
                "OP_ID": "OP_INSTANCE_SNAPSHOT_RESTORE",
                "instance_name": "web",
                "snapshot_name": "a.b",
            },
        ),
        (
            "POST",
            "/2/instances/web/replace-disks?mode=replace_auto&disks=0,1",
            None,
            {"mode": "replace_auto", "disks": [0, 1]},
        ),
        (
            "POST",
            "/2/instances/web/replace-disks?mode=replace_auto",
            {"mode": "replace_on_primary", "disks": "3"},
            {"mode": "replace_on_primary", "disks": [3]},
        ),
        ("POST", "/2/nodes/n/migrate?live=0", {"mode": "live"}, {"mode": "non-live"}),
        ("POST", "/2/nodes/n/migrate", {"mode": "live"}, {"mode": "live"}),
        (
            "GET",
            "/2/nodes/n/storage?storage_type=file&output_fields=name,free",
            None,
            {"nodes": ["n"], "storage_type": "file", "output_fields": ["name", "free"]},
        ),
        (
            "PUT",
            "/2/nodes/n/storage/modify?storage_type=lvm-pv&name=x&allocatable=0",
            None,
            {"changes": {"allocatable": False}},
        ),
        ("PUT", "/2/nodes/n/storage/modify?storage_type=lvm-pv&name=x", None, {"changes": {}}),
        ("GET", "/2/instances/web/info?static=1", None, {"instances": ["web"], "static": True}),
        (
            "PUT",
            "/2/instances/web/modify",
            {"custom_beparams": {"vcpus": 2}},
            {"beparams": {"vcpus": 2}},
        ),
        (
            "PUT",
            "/2/instances/web/modify",
            {"nics": [["add", {}]], "hotplug": False, "hotplug_if_possible": True},
            {"hotplug": True},
        ),
        (
            "PUT",
            "/2/instances/web/modify",
            {"nics": [["add", {}]], "hotplug": False, "hotplug_if_possible": False},
            {"hotplug": False},
        ),
        ("POST", "/2/groups", {"name": "g"}, {"group_name": "g"}),
        ("POST", "/2/groups", {"group_name": "g"}, {"group_name": "g"}),
        ("DELETE", "/2/instances/web", None, {"ignore_failures": False}),
        ("PUT", "/2/instances/web/export", {"destination": "n"}, {"target_node": "n"}),
    ],
)
def test_what_becomes_of_a_request(
    rest: Rest, method: str, path: str, body: Any, wanted: dict[str, Any]
) -> None:
    op = rest.job(method, path, body)
    assert {name: op[name] for name in wanted} == wanted


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "/2/tags", None),
        ("PUT", "/2/nodes/n/role", "master"),
        ("PUT", "/2/nodes/n/role", "nonsense"),
        ("PUT", "/2/nodes/n/role", None),
        ("POST", "/2/nodes/n/migrate?live=1&mode=live", None),
        ("POST", "/2/nodes/n/migrate", {"live": True, "mode": "live"}),
        ("POST", "/2/instances/web/reboot?type=never", None),
        ("POST", "/2/instances/web/replace-disks?mode=replace_auto&disks=x", None),
        ("POST", "/2/instances/web/disk/99999999999999999999/grow", {"amount": 5}),
        ("POST", "/2/instances/web/snapshots", {"disks": ["0"]}),
        ("POST", "/2/instances/web/snapshots/a/restore", {"force": True}),
        ("POST", "/2/instances/web/reinstall?os=x", {"os": "y"}),
        ("GET", "/2/nodes/n/storage?storage_type=file", None),
        ("GET", "/2/nodes/n/storage?output_fields=name&storage_type=x", None),
        ("PUT", "/2/query/node", {"fields": ["name"], "filter": ["a"], "qfilter": ["b"]}),
        ("PUT", "/2/query/node", {}),
        ("GET", "/2/query/node", None),
        ("POST", "/2/filters", {"nosuch": 1}),
        ("GET", "/2/jobs/1/wait", {"fields": "x"}),
        ("GET", "/2/jobs/1/wait", None),
        ("GET", "/2/jobs/1/wait?previous_log_serial=3", None),
        ("GET", "/2/jobs/1/wait?fields=status&previous_log_serial=x", None),
        ("GET", "/2/jobs/1/wait?fields=status&previous_job_info=running", None),
        ("GET", "/2/jobs/1/wait?fields=status&previous_job_info=%7B%7D", None),
    ],
)
def test_requests_that_are_wrong(rest: Rest, method: str, path: str, body: Any) -> None:
    assert rest(method, path, body)[0] == 400
    assert not rest.master.asked


def test_reinstalling_is_one_job(rest: Rest) -> None:
    assert rest("POST", "/2/instances/web/reinstall", {"os": "x", "comment": "c"})[0] == 200
    assert [op["OP_ID"] for op in rest.master.ops] == [
        "OP_INSTANCE_SHUTDOWN",
        "OP_INSTANCE_REINSTALL",
        "OP_INSTANCE_STARTUP",
    ]
    assert all(op["comment"] == "c" for op in rest.master.ops)
    assert rest("POST", "/2/instances/web/reinstall?os=x&nostartup=1")[0] == 200
    assert [op["OP_ID"] for op in rest.master.ops][1:] == ["OP_INSTANCE_REINSTALL"]


def test_tags_of_states(rest: Rest) -> None:
    tag = f'"{UUID}-3"'
    status, body, headers = rest("GET", "/2/instances/web")
    assert status == 200 and headers["etag"] == tag
    status, text, headers = rest("GET", "/2/instances/web", if_none_match=f'"x", W/{tag}')
    assert (status, text, headers["etag"]) == (304, b"", tag)
    assert rest("GET", "/2/instances/web", if_none_match='"x"')[0] == 200
    status, body, headers = rest("PUT", "/2/instances/web/startup", if_match='"other"')
    assert status == 412 and headers["etag"] == tag and "changed" in body["explain"]
    assert rest.master.asked[-1][0] == "QueryInstances"
    assert rest("PUT", "/2/instances/web/startup", if_match=tag)[0] == 200
    # What has no serial number has a tag, too.
    first = rest("GET", "/2/features")[2]["etag"]
    assert rest("GET", "/2/features", if_none_match=first)[0] == 304
    assert "etag" not in rest("PUT", "/2/instances/web/startup")[2]


def test_representations(rest: Rest) -> None:
    status, text, headers = rest("GET", "/2/features", accept="application/yaml")
    assert status == 200 and headers["content-type"] == "application/yaml"
    assert text.startswith(b"- instance-create-reqv1\n")
    assert rest("GET", "/2/features", accept="text/html")[0] == 406
    assert rest("GET", "/2/doc", accept="text/html")[1].startswith(b"<!DOCTYPE html>")
    assert rest("GET", "/2/openapi.json")[1]["openapi"] == "3.1.0"


@pytest.mark.parametrize(
    ("err", "status"),
    [
        (errors.NoMasterError("the master daemon does not run"), 502),
        (errors.JobQueueFull(), 503),
        (errors.JobQueueDrainError("the queue is drained"), 503),
        (errors.LuxiTimeout("x"), 504),
        (RuntimeError("secret"), 500),
    ],
)
def test_a_master_that_fails(rest: Rest, err: Exception, status: int) -> None:
    rest.master.answers["SubmitJob"] = err
    found, body, headers = rest("PUT", "/2/instances/web/startup")
    assert (found, body["code"]) == (status, status) and "secret" not in str(body)
    assert ("retry-after" in headers) == (status in (502, 503, 504))


def test_jobs(rest: Rest) -> None:
    rest.master.answers["QueryJobs"] = lambda ids, fields: (
        [[3], [1]] if ids is None else [None if ids == [9] else list(fields)]
    )
    assert [job["id"] for job in rest("GET", "/2/jobs")[1]] == [1, 3]
    assert rest("GET", "/2/jobs/1")[1]["oplog"] == "oplog"
    assert rest("GET", "/2/jobs/9")[0] == 404
    assert rest("GET", "/2/jobs/" + "9" * 40)[0] == 404
    rest.master.answers["WaitForJobChange"] = "nochange"
    assert rest("GET", "/2/jobs/1/wait", {"fields": ["status"]})[:2] == (200, None)
    rest.master.answers["WaitForJobChange"] = [["running"], None]
    assert rest("GET", "/2/jobs/1/wait", {"fields": ["status"]})[1] == {
        "job_info": ["running"],
        "log_entries": [],
    }
    rest.master.answers["CancelJob"] = [True, "x"]
    assert rest("DELETE", "/2/jobs/1")[1] == [True, "x"]


@pytest.mark.parametrize(
    ("query", "body"),
    [
        ("fields=status,ops&previous_job_info=%5B%22running%22%2C1%5D&previous_log_serial=0", None),
        ("", {"fields": ["status", "ops"], "previous_job_info": ["running", 1],
              "previous_log_serial": 0}),
        ("fields=status&previous_log_serial=0",
         {"fields": ["status", "ops"], "previous_job_info": ["running", 1]}),
    ],
)  # fmt: skip
def test_waiting_needs_no_body(rest: Rest, query: str, body: Any) -> None:
    rest.master.answers["WaitForJobChange"] = "nochange"
    assert rest("GET", f"/2/jobs/1/wait?{query}", body)[:2] == (200, None)
    ((_, args),) = [one for one in rest.master.asked if one[0] == "WaitForJobChange"]
    assert list(args)[:4] == [1, ["status", "ops"], ["running", 1], 0]


def test_console(rest: Rest) -> None:
    rows = {"data": [[[0, {"kind": "msg", "message": "m", "port": None}], [0, True]]]}
    rest.master.answers["Query"] = rows
    assert rest("GET", "/2/instances/web/console")[1] == {"kind": "msg", "message": "m"}
    rest.master.answers["Query"] = {"data": [[[3, None], [0, False]]]}
    assert rest("GET", "/2/instances/web/console")[0] == 503
    rest.master.answers["Query"] = {"data": []}
    assert rest("GET", "/2/instances/web/console")[0] == 404


def test_operating_systems(rest: Rest) -> None:
    rest.master.answers["Query"] = {
        "data": [
            [[0, value] for value in row]
            for row in (
                ("b", True, ["x", "y"], [["p", "text"]], [20], False, False, True),
                ("a", True, [], [], [20], False, False, True),
                ("hidden", True, [], [], [20], False, True, True),
                ("broken", False, None, None, None, False, False, True),
            )
        ]
    }
    assert rest("GET", "/2/os")[1] == ["a", "b+x", "b+y"]
    found = rest("GET", "/2/os?bulk=1")[1]
    assert len(found) == 4 and found[0]["parameters"] == [{"name": "p", "description": "text"}]


def test_head(rest: Rest) -> None:
    with rest.lab.connect() as sock:
        sock.sendall(b"HEAD /2/features HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        text = receive_all(sock)
    assert text.startswith(b"HTTP/1.1 200") and text.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("method", "path", "meant"),
    [
        ("DELETE", "/2/instances/a?dryrun=1", "Did you mean 'dry-run'?"),
        ("PUT", "/2/instances/a/startup?no_rember=1", "Did you mean 'no_remember'?"),
        ("GET", "/2/instances?blk=1", "Did you mean 'bulk'"),
        ("PUT", "/2/redistribute-config?xyzzyxyzzy=1", "there is no query argument 'xyzzyxyzzy'"),
    ],
)
def test_a_mistyped_argument_is_refused(rest: Rest, method: str, path: str, meant: str) -> None:
    status, body, _headers = rest(method, path)
    assert status == 400
    assert meant in body["explain"]
    assert rest.master.asked == []


def test_arguments_of_other_operations_have_no_effect(rest: Rest) -> None:
    """Known clients send some everywhere."""
    assert rest.job("DELETE", "/2/instances/a?bulk=1&reason=x")["OP_ID"] == "OP_INSTANCE_REMOVE"


def test_every_job_that_changes_something_has_a_dry_run(rest: Rest) -> None:
    """Also those without one in the published table, which would make the change."""
    for method, path in (("PUT", "/2/redistribute-config"), ("POST", "/2/nodes/a/powercycle")):
        assert rest.job(method, f"{path}?dry-run=1")["dry_run"] is True
        assert not rest.job(method, f"{path}?dry-run=0").get("dry_run")


def test_a_direct_change_has_no_dry_run(rest: Rest) -> None:
    status, body, _headers = rest("DELETE", "/2/jobs/12?dry-run=1")
    assert (status, body["explain"]) == (400, "this operation has no dry run; nothing was changed")


class WaitingMaster(FakeMaster):
    """Does not answer; notes whose request was given up."""

    def __init__(self) -> None:
        super().__init__()
        self.given_up: list[str] = []

    async def call(self, method: str, *args: Any, timeout_s: float | None = None) -> Any:
        self.asked.append((method, args))
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.given_up.append(method)
            raise


def test_a_query_is_given_up_when_its_client_has_gone_and_a_job_is_not(tmp_path: Path) -> None:
    master = WaitingMaster()
    with rest_lab(tmp_path, master) as rest:
        for method, path in (("POST", "/2/instances/a/reboot"), ("GET", "/2/query/node?fields=a")):
            asked = len(master.asked)
            sock = rest.lab.connect()
            # Otherwise the server would only see that the client sends nothing more.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            login = base64.b64encode(b"root:pw").decode()
            lines = [f"{method} {path} HTTP/1.1", "Host: h", f"Authorization: Basic {login}"]
            sock.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
            _wait_for(lambda before=asked: len(master.asked) > before)
            sock.close()
        _wait_for(lambda: master.given_up == ["Query"])


def _wait_for(condition: Any) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_body_only_where_the_operation_takes_one(rest: Rest) -> None:
    for method, path, user in (
        ("GET", "/2/info", None),
        ("GET", "/2/info", "root:pw"),
        ("GET", "/2/instances?bulk=1", "look:pw"),
        ("GET", "/2/query/node?fields=name", "look:pw"),
    ):
        status, body, _headers = rest(method, path, {}, user=user)
        assert status == 413 and "takes no body" in body["explain"] + body.get("reason", "")
    # Further members, such as the priority, belong to every job.
    assert rest("DELETE", "/2/instances/a", {"priority": 10})[0] == 200


def test_the_largest_body_of_each_operation() -> None:
    found = {
        (resource.path, method): (
            application.most_body_bytes(operation, anonymous=True),
            application.most_body_bytes(operation, anonymous=False),
        )
        for resource in RESOURCES
        for method, operation in resource.operations.items()
    }
    for (path, method), (anonymous, known) in found.items():
        assert anonymous in (0, 16 << 10), (path, method)
        assert known in (0, 16 << 10, 2 << 20, 10 << 20), (path, method)
    assert found["/2/info", "GET"] == (0, 0)
    # The client of the distribution sends an object without members.
    assert found["/2/filters/{filter_uuid}", "DELETE"][1] == 16 << 10
    assert found["/2/query/{resource}", "PUT"] == (16 << 10, 2 << 20)
    assert found["/2/instances", "POST"] == (16 << 10, 10 << 20)


def test_a_filter_of_many_names_is_not_too_large(rest: Rest) -> None:
    rest.master.answers["Query"] = {"fields": [], "data": []}
    names = [
        ["==", "name", f"instance{number:05}.a-long-name.example.com"] for number in range(19_000)
    ]
    body = {"fields": ["name"], "qfilter": ["|", *names]}
    assert rest("PUT", "/2/query/instance", body)[0] == 200
    body["qfilter"] += names
    assert rest("PUT", "/2/query/instance", body)[0] == 413


def test_a_body_of_too_many_values_is_not_read(rest: Rest) -> None:
    body = b'{"qfilter": [' + b"[]," * 600_000 + b"[]]}"
    status, found, _headers = rest("PUT", "/2/query/node", raw=body)
    assert status == 400 and "more than 500000 values" in found["explain"]
