"""One end of a transfer of a disk; the program ``import-export``, which node daemons start.

An *export* reads a disk (or what a script of an OS definition prints, or a file), connects to the
other end and sends; an *import* listens, receives and writes. Between them is TLS with certificates
checked on both sides, so that data neither leak nor come from somebody else. Nothing but data
crosses the connection, after a word (*magic*) by which the receiver knows that this is the disk
it waits for.

How far it is stands in a status file (JSON, rewritten at least once a second, see
:class:`ganeti.objects.transfer.ImportExportStatus`); whoever started the program reads it and never
talks to it.

An end is reached only when all is well on both sides: the sender says the proper end of the
connection after its script has succeeded, the receiver confirms it after everything is written and
flushed, and a connection that just breaks is a failure for both. So a truncated disk is never taken
for a whole one.

The program needs nothing outside of Python but the compressor that was asked for.
"""

from __future__ import annotations

import argparse
import contextlib
import hmac
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

from ganeti import errors
from ganeti.helpers.import_export_status import Status
from ganeti.helpers.tls_pipe import TlsPipe
from ganeti.utils import compress, text, x509

EXPORT: Final = "export"
IMPORT: Final = "import"

EXIT_SUCCESS: Final = 0
EXIT_FAILURE: Final = 1

_BLOCK: Final = 1 << 20
_MIB: Final = 1 << 20
_HANDSHAKE_S: Final = 30.0
_RETRY_PAUSE_S: Final = 1.0
_KEEPALIVE: Final = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 5}


class _Failed(errors.GenericError):
    """The transfer failed; the text goes into the status file."""


# -- the connection ------------------------------------------------------------------------------


def _context(options: argparse.Namespace) -> ssl.SSLContext:
    purpose = ssl.PROTOCOL_TLS_CLIENT if options.mode == EXPORT else ssl.PROTOCOL_TLS_SERVER
    context = ssl.SSLContext(purpose)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Certificates are made for this transfer, or are the cluster's: their names say nothing.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    # A connection that just ends must never look like one that was ended.
    context.options &= ~getattr(ssl, "OP_IGNORE_UNEXPECTED_EOF", 0)
    try:
        context.set_ciphers(x509.CIPHERS)
        context.load_cert_chain(options.cert, options.key)
        context.load_verify_locations(cafile=options.ca)
    except (OSError, ValueError) as err:
        raise _Failed(f"cannot use certificate {options.cert}: {err}") from err
    return context


def _tune(raw: socket.socket) -> None:
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        raw.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def connect(options: argparse.Namespace, status: Status) -> TlsPipe:
    """Reach the other end, trying again as often as was said.

    :raises _Failed: it cannot be reached, or shows a wrong certificate.
    """
    context = _context(options)
    for attempt in range(options.connect_retries + 1):
        if attempt:
            time.sleep(_RETRY_PAUSE_S)
        try:
            raw = socket.create_connection(
                (options.host, options.port),
                timeout=options.connect_timeout,
                source_address=(options.bind, 0) if options.bind else None,
            )
        except OSError as err:
            status.note(f"cannot connect to {options.host}:{options.port}: {err}")
            continue
        _tune(raw)
        connection = TlsPipe(raw, context, server_side=False)
        try:
            connection.handshake()
        except OSError as err:
            connection.close()
            raise _Failed(f"no trusted connection to {options.host}:{options.port}: {err}") from err
        connection.settimeout(None)
        return connection
    raise _Failed(f"cannot connect to {options.host}:{options.port}")


def accept(options: argparse.Namespace, status: Status) -> TlsPipe:
    """Listen, and wait for the other end. Strangers are sent away and do not end the waiting.

    :raises _Failed: it did not come in time.
    """
    context = _context(options)
    family = socket.AF_INET6 if options.ipv6 else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((options.bind or "", options.port or 0))
            listener.listen(5)
        except OSError as err:
            raise _Failed(f"cannot listen on {options.bind}:{options.port}: {err}") from err
        status.update(listen_port=listener.getsockname()[1])
        deadline = time.monotonic() + options.connect_timeout
        while (left_s := deadline - time.monotonic()) > 0:
            listener.settimeout(left_s)
            try:
                raw, peer = listener.accept()
            except TimeoutError:
                break
            _tune(raw)
            raw.settimeout(min(_HANDSHAKE_S, max(left_s, 1.0)))
            connection = TlsPipe(raw, context, server_side=True)
            try:
                connection.handshake()
                _check_magic(connection, options.magic)
            except (OSError, _Failed) as err:
                status.note(f"connection from {peer[0]} refused: {err}")
                connection.close()
                continue
            connection.settimeout(None)
            return connection
    raise _Failed(f"nobody connected within {options.connect_timeout} s")


def _check_magic(connection: TlsPipe, magic: str | None) -> None:
    if magic is None:
        return
    wanted = f"M={magic}".encode("ascii")
    found, length = bytearray(len(wanted)), 0
    view = memoryview(found)
    while length < len(wanted) and (count := connection.recv_into(view[length:])):
        length += count
    if not hmac.compare_digest(bytes(found), wanted):
        raise _Failed("it did not say the magic word of this transfer")


# -- sources and sinks ---------------------------------------------------------------------------


def _terminated(_number: int, _frame: object) -> None:
    raise _Failed("the transfer was aborted")


@contextlib.contextmanager
def _abort_waits() -> Iterator[None]:
    """An abort comes after this: no program shall be started and forgotten."""
    aborts: list[int] = []
    usual = signal.signal(signal.SIGTERM, lambda number, _frame: aborts.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, usual)
    if aborts:
        _terminated(aborts[0], None)


class _End:
    """Where data come from or go to on this node: a file, a device, or a script."""

    def __init__(self, options: argparse.Namespace, status: Status) -> None:
        self._options = options
        self._status = status
        self._children: list[tuple[str, subprocess.Popen[bytes]]] = []
        self.fd = -1

    def add(self, what: str, child: subprocess.Popen[bytes]) -> None:
        self._children.append((what, child))

    def wait(self) -> None:
        """Wait for the programs; all must succeed.

        :raises _Failed: names the one which did not.
        """
        for what, child in self._children:
            code = child.wait()
            if code:
                how = f"was ended by signal {-code}" if code < 0 else f"exited with code {code}"
                raise _Failed(f"{what} {how}")

    def kill(self) -> None:
        """End programs that still run."""
        for _what, child in self._children:
            if child.poll() is None:
                child.kill()
                child.wait()

    def _start_script(self, **streams: Any) -> subprocess.Popen[bytes]:
        options = self._options
        log_fd = os.open(
            options.log or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640
        )
        try:
            with _abort_waits():
                child = subprocess.Popen(
                    [options.script], cwd=os.path.dirname(options.script), stderr=log_fd, **streams
                )
                self.add(f"script {options.script}", child)
        except OSError as err:
            raise _Failed(f"script {options.script} cannot be started: {err.strerror}") from err
        finally:
            os.close(log_fd)
        return child


class _Source(_End):
    """What is exported; :attr:`fd` can be read."""

    def open(self) -> None:
        options = self._options
        if options.script:
            self._open_script()
            return
        path = options.device or options.file
        try:
            self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as err:
            raise _Failed(f"cannot read {path}: {err.strerror}") from err

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
        """The script may say how much it will send, in MiB."""
        with os.fdopen(fd, "rb") as stream:
            words = stream.read(64).split()
        if words and words[0].isdigit():
            self._status.expected_mib = float(words[0])


class _Sink(_End):
    """Where an import goes; :attr:`fd` can be written."""

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
            flags |= os.O_CREAT | os.O_TRUNC
        try:
            self.fd = os.open(path, flags, 0o600)
        except OSError as err:
            raise _Failed(f"cannot write {path}: {err.strerror}") from err

    def close(self) -> None:
        """Everything was written: let it reach the disk."""
        if not self._options.script:
            os.fsync(self.fd)
        os.close(self.fd)
        self.fd = -1


@contextlib.contextmanager
def _closing(end: _End) -> Iterator[None]:
    try:
        yield
    finally:
        end.kill()
        if end.fd >= 0:
            os.close(end.fd)


# -- moving data ---------------------------------------------------------------------------------


def _write_all(fd: int, data: memoryview) -> None:
    while data:
        data = data[os.write(fd, data) :]


def _pump_out(
    source_fd: int, connection: TlsPipe, status: Status | None, limit: int | None
) -> None:
    """From a descriptor to the connection.

    :param limit: at most so many bytes.
    """
    buffer = bytearray(_BLOCK)
    view = memoryview(buffer)
    left = limit
    while left is None or left > 0:
        count = os.readv(source_fd, [view if left is None else view[:left]])
        if not count:
            break
        connection.sendall(view[:count])
        left = None if left is None else left - count
        if status is not None:
            status.moved(count)


def _pump_in(connection: TlsPipe, sink_fd: int, status: Status | None) -> None:
    """From the connection to a descriptor, up to the proper end."""
    buffer = bytearray(_BLOCK)
    view = memoryview(buffer)
    while count := connection.recv_into(view):
        _write_all(sink_fd, view[:count])
        if status is not None:
            status.moved(count)


def _pump_local(source_fd: int, sink_fd: int, status: Status, limit: int | None) -> None:
    """Between two descriptors."""
    buffer = bytearray(_BLOCK)
    view = memoryview(buffer)
    left = limit
    while left is None or left > 0:
        count = os.readv(source_fd, [view if left is None else view[:left]])
        if not count:
            break
        _write_all(sink_fd, view[:count])
        left = None if left is None else left - count
        status.moved(count)


class _Worker(threading.Thread):
    """A pump beside the main one; its failure is raised by :meth:`finish`."""

    def __init__(self, source_fd: int, sink_fd: int, status: Status, limit: int | None) -> None:
        super().__init__(daemon=True)
        self._ends = (source_fd, sink_fd)
        self._status = status
        self._limit = limit
        self._failure: OSError | None = None

    def run(self) -> None:
        try:
            _pump_local(*self._ends, self._status, self._limit)
        except OSError as err:
            self._failure = err
        finally:
            # The compressor must see the end, also after a failure.
            os.close(self._ends[1])

    def finish(self) -> None:
        """Wait for the end.

        :raises OSError: what went wrong in the thread.
        """
        self.join()
        if self._failure is not None:
            raise self._failure


def _compressor(argv: Sequence[str], end: _End) -> subprocess.Popen[bytes]:
    try:
        with _abort_waits():
            child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            end.add(f"compressor {argv[0]}", child)
    except OSError as err:
        raise _Failed(f"compressor {argv[0]} cannot be started: {err.strerror}") from err
    return child


def run_export(options: argparse.Namespace, status: Status) -> None:
    """Send.

    :raises _Failed: something on this side failed, or the other side did not confirm.
    """
    source = _Source(options, status)
    limit = None if options.size is None else options.size * _MIB
    with _closing(source), connect(options, status) as connection:
        status.update(connected=True)
        source.open()
        if options.magic is not None:
            connection.sendall(f"M={options.magic}".encode("ascii"))
        argv = compress.export_argv(options.compress)
        if argv is None:
            _pump_out(source.fd, connection, status, limit)
        else:
            tool = _compressor(argv, source)
            assert tool.stdin is not None and tool.stdout is not None
            worker = _Worker(source.fd, os.dup(tool.stdin.fileno()), status, limit)
            tool.stdin.close()
            worker.start()
            _pump_out(tool.stdout.fileno(), connection, None, None)
            worker.finish()
        source.wait()
        try:
            # Our proper end; returns when the other side has said its own.
            connection.finish()
        except OSError as err:
            raise _Failed(f"the other side did not confirm that it has everything: {err}") from err


def run_import(options: argparse.Namespace, status: Status) -> None:
    """Receive.

    :raises _Failed: something on this side failed, or the connection broke.
    """
    sink = _Sink(options, status)
    with _closing(sink), accept(options, status) as connection:
        status.update(connected=True)
        sink.open()
        argv = compress.import_argv(options.compress)
        try:
            if argv is None:
                _pump_in(connection, sink.fd, status)
            else:
                tool = _compressor(argv, sink)
                assert tool.stdin is not None and tool.stdout is not None
                worker = _Worker(tool.stdout.fileno(), os.dup(sink.fd), status, None)
                worker.start()
                _pump_in(connection, tool.stdin.fileno(), None)
                tool.stdin.close()
                worker.finish()
        except BrokenPipeError:
            # A program has ended early; why is said by its exit code, if by anything.
            sink.wait()
            raise
        except (ssl.SSLError, ConnectionResetError) as err:
            raise _Failed(f"the connection broke before the end: {err}") from err
        sink.close()
        sink.wait()
        connection.finish()


# -- the program ---------------------------------------------------------------------------------


def parse_options(argv: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="import-export",
        description="One end of a transfer of a disk; started by ganeti-noded.",
    )
    parser.add_argument("status_file")
    parser.add_argument("mode", choices=(IMPORT, EXPORT))
    parser.add_argument("--key", required=True, help="file with the private key")
    parser.add_argument("--cert", required=True, help="file with the certificate")
    parser.add_argument("--ca", required=True, help="file with whom to trust")
    parser.add_argument("--bind", help="address to listen on, or to connect from")
    family = parser.add_mutually_exclusive_group()
    family.add_argument("--ipv4", action="store_true")
    family.add_argument("--ipv6", action="store_true")
    parser.add_argument("--host", help="where to connect to (export)")
    parser.add_argument("--port", type=int)
    parser.add_argument("--connect-retries", type=int, default=0)
    parser.add_argument("--connect-timeout", type=float, default=60)
    parser.add_argument("--compress", default=compress.NONE)
    parser.add_argument("--expected-size", type=float, help="MiB, for the progress")
    parser.add_argument("--magic", help="word by which the receiver knows the transfer")
    parser.add_argument("--log", help="file for what the script says")
    parser.add_argument("--size", type=int, help="MiB of the device to send")
    end = parser.add_mutually_exclusive_group(required=True)
    end.add_argument("--file", help="read or write a file")
    end.add_argument("--device", help="read or write a device")
    end.add_argument("--script", help="read from or write to a script of an OS definition")
    options = parser.parse_args(argv)
    if options.mode == EXPORT and (options.host is None or options.port is None):
        parser.error("an export needs --host and --port")
    if options.magic is not None and not text.is_transfer_magic(options.magic):
        parser.error("the magic word has a wrong form")
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Run one end to its end; the exit code is also in the status file."""
    options = parse_options(sys.argv[1:] if argv is None else argv)
    signal.signal(signal.SIGTERM, _terminated)
    # A script that ends early must be an error of its own, not the end of us.
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    status = Status(options.status_file, options.expected_size, options.log)
    status.update()
    try:
        (run_export if options.mode == EXPORT else run_import)(options, status)
    except (_Failed, OSError) as err:
        status.update(exit_status=EXIT_FAILURE, error_message=str(err))
        return EXIT_FAILURE
    status.update(exit_status=EXIT_SUCCESS)
    return EXIT_SUCCESS


if __name__ == "__main__":
    sys.exit(main())
