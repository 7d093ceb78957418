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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ganeti import errors
from ganeti.constants import net
from ganeti.hypervisor.kvm import argv, communication
from ganeti.utils import fs, paths, process

_TIMEOUT_S = 30.0

# linux/if_tun.h
_TUNSETIFF = 0x400454CA
_TUNGETIFF = 0x800454D2
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
    if communication.by_qemu(nic):
        return
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
    if communication.is_communication(nic):
        return communication.up_commands(tap, nic)
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


def _open_tap(name: str, hvparams: Mapping[str, Any]) -> int:
    """Open an interface, or make one: ``%d`` in the name becomes a free number."""
    flags = _IFF_TAP | _IFF_NO_PI
    if argv.nic_queues(hvparams) > 1:
        flags |= _IFF_MULTI_QUEUE
    # Whether guest and host tell each other about checksums and large packets.
    if hvparams["nic_type"] == "paravirtual" and hvparams.get("vnet_hdr", True):
        flags |= _IFF_VNET_HDR
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.ioctl(fd, _TUNSETIFF, struct.pack("16sH22x", name.encode(), flags))
    except BaseException:
        os.close(fd)
        raise
    return fd


def _make_tap(hvparams: Mapping[str, Any], owner_uid: int | None,
              name: str = "gnt.tap%d") -> str:
    try:
        fd = _open_tap(name, hvparams)
        try:
            answer = fcntl.ioctl(fd, _TUNGETIFF, bytes(40))
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
    try:
        return [_connect(nic, index, hvparams, layout, tags, owner_uid)
                for index, nic in enumerate(nics)]
    except BaseException:
        remove(layout)
        raise


def _connect(nic: Mapping[str, Any], index: int, hvparams: Mapping[str, Any], layout: argv.Layout,
             tags: Sequence[str], owner_uid: int | None) -> str | None:
    """Make and connect the interface of one card; a failure leaves its file, see :func:`remove`."""
    if nic["nicparams"]["mode"] == net.NIC_MODE_USER or communication.by_qemu(nic):
        return None
    try:
        own = communication.is_communication(nic)
        tap = _make_tap(hvparams, owner_uid, communication.TAP_NAME) if own else _make_tap(
            hvparams, owner_uid)
        try:
            fs.make_dirs(layout.nic_dir, 0o755)
            fs.write_file(_tap_file(layout, index), tap, mode=0o644, sync=False)
        except OSError:
            _delete([tap])
            raise
        script = f"{paths.current().conf_dir}/kvm-vif-bridge"
        if os.access(script, os.X_OK):
            process.run([script, tap], timeout_s=_TIMEOUT_S, reset_env=True,
                        env=script_env(tap, index, nic, layout.name, tags))
        else:
            if own:
                communication.protect(tap)
            for command in up_commands(tap, nic):
                process.run(command, timeout_s=_TIMEOUT_S)
    except errors.HypervisorError:
        raise
    except (errors.GenericError, OSError) as err:
        raise errors.HypervisorError(
            f"cannot set up the network of instance {layout.name}: {err}") from err
    return tap


def _tap_file(layout: argv.Layout, index: int) -> str:
    return f"{layout.nic_dir}/{index}"


# Cards that come and go while the guest runs

@dataclass(frozen=True, slots=True)
class Plug:
    """The host's side of a card that is about to come, opened for QEMU."""

    interface: str | None  # None for user networking
    tap_fds: Sequence[int] = ()  # one for each pair of queues
    vhost_fds: Sequence[int] = ()  # as many, or none when QEMU itself carries the packets


@contextlib.contextmanager
def plug(nic: Mapping[str, Any], index: int, count: int, hvparams: Mapping[str, Any],
         layout: argv.Layout, tags: Sequence[str] = (),
         owner_uid: int | None = None) -> Iterator[Plug]:
    """Make, connect and open the interface of a card; what fails inside takes it away again.

    :param index: position of the card among the cards of the guest.
    :param count: number of cards so far; those from ``index`` on move up.
    :raises HypervisorError: nothing is left behind.
    """
    check_mode(nic, layout.name)
    for number in reversed(range(index, count)):
        _move_tap(layout, number, number + 1)
    fds: list[int] = []
    try:
        tap = _connect(nic, index, hvparams, layout, tags, owner_uid)
        if tap is None:
            yield Plug(None)
            return
        try:
            taps = [_open_tap(tap, hvparams) for _ in range(argv.nic_queues(hvparams))]
            fds += taps
            vhosts = ([os.open("/dev/vhost-net", os.O_RDWR | os.O_CLOEXEC) for _ in taps]
                      if argv.wants_vhost(hvparams) and vhost_works() else [])
            fds += vhosts
        except OSError as err:
            raise errors.HypervisorError(
                f"cannot open the interface {tap} of instance {layout.name}: {err.strerror}"
            ) from err
        yield Plug(tap, taps, vhosts)
    except BaseException:
        unplug(layout, index, count + 1)
        raise
    finally:
        for fd in fds:
            os.close(fd)


def unplug(layout: argv.Layout, index: int, count: int) -> None:
    """Remove the interface of the card at ``index``; the cards after it move down.

    :param count: number of cards before.
    """
    path = _tap_file(layout, index)
    with contextlib.suppress(FileNotFoundError):
        _delete([fs.read_file(path).strip()])
        fs.remove_file(path)
    for number in range(index + 1, count):
        _move_tap(layout, number, number - 1)


def _move_tap(layout: argv.Layout, old: int, new: int) -> None:
    # A card with user networking has no file.
    with contextlib.suppress(FileNotFoundError):
        os.rename(_tap_file(layout, old), _tap_file(layout, new))


def vhost_works() -> bool:
    """Whether this kernel can carry a guest's packets itself."""
    return os.access("/dev/vhost-net", os.R_OK | os.W_OK)


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
