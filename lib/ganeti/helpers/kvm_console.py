"""The program ``kvm-console-wrapper``: connects a terminal to the serial port of a guest.

``gnt-instance console`` runs it on the primary node. It takes the published arguments (``<socat>
<instance> <monitor socket> <terminal options> <serial socket>``), but it does not run socat. It
puts the terminal into raw mode, copies bytes in both directions, and ends when the user presses
Ctrl-]. It always restores the mode of the terminal.

A guest which was started paused begins to run when its console is connected, so that its first
messages can be seen. QEMU serves one client on a serial port; a second console is refused with a
message instead of waiting forever.
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

from ganeti.constants.cli import EXIT_FAILURE, EXIT_SUCCESS
from ganeti.utils import net

ESCAPE = b"\x1d"

_CHUNK = 65536
_TIMEOUT_S = 5.0
# After the end of the input (a pipe, a script) the guest may still answer for this long.
_LINGER_S = 1.0
_MONITOR_PROMPT = b"(qemu) "


class ConsoleError(Exception):
    """The console cannot be used; the program prints the message and ends."""


class _Interrupted(Exception):
    """A signal ends the program."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def socket_path(word: str) -> str:
    """Return the path in ``UNIX-CONNECT:<path>``; a bare path is accepted, too.

    :raises ConsoleError: the word is neither.
    """
    prefix, found, path = word.partition(":")
    if found and prefix.upper() in ("UNIX", "UNIX-CONNECT", "UNIX-CLIENT"):
        return path
    if word.startswith("/"):
        return word
    raise ConsoleError(f"'{word}' is not a socket. The form is UNIX-CONNECT:<path>.")


# Connecting


@contextlib.contextmanager
def exclusive(serial_path: str, instance_name: str) -> Iterator[None]:
    """Lock the console of a guest on this node.

    :raises ConsoleError: another console is connected to the guest.
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

    :raises ConsoleError: the socket does not exist, or no process listens on it.
    """
    try:
        sock: socket.socket = net.unix_connect(path, _TIMEOUT_S)
    except FileNotFoundError as err:
        raise ConsoleError(
            f"instance {instance_name} has no console at {path}. The instance may not run on this"
            " node."
        ) from err
    except OSError as err:
        raise ConsoleError(
            f"cannot connect to the console of instance {instance_name} at {path}:"
            f" {err.strerror or err}"
        ) from err
    sock.settimeout(None)
    return sock


def _monitor_command(sock: socket.socket, command: str) -> str:
    """Execute a command in the human monitor of QEMU, and return its output."""
    sock.sendall(f"{command}\n".encode())
    data = b""
    while not data.endswith(_MONITOR_PROMPT):
        more = sock.recv(_CHUNK)
        if not more:
            break
        data += more
    return data.decode("utf-8", "replace")


def let_run(monitor_path: str, instance_name: str) -> bool:
    """Continue a guest which was started paused.

    A guest which was paused later remains paused. If the monitor does not answer, a message is
    printed, and the console is used nevertheless.

    :returns: whether the guest was continued.
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
            f"kvm-console-wrapper: cannot query the monitor of instance {instance_name}: {err}",
            file=sys.stderr,
        )
        return False


# Copying


@contextlib.contextmanager
def raw_terminal(fd: int) -> Iterator[None]:
    """Put a terminal into raw mode during the block; does nothing for other files."""
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
    """Convert signals which end a process to an exception, so that the terminal is restored."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise _Interrupted(number)

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
    """Copy bytes in both directions until the user or the guest ends the connection.

    :param escape: byte of the input which ends the connection; input before it is still sent. An
        empty value means that no byte does.
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
    """Connect the terminal of this process to a guest; returns the exit code.

    :raises ConsoleError: the console of the guest cannot be used.
    """
    with (
        exclusive(serial_path, instance_name),
        contextlib.closing(connect(serial_path, instance_name)) as sock,
    ):
        interactive = sys.stdin.isatty()
        if interactive:
            print(f"console of instance {instance_name}; Ctrl-] closes it", file=sys.stderr)
        if let_run(monitor_path, instance_name):
            print(f"instance {instance_name} was paused; it runs now", file=sys.stderr)
        with raw_terminal(sys.stdin.fileno()):
            how = copy(sock, sys.stdin.fileno(), sys.stdout.fileno(), escape)
    if interactive:
        print(
            f"\nconsole of instance {instance_name} "
            f"{'was closed by the instance' if how == 'closed' else 'closed'}",
            file=sys.stderr,
        )
    return EXIT_SUCCESS


def parse_escape(options: str) -> bytes:
    """Return the byte of ``escape=0x1d`` in the terminal options, or no byte if it is missing.

    :raises ConsoleError: the value is not a byte.
    """
    for option in options.split(","):
        key, found, value = option.partition("=")
        if key == "escape" and found:
            try:
                return bytes([int(value, 0)])
            except ValueError as err:
                raise ConsoleError(f"escape '{value}' is not a byte") from err
    return b""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="kvm-console-wrapper",
        description="Connect this terminal to the serial port of an instance.",
    )
    parser.add_argument("socat", help="path of socat; ignored")
    parser.add_argument("instance", help="name of the instance, for messages")
    parser.add_argument("monitor", help="monitor socket of QEMU")
    parser.add_argument(
        "terminal", help="options of the terminal in the form of socat; only escape=<byte> is used"
    )
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
    except _Interrupted as left:
        return 128 + left.number
    except (ConsoleError, OSError) as err:
        print(f"kvm-console-wrapper: error: {err}", file=sys.stderr)
        return EXIT_FAILURE
