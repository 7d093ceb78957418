"""Every resource has the published fields, and they read what a cluster of four nodes holds.

``test/data/query_cluster.json`` is the configuration of a small cluster; the values expected here
are those which the original program answered for it.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from ganeti import errors, objects
from ganeti.constants import hv
from ganeti.constants import instance as instance_c
from ganeti.constants import query as query_c
from ganeti.objects import codec, fill
from ganeti.objects.halt import Halt
from ganeti.query import engine, resources
from ganeti.query.field import HOSTNAME, JOB_ID, NODATA, OFFLINE, TIMESTAMP, UNAVAIL
from ganeti.query.resources.instance import LiveInstance, status
from ganeti.query.view import View

DATA = Path(__file__).parents[2] / "data"
PUBLISHED = json.loads((DATA / "query_fields.json").read_text())
CONFIG_TEXT = (DATA / "query_cluster.json").read_text()
#: Fields which nobody else has, with the reason. There is no published field which is missing.
OWN = {
    "instance": {
        "addresses": "addresses which nodes know",
        "guest_state": "guests which live and do not run",
        "uptime": "time since the start of a guest",
        "pending_changes": "changes which wait for a restart of the guest",
        "importing_since": "imports from other clusters which have not ended",
        "nic.ip6s": "IPv6 addresses which networks give",
        **{f"nic.ip6/{place}": "the same" for place in range(8)},
        "hv/firmware": "KVM guests with UEFI",
        "hv/firmware_path": "the same",
        "hv/firmware_vars_path": "the same",
        "hv/migration_tls": "migrations which are encrypted",
        "hv/tpm_version": "KVM guests with a TPM",
        "hv/type": "Xen guests of type PVH",
    },
    "export": {
        "ctime": "when a backup was made",
        "size": "how much it has",
        "instance": "where it came from",
        "source": "the same",
    },
    "network": {"external_reservations6": "IPv6 addresses which are reserved"},
    "group": {"enabled_hypervisors": "clusters whose nodes have different hypervisors"},
    "node": {
        "auto_failover": "automatic failover of instances",
        "auto_failover.record": "the same",
        "watchdog": "whether the hardware watchdog restarts the node",
        "maintenance": "maintenance of a node as one command",
        "maintenance.record": "the same",
        "storage": "storage units for allocators (seed 002 *LUXI ... extension*)",
    },
}
#: Those of them which nodes are asked for.
OWN_LIVE = {"instance": {"addresses", "guest_state", "uptime"}, "node": {"storage"}}
COMPARE = {"hostname": HOSTNAME, "split_timestamp": TIMESTAMP, "job_id": JOB_ID, "": ""}


@pytest.fixture(scope="module")
def config():
    return codec.from_dict(objects.ConfigData, json.loads(CONFIG_TEXT))


class Source:
    """Live data prepared by a test; remembers what was asked for."""

    def __init__(self, **live):
        self.live = live
        self.asked = []

    def collect(self, view, kinds, items):
        self.asked.append((sorted(kinds), [item.name for item in items]))
        for kind in kinds:
            view.live[kind] = self.live.get(kind, {})


def ask(config, what, fields, qfilter=None, source=None):
    return engine.run(resources.lookup(what), View(config), fields, qfilter, source or Source())


def row_of(config, what, name, fields, source=None):
    rows = ask(config, what, fields, ["==", "name", name], source)["data"]
    assert len(rows) == 1
    return rows[0]


@pytest.mark.parametrize("what", sorted(PUBLISHED))
def test_fields_are_as_published(what):
    resource = resources.lookup(what)
    own = OWN.get(what, {})
    assert set(own) <= set(resource.fields) and all(own.values())
    mine = {
        field.name: [field.title, field.kind, field.compare]
        for field in resource.fields.values()
        if field.name not in own
    }
    wanted = {
        name: [title, kind, COMPARE[compare]] for name, title, kind, _, compare in PUBLISHED[what]
    }
    assert mine == wanted
    assert len(resource.fields) == len(wanted) + len(own)
    for field in resource.fields.values():
        assert field.doc and not field.doc.endswith(".") and "\n" not in field.doc
        assert field.kind in query_c.KINDS


@pytest.mark.parametrize("what", ["instance", "node", "group", "network"])
def test_exactly_the_live_fields_ask_nodes(what):
    resource = resources.lookup(what)
    live = {name for name, _, _, from_nodes, _ in PUBLISHED[what] if from_nodes}
    live |= OWN_LIVE.get(what, set())
    assert {field.name for field in resource.fields.values() if field.live} == live


@pytest.mark.parametrize("what", ["instance", "node", "group", "network", "filter"])
def test_every_field_can_be_read(config, what):
    names = list(resources.lookup(what).fields)
    answer = ask(config, what, names)
    assert [field["name"] for field in answer["fields"]] == names
    for row in answer["data"]:
        for cell in row:
            assert cell[0] in query_c.RS_ALL
            assert cell[0] == query_c.RS_NORMAL or cell[1] is None
    json.dumps(answer)


def test_query_fields():
    answer = engine.definitions(resources.lookup("node"), ["name", "nosuch"])["fields"]
    assert answer[0]["title"] == "Node" and answer[0]["kind"] == "text"
    assert (answer[1]["name"], answer[1]["title"], answer[1]["kind"]) == (
        "nosuch",
        "nosuch",
        "unknown",
    )
    names = [
        field["name"] for field in engine.definitions(resources.lookup("instance"), None)["fields"]
    ]
    assert len(names) == 292 + len(OWN["instance"])
    assert names.index("disk.size/2") < names.index("disk.size/10")


@pytest.mark.parametrize("what", ["", "nosuch", None, 3, ["node"]])
def test_unknown_resource(what):
    with pytest.raises(errors.OpPrereqError, match="Known are"):
        resources.lookup(what)


def test_unknown_field_is_a_cell_not_an_error(config):
    answer = ask(config, "group", ["name", "nosuch"])
    assert answer["data"] == [[[0, "default"], [1, None]], [[0, "rack2"], [1, None]]]


def test_no_fields_at_all(config):
    assert ask(config, "group", []) == {"fields": [], "data": [[], []]}


def test_rows_are_in_natural_order(config):
    names = [row[0][1] for row in ask(config, "instance", ["name"])["data"]]
    assert names[0] == "instance1.example.com" and names[-1] == "instance23.example.com"
    assert names.index("instance8.example.com") < names.index("instance21.example.com")


@pytest.mark.parametrize(
    ("name", "cells"),
    [
        (
            "instance4.example.com",
            {
                "be/maxmem": [0, 64],
                "be/memory": [0, 64],
                "be/vcpus": [0, 1],
                "bridge": [0, "xen-br0"],
                "custom_beparams": [0, {"minmem": 64, "maxmem": 64}],
                "custom_nicparams": [0, [{"mode": "bridged", "link": "xen-br0", "vlan": ""}]],
                "disk.count": [0, 3],
                "disk.name/0": [0, "root"],
                "disk.name/1": [3, None],
                "disk.names": [0, ["root", None, None]],
                "disk.size/0": [0, 8],
                "disk.size/3": [3, None],
                "disk.sizes": [0, [8, 4, 4]],
                "disk.spindles": [0, [None, None, None]],
                "disk.spindles/0": [3, None],
                "disk_template": [0, "sharedfile"],
                "disk_usage": [0, 16],
                "sda_size": [0, 8],
                "sdb_size": [0, 4],
                "forthcoming": [0, False],
                "hvparams": [0, {}],
                "hv/acpi": [3, None],
                "ip": [0, "203.0.113.3"],
                "mac": [0, "aa:bb:cc:71:38:6f"],
                "network_port": [3, None],
                "nic.count": [0, 1],
                "nic.ips": [0, ["203.0.113.3"]],
                "nic.network.name/0": [0, "net1"],
                "nic.networks.names": [0, ["net1"]],
                "nic.vlan/0": [3, None],
                "nic.vlans": [0, [None]],
                "nic.ip/1": [3, None],
                "os": [0, "dumper+plain"],
                "pnode": [0, "node4.example.com"],
                "pnode.group": [0, "default"],
                "snodes": [0, []],
                "snodes.group": [0, []],
                "admin_up": [0, True],
                "vcpus": [0, 1],
            },
        ),
        (
            "instance8.example.com",
            {
                "nic.count": [0, 0],
                "nic.macs": [0, []],
                "mac": [3, None],
                "bridge": [3, None],
                "disk.count": [0, 0],
                "disk_template": [0, "diskless"],
                "disk_usage": [0, 0],
                "sda_size": [3, None],
                "disk.sizes": [0, []],
            },
        ),
    ],
)
def test_values_of_instances(config, name, cells):
    assert dict(zip(cells, row_of(config, "instance", name, list(cells)), strict=True)) == cells


def test_values_of_nodes_and_groups_and_networks(config):
    fields = [
        "role",
        "master",
        "pip",
        "group",
        "ndp/ssh_port",
        "custom_ndparams",
        "tags",
        "powered",
        "hv_state",
        "pinst_cnt",
        "sinst_cnt",
        "sinst_list",
    ]
    assert row_of(config, "node", "node2.example.com", fields) == [
        [0, "C"],
        [0, False],
        [0, "198.51.100.11"],
        [0, "default"],
        [0, 22],
        [0, {}],
        [0, ["ssd"]],
        [3, None],
        [3, None],
        [0, 3],
        [0, 0],
        [0, []],
    ]
    assert row_of(config, "node", "node1.example.com", ["role", "master"]) == [[0, "M"], [0, True]]
    assert row_of(
        config,
        "group",
        "rack2",
        ["alloc_policy", "node_cnt", "pinst_list", "tags", "ndp/exclusive_storage"],
    ) == [[0, "last_resort"], [0, 0], [0, []], [0, ["t1"]], [0, False]]
    assert row_of(
        config,
        "network",
        "net1",
        [
            "network",
            "gateway",
            "gateway6",
            "free_count",
            "reserved_count",
            "map",
            "external_reservations",
            "group_list",
            "inst_list",
        ],
    ) == [
        [0, "203.0.113.0/28"],
        [0, "203.0.113.1"],
        [3, None],
        [0, 10],
        [0, 6],
        [0, "XXXX.X.........X"],
        [0, "203.0.113.0, 203.0.113.1, 203.0.113.2, 203.0.113.15"],
        [0, [["default", "bridged", "xen-br0", ""], ["rack2", "bridged", "xen-br0", ""]]],
        [0, ["instance4.example.com", "instance23.example.com"]],
    ]


@pytest.mark.parametrize(
    ("changes", "role"),
    [
        ({"master_candidate": False}, "R"),
        ({"master_candidate": False, "drained": True}, "D"),
        ({"master_candidate": False, "offline": True}, "O"),
    ],
)
def test_roles(config, changes, role):
    node = next(n for n in config.nodes.values() if n.name == "node2.example.com")
    changed = dataclasses.replace(
        config, nodes={**config.nodes, node.uuid: dataclasses.replace(node, **changes)}
    )
    assert row_of(changed, "node", node.name, ["role"]) == [[0, role]]


def test_live_data_of_nodes(config):
    uuids = {node.name: node.uuid for node in config.nodes.values()}
    source = Source(
        nodes={
            uuids["node1.example.com"]: {"bootid": "b", "memory_free": 5, "storage_size": None},
            uuids["node2.example.com"]: OFFLINE,
            uuids["node3.example.com"]: NODATA,
        }
    )
    rows = ask(config, "node", ["bootid", "mfree", "dtotal"], source=source)["data"]
    assert rows == [
        [[0, "b"], [0, 5], [2, None]],
        [[4, None]] * 3,
        [[2, None]] * 3,
        [[2, None]] * 3,
    ]


def test_nobody_is_asked_without_need(config):
    source = Source()
    ask(config, "instance", ["name", "pnode"], source=source)
    assert source.asked == []
    ask(config, "instance", ["name"], ["==", "status", "running"], source=source)
    assert source.asked[0][0] == ["instances"]


def test_only_what_the_filter_leaves_is_asked_for(config):
    source = Source()
    ask(
        config,
        "instance",
        ["status"],
        ["&", ["==", "name", "instance4"], ["!", ["==", "status", "x"]]],
        source,
    )
    assert source.asked == [(["instances"], ["instance4.example.com"])]
    ask(config, "instance", ["status"], ["==", "name", "nosuch"], source)
    assert len(source.asked) == 1


UP, DOWN = {"state": 0, "memory": 64, "vcpus": 2}, {"state": 1, "memory": 64, "vcpus": 2}
FULL = {**UP, **Halt("io-error", hv.HALT_CONTINUES, "a disk is full").to_facts()}
PAUSED = {**UP, **Halt("paused", hv.HALT_PAUSED, "somebody has paused it").to_facts()}
CRASHED = {**DOWN, **Halt("crashed", hv.HALT_ENDED, "it has crashed").to_facts()}


@pytest.mark.parametrize(
    ("live", "instance", "cluster", "wanted"),
    [
        (LiveInstance(offline=True), {}, {}, "ERROR_nodeoffline"),
        (LiveInstance(failed=True), {}, {}, "ERROR_nodedown"),
        (LiveInstance(info=UP, wrong_node=True), {}, {}, "ERROR_wrongnode"),
        (LiveInstance(info=UP), {}, {}, "running"),
        (LiveInstance(info=UP), {"admin_state": "down"}, {}, "ERROR_up"),
        (LiveInstance(info=UP), {"admin_state": "offline"}, {}, "ERROR_up"),
        (LiveInstance(info=FULL), {}, {}, "ERROR_down"),
        (LiveInstance(info=FULL), {"admin_state": "down"}, {}, "ERROR_up"),
        (LiveInstance(info=PAUSED), {}, {}, "running"),
        (LiveInstance(info=CRASHED), {}, {"enabled_user_shutdown": True}, "ERROR_down"),
        (LiveInstance(info=CRASHED), {"admin_state": "down"}, {}, "ADMIN_down"),
        (LiveInstance(info=DOWN), {}, {}, "ERROR_down"),
        (LiveInstance(info=DOWN), {}, {"enabled_user_shutdown": True}, "USER_down"),
        (
            LiveInstance(info=DOWN),
            {"hypervisor": "kvm"},
            {"enabled_user_shutdown": True},
            "ERROR_down",
        ),
        (
            LiveInstance(info=DOWN),
            {"hypervisor": "kvm", "hvparams": {"user_shutdown": True}},
            {"enabled_user_shutdown": True},
            "USER_down",
        ),
        (LiveInstance(info=DOWN), {"admin_state": "down"}, {}, "ADMIN_down"),
        (LiveInstance(), {}, {}, "ERROR_down"),
        (LiveInstance(), {"admin_state": "down"}, {}, "ADMIN_down"),
        (
            LiveInstance(),
            {"admin_state": "down", "admin_state_source": "user"},
            {"enabled_user_shutdown": True},
            "USER_down",
        ),
        (LiveInstance(), {"admin_state": "down", "admin_state_source": "user"}, {}, "ADMIN_down"),
        (LiveInstance(), {"admin_state": "offline"}, {}, "ADMIN_offline"),
    ],
)
def test_status_of_instances(config, live, instance, cluster, wanted):
    one = next(i for i in config.instances.values() if i.name == "instance4.example.com")
    one = dataclasses.replace(one, **instance)
    view = View(dataclasses.replace(config, cluster=dataclasses.replace(config.cluster, **cluster)))
    view.live["instances"] = {one.uuid: live}
    assert status(view, one) == wanted
    assert wanted in instance_c.STATUSES


@pytest.mark.parametrize(
    ("live", "cells"),
    [
        (LiveInstance(offline=True), [[4, None]] * 4),
        (LiveInstance(failed=True), [[2, None]] * 4),
        (LiveInstance(), [[0, False], [3, None], [3, None], [3, None]]),
        (LiveInstance(info=UP), [[0, True], [0, 64], [0, 2], [0, "running"]]),
        (LiveInstance(info=DOWN), [[0, False], [0, 64], [0, 2], [0, "shutdown"]]),
        # It may go on, so programs which wait for its end still wait.
        (LiveInstance(info=FULL), [[0, True], [0, 64], [0, 2], [0, "io-error"]]),
        (LiveInstance(info=PAUSED), [[0, True], [0, 64], [0, 2], [0, "paused"]]),
        (LiveInstance(info=CRASHED), [[0, False], [0, 64], [0, 2], [0, "crashed"]]),
    ],
)
def test_live_fields_of_instances(config, live, cells):
    uuid = next(i.uuid for i in config.instances.values() if i.name == "instance4.example.com")
    assert (
        row_of(
            config,
            "instance",
            "instance4.example.com",
            ["oper_state", "oper_ram", "oper_vcpus", "guest_state"],
            Source(instances={uuid: live}),
        )
        == cells
    )


def test_a_node_with_a_power_helper_tells_its_power(config):
    node = next(n for n in config.nodes.values() if n.name == "node2.example.com")
    node = dataclasses.replace(node, ndparams={"oob_program": "/bin/oob"})
    changed = dataclasses.replace(config, nodes={**config.nodes, node.uuid: node})
    assert row_of(changed, "node", node.name, ["powered"]) == [[0, True]]


def test_marks_have_the_published_codes():
    assert (UNAVAIL.cell, NODATA.cell, OFFLINE.cell) == ([3, None], [2, None], [4, None])


def test_reading_ten_thousand_instances_makes_no_look_up_twice(config, monkeypatch):
    calls = []
    original = fill.instance_hv
    monkeypatch.setattr(
        fill,
        "instance_hv",
        lambda cluster, inst, **kw: calls.append(inst) or original(cluster, inst, **kw),
    )
    ask(config, "instance", ["hv/acpi", "hv/kernel_path", "hvparams"])
    assert len(calls) == len(config.instances)
