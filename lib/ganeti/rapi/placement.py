"""Questions about placement: capacity, balance, what if, and where an instance would be put.

A search may take many seconds of processor time, so a process of its own does it
(:mod:`ganeti.helpers.placement`): with a limit of processor time, of memory and of time. It reads
the cluster from the master itself. At most :data:`AT_ONCE` of them run; when all are in use, a
question is refused, and the client asks again later. A process is ended when nobody waits for its
answer any more.

An answer is given again while the configuration is the same, for at most :data:`FRESH_S` seconds,
because what nodes and guests use changes without it. Clients which ask the same question at the
same time wait for one process.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ganeti import errors
from ganeti.constants import query as query_const
from ganeti.http.messages import Refused
from ganeti.rapi import helper_process
from ganeti.rapi.master import Master
from ganeti.wire import json

_log = logging.getLogger(__name__)

#: Number of processes at a time.
AT_ONCE: Final = 2
#: Limits of a process: seconds of processor time, seconds, and bytes of memory.
CPU_S: Final = 60
TIME_S: Final = 90.0
MEMORY_BYTES: Final = 3 << 30
#: Seconds for which an answer is given again.
FRESH_S: Final = 10.0
_AGAIN: Final = (("Retry-After", "5"),)
# Answers which are kept.
_KEPT: Final = 32
_KEPT_BYTES: Final = 8 << 20
_SHOWN: Final = 2000


class _Kept(NamedTuple):
    """An answer.

    :ivar state: of the configuration, before the process has read the cluster.
    """

    state: str | None
    made_at: float
    text: bytes


class _Running:
    """A process which computes an answer, and how many wait for it."""

    __slots__ = ("task", "waiting")

    def __init__(self, task: asyncio.Task[bytes]) -> None:
        self.task = task
        self.waiting = 0


class Placement:
    """Answers questions with processes.

    :param command: the program, which gets its limits as two further words; None for the usual one.
    :param clock: seconds of a clock which never jumps.
    """

    def __init__(
        self,
        master: Master,
        *,
        at_once: int = AT_ONCE,
        command: Sequence[str] | None = None,
        time_s: float = TIME_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._master = master
        self._at_once = at_once
        self._command = command or (sys.executable, "-m", "ganeti.helpers.placement")
        self._time_s = time_s
        self._clock = clock
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._running: dict[str, _Running] = {}

    async def ask(
        self, question: str, options: Sequence[str], body: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Answer a question; the parameters are those of the program.

        :raises Refused: 400 or 409 with the reason, or 503 when all processes are in use or the
            question takes too long.
        :raises errors.GenericError: as :meth:`ganeti.rapi.master.Master.call`.
        """
        asked = json.dumps({"question": question, "options": list(options), "body": dict(body)})
        state = await self._state()
        kept = self._kept.get(asked)
        if kept is not None and kept.state == state and self._clock() - kept.made_at <= FRESH_S:
            return _understood(kept.text)
        running = self._running.get(asked)
        if running is None:
            if len(self._running) >= self._at_once:
                raise Refused(
                    503,
                    f"{self._at_once} questions about placement are being answered, which is the"
                    " limit. Ask again in some seconds.",
                    headers=_AGAIN,
                )
            running = _Running(asyncio.create_task(self._compute(asked, state)))
            self._running[asked] = running
        running.waiting += 1
        try:
            text = await asyncio.shield(running.task)
        finally:
            running.waiting -= 1
            if not running.waiting and not running.task.done():
                # The next client which asks must not wait for a process that is being ended.
                del self._running[asked]
                running.task.cancel()
        return _understood(text)

    async def _state(self) -> str | None:
        """Return the name of the present state of the configuration."""
        found = await self._master.call(
            "QueryPage", query_const.GROUP, ["name"], None, {"limit": 0}
        )
        state: str | None = found["state"]
        return state

    async def _compute(self, asked: str, state: str | None) -> bytes:
        made_at = self._clock()
        try:
            text = await self._run(asked)
            self._keep(asked, _Kept(state, made_at, text))
            return text
        finally:
            running = self._running.get(asked)
            if running is not None and running.task is asyncio.current_task():
                del self._running[asked]

    def _keep(self, asked: str, kept: _Kept) -> None:
        self._kept.pop(asked, None)
        self._kept[asked] = kept
        while len(self._kept) > _KEPT or (
            len(self._kept) > 1 and sum(len(one.text) for one in self._kept.values()) > _KEPT_BYTES
        ):
            self._kept.popitem(last=False)

    async def _run(self, asked: str) -> bytes:
        """Run the program.

        :raises Refused: 503 when it has not answered.
        """
        limits = (str(CPU_S), str(MEMORY_BYTES))
        try:
            ended = await helper_process.run((*self._command, *limits), asked, self._time_s)
        except TimeoutError:
            raise self._too_long() from None
        if ended.code == 0 and ended.output:
            return ended.output
        _log.error(
            "the process which answers a question about placement ended with %s: %s",
            ended.code,
            ended.complaints[-_SHOWN:].decode("utf-8", "replace"),
        )
        if ended.code < 0:
            raise self._too_long()
        raise Refused(
            500, "the question could not be answered. The log of the REST daemon says why."
        )

    def _too_long(self) -> Refused:
        return Refused(
            503,
            f"the answer takes more than {CPU_S} s of processor time, {self._time_s:g} s or"
            f" {MEMORY_BYTES >> 30} GiB of memory. Ask about one group, or for fewer instances or"
            " moves.",
        )


def _understood(text: bytes) -> dict[str, Any]:
    """Return the answer of the program.

    :raises Refused: 400 when the question is wrong, 409 when the cluster has no answer to it.
    """
    try:
        found = json.loads(text.decode("utf-8"))
    except (UnicodeDecodeError, errors.ParseError) as err:
        raise Refused(500, f"the answer about placement cannot be read: {err}") from err
    if "error" in found:
        raise Refused(409 if found.get("conflict") else 400, str(found["error"]))
    return dict(found["answer"])
