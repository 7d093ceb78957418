"""Rename a stopped instance.

Directories of disk files have the name of the instance. They are renamed first, which may be
repeated; then name and paths change in the configuration in one step. After an interruption in
between, the same command completes the operation.

A directory stays as it is when disks are there which were detached from the instance, or belong to
another one now: their paths would become wrong, and a guest may use them.
"""

from __future__ import annotations

import dataclasses
import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ganeti import errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import LogicalUnit, executes, why
from ganeti.cmdlib.hooks import InstanceHooks
from ganeti.cmdlib.ops.creation import names
from ganeti.cmdlib.ops.disks import devices as disk_work
from ganeti.cmdlib.ops.disks.calls import call_for_disks
from ganeti.cmdlib.ops.liveness import location
from ganeti.cmdlib.ops.params import instance as params
from ganeti.locking import Level
from ganeti.objects import Disk, Instance, fill
from ganeti.opcodes.instance import OpInstanceRename
from ganeti.utils.undo import UndoStack
from ganeti.wire.calls import BLOCKDEV_SETINFO_MULTI, FILE_STORAGE_DIR_RENAME, INSTANCE_RUN_RENAME


@dataclass(frozen=True, slots=True)
class RenamePlan:
    """The new name.

    :ivar directories: old and new path of each directory of disk files which is renamed.
    """

    instance: Instance
    name: str
    directories: tuple[tuple[str, str], ...]


def renamed_disk(disk: Disk, old_dir: str, new_dir: str) -> Disk:
    """Return the disk with the path of its file in the renamed directory."""
    driver, path = disk.file_id
    moved = posixpath.join(new_dir, posixpath.relpath(path, old_dir))
    return dataclasses.replace(disk, logical_id=(driver, moved))


@executes(OpInstanceRename)
class LUInstanceRename(LogicalUnit[OpInstanceRename, RenamePlan]):
    """Give a stopped instance another name, and run the rename script of its OS.

    With the name that it has, only the script is run, for example because it had failed.
    """

    HOOKS = InstanceHooks("instance-rename")

    def expand_names(self) -> None:
        self.new_name = prereq.valid_host_name(self.op.new_name, "new instance name")
        names.require_checks_agree(name_check=self.op.name_check, ip_check=self.op.ip_check)
        if self.op.name_check:
            self.new_name = self._resolved()
        instance = self.lock_instance(self.op.instance_name, self.op.instance_uuid)
        if instance.name != self.new_name:
            exact = bool(self.op.exact_name)
            names.reserve(self.config, self.new_name, exact=exact, old_name=instance.name)

    def _resolved(self) -> str:
        host = prereq.resolve(self.new_name, "new instance name")
        # The full form of a short name is what the user meant, the name of another host is not.
        if host.name != self.new_name and not host.name.startswith(f"{self.new_name}."):
            raise errors.OpPrereqError(
                f"new instance name {self.new_name} resolves to another name, {host.name}",
                errors.ECODE_INVAL,
            )
        if self.op.ip_check:
            names.require_address_unused(host.name, host.ip)
        return host.name

    def declare_locks(self, level: Level) -> None:
        self.need_instance_nodes(level)

    def hook_env(self, plan: RenamePlan) -> dict[str, object]:
        return {"INSTANCE_NEW_NAME": self.new_name}

    def dry_run_result(self, plan: RenamePlan) -> str:
        return plan.name

    def check_prereq(self) -> RenamePlan:
        assert self.instance is not None
        instance = self.instance
        prereq.require_not_forthcoming(instance, "rename")
        prereq.require_online_primary(self.config, instance)
        location.require_stopped(self.ctx, instance, "rename")
        disks = self.config.instance_disks(instance)
        before, after = (
            params.guest_problem(
                instance.hypervisor,
                fill.instance_hv(self.config.cluster(), instance),
                name,
                [disk.name for disk in disks],
                len(instance.nics),
            )
            for name in (instance.name, self.new_name)
        )
        if after != before:
            params.refuse_guest(instance.hypervisor, self.new_name, after)
        return RenamePlan(instance, self.new_name, tuple(self._directories(instance)))

    def _directories(self, instance: Instance) -> Iterator[tuple[str, str]]:
        """Return the directories with the old name which nobody else uses, and their new paths."""
        disks = self.config.instance_disks(instance)
        for old in disk_work.storage_dirs(disks):
            if posixpath.basename(old) != instance.name or instance.name == self.new_name:
                continue
            others = disk_work.other_users(self.config, old, disks)
            if others:
                self.log.info(
                    f"directory {old} keeps its name, because {len(others)} disks which do not"
                    f" belong to instance {instance.name} are there, too"
                )
                continue
            yield old, posixpath.join(posixpath.dirname(old), self.new_name)

    def steps(self, plan: RenamePlan) -> list[str]:
        return [
            *(f"rename directory {old} to {new}" for old, new in plan.directories),
            *(
                [f"rename instance {plan.instance.name} to {plan.name}"]
                if plan.name != plan.instance.name
                else []
            ),
            f"run the rename script of OS {plan.instance.os}",
        ]

    def exec(self, plan: RenamePlan) -> str:
        instance = plan.instance
        with UndoStack(self.log.warn) as undo:
            renamed_dirs = {
                old: new
                for old, new in plan.directories
                if self._rename_directory(instance, old, new, undo)
            }
            if plan.name != instance.name:
                self._record(plan, renamed_dirs)
            undo.commit()
        renamed = self.config.instance(instance.uuid)
        self._update_storage_info(renamed)
        self._run_rename_script(renamed, instance.name)
        return plan.name

    def _rename_directory(self, instance: Instance, old: str, new: str, undo: UndoStack) -> bool:
        """Rename a directory; return False if it keeps its name, because the node cannot do it.

        What has the new name may be of a former owner, or a disk that is detached.
        """
        answer = self.rpc.call(
            FILE_STORAGE_DIR_RENAME, instance.primary_node, old_path=old, new_path=new
        )
        if disk_work.is_of_directory(answer.failure):
            self.log.warn(
                f"directory {old} keeps its name on node {answer.node_name}: {why(answer.failure)}",
                hint="The disks work there as well.",
            )
            return False
        undo.add(f"directory {new}", self._rename_back, instance, new, old)
        if answer.failure is not None:
            raise errors.OpExecError(
                f"could not rename directory {old} on node {answer.node_name} to {new}:"
                f" {why(answer.failure)}"
            ) from answer.failure
        return True

    def _rename_back(self, instance: Instance, new: str, old: str) -> None:
        self.rpc.call(
            FILE_STORAGE_DIR_RENAME, instance.primary_node, old_path=new, new_path=old
        ).payload()

    def _record(self, plan: RenamePlan, renamed: Mapping[str, str]) -> None:
        with self.config.transaction() as change:
            present = change.data.instances[plan.instance.uuid]
            change.instances.update(dataclasses.replace(present, name=plan.name), self.ctx.ec_id)
            for disk in self.config.instance_disks(present):
                for old in disk_work.storage_dirs([disk]):
                    if old in renamed:
                        change.disks.update(renamed_disk(disk, old, renamed[old]))

    def _update_storage_info(self, instance: Instance) -> None:
        """Write the new name into the tags of the volumes, for the administrator only."""
        disks = self.config.instance_disks(instance)
        parts = disk_work.by_node(disks, instance.primary_node)
        answers = call_for_disks(
            self.rpc,
            BLOCKDEV_SETINFO_MULTI,
            parts,
            instance,
            info=disk_work.info_text(instance),
        )
        for uuid, some in parts.items():
            for disk, answer in zip(some, answers[uuid], strict=True):
                if answer.failure is not None:
                    self.log.warn(
                        f"the new name was not written into the tags of disk {disks.index(disk)}"
                        f" on node {answer.node_name}: {why(answer.failure)}"
                    )

    def _run_rename_script(self, instance: Instance, old_name: str) -> None:
        """Let the script of the OS definition change the name inside the instance."""
        if not instance.disks:
            return
        try:
            disk_work.assemble_disks(self.ctx, instance)
            answer = self.rpc.call(
                INSTANCE_RUN_RENAME,
                instance.primary_node,
                instance=instance,
                old_name=old_name,
                debug_level=self.op.debug_level or 0,
            )
            if answer.failure is not None:
                self.log.warn(
                    f"the rename script of OS {instance.os} failed on node {answer.node_name}:"
                    f" {why(answer.failure)}",
                    hint="The instance is renamed in the cluster. Change its name inside by hand.",
                )
        except errors.OpExecError as err:
            self.log.warn(f"the rename script of OS {instance.os} could not run: {err}")
        finally:
            if not instance.disks_active:
                disk_work.shutdown_disks(self.config, self.rpc, instance)
