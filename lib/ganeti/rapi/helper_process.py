"""Runs a program for a request: text to its input, text from its output, and an end in any case."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import NamedTuple


class Ended(NamedTuple):
    """How a program has ended.

    :ivar code: its exit code; below 0 the number of the signal which ended it.
    """

    code: int
    output: bytes
    complaints: bytes


async def run(argv: Sequence[str], text: str, time_s: float) -> Ended:
    """Run a program. It is ended when the time is over, and when nobody waits any more.

    :param text: its standard input; in contrast to the words of a command, no list of processes
        shows it.
    :raises TimeoutError: it takes too long.
    """
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*argv, stdin=pipe, stdout=pipe, stderr=pipe)
    try:
        async with asyncio.timeout(time_s):
            output, complaints = await process.communicate(text.encode("utf-8", "surrogatepass"))
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    assert process.returncode is not None
    return Ended(process.returncode, output, complaints)
