"""Reading the tags of an object."""

from __future__ import annotations

from ganeti.cmdlib.base import LogicalUnit, executes
from ganeti.cmdlib.ops.tags import objects
from ganeti.cmdlib.ops.tags.objects import Tagged
from ganeti.opcodes.tags import OpTagsGet


@executes(OpTagsGet)
class LUTagsGet(LogicalUnit[OpTagsGet, Tagged]):
    """Read the tags of an object. Result: the tags, sorted."""

    def expand_names(self) -> None:
        self.target = objects.find(self.config, self.op.kind, self.op.name)
        if self.op.use_locking:
            objects.lock(self, self.op.kind, self.target, shared=True)

    def check_prereq(self) -> Tagged:
        return objects.fresh(self.config, self.op.kind, self.target)

    def exec(self, plan: Tagged) -> list[str]:
        return sorted(plan.tags)
