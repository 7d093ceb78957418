"""The program which sends a guest under Xen to another node, or receives one.

The node daemon starts it (:mod:`ganeti.hypervisor.xen.migration`); it goes on in the background,
and writes how far it is to the files of :mod:`ganeti.hypervisor.xen.transfer`. ``SIGTERM`` ends it
in order: ``xl`` gets an error and lets a guest which was not sent run on.

On the connection the two ends say what ``xl migrate`` and ``xl migrate-receive`` say to each other:

1. the target sends :data:`BANNER`, and the source the state of the guest, as ``xl save`` writes it;
2. when the domain is complete and paused, the target sends :data:`READY`;
3. the source sends :data:`GO`: the guest belongs to the target;
4. the target sends :data:`REPORT`, and a zero byte which stands for success.

All words but the banner end with a zero byte, which ``xl`` reads and writes as a part of them.

For a live migration ``xl migrate`` itself is the source, and this program passes its words on. For
the other kind it runs ``xl save`` and says the rest itself. The target always runs ``xl restore``
with a configuration of its own, so the one in the stream has no effect.

Source: xl(1); the messages are those of ``xl`` in Xen 4.1 to 4.19.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import logging
import os
import selectors
import shlex
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from ganeti import errors
from ganeti.hypervisor import host
from ganeti.hypervisor.xen import transfer, xl
from ganeti.hypervisor.xen.transfer import Transfer
from ganeti.utils import daemonize, peers, x509

BANNER: Final = b"xl migration receiver ready, send binary domain data.\n"
READY: Final = b"domain received, ready to unpause\0"
GO: Final = b"domain is yours, you are cleared to unpause\0"
REPORT: Final = b"my copy unpause results are as follows\0"

_CHUNK: Final = 1 << 20
# Until the target is ready; the guest runs meanwhile.
_CONNECT_S: Final = 30.0
# Until the source connects. The master asks it to as soon as the target listens.
_SOURCE_S: Final = 600.0
_ANSWER_S: Final = 900.0
_EVERY_S: Final = 0.5


class Failed(errors.GenericError):
    """The migration failed; the message is written to the state."""


class _Ended(Exception):
    """SIGTERM has arrived."""


def _terminated(_number: int, _frame: object) -> None:
    raise _Ended


class Progress:
    """Writes how far the migration is."""

    def __init__(self, name: str, state: Transfer) -> None:
        self._name = name
        self.state = state
        self._begin = time.monotonic()
        self._written = 0.0
        self.set()

    def set(self, *, sync: bool = False, **values: Any) -> None:
        """Change the state and write it."""
        self.state = replace(self.state, **values)
        self._written = time.monotonic()
        transfer.write(self._name, self.state, sync=sync)

    def count(self, number: int) -> None:
        """Count bytes; writes the state twice a second."""
        self.state = replace(self.state, moved=self.state.moved + number)
        if time.monotonic() - self._written >= _EVERY_S:
            self.set()

    def since(self, moment: float | None = None) -> int:
        """Milliseconds since a moment, or since the beginning."""
        return int((time.monotonic() - (self._begin if moment is None else moment)) * 1000)


class Peer:
    """The other end: a connection with TLS, used by one thread in both directions.

    Its methods raise OSError when the connection breaks.
    """

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self.socket = sock

    def receive(self, wanted: bytes, what: str) -> None:
        """Wait for exactly these bytes.

        :raises Failed: the other end sends others, or ends.
        """
        self.socket.settimeout(_ANSWER_S)
        found = b""
        while len(found) < len(wanted):
            data = _received(self.socket, len(wanted) - len(found))
            if not data:
                raise Failed(f"the other node ended the connection before it sent {what}")
            found += data
        if found != wanted:
            raise Failed(f"the other node sent {found!r:.80} in place of {what}")

    def send(self, data: bytes | memoryview) -> None:
        """Send bytes."""
        self.socket.settimeout(_ANSWER_S)
        self.socket.sendall(data)


def _received(sock: ssl.SSLSocket, size: int) -> bytes:
    """Bytes which have arrived; none at the end, also where the other end ended without a word."""
    try:
        return sock.recv(size)
    except (ssl.SSLEOFError, ConnectionResetError):
        return b""


def _context(name: str, *, server: bool) -> ssl.SSLContext:
    return x509.one_peer_context(transfer.own_file(name), transfer.peer_file(name), server=server)


def connect(name: str, address: str, port: int) -> Peer:
    """Connect to the target, and wait until it is ready.

    :raises OSError: it does not listen, or is not the target.
    :raises Failed: it is not ready in time.
    """
    context = _context(name, server=False)
    sock = peers.connect(address, port, _CONNECT_S)
    with peers.limited(sock, _CONNECT_S):
        peer = Peer(context.wrap_socket(sock))
        peer.receive(BANNER, "its readiness")
    return peer


def accept(name: str, listener: socket.socket) -> Peer:
    """Wait for the source; connections of others are closed, and do not delay it.

    :raises Failed: it does not connect.
    """
    context = _context(name, server=True)

    def authenticate(sock: socket.socket) -> ssl.SSLSocket:
        return context.wrap_socket(sock, server_side=True)

    def refused(address: str, problem: str) -> None:
        logging.warning("connection from %s refused: %s", address, problem)

    with peers.Peers(listener, authenticate, refused) as waiting:
        try:
            return Peer(waiting.first(_SOURCE_S))
        except TimeoutError as err:
            raise Failed(f"the source did not connect within {_SOURCE_S:g} s") from err


# -- the source ------------------------------------------------------------------------------------


def send_paused(peer: Peer, domain: int, progress: Progress) -> None:
    """Stop the guest, and send it; it stays paused here.

    :raises Failed, OSError: it was not sent; it may be paused.
    """
    begin = time.monotonic()
    read_end, write_end = _large_pipe()
    with os.fdopen(read_end, "rb", buffering=0) as stream:
        program = _run_xl(["save", "-p", str(domain), f"/dev/fd/{write_end}"], keep=(write_end,))
        os.close(write_end)
        try:
            while data := stream.read(_CHUNK):
                peer.send(data)
                progress.count(len(data))
        except BaseException:
            # xl gets an error, and lets the guest run on.
            stream.close()
            program.wait()
            raise
    _require_success(program)
    peer.receive(READY, "that the guest has arrived")
    progress.set(sent=True, sync=True)
    peer.send(GO)
    peer.receive(REPORT + b"\0", "that the guest is its own")
    progress.set(paused_ms=progress.since(begin))


def send_live(peer: Peer, domain: int, config: str, progress: Progress) -> None:
    """Let ``xl migrate`` send the guest while it runs.

    :raises Failed, OSError: it was not sent, or it is not known whether; ``sent`` tells.
    """
    to_xl_read, to_xl = os.pipe()
    from_xl, from_xl_write = _large_pipe()
    # xl adds the name of the node and "xl migrate-receive", which become a comment.
    relay = f"cat </dev/fd/{to_xl_read} & exec cat >/dev/fd/{from_xl_write} #"
    program = _run_xl(
        ["migrate", "-s", relay, "-C", config, str(domain), "target"],
        keep=(to_xl_read, from_xl_write),
    )
    os.close(to_xl_read)
    os.close(from_xl_write)
    try:
        with contextlib.suppress(BrokenPipeError):
            # The target has said that already.
            os.write(to_xl, BANNER)
        _relay(peer, to_xl, from_xl, program.pid, progress)
    finally:
        for number in (to_xl, from_xl):
            os.close(number)
        program.wait()
    _require_success(program)


def _large_pipe() -> tuple[int, int]:
    """Return a pipe which holds much, so that both sides work at the same time."""
    read_end, write_end = os.pipe()
    with contextlib.suppress(OSError):
        fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, _CHUNK)
    return read_end, write_end


def _relay(peer: Peer, to_xl: int, from_xl: int, pid: int, progress: Progress) -> None:
    """Pass on what ``xl`` and the target say, until ``xl`` has ended.

    The first bytes of ``xl`` after :data:`READY` are :data:`GO`: that is written down first.

    :param pid: of ``xl``.
    """
    heard = b""
    arrived = False
    peer.socket.setblocking(False)
    with selectors.DefaultSelector() as ready, os.fdopen(os.pidfd_open(pid)) as ended:
        for source in (from_xl, ended, peer.socket):
            ready.register(source, selectors.EVENT_READ)
        while True:
            # What TLS has read already is not seen by the selector.
            timeout_s = 0 if peer.socket.pending() else None
            events = {key.fileobj for key, _mask in ready.select(timeout_s)}
            if from_xl in events:
                data = os.read(from_xl, _CHUNK)
                if not data:
                    return
                if arrived and not progress.state.sent:
                    progress.set(sent=True, sync=True)
                _send_all(peer, data)
                progress.count(len(data))
            elif ended in events:
                return
            if peer.socket in events or peer.socket.pending():
                try:
                    data = _received(peer.socket, _CHUNK)
                except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                    continue
                if not data:
                    raise Failed("the other node ended the connection")
                heard = (heard + data)[-4096:]
                arrived = arrived or READY in heard
                with contextlib.suppress(BrokenPipeError):
                    os.write(to_xl, data)


def _send_all(peer: Peer, data: bytes) -> None:
    peer.socket.settimeout(_ANSWER_S)
    peer.socket.sendall(data)
    peer.socket.setblocking(False)


def _run_xl(words: list[str], keep: Sequence[int] = (), stdin: Any = subprocess.DEVNULL) -> Any:
    logging.info("running xl %s", shlex.join(words))
    return subprocess.Popen(
        ["xl", *words],
        stdin=stdin,
        stdout=sys.stderr,
        stderr=sys.stderr,
        pass_fds=keep,
        # With a broken pipe xl must get an error, and not end before it has cleaned up.
        restore_signals=False,
        start_new_session=True,
    )


def _require_success(program: Any) -> None:
    code = program.wait()
    if code:
        raise Failed(f"xl ended with exit code {code}")


def run_source(options: argparse.Namespace, ready: _Report) -> None:
    """Send the guest."""
    total = options.memory << 20
    state = Transfer(direction=transfer.OUT, status=transfer.ACTIVE, pid=os.getpid(), total=total)
    progress = Progress(options.name, state)
    ready.ready()
    try:
        peer = connect(options.name, options.address, options.port)
        with peer.socket:
            if options.live:
                send_live(peer, options.domain, options.config, progress)
            else:
                send_paused(peer, options.domain, progress)
    except BaseException as err:
        if progress.state.sent:
            # It belongs to the target; only its answer is missing.
            logging.warning("the target did not confirm: %s", err)
            progress.set(status=transfer.COMPLETED, error=_reason(err), sync=True)
            return
        progress.set(status=transfer.FAILED, error=_explained(err, options.name), sync=True)
        raise
    # xl has ended well, so the target has confirmed.
    took_ms = progress.since()
    progress.set(
        status=transfer.COMPLETED,
        sent=True,
        took_ms=took_ms,
        paused_ms=took_ms if progress.state.paused_ms is None and not options.live else None,
        sync=True,
    )


# -- the target ------------------------------------------------------------------------------------


def run_target(options: argparse.Namespace, ready: _Report) -> None:
    """Receive the guest; it is paused afterwards."""
    state = Transfer(direction=transfer.IN, status=transfer.WAITING, pid=os.getpid())
    progress = Progress(options.name, state)
    try:
        with socket.socket(fileno=options.listener) as listener:
            ready.ready()
            peer = accept(options.name, listener)
        with peer.socket:
            progress.set(status=transfer.ACTIVE)
            peer.send(BANNER)
            _restore(peer, options.config, progress)
            _require_domain(options.name)
            progress.set(status=transfer.ARRIVED, sync=True)
            peer.send(READY)
            peer.receive(GO, "that the guest is ours")
            progress.set(status=transfer.OWNED, sync=True)
            with contextlib.suppress(OSError):
                # Without an answer the source does not continue the guest either.
                peer.send(REPORT + b"\0")
    except BaseException as err:
        if progress.state.status not in (transfer.ARRIVED, transfer.OWNED):
            progress.set(status=transfer.FAILED, error=_explained(err, options.name), sync=True)
        raise


def _restore(peer: Peer, config: str, progress: Progress) -> None:
    """Feed ``xl restore`` until it has the whole guest."""
    program = _run_xl(["restore", "-p", config, "/dev/stdin"], stdin=subprocess.PIPE)
    feed = program.stdin.fileno()
    ended = os.pidfd_open(program.pid)
    peer.socket.setblocking(False)
    try:
        with selectors.DefaultSelector() as ready:
            ready.register(peer.socket, selectors.EVENT_READ)
            ready.register(ended, selectors.EVENT_READ)
            while True:
                # What TLS has read already is not seen by the selector.
                events = ready.select(0 if peer.socket.pending() else None)
                if any(key.fileobj == ended for key, _mask in events):
                    break
                try:
                    data = _received(peer.socket, _CHUNK)
                except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                    continue
                if not data:
                    raise Failed("the other node ended the connection before all had arrived")
                progress.count(len(data))
                view = memoryview(data)
                while view:
                    view = view[os.write(feed, view) :]
    except BrokenPipeError:
        logging.warning("xl ended before it had read all")
    finally:
        os.close(ended)
        # Without the rest, xl destroys what it has made.
        program.stdin.close()
        program.wait()
    _require_success(program)


def _require_domain(name: str) -> None:
    """Check that Xen has the guest, as ``xl`` said: the source gives it up for that.

    :raises Failed: it has not, or does not answer.
    """
    try:
        found = [domain for domain in xl.domains() if domain.name == name]
    except errors.HypervisorError as err:
        raise Failed(f"it is not known whether the guest has arrived: {err}") from err
    if not found:
        raise Failed("xl ended without an error, but Xen has no domain of the guest")


# -- the program -----------------------------------------------------------------------------------


def _reason(err: BaseException) -> str:
    if isinstance(err, _Ended):
        return "it was canceled"
    return str(err) or type(err).__name__


def _explained(err: BaseException, name: str) -> str:
    """Return the reason, with what ``xl`` has printed."""
    try:
        with open(transfer.log_file(name), encoding="utf-8", errors="replace") as stream:
            said = host.last_lines(stream.read()[-4096:])
    except OSError:
        said = ""
    return f"{_reason(err)}{f' ({said})' if said else ''}"


def parse_options(argv: Sequence[str]) -> argparse.Namespace:
    """Read the arguments."""
    parser = argparse.ArgumentParser(prog="xen-transfer")
    parser.add_argument("mode", choices=("send", "receive"))
    parser.add_argument("name")
    parser.add_argument("config")
    parser.add_argument("--address", default="", help="of the target")
    parser.add_argument("--port", type=int, default=0, help="of the target")
    parser.add_argument("--listener", type=int, default=-1, help="number of the open socket")
    parser.add_argument("--domain", type=int, default=0)
    parser.add_argument("--memory", type=int, default=0)
    parser.add_argument("--live", action="store_true")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program in the background; returns its exit code."""
    options = parse_options(sys.argv[1:] if argv is None else argv)
    ready = daemonize.daemonize("xen-transfer")
    # Each migration has a log of its own, from which the reason of a failure is taken.
    log = os.open(
        transfer.log_file(options.name),
        os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC,
        0o640,
    )
    try:
        with transfer.alive(options.name):
            return _run(options, ready, log)
    except OSError as err:
        ready.failed(f"another migration of instance {options.name} goes on: {err}")
        return 1


def _run(options: argparse.Namespace, ready: daemonize.Ready, log: int) -> int:
    logging.basicConfig(
        stream=os.fdopen(os.dup(log), "w"), level=logging.INFO, format="%(asctime)s %(message)s"
    )
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _terminated)
    report = _Report(ready, log)
    try:
        (run_source if options.mode == "send" else run_target)(options, report)
    except (errors.GenericError, OSError, ValueError, _Ended) as err:
        logging.error("%s", _reason(err))
        report.failed(_reason(err))
        return 1
    return 0


class _Report:
    """Reports once to the node daemon, and then gives its output to the log."""

    def __init__(self, ready: daemonize.Ready, log: int) -> None:
        self._ready = ready
        self._log = log
        self._done = False

    def ready(self) -> None:
        """Report that the program works, and go on in the background."""
        self._done = True
        self._ready.ready()
        daemonize.close_output(self._log)

    def failed(self, text: str) -> None:
        """Report why the program ends, unless it has reported."""
        if not self._done:
            self._done = True
            self._ready.failed(text)


if __name__ == "__main__":
    sys.exit(main())
