"""The configuration file of a guest for ``xl``, made from its record.

Each value is checked for its place: a value of a parameter cannot end the text in which it stands,
and so add settings of its own.

Source: xl.cfg(5), xl-disk-configuration(5), xl-network-configuration(5).
"""

from __future__ import annotations

import os
import re
import shlex
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from ganeti import errors
from ganeti.constants import hv
from ganeti.constants import net as net_c
from ganeti.hypervisor.net import communication
from ganeti.hypervisor.xen.record import Record, RecordedDisk, RecordedNic
from ganeti.objects.hypervisors import cpu_masks
from ganeti.objects.hypervisors.xen import GUEST_PVH, XEN_HVM

#: The programs of the device model and of the firmware in former releases of Xen, which are the
#: published defaults. Where they do not exist, ``xl`` chooses.
_FORMER = frozenset(
    (XEN_HVM.parameters["device_model"].default, XEN_HVM.parameters["kernel_path"].default)
)
_TRADITIONAL = "qemu-dm"

_MAC = re.compile(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}", re.ASCII)
_VDEV_PREFIX = re.compile(r"[a-z]{1,4}", re.ASCII)
_PCI = re.compile(
    r"([0-9a-fA-F]{4}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7](@[0-9a-fA-F]{1,2})?"
    r"(,[a-z_]+=[A-Za-z0-9_]+)*",
    re.ASCII,
)
#: Characters of a value inside a list separated by commas.
_PART = re.compile(r"[A-Za-z0-9_./:@%+ -]*", re.ASCII)

# Control characters, and those which end a line or a paragraph.
_CONTROL = frozenset(("Cc", "Zl", "Zp"))


def quoted(value: str, what: str) -> str:
    """Return a text as a string of the file.

    :param what: where it comes from, for the message.
    :raises HypervisorError: it has a character for which a string of the file has no place.
    """
    if any(unicodedata.category(char) in _CONTROL for char in value):
        raise errors.HypervisorError(f"{what}: {value!r:.100} has a control character")
    try:
        value.encode()
    except UnicodeEncodeError as err:
        raise errors.HypervisorError(f"{what}: {value!r:.100} is not text") from err
    # A backslash begins a sequence like those of C in both kinds of strings.
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def part(value: str, what: str) -> str:
    """Return a text inside a list separated by commas, unchanged.

    :raises HypervisorError: it could end its place in the list.
    """
    if not _PART.fullmatch(value):
        raise errors.HypervisorError(
            f"{what}: {value!r:.100} has a character which cannot be written into the"
            " configuration file of Xen"
        )
    return value


def render(
    record: Record,
    *,
    targets: Mapping[str, str],
    vif_script: str,
    password: str | None = None,
) -> str:
    """Return the text of the file.

    :param targets: name of each disk in the guest -> path of its block device.
    :param vif_script: the program which connects the NICs.
    :param password: for VNC; None where the guest has no VNC.
    :raises HypervisorError: names the parameter whose value cannot be written.
    """
    lines = ["# Written by Ganeti before each start of the instance; changes are lost."]

    def put(name: str, value: Any, parameter: str = "") -> None:
        lines.append(f"{name} = {_value(value, f'parameter {parameter}' if parameter else name)}")

    hvp = record.hvparams
    put("name", record.name)
    put("uuid", record.uuid)
    put("memory", record.memory_mib)
    put("maxmem", record.memory_mib)
    put("vcpus", record.vcpus)
    _put_processors(put, hvp, record)
    if record.hypervisor == hv.XEN_HVM:
        _put_hvm(put, record, password)
    else:
        _put_pvm(put, hvp)
    put("vif", [vif_spec(nic, record, vif_script) for nic in record.nics])
    disks = [disk_spec(disk, targets[disk.vdev]) for disk in record.disks]
    if record.hypervisor == hv.XEN_HVM and hvp.get("cdrom_image_path"):
        path = str(hvp["cdrom_image_path"])
        disks.append(f"format=raw,vdev=hdc,access=ro,devtype=cdrom,target={path}")
    put("disk", disks)
    # What is left of a guest which switches itself off is kept, which shows that nobody stopped it.
    put("on_poweroff", "preserve")
    restarts = hvp.get("reboot_behavior") == hv.REBOOT_BEHAVIOR_REBOOT
    put("on_reboot", "restart" if restarts else "destroy")
    # The watcher starts it again, and counts how often.
    put("on_crash", "destroy")
    return "\n".join(lines) + "\n"


def _value(value: Any, what: str) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return quoted(value, what)
    return f"[{', '.join(_value(one, what) for one in value)}]"


def _put_processors(put: Any, hvp: Mapping[str, Any], record: Record) -> None:
    put("cpu_weight", int(hvp["cpu_weight"]), "cpu_weight")
    if hvp.get("cpu_cap"):
        put("cap", int(hvp["cpu_cap"]), "cpu_cap")
    pins = cpu_pins(hvp, record.vcpus)
    if pins:
        put("cpus", pins[0] if len(pins) == 1 else list(pins), "cpu_mask")
    if hvp.get("cpuid"):
        put("cpuid", str(hvp["cpuid"]), "cpuid")


def cpu_pins(hvp: Mapping[str, Any], vcpus: int) -> Sequence[str]:
    """Return the lists of processors of a guest: one for all its virtual ones, or one for each.

    :returns: empty when every processor may be used.
    :raises HypervisorError: the number of lists is not that of the virtual processors.
    """
    try:
        masks = cpu_masks.parse_cpu_masks(hvp.get("cpu_mask") or cpu_masks.CPU_ALL)
    except errors.ParseError as err:
        raise errors.HypervisorError(f"parameter cpu_mask: {err}") from err
    if all(mask == [cpu_masks.CPU_ALL_VALUE] for mask in masks):
        return ()
    if len(masks) not in (1, vcpus):
        raise errors.HypervisorError(
            f"parameter cpu_mask: {len(masks)} masks for {vcpus} virtual processors"
        )
    return [
        cpu_masks.CPU_ALL
        if mask == [cpu_masks.CPU_ALL_VALUE]
        else ",".join(str(cpu) for cpu in dict.fromkeys(mask))
        for mask in masks
    ]


def _put_pvm(put: Any, hvp: Mapping[str, Any]) -> None:
    pvh = hvp.get("type") == GUEST_PVH
    put("type", "pvh" if pvh else "pv", "type")
    if hvp.get("use_bootloader"):
        put("bootloader", str(hvp["bootloader_path"]), "bootloader_path")
        if hvp.get("bootloader_args"):
            put("bootloader_args", bootloader_words(hvp), "bootloader_args")
    else:
        put("kernel", str(hvp["kernel_path"]), "kernel_path")
        if hvp.get("initrd_path"):
            put("ramdisk", str(hvp["initrd_path"]), "initrd_path")
    if hvp.get("root_path"):
        put("root", str(hvp["root_path"]), "root_path")
    if hvp.get("kernel_args"):
        put("extra", str(hvp["kernel_args"]), "kernel_args")


def bootloader_words(hvp: Mapping[str, Any]) -> list[str]:
    """Return the arguments of the boot loader.

    :raises HypervisorError: they are not arguments as a shell reads them.
    """
    try:
        return shlex.split(str(hvp.get("bootloader_args") or ""))
    except ValueError as err:
        raise errors.HypervisorError(f"parameter bootloader_args: {str(err).lower()}") from err


def _put_hvm(put: Any, record: Record, password: str | None) -> None:
    hvp = record.hvparams
    put("type", "hvm")
    put("acpi", bool(hvp.get("acpi")), "acpi")
    put("pae", bool(hvp.get("pae")), "pae")
    put("viridian", bool(hvp.get("viridian")), "viridian")
    put("localtime", bool(hvp.get("use_localtime")), "use_localtime")
    put("boot", str(hvp["boot_order"]), "boot_order")
    if chosen_file(hvp, "kernel_path"):
        put("firmware_override", str(hvp["kernel_path"]), "kernel_path")
    model = chosen_file(hvp, "device_model")
    if model:
        traditional = os.path.basename(model) == _TRADITIONAL
        put("device_model_version", "qemu-xen-traditional" if traditional else "qemu-xen")
        put("device_model_override", model, "device_model")
    # Without this device the guest sees the emulated hardware alone.
    put("xen_platform_pci", has_paravirtual_devices(hvp))
    if hvp.get("soundhw"):
        put("soundhw", str(hvp["soundhw"]), "soundhw")
    if hvp.get("pci_pass"):
        put("pci", pci_devices(hvp), "pci_pass")
    put("usbdevice", "tablet")
    if record.port is not None and hvp.get("vnc_bind_address"):
        put("vnc", True)
        put("vnclisten", str(hvp["vnc_bind_address"]), "vnc_bind_address")
        put("vncdisplay", record.port - hv.VNC_BASE_PORT)
        put("vncunused", False)
        if password is not None:
            put("vncpasswd", password, "vnc_password_file")
    else:
        put("vnc", False)
    put("serial", "pty")


def has_paravirtual_devices(hvp: Mapping[str, Any]) -> bool:
    """Return True if a guest of ``xen-hvm`` may use the devices of Xen beside the emulated ones."""
    return hvp.get("disk_type") == "paravirtual" or hvp.get("nic_type") == "paravirtual"


def chosen_file(hvp: Mapping[str, Any], parameter: str) -> str:
    """Return a program of Xen which a parameter names; empty where ``xl`` chooses.

    ``xl`` chooses where the parameter has its published default, which names a file of former
    releases, and that file does not exist.
    """
    path = str(hvp.get(parameter) or "")
    return "" if path in _FORMER and not os.path.exists(path) else path


def pci_devices(hvp: Mapping[str, Any]) -> list[str]:
    """Return the devices of the node which the guest gets (``pci_pass``), separated by semicolons.

    :raises HypervisorError: one of them is not the address of a device.
    """
    devices = [one.strip() for one in str(hvp.get("pci_pass") or "").split(";") if one.strip()]
    for one in devices:
        if not _PCI.fullmatch(one):
            raise errors.HypervisorError(
                f"parameter pci_pass: {one!r:.100} is not an address like 0000:01:00.0"
            )
    return devices


def disk_spec(disk: RecordedDisk, target: str) -> str:
    """Return the description of a disk, for the file and for ``xl block-attach``.

    :param target: path of the block device.
    """
    access = "ro" if disk.disk.get("mode") == "ro" else "rw"
    # The target comes last, and takes all that follows.
    return f"format=raw,vdev={disk.vdev},access={access},backendtype=phy,target={target}"


def check_prefix(hvp: Mapping[str, Any]) -> None:
    """Check ``blockdev_prefix``.

    :raises HypervisorError: it is not the beginning of the name of a disk.
    """
    prefix = str(hvp.get("blockdev_prefix") or "xvd")
    if not _VDEV_PREFIX.fullmatch(prefix):
        raise errors.HypervisorError(
            f"parameter blockdev_prefix: {prefix!r:.100} is not the beginning of the name of a"
            " disk, such as xvd, sd or hd"
        )


def vif_spec(recorded: RecordedNic, record: Record, script: str) -> str:
    """Return the description of a NIC, for the file and for ``xl network-attach``.

    :param script: the program which connects it.
    :raises HypervisorError: a value cannot be written.
    """
    nic, hvp = recorded.nic, record.hvparams
    mac = str(nic.get("mac") or "")
    if not _MAC.fullmatch(mac):
        raise errors.HypervisorError(f"instance {record.name}: {mac!r:.100} is not a MAC address")
    words = [f"mac={mac}", f"devid={recorded.devid}"]
    params = nic.get("nicparams") or {}
    what = f"NIC {nic.get('uuid', '')}"
    link = str(params.get("link") or "")
    if params.get("mode") in (net_c.NIC_MODE_BRIDGED, net_c.NIC_MODE_OVS) and link:
        # For programs of the administrator (vif_script); ours knows the NIC from the record.
        words.append(f"bridge={part(link, what)}")
    if nic.get("ip") and not communication.is_communication(nic):
        words.append(f"ip={part(str(nic['ip']), what)}")
    if record.hypervisor == hv.XEN_HVM:
        model = str(hvp.get("nic_type") or "")
        if model == "paravirtual" or hvp.get("vif_type") == "vif":
            words.append("type=vif")
        else:
            words += ["type=ioemu", f"model={part(model, 'parameter nic_type')}"]
    words.append(f"script={part(script, 'parameter vif_script')}")
    return ",".join(words)
