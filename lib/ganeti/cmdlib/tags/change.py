"""Adding and removing tags."""

from __future__ import annotations

from typing import Any

from ganeti import errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import LogicalUnit, executes
from ganeti.cmdlib.tags import objects
from ganeti.opcodes.tags import OpTagsDel, OpTagsSet


class _LUTagsChange(LogicalUnit):
    """What both directions share."""

    op: OpTagsSet | OpTagsDel

    def expand_names(self) -> None:
        self.target = objects.find(self.config, self.op.kind, self.op.name)
        objects.lock(self, self.op.kind, self.target, shared=False)

    def _name(self) -> str:
        return self.op.kind if self.op.kind == "cluster" else f"{self.op.kind} {self.target.name}"


@executes(OpTagsSet)
class LUTagsSet(_LUTagsChange):
    """Add tags to an object; those it has already stay."""

    def check_prereq(self) -> Any:
        obj = objects.fresh(self.config, self.op.kind, self.target)
        prereq.require_tags(self.op.tags, obj.tags)
        return obj

    def exec(self, plan: Any) -> None:
        objects.change(self.config, self.op.kind, plan, add=self.op.tags)


@executes(OpTagsDel)
class LUTagsDel(_LUTagsChange):
    """Remove tags from an object, all or none."""

    def check_prereq(self) -> Any:
        obj = objects.fresh(self.config, self.op.kind, self.target)
        missing = sorted(set(self.op.tags) - set(obj.tags))
        if missing:
            raise errors.OpPrereqError(
                f"{self._name()} does not have the tags {', '.join(missing)}", errors.ECODE_NOENT
            )
        return obj

    def exec(self, plan: Any) -> None:
        objects.change(self.config, self.op.kind, plan, remove=self.op.tags)
