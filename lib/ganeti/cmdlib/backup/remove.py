"""Removing the exports of an instance from the nodes."""

from __future__ import annotations

from typing import Any

from ganeti import errors
from ganeti.cmdlib.base import LogicalUnit, executes
from ganeti.cmdlib.ops.transfer import exports
from ganeti.locking import Level
from ganeti.opcodes.backup import OpBackupRemove


@executes(OpBackupRemove)
class LUBackupRemove(LogicalUnit[OpBackupRemove, exports.Found]):
    """Remove the exports of an instance, which itself need not exist any more."""

    def expand_names(self) -> None:
        try:
            instance = self.config.expand_instance(self.op.instance_name)
        except errors.OpPrereqError:
            # Exports of removed instances are found by the full name only.
            self.name = self.op.instance_name
        else:
            if self.op.instance_uuid not in (None, instance.uuid):
                raise errors.OpPrereqError(
                    f"instance {instance.name} is not the one for which the job was submitted,"
                    " which had the same name. Look at it, and submit the job again.",
                    errors.ECODE_NOENT,
                )
            self.name = instance.name
            self.need(Level.INSTANCE, [instance.uuid])

    def check_prereq(self) -> exports.Found:
        found = exports.find(self.config, self.rpc, self.name)
        for name, problem in found.unresponsive.items():
            self.log.warn(f"node {name} did not report its exports: {problem}")
        if not found.identities:
            self.log.warn(
                f"there is no export of {self.name}. For the export of a removed instance use its"
                " full name."
            )
        return found

    def exec(self, plan: exports.Found) -> Any:
        exports.remove_unfinished(self.ctx, self.name, plan)
        failed = exports.remove(self.rpc, self.name, plan.identities)
        if failed:
            nodes = ", ".join(f"{name} ({problem})" for name, problem in failed.items())
            raise errors.OpExecError(f"exports of {self.name} were not removed from node {nodes}")
