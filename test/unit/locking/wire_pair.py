"""The locks of job processes and the model of the manager, driven together.

Each owner is a job process: its requests go through a socket, and a thread of the master daemon
carries them out, as its worker would. So the long walks of :mod:`.pair` go through the requests.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from ganeti import errors
from ganeti.jobexec import livelock, messages, methods
from ganeti.locking import LockId, LockManager, Owner
from ganeti.locking.levels import Level
from ganeti.locking.request import RequestState
from ganeti.utils.net import wait_readable

from ..jobexec.wire_lab import Job, Master
from .pair import Pair

_ACQUIRE = methods.find("locks.acquire")


class _Waiting:
    """A request of a process which may wait (in place of :class:`LockRequest`)."""

    def __init__(self, locks: WireLocks, owner: Owner) -> None:
        self._locks = locks
        self._owner = owner
        self.ended: RequestState | None = None

    @property
    def state(self) -> RequestState:
        self._locks.settle(self._owner)
        return self.ended or RequestState.WAITING


class WireLocks:
    """The lock manager, whose owners are job processes with connections."""

    def __init__(self, locks: LockManager, master: Master, owners: Collection[Owner]) -> None:
        self._manager = locks
        self.jobs: dict[Owner, Job] = {}
        self._pending: dict[Owner, _Waiting] = {}
        for owner in owners:
            job = Job(master, owner.job_id or 0)
            job.queue.owner = owner
            job.link.close()
            job.link.connect()
            self.jobs[owner] = job

    def __getattr__(self, name: str) -> Any:
        # What no process asks for: the master daemon looks at its own manager.
        return getattr(self._manager, name)

    def _of(self, owner: Owner) -> Any:
        """The locks of a process; one which waits for an answer can ask for nothing."""
        self.settle(owner)
        return self._manager if owner in self._pending else self.jobs[owner].locks

    def settle(self, owner: Owner) -> None:
        """Take the answer of a request, if it waits no more."""
        pending = self._pending.get(owner)
        if pending is None or self._manager.waiting(owner) is not None:
            return
        answer = self.jobs[owner].link.receive()
        del self._pending[owner]
        if "error" in answer:
            error = messages.unpack_error(answer["error"])
            canceled = isinstance(error, errors.JobCanceled)
            pending.ended = RequestState.WITHDRAWN if canceled else RequestState.FAILED
        else:
            pending.ended = RequestState.GRANTED
            self._begin(owner, answer)

    def _begin(self, owner: Owner, answer: Any) -> None:
        self.jobs[owner].locks.begin(_ACQUIRE.result(answer["ok"]).held)

    def begin(
        self,
        owner: Owner,
        level: Level,
        keys: Collection[str] | None,
        *,
        shared: bool,
        priority: int,
    ) -> _Waiting:
        self.settle(owner)
        if owner in self._pending:
            raise errors.LockError("the process waits for an answer")
        job = self.jobs[owner]
        job.queue.present_priority = priority
        wanted = methods.Wanted(level, keys, shared)
        job.link.send({"ask": str(_ACQUIRE), "args": _ACQUIRE.encode([wanted], {})})
        while self._manager.waiting(owner) is None:
            if not wait_readable([job.link.descriptor], 0):
                continue
            answer = job.link.receive()
            if "error" in answer:
                raise messages.unpack_error(answer["error"])
            self._begin(owner, answer)
            granted = _Waiting(self, owner)
            granted.ended = RequestState.GRANTED
            return granted
        pending = self._pending[owner] = _Waiting(self, owner)
        return pending

    def withdraw(self, request: _Waiting) -> None:
        owner = request._owner
        self.settle(owner)
        if owner not in self._pending:
            return
        queue = self.jobs[owner].queue
        queue.canceled = True
        self._manager.wake(owner)
        while owner in self._pending:
            self.settle(owner)
        queue.canceled = False

    def reprioritise(self, owner: Owner, priority: int) -> None:
        self.jobs[owner].queue.present_priority = priority
        self._manager.reprioritise(owner, priority)

    def free(self, owner: Owner) -> None:
        """The process has died, and another one has its number."""
        self._manager.free(owner)
        while owner in self._pending:
            self.settle(owner)
        self.jobs[owner].locks.begin({})

    def update(self, owner: Owner, changed: Mapping[LockId, str | None]) -> Any:
        """Change the locks as the master daemon does for a process which lives."""
        return self._changing(owner, lambda: self._manager.update(owner, changed))

    def _changing(self, owner: Owner, change: Callable[[], Any]) -> Any:
        self.settle(owner)
        try:
            return change()
        finally:
            if owner not in self._pending:
                self.jobs[owner].locks.begin(self._manager.list_locks(owner))

    def acquire(self, owner: Owner, level: Level, keys: Any, **how: Any) -> Any:
        self.jobs[owner].queue.present_priority = 0
        return self._of(owner).acquire(owner, level, keys, **how)

    def release(self, owner: Owner, level: Level | None, keys: Any) -> None:
        locks = self._of(owner)
        locks.release(owner, level, keys)
        # Nobody waits for the release of all locks, but requests are carried out in their order.
        locks.keys(Level.NODE)

    def downgrade(self, owner: Owner, level: Level, keys: Any) -> None:
        self._of(owner).downgrade(owner, level, keys)

    def intersection(self, owner: Owner, keep: Collection[LockId]) -> None:
        self._changing(owner, lambda: self._manager.intersection(owner, keep))

    def add(self, level: Level, keys: Iterable[str]) -> None:
        idle = next((one for one in self.jobs if self._of(one) is not self._manager), None)
        (self._manager if idle is None else self.jobs[idle].locks).add(level, keys)

    def remove(self, level: Level, keys: Iterable[str], owner: Owner) -> None:
        self._of(owner).remove(level, keys, owner)

    def close(self) -> None:
        for owner, job in self.jobs.items():
            if owner in self._pending:
                self.free(owner)
            job.link.close()


class WirePair(Pair):
    """Job processes and the model, driven together."""

    def __init__(self, owners: int, directory: Path) -> None:
        super().__init__(owners)
        master = Master(directory)
        manager = master.locks = master.context.locks = self.locks
        self.wire = WireLocks(manager, master, [self.owner(number) for number in self.owners])
        self.locks = self.wire  # type: ignore[assignment]

    def check(self) -> None:
        """The records are as the model says, too."""
        super().check()
        for owner, job in self.wire.jobs.items():
            self.wire.settle(owner)
            held = self.wire.list_locks(owner)
            assert job.locks._held == held
            assert livelock.read_record(job.path).locks == held
