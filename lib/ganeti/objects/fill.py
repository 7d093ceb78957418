"""Inheritance of parameters: later owners in this table override earlier ones.

========== =======================================================================
hvparams   cluster, operating system (``os_hvp``), instance
beparams   cluster, instance
nicparams  cluster, NIC
osparams   cluster by OS, cluster by OS with variant, instance
ndparams   cluster, group, node
diskparams cluster, group, disk
ipolicy    cluster, group
========== =======================================================================

All functions are pure and return new dictionaries. The master fills in all parameters before it
calls a node, so nodes never need the defaults of the cluster.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ganeti import errors, ht
from ganeti.constants import disk as disk_c
from ganeti.constants import hv
from ganeti.objects import disk_templates
from ganeti.objects.disk import Disk
from ganeti.objects.instance import FilledInstance, FilledNic, Instance, Nic

if TYPE_CHECKING:
    from ganeti.objects.cluster import Cluster, ConfigData
    from ganeti.objects.node import Node, NodeGroup

_NOTHING: dict[str, Any] = {}


class Defaults(Protocol):
    """Whose parameters others inherit: the cluster, or what a program got of one."""

    @property
    def hvparams(self) -> Mapping[str, Any]: ...
    @property
    def os_hvp(self) -> Mapping[str, Any]: ...
    @property
    def osparams(self) -> Mapping[str, Any]: ...
    @property
    def osparams_private_cluster(self) -> Mapping[str, Any]: ...
    @property
    def nicparams(self) -> Mapping[str, Any]: ...


def fill_dict(
    defaults: Mapping[str, Any], custom: Mapping[str, Any] | None, skip: Collection[str] = ()
) -> dict[str, Any]:
    """Return ``defaults`` overridden by ``custom``, without the keys in ``skip``."""
    filled = {**defaults, **(custom or _NOTHING)}
    for key in skip:
        filled.pop(key, None)
    return filled


def fill_hv(
    cluster: Defaults,
    hypervisor: str,
    os_name: str | None = None,
    hvparams: Mapping[str, Any] | None = None,
    *,
    skip_globals: bool = False,
) -> dict[str, Any]:
    """Return the hypervisor parameters of instances with these.

    :param os_name: its operating system.
    :param hvparams: its own parameters.
    :param skip_globals: leave out parameters which only the cluster may set.
    """
    skip = hv.GLOBAL_PARAMS if skip_globals else frozenset()
    by_os = cluster.os_hvp.get(os_name, _NOTHING) if os_name is not None else _NOTHING
    return fill_dict(
        {**cluster.hvparams.get(hypervisor, _NOTHING), **by_os.get(hypervisor, _NOTHING)},
        hvparams,
        skip,
    )


def instance_hv(
    cluster: Cluster, instance: Instance, *, skip_globals: bool = False
) -> dict[str, Any]:
    """Return all hypervisor parameters of an instance."""
    return fill_hv(
        cluster, instance.hypervisor, instance.os, instance.hvparams, skip_globals=skip_globals
    )


def fill_be(cluster: Cluster, beparams: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the backend parameters of an instance."""
    return fill_dict(cluster.beparams.get("default", _NOTHING), beparams)


def fill_nic(cluster: Defaults, nicparams: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the parameters of a NIC."""
    return fill_dict(cluster.nicparams.get("default", _NOTHING), nicparams)


def fill_osparams(
    cluster: Defaults, os_name: str, osparams: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the public OS parameters: of the OS, then of its variant, then of the instance."""
    return _by_os(cluster.osparams, os_name, osparams)


def fill_osparams_private(
    cluster: Defaults, os_name: str, osparams: Mapping[str, Any] | None = None
) -> ht.PrivateDict:
    """Return the private OS parameters of an instance."""
    return ht.PrivateDict(_by_os(cluster.osparams_private_cluster, os_name, osparams))


def _by_os(
    table: Mapping[str, Any], os_name: str, custom: Mapping[str, Any] | None
) -> dict[str, Any]:
    base = os_name.split("+", 1)[0]
    filled = dict(table.get(base, _NOTHING))
    if os_name != base:
        filled.update(table.get(os_name, _NOTHING))
    filled.update(custom or _NOTHING)
    return filled


def fill_nd(
    cluster: Cluster,
    group: NodeGroup | None,
    node: Node | None = None,
) -> dict[str, Any]:
    """Return the node parameters of a node; without a node, those which its group defines."""
    filled = dict(cluster.ndparams)
    if group is not None:
        filled.update(group.ndparams)
    if node is not None:
        filled.update(node.ndparams)
    return filled


def group_hypervisors(cluster: Cluster, group: NodeGroup | None) -> tuple[str, ...]:
    """Return the hypervisors of the nodes of a group, the default one first.

    They are those of the cluster, in its order, of which the group has a choice. A group whose
    hypervisors were all disabled in the cluster has none.
    """
    if group is None or group.enabled_hypervisors is None:
        return cluster.enabled_hypervisors
    return tuple(name for name in cluster.enabled_hypervisors if name in group.enabled_hypervisors)


def node_hypervisors(config: ConfigData, node_uuid: str) -> tuple[str, ...]:
    """Return the hypervisors of a node: those of its group."""
    node = config.nodes.get(node_uuid)
    group = None if node is None else config.nodegroups.get(node.group)
    return group_hypervisors(config.cluster, group)


def default_hv_specs(config: ConfigData, node_uuid: str) -> list[list[Any]]:
    """Return the argument ``hv_specs`` of ``node_info`` for the default hypervisor of a node."""
    names = node_hypervisors(config, node_uuid)
    return [[name, config.cluster.hvparams.get(name, {})] for name in names[:1]]


def hypervisor_arguments(
    config: ConfigData, node_uuids: Iterable[str]
) -> dict[str, dict[str, Any]]:
    """Return the arguments ``hypervisors`` and ``hvparams`` of a node call, by UUID of the node.

    A node is asked only for the hypervisors which it has.
    """
    made: dict[tuple[str, ...], dict[str, Any]] = {}
    found = {}
    for uuid in node_uuids:
        names = node_hypervisors(config, uuid)
        if names not in made:
            made[names] = {
                "hypervisors": list(names),
                "hvparams": {name: config.cluster.hvparams.get(name, {}) for name in names},
            }
        found[uuid] = made[names]
    return found


def fill_hv_state(cluster: Cluster, group: NodeGroup | None, node: Node) -> dict[str, Any]:
    """Return the resources of a node which the administrator set, by hypervisor."""
    filled: dict[str, Any] = {}
    for owner in (cluster, group, node):
        for hypervisor, state in ((owner and owner.hv_state_static) or {}).items():
            filled[hypervisor] = {**filled.get(hypervisor, {}), **state}
    return filled


def fill_disk_state(cluster: Cluster, group: NodeGroup | None, node: Node) -> dict[str, Any]:
    """Return the storage of a node which the administrator set, by disk template and name."""
    filled: dict[str, Any] = {}
    for owner in (cluster, group, node):
        for template, named in ((owner and owner.disk_state_static) or {}).items():
            known = filled.setdefault(template, {})
            for name, state in named.items():
                known[name] = {**known.get(name, {}), **state}
    return filled


def connected_nics(nics: Sequence[Nic], group: NodeGroup) -> tuple[Nic, ...]:
    """Return NICs as they are in a node group.

    A NIC in a network which is connected to the group has the parameters of the connection.
    """
    return tuple(
        nic
        if nic.network is None or nic.network not in group.networks
        else dataclasses.replace(nic, nicparams=dict(group.networks[nic.network]))
        for nic in nics
    )


def fill_ipolicy(
    defaults: Mapping[str, Any],
    custom: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Return an instance policy. Values in ``std`` are inherited singly, other keys as a whole."""
    filled = fill_dict(defaults, custom)
    if custom and "std" in custom:
        filled["std"] = fill_dict(defaults.get("std", _NOTHING), custom["std"])
    return filled


def fill_diskparams(
    defaults: Mapping[str, Any],
    custom: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Return the parameters of each disk template."""
    custom = custom or _NOTHING
    return {
        template: fill_dict(
            fill_dict(disk_templates.defaults(template), defaults.get(template)),
            custom.get(template),
        )
        for template in sorted(disk_templates.ALL)
    }


def own_metavg(holder: Cluster | NodeGroup) -> str | None:
    """Return the volume group for metadata of DRBD which a cluster or a node group names itself."""
    found = (holder.diskparams.get(disk_c.DRBD8) or _NOTHING).get("metavg")
    return str(found) if found else None


def metavg(cluster: Cluster, group: NodeGroup) -> str | None:
    """Return the volume group for metadata of DRBD: of the node group, else of the cluster.

    None means the volume group of the data.
    """
    return own_metavg(group) or own_metavg(cluster)


# Parameter of the logical DRBD device -> parameter of the template.
_DRBD_DEVICE_PARAMS = {
    "resync-rate": "resync-rate",
    "disabled-barriers": "disk-barriers",
    "disable-meta-flush": "meta-barriers",
    "default-metavg": "metavg",
    "disk-custom": "disk-custom",
    "net-custom": "net-custom",
    "protocol": "protocol",
    "dynamic-resync": "dynamic-resync",
    "c-plan-ahead": "c-plan-ahead",
    "c-fill-target": "c-fill-target",
    "c-delay-target": "c-delay-target",
    "c-max-rate": "c-max-rate",
    "c-min-rate": "c-min-rate",
}


def annotated_disk(disk: Disk, diskparams: Mapping[str, Any]) -> Disk:
    """Return a disk for node calls: every device of the tree has all its parameters.

    :param diskparams: filled parameters of all templates in the node group of the disk.
    """
    wanted = diskparams.get(disk.dev_type, _NOTHING)
    if disk.dev_type == disk_c.DRBD8:
        own = {
            name: wanted[source] for name, source in _DRBD_DEVICE_PARAMS.items() if source in wanted
        }
        children = tuple(
            dataclasses.replace(
                child, params=fill_dict({"stripes": wanted.get(key, 1)}, child.params)
            )
            for child, key in zip(disk.children, ("data-stripes", "meta-stripes"), strict=False)
        )
        return dataclasses.replace(disk, params=fill_dict(own, disk.params), children=children)
    return dataclasses.replace(disk, params=fill_dict(wanted, disk.params))


def for_node(disk: Disk, node_uuid: str, config: ConfigData) -> Disk:
    """Return a disk with the parameters for one node: which replica of a mirrored disk is local,
    its place in ``logical_id`` (``node-id``: 0 or 1), and which one is known to have missed writes
    (``outdated``: ``local`` or ``remote``).

    A disk which has no replica on that node is returned unchanged.
    """
    children = tuple(for_node(child, node_uuid, config) for child in disk.children)
    # Most devices have nothing of their node, and copies of all of them take much time.
    changed = any(map(operator.is_not, children, disk.children))
    if not disk.has_replicas or node_uuid not in disk.all_node_uuids():
        return dataclasses.replace(disk, children=children) if changed else disk
    first, second, port, first_minor, second_minor, _secret = disk.drbd_id
    ours, theirs = (first, first_minor), (second, second_minor)
    if node_uuid == second:
        ours, theirs = theirs, ours
    found: dict[str, Any] = {"port": port, "local-minor": ours[1], "remote-minor": theirs[1]}
    found["node-id"] = int(node_uuid == second)
    for key, uuid in (("local-ip", ours[0]), ("remote-ip", theirs[0])):
        node = config.nodes.get(uuid)
        if node is None:
            raise errors.ConfigurationError(
                f"disk {disk.uuid}: node {uuid} is not in the configuration"
            )
        found[key] = node.secondary_ip
    if disk.outdated_node in (first, second):
        found["outdated"] = "local" if disk.outdated_node == ours[0] else "remote"
    return dataclasses.replace(disk, children=children, dynamic_params=found)


def disk_template(disks: Collection[Disk]) -> str:
    """Return the template of these disks: ``diskless`` for none, ``mixed`` if they differ."""
    kinds = {disk.dev_type for disk in disks}
    if not kinds:
        return disk_c.DISKLESS
    return kinds.pop() if len(kinds) == 1 else disk_c.MIXED


def instance_disks(config: ConfigData, instance: Instance) -> tuple[Disk, ...]:
    """Return the disks of an instance in order.

    :raises errors.ConfigurationError: the configuration lacks one of them.
    """
    try:
        return tuple(config.disks[uuid] for uuid in instance.disks)
    except KeyError as err:
        raise errors.ConfigurationError(
            f"instance {instance.name}: disk {err.args[0]} is not in the configuration"
        ) from err


def secondary_nodes(instance: Instance, disks: Collection[Disk]) -> tuple[str, ...]:
    """Return the UUIDs of the secondary nodes, each once, in the order of the disks."""
    return tuple(
        dict.fromkeys(
            uuid for disk in disks for uuid in disk.secondary_nodes(instance.primary_node)
        )
    )


def filled_instance(
    config: ConfigData,
    instance: Instance,
    *,
    hvparams: Mapping[str, Any] | None = None,
    beparams: Mapping[str, Any] | None = None,
    osparams: Mapping[str, Any] | None = None,
    osparams_private: Mapping[str, Any] | None = None,
    disks: Collection[Disk] | None = None,
) -> FilledInstance:
    """Return an instance for node calls. Parameters given here override those of the instance.

    :param disks: its disks, if they are not (or not yet) those of the configuration.
    :raises errors.ConfigurationError: a disk, node or network of the instance is not in the
        configuration.
    """
    cluster = config.cluster
    if disks is None:
        disks = instance_disks(config, instance)
    node = config.nodes.get(instance.primary_node)
    if node is None and (instance.primary_node or not instance.forthcoming):
        raise errors.ConfigurationError(
            f"instance {instance.name}: node {instance.primary_node} is not in the configuration"
        )
    group = None if node is None else config.nodegroups.get(node.group)
    diskparams = fill_diskparams(cluster.diskparams, group.diskparams if group else None)
    stored = {field.name: getattr(instance, field.name) for field in dataclasses.fields(Instance)}
    stored.update(
        hvparams=fill_dict(instance_hv(cluster, instance), hvparams),
        beparams=fill_dict(fill_be(cluster, instance.beparams), beparams),
        osparams=fill_dict(fill_osparams(cluster, instance.os, instance.osparams), osparams),
        osparams_private=ht.PrivateDict(
            fill_dict(
                fill_osparams_private(cluster, instance.os, instance.osparams_private),
                osparams_private,
            )
        ),
        nics=tuple(_filled_nic(config, instance, nic) for nic in instance.nics),
        # Of the configuration only; a node of the release before does not know it.
        pending_changes=None,
    )
    return FilledInstance(
        **stored,
        disk_template=disk_template(disks),
        disks_info=tuple(annotated_disk(disk, diskparams) for disk in disks),
        secondary_nodes=secondary_nodes(instance, disks),
    )


def _filled_nic(config: ConfigData, instance: Instance, nic: Any) -> FilledNic:
    netinfo = None
    if nic.network:
        netinfo = config.networks.get(nic.network)
        if netinfo is None:
            raise errors.ConfigurationError(
                f"instance {instance.name}: network {nic.network} is not in the configuration"
            )
    return FilledNic(
        mac=nic.mac,
        ip=nic.ip,
        ip6=nic.ip6,
        name=nic.name,
        network=nic.network,
        uuid=nic.uuid,
        nicparams=fill_nic(config.cluster, nic.nicparams),
        netinfo=netinfo,
        pci=getattr(nic, "pci", None),
        hvinfo=getattr(nic, "hvinfo", None),
    )
