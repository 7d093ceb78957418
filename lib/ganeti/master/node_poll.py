"""Notices nodes which are gone, and submits the automatic failover of their instances.

A thread of the master daemon asks all nodes every few seconds which of their disks wait for their
peers; any answer shows that a node is there. It decides nothing about instances: it resumes
suspended I/O of disks (:mod:`.suspended_disks`), it records what nodes promise about their hardware
watchdogs (:mod:`.watchdog_records`), and for a node which is gone it submits
``OP_NODE_AUTO_FAILOVER``, which checks again, fences the node and goes on. While the parameter
``auto_instance_failover`` of the cluster is off and no disk may wait, nobody is asked.

Time is measured with a clock that nobody sets, and counted only while this master observes: after a
start of the daemon, or a pause of its process, each node gets the full time again.

Source: ``doc/design-instance-failover.rst``.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, Protocol

from ganeti import errors
from ganeti.config import Config
from ganeti.constants import job as job_c
from ganeti.master import suspended_disks, watchdog_records
from ganeti.opcodes.base import OpCode
from ganeti.opcodes.node import OpNodeAutoFailover
from ganeti.rpc import RpcRunner
from ganeti.rpc.results import Result, is_gone
from ganeti.utils import clock, shortage
from ganeti.wire.calls import DRBD_WAITING, Call

_log = logging.getLogger(__name__)

#: Seconds between two rounds of questions, and which a node has for its answer.
ROUND_S: Final = 2.0
ANSWER_S: Final = 4.0
#: Seconds which a node has that did not answer in the round before. They suffice for its system to
#: accept a connection, which is a sign of life.
AGAIN_S: Final = 2.0
#: Seconds between two rounds are never fewer.
MIN_PAUSE_S: Final = 0.2
#: Seconds until a failed attempt is repeated; they double up to the second number.
RETRY_S, MAX_RETRY_S = 30.0, 3600.0

#: What each node is asked; any answer shows that it is there.
_QUESTION = dataclasses.replace(DRBD_WAITING, timeout_s=ANSWER_S)
_QUESTION_AGAIN = dataclasses.replace(DRBD_WAITING, timeout_s=AGAIN_S)


class Outages:
    """Decides which nodes are gone. It sends no requests and reads no clock.

    A gap between two rounds which is longer than `max_gap_s` is time in which nobody observed.
    """

    def __init__(self, max_gap_s: float = 3 * (ROUND_S + ANSWER_S)) -> None:
        self._max_gap_s = max_gap_s
        self._last = 0.0
        self._heard: dict[str, float] = {}
        self._tries: dict[str, tuple[int, float]] = {}

    def observe(
        self,
        asked: Collection[str],
        answered: Collection[str],
        now: float,
        limit_s: float,
        busy: Collection[str] = (),
    ) -> list[str]:
        """Take in the answers of one round.

        :param asked: all nodes which should answer.
        :param answered: those which have answered.
        :param now: seconds of a clock which only goes forward.
        :param limit_s: seconds without an answer after which a node is gone.
        :param busy: nodes for which an attempt is still running; their turn comes after it.
        :returns: nodes which are gone, and whose turn it is; empty when so few nodes answer that
            the fault may be the master's own.
        """
        if now - self._last > self._max_gap_s:
            self._heard.clear()
        self._last = now
        self._heard = {one: self._heard.get(one, now) for one in asked}
        self._tries = {one: tried for one, tried in self._tries.items() if one in self._heard}
        for one in answered:
            self._heard[one] = now
            self._tries.pop(one, None)
        if len(asked) > 2 and len(answered) * 2 <= len(asked):
            return []
        due = []
        for one, heard in self._heard.items():
            count, next_try = self._tries.get(one, (0, now))
            if one not in busy and now - heard >= limit_s and now >= next_try:
                self._tries[one] = (count + 1, now + min(MAX_RETRY_S, RETRY_S * 2**count))
                due.append(one)
        return due

    def pause_s(self, limit_s: float, took_s: float) -> float:
        """Return how many seconds to wait before the next round, after :meth:`observe`.

        That is usually :data:`ROUND_S`. When the time of an unresponsive node ends soon, the next
        round ends with it, so that a node counts as gone no later than necessary.

        :param limit_s: as for :meth:`observe`.
        :param took_s: seconds which the last round has taken, as the next one will.
        """
        unresponsive = [
            left_s
            for one, heard in self._heard.items()
            if one not in self._tries and 0 < (left_s := heard + limit_s - self._last) < limit_s
        ]
        pause_s = min(unresponsive, default=ROUND_S + took_s) - took_s
        return max(MIN_PAUSE_S, pause_s) if pause_s < ROUND_S + 1 else ROUND_S


class Queue(Protocol):
    """What this module needs of the job queue."""

    def submit(self, ops: Sequence[OpCode], *, drained_ok: bool = False) -> int:
        """Submit a job and return its id."""

    def is_unfinished(self, job_id: int) -> bool:
        """Tell whether a job has not ended."""


class NodePoll:
    """Asks the nodes, and submits jobs for those which are gone."""

    def __init__(
        self,
        config: Config,
        rpc: RpcRunner,
        queue: Queue,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._rpc = rpc
        self._queue = queue
        self._monotonic = monotonic
        self._outages = Outages()
        #: The last job for a node, by UUID of the node.
        self._jobs: dict[str, int] = {}
        #: Nodes which did not answer in the last round.
        self._unheard: frozenset[str] = frozenset()
        self._stop = threading.Event()

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, name="node-watch", daemon=True).start()

    def stop(self) -> None:
        """End the thread after its present round."""
        self._stop.set()

    def _run(self) -> None:
        pause_s = ROUND_S
        while not self._stop.wait(pause_s):
            try:
                with shortage.as_error():
                    pause_s = self.round()
            except errors.GenericError as err:
                pause_s = ROUND_S
                _log.error("cannot watch the nodes: %s", err)

    def round(self) -> float:
        """Ask all nodes once, and submit what follows.

        :returns: seconds until the next round.
        :raises errors.GenericError: the configuration cannot be read, or the queue takes no job.
        """
        begin = self._monotonic()
        # A node which did not answer the last question would only delay this one.
        watchdog_records.poll(self._config, self._rpc, {*self._running(), *self._unheard})
        unresponsive, self._unheard = self._unheard, frozenset()
        data = self._config.snapshot()
        limit_s = data.cluster.auto_instance_failover
        if not limit_s and not suspended_disks.are_expected(data):
            return ROUND_S
        online = [node.uuid for node in data.nodes.values() if not node.offline]
        heard = self._ask(_QUESTION, [uuid for uuid in online if uuid not in unresponsive])
        # Disks of the others do not wait for a node which is unresponsive.
        heard += self._ask(_QUESTION_AGAIN, [uuid for uuid in online if uuid in unresponsive])
        if not limit_s:
            return ROUND_S
        self._unheard = frozenset(online) - frozenset(heard)
        busy = self._running()
        now = self._monotonic()
        for uuid in self._outages.observe(online, heard, now, limit_s, busy):
            node = data.nodes[uuid]
            if uuid == data.cluster.master_node or node.is_left_alone():
                continue
            _log.warning("node %s has not answered for %d seconds", node.name, limit_s)
            job_id = self._queue.submit([_failover(node.name, uuid, limit_s)])
            self._jobs[uuid] = job_id
            _log.warning("job %d fences it and starts its instances elsewhere", job_id)
        return self._outages.pause_s(limit_s, now - begin)

    def _ask(self, question: Call, nodes: Sequence[str]) -> list[str]:
        """Ask nodes, and resume suspended I/O of their disks.

        :returns: UUIDs of the nodes which show a sign of life.
        """
        if not nodes:
            return []
        answers = self._rpc.call_many(question, nodes)
        self._resume_io(answers)
        return [uuid for uuid, answer in answers.items() if not is_gone(answer.failure)]

    def _running(self) -> Collection[str]:
        """Return the nodes for which a job is running; the others are forgotten."""
        self._jobs = {
            uuid: job_id for uuid, job_id in self._jobs.items() if self._queue.is_unfinished(job_id)
        }
        return self._jobs

    def _resume_io(self, answers: Mapping[str, Result]) -> None:
        for uuid, answer in answers.items():
            if answer.failure is None and answer.data:
                try:
                    suspended_disks.resume(self._config, self._rpc, uuid, answer.data)
                except errors.GenericError as err:
                    _log.error("disks of node %s wait for their peers: %s", answer.node_name, err)


def _failover(name: str, uuid: str, limit_s: int) -> OpCode:
    op = OpNodeAutoFailover(node_name=name, node_uuid=uuid)
    op.priority = job_c.PRIO_HIGH
    op.reason = _reason(f"node {name} has not answered for {limit_s} seconds")
    return op


def _reason(why: str) -> list[list[Any]]:
    return [[job_c.REASON_MASTERD_NODE_WATCH, why, clock.now_ns()]]
