"""``gnt-os``."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fakes.luxi_master import FakeMaster
from ganeti import errors

from ..conftest import Gnt

TINY: dict[str, Any] = {
    "name": "tiny",
    "valid": True,
    "variants": ["plain", "net"],
    "parameters": [["size", "how large"], ["fail", "whether to fail"]],
    "api_versions": [20, 15],
    "blacklisted": False,
    "hidden": False,
    "os_hvp": {},
    "osparams": {},
    "trusted": True,
    "node_status": {
        "uuid1": [
            [
                "/srv/ganeti/os/tiny",
                True,
                "",
                ["plain", "net"],
                [["size", "how large"]],
                [20, 15],
                True,
            ],
            ["/usr/share/ganeti/os/tiny", True, "", [], [], [20], False],
        ],
        "node2": [],
        "node3": [["/srv/ganeti/os/tiny", False, "create is missing", [], [], [], True]],
    },
    "os_versions": [""],
    "hypervisors": [],
}
NOOP: dict[str, Any] = {
    **TINY,
    "name": "noop",
    "variants": [],
    "parameters": [],
    "api_versions": [10],
    "node_status": {},
}


@pytest.fixture(autouse=True)
def _definitions(master: FakeMaster) -> None:
    def answer(op: dict[str, Any]) -> list[list[Any]]:
        return [[os[field] for field in op["output_fields"]] for os in (TINY, NOOP)]

    master.results["OP_OS_DIAGNOSE"] = answer
    master.rows["node"] = [{"name": "node1", "uuid": "uuid1"}]


def test_list(gnt: Gnt, master: FakeMaster) -> None:
    assert gnt("os list") == (0, "Name\ntiny+plain\ntiny+net\nnoop\n", "")
    assert gnt("os list --no-headers").out == "tiny+plain\ntiny+net\nnoop\n"
    sent = master.opcodes()[0]
    assert (sent["output_fields"], sent["names"], sent["dry_run"], sent["priority"]) == (
        ["name", "variants"],
        [],
        None,
        0,
    )


def test_list_for_programs(gnt: Gnt) -> None:
    assert json.loads(gnt("os list --output json").out) == [
        {"name": "tiny+plain"},
        {"name": "tiny+net"},
        {"name": "noop"},
    ]


def test_info(gnt: Gnt) -> None:
    assert gnt("os info tiny") == (
        0,
        """\
tiny:
  - valid: True
  - hidden: False
  - blacklisted: False
  - API versions:
    - 15
    - 20
  - variants:
    - plain
    - net
  - parameters:
    - size: how large
    - fail: whether to fail
  - trusted: True

""",
        "",
    )
    assert gnt("os show").out.count(":\n  - valid") == 2


def test_info_of_an_unknown_os(gnt: Gnt) -> None:
    ended = gnt("os info nosuch")
    assert (ended.code, ended.out) == (1, "nosuch: \n\n")
    assert "no node has an OS definition 'nosuch'" in ended.err


def test_info_for_programs(gnt: Gnt) -> None:
    (info,) = json.loads(gnt("os info --output json tiny").out)
    assert info["api_versions"] == [20, 15]


def test_diagnose(gnt: Gnt) -> None:
    assert gnt("os diagnose") == (
        0,
        """\
OS: tiny [global status: valid]
  Variants: [plain, net]
  Node: node1, status: valid (path: /srv/ganeti/os/tiny) [API versions: 20, 15]\
 [variants: plain, net] [parameters: size] [trusted]
    [hidden] status: valid (path: /usr/share/ganeti/os/tiny) [API versions: 20] [untrusted]
  Node: node2, status: not found
  Node: node3, status: invalid (path: /srv/ganeti/os/tiny) create is missing

OS: noop [global status: valid]

""",
        "",
    )


def test_versions_and_hypervisors(gnt: Gnt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NOOP, "os_versions", ["7"])
    monkeypatch.setitem(NOOP, "hypervisors", ["kvm", "fake"])
    monkeypatch.setitem(
        NOOP,
        "node_status",
        {"uuid1": [["/srv/ganeti/os/noop", True, "", [], [], [20], True, "7", ["kvm", "fake"]]]},
    )
    assert "  - OS version: 7\n  - hypervisors: kvm, fake\n" in gnt("os info noop").out
    assert (
        "[API versions: 20] [OS version: 7] [hypervisors: kvm, fake] [trusted]\n"
        in gnt("os diagnose").out
    )
    monkeypatch.setitem(NOOP, "os_versions", ["", "7"])
    assert "  OS version differs between nodes: none, 7\n" in gnt("os diagnose").out


def test_diagnose_finds_something(gnt: Gnt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NOOP, "valid", False)
    monkeypatch.setitem(NOOP, "hidden", True)
    ended = gnt("os diagnose --priority high")
    assert ended.code == 1
    assert "OS: noop [global status: invalid] [hidden]\n" in ended.out


def test_failure(gnt: Gnt, master: FakeMaster) -> None:
    master.results["OP_OS_DIAGNOSE"] = errors.OpExecError("no node answers")
    ended = gnt("os list")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err == "Failure: command execution error:\nno node answers\n"


def test_definitions_by_fields_and_filters(gnt: Gnt, master: FakeMaster) -> None:
    master.fields["os"] = [
        {"name": name, "title": name.title(), "kind": kind, "doc": name}
        for name, kind in (
            ("name", "text"),
            ("valid", "bool"),
            ("variants", "other"),
            ("parameters", "other"),
        )
    ]
    master.rows["os"] = [TINY, NOOP]
    assert gnt("os list --no-headers -o +parameters tiny").out == "tiny Y plain,net size,fail\n"
    assert gnt("os list --no-headers --separator=: -F 'not valid'").code == 0
    assert master.requests[-1] == (
        "Query",
        ["os", ["name", "valid", "variants"], ["!", ["?", "valid"]]],
    )
    assert [row["name"] for row in json.loads(gnt("os list -o name -o json").out)] == [
        "tiny",
        "noop",
    ]
    assert gnt("os list-fields --no-headers name").out.startswith("name Text Name")
