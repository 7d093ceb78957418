"""Errors which say that this machine lacks something: open files, processes, memory, disk space.

They say nothing about the work in which they occur, so that is tried again and not given up.
The functions which start threads are for those which a program can do without for a while.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

from ganeti import errors
from ganeti.utils import retry

_T = TypeVar("_T")

_log = logging.getLogger(__name__)

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
# As in ganeti.utils.retry.
_PAUSES: Final = (0.1, 1.5, 5.0)


def described(err: BaseException | None) -> str:
    """Return for people what this machine lacks; empty when the error has another reason."""
    if isinstance(err, MemoryError):
        return "out of memory"
    if isinstance(err, OSError) and err.errno in _NUMBERS:
        return str(err)
    if isinstance(err, RuntimeError) and str(err) == _NO_THREAD:
        return "the system makes no more threads for this program"
    return ""


def outlast(fn: Callable[[], _T], *, timeout_s: float, what: str) -> _T:
    """Call a function until nothing is lacking any more, and return its result.

    :param timeout_s: seconds after which the error is raised.
    :param what: what is being done, as a clause for the log.
    :raises Exception: any other error of the function, at once.
    """
    raised: list[Exception] = []

    def attempt() -> _T:
        try:
            return fn()
        except (OSError, RuntimeError, MemoryError) as err:
            lacking = described(err)
            if not lacking:
                raise
            if not raised and timeout_s:
                _log.warning("%s: %s; trying again for %g s", what, lacking, timeout_s)
            raised.append(err)
            raise retry.Again from err

    try:
        return retry.until(attempt, timeout_s=timeout_s, delay=_PAUSES)
    except errors.RetryTimeout:
        raise raised[-1] from None


class Lacking(errors.GenericError):
    """This machine lacks something that the work needs, so it is tried again later."""


@contextlib.contextmanager
def as_error() -> Iterator[None]:
    """Let what the machine lacks be an error as any other one, so that a loop outlasts it.

    A thread which does the same again and again catches :exc:`ganeti.errors.GenericError`; one that
    ended for a moment without descriptors would leave its work undone until the program ends.

    :raises Lacking: the machine lacks something; other errors pass unchanged.
    """
    try:
        yield
    except (OSError, RuntimeError, MemoryError) as err:
        lacking = described(err)
        if not lacking:
            raise
        raise Lacking(f"this machine lacks something: {lacking}") from err


def start_thread(target: Callable[..., object], *args: Any, name: str) -> threading.Thread | None:
    """Run a function in a daemon thread; return None when the system makes no thread.

    The log says so. The caller runs the function itself, or tries again later.
    """
    return _started(threading.Thread(target=target, args=args, name=name, daemon=True))


def start_thread_after(
    delay_s: float, function: Callable[[], object], *, name: str
) -> threading.Thread | None:
    """Run a function in a daemon thread after some seconds; else as :func:`start_thread`."""
    timer = threading.Timer(delay_s, function)
    timer.name = name
    timer.daemon = True
    return _started(timer)


def _started(thread: threading.Thread) -> threading.Thread | None:
    try:
        thread.start()
    except RuntimeError as err:
        _log.error("no thread %s: %s", thread.name, err)
        return None
    return thread
