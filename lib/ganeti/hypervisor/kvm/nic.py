"""The host's side of a guest's network cards.

A card in a mode with an interface on the host gets a tap interface of its own, made before QEMU
starts and persistent, so that QEMU opens it by name and a guest that ends unexpectedly leaves
something that :func:`remove` finds. Its name is in
``RUN_DIR/kvm-hypervisor/nic/<instance>/<index>``. Making it needs root; mode ``user`` (virtual
clusters only) needs neither interface nor privileges.

An administrator's program ``kvm-vif-bridge`` in the configuration directory, when there is one,
brings the interface up in place of the built-in way; its environment is the published one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from ganeti import errors
from ganeti.constants import net
from ganeti.hypervisor.kvm import argv
from ganeti.utils import fs, paths, process

_TIMEOUT_S = 30.0

# linux/if_tun.h
_TUNSETIFF = 0x400454CA
_TUNSETPERSIST = 0x400454CB
_TUNSETOWNER = 0x400454CC
_IFF_TAP = 0x0002
_IFF_NO_PI = 0x1000
_IFF_VNET_HDR = 0x4000
_IFF_MULTI_QUEUE = 0x0100


def check_mode(nic: Mapping[str, Any], instance_name: str) -> None:
    """Refuse a mode that cannot work here.

    :raises HypervisorError: says which card, and why.
    """
    mode = nic["nicparams"].get("mode")
    if mode == net.NIC_MODE_USER:
        if not paths.is_virtual():
            raise errors.HypervisorError(
                f"instance {instance_name}: NIC mode {mode} exists in virtual clusters only")
    elif mode not in argv.TAP_MODES:
        raise errors.HypervisorError(f"instance {instance_name}: NIC mode '{mode}' is not known")
    elif os.geteuid() != 0:
        raise errors.HypervisorError(
            f"instance {instance_name}: NIC mode {mode} needs root. "
            f"A virtual cluster of an ordinary user has mode {net.NIC_MODE_USER}.")
    elif shutil.which("ip") is None:
        # Found out before there is an interface that could not be deleted again.
        raise errors.HypervisorError(
            f"instance {instance_name}: NIC mode {mode} needs the program ip (package iproute2)")


def up_commands(tap: str, nic: Mapping[str, Any]) -> list[list[str]]:
    """The commands that connect a new tap interface, for one card.

    :raises HypervisorError: a fact is missing.
    """
    params = nic["nicparams"]
    link, mode = params.get("link") or "", params.get("mode")
    # The bridge takes over the lowest address of its ports; a guest must not change it.
    commands = [["ip", "link", "set", tap, "address", f"fe{nic['mac'][2:]}"]]
    up = ["ip", "link", "set", tap, "up"]
    if mode == net.NIC_MODE_BRIDGED:
        return [*commands, ["ip", "link", "set", tap, "master", link], up]
    if mode == net.NIC_MODE_OVS:
        port = ["ovs-vsctl", "--may-exist", "add-port", link, tap]
        # ".5" is an access VLAN, ":5:6" a trunk.
        vlan = params.get("vlan") or ""
        if vlan.startswith("."):
            port.append(f"tag={vlan[1:].partition(':')[0]}")
        trunks = vlan.partition(":")[2]
        if trunks:
            port.append(f"trunks={trunks.replace(':', ',')}")
        return [*commands, up, port]
    if mode == net.NIC_MODE_ROUTED:
        if not nic.get("ip"):
            raise errors.HypervisorError(f"routed NIC {nic.get('uuid', '')} has no IP address")
        route = ["ip", "route", "replace", str(nic["ip"]), "dev", tap]
        return [*commands, up, [*route, "table", link] if link else route]
    return [*commands, up]


def script_env(tap: str, index: int, nic: Mapping[str, Any], instance_name: str,
               tags: Sequence[str]) -> dict[str, str]:
    """Environment of the administrator's program."""
    params = nic["nicparams"]
    env = {
        "PATH": process.DEFAULT_PATH, "INSTANCE": instance_name, "MAC": nic["mac"],
        "MODE": params["mode"], "LINK": params.get("link") or "", "INTERFACE": tap,
        "INTERFACE_INDEX": str(index), "INTERFACE_UUID": nic.get("uuid") or "",
        "TAGS": " ".join(tags), "ACTION": "up",
    }
    optional = {"IP": nic.get("ip"), "INTERFACE_NAME": nic.get("name"), "VLAN": params.get("vlan")}
    env.update({key: str(value) for key, value in optional.items() if value})
    if params["mode"] == net.NIC_MODE_BRIDGED:
        env["BRIDGE"] = env["LINK"]
    network = nic.get("netinfo")
    if isinstance(network, dict):
        for key, field in (("NAME", "name"), ("UUID", "uuid"), ("SUBNET", "network"),
                           ("GATEWAY", "gateway"), ("SUBNET6", "network6"),
                           ("GATEWAY6", "gateway6"), ("MAC_PREFIX", "mac_prefix")):
            if network.get(field):
                env[f"NETWORK_{key}"] = str(network[field])
        env["NETWORK_TAGS"] = " ".join(network.get("tags") or ())
    return env


def _make_tap(queues: int, owner_uid: int | None) -> str:
    flags = _IFF_TAP | _IFF_NO_PI | _IFF_VNET_HDR | (_IFF_MULTI_QUEUE if queues > 1 else 0)
    try:
        fd = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
        try:
            answer = fcntl.ioctl(fd, _TUNSETIFF, struct.pack("16sH22x", b"gnt.tap%d", flags))
            if owner_uid is not None:
                fcntl.ioctl(fd, _TUNSETOWNER, owner_uid)
            fcntl.ioctl(fd, _TUNSETPERSIST, 1)
        finally:
            os.close(fd)
    except OSError as err:
        raise errors.HypervisorError(f"cannot make a tap interface: {err.strerror}") from err
    return answer[:16].rstrip(b"\0").decode()


def set_up(nics: Sequence[Mapping[str, Any]], hvparams: Mapping[str, Any], layout: argv.Layout,
           tags: Sequence[str] = (), owner_uid: int | None = None) -> list[str | None]:
    """Make and connect the interfaces of a guest.

    :param owner_uid: user that QEMU will run as, when not root.
    :returns: for each card its interface, or None for user networking.
    :raises HypervisorError: nothing is left behind.
    """
    for nic in nics:
        check_mode(nic, layout.name)
    taps: list[str | None] = []
    try:
        for index, nic in enumerate(nics):
            if nic["nicparams"]["mode"] == net.NIC_MODE_USER:
                taps.append(None)
                continue
            queues = int(hvparams.get("virtio_net_queues") or 1)
            tap = _make_tap(queues, owner_uid)
            taps.append(tap)
            fs.make_dirs(layout.nic_dir, 0o755)
            fs.write_file(f"{layout.nic_dir}/{index}", tap, mode=0o644, sync=False)
            script = f"{paths.current().conf_dir}/kvm-vif-bridge"
            if os.access(script, os.X_OK):
                process.run([script, tap], timeout_s=_TIMEOUT_S, reset_env=True,
                            env=script_env(tap, index, nic, layout.name, tags))
                continue
            for command in up_commands(tap, nic):
                process.run(command, timeout_s=_TIMEOUT_S)
    except (errors.GenericError, OSError) as err:
        _delete([tap for tap in taps if tap])
        shutil.rmtree(layout.nic_dir, ignore_errors=True)
        if isinstance(err, errors.HypervisorError):
            raise
        raise errors.HypervisorError(
            f"cannot set up the network of instance {layout.name}: {err}") from err
    return taps


def remove(layout: argv.Layout) -> None:
    """Remove the interfaces that :func:`set_up` has made; none is no error."""
    try:
        names = fs.list_visible(layout.nic_dir)
    except FileNotFoundError:
        return
    taps = []
    for name in names:
        with contextlib.suppress(OSError):
            taps.append(fs.read_file(f"{layout.nic_dir}/{name}").strip())
    _delete(taps)
    shutil.rmtree(layout.nic_dir, ignore_errors=True)


def _delete(taps: Sequence[str]) -> None:
    for tap in taps:
        if os.path.exists(f"/sys/class/net/{tap}"):
            process.run(["ip", "link", "delete", tap], timeout_s=_TIMEOUT_S, check=False)
