"""``gnt-debug iallocator``."""

from __future__ import annotations

import json

import pytest

from fakes.luxi_master import FakeMaster

from ..conftest import Gnt

REQUEST = '{"version": 2}'


@pytest.fixture(autouse=True)
def result(master: FakeMaster) -> None:
    master.results["OP_TEST_ALLOCATOR"] = REQUEST


def test_the_defaults_show_a_relocation(gnt: Gnt, master: FakeMaster) -> None:
    assert gnt("debug iallocator web1") == (0, f"{REQUEST}\n", "")
    sent = master.opcode()
    wanted = {
        "OP_ID": "OP_TEST_ALLOCATOR", "direction": "in", "mode": "relocate", "name": "web1",
        "instances": ["web1"], "iallocator": None, "memory": 128, "vcpus": 1, "os": None,
        "disk_template": None, "disks": [{"size": 4096, "mode": "rw"}] * 2,
        "nics": [{"mac": "00:11:22:33:44:55"}], "tags": [], "spindle_use": 1, "count": 2,
        "evac_mode": "all", "target_groups": [], "hypervisor": None, "group_name": None,
    }  # fmt: skip
    assert {name: sent[name] for name in wanted} == wanted


@pytest.mark.parametrize(("line", "fields"), [
    ("--dir out -m allocate -I hail --memory 1g -p 2 -t file --disks 1g,8 -o noop+x new", {
        "direction": "out", "mode": "allocate", "iallocator": "hail", "memory": 1024, "vcpus": 2,
        "disk_template": "file", "os": "noop+x",
        "disks": [{"size": 1024, "mode": "rw"}, {"size": 8, "mode": "rw"}]}),
    ("--nics aa:00:00:00:00:01/192.0.2.1/br1,aa:00:00:00:00:02//br2 --tags a,b x", {
        "nics": [{"mac": "aa:00:00:00:00:01", "ip": "192.0.2.1", "bridge": "br1"},
                 {"mac": "aa:00:00:00:00:02", "ip": None, "bridge": "br2"}],
        "tags": ["a", "b"]}),
    ("-m node-evacuate --evac-mode primary-only a b", {
        "mode": "node-evacuate", "evac_mode": "primary-only", "instances": ["a", "b"]}),
    ("-m change-group --target-groups g1 --target-groups g2 a b", {
        "target_groups": ["g1", "g2"], "instances": ["a", "b"]}),
    ("-m multi-allocate -t file -o noop --count 5 --spindle-use 3 new", {"count": 5, "spindle_use": 3}),
])  # fmt: skip
def test_options(gnt: Gnt, master: FakeMaster, line: str, fields: dict[str, object]) -> None:
    assert gnt(f"debug allocator {line}").code == 0
    sent = master.opcode()
    assert {name: sent[name] for name in fields} == fields


@pytest.mark.parametrize(
    ("line", "code", "text"),
    [
        ("a b", 1, "mode relocate takes one name, not 2"),
        ("--disks big a", 1, "--disks: cannot read 'big'"),
        ("--nics a/b/c/d a", 1, "'a/b/c/d' is not of the form"),
        ("-m everything a", 2, "everything"),
        ("-m allocate new", 1, "needs the disk template (-t) and the operating system (-o)"),
        ("-m multi-allocate -t file new", 1, "multi-allocate needs the operating system (-o)"),
        ("", 1, ""),
    ],
)
def test_mistakes(gnt: Gnt, master: FakeMaster, line: str, code: int, text: str) -> None:
    ended = gnt(f"debug iallocator {line}")
    assert ended.code == code
    assert text in ended.err
    assert master.requests == []


EXPLAINED = (
    '[{"instance": "new", "info": "fine", "nodes": [{"node": "n1", "group": "g", "chosen":'
    ' "primary", "score": 1.5, "secondary": null, "reason": "the best place"}]}]'
)


def test_explanations(gnt: Gnt, master: FakeMaster) -> None:
    master.results["OP_TEST_ALLOCATOR"] = EXPLAINED
    shown = gnt("debug iallocator --explain -m allocate -t file -o noop new")
    assert shown.out.splitlines() == [
        "new: fine",
        "Node Group Chosen       Score Secondary Reason",
        "n1   g     primary 1.50000000 -         the best place",
    ]
    assert master.opcode()["explain"] is True
    shown = gnt("debug iallocator --explain --output json -m allocate -t file -o noop new")
    assert json.loads(shown.out) == json.loads(EXPLAINED)
    assert "needs --explain" in gnt("debug iallocator --output json new").err
