"""Locked memory and real-time priority: of a process of its own, with and without the right to."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

SHOW = """
import os, resource, sys
from ganeti.utils import urgent
{before}
print([urgent.{function}()])
print(os.sched_getscheduler(0) == os.SCHED_RR | os.SCHED_RESET_ON_FORK)
print([line for line in open("/proc/self/status") if line.startswith("VmLck")][0].split()[1])
held = bytearray(64 << 20)
"""
NOT_PERMITTED = "import ctypes; os.setgid(65534); os.setuid(65534)"

as_root = pytest.mark.skipif(
    subprocess.run(["id", "-u"], capture_output=True, check=True).stdout != b"0\n",
    reason="needs root",
)


def show(function: str, before: str = "") -> tuple[str, bool, int]:
    """What a process says after it has called the function: problem, scheduler, KiB locked."""
    done = subprocess.run(
        [sys.executable, "-c", SHOW.format(function=function, before=before)],
        capture_output=True,
        text=True,
        check=True,
    )
    problem, scheduler, locked = done.stdout.splitlines()
    return problem[2:-2], scheduler == "True", int(locked)


@as_root
@pytest.mark.parametrize("function", ["lock_memory", "lock_memory_with_limit"])
def test_memory_is_locked(function: str) -> None:
    problem, _scheduler, locked = show(function)
    # A container may have no right to it.
    assert (locked > 1000) == (not problem)
    assert problem in ("", "Operation not permitted", "Cannot allocate memory")


@as_root
def test_below_a_limit_later_memory_is_not_refused() -> None:
    """The process allocates more than the limit afterwards."""
    hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
    limit = 50 << 20 if hard == resource.RLIM_INFINITY else min(50 << 20, hard)
    problem, _scheduler, locked = show(
        "lock_memory_with_limit",
        f"resource.setrlimit(resource.RLIMIT_MEMLOCK, ({limit}, {limit})); {NOT_PERMITTED}",
    )
    if locked:
        assert problem == f"only {limit >> 10} KiB may be, so later memory is not"
    else:
        # The limit is below the present memory.
        assert problem == "Cannot allocate memory"


@as_root
def test_what_is_not_permitted_is_said() -> None:
    none = "resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0)); resource.setrlimit("
    none += f"resource.RLIMIT_RTPRIO, (0, 0)); {NOT_PERMITTED}"
    problem, _scheduler, locked = show("lock_memory_with_limit", none)
    assert (problem, locked) == ("Operation not permitted", 0)
    problem, scheduler, _locked = show("use_real_time", none)
    assert (problem, scheduler) == ("Operation not permitted", False)


@as_root
def test_real_time() -> None:
    problem, scheduler, _locked = show("use_real_time")
    # A container may have no right to it.
    assert (problem, scheduler) in (("", True), ("Operation not permitted", False))
