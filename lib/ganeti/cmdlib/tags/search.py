"""Finding objects by their tags."""

from __future__ import annotations

import re

from ganeti import errors
from ganeti.cmdlib.base import LogicalUnit, executes
from ganeti.cmdlib.ops.tags import objects
from ganeti.opcodes.tags import OpTagsSearch


@executes(OpTagsSearch)
class LUTagsSearch(LogicalUnit[OpTagsSearch, re.Pattern[str]]):
    """Find tags by a regular expression. Result: pairs of the path of the object and the tag."""

    def check_prereq(self) -> re.Pattern[str]:
        try:
            return re.compile(self.op.pattern)
        except re.error as err:
            raise errors.OpPrereqError(
                f"{self.op.pattern!r} is not a regular expression: {err}", errors.ECODE_INVAL
            ) from err

    def exec(self, plan: re.Pattern[str]) -> list[tuple[str, str]]:
        return [
            (path, tag)
            for path, obj in objects.every_path(self.config)
            for tag in sorted(obj.tags)
            if plan.search(tag)
        ]
