"""Asks several configuration query daemons and takes the newest answer.

Datagrams get lost and candidates may lag, so a question goes to :data:`~const.COVERAGE` candidates,
chosen at random, and each datagram is signed separately. The answer with the highest serial number
counts. :class:`Conversation` is the part without sockets: it decides which answers belong to the
question, and which one is the best.

One client may ask any number of questions, one at a time.
"""

from __future__ import annotations

import os
import random
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ganeti import errors
from ganeti.confd import protocol
from ganeti.constants import confd as const
from ganeti.constants import ssconf
from ganeti.platform import machine, paths
from ganeti.utils import fs, net, text

#: Seconds to wait for a newer answer after the first one.
SETTLE_S = 0.5


class Answer(NamedTuple):
    """The newest answer.

    :ivar status: one of ``constants.confd.STATUS_*``.
    :ivar answer: the value, or the error's number or text; its type depends on the question.
    :ivar serial: serial number of the object which the answer describes.
    :ivar peer: address of the daemon which gave this answer.
    :ivar asked: number of daemons that were asked; `answers` of them answered.
    """

    status: int
    answer: Any
    serial: int
    peer: str
    asked: int
    answers: int

    @property
    def ok(self) -> bool:
        """True if the question was answered; else ``answer`` is the error's number or text."""
        return self.status == const.STATUS_OK


class Conversation:
    """One question to several daemons.

    :ivar best: the best answer until now, and the address of its daemon.
    :ivar ignored: datagrams which were not an answer: wrong key, other question, no message.
    """

    def __init__(self, key: bytes, kind: int, query: Any, *, new_salt: Callable[[], str]) -> None:
        self._key = key
        self._kind = kind
        self._query = query
        self._new_salt = new_salt
        self._open: dict[str, str] = {}
        self.best: tuple[protocol.ConfdReply, str] | None = None
        self.asked = 0
        self.answers = 0
        self.ignored = 0

    def datagram(self, peer: str, now: float) -> bytes:
        """Return the datagram with the question for one more daemon."""
        salt = self._new_salt()
        self._open[salt] = peer
        self.asked += 1
        return protocol.pack_request(
            self._key, protocol.ConfdRequest(self._kind, self._query, salt), now
        )

    def take(self, datagram: bytes) -> bool:
        """Take a datagram which arrived.

        :returns: whether it was an answer; the first one of each daemon counts.
        """
        try:
            salt, reply = protocol.unpack_reply([self._key], datagram)
        except errors.ConfdClientError:
            self.ignored += 1
            return False
        peer = self._open.pop(salt, None)
        if peer is None:
            self.ignored += 1
            return False
        self.answers += 1
        if self.best is None or _rank(reply) > _rank(self.best[0]):
            self.best = reply, peer
        return True

    @property
    def complete(self) -> bool:
        """True if all daemons have answered."""
        return not self._open


def _rank(reply: protocol.ConfdReply) -> tuple[bool, int]:
    # A daemon without configuration answers with an error; any other answer counts more.
    has_data = reply.status == const.STATUS_OK or reply.answer != const.ERROR_INTERNAL
    return has_data, reply.serial


class Client:
    """Asks the daemons of a cluster.

    :param key: content of the cluster's key file.
    :param peers: addresses of the daemons.
    :param expire_s: seconds to wait for the first answer.
    :param settle_s: seconds to wait for a newer answer after the first one.
    """

    def __init__(
        self,
        key: bytes,
        peers: Sequence[str],
        *,
        port: int | None = None,
        expire_s: float = const.EXPIRE_S,
        settle_s: float = SETTLE_S,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        sample: Callable[[Sequence[str], int], list[str]] = random.sample,
    ) -> None:
        self._key = key
        self._peers = list(dict.fromkeys(peers))
        self._port = port if port is not None else default_port()
        self._expire_s = expire_s
        self._settle_s = settle_s
        self._clock = clock
        self._monotonic = monotonic
        self._sample = sample

    @classmethod
    def of_this_node(
        cls, here: paths.Paths | None = None, *, peers: Sequence[str] | None = None
    ) -> Client:
        """Make a client with this node's key, for the master candidates which this node knows.

        :raises ConfdClientError: this machine has no key, or knows no candidates.
        """
        here = here or paths.current()
        listing = here.ssconf_file(ssconf.MASTER_CANDIDATES_IPS)
        try:
            key = fs.read_bytes(here.hmac_key)
            found = fs.read_file(listing).split() if peers is None else list(peers)
        except OSError as err:
            raise errors.ConfdClientError(f"cannot read {err.filename}: {err.strerror}") from err
        return cls(key, found)

    def query(self, kind: int, query: Any = None, *, coverage: int = const.COVERAGE) -> Answer:
        """Ask a question.

        :param kind: one of ``constants.confd.REQ_*``.
        :param query: the argument of the question; its type depends on the kind.
        :param coverage: number of daemons to ask.
        :raises ConfdClientError: no daemon answered in time, or no daemon is known.
        """
        if not self._peers:
            raise errors.ConfdClientError("there is no master candidate to ask")
        chosen = self._sample(self._peers, min(coverage, len(self._peers)))
        talk = Conversation(self._key, kind, query, new_salt=text.new_uuid)
        sockets = {}
        try:
            for peer in chosen:
                family = socket.AF_INET6 if net.is_ipv6(peer) else socket.AF_INET
                if family not in sockets:
                    sockets[family] = socket.socket(
                        family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
                    )
                try:
                    sockets[family].sendto(talk.datagram(peer, self._clock()), (peer, self._port))
                except OSError:
                    # This counts as a lost datagram.
                    continue
            self._collect(talk, list(sockets.values()))
        finally:
            for sock in sockets.values():
                sock.close()
        if talk.best is None:
            raise errors.ConfdClientError(
                f"none of {text.comma_join(chosen)} answered within {self._expire_s:g} s"
            )
        reply, peer = talk.best
        return Answer(reply.status, reply.answer, reply.serial, peer, talk.asked, talk.answers)

    def _collect(self, talk: Conversation, sockets: list[socket.socket]) -> None:
        deadline = self._monotonic() + self._expire_s
        by_fd = {sock.fileno(): sock for sock in sockets}
        while not talk.complete:
            left_s = deadline - self._monotonic()
            if left_s <= 0:
                return
            for fd in net.wait_readable(by_fd, left_s):
                try:
                    datagram = by_fd[fd].recv(os.sysconf("SC_PAGESIZE") * 16)
                except OSError:
                    continue
                if talk.take(datagram) and talk.answers == 1:
                    deadline = min(deadline, self._monotonic() + self._settle_s)


def default_port() -> int:
    """Return the UDP port of the daemons; ``/etc/services`` may change the published one."""
    return machine.current().service_port("ganeti-confd", const.PORT, "udp")
