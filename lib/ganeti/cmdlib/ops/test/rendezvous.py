"""A socket by which a test program stops and continues a running job.

The job listens on a socket in its own directory and writes the path of the socket to its log, in an
entry of a special type. Then it waits until a program has connected and disconnected. In between
the program can examine the job, which stands still at a known point. No data is sent.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable

from ganeti.platform import paths
from ganeti.utils import fs, net

# Pause between two checks whether the job was canceled.
_STEP_S = 0.5


class Rendezvous:
    """The socket of the job; use as a context manager.

    :ivar path: path of the socket.
    """

    def __init__(self) -> None:
        self._directory = ""
        self._listener: socket.socket | None = None
        self.path = ""

    def __enter__(self) -> Rendezvous:
        run_dir = paths.current().run_dir
        fs.make_dirs(run_dir, 0o755)
        self._directory = tempfile.mkdtemp(prefix=f"ganeti-test-{os.getpid()}-", dir=run_dir)
        self.path = f"{self._directory}/sock"
        try:
            self._listener = net.unix_listen(self.path)
        except BaseException:
            shutil.rmtree(self._directory, ignore_errors=True)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._listener is not None:
            self._listener.close()
        if os.path.isdir(self._directory):
            shutil.rmtree(self._directory, ignore_errors=True)

    def accept(self, timeout_s: float, check: Callable[[], None]) -> socket.socket | None:
        """Wait for a program to connect.

        :param check: called every 0.5 s; may raise to end the wait.
        :returns: the connection; None when no program connected in time.
        """
        assert self._listener is not None
        if not _readable(self._listener, timeout_s, check):
            return None
        connection, _ = self._listener.accept()
        return connection

    @staticmethod
    def wait_closed(connection: socket.socket, timeout_s: float, check: Callable[[], None]) -> bool:
        """Wait until the program has disconnected.

        :returns: whether it did in time.
        """
        with connection:
            return _readable(connection, timeout_s, check)


def _readable(sock: socket.socket, timeout_s: float, check: Callable[[], None]) -> bool:
    deadline = time.monotonic() + timeout_s
    while True:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            return False
        if net.wait_readable([sock], min(left_s, _STEP_S)):
            return True
        check()
