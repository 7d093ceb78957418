"""A counter of the events in the last minute."""

from __future__ import annotations


class RateMeter:
    """Counts how often something happened in the last minute, by second."""

    SPAN_S = 60

    def __init__(self) -> None:
        self._counts = [0] * self.SPAN_S
        self._last = 0

    def count(self, now: int, number: int = 1) -> None:
        """Count an event at this time, in seconds since the epoch."""
        self._forget(now)
        self._counts[now % self.SPAN_S] += number

    def total(self, now: int) -> int:
        """Return the number of events in the last minute before this time."""
        self._forget(now)
        return sum(self._counts)

    def _forget(self, now: int) -> None:
        """Clear the seconds between the last call and now; a clock set back counts as no time."""
        for second in range(max(self._last + 1, now - self.SPAN_S + 1), now + 1):
            self._counts[second % self.SPAN_S] = 0
        self._last = now
