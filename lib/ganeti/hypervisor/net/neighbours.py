"""Addresses of guests which this node knows without asking them: from leases, and from its traffic.

Both sources know the MAC address of each IP address. They may be old: a guest which has another
address now may still be known by its former one.

Source: manual pages **arp**\\(7) (``/proc/net/arp``) and **dnsmasq**\\(8) (``--dhcp-leasefile``).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterator

from ganeti.utils import fs, net

ARP_FILE = "/proc/net/arp"
LEASE_FILES = ("/var/lib/misc/dnsmasq.leases", "/var/lib/dnsmasq/dnsmasq.leases")

# The node knows the MAC address, and has not only asked for it.
_COMPLETE = 0x2


def seen(macs: Collection[str], path: str = ARP_FILE) -> list[str]:
    """Return the IPv4 addresses with one of these MAC addresses to which this node has talked."""
    wanted = {mac.lower() for mac in macs}
    found = []
    for line in _lines(path):
        words = line.split()
        # Address, type of hardware, flags, MAC address, mask, device.
        if len(words) >= 4 and words[3].lower() in wanted and _has_flag(words[2]):
            found.append(words[0])
    return sorted(filter(_is_address, found))


def leased(
    macs: Collection[str],
    files: Collection[str] = LEASE_FILES,
    now: Callable[[], float] = time.time,
) -> list[str]:
    """Return the addresses which dnsmasq of this node has leased to these MAC addresses."""
    wanted = {mac.lower() for mac in macs}
    found = set()
    for path in files:
        for line in _lines(path):
            words = line.split()
            # End of the lease (0 for never), MAC address, address, name, client.
            if len(words) < 3 or words[1].lower() not in wanted or not words[0].isdecimal():
                continue
            if int(words[0]) == 0 or int(words[0]) > now():
                found.add(words[2])
    return sorted(filter(_is_address, found))


def _has_flag(word: str) -> bool:
    try:
        return bool(int(word, 16) & _COMPLETE)
    except ValueError:
        return False


def _is_address(word: str) -> bool:
    return net.is_ip(word)


def _lines(path: str) -> Iterator[str]:
    with contextlib.suppress(OSError):
        yield from fs.read_file(path).splitlines()
