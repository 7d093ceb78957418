"""Writes an OVF description, with or without the section of Ganeti.

Source: DMTF DSP0243 1.1.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple
from xml.etree import ElementTree

from ganeti.foreign.machine import MIB, Machine
from ganeti.foreign.ovf import FORMAT_URIS
from ganeti.wire import json

_OVF = "http://schemas.dmtf.org/ovf/envelope/1"
_RASD = "http://schemas.dmtf.org/wbem/wscim/1/cim-schema/2/CIM_ResourceAllocationSettingData"
_VSSD = "http://schemas.dmtf.org/wbem/wscim/1/cim-schema/2/CIM_VirtualSystemSettingData"
_GANETI = "http://ganeti"
_NAMES = {"ovf": _OVF, "rasd": _RASD, "vssd": _VSSD, "gnt": _GANETI}


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*", re.ASCII)


class Image(NamedTuple):
    """The image of a disk: name and size of the file, its format, and the size of the disk.

    Sizes are in bytes.
    """

    file: str
    file_size: int
    format: str
    size: int
    gzip: bool


def _add(
    parent: ElementTree.Element, tag: str, text: str | None = None, /, **attributes: str
) -> ElementTree.Element:
    """Add an element; tags have a prefix of ``_NAMES``, attributes are those of OVF."""
    prefix, _colon, local = tag.partition(":")
    made = ElementTree.SubElement(
        parent,
        f"{{{_NAMES[prefix]}}}{local}",
        {f"{{{_OVF}}}{key}": value for key, value in attributes.items()},
    )
    made.text = text
    return made


def _capacity(size: int) -> dict[str, str]:
    """Return the attributes with the exact size of a disk; in MiB if it has whole ones."""
    size_mib, rest = divmod(size, MIB)
    if rest:
        return {"capacity": str(size), "capacityAllocationUnits": "byte"}
    return {"capacity": str(size_mib), "capacityAllocationUnits": "byte * 2^20"}


def describe(machine: Machine, images: Sequence[Image], *, external: bool) -> str:
    """Return the description of a machine.

    :param images: those of its disks, in their order.
    :param external: leave out the section of Ganeti, for programs which refuse unknown sections.
    """
    for prefix, uri in _NAMES.items():
        ElementTree.register_namespace(prefix, uri)
    root = ElementTree.Element(f"{{{_OVF}}}Envelope")
    references = _add(root, "ovf:References")
    section = _add(root, "ovf:DiskSection")
    _add(section, "ovf:Info", "Virtual disks")
    for number, image in enumerate(images):
        extra = {"compression": "gzip"} if image.gzip else {}
        _add(
            references, "ovf:File", href=image.file, id=f"file{number}",
            size=str(image.file_size), **extra,
        )  # fmt: skip
        _add(
            section, "ovf:Disk", diskId=f"disk{number}", fileRef=f"file{number}",
            **_capacity(image.size),
            format=FORMAT_URIS.get(image.format, image.format),
        )  # fmt: skip
    networks = _add(root, "ovf:NetworkSection")
    _add(networks, "ovf:Info", "Networks of the machine")
    for name in sorted({_network(machine, number) for number in range(len(machine.nics))}):
        _add(networks, "ovf:Network", name=name)
    if not external:
        _our_section(root, machine)
    _system(root, machine, len(images))
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode", xml_declaration=False)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _network(machine: Machine, number: int) -> str:
    return machine.nics[number].link or machine.nics[number].mode or "default"


def _our_section(root: ElementTree.Element, machine: Machine) -> None:
    section = _add(root, "gnt:GanetiSection")
    _add(section, "gnt:Version", "0")
    _add(section, "gnt:DiskTemplate", machine.disk_template)
    _add(section, "gnt:AutoBalance", str(machine.beparams.get("auto_balance", True)))
    _add(section, "gnt:Tags", " ".join(machine.tags))
    system = _add(section, "gnt:OperatingSystem")
    _add(system, "gnt:Name", machine.os)
    parameters = _add(system, "gnt:Parameters")
    for name, value in sorted(machine.osparams.items()):
        _add_parameter(parameters, name, value)
    hypervisor = _add(section, "gnt:Hypervisor")
    _add(hypervisor, "gnt:Name", machine.hypervisor)
    parameters = _add(hypervisor, "gnt:Parameters")
    for name, value in sorted(machine.hvparams.items()):
        _add_parameter(parameters, name, str(value))
    network = _add(section, "gnt:Network")
    for number, nic in enumerate(machine.nics):
        made = _add(network, "gnt:Nic", name=_network(machine, number))
        for name, value in (
            ("Mode", nic.mode), ("MACAddress", nic.mac), ("IPAddress", nic.ip), ("Link", nic.link),
        ):  # fmt: skip
            _add(made, f"gnt:{name}", value or "none")
        if nic.vlan:
            _add(made, "gnt:VLAN", nic.vlan)


def _add_parameter(parent: ElementTree.Element, name: str, value: str) -> None:
    """Add a parameter; what XML would not give back is in attributes, too."""
    exact = {}
    tag = name
    if not _NAME.fullmatch(name):
        tag, exact[f"{{{_GANETI}}}name"] = "Parameter", json.dumps(name)
    # Readers strip spaces, and XML has no place for control characters.
    shown = "".join(
        c if c.isprintable() or c in "\t\n" else "\N{REPLACEMENT CHARACTER}" for c in value
    )
    if shown != value or shown.strip() != value:
        exact[f"{{{_GANETI}}}exact"] = json.dumps(value)
    _add(parent, f"gnt:{tag}", shown).attrib.update(exact)


def _system(root: ElementTree.Element, machine: Machine, disks: int) -> None:
    system = _add(root, "ovf:VirtualSystem", id=machine.name)
    _add(system, "ovf:Info", "A virtual machine")
    _add(system, "ovf:Name", machine.name)
    # Number 1 is "other" in the list of the standard.
    _add(_add(system, "ovf:OperatingSystemSection", id="1"), "ovf:Info", "Operating system")
    hardware = _add(system, "ovf:VirtualHardwareSection")
    _add(hardware, "ovf:Info", "Virtual hardware")
    kind = _add(hardware, "ovf:System")
    _add(kind, "vssd:ElementName", "Virtual hardware")
    _add(kind, "vssd:InstanceID", "0")
    _add(kind, "vssd:VirtualSystemIdentifier", machine.name)
    _add(kind, "vssd:VirtualSystemType", "ganeti-ovf")
    numbers = iter(range(1, 4 + disks + len(machine.nics)))

    def item(name: str, kind: str, **values: str) -> None:
        # The standard wants the elements in the order of the alphabet.
        fields = {
            "ElementName": name, "InstanceID": str(next(numbers)), "ResourceType": kind, **values,
        }  # fmt: skip
        made = _add(hardware, "ovf:Item")
        for key in sorted(fields):
            _add(made, f"rasd:{key}", fields[key])

    item(f"{machine.vcpus} virtual processors", "3", VirtualQuantity=str(machine.vcpus))
    item(
        f"{machine.memory_mib} MiB of memory", "4",
        AllocationUnits="byte * 2^20", VirtualQuantity=str(machine.memory_mib),
    )  # fmt: skip
    item("SCSI controller", "6", ResourceSubType="lsilogic")
    for number in range(disks):
        item(
            f"disk{number}", "17", AddressOnParent=str(number), Parent="3",
            HostResource=f"ovf:/disk/disk{number}",
        )  # fmt: skip
    for number, nic in enumerate(machine.nics):
        values = {"Address": nic.mac} if nic.mac else {}
        item(f"nic{number}", "10", Connection=_network(machine, number), **values)
