"""Requests that known programs send, as these programs write them: each is accepted and means what
it means to Ganeti.

The programs were written by others for Ganeti, and stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.rest_client import Rest, rest_lab
from fakes.rest_master import busy_master
from ganeti.opcodes import from_dict
from ganeti.rapi import declare
from ganeti.rapi.resources import RESOURCES


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[Rest]:
    with rest_lab(tmp_path) as one:
        yield one


# Version 2 of the client in PHP, and clients in Python which were copied from Ganeti 2.4 to 2.10.
_OLD_CLIENTS: list[tuple[str, str, Any, dict[str, Any]]] = [
    ("PUT", "startup?no-remember=1", None, {"no_remember": True, "dry_run": False}),
    ("PUT", "shutdown?dry-run=1&no-remember=1", None, {"no_remember": True, "dry_run": True}),
    ("PUT", "shutdown?dry_run=1&no_remember=0", {}, {"no_remember": False, "dry_run": True}),
    ("POST", "reboot?type=soft&ignore-secondaries=1", None, {"ignore_secondaries": True}),
    ("PUT", "activate-disks?ignore-size=1", None, {"ignore_size": True}),
    (
        "POST",
        "replace-disks?mode=replace_new_secondary&remote-node=n2&disks=0,1",
        None,
        {"remote_node": "n2", "disks": [0, 1]},
    ),
    ("PUT", "tags?tag=a&tag=b&dry_run=1", ["a", "b"], {"tags": ["a", "b"], "dry_run": True}),
]

# The modules for Ansible: memory stands beside both limits, and what is not given is null.
_CREATE = {
    "__version__": 1,
    "beparams": {"memory": 512, "minmem": 512, "maxmem": 512, "vcpus": 1},
    "disk_template": "plain",
    "hypervisor": "kvm",
    "iallocator": "hail",
    "name": "web",
    "os_type": "debian+default",
    "pnode": None,
    "snode": None,
    "mode": "create",
    "conflicts_check": True,
    "ip_check": True,
    "name_check": True,
    "no_install": None,
    "wait_for_sync": True,
    "tags": [],
    "group_name": None,
    "disks": [{"name": "root", "size": "10G"}],
    "nics": [{"mode": "bridged", "bridge": "br0", "mac": "generate"}],
}
_ANSIBLE: list[tuple[str, str, Any, dict[str, Any]]] = [
    (
        "PUT",
        "modify",
        {
            "beparams": {"memory": 512, "minmem": 512, "maxmem": 512},
            "hotplug": False,
            "conflicts_check": True,
            "wait_for_sync": True,
            "nics": [["add", 1, {"link": "br1"}], ["remove", 2, {}]],
            "disks": [["add", 1, {"size": 1024, "name": "data"}]],
        },
        {"beparams": {"memory": 512, "minmem": 512, "maxmem": 512}, "wait_for_sync": True},
    ),
    ("POST", "disk/0/grow", {"amount": 512, "wait_for_sync": True}, {"disk": 0, "amount": 512}),
    ("PUT", "startup", None, {"force": False}),
    ("PUT", "shutdown", {}, {"instance_name": "web"}),
    ("POST", "reboot", None, {"reboot_type": "hard"}),
    ("PUT", "migrate", {}, {"instance_name": "web"}),
    ("PUT", "rename", {"new_name": "w", "ip_check": False, "name_check": False}, {"new_name": "w"}),
]

# Ganeti Control Center.
_CONTROL_CENTER: list[tuple[str, str, Any, dict[str, Any]]] = [
    ("PUT", "failover", None, {"ignore_consistency": False}),
    ("PUT", "modify", {"beparams": {"memory": "2048"}}, {"beparams": {"memory": "2048"}}),
    (
        "PUT",
        "modify",
        {"disks": [["add", -1, {"size": "5g"}]]},
        {"disks": [["add", -1, {"size": "5g"}]]},
    ),
    (
        "PUT",
        "modify",
        {"nics": [["modify", 0, {"link": "br0", "mac": "aa:00:00:00:00:01"}]]},
        {"nics": [["modify", 0, {"link": "br0", "mac": "aa:00:00:00:00:01"}]]},
    ),
    (
        "POST",
        "disk/1/grow",
        {"amount": 5, "absolute": False, "wait_for_sync": False},
        {"disk": 1, "absolute": False, "wait_for_sync": False},
    ),
]


@pytest.mark.parametrize(
    ("method", "path", "body", "wanted"), _OLD_CLIENTS + _ANSIBLE + _CONTROL_CENTER
)
def test_changes_of_an_instance(
    rest: Rest, method: str, path: str, body: Any, wanted: dict[str, Any]
) -> None:
    op = rest.job(method, f"/2/instances/web/{path}", body)
    assert {name: op[name] for name in wanted} == wanted
    assert from_dict(op).validate()


def test_creation(rest: Rest) -> None:
    op = rest.job("POST", "/2/instances", _CREATE)
    assert op["beparams"] == _CREATE["beparams"]
    assert op["disks"] == _CREATE["disks"] and op["nics"] == _CREATE["nics"]
    assert "explain" not in op


@pytest.mark.parametrize(
    ("method", "path", "wanted"),
    [
        ("PUT", "role?force=1&auto_promote=1", {"force": True, "auto_promote": True}),
        (
            "GET",
            "storage?storage-type=file&output-fields=name,free",
            {"storage_type": "file", "output_fields": ["name", "free"]},
        ),
    ],
)
def test_requests_about_nodes(rest: Rest, method: str, path: str, wanted: dict[str, Any]) -> None:
    op = rest.job(method, f"/2/nodes/n/{path}", "drained" if method == "PUT" else None)
    assert {name: op[name] for name in wanted} == wanted


def test_every_argument_has_two_spellings() -> None:
    """No two arguments become the same."""
    names = {
        argument.name
        for resource in RESOURCES
        for operation in resource.operations.values()
        for argument in declare.arguments(operation)
    }
    assert len({name.replace("-", "_") for name in names}) == len(names)


def test_two_spellings_that_contradict_each_other(rest: Rest) -> None:
    status, body, _headers = rest("DELETE", "/2/instances/web?dry-run=1&dry_run=0")
    assert (status, rest.master.asked) == (400, [])
    assert body["explain"] == "query argument 'dry-run' is given twice, with different values"
    assert rest.job("DELETE", "/2/instances/web?dry-run=1&dry_run=1")["dry_run"] is True


def test_a_mistyped_dry_run_stays_an_error(rest: Rest) -> None:
    """Ganeti ignores it, and makes the change."""
    for name in ("dryrun", "dry--runs", "xyzzyxyzzy"):
        assert rest("DELETE", f"/2/instances/web?{name}=1")[0] == 400
    assert rest.master.asked == []


@pytest.mark.parametrize(
    "path",
    [
        "/2/instances?bulk=1&_=1700000000",
        "/2/nodes?_=1700000000",
        "/2/instances/web?timestamp=1",
        "/2/info?_=1",
    ],
)
def test_a_page_in_a_browser_gets_past_a_cache(tmp_path: Path, path: str) -> None:
    """A library for browsers adds ``_``; a request which only reads ignores what it means."""
    with rest_lab(tmp_path, busy_master()) as rest:
        assert rest("GET", path)[0] == 200


@pytest.mark.parametrize("path", ["/2/info", "/2/nodes?bulk=1", "/2/instances?bulk=1"])
def test_the_exporter_for_prometheus(tmp_path: Path, path: str) -> None:
    with rest_lab(tmp_path, busy_master()) as rest:
        status, found, _headers = rest("GET", path)
    assert status == 200
    for one in found if isinstance(found, list) else ():
        # What the exporter reads without a default.
        wanted = {
            "nodes": ("name", "offline", "mfree", "mtotal", "dfree", "dtotal", "ctotal"),
            "instances": ("name", "pnode", "snodes", "oper_state", "oper_vcpus", "oper_ram"),
        }["nodes" if "nodes" in path else "instances"]
        assert set(wanted) <= set(one)
