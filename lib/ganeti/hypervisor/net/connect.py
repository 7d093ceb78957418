"""Connect one interface of a guest to its network in the mode of its NIC, and disconnect it again.

For each mode there are commands and settings of the kernel (:func:`up_argvs`,
:func:`kernel_settings`, :func:`down_argvs`). The administrator's program
(:mod:`ganeti.hypervisor.net.script`), where it exists, does all of that in their place.

What was connected is written to ``.<interface>`` in the guest's directory, so that it can be
disconnected when the configuration has changed, or the record of the guest is lost.

A routed guest that is migrated keeps its route on the source until the migration is finished, see
:func:`waits_for_migration`.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ganeti import errors
from ganeti.constants import net
from ganeti.hypervisor.net import bridge, communication, openvswitch, route, script
from ganeti.hypervisor.net.vlan import parse_vlans
from ganeti.utils import fs, process
from ganeti.wire import json

_TIMEOUT_S = 30.0
# No network interface of hardware has a higher address. Xen uses the same beginning.
_HIGHEST_OUI = "fe:ff:ff"
#: NIC modes which need an interface on the host.
MODES = frozenset((net.NIC_MODE_BRIDGED, net.NIC_MODE_ROUTED, net.NIC_MODE_OVS, net.NIC_MODE_EXT))


@dataclass(frozen=True, slots=True)
class GuestNetwork:
    """Names and files of the host's side of one guest's network."""

    instance_name: str
    directory: str  # holds a file with the name of the interface for each NIC
    script: str  # path of the administrator's program, which need not exist
    tags: Sequence[str] = ()  # of the instance

    def interface_file(self, index: int) -> str:
        """Return the file which holds the name of the interface of the NIC at this position."""
        return f"{self.directory}/{index}"

    def connection_file(self, tap: str) -> str:
        """Return the file which holds the environment with which an interface was connected."""
        return f"{self.directory}/.{tap}"


def check(nic: Mapping[str, Any], guest: GuestNetwork) -> None:
    """Check that the parameters which the mode needs are given, and its programs installed.

    :raises HypervisorError: names the NIC and what is missing.
    """
    params = nic["nicparams"]
    mode = params.get("mode")
    what = f"NIC {nic.get('uuid', '')} in mode {mode}"
    program = openvswitch.PROGRAM if mode == net.NIC_MODE_OVS else None
    if mode == net.NIC_MODE_BRIDGED and params.get("vlan"):
        program = bridge.VLAN_PROGRAM
    if (
        program
        and not script.exists(guest.script)
        and shutil.which(program, path=process.DEFAULT_PATH) is None
    ):
        package = "openvswitch-switch" if program == openvswitch.PROGRAM else "iproute2"
        raise errors.HypervisorError(f"{what} needs the program {program} (package {package})")
    if mode == net.NIC_MODE_ROUTED and not route.addresses(nic):
        raise errors.HypervisorError(f"{what} has no IP address")
    try:
        parse_vlans(params.get("vlan") or "")
    except errors.HypervisorError as err:
        raise errors.HypervisorError(f"{what}: {err}") from err


def up_argvs(tap: str, nic: Mapping[str, Any], *, mtu: int | None = None) -> list[list[str]]:
    """Return the commands which connect a new interface.

    :param mtu: of the bridge or switch, in bytes, where it differs from the interface's: a port
        with a smaller MTU would lower that of the bridge.
    :raises HypervisorError: an address is missing or not valid.
    """
    if communication.is_communication(nic):
        return communication.up_argvs(tap, nic)
    params = nic["nicparams"]
    link, mode = params.get("link") or "", params.get("mode")
    # A bridge takes the lowest MAC address of its ports, and this must not be that one: during a
    # migration two nodes have it, and their bridges would not reach each other any more.
    commands = [["ip", "link", "set", tap, "address", f"{_HIGHEST_OUI}{nic['mac'][8:]}"]]
    if mtu is not None:
        commands.append(["ip", "link", "set", tap, "mtu", str(mtu)])
    up = ["ip", "link", "set", tap, "up"]
    vlans = parse_vlans(params.get("vlan") or "")
    if mode == net.NIC_MODE_BRIDGED:
        return [*commands, bridge.add_port_argv(tap, link), *bridge.vlan_argvs(tap, vlans), up]
    if mode == net.NIC_MODE_OVS:
        return [*commands, up, openvswitch.add_port_argv(tap, link, vlans)]
    if mode == net.NIC_MODE_ROUTED:
        return [*commands, up, *route.route_argvs(tap, nic, link)]
    return [*commands, up]


def kernel_settings(tap: str, nic: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings of the kernel to make before the commands: file below ``/proc/sys`` ->
    text.
    """
    if communication.is_communication(nic):
        return communication.kernel_settings(tap)
    if nic["nicparams"].get("mode") != net.NIC_MODE_ROUTED:
        return {}
    return route.kernel_settings(tap, nic)


def down_argvs(tap: str, env: Mapping[str, str]) -> list[list[str]]:
    """Return the commands which remove what would outlive the interface.

    :param env: the environment with which it was connected.
    """
    if env.get("MODE") != net.NIC_MODE_OVS:
        return []
    return [openvswitch.del_port_argv(tap, env.get("LINK", ""))]


def waits_for_migration(nic: Mapping[str, Any]) -> bool:
    """Return True if the target of a migration connects the NIC only after the migration.

    Packets for a routed guest would otherwise be sent to this node while it runs on the source.
    """
    return bool(nic["nicparams"].get("mode") == net.NIC_MODE_ROUTED)


def connect(
    tap: str, index: int, nic: Mapping[str, Any], guest: GuestNetwork, *, phase: str | None = None
) -> None:
    """Connect an interface to its network.

    :param index: position of the NIC among the NICs of the guest.
    :param phase: :data:`ganeti.hypervisor.net.script.PHASE_PRE` on the target of a migration.
    :raises GenericError, OSError: it cannot be connected; :func:`disconnect` undoes the part which
        was done.
    """
    env = script.environment(tap, index, nic, guest.instance_name, guest.tags)
    # Written first, so that an incomplete connection is removed like a complete one.
    fs.write_file(guest.connection_file(tap), json.dumps(env), mode=0o600, sync=False)
    if script.exists(guest.script):
        if phase is not None and env["MODE"] == net.NIC_MODE_EXT:
            env["MIGRATION_PHASE"] = phase
        script.run(guest.script, tap, env)
        return
    params = nic["nicparams"]
    if params.get("mode") == net.NIC_MODE_BRIDGED and params.get("vlan"):
        bridge.require_vlan_filtering(
            params.get("link") or "", params["vlan"], nic.get("uuid") or ""
        )
    for path, value in kernel_settings(tap, nic).items():
        _write_setting(path, value)
    for argv in up_argvs(tap, nic, mtu=_different_mtu(nic, tap)):
        process.run(argv, timeout_s=_TIMEOUT_S)


def disconnect(tap: str, index: int, guest: GuestNetwork) -> None:
    """Disconnect an interface from its network; errors are logged, as the guest has already ended.

    :param index: position of the NIC among the NICs of the guest now.
    """
    path = guest.connection_file(tap)
    try:
        env = {str(key): str(value) for key, value in json.loads(fs.read_file(path)).items()}
    except FileNotFoundError:
        return
    except (OSError, errors.ParseError, AttributeError) as err:
        logging.warning("interface %s: its connection cannot be read: %s", tap, err)
        return
    env |= {"ACTION": script.DOWN, "INTERFACE_INDEX": str(index)}
    try:
        if script.exists(guest.script):
            script.run(guest.script, tap, env)
        else:
            for argv in down_argvs(tap, env):
                process.run(argv, timeout_s=_TIMEOUT_S)
    except errors.GenericError as err:
        logging.warning(
            "interface %s of instance %s was not disconnected cleanly: %s",
            tap,
            guest.instance_name,
            err,
        )
    fs.remove_file(path)


def _different_mtu(nic: Mapping[str, Any], tap: str) -> int | None:
    """Return the MTU of the bridge or switch, where it differs from the interface's."""
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


def _write_setting(path: str, value: str) -> None:
    try:
        with open(path, "w", encoding="ascii") as stream:
            stream.write(value)
    except OSError as err:
        raise errors.HypervisorError(f"cannot set {path} to {value}: {err.strerror}") from err
