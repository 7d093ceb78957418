"""List the snapshots of instances."""

from __future__ import annotations

from typing import TypedDict

from ganeti.cmdlib.base import LogicalUnit, executes, why
from ganeti.cmdlib.ops.disks import snapshots
from ganeti.cmdlib.ops.disks.sizes import rounded_up_mib
from ganeti.objects import Instance
from ganeti.opcodes.instance import OpInstanceSnapshotList


class SnapshotDetails(TypedDict):
    """One snapshot of one disk; the keys are published. ``size`` is in MiB."""

    instance: str
    snapshot: str
    disk: int
    disk_uuid: str
    node: str
    size: int
    ctime: float | None
    usable: bool


@executes(OpInstanceSnapshotList)
class LUInstanceSnapshotList(LogicalUnit[OpInstanceSnapshotList, list[Instance]]):
    """Ask the nodes for their snapshots, without locks."""

    def expand_names(self) -> None:
        self.wanted = [self.config.expand_instance(name) for name in self.op.instances] or list(
            self.config.instances()
        )

    def check_prereq(self) -> list[Instance]:
        return self.wanted

    def dry_run_result(self, plan: list[Instance]) -> list[SnapshotDetails]:
        return []

    def exec(self, plan: list[Instance]) -> list[SnapshotDetails]:
        kept, unresponsive = snapshots.collect(self.config, self.rpc, plan)
        for node_uuid, failure in unresponsive.items():
            self.log.warn(
                f"node {self.config.node(node_uuid).name} did not report its snapshots:"
                f" {why(failure)}"
            )
        return [
            {
                "instance": one.instance.name,
                "snapshot": one.found.name,
                "disk": one.index,
                "disk_uuid": one.disk.uuid,
                "node": self.config.node(one.node_uuid).name,
                "size": rounded_up_mib(one.found.size_bytes),
                "ctime": one.found.made,
                "usable": one.found.usable,
            }
            for one in kept
        ]
