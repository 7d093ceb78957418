"""Answering a query in a job."""

from __future__ import annotations

from ganeti.cmdlib.base import LogicalUnit, executes
from ganeti.opcodes.query import OpQuery
from ganeti.query.engine import QueryAnswer


@executes(OpQuery)
class LUQuery(LogicalUnit[OpQuery, None]):
    """Answer a query. Result: that of the LUXI request."""

    def exec(self, plan: None) -> QueryAnswer:
        return self.ctx.queries.query(
            self.ctx.master, self.op.what, self.op.fields, self.op.qfilter
        )
