"""Nodes: membership, roles, evacuation, storage units."""

from __future__ import annotations

from ganeti import ht
from ganeti.opcodes import types
from ganeti.opcodes.base import QUERY, OpCode, opcode, param

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


@opcode(summary="node_name")
class OpNodeAdd(OpCode):
    """Add a node, or take it in again. Result: None."""

    node_name: str = param(ht.NonEmptyString, "Node")
    hv_state: dict[str, Any] | None = param(
        types.MaybeObject,
        "Resources that the hypervisor reports wrongly, set by hand",
        default=None,
    )
    disk_state: dict[str, Any] | None = param(
        types.MaybeObject, "Resources of storage, set by hand", default=None
    )
    primary_ip: str | None = param(
        types.MaybeString, "Address; from its name if not given", default=None
    )
    secondary_ip: str | None = param(types.MaybeString, "Address for replication", default=None)
    readd: bool = param(ht.Bool, "Add a node again which is known already", default=False)
    group: str | None = param(types.MaybeString, "Node group to join", default=None)
    master_capable: bool | None = param(
        ht.Maybe(ht.Bool), "Whether the node may become master", default=None
    )
    vm_capable: bool | None = param(
        ht.Maybe(ht.Bool), "Whether the node may host instances", default=None
    )
    ndparams: dict[str, Any] | None = param(types.MaybeObject, "Node parameters", default=None)
    node_setup: bool = param(ht.Bool, "Whether SSH was set up on the node", default=False)
    RESULT = ht.NoneType


@opcode(summary="node_name")
class OpNodeEvacuate(OpCode):
    """Move instances away from a node. Result: jobs."""

    early_release: bool = param(
        ht.Bool, "Give up locks as soon as the new disks are in step", default=False
    )
    node_name: str = param(ht.NonEmptyString, "Node")
    node_uuid: str | None = param(
        types.MaybeString, "UUID of the node; filled in by the master", default=None
    )
    remote_node: str | None = param(types.MaybeString, "New secondary node", default=None)
    remote_node_uuid: str | None = param(
        types.MaybeString, "UUID of the new secondary node; filled in by the master", default=None
    )
    iallocator: str | None = param(
        types.MaybeString, "Allocator which decides where to", default=None
    )
    mode: str = param(
        types.EvacMode, "Which instances have to leave: those primary here, secondary here, or all"
    )
    ignore_soft_errors: bool | None = param(
        ht.Maybe(ht.Bool), "Go on where an allocator only warns", default=None
    )
    RESULT = types.JobIdListOnly


@opcode(summary="node_name")
class OpNodeMigrate(OpCode):
    """Migrate all primary instances of a node. Result: jobs."""

    node_name: str = param(ht.NonEmptyString, "Node")
    node_uuid: str | None = param(
        types.MaybeString, "UUID of the node; filled in by the master", default=None
    )
    mode: str | None = param(
        ht.Maybe(types.MigrationMode),
        "Live or not; the default of the hypervisor if not given",
        default=None,
    )
    live: bool | None = param(ht.Maybe(ht.Bool), "Older spelling of mode", default=None)
    target_node: str | None = param(
        types.MaybeString,
        "Node to migrate to, where the disks are seen by several nodes",
        default=None,
    )
    target_node_uuid: str | None = param(
        types.MaybeString, "UUID of that node; filled in by the master", default=None
    )
    allow_runtime_changes: bool = param(
        ht.Bool, "Reduce memory when the target has too little", default=True
    )
    ignore_ipolicy: bool = param(
        ht.Bool, "Accept an instance outside the bounds of its group", default=False
    )
    iallocator: str | None = param(
        types.MaybeString, "Allocator which decides where to", default=None
    )
    RESULT = types.JobIdListOnly


@opcode(summary="node_name")
class OpNodeModifyStorage(OpCode):
    """Change a storage unit of a node. Result: None."""

    node_name: str = param(ht.NonEmptyString, "Node")
    node_uuid: str | None = param(
        types.MaybeString, "UUID of the node; filled in by the master", default=None
    )
    storage_type: str = param(types.StorageType, "Kind of storage")
    name: str | None = param(types.MaybeString, "Name of the storage unit", default=None)
    changes: dict[str, Any] = param(ht.Dict, "What to change")
    RESULT = ht.NoneType


@opcode(summary="node_name")
class OpNodePowercycle(OpCode):
    """Reset a node the hard way. Result: None, or a text."""

    node_name: str = param(ht.NonEmptyString, "Node")
    node_uuid: str | None = param(
        types.MaybeString, "UUID of the node; filled in by the master", default=None
    )
    force: bool = param(ht.Bool, "Also for the master node", default=False)
    RESULT = types.MaybeString


@opcode(kind=QUERY)
class OpNodeQueryvols(OpCode):
    """List logical volumes of nodes. Result: rows of the fields asked."""

    output_fields: list[str] = param(types.Strings, "Fields wanted")
    nodes: list[str] = param(types.Strings, "Nodes to ask; none means all", default=[])
    RESULT = ht.List


@opcode(kind=QUERY)
class OpNodeQueryStorage(OpCode):
    """List storage units of nodes. Result: rows of the fields asked."""

    output_fields: list[str] = param(types.Strings, "Fields wanted")
    storage_type: str | None = param(ht.Maybe(types.StorageType), "Kind of storage", default=None)
    nodes: list[str] = param(types.Strings, "Nodes to ask; none means all", default=[])
    name: str | None = param(types.MaybeString, "Only this storage unit", default=None)
    RESULT = ht.ListOf(ht.List)


@opcode(summary="node_name")
class OpNodeRemove(OpCode):
    """Remove a node without instances. Result: None."""

    node_name: str = param(ht.NonEmptyString, "Node")
    node_uuid: str | None = param(
        types.MaybeString, "UUID of the node; filled in by the master", default=None
    )
    RESULT = ht.NoneType


@opcode(summary="node_name")
class OpNodeSetParams(OpCode):
    """Change role or parameters of a node. Result: [what, new value] per change."""

    node_name: str = param(ht.NonEmptyString, "Node")
    node_uuid: str | None = param(
        types.MaybeString, "UUID of the node; filled in by the master", default=None
    )
    force: bool = param(ht.Bool, "Do it although a check speaks against it", default=False)
    hv_state: dict[str, Any] | None = param(
        types.MaybeObject,
        "Resources that the hypervisor reports wrongly, set by hand",
        default=None,
    )
    disk_state: dict[str, Any] | None = param(
        types.MaybeObject, "Resources of storage, set by hand", default=None
    )
    master_candidate: bool | None = param(
        ht.Maybe(ht.Bool), "Whether the node keeps a copy of the configuration", default=None
    )
    offline: bool | None = param(
        ht.Maybe(ht.Bool), "Whether the node is out of reach", default=None
    )
    drained: bool | None = param(
        ht.Maybe(ht.Bool), "Whether instances have to leave the node", default=None
    )
    auto_promote: bool = param(ht.Bool, "Make another node a candidate in its place", default=False)
    master_capable: bool | None = param(
        ht.Maybe(ht.Bool), "Whether the node may become master", default=None
    )
    vm_capable: bool | None = param(
        ht.Maybe(ht.Bool), "Whether the node may host instances", default=None
    )
    secondary_ip: str | None = param(types.MaybeString, "Address for replication", default=None)
    ndparams: dict[str, Any] | None = param(types.MaybeObject, "Node parameters", default=None)
    powered: bool | None = param(ht.Maybe(ht.Bool), "Whether the node has power", default=None)
    RESULT = types.Changes


@opcode(summary="node_name")
class OpRepairNodeStorage(OpCode):
    """Repair a storage unit of a node. Result: None."""

    node_name: str = param(ht.NonEmptyString, "Node")
    node_uuid: str | None = param(
        types.MaybeString, "UUID of the node; filled in by the master", default=None
    )
    storage_type: str = param(types.StorageType, "Kind of storage")
    name: str | None = param(types.MaybeString, "Name of the storage unit", default=None)
    ignore_consistency: bool = param(
        ht.Bool, "Go on although instances use the storage", default=False
    )
    RESULT = ht.NoneType
