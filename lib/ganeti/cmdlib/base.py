"""What every logical unit is made of.

A logical unit (LU) executes one kind of opcode in four phases, driven by
:class:`ganeti.cmdlib.processor.Processor`:

``expand_names``
    turns the user's names into objects and declares the first locks; holds only the cluster lock.
``declare_locks(level)``
    called once per level, in order, with the locks of all lower levels already held.
``check_prereq``
    may refuse with :class:`~ganeti.errors.OpPrereqError`; reads and asks, changes nothing; returns
    the plan.
``exec(plan)``
    acts; what it raises from here on means that something may have been changed.

The unit reaches the cluster only through its :class:`LuContext`: the configuration, the node
calls, the locks of its owner and the job's callbacks. Nothing here assumes that the job and the
configuration live in one process.

Units register themselves with :func:`executes`; :func:`ganeti.cmdlib.lookup` finds them.
:class:`OpCallbacks` is what the job queue offers to a running opcode.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeAlias, TypeVar, cast

from ganeti import errors
from ganeti.locking import ALL, Level, LockManager, Owner

if TYPE_CHECKING:
    from ganeti.cmdlib.hooks import HookResults, HookRunner, Hooks
    from ganeti.config import Config
    from ganeti.config.history import Author
    from ganeti.objects import FilledInstance, Instance, Node
    from ganeti.opcodes.base import OpCode
    from ganeti.query.view import View
    from ganeti.rpc import RpcRunner

log = logging.getLogger(__name__)

LockRequest = Collection[str] | None  # None is the "whole level" marker ALL
Job = Sequence["OpCode"]

OpT = TypeVar("OpT", bound="OpCode")
"""The opcode which a logical unit executes."""

PlanT = TypeVar("PlanT")
"""What ``check_prereq`` of a logical unit returns; None for a unit which needs no plan."""

_run_numbers = itertools.count(1)


class OpCallbacks(Protocol):
    """What the job queue offers to the opcode it runs."""

    @property
    def owner(self) -> Owner:
        """Who holds the locks: the job."""

    def notify_start(self) -> None:
        """All locks are held: move from waiting to running, committed before it returns."""

    def feedback(self, *args: Any) -> None:
        """Add a log entry: ``(message)`` or ``(type, message)``."""

    def check_cancel(self) -> None:
        """:raises errors.JobCanceled: somebody cancelled the job while it waited."""

    def priority(self) -> int:
        """Present priority of the job; it may change while waiting for locks."""

    def submit_jobs(self, jobs: Sequence[Job]) -> list[list[Any]]:
        """Submit jobs; one ``[True, job id]`` or ``[False, message]`` for each."""


class Queries(Protocol):
    """Answers about the objects of the cluster; the package :mod:`ganeti.master.queries`.

    The logical units for the query opcodes reach it through their context, because it stands above
    ``cmdlib`` in the order of the packages.
    """

    def query(
        self, context: MasterContext, what: str, fields: Sequence[str], qfilter: Any = None, /
    ) -> dict[str, Any]:
        """Answer ``Query``."""

    def query_fields(self, what: str, names: Sequence[str] | None = None, /) -> dict[str, Any]:
        """Answer ``QueryFields``."""

    def query_values(
        self,
        context: MasterContext,
        what: str,
        names: Sequence[str | int] | None,
        fields: Sequence[str],
        /,
    ) -> list[list[Any]]:
        """Answer the older queries: plain values."""

    def cluster_info(self, context: MasterContext, /) -> dict[str, Any]:
        """Describe the cluster as a whole."""

    def config_values(self, context: MasterContext, names: Sequence[str], /) -> list[Any]:
        """Read single values about the cluster."""


@dataclass(slots=True)
class MasterContext:
    """Everything the master daemon owns, made once at its start.

    ``queue`` is set after construction, because the queue needs the processor and the processor
    needs this; so is ``queries``. ``live_seen`` is called with what a query has learned of guests:
    the view with its live data, and the instances these are about.
    """

    config: Config
    locks: LockManager
    rpc: RpcRunner
    queue: Any = None
    queries: Queries | None = None
    live_seen: Callable[[View, Sequence[Instance]], None] | None = None


def why(failure: Exception | None) -> str:
    """The reason of a failed node call, for a text which names the node already."""
    return failure.message if isinstance(failure, errors.NodeCallFailed) else str(failure)


class ResultWithJobs:
    """A result of ``exec`` which asks for more jobs.

    The processor submits them and returns ``{"jobs": [[status, id or message], ...], **others}``.
    """

    def __init__(self, jobs: Sequence[Job], **others: Any) -> None:
        self.jobs = [list(job) for job in jobs]
        self.others = others


@dataclass(slots=True)
class LuContext:
    """What one run of a logical unit works with.

    :ivar ec_id: names the run to the configuration's reservations (names, MACs, uuids).
    :ivar author: who changes the configuration, for its history.
    """

    master: MasterContext
    callbacks: OpCallbacks
    ec_id: str = field(default="")
    author: Author | None = None
    config: Config = field(init=False)

    def __post_init__(self) -> None:
        if not self.ec_id:
            self.ec_id = f"job-{self.callbacks.owner.job_id}-run-{next(_run_numbers)}"
        self.config = self.master.config
        if self.author is not None:
            self.config = self.config.acting_for(self.author)

    @property
    def rpc(self) -> RpcRunner:
        return self.master.rpc

    @property
    def locks(self) -> LockManager:
        return self.master.locks

    @property
    def queries(self) -> Queries:
        """Answers about the objects of the cluster."""
        if self.master.queries is None:
            raise errors.ProgrammerError("this context answers no queries")
        return self.master.queries

    @property
    def owner(self) -> Owner:
        return self.callbacks.owner


class LogicalUnit(Generic[OpT, PlanT]):
    """Base of all logical units, ``LogicalUnit[opcode, plan]``; see the module text for the phases.

    A unit whose plan is None need not define ``check_prereq``.
    """

    OPCODE: ClassVar[type[OpCode]]
    HOOKS: ClassVar[Hooks | None] = None
    REQ_BGL: ClassVar[bool] = False
    """True: the cluster lock is taken exclusively, nothing else runs meanwhile."""

    def __init__(self, op: OpT, ctx: LuContext) -> None:
        self.op = op
        self.ctx = ctx
        self.config = ctx.config
        self.rpc = ctx.rpc
        self.instance: Instance | None = None
        self.hooks: HookRunner | None = None  # set by the processor when the plan is known
        self.last_seen: FilledInstance | None = None  # what the hooks were told last
        self.needed_locks: dict[Level, LockRequest] = {}
        self.shared_levels: set[Level] = set()
        self.opportunistic_levels: set[Level] = set()  # take what is free of the needed, never wait
        self.added_locks: dict[Level, list[str]] = {}

    # -- the phases ------------------------------------------------------------

    def expand_names(self) -> None:
        """Turn names into objects; declare the locks already known."""

    def declare_locks(self, level: Level) -> None:
        """Declare the locks of ``level``; all lower levels are held."""

    def check_prereq(self) -> PlanT:
        """Refuse, or return the plan."""
        return cast("PlanT", None)

    def exec(self, plan: PlanT) -> object:
        """Carry out the plan."""
        raise errors.ProgrammerError(f"{type(self).__name__} has no exec phase")

    # -- hooks -----------------------------------------------------------------

    def hook_env(self, plan: PlanT) -> dict[str, object]:
        """Variables of this operation, without prefix; asked again after ``exec``."""
        return {}

    def hook_instance(self, plan: PlanT) -> Instance | None:
        """The instance which the hooks are about, as it is now (or was, when just removed)."""
        if self.instance is None:
            return None
        return self.config.snapshot().instances.get(self.instance.uuid, self.instance)

    def hook_nodes(self, plan: PlanT) -> tuple[Sequence[str], Sequence[str]]:
        """Uuids of the nodes where the pre and the post phase run."""
        return ((), ())

    def post_hooks_done(self, results: HookResults, result: Any) -> object:
        """Look at what the post hooks said; may change the result."""
        return result

    def dry_run_result(self, plan: PlanT) -> object:
        """Result of a dry run, which stops before ``exec``."""
        return None

    def steps(self, plan: PlanT) -> Sequence[str] | None:
        """What ``exec`` would do, in order, for whoever asked for a dry run.

        Each is a phrase like "start instance web1 on node2": lower case, names for objects, nothing
        secret. It must not ask nodes or change anything. None (the default) lets
        :mod:`ganeti.cmdlib.dry_run` derive a description from the opcode and the plan.
        """
        return None

    # -- feedback --------------------------------------------------------------

    def feedback(self, text: str) -> None:
        """A line for whoever watches the job."""
        self.ctx.callbacks.feedback(text)

    def info(self, text: str) -> None:
        log.info("%s", text)
        self.ctx.callbacks.feedback(f" - INFO: {text}")

    def warn(self, text: str, hint: str = "") -> None:
        log.warning("%s", text)
        self.ctx.callbacks.feedback(f" - WARNING: {text}")
        if hint:
            self.ctx.callbacks.feedback(f"      Hint: {hint}")

    # -- locks -----------------------------------------------------------------

    def need(self, level: Level, keys: LockRequest, *, shared: bool = False) -> None:
        """Ask for locks; several calls for a level add up, exclusive wins over shared."""
        present = self.needed_locks.get(level, frozenset())
        if level in self.needed_locks and not shared:
            self.shared_levels.discard(level)
        elif level not in self.needed_locks and shared:
            self.shared_levels.add(level)
        if keys is ALL or (level in self.needed_locks and present is ALL):
            self.needed_locks[level] = ALL
        else:
            self.needed_locks[level] = frozenset(present or ()) | frozenset(keys or ())

    def need_new(self, level: Level, key: str) -> None:
        """Ask for the lock of an object which this unit is about to add."""
        self.added_locks.setdefault(level, []).append(key)
        self.need(level, [key])

    def lock_instance(
        self, name: str, uuid: str | None = None, *, shared: bool = False
    ) -> Instance:
        """Find an instance by name (or unique prefix) and ask for its lock.

        :raises errors.OpPrereqError: unknown name, or ``uuid`` is given and is another instance's.
        """
        instance = self.config.expand_instance(name or uuid or "")
        if uuid is not None and instance.uuid != uuid:
            raise errors.OpPrereqError(
                f"instance {instance.name} has uuid {instance.uuid}, not {uuid}; the job was made"
                " for another instance of that name",
                errors.ECODE_NOENT,
            )
        self.need(Level.INSTANCE, [instance.uuid], shared=shared)
        self.instance = instance
        return instance

    def lock_node(
        self, name: str, uuid: str | None = None, *, shared: bool = False, resources: bool = False
    ) -> Node:
        """Find a node by name (or unique prefix) and ask for its lock (and that of its
        resources)."""
        node = self.config.expand_node(name or uuid or "")
        if uuid is not None and node.uuid != uuid:
            raise errors.OpPrereqError(
                f"node {node.name} has uuid {node.uuid}, not {uuid}; the job was made for another"
                " node of that name",
                errors.ECODE_NOENT,
            )
        self.lock_nodes([node.uuid], shared=shared, resources=resources)
        return node

    def lock_nodes(
        self, uuids: LockRequest, *, shared: bool = False, resources: bool = False
    ) -> None:
        """Ask for the locks of nodes (and of their resources: disk work)."""
        self.need(Level.NODE, uuids, shared=shared)
        if resources:
            self.need(Level.NODE_RES, uuids, shared=shared)

    def lock_nodes_of(
        self,
        instance: Instance,
        *,
        primary_only: bool = False,
        shared: bool = False,
        resources: bool = False,
    ) -> None:
        """Ask for the locks of an instance's nodes; its own lock must be held, so they cannot
        change."""
        fresh = self.config.instance(instance.uuid)
        uuids = self.config.instance_nodes(fresh)
        if primary_only:
            uuids = uuids[:1]
        self.lock_nodes(uuids, shared=shared, resources=resources)

    def locks_acquired(self, level: Level) -> None:
        """Called when a level is held: what was looked up before may have changed while waiting.

        :raises errors.OpPrereqError: the instance was renamed meanwhile.
        """
        if level is not Level.INSTANCE or self.instance is None:
            return
        if self.instance.uuid in self.added_locks.get(level, ()):
            return
        fresh = self.config.instance(self.instance.uuid)
        if fresh.name != self.instance.name:
            raise errors.OpPrereqError(
                f"instance {self.instance.name} was renamed to {fresh.name} while the job waited",
                errors.ECODE_STATE,
            )
        self.instance = fresh

    def owned(self, level: Level) -> frozenset[str]:
        """Keys held at a level."""
        return frozenset(self.ctx.locks.owned(self.ctx.owner, level))

    def release_locks(self, level: Level, keys: Iterable[str] | None = None) -> None:
        """Give locks back before the end; all of the level when no keys are named."""
        held = self.owned(level)
        wanted = held if keys is None else held & frozenset(keys)
        if wanted:
            self.ctx.locks.release(self.ctx.owner, level, wanted)

    def downgrade_locks(self, level: Level, keys: Iterable[str] | None = None) -> None:
        """Keep locks, but only shared."""
        self.ctx.locks.downgrade(self.ctx.owner, level, None if keys is None else list(keys))


AnyUnit: TypeAlias = LogicalUnit[Any, Any]
"""A logical unit of which the caller needs neither the opcode nor the plan."""

UNITS: dict[str, type[AnyUnit]] = {}
"""Opcode id to logical unit; filled by :func:`executes`."""

UnitT = TypeVar("UnitT", bound=AnyUnit)


def executes(opcode: type[OpCode]) -> Callable[[type[UnitT]], type[UnitT]]:
    """Class decorator: register the unit for an opcode."""

    def register(unit: type[UnitT]) -> type[UnitT]:
        if opcode.OP_ID in UNITS:
            first = UNITS[opcode.OP_ID].__name__
            raise errors.ProgrammerError(
                f"{opcode.OP_ID} is executed by both {first} and {unit.__name__}"
            )
        unit.OPCODE = opcode
        UNITS[opcode.OP_ID] = unit
        return unit

    return register
