"""Plays the hardware watchdog of a node of a virtual cluster.

``devel/fake_watchdog.py DIRECTORY`` makes the FIFO ``dev/watchdog`` below the directory of a node,
and counts like a device: from the moment at which it is opened, and again after each byte which is
written to it. The first line which a program writes is the timeout in seconds. The letter ``V`` as
the last byte before the FIFO is closed disarms it; without that it goes on counting. When it fires,
it kills all processes of the node and empties its run directory, as a reset of the machine would,
and prints ``fired``.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from ganeti.utils.net import wait_readable


class Count:
    """What the device does with the bytes which it gets; it reads no clock."""

    def __init__(self) -> None:
        self._timeout_s = 60.0
        self._line: bytes | None = b""
        self._last = b""
        self.fires_at: float | None = None

    def take(self, data: bytes, now: float) -> None:
        """Take in bytes; none means that the FIFO is closed."""
        if not data:
            if self._last == b"V":
                self.fires_at = None
            self._line, self._last = b"", b""
            return
        self._last = data[-1:]
        if self._line is not None:
            first, end, _ = (self._line + data).partition(b"\n")
            self._line = None if end else first
            if end and first.isdigit():
                self._timeout_s = float(first)
        self.fires_at = now + self._timeout_s


def play(fifo: str, fire: Callable[[], None]) -> None:
    """Count until the device fires; then call a function, and count anew."""
    with contextlib.suppress(FileExistsError):
        os.mkfifo(fifo, 0o600)
    count = Count()
    fd = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    while True:
        left_s = None if count.fires_at is None else max(0.0, count.fires_at - time.monotonic())
        readable = wait_readable([fd], left_s)
        if readable:
            data = os.read(fd, 4096)
            count.take(data, time.monotonic())
            if not data:
                # Opened anew, so that the next select waits for the next writer.
                os.close(fd)
                fd = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
        elif count.fires_at is not None and time.monotonic() >= count.fires_at:
            count.fires_at = None
            fire()


def reset(root: Path) -> None:
    """Do to a node what a reset does to a machine: everything ends, and the run directory is empty.

    :param root: the directory of the node.
    """
    mark = f"GANETI_ROOTDIR={root}".encode()
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark in (place / "environ").read_bytes().split(b"\0"):
                os.kill(int(place.name), signal.SIGKILL)
    run = root / "var/run/ganeti"
    for path in sorted(run.rglob("*"), reverse=True):
        if not path.is_dir():
            path.unlink(missing_ok=True)


def main(root: Path) -> None:
    """Play the device of a node, whose directory is given."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    os.environ.pop("GANETI_ROOTDIR", None)
    fifo = root / "dev/watchdog"
    fifo.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.mkfifo(fifo, 0o600)
    print("ready", flush=True)

    def fire() -> None:
        reset(root)
        print("fired", flush=True)

    play(str(fifo), fire)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
