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


def seen(path: str = ARP_FILE) -> dict[str, list[str]]:
    """Return the IPv4 addresses to which this node has talked, by MAC address in small letters."""
    found: dict[str, set[str]] = {}
    for line in _lines(path):
        words = line.split()
        # Address, type of hardware, flags, MAC address, mask, device.
        if len(words) >= 4 and _has_flag(words[2]) and net.is_ip(words[0]):
            found.setdefault(words[3].lower(), set()).add(words[0])
    return {mac: sorted(addresses) for mac, addresses in found.items()}


def leased(
    files: Collection[str] = LEASE_FILES, now: Callable[[], float] = time.time
) -> dict[str, list[str]]:
    """Return the addresses which dnsmasq of this node has leased, by MAC address in small letters.

    Leases which have ended do not count.
    """
    found: dict[str, set[str]] = {}
    for path in files:
        for line in _lines(path):
            words = line.split()
            # End of the lease (0 for never), MAC address, address, name, client.
            if len(words) < 3 or not words[0].isdecimal() or not net.is_ip(words[2]):
                continue
            if int(words[0]) == 0 or int(words[0]) > now():
                found.setdefault(words[1].lower(), set()).add(words[2])
    return {mac: sorted(addresses) for mac, addresses in found.items()}


def _has_flag(word: str) -> bool:
    try:
        return bool(int(word, 16) & _COMPLETE)
    except ValueError:
        return False


def _lines(path: str) -> Iterator[str]:
    with contextlib.suppress(OSError):
        yield from fs.read_file(path).splitlines()
