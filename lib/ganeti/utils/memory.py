"""Keep the memory of daemons small, and give memory which is free back to the system.

The allocator of the C library keeps freed memory for later use. A daemon which has served one very
large request would keep its memory for ever.
"""

from __future__ import annotations

import contextlib

#: Requests and answers above this size are worth a call of :func:`give_back`.
LARGE_BYTES = 1 << 20
#: Seconds after such a request before memory is given back, so that many of them share a call.
GIVE_BACK_AFTER_S = 2.0

# Names of the GNU C library for mallopt(3), and their values.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8
_LARGE_BLOCK_BYTES = 64 * 1024
_KEPT_BYTES = 1 << 20


def use_one_heap() -> None:
    """Let all threads of this process use one heap, and give freed large blocks back at once.

    By default each of some threads has a heap of its own, and keeps what its largest request has
    needed. The threads of Python allocate memory one after the other anyhow. To be called before
    the first thread starts; where the C library cannot do that, it does nothing.
    """
    import ctypes

    with contextlib.suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_ARENA_MAX, 1)
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BLOCK_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def give_back() -> None:
    """Give free memory back; where the C library cannot do that, do nothing.

    Other threads run meanwhile. It takes some milliseconds.
    """
    # The import takes milliseconds, which only programs with large requests shall spend.
    import ctypes

    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
