"""Disks of a new instance: from the user's dictionaries to objects."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ganeti import errors
from ganeti.cmdlib.instance.disks import FILE_BASED
from ganeti.constants.disk import (
    ACCESS_MODES,
    DISKLESS,
    FILE,
    FILE_DRIVER_LOOP,
    MAX_DISKS,
    RDWR,
    SHARED_FILE,
)
from ganeti.objects import Disk
from ganeti.utils import clock

if TYPE_CHECKING:
    from ganeti.cmdlib.base import LogicalUnit

#: Wishes which only make sense for other kinds of disks.
_FOREIGN = ("adopt", "vg", "metavg", "provider", "spindles", "access")


def choose_template(unit: LogicalUnit, template: str | None, given: list[dict[str, Any]]) -> str:
    """Which kind of disks the instance gets.

    :raises errors.OpPrereqError: contradictions, or a kind which is not enabled or not part of
        this version.
    """
    kinds = {wish["dev_type"] for wish in given if wish.get("dev_type")}
    if template is None:
        if len(kinds) > 1:
            raise errors.OpPrereqError(
                f"disks of different kinds ({', '.join(sorted(kinds))}) need one disk template",
                errors.ECODE_INVAL,
            )
        if not given:
            template = DISKLESS
        elif kinds:
            template = str(kinds.pop())
        else:
            template = str(unit.config.cluster().enabled_disk_templates[0])
    elif kinds - {template}:
        raise errors.OpPrereqError(
            f"disks of kind {', '.join(sorted(kinds))} contradict disk template {template}",
            errors.ECODE_INVAL,
        )
    enabled = unit.config.cluster().enabled_disk_templates
    if template not in enabled:
        raise errors.OpPrereqError(
            f"disk template {template} is not enabled in this cluster, only"
            f" {', '.join(sorted(enabled))}",
            errors.ECODE_INVAL,
        )
    if template not in (DISKLESS, *FILE_BASED):
        raise errors.OpPrereqError(
            f"disks of kind {template} cannot be made by this version", errors.ECODE_INVAL
        )
    return template


def plan_sizes(template: str, given: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Check the wishes one by one.

    :returns: dictionaries with ``size`` (MiB), ``mode`` and ``name``.
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
    planned = [_checked(template, index, wish) for index, wish in enumerate(given)]
    names = [wish["name"] for wish in planned if wish["name"]]
    for name in names:
        if names.count(name) > 1:
            raise errors.OpPrereqError(f"two disks are named {name!r}", errors.ECODE_NOTUNIQUE)
    return planned


def _checked(template: str, index: int, wish: Mapping[str, Any]) -> dict[str, Any]:
    foreign = [key for key in _FOREIGN if wish.get(key) is not None]
    if foreign:
        raise errors.OpPrereqError(
            f"disk {index}: {', '.join(foreign)} cannot be given for disks of kind {template}",
            errors.ECODE_INVAL,
        )
    size = wish.get("size")
    try:
        size_mib = int(size)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise errors.OpPrereqError(
            f"disk {index}: {size!r} is not a size in MiB", errors.ECODE_INVAL
        ) from None
    if size_mib < 1:
        raise errors.OpPrereqError(
            f"disk {index}: the size must be at least 1 MiB, not {size_mib}", errors.ECODE_INVAL
        )
    mode = wish.get("mode") or RDWR
    if mode not in ACCESS_MODES:
        raise errors.OpPrereqError(
            f"disk {index}: access mode {mode!r} is not one of {', '.join(ACCESS_MODES)}",
            errors.ECODE_INVAL,
        )
    name = wish.get("name")
    return {
        "size": size_mib,
        "mode": mode,
        "name": None if name in (None, "none", "") else str(name),
    }


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


def make_disks(
    unit: LogicalUnit,
    template: str,
    planned: list[dict[str, Any]],
    *,
    primary_node: str,
    directory: str | None,
    driver: str | None,
) -> list[Disk]:
    """Give every planned disk its identity."""
    now = clock.now()
    disks = []
    for index, wish in enumerate(planned):
        name = f"{unit.config.new_uuid(unit.ctx.ec_id)}.{template}.disk{index}"
        disks.append(
            Disk(
                dev_type=template,
                logical_id=(driver or FILE_DRIVER_LOOP, posixpath.join(directory or "", name)),
                iv_name=f"disk/{index}",
                size=wish["size"],
                mode=wish["mode"],
                name=wish["name"],
                # A file on shared storage belongs to no node.
                nodes=() if template == SHARED_FILE else (primary_node,),
                uuid=unit.config.new_uuid(unit.ctx.ec_id),
                ctime=now,
                mtime=now,
                serial_no=1,
            )
        )
    return disks
