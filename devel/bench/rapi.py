"""Measures the REST daemon: requests per second over persistent connections, and a long list.

Part of ``make bench`` (:mod:`devel.bench`). The client is a small loop over TLS sockets in this
process; on a machine with few cores, a larger client would take CPU time from the daemons. With
several clients, each one always has one request in progress.
"""

from __future__ import annotations

import base64
import os
import socket
import ssl
import statistics
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from devel.bench import lists as bench_query
from ganeti import errors, vcluster
from ganeti.utils import daemonize, fs, x509

_PORT: Final = 5080
_WAIT_S: Final = 120.0
_RECEIVE_BYTES: Final = 1 << 18

INFO: Final = "/2/info"
BULK: Final = "/2/instances?bulk=1"


class Connection:
    """A persistent connection to the REST daemon."""

    def __init__(self, address: str, port: int = _PORT) -> None:
        context = x509.pinning_client_context()
        sock = socket.create_connection((address, port), _WAIT_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock: ssl.SSLSocket = context.wrap_socket(sock)
        self.tag = ""

    def send(self, path: str, *headers: str) -> None:
        """Send a request, with more headers: ``Name: value`` each."""
        lines = [f"GET {path} HTTP/1.1", "Host: bench", *headers, "", ""]
        self._sock.sendall("\r\n".join(lines).encode("ascii"))

    def receive(self) -> int:
        """Read an answer; returns the number of bytes of its body.

        The entity tag is kept in :attr:`tag`.

        :raises OpExecError: the answer is an error, or the connection ended.
        """
        head = bytearray()
        while b"\r\n\r\n" not in head:
            head += self._more()
        start, _, body = bytes(head).partition(b"\r\n\r\n")
        lines = start.decode("latin-1").split("\r\n")
        if " 200 " not in lines[0] and " 304 " not in lines[0]:
            raise errors.OpExecError(f"the REST daemon answered {lines[0]}")
        found = {
            name.lower(): value.strip() for name, _, value in (x.partition(":") for x in lines)
        }
        self.tag = found.get("etag", "")
        length = int(found.get("content-length", "0"))
        got = len(body)
        while got < length:
            got += len(self._more())
        return length

    def _more(self) -> bytes:
        data = self._sock.recv(_RECEIVE_BYTES)
        if not data:
            raise errors.OpExecError("the REST daemon closed the connection")
        return data

    def close(self) -> None:
        """Close the connection."""
        self._sock.close()


class Rate(NamedTuple):
    """Requests per second, and CPU time of the REST daemon for each request, in ms."""

    per_s: list[float]
    cpu_ms: float


def rate(
    cluster: vcluster.VirtualCluster, path: str, clients: int, seconds: float, rounds: int
) -> Rate:
    """Measure the rate and the CPU time of requests.

    :param clients: number of connections.
    :param seconds: duration of each measurement.
    :param rounds: number of measurements.
    """
    before = cpu_s(cluster)
    begun = time.perf_counter()
    found = per_second(cluster.nodes[0].ip, path, clients, seconds, rounds)
    done = statistics.mean(found) * (time.perf_counter() - begun)
    return Rate(found, (cpu_s(cluster) - before) * 1000 / done)


def cpu_s(cluster: vcluster.VirtualCluster) -> float:
    """Return the processor time which the REST daemon has used, in seconds."""
    with open(f"/proc/{_pid(cluster)}/stat", encoding="ascii") as stream:
        fields = stream.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _pid(cluster: vcluster.VirtualCluster) -> int:
    pid = daemonize.read_pid(cluster.paths(cluster.nodes[0]).pid_file("ganeti-rapi"))
    if pid is None:
        raise errors.OpExecError("the REST daemon does not run")
    return pid


def per_second(address: str, path: str, clients: int, seconds: float, rounds: int) -> list[float]:
    """Measure the rate of requests, as :func:`rate` does; returns one value for each round."""
    connections = [Connection(address) for _ in range(clients)]
    try:
        for connection in connections:  # not counted: both ends import modules
            connection.send(path)
            connection.receive()
        return [_rate(connections, path, seconds) for _ in range(rounds)]
    finally:
        for connection in connections:
            connection.close()


def _rate(connections: Sequence[Connection], path: str, seconds: float) -> float:
    begun = time.perf_counter()
    done = 0
    for connection in connections:
        connection.send(path)
    while True:
        late = time.perf_counter() - begun >= seconds
        for connection in connections:
            connection.receive()
            done += 1
            if not late:
                connection.send(path)
        if late:
            return done / (time.perf_counter() - begun)


def user(cluster: vcluster.VirtualCluster) -> str:
    """Add a user who may read; returns the header of the requests of this user."""
    users = cluster.paths(cluster.nodes[0]).rapi_users_file
    fs.make_dirs(os.path.dirname(users))
    fs.write_file(users, "bench bench read\n", mode=0o600)
    return f"Authorization: Basic {base64.b64encode(b'bench:bench').decode()}"


def list_ms(
    address: str, path: str, rounds: int, *headers: str, known: bool = False
) -> list[float]:
    """Measure a request from its first byte to the last byte of the answer.

    :param known: the client sends the entity tag of the answer before.
    """
    connection = Connection(address)

    def one() -> None:
        tag = [f"If-None-Match: {connection.tag}"] if known and connection.tag else []
        connection.send(path, *headers, *tag)
        connection.receive()

    try:
        one()
        return [bench_query.milliseconds(one) for _ in range(rounds)]
    finally:
        connection.close()


class Idle(NamedTuple):
    """Memory of the daemon for each idle client, and the rate of another client beside them."""

    clients: int
    memory_kib_each: float
    info_per_s: float


def idle(cluster: vcluster.VirtualCluster, clients: int, seconds: float) -> Idle:
    """Measure the memory for each idle client, and the rate of another client beside them."""
    node = cluster.nodes[0]
    pid = _pid(cluster)
    before = _memory_kib(pid)
    connections = [Connection(node.ip) for _ in range(clients)]
    try:
        for connection in connections:
            connection.send("/version")
            connection.receive()
        each = (_memory_kib(pid) - before) / clients
        (rate,) = per_second(node.ip, INFO, 1, seconds, 1)
    finally:
        for connection in connections:
            connection.close()
    return Idle(clients, each, rate)


def _memory_kib(pid: int) -> int:
    with open(f"/proc/{pid}/status", encoding="ascii") as stream:
        for line in stream:
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
    raise errors.OpExecError(f"the memory use of process {pid} is not known")
