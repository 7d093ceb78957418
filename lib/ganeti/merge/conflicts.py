"""Compare the configurations of two clusters before they are merged.

What two objects of the clusters cannot have in common, such as the name of an instance, forbids the
merge. Parameters of the clusters which differ are listed apart: the administrator decides whether
they forbid it (``--parameter-conflicts``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ganeti.objects import Cluster, ConfigData
from ganeti.objects.network import Network

#: Values of ``--groups``.
MERGE, RENAME = "merge", "rename"
GROUPS = (MERGE, RENAME)
#: Values of ``--parameter-conflicts``.
STRICT, WARN = "strict", "warn"
PARAMETERS = (STRICT, WARN)

# Parameters of the cluster with one value. Those which are not here are facts about one cluster,
# such as its name, or are compared in another way.
_SINGLE = (
    "volume_group_name", "reserved_lvs", "drbd_usermode_helper", "file_storage_dir",
    "shared_file_storage_dir", "gluster_storage_dir", "enabled_hypervisors",
    "enabled_disk_templates", "uid_pool", "default_iallocator", "default_iallocator_params",
    "hidden_os", "blacklisted_os", "prealloc_wipe_disks", "ipolicy", "modify_etc_hosts",
    "modify_ssh_setup", "maintain_node_health", "install_image", "zeroing_image",
    "instance_communication_network", "compression_tools", "enabled_user_shutdown",
)  # fmt: skip
# Parameters with a dictionary for each owner, such as a hypervisor.
_BY_OWNER = ("hvparams", "beparams", "nicparams", "diskparams")
# The same, by operating system; one which only one of the clusters has is not a conflict.
_BY_OS = ("os_hvp", "osparams", "osparams_private_cluster")
_SECRET = frozenset(("osparams_private_cluster",))


def forbidden(own: ConfigData, other: ConfigData, *, groups: str | None = None) -> list[str]:
    """Return the reasons why two clusters cannot be merged, one line each.

    :param own: the configuration of the cluster that stays.
    :param groups: :data:`MERGE` or :data:`RENAME` for node groups with the same name; None when
        they forbid the merge.
    """
    return list(_forbidden(own, other, groups))


def _forbidden(own: ConfigData, other: ConfigData, groups: str | None) -> Iterator[str]:
    here, there = own.cluster, other.cluster
    if here.uuid == there.uuid:
        yield f"{there.cluster_name} is this cluster"
        return
    if own.version != other.version:
        yield (
            f"the configuration of {there.cluster_name} has version {other.version}, the one of"
            f" this cluster {own.version}. Install the same release on both"
        )
    if here.primary_ip_family != there.primary_ip_family:
        yield "one cluster has IPv4 addresses, the other one IPv6 addresses"
    if _has_secondary_network(own) != _has_secondary_network(other):
        yield "only one of the clusters has a secondary network"
    yield from _same_names("a node", own.nodes, other.nodes)
    yield from _same_names("an instance", own.instances, other.instances)
    if groups is None:
        for text in _same_names("a node group", own.nodegroups, other.nodegroups):
            yield f"{text}: choose with --groups=merge or --groups=rename"
    yield from _networks(own, other)
    yield from _uuids(own, other)
    yield from _addresses(own, other)
    for mac, names in _shared(_macs(own), _macs(other)):
        yield f"MAC address {mac} is used by instances {names[0]} and {names[1]}"
    yield from _unsupported(own, other)


def _has_secondary_network(data: ConfigData) -> bool:
    return any(node.primary_ip != node.secondary_ip for node in data.nodes.values())


def _same_names(what: str, own: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[str]:
    known = {obj.name for obj in own.values()}
    for obj in other.values():
        if obj.name in known:
            yield f"both clusters have {what} {obj.name}"


def same_network(one: Network, two: Network) -> bool:
    """Return whether two networks are defined alike, apart from the addresses which are taken."""
    return all(
        getattr(one, field) == getattr(two, field)
        for field in ("network", "network6", "gateway", "gateway6", "mac_prefix")
    )


def _networks(own: ConfigData, other: ConfigData) -> Iterator[str]:
    known = {network.name: network for network in own.networks.values()}
    for network in other.networks.values():
        before = known.get(network.name)
        if before is not None and not same_network(before, network):
            yield (
                f"both clusters have a network {network.name}, with different definitions"
                f" ({before.network} and {network.network})"
            )


def _uuids(own: ConfigData, other: ConfigData) -> Iterator[str]:
    for kind in ("nodes", "nodegroups", "instances", "networks", "disks"):
        for uuid in sorted(getattr(own, kind).keys() & getattr(other, kind).keys()):
            yield f"both clusters have UUID {uuid} among their {kind}"


def _addresses(own: ConfigData, other: ConfigData) -> Iterator[str]:
    def table(data: ConfigData) -> dict[str, str]:
        found = {data.cluster.master_ip: f"cluster {data.cluster.cluster_name}"}
        for node in data.nodes.values():
            found[node.primary_ip] = found[node.secondary_ip] = f"node {node.name}"
        return found

    for address, names in _shared(table(own), table(other)):
        yield f"address {address} is used by {names[0]} and {names[1]}"


def _macs(data: ConfigData) -> dict[str, str]:
    return {
        nic.mac.lower(): instance.name
        for instance in data.instances.values()
        for nic in instance.nics
    }


def _shared(
    own: Mapping[str, str], other: Mapping[str, str]
) -> Iterator[tuple[str, tuple[str, str]]]:
    for key in sorted(own.keys() & other.keys()):
        yield key, (own[key], other[key])


def _unsupported(own: ConfigData, other: ConfigData) -> Iterator[str]:
    """Yield what the other cluster has and the merged one could not have."""
    cluster = own.cluster
    missing = {one.hypervisor for one in other.instances.values()} - set(
        cluster.enabled_hypervisors
    )
    for name in sorted(missing):
        yield (
            f"instances of {other.cluster.cluster_name} need hypervisor {name}. Enable it with"
            " 'gnt-cluster modify --enabled-hypervisors'"
        )
    used = {disk.dev_type for disk in other.disks.values()}
    for name in sorted(used - set(cluster.enabled_disk_templates)):
        yield (
            f"disks of {other.cluster.cluster_name} have template {name}. Enable it with"
            " 'gnt-cluster modify --enabled-disk-templates'"
        )
    for instance in other.instances.values():
        if instance.importing_since is not None:
            yield f"instance {instance.name} is being imported"
    for node in other.nodes.values():
        if node.maintenance is not None:
            yield f"node {node.name} is in maintenance: end that with 'gnt-node maintenance end'"
    if other.documents:
        yield (
            f"{other.cluster.cluster_name} keeps documents of programs, such as the witness of"
            " another cluster: move them first"
        )
    if other.damaged:
        yield f"the configuration of {other.cluster.cluster_name} has damaged entries"


def differences(own: ConfigData, other: ConfigData, *, groups: str | None = None) -> list[str]:
    """Return the parameters which differ, one line each.

    :param groups: as for :func:`forbidden`; the parameters of groups with the same name are
        compared for :data:`MERGE`.
    """
    found = list(_cluster_differences(own.cluster, other.cluster))
    if groups == MERGE:
        known = {group.name: group for group in own.nodegroups.values()}
        for group in other.nodegroups.values():
            before = known.get(group.name)
            if before is None:
                continue
            for field in (
                "alloc_policy",
                "ipolicy",
                "ndparams",
                "diskparams",
                "enabled_hypervisors",
            ):
                if getattr(before, field) != getattr(group, field):
                    found.append(f"node group {group.name}: {field}")
    if other.filters:
        found.append("filter rules of jobs: those of the other cluster are not taken over")
    return found


def _cluster_differences(own: Cluster, other: Cluster) -> Iterator[str]:
    for name in _SINGLE:
        yield from _differs(name, getattr(own, name), getattr(other, name))
    for name in sorted({*own.ndparams, *other.ndparams}):
        yield from _differs(
            f"node parameter {name}", own.ndparams.get(name), other.ndparams.get(name)
        )
    for field in _BY_OWNER:
        mine, theirs = getattr(own, field), getattr(other, field)
        owners: Iterable[str] = mine.keys() & theirs.keys()
        if field == "hvparams":
            owners = set(owners) & set(own.enabled_hypervisors) & set(other.enabled_hypervisors)
        for owner in sorted(owners):
            for name in sorted({*mine[owner], *theirs[owner]}):
                yield from _differs(
                    f"{field}/{owner}/{name}", mine[owner].get(name), theirs[owner].get(name)
                )
    for field in _BY_OS:
        mine, theirs = getattr(own, field), getattr(other, field)
        for name in sorted(mine.keys() & theirs.keys()):
            if mine[name] != theirs[name]:
                text = f"{field}/{name}"
                yield f"{text} differs" if field in _SECRET else _line(text, mine, theirs, name)


def _line(text: str, mine: Mapping[str, Any], theirs: Mapping[str, Any], name: str) -> str:
    return f"{text}: {_show(mine[name])} here, {_show(theirs[name])} there"


def _differs(text: str, mine: Any, theirs: Any) -> Iterator[str]:
    if mine != theirs:
        yield f"{text}: {_show(mine)} here, {_show(theirs)} there"


def _show(value: Any) -> str:
    if isinstance(value, tuple | list):
        return ",".join(map(str, value)) or "none"
    return "none" if value is None or value == "" else str(value)
