"""Removing tags."""

from __future__ import annotations

from ganeti import errors
from ganeti.cmdlib.base import executes
from ganeti.cmdlib.ops.tags import objects
from ganeti.cmdlib.ops.tags.objects import Tagged
from ganeti.cmdlib.ops.tags.unit import TagsChangeUnit
from ganeti.opcodes.tags import OpTagsDel


@executes(OpTagsDel)
class LUTagsDel(TagsChangeUnit[OpTagsDel]):
    """Remove tags from an object; all of them or none."""

    def check_prereq(self) -> Tagged:
        obj = objects.fresh(self.config, self.op.kind, self.target)
        missing = sorted(set(self.op.tags) - set(obj.tags))
        if missing:
            raise errors.OpPrereqError(
                f"{self._name()} does not have the tags {', '.join(missing)}", errors.ECODE_NOENT
            )
        return obj

    def exec(self, plan: Tagged) -> None:
        objects.change(self.config, self.op.kind, plan, remove=self.op.tags)
