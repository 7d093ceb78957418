"""LVM self-repair: a volume group that lost a disk is freed from it, without waiting for a person.

Off by default; a cluster or a node group that wants it has the tag :data:`TAG`. Whenever the disks
of the group are verified (the watcher does that every few minutes), its nodes are also asked
whether their volume groups are complete. Seed 001 *LVM self-repair* says what follows, and
:func:`decide` says it again: only the step from "all complete" to "exactly one node lacks
something" is acted upon, and only once. What lacks a disk before anybody looked, what lacks one on
several nodes at a time (a cable, a switch, a bad update), or what did so at the last look already,
is left to people. A node that cannot be asked leaves everything open, so nothing happens then.

The repair itself is a job, ``OP_REPAIR_NODE_STORAGE``, which takes the locks it needs and refuses
while the other copy of a disk is not in order. It is not submitted when the lost disk holds
anything but halves of mirrored disks: throwing away a part of somebody's only copy is no repair.
Each repair leaves one line in the log of the master daemon that begins with :data:`LOG_MARK`, for
monitoring. The disks of the instances are still to be replaced.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ganeti import errors
from ganeti.cmdlib.base import why
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
    from ganeti.cmdlib.base import LogicalUnit
    from ganeti.objects import Node, NodeGroup

#: A cluster or node group with this tag repairs its volume groups.
TAG = "ganeti:lvm:self-repair"
#: First word of the line in the log.
LOG_MARK = "lvm-self-repair"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Decision:
    """What follows from a look.

    :ivar complete: the state to remember; None when it stays as it was.
    :ivar repair: node to repair, if any.
    """

    complete: bool | None
    repair: str | None = None


def decide(before: bool | None, lacking: Collection[str], silent: Collection[str]) -> Decision:
    """What to do, as the seed has it.

    :param before: whether all was complete at the last look; None when nobody looked yet.
    :param lacking: nodes with an incomplete volume group.
    :param silent: nodes which could not be asked.
    """
    if silent:
        return Decision(None)
    if not lacking:
        return Decision(None if before else True)
    if not before:
        return Decision(None if before is False else False)
    return Decision(False, next(iter(lacking)) if len(lacking) == 1 else None)


def wanted(unit: LogicalUnit, group: NodeGroup) -> bool:
    """Whether this group repairs its volume groups."""
    return TAG in group.tags or TAG in unit.config.cluster().tags


def run(unit: LogicalUnit, group: NodeGroup) -> None:
    """Look at the volume groups of a node group, and repair one of them if that is to be done."""
    data = unit.config.snapshot()
    names = volume_groups(data.cluster, data.disks.values())
    nodes = [
        unit.config.node(uuid)
        for uuid in sorted(
            node.uuid
            for node in unit.config.nodes()
            if node.group == group.uuid and node.vm_capable and not node.offline
        )
    ]
    if not names or not nodes:
        return
    lacks, silent = _ask(unit, nodes, names)
    path = paths.current().lvm_state_file
    with FileLock(paths.current().lvm_state_lock_file) as lock:
        lock.acquire()
        states = _read(path)
        before = states.get(group.uuid)
        decision = decide(before, lacks, silent)
        if decision.complete is not None:
            states[group.uuid] = decision.complete
            fs.write_file(path, json.dumps(states) + "\n")
    for uuid, found in lacks.items():
        name = unit.config.node(uuid).name
        for vg_name, volumes in found.items():
            unit.warn(f"volume group {vg_name} of node {name} lacks physical volumes")
            if uuid == decision.repair:
                _repair(unit, uuid, vg_name, volumes)
    if lacks and decision.repair is None:
        unit.feedback(
            f"LVM self-repair of group {group.name} leaves that to you:"
            f" {_reason(before, lacks, silent)}"
        )


def _reason(before: bool | None, lacks: Collection[str], silent: Mapping[str, str]) -> str:
    if silent:
        return f"node {comma_join(sorted(silent))} could not be asked"
    return f"{len(lacks)} nodes lost disks at once" if before else "it was so before"


def _repair(unit: LogicalUnit, node_uuid: str, vg_name: str, volumes: Sequence[str]) -> None:
    node = unit.config.node(node_uuid)
    alone = sorted(set(volumes) - _halves(unit, node_uuid, vg_name))
    if alone:
        unit.warn(
            f"volume group {vg_name} of node {node.name} is not repaired, because"
            f" {comma_join(alone)} belongs to no mirrored disk. Use 'gnt-node repair-storage"
            f" {node.name} lvm-vg {vg_name}' when it is not needed."
        )
        return
    op = OpRepairNodeStorage(node_name=node.name, storage_type=disk_c.ST_LVM_VG, name=vg_name)
    ((status, answer),) = unit.ctx.callbacks.submit_jobs([[op]])
    _log.warning(
        "%s node=%s group=%s volumes=%s job=%s",
        LOG_MARK,
        node.name,
        vg_name,
        ",".join(volumes) or "-",
        answer if status else "-",
    )
    if not status:
        unit.warn(f"volume group {vg_name} of node {node.name} is not repaired: {answer}")
        return
    unit.feedback(
        f"job {answer} takes the lost physical volumes out of volume group {vg_name} of node"
        f" {node.name}; then replace the disks of its instances"
    )


def _halves(unit: LogicalUnit, node_uuid: str, vg_name: str) -> set[str]:
    """Volumes of a group on a node which are parts of mirrored disks."""
    found: set[str] = set()
    for disk in unit.config.snapshot().disks.values():
        if disk.dev_type != disk_c.DRBD8 or node_uuid not in disk.all_node_uuids():
            continue
        found.update(
            str(child.logical_id[1]) for child in disk.children if child.logical_id[0] == vg_name
        )
    return found


def _ask(
    unit: LogicalUnit,
    nodes: Sequence[Node],
    names: Sequence[str],
) -> tuple[dict[str, dict[str, list[str]]], dict[str, str]]:
    """Node uuid -> what it lacks: volume group -> lost volumes; and node -> why it is silent."""
    lacks: dict[str, dict[str, list[str]]] = {}
    silent: dict[str, str] = {}
    answers = unit.rpc.call_many(
        NODE_VERIFY,
        [node.uuid for node in nodes],
        checks={nv.PVLIST: list(names)},
        cluster_name=unit.config.cluster().cluster_name,
        all_hvparams={},
    )
    for uuid, answer in answers.items():
        if answer.failure is not None:
            silent[answer.node_name] = why(answer.failure)
            continue
        rows = answer.data.get(nv.PVLIST)
        if not isinstance(rows, list):
            silent[answer.node_name] = str(rows)
        elif found := lost_volumes(rows):
            lacks[uuid] = found
    return lacks, silent


def _read(path: str) -> dict[str, bool]:
    """Group uuid -> whether all was complete; a file that is not readable says nothing."""
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
