"""Connections which stay open end with the identity of their user.

Who listens to events was checked when he began. From then on the check is repeated every
:data:`CHECK_S` seconds: when the session or the token has ended, the user was removed, or his
rights have changed, the connection ends, and a client with a valid identity opens another one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from ganeti.http.messages import Refused

CHECK_S: Final = 10.0
_ENDED: Final = "the session, or another proof of your identity, has ended, or your rights changed"

#: Returns whether the identity is still valid.
Remains = Callable[[], Awaitable[bool]]


async def serve(work: Awaitable[None], remains: Remains) -> None:
    """Let something work until it ends, or the identity does.

    :raises Refused: 401 when the identity has ended.
    """
    task = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait({task}, timeout=CHECK_S))[0]:
            if not await remains():
                raise Refused(401, _ENDED)
        await task
    finally:
        task.cancel()
        await asyncio.wait({task})


async def parts(stream: AsyncIterator[bytes], remains: Remains) -> AsyncIterator[bytes]:
    """Iterate over the parts of a stream until the identity ends.

    A stream of events has a heartbeat, after which this is noticed.
    """
    checked_at = time.monotonic()
    try:
        async for part in stream:
            if time.monotonic() - checked_at >= CHECK_S:
                checked_at = time.monotonic()
                if not await remains():
                    return
            yield part
    finally:
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()
