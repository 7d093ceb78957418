"""Giving memory back, with the real allocator."""

from __future__ import annotations

import ctypes
import platform
import subprocess
import sys
from types import SimpleNamespace

import pytest

from ganeti.utils import memory

# Blocks below the threshold from which the allocator asks the system for each of them; the last
# one keeps the heap from shrinking by itself.
PROGRAM = """
import ctypes, gc, re
from ganeti.utils import memory

def used_kib():
    with open("/proc/self/status") as stream:
        return int(re.search(r"VmRSS:\\s+([0-9]+)", stream.read())[1])

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = (ctypes.c_size_t,)
libc.free.argtypes = (ctypes.c_void_p,)
blocks = [libc.malloc(100_000) for _ in range(600)]
for block in blocks:
    ctypes.memset(block, 1, 100_000)
for block in blocks[:-1]:
    libc.free(block)
before = used_kib()
memory.give_back()
print(before - used_kib())
"""


# Threads which allocate memory at the same time.
THREADS = """
import ctypes, sys, threading
from ganeti.utils import memory

if sys.argv[1] == "one":
    memory.use_one_heap()
barrier = threading.Barrier(8)

def work():
    barrier.wait()
    block = bytearray(20_000)
    barrier.wait()

threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
ctypes.CDLL(None).malloc_stats()
"""


@pytest.mark.programs
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs the GNU C library")
def test_threads_use_one_heap() -> None:
    heaps = {
        wanted: subprocess.run(
            [sys.executable, "-c", THREADS, wanted], capture_output=True, text=True, check=True
        ).stderr.count("Arena ")
        for wanted in ("one", "many")
    }
    assert heaps["one"] == 1 < heaps["many"]


@pytest.mark.programs
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs the GNU C library")
def test_freed_memory_goes_back_to_the_system() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) > 30_000


def test_other_c_libraries_keep_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: SimpleNamespace())
    memory.give_back()
    memory.use_one_heap()
