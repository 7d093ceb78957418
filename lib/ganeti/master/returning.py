"""Candidates whose copies lag and which answer again, such as at the end of a cut of the network.

Each kind of copies tries again after pauses which grow, so that a node which is gone costs little.
At the end of a cut such a pause may have half a minute left. So candidates which could not be sent
something are asked a small question all the time (a *knock*), and one that answers for the first
time is sent at once what it lacks. One that answers, and refuses what it is sent, is left to the
pauses, and is asked only now and then whether it still answers.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
import threading
from collections.abc import Callable, Collection, Sequence
from typing import Final, Protocol

from ganeti import errors
from ganeti.rpc import RpcRunner
from ganeti.rpc.results import Result
from ganeti.rpc.runner import Question
from ganeti.utils import shortage
from ganeti.wire.calls import NODE_WORK
from ganeti.wire.calls.base import Call

_log = logging.getLogger(__name__)

#: Seconds between two knocks.
PAUSE_S: Final = 0.25
#: Seconds for an answer, in turn. A node behind a cut does not answer for longer than the first
#: ones; the last one is for a node which is slow.
ANSWER_S: Final = (0.5, 0.5, 0.5, 3.0)
#: A candidate which answers, and still lacks something, is knocked at in every such round only: its
#: node daemon makes a process for each question.
ANSWERING_ROUNDS: Final = 8


class LaggingCopies(Protocol):
    """Copies of one kind. All methods are called from another thread than that which sends."""

    def unresponsive(self) -> Collection[str]:
        """Return the UUIDs of the candidates to which the last message failed."""
        ...

    def try_again(self, uuids: Collection[str]) -> None:
        """Send to these candidates soon, and not after the rest of a pause."""
        ...


def knock(runner: RpcRunner, uuids: Collection[str], answer_s: float) -> set[str]:
    """Ask nodes a small question; return those which answer in this time, also with an error."""
    answered = set()

    def note(_call: Call, uuid: str, result: Result) -> None:
        if not isinstance(result.failure, errors.NodeUnreachable):
            answered.add(uuid)

    call = dataclasses.replace(NODE_WORK, timeout_s=answer_s)
    runner.call_together([Question(call, list(uuids), {"revoke": []})], note)
    return answered


class Returning:
    """Notices the return of candidates, in a thread.

    :param copies: what is sent to the candidates.
    :param knock: asks candidates, and gives each of them so many seconds to answer; returns those
        which did.
    :param on_return: called when candidates have returned.
    """

    def __init__(
        self,
        copies: Sequence[LaggingCopies],
        knock: Callable[[Collection[str], float], Collection[str]],
        on_return: Callable[[], None] = lambda: None,
    ) -> None:
        self._copies = copies
        self._knock = knock
        self._on_return = on_return
        self._answer_s = itertools.cycle(ANSWER_S)
        # Those out of the unresponsive ones which have answered the last knock.
        self._answering: set[str] = set()
        self._rounds = itertools.count(1)

    def start(self) -> None:
        """Start the thread, which ends with the process."""
        threading.Thread(target=self._run, name="returning", daemon=True).start()

    def _run(self) -> None:
        never = threading.Event()
        while not never.wait(PAUSE_S):
            try:
                with shortage.as_error():
                    self.round()
            except errors.GenericError as err:
                _log.warning("cannot ask whether candidates answer again: %s", err)

    def round(self) -> set[str]:
        """Knock once, where that is needed; return the candidates which have returned.

        :raises errors.GenericError: a node call is not possible.
        """
        wanted = {uuid for kind in self._copies for uuid in kind.unresponsive()}
        if not wanted:
            self._answering = set()
            return wanted
        asked = wanted
        if next(self._rounds) % ANSWERING_ROUNDS:
            asked = wanted - self._answering
        if not asked:
            return set()
        answering = set(self._knock(sorted(asked), next(self._answer_s)))
        returned = answering - self._answering
        self._answering = (self._answering & wanted - asked) | answering
        if returned:
            for kind in self._copies:
                kind.try_again(returned)
            self._on_return()
        return returned
