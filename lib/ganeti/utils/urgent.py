"""Let a daemon answer in time on a machine which is short of memory or of processor time.

Both need privileges. Each function says why it could not do its work, and its caller goes on.

Source: mlockall(2), sched(7).
"""

from __future__ import annotations

import os
import resource
from typing import Final

_MCL_CURRENT: Final = 1
_MCL_FUTURE: Final = 2
_CAP_IPC_LOCK: Final = 14
# The lowest one: it is enough to run before all processes without real-time priority.
_PRIORITY: Final = 1


def lock_memory() -> str:
    """Keep all memory of this process in the machine, so that it never waits for swapping.

    :returns: why it is not locked; empty when it is.
    """
    return _mlockall(_MCL_CURRENT | _MCL_FUTURE)


def lock_memory_with_limit() -> str:
    """Like :func:`lock_memory`, for a process which starts no programs; it never runs into a limit.

    Where locked memory has a limit (``RLIMIT_MEMLOCK``), only the memory is locked that the
    process has now: what it needs later would be refused. Source: proc(5), capabilities(7).

    :returns: why nothing, or only the present memory, is locked; empty when all is.
    """
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    if limit == resource.RLIM_INFINITY or _has_capability(_CAP_IPC_LOCK):
        return lock_memory()
    return _mlockall(_MCL_CURRENT) or f"only {limit >> 10} KiB may be, so later memory is not"


def _has_capability(number: int) -> bool:
    with open("/proc/self/status", "rb") as stream:
        found = [line for line in stream if line.startswith(b"CapEff:")]
    return bool(found) and bool(int(found[0].split()[1], 16) >> number & 1)


def _mlockall(flags: int) -> str:
    import ctypes  # many programs which import this module do not need it

    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mlockall(flags) == 0:
            return ""
    except (OSError, AttributeError) as err:
        return str(err)
    return os.strerror(ctypes.get_errno())


def use_real_time() -> str:
    """Let this thread run before all others of the machine which have no real-time priority.

    Threads and processes which it starts do not inherit that.

    :returns: why it is not so; empty when it is.
    """
    try:
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(_PRIORITY))
    except OSError as err:
        return err.strerror or str(err)
    return ""
