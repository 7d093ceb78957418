"""Storage units and logical volumes of nodes: list, change, repair."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ganeti import errors
from ganeti.cmdlib.base import LogicalUnit, executes, why
from ganeti.constants import disk as disk_c
from ganeti.objects import Disk, Node, snapshots
from ganeti.opcodes.node import (
    OpNodeModifyStorage,
    OpNodeQueryStorage,
    OpNodeQueryvols,
    OpRepairNodeStorage,
)
from ganeti.utils import text
from ganeti.wire.calls import (
    BLOCKDEV_FIND,
    NODE_VOLUMES,
    STORAGE_EXECUTE,
    STORAGE_LIST,
    STORAGE_MODIFY,
)

NODE, TYPE, NAME = "node", "type", "name"
STORAGE_FIELDS = ("allocatable", "free", NAME, NODE, "size", TYPE, "used")
VOLUME_FIELDS = ("instance", NAME, NODE, "phys", "size", "vg")
REPORTED_TYPES = (
    disk_c.ST_SHARED_FILE,
    disk_c.ST_FILE,
    disk_c.ST_LVM_PV,
    disk_c.ST_LVM_VG,
    disk_c.ST_GLUSTER,
)
FIX_CONSISTENCY = "fix-consistency"
MODIFIABLE = {disk_c.ST_LVM_PV: frozenset(("allocatable",))}
REPAIRABLE = (disk_c.ST_LVM_VG,)


def storage_arguments(unit: LogicalUnit, storage_type: str) -> list[Any]:
    """What a node needs to know about a kind of storage."""
    cluster = unit.config.cluster()
    directories = {
        disk_c.ST_FILE: cluster.file_storage_dir,
        disk_c.ST_SHARED_FILE: cluster.shared_file_storage_dir,
        disk_c.ST_GLUSTER: cluster.gluster_storage_dir,
    }
    if storage_type not in directories:
        return []
    directory = directories[storage_type]
    return [[directory] if directory else []]


class _QueryUnit(LogicalUnit):
    """What the two lists share: which fields, which nodes."""

    FIELDS: tuple[str, ...] = ()
    op: Any

    def expand_names(self) -> None:
        unknown = sorted(set(self.op.output_fields) - set(self.FIELDS))
        if unknown:
            raise errors.OpPrereqError(
                f"unknown fields {', '.join(unknown)}. There are: {', '.join(self.FIELDS)}.",
                errors.ECODE_INVAL,
            )
        names = list(self.op.nodes)
        nodes = [self.config.expand_node(n) for n in names] if names else self.config.nodes()
        self.node_uuids = [node.uuid for node in nodes]
        self.lock_nodes(self.node_uuids, shared=True)

    def _ask(self, call: Any, nodes: Sequence[Node], **args: Any) -> dict[str, Any]:
        """Answers of the nodes that gave one; the others are pointed out."""
        found = {}
        for uuid, answer in self.rpc.call_many(call, [n.uuid for n in nodes], **args).items():
            if answer.offline:
                continue
            if answer.failure is not None:
                self.warn(
                    f"node {answer.node_name} does not tell its storage: {why(answer.failure)}"
                )
                continue
            found[uuid] = answer.data
        return found


@executes(OpNodeQueryStorage)
class LUNodeQueryStorage(_QueryUnit):
    """List the storage units of one kind."""

    op: OpNodeQueryStorage
    FIELDS = STORAGE_FIELDS

    def check_prereq(self) -> str:
        wanted = self.op.storage_type
        if wanted is None:
            enabled = [
                disk_c.STORAGE_TYPE_OF[template]
                for template in self.config.cluster().enabled_disk_templates
            ]
            # The first that says something about nodes; disks may be on none of them.
            wanted = next((kind for kind in enabled if kind in REPORTED_TYPES), enabled[0])
        if wanted not in REPORTED_TYPES:
            raise errors.OpPrereqError(
                f"storage of type {wanted!r} cannot be listed. Choose one of"
                f" {', '.join(REPORTED_TYPES)} with --storage-type.",
                errors.ECODE_INVAL,
            )
        return wanted

    def exec(self, plan: str) -> list[list[Any]]:
        nodes = [self.config.node(uuid) for uuid in self.node_uuids]
        arguments = storage_arguments(self, plan)
        if arguments == [[]]:
            return []
        fields = [field for field in self.op.output_fields if field not in (NODE, TYPE)]
        asked = list(dict.fromkeys([NAME, *fields]))
        answers = self._ask(
            STORAGE_LIST, nodes, su_name=plan, su_args=arguments, name=self.op.name, fields=asked
        )
        rows = []
        for node in nodes:
            units = answers.get(node.uuid, [])
            if any(len(values) != len(asked) for values in units):
                self.warn(f"node {node.name}: expected {len(asked)} values for each storage unit")
                continue
            for values in sorted(units, key=lambda v: text.natural_key(v[0])):
                unit = {**dict(zip(asked, values, strict=True)), NODE: node.name, TYPE: plan}
                rows.append([unit[field] for field in self.op.output_fields])
        return rows


def volume_owners(unit: LogicalUnit) -> dict[tuple[str, str], str]:
    """(node uuid, "vg/lv") to the name of the instance whose disk it is."""
    owners = {}
    for instance in unit.config.instances():
        for disk in unit.config.instance_disks(instance):
            for node_uuid in unit.config.instance_nodes(instance):
                for volume in _volumes_of(disk):
                    owners[node_uuid, volume] = instance.name
    return owners


def _volumes_of(disk: Disk) -> list[str]:
    return [
        f"{device.logical_id[0]}/{device.logical_id[1]}"
        for device in disk.walk()
        if device.dev_type == disk_c.PLAIN
    ]


@executes(OpNodeQueryvols)
class LUNodeQueryvols(_QueryUnit):
    """List logical volumes, with the instances they belong to."""

    op: OpNodeQueryvols
    FIELDS = VOLUME_FIELDS

    def exec(self, plan: Any) -> list[list[Any]]:
        if not self.config.cluster().volume_group_name:
            # No node needs to have LVM.
            return []
        nodes = [self.config.node(uuid) for uuid in self.node_uuids]
        answers = self._ask(NODE_VOLUMES, nodes)
        owners = volume_owners(self)
        rows = []
        for node in nodes:
            found = sorted(answers.get(node.uuid, ()), key=lambda v: (v["dev"], v["vg"], v["name"]))
            for volume in found:
                full = f"{volume['vg']}/{volume['name']}"
                owner = owners.get((node.uuid, full))
                parts = snapshots.split(full)
                if owner is None and parts is not None:
                    # A snapshot belongs to whoever has the volume.
                    owner = owners.get((node.uuid, parts[0]))
                values = {
                    NODE: node.name,
                    "phys": volume["dev"],
                    "vg": volume["vg"],
                    NAME: volume["name"],
                    "size": volume["size"],
                    "instance": owner or "-",
                }
                rows.append([values[field] for field in self.op.output_fields])
        return rows


@executes(OpNodeModifyStorage)
class LUNodeModifyStorage(LogicalUnit):
    """Change a storage unit: open or close a physical volume for new volumes."""

    op: OpNodeModifyStorage

    def expand_names(self) -> None:
        op = self.op
        allowed = MODIFIABLE.get(op.storage_type)
        if allowed is None:
            raise errors.OpPrereqError(
                f"storage of type {op.storage_type!r} cannot be changed", errors.ECODE_INVAL
            )
        unknown = sorted(set(op.changes) - allowed)
        if unknown or not op.changes or not op.name:
            raise errors.OpPrereqError(
                f"of storage of type {op.storage_type!r} only {', '.join(sorted(allowed))} can be"
                f" changed, not {', '.join(unknown) or 'nothing'}",
                errors.ECODE_INVAL,
            )
        self.node = self.lock_node(op.node_name, op.node_uuid)

    def exec(self, plan: Any) -> None:
        op = self.op
        answer = self.rpc.call(
            STORAGE_MODIFY,
            self.node.uuid,
            su_name=op.storage_type,
            su_args=storage_arguments(self, op.storage_type),
            name=op.name,
            changes=dict(op.changes),
        )
        if answer.failure is not None:
            raise errors.OpExecError(
                f"storage unit {op.name} of node {self.node.name} was not changed:"
                f" {why(answer.failure)}"
            ) from answer.failure


@executes(OpRepairNodeStorage)
class LURepairNodeStorage(LogicalUnit):
    """Take lost devices out of a volume group."""

    op: OpRepairNodeStorage

    def expand_names(self) -> None:
        op = self.op
        if op.storage_type not in REPAIRABLE or not op.name:
            raise errors.OpPrereqError(
                f"storage of type {op.storage_type!r} cannot be repaired", errors.ECODE_INVAL
            )
        self.node = self.lock_node(op.node_name, op.node_uuid)

    def check_prereq(self) -> None:
        """Nobody's only good copy may be on this node."""
        primaries, secondaries = self.config.node_instances(self.node.uuid)
        for instance in (*primaries, *secondaries):
            if not instance.disks_active:
                continue
            for uuid in self.config.instance_nodes(instance):
                if uuid != self.node.uuid:
                    self._check_other_half(instance.uuid, uuid)

    def _check_other_half(self, instance_uuid: str, node_uuid: str) -> None:
        instance = self.config.instance(instance_uuid)
        for disk in self.config.instance_disks(instance):
            if disk.dev_type != disk_c.DRBD8:
                continue
            answer = self.rpc.call(BLOCKDEV_FIND, node_uuid, disk=(disk, instance))
            status = None if answer.failure is not None else answer.data
            if status is not None and status.ldisk_status != disk_c.LDS_FAULTY:
                continue
            problem = (
                f"disk {disk.iv_name} of instance {instance.name} is not in order on node"
                f" {self.config.node(node_uuid).name}"
            )
            if not self.op.ignore_consistency:
                raise errors.OpPrereqError(
                    f"{problem}. Use --ignore-consistency to repair all the same.",
                    errors.ECODE_STATE,
                )
            self.warn(problem)

    def exec(self, plan: Any) -> None:
        op = self.op
        self.feedback(f"Repairing storage unit {op.name} on node {self.node.name} ...")
        answer = self.rpc.call(
            STORAGE_EXECUTE,
            self.node.uuid,
            su_name=op.storage_type,
            su_args=storage_arguments(self, op.storage_type),
            name=op.name,
            op=FIX_CONSISTENCY,
        )
        if answer.failure is not None:
            raise errors.OpExecError(
                f"storage unit {op.name} of node {self.node.name} was not repaired:"
                f" {why(answer.failure)}"
            ) from answer.failure
