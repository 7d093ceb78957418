"""The virtual hardware of an OVF description: its items, and what they say about disks.

OVF 1 has items of one kind; OVF 2 has items of their own for storage and for network interfaces.
An item that exists in several configurations counts only in the one that the description names as
its default. The order of the disks is that of their places on the controllers.

Source: DMTF DSP0243 1.1 and 2.1; DMTF DSP1041 and CIM_ResourceAllocationSettingData for the kinds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple
from xml.etree import ElementTree

from ganeti.foreign.machine import local

# Kinds of virtual hardware (CIM ResourceType).
PROCESSOR, MEMORY, NETWORK, DISK = "3", "4", "10", "17"
# OVF 2 calls a disk a logical disk, too.
_DISKS = frozenset((DISK, "31"))
_REMOVABLE = {"14": "floppy", "15": "CD", "16": "DVD"}
# Buses, which say where a disk is; the guest gets those of the hypervisor.
_CONTROLLERS = frozenset(("5", "6", "7", "20", "25"))
_USED = frozenset((PROCESSOR, MEMORY, NETWORK)) | _DISKS | _CONTROLLERS
_ITEMS = ("Item", "StorageItem", "EthernetPortItem")
#: Controllers in the order in which a BIOS looks for the disk that boots: IDE, SATA, SCSI, others.
_BUS_ORDER = {"5": 0, "20": 1, "6": 2}


class Item(NamedTuple):
    """A piece of hardware: its values by name, such as ``ResourceType``."""

    values: Mapping[str, str]

    @property
    def kind(self) -> str:
        """The kind, a number."""
        return self.values.get("ResourceType", "")

    @property
    def resource(self) -> str:
        """The ID of its disk or file; empty for none."""
        return self.values.get("HostResource", "").rpartition("/")[2]

    @property
    def is_disk(self) -> bool:
        """Whether it is a hard disk."""
        return self.kind in _DISKS

    @property
    def name(self) -> str:
        """What to call it in a message."""
        shown = self.values.get("ElementName") or self.values.get("Caption") or ""
        return shown or self.values.get("OtherResourceType") or f"of kind {self.kind or 'unknown'}"


def items(system: ElementTree.Element, root: ElementTree.Element) -> list[Item]:
    """Return the items of the hardware which count in the default configuration."""
    chosen = _default_configuration(root)
    found = []
    for element in system.iter():
        if local(element.tag) not in _ITEMS:
            continue
        attributes = {local(key): value for key, value in element.attrib.items()}
        wanted = attributes.get("configuration", "").split()
        # An item with a bound is the least or the largest value for another item.
        if (wanted and chosen not in wanted) or attributes.get("bound", "normal") != "normal":
            continue
        values: dict[str, str] = {}
        for part in element:
            values.setdefault(local(part.tag), (part.text or "").strip())
        found.append(Item(values))
    return found


def _default_configuration(root: ElementTree.Element) -> str:
    first = ""
    for element in root.iter():
        if local(element.tag) != "Configuration":
            continue
        attributes = {local(key): value for key, value in element.attrib.items()}
        name = attributes.get("id", "")
        if attributes.get("default") in ("true", "1"):
            return name
        first = first or name
    return first


def unused(hardware: Sequence[Item]) -> list[str]:
    """Name the items which an instance does not get; a sentence for each."""
    return [
        f"the {_REMOVABLE[item.kind]} drive {item.name!r:.60} was left out"
        if item.kind in _REMOVABLE
        else f"the item {item.name!r:.60} (resource type {item.kind or 'missing'}) was left out"
        for item in hardware
        if item.kind not in _USED
    ]


def removable_media(hardware: Sequence[Item]) -> frozenset[str]:
    """Return the IDs of disks and files which are in drives for CDs and floppies only."""
    hard = {item.resource for item in hardware if item.is_disk}
    return frozenset(item.resource for item in hardware if item.kind in _REMOVABLE) - hard - {""}


def in_order(hardware: Sequence[Item], known: Collection[str]) -> list[str]:
    """Return the IDs of the disks in the order of their places on the controllers, each once.

    Disks without an item come last, in the order of the description.
    """
    controllers = {item.values.get("InstanceID", ""): item for item in hardware}

    def place(item: Item) -> tuple[int, int, int, int]:
        parent = controllers.get(item.values.get("Parent", ""))
        if parent is None or parent.kind not in _CONTROLLERS:
            return len(_BUS_ORDER) + 1, 0, 0, _number(item.values.get("AddressOnParent", ""))
        return (
            _BUS_ORDER.get(parent.kind, len(_BUS_ORDER)),
            _number(parent.values.get("Address", "")),
            _number(parent.values.get("InstanceID", "")),
            _number(item.values.get("AddressOnParent", "")),
        )

    disks = sorted((item for item in hardware if item.is_disk), key=place)
    return list(dict.fromkeys([*(item.resource for item in disks if item.resource), *known]))


def _number(text: str) -> int:
    """Return a number for the order; a place without one comes last."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 1 << 31


def boots_from(root: ElementTree.Element) -> Iterator[str]:
    """Name settings of the first boot device and of the firmware, which an import cannot use."""
    for element in root.iter():
        name = local(element.tag)
        values = {local(key): value for key, value in element.attrib.items()}
        key, value = values.get("key", ""), values.get("value", "")
        if name == "BootDeviceSection":
            yield "the section BootDeviceSection was left out: check that disk 0 boots"
        elif key in ("bios.hddOrder", "bios.bootOrder"):
            yield f"the setting {key} = {value!r:.60} was left out: check that disk 0 boots"
        elif (key, value.lower()) == ("firmware", "efi") or (
            name == "Firmware" and values.get("type", "").upper().startswith("EFI")
        ):
            yield (
                "the guest boots with UEFI: set the hypervisor parameter firmware before it starts"
            )
