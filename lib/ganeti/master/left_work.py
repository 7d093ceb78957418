"""Work which nodes go on with although its job has ended.

An operating system script, a copy or a transfer does not end with the master daemon that asked for
it, nor with the connection over which it was asked for. So a new master asks the nodes what they do
for jobs of earlier masters (:data:`~ganeti.wire.calls.NODE_WORK`), and a job whose calls got no
answer says so at its end. As long as such work goes on, this module holds the lock of its instance,
exclusively, before any other job gets it. Nobody waits for it in silence: the owner of the lock is
named ``work of job 12 on node2.example.com for instance web1.example.com``, in ``gnt-debug locks``
and in the reason why a job waits.

What ends without harm is ended: transfers between nodes, which only read their source, and whose
result nobody would use. Everything else is waited for, because an interrupted script or copy leaves
a disk which cannot be used.

A node which does not answer may be at work. Then the instances are locked which the interrupted
jobs name and which have that node, until it answers or is marked as offline. Nodes are not locked,
so that it can be.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from ganeti import errors
from ganeti.config import Config
from ganeti.jqueue.job import QueuedJob
from ganeti.locking import Level, LockManager, Owner
from ganeti.locking.request import LockRequest
from ganeti.objects.transfer import NodeWork
from ganeti.platform import master_epoch
from ganeti.rpc import RpcRunner
from ganeti.wire.calls import IMPEXP_CLEANUP, NODE_WORK

_log = logging.getLogger(__name__)

# Before every job, whose priorities are from -20 to 19.
_PRIORITY: Final = -1000
#: Seconds between two questions to the nodes.
POLL_S: Final = 1.0
# Parameters of opcodes which name instances.
_NAMES: Final = ("instance_name", "new_name", "instances")


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
    """

    __slots__ = ("instance", "job", "nodes", "request")

    def __init__(self, job: int | None, instance: str, request: LockRequest | None) -> None:
        self.job = job
        self.instance = instance
        self.request = request
        self.nodes: dict[str, str] = {}


class WorkKeeper:
    """Holds the locks of instances on which nodes work for ended jobs.

    :param epoch: the epoch of this master.
    """

    def __init__(
        self, config: Config, locks: LockManager, rpc: RpcRunner, epoch: master_epoch.Epoch
    ) -> None:
        self._config = config
        self._locks = locks
        self._rpc = rpc
        self._epoch = str(epoch)
        self._lock = threading.Lock()
        self._holds: dict[tuple[int | None, str], _Hold] = {}
        # UUIDs of the instances to which work of a job belongs that names none.
        self._named: dict[int | None, frozenset[str]] = {}
        # Nodes which have not said yet what they do for earlier masters.
        self._unasked: set[str] = set()
        self._wake = threading.Event()
        self._ended = False
        self._thread: threading.Thread | None = None

    # -- finding ------------------------------------------------------------------------------

    def survey(self, interrupted: Sequence[QueuedJob]) -> None:
        """Ask all nodes, before any job of this master runs.

        :param interrupted: the jobs which were running when an earlier master daemon ended.
        """
        nodes = [node.uuid for node in self._config.online_nodes()]
        answers = self._ask(nodes)
        with self._lock:
            for job in interrupted:
                self._named[job.id] = self._instances_of(job)
            for uuid in nodes:
                if uuid in answers:
                    self._adopt(uuid, answers[uuid], self._is_older)
                    continue
                self._unasked.add(uuid)
                for job in interrupted:
                    self._doubt(job.id, uuid)
        self._start_if_needed()

    def hand_over(self, job_id: int | None, nodes: Collection[str], held: Collection[str]) -> None:
        """Keep the locks of a job which ends, where nodes may still work for it.

        The job still holds its locks; they pass to this object when it releases them.

        :param nodes: UUIDs of the nodes.
        :param held: UUIDs of the instances which the job has locked exclusively.
        """
        answers = self._ask(nodes)
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
        return work.epoch != self._epoch

    def _ask(self, nodes: Iterable[str]) -> dict[str, list[NodeWork]]:
        """Ask nodes for their work; a node which gives no answer is left out."""
        found = {}
        for uuid, answer in self._rpc.call_many(NODE_WORK, list(nodes), revoke=[]).items():
            if answer.failure is None:
                found[uuid] = answer.data
            elif isinstance(answer.failure, errors.NodeRefused):
                # A node of a version which keeps no records.
                found[uuid] = []
        return found

    def _instances_of(self, job: QueuedJob) -> frozenset[str]:
        """Return UUIDs of the instances which the opcodes of a job name."""
        found = set()
        for op in job.ops:
            for parameter in _NAMES:
                value = op.input.get(parameter)
                for name in value if isinstance(value, list) else (value,):
                    if isinstance(name, str) and name:
                        try:
                            found.add(self._config.expand_instance(name).uuid)
                        except errors.OpPrereqError:
                            continue
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
        """Hold the instances on which a node may work which does not answer."""
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

    def look(self) -> bool:
        """Ask the nodes once more, and release what is over; return whether anything is left."""
        with self._lock:
            asked = {node for hold in self._holds.values() for node in hold.nodes} | self._unasked
        known = self._config.snapshot().nodes
        online = [uuid for uuid in asked if uuid in known and not known[uuid].offline]
        answers = self._ask(online)
        with self._lock:
            self._unasked &= set(online)
            for node in self._unasked & answers.keys():
                self._adopt(node, answers[node], self._is_older)
            self._unasked -= answers.keys()
            for hold in list(self._holds.values()):
                self._refresh(hold, online, answers)
            return bool(self._holds or self._unasked)

    def _refresh(
        self, hold: _Hold, online: Collection[str], answers: Mapping[str, list[NodeWork]]
    ) -> None:
        for node in list(hold.nodes):
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

    def _belongs(self, work: NodeWork, hold: _Hold) -> bool:
        return work.job == hold.job and hold.instance in self._concerned(work)

    def left(self) -> list[Left]:
        """Return the work of ended jobs, as far as it is known."""
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
            if needed and self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="left-work", daemon=True)
                self._thread.start()

    def _watch(self) -> None:
        while not self._wake.wait(POLL_S):
            self.look()
            with self._lock:
                if not (self._holds or self._unasked):
                    self._thread = None
                    return

    def stop(self) -> None:
        """End the thread."""
        self._ended = True
        self._wake.set()


def _job(job_id: int | None) -> str:
    return "a program without a job" if job_id is None else f"job {job_id}"


def _describe(work: NodeWork) -> str:
    who = f" (process {', '.join(work.processes)})" if work.processes else ""
    return f"{work.doing}{who}"
