"""The time, as the cluster writes it down.

Published formats know two: a float of seconds since 1970 (configuration objects) and a pair
``(seconds, microseconds)`` (jobs). Code that waits or measures takes a clock as a parameter with
:func:`monotonic` as default, so that tests need not wait.
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
    """The inverse of :func:`split`."""
    seconds, microseconds = pair
    return seconds + microseconds / 1_000_000


def now_split() -> tuple[int, int]:
    """The time now as ``(seconds, microseconds)``."""
    return split(time.time())


def format_time(timestamp: float) -> str:
    """Local time for people, to the second: ``2026-01-31 12:00:00``."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(timestamp))
