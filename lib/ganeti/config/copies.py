"""The copies of the configuration on other nodes, and how they get the newest state.

:class:`NodeCopies` sends each commit of :class:`ganeti.config.store.ConfigStore` to the master
candidates, and the ssconf values to all nodes. It decides whether enough candidates have a commit.

Promises:

* A thread sends the present state again to lagging nodes, until they have it; the thread runs only
  while a node is lagging. Commits do not wait for a node which did not accept the last message, as
  long as the other candidates are a majority. A node which hangs delays one commit, by
  :data:`PATIENCE_S` after the majority has the change; its message continues in the background.
* Candidates get the difference between the new file and the one which they have.
* In a large cluster, the nodes which are not candidates get the names of instances some seconds
  later, and together.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from ganeti import errors
from ganeti.config import ssconf
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
from ganeti.config.text import Pieces
from ganeti.configfile.history_files import Addition
from ganeti.constants.ssconf import INSTANCE_LIST
from ganeti.objects import ConfigData
from ganeti.replication.majority import Tally
from ganeti.replication.peer import CopyState, Peer
from ganeti.replication.quorum import (
    CommitQuorum,
    Record,
    online_candidates,
    other_candidates,
)
from ganeti.utils import shortage

log = logging.getLogger(__name__)

# Pauses before lagging nodes are tried again: the first, and the longest, in seconds. Each pause is
# twice as long as the one before.
CATCH_UP_S: Final = (1.0, 30.0)

#: Seconds for which a commit waits for further nodes after a majority of the candidates has it.
PATIENCE_S: Final = 1.0

# When the names of all instances are more bytes than this for all nodes together, only the
# candidates get them with the commit which changes them; also after a start of the master.
_NAMES_BYTES: Final = 1 << 20

# Seconds until the other nodes get them. If the last message with them took long, the pause is
# this multiple of its duration.
NAMES_S: Final = 2.0
_NAMES_SHARE: Final = 20


class _LaggingNode(Peer):
    """A node which lacks something.

    :ivar lacks: :data:`CONFIG` or :data:`SSCONF` or both.
    """

    def __init__(self, uuid: str) -> None:
        super().__init__(uuid, CopyState.CURRENT)
        self.lacks: set[str] = set()

    def miss(self, what: str) -> None:
        """Note that the node does not have the present state of something."""
        self.lacks.add(what)
        self.missed()


class NodeCopies:
    """Sends the states of a configuration to the other nodes. Thread-safe.

    The methods which say so need the lock ``committing``; the others take it.
    """

    def __init__(
        self,
        data: ConfigData,
        committing: threading.Lock,
        present: Callable[[], ConfigData],
        text_of: Callable[[ConfigData], Pieces],
        *,
        distribute: Distribute | None = None,
        catch_up_s: tuple[float, float] | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """:param data: the present state.
        :param committing: the lock under which commits are made.
        :param present: returns the present state; with the lock, it does not change.
        :param text_of: returns the text of the present state; needs the lock.
        :param distribute: sends a message to other nodes; None while there are none.
        :param catch_up_s: first and longest pause in seconds before lagging nodes are tried again;
            with None, they are tried with the next change, and commits wait for all nodes.
        :param patience_s: see :data:`PATIENCE_S`.
        """
        self._committing = committing
        self._present = present
        self._text_of = text_of
        self._distribute = distribute
        # The text which the candidates got last, if it is also the text which was written last.
        self._sent: Pieces | None = None
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
        #: Called with the UUIDs of candidates which have a state, but lack records of the history.
        self.note_incomplete: Callable[[frozenset[str]], None] = lambda _uuids: None
        # The lagging nodes by UUID, and the thread which tries again; guarded by _committing.
        self._lagging: dict[str, _LaggingNode] = {}
        self._catch_up_s = catch_up_s
        self._catching_up: threading.Thread | None = None
        self._returned = threading.Event()
        # The nodes which get ssconf values later, and the thread which sends them; guarded by
        # _committing.
        self._uninformed: set[str] = set()
        self._informing: threading.Thread | None = None

    def use_distribution(self, distribute: Distribute) -> None:
        """Set the function which sends messages to other nodes."""
        self._distribute = distribute

    def use_witness(self, record: Record) -> None:
        """Set the function which informs the witness of a state; see :mod:`.quorum`."""
        self._quorum.use_witness(record)

    def lagging(self) -> dict[str, frozenset[str]]:
        """Return the lagging nodes by UUID, each with :data:`CONFIG` or :data:`SSCONF` or both."""
        with self._committing:
            return {uuid: frozenset(node.lacks) for uuid, node in self._lagging.items()}

    def unresponsive(self) -> list[str]:
        """Return the UUIDs of the candidates to which the last message failed."""
        with self._committing:
            candidates = other_candidates(self._present())
            return [uuid for uuid in candidates if not self._responds(uuid)]

    def try_again(self, uuids: Collection[str]) -> None:
        """Send to lagging nodes soon, and not after the rest of a pause.

        :param uuids: those which answer again.
        """
        with self._committing:
            if any(uuid in self._lagging for uuid in uuids):
                self._returned.set()
                self._start_catching_up()

    def is_alone(self) -> bool:
        """Tell whether the witness knows that there is only one candidate now."""
        return self._quorum.is_alone(self._present())

    def require_committed(self) -> None:
        """Check that a majority of the candidates has the present configuration.

        A change which too few candidates got stays in the present state. So who relies on a record
        which it finds there, and did not commit itself, asks here first.

        :raises ConfigurationError: too few candidates have it.
        """
        with self._committing:
            online = online_candidates(self._present())
            have = {uuid for uuid in online if not self._lacks(uuid, CONFIG)}
            committed = self._quorum.reached(self._present(), have)
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
                    self._lagging_node(uuid).miss(what)
            if self._ssconf is None:
                self._ssconf = self._ssconf_values(self._present())
            self._note_answers(unresponsive, failed=unresponsive)
            self._forget_lagging(self._present())
            self._start_catching_up()

    def adopt(self, data: ConfigData, text: Pieces | None) -> None:
        """Note at the start what the other nodes have already. Needs the lock.

        The ssconf values, which an earlier master may not have sent to all nodes, follow in the
        background when they are more than :data:`_NAMES_BYTES` for all nodes together, otherwise
        with the first commit.

        :param text: the text which the candidates have; None if that is not known.
        """
        if text is not None:
            self._sent = text
        online = [uuid for uuid, node in data.nodes.items() if not node.offline]
        values = self._ssconf_values(data)
        if self._catch_up_s is not None and self._is_much(values, online):
            self._ssconf = self._ssconf_sent = values
            self._inform_later(online)

    def send_everything(self, data: ConfigData, text: Pieces) -> list[DistributionFailure]:
        """Send the whole file and all ssconf values to all nodes. Needs the lock.

        The whole file is right even on a node where the file was changed by hand.

        :returns: as :meth:`send`.
        """
        self._ssconf_sent = None
        self._sent = None
        return self.send(data, text, everybody=True)

    def inform_others(self) -> bool:
        """Send the ssconf values to the nodes which did not get them with a commit.

        :returns: whether there were such nodes.
        """
        with self._committing:
            data = self._present()
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
            failures = self._give(message)
        finally:
            self._under_way.remove(targets)
        with self._committing:
            for failure in failures:
                node = self._lagging_node(failure.node_uuid)
                node.miss(SSCONF)
                node.failed()
            self._start_catching_up()
        return True

    @staticmethod
    def _is_much(values: dict[str, str], nodes: Collection[str]) -> bool:
        return sum(map(len, values.values())) * len(nodes) > _NAMES_BYTES

    def _inform_later(self, nodes: Collection[str]) -> None:
        """Let the thread send the ssconf values to these nodes."""
        self._uninformed.update(nodes)
        if self._informing is None:
            # Without a thread, the next commit which leaves nodes out tries again.
            self._informing = shortage.start_thread(self._keep_informing, name="config-ssconf")

    def _keep_informing(self) -> None:
        never = threading.Event()
        pause_s = NAMES_S
        while True:
            never.wait(pause_s)
            begun = time.monotonic()
            try:
                with shortage.as_error():
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
            data = self._present()
            self._forget_lagging(data)
            if not self._lagging or self._distribute is None:
                return True
            under_way = self._under_way.nodes()
            targets = [uuid for uuid in self._lagging if uuid not in under_way]
            if not targets:
                return False
            candidates = tuple(uuid for uuid in targets if self._lacks(uuid, CONFIG))
            nodes = tuple(uuid for uuid in targets if self._lacks(uuid, SSCONF))
            text = self._text_of(data)
            message = Distribution(data, text, candidates, self._ssconf if nodes else None, nodes)
            self._under_way.add(targets)
        # Others commit while this waits for nodes which may not answer.
        try:
            failures = self._give(message)
        finally:
            self._under_way.remove(targets)
        return self._note_late(data, set(candidates), set(nodes), failures)

    def _give(self, message: Distribution) -> Sequence[DistributionFailure]:
        """Send a message, and name the candidates whose history lacks something."""
        assert self._distribute is not None
        failures = self._distribute(message)
        if message.incomplete:
            self.note_incomplete(frozenset(message.incomplete))
        return failures

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
            if self._present() is data:
                self._note_lagging(set(candidates), set(nodes), failures)
            # Otherwise the nodes have an older state in any case; the next message has the newest.
            self._note_answers(
                {*candidates, *nodes}, failed={failure.node_uuid for failure in failures}
            )
            if not self._lagging:
                log.info("all nodes have the present configuration again")
            return not self._lagging

    def note_change(
        self, before: ConfigData, data: ConfigData, changed: set[tuple[str, str]]
    ) -> None:
        """Derive the ssconf values again if an object which changed occurs in them. Needs the lock.

        :param changed: kind and UUID of the objects which differ between the two states.
        """
        if not ssconf.differs(before, data, changed):
            return
        others = False
        for kind, uuid in changed:
            if kind == "instances":
                self._instance_names.replace(before.instances.get(uuid), data.instances.get(uuid))
            elif kind not in ssconf.NOT_IN_VALUES:
                others = True
        if self._distribute is None:
            self._ssconf = None
        elif self._ssconf is None or others:
            self._ssconf = self._ssconf_values(data)
        else:
            self._ssconf = {**self._ssconf, INSTANCE_LIST: self._instance_names.text()}

    def _ssconf_values(self, data: ConfigData) -> dict[str, str]:
        return ssconf.values(data, self._instance_names)

    def send(
        self,
        data: ConfigData,
        text: Pieces,
        *,
        everybody: bool = False,
        history: Addition | None = None,
    ) -> list[DistributionFailure]:
        """Send a state to the nodes. Needs the lock.

        :param history: the records of the change for the histories of the candidates.
        :param everybody: send to lagging and unresponsive nodes, too.
        :returns: the nodes which do not have the state, including those to which it was not sent.
        """
        base, self._sent = self._sent, text
        if self._distribute is None:
            return []
        if self._ssconf is None:
            self._ssconf = self._ssconf_values(data)
        wanted = ssconf.to_send(self._ssconf_sent, self._ssconf)
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
        if any(self._lacks(uuid, SSCONF) for uuid in self._lagging if uuid not in skip):
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
            history,
        )
        failures = self._deliver(message, sending)
        _log_failures(data, failures)
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
        self._note_answers(
            set().union(*asked) - skip, failed={failure.node_uuid for failure in failures}
        )
        failures += left_out
        self._start_catching_up()
        return failures

    def _deliver(self, message: Distribution, sending: Sending) -> list[DistributionFailure]:
        """Send a message; wait until a majority has it, and somewhat longer for the other nodes.

        :returns: the nodes which did not accept it. Those which have not answered yet are among
            them; their message goes on in the background, and :meth:`_note_late` gets its result.
        """
        if self._catch_up_s is None or sending.all_needed():
            return list(self._give(message))

        def send() -> None:
            failures: Sequence[DistributionFailure] = ()
            error: BaseException | None = None
            try:
                failures = self._give(message)
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
        node is left out if the others are not a majority of the candidates; then this waits until
        the messages in the background have ended.
        """
        skip = self._under_way.nodes() | {
            uuid for uuid, node in self._lagging.items() if not node.responds
        }
        witness = self._quorum.can_ask(self._present()) and not self._quorum.failure
        tally = Tally(
            1 + len(candidates) + witness,
            1 + sum(uuid not in skip for uuid in candidates) + witness,
        )
        if everybody or self._catch_up_s is None or not tally.reached:
            self._under_way.wait()
            return frozenset()
        return skip

    def _forget_lagging(self, data: ConfigData) -> None:
        """Forget nodes which were removed or are offline, and configurations for non-candidates."""
        for uuid, lagging in list(self._lagging.items()):
            node = data.nodes.get(uuid)
            if node is None or node.offline:
                del self._lagging[uuid]
            elif not node.master_candidate:
                lagging.lacks.discard(CONFIG)
        self._forget_current()

    def _forget_current(self) -> None:
        """Forget the nodes which lack nothing any more."""
        for uuid, node in list(self._lagging.items()):
            if not node.lacks:
                node.caught_up()
                del self._lagging[uuid]

    def _lagging_node(self, uuid: str) -> _LaggingNode:
        return self._lagging.setdefault(uuid, _LaggingNode(uuid))

    def _responds(self, uuid: str) -> bool:
        return uuid not in self._lagging or self._lagging[uuid].responds

    def _lacks(self, uuid: str, what: str) -> bool:
        node = self._lagging.get(uuid)
        return node is not None and what in node.lacks

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
                    self._lagging_node(uuid).miss(what)
                elif uuid in self._lagging:
                    self._lagging[uuid].lacks.discard(what)
        self._forget_current()

    def _note_answers(self, asked: Collection[str], *, failed: Collection[str]) -> None:
        """Note which lagging nodes took the last message to them.

        :param failed: UUIDs of those which did not.
        """
        for uuid in {*asked, *failed}:
            node = self._lagging.get(uuid)
            if node is not None:
                if uuid in failed:
                    node.failed()
                else:
                    node.answered()

    def _start_catching_up(self) -> None:
        if self._lagging and self._catch_up_s is not None and self._catching_up is None:
            # Without a thread, the next failure tries again.
            self._catching_up = shortage.start_thread(self._keep_trying, name="config-catch-up")

    def _keep_trying(self) -> None:
        """Send to lagging nodes until there are none. The next failure starts a new thread."""
        first_s, longest_s = self._catch_up_s or CATCH_UP_S
        pause_s = first_s
        while True:
            returned = self._returned.wait(pause_s)
            self._returned.clear()
            pause_s = first_s if returned else min(2 * pause_s, longest_s)
            try:
                with shortage.as_error():
                    self.catch_up()
            except errors.GenericError as err:
                log.warning("cannot bring nodes up to date: %s", err)
            with self._committing:
                if not self._lagging:
                    self._catching_up = None
                    return
                if any(node.responds for node in self._lagging.values()):
                    # A node answers, but a commit has changed the state meanwhile.
                    pause_s = first_s

    def judge(self, data: ConfigData, failures: Sequence[DistributionFailure]) -> str | None:
        """Return the error for the submitters; None when a majority has the change.

        Needs the lock.

        :param failures: the result of :meth:`send`.
        """
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


def _log_failures(data: ConfigData, failures: Iterable[DistributionFailure]) -> None:
    for failure in failures:
        node = data.nodes.get(failure.node_uuid)
        log.warning(
            "node %s did not take the %s: %s",
            failure.node_uuid if node is None else node.name,
            failure.what,
            failure.message,
        )
