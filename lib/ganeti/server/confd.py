"""The main function of the configuration query daemon: socket, loop, signals.

``ganeti-confd`` answers questions about the configuration over UDP, from this node's copy of it
(:mod:`ganeti.confd`). It runs on every node, so that a new master candidate answers at once; on
other nodes it answers that it has no configuration. It writes no file, and reads only
``config.data``, ``hmac.key`` and the list of candidates, so it may run under a user of its own.

The daemon counts which requests it answered and which it ignored. It logs the counts when they have
changed: at most once a minute, after SIGHUP, and at its end.

Source: Ganeti daemons design, *Current state and shortcomings*.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import socket
import time
from typing import Final, NamedTuple

from ganeti.confd.client import default_port
from ganeti.confd.responder import Responder
from ganeti.confd.source import ConfdSource
from ganeti.config import api
from ganeti.constants import confd as const
from ganeti.objects import ConfigData
from ganeti.platform import machine, paths
from ganeti.server import daemon
from ganeti.utils import clock, inotify, net

NAME = "ganeti-confd"

_LOG_COUNTS_S = 60.0
# Number of datagrams after which the daemon looks at signals and files.
_BURST = 200


class ConfdDaemon(NamedTuple):
    """The parts of a configuration query daemon that has started."""

    sock: socket.socket
    responder: Responder
    source: ConfdSource
    watch: inotify.DirectoryWatch | None


def check(options: argparse.Namespace) -> None:
    """Refuse to start on a machine that is not a node.

    :raises StartRefused: there is no key to sign with.
    """
    daemon.require_member(paths.current().hmac_key)


def prepare(options: argparse.Namespace) -> ConfdDaemon:
    """Open the socket and read the files.

    :raises ConfigurationError: the address cannot be served.
    """
    here = paths.current()
    address = options.bind or machine.current().default_bind_address()
    family = socket.AF_INET6 if net.is_ipv6(address) else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    with daemon.serving(address, options.port):
        sock.bind((address, options.port))
    responder = Responder()
    source = ConfdSource(here, responder, _load)
    # Before the first poll, so that no change is missed between the two.
    watch = inotify.watch(here.data_dir)
    source.refresh()
    logging.info("serving %s port %d", address, options.port)
    return ConfdDaemon(sock, responder, source, watch)


def _load(path: str) -> ConfigData:
    return api.load(path)[0]


class _CountLog:
    """Logs the counts of a responder when they have changed."""

    def __init__(self, responder: Responder) -> None:
        self._responder = responder
        self._last: dict[str, int] = {}
        self._when = time.monotonic()

    def log(self, *, at_once: bool = False) -> None:
        counts = dict(self._responder.counts)
        if counts == self._last or not (at_once or time.monotonic() - self._when >= _LOG_COUNTS_S):
            return
        self._last, self._when = counts, time.monotonic()
        logging.info(
            "datagrams: %s", ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))
        )


def run(options: argparse.Namespace, confd: ConfdDaemon, signals: daemon.Signals) -> int | None:
    """Serve until a signal says to stop."""
    sock, responder, source, watch = confd
    counts = _CountLog(responder)
    sources = [sock.fileno(), signals.fileno(), *([] if watch is None else [watch.fileno()])]
    while True:
        ready = net.wait_readable(sources, min(source.wait_s(), _LOG_COUNTS_S))
        if signals.fileno() in ready:
            taken = signals.take()
            counts.log(at_once=True)
            if any(number in daemon.STOP_SIGNALS for number in taken):
                return None
        if watch is not None and watch.fileno() in ready and watch.take():
            source.note()
        source.refresh()
        if sock.fileno() in ready:
            _serve(sock, responder)
        counts.log()


def _serve(sock: socket.socket, responder: Responder) -> None:
    for _ in range(_BURST):
        try:
            # One byte more than allowed, so that a request which is too long is recognised.
            datagram, peer = sock.recvfrom(const.MAX_REQUEST_BYTES + 1)
        except BlockingIOError:
            return
        except OSError as err:
            # The error of an earlier answer whose receiver has gone.
            logging.debug("cannot receive: %s", err)
            continue
        reply = responder.answer(datagram, clock.now(), clock.monotonic(), peer)
        if reply is not None:
            with contextlib.suppress(OSError):
                sock.sendto(reply, peer)


DAEMON: Final = daemon.Daemon(NAME, check, prepare, run, port=default_port, early_drop=True)
main = DAEMON.main
