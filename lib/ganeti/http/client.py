"""The HTTPS client for node calls.

:meth:`Client.perform` sends any number of requests at the same time and returns when each has an
answer or a failure. Any number of threads may call it: each runs its own transfers (libcurl works
without the lock of Python, so two threads really encrypt at the same time). Threads share the store
of idle handles, one list per node, and that of idle multis. A handle keeps the TLS sessions of its
node, so a call to a known node needs no full handshake, in any thread. (A ticket of TLS 1.3 is
valid for one connection; with one cache per node, parallel calls would have too few tickets. See
also :data:`RESUMES`.)

Requests run in a multi, driven by ``poll`` (the ``select`` of libcurl does not support descriptors
above 1023, and the master has thousands). A handle which is used alone would keep a multi of its
own, with open files, for each node; with a shared multi a call costs 0.1 ms more.

A request which may *keep* its connection is nevertheless made with such a handle: the connection
stays open in it, so the next request of this kind needs no fork and no handshake. If the connection
was closed meanwhile, the request is sent again over a new one; therefore only requests which may be
carried out twice are made in this way. (libcurl does that by itself, too, but not always in version
7.88 with GnuTLS, which Debian 12 has.) A node which lost its power does not close its connections:
the kernel gives up a connection on which nothing was received for :data:`SILENCE_S`, and the
attempt to open a new one fails; what was sent before may have arrived. (Calls with a connection of
their own do not need that. They detect it when they connect, and a long call may survive an
interruption of the network.)

A burst of calls leaves many idle handles: an open connection needs 90 KiB, and a handle without one
40 KiB. Those which nobody has used while their connection may be kept are closed, except for one of
each kind, and there are never more than :data:`MAX_IDLE`. A multi has connections to the nodes for
which it was used, so the next calls to these nodes use it again.

A request may *pin* the key of its node: the connection is closed before anything is sent, unless
the certificate of the peer has this key. A resumed session or a kept connection is that of an
earlier request with the same pin, so it costs nothing more.

The key decides, and not the date: when libcurl refuses the certificate of a node, the request is
repeated with the pin alone. Without a pin, the node is asked for its key in a handshake of its own,
in which the signature of the cluster counts and the date does not. So a cluster whose certificate
has expired goes on, with one more handshake for each new connection, and can be given another one.

A transfer ends with a :class:`Reply` or with a :class:`Failure` of one of three kinds:
``unreachable`` (no connection, or no answer in time), ``refused`` (one side does not accept the
certificate of the other), ``failed`` (the connection broke; it is unknown what the node did).
"""

from __future__ import annotations

import errno
import functools
import select
import socket
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, cast

import pycurl

from ganeti import errors, http
from ganeti.http.received import Received
from ganeti.utils import memory, metrics, x509
from ganeti.utils.net import wait_readable

_CALL_TIME = metrics.Histogram(
    "ganeti_master_node_call_seconds",
    "Time from the beginning of a call to a node to the end of its answer",
    ("call",),
)

CONNECT_TIMEOUT_S = 5.0
#: Seconds without an answer of the peer's kernel after which a kept connection is closed.
SILENCE_S = 10
#: Number of transfers which one call of ``perform`` runs at the same time; the others wait.
MAX_PARALLEL = 100

UNREACHABLE = "unreachable"
REFUSED = "refused"
FAILED = "failed"

#: Handles which are kept for all nodes together, and connections in idle multis.
MAX_IDLE = 320
# Idle handles which are kept for each node. One call of ``perform`` uses one of them.
_IDLE_HANDLES = 32
# Connections which a multi keeps open; more than a cluster has nodes.
_KEPT_CONNECTIONS = 4096
# Less than a server keeps a connection, so that it is seldom closed already.
_KEEP_S = 45
# For this long a node's TLS session is kept, with the last idle handle.
_KEEP_LAST_S = 900
# Smaller than the 64 KiB which each handle would keep; a record of TLS has no more.
_UPLOAD_BYTES = 16 * 1024
_HEADERS = ["Content-Type: application/json", "Expect:", "Accept:"]
_ERROR_PREFIX = http.ERROR_HEADER.lower().encode() + b":"
_EPOCH_PREFIX = http.EPOCH_HEADER.lower().encode() + b":"
_RELEASE_PREFIX = http.RELEASE_HEADER.lower().encode() + b":"
_IGNORED_PREFIX = http.IGNORED_HEADER.lower().encode() + b":"

#: Whether TLS sessions can be resumed: libcurl with GnuTLS (in Debian) does not use tickets.
RESUMES = "GnuTLS" not in pycurl.version

# The certificate of the node is not one of the cluster, or our own cannot be used.
_TRUST_CODES = frozenset(
    {pycurl.E_PEER_FAILED_VERIFICATION, pycurl.E_SSL_CERTPROBLEM, pycurl.E_SSL_CACERT_BADFILE}
)
# The connection was established and ended too early.
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
    """A request for one node.

    :ivar timeout_s: time limit in seconds, from connecting to the last byte of the answer.
    :ivar headers: further lines ``Name: value``.
    :ivar keep: the request may use an open connection and leave it open. A connection only serves
        requests of the same connection class.
    :ivar connection_class: see :class:`ganeti.wire.calls.base.Call`.
    :ivar pin: the keys which the node may have, from :func:`pin_text`; empty for any key of the
        cluster.
    :ivar show: the reply contains the certificate of the node; needs a full handshake.
    """

    address: str
    port: int
    procedure: str
    body: bytes
    timeout_s: float
    headers: tuple[str, ...] = ()
    keep: bool = False
    connection_class: str = ""
    pin: str = ""
    show: bool = False


class Reply(NamedTuple):
    """The answer of a node.

    :ivar status: HTTP status.
    :ivar error: value of :data:`ganeti.http.ERROR_HEADER`, or empty.
    :ivar epoch: value of :data:`ganeti.http.EPOCH_HEADER`, or empty.
    :ivar certificate: PEM of the node's certificate, if the request asked for it; else empty.
    :ivar release: value of :data:`ganeti.http.RELEASE_HEADER`, or empty.
    :ivar ignored: value of :data:`ganeti.http.IGNORED_HEADER`, or empty.
    """

    status: int
    body: bytes
    error: str
    epoch: str = ""
    certificate: str = ""
    release: str = ""
    ignored: str = ""


class Failure(NamedTuple):
    """The reason why there is no answer.

    :ivar kind: :data:`UNREACHABLE`, :data:`REFUSED` or :data:`FAILED`.
    :ivar machine_is_on: only for :data:`UNREACHABLE`: the system of the machine accepted or refused
        the connection, so that the machine is not switched off.
    :ivar sent: the node may have received the request, and may carry it out.
    :ivar wrong_key: only for :data:`REFUSED`: the peer belongs to the cluster and has another key
        than the pinned one. Nothing was sent.
    """

    kind: str
    message: str
    machine_is_on: bool = False
    sent: bool = False
    wrong_key: bool = False


Outcome = Reply | Failure

#: Is called with the index of a request and its outcome; what it returns is ignored.
OnOutcome = Callable[[int, Outcome], object]
#: Returns the time of the monotonic clock at which the requests without an outcome are given up;
#: None while all of them are waited for.
Until = Callable[[], float | None]


class _Transfer:
    """A request which is being sent."""

    __slots__ = (
        "_maybe_sent", "_mistrust", "_repeated", "generation", "handle", "index", "received",
        "request", "used_up",
    )  # fmt: skip

    def __init__(
        self, index: int, request: OutgoingRequest, handle: pycurl.Curl, generation: int
    ) -> None:
        self._repeated = False
        self._maybe_sent = False
        # Why the certificate of the node was refused before its key was asked for.
        self._mistrust = ""
        #: The handle has settings of this request, and serves no other one.
        self.used_up = False
        self.generation = generation
        self.index = index
        self.request = request
        self.handle = handle
        self.received = Received(http.MAX_ANSWER_BYTES)
        host = f"[{request.address}]" if ":" in request.address else request.address
        handle.setopt(pycurl.URL, f"https://{host}:{request.port}/{request.procedure}")
        handle.setopt(pycurl.HTTPHEADER, [*_HEADERS, *request.headers])
        handle.setopt(pycurl.POSTFIELDS, request.body)
        # Without keep, both ends use a connection for one request.
        handle.setopt(pycurl.FRESH_CONNECT, int(not request.keep))
        handle.setopt(pycurl.TIMEOUT_MS, max(1, int(request.timeout_s * 1000)))
        handle.setopt(pycurl.WRITEFUNCTION, self.received.write)
        handle.setopt(pycurl.HEADERFUNCTION, self.received.add_header)

    def uses_kept(self, *, alone: bool) -> None:
        """Prepare for a handle or a multi which may have an open connection to the node.

        When libcurl has sent the request over a connection which breaks, it sends it again over a
        new one. If that cannot be opened, it does not say any more that something was sent.

        :param alone: the handle itself has the connection.
        """
        open_socket = self.handle.getinfo(pycurl.LASTSOCKET) if alone else None
        if open_socket == -1:
            return
        if open_socket is not None:
            if wait_readable([open_socket], 0):
                # An idle connection on which something comes is being closed by the peer.
                self.handle.setopt(pycurl.FRESH_CONNECT, 1)
                return
        self._maybe_sent = True

    def repeat(self, code: int) -> bool:
        """After an error, prepare to send the request again over a new connection.

        This is done once, when an open connection broke before anything was received.

        :returns: whether it is to be sent again.
        """
        if (
            self._repeated
            or not self.request.keep
            or code not in _BROKEN_CODES
            or self.received.headers
            or self.received.excess
            or self.handle.getinfo(pycurl.NUM_CONNECTS) > 0
        ):
            return False
        self._repeated = self._maybe_sent = True
        self.handle.setopt(pycurl.FRESH_CONNECT, 1)
        return True

    def by_key(self, code: int, text: str, shown_pin: Callable[[OutgoingRequest], str]) -> bool:
        """After a refused certificate, prepare to send the request to the known key alone.

        Nothing was sent. This is done once.

        :param shown_pin: returns the key which the node shows, empty if it is not of the cluster.
        :returns: whether it is to be sent again.
        """
        if self._mistrust or not _is_mistrust(code, text):
            return False
        pin = self.request.pin
        if not pin:
            pin = shown_pin(self.request)
            self.used_up = True
        if not pin:
            return False
        self._mistrust = text or pycurl_text(code)
        self.handle.setopt(pycurl.PINNEDPUBLICKEY, pin)
        self.handle.setopt(pycurl.SSL_VERIFYPEER, 0)
        return True

    def reply(self) -> Reply:
        return Reply(
            self.handle.getinfo(pycurl.RESPONSE_CODE),
            self.received.body(),
            self._header(_ERROR_PREFIX),
            self._header(_EPOCH_PREFIX),
            self._certificate() if self.request.show else "",
            self._header(_RELEASE_PREFIX),
            self._header(_IGNORED_PREFIX),
        )

    def _certificate(self) -> str:
        # A list of certificates, the one of the peer first; each is a list of (name, value).
        for certificate in self.handle.getinfo(pycurl.INFO_CERTINFO):
            for name, value in certificate:
                if name == "Cert":
                    return str(value)
        return ""

    def _header(self, prefix: bytes) -> str:
        for line in self.received.headers:
            if line.lower().startswith(prefix):
                return line[len(prefix) :].decode("ascii", "replace").strip()
        return ""

    def failure(self, code: int, message: str) -> Failure:
        if code == pycurl.E_FILESIZE_EXCEEDED:
            self.received.note_size()
        if self.received.excess:
            return Failure(
                FAILED,
                f"{self.received.excess}, so it was not received to its end; the call may have been"
                " carried out or not",
                sent=True,
            )
        text = message or pycurl_text(code)
        if code == pycurl.E_SSL_PINNEDPUBKEYNOTMATCH and self._mistrust:
            code, text = pycurl.E_PEER_FAILED_VERIFICATION, self._mistrust
        if code == pycurl.E_SSL_PINNEDPUBKEYNOTMATCH:
            return Failure(
                REFUSED,
                f"the machine at {self.request.address} belongs to the cluster, but it shows"
                " another key than this node has",
                wrong_key=True,
            )
        if _is_mistrust(code, text):
            return Failure(REFUSED, f"no trust between the certificates of both sides: {text}")
        # With a TLS alert the node says that it does not accept our certificate; libcurl reports it
        # while it connects (TLS 1.2) or when it reads the answer (TLS 1.3).
        if "alert" in text and code in (pycurl.E_SSL_CONNECT_ERROR, *_BROKEN_CODES):
            return Failure(REFUSED, f"the node does not accept our certificate: {text}")
        seconds = self.handle.getinfo(pycurl.TOTAL_TIME)
        # libcurl has the same code when the kernel gives the connection up.
        at_limit = code == pycurl.E_OPERATION_TIMEDOUT and seconds > 0.9 * self.request.timeout_s
        if at_limit and self._sent():
            return Failure(
                UNREACHABLE,
                f"no answer within {self.request.timeout_s:g} s",
                self._machine_is_on(),
                sent=True,
            )
        if (code in _BROKEN_CODES or code == pycurl.E_OPERATION_TIMEDOUT) and self._sent():
            return Failure(
                FAILED,
                "the connection broke before the answer was complete, so the "
                f"call may have been carried out or not: {text}",
                sent=True,
            )
        # The request which was sent before may have arrived.
        return Failure(UNREACHABLE, text, self._machine_is_on(), sent=self._maybe_sent)

    def _machine_is_on(self) -> bool:
        """Return True if the system of the peer accepted or refused this connection."""
        # CONNECT_TIME is 0 in libcurl 7.88 while there is no TLS.
        return bool(
            self.handle.getinfo(pycurl.NUM_CONNECTS) > 0
            or self.handle.getinfo(pycurl.OS_ERRNO) == errno.ECONNREFUSED
        )

    def _sent(self) -> bool:
        return bool(self.handle.getinfo(pycurl.REQUEST_SIZE) > 0)


def _is_mistrust(code: int, text: str) -> bool:
    # GnuTLS has no code for the error that our certificate cannot be used.
    return code in _TRUST_CODES or "X.509" in text


def pycurl_text(code: int) -> str:
    """Return a text for an error of libcurl which has none."""
    return f"transfer failed with code {code}"


def watch_peer(descriptor: int, _purpose: int) -> int:
    """Let the kernel check regularly whether the peer of a new connection still exists."""
    connection = socket.socket(fileno=descriptor)
    try:
        for level, option, value in (
            (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
            (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, SILENCE_S),
            (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, SILENCE_S // 2),
            # This limit holds for sent data which is not acknowledged.
            (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENCE_S * 1000),
        ):
            connection.setsockopt(level, option, value)
    finally:
        connection.detach()
    return int(pycurl.SOCKOPT_OK)


def pin_text(pins: Iterable[str]) -> str:
    """Return the value of ``OutgoingRequest.pin`` which accepts any of these keys.

    :param pins: as :func:`ganeti.utils.x509.key_pin` returns them; none accepts every key.
    """
    return _pin_text(tuple(pins))


# Every call has a pin, and keys seldom change.
@functools.lru_cache(maxsize=4096)
def _pin_text(pins: tuple[str, ...]) -> str:
    return ";".join(f"sha256//{pin}" for pin in dict.fromkeys(pins))


# The requests which may use a handle: address, port, keep, connection class, alone, pin.
# Address and port.
_Peer = tuple[str, int]
_Kind = tuple[str, int, bool, str, bool, str]


def _kind(request: OutgoingRequest, alone: bool) -> _Kind:
    return (
        request.address,
        request.port,
        request.keep,
        request.connection_class,
        alone,
        request.pin,
    )


class Client:
    """Sends requests with the certificate of this node. Thread-safe.

    :param ca_file: path of the server certificates to trust.
    :param cert_file: path of key and certificate of this node.
    :param connect_timeout_s: time limit for a connection in seconds.
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
        # The oldest first, each with the time of the monotonic clock at which it became idle; the
        # kind which was used last is the last one.
        self._idle: dict[_Kind, list[tuple[float, pycurl.Curl]]] = {}
        self._idle_count = 0
        self._sweeper: threading.Timer | None = None
        # Address and port -> the pin of the last request.
        self._pins: dict[_Peer, str] = {}
        # As the handles; each driver has connections of its own.
        self._drivers: list[tuple[float, _Driver]] = []
        # Number of resets, so that handles which were in use then are not kept.
        self._generation = 0

    def perform(
        self,
        requests: Sequence[OutgoingRequest],
        on_outcome: OnOutcome | None = None,
        until: Until | None = None,
    ) -> list[Outcome]:
        """Send all requests at the same time; return the outcomes in the same order.

        :param on_outcome: called with the index of a request and its outcome as soon as it has one.
        :param until: asked at the begin and after each outcome, for a caller who needs some of the
            answers only. Requests which are given up are ``unreachable``.
        :raises ConfigurationError: libcurl does not support a setting which is needed.
        """
        if not requests:
            return []
        if len(requests) == 1 and requests[0].keep and until is None:
            outcome = self._perform_kept(requests[0])
            if on_outcome is not None:
                on_outcome(0, outcome)
            return [outcome]
        kept = {(request.address, request.port) for request in requests if request.keep}
        with self._lock:
            driver = self._take_driver(kept)
            generation = self._generation
        outcomes = driver.run(self, requests, self._max_parallel, on_outcome, until)
        driver.peers |= kept
        # After an error, the driver is not used again.
        unused: list[_Driver] = []
        with self._lock:
            if generation == self._generation:
                self._drivers.append((time.monotonic(), driver))
                unused = self._drivers_above_limit()
                self._plan_to_sweep()
        for one in unused:
            one.close()
        return outcomes

    def _take_driver(self, peers: set[_Peer]) -> _Driver:
        """Return the idle driver which has most connections to these peers. Needs the lock.

        A driver without such connections would get more and more of them, of which only one call
        at a time has the use.
        """
        best, most = None, 0
        for place, (_since, driver) in enumerate(self._drivers):
            common = len(driver.peers & peers)
            if common > most or (not driver.peers and not most):
                best, most = place, common
        return _Driver() if best is None else self._drivers.pop(best)[1]

    def _drivers_above_limit(self) -> list[_Driver]:
        """Take out the oldest idle drivers with too many connections. Needs the lock."""
        unused = []
        total = sum(len(driver.peers) for _since, driver in self._drivers)
        while total > MAX_IDLE and len(self._drivers) > 1:
            _since, oldest = self._drivers.pop(0)
            total -= len(oldest.peers)
            unused.append(oldest)
        return unused

    def _perform_kept(self, request: OutgoingRequest) -> Outcome:
        transfer = self.open(0, request, alone=True)
        transfer.uses_kept(alone=True)
        outcome: Outcome | None = None
        while outcome is None:
            try:
                transfer.handle.perform()
                outcome = transfer.reply()
            except pycurl.error as err:
                code, text = cast("tuple[int, str]", err.args)
                if not (transfer.repeat(code) or transfer.by_key(code, text, self.shown_pin)):
                    outcome = transfer.failure(code, text)
        self.close(transfer, alone=True)
        return outcome

    def shown_pin(self, request: OutgoingRequest) -> str:
        """Return the key which a node shows, as in ``OutgoingRequest.pin``.

        :returns: the empty text when it cannot be reached, or is not a node of the cluster.
        """
        pin = x509.shown_pin(
            request.address,
            request.port,
            self._cert_file,
            self._ca_file,
            min(self._connect_timeout_s, request.timeout_s),
        )
        return "" if pin is None else pin_text([pin])

    def reset(self, ca_file: str | None = None) -> None:
        """Forget all sessions and handles, after a certificate was changed.

        :param ca_file: path of the server certificates to trust from now on, if it is another one.
        """
        with self._lock:
            self._generation += 1
            # A driver keeps the certificates which it has read; a handle sessions and connections.
            self._drivers.clear()
            self._idle.clear()
            self._idle_count = 0
            if self._sweeper is not None:
                self._sweeper.cancel()
                self._sweeper = None
            if ca_file is not None:
                self._ca_file = ca_file

    def open(self, index: int, request: OutgoingRequest, *, alone: bool = False) -> _Transfer:
        """Begin a transfer with an idle or new handle; :meth:`close` returns the handle.

        :param alone: the handle is not used in a multi. libcurl closes the connection of a handle
            when that changes.
        """
        place = (request.address, request.port)
        with self._lock:
            if self._pins.setdefault(place, request.pin) != request.pin:
                # The node has another key now: what was kept for the former one is of no use.
                self._pins[place] = request.pin
                self._idle = {kind: idle for kind, idle in self._idle.items() if kind[:2] != place}
                self._idle_count = sum(map(len, self._idle.values()))
            idle = self._idle.get(_kind(request, alone))
            handle = None
            if idle and not request.show:
                handle = idle.pop()[1]
                self._idle_count -= 1
            generation = self._generation
        return _Transfer(index, request, handle or self._new_handle(request), generation)

    def close(self, transfer: _Transfer, *, alone: bool = False) -> None:
        """Keep the handle for the next call to the same node."""
        transfer.handle.setopt(pycurl.WRITEFUNCTION, _nothing)
        transfer.handle.setopt(pycurl.HEADERFUNCTION, _nothing)
        transfer.handle.setopt(pycurl.POSTFIELDS, b"")  # it keeps the body, perhaps megabytes
        if transfer.request.show or transfer.used_up:
            # A resumed session would not show the certificate again.
            transfer.handle.close()
            return
        unused: pycurl.Curl | None = transfer.handle
        kind = _kind(transfer.request, alone)
        with self._lock:
            idle = self._idle.pop(kind, [])
            if transfer.generation == self._generation:
                self._idle[kind] = idle
                if len(idle) < _IDLE_HANDLES:
                    idle.append((time.monotonic(), transfer.handle))
                    self._idle_count += 1
                    unused = self._oldest() if self._idle_count > MAX_IDLE else None
                    self._plan_to_sweep()
        if unused is not None:
            unused.close()

    def _oldest(self) -> pycurl.Curl:
        """Take out a handle of the kind which was not used for the longest time. Needs the lock."""
        kind, idle = next((kind, idle) for kind, idle in self._idle.items() if idle)
        handle = idle.pop(0)[1]
        self._idle_count -= 1
        if not idle:
            del self._idle[kind]
        return handle

    def idle_handles(self) -> int:
        """Return the number of handles which wait for another request."""
        with self._lock:
            return self._idle_count

    def _plan_to_sweep(self) -> None:
        if self._sweeper is not None:
            return
        # The timer does not keep a client alive which nobody else needs.
        self._sweeper = threading.Timer(_KEEP_S, _sweep, (weakref.ref(self),))
        self._sweeper.name = "idle-handles"
        self._sweeper.daemon = True
        try:
            self._sweeper.start()
        except RuntimeError:
            self._sweeper = None  # The system makes no thread. The next handle tries again.

    def sweep(self) -> None:
        """Close what was idle for too long, and give the memory back.

        Connections are used again for ``_KEEP_S`` seconds. The last handle of a kind, which has the
        TLS session of its node, is kept for ``_KEEP_LAST_S`` seconds.
        """
        now = time.monotonic()
        unused: list[pycurl.Curl] = []
        with self._lock:
            if self._sweeper is not None:
                self._sweeper.cancel()
                self._sweeper = None
            for kind, idle in list(self._idle.items()):
                while idle and idle[0][0] <= now - (_KEEP_S if len(idle) > 1 else _KEEP_LAST_S):
                    unused.append(idle.pop(0)[1])
                    self._idle_count -= 1
                if not idle:
                    del self._idle[kind]
            drivers = [driver for since, driver in self._drivers if since <= now - _KEEP_S]
            self._drivers = [one for one in self._drivers if one[1] not in drivers]
            if self._idle or self._drivers:
                self._plan_to_sweep()
        for handle in unused:
            handle.close()
        for driver in drivers:
            driver.close()
        if unused or drivers:
            memory.give_back()

    def _new_handle(self, request: OutgoingRequest) -> pycurl.Curl:
        handle = pycurl.Curl()
        keep = request.keep
        # A store of TLS sessions which stays with the handle in all threads and multis.
        sessions = pycurl.CurlShare()
        sessions.setopt(pycurl.SH_SHARE, pycurl.LOCK_DATA_SSL_SESSION)
        try:
            for option, value in (
                (pycurl.NOSIGNAL, 1),  # threads
                (pycurl.PROXY, ""),  # even if the environment names one
                (pycurl.CUSTOMREQUEST, "PUT"),
                (pycurl.HTTPHEADER, _HEADERS),
                (pycurl.USERAGENT, "ganeti"),
                (pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_1_1),
                (pycurl.FOLLOWLOCATION, 0),
                # Of the announced length; what comes is counted in Received.
                (pycurl.MAXFILESIZE, http.MAX_ANSWER_BYTES),
                (pycurl.FORBID_REUSE, int(not keep)),
                (pycurl.MAXAGE_CONN, _KEEP_S),
                (pycurl.UPLOAD_BUFFERSIZE, _UPLOAD_BYTES),
                (pycurl.CONNECTTIMEOUT_MS, int(self._connect_timeout_s * 1000)),
                (pycurl.CAINFO, self._ca_file),
                (pycurl.SSLCERTTYPE, "PEM"),
                (pycurl.SSLCERT, self._cert_file),
                (pycurl.SSLKEYTYPE, "PEM"),
                (pycurl.SSLKEY, self._cert_file),
                (pycurl.SSL_VERIFYPEER, 1),
                # The certificates of older versions do not contain the name of the node; a pin
                # says more.
                (pycurl.SSL_VERIFYHOST, 0),
                (pycurl.SSLVERSION, pycurl.SSLVERSION_TLSv1_2),
                (pycurl.SHARE, sessions),
            ):
                handle.setopt(option, value)
            if keep:
                handle.setopt(pycurl.SOCKOPTFUNCTION, watch_peer)
            if request.pin:
                handle.setopt(pycurl.PINNEDPUBLICKEY, request.pin)
            if request.show:
                handle.setopt(pycurl.OPT_CERTINFO, 1)
            # Distributions compile in a directory of public authorities, which would be trusted in
            # addition (and read for every connection).
            handle.unsetopt(pycurl.CAPATH)
        except pycurl.error as err:
            handle.close()
            raise errors.ConfigurationError(f"libcurl cannot be set up: {err}") from err
        return handle


def _sweep(of: weakref.ref[Client]) -> None:
    client = of()
    if client is not None:
        client.sweep()


class _Driver:
    """A multi: runs several transfers until all have ended, in one thread at a time."""

    def __init__(self) -> None:
        #: Those to which it may have an open connection.
        self.peers: set[_Peer] = set()
        self._poll = select.poll()
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._on_socket)
        self._multi.setopt(pycurl.M_TIMERFUNCTION, self._on_timer)
        # The default closes kept connections as soon as some hundred nodes have one.
        self._multi.setopt(pycurl.M_MAXCONNECTS, _KEPT_CONNECTIONS)
        self._deadline: float | None = None
        self._watched: set[int] = set()

    def close(self) -> None:
        """Close its connections."""
        self._multi.close()

    def run(
        self,
        client: Client,
        requests: Sequence[OutgoingRequest],
        parallel: int,
        on_outcome: OnOutcome | None,
        until: Until | None,
    ) -> list[Outcome]:
        waiting = deque(enumerate(requests))
        running: dict[pycurl.Curl, _Transfer] = {}
        outcomes: list[Outcome | None] = [None] * len(requests)
        limit = until() if until is not None else None
        try:
            while waiting or running:
                if limit is not None and time.monotonic() >= limit:
                    break
                while waiting and len(running) < parallel:
                    transfer = client.open(*waiting.popleft())
                    request = transfer.request
                    if request.keep and (request.address, request.port) in self.peers:
                        transfer.uses_kept(alone=False)
                    running[transfer.handle] = transfer
                    self._multi.add_handle(transfer.handle)
                self._step(limit)
                for transfer, outcome in self._finished(running, client.shown_pin):
                    seconds = transfer.handle.getinfo(pycurl.TOTAL_TIME)
                    _CALL_TIME.observe(seconds, transfer.request.procedure)
                    outcomes[transfer.index] = outcome
                    client.close(transfer)
                    if on_outcome is not None:
                        on_outcome(transfer.index, outcome)
                    if until is not None:
                        limit = until()
            left = [*(one.index for one in running.values()), *(index for index, _ in waiting)]
            for index in left:
                given_up = Failure(UNREACHABLE, "no answer before enough others had answered")
                outcomes[index] = given_up
                if on_outcome is not None:
                    on_outcome(index, given_up)
        finally:
            for transfer in running.values():
                # After an error, or when they are given up; the multi is freed with its last
                # handle.
                self._multi.remove_handle(transfer.handle)
                transfer.handle.close()
        return [outcome for outcome in outcomes if outcome is not None]

    def _step(self, limit: float | None) -> None:
        """Wait for the next event, at most until the limit, and let libcurl handle it."""
        wait_ms = None
        ends = [end for end in (self._deadline, limit) if end is not None]
        if ends:
            wait_ms = max(0.0, (min(ends) - time.monotonic()) * 1000)
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
        shown_pin: Callable[[OutgoingRequest], str],
    ) -> list[tuple[_Transfer, Outcome]]:
        done: list[tuple[_Transfer, Outcome]] = []
        again: list[pycurl.Curl] = []
        more = 1
        while more:
            more, good, bad = self._multi.info_read()
            for handle in good:
                transfer = running.pop(handle)
                done.append((transfer, transfer.reply()))
            for handle, code, text in bad:
                transfer = running[handle]
                if transfer.repeat(code) or transfer.by_key(code, text, shown_pin):
                    again.append(handle)
                else:
                    done.append((running.pop(handle), transfer.failure(code, text)))
        for transfer, _ in done:
            self._multi.remove_handle(transfer.handle)
        for handle in again:
            self._multi.remove_handle(handle)
            self._multi.add_handle(handle)
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
    """Ignore data: an idle handle receives none."""
