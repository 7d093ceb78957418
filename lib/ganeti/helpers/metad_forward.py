"""Forwards one connection of a guest to the metadata daemon; QEMU starts it in virtual clusters.

``metad_forward.py SOCKET ADDRESS``: standard input and output are connected to the guest, and
SOCKET belongs to the daemon. The first line which the daemon receives has the address of the guest.
The program imports only the standard library, because the guest waits for its start.
"""

from __future__ import annotations

import os
import select
import socket
import sys

_PIECE_BYTES = 1 << 16
_SERVER = "169.254.169.254"


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def forward(path: str, address: str, take: int, give: int) -> None:
    """Copy bytes in both directions until the daemon has ended the connection.

    :param path: socket of the daemon.
    :param address: IP address of the guest.
    :param take: file descriptor for data from the guest.
    :param give: file descriptor for data to the guest.
    :raises OSError: the daemon does not listen, or a connection broke.
    """
    with socket.socket(socket.AF_UNIX) as daemon:
        # The path may be too long for the address of a socket.
        directory = os.open(os.path.dirname(path) or ".", os.O_PATH | os.O_DIRECTORY)
        try:
            daemon.connect(f"/proc/self/fd/{directory}/{os.path.basename(path)}")
        finally:
            os.close(directory)
        daemon.sendall(f"PROXY TCP4 {address} {_SERVER} 0 80\r\n".encode())
        # Unlike select(), it knows no largest number of a descriptor.
        sources = select.poll()
        for source in (daemon.fileno(), take):
            sources.register(source, select.POLLIN)
        while True:
            ready = {source for source, _event in sources.poll()}
            if take in ready:
                data = os.read(take, _PIECE_BYTES)
                if data:
                    daemon.sendall(data)
                else:
                    sources.unregister(take)
                    daemon.shutdown(socket.SHUT_WR)
            if daemon.fileno() in ready:
                data = daemon.recv(_PIECE_BYTES)
                if not data:
                    return
                _write(give, data)


def main(argv: list[str]) -> int:
    """Entry point; returns the exit code."""
    try:
        forward(argv[1], argv[2], 0, 1)
    except OSError:
        # The guest sees the end of the connection; there is no other place for a message.
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
