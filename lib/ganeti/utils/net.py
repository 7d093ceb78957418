"""Names, addresses and sockets of this machine.

In a virtual cluster all nodes share one machine and nobody may edit ``/etc/hosts``: names are
looked up in ``<virtual cluster>/hosts`` first, and ``GANETI_HOSTNAME`` says which node this
process is.

Unix sockets live deep inside such a directory, and the kernel takes at most 107 bytes of path;
:func:`unix_connect` and :func:`unix_listen` reach any length.
"""

from __future__ import annotations

import errno
import os
import socket
import time
from typing import NamedTuple

from ganeti import errors
from ganeti.utils import paths

NODED_PORT = 1811

_SUN_PATH_BYTES = 107
_CONNECT_PAUSE_S = 0.01


class Hostname(NamedTuple):
    """A resolved name: the full name and its address."""

    name: str
    ip: str


def hostname() -> str:
    """The full name of this node, in lower case.

    In a virtual cluster from ``GANETI_HOSTNAME``; else the system's name, completed to a full one
    when the resolver can.
    """
    name = os.environ.get(paths.ENV_HOSTNAME, "")
    if name:
        return name.lower()
    name = socket.gethostname()
    return (name if "." in name else socket.getfqdn(name)).lower()


def parse_hosts(text: str) -> dict[str, Hostname]:
    """Read lines of ``address name [alias...]``; comments start with ``#``.

    :returns: every name and alias in lower case, with the first name of its line. The first line
        that has a name wins.
    :raises ParseError: a line without a name, or with something that is no address; carries the
        line.
    """
    found: dict[str, Hostname] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) < 2 or not is_ip(words[0]):
            raise errors.ParseError(f"line {number} is not 'address name [alias]': {line.strip()}")
        host = Hostname(words[1].lower(), words[0])
        for name in words[1:]:
            found.setdefault(name.lower(), host)
    return found


def _virtual_host(name: str) -> Hostname | None:
    directory = paths.vcluster_dir()
    if directory is None:
        return None
    try:
        with open(f"{directory}/hosts", encoding="utf-8") as stream:
            text = stream.read()
    except FileNotFoundError:
        return None
    return parse_hosts(text).get(name.lower())


def cut_addresses() -> frozenset[str]:
    """Addresses which this node of a virtual cluster must not reach, to rehearse a broken network.

    ``<virtual cluster>/cut`` has two names of nodes per line, which do not reach each other.
    """
    directory = paths.vcluster_dir()
    if directory is None:
        return frozenset()
    try:
        with open(f"{directory}/cut", encoding="utf-8") as stream:
            pairs = [line.split() for line in stream]
    except FileNotFoundError:
        return frozenset()
    own = hostname()
    return frozenset(resolve(name) for pair in pairs if own in pair for name in pair if name != own)


def lookup(name: str) -> Hostname:
    """Complete a host name and find its address.

    :raises ResolverError: nobody knows it.
    """
    if is_ip(name):
        return Hostname(name, name)
    host = _virtual_host(name)
    if host is not None:
        return host
    try:
        answers = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM, flags=socket.AI_CANONNAME)
    except socket.gaierror as err:
        raise errors.ResolverError(name, err.errno or 0, err.strerror or str(err)) from err
    except UnicodeError as err:
        # The resolver's own check of overlong or empty labels.
        raise errors.ResolverError(name, 0, f"not a host name: {err}") from err
    # IPv4 first: a name with both families means the first for every published interface.
    answers.sort(key=lambda answer: answer[0] != socket.AF_INET)
    canonical = next((answer[3] for answer in answers if answer[3]), name)
    return Hostname(canonical.lower(), str(answers[0][4][0]))


def resolve(name: str) -> str:
    """The address of a host name (an address stays as it is).

    :raises ResolverError: nobody knows it.
    """
    return lookup(name).ip


def is_ipv4(text: str) -> bool:
    """Whether this is an IPv4 address in dotted form."""
    try:
        socket.inet_pton(socket.AF_INET, text)
    except (OSError, ValueError):
        return False
    return True


def is_ipv6(text: str) -> bool:
    """Whether this is an IPv6 address."""
    try:
        socket.inet_pton(socket.AF_INET6, text)
    except (OSError, ValueError):
        return False
    return True


def is_ip(text: str) -> bool:
    """Whether this is an address of either family."""
    return is_ipv4(text) or is_ipv6(text)


def own_address(ip: str) -> bool:
    """Whether an address belongs to this node.

    In a virtual cluster the machine answers for all of 127.0.0.0/8, so the node's name decides.
    """
    if paths.is_virtual():
        try:
            return resolve(hostname()) == ip
        except errors.ResolverError:
            return False
    family = socket.AF_INET6 if is_ipv6(ip) else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((ip, 0))
        except OSError:
            return False
    return True


def tcp_ping(ip: str, port: int, timeout_s: float, *, source: str | None = None) -> bool:
    """Whether something at this address answers a TCP connection; a refusal is an answer too.

    :param source: our own address to come from.
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
    """Whether a server accepts connections at this address and port."""
    try:
        with socket.create_connection((ip, port), timeout_s):
            return True
    except OSError:
        return False


def noded_port() -> int:
    """The TCP port of the node daemon: ``/etc/services`` may change the published one."""
    return service_port("ganeti-noded", NODED_PORT)


def service_port(name: str, default: int, protocol: str = "tcp") -> int:
    """The port of a service by name, else the default."""
    if paths.is_virtual():
        # A rehearsal must not depend on what the machine's own file says.
        return default
    try:
        return socket.getservbyname(name, protocol)
    except OSError:
        return default


def unix_connect(path: str, timeout_s: float | None = None) -> socket.socket:
    """Connect to a stream socket in the file system, however long its path.

    Waits while the server has as many connections to accept as it wants.

    :raises TimeoutError: it accepts no more in this time.
    :raises OSError: nobody listens, the file is missing.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        sock.settimeout(timeout_s)
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with _ShortPath(path) as short:
            while True:
                try:
                    sock.connect(short)
                    break
                except BlockingIOError:
                    # With a time limit the kernel says at once that the queue is full.
                    if deadline is None or time.monotonic() >= deadline:
                        raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)) from None
                    time.sleep(_CONNECT_PAUSE_S)
    except BaseException:
        sock.close()
        raise
    return sock


def unix_listen(
    path: str, mode: int = 0o600, *, backlog: int = 128, gid: int = -1
) -> socket.socket:
    """Listen on a stream socket in the file system; a stale file of that name is replaced.

    The caller makes sure that no other server is alive (a pid file, a lock). The mode holds before
    anybody can connect.

    :raises OSError: the directory is missing or not ours.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
        with _ShortPath(path) as short:
            sock.bind(short)
        # Until listen() nobody can connect, so there is no moment with the wrong mode.
        if gid != -1:
            os.chown(path, -1, gid)
        os.chmod(path, mode)
        sock.listen(backlog)
    except BaseException:
        sock.close()
        raise
    return sock


class _ShortPath:
    """A name of at most 107 bytes for a socket: through the directory, opened."""

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
