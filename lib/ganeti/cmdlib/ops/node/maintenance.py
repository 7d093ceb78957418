"""The maintenance of a node: what leaves it, what is recorded, and what comes back.

The record (:class:`ganeti.objects.Maintenance`) is written before the first job is submitted, so
that the start and the end of a maintenance can be broken off at any moment and said again: both
look at the present state and submit jobs for what is still missing. The last job of each is
``OP_NODE_MAINTENANCE_CHECK``, which alone says that the node is ready, or that the maintenance has
ended.

Source: gnt-node(8), *maintenance*.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ganeti import errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import JobLog
from ganeti.constants import disk as disk_c
from ganeti.constants import job as job_c
from ganeti.objects import Instance, Maintenance, Node, disk_templates, updated
from ganeti.opcodes.base import OpCode
from ganeti.opcodes.instance import (
    OpInstanceActivateDisks,
    OpInstanceMigrate,
    OpInstanceReplaceDisks,
    OpInstanceStartup,
)
from ganeti.opcodes.node import OpNodeMaintenanceCheck, OpNodeSetParams

if TYPE_CHECKING:
    from ganeti.config import Config

_ANY_END = sorted(job_c.FINALIZED)


class Return(NamedTuple):
    """An instance which comes back to a node.

    :ivar steps: what its job does, in words.
    """

    instance: Instance
    steps: tuple[str, ...]
    opcodes: tuple[OpCode, ...]


def union(*parts: Iterable[str]) -> tuple[str, ...]:
    """Return all members in order, each once."""
    return tuple(dict.fromkeys(uuid for part in parts for uuid in part))


def names(config: Config, uuids: Iterable[str]) -> list[str]:
    """Return the names of those instances which still exist, sorted."""
    known = config.snapshot().instances
    return sorted(known[uuid].name for uuid in uuids if uuid in known)


def require_not_master(config: Config, node: Node) -> None:
    """Check that the node is not the master.

    :raises errors.OpPrereqError: it is; the text says what to do.
    """
    if node.uuid == config.master_node().uuid:
        raise errors.OpPrereqError(
            f"node {node.name} is the master. Run 'gnt-cluster master-failover' on another master"
            " candidate first, and then start the maintenance there. Nothing was moved.",
            errors.ECODE_STATE,
        )


def require_other_replicas(config: Config, node: Node, leaving: Iterable[str]) -> None:
    """Check that no instance needs the replica on the node, because its other one missed writes.

    :param leaving: UUIDs of the instances whose replicas leave the node.
    :raises errors.OpPrereqError: an instance needs it.
    """
    going = set(leaving)
    needed = [
        instance.name
        for instance in config.node_instances(node.uuid)[1]
        if instance.uuid not in going
        and any(
            disk.outdated_node == instance.primary_node for disk in config.instance_disks(instance)
        )
    ]
    if needed:
        raise errors.OpPrereqError(
            f"node {node.name} has the only complete replica of disks of {', '.join(needed)}."
            " 'gnt-instance info' shows the state of each replica; wait until they are in sync."
            " Nothing was moved.",
            errors.ECODE_STATE,
        )


def in_order(
    node: Node, flags: Sequence[OpCode], jobs: Sequence[Sequence[OpCode]]
) -> list[list[OpCode]]:
    """Put jobs in order: first the flags of the node, then all instances, then the check.

    The jobs of the instances run only after the flags were changed; the check runs in any case.

    :param flags: the opcodes which change the flags; empty if they are right.
    :param jobs: the jobs of the instances, which may depend on each other.
    """
    found: list[list[OpCode]] = [list(flags)] if flags else []
    for first, *rest in jobs:
        if flags:
            first = first.replace(depends=[*(first.depends or []), [-len(found), ["success"]]])
        found.append([first, *rest])
    check = OpNodeMaintenanceCheck(
        node_name=node.name,
        node_uuid=node.uuid,
        depends=[[-back, _ANY_END] for back in range(1, len(found) + 1)] or None,
    )
    return [*found, [check]]


def flags_before(node: Node, mark: Maintenance) -> list[OpCode]:
    """Make the opcode which gives a node the flags which it had before; empty if it has them."""
    if mark.drained:
        if not node.offline:
            return []
        return [OpNodeSetParams(node_name=node.name, drained=True)]
    if mark.master_candidate:
        if node.master_candidate:
            return []
        return [OpNodeSetParams(node_name=node.name, master_candidate=True)]
    if node.offline:
        return [OpNodeSetParams(node_name=node.name, offline=False)]
    if node.drained:
        return [OpNodeSetParams(node_name=node.name, drained=False)]
    return []


def left(config: Config, node: Node, mark: Maintenance) -> list[str]:
    """Return the names of the instances which should have left a node, and have not."""
    known = config.snapshot().instances
    moving = union(mark.primaries, mark.visitors)
    found = [uuid for uuid in moving if uuid in known and uuid not in mark.stopped]
    primaries = [uuid for uuid in found if known[uuid].primary_node == node.uuid]
    replicas = [
        uuid
        for uuid in union(mark.secondaries, mark.visiting_replicas)
        if uuid in known and node.uuid in config.instance_nodes(known[uuid])
    ]
    return names(config, union(primaries, replicas))


def recorded(
    config: Config, node: Node, mark: Maintenance, moving: Iterable[Instance], *, replicas: bool
) -> Maintenance:
    """Add instances which leave a node to its record.

    One which another node in maintenance gets back is a visitor, so that it also stays there when
    that maintenance ends first.

    :param replicas: mirrored disks leave the node with both the instance and its replica.
    """
    others = [
        other.maintenance
        for other in config.nodes()
        if other.uuid != node.uuid and other.maintenance is not None
    ]
    expected = {uuid for other in others for uuid in other.primaries}
    expected_replicas = {uuid for other in others for uuid in other.secondaries}
    primaries = [one.uuid for one in moving if one.primary_node == node.uuid]
    secondaries = [
        one.uuid
        for one in moving
        if replicas and config.disk_template(one) in disk_templates.INT_MIRRORED
    ]
    return updated(
        mark,
        primaries=union(mark.primaries, [one for one in primaries if one not in expected]),
        visitors=union(mark.visitors, [one for one in primaries if one in expected]),
        secondaries=union(
            mark.secondaries, [one for one in secondaries if one not in expected_replicas]
        ),
        visiting_replicas=union(
            mark.visiting_replicas, [one for one in secondaries if one in expected_replicas]
        ),
    )


def returns(config: Config, log: JobLog, node: Node, mark: Maintenance) -> list[Return]:
    """Find what is missing on a node which had it before its maintenance.

    An instance which was removed meanwhile, or whose disks cannot be moved any more, is left out,
    the latter with a warning.
    """
    known = config.snapshot().instances
    found: list[Return] = []
    for uuid in union(mark.primaries, mark.secondaries):
        instance = known.get(uuid)
        if instance is None or instance.forthcoming:
            continue
        template = config.disk_template(instance)
        nodes = config.instance_nodes(instance)
        as_primary = uuid in mark.primaries
        if nodes[0] == node.uuid or (node.uuid in nodes and not as_primary):
            continue
        if template in disk_templates.EXT_MIRRORED:
            if as_primary:
                found.append(_of(instance, [_migration(instance, node.name)]))
        elif template in disk_templates.INT_MIRRORED:
            found.append(_of(instance, _mirrored(instance, nodes, node, as_primary)))
        else:
            log.warn(
                f"instance {instance.name} stays on node {config.node(nodes[0]).name}, because its"
                f" disks ({template}) cannot be moved any more"
            )
    return found


def _mirrored(
    instance: Instance, nodes: Sequence[str], node: Node, as_primary: bool
) -> list[OpCode]:
    job: list[OpCode] = []
    if node.uuid not in nodes:
        job.append(
            OpInstanceReplaceDisks(
                instance_name=instance.name,
                mode=disk_c.REPLACE_NEW_SECONDARY,
                disks=[],
                remote_node=node.name,
            )
        )
    elif instance.disks_active:
        # The machine may have started again, so that its replicas are inactive and lack writes.
        job.append(OpInstanceActivateDisks(instance_name=instance.name, wait_for_sync=True))
    if as_primary:
        # With a target, the job of a second call does not send it away again.
        job.append(_migration(instance, node.name))
    return job


def _migration(instance: Instance, target: str) -> OpCode:
    # A stopped instance is failed over.
    return OpInstanceMigrate(
        instance_name=instance.name,
        target_node=target,
        allow_failover=True,
        allow_runtime_changes=True,
    )


_STEPS: dict[str, str] = {
    OpInstanceReplaceDisks.OP_ID: "make the replica on it again",
    OpInstanceActivateDisks.OP_ID: "activate its disks and wait until they are in sync",
    OpInstanceMigrate.OP_ID: "migrate it back",
    OpInstanceStartup.OP_ID: "start it",
}


def _of(instance: Instance, opcodes: Sequence[OpCode]) -> Return:
    return Return(instance, tuple(_STEPS[op.OP_ID] for op in opcodes), tuple(opcodes))


def starts(config: Config, node: Node, mark: Maintenance) -> list[Return]:
    """Find the instances which were stopped on a node for its maintenance, and should run.

    One which a user has shut down meanwhile is not among them.
    """
    known = config.snapshot().instances
    return [
        _of(known[uuid], [OpInstanceStartup(instance_name=known[uuid].name, wanted_only=True)])
        for uuid in mark.stopped
        if uuid in known
        and known[uuid].primary_node == node.uuid
        and known[uuid].admin_state == prereq.ADMIN_UP
    ]
