"""What limited users see and do, over a socket, in front of a small cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.limited_cluster import limited_lab
from fakes.rest_client import Rest

USERS = """\
root pw write
alice pw write@own
tina pw operator@tag:web
rack pw write@group:rack1
look pw view@tag:web
one pw instances_name_startup@instance:web1
half pw read,write@tag:web
nets pw write@tag:web,networks,nodes
lost pw write@tga:web
view pw view
query pw view,query,console@tag:db
read pw read
"""
ROLES = "pool shop = tag:web\nrole team = write@pool:shop\n"
ALICE, TINA, RACK, LOOK = "alice:pw", "tina:pw", "rack:pw", "look:pw"
WEB1, WEB2, DB1 = "web1.example.com", "web2.example.com", "db1.example.com"
UUID1 = "00000000-0000-4000-8000-000000000001"


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[Rest]:
    with limited_lab(tmp_path, USERS, ROLES) as one:
        yield one


def names(rest: Rest, user: str, path: str = "/2/instances", key: str = "id") -> list[Any]:
    status, found, _headers = rest("GET", path, user=user)
    assert status == 200, found
    return [one[key] for one in found]


@pytest.mark.parametrize(
    ("user", "seen"),
    [
        ("root:pw", [DB1, WEB1, WEB2]),
        ("half:pw", [DB1, WEB1, WEB2]),
        (ALICE, [WEB1]),
        (TINA, [WEB1, WEB2]),
        (RACK, [WEB1, WEB2]),
        (LOOK, [WEB1, WEB2]),
        ("one:pw", [WEB1]),
        ("lost:pw", []),
    ],
)
def test_lists_show_what_is_his(rest: Rest, user: str, seen: list[str]) -> None:
    assert sorted(names(rest, user)) == seen
    assert sorted(names(rest, user, "/2/instances?bulk=1", "name")) == seen


def test_nothing_is_seen_when_the_last_instance_is_gone(rest: Rest) -> None:
    rest.master.rows["instance"] = [rest.master.instance(DB1)]
    assert names(rest, ALICE) == names(rest, ALICE, "/2/instances?bulk=1") == []


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", ""),
        ("DELETE", ""),
        ("PUT", "/startup"),
        ("GET", "/tags"),
        ("PUT", "/tags?tag=x"),
        ("GET", "/info"),
        ("GET", "/info?job=0"),
        ("GET", "/console"),
        ("PUT", "/modify"),
        ("POST", "/disk/0/grow"),
    ],
)
def test_what_he_does_not_see_does_not_exist(rest: Rest, method: str, path: str) -> None:
    body = {"amount": 1024} if "grow" in path else {} if path == "/modify" else None
    answers = []
    for name in (DB1, "db1", "00000000-0000-4000-8000-000000000002", "nosuch", "nosuch.a.b"):
        status, found, headers = rest(
            method, f"/2/instances/{name}{path}", body, user=ALICE, If_Match='"x"'
        )
        assert status == 404 and found["reason"] == f"instance {name} does not exist"
        answers.append({**found, "explain": "", "reason": "", **headers, "date": ""})
        answers[-1].pop("content-length")
    assert all(answer == answers[0] for answer in answers)
    assert not any(method == "SubmitJob" for method, _args in rest.master.asked)


@pytest.mark.parametrize("name", [WEB1, "web1", UUID1])
def test_a_job_names_the_instance_that_was_checked(rest: Rest, name: str) -> None:
    assert rest("PUT", f"/2/instances/{name}/startup", user=TINA)[:2] == (200, 12)
    (op,) = rest.master.ops
    assert (op["instance_name"], op["instance_uuid"]) == (WEB1, UUID1)


def test_what_he_sees_but_may_not_do(rest: Rest) -> None:
    status, found, _headers = rest("DELETE", f"/2/instances/{WEB1}", user=TINA)
    assert status == 403
    assert rest("PUT", f"/2/instances/{WEB2}/startup", user=LOOK)[0] == 403
    assert rest("PUT", f"/2/instances/{DB1}/startup", user="half:pw")[0] == 403
    assert (
        "half may not do this with instance db1"
        in (rest("PUT", f"/2/instances/{DB1}/startup", user="half:pw")[1]["explain"])
    )
    assert rest("PUT", f"/2/instances/{WEB1}/startup", user="half:pw")[0] == 200
    # The console is apart from reading.
    assert rest("GET", f"/2/instances/{WEB1}/console", user=LOOK)[0] == 403
    assert rest("GET", f"/2/instances/{WEB1}/console", user=TINA)[1]["message"] == WEB1
    path = "/2/query/instance?fields=name,console"
    assert rest("GET", path, user=LOOK)[0] == 403
    assert len(rest("GET", path, user=TINA)[1]["data"]) == 2


_CONSOLE_JOB = {"OP_ID": "OP_QUERY", "what": "instance", "fields": ["console"]}


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/2/instances/web1/console", None),
        ("GET", "/2/instances/web1/console-log", None),
        ("GET", "/2/query/instance?fields=name,console", None),
        ("GET", "/2/query/instance?fields=console&limit=1", None),
        ("GET", "/2/instances?fields=name,console", None),
        ("GET", "/2/instances?sort=-console", None),
        ("GET", '/2/instances?filter=name%20==%20"a"%20or%20console%20==%20"x"', None),
        ("GET", f"/2/instances?filter=console{'%20' * 5000}", None),
        ("PUT", "/2/query/instance", {"fields": ["console"], "filter": None}),
        ("PUT", "/2/query/instance", {"fields": ["console"], "names": [WEB1]}),
        ("PUT", "/2/query/instance", {"fields": ["name"], "filter": ["=~", "console", "x"]}),
        (
            "PUT",
            "/2/query/instance?limit=1",
            {"fields": ["name"], "filter": ["&", ["?", "name"], ["!", ["?", "console"]]]},
        ),
        ("PUT", "/2/run-query", {"op": _CONSOLE_JOB}),
        ("POST", "/2/jobs", {"ops": [_CONSOLE_JOB]}),
        (
            "POST",
            "/2/jobs",
            {"ops": [{**_CONSOLE_JOB, "fields": ["name"], "qfilter": ["?", "console"]}]},
        ),
        ("POST", "/2/jobs", {"ops": [{"OP_ID": "OP_INSTANCE_CONSOLE", "instance_name": "web1"}]}),
    ],
)
@pytest.mark.parametrize("user", ["view:pw", "query:pw", LOOK])
def test_no_way_to_a_console_without_the_right(
    rest: Rest, user: str, method: str, path: str, body: Any
) -> None:
    assert rest(method, path, body, user=user)[0] == 403
    assert not any("console" in str(args) for _method, args in rest.master.asked)


def test_other_questions_of_users_without_consoles(rest: Rest) -> None:
    for path in (
        "/2/instances?fields=name,status&limit=1",
        '/2/instances?filter=name%20==%20"console"',
        "/2/query/instance?fields=name",
        "/2/query/job?fields=id",
    ):
        assert rest("GET", path, user="view:pw")[0] == 200, path
    # The master says what is wrong with it.
    wrong = "/2/instances?filter=console%20=="
    assert rest("GET", wrong, user="view:pw")[0] == rest("GET", wrong, user="root:pw")[0] == 400
    op = {"OP_ID": "OP_QUERY", "what": "instance", "fields": ["name"]}
    assert rest("PUT", "/2/run-query", {"op": op}, user="view:pw")[0] == 200
    for user in ("root:pw", "read:pw"):
        assert rest("GET", "/2/query/instance?fields=console", user=user)[0] == 200


def query(rest: Rest, user: str, what: str, fields: list[str], qfilter: Any) -> tuple[int, Any]:
    body = {"fields": fields, "filter": qfilter}
    return rest("PUT", f"/2/query/{what}", body, user=user)[:2]


def test_queries_tell_nothing_of_others(rest: Rest) -> None:
    status, found = query(rest, TINA, "instance", ["name", "status"], None)
    assert [row[0][1] for row in found["data"]] == [WEB1, WEB2]
    assert [one["name"] for one in found["fields"]] == ["name", "status"]
    for qfilter in (
        ["=", "name", DB1],
        ["|", ["=", "name", "db1"], ["=[]", "tags", "db"]],
        ["!", ["=[]", "tags", "web"]],
        ["=~", "name", "^db"],
        ["=", "uuid", "00000000-0000-4000-8000-000000000002"],
    ):
        assert query(rest, TINA, "instance", ["name"], qfilter)[1]["data"] == []
    # The error of a comparison names values: only those of his own instances.
    status, found = query(rest, TINA, "instance", ["name"], ["=", "tags", "x"])
    assert status == 400 and "secret-tag" not in str(found)
    # Fields of other kinds of objects tell about the whole cluster.
    for what in ("node", "group", "network", "lock", "filter", "export", "extstorage", "cluster"):
        assert query(rest, TINA, what, ["name", "uuid"], None)[0] == 403, what


def test_names_which_he_does_not_see_are_errors(rest: Rest) -> None:
    def named(*wanted: str, user: str = TINA) -> tuple[int, Any]:
        body = {"fields": ["name"], "names": wanted}
        return rest("PUT", "/2/query/instance", body, user=user)[:2]

    assert named("web2", WEB1)[1]["data"] == [[[0, WEB2]], [[0, WEB1]]]
    answers = []
    for name in ("db1", DB1, "00000000-0000-4000-8000-000000000002", "nosuch"):
        status, found = named("web1", name)
        assert status == 404 and found["reason"] == f"instance {name} does not exist"
        answers.append({**found, "explain": "", "reason": ""})
    assert all(answer == answers[0] for answer in answers)
    assert named(WEB2, user=ALICE)[0] == 404
    # Of other objects he sees names in lists only, so a name is refused, whether it exists or not.
    for name in ("node1", "nosuch"):
        body = {"fields": ["name"], "names": [name]}
        assert rest("PUT", "/2/query/node", body, user=TINA)[0] == 403


def test_pages_tell_nothing_of_others(rest: Rest) -> None:
    def page(path: str, user: str = TINA) -> tuple[Any, dict[str, str]]:
        status, found, headers = rest("GET", path, user=user)
        assert status == 200, found
        return found, headers

    found, headers = page("/2/instances?limit=1")
    assert [one["id"] for one in found] == [WEB1] and headers["x-total-count"] == "2"
    found, headers = page('/2/instances?fields=name&filter=name%20!=%20"web1.example.com"')
    assert found == [{"name": WEB2}] and headers["x-total-count"] == "1"
    status, found, _headers = rest("GET", '/2/instances?filter=tags%20==%20"x"', user=TINA)
    assert status == 400 and "secret-tag" not in str(found)
    found, headers = page("/2/jobs?limit=5")
    assert [one["id"] for one in found] == [2] and headers["x-total-count"] == "1"
    assert page("/2/nodes?limit=5")[0] == [{"id": "node1", "uri": "/2/nodes/node1"}]
    assert rest("GET", "/2/nodes?fields=name,group&limit=1", user=TINA)[0] == 403
    # Rights change without the configuration, so its state is no tag of the list.
    before = page("/2/instances?limit=9")[1]["etag"]
    rest.master.rows["instance"].pop(0)
    assert page("/2/instances?limit=9")[1]["etag"] != before


def test_a_batch_has_the_limits_of_its_operations(rest: Rest) -> None:
    def batch(*paths: str) -> list[int]:
        given = [{"method": "PUT", "path": path, "id": path} for path in paths]
        body = {"operations": given, "check": "each"}
        status, found, _headers = rest("POST", "/2/batch", body, user=TINA)
        assert status == 200, found
        return [one["status"] for one in found]

    rest.master.answers["SubmitManyJobs"] = lambda jobs: [[True, 20 + n] for n in range(len(jobs))]
    start = "/2/instances/{}/startup"
    assert batch(start.format("web1"), start.format("db1"), "/2/instances/web2/rename") == [
        200,
        404,
        403,
    ]
    (op,) = rest.master.asked[-1][1][0][0]
    assert (op["instance_name"], op["instance_uuid"]) == (WEB1, UUID1)


def test_jobs_of_opcodes_have_the_limits_of_their_operations(rest: Rest) -> None:
    def submit(user: str, op_id: str, **params: Any) -> int:
        op = {"OP_ID": op_id, **params}
        return rest("POST", "/2/jobs", {"ops": [op]}, user=user)[0]

    assert submit(TINA, "OP_INSTANCE_STARTUP", instance_name="web1") == 200
    assert rest.master.ops[0]["instance_uuid"] == UUID1
    assert submit(TINA, "OP_INSTANCE_STARTUP", instance_name="db1") == 404
    uuid = "00000000-0000-4000-8000-000000000002"
    for name in ("web1", "nosuch"):
        params = {"instance_name": name, "instance_uuid": uuid}
        assert submit(TINA, "OP_INSTANCE_STARTUP", **params) == 403
    assert submit("half:pw", "OP_INSTANCE_STARTUP", instance_name="db1") == 403
    assert submit(TINA, "OP_INSTANCE_REMOVE", instance_name="web1") == 403
    assert submit(ALICE, "OP_INSTANCE_MOVE", instance_name="web1", target_node="node1") == 403
    assert submit(ALICE, "OP_INSTANCE_CHANGE_GROUP", instance_name="web1") == 403
    assert submit(ALICE, "OP_CLUSTER_VERIFY") == 403
    assert submit(ALICE, "OP_TAGS_SET", kind="cluster", tags=["x"]) == 403
    assert submit(ALICE, "OP_QUERY", what="instance", fields=["name"]) == 403
    both = [{"OP_ID": "OP_INSTANCE_STARTUP", "instance_name": name} for name in ("web1", "db1")]
    assert rest("POST", "/2/jobs", {"ops": both}, user=TINA)[0] == 404
    run = {"op": {"OP_ID": "OP_INSTANCE_QUERY_DATA", "instances": ["db1"]}}
    assert rest("PUT", "/2/run-query", run, user=ALICE)[0] == 404
    run["op"]["instances"] = []
    assert rest("PUT", "/2/run-query", run, user=ALICE)[0] == 403
    run["op"]["instances"] = ["web1"]
    assert rest("PUT", "/2/run-query", run, user=ALICE)[0] == 200


def test_a_right_for_one_operation_sets_no_more_parameters_elsewhere(rest: Rest) -> None:
    file = rest.master.users_path
    file.write_text(file.read_text() + "both pw instances_name_startup,write@tag:web\n")
    rest.master.users.refresh()
    op = {"OP_ID": "OP_INSTANCE_STARTUP", "instance_name": "db1", "hvparams": {"acpi": False}}
    assert rest("POST", "/2/jobs", {"ops": [op]}, user="both:pw")[0] == 403
    del op["hvparams"]
    assert rest("POST", "/2/jobs", {"ops": [op]}, user="both:pw")[0] == 200


def test_names_of_nodes_and_groups_are_those_of_his_instances(rest: Rest) -> None:
    assert names(rest, ALICE, "/2/nodes") == ["node1"]
    assert names(rest, ALICE, "/2/groups", "name") == ["rack1"]
    assert query(rest, TINA, "node", ["name"], None)[1]["data"] == [[[0, "node1"]]]
    assert query(rest, TINA, "node", ["name"], ["=", "name", "node2"])[1]["data"] == []
    assert names(rest, RACK, "/2/groups", "name") == ["rack1"]
    for path in ("/2/nodes?bulk=1", "/2/nodes/node1", "/2/nodes/node2", "/2/groups/rack1"):
        assert rest("GET", path, user=ALICE)[0] == 403
    # A role may name the resources.
    assert names(rest, "nets:pw", "/2/nodes") == ["node1"]
    assert rest("GET", "/2/networks", user="nets:pw")[0] == 200
    assert rest("GET", "/2/networks", user=ALICE)[0] == 403


@pytest.mark.parametrize(
    "path",
    ["/2/documents", "/2/tags", "/2/filters", "/2/networks", "/2/nodes/node1/role"],
)
def test_what_is_of_the_whole_cluster(rest: Rest, path: str) -> None:
    assert rest("GET", path, user=ALICE)[0] == 403
    assert not rest.master.asked


def test_the_cluster_without_its_nodes(rest: Rest) -> None:
    assert rest("GET", "/2/info", user=ALICE)[1] | {} == {
        "name": "c",
        "uuid": "u",
        "mtime": 1.0,
        "beparams": {"default": {"maxmem": 128, "vcpus": 1}},
        "vg_name": None,
        "drbd_helper": None,
    }
    assert rest("GET", "/2/info")[1]["master"] == "node1"
    assert rest("GET", "/2/os", user=ALICE)[:2] == (200, [])


# -- jobs -----------------------------------------------------------------------------------------


def test_jobs_are_his_own_and_those_of_his_instances(rest: Rest) -> None:
    assert names(rest, "root:pw", "/2/jobs") == [1, 2, 3, 4, 5]
    assert names(rest, ALICE, "/2/jobs") == [2, 3]
    assert names(rest, TINA, "/2/jobs?bulk=1") == [2]
    found = query(rest, TINA, "job", ["id"], None)[1]["data"]
    assert [row[0][1] for row in found] == [2]
    assert query(rest, TINA, "job", ["id"], ["=", "id", 1])[1]["data"] == []
    for number in (1, 4, 5, 77):
        for method, path in (("GET", ""), ("DELETE", ""), ("GET", "/wait?fields=status")):
            status, found, _headers = rest(method, f"/2/jobs/{number}{path}", user=ALICE)
            assert (status, found["reason"]) == (404, f"job {number} does not exist")
    assert rest("GET", "/2/jobs/2", user=ALICE)[1]["id"] == 2
    assert rest("DELETE", "/2/jobs/2", user=ALICE)[0] == 200
    assert rest("GET", "/2/jobs/3/wait?fields=status", user=ALICE)[0] == 200
    # He sees the job of another user, and may not cancel it.
    assert rest("GET", "/2/jobs/2", user=LOOK)[0] == 200
    assert rest("DELETE", "/2/jobs/2", user=LOOK)[0] == 403
    assert rest("GET", f"/2/jobs/{'9' * 30}", user=ALICE)[0] == 404


def test_the_subject_of_a_job_is_asked_for_once(rest: Rest) -> None:
    for _time in range(3):
        names(rest, ALICE, "/2/jobs")
    asked = [args for method, args in rest.master.asked if "ops" in args[-1]]
    assert asked == [([1, 2, 3, 4, 5], ["id", "ops"])]


def test_a_job_depends_on_jobs_that_he_sees(rest: Rest) -> None:
    path = f"/2/instances/{WEB1}/shutdown"
    assert rest("PUT", path, {"depends": [[1, []]]}, user=ALICE)[0] == 404
    assert rest("PUT", path, {"depends": [[3, []], [-1, []]]}, user=ALICE)[0] == 200


# -- new instances and changes ---------------------------------------------------------------------

NEW = {
    "__version__": 1,
    "mode": "create",
    "instance_name": "web9.example.com",
    "disk_template": "plain",
    "disks": [{"size": 1024}],
    "nics": [{"network": "net"}],
    "os_type": "debian",
}


def create(rest: Rest, user: str, **more: Any) -> tuple[int, Any]:
    return rest("POST", "/2/instances", {**NEW, **more}, user=user)[:2]


def test_a_new_instance_belongs_to_his_rights(rest: Rest) -> None:
    assert create(rest, ALICE) == (200, 12)
    assert rest.master.ops[0]["tags"] == ["owner:alice"]
    assert create(rest, "half:pw", tags=["web", "mine"])[0] == 200
    assert rest.master.ops[0]["tags"] == ["mine", "owner:half", "web"]
    status, found = create(rest, "half:pw")
    assert status == 403 and "tag:web" in found["explain"]
    assert create(rest, RACK)[0] == 403
    assert create(rest, RACK, group_name="rack1")[0] == 200
    assert create(rest, RACK, group_name="rack2")[0] == 403
    assert create(rest, RACK, pnode="node1")[0] == 200
    assert create(rest, RACK, pnode="node2")[0] == 403
    assert create(rest, RACK, pnode="node1", snode="node2")[0] == 403
    # An operator makes none at all.
    assert create(rest, TINA, tags=["web"])[0] == 403
    # Others do as ever, and nothing is added.
    assert create(rest, "root:pw")[0] == 200 and rest.master.ops[0].get("tags", []) == []


@pytest.mark.parametrize(
    "more",
    [
        {"pnode": "node1"},
        {"disks": [{"adopt": "volume"}]},
        {"disks": [{"size": 1024, "vg": "other"}]},
        {"nics": [{"link": "br1"}]},
        {"nics": [{"vlan": "7"}]},
        {"hvparams": {"kvm_extra": "-S"}},
        {"hvparams": {"cdrom_image_path": "/etc/shadow"}},
        {"hvparams": {"disk_aio": "native", "kvm_path": "/bin/sh"}},
        {"hypervisor": "chroot"},
        {"osparams": {"os-image": "/etc/shadow"}},
        {"mode": "import", "src_node": "node1", "src_path": "/x"},
        {"file_storage_dir": "x"},
        {"ignore_ipolicy": True},
        {"instance_communication": True},
        {"tags": ["htools:iextags:x"]},
        {"tags": ["owner:bob"]},
        {"tags": ["db9", "web"]},
    ],
)
def test_what_a_new_instance_may_not_have(rest: Rest, more: dict[str, Any]) -> None:
    status, found = create(rest, ALICE, **more)
    assert status == 403, found
    body = {"instances": [{**NEW, **more}]}
    assert rest("POST", "/2/instances-multi-alloc", body, user=ALICE)[0] == 403
    assert not any(method == "SubmitJob" for method, _args in rest.master.asked)


def test_harmless_parameters(rest: Rest) -> None:
    more = {
        "hvparams": {"boot_order": "disk", "cdrom_image_path": "", "cpu_type": "host"},
        "beparams": {"maxmem": 512},
        "tags": ["mine"],
        "osparams": {"locale": "C"},
    }
    assert create(rest, ALICE, **more)[0] == 200
    body = {"instances": [{**NEW, **more}, {**NEW, "instance_name": "web8"}]}
    assert rest("POST", "/2/instances-multi-alloc", body, user=ALICE)[0] == 200
    (op,) = rest.master.ops
    assert [one["tags"] for one in op["instances"]] == [["mine", "owner:alice"], ["owner:alice"]]


def test_an_instance_does_not_leave_the_right(rest: Rest) -> None:
    path = f"/2/instances/{WEB1}"
    assert rest("DELETE", f"{path}/tags?tag=owner:alice", user=ALICE)[0] == 403
    assert rest("DELETE", f"{path}/tags?tag=web", user="half:pw")[0] == 403
    assert rest("PUT", f"{path}/tags?tag=mine", user=ALICE)[0] == 200
    assert rest("DELETE", f"{path}/tags?tag=mine", user=ALICE)[0] == 200
    assert rest.master.ops[0]["name"] == WEB1
    # A tag with rights of others needs a right for that tag, on both ways.
    assert rest("PUT", f"{path}/tags?tag=web", user=ALICE)[0] == 403
    assert rest("DELETE", f"{path}/tags?tag=web", user=ALICE)[0] == 403
    assert rest("PUT", f"{path}/tags?tag=web", user="half:pw")[0] == 200
    assert rest("PUT", f"{path}/migrate", {"target_node": "node1"}, user=ALICE)[0] == 403
    assert rest("PUT", f"{path}/migrate", {"target_node": "node2"}, user=RACK)[0] == 403
    assert rest("PUT", f"{path}/migrate", {"target_node": "node1"}, user=RACK)[0] == 200
    assert rest("PUT", f"{path}/migrate", {}, user=ALICE)[0] == 200
    body = {"disks": [["attach", {"uuid": "x"}]]}
    assert rest("PUT", f"{path}/modify", body, user=ALICE)[0] == 403
    body = {"disks": [["add", {"size": 1024}]], "beparams": {"maxmem": 2048}}
    assert rest("PUT", f"{path}/modify", body, user=ALICE)[0] == 200
    assert rest("PUT", f"{path}/modify", {"pnode": "node2"}, user=ALICE)[0] == 403


def test_names_of_instances_limit_their_new_names(rest: Rest) -> None:
    file = Path(rest.master.users_path)
    file.write_text(file.read_text() + "namer pw write@instance:web*\n")
    rest.master.users.refresh()
    path = f"/2/instances/{WEB1}/rename"
    assert rest("PUT", path, {"new_name": "db7.example.com"}, user="namer:pw")[0] == 403
    assert rest("PUT", path, {"new_name": "web7.example.com"}, user="namer:pw")[0] == 200
    assert create(rest, "namer:pw", instance_name="db9")[0] == 403
    assert create(rest, "namer:pw", instance_name="web9")[0] == 200
    copy = f"/2/instances/{WEB1}/copy"
    assert rest("POST", copy, {"new_name": "db9"}, user="namer:pw")[0] == 403
    assert rest("POST", copy, {"new_name": "web9"}, user="namer:pw")[0] == 200
    assert rest("POST", copy, {"new_name": "anything"}, user=ALICE)[0] == 200


def test_exports_and_other_nodes_are_not_his(rest: Rest) -> None:
    path = f"/2/instances/{WEB1}"
    assert rest("PUT", f"{path}/export", {"destination": "node1"}, user=ALICE)[0] == 403
    assert rest("PUT", f"{path}/prepare-export?mode=remote", user=ALICE)[0] == 403
    assert rest("POST", "/2/nodes/node1/migrate", user=ALICE)[0] == 403
    assert rest("PUT", "/2/groups/rack1/modify", {}, user=RACK)[0] == 403


def test_one_question_for_one_request(rest: Rest) -> None:
    rest("PUT", f"/2/instances/{WEB1}/startup", user=TINA)
    assert [method for method, _args in rest.master.asked] == ["Query", "SubmitJob"]
