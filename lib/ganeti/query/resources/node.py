"""Fields of nodes.

Live data ``nodes``: UUID of the node -> its facts, or a mark if they are missing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ganeti.constants import node as node_c
from ganeti.constants import query as query_c
from ganeti.constants.query import (
    KIND_BOOL,
    KIND_NUMBER,
    KIND_OTHER,
    KIND_TEXT,
    KIND_UNIT,
)
from ganeti.objects import Node, fill
from ganeti.query.field import (
    HOSTNAME,
    NODATA,
    UNAVAIL,
    Field,
    Mark,
    Resource,
    attribute,
    common_fields,
)
from ganeti.query.resources import ndparams
from ganeti.query.view import View, by_name

LIVE = "nodes"

# Field, title, kind, doc, name of the fact.
_LIVE_FIELDS = (
    ("bootid", "BootID", KIND_TEXT, "Boot ID, which changes with each boot", "bootid"),
    ("cnodes", "CNodes", KIND_NUMBER, "Number of NUMA domains", "cpu_nodes"),
    ("cnos", "CNOs", KIND_NUMBER, "Number of processors which the node itself uses", "cpu_dom0"),
    ("csockets", "CSockets", KIND_NUMBER, "Number of processor sockets", "cpu_sockets"),
    ("ctotal", "CTotal", KIND_NUMBER, "Number of processors", "cpu_total"),
    ("mfree", "MFree", KIND_UNIT, "Free memory", "memory_free"),
    ("mnode", "MNode", KIND_UNIT, "Memory which the node itself uses", "memory_dom0"),
    ("mtotal", "MTotal", KIND_UNIT, "Total memory", "memory_total"),
    ("dfree", "DFree", KIND_UNIT, "Free space for disks", "storage_free"),
    ("dtotal", "DTotal", KIND_UNIT, "Total space for disks", "storage_size"),
    ("storage", "Storage", KIND_OTHER, "Storage units with free and total space", "storage"),
    ("spfree", "SpFree", KIND_NUMBER, "Free spindles", "spindles_free"),
    ("sptotal", "SpTotal", KIND_NUMBER, "Total spindles", "spindles_total"),
)


def _fact(name: str) -> Callable[[View, Node], Any]:
    def get(view: View, node: Node) -> Any:
        facts = view.live[LIVE].get(node.uuid, NODATA)
        if isinstance(facts, Mark):
            return facts
        value = facts.get(name)
        return NODATA if value is None else value

    return get


def role(view: View, node: Node) -> str:
    """Return the letter of the role of a node."""
    if node.uuid == view.cluster.master_node:
        return node_c.ROLE_MASTER
    if node.master_candidate:
        return node_c.ROLE_CANDIDATE
    if node.drained:
        return node_c.ROLE_DRAINED
    if node.offline:
        return node_c.ROLE_OFFLINE
    return node_c.ROLE_REGULAR


def _powered(view: View, node: Node) -> Any:
    # The state is unknown without an out-of-band program.
    return node.powered if view.filled_nd(node).get("oob_program") else UNAVAIL


def _maintenance(view: View, node: Node) -> Any:
    mark = node.maintenance
    if mark is None:
        return UNAVAIL
    if mark.returning:
        return node_c.MAINTENANCE_RETURNING
    return node_c.MAINTENANCE_LEAVING if mark.ready_at is None else node_c.MAINTENANCE_READY


def _maintenance_record(view: View, node: Node) -> Any:
    mark = node.maintenance
    if mark is None:
        return UNAVAIL
    known = view.config.instances

    def names(uuids: tuple[str, ...]) -> list[str]:
        return sorted(known[uuid].name for uuid in uuids if uuid in known)

    return {
        "since": mark.since,
        "ready_at": mark.ready_at,
        "drained": mark.drained,
        "master_candidate": mark.master_candidate,
        "primaries": names(mark.primaries),
        "secondaries": names(mark.secondaries),
        "stopped": names(mark.stopped),
    }


def _auto_failover(view: View, node: Node) -> Any:
    report = node.auto_failover
    if report is None:
        return UNAVAIL
    if not report.fenced:
        return "not fenced"
    return "partly" if report.left else "started"


def _auto_failover_record(view: View, node: Node) -> Any:
    report = node.auto_failover
    if report is None:
        return UNAVAIL
    known = view.config.instances
    return {
        "at": report.at,
        "fenced": report.fenced,
        "reason": report.reason,
        "started": sorted(known[uuid].name for uuid in report.started if uuid in known),
        "left": {known[uuid].name: reason for uuid, reason in report.left.items() if uuid in known},
    }


def _watchdog(view: View, node: Node) -> Any:
    promise = node.watchdog
    if promise is None:
        return UNAVAIL
    if promise.left_at is not None:
        return "left behind"
    if promise.token:
        return f"armed ({promise.timeout_s} s)"
    return f"not armed: {promise.reason}"


def _group(key: str) -> Callable[[View, Node], Any]:
    def get(view: View, node: Node) -> Any:
        group = view.config.nodegroups.get(node.group)
        return UNAVAIL if group is None else getattr(group, key)

    return get


def _administrator_state(
    key: str, filled: Callable[..., dict[str, Any]]
) -> Callable[[View, Node], Any]:
    """Return UNAVAIL if the node and its group override nothing, as Ganeti does."""

    def get(view: View, node: Node) -> Any:
        group = view.config.nodegroups.get(node.group)
        own = getattr(node, key) or (group is not None and getattr(group, key))
        return filled(view.cluster, group, node) if own else UNAVAIL

    return get


_FIELDS = [
    Field(
        "name",
        "Node",
        KIND_TEXT,
        "Name of the node",
        attribute("name"),
        compare=HOSTNAME,
        names="nodes",
    ),
    Field("pip", "PrimaryIP", KIND_TEXT, "Primary IP address", attribute("primary_ip")),
    Field(
        "sip",
        "SecondaryIP",
        KIND_TEXT,
        "Secondary IP address, for replication",
        attribute("secondary_ip"),
    ),
    Field("group", "Group", KIND_TEXT, "Node group", _group("name")),
    Field("group.uuid", "GroupUUID", KIND_TEXT, "UUID of the node group", _group("uuid")),
    Field(
        "role",
        "Role",
        KIND_TEXT,
        "Role: M master, C master candidate, R regular, D drained, O offline",
        role,
    ),
    Field(
        "master",
        "IsMaster",
        KIND_BOOL,
        "Whether the node is the master",
        lambda view, node: node.uuid == view.cluster.master_node,
    ),
    Field(
        "master_candidate",
        "MasterC",
        KIND_BOOL,
        "Whether the node is a master candidate",
        attribute("master_candidate"),
    ),
    Field(
        "master_capable",
        "MasterCapable",
        KIND_BOOL,
        "Whether the node may become master",
        attribute("master_capable"),
    ),
    Field(
        "vm_capable",
        "VMCapable",
        KIND_BOOL,
        "Whether the node may host instances",
        attribute("vm_capable"),
    ),
    Field(
        "drained",
        "Drained",
        KIND_BOOL,
        "Whether the node is drained: it gets no instances",
        attribute("drained"),
    ),
    Field(
        "offline", "Offline", KIND_BOOL, "Whether the node is out of reach", attribute("offline")
    ),
    Field(
        "maintenance",
        "Maintenance",
        KIND_TEXT,
        "Maintenance: leaving (instances leave the node), ready (it may be switched off) or"
        " returning (instances come back)",
        _maintenance,
    ),
    Field(
        "maintenance.record",
        "MaintenanceRecord",
        KIND_OTHER,
        "What the end of the maintenance brings back: time of the start, former flags, and names of"
        " instances",
        _maintenance_record,
    ),
    Field(
        "auto_failover",
        "AutoFailover",
        KIND_TEXT,
        "What the automatic failover of instances did about the node: started (its instances start"
        " elsewhere), partly (some were left), or not fenced",
        _auto_failover,
    ),
    Field(
        "auto_failover.record",
        "AutoFailoverRecord",
        KIND_OTHER,
        "The same with time, reason, and names of instances",
        _auto_failover_record,
    ),
    Field(
        "watchdog",
        "Watchdog",
        KIND_TEXT,
        "Whether the hardware watchdog of the node restarts it when it is cut off: armed, with the"
        " timeout of the device; left behind; or not armed, with the reason",
        _watchdog,
    ),
    Field("powered", "Powered", KIND_BOOL, "Whether the node is recorded as powered", _powered),
    Field(
        "hv_state",
        "HypervisorState",
        KIND_OTHER,
        "Resources of the hypervisor which the administrator set",
        _administrator_state("hv_state_static", fill.fill_hv_state),
    ),
    Field(
        "disk_state",
        "DiskState",
        KIND_OTHER,
        "Resources of storage which the administrator set",
        _administrator_state("disk_state_static", fill.fill_disk_state),
    ),
    Field(
        "ndparams",
        "NodeParameters",
        KIND_OTHER,
        "All node parameters",
        lambda view, node: view.filled_nd(node),
    ),
    Field(
        "custom_ndparams",
        "CustomNodeParameters",
        KIND_OTHER,
        "Node parameters which the node overrides",
        attribute("ndparams"),
    ),
    Field(
        "pinst_cnt",
        "Pinst",
        KIND_NUMBER,
        "Number of primary instances",
        lambda view, node: len(view.primaries(node)),
    ),
    Field(
        "pinst_list",
        "PriInstances",
        KIND_OTHER,
        "Names of the primary instances",
        lambda view, node: [inst.name for inst in by_name(view.primaries(node))],
    ),
    Field(
        "sinst_cnt",
        "Sinst",
        KIND_NUMBER,
        "Number of secondary instances",
        lambda view, node: len(view.secondaries(node)),
    ),
    Field(
        "sinst_list",
        "SecInstances",
        KIND_OTHER,
        "Names of the secondary instances",
        lambda view, node: [inst.name for inst in by_name(view.secondaries(node))],
    ),
]

RESOURCE = Resource(
    query_c.NODE,
    [
        *_FIELDS,
        *common_fields("node"),
        *ndparams.fields(lambda view, node: view.filled_nd(node)),
        *(
            Field(name, title, kind, doc, _fact(fact), live=LIVE)
            for name, title, kind, doc, fact in _LIVE_FIELDS
        ),
    ],
    table="nodes",
)
