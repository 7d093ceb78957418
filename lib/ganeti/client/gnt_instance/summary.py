"""What ``gnt-instance info`` shows on a terminal: an instance on one screen.

State and time since the start, addresses, memory, disks with their replicas and snapshots, and
network interfaces. ``--all-parameters``, and every output which is no terminal, has the whole text
instead (:mod:`ganeti.client.gnt_instance.info`).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import listing, terminal
from ganeti.utils import clock, text

if TYPE_CHECKING:
    from typing import Any

    from ganeti.luxi import client as luxi

    #: Label and text of one line.
    Line = tuple[str, str]

_LABEL_WIDTH = 11


def write(instances: Sequence[Mapping[str, Any]], client: luxi.Client, *, static: bool) -> None:
    """Show instances.

    :param instances: values of the result of ``OP_INSTANCE_QUERY_DATA``.
    :param static: no node was asked.
    """
    snapshots = {} if static else _snapshots([info["name"] for info in instances], client)
    now = time.time()
    width = terminal.width(sys.stdout)
    for index, info in enumerate(instances):
        if index:
            terminal.out("")
        terminal.out(f"{info['name']} {_state(info, now)}")
        for label, line in lines(info, snapshots, static=static):
            for part in _wrapped(f"  {label:<{_LABEL_WIDTH}}", line, width):
                terminal.out(part)
    terminal.out("")
    terminal.out("All parameters: gnt-instance info --all-parameters")


def _snapshots(names: list[str], client: luxi.Client) -> dict[tuple[str, int], list[str]] | None:
    """Return the names of the snapshots by instance and disk; None when they are not known."""
    from ganeti.opcodes.instance import OpInstanceSnapshotList

    try:
        answer = client.run_query(OpInstanceSnapshotList(instances=names).to_dict())
    except errors.GenericError:
        return None
    found: dict[tuple[str, int], list[str]] = {}
    for row in answer["result"]:
        found.setdefault((row["instance"], row["disk"]), []).append(row["snapshot"])
    return None if answer["warnings"] else found


def _state(info: Mapping[str, Any], now: float) -> str:
    """Return what the guest does, for people."""
    if info.get("forthcoming"):
        return "is forthcoming: only its resources are reserved"
    if info.get("halt"):
        halt = info["halt"]
        return f"is halted: {halt['state']} ({halt['why']}). {halt['remedy']}"
    wanted, real = info["config_state"], info["run_state"]
    guest = info.get("guest")
    if real == "up":
        since = guest and guest["started"]
        for_time = f" for {clock.format_span(now - since)}" if since else ""
        marked = "" if wanted == "up" else f", and is marked {wanted}"
        return f"runs on {info['pnode']}{for_time}{marked}"
    if real is None:
        return f"is marked {wanted}; whether it runs is not known"
    if wanted == "up":
        return "does not run, although it is marked up"
    return "is stopped" if wanted == "down" else f"is stopped, and marked {wanted}"


def lines(
    info: Mapping[str, Any], snapshots: Mapping[tuple[str, int], list[str]] | None, *, static: bool
) -> list[Line]:
    """Return the lines below the name of an instance."""
    guest = info.get("guest")
    found: list[Line] = [("Nodes", _nodes(info))]
    if guest is not None:
        found.append(("Addresses", _addresses(info, guest)))
    found += [
        ("Memory", _memory(info, guest)),
        ("System", f"{info['os'] or 'none'}, hypervisor {info['hypervisor']}"),
    ]
    found += _disks(info, snapshots, static=static)
    for index, nic in enumerate(info["nics"]):
        found.append((f"NIC {index}", _nic(nic)))
    if info.get("pending_changes"):
        found.append(
            ("Waiting", f"for a restart by gnt-instance: {', '.join(info['pending_changes'])}")
        )
    if info.get("kept_volumes"):
        found.append(("Kept", info["kept_volumes"][0]["hint"]))
    found.append(
        (
            "Made",
            f"{listing.format_time(info['ctime'])}, changed {listing.format_time(info['mtime'])}",
        )
    )
    return found


def _nodes(info: Mapping[str, Any]) -> str:
    others = "".join(f", {name} (secondary)" for name in info["snodes"])
    return f"{info['pnode']} (primary){others}, group {info['pnode_group_name']}"


def _addresses(info: Mapping[str, Any], guest: Mapping[str, Any]) -> str:
    known = [f"{address} ({source})" for address, source in guest["addresses"]]
    found = {address for address, _ in guest["addresses"]}
    known += [f"{nic[2]} (configured)" for nic in info["nics"] if nic[2] and nic[2] not in found]
    return ", ".join(known) or "not known"


def _memory(info: Mapping[str, Any], guest: Mapping[str, Any] | None) -> str:
    backend = info["be_actual"]
    low, high = backend["minmem"], backend["maxmem"]
    limits = (
        text.format_unit(high)
        if low == high
        else f"{text.format_unit(low)} to " + (text.format_unit(high))
    )
    processors = f"{backend['vcpus']} processor{'s' if backend['vcpus'] != 1 else ''}"
    if guest is None or guest["memory"] == low == high:
        return f"{limits}, {processors}"
    return f"{text.format_unit(guest['memory'])} now, {limits} configured, {processors}"


def _disks(
    info: Mapping[str, Any], snapshots: Mapping[tuple[str, int], list[str]] | None, *, static: bool
) -> list[Line]:
    found: list[Line] = []
    for index, disk in enumerate(info["disks"]):
        size = text.format_unit(disk["size"]) if isinstance(disk["size"], int) else disk["size"]
        parts = [str(size), disk["dev_type"]]
        if disk["name"]:
            parts.insert(0, disk["name"])
        if disk["mode"] != "rw":
            parts.append("read-only")
        replicas = disk.get("replicas")
        if replicas:
            parts.append(replicas["text"])
            if replicas["hint"]:
                parts.append(replicas["hint"])
        if snapshots is None:
            parts.append("snapshots not known")
        else:
            names = snapshots.get((info["name"], index), [])
            if names:
                parts.append(f"snapshot{'s' if len(names) > 1 else ''} {', '.join(names)}")
        found.append((f"Disk {index}", ", ".join(parts)))
    return found or [("Disks", "none")]


def _nic(nic: Sequence[Any]) -> str:
    name, _uuid, ip, mac, mode, link, vlan, _, network = nic[:9]
    parts = [mac, ip or "no address configured"]
    if name:
        parts.insert(0, name)
    if len(nic) > 9:
        parts.append(nic[9])
    where = f"{mode} {link}{f' vlan {vlan}' if vlan else ''}"
    parts.append(f"network {network['name']} ({where})" if network else where)
    return ", ".join(str(part) for part in parts)


def _wrapped(label: str, line: str, width: int) -> list[str]:
    """Return a line in parts which fit into the width, the later ones below the text."""
    import textwrap

    return textwrap.wrap(
        line,
        max(width, 40),
        initial_indent=label,
        subsequent_indent=" " * len(label),
        break_long_words=False,
        break_on_hyphens=False,
    )
