"""The store of the configuration: its present state, its file, and how changes become durable.

Readers use the present state, an immutable object, and never wait. Changes are serialised: each
transaction begins with the state in which the one before ended. Commits are shared: while one
commit writes and distributes, later transactions wait in a queue, and the next commit takes all of
them with one write, one flush and one message per master candidate.

How the commits reach the other nodes, and what happens to nodes which lag, is in :mod:`.copies`.

Promises:

* A transaction returns after its change is on the local disk and on a majority of the master
  candidates which are online. The state which readers see is on the local disk.
* When the file cannot be written, all transactions of that commit, and those which were built upon
  them, fail, and the state before them remains. When too few candidates have the change, the
  transactions fail, too, but the change stays: it is on the local disk and cannot be taken back
  safely; the message says so.
* The costs of a commit depend on the number of changed objects: every object keeps its text until
  it changes, and values which must be unique are looked up in an index.
* Every commit is in the history (:mod:`.history`), unless the history could not be written; then
  the log says so, and the history has a gap.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from ganeti import errors
from ganeti.config.copies import PATIENCE_S, NodeCopies
from ganeti.config.draft import Draft
from ganeti.config.history import Author, History, commit_of
from ganeti.config.index import Index
from ganeti.config.local_file import LocalFile
from ganeti.config.recent_changes import RecentChanges
from ganeti.config.reservations import Reservations
from ganeti.config.sending import Distribute, DistributionFailure
from ganeti.config.text import ConfigText
from ganeti.config.transaction import Transaction
from ganeti.objects import ConfigData
from ganeti.utils import clock, metrics

_COMMITS = metrics.Histogram(
    "ganeti_master_config_commit_seconds",
    "Time of a commit of the configuration, until it is acknowledged or has failed",
)
_FAILED_COMMITS = metrics.Counter(
    "ganeti_master_config_commits_failed",
    "Commits of the configuration which were not acknowledged",
)

log = logging.getLogger(__name__)

OnCommit = Callable[[ConfigData, ConfigData, set[tuple[str, str]]], None]


class _Ticket:
    """A transaction which waits for its commit."""

    __slots__ = ("after", "author", "before", "changed", "done", "error")

    def __init__(
        self, before: ConfigData, after: ConfigData, changed: set[tuple[str, str]], author: Author
    ) -> None:
        self.before = before
        self.after = after
        self.changed = changed
        self.author = author
        self.done = False
        self.error: str | None = None


_NOBODY: Final = Author()


class ConfigStore:
    """Owner of the configuration file. Thread-safe."""

    def __init__(
        self,
        file: LocalFile,
        data: ConfigData,
        *,
        distribute: Distribute | None = None,
        now: Callable[[], float] = clock.now,
        catch_up_s: tuple[float, float] | None = None,
        patience_s: float = PATIENCE_S,
        history: History | None = None,
    ) -> None:
        """:param data: the content of the file.
        :param catch_up_s: as in :class:`.NodeCopies`, like ``distribute`` and ``patience_s``.
        :param history: the history, already open.
        """
        self._file = file
        self._now = now
        # Guards the head and the queue of tickets; held while a transaction is made.
        self._mutex = threading.Lock()
        # Held by the thread which commits, for itself and all others in the queue.
        self._committing = threading.Lock()
        self._owner: int | None = None
        self._committed = data
        self._head = data
        self._queue: list[_Ticket] = []
        self._stale: set[tuple[str, str]] = set()
        self._text = ConfigText(data)
        self._history = history
        self._index = Index(data)
        # Guarded by the mutex.
        self._recent = RecentChanges()
        #: What the other nodes have, and how they get the newest.
        self.copies = NodeCopies(
            data,
            self._committing,
            self.snapshot,
            lambda present: self._text.render(present, ()),
            distribute=distribute,
            catch_up_s=catch_up_s,
            patience_s=patience_s,
        )
        self.reservations = Reservations(self._holds, self.snapshot)
        #: Called for every commit with the states before and after and the set of (kind, UUID) of
        #: the changed objects. It must be quick.
        self.on_commit: OnCommit | None = None
        #: Called when a commit has ended: with None if a majority has it, or with the reason.
        self.on_judged: Callable[[str | None], None] = lambda _error: None

    def snapshot(self) -> ConfigData:
        """Return the present state, an object which never changes and is on the local disk."""
        return self._committed

    def changed_since(self, serial_no: int) -> tuple[ConfigData, frozenset[tuple[str, str]] | None]:
        """Return the present state, and what differs in it from an earlier one.

        :returns: the state, and kind and UUID of the objects; None instead of these when that is
            too long ago.
        """
        with self._mutex:
            data = self._committed
            return data, self._recent.between(serial_no, data.serial_no)

    @property
    def history(self) -> History | None:
        """The history of the changes; None if none is kept."""
        return self._history

    def _holds(self, kind: str, value: object) -> bool:
        """Tell whether the newest state, committed or not, has a value; see :class:`Index`."""
        return self._index.has(kind, value)

    @contextlib.contextmanager
    def transaction(self, author: Author = _NOBODY) -> Iterator[Transaction]:
        """Change the configuration; the block must not wait for anything.

        The end of the block commits; it returns when the change is acknowledged. After an exception
        in the block nothing is changed.

        :param author: the author of the change, for the history.
        :raises ConfigurationError: the change could not be written, or not be sent to enough
            candidates.
        :raises ProgrammerError: the thread is in another transaction already.
        """
        me = threading.get_ident()
        if self._owner == me:
            raise errors.ProgrammerError(
                "a transaction of the configuration began inside another one"
            )
        ticket = None
        with self._mutex:
            self._owner = me
            draft = Draft(self._head, self._index, self.reservations, self._recent, self._now)
            try:
                yield Transaction(draft)
            except BaseException:
                draft.abandon()
                raise
            finally:
                self._owner = None
            if draft.changed:
                before, self._head = self._head, draft.finish()
                ticket = _Ticket(before, self._head, draft.changed, author)
                self._recent.add(self._head.serial_no, draft.changed)
                self._queue.append(ticket)
        if ticket is not None:
            self._commit(ticket)

    def adopt_copies(self) -> None:
        """Note at the start that the candidates have the file of this node already.

        Otherwise the first commit would send the whole file to all of them. The caller has compared
        the digests of the copies, and names candidates with another file with
        :meth:`.NodeCopies.expect_lagging`; they get the whole file. The ssconf values: see
        :meth:`.NodeCopies.adopt`.
        """
        with self._committing:
            data = self._committed
            text = self._text.render(data, ())
            self.copies.adopt(data, text if self._file.adopt(text) else None)

    def redistribute(self) -> list[DistributionFailure]:
        """Send the configuration and all ssconf values to all nodes again.

        :returns: the failures; the caller decides whether they are an error.
        """
        with self._committing:
            data = self._committed
            text = self._text.render(data, ())
            self._file.forget()
            return self.copies.send_everything(data, text)

    def _commit(self, ticket: _Ticket) -> None:
        with self._committing:
            if not ticket.done:
                self._commit_queue()
        if ticket.error is not None:
            raise errors.ConfigurationError(ticket.error)

    def _commit_queue(self) -> None:
        """Write and send the state which all transactions in the queue have made together."""
        with self._mutex:
            tickets, self._queue = self._queue, []
            data = self._head
        for ticket in tickets:
            self._stale |= ticket.changed
        error: str | None = "the configuration could not be written"
        written = noted = False
        begun = time.monotonic()
        try:
            text = self._text.render(data, self._stale)
            noted = self._note_history(tickets)
            try:
                self._file.write(text)
            except OSError as err:
                error = (
                    f"cannot write {self._file.path}: {err.strerror or err}. Nothing was changed."
                )
                return
            written = True
            before, self._committed = self._committed, data
            changed, self._stale = self._stale, set()
            self.copies.note_change(before, data, changed)
            if self.on_commit is not None:
                self.on_commit(before, data, changed)
            error = "the configuration was written here, but could not be distributed"
            addition = self._history.addition if self._history is not None and noted else None
            error = self.copies.judge(data, self.copies.send(data, text, history=addition))
        finally:
            with self._mutex:
                if not written:
                    # Transactions which were built upon the lost state are lost with it.
                    tickets += self._queue
                    self._queue = []
                    self._head = self._committed
                    self._recent.forget_after(self._head.serial_no)
                    self._index = Index(self._committed)
            if noted and not written:
                self._forget_history()
            _COMMITS.observe(time.monotonic() - begun)
            if error is not None:
                _FAILED_COMMITS.add()
            self.on_judged(error)
            for ticket in tickets:
                ticket.error = error
                ticket.done = True

    def _note_history(self, tickets: Sequence[_Ticket]) -> bool:
        """Append commits to the history; return whether that succeeded."""
        if self._history is None:
            return False
        try:
            self._history.append(
                [
                    commit_of(ticket.before, ticket.after, ticket.changed, ticket.author)
                    for ticket in tickets
                ]
            )
        except OSError as err:
            log.warning("this change is missing in the history of the configuration: %s", err)
            return False
        return True

    def _forget_history(self) -> None:
        assert self._history is not None
        try:
            self._history.take_back()
        except OSError as err:
            log.warning("the history of the configuration has a change which was not made: %s", err)
