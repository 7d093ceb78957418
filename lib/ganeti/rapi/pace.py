"""How often something may happen, counted for each user or address.

Source: ITU-T I.371, *generic cell rate algorithm* (the virtual scheduling form).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

_MOST_COUNTERS: Final = 10_000

Key = TypeVar("Key", bound=Hashable)


class TooMany(Exception):
    """The turn of an event is too far in the future.

    :ivar of: whose events they are, for a message.
    :ivar wait_s: seconds after which it may happen.
    """

    def __init__(self, of: str, wait_s: float) -> None:
        super().__init__(of, wait_s)
        self.of = of
        self.wait_s = wait_s

    @property
    def retry_after(self) -> tuple[str, str]:
        """The header of HTTP that says when to try again."""
        return ("Retry-After", str(int(self.wait_s) + 1))


class Pace(Generic[Key]):
    """Counts events: some may happen at once, and then one in each interval.

    :param of: whose events are counted, for a message.
    :param burst: how many happen at once.
    :param interval_s: seconds for each one after them.
    :param clock: seconds of a clock which never jumps.
    :param patience_s: longest time in seconds for which an event waits for its turn.
    """

    def __init__(
        self,
        of: str,
        burst: int,
        interval_s: float,
        clock: Callable[[], float],
        *,
        patience_s: float = 0.0,
    ) -> None:
        self._of = of
        self._burst = burst
        self._interval_s = interval_s
        self._clock = clock
        self._patience_s = patience_s
        # The time at which all counted events have had their interval.
        self._paid: OrderedDict[Key, float] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of counters in memory."""
        return len(self._paid)

    def take(self, key: Key) -> float:
        """Count an event; return the seconds after which it may happen.

        :raises TooMany: it would wait for too long; it is not counted.
        """
        now = self._clock()
        paid = max(now, self._paid.get(key, now))
        wait_s = max(0.0, paid - now - (self._burst - 1) * self._interval_s)
        if wait_s > self._patience_s:
            raise TooMany(self._of, wait_s)
        self._paid[key] = paid + self._interval_s
        self._paid.move_to_end(key)
        if len(self._paid) > _MOST_COUNTERS:
            self._paid.popitem(last=False)
        return wait_s

    def counted(self, key: Key) -> float:
        """Return how many events count at present, those that have lost their interval in part."""
        return max(0.0, self._paid.get(key, 0.0) - self._clock()) / self._interval_s

    def give_back(self, key: Key) -> None:
        """Do not count an event that was counted."""
        if key in self._paid:
            self._paid[key] -= self._interval_s
            if self._paid[key] <= self._clock():
                del self._paid[key]

    def forget(self, key: Key) -> None:
        """Begin to count anew."""
        self._paid.pop(key, None)
