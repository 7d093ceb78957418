"""No parameter of KVM is idle: each one changes a command line, or is used at a known place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import ganeti
from fakes import kvm_variants
from fakes.kvm_variants import VARIANTS, Variant
from ganeti.hypervisor.kvm.accelerator import TCG
from ganeti.hypervisor.kvm.facts import QemuFacts
from ganeti.objects import hvparams

LIB = Path(ganeti.__file__).parent
MAN = LIB.parents[1] / "man/ganeti-kvm.rst"
QEMU = QemuFacts(
    "/usr/bin/qemu",
    (7, 2, 0),
    frozenset(("no-acpi", "runas", "chroot", "display", "audio")),
    "pc-i440fx-7.2",
    TCG,
)
NAMES = sorted(hvparams.TABLES["kvm"])

# Which other parameters make it count, and the two values that must differ; else the default and
# another one are compared.
VNC, SPICE = {"vnc_bind_address": "127.0.0.1"}, {"spice_bind": "127.0.0.1"}
TLS, SPICE_TLS = {**VNC, "vnc_tls": True}, {**SPICE, "spice_use_tls": True}
SAMPLES: dict[str, tuple[dict[str, Any], Any]] = {
    "acpi": ({}, False),
    "boot_order": ({"kernel_path": ""}, "network"),
    "cdrom2_image_path": ({}, "/two.iso"),
    "cdrom_image_path": ({}, "/one.iso"),
    "cdrom_disk_type": ({"cdrom_image_path": "/one.iso"}, "ide"),
    "cpu_cores": ({}, 2),
    "cpu_sockets": ({}, 2),
    "cpu_threads": ({}, 2),
    "cpu_type": ({}, "host"),
    "disk_aio": ({}, "io_uring"),
    "disk_cache": ({}, "none"),
    "disk_discard": ({}, "unmap"),
    "disk_type": ({}, "ide"),
    "firmware": ({}, "uefi"),
    "floppy_image_path": ({}, "/f.img"),
    "initrd_path": ({}, "/initrd"),
    "kernel_args": ({}, "rw"),
    "kernel_path": ({}, ""),
    "keymap": ({}, "de"),
    "kvm_extra": ({}, "-msg timestamp=on"),
    "kvm_flag": ({}, "enabled"),
    "kvm_pci_reservations": ({}, 5),
    "machine_version": ({}, "q35"),
    "mem_path": ({}, "/hugepages"),
    "nic_type": ({}, "e1000"),
    "reboot_behavior": ({}, "exit"),
    "root_path": ({}, "/dev/sda"),
    "scsi_controller_type": ({"disk_type": "scsi-hd"}, "megasas"),
    "serial_console": ({}, False),
    "serial_speed": ({}, 9600),
    "soundhw": ({}, "hda"),
    "spice_bind": ({}, "127.0.0.1"),
    "spice_image_compression": (SPICE, "quic"),
    "spice_ip_version": (SPICE, 6),
    "spice_jpeg_wan_compression": (SPICE, "never"),
    "spice_password_file": (SPICE, "/password"),
    "spice_playback_compression": (SPICE, False),
    "spice_streaming_video": (SPICE, "all"),
    "spice_tls_ciphers": (SPICE_TLS, "HIGH"),
    "spice_use_tls": (SPICE, True),
    "spice_use_vdagent": (SPICE, False),
    "spice_zlib_glz_wan_compression": (SPICE, "always"),
    "tpm_version": ({}, "2.0"),
    "usb_devices": ({}, "tablet"),
    "usb_mouse": ({}, "tablet"),
    "use_guest_agent": ({}, True),
    "use_localtime": ({}, True),
    "vga": ({}, "std"),
    "vhost_net": ({}, False),
    "virtio_net_queues": ({}, 2),
    "vnc_bind_address": ({}, "127.0.0.1"),
    "vnc_password_file": (VNC, "/password"),
    "vnc_tls": (VNC, True),
    "vnc_x509_path": (TLS, "/x509"),
    "vnc_x509_verify": ({**TLS, "vnc_x509_path": "/x509"}, True),
}
# Not on the command line: the module that acts on it, and the test that shows what it does.
ELSEWHERE = {
    "cpu_mask": ("hypervisor/kvm/pinning.py", "scenario/test_qemu_resources.py"),
    "firmware_path": ("hypervisor/kvm/firmware.py", "unit/hypervisor/kvm/test_firmware.py"),
    "firmware_vars_path": ("hypervisor/kvm/firmware.py", "unit/hypervisor/kvm/test_firmware.py"),
    "kvm_path": ("hypervisor/kvm/parameters.py", "scenario/test_qemu_resources.py"),
    "migration_bandwidth": ("hypervisor/kvm/migration.py", "scenario/test_qemu_migration.py"),
    "migration_caps": ("hypervisor/kvm/start.py", "scenario/test_qemu_migration.py"),
    "migration_downtime": (
        "hypervisor/kvm/migration.py",
        "unit/hypervisor/kvm/test_migration.py",
    ),
    "migration_mode": ("cmdlib/instance/migrate.py", "unit/cmdlib/ops/migration/test_migration.py"),
    "migration_port": ("backend/instance/lifecycle.py", "scenario/test_qemu_migration.py"),
    "migration_tls": ("hypervisor/kvm/migration_channel.py", "scenario/test_qemu_migration.py"),
    "security_domain": ("hypervisor/kvm/privileges.py", "scenario/test_qemu_users.py"),
    "security_model": ("hypervisor/kvm/privileges.py", "scenario/test_qemu_users.py"),
    "use_chroot": ("hypervisor/kvm/start.py", "scenario/test_qemu_users.py"),
    "user_shutdown": ("query/resources/instance.py", "scenario/test_guests.py"),
    "vnet_hdr": ("hypervisor/kvm/nics.py", "unit/hypervisor/net/test_tap.py"),
}


def command(monkeypatch: pytest.MonkeyPatch, params: dict[str, Any]) -> list[str]:
    disks = (None, "efivars", "tpm")
    monkeypatch.setitem(VARIANTS, "sample", Variant(params, disks=disks, host={"taps": True}))
    return kvm_variants.command("sample", QEMU)


def test_every_parameter_is_accounted_for() -> None:
    assert sorted([*SAMPLES, *ELSEWHERE]) == NAMES


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_it_changes_the_command_line(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    context, value = SAMPLES[name]
    params = {**hvparams.defaults("kvm"), **context}
    assert params[name] != value
    hvparams.check_parameter_syntax(
        "kvm", {**params, name: value} | ({"boot_order": "disk"} if name == "kernel_path" else {})
    )
    before = command(monkeypatch, context)
    assert command(monkeypatch, {**context, name: value}) != before


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_a_whole_command_line_with_it_is_kept(name: str) -> None:
    """One of the golden files has it with another value than the default."""
    default = hvparams.defaults("kvm")[name]
    assert any(variant.params.get(name, default) != default for variant in VARIANTS.values())


@pytest.mark.parametrize("name", sorted(ELSEWHERE))
def test_it_is_used_elsewhere_and_tested(name: str) -> None:
    module, test = ELSEWHERE[name]
    assert name in (LIB / module).read_text()
    assert name in (LIB.parents[1] / "test" / test).read_text(), f"{test} does not mention {name}"


@pytest.mark.parametrize("name", NAMES)
def test_the_manual_explains_it(name: str) -> None:
    assert f"``{name}``" in MAN.read_text()
