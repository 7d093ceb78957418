"""``gnt-cluster history`` against a simulated master."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from fakes.luxi_master import FakeMaster
from ganeti import errors
from ganeti.client.gnt_cluster import history as cluster_history

from ..conftest import Gnt

COMMITS: list[dict[str, Any]] = [
    {
        "serial": 12,
        "time": 1764000060.5,
        "before": 11,
        "job": 17,
        "opcode": "OP_INSTANCE_CREATE",
        "source": "gnt:client:gnt-instance",
        "reason": "new shop",
        "count": 4,
        "changes": [
            ["cluster", "c.example.com", "changed", ["tags"]],
            ["disks", "d-1", "added", []],
            ["disks", "d-2", "added", []],
            ["instances", "web1", "added", []],
        ],
    },
    {
        "serial": 11,
        "time": 1764000000.0,
        "before": 10,
        "job": None,
        "opcode": None,
        "source": "",
        "reason": "",
        "count": None,
        "changes": [],
    },
]


@pytest.fixture
def asked(master: FakeMaster, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the simulated master was asked."""
    asked: list[Any] = []

    def history(self: FakeMaster, limit: int | None) -> list[Any]:
        asked.append(limit)
        return COMMITS

    def changes(self: FakeMaster, first: Any, last: Any) -> dict[str, Any]:
        asked.append((first, last))
        found = [
            {
                "kind": "cluster",
                "uuid": "",
                "name": "c.example.com",
                "what": "changed",
                "old": {"hvparams": {"kvm": {"acpi": True, "vga": ""}}, "mtime": 1.0},
                "new": {"hvparams": {"kvm": {"acpi": False, "vga": ""}}, "mtime": 2.0},
            },
            {
                "kind": "disks",
                "uuid": "d-1",
                "name": "d-1",
                "what": "removed",
                "old": {"size": 5, "params": {}},
                "new": None,
            },
            {
                "kind": "instances",
                "uuid": "i-1",
                "name": "web1",
                "what": "changed",
                "old": {"network_port": 11001},
                "new": {"tags": ["a"]},
            },
        ]
        return {"first": 10, "last": 12, "changes": [] if first == last else found}

    def at(self: FakeMaster, point: Any) -> dict[str, Any]:
        asked.append(point)
        return {"cluster": {"cluster_name": "c.example.com"}, "serial_no": 11}

    for name, method in (("History", history), ("Changes", changes), ("At", at)):
        monkeypatch.setattr(FakeMaster, f"_do_QueryConfig{name}", method, raising=False)
    return asked


def test_the_list(gnt: Gnt, asked: list[Any]) -> None:
    ended = gnt("cluster history")
    assert ended.out.splitlines() == [
        "Serial Time                Job Opcode             Author                  Changes"
        "                                                 Reason",
        "    12 2025-11-24 16:01:00  17 OP_INSTANCE_CREATE gnt:client:gnt-instance cluster changed"
        " (tags), instance web1 added, and 2 more new shop",
        "    11 2025-11-24 16:00:00   - -                  -                       too many to be"
        " kept                                     -",
    ]
    assert (ended.code, ended.err, asked) == (0, "", [50])


def test_the_list_names_the_person(
    gnt: Gnt, asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(COMMITS[0], "person", "alice")
    assert " alice (gnt-instance) " in gnt("cluster history").out.splitlines()[1]
    line = gnt("cluster history --no-headers --separator=:").out.splitlines()[0]
    assert ":gnt:client:gnt-instance:" in line and "alice" not in line
    assert json.loads(gnt("cluster history --output=json").out)[0]["person"] == "alice"


def test_the_list_for_programs(gnt: Gnt, asked: list[Any]) -> None:
    ended = gnt("cluster history -n 0 --no-headers --separator : ")
    assert ended.out.splitlines()[1] == "11:2025-11-24 16:00:00:-:-:-:too many to be kept:-"
    assert json.loads(gnt("cluster history --limit 2 --output json").out) == COMMITS
    assert yaml.safe_load(gnt("cluster history --output yaml").out) == COMMITS
    assert asked == [None, 2, 50]


def test_what_is_different(gnt: Gnt, asked: list[Any]) -> None:
    ended = gnt("cluster history --diff 10", "2025-11-24 16:01")
    assert ended == (
        0,
        """\
cluster: changed
  hvparams/kvm/acpi: true -> false
  mtime: 1.0 -> 2.0
disk d-1: removed
  params: {}
  size: 5
instance web1 (i-1): changed
  network_port: 11001 -> (none)
  tags: (none) -> ["a"]
""",
        "",
    )
    assert asked == [(10, [1764000060.0])]
    assert (
        gnt("cluster history --diff 10 10").out
        == "No difference between serial numbers 10 and 12.\n"
    )
    assert json.loads(gnt("cluster history --output json --diff 1 2").out)["last"] == 12


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        ({"tags": ["a", "b"]}, {"tags": ["b", "c", "d"]}, ['tags: +"c", +"d", -"a"']),
        ({"order": ["a", "b"]}, {"order": ["b", "a"]}, ['order: ["a", "b"] -> ["b", "a"]']),
        ({"sizes": [1, 2]}, {"sizes": [1]}, ["sizes: [1, 2] -> [1]"]),
        ({"names": ["a", "a"]}, {"names": ["a"]}, ['names: ["a", "a"] -> ["a"]']),
        ({"state": {}}, {"state": {"kvm": {"mem": 5}}}, ["state/kvm/mem: (none) -> 5"]),
        ({"state": {"kvm": {"mem": 5}}}, {"state": {}}, ["state/kvm/mem: 5 -> (none)"]),
        ({"state": {}}, {"state": None}, ["state: {} -> null"]),
    ],
)
def test_how_a_difference_is_told(
    old: dict[str, Any], new: dict[str, Any], lines: list[str]
) -> None:
    assert list(cluster_history.difference(old, new)) == lines


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], "cluster changed"),
        (["a", "b"], "cluster changed (a, b)"),
        (["a", "b", "c", "d"], "cluster changed (a, b and 2 more)"),
    ],
)
def test_the_attributes_are_named(names: list[str], text: str) -> None:
    assert (
        cluster_history._summary(
            {"count": 1, "changes": [["cluster", "c.example.com", "changed", names]]}
        )
        == text
    )


def test_how_it_was(gnt: Gnt, asked: list[Any]) -> None:
    ended = gnt("cluster history --at 2025-11-24")
    assert json.loads(ended.out) == {"cluster": {"cluster_name": "c.example.com"}, "serial_no": 11}
    assert yaml.safe_load(gnt("cluster history --at 11 --output yaml").out)["serial_no"] == 11
    assert asked == [[1763942400.0], 11]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--diff 1", "--diff needs two points"),
        ("--at 3 --diff 1 2", "cannot be used together"),
        ("5", "unexpected argument '5'"),
        ("--at yesterday", "'yesterday' is neither a serial number nor a time"),
        ("-n -1", "--limit must not be less than 0"),
    ],
)
def test_what_makes_no_sense(gnt: Gnt, asked: list[Any], line: str, message: str) -> None:
    ended = gnt(f"cluster history {line}")
    assert ended.code == 1
    assert message in ended.err
    assert asked == []


@pytest.mark.parametrize("text", ["", "-5", "2025-13-01", "\u0663", "12:00"])
def test_no_point(text: str) -> None:
    with pytest.raises(errors.OpPrereqError):
        cluster_history.parse_point(text)
