"""Records spans with OpenTelemetry's own packages, and sends them by OTLP over HTTP.

The only module which imports ``opentelemetry``; :mod:`ganeti.utils.tracing` loads it when the
environment names a receiver. The variables of OpenTelemetry for the receiver (address, headers,
certificate, compression, time limit), the sampler and the resource are read by its packages.

Source: OpenTelemetry, *Python SDK*; *Semantic conventions for RPC*.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Iterator, Mapping
from typing import Final

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from ganeti import __version__
from ganeti.utils import trace_names

_KINDS: Final = {
    trace_names.INTERNAL: SpanKind.INTERNAL,
    trace_names.CLIENT: SpanKind.CLIENT,
    trace_names.SERVER: SpanKind.SERVER,
    trace_names.CONSUMER: SpanKind.CONSUMER,
}
_PROPAGATOR: Final = TraceContextTextMapPropagator()
#: Spans which a process keeps until it sends them; more are dropped.
MAX_KEPT: Final = 10_000
# Seconds which a program waits at its end for the receiver; the variables of OpenTelemetry
# override it.
_PATIENCE_S: Final = 2.0
_TIMEOUT_VARIABLES: Final = ("OTEL_EXPORTER_OTLP_TIMEOUT", "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT")


class _SpanBuffer(SpanProcessor):
    """Keeps the spans which have ended until they are sent; needs no thread."""

    def __init__(self, exporter: OTLPSpanExporter) -> None:
        self._exporter = exporter
        self._lock = threading.Lock()
        self._ended: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        if span.context is None or not span.context.trace_flags.sampled:
            return
        with self._lock:
            if len(self._ended) < MAX_KEPT:
                self._ended.append(span)

    def send(self) -> bool:
        """Send what was kept; False when the receiver did not take it."""
        with self._lock:
            ended, self._ended = self._ended, []
        return not ended or self._exporter.export(ended) is SpanExportResult.SUCCESS


class RecordedSpan:
    """A span of OpenTelemetry; see :class:`ganeti.utils.tracing.Span`."""

    __slots__ = ("_span", "_token")

    def __init__(self, span: trace.Span) -> None:
        self._span = span
        self._token: object = None

    @property
    def traceparent(self) -> str:
        """The identity of the span."""
        return _traceparent(trace.set_span_in_context(self._span))

    def __enter__(self) -> RecordedSpan:
        self._token = otel_context.attach(trace.set_span_in_context(self._span))
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        otel_context.detach(self._token)  # type: ignore[arg-type]
        self.end("" if error is None else f"{type(error).__name__}: {error}")

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        """Make it the current span of this thread in a block, and do not end it."""
        token = otel_context.attach(trace.set_span_in_context(self._span))
        try:
            yield
        finally:
            otel_context.detach(token)

    def set(self, **attributes: str | int | float | bool) -> None:
        """Add facts."""
        self._span.set_attributes(_named(attributes))

    def end(self, error: str = "", at_ns: int | None = None) -> None:
        """End it; the first end counts."""
        if not self._span.is_recording():
            return
        if error:
            self._span.set_status(Status(StatusCode.ERROR, error))
        self._span.end(at_ns)


class Recorder:
    """Makes spans and sends them.

    :param service: the name of this program in the traces.
    :param background: send from a thread, every few seconds.
    """

    def __init__(self, service: str, *, background: bool) -> None:
        given = {SERVICE_VERSION: __version__}
        if not _environment_names_service():
            given[SERVICE_NAME] = service
        resource = Resource.create(given)
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._buffer: _SpanBuffer | None = None
        if background:
            self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        else:
            patient = any(os.environ.get(name) for name in _TIMEOUT_VARIABLES)
            exporter = OTLPSpanExporter() if patient else OTLPSpanExporter(timeout=_PATIENCE_S)
            self._buffer = _SpanBuffer(exporter)
            self._provider.add_span_processor(self._buffer)
        self._tracer = self._provider.get_tracer("ganeti", __version__)

    def begin(
        self,
        name: str,
        kind: str,
        parent: str,
        at_ns: int | None,
        attributes: Mapping[str, str | int | float | bool],
    ) -> RecordedSpan:
        """Begin a span; its parent is the current one unless another one is given."""
        context: Context | None = None
        if parent:
            context = _PROPAGATOR.extract({trace_names.HEADER: parent}, Context())
        return RecordedSpan(
            self._tracer.start_span(
                name,
                context,
                _KINDS[kind],
                _named(attributes),
                start_time=at_ns,
                record_exception=False,
            )
        )

    def current(self) -> str:
        """Return the ``traceparent`` of the current span; empty without one."""
        return _traceparent(None)

    def flush(self) -> str:
        """Send the spans which have ended; returns what went wrong."""
        if self._buffer is None:
            sent = self._provider.force_flush(int(_PATIENCE_S * 1000))
        else:
            sent = self._buffer.send()
        if sent:
            return ""
        address = next(os.environ[name] for name in trace_names.VARIABLES if os.environ.get(name))
        return f"the receiver of traces at {address} did not take the spans of this program"


def keep_quiet() -> None:
    """Let the packages log nothing: in a command their messages would mix with its output."""
    logger = logging.getLogger("opentelemetry")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False


def _environment_names_service() -> bool:
    return bool(os.environ.get("OTEL_SERVICE_NAME")) or SERVICE_NAME in {
        pair.partition("=")[0].strip()
        for pair in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "").split(",")
    }


def _traceparent(context: Context | None) -> str:
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier, context)
    return carrier.get(trace_names.HEADER, "")


def _named(
    attributes: Mapping[str, str | int | float | bool],
) -> dict[str, str | int | float | bool]:
    """Attributes of OpenTelemetry have dots in their names: ``rpc_method`` is ``rpc.method``."""
    return {name.replace("_", "."): value for name, value in attributes.items()}
