"""Changing a storage unit of a node."""

from __future__ import annotations

from ganeti import errors
from ganeti.cmdlib.base import LogicalUnit, executes, why
from ganeti.cmdlib.ops.node.storage_query import storage_arguments
from ganeti.constants import disk as disk_c
from ganeti.opcodes.node import (
    OpNodeModifyStorage,
)
from ganeti.wire.calls import (
    STORAGE_MODIFY,
)

MODIFIABLE = {disk_c.ST_LVM_PV: frozenset(("allocatable",))}


@executes(OpNodeModifyStorage)
class LUNodeModifyStorage(LogicalUnit[OpNodeModifyStorage, None]):
    """Change a storage unit: allow or forbid new logical volumes on a physical volume."""

    def expand_names(self) -> None:
        op = self.op
        allowed = MODIFIABLE.get(op.storage_type)
        if allowed is None:
            raise errors.OpPrereqError(
                f"storage units of type {op.storage_type!r} cannot be changed",
                errors.ECODE_INVAL,
            )
        unknown = sorted(set(op.changes) - allowed)
        if unknown:
            raise errors.OpPrereqError(
                f"of storage units of type {op.storage_type!r} only {', '.join(sorted(allowed))}"
                f" can be changed, not {', '.join(unknown)}",
                errors.ECODE_INVAL,
            )
        if not op.name:
            raise errors.OpPrereqError("no storage unit is named", errors.ECODE_INVAL)
        self.node = self.lock_node(op.node_name, op.node_uuid)

    def exec(self, plan: None) -> None:
        op = self.op
        if not op.changes:
            self.log.info(f"no change of storage unit {op.name} is given")
            return
        answer = self.rpc.call(
            STORAGE_MODIFY,
            self.node.uuid,
            su_name=op.storage_type,
            su_args=storage_arguments(self.config, op.storage_type),
            name=op.name,
            changes=dict(op.changes),
        )
        if answer.failure is not None:
            raise errors.OpExecError(
                f"storage unit {op.name} of node {self.node.name} was not changed:"
                f" {why(answer.failure)}"
            ) from answer.failure
