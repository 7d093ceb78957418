"""The services of the master daemon in a job process: configuration, locks, queue, queries.

Most services are the proxies of :mod:`.methods`. The classes here are for those of which the
process keeps a part itself: the log, the locks, the reservations and the configuration. They have
the methods of the object which a thread of the master daemon uses, and return and raise the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar, cast

from ganeti import errors
from ganeti.config.history import Author
from ganeti.config.reservations import MAC, UUID
from ganeti.config.transaction import Transaction
from ganeti.constants import job as job_const
from ganeti.jobexec import changes, methods
from ganeti.jobexec.link import Link
from ganeti.jobexec.livelock import Record
from ganeti.jobexec.messages import ChannelClosed
from ganeti.jobexec.methods import Held, Reserved, Wanted
from ganeti.locking import ALL, BGL, EXCLUSIVE, SHARED, Level, LockId, Owner
from ganeti.objects import ConfigData
from ganeti.opcodes.base import OpCode
from ganeti.wire import json

ResultT = TypeVar("ResultT")

# Values which are offered at once when the first free one is wanted.
_OFFER: Final = 64


class RemoteCallbacks:
    """The job queue, as the running opcode sees it (:class:`ganeti.cmdlib.base.OpCallbacks`).

    :ivar on_start: called when the opcode has begun its work.
    """

    def __init__(self, link: Link, owner: Owner, woken: Callable[[], bool]) -> None:
        """:param woken: whether the job may have to stop, so that the queue has to be asked."""
        self._link = link
        self._queue = methods.proxies(link.ask).job
        self._owner = owner
        self._woken = woken
        self._said: list[tuple[str, Any]] = []
        self.on_start: Callable[[], None] = lambda: None
        link.on_welcome = self.repeat

    @property
    def owner(self) -> Owner:
        """The owner of the locks: the job, with the livelock of this process."""
        return self._owner

    def begin(self) -> None:
        """Forget the log of the opcode before."""
        self._said = []

    def notify_start(self) -> None:
        """Report that the opcode holds its locks; returns when "running" is on disk.

        :raises JobCanceled: the job was canceled before.
        """
        self._queue.notify_start()
        self.on_start()

    def feedback(self, *args: Any) -> None:
        """Add a log entry: ``(message)`` or ``(type, message)``.

        :raises ProgrammerError: other arguments, or a message which JSON cannot express.
        """
        if len(args) not in (1, 2):
            raise errors.ProgrammerError("feedback takes a message, or a type and a message")
        if len(args) == 1 or args[0] == job_const.LOG_MESSAGE:
            line = (job_const.LOG_MESSAGE, str(args[-1]))
        else:
            json.dumps(args[1])
            json.check_nesting(args[1])
            line = (str(args[0]), args[1])
        self._said.append(line)
        methods.proxies(self._link.tell).job.feedback(*line)

    def repeat(self) -> None:
        """Send the log of the opcode again, to a master daemon which may not have all of it."""
        if self._said:
            self._queue.complete_log(self._said)

    def check_cancel(self) -> None:
        """Stop here if the job is to stop.

        :raises JobCanceled: it is.
        """
        if self._woken():
            self._queue.check_cancel()

    def priority(self) -> int:
        """Return the present priority of the job."""
        return self._queue.priority()

    def submit_jobs(self, jobs: Sequence[Sequence[OpCode]]) -> list[list[Any]]:
        """Submit jobs.

        :returns: ``[True, job id]`` or ``[False, message]`` for each job.
        :raises OpExecError: the master daemon was restarted, and it is not known whether it had
            accepted the jobs.
        """
        try:
            return methods.proxies(self._link.ask_once).job.submit_jobs(jobs)
        except ChannelClosed:
            self._link.renew()
            raise errors.OpExecError(
                "the master daemon was restarted while this job submitted others, and it is not"
                " known which of them it had accepted. See 'gnt-job list'."
            ) from None


class RemoteLocks:
    """The locks of the cluster (:class:`ganeti.cmdlib.base.JobLocks`)."""

    def __init__(self, link: Link, record: Record) -> None:
        self._manager = methods.proxies(link.ask).locks
        self._settled = methods.proxies(link.settle).locks
        self._unanswered = methods.proxies(link.tell_later).locks
        self._record = record
        self._held: Held = {}

    def add(self, level: Level, keys: Iterable[str]) -> None:
        """Create locks, all of them or none."""
        self._manager.add(level, list(keys))

    def remove(self, level: Level, keys: Iterable[str], _owner: Owner) -> None:
        """Remove locks which the owner holds exclusively."""
        names = list(keys)
        left = {
            one: mode
            for one, mode in self._held.items()
            if one.level != level or one.key not in names
        }
        self._weaken(left, lambda: self._settled.remove(level, names))

    def keys(self, level: Level) -> frozenset[str]:
        """Return the keys of the level's present members."""
        return self._manager.keys(level)

    def acquire(
        self,
        _owner: Owner,
        level: Level,
        keys: Collection[str] | None,
        *,
        shared: bool,
        timeout_s: float | None = None,
        priority: int | Callable[[], int] = 0,
        opportunistic: bool = False,
        canceled: Callable[[], None] | None = None,
    ) -> frozenset[str] | None:
        """Take locks of one level, waiting for them in order.

        The master daemon looks at the priority of the job and at its cancellation itself.
        """
        mode = SHARED if shared else EXCLUSIVE
        if level is Level.CLUSTER and keys == [BGL] and self._held == {LockId(level, BGL): mode}:
            return frozenset(keys)
        answer = self._manager.acquire(Wanted(level, keys, shared, timeout_s, opportunistic))
        self.begin(answer.held)
        return answer.taken

    def owned(self, owner: Owner, level: Level) -> Mapping[str, str]:
        """Return the members which the owner holds, each ``shared`` or ``exclusive``."""
        if LockId(level, ALL) not in self._held:
            return {str(one.key): mode for one, mode in self._held.items() if one.level == level}
        # New members belong to it, too, and only the master daemon knows them.
        return self._manager.owned(level)

    def release(
        self, owner: Owner, level: Level | None = None, keys: Collection[str] | None = ALL
    ) -> None:
        """Release the named locks, all locks of a level, or all locks."""
        if level is None:
            # That cannot fail, and more requests or the result of the opcode follow at once.
            self._held = {}
            self._record.set_locks({})
            self._unanswered.release(None, ALL)
            return
        if keys is ALL:
            left = {one: mode for one, mode in self._held.items() if one.level != level}
        else:
            left = {
                one: mode
                for one, mode in self._members_named(level).items()
                if one.level != level or one.key not in keys
            }
        self._weaken(left, lambda: self._settled.release(level, keys))

    def downgrade(self, owner: Owner, level: Level, keys: Collection[str] | None = ALL) -> None:
        """Turn exclusive locks into shared ones; all of the level when no keys are given."""
        whole = self._held.get(LockId(level, ALL)) == EXCLUSIVE and keys is not ALL
        left = {
            one: SHARED if one.level == level and (keys is ALL or one.key in keys) else mode
            for one, mode in (self._members_named(level) if whole else self._held).items()
        }
        self._weaken(left, lambda: self._settled.downgrade(level, keys))

    def begin(self, held: Held) -> None:
        """Note which locks the job holds now, and write them into the record."""
        self._held = held
        self._record.set_locks(self._held)

    def _members_named(self, level: Level) -> dict[LockId, str]:
        """Return the locks, with the present members of a level instead of the level itself.

        So the manager exchanges them, when members are released or weakened one by one.
        """
        if LockId(level, ALL) not in self._held:
            return self._held
        found = {one: mode for one, mode in self._held.items() if one.level != level}
        found.update({LockId(level, key): mode for key, mode in self._manager.owned(level).items()})
        return found

    def _weaken(self, left: Held, release: Callable[[], None]) -> None:
        """Let the record have what will be left, and then release or weaken locks.

        :raises LockError: nothing was changed.
        """
        before, self._held = self._held, left
        self._record.set_locks(left)
        try:
            release()
        except errors.LockError:
            self._held = before
            self._record.set_locks(before)
            raise


class RemoteReservations:
    """The reserved values (:class:`ganeti.config.reservations.Reservations`)."""

    def __init__(self, link: Link, record: Record) -> None:
        self._asked = methods.proxies(link.ask).reservations
        self._settled = methods.proxies(link.settle).reservations
        self._record = record
        self.taken = self._asked.taken

    def release(self, ec_id: str) -> None:
        """Release all reservations of an execution."""
        if self._record.release(ec_id):
            self._settled.release(ec_id)

    def reserve(self, kind: str, value: Any, ec_id: str) -> None:
        """Reserve a value for an execution."""
        self._asked.reserve(kind, value, ec_id)
        self._record.reserve(kind, value, ec_id)

    def first_free(self, kind: str, values: Iterable[Reserved], ec_id: str) -> Reserved | None:
        """Reserve the first value which is neither reserved nor in the configuration."""
        source = iter(values)
        while offered := list(itertools.islice(source, _OFFER)):
            found = self._asked.first_free(kind, offered, ec_id)
            if found is not None:
                self._record.reserve(kind, found, ec_id)
                return found
        return None

    def next_free(self, kind: str, values: Iterable[Reserved], count: int) -> list[Reserved]:
        """Return the first values, at most so many, which are free now; reserve none of them."""
        source = iter(values)
        found: list[Reserved] = []
        while len(found) < count and (offered := list(itertools.islice(source, _OFFER))):
            found += self._asked.next_free(kind, offered, count - len(found))
        return found

    def new_uuid(self, ec_id: str) -> str:
        """Reserve a new UUID and return it."""
        return self._noted(UUID, self._asked.new_uuid(ec_id), ec_id)

    def new_mac(self, prefix: str, ec_id: str) -> str:
        """Reserve a random free MAC address and return it."""
        return self._noted(MAC, self._asked.new_mac(prefix, ec_id), ec_id)

    def _noted(self, kind: str, value: str, ec_id: str) -> str:
        self._record.reserve(kind, value, ec_id)
        return value


# A reading among the operations of a transaction, for its state.
_READ: Final = "data"


class RemoteTransaction:
    """A transaction which the master daemon carries out; it has the fields of a real one.

    After a restart of the master daemon in the middle, the operations are carried out again in a
    new transaction, which must return the same values.

    :ivar now: its time, in seconds since 1970.
    """

    def __init__(self, store: RemoteStore, link: Link, author: Author) -> None:
        self._store = store
        self._link = link
        self._once = methods.proxies(link.ask_once).transaction
        vars(self).update(methods.operations(self._operate))
        self._author = author
        self._done: list[tuple[str, list[Any], Any]] = []
        self._first_serial = 0
        self.now = 0.0
        self._begin()

    def _begin(self) -> None:
        """Begin the transaction, also once more with all operations so far.

        :raises ConfigurationError: the operations would now have another result.
        """
        while True:
            try:
                self._first_serial, self.now = self._once.begin(self._author)
                if all(self._has_result(*one) for one in self._done):
                    return
                self._once.abandon()
            except ChannelClosed:
                self._link.renew()
            else:
                raise errors.ConfigurationError(
                    "the master daemon was restarted during this change, and the change"
                    " would not be the same now. Nothing was changed."
                )

    def _has_result(self, request: str, args: list[Any], result: Any) -> bool:
        """Carry out an operation again, and tell whether it has the same result.

        What was read, and changed, is not written over another state. Its serial number does not
        tell: the former master daemon may have given it to a change which was lost.
        """
        try:
            if request == _READ:
                return bool(changes.apply(None, self._once.data(-1)) == result)
            return bool(self._link.ask_once(request, args) == result)
        except errors.GenericError:
            return False

    def _restarting(self, ask: Callable[[], ResultT]) -> ResultT:
        """Ask for something, in a transaction of the present master daemon."""
        while True:
            try:
                return ask()
            except ChannelClosed:
                self._link.renew()
                self._begin()

    def _operate(self, request: str, args: list[Any]) -> Any:
        """Carry out one operation, and return its result."""
        result = self._restarting(lambda: self._link.ask_once(request, args))
        self._done.append((request, args, result))
        return result

    @property
    def data(self) -> ConfigData:
        """The state with all changes made so far."""
        found = self._restarting(self._read)
        if not self._done or self._done[-1][0] != _READ:
            self._done.append((_READ, [], found))
        return found

    def _read(self) -> ConfigData:
        known = self._store.known
        return changes.apply(known, self._once.data(known.serial_no))

    def commit(self) -> None:
        """Commit, and take over the new state."""
        while True:
            known = self._store.known
            try:
                answer = self._once.commit(known.serial_no)
            except ChannelClosed:
                self._link.renew()
                changed = any(request != _READ for request, *_rest in self._done)
                if changed and self._store.has_commit(self._first_serial + 1):
                    return
                self._begin()
            else:
                self._store.known = changes.apply(known, answer)
                return

    def abandon(self) -> None:
        """Discard the changes."""
        methods.proxies(self._link.settle).transaction.abandon()


class RemoteStore:
    """The store of the configuration (:class:`ganeti.config.store.ConfigStore`).

    :param page: the serial number of the newest state.
    :param data: the state which this process inherited; None for none.
    :ivar others: what the other nodes have of the configuration.
    :ivar known: the newest state which this process has.
    """

    def __init__(
        self, link: Link, page: changes.SharedNumber, record: Record, data: ConfigData | None
    ) -> None:
        self._link = link
        self._page = page
        asked = methods.proxies(link.ask)
        self._changes = asked.config.changes
        self.has_commit = asked.config.has_commit
        self.reservations = RemoteReservations(link, record)
        self.copies = asked.copies
        self.redistribute = asked.copies.redistribute
        self.history = None
        self.known = data if data is not None else self._fetch(None)

    def _fetch(self, known: ConfigData | None) -> ConfigData:
        return changes.apply(known, self._changes(None if known is None else known.serial_no))

    def snapshot(self) -> ConfigData:
        """Return the present state."""
        if self._page.get() != self.known.serial_no:
            self.known = self._fetch(self.known)
        return self.known

    @contextmanager
    def transaction(self, author: Author = Author()) -> Iterator[Transaction]:  # noqa: B008
        """Change the configuration; see :meth:`ganeti.config.store.ConfigStore.transaction`."""
        change = RemoteTransaction(self, self._link, author)
        try:
            # It has everything of a transaction which logical units use.
            yield cast("Transaction", change)
        except BaseException:
            change.abandon()
            raise
        change.commit()
