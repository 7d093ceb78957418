"""The configuration query daemon: socket, files and signals around :mod:`ganeti.confd`.

``ganeti-confd`` answers questions about the configuration over UDP, from this node's copy of it.
It runs on every node, so that a node that becomes a master candidate serves at once; on any other
node it says that it knows nothing. It owns nothing and writes nothing, and needs to read only
``config.data`` and ``hmac.key``, so it may run under a user of its own.

A new configuration is noticed through inotify, at most every quarter of a second, and at the latest
after 17 seconds by looking. Reading a large one takes time during which requests wait in the
socket; so the pause before the next is at least four times as long as the last reading took.

What was answered and what was ignored is counted, and logged when it changed, at most once a
minute, on SIGHUP, and at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import select
import socket
import sys
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, NoReturn

from ganeti import errors
from ganeti.confd.client import default_port
from ganeti.confd.queries import Facts
from ganeti.confd.responder import Responder
from ganeti.config import api
from ganeti.constants import confd as const
from ganeti.constants import ssconf
from ganeti.platform import hosts, paths
from ganeti.server import daemon
from ganeti.utils import clock, fs, inotify, net

NAME = "ganeti-confd"

#: Requests signed with the key before are answered so long after a renewal.
OLD_KEY_S = 60.0
_LOG_COUNTS_S = 60.0
_BUSY_SHARE = 4
# So many datagrams are answered before signals and files get their turn.
_BURST = 200

_Stamp = tuple[int, int, int]


class Source:
    """The files a daemon answers from, read again when they changed.

    :param monotonic: seconds, for pauses.
    """

    def __init__(
        self,
        here: paths.Paths,
        responder: Responder,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._here = here
        self._responder = responder
        self._monotonic = monotonic
        self._stamps: dict[str, _Stamp | None] = {}
        self._next_look = 0.0
        self._earliest = 0.0
        self._dirty = True

    def note(self) -> None:
        """Something in the directory changed: look soon."""
        self._dirty = True

    def wait_s(self) -> float:
        """How long until :meth:`refresh` has something to do."""
        due = self._earliest if self._dirty else self._next_look
        return max(0.0, due - self._monotonic())

    def refresh(self) -> None:
        """Read what changed, when it is time."""
        if self.wait_s() > 0:
            return
        started = self._monotonic()
        self._dirty = False
        self._read_key()
        self._read_config()
        took_s = self._monotonic() - started
        self._earliest = self._monotonic() + max(const.RELOAD_LEAST_S, _BUSY_SHARE * took_s)
        self._next_look = self._monotonic() + const.RELOAD_MOST_S

    def _changed(self, *names: str) -> bool:
        stamps = {name: _stamp(name) for name in names}
        if all(name in self._stamps and self._stamps[name] == stamps[name] for name in names):
            return False
        self._stamps.update(stamps)
        return True

    def _read_key(self) -> None:
        path = self._here.hmac_key
        if not self._changed(path):
            return
        key: bytes | None = None
        try:
            key = fs.read_bytes(path)
        except OSError as err:
            logging.error("cannot read %s, so nothing is answered: %s", path, err.strerror)
        self._responder.use_key(key, self._monotonic(), keep_old_s=OLD_KEY_S)

    def _read_config(self) -> None:
        path = self._here.cluster_conf_file
        listing = self._here.ssconf_file(ssconf.MASTER_CANDIDATES)
        if not self._changed(path, listing):
            return
        try:
            candidates = fs.read_file(listing).split()
            if hosts.hostname() not in candidates:
                # A copy may be left from a time when this node was one.
                raise errors.ConfigurationError("this node is no master candidate")
            data, _ = api.load(path)
        except (OSError, errors.ConfigurationError) as err:
            if self._responder.facts is not None or self._stamps[path] is not None:
                logging.warning("without configuration from now on: %s", err)
            self._responder.facts = None
            return
        self._responder.facts = Facts(data)
        logging.info("answering from configuration %d", data.serial_no)


def _stamp(path: str) -> _Stamp | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


class Prepared(NamedTuple):
    """What is ready before privileges are dropped."""

    sock: socket.socket
    responder: Responder
    source: Source
    watch: inotify.DirectoryWatch | None


def check(options: argparse.Namespace) -> None:
    """Refuse to start on a machine that is no node.

    :raises Refuse: there is no key to sign with.
    """
    daemon.require_member(paths.current().hmac_key)


def prepare(options: argparse.Namespace) -> Prepared:
    """Open the socket and read the files.

    :raises ConfigurationError: the address cannot be served.
    """
    here = paths.current()
    address = options.bind or _default_address()
    family = socket.AF_INET6 if net.is_ipv6(address) else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        sock.bind((address, options.port))
    except OSError as err:
        sock.close()
        raise errors.ConfigurationError(
            f"cannot serve {address} port {options.port}: {err.strerror}"
        ) from err
    responder = Responder()
    source = Source(here, responder)
    # Before the first look, so that no change falls between the two.
    watch = inotify.watch(here.data_dir)
    source.refresh()
    logging.info("serving %s port %d", address, options.port)
    return Prepared(sock, responder, source, watch)


def _default_address() -> str:
    if not paths.is_virtual():
        return "0.0.0.0"
    try:
        return hosts.resolve(hosts.hostname())
    except errors.ResolverError as err:
        raise errors.ConfigurationError(f"cannot find the address to serve: {err}") from err


class _Counts:
    """Says what was counted, when it changed."""

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


def run(options: argparse.Namespace, prepared: Prepared, signals: daemon.Signals) -> int | None:
    """Serve until a signal says to stop."""
    sock, responder, source, watch = prepared
    counts = _Counts(responder)
    poll = select.poll()
    for one in (sock, signals, watch):
        if one is not None:
            poll.register(one.fileno(), select.POLLIN)
    while True:
        ready = {fd for fd, _ in poll.poll(min(source.wait_s(), _LOG_COUNTS_S) * 1000)}
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
            # One byte more than allowed, so that a longer one is not taken for a whole one.
            datagram, peer = sock.recvfrom(const.MAX_REQUEST_BYTES + 1)
        except BlockingIOError:
            return
        except OSError as err:
            # An answer to somebody who is gone comes back as an error here.
            logging.debug("cannot receive: %s", err)
            continue
        reply = responder.answer(datagram, clock.now(), clock.monotonic())
        if reply is not None:
            with contextlib.suppress(OSError):
                sock.sendto(reply, peer)


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Entry point of ``ganeti-confd``."""
    daemon.main(
        NAME,
        sys.argv[1:] if argv is None else argv,
        check=check,
        prepare=prepare,
        run=run,
        port=default_port(),
        early_drop=True,
    )
