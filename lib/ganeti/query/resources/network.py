"""Fields of networks and their address pools."""

from __future__ import annotations

import ipaddress
from typing import Any

from ganeti.constants import query as query_c
from ganeti.constants.query import KIND_NUMBER, KIND_OTHER, KIND_TEXT
from ganeti.objects import Network
from ganeti.objects.address_pool import AddressPool
from ganeti.query.field import Field, Resource, attribute, common_fields
from ganeti.query.view import View, by_name

_MAP = str.maketrans("01", ".X")


def _others(view: View, network: Network) -> str:
    """Return a ``0`` or ``1`` for each address: whether instances cannot get it from the pool.

    That is what the network has reserved, and the present addresses of nodes and the cluster.
    """
    if network.isolated or not network.ext_reservations:
        return network.ext_reservations or ""
    pool = AddressPool(network)
    inside = [address for address in view.cluster_addresses if address in pool]
    return pool.taken(inside, external=True).ext_reservations or ""


def _taken(view: View, network: Network) -> str:
    """Return a ``0`` or ``1`` for each address: whether it is in use or reserved."""
    own = network.reservations or ""
    others = _others(view, network)
    size = max(len(own), len(others))
    if not size:
        return ""
    # Computed with integers, because a network may have 65,536 addresses.
    both = int(own.ljust(size, "0"), 2) | int(others.ljust(size, "0"), 2)
    return format(both, f"0{size}b")


def _external(view: View, network: Network) -> str:
    taken = [place for place, bit in enumerate(_others(view, network)) if bit == "1"]
    if not taken:
        return ""
    first = ipaddress.ip_interface(network.network).network.network_address
    return ", ".join(str(first + place) for place in taken)


def _groups(view: View, network: Network) -> list[list[Any]]:
    found = []
    for group in by_name(view.config.nodegroups.values()):
        params = group.networks.get(network.uuid)
        if params is not None:
            found.append(
                [group.name, params.get("mode", ""), params.get("link", ""), params.get("vlan", "")]
            )
    return found


_FIELDS = [
    Field("name", "Network", KIND_TEXT, "Name of the network", attribute("name")),
    Field("network", "Subnet", KIND_TEXT, "IPv4 network", attribute("network")),
    Field("gateway", "Gateway", KIND_OTHER, "IPv4 gateway", attribute("gateway")),
    Field("network6", "IPv6Subnet", KIND_OTHER, "IPv6 network", attribute("network6")),
    Field("gateway6", "IPv6Gateway", KIND_OTHER, "IPv6 gateway", attribute("gateway6")),
    Field(
        "mac_prefix",
        "MacPrefix",
        KIND_OTHER,
        "Prefix of MAC addresses which are generated in the network",
        attribute("mac_prefix"),
    ),
    Field(
        "free_count",
        "FreeCount",
        KIND_NUMBER,
        "Number of free addresses",
        lambda view, network: _taken(view, network).count("0"),
    ),
    Field(
        "reserved_count",
        "ReservedCount",
        KIND_NUMBER,
        "Number of addresses which are in use or reserved",
        lambda view, network: _taken(view, network).count("1"),
    ),
    Field(
        "map",
        "Map",
        KIND_TEXT,
        "One character for each address: X in use or reserved, . free",
        lambda view, network: _taken(view, network).translate(_MAP),
    ),
    Field(
        "external_reservations",
        "ExternalReservations",
        KIND_TEXT,
        "Addresses which are reserved for use outside of the cluster, or which nodes or the cluster"
        " have",
        _external,
    ),
    Field(
        "external_reservations6",
        "ExternalReservations6",
        KIND_OTHER,
        "IPv6 addresses, and ranges of them, which are reserved for use outside of the cluster",
        lambda _view, network: list(network.reserved6),
    ),
    Field(
        "group_cnt",
        "NodeGroups",
        KIND_NUMBER,
        "Number of connected node groups",
        lambda view, network: len(_groups(view, network)),
    ),
    Field(
        "group_list",
        "GroupList",
        KIND_OTHER,
        "Connected node groups: name, NIC mode, NIC link, VLAN",
        _groups,
    ),
    Field(
        "inst_cnt",
        "Instances",
        KIND_NUMBER,
        "Number of instances in the network",
        lambda view, network: len(view.instances_of_network.get(network.uuid, ())),
    ),
    Field(
        "inst_list",
        "InstanceList",
        KIND_OTHER,
        "Names of the instances in the network",
        lambda view, network: [
            inst.name for inst in view.instances_of_network.get(network.uuid, ())
        ],
    ),
]

RESOURCE = Resource(
    query_c.NETWORK,
    [*_FIELDS, *common_fields("network")],
    table="networks",
)
