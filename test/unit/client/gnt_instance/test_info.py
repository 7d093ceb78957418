"""``gnt-instance info``."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from fakes.luxi_master import FakeMaster
from ganeti import errors

from ..conftest import Gnt

WEB1: dict[str, Any] = {
    "name": "web1",
    "config_state": "up",
    "run_state": "up",
    "pnode": "node1",
    "pnode_group_uuid": "g-uuid",
    "pnode_group_name": "default",
    "snodes": ["node2"],
    "snodes_group_uuids": ["g-uuid"],
    "snodes_group_names": ["default"],
    "os": "tiny+plain",
    "nics": [
        [
            "lan",
            "n-uuid",
            "203.0.113.3",
            "aa:00:00:38:6f:01",
            "bridged",
            "br0",
            "",
            "net-uuid",
            {"name": "net1"},
        ]
    ],
    "disk_template": "sharedfile",
    "disks": [
        {
            "iv_name": "disk/0",
            "dev_type": "sharedfile",
            "logical_id": ["loop", "/shared/web1/d0"],
            "drbd_info": None,
            "pstatus": ["/shared/web1/d0", None, None, None, None, False, 1],
            "sstatus": None,
            "children": [],
            "mode": "rw",
            "size": 1536,
            "spindles": None,
            "name": "root",
            "uuid": "d-uuid",
        }
    ],
    "hypervisor": "fake",
    "network_port": 11000,
    "hv_instance": {},
    "hv_actual": {"migration_mode": "live"},
    "be_instance": {"maxmem": 64, "minmem": 64},
    "be_actual": {
        "always_failover": False,
        "auto_balance": True,
        "maxmem": 64,
        "minmem": 64,
        "spindle_use": 1,
        "vcpus": 4,
    },
    "os_instance": {"size": "7"},
    "os_actual": {"size": "7"},
    "serial_no": 3,
    "mtime": 1795213015.38,
    "ctime": 1795213010.68,
    "uuid": "i-uuid",
}

TEXT = """\
- Instance name: web1
  UUID: i-uuid
  Serial number: 3
  Creation time: 2026-11-20 22:16:50
  Modification time: 2026-11-20 22:16:55
  State: configured to be up, actual state is up
  Nodes: \n\
    - primary: node1
      group: default (UUID g-uuid)
    - secondaries: node2 (group default, group UUID g-uuid)
  Operating system: tiny+plain
  Operating system parameters: \n\
    size: 7
  Allocated network port: 11000
  Hypervisor: fake
  Hypervisor parameters: \n\
    migration_mode: default (live)
  Back-end parameters: \n\
    always_failover: default (False)
    auto_balance: default (True)
    maxmem: 64
    memory: default (64)
    minmem: 64
    spindle_use: default (1)
    vcpus: default (4)
  NICs: \n\
    - nic/0: \n\
      MAC: aa:00:00:38:6f:01
      IP: 203.0.113.3
      mode: bridged
      link: br0
      vlan: \n\
      network: net1
      UUID: n-uuid
      name: lan
  Disk template: sharedfile
  Disks: \n\
    - disk/0: sharedfile, size 1.5G
      access mode: rw
      logical_id: ['loop', '/shared/web1/d0']
      on primary: /shared/web1/d0 (N/A:N/A)
      name: root
      UUID: d-uuid
"""


def test_text(gnt: Gnt, master: FakeMaster) -> None:
    master.results["OP_INSTANCE_QUERY_DATA"] = {"web1": WEB1}
    ended = gnt("instance info web1")
    assert ended.out == TEXT
    assert (ended.code, ended.err) == (0, "")
    sent = master.opcode()
    assert (sent["instances"], sent["static"], sent["use_locking"], sent["dry_run"]) == (
        ["web1"],
        False,
        True,
        None,
    )


def test_static_and_stopped(gnt: Gnt, master: FakeMaster) -> None:
    master.results["OP_INSTANCE_QUERY_DATA"] = {
        "web1": {
            **WEB1,
            "config_state": "down",
            "run_state": None,
            "nics": [],
            "disks": [],
            "snodes": [],
        }
    }
    ended = gnt("instance info -s --all")
    assert "  State: configured to be down\n" in ended.out
    assert "    - secondaries: \n" in ended.out
    assert ended.out.endswith("  NICs: \n  Disk template: sharedfile\n  Disks: \n")
    sent = master.opcode()
    assert (sent["instances"], sent["static"], sent["use_locking"]) == ([], True, False)


def test_only_reserved(gnt: Gnt, master: FakeMaster) -> None:
    master.results["OP_INSTANCE_QUERY_DATA"] = {
        "web1": {**WEB1, "config_state": "down", "run_state": None, "forthcoming": True}
    }
    text = gnt("instance info web1").out
    assert "  State: forthcoming, only its resources are reserved\n" in text


def test_a_further_address(gnt: Gnt, master: FakeMaster) -> None:
    both = [[*WEB1["nics"][0], "2001:db8::3"]]
    master.results["OP_INSTANCE_QUERY_DATA"] = {"web1": {**WEB1, "nics": both}}
    assert "      IP: 203.0.113.3\n      IPv6: 2001:db8::3\n" in gnt("instance info web1").out


def test_mirrored_disk_and_vnc(gnt: Gnt, master: FakeMaster) -> None:
    child = {
        **WEB1["disks"][0],
        "dev_type": "plain",
        "logical_id": ["xenvg", "lv1"],
        "pstatus": ["/dev/xenvg/lv1", 253, 3, None, None, True, 4],
        "name": None,
    }
    disk = {
        **WEB1["disks"][0],
        "dev_type": "drbd",
        "logical_id": [],
        "drbd_info": {
            "primary_node": "node1",
            "primary_minor": 0,
            "secondary_node": "node2",
            "secondary_minor": 1,
            "port": 11001,
            "secret": "hidden",
        },
        "pstatus": ["/dev/drbd0", 147, 0, 53.5, 12, True, 3],
        "sstatus": ["/dev/drbd1", 147, 1, None, None, False, 1],
        "children": [child],
    }
    master.results["OP_INSTANCE_QUERY_DATA"] = {
        "web1": {
            **WEB1,
            "hypervisor": "kvm",
            "hv_actual": {"vnc_bind_address": "0.0.0.0"},
            "disks": [disk],
        }
    }
    text = gnt("instance info web1").out
    assert "  console connection: vnc to node1:11000 (display 5100)\n" in text
    assert (
        "on primary: /dev/drbd0 (147:0) *RECOVERING* 53.50%, ETA 12s, status *DEGRADED*"
        " *UNCERTAIN STATE*\n" in text
    )
    assert "on secondary: /dev/drbd1 (147:1) in sync\n" in text
    assert "child devices: \n        - disk/0: plain, size 1.5G\n" in text
    assert "logical_id: xenvg/lv1\n" in text
    assert "(253:3), status *DEGRADED* *MISSING DISK*\n" in text
    assert "hidden" not in text


def test_a_replica_which_is_not_connected_is_not_called_in_sync(
    gnt: Gnt, master: FakeMaster
) -> None:
    disk = {
        **WEB1["disks"][0],
        "dev_type": "drbd",
        "pstatus": ["/dev/drbd0", 147, 0, None, None, True, 1],
    }
    master.results["OP_INSTANCE_QUERY_DATA"] = {"web1": {**WEB1, "disks": [disk]}}
    text = gnt("instance info web1").out
    assert "on primary: /dev/drbd0 (147:0), status *DEGRADED*\n" in text


REPLICAS = {
    "state": "outdated",
    "node": "node2",
    "since": 1795213015.38,
    "compared": None,
    "percent": None,
    "text": "node node2 has missed writes since 2026-11-20 22:16:55",
    "hint": "Use 'gnt-instance activate-disks web1', which connects and synchronises them.",
}


def test_replicas_and_kept_volumes(gnt: Gnt, master: FakeMaster) -> None:
    first = {**WEB1["disks"][0], "replicas": REPLICAS}
    second = {
        **WEB1["disks"][0],
        "replicas": {**REPLICAS, "text": "both in sync (compared 2026-11-20 22:16:55)", "hint": ""},
    }
    kept = {"node": "node2", "name": "xenvg/a_old", "size": 1536, "exists": True, "hint": "Use it."}
    master.results["OP_INSTANCE_QUERY_DATA"] = {
        "web1": {**WEB1, "disks": [first, second], "kept_volumes": [kept]}
    }
    text = gnt("instance info web1").out
    (shown,) = yaml.safe_load(text)
    (one, other) = shown["Disks"]
    assert one["replicas"] == REPLICAS["text"]
    assert one["what to do"] == REPLICAS["hint"]
    assert list(one)[-2:] == ["name", "UUID"]
    assert other["replicas"] == "both in sync (compared 2026-11-20 22:16:55)"
    assert "what to do" not in other
    assert shown["Kept volumes"] == [{"node2": "xenvg/a_old, size 1.5G", "exists": True}]
    assert shown["How they are removed"] == "Use it."


def test_roman(gnt: Gnt, master: FakeMaster) -> None:
    master.results["OP_INSTANCE_QUERY_DATA"] = {"web1": WEB1}
    assert "    vcpus: default (IV)\n" in gnt("instance info --roman web1").out


@pytest.mark.parametrize(
    ("output_format", "load"), [("json", json.loads), ("yaml", yaml.safe_load)]
)
def test_for_programs(output_format: str, load: Any, gnt: Gnt, master: FakeMaster) -> None:
    master.results["OP_INSTANCE_QUERY_DATA"] = {"web1": WEB1}
    assert load(gnt(f"instance info --output {output_format} web1").out) == [WEB1]


def test_nothing_selected(gnt: Gnt, master: FakeMaster) -> None:
    ended = gnt("instance info")
    assert (ended.code, ended.out) == (1, "")
    assert "--all" in ended.err
    assert gnt("instance info --all web1").code == 1
    assert master.requests == []


def test_unknown_instance(gnt: Gnt, master: FakeMaster) -> None:
    master.results["OP_INSTANCE_QUERY_DATA"] = errors.OpPrereqError(
        "instance 'nosuch' not known", errors.ECODE_NOENT
    )
    ended = gnt("instance info nosuch")
    assert (ended.code, ended.out) == (1, "")
    assert "error type: unknown_entity" in ended.err
