"""The pause of the queue: jobs cannot be executed, and that is no fault of theirs.

When a job cannot begin, because no process or thread can be made for it or its process ended before
it had begun, it goes back into the line, behind the others of its priority. The queue *pauses*: no
job is taken up, because the same would happen to it. After a while one job is tried. When its
process is there, the pause is over; else the queue pauses again, for twice as long.

A job is not tried for ever, because it may be the cause itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, NamedTuple

from ganeti.utils import metrics

#: Seconds of the first pause. Each further one is twice as long, up to the second number.
FIRST_S: Final = 1.0
LONGEST_S: Final = 30.0
#: A job ends with an error when it was tried that often, and for that many seconds.
MOST_TRIES: Final = 12
MOST_S: Final = 3600.0
#: It also ends when its process has ended that often before it had begun.
MOST_ENDS: Final = 12

_PUT_BACK = metrics.Counter(
    "ganeti_master_jobs_put_back",
    "Jobs which went back into the queue, because they could not be executed then",
)


class Paused(NamedTuple):
    """Why the queue pauses.

    :ivar reason: a clause for people.
    :ivar since: when it began, in seconds since the epoch.
    """

    reason: str
    since: float


class _Tried(NamedTuple):
    """What happened to one job.

    :ivar first: time of the first attempt, of the monotonic clock.
    :ivar tries: number of attempts.
    :ivar ends: number of those in which its process ended.
    """

    first: float
    tries: int = 0
    ends: int = 0


class QueuePause:
    """Whether the queue pauses, and how often each job was tried. Guarded by the queue's lock.

    :param now: the time in seconds since the epoch.
    :param clock: the monotonic time in seconds.
    :ivar state: why it pauses; None when it does not.
    """

    def __init__(
        self, now: Callable[[], float], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._now = now
        self._clock = clock
        self._length_s = FIRST_S
        self._tried: dict[int, _Tried] = {}
        self.state: Paused | None = None

    def note(self, job_id: int, *, ended: bool) -> None:
        """Note that a job could not begin.

        :param ended: whether its process was there, and has ended.
        """
        _PUT_BACK.add()
        before = self._tried.get(job_id) or _Tried(self._clock())
        self._tried[job_id] = _Tried(before.first, before.tries + 1, before.ends + ended)

    def begin(self, reason: str) -> float:
        """Pause; return the seconds until a job is tried again."""
        self.state = Paused(reason, self._now() if self.state is None else self.state.since)
        length_s, self._length_s = self._length_s, min(2 * self._length_s, LONGEST_S)
        return length_s

    def end(self) -> bool:
        """End the pause, because a job is executed; return whether there was one."""
        was, self.state = self.state, None
        self._length_s = FIRST_S
        return was is not None

    def tries(self, job_id: int) -> int:
        """Return how often a job could not begin."""
        tried = self._tried.get(job_id)
        return 0 if tried is None else tried.tries

    def may_retry(self, job_id: int) -> bool:
        """Tell whether a job is tried once more."""
        tried = self._tried.get(job_id)
        if tried is None:
            return True
        long = self._clock() - tried.first >= MOST_S
        return tried.ends < MOST_ENDS and not (long and tried.tries >= MOST_TRIES)

    def forget(self, job_id: int) -> None:
        """Forget a job which has begun, or has ended."""
        self._tried.pop(job_id, None)
