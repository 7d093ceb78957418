"""Signals and unawaited errors of the daemons with an event loop."""

from __future__ import annotations

import asyncio
import logging
import os
import signal

import pytest

from ganeti.server import daemon, event_loop


def test_signals_reach_the_loop() -> None:
    hangups = []

    async def serve(signals: daemon.Signals) -> None:
        stop = event_loop.stop_event(signals, lambda: hangups.append(stop.is_set()))
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(60):
            await stop.wait()

    signals = daemon.Signals()
    try:
        asyncio.run(serve(signals))
    finally:
        signals.close()
    assert len(hangups) == 1


@pytest.mark.parametrize(
    ("error", "level"),
    [(ConnectionResetError("gone"), logging.DEBUG), (TimeoutError(), logging.DEBUG),
     (ValueError("a bug"), logging.ERROR)],
)  # fmt: skip
def test_errors_of_clients_are_no_faults(
    error: Exception, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def serve() -> None:
        asyncio.get_running_loop().set_exception_handler(event_loop.log_unawaited)
        asyncio.get_running_loop().call_exception_handler({"message": "lost", "exception": error})

    with caplog.at_level(logging.DEBUG):
        asyncio.run(serve())
    assert [record.levelno for record in caplog.records if "lost" in record.message] == [level]
