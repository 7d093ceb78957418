"""``gnt-cluster``: name, version, tags, disks."""

from __future__ import annotations

import pytest

from fakes.luxi_master import FakeMaster
from ganeti import FULL_VERSION, errors
from ganeti.cli import terminal
from ganeti.constants import cluster as const

from ..conftest import Gnt


@pytest.fixture
def named(master: FakeMaster) -> FakeMaster:
    master.answers["QueryConfigValues"] = lambda fields: ["old.example.com" for _ in fields]
    master.results["OP_CLUSTER_RENAME"] = lambda op: op["name"]
    return master


def test_rename(gnt: Gnt, named: FakeMaster) -> None:
    ended = gnt("cluster rename -f new.example.com")
    assert ended == (0, "Cluster renamed from 'old.example.com' to 'new.example.com'\n", "")
    assert named.opcode()["name"] == "new.example.com"


def test_rename_asks(gnt: Gnt, named: FakeMaster, monkeypatch: pytest.MonkeyPatch) -> None:
    assert gnt("cluster rename new.example.com").code == 1
    monkeypatch.setattr(terminal, "can_ask", lambda: True)
    monkeypatch.setattr(terminal, "confirm", lambda question: False)
    assert gnt("cluster rename new.example.com").code == 13
    assert not named.jobs
    named.results["OP_CLUSTER_RENAME"] = None
    assert gnt("cluster rename --dry-run new.example.com") == (0, "", "")


@pytest.mark.parametrize(
    ("line", "code", "fragment"),
    [
        ("", 1, "either --to=VERSION or --resume; no versions are installed side by side"),
        ("--to 3.1 --resume", 1, "either --to or --resume"),
        ("--to x", 1, "not a version"),
        ("--to 3", 1, "not a version"),
        ("--resume", 0, "no upgrade to resume"),
        ("--resume --simulate", 1, "--resume takes no other options"),
        ("--to 9.9", 1, "version 9.9 is not installed on"),
        ("--to 9.9", 1, "no versions are installed side by side"),
        ("--simulate --to 9.9", 1, "version 9.9 is not installed on"),
        ("--to 3.1", 0, f"This is version {FULL_VERSION}"),
        ("--to 3.1.0", 0, "compatible with version 3.1.0"),
    ],
)
def test_upgrade(gnt: Gnt, master: FakeMaster, line: str, code: int, fragment: str) -> None:
    master.cluster_info = {"config_version": const.CONFIG_VERSION, "software_version": "3.1.0"}
    ended = gnt(f"cluster upgrade {line}")
    assert ended.code == code
    assert fragment in ended.out + ended.err


def test_upgrade_that_waits_for_a_restart(gnt: Gnt, master: FakeMaster) -> None:
    master.cluster_info = {"config_version": 3000000, "software_version": "3.0.2"}
    ended = gnt("cluster upgrade --to 3.1")
    assert ended.code == 1
    assert "Restart the daemons" in ended.err


def test_tags(gnt: Gnt, master: FakeMaster) -> None:
    master.answers["QueryTags"] = lambda kind, name: ["b", "a"]
    assert gnt("cluster list-tags") == (0, "a\nb\n", "")
    gnt("cluster add-tags x y")
    assert (master.opcode()["kind"], master.opcode()["tags"]) == ("cluster", ["x", "y"])


def test_search(gnt: Gnt, master: FakeMaster) -> None:
    master.results["OP_TAGS_SEARCH"] = [["/nodes/b", "t"], ["/cluster", "t"]]
    assert gnt("cluster search-tags t") == (0, "/cluster t\n/nodes/b t\n", "")
    assert gnt("cluster search-tags --output=csv t").out == "path,tag\n/cluster,t\n/nodes/b,t\n"
    master.results["OP_TAGS_SEARCH"] = []
    assert gnt("cluster search-tags t") == (1, "", "")


# -- disks -----------------------------------------------------------------------


def groups(master: FakeMaster, *results: object) -> None:
    """A job for each group, with these results."""
    ids = []
    for number, result in enumerate(results):
        ids.append([True, master.add_job({"OP_ID": f"OP_GROUP_VERIFY_DISKS_{number}"})])
        master.results[f"OP_GROUP_VERIFY_DISKS_{number}"] = result
    master.results["OP_CLUSTER_VERIFY_DISKS"] = {"jobs": ids}


def test_good_disks(gnt: Gnt, master: FakeMaster) -> None:
    groups(master, [{}, [], {}], [{}, [], {}])
    said = "No disks need to be activated.\n"
    assert gnt("cluster verify-disks -g default --no-strict") == (0, said, "")
    (op,) = [op for op in master.opcodes() if op["OP_ID"] == "OP_CLUSTER_VERIFY_DISKS"]
    assert (op["group_name"], op["is_strict"]) == ("default", False)


def test_bad_disks(gnt: Gnt, master: FakeMaster) -> None:
    groups(
        master,
        [{"node2": "no lvs"}, ["web"], {}],
        [{}, [], {"db": [["node3", "xenvg/db"]]}],
        errors.OpExecError("group is gone"),
    )
    ended = gnt("cluster verify-disks")
    assert ended.code == 1
    assert "No disks" not in ended.out
    lines = ended.out.splitlines()
    assert "Error gathering data on node node2: no lvs" in lines
    assert "Activating disks for instance 'web'" in lines
    assert "  node3 xenvg/db" in lines
    assert "group is gone" in ended.err
    assert [
        op["instance_name"]
        for op in master.opcodes()
        if op["OP_ID"] == "OP_INSTANCE_ACTIVATE_DISKS"
    ] == ["web"]


def test_disks_that_can_be_activated_are_no_failure(gnt: Gnt, master: FakeMaster) -> None:
    groups(master, [{}, ["web"], {}])
    assert gnt("cluster verify-disks").code == 0
    master.results["OP_INSTANCE_ACTIVATE_DISKS"] = errors.OpExecError("no")
    groups(master, [{}, ["web"], {}])
    assert gnt("cluster verify-disks").code == 1


def test_repair_disk_sizes(gnt: Gnt, master: FakeMaster) -> None:
    master.logs["OP_CLUSTER_REPAIR_DISK_SIZES"] = [" - INFO: disk 0 of instance web has 5 MiB"]
    assert "5 MiB" in gnt("cluster repair-disk-sizes web db").out
    assert master.opcode()["instances"] == ["web", "db"]
