"""Carries out the requests of a job process, in the worker thread of the queue which waits for it.

The requests are those of :mod:`.methods`. An error of a request is sent to the process, which
raises it there; only the end of the process is raised here.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Final, Protocol

from ganeti import cmdlib, errors
from ganeti.cmdlib.base import MasterContext
from ganeti.config import Config
from ganeti.config.history import Author
from ganeti.config.transaction import Transaction
from ganeti.constants import job as job_const
from ganeti.jobexec import changes, messages, methods
from ganeti.jobexec.messages import Channel, ChannelClosed
from ganeti.jobexec.methods import Acquired, Begun, Changes, Held, Method, Services, Wanted
from ganeti.jqueue.callbacks import Callbacks
from ganeti.jqueue.execution import JobDetached
from ganeti.locking import BGL, Level, LockManager

_log = logging.getLogger(__name__)

#: Seconds within which a process has to go on with a transaction, which keeps all others waiting.
TRANSACTION_S: Final = 60.0


class _Abandoned(Exception):  # noqa: N818
    """The process discards its transaction."""


class ProcessGone(Exception):  # noqa: N818
    """The process has ended, or must be ended, while it waits for a lock or in a transaction."""


class Master(Protocol):
    """What :class:`Requests` needs of the master daemon."""

    @property
    def context(self) -> MasterContext:
        """The services of the master daemon."""

    @property
    def loaded(self) -> int:
        """Serial number of the configuration which this daemon has read at its start."""


class Requests:
    """The requests of one process during one opcode.

    :param logged: the entries which the opcode's log had when the process connected.
    :param check_alive: raises :class:`ProcessGone` when the process has ended.
    """

    def __init__(
        self,
        master: Master,
        channel: Channel,
        callbacks: Callbacks,
        logged: Sequence[tuple[str, Any]],
        check_alive: Callable[[], None],
    ) -> None:
        context = master.context
        self._channel = channel
        self._reached = callbacks.reached
        self._release = functools.partial(context.locks.release, callbacks.owner)
        self._job = _Job(callbacks, logged)
        self._locks = _Locks(context.locks, callbacks, check_alive, self._job.check_cancel)
        self._transaction = _OpenTransaction(context.config)
        self.services = Services(
            self._job,
            self._locks,
            context.config.reserved,
            _Configuration(master, callbacks.owner.job_id, self._transaction),
            context.config,
            self._transaction,
            context.rpc,
            context.queries,
            context.job_files,
            context.orphaned_work,
            context.witness,
        )

    @property
    def stopped(self) -> errors.JobCanceled | None:
        """The error with which the queue stopped the opcode, if it did."""
        return self._job.stopped

    def take_big_lock(self, op_id: str) -> Held:
        """Take the lock of the cluster for an opcode before the process gets it.

        :returns: the locks which the job holds then.
        :raises JobCanceled: the job is to stop.
        """
        if held := self._locks.held():
            return held
        shared = not cmdlib.lookup(op_id).REQ_BGL
        return self._locks.acquire(Wanted(Level.CLUSTER, [BGL], shared)).held

    def serve(self) -> dict[str, Any]:
        """Carry out requests until the opcode has ended; return the message with its result.

        The opcode has no locks afterwards.

        :raises ChannelClosed: the process has ended, or has lost the connection.
        :raises ProcessGone: the same, while it waited for a lock or in a transaction.
        """
        working = False
        try:
            while True:
                message = self._receive()
                if not working and ("ask" in message or "tell" in message):
                    # Now it has space for its files, too.
                    working = True
                    self._reached()
                if "ask" in message:
                    self._answer(message["ask"], message["args"])
                elif "tell" in message:
                    method = methods.find(message["tell"])
                    method.call(getattr(self.services, method.service), message["args"])
                elif self._transaction.change is not None:
                    raise ChannelClosed("the process ended its opcode inside a transaction")
                else:
                    self._release()
                    return message
        finally:
            self._transaction.abandon()

    def _receive(self) -> dict[str, Any]:
        limit_s = None if self._transaction.change is None else TRANSACTION_S
        try:
            message: dict[str, Any] = self._channel.receive(limit_s)
        except messages.ChannelTimeout as err:
            raise ProcessGone(
                f"its process did nothing for {TRANSACTION_S:g} s while it changed the"
                " configuration, and was ended"
            ) from err
        return message

    def _answer(self, request: str, args: list[Any]) -> None:
        try:
            method = methods.find(request)
            value = method.call(self._target(method), args)
        except errors.GenericError as err:
            self._channel.send({"error": messages.pack_error(err)})
        except (ProcessGone, ChannelClosed, JobDetached):
            raise
        except Exception as err:  # noqa: BLE001 -- the entry point of a request
            _log.exception("internal error in the request %s of a job", request)
            error = errors.ProgrammerError(f"{type(err).__name__}: {err}")
            self._channel.send({"error": messages.pack_error(error)})
        else:
            self._channel.send({"ok": value})

    def _target(self, method: Method) -> object:
        """Return the object which serves a request.

        :raises ProgrammerError: it is not possible now.
        """
        change = self._transaction.change
        if change is not None and method.service not in methods.IN_TRANSACTION:
            raise errors.ProgrammerError(f"{method} is not possible inside a transaction")
        owner = change if method.service in methods.OPERATIONS else self.services
        target = getattr(owner, method.service, None)
        if target is None:
            raise errors.ProgrammerError(f"{method} is not possible here")
        return target


class _Job:
    """The job queue, for the running opcode (:class:`.methods.JobRequests`).

    :ivar stopped: the error with which the queue stopped the opcode, if it did.
    """

    def __init__(self, callbacks: Callbacks, logged: Sequence[tuple[str, Any]]) -> None:
        self._callbacks = callbacks
        self._logged = list(logged)
        self.stopped: errors.JobCanceled | None = None
        self.priority = callbacks.priority
        self.submit_jobs = callbacks.submit_jobs

    def notify_start(self) -> None:
        with self._noting_stop():
            self._callbacks.notify_start()

    def check_cancel(self) -> None:
        with self._noting_stop():
            self._callbacks.check_cancel()

    @contextlib.contextmanager
    def _noting_stop(self) -> Iterator[None]:
        try:
            yield
        except errors.JobCanceled as err:
            self.stopped = err
            raise

    def feedback(self, kind: str, message: Any) -> None:
        # A client which follows the log may look at the state of the job then.
        self._callbacks.show_waiting(wait=True)
        self._callbacks.feedback(kind, message)

    def complete_log(self, lines: Sequence[tuple[str, Any]]) -> None:
        place = 0
        for kind, message in lines:
            if place < len(self._logged) and self._logged[place] == (kind, message):
                place += 1
            else:
                self._callbacks.feedback(kind, message)


class _Locks:
    """The locks of the cluster, for one job (:class:`.methods.LockRequests`).

    :param check_alive: raises :class:`ProcessGone` when the process has ended.
    :param check_cancel: raises an error when the job is to stop.
    """

    def __init__(
        self,
        locks: LockManager,
        callbacks: Callbacks,
        check_alive: Callable[[], None],
        check_cancel: Callable[[], None],
    ) -> None:
        self._locks = locks
        self._callbacks = callbacks
        self._owner = callbacks.owner
        self._check_alive = check_alive
        self._check_cancel = check_cancel
        self.add = locks.add
        self.keys = locks.keys

    def held(self) -> Held:
        """Return all locks of the job with their modes."""
        return dict(self._locks.list_locks(self._owner))

    def remove(self, level: Level, keys: Collection[str]) -> None:
        self._locks.remove(level, keys, self._owner)

    def acquire(self, wanted: Wanted) -> Acquired:
        acquire = functools.partial(
            self._locks.acquire,
            self._owner,
            wanted.level,
            wanted.keys,
            shared=wanted.shared,
            opportunistic=wanted.opportunistic,
            priority=self._callbacks.priority,
            canceled=self._check_waiting,
        )
        taken = acquire(timeout_s=0)
        if taken is None and wanted.timeout_s != 0:
            self._callbacks.show_waiting()
            taken = acquire(timeout_s=wanted.timeout_s)
        return Acquired(taken, self.held())

    def _check_waiting(self) -> None:
        self._check_alive()
        self._check_cancel()

    def owned(self, level: Level) -> dict[str, str]:
        return dict(self._locks.owned(self._owner, level))

    def release(self, level: Level | None, keys: Collection[str] | None) -> None:
        self._locks.release(self._owner, level, keys)

    def downgrade(self, level: Level, keys: Collection[str] | None) -> None:
        self._locks.downgrade(self._owner, level, keys)


class _OpenTransaction:
    """The transaction of the process, if it has one (:class:`.methods.TransactionRequests`).

    :ivar change: the transaction; None while there is none.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._block = contextlib.ExitStack()
        self.change: Transaction | None = None

    def begin(self, author: Author) -> Begun:
        self.change = self._block.enter_context(self._config.acting_for(author).transaction())
        return Begun(self.change.base_serial, self.change.now)

    def data(self, serial_no: int) -> Changes:
        change = self._present()
        return changes.describe(change.data, change.changed_since(serial_no))

    def commit(self, serial_no: int) -> Changes:
        self._present()
        self.change = None
        self._block.close()
        return changes.describe(*self._config.changed_since(serial_no))

    def abandon(self) -> None:
        if self.change is not None:
            self.change = None
            self._block.__exit__(_Abandoned, _Abandoned(), None)

    def _present(self) -> Transaction:
        if self.change is None:
            raise errors.ProgrammerError("the process does not have a transaction")
        return self.change


class _Configuration:
    """The configuration, for one job (:class:`.methods.ConfigRequests`)."""

    def __init__(self, master: Master, job_id: int | None, transaction: _OpenTransaction) -> None:
        self._config = master.context.config
        self._loaded = master.loaded
        self._job_id = job_id
        self._transaction = transaction

    def changes(self, serial_no: int | None) -> Changes:
        if (change := self._transaction.change) is None:
            data, keys = self._config.changed_since(serial_no or 0)
        else:
            # The transaction keeps the store locked.
            data = self._config.snapshot()
            keys = change.recent.between(serial_no or 0, data.serial_no)
        return changes.describe(data, None if serial_no is None else keys)

    def has_commit(self, serial_no: int) -> bool:
        if serial_no > self._loaded:
            return False
        for commit in self._config.commits():
            if commit.serial == serial_no:
                return commit.author.job_id == self._job_id
            if commit.serial < serial_no:
                break
        return True  # It is not in the history, which may have gaps, and the file is that new.


def log_of(entries: Sequence[tuple[Any, ...]]) -> list[tuple[str, Any]]:
    """Return type and message of those entries of an opcode's log which a process can send."""
    return [
        (kind, message) if kind != job_const.LOG_MESSAGE else (kind, str(message))
        for _serial, _time, kind, message in entries
    ]
