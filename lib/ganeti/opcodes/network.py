"""Opcodes for networks, the address pools to which node groups are connected."""

from __future__ import annotations

from ganeti import ht
from ganeti.opcodes import types
from ganeti.opcodes.base import OpCode, opcode, param


@opcode(summary="network_name")
class OpNetworkAdd(OpCode):
    """Add a network. Result: None."""

    network_name: str = param(ht.NonEmptyString, "Name of the network")
    network: str = param(types.Ipv4Network, "IPv4 network, as address/bits")
    gateway: str | None = param(ht.Maybe(types.Ipv4Address), "IPv4 gateway", default=None)
    network6: str | None = param(ht.Maybe(types.Ipv6Network), "IPv6 network", default=None)
    gateway6: str | None = param(ht.Maybe(types.Ipv6Address), "IPv6 gateway", default=None)
    mac_prefix: str | None = param(
        types.MaybeString,
        "First three bytes of MAC addresses generated in this network",
        default=None,
    )
    add_reserved_ips: list[str] | None = param(
        ht.Maybe(ht.ListOf(types.Ipv4Address)),
        "Addresses to reserve, which no instance gets",
        default=None,
    )
    conflicts_check: bool = param(
        ht.Bool, "Reserve the addresses of the nodes and of the master in the network", default=True
    )
    tags: list[str] = param(types.Strings, "Tags", default=[])
    RESULT = ht.NoneType


@opcode(summary="network_name")
class OpNetworkConnect(OpCode):
    """Connect a network to a node group. Result: None."""

    group_name: str = param(ht.NonEmptyString, "Node group to connect")
    network_name: str = param(ht.NonEmptyString, "Name of the network")
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
    )
    RESULT = ht.NoneType


@opcode(summary="network_name")
class OpNetworkDisconnect(OpCode):
    """Disconnect a network from a node group. Result: None."""

    group_name: str = param(ht.NonEmptyString, "Node group to disconnect")
    network_name: str = param(ht.NonEmptyString, "Name of the network")
    more_groups: list[str] | None = param(
        ht.Maybe(ht.ListOf(ht.NonEmptyString)),
        "Other node groups to disconnect; either all groups are disconnected, or none",
        default=None,
    )
    RESULT = ht.NoneType


@opcode(summary="network_name")
class OpNetworkRemove(OpCode):
    """Remove a network. Result: None."""

    network_name: str = param(ht.NonEmptyString, "Name of the network")
    force: bool = param(ht.Bool, "Also if a node group is connected to the network", default=False)
    RESULT = ht.NoneType


@opcode()
class OpNetworkRename(OpCode):
    """Rename a network. Result: the new name."""

    network_name: str = param(ht.NonEmptyString, "Name of the network")
    new_name: str = param(ht.NonEmptyString, "New name")
    RESULT = ht.NonEmptyString


@opcode(summary="network_name")
class OpNetworkSetParams(OpCode):
    """Change a network. Result: None."""

    network_name: str = param(ht.NonEmptyString, "Name of the network")
    gateway: str | None = param(ht.Maybe(types.Ipv4Address), "IPv4 gateway", default=None)
    network6: str | None = param(ht.Maybe(types.Ipv6Network), "IPv6 network", default=None)
    gateway6: str | None = param(ht.Maybe(types.Ipv6Address), "IPv6 gateway", default=None)
    mac_prefix: str | None = param(
        types.MaybeString,
        "First three bytes of MAC addresses generated in this network",
        default=None,
    )
    add_reserved_ips: list[str] | None = param(
        ht.Maybe(ht.ListOf(types.Ipv4Address)),
        "Addresses to reserve, which no instance gets",
        default=None,
    )
    remove_reserved_ips: list[str] | None = param(
        ht.Maybe(ht.ListOf(types.Ipv4Address)),
        "Addresses whose reservation ends",
        default=None,
    )
    RESULT = ht.NoneType
