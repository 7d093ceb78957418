"""Which objects the last changes of the configuration concerned, for readers with a copy of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

_KEPT: Final = 1000

#: The kind and the UUID of an object.
Key = tuple[str, str]


class RecentChanges:
    """The objects which each of the last states has changed, by its serial number.

    Each state has the serial number after that of the one before.
    """

    def __init__(self, kept: int = _KEPT) -> None:
        self._changes: deque[tuple[int, frozenset[Key]]] = deque(maxlen=kept)

    def add(self, serial_no: int, changed: Iterable[Key]) -> None:
        """Note what a new state has changed."""
        self._changes.append((serial_no, frozenset(changed)))

    def forget_after(self, serial_no: int) -> None:
        """Forget the states after this one, which were lost."""
        while self._changes and self._changes[-1][0] > serial_no:
            self._changes.pop()

    def between(self, first: int, last: int) -> frozenset[Key] | None:
        """Return the objects which may differ between two states; None when that is not known."""
        if first == last:
            return frozenset()
        found = [changed for serial_no, changed in self._changes if first < serial_no <= last]
        if len(found) != last - first:
            return None
        return frozenset().union(*found)
