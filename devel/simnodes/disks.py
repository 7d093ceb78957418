"""What simulated nodes answer about disks: volumes in a group, and mirrored disks above them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from devel.simnodes import state
from devel.simnodes.answers import answers
from devel.simnodes.state import Replica, SimNode, volume_name
from ganeti import errors
from ganeti.constants import disk as disk_const
from ganeti.objects import Disk, FilledInstance
from ganeti.objects.transfer import BlockDevStatus
from ganeti.platform import paths
from ganeti.wire import calls

_VG = "xenvg"
_DRBD_MAJOR = 147


def _mirrored(disk: Disk) -> bool:
    return disk.dev_type == disk_const.DRBD8


def _path(node: SimNode, disk: Disk) -> str:
    if _mirrored(disk):
        return f"/dev/drbd{disk.logical_id[3 + disk.logical_id.index(node.uuid)]}"
    if disk.dev_type == disk_const.PLAIN:
        return f"/dev/{volume_name(disk)}"
    return str(disk.logical_id[1])


def _exists(node: SimNode, disk: Disk) -> bool:
    return disk.uuid in node.replicas if _mirrored(disk) else volume_name(disk) in node.volumes


def _require(node: SimNode, disk: Disk) -> Replica:
    replica = node.replicas.get(disk.uuid)
    if replica is None:
        raise errors.BlockDeviceError(f"device {_path(node, disk)} is not active on {node.name}")
    return replica


@answers(calls.BLOCKDEV_CREATE)
def create(node: SimNode, disk: Disk, size_mib: int, on_primary: bool, **_args: Any) -> str:
    """Make a volume, or a mirrored disk above volumes.

    :raises DeviceCreationError: it exists, or the group has no space.
    """
    if _mirrored(disk):
        node.fleet.add_replica(node, disk, primary=on_primary, in_sync=False)
        return _path(node, disk)
    name = volume_name(disk)
    if name in node.volumes:
        raise errors.DeviceCreationError(f"volume {name} exists already")
    if size_mib > node.free_disk_mib():
        raise errors.DeviceCreationError(f"the group has no {size_mib} MiB for {name}")
    node.volumes[name] = size_mib
    return _path(node, disk)


@answers(calls.BLOCKDEV_REMOVE)
def remove(node: SimNode, disk: Disk) -> None:
    """Remove a device and what is below it."""
    for part in disk.walk():
        if _mirrored(part):
            node.replicas.pop(part.uuid, None)
            node.fleet.forget_pair(part.uuid)
        else:
            node.volumes.pop(volume_name(part), None)


@answers(calls.BLOCKDEV_ASSEMBLE)
def assemble(
    node: SimNode, disk: Disk, instance: FilledInstance, on_primary: bool, index: int
) -> list[Any]:
    """Activate a disk.

    :raises BlockDeviceError: its volumes are lost.
    """
    for part in disk.walk():
        if not _mirrored(part) and volume_name(part) not in node.volumes:
            raise errors.BlockDeviceError(f"volume {volume_name(part)} does not exist")
    if _mirrored(disk):
        replica = node.replicas.get(disk.uuid)
        if replica is None:
            replica = node.fleet.add_replica(node, disk, primary=on_primary, in_sync=True)
        elif on_primary:
            replica.primary = True
    if not on_primary:
        return [True, True, None]
    path = _path(node, disk)
    return [path, f"/var/run/ganeti/instance-disks/{instance.name}:{index}", None]


@answers(calls.BLOCKDEV_SHUTDOWN)
def shutdown(node: SimNode, disk: Disk) -> None:
    """Deactivate a disk."""
    if _mirrored(disk):
        node.replicas.pop(disk.uuid, None)


@answers(calls.BLOCKDEV_OPEN)
def open_disks(node: SimNode, instance_name: str, disks: Sequence[Disk], exclusive: bool) -> None:
    """Make disks writable.

    :raises BlockDeviceError: one is not active, or it is writable on its other node.
    """
    for disk in filter(_mirrored, disks):
        replica = _require(node, disk)
        if exclusive:
            for other in node.fleet.holders.get(disk.uuid, ()):
                peer = other.replicas.get(disk.uuid)
                if other is not node and peer is not None and peer.primary and peer.connected:
                    raise errors.BlockDeviceError(f"{disk.iv_name} is writable on {other.name}")
        replica.primary = True


@answers(calls.BLOCKDEV_CLOSE)
def close_disks(node: SimNode, instance_name: str, disks: Sequence[Disk]) -> None:
    """Make disks read-only."""
    for disk in filter(_mirrored, disks):
        _require(node, disk).primary = False


def _status(node: SimNode, disk: Disk) -> BlockDevStatus:
    path = _path(node, disk)
    if not _mirrored(disk):
        if not _exists(node, disk):
            raise errors.BlockDeviceError(f"device {path} does not exist")
        return BlockDevStatus(dev_path=path, is_degraded=False, ldisk_status=disk_const.LDS_OKAY)
    replica = _require(node, disk)
    connected = node.connected(disk.uuid)
    missing = node.fleet.pair(disk.uuid, disk.size).go_on(connected)
    syncing = connected and missing > 0
    behind = missing > 0 and not replica.primary
    ldisk = disk_const.LDS_SYNC if behind else disk_const.LDS_OKAY
    return BlockDevStatus(
        dev_path=path,
        major=_DRBD_MAJOR,
        minor=replica.minor,
        sync_percent=round(100 * (1 - missing / disk.size), 1) if syncing else None,
        estimated_time=round(missing / node.fleet.sync_mib_s, 1) if syncing else None,
        is_degraded=not connected or missing > 0 or not replica.has_disk or node.lies,
        ldisk_status=ldisk if replica.has_disk else disk_const.LDS_FAULTY,
        writable=replica.primary,
    )


@answers(calls.BLOCKDEV_FIND)
def find(node: SimNode, disk: Disk) -> BlockDevStatus | None:
    """Return the state of a disk; None when it is not there."""
    return _status(node, disk) if _exists(node, disk) else None


def _each(step: Callable[..., Any]) -> Callable[..., list[Any]]:
    """Return the answer of a call for several disks: what ``step`` returns or raises for each."""

    def answer(node: SimNode, disks: Sequence[Disk], **args: Any) -> list[Any]:
        found: list[Any] = []
        for index, disk in enumerate(disks):
            try:
                found.append(step(node, disk, index, **args))
            except errors.GenericError as err:
                found.append(err)
        return found

    return answer


answers(calls.BLOCKDEV_CREATE_MULTI)(
    _each(lambda node, disk, _index, **args: create(node, disk, disk.size, **args))
)
answers(calls.BLOCKDEV_REMOVE_MULTI)(_each(lambda node, disk, _index: remove(node, disk)))
answers(calls.BLOCKDEV_SHUTDOWN_MULTI)(_each(lambda node, disk, _index: shutdown(node, disk)))
answers(calls.BLOCKDEV_FIND_MULTI)(_each(lambda node, disk, _index: find(node, disk)))
answers(calls.BLOCKDEV_REACHABLE_MULTI)(_each(lambda node, disk, _index: _exists(node, disk)))
answers(calls.BLOCKDEV_SETINFO_MULTI)(_each(lambda _node, _disk, _index, **_args: None))
answers(calls.BLOCKDEV_ASSEMBLE_MULTI)(
    _each(
        lambda node, disk, index, indexes, **args: assemble(
            node, disk, index=indexes[index], **args
        )
    )
)


@answers(calls.BLOCKDEV_GETMIRRORSTATUS)
def mirror_status(node: SimNode, disks: Sequence[Disk]) -> list[BlockDevStatus]:
    """Return the states of disks, all of which must exist."""
    return [_status(node, disk) for disk in disks]


@answers(calls.BLOCKDEV_GETMIRRORSTATUS_MULTI)
def mirror_status_multi(node: SimNode, disks: Sequence[Disk]) -> list[tuple[bool, Any]]:
    """Return the states of disks; one which does not exist does not hide the others."""
    found: list[tuple[bool, Any]] = []
    for disk in disks:
        try:
            found.append((True, _status(node, disk)))
        except errors.BlockDeviceError as err:
            found.append((False, str(err)))
    return found


@answers(calls.BLOCKDEV_GETDIMENSIONS)
def dimensions(node: SimNode, disks: Sequence[Disk]) -> list[list[int | None] | None]:
    """Return the sizes of disks in bytes."""
    return [[disk.size << 20, None] if _exists(node, disk) else None for disk in disks]


@answers(calls.BLOCKDEV_GROW)
def grow(
    node: SimNode, disk: Disk, amount_mib: int, dry_run: bool, backing_store: bool, **_: Any
) -> None:
    """Grow the volumes below a disk, or the mirrored disk.

    :raises BlockDeviceError: the group has no space.
    """
    for part in disk.walk():
        if _mirrored(part) or not backing_store:
            continue
        if amount_mib > node.free_disk_mib():
            raise errors.BlockDeviceError(f"the group has no {amount_mib} MiB")
        if not dry_run:
            node.volumes[volume_name(part)] += amount_mib


@answers(calls.BLOCKDEV_RENAME)
def rename(node: SimNode, renames: Sequence[tuple[Disk, tuple[Any, ...]]]) -> None:
    """Rename volumes."""
    for disk, new_id in renames:
        node.volumes[f"{new_id[0]}/{new_id[1]}"] = node.volumes.pop(volume_name(disk), disk.size)


@answers(
    calls.BLOCKDEV_SETINFO,
    calls.BLOCKDEV_WIPE,
    calls.FILE_STORAGE_DIR_CREATE,
    calls.FILE_STORAGE_DIR_REMOVE,
    calls.FILE_STORAGE_DIR_RENAME,
    calls.DRBD_WRITE_ALONE,
    calls.DRBD_RESUME_IO,
    calls.BLOCKDEV_CONVERT,
    calls.BLOCKDEV_IMAGE,
)
def nothing(_node: SimNode, **_args: Any) -> None:
    """Answer that it is done: the content of disks is not simulated."""


@answers(calls.BLOCKDEV_PAUSE_RESUME_SYNC)
def pause_sync(_node: SimNode, disks: Sequence[Disk], pause: bool) -> list[list[Any]]:
    """Answer that it is done; the synchronisation goes on."""
    return [[True, None] for _disk in disks]


@answers(calls.BLOCKDEV_ADDCHILDREN)
def add_children(node: SimNode, disk: Disk, children: Sequence[Disk]) -> None:
    """Attach new storage, which is then filled from the peer."""
    _require(node, disk).has_disk = True
    node.fleet.pair(disk.uuid, disk.size).missing_mib = disk.size


@answers(calls.BLOCKDEV_REMOVECHILDREN)
def remove_children(node: SimNode, disk: Disk, children: Sequence[Disk]) -> None:
    """Detach the storage of a mirrored disk."""
    _require(node, disk).has_disk = False


@answers(calls.DRBD_ATTACH_NET)
def attach_net(node: SimNode, disks: Sequence[Disk], multimaster: bool) -> None:
    """Connect replicas."""
    for disk in disks:
        _require(node, disk).connected = True


@answers(calls.DRBD_DISCONNECT_NET)
def disconnect_net(node: SimNode, disks: Sequence[Disk]) -> None:
    """Disconnect replicas."""
    for disk in disks:
        _require(node, disk).connected = False


@answers(calls.DRBD_WAIT_SYNC)
def wait_sync(node: SimNode, disks: Sequence[Disk]) -> list[Any]:
    """Return how far the disks are in sync.

    :raises BlockDeviceError: a replica does not see its peer.
    """
    lowest = 100.0
    for disk in disks:
        if not node.connected(disk.uuid):
            raise errors.BlockDeviceError(f"{disk.iv_name} does not connect to its peer")
        missing = node.fleet.pair(disk.uuid, disk.size).go_on(True)
        lowest = min(lowest, 100 * (1 - missing / disk.size))
    return [lowest >= 100.0, lowest]


@answers(calls.DRBD_NEEDS_ACTIVATION)
def needs_activation(node: SimNode, disks: Sequence[Disk]) -> list[str]:
    """Return the mirrored disks which are not active, or do not see their peers."""
    return [disk.uuid for disk in filter(_mirrored, disks) if not node.connected(disk.uuid)]


@answers(calls.DRBD_WAIT_FOR_PEER)
def wait_for_peer(node: SimNode, disks: Sequence[Disk]) -> list[str]:
    """Return the disks whose replicas are equal."""
    return [
        disk.uuid
        for disk in disks
        if node.connected(disk.uuid) and not node.fleet.pair(disk.uuid, disk.size).go_on(True)
    ]


@answers(calls.DRBD_WAITING)
def waiting(_node: SimNode) -> list[int]:
    """Return no device: none waits for its peer."""
    return []


@answers(calls.DRBD_HELPER)
def helper(_node: SimNode) -> str:
    """Return the usermode helper."""
    return "/bin/true"


@answers(calls.VG_LIST)
def vg_list(_node: SimNode) -> dict[str, int]:
    """Return the volume group."""
    return {_VG: state.DISK_MIB}


@answers(calls.LV_LIST)
def lv_list(node: SimNode, groups: list[str]) -> dict[str, list[Any]]:
    """Return the volumes."""
    return {
        name: [f"{size:.2f}", False, True]
        for name, size in node.volumes.items()
        if not groups or name.partition("/")[0] in groups
    }


@answers(calls.NODE_VOLUMES)
def node_volumes(node: SimNode, apart: bool = False) -> list[dict[str, Any]]:
    """Return the volumes with their device."""
    return [
        {
            "name": name.partition("/")[2],
            "vg": name.partition("/")[0],
            "size": size,
            "dev": "/dev/sda",
        }
        for name, size in node.volumes.items()
    ]


@answers(calls.DIRECTORY_MARK)
def directory_mark(_node: SimNode, directories: list[str], **_args: Any) -> dict[str, None]:
    """Make a mark, which nobody sees, because each node has directories of its own."""
    return dict.fromkeys(directories)


@answers(calls.DIRECTORY_SEEN)
def directory_seen(
    _node: SimNode, directories: list[str], keys: list[str], **_args: Any
) -> dict[str, list[str]]:
    """See the marks of other nodes in the directory of shared files only."""
    shared = paths.DEFAULT_SHARED_FILE_STORAGE_DIR
    return {path: keys if path.startswith(shared) else [] for path in directories}


@answers(calls.DIRECTORY_UNMARK)
def directory_unmark(_node: SimNode, **_args: Any) -> None:
    """Remove nothing."""


@answers(calls.STORAGE_LIST)
def storage_list(
    node: SimNode,
    su_name: str,
    su_args: list[Any],
    name: str | None,
    fields: list[str],
    apart: bool = False,
) -> list[list[Any]]:
    """Return the volume group as the only storage unit."""
    free = node.free_disk_mib()
    row = {
        "name": _VG,
        "size": state.DISK_MIB,
        "used": state.DISK_MIB - free,
        "free": free,
        "allocatable": True,
    }
    values = [*(row[field] for field in fields), *([None] if apart else [])]
    return [values] if name in (None, _VG) else []


@answers(calls.BLOCKDEV_SNAPSHOT_LIST)
def snapshots(_node: SimNode, disks: Sequence[Disk]) -> list[list[Any]]:
    """Return no snapshots."""
    return [[] for _disk in disks]


@answers(calls.BDEV_SIZES)
def bdev_sizes(_node: SimNode, devices: list[str]) -> dict[str, int]:
    """Return no size: there are no other block devices."""
    return {}


@answers(calls.EXTSTORAGE_DIAGNOSE)
def extstorage(_node: SimNode) -> list[Any]:
    """Return no provider."""
    return []
