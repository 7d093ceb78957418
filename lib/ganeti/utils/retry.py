"""Calling a function again until it succeeds, with a time limit.

The function raises :class:`Again` to be called again, and returns its result when it has one. Any
other error ends the attempts. Clock and sleep are parameters, so that tests need not wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from ganeti import errors

_T = TypeVar("_T")

DEFAULT_DELAY = (0.05, 1.5, 1.0)


class Again(Exception):
    """The function is to be called again; the arguments describe what is still missing."""


def until(
    fn: Callable[[], _T],
    *,
    timeout_s: float,
    delay: tuple[float, float, float] | float = DEFAULT_DELAY,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> _T:
    """Call ``fn`` until it does not raise :class:`Again`, and return its result.

    :param timeout_s: seconds after which ``fn`` is not called again; it is called at least once,
        and once more when the time is over.
    :param delay: seconds between calls: ``(first, factor, longest)`` or a constant.
    :raises RetryTimeout: the time is over; has the arguments of the last :class:`Again`.
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
