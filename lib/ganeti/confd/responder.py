"""Checks the requests which arrive at the daemon, and answers them: no sockets, files or clocks.

Only a fresh request which is signed with the cluster's key gets an answer; every other datagram is
only counted. So an unauthenticated peer learns nothing, and cannot use the daemon to flood another
machine. The time in a request must be near the time here, and a signature that was seen before
means a replay. A client whose answer was lost may send its datagram again: from the same address
and port a request gets an answer :data:`MOST_ANSWERS` times. Signatures are remembered for a time
of the monotonic clock, because the time of day may be changed. (The daemon forgets them when it
ends. Within the permitted difference of the clocks a copy of a request may then get an answer once
more; it is the same answer.)

A datagram is an entry point: when its content causes any error, the datagram gets no answer, is
counted, and the daemon goes on.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Hashable

from ganeti import errors
from ganeti.confd import protocol
from ganeti.confd.queries import NO_CONFIG, ConfigFacts
from ganeti.constants import confd as const

ANSWERED = "answered"
BAD_MAGIC = "wrong magic"
BAD_SIGNATURE = "wrong key"
BAD_SALT = "wrong time"
REPLAYED = "replayed"
MALFORMED = "malformed"
TOO_LARGE = "answer too large"
FAILED = "internal error"

#: Number of times for which one request from one address and port gets an answer.
MOST_ANSWERS = 4


class Responder:
    """Answers datagrams; the daemon sets :attr:`facts` and the key when they change.

    :ivar facts: the configuration; None when this node has none.
    :ivar age_s: returns the seconds for which it may have been replaced already.
    :ivar counts: number of datagrams by outcome, for the log.
    """

    def __init__(self) -> None:
        self.facts: ConfigFacts | None = None
        self.age_s: Callable[[], float] = lambda: 0.0
        self.counts: Counter[str] = Counter()
        self._key: bytes | None = None
        self._old_key: tuple[bytes, float] | None = None
        self._reported: set[type[Exception]] = set()
        # By signature: who sent the request, and how many more answers it gets.
        self._seen: dict[str, tuple[Hashable, int]] = {}
        self._seen_order: deque[tuple[float, str]] = deque()

    def use_key(self, key: bytes | None, tick: float, *, keep_old_s: float) -> None:
        """Accept requests with this key, and for some time also those with the previous one.

        So daemons and clients need not get a new key at the same moment.

        :param tick: seconds of the monotonic clock.
        :param keep_old_s: seconds for which the previous key is accepted.
        """
        if key == self._key:
            return
        self._old_key = None if self._key is None or key is None else (self._key, tick + keep_old_s)
        self._key = key

    def answer(
        self, datagram: bytes, now: float, tick: float, peer: Hashable = None
    ) -> bytes | None:
        """Return the datagram to send back; None when there is no answer.

        :param now: seconds since the epoch.
        :param tick: seconds of the monotonic clock.
        :param peer: address and port of the sender; None when they are not known, so that a
            repeated request gets no answer.
        """
        try:
            outcome, reply = self._judge(datagram, now, tick, peer)
        except Exception as err:  # noqa: BLE001 -- the entry point of a datagram
            outcome, reply = FAILED, None
            self._report(err)
        self.counts[outcome] += 1
        return reply

    def _report(self, err: Exception) -> None:
        """Log the first error of each class; a flood of datagrams must not fill the disk."""
        if type(err) not in self._reported:
            self._reported.add(type(err))
            logging.error("a datagram caused an internal error", exc_info=err)

    def _keys(self, tick: float) -> list[bytes]:
        if self._old_key is not None and tick > self._old_key[1]:
            self._old_key = None
        keys = [] if self._key is None else [self._key]
        return keys if self._old_key is None else [*keys, self._old_key[0]]

    def _judge(
        self, datagram: bytes, now: float, tick: float, peer: Hashable
    ) -> tuple[str, bytes | None]:
        try:
            signed = protocol.unpack(self._keys(tick), datagram)
        except errors.ConfdMagicError:
            return BAD_MAGIC, None
        except protocol.BadSignature:
            return BAD_SIGNATURE, None
        except errors.ConfdClientError:
            return MALFORMED, None
        kind = signed.message.get("type") if isinstance(signed.message, dict) else None
        if (
            not (signed.salt.isascii() and signed.salt.isdecimal() and len(signed.salt) < 20)
            or abs(int(signed.salt) - now) > const.MAX_CLOCK_SKEW_S
        ) and kind != const.REQ_NODE_LEFT:
            return BAD_SALT, None
        if self._is_replay(signed.signature, tick, peer):
            return REPLAYED, None
        try:
            request = protocol.parse_request(signed.message)
        except errors.ConfdClientError:
            return MALFORMED, None
        reply = self.facts.reply(request, self.age_s) if self.facts is not None else NO_CONFIG
        packed = protocol.pack_reply(signed.key, request, reply)
        if len(packed) <= const.MAX_DATAGRAM_BYTES:
            return ANSWERED, packed
        text = f"the answer has {len(packed)} bytes, which is more than fits into a datagram"
        reply = protocol.ConfdReply(const.STATUS_ERROR, text, reply.serial)
        return TOO_LARGE, protocol.pack_reply(signed.key, request, reply)

    def _is_replay(self, signature: str, tick: float, peer: Hashable) -> bool:
        # A salt may be as far in the future as in the past, so it stays valid twice as long.
        oldest = tick - 2 * const.MAX_CLOCK_SKEW_S
        while self._seen_order and self._seen_order[0][0] < oldest:
            self._seen.pop(self._seen_order.popleft()[1], None)
        if signature in self._seen:
            sender, left = self._seen[signature]
            if peer is None or peer != sender or left == 0:
                return True
            self._seen[signature] = (sender, left - 1)
            return False
        self._seen[signature] = (peer, MOST_ANSWERS - 1)
        self._seen_order.append((tick, signature))
        return False
