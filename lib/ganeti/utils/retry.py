"""Trying again until something is true, with a limit.

The function that is tried raises :class:`Again` to be called again and returns its result when it
is done; any other error ends the attempt. Clock and sleep are parameters, so tests run in no time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from ganeti import errors

_T = TypeVar("_T")

DEFAULT_DELAY = (0.05, 1.5, 1.0)


class Again(Exception):
    """Raised by the function being tried: not yet. Its arguments describe what is still missing."""


def until(
    fn: Callable[[], _T],
    *,
    timeout_s: float,
    delay: tuple[float, float, float] | float = DEFAULT_DELAY,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> _T:
    """Call ``fn`` until it does not raise :class:`Again`.

    :param timeout_s: when this has passed, no further try is made; ``fn`` runs at least once and
        once more at the deadline.
    :param delay: seconds between tries: ``(first, factor, longest)`` or a constant.
    :raises RetryTimeout: the time is over; carries the arguments of the last :class:`Again`.
    """
    if isinstance(delay, tuple):
        pause_s, factor, longest_s = delay
    else:
        pause_s, factor, longest_s = delay, 1.0, delay
    deadline = clock() + timeout_s
    while True:
        try:
            return fn()
        except Again as again:
            left_s = deadline - clock()
            if left_s <= 0:
                raise errors.RetryTimeout(*again.args) from again
        sleep(min(pause_s, left_s))
        pause_s = min(pause_s * factor, longest_s)
