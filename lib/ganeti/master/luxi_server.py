"""The server of the master's local socket: one loop for all connections.

The loop owns all connections; an idle client costs a file descriptor and no thread. Complete
messages go to a pool of threads which parse them and begin the work. The thread which finishes the
work gives the answer, and the loop sends it. Answers leave in the order of the requests of their
connection (Ganeti design 2.2, *Master Daemon Scaling*).

Requests of one connection are begun one after the other, each when the one before is answered, so a
client sees the effects of its own earlier requests. Only requests whose handler says so
(``overlaps``: submissions) may be under way together, so that a pipeline of them shares commits.

The load which one client can cause is bounded: a message above the size limit is dropped and
answered with an error; further requests are not read while many wait or while answers are not
taken; a client which does not send the rest of a message or take its answer for minutes is
disconnected. Answers which were not taken yet share :data:`ANSWERS_BYTES`, and those of one process
:data:`PROCESS_ANSWERS_BYTES`; above these limits, connections end which have taken nothing for the
longest time (:mod:`ganeti.utils.unread`).
"""

from __future__ import annotations

import collections
import contextlib
import enum
import errno
import heapq
import itertools
import logging
import math
import os
import queue
import resource
import select
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, cast

from ganeti import errors
from ganeti.constants import luxi as const
from ganeti.luxi import protocol as wire
from ganeti.utils import memory, shortage, states, tracing
from ganeti.utils.unread import UnreadAnswers

_log = logging.getLogger(__name__)

# Number of threads for requests that are answered from memory, and for those that ask nodes or read
# archives. When all of the second kind wait for a node that hangs, the first kind is still served.
QUICK_THREADS = 4
SLOW_THREADS = 16

_RECEIVE_BYTES = 1 << 16
# With more than this a connection is not read, and no further request of it is begun.
_INBOX_MESSAGES = 100
_INBOX_BYTES = 1 << 20
# Messages of all connections which are being received, or wait. Above it, large ones are refused.
_WAITING_BYTES = 128 << 20
_OUTBOX_BYTES = 1 << 20
#: Memory for answers which clients have not taken, and for those of one client process.
ANSWERS_BYTES = 256 << 20
PROCESS_ANSWERS_BYTES = 128 << 20
_SWEEP_S = 10.0
_NO_FD_PAUSE_S = 1.0
# Files for the journal, the configuration, node calls to all nodes, and logs.
_RESERVED_FILES = 256
_MANY_FILES = 65536


class LuxiHandler(NamedTuple):
    """Serves one method.

    :ivar begin: called in a thread of the pool; answers through the request, now or later, or
        raises.
    :ivar slow: may wait for nodes or for much of the disk.
    :ivar overlaps: may be under way together with neighbours of its kind.
    """

    begin: Callable[[LuxiRequest], None]
    slow: bool = False
    overlaps: bool = False


class LuxiMethods(Protocol):
    """The methods which the server offers."""

    def handler(self, method: str) -> LuxiHandler | None:
        """Return the handler of a method; None when there is no such method."""


_CREDENTIALS = struct.Struct("3i")


class LuxiRequest:
    """One request, until it is answered. Any thread may answer; the first answer counts."""

    __slots__ = (
        "_answered",
        "_on_timeout",
        "_server",
        "args",
        "connection",
        "method",
        "size",
        "slot",
        "span",
    )

    def __init__(
        self,
        server: LuxiServer,
        connection: _Connection,
        slot: _Slot,
        method: str,
        args: list[Any],
        size: int,
        trace: str = "",
    ) -> None:
        """Begin with a request.

        :param size: of the message, in bytes.
        :param trace: the span of the client (:mod:`ganeti.utils.tracing`). Requests without one
            are not traced.
        """
        self.method = method
        self.args = args
        self.size = size
        self._server = server
        self.connection = connection
        self.slot = slot
        self._answered = False
        self._on_timeout: Callable[[], None] | None = None
        self.span: tracing.Span = (
            tracing.begin(f"LUXI {method}", tracing.SERVER, trace, rpc_method=method)
            if trace
            else tracing.NOTHING
        )

    def peer_uid(self) -> int | None:
        """Return the user id of the client, from the kernel; None when the client has gone."""
        try:
            found = self.connection.sock.getsockopt(
                socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size
            )
        except OSError:
            return None
        _pid, uid, _gid = _CREDENTIALS.unpack(found)
        return int(uid)

    def unwanted(self) -> str:
        """Return why nobody waits for the answer any more; empty while the client does.

        A client which only sends no more requests still waits. Any thread may ask.
        """
        if self._server.stopping:
            return "the master daemon is being stopped, and answers only short requests"
        return "the client has gone" if self.connection.gone else ""

    def answer(self, result: Any) -> None:
        """Answer with a result."""
        try:
            data = wire.encode_answer(result)
        except errors.ProgrammerError as err:
            _log.error("%s: result %s", self.method, err)
            data = wire.encode_error(errors.GenericError(f"internal error: result {err}"))
        self._send(data)

    def fail(self, error: BaseException) -> None:
        """Answer with an error."""
        self._send(wire.encode_error(error), f"{type(error).__name__}: {error}")

    def refuse(self, reason: str) -> None:
        """Answer that this is not a valid request."""
        self._send(wire.encode_refusal(reason), reason)

    def done(self, result: Any, error: Exception | None) -> None:
        """Answer with the result, or with the error if there is one."""
        if error is None:
            self.answer(result)
        else:
            self.fail(error)

    def wait(self, seconds: float, on_timeout: Callable[[], None]) -> None:
        """Let the request wait for its answer.

        :param seconds: longest wait.
        :param on_timeout: called in the loop after this time, and also when the client has gone or
            the server stops; gives the answer unless another thread did.
        """
        self._on_timeout = on_timeout
        self._server.post(lambda: self._server.hold(self, seconds))

    @property
    def answered(self) -> bool:
        """True if an answer was given."""
        return self._answered

    def time_out(self) -> None:
        """End the wait for an answer (in the loop)."""
        if not self._answered and self._on_timeout is not None:
            self._on_timeout()

    def _send(self, data: bytes, error: str = "") -> None:
        if not self._answered:
            self._answered = True
            self.span.end(error)
            self._server.post(lambda: self._server.answered(self.connection, self.slot, data, self))


def _file_limit() -> int:
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MANY_FILES if soft == resource.RLIM_INFINITY else soft


def clients_for(file_limit: int) -> int:
    """Return how many clients a process may have at once.

    :param file_limit: the number of files which it may have open.
    """
    return max(1, file_limit - max(_RESERVED_FILES, file_limit // 8))


class _Slot:
    """The place of one answer in the order of a connection."""

    __slots__ = ("answer", "parked")

    def __init__(self) -> None:
        self.answer: bytes | None = None
        self.parked: Callable[[], None] | None = None


class _ConnectionState(enum.StrEnum):
    """The life of a connection."""

    OPEN = "open"
    # The client sends nothing more. The requests which it has sent are carried out and answered.
    ENDED = "ended"
    CLOSED = "closed"


_CONNECTION_MOVES = {
    _ConnectionState.OPEN: (_ConnectionState.ENDED, _ConnectionState.CLOSED),
    _ConnectionState.ENDED: (_ConnectionState.CLOSED,),
    _ConnectionState.CLOSED: (),
}


class MemoryLimits(NamedTuple):
    """Memory for what clients send and do not take, in bytes.

    :ivar waiting_bytes: messages of all connections which are being received, or wait. Above it,
        large ones are refused.
    :ivar answers_bytes: answers which were not taken. One may be larger, when there is no other
        one.
    :ivar process_answers_bytes: likewise, the answers to one process.
    """

    waiting_bytes: int = _WAITING_BYTES
    answers_bytes: int = ANSWERS_BYTES
    process_answers_bytes: int = PROCESS_ANSWERS_BYTES


class _Connection:
    """A client's connection. Belongs to the loop.

    :ivar state: only :meth:`move` changes it.
    :ivar beginning: the request after which no other one may be begun yet.
    :ivar held: requests which wait for their answer (:meth:`LuxiRequest.wait`).
    :ivar kept_bytes: size of the answers which the client has not taken as a whole. The memory of
        an answer is free when all of it was sent.
    :ivar progress_s: monotonic time of the last progress.
    """

    __slots__ = (
        "beginning",
        "events",
        "held",
        "inbox",
        "inbox_bytes",
        "kept_bytes",
        "outbox",
        "outbox_bytes",
        "progress_s",
        "slots",
        "sock",
        "splitter",
        "state",
    )

    def __init__(self, sock: socket.socket, limit_bytes: int, now: float) -> None:
        self.sock = sock
        self.splitter = wire.Splitter(limit_bytes)
        self.inbox: collections.deque[bytes | None] = collections.deque()
        self.inbox_bytes = 0
        self.slots: collections.deque[_Slot] = collections.deque()
        self.held: set[LuxiRequest] = set()
        self.outbox: collections.deque[memoryview] = collections.deque()
        self.outbox_bytes = 0
        self.kept_bytes = 0
        self.beginning: _Slot | None = None
        self.state = _ConnectionState.OPEN
        self.events = selectors.EVENT_READ
        self.progress_s = now

    def move(self, state: _ConnectionState) -> None:
        """Change the state."""
        self.state = states.moved(_CONNECTION_MOVES, self.state, state, "a client's connection")

    @property
    def gone(self) -> bool:
        """True if the client receives nothing any more. Any thread may ask."""
        if self.state is _ConnectionState.CLOSED:
            return True
        try:
            poll = select.poll()
            poll.register(self.sock, 0)
            return bool(poll.poll(0))
        except (OSError, ValueError):
            return True  # closed meanwhile

    def client(self) -> int:
        """Return the process of the client; a number of its own when the kernel has none."""
        try:
            found = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        except OSError:
            return -id(self)
        pid, _uid, _gid = _CREDENTIALS.unpack(found)
        return int(pid) or -id(self)

    @property
    def idle(self) -> bool:
        """True if no request is under way."""
        return not (self.inbox or self.slots or self.outbox)

    @property
    def waiting_bytes(self) -> int:
        """Size of the messages which are being received, or wait."""
        return self.inbox_bytes + self.splitter.kept_bytes

    @property
    def stuck(self) -> bool:
        """True if the client must send the rest of a message, or take an answer."""
        return bool(self.outbox) or (self.splitter.partial and not self.inbox)


class _ServerState(enum.StrEnum):
    """The life of the server."""

    SERVING = "serving"
    # No connection is accepted and no request is read. Requests which have begun are answered.
    STOPPING = "stopping"
    CLOSED = "closed"


_SERVER_MOVES = {
    _ServerState.SERVING: (_ServerState.STOPPING, _ServerState.CLOSED),
    _ServerState.STOPPING: (_ServerState.CLOSED,),
    _ServerState.CLOSED: (),
}


class _Pool:
    """Threads which run tasks; each is started when it is needed, up to `limit` threads."""

    def __init__(self, name: str, limit: int) -> None:
        self._name = name
        self._limit = limit
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._idle = 0

    def run(self, task: Callable[[], None]) -> None:
        with self._lock:
            self._idle -= 1
            if self._idle < 0 and self._threads < self._limit:
                if shortage.start_thread(self._loop, name=f"{self._name}-{self._threads + 1}"):
                    self._idle += 1
                    self._threads += 1
            alone = not self._threads
            self._idle += alone
        if alone:
            # The system makes no thread, so the loop of the server waits for the task.
            task()
        else:
            self._work.put(task)

    def stop(self) -> None:
        for _ in range(self._threads):
            self._work.put(None)

    def _loop(self) -> None:
        while (task := self._work.get()) is not None:
            task()
            with self._lock:
                self._idle += 1


class LuxiServer:
    """The loop.

    :param listeners: sockets that listen; closed by :meth:`serve`.
    :param limit_bytes: size of the largest message.
    :param max_clients: number of clients at once. A further client takes the place of the one which
        has been without a request for the longest time. None leaves file descriptors for the other
        work of the process, which must go on.
    :param patience_s: seconds for which a client may leave a message unfinished, or an answer
        untaken.
    """

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        service: LuxiMethods,
        *,
        limit_bytes: int = wire.MAX_MESSAGE_BYTES,
        patience_s: float = const.READ_WRITE_TIMEOUT_S,
        quick_threads: int = QUICK_THREADS,
        slow_threads: int = SLOW_THREADS,
        max_clients: int | None = None,
        memory_limits: MemoryLimits | None = None,
    ) -> None:
        self._listeners = list(listeners)
        self._service = service
        self._limit_bytes = limit_bytes
        self._patience_s = patience_s
        self._max_clients = clients_for(_file_limit()) if max_clients is None else max_clients
        most = memory_limits or MemoryLimits()
        self._max_waiting_bytes = most.waiting_bytes
        self._waiting_bytes = 0
        self._unread: UnreadAnswers[_Connection] = UnreadAnswers(
            most.answers_bytes, most.process_answers_bytes, _Connection.client
        )
        self._giving_back = False
        self._selector = selectors.DefaultSelector()
        self._connections: set[_Connection] = set()
        self._quick = _Pool("luxi", quick_threads)
        self._slow = _Pool("luxi-slow", slow_threads)
        self._posted: collections.deque[Callable[[], None]] = collections.deque()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._wake_pending = False
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._timer_number = itertools.count()
        self._state = _ServerState.SERVING
        self._stop_at = math.inf
        self._ending_work = False
        self._accepting = True
        self._close_lock = threading.Lock()

    @property
    def connections(self) -> int:
        """Number of connected clients."""
        return len(self._connections)

    @property
    def unread_bytes(self) -> int:
        """Size of the answers which clients have not taken, in bytes."""
        return self._unread.bytes

    # -- called from any thread ------------------------------------------------------------------

    @property
    def stopping(self) -> bool:
        """True if long work for clients ends, because the daemon stops."""
        return self._ending_work

    def end_long_work(self) -> None:
        """Let requests which take long end with an error; short ones are still answered."""
        self._ending_work = True

    def post(self, action: Callable[[], None]) -> None:
        """Run `action` in the loop."""
        self._posted.append(action)
        if not self._wake_pending:
            self._wake_pending = True
            with self._close_lock:
                if self._state is not _ServerState.CLOSED:
                    os.eventfd_write(self._wake_fd, 1)

    def stop(self, grace_s: float = 5.0) -> None:
        """Accept nothing more; end when all begun requests are answered, or after `grace_s`."""
        self.post(lambda: self._begin_stop(grace_s))

    # -- the loop --------------------------------------------------------------------------------

    def serve(
        self, signal_fd: int | None = None, on_signal: Callable[[], None] = lambda: None
    ) -> None:
        """Serve until :meth:`stop`.

        :param signal_fd: `on_signal` is called in the loop whenever this can be read.
        """
        for listener in self._listeners:
            listener.setblocking(False)
            self._watch(listener)
        self._selector.register(self._wake_fd, selectors.EVENT_READ, None)
        if signal_fd is not None:
            self._selector.register(signal_fd, selectors.EVENT_READ, on_signal)
        self._later(min(_SWEEP_S, self._patience_s), self._sweep)
        try:
            while not self._finished():
                for key, events in self._selector.select(self._timeout()):
                    if isinstance(key.data, _Connection):
                        self._ready(key.data, events)
                    elif key.data is not None:
                        key.data()
                self._run_posted()
                self._run_timers()
        finally:
            self._close_all()

    def _move(self, state: _ServerState) -> None:
        self._state = states.moved(_SERVER_MOVES, self._state, state, "the LUXI server")

    def _finished(self) -> bool:
        if self._state is _ServerState.SERVING:
            return False
        busy = any(connection.slots or connection.outbox for connection in self._connections)
        return not busy or time.monotonic() >= self._stop_at

    def _timeout(self) -> float | None:
        if self._posted:
            return 0.0
        until = min(self._timers[0][0] if self._timers else math.inf, self._stop_at)
        return None if until == math.inf else max(0.0, until - time.monotonic())

    def _run_posted(self) -> None:
        # A thread which has set the flag may not have written yet. Then it stays set: otherwise
        # nobody would read what it writes, and the loop would be woken again and again.
        with contextlib.suppress(BlockingIOError):
            if self._wake_pending:
                os.eventfd_read(self._wake_fd)
                # An action posted after this line writes again; one posted before is run below.
                self._wake_pending = False
        for _ in range(len(self._posted)):
            self._posted.popleft()()

    def _run_timers(self) -> None:
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            heapq.heappop(self._timers)[2]()

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._timer_number), action))

    def _begin_stop(self, grace_s: float) -> None:
        if self._state is _ServerState.SERVING:
            self._move(_ServerState.STOPPING)
            self.end_long_work()
            self._stop_at = time.monotonic() + grace_s
            self._set_accepting(False)
            for connection in list(self._connections):
                self._update_events(connection)
                for request in list(connection.held):
                    request.time_out()

    def _close_all(self) -> None:
        for connection in list(self._connections):
            self._close(connection)
        for listener in self._listeners:
            listener.close()
        self._quick.stop()
        self._slow.stop()
        self._selector.close()
        with self._close_lock:
            self._move(_ServerState.CLOSED)
            os.close(self._wake_fd)

    # -- connections -----------------------------------------------------------------------------

    def _watch(self, listener: socket.socket) -> None:
        self._selector.register(listener, selectors.EVENT_READ, partial(self._accept, listener))

    def _accept(self, listener: socket.socket) -> None:
        # A bounded number at once, so that a flood of clients does not starve those served.
        for attempt in range(64):
            idle = None
            if len(self._connections) >= self._max_clients:
                idle = self._longest_idle()
                if idle is None and attempt:
                    return  # Perhaps no further client waits.
                if idle is None:
                    self._pause_accepting("each has a request under way")
                    return
            try:
                sock, _address = listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as err:
                if err.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    raise
                self._pause_accepting(str(err.strerror))
                return
            if idle is not None:
                self._close(idle)
            sock.setblocking(False)
            connection = _Connection(sock, self._limit_bytes, time.monotonic())
            self._connections.add(connection)
            self._selector.register(sock, selectors.EVENT_READ, connection)

    def _pause_accepting(self, reason: str) -> None:
        _log.warning(
            "%d clients are connected, no further client can be accepted: %s",
            len(self._connections),
            reason,
        )
        self._set_accepting(False)
        self._later(
            _NO_FD_PAUSE_S, lambda: self._set_accepting(self._state is _ServerState.SERVING)
        )

    def _longest_idle(self) -> _Connection | None:
        """Return the client which has been without a request for the longest time, if any."""
        return min(
            (connection for connection in self._connections if connection.idle),
            key=lambda connection: connection.progress_s,
            default=None,
        )

    def _set_accepting(self, accepting: bool) -> None:
        if accepting != self._accepting:
            self._accepting = accepting
            for listener in self._listeners:
                if accepting:
                    self._watch(listener)
                else:
                    self._selector.unregister(listener)

    def _ready(self, connection: _Connection, events: int) -> None:
        # It may have been closed for another one whose events came with its own.
        if events & selectors.EVENT_WRITE and connection.state is not _ConnectionState.CLOSED:
            self._flush(connection)
        if events & selectors.EVENT_READ and connection.state is not _ConnectionState.CLOSED:
            self._receive(connection)

    def _receive(self, connection: _Connection) -> None:
        try:
            data = connection.sock.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError as err:
            _log.debug("client lost: %s", err)
            self._close(connection)
            return
        connection.progress_s = time.monotonic()
        if not data:
            connection.move(_ConnectionState.ENDED)
            # The client waits for no changes any more; its other requests are still carried out.
            for request in list(connection.held):
                request.time_out()
            self._update_events(connection)
            self._close_if_done(connection)
            return
        before = connection.waiting_bytes
        for message in connection.splitter.feed(data):
            connection.inbox.append(message)
            connection.inbox_bytes += 0 if message is None else len(message)
        if (
            self._waiting_bytes + connection.waiting_bytes - before > self._max_waiting_bytes
            and connection.splitter.kept_bytes > memory.LARGE_BYTES
        ):
            _log.warning("a message is refused, because clients send too many large ones at once")
            connection.splitter.drop()
        self._waiting_bytes += connection.waiting_bytes - before
        self._begin_next(connection)
        self._update_events(connection)

    def _update_events(self, connection: _Connection) -> None:
        """Register for the events which this connection can use now."""
        events = 0
        if (
            connection.state is _ConnectionState.OPEN
            and self._state is _ServerState.SERVING
            and len(connection.inbox) < _INBOX_MESSAGES
            and connection.inbox_bytes < _INBOX_BYTES
            and connection.outbox_bytes < _OUTBOX_BYTES
        ):
            events |= selectors.EVENT_READ
        if connection.outbox:
            events |= selectors.EVENT_WRITE
        if events == connection.events:
            return
        if connection.events == 0:
            self._selector.register(connection.sock, events, connection)
        elif events == 0:
            self._selector.unregister(connection.sock)
        else:
            self._selector.modify(connection.sock, events, connection)
        connection.events = events

    def _close_if_done(self, connection: _Connection) -> None:
        if connection.state is _ConnectionState.ENDED and connection.idle:
            self._close(connection)

    def _close(self, connection: _Connection) -> None:
        connection.move(_ConnectionState.CLOSED)
        self._connections.discard(connection)
        if connection.events:
            self._selector.unregister(connection.sock)
        connection.sock.close()
        self._waiting_bytes -= connection.waiting_bytes
        connection.inbox.clear()
        connection.inbox_bytes = 0
        connection.splitter.drop()
        connection.outbox.clear()
        self._unread.remove(connection)
        for request in list(connection.held):
            request.time_out()

    def _sweep(self) -> None:
        """Disconnect clients that have made no progress for too long."""
        now = time.monotonic()
        for connection in list(self._connections):
            if connection.stuck and now - connection.progress_s > self._patience_s:
                _log.info(
                    "disconnecting a client that made no progress for %d s",
                    now - connection.progress_s,
                )
                self._close(connection)
        self._later(min(_SWEEP_S, self._patience_s), self._sweep)

    # -- requests --------------------------------------------------------------------------------

    def _begin_next(self, connection: _Connection) -> None:
        """Begin the next request of a connection, if it may begin now."""
        if (
            connection.inbox
            and connection.beginning is None
            and connection.outbox_bytes < _OUTBOX_BYTES
        ):
            message = connection.inbox.popleft()
            if message is not None:
                connection.inbox_bytes -= len(message)
                self._waiting_bytes -= len(message)
            slot = _Slot()
            connection.slots.append(slot)
            connection.beginning = slot
            if message is None:
                self.post(self._refuser(connection, slot))
            else:
                self._quick.run(self._opener(connection, slot, message))

    def _refuser(self, connection: _Connection, slot: _Slot) -> Callable[[], None]:
        data = wire.encode_refusal(
            f"the message is larger than {self._limit_bytes} bytes, or clients send too many large"
            " messages at once"
        )
        return lambda: self._refused(connection, slot, data)

    def _opener(self, connection: _Connection, slot: _Slot, message: bytes) -> Callable[[], None]:
        return lambda: self._open(connection, slot, message)

    def _open(self, connection: _Connection, slot: _Slot, message: bytes) -> None:
        """Parse a message and begin its request, or park it (in the pool)."""
        if len(message) > memory.LARGE_BYTES:
            self.post(self._plan_to_give_back)
        try:
            method, args, trace = wire.parse_request(message)
        except errors.ParseError as err:
            data = wire.encode_refusal(str(err))
            self.post(lambda: self._refused(connection, slot, data))
            return
        request = LuxiRequest(self, connection, slot, method, args, len(message), trace)
        handler = self._service.handler(method)
        if handler is None:
            data = wire.encode_refusal(f"there is no method {method!r}")
            self.post(lambda: self._refused(connection, slot, data))
        elif handler.overlaps or connection.slots[0] is slot:
            self._dispatch(connection, handler, request)
        else:
            # An earlier request is under way; the loop begins this one after it.
            self.post(lambda: self._park(connection, slot, handler, request))

    def _refused(self, connection: _Connection, slot: _Slot, data: bytes) -> None:
        if connection.beginning is slot:
            connection.beginning = None
        self.answered(connection, slot, data)

    def _park(
        self, connection: _Connection, slot: _Slot, handler: LuxiHandler, request: LuxiRequest
    ) -> None:
        def begin() -> None:
            self._dispatch(connection, handler, request, hop=True)

        if connection.slots[0] is slot:
            begin()
        else:
            slot.parked = begin

    def _dispatch(
        self,
        connection: _Connection,
        handler: LuxiHandler,
        request: LuxiRequest,
        *,
        hop: bool = False,
    ) -> None:
        if handler.slow:
            self._slow.run(lambda: self._begin(connection, handler, request))
        elif hop:
            self._quick.run(lambda: self._begin(connection, handler, request))
        else:
            self._begin(connection, handler, request)

    def _begin(self, connection: _Connection, handler: LuxiHandler, request: LuxiRequest) -> None:
        try:
            with request.span.current():
                handler.begin(request)
        except errors.GenericError as err:
            request.fail(err)
        except Exception as err:  # noqa: BLE001 -- the entry point of a LUXI request
            _log.exception("internal error in request %s", request.method)
            request.fail(
                errors.GenericError(
                    f"internal error: {type(err).__name__}: {err}."
                    " The master's log has the details."
                )
            )
        if handler.overlaps:
            self.post(lambda: self._begun(connection, request.slot))

    def _begun(self, connection: _Connection, slot: _Slot) -> None:
        """Allow the next request to begin, even if this one is not answered."""
        if connection.beginning is slot and connection.state is not _ConnectionState.CLOSED:
            connection.beginning = None
            self._begin_next(connection)
            self._update_events(connection)

    def hold(self, request: LuxiRequest, seconds: float) -> None:
        """Let a request wait (in the loop); see :meth:`LuxiRequest.wait`."""
        if request.answered:
            return
        if (
            request.connection.state is not _ConnectionState.OPEN
            or self._state is not _ServerState.SERVING
        ):
            request.time_out()
        else:
            request.connection.held.add(request)
            self._later(seconds, request.time_out)

    def answered(
        self, connection: _Connection, slot: _Slot, data: bytes, request: LuxiRequest | None = None
    ) -> None:
        """Take an answer (in the loop) and send all answers whose turn has come."""
        if request is not None:
            connection.held.discard(request)
            if max(request.size, len(data)) > memory.LARGE_BYTES:
                self._plan_to_give_back()
        slot.answer = data
        if connection.state is not _ConnectionState.CLOSED:
            self._send_answers(connection)

    def _plan_to_give_back(self) -> None:
        """Give memory back in a moment (in the loop), when large requests have ended."""
        if not self._giving_back:
            self._giving_back = True
            self._later(memory.GIVE_BACK_AFTER_S, self._give_back)

    def _give_back(self) -> None:
        self._giving_back = False
        self._slow.run(memory.give_back)

    def _send_answers(self, connection: _Connection) -> None:
        while connection.slots and connection.slots[0].answer is not None:
            slot = connection.slots.popleft()
            data = slot.answer
            assert data is not None
            if not connection.outbox:
                connection.progress_s = time.monotonic()
            connection.outbox.append(memoryview(data))
            connection.outbox_bytes += len(data)
            connection.kept_bytes += len(data)
            if connection.beginning is slot:
                connection.beginning = None
        if connection.slots and connection.slots[0].parked is not None:
            parked, connection.slots[0].parked = connection.slots[0].parked, None
            parked()
        self._flush(connection)
        self._count_unread(connection)

    def _count_unread(self, connection: _Connection) -> None:
        """Count what a client has not taken at once; end others above the limits."""
        more = connection.kept_bytes - self._unread.of(connection)
        if connection.state is _ConnectionState.CLOSED or more <= 0:
            return
        for slow in self._unread.add(connection, more):
            _log.warning(
                "process %d is disconnected: it does not take its answers, and there are too many"
                " which nobody has taken",
                max(slow.client(), 0),
            )
            self._close(slow)

    def _flush(self, connection: _Connection) -> None:
        while connection.outbox:
            try:
                sent = connection.sock.send(connection.outbox[0])
            except BlockingIOError:
                break
            except OSError as err:
                _log.debug("client lost: %s", err)
                self._close(connection)
                return
            connection.progress_s = time.monotonic()
            connection.outbox_bytes -= sent
            if sent == len(connection.outbox[0]):
                whole = len(cast("bytes", connection.outbox.popleft().obj))
                connection.kept_bytes -= whole
                self._unread.progress(connection, whole)
            else:
                self._unread.progress(connection)
                connection.outbox[0] = connection.outbox[0][sent:]
        self._begin_next(connection)
        self._update_events(connection)
        self._close_if_done(connection)
