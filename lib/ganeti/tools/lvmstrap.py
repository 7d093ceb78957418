"""The program ``lvmstrap``: makes the volume group of a new node from its unused disks.

It knows the disks from **lsblk**, and reads what is on them with **wipefs**: partitions, file
systems, parts of other volume groups, of RAID or of encrypted devices. A disk with anything on it
is used only when the administrator names it and allows that with ``--force``; one which is in use
now, never.

Source: lsblk(8), wipefs(8), pvcreate(8), vgcreate(8), sfdisk(8).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ganeti import errors
from ganeti.constants.cli import EXIT_SUCCESS
from ganeti.storage.lvm import argv as lvm
from ganeti.storage.lvm.device import check_name
from ganeti.storage.lvm.parse import parse_vgs
from ganeti.tools.entry import reports_errors
from ganeti.utils import process
from ganeti.wire import json

PROGRAM = "lvmstrap"
_FIELDS = "NAME,PATH,TYPE,SIZE,RM,RO,MOUNTPOINTS,FSTYPE,PTTYPE"
#: Kinds of devices which can be whole disks.
_KINDS = ("disk", "loop")
_TIMEOUT_S = 300.0
_LVM_TYPE = "8e"

Runner = Callable[..., process.Completed]


class BlockDisk(NamedTuple):
    """A disk of this machine.

    :ivar content: what is on it, such as ``partitions`` or ``ext4``; empty for nothing.
    :ivar used_by: who uses it now, such as ``mounted on /``; empty for nobody.
    """

    name: str
    path: str
    size: int
    removable: bool
    read_only: bool
    content: str
    used_by: str


def lsblk_argv() -> list[str]:
    """Return the command which lists the disks with everything on them."""
    return ["lsblk", "--json", "--bytes", "--output", _FIELDS]


def parse_lsblk(text: str) -> list[BlockDisk]:
    """Read the output of :func:`lsblk_argv`.

    :raises ParseError: the text has another form.
    """
    try:
        found = json.loads(text)
        devices = found["blockdevices"]
        return [_disk(one) for one in devices if one["type"] in _KINDS and int(one["size"]) > 0]
    except (ValueError, KeyError, TypeError, errors.ParseError) as err:
        raise errors.ParseError(f"the output of lsblk cannot be read: {err!r:.120}") from err


def _disk(one: Mapping[str, Any]) -> BlockDisk:
    used = _users(one)
    parts = [str(child["name"]) for child in one.get("children") or ()]
    content = ", ".join(
        str(what)
        for what in (one.get("fstype"), one.get("pttype"), "partitions" if parts else None)
        if what
    )
    return BlockDisk(
        str(one["name"]), str(one["path"]), int(one["size"]), bool(one["rm"]), bool(one["ro"]),
        content, "; ".join(used),
    )  # fmt: skip


def _users(one: Mapping[str, Any]) -> list[str]:
    """Who uses a device, or a device on it."""
    found = [f"mounted on {where}" for where in one.get("mountpoints") or () if where]
    for child in one.get("children") or ():
        if child["type"] not in ("part",):
            found.append(f"part of {child['name']} ({child['type']})")
        found += _users(child)
    if one.get("fstype") == "LVM2_member":
        found.append("a physical volume of LVM")
    return list(dict.fromkeys(found))


def wipefs_argv(path: str) -> list[str]:
    """Return the command which lists what is on a disk, and changes nothing."""
    return ["wipefs", "--json", "--no-act", path]


def parse_wipefs(text: str) -> list[str]:
    """Read the output of :func:`wipefs_argv`: the kinds of what is on a disk.

    :raises ParseError: the text has another form.
    """
    if not text.strip():
        return []
    try:
        return sorted({str(one["type"]) for one in json.loads(text)["signatures"]})
    except (ValueError, KeyError, TypeError, errors.ParseError) as err:
        raise errors.ParseError(f"the output of wipefs cannot be read: {err!r:.120}") from err


def probed(disk: BlockDisk, runner: Runner) -> BlockDisk:
    """Add what the disk itself says; lsblk knows it only where udev runs.

    :raises CommandError: the disk cannot be read.
    """
    if disk.used_by or disk.read_only:
        return disk
    found = parse_wipefs(runner(wipefs_argv(disk.path), timeout_s=_TIMEOUT_S).stdout)
    known = [disk.content, *(kind for kind in found if kind not in disk.content)]
    return disk._replace(
        content=", ".join(filter(None, known)),
        used_by="a physical volume of LVM" if "LVM2_member" in found else "",
    )


def partition_argv(path: str) -> list[str]:
    """Return the command which makes one partition for LVM.

    :data:`PARTITION_TABLE` is its input.
    """
    return ["sfdisk", "--quiet", "--wipe=always", "--label=dos", path]


#: One partition of the whole disk, of the kind of LVM.
PARTITION_TABLE = f",,{_LVM_TYPE}\n"


def first_partition(path: str) -> str:
    """``/dev/sda1`` for ``/dev/sda``, ``/dev/nvme0n1p1`` for ``/dev/nvme0n1``."""
    return f"{path}p1" if path[-1].isdigit() else f"{path}1"


def make_parser() -> argparse.ArgumentParser:
    """Describe the options of the program."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        allow_abbrev=False,
        description="Show the disks of this machine, or make a volume group of unused ones.",
    )
    add = parser.add_argument
    add("command", choices=("diskinfo", "create"), help="what to do")
    add("--alldisks", action="store_true", help="use all disks which have nothing on them")
    add("-d", "--disks", metavar="DISKLIST", default="", help="use these disks: sdb,sdc")
    add("-g", "--vg-name", dest="vgname", metavar="NAME", default="xenvg",
        help="name of the volume group (default: %(default)s)")  # fmt: skip
    add("-r", "--allow-removable", dest="removable_ok", action="store_true",
        help="also use removable disks")  # fmt: skip
    add("--use-sfdisk", action="store_true", help="make a partition on each disk, for LVM")
    add("-f", "--force", action="store_true",
        help="overwrite the content of disks which -d names")  # fmt: skip
    add("-v", "--verbose", action="store_true", help="print each command before it runs")
    return parser


def refusal(disk: BlockDisk, *, removable_ok: bool, force: bool) -> str:
    """Return why a disk cannot be used; empty if it can."""
    if disk.read_only:
        return "is read-only"
    if disk.used_by:
        return f"is in use: {disk.used_by}"
    if disk.removable and not removable_ok:
        return "is removable; --allow-removable uses it"
    if disk.content and not force:
        return f"is not empty: {disk.content}; name it with -d and add --force to overwrite it"
    return ""


def choose(disks: Sequence[BlockDisk], options: argparse.Namespace) -> list[BlockDisk]:
    """Return the disks of the new volume group.

    :raises OpPrereqError: no disk is left, or a named disk cannot be used.
    """
    if bool(options.disks) == options.alldisks:
        raise errors.OpPrereqError("give either --alldisks or --disks", errors.ECODE_INVAL)
    if options.alldisks:
        found = [
            disk
            for disk in disks
            if not refusal(disk, removable_ok=options.removable_ok, force=False)
        ]
        if not found:
            raise errors.OpPrereqError(
                f"this machine has no unused disk; '{PROGRAM} diskinfo' says why",
                errors.ECODE_STATE,
            )
        return found
    known = {disk.name: disk for disk in disks} | {disk.path: disk for disk in disks}
    found = []
    for name in dict.fromkeys(options.disks.split(",")):
        disk = known.get(name.strip())
        if disk is None:
            raise errors.OpPrereqError(f"there is no disk {name!r:.60}", errors.ECODE_NOENT)
        why = refusal(disk, removable_ok=options.removable_ok, force=options.force)
        if why:
            raise errors.OpPrereqError(f"disk {disk.name} {why}", errors.ECODE_STATE)
        if disk not in found:
            found.append(disk)
    return found


def commands(
    disks: Sequence[BlockDisk], options: argparse.Namespace
) -> list[tuple[list[str], str]]:
    """Return the commands which make the volume group, each with its input."""
    found: list[tuple[list[str], str]] = []
    paths = []
    for disk in disks:
        if options.use_sfdisk:
            found.append((partition_argv(disk.path), PARTITION_TABLE))
            found.append((["udevadm", "settle"], ""))
            paths.append(first_partition(disk.path))
        else:
            if disk.content:
                found.append((["wipefs", "--all", "--quiet", disk.path], ""))
            paths.append(disk.path)
    found += [(["pvcreate", "--yes", path], "") for path in paths]
    found.append((["vgcreate", options.vgname, *paths], ""))
    return found


def show(disks: Sequence[BlockDisk], options: argparse.Namespace) -> None:
    """Print a line for each disk."""
    for disk in disks:
        why = refusal(disk, removable_ok=options.removable_ok, force=False)
        print(f"{disk.name:12} {disk.size / 2**30:9.1f} GiB  {why or 'can be used'}")


def run(options: argparse.Namespace, runner: Runner = process.run) -> int:
    """Do what the command line wants.

    :returns: the exit code.
    :raises OpPrereqError: nothing was changed.
    :raises CommandError: a program failed.
    """
    listed = parse_lsblk(runner(lsblk_argv(), timeout_s=_TIMEOUT_S).stdout)
    disks = [probed(disk, runner) for disk in listed]
    if options.command == "diskinfo":
        show(disks, options)
        return EXIT_SUCCESS
    try:
        check_name(options.vgname, "volume group")
    except errors.GenericError as err:
        raise errors.OpPrereqError(str(err), errors.ECODE_INVAL) from err
    groups = parse_vgs(runner(lvm.vgs_argv(), timeout_s=_TIMEOUT_S).stdout)
    if any(group.name == options.vgname for group in groups):
        raise errors.OpPrereqError(
            f"there is a volume group {options.vgname} already. Add disks to it with vgextend",
            errors.ECODE_EXISTS,
        )
    chosen = choose(disks, options)
    for words, stdin in commands(chosen, options):
        if options.verbose:
            print(process.show(words))
        runner(words, timeout_s=_TIMEOUT_S, stdin=stdin or None)
    print(f"volume group {options.vgname} has {', '.join(disk.name for disk in chosen)}")
    return EXIT_SUCCESS


@reports_errors(PROGRAM)
def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; returns the exit code."""
    return run(make_parser().parse_args(argv))
