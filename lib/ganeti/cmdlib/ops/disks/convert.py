"""Converting the disks of a stopped instance to another disk template.

In general new disks of the requested template are created on the primary node, the content is
copied, and one change of the configuration exchanges the new disks for the old ones. The new disks
are in the configuration from the beginning, as detached disks with a mark in their name
(:func:`mark`); after the exchange the old disks have the mark. Disks with the mark may be destroyed
at any time: at the end of the conversion, by the next one, or when the instance is removed. Moving
instances and replacing disks use the same mark.

Between ``plain`` and ``drbd`` no content is copied: a logical volume becomes the data volume of a
DRBD disk, and vice versa.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ganeti import errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import Context, why
from ganeti.cmdlib.ops.disks import (
    capacity,
    mirror,
    ownership,
    reach,
    sizes,
    snapshots,
    specs,
    sync,
    wipe,
)
from ganeti.cmdlib.ops.disks import devices as disk_work
from ganeti.cmdlib.ops.liveness import location
from ganeti.cmdlib.ops.policy import instance as policy
from ganeti.constants.disk import DRBD8, MIXED, PLAIN
from ganeti.objects.disk_templates import (
    HAVE_PROVIDER,
    INSTANCE_DEPENDENT_PATH,
    INT_MIRRORED,
    NOT_CONVERTIBLE_FROM,
    NOT_CONVERTIBLE_TO,
)
from ganeti.utils.undo import UndoStack
from ganeti.wire.calls import BLOCKDEV_CONVERT, BLOCKDEV_GETDIMENSIONS
from ganeti.wire.calls.base import Failed

if TYPE_CHECKING:
    from ganeti.config import Config
    from ganeti.config.transaction import Transaction
    from ganeti.objects import Disk, Instance, Node
    from ganeti.rpc import RpcRunner


_MARK = "conversion-"


@dataclass(frozen=True, slots=True)
class ConversionPlan:
    """The disks after a conversion.

    :ivar template: the new disk template.
    :ivar secondary: the secondary node; None unless the new disks are DRBD disks.
    :ivar disk_specs: specs of the new disks, see :func:`~.specs.plan_disk`.
    :ivar directory: directory of new disk files.
    :ivar driver: file driver of new disk files.
    """

    template: str
    secondary: Node | None
    disk_specs: tuple[specs.DiskSpec, ...]
    directory: str | None
    driver: str | None


def mark(instance_uuid: str) -> str:
    """Return the name of detached disks which a conversion of an instance created or replaced."""
    return f"{_MARK}{instance_uuid}"


def is_mark(name: str | None) -> bool:
    """Tell whether a disk has the name which :func:`mark` gives, for any instance."""
    return name is not None and name.startswith(_MARK)


def marked(config: Config, instance: Instance) -> list[Disk]:
    """Detached disks which an interrupted conversion of an instance has left."""
    data = config.snapshot()
    name = mark(instance.uuid)
    return [
        disk
        for disk in data.disks.values()
        if disk.name == name and disk.uuid not in instance.disks
    ]


def detached_part(config: Config, instance: Instance, device: Disk, node_uuid: str) -> Disk:
    """Make a detached, marked disk of a device on one node, to be added to the configuration."""
    return dataclasses.replace(
        device,
        name=mark(instance.uuid),
        iv_name="",
        nodes=(node_uuid,),
        uuid=config.new_uuid(),
    )


def add_parts(
    config: Config, rpc: RpcRunner, instance: Instance, devices: Sequence[Disk], node_uuid: str
) -> None:
    """Add marked disks for devices which a node will make to the configuration.

    :raises errors.OpExecError: the node has a device with one of their names, which the next
        operation would destroy; or it is not known.
    """
    ownership.require_absent(rpc, instance, [(device, node_uuid) for device in devices])
    with config.transaction() as change:
        for device in devices:
            change.disks.add_detached(detached_part(config, instance, device, node_uuid))


def exchange_parts(
    config: Config,
    change: Transaction,
    instance: Instance,
    old: Sequence[Disk],
    new: Sequence[Disk],
    *,
    made_on: Node,
    left: Node,
) -> None:
    """Exchange the replicas of mirrored disks on one node for those on another one.

    :param new: the disks with their new replicas.
    :param made_on: the node which made them; their parts lose the mark.
    :param left: the node whose parts get the mark.
    """
    for detached in marked(config, instance):
        if detached.nodes == (made_on.uuid,):
            change.disks.remove_detached(detached.uuid)
    for disk in new:
        change.disks.update(disk)
    for disk in old:
        for child in disk.children:
            change.disks.add_detached(detached_part(config, instance, child, left.uuid))


def clear(ctx: Context, instance: Instance, *, last: bool = False) -> None:
    """Destroy the detached disks which a conversion of an instance has left.

    :param last: the instance is being removed, together with its own disks.
    :raises errors.OpExecError: a disk of the instance does not exist, so a detached one may have
        the last copy of the data.
    :raises errors.OpExecError: a disk could not be destroyed; all keep their marks.
    :raises errors.RpcError: a directory could not be removed; likewise.
    """
    disks = marked(ctx.config, instance)
    if disks and not last:
        _require_present(ctx.config, ctx.rpc, instance)
    by_nodes: dict[tuple[str, ...], list[Disk]] = {}
    for disk in disks:
        by_nodes.setdefault(tuple(_nodes_of(disk, instance)), []).append(disk)
    for nodes, some in by_nodes.items():
        disk_work.remove_disks(ctx, instance, some, nodes)
    for nodes, some in by_nodes.items():
        disk_work.remove_storage_dir(ctx, instance, some, nodes[0])
    if disks:
        with ctx.config.transaction() as change:
            for disk in disks:
                change.disks.remove_detached(disk.uuid)


def _require_present(config: Config, rpc: RpcRunner, instance: Instance) -> None:
    """Check that each disk of the instance exists, a mirrored one at least on one of its nodes.

    :raises errors.OpExecError: a disk does not exist, or no node can tell.
    """
    disks = config.instance_disks(instance)
    nodes = dict.fromkeys(
        uuid for disk in disks for uuid in disk_work.disk_nodes(disk, instance.primary_node)
    )
    online = [uuid for uuid in nodes if not config.node(uuid).offline]
    stored = [disk.data_device for disk in disks]
    answers = rpc.call_many(
        BLOCKDEV_GETDIMENSIONS, online, disks=[(disk, instance) for disk in stored]
    )
    for index, disk in enumerate(disks):
        holders = disk_work.disk_nodes(disk, instance.primary_node)
        if not any(
            uuid in answers
            and answers[uuid].failure is None
            and not isinstance(answers[uuid].data[index], Failed | None)
            for uuid in holders
        ):
            kept = ", ".join(
                f"{one.volume_id} on {config.node(_nodes_of(one, instance)[0]).name}"
                for one in marked(config, instance)
            )
            raise errors.OpExecError(
                f"disk {index} of instance {instance.name} was not found on its nodes, so these"
                f" volumes of earlier operations are kept: {kept}. They may be the last copy of the"
                " data."
            )


def _nodes_of(disk: Disk, instance: Instance) -> tuple[str, ...]:
    return disk.nodes or (instance.primary_node,)


# -- planning --------------------------------------------------------------------


def plan(
    ctx: Context,
    instance: Instance,
    template: str,
    secondary: Node | None,
    *,
    ext_params: Mapping[str, Any],
    file_driver: str | None,
    file_storage_dir: str | None,
) -> ConversionPlan:
    """Check that the disks of an instance can be converted.

    :param template: the new disk template.
    :param secondary: the secondary node of DRBD disks; None for other templates.
    :param ext_params: parameters of disks of an external storage provider.
    :raises errors.OpPrereqError: they cannot be converted, or not now.
    """
    config = ctx.config
    old = config.disk_template(instance)
    _require_convertible(config, instance, template)
    location.require_stopped(ctx, instance, "convert disks of")
    snapshots.require_restored(ctx.log, instance)
    if (old, template) != (PLAIN, DRBD8):
        # The volumes on the primary node stay as they are, with and without DRBD above them.
        remains = {instance.primary_node} if (old, template) == (DRBD8, PLAIN) else set()
        snapshots.require_none(
            ctx,
            instance,
            "convert disks of",
            nodes=set(config.instance_nodes(instance)) - remains,
        )
    _check_secondary(config, instance, template, secondary)
    disk_specs = _planned_disks(config, ctx.rpc, instance, template, ext_params)
    if (old, template) == (DRBD8, PLAIN):
        needed = {}
    else:
        needed = capacity.needed_mib(template, disk_specs)
    nodes = [] if (old, template) == (PLAIN, DRBD8) else [instance.primary_node]
    if secondary is not None:
        nodes.append(secondary.uuid)
    minors = len(disk_specs) if template == DRBD8 else 0
    config.require_ports(minors)
    capacity.require_free_space(config, ctx.rpc, nodes, needed, new_minors=minors)
    if (old, template) == (PLAIN, DRBD8):
        # The data volumes on the primary node exist; their metadata are new.
        metadata = capacity.metadata_mib(disk_specs)
        primary = [instance.primary_node]
        capacity.require_free_space(config, ctx.rpc, primary, metadata, new_minors=minors)
    reach.require_directory(ctx, template, [config.node(instance.primary_node)])
    directory = None
    if template in INSTANCE_DEPENDENT_PATH:
        directory = specs.file_directory(config, template, file_storage_dir, instance.name)
        asked = [spec["size"] for spec in disk_specs]
        here = [instance.primary_node]
        capacity.require_possible_files(config, ctx.rpc, here, template, asked, directory)
    elif file_storage_dir:
        raise errors.OpPrereqError(
            f"disk template {template} does not use a file storage directory", errors.ECODE_INVAL
        )
    return ConversionPlan(template, secondary, tuple(disk_specs), directory, file_driver)


def _require_convertible(config: Config, instance: Instance, template: str) -> None:
    """Check that disks of the instance's template may become disks of the other one."""
    old = config.disk_template(instance)
    if template == old:
        raise errors.OpPrereqError(
            f"disks of instance {instance.name} have template {template} already",
            errors.ECODE_INVAL,
        )
    if old in NOT_CONVERTIBLE_FROM | {MIXED} or template in NOT_CONVERTIBLE_TO:
        raise errors.OpPrereqError(
            f"disks cannot be converted from {old} to {template}", errors.ECODE_INVAL
        )
    specs.require_enabled(config, template)


def _planned_disks(
    config: Config,
    rpc: RpcRunner,
    instance: Instance,
    template: str,
    ext_params: Mapping[str, Any],
) -> list[specs.DiskSpec]:
    """Return the specs of the new disks, which are as large as the present ones really are."""
    planned: list[specs.DiskSpec] = []
    for index, disk in enumerate(sizes.real(rpc, instance, config.instance_disks(instance))):
        wipe.require_finished(instance, index, disk)
        spec: dict[str, Any] = {"size": disk.size, "mode": disk.mode}
        if template in HAVE_PROVIDER:
            spec |= ext_params
        new = specs.plan_disk(
            config, template, f"disk {index}", spec, node_uuid=instance.primary_node
        )
        # The size of a volume which becomes a part of a DRBD disk is not rounded.
        planned.append({**new, "name": disk.name, "size": disk.size})
    return planned


def _check_secondary(
    config: Config, instance: Instance, template: str, secondary: Node | None
) -> None:
    if template not in INT_MIRRORED:
        if secondary is not None:
            raise errors.OpPrereqError(
                f"disks of template {template} have no secondary node", errors.ECODE_INVAL
            )
        return
    if secondary is None:
        raise errors.OpPrereqError(
            f"disks of template {template} need a secondary node. Name one with --node.",
            errors.ECODE_INVAL,
        )
    prereq.require_target(config, secondary, instance.hypervisor)
    if secondary.uuid == instance.primary_node:
        raise errors.OpPrereqError(
            f"node {secondary.name} is the primary node of instance {instance.name} and cannot be"
            " its secondary node",
            errors.ECODE_STATE,
        )
    # It could never start there without its networks.
    policy.in_group_of(config, instance, secondary)


# -- carrying out ----------------------------------------------------------------


def carry_out(
    ctx: Context,
    instance: Instance,
    conversion: ConversionPlan,
    *,
    wait_for_sync: bool,
    accept_loss: bool = False,
) -> None:
    """Convert all disks of a stopped instance.

    :param wait_for_sync: wait until new DRBD disks are in sync.
    :param accept_loss: use the replicas on the primary node, even if they may have missed writes.
    :raises errors.OpExecError: the instance still has its old disks, unchanged; or it has the new
        disks, which are degraded, or the old disks could not be destroyed.
    """
    old = ctx.config.disk_template(instance)
    good = old not in INT_MIRRORED or _require_latest(ctx, instance, accept_loss=accept_loss)
    clear(ctx, instance)
    if (old, conversion.template) == (PLAIN, DRBD8):
        _plain_to_mirror(ctx, instance, conversion)
    elif (old, conversion.template) == (DRBD8, PLAIN):
        _mirror_to_plain(ctx, instance, good=good)
        return
    else:
        _copy_all(ctx, instance, conversion)
    instance = ctx.config.instance(instance.uuid)
    if conversion.template in INT_MIRRORED:
        disk_work.assemble_disks(ctx, instance)
        in_sync = sync.wait_for_sync(ctx, instance, once=not wait_for_sync)
        if wait_for_sync:
            disk_work.shutdown_disks(ctx.config, ctx.rpc, instance)
        if wait_for_sync and not in_sync:
            raise errors.OpExecError(
                f"disks of instance {instance.name} were converted, but are degraded. Look at them"
                f" with 'gnt-instance info {instance.name}'."
            )


def _require_latest(ctx: Context, instance: Instance, *, accept_loss: bool) -> bool:
    """Check that the replicas on the primary node, which are used, have all confirmed writes.

    :returns: whether they have; False when a possible loss was accepted.
    :raises errors.OpExecError: they have not, or it is not known.
    """
    primary = ctx.config.node(instance.primary_node)
    secondary = ctx.config.node(ctx.config.secondary_nodes(instance)[0])
    try:
        return mirror.compare_inactive(
            ctx, instance, primary, alone=secondary.offline, ignore=accept_loss
        )
    finally:
        disk_work.shutdown_disks(ctx.config, ctx.rpc, instance)


def _copy_all(ctx: Context, instance: Instance, conversion: ConversionPlan) -> None:
    old = ctx.config.instance_disks(instance)
    made = specs.make_disks(
        ctx.config,
        conversion.template,
        conversion.disk_specs,
        primary_node=instance.primary_node,
        secondary_node=None if conversion.secondary is None else conversion.secondary.uuid,
        directory=conversion.directory,
        driver=conversion.driver,
    )
    with ctx.config.transaction() as change:
        for disk in made:
            change.disks.add_detached(
                dataclasses.replace(disk, name=mark(instance.uuid), iv_name="")
            )
    hint = "The next conversion or the removal of the instance destroys them."
    with UndoStack(ctx.log.warn, hint=hint) as undo:
        undo.add(f"disks of template {conversion.template}", clear, ctx, instance)
        try:
            disk_work.create_storage_dir(ctx.rpc, instance, made)
            for index in range(len(made)):
                ctx.log.feedback(f"* creating disk {index} with template {conversion.template}")
            disk_work.create_disks(ctx, instance, [ctx.config.disk(disk.uuid) for disk in made])
        except (errors.OpExecError, errors.RpcError) as err:
            raise errors.OpExecError(
                f"could not create disks of template {conversion.template} for instance"
                f" {instance.name}: {why(err)}"
            ) from err
        undo.add("active disks", _shut_down_detached, ctx.config, ctx.rpc, instance, made)
        undo.add(
            f"active disks of {instance.name}",
            disk_work.shutdown_disks,
            ctx.config,
            ctx.rpc,
            instance,
        )
        disk_work.assemble_disks(ctx, instance)
        _copy(ctx, instance, old, made)
        disk_work.shutdown_disks(ctx.config, ctx.rpc, instance)
        _exchange(ctx.config, instance, old, made)
        undo.commit()
    fresh = ctx.config.instance(instance.uuid)
    try:
        clear(ctx, fresh)
    except errors.GenericError as err:
        raise errors.OpExecError(
            f"disks of instance {instance.name} have template {conversion.template} now, but the"
            f" old ones were not destroyed: {why(err)}. {hint}"
        ) from err


def _copy(ctx: Context, instance: Instance, old: Sequence[Disk], made: Sequence[Disk]) -> None:
    """Copy the content of active disks on the primary node."""
    for index, (source, target) in enumerate(zip(old, made, strict=True)):
        ctx.log.feedback(f"* copying disk {index}, size {source.size} MiB")
        answer = ctx.rpc.call(
            BLOCKDEV_CONVERT,
            instance.primary_node,
            source=(source, instance),
            target=(ctx.config.disk(target.uuid), instance),
        )
        if answer.failure is not None:
            raise errors.OpExecError(
                f"could not copy disk {index} of instance {instance.name}: {why(answer.failure)}"
            ) from answer.failure


def _shut_down_detached(
    config: Config, rpc: RpcRunner, instance: Instance, disks: Sequence[Disk]
) -> None:
    disk_work.shutdown_disks(
        config,
        rpc,
        instance,
        instance.primary_node,
        disks=[config.disk(disk.uuid) for disk in disks if disk.uuid in config.snapshot().disks],
    )


def _exchange(
    config: Config, instance: Instance, old: Sequence[Disk], made: Sequence[Disk]
) -> None:
    """Exchange the old disks of an instance for the new ones, and mark the old ones."""
    with config.transaction() as change:
        for before, after in zip(old, made, strict=True):
            change.disks.update(
                dataclasses.replace(change.data.disks[after.uuid], name=before.name)
            )
            change.disks.update(
                dataclasses.replace(change.data.disks[before.uuid], name=mark(instance.uuid))
            )
        change.disks.replace(instance.uuid, [disk.uuid for disk in made])
        change.instances.set_disks_active(instance.uuid, False)


# -- between plain and drbd ------------------------------------------------------


def _plain_to_mirror(ctx: Context, instance: Instance, conversion: ConversionPlan) -> None:
    """Make the volumes the data volumes of DRBD disks, under their old names; create the rest."""
    assert conversion.secondary is not None
    primary, secondary = instance.primary_node, conversion.secondary.uuid
    old = ctx.config.instance_disks(instance)
    made = []
    for before, disk in zip(
        old,
        specs.make_disks(
            ctx.config,
            DRBD8,
            conversion.disk_specs,
            primary_node=primary,
            secondary_node=secondary,
        ),
        strict=True,
    ):
        data, meta = disk.children
        data = dataclasses.replace(data, logical_id=before.logical_id)
        made.append(dataclasses.replace(disk, children=(data, meta)))
    parts = [
        (index, node, detached_part(ctx.config, instance, device, node))
        for index, disk in enumerate(made)
        for node, device in (
            (primary, disk.children[1]),
            (secondary, disk.children[0]),
            (secondary, disk.children[1]),
        )
    ]
    # The data volumes keep their names, which something else may have on the secondary node.
    ownership.require_absent(ctx.rpc, instance, [(part, node) for _index, node, part in parts])
    with ctx.config.transaction() as change:
        for _index, _node, part in parts:
            change.disks.add_detached(part)
    with UndoStack(ctx.log.warn) as undo:
        undo.add("volumes of the DRBD disks", clear, ctx, instance)
        for index, node, _part in parts:
            ctx.log.feedback(f"* creating a volume of disk {index} on {ctx.config.node(node).name}")
        volumes = {
            node: [part for _index, where, part in parts if where == node]
            for node in (primary, secondary)
        }
        disk_work.create_devices(ctx, instance, volumes, writable_on=primary)
        undo.add("DRBD devices", _shut_down_mirrors, ctx.config, ctx.rpc, instance, made)
        # The volumes below exist already, with their content.
        disk_work.create_devices(
            ctx,
            instance,
            {primary: made, secondary: made},
            writable_on=primary,
            children=False,
        )
        with ctx.config.transaction() as change:
            for _index, _node, part in parts:
                change.disks.remove_detached(part.uuid)
            for before, after in zip(old, made, strict=True):
                change.disks.add_detached(dataclasses.replace(after, name=before.name, iv_name=""))
            change.disks.replace(instance.uuid, [disk.uuid for disk in made])
            for before in old:
                change.disks.remove_detached(before.uuid)
        undo.commit()


def _shut_down_mirrors(
    config: Config, rpc: RpcRunner, instance: Instance, disks: Sequence[Disk]
) -> None:
    disk_work.shutdown_disks(config, rpc, instance, disks=disks)


def _mirror_to_plain(ctx: Context, instance: Instance, *, good: bool) -> None:
    """Make the data volumes on the primary node the disks, and remove the rest of the mirrors.

    :param good: the volumes are known to have all confirmed writes; otherwise the other replicas
        stay, with the mark, because they may have what is missing.
    """
    primary = instance.primary_node
    disk_work.shutdown_disks(ctx.config, ctx.rpc, instance)
    old = ctx.config.instance_disks(instance)
    with ctx.config.transaction() as change:
        for disk in old:
            data, meta = disk.children
            for node in disk.nodes:
                for device in (meta,) if node == primary else (data, meta):
                    change.disks.add_detached(detached_part(ctx.config, instance, device, node))
            change.ports.release(disk.drbd_id.port)
            change.disks.update(
                dataclasses.replace(
                    disk,
                    dev_type=PLAIN,
                    logical_id=data.logical_id,
                    children=(),
                    nodes=(primary,),
                    params=None,
                )
            )
        change.instances.set_disks_active(instance.uuid, False)
    fresh = ctx.config.instance(instance.uuid)
    if not good:
        ctx.log.warn(
            f"the other replicas of the former DRBD disks of instance {instance.name} are kept,"
            " because they may have writes which are missing now",
            hint="The next conversion or the removal of the instance destroys them.",
        )
        return
    try:
        clear(ctx, fresh)
    except errors.GenericError as err:
        ctx.log.warn(
            f"volumes of the former DRBD disks of instance {instance.name} were not removed: {err}",
            hint="The next conversion or the removal of the instance destroys them.",
        )
