"""Calls about block devices and file storage.

A disk travels with its parameters filled in; callers pass ``(disk, instance)``.
"""

from __future__ import annotations

from ganeti import ht
from ganeti.objects.transfer import BlockDevStatus
from ganeti.wire.calls.base import (
    DISK,
    DISK_RENAMES,
    DISKS,
    INSTANCE,
    MULTI_DISKS,
    PLAIN,
    Arg,
    Call,
    ObjectListResult,
    ObjectResult,
    ResultCodec,
    StatusListResult,
)

#: -> unique id as text, or None (may be so on secondaries)
BLOCKDEV_CREATE = Call(
    "blockdev_create",
    (
        Arg("disk", DISK),
        Arg("size_mib", PLAIN, ht.NonNegInt),
        Arg("owner", PLAIN, ht.NonEmptyString),
        Arg("on_primary", PLAIN, ht.Bool),
        Arg("info", PLAIN, ht.Str),
        Arg("exclusive_storage", PLAIN, ht.Bool),
    ),
    ResultCodec(ht.Any),
    timeout_s=900,
)
BLOCKDEV_REMOVE = Call("blockdev_remove", (Arg("disk", DISK),), timeout_s=900)
#: -> [device path, link name, uri or None]; True in place of a path on a secondary
BLOCKDEV_ASSEMBLE = Call(
    "blockdev_assemble",
    (
        Arg("disk", DISK),
        Arg("instance", INSTANCE),
        Arg("on_primary", PLAIN, ht.Bool),
        Arg("index", PLAIN, ht.NonNegInt),
    ),
    ResultCodec(ht.ListOf(ht.Any)),
    timeout_s=900,
    keep=True,
)
BLOCKDEV_SHUTDOWN = Call("blockdev_shutdown", (Arg("disk", DISK),), timeout_s=900, keep=True)
#: -> BlockDevStatus, or None when the device is not there
BLOCKDEV_FIND = Call(
    "blockdev_find",
    (Arg("disk", DISK),),
    ObjectResult(BlockDevStatus, maybe=True),
    timeout_s=900,
    keep=True,
)
BLOCKDEV_OPEN = Call(
    "blockdev_open",
    (
        Arg("instance_name", PLAIN, ht.NonEmptyString),
        Arg("disks", DISKS),
        Arg("exclusive", PLAIN, ht.Bool),
    ),
    timeout_s=900,
)
BLOCKDEV_CLOSE = Call(
    "blockdev_close",
    (
        Arg("instance_name", PLAIN, ht.NonEmptyString),
        Arg("disks", DISKS),
    ),
    timeout_s=900,
)
#: -> per disk [size in bytes, spindles or None], or None
BLOCKDEV_GETDIMENSIONS = Call(
    "blockdev_getdimensions",
    (Arg("disks", MULTI_DISKS),),
    ResultCodec(ht.ListOf(ht.Maybe(ht.ListOf(ht.Any)))),
    timeout_s=900,
    keep=True,
)
BLOCKDEV_GETMIRRORSTATUS = Call(
    "blockdev_getmirrorstatus",
    (Arg("disks", DISKS),),
    ObjectListResult(BlockDevStatus),
    timeout_s=900,
)
BLOCKDEV_GROW = Call(
    "blockdev_grow",
    (
        Arg("disk", DISK),
        Arg("amount_mib", PLAIN, ht.NonNegInt),
        Arg("dry_run", PLAIN, ht.Bool),
        Arg("backing_store", PLAIN, ht.Bool),
        Arg("exclusive_storage", PLAIN, ht.Bool),
    ),
    timeout_s=900,
)
BLOCKDEV_RENAME = Call("blockdev_rename", (Arg("renames", DISK_RENAMES),), timeout_s=900)
BLOCKDEV_SETINFO = Call(
    "blockdev_setinfo", (Arg("disk", DISK), Arg("info", PLAIN, ht.Str)), timeout_s=900
)
#: Give a mirrored disk new storage below it, or take away what it has.
BLOCKDEV_ADDCHILDREN = Call(
    "blockdev_addchildren", (Arg("disk", DISK), Arg("children", DISKS)), timeout_s=900
)
BLOCKDEV_REMOVECHILDREN = Call(
    "blockdev_removechildren", (Arg("disk", DISK), Arg("children", DISKS)), timeout_s=900
)
#: As `blockdev_getmirrorstatus`, for many nodes -> per disk [ok, BlockDevStatus or text]
BLOCKDEV_GETMIRRORSTATUS_MULTI = Call(
    "blockdev_getmirrorstatus_multi",
    (Arg("disks", MULTI_DISKS),),
    StatusListResult(),
    timeout_s=900,
    many=True,
)
#: -> per disk [ok, None or text]
BLOCKDEV_PAUSE_RESUME_SYNC = Call(
    "blockdev_pause_resume_sync",
    (Arg("disks", DISKS), Arg("pause", PLAIN, ht.Bool)),
    ResultCodec(ht.ListOf(ht.ListOf(ht.Any))),
    timeout_s=900,
)
#: -> `logical_id` of the copy
BLOCKDEV_SNAPSHOT = Call(
    "blockdev_snapshot",
    (
        Arg("disk", DISK),
        Arg("snapshot_name", PLAIN, ht.Str),
        Arg("snapshot_size_mib", PLAIN, ht.NonNegInt),
    ),
    ResultCodec(ht.Any),
    timeout_s=900,
)
#: Makes a snapshot which stays; `at_rest`: nobody writes to the disk meanwhile.
BLOCKDEV_SNAPSHOT_KEEP = Call(
    "blockdev_snapshot_keep",
    (
        Arg("disk", DISK),
        Arg("name", PLAIN, ht.NonEmptyString),
        Arg("size_mib", PLAIN, ht.NonNegInt),
        Arg("at_rest", PLAIN, ht.Bool),
    ),
    timeout_s=3600,
)
#: -> per disk a list of [name, size in bytes, seconds since 1970 or None, usable]
BLOCKDEV_SNAPSHOT_LIST = Call(
    "blockdev_snapshot_list",
    (Arg("disks", MULTI_DISKS),),
    ResultCodec(ht.ListOf(ht.ListOf(ht.ListOf(ht.Any)))),
    timeout_s=300,
    many=True,
)
#: Copies the content of a snapshot to its disk, which is active here.
BLOCKDEV_SNAPSHOT_RESTORE = Call(
    "blockdev_snapshot_restore",
    (Arg("disk", DISK), Arg("name", PLAIN, ht.NonEmptyString)),
    timeout_s=3600,
)
BLOCKDEV_WIPE = Call(
    "blockdev_wipe",
    (
        Arg("disk", DISK),
        Arg("offset_mib", PLAIN, ht.NonNegInt),
        Arg("size_mib", PLAIN, ht.PositiveInt),
    ),
    timeout_s=3600,
)
#: `image` is a path on the node, or an http, https or ftp address; `size_mib` at most
BLOCKDEV_IMAGE = Call(
    "blockdev_image",
    (
        Arg("disk", DISK),
        Arg("image", PLAIN, ht.NonEmptyString),
        Arg("size_mib", PLAIN, ht.PositiveInt),
    ),
    timeout_s=3600,
)
FILE_STORAGE_DIR_CREATE = Call(
    "file_storage_dir_create", (Arg("path", PLAIN, ht.NonEmptyString),), timeout_s=300, keep=True
)
FILE_STORAGE_DIR_REMOVE = Call(
    "file_storage_dir_remove", (Arg("path", PLAIN, ht.NonEmptyString),), timeout_s=300, keep=True
)
FILE_STORAGE_DIR_RENAME = Call(
    "file_storage_dir_rename",
    (
        Arg("old_path", PLAIN, ht.NonEmptyString),
        Arg("new_path", PLAIN, ht.NonEmptyString),
    ),
    timeout_s=300,
)
#: Copies the content of a disk to another, which exists and is at least as large.
BLOCKDEV_CONVERT = Call(
    "blockdev_convert", (Arg("source", DISK), Arg("target", DISK)), timeout_s=3600
)
