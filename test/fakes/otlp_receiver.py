"""A receiver of traces: OTLP over HTTP, decoded with the messages of OpenTelemetry itself."""

from __future__ import annotations

import contextlib
import dataclasses
import http.server
import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from ganeti.utils import tracing


@dataclasses.dataclass(frozen=True)
class Received:
    """One span. Identities are hexadecimal; ``parent`` is empty for the first span of a trace."""

    service: str
    name: str
    kind: int
    trace: str
    identity: str
    parent: str
    begin_ns: int
    end_ns: int
    failed: bool
    facts: dict[str, Any]


def _value(value: Any) -> Any:
    return getattr(value, value.WhichOneof("value"))


def parse_spans(body: bytes) -> Iterator[Received]:
    """Decode the body of a request."""
    request = ExportTraceServiceRequest.FromString(body)
    for resource in request.resource_spans:
        about = {one.key: _value(one.value) for one in resource.resource.attributes}
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield Received(
                    about["service.name"],
                    span.name,
                    span.kind,
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    span.start_time_unix_nano,
                    span.end_time_unix_nano,
                    span.status.code == 2,
                    {one.key: _value(one.value) for one in span.attributes},
                )


class Receiver:
    """Listens on 127.0.0.1; ``spans`` has what arrived, ``refuses`` is a status to answer with."""

    def __init__(self) -> None:
        self.spans: list[Received] = []
        self.paths: list[str] = []
        self.refuses = 0
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.paths.append(self.path)
                answer = ExportTraceServiceResponse().SerializeToString()
                if receiver.refuses:
                    self.send_response(receiver.refuses)
                else:
                    receiver.spans.extend(parse_spans(body))
                    self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_args: Any) -> None:
                return

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Receiver:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def named(self, name: str) -> list[Received]:
        """The spans of a name."""
        return [span for span in list(self.spans) if span.name == name]

    def path(self, span: Received) -> list[str]:
        """The names of a span and of everything above it, the first span of the trace first.

        :raises KeyError: a parent has not arrived.
        """
        known = {one.identity: one for one in list(self.spans)}
        found = [span.name]
        while span.parent:
            span = known[span.parent]
            found.insert(0, span.name)
        return found


@contextlib.contextmanager
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    """Let this process find a receiver in its environment; :func:`tracing.set_up` is not called."""
    for name in list(os.environ):
        if name.startswith("OTEL_"):
            monkeypatch.delenv(name)
    with Receiver() as one:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", one.address)
        yield one
        tracing.shut_down()
