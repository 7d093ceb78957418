"""What the limits of a server count as one client."""

from __future__ import annotations

import ipaddress
from typing import Final

_SITE_BITS: Final = 48


def client_network(address: str) -> str:
    """Return the text under which limits count a client, from its address.

    One client has a whole IPv6 network of 64 bits. An IPv4 address has the same text whether it
    reaches a socket of IPv4 or one of IPv6 (``::ffff:192.0.2.1``).

    :param address: an address, also with a zone (``fe80::1%eth0``). Another text is returned as it
        is: a client at a local socket has no address.

    Source: RFC 4291, sections 2.5.1 and 2.5.5.2.
    """
    bare, _percent, zone = address.partition("%")
    try:
        found = ipaddress.ip_address(bare)
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    network = str(ipaddress.ip_network((found, 64), strict=False))
    return f"{network}%{zone}" if zone else network


def client_site(network: str) -> str | None:
    """Return what one owner of many networks usually has: the IPv6 network of 48 bits of one.

    :param network: as :func:`client_network` returns it.
    :returns: None for another address, which belongs to no larger network that is known.

    Source: RFC 6177, section 2; RIPE-690, section 4.2.
    """
    bare, _percent, _zone = network.partition("%")
    try:
        found = ipaddress.IPv6Network(bare)
    except ValueError:
        return None
    return str(found.supernet(new_prefix=_SITE_BITS)) if found.is_global else None
