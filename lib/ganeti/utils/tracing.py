"""Traces: which process did what for a job, and how long it took, for OpenTelemetry.

A trace is made of *spans*. A span has a name, a begin, an end, and a parent, which may be in
another process: command, request on the local socket, job, opcode, phase, node call, handler of the
node. The identity of a span travels as a ``traceparent``: a text of 55 characters,
``00-TRACE-SPAN-FLAGS`` in hexadecimal.

Nothing is recorded, and no package is imported, unless the environment names a receiver
(:data:`VARIABLES`) and the program has called :func:`set_up`. Until then every function here
returns at once. :mod:`ganeti.utils.otlp` does the work.

Source: W3C *Trace Context* (``traceparent``); OpenTelemetry, *OTLP exporter configuration*.
"""

from __future__ import annotations

import os
import re

from ganeti import TYPE_CHECKING
from ganeti.utils.trace_names import CLIENT as CLIENT
from ganeti.utils.trace_names import CONSUMER as CONSUMER
from ganeti.utils.trace_names import HEADER as HEADER
from ganeti.utils.trace_names import INTERNAL as INTERNAL
from ganeti.utils.trace_names import SERVER as SERVER
from ganeti.utils.trace_names import VARIABLES as VARIABLES

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypeAlias

    from ganeti.utils.otlp import RecordedSpan, Recorder

    #: As a context manager it is the current span of its thread, and ends with the block.
    Span: TypeAlias = "RecordedSpan | _Nothing"


_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}", re.ASCII)

_tracer: Recorder | None = None


class _Nothing:
    """In place of a span when nothing is recorded."""

    __slots__ = ()
    traceparent = ""

    def __enter__(self) -> _Nothing:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def current(self) -> _Nothing:
        return self

    def set(self, **_attributes: str | int | float | bool) -> None:
        return

    def end(self, error: str = "", at_ns: int | None = None) -> None:
        return


#: The span which records nothing.
NOTHING = _Nothing()


def wanted(environ: Mapping[str, str] = os.environ) -> bool:
    """Tell whether the environment names a receiver."""
    return any(environ.get(name) for name in VARIABLES)


def set_up(service: str, *, background: bool = False) -> str:
    """Record spans from now on, if the environment names a receiver.

    :param service: the name of this program in the traces; ``OTEL_SERVICE_NAME`` replaces it.
    :param background: send the spans from a thread of their own every few seconds. Without it, the
        program calls :func:`flush`; this also works in processes which it forks.
    :returns: why nothing can be recorded although that is wanted; empty if there is no problem.
    """
    global _tracer
    if not wanted():
        return ""
    try:
        from ganeti.utils import otlp
    except ImportError as err:
        package = str(err.name).partition(".")[0]
        return (
            f"the environment names a receiver of traces, but the Python package {package} is"
            " missing. Install opentelemetry-sdk and opentelemetry-exporter-otlp-proto-http."
        )
    if not background:
        otlp.keep_quiet()
    _tracer = otlp.Recorder(service, background=background)
    return ""


def shut_down() -> None:
    """Send what was recorded, and record nothing more; for tests."""
    global _tracer
    flush()
    _tracer = None


def span(
    name: str, kind: str = INTERNAL, parent: str = "", **attributes: str | int | float | bool
) -> Span:
    """Begin a span which begins now and ends with its block.

    :param parent: the ``traceparent`` of the parent; empty for the current span of this thread.
    """
    if _tracer is None:
        return NOTHING
    return _tracer.begin(name, kind, parent, None, attributes)


def begin(
    name: str,
    kind: str = INTERNAL,
    parent: str = "",
    at_ns: int | None = None,
    **attributes: str | int | float | bool,
) -> Span:
    """Begin a span whose begin is known, in nanoseconds since the epoch, or is now."""
    if _tracer is None:
        return NOTHING
    return _tracer.begin(name, kind, parent, at_ns, attributes)


def active() -> bool:
    """Tell whether spans are recorded."""
    return _tracer is not None


def current() -> str:
    """Return the ``traceparent`` of the current span of this thread; empty without one."""
    return "" if _tracer is None else _tracer.current()


def flush() -> str:
    """Send the spans which have ended; wait for that for some seconds.

    :returns: what went wrong; empty for nothing.
    """
    return "" if _tracer is None else _tracer.flush()


def parse_traceparent(value: object) -> str:
    """Read the ``traceparent`` of a message or a file; anything else counts as none (empty)."""
    return value if isinstance(value, str) and _TRACEPARENT.fullmatch(value) else ""
