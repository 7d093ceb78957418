"""The time of day, in the two forms of published formats.

Configuration objects have a float of seconds since 1970, jobs have a pair ``(seconds,
microseconds)``. Code which waits or measures takes a clock as a parameter, with :func:`monotonic`
as its default, so that tests need not wait.
"""

from __future__ import annotations

import time

monotonic = time.monotonic


def now() -> float:
    """Seconds since 1970."""
    return time.time()


def now_ns() -> int:
    """Nanoseconds since 1970."""
    return time.time_ns()


def split(timestamp: float) -> tuple[int, int]:
    """Seconds as the pair ``(seconds, microseconds)`` used in jobs; rounded to the microsecond."""
    total_us = round(timestamp * 1_000_000)
    return total_us // 1_000_000, total_us % 1_000_000


def merge(pair: tuple[int, int] | list[int]) -> float:
    """Seconds as a float from the pair ``(seconds, microseconds)``; inverts :func:`split`."""
    seconds, microseconds = pair
    return seconds + microseconds / 1_000_000


def now_split() -> tuple[int, int]:
    """Return the time now as ``(seconds, microseconds)``."""
    return split(time.time())


def format_time(timestamp: float) -> str:
    """Local time to the second, for messages: ``2026-01-31 12:00:00``."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(timestamp))


def format_span(seconds: float) -> str:
    """Return a span of time in its two largest units, such as ``2 h 5 min`` or ``40 s``."""
    left = int(max(0.0, seconds))
    words = []
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        number, left = divmod(left, size)
        if number:
            words.append(f"{number} {unit}")
    return " ".join(words[:2]) or "0 s"
