"""Carries out the requests of a job process, in the worker thread of the queue which waits for it.

The requests and their arguments are those of :mod:`.remote`. An error of a request is sent to the
process, which raises it there; only the end of the process is raised here.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from ganeti import cmdlib, errors, opcodes
from ganeti.cmdlib.base import MasterContext
from ganeti.config.history import Author
from ganeti.config.transaction import Transaction
from ganeti.constants import job as job_const
from ganeti.jobexec import changes, messages
from ganeti.jobexec.messages import Channel, ChannelClosed
from ganeti.jobexec.remote import OPERATIONS
from ganeti.jqueue.callbacks import Callbacks
from ganeti.jqueue.execution import JobDetached
from ganeti.locking import BGL, Level, LockId, Owner

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
    :ivar stopped: the error with which the queue stopped the opcode, if it did.
    """

    def __init__(
        self,
        master: Master,
        channel: Channel,
        callbacks: Callbacks,
        logged: Sequence[tuple[str, Any]],
        check_alive: Callable[[], None],
    ) -> None:
        self._context = master.context
        self._loaded = master.loaded
        self._channel = channel
        self._callbacks = callbacks
        self._logged = list(logged)
        self._check_alive = check_alive
        self.stopped: errors.JobCanceled | None = None
        context, locks, owner = self._context, self._context.locks, callbacks.owner
        config, reserved = context.config, context.config.reserved
        self._methods: dict[str, Callable[..., Any]] = {
            "job.notify_start": self._stoppable(callbacks.notify_start),
            "job.check_cancel": self._stoppable(callbacks.check_cancel),
            "job.priority": callbacks.priority,
            "job.submit_jobs": self._submit_jobs,
            "job.feedback_so_far": self._feedback_so_far,
            "locks.add": lambda level, keys: locks.add(Level(level), keys),
            "locks.remove": lambda level, keys: locks.remove(Level(level), keys, owner),
            "locks.keys": lambda level: locks.keys(Level(level)),
            "locks.acquire": self._acquire,
            "locks.owned": lambda level: locks.owned(owner, Level(level)),
            "locks.release": lambda level, keys: locks.release(
                owner, None if level is None else Level(level), keys
            ),
            "locks.downgrade": lambda level, keys: locks.downgrade(owner, Level(level), keys),
            "locks.list": lambda: self._held(owner),
            "locks.update": self._update,
            "locks.opportunistic_union": self._opportunistic_union,
            "locks.intersection": self._intersection,
            "reservations.release": reserved.release,
            "reservations.reserve": lambda kind, value, ec_id: reserved.reserve(
                kind, _key(value), ec_id
            ),
            "reservations.first_free": self._first_free,
            "reservations.taken": reserved.taken,
            "reservations.new_uuid": reserved.new_uuid,
            "reservations.new_mac": reserved.new_mac,
            "config.changes": self._changes,
            "config.begin": self._transaction,
            "config.abandon": lambda: None,
            "config.has_commit": self._has_commit,
            "config.redistribute": config.redistribute,
            "config.lagging": config.lagging,
            "config.inform_others": config.inform_others,
            "config.is_alone": config.is_alone,
            "config.require_committed": config.require_committed,
            "trust_changed": lambda: context.rpc.trust_changed(),
        }
        if context.queries is not None:
            for name in (
                "query",
                "query_fields",
                "query_values",
                "cluster_info",
                "config_values",
            ):
                self._methods[f"queries.{name}"] = getattr(context.queries, name)
        if context.job_files is not None:
            for name in ("compare_copies", "repair_files", "lost_jobs"):
                self._methods[f"files.{name}"] = getattr(context.job_files, name)
        if (keeper := context.left_work) is not None:
            self._methods["left_work.left"] = keeper.left
            self._methods["left_work.hand_over"] = lambda nodes, held, revoke: keeper.hand_over(
                owner.job_id, nodes, held, revoke
            )
        if (witness := context.witness) is not None:
            self._methods["witness.look"] = lambda touch: witness.look(touch=touch)
            self._methods["witness.set_up"] = witness.set_up

    def take_big_lock(self, op_id: str) -> list[list[Any]]:
        """Take the lock of the cluster for an opcode before the process gets it.

        :returns: the locks which the job holds then.
        :raises JobCanceled: the job is to stop.
        """
        owner = self._callbacks.owner
        if not (held := self._held(owner)):
            shared = not cmdlib.lookup(op_id).REQ_BGL
            held = self._acquire(Level.CLUSTER, [BGL], shared, None, False)["held"]
        return held

    def serve(self) -> dict[str, Any]:
        """Carry out requests until the opcode has ended; return the message with its result.

        The opcode has no locks afterwards.

        :raises ChannelClosed: the process has ended, or has lost the connection.
        :raises ProcessGone: the same, while it waited for a lock or in a transaction.
        """
        while True:
            message: dict[str, Any] = self._channel.receive()
            if "ask" in message:
                self._answer(message)
            elif "tell" in message:
                self._note(message)
            else:
                self._context.locks.release(self._callbacks.owner)
                return message

    def _note(self, message: dict[str, Any]) -> None:
        """Carry out a request which has no answer."""
        if message["tell"] == "locks.release":
            self._context.locks.release(self._callbacks.owner)
        else:
            # A client which follows the log may look at the state of the job then.
            self._callbacks.show_waiting(wait=True)
            self._callbacks.feedback(*message["args"])

    def _answer(self, message: dict[str, Any]) -> None:
        try:
            method = self._methods.get(message["ask"])
            if method is None:
                raise errors.ProgrammerError(f"a job cannot ask for {message['ask']}")
            value = method(*messages.unpack(message["args"]))
        except errors.GenericError as err:
            self._channel.send({"error": messages.pack_error(err)})
        except (ProcessGone, ChannelClosed, JobDetached):
            raise
        except Exception as err:  # noqa: BLE001 -- the entry point of a request
            _log.exception("internal error in the request %s of a job", message["ask"])
            error = errors.ProgrammerError(f"{type(err).__name__}: {err}")
            self._channel.send({"error": messages.pack_error(error)})
        else:
            self._channel.send({"ok": messages.pack(value)})

    def _stoppable(self, function: Callable[[], None]) -> Callable[[], None]:
        """Return a function which remembers the error by which the opcode has to stop."""

        def call() -> None:
            try:
                function()
            except errors.JobCanceled as err:
                self.stopped = err
                raise

        return call

    # -- job ----------------------------------------------------------------------------------

    def _submit_jobs(self, jobs: list[list[dict[str, Any]]]) -> list[Any]:
        return self._callbacks.submit_jobs([[opcodes.from_dict(op) for op in job] for job in jobs])

    def _feedback_so_far(self, lines: list[list[Any]]) -> None:
        """Add those of all log lines of the opcode which are not in its log."""
        place = 0
        for kind, message in lines:
            if place < len(self._logged) and self._logged[place] == (kind, message):
                place += 1
            else:
                self._callbacks.feedback(kind, message)

    # -- locks --------------------------------------------------------------------------------

    def _held(self, owner: Owner) -> list[list[Any]]:
        found = self._context.locks.list_locks(owner)
        return [[int(one.level), one.key, mode] for one, mode in found.items()]

    def _acquire(
        self,
        level: int,
        keys: list[str] | None,
        shared: bool,
        timeout_s: float | None,
        opportunistic: bool,
    ) -> dict[str, Any]:
        owner = self._callbacks.owner
        acquire = functools.partial(
            self._context.locks.acquire,
            owner,
            Level(level),
            keys,
            shared=shared,
            opportunistic=opportunistic,
            priority=self._callbacks.priority,
            cancelled=self._check_waiting,
        )
        taken = acquire(timeout_s=0)
        if taken is None and timeout_s != 0:
            self._callbacks.show_waiting()
            taken = acquire(timeout_s=timeout_s)
        return {"taken": taken, "held": self._held(owner)}

    def _check_waiting(self) -> None:
        self._check_alive()
        self._methods["job.check_cancel"]()

    def _update(self, pairs: list[list[Any]], timeout_s: float | None) -> dict[str, Any]:
        owner = self._callbacks.owner
        update = functools.partial(
            self._context.locks.update,
            owner,
            {LockId(Level(level), key): mode for level, key, mode in pairs},
            priority=self._callbacks.priority,
            cancelled=self._check_waiting,
        )
        done = update(timeout_s=0)
        if not done and timeout_s != 0:
            self._callbacks.show_waiting()
            done = update(timeout_s=timeout_s)
        return {"done": done, "held": self._held(owner)}

    def _opportunistic_union(self, pairs: list[list[Any]]) -> dict[str, Any]:
        owner = self._callbacks.owner
        taken = self._context.locks.opportunistic_union(
            owner,
            {LockId(Level(level), key): mode for level, key, mode in pairs},
            priority=self._callbacks.priority(),
        )
        return {
            "taken": [[int(one.level), one.key] for one in taken],
            "held": self._held(owner),
        }

    def _intersection(self, wanted: list[list[Any]]) -> dict[str, Any]:
        owner = self._callbacks.owner
        self._context.locks.intersection(
            owner, [LockId(Level(level), key) for level, key in wanted]
        )
        return {"held": self._held(owner)}

    # -- configuration ------------------------------------------------------------------------

    def _first_free(self, kind: str, values: list[Any], ec_id: str) -> int | None:
        keys = [_key(value) for value in values]
        found = self._context.config.reserved.first_free(kind, keys, ec_id)
        return None if found is None else keys.index(found)

    def _changes(self, serial_no: int | None) -> dict[str, Any]:
        data, keys = self._context.config.changed_since(serial_no or 0)
        return changes.describe(data, None if serial_no is None else keys)

    def _changes_meanwhile(self, change: Transaction, serial_no: int) -> dict[str, Any]:
        """Do the same inside a transaction, which keeps the store locked."""
        data = self._context.config.snapshot()
        return changes.describe(data, change.recent.between(serial_no, data.serial_no))

    def _has_commit(self, serial_no: int) -> bool:
        """Tell whether a change was committed whose acknowledgement was lost.

        :param serial_no: of the state which it made.
        """
        if serial_no > self._loaded:
            return False
        job_id = self._callbacks.owner.job_id
        for commit in self._context.config.commits():
            if commit.serial == serial_no:
                return commit.author.job_id == job_id
            if commit.serial < serial_no:
                break
        return True  # It is not in the history, which may have gaps, and the file is that new.

    def _transaction(self, author: list[Any]) -> dict[str, Any]:
        """Carry out a transaction; returns the answer to its last request."""
        config = self._context.config
        known = 0
        try:
            with config.acting_for(Author(*author)).transaction() as change:
                self._channel.send({"ok": {"serial_no": change.base_serial, "now": change.now}})
                known = self._operations(change)
        except _Abandoned:
            return {}
        data, keys = config.changed_since(known)
        return changes.describe(data, keys)

    def _operations(self, change: Transaction) -> int:
        """Carry out the operations of a transaction, until it is to be committed.

        :returns: serial number of the state which the process has.
        """
        while True:
            try:
                message = self._channel.receive(TRANSACTION_S)
            except messages.ChannelTimeout as err:
                raise ProcessGone(
                    f"its process did nothing for {TRANSACTION_S:g} s while it changed the"
                    " configuration, and was ended"
                ) from err
            if "tell" in message:
                self._note(message)
                continue
            if "ask" not in message:
                raise ChannelClosed("the process ended its opcode inside a transaction")
            name, args = message["ask"], messages.unpack(message["args"])
            if name == "config.commit":
                return int(args[0])
            if name == "config.abandon":
                raise _Abandoned
            try:
                if name == "config.data":
                    value = changes.describe(change.data, change.changed_since(args[0]))
                elif name == "config.changes":
                    value = self._changes_meanwhile(change, *args)
                elif name.removeprefix("change.") in OPERATIONS:
                    value = getattr(change, name.removeprefix("change."))(*args)
                elif name.startswith(("reservations.", "job.")):
                    value = self._methods[name](*args)
                else:
                    raise errors.ProgrammerError(f"{name} is not possible inside a transaction")
            except errors.GenericError as err:
                self._channel.send({"error": messages.pack_error(err)})
            else:
                self._channel.send({"ok": messages.pack(value)})


def _key(value: Any) -> Any:
    """Return a reserved value as it is kept: pairs are tuples."""
    return tuple(value) if isinstance(value, list) else value


def log_of(entries: Sequence[tuple[Any, ...]]) -> list[tuple[str, Any]]:
    """Return type and message of those entries of an opcode's log which a process can send."""
    return [
        (kind, message) if kind != job_const.LOG_MESSAGE else (kind, str(message))
        for _serial, _time, kind, message in entries
    ]
