"""The services of the master daemon in a job process: configuration, locks, queue, queries.

Each class has the methods of the object which a thread of the master daemon uses, and sends them as
requests (:mod:`.link`). What they return and raise is the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from ganeti import errors
from ganeti.config.history import Author
from ganeti.config.reservations import MAC, UUID
from ganeti.config.sending import DistributionFailure
from ganeti.config.transaction import Transaction
from ganeti.constants import job as job_const
from ganeti.jobexec import changes, messages
from ganeti.jobexec.link import Link
from ganeti.jobexec.livelock import Record
from ganeti.jobexec.messages import ChannelClosed
from ganeti.locking import ALL, BGL, EXCLUSIVE, SHARED, Level, LockId, Owner
from ganeti.objects import ConfigData
from ganeti.opcodes.base import OpCode
from ganeti.wire import json

if TYPE_CHECKING:
    from ganeti.cmdlib.base import FieldValue
    from ganeti.query.engine import FieldsAnswer, QueryAnswer

ValueT = TypeVar("ValueT")

# Values which are offered at once when the first free one is wanted.
_OFFER: Final = 64


class RemoteCallbacks:
    """The job queue, as the running opcode sees it (:class:`ganeti.cmdlib.base.OpCallbacks`)."""

    def __init__(self, link: Link, owner: Owner, woken: Callable[[], bool]) -> None:
        """:param woken: whether the job may have to stop, so that the queue has to be asked."""
        self._link = link
        self._owner = owner
        self._woken = woken
        self._said: list[list[Any]] = []
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
        self._link.ask("job.notify_start")

    def feedback(self, *args: Any) -> None:
        """Add a log entry: ``(message)`` or ``(type, message)``.

        :raises ProgrammerError: other arguments, or a message which JSON cannot express.
        """
        if len(args) not in (1, 2):
            raise errors.ProgrammerError("feedback takes a message, or a type and a message")
        if len(args) == 1 or args[0] == job_const.LOG_MESSAGE:
            line = [job_const.LOG_MESSAGE, str(args[-1])]
        else:
            json.dumps(args[1])
            json.check_nesting(args[1])
            line = [str(args[0]), args[1]]
        self._said.append(line)
        self._link.tell("job.feedback", *line)

    def repeat(self) -> None:
        """Send the log of the opcode again, to a master daemon which may not have all of it."""
        if self._said:
            self._link.ask("job.feedback_so_far", self._said)

    def check_cancel(self) -> None:
        """Stop here if the job is to stop.

        :raises JobCanceled: it is.
        """
        if self._woken():
            self._link.ask("job.check_cancel")

    def priority(self) -> int:
        """Return the present priority of the job."""
        return int(self._link.ask("job.priority"))

    def submit_jobs(self, jobs: Sequence[Sequence[OpCode]]) -> list[list[Any]]:
        """Submit jobs.

        :returns: ``[True, job id]`` or ``[False, message]`` for each job.
        :raises OpExecError: the master daemon was restarted, and it is not known whether it had
            accepted the jobs.
        """
        try:
            found: list[list[Any]] = self._link.ask_once(
                "job.submit_jobs", [[op.to_dict() for op in job] for job in jobs]
            )
        except ChannelClosed:
            self._link.renew()
            raise errors.OpExecError(
                "the master daemon was restarted while this job submitted others, and it is not"
                " known which of them it had accepted. See 'gnt-job list'."
            ) from None
        return found


class RemoteLocks:
    """The locks of the cluster (:class:`ganeti.cmdlib.base.JobLocks`)."""

    def __init__(self, link: Link, record: Record) -> None:
        self._link = link
        self._record = record
        self._held: dict[LockId, str] = {}

    def begin(self, held: list[list[Any]]) -> None:
        """Note the locks which the master daemon has taken for an opcode before it sent that."""
        self._note(held)

    def add(self, level: Level, keys: Iterable[str]) -> None:
        """Create locks, all of them or none."""
        self._link.ask("locks.add", level, list(keys))

    def remove(self, level: Level, keys: Iterable[str], _owner: Owner) -> None:
        """Remove locks which the owner holds exclusively."""
        names = list(keys)
        left = {
            one: mode
            for one, mode in self._held.items()
            if one.level != level or one.key not in names
        }
        self._weaken(left, "locks.remove", level, names)

    def keys(self, level: Level) -> frozenset[str]:
        """Return the keys of the level's present members."""
        return frozenset(self._link.ask("locks.keys", level))

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
        cancelled: Callable[[], None] | None = None,
    ) -> frozenset[str] | None:
        """Take locks of one level, waiting for them in order.

        The master daemon looks at the priority of the job and at its cancellation itself.
        """
        mode = SHARED if shared else EXCLUSIVE
        if level is Level.CLUSTER and keys == [BGL] and self._held == {LockId(level, BGL): mode}:
            return frozenset(keys)
        answer = self._link.ask(
            "locks.acquire",
            level,
            None if keys is ALL else list(keys),
            shared,
            timeout_s,
            opportunistic,
        )
        self._note(answer["held"])
        return None if answer["taken"] is None else frozenset(answer["taken"])

    def owned(self, owner: Owner, level: Level) -> Mapping[str, str]:
        """Return the members which the owner holds, each ``shared`` or ``exclusive``."""
        if LockId(level, ALL) not in self._held:
            return {str(one.key): mode for one, mode in self._held.items() if one.level == level}
        # New members belong to it, too, and only the master daemon knows them.
        return self._members(level)

    def _members(self, level: Level) -> dict[str, str]:
        found: dict[str, str] = self._link.ask("locks.owned", level)
        return found

    def release(
        self, owner: Owner, level: Level | None = None, keys: Collection[str] | None = ALL
    ) -> None:
        """Release the named locks, all locks of a level, or all locks."""
        if level is None:
            # That cannot fail, and more requests or the result of the opcode follow at once.
            self._held = {}
            self._record.set_locks({})
            self._link.tell_later("locks.release")
            return
        if keys is ALL:
            left = {one: mode for one, mode in self._held.items() if one.level != level}
        else:
            left = {
                one: mode
                for one, mode in self._members_named(level).items()
                if one.level != level or one.key not in keys
            }
        self._weaken(left, "locks.release", level, None if keys is ALL else list(keys))

    def downgrade(self, owner: Owner, level: Level, keys: Collection[str] | None = ALL) -> None:
        """Turn exclusive locks into shared ones; all of the level when no keys are given."""
        whole = self._held.get(LockId(level, ALL)) == EXCLUSIVE and keys is not ALL
        left = {
            one: SHARED if one.level == level and (keys is ALL or one.key in keys) else mode
            for one, mode in (self._members_named(level) if whole else self._held).items()
        }
        self._weaken(left, "locks.downgrade", level, None if keys is ALL else list(keys))

    def list_locks(self, _owner: Owner) -> dict[LockId, str]:
        """Return the locks of the owner with their modes."""
        return _locks(self._link.ask("locks.list"))

    def update(
        self,
        _owner: Owner,
        changed: Mapping[LockId, str | None],
        *,
        timeout_s: float | None = 0,
    ) -> bool:
        """Bring locks to the given modes, all or none of them; False after a timeout."""
        answer = self._link.ask("locks.update", _pairs(changed), timeout_s)
        self._note(answer["held"])
        return bool(answer["done"])

    def opportunistic_union(self, _owner: Owner, wanted: Mapping[LockId, str]) -> frozenset[LockId]:
        """Take those of the given locks which are free, without waiting; return them."""
        answer = self._link.ask("locks.opportunistic_union", _pairs(wanted))
        self._note(answer["held"])
        return frozenset(LockId(Level(level), key) for level, key in answer["taken"])

    def intersection(self, _owner: Owner, wanted: Collection[LockId]) -> None:
        """Release all locks except these."""
        answer = self._link.ask("locks.intersection", [[one.level, one.key] for one in wanted])
        self._note(answer["held"])

    def _note(self, held: list[list[Any]]) -> None:
        """Write the locks which the job holds now into the record."""
        self._held = _locks(held)
        self._record.set_locks(self._held)

    def _members_named(self, level: Level) -> dict[LockId, str]:
        """Return the locks, with the present members of a level instead of the level itself.

        So the manager exchanges them, when members are released or weakened one by one.
        """
        if LockId(level, ALL) not in self._held:
            return self._held
        found = {one: mode for one, mode in self._held.items() if one.level != level}
        found.update({LockId(level, key): mode for key, mode in self._members(level).items()})
        return found

    def _weaken(self, left: dict[LockId, str], method: str, *args: Any) -> None:
        """Let the record have what will be left, and then release or weaken locks.

        :raises LockError: nothing was changed.
        """
        before, self._held = self._held, left
        self._record.set_locks(left)
        try:
            self._link.settle(method, *args)
        except errors.LockError:
            self._held = before
            self._record.set_locks(before)
            raise


def _locks(held: Iterable[Sequence[Any]]) -> dict[LockId, str]:
    return {LockId(Level(level), key): str(mode) for level, key, mode in held}


def _pairs(wanted: Mapping[LockId, str | None]) -> list[list[Any]]:
    return [[one.level, one.key, mode] for one, mode in wanted.items()]


class RemoteReservations:
    """The reserved values (:class:`ganeti.config.reservations.Reservations`)."""

    def __init__(self, link: Link, record: Record) -> None:
        self._link = link
        self._record = record

    def release(self, ec_id: str) -> None:
        """Release all reservations of an execution."""
        if self._record.release(ec_id):
            self._link.settle("reservations.release", ec_id)

    def reserve(self, kind: str, value: Any, ec_id: str) -> None:
        """Reserve a value for an execution."""
        self._link.ask("reservations.reserve", kind, value, ec_id)
        self._record.reserve(kind, value, ec_id)

    def first_free(self, kind: str, values: Iterable[ValueT], ec_id: str) -> ValueT | None:
        """Reserve the first value which is neither reserved nor in the configuration."""
        source = iter(values)
        while offered := list(itertools.islice(source, _OFFER)):
            place = self._link.ask("reservations.first_free", kind, offered, ec_id)
            if place is not None:
                self._record.reserve(kind, offered[place], ec_id)
                return offered[int(place)]
        return None

    def taken(self, kind: str) -> frozenset[Any]:
        """Return all reserved values of a kind."""
        return frozenset(
            tuple(value) if isinstance(value, list) else value
            for value in self._link.ask("reservations.taken", kind)
        )

    def new_uuid(self, ec_id: str) -> str:
        """Reserve a new UUID and return it."""
        return self._noted(UUID, self._link.ask("reservations.new_uuid", ec_id), ec_id)

    def new_mac(self, prefix: str, ec_id: str) -> str:
        """Reserve a random free MAC address and return it."""
        return self._noted(MAC, self._link.ask("reservations.new_mac", prefix, ec_id), ec_id)

    def _noted(self, kind: str, value: str, ec_id: str) -> str:
        self._record.reserve(kind, value, ec_id)
        return value


# A reading among the operations of a transaction.
_READ = "data"


class _Change(Transaction):
    """A transaction which the master daemon carries out; it has the methods of a real one.

    After a restart of the master daemon in the middle, the operations are carried out again in a
    new transaction, which must return the same values.
    """

    def __init__(self, store: RemoteStore, link: Link, author: Author) -> None:
        # The base class keeps the state, which is in the master daemon here.
        self._store = store
        self._link = link
        self._author = author
        self._done: list[tuple[str, list[Any], Any]] = []
        self.first_serial = 0
        self.begin()

    def begin(self) -> None:
        """Begin the transaction, also once more with all operations so far.

        :raises ConfigurationError: the operations would now have another result.
        """
        while True:
            try:
                answer = self._link.ask("config.begin", list(self._author))
                self.first_serial = answer["serial_no"]
                self.now = answer["now"]
                if not all(self._has_result(*one) for one in self._done):
                    self._link.ask_once("config.abandon")
                    raise errors.ConfigurationError(
                        "the master daemon was restarted during this change, and the change"
                        " would not be the same now. Nothing was changed."
                    )
            except ChannelClosed:
                self._link.renew()
            else:
                return

    def _has_result(self, name: str, args: list[Any], result: Any) -> bool:
        """Carry out an operation again, and tell whether it has the same result.

        What was read, and changed, is not written over another state. Its serial number does not
        tell: the former master daemon may have given it to a change which was lost.
        """
        try:
            if name == _READ:
                return bool(changes.apply(None, self._link.ask_once("config.data", -1)) == result)
            return bool(self._link.ask_once(f"change.{name}", *args) == result)
        except errors.GenericError:
            return False

    def operate(self, name: str, args: list[Any]) -> Any:
        """Carry out one operation, and return its result."""
        while True:
            try:
                result = self._link.ask_once(f"change.{name}", *args)
            except ChannelClosed:
                self._link.renew()
                self.begin()
            else:
                self._done.append((name, args, result))
                return result

    @property
    def data(self) -> ConfigData:
        """The state with all changes made so far."""
        while True:
            try:
                known = self._store.known
                found = changes.apply(known, self._link.ask_once("config.data", known.serial_no))
            except ChannelClosed:
                self._link.renew()
                self.begin()
            else:
                if not self._done or self._done[-1][0] != _READ:
                    self._done.append((_READ, [], found))
                return found

    def commit(self) -> None:
        """Commit, and take over the new state."""
        while True:
            known = self._store.known
            try:
                answer = self._link.ask_once("config.commit", known.serial_no)
            except ChannelClosed:
                self._link.renew()
                changed = any(name != _READ for name, *_rest in self._done)
                if changed and self._link.ask("config.has_commit", self.first_serial + 1):
                    return
                self.begin()
            else:
                self._store.known = changes.apply(known, answer)
                return

    def abandon(self) -> None:
        """Discard the changes."""
        self._link.settle("config.abandon")


def _operation(name: str) -> Callable[..., Any]:
    names = getattr(Transaction, name).__code__.co_varnames[1:]
    defaults = getattr(Transaction, name).__defaults__ or ()

    def operate(self: _Change, *args: Any, **named: Any) -> Any:
        given = [messages.pack(value) for value in args]
        for word, value in named.items():
            place = names.index(word)
            # Arguments which are left out have their default values.
            count = getattr(Transaction, name).__code__.co_argcount - 1
            while len(given) < place:
                given.append(messages.pack(defaults[len(given) - count + len(defaults)]))
            given.insert(place, messages.pack(value))
        return messages.unpack(self.operate(name, given))

    operate.__name__ = name
    operate.__doc__ = getattr(Transaction, name).__doc__
    return operate


#: The operations of a transaction, which a job process may ask for.
OPERATIONS: Final = frozenset(
    name
    for name in dir(Transaction)
    if callable(getattr(Transaction, name))
    and not name.startswith("_")
    and name not in ("finish", "abandon", "changed_since")
)
for _name in OPERATIONS:
    setattr(_Change, _name, _operation(_name))


class RemoteOtherNodes:
    """What the other nodes have of the configuration (:class:`ganeti.config.others.OtherNodes`)."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def lagging(self) -> dict[str, frozenset[str]]:
        """Return the lagging nodes by UUID, each with what it lacks."""
        found = self._link.ask("config.lagging")
        return {uuid: frozenset(what) for uuid, what in found.items()}

    def inform_others(self) -> None:
        """Send ssconf values to the nodes which did not get them with a commit."""
        self._link.ask("config.inform_others")

    def is_alone(self) -> bool:
        """Tell whether the witness knows that this node is the only candidate."""
        return bool(self._link.ask("config.is_alone"))

    def require_committed(self) -> None:
        """Check that the present state is committed."""
        self._link.ask("config.require_committed")


class RemoteStore:
    """The store of the configuration (:class:`ganeti.config.store.ConfigStore`).

    :param page: the serial number of the newest state.
    :param data: the state which this process inherited; None for none.
    :ivar known: the newest state which this process has.
    """

    def __init__(
        self, link: Link, page: changes.SharedNumber, record: Record, data: ConfigData | None
    ) -> None:
        self._link = link
        self._page = page
        self.reservations = RemoteReservations(link, record)
        self.others = RemoteOtherNodes(link)
        self.history = None
        self.known = data if data is not None else self._fetch(None)

    def _fetch(self, known: ConfigData | None) -> ConfigData:
        serial_no = None if known is None else known.serial_no
        return changes.apply(known, self._link.ask("config.changes", serial_no))

    def snapshot(self) -> ConfigData:
        """Return the present state."""
        if self._page.get() != self.known.serial_no:
            self.known = self._fetch(self.known)
        return self.known

    @contextmanager
    def transaction(self, author: Author = Author()) -> Iterator[Transaction]:  # noqa: B008
        """Change the configuration; see :meth:`ganeti.config.store.ConfigStore.transaction`."""
        change = _Change(self, self._link, author)
        try:
            yield change
        except BaseException:
            change.abandon()
            raise
        change.commit()

    def redistribute(self) -> list[DistributionFailure]:
        """Send configuration and ssconf values to all nodes again; return the failures."""
        return [DistributionFailure(*one) for one in self._link.ask("config.redistribute")]


class RemoteQueries:
    """The query service (:class:`ganeti.cmdlib.base.Queries`)."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def query(self, what: str, fields: Sequence[str], qfilter: Any = None, /) -> QueryAnswer:
        """Answer the LUXI request ``Query``."""
        return cast("QueryAnswer", self._link.ask("queries.query", what, list(fields), qfilter))

    def query_fields(self, what: str, names: Sequence[str] | None = None, /) -> FieldsAnswer:
        """Answer the LUXI request ``QueryFields``."""
        return cast("FieldsAnswer", self._link.ask("queries.query_fields", what, names))

    def query_values(
        self, what: str, names: Sequence[str | int] | None, fields: Sequence[str], /
    ) -> list[list[FieldValue]]:
        """Answer the older queries."""
        return cast(
            "list[list[FieldValue]]", self._link.ask("queries.query_values", what, names, fields)
        )

    def cluster_info(self) -> dict[str, FieldValue]:
        """Answer ``QueryClusterInfo``."""
        return cast("dict[str, FieldValue]", self._link.ask("queries.cluster_info"))

    def config_values(self, names: Sequence[str], /) -> list[FieldValue]:
        """Answer ``QueryConfigValues``."""
        return cast("list[FieldValue]", self._link.ask("queries.config_values", list(names)))


class RemoteJobFiles:
    """The files of the job queue (:class:`ganeti.cmdlib.base.JobFiles`)."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def compare_copies(self) -> None:
        """Compare the candidates' copies with the queue and send what they lack."""
        self._link.ask("files.compare_copies")

    def repair_files(self) -> dict[int, str]:
        """Write files of jobs anew which are damaged; return what was wrong, by job id."""
        return {int(key): text for key, text in self._link.ask("files.repair_files").items()}

    def lost_jobs(self) -> dict[int, str]:
        """Return why jobs could not be read when the daemon started, by id."""
        return {int(key): text for key, text in self._link.ask("files.lost_jobs").items()}


class RemoteLeftWork:
    """What keeps locks as long as nodes work (:class:`ganeti.cmdlib.base.LeftWork`)."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def hand_over(
        self,
        _job_id: int | None,
        nodes: Collection[str],
        held: Collection[str],
        revoke: Collection[str] = (),
    ) -> None:
        """Keep the locks of the job, where these nodes still work for it."""
        self._link.ask("left_work.hand_over", list(nodes), list(held), list(revoke))

    def left(self) -> list[tuple[str, str]]:
        """Return such work: the name of the node, and a text."""
        return [(node, text) for node, text in self._link.ask("left_work.left")]


class RemoteWitness:
    """The witness of the cluster (:class:`ganeti.cmdlib.base.WitnessCheck`)."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def look(self, *, touch: bool = False) -> str | None:
        """Look at it, and with ``touch`` write it; return why it does not count, or nothing."""
        found = self._link.ask("witness.look", touch)
        return None if found is None else str(found)

    def set_up(self, url: str) -> None:
        """Check a server, and write the first document there."""
        self._link.ask("witness.set_up", url)
