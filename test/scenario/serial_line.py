"""A terminal on a guest's serial line, for tests that type and look for the answer in the log.

It also takes off what the guest says. QEMU sends a character at a time, each of which takes as
much of a socket's buffer as a page of text: after 278 of them that nobody reads, the buffer is
full, and the guest stands still at its next character until the line is hung up.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

from ganeti.utils import net


@contextlib.contextmanager
def connected(path: str, timeout_s: float) -> Iterator[socket.socket]:
    """The line, to type into with ``sendall``.

    :param path: QEMU's socket.
    :param timeout_s: limit for a connection and for what is typed.
    :raises OSError: nobody listens.
    """
    with net.unix_connect(path, timeout_s) as line:

        def read() -> None:
            # Ends when QEMU, or the end of the block below, hangs up.
            with contextlib.suppress(OSError):
                while True:
                    with contextlib.suppress(TimeoutError):
                        if not line.recv(65536):
                            return

        reader = threading.Thread(target=read)
        reader.start()
        try:
            yield line
        finally:
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
            reader.join()
