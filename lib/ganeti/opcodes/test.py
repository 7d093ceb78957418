"""Opcodes for developers: delays, tests of allocators and of the job queue."""

from __future__ import annotations

from ganeti import TYPE_CHECKING, ht
from ganeti.opcodes import params, types
from ganeti.opcodes.base import TEST, OpCode, opcode, param

if TYPE_CHECKING:
    from typing import Any


@opcode(summary="iallocator", kind=TEST)
class OpTestAllocator(OpCode):
    """Test an allocator. Result: the request, or the answer."""

    direction: str = param(
        types.IAllocatorDirection, "in returns the request, out runs the allocator"
    )
    mode: str = param(types.IAllocatorMode, "Kind of request")
    name: str = param(ht.NonEmptyString, "Name of the instance")
    nics: list[dict[str, Any]] | None = param(
        ht.Maybe(ht.ListOf(types.INicParams)), "NICs, each a dictionary", default=None
    )
    disks: list[Any] | None = param(ht.Maybe(ht.List), "Disks, each a dictionary", default=None)
    hypervisor: str | None = params.HYPERVISOR
    iallocator: str | None = params.ALLOCATOR
    tags: list[str] = params.TAGS
    memory: int | None = param(ht.Maybe(ht.NonNegInt), "MiB of memory", default=None)
    vcpus: int | None = param(ht.Maybe(ht.NonNegInt), "Number of processors", default=None)
    os: str | None = params.OS
    disk_template: str | None = params.DISK_TEMPLATE
    instances: list[str] | None = param(
        types.MaybeStrings, "Names of the instances, in modes for several instances", default=None
    )
    evac_mode: str | None = param(
        ht.Maybe(types.EvacMode),
        "Instances to move: primary-only, secondary-only or all",
        default=None,
    )
    target_groups: list[str] | None = params.TARGET_GROUPS
    spindle_use: int = param(ht.NonNegInt, "Spindles which the instance uses", default=1)
    count: int = param(ht.NonNegInt, "Number of instances", default=1)
    group_name: str | None = params.GROUP_OF_INSTANCE
    explain: bool | None = param(
        ht.Maybe(ht.Bool),
        "Return for each node why it was or was not chosen, as JSON (for new instances)",
        default=None,
        added=True,
    )
    RESULT = ht.Str


@opcode(summary="duration", kind=TEST)
class OpTestDelay(OpCode):
    """Wait. Result: None."""

    duration: float = param(ht.Seconds, "Seconds to wait")
    on_master: bool = param(
        ht.Bool, "Wait on the master, too; without nodes, it waits in any case", default=True
    )
    on_nodes: list[str] = param(types.Strings, "Names of the nodes on which to wait", default=[])
    on_node_uuids: list[str] | None = param(
        types.MaybeStrings, "UUIDs of further nodes on which to wait", default=None
    )
    repeat: int = param(ht.NonNegInt, "Number of waits; 0 means one", default=0)
    interruptible: bool = param(
        ht.Bool,
        "End the wait as soon as a client connects to the socket which the job log names",
        default=False,
    )
    no_locks: bool = param(ht.Bool, "Take no locks", default=True)
    RESULT = ht.NoneType


@opcode(kind=TEST)
class OpTestDummy(OpCode):
    """Carry out what the parameters say; for tests, never executed by the master. Result: None."""

    result: Any = param(ht.Any, "Result of the job", default=None)
    messages: Any = param(ht.Any, "Messages to log", default=None)
    fail: Any = param(ht.Any, "Fail with this message", default=None)
    submit_jobs: Any = param(ht.Any, "Jobs to submit", default=None)
    RESULT = ht.NoneType


@opcode(kind=TEST)
class OpTestJqueue(OpCode):
    """Test the job queue. Result: True."""

    notify_waitlock: bool = param(
        ht.Bool, "Inform the client before the job waits for locks", default=False
    )
    notify_exec: bool = param(
        ht.Bool, "Inform the client before the execution begins", default=False
    )
    log_messages: list[str] = param(ht.ListOf(ht.Str), "Messages to log", default=[])
    fail: bool = param(ht.Bool, "Fail at the end", default=False)
    RESULT = ht.Bool


@opcode(kind=TEST)
class OpTestOsParams(OpCode):
    """Test how secret parameters are handled. Result: None."""

    osparams_secret: dict[str, Any] | None = params.OSPARAMS_SECRET
    RESULT = ht.NoneType
