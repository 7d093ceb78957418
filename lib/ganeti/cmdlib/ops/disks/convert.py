"""Changing the kind of a stopped instance's disks.

In general new disks of the wanted kind are made on the primary node, the content is copied, and one
change of the configuration puts the new ones in the place of the old ones. The new disks are in the
configuration from the beginning, as disks which belong to no instance and carry a mark
(:func:`mark`); after the change it is the old ones which carry it. Whatever has the mark can be
destroyed, and is: by the end of the conversion, by the next one, or when the instance is removed.
Moves and replacements of disks use the same mark.

Between ``plain`` and ``drbd`` nothing is copied by us: a volume becomes the data below a mirror, or
the other way round.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ganeti import errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import why
from ganeti.cmdlib.ops.disks import capacity, snapshots, specs, sync
from ganeti.cmdlib.ops.disks import devices as disk_work
from ganeti.cmdlib.undo import Undo
from ganeti.constants.disk import (
    DRBD8,
    DRBD_META_SIZE_MIB,
    EXT,
    INT_MIRRORED,
    MIXED,
    NOT_CONVERTIBLE_FROM,
    NOT_CONVERTIBLE_TO,
    PLAIN,
)
from ganeti.wire.calls import BLOCKDEV_CONVERT

if TYPE_CHECKING:
    from ganeti.cmdlib.base import LogicalUnit
    from ganeti.objects import Disk, Instance, Node


@dataclass(frozen=True, slots=True)
class ConversionPlan:
    """What the disks become; ``wishes`` as for new disks, ``secondary`` only for mirrors."""

    template: str
    secondary: Node | None
    wishes: tuple[Mapping[str, Any], ...]
    directory: str | None
    driver: str | None


def mark(instance_uuid: str) -> str:
    """Name of disks which a conversion of an instance made or has replaced."""
    return f"conversion-{instance_uuid}"


def marked(unit: LogicalUnit, instance: Instance) -> list[Disk]:
    """Disks which an interrupted conversion has left."""
    data = unit.config.snapshot()
    name = mark(instance.uuid)
    return [
        disk
        for disk in data.disks.values()
        if disk.name == name and disk.uuid not in instance.disks
    ]


def loose_part(unit: LogicalUnit, instance: Instance, device: Disk, node_uuid: str) -> Disk:
    """A device on one node as a marked disk, so that it is not lost track of."""
    return dataclasses.replace(
        device,
        name=mark(instance.uuid),
        iv_name="",
        nodes=(node_uuid,),
        uuid=unit.config.new_uuid(unit.ctx.ec_id),
    )


def clear(unit: LogicalUnit, instance: Instance) -> None:
    """Destroy what an interrupted conversion has left.

    :raises errors.RpcError: something could not be destroyed; it keeps its mark.
    """
    disks = marked(unit, instance)
    for disk in disks:
        disk_work.remove_disk(unit, instance, disk, _nodes_of(disk, instance))
    used = disk_work.storage_dir(unit.config.instance_disks(instance))
    for disk in disks:
        # Files of one kind lie in one directory, which goes when they all have gone.
        node = _nodes_of(disk, instance)[0]
        if disk_work.storage_dir([disk]) != used or node != instance.primary_node:
            disk_work.remove_storage_dir(unit, instance, [disk], node)
    if disks:
        with unit.config.transaction() as change:
            for disk in disks:
                change.drop_loose_disk(disk.uuid)


def _nodes_of(disk: Disk, instance: Instance) -> tuple[str, ...]:
    return disk.nodes or (instance.primary_node,)


# -- planning --------------------------------------------------------------------


def plan(
    unit: LogicalUnit,
    instance: Instance,
    template: str,
    secondary: Node | None,
    *,
    ext_params: Mapping[str, Any],
    file_driver: str | None,
    file_storage_dir: str | None,
) -> ConversionPlan:
    """Check that the disks can become of another kind.

    :raises errors.OpPrereqError: they cannot, or not now.
    """
    old = unit.config.disk_template(instance)
    disks = unit.config.instance_disks(instance)
    if template == old:
        raise errors.OpPrereqError(
            f"disks of instance {instance.name} are of kind {template} already",
            errors.ECODE_INVAL,
        )
    for kind, impossible in ((old, NOT_CONVERTIBLE_FROM | {MIXED}), (template, NOT_CONVERTIBLE_TO)):
        if kind in impossible:
            raise errors.OpPrereqError(
                f"disks cannot be converted from {old} to {template}", errors.ECODE_INVAL
            )
    specs.require_enabled(unit, template)
    prereq.require_stopped(unit, instance, "convert disks of")
    snapshots.require_whole(unit, instance)
    if (old, template) != (PLAIN, DRBD8):
        # Only the volumes of the primary node remain where they are, below a mirror or without it.
        remains = {instance.primary_node} if (old, template) == (DRBD8, PLAIN) else set()
        snapshots.require_none(
            unit,
            instance,
            "convert disks of",
            nodes=set(unit.config.instance_nodes(instance)) - remains,
        )
    _check_secondary(unit, instance, template, secondary)
    wishes = []
    for index, disk in enumerate(disks):
        wish: dict[str, Any] = {"size": disk.size, "mode": disk.mode}
        if template == EXT:
            wish |= ext_params
        planned = specs.plan_disk(unit, template, f"disk {index}", wish)
        wishes.append({**planned, "name": disk.name})
    nodes = [instance.primary_node, *([secondary.uuid] if secondary else [])]
    if (old, template) == (DRBD8, PLAIN):
        needed = {}
    else:
        needed = _needed_mib(wishes)
        if (old, template) == (PLAIN, DRBD8):
            nodes = nodes[1:]
    capacity.require_free_space(unit, nodes, needed)
    directory = None
    if template in disk_work.IN_OWN_DIRECTORY:
        directory = specs.file_directory(unit, template, file_storage_dir, instance.name)
    elif file_storage_dir:
        raise errors.OpPrereqError(
            f"disk template {template} takes no directory", errors.ECODE_INVAL
        )
    return ConversionPlan(template, secondary, tuple(wishes), directory, file_driver)


def _check_secondary(
    unit: LogicalUnit, instance: Instance, template: str, secondary: Node | None
) -> None:
    if template not in INT_MIRRORED:
        if secondary is not None:
            raise errors.OpPrereqError(
                f"disks of kind {template} have no secondary node", errors.ECODE_INVAL
            )
        return
    if secondary is None:
        raise errors.OpPrereqError(
            f"disks of kind {template} need a secondary node. Name one with --node.",
            errors.ECODE_INVAL,
        )
    prereq.require_target(secondary)
    if secondary.uuid == instance.primary_node:
        raise errors.OpPrereqError(
            f"node {secondary.name} is the primary node of instance {instance.name} and cannot be"
            " its secondary node",
            errors.ECODE_STATE,
        )


def _needed_mib(wishes: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    needed: dict[str, int] = {}
    for wish in wishes:
        if wish.get("vg"):
            needed[wish["vg"]] = needed.get(wish["vg"], 0) + wish["size"]
        if wish.get("metavg"):
            needed[wish["metavg"]] = needed.get(wish["metavg"], 0) + DRBD_META_SIZE_MIB
    return needed


# -- carrying out ----------------------------------------------------------------


def carry_out(
    unit: LogicalUnit, instance: Instance, conversion: ConversionPlan, *, wait_for_sync: bool
) -> None:
    """Convert all disks of a stopped instance.

    :raises errors.OpExecError: the disks are of the old kind, whole; or, when only the old ones
        could not be destroyed, of the new kind.
    """
    clear(unit, instance)
    old = unit.config.disk_template(instance)
    if (old, conversion.template) == (PLAIN, DRBD8):
        _plain_to_mirror(unit, instance, conversion)
    elif (old, conversion.template) == (DRBD8, PLAIN):
        _mirror_to_plain(unit, instance)
        return
    else:
        _copy_all(unit, instance, conversion)
    instance = unit.config.instance(instance.uuid)
    if conversion.template in INT_MIRRORED:
        disk_work.assemble_disks(unit, instance)
        in_step = sync.wait_for_sync(unit, instance, once=not wait_for_sync)
        if wait_for_sync:
            disk_work.shutdown_disks(unit, instance)
        if wait_for_sync and not in_step:
            raise errors.OpExecError(
                f"disks of instance {instance.name} are converted, but degraded. Look at them with"
                f" 'gnt-instance info {instance.name}'."
            )


def _copy_all(unit: LogicalUnit, instance: Instance, conversion: ConversionPlan) -> None:
    old = unit.config.instance_disks(instance)
    made = specs.make_disks(
        unit,
        conversion.template,
        conversion.wishes,
        primary_node=instance.primary_node,
        secondary_node=None if conversion.secondary is None else conversion.secondary.uuid,
        directory=conversion.directory,
        driver=conversion.driver,
    )
    with unit.config.transaction() as change:
        for disk in made:
            change.add_loose_disk(dataclasses.replace(disk, name=mark(instance.uuid), iv_name=""))
    hint = "The next conversion, or the removal of the instance, destroys what is left."
    with Undo(unit.warn, hint=hint) as undo:
        undo.add("disks of the new kind", clear, unit, instance)
        try:
            disk_work.create_storage_dir(unit, instance, made)
            for index, disk in enumerate(made):
                unit.feedback(f"* making disk {index} of kind {conversion.template}")
                disk_work.create_disk(unit, instance, unit.config.disk(disk.uuid))
        except errors.RpcError as err:
            raise errors.OpExecError(
                f"could not make disks of kind {conversion.template}: {why(err)}"
            ) from err
        undo.add("active disks", _shut_down_loose, unit, instance, made)
        undo.add(f"active disks of {instance.name}", disk_work.shutdown_disks, unit, instance)
        disk_work.assemble_disks(unit, instance)
        for index, (source, target) in enumerate(zip(old, made, strict=True)):
            unit.feedback(f"* copying disk {index}, size {source.size} MiB")
            answer = unit.rpc.call(
                BLOCKDEV_CONVERT,
                instance.primary_node,
                source=(source, instance),
                target=(unit.config.disk(target.uuid), instance),
            )
            if answer.failure is not None:
                raise errors.OpExecError(
                    f"could not copy disk {index} of instance {instance.name}:"
                    f" {why(answer.failure)}"
                ) from answer.failure
        disk_work.shutdown_disks(unit, instance)
        _exchange(unit, instance, old, made)
        undo.commit()
    fresh = unit.config.instance(instance.uuid)
    try:
        clear(unit, fresh)
    except errors.RpcError as err:
        raise errors.OpExecError(
            f"disks of instance {instance.name} are of kind {conversion.template} now, but the old"
            f" ones were not destroyed: {why(err)}. {hint}"
        ) from err


def _shut_down_loose(unit: LogicalUnit, instance: Instance, disks: Sequence[Disk]) -> None:
    disk_work.shutdown_disks(
        unit,
        instance,
        instance.primary_node,
        disks=[
            unit.config.disk(disk.uuid)
            for disk in disks
            if disk.uuid in unit.config.snapshot().disks
        ],
    )


def _exchange(
    unit: LogicalUnit, instance: Instance, old: Sequence[Disk], made: Sequence[Disk]
) -> None:
    """Put the new disks in the place of the old ones, and the mark on those."""
    with unit.config.transaction() as change:
        for before, after in zip(old, made, strict=True):
            change.update_disk(dataclasses.replace(change.data.disks[after.uuid], name=before.name))
            change.update_disk(
                dataclasses.replace(change.data.disks[before.uuid], name=mark(instance.uuid))
            )
        change.replace_disks(instance.uuid, [disk.uuid for disk in made])
        change.set_disks_active(instance.uuid, False)


# -- between volumes and mirrors of volumes --------------------------------------


def _plain_to_mirror(unit: LogicalUnit, instance: Instance, conversion: ConversionPlan) -> None:
    """Volumes become the data below mirrors, under their old names; the rest is made new."""
    assert conversion.secondary is not None
    primary, secondary = instance.primary_node, conversion.secondary.uuid
    old = unit.config.instance_disks(instance)
    made = []
    for before, disk in zip(
        old,
        specs.make_disks(
            unit, DRBD8, conversion.wishes, primary_node=primary, secondary_node=secondary
        ),
        strict=True,
    ):
        data, meta = disk.children
        data = dataclasses.replace(data, logical_id=before.logical_id)
        made.append(dataclasses.replace(disk, children=(data, meta)))
    parts = [
        (index, node, loose_part(unit, instance, device, node))
        for index, disk in enumerate(made)
        for node, device in (
            (primary, disk.children[1]),
            (secondary, disk.children[0]),
            (secondary, disk.children[1]),
        )
    ]
    with unit.config.transaction() as change:
        for _index, _node, part in parts:
            change.add_loose_disk(part)
    with Undo(unit.warn) as undo:
        undo.add("volumes of the mirrors", clear, unit, instance)
        for index, node, part in parts:
            unit.feedback(f"* making a volume of disk {index} on {unit.config.node(node).name}")
            disk_work.create_device(unit, instance, part, node, on_primary=node == primary)
        undo.add("mirrors", _shut_down_mirrors, unit, instance, made)
        for disk in made:
            for node in (primary, secondary):
                # What is below is there, with its content.
                disk_work.create_device(
                    unit, instance, disk, node, on_primary=node == primary, children=False
                )
        with unit.config.transaction() as change:
            for _index, _node, part in parts:
                change.drop_loose_disk(part.uuid)
            for before, after in zip(old, made, strict=True):
                change.add_loose_disk(dataclasses.replace(after, name=before.name, iv_name=""))
            change.replace_disks(instance.uuid, [disk.uuid for disk in made])
            for before in old:
                change.drop_loose_disk(before.uuid)
        undo.commit()


def _shut_down_mirrors(unit: LogicalUnit, instance: Instance, disks: Sequence[Disk]) -> None:
    disk_work.shutdown_disks(unit, instance, disks=disks)


def _mirror_to_plain(unit: LogicalUnit, instance: Instance) -> None:
    """The data volumes of the primary node become the disks; the rest of the mirrors goes."""
    old = unit.config.instance_disks(instance)
    primary = instance.primary_node
    disk_work.shutdown_disks(unit, instance)
    with unit.config.transaction() as change:
        for disk in old:
            data, meta = disk.children
            for node in disk.nodes:
                for device in (meta,) if node == primary else (data, meta):
                    change.add_loose_disk(loose_part(unit, instance, device, node))
            change.release_port(disk.logical_id[2])
            change.update_disk(
                dataclasses.replace(
                    disk,
                    dev_type=PLAIN,
                    logical_id=data.logical_id,
                    children=(),
                    nodes=(primary,),
                    params=None,
                )
            )
        change.set_disks_active(instance.uuid, False)
    fresh = unit.config.instance(instance.uuid)
    try:
        clear(unit, fresh)
    except errors.RpcError as err:
        unit.warn(
            f"volumes of the former mirrors were not removed: {err}",
            hint="The next conversion, or the removal of the instance, destroys them.",
        )
