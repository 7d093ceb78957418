"""What the daemons with an event loop share: their signals, and errors which no task awaits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from ganeti.server import daemon


def stop_event(signals: daemon.Signals, on_hangup: Callable[[], None]) -> asyncio.Event:
    """Let the running loop take the signals; return an event which is set when it must stop.

    :param on_hangup: called after SIGHUP.
    """
    stop = asyncio.Event()

    def take() -> None:
        for number in signals.take():
            if number in daemon.STOP_SIGNALS:
                stop.set()
            else:
                on_hangup()

    asyncio.get_running_loop().add_reader(signals.fileno(), take)
    return stop


def log_unawaited(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an error of a task whose result no other task awaits; a handler of the loop.

    An error of the system comes from a client which has closed its connection or speaks no TLS.
    """
    error = context.get("exception")
    if isinstance(error, OSError):
        logging.debug("%s: %s", context.get("message"), error)
    else:
        logging.error("%s", context.get("message"), exc_info=error)
