"""``gnt-instance batch-create``: the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fakes.luxi_master import FakeMaster

from ..conftest import Gnt

WEB = {
    "name": "web1",
    "disk_template": "file",
    "disks": [{"size": "1g"}, {"size": 5}],
    "os_type": "tiny",
    "pnode": "node1",
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "instances.json"


def test_what_is_sent(gnt: Gnt, master: FakeMaster, file: Path) -> None:
    file.write_text(json.dumps([WEB, {**WEB, "name": "web2", "forthcoming": True, "nics": []}]))
    master.results["OP_INSTANCE_MULTI_ALLOC"] = {"jobs": [], "failed": []}
    assert gnt(f"instance batch-create -I hail {file}").code == 0
    sent = master.opcode()
    assert sent["iallocator"] == "hail"
    first, second = sent["instances"]
    assert (first["instance_name"], first["mode"], first["nics"]) == ("web1", "create", [{}])
    assert first["disks"] == [{"size": 1024}, {"size": 5}]
    assert second["forthcoming"] and second["nics"] == []


@pytest.mark.parametrize(
    ("content", "fragment"),
    [
        ("[", "instances.json"),
        ("{}", "is not a list of instances"),
        ("[]", "is not a list of instances"),
        ("[5]", "instance 0 is not a dictionary"),
        ([{**WEB, "sizes": 1}], "instance 0 has unknown keys sizes"),
        ([WEB, {**WEB, "disks": [{"size": "20x"}]}], "instance 1: disk 0: size: unknown unit 'x'"),
        ([{**WEB, "disks": 5}], "instance 0"),
        ([{**WEB, "forthcoming": "perhaps"}], "forthcoming"),
    ],
)
def test_slips(content: Any, fragment: str, gnt: Gnt, master: FakeMaster, file: Path) -> None:
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    ended = gnt(f"instance batch-create {file}")
    assert ended.code == 1 and fragment in ended.err
    assert not master.jobs


def test_no_file(gnt: Gnt, master: FakeMaster, file: Path) -> None:
    assert "No such file" in gnt(f"instance batch-create {file}").err


def test_who_found_no_place_is_named(gnt: Gnt, master: FakeMaster, file: Path) -> None:
    file.write_text(json.dumps([WEB]))
    master.results["OP_INSTANCE_MULTI_ALLOC"] = {"jobs": [], "failed": ["web1"]}
    ended = gnt(f"instance batch-create {file}")
    assert ended.code == 1 and ended.err == "The allocator found no node for instance web1\n"
