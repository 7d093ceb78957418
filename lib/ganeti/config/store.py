"""The store of the configuration: its present state, its file, and how changes become durable.

Readers use the present state, an immutable object, and never wait. Changes are serialised: each
transaction begins with the state in which the one before ended. Commits are shared: while one
commit writes and distributes, later transactions wait in a queue, and the next commit takes all of
them with one write, one flush and one message per master candidate.

Promises:

* A transaction returns after its change is on the local disk and on a majority of the master
  candidates which are online. The state which readers see is on the local disk.
* When the file cannot be written, all transactions of that commit, and those which were built upon
  them, fail, and the state before them remains. When too few candidates have the change, the
  transactions fail, too, but the change stays: it is on the local disk and cannot be taken back
  safely; the message says so.
* A thread sends the present state again to lagging nodes, until they have it; the thread runs only
  while a node is lagging. Commits do not wait for a node which did not accept the last message, as
  long as the other candidates are a majority. A node which hangs delays one commit, by
  :data:`PATIENCE_S` after the majority has the change; its message goes on in the background.
* The costs of a commit depend on the number of changed objects: every object keeps its text until
  it changes, values which must be unique are looked up in an index, and candidates get the
  difference between the new file and the one which they have.
* Every commit is in the history (:mod:`.history`), unless the history could not be written; then
  the log says so, and the history has a gap.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

from ganeti import errors
from ganeti.config import role, ssconf
from ganeti.config.history import Author, History, commit_of
from ganeti.config.index import Index
from ganeti.config.local import Changer, LocalFile, Writer
from ganeti.config.quorum import CommitQuorum, Record, online_candidates
from ganeti.config.recent import RecentChanges
from ganeti.config.reservations import Reservations
from ganeti.config.sending import (
    CONFIG,
    SSCONF,
    Distribute,
    Distribution,
    DistributionFailure,
    Sending,
    Threads,
    UnderWay,
)
from ganeti.config.text import ConfigText, Pieces
from ganeti.config.transaction import Transaction
from ganeti.configfile.files import write_config_file
from ganeti.constants.ssconf import INSTANCE_LIST
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

# Kinds of objects which occur in no ssconf value.
_NOT_IN_SSCONF: Final = frozenset({"disks", "filters", "documents"})

# Pauses before lagging nodes are tried again: the first, and the longest, in seconds. Each pause is
# twice as long as the one before.
CATCH_UP_S: Final = (1.0, 30.0)

#: Seconds for which a commit waits for further nodes after a majority of the candidates has it.
PATIENCE_S: Final = 1.0

# When the names of all instances are more bytes than this for all nodes together, only the
# candidates get them with the commit which changes them; also after a start of the master.
_NAMES_BYTES: Final = 1 << 20

# The other nodes get them after so many seconds, and later if sending them takes long: it may take
# one part in so many of the time.
NAMES_S: Final = 2.0
_NAMES_SHARE: Final = 20

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
        path: str,
        data: ConfigData,
        *,
        distribute: Distribute | None = None,
        now: Callable[[], float] = clock.now,
        write: Writer = write_config_file,
        change: Changer | None = None,
        change_from_bytes: int | None = None,
        catch_up_s: tuple[float, float] | None = None,
        patience_s: float = PATIENCE_S,
        history: History | None = None,
    ) -> None:
        """:param data: the content of the file.
        :param distribute: sends a message to other nodes; None while there are none.
        :param write: writes text to the file, atomically and durably.
        :param change: makes a file from the one before it; None writes each file as a whole.
        :param change_from_bytes: smaller files are written as a whole in any case; None for
            :data:`ganeti.configfile.files.JOURNAL_FROM_BYTES`.
        :param catch_up_s: first and longest pause in seconds before lagging nodes are tried again;
            with None, they are tried with the next change, and commits wait for all nodes.
        :param patience_s: see :data:`PATIENCE_S`.
        :param history: the history, already open.
        """
        self._file = LocalFile(path, write, change, change_from_bytes)
        self._distribute = distribute
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
        # The text which the candidates got last, if it is also the text which was written last.
        self._sent: Pieces | None = None
        self._index = Index(data)
        self._instance_names = ssconf.InstanceList(data)
        self._ssconf: dict[str, str] | None = None
        self._ssconf_sent: dict[str, str] | None = None
        # The nodes to which something is sent in the background. They get nothing else meanwhile,
        # so that the newest state arrives last. Its lock is taken after _committing.
        self._under_way = UnderWay()
        self._threads = Threads("config-send")
        self._patience_s = patience_s
        # Guarded by _committing.
        self._quorum = CommitQuorum()
        # What each lagging node has missed, and the thread which tries again; guarded by
        # _committing.
        self._lagging: dict[str, set[str]] = {}
        # The lagging nodes which did not accept the last message to them.
        self._unresponsive: set[str] = set()
        self._catch_up_s = catch_up_s
        self._catching_up: threading.Thread | None = None
        # The nodes which get ssconf values later, and the thread which sends them; guarded by
        # _committing.
        self._uninformed: set[str] = set()
        self._informing: threading.Thread | None = None
        # Guarded by the mutex.
        self._recent = RecentChanges()
        self.reservations = Reservations(self._holds, self.snapshot)
        #: Called for every commit with the states before and after and the set of (kind, UUID) of
        #: the changed objects. It must be quick.
        self.on_commit: OnCommit | None = None

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

    def use_distribution(self, distribute: Distribute) -> None:
        """Set the function which sends messages to other nodes."""
        self._distribute = distribute

    def use_witness(self, record: Record) -> None:
        """Set the function which informs the witness of a state; see :mod:`.quorum`."""
        self._quorum.use_witness(record)

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
            change = Transaction(self._head, self._index, self.reservations, self._now)
            change.recent = self._recent
            try:
                yield change
            except BaseException:
                change.abandon()
                raise
            finally:
                self._owner = None
            if change.changed:
                before, self._head = self._head, change.finish()
                ticket = _Ticket(before, self._head, change.changed, author)
                self._recent.add(self._head.serial_no, change.changed)
                self._queue.append(ticket)
        if ticket is not None:
            self._commit(ticket)

    def lagging(self) -> dict[str, frozenset[str]]:
        """Return the lagging nodes by UUID, each with :data:`CONFIG` or :data:`SSCONF` or both."""
        with self._committing:
            return {uuid: frozenset(what) for uuid, what in self._lagging.items()}

    def is_alone(self) -> bool:
        """Tell whether the witness knows that there is only one candidate now."""
        return self._quorum.is_alone(self._committed)

    def require_committed(self) -> None:
        """Check that a majority of the candidates has the present configuration.

        A change which too few candidates got stays in the present state. So who relies on a record
        which it finds there, and did not commit itself, asks here first.

        :raises ConfigurationError: too few candidates have it.
        """
        with self._committing:
            online = online_candidates(self._committed)
            have = {uuid for uuid in online if CONFIG not in self._lagging.get(uuid, ())}
            committed = self._quorum.reached(self._committed, have)
        if not committed:
            raise errors.ConfigurationError(
                f"only {len(have)} of {len(online)} master candidates have the present"
                " configuration. Mark nodes as offline which cannot be reached."
            )

    def expect_lagging(
        self,
        candidates: Collection[str],
        nodes: Collection[str],
        unresponsive: Collection[str] = (),
    ) -> None:
        """Note that nodes lack the present configuration or ssconf values since an earlier master.

        They are brought up to date in the background.

        :param candidates: UUIDs of master candidates which lack the configuration.
        :param nodes: UUIDs of nodes which lack ssconf values.
        :param unresponsive: UUIDs of those among them which have just been asked something and have
            not answered, so that no commit waits for them.
        """
        with self._committing:
            for uuids, what in ((candidates, CONFIG), (nodes, SSCONF)):
                for uuid in uuids:
                    self._lagging.setdefault(uuid, set()).add(what)
            if self._ssconf is None:
                self._ssconf = self._ssconf_values(self._committed)
            self._unresponsive.update(unresponsive)
            self._forget_lagging(self._committed)
            self._start_catching_up()

    def adopt_copies(self) -> None:
        """Note at the start that the candidates have the file of this node already.

        Otherwise the first commit would send the whole file to all of them. The caller has compared
        the digests of the copies, and names candidates with another file with
        :meth:`expect_lagging`; they get the whole file. The ssconf values, which an earlier master
        may not have sent to all nodes, follow in the background when they are more than
        :data:`_NAMES_BYTES` for all nodes together, otherwise with the first commit.
        """
        with self._committing:
            data = self._committed
            text = self._text.render(data, ())
            if self._file.adopt(text):
                self._sent = text
            online = [uuid for uuid, node in data.nodes.items() if not node.offline]
            values = self._ssconf_values(data)
            if self._catch_up_s is not None and self._is_much(values, online):
                self._ssconf = self._ssconf_sent = values
                self._inform_later(online)

    def inform_others(self) -> bool:
        """Send the ssconf values to the nodes which did not get them with a commit.

        :returns: whether there were such nodes.
        """
        with self._committing:
            data = self._committed
            under_way = self._under_way.nodes()
            targets = tuple(
                uuid
                for uuid in sorted(self._uninformed - under_way)
                if uuid in data.nodes and not data.nodes[uuid].offline
            )
            self._uninformed &= under_way
            if not targets or self._distribute is None:
                return False
            if self._ssconf is None:
                self._ssconf = self._ssconf_values(data)
            message = Distribution(data, (), (), self._ssconf, targets)
            # They get nothing else meanwhile, so that the newest names arrive last.
            self._under_way.add(targets)
        try:
            failures = self._distribute(message)
        finally:
            self._under_way.remove(targets)
        with self._committing:
            for failure in failures:
                self._lagging.setdefault(failure.node_uuid, set()).add(SSCONF)
                self._unresponsive.add(failure.node_uuid)
            self._start_catching_up()
        return True

    @staticmethod
    def _is_much(values: dict[str, str], nodes: Collection[str]) -> bool:
        return sum(map(len, values.values())) * len(nodes) > _NAMES_BYTES

    def _inform_later(self, nodes: Collection[str]) -> None:
        """Let the thread send the ssconf values to these nodes."""
        self._uninformed.update(nodes)
        if self._informing is None:
            self._informing = threading.Thread(
                target=self._keep_informing, name="config-ssconf", daemon=True
            )
            self._informing.start()

    def _keep_informing(self) -> None:
        never = threading.Event()
        pause_s = NAMES_S
        while True:
            never.wait(pause_s)
            begun = time.monotonic()
            try:
                sent = self.inform_others()
            except errors.GenericError as err:
                log.warning("cannot send the ssconf values to all nodes: %s", err)
                sent = True
            pause_s = max(NAMES_S, _NAMES_SHARE * (time.monotonic() - begun))
            with self._committing:
                if not sent and not self._uninformed:
                    self._informing = None
                    return

    def _who_gets(
        self, data: ConfigData, wanted: dict[str, str] | None, online: tuple[str, ...]
    ) -> tuple[str, ...]:
        """Return the nodes which get ssconf values with this commit; note which get names later."""
        if wanted is None:
            return ()
        if wanted.keys() == {INSTANCE_LIST} and self._catch_up_s is not None:
            others = [
                uuid
                for uuid in online
                if uuid != data.cluster.master_node and not data.nodes[uuid].master_candidate
            ]
            if self._is_much(wanted, others):
                self._inform_later(others)
                later = set(others)
                return tuple(uuid for uuid in online if uuid not in later)
        else:
            self._uninformed.difference_update(online)
        return online

    def catch_up(self) -> bool:
        """Send the present state to the lagging nodes again.

        :returns: whether no node is lagging any more.
        """
        with self._committing:
            data = self._committed
            self._forget_lagging(data)
            if not self._lagging or self._distribute is None:
                return True
            under_way = self._under_way.nodes()
            targets = [uuid for uuid in self._lagging if uuid not in under_way]
            if not targets:
                return False
            candidates = tuple(uuid for uuid in targets if CONFIG in self._lagging[uuid])
            nodes = tuple(uuid for uuid in targets if SSCONF in self._lagging[uuid])
            text = self._text.render(data, ())
            message = Distribution(data, text, candidates, self._ssconf if nodes else None, nodes)
            self._under_way.add(targets)
        # Others commit while this waits for nodes which may not answer.
        try:
            failures = self._distribute(message)
        finally:
            self._under_way.remove(targets)
        return self._note_late(data, set(candidates), set(nodes), failures)

    def _note_late(
        self,
        data: ConfigData,
        candidates: Collection[str],
        nodes: Collection[str],
        failures: Sequence[DistributionFailure],
    ) -> bool:
        """Note the result of a message which was sent in the background.

        :param data: the state which was sent.
        :returns: whether no node is lagging any more.
        """
        with self._committing:
            if self._committed is data:
                self._note_lagging(set(candidates), set(nodes), failures)
            # Otherwise the nodes have an older state in any case; the next message has the newest.
            self._note_unresponsive({*candidates, *nodes}, failures)
            if not self._lagging:
                log.info("all nodes have the present configuration again")
            return not self._lagging

    def redistribute(self) -> list[DistributionFailure]:
        """Send the configuration and all ssconf values to all nodes again.

        :returns: the failures; the caller decides whether they are an error.
        """
        with self._committing:
            data = self._committed
            text = self._text.render(data, ())
            self._ssconf_sent = None
            # The whole file, which is right even on a node where the file was changed by hand.
            self._sent = None
            self._file.forget()
            return self._send(data, text, everybody=True)

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
            self._note_ssconf(before, data)
            changed, self._stale = self._stale, set()
            if self.on_commit is not None:
                self.on_commit(before, data, changed)
            error = "the configuration was written here, but could not be distributed"
            error = self._judge(data, self._send(data, text))
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

    def _note_ssconf(self, before: ConfigData, data: ConfigData) -> None:
        """Derive the ssconf values again if something changed which occurs in them."""
        if not _ssconf_differs(before, data, self._stale):
            return
        others = False
        for kind, uuid in self._stale:
            if kind == "instances":
                self._instance_names.replace(before.instances.get(uuid), data.instances.get(uuid))
            elif kind not in _NOT_IN_SSCONF:
                others = True
        if self._distribute is None:
            self._ssconf = None
        elif self._ssconf is None or others:
            self._ssconf = self._ssconf_values(data)
        else:
            self._ssconf = {**self._ssconf, INSTANCE_LIST: self._instance_names.text()}

    def _ssconf_values(self, data: ConfigData) -> dict[str, str]:
        return ssconf.values(data, self._instance_names)

    def _send(
        self,
        data: ConfigData,
        text: Pieces,
        *,
        everybody: bool = False,
    ) -> list[DistributionFailure]:
        """Send a state to the nodes.

        :param everybody: send to lagging and unresponsive nodes, too.
        :returns: the nodes which do not have the state, including those to which it was not sent.
        """
        base, self._sent = self._sent, text
        if self._distribute is None:
            return []
        if self._ssconf is None:
            self._ssconf = self._ssconf_values(data)
        wanted = _to_send(self._ssconf_sent, self._ssconf)
        self._forget_lagging(data)
        online = tuple(uuid for uuid, node in data.nodes.items() if not node.offline)
        candidates = tuple(
            uuid
            for uuid in online
            if data.nodes[uuid].master_candidate and uuid != data.cluster.master_node
        )
        if not candidates and wanted is None:
            return []
        skip = self._left_out(candidates, everybody=everybody)
        if any(SSCONF in what for uuid, what in self._lagging.items() if uuid not in skip):
            wanted = self._ssconf
        informed = self._who_gets(data, wanted, online)
        nodes = tuple(uuid for uuid in informed if uuid not in skip)
        sending = Sending(data, tuple(uuid for uuid in candidates if uuid not in skip), nodes)
        message = Distribution(
            data,
            text,
            sending.candidates,
            wanted,
            nodes if wanted is not None else tuple(uuid for uuid in online if uuid not in skip),
            base,
            sending.accepted,
        )
        failures = self._deliver(self._distribute, message, sending)
        for failure in failures:
            node = data.nodes.get(failure.node_uuid)
            log.warning(
                "node %s did not take the %s: %s",
                failure.node_uuid if node is None else node.name,
                failure.what,
                failure.message,
            )
        # Without the thread, a node which missed a value gets all of them with the next change.
        missed = any(failure.what == SSCONF for failure in failures)
        self._ssconf_sent = None if missed and self._catch_up_s is None else self._ssconf
        asked = set(candidates), set(informed)
        left_out = [
            DistributionFailure(uuid, what, "it did not answer before")
            for uuids, what in zip(asked, (CONFIG, SSCONF), strict=True)
            for uuid in sorted(skip & uuids)
        ]
        self._note_lagging(*asked, [*failures, *left_out])
        self._note_unresponsive(set().union(*asked) - skip, failures)
        failures += left_out
        self._start_catching_up()
        return failures

    def _deliver(
        self, distribute: Distribute, message: Distribution, sending: Sending
    ) -> list[DistributionFailure]:
        """Send a message; wait until a majority has it, and somewhat longer for the other nodes.

        :returns: the nodes which did not accept it. Those which have not answered yet are among
            them; their message goes on in the background, and :meth:`_note_late` gets its result.
        """
        if self._catch_up_s is None or sending.all_needed():
            return list(distribute(message))

        def send() -> None:
            failures: Sequence[DistributionFailure] = ()
            error: BaseException | None = None
            try:
                failures = distribute(message)
            # The thread which commits raises it.
            except BaseException as err:  # noqa: BLE001
                error = err
            late = sending.end(failures, error)
            if late is None:
                return
            self._under_way.remove(late)
            if error is not None:
                log.error("cannot send the configuration to all nodes: %s", error)
                return
            self._note_late(
                message.data,
                late & set(sending.candidates),
                late & set(sending.nodes),
                [failure for failure in failures if failure.node_uuid in late],
            )

        self._threads.run(send)
        instead = None
        if self._quorum.can_ask(message.data):
            instead = lambda: self._quorum.inform(message.data)  # noqa: E731
        return sending.wait(self._patience_s, self._under_way, instead)

    def _left_out(self, candidates: Sequence[str], *, everybody: bool) -> frozenset[str]:
        """Return the nodes to which a commit is not sent, because the thread tries them again.

        These are the unresponsive nodes, and those to which something is sent in the background. No
        node is left out if the others are no majority of the candidates; then this waits until the
        messages in the background have ended.
        """
        skip = frozenset(self._unresponsive) | self._under_way.nodes()
        others = 1 + sum(uuid not in skip for uuid in candidates)
        needed = role.majority(1 + len(candidates))
        if self._quorum.can_ask(self._committed) and not self._quorum.failure:
            others, needed = others + 1, role.majority(2 + len(candidates))
        if everybody or self._catch_up_s is None or others < needed:
            self._under_way.wait()
            return frozenset()
        return skip

    def _forget_lagging(self, data: ConfigData) -> None:
        """Forget nodes which were removed or are offline, and configurations for non-candidates."""
        for uuid, what in list(self._lagging.items()):
            node = data.nodes.get(uuid)
            if node is None or node.offline:
                del self._lagging[uuid]
            elif not node.master_candidate:
                what.discard(CONFIG)
                if not what:
                    del self._lagging[uuid]
        self._unresponsive &= set(self._lagging)

    def _note_lagging(
        self,
        candidates: set[str],
        nodes: set[str],
        failures: Sequence[DistributionFailure],
    ) -> None:
        """Note which nodes are lagging after configuration and ssconf were sent to these nodes."""
        failed = {(failure.node_uuid, failure.what) for failure in failures}
        for asked, what in ((candidates, CONFIG), (nodes, SSCONF)):
            for uuid in asked:
                if (uuid, what) in failed:
                    self._lagging.setdefault(uuid, set()).add(what)
                elif uuid in self._lagging:
                    self._lagging[uuid].discard(what)
        self._lagging = {uuid: what for uuid, what in self._lagging.items() if what}

    def _note_unresponsive(self, asked: set[str], failures: Sequence[DistributionFailure]) -> None:
        """Note which nodes are unresponsive after something was sent to ``asked``."""
        failed = {failure.node_uuid for failure in failures}
        self._unresponsive = ((self._unresponsive - asked) | failed) & set(self._lagging)

    def _start_catching_up(self) -> None:
        if self._lagging and self._catch_up_s is not None and self._catching_up is None:
            self._catching_up = threading.Thread(
                target=self._keep_trying, name="config-catch-up", daemon=True
            )
            self._catching_up.start()

    def _keep_trying(self) -> None:
        """Send to lagging nodes until there are none. The next failure starts a new thread."""
        first_s, longest_s = self._catch_up_s or CATCH_UP_S
        pause_s = first_s
        never = threading.Event()
        while True:
            never.wait(pause_s)
            pause_s = min(2 * pause_s, longest_s)
            try:
                self.catch_up()
            except errors.GenericError as err:
                log.warning("cannot bring nodes up to date: %s", err)
            with self._committing:
                if not self._lagging:
                    self._catching_up = None
                    return
                if self._unresponsive != set(self._lagging):
                    # A node answers, but a commit has changed the state meanwhile.
                    pause_s = first_s

    def _judge(self, data: ConfigData, failures: Sequence[DistributionFailure]) -> str | None:
        """Return the error for the submitters; None when a majority has the change."""
        online = online_candidates(data)
        lost = {
            failure.node_uuid: failure.message
            for failure in failures
            if failure.what == CONFIG and failure.node_uuid in online
        }
        have = len(online) - len(lost)
        if self._quorum.reached(data, set(online) - set(lost)):
            return None
        reasons = "; ".join(
            f"{data.nodes[uuid].name}: {message}" for uuid, message in sorted(lost.items())
        )
        if data.cluster.witness:
            return (
                f"the configuration was changed on the master, but only {have} of {len(online)}"
                f" master candidates have it"
                + (f" ({reasons})" if reasons else "")
                + f", and the witness does not stand for the other one:"
                f" {self._quorum.failure or 'it counts for two candidates only'}. If the witness is"
                " lost for good, use 'gnt-cluster modify --witness=none'."
            )
        return (
            f"the configuration was changed on the master, but only {have} of {len(online)} master "
            f"candidates have it ({reasons}). Mark nodes as offline which cannot be reached."
        )


def _to_send(sent: dict[str, str] | None, now: dict[str, str]) -> dict[str, str] | None:
    """Return the values to send to nodes which have the values of the last message; None for none.

    The names of instances change often, mostly without other changes. In other cases all values are
    sent, which also repairs files which were changed by hand, and completes a node which was added.
    """
    if sent == now:
        return None
    if sent is not None and {**sent, INSTANCE_LIST: now[INSTANCE_LIST]} == now:
        return {INSTANCE_LIST: now[INSTANCE_LIST]}
    return now


def _ssconf_differs(
    before: ConfigData,
    data: ConfigData,
    changed: set[tuple[str, str]],
) -> bool:
    for kind, uuid in changed:
        if kind == "instances":
            old, new = before.instances.get(uuid), data.instances.get(uuid)
            if old is None or new is None or old.name != new.name:
                return True
        elif kind not in _NOT_IN_SSCONF:
            return True
    return False
