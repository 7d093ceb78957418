"""Describing the cluster as a whole."""

from __future__ import annotations

from typing import Any

from ganeti.cmdlib.base import LogicalUnit, executes
from ganeti.opcodes.cluster import OpClusterQuery


@executes(OpClusterQuery)
class LUClusterQuery(LogicalUnit[OpClusterQuery, None]):
    """Describe the cluster."""

    def exec(self, plan: None) -> dict[str, Any]:
        return self.ctx.queries.cluster_info()
