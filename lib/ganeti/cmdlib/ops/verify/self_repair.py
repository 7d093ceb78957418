"""LVM self-repair: removing a lost physical volume from its volume group without an administrator.

Self-repair is off by default; the tag :data:`TAG` on the cluster or on a node group turns it on.
When the disks of a group are verified (the watcher submits that job every few minutes), the nodes
are also asked whether their volume groups are complete. A repair starts only when all volume groups
were complete at the last verification and exactly one node has an incomplete one now (Ganeti design
2.0, *LVM self-repair*; :func:`decide`). An administrator has to act when several nodes lost disks
at once (a cable, a switch, a bad update), when the volume group was incomplete before, or when it
was never found complete. When a node cannot be asked, nothing is decided.

The repair itself is a job, ``OP_REPAIR_NODE_STORAGE``, which takes the locks it needs and refuses
while the other replica of a disk is bad. It is not submitted when the lost physical volume holds
anything but replicas of DRBD disks, because that may be the only copy of the data. For monitoring,
each repair writes one line which begins with :data:`LOG_MARK` to the log of the master daemon. The
disks of the instances have to be replaced afterwards.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from ganeti import errors
from ganeti.cmdlib.base import LuContext, why
from ganeti.cmdlib.ops.verify.storage import lost_volumes
from ganeti.constants import disk as disk_c
from ganeti.constants import node_verify as nv
from ganeti.objects.storage_units import volume_groups
from ganeti.opcodes.node import OpRepairNodeStorage
from ganeti.platform import paths
from ganeti.utils import fs
from ganeti.utils.filelock import FileLock
from ganeti.utils.text import comma_join
from ganeti.wire import json
from ganeti.wire.calls import NODE_VERIFY

if TYPE_CHECKING:
    from ganeti.config import Config
    from ganeti.objects import Node, NodeGroup
    from ganeti.rpc import RpcRunner

#: This tag on the cluster or on a node group turns self-repair on.
TAG = "ganeti:lvm:self-repair"
#: First word of the log line about a repair.
LOG_MARK = "lvm-self-repair"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Decision:
    """What to store and to repair after a verification.

    :ivar complete: whether all volume groups are complete, to be stored; None keeps the stored
        state.
    :ivar repair: UUID of the node to repair; None for no node.
    """

    complete: bool | None
    repair: str | None = None


def decide(
    before: bool | None, lacking: Collection[str], unresponsive: Collection[str]
) -> Decision:
    """Decide what to store and which node to repair.

    :param before: whether all volume groups were complete at the last verification; None at the
        first one.
    :param lacking: UUIDs of nodes with an incomplete volume group.
    :param unresponsive: names of nodes which could not be asked.

    Source: Ganeti design 2.0, *LVM self-repair*.
    """
    if unresponsive:
        return Decision(None)
    if not lacking:
        return Decision(None if before else True)
    if not before:
        return Decision(None if before is False else False)
    return Decision(False, next(iter(lacking)) if len(lacking) == 1 else None)


def is_enabled(config: Config, group: NodeGroup) -> bool:
    """Tell whether self-repair is on for a node group."""
    return TAG in group.tags or TAG in config.cluster().tags


def run(ctx: LuContext, group: NodeGroup, gone: Mapping[str, str] = MappingProxyType({})) -> None:
    """Check the volume groups of a node group, and submit a repair job if :func:`decide` says so.

    Incomplete volume groups are reported as warnings in the log of the job.

    :param gone: UUID of a node which has not answered a moment before -> why; it is not asked
        again.
    """
    data = ctx.config.snapshot()
    names = volume_groups(data.cluster, data.disks)
    nodes = [
        ctx.config.node(uuid)
        for uuid in sorted(
            node.uuid
            for node in ctx.config.nodes()
            if node.group == group.uuid
            and node.vm_capable
            and not node.offline
            and not node.is_left_alone()
        )
    ]
    if not names or not nodes:
        return
    lacks, unresponsive = _ask(
        ctx.config, ctx.rpc, [node for node in nodes if node.uuid not in gone], names
    )
    unresponsive |= {node.name: gone[node.uuid] for node in nodes if node.uuid in gone}
    path = paths.current().lvm_state_file
    with FileLock(paths.current().lvm_state_lock_file) as lock:
        lock.acquire()
        states = _read(path)
        before = states.get(group.uuid)
        decision = decide(before, lacks, unresponsive)
        if decision.complete is not None:
            states[group.uuid] = decision.complete
            fs.write_file(path, json.dumps(states) + "\n")
    for uuid, found in lacks.items():
        name = ctx.config.node(uuid).name
        for vg_name, volumes in found.items():
            ctx.log.warn(f"volume group {vg_name} of node {name} lacks physical volumes")
            if uuid == decision.repair:
                _repair(ctx, uuid, vg_name, volumes)
    if lacks and decision.repair is None:
        ctx.log.feedback(
            f"LVM self-repair of group {group.name} does not repair that:"
            f" {_reason(before, lacks, unresponsive)}"
        )


def _reason(before: bool | None, lacks: Collection[str], unresponsive: Mapping[str, str]) -> str:
    if unresponsive:
        return f"node {comma_join(sorted(unresponsive))} could not be asked"
    if before:
        return f"{len(lacks)} nodes lost disks at once"
    return "the group had incomplete volume groups before, or was not verified yet"


def _repair(ctx: LuContext, node_uuid: str, vg_name: str, volumes: Sequence[str]) -> None:
    node = ctx.config.node(node_uuid)
    alone = sorted(set(volumes) - _replica_volumes(ctx.config, node_uuid, vg_name))
    if alone:
        ctx.log.warn(
            f"volume group {vg_name} of node {node.name} is not repaired, because"
            f" {comma_join(alone)} belongs to no mirrored disk. Use 'gnt-node repair-storage"
            f" {node.name} lvm-vg {vg_name}' if its data is not needed."
        )
        return
    op = OpRepairNodeStorage(node_name=node.name, storage_type=disk_c.ST_LVM_VG, name=vg_name)
    ((status, answer),) = ctx.callbacks.submit_jobs([[op]])
    _log.warning(
        "%s node=%s group=%s volumes=%s job=%s",
        LOG_MARK,
        node.name,
        vg_name,
        ",".join(volumes) or "-",
        answer if status else "-",
    )
    if not status:
        ctx.log.warn(f"volume group {vg_name} of node {node.name} is not repaired: {answer}")
        return
    ctx.log.feedback(
        f"job {answer} removes the lost physical volumes from volume group {vg_name} of node"
        f" {node.name}; then replace the disks of its instances"
    )


def _replica_volumes(config: Config, node_uuid: str, vg_name: str) -> set[str]:
    """Logical volumes of a volume group on a node which are parts of DRBD disks."""
    found: set[str] = set()
    for disk in config.snapshot().disks.values():
        if not disk.has_replicas or node_uuid not in disk.all_node_uuids():
            continue
        volumes = [child.volume_id for child in disk.children]
        found.update(volume.name for volume in volumes if volume.group == vg_name)
    return found


def _ask(
    config: Config,
    rpc: RpcRunner,
    nodes: Sequence[Node],
    names: Sequence[str],
) -> tuple[dict[str, dict[str, list[str]]], dict[str, str]]:
    """Ask nodes whether their volume groups are complete.

    :returns: UUID of a node -> incomplete volume group -> its lost logical volumes; and name of a
        node -> why it could not be asked.
    """
    lacks: dict[str, dict[str, list[str]]] = {}
    unresponsive: dict[str, str] = {}
    answers = rpc.call_many(
        NODE_VERIFY,
        [node.uuid for node in nodes],
        checks={nv.PVLIST: list(names)},
        cluster_name=config.cluster().cluster_name,
        all_hvparams={},
    )
    for uuid, answer in answers.items():
        if answer.failure is not None:
            unresponsive[answer.node_name] = why(answer.failure)
            continue
        rows = answer.data.get(nv.PVLIST)
        if not isinstance(rows, list):
            unresponsive[answer.node_name] = str(rows)
        elif found := lost_volumes(rows):
            lacks[uuid] = found
    return lacks, unresponsive


def _read(path: str) -> dict[str, bool]:
    """Read the stored states: group UUID -> whether all volume groups were complete.

    An unreadable file is logged and counts as empty.
    """
    try:
        found = json.loads(fs.read_file(path))
    except FileNotFoundError:
        return {}
    except (OSError, errors.ParseError) as err:
        _log.error("cannot read %s: %s", path, err)
        return {}
    if not isinstance(found, dict):
        _log.error("%s does not hold the states of groups", path)
        return {}
    return {uuid: state for uuid, state in found.items() if isinstance(state, bool)}
