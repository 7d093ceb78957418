"""``gnt-group`` and ``gnt-instance change-group``."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fakes.luxi_master import FakeMaster

from ..conftest import Gnt, fields_of

SPECS = {
    "cpu-count": 1,
    "disk-count": 0,
    "disk-size": 4,
    "memory-size": 4,
    "nic-count": 0,
    "spindle-use": 1,
}
RACK: dict[str, Any] = {
    "name": "rack2",
    "node_cnt": 1,
    "pinst_cnt": 0,
    "alloc_policy": "preferred",
    "ndparams": {"cpu_speed": 1.0, "oob_program": "", "spindle_count": 3},
    "custom_ndparams": {"spindle_count": 3},
    "diskparams": {"drbd": {"protocol": "C", "resync-rate": 5}, "file": {}},
    "custom_diskparams": {"drbd": {"resync-rate": 5}},
    "ipolicy": {
        "minmax": [{"min": SPECS, "max": {**SPECS, "cpu-count": 8}}],
        "disk-templates": ["file", "diskless"],
        "vcpu-ratio": 4.0,
        "spindle-ratio": 2.5,
    },
    "custom_ipolicy": {"spindle-ratio": 2.5},
    "tags": [],
}


@pytest.fixture(autouse=True)
def _groups(master: FakeMaster) -> None:
    master.fields["group"] = fields_of("group")
    master.rows["group"] = [RACK]


def test_list(gnt: Gnt) -> None:
    assert gnt("group list").out == (
        "Group Nodes Instances AllocPolicy NDParams\n"
        "rack2     1         0 preferred   oob_program=, spindle_count=3, cpu_speed=1\n"
    )
    assert gnt("group list --no-headers -o name,tags").out == "rack2 []\n"


def test_info(gnt: Gnt) -> None:
    assert (
        gnt("group info").out
        == """\
- Node group: rack2
  Node parameters: 
    cpu_speed: default (1)
    oob_program: default ()
    spindle_count: 3
  Disk parameters: 
    drbd: 
      protocol: default (C)
      resync-rate: 5
    file: default ({})
  Instance policy: 
    bounds specs: 
      - max/0: 
          cpu-count: default (8)
          disk-count: default (0)
          disk-size: default (4)
          memory-size: default (4)
          nic-count: default (0)
          spindle-use: default (1)
        min/0: 
          cpu-count: default (1)
          disk-count: default (0)
          disk-size: default (4)
          memory-size: default (4)
          nic-count: default (0)
          spindle-use: default (1)
    allowed disk templates: default (file, diskless)
    vcpu-ratio: default (4)
    spindle-ratio: 2.5
"""
    )  # noqa: W291  the blanks are published
    (info,) = json.loads(gnt("group info --output json").out)
    assert info["custom_diskparams"] == {"drbd": {"resync-rate": 5}}


def test_show_ispecs_cmd(gnt: Gnt) -> None:
    assert gnt("group show-ispecs-cmd").out == "gnt-group add rack2\n"
    low = ",".join(f"{key}={value}" for key, value in SPECS.items())
    assert gnt("group show-ispecs-cmd --include-defaults").out == (
        f"gnt-group add --ipolicy-bounds-specs min:{low}/max:{low.replace('t=1', 't=8', 1)} rack2\n"
    )


def test_add(gnt: Gnt, master: FakeMaster) -> None:
    master.results["OP_GROUP_ADD"] = None
    done = gnt(
        "group add --alloc-policy last_resort --node-parameters spindle_count=2"
        " -D drbd:resync-rate=5,protocol=default -D plain:stripes=2"
        " --hypervisor-state kvm:mem_node=5 --disk-state plain/xenvg:disk_reserved=7"
        " --ipolicy-bounds-specs min:memory-size=1g,cpu-count=1,disk-count=0,disk-size=1,"
        "nic-count=0,spindle-use=1/max:memory-size=2g,cpu-count=1,disk-count=0,disk-size=1,"
        "nic-count=0,spindle-use=1 --ipolicy-disk-templates file,plain"
        " --ipolicy-vcpu-ratio 2.5 --ipolicy-spindle-ratio default rack7"
    )
    assert done == (0, "", "")
    op = master.opcode()
    assert (op["group_name"], op["alloc_policy"], op["ndparams"]) == (
        "rack7",
        "last_resort",
        {"spindle_count": 2},
    )
    assert op["diskparams"] == {
        "drbd": {"resync-rate": 5, "protocol": "default"},
        "plain": {"stripes": 2},
    }
    assert (op["hv_state"], op["disk_state"]) == (
        {"kvm": {"mem_node": 5}},
        {"plain": {"xenvg": {"disk_reserved": 7}}},
    )
    policy = op["ipolicy"]
    assert policy["minmax"][0]["max"]["memory-size"] == 2048
    assert {key: policy[key] for key in policy if key != "minmax"} == {
        "disk-templates": ["file", "plain"],
        "vcpu-ratio": 2.5,
        "spindle-ratio": "default",
    }


def test_add_that_connects_a_network(gnt: Gnt, master: FakeMaster) -> None:
    master.results["OP_GROUP_ADD"] = {"jobs": [[False, "no such network"]]}
    assert gnt("group add rack7").code == 1


def test_modify(gnt: Gnt, master: FakeMaster) -> None:
    master.results["OP_GROUP_SET_PARAMS"] = [["ndparams", "{'spindle_count': 2}"]]
    done = gnt(
        "group modify --node-parameters spindle_count=2 --ipolicy-bounds-specs default"
        " --ipolicy-disk-templates default rack2"
    )
    assert done.out == "Modified node group rack2\n - ndparams -> {'spindle_count': 2}\n"
    assert master.opcode()["ipolicy"] == {"minmax": "default", "disk-templates": "default"}
    assert gnt("group modify rack2") == (1, "", "Please give at least one of the parameters.\n")


@pytest.mark.parametrize(
    ("options", "fragment"),
    [
        ("--node-parameters x=1", "unknown parameter 'x'"),
        ("-D tape:x=1", "unknown disk template 'tape'"),
        ("-D no_drbd", "cannot be removed as a whole"),
        ("-D plain:resync-rate=1", "unknown parameter 'resync-rate'"),
        ("--ipolicy-bounds-specs min:memory-size=1", "min:... and max:..."),
        ("--ipolicy-vcpu-ratio many", "neither a number"),
    ],
)
def test_slips(gnt: Gnt, master: FakeMaster, options: str, fragment: str) -> None:
    done = gnt(f"group modify {options} rack2")
    assert done.code in (1, 2)
    assert fragment in done.err
    assert master.jobs == {}


def test_the_rest(gnt: Gnt, master: FakeMaster) -> None:
    for line, op_id, wanted in (
        (
            "assign-nodes -f rack2 node1 node2",
            "OP_GROUP_ASSIGN_NODES",
            {"group_name": "rack2", "nodes": ["node1", "node2"], "force": True},
        ),
        ("remove rack2", "OP_GROUP_REMOVE", {"group_name": "rack2"}),
        ("rename rack2 rackB", "OP_GROUP_RENAME", {"group_name": "rack2", "new_name": "rackB"}),
    ):
        master.results[op_id] = None
        assert gnt(f"group {line}").code == 0
        op = master.opcodes()[-1]
        assert {key: op[key] for key in wanted} == wanted


def test_evacuate(gnt: Gnt, master: FakeMaster) -> None:
    master.results["OP_GROUP_EVACUATE"] = {"jobs": []}
    done = gnt(
        "group evacuate -I hail --to a --to b --early-release --sequential --force-failover rack2"
    )
    assert done.code == 0
    assert "All instances evacuated successfully." in done.out
    op = master.opcode()
    assert (
        op["target_groups"],
        op["iallocator"],
        op["early_release"],
        op["sequential"],
        op["force_failover"],
    ) == (["a", "b"], "hail", True, True, True)
    master.results["OP_GROUP_EVACUATE"] = {"jobs": [[False, "queue is full"]]}
    done = gnt("group evacuate rack2")
    assert done.code == 1
    assert "There were 1 errors" in done.err


def test_change_group(gnt: Gnt, master: FakeMaster) -> None:
    master.results["OP_INSTANCE_CHANGE_GROUP"] = {"jobs": []}
    done = gnt("instance change-group -I hail web1")
    assert (done.code, done.out) == (0, "Instance 'web1' changed group successfully.\n")
    op = master.opcode()
    assert (op["instance_name"], op["iallocator"], op["target_groups"]) == ("web1", "hail", None)
