"""Node groups."""

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
        ht.Maybe(types.AllocPolicy), "Whether new instances may be placed here", default=None
    )
    ndparams: dict[str, Any] | None = param(types.MaybeObject, "Node parameters", default=None)
    diskparams: dict[str, dict[str, Any]] | None = param(
        types.DiskParams, "Parameters per disk template", default=None
    )
    hv_state: dict[str, Any] | None = param(
        types.MaybeObject,
        "Resources that the hypervisor reports wrongly, set by hand",
        default=None,
    )
    disk_state: dict[str, Any] | None = param(
        types.MaybeObject, "Resources of storage, set by hand", default=None
    )
    ipolicy: dict[str, Any] | None = param(types.MaybeObject, "Bounds for instances", default=None)
    RESULT = types.MaybeJobIdListOnly


@opcode(summary="group_name")
class OpGroupAssignNodes(OpCode):
    """Move nodes to a group. Result: None."""

    group_name: str = param(ht.NonEmptyString, "Node group")
    force: bool = param(
        ht.Bool, "Also when an instance would then live in two groups", default=False
    )
    nodes: list[str] = param(types.Strings, "Nodes")
    node_uuids: list[str] | None = param(
        types.MaybeStrings, "UUIDs of these nodes; filled in by the master", default=None
    )
    RESULT = ht.NoneType


@opcode(summary="group_name")
class OpGroupEvacuate(OpCode):
    """Move the instances of a group elsewhere. Result: jobs."""

    group_name: str = param(ht.NonEmptyString, "Node group")
    early_release: bool = param(
        ht.Bool, "Give up locks as soon as the new disks are in step", default=False
    )
    iallocator: str | None = param(
        types.MaybeString, "Allocator which decides where to", default=None
    )
    target_groups: list[str] | None = param(
        types.MaybeStrings, "Node groups to go to; any if not given", default=None
    )
    sequential: bool = param(ht.Bool, "One instance after the other", default=False)
    force_failover: bool = param(
        ht.Bool, "Fail over where migration would be possible", default=False
    )
    RESULT = types.JobIdListOnly


@opcode(summary="group_name")
class OpGroupRemove(OpCode):
    """Remove an empty group. Result: None."""

    group_name: str = param(ht.NonEmptyString, "Node group")
    RESULT = ht.NoneType


@opcode()
class OpGroupRename(OpCode):
    """Rename a group. Result: the new name."""

    group_name: str = param(ht.NonEmptyString, "Node group")
    new_name: str = param(ht.NonEmptyString, "New name")
    RESULT = ht.NonEmptyString


@opcode(summary="group_name")
class OpGroupSetParams(OpCode):
    """Change parameters of a group. Result: [what, new value] per change."""

    group_name: str = param(ht.NonEmptyString, "Node group")
    alloc_policy: str | None = param(
        ht.Maybe(types.AllocPolicy), "Whether new instances may be placed here", default=None
    )
    ndparams: dict[str, Any] | None = param(types.MaybeObject, "Node parameters", default=None)
    diskparams: dict[str, dict[str, Any]] | None = param(
        types.DiskParams, "Parameters per disk template", default=None
    )
    hv_state: dict[str, Any] | None = param(
        types.MaybeObject,
        "Resources that the hypervisor reports wrongly, set by hand",
        default=None,
    )
    disk_state: dict[str, Any] | None = param(
        types.MaybeObject, "Resources of storage, set by hand", default=None
    )
    ipolicy: dict[str, Any] | None = param(types.MaybeObject, "Bounds for instances", default=None)
    RESULT = types.Changes


@opcode(summary="group_name")
class OpGroupVerifyDisks(OpCode):
    """Check the disks of a group.

    Result: [node -> error, instances to activate, instance -> missing volumes].
    """

    group_name: str = param(ht.NonEmptyString, "Node group")
    is_strict: bool = param(ht.Bool, "Take a node that cannot be asked as an error", default=True)
    RESULT = ht.Tuple(
        ht.DictOf(ht.Str, ht.Str),
        ht.ListOf(ht.Str),
        ht.DictOf(ht.Str, ht.ListOf(ht.ListOf(ht.Str))),
    )
