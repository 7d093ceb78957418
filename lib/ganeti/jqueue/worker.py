"""The pool of threads that execute jobs.

Jobs that may start wait in line, by priority, then by id; a free worker takes the first one. A
worker keeps its job until the job has ended or has to wait for another one. A thread starts when
it is first needed; their number never exceeds the limit, which may change while the pool runs. The
first one starts with the pool, so that there is one when the system makes no more threads later.

A pool may pause (:mod:`.pause`): then the workers take no job for some time, and afterwards one of
them takes one. What happens to that job decides whether the pause is over.

A worker takes its job itself (:meth:`WorkerPool.take`), so that it can do so with the lock of its
caller held. If the pool gave it the job, two workers with the first two jobs of the line could come
to that lock in either order.
"""

from __future__ import annotations

import heapq
import logging
import threading
import time
from collections.abc import Callable

from ganeti.jqueue.pause import Paused
from ganeti.utils import clock, shortage

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
        # By priority and number of attempts, then by id. Entries which differ from those in _queued
        # are skipped.
        self._line: list[tuple[tuple[int, int], int]] = []
        self._queued: dict[int, tuple[int, int]] = {}
        self._threads: list[threading.Thread] = []
        self._idle = 0
        # By thread: another worker may take up a job before its last worker has finished with it.
        self._busy: dict[threading.Thread, int] = {}
        self._stopping = False
        # While the pool pauses: the monotonic time at which a job is tried, and the worker of it.
        self._paused_until: float | None = None
        self._trying: threading.Thread | None = None
        # Why there are fewer threads than jobs which could be executed.
        self._shortage: Paused | None = None

    def start(self) -> None:
        """Start the first thread.

        :raises RuntimeError: the system makes no thread.
        """
        with self._changed:
            if not self._threads:
                self._start_thread()

    def add(self, job_id: int, priority: int, tries: int = 0) -> None:
        """Put a job in line; one that is in line already moves to its new place.

        :param tries: it comes behind the jobs of its priority which were tried less often.
        """
        with self._changed:
            rank = (priority, tries)
            if self._stopping or self._queued.get(job_id) == rank:
                return
            self._queued[job_id] = rank
            heapq.heappush(self._line, (rank, job_id))
            self._start_threads()
            self._changed.notify()

    def reprioritise(self, job_id: int, priority: int) -> None:
        """Move a job that is in line; any other job is left alone."""
        with self._changed:
            if job_id in self._queued:
                self.add(job_id, priority, self._queued[job_id][1])

    def remove(self, job_id: int) -> bool:
        """Take a job out of the line; False when it is not in line (any more)."""
        with self._changed:
            return self._queued.pop(job_id, None) is not None

    def set_limit(self, limit: int) -> None:
        """Change the number of jobs which run at once; jobs above the limit finish."""
        with self._changed:
            self._limit = limit
            self._start_threads()
            self._changed.notify_all()

    def may_pause(self) -> bool:
        """Tell whether the worker which calls this decides that a pause begins, or goes on.

        Others took their jobs before the present pause.
        """
        with self._changed:
            return self._paused_until is None or self._trying is threading.current_thread()

    def pause(self, for_s: float) -> None:
        """Take no job for that time, and then one."""
        with self._changed:
            self._paused_until = time.monotonic() + for_s
            self._trying = None
            self._changed.notify_all()

    def resume(self) -> None:
        """End the pause."""
        with self._changed:
            self._paused_until = self._trying = None
            self._changed.notify_all()

    def _pause_left_s(self) -> float | None:
        """Return the seconds for which no job is taken; None as long as one is being tried."""
        if self._paused_until is None:
            return 0.0
        if self._trying is not None:
            return None
        return max(0.0, self._paused_until - time.monotonic())

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
            waiting = [(rank, job_id) for job_id, rank in self._queued.items()]
        return [job_id for _rank, job_id in sorted(waiting)]

    def shortage(self) -> Paused | None:
        """Return why there are fewer threads than jobs which could be executed; None otherwise."""
        with self._changed:
            return self._shortage if self._queued else None

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

    def _start_threads(self) -> None:
        """Start the threads for jobs in line, as far as the system makes some.

        The threads which there are take the jobs one after the other.
        """
        while self._idle < len(self._queued) and len(self._threads) < self._limit:
            try:
                self._start_thread()
            except RuntimeError as err:
                if not self._threads:
                    raise
                if self._shortage is None:
                    _log.error("no thread for a job: %s; it waits for another one", err)
                    self._shortage = Paused(shortage.described(err) or str(err), clock.now())
                return
        self._shortage = None

    def _start_thread(self) -> None:
        thread = threading.Thread(
            target=self._work, name=f"jq-worker-{len(self._threads) + 1}", daemon=True
        )
        self._threads.append(thread)
        self._idle += 1
        try:
            thread.start()
        except RuntimeError:
            self._threads.remove(thread)
            self._idle -= 1
            raise

    def _work(self) -> None:
        try:
            while self._wait():
                self._run()
                with self._changed:
                    if self._trying is threading.current_thread():
                        # Nothing is known from this job, so the next one is tried.
                        self._trying = None
                        self._changed.notify_all()
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
                left_s = self._pause_left_s() if self._queued else None
                if left_s == 0.0:
                    return True
                self._changed.wait(left_s)

    def take(self) -> int | None:
        """Take the first job out of the line, for the worker which calls this.

        :returns: its id; None when the line is empty, for example because another worker took the
            job which woke this one, when the worker is above the limit, and in a pause.
        """
        with self._changed:
            if self._pause_left_s() != 0.0:
                return None
            while self._line and len(self._threads) <= self._limit:
                rank, job_id = heapq.heappop(self._line)
                if self._queued.get(job_id) == rank:
                    del self._queued[job_id]
                    self._busy[threading.current_thread()] = job_id
                    self._idle -= 1
                    if self._paused_until is not None:
                        self._trying = threading.current_thread()
                    if self._shortage is not None:
                        self._start_threads()
                    return job_id
        return None
