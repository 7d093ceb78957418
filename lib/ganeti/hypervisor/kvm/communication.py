"""The interface through which a guest asks its node: one wire with only the two of them.

It is a network of its own, routed to nowhere: the node has the address 169.254.169.254 on each of
these interfaces, the guest the one it has in the configuration, and a packet with another sender is
dropped. So an address says who asks.

In a virtual cluster, where nodes have no root and share an address, QEMU's own network stands in:
it answers for 169.254.169.254, and for each connection to port 80 there starts a small program
(``metad_forward``) which brings it to the metadata daemon of the node with the guest's address.
What else the guest sends goes nowhere.
"""

from __future__ import annotations

import ipaddress
import shlex
import sys
from collections.abc import Mapping
from typing import Any

from ganeti import errors
from ganeti.constants import metad as const
from ganeti.platform import paths

#: Name of the host's end; the kernel puts a number there.
TAP_NAME = f"{const.TAP_PREFIX}%d"


def is_communication(nic: Mapping[str, Any]) -> bool:
    """Whether a card is one of these."""
    return str(nic.get("name") or "").startswith(const.NIC_PREFIX)


def by_qemu(nic: Mapping[str, Any]) -> bool:
    """Whether QEMU's own network stands in here."""
    return is_communication(nic) and paths.is_virtual()


def forwarder() -> str:
    """The command that QEMU starts for each connection, without the guest's address."""
    program = f"{paths.package_dir()}/helpers/metad_forward.py"
    # Nothing of the installed packages is needed, and a guest waits for the start.
    return shlex.join([sys.executable, "-I", "-S", program, paths.current().metad_guest_socket])


def qemu_network(nic: Mapping[str, Any], forward: str) -> list[tuple[str, str]]:
    """Options of ``-netdev user`` for such a card.

    :param forward: see :func:`forwarder`.
    :raises HypervisorError: the card has no address.
    """
    try:
        guest = ipaddress.IPv4Address(str(nic.get("ip")))
    except ValueError:
        raise errors.HypervisorError(
            f"the communication interface {nic.get('name')} has no IPv4 address"
        ) from None
    network = ipaddress.IPv4Network(const.NETWORK)
    # QEMU wants addresses for itself, which nobody else has.
    taken = {guest, ipaddress.IPv4Address(const.ADDRESS)}
    free = [
        address
        for address in (network.broadcast_address - number for number in range(1, 6))
        if address not in taken
    ]
    command = f"{forward} {guest}"
    return [
        ("net", str(network)),
        ("host", str(free[0])),
        ("dns", str(free[1])),
        ("dhcpstart", str(guest)),
        ("restrict", "on"),
        ("guestfwd", f"tcp:{const.ADDRESS}:{const.PORT}-cmd:{command}"),
    ]


def up_commands(tap: str, nic: Mapping[str, Any]) -> list[list[str]]:
    """The commands that connect the host's end.

    :raises HypervisorError: the card has no address.
    """
    if not nic.get("ip"):
        raise errors.HypervisorError(
            f"the communication interface {nic.get('name')} has no IP address"
        )
    return [
        ["ip", "link", "set", tap, "up"],
        ["ip", "address", "replace", f"{const.ADDRESS}/32", "dev", tap],
        ["ip", "route", "replace", f"{nic['ip']}/32", "dev", tap, "src", const.ADDRESS],
    ]


def kernel_settings(tap: str) -> dict[str, str]:
    """Packets with another sender than the guest are dropped, and none are passed on."""
    directory = f"/proc/sys/net/ipv4/conf/{tap}"
    return {
        f"{directory}/rp_filter": "1",
        f"{directory}/forwarding": "0",
        f"{directory}/accept_redirects": "0",
    }
