"""Start, stop, reboot, removal, description of instances."""

from __future__ import annotations

import dataclasses
import json

import pytest

from fakes.config import cluster_of, commit, disk_of, instance_of, uuid_of
from fakes.master import Master
from ganeti import errors
from ganeti.client.gnt_instance import info
from ganeti.constants import hv
from ganeti.objects import Network, Nic
from ganeti.objects.halt import Halt
from ganeti.opcodes.instance import (
    OpInstanceQueryData,
    OpInstanceReboot,
    OpInstanceRemove,
    OpInstanceShutdown,
    OpInstanceStartup,
)


def master_with(nodes=2, node_changes=None, **changes):
    disks = (disk_of("web", 0), disk_of("web", 1))
    web = instance_of("web", disks=tuple(disk.uuid for disk in disks), **changes)
    return Master(cluster_of(nodes, (web,), disks, node_changes=node_changes))


def web(master):
    return master.config.instance(uuid_of("web"))


def unreachable(call, node="node1.example.com"):
    return errors.NodeUnreachable(node, call, "connection refused")


# -- start -----------------------------------------------------------------------


def test_start_marks_up_first_then_disks_then_guest():
    master = master_with()
    assert master.run(OpInstanceStartup(instance_name="web")) is None
    assert master.rpc.acting() == ["blockdev_assemble_multi", "instance_start"]
    assert master.config.writes == ["instances.mark up", "instances.set_disks_active"]
    assert web(master).admin_state == "up"
    assert web(master).disks_active
    assert master.rpc.where("web") == ["node1"]


def test_starting_a_running_instance_is_no_error():
    master = master_with(admin_state="up")
    master.rpc.run("web", "node1")
    master.rpc.free_mib["node1.example.com"] = 0
    master.run(OpInstanceStartup(instance_name="web"))
    assert master.job.said("already running")
    assert master.rpc.acting() == []


@pytest.mark.parametrize("state", ["down", "offline"])
def test_a_start_by_the_watcher_obeys_a_later_shutdown(state):
    master = master_with(admin_state=state)
    master.run(OpInstanceStartup(instance_name="web", wanted_only=True))
    assert master.job.said(f"is not started, because it is marked '{state}' now")
    assert master.rpc.acting() == [] and master.config.writes == []
    assert web(master).admin_state == state


def test_a_start_by_the_watcher_starts_what_is_wanted():
    master = master_with(admin_state="up")
    master.run(OpInstanceStartup(instance_name="web", wanted_only=True))
    assert master.rpc.where("web") == ["node1"]


FULL = Halt("io-error", hv.HALT_CONTINUES, "a disk is full")
HANGS = Halt("watchdog", hv.HALT_ENDED, "its watchdog has stopped it")
PAUSED = Halt("paused", hv.HALT_PAUSED, "somebody has paused it")
SENT = Halt("postmigrate", hv.HALT_MIGRATES, "it was sent to another node")


def halted(halt, **changes):
    master = master_with(**{"admin_state": "up", **changes})
    master.rpc.run("web", "node1")
    master.rpc.halts["web.example.com", "node1.example.com"] = halt
    return master


def test_a_start_lets_a_guest_go_on_which_an_error_has_stopped():
    master = halted(FULL)
    master.run(OpInstanceStartup(instance_name="web"))
    assert master.rpc.acting() == ["instance_continue"]
    assert master.rpc.halts == {}
    assert master.job.said("was halted, and runs on: io-error (a disk is full)")


def test_a_guest_which_halts_again_is_a_failure_with_what_to_do():
    master = halted(FULL)
    master.rpc.answers["instance_continue"] = lambda node, args: master.rpc._facts_of(
        "web.example.com", node
    )
    problem = master.failed(OpInstanceStartup(instance_name="web"))
    assert "has halted again on node node1.example.com: io-error (a disk is full)" in problem
    assert "Remove the reason, then continue it with 'gnt-instance startup" in problem
    master.rpc.answers.clear()
    master.rpc.errors["instance_continue"] = "QEMU does not answer"
    problem = master.failed(OpInstanceStartup(instance_name="web"))
    assert "could not be continued on node node1.example.com: QEMU does not answer" in problem


def test_a_guest_which_can_never_go_on_is_ended_and_started():
    master = halted(HANGS)
    master.run(OpInstanceStartup(instance_name="web"))
    stopped, started = master.rpc.of("instance_shutdown"), master.rpc.of("instance_start")
    assert stopped[0][1]["timeout_s"] == 0
    assert len(started) == 1
    assert master.job.said("cannot run on, and is ended before its start: watchdog")


@pytest.mark.parametrize("wanted_only", [None, True])
def test_a_paused_guest_goes_on_only_when_that_is_asked_for(wanted_only):
    master = halted(PAUSED, admin_state="down" if wanted_only is None else "up")
    op = OpInstanceStartup(instance_name="web", wanted_only=wanted_only)
    problem = master.refused(op, errors.ECODE_STATE)
    assert "although it was started: paused (somebody has paused it)" in problem
    assert "'gnt-instance startup --continue web.example.com'" in problem
    assert master.rpc.acting() == [] and master.config.writes == []
    master.run(OpInstanceStartup(instance_name="web", startup_paused=True))
    assert master.rpc.acting() == []
    assert master.job.said("was started already, and stays paused")
    master.run(OpInstanceStartup(instance_name="web", continue_paused=True))
    assert master.rpc.acting() == ["instance_continue"]


def test_a_guest_which_was_sent_to_another_node_is_never_continued():
    master = halted(SENT)
    op = OpInstanceStartup(instance_name="web", continue_paused=True)
    problem = master.refused(op, errors.ECODE_STATE)
    assert "run 'gnt-instance migrate --cleanup web.example.com'" in problem
    assert master.rpc.acting() == []


@pytest.mark.parametrize(
    ("halt", "op", "step"),
    [
        (FULL, {}, "let it run on: io-error (a disk is full)"),
        (PAUSED, {"continue_paused": True}, "let it run on: paused (somebody has paused it)"),
        (PAUSED, {"startup_paused": True}, "leave it paused: paused (somebody has paused it)"),
        (HANGS, {}, "end it, because it cannot run on: watchdog (its watchdog has stopped it)"),
    ],
)
def test_a_dry_run_says_what_a_start_does_with_a_halted_guest(halt, op, step):
    master = halted(halt)
    master.run(OpInstanceStartup(instance_name="web", dry_run=True, **op))
    assert master.job.said(step)
    assert master.rpc.acting() == []


def test_info_says_why_a_guest_does_not_run():
    master = halted(FULL)
    (found,) = master.run(OpInstanceQueryData(instances=["web"])).values()
    assert found["run_state"] == "up"
    assert found["halt"]["state"] == "io-error"
    pairs = dict(pair[:2] for pair in info.describe(found, str))
    assert pairs["State"] == (
        "configured to be up, actual state is up, halted: io-error (a disk is full). Remove the"
        " reason, then continue it with 'gnt-instance startup web.example.com'."
    )


def test_only_what_is_left_of_an_import_is_removed_unasked():
    master = master_with(importing_since=1.0)
    op = OpInstanceRemove(instance_name="web", unfinished_import=True)
    # Somebody starts and stops it: it is an ordinary instance from then on.
    with master.config.transaction() as change:
        change.instances.mark(uuid_of("web"), "up")
        change.instances.mark(uuid_of("web"), "down")
    assert "has ended, or it was started" in master.refused(op, errors.ECODE_STATE)
    master = master_with(importing_since=1.0)
    master.run(op)
    assert master.config.instances() == ()


def test_overrides_reach_the_node_and_are_not_stored():
    master = master_with()
    op = OpInstanceStartup(instance_name="web", beparams={"memory": "512"}, startup_paused=True)
    master.run(op)
    _node, args = master.rpc.of("instance_start")[0]
    assert args["instance"].beparams["maxmem"] == 512
    assert args["startup_paused"] is True
    assert web(master).beparams == {}


@pytest.mark.parametrize(
    ("op", "ecode", "fragment"),
    [
        ({"beparams": {"nosuch": 1}}, errors.ECODE_INVAL, "nosuch"),
        ({"beparams": {"minmem": 9, "maxmem": 8}}, errors.ECODE_INVAL, "more than the maximum"),
        ({"hvparams": {"migration_mode": "live"}}, errors.ECODE_INVAL, "whole cluster"),
        ({"beparams": {"memory": 5000}}, errors.ECODE_NORES, "not enough memory on node node1"),
    ],
)
def test_start_refuses_bad_overrides(op, ecode, fragment):
    text = master_with().refused(OpInstanceStartup(instance_name="web", **op), ecode)
    assert fragment in text


def test_start_refuses_an_offline_instance():
    master = master_with(admin_state="offline")
    text = master.refused(OpInstanceStartup(instance_name="web"), errors.ECODE_STATE)
    assert "'offline'" in text


def test_start_refuses_on_an_offline_node_unless_told_otherwise():
    master = master_with(node_changes={1: {"offline": True}})
    text = master.refused(OpInstanceStartup(instance_name="web"), errors.ECODE_STATE)
    assert "node node1.example.com is marked offline" in text
    # Its disks are on shared storage.
    assert "'gnt-instance failover web.example.com'" in text


def test_start_of_an_instance_whose_only_disks_are_on_an_offline_node():
    disk = disk_of("web", 0, "file")
    web_here = instance_of("web", disks=(disk.uuid,))
    master = Master(cluster_of(2, (web_here,), (disk,), node_changes={1: {"offline": True}}))
    text = master.refused(OpInstanceStartup(instance_name="web"), errors.ECODE_STATE)
    assert "failover" not in text
    assert "'gnt-node modify --offline=no node1.example.com'" in text


@pytest.mark.parametrize("op", [OpInstanceReboot(instance_name="web", reboot_type="hard")])
def test_other_commands_name_the_failover_too(op):
    master = master_with(node_changes={1: {"offline": True}})
    assert "'gnt-instance failover web.example.com'" in master.refused(op, errors.ECODE_STATE)


def test_start_on_an_ignored_offline_node_only_marks():
    web_on_2 = instance_of("web", "node2")
    master = Master(cluster_of(2, (web_on_2,), node_changes={2: {"offline": True}}))
    master.run(OpInstanceStartup(instance_name="web", ignore_offline_nodes=True))
    assert web(master).admin_state == "up"
    assert master.rpc.acting() == []


def test_start_refuses_when_the_node_does_not_answer():
    master = master_with()
    master.rpc.errors["instance_info"] = unreachable("instance_info")
    text = master.refused(OpInstanceStartup(instance_name="web"), errors.ECODE_ENVIRON)
    assert "connection refused" in text


def test_start_refuses_when_a_bridge_is_missing():
    master = master_with()
    master.rpc.errors["bridges_exist"] = "xen-br0 does not exist"
    text = master.refused(OpInstanceStartup(instance_name="web"), errors.ECODE_ENVIRON)
    assert "xen-br0" in text


CHECKS = ["hypervisor_validate_params", "bridges_exist", "instance_info", "node_info"]


@pytest.mark.parametrize(("hvparams", "asked"), [({}, CHECKS[1:]), ({"acpi": False}, CHECKS)])
def test_a_start_asks_the_node_once_for_all_it_checks(hvparams, asked):
    master = master_with(hypervisor="kvm")
    master.run(OpInstanceStartup(instance_name="web", hvparams=hvparams))
    assert master.rpc.together == [asked]


@pytest.mark.parametrize(
    ("first", "ecode"),
    list(enumerate([errors.ECODE_INVAL, *[errors.ECODE_ENVIRON] * 3])),
)
def test_the_first_refusal_of_a_start_counts(first, ecode):
    master = master_with(hypervisor="kvm")
    for call in CHECKS[first:]:
        master.rpc.errors[call] = f"{call} is refused"
    op = OpInstanceStartup(instance_name="web", hvparams={"acpi": False})
    assert f"{CHECKS[first]} is refused" in master.refused(op, ecode)


def test_a_failing_start_deactivates_the_disks_and_shows_the_cause():
    master = master_with()
    master.rpc.errors["instance_start"] = "QEMU said: no such kernel"
    text = master.failed(OpInstanceStartup(instance_name="web"))
    assert "QEMU said: no such kernel" in text
    assert "gnt-instance shutdown web.example.com" in text
    assert master.rpc.acting()[-1:] == ["blockdev_shutdown_multi"]
    assert web(master).admin_state == "up"
    assert not web(master).disks_active


def test_half_an_assembly_is_undone():
    master = master_with()
    master.rpc.errors["blockdev_assemble_multi"] = "no such file"
    text = master.failed(OpInstanceStartup(instance_name="web"))
    assert "disk 0 of instance web.example.com cannot be activated" in text
    assert master.rpc.acting() == ["blockdev_assemble_multi", "blockdev_shutdown_multi"]


def test_what_cannot_be_undone_is_named():
    master = master_with()
    master.rpc.errors["instance_start"] = "broken"
    master.rpc.errors["blockdev_shutdown_multi"] = "device is busy"
    text = master.failed(OpInstanceStartup(instance_name="web"))
    assert "broken" in text
    assert "left behind: active disks of web.example.com on node node1.example.com" in text


def test_start_without_remembering_keeps_the_state():
    master = master_with()
    master.run(OpInstanceStartup(instance_name="web", no_remember=True))
    assert web(master).admin_state == "down"
    assert master.rpc.where("web") == ["node1"]


def test_a_repeated_start_after_a_dead_master_finishes():
    """The master died after the first write: the instance is marked up, nothing else happened."""
    master = master_with(admin_state="up")
    master.run(OpInstanceStartup(instance_name="web"))
    assert master.rpc.where("web") == ["node1"]


# -- stop ------------------------------------------------------------------------


def test_stop_marks_down_first():
    master = master_with(admin_state="up", disks_active=True)
    master.rpc.run("web", "node1")
    master.run(OpInstanceShutdown(instance_name="web", timeout=7))
    assert master.config.writes == ["instances.mark down", "instances.set_disks_active"]
    assert master.rpc.acting() == ["instance_shutdown", "blockdev_shutdown_multi"]
    assert master.rpc.of("instance_shutdown")[0][1]["timeout_s"] == 7
    assert master.rpc.where("web") == []
    assert master.rpc.of("hooks_runner")[0][1]["env"]["GANETI_TIMEOUT"] == "7"


@pytest.mark.parametrize("running", [False, True])
def test_a_stop_of_a_stopped_instance_says_so(running):
    master = master_with(admin_state="down")
    if running:
        master.rpc.run("web", "node1")
    master.run(OpInstanceShutdown(instance_name="web"))
    said = any("was stopped already" in line for line in master.job.log)
    assert said is not running


def test_a_stop_whose_node_does_not_say_whether_the_guest_runs():
    master = master_with(admin_state="down")
    master.rpc.errors["instance_info"] = "not now"
    master.run(OpInstanceShutdown(instance_name="web"))
    assert not any("already" in line for line in master.job.log)


def test_stop_by_the_guests_user_is_remembered():
    master = master_with(admin_state="up")
    master.run(OpInstanceShutdown(instance_name="web", admin_state_source="user"))
    assert web(master).admin_state_source == "user"


def test_a_stop_that_fails_leaves_the_disks_alone():
    master = master_with(admin_state="up", disks_active=True)
    master.rpc.errors["instance_shutdown"] = "guest does not end"
    text = master.failed(OpInstanceShutdown(instance_name="web"))
    assert "guest does not end" in text
    assert "is marked down" in text
    assert master.rpc.acting() == ["instance_shutdown"]


def test_stop_of_an_offline_instance_needs_force():
    master = master_with(admin_state="offline")
    master.refused(OpInstanceShutdown(instance_name="web"), errors.ECODE_STATE)
    master.run(OpInstanceShutdown(instance_name="web", force=True))
    assert web(master).admin_state == "offline"


# -- reboot ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["soft", "hard"])
def test_the_node_reboots_alone(kind):
    master = master_with(admin_state="up")
    master.rpc.run("web", "node1")
    master.run(OpInstanceReboot(instance_name="web", reboot_type=kind))
    assert master.rpc.acting() == ["instance_reboot"]


def test_a_full_reboot_is_stop_and_start():
    master = master_with(admin_state="up", disks_active=True)
    master.rpc.run("web", "node1")
    master.run(OpInstanceReboot(instance_name="web", reboot_type="full"))
    assert master.rpc.acting() == [
        "instance_shutdown",
        "blockdev_shutdown_multi",
        "blockdev_assemble_multi",
        "instance_start",
    ]


def test_before_a_full_reboot_the_node_checks_the_parameters():
    master = master_with(admin_state="up", disks_active=True)
    master.rpc.run("web", "node1")
    master.rpc.errors["hypervisor_validate_params"] = "parameter kernel_path: no such file"
    with pytest.raises(errors.OpPrereqError, match="kernel_path: no such file"):
        master.run(OpInstanceReboot(instance_name="web", reboot_type="full"))
    assert master.rpc.acting() == []


@pytest.mark.parametrize(
    ("kind", "asked"),
    [
        ("hard", ["bridges_exist", "instance_info"]),
        ("full", ["bridges_exist", "instance_info", "hypervisor_validate_params"]),
    ],
)
def test_a_reboot_asks_the_node_once_for_all_it_checks(kind, asked):
    master = master_with(admin_state="up", disks_active=True)
    master.rpc.run("web", "node1")
    master.run(OpInstanceReboot(instance_name="web", reboot_type=kind))
    assert master.rpc.together == [asked]


def test_a_full_reboot_of_a_stopped_instance_does_not_judge_the_parameters():
    master = master_with()
    master.rpc.errors["hypervisor_validate_params"] = "parameter kernel_path: no such file"
    master.run(OpInstanceReboot(instance_name="web", reboot_type="full"))
    assert master.rpc.acting()[-1] == "instance_start"


def test_rebooting_a_stopped_instance_starts_it():
    master = master_with()
    master.run(OpInstanceReboot(instance_name="web", reboot_type="hard"))
    assert master.rpc.acting()[-1] == "instance_start"
    assert web(master).admin_state == "up"


# -- removal ---------------------------------------------------------------------


def test_remove_stops_removes_and_forgets():
    master = master_with(admin_state="up")
    master.rpc.run("web", "node1")
    master.run(OpInstanceRemove(instance_name="web"))
    assert master.rpc.acting() == [
        "instance_shutdown",
        "blockdev_remove_multi",
        "file_storage_dir_remove",
    ]
    assert master.config.writes == ["instances.mark down", "instances.remove"]
    assert master.job.said(
        "waiting until instance web.example.com has stopped on node node1.example.com. It is"
        " killed after 120 s"
    )
    assert not master.config.snapshot().instances
    assert not master.config.snapshot().disks
    directories = [hook for hook in master.rpc.hooks() if hook[0] == "instance-remove"]
    assert directories == [
        ("instance-remove", "pre", "node1.example.com"),
        ("instance-remove", "post", "node1.example.com"),
    ]


@pytest.mark.parametrize(
    "call", ["instance_shutdown", "blockdev_remove_multi", "file_storage_dir_remove"]
)
def test_a_failed_removal_keeps_the_instance_for_another_try(call):
    master = master_with(admin_state="up")
    master.rpc.errors[call] = "device is busy"
    text = master.failed(OpInstanceRemove(instance_name="web"))
    assert "device is busy" in text
    assert "still in the configuration" in text
    assert web(master).admin_state == "down"
    del master.rpc.errors[call]
    master.run(OpInstanceRemove(instance_name="web"))
    assert not master.config.snapshot().instances


def test_removal_may_ignore_failures():
    master = master_with()
    master.rpc.errors["blockdev_remove_multi"] = "device is busy"
    master.run(OpInstanceRemove(instance_name="web", ignore_failures=True))
    assert master.job.said("device is busy")
    assert not master.config.snapshot().instances


# -- description -----------------------------------------------------------------


KEYS = {
    "name",
    "config_state",
    "run_state",
    "pnode",
    "pnode_group_uuid",
    "pnode_group_name",
    "snodes",
    "snodes_group_uuids",
    "snodes_group_names",
    "os",
    "nics",
    "disk_template",
    "disks",
    "hypervisor",
    "network_port",
    "hv_instance",
    "hv_actual",
    "be_instance",
    "be_actual",
    "os_instance",
    "os_actual",
    "serial_no",
    "mtime",
    "ctime",
    "uuid",
}  # as recorded from a running cluster


def test_query_data_describes_the_running_guest_if_it_is_wanted():
    master = master_with(admin_state="up")
    op = OpInstanceQueryData(instances=["web"], with_guest=True)
    (facts,) = master.run(op).values()
    assert "guest" not in facts
    master.rpc.run("web", "node1")
    (facts,) = master.run(op).values()
    assert facts["guest"]["started"] == 1000.0
    assert facts["guest"]["addresses"] == [["192.0.2.7", "lease"]]
    assert facts["guest"]["memory"] > 0
    ((_node, args),) = master.rpc.of("guest_details")
    assert args["guests"] == {"web.example.com": ["fake", ["aa:00:00:00:00:03"]]}
    # A node of the release before does not know the call.
    master.rpc.errors["guest_details"] = "no such call"
    (facts,) = master.run(op).values()
    assert (facts["guest"]["started"], facts["guest"]["addresses"]) == (None, [])


def test_query_data_has_the_published_keys():
    master = master_with(admin_state="up")
    master.rpc.run("web", "node1")
    (facts,) = master.run(OpInstanceQueryData(instances=["web"], use_locking=True)).values()
    assert set(facts) == KEYS
    assert facts["run_state"] == "up"
    # The one parameter of the fake hypervisor belongs to the whole cluster.
    assert facts["hv_actual"] == {}
    assert facts["disk_template"] == "sharedfile"
    assert facts["pnode_group_name"] == "default"
    assert facts["nics"] == [
        [None, "uuid-web-nic", None, "aa:00:00:00:00:03", "bridged", "xen-br0", "", None, None]
    ]
    disk = facts["disks"][0]
    assert disk["pstatus"][0] == disk["logical_id"][1]
    assert disk["iv_name"] == "disk/0"


def test_a_network_is_described_and_shown():
    """The members of the dictionary are those which the original sends."""
    network = Network(
        name="net1",
        network="203.0.113.0/28",
        gateway="203.0.113.1",
        mac_prefix="aa:bb:cc",
        reservations="0001000000000000",
        ext_reservations="1110000000000001",
        uuid="net-uuid",
        serial_no=3,
        tags=("dmz",),
    )
    nic = Nic(
        mac="aa:bb:cc:00:00:01",
        ip="203.0.113.3",
        network=network.uuid,
        uuid="nic-uuid",
        nicparams={},
    )
    data = cluster_of(1, (instance_of("web", nics=(nic,)),))
    group = dataclasses.replace(
        data.nodegroups["group-1"], networks={network.uuid: {"mode": "bridged", "link": "br0"}}
    )
    master = Master(
        dataclasses.replace(data, networks={network.uuid: network}, nodegroups={group.uuid: group})
    )
    (facts,) = master.run(OpInstanceQueryData(instances=["web"], static=True)).values()
    assert facts["nics"][0][7:] == [
        "net-uuid",
        {
            "name": "net1",
            "serial_no": 3,
            "mac_prefix": "aa:bb:cc",
            "network": "203.0.113.0/28",
            "gateway": "203.0.113.1",
            "reservations": "0001000000000000",
            "ext_reservations": "1110000000000001",
            "ctime": 0,
            "mtime": 0,
            "uuid": "net-uuid",
            "tags": ["dmz"],
        },
    ]
    (shown,) = dict(info.describe(json.loads(json.dumps(facts)), str))["NICs"]
    assert dict(shown)["network"] == "net1"


def test_static_query_data_asks_no_node():
    master = master_with()
    (facts,) = master.run(OpInstanceQueryData(static=True)).values()
    assert facts["run_state"] is None
    assert facts["disks"][0]["pstatus"] is None
    assert master.rpc.calls == []


def test_query_data_survives_a_dead_node():
    master = master_with(admin_state="up")
    master.rpc.errors["instance_info"] = unreachable("instance_info")
    master.rpc.errors["blockdev_find_multi"] = unreachable("blockdev_find_multi")
    (facts,) = master.run(OpInstanceQueryData(instances=["web"])).values()
    assert facts["run_state"] is None
    assert master.job.said("did not report instance web.example.com")


# -- states ----------------------------------------------------------------------


def test_a_guest_that_shut_down_by_itself_is_tidied_up_before_it_starts():
    master = master_with(admin_state="up")
    master.rpc.running["web.example.com", "node1.example.com"] = 1
    master.run(OpInstanceStartup(instance_name="web", shutdown_timeout=3))
    assert "instance_shutdown" in master.rpc.acting()
    assert master.rpc.acting()[-1] == "instance_start"
    assert master.rpc.of("instance_shutdown")[0][1]["timeout_s"] == 3


def test_an_instance_which_runs_elsewhere_is_not_started():
    master = master_with()
    master.rpc.run("web", "node2")
    text = master.refused(OpInstanceStartup(instance_name="web"), errors.ECODE_STATE)
    assert "runs on node node2.example.com" in text
    assert "--cleanup" in text


def test_a_node_that_does_not_answer_does_not_keep_others_down():
    master = master_with()
    master.rpc.errors["instance_info", "node2.example.com"] = errors.NodeUnreachable(
        "node2.example.com", "instance_info", "timed out"
    )
    master.run(OpInstanceStartup(instance_name="web"))
    assert master.rpc.where("web") == ["node1"]
    assert master.job.said("did not report whether it runs instance")


def test_a_node_marked_offline_is_not_asked_whether_it_runs_an_instance():
    master = master_with()
    master.rpc.run("web", "node2")
    node = master.config.node_by_name("node2.example.com")
    commit(master.config).nodes.update(dataclasses.replace(node, offline=True))
    master.run(OpInstanceStartup(instance_name="web"))
    assert "node1" in master.rpc.where("web")
