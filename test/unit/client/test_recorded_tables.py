"""Tables byte for byte as the original program printed them, from rows with the same values.

Titles, kinds and so the layout come from our own tables of fields: what is compared is what a
script that cuts columns would see.
"""

from __future__ import annotations

import textwrap
from typing import Any

import pytest

from fakes.luxi_master import FakeMaster
from ganeti.query import engine, resources

from .conftest import Gnt

INSTANCES = [
    {
        "name": f"instance{number}.example.com",
        "hypervisor": "fake",
        "os": os,
        "status": status,
        "pnode": f"node{node}.example.com",
        "oper_ram": ram,
        "tags": tags,
        "uuid": uuid,
        "be/maxmem": maxmem,
        "disk.sizes": sizes,
        "nic.ips": ips,
        "oper_vcpus": 1,
        "disk.size/3": None,
    }
    for number, os, node, status, ram, tags, uuid, maxmem, sizes, ips in (
        (1, "noop", 1, "running", 128, [], "431e6bc4-fc4c-467e-83d8-8bd2d1017947", 128, [], [None]),
        (
            2,
            "dumper+plain",
            2,
            "ADMIN_down",
            None,
            [],
            "2cf8a4d0-38d5-429e-af70-3ab9bfaa53c4",
            256,
            [],
            [None],
        ),
        (
            4,
            "dumper+plain",
            3,
            "running",
            64,
            [],
            "e8ed9375-c436-4021-afce-d71a5e528cf1",
            64,
            [8, 4],
            ["203.0.113.3"],
        ),
        (
            5,
            "noop",
            4,
            "running",
            64,
            ["prod", "web"],
            "666a1ba2-4f24-417b-a7ab-caf449313699",
            64,
            [],
            [],
        ),
    )
]
NODES = [
    {
        "name": f"node{number}.example.com",
        "dtotal": 258019,
        "dfree": 72905,
        "mtotal": 24105,
        "mnode": 489,
        "mfree": mfree,
        "pinst_cnt": pinst,
        "sinst_cnt": 0,
    }
    for number, mfree, pinst in ((1, 22835, 1), (5, 22938, 0))
]
GROUPS = [
    {
        "name": "default",
        "node_cnt": 5,
        "pinst_cnt": 0,
        "alloc_policy": "preferred",
        "ndparams": {
            "oob_program": "",
            "spindle_count": 1,
            "exclusive_storage": False,
            "ovs": False,
            "ovs_name": "switch1",
            "ovs_link": "",
            "ssh_port": 22,
            "cpu_speed": 1,
        },
    }
]
NETWORKS = [
    {
        "name": "net1",
        "network": "203.0.113.0/28",
        "gateway": "203.0.113.1",
        "mac_prefix": "aa:bb:cc",
        "tags": [],
        "group_list": [["default", "bridged", "xen-br0", ""], ["rack2", "bridged", "xen-br0", ""]],
    }
]
FILTERS = [
    {
        "name": "1",
        "uuid": "a5552c57-9ff3-48d7-9ba3-c2a17a18abd9",
        "watermark": 192,
        "priority": 10,
        "predicates": [["jobid", [">", "id", "watermark"]]],
        "action": "CONTINUE",
        "reason_trail": [["luxid", "", 1795213260957487000]],
    },
    {
        "name": "2",
        "uuid": "cbe02c55-a92b-4485-b964-9af8921b0f37",
        "watermark": 192,
        "priority": 5,
        "predicates": [["opcode", ["==", "OP_ID", "OP_TEST_DELAY"]]],
        "action": "REJECT",
        "reason_trail": [
            ["gnt:user", "norejoice", 1795213261143946240],
            ["luxid", "", 1795213261144316000],
        ],
    },
]
LOCKS = [
    {"name": "cluster/BGL", "mode": "shared", "owner": ["176"], "pending": None},
    {"name": "cluster/[lockset]", "mode": None, "owner": None, "pending": None},
]
JOBS = [
    {"id": number, "status": "success", "summary": [summary]}
    for number, summary in (
        (1, "CLUSTER_POST_INIT"),
        (2, "NODE_ADD(node2.example.com)"),
        (10, "CLUSTER_VERIFY_CONFIG"),
    )
]


@pytest.fixture(autouse=True)
def _objects(master: FakeMaster) -> None:
    for what, rows in (
        ("instance", INSTANCES),
        ("node", NODES),
        ("group", GROUPS),
        ("network", NETWORKS),
        ("filter", FILTERS),
        ("lock", LOCKS),
        ("job", JOBS),
        ("export", []),
    ):
        master.fields[what] = engine.definitions(resources.lookup(what), None)["fields"]
        rows_: list[dict[str, Any]] = list(rows)  # type: ignore[call-overload]
        master.rows[what] = rows_
    master.statuses = {(row["name"], "disk.size/3"): 3 for row in INSTANCES}
    master.statuses |= {("instance2.example.com", name): 3 for name in ("oper_ram", "oper_vcpus")}


@pytest.mark.parametrize(
    ("line", "recorded"),
    [
        (
            "instance list",
            """\
        Instance              Hypervisor OS           Primary_node      Status     Memory
        instance1.example.com fake       noop         node1.example.com running      128M
        instance2.example.com fake       dumper+plain node2.example.com ADMIN_down      -
        instance4.example.com fake       dumper+plain node3.example.com running       64M
        instance5.example.com fake       noop         node4.example.com running       64M
        """,
        ),
        (
            "instance list -o +uuid,tags",
            """\
        Instance              Hypervisor OS           Primary_node      Status     Memory UUID                                 Tags
        instance1.example.com fake       noop         node1.example.com running      128M 431e6bc4-fc4c-467e-83d8-8bd2d1017947 \

        instance2.example.com fake       dumper+plain node2.example.com ADMIN_down      - 2cf8a4d0-38d5-429e-af70-3ab9bfaa53c4 \

        instance4.example.com fake       dumper+plain node3.example.com running       64M e8ed9375-c436-4021-afce-d71a5e528cf1 \

        instance5.example.com fake       noop         node4.example.com running       64M 666a1ba2-4f24-417b-a7ab-caf449313699 prod,web
        """,
        ),
        (
            "instance list --separator=: -o name,status,be/maxmem,disk.sizes,nic.ips,hv/migration_mode",
            """\
        Instance:Status:ConfigMaxMem:Disk_sizes:NIC_IPs:hv/migration_mode
        instance1.example.com:running:128::None:??
        instance2.example.com:ADMIN_down:256::None:??
        instance4.example.com:running:64:8,4:203.0.113.3:??
        instance5.example.com:running:64:::??
        """,
        ),
        (
            "instance list -v -o name,oper_ram,oper_vcpus,disk.size/3",
            """\
        Instance                 Memory     VCPUs    Disk/3
        instance1.example.com      128M         1 (unavail)
        instance2.example.com (unavail) (unavail) (unavail)
        instance4.example.com       64M         1 (unavail)
        instance5.example.com       64M         1 (unavail)
        """,
        ),
        (
            "node list",
            """\
        Node              DTotal DFree MTotal MNode MFree Pinst Sinst
        node1.example.com 252.0G 71.2G  23.5G  489M 22.3G     1     0
        node5.example.com 252.0G 71.2G  23.5G  489M 22.4G     0     0
        """,
        ),
        (
            "node list -o nosuch",
            """\
        nosuch
        ??
        ??
        """,
        ),
        (
            "group list",
            """\
        Group   Nodes Instances AllocPolicy NDParams
        default     5         0 preferred   oob_program=, spindle_count=1, exclusive_storage=False, ovs=False, ovs_name=switch1, ovs_link=, ssh_port=22, cpu_speed=1
        """,
        ),
        (
            "network list -o name,network,gateway,mac_prefix,group_list",
            """\
        Network Subnet         Gateway     MacPrefix GroupList
        net1    203.0.113.0/28 203.0.113.1 aa:bb:cc  default (bridged, xen-br0, ), rack2 (bridged, xen-br0, )
        """,
        ),
        (
            "filter list",
            """\
        UUID                                 Watermark Priority Predicates                                     Action   ReasonTrail
        a5552c57-9ff3-48d7-9ba3-c2a17a18abd9 192       10       [['jobid', ['>', 'id', 'watermark']]]          CONTINUE [['luxid', '', 1795213260957487000]]
        cbe02c55-a92b-4485-b964-9af8921b0f37 192       5        [['opcode', ['==', 'OP_ID', 'OP_TEST_DELAY']]] REJECT   [['gnt:user', 'norejoice', 1795213261143946240], ['luxid', '', 1795213261144316000]]
        """,
        ),
        (
            "debug locks",
            """\
        Name              Mode   Owner Pending
        cluster/BGL       shared 176   -
        cluster/[lockset] -      -     -
        """,
        ),
        (
            "job list",
            """\
        ID Status  Summary
         1 success CLUSTER_POST_INIT
         2 success NODE_ADD(node2.example.com)
        10 success CLUSTER_VERIFY_CONFIG
        """,
        ),
        (
            "backup list --separator=| -o export,node",
            """\
        Export|Node
        """,
        ),
    ],
)
def test_table(line: str, recorded: str, gnt: Gnt) -> None:
    assert gnt(line.replace("|", "'|'")).out == textwrap.dedent(recorded)
