"""Copies which no commit waits for: a thread brings them up to date, each candidate for itself.

Files such as the history of the configuration and the audit log follow the role of the master. A
candidate that lacks something gets it soon. One that cannot get it is tried again after a pause,
which grows; the others do not wait for it. The log has one warning when a candidate stops taking
messages, however often it is tried: it may be down, or run a release which does not know the call.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable
from typing import Final, NamedTuple

from ganeti import errors
from ganeti.replication.peer import CopyState, Peer
from ganeti.utils import shortage

_log = logging.getLogger(__name__)

#: Seconds until a candidate is tried again: the first pause, and the longest.
PAUSE_S: Final = (1.0, 60.0)
#: Seconds for which :meth:`BackgroundCopies.stop` waits for the last messages.
END_S: Final = 5.0


class BackgroundPeer(Peer):
    """A candidate with a copy which no commit waits for. Not thread-safe: its owner has the lock.

    A change may be noted while a message is under way. Then the message does not bring the copy up
    to date, and the candidate still lags after it.

    :ivar retry_at: time before which the candidate is not tried again.
    """

    def __init__(self, uuid: str) -> None:
        super().__init__(uuid, CopyState.NEW)
        self.retry_at = 0.0
        self._pause_s = 0.0
        self._noted = 0
        self._sent = 0

    def missed(self) -> None:
        """Note that there is something which the candidate does not have."""
        self._noted += 1
        super().missed()

    def begins(self) -> None:
        """Note that everything known until now is being sent."""
        self._sent = self._noted

    def caught_up(self) -> None:
        """Note that the candidate has everything which :meth:`begins` counted."""
        self.retry_at = self._pause_s = 0.0
        if self._sent == self._noted:
            super().caught_up()
        else:
            self.answered()

    def try_again(self) -> None:
        """Note that the next message need not wait for the rest of a pause."""
        self.retry_at = self._pause_s = 0.0

    def failed_at(self, now: float) -> bool:
        """Note that a message failed, or did not bring the copy up to date.

        :returns: True if the message before did not fail, so that the failure is news.
        """
        first_s, longest_s = PAUSE_S
        self._pause_s = min(2 * self._pause_s or first_s, longest_s)
        self.retry_at = now + self._pause_s
        news = self.responds
        self.failed()
        return news


class Copied(NamedTuple):
    """What is copied.

    :ivar name: name of it in messages.
    :ivar candidates: returns the UUIDs of the candidates with a copy, without this node.
    :ivar send_to: sends a candidate what it lacks, and returns whether it has everything then.
        It raises GenericError, OSError or ValueError if that fails.
    """

    name: str
    candidates: Callable[[], Collection[str]]
    send_to: Callable[[str], bool]


class BackgroundCopies:
    """Brings the copies of the candidates up to date, in a thread.

    :param gather_s: seconds between a change and the message with it; more changes may follow.
    :param send_rest: send at the end what candidates lack.
    :param clock: monotonic time in seconds.
    """

    def __init__(
        self,
        copied: Copied,
        *,
        gather_s: float = 0.0,
        send_rest: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._copied = copied
        self._gather_s = gather_s
        self._send_rest = send_rest
        self._clock = clock
        # Guards what follows.
        self._changed = threading.Condition()
        self._peers: dict[str, BackgroundPeer] = {}
        self._noted = True
        self._returned = False
        self._ended = False
        self._thread = threading.Thread(
            target=self._run, name=f"copies: {copied.name}", daemon=True
        )

    def start(self) -> None:
        """Bring all candidates up to date in a thread, now and after each change."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; with ``send_rest`` it sends what is left before."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        if self._send_rest:
            self._thread.join(END_S)

    def note(self, uuids: Iterable[str] | None = None) -> None:
        """Note that candidates lack something; None means all of them."""
        with self._changed:
            for uuid in self._peers if uuids is None else uuids:
                # One that is not known yet gets everything in its first message.
                if uuid in self._peers:
                    self._peers[uuid].missed()
            self._noted = True
            self._changed.notify_all()

    def states(self) -> dict[str, CopyState]:
        """Return the state of each copy, by the UUID of its node."""
        with self._changed:
            return {peer.uuid: peer.state for peer in self._peers.values()}

    def unresponsive(self) -> list[str]:
        """Return the UUIDs of the candidates to which the last message failed."""
        with self._changed:
            return [peer.uuid for peer in self._peers.values() if not peer.responds]

    def try_again(self, uuids: Collection[str]) -> None:
        """Send to candidates soon, and not after the rest of a pause."""
        with self._changed:
            for uuid in uuids:
                if uuid in self._peers:
                    self._peers[uuid].try_again()
            self._returned = True
            self._changed.notify_all()

    def send(self, *, due_only: bool = False) -> set[str]:
        """Send to the candidates which lack something what they lack.

        :param due_only: leave out those which failed a moment ago.
        :returns: those which still lack something.
        """
        wanted = set(self._copied.candidates())
        with self._changed:
            self._peers = {uuid: peer for uuid, peer in self._peers.items() if uuid in wanted}
            for uuid in wanted - set(self._peers):
                self._peers[uuid] = BackgroundPeer(uuid)
            now = self._clock()
            targets = [
                peer
                for _uuid, peer in sorted(self._peers.items())
                if peer.lags and not (due_only and peer.retry_at > now)
            ]
        for peer in targets:
            self._send_to(peer)
        with self._changed:
            return {peer.uuid for peer in self._peers.values() if peer.lags}

    def _send_to(self, peer: BackgroundPeer) -> None:
        with self._changed:
            peer.begins()
        problem = "it changes faster than it can be sent"
        try:
            with shortage.as_error():
                current = self._copied.send_to(peer.uuid)
        except (errors.GenericError, OSError, ValueError) as err:
            # ValueError: a damaged file of the master is no text. The thread goes on.
            current, problem = False, str(err)
        with self._changed:
            news = not current and peer.failed_at(self._clock())
            if current:
                peer.caught_up()
        if not current:
            level = logging.WARNING if news else logging.DEBUG
            _log.log(
                level, "%s cannot be sent to another candidate: %s", self._copied.name, problem
            )

    def _run(self) -> None:
        ended = False
        while not ended:
            with self._changed:
                while not self._ended and not self._noted and self._next_s() != 0.0:
                    self._changed.wait(self._next_s())
                self._changed.wait_for(lambda: self._ended or self._returned, self._gather_s)
                ended, self._noted, self._returned = self._ended, False, False
            if not ended:
                self.send(due_only=True)
            elif self._send_rest:
                self.send()

    def _next_s(self) -> float | None:
        """Return the seconds until a candidate must be tried; None without one. Needs the lock."""
        lagging = [peer.retry_at for peer in self._peers.values() if peer.lags]
        return max(0.0, min(lagging) - self._clock()) if lagging else None
