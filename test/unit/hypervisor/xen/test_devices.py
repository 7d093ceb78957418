"""Devices of a running guest under Xen, the program for its NICs, and its console."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes import xen_node
from fakes.xen_node import XenNode, driver, instance, nic
from ganeti import errors
from ganeti.helpers import xen_console
from ganeti.hypervisor.base import AttachedDisk
from ganeti.hypervisor.net import connect
from ganeti.hypervisor.net import script as net_script
from ganeti.hypervisor.xen import disks, hotplug, nics, record, vif, xl
from ganeti.hypervisor.xen.record import RecordedDisk
from ganeti.objects import hypervisors
from ganeti.objects.disk import Disk
from ganeti.objects.hypervisors.descriptor import ConsoleRequest
from ganeti.utils import process

pytestmark = pytest.mark.programs
MORE = Disk(dev_type="plain", logical_id=("xenvg", "d1"), size=64, uuid="d1")


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[XenNode]:
    xen_node.plain_disks(monkeypatch)
    found = XenNode(tmp_path)
    with found.here():
        yield found


def test_a_disk_is_plugged_in_and_out(node: XenNode, monkeypatch: pytest.MonkeyPatch) -> None:
    xen, guest = driver(), instance(blockdev_prefix="xvd")
    xen.start(guest, [node.disk()])
    xen.devices.check(guest)
    xen.devices.add_disk(guest, AttachedDisk(MORE, "/dev/more"), 1)
    xen.devices.add_disk(guest, AttachedDisk(MORE, "/dev/more"), 1)
    assert node.domains()["web1"]["disks"][1:] == [
        "format=raw,vdev=xvdb,access=rw,backendtype=phy,target=/dev/more"
    ]
    assert [one.uuid for one in xen.devices.plugged_disks("web1")] == ["d0", "d1"]
    with pytest.raises(errors.HotplugError, match="cannot be modified"):
        xen.devices.modify_disk(guest, MORE)
    node.misbehave("block-detach")
    monkeypatch.setattr(hotplug, "DETACH_S", 0)
    with pytest.raises(errors.HotplugError, match="does not give disk d1 .* was told to fail"):
        xen.devices.remove_disk(guest, MORE)
    node.behave()
    xen.devices.remove_disk(guest, MORE)
    xen.devices.remove_disk(guest, MORE)
    assert len(node.domains()["web1"]["disks"]) == 1


@pytest.mark.parametrize("mode", ["exit-once", "late-once"])
def test_a_guest_which_is_busy_gives_its_devices_back_later(node: XenNode, mode: str) -> None:
    """``xl`` waits ten seconds; a device may also go after the command has failed."""
    xen, guest, new = driver(), instance(blockdev_prefix="xvd"), nic("n1")
    xen.start(guest, [])
    xen.devices.add_disk(guest, AttachedDisk(MORE, "/dev/more"), 0)
    xen.devices.add_nic(guest, new, 0)
    node.misbehave("block-detach", mode)
    node.misbehave("network-detach", mode)
    xen.devices.remove_disk(guest, MORE)
    xen.devices.remove_nic(guest, new)
    assert (node.domains()["web1"]["disks"], node.domains()["web1"]["nics"]) == ([], [])
    assert (record.load("web1").disks, record.load("web1").nics) == ((), ())


@pytest.mark.parametrize("mode", ["exit", "late"])
def test_a_disk_which_is_not_plugged_in_leaves_nothing(node: XenNode, mode: str) -> None:
    xen, guest = driver(), instance()
    xen.start(guest, [])
    node.misbehave("block-attach", mode)
    with pytest.raises(errors.HotplugError, match="disk d1 was not plugged in"):
        xen.devices.add_disk(guest, AttachedDisk(MORE, "/dev/more"), 0)
    assert node.domains()["web1"]["disks"] == []
    assert xen.devices.plugged_disks("web1") == []


def test_a_nic_is_plugged_in_changed_and_out(node: XenNode) -> None:
    xen, guest, new = driver(), instance(), nic("n1")
    xen.start(guest, [])
    xen.devices.add_nic(guest, new, 0)
    assert ["devid=0" in one for one in node.domains()["web1"]["nics"]] == [True]
    params = {"mode": "bridged", "link": "br1", "vlan": ""}
    xen.devices.modify_nic(guest, nic("n1", nicparams=params))
    (found,) = node.domains()["web1"]["nics"]
    assert "bridge=br1" in found and "devid=0" in found
    xen.devices.remove_nic(guest, new)
    assert node.domains()["web1"]["nics"] == []
    assert record.load("web1").nics == ()


def test_a_nic_whose_change_fails_stays(node: XenNode, monkeypatch: pytest.MonkeyPatch) -> None:
    xen, guest, new = driver(), instance(), nic("n1")
    xen.start(guest, [])
    xen.devices.add_nic(guest, new, 0)
    before = record.load("web1")
    run = xl.run

    def refuse_br1(*words: str) -> Any:
        if any("bridge=br1" in word for word in words):
            raise errors.HypervisorError("no bridge br1")
        return run(*words)

    monkeypatch.setattr(xl, "run", refuse_br1)
    params = {"mode": "bridged", "link": "br1", "vlan": ""}
    with pytest.raises(errors.HotplugError, match="no bridge br1$"):
        xen.devices.modify_nic(guest, nic("n1", nicparams=params))
    assert record.load("web1") == before
    (found,) = node.domains()["web1"]["nics"]
    assert "bridge=br1" not in found and "devid=0" in found


def test_a_nic_which_is_not_plugged_in_leaves_nothing(node: XenNode) -> None:
    xen, guest = driver(), instance()
    xen.start(guest, [])
    node.misbehave("network-attach", "late")
    with pytest.raises(errors.HotplugError, match="NIC n0 was not plugged in"):
        xen.devices.add_nic(guest, nic(), 0)
    assert node.domains()["web1"]["nics"] == []
    assert record.load("web1").nics == ()


@pytest.mark.parametrize("state", [record.STARTING, record.INCOMING])
def test_a_guest_which_is_not_wholly_started_is_not_changed(node: XenNode, state: str) -> None:
    xen, guest = driver(), instance()
    xen.start(guest, [])
    record.save(record.of_instance(guest, [], state=state))
    with pytest.raises(errors.HotplugError, match=f"instance web1 is {state}"):
        xen.devices.add_nic(guest, nic(), 0)
    assert node.domains()["web1"]["nics"] == []


def test_only_a_running_guest_with_devices_of_xen_can_be_changed(node: XenNode) -> None:
    with pytest.raises(errors.HotplugError, match="is not running"):
        driver().devices.check(instance())
    xen = driver("xen-hvm")
    guest = instance(hypervisor="xen-hvm", disk_type="ioemu", vnc_bind_address="")
    xen.start(guest, [])
    with pytest.raises(errors.HotplugError, match="emulated devices only"):
        xen.devices.check(guest)


# NICs


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the program does: connections, and commands."""
    done: list[Any] = []

    def run(argv: list[str], **_options: Any) -> process.Completed:
        done.append(argv)
        return process.Completed(tuple(argv), 0, "web1\n", "", None)

    monkeypatch.setattr(vif.process, "run", run)
    monkeypatch.setattr(
        connect,
        "connect",
        lambda tap, index, nic, guest, phase=None: done.append([tap, index, nic["uuid"], phase]),
    )
    return done


def event(devid: int = 0) -> dict[str, str]:
    return {"vif": f"vif3.{devid}", "XENBUS_PATH": f"backend/vif/3/{devid}"}


def recorded(*nics: Any, state: str = record.COMPLETE) -> None:
    record.save(record.of_instance(instance(nics=nics), [], state=state))


def test_a_nic_is_connected(node: XenNode, done: list[Any]) -> None:
    recorded(nic("n0"), nic("n1"))
    assert vif.main(["online", "type_if=vif"], event(1)) == 0
    assert done == [
        ["xenstore-read", "/local/domain/3/name"],
        ["vif3.1", 1, "n1", None],
        ["xenstore-write", "backend/vif/3/1/hotplug-status", "connected"],
    ]
    assert (Path(record.nic_dir("web1")) / "1").read_text() == "vif3.1"


def test_only_the_program_of_the_administrator_replaces_the_connection(node: XenNode) -> None:
    """After a takeover there is also a program of the original, which connects no other NIC."""
    script = Path(nics.guest_network("web1").script)
    script.parent.mkdir(parents=True, exist_ok=True)
    for name, replaces in (("xen-ifup-os", False), ("xen-vif-bridge", True)):
        (script.parent / name).write_text("#!/bin/sh\n")
        (script.parent / name).chmod(0o755)
        assert net_script.exists(str(script)) is replaces


def test_the_interface_of_emulated_hardware_is_connected_too(
    node: XenNode, done: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Xen names both interfaces in its event; the other one is connected and up already."""
    recorded(nic("n0"))
    both = {**event(), "INTERFACE": "vif3.0-emu"}
    assert vif.main(["online", "type_if=vif"], both) == 0
    assert vif.main(["add", "type_if=tap"], both) == 0
    assert [one[:2] for one in done if one[0].startswith("vif")] == [
        ["vif3.0", 0],
        ["vif3.0-emu", 0],
    ]
    # The file names the interface of the guest's own driver.
    assert (Path(record.nic_dir("web1")) / "0").read_text() == "vif3.0"
    found: list[str] = []
    monkeypatch.setattr(connect, "disconnect", lambda tap, index, guest: found.append(tap))
    for name in ("vif3.0", "vif3.0-emu"):
        (Path(record.nic_dir("web1")) / f".{name}").write_text("{}")
    assert vif.main(["remove", "type_if=tap"], both) == 0
    assert found == ["vif3.0-emu"]


@pytest.mark.parametrize(("mode", "connected"), [("routed", False), ("bridged", True)])
def test_a_routed_nic_waits_for_the_end_of_a_migration(
    node: XenNode, done: list[Any], mode: str, connected: bool
) -> None:
    recorded(nic("n0", nicparams={"mode": mode, "link": "x", "vlan": ""}), state=record.INCOMING)
    assert vif.main(["online"], event()) == 0
    assert (["vif3.0", 0, "n0", "pre"] in done) is connected
    assert done[-1][-1] == "connected"


def test_xen_learns_of_a_failure(
    node: XenNode, done: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    recorded(nic())
    assert vif.main(["online"], event(5)) == 1
    assert "has no NIC with number 5" in capsys.readouterr().err
    assert done[-1] == ["xenstore-write", "backend/vif/3/5/hotplug-status", "error"]


@pytest.mark.parametrize(
    "env", [{}, {"vif": "../x"}, {"vif": "vif1.0", "XENBUS_PATH": "backend/vbd/1/0"}]
)
def test_an_event_without_its_facts_is_an_error(
    node: XenNode, done: list[Any], env: dict[str, str]
) -> None:
    recorded(nic())
    assert vif.main(["online"], env) == 1
    assert vif.main(["unknown"], env) == 0


def test_an_interface_which_disappears_is_disconnected(
    node: XenNode, done: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded(nic())
    found: list[str] = []
    monkeypatch.setattr(connect, "disconnect", lambda tap, index, guest: found.append(tap))
    directory = Path(record.nic_dir("web1"))
    directory.mkdir(parents=True)
    (directory / ".vif3.0").write_text("{}")
    assert vif.main(["offline"], event()) == 0
    assert vif.main(["offline"], event(7)) == 0
    assert found == ["vif3.0"]


# Disks


def test_a_file_gets_a_loop_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "disk"
    path.touch()
    loops: list[str] = []
    commands: list[list[str]] = []

    def run(argv: list[str], **_options: Any) -> process.Completed:
        commands.append(argv)
        if "--show" in argv:
            loops.append("/dev/loop7")
        elif "--detach" in argv:
            loops.remove(argv[-1])
        return process.Completed(tuple(argv), 0, "\n".join(loops), "", None)

    monkeypatch.setattr(disks.process, "run", run)
    disk = RecordedDisk({"dev_type": "file", "logical_id": ["loop", "/x"]}, str(path), "xvda")
    assert disks.attach([disk]) == {"xvda": "/dev/loop7"}
    assert "--direct-io=on" in commands[1]
    # A second time the same device is found.
    assert disks.attach([disk]) == {"xvda": "/dev/loop7"}
    disks.detach([disk])
    assert loops == []
    tap = RecordedDisk({"dev_type": "file", "logical_id": ["blktap2", "/x"]}, str(path), "xvdb")
    with pytest.raises(errors.HypervisorError, match="blktap2.*Use the file driver loop"):
        disks.attach([disk, tap])
    assert loops == []
    with pytest.raises(errors.HypervisorError, match="cannot be used: No such file"):
        disks.attach([RecordedDisk({}, str(tmp_path / "none"), "xvda")])


# Consoles


def test_consoles() -> None:
    request = ConsoleRequest(instance(), instance().hvparams, "node1", 22)
    found = hypervisors.of("xen-pvm").console(request).check()
    assert (found.kind, found.host, found.user) == ("ssh", "node1", "root")
    assert [os.path.basename(word) for word in found.command] == [
        "xen-console-wrapper",
        "xl",
        "web1",
    ]
    guest = instance(hypervisor="xen-hvm")
    screen = hypervisors.of("xen-hvm").console(ConsoleRequest(guest, guest.hvparams, "node1", 22))
    assert (screen.kind, screen.host, screen.port, screen.display) == ("vnc", "node1", 5905, 5)
    none = ConsoleRequest(guest, {"vnc_bind_address": ""}, "node1", 22)
    assert "no console" in (hypervisors.of("xen-hvm").console(none).message or "")


def test_the_console_program(
    node: XenNode, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert xen_console.main(["xl", "web1"]) == 1
    assert "instance web1 is not running" in capsys.readouterr().err
    driver().start(instance(), [])
    started: list[list[str]] = []
    monkeypatch.setattr(xen_console.os, "execvp", lambda program, words: started.append(words))
    xen_console.main(["xl", "web1"])
    assert started == [["xl", "console", "1"]]
