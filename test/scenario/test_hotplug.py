"""Devices that come and go while a real guest runs; the guest itself is asked what it sees."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest
from kvm_node import SHARED, Node, move, wait_until

from ganeti import errors, hypervisor
from ganeti.backend.instance import hotplug, lifecycle
from ganeti.backend.storage import blockdev
from ganeti.objects.disk import Disk
from ganeti.objects.instance import FilledInstance, FilledNic
from ganeti.platform import paths

ADD, REMOVE, MODIFY = "hotadd", "hotremove", "hotmod"


def more_disks(guest: FilledInstance, size_mib: int = 24) -> Disk:
    return replace(
        guest.disks_info[0],
        logical_id=("loop", f"{SHARED}/{guest.name}/extra"),
        size=size_mib,
        uuid=f"ffffffff{guest.disks_info[0].uuid[8:]}",
    )


def card(guest: FilledInstance, mac: str = "aa:00:00:00:00:77") -> FilledNic:
    return FilledNic(
        mac=mac,
        nicparams={"mode": "user", "link": "", "vlan": ""},
        uuid=f"eeeeeeee{guest.uuid[8:]}",
    )


def plug(node: Node, guest: FilledInstance, action: str, device: Disk | FilledNic, seq: int) -> Any:
    """As the master does it: a disk is assembled first."""
    with paths.override(node.paths):
        if not isinstance(device, Disk):
            return hotplug.hotplug_device(guest, action, "nic", device, None, seq)
        extra = None
        if action == ADD:
            blockdev.create(device, device.size, guest.name, True, "", False)
            blockdev.assemble(device, guest, True, seq)
            extra = [blockdev.link_path(guest.name, seq), None]
        return hotplug.hotplug_device(guest, action, "disk", device, extra, seq)


def disks_seen(node: Node, guest: FilledInstance) -> dict[str, int]:
    """Name -> MiB of each disk in the guest."""
    text = node.ask(guest, "grep . /sys/block/vd*/size /sys/block/sd*/size /dev/null")
    found = {}
    for line in text.splitlines():
        if line.startswith("/sys/block/"):
            path, _, sectors = line.strip().partition(":")
            found[path.split("/")[3]] = int(sectors) // 2048
    return found


@pytest.mark.parametrize(
    "hardware",
    [{}, pytest.param({"machine_version": "q35"}, marks=pytest.mark.long)],
    ids=["pc", "q35"],
)
def test_disk_comes_and_goes(node: Node, hardware: dict[str, str]) -> None:
    guest = node.instance("hot.example.com", **hardware)
    node.install(guest)
    node.start(guest)
    node.wait_booted(guest)
    extra = more_disks(guest)
    plug(node, guest, ADD, extra, 1)
    wait_until(lambda: disks_seen(node, guest) == {"vda": 16, "vdb": 24}, "the guest sees it")
    node.ask(guest, "echo written by the guest >/dev/vdb; sync")
    plug(node, guest, REMOVE, extra, 1)
    wait_until(lambda: disks_seen(node, guest) == {"vda": 16}, "the guest misses it")
    with open(node.paths.to_local(extra.logical_id[1]), "rb") as stream:
        assert stream.read(20) == b"written by the guest"
    plug(node, guest, REMOVE, extra, 1)  # and once more changes nothing
    node.shutdown(guest)
    assert node.leftovers() == []


@pytest.mark.long
def test_disk_in_front_is_found_again_after_a_reboot(node: Node, guest: FilledInstance) -> None:
    """The links follow the order of the disks, although assembling has taken one of them."""
    node.start(guest)
    node.wait_booted(guest)
    extra = more_disks(guest)
    plug(node, guest, ADD, extra, 0)
    wait_until(lambda: sorted(disks_seen(node, guest).values()) == [16, 24], "the guest sees it")
    with paths.override(node.paths):
        links = [paths.current().instance_disk_link(guest.name, index) for index in (0, 1)]
        assert [os.readlink(link).rpartition("/")[2] for link in links] == ["extra", "disk0"]
    node.shutdown(guest)
    assert node.leftovers() == []


def test_network_card_comes_changes_and_goes(node: Node, guest: FilledInstance) -> None:
    node.start(guest)
    node.wait_booted(guest)

    def macs() -> set[str]:
        text = node.ask(guest, "grep . /sys/class/net/eth*/address /dev/null")
        return {
            line.strip().partition(":")[2]
            for line in text.splitlines()
            if line.startswith("/sys/class/net/eth")
        }

    assert macs() == set()
    first = card(guest)
    plug(node, guest, ADD, first, 0)
    wait_until(lambda: macs() == {"aa:00:00:00:00:77"}, "the guest sees it")
    plug(node, guest, MODIFY, card(guest, "aa:00:00:00:00:78"), 0)
    wait_until(lambda: macs() == {"aa:00:00:00:00:78"}, "the guest sees the other address")
    with pytest.raises(errors.HotplugError, match="plugged in already"):
        plug(node, guest, ADD, first, 1)
    with paths.override(node.paths):
        lifecycle.reboot(guest, "soft", 60, [])
    node.wait_booted(guest, more_than=len(node.lines(guest)))
    wait_until(lambda: macs() == {"aa:00:00:00:00:78"}, "it is there after a reboot")
    plug(node, guest, REMOVE, first, 0)
    wait_until(lambda: macs() == set(), "the guest misses it")
    node.shutdown(guest)
    assert node.leftovers() == []


@pytest.mark.parametrize("machine", ["", pytest.param("q35", marks=pytest.mark.long)])
def test_what_was_plugged_migrates(nodes: tuple[Node, Node], machine: str) -> None:
    """The other end starts with the devices in the places where they were plugged."""
    first, second = nodes
    guest = first.instance("moves.example.com", machine_version=machine)
    first.install(guest)
    first.start(guest)
    first.wait_booted(guest)
    extra, new_card = more_disks(guest), card(guest)
    plug(first, guest, ADD, extra, 1)
    plug(first, guest, ADD, new_card, 0)
    wait_until(lambda: len(disks_seen(first, guest)) == 2, "the guest sees the disk")
    guest = replace(
        guest,
        disks=(*guest.disks, extra.uuid),
        nics=(new_card,),
        disks_info=(*guest.disks_info, extra),
    )
    assert move(first, second, guest) == "completed"
    assert disks_seen(second, guest) == {"vda": 16, "vdb": 24}
    second.ask(guest, "echo moved >/dev/vdb; sync; ip link set eth0 up")
    plug(second, guest, REMOVE, extra, 1)
    with open(second.paths.to_local(extra.logical_id[1]), "rb") as stream:
        assert stream.read(5) == b"moved"
    second.shutdown(guest)
    assert first.leftovers() == second.leftovers() == []


def test_what_cannot_be_plugged(node: Node) -> None:
    """Refusals name the reason and leave the guest as it was."""
    guest = node.instance("ide.example.com", disk_type="ide", nic_type="ne2k_isa")
    node.install(guest)
    with pytest.raises(errors.HotplugError, match="does not run"):
        plug(node, guest, REMOVE, more_disks(guest), 1)
    node.start(guest, paused=True)
    with pytest.raises(errors.HotplugError, match="disk_type ide cannot be changed"):
        plug(node, guest, ADD, more_disks(guest), 1)
    with pytest.raises(errors.HotplugError, match="nic_type ne2k_isa"):
        plug(node, guest, ADD, card(guest), 0)
    with pytest.raises(errors.HotplugError, match="disk_type ide"):
        plug(node, guest, MODIFY, guest.disks_info[0], 0)
    node.shutdown(guest)
    assert node.leftovers() == []


def test_guest_that_does_not_listen_keeps_its_disk(
    node: Node, guest: FilledInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before its first instruction a guest cannot let a device go."""
    monkeypatch.setattr("ganeti.hypervisor.kvm.hotplug.UNPLUG_TIMEOUT_S", 0.5)
    node.start(guest, paused=True)
    extra = more_disks(guest)
    plug(node, guest, ADD, extra, 1)
    with pytest.raises(errors.HotplugError, match="did not release"):
        plug(node, guest, REMOVE, extra, 1)
    with paths.override(node.paths):
        plugged = hypervisor.of("kvm").devices.plugged_disks(guest.name) or ()
        assert [disk.uuid for disk in plugged] == [guest.disks_info[0].uuid, extra.uuid]
    node.shutdown(guest)
    assert node.leftovers() == []
