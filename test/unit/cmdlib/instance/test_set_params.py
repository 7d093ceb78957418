"""Changing instances: parameters, devices, kinds of disks, state; what is refused and why."""

from __future__ import annotations

import pytest

from fakes.config import cluster_of, commit, disk_of, instance_of, uuid_of
from fakes.master import Master
from ganeti import errors
from ganeti.objects import Nic, ipolicy, updated
from ganeti.opcodes.instance import OpInstanceSetParams

RULES = ipolicy.defaults()
RULES["minmax"][0]["min"]["disk-size"] = 1


def master_with(template="sharedfile", cluster=None, **changes):
    disks = (
        () if template == "diskless" else (disk_of("web", 0, template), disk_of("web", 1, template))
    )
    web = instance_of("web", disks=tuple(disk.uuid for disk in disks), **changes)
    return Master(
        cluster_of(
            3, (web, instance_of("other", "node2")), disks, **{"ipolicy": RULES, **(cluster or {})}
        )
    )


def web(master):
    return master.config.instance(uuid_of("web"))


def disks_of(master):
    return master.config.instance_disks(web(master))


def modify(**changes):
    return OpInstanceSetParams(instance_name="web", **changes)


# -- parameters ------------------------------------------------------------------


def test_parameters_change_in_one_commit_and_default_takes_back():
    master = master_with(beparams={"vcpus": 2}, osparams={"a": "1", "b": "2"})
    result = master.run(
        modify(
            beparams={"memory": "256M", "vcpus": "default"},
            osparams={"a": "default", "c": "3"},
            osparams_private={"key": "hush"},
        )
    )
    assert web(master).beparams == {"minmem": 256, "maxmem": 256}
    assert web(master).osparams == {"b": "2", "c": "3"}
    assert dict(web(master).osparams_private) == {"key": "hush"}
    assert ["be/maxmem", "256M"] in result
    assert ["os_private/key", "<hidden>"] in result
    assert len(master.config.writes) == 1
    assert master.rpc.acting() == []


def test_a_port_for_the_console_is_reserved_before_anything_is_changed():
    used = {"highest_used_port": 14999, "tcpudp_port_pool": ()}
    master = master_with(
        hypervisor="fake",
        cluster={**used, "enabled_hypervisors": ("fake", "kvm")},
    )
    wanted = modify(hypervisor="kvm", disks=[["remove", -1, {}]])
    text = master.refused(wanted, errors.ECODE_NORES)
    assert "cannot get a port for its console" in text
    assert master.rpc.acting() == [] and len(disks_of(master)) == 2
    commit(master.config).ports.release(14990)
    master.run(wanted)
    assert web(master).network_port == 14990
    assert master.config.cluster().tcpudp_port_pool == ()
    master.run(modify(hypervisor="fake"))
    assert web(master).network_port is None
    assert master.config.cluster().tcpudp_port_pool == (14990,)


def test_hypervisor_parameters_are_checked_on_the_nodes():
    master = master_with(hypervisor="kvm")
    master.run(modify(hvparams={"vhost_net": True}))
    assert web(master).hvparams == {"vhost_net": True}
    assert master.rpc.of("hypervisor_validate_params")
    master.rpc.errors["hypervisor_validate_params"] = "no vhost here"
    text = master.refused(modify(hvparams={"vhost_net": False}), errors.ECODE_INVAL)
    assert "no vhost here" in text


def test_processors_of_a_running_container_change_at_once():
    master = master_with(hypervisor="lxc", admin_state="up")
    master.rpc.answers["instance_limit_processors"] = True
    master.run(modify(beparams={"vcpus": 2}))
    assert master.rpc.acting() == ["instance_limit_processors"]
    assert master.job.said("processors of the running instance were changed")
    # What does not differ is not sent.
    master.run(modify(beparams={"always_failover": True}, hvparams={"num_ttys": 1}))
    assert master.rpc.acting() == ["instance_limit_processors"]
    master.run(modify(hvparams={"cpu_mask": "0"}))
    assert master.rpc.acting() == ["instance_limit_processors"] * 2
    master.rpc.errors["instance_limit_processors"] = "no such processor"
    master.run(modify(hvparams={"cpu_mask": "1"}))
    assert master.job.said("no such processor")
    assert web(master).hvparams["cpu_mask"] == "1"
    other = master_with(hypervisor="kvm", admin_state="up")
    other.run(modify(beparams={"vcpus": 2}))
    assert other.rpc.acting() == []


def test_the_firmware_keeps_its_disk():
    master = master_with(hypervisor="kvm")
    uefi = {"hvparams": {"firmware": "uefi", "tpm_version": "2.0"}}
    efivars, tpm = (["add", -1, {"size": 4, "name": name}] for name in ("efivars", "tpm"))
    assert "firmware=uefi needs a small disk named efivars" in master.refused(
        modify(**uefi), errors.ECODE_INVAL
    )
    assert "tpm_version=2.0 needs a small disk named tpm" in master.refused(
        modify(**uefi, disks=[efivars]), errors.ECODE_INVAL
    )
    master.run(modify(**uefi, disks=[efivars, tpm]))
    for change in (["remove", "efivars", {}], ["modify", "tpm", {"name": "data"}]):
        with pytest.raises(errors.OpPrereqError, match="needs a small disk"):
            master.run(modify(disks=[change]))
    master.run(modify(hvparams={"tpm_version": "default"}, disks=[["remove", "tpm", {}]]))
    # What was so before is no reason to refuse other changes.
    cluster = master.config.cluster()
    commit(master.config).cluster.update(
        updated(
            cluster,
            hvparams={**cluster.hvparams, "kvm": {**cluster.hvparams["kvm"], "tpm_version": "1.2"}},
        )
    )
    master.run(modify(beparams={"vcpus": 2}))


def test_the_operating_system_on_record():
    master = master_with()
    assert master.run(modify(os_name="debian+minimal")) == [["os", "debian+minimal"]]
    assert web(master).os == "debian+minimal"
    master.rpc.errors["os_validate"] = "no such OS"
    assert "no such OS" in master.refused(modify(os_name="x"), errors.ECODE_INVAL)
    master.run(modify(os_name="x", force=True))
    assert web(master).os == "x"


@pytest.mark.parametrize(
    ("changes", "ecode", "fragment"),
    [
        ({}, errors.ECODE_INVAL, "no changes"),
        ({"beparams": {"nosuch": 1}}, errors.ECODE_INVAL, "nosuch"),
        ({"beparams": {"nosuch": "default"}}, errors.ECODE_INVAL, "nosuch"),
        ({"beparams": {"minmem": 512, "maxmem": 256}}, errors.ECODE_INVAL, "more than the maximum"),
        ({"beparams": {"memory": 64}}, errors.ECODE_INVAL, "--ignore-ipolicy"),
        ({"beparams": {"memory": 8000}}, errors.ECODE_NORES, "--force"),
        ({"hvparams": {"migration_mode": "live"}}, errors.ECODE_INVAL, "whole cluster"),
        ({"disks": [["modify", 7, {"mode": "ro"}]]}, errors.ECODE_NOENT, "no disk 7"),
        ({"disks": [["modify", "data", {"mode": "ro"}]]}, errors.ECODE_NOENT, "'data'"),
        ({"disks": [["modify", 0, {"mode": "xx"}]]}, errors.ECODE_INVAL, "'xx'"),
        ({"disks": [["modify", 0, {"size": 5}]]}, errors.ECODE_INVAL, "grow-disk"),
        ({"disks": [["modify", 0, {"vg": "x"}]]}, errors.ECODE_INVAL, "vg"),
        ({"disks": [["modify", 0, {}]]}, errors.ECODE_INVAL, "no change is given"),
        ({"disks": [["remove", 0, {"mode": "ro"}]]}, errors.ECODE_INVAL, "not allowed when a disk"),
        ({"disks": [["add", 9, {"size": 5}]]}, errors.ECODE_INVAL, "the next is 2"),
        ({"disks": [["add", -1, {}]]}, errors.ECODE_INVAL, "not a size"),
        ({"disks": [["add", -1, {"size": 5, "adopt": "x"}]]}, errors.ECODE_INVAL, "adopt"),
        (
            {"disks": [["add", -1, {"size": 5, "dev_type": "file"}]]},
            errors.ECODE_INVAL,
            "cannot be added",
        ),
        ({"disks": [["attach", -1, {"name": "nosuch"}]]}, errors.ECODE_NOENT, "does not exist"),
        ({"disks": [["attach", -1, {}]]}, errors.ECODE_INVAL, "either by its UUID or by its name"),
        (
            {"disks": [["attach", -1, {"uuid": uuid_of("web-disk0")}]]},
            errors.ECODE_NOENT,
            "belongs to an instance",
        ),
        ({"nics": [["remove", 3, {}]]}, errors.ECODE_NOENT, "has 1"),
        ({"nics": [["modify", 0, {"mac": "nonsense"}]]}, errors.ECODE_INVAL, "nonsense"),
        (
            {"nics": [["modify", 0, {"mac": "aa:00:00:00:00:05"}]]},
            errors.ECODE_NOTUNIQUE,
            "already in use",
        ),
        ({"nics": [["modify", 0, {"mode": "routed"}]]}, errors.ECODE_INVAL, "needs an IP"),
        ({"nics": [["add", -1, {"network": "nosuch"}]]}, errors.ECODE_NOENT, "nosuch"),
        ({"nics": [["detach", 0, {}]]}, errors.ECODE_INVAL, "only add, modify and remove"),
        ({"disk_template": "sharedfile"}, errors.ECODE_INVAL, "already"),
        ({"disk_template": "diskless"}, errors.ECODE_INVAL, "cannot be converted"),
        ({"disk_template": "plain"}, errors.ECODE_INVAL, "not enabled"),
        (
            {"disk_template": "file", "disks": [["remove", 0, {}]]},
            errors.ECODE_INVAL,
            "one operation",
        ),
        ({"remote_node": "node2", "beparams": {"vcpus": 2}}, errors.ECODE_INVAL, "secondary"),
        ({"runtime_mem": 128}, errors.ECODE_STATE, "does not run"),
        ({"offline": False, "pnode": "node1"}, errors.ECODE_STATE, "already"),
        ({"pnode": "nosuch"}, errors.ECODE_NOENT, "nosuch"),
        ({"instance_communication": True}, errors.ECODE_STATE, "no network over which"),
    ],
)
def test_changes_are_refused(changes, ecode, fragment):
    assert fragment in master_with().refused(modify(**changes), ecode)


def test_old_violations_of_the_policy_are_not_the_business_of_a_change():
    master = master_with(beparams={"minmem": 64, "maxmem": 64})
    master.run(modify(beparams={"vcpus": 2}))
    assert web(master).beparams["vcpus"] == 2
    assert "memory" in master.refused(modify(beparams={"memory": 32}), errors.ECODE_INVAL)
    master.run(modify(beparams={"memory": 32}, ignore_ipolicy=True))


# -- state -----------------------------------------------------------------------


def test_offline_and_online():
    master = master_with()
    assert master.run(modify(offline=True)) == [["admin_state", "offline"]]
    assert web(master).admin_state == "offline"
    assert master.run(modify(offline=False)) == [["admin_state", "down"]]
    up = master_with(admin_state="up")
    assert "'up'" in up.refused(modify(offline=True), errors.ECODE_STATE)


def test_runtime_memory_has_bounds():
    master = master_with(admin_state="up", beparams={"minmem": 128, "maxmem": 512})
    master.rpc.run("web", "node1")
    assert master.run(modify(runtime_mem=256)) == [["runtime_memory", 256]]
    assert master.rpc.acting() == ["instance_balloon_memory"]
    master = master_with(admin_state="up", beparams={"minmem": 128, "maxmem": 512})
    master.rpc.run("web", "node1")
    assert "between 128 and 512" in master.refused(modify(runtime_mem=600), errors.ECODE_INVAL)
    master.run(modify(runtime_mem=600, force=True))
    with pytest.raises(errors.OpPrereqError, match="free"):
        master.run(modify(runtime_mem=99000, force=True))
    # A limit which is changed at the same time counts.
    master = master_with(admin_state="up", beparams={"minmem": 128, "maxmem": 512})
    master.rpc.run("web", "node1")
    assert "between 64 and 512" in master.refused(
        modify(runtime_mem=32, beparams={"minmem": 64}), errors.ECODE_INVAL
    )
    master.run(modify(runtime_mem=96, beparams={"minmem": 64}))


def test_the_primary_node_by_hand():
    master = master_with()
    assert master.run(modify(pnode="node2")) == [["pnode", "node2.example.com"]]
    assert web(master).primary_node == uuid_of("node2")
    running = master_with()
    running.rpc.run("web", "node1")
    assert "still runs" in running.refused(modify(pnode="node2"), errors.ECODE_STATE)
    silent = master_with()
    silent.rpc.errors["instance_info"] = errors.NodeUnreachable("node1", "instance_info", "gone")
    assert "--force" in silent.refused(modify(pnode="node2"), errors.ECODE_STATE)
    silent.run(modify(pnode="node2", force=True))


# -- disks and interfaces --------------------------------------------------------


def test_disks_are_a_stack_and_keep_their_numbers_in_order():
    master = master_with()
    result = master.run(
        modify(disks=[["add", 0, {"size": 8, "name": "boot", "access": "r"}], ["remove", -1, {}]])
    )
    assert result == [["disk/0", "add:size=8,mode=ro"], ["disk/2", "remove"]]
    assert [(disk.iv_name, disk.size, disk.mode) for disk in disks_of(master)] == [
        ("disk/0", 8, "ro"),
        ("disk/1", 1024, "rw"),
    ]
    master.run(modify(disks=[["modify", "boot", {"mode": "rw", "name": "none"}]]))
    assert (disks_of(master)[0].mode, disks_of(master)[0].name) == ("rw", None)


def test_the_older_form_of_changes():
    master = master_with()
    master.run(modify(disks=[["add", {"size": 8}]], nics=[["remove", {}]], ignore_ipolicy=True))
    assert len(disks_of(master)) == 3
    assert web(master).nics == ()
    master.run(modify(disks=[[2, {"mode": "ro"}]]))
    assert disks_of(master)[2].mode == "ro"


def test_a_detached_disk_stays_and_can_be_attached_to_another_instance():
    master = master_with()
    disk = disks_of(master)[1]
    master.run(modify(disks=[["detach", 1, {}]]))
    assert "blockdev_remove_multi" not in master.rpc.names()
    loose = master.config.disk(disk.uuid)
    assert loose.iv_name == ""
    master.run(
        OpInstanceSetParams(instance_name="other", disks=[["attach", -1, {"uuid": disk.uuid}]])
    )
    other = master.config.instance(uuid_of("other"))
    assert other.disks == (disk.uuid,)
    assert master.config.disk(disk.uuid).iv_name == "disk/0"


def test_a_failing_disk_leaves_nothing():
    master = master_with()
    master.rpc.errors["blockdev_create_multi"] = "disk full"
    assert "disk full" in master.failed(modify(disks=[["add", -1, {"size": 8}]]))
    assert len(disks_of(master)) == 2
    assert len(master.config.snapshot().disks) == 2


def test_a_disk_is_not_taken_from_a_guest_which_cannot_give_it_back():
    master = master_with(admin_state="up", disks_active=True)
    master.rpc.run("web", "node1")
    master.rpc.errors["hotplug_supported"] = "old guest"
    text = master.refused(modify(disks=[["remove", 0, {}]]), errors.ECODE_STATE)
    assert "in use" in text
    assert master.job.said("old guest")


def test_devices_of_a_running_guest_are_plugged():
    master = master_with(admin_state="up", disks_active=True)
    master.rpc.run("web", "node1")
    master.run(modify(disks=[["add", -1, {"size": 8}]], nics=[["add", -1, {}]]))
    plugged = [
        (args["action"], args["dev_type"], args["seq"], args["extra"])
        for _node, args in master.rpc.of("hotplug_device")
    ]
    assert plugged == [("hotadd", "disk", 2, ["/run/link", None]), ("hotadd", "nic", 1, None)]
    master.rpc.calls.clear()
    master.run(modify(nics=[["modify", 1, {"name": "lan"}]], hotplug=False))
    assert master.rpc.of("hotplug_device") == []


@pytest.mark.parametrize(
    "change",
    [
        ["modify", 0, {"mac": "aa:00:00:00:00:98"}],
        ["add", -1, {}],
        ["remove", 0, {}],
    ],
)
def test_a_nic_which_the_guest_does_not_take_is_an_error(change):
    master = master_with(admin_state="up", disks_active=True)
    master.rpc.run("web", "node1")
    before = master.config.instance(uuid_of("web")).nics
    master.rpc.errors["hotplug_device"] = "the guest refuses"
    text = master.failed(modify(nics=[change], ignore_ipolicy=True))
    assert "the guest refuses" in text and "as before" in text and "--no-hotplug" in text
    assert master.config.instance(uuid_of("web")).nics == before


def test_the_nics_which_the_guest_took_before_an_error_are_recorded():
    master = master_with(admin_state="up", disks_active=True)
    master.rpc.run("web", "node1")
    (old,) = master.config.instance(uuid_of("web")).nics

    def refuse_the_next(node, args):
        master.rpc.errors["hotplug_device"] = "full"

    master.rpc.answers["hotplug_device"] = refuse_the_next
    master.failed(modify(nics=[["add", -1, {"name": "one"}], ["add", -1, {"name": "two"}]]))
    kept, new = master.config.instance(uuid_of("web")).nics
    assert (kept, new.name) == (old, "one")


def test_interfaces_keep_what_is_not_changed():
    nic = Nic(
        mac="aa:00:00:00:00:99", ip="192.0.2.9", nicparams={"link": "br7"}, uuid=uuid_of("nic")
    )
    master = master_with(nics=(nic,))
    result = master.run(modify(nics=[["modify", nic.uuid, {"vlan": ".7", "name": "lan"}]]))
    (changed,) = web(master).nics
    assert (changed.mac, changed.ip) == (nic.mac, nic.ip)
    assert changed.nicparams == {"link": "br7", "vlan": ".7"}
    assert result == [["nic.vlan/0", ".7"], ["nic.name/0", "lan"]]
    master.run(modify(nics=[["modify", "lan", {"link": "default", "mac": "auto", "ip": "none"}]]))
    (changed,) = web(master).nics
    assert changed.nicparams == {"vlan": ".7"}
    assert changed.ip is None
    assert changed.mac != nic.mac


def test_hooks_see_the_new_values():
    master = master_with()
    master.run(modify(beparams={"vcpus": 3}, nics=[["remove", -1, {}]], ignore_ipolicy=True))
    before = master.rpc.of("hooks_runner")[0][1]["env"]
    assert before["GANETI_INSTANCE_VCPUS"] == "3"
    assert before["GANETI_INSTANCE_NIC_COUNT"] == "0"
    assert "GANETI_INSTANCE_NIC0_MAC" not in before


def test_a_dry_run_says_what_would_be_done():
    master = master_with()
    assert master.run(modify(beparams={"vcpus": 3}, dry_run=True)) == [["be/vcpus", 3]]
    assert master.config.writes == []


# -- kinds of disks --------------------------------------------------------------


def test_conversion_copies_exchanges_and_destroys_in_this_order():
    master = master_with()
    master.run(modify(disk_template="file"))
    acting = master.rpc.acting()
    assert acting.index("blockdev_create_multi") < acting.index("blockdev_convert")
    assert acting.index("blockdev_convert") < acting.index("blockdev_remove_multi")
    assert {disk.dev_type for disk in disks_of(master)} == {"file"}
    assert len(master.config.snapshot().disks) == 2
    assert not any("conversion" in (disk.name or "") for disk in disks_of(master))


def test_a_failing_copy_leaves_the_old_disks():
    master = master_with()
    before = disks_of(master)
    master.rpc.errors["blockdev_convert"] = "input error"
    assert "input error" in master.failed(modify(disk_template="file"))
    assert disks_of(master) == before
    assert len(master.config.snapshot().disks) == 2


def test_devices_for_which_the_guest_has_no_place_are_refused():
    master = master_with(hypervisor="kvm")
    master.run(modify(hvparams={"kvm_pci_reservations": 28}))
    add = ["add", -1, {}]
    text = master.refused(modify(nics=[add] * 4), errors.ECODE_INVAL)
    assert "hypervisor kvm could not start instance web.example.com" in text
    assert "kvm_pci_reservations=28 leaves 3" in text
    text = master.refused(modify(hvparams={"kvm_pci_reservations": 31}), errors.ECODE_INVAL)
    assert "kvm_pci_reservations=31 leaves 0" in text


def test_a_present_lack_of_places_does_not_hinder_other_changes():
    master = master_with(hypervisor="kvm", hvparams={"kvm_pci_reservations": 31})
    master.run(modify(beparams={"vcpus": 2}))
    assert web(master).beparams["vcpus"] == 2
