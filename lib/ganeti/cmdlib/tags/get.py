"""Reading the tags of one object."""

from __future__ import annotations

from typing import Any

from ganeti.cmdlib.base import LogicalUnit, executes
from ganeti.cmdlib.ops.tags import objects
from ganeti.opcodes.tags import OpTagsGet


@executes(OpTagsGet)
class LUTagsGet(LogicalUnit):
    """Answer the tags of an object."""

    op: OpTagsGet

    def expand_names(self) -> None:
        self.target = objects.find(self.config, self.op.kind, self.op.name)
        if self.op.use_locking:
            objects.lock(self, self.op.kind, self.target, shared=True)

    def check_prereq(self) -> Any:
        return objects.fresh(self.config, self.op.kind, self.target)

    def exec(self, plan: Any) -> list[str]:
        return sorted(plan.tags)
