"""How a guest's interface on the host is connected to its network, and taken from it again.

For each mode there are commands of iproute2 or Open vSwitch and settings of the kernel; building
them is pure. An administrator's program ``kvm-vif-bridge`` in the configuration directory, when
there is one, does all of that in their place: its environment is the published one, ``ACTION`` says
``up`` or ``down``.

What was connected is written down beside the interface's name, in ``nic/<instance>/.<interface>``,
so that it can be taken down when the configuration has changed, or the record of the guest is lost.

A routed guest that is migrated keeps its route on the source until it has arrived, see
:func:`waits_for_arrival`.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ganeti import errors
from ganeti.constants import net
from ganeti.hypervisor.kvm import communication
from ganeti.hypervisor.kvm.layout import Layout
from ganeti.platform import paths
from ganeti.utils import fs, process
from ganeti.wire import json

_TIMEOUT_S = 30.0
_OVS_TIMEOUT_S = 20
_VLAN_MAX = 4094
_PROC = "/proc/sys/net"
# The VLAN that a bridge gives a new port.
_FIRST_VLAN = 1

UP = "up"
DOWN = "down"
#: ``MIGRATION_PHASE`` of the target, while the guest still runs on the source.
PHASE_PRE = "pre"


class Vlans(NamedTuple):
    """In which VLANs an interface is."""

    untagged: int | None  # packets without a tag belong to it
    tagged: tuple[int, ...] = ()


def parse_vlans(text: str) -> Vlans:
    """Read the parameter ``vlan``: ``7`` or ``.7``, ``:8:9``, ``.7:8:9``; empty is none.

    :raises HypervisorError: it is none of these, or a number is no VLAN.
    """
    if not re.fullmatch(r"|\.?\d+(:\d+)*|(:\d+)+", text, re.ASCII):
        raise errors.HypervisorError(f"{text!r} is not a VLAN like 7, .7, :7:8 or .7:8")
    first, *rest = text.removeprefix(".").split(":")
    wrong = [word for word in (first, *rest) if word and not 1 <= int(word) <= _VLAN_MAX]
    if wrong:
        raise errors.HypervisorError(
            f"VLAN {wrong[0]} is not between 1 and {_VLAN_MAX} (in {text!r})"
        )
    return Vlans(int(first) if first else None, tuple(int(word) for word in rest))


def addresses(nic: Mapping[str, Any]) -> list[str]:
    """Addresses which a routed card answers to: its own, and what it makes of the network's prefix.

    A guest in a network with an IPv6 prefix of 64 bits has the address that follows from its MAC.

    :raises HypervisorError: an address is none.
    """
    found = [str(nic["ip"])] if nic.get("ip") else []
    network = nic.get("netinfo")
    prefix = network.get("network6") if isinstance(network, dict) else None
    try:
        found = [str(ipaddress.ip_address(ip)) for ip in found]
        subnet = ipaddress.IPv6Network(prefix) if prefix else None
    except ValueError as err:
        raise errors.HypervisorError(f"routed NIC {nic.get('uuid', '')}: {err}") from err
    if subnet is not None and subnet.prefixlen == 64:
        octets = [int(word, 16) for word in nic["mac"].split(":")]
        octets[0] ^= 2
        suffix = int.from_bytes(bytes([*octets[:3], 0xFF, 0xFE, *octets[3:]]), "big")
        own = str(subnet[suffix])
        if own not in found:
            found.append(own)
    return found


def check(nic: Mapping[str, Any]) -> None:
    """Whether what the mode needs is given and installed.

    :raises HypervisorError: names what is missing.
    """
    params = nic["nicparams"]
    mode = params.get("mode")
    what = f"NIC {nic.get('uuid', '')} in mode {mode}"
    program = "ovs-vsctl" if mode == net.NIC_MODE_OVS else None
    if mode == net.NIC_MODE_BRIDGED and params.get("vlan"):
        program = "bridge"
    if program and not _has_script() and shutil.which(program, path=process.DEFAULT_PATH) is None:
        package = "openvswitch-switch" if program == "ovs-vsctl" else "iproute2"
        raise errors.HypervisorError(f"{what} needs the program {program} (package {package})")
    if mode == net.NIC_MODE_ROUTED and not addresses(nic):
        raise errors.HypervisorError(f"{what} has no IP address")
    try:
        parse_vlans(params.get("vlan") or "")
    except errors.HypervisorError as err:
        raise errors.HypervisorError(f"{what}: {err}") from err


def up_commands(tap: str, nic: Mapping[str, Any], *, mtu: int | None = None) -> list[list[str]]:
    """The commands that connect a new interface, for one card.

    :param mtu: of what it is connected to; a smaller one would become that of all.
    :raises HypervisorError: a fact is missing.
    """
    if communication.is_communication(nic):
        return communication.up_commands(tap, nic)
    params = nic["nicparams"]
    link, mode = params.get("link") or "", params.get("mode")
    # The bridge takes over the lowest address of its ports; a guest must not change it.
    commands = [["ip", "link", "set", tap, "address", f"fe{nic['mac'][2:]}"]]
    if mtu is not None:
        commands.append(["ip", "link", "set", tap, "mtu", str(mtu)])
    up = ["ip", "link", "set", tap, "up"]
    vlans = parse_vlans(params.get("vlan") or "")
    if mode == net.NIC_MODE_BRIDGED:
        return [
            *commands,
            ["ip", "link", "set", tap, "master", link],
            *_bridge_vlans(tap, vlans),
            up,
        ]
    if mode == net.NIC_MODE_OVS:
        # A port of this name may be left from before the node was restarted.
        port = [
            "ovs-vsctl",
            f"--timeout={_OVS_TIMEOUT_S}",
            "--if-exists",
            "del-port",
            tap,
            "--",
            "add-port",
            link,
            tap,
            *_ovs_vlans(vlans),
        ]
        return [*commands, up, port]
    if mode == net.NIC_MODE_ROUTED:
        return [*commands, up, *_routes(tap, nic, link)]
    return [*commands, up]


def _bridge_vlans(tap: str, vlans: Vlans) -> list[list[str]]:
    if vlans == Vlans(None):
        return []
    commands = []
    if vlans.untagged != _FIRST_VLAN:
        commands.append(["bridge", "vlan", "del", "dev", tap, "vid", str(_FIRST_VLAN)])
    if vlans.untagged is not None:
        commands.append(
            ["bridge", "vlan", "add", "dev", tap, "vid", str(vlans.untagged), "pvid", "untagged"]
        )
    return commands + [
        ["bridge", "vlan", "add", "dev", tap, "vid", str(vlan)] for vlan in vlans.tagged
    ]


def _ovs_vlans(vlans: Vlans) -> list[str]:
    words = []
    if vlans.untagged is not None:
        words.append(f"tag={vlans.untagged}")
    if vlans.tagged:
        words.append(f"trunks={','.join(map(str, vlans.tagged))}")
        if vlans.untagged is not None:
            # With a tag alone, Open vSwitch would take it for the only VLAN.
            words.append("vlan_mode=native-untagged")
    return words


def _routes(tap: str, nic: Mapping[str, Any], table: str) -> list[list[str]]:
    own = addresses(nic)
    if not own:
        raise errors.HypervisorError(f"routed NIC {nic.get('uuid', '')} has no IP address")
    where = ["table", table] if table else []
    commands = []
    for address in own:
        family = "-6" if ":" in address else "-4"
        commands.append(["ip", family, "route", "replace", address, "dev", tap, *where])
    network = nic.get("netinfo")
    gateway = network.get("gateway6") if isinstance(network, dict) else None
    if gateway:
        # IPv4's gateway is answered for by proxy_arp; IPv6 wants each address to be named.
        commands.append(["ip", "-6", "neigh", "replace", "proxy", str(gateway), "dev", tap])
    return commands


def kernel_settings(tap: str, nic: Mapping[str, Any]) -> dict[str, str]:
    """Files below ``/proc/sys`` and what is written to them, before the commands.

    A routed guest believes to share a wire with its whole subnet: this node answers for the others
    and hands their packets on.
    """
    if communication.is_communication(nic):
        return communication.kernel_settings(tap)
    if nic["nicparams"].get("mode") != net.NIC_MODE_ROUTED:
        return {}
    v4, v6 = f"{_PROC}/ipv4/conf/{tap}", f"{_PROC}/ipv6/conf/{tap}"
    settings = {f"{v4}/proxy_arp": "1", f"{v4}/forwarding": "1"}
    if any(":" in address for address in addresses(nic)):
        # A router must not take another one's advertisements: the guest could send some.
        settings |= {f"{v6}/accept_ra": "0", f"{v6}/proxy_ndp": "1", f"{v6}/forwarding": "1"}
    return settings


def down_commands(tap: str, env: Mapping[str, str]) -> list[list[str]]:
    """What does not go away with the interface itself.

    :param env: what it was connected with.
    """
    if env.get("MODE") != net.NIC_MODE_OVS:
        return []
    return [
        [
            "ovs-vsctl",
            f"--timeout={_OVS_TIMEOUT_S}",
            "--if-exists",
            "del-port",
            env.get("LINK", ""),
            tap,
        ]
    ]


def script_env(
    tap: str, index: int, nic: Mapping[str, Any], instance_name: str, tags: Sequence[str]
) -> dict[str, str]:
    """Environment of the administrator's program."""
    params = nic["nicparams"]
    env = {
        "PATH": process.DEFAULT_PATH,
        "INSTANCE": instance_name,
        "MAC": nic["mac"],
        "MODE": params["mode"],
        "LINK": params.get("link") or "",
        "INTERFACE": tap,
        "INTERFACE_INDEX": str(index),
        "INTERFACE_UUID": nic.get("uuid") or "",
        "TAGS": " ".join(tags),
        "ACTION": UP,
    }
    optional = {"IP": nic.get("ip"), "INTERFACE_NAME": nic.get("name"), "VLAN": params.get("vlan")}
    env.update({key: str(value) for key, value in optional.items() if value})
    if params["mode"] == net.NIC_MODE_BRIDGED:
        env["BRIDGE"] = env["LINK"]
    network = nic.get("netinfo")
    if isinstance(network, dict):
        for key, field in (
            ("NAME", "name"),
            ("UUID", "uuid"),
            ("SUBNET", "network"),
            ("GATEWAY", "gateway"),
            ("SUBNET6", "network6"),
            ("GATEWAY6", "gateway6"),
            ("MAC_PREFIX", "mac_prefix"),
        ):
            if network.get(field):
                env[f"NETWORK_{key}"] = str(network[field])
        env["NETWORK_TAGS"] = " ".join(network.get("tags") or ())
    return env


def waits_for_arrival(nic: Mapping[str, Any]) -> bool:
    """Whether the target of a migration connects the card only when the guest has come.

    Packets for a routed guest would otherwise be sent to this node while it runs on the other.
    """
    return bool(nic["nicparams"].get("mode") == net.NIC_MODE_ROUTED)


def _script() -> str:
    return f"{paths.current().conf_dir}/kvm-vif-bridge"


def _has_script() -> bool:
    return os.access(_script(), os.X_OK)


def _notes(layout: Layout, tap: str) -> str:
    return f"{layout.nic_dir}/.{tap}"


def connect(
    tap: str,
    index: int,
    nic: Mapping[str, Any],
    layout: Layout,
    tags: Sequence[str],
    *,
    phase: str | None = None,
) -> None:
    """Connect an interface to its network.

    :param phase: :data:`PHASE_PRE` on the target of a migration.
    :raises GenericError, OSError: it cannot be; :func:`disconnect` takes back what was done.
    """
    env = script_env(tap, index, nic, layout.name, tags)
    # Before it begins: half a connection is taken down like a whole one.
    fs.write_file(_notes(layout, tap), json.dumps(env), mode=0o600, sync=False)
    if _has_script():
        if phase is not None and env["MODE"] == net.NIC_MODE_EXT:
            env["MIGRATION_PHASE"] = phase
        process.run([_script(), tap], timeout_s=_TIMEOUT_S, reset_env=True, env=env)
        return
    _require_vlan_bridge(nic)
    for path, value in kernel_settings(tap, nic).items():
        _set(path, value)
    for command in up_commands(tap, nic, mtu=_other_mtu(nic, tap)):
        process.run(command, timeout_s=_TIMEOUT_S)


def disconnect(tap: str, index: int, layout: Layout) -> None:
    """Take an interface from its network; complaints are logged, as the guest has gone already."""
    path = _notes(layout, tap)
    try:
        env = {str(key): str(value) for key, value in json.loads(fs.read_file(path)).items()}
    except FileNotFoundError:
        return
    except (OSError, errors.ParseError, AttributeError) as err:
        logging.warning("interface %s: how it was connected is not known: %s", tap, err)
        return
    env |= {"ACTION": DOWN, "INTERFACE_INDEX": str(index)}
    try:
        if _has_script():
            process.run([_script(), tap], timeout_s=_TIMEOUT_S, reset_env=True, env=env)
        else:
            for command in down_commands(tap, env):
                process.run(command, timeout_s=_TIMEOUT_S)
    except errors.GenericError as err:
        logging.warning(
            "interface %s of instance %s was not taken down cleanly: %s", tap, layout.name, err
        )
    fs.remove_file(path)


def _require_vlan_bridge(nic: Mapping[str, Any]) -> None:
    """A bridge that does not look at VLANs would put the guest into all of them."""
    params = nic["nicparams"]
    if params.get("mode") != net.NIC_MODE_BRIDGED or not params.get("vlan"):
        return
    link = params.get("link") or ""
    try:
        filtering = fs.read_file(f"/sys/class/net/{link}/bridge/vlan_filtering").strip()
    except OSError:
        filtering = "0"
    if filtering != "1":
        raise errors.HypervisorError(
            f"NIC {nic.get('uuid', '')} is to be in VLAN {params['vlan']}, but bridge {link} does "
            f"not separate VLANs. Switch it on: ip link set {link} type bridge vlan_filtering 1"
        )


def _other_mtu(nic: Mapping[str, Any], tap: str) -> int | None:
    """The MTU of the bridge, where it differs from the interface's."""
    params = nic["nicparams"]
    if params.get("mode") not in (net.NIC_MODE_BRIDGED, net.NIC_MODE_OVS):
        return None
    try:
        wanted, own = (
            int(fs.read_file(f"/sys/class/net/{name}/mtu")) for name in (params.get("link"), tap)
        )
    except (OSError, ValueError):
        return None
    return wanted if wanted != own else None


def _set(path: str, value: str) -> None:
    try:
        with open(path, "w", encoding="ascii") as stream:
            stream.write(value)
    except OSError as err:
        raise errors.HypervisorError(f"cannot set {path} to {value}: {err.strerror}") from err
