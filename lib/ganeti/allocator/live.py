"""Collecting live data from the nodes: memory, processors, disk space and running guests.

One fan-out asks all nodes which are online and may run instances. A node that does not answer, or
whose answer lacks a fact, is no error: it is noted as unresponsive and described to the allocator
as offline, so that one broken machine does not prevent new instances on the others.

The memory and space of forthcoming instances is subtracted from the free memory and space of their
nodes. So allocators need not know of them: they look like stopped instances with existing disks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ganeti import errors
from ganeti.constants import disk as disk_c
from ganeti.objects import disk_templates, fill
from ganeti.objects import storage_units as units
from ganeti.rpc import Question
from ganeti.utils.text import natural_key
from ganeti.wire.calls import ALL_INSTANCES_INFO, NODE_INFO

if TYPE_CHECKING:
    from ganeti.objects import ConfigData, Node
    from ganeti.rpc import Result, RpcRunner

# Facts of a hypervisor in the answer of ``node_info``; all are whole numbers.
_FACTS = ("memory_total", "memory_free", "memory_dom0", "cpu_total", "cpu_dom0")


@dataclass(frozen=True, slots=True)
class LiveNode:
    """Live data of one node.

    :ivar running: name of each instance whose guest runs on the node -> its memory in MiB.
    :ivar storage: storage units, as the input of an allocator describes them.
    :ivar facts: what its hypervisor reported, by name.
    """

    memory_total_mib: int
    memory_free_mib: int
    memory_reserved_mib: int
    cpus: int
    cpus_reserved: int
    disk_total_mib: int = 0
    disk_free_mib: int = 0
    spindles_total: int = 0
    spindles_free: int = 0
    running: Mapping[str, int] = field(default_factory=dict)
    storage: Sequence[Mapping[str, Any]] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LiveData:
    """Live data of all nodes.

    :ivar nodes: UUID -> data of a node that answered.
    :ivar unresponsive: name -> why the node did not answer, or which fact its answer lacks.
    """

    nodes: Mapping[str, LiveNode]
    unresponsive: Mapping[str, str] = field(default_factory=dict)


def storage_template(config: ConfigData, wanted: str | None) -> str | None:
    """Choose the disk template whose storage counts as the disk space of a node.

    :param wanted: the template of the request, which is preferred; None without one.
    :returns: the first template whose disks take space on one node; None when there is none,
        because shared storage belongs to no node.
    """
    enabled = config.cluster.enabled_disk_templates
    for template in (wanted, *enabled):
        if template in disk_templates.LVM_BASED and config.cluster.volume_group_name:
            return template
        if template == disk_c.FILE and config.cluster.disk_directory(template):
            return template
    return None


def storage_units(config: ConfigData, node: Node, template: str | None) -> list[list[Any]]:
    """Make the query for the disk space of a node: ``[type, key, arguments]`` for each unit."""
    if template is None:
        return []
    cluster = config.cluster
    if template == disk_c.FILE:
        return [[disk_c.ST_FILE, cluster.disk_directory(template), []]]
    exclusive = _exclusive(config, node)
    volume_group = cluster.volume_group_name
    units: list[list[Any]] = [[disk_c.ST_LVM_VG, volume_group, [exclusive]]]
    if exclusive:
        # Spindles belong to single instances only with exclusive storage.
        units.append([disk_c.ST_LVM_PV, volume_group, [exclusive]])
    return units


def reserved_mib(config: ConfigData, template: str | None) -> tuple[dict[str, int], dict[str, int]]:
    """Sum up the capacity which is reserved for forthcoming instances.

    :param template: the template whose disks are counted, see :func:`storage_template`.
    :returns: UUID of a node -> memory in MiB, and UUID of a node -> disk space in MiB.
    """
    kinds = disk_templates.LVM_BASED if template in disk_templates.LVM_BASED else {template}
    memory: dict[str, int] = {}
    space: dict[str, int] = {}
    for instance in config.instances.values():
        if not instance.forthcoming:
            continue
        primary = instance.primary_node
        memory[primary] = (
            memory.get(primary, 0) + fill.fill_be(config.cluster, instance.beparams)["maxmem"]
        )
        for disk in fill.instance_disks(config, instance):
            for uuid in disk.nodes if disk.dev_type in kinds else ():
                space[uuid] = space.get(uuid, 0) + sum(
                    part.size for part in disk.children or (disk,)
                )
    return memory, space


def collect(
    rpc: RpcRunner,
    config: ConfigData,
    *,
    hypervisor: str | None,
    template: str | None,
    groups: Iterable[str] = (),
) -> LiveData:
    """Ask the nodes for live data.

    :param hypervisor: the hypervisor whose memory and processors count; None for the default one.
    :param template: the disk template of the request; None without one.
    :param groups: volume groups which the request names.
    """
    cluster = config.cluster
    hypervisor = hypervisor or cluster.primary_hypervisor
    nodes = [node for node in config.nodes.values() if node.vm_capable and not node.offline]
    nodes.sort(key=lambda node: natural_key(node.name))
    stored_on = storage_template(config, template)
    asked_groups = units.volume_groups(cluster, config.disks, groups)
    counted = {node.uuid: storage_units(config, node, stored_on) for node in nodes}
    all_units, asked = {}, {}
    for node in nodes:
        exclusive = _exclusive(config, node)
        all_units[node.uuid] = units.units(cluster, asked_groups, exclusive=exclusive)
        asked[node.uuid] = [
            *counted[node.uuid],
            *(
                unit
                for unit in units.questions(all_units[node.uuid], exclusive=exclusive)
                if unit not in counted[node.uuid]
            ),
        ]
    facts, guests = _ask(rpc, config, hypervisor, asked)
    memory, space = reserved_mib(config, stored_on)
    live: dict[str, LiveNode] = {}
    unresponsive: dict[str, str] = {}
    for node in nodes:
        running = guests.get(node.uuid)
        failure = facts[node.uuid].failure or (running and running.failure)
        if failure is not None:
            unresponsive[node.name] = str(failure)
            continue
        try:
            found = live_node(
                node.name,
                facts[node.uuid].data,
                running.data if running else {},
                len(counted[node.uuid]),
            )
        except errors.AllocatorError as err:
            # What one node answers does not prevent instances on the others.
            unresponsive[node.name] = str(err)
            continue
        storage = units.described(all_units[node.uuid], facts[node.uuid].data[1] or ())
        live[node.uuid] = replace(
            found,
            storage=storage,
            memory_free_mib=max(0, found.memory_free_mib - memory.get(node.uuid, 0)),
            disk_free_mib=max(0, found.disk_free_mib - space.get(node.uuid, 0)),
        )
    return LiveData(live, unresponsive)


def _ask(
    rpc: RpcRunner, config: ConfigData, hypervisor: str, asked: Mapping[str, list[Any]]
) -> tuple[dict[str, Result], dict[str, Result]]:
    """Ask the nodes for their facts and their guests, all at the same time.

    Only the guests of primary instances count, so other nodes are not asked for guests.

    :param asked: UUID of a node -> its storage units.
    :returns: UUID -> answer to ``node_info``, and to ``all_instances_info``.
    """
    cluster = config.cluster
    # Nodes with the same units and hypervisors share one call; few clusters have more than two
    # kinds of nodes.
    alike: dict[str, tuple[dict[str, Any], list[str]]] = {}
    for uuid, wanted in asked.items():
        present = fill.node_hypervisors(config, uuid)
        name = hypervisor if hypervisor in present else next(iter(present), hypervisor)
        specs = [[name, cluster.hvparams.get(name, {})]]
        arguments = {"hv_specs": specs, "storage_units": wanted}
        alike.setdefault(repr((name, wanted)), (arguments, []))[1].append(uuid)
    occupied = {one.primary_node for one in config.instances.values() if not one.forthcoming}
    kinds: dict[str, tuple[dict[str, Any], list[str]]] = {}
    for uuid, arguments in fill.hypervisor_arguments(
        config, [uuid for uuid in asked if uuid in occupied]
    ).items():
        kinds.setdefault(repr(arguments["hypervisors"]), (arguments, []))[1].append(uuid)
    answers = rpc.call_together(
        [
            *(Question(NODE_INFO, uuids, arguments) for arguments, uuids in alike.values()),
            *(
                # Without the guests of one hypervisor, the free memory of the node is not known.
                Question(ALL_INSTANCES_INFO, uuids, {**arguments, "apart": False})
                for arguments, uuids in kinds.values()
            ),
        ]
    )
    return _joined(answers[: len(alike)]), _joined(answers[len(alike) :])


def _joined(answers: Iterable[Mapping[str, Result]]) -> dict[str, Result]:
    return {uuid: answer for one in answers for uuid, answer in one.items()}


def _exclusive(config: ConfigData, node: Node) -> bool:
    group = config.nodegroups.get(node.group)
    return bool(fill.fill_nd(config.cluster, group, node).get("exclusive_storage", False))


def live_node(
    node_name: str, info: Any, guests: Mapping[str, Mapping[str, Any]], counted: int | None = None
) -> LiveNode:
    """Read the answers of one node.

    :param info: answer of ``node_info``: ``[boot id, storage units, facts of hypervisors]``.
    :param guests: answer of ``all_instances_info``.
    :param counted: number of the first storage units which count as disk space; None for all.
    :raises AllocatorError: a fact is missing or no number.
    """
    storage, hypervisors = (info[1] or [], info[2] or []) if len(info) == 3 else ([], [])
    facts = hypervisors[0] if hypervisors and isinstance(hypervisors[0], dict) else {}
    if "problem" in facts:
        raise errors.AllocatorError(
            f"the hypervisor of node {node_name} does not tell its state: {facts['problem']}"
        )
    memory_total, memory_free, memory_dom0, cpus, cpus_dom0 = (
        _number(node_name, name, facts.get(name)) for name in _FACTS
    )
    space = {"storage_size": 0, "storage_free": 0}
    spindles = dict(space)
    for unit in storage[:counted]:
        target = spindles if unit.get("type") == disk_c.ST_LVM_PV else space
        for name in target:
            # A directory which is created with the first instance has no size before.
            if unit.get(name) is not None:
                target[name] = _number(node_name, name, unit[name])
    running = {
        name: _number(node_name, f"memory of instance {name}", guest.get("memory"))
        for name, guest in guests.items()
    }
    return LiveNode(
        memory_total,
        memory_free,
        memory_dom0,
        cpus,
        cpus_dom0,
        disk_total_mib=space["storage_size"],
        disk_free_mib=space["storage_free"],
        spindles_total=spindles["storage_size"],
        spindles_free=spindles["storage_free"],
        running=running,
        facts=facts,
    )


def _number(node_name: str, what: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise errors.AllocatorError(
            f"node {node_name} did not report its {what.replace('_', ' ')}, it answered {value!r}"
        )
    return int(value)
