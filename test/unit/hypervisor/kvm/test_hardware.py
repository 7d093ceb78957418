"""The target of a migration takes from the source which hardware the guest sees, and no more."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fakes.kvm_variants import LAYOUT, VARIANTS, instance, record
from ganeti import errors
from ganeti.hypervisor.base import AttachedDisk, Place
from ganeti.hypervisor.kvm import argv, driver, hardware, migration, runtime
from ganeti.hypervisor.kvm.accelerator import KVM, TCG
from ganeti.hypervisor.kvm.facts import QemuFacts
from ganeti.objects.instance import FilledInstance

SOURCE = QemuFacts("/usr/bin/qemu", (7, 2, 0), frozenset(("no-acpi",)), "pc-i440fx-7.2", TCG)
# A newer QEMU has another default machine.
TARGET = replace(SOURCE, default_machine="pc-i440fx-10.0")
EVIL = "/etc/evil"


def attached(guest: FilledInstance, name: str = "default") -> list[AttachedDisk]:
    uris = VARIANTS[name].uris or (None,) * len(guest.disks_info)
    return [
        AttachedDisk(disk, f"/disks/web1:{number}", uris[number])
        for number, disk in enumerate(guest.disks_info)
    ]


def arrived(sent: runtime.Runtime, guest: FilledInstance, name: str = "default") -> runtime.Runtime:
    """The record which the target makes of the text which it gets."""
    sent = runtime.loads(sent.dumps(), guest.name)
    return hardware.adopt(sent, guest, attached(guest, name)).runtime(
        lambda own: argv.base_argv(own, LAYOUT, TARGET), KVM
    )


@pytest.mark.parametrize("name", VARIANTS)
def test_a_guest_keeps_its_hardware(name: str) -> None:
    sent = record(name, SOURCE)
    assert arrived(sent, instance(name, "/dir"), name) == sent


@pytest.mark.parametrize("name", VARIANTS)
def test_a_guest_keeps_its_hardware_although_its_configuration_has_changed(name: str) -> None:
    sent = record(name, SOURCE)
    guest = instance(name, "/dir")
    changes = {
        "cpu_type": "host",
        "vga": "cirrus",
        "usb_mouse": "mouse" if sent.hvparams["usb_mouse"] == "tablet" else "tablet",
        "use_guest_agent": not sent.hvparams["use_guest_agent"],
        "machine_version": "pc-i440fx-3.0",
        "kvm_pci_reservations": 5,
        "soundhw": "sb16",
        "vnet_hdr": False,
        "acpi": not sent.hvparams["acpi"],
    }
    changed = replace(
        guest,
        hvparams={**guest.hvparams, **changes},
        beparams={"maxmem": 4096, "minmem": 4096, "vcpus": 7},
    )
    found = arrived(sent, changed, name)
    assert found.argv == sent.argv
    assert (found.nics, found.disks) == (sent.nics, sent.disks)


def test_the_host_side_follows_the_configuration() -> None:
    """Files, networks and users are those of the instance as the master sent it."""
    guest = instance("boot-from-cdrom", "/dir")
    own = guest.hvparams
    sent = record("boot-from-cdrom", SOURCE)
    hostile = runtime.Runtime(
        (*sent.argv, "-drive", f"file={EVIL}", "-object", f"secret,id=x,file={EVIL}"),
        tuple(
            {**nic, "mac": EVIL, "nicparams": {"mode": "bridged", "link": EVIL}, "ip": EVIL}
            for nic in sent.nics
        ),
        {
            **sent.hvparams,
            **{
                key: EVIL
                for key, value in sent.hvparams.items()
                # The others are facts, and have a form of their own.
                if isinstance(value, str) and key not in hardware._PARAMETERS and key != "kvm_extra"
            },
        },
        tuple(
            replace(disk, path=EVIL, uri=f"gluster://{EVIL}", disk={**disk.disk, "name": EVIL})
            for disk in sent.disks
        ),
    )
    # Whether there is such a device at all is a fact.
    hostile.hvparams.update(vnc_bind_address="", spice_bind="", floppy_image_path="")
    found = arrived(hostile, guest, "boot-from-cdrom")
    assert EVIL not in found.dumps()
    assert found == sent
    assert found.hvparams == own


def with_nic(**info: Any) -> Callable[[runtime.Runtime], runtime.Runtime]:
    return lambda sent: replace(
        sent, nics=({**sent.nics[0], "hvinfo": {**sent.nics[0]["hvinfo"], **info}},)
    )


def with_disk(**info: Any) -> Callable[[runtime.Runtime], runtime.Runtime]:
    def change(sent: runtime.Runtime) -> runtime.Runtime:
        disk = sent.disks[0]
        return replace(
            sent, disks=(replace(disk, disk={**disk.disk, "hvinfo": {**disk.hvinfo, **info}}),)
        )

    return change


def with_params(**params: Any) -> Callable[[runtime.Runtime], runtime.Runtime]:
    return lambda sent: replace(sent, hvparams={**sent.hvparams, **params})


def with_option(option: str, value: str) -> Callable[[runtime.Runtime], runtime.Runtime]:
    def change(sent: runtime.Runtime) -> runtime.Runtime:
        words = list(sent.argv)
        words[words.index(option) + 1] = value
        return replace(sent, argv=tuple(words))

    return change


@pytest.mark.parametrize(
    "change",
    [
        with_nic(driver="virtio-net-pci,romfile=/etc/shadow"),
        with_nic(driver="vfio-pci"),
        with_nic(addr="0x3,romfile=/etc/shadow"),
        with_nic(bus="pci.0,romfile=/etc/shadow"),
        with_nic(addr=3),
        with_disk(driver="scsi-generic"),
        with_disk(driver="vfio-pci,host=00:02.0"),
        with_disk(addr="0x9,romfile=/etc/shadow"),
        with_disk(bus=["pci.0"]),
        with_disk(channel="0,x=y"),
        with_disk(lun=True),
        with_disk(**{"scsi-id": 1 << 40}),
        with_params(cpu_type="host /etc/shadow"),
        with_params(vga="std -vnc"),
        with_params(vga=["std"]),
        with_params(soundhw="x,romfile=/etc/shadow"),
        with_params(usb_devices="disk:/etc/shadow"),
        with_params(usb_mouse="tablet,x=y"),
        with_params(scsi_controller_type="vfio-pci,host=00:02.0"),
        with_params(nic_type="/etc/shadow"),
        with_params(cpu_cores="1,dies=2"),
        with_params(cpu_cores=-1),
        with_params(acpi="no"),
        with_params(virtio_net_queues=4096),
        with_params(tpm_version="2.0,tpmdev=x"),
        with_option("-machine", "pc,dumpdtb=/etc/shadow,accel=tcg"),
        with_option("-machine", "pc,accel=tcg:kvm"),
        with_option("-machine", "accel=tcg"),
        with_option("-m", ""),
        with_option("-m", "-1"),
        with_option("-m", "9" * 30),
        with_option("-m", "²"),
        with_option("-smp", "1e3"),
        with_option("-smp", "0"),
    ],
)
def test_what_is_no_fact_about_hardware_is_refused(
    change: Callable[[runtime.Runtime], runtime.Runtime],
) -> None:
    sent = change(record("default", SOURCE))
    with pytest.raises(errors.HypervisorError, match="instance web1 .*no fact about hardware"):
        arrived(sent, instance("default", "/dir"))


def test_a_value_which_the_configuration_has_needs_no_form() -> None:
    odd = {"machine_version": "pc,usb=off", "cpu_type": "host,vendor='x y'", "disk_type": "scsi"}
    guest = instance("default", "/dir", **odd)
    words = tuple(argv.base_argv(guest, LAYOUT, SOURCE))
    sent = replace(record("default", SOURCE), argv=words, hvparams=dict(guest.hvparams))
    assert arrived(sent, guest).argv == words
    guest = instance("default", "/dir", disk_type="scsi-generic")
    sent = with_disk(driver="scsi-generic")(record("default", SOURCE))
    assert arrived(sent, guest).disks[0].hvinfo["driver"] == "scsi-generic"


def test_a_drive_whose_medium_the_configuration_does_not_have_any_more_is_empty() -> None:
    sent = record("boot-from-cdrom", SOURCE)
    guest = instance("default", "/dir")
    guest = replace(guest, hvparams={**guest.hvparams, "boot_order": "disk", "kernel_path": ""})
    found = arrived(sent, guest)
    drives = [word for word in found.argv if word.startswith("ide-cd")]
    assert len(drives) == 2
    media = [word for word in found.argv if "node-name=cdrom" in word]
    assert all("driver=null-co" in word and "read-zeroes=on" in word for word in media)
    assert ".iso" not in found.dumps()
    # So it is still known after the next migration.
    assert arrived(found, guest) == found
    # A drive of the configuration which the guest does not have is not added.
    new = arrived(record("default", SOURCE), instance("boot-from-cdrom", "/dir"))
    assert not [word for word in new.argv if "cdrom" in word]


def test_the_display_may_change_but_not_the_pointer_of_the_guest() -> None:
    plain, vnc = instance("default", "/dir"), instance("vnc-socket", "/dir")
    tablet = record("vnc-password-tls", SOURCE)
    found = arrived(tablet, plain)
    assert runtime.values_of(found, "-usbdevice") == ["tablet"]
    assert runtime.values_of(found, "-vnc") == []
    assert runtime.values_of(arrived(record("vnc-socket", SOURCE), plain), "-usbdevice") == [
        "mouse"
    ]
    assert runtime.values_of(arrived(record("default", SOURCE), vnc), "-vnc") == []
    assert arrived(found, plain) == found
    with pytest.raises(errors.HypervisorError, match="another value of the parameter spice_bind"):
        arrived(record("spice", SOURCE), plain)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (with_params(kvm_extra="-device vfio-pci,host=00:02.0"), "parameter kvm_extra"),
        (
            lambda sent: replace(sent, nics=({**sent.nics[0], "uuid": "gone"},)),
            "runs with NIC gone, which it does not have",
        ),
        (
            lambda sent: replace(sent, nics=({**sent.nics[0], "uuid": None},)),
            "runs with NIC without UUID",
        ),
        (
            lambda sent: replace(
                sent,
                disks=(replace(sent.disks[0], disk={**sent.disks[0].disk, "mode": "ro"}),),
            ),
            "another access mode of disk",
        ),
        (lambda sent: replace(sent, disks=()), "runs with 0 disks"),
    ],
)
def test_hardware_which_the_configuration_cannot_explain(
    change: Callable[[runtime.Runtime], runtime.Runtime], words: str
) -> None:
    with pytest.raises(errors.HypervisorError, match=f"instance web1 .*{words}"):
        arrived(change(record("default", SOURCE)), instance("default", "/dir"))


def test_the_accelerator_is_that_of_the_source() -> None:
    guest = instance("default", "/dir")
    for words, value in (
        ("pc,accel=kvm", "pc,accel=kvm"),
        ("pc,accel=tcg", "pc,accel=tcg"),
        # As older versions wrote it.
        ("pc-1.1", "pc-1.1,accel=kvm"),
    ):
        sent = with_option("-machine", words)(record("default", SOURCE))
        assert runtime.values_of(arrived(sent, guest), "-machine") == [value]
    sent = with_option("-machine", "pc,accel=kvm")(record("default", SOURCE))
    incoming = hardware.adopt(sent, guest, attached(guest))
    with pytest.raises(errors.HypervisorError, match="web1 runs with KVM, which does not work"):
        migration._incoming_runtime(incoming, LAYOUT, TARGET)


def test_the_program_is_that_of_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first word of the command, and the program which is asked for facts."""
    asked = []

    def facts_of(path: str) -> QemuFacts:
        asked.append(path)
        raise errors.HypervisorError("asked")

    kvm = driver.KvmHypervisor()
    monkeypatch.setattr("ganeti.hypervisor.kvm.facts.of", facts_of)
    monkeypatch.setattr(kvm.guests, "qemu", lambda layout: None)
    sent = with_params(kvm_path=EVIL)(record("default", SOURCE))
    sent = replace(sent, argv=(EVIL, *sent.argv[1:]))
    guest = instance("default", "/dir")
    info = {"runtime": sent.dumps(), "key": "0" * 64, "certificate": "PEM"}
    with pytest.raises(errors.HypervisorError, match="asked"):
        kvm.migration.accept(guest, info, Place("192.0.2.1", 8102), attached(guest))
    assert asked == [guest.hvparams["kvm_path"]]
    assert arrived(sent, guest).argv[0] == TARGET.program


def test_a_file_of_another_version() -> None:
    """Numbers among the words, no accelerator, fewer parameters."""
    sent = record("default", SOURCE)
    text = json.loads(sent.dumps())
    text[0][text[0].index("-m") + 1] = 64
    for key in ("vhost_net", "tpm_version", "use_guest_agent", "kvm_extra"):
        del text[2][key]
    guest = instance("default", "/dir")
    found = hardware.adopt(runtime.loads(json.dumps(text), "web1"), guest, attached(guest))
    assert found.instance.beparams["maxmem"] == 64
    assert found.instance.hvparams["vhost_net"] == guest.hvparams["vhost_net"]
