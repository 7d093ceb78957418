"""The output of ``gnt-instance info``, made from the result of ``OP_INSTANCE_QUERY_DATA``.

The functions return ordered keys and values for :func:`ganeti.cli.output.format_info`. The keys and
their order are published.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ganeti import TYPE_CHECKING
from ganeti.cli import listing, output

if TYPE_CHECKING:
    from typing import Any

    from ganeti.cli.output import Pairs

    Number = Callable[[Any], str]

_VNC_BASE_PORT = 5900


def describe(info: Mapping[str, Any], number: Number) -> Pairs:
    """Return the properties of one instance as keys and values.

    :param info: the value for the instance in the result of the opcode.
    :param number: function which formats whole numbers.
    """
    state = f"configured to be {info['config_state']}"
    if info.get("forthcoming"):
        state = "forthcoming, only its resources are reserved"
    elif info.get("run_state") is not None:
        state += f", actual state is {info['run_state']}"
    halt = info.get("halt")
    if halt is not None:
        state += f", halted: {halt['state']} ({halt['why']}). {halt['remedy']}"
    backend = dict(info["be_actual"])
    # The older parameter, which sets both bounds, is published, too.
    backend["memory"] = backend.get("maxmem")
    pairs: Pairs = [
        ("Instance name", info["name"]),
        ("UUID", info["uuid"]),
        ("Serial number", number(info["serial_no"])),
        ("Creation time", listing.format_time(info["ctime"])),
        ("Modification time", listing.format_time(info["mtime"])),
        ("State", state),
        ("Nodes", _nodes(info)),
        ("Operating system", info["os"]),
        (
            "Operating system parameters",
            output.params_with_defaults(info["os_instance"], info["os_actual"], number),
        ),
        ("Allocated network port", number(info["network_port"])),
        ("Hypervisor", info["hypervisor"]),
    ]
    console = _vnc(info)
    if console:
        pairs.append(("console connection", console))
    pairs += [
        (
            "Hypervisor parameters",
            output.params_with_defaults(info["hv_instance"], info["hv_actual"], number),
        ),
        ("Back-end parameters", output.params_with_defaults(info["be_instance"], backend, number)),
        ("NICs", [_nic(index, nic) for index, nic in enumerate(info["nics"])]),
        ("Disk template", info["disk_template"]),
        ("Disks", [_disk(index, disk, number) for index, disk in enumerate(info["disks"])]),
    ]
    if info.get("pending_changes"):
        pairs.append(("Changes which wait for a restart", ", ".join(info["pending_changes"])))
    kept = info.get("kept_volumes")
    if kept:
        pairs += [
            ("Kept volumes", [_kept(volume) for volume in kept]),
            ("How they are removed", kept[0]["hint"]),
        ]
    return pairs


def _nodes(info: Mapping[str, Any]) -> list[Pairs]:
    secondaries = [
        f"{name} (group {group}, group UUID {uuid})"
        for name, group, uuid in zip(
            info["snodes"], info["snodes_group_names"], info["snodes_group_uuids"], strict=False
        )
    ]
    return [
        [
            ("primary", info["pnode"]),
            ("group", f"{info['pnode_group_name']} (UUID {info['pnode_group_uuid']})"),
        ],
        [("secondaries", ", ".join(secondaries))],
    ]


def _vnc(info: Mapping[str, Any]) -> str:
    """Return the address for a VNC viewer; empty without VNC."""
    port = info["network_port"]
    address = info["hv_actual"].get("vnc_bind_address")
    if not address or port is None:
        return ""
    if address == "0.0.0.0":  # noqa: S104 - compared, not bound
        address = info["pnode"]
    if address.startswith("/"):
        return f"vnc:{address}"
    display = f" (display {port - _VNC_BASE_PORT})" if port >= _VNC_BASE_PORT else ""
    return f"vnc to {address}:{port}{display}"


def _nic(index: int, nic: Sequence[Any]) -> Pairs:
    name, uuid, ip, mac, mode, link, vlan, _, network = nic[:9]
    return [
        (f"nic/{index}", ""),
        ("MAC", mac),
        ("IP", ip),
        *([("IPv6", nic[9])] if len(nic) > 9 else []),
        ("mode", mode),
        ("link", link),
        ("vlan", vlan),
        ("network", network["name"] if network else None),
        ("UUID", uuid),
        ("name", name),
    ]


def _disk(index: int | None, disk: Mapping[str, Any], number: Number) -> Pairs:
    """Return one disk, with the devices below it."""
    from ganeti.utils import text

    size = text.format_unit(disk["size"]) if isinstance(disk["size"], int) else str(disk["size"])
    title = f"disk/{index}" if index is not None else "child"
    pairs: Pairs = [
        (title, f"{disk['dev_type']}, size {size}"),
        ("access mode", disk["mode"]),
    ]
    drbd = disk.get("drbd_info")
    if drbd:
        pairs += [
            ("nodeA", f"{drbd['primary_node']}, minor={number(drbd['primary_minor'])}"),
            ("nodeB", f"{drbd['secondary_node']}, minor={number(drbd['secondary_minor'])}"),
            ("port", number(drbd["port"])),
        ]
        if drbd.get("secret") is not None:
            pairs.append(("auth key", "(kept secret)"))
    elif disk["logical_id"] is not None:
        pairs.append(("logical_id", _logical_id(disk["logical_id"])))
    for label, key in (("on primary", "pstatus"), ("on secondary", "sstatus")):
        if disk.get(key):
            pairs.append((label, _device(disk[key], disk["dev_type"], number)))
    replicas = disk.get("replicas")
    if replicas:
        pairs.append(("replicas", replicas["text"]))
        if replicas["hint"]:
            pairs.append(("what to do", replicas["hint"]))
    if disk.get("spindles") is not None:
        pairs.append(("spindles", number(disk["spindles"])))
    pairs += [("name", disk["name"]), ("UUID", disk["uuid"])]
    if disk.get("children"):
        pairs.append(
            (
                "child devices",
                [_disk(position, child, number) for position, child in enumerate(disk["children"])],
            )
        )
    return pairs


def _kept(volume: Mapping[str, Any]) -> Pairs:
    """Return storage which an interrupted operation left."""
    from ganeti.utils import text

    exists = {True: "yes", False: "no", None: "not known"}[volume["exists"]]
    return [
        (volume["node"], f"{volume['name']}, size {text.format_unit(volume['size'])}"),
        ("exists", exists),
    ]


def _logical_id(logical_id: Any) -> str:
    # A volume group and a logical volume are written as VG/LV.
    if isinstance(logical_id, (list, tuple)) and len(logical_id) == 2:
        place, name = map(str, logical_id)
        if not name.startswith("/"):
            return f"{place}/{name}"
    return str(list(logical_id) if isinstance(logical_id, tuple) else logical_id)


def _device(status: Sequence[Any], dev_type: str, number: Number) -> str:
    """Return the state of a block device on a node."""
    path, major, minor, percent, eta_s, degraded, local = (*status, *[None] * 7)[:7]
    text = (
        f"{path} ({'N/A' if major is None else number(major)}:"
        f"{'N/A' if minor is None else number(minor)})"
    )
    if dev_type not in ("drbd", "plain"):
        return text
    if dev_type == "drbd":
        if percent is not None:
            left = f", ETA {number(int(eta_s))}s" if eta_s else ", ETA unknown"
            text += f" *RECOVERING* {percent:.2f}%{left}"
        elif not degraded:
            # A replica which is not connected does not know whether it is in sync.
            text += " in sync"
    if degraded:
        text += ", status *DEGRADED*"
    if local == 3:
        text += " *UNCERTAIN STATE*"
    elif local == 4:
        text += " *MISSING DISK*"
    return text
