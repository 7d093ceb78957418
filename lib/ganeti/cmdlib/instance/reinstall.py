"""Install the operating system of a stopped instance again.

The OS is written into the configuration first. An interrupted installation leaves a stopped
instance with a partly installed OS on its disks; the same command starts the installation again.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from ganeti import errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import LogicalUnit, executes
from ganeti.cmdlib.hooks import InstanceHooks
from ganeti.cmdlib.ops.disks import devices as disk_work
from ganeti.cmdlib.ops.guest import helper
from ganeti.cmdlib.ops.install import operating_system
from ganeti.cmdlib.ops.params import os
from ganeti.locking import Level
from ganeti.objects import Instance
from ganeti.opcodes.instance import OpInstanceReinstall
from ganeti.utils.undo import UndoStack


@dataclass(frozen=True, slots=True)
class ReinstallPlan:
    """The OS and its parameters.

    :ivar parameters: all parameters of this installation: name -> [value, visibility].
    :ivar how: how an untrusted OS will be installed; None for a trusted one and for an image.
    :ivar image: path or address of the image which is written instead of running the create script;
        empty for none.
    :ivar left: the helper guest of an interrupted installation still runs.
    """

    instance: Instance
    os_name: str
    parameters: dict[str, list[str]]
    how: operating_system.HelperInstallation | None
    image: str
    left: bool


@executes(OpInstanceReinstall)
class LUInstanceReinstall(LogicalUnit[OpInstanceReinstall, ReinstallPlan]):
    """Run the create script of an operating system on the disks of a stopped instance."""

    HOOKS = InstanceHooks("instance-reinstall")

    def expand_names(self) -> None:
        self.lock_instance(self.op.instance_name, self.op.instance_uuid)

    def declare_locks(self, level: Level) -> None:
        self.need_instance_nodes(level)

    def check_prereq(self) -> ReinstallPlan:
        assert self.instance is not None
        instance = self.instance
        prereq.require_not_forthcoming(instance, "reinstall")
        prereq.require_online_primary(self.config, instance)
        left = helper.require_stopped(self.ctx, instance, "reinstall")
        if not instance.disks:
            raise errors.OpPrereqError(
                f"instance {instance.name} has no disks for an installation",
                errors.ECODE_INVAL,
            )
        os_name = self.op.os_type or instance.os
        given = (
            os.merged(instance.osparams, self.op.osparams),
            os.merged(instance.osparams_private, self.op.osparams_private),
            self.op.osparams_secret or {},
        )
        osparams, image = os.for_installation(self.config.cluster(), os_name, *given)
        if not os_name and not image:
            raise errors.OpPrereqError(
                f"instance {instance.name} has no operating system. Name one with --os-type, or an"
                f" image with the OS parameter {os.IMAGE}.",
                errors.ECODE_INVAL,
            )
        how = None
        wanted = prereq.WantedOs(os_name, osparams, self.op.force_variant)
        if not image:
            how = operating_system.require(
                self.config,
                self.rpc,
                self.config.node(instance.primary_node),
                instance.name,
                wanted,
                hypervisor=instance.hypervisor,
                present=instance.nics,
            )
        elif self.op.os_type and self.op.os_type != instance.os:
            self._require_os_beside_image(instance, wanted)
        parameters = operating_system.visible_parameters(self.config, os_name, *given)
        return ReinstallPlan(instance, os_name, parameters, how, image, left)

    def _require_os_beside_image(self, instance: Instance, wanted: prereq.WantedOs) -> None:
        """Check an OS which would only be recorded, because an image is written.

        :raises errors.OpPrereqError: the image comes from an earlier command, so that the user may
            expect the OS; or the node does not have the OS.
        """
        op = self.op
        tables = (op.osparams, op.osparams_private, op.osparams_secret)
        stored = os.IMAGE in instance.osparams or os.IMAGE in instance.osparams_private
        if stored and not any(table and os.IMAGE in table for table in tables):
            raise errors.OpPrereqError(
                f"instance {instance.name} is installed from an image (OS parameter {os.IMAGE}), so"
                f" the scripts of OS {wanted.name} would not run. Add -O {os.IMAGE}=default to"
                " run them.",
                errors.ECODE_INVAL,
            )
        prereq.require_os(
            self.config, self.rpc, instance.primary_node, wanted, hypervisor=instance.hypervisor
        )

    def steps(self, plan: ReinstallPlan) -> list[str]:
        node = self.config.node(plan.instance.primary_node).name
        if plan.image:
            return [
                f"write the image to disk 0 of instance {plan.instance.name} on {node}, which"
                " destroys what is on it"
            ]
        where = f"in a helper guest on {node}" if plan.how is not None else f"on {node}"
        return [
            f"run the create script of OS {plan.os_name} for instance {plan.instance.name}"
            f" {where}, which destroys what is on its disks"
        ]

    def exec(self, plan: ReinstallPlan) -> None:
        instance = plan.instance
        if plan.left:
            helper.end_left(self.rpc, self.log, instance)
        if plan.os_name != instance.os:
            self.log.feedback(f"Changing OS to '{plan.os_name}'...")
            with self.config.transaction() as change:
                change.instances.update(dataclasses.replace(instance, os=plan.os_name))
            instance = self.config.instance(instance.uuid)
        with UndoStack(self.log.warn) as undo:
            # Always undone: the instance is stopped afterwards as it was before.
            undo.add(
                f"active disks of {instance.name}",
                disk_work.shutdown_disks,
                self.config,
                self.rpc,
                instance,
            )
            disk_work.assemble_disks(self.ctx, instance)
            if plan.image:
                operating_system.write_image(self.ctx, instance, plan.image)
            else:
                self.log.info("Running the OS's create script...")
                operating_system.install(
                    self.ctx,
                    instance,
                    plan.parameters,
                    plan.how,
                    reinstall=True,
                    debug_level=self.op.debug_level or 0,
                )
        if instance.disks_active:
            with self.config.transaction() as change:
                change.instances.set_disks_active(instance.uuid, False)
