"""Calling node daemons: the only user of pycurl.

:meth:`Client.perform` sends any number of requests at once and returns when each has an answer or a
failure. It may be called from any number of threads: each drives its own transfers (libcurl works
without Python's lock, so two threads really encrypt at the same time). What threads share is the
store of idle handles, one list per node, and that of idle multis. A handle keeps the TLS sessions
of its node, so a call to a known node costs no full handshake, whichever thread makes it. (A ticket
of TLS 1.3 is good for one connection; with one cache per node, parallel calls would run out of
tickets. See also :data:`RESUMES`.)

One request or many run in a multi, driven by ``poll`` (libcurl's own ``select`` cannot see
descriptors above 1023, and the master has thousands). A handle used alone would keep a multi of its
own, with open files, for each node; through a shared multi a call costs 0.1 ms more.

A request that may *keep* its connection is made with such a handle all the same: the connection
stays open in it, which spares the next request of this kind fork and handshake. libcurl opens a new
one when the old one was closed meanwhile, and sends the request again; so only what may be done
twice is asked in this way. A node that lost its power closes nothing: there the kernel gives the
connection up when nothing was heard for :data:`SILENCE_S`, and the new one shows that nobody is
there. (Calls with a connection of their own do not need that. They find out when they connect, and
a long one may survive a network that is gone for a while.)

A transfer ends in a :class:`Reply` or in a :class:`Failure` of one of three kinds: ``unreachable``
(no connection, or no answer in time), ``refused`` (one side does not accept the other's
certificate), ``failed`` (the connection broke in the middle: nobody knows what the node did).
"""

from __future__ import annotations

import io
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import pycurl

from ganeti import errors, http

CONNECT_TIMEOUT_S = 5.0
#: A kept connection on which the peer's kernel is silent for so long is given up.
SILENCE_S = 10
#: Transfers one fan-out runs at the same time; the others wait for a place.
MAX_PARALLEL = 100

UNREACHABLE = "unreachable"
REFUSED = "refused"
FAILED = "failed"

# Idle handles kept per node; a fan-out uses one, parallel jobs one each.
_IDLE_HANDLES = 32
# Less than a server keeps a connection, so that it is seldom found closed.
_KEEP_S = 45
_HEADERS = ["Content-Type: application/json", "Expect:", "Accept:"]
_ERROR_PREFIX = http.ERROR_HEADER.lower().encode() + b":"
_EPOCH_PREFIX = http.EPOCH_HEADER.lower().encode() + b":"

#: Whether TLS sessions can be resumed; a libcurl on GnuTLS (Debian's for Python) takes no tickets.
RESUMES = "GnuTLS" not in pycurl.version

# The other side's certificate is not one of our cluster's; or our own is unusable.
_TRUST_CODES = frozenset(
    {pycurl.E_PEER_FAILED_VERIFICATION, pycurl.E_SSL_CERTPROBLEM, pycurl.E_SSL_CACERT_BADFILE}
)
# The connection stood and ended too early.
_BROKEN_CODES = frozenset(
    {
        pycurl.E_GOT_NOTHING,
        pycurl.E_RECV_ERROR,
        pycurl.E_SEND_ERROR,
        pycurl.E_PARTIAL_FILE,
        pycurl.E_WRITE_ERROR,
        pycurl.E_FILESIZE_EXCEEDED,
    }
)


class OutgoingRequest(NamedTuple):
    """One call. ``timeout_s``: for everything, from connecting to the last byte of the answer.

    ``headers``: further lines ``Name: value``.
    ``keep``: it may use an open connection, and leave one; by itself only such a one which served
    none but requests of the same ``lane``.
    """

    address: str
    port: int
    procedure: str
    body: bytes
    timeout_s: float
    headers: tuple[str, ...] = ()
    keep: bool = False
    connection_class: str = ""


class Reply(NamedTuple):
    """What a node answered. ``error``, ``epoch``: values of the headers of these names, or empty.

    The names are :data:`ganeti.http.ERROR_HEADER` and :data:`ganeti.http.EPOCH_HEADER`.
    """

    status: int
    body: bytes
    error: str
    epoch: str = ""


class Failure(NamedTuple):
    """Why there is no answer: one of :data:`UNREACHABLE`, :data:`REFUSED`, :data:`FAILED`."""

    kind: str
    message: str


Outcome = Reply | Failure


class _Transfer:
    """One request on its way."""

    __slots__ = ("body", "generation", "handle", "headers", "index", "request")

    def __init__(
        self, index: int, request: OutgoingRequest, handle: pycurl.Curl, generation: int
    ) -> None:
        self.generation = generation
        self.index = index
        self.request = request
        self.handle = handle
        self.body = io.BytesIO()
        self.headers: list[bytes] = []
        host = f"[{request.address}]" if ":" in request.address else request.address
        handle.setopt(pycurl.URL, f"https://{host}:{request.port}/{request.procedure}")
        handle.setopt(pycurl.HTTPHEADER, [*_HEADERS, *request.headers])
        handle.setopt(pycurl.POSTFIELDS, request.body)
        handle.setopt(pycurl.TIMEOUT_MS, max(1, int(request.timeout_s * 1000)))
        handle.setopt(pycurl.WRITEFUNCTION, self.body.write)
        handle.setopt(pycurl.HEADERFUNCTION, self.headers.append)

    def reply(self) -> Reply:
        return Reply(
            self.handle.getinfo(pycurl.RESPONSE_CODE),
            self.body.getvalue(),
            self._header(_ERROR_PREFIX),
            self._header(_EPOCH_PREFIX),
        )

    def _header(self, prefix: bytes) -> str:
        for line in self.headers:
            if line.lower().startswith(prefix):
                return line[len(prefix) :].decode("ascii", "replace").strip()
        return ""

    def failure(self, code: int, message: str) -> Failure:
        text = message or pycurl_text(code)
        # GnuTLS has no code of its own for our certificate being unusable.
        if code in _TRUST_CODES or "X.509" in text:
            return Failure(REFUSED, f"certificates do not fit: {text}")
        # A TLS alert is the node's word that it does not like our certificate; libcurl reports it
        # while connecting (TLS 1.2) or when it reads the answer (TLS 1.3).
        if "alert" in text and code in (pycurl.E_SSL_CONNECT_ERROR, *_BROKEN_CODES):
            return Failure(REFUSED, f"the node does not accept our certificate: {text}")
        if code == pycurl.E_OPERATION_TIMEDOUT and self._sent():
            return Failure(UNREACHABLE, f"no answer within {self.request.timeout_s:g} s")
        if code in _BROKEN_CODES and self._sent():
            return Failure(
                FAILED,
                "the connection broke before the answer was complete, so the "
                f"call may or may not have been done: {text}",
            )
        return Failure(UNREACHABLE, text)

    def _sent(self) -> bool:
        return bool(self.handle.getinfo(pycurl.REQUEST_SIZE) > 0)


def pycurl_text(code: int) -> str:
    """A text for a libcurl error that came without one."""
    return f"transfer failed with code {code}"


def watch_peer(descriptor: int, _purpose: int) -> int:
    """Let the kernel find out whether the other end of a new connection is alive."""
    connection = socket.socket(fileno=descriptor)
    try:
        for level, option, value in (
            (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
            (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, SILENCE_S),
            (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, SILENCE_S // 2),
            # Also for what was sent and never acknowledged.
            (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENCE_S * 1000),
        ):
            connection.setsockopt(level, option, value)
    finally:
        connection.detach()
    return int(pycurl.SOCKOPT_OK)


# Which requests may use a handle: address, port, whether it keeps its connection, the lane, alone.
_Kind = tuple[str, int, bool, str, bool]


def _kind(request: OutgoingRequest, alone: bool) -> _Kind:
    return (request.address, request.port, request.keep, request.connection_class, alone)


class Client:
    """Sends requests with this node's certificate; see the module's essay.

    :param ca_file: the cluster's server certificate.
    :param cert_file: our key and certificate.
    """

    def __init__(
        self,
        ca_file: str,
        cert_file: str,
        *,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        max_parallel: int = MAX_PARALLEL,
    ) -> None:
        self._ca_file = ca_file
        self._cert_file = cert_file
        self._connect_timeout_s = connect_timeout_s
        self._max_parallel = max_parallel
        self._lock = threading.Lock()
        self._idle: dict[_Kind, list[pycurl.Curl]] = {}
        self._drivers: list[_Driver] = []
        # Counts what :meth:`reset` forgot, so that what was in use then is not kept either.
        self._generation = 0

    def perform(self, requests: Sequence[OutgoingRequest]) -> list[Outcome]:
        """Send all requests at once; outcomes in the same order.

        :raises ConfigurationError: libcurl cannot be used in this way at all.
        """
        if not requests:
            return []
        if len(requests) == 1 and requests[0].keep:
            return [self._perform_kept(requests[0])]
        with self._lock:
            driver = self._drivers.pop() if self._drivers else None
            generation = self._generation
        driver = driver or _Driver()
        outcomes = driver.run(self, requests, self._max_parallel)
        # After an error it is not used again.
        with self._lock:
            if generation == self._generation:
                self._drivers.append(driver)
        return outcomes

    def _perform_kept(self, request: OutgoingRequest) -> Outcome:
        transfer = self.open(0, request, alone=True)
        try:
            transfer.handle.perform()
            outcome: Outcome = transfer.reply()
        except pycurl.error as err:
            outcome = transfer.failure(*err.args)
        self.close(transfer, alone=True)
        return outcome

    def reset(self, ca_file: str | None = None) -> None:
        """Forget all sessions and handles; after our certificate or the cluster's has changed.

        :param ca_file: what to trust from now on, when that is another file.
        """
        with self._lock:
            self._generation += 1
            # A driver keeps the authorities it has read; a handle sessions and connections.
            self._drivers.clear()
            self._idle.clear()
            if ca_file is not None:
                self._ca_file = ca_file

    def open(self, index: int, request: OutgoingRequest, *, alone: bool = False) -> _Transfer:
        """A transfer on an idle or new handle; give it back with :meth:`close`.

        :param alone: not in a fan-out: libcurl drops what a handle keeps open when that changes.
        """
        with self._lock:
            idle = self._idle.get(_kind(request, alone))
            handle = idle.pop() if idle else None
            generation = self._generation
        return _Transfer(index, request, handle or self._new_handle(request.keep), generation)

    def close(self, transfer: _Transfer, *, alone: bool = False) -> None:
        """Keep the handle for the next call to the same node."""
        transfer.handle.setopt(pycurl.WRITEFUNCTION, _nothing)
        transfer.handle.setopt(pycurl.HEADERFUNCTION, _nothing)
        with self._lock:
            idle = self._idle.setdefault(_kind(transfer.request, alone), [])
            if len(idle) < _IDLE_HANDLES and transfer.generation == self._generation:
                idle.append(transfer.handle)
                return
        transfer.handle.close()

    def _new_handle(self, keep: bool) -> pycurl.Curl:
        handle = pycurl.Curl()
        # A store of sessions that goes with the handle from thread to thread, from multi to multi.
        sessions = pycurl.CurlShare()
        sessions.setopt(pycurl.SH_SHARE, pycurl.LOCK_DATA_SSL_SESSION)
        try:
            for option, value in (
                (pycurl.NOSIGNAL, 1),  # threads
                (pycurl.PROXY, ""),  # whatever the environment says
                (pycurl.CUSTOMREQUEST, "PUT"),
                (pycurl.HTTPHEADER, _HEADERS),
                (pycurl.USERAGENT, "ganeti"),
                (pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_1_1),
                (pycurl.FOLLOWLOCATION, 0),
                (pycurl.MAXFILESIZE, http.MAX_ANSWER_BYTES),
                # One request per connection, as a rule: both ends agree on that.
                (pycurl.FRESH_CONNECT, int(not keep)),
                (pycurl.FORBID_REUSE, int(not keep)),
                (pycurl.MAXAGE_CONN, _KEEP_S),
                (pycurl.CONNECTTIMEOUT_MS, int(self._connect_timeout_s * 1000)),
                (pycurl.CAINFO, self._ca_file),
                (pycurl.SSLCERTTYPE, "PEM"),
                (pycurl.SSLCERT, self._cert_file),
                (pycurl.SSLKEYTYPE, "PEM"),
                (pycurl.SSLKEY, self._cert_file),
                (pycurl.SSL_VERIFYPEER, 1),
                # All nodes show the same certificate; the signature counts, not the name.
                (pycurl.SSL_VERIFYHOST, 0),
                (pycurl.SSLVERSION, pycurl.SSLVERSION_TLSv1_2),
                (pycurl.SHARE, sessions),
            ):
                handle.setopt(option, value)
            if keep:
                handle.setopt(pycurl.SOCKOPTFUNCTION, watch_peer)
            # Distributions compile in a directory of public authorities, which would be trusted
            # besides ours (and read for every connection).
            handle.unsetopt(pycurl.CAPATH)
        except pycurl.error as err:
            handle.close()
            raise errors.ConfigurationError(f"libcurl cannot be set up: {err}") from err
        return handle


class _Driver:
    """A multi: runs a fan-out to its end, in one thread at a time."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._on_socket)
        self._multi.setopt(pycurl.M_TIMERFUNCTION, self._on_timer)
        self._deadline: float | None = None
        self._watched: set[int] = set()

    def run(
        self, client: Client, requests: Sequence[OutgoingRequest], parallel: int
    ) -> list[Outcome]:
        waiting = deque(enumerate(requests))
        running: dict[pycurl.Curl, _Transfer] = {}
        outcomes: list[Outcome | None] = [None] * len(requests)
        try:
            while waiting or running:
                while waiting and len(running) < parallel:
                    transfer = client.open(*waiting.popleft())
                    running[transfer.handle] = transfer
                    self._multi.add_handle(transfer.handle)
                self._step()
                for transfer, outcome in self._finished(running):
                    outcomes[transfer.index] = outcome
                    client.close(transfer)
        finally:
            for transfer in running.values():
                # Only after an error; the multi itself goes with its last handle.
                self._multi.remove_handle(transfer.handle)
                transfer.handle.close()
        return [outcome for outcome in outcomes if outcome is not None]

    def _step(self) -> None:
        """Wait for something to happen and let libcurl work on it."""
        wait_ms = None
        if self._deadline is not None:
            wait_ms = max(0.0, (self._deadline - time.monotonic()) * 1000)
        for fd, events in self._poll.poll(wait_ms):
            mask = (
                (pycurl.CSELECT_IN if events & (select.POLLIN | select.POLLHUP) else 0)
                | (pycurl.CSELECT_OUT if events & select.POLLOUT else 0)
                | (pycurl.CSELECT_ERR if events & (select.POLLERR | select.POLLNVAL) else 0)
            )
            self._multi.socket_action(fd, mask)
        if self._deadline is not None and time.monotonic() >= self._deadline:
            self._deadline = None
            self._multi.socket_action(pycurl.SOCKET_TIMEOUT, 0)

    def _finished(
        self,
        running: dict[pycurl.Curl, _Transfer],
    ) -> list[tuple[_Transfer, Outcome]]:
        done: list[tuple[_Transfer, Outcome]] = []
        more = 1
        while more:
            more, good, bad = self._multi.info_read()
            for handle in good:
                transfer = running.pop(handle)
                done.append((transfer, transfer.reply()))
            for handle, code, text in bad:
                transfer = running.pop(handle)
                done.append((transfer, transfer.failure(code, text)))
        for transfer, _ in done:
            self._multi.remove_handle(transfer.handle)
        return done

    def _on_socket(self, event: int, fd: int, _multi: object, _data: object) -> None:
        if event == pycurl.POLL_REMOVE:
            if fd in self._watched:
                self._watched.discard(fd)
                self._poll.unregister(fd)
            return
        self._watched.add(fd)
        self._poll.register(
            fd,
            (select.POLLIN if event & pycurl.POLL_IN else 0)
            | (select.POLLOUT if event & pycurl.POLL_OUT else 0),
        )

    def _on_timer(self, timeout_ms: int) -> None:
        self._deadline = None if timeout_ms < 0 else time.monotonic() + timeout_ms / 1000


def _nothing(_data: bytes) -> None:
    """A handle that waits for its next call receives nothing."""
