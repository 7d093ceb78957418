"""A terminal on a guest's serial port: ``kvm-console-wrapper``.

It takes the published words (``<socat> <instance> <monitor socket> <terminal options> <serial
socket>``), of which it needs the sockets, and does in Python what others do with socat: the
terminal goes into raw mode, bytes go both ways, Ctrl-] leaves. The terminal gets its mode back on
every way out.

A guest that was started paused begins to run when its console is attached, so that its first
messages can be seen. QEMU serves one client on a serial port; a second console is refused instead
of hanging.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import select
import signal
import socket
import sys
import termios
import tty
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any

from ganeti.utils import net

ESCAPE = b"\x1d"
EXIT_SUCCESS = 0
EXIT_FAILURE = 1
EXIT_USAGE = 2

_CHUNK = 65536
_TIMEOUT_S = 5.0
# After the end of the input (a pipe, a script) the guest may still answer for this long.
_LINGER_S = 1.0
_MONITOR_PROMPT = b"(qemu) "


class ConsoleError(Exception):
    """Ends the program with a message."""


class _Left(Exception):
    """A signal asks to leave."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def socket_path(word: str) -> str:
    """The path in ``UNIX-CONNECT:<path>`` (or a bare path).

    :raises ConsoleError: it is neither.
    """
    prefix, found, path = word.partition(":")
    if found and prefix.upper() in ("UNIX", "UNIX-CONNECT", "UNIX-CLIENT"):
        return path
    if word.startswith("/"):
        return word
    raise ConsoleError(f"'{word}' names no socket, expected UNIX-CONNECT:<path>")


# Getting there


@contextlib.contextmanager
def exclusive(serial_path: str, instance_name: str) -> Iterator[None]:
    """Be the only console of a guest on this node.

    :raises ConsoleError: another one is attached.
    """
    lock_path = serial_path.removesuffix(".serial") + ".console"
    try:
        fd = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as err:
        raise ConsoleError(f"cannot open {lock_path}: {err.strerror}") from err
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as err:
            holder = os.read(fd, 32).decode("ascii", "replace").strip()
            raise ConsoleError(
                f"the console of instance {instance_name} is in use"
                f"{' by process ' + holder if holder else ''}"
            ) from err
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        yield
        os.ftruncate(fd, 0)
    finally:
        os.close(fd)


def connect(path: str, instance_name: str) -> socket.socket:
    """Connect to a socket of a guest.

    :raises ConsoleError: nobody listens.
    """
    try:
        sock: socket.socket = net.unix_connect(path, _TIMEOUT_S)
    except FileNotFoundError as err:
        raise ConsoleError(
            f"instance {instance_name} has no console at {path}, it may not run on this node"
        ) from err
    except OSError as err:
        raise ConsoleError(
            f"cannot reach the console of instance {instance_name} at {path}: {err.strerror or err}"
        ) from err
    sock.settimeout(None)
    return sock


def _monitor_command(sock: socket.socket, command: str) -> str:
    """One command of QEMU's human monitor; its output."""
    sock.sendall(f"{command}\n".encode())
    data = b""
    while not data.endswith(_MONITOR_PROMPT):
        more = sock.recv(_CHUNK)
        if not more:
            break
        data += more
    return data.decode("utf-8", "replace")


def let_run(monitor_path: str, instance_name: str) -> bool:
    """Let a guest run that was started paused; whether it had to be.

    A guest that somebody paused later stays so. A monitor that does not answer is no reason to
    refuse the console.
    """
    try:
        with contextlib.closing(connect(monitor_path, instance_name)) as sock:
            sock.settimeout(_TIMEOUT_S)
            greeting = b""
            while not greeting.endswith(_MONITOR_PROMPT):
                more = sock.recv(_CHUNK)
                if not more:
                    return False
                greeting += more
            if "paused (prelaunch)" not in _monitor_command(sock, "info status"):
                return False
            _monitor_command(sock, "cont")
            return True
    except (ConsoleError, OSError) as err:
        print(
            f"kvm-console-wrapper: cannot ask the monitor of instance {instance_name}: {err}",
            file=sys.stderr,
        )
        return False


# Being there


@contextlib.contextmanager
def raw_terminal(fd: int) -> Iterator[None]:
    """The terminal passes every key on, until the block is left in whatever way."""
    if not os.isatty(fd):
        yield
        return
    before: list[Any] = termios.tcgetattr(fd)
    tty.setraw(fd)
    try:
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


@contextlib.contextmanager
def _leaving_on_signals() -> Iterator[None]:
    """Turn the usual deadly signals into an exception, so that the terminal is restored."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise _Left(number)

    numbers = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
    before = {number: signal.signal(number, leave) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def copy(sock: socket.socket, input_fd: int, output_fd: int, escape: bytes = ESCAPE) -> str:
    """Carry bytes both ways until somebody leaves.

    :param escape: a byte in the input that ends it; what comes before it is still sent.
    :returns: ``escape``, ``closed`` (by the guest) or ``end`` (of the input).
    """
    poller = select.poll()
    poller.register(sock, select.POLLIN)
    poller.register(input_fd, select.POLLIN)
    input_ended = False
    while True:
        ready = poller.poll(_LINGER_S * 1000 if input_ended else None)
        if not ready:
            return "end"
        for fd, _ in ready:
            if fd == sock.fileno():
                data = sock.recv(_CHUNK)
                if not data:
                    return "closed"
                _write_all(output_fd, data)
                continue
            data = os.read(input_fd, _CHUNK)
            if not data:
                poller.unregister(input_fd)
                input_ended = True
                continue
            before, found, _ = data.partition(escape) if escape else (data, b"", b"")
            sock.sendall(before)
            if found:
                return "escape"


def run(instance_name: str, monitor_path: str, serial_path: str, escape: bytes) -> int:
    """Attach the terminal of this process; returns the exit code.

    :raises ConsoleError: there is no console to attach to.
    """
    with (
        exclusive(serial_path, instance_name),
        contextlib.closing(connect(serial_path, instance_name)) as sock,
    ):
        interactive = sys.stdin.isatty()
        if interactive:
            print(f"console of instance {instance_name}, leave it with Ctrl-]", file=sys.stderr)
        if let_run(monitor_path, instance_name):
            print(f"instance {instance_name} was paused, it runs now", file=sys.stderr)
        with raw_terminal(sys.stdin.fileno()):
            how = copy(sock, sys.stdin.fileno(), sys.stdout.fileno(), escape)
    if interactive:
        print(
            f"\nconsole of instance {instance_name} "
            f"{'ended, the instance closed it' if how == 'closed' else 'left'}",
            file=sys.stderr,
        )
    return EXIT_SUCCESS


def parse_escape(options: str) -> bytes:
    """The byte in ``escape=0x1d`` among the terminal options; none means no way out by key.

    :raises ConsoleError: it is no byte.
    """
    for option in options.split(","):
        key, found, value = option.partition("=")
        if key == "escape" and found:
            try:
                return bytes([int(value, 0)])
            except ValueError as err:
                raise ConsoleError(f"escape '{value}' is no byte") from err
    return b""


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the starter ``kvm-console-wrapper``."""
    parser = argparse.ArgumentParser(
        prog="kvm-console-wrapper", description="Attach this terminal to an instance's serial port."
    )
    parser.add_argument("socat", help="ignored; other programs of this name need it")
    parser.add_argument("instance", help="name of the instance, for messages")
    parser.add_argument("monitor", help="QEMU's monitor socket")
    parser.add_argument("terminal", help="as socat has it; escape=<byte> is used")
    parser.add_argument("serial", help="UNIX-CONNECT:<serial socket>")
    words = parser.parse_args(argv)
    try:
        with _leaving_on_signals():
            return run(
                words.instance,
                words.monitor,
                socket_path(words.serial),
                parse_escape(words.terminal),
            )
    except _Left as left:
        return 128 + left.number
    except (ConsoleError, OSError) as err:
        print(f"kvm-console-wrapper: error: {err}", file=sys.stderr)
        return EXIT_FAILURE
