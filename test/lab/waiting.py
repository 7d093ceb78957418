"""Waiting for what the laboratory does in its own time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(
    condition: Callable[[], T],
    what: str | Callable[[], str],
    timeout_s: float,
    *,
    pause_s: float = 0.5,
) -> T:
    """Ask again and again; returns the first true answer.

    :param what: what is waited for, or a function which says how far it has come.
    :raises TimeoutError: the last answer was still false; says what was waited for.
    """
    deadline = time.monotonic() + timeout_s
    while not (answer := condition()):
        if time.monotonic() > deadline:
            text = what if isinstance(what, str) else what()
            raise TimeoutError(f"after {timeout_s:.0f} s still not: {text}")
        time.sleep(pause_s)
    return answer
