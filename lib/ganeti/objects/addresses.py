"""Who has an IP address, as the configuration says at this moment.

The pool of a network records which of its addresses instances have. Nothing records there which
addresses nodes and the cluster have: that changes with each node, so it is asked when an address is
chosen, and not copied. A network whose field ``isolated`` is set has nothing in common with the
network of the nodes: the same address is another one there.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterator

from ganeti.objects.cluster import ConfigData
from ganeti.objects.instance import Instance, Nic
from ganeti.objects.network import Network


def same_form(address: str) -> str:
    """Return an address in the form in which equal addresses are equal texts.

    A text which is not an address stays as it is.
    """
    if ":" not in address:
        return address
    try:
        return str(ipaddress.IPv6Address(address))
    except ValueError:
        return address


def own(nic: Nic) -> list[str]:
    """Return the addresses of a NIC, as :func:`same_form` returns them."""
    return [same_form(address) for address in (nic.ip, nic.ip6) if address is not None]


def of_cluster(data: ConfigData, *, without: str | None = None) -> dict[str, str]:
    """Return the addresses of the cluster and its nodes, each with its owner, for people.

    :param without: UUID of the node, or of the cluster, whose addresses are left out.
    """
    cluster = data.cluster
    found = {}
    if cluster.uuid != without:
        found[same_form(cluster.master_ip)] = f"the cluster {cluster.cluster_name}"
    for node in data.nodes.values():
        if node.uuid != without:
            for address in (node.secondary_ip, node.primary_ip):
                found[same_form(address)] = f"node {node.name}"
    return found


def shared_with_nodes(data: ConfigData, network_uuid: str | None) -> bool:
    """Tell whether an address of a NIC would be the same address as the one of a node.

    :param network_uuid: the network of the NIC; None for a NIC outside of networks.
    """
    network = None if network_uuid is None else data.networks.get(network_uuid)
    return network is None or not network.isolated


def of_guests(
    data: ConfigData, wanted: Collection[str]
) -> Iterator[tuple[str, Instance, int, Network | None]]:
    """Iterate over the NICs which have one of these addresses, outside of isolated networks.

    :param wanted: addresses as :func:`same_form` returns them.
    :returns: address, instance, number of the NIC and its network.
    """
    for instance in data.instances.values():
        for place, nic in enumerate(instance.nics):
            for address in own(nic):
                if address in wanted and shared_with_nodes(data, nic.network):
                    network = None if nic.network is None else data.networks.get(nic.network)
                    yield address, instance, place, network


def outside_network(data: ConfigData, network: Network) -> dict[str, str]:
    """Return the addresses of NICs which are in no network, but may share one with its NICs.

    They belong to instances in node groups to which the network is connected.

    :returns: each address with its owner, for people; none for an isolated network.
    """
    if network.isolated:
        return {}
    groups = {group.uuid for group in data.nodegroups.values() if network.uuid in group.networks}
    nodes = {node.uuid for node in data.nodes.values() if node.group in groups}
    return {
        same_form(nic.ip): f"instance {instance.name}"
        for instance in data.instances.values()
        if instance.primary_node in nodes
        for nic in instance.nics
        if nic.network is None and nic.ip is not None
    }
