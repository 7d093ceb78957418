"""Reading the output of LVM; pure functions.

LVM writes its warnings to the standard error, which only :func:`says_consistent`,
:func:`says_device_missing` and :func:`names_used_twice` read.

Source: lvs(8), pvs(8), vgs(8), LVM 2.03.
"""

from __future__ import annotations

import dataclasses
import datetime
import math
import re

from ganeti import errors
from ganeti.objects.transfer import LvmPvInfo
from ganeti.storage.lvm.argv import (
    GROUP_FIELDS,
    NODE_LIST_FIELDS,
    PHYSICAL_FIELDS,
    SEPARATOR,
    SNAPSHOT_FIELDS,
    VOLUME_FIELDS,
)

_TAG_MAX_CHARS = 128
_GROUP = r"([A-Za-z0-9+_.-]+)"
# Of LVM 2.03 and of older versions.
_USED_TWICE = re.compile(
    rf"VG name {_GROUP} is used by VGs|Multiple VGs found with the same name: skipping {_GROUP}"
    rf"|Duplicate VG name {_GROUP}:"
)
_NOT_IN_TAGS = re.compile(r"[^-A-Za-z0-9_+.]")
# "/dev/sda3(25)": the number is the first extent.
_DEVICE = re.compile(r"^(.*)\((\d+)\)$")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LogicalVolume:
    """A logical volume; ``major`` and ``minor`` are -1 while it is inactive."""

    group: str
    name: str
    size_bytes: int
    attributes: str
    major: int
    minor: int
    extent_bytes: int
    stripes: int
    tags: tuple[str, ...]
    devices: tuple[str, ...]

    @property
    def is_origin(self) -> bool:
        """True if it has snapshots."""
        return self.attributes[:1] in ("o", "O")

    @property
    def is_snapshot(self) -> bool:
        """True if it is a snapshot; then its size is the capacity for differences."""
        return self.attributes[:1] in ("s", "S")

    @property
    def degraded(self) -> bool:
        """True if one of its physical volumes is missing."""
        attr = self.attributes
        # Old versions print a volume with missing parts as virtual, newer ones as partial.
        return attr[:1] == "v" or attr[8:9] == "p"

    @property
    def active(self) -> bool:
        """True if it is active, so that its device exists."""
        return self.attributes[4:5] not in ("-", "")

    @property
    def open(self) -> bool:
        """True if a program or another device uses it."""
        return self.attributes[5:6] == "o"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A snapshot of a logical volume."""

    group: str
    name: str
    origin: str
    size_bytes: int  # of its content
    attributes: str
    made: float | None  # seconds since 1970; None when it is not known

    @property
    def usable(self) -> bool:
        """True if its content can be read: it is not full, and no physical volume is missing."""
        attr = self.attributes
        return attr[:1] == "s" and attr[4:5] not in ("I", "S") and attr[8:9] != "p"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class VolumeGroup:
    """A volume group; sizes in MiB."""

    name: str
    size_mib: float
    free_mib: float
    attributes: str

    @property
    def partial(self) -> bool:
        """True if a physical volume is missing."""
        return self.attributes[3:4] == "p"


def parse_lvs(text: str) -> dict[tuple[str, str], LogicalVolume]:
    """Read the output of ``lvs_argv``: (group, name) -> volume, with all its segments.

    :raises ParseError: a line has other columns; the message has the line.
    """
    found: dict[tuple[str, str], LogicalVolume] = {}
    for row in _rows(text, len(VOLUME_FIELDS)):
        group, name, size, attr, major, minor, extent, stripes, tags, devices = row
        here = _devices(devices)
        known = found.get((group, name))
        if known is not None:
            more = tuple(dev for dev in here if dev not in known.devices)
            found[group, name] = dataclasses.replace(known, devices=(*known.devices, *more))
            continue
        found[group, name] = LogicalVolume(
            group=group,
            name=name,
            size_bytes=round(_number(size) * 1024),
            attributes=attr,
            major=int(_number(major)),
            minor=int(_number(minor)),
            extent_bytes=round(_number(extent) * 1024),
            stripes=int(_number(stripes)),
            tags=tuple(tag for tag in tags.split(",") if tag),
            devices=here,
        )
    return found


def _devices(cell: str) -> tuple[str, ...]:
    names = []
    for part in cell.split(","):
        match = _DEVICE.match(part)
        name = match.group(1) if match else part
        if name and name not in names:
            names.append(name)
    return tuple(names)


def parse_pvs(text: str) -> list[LvmPvInfo]:
    """Read the output of ``pvs_argv``: each physical volume once, with the volumes on it.

    :raises ParseError: a line has other columns; the message has the line.
    """
    found: dict[tuple[str, str], LvmPvInfo] = {}
    for row in _rows(text, len(PHYSICAL_FIELDS)):
        name, group, free, attr, size, volume = row
        # A physical volume has a line for each of its separate parts. All missing ones have the
        # same name.
        known = found.get((name, group))
        volumes = known.lv_list or () if known else ()
        if volume and volume not in volumes:
            volumes = (*volumes, volume)
        found[name, group] = LvmPvInfo(
            name=name,
            vg_name=group,
            size=_number(size),
            free=_number(free),
            attributes=attr,
            lv_list=volumes,
        )
    return list(found.values())


def parse_vgs(text: str) -> list[VolumeGroup]:
    """Read the output of ``vgs_argv``.

    :raises ParseError: a line has other columns; the message has the line.
    """
    return [
        VolumeGroup(name=name, size_mib=_number(size), free_mib=_number(free), attributes=attr)
        for name, free, attr, size in _rows(text, len(GROUP_FIELDS))
    ]


def parse_snapshots(text: str) -> dict[tuple[str, str], Snapshot]:
    """Read the output of ``snapshots_argv``: (group, name) -> snapshot, without other volumes.

    :raises ParseError: a line has other columns; the message has the line.
    """
    found = {}
    for group, name, origin, size, attr, made in _rows(text, len(SNAPSHOT_FIELDS)):
        if origin and attr[:1] in ("s", "S"):
            found[group, name] = Snapshot(
                group=group,
                name=name,
                origin=origin.strip("[]"),
                size_bytes=round(_number(size) * 1024),
                attributes=attr,
                made=_time(made),
            )
    return found


def _time(text: str) -> float | None:
    """Seconds since 1970; None for another format, which the administrator may have configured."""
    try:
        return datetime.datetime.strptime(text, "%Y-%m-%d %H:%M:%S %z").timestamp()
    except ValueError:
        return None


def parse_lv_list(text: str) -> dict[str, list[object]]:
    """Read the output of ``lv_list_argv``: ``group/name`` -> [MiB as text, inactive, in use].

    Virtual volumes, which cannot be disks, are left out.

    :raises ParseError: a line has other columns; the message has the line.
    """
    found: dict[str, list[object]] = {}
    for group, name, size, attr in _rows(text, len(NODE_LIST_FIELDS)):
        if len(attr) < 6:
            raise errors.ParseError(f"expected attributes of a logical volume, found {attr!r:.80}")
        if attr[0] == "v":
            # All physical volumes of this one are missing, so it cannot be a disk in good order.
            continue
        found[f"{group}/{name}"] = [size, attr[4] == "-", attr[5] == "o"]
    return found


def safe_tag(text: str) -> str:
    """Replace the characters which LVM does not allow in tags, and cut the text."""
    return _NOT_IN_TAGS.sub("_", text)[:_TAG_MAX_CHARS]


def says_consistent(output: str) -> bool:
    """Return True if ``vgreduce --removemissing`` says that the volume group lacks no device now.

    :param output: both outputs of the program, whose exit code does not tell it.
    """
    return "Wrote out consistent volume group" in output


def says_device_missing(output: str) -> bool:
    """Return True if an LVM program warns that a volume group lacks a physical volume.

    :param output: both outputs of the program, whose exit code does not tell it.
    """
    return "Couldn't find device with uuid" in output


def names_used_twice(output: str) -> frozenset[str]:
    """Return the names of volume groups of which an LVM program warns that several have them.

    LVM refuses to change such a group by its name, and its lists mix the volumes of both.

    :param output: both outputs of the program, whose exit code does not tell it.
    """
    return frozenset(name for found in _USED_TWICE.findall(output) for name in found if name)


def _rows(text: str, count: int) -> list[list[str]]:
    rows = []
    for line in text.splitlines():
        if not line.strip():
            continue
        row = [cell.strip() for cell in line.split(SEPARATOR)]
        if len(row) != count:
            raise errors.ParseError(f"expected {count} columns of LVM, found {line.strip()!r:.200}")
        rows.append(row)
    return rows


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise errors.ParseError(f"expected a number from LVM, found {text!r:.80}")
    return number
