"""New disks: from the user's dictionaries to objects.

:func:`choose_template` decides of which kind they are, :func:`plan_disks` checks every wish and
completes it, :func:`make_disks` gives each its identity (names of volumes, ports, minors). The
first two change nothing; the third reserves and allocates.
"""

from __future__ import annotations

import dataclasses
import posixpath
import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ganeti import errors
from ganeti.constants import disk as disk_c
from ganeti.constants.disk import (
    ACCESS_MODES,
    BLOCK,
    DISK_ACCESS_MODES,
    DISKLESS,
    DRBD8,
    DRBD_META_SIZE_MIB,
    DRBD_SECRET_LENGTH,
    EXT,
    FILE,
    FILE_DRIVER_LOOP,
    GLUSTER,
    HAVE_ACCESS,
    LVM_BASED,
    MAX_DISKS,
    MAY_ADOPT,
    MUST_ADOPT,
    PLAIN,
    RBD,
    RDONLY,
    RDWR,
    SHARED_FILE,
)
from ganeti.constants.net import VALUE_AUTO
from ganeti.objects import Disk
from ganeti.utils import clock

if TYPE_CHECKING:
    from ganeti.cmdlib.base import LogicalUnit

#: Letters of the older spelling of the access mode, ``access=r`` and ``access=w``.
_MODE_LETTERS = {"r": RDONLY, "w": RDWR}

#: Wishes which only make sense for some kinds of disks.
_FOREIGN = {
    "adopt": MAY_ADOPT,
    "vg": LVM_BASED,
    "metavg": frozenset((DRBD8,)),
    "provider": frozenset((EXT,)),
    "spindles": disk_c.EXCLUSIVE_STORAGE,
    "access": HAVE_ACCESS,
}
_KNOWN = frozenset((*disk_c.IDISK_PARAMS, "snapshot_name"))

# What a block device of the administrator is called in the configuration.
_MANUAL = "manual"


def choose_template(
    unit: LogicalUnit, template: str | None, given: Sequence[Mapping[str, Any]]
) -> str:
    """Which kind of disks the instance gets.

    :raises errors.OpPrereqError: contradictions, or a kind which is not enabled.
    """
    kinds = {str(wish["dev_type"]) for wish in given if wish.get("dev_type")}
    if template is None:
        if len(kinds) > 1:
            raise errors.OpPrereqError(
                f"disks of different kinds ({', '.join(sorted(kinds))}) need one disk template",
                errors.ECODE_INVAL,
            )
        if not given:
            template = DISKLESS
        elif kinds:
            template = kinds.pop()
        else:
            template = str(unit.config.cluster().enabled_disk_templates[0])
    elif kinds - {template}:
        raise errors.OpPrereqError(
            f"disks of kind {', '.join(sorted(kinds))} contradict disk template {template}",
            errors.ECODE_INVAL,
        )
    require_enabled(unit, template)
    return template


def require_enabled(unit: LogicalUnit, template: str) -> None:
    """The cluster allows this kind of disks."""
    enabled = unit.config.cluster().enabled_disk_templates
    if template not in enabled:
        raise errors.OpPrereqError(
            f"disk template {template} is not enabled in this cluster, only"
            f" {', '.join(sorted(enabled))}",
            errors.ECODE_INVAL,
        )


# -- wishes ----------------------------------------------------------------------


def plan_disks(
    unit: LogicalUnit, template: str, given: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Check the wishes for a new instance.

    :returns: as :func:`plan_disk`, in order.
    """
    if template == DISKLESS:
        if given:
            raise errors.OpPrereqError("a diskless instance cannot have disks", errors.ECODE_INVAL)
        return []
    if not given:
        raise errors.OpPrereqError(
            f"disk template {template} needs at least one disk", errors.ECODE_INVAL
        )
    if len(given) > MAX_DISKS:
        raise errors.OpPrereqError(
            f"an instance has at most {MAX_DISKS} disks, not {len(given)}", errors.ECODE_INVAL
        )
    planned = [plan_disk(unit, template, f"disk {index}", wish) for index, wish in enumerate(given)]
    require_unique_names([wish["name"] for wish in planned])
    adopted = [bool(wish.get("adopt")) for wish in planned]
    if any(adopted) and not all(adopted):
        raise errors.OpPrereqError(
            "either all disks of an instance are adopted, or none", errors.ECODE_INVAL
        )
    return planned


def require_unique_names(names: Sequence[str | None], what: str = "disks") -> None:
    """No two disks of an instance have one name."""
    given = [name for name in names if name]
    for name in given:
        if given.count(name) > 1:
            raise errors.OpPrereqError(f"two {what} are named {name!r}", errors.ECODE_NOTUNIQUE)


def plan_disk(
    unit: LogicalUnit, template: str, what: str, wish: Mapping[str, Any]
) -> dict[str, Any]:
    """Check one wish and complete it.

    :param what: the disk, for errors.
    :returns: a dictionary with ``size`` (MiB), ``mode`` and ``name``; as far as the kind has them
        ``vg``, ``metavg``, ``adopt``, ``spindles``, ``access``, and ``params`` of an external
        provider.
    """
    access = wish.get("access")
    if access in _MODE_LETTERS:
        wish = {**{k: v for k, v in wish.items() if k != "access"}, "mode": _MODE_LETTERS[access]}
    _require_known(template, what, wish)
    size = wish.get("size")
    if size == VALUE_AUTO:
        size = unit.config.cluster().ipolicy["std"]["disk-size"]
    planned: dict[str, Any] = {
        "size": 0 if wish.get("adopt") else checked_size(what, size),
        "mode": checked_mode(what, wish.get("mode") or RDWR),
        "name": checked_name(wish.get("name")),
    }
    if template in MUST_ADOPT and not wish.get("adopt"):
        raise errors.OpPrereqError(
            f"{what}: disks of kind {template} are adopted. Name the device with adopt=.",
            errors.ECODE_INVAL,
        )
    for key in ("adopt", "access", "spindles"):
        if wish.get(key) is not None:
            planned[key] = wish[key]
    if planned.get("access") not in (None, *DISK_ACCESS_MODES):
        raise errors.OpPrereqError(
            f"{what}: access {planned['access']!r} is not one of {', '.join(DISK_ACCESS_MODES)}",
            errors.ECODE_INVAL,
        )
    if template in LVM_BASED:
        planned["vg"] = wish.get("vg") or unit.config.cluster().volume_group_name
        if not planned["vg"]:
            raise errors.OpPrereqError(
                f"{what}: the cluster has no volume group for disks of kind {template}",
                errors.ECODE_STATE,
            )
    if template == DRBD8:
        defaults = unit.config.cluster().diskparams.get(DRBD8) or {}
        planned["metavg"] = wish.get("metavg") or defaults.get("metavg") or planned["vg"]
    if template == EXT:
        if not wish.get("provider"):
            raise errors.OpPrereqError(
                f"{what}: disks of kind {EXT} need a provider", errors.ECODE_INVAL
            )
        planned["provider"] = str(wish["provider"])
        planned["params"] = {k: v for k, v in wish.items() if k not in _KNOWN}
    return planned


def _require_known(template: str, what: str, wish: Mapping[str, Any]) -> None:
    unknown = [] if template == EXT else sorted(set(wish) - _KNOWN)
    if unknown:
        raise errors.OpPrereqError(
            f"{what}: unknown parameter {', '.join(unknown)}", errors.ECODE_INVAL
        )
    foreign = [
        key
        for key, kinds in _FOREIGN.items()
        if wish.get(key) is not None and template not in kinds
    ]
    if foreign:
        raise errors.OpPrereqError(
            f"{what}: {', '.join(foreign)} cannot be given for disks of kind {template}",
            errors.ECODE_INVAL,
        )


def checked_size(what: str, size: Any) -> int:
    """A size in MiB, at least 1."""
    try:
        size_mib = int(size)
    except (TypeError, ValueError):
        raise errors.OpPrereqError(
            f"{what}: {size!r} is not a size in MiB", errors.ECODE_INVAL
        ) from None
    if size_mib < 1:
        raise errors.OpPrereqError(
            f"{what}: the size must be at least 1 MiB, not {size_mib}", errors.ECODE_INVAL
        )
    return size_mib


def checked_mode(what: str, mode: Any) -> str:
    """An access mode: ``ro`` or ``rw``."""
    if mode not in ACCESS_MODES:
        raise errors.OpPrereqError(
            f"{what}: access mode {mode!r} is not one of {', '.join(ACCESS_MODES)}",
            errors.ECODE_INVAL,
        )
    return str(mode)


def checked_name(name: Any) -> str | None:
    """A name, or None for the word ``none``."""
    return None if name in (None, "none", "") else str(name)


def file_directory(unit: LogicalUnit, template: str, below: str | None, instance_name: str) -> str:
    """Where the disk files of an instance go: a directory of their own below the cluster's one."""
    cluster = unit.config.cluster()
    base = cluster.file_storage_dir if template == FILE else cluster.shared_file_storage_dir
    if not base:
        raise errors.OpPrereqError(
            f"the cluster has no directory for disks of kind {template}", errors.ECODE_INVAL
        )
    if below is not None:
        joined = posixpath.normpath(posixpath.join(base, below))
        if posixpath.isabs(below) or not joined.startswith(base.rstrip("/") + "/"):
            raise errors.OpPrereqError(
                f"file storage directory {below!r} must be a path below the cluster's one",
                errors.ECODE_INVAL,
            )
        base = joined
    return posixpath.join(base, instance_name)


# -- objects ---------------------------------------------------------------------


def make_disks(
    unit: LogicalUnit,
    template: str,
    planned: Sequence[Mapping[str, Any]],
    *,
    primary_node: str,
    secondary_node: str | None = None,
    directory: str | None = None,
    driver: str | None = None,
    first_index: int = 0,
) -> list[Disk]:
    """Give every planned disk its identity.

    :param secondary_node: where mirrored disks have their other half.
    :param directory: of the files, see :func:`file_directory`.
    :param first_index: number of the first of them in the instance.
    """
    now = clock.now()
    disks = []
    for index, wish in enumerate(planned, first_index):
        values: dict[str, Any] = {
            "dev_type": template,
            "iv_name": f"disk/{index}",
            "size": wish["size"],
            "mode": wish["mode"],
            "name": wish["name"],
            "spindles": wish.get("spindles"),
            "uuid": _new_uuid(unit),
            "ctime": now,
            "mtime": now,
            "serial_no": 1,
        }
        if template == DRBD8:
            assert secondary_node is not None
            values |= _mirror(unit, wish, index, primary_node, secondary_node)
        else:
            values["logical_id"] = _identity(unit, template, wish, index, directory, driver)
            # A device which several nodes see belongs to none of them.
            values["nodes"] = (primary_node,) if template in (PLAIN, FILE) else ()
        params = dict(wish.get("params") or {})
        if wish.get("access"):
            params["access"] = wish["access"]
        if params:
            values["params"] = params
        disks.append(Disk(**values))
    return disks


def _new_uuid(unit: LogicalUnit) -> str:
    return unit.config.new_uuid(unit.ctx.ec_id)


def _identity(
    unit: LogicalUnit,
    template: str,
    wish: Mapping[str, Any],
    index: int,
    directory: str | None,
    driver: str | None,
) -> tuple[Any, ...]:
    """The ``logical_id`` of a device which is not mirrored by us."""
    if template == BLOCK:
        return (_MANUAL, str(wish["adopt"]))
    name = f"{_new_uuid(unit)}.{template}.disk{index}"
    if template == PLAIN:
        volume = name.replace(".plain", "")
        reserve_volume(unit, wish["vg"], volume)
        return (wish["vg"], volume)
    if template in (FILE, SHARED_FILE):
        return (driver or FILE_DRIVER_LOOP, posixpath.join(directory or "", name))
    if template == GLUSTER:
        return (driver or FILE_DRIVER_LOOP, f"ganeti/{name}")
    if template == RBD:
        return ("rbd", name)
    return (wish["provider"], name)


def reserve_volume(unit: LogicalUnit, group: str, volume: str) -> None:
    """Take the name of a logical volume.

    :raises errors.OpPrereqError: another disk has it.
    """
    try:
        unit.config.reserve_lv(f"{group}/{volume}", unit.ctx.ec_id)
    except errors.ReservationError as err:
        raise errors.OpPrereqError(
            f"logical volume {group}/{volume} belongs to an instance already",
            errors.ECODE_NOTUNIQUE,
        ) from err


def mirror_children(
    unit: LogicalUnit, wish: Mapping[str, Any], index: int, nodes: tuple[str, ...]
) -> tuple[Disk, ...]:
    """The two volumes below a mirrored disk: the data, and what the mirror notes about it."""
    stem = _new_uuid(unit)
    parts = (
        (wish["vg"], f"{stem}.disk{index}_data", wish["size"]),
        (wish["metavg"], f"{stem}.disk{index}_meta", DRBD_META_SIZE_MIB),
    )
    for group, volume, _size in parts:
        reserve_volume(unit, group, volume)
    return tuple(
        Disk(dev_type=PLAIN, logical_id=(group, volume), size=size, nodes=nodes)
        for group, volume, size in parts
    )


def _mirror(
    unit: LogicalUnit, wish: Mapping[str, Any], index: int, primary: str, secondary: str
) -> dict[str, Any]:
    nodes = (primary, secondary)
    minors = unit.config.allocate_minors(nodes, unit.ctx.ec_id)
    port = unit.config.allocate_port()
    return {
        "logical_id": (*nodes, port, *minors, new_secret()),
        "children": mirror_children(unit, wish, index, nodes),
        "nodes": nodes,
    }


def new_secret() -> str:
    """What the two halves of a mirrored disk recognise each other by."""
    return secrets.token_hex(DRBD_SECRET_LENGTH)


def resized(disk: Disk, size_mib: int) -> Disk:
    """A disk of another size, with its data volume if it is mirrored."""
    children = disk.children
    if disk.dev_type == DRBD8 and children:
        children = (dataclasses.replace(children[0], size=size_mib), *children[1:])
    return dataclasses.replace(disk, size=size_mib, children=children)
