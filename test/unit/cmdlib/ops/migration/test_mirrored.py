"""Mirrored instances on the way to another node: two writers only while a guest goes over, and no
stale half is ever used; failover to a node which has nothing yet."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fakes.config import cluster_of, commit, disk_of, instance_of, uuid_of
from fakes.master import Master
from ganeti import errors
from ganeti.cmdlib.ops.disks import mirror, sync
from ganeti.cmdlib.ops.migration import live
from ganeti.constants import disk as disk_c
from ganeti.objects import BlockDevStatus, Disk, MigrationStatus
from ganeti.opcodes.instance import OpInstanceFailover, OpInstanceMigrate, OpInstanceQueryData

NODE1, NODE2, NODE3 = (f"node{number}.example.com" for number in (1, 2, 3))
GOOD = BlockDevStatus(dev_path="/dev/drbd0", is_degraded=False, ldisk_status=disk_c.LDS_OKAY)
ALONE = replace(GOOD, is_degraded=True)
BROKEN = replace(ALONE, ldisk_status=disk_c.LDS_FAULTY)


@pytest.fixture(autouse=True)
def no_sleep(monkeypatch):
    monkeypatch.setattr(live, "POLL_S", 0)
    monkeypatch.setattr(mirror, "POLL_S", 0)
    monkeypatch.setattr(sync, "POLL_S", 0)


def mirrored():
    nodes = (uuid_of("node1"), uuid_of("node2"))
    children = tuple(
        Disk(dev_type="plain", logical_id=("xenvg", f"web.disk0_{part}"), size=size, nodes=nodes)
        for part, size in (("data", 1024), ("meta", 128))
    )
    return replace(
        disk_of("web", 0),
        dev_type="drbd",
        children=children,
        nodes=nodes,
        logical_id=(*nodes, 11000, 0, 3, "secret"),
    )


def master_with(node_changes=None, running="node1", **changes):
    disk = mirrored()
    values = {"admin_state": "up", "disks_active": True, **changes}
    web = instance_of("web", disks=(disk.uuid,), **values)
    master = Master(
        cluster_of(
            3,
            (web,),
            (disk,),
            node_changes=node_changes,
            volume_group_name="xenvg",
            enabled_disk_templates=("drbd", "plain", "sharedfile"),
        )
    )
    answers = master.rpc.answers
    answers["blockdev_find_multi"] = GOOD
    answers["drbd_wait_sync"] = [True, 100.0]
    answers["blockdev_getmirrorstatus"] = [GOOD]
    answers["node_info"] = lambda _node, args: [
        "boot",
        [
            {"type": kind, "name": name, "storage_free": 9999, "storage_size": 9999}
            for kind, name, *_rest in args["storage_units"]
        ],
        [{"memory_free": 4096, "memory_total": 8192} for _ in args["hv_specs"]],
    ]
    if running:
        master.rpc.run("web", running)
    return master


def primary(master):
    return master.config.node(master.config.instance(uuid_of("web")).primary_node).name


def disk(master):
    return master.config.instance_disks(master.config.instance(uuid_of("web")))[0]


def names_of(master, nodes):
    return tuple(master.config.node(uuid).name for uuid in nodes)


def steps(master):
    asking = (
        "blockdev_find_multi",
        "blockdev_getdimensions",
        "blockdev_getmirrorstatus_multi",
        "blockdev_snapshot_list",
        "drbd_wait_sync",
        "blockdev_getmirrorstatus",
    )
    return [
        (name, node.split(".")[0], args.get("multimaster"))
        for name, node, args in master.rpc.calls
        if name.startswith(("blockdev_", "drbd_", "accept", "instance_m", "instance_s"))
        and name not in asking
        and name != "instance_migratable"
    ]


def migrate(**changes):
    return OpInstanceMigrate(**{"instance_name": "web", **changes})


def failover(**changes):
    return OpInstanceFailover(**{"instance_name": "web", **changes})


# -- migration -------------------------------------------------------------------

REMEET = [
    ("drbd_disconnect_net", "node1"),
    ("drbd_disconnect_net", "node2"),
    ("drbd_attach_net", "node1"),
    ("drbd_attach_net", "node2"),
]


def meeting(dual_primary):
    return [(name, node, dual_primary if "attach" in name else None) for name, node in REMEET]


def test_dual_primary_only_while_the_guest_goes_over():
    master = master_with()
    master.run(migrate())
    assert steps(master) == [
        ("blockdev_close", "node2", None),
        *meeting(True),
        ("blockdev_open", "node2", None),
        ("accept_instance", "node2", None),
        ("instance_migrate", "node1", None),
        ("blockdev_close", "node1", None),
        *meeting(False),
    ]
    (opened,) = master.rpc.of("blockdev_open")
    assert opened[1]["exclusive"] is False
    assert primary(master) == NODE2


def test_after_a_failure_there_is_one_writer_again():
    master = master_with()
    master.rpc.answers["instance_get_migration_status"] = MigrationStatus(status="failed")
    with pytest.raises(errors.OpExecError, match="failed"):
        master.run(migrate())
    assert steps(master)[-5:] == [("blockdev_close", "node2", None), *meeting(False)]
    assert primary(master) == NODE1


def test_a_migration_waits_until_all_is_in_step():
    master = master_with()
    answers = [0.0, 0.0, 20.0, 20.0, 60.0]
    progress = iter([[False, percent] for percent in answers])
    master.rpc.answers["drbd_wait_sync"] = lambda *_args: next(progress, [True, 100.0])
    master.run(migrate())
    assert [line for line in master.job.log if "in sync" in line or "to their peers" in line] == [
        "* waiting for the disks of instance web.example.com to connect to their peers",
        "* disks of instance web.example.com are 20.0 % in sync",
        "* disks of instance web.example.com are 60.0 % in sync",
    ]


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (ALONE, "may have missed writes"),
        (BROKEN, "no complete copy"),
        (None, "is not active"),
        (replace(ALONE, ldisk_status=disk_c.LDS_SYNC), "no complete copy"),
    ],
)
@pytest.mark.parametrize("op", [migrate, failover])
def test_a_half_which_is_not_good_is_not_used(op, status, text):
    master = master_with()
    master.rpc.answers["blockdev_find_multi"] = status
    with pytest.raises(errors.OpExecError, match=f"disk/0 .*node2.*{text}.*Nothing was changed"):
        master.run(op())
    # It may only need to be active again, so that is tried.
    assert {step[0] for step in steps(master)} <= {"blockdev_assemble_multi", "drbd_wait_sync"}
    assert primary(master) == NODE1 and master.rpc.where("web") == ["node1"]


def test_a_half_that_was_left_alone_meets_the_other_first():
    master = master_with()
    active = []

    def assemble(_node, _args):
        active.append(True)
        return ["/dev/drbd0", "/run/link", None]

    master.rpc.answers["blockdev_assemble_multi"] = assemble
    master.rpc.answers["blockdev_find_multi"] = lambda _node, _args: GOOD if active else None
    master.run(failover())
    assert primary(master) == NODE2 and master.rpc.where("web") == ["node2"]


def test_a_source_without_storage_is_left_by_failover_only():
    master = master_with()
    master.rpc.answers["blockdev_find_multi"] = lambda node, _args: (
        GOOD if node == NODE2 else BROKEN
    )
    with pytest.raises(errors.OpExecError, match="lost its storage on node node1.*Fail it over"):
        master.run(migrate())
    assert steps(master) == []
    master.run(failover())
    assert primary(master) == NODE2


def test_replicas_that_cannot_be_disconnected():
    master = master_with()
    master.rpc.errors["drbd_disconnect_net", NODE2] = "stuck"
    with pytest.raises(errors.OpExecError, match="cannot be disconnected on node node2.*stuck"):
        master.run(migrate())
    assert primary(master) == NODE1 and master.rpc.where("web") == ["node1"]


@pytest.mark.parametrize("op", [migrate, failover])
def test_no_allocator_chooses_a_node_for_mirrored_disks(op):
    with pytest.raises(errors.OpPrereqError, match="An allocator is for shared disks only"):
        master_with().run(op(iallocator="chooser"))


def test_cleanup_leaves_one_writer():
    master = master_with()
    master.run(migrate(cleanup=True))
    assert steps(master)[-5:] == [("blockdev_close", "node2", None), *meeting(False)]
    assert [node for _name, node, _two in steps(master)].count("node3") == 0


# -- what is told ----------------------------------------------------------------


def test_info_about_both_halves_without_the_secret():
    master = master_with()
    master.rpc.answers["blockdev_find_multi"] = lambda node, _args: replace(
        GOOD, minor=0 if node == NODE1 else 3
    )
    found = master.run(OpInstanceQueryData(instances=["web"], use_locking=True, static=False))
    (one,) = found["web.example.com"]["disks"]
    assert one["drbd_info"] == {
        "primary_node": NODE1,
        "primary_node_uuid": uuid_of("node1"),
        "primary_minor": 0,
        "secondary_node": NODE2,
        "secondary_node_uuid": uuid_of("node2"),
        "secondary_minor": 3,
        "port": 11000,
    }
    assert one["logical_id"][5] == "" and "secret" not in str(found)
    assert (one["pstatus"][2], one["sstatus"][2]) == (0, 3)
    assert [child["sstatus"][2] for child in one["children"]] == [3, 3]


# -- failover to the secondary ---------------------------------------------------


def test_failover():
    master = master_with()
    master.run(failover())
    assert steps(master) == [
        ("instance_shutdown", "node1", None),
        ("blockdev_shutdown_multi", "node1", None),
        ("blockdev_assemble_multi", "node1", None),
        ("blockdev_assemble_multi", "node2", None),
        ("instance_start", "node2", None),
    ]
    assert primary(master) == NODE2


def test_failover_while_the_primary_is_marked_offline():
    master = master_with()
    master.run(failover())  # now on node2, node1 is the secondary
    node2 = master.config.node(uuid_of("node2"))
    commit(master.config).nodes.update(replace(node2, offline=True))
    master.rpc.calls.clear()
    master.rpc.running.clear()
    master.rpc.answers["blockdev_find_multi"] = ALONE
    # It is not known whether both replicas were connected until the end.
    with pytest.raises(errors.OpExecError, match="cannot be compared.*--ignore-consistency"):
        master.run(failover())
    assert primary(master) == NODE2
    assert steps(master)[-1][0] == "blockdev_assemble_multi"
    assert disk(master).outdated_node is None
    master.rpc.calls.clear()
    master.run(failover(ignore_consistency=True))
    assert primary(master) == NODE1
    assert disk(master).outdated_node == uuid_of("node2")
    assert any("cannot be compared" in line for line in master.job.log)
    assert {node for _name, node, _two in steps(master)} == {"node1"}


def test_a_broken_half_is_not_used_though_the_other_node_is_offline():
    master = master_with()
    master.run(failover())
    node2 = master.config.node(uuid_of("node2"))
    commit(master.config).nodes.update(replace(node2, offline=True))
    master.rpc.answers["blockdev_find_multi"] = BROKEN
    with pytest.raises(errors.OpExecError, match="no complete copy"):
        master.run(failover())
    assert primary(master) == NODE2


def test_the_user_may_insist():
    master = master_with()
    master.rpc.answers["blockdev_find_multi"] = ALONE
    master.run(failover(ignore_consistency=True))
    assert primary(master) == NODE2
    assert any("cannot be compared" in line for line in master.job.log)
    assert disk(master).outdated_node == uuid_of("node1")


# -- failover to any node --------------------------------------------------------


def test_a_guest_which_could_not_start_on_a_new_node_is_not_stopped():
    master = master_with()
    master.rpc.run("web", "node1")
    master.rpc.errors["hypervisor_validate_params", NODE3] = "parameter kernel_path: no such file"
    text = master.refused(failover(target_node="node3"), errors.ECODE_INVAL)
    assert "kernel_path: no such file" in text
    assert master.rpc.acting() == []


def test_to_a_node_which_has_nothing_yet():
    master = master_with()
    master.run(failover(target_node="node3"))
    assert primary(master) == NODE3
    now = disk(master)
    assert names_of(master, now.logical_id[:2]) == (NODE3, NODE2)
    assert now.logical_id[2] == 11000 and now.logical_id[4] == 3
    # The half that was left can never meet the new ones.
    assert now.logical_id[5] != "secret"
    assert now.children[0].logical_id == ("xenvg", "web.disk0_data")
    assert steps(master) == [
        ("blockdev_create_multi", "node3", None),
        ("blockdev_create_multi", "node3", None),
        ("instance_shutdown", "node1", None),
        ("blockdev_shutdown_multi", "node1", None),
        ("blockdev_close", "node2", None),
        ("drbd_disconnect_net", "node2", None),
        ("drbd_attach_net", "node3", False),
        ("drbd_attach_net", "node2", False),
        ("blockdev_assemble_multi", "node2", None),
        ("blockdev_assemble_multi", "node3", None),
        ("instance_start", "node3", None),
        ("blockdev_remove_multi", "node1", None),
    ]
    assert set(master.config.snapshot().disks) == {now.uuid}


def test_it_starts_before_all_is_copied():
    master = master_with()
    states = iter([replace(GOOD, is_degraded=True, sync_percent=5.0)])
    master.rpc.answers["blockdev_getmirrorstatus"] = lambda *_args: [next(states, GOOD)]
    master.run(failover(target_node="node3"))
    names = [name for name, _node, _args in master.rpc.calls]
    assert names.index("instance_start") < names.index("blockdev_getmirrorstatus")
    assert names.index("blockdev_getmirrorstatus") < names.index("blockdev_remove_multi")


def test_the_primary_stays_when_the_secondary_is_broken():
    master = master_with()
    master.rpc.answers["blockdev_find_multi"] = lambda node, _args: (
        BROKEN if node == NODE2 else replace(GOOD)
    )
    master.run(failover(target_node="node3"))
    # The replica which stays keeps its place.
    assert names_of(master, disk(master).logical_id[:2]) == (NODE1, NODE3)
    ((node, args),) = master.rpc.of("blockdev_remove_multi")
    assert node == NODE2 and len(args["disks"]) == 2


def test_the_primary_stays_when_the_secondary_is_offline():
    master = master_with({2: {"offline": True}})
    master.rpc.answers["blockdev_find_multi"] = ALONE
    master.run(failover(target_node="node3"))
    # The replica which stays keeps its place.
    assert names_of(master, disk(master).logical_id[:2]) == (NODE1, NODE3)
    # What node2 has is remembered, to be destroyed when it is back.
    loose = [
        one for one in master.config.snapshot().disks.values() if one.uuid != disk(master).uuid
    ]
    assert {one.nodes for one in loose} == {(uuid_of("node2"),)} and len(loose) == 2


def test_nobody_has_good_data():
    master = master_with()
    master.rpc.answers["blockdev_find_multi"] = BROKEN
    with pytest.raises(errors.OpExecError, match="no complete copy"):
        master.run(failover(target_node="node3"))
    assert {step[0] for step in steps(master)} == {"blockdev_assemble_multi"}
    assert primary(master) == NODE1 and master.rpc.where("web") == ["node1"]


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_a_half_that_cannot_be_made(failing):
    master = master_with()
    made = []

    def create(node, args):
        made.append(args["disk"].dev_type)
        return errors.BlockDeviceError("disk full") if len(made) == failing + 1 else None

    master.rpc.answers["blockdev_create_multi"] = create
    with pytest.raises(errors.OpExecError, match="node3.*disk full; nothing was changed"):
        master.run(failover(target_node="node3"))
    assert primary(master) == NODE1 and master.rpc.where("web") == ["node1"]
    assert list(master.config.snapshot().disks.values()) == [disk(master)]
    assert {node for name, node, _two in steps(master) if name == "blockdev_remove_multi"} == {
        "node3"
    }


def test_halves_that_do_not_meet():
    master = master_with()
    master.rpc.errors["drbd_wait_sync"] = "alone"
    with pytest.raises(errors.OpExecError, match="belongs to node node3.*data are on node node2"):
        master.run(failover(target_node="node3"))
    assert primary(master) == NODE3
    # The old half is remembered.
    assert len(master.config.snapshot().disks) == 3


def test_a_stopped_instance():
    master = master_with(admin_state="down", disks_active=False, running=None)
    master.run(failover(target_node="node3"))
    assert primary(master) == NODE3
    assert "instance_start" not in master.rpc.names()
    assert [step[:2] for step in steps(master)[-2:]] == [
        ("blockdev_shutdown_multi", "node3"),
        ("blockdev_shutdown_multi", "node2"),
    ]


def test_no_room_there():
    master = master_with()
    master.rpc.answers["node_info"] = lambda _node, args: [
        "boot",
        [
            {"type": kind, "name": name, "storage_free": 100, "storage_size": 9999}
            for kind, name, *_rest in args["storage_units"]
        ],
        [{"memory_free": 4096} for _ in args["hv_specs"]],
    ]
    with pytest.raises(errors.OpPrereqError, match="node3"):
        master.run(failover(target_node="node3"))


def test_the_primary_itself():
    with pytest.raises(errors.OpPrereqError, match="already on node"):
        master_with().run(failover(target_node="node1"))


def test_the_user_chooses_that_the_primary_stays():
    master = master_with()
    master.run(failover(target_node="node3", new_secondary="node1"))
    assert primary(master) == NODE3
    # The replica which stays keeps its place.
    assert names_of(master, disk(master).logical_id[:2]) == (NODE1, NODE3)
    done = [step[:2] for step in steps(master)]
    assert done.index(("instance_shutdown", "node1")) < done.index(
        ("blockdev_shutdown_multi", "node2")
    )
    assert ("blockdev_close", "node1") in done
    assert [node for name, node in done if name == "blockdev_remove_multi"] == ["node2"]
    env = master.rpc.of("hooks_runner")[0][1]["env"]
    assert (env["GANETI_OLD_SECONDARY"], env["GANETI_NEW_SECONDARY"]) == (NODE2, NODE1)


def test_the_user_chooses_that_the_secondary_stays():
    """No other node takes its place when it is broken."""
    master = master_with()
    master.rpc.answers["blockdev_find_multi"] = lambda node, _args: (
        BROKEN if node == NODE2 else GOOD
    )
    with pytest.raises(errors.OpExecError, match="node2.*no complete copy"):
        master.run(failover(target_node="node3", new_secondary="node2"))
    assert primary(master) == NODE1
    assert names_of(master, disk(master).logical_id[:2]) == (NODE1, NODE2)
    master.rpc.answers["blockdev_find_multi"] = GOOD
    master.run(failover(target_node="node3", new_secondary="node2"))
    assert names_of(master, disk(master).logical_id[:2]) == (NODE3, NODE2)


def test_the_chosen_primary_is_broken():
    master = master_with()
    master.rpc.answers["blockdev_find_multi"] = lambda node, _args: (
        BROKEN if node == NODE1 else GOOD
    )
    with pytest.raises(errors.OpExecError, match="node1.*no complete copy"):
        master.run(failover(target_node="node3", new_secondary="node1"))
    assert primary(master) == NODE1 and master.rpc.where("web") == ["node1"]
    assert not [step for step in steps(master) if step[0] == "blockdev_create_multi"]


@pytest.mark.parametrize(
    ("changes", "nodes", "fragment"),
    [
        ({"target_node": "node3", "new_secondary": "node3"}, {}, "node3.* has no replica"),
        ({"target_node": "node3", "new_secondary": "nosuch"}, {}, "nosuch"),
        ({"target_node": "node3", "new_secondary": "node2"}, {2: {"offline": True}}, "offline"),
        ({"target_node": "node2", "new_secondary": "node1"}, {}, "gets no new replica on node"),
        ({"new_secondary": "node1"}, {}, "gets no new replica on node"),
        ({"wait_for_sync": True}, {}, "gets no new replica on node"),
    ],
)
def test_a_choice_which_is_not_possible(changes, nodes, fragment):
    master = master_with(nodes)
    with pytest.raises(errors.OpPrereqError, match=fragment):
        master.run(failover(**changes))
    assert steps(master) == [] and primary(master) == NODE1


def test_the_restart_waits_until_all_is_copied():
    master = master_with()
    states = iter([replace(GOOD, is_degraded=True, sync_percent=5.0)])
    master.rpc.answers["blockdev_getmirrorstatus"] = lambda *_args: [next(states, GOOD)]
    master.run(failover(target_node="node3", wait_for_sync=True))
    names = [name for name, _node, _args in master.rpc.calls]
    assert names.count("blockdev_getmirrorstatus") == 2
    last = len(names) - 1 - names[::-1].index("blockdev_getmirrorstatus")
    assert last < names.index("instance_start") < names.index("blockdev_remove_multi")
    assert master.rpc.where("web") == ["node3"]


def test_the_network_breaks_before_the_restart():
    master = master_with()
    master.rpc.answers["blockdev_getmirrorstatus"] = [ALONE]
    with pytest.raises(errors.OpExecError, match="degraded.*belongs to node node3.*on node node2"):
        master.run(failover(target_node="node3", wait_for_sync=True))
    assert "instance_start" not in master.rpc.names()
    assert "blockdev_remove_multi" not in master.rpc.names()


# -- migration to any node -------------------------------------------------------


def test_a_migration_to_a_node_which_has_nothing_yet():
    master = master_with()
    master.run(migrate(target_node="node3"))
    assert primary(master) == NODE3 and master.rpc.where("web") == ["node3"]
    now = disk(master)
    assert set(names_of(master, now.logical_id[:2])) == {NODE1, NODE3}
    assert now.logical_id[5] != "secret"
    assert set(master.config.snapshot().disks) == {now.uuid}
    done = [step[:2] for step in steps(master)]
    # The old replica is destroyed when the new one is in sync, and before the guest is sent.
    assert done.index(("blockdev_create_multi", "node3")) < done.index(("drbd_attach_net", "node3"))
    removed = done.index(("blockdev_remove_multi", "node2"))
    assert done.index(("drbd_attach_net", "node3")) < removed
    assert removed < done.index(("accept_instance", "node3"))
    assert ("instance_shutdown", "node1") not in done
    env = master.rpc.of("hooks_runner")[0][1]["env"]
    assert (
        env["GANETI_OLD_PRIMARY"],
        env["GANETI_NEW_PRIMARY"],
        env["GANETI_OLD_SECONDARY"],
        env["GANETI_NEW_SECONDARY"],
    ) == (NODE1, NODE3, NODE2, NODE1)


def test_the_guest_ends_while_its_disks_are_copied():
    master = master_with()

    def status(*_args):
        master.rpc.running.clear()
        return [GOOD]

    master.rpc.answers["blockdev_getmirrorstatus"] = status
    with pytest.raises(errors.OpExecError, match="does not run.*node3.* secondary node of inst"):
        master.run(migrate(target_node="node3"))
    assert primary(master) == NODE1
    assert names_of(master, disk(master).logical_id[:2]) == (NODE1, NODE3)


def test_it_is_failed_over_when_it_ended_and_that_is_allowed():
    master = master_with()

    def status(*_args):
        master.rpc.running.clear()
        return [GOOD]

    master.rpc.answers["blockdev_getmirrorstatus"] = status
    master.run(migrate(target_node="node3", allow_failover=True))
    assert primary(master) == NODE3
    assert set(names_of(master, disk(master).logical_id[:2])) == {NODE1, NODE3}


def test_a_stopped_instance_is_failed_over_to_any_node_when_that_is_allowed():
    master = master_with(admin_state="down", disks_active=False, running=None)
    with pytest.raises(errors.OpPrereqError, match="does not run"):
        master.run(migrate(target_node="node3"))
    master.run(migrate(target_node="node3", allow_failover=True))
    assert primary(master) == NODE3
    assert names_of(master, disk(master).logical_id[:2]) == (NODE3, NODE2)


def test_a_migration_to_any_node_is_refused_before_anything_is_changed():
    master = master_with({3: {"drained": True}})
    with pytest.raises(errors.OpPrereqError, match="drained"):
        master.run(migrate(target_node="node3"))
    assert steps(master) == []


def test_the_plan_of_a_migration_to_any_node():
    master = master_with()
    master.run(migrate(target_node="node3", dry_run=True))
    text = "\n".join(master.job.log)
    assert f"destroy the old replica of its disks on {NODE2}" in text
    assert f"make {NODE3} its primary node, mirrored to {NODE1}" in text
    assert steps(master) == []
