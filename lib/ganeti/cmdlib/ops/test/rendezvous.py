"""A place where a running job and a test program meet: a socket whose name the job's log tells.

The job listens in a directory of its own, adds an entry of a special type to its log with the
socket's path, and waits until the program has connected, and gone again. So the program can look
around while the job stands still at a known point. Nothing is said over the socket.
"""

from __future__ import annotations

import os
import select
import shutil
import socket
import tempfile
import time
from collections.abc import Callable
from types import TracebackType

from ganeti.platform import paths
from ganeti.utils import fs, net

# How often somebody who waits looks whether his job was cancelled.
_STEP_S = 0.5


class Rendezvous:
    """The job's side; use as a context manager."""

    def __init__(self) -> None:
        self._directory = ""
        self._listener: socket.socket | None = None
        self.path = ""

    def __enter__(self) -> Rendezvous:
        run_dir = paths.current().run_dir
        fs.make_dirs(run_dir, 0o755)
        self._directory = tempfile.mkdtemp(prefix="ganeti-test-", dir=run_dir)
        self.path = f"{self._directory}/sock"
        try:
            self._listener = net.unix_listen(self.path)
        except BaseException:
            shutil.rmtree(self._directory, ignore_errors=True)
            raise
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._listener is not None:
            self._listener.close()
        if os.path.isdir(self._directory):
            shutil.rmtree(self._directory, ignore_errors=True)

    def arrived(self, timeout_s: float, check: Callable[[], None]) -> socket.socket | None:
        """Wait for somebody to connect; None when nobody did in time.

        :param check: called now and then; may raise to end the wait.
        """
        assert self._listener is not None
        if not _readable(self._listener, timeout_s, check):
            return None
        connection, _ = self._listener.accept()
        return connection

    @staticmethod
    def left(connection: socket.socket, timeout_s: float, check: Callable[[], None]) -> bool:
        """Wait until the other side has gone; whether it did in time."""
        with connection:
            return _readable(connection, timeout_s, check)


def _readable(sock: socket.socket, timeout_s: float, check: Callable[[], None]) -> bool:
    deadline = time.monotonic() + timeout_s
    while True:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            return False
        if select.select([sock], [], [], min(left_s, _STEP_S))[0]:
            return True
        check()
