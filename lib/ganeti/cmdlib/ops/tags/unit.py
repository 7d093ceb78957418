"""What adding and removing tags have in common."""

from __future__ import annotations

from ganeti.cmdlib.base import LogicalUnit
from ganeti.cmdlib.ops.tags import objects
from ganeti.opcodes.tags import OpTagsDel, OpTagsSet


class TagsChangeUnit(LogicalUnit):
    """What both directions share."""

    op: OpTagsSet | OpTagsDel

    def expand_names(self) -> None:
        self.target = objects.find(self.config, self.op.kind, self.op.name)
        objects.lock(self, self.op.kind, self.target, shared=False)

    def _name(self) -> str:
        return self.op.kind if self.op.kind == "cluster" else f"{self.op.kind} {self.target.name}"
