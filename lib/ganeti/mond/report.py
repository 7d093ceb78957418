"""The form of reports, and the interface of a collector."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from ganeti import errors
from ganeti.utils import clock

#: Kinds of reports: numbers to draw, or a state to judge.
PERFORMANCE: Final = 0
STATUS: Final = 1

STORAGE: Final = "storage"
INSTANCE: Final = "instance"

#: Codes of a status.
OK: Final = 0
TEMPORARY: Final = 1
UNKNOWN: Final = 2
BAD: Final = 4

_BUILT_IN: Final = "B"
_FORMAT_VERSION: Final = 1
_COUNTER_DIGITS: Final = 20


class CollectorError(errors.GenericError):
    """A collector has no data; the message says why."""


class Questions(Protocol):
    """What collectors ask the configuration query daemons about this node.

    Each method returns an empty result when no daemon answers, because a report without names is
    better than none.
    """

    def drbd_minors(self) -> Mapping[int, str]:
        """Minor -> name of its instance."""

    def instances(self) -> Sequence[Mapping[str, Any]]:
        """Return the instances whose primary node is this one, as configuration objects."""


@dataclasses.dataclass(frozen=True, slots=True)
class Collector:
    """One collector.

    :ivar category: None for the default category.
    :ivar collect: measures, and returns the part ``data`` of the report.
        :raises CollectorError: there are no data.
    :ivar hypervisors: it has data only where one of these is enabled; empty for everywhere.
    :ivar always: it collects at intervals, also when nobody asks, because its data are averages.
    """

    name: str
    category: str | None
    kind: int
    collect: Callable[[Questions], Any]
    hypervisors: frozenset[str] = frozenset()
    always: bool = False


def build(collector: Collector, data: Any) -> dict[str, Any]:
    """Return a report as it is published; the time is in nanoseconds since 1970."""
    return {
        "name": collector.name,
        "version": _BUILT_IN,
        "format_version": _FORMAT_VERSION,
        "timestamp": int(clock.now() * 1_000_000) * 1000,
        "category": collector.category,
        "kind": collector.kind,
        "data": data,
    }


def is_counter(word: str) -> bool:
    """Return True if a word is a counter of the kernel: ASCII digits, at most 64 bits."""
    return word.isdecimal() and word.isascii() and len(word) <= _COUNTER_DIGITS


def status(code: int, messages: Sequence[str] = ()) -> dict[str, Any]:
    """Return a status object; each message begins on a new line."""
    return {"code": code, "message": "".join(f"\n{message}" for message in messages)}
