"""A terminal on which the console of a real guest is open."""

from __future__ import annotations

import os
import pty
import subprocess
import termios

from kvm_node import TOP, Node, wait_until

from ganeti.objects.instance import FilledInstance
from ganeti.utils.net import wait_readable


class Terminal:
    """A pseudo terminal with ``kvm-console-wrapper`` on it."""

    def __init__(self, node: Node, guest: FilledInstance) -> None:
        self.master, self.slave = pty.openpty()
        self.before = termios.tcgetattr(self.slave)
        self.child = subprocess.Popen(
            [
                TOP / "tools/kvm-console-wrapper",
                "socat",
                guest.name,
                node.socket(guest, "monitor"),
                "STDIO,raw,echo=0,escape=0x1d",
                f"UNIX-CONNECT:{node.socket(guest, 'serial')}",
            ],
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            start_new_session=True,
        )
        self.text = ""

    def wait_for(self, words: str) -> None:
        def seen() -> bool:
            if wait_readable([self.master], 0.1):
                self.text += os.read(self.master, 65536).decode(errors="replace")
            return words in self.text

        wait_until(seen, f"the console shows {words!r}; it showed {self.text!r}")

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def raw(self) -> bool:
        return not termios.tcgetattr(self.slave)[3] & termios.ICANON

    def restored(self) -> bool:
        return bool(termios.tcgetattr(self.slave) == self.before)

    def close(self) -> None:
        if self.child.poll() is None:
            self.child.kill()
            self.child.wait()
        os.close(self.master)
        os.close(self.slave)
