"""Copy an instance: a new one with the parameters and the content of a stopped one, or a snapshot.

The copy is created like any instance (:mod:`ganeti.cmdlib.ops.creation.unit`), but in place of an
installation its disks get the content of the source. Like an import from another cluster, it is
marked as unfinished meanwhile: when the master dies, the watcher removes it.
"""

from __future__ import annotations

from ganeti import errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import executes
from ganeti.cmdlib.ops.creation import from_copy
from ganeti.cmdlib.ops.creation.plan import CreatePlan
from ganeti.cmdlib.ops.creation.unit import CreationUnit
from ganeti.cmdlib.ops.disks import specs, wipe
from ganeti.cmdlib.ops.transfer import copy_source, disk_copy
from ganeti.cmdlib.ops.transfer.copy_source import CopySource
from ganeti.locking import Level
from ganeti.objects import Instance
from ganeti.opcodes.instance import OpInstanceCopy, OpInstanceCreate


@executes(OpInstanceCopy)
class LUInstanceCopy(CreationUnit):
    """Make a new instance with the parameters and the content of another one.

    From :meth:`expand_names` on, ``op`` is the creation of the copy.
    """

    source: Instance

    @property
    def request(self) -> OpInstanceCopy:
        """The opcode of the job."""
        assert isinstance(self.asked, OpInstanceCopy)
        return self.asked

    def expand_names(self) -> None:
        request = self.request
        disk_copy.require_compression(self.config, request.compress)
        self.source = self.lock_instance(request.instance_name, request.instance_uuid)
        prereq.require_not_forthcoming(self.source, "copy")
        self.op = from_copy.creation(self.config, request, self.source)
        super().expand_names()

    def _completed_op(self) -> OpInstanceCreate:
        self.imported = CopySource(self.source)
        return self.op

    def declare_locks(self, level: Level) -> None:
        super().declare_locks(level)
        if level is Level.NODE:
            # The lock of the instance is held, so its nodes do not change any more.
            nodes = self.config.instance_nodes(self.config.instance(self.source.uuid))
            self.read_nodes = frozenset(nodes)
            self.need(level, nodes, shared=True)

    # -- check -----------------------------------------------------------------

    def check_prereq(self) -> CreatePlan:
        self.source, self.instance = self.config.instance(self.source.uuid), None
        self._require_unchanged()
        for index, disk in enumerate(self.config.instance_disks(self.source)):
            wipe.require_finished(self.source, index, disk)
        prereq.require_whole_disks(self.config, self.source)
        name = self.request.snapshot_name
        found = (
            copy_source.of_snapshot(self.ctx, self.source, name)
            if name
            else copy_source.stopped(self.ctx, self.source)
        )
        for node, _disk in found.disks:
            prereq.require_online(node)
        self.imported = found
        disks = [
            specs.resized(disk, read.size)
            for disk, (_node, read) in zip(
                self.config.instance_disks(self.source), found.disks, strict=True
            )
        ]
        self.op = self.op.replace(
            disks=from_copy.disk_specs(self.config, self.request, self.template, disks)
        )
        from_copy.note_addresses(self.log, self.source, self.op)
        return super().check_prereq()

    def _require_unchanged(self) -> None:
        """Check that the parameters are still those which the locks were chosen for."""
        now = from_copy.creation(self.config, self.request, self.source)
        if now.to_dict() != self.op.to_dict():
            raise errors.OpPrereqError(
                f"instance {self.source.name} was changed while the job waited. Repeat the"
                " command.",
                errors.ECODE_STATE,
            )

    def steps(self, plan: CreatePlan) -> list[str]:
        nodes = ", ".join(node.name for node in plan.nodes)
        source, target = self.source.name, plan.node.name
        what = f"snapshot {self.request.snapshot_name} of " if self.request.snapshot_name else ""
        assert isinstance(self.imported, CopySource)
        return [
            f"add instance {self.name} to the configuration, with the parameters of {source}",
            *(
                f"make disk {index} ({plan.disk_template}, {spec['size']} MiB) on {nodes}"
                for index, spec in enumerate(plan.disk_specs)
            ),
            *(
                f"copy {what}disk {index} of {source} from {node.name} to {target}"
                for index, (node, _disk) in enumerate(self.imported.disks)
            ),
            *([f"start it on {target}"] if self.op.start else []),
        ]
