"""Storage units: the places where disks are, which administrators list and change.

A unit is a directory (``file``, ``sharedfile``, ``gluster``), an LVM volume group (``lvm-vg``) or
an LVM physical volume (``lvm-pv``). Lists have size, used and free space in MiB. A physical volume
can be closed for new volumes, and missing devices can be removed from a volume group. The functions
which build commands and read output are pure.

Source: Ganeti storage units design; lvm(8).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from ganeti import errors
from ganeti.constants import disk as const
from ganeti.objects import disk_templates
from ganeti.platform import paths
from ganeti.storage import file as file_storage
from ganeti.storage.lvm import parse
from ganeti.utils import process

NAME, SIZE, USED, FREE, ALLOCATABLE = "name", "size", "used", "free", "allocatable"
FIELDS = (NAME, SIZE, USED, FREE, ALLOCATABLE)
FIX_CONSISTENCY = "fix-consistency"

_TIMEOUT_S = 600.0
_SEPARATOR = "|"
# Program, columns, and how a row becomes a unit.
_PV_COLUMNS = ("pv_name", "pv_size", "pv_used", "pv_free", "pv_attr")
_VG_COLUMNS = ("vg_name", "vg_size", "vg_free")
_VOLUME_COLUMNS = ("lv_name", "lv_size", "devices", "vg_name")

Run = Callable[..., process.Completed]
#: Field of :data:`FIELDS` -> value.
StorageUnit = dict[str, str | int | bool]
#: A logical volume on one physical volume: ``name``, ``size`` (MiB), ``vg`` and ``dev``.
VolumeRow = dict[str, str | int]


def list_argv(storage_type: str, name: str | None) -> list[str]:
    """Return the command which lists LVM units.

    :param name: of one unit; None for all.
    :raises StorageError: the type is not one of LVM.
    """
    programs = {const.ST_LVM_PV: ("pvs", _PV_COLUMNS), const.ST_LVM_VG: ("vgs", _VG_COLUMNS)}
    if storage_type not in programs:
        raise errors.StorageError(f"storage of type {storage_type!r} cannot be listed")
    program, columns = programs[storage_type]
    return [
        program,
        "--noheadings",
        "--units=m",
        "--nosuffix",
        "--separator",
        _SEPARATOR,
        "--options",
        ",".join(columns),
        *([name] if name else []),
    ]


def parse_units(storage_type: str, text: str) -> list[StorageUnit]:
    """Read the output of :func:`list_argv`.

    :raises ParseError: a line has other columns; the message has the line.
    """
    columns = _PV_COLUMNS if storage_type == const.ST_LVM_PV else _VG_COLUMNS
    units: list[StorageUnit] = []
    for row in _rows(text, len(columns)):
        values = dict(zip(columns, row, strict=True))
        if storage_type == const.ST_LVM_PV:
            units.append(
                {
                    NAME: values["pv_name"],
                    SIZE: _mib(values["pv_size"]),
                    USED: _mib(values["pv_used"]),
                    FREE: _mib(values["pv_free"]),
                    ALLOCATABLE: values["pv_attr"].startswith("a"),
                }
            )
        else:
            size, free = _mib(values["vg_size"]), _mib(values["vg_free"])
            units.append(
                {
                    NAME: values["vg_name"],
                    SIZE: size,
                    USED: size - free,
                    FREE: free,
                    ALLOCATABLE: True,
                }
            )
    return units


def volumes_argv() -> list[str]:
    """Return the command which lists logical volumes with their physical volumes."""
    return [
        "lvs",
        "--noheadings",
        "--units=m",
        "--nosuffix",
        f"--separator={_SEPARATOR}",
        f"--options={','.join(_VOLUME_COLUMNS)}",
    ]


def parse_volumes(text: str) -> list[VolumeRow]:
    """Read the output of :func:`volumes_argv`: a row for each physical volume of each volume.

    :raises ParseError: a line has other columns; the message has the line.
    """
    volumes: list[VolumeRow] = []
    for name, size, devices, group in _rows(text, len(_VOLUME_COLUMNS)):
        for device in devices.split(","):
            volumes.append(
                {
                    "name": name,
                    "size": _mib(size),
                    "vg": group,
                    # "/dev/sda1(25)": the number is the first extent.
                    "dev": device.partition("(")[0],
                }
            )
    return volumes


def allocatable_argv(name: str, allowed: bool) -> list[str]:
    """Return the command which opens or closes a physical volume for new volumes."""
    return ["pvchange", "--allocatable", "y" if allowed else "n", name]


def repair_argv(name: str, *, force: bool) -> list[str]:
    """Return the command which removes missing devices from a volume group."""
    return ["vgreduce", "--removemissing", *(["--force"] if force else []), name]


def check_argv(name: str) -> list[str]:
    """Return the command whose output warns while a volume group lacks devices."""
    return ["vgs", "--noheadings", "--nosuffix", name]


def _rows(text: str, count: int) -> list[list[str]]:
    rows = []
    for line in text.splitlines():
        if not line.strip():
            continue
        row = [cell.strip() for cell in line.strip().split(_SEPARATOR)]
        if len(row) != count:
            raise errors.ParseError(f"expected {count} columns of LVM, found {line.strip()!r:.200}")
        rows.append(row)
    return rows


def _mib(text: str) -> int:
    try:
        return int(float(text))
    except (ValueError, OverflowError) as err:
        raise errors.ParseError(f"expected a size in MiB, found {text!r:.80}") from err


# Operations


def list_units(
    storage_type: str,
    directories: Sequence[str],
    name: str | None,
    fields: Sequence[str],
    run: Run = process.run,
    *,
    apart: bool = False,
) -> list[list[str | int | bool | None]]:
    """List units: a row for each, with the values of the fields.

    :param directories: (virtual) directories, for the types of files.
    :param name: of one unit; None for all.
    :param run: runs a program, as :func:`ganeti.utils.process.run`.
    :param apart: a unit which fails does not hide the others. Each row has one more value: None, or
        why nothing but the name is known.
    :raises StorageError: a type or field is not known, or the units cannot be listed.
    """
    unknown = sorted(set(fields) - set(FIELDS))
    if unknown:
        raise errors.StorageError(f"storage units have no field {', '.join(unknown)}")
    units: list[StorageUnit] = []
    failed: dict[str, str] = {}
    if storage_type in disk_templates.types_with_directory():
        for path in directories:
            if name not in (None, path):
                continue
            try:
                units.append(_directory(path))
            except errors.StorageError as err:
                if not apart:
                    raise
                failed[path] = str(err)
    else:
        try:
            units = _lvm_units(storage_type, name, run)
        except errors.StorageError:
            if not apart or name is not None:
                raise
            units, failed = _each_lvm_unit(storage_type, run)
    if name is not None and not (units or failed):
        raise errors.StorageError(f"there is no storage unit {name} of type {storage_type}")
    if not apart:
        return [[unit[field] for field in fields] for unit in units]
    rows: list[list[str | int | bool | None]] = []
    for unit in units:
        rows.append([*(unit[field] for field in fields), None])
    for found, problem in failed.items():
        rows.append([*(found if field == NAME else None for field in fields), problem])
    return rows


def _lvm_units(storage_type: str, name: str | None, run: Run) -> list[StorageUnit]:
    argv = list_argv(storage_type, name)
    try:
        return parse_units(storage_type, run(argv, timeout_s=_TIMEOUT_S).stdout)
    except (errors.CommandError, errors.ParseError) as err:
        raise errors.StorageError(f"cannot list storage of type {storage_type}: {err}") from err


def _each_lvm_unit(storage_type: str, run: Run) -> tuple[list[StorageUnit], dict[str, str]]:
    """List LVM units one by one: those which LVM can read, and why it cannot read the others.

    :raises StorageError: not even their names are known.
    """
    units: list[StorageUnit] = []
    failed: dict[str, str] = {}
    for name in _names(storage_type, run):
        try:
            units += _lvm_units(storage_type, name, run)
        except errors.StorageError as err:
            failed[name] = str(err)
    return units, failed


def _names(storage_type: str, run: Run) -> list[str]:
    """Return the names of LVM units. LVM lists them also when it fails for one of them.

    :raises StorageError: it lists none.
    """
    program, *rest = list_argv(storage_type, None)
    argv = [program, *rest[:-1], _VG_COLUMNS[0] if program == "vgs" else _PV_COLUMNS[0]]
    try:
        done = run(argv, timeout_s=_TIMEOUT_S, check=False)
    except errors.CommandError as err:
        raise errors.StorageError(f"cannot list storage of type {storage_type}: {err}") from err
    names = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    # Else it would be taken for an option.
    names = [name for name in names if not name.startswith("-")]
    if not names:
        raise errors.StorageError(
            f"cannot list storage of type {storage_type}: {done.output.strip() or 'no output'}"
        )
    return names


def _directory(path: str) -> StorageUnit:
    wrong = file_storage.wrong_storage_dir(path)
    if wrong:
        raise errors.FileStoragePathError(wrong)
    space = file_storage.space(path)
    size, free = space["storage_size"], space["storage_free"]
    return {NAME: path, SIZE: size, USED: _used_mib(path), FREE: free, ALLOCATABLE: True}


def _used_mib(virtual_path: str) -> int:
    """Return the disk space of the files below a directory in MiB."""
    blocks = 0
    for where, _, names in os.walk(paths.current().to_local(virtual_path)):
        for name in names:
            try:
                blocks += os.lstat(f"{where}/{name}").st_blocks
            except FileNotFoundError:
                continue  # has just been removed
    return -(-blocks * 512 // (1 << 20))


def volumes(run: Run = process.run, *, apart: bool = False) -> list[VolumeRow]:
    """List all logical volumes of this machine.

    :param apart: a volume group which fails does not hide the others; it has a row with ``vg`` and
        ``problem``.
    :raises StorageError: LVM fails.
    """
    try:
        return _volumes(run)
    except errors.StorageError:
        if not apart:
            raise
    found: list[VolumeRow] = []
    for group in _names(const.ST_LVM_VG, run):
        try:
            found += _volumes(run, group)
        except errors.StorageError as err:
            found.append({"vg": group, "problem": str(err)})
    return found


def _volumes(run: Run, *group: str) -> list[VolumeRow]:
    try:
        return parse_volumes(run([*volumes_argv(), *group], timeout_s=_TIMEOUT_S).stdout)
    except (errors.CommandError, errors.ParseError) as err:
        raise errors.StorageError(f"cannot list logical volumes: {err}") from err


def modify(storage_type: str, name: str, changes: dict[str, Any], run: Run = process.run) -> None:
    """Change a unit: open or close a physical volume for new volumes.

    :param changes: field -> new value.
    :raises StorageError: the field cannot be changed, or LVM fails.
    """
    if storage_type != const.ST_LVM_PV or set(changes) != {ALLOCATABLE}:
        raise errors.StorageError(
            f"of storage of type {storage_type}, {', '.join(sorted(changes)) or 'nothing'} cannot"
            " be changed"
        )
    if not isinstance(changes[ALLOCATABLE], bool):
        raise errors.StorageError(f"{ALLOCATABLE} must be true or false")
    _refuse_option(name)
    try:
        run(allocatable_argv(name, changes[ALLOCATABLE]), timeout_s=_TIMEOUT_S)
    except errors.CommandError as err:
        raise errors.StorageError(f"cannot change physical volume {name}: {err}") from err


def execute(storage_type: str, name: str, operation: str, run: Run = process.run) -> None:
    """Execute an operation: ``fix-consistency`` removes missing devices from a volume group.

    :raises StorageError: units of the type have no such operation, or it failed.
    """
    if storage_type != const.ST_LVM_VG or operation != FIX_CONSISTENCY:
        raise errors.StorageError(
            f"storage of type {storage_type} has no operation {operation!r:.80}"
        )
    _refuse_option(name)
    try:
        done = run(repair_argv(name, force=False), timeout_s=_TIMEOUT_S, check=False)
        if done.failed or not parse.says_consistent(done.output):
            run(repair_argv(name, force=True), timeout_s=_TIMEOUT_S)
        left = run(check_argv(name), timeout_s=_TIMEOUT_S)
    except errors.CommandError as err:
        raise errors.StorageError(f"cannot repair volume group {name}: {err}") from err
    if parse.says_device_missing(left.output):
        raise errors.StorageError(f"volume group {name} still lacks devices: {left.output.strip()}")


def _refuse_option(name: str) -> None:
    if name.startswith("-"):
        raise errors.StorageError(f"{name!r:.80} is not the name of a storage unit")
