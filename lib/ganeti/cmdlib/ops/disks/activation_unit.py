"""What activating and deactivating disks by hand have in common."""

from __future__ import annotations

from ganeti.cmdlib.base import LogicalUnit
from ganeti.locking import Level


class DiskActivationUnit(LogicalUnit):
    """Works on the disks of one instance, on all nodes which have them."""

    def expand_names(self) -> None:
        self.lock_instance(self.op.instance_name, self.op.instance_uuid)

    def declare_locks(self, level: Level) -> None:
        if level in (Level.NODE, Level.NODE_RES) and self.instance is not None:
            nodes = self.config.instance_nodes(self.instance)
            self.need(level, nodes, shared=level is Level.NODE)
