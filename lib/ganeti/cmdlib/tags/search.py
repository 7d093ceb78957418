"""Finding objects by their tags."""

from __future__ import annotations

from ganeti import errors
from ganeti.cmdlib.base import LogicalUnit, executes
from ganeti.cmdlib.ops.tags import objects
from ganeti.opcodes.tags import OpTagsSearch
from ganeti.utils.effort import Effort
from ganeti.utils.linear_re import Budget, Pattern


@executes(OpTagsSearch)
class LUTagsSearch(LogicalUnit[OpTagsSearch, Pattern]):
    """Find tags by a regular expression. Result: pairs of the path of the object and the tag."""

    def check_prereq(self) -> Pattern:
        try:
            return Pattern(self.op.pattern, Budget(Effort()))
        except errors.ParameterError as err:
            raise errors.OpPrereqError(str(err), errors.ECODE_INVAL) from err

    def exec(self, plan: Pattern) -> list[tuple[str, str]]:
        return [
            (path, tag)
            for path, obj in objects.every_path(self.config)
            for tag in sorted(obj.tags)
            if plan.search(tag)
        ]
