"""A job which stops at known points for a test program, for ``gnt-debug test-jobqueue``."""

from __future__ import annotations

from typing import Any

from ganeti import errors
from ganeti.cmdlib.base import LogicalUnit, executes
from ganeti.cmdlib.ops.test.rendezvous import Rendezvous
from ganeti.constants.job import LOG_JQUEUE_TEST
from ganeti.opcodes.test import OpTestJqueue

# Published words: the points at which the job stops, and the prefix of a message.
AT_EXPAND_NAMES, AT_EXEC, AT_MESSAGE, AT_FIRST_MESSAGE = (
    "expandnames",
    "exec",
    "logmsg",
    "startmsg",
)
PREFIX = "TESTMSG="

_CONNECT_S = 60.0
_STAY_S = 60.0


@executes(OpTestJqueue)
class LUTestJqueue(LogicalUnit[OpTestJqueue, None]):
    """Stop at the requested points, log messages, and succeed or fail."""

    def expand_names(self) -> None:
        if self.op.notify_waitlock:
            self.log.info("Expanding names")
            self._wait_for_client(AT_EXPAND_NAMES, None)

    def exec(self, plan: None) -> bool:
        if self.op.notify_exec:
            self.log.info("Executing")
            self._wait_for_client(AT_EXEC, None)
        if self.op.log_messages:
            self._wait_for_client(AT_FIRST_MESSAGE, len(self.op.log_messages))
            for number, message in enumerate(self.op.log_messages, 1):
                self.log.info(f"Sending log message {number}")
                self.log.feedback(f"{PREFIX}{message}")
                self._wait_for_client(AT_MESSAGE, number)
        if self.op.fail:
            raise errors.OpExecError("Opcode failure was requested")
        return True

    def _wait_for_client(self, where: str, argument: Any) -> None:
        """Wait until the test program has connected and disconnected.

        :param where: the point at which the job is.
        :raises errors.OpExecError: no program connected, or it did not disconnect.
        """
        callbacks = self.ctx.callbacks
        with Rendezvous() as place:
            callbacks.feedback(LOG_JQUEUE_TEST, [place.path, where, argument])
            visitor = place.accept(_CONNECT_S, callbacks.check_cancel)
            if visitor is None:
                raise errors.OpExecError(
                    f"no client connected within {_CONNECT_S:g} s while the job was at {where}"
                )
            if not place.wait_closed(visitor, _STAY_S, callbacks.check_cancel):
                raise errors.OpExecError(
                    f"the client did not disconnect within {_STAY_S:g} s while the job was at"
                    f" {where}"
                )
