"""Describing the fields of a type of object in a job."""

from __future__ import annotations

from ganeti.cmdlib.base import LogicalUnit, executes
from ganeti.opcodes.query import OpQueryFields
from ganeti.query.engine import FieldsAnswer


@executes(OpQueryFields)
class LUQueryFields(LogicalUnit[OpQueryFields, None]):
    """Describe the fields of a type of object. Result: that of the LUXI request."""

    def exec(self, plan: None) -> FieldsAnswer:
        return self.ctx.queries.query_fields(self.op.what, self.op.fields)
