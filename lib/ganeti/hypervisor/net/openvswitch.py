"""Mode ``openvswitch``: the interface becomes a port of an Open vSwitch.

Source: ovs-vsctl(8); ovs-vswitchd.conf.db(5), table *Port*.
"""

from __future__ import annotations

from ganeti.hypervisor.net.vlan import Vlans

#: The program which changes the switch.
PROGRAM = "ovs-vsctl"
_TIMEOUT_S = 20


def add_port_argv(tap: str, switch: str, vlans: Vlans) -> list[str]:
    """Return the command which makes an interface a port of a switch.

    It replaces a port of the same name, which may be left from before the node was restarted.
    """
    return [*del_port_argv(tap), "--", "add-port", switch, tap, *_vlan_options(vlans)]


def del_port_argv(tap: str, switch: str | None = None) -> list[str]:
    """Return the command which removes a port, if it exists; of any switch when none is named."""
    of_switch = [] if switch is None else [switch]
    return [PROGRAM, f"--timeout={_TIMEOUT_S}", "--if-exists", "del-port", *of_switch, tap]


def _vlan_options(vlans: Vlans) -> list[str]:
    options = []
    if vlans.untagged is not None:
        options.append(f"tag={vlans.untagged}")
    if vlans.tagged:
        options.append(f"trunks={','.join(map(str, vlans.tagged))}")
        if vlans.untagged is not None:
            # With a tag alone, Open vSwitch would take it for the only VLAN.
            options.append("vlan_mode=native-untagged")
    return options
