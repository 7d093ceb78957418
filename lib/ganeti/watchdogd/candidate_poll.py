"""Asks the configuration query daemons of all master candidates, without ever waiting.

Each question goes to every candidate. :meth:`CandidatePoll.take` takes in what has arrived; the
loop of the daemon calls it when the socket is readable.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterable
from typing import Final

from ganeti import errors
from ganeti.confd import protocol
from ganeti.constants import confd as confd_c
from ganeti.platform import machine
from ganeti.utils import clock, net, text
from ganeti.watchdogd.rule import Opinion, parse_opinion

_PAGES: Final = 16


class CandidatePoll:
    """One question at a time; answers to earlier ones do not count any more.

    :param name: of this node.
    :param port: of the daemons.
    :ivar asked_at: when the present question was asked.
    :ivar opinions: the answers to it, by address of the candidate.
    """

    def __init__(self, name: str, port: int) -> None:
        self._name = name
        self._port = port
        self._sockets: dict[socket.AddressFamily, socket.socket] = {}
        self._open: dict[str, str] = {}
        self._key = b""
        self.asked_at = float("-inf")
        self.opinions: dict[str, Opinion] = {}

    def descriptors(self) -> list[int]:
        """File descriptors which are readable when an answer arrives."""
        return [one.fileno() for one in self._sockets.values()]

    def ask(self, key: bytes, peers: Iterable[str], now: float) -> None:
        """Ask all candidates.

        :param key: the key of the cluster.
        :param peers: addresses of the candidates.
        :param now: the time, before the first question is sent.
        """
        self._key, self._open, self.opinions, self.asked_at = key, {}, {}, now
        for peer in set(peers) - set(machine.current().cut_addresses()):
            salt = text.new_uuid()
            request = protocol.ConfdRequest(confd_c.REQ_NODE_LEFT, self._name, salt)
            datagram = protocol.pack_request(key, request, clock.now())
            self._open[salt] = peer
            # A datagram which cannot be sent is a lost one.
            with contextlib.suppress(OSError):
                self._socket(peer).sendto(datagram, (peer, self._port))

    def _socket(self, peer: str) -> socket.socket:
        family = socket.AF_INET6 if net.is_ipv6(peer) else socket.AF_INET
        if family not in self._sockets:
            self._sockets[family] = socket.socket(
                family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
            )
        return self._sockets[family]

    def take(self) -> bool:
        """Take in all answers which have arrived; returns whether there is a new one."""
        found = False
        for sock in self._sockets.values():
            while True:
                try:
                    datagram = sock.recv(os.sysconf("SC_PAGESIZE") * _PAGES)
                except BlockingIOError:
                    break
                except OSError:
                    continue  # an earlier datagram has reached no daemon
                found = self.take_one(datagram) or found
        return found

    def take_one(self, datagram: bytes) -> bool:
        """Take in a datagram; returns whether it is an answer to the present question."""
        try:
            salt, reply = protocol.unpack_reply([self._key], datagram)
            peer = self._open.pop(salt, None)
            if peer is None or reply.status != confd_c.STATUS_OK:
                return False
            self.opinions[peer] = parse_opinion(reply.answer)
        except errors.GenericError:
            return False
        return True
