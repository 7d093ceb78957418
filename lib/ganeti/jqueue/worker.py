"""The pool of threads that execute jobs.

Jobs that may start wait in line, by priority, then by id; a free worker takes the first one. A
worker keeps its job until the job has ended or has to wait for another one. A thread starts when
it is first needed; their number never exceeds the limit, which may change while the pool runs.

A worker takes its job itself (:meth:`WorkerPool.take`), so that it can do so with the lock of its
caller held. If the pool gave it the job, two workers with the first two jobs of the line could come
to that lock in either order.
"""

from __future__ import annotations

import heapq
import logging
import threading
from collections.abc import Callable

_log = logging.getLogger(__name__)


class WorkerPool:
    """Lets threads execute jobs, which it knows by their ids.

    :param run: takes one job, executes it and returns; it handles the errors of the job itself.
        When the line is empty by then, it returns at once.
    :param limit: number of jobs which run at once.
    :param fatal: called when `run` raised, which is a bug of the queue.
    """

    def __init__(self, run: Callable[[], None], limit: int, fatal: Callable[[], None]) -> None:
        self._run = run
        self._limit = limit
        self._fatal = fatal
        self._changed = threading.Condition()
        # Entries whose priority is no longer the one in _queued are skipped.
        self._line: list[tuple[int, int]] = []
        self._queued: dict[int, int] = {}
        self._threads: list[threading.Thread] = []
        self._idle = 0
        # By thread: another worker may take up a job before its last worker has finished with it.
        self._busy: dict[threading.Thread, int] = {}
        self._stopping = False

    def add(self, job_id: int, priority: int) -> None:
        """Put a job in line; one that is in line already moves to its new place."""
        with self._changed:
            if self._stopping or self._queued.get(job_id) == priority:
                return
            self._queued[job_id] = priority
            heapq.heappush(self._line, (priority, job_id))
            if self._idle < len(self._queued) and len(self._threads) < self._limit:
                self._start_thread()
            self._changed.notify()

    def reprioritise(self, job_id: int, priority: int) -> None:
        """Move a job that is in line; any other job is left alone."""
        with self._changed:
            if job_id in self._queued:
                self.add(job_id, priority)

    def remove(self, job_id: int) -> bool:
        """Take a job out of the line; False when it is not in line (any more)."""
        with self._changed:
            return self._queued.pop(job_id, None) is not None

    def set_limit(self, limit: int) -> None:
        """Change the number of jobs which run at once; jobs above the limit finish."""
        with self._changed:
            self._limit = limit
            while len(self._threads) < limit and self._idle < len(self._queued):
                self._start_thread()
            self._changed.notify_all()

    def in_line(self, job_id: int) -> bool:
        """Return True if the job waits for a worker."""
        with self._changed:
            return job_id in self._queued

    def busy(self) -> set[int]:
        """Return the ids of the jobs being executed."""
        with self._changed:
            return set(self._busy.values())

    def line(self) -> list[int]:
        """Return the ids of the jobs in line, the next one first."""
        with self._changed:
            waiting = [(priority, job_id) for job_id, priority in self._queued.items()]
        return [job_id for _priority, job_id in sorted(waiting)]

    @property
    def limit(self) -> int:
        """Number of jobs which may run at once."""
        return self._limit

    def stop(self, timeout_s: float) -> set[int]:
        """Start nothing more and wait for the workers, at most `timeout_s` seconds.

        :returns: ids of the jobs that still run.
        """
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
            while self._wait():
                self._run()
                with self._changed:
                    if self._busy.pop(threading.current_thread(), None) is not None:
                        self._idle += 1
                    if self._stopping:
                        self._changed.notify_all()
        except BaseException:
            _log.critical("a worker has ended by an internal error", exc_info=True)
            self._fatal()
            raise

    def _wait(self) -> bool:
        """Wait until a job is in line; False when this thread is to end."""
        with self._changed:
            while True:
                if self._stopping or len(self._threads) > self._limit:
                    self._idle -= 1
                    self._threads.remove(threading.current_thread())
                    return False
                if self._queued:
                    return True
                self._changed.wait()

    def take(self) -> int | None:
        """Take the first job out of the line, for the worker which calls this.

        :returns: its id; None when the line is empty, for example because another worker took the
            job which woke this one, and when the worker is above the limit.
        """
        with self._changed:
            while self._line and len(self._threads) <= self._limit:
                priority, job_id = heapq.heappop(self._line)
                if self._queued.get(job_id) == priority:
                    del self._queued[job_id]
                    self._busy[threading.current_thread()] = job_id
                    self._idle -= 1
                    return job_id
        return None
