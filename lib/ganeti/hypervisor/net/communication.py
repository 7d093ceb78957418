"""The communication NIC, through which a guest asks the metadata daemon of its node.

Its interface is a network of its own with two ends, and the node routes nothing else to it. The
node has the address 169.254.169.254 on each of these interfaces, the guest has the address in its
configuration. The kernel drops packets with another sender, so that the address tells which guest
asks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ganeti import errors
from ganeti.constants import metad as const

#: Name of the host's interface; the kernel replaces ``%d`` by a number.
TAP_NAME = f"{const.TAP_PREFIX}%d"


def is_communication(nic: Mapping[str, Any]) -> bool:
    """Return True if a NIC is a communication NIC."""
    return str(nic.get("name") or "").startswith(const.NIC_PREFIX)


def up_argvs(tap: str, nic: Mapping[str, Any]) -> list[list[str]]:
    """Return the commands which connect the host's end.

    :raises HypervisorError: the NIC has no address.
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
    """Return the settings of the kernel for the interface: file below ``/proc/sys`` -> text to
    write.

    The kernel drops packets which have another sender than the guest, and forwards none.
    """
    directory = f"/proc/sys/net/ipv4/conf/{tap}"
    return {
        f"{directory}/rp_filter": "1",
        f"{directory}/forwarding": "0",
        f"{directory}/accept_redirects": "0",
    }
