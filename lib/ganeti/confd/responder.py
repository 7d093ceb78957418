"""From datagram to datagram: what a daemon does with what arrives. No sockets, no files, no clock.

Whatever is not a fresh request, signed with the cluster's key, gets no answer at all; it is only
counted. So a stranger learns nothing, and the daemon cannot be used to flood somebody else. The
time in a request must be near ours, and a request that was seen before is a replay. How long that
is remembered does not depend on the clock of the day, which may be put forward and back. (What was
seen is forgotten when the daemon ends; within the permitted skew an answer may then be had twice.
It is the same answer.)
"""

from __future__ import annotations

from collections import Counter, deque

from ganeti import errors
from ganeti.confd import protocol
from ganeti.confd.queries import NO_CONFIG, Facts
from ganeti.constants import confd as const

ANSWERED = "answered"
BAD_MAGIC = "wrong magic"
BAD_SIGNATURE = "wrong key"
BAD_SALT = "wrong time"
REPLAYED = "replayed"
MALFORMED = "malformed"
TOO_LARGE = "answer too large"


class Responder:
    """Answers datagrams; the owner sets :attr:`facts` and the key when they change."""

    def __init__(self) -> None:
        self.facts: Facts | None = None
        self.counts: Counter[str] = Counter()
        self._key: bytes | None = None
        self._old_key: tuple[bytes, float] | None = None
        self._seen: set[str] = set()
        self._seen_order: deque[tuple[float, str]] = deque()

    def use_key(self, key: bytes | None, tick: float, *, keep_old_s: float) -> None:
        """Answer requests with this key; for a while still those with the one before.

        So daemons and clients need not learn of a new key in the same moment.

        :param tick: seconds on a clock that is never set, as for :meth:`answer`.
        """
        if key == self._key:
            return
        self._old_key = None if self._key is None or key is None else (self._key, tick + keep_old_s)
        self._key = key

    def answer(self, datagram: bytes, now: float, tick: float) -> bytes | None:
        """The datagram to send back, or None.

        :param now: seconds since 1970.
        :param tick: seconds on a clock that is never set.
        """
        outcome, reply = self._judge(datagram, now, tick)
        self.counts[outcome] += 1
        return reply

    def _keys(self, tick: float) -> list[bytes]:
        if self._old_key is not None and tick > self._old_key[1]:
            self._old_key = None
        keys = [] if self._key is None else [self._key]
        return keys if self._old_key is None else [*keys, self._old_key[0]]

    def _judge(self, datagram: bytes, now: float, tick: float) -> tuple[str, bytes | None]:
        try:
            signed = protocol.unpack(self._keys(tick), datagram)
        except errors.ConfdMagicError:
            return BAD_MAGIC, None
        except protocol.BadSignature:
            return BAD_SIGNATURE, None
        except errors.ConfdClientError:
            return MALFORMED, None
        if (
            not (signed.salt.isascii() and signed.salt.isdecimal() and len(signed.salt) < 20)
            or abs(int(signed.salt) - now) > const.MAX_CLOCK_SKEW_S
        ):
            return BAD_SALT, None
        if self._is_replay(signed.signature, tick):
            return REPLAYED, None
        try:
            request = protocol.parse_request(signed.message)
        except errors.ConfdClientError:
            return MALFORMED, None
        reply = self.facts.reply(request) if self.facts is not None else NO_CONFIG
        packed = protocol.pack_reply(signed.key, request, reply)
        if len(packed) <= const.MAX_DATAGRAM_BYTES:
            return ANSWERED, packed
        text = f"the answer has {len(packed)} bytes, which is more than fits into a datagram"
        reply = protocol.Reply(const.STATUS_ERROR, text, reply.serial)
        return TOO_LARGE, protocol.pack_reply(signed.key, request, reply)

    def _is_replay(self, signature: str, tick: float) -> bool:
        # A salt may lie ahead of our clock as far as behind it, so it stays good twice as long.
        oldest = tick - 2 * const.MAX_CLOCK_SKEW_S
        while self._seen_order and self._seen_order[0][0] < oldest:
            self._seen.discard(self._seen_order.popleft()[1])
        if signature in self._seen:
            return True
        self._seen.add(signature)
        self._seen_order.append((tick, signature))
        return False
