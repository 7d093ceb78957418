"""``gnt-backup`` and ``gnt-storage``; ``gnt-os modify``."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fakes.luxi_master import FakeMaster
from ganeti.cli import terminal

from ..conftest import Gnt, fields_of

SHELF: dict[str, Any] = {
    "name": "shelf",
    "nodegroup_status": {"default": True, "rack2": False},
    "parameters": [["level", "which board"]],
    "node_status": {
        "node1": [
            ["/srv/ganeti/extstorage/shelf", True, "", [["level", "which board"]]],
            ["/usr/share/ganeti/extstorage/shelf", True, "", []],
        ],
        "node2": [],
        "node3": [["/srv/ganeti/extstorage/shelf", False, "attach is missing", []]],
    },
}


def test_list(gnt: Gnt, master: FakeMaster) -> None:
    master.fields["export"] = fields_of("export")
    master.rows["export"] = [{"node": "node1", "export": "web1"}]
    assert gnt("backup list").out == "Node  Export\nnode1 web1\n"
    master.rows["node"] = [{"name": "node1"}, {"name": "node2"}]
    master.fields["node"] = fields_of("node")
    assert gnt("backup list -n node1 -n node2").code == 0
    ended = gnt("backup list -n nosuch")
    assert (ended.code, "nosuch" in ended.err) == (1, True)


def test_on_a_terminal_the_list_has_date_size_and_source(
    gnt: Gnt, master: FakeMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "is_terminal", lambda stream: True)
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("TZ", "UTC")
    master.fields["export"] = fields_of("export")
    row = {"node": "node2", "export": "web1", "ctime": 1795213010, "size": 1024, "source": "node1"}
    master.rows["export"] = [row]
    assert gnt("backup list").out.splitlines() == [
        "Export Node  CTime               Size From",
        "web1   node2 2026-11-20 22:16:50 1.0G node1",
    ]


def test_export(gnt: Gnt, master: FakeMaster) -> None:
    master.results["OP_BACKUP_EXPORT"] = [True, [True]]
    assert gnt(
        "backup export -n node2 --noshutdown --long-sleep --shutdown-timeout 7"
        " --transport-compression gzip web1"
    ) == (0, "", "")
    op = master.opcode()
    assert (
        op["instance_name"],
        op["target_node"],
        op["mode"],
        op["shutdown"],
        op["long_sleep"],
        op["shutdown_timeout"],
        op["compress"],
        op["remove_instance"],
    ) == ("web1", "node2", "local", False, True, 7, "gzip", False)
    master.results["OP_BACKUP_EXPORT"] = [True, [True, False]]
    done = gnt("backup export -n node2 web1")
    assert (done.code, done.err) == (1, "These disks of instance web1 were not exported: 1\n")
    assert "--node NODE" in gnt("backup export web1").err


def test_removal_is_asked_for(gnt: Gnt, master: FakeMaster) -> None:
    master.rows["instance"] = [{"name": "web1"}]
    done = gnt("backup export -n node2 --remove-instance web1")
    assert (done.code, master.jobs) == (1, {})
    assert "--force" in done.err
    master.results["OP_BACKUP_EXPORT"] = [True, []]
    assert (
        gnt("backup export -n node2 --remove-instance --ignore-remove-failures -f web1").code == 0
    )
    op = master.opcode()
    assert (op["remove_instance"], op["ignore_remove_failures"]) == (True, True)


def test_import(gnt: Gnt, master: FakeMaster) -> None:
    master.results["OP_INSTANCE_CREATE"] = ["node3"]
    assert (
        gnt(
            "backup import -n node3 --src-node node1 --src-dir web1 --compress gzip"
            " --identify-defaults web2"
        ).code
        == 0
    )
    op = master.opcode()
    assert {
        key: op[key]
        for key in (
            "mode",
            "instance_name",
            "pnode",
            "src_node",
            "src_path",
            "compress",
            "identify_defaults",
            "disks",
            "nics",
            "disk_template",
            "os_type",
            "start",
            "hypervisor",
            "tags",
        )
    } == {
        "mode": "import",
        "instance_name": "web2",
        "pnode": "node3",
        "src_node": "node1",
        "src_path": "web1",
        "compress": "gzip",
        "identify_defaults": True,
        "disks": [],
        "nics": [],
        "disk_template": None,
        "os_type": None,
        "start": False,
        "hypervisor": None,
        "tags": [],
    }
    assert (
        gnt(
            "backup import -n node3 -t plain -s 2g --net 0:ip=pool,network=lan -B memory=1g"
            " --no-ip-check web2"
        ).code
        == 0
    )
    op = master.opcodes()[-1]
    assert (op["disks"], op["nics"], op["beparams"], op["disk_template"]) == (
        [{"size": 2048}],
        [{"ip": "pool", "network": "lan"}],
        {"memory": 1024},
        "plain",
    )


def test_remove(gnt: Gnt, master: FakeMaster) -> None:
    master.results["OP_BACKUP_REMOVE"] = None
    assert gnt("backup remove web1").code == 0
    assert master.opcode()["instance_name"] == "web1"


# -- storage -------------------------------------------------------------------------------------


@pytest.fixture
def _shelf(master: FakeMaster) -> None:
    master.results["OP_EXT_STORAGE_DIAGNOSE"] = lambda op: [
        [SHELF[field] for field in op["output_fields"]]
    ]


@pytest.mark.usefixtures("_shelf")
def test_storage(gnt: Gnt) -> None:
    assert gnt("storage diagnose") == (
        1,
        """\
Provider: shelf
  Group: default, status: valid
  Group: rack2, status: invalid
  Node: node1, status: valid (path: /srv/ganeti/extstorage/shelf) [parameters: level]
    [hidden] status: valid (path: /usr/share/ganeti/extstorage/shelf)
  Node: node2, status: not found
  Node: node3, status: invalid (path: /srv/ganeti/extstorage/shelf) attach is missing

""",
        "",
    )
    assert (
        gnt("storage info shelf").out
        == """\
shelf:
  - valid in node groups:
    - default
  - parameters:
    - level: which board

"""
    )
    done = gnt("storage info drawer")
    assert (done.code, done.err) == (1, "no node has a storage provider 'drawer'\n")
    (info,) = json.loads(gnt("storage info --output json").out)
    assert info["parameters"] == [["level", "which board"]]


def test_no_storage(gnt: Gnt, master: FakeMaster) -> None:
    master.results["OP_EXT_STORAGE_DIAGNOSE"] = []
    for command in ("diagnose", "info"):
        done = gnt(f"storage {command}")
        assert (done.code, done.out) == (1, "")
        assert "Can't get the list of ExtStorage providers" in done.err


# -- gnt-os modify -------------------------------------------------------------------------------


def test_os_modify(gnt: Gnt, master: FakeMaster) -> None:
    master.results["OP_CLUSTER_SET_PARAMS"] = None
    assert (
        gnt(
            "os modify -H kvm:acpi=no -H kvm:boot_order=default -O size=3,-old"
            " --os-parameters-private pass=x --hidden yes --blacklisted no tiny"
        ).code
        == 0
    )
    op = master.opcode()
    assert {
        key: op[key]
        for key in ("os_hvp", "osparams", "osparams_private_cluster", "hidden_os", "blacklisted_os")
    } == {
        "os_hvp": {"tiny": {"kvm": {"acpi": False, "boot_order": "default"}}},
        "osparams": {"tiny": {"size": "3", "old": None}},
        "osparams_private_cluster": {"tiny": {"pass": "x"}},
        "hidden_os": [["add", "tiny"]],
        "blacklisted_os": [["remove", "tiny"]],
    }


@pytest.mark.parametrize(
    ("options", "fragment"),
    [
        ("", "at least one of the parameters"),
        ("-H vax:x=1", "unknown hypervisor 'vax'"),
        ("-H no_kvm", "as a whole"),
        ("-H kvm:colour=1", "unknown parameter 'colour'"),
        ("--hidden perhaps", "neither yes nor no"),
    ],
)
def test_os_modify_slips(gnt: Gnt, master: FakeMaster, options: str, fragment: str) -> None:
    done = gnt(f"os modify {options} tiny")
    assert done.code != 0
    assert fragment in done.err
    assert master.jobs == {}
