"""QEMU's user networking, for which a NIC needs neither an interface on the host nor privileges.

It exists in virtual clusters only, whose nodes have no root and share an address. NICs of mode
``user`` have it, and communication NICs: there QEMU answers for 169.254.169.254, and starts for
each connection to port 80 a small program (``metad_forward``), which connects to the metadata
daemon of the node and passes on the guest's address. QEMU drops all other packets of a
communication NIC.

Source: qemu(1), ``-netdev user``.
"""

from __future__ import annotations

import ipaddress
import shlex
import sys
from collections.abc import Mapping
from typing import Any

from ganeti import errors
from ganeti.constants import metad as const
from ganeti.constants import net
from ganeti.hypervisor.net import communication
from ganeti.platform import machine, paths


def serves(nic: Mapping[str, Any]) -> bool:
    """Return True if a NIC has user networking."""
    return nic["nicparams"].get("mode") == net.NIC_MODE_USER or is_communication(nic)


def is_communication(nic: Mapping[str, Any]) -> bool:
    """Return True if a NIC is a communication NIC with user networking."""
    return communication.is_communication(nic) and machine.current().has_metadata_through_qemu


def check(nic: Mapping[str, Any], instance_name: str) -> None:
    """Refuse mode ``user`` outside of virtual clusters.

    :raises HypervisorError: names the instance.
    """
    mode = nic["nicparams"].get("mode")
    if mode == net.NIC_MODE_USER and mode not in machine.current().nic_modes():
        raise errors.HypervisorError(
            f"instance {instance_name}: NIC mode {net.NIC_MODE_USER} exists in virtual clusters "
            "only"
        )


def forwarder() -> str:
    """Return the command which QEMU starts for each connection, without the guest's address."""
    program = f"{paths.package_dir()}/helpers/metad_forward.py"
    # The program needs none of the installed packages, and the guest waits for its start.
    return shlex.join([sys.executable, "-I", "-S", program, paths.current().metad_guest_socket])


def netdev_options(nic: Mapping[str, Any], forward: str) -> list[tuple[str, str]]:
    """Return the options of ``-netdev user`` for a communication NIC.

    :param forward: see :func:`forwarder`.
    :raises HypervisorError: the NIC has no IPv4 address.
    """
    try:
        guest = ipaddress.IPv4Address(str(nic.get("ip")))
    except ValueError:
        raise errors.HypervisorError(
            f"the communication interface {nic.get('name')} has no IPv4 address"
        ) from None
    network = ipaddress.IPv4Network(const.NETWORK)
    # QEMU needs two addresses for itself.
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
