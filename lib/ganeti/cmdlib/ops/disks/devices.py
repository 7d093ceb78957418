"""Creating, removing, activating and deactivating the disks of instances.

Logical units call these functions, which act through node calls and raise the errors of the calls;
the caller decides what is undone. All of them may be repeated, except that creating a disk fails
when it exists.

A disk is a tree. A plain volume or a file is one device on the primary node; a DRBD disk is a
device with its children on two nodes. Each function calls every node which has a part of the disk;
:func:`disk_nodes` names these nodes.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ganeti import errors
from ganeti.cmdlib.base import Context, DeviceKey, JobLog, why
from ganeti.cmdlib.ops.disks import ownership, replicas, suspended_io, wipe
from ganeti.cmdlib.ops.disks.calls import call_for_disks
from ganeti.constants.disk import LDS_OKAY, LDS_UNKNOWN
from ganeti.objects import fill
from ganeti.objects.disk_templates import (
    EXCLUSIVE_STORAGE,
    EXT_MIRRORED,
    INSTANCE_DEPENDENT_PATH,
    LVM_BASED,
)
from ganeti.wire.calls import (
    BLOCKDEV_ASSEMBLE_MULTI,
    BLOCKDEV_CREATE_MULTI,
    BLOCKDEV_FIND_MULTI,
    BLOCKDEV_REMOVE_MULTI,
    BLOCKDEV_SHUTDOWN_MULTI,
    FILE_STORAGE_DIR_CREATE,
    FILE_STORAGE_DIR_REMOVE,
)

if TYPE_CHECKING:
    from ganeti.config import Config
    from ganeti.objects import Disk, Instance, Node
    from ganeti.rpc import Result, RpcRunner


class ActiveDisk(NamedTuple):
    """How an active disk is used on the primary node.

    :ivar device: path of the device.
    :ivar link: path of the link to the device.
    :ivar uri: URI by which the hypervisor opens the disk without the kernel, or None.
    """

    device: str | None
    link: str | None
    uri: str | None


def info_text(instance: Instance) -> str:
    """Text which is stored with a new device, such as the tag of a logical volume."""
    return f"originstname+{instance.name}"


def disk_nodes(disk: Disk, primary_node: str) -> tuple[str, ...]:
    """Return the UUIDs of the nodes which have a part of a disk, the primary node first."""
    return (primary_node, *disk.secondary_nodes(primary_node))


def exclusive_storage(config: Config, node_uuid: str) -> bool:
    """Tell whether logical volumes of this node must not share a physical volume."""
    data = config.snapshot()
    node = data.nodes[node_uuid]
    filled = fill.fill_nd(data.cluster, data.nodegroups.get(node.group), node)
    return bool(filled.get("exclusive_storage"))


def require_spindles_allowed(
    config: Config, node_uuids: Iterable[str], given: Iterable[Mapping[str, Any]]
) -> None:
    """Refuse numbers of spindles for nodes which do not use exclusive storage.

    :param given: parameters of disks, as the user gave them.
    :raises errors.OpPrereqError: a disk has a number of spindles, and no node uses it.
    """
    if not any(params.get("spindles") is not None for params in given):
        return
    if not any(exclusive_storage(config, uuid) for uuid in node_uuids):
        raise errors.OpPrereqError(
            "a number of spindles is possible only with exclusive storage, which no node of the"
            " instance uses (node parameter exclusive_storage)",
            errors.ECODE_INVAL,
        )


def require_disks_allowed(config: Config, instance: Instance, node: Node) -> None:
    """Refuse a node with exclusive storage for an instance whose logical volumes are mirrored.

    :raises errors.OpPrereqError: the node cannot have disks of this template.
    """
    template = config.disk_template(instance)
    if template not in LVM_BASED or template in EXCLUSIVE_STORAGE:
        return
    if exclusive_storage(config, node.uuid):
        raise errors.OpPrereqError(
            f"node {node.name} has exclusive storage, which is not possible for the disks of"
            f" instance {instance.name} (template {template})",
            errors.ECODE_STATE,
        )


def mirrored_internally(disks: Iterable[Disk]) -> bool:
    """Tell whether a disk has a secondary node."""
    return any(disk.has_replicas for disk in disks)


# -- directories of files --------------------------------------------------------


def storage_dirs(disks: Iterable[Disk]) -> list[str]:
    """Return the directories which hold files of these disks, each once.

    One may have the name of another instance: a disk keeps its place when it is detached and
    attached again.
    """
    found = [
        posixpath.dirname(disk.file_id.path)
        for disk in disks
        if disk.dev_type in INSTANCE_DEPENDENT_PATH
    ]
    return list(dict.fromkeys(found))


def other_users(
    config: Config, directory: str, disks: Iterable[Disk], node_uuid: str | None = None
) -> list[Disk]:
    """Return the disks besides the given ones which have their files in a directory.

    They may be detached, or belong to any instance.

    :param node_uuid: look for files on this node only; those which all nodes share count, too.
    """
    data = config.snapshot()
    given = {disk.uuid for disk in disks}
    owners = {uuid: one.primary_node for one in data.instances.values() for uuid in one.disks}
    return [
        disk
        for uuid, disk in data.disks.items()
        if uuid not in given
        and storage_dirs([disk]) == [directory]
        and (
            node_uuid is None
            or disk.dev_type in EXT_MIRRORED
            or node_uuid in (disk.nodes or (owners.get(uuid, node_uuid),))
        )
    ]


def directory_for_new(config: Config, instance: Instance) -> str | None:
    """Return the directory of an instance in which a new file belongs; None for a new one.

    :returns: none in which another instance or a detached disk has files, too.
    """
    disks = config.instance_disks(instance)
    own = storage_dirs(disks)
    named = [directory for directory in own if posixpath.basename(directory) == instance.name]
    alone = [directory for directory in own if not other_users(config, directory, disks)]
    return next(iter([*named, *alone]), None)


def create_storage_dir(
    rpc: RpcRunner, instance: Instance, disks: Sequence[Disk], node_uuid: str | None = None
) -> None:
    """Create the directories for the disk files of an instance.

    :param node_uuid: the node; by default the primary node of the instance.
    """
    for directory in storage_dirs(disks):
        node = node_uuid or instance.primary_node
        rpc.call(FILE_STORAGE_DIR_CREATE, node, path=directory).payload()


def remove_storage_dir(
    ctx: Context, instance: Instance, disks: Sequence[Disk], node_uuid: str | None = None
) -> None:
    """Remove the directories for disk files which are removed, unless other disks are there.

    One that has other files, or that the node cannot remove, stays with a warning: nothing of the
    instance is in it any more.

    :param disks: the disks which are removed; they may still be in the configuration.
    :param node_uuid: the node; by default the primary node of the instance.
    :raises errors.RpcError: the node did not answer, or failed for another reason.
    """
    node = node_uuid or instance.primary_node
    for directory in storage_dirs(disks):
        if other_users(ctx.config, directory, disks, node):
            continue
        answer = ctx.rpc.call(FILE_STORAGE_DIR_REMOVE, node, path=directory)
        if is_of_directory(answer.failure):
            ctx.log.warn(
                f"directory {directory} stays on node {answer.node_name}: {why(answer.failure)}",
                hint="No disk of the cluster is in it. Look at what it has, and remove it by hand.",
            )
        else:
            answer.payload()


def is_of_directory(failure: Exception | None) -> bool:
    """Return True if a node answered that a directory cannot be changed, and is as it was."""
    return isinstance(failure, errors.NodeCallFailed) and isinstance(
        failure.cause, errors.FileStoragePathError
    )


# -- creating and removing -------------------------------------------------------


def create_disks(ctx: Context, instance: Instance, disks: Sequence[Disk]) -> None:
    """Create disks on all their nodes at the same time, on each the children before the devices.

    :raises errors.OpExecError: a disk could not be created; parts of it and the other disks may be
        made.
    """
    primary = instance.primary_node
    create_devices(ctx, instance, by_node(disks, primary), writable_on=primary)


def create_devices(
    ctx: Context,
    instance: Instance,
    devices: Mapping[str, Sequence[Disk]],
    *,
    writable_on: str | None = None,
    children: bool = True,
) -> None:
    """Create devices and their children on nodes.

    What a node refuses to create is not of this operation, and is never removed by it.

    :param devices: UUID of a node -> devices to create there.
    :param writable_on: UUID of the node on which the devices become writable.
    :param children: False when the children exist already.
    :raises errors.OpExecError: a device could not be created; others may be made.
    """
    parts = {uuid: [(device, device) for device in devices[uuid]] for uuid in devices}
    _create(ctx, instance, parts, writable_on, children=children)


def _create(
    ctx: Context,
    instance: Instance,
    parts: Mapping[str, Sequence[tuple[Disk, Disk]]],
    writable_on: str | None,
    *,
    children: bool = True,
) -> None:
    """Create devices, each with the disk to which it belongs, after their children."""
    if children:
        below = {
            uuid: [
                (disk, child)
                for disk, device in parts[uuid]
                for child in _volumes(ctx.config, device, uuid)
            ]
            for uuid in parts
        }
        if any(below.values()):
            _create(ctx, instance, below, writable_on)
    answers = call_for_disks(
        ctx.rpc,
        BLOCKDEV_CREATE_MULTI,
        {uuid: [device for _disk, device in parts[uuid]] for uuid in parts},
        instance,
        per_node={
            uuid: {
                "on_primary": uuid == writable_on,
                "exclusive_storage": exclusive_storage(ctx.config, uuid),
            }
            for uuid in parts
        },
        owner=instance.name,
        info=info_text(instance),
    )
    failures = []
    for uuid, made in parts.items():
        for (disk, device), answer in zip(made, answers[uuid], strict=True):
            if answer.failure is None:
                continue
            if not ownership.may_be_made(answer.failure):
                ownership.disown(ctx.config, ctx.refused, device, uuid)
            failures.append(_not_created(ctx.config, instance, disk, uuid, answer.failure))
    if failures:
        raise errors.OpExecError("; ".join(dict.fromkeys(failures)))
    for uuid, made in parts.items():
        for disk, device in made:
            try:
                wipe.wipe(ctx, instance, device, uuid)
            except errors.RpcError as err:
                raise errors.OpExecError(
                    _not_created(ctx.config, instance, disk, uuid, err)
                ) from err


def _volumes(config: Config, device: Disk, node_uuid: str) -> tuple[Disk, ...]:
    """Return the devices below a device which are made on a node.

    Volumes below a mirror have as many stripes as the group of the node gives such volumes, and not
    as many as plain disks.
    """
    if not device.has_replicas:
        return device.children
    data = config.snapshot()
    group = data.nodegroups.get(data.nodes[node_uuid].group)
    params = fill.fill_diskparams(data.cluster.diskparams, group.diskparams if group else None)
    return fill.annotated_disk(device, params).children


def _not_created(
    config: Config, instance: Instance, disk: Disk, node_uuid: str, failure: Exception
) -> str:
    return (
        f"could not create {_name(config, instance, disk)} of instance {instance.name} on node"
        f" {config.node(node_uuid).name}: {why(failure)}"
    )


def _name(config: Config, instance: Instance, disk: Disk) -> str:
    """Name a disk of an instance, or a device of an operation, for messages."""
    present = config.snapshot().instances.get(instance.uuid)
    if present is None or disk.uuid not in present.disks:
        return ownership.shown(disk)
    return f"disk {present.disks.index(disk.uuid)}"


def by_node(disks: Iterable[Disk], primary_node: str) -> dict[str, list[Disk]]:
    """Return the disks of which each node has a part, the primary node first."""
    found: dict[str, list[Disk]] = {}
    for disk in disks:
        for uuid in disk_nodes(disk, primary_node):
            found.setdefault(uuid, []).append(disk)
    return found


def remove_disks(
    ctx: Context,
    instance: Instance,
    disks: Sequence[Disk],
    node_uuids: Sequence[str] | None = None,
) -> None:
    """Remove disks from all their nodes; a disk which does not exist is not an error.

    Devices which this operation was refused to create stay. The replica on the primary node is
    removed last, and only when the others are removed: it is the one which has all data. What a
    secondary node which is marked offline has of the disks stays there, with a warning.

    :param node_uuids: remove the disks from these of their nodes only; all of them are called, even
        after a failure.
    :raises errors.OpExecError: a disk was not removed; the others are.
    """
    if node_uuids is None:
        failures = _remove_everywhere(ctx, instance, disks)
    else:
        failures = [
            failure
            for uuid in node_uuids
            for failure in _remove_from(ctx.rpc, ctx.refused, instance, {uuid: disks})
        ]
    if failures:
        # One failure of each disk is sufficient.
        by_disk = {disk.uuid: (disk, failure) for disk, failure in reversed(failures)}
        raise errors.OpExecError(
            "; ".join(
                f"{_name(ctx.config, instance, disk)} of instance {instance.name} was not removed:"
                f" {failure}"
                for disk, failure in reversed(by_disk.values())
            )
        )


def _remove_everywhere(
    ctx: Context, instance: Instance, disks: Sequence[Disk]
) -> list[tuple[Disk, Exception]]:
    parts = by_node(disks, instance.primary_node)
    parts.pop(instance.primary_node, None)
    # While the primary uses the replica of its peer, DRBD does not let that one go. What keeps the
    # disk active there keeps it from being removed, too.
    mirrored = [disk for disk in disks if disk.secondary_nodes(instance.primary_node)]
    call_for_disks(ctx.rpc, BLOCKDEV_SHUTDOWN_MULTI, {instance.primary_node: mirrored}, instance)
    for uuid in list(parts):
        node = ctx.config.node(uuid)
        if node.offline:
            names = ", ".join(disk.iv_name for disk in parts.pop(uuid))
            ctx.log.warn(
                f"node {node.name} is marked offline and keeps its part of {names} of instance"
                f" {instance.name}",
                hint="Remove the volumes there by hand when the node comes back.",
            )
    failures = _remove_from(ctx.rpc, ctx.refused, instance, parts)
    kept = {disk.uuid for disk, _failure in failures}
    rest = [disk for disk in disks if disk.uuid not in kept]
    return failures + _remove_from(ctx.rpc, ctx.refused, instance, {instance.primary_node: rest})


def _remove_from(
    rpc: RpcRunner,
    refused: Collection[DeviceKey],
    instance: Instance,
    disks: Mapping[str, Sequence[Disk]],
) -> list[tuple[Disk, Exception]]:
    """Remove disks from nodes; return those which were not removed, with the failures.

    :param refused: devices which nodes refused to create; they stay.
    """
    parts = {
        uuid: [(disk, part) for disk in some for part in ownership.to_remove(refused, disk, uuid)]
        for uuid, some in disks.items()
    }
    answers = call_for_disks(
        rpc,
        BLOCKDEV_REMOVE_MULTI,
        {uuid: [part for _disk, part in pairs] for uuid, pairs in parts.items()},
        instance,
    )
    return [
        (disk, answer.failure)
        for uuid, pairs in parts.items()
        for (disk, _part), answer in zip(pairs, answers[uuid], strict=True)
        if answer.failure is not None
    ]


# -- activating and deactivating -------------------------------------------------


def assemble_disks(
    ctx: Context,
    instance: Instance,
    node_uuid: str | None = None,
    *,
    disks: Sequence[Disk] | None = None,
    ignore_secondaries: bool = False,
    accept_loss: bool = False,
) -> list[tuple[str, str, str | None]]:
    """Activate disks of an instance, first on the secondary nodes, then on the primary.

    The primary replica of a mirrored disk becomes writable when it is connected to its peer. When
    the secondary node is marked offline, or its failure is ignored, the configuration first records
    that the replica there misses the writes from now on.

    :param node_uuid: the node which may write; by default the primary node of the instance.
    :param disks: disks of the instance to activate; all by default.
    :param ignore_secondaries: a failure on a secondary node is only a warning.
    :param accept_loss: use a replica on the primary node which is known to have missed writes, or
        does not connect to its peer.
    :returns: for each disk the name of the node, ``disk/N`` and the path of the device.
    :raises errors.OpExecError: a disk could not be activated; the others may be active.
    """
    node = ctx.config.node(node_uuid or instance.primary_node)
    chosen = ctx.config.instance_disks(instance) if disks is None else disks
    active = _activate_everywhere(ctx, instance, node, chosen, ignore_secondaries, accept_loss)
    if node.uuid == instance.primary_node:
        suspended_io.protect(ctx.config, ctx.rpc, instance, chosen)
    indexes = _indexes(ctx.config, instance)
    return [
        (node.name, f"disk/{indexes[disk.uuid]}", one.device)
        for disk, one in zip(chosen, active, strict=True)
    ]


def activate_disk(ctx: Context, instance: Instance, disk: Disk) -> ActiveDisk:
    """Activate one disk on all its nodes.

    :raises errors.OpExecError: the disk could not be activated.
    """
    node = ctx.config.node(instance.primary_node)
    (active,) = _activate_everywhere(ctx, instance, node, [disk], False, False)
    suspended_io.protect(ctx.config, ctx.rpc, instance, [disk])
    return active


def _activate_everywhere(
    ctx: Context,
    instance: Instance,
    node: Node,
    chosen: Sequence[Disk],
    ignore_secondaries: bool,
    accept_loss: bool,
) -> list[ActiveDisk]:
    """Activate disks on their secondary nodes, then on the node which may write."""
    for disk in chosen:
        if disk.forthcoming:
            raise errors.OpExecError(
                f"{_name(ctx.config, instance, disk)} of instance {instance.name} was not created"
                f" completely. Repeat 'gnt-instance recreate-disks {instance.name}'."
            )
    alone = _activate_mirrors(ctx, instance, chosen, node.uuid, ignore_secondaries)
    for disk in alone:
        _require_usable_alone(ctx.config, ctx.log, instance, disk, node, accept_loss=accept_loss)
    mirrored = replicas.mirrored(chosen)
    # Disks which were in sync when they were deactivated are equal on both nodes until now.
    latest = [
        disk
        for disk in mirrored
        if replicas.is_latest(replicas.with_record(ctx.config, disk), node.uuid)
    ]
    replicas.record_use(
        ctx.config, mirrored, [(disk, replicas.other_node(disk, node.uuid)) for disk in alone]
    )
    return _activate(
        ctx,
        instance,
        chosen,
        node.uuid,
        alone=mirrored if accept_loss else latest,
        latest=latest,
    )


def open_primary(ctx: Context, instance: Instance, disks: Sequence[Disk]) -> None:
    """Make sure that disks are writable on the primary node, without activating their peers.

    :raises errors.OpExecError: a disk is not active there, and its replica may have missed writes.
    """
    _activate(ctx, instance, disks, instance.primary_node)


def connect_replicas(
    ctx: Context,
    instance: Instance,
    *,
    node_uuid: str | None = None,
    ignore_failures: bool = False,
) -> None:
    """Activate the mirrored disks of an instance on their nodes; no replica becomes writable.

    The replicas connect to each other in the background, so that they can be compared.

    :param node_uuid: activate them on this node only.
    :param ignore_failures: a failure is only a warning.
    :raises errors.OpExecError: a disk could not be activated.
    """
    disks = replicas.mirrored(ctx.config.instance_disks(instance))
    parts = {node_uuid: disks} if node_uuid else by_node(disks, instance.primary_node)
    for _disk, text, failure in _failures_to_assemble(ctx.config, ctx.rpc, instance, parts, "node"):
        if not ignore_failures:
            raise errors.OpExecError(text) from failure
        ctx.log.warn(text)


def _indexes(config: Config, instance: Instance) -> dict[str, int]:
    return {uuid: index for index, uuid in enumerate(config.instance(instance.uuid).disks)}


def _activate_mirrors(
    ctx: Context,
    instance: Instance,
    disks: Sequence[Disk],
    primary_node: str,
    ignore_failures: bool,
) -> list[Disk]:
    """Activate disks on their secondary nodes.

    :returns: the disks for which that did not work; they may be used without their peers.
    :raises errors.OpExecError: it did not work for a disk which may not be used then.
    """
    parts = by_node(disks, primary_node)
    parts.pop(primary_node, None)
    alone = []
    for disk, text, failure in _failures_to_assemble(
        ctx.config, ctx.rpc, instance, parts, "secondary node"
    ):
        if not (ignore_failures or isinstance(failure, errors.NodeOffline)):
            raise errors.OpExecError(text) from failure
        ctx.log.warn(text)
        alone.append(disk)
    return alone


def _failures_to_assemble(
    config: Config,
    rpc: RpcRunner,
    instance: Instance,
    parts: Mapping[str, Sequence[Disk]],
    role: str,
) -> list[tuple[Disk, str, Exception]]:
    """Activate disks on nodes on which they do not become writable.

    :param parts: UUID of a node -> disks.
    :param role: of the nodes, for messages.
    :returns: the disks which could not be activated, each with a message and the failure.
    """
    return [
        (
            disk,
            f"{_name(config, instance, disk)} of instance {instance.name} cannot be activated"
            f" on {role} {answer.node_name}: {why(answer.failure)}",
            answer.failure,
        )
        for uuid, answers in _assemble(config, rpc, instance, parts, on_primary=False).items()
        for disk, answer in zip(parts[uuid], answers, strict=True)
        if answer.failure is not None
    ]


def _require_usable_alone(
    config: Config, log: JobLog, instance: Instance, disk: Disk, node: Node, *, accept_loss: bool
) -> None:
    """Check that a disk may be used with its replica on one node, without the other one.

    The primary node of an instance was the last one which wrote, unless there is a record which
    says that its replica missed writes.

    :raises errors.OpExecError: the replica is known to have missed writes.
    """
    present = replicas.with_record(config, disk)
    if present.outdated_node != node.uuid:
        return
    loss = replicas.possible_loss(config, present, node)
    if not accept_loss:
        other = config.node(replicas.other_node(disk, node.uuid)).name
        raise errors.OpExecError(
            f"the disks of instance {instance.name} were not activated: {loss}, when this replica"
            f" is used. Bring node {other} back; or accept the loss with 'gnt-instance startup"
            f" --force {instance.name}'."
        )
    log.warn(loss)


def _activate(
    ctx: Context,
    instance: Instance,
    disks: Sequence[Disk],
    node_uuid: str,
    *,
    alone: Sequence[Disk] = (),
    latest: Sequence[Disk] = (),
) -> list[ActiveDisk]:
    """Activate disks on the node which may write.

    :param alone: use the replicas of these disks there, even if they do not connect to their peers.
    :param latest: these replicas are known to have all confirmed writes.
    :returns: how each disk is used.
    :raises errors.OpExecError: a disk could not be activated; the others may be active.
    """
    answers = dict(
        zip(
            [disk.uuid for disk in disks],
            _assemble(ctx.config, ctx.rpc, instance, {node_uuid: disks}, on_primary=True)[
                node_uuid
            ],
            strict=True,
        )
    )
    failed = [disk for disk in alone if answers[disk.uuid].failure is not None]
    lonely = _lacking_only_their_peers(ctx.rpc, instance, failed, node_uuid)
    for disk in lonely:
        answer = answers[disk.uuid]
        # Recorded first, as always when only one of the replicas is written to.
        reason = "it was in sync when it was deactivated"
        if disk not in latest:
            reason = replicas.possible_loss(ctx.config, disk, ctx.config.node(node_uuid))
        ctx.log.warn(
            f"{_name(ctx.config, instance, disk)} of instance {instance.name}:"
            f" {why(answer.failure)}. Its replica on node {answer.node_name} is used"
            f" nevertheless: {reason}"
        )
    if lonely:
        replicas.record_use(
            ctx.config, lonely, [(disk, replicas.other_node(disk, node_uuid)) for disk in lonely]
        )
        again = _assemble(ctx.config, ctx.rpc, instance, {node_uuid: lonely}, on_primary=True)[
            node_uuid
        ]
        answers.update(zip([disk.uuid for disk in lonely], again, strict=True))
    problems = [
        f"{_name(ctx.config, instance, disk)} of instance {instance.name} cannot be activated on"
        f" node {answers[disk.uuid].node_name}: {why(failure)}"
        for disk in disks
        if (failure := answers[disk.uuid].failure) is not None
    ]
    if problems:
        raise errors.OpExecError("; ".join(problems))
    for disk in disks:
        # Nobody can have started a guest between the activation and this.
        wipe.finish(ctx, instance, disk)
    return [ActiveDisk(*[*(one.data or ()), None, None, None][:3]) for one in answers.values()]


def _lacking_only_their_peers(
    rpc: RpcRunner, instance: Instance, disks: Sequence[Disk], node_uuid: str
) -> list[Disk]:
    """Return the disks of which a node has a complete replica that is not connected to its peer."""
    answers = call_for_disks(rpc, BLOCKDEV_FIND_MULTI, {node_uuid: disks}, instance)[node_uuid]
    return [
        disk
        for disk, answer in zip(disks, answers, strict=True)
        if answer.data is not None
        and answer.data.ldisk_status in (LDS_OKAY, LDS_UNKNOWN)
        and answer.data.is_degraded
    ]


def _assemble(
    config: Config,
    rpc: RpcRunner,
    instance: Instance,
    parts: Mapping[str, Sequence[Disk]],
    *,
    on_primary: bool,
) -> dict[str, list[Result]]:
    """Activate disks on nodes, which are all called at the same time.

    :param parts: UUID of a node -> disks.
    :returns: UUID of a node -> the results, in the order of its disks.
    """
    indexes = _indexes(config, instance)
    suspended_io.forget(
        config, {disk.uuid: disk for some in parts.values() for disk in some}.values()
    )
    return call_for_disks(
        rpc,
        BLOCKDEV_ASSEMBLE_MULTI,
        {
            uuid: [replicas.with_record(config, disk) for disk in some]
            for uuid, some in parts.items()
        },
        instance,
        per_node={
            uuid: {"indexes": [indexes[disk.uuid] for disk in some]} for uuid, some in parts.items()
        },
        instance=instance,
        on_primary=on_primary,
    )


def try_to_shut_down(ctx: Context, instance: Instance, disks: Sequence[Disk], node: Node) -> None:
    """Deactivate disks on a node which is left for good; a disk which stays active is a warning."""
    answers = call_for_disks(ctx.rpc, BLOCKDEV_SHUTDOWN_MULTI, {node.uuid: disks}, instance)
    for disk, answer in zip(disks, answers[node.uuid], strict=True):
        if answer.failure is not None:
            ctx.log.warn(
                f"{_name(ctx.config, instance, disk)} of instance {instance.name} stays active on"
                f" node {node.name}: {why(answer.failure)}",
                hint="Deactivate it on that node by hand when the operation is over.",
            )


def shutdown_disks(
    config: Config,
    rpc: RpcRunner,
    instance: Instance,
    node_uuid: str | None = None,
    *,
    disks: Sequence[Disk] | None = None,
) -> None:
    """Deactivate disks of an instance on one node, or on all their nodes.

    A failure does not keep the other disks from being deactivated; but a disk which stays active on
    the primary node stays active on the other nodes, too. A secondary node which is marked
    offline is not called. When a mirrored disk is deactivated on all its nodes, its replicas are
    compared before, and the configuration records whether they were equal, or which one missed
    writes.

    :param node_uuid: the node; all nodes of each disk by default.
    :param disks: disks of the instance to deactivate; all by default.
    :raises errors.OpExecError: some disks stay active; names them.
    """
    all_disks = config.instance_disks(instance)
    indexes = {disk.uuid: index for index, disk in enumerate(all_disks)}
    chosen = all_disks if disks is None else disks
    primary = instance.primary_node
    seen = [] if node_uuid else replicas.observe(config, rpc, [(disk, instance) for disk in chosen])
    replicas.record_active(config, seen)
    parts = {node_uuid: list(chosen)} if node_uuid else by_node(chosen, primary)
    failures: dict[str, list[str]] = {}

    def shut_down(which: Mapping[str, Sequence[Disk]]) -> set[str]:
        """Deactivate disks on nodes; return the UUIDs of those which a node still uses."""
        in_use = set()
        answers = call_for_disks(rpc, BLOCKDEV_SHUTDOWN_MULTI, which, instance)
        for uuid, some in which.items():
            for disk, answer in zip(some, answers[uuid], strict=True):
                if answer.failure is not None:
                    label = indexes.get(disk.uuid, disk.iv_name)
                    name = config.node(uuid).name
                    failures.setdefault(name, []).append(f"disk {label}: {why(answer.failure)}")
                    if not isinstance(answer.failure, errors.NodeOffline):
                        in_use.add(disk.uuid)
        return in_use

    # A replica elsewhere may be the only complete one which the primary node can reach.
    in_use = shut_down({primary: parts.pop(primary)}) if primary in parts else set()
    failed_on_primary = bool(failures)
    shut_down(
        {
            uuid: [disk for disk in some if disk.uuid not in in_use]
            for uuid, some in parts.items()
            if not config.node(uuid).offline
        }
    )
    if seen and not failed_on_primary:
        replicas.record_equal(config, instance, seen)
    if failures:
        text = "; ".join(
            f"on node {name}: {'; '.join(lines)}" for name, lines in sorted(failures.items())
        )
        raise errors.OpExecError(f"disks of instance {instance.name} stay active {text}")
