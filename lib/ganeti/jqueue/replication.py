"""Sending the queue to the other master candidates.

Every candidate has a *peer*: the files which the candidate lacks, by name, and a thread which sends
them, one message at a time. While a message is under way newer content of a file replaces older
content, so a slow candidate gets fewer, larger messages, and a peer never holds more than one copy
of the queue.

A commit waits until all candidates have its content, but not long: a candidate that fails or takes
more than `wait_s` seconds *lags*. No commit waits for it until it has caught up, and its peer goes
on trying. When more than half of the candidates lag, the log gets a warning (Ganeti design 2.0,
*Job execution*).

Where the role of a lost master moves by itself (``auto_failover``), a job counts as acknowledged
only when a majority of the candidates has it, as with the configuration: otherwise a master which
is cut off would go on to accept jobs which its successor does not know. So a commit waits longer
for a majority, :data:`MAJORITY_WAIT_S`, and reports when there is none. With two candidates and a
witness, the witness is informed of the number of a job which the other candidate does not have.

Before the first message to a candidate, and again when it comes back after a failure, both
directories are compared (:mod:`.catch_up`), and the differences are sent first: neither a new
candidate nor a daemon that has just started knows what is missing.
"""

from __future__ import annotations

import enum
import functools
import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from typing import Final, NamedTuple, Protocol

from ganeti import errors, ht
from ganeti.jobstore.files import SERIAL
from ganeti.jobstore.inventory import Inventory
from ganeti.jqueue import catch_up
from ganeti.jqueue.commit import Delivered
from ganeti.jqueue.outbox import Outbox, QueueMessage
from ganeti.replication.majority import Tally, majority
from ganeti.replication.peer import CopyState, Peer
from ganeti.utils import shortage, states

_log = logging.getLogger(__name__)

# Seconds for which a commit waits for a candidate.
WAIT_S = 1.0
# Seconds for which a commit waits for a majority of the candidates, where one is wanted.
MAJORITY_WAIT_S = 5.0
_OTHERS = 2
# Seconds before a candidate that failed is tried again.
RETRY_S = 2.0
# Seconds for which a message is held back: a small job is over by then, and its end travels with
# its beginning, which saves a round trip of several times this length. A message that contains only
# jobs which have ended is not held back. When one message to a candidate follows the other, each is
# held back as long as the one before took: fewer, larger messages cost both sides less.
GATHER_S = 0.004
GATHER_BUSY_S = 0.02


class Transport(Protocol):
    """Sends messages to candidates. Every method raises :exc:`errors.GenericError` on failure."""

    def candidates(self) -> Sequence[str]:
        """Return the UUIDs of the master candidates that are online, without this node."""

    def update(self, node_uuid: str, files: dict[str, str]) -> None:
        """Write files into the candidate's queue directory."""

    def inventory(self, node_uuid: str, parts: Sequence[int]) -> Inventory:
        """Return the candidate's inventory, with the jobs in these parts of the archive."""

    def read(self, node_uuid: str, names: Sequence[str]) -> dict[str, str]:
        """Return the content of those files of the candidate's queue which exist."""

    def archive(self, node_uuid: str, job_ids: Sequence[int]) -> None:
        """Move jobs into the candidate's archive."""

    def purge(self, node_uuid: str) -> None:
        """Empty the candidate's queue directory."""

    def set_drained(self, node_uuids: Sequence[str], drained: bool) -> list[str]:
        """Set the drain flag of the candidates; return the names of those that failed."""


class QueueWitness(Protocol):
    """Stands for the other candidate, where there is one or none."""

    def needed(self) -> bool:
        """Tell whether a commit which no other candidate has needs the witness."""

    def record(self, last_job: int) -> str | None:
        """Inform the witness of the number of a job; return why that failed, or None."""


class Candidates(NamedTuple):
    """The other master candidates, and what they have to know before a job is acknowledged.

    :ivar majority: whether a commit needs a majority of the candidates.
    :ivar witness: the witness of the cluster; it counts for one other candidate or none.
    """

    transport: Transport
    majority: Callable[[], bool] = lambda: False
    witness: QueueWitness | None = None


class Replicator:
    """Keeps the copies of the candidates up to date.

    :param here: the queue of this node.
    :param wait_s: seconds after which a candidate lags.
    :param retry_s: seconds before a candidate that failed is tried again.
    :ivar here: the queue of this node.
    """

    def __init__(
        self,
        candidates: Candidates,
        here: catch_up.LocalQueue,
        *,
        wait_s: float = WAIT_S,
        retry_s: float = RETRY_S,
    ) -> None:
        self._transport, self._majority, self._witness = candidates
        # The highest job id, and the highest one of which the witness was informed.
        self._last_serial = 0
        self._witnessed_serial = 0
        self.here = here
        self._wait_s = wait_s
        self._retry_s = retry_s
        # Guards the peers and their attributes; notified when a peer has sent a message or failed.
        self.progress = threading.Condition()
        self._peers: dict[str, _Peer] = {}
        self._number = 0
        self._warned = False
        self._started = False
        self._first_serial = 0
        #: The highest job id which a majority of the candidates knows; None without other ones.
        self.confirmed_serial: int | None = None

    def start(self, serial: int = 0) -> None:
        """Bring the present candidates up to date, in the background.

        :param serial: the highest job id, which candidates count as knowing until they were asked.
        """
        with self.progress:
            self._first_serial = self._last_serial = serial
            for uuid in self._transport.candidates():
                self._add_peer(uuid)
            self._started = True

    def send(
        self, files: dict[str, str], archived: Sequence[int], *, ended: bool = False
    ) -> Callable[[], Delivered]:
        """Hand a commit to all candidates.

        :param files: content by file name.
        :param archived: ids of jobs which were archived.
        :param ended: all jobs in the commit have ended, so that nothing more will follow soon.
        :returns: a function which waits until every candidate has the commit or lags, and returns
            where the commit is then.
        """
        with self.progress:
            self._number += 1
            number = self._number
            if SERIAL in files:
                self._last_serial = int(files[SERIAL])
            serial = self._last_serial
            wanted = self._transport.candidates() if self._started else ()
            added = [uuid for uuid in wanted if uuid not in self._peers]
            for uuid in [uuid for uuid in self._peers if uuid not in wanted]:
                self._peers.pop(uuid).stop()
                self.count_serials()
            for uuid in added:
                self._add_peer(uuid)
            for peer in self._peers.values():
                peer.add(files, archived, number, ended=ended)
            if not self._peers:
                return functools.partial(self._alone, serial)
        return lambda: self._wait(number, serial)

    def count_serials(self) -> None:
        """Find the highest job id which a majority of the candidates knows. Needs the lock."""
        # The master itself is one of the majority.
        others = majority(len(self._peers) + 1) - 1
        known = sorted(
            (
                self._first_serial if peer.serial is None else peer.serial
                for peer in self._peers.values()
            ),
            reverse=True,
        )
        self.confirmed_serial = max(known[others - 1], self._witnessed_serial) if others else None
        self.progress.notify_all()

    def wait_confirmed(self, serial: int, timeout_s: float) -> bool:
        """Wait until a majority of the candidates knows a job id; False when the time is over.

        Candidates count when they were asked, and the witness when the only other one does not
        answer soon.
        """

        def confirmed() -> bool:
            known = sum((peer.serial or 0) >= serial for peer in self._peers.values())
            return Tally(len(self._peers) + 1, known + 1).reached

        with self.progress:
            witness = self._witness if len(self._peers) < _OTHERS else None
            if witness is None or not witness.needed():
                return self.progress.wait_for(confirmed, timeout_s)
            if self.progress.wait_for(confirmed, self._wait_s):
                return True
        if not self._ask_witness(witness, serial):
            return True
        with self.progress:
            return self.progress.wait_for(confirmed, timeout_s)

    def set_drained(self, drained: bool) -> None:
        """Set the drain flag on the candidates; the log names those where that failed."""
        failed = _send_flag(self._transport, self.here, self._transport.candidates(), drained)
        if failed:
            _log.warning("drain flag of the job queue not changed on %s", ", ".join(failed))

    def compare(self) -> None:
        """Compare the candidates' copies with this node's queue, in the background."""
        with self.progress:
            for peer in self._peers.values():
                peer.compare()

    def lagging(self) -> list[str]:
        """Return the UUIDs of the candidates that lag."""
        with self.progress:
            return [peer.uuid for peer in self._peers.values() if peer.lags]

    def unresponsive(self) -> list[str]:
        """Return the UUIDs of the candidates to which the last message failed."""
        with self.progress:
            return [peer.uuid for peer in self._peers.values() if not peer.responds]

    def try_again(self, uuids: Collection[str]) -> None:
        """Send to candidates soon, and not after the rest of a pause."""
        with self.progress:
            for uuid in uuids:
                if uuid in self._peers:
                    self._peers[uuid].try_again()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Give the candidates `timeout_s` seconds to take the rest, then end the threads."""
        deadline = time.monotonic() + timeout_s
        with self.progress:
            peers = list(self._peers.values())
            self.progress.wait_for(
                lambda: all(peer.idle or not peer.responds for peer in peers),
                max(0.0, deadline - time.monotonic()),
            )
            for peer in peers:
                peer.stop()
        for peer in peers:
            # A thread may be in a call to a node that hangs; it ends with the process.
            peer.thread.join(max(0.0, deadline - time.monotonic()))

    def _add_peer(self, uuid: str) -> None:
        peer = _Peer(
            uuid,
            self._transport,
            self.progress,
            self.here,
            self.count_serials,
            wait_s=self._wait_s,
            retry_s=self._retry_s,
        )
        self._peers[uuid] = peer
        self.count_serials()
        peer.thread.start()

    def _alone(self, serial: int) -> Delivered:
        """Return where a commit is if there is no other candidate."""
        if self._witness is None or not (self._majority() and self._witness.needed()):
            return Delivered()
        return Delivered(shortfall=self._ask_witness(self._witness, serial))

    def _ask_witness(self, witness: QueueWitness, serial: int) -> str:
        """Inform the witness; return the numbers for a message if that fails."""
        with self.progress:
            if serial <= self._witnessed_serial:
                return ""
        failure = witness.record(serial)
        if failure is not None:
            return f"only this node, and not the witness ({failure}),"
        with self.progress:
            self._witnessed_serial = max(self._witnessed_serial, serial)
            self.count_serials()
        return ""

    def _wait(self, number: int, serial: int) -> Delivered:
        witness = None
        with self.progress:
            # Fewer than three candidates, this node among them, cannot elect another master.
            wanted = len(self._peers) >= _OTHERS and self._majority()
            if len(self._peers) < _OTHERS and self._witness is not None and self._majority():
                witness = self._witness if self._witness.needed() else None
            self.progress.wait_for(
                lambda: all(peer.lags or peer.done >= number for peer in self._peers.values()),
                self._wait_s,
            )
            lagging = []
            for peer in self._peers.values():
                if not peer.lags and peer.done < number:
                    peer.missed()
                    _log.info("job queue: candidate %s is slow, not waiting for it", peer.uuid)
                if peer.state in (CopyState.LAGGING, CopyState.UNRESPONSIVE):
                    lagging.append(peer.uuid)
            shortfall = self._wait_for_majority(number) if wanted else ""
            if any(peer.done >= number for peer in self._peers.values()):
                witness = None
            many = len(lagging) * 2 > len(self._peers)
            # One which is just being compared will have it in a moment.
            alone = bool(self._peers) and not any(
                peer.done >= number or peer.state is CopyState.NEW for peer in self._peers.values()
            )
        if many and not self._warned:
            _log.warning(
                "job queue: %d of %d master candidates are not up to date: %s",
                len(lagging),
                len(self._peers),
                ", ".join(lagging),
            )
        self._warned = many
        if witness is not None:
            shortfall = self._ask_witness(witness, serial)
        return Delivered(alone, shortfall)

    def _wait_for_majority(self, number: int) -> str:
        """Wait until a majority has a commit; return the numbers if it does not. Needs the lock."""

        def tally() -> Tally:
            peers = self._peers.values()
            have = sum(peer.done >= number for peer in peers)
            coming = sum(peer.done < number and peer.responds for peer in peers)
            return Tally(len(peers) + 1, have + 1, coming)

        self.progress.wait_for(lambda: tally().decided, MAJORITY_WAIT_S)
        found = tally()
        return "" if found.reached else f"only {found.have} of {found.members} master candidates"


def _send_flag(
    transport: Transport, here: catch_up.LocalQueue, node_uuids: Sequence[str], drained: bool
) -> list[str]:
    """Set the drain flag of candidates, and again when this node's flag changed meanwhile.

    An administrator and a comparison may send different values at the same time. The one which
    arrives last must not be the older one.

    :returns: the names of the candidates where the last message failed.
    :raises errors.GenericError: the message could not be sent, or the disk cannot be read.
    """
    while True:
        failed = transport.set_drained(node_uuids, drained)
        if here.drained() == drained:
            return failed
        drained = not drained


class DeliveryPhase(enum.StrEnum):
    """What the thread of a candidate does (``doc/states.rst``)."""

    #: The candidate may lack anything; its copy is compared next.
    UNKNOWN = "unknown"
    #: Its copy is being compared.
    COMPARING = "comparing"
    #: What it lacks is known; that is sent next, if there is something.
    KNOWN = "known"
    #: A message to it is under way.
    SENDING = "sending"
    #: The thread ends, after the message that is under way.
    STOPPED = "stopped"


PHASES: Final = {
    DeliveryPhase.UNKNOWN: (DeliveryPhase.COMPARING, DeliveryPhase.STOPPED),
    DeliveryPhase.COMPARING: (DeliveryPhase.KNOWN, DeliveryPhase.UNKNOWN, DeliveryPhase.STOPPED),
    DeliveryPhase.KNOWN: (DeliveryPhase.SENDING, DeliveryPhase.UNKNOWN, DeliveryPhase.STOPPED),
    DeliveryPhase.SENDING: (DeliveryPhase.KNOWN, DeliveryPhase.UNKNOWN, DeliveryPhase.STOPPED),
    DeliveryPhase.STOPPED: (),
}


class _Peer(Peer):
    """One candidate. Everything is guarded by the replicator's condition.

    :ivar done: number of the last commit which the candidate has completely.
    :ivar serial: the highest job id which it has in its copy; None before it was asked.
    """

    def __init__(
        self,
        uuid: str,
        transport: Transport,
        progress: threading.Condition,
        here: catch_up.LocalQueue,
        count_serials: Callable[[], None],
        *,
        wait_s: float,
        retry_s: float,
    ) -> None:
        super().__init__(uuid, CopyState.NEW)
        self.serial: int | None = None
        self._count_serials = count_serials
        self.done = 0
        self._transport = transport
        self._progress = progress
        self._here = here
        self._wait_s = wait_s
        self._retry_s = retry_s
        self._phase = DeliveryPhase.UNKNOWN
        # Time since which it may lack more than what is in the outbox, until the next comparison.
        self._unknown_since = time.monotonic()
        self._outbox = Outbox()
        self._took_s = 0.0
        self._returned = False
        self.thread = threading.Thread(target=self._run, name=f"jq-peer-{uuid[:8]}", daemon=True)

    @property
    def idle(self) -> bool:
        """True if the candidate has everything."""
        return self._phase in (DeliveryPhase.KNOWN, DeliveryPhase.STOPPED) and self._outbox.empty

    @property
    def _stopped(self) -> bool:
        return self._phase is DeliveryPhase.STOPPED

    def add(
        self, files: dict[str, str], archived: Sequence[int], number: int, *, ended: bool
    ) -> None:
        """Take the content of a commit to be sent."""
        self._outbox.add(files, archived, number, ended=ended)
        self._progress.notify_all()

    def compare(self) -> None:
        """Compare its copy with the queue, as if the candidate had just come back."""
        if self._phase is not DeliveryPhase.COMPARING:
            self._unknown_since = time.monotonic()
            self._enter(DeliveryPhase.UNKNOWN)
            self._progress.notify_all()

    def try_again(self) -> None:
        """Send soon, and not after the rest of a pause."""
        self._returned = True
        self._progress.notify_all()

    def stop(self) -> None:
        """End the thread after the message that is under way."""
        self._enter(DeliveryPhase.STOPPED)
        self._progress.notify_all()

    def _enter(self, phase: DeliveryPhase) -> None:
        """Go over to a phase. A thread which was stopped does not go on."""
        if self._phase not in (phase, DeliveryPhase.STOPPED):
            what = f"the delivery to candidate {self.uuid}"
            self._phase = states.moved(PHASES, self._phase, phase, what)

    def _run(self) -> None:
        while True:
            with self._progress:
                busy = not self.idle
                self._progress.wait_for(lambda: self._stopped or not self.idle)
                if self._stopped:
                    return
                unknown = self._phase is DeliveryPhase.UNKNOWN
                self._enter(DeliveryPhase.COMPARING if unknown else DeliveryPhase.SENDING)
                since = self._unknown_since
            if unknown:
                error = self._compare(since)
            else:
                self._hold_back(busy)
                error = self._send_next()
            if error is not None:
                with self._progress:
                    self._progress.wait_for(lambda: self._stopped or self._returned, self._retry_s)
                    self._returned = False

    # -- comparison ------------------------------------------------------------------------------

    def _compare(self, since: float) -> errors.GenericError | None:
        """Find the files which the candidate lacks besides those to be sent already."""
        try:
            with shortage.as_error():
                plan = catch_up.plan(self.uuid, self._here, since, self._ask)
                if plan.purge:
                    self._transport.purge(self.uuid)
                if plan.drained is not None:
                    _send_flag(self._transport, self._here, [self.uuid], plan.drained)
        except errors.GenericError as err:
            with self._progress:
                self._failed(err)
            return err
        with self._progress:
            self._enter(DeliveryPhase.KNOWN)
            self._outbox.add_lacking(plan.first, plan.names, plan.moved)
            if self.idle:
                self._delivered(self._outbox.number, 0.0)
        return None

    def _ask(self, parts: Sequence[int]) -> Inventory:
        found = self._transport.inventory(self.uuid, parts)
        self._has_serial(found.plain.get(SERIAL) or "0", anew=True)
        return found

    def _has_serial(self, text: str, *, anew: bool = False) -> None:
        """Note the highest job id in the candidate's copy.

        :param anew: also if it is lower than before, because the copy may be another one.
        """
        serial = int(text) if ht.JobId(text.strip()) else 0
        with self._progress:
            if anew or self.serial is None or serial > self.serial:
                self.serial = serial
                self._count_serials()

    # -- messages --------------------------------------------------------------------------------

    def _hold_back(self, busy: bool) -> None:
        """Wait, so that more changes share a message.

        :param busy: the last message has just been sent.
        """
        if busy:
            time.sleep(max(GATHER_S, min(self._took_s, GATHER_BUSY_S)))
        elif not self._outbox.ended:
            time.sleep(GATHER_S)

    def _send_next(self) -> errors.GenericError | None:
        with self._progress:
            message = self._outbox.take()
        begun = time.monotonic()
        try:
            with shortage.as_error():
                self._send(message)
        except errors.GenericError as err:
            with self._progress:
                self._outbox.put_back(message)
                self._failed(err)
            return err
        with self._progress:
            if self._phase is DeliveryPhase.SENDING:
                self._enter(DeliveryPhase.KNOWN)
            number = message.number
            if message.names:
                self._outbox.put_back_rest(message)
                number = None
            self._took_s = time.monotonic() - begun
            self._delivered(number, self._took_s)
        return None

    def _send(self, message: QueueMessage) -> None:
        if message.names:
            message.read(self._here.read)
        if message.files:
            self._transport.update(self.uuid, message.files)
            if SERIAL in message.files:
                self._has_serial(message.files[SERIAL])
        if message.archived and not message.names:
            self._transport.archive(self.uuid, message.archived)

    def _delivered(self, number: int | None, took_s: float) -> None:
        if number is not None:
            self.done = number
            # A candidate which still needs long would make commits wait in vain again.
            if took_s < self._wait_s / 2 or self.idle:
                if not self.responds:
                    _log.info("job queue: candidate %s is up to date again", self.uuid)
                self.caught_up()
            else:
                self.answered()
        self._progress.notify_all()

    def _failed(self, error: errors.GenericError) -> None:
        # The node may have been reinstalled when it comes back.
        self._unknown_since = time.monotonic()
        self._enter(DeliveryPhase.UNKNOWN)
        self._outbox.forget_backlog()
        if self.responds:
            _log.info("job queue: candidate %s was not updated: %s", self.uuid, error)
        self.failed()
        self._progress.notify_all()
