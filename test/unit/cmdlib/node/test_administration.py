"""Units for administrators of nodes: power, prepared commands, storage."""

from __future__ import annotations

import pytest

from fakes.config import cluster_of, instance_of, uuid_of
from fakes.master import Master
from ganeti import errors
from ganeti.cmdlib.node import oob_command
from ganeti.cmdlib.ops.liveness import oob
from ganeti.constants.disk import LDS_FAULTY, LDS_OKAY
from ganeti.objects import BlockDevStatus, Disk
from ganeti.opcodes.misc import OpOobCommand, OpRestrictedCommand
from ganeti.opcodes.node import (
    OpNodeModifyStorage,
    OpNodePowercycle,
    OpNodeQueryStorage,
    OpNodeQueryvols,
    OpRepairNodeStorage,
)

NODE1, NODE2, NODE3 = (f"node{n}.example.com" for n in (1, 2, 3))
HELPER = {"ndparams": {"oob_program": "/usr/bin/oob"}}
OFFLINE = {"offline": True, "master_candidate": False}


# -- out-of-band -----------------------------------------------------------------


def oob_master(**changes):
    """The helper is known for the second and the third node."""
    nodes = {2: {**HELPER}, 3: {**HELPER}}
    for number, more in changes.items():
        nodes[int(number[1:])].update(more)
    return Master(cluster_of(3, node_changes=nodes))


def test_health_of_all_nodes():
    master = oob_master()
    master.rpc.answers["run_oob"] = '[["disk0", "OK"], ["PSU1", "CRITICAL"]]'
    result = master.run(OpOobCommand(command="health"))
    health = [["disk0", "OK"], ["PSU1", "CRITICAL"]]
    assert result == [[(0, NODE1), (3, None)], [(0, NODE2), (0, health)], [(0, NODE3), (0, health)]]
    # The helper runs on the master, about the other node.
    (node, args) = master.rpc.of("run_oob")[0]
    assert node == NODE1
    assert args == {
        "oob_program": "/usr/bin/oob",
        "command": "health",
        "remote_node": NODE2,
        "timeout_s": 60,
    }
    assert master.job.said(f"PSU1 of node {NODE2} has status CRITICAL")
    assert master.config.writes == []


def test_power_status_is_compared():
    master = oob_master()
    master.rpc.answers["run_oob"] = '{"powered": false}'
    result = master.run(OpOobCommand(command="power-status", node_names=["node2"]))
    assert result == [[(0, NODE2), (0, {"powered": False})]]
    assert master.job.said("is switched off, but is marked as powered on")


def test_switching_off_and_on(monkeypatch):
    naps = []
    monkeypatch.setattr(oob_command, "_sleep", naps.append)
    master = oob_master(n2=OFFLINE, n3=OFFLINE)
    master.rpc.answers["run_oob"] = ""
    master.run(OpOobCommand(command="power-off"))
    assert [n.powered for n in master.config.nodes()] == [True, False, False]
    assert NODE1 not in {args["remote_node"] for _, args in master.rpc.of("run_oob")}
    assert naps == []
    master.run(OpOobCommand(command="power-on", power_delay=1.5, node_names=["node2", "node3"]))
    assert [n.powered for n in master.config.nodes()] == [True, True, True]
    assert naps == [1.5]


@pytest.mark.parametrize(
    ("op", "ecode", "fragment"),
    [
        (OpOobCommand(command="power-off", node_names=["node1"]), errors.ECODE_INVAL, "by hand"),
        (
            OpOobCommand(command="power-cycle", node_names=["node1"]),
            errors.ECODE_INVAL,
            "is the master",
        ),
        (
            OpOobCommand(command="power-off", node_names=["node2"]),
            errors.ECODE_STATE,
            "--ignore-status",
        ),
        (OpOobCommand(command="power-on", node_names=["node1"]), errors.ECODE_STATE, "oob_program"),
        (OpOobCommand(command="power-on", power_delay=-1.0), errors.ECODE_INVAL, "delay"),
        (OpOobCommand(command="health", node_names=["nosuch"]), errors.ECODE_NOENT, "nosuch"),
    ],
)
def test_what_is_not_switched(op, ecode, fragment):
    assert fragment in oob_master().refused(op, ecode)


def test_an_online_node_is_switched_off_on_demand():
    master = oob_master()
    master.rpc.answers["run_oob"] = ""
    master.run(OpOobCommand(command="power-off", node_names=["node2"], ignore_status=True))
    assert not master.config.node(uuid_of("node2")).powered


def test_a_helper_that_fails_or_talks_nonsense():
    master = oob_master()
    answers = {NODE2: "not json", NODE3: '[["disk0", "GREAT"]]'}
    master.rpc.answers["run_oob"] = lambda node, args: answers[args["remote_node"]]
    result = master.run(OpOobCommand(command="health"))
    assert [row[1] for row in result] == [(3, None), (2, None), (2, None)]
    master.rpc.errors["run_oob"] = "no such outlet"
    master.run(OpOobCommand(command="power-on", node_names=["node2"]))
    assert master.job.said("no such outlet")
    assert master.config.writes == []


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("health", "{}"),
        ("health", '[["a"]]'),
        ("health", '[[1, "OK"]]'),
        ("health", ""),
        ("power-status", "[]"),
        ("power-status", '{"powered": 1}'),
        ("power-status", '{"on": true}'),
        ("power-on", "ok"),
        ("power-off", "[]"),
        ("power-cycle", "x"),
    ],
)
def test_answers_that_are_none(command, text):
    with pytest.raises(errors.ParseError):
        oob.parse_answer(command, text)


# -- restricted commands, powercycle ---------------------------------------------


@pytest.mark.parametrize("use_locking", [True, False])
def test_a_restricted_command(use_locking):
    master = Master(cluster_of(3, node_changes={3: OFFLINE}))
    master.rpc.answers["restricted_command"] = "Linux\n"
    master.rpc.errors["restricted_command", NODE1] = "executing command 'x' failed"
    result = master.run(
        OpRestrictedCommand(command="x", nodes=["node2", "node1", "node3"], use_locking=use_locking)
    )
    assert result[:2] == [
        (True, "Linux\n"),
        (False, f"command 'x' on node '{NODE1}' failed: executing command 'x' failed"),
    ]
    assert result[2][0] is False
    assert "offline" in result[2][1]


def test_a_restricted_command_needs_nodes():
    Master(cluster_of(1)).refused(OpRestrictedCommand(command="x", nodes=[]), errors.ECODE_INVAL)


def test_powercycle():
    master = Master(cluster_of(2, node_changes={2: OFFLINE}))
    master.rpc.answers["node_powercycle"] = "reboot scheduled in 5 seconds"
    assert "scheduled" in master.run(OpNodePowercycle(node_name="node2"))
    assert master.rpc.of("node_powercycle")[0][0] == NODE2
    fresh = Master(cluster_of(2))
    assert "--force" in fresh.refused(OpNodePowercycle(node_name="node1"), errors.ECODE_INVAL)
    fresh.rpc.errors["node_powercycle"] = "virtual cluster"
    assert "virtual" in fresh.failed(OpNodePowercycle(node_name="node1", force=True))


# -- storage ---------------------------------------------------------------------


def test_storage_units_of_a_kind():
    master = Master(cluster_of(3, node_changes={3: OFFLINE}))
    master.rpc.answers["storage_list"] = [["/srv/ganeti/file-storage", 7]]
    master.rpc.errors["storage_list", NODE2] = "no such directory"
    result = master.run(
        OpNodeQueryStorage(output_fields=["node", "type", "free", "name"], storage_type="file")
    )
    assert result == [[NODE1, "file", 7, "/srv/ganeti/file-storage"]]
    assert master.job.said("no such directory")


def test_storage_asks_only_for_what_is_wanted():
    master = Master(cluster_of(1))
    master.rpc.answers["storage_list"] = [["/b", 1], ["/a", 2]]
    result = master.run(
        OpNodeQueryStorage(output_fields=["size", "name"], storage_type="file", name="/a")
    )
    ((_, args),) = master.rpc.of("storage_list")
    assert args == {
        "su_name": "file",
        "su_args": [["/srv/ganeti/file-storage"]],
        "name": "/a",
        "fields": ["name", "size"],
        "apart": True,
    }
    assert result == [[2, "/a"], [1, "/b"]]


def test_a_unit_which_cannot_be_read_does_not_hide_the_others():
    master = Master(cluster_of(1))
    master.rpc.answers["storage_list"] = [["xenvg", 7, None], ["data", None, "I/O error"]]
    op = OpNodeQueryStorage(output_fields=["name", "free"], storage_type="lvm-vg")
    assert master.run(op) == [["xenvg", 7]]
    assert master.job.said(f"node {NODE1} could not read storage unit data: I/O error")


def test_a_volume_group_which_cannot_be_read_does_not_hide_the_volumes_of_others():
    master = Master(cluster_of(1, volume_group_name="xenvg"))
    master.rpc.answers["node_volumes"] = [
        {"name": "swap", "size": 512, "vg": "xenvg", "dev": "/dev/sda"},
        {"vg": "data", "problem": "I/O error"},
    ]
    assert master.run(OpNodeQueryvols(output_fields=["vg", "name"])) == [["xenvg", "swap"]]
    said = f"node {NODE1} could not read the volumes of volume group data: I/O error"
    assert master.job.said(said)
    assert master.rpc.of("node_volumes")[0][1] == {"apart": True}


def test_a_node_that_answers_too_little_is_left_out():
    master = Master(cluster_of(1))
    master.rpc.answers["storage_list"] = [["/a"]]
    op = OpNodeQueryStorage(output_fields=["size", "name"], storage_type="file")
    assert master.run(op) == []
    assert master.job.said("expected 2 values")


def test_storage_of_the_default_template():
    master = Master(cluster_of(1, enabled_disk_templates=("diskless",)))
    text = master.refused(OpNodeQueryStorage(output_fields=["name"]), errors.ECODE_INVAL)
    assert "--storage-type" in text
    text = master.refused(
        OpNodeQueryStorage(output_fields=["colour"], storage_type="file"), errors.ECODE_INVAL
    )
    assert "colour" in text
    # One which says nothing about nodes is passed over.
    shared = Master(cluster_of(1, enabled_disk_templates=("diskless", "sharedfile", "file")))
    shared.rpc.answers["storage_list"] = []
    assert shared.run(OpNodeQueryStorage(output_fields=["name"])) == []
    assert shared.rpc.of("storage_list")[0][1]["su_name"] == "sharedfile"


def lv_disk(name, node="node1"):
    return Disk(
        dev_type="plain",
        logical_id=("xenvg", f"{name}.disk0"),
        iv_name="disk/0",
        size=1024,
        nodes=(uuid_of(node),),
        uuid=uuid_of(f"{name}-lv"),
        serial_no=1,
    )


def test_volumes_know_their_instances():
    disk = lv_disk("web")
    web = instance_of("web", disks=(disk.uuid,))
    master = Master(cluster_of(2, (web,), (disk,), volume_group_name="xenvg"))
    volumes = [
        {"name": "web.disk0", "size": 1024, "vg": "xenvg", "dev": "/dev/sdb"},
        {"name": "swap", "size": 512, "vg": "xenvg", "dev": "/dev/sda"},
    ]
    master.rpc.answers["node_volumes"] = volumes
    fields = ["node", "phys", "vg", "name", "size", "instance"]
    result = master.run(OpNodeQueryvols(output_fields=fields))
    assert result[:2] == [
        [NODE1, "/dev/sda", "xenvg", "swap", 512, "-"],
        [NODE1, "/dev/sdb", "xenvg", "web.disk0", 1024, "web.example.com"],
    ]
    # The same name on another node is not this instance's volume.
    assert [row[5] for row in result[2:]] == ["-", "-"]


def test_snapshots_belong_to_whom_the_volume_belongs():
    disk = lv_disk("web")
    web = instance_of("web", disks=(disk.uuid,))
    master = Master(cluster_of(2, (web,), (disk,), volume_group_name="xenvg"))
    master.rpc.answers["node_volumes"] = [
        {"dev": "/dev/sda", "vg": "xenvg", "name": f"{name}.snap.a", "size": 5}
        for name in ("web.disk0", "swap")
    ]
    result = master.run(OpNodeQueryvols(nodes=["node1"], output_fields=["name", "instance"]))
    assert result == [["swap.snap.a", "-"], ["web.disk0.snap.a", "web.example.com"]]


def test_a_cluster_without_lvm_asks_nobody_for_volumes():
    master = Master(cluster_of(2))
    assert master.run(OpNodeQueryvols(output_fields=["name"])) == []
    assert master.rpc.names() == []


def test_closing_a_physical_volume():
    master = Master(cluster_of(2))
    op = OpNodeModifyStorage(
        node_name="node2", storage_type="lvm-pv", name="/dev/sda", changes={"allocatable": False}
    )
    master.run(op)
    assert master.rpc.of("storage_modify") == [
        (
            NODE2,
            {
                "su_name": "lvm-pv",
                "su_args": [],
                "name": "/dev/sda",
                "changes": {"allocatable": False},
            },
        )
    ]
    master.rpc.errors["storage_modify"] = "oops"
    assert "oops" in master.failed(op)


def test_no_change_of_a_physical_volume():
    master = Master(cluster_of(2))
    op = OpNodeModifyStorage(node_name="node2", storage_type="lvm-pv", name="/dev/sda", changes={})
    assert master.run(op) is None
    assert master.job.said("no change of storage unit /dev/sda")
    assert master.rpc.of("storage_modify") == []


@pytest.mark.parametrize(
    "changes", [{"storage_type": "file"}, {"changes": {"size": 3}}, {"name": None}]
)
def test_what_cannot_be_changed(changes):
    op = OpNodeModifyStorage(
        **{
            "node_name": "node2",
            "storage_type": "lvm-pv",
            "name": "/dev/sda",
            "changes": {"allocatable": False},
            **changes,
        }
    )
    Master(cluster_of(2)).refused(op, errors.ECODE_INVAL)


def drbd(status):
    disk = Disk(
        dev_type="drbd",
        iv_name="disk/0",
        size=1024,
        uuid=uuid_of("web-drbd"),
        serial_no=1,
        logical_id=(uuid_of("node1"), uuid_of("node2"), 11000, 0, 0, "secret"),
        nodes=(uuid_of("node1"), uuid_of("node2")),
    )
    web = instance_of("web", "node1", disks=(disk.uuid,), disks_active=True, admin_state="up")
    master = Master(cluster_of(2, (web,), (disk,)))
    found = BlockDevStatus(dev_path="/dev/drbd0", ldisk_status=status, is_degraded=False)
    master.rpc.answers["blockdev_getmirrorstatus_multi"] = [(True, found)]
    return master


def test_repair_needs_a_good_copy_elsewhere():
    op = OpRepairNodeStorage(node_name="node2", storage_type="lvm-vg", name="xenvg")
    good = drbd(LDS_OKAY)
    good.run(op)
    assert good.rpc.of("storage_execute") == [
        (NODE2, {"su_name": "lvm-vg", "su_args": [], "name": "xenvg", "op": "fix-consistency"})
    ]
    bad = drbd(LDS_FAULTY)
    assert "web.example.com" in bad.refused(op, errors.ECODE_STATE)
    bad.run(
        OpRepairNodeStorage(
            node_name="node2", storage_type="lvm-vg", name="xenvg", ignore_consistency=True
        )
    )
    assert bad.job.said(
        f"has no replica on node {NODE1} which is known to have all data, so its data may be lost"
    )


def test_only_volume_groups_are_repaired():
    op = OpRepairNodeStorage(node_name="node2", storage_type="file", name="x")
    Master(cluster_of(2)).refused(op, errors.ECODE_INVAL)


# -- UUIDs beside names --------------------------------------------------------------------------

UUIDS = [uuid_of("node2"), uuid_of("node3")]


def of_nodes(op, **changes):
    """The opcodes which take lists, with the names and UUIDs of these nodes."""
    master = oob_master()
    master.rpc.answers["run_oob"] = '{"powered": true}'
    master.rpc.answers["restricted_command"] = "done"
    names = changes.pop("names", [])
    if op == "oob":
        return master, OpOobCommand(command="power-status", node_names=names, **changes)
    return master, OpRestrictedCommand(command="x", nodes=names, **changes)


def asked(master):
    return [args["remote_node"] for _node, args in master.rpc.of("run_oob")] or [
        node for node, _args in master.rpc.of("restricted_command")
    ]


@pytest.mark.parametrize("op", ["oob", "restricted"])
def test_nodes_are_given_by_uuid(op):
    master, opcode = of_nodes(op, node_uuids=UUIDS)
    master.run(opcode)
    assert asked(master) == [NODE2, NODE3]
    master, opcode = of_nodes(op, names=["node3", "node2"], node_uuids=UUIDS[::-1])
    master.run(opcode)
    assert sorted(asked(master)) == [NODE2, NODE3]


@pytest.mark.parametrize("op", ["oob", "restricted"])
@pytest.mark.parametrize(
    ("changes", "ecode", "fragment"),
    [
        (
            {"names": ["node3", "node2"]},
            errors.ECODE_NOENT,
            "not the one for which the job was submitted",
        ),
        ({"names": ["node2"]}, errors.ECODE_INVAL, "1 names of nodes and 2 UUIDs"),
        ({"node_uuids": ["uuid-nosuch"]}, errors.ECODE_NOENT, "uuid-nosuch"),
    ],
)
def test_names_and_uuids_which_do_not_agree(op, changes, ecode, fragment):
    master, opcode = of_nodes(op, **{"node_uuids": UUIDS, **changes})
    assert fragment in master.refused(opcode, ecode)
    assert asked(master) == []


def test_the_master_is_not_switched_off_by_its_uuid():
    op = OpOobCommand(command="power-off", node_uuids=[uuid_of("node1")], ignore_status=True)
    assert "by hand" in oob_master().refused(op, errors.ECODE_INVAL)


def test_a_reset_is_for_the_node_with_the_uuid():
    op = OpNodePowercycle(node_name="node2", node_uuid=UUIDS[1])
    master = Master(cluster_of(3))
    assert "not the one for which the job was submitted" in master.refused(op, errors.ECODE_NOENT)
    assert master.rpc.of("node_powercycle") == []
    master.rpc.answers["node_powercycle"] = "Reboot scheduled"
    master.run(OpNodePowercycle(node_name="node2", node_uuid=UUIDS[0]))
    assert [node for node, _args in master.rpc.of("node_powercycle")] == [NODE2]
