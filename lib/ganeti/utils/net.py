"""Addresses and sockets, and waiting until something can be read.

Unix sockets of a virtual cluster have long paths, and the kernel takes paths of at most 107 bytes;
:func:`unix_connect` and :func:`unix_listen` work with paths of any length.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
import time

from ganeti import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Protocol

    class _HasDescriptor(Protocol):
        def fileno(self) -> int: ...


_SUN_PATH_BYTES = 107
_CONNECT_PAUSE_S = 0.01
# linux/in.h
_IP_FREEBIND = 15
# linux/sockios.h
_SIOCGIFADDR = 0x8915


def is_ipv4(text: str) -> bool:
    """Return True if a text is an IPv4 address in dotted form."""
    try:
        socket.inet_pton(socket.AF_INET, text)
    except (OSError, ValueError):
        return False
    return True


def is_ipv6(text: str) -> bool:
    """Return True if a text is an IPv6 address."""
    try:
        socket.inet_pton(socket.AF_INET6, text)
    except (OSError, ValueError):
        return False
    return True


def is_ip(text: str) -> bool:
    """Return True if a text is an IPv4 or IPv6 address."""
    return is_ipv4(text) or is_ipv6(text)


def can_bind(ip: str) -> bool:
    """Return whether a program on this machine can listen on an address."""
    family = socket.AF_INET6 if is_ipv6(ip) else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.bind((ip, 0))
    except OSError:
        return False
    return True


def interface_address(name: str) -> str:
    """Return the first IPv4 address of a network interface of this computer.

    :raises OSError: there is no such interface, or it has no IPv4 address.

    Source: netdevice(7).
    """
    import fcntl  # only daemons need it

    request = struct.pack("256s", name.encode()[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        return socket.inet_ntoa(fcntl.ioctl(sock.fileno(), _SIOCGIFADDR, request)[20:24])


def has_interface(name: str) -> bool:
    """Return True if this process has a network interface of this name.

    The kernel is asked, because ``/sys`` may be the one of another network namespace.
    """
    try:
        socket.if_nametoindex(name)
    except OSError:
        return False
    return True


def tcp_ping(ip: str, port: int, timeout_s: float, *, source: str | None = None) -> bool:
    """Return True if an address answers a TCP connection; a refusal is an answer, too.

    :param source: address of this computer from which to connect.
    """
    origin = (source, 0) if source else None
    try:
        with socket.create_connection((ip, port), timeout_s, origin):
            return True
    except ConnectionRefusedError:
        return True
    except OSError:
        return False


def tcp_listens(ip: str, port: int, timeout_s: float) -> bool:
    """Return True if a server accepts connections at this address and port."""
    try:
        with socket.create_connection((ip, port), timeout_s):
            return True
    except OSError:
        return False


def unix_connect(path: str, timeout_s: float | None = None) -> socket.socket:
    """Connect to a stream socket in the file system, with a path of any length.

    The function waits while the queue of connections which the server has to accept is full.

    :param timeout_s: seconds to wait; None waits without limit.
    :raises TimeoutError: the server did not accept the connection in this time.
    :raises OSError: no process listens, or the file is missing.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        sock.settimeout(timeout_s)
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with _ShortPath(path) as short:
            while not _connected(sock, short):
                if deadline is None or time.monotonic() >= deadline:
                    raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
                time.sleep(_CONNECT_PAUSE_S)
    except BaseException:
        sock.close()
        raise
    return sock


def _connected(sock: socket.socket, path: str) -> bool:
    """Connect, unless the queue of the server is full: a socket with a time limit says so."""
    try:
        sock.connect(path)
    except BlockingIOError:
        return False
    return True


def unix_listen(
    path: str, mode: int = 0o600, *, backlog: int = 128, gid: int = -1
) -> socket.socket:
    """Listen on a stream socket in the file system; an old file of that name is replaced.

    The caller makes sure, with a pid file or a lock, that no other server uses it. The mode is set
    before a client can connect.

    :param gid: group of the socket, or -1 for the group of this process.
    :raises OSError: the directory is missing, or this process may not write it.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
        with _ShortPath(path) as short:
            sock.bind(short)
        # No client can connect before listen(), so the mode is never wrong for one.
        if gid != -1:
            os.chown(path, -1, gid)
        os.chmod(path, mode)
        sock.listen(backlog)
    except BaseException:
        sock.close()
        raise
    return sock


def tcp_listen(
    address: str, port: int, *, backlog: int, free_bind: bool = False, talking: bool = False
) -> socket.socket:
    """Listen on a TCP socket.

    :param address: IPv4 or IPv6 address; ``::`` means all addresses of both kinds.
    :param backlog: number of connections for which the kernel keeps a place until they are
        accepted; ``net.core.somaxconn`` may be less.
    :param free_bind: also if no interface has the address yet.
    :param talking: the clients of this protocol send first. A connection can be accepted when
        something has arrived on it; the kernel forgets those on which nothing is sent, after about
        a minute (``tcp_synack_retries``).
    :raises OSError: the address is not on this machine, or the port is in use.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    # With the protocol, because asyncio does not set TCP_NODELAY for sockets without it. An answer
    # which follows a TLS handshake would then wait 40 ms for an acknowledgement of the client.
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if free_bind:
            sock.setsockopt(socket.IPPROTO_IP, _IP_FREEBIND, 1)
        if address == "::":
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        if talking:
            # Longer than the kernel keeps such a connection, which would otherwise be accepted at
            # last, together with all others of a flood.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, _IDLE_S)
        sock.bind((address, port))
        sock.listen(backlog)
    except BaseException:
        sock.close()
        raise
    return sock


# More than tcp_synack_retries doublings of a second, for every usual value of that.
_IDLE_S = 4000


def tcp_listen_free(address: str, first: int, count: int, *, backlog: int) -> socket.socket:
    """Listen on the first TCP port of some which no other program of this address uses.

    :param first: the lowest port.
    :param count: number of ports; with 1 there is no choice.
    :raises OSError: the address is not on this machine, or all of the ports are in use.
    """
    end = min(first + count, 1 << 16)
    for port in range(first, end):
        try:
            return tcp_listen(address, port, backlog=backlog)
        except OSError as err:
            if err.errno != errno.EADDRINUSE:
                raise
    up_to = f", and all up to {end - 1}" if end > first + 1 else ""
    raise OSError(errno.EADDRINUSE, f"{os.strerror(errno.EADDRINUSE)}{up_to}")


class _ShortPath:
    """A path of at most 107 bytes for a socket, through a descriptor of its directory."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd: int | None = None

    def __enter__(self) -> str:
        if len(os.fsencode(self._path)) <= _SUN_PATH_BYTES:
            return self._path
        directory, name = os.path.split(self._path)
        self._fd = os.open(directory or ".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        short = f"/proc/self/fd/{self._fd}/{name}"
        if len(os.fsencode(short)) > _SUN_PATH_BYTES:
            self.__exit__()
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), self._path)
        return short

    def __exit__(self, *_: object) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


# Where tcp(7) has `tcpi_unacked`, which for a listening socket is the length of its queue.
_TCP_INFO_QUEUE = struct.Struct("=24xI")


def waiting_connections(sock: socket.socket) -> int:
    """Return the number of connections which wait to be accepted from a listening socket.

    :returns: for a socket which is not TCP, 1 if there is any.
    """
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_QUEUE.size)
    except OSError:
        return len(wait_readable([sock], 0))
    return int(_TCP_INFO_QUEUE.unpack(info)[0])


# Where tcp(7) has `tcpi_bytes_received`.
_TCP_INFO_RECEIVED = struct.Struct("=128xQ")


def received_bytes(sock: socket.socket) -> int | None:
    """Return how many bytes have come over a TCP connection; None where that is not known."""
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_RECEIVED.size)
    except OSError:
        return None
    if len(info) < _TCP_INFO_RECEIVED.size:
        return None
    return int(_TCP_INFO_RECEIVED.unpack(info)[0])


def wait_readable(
    sources: Iterable[int | _HasDescriptor], timeout_s: float | None = None
) -> set[int]:
    """Wait until a read of one of these would not block, because of data or of an end.

    A descriptor of a process (pidfd_open(2)) becomes readable when the process has ended. Unlike
    ``select()`` of the system, this knows descriptors from 1024 on.

    :param sources: descriptors, or objects which have one.
    :param timeout_s: seconds after which the result is empty; 0 or less does not wait, and None
        waits without limit.
    :returns: the numbers of the descriptors which are ready.
    """
    poll = select.poll()
    for source in sources:
        poll.register(source, select.POLLIN)
    wait_ms = None if timeout_s is None else max(timeout_s, 0.0) * 1000
    return {descriptor for descriptor, _events in poll.poll(wait_ms)}
