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
)

#: -> unique id as text, or None (may be so on secondaries)
BLOCKDEV_CREATE = Call(
    "blockdev_create", (
        Arg("disk", DISK),
        Arg("size_mib", PLAIN, ht.NonNegInt),
        Arg("owner", PLAIN, ht.NonEmptyString),
        Arg("on_primary", PLAIN, ht.Bool),
        Arg("info", PLAIN, ht.Str),
        Arg("exclusive_storage", PLAIN, ht.Bool),
    ), ResultCodec(ht.Any), timeout_s=900)
BLOCKDEV_REMOVE = Call("blockdev_remove", (Arg("disk", DISK),), timeout_s=900)
#: -> [device path, link name, uri or None]; True in place of a path on a secondary
BLOCKDEV_ASSEMBLE = Call(
    "blockdev_assemble", (
        Arg("disk", DISK),
        Arg("instance", INSTANCE),
        Arg("on_primary", PLAIN, ht.Bool),
        Arg("index", PLAIN, ht.NonNegInt),
    ), ResultCodec(ht.ListOf(ht.Any)), timeout_s=900)
BLOCKDEV_SHUTDOWN = Call("blockdev_shutdown", (Arg("disk", DISK),), timeout_s=900)
#: -> BlockDevStatus, or None when the device is not there
BLOCKDEV_FIND = Call("blockdev_find", (Arg("disk", DISK),),
                     ObjectResult(BlockDevStatus, maybe=True), timeout_s=900)
BLOCKDEV_OPEN = Call(
    "blockdev_open", (
        Arg("instance_name", PLAIN, ht.NonEmptyString),
        Arg("disks", DISKS),
        Arg("exclusive", PLAIN, ht.Bool),
    ), timeout_s=900)
BLOCKDEV_CLOSE = Call(
    "blockdev_close", (
        Arg("instance_name", PLAIN, ht.NonEmptyString),
        Arg("disks", DISKS),
    ), timeout_s=900)
#: -> per disk [size in bytes, spindles or None], or None
BLOCKDEV_GETDIMENSIONS = Call(
    "blockdev_getdimensions", (Arg("disks", MULTI_DISKS),),
    ResultCodec(ht.ListOf(ht.Maybe(ht.ListOf(ht.Any)))), timeout_s=900)
BLOCKDEV_GETMIRRORSTATUS = Call(
    "blockdev_getmirrorstatus", (Arg("disks", DISKS),),
    ObjectListResult(BlockDevStatus), timeout_s=900)
BLOCKDEV_GROW = Call(
    "blockdev_grow", (
        Arg("disk", DISK),
        Arg("amount_mib", PLAIN, ht.NonNegInt),
        Arg("dry_run", PLAIN, ht.Bool),
        Arg("backing_store", PLAIN, ht.Bool),
        Arg("exclusive_storage", PLAIN, ht.Bool),
    ), timeout_s=900)
BLOCKDEV_RENAME = Call("blockdev_rename", (Arg("renames", DISK_RENAMES),), timeout_s=900)
BLOCKDEV_SETINFO = Call(
    "blockdev_setinfo", (Arg("disk", DISK), Arg("info", PLAIN, ht.Str)), timeout_s=900)
FILE_STORAGE_DIR_CREATE = Call(
    "file_storage_dir_create", (Arg("path", PLAIN, ht.NonEmptyString),), timeout_s=300)
FILE_STORAGE_DIR_REMOVE = Call(
    "file_storage_dir_remove", (Arg("path", PLAIN, ht.NonEmptyString),), timeout_s=300)
FILE_STORAGE_DIR_RENAME = Call(
    "file_storage_dir_rename", (
        Arg("old_path", PLAIN, ht.NonEmptyString),
        Arg("new_path", PLAIN, ht.NonEmptyString),
    ), timeout_s=300)
