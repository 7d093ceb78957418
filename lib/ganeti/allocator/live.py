"""What only the nodes know: memory, processors, disk space, and what really runs.

Two fan-outs ask all nodes which are online and may run instances. A node that does not answer is
no error here: it is remembered as silent and described as offline, so that one broken machine does
not keep the others from getting instances.

What forthcoming instances will need is taken off what the nodes have free: allocators need not know
of them, they look like stopped instances whose disks are there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ganeti import errors
from ganeti.constants import disk as disk_c
from ganeti.objects import fill
from ganeti.objects import storage_units as units
from ganeti.utils.text import natural_key
from ganeti.wire.calls import ALL_INSTANCES_INFO, NODE_INFO

if TYPE_CHECKING:
    from ganeti.objects import ConfigData, Node
    from ganeti.rpc import RpcRunner

# Facts of a hypervisor which a request needs, all of them whole numbers.
_FACTS = ("memory_total", "memory_free", "memory_dom0", "cpu_total", "cpu_dom0")


@dataclass(frozen=True, slots=True)
class LiveNode:
    """One node now: sizes in MiB; ``running`` is the memory of each instance that runs there."""

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


@dataclass(frozen=True, slots=True)
class LiveData:
    """All nodes that answered, by UUID; and why others did not, by name."""

    nodes: Mapping[str, LiveNode]
    silent: Mapping[str, str] = field(default_factory=dict)


def storage_template(config: ConfigData, wanted: str | None) -> str | None:
    """The disk template whose storage counts as the disk of a node; None when none does.

    That is the template asked for, else the first enabled one, among those whose disks use up
    space of their node. What several nodes share belongs to none of them.
    """
    enabled = config.cluster.enabled_disk_templates
    for template in (wanted, *enabled):
        if template in disk_c.LVM_BASED and config.cluster.volume_group_name:
            return template
        if template == disk_c.FILE and config.cluster.file_storage_dir:
            return template
    return None


def storage_units(config: ConfigData, node: Node, template: str | None) -> list[list[Any]]:
    """What to ask a node about its storage: ``[type, key, arguments]`` each."""
    if template is None:
        return []
    cluster = config.cluster
    if template == disk_c.FILE:
        return [[disk_c.ST_FILE, cluster.file_storage_dir, []]]
    exclusive = _exclusive(config, node)
    volume_group = cluster.volume_group_name
    units: list[list[Any]] = [[disk_c.ST_LVM_VG, volume_group, [exclusive]]]
    if exclusive:
        # Only then is a spindle something which one instance has for itself.
        units.append([disk_c.ST_LVM_PV, volume_group, [exclusive]])
    return units


def reserved_mib(config: ConfigData, template: str | None) -> tuple[dict[str, int], dict[str, int]]:
    """What forthcoming instances will take of each node, by UUID: memory, and disk.

    :param template: see :func:`storage_template`.
    """
    kinds = disk_c.LVM_BASED if template in disk_c.LVM_BASED else {template}
    memory: dict[str, int] = {}
    space: dict[str, int] = {}
    for instance in config.instances.values():
        if not instance.forthcoming:
            continue
        primary = instance.primary_node
        memory[primary] = memory.get(primary, 0) + config.cluster.fill_be(instance)["maxmem"]
        for disk in fill.instance_disks(config, instance):
            for uuid in disk.nodes if disk.dev_type in kinds else ():
                space[uuid] = space.get(uuid, 0) + sum(
                    part.size for part in disk.children or (disk,)
                )
    return memory, space


def collect(
    rpc: RpcRunner, config: ConfigData, *, hypervisor: str | None, template: str | None
) -> LiveData:
    """Ask the nodes.

    :param hypervisor: whose memory and processors count; the cluster's default one if None.
    :param template: the disk template of the request, if it is about one.
    :raises AllocatorError: a node answered, but not with what is needed; names it and the fact.
    """
    cluster = config.cluster
    hypervisor = hypervisor or cluster.primary_hypervisor
    nodes = [node for node in config.nodes.values() if node.vm_capable and not node.offline]
    nodes.sort(key=lambda node: natural_key(node.name))
    uuids = [node.uuid for node in nodes]
    stored_on = storage_template(config, template)
    groups = units.volume_groups(cluster, config.disks.values())
    counted = {node.uuid: storage_units(config, node, stored_on) for node in nodes}
    all_units, asked = {}, {}
    for node in nodes:
        exclusive = _exclusive(config, node)
        all_units[node.uuid] = units.units(cluster, groups, exclusive=exclusive)
        asked[node.uuid] = [
            *counted[node.uuid],
            *(
                unit
                for unit in units.questions(all_units[node.uuid], exclusive=exclusive)
                if unit not in counted[node.uuid]
            ),
        ]
    facts = rpc.call_many(
        NODE_INFO,
        uuids,
        hv_specs=[[hypervisor, cluster.hvparams.get(hypervisor, {})]],
        per_node={uuid: {"storage_units": asked[uuid]} for uuid in uuids},
    )
    guests = rpc.call_many(
        ALL_INSTANCES_INFO,
        uuids,
        hypervisors=list(cluster.enabled_hypervisors),
        hvparams={name: cluster.hvparams.get(name, {}) for name in cluster.enabled_hypervisors},
    )
    memory, space = reserved_mib(config, stored_on)
    live: dict[str, LiveNode] = {}
    silent: dict[str, str] = {}
    for node in nodes:
        failure = facts[node.uuid].failure or guests[node.uuid].failure
        if failure is not None:
            silent[node.name] = str(failure)
        else:
            found = live_node(
                node.name, facts[node.uuid].data, guests[node.uuid].data, len(counted[node.uuid])
            )
            storage = units.described(all_units[node.uuid], facts[node.uuid].data[1] or ())
            live[node.uuid] = replace(
                found,
                storage=storage,
                memory_free_mib=max(0, found.memory_free_mib - memory.get(node.uuid, 0)),
                disk_free_mib=max(0, found.disk_free_mib - space.get(node.uuid, 0)),
            )
    return LiveData(live, silent)


def _exclusive(config: ConfigData, node: Node) -> bool:
    group = config.nodegroups.get(node.group)
    return bool(fill.fill_nd(config.cluster, group, node).get("exclusive_storage", False))


def live_node(
    node_name: str, info: Any, guests: Mapping[str, Mapping[str, Any]], counted: int | None = None
) -> LiveNode:
    """The facts of one node.

    :param info: answer of ``node_info``: ``[boot id, storage units, facts of hypervisors]``.
    :param guests: answer of ``all_instances_info``.
    :param counted: so many of the first units stand for the disk of the node; None for all.
    :raises AllocatorError: a fact is missing or no number.
    """
    storage, hypervisors = (info[1] or [], info[2] or []) if len(info) == 3 else ([], [])
    facts = hypervisors[0] if hypervisors and isinstance(hypervisors[0], dict) else {}
    memory_total, memory_free, memory_dom0, cpus, cpus_dom0 = (
        _number(node_name, name, facts.get(name)) for name in _FACTS
    )
    space = {"storage_size": 0, "storage_free": 0}
    spindles = dict(space)
    for unit in storage[:counted]:
        target = spindles if unit.get("type") == disk_c.ST_LVM_PV else space
        for name in target:
            # A directory which comes into being with the first instance has no size yet.
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
    )


def _number(node_name: str, what: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise errors.AllocatorError(
            f"node {node_name} does not tell its {what.replace('_', ' ')}, it answered {value!r}"
        )
    return int(value)
