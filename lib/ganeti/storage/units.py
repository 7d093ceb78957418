"""Storage units: the pools from which disks are cut, as administrators look after them.

A unit is a directory (``file``, ``sharedfile``, ``gluster``), an LVM volume group (``lvm-vg``) or
an LVM physical volume (``lvm-pv``). They are listed with size, used and free space in MiB; a
physical volume may be closed for new volumes, a volume group may be freed from volumes that are
lost. Commands and readers of their output are pure functions.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from ganeti import errors
from ganeti.constants import disk as const
from ganeti.platform import paths
from ganeti.storage import file as file_storage
from ganeti.storage.lvm import parse
from ganeti.utils import process

NAME, SIZE, USED, FREE, ALLOCATABLE = "name", "size", "used", "free", "allocatable"
FIELDS = (NAME, SIZE, USED, FREE, ALLOCATABLE)
FILE_TYPES = (const.ST_FILE, const.ST_SHARED_FILE, const.ST_GLUSTER)
FIX_CONSISTENCY = "fix-consistency"

_TIMEOUT_S = 600.0
_SEPARATOR = "|"
# Program, columns, and how a row becomes a unit.
_PV_COLUMNS = ("pv_name", "pv_size", "pv_used", "pv_free", "pv_attr")
_VG_COLUMNS = ("vg_name", "vg_size", "vg_free")
_VOLUME_COLUMNS = ("lv_name", "lv_size", "devices", "vg_name")

Run = Callable[..., process.Completed]


def list_argv(storage_type: str, name: str | None) -> list[str]:
    """The command that lists LVM units.

    :raises StorageError: not a kind of LVM.
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


def parse_units(storage_type: str, text: str) -> list[dict[str, Any]]:
    """Read what :func:`list_argv` prints.

    :raises ParseError: a line with other columns; carries it.
    """
    columns = _PV_COLUMNS if storage_type == const.ST_LVM_PV else _VG_COLUMNS
    units = []
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
    """The command that lists logical volumes with the devices they are on."""
    return [
        "lvs",
        "--noheadings",
        "--units=m",
        "--nosuffix",
        f"--separator={_SEPARATOR}",
        f"--options={','.join(_VOLUME_COLUMNS)}",
    ]


def parse_volumes(text: str) -> list[dict[str, Any]]:
    """Read what :func:`volumes_argv` prints: a row for each device of each volume.

    :raises ParseError: a line with other columns; carries it.
    """
    volumes = []
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
    """The command that opens or closes a physical volume for new volumes."""
    return ["pvchange", "--allocatable", "y" if allowed else "n", name]


def repair_argv(name: str, *, force: bool) -> list[str]:
    """The command that takes lost devices out of a volume group."""
    return ["vgreduce", "--removemissing", *(["--force"] if force else []), name]


def check_argv(name: str) -> list[str]:
    """The command whose output warns while a volume group lacks devices."""
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
    except ValueError as err:
        raise errors.ParseError(f"expected a size in MiB, found {text!r:.80}") from err


# What a node does with them


def list_units(
    storage_type: str,
    directories: Sequence[str],
    name: str | None,
    fields: Sequence[str],
    run: Run = process.run,
) -> list[list[Any]]:
    """Rows of units with the fields wanted.

    :param directories: (virtual) directories of the kinds that are files.
    :raises StorageError: unknown kind or field, or the units cannot be looked at.
    """
    unknown = sorted(set(fields) - set(FIELDS))
    if unknown:
        raise errors.StorageError(f"storage units have no field {', '.join(unknown)}")
    if storage_type in FILE_TYPES:
        units = [_directory(path) for path in directories if name in (None, path)]
    else:
        argv = list_argv(storage_type, name)
        try:
            units = parse_units(storage_type, run(argv, timeout_s=_TIMEOUT_S).stdout)
        except (errors.CommandError, errors.ParseError) as err:
            raise errors.StorageError(f"cannot list storage of type {storage_type}: {err}") from err
    if name is not None and not units:
        raise errors.StorageError(f"there is no storage unit {name} of type {storage_type}")
    return [[unit[field] for field in fields] for unit in units]


def _directory(path: str) -> dict[str, Any]:
    wrong = file_storage.wrong_storage_dir(path)
    if wrong:
        raise errors.FileStoragePathError(wrong)
    space = file_storage.space(path)
    size, free = space["storage_size"], space["storage_free"]
    return {NAME: path, SIZE: size, USED: _used_mib(path), FREE: free, ALLOCATABLE: True}


def _used_mib(virtual_path: str) -> int:
    """What the files of a directory take on disk."""
    blocks = 0
    for where, _, names in os.walk(paths.current().to_local(virtual_path)):
        for name in names:
            try:
                blocks += os.lstat(f"{where}/{name}").st_blocks
            except FileNotFoundError:
                continue  # removed meanwhile
    return -(-blocks * 512 // (1 << 20))


def volumes(run: Run = process.run) -> list[dict[str, Any]]:
    """All logical volumes of this machine.

    :raises StorageError: LVM cannot be asked.
    """
    try:
        return parse_volumes(run(volumes_argv(), timeout_s=_TIMEOUT_S).stdout)
    except (errors.CommandError, errors.ParseError) as err:
        raise errors.StorageError(f"cannot list logical volumes: {err}") from err


def modify(storage_type: str, name: str, changes: dict[str, Any], run: Run = process.run) -> None:
    """Change a unit.

    :raises StorageError: this cannot be changed, or it failed.
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
    """Do something to a unit: ``fix-consistency`` takes lost devices out of a volume group.

    :raises StorageError: this cannot be done, or it failed.
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
        raise errors.StorageError(f"{name!r:.80} is not a name of a storage unit")
