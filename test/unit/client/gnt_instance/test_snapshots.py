"""``gnt-instance snapshot``, ``list-snapshots``, ``remove-snapshot``, ``restore-snapshot``."""

from __future__ import annotations

import json
from typing import Any

import pytest

from devel.completion import tables
from fakes.luxi_master import FakeMaster
from ganeti.cli import terminal
from ganeti.client.gnt_instance import program

from ..conftest import Gnt

ROW = {
    "instance": "web1",
    "snapshot": "a",
    "disk": 0,
    "disk_uuid": "u",
    "node": "node1",
    "size": 10240,
    "ctime": None,
    "usable": False,
}


@pytest.fixture(autouse=True)
def _instances(master: FakeMaster) -> None:
    master.rows["instance"] = [{"name": "web1"}]
    master.results["OP_INSTANCE_SNAPSHOT"] = "a"
    master.results["OP_INSTANCE_SNAPSHOT_LIST"] = [ROW]


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        (
            "snapshot web1",
            {
                "OP_ID": "OP_INSTANCE_SNAPSHOT",
                "snapshot_name": None,
                "disks": [],
                "shutdown": False,
                "shutdown_timeout": 120,
                "dry_run": False,
            },
        ),
        (
            "snapshot --snapshot-name a --disks 0,2 --shutdown --shutdown-timeout 5 --priority low web1",
            {
                "snapshot_name": "a",
                "disks": [0, 2],
                "shutdown": True,
                "shutdown_timeout": 5,
                "priority": 10,
            },
        ),
        ("snapshot --dry-run web1", {"dry_run": True}),
        (
            "remove-snapshot web1 a",
            {"OP_ID": "OP_INSTANCE_SNAPSHOT_REMOVE", "snapshot_name": "a", "dry_run": False},
        ),
        (
            "restore-snapshot -f --dry-run web1 a",
            {"OP_ID": "OP_INSTANCE_SNAPSHOT_RESTORE", "snapshot_name": "a", "dry_run": True},
        ),
    ],
)
def test_requests(line: str, wanted: dict[str, Any], gnt: Gnt, master: FakeMaster) -> None:
    assert gnt(f"instance {line}").code == 0
    sent = master.opcode()
    assert sent["instance_name"] == "web1"
    assert {name: sent[name] for name in wanted} == wanted


def test_the_name_is_printed(gnt: Gnt) -> None:
    assert gnt("instance snapshot web1").out == "a\n"
    assert gnt("instance snapshot --dry-run web1").out == ""


def test_submitting_only(gnt: Gnt) -> None:
    assert "JobID: 1" in gnt("instance snapshot --submit web1").err


def test_no_number_of_a_disk(gnt: Gnt, master: FakeMaster) -> None:
    ended = gnt("instance snapshot --disks 0,x web1")
    assert ended.code == 1 and "'x' is not the number of a disk" in ended.err
    assert master.requests == []


def test_a_restore_wants_a_yes(gnt: Gnt, master: FakeMaster) -> None:
    ended = gnt("instance restore-snapshot web1 a")
    assert ended.code == 1 and "--force" in ended.err
    assert master.opcodes() == []


def test_the_table(gnt: Gnt, master: FakeMaster) -> None:
    ended = gnt("instance list-snapshots web1 web2")
    assert ended.out.splitlines() == [
        "Instance Snapshot Disk Node   Size CTime Usable",
        "web1     a           0 node1 10.0G -     N",
    ]
    assert master.opcode()["instances"] == ["web1", "web2"]


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ("--no-headers --separator=:", "web1:a:0:node1:10240:-:N\n"),
        ("-o snapshot,size --units g --no-headers", "a 10.0\n"),
        ("-o +disk_uuid --separator=, --no-headers -v", "web1,a,0,node1,10240,(unavail),N,u\n"),
        (
            "-o all -o csv",
            "instance,snapshot,disk,disk_uuid,node,size,ctime,usable\n"
            "web1,a,0,u,node1,10240,,false\n",
        ),
        (
            "-o wide --no-headers --separator=:",
            "web1:a:0:u:node1:10240:-:N\n",
        ),
        ("-o snapshot -o yaml", "- snapshot: a\n"),
    ],
)
def test_formats(options: str, wanted: str, gnt: Gnt) -> None:
    assert gnt(f"instance list-snapshots {options}").out == wanted


def test_for_programs(gnt: Gnt) -> None:
    (found,) = json.loads(gnt("instance list-snapshots -o json").out)
    assert found.pop("_status") == {"ctime": "unavail"}
    assert found == {name: value for name, value in ROW.items() if name != "disk_uuid"}


def test_a_field_that_does_not_exist(gnt: Gnt, master: FakeMaster) -> None:
    ended = gnt("instance list-snapshots -o nodes")
    assert ended.code == 1 and "unknown fields: nodes" in ended.err and "node" in ended.err
    assert master.requests == []


def test_completion() -> None:
    commands = program.PROGRAM.commands
    (output,) = [option for option in commands["list-snapshots"].options if "-o" in option.names]
    kind = tables.option_kind(program.PROGRAM, commands["list-snapshots"], output)
    assert kind.startswith(",ctime disk disk_uuid instance node size snapshot usable all wide json")
    for name, wanted in (
        ("snapshot", ["instance*"]),
        ("list-snapshots", ["instance*"]),
        ("remove-snapshot", ["instance", "snapshot*"]),
        ("restore-snapshot", ["instance", "snapshot*"]),
    ):
        assert tables.argument_kinds(program.PROGRAM, commands[name]) == wanted


def test_the_removal_asks_on_a_terminal(
    gnt: Gnt, master: FakeMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def refuse(question: str) -> bool:
        asked.append(question)
        return False

    monkeypatch.setattr(terminal, "can_ask", lambda: True)
    monkeypatch.setattr(terminal, "confirm", refuse)
    assert (gnt("instance remove-snapshot web1 old").code, master.opcodes()) == (13, [])
    assert asked == ["Snapshot old of instance web1 will be removed. Continue?"]
    assert gnt("instance remove-snapshot --yes web1 old").code == 0
    # Programs have no terminal, and are not asked.
    monkeypatch.setattr(terminal, "can_ask", lambda: False)
    assert gnt("instance remove-snapshot web1 old").code == 0
    assert [op["OP_ID"] for op in master.opcodes()] == ["OP_INSTANCE_SNAPSHOT_REMOVE"] * 2
