"""An HTTPS server which answers every request in a process of its own; used for node calls.

The parent only forks children and waits for their end; it never reads a byte from a client, so no
client can block it. A child accepts one connection, carries out the TLS handshake, reads one
request, checks whether the certificate may call, answers, and leaves through ``os._exit``. A child
which hangs or crashes affects only its own call.

A few *spare* children wait on the listening socket, so that a call does not wait for a fork (which
costs more than everything else in a small call). A spare child which accepts a connection reports
it through a pipe, and the parent forks the next one. Spare children end when a second pipe closes:
when the parent ends or crashes, or wants new ones (after a signal, which may have opened new log
files).

Limits for clients:

- handshake and request must be complete within ``Limits.request_s``, or the kernel ends the child
  (by an alarm, which single bytes do not delay);
- head and body have a size limit;
- a connection reaches a child when the client has sent something; the kernel keeps idle ones
  apart (:func:`ganeti.utils.net.tcp_listen`);
- at most ``Limits.children`` children exist. When all exist, the parent ends some whose peers are
  unauthenticated, as many as clients wait, so that unauthenticated peers cannot block calls of the
  cluster: first those of the address with most of them, and there the oldest.
  Idle kept connections end when somebody waits. When all children work for the cluster, the next
  caller waits in the queue of the socket.

Session tickets make the handshake of a known client cheap: their key is part of the context, which
every child inherits.

An answer may *keep* the connection: the same child then serves further requests of this client.
This is for calls which are frequent and take less time than a fork (copies of the job queue, facts
of the node, starts and stops); everything except fork and handshake is done again for each request.
An idle kept connection ends with the spare children, or after :data:`KEEP_S`. Its client uses it
for less time. To end it sooner would save memory after a burst of calls, and break a call which is
sent at that moment.
"""

from __future__ import annotations

import contextlib
import enum
import logging
import math
import os
import select
import signal
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, NoReturn

from ganeti import http
from ganeti.http import head
from ganeti.utils import net, x509

_log = logging.getLogger(__name__)

_REASONS = {
    200: "OK",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    411: "Length Required",
    413: "Content Too Large",
    431: "Header Too Large",
    500: "Internal Server Error",
    505: "HTTP Version Not Supported",
}
_METHODS = ("PUT", "POST")
# A refused client may still be sending; if the server closed at once, the answer could get lost.
_LINGER_S = 2.0
_LINGER_BYTES = 64 * 1024 * 1024
_RECEIVE_BYTES = 256 * 1024
_HEAD_RECEIVE_BYTES = 16 * 1024
# Interval in which the parent tries again (after a failed fork, with too many children).
_RETRY_MS = 200
_FAILED_PAUSE_S = 1.0
# So many children are forked at once for clients which wait.
_BURST = 32
# Spare children end at once when the pipe closes; on an overloaded machine they may need longer.
_SPARES_END_S = 10.0
# A peer which is unauthenticated for so long may be disconnected in favour of another one.
_UNAUTHENTICATED_S = 1.0
# The kernel also keeps so many connections on which nothing was sent yet.
_BACKLOG = 4096

#: How many seconds a kept connection may be idle; a client closes it earlier.
KEEP_S = 60.0
#: Idle seconds after which the child calls ``at_rest``.
REST_S = 2.0


class Limits(NamedTuple):
    """Bounds of one server; times in seconds."""

    children: int = 200
    spares: int = 2
    request_s: float = 30.0
    head_bytes: int = 16 * 1024
    body_bytes: int = http.MAX_BODY_BYTES


DEFAULT_LIMITS = Limits()


class AuthorisedRequest(NamedTuple):
    """A request of a client whose certificate was accepted.

    :ivar peer: address of the client.
    :ivar digest: digest of its certificate.
    :ivar resumed: the TLS session was resumed, without a full handshake.
    """

    procedure: str
    body: bytes
    peer: str
    digest: str
    headers: Mapping[str, str]
    resumed: bool


class Response(NamedTuple):
    """An answer.

    :ivar quit: the server ends after the answer was sent.
    :ivar keep: the connection stays open.
    """

    status: int
    body: bytes
    headers: Mapping[str, str] = {}
    quit: bool = False
    keep: bool = False


class Wakeup(enum.Enum):
    """What the parent does after it was woken from outside."""

    STOP = "end"
    #: Replace the children which wait for a connection, because log files were opened again.
    RENEW = "renew"
    GO_ON = "go on"


class Service(NamedTuple):
    """What the children of a server do.

    :ivar answer: called for every accepted request.
    :ivar authorise: called with the digest of the certificate of the client; returns None or the
        reason why it may not call.
    :ivar in_child: called first in every child; releases resources of the parent (signal handlers,
        the pid file).
    :ivar at_rest: called when the connection was idle for :data:`REST_S`, and after its end;
        carries out work which was postponed because another request might follow.
    """

    answer: Callable[[AuthorisedRequest], Response]
    authorise: Callable[[str], str | None]
    in_child: Callable[[], None] = lambda: None
    at_rest: Callable[[], None] = lambda: None


class Chore(NamedTuple):
    """Work which belongs to no request, and which the parent lets a child do from time to time.

    :ivar name: for the log.
    :ivar every_s: seconds between two checks whether the chore is due.
    :ivar is_due: called in the parent, so it must be short; whether there is something to do.
    :ivar work: called in a child of its own.
    """

    name: str
    every_s: float
    is_due: Callable[[], bool]
    work: Callable[[], None]


class _Planned:
    """A chore with the time of the next check, and the child which does it now."""

    __slots__ = ("at", "child", "chore")

    def __init__(self, chore: Chore) -> None:
        self.chore = chore
        self.at = 0.0
        self.child: _Child | None = None


class _Refused(Exception):
    """The request is refused before the procedure is called."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


class _Ended(Exception):
    """The client closed the connection between two requests."""


class _Child:
    """State of a child, as the parent knows it.

    ``started`` is the time when it accepted its connection.
    """

    __slots__ = ("accepted", "peer", "pid", "pidfd", "retired", "started")

    def __init__(self, pid: int, pidfd: int) -> None:
        self.pid = pid
        self.pidfd = pidfd
        self.peer = ""
        self.started: float | None = None
        self.accepted = False
        # A spare child which the parent has asked to end.
        self.retired = False

    @property
    def spare(self) -> bool:
        """Tell whether the child waits for a connection."""
        return self.started is None


def listen(address: str, port: int) -> socket.socket:
    """Return a listening TCP socket.

    :raises OSError: the address is not on this machine, or the port is in use.
    """
    sock = net.tcp_listen(address, port, backlog=_BACKLOG, talking=True)
    sock.setblocking(False)
    return sock


class ForkingServer:
    """The parent process of the server.

    :param sock: the result of :func:`listen`; the server closes it.
    :param context: returns the TLS settings. It is called before each fork and again for each
        connection, so that renewed certificates are used at once.
    :param chores: work which belongs to no request.
    """

    def __init__(
        self,
        sock: socket.socket,
        context: Callable[[], ssl.SSLContext],
        service: Service,
        *,
        limits: Limits = DEFAULT_LIMITS,
        chores: Sequence[Chore] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sock = sock
        self._context = context
        self._service = service
        self._limits = limits
        self._clock = clock
        self._chores = [_Planned(chore) for chore in chores]
        self._children: dict[int, _Child] = {}
        self._control, self._tell = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._life, self._hold = os.pipe2(os.O_CLOEXEC)
        self._quit = False
        # In a child: whether a request on its connection was accepted.
        self._accepted = False
        self._not_before = 0.0
        self._poll = select.poll()
        self._poll.register(self._control, select.POLLIN)

    def serve(self, wakeup: int, on_wakeup: Callable[[], Wakeup]) -> None:
        """Serve until ``on_wakeup()`` returns ``Wakeup.STOP``, or after an answer with ``quit``.

        Children which work on an accepted request finish it.

        :param wakeup: a file descriptor; ``on_wakeup`` is called when it becomes readable.
        """
        self._poll.register(wakeup, select.POLLIN)
        try:
            while not self._quit:
                # Messages of children are handled before their end.
                for fd, _ in sorted(
                    self._poll.poll(self._wait_ms()), key=lambda event: event[0] != self._control
                ):
                    if fd == wakeup:
                        self._wake(on_wakeup())
                    elif fd == self._control:
                        self._read_control()
                    else:
                        self._collect(fd)
        finally:
            self._close()

    def _wake(self, wanted: Wakeup) -> None:
        if wanted is Wakeup.STOP:
            self._quit = True
        elif wanted is Wakeup.RENEW:
            self._renew_spares()

    def _wait_ms(self) -> int | None:
        """Fork what is missing; return how many milliseconds to wait for events."""
        wait_ms = self._provide()
        now = self._clock()
        for planned in self._chores:
            if now >= planned.at:
                planned.at = now + planned.chore.every_s
                self._begin_chore(planned)
            left_ms = math.ceil(max(0.0, planned.at - now) * 1000)
            wait_ms = left_ms if wait_ms is None else min(wait_ms, left_ms)
        return wait_ms

    def _begin_chore(self, planned: _Planned) -> None:
        """Let a child do the chore, if it is due and no child is still running."""
        chore = planned.chore
        if planned.child is not None or not chore.is_due():
            return
        child = self._new_child(lambda: self._be_worker(chore))
        if child is not None:
            # It has no connection, and counts as one which works on an accepted request.
            child.started, child.accepted, child.peer = self._clock(), True, chore.name
            planned.child = child

    def _provide(self) -> int | None:
        """Fork missing spare children; return how many milliseconds to wait for events."""
        spares = sum(child.spare for child in self._children.values() if not child.retired)
        places = self._limits.children - len(self._children) + spares
        waiting = self._waiting()
        wanted = min(max(self._limits.spares, min(waiting, _BURST)), places)
        if wanted <= 0:
            self._drop_unauthenticated(waiting)
            if waiting:
                self._renew_spares()  # ends the idle kept connections
            return _RETRY_MS
        if spares < wanted and self._clock() < self._not_before:
            return _RETRY_MS
        for _ in range(wanted - spares):
            if not self._fork():
                return _RETRY_MS
        return None

    def _waiting(self) -> int:
        """Return the number of clients which have connected and for which there is no child."""
        return net.waiting_connections(self._sock)

    def _fork(self) -> bool:
        self._context()  # a new context is made here, so that all children share it and its tickets
        return self._new_child(self._be_child) is not None

    def _new_child(self, life: Callable[[], NoReturn]) -> _Child | None:
        """Fork a child; None when that is not possible at present.

        :param life: called in the child.
        """
        try:
            pid = os.fork()
        except OSError as err:
            _log.error("cannot start a process for requests: %s", err.strerror)
            self._not_before = self._clock() + _FAILED_PAUSE_S
            return None
        if pid == 0:
            life()
        try:
            pidfd = os.pidfd_open(pid)
        except OSError as err:
            # Nobody would learn of its end.
            _log.error("cannot watch a process for requests: %s", err.strerror)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            self._not_before = self._clock() + _FAILED_PAUSE_S
            return None
        child = self._children[pidfd] = _Child(pid, pidfd)
        self._poll.register(pidfd, select.POLLIN)
        return child

    def _drop_unauthenticated(self, waiting: int = 1) -> None:
        """End children whose peers are unauthenticated.

        Those of the address with most of them come first, so that a flood from one address ends
        no connection of another one. Of one address it is the oldest.

        :param waiting: number of clients which wait for a child; as many children end, and at least
            one.
        """
        # A peer which has just connected may be a node of the cluster: it gets a moment.
        begun_before = self._clock() - _UNAUTHENTICATED_S
        by_peer: dict[str, deque[_Child]] = {}
        unauthenticated = sorted(
            (child.started, child.pidfd)
            for child in self._children.values()
            if child.started is not None and not child.accepted and child.started < begun_before
        )
        for _started, pidfd in unauthenticated:
            child = self._children[pidfd]
            by_peer.setdefault(child.peer, deque()).append(child)
        for _ in range(min(max(1, waiting), len(unauthenticated))):
            # Of addresses with as many, the one whose connection is the oldest.
            children = max(by_peer.values(), key=len)
            child = children.popleft()
            _log.warning("too many connections: dropping the one of %s", child.peer)
            signal.pidfd_send_signal(child.pidfd, signal.SIGKILL)

    def _read_control(self) -> None:
        """Read messages of children.

        ``+pid,peer``: the child has a connection; ``=pid``: its request was accepted; ``quit``.
        """
        by_pid = {child.pid: child for child in self._children.values()}
        for word in os.read(self._control, 65536).decode("ascii").split():
            if word == "quit":
                self._quit = True
                continue
            pid, _, peer = word[1:].partition(",")
            child = by_pid.get(int(pid))
            if child is not None and word[0] == "+":
                child.started, child.peer = self._clock(), peer
            elif child is not None:
                child.accepted = True

    def _collect(self, pidfd: int) -> None:
        child = self._children.pop(pidfd)
        for planned in self._chores:
            if planned.child is child:
                planned.child = None
        self._poll.unregister(pidfd)
        os.close(pidfd)
        _, status = os.waitpid(child.pid, 0)
        if child.spare:
            if not child.retired:
                # The machine has a problem; to fork at full speed would make it worse.
                _log.error("process %d ended before it had a connection", child.pid)
                self._not_before = self._clock() + _FAILED_PAUSE_S
        elif os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            if number == signal.SIGALRM and not child.accepted:
                _log.warning(
                    "%s sent no complete request within %g s", child.peer, self._limits.request_s
                )
            else:
                _log.error(
                    "process %d for %s was ended by signal %d", child.pid, child.peer, number
                )
        elif status:
            _log.error("process %d for %s failed", child.pid, child.peer)

    def _renew_spares(self) -> None:
        """Replace the spare children; one which just accepts a connection serves it first."""
        self._retire_spares()
        self._life, self._hold = os.pipe2(os.O_CLOEXEC)

    def _retire_spares(self) -> None:
        os.close(self._hold)
        os.close(self._life)
        for child in self._children.values():
            child.retired = child.spare

    def _close(self) -> None:
        self._sock.close()
        self._retire_spares()
        self._wait_for_spares()
        for child in self._children.values():
            if child.accepted:
                _log.info("process %d for %s goes on", child.pid, child.peer)
            elif not child.spare:
                signal.pidfd_send_signal(child.pidfd, signal.SIGKILL)
            os.close(child.pidfd)
        os.close(self._control)
        os.close(self._tell)

    def _wait_for_spares(self) -> None:
        """Wait until all spare children have ended, and read which requests were accepted."""
        deadline = self._clock() + _SPARES_END_S
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        for pidfd in self._children:
            poll.register(pidfd, select.POLLIN)
        while any(child.spare for child in self._children.values()):
            if self._clock() > deadline:
                for child in self._children.values():
                    if child.spare:
                        signal.pidfd_send_signal(child.pidfd, signal.SIGKILL)
            for fd, _ in poll.poll(_RETRY_MS):
                if fd != self._control:
                    poll.unregister(fd)
                    self._collect(fd)
            with contextlib.suppress(BlockingIOError):
                self._read_control()
        with contextlib.suppress(BlockingIOError):
            self._read_control()

    # What follows runs in the child.

    def _be_child(self) -> NoReturn:
        code = 1
        try:
            os.close(self._hold)
            self._service.in_child()
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            accepted = self._wait_for_connection()
            if accepted is not None:
                conn, peer = accepted
                # A restarted daemon must find the port free while an old child still works.
                self._sock.close()
                os.write(self._tell, f"+{os.getpid()},{peer} ".encode("ascii"))
                signal.setitimer(signal.ITIMER_REAL, self._limits.request_s)
                self._talk(conn, peer)
            code = 0
        except BaseException:  # noqa: BLE001  # the child must not run on as a second parent
            _log.exception("this process failed with an internal error, its connection is closed")
        finally:
            os._exit(code)

    def _be_worker(self, chore: Chore) -> NoReturn:
        code = 1
        try:
            os.close(self._hold)
            self._service.in_child()
            self._sock.close()
            chore.work()
            code = 0
        except BaseException:  # noqa: BLE001  # the child must not run on as a second parent
            _log.exception("the task '%s' failed", chore.name)
        finally:
            os._exit(code)

    def _wait_for_connection(self) -> tuple[socket.socket, str] | None:
        """Return a connection and the address of the peer; None if the child has to end."""
        with select.epoll() as events:
            # Exclusive: a connection wakes one spare child, not all.
            events.register(self._sock, select.EPOLLIN | select.EPOLLEXCLUSIVE)
            events.register(self._life, select.EPOLLIN)
            while True:
                if any(fd == self._life for fd, _ in events.poll()):
                    return None
                try:
                    conn, address = self._sock.accept()
                except (BlockingIOError, ConnectionAbortedError):
                    continue
                return conn, str(address[0])

    def _talk(self, conn: socket.socket, peer: str) -> None:
        conn.setblocking(True)
        conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        tls = self._context().wrap_socket(conn, server_side=True, do_handshake_on_connect=False)
        try:
            tls.do_handshake()
        except (ssl.SSLEOFError, ConnectionResetError):
            # A program which only checks whether the port answers does this, such as
            # cluster-verify.
            _log.debug("%s closed the connection before the TLS handshake", peer)
            return
        except OSError as err:
            _log.warning("no TLS connection with %s: %s", peer, err)
            _linger(tls)
            return
        while self._serve_one(tls, peer):
            signal.setitimer(signal.ITIMER_REAL, 0)
            if not self._wait_for_more(tls):
                break
            signal.setitimer(signal.ITIMER_REAL, self._limits.request_s)
        signal.setitimer(signal.ITIMER_REAL, 0)
        # The caller does not wait for the work below.
        tls.close()
        self._service.at_rest()

    def _serve_one(self, tls: ssl.SSLSocket, peer: str) -> bool:
        """Serve a request; return whether another one may follow."""
        try:
            response = self._serve_request(tls, peer)
        except _Refused as err:
            _log.warning("refused a request of %s: %s", peer, err.text)
            _send(tls, Response(err.status, err.text.encode()))
            _linger(tls)
            return False
        except _Ended:
            return False
        except OSError as err:
            _log.warning("connection with %s broke: %s", peer, err)
            return False
        try:
            _send(tls, response)
        except OSError as err:
            _log.warning("cannot send the answer to %s: %s", peer, err)
            return False
        if response.quit:
            os.write(self._tell, b"quit ")
        return response.keep

    def _wait_for_more(self, tls: ssl.SSLSocket) -> bool:
        """Wait for a request on a kept connection; return False if the connection has to end."""
        if tls.pending():
            return True
        ready = net.wait_readable([tls, self._life], REST_S)
        if not ready:
            self._service.at_rest()
            ready = net.wait_readable([tls, self._life], KEEP_S - REST_S)
        # A request which was received already is served, even if the child has to end.
        return tls.fileno() in ready

    def _serve_request(self, tls: ssl.SSLSocket, peer: str) -> Response:
        data, rest = _read_head(tls, self._limits.head_bytes, self._accepted)
        try:
            _line, method, target, _minor, headers = head.parse_raw_head(data)
        except head.HeadError as err:
            raise _Refused(err.status, str(err)) from err
        der = tls.getpeercert(binary_form=True)
        if der is None:
            raise _Refused(403, "no client certificate")
        digest = x509.digest_der(der)
        reason = self._service.authorise(digest)
        if reason is not None:
            raise _Refused(403, reason)
        if method not in _METHODS:
            raise _Refused(400, f"method {method} is not supported, only {' and '.join(_METHODS)}")
        if not target.startswith("/"):
            raise _Refused(400, f"not a path: {target}")
        length = _body_length(headers, self._limits.body_bytes)
        body = _read_body(tls, rest, length)
        signal.setitimer(signal.ITIMER_REAL, 0)
        if not self._accepted:
            self._accepted = True
            os.write(self._tell, b"=%d " % os.getpid())
        request = AuthorisedRequest(
            target[1:], body, peer, digest, headers, bool(tls.session_reused)
        )
        try:
            return self._service.answer(request)
        except Exception:  # noqa: BLE001  # the entry point of a node call; the caller gets an answer
            _log.exception("call %s of %s failed with an internal error", request.procedure, peer)
            return Response(500, b"internal error; see the log of the node daemon")


def _read_head(tls: ssl.SSLSocket, limit: int, kept: bool) -> tuple[bytes, bytes]:
    data = b""
    while b"\r\n\r\n" not in data:
        try:
            chunk = tls.recv(_HEAD_RECEIVE_BYTES)
        except OSError as err:
            if kept and not data:
                raise _Ended from err
            raise
        if not chunk:
            if kept and not data:
                raise _Ended
            raise ConnectionResetError("closed before a request was complete")
        data += chunk
        if len(data) > limit and b"\r\n\r\n" not in data[:limit]:
            raise _Refused(431, f"the head of the request is longer than {limit} bytes")
    first, _, rest = data.partition(b"\r\n\r\n")
    return first, rest


def _body_length(headers: Mapping[str, str], limit: int) -> int:
    if "transfer-encoding" in headers:
        raise _Refused(411, "a body needs a Content-Length, other codings are not supported")
    text = headers.get("content-length", "0")
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise _Refused(400, "damaged Content-Length")
    if int(text) > limit:
        raise _Refused(413, f"body of {int(text)} bytes is larger than {limit} bytes")
    return int(text)


def _read_body(tls: ssl.SSLSocket, rest: bytes, length: int) -> bytes:
    if len(rest) > length:
        raise _Refused(400, "more data than the Content-Length says")
    chunks = [rest]
    missing = length - len(rest)
    while missing:
        chunk = tls.recv(min(missing, _RECEIVE_BYTES))
        if not chunk:
            raise ConnectionResetError("closed before the body was complete")
        chunks.append(chunk)
        missing -= len(chunk)
    return b"".join(chunks)


def encode(response: Response) -> bytes:
    """Return the bytes of an answer."""
    kind = "application/json" if response.status == 200 else "text/plain; charset=utf-8"
    lines = [
        f"HTTP/1.1 {response.status} {_REASONS[response.status]}",
        f"Content-Type: {kind}",
        f"Content-Length: {len(response.body)}",
        "Connection: keep-alive" if response.keep else "Connection: close",
        *(f"{name}: {value}" for name, value in response.headers.items()),
    ]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + response.body


def _send(tls: ssl.SSLSocket, response: Response) -> None:
    tls.sendall(encode(response))


def _linger(tls: ssl.SSLSocket) -> None:
    """Let the client read the answer: shut down sending, then ignore what it still sends."""
    deadline = time.monotonic() + _LINGER_S
    with contextlib.suppress(OSError):
        tls.shutdown(socket.SHUT_WR)  # drops the TLS layer; what is received below is raw
        swallowed = 0
        while swallowed < _LINGER_BYTES and (left := deadline - time.monotonic()) > 0:
            tls.settimeout(left)
            chunk = tls.recv(_RECEIVE_BYTES)
            if not chunk:
                return
            swallowed += len(chunk)
