"""A job which only waits, for tests of the job queue, of locks and of node calls."""

from __future__ import annotations

import time
from dataclasses import dataclass

from ganeti import errors
from ganeti.cmdlib.base import LogicalUnit, executes
from ganeti.cmdlib.ops.test.rendezvous import Rendezvous
from ganeti.constants.job import LOG_DELAY_TEST
from ganeti.locking import Level
from ganeti.opcodes.test import OpTestDelay
from ganeti.wire.calls import TEST_DELAY

# A canceled job ends after this time at the latest.
_SLICE_S = 0.5


@dataclass(frozen=True, slots=True)
class DelayPlan:
    """The delays.

    :ivar duration_s: length of one delay.
    :ivar rounds: number of delays, one after the other.
    :ivar on_master: wait in the job itself.
    :ivar node_uuids: nodes which wait, all at once.
    """

    duration_s: float
    rounds: int
    on_master: bool
    node_uuids: tuple[str, ...]


@executes(OpTestDelay)
class LUTestDelay(LogicalUnit[OpTestDelay, DelayPlan]):
    """Wait on the master, on nodes, or both, once or several times."""

    def expand_names(self) -> None:
        if self.op.duration <= 0 and self.op.duration != 0:
            raise errors.OpPrereqError(
                f"the duration must not be negative, it is {self.op.duration}", errors.ECODE_INVAL
            )
        if self.op.interruptible and (self.op.on_nodes or self.op.on_node_uuids):
            raise errors.OpPrereqError(
                "only a delay on the master can be ended early, not one on nodes",
                errors.ECODE_INVAL,
            )
        names = [*self.op.on_nodes, *(self.op.on_node_uuids or [])]
        self.nodes = tuple(dict.fromkeys(self.config.expand_node(name).uuid for name in names))
        if self.nodes and not self.op.no_locks:
            self.need(Level.NODE, self.nodes)

    def check_prereq(self) -> DelayPlan:
        rounds = max(1, self.op.repeat)
        on_master = self.op.on_master or not self.nodes
        return DelayPlan(self.op.duration, rounds, on_master, self.nodes)

    def exec(self, plan: DelayPlan) -> None:
        for number in range(plan.rounds):
            self.ctx.callbacks.check_cancel()
            if self.op.repeat:
                self.log.info(f"round {number + 1} of {plan.rounds}")
            if self.op.interruptible:
                if self._wait(plan.duration_s):
                    self.log.info("the delay was ended early")
                    return
            elif plan.on_master and plan.duration_s > 0:
                self._sleep(plan.duration_s)
            if not plan.node_uuids:
                continue
            answers = self.rpc.call_many(TEST_DELAY, plan.node_uuids, duration_s=plan.duration_s)
            for answer in answers.values():
                answer.payload()

    def _sleep(self, duration_s: float) -> None:
        """Wait until the time is over.

        :raises errors.JobCanceled: a user canceled the job.
        """
        until = time.monotonic() + duration_s
        while (left_s := until - time.monotonic()) > 0:
            time.sleep(min(left_s, _SLICE_S))
            self.ctx.callbacks.check_cancel()

    def _wait(self, duration_s: float) -> bool:
        """Wait until the time is over, or a program connects to the socket named in the job log.

        :returns: whether a program connected.
        """
        callbacks = self.ctx.callbacks
        with Rendezvous() as place:
            callbacks.feedback(LOG_DELAY_TEST, [place.path])
            visitor = place.accept(duration_s, callbacks.check_cancel)
            if visitor is not None:
                visitor.close()
            return visitor is not None
