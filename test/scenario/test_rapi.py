"""The REST daemon on a real cluster: every resource, clients by others, failures of the master."""

from __future__ import annotations

import base64
import http.client
import itertools
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from harness import PATIENCE_S, ROOT, Cluster, wait_until
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode

from fakes.described import Description, can_be_made

NODE1, NODE2, NODE3 = (f"node{number}.example.com" for number in (1, 2, 3))
WEB = "web.example.com"
HTOOLS = Path("/usr/lib/ganeti/3.0/usr/bin/htools")
DRIVE = Path(__file__).with_name("rapi_client_drive.py")
PACKAGE = "python3-ganeti-rapi"
# Clients that keep their connection, and as many that never finish what they began.
_STAYING = 500 if "GANETI_LONG" in os.environ else 200

# What a virtual cluster cannot do, or this version does not: the job ends, and says why.
MAY_FAIL = {
    "EndNodeMaintenance",
    "PowercycleNode",
    "ModifyNodeStorageUnits",
    "RepairNodeStorageUnits",
    "ReplaceInstanceDisks",
    "PrepareExport",
    "ExportInstance",
    "EvacuateNode",
    "MigrateNode",
    "RecreateInstanceDisks",
    "ReinstallInstance",
}


class Rest:
    """Requests to one node, each on a connection of its own."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.called: set[tuple[str, str]] = set()
        self._context = ssl.create_default_context()
        self._context.check_hostname = False
        self._context.verify_mode = ssl.CERT_NONE

    def connect(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(
            self.address, 5080, context=self._context, timeout=PATIENCE_S
        )

    def raw(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        user: str | None = "root:secret",
        **headers: str,
    ) -> http.client.HTTPResponse:
        self.called.add((method, path.partition("?")[0]))
        found = {name.replace("_", "-"): value for name, value in headers.items()}
        if user is not None:
            found["Authorization"] = "Basic " + base64.b64encode(user.encode()).decode()
        if body is not None:
            found["Content-Type"] = "application/json"
        connection = self.connect()
        connection.request(method, path, None if body is None else json.dumps(body), found)
        return connection.getresponse()

    def __call__(
        self,
        method: str,
        path: str,
        body: Any = None,
        **options: Any,
    ) -> tuple[int, Any]:
        with self.raw(method, path, body, **options) as response:
            return response.status, json.loads(response.read())

    def get(self, path: str) -> Any:
        status, value = self("GET", path)
        assert status == 200, value
        return value

    def submit(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """Submit a job and wait until it has ended."""
        status, number = self(method, path, body)
        assert status == 200 and isinstance(number, int), number
        return self.end_of(number)

    def job(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """As :meth:`submit`; the job must succeed."""
        job = self.submit(method, path, body)
        assert job["status"] == "success", job["opresult"]
        return job

    def batch(self, *operations: dict[str, Any], check: str = "all") -> list[dict[str, Any]]:
        """Send a batch, and return the answer to each operation."""
        status, found = self("POST", "/2/batch", {"operations": operations, "check": check})
        assert status == 200, found
        return list(found)

    def end_of(self, number: int) -> dict[str, Any]:
        """Wait until a job has ended, and return it."""
        known: Any = None
        while True:
            wanted = {"fields": ["status"], "previous_job_info": known}
            change = self("GET", f"/2/jobs/{number}/wait", wanted)[1]
            if change is not None:
                known = change["job_info"]
                if known[0] in ("success", "error", "canceled"):
                    return dict(self.get(f"/2/jobs/{number}"))

    def fails(self, method: str, path: str, body: Any = None) -> None:
        """A job which this cluster cannot do."""
        assert self.submit(method, path, body)["status"] == "error"


def address(cluster: Cluster, node: str) -> str:
    for line in (cluster.directory / "hosts").read_text().splitlines():
        ip, name, *_ = line.split()
        if name == node:
            return ip
    raise AssertionError(f"no node {node}")


def passwd(cluster: Cluster, user: str, rights: str) -> None:
    program = str(ROOT / "tools" / "rapi-passwd")
    cluster.run(program, user, "--rights", rights, "--stdin", stdin="secret\n").ok()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    found = Cluster(tmp_path_factory.mktemp("rapi") / "vc", 3, "--hypervisor", "fake")
    try:
        found.make_os("noop")
        passwd(found, "root", "write")
        passwd(found, "look", "@readonly")
        yield found
    finally:
        found.destroy()


@pytest.fixture(scope="module")
def rest(cluster: Cluster) -> Rest:
    return Rest(address(cluster, NODE1))


CREATE = {
    "__version__": 1,
    "name": WEB,
    "mode": "create",
    "disk_template": "file",
    "disks": [{"size": 16}],
    "nics": [{}],
    "os": "noop",
    "pnode": NODE2,
    "no_install": True,
    "name_check": False,
    "ip_check": False,
    "start": False,
}


def _requests_of_commands(rest: Rest) -> None:
    """What the commands on a machine outside of the cluster ask."""
    verify = {"OP_ID": "OP_CLUSTER_VERIFY_CONFIG"}
    job = rest.job("POST", "/2/jobs", {"ops": [verify]})
    number = job["id"]
    assert rest("PUT", f"/2/jobs/{number}/priority", 5)[1][0] is False
    assert rest("POST", f"/2/jobs/{number}/archive") == (200, True)
    assert rest("POST", "/2/jobs/archive", {"age": 86400}) == (200, [0, 0])
    query = {"OP_ID": "OP_INSTANCE_QUERY_DATA", "instances": ["nosuch"], "static": True}
    assert rest("PUT", "/2/run-query", {"op": query})[0] == 404
    assert rest.get("/2/config-values?fields=master_node,drain_flag") == [NODE1, False]
    assert rest("PUT", "/2/queue/drain")[0] == 200
    assert rest.get("/2/config-values?fields=drain_flag") == [True]
    assert rest("DELETE", "/2/queue/drain")[0] == 200
    assert rest("PUT", "/2/watcher/pause", {"until": 2_000_000_000}) == (200, 2_000_000_000)
    assert rest.get("/2/watcher/pause") == 2_000_000_000
    assert rest("DELETE", "/2/watcher/pause") == (200, None)
    assert rest("GET", "/2/guests/usage")[0] == 200
    assert rest("GET", "/2/instances/nosuch.example.com/console-log")[0] == 404


def _use_sessions(rest: Rest) -> None:
    """Log in twice, end one session by its id and the other one by logging out."""
    cookies = []
    for _ in range(2):
        password = {"user": "root", "password": "secret"}
        with rest.raw("POST", "/2/login", password, user=None) as answer:
            assert answer.status == 200
            cookies.append(answer.headers["Set-Cookie"].partition(";")[0])

    def ask(method: str, path: str, cookie: str) -> tuple[int, Any]:
        # Without this header, a change by cookie could come from the page of another site.
        return rest(method, path, user=None, cookie=cookie, sec_fetch_site="same-origin")

    first, second = (ask("GET", "/2/session", cookie)[1]["session"]["id"] for cookie in cookies)
    assert {first, second} <= {one["id"] for one in ask("GET", "/2/sessions", cookies[0])[1]}
    assert ask("DELETE", f"/2/sessions/{second}", cookies[0])[0] == 200
    assert ask("GET", "/2/session", cookies[1])[0] == 401
    assert ask("POST", "/2/logout", cookies[0])[0] == 200
    assert ask("GET", "/2/session", cookies[0])[0] == 401


def test_every_resource(cluster: Cluster, rest: Rest) -> None:
    """All methods of all resources; what is left out fails at the end."""
    assert rest.get("/") is None and rest.get("/2") is None and rest.get("/version") == 2
    assert "instance-create-reqv1" in rest.get("/2/features")
    info = rest.get("/2/info")
    assert info["master"] == NODE1 and info["drbd_helper"] == info["drbd_usermode_helper"]
    assert rest.get("/2/quota") == []
    for word in ("", "/callback", "/logout"):
        assert rest("GET", f"/2/login/oidc{word}")[0] == 404
    _use_sessions(rest)
    assert "noop" in rest.get("/2/os")
    assert "noop" in [one["name"] for one in rest.get("/2/os?bulk=1")]
    rest.job("PUT", "/2/modify", {"maintain_node_health": False})
    rest.job("PUT", "/2/redistribute-config")
    rest.job("PUT", "/2/tags?tag=a&tag=b&reason=because")
    assert rest.get("/2/tags") == ["a", "b"]
    rest.job("DELETE", "/2/tags?tag=a")

    document = "/2/documents/d"
    status, tag = rest("PUT", document, {"a": 1}, if_none_match="*")
    assert status == 200
    assert rest.get("/2/documents") == [{"name": "d", "uri": document}]
    assert rest("PUT", document, {}, if_match='"other"')[0] == 412
    assert rest.get(document) == {"a": 1}
    assert rest("DELETE", document, if_match=tag) == (200, None)

    receiver = "https://receiver.invalid"
    added = rest("POST", "/2/webhooks", {"name": "w", "url": f"{receiver}/x", "kind": ["job"]})
    assert added[0] == 200 and added[1]["secret"].startswith("whsec_")
    assert [one["receiver"] for one in rest.get("/2/webhooks")] == [receiver]
    tested = rest("POST", "/2/webhooks/w/test")[1]
    assert not tested["accepted"] and tested["problem"].startswith(receiver)
    assert rest("DELETE", "/2/webhooks/w") == (200, None)

    assert rest.get("/2/groups") == [{"name": "default", "uri": "/2/groups/default"}]
    rest.job("POST", "/2/groups", {"name": "g"})
    rest.job("PUT", "/2/groups/g/modify", {"alloc_policy": "last_resort"})
    assert rest.get("/2/groups/g")["alloc_policy"] == "last_resort"
    rest.job("PUT", "/2/groups/g/assign-nodes?dry-run=1", {"nodes": [NODE3]})
    rest.job("PUT", "/2/groups/g/rename", {"new_name": "h"})
    rest.job("PUT", "/2/groups/h/tags?tag=t")
    assert rest.get("/2/groups/h/tags") == ["t"]
    rest.job("DELETE", "/2/groups/h/tags?tag=t")
    rest.job("DELETE", "/2/groups/h")

    rest.job("POST", "/2/networks", {"network_name": "n", "network": "192.0.2.0/24"})
    assert rest.get("/2/networks") == [{"name": "n", "uri": "/2/networks/n"}]
    with_network = rest.get("/2/history?limit=1")["commits"][0]["serial"]
    rest.job(
        "PUT",
        "/2/networks/n/connect",
        {"group_name": "default", "network_mode": "bridged", "network_link": "br0"},
    )
    assert rest.get("/2/networks/n")["group_list"] == [["default", "bridged", "br0", ""]]
    rest.job("PUT", "/2/networks/n/disconnect", {"group_name": "default"})
    rest.job("PUT", "/2/networks/n/modify", {"mac_prefix": "aa:00:01"})
    rest.job("PUT", "/2/networks/n/rename", {"new_name": "m"})
    rest.job("PUT", "/2/networks/m/tags?tag=t")
    assert rest.get("/2/networks/m/tags") == ["t"]
    rest.job("DELETE", "/2/networks/m/tags?tag=t")
    rest.job("DELETE", "/2/networks/m")

    node = f"/2/nodes/{NODE3}"
    assert [one["id"] for one in rest.get("/2/nodes")] == [NODE1, NODE2, NODE3]
    assert rest.get(node)["secondary_ip"] == rest.get(node)["sip"]
    unit = rest.get(node)["storage"][0]
    assert unit["sunit"][0] == "file" and 0 < unit["free"] <= unit["total"]
    assert rest.get(f"{node}/role") == "master-candidate"
    rest.job("PUT", f"{node}/role?force=1", "drained")
    assert rest.get(f"{node}/role") == "drained"
    rest.job("PUT", f"{node}/role", "regular")
    rest.job("POST", f"{node}/modify", {"master_candidate": True})
    rest.fails("POST", f"{node}/powercycle?force=1")
    rest.job("GET", f"{node}/storage?storage_type=file&output_fields=name,free")
    rest.fails("PUT", f"{node}/storage/modify?storage_type=lvm-pv&name=x&allocatable=1")
    rest.fails("PUT", f"{node}/storage/repair?storage_type=lvm-vg&name=x")
    assert rest.get(f"{node}/maintenance") is None
    rest.job("PUT", f"{node}/maintenance", {"stop": True})
    assert rest.get(f"{node}/maintenance")["master_candidate"]
    rest.job("DELETE", f"{node}/maintenance", {"move_back": False})
    rest.job("PUT", f"{node}/tags?tag=t")
    assert rest.get(f"{node}/tags") == ["t"]
    rest.job("DELETE", f"{node}/tags?tag=t")

    web = f"/2/instances/{WEB}"
    rest.job("POST", "/2/instances", CREATE)
    assert rest.get("/2/instances") == [{"id": WEB, "uri": web}]
    assert rest.get(web)["beparams"]["memory"] == rest.get(web)["beparams"]["maxmem"]
    with_web = rest.get("/2/history?limit=1")["commits"][0]["serial"]
    not_kept = dict.fromkeys(("oper_state", "oper_ram", "oper_vcpus", "status"))
    then = {**rest.get(web), **not_kept}
    job = rest.job("GET", f"{web}/info?static=1")
    assert WEB in str(job["opresult"])
    assert rest("GET", f"{web}/console")[0] == 503
    rest.job("PUT", f"{web}/activate-disks")
    rest.job("PUT", f"{web}/deactivate-disks")
    rest.job("POST", f"{web}/disk/0/grow", {"amount": 8})
    assert rest.get(web)["disk.sizes"] == [24]
    assert rest.job("POST", f"{web}/snapshots", {"snapshot_name": "a"})["opresult"] == ["a"]
    (found,) = rest.job("GET", f"{web}/snapshots?job=1")["opresult"][0]
    assert rest.get(f"{web}/snapshots") == {"snapshots": [found], "warnings": []}
    assert rest.get(f"{web}/info?job=0")["disks"][0]["size"] == 24
    assert (found["instance"], found["snapshot"], found["disk"], found["size"]) == (WEB, "a", 0, 24)
    rest.job("POST", f"{web}/snapshots/a/restore")
    copy = {"new_name": "copy.example.com", "snapshot_name": "a", "pnode": NODE2}
    rest.job("POST", f"{web}/copy", copy)
    rest.job("DELETE", "/2/instances/copy.example.com")
    rest.job("DELETE", f"{web}/snapshots/a")
    rest.fails("DELETE", f"{web}/snapshots/a")
    rest.job("PUT", f"{web}/startup")
    assert rest.get(f"{web}/console")["instance"] == WEB
    _check_plans(rest, web)
    rest.job("POST", f"{web}/reboot?type=hard")
    rest.job("PUT", f"{web}/shutdown", {"timeout": 1})
    rest.job("PUT", f"{web}/modify", {"beparams": {"vcpus": 2}})
    rest.job("PUT", f"{web}/tags?tag=t")
    assert rest.get(f"{web}/tags") == ["t"]
    rest.job("DELETE", f"{web}/tags?tag=t")
    for method, path, body in (
        ("POST", "recreate-disks", {}),
        ("POST", "replace-disks", {"mode": "replace_auto"}),
        ("PUT", "migrate", {}),
        ("PUT", "failover", {}),
        ("PUT", "prepare-export?mode=local", None),
        ("PUT", "export", {"destination": NODE1}),
        ("DELETE", "export", None),
        ("POST", "reinstall", {"os": "noop", "start": False}),
    ):
        # Those that need what this cluster lacks fail as jobs; none is refused.
        assert rest.submit(method, f"{web}/{path}", body)["status"] in ("success", "error")
    rest.submit("POST", f"/2/nodes/{NODE2}/evacuate?dry-run=1", {"mode": "all"})
    rest.submit("POST", f"/2/nodes/{NODE2}/migrate?mode=live&dry-run=1")
    rest.submit(
        "POST",
        "/2/instances-multi-alloc?dry-run=1",
        {"instances": [{**CREATE, "name": "x.example.com"}]},
    )
    rest.submit("PUT", f"{web}/shutdown")
    rest.job(
        "PUT",
        f"{web}/rename",
        {"new_name": "www.example.com", "name_check": False, "ip_check": False},
    )
    rest.job("DELETE", "/2/instances/www.example.com")
    assert rest.get("/2/instances?bulk=1") == []

    past = f"/2/at/{with_web}"
    assert rest.get(f"{past}/instances") == [{"id": WEB, "uri": f"{past}/instances/{WEB}"}]
    assert rest.get(f"{past}/instances/{WEB}") == then
    assert rest.get(f"{past}/instances?bulk=1") == [then]
    assert [one["id"] for one in rest.get(f"{past}/nodes")] == [NODE1, NODE2, NODE3]
    assert rest.get(f"{past}/nodes/{NODE2}")["pinst_list"] == [WEB]
    assert rest.get(f"{past}/groups/default")["node_cnt"] == 3
    assert rest.get(f"{past}/groups")[0]["name"] == "default"
    assert rest.get(f"{past}/info")["master"] == NODE1
    assert rest.get(f"/2/at/{with_network}/networks")[0]["name"] == "n"
    assert rest.get(f"/2/at/{with_network}/networks/n")["network"] == "192.0.2.0/24"
    assert rest("GET", f"/2/at/{with_network}/instances/{WEB}")[0] == 404
    assert rest("GET", "/2/at/99999999/info")[0] == 404

    status, uuid = rest("POST", "/2/filters", {"priority": 9, "predicates": []})
    assert status == 200
    rule = f"/2/filters/{uuid}"
    assert rest("PUT", rule, {"priority": 8, "predicates": []}) == (200, uuid)
    assert rest.get(rule)["priority"] == 8
    assert rest.get("/2/filters") == [{"uuid": uuid, "uri": rule}]
    assert rest("DELETE", rule) == (200, None)
    assert rest("GET", rule)[0] == 404

    found = rest.batch({"method": "GET", "path": "/2/info"})
    assert found[0]["body"]["master"] == NODE1
    _requests_of_commands(rest)

    assert rest.get("/2/jobs")[0]["id"] == 1
    assert rest.get("/2/jobs?bulk=1")[0]["id"] == 1
    assert rest("DELETE", "/2/jobs/1")[1][0] is False
    assert rest("GET", "/2/jobs/999999")[0] == 404
    explained = rest.get("/2/jobs/1/explain")["lines"][1:]
    assert explained == ["It waits for nothing: it has ended.", "It holds no lock."]
    assert rest("GET", "/2/jobs/999999/explain")[0] == 404
    first, missing = rest.get("/2/jobs/explain?ids=1,999999")
    assert first["job"]["id"] == 1 and missing is None
    assert rest.get("/2/queue")["queue"]["unfinished"] == 0
    assert rest.get("/2/images") == {"images": [], "problems": []}
    status = rest.get("/2/failover-status")
    assert status["master"] == NODE1 and status["witness"] is None
    assert {one["name"]: one["sight"]["master"] for one in status["nodes"]} == dict.fromkeys(
        (NODE1, NODE2, NODE3), NODE1
    )
    ids = [one[1] for one in rest.job("POST", "/2/verify", {})["opresult"][0]["jobs"]]
    assert {rest.end_of(number)["status"] for number in ids} == {"success"}
    found = rest.get("/2/verify")
    assert {one["job"] for one in found["parts"]} == set(ids) and found["unchecked"] == []
    assert rest.get("/2/events/log?after=oldest")["lost"] is False
    made = rest.get(f"/2/audit?object={WEB}&event=ended&limit=1000")["entries"][-1]
    assert made["ops"] == [f"INSTANCE_CREATE({WEB})"] and made["person"] == "root"
    assert len(rest.get("/2/query/node?fields=name,role")["data"]) == 3
    _questions_about_placement(rest)
    _credentials(rest)
    _second_factors(rest)
    found = rest("PUT", "/2/query/node", {"fields": ["name"], "qfilter": ["=", "name", NODE2]})[1]
    assert found["data"] == [[[0, NODE2]]]
    assert rest.get("/2/query/node/fields?fields=name")["fields"][0]["name"] == "name"
    assert rest("PUT", "/2/query/node", {"fields": ["name"], "qfilter": ["?"]})[0] == 400
    with rest.raw("GET", "/2/doc") as page, rest.raw("GET", "/2/events") as events:
        assert page.getheader("Content-Type") == "text/html"
        assert events.getheader("Content-Type") == "text/event-stream"

    description = rest.get("/2/openapi.json")
    missed = [
        (method, path)
        for path, one in description["paths"].items()
        for method in one
        if method != "parameters"
        and not any(method.upper() == called and _fits(path, real) for called, real in rest.called)
    ]
    assert not missed


def _credentials(rest: Rest) -> None:
    status, made = rest("POST", "/2/tokens", {"label": "ci", "rights": "read"})
    assert status == 200, made
    (found,) = [one for one in rest.get("/2/tokens") if one["id"] == made["id"]]
    assert found["label"] == "ci" and "token" not in found
    assert rest("DELETE", f"/2/tokens/{made['id']}") == (200, None)
    assert rest.get("/2/certificates") == []
    assert rest("DELETE", "/2/certificates/nosuch")[0] == 404


def _second_factors(rest: Rest) -> None:
    assert rest.get("/2/totp") == {"active": False, "recovery_codes": 0}
    assert rest("POST", "/2/totp", {"password": "wrong"})[0] == 403
    assert rest("PUT", "/2/totp", {"code": "123456"})[0] == 409
    assert rest.get("/2/passkeys") == []
    assert rest("POST", "/2/passkeys/challenge", {"password": "wrong"})[0] == 403
    assert rest("POST", "/2/passkeys", {"credential": {}})[0] == 400
    assert rest("DELETE", "/2/passkeys/x")[0] == 404
    status, options = rest("POST", "/2/login/passkey/challenge")
    assert status == 200 and options["userVerification"] == "required"
    assert rest("POST", "/2/login/passkey", {"credential": {}})[0] == 401


def _questions_about_placement(rest: Rest) -> None:
    """Real processes read the cluster from the real master daemon."""
    found = rest.get("/2/capacity?max-length=2&disk-template=diskless")
    assert found["standard"]["instances"] == 2 and found["unknown_nodes"] == []
    (group,) = rest.get("/2/balance?max-length=1")["groups"]
    assert group["final_score"] <= group["initial_score"]
    status, found = rest("POST", "/2/what-if", {"changes": [f"fail-node={NODE2}"]})
    assert status == 200 and found["after"]["offline_nodes"] == 1
    size = {"memory": 128, "vcpus": 1, "disks": [], "disk_template": "diskless"}
    status, found = rest("POST", "/2/place", {**size, "nodes": [NODE2]})
    assert (status, found["chosen"]) == (200, [NODE2])
    assert rest("GET", "/2/capacity?group=nosuch")[0] == 400


def _fits(path: str, real: str) -> bool:
    wanted, found = path.split("/"), real.split("/")
    return len(wanted) == len(found) and all(
        one.startswith("{") or one == other for one, other in zip(wanted, found, strict=True)
    )


def test_shapes_of_answers(rest: Rest) -> None:
    """Members, kinds of values and statuses are those which version 3.0.2 sends."""
    rest.job("POST", "/2/instances", {**CREATE, "name": "instance1.example.com", "start": False})
    rest.job("PUT", "/2/instances/instance1.example.com/startup")
    rest.job("POST", "/2/networks", {"network_name": "net1", "network": "192.0.2.0/24"})
    recorded = json.loads((ROOT / "test/data/rapi-shapes.json").read_text())
    for path, (status, shape) in recorded.items():
        found, value = rest("GET", path.replace("/202", "/1"))
        assert found == status, (path, value)
        _compare(path, shape, value)
    rest.job("DELETE", "/2/networks/net1")
    rest.job("DELETE", "/2/instances/instance1.example.com")


# Newer than what was recorded, or ours.
_NEWER = {
    "auto_failover",
    "witness",
    "custom_osparams",
    "disk_state",
    "hv_state",
    "rapi_require_authentication",
    "job_execution",
    "reason",
    "storage",
    "auto_balance",
    "auto_instance_failover",
    "node_watchdog",
}


def _compare(path: str, shape: Any, value: Any) -> None:
    if isinstance(shape, list):
        assert isinstance(value, list), path
        if value:
            _compare(path, shape[0], value[0])
    elif isinstance(shape, dict):
        assert set(value) - _NEWER == set(shape), path
        for name, kind in shape.items():
            assert _kind(value[name]) in (kind, "null") or kind == "null", (path, name)
    else:
        assert _kind(value) == shape, path


def _kind(value: Any) -> str:
    name = type(value).__name__
    return {"int": "number", "float": "number", "NoneType": "null"}.get(name, name)


def test_rights_and_states(cluster: Cluster, rest: Rest) -> None:
    assert rest("PUT", "/2/tags?tag=x", user=None)[0] == 401
    assert rest("PUT", "/2/tags?tag=x", user="look:secret")[0] == 403
    assert rest("GET", "/2/query/node?fields=name", user="look:secret")[0] == 200
    assert rest("GET", "/2/info", user="look:wrong")[0] == 401
    # The daemon notices by itself.
    passwd(cluster, "look", "tags:PUT")
    wait_until(
        lambda: rest("PUT", "/2/tags?tag=x&dry-run=1", user="look:secret")[0] == 200,
        "the new right holds",
    )
    node = f"/2/nodes/{NODE2}"
    with rest.raw("GET", node) as response:
        tag = response.getheader("ETag") or ""
    with rest.raw("GET", node, If_None_Match=tag) as response:
        assert response.status == 304 and response.read() == b""
    rest.job("PUT", f"{node}/tags?tag=changed")
    status, body = rest("PUT", f"{node}/role", "drained", If_Match=tag)
    assert status == 412 and "changed" in body["explain"]
    log = cluster.path(NODE1, "var/log/ganeti/rapi-access.log").read_text()
    assert " - look [" in log and '"PUT /2/tags?tag=x HTTP/1.1" 403' in log


def test_the_cluster_demands_a_password(cluster: Cluster, rest: Rest) -> None:
    assert rest("GET", "/2/info", user=None)[0] == 200
    path = f"/2/instances/{next(iter(rest.get('/2/instances')), {'id': 'none'})['id']}/info"
    assert rest("GET", path, user=None)[0] == 401
    assert "can be read without a password" in cluster.run("gnt-cluster", "verify").stdout
    cluster.run("gnt-cluster", "modify", "--rapi-require-authentication=yes").ok()
    wait_until(lambda: rest("GET", "/2/info", user=None)[0] == 401, "a password is needed")
    assert rest.get("/2/info")["rapi_require_authentication"] is True
    assert "can be read without a password" not in cluster.run("gnt-cluster", "verify").stdout
    for program in ("hbal", "hcheck", "hinfo", "hroller", "hspace"):
        cluster.run(program, "-m", rest.address).failed("401 Unauthorized")
    read = cluster.run("hinfo", "-m", f"root:secret@{rest.address}").ok()
    assert "Loaded 3 nodes" in read.stdout
    rest.job("PUT", "/2/modify", {"rapi_require_authentication": False})
    wait_until(lambda: rest("GET", "/2/info", user=None)[0] == 200, "no password is needed")


def test_a_page_of_another_site_is_refused(rest: Rest) -> None:
    headers = {"Sec_Fetch_Site": "cross-site"}
    assert rest("PUT", "/2/tags?tag=evil", **headers)[0] == 403
    assert "evil" not in rest.get("/2/tags")


def test_events(cluster: Cluster, rest: Rest) -> None:
    """Nothing is missed between two connections."""
    with rest.raw("GET", "/2/events", user="root:secret") as stream:
        assert stream.readline().startswith(b"retry:")
        number = rest.job("PUT", "/2/tags?tag=e1")["id"]
        last = _until(
            stream, lambda kind, data: data.get("id") == number and data["status"] == "success"
        )
    number = rest.job(
        "POST",
        "/2/instances",
        {**CREATE, "disk_template": "diskless", "disks": [], "name": "ev.example.com"},
    )["id"]
    with rest.raw("GET", "/2/events", Last_Event_ID=last) as stream:
        _until(
            stream,
            lambda kind, data: (
                kind == "instance"
                and data["change"] == "added"
                and data["name"] == "ev.example.com"
            ),
        )
        _until(stream, lambda kind, data: data.get("id") == number and data["status"] == "success")
    with rest.raw("GET", "/2/events?kinds=job", Last_Event_ID="other-1") as stream:
        _until(stream, lambda kind, data: kind == "reset")
    with rest.raw("GET", "/2/events?kinds=instance") as stream:
        rest.job("PUT", "/2/instances/ev.example.com/startup")
        _until(
            stream, lambda kind, data: data["change"] == "changed" and data["admin_state"] == "up"
        )
        # Somebody looks, the guest ends by itself, somebody looks again.
        look = "/2/query/instance?fields=name,status"
        assert [[0, "ev.example.com"], [0, "running"]] in rest.get(look)["data"]
        cluster.path(NODE2, "var/run/ganeti/fake-hypervisor/ev.example.com").unlink()
        rest.get(look)
        _until(
            stream,
            lambda kind, data: (
                data["change"] == "state"
                and (data["name"], data["status"]) == ("ev.example.com", "ERROR_down")
            ),
        )
    rest.job("DELETE", "/2/instances/ev.example.com")
    assert rest("GET", "/2/events?kinds=nonsense")[0] == 400


def test_events_of_all_kinds(cluster: Cluster, rest: Rest) -> None:
    """Nodes, lines and progress of jobs, and findings, by kind and name."""
    with (
        rest.raw("GET", "/2/events?kind=node,job&name=node2") as nodes,
        rest.raw("GET", "/2/events?kind=log,progress") as lines,
        rest.raw("GET", "/2/events?kind=finding") as findings,
    ):
        rest.job("PUT", "/2/nodes/node3.example.com/tags?tag=t1")
        rest.job("PUT", "/2/nodes/node2.example.com/tags?tag=t1")
        found: list[tuple[str, Any]] = []
        _until(
            nodes,
            lambda kind, data: (
                found.append((kind, data))  # type: ignore[func-returns-value]
                or (kind == "job" and data["status"] == "success")
            ),
        )
        assert not [data for _kind, data in found if "node3" in json.dumps(data)]
        (node,) = [data for kind, data in found if kind == "node"]
        assert (node["members"], node["tags_added"]) == (["tags"], ["t1"])
        assert found[-1][1]["objects"] == [["node", NODE2]]
        assert found[-1][1]["user"] == "root"
        rest.job(
            "POST",
            "/2/instances",
            {**CREATE, "disk_template": "diskless", "disks": [], "name": "ev2.example.com"},
        )
        rest.job("PUT", "/2/instances/ev2.example.com/startup")
        cluster.path(NODE2, "var/run/ganeti/fake-hypervisor/ev2.example.com").unlink()
        cluster.run("gnt-cluster", "verify").failed("EINSTANCEDOWN")
        _until(lines, lambda kind, data: kind == "log" and "* " in str(data["message"]))
        _until(lines, lambda kind, data: kind == "progress" and data["done"] == data["total"])
        _until(
            findings,
            lambda _kind, data: (
                (data["change"], data["code"], data["name"])
                == ("appeared", "EINSTANCEDOWN", "ev2.example.com")
            ),
        )
        rest.job("DELETE", "/2/instances/ev2.example.com")
        cluster.run("gnt-cluster", "verify")
        _until(
            findings,
            lambda _kind, data: (
                (data["change"], data["name"]) == ("gone", "ev2.example.com")
                and data["severity"] == "error"
            ),
        )
    for one in ("node2.example.com", "node3.example.com"):
        rest.job("DELETE", f"/2/nodes/{one}/tags?tag=t1")
    assert rest("GET", "/2/events?kind=nonsense")[0] == 400
    assert rest("GET", "/2/events?kind=job&kinds=job")[0] == 400


def test_events_over_a_websocket(rest: Rest) -> None:
    """A client changes what it wants, and goes on after its last id on another connection."""
    client = pytest.importorskip("websockets.sync.client", reason="make venv installs it")
    pytest.importorskip("wsproto", reason="make venv installs it")
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE

    def connect(arguments: str, user: bytes = b"root:secret") -> Any:
        return client.connect(
            f"wss://{rest.address}:5080/2/events?{arguments}",
            ssl=context,
            additional_headers={"Authorization": "Basic " + base64.b64encode(user).decode()},
        )

    def next_of(socket: Any, kind: str) -> dict[str, Any]:
        while True:
            found = json.loads(socket.recv(PATIENCE_S))
            if found["event"] == kind:
                return dict(found)

    with connect("kind=node&name=node2") as socket:
        rest.job("PUT", "/2/nodes/node2.example.com/tags?tag=socket")
        first = next_of(socket, "node")
        assert first["data"]["tags_added"] == ["socket"]
        socket.send('{"subscribe": {"kind": "nodes"}}')
        assert "no events of kind 'nodes'" in next_of(socket, "error")["data"]["reason"]
        socket.send('{"subscribe": {"kind": ["node", "group"], "name": ["node3"]}}')
        assert next_of(socket, "subscribed")["data"] == {
            "kind": ["group", "node"],
            "name": ["node3"],
        }
    rest.job("DELETE", "/2/nodes/node2.example.com/tags?tag=socket")
    with connect(f"kind=node&after={first['id']}") as socket:
        assert next_of(socket, "node")["data"]["tags_removed"] == ["socket"]
    with (
        connect("kind=nodes") as socket,
        pytest.raises(Exception, match="1008.*no events of kind 'nodes'"),
    ):
        socket.recv(PATIENCE_S)
    with pytest.raises(Exception, match="HTTP 401"), connect("kind=node", b"root:wrong"):
        pass


def _until(stream: Any, wanted: Any) -> str:
    """Read events until one is wanted; its id."""
    found: dict[str, str] = {}
    while True:
        line = stream.readline().decode().rstrip("\n")
        if line:
            key, _, value = line.partition(": ")
            found[key] = value
        elif "event" in found:
            if wanted(found["event"], json.loads(found["data"])):
                return found["id"]
            found = {}


def _drive(package: Path, rest: Rest) -> dict[str, list[tuple[str, Any]]]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, str(DRIVE), str(package), rest.address, "root", "secret"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    found: dict[str, list[tuple[str, Any]]] = {}
    for line in done.stdout.splitlines():
        name, outcome, details = json.loads(line)
        found.setdefault(name, []).append((outcome, details))
    return found


def _check_plans(rest: Rest, web: str) -> None:
    """A plan says what a shutdown would do, and why a rename is refused; nothing is changed."""
    tag = rest.raw("GET", web).headers["ETag"]
    status, found = rest("PUT", f"{web}/shutdown?plan=1", {"timeout": 1})
    assert status == 200 and (found["possible"], found["status"]) == (True, "success"), found
    (plan,) = found["plans"]
    assert plan["steps"][0] == f"mark instance {WEB} as down"
    assert {"level": "instance", "name": WEB, "shared": False, "new": False} in plan["locks"]
    assert plan["hooks"][0]["name"] == "instance-stop-pre" and plan["checks"]
    job = rest.get(f"/2/jobs/{found['job']}")
    assert job["opresult"] == [plan] and job["ops"][0]["dry_run"] is True
    status, found = rest("PUT", f"{web}/rename?plan=1", {"new_name": "x.example.com"})
    assert status == 200 and found["possible"] is False and "marked 'up'" in found["reason"], found
    assert (found["ecode"], found["plans"]) == ("wrong_state", [])
    assert rest.raw("GET", web).headers["ETag"] == tag
    assert rest("POST", "/2/jobs?plan=1", {"ops": []})[0] == 400


def _check_outcomes(found: dict[str, list[tuple[str, Any]]]) -> None:
    wrong = [
        (name, outcome, details)
        for name, outcomes in found.items()
        for outcome, details in outcomes
        if outcome not in ("ok", "success")
        and (name not in MAY_FAIL or outcome != "error")
        # Guests of the hypervisor for tests write nothing.
        and not (name == "GetInstanceConsoleLog" and "keeps no console log" in str(details))
    ]
    assert not wrong


@pytest.mark.long
def test_our_client(rest: Rest, tmp_path: Path) -> None:
    """The package of the client works alone, outside the project.

    The test of the distribution's client makes the same calls, and so do the unit tests.
    """
    package = tmp_path / "ganeti" / "rapi"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package.parent / "__init__.py").touch()
    shutil.copytree(ROOT / "lib/ganeti/rapi/client", package / "client")
    _check_outcomes(_drive(tmp_path, rest))


def test_the_client_of_the_distribution(rest: Rest, tmp_path: Path) -> None:
    """Unmodified, as programs by others use it."""
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        pytest.skip("no apt-get and dpkg here, so no Debian package of the client")
    got = subprocess.run(
        ["apt-get", "download", "-q", PACKAGE],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    packages = list(tmp_path.glob("*.deb"))
    if not packages:
        pytest.skip(f"package {PACKAGE} cannot be had: {got.stderr.strip()[-200:]}")
    subprocess.run(
        ["dpkg", "-x", str(packages[0]), str(tmp_path / "x")], check=True, timeout=PATIENCE_S
    )
    _check_outcomes(_drive(tmp_path / "x/usr/lib/python3/dist-packages", rest))


@pytest.mark.skipif(not HTOOLS.exists(), reason="package ganeti-htools-3.0 is not installed")
def test_the_balancing_tools(rest: Rest, tmp_path: Path) -> None:
    def run(tool: str, *words: str) -> str:
        program = tmp_path / tool
        program.symlink_to(HTOOLS)
        done = subprocess.run(
            [str(program), *words],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
            cwd=tmp_path,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    url = f"https://{rest.address}:5080"
    rest.job(
        "POST",
        "/2/instances",
        {**CREATE, "name": "bal.example.com", "disks": [], "disk_template": "diskless"},
    )
    assert "Loaded 3 nodes, 1 instances" in run("hbal", "-m", url)
    assert "Loaded 3 nodes, 1 instance, 1 node group" in run("hinfo", "-m", url)
    space = _facts(run("hspace", "-m", url, "--machine-readable"))
    assert (space["HTS_CLUSTER_NODES"], space["HTS_INI_INST_CNT"], space["HTS_OK"]) == (
        "3",
        "1",
        "1",
    )
    checked = _facts(run("hcheck", "-m", url, "--machine-readable", "--no-simulation"))
    assert (checked["HCHECK_INIT_CLUSTER_N1_FAIL"], checked["HCHECK_OK"]) == ("0", "1")
    groups = run("hroller", "-m", url).split("\n", 1)[1].replace("\n", ",")
    assert set(groups.strip(",").split(",")) >= {NODE1, NODE2, NODE3}
    (tmp_path / "out").mkdir()
    assert "3     1" in run("hscan", "-d", "out", url)
    assert "bal.example.com" in next((tmp_path / "out").iterdir()).read_text()
    rest.job("DELETE", "/2/instances/bal.example.com")


def _facts(text: str) -> dict[str, str]:
    """What a balancing tool says to programs."""
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


@pytest.mark.larger
def test_hostile_clients(cluster: Cluster, rest: Rest) -> None:
    """Hundreds that stay, hundreds that never finish, large and broken bodies: others are served,
    and the daemon does not grow."""
    pid = cluster.pid(NODE1, "ganeti-rapi")

    def memory_mib() -> float:
        status = Path(f"/proc/{pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024

    def bodies() -> None:
        large = b'"' + b"x" * ((10 << 20) - 2) + b'"'
        nested = b"[" * (1 << 20)
        twice = b'{"a": 1, "a": 2}'
        for data, user, statuses in (
            (large, "root:secret", (400,)),
            (large, None, (401,)),
            (nested, "root:secret", (400,)),
            (twice, "root:secret", (400,)),
            (b'{"a": "\xff"}', "root:secret", (400,)),
            (large + b" ", "root:secret", (413,)),
        ):
            headers = {"Content-Type": "application/json"}
            if user:
                headers["Authorization"] = "Basic " + base64.b64encode(user.encode()).decode()
            connection = rest.connect()
            try:
                connection.request("PUT", "/2/modify", data, headers)
                assert connection.getresponse().status in statuses, data[:20]
            except (BrokenPipeError, ConnectionResetError, ssl.SSLError):
                # Sent away before all of it was sent; as good as an answer.
                assert statuses != (400,), data[:20]
            connection.close()

    bodies()
    before = memory_mib()
    staying = [rest.connect() for _ in range(_STAYING)]
    for connection in staying:
        connection.request("GET", "/version")
        assert connection.getresponse().read() == b"2\n"
    slow = []
    for number in range(_STAYING):
        sock = socket.create_connection((rest.address, 5080), PATIENCE_S)
        if number % 2:
            # Not even the handshake comes to its end.
            sock.sendall(b"\x16\x03\x01")
        slow.append(sock)
    for _ in range(2):
        bodies()
        assert rest.get("/2/info")["master"] == NODE1
    for connection in staying:
        connection.request("GET", "/version")
        assert connection.getresponse().read() == b"2\n"
    # Several questions at once, the last one before the first answer.
    piped = staying[-1].sock
    assert piped is not None
    piped.sendall(b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n" * 50)
    answers = b""
    while answers.count(b"HTTP/1.1 200 OK") < 50 or not answers.endswith(b"2\n"):
        part = piped.recv(65536)
        assert part, answers
        answers += part
    assert memory_mib() - before < 80
    for one in (*staying, *slow):
        one.close()
    assert cluster.pid(NODE1, "ganeti-rapi") == pid
    assert "Traceback" not in cluster.path(NODE1, "var/log/ganeti/rapi-daemon.log").read_text()


def test_a_batch(cluster: Cluster, rest: Rest) -> None:
    """An instance is made, tagged, started and removed in one request, in this order."""
    web = f"/2/instances/{WEB}"
    made = {"id": "create", "method": "POST", "path": "/2/instances", "body": CREATE}
    tag = {"id": "tag", "method": "PUT", "path": f"{web}/tags", "query": {"tag": ["one", "two"]}}
    wrong = {"id": "wrong", "method": "PUT", "path": f"{web}/startup", "query": {"froce": 1}}
    before = len(rest.get("/2/jobs"))
    status, body = rest("POST", "/2/batch", {"operations": [made, tag, wrong]})
    assert status == 400 and "operation 'wrong'" in body["explain"], body
    assert len(rest.get("/2/jobs")) == before

    found = rest.batch(
        {"id": "nodes", "method": "GET", "path": "/2/nodes"},
        made,
        {**tag, "after": ["create"]},
        {"id": "start", "method": "PUT", "path": f"{web}/startup", "after": ["tag"]},
        {"id": "stop", "method": "PUT", "path": f"{web}/shutdown", "after": ["start"]},
        {"method": "DELETE", "path": web, "after": ["stop"]},
    )
    assert [one["status"] for one in found] == [200] * 6
    ended = [rest.end_of(one["body"]) for one in found[1:]]
    assert [job["status"] for job in ended] == ["success"] * 5
    for earlier, later in itertools.pairwise(ended):
        assert earlier["end_ts"] <= later["start_ts"]
    # A job which fails ends those that run after it.
    found = rest.batch(
        {"id": "no", "method": "PUT", "path": "/2/instances/nosuch.example.com/startup"},
        {**tag, "path": "/2/tags", "after": ["no"]},
        {"method": "PUT", "path": "/2/tags", "query": {"tag": "c"}},
    )
    assert [rest.end_of(one["body"])["status"] for one in found] == ["error", "error", "success"]
    tags = rest.get("/2/tags")
    assert "c" in tags and "one" not in tags
    rest.job("DELETE", "/2/tags?tag=c")
    assert rest("POST", "/2/batch", {"operations": [tag]}, user="look:secret")[0] == 403


def test_a_batch_survives_the_master_daemon(cluster: Cluster, rest: Rest) -> None:
    """The order of the jobs is in the jobs themselves."""
    pause = {"predicates": [["jobid", [">", "id", 0]]], "action": "PAUSE"}
    rule = rest("POST", "/2/filters", pause)[1]
    found = rest.batch(
        {"id": "first", "method": "PUT", "path": "/2/tags", "query": {"tag": "d"}},
        {"method": "DELETE", "path": "/2/tags", "query": {"tag": "d"}, "after": ["first"]},
    )
    first, second = (one["body"] for one in found)
    # The old process has to be gone, or its successor is not started.
    cluster.kill_whole(NODE1, "ganeti-masterd")
    cluster.run("daemon-util", "start", "ganeti-masterd").ok()
    (op,) = rest.get(f"/2/jobs/{second}")["ops"]
    assert op["depends"] == [[first, []]]
    assert rest("DELETE", f"/2/filters/{rule}")[0] == 200
    assert [rest.end_of(job)["status"] for job in (first, second)] == ["success", "success"]
    assert "d" not in rest.get("/2/tags")


def test_a_master_that_does_not_run(cluster: Cluster, rest: Rest) -> None:
    cluster.run("daemon-util", "stop", "ganeti-masterd").ok()
    status, body = rest("GET", "/2/info")
    assert status == 502 and "ganeti-masterd" in body["explain"]
    assert rest("PUT", "/2/tags?tag=x")[0] == 502
    assert rest.get("/version") == 2
    cluster.run("daemon-util", "start", "ganeti-masterd").ok()
    assert rest.get("/2/info")["master"] == NODE1


def test_a_node_that_is_not_the_master(cluster: Cluster) -> None:
    other = Rest(address(cluster, NODE2))
    cluster.on(NODE2, "daemon-util", "start", "ganeti-rapi").ok()
    status, body = other("GET", "/2/info", user=None)
    assert status == 502 and NODE1 in body["explain"]
    # The users are the same on all nodes, once the file was sent.
    cluster.run("gnt-cluster", "redist-conf").ok()
    wait_until(lambda: other("GET", "/2/info")[0] == 502, "the users are known there")
    cluster.on(NODE2, "daemon-util", "stop", "ganeti-rapi").ok()


def test_a_full_stop_and_a_drained_queue(cluster: Cluster, rest: Rest) -> None:
    cluster.run("gnt-cluster", "queue", "drain").ok()
    status, body = rest("PUT", "/2/tags?tag=x")
    assert status == 503 and "drain" in body["explain"]
    cluster.run("gnt-cluster", "queue", "undrain").ok()
    rest.job("PUT", "/2/tags?tag=x")


def test_after_a_failover(cluster: Cluster) -> None:
    cluster.on(NODE2, "gnt-cluster", "master-failover").ok()
    new, old = Rest(address(cluster, NODE2)), Rest(address(cluster, NODE1))
    assert new.get("/2/info")["master"] == NODE2
    with pytest.raises(OSError):
        old("GET", "/version")
    cluster.on(NODE1, "gnt-cluster", "master-failover").ok()
    assert old.get("/2/info")["master"] == NODE1


@pytest.mark.programs
def test_a_generated_client_reads_every_answer(
    cluster: Cluster, rest: Rest, tmp_path: Path
) -> None:
    """The unit tests do the same with a fake master."""
    pytest.importorskip("openapi_python_client", reason="openapi-python-client is not installed")
    file, made = tmp_path / "openapi.json", tmp_path / "made"
    file.write_text(json.dumps(rest.get("/2/openapi.json")))
    argv = [sys.executable, "-m", "openapi_python_client", "generate", "--meta", "none"]
    subprocess.run(
        [*argv, "--path", str(file), "--output-path", str(made)], capture_output=True, check=True
    )
    names = {"job_id": "1", "serial": "1", "node_name": NODE2, "group_name": "default"}
    done = subprocess.run(
        [
            sys.executable,
            str(Path(__file__).with_name("generated_client_drive.py")),
            str(tmp_path),
            f"https://{rest.address}:5080",
            _ROOT,
            *(f"{name}={value}" for name, value in names.items()),
        ],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    statuses = dict(json.loads(line) for line in done.stdout.splitlines())
    assert len(statuses) > 50 and statuses["list_nodes"] == statuses["get_node"] == 200
    assert {*statuses.values()} <= {200, 400, 404}


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:Unverified HTTPS")
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_random_requests_get_described_answers(rest: Rest, mode: GenerationMode) -> None:
    """No request, right or wrong, causes an internal error, a hang, or another answer than the
    description has.

    The unit tests send fewer such requests, to a fake master.
    """
    description = Description(rest.get("/2/openapi.json"))
    base = f"https://{rest.address}:5080"
    seen = 0
    for result in schemathesis.openapi.from_dict(description.document).get_all_operations():
        operation = result.ok()
        # One has no end, one waits, one has a body with GET, which the tool does not send.
        if operation.path in ("/2/events", "/2/events/log", "/2/jobs/{job_id}/wait"):
            continue
        if not can_be_made(operation, mode):
            continue

        @settings(
            max_examples=10,
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def check(case: Any) -> None:
            nonlocal seen
            case.headers = {**(case.headers or {}), "Authorization": _ROOT}
            response = case.call(base_url=base, verify=False, timeout=PATIENCE_S)
            seen += 1
            assert response.status_code != 500, (case.as_curl_command(), response.text)
            description.check_response(case, response)

        check()
    assert seen > 150
    assert rest.get("/2/info")["master"] == NODE1


_ROOT = "Basic " + base64.b64encode(b"root:secret").decode()
