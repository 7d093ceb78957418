"""``gnt-node``: roles, power, commands, storage, emptying; tags of everything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fakes.luxi_master import FakeMaster
from ganeti import errors
from ganeti.cli import terminal

from ..conftest import Gnt

NODES: list[dict[str, Any]] = [
    {
        "name": f"node{n}.example.com",
        "master": n == 1,
        "offline": n == 3,
        "group": "default",
        "pinst_list": ["web2", "web1"] if n == 2 else [],
        "sinst_list": ["db1"] if n == 2 else [],
    }
    for n in (1, 2, 3)
]
NODE1, NODE2, NODE3 = (node["name"] for node in NODES)
RULER = "-" * 48 + "\n"


@pytest.fixture(autouse=True)
def _nodes(master: FakeMaster) -> None:
    master.rows["node"] = NODES
    master.answers["QueryGroups"] = lambda names, fields, locking: [
        ["default"] for name in names if name == "default"
    ]


def params(op: dict[str, Any], *names: str) -> list[Any]:
    return [op[name] for name in names]


# -- modify ---------------------------------------------------------------------------------------


def test_modify(gnt: Gnt, master: FakeMaster) -> None:
    master.results["OP_NODE_SET_PARAMS"] = [["master_candidate", "False"], ["drained", "True"]]
    done = gnt("node modify -D yes --auto-promote -f node2")
    assert (done.code, done.err) == (0, "")
    assert done.out == "Modified node node2\n - master_candidate -> False\n - drained -> True\n"
    op = master.opcode()
    assert params(op, "node_name", "drained", "offline", "auto_promote", "force") == [
        "node2",
        True,
        None,
        True,
        True,
    ]


def test_modify_everything_else(gnt: Gnt, master: FakeMaster) -> None:
    master.results["OP_NODE_SET_PARAMS"] = []
    done = gnt(
        "node modify -C no -O no --master-capable no --vm-capable yes --node-powered no"
        " -s 192.0.2.9 --node-parameters ssh_port=2222,cpu_speed=default"
        " --hypervisor-state kvm:mem_total=5 node2"
    )
    assert done == (0, "", "")
    op = master.opcode()
    assert params(
        op,
        "master_candidate",
        "offline",
        "master_capable",
        "vm_capable",
        "powered",
        "secondary_ip",
        "ndparams",
        "hv_state",
    ) == [
        False,
        False,
        False,
        True,
        False,
        "192.0.2.9",
        {"ssh_port": 2222, "cpu_speed": "default"},
        {"kvm": {"mem_total": 5}},
    ]


def test_modify_nothing(gnt: Gnt, master: FakeMaster) -> None:
    assert gnt("node modify node2") == (1, "", "Please give at least one of the parameters.\n")
    assert master.jobs == {}


def test_modify_refused(gnt: Gnt, master: FakeMaster) -> None:
    master.results["OP_NODE_SET_PARAMS"] = errors.OpPrereqError("is the master", "wrong_input")
    done = gnt("node modify -C no node1")
    assert done.code == 1
    assert "error type: wrong_input" in done.err


# -- power and health -----------------------------------------------------------------------------


def test_power_status(gnt: Gnt, master: FakeMaster) -> None:
    master.results["OP_OOB_COMMAND"] = [
        [[0, NODE1], [3, None]],
        [[0, NODE2], [0, {"powered": True}]],
    ]
    done = gnt("node power status")
    assert done == (
        1,
        "Node              Status   \nnode1.example.com (unavail)\nnode2.example.com powered\n",
        "",
    )
    assert params(master.opcode(), "command", "node_names", "timeout") == ["power-status", [], 60]


def test_power_for_programs(gnt: Gnt, master: FakeMaster) -> None:
    """What the job says goes elsewhere, so that standard output can be read."""
    master.logs["OP_OOB_COMMAND"] = ["node1 has no helper"]
    master.results["OP_OOB_COMMAND"] = [
        [[0, NODE1], [3, None]],
        [[0, NODE2], [0, {"powered": False}]],
    ]
    done = gnt("node power --output json status")
    assert done.code == 1 and "node1 has no helper" in done.err
    assert json.loads(done.out) == [
        {"node": NODE1, "powered": None},
        {"node": NODE2, "powered": False},
    ]


def test_power_off_marks_offline_in_the_same_job(gnt: Gnt, master: FakeMaster) -> None:
    master.results["OP_OOB_COMMAND"] = [[[0, NODE2], [0, None]]]
    master.rows["node"] = [{**row, "powered": True} for row in NODES]
    done = gnt("node power -f --no-headers --separator=: --auto-promote off", NODE2)
    assert done == (0, f"{NODE2}:invoked\n", "")
    assert len(master.jobs) == 1
    first, second = master.opcodes()
    assert params(first, "OP_ID", "offline", "auto_promote") == ["OP_NODE_SET_PARAMS", True, True]
    assert params(second, "command", "node_names") == ["power-off", [NODE2]]


def test_power_off_without_marking(gnt: Gnt, master: FakeMaster) -> None:
    master.results["OP_OOB_COMMAND"] = [[[0, NODE2], [0, None]]]
    gnt("node power -f --ignore-status --power-delay 0.5 off node2")
    assert params(master.opcode(), "ignore_status", "power_delay") == [True, 0.5]


def test_power_off_needs_a_helper_before_anything_is_marked(gnt: Gnt, master: FakeMaster) -> None:
    master.rows["node"] = [{**row, "powered": None} for row in NODES]
    done = gnt("node power -f off", NODE2)
    assert done.code == 1 and "oob_program" in done.err
    assert master.jobs == {}


def test_power_asks(gnt: Gnt, master: FakeMaster, monkeypatch: pytest.MonkeyPatch) -> None:
    assert gnt("node power cycle node2").code == 1
    assert gnt("node power cycle").err == "Please provide at least one node for this command\n"
    assert gnt("node power explode node2").code == 1
    monkeypatch.setattr(terminal, "can_ask", lambda: True)
    monkeypatch.setattr(terminal, "confirm", lambda question: False)
    assert gnt("node power cycle node2").code == 13
    assert master.jobs == {}


def test_health(gnt: Gnt, master: FakeMaster) -> None:
    master.results["OP_OOB_COMMAND"] = [
        [[0, NODE1], [0, [["fan1", "OK"], ["psu", "CRITICAL"]]]],
        [[0, NODE2], [2, None]],
    ]
    assert gnt("node health --oob-timeout 5") == (
        1,
        "Node              Status      \n"
        "node1.example.com fan1=OK\n"
        "                  psu=CRITICAL\n"
        "node2.example.com (nodata)\n",
        "",
    )
    assert params(master.opcode(), "command", "timeout") == ["health", 5]


def test_powercycle(gnt: Gnt, master: FakeMaster) -> None:
    master.results["OP_NODE_POWERCYCLE"] = "reboot scheduled in 5 seconds"
    assert gnt("node powercycle node2").code == 1
    assert gnt("node powercycle --yes -f node2") == (0, "", "reboot scheduled in 5 seconds\n")
    assert params(master.opcode(), "node_name", "force") == ["node2", True]


# -- restricted commands --------------------------------------------------------------------------


def test_restricted_command(gnt: Gnt, master: FakeMaster) -> None:
    master.results["OP_RESTRICTED_COMMAND"] = [[True, "a\nb"], [False, "command 'x' failed"]]
    done = gnt("node restricted-command --sync x")
    assert done == (
        1,
        f"{RULER}Node: {NODE1}\na\nb\n{RULER}command 'x' failed\n",
        f"Note: skipping offline node(s): {NODE3}\n",
    )
    assert params(master.opcode(), "command", "nodes", "use_locking") == ["x", [NODE1, NODE2], True]


def test_restricted_command_with_names(gnt: Gnt, master: FakeMaster) -> None:
    master.results["OP_RESTRICTED_COMMAND"] = [[True, "a\nb\n"]]
    done = gnt("node restricted-command -M -g default x", NODE2)
    assert done == (0, f"{RULER}{NODE2}: a\n{NODE2}: b\n", "")
    assert gnt("node restricted-command -g nosuch x").code == 1
    assert "no online node" in gnt("node restricted-command x", NODE3).err


# -- storage --------------------------------------------------------------------------------------


def test_list_storage(gnt: Gnt, master: FakeMaster) -> None:
    master.results["OP_NODE_QUERY_STORAGE"] = [
        [NODE1, "file", "/srv/ganeti/file-storage", 258048, 20, 72909, True]
    ]
    assert gnt("node list-storage --storage-type=file").out == (
        "Node              Type Name                       Size Used  Free Allocatable\n"
        "node1.example.com file /srv/ganeti/file-storage 252.0G  20M 71.2G Y\n"
    )
    assert master.opcode()["storage_type"] == "file"
    master.results["OP_NODE_QUERY_STORAGE"] = [[NODE1, 258048]]
    done = gnt("node list-storage --no-headers --separator=: -o node,size node1")
    assert done.out == f"{NODE1}:258048\n"


def test_volumes(gnt: Gnt, master: FakeMaster) -> None:
    master.results["OP_NODE_QUERYVOLS"] = []
    assert gnt("node volumes").out == "Node PhysDev VG Name Size Instance\n"
    master.results["OP_NODE_QUERYVOLS"] = [[NODE1, "/dev/sda", "xenvg", "d0", 1024, "web1"]]
    done = gnt("node volumes --no-headers --units m")
    assert done.out == f"{NODE1} /dev/sda xenvg d0 1024 web1\n"


def test_modify_storage(gnt: Gnt, master: FakeMaster) -> None:
    done = gnt("node modify-storage node1 lvm-pv /dev/sda")
    assert done == (0, "", "No changes to perform, exiting.\n")
    assert gnt("node modify-storage node1 file /srv").code == 0
    assert gnt("node modify-storage node1 floppy /srv").code == 1
    assert gnt("node modify-storage --allocatable no node1 lvm-vg xenvg").code == 1
    assert gnt("node modify-storage --allocatable no node1 lvm-pv /dev/sda").code == 0
    assert params(master.opcode(), "name", "changes") == ["/dev/sda", {"allocatable": False}]


def test_repair_storage(gnt: Gnt, master: FakeMaster) -> None:
    assert gnt("node repair-storage node1 file x").code == 1
    assert gnt("node repair-storage --ignore-consistency node1 lvm-vg xenvg").code == 0
    assert params(master.opcode(), "storage_type", "name", "ignore_consistency") == [
        "lvm-vg",
        "xenvg",
        True,
    ]


def test_list_drbd_needs_the_key_of_the_cluster(gnt: Gnt) -> None:
    done = gnt("node list-drbd node1")
    assert done.code == 1
    assert "hmac.key" in done.err


# -- emptying -------------------------------------------------------------------------------------


def test_evacuate(gnt: Gnt, master: FakeMaster) -> None:
    def evacuated(op: dict[str, Any]) -> dict[str, Any]:
        rows = [[True, master._submit([{"OP_ID": "OP_INSTANCE_MIGRATE"}])] for _ in range(2)]
        return {"jobs": rows}

    master.results["OP_NODE_EVACUATE"] = evacuated
    done = gnt("node evacuate -f -p -n node1", NODE2)
    assert done.code == 0
    assert "Submitted jobs 2, 3\n" in done.out
    assert done.out.endswith("All instances evacuated successfully.\n")
    op = master.jobs[1].ops[0]
    assert params(op, "mode", "remote_node") == ["primary-only", "node1"]
    master.results["OP_INSTANCE_MIGRATE"] = errors.OpExecError("no")
    done = gnt("node evacuate -f -n node1", NODE2)
    assert (done.code, done.out.splitlines()[-1]) == (
        1,
        "There were 2 errors during the evacuation.",
    )


def test_evacuate_nothing(gnt: Gnt, master: FakeMaster) -> None:
    assert gnt("node evacuate -f", NODE1) == (
        0,
        "",
        f"No instances to evacuate from node(s) {NODE1}, exiting.\n",
    )
    assert gnt("node evacuate -f -p -s", NODE2).code == 1
    assert gnt("node evacuate", NODE2).code == 1  # nobody can be asked
    assert master.jobs == {}


def test_migrate(gnt: Gnt, master: FakeMaster) -> None:
    master.results["OP_NODE_MIGRATE"] = {"jobs": [[False, "queue is full"]]}
    done = gnt("node migrate -f --non-live -n node1", NODE2)
    assert (done.code, done.out) == (1, "There were 1 errors during the node migration.\n")
    assert params(master.opcode(), "mode", "target_node") == ["non-live", "node1"]
    assert gnt("node migrate -f", NODE1).out == f"No primary instances on node {NODE1}, exiting.\n"
    assert gnt("node migrate -f --non-live --migration-mode live", NODE2).code == 1


def test_failover(gnt: Gnt, master: FakeMaster) -> None:
    master.answers["QueryInstances"] = lambda names, fields, lock: [
        [name, "drbd" if name == "web1" else "sharedfile", False] for name in names
    ]
    done = gnt("node failover -f --ignore-consistency", NODE2)
    assert (done.code, done.out.splitlines()[-1]) == (
        0,
        "All 2 instance(s) failed over successfully.",
    )
    assert [op["instance_name"] for op in master.opcodes()] == ["web1", "web2"]
    assert master.opcodes()[0]["ignore_consistency"]
    master.results["OP_INSTANCE_FAILOVER"] = errors.OpPrereqError("no", "wrong_state")
    done = gnt("node failover -f", NODE2)
    assert done.out.endswith(
        "There were errors during the failover:\n2 error(s) out of 2 instance(s).\n"
    )
    assert done.code == 0
    # Mirrored disks leave no choice.
    gnt("node failover -f -I hail", NODE2)
    assert [op["iallocator"] for op in master.opcodes()[-2:]] == [None, "hail"]


def test_failover_to_a_node(gnt: Gnt, master: FakeMaster) -> None:
    master.answers["QueryInstances"] = lambda names, fields, lock: [
        [name, "sharedfile", False] for name in names
    ]
    assert gnt("node failover -f -n", NODE1, NODE2).code == 0
    assert [op["target_node"] for op in master.opcodes()] == [NODE1, NODE1]
    before = len(master.opcodes())
    for line, text in (
        (f"node failover -f -n {NODE2}", "cannot be failed over to itself"),
        (f"node failover -f -n {NODE1} -I hail", "either --target-node or --iallocator"),
    ):
        ended = gnt(line, NODE2)
        assert ended.code == 1
        assert text in ended.err
    assert len(master.opcodes()) == before


def test_failover_leaves_what_is_only_reserved(gnt: Gnt, master: FakeMaster) -> None:
    master.answers["QueryInstances"] = lambda names, fields, lock: [
        [name, "sharedfile", name == "web1"] for name in names
    ]
    assert gnt("node failover -f", NODE2).code == 0
    assert [op["instance_name"] for op in master.opcodes()] == ["web2"]


# -- tags -----------------------------------------------------------------------------------------

KINDS = [("node", "node"), ("instance", "instance")]


@pytest.mark.parametrize(("program", "kind"), KINDS)
def test_tags(program: str, kind: str, gnt: Gnt, master: FakeMaster, tmp_path: Path) -> None:
    master.answers["QueryTags"] = lambda kind, name: ["b", "a"]
    assert gnt(f"{program} list-tags x").out == "a\nb\n"
    assert master.requests[-1] == ("QueryTags", [kind, "x"])
    source = tmp_path / "tags"
    source.write_text("c\n\nd\n")
    assert gnt(f"{program} add-tags --from {source} x a b") == (0, "", "")
    assert params(master.opcodes()[-1], "OP_ID", "kind", "name", "tags") == [
        "OP_TAGS_SET",
        kind,
        "x",
        ["a", "b", "c", "d"],
    ]
    assert gnt(f"{program} remove-tags x a").code == 0
    assert params(master.opcodes()[-1], "OP_ID", "tags") == ["OP_TAGS_DEL", ["a"]]
    assert "no tags to add" in gnt(f"{program} add-tags x").err
    assert "nonexistent" in gnt(f"{program} add-tags --from {tmp_path}/nonexistent x").err


@pytest.mark.parametrize(
    "line", ["node evacuate --dry-run", "node migrate --dry-run", "node failover --dry-run"]
)
def test_a_dry_run_asks_nobody_and_claims_nothing(line: str, gnt: Gnt, master: FakeMaster) -> None:
    master.answers["QueryInstances"] = lambda names, fields, lock: [
        [name, "sharedfile", False] for name in names
    ]
    done = gnt(line, NODE2)
    assert (done.code, done.err) == (0, "")
    assert "successfully" not in done.out
    assert all(op["dry_run"] for op in master.opcodes()) and master.opcodes()


@pytest.mark.parametrize("command", ["power --dry-run off", "restricted-command --dry-run check"])
def test_a_dry_run_needs_no_result(command: str, gnt: Gnt, master: FakeMaster) -> None:
    master.rows["node"] = [{**row, "powered": True} for row in NODES]
    done = gnt(f"node {command}", NODE2)
    assert (done.code, done.err) == (0, "")
    assert all(op["dry_run"] for op in master.opcodes()) and master.opcodes()


def test_formats_of_health_and_tags(gnt: Gnt, master: FakeMaster) -> None:
    master.results["OP_OOB_COMMAND"] = [
        [[0, NODE2], [0, [["PSU0", "OK"]]]],
        [[0, "node1"], [2, None]],
    ]
    done = gnt("node health --output=json")
    assert json.loads(done.out) == [
        {"node": NODE2, "items": {"PSU0": "OK"}},
        {"node": "node1", "items": None},
    ]
    assert done.code == 1
    master.answers["QueryTags"] = lambda kind, name: ["web", "db"]
    assert gnt("node list-tags --output=csv", NODE2).out == "tag\ndb\nweb\n"


def test_formats_of_storage(gnt: Gnt, master: FakeMaster) -> None:
    master.results["OP_NODE_QUERY_STORAGE"] = lambda op: [
        [{"node": NODE2, "size": 1024}.get(field) for field in op["output_fields"]]
    ]
    assert gnt("node list-storage -o node,size -o csv").out == f"node,size\n{NODE2},1024\n"
    for word in ("all", "wide"):
        (row,) = json.loads(gnt(f"node list-storage -o {word} -o json").out)
        assert list(row) == ["node", "type", "name", "size", "used", "free", "allocatable"]
