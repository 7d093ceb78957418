"""Mode ``routed``: this node routes the addresses of a guest to its interface.

The guest is configured as if it shared an Ethernet segment with its whole subnet. This node answers
its questions for the addresses of the others (proxy ARP, proxy NDP) and forwards its packets.

Source: ip-route(8), ip-neighbour(8); Linux, ``Documentation/networking/ip-sysctl.rst``.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any

from ganeti import errors

_PROC = "/proc/sys/net"


def addresses(nic: Mapping[str, Any]) -> list[str]:
    """Return the addresses to which a routed NIC answers.

    These are its own, and, in a network with an IPv6 prefix of 64 bits, the address which follows
    from its MAC address (RFC 4291, appendix A).

    :raises HypervisorError: an address is not valid.
    """
    found = [str(nic[key]) for key in ("ip", "ip6") if nic.get(key)]
    network = nic.get("netinfo")
    prefix = network.get("network6") if isinstance(network, dict) else None
    try:
        found = [str(ipaddress.ip_address(ip)) for ip in found]
        subnet = ipaddress.IPv6Network(prefix) if prefix else None
    except ValueError as err:
        raise errors.HypervisorError(f"routed NIC {nic.get('uuid', '')}: {err}") from err
    if subnet is not None and subnet.prefixlen == 64:
        octets = [int(octet, 16) for octet in nic["mac"].split(":")]
        octets[0] ^= 2
        suffix = int.from_bytes(bytes([*octets[:3], 0xFF, 0xFE, *octets[3:]]), "big")
        own = str(subnet[suffix])
        if own not in found:
            found.append(own)
    return found


def require_address(nic: Mapping[str, Any]) -> list[str]:
    """:func:`addresses`, at least one.

    :raises HypervisorError: the NIC has no address, or an address is not valid.
    """
    found = addresses(nic)
    if not found:
        raise errors.HypervisorError(f"routed NIC {nic.get('uuid', '')} has no IP address")
    return found


def route_argvs(tap: str, nic: Mapping[str, Any], table: str) -> list[list[str]]:
    """Return the commands which route the addresses of a NIC to its interface.

    :param table: the routing table; empty for the main one.
    :raises HypervisorError: the NIC has no address, or an address is not valid.
    """
    in_table = ["table", table] if table else []
    commands = []
    for address in require_address(nic):
        family = "-6" if ":" in address else "-4"
        commands.append(["ip", family, "route", "replace", address, "dev", tap, *in_table])
    network = nic.get("netinfo")
    gateway = network.get("gateway6") if isinstance(network, dict) else None
    if gateway:
        # proxy_arp answers for the gateway of IPv4; proxy_ndp needs a list of addresses.
        commands.append(["ip", "-6", "neigh", "replace", "proxy", str(gateway), "dev", tap])
    return commands


def kernel_settings(tap: str, nic: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings of the kernel for the interface: file below ``/proc/sys`` -> text to
    write.

    :raises HypervisorError: an address is not valid.
    """
    v4, v6 = f"{_PROC}/ipv4/conf/{tap}", f"{_PROC}/ipv6/conf/{tap}"
    settings = {f"{v4}/proxy_arp": "1", f"{v4}/forwarding": "1"}
    if any(":" in address for address in addresses(nic)):
        # The guest could send router advertisements, which this node must not follow.
        settings |= {f"{v6}/accept_ra": "0", f"{v6}/proxy_ndp": "1", f"{v6}/forwarding": "1"}
    return settings
