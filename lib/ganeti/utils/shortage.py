"""Errors which say that this machine lacks something: open files, processes, memory, disk space.

They say nothing about the work which met them, so that is tried again instead of being given up.
"""

from __future__ import annotations

import errno
from typing import Final

_NUMBERS: Final = frozenset(
    (
        errno.EAGAIN,
        errno.EDQUOT,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOBUFS,
        errno.ENOMEM,
        errno.ENOSPC,
    )
)
# What the interpreter raises when the system makes no thread.
_NO_THREAD: Final = "can't start new thread"


def described(err: BaseException | None) -> str:
    """Return for people what this machine lacks; empty when the error has another reason."""
    if isinstance(err, MemoryError):
        return "out of memory"
    if isinstance(err, OSError) and err.errno in _NUMBERS:
        return str(err)
    if isinstance(err, RuntimeError) and str(err) == _NO_THREAD:
        return "the system makes no more threads for this program"
    return ""
