"""The hypervisors ``xen-pvm`` (paravirtual guests) and ``xen-hvm`` (with emulated hardware)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ganeti import errors
from ganeti.constants import hv
from ganeti.objects.hypervisors.cpu_masks import cpu_masks
from ganeti.objects.hypervisors.descriptor import (
    ConsoleRequest,
    HypervisorDescriptor,
    by_name,
    console_program,
)
from ganeti.objects.hypervisors.parameter import (
    ADDRESS,
    BOOL,
    DEVICE,
    FILE,
    GUEST,
    INT,
    MAYBE_STRING,
    MODEL,
    NODE_FILE,
    OPTION,
    PRIVILEGE,
    PROGRAM,
    STRING,
    HvParam,
    between,
    non_negative,
    port,
)
from ganeti.objects.transfer import InstanceConsole

# Asks the hypervisor itself, as the kernel of the node is only a guest of it.
_RESET_ARGV = ("xl", "debug-keys", "R")

#: Values of the parameter ``type``, an own one: a classic paravirtual guest, or one which uses the
#: virtualisation of the processor without emulated hardware.
GUEST_PV, GUEST_PVH = "pv", "pvh"

_CONSOLE_PROGRAM = "xen-console-wrapper"


#: GRUB for guests of each type, as Debian's package grub-xen-host installs it: started as the
#: kernel of a guest, it shows the menu which it finds on the disks of the guest.
GRUB = {
    GUEST_PV: "/usr/lib/grub-xen/grub-x86_64-xen.bin",
    GUEST_PVH: "/usr/lib/grub-xen/grub-i386-xen_pvh.bin",
}


def _boot_letters(value: str) -> str:
    return "" if value and not set(value) - set("acdn") else "may have the letters a, c, d, n only"


def _ipv4(value: str) -> str:
    parts = value.split(".")
    good = len(parts) == 4 and all(
        part.isascii() and part.isdigit() and len(part) <= 3 and int(part) <= 255 for part in parts
    )
    return "" if good else "must be an IPv4 address"


def _check_pvm(params: Mapping[str, Any]) -> None:
    get = params.get
    if get("use_bootloader") and not get("bootloader_path"):
        raise errors.HypervisorError(
            "hypervisor parameter bootloader_path: must be set where use_bootloader is"
        )
    if get("use_bootloader") and get("type") == GUEST_PVH:
        raise errors.HypervisorError(
            "hypervisor parameter use_bootloader: a guest of type pvh is started from kernel_path"
        )
    if get("soundhw"):
        raise errors.HypervisorError(
            "hypervisor parameter soundhw: a paravirtual guest has no emulated sound hardware"
        )


def _boot_from_disk(filled: Mapping[str, Any], chosen: Mapping[str, Any]) -> dict[str, Any]:
    if "kernel_path" in chosen or filled.get("use_bootloader"):
        return {}
    # GRUB for pv starts no kernel which is compressed with LZ4, as those of cloud images are.
    kind = chosen.get("type") or GUEST_PVH
    return {"type": kind, "kernel_path": GRUB[kind], "initrd_path": ""}


def _check_hvm(params: Mapping[str, Any]) -> None:
    if params.get("boot_order") == "d" and not params.get("cdrom_image_path"):
        raise errors.HypervisorError(
            "hypervisor parameter cdrom_image_path: must be set to boot from the CD drive only"
        )


def _serial_console(request: ConsoleRequest) -> InstanceConsole:
    return request.by_ssh(console_program(_CONSOLE_PROGRAM), "xl", request.instance.name)


def _screen(request: ConsoleRequest) -> InstanceConsole:
    """Return the screen of the guest by VNC, else a message."""
    address, port_number = request.hvparams.get("vnc_bind_address"), request.instance.network_port
    if address and port_number:
        return request.by_vnc(address, port_number)
    return request.message(
        f"instance {request.instance.name} has no console: vnc_bind_address is empty"
    )


_weight_hvm = between(1, 65534)
_weight_pvm = between(1, 65535)

XEN_PVM = HypervisorDescriptor(
    name=hv.XEN_PVM,
    parameters=by_name(
        HvParam("blockdev_prefix", STRING, "sd", MODEL),
        HvParam("bootloader_args", STRING, "", OPTION),
        HvParam("bootloader_path", STRING, "", PROGRAM, node_check=FILE),
        HvParam("cpu_cap", INT, 0, GUEST, check=non_negative),
        HvParam("cpu_mask", STRING, "all", DEVICE, check=cpu_masks),
        HvParam("cpu_weight", INT, 256, GUEST, check=_weight_pvm),
        HvParam("cpuid", STRING, "", GUEST),
        HvParam("initrd_path", STRING, "", NODE_FILE, node_check=FILE),
        HvParam("kernel_args", STRING, "ro", GUEST),
        HvParam(
            "kernel_path", STRING, "/boot/vmlinuz-3-xenU", NODE_FILE, node_check=FILE, required=True
        ),
        HvParam("migration_mode", STRING, "live", GUEST, one_of=hv.MIGRATION_MODES, required=True),
        HvParam("migration_port", INT, 8002, OPTION, check=port, required=True),
        HvParam(
            "reboot_behavior", STRING, "reboot", GUEST, one_of=hv.REBOOT_BEHAVIORS, required=True
        ),
        HvParam("root_path", MAYBE_STRING, "/dev/xvda1", GUEST),
        HvParam("soundhw", STRING, "", MODEL),
        HvParam("type", STRING, GUEST_PV, GUEST, one_of=(GUEST_PV, GUEST_PVH), required=True),
        HvParam("use_bootloader", BOOL, False, PRIVILEGE),
        HvParam("vif_script", STRING, "", PROGRAM, node_check=FILE),
    ),
    check_combination=_check_pvm,
    boot_from_disk=_boot_from_disk,
    console=_serial_console,
    can_migrate=True,
    can_hotplug=True,
    reset_argv=_RESET_ARGV,
)
XEN_HVM = HypervisorDescriptor(
    name=hv.XEN_HVM,
    parameters=by_name(
        HvParam("acpi", BOOL, True, GUEST),
        HvParam("blockdev_prefix", STRING, "hd", MODEL),
        HvParam("boot_order", STRING, "cd", GUEST, check=_boot_letters, required=True),
        HvParam("cdrom_image_path", STRING, "", NODE_FILE, node_check=FILE),
        HvParam("cpu_cap", INT, 0, GUEST),
        HvParam("cpu_mask", STRING, "all", DEVICE, check=cpu_masks),
        HvParam("cpu_weight", INT, 256, GUEST, check=_weight_hvm),
        HvParam("cpuid", STRING, "", GUEST),
        HvParam(
            "device_model",
            STRING,
            "/usr/lib/xen/bin/qemu-dm",
            PROGRAM,
            node_check=FILE,
            required=True,
        ),
        HvParam("disk_type", STRING, "paravirtual", GUEST, one_of=hv.HVM_DISK_TYPES, required=True),
        HvParam(
            "kernel_path",
            STRING,
            "/usr/lib/xen/boot/hvmloader",
            NODE_FILE,
            node_check=FILE,
            required=True,
        ),
        HvParam(
            "migration_mode", STRING, "non-live", GUEST, one_of=hv.MIGRATION_MODES, required=True
        ),
        HvParam("migration_port", INT, 8002, OPTION, check=port, required=True),
        HvParam("nic_type", STRING, "rtl8139", GUEST, one_of=hv.HVM_NIC_TYPES, required=True),
        HvParam("pae", BOOL, True, GUEST),
        HvParam("pci_pass", STRING, "", DEVICE),
        HvParam(
            "reboot_behavior", STRING, "reboot", GUEST, one_of=hv.REBOOT_BEHAVIORS, required=True
        ),
        HvParam("soundhw", STRING, "", MODEL),
        HvParam("use_localtime", BOOL, False, GUEST),
        HvParam("vif_script", STRING, "", PROGRAM, node_check=FILE),
        HvParam("vif_type", STRING, "ioemu", GUEST, one_of=hv.HVM_VIF_TYPES),
        HvParam("viridian", BOOL, False, GUEST),
        HvParam("vnc_bind_address", STRING, "0.0.0.0", ADDRESS, check=_ipv4),
        HvParam(
            "vnc_password_file",
            STRING,
            "/etc/ganeti/vnc-cluster-password",
            PRIVILEGE,
            node_check=FILE,
            required=True,
        ),
    ),
    check_combination=_check_hvm,
    console=_screen,
    can_migrate=True,
    can_hotplug=True,
    needs_port=True,
    reset_argv=_RESET_ARGV,
)
