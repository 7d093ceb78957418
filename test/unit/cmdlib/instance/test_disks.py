"""Disks of all kinds: made, grown, made again, mirrored, replaced, adopted; moves."""

from __future__ import annotations

import dataclasses
import json
import os

import pytest

from fakes.config import cluster_of, commit, disk_of, instance_of, uuid_of
from fakes.master import Master
from ganeti import errors
from ganeti.objects import BlockDevStatus, Disk, ipolicy
from ganeti.opcodes.instance import (
    OpInstanceActivateDisks,
    OpInstanceCreate,
    OpInstanceDeactivateDisks,
    OpInstanceGrowDisk,
    OpInstanceMove,
    OpInstanceMultiAlloc,
    OpInstanceRecreateDisks,
    OpInstanceReinstall,
    OpInstanceRename,
    OpInstanceReplaceDisks,
    OpInstanceSetParams,
)

ALL = ("blockdev", "diskless", "drbd", "file", "plain", "sharedfile")
RULES = ipolicy.defaults()
RULES["minmax"][0]["min"]["disk-size"] = 1
NODE1, NODE2, NODE3 = (uuid_of(f"node{number}") for number in (1, 2, 3))


def mirrored(index=0):
    """A DRBD disk of ``web`` on nodes 1 and 2."""
    nodes = (NODE1, NODE2)
    return Disk(
        dev_type="drbd",
        logical_id=(*nodes, 11000 + index, index, index, "secret"),
        size=1024,
        iv_name=f"disk/{index}",
        uuid=uuid_of(f"web-disk{index}"),
        serial_no=1,
        nodes=nodes,
        children=tuple(
            Disk(dev_type="plain", logical_id=("xenvg", f"w{index}_{part}"), size=size, nodes=nodes)
            for part, size in (("data", 1024), ("meta", 128))
        ),
    )


def plain(index=0):
    return Disk(
        dev_type="plain",
        logical_id=("xenvg", f"w{index}"),
        size=1024,
        nodes=(NODE1,),
        iv_name=f"disk/{index}",
        uuid=uuid_of(f"web-disk{index}"),
        serial_no=1,
    )


def master_with(*disks, **changes):
    web = instance_of("web", disks=tuple(disk.uuid for disk in disks), **changes)
    master = Master(
        cluster_of(
            3,
            (web,),
            disks,
            enabled_disk_templates=ALL,
            volume_group_name="xenvg",
            ipolicy=RULES,
            compression_tools=("gzip",),
        )
    )
    master.rpc.answers["node_info"] = lambda node, args: [
        "boot",
        [
            {"type": unit[0], "name": unit[1], "storage_free": 8192, "storage_size": 9999}
            for unit in args["storage_units"]
        ],
        [
            {
                "memory_free": 4096,
                "memory_total": 8192,
                "memory_dom0": 1,
                "cpu_total": 4,
                "cpu_dom0": 1,
            }
            for _ in args["hv_specs"]
        ],
    ]
    master.rpc.answers["blockdev_getmirrorstatus"] = lambda node, args: [
        BlockDevStatus(dev_path="/dev/drbd0", is_degraded=False) for _ in args["disks"]
    ]
    master.rpc.answers["blockdev_find_multi"] = BlockDevStatus(
        dev_path="/dev/drbd0", is_degraded=False, ldisk_status=1
    )
    for call in ("drbd_wait_sync",):
        master.rpc.answers[call] = [True, 100.0]
    master.rpc.answers["blockdev_assemble_multi"] = lambda node, args: ["/dev/x", "/run/link", None]
    return master


def web(master):
    return master.config.instance(uuid_of("web"))


def disks_of(master):
    return master.config.instance_disks(web(master))


def nodes_of(master, call):
    return [node.split(".")[0] for node, _args in master.rpc.of(call)]


# -- new instances ---------------------------------------------------------------


def create(**changes):
    return OpInstanceCreate(
        **{
            "instance_name": "new.example.com",
            "mode": "create",
            "disk_template": "drbd",
            "disks": [{"size": 1024}],
            "nics": [],
            "os_type": "noop",
            "pnode": "node1",
            "snode": "node2",
            "ignore_ipolicy": True,
            **changes,
        }
    )


def new(master):
    (found,) = [one for one in master.config.instances() if one.name.startswith("new")]
    return found, master.config.instance_disks(found)


def test_a_mirrored_disk_is_made_on_both_nodes_children_first():
    master = master_with()
    assert master.run(create()) == ["node1.example.com", "node2.example.com"]
    made = [
        (node.split(".")[0], [disk.dev_type for disk in args["disks"]], args["on_primary"])
        for node, args in master.rpc.of("blockdev_create_multi")
    ]
    assert made == [
        ("node1", ["plain", "plain"], True),
        ("node2", ["plain", "plain"], False),
        ("node1", ["drbd"], True),
        ("node2", ["drbd"], False),
    ]
    _instance, (disk,) = new(master)
    assert disk.nodes == (NODE1, NODE2)
    assert [child.size for child in disk.children] == [1024, 128]
    assert disk.logical_id[:2] == (NODE1, NODE2)
    assert len(disk.logical_id[5]) == 40
    # The mirror is told before the writer.
    assert nodes_of(master, "blockdev_assemble_multi")[:2] == ["node2", "node1"]


def test_what_was_made_of_a_mirrored_disk_goes_when_the_second_node_fails():
    master = master_with()
    master.rpc.errors["blockdev_create_multi", "node2.example.com"] = "no space"
    assert "no space" in master.failed(create())
    assert set(nodes_of(master, "blockdev_remove_multi")) == {"node1", "node2"}
    assert [one.name for one in master.config.instances()] == ["web.example.com"]


@pytest.mark.parametrize(
    ("changes", "ecode", "fragment"),
    [
        ({"snode": None}, errors.ECODE_INVAL, "secondary node"),
        ({"snode": "node1"}, errors.ECODE_INVAL, "both primary and secondary"),
        ({"disks": [{"size": 9000}]}, errors.ECODE_NORES, "8 GiB free"),
        ({"disk_template": "plain", "disks": [{"size": 9000}]}, errors.ECODE_NORES, "xenvg"),
        (
            {"disk_template": "plain", "disks": [{"size": 9, "metavg": "x"}]},
            errors.ECODE_INVAL,
            "metavg",
        ),
        ({"disk_template": "blockdev", "disks": [{"size": 9}]}, errors.ECODE_INVAL, "adopt"),
        (
            {"disk_template": "plain", "disks": [{"size": 0, "adopt": "a"}, {"size": 9}]},
            errors.ECODE_INVAL,
            "either all",
        ),
        (
            {"disk_template": "plain", "disks": [{"size": 0, "adopt": "a"}] * 2},
            errors.ECODE_NOTUNIQUE,
            "two disks",
        ),
        (
            {"disk_template": "plain", "disks": [{"size": 0, "adopt": "w0"}]},
            errors.ECODE_NOTUNIQUE,
            "disk of an instance",
        ),
        (
            {"disk_template": "file", "disks": [{"size": 9, "what": "x"}]},
            errors.ECODE_INVAL,
            "what",
        ),
    ],
)
def test_disks_are_refused(changes, ecode, fragment):
    assert fragment in master_with(plain()).refused(create(**changes), ecode)


def test_the_older_words_for_disks():
    master = master_with()
    master.run(create(disk_template="file", disks=[{"size": "auto", "access": "r"}]))
    _instance, (disk,) = new(master)
    assert (disk.size, disk.mode) == (RULES["std"]["disk-size"], "ro")


def test_adopted_volumes_get_names_of_ours_and_survive_a_failure():
    op = create(disk_template="plain", disks=[{"size": 0, "adopt": "theirs"}])
    master = master_with()
    master.rpc.answers["blockdev_getdimensions"] = [[1 << 30, None]]
    master.run(op)
    _instance, (disk,) = new(master)
    assert "blockdev_create_multi" not in master.rpc.names()
    (pair,) = master.rpc.of("blockdev_rename")[0][1]["renames"]
    assert pair[0].logical_id == ("xenvg", "theirs")
    assert pair[1] == disk.logical_id
    failing = master_with()
    failing.rpc.answers["blockdev_getdimensions"] = [[1 << 30, None]]
    failing.rpc.errors["blockdev_rename"] = "no such volume"
    failing.failed(create(disk_template="plain", disks=[{"size": 0, "adopt": "theirs"}]))
    assert "blockdev_remove_multi" not in failing.rpc.names()
    (back,) = failing.rpc.of("blockdev_rename")[-1][1]["renames"]
    assert back[1] == ("xenvg", "theirs")
    gone = master_with()
    gone.rpc.answers["blockdev_getdimensions"] = [None]
    assert "does not exist" in gone.refused(op, errors.ECODE_NOENT)


def test_the_incomplete_last_mib_of_an_adopted_device_counts():
    master = master_with()
    master.rpc.answers["blockdev_getdimensions"] = [[(8 << 20) + (1 << 19), None]]
    master.run(create(disk_template="plain", disks=[{"size": 0, "adopt": "theirs"}]))
    _instance, (disk,) = new(master)
    assert disk.size == 9


# -- growing, switching ----------------------------------------------------------


def grow(**changes):
    return OpInstanceGrowDisk(**{"instance_name": "web", "disk": 0, "amount": 512, **changes})


def test_a_file_which_would_not_fit_is_a_warning():
    disk = disk_of("web", 0, "file")
    master = master_with(disk)
    directory = os.path.dirname(disk.logical_id[1])
    master.rpc.answers["directory_space"] = lambda node, args: {directory: 512 << 20}
    master.run(grow(amount=512))
    assert not master.job.said("WARNING")
    master.run(grow(amount=2048))
    assert master.job.said(
        "the disk of instance web.example.com becomes 2.0G larger, and node node1.example.com has"
        f" only 512M free in {directory}."
    )
    # Not known is not full.
    master.rpc.errors["directory_space"] = "no answer"
    master.job.log.clear()
    master.run(grow(amount=2048))
    assert not master.job.said("WARNING")


def test_both_halves_rehearse_and_grow_before_the_device_on_top():
    master = master_with(mirrored())
    master.run(grow())
    asked = [
        (node.split(".")[0], args["dry_run"], args["backing_store"])
        for node, args in master.rpc.of("blockdev_grow")
    ]
    assert asked == [
        ("node1", True, True),
        ("node2", True, True),
        ("node1", False, True),
        ("node2", False, True),
        ("node1", False, False),
    ]
    (disk,) = disks_of(master)
    assert (disk.size, disk.children[0].size, disk.children[1].size) == (1536, 1536, 128)


def test_the_replicas_grow_at_the_same_time(monkeypatch):
    master = master_with(mirrored())
    together = []
    call_many = master.rpc.call_many

    def noted(call, node_uuids, **args):
        nodes = list(node_uuids)
        together.append((call.name, len(nodes), args.get("dry_run")))
        return call_many(call, nodes, **args)

    monkeypatch.setattr(master.rpc, "call_many", noted)
    master.run(grow())
    assert [one for one in together if one[0] == "blockdev_grow"] == [
        ("blockdev_grow", 2, True),
        ("blockdev_grow", 2, False),
        ("blockdev_grow", 1, False),
    ]


def test_no_replica_grows_when_one_node_objects():
    master = master_with(mirrored())
    master.rpc.errors["blockdev_grow", "node2.example.com"] = "no space"
    assert "cannot grow on node node2.example.com: no space" in master.failed(grow())
    assert all(args["dry_run"] for _node, args in master.rpc.of("blockdev_grow"))
    assert disks_of(master)[0].size == 1024


def test_only_the_replica_grows_which_is_too_small():
    master = master_with(mirrored())
    master.rpc.answers["blockdev_getdimensions"] = lambda node, _args: [
        [(1536 if node == "node1.example.com" else 1024) << 20, None]
    ]
    master.run(grow())
    grown = [
        (node.split(".")[0], args["amount_mib"])
        for node, args in master.rpc.of("blockdev_grow")
        if args["backing_store"]
    ]
    assert grown == [("node2", 512)] * 2


def test_a_growth_that_broke_off_is_completed_and_not_repeated():
    master = master_with(plain())
    master.rpc.answers["blockdev_getdimensions"] = [[1536 << 20, None]]
    master.run(grow())
    assert [args["backing_store"] for _node, args in master.rpc.of("blockdev_grow")] == [False]
    assert disks_of(master)[0].size == 1536


@pytest.mark.parametrize(
    ("changes", "ecode", "fragment"),
    [
        ({"disk": 3}, errors.ECODE_INVAL, "no disk 3"),
        ({"amount": 100, "absolute": True}, errors.ECODE_STATE, "cannot shrink"),
        ({"amount": 9000}, errors.ECODE_NORES, "8 GiB free"),
        ({"amount": 2 << 20}, errors.ECODE_INVAL, "--ignore-ipolicy"),
    ],
)
def test_growth_is_refused(changes, ecode, fragment):
    assert fragment in master_with(plain()).refused(grow(**changes), ecode)


def test_disks_are_switched_by_hand():
    master = master_with(mirrored())
    rows = master.run(OpInstanceActivateDisks(instance_name="web", wait_for_sync=True))
    assert rows == [["node1.example.com", "disk/0", "/dev/x"]]
    assert web(master).disks_active
    master.run(OpInstanceDeactivateDisks(instance_name="web"))
    assert nodes_of(master, "blockdev_shutdown_multi") == ["node1", "node2"]
    assert not web(master).disks_active
    up = master_with(plain(), admin_state="up")
    assert "'up'" in up.refused(OpInstanceDeactivateDisks(instance_name="web"), errors.ECODE_STATE)
    up.run(OpInstanceDeactivateDisks(instance_name="web", force=True))


# -- made again ------------------------------------------------------------------


def test_lost_disks_are_made_on_other_nodes():
    master = master_with(mirrored())
    commit(master.config).nodes.update(dataclasses.replace(master.config.node(NODE1), offline=True))
    op = OpInstanceRecreateDisks(instance_name="web", nodes=["node2", "node3"])
    # The other half of the mirror is a copy, too.
    assert "gnt-instance failover" in master.refused(op, errors.ECODE_EXISTS)
    master.rpc.answers["blockdev_getdimensions"] = lambda node, args: [None] * len(args["disks"])
    master.run(op)
    (disk,) = disks_of(master)
    assert disk.nodes == (NODE2, NODE3)
    assert disk.children[0].logical_id != mirrored().children[0].logical_id
    assert web(master).primary_node == NODE2
    assert set(nodes_of(master, "blockdev_create_multi")) == {"node2", "node3"}


def test_a_disk_of_which_nobody_can_tell_is_left_alone_and_the_others_are_made():
    master = master_with(plain(0), plain(1), plain(2))
    odd = errors.BlockDeviceError("volume group is damaged")
    master.rpc.answers["blockdev_getdimensions"] = [odd, None, [1 << 30, None]]
    before = disks_of(master)
    master.run(OpInstanceRecreateDisks(instance_name="web"))
    after = disks_of(master)
    assert [one.logical_id == two.logical_id for one, two in zip(before, after, strict=True)] == [
        True,
        False,
        True,
    ]
    assert master.job.said("disk 0 is left alone, because it is not known whether it is lost")
    named = OpInstanceRecreateDisks(instance_name="web", disks=[[0, {}]])
    master = master_with(plain(0), plain(1), plain(2))
    master.rpc.answers["blockdev_getdimensions"] = [odd]
    assert "is damaged" in master.refused(named, errors.ECODE_ENVIRON)


def test_disks_that_are_not_lost_are_not_left_behind():
    master = master_with(plain())
    op = OpInstanceRecreateDisks(instance_name="web", nodes=["node3"])
    assert "gnt-instance move" in master.refused(op, errors.ECODE_EXISTS)
    master.rpc.answers["blockdev_getdimensions"] = [None]
    master.run(op)
    assert web(master).primary_node == NODE3


@pytest.mark.parametrize(
    "op",
    [
        OpInstanceRecreateDisks(instance_name="web"),
        OpInstanceReplaceDisks(instance_name="web", mode="replace_on_secondary"),
        OpInstanceReplaceDisks(
            instance_name="web", mode="replace_new_secondary", remote_node="node3"
        ),
        OpInstanceReinstall(instance_name="web"),
        OpInstanceRename(instance_name="web", new_name="www.example.com"),
        OpInstanceSetParams(instance_name="web", beparams={"vcpus": 2}),
        OpInstanceSetParams(instance_name="web", disk_template="plain"),
    ],
)
def test_dry_runs_say_what_would_be_done(op):
    master = master_with(mirrored())
    master.rpc.answers["blockdev_getdimensions"] = lambda node, args: [None] * len(args["disks"])
    op.dry_run = True
    try:
        master.run(op)
    finally:
        op.dry_run = False
    assert any("steps:" in line for line in master.job.log)
    assert master.rpc.acting() == []


@pytest.mark.parametrize(
    ("changes", "ecode", "fragment"),
    [
        ({"disks": [7]}, errors.ECODE_INVAL, "no disk 7"),
        ({"disks": [0]}, errors.ECODE_EXISTS, "will not be overwritten"),
        ({"disks": [[0, {"vg": "x"}]]}, errors.ECODE_INVAL, "cannot be changed"),
        ({}, errors.ECODE_EXISTS, "all disks"),
        ({"nodes": ["node3", "node2"]}, errors.ECODE_INVAL, "need 1 node"),
        ({"nodes": ["node3"], "disks": [0]}, errors.ECODE_INVAL, "not only some"),
        ({"nodes": ["node3"], "iallocator": "chooser"}, errors.ECODE_INVAL, "not both"),
    ],
)
def test_making_again_is_refused(changes, ecode, fragment):
    master = master_with(plain(0), plain(1))
    op = OpInstanceRecreateDisks(instance_name="web", **changes)
    assert fragment in master.refused(op, ecode)


# -- replacing -------------------------------------------------------------------


def replace(**changes):
    return OpInstanceReplaceDisks(instance_name="web", **changes)


def test_new_storage_on_the_secondary_takes_the_old_names():
    master = master_with(mirrored(), admin_state="up", disks_active=True)
    master.run(replace(mode="replace_on_secondary"))
    assert [name for name in master.rpc.acting() if name != "blockdev_getmirrorstatus"] == [
        "blockdev_assemble_multi",
        "blockdev_create_multi",
        "blockdev_removechildren",
        "blockdev_rename",
        "blockdev_addchildren",
        "drbd_attach_net",
        "drbd_attach_net",
        "blockdev_remove_multi",
    ]
    ((_node, args),) = master.rpc.of("blockdev_remove_multi")
    assert len(args["disks"]) == 4
    assert {
        node
        for call in ("blockdev_create_multi", "blockdev_rename", "blockdev_remove_multi")
        for node in nodes_of(master, call)
    } == {"node2"}
    names = [
        (old.logical_id[1], new[1])
        for old, new in master.rpc.of("blockdev_rename")[0][1]["renames"]
    ]
    assert names == [
        ("w0_data", "w0_data_old"),
        ("w0_meta", "w0_meta_old"),
        ("w0_data_new", "w0_data"),
        ("w0_meta_new", "w0_meta"),
    ]
    assert disks_of(master)[0].children == mirrored().children
    assert len(master.config.snapshot().disks) == 1


def test_a_replacement_that_broke_off_is_begun_anew():
    master = master_with(mirrored(), admin_state="up", disks_active=True)
    master.rpc.errors["blockdev_addchildren"] = "cannot attach"
    assert "Repeat the command" in master.failed(replace(mode="replace_on_primary"))
    assert len(master.config.snapshot().disks) == 5
    del master.rpc.errors["blockdev_addchildren"]
    master.rpc.calls.clear()
    master.run(replace(mode="replace_on_primary"))
    assert master.rpc.acting()[:2] == ["blockdev_remove_multi", "blockdev_create_multi"]
    assert len(master.rpc.of("blockdev_remove_multi")[0][1]["disks"]) == 4
    assert len(master.config.snapshot().disks) == 1


def test_another_secondary_node():
    master = master_with(mirrored(), admin_state="up", disks_active=True)
    master.run(replace(mode="replace_new_secondary", remote_node="node3"))
    (disk,) = disks_of(master)
    assert disk.nodes == (NODE1, NODE3)
    assert disk.logical_id[0:2] == (NODE1, NODE3)
    assert disk.logical_id[2] == mirrored().logical_id[2]
    assert nodes_of(master, "drbd_disconnect_net") == ["node1"]
    assert nodes_of(master, "drbd_attach_net") == ["node1", "node3"]
    assert set(nodes_of(master, "blockdev_remove_multi")) == {"node2"}
    assert len(master.config.snapshot().disks) == 1


def test_what_is_broken_is_replaced_and_nothing_else():
    master = master_with(mirrored(0), mirrored(1), admin_state="up", disks_active=True)
    master.run(replace(mode="replace_auto"))
    assert master.job.said("no disk is broken")
    master.rpc.answers["blockdev_find_multi"] = lambda node, args: BlockDevStatus(
        dev_path="/dev/drbd0",
        is_degraded=True,
        ldisk_status=4 if (node, args["disk"].iv_name) == ("node2.example.com", "disk/1") else 1,
    )
    master.run(replace(mode="replace_auto"))
    ((_node, args),) = master.rpc.of("blockdev_create_multi")
    assert [disk.logical_id[1] for disk in args["disks"]] == ["w1_data_new", "w1_meta_new"]


@pytest.mark.parametrize(
    ("changes", "ecode", "fragment"),
    [
        (
            {"mode": "replace_on_primary", "remote_node": "node3"},
            errors.ECODE_INVAL,
            "new secondary",
        ),
        ({"mode": "replace_new_secondary"}, errors.ECODE_INVAL, "--new-secondary"),
        ({"mode": "replace_new_secondary", "remote_node": "node2"}, errors.ECODE_INVAL, "already"),
        ({"mode": "replace_new_secondary", "remote_node": "node1"}, errors.ECODE_INVAL, "already"),
        (
            {"mode": "replace_new_secondary", "remote_node": "node3", "disks": [0]},
            errors.ECODE_INVAL,
            "all disks",
        ),
        ({"mode": "replace_on_primary", "disks": [5]}, errors.ECODE_INVAL, "no disk 5"),
    ],
)
def test_replacing_is_refused(changes, ecode, fragment):
    assert fragment in master_with(mirrored()).refused(replace(**changes), ecode)


def test_nothing_is_replaced_while_the_other_half_is_bad():
    master = master_with(mirrored(), admin_state="up", disks_active=True)
    master.rpc.answers["blockdev_find_multi"] = BlockDevStatus(
        dev_path="/dev/drbd0", is_degraded=True, ldisk_status=4
    )
    assert "no complete copy" in master.failed(replace(mode="replace_on_secondary"))
    assert "blockdev_removechildren" not in master.rpc.names()


# -- kinds -----------------------------------------------------------------------


def test_volumes_become_mirrored_and_back_under_their_names():
    master = master_with(plain())
    master.run(OpInstanceSetParams(instance_name="web", disk_template="drbd", remote_node="node2"))
    (disk,) = disks_of(master)
    assert disk.dev_type == "drbd"
    assert disk.children[0].logical_id == plain().logical_id
    assert "blockdev_convert" not in master.rpc.names()
    assert nodes_of(master, "blockdev_create_multi") == ["node1", "node2"] * 2
    assert len(master.config.snapshot().disks) == 1
    master.rpc.calls.clear()
    master.run(OpInstanceSetParams(instance_name="web", disk_template="plain"))
    (disk,) = disks_of(master)
    assert (disk.dev_type, disk.logical_id, disk.nodes) == ("plain", ("xenvg", "w0"), (NODE1,))
    removed = [
        (node, [disk.logical_id[1] for disk in args["disks"]])
        for node, args in master.rpc.of("blockdev_remove_multi")
    ]
    assert sorted(len(names) for _node, names in removed) == [1, 2]
    assert len(master.config.snapshot().disks) == 1


# -- the rest --------------------------------------------------------------------


def test_moving_is_refused():
    op = OpInstanceMove(instance_name="web", target_node="node2")
    master = master_with(plain(), admin_state="up")
    master.rpc.errors["hypervisor_validate_params"] = "parameter kernel_path: no such file"
    assert "no such file" in master.refused(op, errors.ECODE_INVAL)
    assert master.rpc.acting() == []
    assert "already" in master_with(plain()).refused(
        OpInstanceMove(instance_name="web", target_node="node1"), errors.ECODE_STATE
    )
    assert "migrate or failover" in master_with(mirrored()).refused(op, errors.ECODE_STATE)
    assert "lzop" in master_with(plain()).refused(
        OpInstanceMove(instance_name="web", target_node="node2", compress="lzop"),
        errors.ECODE_INVAL,
    )


@pytest.mark.parametrize("call", ["blockdev_create_multi", "blockdev_assemble_multi"])
def test_a_guest_is_not_stopped_for_a_move_whose_target_cannot_have_the_disks(call):
    """For example because a volume or a file of an interrupted move has the name."""
    master = master_with(plain(), admin_state="up")
    master.rpc.run("web", "node1")
    master.rpc.errors[call, "node2.example.com"] = "exists already"
    op = OpInstanceMove(instance_name="web", target_node="node2")
    assert "exists already" in master.failed(op)
    assert not master.rpc.of("instance_shutdown")
    assert "node1" not in nodes_of(master, "blockdev_remove_multi")
    assert master.config.instance(uuid_of("web")).primary_node == uuid_of("node1")


@pytest.mark.parametrize("unknown", [False, True])
def test_files_are_not_moved_within_one_directory(unknown):
    """The copy would be the original, and be removed with it."""
    op = OpInstanceMove(instance_name="web", target_node="node2")
    master = master_with(disk_of("web", 0, "file"), admin_state="up")
    master.rpc.run("web", "node1")
    master.rpc.one_directory = {"node1.example.com", "node2.example.com"}
    if unknown:
        master.rpc.errors["directory_seen"] = "stale file handle"
    problem = master.refused(op, errors.ECODE_ENVIRON if unknown else errors.ECODE_STATE)
    assert ("not known whether" if unknown else "have the same directory") in problem
    assert master.rpc.where("web") == ["node1"]
    assert master.rpc.acting() == []


def test_reinstalling_and_renaming_need_a_stopped_instance():
    for op in (
        OpInstanceReinstall(instance_name="web"),
        OpInstanceRename(instance_name="web", new_name="www.example.com"),
    ):
        assert "'up'" in master_with(plain(), admin_state="up").refused(op, errors.ECODE_STATE)
        running = master_with(plain())
        running.rpc.run("web", "node1")
        assert "runs on node" in running.refused(op, errors.ECODE_STATE)
    assert "no disks" in master_with().refused(
        OpInstanceReinstall(instance_name="web"), errors.ECODE_INVAL
    )


def test_the_own_name_runs_the_rename_script_again():
    master = master_with(disk_of("web", 0, "file"))
    op = OpInstanceRename(instance_name="web", new_name="web.example.com")
    before = master.config.snapshot()
    assert master.run(op) == "web.example.com"
    ((_node, args),) = master.rpc.of("instance_run_rename")
    assert args["old_name"] == "web.example.com"
    assert master.rpc.of("file_storage_dir_rename") == []
    assert master.config.snapshot().instances == before.instances


IMAGE = "https://me:pw@images.example.com/x.img"


def images_of(master):
    return [
        (node.split(".")[0], args["disk"].iv_name, args["image"], args["size_mib"])
        for node, args in master.rpc.of("blockdev_image")
    ]


@pytest.mark.parametrize("table", ["osparams", "osparams_private", "osparams_secret"])
@pytest.mark.parametrize("os_type", [None, "noop"])
def test_a_new_instance_from_an_image(table, os_type):
    """Design "OS installation": the image is written to the first disk, and no script runs."""
    master = master_with()
    op = create(
        disk_template="plain", disks=[{"size": 1024}, {"size": 9}], os_type=os_type, snode=None
    ).replace(**{table: {"os-image": IMAGE}})
    master.run(op)
    assert images_of(master) == [("node1", "disk/0", IMAGE, 1024)]
    assert "instance_os_add" not in master.rpc.names()
    instance, _disks = new(master)
    assert instance.os == (os_type or "")
    # The script that verifies parameters knows those of its definition only.
    assert [args["params"] for _node, args in master.rpc.of("os_validate")] == [{}] * bool(os_type)
    assert "pw" not in str(master.job.log)


def test_an_image_that_cannot_be_written_takes_the_instance_back():
    master = master_with()
    master.rpc.errors["blockdev_image"] = "the image has 2048 MiB, the disk has 1024 MiB"
    op = create(disk_template="plain", snode=None, osparams={"os-image": "/srv/x.img"})
    assert "2048 MiB" in master.failed(op)
    assert [one.name for one in master.config.instances()] == ["web.example.com"]
    assert nodes_of(master, "blockdev_remove_multi") == ["node1"]


@pytest.mark.parametrize(
    ("changes", "fragment"),
    [
        ({"osparams": {"os-image": "srv/x.img"}}, "must be the absolute path"),
        ({"osparams": {"os-image": "file://x"}}, "must be the absolute path"),
        ({"osparams_private": {"os-image": 7}}, "must be the absolute path"),
        ({"disk_template": "diskless", "disks": []}, "no new disk"),
        ({"disks": [{"size": 0, "adopt": "theirs"}]}, "no new disk"),
        ({"osparams_secret": {"os-image": "/srv/y.img"}}, "different visibility"),
        ({"os_type": None, "osparams": {"os-image": ""}}, "no operating system is given"),
    ],
)
def test_images_that_are_refused(changes, fragment):
    given = {"disk_template": "plain", "snode": None, "osparams": {"os-image": "/srv/x.img"}}
    op = create(**{**given, **changes})
    assert fragment in master_with().refused(op, errors.ECODE_INVAL)


def test_no_install_keeps_the_image_for_later():
    master = master_with()
    op = create(
        disk_template="plain",
        snode=None,
        os_type=None,
        no_install=True,
        osparams={"os-image": "/srv/x.img"},
    )
    master.run(op)
    assert images_of(master) == []
    master.run(OpInstanceReinstall(instance_name="new.example.com"))
    assert images_of(master) == [("node1", "disk/0", "/srv/x.img", 1024)]


def test_a_reinstallation_from_an_image():
    master = master_with(plain())
    master.run(OpInstanceReinstall(instance_name="web", osparams={"os-image": "/srv/x.img"}))
    assert images_of(master) == [("node1", "disk/0", "/srv/x.img", 1024)]
    # The parameter counted once; now the script runs again.
    assert web(master).osparams == {} and "instance_os_add" not in master.rpc.names()
    master.run(OpInstanceReinstall(instance_name="web"))
    assert len(images_of(master)) == 1 and len(master.rpc.of("instance_os_add")) == 1
    # The disks are inactive as before.
    assert nodes_of(master, "blockdev_shutdown_multi") == ["node1", "node1"]


def test_an_image_of_an_earlier_command_and_another_os():
    """Neither of them is ignored."""
    master = master_with(plain(), osparams={"os-image": "/srv/x.img"})
    op = OpInstanceReinstall(instance_name="web", os_type="other")
    assert "Add -O os-image=default" in master.refused(op, errors.ECODE_INVAL)
    master.run(op.replace(osparams={"os-image": "default"}))
    assert images_of(master) == [] and web(master).os == "other"
    master.run(op.replace(os_type="noop", osparams={"os-image": "/srv/y.img"}))
    assert images_of(master) == [("node1", "disk/0", "/srv/y.img", 1024)]
    assert web(master).os == "noop"
    # Programs repeat the OS that the instance has.
    master.run(OpInstanceReinstall(instance_name="web", os_type="noop"))
    assert images_of(master)[1:] == [("node1", "disk/0", "/srv/x.img", 1024)]


def test_the_image_of_an_instance_is_changed():
    master = master_with(plain(), os="")
    master.run(OpInstanceSetParams(instance_name="web", osparams={"os-image": "/srv/x.img"}))
    assert web(master).osparams == {"os-image": "/srv/x.img"}
    master.run(
        OpInstanceSetParams(instance_name="web", osparams={"os-image": "default"}, force=True)
    )
    assert web(master).osparams == {}
    op = OpInstanceSetParams(instance_name="web", osparams={"os-image": "x"}, force=True)
    assert "must be the absolute path" in master.refused(op, errors.ECODE_INVAL)


def test_nothing_is_installed_on_adopted_disks():
    """Their content is why they are adopted."""
    master = master_with()
    master.rpc.answers["blockdev_getdimensions"] = [[1 << 30, None]]
    op = create(disk_template="plain", disks=[{"size": 0, "adopt": "theirs"}], snode=None)
    master.run(op)
    assert "instance_os_add" not in master.rpc.names()
    # The start activates them.
    names = master.rpc.names()
    assert names.index("blockdev_assemble_multi") < names.index("instance_start")


@pytest.mark.parametrize("exclusive", [False, True])
def test_spindles_need_exclusive_storage(exclusive):
    def fresh():
        master = master_with(plain())
        group = master.config.group("group-1")
        commit(master.config).groups.update(
            dataclasses.replace(group, ndparams={"exclusive_storage": exclusive})
        )
        return master

    lost = fresh()
    lost.rpc.answers["blockdev_getdimensions"] = [None]
    for master, op in (
        (
            lost,
            OpInstanceRecreateDisks(instance_name="web", disks=[[0, {"spindles": 2}]]),
        ),
        (
            fresh(),
            create(disk_template="plain", snode=None, disks=[{"size": 1024, "spindles": 2}]),
        ),
        (
            fresh(),
            OpInstanceSetParams(
                instance_name="web", disks=[["add", -1, {"size": 1024, "spindles": 2}]]
            ),
        ),
    ):
        if exclusive:
            master.run(op)
            assert 2 in [disk.spindles for disk in master.config.snapshot().disks.values()]
        else:
            assert "exclusive storage" in master.refused(op, errors.ECODE_INVAL)


@pytest.mark.parametrize(
    "changes",
    [
        {"disks": [["add", -1, {"size": 1024, "name": "12"}]]},
        {"disks": [["modify", 0, {"name": "0"}]]},
        {"nics": [["add", -1, {"name": "7"}]]},
        {"nics": [["modify", 0, {"name": "0"}]]},
    ],
)
def test_names_of_devices_are_no_numbers(changes):
    op = OpInstanceSetParams(instance_name="web", **changes)
    assert "digits only" in master_with(plain()).refused(op, errors.ECODE_INVAL)
    for kind, ((action, ident, params),) in changes.items():
        named = {kind: [[action, ident, {**params, "name": "disk1"}]]}
        master_with(plain()).run(OpInstanceSetParams(instance_name="web", **named))


@pytest.mark.parametrize(
    "changes", [{"disks": [{"size": 1024, "name": "1"}]}, {"nics": [{"name": "1"}]}]
)
def test_names_of_new_devices_are_no_numbers(changes):
    assert "digits only" in master_with().refused(create(**changes), errors.ECODE_INVAL)


@pytest.mark.parametrize(
    ("cluster", "group", "asked", "wanted"),
    [
        ({}, {}, {}, "xenvg"),
        ({"metavg": "all"}, {}, {}, "all"),
        ({"metavg": "all"}, {"metavg": "own"}, {}, "own"),
        ({"metavg": "all"}, {"metavg": "own"}, {"metavg": "mine"}, "mine"),
    ],
)
def test_metadata_lies_in_the_volume_group_of_the_node_group(cluster, group, asked, wanted):
    def fresh(*disks):
        master = master_with(*disks)
        present = master.config.group("group-1")
        commit(master.config).groups.update(
            dataclasses.replace(present, diskparams={"drbd": group} if group else {})
        )
        old = master.config.cluster()
        every = {**old.diskparams, "drbd": cluster}
        commit(master.config).cluster.update(dataclasses.replace(old, diskparams=every))
        return master

    def groups_of(master, number):
        disk = sorted(master.config.snapshot().disks.values(), key=lambda one: one.iv_name)[number]
        return [child.logical_id[0] for child in disk.children]

    master = fresh()
    master.run(create(disks=[{"size": 1024, **asked}]))
    assert groups_of(master, 0) == ["xenvg", wanted]
    master = fresh(mirrored())
    add = [["add", -1, {"size": 1024, **asked}]]
    master.run(OpInstanceSetParams(instance_name="web", disks=add))
    assert groups_of(master, 1) == ["xenvg", wanted]
    if not asked:
        master = fresh(plain())
        master.run(
            OpInstanceSetParams(instance_name="web", disk_template="drbd", remote_node="node2")
        )
        assert groups_of(master, 0) == ["xenvg", wanted]


def test_hooks_get_nine_variables_for_a_mirrored_disk():
    master = master_with(mirrored(), mirrored(1))
    master.run(OpInstanceSetParams(instance_name="web", beparams={"vcpus": 2}))
    env = master.rpc.of("hooks_runner")[0][1]["env"]
    prefix = "GANETI_INSTANCE_DISK1_"
    found = {key.removeprefix(prefix): env[key] for key in env if key.startswith(prefix)}
    assert found == {
        "UUID": uuid_of("web-disk1"),
        "SIZE": "1024",
        "MODE": "rw",
        "DEV_TYPE": "drbd",
        "PNODE": NODE1,
        "SNODE": NODE2,
        "PORT": "11001",
        "PMINOR": "1",
        "SMINOR": "1",
        "DATA_VG": "xenvg",
        "DATA_ID": "w1_data",
        "META_VG": "xenvg",
        "META_ID": "w1_meta",
    }
    assert "secret" not in str(env)


def test_secret_parameters_are_used_and_not_kept():
    master = master_with(plain())
    master.run(
        OpInstanceReinstall(
            instance_name="web", osparams={"a": "1"}, osparams_secret={"password": "x"}
        )
    )
    (_node, args) = master.rpc.of("instance_os_add")[0]
    assert args["instance"].osparams == {"a": "1", "password": "x"}
    assert web(master).osparams == {}


def test_file_disks_follow_a_new_name():
    master = master_with(disk_of("web", 0, "file"))
    assert (
        master.run(OpInstanceRename(instance_name="web", new_name="www.example.com"))
        == "www.example.com"
    )
    (disk,) = disks_of(master)
    assert disk.logical_id[1] == "/srv/ganeti/file-storage/www.example.com/0.file.disk0"
    failing = master_with(disk_of("web", 0, "file"))
    failing.rpc.errors["file_storage_dir_rename"] = "is in use"
    assert "is in use" in failing.failed(
        OpInstanceRename(instance_name="web", new_name="www.example.com")
    )
    assert web(failing).name == "web.example.com"


def multi(**changes):
    one = {
        "mode": "create",
        "disk_template": "diskless",
        "disks": [],
        "nics": [],
        "os_type": "noop",
        "pnode": "node1",
    }
    return OpInstanceMultiAlloc(
        **{
            "instances": [
                {**one, "instance_name": f"new{number}.example.com"} for number in range(2)
            ],
            **changes,
        }
    )


@pytest.mark.parametrize("template", ["diskless", "plain", "drbd"])
def test_a_file_driver_has_no_effect_on_disks_which_are_not_files(template):
    """The burn-in tool of the original sends one with every template."""
    master = master_with()
    changes = {"disk_template": template, "file_driver": "loop"}
    if template == "diskless":
        changes["disks"] = []
    if template != "drbd":
        changes["snode"] = None
    master.run(create(**changes))
    assert master.job.said(f"file driver loop has no effect on disk template {template}")


def test_a_file_driver_is_used_without_a_word():
    master = master_with()
    master.run(create(disk_template="file", snode=None, file_driver="blktap"))
    assert not master.job.said("no effect")
    instance = next(i for i in master.config.instances() if i.name == "new.example.com")
    assert master.config.instance_disks(instance)[0].logical_id[0] == "blktap"


def test_several_instances_become_jobs():
    master = master_with()
    result = master.run(multi())
    assert result == {
        "jobs": [[True, 100], [True, 101]],
        "allocatable": ["new0.example.com", "new1.example.com"],
        "failed": [],
    }
    assert [job[0].instance_name for job in master.job.submitted] == [
        "new0.example.com",
        "new1.example.com",
    ]


def test_instances_without_capacity_are_named_apart_from_the_others():
    """As recorded: names in both lists; see the result of job 128 of the original."""
    master = master_with()
    answer = [[["new1.example.com", ["node2.example.com"]]], ["new0.example.com"]]
    master.rpc._iallocator_runner = lambda *_args: json.dumps(
        {"success": True, "info": "", "result": answer}
    )
    op = multi(iallocator="any")
    for one in op.instances:
        del one["pnode"]
    assert master.run(op) == {
        "jobs": [[True, 100]],
        "allocatable": ["new1.example.com"],
        "failed": ["new0.example.com"],
    }


def test_several_instances_are_refused():
    master = master_with()
    assert "no instances" in master.refused(multi(instances=[]), errors.ECODE_INVAL)
    twice = multi()
    twice.instances[1]["instance_name"] = "new0.example.com"
    assert "twice" in master.refused(twice, errors.ECODE_NOTUNIQUE)
    mixed = multi()
    del mixed.instances[1]["pnode"]
    assert "either all" in master.refused(mixed, errors.ECODE_INVAL)
    known = multi()
    known.instances[1]["instance_name"] = "web.example.com"
    assert "already in the cluster" in master.refused(known, errors.ECODE_EXISTS)
