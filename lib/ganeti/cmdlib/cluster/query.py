"""Describing the cluster as a whole."""

from __future__ import annotations

from typing import Any

from ganeti.cmdlib.base import LogicalUnit, executes
from ganeti.opcodes.cluster import OpClusterQuery


@executes(OpClusterQuery)
class LUClusterQuery(LogicalUnit):
    """Describe the cluster."""

    op: OpClusterQuery

    def exec(self, plan: Any) -> dict[str, Any]:
        return self.ctx.queries.cluster_info(self.ctx.master)
