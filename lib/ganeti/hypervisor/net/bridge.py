"""Mode ``bridged``: the interface becomes a port of a bridge of the Linux kernel.

Source: ip-link(8), bridge(8).
"""

from __future__ import annotations

from ganeti import errors
from ganeti.hypervisor.net.vlan import NO_VLANS, Vlans
from ganeti.utils import fs

#: The program which sets the VLANs of a port.
VLAN_PROGRAM = "bridge"
# The VLAN which a bridge gives to a new port.
_DEFAULT_VLAN = 1


def add_port_argv(tap: str, bridge: str) -> list[str]:
    """Return the command which makes an interface a port of a bridge."""
    return ["ip", "link", "set", tap, "master", bridge]


def vlan_argvs(tap: str, vlans: Vlans) -> list[list[str]]:
    """Return the commands which set the VLANs of a port; none when the NIC names no VLAN."""
    if vlans == NO_VLANS:
        return []
    commands = []
    if vlans.untagged != _DEFAULT_VLAN:
        commands.append(["bridge", "vlan", "del", "dev", tap, "vid", str(_DEFAULT_VLAN)])
    if vlans.untagged is not None:
        commands.append(
            ["bridge", "vlan", "add", "dev", tap, "vid", str(vlans.untagged), "pvid", "untagged"]
        )
    return commands + [
        ["bridge", "vlan", "add", "dev", tap, "vid", str(vlan)] for vlan in vlans.tagged
    ]


def require_vlan_filtering(bridge: str, vlan: str, nic_uuid: str) -> None:
    """Refuse a VLAN on a bridge which ignores VLANs: the guest would see the packets of all.

    :param vlan: the parameter ``vlan``, not empty.
    :raises HypervisorError: the bridge does not filter by VLAN.
    """
    try:
        filtering = fs.read_file(f"/sys/class/net/{bridge}/bridge/vlan_filtering").strip()
    except OSError:
        filtering = "0"
    if filtering != "1":
        raise errors.HypervisorError(
            f"NIC {nic_uuid} is to be in VLAN {vlan}, but bridge {bridge} does "
            f"not separate VLANs. Switch it on: ip link set {bridge} type bridge vlan_filtering 1"
        )
