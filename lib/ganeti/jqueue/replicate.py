"""Sending the queue to the other master candidates.

Every candidate has a *peer*: the files it lacks, by name, and a thread that sends them in one
message at a time. While a message is under way newer content of the same file replaces older, so a
slow candidate gets fewer, larger messages and never holds more than one copy of the queue.

A commit waits until all candidates have what it contains, but not long: a candidate that fails or
takes more than `wait_s` *lags*. Nobody waits for it until it has caught up, and it is tried again
on its own. When more than half lag, the log has a warning (seed 001 *Job execution*). A candidate
that joins later gets the whole live queue.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from ganeti import errors

_log = logging.getLogger(__name__)

WAIT_S = 1.0
RETRY_S = 5.0
# A message is held back for so long: a small job is over by then, and its end travels with its
# beginning, which saves a whole round trip of several times this length.
GATHER_S = 0.004
# A node daemon takes requests of 10 MiB; JSON adds to what is in the files.
MESSAGE_BYTES = 4 << 20


class Transport(Protocol):
    """How a candidate is reached. Every method raises :exc:`errors.GenericError` on failure."""

    def candidates(self) -> Sequence[str]:
        """UUIDs of the master candidates that are online, without this node."""

    def update(self, node_uuid: str, files: dict[str, str]) -> None:
        """Write files into the candidate's queue directory."""

    def archive(self, node_uuid: str, job_ids: Sequence[int]) -> None:
        """Move jobs into the candidate's archive."""

    def purge(self, node_uuid: str) -> None:
        """Empty the candidate's queue directory."""

    def set_drained(self, node_uuids: Sequence[str], drained: bool) -> list[str]:
        """Set the drain flag of the candidates; names of those that failed."""


class Replicator:
    """Keeps the candidates up to date.

    :param snapshot: content by name of the live queue; with False only of what may be missing on
        a candidate that was there before this daemon started.
    """

    def __init__(
        self,
        transport: Transport,
        snapshot: Callable[[bool], dict[str, str]],
        *,
        wait_s: float = WAIT_S,
        retry_s: float = RETRY_S,
    ) -> None:
        self._transport = transport
        self._snapshot = snapshot
        self._wait_s = wait_s
        self._retry_s = retry_s
        # Guards the peers and everything in them; notified when a peer got somewhere.
        self.progress = threading.Condition()
        self._peers: dict[str, _Peer] = {}
        self._number = 0
        self._warned = False
        self._stopping = False
        self._started = False

    def start(self) -> None:
        """Bring the present candidates up to date, in the background."""
        files = self._snapshot(False)
        with self.progress:
            for uuid in self._transport.candidates():
                self._add_peer(uuid, files, purge=False)
            self._started = True

    def send(self, files: dict[str, str], archived: Sequence[int]) -> Callable[[], None]:
        """Hand a commit to all candidates; the result waits until they have it or lag."""
        with self.progress:
            self._number += 1
            number = self._number
            wanted = self._transport.candidates() if self._started else ()
            fresh = [uuid for uuid in wanted if uuid not in self._peers]
            for uuid in [uuid for uuid in self._peers if uuid not in wanted]:
                self._peers.pop(uuid).stop()
            for peer in self._peers.values():
                peer.add(files, archived, number)
        if fresh:
            whole = self._snapshot(True)
            with self.progress:
                for uuid in fresh:
                    self._add_peer(uuid, whole, purge=True)
        if not self._peers:
            return _nothing
        return lambda: self._wait(number)

    def set_drained(self, drained: bool) -> None:
        """Tell the candidates; those that cannot be reached are named in the log."""
        failed = self._transport.set_drained(self._transport.candidates(), drained)
        if failed:
            _log.warning("drain flag of the job queue not changed on %s", ", ".join(failed))

    def lagging(self) -> list[str]:
        """UUIDs of the candidates that are behind."""
        with self.progress:
            return [peer.uuid for peer in self._peers.values() if peer.lagging]

    def stop(self, timeout_s: float = 5.0) -> None:
        """Give the candidates a moment to take the rest, then end the threads."""
        deadline = time.monotonic() + timeout_s
        with self.progress:
            self._stopping = True
            peers = list(self._peers.values())
            self.progress.wait_for(
                lambda: all(peer.idle or peer.lagging for peer in peers),
                max(0.0, deadline - time.monotonic()))
            for peer in peers:
                peer.stop()
        for peer in peers:
            # A thread may sit in a call to a node that hangs; it ends with the process.
            peer.thread.join(max(0.0, deadline - time.monotonic()))

    def _add_peer(self, uuid: str, files: dict[str, str], *, purge: bool) -> None:
        peer = _Peer(uuid, self._transport, self.progress, wait_s=self._wait_s,
                     retry_s=self._retry_s, purge=purge)
        peer.add(files, (), self._number)
        # Nobody waits for a newcomer until it has everything.
        peer.lagging = bool(files) or purge
        self._peers[uuid] = peer
        peer.thread.start()

    def _wait(self, number: int) -> None:
        with self.progress:
            self.progress.wait_for(
                lambda: all(peer.lagging or peer.done >= number for peer in self._peers.values()),
                self._wait_s)
            behind = []
            for peer in self._peers.values():
                if not peer.lagging and peer.done < number:
                    peer.lagging = True
                    _log.info("job queue: candidate %s is slow, not waiting for it", peer.uuid)
                if peer.lagging and not peer.joining:
                    behind.append(peer.uuid)
            many = len(behind) * 2 > len(self._peers)
        if many and not self._warned:
            _log.warning("job queue: %d of %d master candidates are not up to date: %s",
                         len(behind), len(self._peers), ", ".join(behind))
        self._warned = many


def _nothing() -> None:
    """There is no candidate to wait for."""


class _Peer:
    """One candidate. Everything is guarded by the replicator's condition.

    :ivar done: number of the last commit the candidate has completely.
    :ivar joining: it never had everything yet.
    """

    def __init__(self, uuid: str, transport: Transport, progress: threading.Condition,
                 *, wait_s: float, retry_s: float, purge: bool) -> None:
        self.uuid = uuid
        self.done = 0
        self.lagging = False
        self.joining = True
        self._transport = transport
        self._progress = progress
        self._wait_s = wait_s
        self._retry_s = retry_s
        self._purge = purge
        self._files: dict[str, str] = {}
        self._archived: list[int] = []
        self._number = 0
        self._busy = False
        self._stopping = False
        self._failing = False
        self.thread = threading.Thread(target=self._run, name=f"jq-peer-{uuid[:8]}", daemon=True)

    @property
    def idle(self) -> bool:
        """Whether the candidate has everything."""
        return not (self._busy or self._purge or self._files or self._archived)

    def add(self, files: dict[str, str], archived: Sequence[int], number: int) -> None:
        """Queue newer content."""
        self._files.update(files)
        self._archived.extend(archived)
        self._number = number
        self._progress.notify_all()

    def stop(self) -> None:
        """End the thread after the message that is under way."""
        self._stopping = True
        self._progress.notify_all()

    def _run(self) -> None:
        while True:
            with self._progress:
                self._progress.wait_for(lambda: self._stopping or not self.idle)
                if self._stopping:
                    return
            time.sleep(GATHER_S)
            with self._progress:
                purge, files, archived, number = self._take()
                self._busy = True
            begun = time.monotonic()
            error = self._deliver(purge, files, archived)
            with self._progress:
                self._busy = False
                if error is None:
                    self._delivered(number, time.monotonic() - begun)
                else:
                    self._put_back(purge, files, archived, error)
                    self._progress.wait_for(lambda: self._stopping, self._retry_s)

    def _take(self) -> tuple[bool, dict[str, str], list[int], int | None]:
        """The next message: as many files as fit; the archive only after all of them.

        The number of the last commit comes with the message that completes it.
        """
        purge, self._purge = self._purge, False
        files: dict[str, str] = {}
        size = 0
        for name, text in self._files.items():
            if files and size + len(text) > MESSAGE_BYTES:
                break
            files[name] = text
            size += len(text)
        if len(files) == len(self._files):
            self._files = {}
            archived, self._archived = self._archived, []
            return purge, files, archived, self._number
        for name in files:
            del self._files[name]
        return purge, files, [], None

    def _deliver(self, purge: bool, files: dict[str, str], archived: list[int]
                 ) -> errors.GenericError | None:
        try:
            if purge:
                self._transport.purge(self.uuid)
            if files:
                self._transport.update(self.uuid, files)
            if archived:
                self._transport.archive(self.uuid, archived)
        except errors.GenericError as err:
            return err
        return None

    def _delivered(self, number: int | None, took_s: float) -> None:
        if number is not None:
            self.done = number
            # A candidate that still takes long would only be waited for in vain again.
            if took_s < self._wait_s / 2 or self.idle:
                if self._failing:
                    _log.info("job queue: candidate %s is up to date again", self.uuid)
                self.lagging = self.joining = False
            self._failing = False
        self._progress.notify_all()

    def _put_back(self, purge: bool, files: dict[str, str], archived: list[int],
                  error: errors.GenericError) -> None:
        self._purge = self._purge or purge
        self._files = {**files, **self._files}
        self._archived = archived + self._archived
        self.lagging = True
        if not self._failing:
            _log.info("job queue: candidate %s was not updated: %s", self.uuid, error)
        self._failing = True
        self._progress.notify_all()
