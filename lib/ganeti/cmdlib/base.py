"""Base class of all logical units, and the context in which they run.

A logical unit (LU) executes one kind of opcode in four phases, which
:class:`ganeti.cmdlib.processor.Processor` calls:

``expand_names``
    turns the user's names into objects and asks for the first locks; holds only the cluster lock.
``declare_locks(level)``
    asks for the locks of a level; called once per level, in order, with the locks of all lower
    levels already held.
``check_prereq``
    reads the configuration, asks nodes and returns the plan; changes nothing. It refuses the
    operation with :class:`~ganeti.errors.OpPrereqError`.
``exec(plan)``
    carries out the plan; an error of this phase means that something may have been changed.

The unit reaches the cluster only through its :class:`LuContext`: the configuration, the node
calls, the locks of its owner and the job's callbacks. This module does not assume that the job and
the configuration are in one process.

Units register themselves with :func:`executes`; :func:`ganeti.cmdlib.lookup` finds them.
:class:`OpCallbacks` is the interface of the job queue for a running opcode.

Source: Ganeti design 2.0, *Job Queue* and *Granular locking*.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeAlias, TypeVar, cast

from ganeti import errors
from ganeti.constants.job import LOG_ALREADY, LOG_WAITING
from ganeti.locking import ALL, Level, LockManager, Owner
from ganeti.query.engine import FieldsAnswer, QueryAnswer

if TYPE_CHECKING:
    from ganeti.cmdlib.hooks import HookResults, HookRunner, Hooks
    from ganeti.config import Config
    from ganeti.config.history import Author
    from ganeti.objects import FilledInstance, Instance, Node
    from ganeti.opcodes.base import OpCode
    from ganeti.query.view import View
    from ganeti.rpc import RpcRunner

log = logging.getLogger(__name__)

LockRequest: TypeAlias = Collection[str] | None
"""Keys of locks of one level; None (``ALL``) is the lock of the whole level."""

Job: TypeAlias = Sequence["OpCode"]

DeviceKey: TypeAlias = tuple[str, str, tuple[Any, ...]]
"""A device on one node: UUID of the node, ``dev_type`` and ``logical_id``."""

FieldValue: TypeAlias = Any
"""One value of a query, a JSON value; its type depends on the field."""

OpT = TypeVar("OpT", bound="OpCode")
"""The opcode which a logical unit executes."""

PlanT = TypeVar("PlanT")
"""What ``check_prereq`` of a logical unit returns; None for a unit which needs no plan."""

_run_numbers = itertools.count(1)


class OpCallbacks(Protocol):
    """The interface of the job queue for the opcode which it runs."""

    @property
    def owner(self) -> Owner:
        """The owner of the locks: the job."""

    def notify_start(self) -> None:
        """Move the opcode from waiting to running; the change is durable when this returns.

        The processor calls this when all locks are held.
        """

    def feedback(self, *args: Any) -> None:
        """Add an entry to the job log: ``(message)`` or ``(type, message)``."""

    def check_cancel(self) -> None:
        """Check whether the job may go on.

        :raises errors.JobCanceled: the job was canceled.
        """

    def priority(self) -> int:
        """Present priority of the job; it may change while waiting for locks."""

    def submit_jobs(self, jobs: Sequence[Job]) -> list[list[Any]]:
        """Submit jobs.

        :returns: ``[True, job id]`` or ``[False, message]`` for each job.
        """


class Queries(Protocol):
    """The interface of the query service, which :mod:`ganeti.master.queries` implements.

    The logical units of the query opcodes call it through their context, because that package is in
    a higher layer than ``cmdlib``.
    """

    def query(self, what: str, fields: Sequence[str], qfilter: Any = None, /) -> QueryAnswer:
        """Answer the LUXI request ``Query``: the fields and the data of objects."""

    def query_fields(self, what: str, names: Sequence[str] | None = None, /) -> FieldsAnswer:
        """Answer the LUXI request ``QueryFields``: the definitions of fields."""

    def query_values(
        self, what: str, names: Sequence[str | int] | None, fields: Sequence[str], /
    ) -> list[list[FieldValue]]:
        """Answer the older queries: one list of plain values for each object."""

    def cluster_info(self) -> dict[str, FieldValue]:
        """Answer ``QueryClusterInfo``: name -> value."""

    def config_values(self, names: Sequence[str], /) -> list[FieldValue]:
        """Answer ``QueryConfigValues``: the values of the named fields."""


class JobLocks(Protocol):
    """The locks of the cluster, as a job uses them (:class:`ganeti.locking.LockManager`)."""

    def add(self, level: Level, keys: Iterable[str], /) -> None:
        """Create locks, all of them or none."""

    def remove(self, level: Level, keys: Iterable[str], owner: Owner, /) -> None:
        """Remove locks which the owner holds exclusively."""

    def keys(self, level: Level, /) -> frozenset[str]:
        """Return the keys of the level's present members."""

    def acquire(
        self,
        owner: Owner,
        level: Level,
        keys: Collection[str] | None,
        *,
        shared: bool,
        timeout_s: float | None = None,
        priority: int | Callable[[], int] = 0,
        opportunistic: bool = False,
        canceled: Callable[[], None] | None = None,
    ) -> frozenset[str] | None:
        """Take locks of one level, waiting for them in order."""

    def owned(self, owner: Owner, level: Level, /) -> Mapping[str, str]:
        """Return the members which the owner holds, each ``shared`` or ``exclusive``."""

    def release(
        self, owner: Owner, level: Level | None = None, keys: Collection[str] | None = ALL, /
    ) -> None:
        """Release the named locks, all locks of a level, or all locks."""

    def downgrade(self, owner: Owner, level: Level, keys: Collection[str] | None = ALL, /) -> None:
        """Turn exclusive locks into shared ones; all of the level when no keys are given."""


class JobFiles(Protocol):
    """The files of the job queue, and their copies (:class:`ganeti.jqueue.queue.JobQueue`)."""

    def compare_copies(self) -> None:
        """Compare the candidates' copies with the queue and send what they lack, if any."""

    def repair_files(self) -> Mapping[int, str]:
        """Write files of jobs anew which are damaged; return what was wrong, by job id."""

    def lost_jobs(self) -> Mapping[int, str]:
        """Return why jobs could not be read when the daemon started, by id."""


class WitnessCheck(Protocol):
    """The witness of the cluster, as logical units use it."""

    def poll(self, *, touch: bool = False) -> str | None:
        """Read it, and with ``touch`` write it; return why it does not count, or nothing.

        None if the cluster has none, or needs none.
        """

    def set_up(self, url: str) -> None:
        """Check a server, and write the first document there.

        :raises errors.GenericError: it cannot be the witness.
        """


class OrphanedWork(Protocol):
    """Keeps locks as long as nodes work for ended jobs (:mod:`ganeti.master.orphaned_work`)."""

    def hand_over(
        self,
        job_id: int | None,
        nodes: Collection[str],
        held: Collection[str],
        revoke: Collection[str] = (),
        /,
    ) -> None:
        """Keep the locks of a job which ends, where these nodes still work for it.

        :param held: UUIDs of the instances which the job has locked exclusively.
        :param revoke: names of calls which the nodes are to refuse when they arrive later.
        """

    def left(self) -> Sequence[tuple[str, str]]:
        """Return such work: the name of the node, and a text."""


@dataclass(slots=True)
class JobContext:
    """The services which jobs use, made once for each process in which jobs run.

    A logical unit uses them through its :class:`LuContext`, and neither knows nor asks whether a
    service is in its own process.

    :ivar job_files: the files of the job queue; set after construction, because the queue needs the
        processor and the processor needs this object.
    :ivar queries: the query service; set after construction, too.
    :ivar orphaned_work: keeps the locks of instances on which nodes work for ended jobs.
    :ivar witness: polls the witness of two candidates.
    """

    config: Config
    locks: JobLocks
    rpc: RpcRunner
    job_files: JobFiles | None = None
    queries: Queries | None = None
    orphaned_work: OrphanedWork | None = None
    witness: WitnessCheck | None = None


@dataclass(slots=True)
class MasterContext(JobContext):
    """The services of the master daemon, made once at its start.

    :ivar queue: the job queue, for the daemon itself; set after construction.
    :ivar live_seen: called after a query asked nodes about guests, with the view which holds the
        live data, and with the instances to which they belong.
    :ivar commit_age: returns the seconds since a majority confirmed last that this master can
        commit; None where the role does not move by itself.
    """

    locks: LockManager
    queue: Any = None
    live_seen: Callable[[View, Sequence[Instance]], None] | None = None
    commit_age: Callable[[], float | None] = lambda: None


def why(failure: Exception | None) -> str:
    """Return the reason of a failed node call, for a message which already names the node."""
    return failure.message if isinstance(failure, errors.NodeCallFailed) else str(failure)


class ResultWithJobs:
    """A result of ``exec`` which asks the processor to submit jobs.

    The processor submits them and returns ``{"jobs": [[status, id or message], ...], **others}``.
    """

    def __init__(self, jobs: Sequence[Job], **others: Any) -> None:
        self.jobs = [list(job) for job in jobs]
        self.others = others


class JobLog:
    """The log of the job which runs a logical unit."""

    __slots__ = ("feedback",)

    def __init__(self, feedback: Callable[..., None]) -> None:
        #: Adds a line to the job log; with two arguments, an entry of a type.
        self.feedback = feedback

    def info(self, text: str) -> None:
        """Add information to the job log and to the log of the daemon."""
        log.info("%s", text)
        self.feedback(f" - INFO: {text}")

    def already(self, text: str) -> None:
        """Add to both logs that the object was in the wanted state, so that nothing was done."""
        log.info("%s", text)
        self.feedback(LOG_ALREADY, f" - INFO: {text}")

    def waiting(self, text: str) -> None:
        """Add for what the job waits now; only users on a terminal see it."""
        log.info("%s", text)
        self.feedback(LOG_WAITING, f" - INFO: {text}")

    def warn(self, text: str, hint: str = "") -> None:
        """Add a warning to the job log and to the log of the daemon.

        :param hint: a whole sentence: what the administrator can do.
        """
        log.warning("%s", text)
        self.feedback(f" - WARNING: {text}")
        if hint:
            self.feedback(f"      Hint: {hint}")


@dataclass(slots=True)
class Context:
    """What the code below a logical unit needs of its run to read, change and report.

    A function which needs only one or two of these takes them instead.

    :ivar refused: devices which nodes refused to create; see
        :mod:`ganeti.cmdlib.ops.disks.ownership`.
    """

    config: Config
    rpc: RpcRunner
    log: JobLog
    refused: set[DeviceKey] = field(default_factory=set)


class LuContext(Context):
    """The context of one run of a logical unit: also its job, its locks and the services.

    :ivar ec_id: identifies the run for the reservations in the configuration (names, MACs, UUIDs).
    :ivar author: the job which changes the configuration, for its history.
    """

    __slots__ = ("author", "callbacks", "ec_id", "master")

    def __init__(
        self,
        master: JobContext,
        callbacks: OpCallbacks,
        ec_id: str = "",
        author: Author | None = None,
    ) -> None:
        self.master = master
        self.callbacks = callbacks
        self.ec_id = ec_id or f"job-{callbacks.owner.job_id}-run-{next(_run_numbers)}"
        self.author = author
        config = master.config.reserving_for(self.ec_id)
        if author is not None:
            config = config.acting_for(author)
        rpc = master.rpc.for_job(callbacks.owner.job_id, callbacks.feedback)
        super().__init__(config, rpc, JobLog(callbacks.feedback))

    @property
    def locks(self) -> JobLocks:
        return self.master.locks

    @property
    def job_files(self) -> JobFiles | None:
        """The files of the job queue; None where there is no queue."""
        return self.master.job_files

    @property
    def orphaned_work(self) -> OrphanedWork | None:
        """What keeps locks as long as nodes work for ended jobs; None without a queue."""
        return self.master.orphaned_work

    @property
    def witness(self) -> WitnessCheck | None:
        """What polls the witness of two candidates; None in a context without one."""
        return self.master.witness

    @property
    def queries(self) -> Queries:
        """The query service.

        :raises errors.ProgrammerError: this context has none.
        """
        if self.master.queries is None:
            raise errors.ProgrammerError("this context has no query service")
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
    """True: the unit takes the cluster lock exclusively, so that no other unit runs meanwhile."""

    def __init__(self, op: OpT, ctx: LuContext) -> None:
        self.op = op
        #: The opcode of the job; ``op`` may be completed, or be one which carries it out.
        self.asked: OpCode = op
        self.ctx = ctx
        self.config = ctx.config
        self.rpc = ctx.rpc
        self.log = ctx.log
        self.instance: Instance | None = None
        self.hooks: HookRunner | None = None  # set by the processor when the plan is known
        self.last_seen: FilledInstance | None = None  # as the hooks got it the last time
        self.needed_locks: dict[Level, LockRequest] = {}
        self.shared_levels: set[Level] = set()
        self.opportunistic_levels: set[Level] = set()  # take the free ones of the locks, never wait
        self.added_locks: dict[Level, list[str]] = {}

    # -- the phases ------------------------------------------------------------

    def expand_names(self) -> None:
        """Turn names into objects; ask for the locks which are known already."""

    def declare_locks(self, level: Level) -> None:
        """Ask for the locks of ``level``; those of all lower levels are held."""

    def check_prereq(self) -> PlanT:
        """Check whether the operation is possible, and return the plan.

        :raises errors.OpPrereqError: it is not possible; nothing was changed.
        """
        return cast("PlanT", None)

    def exec(self, plan: PlanT) -> object:
        """Carry out the plan; returns the result of the opcode.

        :raises errors.OpExecError: a step failed; the text says what was changed.
        """
        raise errors.ProgrammerError(f"{type(self).__name__} has no exec phase")

    # -- hooks -----------------------------------------------------------------

    def hook_env(self, plan: PlanT) -> dict[str, object]:
        """Hook variables of this operation, without prefix; called again after ``exec``."""
        return {}

    def hook_instance(self, plan: PlanT) -> Instance | None:
        """Return the instance of the hook variables, as it is now, or was before its removal."""
        if self.instance is None:
            return None
        return self.config.snapshot().instances.get(self.instance.uuid, self.instance)

    def hook_env_of_node(self, plan: PlanT, node_uuid: str) -> Mapping[str, object]:
        """Return the variables which have other values on this node than in :meth:`hook_env`."""
        return {}

    def hook_nodes(self, plan: PlanT) -> tuple[Sequence[str], Sequence[str]]:
        """Return the UUIDs of the nodes on which the hooks of the pre and of the post phase run."""
        return ((), ())

    def post_hooks_done(self, results: HookResults, result: Any) -> object:
        """Evaluate the results of the post hooks; returns the result of the opcode."""
        return result

    def dry_run_result(self, plan: PlanT) -> object:
        """Result of a dry run, which stops before ``exec``."""
        return None

    def steps(self, plan: PlanT) -> Sequence[str] | None:
        """Return the steps of ``exec``, in order, for the output of a dry run.

        Each is a phrase like "start instance web1 on node2": lower case, names for objects, nothing
        secret. This method must not ask nodes or change anything. None (the default) lets
        :mod:`ganeti.cmdlib.dry_run` derive a description from the opcode and the plan.
        """
        return None

    # -- locks -----------------------------------------------------------------

    def need(self, level: Level, keys: LockRequest, *, shared: bool = False) -> None:
        """Ask for locks of a level; several calls for a level add up.

        :param keys: the keys of the locks; None (``ALL``) for the whole level.
        :param shared: take them shared, unless another call asks for them exclusively.
        """
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
        """Ask for the lock of an object which this unit is going to add."""
        self.added_locks.setdefault(level, []).append(key)
        self.need(level, [key])

    def lock_instance(
        self, name: str, uuid: str | None = None, *, shared: bool = False
    ) -> Instance:
        """Find an instance by name (or unique prefix) and ask for its lock.

        :raises errors.OpPrereqError: unknown name, or it does not have the given UUID.
        """
        instance = self.config.expand_instance(name or uuid or "")
        if uuid is not None and instance.uuid != uuid:
            raise errors.OpPrereqError(
                f"instance {instance.name} is not the one for which the job was submitted, which"
                " had the same name. Look at it, and submit the job again.",
                errors.ECODE_NOENT,
            )
        self.need(Level.INSTANCE, [instance.uuid], shared=shared)
        self.instance = instance
        return instance

    def lock_node(
        self, name: str, uuid: str | None = None, *, shared: bool = False, resources: bool = False
    ) -> Node:
        """Find a node by name (or unique prefix) and ask for its lock.

        :param resources: ask for the lock of its resources, too.
        :raises errors.OpPrereqError: unknown name, or it does not have the given UUID.
        """
        node = self.find_node(name, uuid)
        self.lock_nodes([node.uuid], shared=shared, resources=resources)
        return node

    def find_node(self, name: str, uuid: str | None = None) -> Node:
        """Find a node by name (or unique prefix), and by its UUID if that is given.

        :raises errors.OpPrereqError: unknown name, or it does not have the given UUID.
        """
        node = self.config.expand_node(name or uuid or "")
        if uuid is not None and node.uuid != uuid:
            raise errors.OpPrereqError(
                f"node {node.name} is not the one for which the job was submitted, which had the"
                " same name. Look at it, and submit the job again.",
                errors.ECODE_NOENT,
            )
        return node

    def find_nodes(self, names: Sequence[str], uuids: Sequence[str] | None) -> list[Node]:
        """Find nodes by their names, and by their UUIDs if these are given.

        :param uuids: None, or for each name the UUID of that node; also without names.
        :raises errors.OpPrereqError: as for :meth:`find_node`, or the lists differ in length.
        """
        if not uuids:
            return [self.config.expand_node(name) for name in names]
        if not names:
            return [self.config.expand_node(uuid) for uuid in uuids]
        if len(names) != len(uuids):
            raise errors.OpPrereqError(
                f"{len(names)} names of nodes and {len(uuids)} UUIDs are given",
                errors.ECODE_INVAL,
            )
        return [self.find_node(name, uuid) for name, uuid in zip(names, uuids, strict=True)]

    def lock_nodes(
        self, uuids: LockRequest, *, shared: bool = False, resources: bool = False
    ) -> None:
        """Ask for the locks of nodes.

        :param resources: ask for the locks of their resources, too, as work on disks needs it.
        """
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
        """Ask for the locks of an instance's nodes.

        The lock of the instance must be held, so that its nodes cannot change.
        """
        fresh = self.config.instance(instance.uuid)
        uuids = self.config.instance_nodes(fresh)
        if primary_only:
            uuids = uuids[:1]
        self.lock_nodes(uuids, shared=shared, resources=resources)

    def need_instance_nodes(self, level: Level) -> None:
        """Ask for the nodes of the instance, shared, and for their resources, exclusively.

        :param level: of :meth:`declare_locks`; at other levels nothing is asked for.
        """
        if level in (Level.NODE, Level.NODE_RES) and self.instance is not None:
            nodes = self.config.instance_nodes(self.instance)
            self.need(level, nodes, shared=level is Level.NODE)

    def locks_acquired(self, level: Level) -> None:
        """Check the objects again when the locks of a level are held.

        They may have changed while the job waited for the locks.

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
        """Keys of the locks which the job holds at a level."""
        return frozenset(self.ctx.locks.owned(self.ctx.owner, level))

    def release_locks(self, level: Level, keys: Iterable[str] | None = None) -> None:
        """Release locks before the end of the run; all of the level if ``keys`` is None."""
        held = self.owned(level)
        wanted = held if keys is None else held & frozenset(keys)
        if wanted:
            self.ctx.locks.release(self.ctx.owner, level, wanted)

    def downgrade_locks(self, level: Level, keys: Iterable[str] | None = None) -> None:
        """Turn exclusive locks into shared ones; all of the level if ``keys`` is None."""
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
