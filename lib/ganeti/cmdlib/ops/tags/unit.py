"""The base class of the logical units which add and remove tags."""

from __future__ import annotations

from typing import TypeVar

from ganeti.cmdlib.base import LogicalUnit
from ganeti.cmdlib.ops.tags import objects
from ganeti.cmdlib.ops.tags.objects import Tagged
from ganeti.objects import Cluster
from ganeti.opcodes.tags import OpTagsDel, OpTagsSet

TagsOpT = TypeVar("TagsOpT", bound=OpTagsSet | OpTagsDel)


class TagsChangeUnit(LogicalUnit[TagsOpT, Tagged]):
    """Finds and locks the object."""

    def expand_names(self) -> None:
        self.target = objects.find(self.config, self.op.kind, self.op.name)
        objects.lock(self, self.op.kind, self.target, shared=False)

    def _name(self) -> str:
        if isinstance(self.target, Cluster):
            return self.op.kind
        return f"{self.op.kind} {self.target.name}"
