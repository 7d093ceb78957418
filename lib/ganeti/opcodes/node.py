"""Opcodes for nodes: membership, roles, evacuation, storage units."""

from __future__ import annotations

from ganeti import TYPE_CHECKING, ht
from ganeti.opcodes import params, types
from ganeti.opcodes.base import QUERY, OpCode, opcode, param

if TYPE_CHECKING:
    from typing import Any


# Parameters which several opcodes have.
SECONDARY_IP: Any = param(types.MaybeString, "Secondary IP address, for replication", default=None)
MASTER_CAPABLE: Any = param(ht.Maybe(ht.Bool), "Whether the node may become master", default=None)
VM_CAPABLE: Any = param(ht.Maybe(ht.Bool), "Whether the node may host instances", default=None)
STORAGE_TYPE: Any = param(types.StorageType, "Storage type")
STORAGE_UNIT: Any = param(types.MaybeString, "Name of the storage unit", default=None)
NODES_OR_ALL: Any = param(types.Strings, "Nodes; all if the list is empty", default=[])
NODE_NAME: Any = param(ht.NonEmptyString, "Name of the node")
NODE_UUID: Any = param(
    types.MaybeString,
    "UUID of the node; if given, the node of this name must have it",
    default=None,
)
REMOTE_NODE: Any = param(
    types.MaybeString,
    "Target node of instances with shared disks, and new secondary node of mirrored ones",
    default=None,
)
REMOTE_NODE_UUID: Any = param(
    types.MaybeString, "UUID of that node, instead of its name or in addition to it", default=None
)
ALLOCATOR: Any = param(types.MaybeString, "Allocator which chooses the nodes", default=None)


@opcode(summary="node_name")
class OpNodeAdd(OpCode):
    """Add a node, or add a known node again. Result: None."""

    node_name: str = NODE_NAME
    hv_state: dict[str, Any] | None = params.HV_STATE
    disk_state: dict[str, Any] | None = params.DISK_STATE
    primary_ip: str | None = param(
        types.MaybeString, "Primary IP address; the one of its name if not given", default=None
    )
    secondary_ip: str | None = SECONDARY_IP
    readd: bool = param(
        ht.Bool, "Add a node which is already in the configuration again", default=False
    )
    group: str | None = param(types.MaybeString, "Node group to join", default=None)
    master_capable: bool | None = MASTER_CAPABLE
    vm_capable: bool | None = VM_CAPABLE
    ndparams: dict[str, Any] | None = params.NDPARAMS
    node_setup: bool = param(
        ht.Bool, "Whether the client has set up SSH on the node", default=False
    )
    certificate: str | None = param(
        types.MaybeString,
        "SHA1 digest of the client certificate of the machine, where the client knows it; another"
        " machine is refused",
        default=None,
        added=True,
    )
    RESULT = ht.NoneType


@opcode(summary="node_name")
class OpNodeAutoFailover(OpCode):
    """Fence a node which does not answer, and start its instances on other nodes. Result: jobs."""

    node_name: str = NODE_NAME
    node_uuid: str | None = NODE_UUID
    RESULT = types.JobIdListOnly


@opcode(summary="node_name")
class OpNodeEvacuate(OpCode):
    """Move instances away from a node. Result: jobs."""

    early_release: bool = params.EARLY_RELEASE
    node_name: str = NODE_NAME
    node_uuid: str | None = NODE_UUID
    remote_node: str | None = REMOTE_NODE
    remote_node_uuid: str | None = REMOTE_NODE_UUID
    iallocator: str | None = ALLOCATOR
    mode: str = param(types.EvacMode, "Instances to move: primary-only, secondary-only or all")
    ignore_soft_errors: bool | None = param(
        ht.Maybe(ht.Bool),
        "Accept an answer of the allocator which violates a soft rule",
        default=None,
    )
    RESULT = types.JobIdListOnly


@opcode(summary="node_name")
class OpNodeMaintenanceCheck(OpCode):
    """Find out whether a node in maintenance has given up, or got back, what it should.

    The jobs of the start and of the end of a maintenance submit it as the last one. Result: None.
    """

    node_name: str = NODE_NAME
    node_uuid: str | None = NODE_UUID
    RESULT = ht.NoneType


@opcode(summary="node_name")
class OpNodeMaintenanceEnd(OpCode):
    """End the maintenance of a node, and bring back what it had. Result: jobs."""

    node_name: str = NODE_NAME
    node_uuid: str | None = NODE_UUID
    move_back: bool = param(
        ht.Bool, "Move the instances and replicas back which have left the node", default=True
    )
    RESULT = types.JobIdListOnly


@opcode(summary="node_name")
class OpNodeMaintenanceStart(OpCode):
    """Start the maintenance of a node: move its instances away, and mark it. Result: jobs."""

    node_name: str = NODE_NAME
    node_uuid: str | None = NODE_UUID
    evacuate: bool = param(
        ht.Bool, "Move all instances and all replicas away, also stopped ones", default=False
    )
    stop: bool = param(ht.Bool, "Stop the instances which cannot be moved", default=False)
    remote_node: str | None = REMOTE_NODE
    remote_node_uuid: str | None = REMOTE_NODE_UUID
    iallocator: str | None = ALLOCATOR
    RESULT = types.JobIdListOnly


@opcode(summary="node_name")
class OpNodeMigrate(OpCode):
    """Migrate all primary instances of a node. Result: jobs."""

    node_name: str = NODE_NAME
    node_uuid: str | None = NODE_UUID
    mode: str | None = params.MIGRATION_MODE
    live: bool | None = params.LIVE
    target_node: str | None = params.TARGET_NODE
    target_node_uuid: str | None = params.TARGET_NODE_UUID
    allow_runtime_changes: bool = params.ALLOW_RUNTIME_CHANGES
    ignore_ipolicy: bool = params.IGNORE_IPOLICY
    iallocator: str | None = ALLOCATOR
    RESULT = types.JobIdListOnly


@opcode(summary="node_name")
class OpNodeModifyStorage(OpCode):
    """Change a storage unit of a node. Result: None."""

    node_name: str = NODE_NAME
    node_uuid: str | None = NODE_UUID
    storage_type: str = STORAGE_TYPE
    name: str | None = STORAGE_UNIT
    changes: dict[str, Any] = param(ht.Dict, "New values by field")
    RESULT = ht.NoneType


@opcode(summary="node_name")
class OpNodePowercycle(OpCode):
    """Reset a node without a shutdown. Result: None, or a text."""

    node_name: str = NODE_NAME
    node_uuid: str | None = NODE_UUID
    force: bool = param(ht.Bool, "Also if the node is the master", default=False)
    RESULT = types.MaybeString


@opcode(kind=QUERY)
class OpNodeQueryvols(OpCode):
    """List logical volumes of nodes. Result: rows of the requested fields."""

    output_fields: list[str] = params.OUTPUT_FIELDS
    nodes: list[str] = NODES_OR_ALL
    RESULT = ht.List


@opcode(kind=QUERY)
class OpNodeQueryStorage(OpCode):
    """List storage units of nodes. Result: rows of the requested fields."""

    output_fields: list[str] = params.OUTPUT_FIELDS
    storage_type: str | None = param(ht.Maybe(types.StorageType), "Storage type", default=None)
    nodes: list[str] = NODES_OR_ALL
    name: str | None = param(types.MaybeString, "Only this storage unit", default=None)
    RESULT = ht.ListOf(ht.List)


@opcode(summary="node_name")
class OpNodeRemove(OpCode):
    """Remove a node without instances. Result: None."""

    node_name: str = NODE_NAME
    node_uuid: str | None = NODE_UUID
    RESULT = ht.NoneType


@opcode(summary="node_name")
class OpNodeSetParams(OpCode):
    """Change the role or parameters of a node. Result: list of [parameter, new value]."""

    node_name: str = NODE_NAME
    node_uuid: str | None = NODE_UUID
    force: bool = params.FORCE
    hv_state: dict[str, Any] | None = params.HV_STATE
    disk_state: dict[str, Any] | None = params.DISK_STATE
    master_candidate: bool | None = param(
        ht.Maybe(ht.Bool), "Whether the node is a master candidate", default=None
    )
    offline: bool | None = param(ht.Maybe(ht.Bool), "Whether the node is offline", default=None)
    drained: bool | None = param(
        ht.Maybe(ht.Bool), "Whether the node is drained: it gets no instances", default=None
    )
    auto_promote: bool = param(
        ht.Bool, "Make another node master candidate if the cluster has too few", default=False
    )
    master_capable: bool | None = MASTER_CAPABLE
    vm_capable: bool | None = VM_CAPABLE
    secondary_ip: str | None = SECONDARY_IP
    ndparams: dict[str, Any] | None = params.NDPARAMS
    powered: bool | None = param(
        ht.Maybe(ht.Bool), "Whether the node is recorded as powered", default=None
    )
    RESULT = types.Changes


@opcode(summary="node_name")
class OpRepairNodeStorage(OpCode):
    """Repair a storage unit of a node. Result: None."""

    node_name: str = NODE_NAME
    node_uuid: str | None = NODE_UUID
    storage_type: str = STORAGE_TYPE
    name: str | None = STORAGE_UNIT
    ignore_consistency: bool = param(
        ht.Bool, "Go on although a replica on another node is damaged", default=False
    )
    RESULT = ht.NoneType
