"""A virtual machine as another program describes it, in the terms of this project.

What has no counterpart here, such as a CD or a device of the host, is left out, and a line in
``Machine.notes`` says so: the administrator decides whether it matters.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from xml.etree import ElementTree

from ganeti import errors

MIB = 1 << 20
# Labels of letters, digits and hyphens, with dots between them.
_NAME = re.compile(
    r"(?=.{1,255}$)[a-z0-9_]([a-z0-9_-]{0,62}(?<!-))?(\.[a-z0-9_]([a-z0-9_-]{0,62}(?<!-))?)*"
)
_BARE_AMPERSAND = re.compile(r"&(?!#[0-9]{1,7};|#x[0-9A-Fa-f]{1,6};|[A-Za-z][A-Za-z0-9._-]{0,40};)")
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}", re.IGNORECASE)
# Units of sizes as the three kinds of descriptions write them, in bytes.
_UNITS = {
    "b": 1, "byte": 1, "bytes": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "k": 1 << 10, "kib": 1 << 10, "m": MIB, "mib": MIB, "g": 1 << 30, "gib": 1 << 30,
    "t": 1 << 40, "tib": 1 << 40,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Disk:
    """A disk.

    :ivar path: its image: an absolute path, or one relative to the description.
    :ivar format: format of the image as qemu-img names it; empty when it is not known.
    :ivar size_mib: size; 0 when the description does not say it.
    :ivar gzip: whether the image is compressed with gzip as a whole.
    """

    path: str
    format: str = ""
    size_mib: int = 0
    gzip: bool = False


@dataclass(frozen=True, slots=True)
class Nic:
    """A network interface; empty values mean the defaults of the cluster."""

    mac: str = ""
    mode: str = ""
    link: str = ""
    vlan: str = ""
    ip: str = ""


#: The hypervisor of a description which names none, as those of libvirt and Proxmox.
USUAL_HYPERVISOR = "kvm"


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A virtual machine.

    :ivar disk_template: kind of the disks; empty when the description does not say it.
    :ivar os: the OS definition; empty when the description does not say it.
    :ivar notes: what was left out, a sentence for each.
    """

    name: str
    memory_mib: int
    vcpus: int
    disks: tuple[Disk, ...] = ()
    nics: tuple[Nic, ...] = ()
    hypervisor: str = USUAL_HYPERVISOR
    hvparams: dict[str, Any] = field(default_factory=dict)
    beparams: dict[str, Any] = field(default_factory=dict)
    osparams: dict[str, str] = field(default_factory=dict)
    disk_template: str = ""
    os: str = ""
    tags: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def is_name(text: str) -> bool:
    """Return True if a text can be the name of an instance."""
    return _NAME.fullmatch(text) is not None


def size_bytes(number: str, unit: str) -> int:
    """Return a size in bytes.

    :raises ParseError: the number or the unit is not known.
    """
    factor = _UNITS.get(unit.strip().lower())
    if factor is None or not re.fullmatch(r"\s*[0-9]{1,18}\s*", number):
        raise errors.ParseError(f"{number.strip()!r:.40} {unit!r:.40} is not a size")
    return int(number) * factor


def whole_mib(size: int) -> int:
    """Round a number of bytes up to MiB."""
    return -(-size // MIB)


def positive(text: str, what: str) -> int:
    """Read a number from 1.

    :raises ParseError: the text is not such a number.
    """
    text = text.strip()
    if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) < 1:
        raise errors.ParseError(f"{what} is {text!r:.40}, not a number from 1")
    return int(text)


def mac_address(text: str) -> str:
    """Return a MAC address in lower case; empty for an empty text.

    :raises ParseError: the text is not a MAC address.
    """
    text = text.strip()
    if text and not _MAC.fullmatch(text):
        raise errors.ParseError(f"{text!r:.40} is not a MAC address")
    return text.lower()


def read_xml(text: str) -> ElementTree.Element:
    """Read XML of others. Entities, with which a short text can become a huge one, are refused.

    :raises ParseError: the text is not XML, or declares a document type.
    """
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise errors.ParseError("the description declares a document type, which is not accepted")
    try:
        return ElementTree.fromstring(text)
    except (ElementTree.ParseError, ValueError) as err:
        # Some programs do not escape an "&" in the name of a file, which has no other meaning.
        repaired = _BARE_AMPERSAND.sub("&amp;", text)
        if repaired == text:
            raise errors.ParseError(f"the description is not XML: {err}") from err
    try:
        return ElementTree.fromstring(repaired)
    except (ElementTree.ParseError, ValueError) as err:
        raise errors.ParseError(f"the description is not XML: {err}") from err


def sorted_by_boot(
    disks: Sequence[tuple[str, Disk]], boot_order: Sequence[str], notes: list[str]
) -> tuple[Disk, ...]:
    """Return disks in the order in which the machine tries to boot them, then the others.

    An instance boots from disk 0. When the machine tries another device first, a note says so.

    :param disks: each with the name that the boot order has for it.
    :param boot_order: names of devices, also of those which are no disks.
    """
    by_name = dict(disks)
    first = [name for name in dict.fromkeys(boot_order) if name in by_name]
    if boot_order and boot_order[0] not in by_name:
        notes.append(
            f"the machine boots from {boot_order[0]} first; the instance boots from disk 0"
        )
    return tuple(by_name[name] for name in dict.fromkeys([*first, *by_name]))


def local(tag: object) -> str:
    """Return the name of an element or attribute without its namespace; empty for a comment."""
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""
