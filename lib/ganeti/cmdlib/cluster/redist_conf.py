"""Copying everything that nodes have in common once more."""

from __future__ import annotations

from typing import Any

from ganeti.cmdlib.base import LogicalUnit, executes
from ganeti.cmdlib.cluster.files import distribute_files
from ganeti.locking import ALL, Level
from ganeti.objects import updated
from ganeti.opcodes.cluster import OpClusterRedistConf


@executes(OpClusterRedistConf)
class LUClusterRedistConf(LogicalUnit):
    """Write the configuration anew, which sends it to everybody, and copy the common files."""

    op: OpClusterRedistConf

    def expand_names(self) -> None:
        self.need(Level.NODE, ALL, shared=True)

    def exec(self, plan: Any) -> None:
        self.config.update_cluster(updated(self.config.cluster()))
        distribute_files(self)
