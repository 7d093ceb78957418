"""Reads the XML of a domain of libvirt, as ``virsh dumpxml`` prints it.

Source: https://libvirt.org/formatdomain.html
"""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

from ganeti import errors
from ganeti.foreign.machine import (
    Disk,
    Machine,
    Nic,
    local,
    mac_address,
    positive,
    read_xml,
    size_bytes,
    sorted_by_boot,
    whole_mib,
)

# Bus of a disk, and model of an interface, in libvirt and here.
_DISK_TYPES = {"virtio": "paravirtual", "ide": "ide", "scsi": "scsi", "sata": "ide"}
_NIC_TYPES = {"virtio": "paravirtual", "e1000": "e1000", "rtl8139": "rtl8139"}
_FORMATS = frozenset(("raw", "qcow2", "vmdk", "vdi", "vpc", "qed"))
_OF_HOST = frozenset(("hostdev", "filesystem", "redirdev", "shmem", "smartcard"))
# What is read, and what every domain has without a meaning for an instance.
_DEVICES = frozenset((
    "disk", "interface", "emulator", "controller", "input", "memballoon", "video", "graphics",
    "audio", "console", "serial", "channel", "rng", "panic", "hub",
))  # fmt: skip
_PARTS = frozenset((
    "name", "memory", "vcpu", "devices", "os", "cpu", "uuid", "title", "description", "metadata",
    "currentMemory", "maxMemory", "features", "on_poweroff", "on_reboot", "on_crash",
    "on_lockfailure", "pm", "genid", "resource", "seclabel", "sysinfo",
))  # fmt: skip


def parse_libvirt(text: str) -> Machine:
    """Read a domain.

    :raises ParseError: the text is not a domain, or a value in it cannot be understood.
    """
    root = read_xml(text)
    if root.tag != "domain":
        raise errors.ParseError(f"the description is a <{root.tag!s:.40}>, not a <domain>")
    name = _text(root, "name")
    if not name:
        raise errors.ParseError("the domain has no name")
    memory = root.find("memory")
    if memory is None:
        raise errors.ParseError(f"domain {name} has no memory")
    size = size_bytes(memory.text or "", memory.get("unit", "KiB"))
    devices = root.find("devices")
    if devices is None:
        devices = ElementTree.Element("devices")
    notes: list[str] = []
    disks, buses = _disks(devices, notes)
    nics, models = _nics(devices, notes)
    notes += _unused(root, devices)
    return Machine(
        name=name,
        memory_mib=max(1, whole_mib(size)),
        vcpus=positive(_text(root, "vcpu") or "1", "vcpu"),
        disks=sorted_by_boot(disks, _boot_order(root, devices), notes),
        nics=tuple(nics),
        hvparams=_hvparams(root, buses, models, notes),
        notes=tuple(notes),
    )


def _text(element: ElementTree.Element, path: str) -> str:
    return (element.findtext(path) or "").strip()


def _unused(root: ElementTree.Element, devices: ElementTree.Element) -> list[str]:
    """Name the parts and devices which an instance does not get; a sentence for each."""
    found = []
    for one in devices:
        kind = local(one.tag)
        if kind in _OF_HOST:
            found.append(f"a <{kind}> device of the host was left out")
        elif kind and kind not in _DEVICES:
            found.append(f"a <{kind:.60}> device was left out")
    for one in root:
        kind = local(one.tag)
        if kind == "clock" and one.get("offset", "utc") == "utc":
            continue
        if kind == "clock":
            found.append(
                f"the clock of the guest is {one.get('offset')!r:.40}: set the hypervisor parameter"
                " use_localtime if it is local time"
            )
        elif kind and kind not in _PARTS:
            found.append(f"the part <{kind:.60}> was left out")
    return found


def _place(disk: ElementTree.Element) -> str:
    """Return the name of a disk in the guest, such as ``vda``."""
    target = disk.find("target")
    return target.get("dev", "?") if target is not None else "?"


def _boot_order(root: ElementTree.Element, devices: ElementTree.Element) -> list[str]:
    """Return the devices with a number in the boot order, the first one first.

    A domain says it at each device, or for kinds of devices: then a CD or the network may come
    first, and the disks have no order of their own.
    """
    numbered = []
    for index, one in enumerate(devices):
        boot = one.find("boot")
        number = boot.get("order", "") if boot is not None else ""
        if number.isascii() and number.isdigit():
            name = _place(one) if one.tag == "disk" else f"<{local(one.tag)}>"
            numbered.append((int(number), index, name))
    if numbered:
        return [name for _number, _index, name in sorted(numbered)]
    boot = root.find("os/boot")
    kind = boot.get("dev", "hd") if boot is not None else "hd"
    return [] if kind == "hd" else [kind]


def _disks(
    devices: ElementTree.Element, notes: list[str]
) -> tuple[list[tuple[str, Disk]], list[str]]:
    """Return the disks with their names in the guest, and the bus of each of them."""
    found: list[tuple[str, Disk]] = []
    buses = []
    for disk in devices.findall("disk"):
        target = disk.find("target")
        where = _place(disk)
        if disk.get("device", "disk") != "disk":
            notes.append(f"{where}: a {disk.get('device')} was left out")
            continue
        source = disk.find("source")
        path = ""
        if source is not None:
            path = source.get("file") or source.get("dev") or ""
        if source is None or not path:
            notes.append(
                f"{where}: a disk of type '{disk.get('type', '?')}' was left out. Copy it to a file"
                " first"
            )
            continue
        if disk.find("encryption") is not None or source.find("encryption") is not None:
            notes.append(f"{where}: an encrypted disk was left out. Decrypt it into a file first")
            continue
        driver = disk.find("driver")
        # Without a type, libvirt takes it as raw, and does not look at its content.
        given = (driver.get("type", "") if driver is not None else "") or "raw"
        # Devices without a name in the guest have names of their own here.
        is_free = where != "?" and where not in dict(found)
        name = where if is_free else f"disk {len(found)}"
        found.append((name, Disk(path, given if given in _FORMATS else "")))
        buses.append(target.get("bus", "") if target is not None else "")
    return found, buses


def _nics(devices: ElementTree.Element, notes: list[str]) -> tuple[list[Nic], list[str]]:
    """Return the interfaces, and the model of each of them."""
    found, models = [], []
    for number, interface in enumerate(devices.findall("interface")):
        mac, source = interface.find("mac"), interface.find("source")
        model = interface.find("model")
        bridge = source.get("bridge", "") if source is not None else ""
        if not bridge:
            notes.append(
                f"interface {number} is of type '{interface.get('type', '?')}', and gets the"
                " defaults of the cluster"
            )
        found.append(
            Nic(
                mac=mac_address(mac.get("address", "") if mac is not None else ""),
                mode="bridged" if bridge else "",
                link=bridge,
            )
        )
        models.append(model.get("type", "") if model is not None else "")
    return found, models


def _hvparams(
    root: ElementTree.Element, buses: list[str], models: list[str], notes: list[str]
) -> dict[str, Any]:
    params: dict[str, Any] = {"kernel_path": ""}
    system = root.find("os")
    if system is not None:
        loader = system.find("loader")
        if system.get("firmware") == "efi" or (
            loader is not None and loader.get("type") == "pflash"
        ):
            notes.append(
                "the guest boots with UEFI: set the hypervisor parameter firmware before it starts"
            )
        if _text(system, "kernel"):
            notes.append("the kernel outside of the disks was left out")
    for kinds, table, name, what in (
        (buses, _DISK_TYPES, "disk_type", "bus of the disks"),
        (models, _NIC_TYPES, "nic_type", "model of the interfaces"),
    ):
        known = {kind for kind in kinds if kind}
        if len(known) > 1:
            notes.append(f"the {what} is different for each: {', '.join(sorted(known))}")
        elif known and (kind := next(iter(known))) in table:
            params[name] = table[kind]
        elif known:
            notes.append(f"the {what} is {kind}, and becomes paravirtual")
    cpu = root.find("cpu")
    if cpu is not None and cpu.get("mode") in ("host-passthrough", "host-model", "maximum"):
        params["cpu_type"] = "host"
    return params
