"""Work which nodes go on with although its job has ended.

An operating system script, a copy or a transfer does not end with the master daemon that asked for
it, nor with the connection over which it was asked for. So a new master asks the nodes what they do
for jobs of earlier masters (:data:`~ganeti.wire.calls.NODE_WORK`), and a job whose calls got no
answer says so at its end. As long as such work goes on, this module holds the lock of its instance,
exclusively, before any other job gets it. Nobody waits for it in silence: the owner of the lock is
named ``work of job 12 on node2.example.com for instance web1.example.com``, in ``gnt-debug locks``
and in the reason why a job waits.

What ends without harm is ended: transfers between nodes, which only read their source, and whose
result nobody would use. After a migration, its clean-up is submitted. Everything else is waited
for, because an interrupted script or copy leaves a disk which cannot be used.

A node which does not answer may still work. Then the instances are locked which the interrupted
jobs name and which have that node, until it answers or is marked as offline. Nodes are not locked,
so that it can be.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from ganeti import errors
from ganeti.config import Config
from ganeti.constants import job as job_const
from ganeti.jqueue import recovery
from ganeti.jqueue.job import QueuedJob
from ganeti.locking import Level, LockManager, Owner, lock_name
from ganeti.locking.request import LockRequest
from ganeti.objects.transfer import NodeWork
from ganeti.opcodes.base import OpCode
from ganeti.opcodes.instance import OpInstanceMigrate
from ganeti.platform import master_epoch
from ganeti.rpc import RpcRunner
from ganeti.utils import clock, shortage
from ganeti.wire.calls import IMPEXP_CLEANUP, NODE_WORK

_log = logging.getLogger(__name__)

# Before every job, whose priorities are from -20 to 19.
_PRIORITY: Final = -1000
#: Seconds between two questions to the nodes. While a node does not answer, they grow from the
#: first to the second number, because each question takes a line in the log.
POLL_S: Final = 1.0
UNRESPONSIVE_POLL_S: Final = 15.0
# Parameters of opcodes which name instances.
_NAMES: Final = ("instance_name", "new_name", "instances")


class Queue(Protocol):
    """What this module needs of the job queue."""

    def submit(self, ops: Sequence[OpCode], *, drained_ok: bool = False) -> int:
        """Submit a job and return its id."""

    def is_unfinished(self, job_id: int) -> bool:
        """Tell whether a job has not ended."""


class Left(NamedTuple):
    """Work of an ended job, for people.

    :ivar node: name of the node.
    """

    node: str
    text: str


class _Hold:
    """Work of one job on one instance.

    :ivar instance: UUID; empty for work on what is in no configuration.
    :ivar nodes: UUID of a node -> what it does; empty if it does not answer.
    :ivar migrating: the work is a migration, whose clean-up does not wait for the lock yet.
    :ivar clean_up: the job which cleans up, once it is submitted.
    """

    __slots__ = ("clean_up", "instance", "job", "migrating", "nodes", "request")

    def __init__(self, job: int | None, instance: str, request: LockRequest | None) -> None:
        self.job = job
        self.instance = instance
        self.request = request
        self.migrating = False
        self.clean_up: int | None = None
        self.nodes: dict[str, str] = {}


class OrphanedWorkLocks:
    """Holds the locks of instances on which nodes work for ended jobs.

    :param epoch: the epoch of this master.
    :param voters: names, in lower case, of the nodes which promised to obey it. Others are not
        asked at the start, which would only delay it.
    """

    def __init__(
        self,
        config: Config,
        locks: LockManager,
        rpc: RpcRunner,
        epoch: master_epoch.Epoch,
        voters: Collection[str],
    ) -> None:
        self._config = config
        self._locks = locks
        self._rpc = rpc
        self._epoch = str(epoch)
        self._voters = voters
        self._lock = threading.Lock()
        # Held by the one thread which asks the nodes; taken before the lock.
        self._polling = threading.Lock()
        self._holds: dict[tuple[int | None, str], _Hold] = {}
        # UUIDs of the instances to which work of a job belongs that names none.
        self._named: dict[int | None, frozenset[str]] = {}
        # Nodes which have not said yet what they do for earlier masters.
        self._unasked: set[str] = set()
        # Whether a node did not answer the last question.
        self._unresponsive = False
        self._queue: Queue | None = None
        #: Tells whether a job goes on in a process which an earlier master daemon has made.
        self.goes_on: Callable[[int | None], bool] = lambda _job: False
        self._wake = threading.Event()
        self._ended = False
        self._thread: threading.Thread | None = None

    # -- finding ------------------------------------------------------------------------------

    def survey(self, interrupted: Sequence[QueuedJob]) -> None:
        """Ask the nodes, before any job of this master runs.

        :param interrupted: the jobs which were running when an earlier master daemon ended.
        """
        nodes = self._config.online_nodes()
        answers = self._ask(node.uuid for node in nodes if node.name.lower() in self._voters)
        with self._lock:
            for job in interrupted:
                self._named[job.id] = self._instances_of(job)
                if _migrates(job):
                    for uuid in self._named[job.id]:
                        primary = self._config.instance(uuid).primary_node
                        hold = self._hold(job.id, uuid, primary)
                        hold.migrating = True
                        hold.nodes[primary] = "migration of the instance"
            for node in nodes:
                if node.uuid in answers:
                    self._adopt(node.uuid, answers[node.uuid], self._is_older)
                    continue
                self._unasked.add(node.uuid)
                for job in interrupted:
                    self._doubt(job.id, node.uuid)
        self._start_if_needed()

    def clean_up_migrations(self, queue: Queue) -> None:
        """Submit the clean-up of the migrations which were interrupted, before clients can submit.

        The transfer goes on between the hypervisors without the job, and only the clean-up knows
        whether it can be taken back or must be completed.
        """
        self._queue = queue
        with self._lock:
            holds = [hold for hold in self._holds.values() if hold.migrating]
        for hold in holds:
            instance = self._config.instance(hold.instance)
            op = OpInstanceMigrate(
                instance_name=instance.name,
                instance_uuid=instance.uuid,
                cleanup=True,
                priority=job_const.PRIO_HIGH,
            )
            why = f"clean-up after job {hold.job}, which was interrupted"
            op.add_reason(job_const.REASON_MASTERD_ORPHANED_WORK, why, clock.now_ns())
            try:
                hold.clean_up = queue.submit([op], drained_ok=True)
            except errors.GenericError as err:
                _log.error(
                    "instance %s: the clean-up of its migration cannot be submitted: %s. Use"
                    " 'gnt-instance migrate --cleanup'",
                    instance.name,
                    err,
                )
                hold.migrating = False
            else:
                _log.warning(
                    "instance %s: job %d cleans up after the migration of job %s",
                    instance.name,
                    hold.clean_up,
                    hold.job,
                )

    def hand_over(
        self,
        job_id: int | None,
        nodes: Collection[str],
        held: Collection[str],
        revoke: Collection[str] = (),
    ) -> None:
        """Keep the locks of a job which ends, where nodes may still work for it.

        The job still holds its locks; they pass to this object when it releases them.

        :param nodes: UUIDs of the nodes.
        :param held: UUIDs of the instances which the job has locked exclusively.
        :param revoke: names of calls which the nodes are to refuse when they arrive later.
        """
        answers = self._ask(nodes, revoke)
        data = self._config.snapshot()
        with self._lock:
            self._named[job_id] = frozenset(held)
            for uuid in nodes:
                if uuid in answers:
                    self._adopt(uuid, answers[uuid], lambda work: work.job == job_id)
                elif uuid in data.nodes and not data.nodes[uuid].offline:
                    self._doubt(job_id, uuid)
        self._start_if_needed()

    def _is_older(self, work: NodeWork) -> bool:
        return work.epoch != self._epoch and not self.goes_on(work.job)

    def _ask(self, nodes: Iterable[str], revoke: Collection[str] = ()) -> dict[str, list[NodeWork]]:
        """Ask nodes for their work; a node which gives no answer is left out."""
        found = {}
        for uuid, answer in self._rpc.call_many(
            NODE_WORK, list(nodes), revoke=list(revoke)
        ).items():
            if answer.failure is None:
                found[uuid] = answer.data
            elif isinstance(answer.failure, errors.NodeRefused) and not isinstance(
                answer.failure, errors.NodeKeyMismatch
            ):
                # A node of a version which keeps no records.
                found[uuid] = []
        return found

    def _instances_of(self, job: QueuedJob) -> frozenset[str]:
        """Return UUIDs of the instances which the opcodes of a job name."""
        values = [op.input.get(parameter) for op in job.ops for parameter in _NAMES]
        found = set()
        names = [one for value in values for one in (value if isinstance(value, list) else [value])]
        for name in names:
            if isinstance(name, str) and name:
                with contextlib.suppress(errors.OpPrereqError):
                    found.add(self._config.expand_instance(name).uuid)
        return frozenset(found)

    def _concerned(self, work: NodeWork) -> set[str]:
        """Return UUIDs of the instances to which work belongs; one is empty if there are none."""
        data = self._config.snapshot()
        found = {uuid for uuid in work.instances if uuid in data.instances}
        disks = set(work.disks)
        if disks:
            found |= {
                instance.uuid
                for instance in data.instances.values()
                if not disks.isdisjoint(instance.disks)
            }
        if not work.instances and not work.disks:
            found = {uuid for uuid in self._named.get(work.job, ()) if uuid in data.instances}
        return found or {""}

    # -- holding; each needs the lock ---------------------------------------------------------

    def _adopt(
        self, node: str, works: Iterable[NodeWork], is_left: Callable[[NodeWork], bool]
    ) -> None:
        """Hold what a node works on, and end what can be ended.

        :param is_left: whether work belongs to an ended job.
        """
        for work in works:
            if not is_left(work):
                continue
            for uuid in self._concerned(work):
                self._hold(work.job, uuid, node).nodes[node] = _describe(work)
            if work.transfer is not None:
                _log.warning(
                    "node %s: ending transfer %s of %s, which has ended",
                    node,
                    work.transfer,
                    _job(work.job),
                )
                self._rpc.call(IMPEXP_CLEANUP, node, name=work.transfer)

    def _doubt(self, job_id: int | None, node: str) -> None:
        """Hold the instances on which an unresponsive node may work."""
        known = self._config.snapshot().instances
        for uuid in self._named[job_id]:
            if uuid in known and node in self._config.instance_nodes(known[uuid]):
                self._hold(job_id, uuid, node).nodes.setdefault(node, "")

    def _hold(self, job_id: int | None, uuid: str, node: str) -> _Hold:
        found = self._holds.get((job_id, uuid))
        if found is None:
            request = None
            name = f"work of {_job(job_id)} on {self._node_name(node)}"
            if uuid:
                name += f" for instance {self._config.instance(uuid).name}"
                try:
                    request = self._locks.begin(
                        Owner(None, name),
                        Level.INSTANCE,
                        [uuid],
                        shared=False,
                        priority=_PRIORITY,
                    )
                except errors.LockError as err:
                    _log.warning("%s: its lock cannot be kept: %s", name, err)
            _log.warning("%s goes on, although the job has ended", name)
            found = self._holds[job_id, uuid] = _Hold(job_id, uuid, request)
        return found

    def _node_name(self, uuid: str) -> str:
        node = self._config.snapshot().nodes.get(uuid)
        return uuid if node is None else node.name

    # -- waiting for the end ------------------------------------------------------------------

    def poll(self) -> bool:
        """Ask the nodes once more, and release what is over; return whether anything is left."""
        with self._polling:
            return self._poll()

    def _poll(self) -> bool:
        with self._lock:
            # A job may hand over more while the nodes are asked; these answers are older.
            before = [(hold, tuple(hold.nodes)) for hold in self._holds.values()]
            asked = self._unasked.union(*(nodes for _hold, nodes in before))
        known = self._config.snapshot().nodes
        online = [uuid for uuid in asked if uuid in known and not known[uuid].offline]
        answers = self._ask(online)
        self._unresponsive = len(answers) < len(online)
        with self._lock:
            self._unasked -= asked.difference(online)
            for node in self._unasked & answers.keys():
                self._adopt(node, answers[node], self._is_older)
            self._unasked -= answers.keys()
            for hold, nodes in before:
                self._refresh(hold, nodes, online, answers)
            return bool(self._holds or self._unasked)

    def _refresh(
        self,
        hold: _Hold,
        nodes: Iterable[str],
        online: Collection[str],
        answers: Mapping[str, list[NodeWork]],
    ) -> None:
        if hold.migrating and self._is_cleaned_up(hold):
            hold.migrating = False
        if hold.migrating:
            return
        for node in nodes:
            if node not in online:
                del hold.nodes[node]
            elif node in answers:
                mine = [work for work in answers[node] if self._belongs(work, hold)]
                if mine:
                    self._adopt(node, mine, lambda _work: True)
                else:
                    del hold.nodes[node]
        if not hold.nodes:
            del self._holds[hold.job, hold.instance]
            if not any(job == hold.job for job, _instance in self._holds) and not self._unasked:
                self._named.pop(hold.job, None)
            if hold.request is not None:
                _log.info("%s is over", hold.request.owner)
                self._locks.withdraw(hold.request)

    def _is_cleaned_up(self, hold: _Hold) -> bool:
        """Tell whether the clean-up of a migration waits for the lock, so that it is the next."""
        if hold.clean_up is None or self._queue is None:
            return False
        if not self._queue.is_unfinished(hold.clean_up):
            return True
        wanted = lock_name(Level.INSTANCE, hold.instance)
        waits = (
            self._locks.waiting(owner)
            for owner in self._locks.owners()
            if owner.job_id == hold.clean_up
        )
        return any(wait is not None and wait.lock == wanted for wait in waits)

    def _belongs(self, work: NodeWork, hold: _Hold) -> bool:
        return work.job == hold.job and hold.instance in self._concerned(work)

    def left(self) -> list[Left]:
        """Ask the nodes once more, and return the work of ended jobs, as far as it is known."""
        with self._lock:
            asks = bool(self._holds or self._unasked)
        if asks:
            self.poll()
        with self._lock:
            found = []
            for hold in self._holds.values():
                instance = self._config.snapshot().instances.get(hold.instance)
                about = f" for instance {instance.name}" if instance is not None else ""
                for node, doing in hold.nodes.items():
                    text = (
                        f"it goes on with work of {_job(hold.job)}{about}, which has ended: {doing}"
                        if doing
                        else f"it does not say whether it goes on with work of {_job(hold.job)}"
                        f"{about}, which has ended. If the machine is down, mark it with"
                        " 'gnt-node modify --offline=yes'"
                    )
                    found.append(Left(self._node_name(node), text))
            return sorted(found)

    def _start_if_needed(self) -> None:
        with self._lock:
            needed = bool(self._holds or self._unasked) and not self._ended
            if needed and self._thread is not None:
                self._wake.set()
            elif needed:
                self._thread = shortage.start_thread(self._watch, name="orphaned-work")

    def _watch(self) -> None:
        pause_s = POLL_S
        while not self._ended:
            if self._wake.wait(pause_s) or not self._unresponsive:
                pause_s = POLL_S
            else:
                pause_s = min(2 * pause_s, UNRESPONSIVE_POLL_S)
            self._wake.clear()
            try:
                with shortage.as_error():
                    self.poll()
            except errors.GenericError as err:
                _log.error("cannot ask for work of ended jobs: %s", err)
            with self._lock:
                if not (self._holds or self._unasked):
                    self._thread = None
                    return

    def stop(self) -> None:
        """End the thread."""
        self._ended = True
        self._wake.set()


def _migrates(job: QueuedJob) -> bool:
    """Tell whether a migration was running."""
    op = recovery.running(job)
    return (
        op is not None
        and op.input.get("OP_ID") == OpInstanceMigrate.OP_ID
        and not op.input.get("cleanup")
    )


def _job(job_id: int | None) -> str:
    return "a program without a job" if job_id is None else f"job {job_id}"


def _describe(work: NodeWork) -> str:
    who = f" (process {', '.join(work.processes)})" if work.processes else ""
    return f"{work.doing}{who}"
