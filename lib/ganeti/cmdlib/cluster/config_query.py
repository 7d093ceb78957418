"""Reading single values about the cluster."""

from __future__ import annotations

from typing import Any

from ganeti.cmdlib.base import LogicalUnit, executes
from ganeti.opcodes.cluster import OpClusterConfigQuery


@executes(OpClusterConfigQuery)
class LUClusterConfigQuery(LogicalUnit[OpClusterConfigQuery, None]):
    """Read single values about the cluster. Result: the values, in the order of the request."""

    def exec(self, plan: None) -> list[Any]:
        return self.ctx.queries.config_values(self.op.output_fields)
