"""Reading which addresses the network interfaces of this node have."""

from __future__ import annotations

from typing import NamedTuple

from ganeti import errors
from ganeti.wire import json


class Address(NamedTuple):
    """An address of a network interface.

    :ivar family: ``inet`` or ``inet6``.
    :ivar scope: ``global``, ``link``, ``host``, or empty.
    """

    interface: str
    family: str
    address: str
    scope: str


def parse_addresses(text: str) -> list[Address]:
    """Read the output of ``ip -json address show``; addresses of other forms are left out.

    :raises ParseError: the text is not a list of interfaces.

    Source: ip(8) and ip-address(8), iproute2 6.1.
    """
    devices = json.loads(text)
    if not isinstance(devices, list) or not all(isinstance(one, dict) for one in devices):
        raise errors.ParseError(f"expected a list of network interfaces, found {text!r:.120}")
    found = []
    for device in devices:
        entries = device.get("addr_info")
        for entry in entries if isinstance(entries, list) else ():
            if not isinstance(entry, dict):
                continue
            name, family, address = device.get("ifname"), entry.get("family"), entry.get("local")
            if isinstance(name, str) and isinstance(family, str) and isinstance(address, str):
                found.append(Address(name, family, address, str(entry.get("scope") or "")))
    return found
