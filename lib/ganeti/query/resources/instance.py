"""Fields of instances.

Live data, all by the UUID of the instance: ``instances``: :class:`LiveInstance`; ``consoles``: how
to open the console; ``details``: ``started`` and ``addresses``, as ``wire.calls.GUEST_DETAILS``
returns them, None for a guest which does not run, or a mark.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from ganeti.constants import disk as disk_c
from ganeti.constants import hv, net
from ganeti.constants import instance as instance_c
from ganeti.constants import query as query_c
from ganeti.constants.query import (
    KIND_BOOL,
    KIND_NUMBER,
    KIND_OTHER,
    KIND_TEXT,
    KIND_TIMESTAMP,
    KIND_UNIT,
)
from ganeti.objects import Instance, hypervisors
from ganeti.objects import fill as object_fill
from ganeti.objects import halt as halts
from ganeti.objects.hvparams import TYPES as HV_TYPES
from ganeti.query.field import (
    HOSTNAME,
    NODATA,
    OFFLINE,
    UNAVAIL,
    Field,
    Resource,
    attribute,
    common_fields,
    maybe,
)
from ganeti.query.resources.ndparams import KINDS
from ganeti.query.view import View

LIVE = "instances"
CONSOLES = "consoles"
DETAILS = "details"


class LiveInstance(NamedTuple):
    """The state of a guest, as the nodes report it.

    :ivar info: ``memory`` (MiB), ``state`` (see ``constants.hv.STATE_*``), ``vcpus``, ``time``
        (seconds), and why it is halted (:mod:`ganeti.objects.halt`); None if no node has the guest.
    :ivar wrong_node: the guest is not on its primary node.
    :ivar offline: the primary node is marked as offline.
    :ivar failed: the primary node did not answer.
    """

    info: dict[str, Any] | None = None
    wrong_node: bool = False
    offline: bool = False
    failed: bool = False


def status(view: View, instance: Instance) -> str:
    """Return the status of an instance, from its wanted and its real state."""
    live = _live(view, instance)
    user_shutdown = view.cluster.enabled_user_shutdown
    wanted = instance.admin_state
    if live.offline:
        return instance_c.STATUS_NODEOFFLINE
    if live.failed:
        return instance_c.STATUS_NODEDOWN
    if live.info is not None:
        if live.wrong_node:
            return instance_c.STATUS_WRONGNODE
        halt = halts.of_facts(live.info)
        if live.info.get("state", hv.STATE_RUNNING) == hv.STATE_RUNNING:
            if wanted != instance_c.ADMIN_UP:
                return instance_c.STATUS_ERRORUP
            stopped = halt is not None and halt.is_fault
            return instance_c.STATUS_ERRORDOWN if stopped else instance_c.STATUS_RUNNING
        if wanted == instance_c.ADMIN_UP:
            if halt is not None:
                return instance_c.STATUS_ERRORDOWN
            # If the hypervisor has this parameter, it decides.
            by_user = user_shutdown and (
                "user_shutdown" not in hypervisors.of(instance.hypervisor).parameters
                or view.filled_hv(instance).get("user_shutdown", False)
            )
            return instance_c.STATUS_USERDOWN if by_user else instance_c.STATUS_ERRORDOWN
        return instance_c.STATUS_ADMINDOWN
    if wanted == instance_c.ADMIN_UP:
        return instance_c.STATUS_ERRORDOWN
    if wanted == instance_c.ADMIN_DOWN:
        by_user = user_shutdown and instance.admin_state_source == instance_c.SOURCE_USER
        return instance_c.STATUS_USERDOWN if by_user else instance_c.STATUS_ADMINDOWN
    if instance.forthcoming:
        return instance_c.STATUS_ADMINDOWN
    return instance_c.STATUS_ADMINOFFLINE


_NOT_ASKED = LiveInstance(failed=True)


def _live(view: View, instance: Instance) -> LiveInstance:
    live: LiveInstance = view.live[LIVE].get(instance.uuid, _NOT_ASKED)
    return live


def _oper_state(view: View, instance: Instance) -> Any:
    live = _live(view, instance)
    if live.offline:
        return OFFLINE
    if live.failed:
        return NODATA
    return live.info is not None and live.info.get("state", hv.STATE_RUNNING) == hv.STATE_RUNNING


def _guest_state(view: View, instance: Instance) -> Any:
    live = _live(view, instance)
    if live.offline:
        return OFFLINE
    if live.failed:
        return NODATA
    if live.info is None:
        return UNAVAIL
    halt = halts.of_facts(live.info)
    if halt is not None:
        return halt.state
    runs = live.info.get("state", hv.STATE_RUNNING) == hv.STATE_RUNNING
    return instance_c.GUEST_RUNNING if runs else instance_c.GUEST_SHUTDOWN


def _oper(key: str) -> Callable[[View, Instance], Any]:
    def get(view: View, instance: Instance) -> Any:
        live = _live(view, instance)
        if live.offline:
            return OFFLINE
        if live.failed:
            return NODATA
        return UNAVAIL if live.info is None else live.info.get(key, NODATA)

    return get


def _details(view: View, instance: Instance) -> Any:
    return None if instance.forthcoming else view.live[DETAILS].get(instance.uuid, NODATA)


def _uptime(view: View, instance: Instance) -> Any:
    found = _details(view, instance)
    if not isinstance(found, dict):
        return UNAVAIL if found is None else found
    # The clocks of two machines differ a little.
    return NODATA if found["started"] is None else max(int(time.time() - found["started"]), 0)


def _addresses(view: View, instance: Instance) -> Any:
    found = _details(view, instance)
    known = [address for address, _source in found["addresses"]] if isinstance(found, dict) else []
    configured = [address for nic in instance.nics for address in (nic.ip, nic.ip6) if address]
    addresses = list(dict.fromkeys([*known, *configured]))
    return addresses or (UNAVAIL if found is None or isinstance(found, dict) else found)


def _console(view: View, instance: Instance) -> Any:
    return view.live[CONSOLES].get(instance.uuid, NODATA)


# -- parts of an instance: the same value as one list, and by index ------------------------------


def _indexed(
    prefix: str,
    count: int,
    title: str,
    kind: str,
    doc: str,
    values: Callable[[View, Instance], list[Any]],
) -> list[Field]:
    """Return fields ``prefix/0``, ``prefix/1``, ...; without a value they are unavailable."""

    def reader(place: int) -> Callable[[View, Instance], Any]:
        def get(view: View, instance: Instance) -> Any:
            found = values(view, instance)
            return maybe(found[place]) if place < len(found) else UNAVAIL

        return get

    return [
        Field(f"{prefix}/{place}", f"{title}/{place}", kind, f"{doc} {place}", reader(place))
        for place in range(count)
    ]


def _alias(name: str, fields: list[Field]) -> Field:
    """Return a field which is an older name of the first of some fields."""
    first = fields[0]
    return Field(
        name, first.title, first.kind, f"{first.doc} (older name of {first.name})", first.get
    )


def _nic_attr(name: str) -> Callable[[View, Instance], list[Any]]:
    return lambda view, instance: [getattr(nic, name) for nic in instance.nics]


def _nic_param(name: str) -> Callable[[View, Instance], list[Any]]:
    return lambda view, instance: [
        params.get(name) or None for params in view.filled_nics(instance)
    ]


def _nic_bridges(view: View, instance: Instance) -> list[Any]:
    return [
        params["link"] if params.get("mode") == net.NIC_MODE_BRIDGED else None
        for params in view.filled_nics(instance)
    ]


def _nic_network_names(view: View, instance: Instance) -> list[Any]:
    return [view.network_name(nic.network) for nic in instance.nics]


def _disk_attr(name: str) -> Callable[[View, Instance], list[Any]]:
    return lambda view, instance: [getattr(disk, name) for disk in view.disks(instance)]


_NIC_PARTS = (
    ("nic.ip", "NicIP", "IP address of NIC", _nic_attr("ip")),
    ("nic.ip6", "NicIP6", "Further IPv6 address of NIC", _nic_attr("ip6")),
    ("nic.mac", "NicMAC", "MAC address of NIC", _nic_attr("mac")),
    ("nic.name", "NicName", "Name of NIC", _nic_attr("name")),
    ("nic.uuid", "NicUUID", "UUID of NIC", _nic_attr("uuid")),
    ("nic.mode", "NicMode", "Mode of NIC", _nic_param("mode")),
    ("nic.link", "NicLink", "Link of NIC", _nic_param("link")),
    ("nic.vlan", "NicVLAN", "VLAN of NIC", _nic_param("vlan")),
    ("nic.bridge", "NicBridge", "Bridge of NIC", _nic_bridges),
    ("nic.network", "NicNetwork", "UUID of the network of NIC", _nic_attr("network")),
    ("nic.network.name", "NicNetworkName", "Name of the network of NIC", _nic_network_names),
)
_DISK_PARTS = (
    ("disk.size", "Disk", KIND_UNIT, "Size of disk", _disk_attr("size")),
    ("disk.spindles", "DiskSpindles", KIND_NUMBER, "Spindles of disk", _disk_attr("spindles")),
    ("disk.name", "DiskName", KIND_TEXT, "Name of disk", _disk_attr("name")),
    ("disk.uuid", "DiskUUID", KIND_TEXT, "UUID of disk", _disk_attr("uuid")),
)


def _nic_fields() -> list[Field]:
    by_prefix = {
        prefix: _indexed(prefix, net.MAX_NICS, title, KIND_TEXT, doc, values)
        for prefix, title, doc, values in _NIC_PARTS
    }
    lists = (
        ("nic.ips", "NIC_IPs", "IP addresses of the NICs", _nic_attr("ip")),
        ("nic.ip6s", "NIC_IP6s", "Further IPv6 addresses of the NICs", _nic_attr("ip6")),
        ("nic.macs", "NIC_MACs", "MAC addresses of the NICs", _nic_attr("mac")),
        ("nic.names", "NIC_Names", "Names of the NICs", _nic_attr("name")),
        ("nic.uuids", "NIC_UUIDs", "UUIDs of the NICs", _nic_attr("uuid")),
        ("nic.modes", "NIC_modes", "Modes of the NICs", _nic_param("mode")),
        ("nic.links", "NIC_links", "Links of the NICs", _nic_param("link")),
        ("nic.vlans", "NIC_VLANs", "VLANs of the NICs", _nic_param("vlan")),
        ("nic.bridges", "NIC_bridges", "Bridges of the NICs", _nic_bridges),
        ("nic.networks", "NIC_networks", "UUIDs of the networks of the NICs", _nic_attr("network")),
        (
            "nic.networks.names",
            "NIC_networks_names",
            "Names of the networks of the NICs",
            _nic_network_names,
        ),
    )
    return [
        Field(
            "nic.count",
            "NICs",
            KIND_NUMBER,
            "Number of NICs",
            lambda view, instance: len(instance.nics),
        ),
        *(Field(name, title, KIND_OTHER, doc, values) for name, title, doc, values in lists),
        *(field for fields in by_prefix.values() for field in fields),
        _alias("ip", by_prefix["nic.ip"]),
        _alias("mac", by_prefix["nic.mac"]),
        _alias("bridge", by_prefix["nic.bridge"]),
        _alias("nic_mode", by_prefix["nic.mode"]),
        _alias("nic_link", by_prefix["nic.link"]),
        _alias("nic_network", by_prefix["nic.network"]),
    ]


def _disk_fields() -> list[Field]:
    by_prefix = {
        prefix: _indexed(prefix, disk_c.MAX_DISKS, title, kind, doc, values)
        for prefix, title, kind, doc, values in _DISK_PARTS
    }
    sizes = by_prefix["disk.size"]
    return [
        Field(
            "disk.count",
            "Disks",
            KIND_NUMBER,
            "Number of disks",
            lambda view, instance: len(instance.disks),
        ),
        Field(
            "disk.sizes", "Disk_sizes", KIND_OTHER, "Sizes of the disks in MiB", _disk_attr("size")
        ),
        Field(
            "disk.spindles",
            "Disk_spindles",
            KIND_OTHER,
            "Spindles of the disks",
            _disk_attr("spindles"),
        ),
        Field("disk.names", "Disk_names", KIND_OTHER, "Names of the disks", _disk_attr("name")),
        Field("disk.uuids", "Disk_UUIDs", KIND_OTHER, "UUIDs of the disks", _disk_attr("uuid")),
        *(field for fields in by_prefix.values() for field in fields),
        Field(
            "sda_size",
            sizes[0].title,
            KIND_UNIT,
            "Size of disk 0 (older name of disk.size/0)",
            sizes[0].get,
        ),
        Field(
            "sdb_size",
            sizes[1].title,
            KIND_UNIT,
            "Size of disk 1 (older name of disk.size/1)",
            sizes[1].get,
        ),
    ]


def _disk_usage(view: View, instance: Instance) -> int:
    """Return the space in MiB which the disks use on one node, including metadata."""
    return sum(disk.space_mib for disk in view.disks(instance))


# -- parameters ----------------------------------------------------------------------------------

_HV_TITLES = {
    "acpi": "ACPI",
    "boot_order": "Boot_order",
    "cdrom_image_path": "CDROM_image_path",
    "cpu_type": "cpu_type",
    "disk_type": "Disk_type",
    "initrd_path": "Initrd_path",
    "kernel_path": "Kernel_path",
    "nic_type": "NIC_type",
    "pae": "PAE",
    "pci_pass": "pci_pass",
    "vnc_bind_address": "VNC_bind_address",
}
_BE_TITLES = {
    "auto_balance": "Auto_balance",
    "maxmem": "ConfigMaxMem",
    "minmem": "ConfigMinMem",
    "vcpus": "ConfigVCPUs",
}


def _hv_param(name: str) -> Callable[[View, Instance], Any]:
    return lambda view, instance: maybe(view.filled_hv(instance).get(name))


def _be_param(name: str) -> Callable[[View, Instance], Any]:
    return lambda view, instance: view.filled_be(instance).get(name, UNAVAIL)


def _parameter_fields() -> list[Field]:
    return [*_single_parameters(), *_parameter_groups()]


def _single_parameters() -> list[Field]:
    """Return the fields of single hypervisor and backend parameters."""
    return [
        *(
            Field(
                f"hv/{name}",
                _HV_TITLES.get(name, f"hv/{name}"),
                KINDS[kind],
                f"Hypervisor parameter {name}",
                _hv_param(name),
            )
            for name, kind in sorted(HV_TYPES.items())
            if name not in hv.GLOBAL_PARAMS
        ),
        *(
            Field(
                f"be/{name}",
                _BE_TITLES.get(name, f"be/{name}"),
                KINDS[kind],
                f"Backend parameter {name}",
                _be_param(name),
            )
            for name, kind in instance_c.BE_PARAM_TYPES.items()
        ),
        Field(
            "be/memory",
            "ConfigMaxMem",
            KIND_UNIT,
            "Maximum memory of the instance (older name of be/maxmem)",
            _be_param("maxmem"),
        ),
        Field(
            "vcpus",
            "ConfigVCPUs",
            KIND_NUMBER,
            "Number of virtual processors (older name of be/vcpus)",
            _be_param("vcpus"),
        ),
    ]


def _parameter_groups() -> list[Field]:
    """Return the fields with all parameters of a kind: the filled ones, and the own ones."""
    return [
        Field(
            "beparams",
            "BackendParameters",
            KIND_OTHER,
            "All backend parameters",
            lambda view, instance: view.filled_be(instance),
        ),
        Field(
            "hvparams",
            "HypervisorParameters",
            KIND_OTHER,
            "All hypervisor parameters except those of the whole cluster",
            lambda view, instance: view.filled_hv(instance),
        ),
        Field(
            "osparams",
            "OpSysParameters",
            KIND_OTHER,
            "All OS parameters except the private ones",
            lambda view, instance: object_fill.fill_osparams(
                view.cluster, instance.os, instance.osparams
            ),
        ),
        Field(
            "custom_beparams",
            "CustomBackendParameters",
            KIND_OTHER,
            "Backend parameters which the instance overrides",
            attribute("beparams"),
        ),
        Field(
            "custom_hvparams",
            "CustomHypervisorParameters",
            KIND_OTHER,
            "Hypervisor parameters which the instance overrides",
            attribute("hvparams"),
        ),
        Field(
            "custom_osparams",
            "CustomOpSysParameters",
            KIND_OTHER,
            "OS parameters which the instance overrides",
            attribute("osparams"),
        ),
        Field(
            "custom_nicparams",
            "CustomNicParameters",
            KIND_OTHER,
            "NIC parameters which each NIC overrides",
            lambda view, instance: [nic.nicparams for nic in instance.nics],
        ),
    ]


# -- where it is ---------------------------------------------------------------------------------


def _pnode_group(key: str) -> Callable[[View, Instance], Any]:
    def get(view: View, instance: Instance) -> Any:
        group = view.group_of(instance.primary_node)
        return UNAVAIL if group is None else getattr(group, key)

    return get


def _snodes(view: View, instance: Instance) -> list[str]:
    return [view.node_name(uuid) for uuid in view.secondary_nodes(instance)]


def _snodes_groups(key: str) -> Callable[[View, Instance], Any]:
    def get(view: View, instance: Instance) -> Any:
        groups = [view.group_of(uuid) for uuid in view.secondary_nodes(instance)]
        return [getattr(group, key) for group in groups if group is not None]

    return get


_FIELDS = [
    Field(
        "name",
        "Instance",
        KIND_TEXT,
        "Name of the instance",
        attribute("name"),
        compare=HOSTNAME,
        names="instances",
    ),
    Field("os", "OS", KIND_TEXT, "Operating system", attribute("os")),
    Field("hypervisor", "Hypervisor", KIND_TEXT, "Hypervisor", attribute("hypervisor")),
    Field(
        "network_port",
        "Network_port",
        KIND_OTHER,
        "TCP port of the graphical console, if any",
        attribute("network_port"),
    ),
    Field(
        "disk_template",
        "Disk_template",
        KIND_TEXT,
        "Disk template",
        lambda view, instance: object_fill.disk_template(view.disks(instance)),
    ),
    Field(
        "disks_active",
        "DisksActive",
        KIND_BOOL,
        "Whether the disks are kept active",
        attribute("disks_active"),
    ),
    Field(
        "importing_since",
        "ImportingSince",
        KIND_TIMESTAMP,
        "When the import from another cluster, or the copy, began, while it has not ended",
        lambda view, instance: (
            UNAVAIL if instance.importing_since is None else instance.importing_since
        ),
    ),
    Field(
        "pending_changes",
        "PendingChanges",
        KIND_OTHER,
        "Settings and devices whose changes the running guest gets only at its next start by the"
        " cluster",
        lambda view, instance: sorted(instance.pending_changes or ()) or UNAVAIL,
    ),
    Field(
        "disk_usage",
        "DiskUsage",
        KIND_UNIT,
        "Space which the disks use on each of their nodes",
        _disk_usage,
    ),
    Field(
        "forthcoming",
        "Forthcoming",
        KIND_BOOL,
        "Whether the instance is a forthcoming one",
        lambda view, instance: bool(instance.forthcoming),
    ),
    Field(
        "admin_state",
        "InstanceState",
        KIND_TEXT,
        "Wanted state: up, down or offline",
        attribute("admin_state"),
    ),
    Field(
        "admin_state_source",
        "InstanceStateSource",
        KIND_TEXT,
        "Source of the wanted state: admin or user",
        attribute("admin_state_source"),
    ),
    Field(
        "admin_up",
        "Autostart",
        KIND_BOOL,
        "Whether the instance should run",
        lambda view, instance: instance.admin_state == instance_c.ADMIN_UP,
    ),
    Field(
        "pnode",
        "Primary_node",
        KIND_TEXT,
        "Name of the primary node",
        lambda view, instance: view.node_name(instance.primary_node),
        compare=HOSTNAME,
        names="nodes",
    ),
    Field(
        "pnode.group",
        "PrimaryNodeGroup",
        KIND_TEXT,
        "Node group of the primary node",
        _pnode_group("name"),
    ),
    Field(
        "pnode.group.uuid",
        "PrimaryNodeGroupUUID",
        KIND_TEXT,
        "UUID of the node group of the primary node",
        _pnode_group("uuid"),
    ),
    Field("snodes", "Secondary_Nodes", KIND_OTHER, "Names of the secondary nodes", _snodes),
    Field(
        "snodes.group",
        "SecondaryNodesGroups",
        KIND_OTHER,
        "Node groups of the secondary nodes",
        _snodes_groups("name"),
    ),
    Field(
        "snodes.group.uuid",
        "SecondaryNodesGroupsUUID",
        KIND_OTHER,
        "UUIDs of the node groups of the secondary nodes",
        _snodes_groups("uuid"),
    ),
    Field(
        "status",
        "Status",
        KIND_TEXT,
        "What the instance does: running, ADMIN_down (stopped as wanted), ADMIN_offline, "
        "USER_down (shut down from inside), ERROR_down (should run, and is down or halted by an "
        "error), ERROR_up (should not run), ERROR_wrongnode (runs elsewhere), "
        "ERROR_nodedown or ERROR_nodeoffline (its node cannot tell)",
        status,
        live=LIVE,
    ),
    Field(
        "oper_state",
        "Running",
        KIND_BOOL,
        "Whether the instance runs, or is halted and may run on",
        _oper_state,
        live=LIVE,
    ),
    Field(
        "guest_state",
        "Guest_State",
        KIND_TEXT,
        "What the hypervisor says of the guest: running, shutdown (it has ended by itself), or why"
        " it lives and does not run, such as io-error, paused, crashed or frozen",
        _guest_state,
        live=LIVE,
    ),
    Field(
        "oper_ram",
        "Memory",
        KIND_UNIT,
        "Present memory of the guest",
        _oper("memory"),
        live=LIVE,
    ),
    Field(
        "oper_vcpus",
        "VCPUs",
        KIND_NUMBER,
        "Present number of virtual processors of the guest",
        _oper("vcpus"),
        live=LIVE,
    ),
    Field(
        "uptime",
        "Uptime",
        KIND_NUMBER,
        "Seconds since the guest was started on its node",
        _uptime,
        live=DETAILS,
    ),
    Field(
        "addresses",
        "Addresses",
        KIND_OTHER,
        "IP addresses of the guest: those of its guest agent, of leases on its node, those to which"
        " its node has talked, and those of its NICs",
        _addresses,
        live=DETAILS,
    ),
    Field("console", "Console", KIND_OTHER, "How to open the console", _console, live=CONSOLES),
]

RESOURCE = Resource(
    query_c.INSTANCE,
    [*_FIELDS, *common_fields("instance"), *_nic_fields(), *_disk_fields(), *_parameter_fields()],
    table="instances",
    # Ganeti design 2.0, *Opcode changes*.
    aliases={"beparam/": "be/", "hvparam/": "hv/"},
)
