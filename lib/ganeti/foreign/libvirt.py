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
    mac_address,
    positive,
    read_xml,
    size_bytes,
    whole_mib,
)

# Bus of a disk, and model of an interface, in libvirt and here.
_DISK_TYPES = {"virtio": "paravirtual", "ide": "ide", "scsi": "scsi", "sata": "ide"}
_NIC_TYPES = {"virtio": "paravirtual", "e1000": "e1000", "rtl8139": "rtl8139"}
_FORMATS = frozenset(("raw", "qcow2", "vmdk", "vdi", "vpc", "qed"))
_LEFT_OUT = ("hostdev", "filesystem", "redirdev", "shmem", "smartcard")


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
    notes += [
        f"a <{kind}> device of the host was left out"
        for kind in _LEFT_OUT
        for _one in devices.findall(kind)
    ]
    return Machine(
        name=name,
        memory_mib=max(1, whole_mib(size)),
        vcpus=positive(_text(root, "vcpu") or "1", "vcpu"),
        disks=tuple(disks),
        nics=tuple(nics),
        hvparams=_hvparams(root, buses, models, notes),
        notes=tuple(notes),
    )


def _text(element: ElementTree.Element, path: str) -> str:
    return (element.findtext(path) or "").strip()


def _disks(devices: ElementTree.Element, notes: list[str]) -> tuple[list[Disk], list[str]]:
    """Return the disks, and the bus of each of them."""
    found, buses = [], []
    for disk in devices.findall("disk"):
        target = disk.find("target")
        where = target.get("dev", "?") if target is not None else "?"
        if disk.get("device", "disk") != "disk":
            notes.append(f"{where}: a {disk.get('device')} was left out")
            continue
        source = disk.find("source")
        path = ""
        if source is not None:
            path = source.get("file") or source.get("dev") or ""
        if not path:
            notes.append(
                f"{where}: a disk of type '{disk.get('type', '?')}' was left out. Copy it to a file"
                " first"
            )
            continue
        driver = disk.find("driver")
        given = driver.get("type", "") if driver is not None else ""
        found.append(Disk(path, given if given in _FORMATS else ""))
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
