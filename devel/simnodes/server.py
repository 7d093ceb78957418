"""The loop which serves all simulated nodes.

TLS is that of the event server of this project (:mod:`ganeti.http.tls_stream`); heads, encodings,
errors, authorisation and epochs are read and made by the code of the real node daemon. Requests of
a connection are answered one after the other, those of different connections independently.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Mapping
from typing import Any, NamedTuple

from devel.simnodes import copies, disks
from devel.simnodes.answers import ANSWERS
from devel.simnodes.state import Fault, Fleet, SimNode
from ganeti import errors, http
from ganeti.backend import dispatch
from ganeti.constants import ssconf
from ganeti.http import auth, head, server
from ganeti.http.tls_stream import TlsProtocol, Unserved
from ganeti.platform import master_epoch
from ganeti.utils import x509
from ganeti.wire import calls, json

_log = logging.getLogger(__name__)
# Imported so that their answers are in the table.
_PARTS = (copies, disks)

_HANDSHAKE_S = 30.0
_END_S = 1.0
_LARGE_BYTES = 1 << 16
_EPOCH_KEY = http.EPOCH_HEADER.lower()
_MASTER_OF_OTHERS = "00000000-0000-4000-8000-000000000000"


class Delays(NamedTuple):
    """How long a node thinks before it answers, in seconds.

    :ivar base: of every call; ``jitter`` is added, times a random number between 0 and 1.
    :ivar calls: of some calls instead of ``base``, by name.
    """

    base: float = 0.0
    jitter: float = 0.0
    calls: Mapping[str, float] = {}

    def of(self, call: str, chance: float) -> float:
        """Return the delay of a call; ``chance`` is between 0 and 1."""
        return self.calls.get(call, self.base) + self.jitter * chance


class SimServer:
    """Serves the nodes of a fleet.

    :param context: the TLS settings of a node daemon.
    :param port: the port of the node daemon.
    """

    def __init__(
        self, fleet: Fleet, context: ssl.SSLContext, port: int, delays: Delays | None = None
    ) -> None:
        self.fleet = fleet
        self.context = context
        self.delays = delays or Delays()
        self._port = port
        self._servers: dict[str, asyncio.Server] = {}
        self._connections: dict[str, set[_Connection]] = {}
        self.unserved = Unserved(100_000)

    async def start(self) -> None:
        """Listen at the addresses of all nodes.

        :raises OSError: an address cannot be served.
        """
        for node in self.fleet.nodes.values():
            await self.listen(node)

    async def stop(self) -> None:
        """Close all connections and stop to listen."""
        for node in self.fleet.nodes.values():
            self.close(node)

    async def listen(self, node: SimNode) -> None:
        """Let a node accept connections.

        :raises OSError: its address cannot be served.
        """
        if node.uuid not in self._servers:
            loop = asyncio.get_running_loop()
            sock = server.listen(node.address, self._port)
            self._servers[node.uuid] = await loop.create_server(
                lambda: TlsProtocol(
                    self.context,
                    _Connection(self, node),
                    handshake_s=_HANDSHAKE_S,
                    shutdown_s=_END_S,
                    unserved=self.unserved,
                ),
                sock=sock,
            )

    def close(self, node: SimNode) -> None:
        """Let a node refuse connections, and break the present ones."""
        listening = self._servers.pop(node.uuid, None)
        if listening is not None:
            listening.close()
        for connection in list(self._connections.get(node.uuid, ())):
            connection.transport.abort()

    async def tell(self, node: SimNode, fault: Fault | None) -> None:
        """Let a node have a fault, or be well again with None."""
        node.fault = fault
        if fault is None:
            await self.listen(node)
            for connection in list(self._connections.get(node.uuid, ())):
                connection.go_on()
        elif fault.kind == "off":
            node.lose_power()
            self.close(node)

    def note(self, connection: _Connection, *, there: bool) -> None:
        """Note that a connection begins or has ended."""
        known = self._connections.setdefault(connection.node.uuid, set())
        (known.add if there else known.discard)(connection)


class _Connection(asyncio.Protocol):
    """One connection with a node."""

    def __init__(self, owner: SimServer, node: SimNode) -> None:
        self._owner = owner
        self.node = node
        self._received = bytearray()
        self._busy = False
        self._stalled = False
        self._digest = ""
        self._peer = ""
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._owner.note(self, there=True)
        self._peer = str(transport.get_extra_info("peername")[0])
        der = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
        self._digest = x509.digest_der(der) if der else ""

    def connection_lost(self, exc: Exception | None) -> None:
        self._owner.note(self, there=False)

    def data_received(self, data: bytes) -> None:
        self._received += data
        self._next()

    def go_on(self) -> None:
        """Answer what was not answered while the node stalled."""
        if self._stalled:
            self._stalled = self._busy = False
            self._next()

    def _next(self) -> None:
        """Begin the next request, if it has arrived and the one before is answered."""
        end = self._received.find(b"\r\n\r\n")
        if self._busy or end < 0 or self.transport.is_closing():
            return
        try:
            parsed = head.parse_raw_head(bytes(self._received[:end]))
            length = int(parsed.headers.get("content-length", "0"))
        except (head.HeadError, ValueError) as err:
            self._send(server.Response(400, str(err).encode()))
            self.transport.close()
            return
        if len(self._received) < end + 4 + length:
            return
        procedure = parsed.target[1:]
        fault = self.node.fault
        self._busy = True
        loop = asyncio.get_running_loop()
        if fault is not None and fault.kind == "stall" and fault.concerns(procedure):
            self._stalled = True
            if fault.seconds is not None:
                loop.call_later(fault.seconds, self.go_on)
                self.node.fault = None if self.node.fault is fault else self.node.fault
            return
        body = bytes(self._received[end + 4 : end + 4 + length])
        del self._received[: end + 4 + length]
        request = server.AuthorisedRequest(
            procedure, body, self._peer, self._digest, parsed.headers, False
        )
        delay_s = self._owner.delays.of(procedure, self._owner.fleet.random.random())
        if procedure == calls.TEST_DELAY.name:
            delay_s += float(json.loads(body)[0])
        if delay_s > 0:
            loop.call_later(delay_s, self._answer, request)
        else:
            self._answer(request)

    def _answer(self, request: server.AuthorisedRequest) -> None:
        if self.transport.is_closing():
            return
        response = answer(self.node, request)
        self._send(response)
        self._busy = False
        if response.keep:
            self._next()
        else:
            self.transport.close()

    def _send(self, response: server.Response) -> None:
        self.transport.write(server.encode(response))


def answer(node: SimNode, request: server.AuthorisedRequest) -> server.Response:
    """Answer a request as the node daemon does: authorisation, epoch, decoding, the call itself."""
    call = calls.TABLE.get(request.procedure)
    if call is None:
        return server.Response(404, f"unknown procedure {request.procedure:.100}".encode())
    reason = _refusal(node, request.digest)
    if reason is not None:
        return server.Response(403, reason.encode())
    try:
        epoch = master_epoch.parse(request.headers.get(_EPOCH_KEY, "0"))
        args = _decoded(node, call, request.body)
    except errors.ParseError as err:
        return server.Response(400, str(err).encode("utf-8", "backslashreplace"))
    known = node.copies.epoch
    fault = node.fault
    if fault is not None and fault.kind == "refuse-epoch":
        known = max(known, master_epoch.Epoch(epoch.number + 1, _MASTER_OF_OTHERS))
    if not call.any_epoch:
        if not _admitted(epoch, known):
            stale = master_epoch.StaleEpochError(epoch, known)
            return server.Response(403, str(stale).encode(), {http.EPOCH_HEADER: str(known)})
        node.copies.epoch = max(epoch, node.copies.epoch)
    try:
        if fault is not None and fault.kind == "fail" and fault.concerns(call.name):
            raise errors.GenericError(f"node {node.name} has the fault which fails all calls")
        function = ANSWERS.get(call.name)
        if function is None:
            raise errors.GenericError(f"call {call.name} is not simulated")
        payload = call.result.encode(function(node, **args))
        node.answered[call.name] = node.answered.get(call.name, 0) + 1
        node.received[call.name] = node.received.get(call.name, 0) + len(request.body)
        body = json.dumps([True, payload]).encode("ascii")
        return server.Response(200, body, keep=call.keep)
    except (errors.GenericError, KeyError, ValueError) as err:
        _log.info("%s: call %s failed: %r", node.name, call.name, err)
        return dispatch.failed(err)


def _admitted(epoch: master_epoch.Epoch, known: master_epoch.Epoch) -> bool:
    """Tell whether a node which has promised to obey an epoch takes a call of another one."""
    return epoch >= known


def _decoded(node: SimNode, call: calls.Call, body: bytes) -> dict[str, Any]:
    """Decode the arguments of a call; those of a large body which many nodes get, only once.

    :raises ParseError: they cannot be decoded.
    """
    if len(body) < _LARGE_BYTES:
        return call.decode_args(json.loads(body))
    known = node.fleet.decoded
    if known is None or known[0] != call.name or known[1] != body:
        known = node.fleet.decoded = (call.name, body, call.decode_args(json.loads(body)))
    return known[2]


def _refusal(node: SimNode, digest: str) -> str | None:
    text = node.copies.ssconf.get(ssconf.MASTER_CANDIDATES_CERTS, "")
    return auth.refusal(auth.parse_candidate_certs(text), digest, node.fleet.certificate_digest)


def call_names() -> tuple[set[str], set[str]]:
    """Return the names of the calls which are simulated, and of those which are not."""
    known: set[str] = set(ANSWERS)
    every: Any = calls.TABLE.keys()
    return known, set(every) - known
