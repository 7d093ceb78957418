"""Adding, removing, attaching, detaching and modifying disks of an instance.

The logical unit of ``OP_INSTANCE_SET_PARAMS`` calls :func:`plan`, which checks all changes without
any effect, and :func:`carry_out`.

An interruption leaves no device which the configuration does not know: an added disk is written to
the configuration before it is created, a removed disk leaves the configuration after it was
destroyed. In between the device of the disk may be missing; ``gnt-instance modify --disk N:remove``
or ``gnt-instance recreate-disks`` repairs that.

A *detached* disk keeps its content and stays in the configuration, belongs to no instance, and can
be attached again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ganeti import errors
from ganeti.cmdlib.base import Context, why
from ganeti.cmdlib.ops.disks import capacity, specs, sync
from ganeti.cmdlib.ops.disks import devices as disk_work
from ganeti.cmdlib.ops.params import devices
from ganeti.cmdlib.ops.params.devices import DeviceChange
from ganeti.constants.disk import (
    DISKLESS,
    DRBD8,
    MAX_DISKS,
    MIXED,
    MOD_ADD,
    MOD_ATTACH,
    MOD_DETACH,
    MOD_REMOVE,
)
from ganeti.constants.net import HOTPLUG_ACTION_ADD, HOTPLUG_ACTION_REMOVE
from ganeti.objects.disk_templates import FILE_BASED, HAVE_ACCESS, HAVE_PROVIDER, INT_MIRRORED
from ganeti.utils.undo import UndoStack
from ganeti.wire.calls import VERSION

if TYPE_CHECKING:
    from ganeti.cmdlib.ops.params.hotplug import Hotplug
    from ganeti.config import Config
    from ganeti.objects import Disk, Instance
    from ganeti.rpc import RpcRunner

WHAT = "disk"
_MODIFIABLE = frozenset(("mode", "name", "access"))


@dataclass(frozen=True, slots=True)
class DiskStep:
    """One change of a disk.

    :ivar action: one of the published words ``add``, ``attach``, ``detach``, ``modify``,
        ``remove``.
    :ivar index: number of the disk at the moment of the change.
    :ivar disk: the disk; with ``modify``, its new state; with ``add``, None.
    :ivar spec: spec of a disk to be added, see :func:`~.specs.plan_disk`; else empty.
    :ivar result: pairs of parameter and new value, which the user is shown.
    """

    action: str
    index: int
    disk: Disk | None
    spec: Mapping[str, Any]
    result: tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True)
class DiskPlan:
    """All changes; names, sizes (MiB) and template of the instance's disks after them."""

    steps: tuple[DiskStep, ...]
    names: tuple[str | None, ...]
    sizes_mib: tuple[int, ...]
    template: str


class _Planned:
    """Stands for a disk to be added while further changes are planned."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self.name: str | None = spec["name"]
        self.uuid = ""
        self.size: int = spec["size"]


def plan(
    config: Config,
    instance: Instance,
    changes: Sequence[DeviceChange],
    ext_params: Mapping[str, Any],
) -> DiskPlan:
    """Check the changes in order, each with the disks which the changes before it leave.

    :param ext_params: parameters of added disks of an external storage provider.
    :raises errors.OpPrereqError: a change is not possible.
    """
    current: list[Any] = list(config.instance_disks(instance))
    template = config.disk_template(instance)
    steps = []
    for change in changes:
        if change.action == MOD_ADD:
            template = _template_of_new(config, instance, template, change.params)
            step = _add(config, instance, template, current, change, ext_params)
            current.insert(step.index, _Planned(step.spec))
        elif change.action == MOD_ATTACH:
            step = _attach(config, instance, current, change)
            current.insert(step.index, step.disk)
            assert step.disk is not None
            template = step.disk.dev_type if template == DISKLESS else template
        else:
            index = devices.find(WHAT, current, change.ident)
            if isinstance(current[index], _Planned):
                raise errors.OpPrereqError(
                    f"disk {index} is added by the same command and cannot be changed by it, too",
                    errors.ECODE_INVAL,
                )
            if change.action in (MOD_REMOVE, MOD_DETACH):
                devices.require_no_params(WHAT, change)
                result = ((f"disk/{index}", change.action),)
                step = DiskStep(change.action, index, current.pop(index), {}, result)
            else:
                step = _modify(index, current[index], change.params)
                current[index] = step.disk
        steps.append(step)
    disk_work.require_spindles_allowed(
        config,
        config.instance_nodes(instance),
        [change.params for change in changes if change.action == MOD_ADD],
    )
    names = tuple(disk.name for disk in current)
    specs.require_unique_names(names)
    sizes = tuple(disk.size for disk in current)
    return DiskPlan(tuple(steps), names, sizes, template if current else DISKLESS)


def _template_of_new(
    config: Config, instance: Instance, template: str, params: Mapping[str, Any]
) -> str:
    wanted = params.get("dev_type")
    if template == DISKLESS:
        enabled = config.cluster().enabled_disk_templates
        wanted = wanted or next((kind for kind in enabled if kind != DISKLESS), None)
        if wanted is None or wanted == DISKLESS:
            raise errors.OpPrereqError(
                "no disk template is enabled in this cluster", errors.ECODE_STATE
            )
        if wanted in INT_MIRRORED:
            raise errors.OpPrereqError(
                f"instance {instance.name} has no secondary node, which disks of template {wanted}"
                " need",
                errors.ECODE_INVAL,
            )
        specs.require_enabled(config, wanted)
        return str(wanted)
    if template == MIXED:
        raise errors.OpPrereqError(
            f"instance {instance.name} has disks of different templates, so none can be added",
            errors.ECODE_STATE,
        )
    if wanted not in (None, template):
        raise errors.OpPrereqError(
            f"instance {instance.name} has disks of template {template}, so a disk of template"
            f" {wanted} cannot be added",
            errors.ECODE_INVAL,
        )
    return template


def _add(
    config: Config,
    instance: Instance,
    template: str,
    current: Sequence[Any],
    change: DeviceChange,
    ext_params: Mapping[str, Any],
) -> DiskStep:
    index = devices.place(WHAT, current, change.ident, MAX_DISKS)
    params = {**(ext_params if template in HAVE_PROVIDER else {}), **change.params}
    spec = specs.plan_disk(
        config, template, f"disk {index}", params, node_uuid=instance.primary_node
    )
    if spec.get("adopt"):
        raise errors.OpPrereqError(
            f"disk {index}: a device can be adopted only when the instance is created",
            errors.ECODE_INVAL,
        )
    text = f"add:size={spec['size']},mode={spec['mode']}"
    return DiskStep(MOD_ADD, index, None, spec, ((f"disk/{index}", text),))


def _attach(
    config: Config, instance: Instance, current: Sequence[Any], change: DeviceChange
) -> DiskStep:
    index = devices.place(WHAT, current, change.ident, MAX_DISKS)
    uuid, name = change.params.get("uuid"), change.params.get("name")
    if bool(uuid) == bool(name) or len(change.params) != 1:
        raise errors.OpPrereqError(
            "a disk to be attached is named either by its UUID or by its name. Use --disk"
            " attach:uuid=... or --disk attach:name=...",
            errors.ECODE_INVAL,
        )
    data = config.snapshot()
    owned = {one for other in data.instances.values() for one in other.disks}
    found = [
        disk for disk in data.disks.values() if disk.uuid == uuid or (name and disk.name == name)
    ]
    free = [disk for disk in found if disk.uuid not in owned]
    if len(free) != 1:
        problem = "does not exist" if not found else "belongs to an instance"
        if len(free) > 1:
            problem = "is the name of several disks. Use the UUID."
        raise errors.OpPrereqError(f"disk {uuid or name} {problem}", errors.ECODE_NOENT)
    disk = free[0]
    if disk.uuid in {one.uuid for one in current}:
        raise errors.OpPrereqError(f"disk {uuid or name} is given twice", errors.ECODE_INVAL)
    _require_attachable(config, instance, disk)
    return DiskStep(MOD_ATTACH, index, disk, {}, ((f"disk/{index}", "attach"),))


def _require_attachable(config: Config, instance: Instance, disk: Disk) -> None:
    """Check that a disk is on the nodes of the instance and of the template of its other disks."""
    if disk.nodes and disk.nodes[0] != instance.primary_node:
        raise errors.OpPrereqError(
            f"disk {disk.uuid} is on node {config.node(disk.nodes[0]).name}, instance"
            f" {instance.name} on {config.node(instance.primary_node).name}",
            errors.ECODE_INVAL,
        )
    secondaries = config.secondary_nodes(instance)
    if secondaries and set(disk.secondary_nodes(instance.primary_node)) != set(secondaries):
        raise errors.OpPrereqError(
            f"disk {disk.uuid} is not mirrored to the secondary node of instance {instance.name}",
            errors.ECODE_INVAL,
        )
    template = config.disk_template(instance)
    if template not in (DISKLESS, disk.dev_type):
        raise errors.OpPrereqError(
            f"disk {disk.uuid} has template {disk.dev_type}, but the disks of instance"
            f" {instance.name} have template {template}",
            errors.ECODE_INVAL,
        )


def _modify(index: int, disk: Disk, changes: Mapping[str, Any]) -> DiskStep:
    what = f"disk {index}"
    if not changes:
        raise errors.OpPrereqError(f"{what}: no change is given", errors.ECODE_INVAL)
    access = changes.get("access")
    if access in ("r", "w"):
        changes = {
            **{k: v for k, v in changes.items() if k != "access"},
            "mode": {"r": "ro", "w": "rw"}[access],
        }
    if "size" in changes:
        raise errors.OpPrereqError(
            f"{what}: the size cannot be changed like this. Use 'gnt-instance grow-disk'.",
            errors.ECODE_INVAL,
        )
    wrong = sorted(set(changes) - _MODIFIABLE)
    if wrong and disk.dev_type not in HAVE_PROVIDER:
        raise errors.OpPrereqError(
            f"{what}: {', '.join(wrong)} cannot be changed, only {', '.join(sorted(_MODIFIABLE))}",
            errors.ECODE_INVAL,
        )
    values: dict[str, Any] = {}
    params = dict(disk.params or {})
    if "mode" in changes:
        values["mode"] = specs.checked_mode(what, changes["mode"])
    if "name" in changes:
        values["name"] = devices.checked_name(f"disk {index}", changes["name"])
    if "access" in changes:
        if disk.dev_type not in HAVE_ACCESS:
            raise errors.OpPrereqError(
                f"{what}: disks of template {disk.dev_type} have no parameter access",
                errors.ECODE_INVAL,
            )
        params["access"] = changes["access"]
    for key in wrong:
        params[key] = changes[key]
    if params != (disk.params or {}):
        values["params"] = params
    shown: dict[str, Any] = {key: changes[key] for key in wrong}
    for key in sorted(_MODIFIABLE & set(changes)):
        shown[key] = values.get(key, changes[key])
    result = tuple((f"disk.{key}/{index}", value) for key, value in shown.items())
    return DiskStep("modify", index, dataclasses.replace(disk, **values), {}, result)


def require_free_space(
    config: Config, rpc: RpcRunner, instance: Instance, disk_plan: DiskPlan
) -> None:
    """Check that the volume groups have free space for the disks which are added.

    :raises errors.OpPrereqError: they have not.
    """
    added = [step.spec for step in disk_plan.steps if step.action == MOD_ADD]
    needed = capacity.needed_mib(disk_plan.template, added)
    nodes = config.instance_nodes(instance)
    asked = [spec["size"] for spec in added]
    mirrored = len(added) if disk_plan.template == DRBD8 else 0
    config.require_ports(mirrored)
    capacity.require_possible_files(config, rpc, nodes, disk_plan.template, asked)
    capacity.require_free_space(config, rpc, nodes, needed, new_minors=mirrored)


# -- carrying out ----------------------------------------------------------------


def carry_out(
    ctx: Context,
    instance_uuid: str,
    disk_plan: DiskPlan,
    plug: Hotplug | None,
    *,
    directory: str | None,
    driver: str | None,
    wait_for_sync: bool,
) -> None:
    """Carry out the changes in order.

    :param plug: hotplugs devices of the running guest; None when the instance is stopped.
    :param directory: directory of added disk files, unless the instance has such files already.
    :param driver: file driver of added disk files; None for the one of the other disks.
    :param wait_for_sync: wait until an added mirrored disk is in sync.
    :raises errors.OpExecError: a change failed; says what is left of it.
    """
    for step in disk_plan.steps:
        instance = ctx.config.instance(instance_uuid)
        if step.action == MOD_ADD:
            _make(ctx, instance, disk_plan.template, step, plug, directory, driver, wait_for_sync)
        elif step.action == MOD_ATTACH:
            assert step.disk is not None
            with ctx.config.transaction() as change:
                change.disks.attach(instance.uuid, step.disk.uuid, step.index)
            _join(ctx, instance, ctx.config.disk(step.disk.uuid), step.index, plug)
        elif step.action in (MOD_REMOVE, MOD_DETACH):
            assert step.disk is not None
            _leave(ctx, instance, step, plug)
        else:
            assert step.disk is not None
            present = ctx.config.disk(step.disk.uuid)
            with ctx.config.transaction() as change:
                change.disks.update(
                    dataclasses.replace(
                        present, mode=step.disk.mode, name=step.disk.name, params=step.disk.params
                    )
                )


def _make(
    ctx: Context,
    instance: Instance,
    template: str,
    step: DiskStep,
    plug: Hotplug | None,
    directory: str | None,
    driver: str | None,
    wait_for_sync: bool,
) -> None:
    secondaries = ctx.config.secondary_nodes(instance)
    existing = ctx.config.instance_disks(instance)
    # In the directory of the instance's other disk files, if there is one.
    directory = disk_work.directory_for_new(ctx.config, instance) or directory
    (disk,) = specs.make_disks(
        ctx.config,
        template,
        [step.spec],
        primary_node=instance.primary_node,
        secondary_node=secondaries[0] if secondaries else None,
        directory=directory,
        driver=driver or _driver_of(existing),
        first_index=step.index,
    )
    ctx.log.feedback(f"* disk {step.index}, size {disk.size} MiB")
    hint = f"Remove it with 'gnt-instance modify --disk {step.index}:remove {instance.name}'."
    with UndoStack(ctx.log.warn, hint=hint) as undo:
        undo.add(f"disk {step.index} in the configuration", _forget, ctx.config, instance, disk)
        with ctx.config.transaction() as change:
            change.disks.add(instance.uuid, disk, step.index)
        undo.add(f"disk {step.index}", disk_work.remove_disks, ctx, instance, [disk])
        try:
            disk_work.create_storage_dir(ctx.rpc, instance, [disk])
        except errors.RpcError as err:
            raise errors.OpExecError(
                f"could not create disk {step.index} of instance {instance.name}: {why(err)}"
            ) from err
        disk_work.create_disks(ctx, instance, [disk])
        undo.commit()
    disk = ctx.config.disk(disk.uuid)
    instance = ctx.config.instance(instance.uuid)
    if disk.has_replicas:
        disk_work.activate_disk(ctx, instance, disk)
        if not sync.wait_for_sync(ctx, instance, [disk], once=not wait_for_sync):
            ctx.log.warn(f"disk {step.index} of instance {instance.name} is not in sync yet")
    _join(ctx, instance, disk, step.index, plug)


def _driver_of(disks: Sequence[Disk]) -> str | None:
    """Return the file driver of the first disk which is a file."""
    for disk in disks:
        if disk.dev_type in FILE_BASED:
            return disk.file_id.driver
    return None


def _forget(config: Config, instance: Instance, disk: Disk) -> None:
    if disk.uuid in config.instance(instance.uuid).disks:
        with config.transaction() as change:
            change.disks.remove(instance.uuid, disk.uuid)


def _join(ctx: Context, instance: Instance, disk: Disk, index: int, plug: Hotplug | None) -> None:
    """Activate a new disk if the others are active, and plug it into a running guest."""
    instance = ctx.config.instance(instance.uuid)
    if not instance.disks_active:
        disk_work.shutdown_disks(ctx.config, ctx.rpc, instance, disks=[disk])
        return
    found = disk_work.activate_disk(ctx, instance, disk)
    _renew_links(ctx, instance, index + 1)
    if plug is not None and plug.running:
        plug.disk(HOTPLUG_ACTION_ADD, disk, index, [found.link, found.uri])


def _leave(ctx: Context, instance: Instance, step: DiskStep, plug: Hotplug | None) -> None:
    """Unplug a disk from the guest and remove it from the instance; destroy it unless detached."""
    disk = step.disk
    assert disk is not None
    _require_reachable(ctx.config, ctx.rpc, instance, disk, step)
    if plug is not None and plug.running:
        if not plug.disk(HOTPLUG_ACTION_REMOVE, disk, step.index):
            raise errors.OpExecError(
                f"disk {step.index} was not removed, because the running instance"
                f" {instance.name} uses it. Stop the instance first."
            )
    disk_work.shutdown_disks(ctx.config, ctx.rpc, instance, disks=[disk])
    if step.action == MOD_REMOVE:
        try:
            disk_work.remove_disks(ctx, instance, [disk])
        except errors.OpExecError as err:
            raise errors.OpExecError(f"{err}. Repair the cause and repeat the command.") from err
        with ctx.config.transaction() as change:
            change.disks.remove(instance.uuid, disk.uuid)
    else:
        with ctx.config.transaction() as change:
            change.disks.detach(instance.uuid, disk.uuid)
    instance = ctx.config.instance(instance.uuid)
    if step.action == MOD_REMOVE:
        _remove_directory(ctx, instance, disk)
    if instance.disks_active:
        _renew_links(ctx, instance, step.index)


def _require_reachable(
    config: Config, rpc: RpcRunner, instance: Instance, disk: Disk, step: DiskStep
) -> None:
    """Check that the nodes of a disk answer, before a running guest loses it.

    :raises errors.OpExecError: a node which is not marked offline does not answer.
    """
    nodes = [
        uuid
        for uuid in disk_work.disk_nodes(disk, instance.primary_node)
        if not config.node(uuid).offline
    ]
    for answer in rpc.call_many(VERSION, nodes).values():
        if answer.failure is not None:
            raise errors.OpExecError(
                f"disk {step.index} of instance {instance.name} was not removed, because node"
                f" {answer.node_name} does not answer: {why(answer.failure)}. If that machine is"
                " off, mark the node offline and repeat the command."
            )


def _remove_directory(ctx: Context, instance: Instance, disk: Disk) -> None:
    """Remove the directory of a disk which was removed, if it was the last one there."""
    try:
        disk_work.remove_storage_dir(ctx, instance, [disk])
    except errors.RpcError as err:
        ctx.log.warn(f"the disk directory of instance {instance.name} was not removed: {why(err)}")


def _renew_links(ctx: Context, instance: Instance, first: int) -> None:
    """Renew the links of the disks from this number on, because their numbers have changed."""
    disks = ctx.config.instance_disks(instance)[first:]
    if disks:
        disk_work.assemble_disks(ctx, instance, disks=disks)
