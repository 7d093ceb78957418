"""``python -m devel.terminal_recording FILE COMMAND...``: runs a command, and records its terminal.

The file has the format asciicast, version 2 (https://docs.asciinema.org/manual/asciicast/v2/): a
header in JSON, then one line for each output with its time. Other programs play it; ``make html``
makes an animation of it. ``make demo-recording`` records the demonstration.
"""

from __future__ import annotations

import json
import os
import pty
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from fcntl import ioctl
from typing import TextIO

COLUMNS, ROWS = 100, 30
_BUFFER = 65536
# Stands for the present directory, which differs on each machine.
_CHECKOUT = "~/ganeti"


def record(command: Sequence[str], target: TextIO) -> int:
    """Run a command in a terminal of its own, copy its output, write the recording to ``target``.

    :returns: the exit code of the command.
    """
    header = {
        "version": 2,
        "width": COLUMNS,
        "height": ROWS,
        "timestamp": int(time.time()),
        "command": " ".join(command).replace(os.getcwd(), _CHECKOUT),
        "env": {"TERM": "xterm-256color"},
    }
    target.write(json.dumps(header) + "\n")
    master, slave = pty.openpty()
    ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    begin = time.monotonic()
    child = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=slave, stderr=slave,
        env=os.environ | {"TERM": "xterm-256color"}, start_new_session=True,
    )  # fmt: skip
    os.close(slave)
    try:
        for data in _output(master):
            text = data.decode("utf-8", "replace")
            sys.stdout.write(text.replace("\r\n", "\n"))
            sys.stdout.flush()
            text = text.replace(os.getcwd(), _CHECKOUT)
            target.write(json.dumps([round(time.monotonic() - begin, 3), "o", text]) + "\n")
    finally:
        os.close(master)
    return child.wait()


def _output(descriptor: int) -> Iterator[bytes]:
    while True:
        try:
            data = os.read(descriptor, _BUFFER)
        except OSError:
            # Linux answers so when no program has the terminal any more.
            return
        if not data:
            return
        yield data


def main(argv: Sequence[str]) -> int:
    """Record; the file is there only when the command has succeeded."""
    if len(argv) < 2:  # noqa: PLR2004
        print("usage: python -m devel.terminal_recording FILE COMMAND...", file=sys.stderr)
        return 2
    temporary = f"{argv[0]}.new"
    try:
        with open(temporary, "w", encoding="utf-8") as target:
            code = record(argv[1:], target)
        if code == 0:
            os.rename(temporary, argv[0])
        return code
    finally:
        if os.path.exists(temporary):
            os.remove(temporary)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
