"""The configuration file for ``xl``: every parameter is in it, and none can add another."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fakes.xen_node import instance, nic
from ganeti import errors
from ganeti.hypervisor.base import AttachedDisk
from ganeti.hypervisor.xen import config, nics, parameters, record
from ganeti.objects import hvparams
from ganeti.objects.disk import Disk
from ganeti.objects.hypervisors.xen import XEN_HVM, XEN_PVM

DISK = AttachedDisk(Disk(dev_type="plain", logical_id=("vg", "lv"), size=1, uuid="d0"), "/dev/d0")


def values(hypervisor: str = "xen-pvm", password: str | None = None, **params: Any) -> dict:
    guest = instance(hypervisor=hypervisor, nics=(nic(),), **params)
    known = record.of_instance(guest, [DISK])
    text = config.render(
        known,
        targets={one.vdev: one.path for one in known.disks},
        vif_script="/usr/lib/ganeti/tools/vif-ganeti",
        password=password,
    )
    return read(text)


def read(text: str) -> dict[str, Any]:
    """Read the file as ``xl`` does: numbers, strings with the escapes of C, lists of strings."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    found = {}
    for line in lines:
        name, equals, value = line.partition(" = ")
        assert equals and name.isidentifier() and name not in found
        found[name] = ast.literal_eval(value)
    return found


#: Parameters which are not in the file, and where they have an effect.
ELSEWHERE = {
    "migration_mode": "the master chooses the kind of migration",
    "migration_port": "the program which sends and receives",
    "vnc_password_file": "its content is in the file",
    "soundhw": "refused for paravirtual guests",
    "vif_script": "stands in each NIC; see the test of a paravirtual guest",
}
#: Parameters of this project beside the published ones.
OWN = {"xen-pvm": {"type"}, "xen-hvm": set()}
PUBLISHED = {"xen-pvm": 17, "xen-hvm": 24}
CHANGES: dict[str, dict[str, tuple[dict[str, Any], str]]] = {
    "xen-pvm": {
        "blockdev_prefix": ({"blockdev_prefix": "xvd"}, "disk"),
        "bootloader_args": (
            {"use_bootloader": True, "bootloader_path": "/b", "bootloader_args": "-q 'a b'"},
            "bootloader_args",
        ),
        "bootloader_path": ({"use_bootloader": True, "bootloader_path": "/b"}, "bootloader"),
        "cpu_cap": ({"cpu_cap": 50}, "cap"),
        "cpu_mask": ({"cpu_mask": "0-1"}, "cpus"),
        "cpu_weight": ({"cpu_weight": 512}, "cpu_weight"),
        "cpuid": ({"cpuid": "host,htt=0"}, "cpuid"),
        "initrd_path": ({"initrd_path": "/i"}, "ramdisk"),
        "kernel_args": ({"kernel_args": "rw quiet"}, "extra"),
        "kernel_path": ({"kernel_path": "/k"}, "kernel"),
        "reboot_behavior": ({"reboot_behavior": "exit"}, "on_reboot"),
        "root_path": ({"root_path": "/dev/xvdb"}, "root"),
        "type": ({"type": "pvh"}, "type"),
        "use_bootloader": ({"use_bootloader": True, "bootloader_path": "/b"}, "bootloader"),
    },
    "xen-hvm": {
        "acpi": ({"acpi": False}, "acpi"),
        "blockdev_prefix": ({"blockdev_prefix": "xvd"}, "disk"),
        "boot_order": ({"boot_order": "n"}, "boot"),
        "cdrom_image_path": ({"cdrom_image_path": "/a,b.iso"}, "disk"),
        "cpu_cap": ({"cpu_cap": 50}, "cap"),
        "cpu_mask": ({"cpu_mask": "0:all"}, "cpus"),
        "cpu_weight": ({"cpu_weight": 512}, "cpu_weight"),
        "cpuid": ({"cpuid": "host,htt=0"}, "cpuid"),
        "device_model": ({"device_model": "/q"}, "device_model_override"),
        "disk_type": ({"disk_type": "ioemu"}, "xen_platform_pci"),
        "kernel_path": ({"kernel_path": "/h"}, "firmware_override"),
        "nic_type": ({"nic_type": "e1000"}, "vif"),
        "pae": ({"pae": False}, "pae"),
        "pci_pass": ({"pci_pass": "0000:01:00.0;02:00.1"}, "pci"),
        "reboot_behavior": ({"reboot_behavior": "exit"}, "on_reboot"),
        "soundhw": ({"soundhw": "hda"}, "soundhw"),
        "use_localtime": ({"use_localtime": True}, "localtime"),
        "vif_type": ({"vif_type": "vif"}, "vif"),
        "viridian": ({"viridian": True}, "viridian"),
        "vnc_bind_address": ({"vnc_bind_address": "127.0.0.1"}, "vnclisten"),
    },
}


@pytest.mark.parametrize("descriptor", [XEN_PVM, XEN_HVM], ids=lambda one: one.name)
def test_every_parameter_is_tested_here(descriptor: Any) -> None:
    tested = set(CHANGES[descriptor.name]) | set(ELSEWHERE)
    assert set(descriptor.parameters) <= tested
    published = set(descriptor.parameters) - OWN[descriptor.name]
    assert len(published) == PUBLISHED[descriptor.name]


def test_each_parameter_without_a_setting_has_its_effect_elsewhere() -> None:
    script = "/usr/lib/ganeti/tools/vif-ganeti"
    for hypervisor in ("xen-pvm", "xen-hvm"):
        assert all(f"script={script}" in one for one in values(hypervisor)["vif"])
        assert nics.program({"vif_script": "/own"}) == "/own"
        # These do not reach the file, whatever they are.
        assert values(hypervisor, migration_mode="non-live", migration_port=9) == values(hypervisor)
    with pytest.raises(errors.HypervisorError, match="soundhw: a paravirtual guest has no"):
        hvparams.check_parameter_syntax(
            "xen-pvm", {**hvparams.defaults("xen-pvm"), "soundhw": "hda"}
        )


@pytest.mark.parametrize(
    ("hypervisor", "name"), [(one, name) for one, names in CHANGES.items() for name in names]
)
def test_a_parameter_changes_its_setting(hypervisor: str, name: str) -> None:
    params, setting = CHANGES[hypervisor][name]
    before, after = values(hypervisor), values(hypervisor, **params)
    assert after.get(setting) is not None
    assert after[setting] != before.get(setting)


def test_a_paravirtual_guest() -> None:
    assert values(root_path="", kernel_args="ro", blockdev_prefix="xvd") == {
        "name": "web1",
        "uuid": instance().uuid,
        "memory": 128,
        "maxmem": 128,
        "vcpus": 2,
        "cpu_weight": 256,
        "type": "pv",
        "kernel": "/boot/vmlinuz-3-xenU",
        "extra": "ro",
        "vif": ["mac=aa:00:00:11:22:33,devid=0,bridge=br0,script=/usr/lib/ganeti/tools/vif-ganeti"],
        "disk": ["format=raw,vdev=xvda,access=rw,backendtype=phy,target=/dev/d0"],
        "on_poweroff": "preserve",
        "on_reboot": "restart",
        "on_crash": "destroy",
    }


def test_a_guest_with_a_screen() -> None:
    found = values("xen-hvm", password="secret")
    assert [found[key] for key in ("vnc", "vnclisten", "vncdisplay", "vncunused", "vncpasswd")] == [
        1,
        "0.0.0.0",
        5,
        0,
        "secret",
    ]
    assert values("xen-hvm", vnc_bind_address="")["vnc"] == 0
    # Programs of former releases which are not installed are left to xl.
    assert "firmware_override" not in found and "device_model_override" not in found


@given(st.text(max_size=40))
@example('quiet" cpuid="host')
@example('quiet"\nmemory=1')
@example("quiet\\")
def test_no_value_adds_a_setting(value: str) -> None:
    try:
        found = values(kernel_args=value, cpuid=value, use_bootloader=False)
    except errors.HypervisorError:
        return
    assert found.get("extra", "") == value
    assert set(found) <= set(values(kernel_args="x", cpuid="y"))


@given(st.text(max_size=20))
@example("xenbr0,script=/other")
def test_no_value_leaves_its_place_in_a_list(value: str) -> None:
    network = nic(nicparams={"mode": "bridged", "link": value, "vlan": ""})
    known = record.of_instance(instance(nics=(network,)), [])
    try:
        words = config.vif_spec(known.nics[0], known, "/script").split(",")
    except errors.HypervisorError:
        return
    assert [word.partition("=")[0] for word in words if not word.startswith("bridge=")] == [
        "mac",
        "devid",
        "script",
    ]


@pytest.mark.parametrize(
    ("mask", "vcpus", "pins"),
    [
        ("all", 2, ()),
        ("", 2, ()),
        ("0-2,5", 2, ["0,1,2,5"]),
        ("0:all", 2, ["0", "all"]),
        ("all:all", 2, ()),
    ],
)
def test_pinning(mask: str, vcpus: int, pins: Any) -> None:
    assert config.cpu_pins({"cpu_mask": mask}, vcpus) == pins


@pytest.mark.parametrize("mask", ["0:1:2", "x", "0:"])
def test_wrong_masks(mask: str) -> None:
    with pytest.raises(errors.HypervisorError, match="parameter cpu_mask"):
        config.cpu_pins({"cpu_mask": mask}, 2)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"blockdev_prefix": "xvd,"}, "blockdev_prefix"),
        ({"bootloader_args": "'"}, "bootloader_args"),
        ({"kernel_args": "a\nb"}, "kernel_args: .* control character"),
        ({"vif_script": "/a,b"}, "vif_script"),
        ({"kernel_path": "/nonexistent"}, "kernel_path: /nonexistent is not a file"),
    ],
)
def test_the_node_refuses(params: dict[str, Any], message: str, tmp_path: Any) -> None:
    kernel = tmp_path / "kernel"
    kernel.touch()
    found = instance(**{"kernel_path": str(kernel), **params}).hvparams
    if "vif_script" in params:
        found = {**found, "vif_script": str(tmp_path / "a,b")}
        (tmp_path / "a,b").touch()
    with pytest.raises(errors.HypervisorError, match=message):
        parameters.check("xen-pvm", found)


@pytest.mark.parametrize("address", ["x", "0000:01:00", "01:00.9", "01:00.0,x=y z"])
def test_wrong_devices(address: str) -> None:
    with pytest.raises(errors.HypervisorError, match="pci_pass"):
        config.pci_devices({"pci_pass": address})


@pytest.mark.parametrize(
    ("conf", "line", "good"),
    [
        ("", "dom0_mem=800M", True),
        ("", "", False),
        ('autoballoon="off"', "", True),
        ("autoballoon=0", "", True),
        ('#autoballoon="off"', "", False),
        ('autoballoon = "on"', "dom0_mem=800M", False),
    ],
)
def test_domain_0_keeps_its_memory(
    conf: str, line: str, good: bool, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "xl.conf"
    path.write_text(f"# a comment\n{conf}\n")
    monkeypatch.setattr(parameters, "_XL_CONF", str(path))
    found = parameters.autoballoon_problem({"xen_commandline": line})
    assert (found is None) is good
    assert good or "dom0_mem=1024M" in (found or "")


def test_a_guest_with_many_disks_has_letters_for_them() -> None:
    assert record.vdev_name("xvd", 15) == "xvdp"
    with pytest.raises(errors.HypervisorError, match="16 disks"):
        record.vdev_name("xvd", 16)


def test_a_free_place() -> None:
    known = record.of_instance(instance(nics=(nic(),), blockdev_prefix="xvd"), [DISK, DISK])
    assert (record.free_vdev(known), record.free_devid(known)) == ("xvdc", 1)
    hole = replace(known, disks=known.disks[1:])
    assert record.free_vdev(hole) == "xvda"
