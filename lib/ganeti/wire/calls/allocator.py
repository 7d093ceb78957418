"""The call which runs an instance allocator."""

from __future__ import annotations

from ganeti import ht
from ganeti.wire.calls.base import PLAIN, Arg, Call, ResultCodec

#: ``name``: the allocator's file name; ``request``: JSON text for it; ``parameters``: option ->
#: value, None for an option without one. -> what it printed
IALLOCATOR_RUNNER = Call(
    "iallocator_runner",
    (
        Arg("name", PLAIN, ht.NonEmptyString),
        Arg("request", PLAIN, ht.NonEmptyString),
        Arg("parameters", PLAIN, ht.DictOf(ht.NonEmptyString, ht.Any)),
    ),
    ResultCodec(ht.Str),
    timeout_s=900,
)
