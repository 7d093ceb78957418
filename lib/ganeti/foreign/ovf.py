"""Reads OVF, the Open Virtualization Format, with the section of Ganeti.

An appliance is a file ``NAME.ovf`` with the images of its disks, and optionally ``NAME.mf`` with
their checksums. OVA is a tar archive of these files (:mod:`ganeti.foreign.ova`). The section
``GanetiSection`` has what OVF cannot say, such as the OS definition and the disk template.

Source: DMTF DSP0243 1.1 and 2.1; the samples of Ganeti.
"""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Sequence
from typing import NamedTuple
from xml.etree import ElementTree

from ganeti import errors
from ganeti.foreign import ovf_hardware
from ganeti.foreign.machine import (
    MIB,
    Disk,
    Machine,
    Nic,
    local,
    mac_address,
    positive,
    read_xml,
    size_bytes,
    whole_mib,
)
from ganeti.wire import json

_UNIT = re.compile(r"\s*byte\s*\*\s*2\s*\^\s*([0-9]{1,2})\s*")
_UNITS = {
    "": MIB, "megabytes": MIB, "mb": MIB, "kilobytes": 1 << 10, "gigabytes": 1 << 30, "byte": 1,
    "bytes": 1,
}  # fmt: skip
_FORMATS = (("vmdk", "vmdk"), ("qcow", "qcow2"), ("raw", "raw"), ("vdi", "vdi"), ("vhdx", "vhdx"),
    ("vhd", "vpc"),
)  # fmt: skip
# The name may have any characters, also parentheses, but no directory. SHA2-256 is SHA256.
_MANIFEST = re.compile(
    r"SHA(?:2?-)?(1|256|512)\s*\(\s*([^/]{1,255}?)\s*\)\s*=\s*([0-9a-f]{40,128})", re.IGNORECASE
)
# What a format says about a CD; some programs list the images of CDs among the disks.
_CD_FORMATS = ("ecma-119", "iso9660")
# Sections of the description; the first ones are read, the next ones have nothing for an instance.
_READ = frozenset((
    "References", "DiskSection", "NetworkSection", "VirtualSystem", "GanetiSection", "Name",
    "VirtualHardwareSection", "DeploymentOptionSection", "BootDeviceSection",
))  # fmt: skip
_ABOUT = frozenset((
    "Info", "AnnotationSection", "EulaSection", "Strings", "OperatingSystemSection", "Machine",
))  # fmt: skip
_DIGITS = {"SHA1": 40, "SHA256": 64, "SHA512": 128}
_NONE = ("", "none", "None", "auto")
#: What the format attribute of a disk says, by the format of the image.
FORMAT_URIS = {
    "vmdk": "http://www.vmware.com/specifications/vmdk.html#sparse",
    "cow": "http://www.gnome.org/~markmc/qcow-image-format.html",
    "raw": "raw",
}


class Checksum(NamedTuple):
    """A line of a manifest: kind of the checksum, name of the file, and the checksum in hex."""

    kind: str
    file: str
    digest: str


def parse_manifest(text: str) -> list[Checksum]:
    """Read a manifest (``.mf``).

    :raises ParseError: a line has another form.
    """
    found = []
    for line in text.splitlines():
        if not line.strip():
            continue
        match = _MANIFEST.fullmatch(line.strip())
        if match is None or len(match[3]) != _DIGITS[f"SHA{match[1]}"]:
            raise errors.ParseError(f"a line of the manifest is {line.strip()!r:.80}")
        found.append(Checksum(f"SHA{match[1]}", match[2], match[3].lower()))
    return found


def parse_ovf(text: str) -> Machine:
    """Read the description of one virtual machine.

    :raises ParseError: the text is not such a description, or a value in it is invalid.
    """
    root = read_xml(text)
    if local(root.tag) != "Envelope":
        raise errors.ParseError(f"the description is a <{local(root.tag):.40}>, not an <Envelope>")
    systems = _all(root, "VirtualSystem")
    if len(systems) != 1:
        raise errors.ParseError(
            f"the description has {len(systems)} virtual systems; only one is supported"
        )
    system = systems[0]
    hardware = ovf_hardware.items(system, root)
    ours = _first(root, "GanetiSection")
    notes = [
        *ovf_hardware.unused(hardware),
        *dict.fromkeys(ovf_hardware.boots_from(root)),
        *_unused_sections(root, system),
    ]
    machine = Machine(
        name=_text(system, "Name") or _attribute(system, "id"),
        memory_mib=_memory(hardware),
        vcpus=_processors(hardware),
        disks=tuple(_disks(root, hardware, notes)),
        nics=tuple(_nics(hardware, ours, notes)),
        hvparams={"kernel_path": ""},
        notes=tuple(notes),
    )
    return machine if ours is None else _with_our_section(machine, ours)


def _all(element: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    return [one for one in element.iter() if local(one.tag) == name]


def _first(element: ElementTree.Element | None, name: str) -> ElementTree.Element | None:
    if element is None:
        return None
    return next((one for one in element if local(one.tag) == name), None)


def _text(element: ElementTree.Element | None, *names: str) -> str:
    for name in names:
        element = _first(element, name)
    return "" if element is None else (element.text or "").strip()


def _attribute(element: ElementTree.Element, name: str) -> str:
    return next((value for key, value in element.attrib.items() if local(key) == name), "")


def _unused_sections(root: ElementTree.Element, system: ElementTree.Element) -> list[str]:
    return [
        f"the section {local(one.tag):.60} was left out"
        for parent in (root, system)
        for one in parent
        if local(one.tag) and local(one.tag) not in _READ | _ABOUT
    ]


def _memory(hardware: Sequence[ovf_hardware.Item]) -> int:
    for item in hardware:
        if item.kind == ovf_hardware.MEMORY:
            number = positive(item.values.get("VirtualQuantity", ""), "the memory")
            unit = item.values.get("AllocationUnits", "")
            if found := _UNIT.fullmatch(unit):
                return max(1, whole_mib(number << int(found[1])))
            if unit.lower() not in _UNITS:
                raise errors.ParseError(f"the unit of the memory is {unit!r:.40}")
            return max(1, whole_mib(number * _UNITS[unit.lower()]))
    raise errors.ParseError("the description does not say how much memory the machine has")


def _processors(hardware: Sequence[ovf_hardware.Item]) -> int:
    for item in hardware:
        if item.kind == ovf_hardware.PROCESSOR:
            return positive(item.values.get("VirtualQuantity", ""), "the number of processors")
    return 1


def _disks(
    root: ElementTree.Element, hardware: Sequence[ovf_hardware.Item], notes: list[str]
) -> list[Disk]:
    """Return the hard disks in the order of their places, each of them once."""
    files = {_attribute(one, "id"): one for one in _all(root, "File")}
    media = ovf_hardware.removable_media(hardware)
    known: dict[str, Disk] = {}
    left_out: set[str] = set()
    for disk in _all(root, "Disk"):
        name, reference = _attribute(disk, "diskId"), _attribute(disk, "fileRef")
        if not reference:
            notes.append(f"disk {name} has no image and was left out")
            left_out.add(name)
            continue
        if reference not in files:
            raise errors.ParseError(f"the description names no file for {reference!r:.60}")
        if media & {name, reference} or _is_cd(disk):
            notes.append(f"the image of a CD, {_attribute(files[reference], 'href')}, was left out")
            left_out.add(name)
            continue
        known[name] = _disk(disk, files[reference])
    # Some programs write one disk for all items of the hardware, or no items at all.
    order = [name for name in ovf_hardware.in_order(hardware, known) if name not in left_out]
    for name in order:
        if name not in known:
            raise errors.ParseError(f"the description has no disk {name!r:.60}")
    listed = {_attribute(disk, "fileRef") for disk in _all(root, "Disk")}
    notes += [
        f"the file {_attribute(file, 'href')} was left out: it is not the image of a disk"
        for name, file in files.items()
        if name not in listed
    ]
    return [known[name] for name in order]


def _is_cd(disk: ElementTree.Element) -> bool:
    return any(word in _attribute(disk, "format").lower() for word in _CD_FORMATS)


def _disk(disk: ElementTree.Element, file: ElementTree.Element) -> Disk:
    href = _attribute(file, "href")
    # A reference is a URI: it may have %20 for a space.
    if not is_plain_name(href) or not is_plain_name(urllib.parse.unquote(href)):
        raise errors.ParseError(f"{href!r:.80} is not the name of a file beside the description")
    if _attribute(file, "chunkSize"):
        raise errors.ParseError(f"the file {href} is split into parts. Make one file of them.")
    if _attribute(disk, "parentRef"):
        raise errors.ParseError(
            f"the image {href} has only the differences to another disk. Merge both before."
        )
    compression = _attribute(file, "compression")
    if compression not in ("", "identity", "gzip"):
        raise errors.ParseError(f"{href} is compressed with {compression!r:.40}")
    said = _attribute(disk, "format").lower()
    shown = href.removesuffix(".gz").rpartition(".")[2].lower()
    kind = next((kind for word, kind in _FORMATS if word in said), "") or next(
        (kind for word, kind in _FORMATS if word == shown), ""
    )
    size = _attribute(disk, "capacity")
    unit = _attribute(disk, "capacityAllocationUnits") or "byte"
    size_mib = 0
    if size:
        if found := _UNIT.fullmatch(unit):
            size_mib = whole_mib(size_bytes(size, "b") << int(found[1]))
        else:
            size_mib = whole_mib(size_bytes(size, unit))
    return Disk(href, kind, size_mib, gzip=compression == "gzip")


def is_plain_name(name: str) -> bool:
    """Tell whether a name is that of a file in the directory of the appliance."""
    return bool(name) and "/" not in name and "\0" not in name and not name.startswith(".")


def _nics(
    hardware: Sequence[ovf_hardware.Item], ours: ElementTree.Element | None, notes: list[str]
) -> list[Nic]:
    section = _first(ours, "Network")
    described = [] if section is None else [one for one in section if local(one.tag) == "Nic"]
    if described:
        return [
            Nic(
                mac=mac_address(_given(one, "MACAddress")),
                mode=_given(one, "Mode"),
                link=_given(one, "Link"),
                ip=_given(one, "IPAddress"),
                vlan=_given(one, "VLAN"),
            )
            for one in described
        ]
    found: list[Nic] = []
    for item in hardware:
        if item.kind != ovf_hardware.NETWORK:
            continue
        address = item.values.get("Address", "")
        if re.fullmatch(r"[0-9A-Fa-f]{12}|[0-9A-Fa-f]{2}(-[0-9A-Fa-f]{2}){5}", address):
            address = ":".join(re.findall("..", address.replace("-", "")))
        if network := item.values.get("Connection"):
            notes.append(
                f"interface {len(found)} was connected to network {network!r:.60}, and gets the"
                " defaults of the cluster"
            )
        # Some programs write the position on the bus there.
        found.append(Nic(mac=mac_address(address) if ":" in address else ""))
    return found


def _given(element: ElementTree.Element | None, *names: str) -> str:
    text = _text(element, *names)
    return "" if text in _NONE else text


def _parameters(section: ElementTree.Element | None) -> dict[str, str]:
    parameters = _first(section, "Parameters")
    if parameters is None:
        return {}
    found = {}
    for one in parameters:
        name = _exact(one, "name", local(one.tag))
        if name:
            found[name] = _exact(one, "exact", (one.text or "").strip())
    return found


def _exact(element: ElementTree.Element, attribute: str, otherwise: str) -> str:
    """Return the text which an attribute has in JSON, because XML would not give it back."""
    value = _attribute(element, attribute)
    text = json.loads(value) if value else otherwise
    if not isinstance(text, str):
        raise errors.ParseError(f"attribute {attribute} of a parameter is no text: {value:.60}")
    return text


def _with_our_section(machine: Machine, ours: ElementTree.Element) -> Machine:
    """Add what the section of Ganeti says."""
    hypervisor = _given(ours, "Hypervisor", "Name")
    hvparams = _parameters(_first(ours, "Hypervisor"))
    balance = _given(ours, "AutoBalance")
    return Machine(
        name=machine.name,
        memory_mib=machine.memory_mib,
        vcpus=machine.vcpus,
        disks=machine.disks,
        nics=machine.nics,
        hypervisor=hypervisor or machine.hypervisor,
        hvparams=hvparams or machine.hvparams,
        beparams={"auto_balance": balance == "True"} if balance else {},
        osparams=_parameters(_first(ours, "OperatingSystem")),
        disk_template=_given(ours, "DiskTemplate"),
        os=_given(ours, "OperatingSystem", "Name"),
        tags=tuple(_given(ours, "Tags").replace(",", " ").split()),
        notes=machine.notes,
    )
