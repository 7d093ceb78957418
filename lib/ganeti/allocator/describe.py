"""Describing the cluster in the input of an allocator: pure functions of configuration and live
data.

The keys and their meaning are published (manual page **ganeti-iallocator**), because programs of
other projects read them. Sizes are in MiB.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from ganeti.constants import instance as instance_c
from ganeti.constants.net import NIC_MODE_BRIDGED, NIC_MODE_ROUTED, NIC_MODE_USER
from ganeti.objects import fill
from ganeti.utils.text import natural_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ganeti.allocator.live import LiveData, LiveNode
    from ganeti.objects import ConfigData, Disk, Instance, Nic, Node

#: Version of the request's format.
VERSION = 2


def cluster(config: ConfigData, live: LiveData) -> dict[str, Any]:
    """Make the input of an allocator without its key ``request``."""
    own = config.cluster
    placed: dict[str, list[Instance]] = {}
    for instance in config.instances.values():
        placed.setdefault(instance.primary_node, []).append(instance)
    return {
        "version": VERSION,
        "cluster_name": own.cluster_name,
        "cluster_tags": sorted(own.tags),
        "enabled_hypervisors": list(own.enabled_hypervisors),
        "ipolicy": own.ipolicy,
        "nodegroups": {
            group.uuid: {
                "name": group.name,
                "alloc_policy": group.alloc_policy,
                "networks": list(group.networks),
                "ipolicy": fill.fill_ipolicy(own.ipolicy, group.ipolicy),
                "tags": sorted(group.tags),
            }
            for group in sorted(config.nodegroups.values(), key=lambda g: natural_key(g.name))
        },
        "nodes": {
            node.name: node_dict(config, node, live, placed.get(node.uuid, ()))
            for node in sorted(config.nodes.values(), key=lambda n: natural_key(n.name))
        },
        "instances": {
            instance.name: instance_dict(config, instance)
            for instance in sorted(config.instances.values(), key=lambda i: natural_key(i.name))
            # A forthcoming instance may have no node yet; then it needs no capacity.
            if instance.primary_node in config.nodes
        },
    }


def node_dict(
    config: ConfigData, node: Node, live: LiveData, primaries: Collection[Instance]
) -> dict[str, Any]:
    """Describe a node; without capacities if it is offline, unresponsive or not vm_capable.

    :param primaries: the instances whose primary node it is.
    """
    found = live.nodes.get(node.uuid)
    numbers: dict[str, Any] = {} if found is None else _numbers(config, found, primaries)
    if found is not None:
        numbers["storage"] = [dict(unit) for unit in found.storage]
    return {
        **numbers,
        "tags": sorted(node.tags),
        "primary_ip": node.primary_ip,
        "secondary_ip": node.secondary_ip,
        # No instance may be placed on a node which does not answer.
        "offline": node.offline or node.name in live.unresponsive,
        "drained": node.drained,
        "master_candidate": node.master_candidate,
        "group": node.group,
        "master_capable": node.master_capable,
        "vm_capable": node.vm_capable,
        "ndparams": fill.fill_nd(config.cluster, config.nodegroups.get(node.group), node),
    }


def _numbers(config: ConfigData, live: LiveNode, primaries: Collection[Instance]) -> dict[str, int]:
    own = config.cluster
    assigned = up = 0
    free = live.memory_free_mib
    for instance in primaries:
        if instance.forthcoming:
            continue  # its memory is subtracted from the free memory already
        memory = fill.fill_be(own, instance.beparams)["maxmem"]
        assigned += memory
        if instance.admin_state == instance_c.ADMIN_UP:
            up += memory
        if instance.name in live.running:
            # A guest may grow up to its maximum at any time.
            free -= max(0, memory - live.running[instance.name])
    return {
        "total_memory": live.memory_total_mib,
        "reserved_memory": live.memory_reserved_mib,
        "free_memory": free,
        "total_disk": live.disk_total_mib,
        "free_disk": live.disk_free_mib,
        "total_spindles": live.spindles_total,
        "free_spindles": live.spindles_free,
        "total_cpus": live.cpus,
        "reserved_cpus": live.cpus_reserved,
        "i_pri_memory": assigned,
        "i_pri_up_memory": up,
    }


def instance_dict(config: ConfigData, instance: Instance) -> dict[str, Any]:
    """Describe an instance of the cluster."""
    backend = fill.fill_be(config.cluster, instance.beparams)
    disks = fill.instance_disks(config, instance)
    return {
        "tags": sorted(instance.tags),
        "admin_state": instance.admin_state,
        "vcpus": backend["vcpus"],
        "memory": backend["maxmem"],
        "spindle_use": backend["spindle_use"],
        "os": instance.os,
        "nodes": [config.nodes[uuid].name for uuid in node_uuids(config, instance)],
        "nics": [_present_nic(config, nic) for nic in instance.nics],
        "disks": [_present_disk(config, disk) for disk in disks],
        "disk_template": fill.disk_template(disks),
        "disks_active": instance.disks_active,
        "hypervisor": instance.hypervisor,
        "disk_space_total": space_mib(disks),
    }


def _present_nic(config: ConfigData, nic: Nic) -> dict[str, Any]:
    """Describe a NIC of an instance of the cluster.

    Only a NIC in a network has the key ``network``, which the original leaves out: a group without
    a connection to it is no choice for the instance.
    """
    described = nic_dict(nic.mac, nic.ip, fill.fill_nic(config.cluster, nic.nicparams))
    return described if nic.network is None else {**described, "network": nic.network}


def _present_disk(config: ConfigData, disk: Disk) -> dict[str, Any]:
    """Describe a disk of an instance of the cluster.

    Only a disk in another volume group than that of the cluster has the key ``vg``, which the
    original leaves out: it needs space there, wherever it moves.
    """
    described: dict[str, Any] = {
        "dev_type": disk.dev_type,
        "size": disk.size,
        "mode": disk.mode,
        "spindles": disk.spindles,
    }
    volume = disk.data_device
    if volume.is_volume and volume.logical_id:
        group = volume.volume_id.group
        if group and group != config.cluster.volume_group_name:
            described["vg"] = group
    return described


def node_uuids(config: ConfigData, instance: Instance) -> list[str]:
    """Return the UUIDs of the nodes of an instance, the primary node first."""
    disks = fill.instance_disks(config, instance)
    return [instance.primary_node, *fill.secondary_nodes(instance, disks)]


def nic_dict(mac: str | None, ip: str | None, filled: Mapping[str, Any]) -> dict[str, Any]:
    """Describe a NIC.

    :param filled: the parameters of the NIC with all defaults.
    """
    # Only this project has the mode of virtual clusters; other allocators refuse unknown modes.
    mode = NIC_MODE_ROUTED if filled["mode"] == NIC_MODE_USER else filled["mode"]
    described = {"mac": mac, "ip": ip, "mode": mode, "link": filled["link"]}
    if filled["mode"] == NIC_MODE_BRIDGED:
        described["bridge"] = filled["link"]
    return described


def space_mib(disks: Collection[Disk]) -> int:
    """Space (MiB) which existing disks take on each of their nodes."""
    return sum(disk.space_mib for disk in disks)
