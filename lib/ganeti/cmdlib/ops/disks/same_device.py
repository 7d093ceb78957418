"""Finds disks whose names differ, but which are one device on a node.

A disk of template ``blockdev`` has a path which the administrator chose. Another path may lead to
the same device, to a part of it, or to a device on which it is built; it may also be the device of
a disk of another template. The nodes say which names a device has
(:mod:`ganeti.objects.device_names`); here they are compared.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ganeti import errors
from ganeti.cmdlib.base import why
from ganeti.constants import disk as disk_c
from ganeti.constants import node_verify as nv
from ganeti.objects import fill
from ganeti.objects.device_names import DeviceNames, rbd_image, united
from ganeti.wire.calls import NODE_VERIFY

if TYPE_CHECKING:
    from ganeti.config import Config
    from ganeti.objects import ConfigData, Disk, Instance
    from ganeti.rpc import RpcRunner

_EVERYWHERE = frozenset((disk_c.BLOCK, disk_c.RBD, disk_c.SHARED_FILE))


class KnownDisk(NamedTuple):
    """A disk of the configuration; the instance is None while it is detached."""

    disk: Disk
    instance: Instance | None

    def __str__(self) -> str:
        if self.instance is None:
            return f"the detached disk {self.disk.uuid}"
        return f"{self.disk.iv_name} of instance {self.instance.name}"


def has_devices_of_administrators(data: ConfigData) -> bool:
    """Tell whether a disk is a device which an administrator chose by its path."""
    return any(disk.dev_type == disk_c.BLOCK for disk in data.disks.values())


def known_disks(data: ConfigData) -> list[KnownDisk]:
    """Return all disks with their instances."""
    owners = {uuid: one for one in data.instances.values() for uuid in one.disks}
    return [
        KnownDisk(disk, owners.get(uuid))
        for uuid, disk in data.disks.items()
        if not disk.forthcoming
    ]


def paths(known: KnownDisk, node_uuid: str) -> list[str]:
    """Return the paths of the devices of a disk on a node; none when the disk is not there."""
    disk = known.disk
    if disk.dev_type not in _EVERYWHERE:
        own = (known.instance.primary_node,) if known.instance is not None else ()
        if node_uuid not in (disk.all_node_uuids() or disk.nodes or own):
            return []
    found = []
    for device in disk.walk():
        if device.is_volume:
            found.append(volume_path(*device.volume_id))
        elif device.has_whole_drbd_id:
            found.append(f"/dev/drbd{device.drbd_id.minors.get(node_uuid)}")
        elif device.dev_type in (disk_c.BLOCK, disk_c.FILE, disk_c.SHARED_FILE):
            found.append(device.stored_name)
    return found


def volume_path(group: str, name: str) -> str:
    """Return the path of a logical volume."""
    return f"/dev/{group}/{name}"


def names_of(
    data: ConfigData, known: KnownDisk, node_uuid: str, found: Mapping[str, DeviceNames]
) -> DeviceNames:
    """Return the names of a disk on a node.

    :param found: the names which the node found for paths.
    """
    names = [found[path] for path in paths(known, node_uuid) if path in found]
    if known.disk.dev_type == disk_c.RBD:
        group = data.nodegroups[data.nodes[node_uuid].group]
        filled = fill.fill_diskparams(data.cluster.diskparams, group.diskparams)
        params = fill.annotated_disk(known.disk, filled).params or {}
        image = rbd_image(str(params.get("pool", "")), known.disk.stored_name)
        names.append(DeviceNames(frozenset([image])))
    return united(names)


def read_answer(answer: Any) -> tuple[dict[str, DeviceNames], dict[str, str]]:
    """Read the answer of a node to the check ``DEVICES``.

    :returns: path -> names; and path -> why the node found none.
    """
    found: dict[str, DeviceNames] = {}
    problems: dict[str, str] = {}
    for path, value in (answer if isinstance(answer, dict) else {}).items():
        try:
            found[path] = DeviceNames.parse(value)
        except errors.ParseError as err:
            problems[path] = value if isinstance(value, str) else str(err)
    return found, problems


def require_own_device(
    config: Config, rpc: RpcRunner, node_uuid: str, wanted: Sequence[str], *, must_be_found: bool
) -> None:
    """Check that devices to be adopted are no part of a disk, and not one device among themselves.

    :param wanted: the path of each device.
    :param must_be_found: False when a device may have no path now, because it is not active.
    :raises errors.OpPrereqError: a device is in use under another name, or the node cannot tell.
    """
    node = config.node(node_uuid).name
    adopted, problems = _ask(config, rpc, node_uuid, wanted)
    for path in wanted:
        if path not in adopted and must_be_found:
            raise errors.OpPrereqError(
                f"node {node} cannot say which device {path} is:"
                f" {problems.get(path, 'it gave no answer')}",
                errors.ECODE_ENVIRON,
            )
    _reserve(config, node_uuid, adopted)
    # A job which had reserved one of them before has added its disk by now.
    data = config.snapshot()
    known = known_disks(data)
    asked = {path for one in known for path in paths(one, node_uuid)}
    found = _ask(config, rpc, node_uuid, asked)[0] if asked else {}
    seen: list[tuple[str, DeviceNames]] = []
    disks = [(str(one), names_of(data, one, node_uuid, found)) for one in known]
    for path in wanted:
        if path not in adopted:
            continue
        for other, names in (*disks, *seen):
            if adopted[path].overlaps(names):
                raise errors.OpPrereqError(
                    f"device {path} is already in use on node {node} under another name: it is, or"
                    f" overlaps, {other}",
                    errors.ECODE_NOTUNIQUE,
                )
        seen.append((f"device {path}, which is named for another disk", adopted[path]))


def _reserve(config: Config, node_uuid: str, adopted: Mapping[str, DeviceNames]) -> None:
    """Keep other jobs from the devices until this one has ended.

    :raises errors.OpPrereqError: another job is about to adopt one of them.
    """
    for path, names in adopted.items():
        try:
            for name in names.unique(node_uuid):
                config.reserve_device(name)
        except errors.ReservationError as err:
            raise errors.OpPrereqError(
                f"device {path} is being adopted by another job, maybe under another name",
                errors.ECODE_NOTUNIQUE,
            ) from err


def _ask(
    config: Config, rpc: RpcRunner, node_uuid: str, asked: Collection[str]
) -> tuple[dict[str, DeviceNames], dict[str, str]]:
    answer = rpc.call(
        NODE_VERIFY,
        node_uuid,
        checks={nv.DEVICES: sorted(asked)},
        cluster_name=config.cluster().cluster_name,
        all_hvparams={},
    )
    if answer.failure is not None:
        raise errors.OpPrereqError(
            f"node {answer.node_name} cannot say which devices are the same: {why(answer.failure)}",
            errors.ECODE_ENVIRON,
        )
    return read_answer(answer.data.get(nv.DEVICES))


def overlapping(
    disks: Iterable[tuple[KnownDisk, DeviceNames]],
) -> list[tuple[KnownDisk, KnownDisk]]:
    """Find pairs of disks which are one device, or overlap; each pair once.

    :param disks: the disks of a node with their names there.
    """
    listed = list(disks)
    holders: dict[str, list[int]] = {}
    for index, (_disk, names) in enumerate(listed):
        for name in names.own:
            holders.setdefault(name, []).append(index)
    pairs = {
        (min(index, other), max(index, other))
        for index, (_disk, names) in enumerate(listed)
        for name in names.own | names.below
        for other in holders.get(name, ())
        if other != index
    }
    return [(listed[first][0], listed[second][0]) for first, second in sorted(pairs)]
