"""Give memory which is free back to the system.

The allocator of the C library keeps freed memory for later use. A daemon which has served one very
large request would keep its memory for ever.
"""

from __future__ import annotations

import contextlib

#: Requests and answers above this size are worth a call of :func:`give_back`.
LARGE_BYTES = 1 << 20
#: Seconds after such a request before memory is given back, so that many of them share a call.
GIVE_BACK_AFTER_S = 2.0


def give_back() -> None:
    """Give free memory back; where the C library cannot do that, do nothing.

    Other threads run meanwhile. It takes some milliseconds.
    """
    # The import takes milliseconds, which only programs with large requests shall spend.
    import ctypes

    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
