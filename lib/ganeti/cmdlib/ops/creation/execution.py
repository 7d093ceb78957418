"""Carry out the plan of a creation.

The order is chosen so that an interrupted creation can be removed like any instance: the instance
(marked down) and its disks go into the configuration first, then the disks are made, then the OS is
installed, then the instance is started. When a step before the start fails, everything is taken
back; the error names what could not be removed. A failing start leaves the complete instance in the
cluster.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import ParamSpec

from ganeti import errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.ops.creation.objects import instance_and_disks
from ganeti.cmdlib.ops.creation.plan import CreatePlan
from ganeti.cmdlib.ops.disks import adopt, sync
from ganeti.cmdlib.ops.disks import devices as disk_work
from ganeti.cmdlib.ops.guest import power
from ganeti.cmdlib.ops.install import forthcoming, operating_system
from ganeti.cmdlib.ops.placement.new_instance import NewInstanceUnit
from ganeti.cmdlib.ops.transfer.import_source import ImportUnknown
from ganeti.locking import Level
from ganeti.objects import Disk, Instance, updated
from ganeti.utils import clock
from ganeti.utils.undo import UndoStack

P = ParamSpec("P")


def reserve(unit: NewInstanceUnit[CreatePlan], plan: CreatePlan) -> None:
    """Add a forthcoming instance: only the configuration has it."""
    unit.log.feedback(f"reserving resources for instance {unit.name}")
    _add(unit, *forthcoming.reservation(*instance_and_disks(unit, plan)))


def start(unit: NewInstanceUnit[CreatePlan], plan: CreatePlan, instance: Instance) -> None:
    """Start the complete instance.

    :raises errors.OpExecError: it does not start; it stays in the cluster.
    """
    unit.log.feedback("* starting the instance")
    with unit.config.transaction() as change:
        change.instances.mark(instance.uuid, prereq.ADMIN_UP)
    try:
        # A script on the node has left the disks active; others who had them may do otherwise.
        power.start(
            unit.ctx,
            unit.config.instance(instance.uuid),
            unit.op.reason,
            active=unit.imported is None and plan.helper is None and not plan.adopts,
        )
    except errors.OpExecError as err:
        raise errors.OpExecError(
            f"{err}. Instance {instance.name} is complete and marked to run: start it again with"
            " 'gnt-instance startup', or remove it with 'gnt-instance remove'."
        ) from err


def _add(unit: NewInstanceUnit[CreatePlan], instance: Instance, disks: list[Disk]) -> None:
    """Add instance and disks to the configuration, or complete the reservation with them."""
    reserved = unit.reserved
    try:
        with unit.config.transaction() as change:
            if reserved is None:
                change.instances.add(instance, disks, unit.ctx.ec_id)
            else:
                change.instances.commit(instance, disks, unit.ctx.ec_id)
    except errors.ConfigurationError:
        # The removal of the instance releases its port; without the instance this must do so.
        port = instance.network_port
        if port is not None and (reserved is None or port != reserved.network_port):
            with unit.config.transaction() as change:
                change.ports.release(port)
        raise


class Creation:
    """One run of the steps up to the installation; :meth:`run` is called once."""

    def __init__(self, unit: NewInstanceUnit[CreatePlan], plan: CreatePlan) -> None:
        self._unit = unit
        self._plan = plan
        #: Things which could not be removed after a failure, in words.
        self._left: list[str] = []

    def run(self) -> Instance:
        """Add the instance, make its disks and install its OS.

        :returns: the instance as it is in the configuration now.
        :raises errors.OpExecError: a step failed; everything is removed, or the text names what is
            left.
        """
        unit, plan = self._unit, self._plan
        hint = f"Clean up with 'gnt-instance remove --ignore-failures {unit.name}'."
        with UndoStack(unit.log.warn, hint=hint) as undo:
            instance, disks = instance_and_disks(unit, plan)
            if unit.imported is not None and unit.imported.ends_with_job:
                # When this ends without an answer, the watcher removes what is left.
                instance = dataclasses.replace(instance, importing_since=clock.now())
            for index, disk in enumerate(disks):
                unit.log.feedback(f"* disk {index}, size {disk.size} MiB")
            unit.log.feedback(f"adding instance {unit.name} to the cluster configuration")
            # This step is undone last. While disks remain the instance must stay, too, because
            # they can only be removed with it.
            undo.add("the instance itself", self._remove_from_config, instance)
            adopted = [
                (adopt.present_device(disk, plan.disk_template, spec), disk)
                for disk, spec in zip(disks, plan.disk_specs, strict=True)
                if spec.get("adopt")
            ]
            # A failure must never remove adopted volumes.
            to_make = [] if adopted else disks
            _add(unit, instance, disks)
            unit.instance = instance = unit.config.instance(instance.uuid)
            adopt.rename(unit.rpc, undo, instance, adopted)
            self._make_disks(undo, instance, disks, to_make)
            mirrored = disk_work.mirrored_internally(disks)
            if mirrored:
                self._synchronise(undo, instance)
            unit.release_locks(Level.NODE_RES)
            installs = disks and not (unit.op.no_install or plan.adopts)
            if installs:
                try:
                    # A synchronisation takes hours, in which a disk may become inactive.
                    self._install(instance, activate=not mirrored or unit.op.wait_for_sync)
                except ImportUnknown:
                    undo.commit()
                    # It may be the only copy, so an administrator decides.
                    self._forget_import(instance)
                    raise
            undo.commit()
            self._forget_import(instance)
        # The instance is complete, and perhaps the only copy: nothing is taken back any more.
        if installs and not unit.op.start:
            self._deactivate(instance)
        return unit.config.instance(instance.uuid)

    def _forget_import(self, instance: Instance) -> None:
        config = self._unit.config
        instance = config.instance(instance.uuid)
        if instance.importing_since is not None:
            with config.transaction() as change:
                change.instances.update(updated(instance, importing_since=None))

    # -- disks -----------------------------------------------------------------

    def _make_disks(
        self, undo: UndoStack, instance: Instance, disks: list[Disk], to_make: list[Disk]
    ) -> None:
        unit = self._unit
        if to_make:
            unit.log.feedback("* making the disks of the instance")
            # Files which stay there are not of this instance, so it need not stay for them.
            undo.add("the disk directory", disk_work.remove_storage_dir, unit.ctx, instance, disks)
            disk_work.create_storage_dir(unit.rpc, instance, disks)
        undo.add("", self._attempt, "disks", disk_work.remove_disks, unit.ctx, instance, to_make)
        disk_work.create_disks(unit.ctx, instance, to_make)

    def _synchronise(self, undo: UndoStack, instance: Instance) -> None:
        """Activate mirrored disks so that their replicas connect; wait for sync if wanted."""
        unit = self._unit
        undo.add(
            "",
            self._attempt,
            "active disks",
            disk_work.shutdown_disks,
            unit.config,
            unit.rpc,
            instance,
        )
        disk_work.assemble_disks(unit.ctx, instance)
        in_sync = sync.wait_for_sync(
            unit.ctx,
            instance,
            once=not unit.op.wait_for_sync,
            check_cancel=unit.ctx.callbacks.check_cancel,
        )
        if unit.op.wait_for_sync and not in_sync:
            raise errors.OpExecError(
                f"disks of instance {unit.name} are degraded after their synchronisation"
            )

    # -- installation ----------------------------------------------------------

    def _install(self, instance: Instance, *, activate: bool) -> None:
        unit = self._unit
        try:
            if activate:
                disk_work.assemble_disks(unit.ctx, instance)
            if unit.imported is None:
                self._run_create_script(instance)
            else:
                unit.imported.run(unit.ctx, instance, unit.op)
        except errors.GenericError:
            # Disks which stay active are the smaller problem and must not hide the greater one.
            self._attempt("active disks", disk_work.shutdown_disks, unit.config, unit.rpc, instance)
            raise

    def _deactivate(self, instance: Instance) -> None:
        try:
            disk_work.shutdown_disks(self._unit.config, self._unit.rpc, instance)
        except errors.OpExecError as err:
            raise errors.OpExecError(
                f"{err}. Instance {instance.name} is complete, but has active disks. Repeat"
                f" 'gnt-instance deactivate-disks {instance.name}'."
            ) from err

    def _run_create_script(self, instance: Instance) -> None:
        image = self._plan.parameters.image
        if image:
            operating_system.write_image(self._unit.ctx, instance, image)
            return
        self._unit.log.feedback("* running the OS's create script")
        operating_system.install(
            self._unit.ctx,
            instance,
            self._plan.parameters.os_parameters,
            self._plan.helper,
            reinstall=False,
            debug_level=self._unit.op.debug_level or 0,
        )

    # -- undo ------------------------------------------------------------------

    def _attempt(
        self, what: str, step: Callable[P, object], *args: P.args, **kwargs: P.kwargs
    ) -> None:
        """Undo one step; a failure is remembered in ``_left``."""
        try:
            step(*args, **kwargs)
        except errors.GenericError as err:
            self._left.append(f"{what} ({err})")

    def _remove_from_config(self, instance: Instance) -> None:
        """Remove the instance from the configuration, or make it a reservation again.

        :raises errors.OpExecError: disks are left, so that the instance stays.
        """
        config = self._unit.config
        if instance.uuid not in config.snapshot().instances:
            return
        if self._left:
            raise errors.OpExecError(
                f"kept in the configuration because of {', '.join(self._left)}"
            )
        with config.transaction() as change:
            if self._unit.reserved is None:
                change.instances.remove(instance.uuid)
            else:
                change.instances.reserve(instance.uuid)
