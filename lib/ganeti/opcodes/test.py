"""For developers: delays, allocators, the queue itself."""

from __future__ import annotations

from ganeti import ht
from ganeti.opcodes import types
from ganeti.opcodes.base import TEST, OpCode, opcode, param

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


@opcode(summary="iallocator", kind=TEST)
class OpTestAllocator(OpCode):
    """Try an allocator. Result: the request, or the answer."""

    direction: str = param(types.IAllocatorDirection, "Show the request, or run the allocator")
    mode: str = param(types.IAllocatorMode, "Kind of request")
    name: str = param(ht.NonEmptyString, "Instance the request is about")
    nics: list[dict[str, Any]] | None = param(
        ht.Maybe(ht.ListOf(types.INicParams)), "NICs, each a dictionary", default=None
    )
    disks: list[Any] | None = param(ht.Maybe(ht.List), "Disks, each a dictionary", default=None)
    hypervisor: str | None = param(
        ht.Maybe(types.Hypervisor),
        "Hypervisor; the default of the cluster if not given",
        default=None,
    )
    iallocator: str | None = param(
        types.MaybeString, "Allocator which decides where to", default=None
    )
    tags: list[str] = param(types.Strings, "Tags", default=[])
    memory: int | None = param(ht.Maybe(ht.NonNegInt), "MiB of memory", default=None)
    vcpus: int | None = param(ht.Maybe(ht.NonNegInt), "Number of processors", default=None)
    os: str | None = param(types.MaybeString, "Operating system", default=None)
    disk_template: str | None = param(ht.Maybe(types.DiskTemplate), "Kind of disks", default=None)
    instances: list[str] | None = param(
        types.MaybeStrings, "Instances of the request, for modes which take several", default=None
    )
    evac_mode: str | None = param(
        ht.Maybe(types.EvacMode), "Which instances have to leave", default=None
    )
    target_groups: list[str] | None = param(
        types.MaybeStrings, "Node groups to go to; any if not given", default=None
    )
    spindle_use: int = param(ht.NonNegInt, "Spindles an instance counts for", default=1)
    count: int = param(ht.NonNegInt, "How many instances", default=1)
    group_name: str | None = param(
        types.MaybeString, "Node group to place the instance in", default=None
    )
    RESULT = ht.Str


@opcode(summary="duration", kind=TEST)
class OpTestDelay(OpCode):
    """Wait. Result: None."""

    duration: float = param(ht.Float, "Seconds to wait")
    on_master: bool = param(ht.Bool, "Wait on the master", default=True)
    on_nodes: list[str] = param(types.Strings, "Nodes to wait on", default=[])
    on_node_uuids: list[str] | None = param(
        types.MaybeStrings, "UUIDs of these nodes; filled in by the master", default=None
    )
    repeat: int = param(ht.NonNegInt, "How many times to wait; 0 means once", default=0)
    interruptible: bool = param(
        ht.Bool, "End the wait when a client connects to the socket named in the log", default=False
    )
    no_locks: bool = param(ht.Bool, "Take no locks", default=True)
    RESULT = ht.NoneType

    def summary_value(self) -> str:
        """The delay in whole nanoseconds, as job lists have always shown it."""
        duration = self.__dict__.get("duration")
        if not isinstance(duration, int | float):
            return str(duration)
        return f"{round(duration * 1e9)} ns"


@opcode(kind=TEST)
class OpTestDummy(OpCode):
    """Do what the parameters say; for tests, never executed by the master. Result: None."""

    result: Any = param(ht.Any, "Result to give", default=None)
    messages: Any = param(ht.Any, "Messages to log", default=None)
    fail: Any = param(ht.Any, "Fail with this text", default=None)
    submit_jobs: Any = param(ht.Any, "Jobs to submit", default=None)
    RESULT = ht.NoneType


@opcode(kind=TEST)
class OpTestJqueue(OpCode):
    """Exercise the job queue. Result: True."""

    notify_waitlock: bool = param(
        ht.Bool, "Tell the client when locks are waited for", default=False
    )
    notify_exec: bool = param(ht.Bool, "Tell the client when execution begins", default=False)
    log_messages: list[str] = param(ht.ListOf(ht.Str), "Messages to log", default=[])
    fail: bool = param(ht.Bool, "Fail at the end", default=False)
    RESULT = ht.Bool


@opcode(kind=TEST)
class OpTestOsParams(OpCode):
    """See how secret parameters are handled. Result: None."""

    osparams_secret: dict[str, Any] | None = param(
        types.SecretParams, "OS parameters kept out of logs and never stored", default=None
    )
    RESULT = ht.NoneType
