"""Removing the exports of an instance from the nodes."""

from __future__ import annotations

from typing import Any

from ganeti import errors
from ganeti.cmdlib.base import LogicalUnit, executes, why
from ganeti.cmdlib.ops.transfer.exports import nodes_with_export, remove_unfinished
from ganeti.locking import Level
from ganeti.opcodes.backup import OpBackupRemove
from ganeti.wire.calls import backup as calls


@executes(OpBackupRemove)
class LUBackupRemove(LogicalUnit[OpBackupRemove, list[str]]):
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
                    f"instance {instance.name} has uuid {instance.uuid}, not"
                    f" {self.op.instance_uuid}; the job was made for another instance of that name",
                    errors.ECODE_NOENT,
                )
            self.name = instance.name
            self.need(Level.INSTANCE, [instance.uuid])

    def check_prereq(self) -> list[str]:
        having, unresponsive = nodes_with_export(self.config, self.rpc, self.name)
        for name in unresponsive:
            self.log.warn(f"node {name} did not report its exports")
        if not having:
            self.log.warn(
                f"there is no export of {self.name}. For the export of a removed instance use its"
                " full name."
            )
        return having

    def exec(self, plan: list[str]) -> Any:
        remove_unfinished(self.ctx, self.name)
        failed = []
        for uuid in plan:
            answer = self.rpc.call(calls.EXPORT_REMOVE, uuid, export=self.name)
            if answer.failure is not None:
                failed.append(f"{answer.node_name} ({why(answer.failure)})")
        if failed:
            raise errors.OpExecError(
                f"exports of {self.name} were not removed from node {', '.join(failed)}"
            )
