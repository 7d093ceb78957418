"""Reads the configuration of a machine of Proxmox VE (``/etc/pve/qemu-server/NUMBER.conf``).

The disks are *volumes*, such as ``local-lvm:vm-101-disk-0``. Where a volume is stored, only
Proxmox knows; the file name in it is what is looked for. Sections of snapshots are ignored.

Source: qm.conf(5).
"""

from __future__ import annotations

import re
from typing import Any

from ganeti import errors
from ganeti.foreign.machine import (
    Disk,
    Machine,
    Nic,
    mac_address,
    positive,
    size_bytes,
    sorted_by_boot,
    whole_mib,
)

_LINE = re.compile(r"([A-Za-z][A-Za-z0-9_-]*):\s*(.*)")
_DISK = re.compile(r"(virtio|scsi|sata|ide)[0-9]{1,2}")
_NIC = re.compile(r"net[0-9]{1,2}")
_SIZE = re.compile(r"([0-9]+)([KMGT]?)")
_SUFFIXES = {".qcow2": "qcow2", ".raw": "raw", ".vmdk": "vmdk"}
_FORMATS = {**{kind: kind for kind in _SUFFIXES.values()}, "qcow": "qcow", "vpc": "vpc"}
# The order in which Proxmox looks for a disk that boots, when nothing says which one it is.
_BUSES = ("ide", "scsi", "virtio", "sata")
_DISK_TYPES = {"virtio": "paravirtual", "scsi": "scsi", "sata": "ide", "ide": "ide"}
_NIC_TYPES = {"virtio": "paravirtual", "e1000": "e1000", "rtl8139": "rtl8139"}
# What is read, and what says nothing about the machine itself.
_READ = frozenset(
    ("name", "memory", "cores", "sockets", "tags", "cpu", "bios", "boot", "bootdisk", "vcpus")
)
_ABOUT = frozenset((
    "agent", "digest", "lock", "meta", "ostype", "parent", "protection", "runningcpu",
    "runningmachine", "scsihw", "smbios1", "snaptime", "snapstate", "template", "vmgenid",
    "vmstate", "numa", "unused", "description",
))  # fmt: skip
_MEMORY_MIB = 512  # the default of Proxmox


def parse_proxmox(text: str) -> Machine:
    """Read the configuration of a machine.

    :raises ParseError: a line has another form, or a value cannot be understood.
    """
    values = _values(text)
    if not values:
        raise errors.ParseError("the description is empty")
    notes: list[str] = []
    disks: list[tuple[str, Disk]] = []
    nics, models = [], set()
    for key in sorted(values, key=_natural):
        value = values[key]
        if _DISK.fullmatch(key):
            disk = _disk(key, value, notes)
            if disk is not None:
                disks.append((key, disk))
        elif _NIC.fullmatch(key):
            model, nic = _nic(key, value)
            nics.append(nic)
            models.add(model)
        elif key.startswith("unused"):
            notes.append(f"{key}: a disk which is not attached was left out ({value:.60})")
        elif key not in _READ | _ABOUT:
            notes.append(f"{key} was left out ({value:.60})")
    buses = {key.rstrip("0123456789") for key, _disk in disks}
    params: dict[str, Any] = {"kernel_path": ""}
    for kinds, table, name, what in (
        (buses, _DISK_TYPES, "disk_type", "bus of the disks"),
        (models, _NIC_TYPES, "nic_type", "model of the interfaces"),
    ):
        if len(kinds) > 1:
            notes.append(f"the {what} is different for each: {', '.join(sorted(kinds))}")
        elif kinds and (kind := next(iter(kinds))) in table:
            params[name] = table[kind]
        elif kinds:
            notes.append(f"the {what} is {kind}, and becomes paravirtual")
    if values.get("bios") == "ovmf":
        notes.append(
            "the guest boots with UEFI: set the hypervisor parameter firmware before it starts"
        )
    if values.get("cpu", "").partition(",")[0] == "host":
        params["cpu_type"] = "host"
    cores = positive(values.get("cores", "1"), "cores")
    sockets = positive(values.get("sockets", "1"), "sockets")
    memory = values.get("memory", str(_MEMORY_MIB))
    return Machine(
        name=values.get("name", ""),
        memory_mib=positive(_option(memory, "current") or memory, "memory"),
        vcpus=cores * sockets,
        disks=sorted_by_boot(disks, _boot_order(values, notes), notes),
        nics=tuple(nics),
        hvparams=params,
        tags=tuple(re.findall(r"[^;,\s]+", values.get("tags", ""))),
        notes=tuple(notes),
    )


def _values(text: str) -> dict[str, str]:
    """Return the values of the machine as it is now, without those of its snapshots."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if line.startswith("["):
            break
        if not line or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise errors.ParseError(f"line {number} is not 'key: value': {line!r:.60}")
        found[match[1]] = match[2]
    return found


def _natural(key: str) -> tuple[int, str, int]:
    """``scsi2`` comes before ``scsi10``; disks are in the order of their buses."""
    word = key.rstrip("0123456789")
    bus = _BUSES.index(word) if word in _BUSES else len(_BUSES)
    return bus, word, int(key[len(word) :] or 0)


def _boot_order(values: dict[str, str], notes: list[str]) -> list[str]:
    """Return the devices from which the machine boots, the first one first.

    The value is ``order=scsi0;net0``, or in older files letters for kinds of devices: ``c`` for the
    disk ``bootdisk``, ``d`` for a CD and ``n`` for the network.
    """
    value = values.get("boot", "")
    order, legacy = _option(value, "order"), _option(value, "legacy")
    if order:
        return [name.strip() for name in order.split(";") if name.strip()]
    letters = legacy or ("" if "=" in value else value.partition(",")[0].strip())
    disk = values.get("bootdisk", "").strip()
    if letters and not letters.startswith("c"):
        names = {"a": "a floppy", "d": "a CD", "n": "the network"}
        notes.append(
            f"the machine boots from {names.get(letters[0], letters)} first; the instance boots"
            " from disk 0"
        )
    return [disk] if disk else []


def _option(value: str, name: str) -> str:
    for part in value.split(","):
        key, equals, rest = part.partition("=")
        if equals and key.strip() == name:
            return rest.strip()
    return ""


def _disk(key: str, value: str, notes: list[str]) -> Disk | None:
    volume = value.partition(",")[0].strip()
    if _option(value, "media") == "cdrom" or volume == "none":
        notes.append(f"{key}: a CD was left out")
        return None
    path = volume if volume.startswith("/") else volume.rpartition(":")[2]
    if not path:
        raise errors.ParseError(f"{key} has no volume: {value!r:.60}")
    size_mib = 0
    if size := _option(value, "size"):
        match = _SIZE.fullmatch(size)
        if match is None:
            raise errors.ParseError(f"{key} has the size {size!r:.40}")
        size_mib = whole_mib(size_bytes(match[1], match[2] or "b"))
    suffix = next((end for end in _SUFFIXES if path.endswith(end)), "")
    # A volume without a suffix is a block device of the storage.
    given = _FORMATS.get(_option(value, "format"))
    return Disk(path, given or _SUFFIXES.get(suffix, "raw"), size_mib)


def _nic(key: str, value: str) -> tuple[str, Nic]:
    model, _equals, mac = value.partition(",")[0].partition("=")
    bridge, tag = _option(value, "bridge"), _option(value, "tag")
    if tag and not tag.isdigit():
        raise errors.ParseError(f"{key} has the VLAN {tag!r:.40}")
    return model.strip(), Nic(
        mac=mac_address(mac),
        mode="bridged" if bridge else "",
        link=bridge,
        vlan=f".{tag}" if tag else "",
    )
