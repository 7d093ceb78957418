"""Opcodes for node groups."""

from __future__ import annotations

from ganeti import TYPE_CHECKING, ht
from ganeti.opcodes import params, types
from ganeti.opcodes.base import OpCode, opcode, param

if TYPE_CHECKING:
    from typing import Any


# Parameters which several opcodes have.
ALLOC_POLICY: Any = param(
    ht.Maybe(types.AllocPolicy),
    "Allocation policy: whether allocators place new instances in the group",
    default=None,
)
ENABLED_HYPERVISORS: Any = param(
    ht.Maybe(ht.ListOf(types.Hypervisor)),
    "Hypervisors of the nodes of the group; an empty list means all of the cluster",
    default=None,
    added=True,
)


@opcode(summary="group_name")
class OpGroupAdd(OpCode):
    """Add a node group. Result: None, or jobs."""

    group_name: str = params.GROUP_NAME
    alloc_policy: str | None = ALLOC_POLICY
    ndparams: dict[str, Any] | None = params.NDPARAMS
    diskparams: dict[str, dict[str, Any]] | None = params.DISKPARAMS
    hv_state: dict[str, Any] | None = params.HV_STATE
    disk_state: dict[str, Any] | None = params.DISK_STATE
    ipolicy: dict[str, Any] | None = params.IPOLICY
    enabled_hypervisors: list[str] | None = ENABLED_HYPERVISORS
    RESULT = types.MaybeJobIdListOnly


@opcode(summary="group_name")
class OpGroupAssignNodes(OpCode):
    """Move nodes to a node group. Result: None."""

    group_name: str = params.GROUP_NAME
    force: bool = param(
        ht.Bool, "Move the nodes even if an instance then has nodes in two groups", default=False
    )
    nodes: list[str] = param(types.Strings, "Names of the nodes")
    node_uuids: list[str] | None = param(
        types.MaybeStrings, "UUIDs of the nodes; used instead of the names if given", default=None
    )
    RESULT = ht.NoneType


@opcode(summary="group_name")
class OpGroupEvacuate(OpCode):
    """Move the instances of a node group to other groups. Result: jobs."""

    group_name: str = params.GROUP_NAME
    early_release: bool = params.EARLY_RELEASE
    iallocator: str | None = params.ALLOCATOR
    target_groups: list[str] | None = params.TARGET_GROUPS
    sequential: bool = param(ht.Bool, "Move one instance after the other", default=False)
    force_failover: bool = param(
        ht.Bool, "Fail over where migration would be possible", default=False
    )
    RESULT = types.JobIdListOnly


@opcode(summary="group_name")
class OpGroupRemove(OpCode):
    """Remove an empty node group. Result: None."""

    group_name: str = params.GROUP_NAME
    RESULT = ht.NoneType


@opcode()
class OpGroupRename(OpCode):
    """Rename a node group. Result: the new name."""

    group_name: str = params.GROUP_NAME
    new_name: str = params.NEW_NAME
    RESULT = ht.NonEmptyString


@opcode(summary="group_name")
class OpGroupSetParams(OpCode):
    """Change parameters of a node group. Result: list of [parameter, new value]."""

    group_name: str = params.GROUP_NAME
    alloc_policy: str | None = ALLOC_POLICY
    ndparams: dict[str, Any] | None = params.NDPARAMS
    diskparams: dict[str, dict[str, Any]] | None = params.DISKPARAMS
    hv_state: dict[str, Any] | None = params.HV_STATE
    disk_state: dict[str, Any] | None = params.DISK_STATE
    ipolicy: dict[str, Any] | None = params.IPOLICY
    enabled_hypervisors: list[str] | None = ENABLED_HYPERVISORS
    force: bool | None = param(
        ht.Maybe(ht.Bool),
        "Change the volume group for metadata of DRBD even if a node does not have it",
        default=None,
        added=True,
    )
    RESULT = types.Changes


@opcode(summary="group_name")
class OpGroupVerifyDisks(OpCode):
    """Verify the disks of a node group.

    Result: [node -> error, instances to activate, instance -> missing volumes].
    """

    group_name: str = params.GROUP_NAME
    is_strict: bool = params.IS_STRICT
    RESULT = ht.Tuple(
        ht.DictOf(ht.Str, ht.Str),
        ht.ListOf(ht.Str),
        ht.DictOf(ht.Str, ht.ListOf(ht.ListOf(ht.Str))),
    )
