"""Measures what many listeners to events cost the others: jobs, and other clients of REST.

Part of ``make bench`` (:mod:`devel.bench`). The listeners are in a process of their own with the
lowest priority, because they stand for programs on other machines. They come from several addresses
of the loopback network, as the REST daemon limits the connections of one address. In each round the
same is measured without listeners and then with them, so other work on the machine affects both.
"""

from __future__ import annotations

import base64
import multiprocessing
import os
import resource
import selectors
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from devel.bench import queue
from devel.bench import rapi as rest
from ganeti import errors, vcluster
from ganeti.luxi import client as luxi
from ganeti.utils import retry, x509

_PORT: Final = 5080
_WAIT_S: Final = 120.0
_RECEIVE_BYTES: Final = 1 << 16
_PER_ADDRESS: Final = 100
_PAUSE_S: Final = 0.05
# The server asks after 20 seconds whether a client is there; this answers before it asks.
_PONG_S: Final = 10.0
_PONG: Final = bytes((0x8A, 0x80, 0, 0, 0, 0))
#: Every event of a job; and a name which no object has, so that nothing is sent.
JOBS: Final = "/2/events?kinds=job"
NOTHING: Final = "/2/events?kind=job&name=no-such-object"
_UPGRADE: Final = (
    "Upgrade: websocket",
    "Connection: Upgrade",
    "Sec-WebSocket-Version: 13",
    f"Sec-WebSocket-Key: {base64.b64encode(bytes(16)).decode()}",
)


class Cost(NamedTuple):
    """What was measured without and with listeners, a pair of lists in ms each.

    :ivar job: small jobs, from the submission until the end is known.
    :ivar info: requests of another client for ``/2/info``.
    :ivar cpu_us: processor time of the REST daemon for each event and listener, in microseconds;
        0 when no event was sent.
    """

    job: tuple[list[float], list[float]]
    info: tuple[list[float], list[float]]
    cpu_us: float


def cost(
    cluster: vcluster.VirtualCluster,
    path: str,
    *,
    listeners: int,
    web_socket: bool,
    jobs: int,
    rounds: int,
) -> Cost:
    """Measure jobs and requests without and with listeners.

    :param path: what they listen to.
    :param web_socket: they use WebSockets, and not streams.
    :param jobs: number of jobs in each part of a round, 20 in a second at most.
    """
    found = Cost(([], []), ([], []), 0.0)
    lines = [
        f"GET {path} HTTP/1.1",
        "Host: bench",
        rest.user(cluster),
        *(_UPGRADE if web_socket else ()),
    ]
    head = "\r\n".join([*lines, "", ""]).encode("ascii")
    cpu_s, received = 0.0, 0
    for _ in range(rounds):
        _part(cluster, jobs, found, 0)
        with _listening(cluster.nodes[0].ip, head, listeners, web_socket) as counted:
            before = rest.cpu_s(cluster), counted.value
            _part(cluster, jobs, found, 1)
            # Events may be sent together, up to a second later.
            time.sleep(2.0)
            cpu_s += rest.cpu_s(cluster) - before[0]
            received += counted.value - before[1]
    return found._replace(cpu_us=cpu_s * 1e6 / received if received else 0.0)


def _part(cluster: vcluster.VirtualCluster, jobs: int, found: Cost, which: int) -> None:
    node = cluster.nodes[0]
    connection = rest.Connection(node.ip)
    with luxi.Client(cluster.paths(node).master_socket) as client:
        for number in range(-2, jobs):  # not counted: the first two
            begun = time.perf_counter()
            queue.wait(client, client.submit_job([queue.small_job()]))
            between = time.perf_counter()
            connection.send(rest.INFO)
            connection.receive()
            ended = time.perf_counter()
            if number >= 0:
                found.job[which].append((between - begun) * 1000)
                found.info[which].append((ended - between) * 1000)
            time.sleep(max(0.0, _PAUSE_S - (ended - begun)))
    connection.close()


@contextmanager
def _listening(address: str, head: bytes, number: int, web_socket: bool) -> Iterator[Any]:
    """Let a process listen; yields the number of events that all listeners have received."""
    context = multiprocessing.get_context("fork")
    received, ready = context.Value("q", 0), context.Value("i", 0)
    process = context.Process(
        target=_listen, args=(address, head, number, web_socket, received, ready), daemon=True
    )
    process.start()

    def all_listen() -> None:
        if ready.value < number:
            if not process.is_alive():
                raise errors.OpExecError("the process of the listeners has ended")
            raise retry.Again(f"{ready.value} of {number} clients listen")

    try:
        retry.until(all_listen, timeout_s=_WAIT_S)
        yield received
    finally:
        process.kill()
        process.join()


def _listen(
    address: str, head: bytes, number: int, web_socket: bool, received: Any, ready: Any
) -> None:
    os.nice(19)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    # Each message of a socket has this member; each event of a stream begins with this line.
    mark = b'"event":' if web_socket else b"event: "
    selector = selectors.DefaultSelector()
    tls = x509.pinning_client_context()
    for place in range(number):
        sock = _connected(tls, address, head, f"127.77.0.{1 + place // _PER_ADDRESS}")
        selector.register(sock, selectors.EVENT_READ)
        ready.value += 1
    late = time.monotonic() + _PONG_S
    while True:
        for key, _ in selector.select(1.0):
            received.value += _received(key.fileobj, mark)  # type: ignore[arg-type]
        if web_socket and time.monotonic() > late:
            late = time.monotonic() + _PONG_S
            for key in list(selector.get_map().values()):
                key.fileobj.send(_PONG)  # type: ignore[union-attr]


def _connected(tls: ssl.SSLContext, address: str, head: bytes, source: str) -> ssl.SSLSocket:
    sock = tls.wrap_socket(socket.create_connection((address, _PORT), _WAIT_S, (source, 0)))
    sock.sendall(head)
    answer = b""
    while b"\r\n\r\n" not in answer:
        data = sock.recv(_RECEIVE_BYTES)
        if not data:
            raise errors.OpExecError("the REST daemon closed the connection")
        answer += data
    if answer.split()[1] not in (b"101", b"200"):
        raise errors.OpExecError(f"the REST daemon answered {answer.splitlines()[0]!r}")
    sock.setblocking(False)
    return sock


def _received(sock: ssl.SSLSocket, mark: bytes) -> int:
    """Read what has come; returns the number of events in it."""
    found = 0
    while True:
        try:
            data = sock.recv(_RECEIVE_BYTES)
        except ssl.SSLWantReadError:
            return found
        if not data:
            raise errors.OpExecError("the REST daemon closed the connection of a listener")
        found += data.count(mark)
