"""Make one configuration of the configurations of two clusters.

Everything keeps its UUID. Ports which both clusters use get new numbers on the side of the other
cluster; minors of DRBD belong to one node each, so they never collide. Parameters of instances
whose defaults differ are written into the instances, so that these keep what they have.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ganeti import errors
from ganeti.config import verify
from ganeti.constants import net as net_c
from ganeti.constants.hv import GLOBAL_PARAMS
from ganeti.merge import conflicts
from ganeti.objects import Cluster, ConfigData, Disk, Instance, Node, NodeGroup, fill
from ganeti.objects.base import updated
from ganeti.objects.network import Network


class Merged(NamedTuple):
    """The result of a merge.

    :ivar data: the configuration.
    :ivar ports: instance of the other cluster -> its old and new port numbers, for those which
        change. Its disks or its console cannot go on with the old ones.
    :ivar groups: node group of the other cluster -> its name in the merged one, where it differs.
    :ivar kept: instance -> names of the parameters which were written into it.
    """

    data: ConfigData
    ports: dict[str, dict[int, int]]
    groups: dict[str, str]
    kept: dict[str, list[str]]


def combine(own: ConfigData, other: ConfigData, *, groups: str | None, now: float) -> Merged:
    """Return the configuration of the merged cluster.

    The nodes of the other cluster are marked offline: each is added again when it has the keys of
    this cluster.

    :param groups: what happens to node groups with the same name (:data:`conflicts.GROUPS`).
    :param now: the time in seconds since 1970.
    :raises ConfigurationError: the result would have contradictions which neither cluster has.
    """
    group_map, renamed, new_groups = _groups(own, other, groups)
    network_map, networks = _networks(own, other)
    cluster, port_map = _ports(own, other)
    cluster = _os_parameters(cluster, other.cluster)
    kept: dict[str, list[str]] = {}
    ports: dict[str, dict[int, int]] = {}
    instances = dict(own.instances)
    for uuid, instance in other.instances.items():
        new = _with_network(_keep_parameters(instance, cluster, other.cluster, kept), network_map)
        used = instance_ports(other, instance)
        changes = {port: port_map[port] for port in used if port in port_map}
        if changes:
            ports[instance.name] = changes
        if new.network_port in port_map:
            new = dataclasses.replace(new, network_port=port_map[new.network_port])
        instances[uuid] = new if new == instance else updated(new, now=now)
    disks = {uuid: _with_port(disk, port_map) for uuid, disk in other.disks.items()}
    nodegroups = {**own.nodegroups}
    for group in new_groups:
        connected = {network_map[key]: value for key, value in group.networks.items()}
        before = nodegroups.get(group.uuid)
        if before is not None:
            connected = {**connected, **before.networks}
            group = before
        nodegroups[group.uuid] = dataclasses.replace(group, networks=connected)
    nodes = {
        uuid: updated(
            _keep_ssh_port(node, ssh_port(other, node), cluster, nodegroups[group_map[node.group]]),
            now=now,
            group=group_map[node.group],
            offline=True,
            drained=False,
            master_candidate=False,
            auto_failover=None,
            watchdog=None,
            key_pins=None,
        )
        for uuid, node in other.nodes.items()
    }
    data = dataclasses.replace(
        own,
        cluster=updated(cluster, now=now),
        nodes={**own.nodes, **nodes},
        nodegroups=nodegroups,
        instances=instances,
        networks=networks,
        disks={**own.disks, **disks},
        serial_no=own.serial_no + 1,
        mtime=now,
    )
    known = {*verify.check(own), *verify.check(other)}
    new_problems = [text for text in verify.check(data) if text not in known]
    if new_problems:
        raise errors.ConfigurationError(
            f"the merged configuration would be wrong: {'; '.join(new_problems)}"
        )
    return Merged(data, ports, renamed, kept)


def ssh_port(data: ConfigData, node: Node) -> int:
    """Return the TCP port of a node's SSH server."""
    port: int = fill.fill_nd(data.cluster, data.nodegroups[node.group], node)["ssh_port"]
    return port


def _keep_ssh_port(node: Node, port: int, cluster: Cluster, group: NodeGroup) -> Node:
    """Return a node whose parameters in its new group name the port which its SSH server has."""
    if fill.fill_nd(cluster, group, node)["ssh_port"] == port:
        return node
    return dataclasses.replace(node, ndparams={**node.ndparams, "ssh_port": port})


def instance_ports(data: ConfigData, instance: Instance) -> set[int]:
    """Return the ports which an instance uses: of its console, and of its DRBD disks."""
    found = set() if instance.network_port is None else {instance.network_port}
    for uuid in instance.disks:
        if uuid in data.disks:
            found |= _disk_ports(data.disks[uuid])
    return found


def _disk_ports(disk: Disk) -> set[int]:
    return {device.drbd_id.port for device in disk.walk() if device.has_whole_drbd_id}


def _used_ports(data: ConfigData) -> set[int]:
    found = {one.network_port for one in data.instances.values() if one.network_port is not None}
    return found.union(*map(_disk_ports, data.disks.values()))


def _ports(own: ConfigData, other: ConfigData) -> tuple[Cluster, dict[int, int]]:
    """Join the pools of ports; return the cluster, and old -> new port of the other cluster.

    :raises ConfigurationError: there are not enough ports.
    """
    mine, theirs = _used_ports(own), _used_ports(other)
    used = mine | theirs
    highest = max(own.cluster.highest_used_port, other.cluster.highest_used_port)
    pool = sorted({*own.cluster.tcpudp_port_pool, *other.cluster.tcpudp_port_pool} - used)
    changes: dict[int, int] = {}
    for port in sorted(mine & theirs):
        if pool:
            changes[port] = pool.pop(0)
            continue
        highest += 1
        if highest > net_c.LAST_PORT:
            raise errors.ConfigurationError("there are not enough TCP ports for both clusters")
        changes[port] = highest
    cluster = dataclasses.replace(
        own.cluster, tcpudp_port_pool=tuple(pool), highest_used_port=highest
    )
    return cluster, changes


def _with_port(disk: Disk, changes: Mapping[int, int]) -> Disk:
    children = tuple(_with_port(child, changes) for child in disk.children)
    logical_id = disk.logical_id
    if disk.has_whole_drbd_id:
        mirror = disk.drbd_id
        logical_id = tuple(mirror._replace(port=changes.get(mirror.port, mirror.port)))
    return dataclasses.replace(disk, children=children, logical_id=logical_id)


def _groups(
    own: ConfigData, other: ConfigData, strategy: str | None
) -> tuple[dict[str, str], dict[str, str], list[NodeGroup]]:
    """Return UUID -> UUID of the groups, old -> new name, and the groups to be put in.

    A group which is merged into one of this cluster is among the last with the UUID of that one.
    """
    known = {group.name: group for group in own.nodegroups.values()}
    uuids, names, groups = {}, {}, []
    for group in other.nodegroups.values():
        uuids[group.uuid] = group.uuid
        if group.name in known and strategy == conflicts.MERGE:
            uuids[group.uuid] = known[group.name].uuid
            group = dataclasses.replace(group, uuid=known[group.name].uuid)
        elif group.name in known:
            names[group.name] = _free_name(f"{group.name}-{other.cluster.cluster_name}", known)
            group = dataclasses.replace(group, name=names[group.name])
        groups.append(group)
    return uuids, names, groups


def _free_name(wanted: str, known: Mapping[str, object]) -> str:
    name, number = wanted, 1
    while name in known:
        number += 1
        name = f"{wanted}-{number}"
    return name


def _networks(own: ConfigData, other: ConfigData) -> tuple[dict[str, str], dict[str, Network]]:
    """Return UUID -> UUID of the networks of the other cluster, and all networks."""
    known = {network.name: network for network in own.networks.values()}
    uuids, networks = {}, dict(own.networks)
    for network in other.networks.values():
        uuids[network.uuid] = network.uuid
        before = known.get(network.name)
        if before is None:
            networks[network.uuid] = network
            continue
        uuids[network.uuid] = before.uuid
        networks[before.uuid] = dataclasses.replace(
            before,
            reservations=_either(before.reservations, network.reservations),
            ext_reservations=_either(before.ext_reservations, network.ext_reservations),
            ext_reservations6=tuple(sorted({*before.reserved6, *network.reserved6})) or None,
        )
    return uuids, networks


def _either(one: str | None, two: str | None) -> str | None:
    if one is None or two is None:
        return one if two is None else two
    return "".join(max(pair) for pair in zip(one, two, strict=True))


def _with_network(instance: Instance, uuids: Mapping[str, str]) -> Instance:
    nics = tuple(
        nic if nic.network is None else dataclasses.replace(nic, network=uuids[nic.network])
        for nic in instance.nics
    )
    return dataclasses.replace(instance, nics=nics)


def _os_parameters(own: Cluster, other: Cluster) -> Cluster:
    """Take over the parameters of operating systems which this cluster does not know."""
    return dataclasses.replace(
        own,
        os_hvp={**other.os_hvp, **own.os_hvp},
        osparams={**other.osparams, **own.osparams},
        osparams_private_cluster=type(own.osparams_private_cluster)(
            {**other.osparams_private_cluster, **own.osparams_private_cluster}
        ),
    )


def _keep_parameters(
    instance: Instance, own: Cluster, other: Cluster, kept: dict[str, list[str]]
) -> Instance:
    """Write the parameters into an instance which it would inherit with other values."""
    names: list[str] = []

    def own_values(
        what: str, values: Mapping[str, Any], filled: Callable[[Cluster], Mapping[str, Any]]
    ) -> dict[str, Any]:
        after = filled(own)
        found = {
            name: value
            for name, value in filled(other).items()
            if name not in GLOBAL_PARAMS and (name not in after or after[name] != value)
        }
        names.extend(f"{what}/{name}" for name in sorted(found))
        return {**values, **found}

    hvparams = own_values(
        "hvparams", instance.hvparams, lambda cluster: fill.instance_hv(cluster, instance)
    )
    beparams = own_values(
        "beparams", instance.beparams, lambda cluster: fill.fill_be(cluster, instance.beparams)
    )
    osparams = own_values(
        "osparams",
        instance.osparams,
        lambda cluster: fill.fill_osparams(cluster, instance.os, instance.osparams),
    )
    private = own_values(
        "osparams_private",
        instance.osparams_private,
        lambda cluster: fill.fill_osparams_private(cluster, instance.os, instance.osparams_private),
    )
    nics = tuple(
        dataclasses.replace(
            nic,
            nicparams=own_values(
                f"nic {place}",
                nic.nicparams,
                functools.partial(fill.fill_nic, nicparams=nic.nicparams),
            ),
        )
        for place, nic in enumerate(instance.nics)
    )
    if names:
        kept[instance.name] = names
    return dataclasses.replace(
        instance,
        hvparams=hvparams,
        beparams=beparams,
        osparams=osparams,
        osparams_private=type(instance.osparams_private)(private),
        nics=nics,
    )
