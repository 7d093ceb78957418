"""Handlers of the node calls which exist for tests."""

from __future__ import annotations

import time

from ganeti import errors
from ganeti.backend.registry import serves
from ganeti.wire import calls


@serves(calls.TEST_DELAY)
def delay(duration_s: float) -> None:
    """Sleep on this node.

    :raises ParameterError: the duration is negative.
    """
    if not 0 <= duration_s < 1e9:
        raise errors.ParameterError(f"cannot sleep for {duration_s} seconds")
    time.sleep(duration_s)
