"""Checks, hooks and messages of the operations on networks."""

from __future__ import annotations

import dataclasses
import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ganeti import errors
from ganeti.cmdlib.hooks import Hooks
from ganeti.constants.net import VALUE_NONE
from ganeti.objects.address_pool import Ipv6Range
from ganeti.objects.addresses import of_cluster, of_guests, same_form

if TYPE_CHECKING:
    from ganeti.cmdlib.base import JobLog
    from ganeti.config import Config
    from ganeti.objects import Network

_MAC_PREFIX = re.compile(r"^[0-9a-f]{2}(:[0-9a-f]{2}){2}$")


class NetworkHooks(Hooks):
    """Hooks of an operation on a network."""

    def __init__(self, directory: str) -> None:
        super().__init__(directory, "NETWORK")


def network_env(network: Network) -> dict[str, object]:
    """Hook variables of a network; empty ones are left out."""
    values = {
        "NETWORK_NAME": network.name,
        "NETWORK_SUBNET": network.network,
        "NETWORK_GATEWAY": network.gateway,
        "NETWORK_SUBNET6": network.network6,
        "NETWORK_GATEWAY6": network.gateway6,
        "NETWORK_MAC_PREFIX": network.mac_prefix,
        "NETWORK_TAGS": " ".join(sorted(network.tags)),
    }
    return {key: value for key, value in values.items() if value}


def master_only(config: Config) -> tuple[list[str], list[str]]:
    """Return the UUIDs of the nodes for both phases of hooks: the master only."""
    master = [config.master_node().uuid]
    return master, master


def warn_of_overlap(log: JobLog, network: Network, other: Network) -> None:
    """Write a warning to the job log if another network has addresses of a new one."""
    pairs = ((network.network, other.network), (network.network6, other.network6))
    for mine, theirs in pairs:
        if mine is None or theirs is None:
            continue
        if not ipaddress.ip_network(mine).overlaps(ipaddress.ip_network(theirs)):
            continue
        log.warn(
            f"network {network.name} ({mine}) has addresses of network {other.name} ({theirs}), so"
            " both may give one address to two guests",
            hint=f"If it is the same network, remove {network.name}, and connect {other.name} to"
            " other node groups with 'gnt-network connect'. Networks which cannot reach each other,"
            " such as different VLANs, may have the same addresses.",
        )


def mac_prefix(given: str | None, present: str | None = None) -> str | None:
    """Check the prefix of MAC addresses: three bytes, such as ``aa:00:01``.

    :param given: the prefix in the request; None keeps the present one, ``none`` removes it.
    :returns: the prefix in lower case with colons; None for no prefix.
    :raises errors.OpPrereqError: it is not a prefix, or one of multicast addresses.
    """
    if given is None:
        return present
    if given == VALUE_NONE:
        return None
    lowered = given.lower().replace("-", ":")
    if not _MAC_PREFIX.fullmatch(lowered) or int(lowered[:2], 16) & 1:
        raise errors.OpPrereqError(
            f"{given!r} is not a prefix of unicast MAC addresses like aa:00:01", errors.ECODE_INVAL
        )
    return lowered


def check_ipv6(network6: str | None, gateway6: str | None) -> None:
    """Check that the IPv6 gateway is in the IPv6 network, or is a link-local address.

    :raises errors.OpPrereqError: it is not, or there is no IPv6 network.
    """
    if gateway6 is None:
        return
    if network6 is None:
        raise errors.OpPrereqError(
            f"IPv6 gateway {gateway6} needs an IPv6 network", errors.ECODE_INVAL
        )
    gateway = ipaddress.IPv6Address(gateway6)
    if not gateway.is_link_local and gateway not in ipaddress.IPv6Interface(network6).network:
        raise errors.OpPrereqError(
            f"IPv6 gateway {gateway6} is not in network {network6}", errors.ECODE_INVAL
        )


def require_unused(
    config: Config, wanted: Iterable[str], owner: str, *, owner_uuid: str | None = None
) -> None:
    """Check that nobody else in the cluster has addresses which a node or the cluster will have.

    :param owner: who will have them, such as ``node node4``.
    :param owner_uuid: UUID of the node or the cluster which will have them, whose present addresses
        do not count; None for a new node.
    :raises errors.OpPrereqError: a node, the cluster, or an instance has one of them.
    """
    data = config.snapshot()
    addresses = {same_form(address) for address in wanted}
    taken = of_cluster(data, without=owner_uuid)
    for address in sorted(addresses & taken.keys()):
        raise errors.OpPrereqError(
            f"address {address} of {owner} is already in use by {taken[address]}",
            errors.ECODE_NOTUNIQUE,
        )
    for address, instance, place, network in of_guests(data, addresses):
        raise errors.OpPrereqError(
            f"address {address} of {owner} is already in use by instance {instance.name} (network"
            f" interface {place}"
            + (
                f" in network {network.name}). If this network has nothing in common with the"
                f" network of the nodes, use 'gnt-network modify"
                f" --conflicts-check=no {network.name}'. Otherwise give"
                if network is not None
                else "). Give"
            )
            + " the interface another address, with 'gnt-instance modify --net"
            f" {place}:modify,ip=...', or choose another one for {owner}.",
            errors.ECODE_NOTUNIQUE,
        )


def users(config: Config, network_uuid: str, group_uuid: str | None = None) -> list[str]:
    """Return the names of the instances which have a NIC in a network.

    :param group_uuid: only instances of this node group; None for all.
    """
    data = config.snapshot()
    nodes = {n.uuid for n in data.nodes.values() if group_uuid in (None, n.group)}
    return [
        instance.name
        for instance in config.instances()
        if any(nic.network == network_uuid for nic in instance.nics)
        and (group_uuid is None or instance.primary_node in nodes)
    ]


def listed(names: Sequence[str], most: int = 10) -> str:
    """Join names for a message; of more than ``most`` only the first are named."""
    text = ", ".join(names[:most])
    return f"{text} and {len(names) - most} more" if len(names) > most else text


def connection_env(connection: Mapping[str, Any] | None) -> dict[str, object]:
    """Hook variables of the connection of a network to a node group."""
    if not connection:
        return {}
    return {
        f"GROUP_NETWORK_{key.upper()}": connection.get(key, "") for key in ("mode", "link", "vlan")
    }


def reserved6(network: Network, blocks: Iterable[str]) -> Network:
    """Return a network in which these IPv6 addresses and ranges are reserved, and no others.

    :raises errors.AddressPoolError: one of them is not in its IPv6 range.
    """
    wanted = list(dict.fromkeys(blocks))
    if not wanted:
        return dataclasses.replace(network, ext_reservations6=None)
    pool = Ipv6Range(dataclasses.replace(network, ext_reservations6=None))
    found = {pool.block(text) for text in wanted}
    order = sorted(found, key=lambda text: ipaddress.IPv6Network(text))
    return dataclasses.replace(network, ext_reservations6=tuple(order))
