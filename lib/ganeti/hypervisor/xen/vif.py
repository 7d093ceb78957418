"""The program ``vif-ganeti``, which Xen runs for each NIC of a guest that appears or disappears.

It connects the interface of the NIC in the mode of the NIC, as for guests under KVM
(:mod:`ganeti.hypervisor.net`), or runs the administrator's program ``xen-vif-bridge`` in the
configuration directory, with the same environment. The record of the guest describes the NIC.

``xl`` passes the number of the domain and of the device in ``XENBUS_PATH``, the interface in
``vif``, and the event as the first argument: ``online`` and ``offline``. A guest with emulated
hardware has two interfaces for each NIC, and the program runs for both: for the emulated one with
``add`` and ``remove`` and the word ``type_if=tap``, and with ``INTERFACE`` besides ``vif``.

Source: xl-network-configuration(5), *script*; Xen, ``tools/hotplug/Linux/vif-common.sh``.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Mapping, Sequence

from ganeti import errors
from ganeti.hypervisor.net import connect as connections
from ganeti.hypervisor.net import script
from ganeti.hypervisor.xen import nics, record
from ganeti.hypervisor.xen.record import INCOMING, Record
from ganeti.utils import fs, process

_TIMEOUT_S = 30.0
_BACKEND = re.compile(r"backend/vif/(?P<domain>[0-9]{1,9})/(?P<device>[0-9]{1,9})", re.ASCII)
_EMULATED = "type_if=tap"
_UP = frozenset(("online", "add"))
_DOWN = frozenset(("offline", "remove"))


def main(argv: Sequence[str] | None = None, env: Mapping[str, str] | None = None) -> int:
    """Run the program; returns its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    variables = dict(os.environ if env is None else env)
    event = next(iter(words), "")
    try:
        if event in _UP:
            bring_up(variables, _EMULATED in words)
        elif event in _DOWN:
            bring_down(variables, _EMULATED in words)
        return 0
    except (errors.GenericError, OSError) as err:
        logging.error("vif-ganeti %s: %s", event, err)
        print(f"vif-ganeti: {err}", file=sys.stderr)
        _tell_xen(variables, "hotplug-error", str(err))
        _tell_xen(variables, "hotplug-status", "error")
        return 1


def interface_of(env: Mapping[str, str], emulated: bool) -> str:
    """Return the interface which an event is about.

    :param emulated: the event is about the interface of the emulated hardware.
    :raises HypervisorError: the environment names none.
    """
    variables = ("INTERFACE", "dev") if emulated else ("vif", "INTERFACE", "dev")
    name = next(filter(None, map(env.get, variables)), "")
    if not name or "/" in name or name.startswith("."):
        raise errors.HypervisorError(f"the environment names no interface: {name!r}")
    return name


def device_of(env: Mapping[str, str]) -> tuple[int, int]:
    """Return the domain and the number of the device which an event is about.

    :raises HypervisorError: the environment does not tell.
    """
    match = _BACKEND.fullmatch(env.get("XENBUS_PATH", ""))
    if match is None:
        raise errors.HypervisorError(
            f"XENBUS_PATH {env.get('XENBUS_PATH', '')!r:.200} is not that of a NIC"
        )
    return int(match["domain"]), int(match["device"])


def find_nic(known: Record, devid: int) -> tuple[int, Mapping[str, object]]:
    """Position and description of the NIC with a number.

    :raises HypervisorError: the guest has none.
    """
    for position, one in enumerate(known.nics):
        if one.devid == devid:
            return position, one.nic
    raise errors.HypervisorError(f"instance {known.name} has no NIC with number {devid}")


def bring_up(env: Mapping[str, str], emulated: bool) -> None:
    """Connect the interface of a NIC."""
    interface = interface_of(env, emulated)
    domain, devid = device_of(env)
    name = process.run(
        ["xenstore-read", f"/local/domain/{domain}/name"], timeout_s=_TIMEOUT_S
    ).stdout.strip()
    known = record.load(name)
    position, nic = find_nic(known, devid)
    guest = nics.guest_network(name, known.tags)
    incoming = known.state == INCOMING
    fs.make_dirs(guest.directory, 0o755)
    if not emulated or not os.path.exists(guest.interface_file(position)):
        fs.write_file(guest.interface_file(position), interface, mode=0o644, sync=False)
    if not (incoming and connections.waits_for_migration(nic)):
        connections.connect(
            interface, position, nic, guest, phase=script.PHASE_PRE if incoming else None
        )
    if not emulated:
        _tell_xen(env, "hotplug-status", "connected")


def bring_down(env: Mapping[str, str], emulated: bool) -> None:
    """Disconnect an interface, if the driver has not done so already."""
    interface = interface_of(env, emulated)
    for name in record.names():
        guest = nics.guest_network(name)
        if os.path.exists(guest.connection_file(interface)):
            connections.disconnect(interface, 0, guest)


def _tell_xen(env: Mapping[str, str], key: str, value: str) -> None:
    path = env.get("XENBUS_PATH", "")
    if _BACKEND.fullmatch(path):
        process.run(["xenstore-write", f"{path}/{key}", value], timeout_s=_TIMEOUT_S, check=False)


if __name__ == "__main__":
    sys.exit(main())
