"""The pool of threads that execute jobs.

Jobs that may start stand in line by priority, then by id; a free worker takes the first. A worker
stays with its job until the job has ended or has to wait for another one. Threads are started when
they are first needed, and never more than the limit, which may change while the pool runs.
"""

from __future__ import annotations

import heapq
import logging
import threading
from collections.abc import Callable

_log = logging.getLogger(__name__)


class WorkerPool:
    """Executes jobs by id.

    :param run: executes one job and returns; it handles the errors of the job itself.
    :param fatal: called when `run` raised, which is a bug of the queue.
    """

    def __init__(self, run: Callable[[int], None], limit: int, fatal: Callable[[], None]) -> None:
        self._run = run
        self._limit = limit
        self._fatal = fatal
        self._changed = threading.Condition()
        # Entries whose priority is no longer the one in _queued are skipped.
        self._line: list[tuple[int, int]] = []
        self._queued: dict[int, int] = {}
        self._threads: list[threading.Thread] = []
        self._idle = 0
        # By thread: a job that was put back may be taken up anew before its last worker let go.
        self._busy: dict[threading.Thread, int] = {}
        self._stopping = False

    def add(self, job_id: int, priority: int) -> None:
        """Put a job in line; one that stands there already moves to its new place."""
        with self._changed:
            if self._stopping or self._queued.get(job_id) == priority:
                return
            self._queued[job_id] = priority
            heapq.heappush(self._line, (priority, job_id))
            if self._idle < len(self._queued) and len(self._threads) < self._limit:
                self._start_thread()
            self._changed.notify()

    def reprioritise(self, job_id: int, priority: int) -> None:
        """Move a job that stands in line; any other is left alone."""
        with self._changed:
            if job_id in self._queued:
                self.add(job_id, priority)

    def remove(self, job_id: int) -> bool:
        """Take a job out of the line; False when it does not stand there (any more)."""
        with self._changed:
            return self._queued.pop(job_id, None) is not None

    def set_limit(self, limit: int) -> None:
        """Change how many jobs run at once; those above the limit finish first."""
        with self._changed:
            self._limit = limit
            while len(self._threads) < limit and self._idle < len(self._queued):
                self._start_thread()
            self._changed.notify_all()

    def in_line(self, job_id: int) -> bool:
        """Whether the job waits for a worker."""
        with self._changed:
            return job_id in self._queued

    def busy(self) -> set[int]:
        """Ids of the jobs being executed."""
        with self._changed:
            return set(self._busy.values())

    def line(self) -> list[int]:
        """Ids of the jobs that wait for a worker, in the order in which they will be taken."""
        with self._changed:
            waiting = [(priority, job_id) for job_id, priority in self._queued.items()]
        return [job_id for _priority, job_id in sorted(waiting)]

    @property
    def limit(self) -> int:
        """How many jobs run at once."""
        return self._limit

    def stop(self, timeout_s: float) -> set[int]:
        """Start nothing more and wait for the workers; ids of the jobs that still run."""
        with self._changed:
            self._stopping = True
            self._queued.clear()
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._busy, timeout_s)
            return set(self._busy.values())

    def _start_thread(self) -> None:
        thread = threading.Thread(
            target=self._work, name=f"jq-worker-{len(self._threads) + 1}", daemon=True
        )
        self._threads.append(thread)
        self._idle += 1
        thread.start()

    def _work(self) -> None:
        try:
            while (job_id := self._next()) is not None:
                self._run(job_id)
                with self._changed:
                    del self._busy[threading.current_thread()]
                    self._idle += 1
                    if self._stopping:
                        self._changed.notify_all()
        except BaseException:
            _log.critical("a worker died of a bug", exc_info=True)
            self._fatal()
            raise

    def _next(self) -> int | None:
        """The next job, or None when this thread is to end."""
        with self._changed:
            while True:
                if self._stopping or len(self._threads) > self._limit:
                    self._idle -= 1
                    self._threads.remove(threading.current_thread())
                    return None
                while self._line:
                    priority, job_id = heapq.heappop(self._line)
                    if self._queued.get(job_id) == priority:
                        del self._queued[job_id]
                        self._busy[threading.current_thread()] = job_id
                        self._idle -= 1
                        return job_id
                self._changed.wait()
