"""Names of traces: variables of the environment, the header, kinds of spans."""

from __future__ import annotations

#: The variables of the environment which name a receiver of traces.
VARIABLES = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
#: The header of HTTP requests, and the key in other messages and files, with the parent span.
HEADER = "traceparent"

#: What a span is to its parent: a part of the same process; a request to another process; the
#: answer to such a request; work which was ordered before.
INTERNAL, CLIENT, SERVER, CONSUMER = "internal", "client", "server", "consumer"
