"""Measures the REST daemon: requests per second over persistent connections, and a long list.

Part of ``make bench`` (:mod:`devel.bench`). The client is a small loop over TLS sockets in this
process; on a machine with few cores, a larger client would take CPU time from the daemons. With
several clients, each one always has one request in progress.
"""

from __future__ import annotations

import os
import socket
import ssl
import statistics
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from devel.bench import lists as bench_query
from ganeti import errors, vcluster
from ganeti.utils import daemonize, x509

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

    def send(self, path: str) -> None:
        """Send a request."""
        self._sock.sendall(f"GET {path} HTTP/1.1\r\nHost: bench\r\n\r\n".encode("ascii"))

    def receive(self) -> int:
        """Read an answer; returns the number of bytes of its body.

        :raises OpExecError: the answer is an error, or the connection ended.
        """
        head = bytearray()
        while b"\r\n\r\n" not in head:
            head += self._more()
        start, _, body = bytes(head).partition(b"\r\n\r\n")
        lines = start.decode("latin-1").split("\r\n")
        if " 200 " not in lines[0]:
            raise errors.OpExecError(f"the REST daemon answered {lines[0]}")
        length = next(
            int(line.partition(":")[2])
            for line in lines
            if line.lower().startswith("content-length:")
        )
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
    before = _cpu_s(cluster)
    begun = time.perf_counter()
    found = per_second(cluster.nodes[0].ip, path, clients, seconds, rounds)
    done = statistics.mean(found) * (time.perf_counter() - begun)
    return Rate(found, (_cpu_s(cluster) - before) * 1000 / done)


def _cpu_s(cluster: vcluster.VirtualCluster) -> float:
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


def list_ms(address: str, path: str, rounds: int) -> list[float]:
    """Measure a request from its first byte to the last byte of the answer."""
    connection = Connection(address)

    def one() -> None:
        connection.send(path)
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
