"""Adding tags."""

from __future__ import annotations

from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import executes
from ganeti.cmdlib.ops.tags import objects
from ganeti.cmdlib.ops.tags.objects import Tagged
from ganeti.cmdlib.ops.tags.unit import TagsChangeUnit
from ganeti.opcodes.tags import OpTagsSet


@executes(OpTagsSet)
class LUTagsSet(TagsChangeUnit[OpTagsSet]):
    """Add tags to an object; tags which it has already are not an error."""

    def check_prereq(self) -> Tagged:
        obj = objects.fresh(self.config, self.op.kind, self.target)
        prereq.require_tags(self.op.tags, obj.tags)
        return obj

    def exec(self, plan: Tagged) -> None:
        objects.change(self.config, self.op.kind, plan, add=self.op.tags)
