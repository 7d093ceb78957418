"""Runs pytest again and again for ``devel/mutate.py``, each time in a process of its own.

To start Python, pytest and its plugins takes longer than most of the tests which find a fault. This
program imports them once and forks for each run. It runs in a copy of the project, and imports
nothing of it itself. Each line of its standard input is a request, as JSON, and gets a line as
answer::

  {"tests": ["test/unit/rpc"], "output": "FILE", "calls": "FILE or null", "limit_s": 60.0}
  {"code": 0, "at": "test/unit/rpc/test_runner.py::test_one_fan_out"}

The code is the exit code of pytest, or null when one test lasted longer than the limit; ``at`` is
the test which began last, empty when none did. With ``calls`` the file gets
the functions below ``lib/ganeti`` which each test called, with the numbers of their first lines:
``{"TEST": ["config/store.py:120", ...]}``. Calls in other processes are not in it.

A test which uses too much memory fails: each of its processes has a limit.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import resource
import select
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from types import CodeType, FrameType
from typing import Any

import pytest

_OPTIONS = ("-q", "-x", "--tb=no", "-p", "no:cacheprovider")
# What many tests import; a module which is not installed is left out.
_COMMON = ("asyncio", "OpenSSL", "cryptography.x509", "pycurl", "pyparsing", "simplejson", "yaml")
# Bytes which a process of a test may use for its data. A fault which loops may use up all memory;
# with the limit a test fails in time, and other programs of the machine keep theirs.
_MEMORY = 4 << 30


class CallRecorder:
    """A plugin of pytest which records the functions that each test calls."""

    def __init__(self, top: str) -> None:
        self._below = f"{top}/lib/ganeti/"
        self.calls: dict[str, list[str]] = {}

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Record the calls of one test with its fixtures."""
        # By their ids, because comparing code objects compares their contents.
        seen: dict[int, CodeType] = {}

        def note(frame: FrameType, event: str, _argument: Any) -> None:
            if event == "call":
                seen[id(frame.f_code)] = frame.f_code

        threading.setprofile(note)
        sys.setprofile(note)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
        self.calls[item.nodeid] = sorted(
            f"{code.co_filename.removeprefix(self._below)}:{code.co_firstlineno}"
            for code in list(seen.values())
            if code.co_filename.startswith(self._below)
        )


class Progress:
    """A plugin of pytest which tells the parent which test begins.

    :param pipe: gets a line for each test.
    """

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Name the test which begins."""
        os.write(self._pipe, f"{nodeid}\n".encode())


def serve() -> None:
    """Answer requests until the standard input ends."""
    sys.path[:] = [path for path in sys.path if path != os.path.dirname(os.path.abspath(__file__))]
    names: tuple[str, ...] = _COMMON
    # With this variable, pytest uses none of them.
    if not os.environ.get("PYTEST_DISABLE_PLUGIN_AUTOLOAD"):
        plugins = importlib.metadata.entry_points(group="pytest11")
        names = (*(entry.value for entry in plugins), *_COMMON)
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError:
            pass
    for line in sys.stdin:
        request = json.loads(line)
        code, at = _run(request["tests"], request["output"], request["calls"], request["limit_s"])
        print(json.dumps({"code": code, "at": at}), flush=True)


def _run(
    tests: Sequence[str], output: str, calls: str | None, limit_s: float
) -> tuple[int | None, str]:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reader)
            code = _child(tests, output, calls, writer)
        finally:
            os._exit(code)
    os.close(writer)
    ended = os.pidfd_open(child)
    try:
        in_time, begun = _watch(ended, reader, limit_s)
    finally:
        os.close(reader)
        os.close(ended)
        # A test may have left processes behind.
        try:
            os.killpg(child, signal.SIGKILL)
        except ProcessLookupError:
            pass
        try:
            os.kill(child, signal.SIGKILL)
        except ProcessLookupError:
            pass
        _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) if in_time else None, begun


def _watch(ended: int, reader: int, limit_s: float) -> tuple[bool, str]:
    """Wait for the end of the tests.

    :return: whether they ended before one of them lasted too long, and which began last.
    """
    begun, rest = "", b""
    watched = [ended, reader]
    # No module of the project is loaded here: each child loads the one with its fault.
    while ready := select.select(watched, [], [], limit_s)[0]:  # noqa: TID251
        if reader in ready:
            data = os.read(reader, 65536)
            if not data:
                watched.remove(reader)
            *lines, rest = (rest + data).split(b"\n")
            begun = lines[-1].decode() if lines else begun
        elif ended in ready:
            return True, begun
    return False, begun


def _child(tests: Sequence[str], output: str, calls: str | None, progress: int) -> int:
    os.setsid()
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
    nothing = os.open(os.devnull, os.O_RDWR)
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    for source, target in ((nothing, 0), (file, 1), (nothing, 2)):
        os.dup2(source, target)
    recorder = CallRecorder(os.getcwd())
    plugins: list[object] = [Progress(progress)]
    if calls is not None:
        plugins.append(recorder)
    code = int(pytest.main([*_OPTIONS, *tests], plugins=plugins))
    if calls is not None:
        with open(calls, "w", encoding="utf-8") as stream:
            json.dump(recorder.calls, stream)
    sys.stdout.flush()
    return code


if __name__ == "__main__":
    serve()
