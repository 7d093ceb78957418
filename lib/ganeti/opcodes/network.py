"""Opcodes for networks, the address pools to which node groups are connected."""

from __future__ import annotations

from ganeti import TYPE_CHECKING, ht
from ganeti.opcodes import params, types
from ganeti.opcodes.base import OpCode, opcode, param

if TYPE_CHECKING:
    from typing import Any


# Parameters which several opcodes have.
NETWORK_NAME: Any = param(ht.NonEmptyString, "Name of the network")
GATEWAY: Any = param(ht.Maybe(types.Ipv4Address), "IPv4 gateway", default=None)
NETWORK6: Any = param(ht.Maybe(types.Ipv6Network), "IPv6 network", default=None)
GATEWAY6: Any = param(ht.Maybe(types.Ipv6Address), "IPv6 gateway", default=None)
MAC_PREFIX: Any = param(
    types.MaybeString,
    "First three bytes of MAC addresses generated in this network",
    default=None,
)
ADD_RESERVED_IPS: Any = param(
    ht.Maybe(ht.ListOf(types.Ipv4Address)),
    "Addresses to reserve, which no instance gets",
    default=None,
)
ADD_RESERVED_IPS6: Any = param(
    ht.Maybe(ht.ListOf(types.Ipv6Block)),
    "IPv6 addresses, and ranges of them as address/bits, to reserve",
    default=None,
    added=True,
)


@opcode(summary="network_name")
class OpNetworkAdd(OpCode):
    """Add a network. Result: None."""

    network_name: str = NETWORK_NAME
    network: str = param(types.Ipv4Network, "IPv4 network, as address/bits")
    gateway: str | None = GATEWAY
    network6: str | None = NETWORK6
    gateway6: str | None = GATEWAY6
    mac_prefix: str | None = MAC_PREFIX
    add_reserved_ips: list[str] | None = ADD_RESERVED_IPS
    conflicts_check: bool = param(
        ht.Bool,
        "Keep the addresses of the nodes and of the master from instances; false for a network"
        " which has nothing in common with that of the nodes",
        default=True,
    )
    tags: list[str] = params.TAGS
    add_reserved_ips6: list[str] | None = ADD_RESERVED_IPS6
    RESULT = ht.NoneType


@opcode(summary="network_name")
class OpNetworkConnect(OpCode):
    """Connect a network to a node group. Result: None."""

    group_name: str = param(ht.NonEmptyString, "Node group to connect")
    network_name: str = NETWORK_NAME
    network_mode: str = param(types.NicMode, "NIC mode of the group's connection")
    network_link: str = param(ht.NonEmptyString, "NIC link of the group's connection")
    network_vlan: str = param(ht.Str, "VLAN of the group's connection", default="")
    conflicts_check: bool = param(
        ht.Bool,
        "Refuse the connection if instances which are not in the network have addresses of it",
        default=True,
    )
    more_groups: list[str] | None = param(
        ht.Maybe(ht.ListOf(ht.NonEmptyString)),
        "Other node groups to connect; either all groups are connected, or none",
        default=None,
        added=True,
    )
    RESULT = ht.NoneType


@opcode(summary="network_name")
class OpNetworkDisconnect(OpCode):
    """Disconnect a network from a node group. Result: None."""

    group_name: str = param(ht.NonEmptyString, "Node group to disconnect")
    network_name: str = NETWORK_NAME
    more_groups: list[str] | None = param(
        ht.Maybe(ht.ListOf(ht.NonEmptyString)),
        "Other node groups to disconnect; either all groups are disconnected, or none",
        default=None,
        added=True,
    )
    RESULT = ht.NoneType


@opcode(summary="network_name")
class OpNetworkRemove(OpCode):
    """Remove a network. Result: None."""

    network_name: str = NETWORK_NAME
    force: bool = param(ht.Bool, "Also if a node group is connected to the network", default=False)
    RESULT = ht.NoneType


@opcode()
class OpNetworkRename(OpCode):
    """Rename a network. Result: the new name."""

    network_name: str = NETWORK_NAME
    new_name: str = params.NEW_NAME
    RESULT = ht.NonEmptyString


@opcode(summary="network_name")
class OpNetworkSetParams(OpCode):
    """Change a network. Result: None."""

    network_name: str = NETWORK_NAME
    gateway: str | None = GATEWAY
    network6: str | None = NETWORK6
    gateway6: str | None = GATEWAY6
    mac_prefix: str | None = MAC_PREFIX
    add_reserved_ips: list[str] | None = ADD_RESERVED_IPS
    remove_reserved_ips: list[str] | None = param(
        ht.Maybe(ht.ListOf(types.Ipv4Address)),
        "Addresses whose reservation ends",
        default=None,
    )
    conflicts_check: bool | None = param(
        ht.Maybe(ht.Bool),
        "Whether the same address in this network and in the one of the nodes is one address",
        default=None,
        added=True,
    )
    add_reserved_ips6: list[str] | None = ADD_RESERVED_IPS6
    remove_reserved_ips6: list[str] | None = param(
        ht.Maybe(ht.ListOf(types.Ipv6Block)),
        "IPv6 addresses, and ranges of them, whose reservation ends",
        default=None,
        added=True,
    )
    RESULT = ht.NoneType
