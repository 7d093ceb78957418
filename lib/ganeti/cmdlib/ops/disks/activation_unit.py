"""The base class of the logical units which activate and deactivate the disks of an instance."""

from __future__ import annotations

from typing import TypeVar

from ganeti.cmdlib.base import LogicalUnit
from ganeti.locking import Level
from ganeti.objects import Instance
from ganeti.opcodes.instance import OpInstanceActivateDisks, OpInstanceDeactivateDisks

ActivationOpT = TypeVar("ActivationOpT", bound=OpInstanceActivateDisks | OpInstanceDeactivateDisks)


class DiskActivationUnit(LogicalUnit[ActivationOpT, Instance]):
    """Locks one instance and the nodes of its disks."""

    def expand_names(self) -> None:
        self.lock_instance(self.op.instance_name, self.op.instance_uuid)

    def declare_locks(self, level: Level) -> None:
        self.need_instance_nodes(level)
