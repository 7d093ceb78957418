"""Node calls about storage: disks, DRBD, snapshots, LVM, storage units, external storage.

A disk travels with its parameters filled in; callers pass ``(disk, instance)``.

The calls ``*_multi`` of this project do for several disks what the published call without that
ending does for one; their answer has a value or an error for each disk. The master makes these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ganeti import ht
from ganeti.constants.rpc import TIMEOUT_NORMAL_S, TIMEOUT_SLOW_S, TIMEOUT_URGENT_S
from ganeti.objects.transfer import BlockDevStatus
from ganeti.wire.calls.base import (
    DISK,
    DISK_RENAMES,
    DISKS,
    FACTS,
    INSTANCE,
    MULTI_DISKS,
    NOTHING,
    PLAIN,
    Arg,
    Call,
    EachResult,
    ObjectListResult,
    ObjectResult,
    PartlyResult,
    ResultCodec,
    StatusListResult,
)

_ROWS = ResultCodec(ht.ListOf(ht.List))


def _for_each_disk(limit_s: float) -> Callable[[Mapping[str, Any]], float]:
    """Return the time limit of a call by which a node works for one disk after the other.

    :param limit_s: for one disk.
    """
    return lambda args: limit_s * max(1, len(args["disks"]))


# -- disks -----------------------------------------------------------------------------------------
#: Make a disk. ``owner``: name of the instance; ``info``: text to store with a logical volume.
#: -> unique id as text, or None (possible on secondary nodes)
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
    work="creation of a disk",
)
#: Remove a disk.
BLOCKDEV_REMOVE = Call(
    "blockdev_remove", (Arg("disk", DISK),), timeout_s=900, work="removal of a disk"
)
#: Activate a disk. -> [device path, link name, uri or None]; on a secondary node, True instead of
#: the path
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
    work="activation of a disk",
)
#: Deactivate a disk.
BLOCKDEV_SHUTDOWN = Call(
    "blockdev_shutdown",
    (Arg("disk", DISK),),
    timeout_s=900,
    keep=True,
    work="deactivation of a disk",
)
#: Ask for the state of a disk. -> BlockDevStatus, or None when the device is not active
BLOCKDEV_FIND = Call(
    "blockdev_find",
    (Arg("disk", DISK),),
    ObjectResult(BlockDevStatus, maybe=True),
    timeout_s=900,
    keep=True,
)
#: Whether a node can use disks which several nodes can reach. -> per disk True, False for one which
#: is surely absent, or None when the node cannot tell without attaching it
BLOCKDEV_REACHABLE_MULTI = Call(
    "blockdev_reachable_multi",
    (Arg("disks", MULTI_DISKS),),
    EachResult(ResultCodec(ht.Maybe(ht.Bool))),
    timeout_s=_for_each_disk(TIMEOUT_URGENT_S),
    many=True,
)
#: Make disks, or devices of which mirrored disks are made. Their sizes are those of the objects.
#: -> per disk its unique id as text, or None
BLOCKDEV_CREATE_MULTI = Call(
    "blockdev_create_multi",
    (
        Arg("disks", MULTI_DISKS),
        Arg("owner", PLAIN, ht.NonEmptyString),
        Arg("on_primary", PLAIN, ht.Bool),
        Arg("info", PLAIN, ht.Str),
        Arg("exclusive_storage", PLAIN, ht.Bool),
    ),
    EachResult(ResultCodec(ht.Any)),
    timeout_s=_for_each_disk(900),
    many=True,
    work="creation of disks",
)
#: Remove disks.
BLOCKDEV_REMOVE_MULTI = Call(
    "blockdev_remove_multi",
    (Arg("disks", MULTI_DISKS),),
    EachResult(NOTHING),
    timeout_s=_for_each_disk(900),
    many=True,
    work="removal of disks",
)
#: Activate disks of an instance. ``indexes``: the numbers of the disks. -> per disk what
#: ``blockdev_assemble`` returns
BLOCKDEV_ASSEMBLE_MULTI = Call(
    "blockdev_assemble_multi",
    (
        Arg("disks", MULTI_DISKS),
        Arg("instance", INSTANCE),
        Arg("on_primary", PLAIN, ht.Bool),
        Arg("indexes", PLAIN, ht.ListOf(ht.NonNegInt)),
    ),
    EachResult(ResultCodec(ht.ListOf(ht.Any))),
    timeout_s=_for_each_disk(900),
    many=True,
    keep=True,
    work="activation of disks",
)
#: Deactivate disks.
BLOCKDEV_SHUTDOWN_MULTI = Call(
    "blockdev_shutdown_multi",
    (Arg("disks", MULTI_DISKS),),
    EachResult(NOTHING),
    timeout_s=_for_each_disk(900),
    many=True,
    keep=True,
    work="deactivation of disks",
)
#: Ask for the states of disks. -> per disk BlockDevStatus, or None when the device is not active
BLOCKDEV_FIND_MULTI = Call(
    "blockdev_find_multi",
    (Arg("disks", MULTI_DISKS),),
    EachResult(ObjectResult(BlockDevStatus, maybe=True)),
    timeout_s=_for_each_disk(900),
    many=True,
    keep=True,
)
#: Replace the texts which are stored with logical volumes.
BLOCKDEV_SETINFO_MULTI = Call(
    "blockdev_setinfo_multi",
    (Arg("disks", MULTI_DISKS), Arg("info", PLAIN, ht.Str)),
    EachResult(NOTHING),
    timeout_s=_for_each_disk(900),
    many=True,
    work="change of the texts of volumes",
)
#: Make disks writable.
BLOCKDEV_OPEN = Call(
    "blockdev_open",
    (
        Arg("instance_name", PLAIN, ht.NonEmptyString),
        Arg("disks", DISKS),
        Arg("exclusive", PLAIN, ht.Bool),
    ),
    timeout_s=900,
    work="change of disks to writable",
)
#: Make disks read-only.
BLOCKDEV_CLOSE = Call(
    "blockdev_close",
    (
        Arg("instance_name", PLAIN, ht.NonEmptyString),
        Arg("disks", DISKS),
    ),
    timeout_s=900,
    work="change of disks to read-only",
)
#: Ask for the real sizes of disks. -> per disk [size in bytes, spindles or None], None when it is
#: surely absent, or why that is not known
BLOCKDEV_GETDIMENSIONS = Call(
    "blockdev_getdimensions",
    (Arg("disks", MULTI_DISKS),),
    PartlyResult(ResultCodec(ht.Maybe(ht.ListOf(ht.Any)))),
    timeout_s=900,
    keep=True,
)
#: Ask how far disks are in sync. -> list of BlockDevStatus
BLOCKDEV_GETMIRRORSTATUS = Call(
    "blockdev_getmirrorstatus",
    (Arg("disks", DISKS),),
    ObjectListResult(BlockDevStatus),
    timeout_s=900,
)
#: Grow a disk. ``dry_run``: only check; ``backing_store``: grow the storage below a mirrored disk,
#: else what lies above it.
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
    work="growth of a disk",
)
#: Rename disks. ``renames``: list of (disk, instance, new logical_id).
BLOCKDEV_RENAME = Call(
    "blockdev_rename", (Arg("renames", DISK_RENAMES),), timeout_s=900, work="renaming of disks"
)
#: Replace the text which is stored with a logical volume.
BLOCKDEV_SETINFO = Call(
    "blockdev_setinfo",
    (Arg("disk", DISK), Arg("info", PLAIN, ht.Str)),
    timeout_s=900,
    work="change of the text of a volume",
)
#: Name of a call for several disks -> the published call which does the same for one.
FOR_ONE_DISK: dict[str, Call] = {
    BLOCKDEV_CREATE_MULTI.name: BLOCKDEV_CREATE,
    BLOCKDEV_REMOVE_MULTI.name: BLOCKDEV_REMOVE,
    BLOCKDEV_ASSEMBLE_MULTI.name: BLOCKDEV_ASSEMBLE,
    BLOCKDEV_SHUTDOWN_MULTI.name: BLOCKDEV_SHUTDOWN,
    BLOCKDEV_FIND_MULTI.name: BLOCKDEV_FIND,
    BLOCKDEV_SETINFO_MULTI.name: BLOCKDEV_SETINFO,
}
#: Ask many nodes how far disks are in sync. -> per disk [ok, BlockDevStatus or text of the error]
BLOCKDEV_GETMIRRORSTATUS_MULTI = Call(
    "blockdev_getmirrorstatus_multi",
    (Arg("disks", MULTI_DISKS),),
    StatusListResult(),
    timeout_s=900,
    many=True,
)
#: Make the directory of an instance for file storage.
FILE_STORAGE_DIR_CREATE = Call(
    "file_storage_dir_create",
    (Arg("path", PLAIN, ht.NonEmptyString),),
    timeout_s=300,
    keep=True,
    work="creation of a directory for disks",
)
#: Remove the directory of an instance for file storage.
FILE_STORAGE_DIR_REMOVE = Call(
    "file_storage_dir_remove",
    (Arg("path", PLAIN, ht.NonEmptyString),),
    timeout_s=300,
    keep=True,
    work="removal of a directory for disks",
)
#: Rename the directory of an instance for file storage.
FILE_STORAGE_DIR_RENAME = Call(
    "file_storage_dir_rename",
    (
        Arg("old_path", PLAIN, ht.NonEmptyString),
        Arg("new_path", PLAIN, ht.NonEmptyString),
    ),
    timeout_s=300,
    work="renaming of a directory for disks",
)

# -- DRBD ------------------------------------------------------------------------------------------
#: Attach storage to the local replica of a mirrored disk.
BLOCKDEV_ADDCHILDREN = Call(
    "blockdev_addchildren",
    (Arg("disk", DISK), Arg("children", DISKS)),
    timeout_s=900,
    work="attachment of storage to a replica",
)
#: Detach the storage of the local replica of a mirrored disk.
BLOCKDEV_REMOVECHILDREN = Call(
    "blockdev_removechildren",
    (Arg("disk", DISK), Arg("children", DISKS)),
    timeout_s=900,
    work="detachment of storage from a replica",
)
#: Pause or resume the synchronisation of disks. -> per disk [ok, None or text of the error]
BLOCKDEV_PAUSE_RESUME_SYNC = Call(
    "blockdev_pause_resume_sync",
    (Arg("disks", DISKS), Arg("pause", PLAIN, ht.Bool)),
    ResultCodec(ht.ListOf(ht.ListOf(ht.Any))),
    timeout_s=900,
    work="change of the synchronisation of disks",
)
#: Connect the replicas of DRBD disks. ``multimaster``: both may be written (dual-primary).
DRBD_ATTACH_NET = Call(
    "drbd_attach_net",
    (Arg("disks", DISKS), Arg("multimaster", PLAIN, ht.Bool)),
    timeout_s=TIMEOUT_NORMAL_S,
    many=True,
    work="connection of replicas",
)
#: Disconnect the replicas of DRBD disks.
DRBD_DISCONNECT_NET = Call(
    "drbd_disconnect_net",
    (Arg("disks", DISKS),),
    timeout_s=TIMEOUT_NORMAL_S,
    many=True,
    work="disconnection of replicas",
)
#: Ask whether DRBD disks are in sync.
#: -> [all are connected and in sync, percent of the disk which needs most to be synchronised]
DRBD_WAIT_SYNC = Call(
    "drbd_wait_sync",
    (Arg("disks", DISKS),),
    ResultCodec(ht.ListOf(ht.Any)),
    timeout_s=TIMEOUT_SLOW_S,
    many=True,
)
#: Ask which DRBD disks have no device. -> UUIDs of the disks which should be activated again; for a
#: disk of which that is not known, why
DRBD_NEEDS_ACTIVATION = Call(
    "drbd_needs_activation",
    (Arg("disks", MULTI_DISKS),),
    PartlyResult(ResultCodec(ht.Str)),
    timeout_s=TIMEOUT_NORMAL_S,
)
#: Let DRBD disks, which are writable here, confirm no write any more which their peers do not have.
#: -> UUIDs of the disks for which that holds; both replicas of them are equal
DRBD_WAIT_FOR_PEER = Call(
    "drbd_wait_for_peer",
    (Arg("disks", DISKS),),
    ResultCodec(ht.ListOf(ht.Str)),
    timeout_s=TIMEOUT_URGENT_S,
    work="protection of disks against writes to one replica only",
)
#: Let DRBD disks confirm writes again although their peers do not have them.
DRBD_WRITE_ALONE = Call(
    "drbd_write_alone",
    (Arg("disks", DISKS),),
    timeout_s=TIMEOUT_URGENT_S,
    work="end of the protection of disks against writes to one replica only",
)
#: Resume the I/O of those DRBD disks whose I/O is suspended now. It does not count as work, because
#: the work of another call may wait for such a disk.
DRBD_RESUME_IO = Call("drbd_resume_io", (Arg("disks", MULTI_DISKS),), timeout_s=TIMEOUT_URGENT_S)
#: Ask for the DRBD devices whose I/O is suspended. -> their minors; none without DRBD
DRBD_WAITING = Call(
    "drbd_waiting", (), ResultCodec(ht.ListOf(ht.NonNegInt)), timeout_s=TIMEOUT_URGENT_S, many=True
)
#: Ask for the DRBD usermode helper. -> path of the program which the kernel module calls
DRBD_HELPER = Call("drbd_helper", (), ResultCodec(ht.Str), timeout_s=TIMEOUT_URGENT_S, many=True)

# -- snapshots and content of disks ----------------------------------------------------------------
#: Make a snapshot of a disk for an export. -> ``logical_id`` of the snapshot
BLOCKDEV_SNAPSHOT = Call(
    "blockdev_snapshot",
    (
        Arg("disk", DISK),
        Arg("snapshot_name", PLAIN, ht.Str),
        Arg("snapshot_size_mib", PLAIN, ht.NonNegInt),
    ),
    ResultCodec(ht.Any),
    timeout_s=900,
    work="snapshot of a disk",
)
#: Make snapshots which the user keeps. ``sizes_mib``: the capacity of the snapshot of each disk;
#: ``at_rest``: no process writes to the disks meanwhile.
BLOCKDEV_SNAPSHOT_KEEP = Call(
    "blockdev_snapshot_keep",
    (
        Arg("disks", MULTI_DISKS),
        Arg("name", PLAIN, ht.NonEmptyString),
        Arg("sizes_mib", PLAIN, ht.ListOf(ht.NonNegInt)),
        Arg("at_rest", PLAIN, ht.Bool),
    ),
    EachResult(NOTHING),
    timeout_s=_for_each_disk(3600),
    many=True,
    work="snapshots of disks",
)
#: Ask which snapshots disks have.
#: -> per disk a list of [name, size in bytes, seconds since 1970 or None, usable], or why that is
#: not known
BLOCKDEV_SNAPSHOT_LIST = Call(
    "blockdev_snapshot_list",
    (Arg("disks", MULTI_DISKS),),
    PartlyResult(ResultCodec(ht.ListOf(ht.ListOf(ht.Any)))),
    timeout_s=300,
    many=True,
)
#: Copy the content of a snapshot to its disk, which is active on this node.
BLOCKDEV_SNAPSHOT_RESTORE = Call(
    "blockdev_snapshot_restore",
    (Arg("disk", DISK), Arg("name", PLAIN, ht.NonEmptyString)),
    timeout_s=3600,
    work="restoration of a disk from a snapshot",
)
#: Overwrite a part of a disk.
BLOCKDEV_WIPE = Call(
    "blockdev_wipe",
    (
        Arg("disk", DISK),
        Arg("offset_mib", PLAIN, ht.NonNegInt),
        Arg("size_mib", PLAIN, ht.PositiveInt),
    ),
    timeout_s=3600,
    work="wiping of a disk",
)
#: Copy an image to a disk. ``image``: path on the node, or an http, https or ftp address;
#: ``size_mib``: at most so much is copied.
BLOCKDEV_IMAGE = Call(
    "blockdev_image",
    (
        Arg("disk", DISK),
        Arg("image", PLAIN, ht.NonEmptyString),
        Arg("size_mib", PLAIN, ht.PositiveInt),
    ),
    timeout_s=3600,
    work="copy of an image to a disk",
)

# -- conversion ------------------------------------------------------------------------------------
#: Copy the content of a disk to another disk, which exists and is at least as large.
BLOCKDEV_CONVERT = Call(
    "blockdev_convert",
    (Arg("source", DISK), Arg("target", DISK)),
    timeout_s=3600,
    work="copy of a disk to another one",
)

# -- LVM and block devices -------------------------------------------------------------------------
#: Ask for volume groups. -> dict of name -> size in MiB
VG_LIST = Call(
    "vg_list",
    (),
    ResultCodec(ht.DictOf(ht.Str, ht.NonNegInt)),
    timeout_s=TIMEOUT_URGENT_S,
    many=True,
)
#: A logical volume: [size in MiB as text, inactive, online].
LISTED_VOLUME = ht.Tuple(ht.Or(ht.Str, ht.Int, ht.Float), ht.Bool, ht.Bool)
#: Ask for logical volumes. ``groups``: names of volume groups, empty for all.
#: -> dict of "vg/lv" -> [size in MiB as text, inactive, online], and "vg" -> why, for one of the
#: groups which cannot be read
LV_LIST = Call(
    "lv_list",
    (Arg("groups", PLAIN, ht.ListOf(ht.NonEmptyString)),),
    ResultCodec(ht.DictOf(ht.Str, ht.Or(LISTED_VOLUME, ht.Str))),
    timeout_s=TIMEOUT_URGENT_S,
    many=True,
)
#: Ask for the sizes of devices. -> dict of device -> size in MiB, of those which are block devices
BDEV_SIZES = Call(
    "bdev_sizes",
    (Arg("devices", PLAIN, ht.ListOf(ht.NonEmptyString)),),
    ResultCodec(ht.DictOf(ht.Str, ht.NonNegInt)),
    timeout_s=TIMEOUT_URGENT_S,
    many=True,
)

# -- storage units ---------------------------------------------------------------------------------
#: List storage units. ``su_name``: kind of storage; ``su_args``: for files ``[[directory, ...]]``;
#: ``name``: only this unit, None for all; ``fields``: of name, size, used, free (MiB), allocatable.
#: ``apart``: a unit which fails does not hide the others; each row has one more value, None or why
#: the others are not known. -> rows
STORAGE_LIST = Call(
    "storage_list",
    (
        Arg("su_name", PLAIN, ht.NonEmptyString),
        Arg("su_args", PLAIN, ht.List),
        Arg("name", PLAIN, ht.Maybe(ht.NonEmptyString)),
        Arg("fields", PLAIN, ht.ListOf(ht.NonEmptyString)),
        Arg("apart", PLAIN, ht.Bool, default=False),
    ),
    _ROWS,
    timeout_s=900,
    many=True,
)
#: Change a storage unit. ``changes``: dict of field -> new value.
STORAGE_MODIFY = Call(
    "storage_modify",
    (
        Arg("su_name", PLAIN, ht.NonEmptyString),
        Arg("su_args", PLAIN, ht.List),
        Arg("name", PLAIN, ht.NonEmptyString),
        Arg("changes", PLAIN, ht.DictOf(ht.Str, ht.Any)),
    ),
    timeout_s=900,
)
#: Carry out an operation on a storage unit. ``op``: fix-consistency.
STORAGE_EXECUTE = Call(
    "storage_execute",
    (
        Arg("su_name", PLAIN, ht.NonEmptyString),
        Arg("su_args", PLAIN, ht.List),
        Arg("name", PLAIN, ht.NonEmptyString),
        Arg("op", PLAIN, ht.NonEmptyString),
    ),
    timeout_s=900,
)
#: Ask for the logical volumes of the node.
#: ``apart``: a volume group which fails does not hide the others.
#: -> list of {name, size (MiB), dev, vg}: a row for each physical device of each logical volume;
#: {vg, problem} for a volume group which could not be read
NODE_VOLUMES = Call(
    "node_volumes",
    (Arg("apart", PLAIN, ht.Bool, default=False),),
    ResultCodec(ht.ListOf(FACTS)),
    timeout_s=300,
    many=True,
)

# -- providers of external storage -----------------------------------------------------------------
#: Ask which providers of external storage the node has.
#: -> list of [name, path, valid, diagnose text, parameters [[name, doc]]]
EXTSTORAGE_DIAGNOSE = Call(
    "extstorage_diagnose",
    (),
    ResultCodec(
        ht.ListOf(ht.Tuple(ht.Str, ht.Str, ht.Bool, ht.Str, ht.ListOf(ht.Tuple(ht.Str, ht.Str))))
    ),
    timeout_s=300,
    many=True,
)
# -- directories -----------------------------------------------------------------------------------
# Whether nodes see the same directory (of this project); paths are virtual, and below the export
# directory or a directory of disks.
_DIRECTORIES = Arg("directories", PLAIN, ht.ListOf(ht.NonEmptyString))
_TOKEN = Arg("token", PLAIN, ht.NonEmptyString)
#: Make a mark in each directory. -> directory -> None, or why there is none
DIRECTORY_MARK = Call(
    "directory_mark",
    (_DIRECTORIES, _TOKEN, Arg("key", PLAIN, ht.NonEmptyString)),
    ResultCodec(ht.DictOf(ht.Str, ht.Maybe(ht.Str))),
    timeout_s=TIMEOUT_NORMAL_S,
    many=True,
)
#: Look for the marks of other nodes. -> directory -> their keys, or why it is not known
DIRECTORY_SEEN = Call(
    "directory_seen",
    (_DIRECTORIES, _TOKEN, Arg("keys", PLAIN, ht.ListOf(ht.NonEmptyString))),
    ResultCodec(ht.DictOf(ht.Str, ht.Or(ht.Str, ht.ListOf(ht.Str)))),
    timeout_s=TIMEOUT_NORMAL_S,
    many=True,
)
#: Remove the mark of a node from each directory.
DIRECTORY_UNMARK = Call(
    "directory_unmark",
    (_DIRECTORIES, _TOKEN, Arg("key", PLAIN, ht.NonEmptyString)),
    timeout_s=TIMEOUT_NORMAL_S,
    many=True,
)
#: Ask for the free space of directories, in which a file of so many bytes must be possible.
#: ``files``: directory -> the size of its largest new file. ``removed``: paths; what begins so is
#: removed before the files are made, so its space counts as free. ``sparse``: a file takes space
#: only when it is written.
#: -> directory -> bytes, or why such a file cannot be made there
DIRECTORY_SPACE = Call(
    "directory_space",
    (
        Arg("files", PLAIN, ht.DictOf(ht.NonEmptyString, ht.NonNegInt)),
        Arg("removed", PLAIN, ht.ListOf(ht.NonEmptyString)),
        Arg("sparse", PLAIN, ht.Bool),
    ),
    ResultCodec(ht.DictOf(ht.Str, ht.Or(ht.NonNegInt, ht.Str))),
    timeout_s=TIMEOUT_NORMAL_S,
    many=True,
)
