"""To which addresses messages may go.

The URL of a rule may name anything, also by a name whose address changes. Messages never go to this
machine itself, to addresses of the local link, which include the services that give a virtual
machine its credentials, or to addresses which are none of a single machine. Addresses of private
networks are allowed: receivers are often there.

Source: RFC 6890; RFC 6052 (addresses of IPv4 in those of IPv6).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Final

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# Services for virtual machines at other addresses than those of the local link.
_METADATA: Final = tuple(
    map(ipaddress.ip_network, ("fd00:ec2::254/128", "100.100.100.200/32", "168.63.129.16/32"))
)
_THIS_NETWORK: Final = ipaddress.ip_network("0.0.0.0/8")
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
_COMPATIBLE: Final = ipaddress.ip_network("::/96")


def allowed(address: str, networks: Sequence[Network] = ()) -> bool:
    """Tell whether a message may go to an address.

    :param networks: addresses which are allowed in any case.
    """
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    same = [found, *_inside(found)]
    if any(one in network for one in same for network in networks):
        return True
    return not any(map(_refused, same))


def _inside(address: _Address) -> list[_Address]:
    """Return the addresses of IPv4 to which one of IPv6 leads."""
    if not isinstance(address, ipaddress.IPv6Address):
        return []
    found: list[_Address | None] = [address.ipv4_mapped, address.sixtofour]
    if address in _NAT64 or address in _COMPATIBLE:
        found.append(ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF))
    return [one for one in found if one is not None]


def _refused(address: _Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address) and (
        address in _NAT64 or address.ipv4_mapped is not None
    ):
        # What counts is the address of IPv4 in it.
        return False
    return (
        address.is_loopback
        or address.is_link_local
        or address.is_multicast
        or address.is_unspecified
        or address.is_reserved
        or address in _THIS_NETWORK
        or any(address in network for network in _METADATA)
    )
