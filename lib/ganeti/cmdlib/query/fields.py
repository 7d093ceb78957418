"""Describing the fields of a type of object in a job."""

from __future__ import annotations

from typing import Any

from ganeti.cmdlib.base import LogicalUnit, executes
from ganeti.opcodes.query import OpQueryFields


@executes(OpQueryFields)
class LUQueryFields(LogicalUnit[OpQueryFields, None]):
    """Describe the fields of a type of object. Result: that of the LUXI request."""

    def exec(self, plan: None) -> dict[str, Any]:
        return self.ctx.queries.query_fields(self.op.what, self.op.fields)
