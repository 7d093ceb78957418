"""The program ``import-export``: one end of the transfer of a disk. Node daemons start it.

An *export* reads a disk, a file, or the output of a script of an OS definition, connects to the
other end, and sends the data. An *import* listens, receives the data, and writes it. The connection
uses TLS with keys which were made for this operation, and each side accepts only the certificate of
the other one, so that no third party can read or send data. The first bytes are a word (*magic*),
by which the receiver recognises the transfer; only data follow.

The program writes its progress to a status file (JSON, rewritten at least once a second, see
:class:`ganeti.objects.transfer.ImportExportStatus`). The node daemon reads this file; it does not
communicate with the program in any other way.

A transfer is successful only when it is successful on both sides: the sender ends the TLS
connection properly after its script has succeeded, and the receiver does so after it has written
and flushed all data. A connection that breaks is a failure on both sides. So a truncated disk never
counts as a complete one.

The program needs the standard library of Python and the chosen compression tool only.
"""

from __future__ import annotations

import argparse
import contextlib
import hmac
import os
import signal
import socket
import ssl
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from ganeti import errors
from ganeti.helpers.import_export_status import Status
from ganeti.helpers.tls_pipe import TlsPipe
from ganeti.utils import (
    compress,
    free_space,
    fs,
    peers,
    process,
    receipt,
    shortage,
    text,
    x509,
)
from ganeti.utils.receipt import Tally

EXPORT: Final = "export"
IMPORT: Final = "import"

EXIT_SUCCESS: Final = 0
EXIT_FAILURE: Final = 1

_BLOCK: Final = 1 << 20
_RETRY_PAUSE_S: Final = 1.0

# Counts bytes that are about to be written.
Take = Callable[[int], None]


class TransferFailed(errors.GenericError):
    """The transfer failed; the message is written to the status file."""


# -- the connection ------------------------------------------------------------------------------


def _context(options: argparse.Namespace) -> ssl.SSLContext:
    return x509.one_peer_context(
        options.cert, options.ca, server=options.mode == IMPORT, key_file=options.key
    )


def connect(options: argparse.Namespace, status: Status) -> TlsPipe:
    """Connect to the other end, with up to ``--connect-retries`` more attempts.

    :raises TransferFailed: the other end cannot be reached, or has a wrong certificate.
    """
    context = _context(options)
    for attempt in range(options.connect_retries + 1):
        if attempt:
            time.sleep(_RETRY_PAUSE_S)
        try:
            raw = peers.connect(
                options.host, options.port, options.connect_timeout, source=options.bind
            )
        except OSError as err:
            status.note(f"cannot connect to {options.host}:{options.port}: {err}")
            continue
        connection = TlsPipe(raw, context, server_side=False)
        try:
            with peers.limited(raw, options.connect_timeout):
                connection.handshake()
        except OSError as err:
            connection.close()
            raise TransferFailed(
                f"no trusted connection to {options.host}:{options.port}: {err}"
            ) from err
        connection.settimeout(None)
        return connection
    raise TransferFailed(f"cannot connect to {options.host}:{options.port}")


def accept(options: argparse.Namespace, status: Status) -> TlsPipe:
    """Listen, and wait for the other end; connections of unauthenticated peers are closed.

    :raises TransferFailed: the other end did not connect within ``--connect-timeout``.
    """
    context, magic = _context(options), read_magic(options.magic_file)
    if compress.import_argv(options.compress) is not None:
        # The magic is a part of the compressed data.
        magic = None
    family = socket.AF_INET6 if options.ipv6 else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((options.bind or "", options.port or 0))
            listener.listen(peers.WAITING_MAX)
        except OSError as err:
            raise TransferFailed(f"cannot listen on {options.bind}:{options.port}: {err}") from err
        status.update(listen_port=listener.getsockname()[1])

        def authenticate(raw: socket.socket) -> TlsPipe:
            connection = TlsPipe(raw, context, server_side=True)
            connection.handshake()
            _check_magic(connection, magic)
            return connection

        def refused(address: str, problem: str) -> None:
            status.note(f"connection from {address} refused: {problem}")

        with peers.Peers(listener, authenticate, refused) as waiting:
            try:
                connection = waiting.first(options.connect_timeout)
            except TimeoutError as err:
                raise TransferFailed(
                    f"the other end did not connect within {options.connect_timeout} s"
                ) from err
        connection.settimeout(None)
        return connection


def _check_magic(connection: TlsPipe, magic: str | None) -> None:
    if magic is None:
        return
    _compare_magic(magic, connection.recv_into)


def _compare_magic(magic: str, read_into: Callable[[memoryview], int]) -> None:
    wanted = f"M={magic}".encode("ascii")
    found, length = bytearray(len(wanted)), 0
    view = memoryview(found)
    while length < len(wanted) and (count := read_into(view[length:])):
        length += count
    if not hmac.compare_digest(bytes(found), wanted):
        raise TransferFailed("the peer did not send the magic word of this transfer")


# -- source and destination of the data
# ---------------------------------------------------------------------------


def _terminated(_number: int, _frame: object) -> None:
    raise TransferFailed("the transfer was aborted")


@contextlib.contextmanager
def _abort_waits() -> Iterator[None]:
    """Delay an abort to the end of the block, so that every started program is known."""
    aborts: list[int] = []
    usual = signal.signal(signal.SIGTERM, lambda number, _frame: aborts.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, usual)
    if aborts:
        _terminated(aborts[0], None)


class _Endpoint:
    """Source or destination of the data on this node: a file, a device, or a script."""

    def __init__(self, options: argparse.Namespace, status: Status) -> None:
        self._options = options
        self._status = status
        self._children: list[tuple[str, subprocess.Popen[bytes]]] = []
        self.fd = -1

    def add(self, what: str, child: subprocess.Popen[bytes]) -> None:
        self._children.append((what, child))

    def wait(self) -> None:
        """Wait for the end of all programs.

        :raises TransferFailed: a program failed; the message has its name.
        """
        for what, child in self._children:
            code = child.wait()
            if code:
                how = f"was ended by signal {-code}" if code < 0 else f"exited with code {code}"
                raise TransferFailed(f"{what} {how}")

    def kill(self) -> None:
        """Kill the programs which still run."""
        for _what, child in self._children:
            if child.poll() is None:
                child.kill()
                child.wait()

    def _start_script(
        self, pass_fds: Sequence[int] = (), **streams: Any
    ) -> subprocess.Popen[bytes]:
        options = self._options
        log_fd = os.open(
            options.log or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640
        )
        try:
            with _abort_waits():
                child = _start_program(
                    [options.script],
                    cwd=os.path.dirname(options.script),
                    stderr=log_fd,
                    # The script may outlive this process, so it inherits the lock of the disk.
                    pass_fds=(*pass_fds, *options.lock_fd),
                    **streams,
                )
                self.add(f"script {options.script}", child)
        except OSError as err:
            raise TransferFailed(
                f"script {options.script} cannot be started: {err.strerror}"
            ) from err
        finally:
            os.close(log_fd)
        return child


def _start_program(argv: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a program, also when the system makes no process for a moment."""

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(argv, **options)

    return shortage.outlast(start, timeout_s=process.SHORTAGE_S, what=f"starting {argv[0]}")


class _Source(_Endpoint):
    """Source of an export; :attr:`fd` can be read."""

    def open(self) -> None:
        options = self._options
        if options.script:
            self._open_script()
            return
        path = options.device or options.file
        try:
            self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as err:
            raise TransferFailed(f"cannot read {path}: {err.strerror}") from err

    def _open_script(self) -> None:
        size_in, size_out = os.pipe()
        try:
            child = self._start_script(
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                pass_fds=(size_out,),
                env={**os.environ, "EXP_SIZE_FD": str(size_out)},
            )
        finally:
            os.close(size_out)
        assert child.stdout is not None
        self.fd = os.dup(child.stdout.fileno())
        child.stdout.close()
        threading.Thread(target=self._read_size, args=(size_in,), daemon=True).start()

    def _read_size(self, fd: int) -> None:
        """Read the expected size in MiB, which the script may write."""
        with os.fdopen(fd, "rb") as stream:
            words = stream.read(64).split()
        if words and words[0].isdigit():
            self._status.expected_mib = float(words[0])


class _Sink(_Endpoint):
    """Destination of an import; :attr:`fd` can be written.

    The other end may belong to another cluster, and may send more than it should: a disk in a file
    does not become larger than it is, and a new file does not fill the file system.

    :ivar identity: number of its file system, and of the file there; known when it is closed.
    """

    identity = (0, 0)
    # Bytes which still fit into a disk in a file; None for a device, which has a limit itself.
    _size_left: int | None = None
    _allowance: free_space.Allowance | None = None

    def open(self) -> None:
        options = self._options
        if options.script:
            child = self._start_script(stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
            assert child.stdin is not None
            self.fd = os.dup(child.stdin.fileno())
            child.stdin.close()
            return
        path = options.device or options.file
        flags = os.O_WRONLY | os.O_CLOEXEC
        if options.file:
            # A transfer which somebody forgot may still write to a file of that name.
            flags |= os.O_CREAT | os.O_EXCL
        try:
            self.fd = os.open(path, flags, 0o600)
        except OSError as err:
            raise TransferFailed(f"cannot write {path}: {err.strerror}") from err
        found = os.fstat(self.fd)
        if options.file:
            self._allowance = free_space.Allowance(os.path.dirname(path), f"file {path}")
        elif stat.S_ISREG(found.st_mode):
            self._size_left = found.st_size

    def take(self, size: int) -> None:
        """Count bytes that are about to be written.

        :raises TransferFailed: they are more than the disk has, or than the free space.
        """
        if self._size_left is not None:
            self._size_left -= size
            if self._size_left < 0:
                raise TransferFailed(
                    f"the other end sends more data than disk {self._options.device} has"
                )
        if self._allowance is not None:
            try:
                self._allowance.take(size)
            except free_space.NoSpace as err:
                raise TransferFailed(str(err)) from err

    def close(self) -> None:
        """Flush the data to the disk, and close the file, device or pipe."""
        if not self._options.script:
            os.fsync(self.fd)
            found = os.fstat(self.fd)
            self.identity = found.st_dev, found.st_ino
        os.close(self.fd)
        self.fd = -1


@contextlib.contextmanager
def _closing(end: _Endpoint) -> Iterator[None]:
    try:
        yield
    finally:
        end.kill()
        if end.fd >= 0:
            os.close(end.fd)


# -- copying data ---------------------------------------------------------------------------------


def _write_all(fd: int, data: memoryview) -> None:
    while data:
        data = data[os.write(fd, data) :]


def _blocks(source_fd: int, limit: int | None) -> Iterator[memoryview]:
    """Read a file descriptor; a block is valid until the next one is asked for.

    :param limit: number of bytes to read; None for everything.
    :raises TransferFailed: the source ended before the limit.
    """
    view = memoryview(bytearray(_BLOCK))
    left = limit
    while left is None or left > 0:
        count = os.readv(source_fd, [view if left is None else view[:left]])
        if not count:
            break
        yield view[:count]
        left = None if left is None else left - count
    if limit and left:
        raise TransferFailed(f"the source ended after {limit - left} of {limit} bytes")


def _pump_out(
    source_fd: int,
    connection: TlsPipe,
    status: Status | None,
    limit: int | None,
    tally: Tally | None = None,
) -> None:
    """Copy from a file descriptor to the connection, as :func:`_blocks` reads it."""
    for block in _blocks(source_fd, limit):
        connection.sendall(block)
        _count(block, status, tally)


def _count(data: memoryview, status: Status | None, tally: Tally | None) -> None:
    if status is not None:
        status.moved(len(data))
    if tally is not None:
        tally.add(data)


def _pump_in(
    connection: TlsPipe,
    sink_fd: int,
    status: Status | None,
    tally: Tally | None = None,
    take: Take | None = None,
) -> None:
    """Copy from the connection to a file descriptor, up to the proper end of the connection.

    :param take: called before a block is written; raises when it is too much.
    """
    buffer = bytearray(_BLOCK)
    view = memoryview(buffer)
    while count := connection.recv_into(view):
        if take is not None:
            take(count)
        _write_all(sink_fd, view[:count])
        _count(view[:count], status, tally)


def _pump_local(
    source_fd: int,
    sink_fd: int,
    status: Status,
    limit: int | None,
    tally: Tally | None,
    take: Take | None,
) -> None:
    """Copy between two file descriptors, as :func:`_blocks` reads the first one."""
    for block in _blocks(source_fd, limit):
        if take is not None:
            take(len(block))
        _write_all(sink_fd, block)
        _count(block, status, tally)


class _Worker(threading.Thread):
    """Thread which copies to or from the compression tool; :meth:`finish` raises its failure.

    :param magic: read from the source, and compared; None for none.
    :param tool: ended after a failure, so that nobody waits for it.
    :param take: as for :func:`_pump_in`.
    """

    def __init__(
        self,
        source_fd: int,
        sink_fd: int,
        status: Status,
        limit: int | None,
        tally: Tally | None,
        *,
        tool: subprocess.Popen[bytes],
        magic: str | None = None,
        take: Take | None = None,
    ) -> None:
        super().__init__(daemon=True)
        self._ends = (source_fd, sink_fd)
        self._status = status
        self._limit = limit
        self._tally = tally
        self._tool = tool
        self._magic = magic
        self._take = take
        self._failure: OSError | TransferFailed | None = None

    def run(self) -> None:
        source_fd, _sink_fd = self._ends
        try:
            if self._magic is not None:
                _compare_magic(self._magic, lambda view: os.readv(source_fd, [view]))
            _pump_local(*self._ends, self._status, self._limit, self._tally, self._take)
        except (OSError, TransferFailed) as err:
            self._failure = err
            self._tool.kill()
        finally:
            # The compression tool must see the end of its input, even after a failure.
            os.close(self._ends[1])

    def finish(self) -> None:
        """Wait for the end of the thread.

        :raises OSError: the thread failed.
        :raises TransferFailed: the source ended too early.
        """
        self.join()
        if self._failure is not None:
            raise self._failure


def _compressor(argv: Sequence[str], end: _Endpoint) -> subprocess.Popen[bytes]:
    try:
        with _abort_waits():
            child = _start_program(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            end.add(f"compressor {argv[0]}", child)
    except OSError as err:
        raise TransferFailed(f"compressor {argv[0]} cannot be started: {err.strerror}") from err
    return child


def run_export(options: argparse.Namespace, status: Status) -> None:
    """Send a disk.

    :raises TransferFailed: this side failed, or the other side did not confirm the end.
    """
    source = _Source(options, status)
    limit: int | None = options.bytes
    magic, tally = read_magic(options.magic_file), _tally(options.expected_sha256)
    with _closing(source), connect(options, status) as connection:
        status.update(connected=True)
        source.open()
        # As the original sends it: compressed with the data, if they are compressed.
        greeting = b"" if magic is None else f"M={magic}".encode("ascii")
        argv = compress.export_argv(options.compress)
        if argv is None:
            connection.sendall(greeting)
            _pump_out(source.fd, connection, status, limit, tally)
        else:
            tool = _compressor(argv, source)
            assert tool.stdin is not None and tool.stdout is not None
            worker = _Worker(
                source.fd, os.dup(tool.stdin.fileno()), status, limit, tally, tool=tool
            )
            # It is shorter than the buffer of a pipe.
            _write_all(tool.stdin.fileno(), memoryview(greeting))
            tool.stdin.close()
            worker.start()
            _pump_out(tool.stdout.fileno(), connection, None, None)
            worker.finish()
        source.wait()
        # The other side takes the data for complete only after the proper end below.
        if tally is not None and tally.sha256 != options.expected_sha256:
            raise TransferFailed(
                f"{options.file or options.device} is damaged: the checksum of its"
                f" {tally.size} bytes is not the one which was recorded when it was written"
            )
        try:
            # Returns when the other side has ended the connection properly, too.
            connection.finish()
        except OSError as err:
            raise TransferFailed(f"the other side did not confirm the transfer: {err}") from err


def _tally(wanted: object) -> Tally | None:
    return Tally() if wanted else None


def run_import(options: argparse.Namespace, status: Status) -> None:
    """Receive a disk.

    :raises TransferFailed: this side failed, or the connection broke.
    """
    sink, tally = _Sink(options, status), _tally(options.receipt)
    with _closing(sink), accept(options, status) as connection:
        status.update(connected=True)
        sink.open()
        argv = compress.import_argv(options.compress)
        worker = None
        try:
            if argv is None:
                _pump_in(connection, sink.fd, status, tally, sink.take)
            else:
                tool = _compressor(argv, sink)
                assert tool.stdin is not None and tool.stdout is not None
                worker = _Worker(
                    tool.stdout.fileno(),
                    os.dup(sink.fd),
                    status,
                    None,
                    tally,
                    tool=tool,
                    magic=read_magic(options.magic_file),
                    take=sink.take,
                )
                worker.start()
                _pump_in(connection, tool.stdin.fileno(), None)
                tool.stdin.close()
                worker.finish()
        except BrokenPipeError:
            if worker is not None:
                worker.finish()
            # A program has ended early; its exit code explains the failure, if it is not 0.
            sink.wait()
            raise
        except (ssl.SSLError, ConnectionResetError) as err:
            raise TransferFailed(f"the connection broke before the end: {err}") from err
        sink.close()
        sink.wait()
        connection.finish()
        if tally is not None:
            receipt.write(options.file, tally, sink.identity)


# -- the program ---------------------------------------------------------------------------------


def parse_options(argv: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="import-export",
        # No prefix of an option may take a secret for the name of a file.
        allow_abbrev=False,
        description="Send or receive a disk; ganeti-noded starts this program.",
    )
    parser.add_argument("status_file", help="file for the progress and the result, as JSON")
    parser.add_argument("mode", choices=(IMPORT, EXPORT), help="receive or send")
    parser.add_argument("--key", required=True, help="file with the private key")
    parser.add_argument("--cert", required=True, help="file with the certificate")
    parser.add_argument("--ca", required=True, help="file with the certificates to trust")
    parser.add_argument("--bind", help="address to listen on, or to connect from")
    family = parser.add_mutually_exclusive_group()
    family.add_argument("--ipv4", action="store_true", help="listen on an IPv4 address (default)")
    family.add_argument("--ipv6", action="store_true", help="listen on an IPv6 address")
    parser.add_argument("--host", help="address of the other end, for an export")
    parser.add_argument("--port", type=int, help="port to listen on, or of the other end")
    parser.add_argument(
        "--connect-retries", type=int, default=0, help="number of further attempts to connect"
    )
    parser.add_argument(
        "--connect-timeout", type=float, default=60, help="seconds to wait for the other end"
    )
    parser.add_argument("--compress", default=compress.NONE, help="compression tool, or none")
    parser.add_argument("--expected-size", type=float, help="size in MiB, for the progress")
    parser.add_argument(
        "--magic-file",
        help="file with the word by which the receiver recognises the transfer; the word itself is"
        " secret, and command lines are public",
    )
    parser.add_argument(
        "--lock-fd",
        type=int,
        action="append",
        default=[],
        help="number of an open file with the lock of the disk, which scripts inherit",
    )
    parser.add_argument("--log", help="file for the messages of the script")
    parser.add_argument("--bytes", type=int, help="number of bytes to send, from the beginning")
    parser.add_argument("--expected-sha256", help="checksum which the sent data must have")
    parser.add_argument(
        "--receipt",
        action="store_true",
        help="write size and checksum of the received file beside it, when it is complete",
    )
    end = parser.add_mutually_exclusive_group(required=True)
    end.add_argument("--file", help="file to read or write")
    end.add_argument("--device", help="device to read or write")
    end.add_argument("--script", help="script of an OS definition to read from or write to")
    options = parser.parse_args(argv)
    if options.receipt and (options.mode == EXPORT or options.file is None):
        parser.error("--receipt is for the import of a file")
    if options.mode == EXPORT and (options.host is None or options.port is None):
        parser.error("an export needs --host and --port")
    return options


def read_magic(path: str | None) -> str | None:
    """Read the word of the transfer; None when it has none.

    :raises TransferFailed: the file cannot be read, or its content has a wrong form.
    """
    if path is None:
        return None
    try:
        word = fs.read_file(path)
    except OSError as err:
        raise TransferFailed(f"cannot read {path}: {err.strerror}") from err
    if not text.is_transfer_magic(word):
        raise TransferFailed(f"the word in {path} has a wrong form")
    return word


def main(argv: Sequence[str] | None = None) -> int:
    """Run one end of the transfer; the exit code is also in the status file."""
    options = parse_options(sys.argv[1:] if argv is None else argv)
    signal.signal(signal.SIGTERM, _terminated)
    # When a script ends early, writing to it must raise an error instead of ending this process.
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    status = Status(options.status_file, options.expected_size, options.log)
    status.update()
    try:
        (run_export if options.mode == EXPORT else run_import)(options, status)
    except (errors.GenericError, OSError, ValueError, OverflowError) as err:
        # The last two: an argument which the system does not accept.
        status.update(exit_status=EXIT_FAILURE, error_message=str(err))
        return EXIT_FAILURE
    status.update(exit_status=EXIT_SUCCESS)
    return EXIT_SUCCESS


if __name__ == "__main__":
    sys.exit(main())
