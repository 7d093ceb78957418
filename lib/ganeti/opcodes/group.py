"""Opcodes for node groups."""

from __future__ import annotations

from ganeti import ht
from ganeti.opcodes import types
from ganeti.opcodes.base import OpCode, opcode, param

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


@opcode(summary="group_name")
class OpGroupAdd(OpCode):
    """Add a node group. Result: None, or jobs."""

    group_name: str = param(ht.NonEmptyString, "Node group")
    alloc_policy: str | None = param(
        ht.Maybe(types.AllocPolicy),
        "Allocation policy: whether allocators place new instances in the group",
        default=None,
    )
    ndparams: dict[str, Any] | None = param(types.MaybeObject, "Node parameters", default=None)
    diskparams: dict[str, dict[str, Any]] | None = param(
        types.DiskParams, "Parameters per disk template", default=None
    )
    hv_state: dict[str, Any] | None = param(
        types.MaybeObject,
        "Resources of nodes, in place of those which the hypervisor reports",
        default=None,
    )
    disk_state: dict[str, Any] | None = param(
        types.MaybeObject,
        "Resources of storage, in place of those which nodes report",
        default=None,
    )
    ipolicy: dict[str, Any] | None = param(types.MaybeObject, "Instance policy", default=None)
    enabled_hypervisors: list[str] | None = param(
        ht.Maybe(ht.ListOf(types.Hypervisor)),
        "Hypervisors of the nodes of the group; an empty list means all of the cluster",
        default=None,
    )
    RESULT = types.MaybeJobIdListOnly


@opcode(summary="group_name")
class OpGroupAssignNodes(OpCode):
    """Move nodes to a node group. Result: None."""

    group_name: str = param(ht.NonEmptyString, "Node group")
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

    group_name: str = param(ht.NonEmptyString, "Node group")
    early_release: bool = param(
        ht.Bool, "Release locks as soon as the new disks are in sync", default=False
    )
    iallocator: str | None = param(
        types.MaybeString, "Allocator which chooses the nodes", default=None
    )
    target_groups: list[str] | None = param(
        types.MaybeStrings, "Node groups to move to; any if not given", default=None
    )
    sequential: bool = param(ht.Bool, "Move one instance after the other", default=False)
    force_failover: bool = param(
        ht.Bool, "Fail over where migration would be possible", default=False
    )
    RESULT = types.JobIdListOnly


@opcode(summary="group_name")
class OpGroupRemove(OpCode):
    """Remove an empty node group. Result: None."""

    group_name: str = param(ht.NonEmptyString, "Node group")
    RESULT = ht.NoneType


@opcode()
class OpGroupRename(OpCode):
    """Rename a node group. Result: the new name."""

    group_name: str = param(ht.NonEmptyString, "Node group")
    new_name: str = param(ht.NonEmptyString, "New name")
    RESULT = ht.NonEmptyString


@opcode(summary="group_name")
class OpGroupSetParams(OpCode):
    """Change parameters of a node group. Result: list of [parameter, new value]."""

    group_name: str = param(ht.NonEmptyString, "Node group")
    alloc_policy: str | None = param(
        ht.Maybe(types.AllocPolicy),
        "Allocation policy: whether allocators place new instances in the group",
        default=None,
    )
    ndparams: dict[str, Any] | None = param(types.MaybeObject, "Node parameters", default=None)
    diskparams: dict[str, dict[str, Any]] | None = param(
        types.DiskParams, "Parameters per disk template", default=None
    )
    hv_state: dict[str, Any] | None = param(
        types.MaybeObject,
        "Resources of nodes, in place of those which the hypervisor reports",
        default=None,
    )
    disk_state: dict[str, Any] | None = param(
        types.MaybeObject,
        "Resources of storage, in place of those which nodes report",
        default=None,
    )
    ipolicy: dict[str, Any] | None = param(types.MaybeObject, "Instance policy", default=None)
    enabled_hypervisors: list[str] | None = param(
        ht.Maybe(ht.ListOf(types.Hypervisor)),
        "Hypervisors of the nodes of the group; an empty list means all of the cluster",
        default=None,
    )
    RESULT = types.Changes


@opcode(summary="group_name")
class OpGroupVerifyDisks(OpCode):
    """Verify the disks of a node group.

    Result: [node -> error, instances to activate, instance -> missing volumes].
    """

    group_name: str = param(ht.NonEmptyString, "Node group")
    is_strict: bool = param(
        ht.Bool,
        "Report an error for a node which does not answer, not only a warning",
        default=True,
    )
    RESULT = ht.Tuple(
        ht.DictOf(ht.Str, ht.Str),
        ht.ListOf(ht.Str),
        ht.DictOf(ht.Str, ht.ListOf(ht.ListOf(ht.Str))),
    )
