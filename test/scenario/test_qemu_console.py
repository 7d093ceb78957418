"""The serial console of a real guest, on a terminal."""

from __future__ import annotations

import os
import signal

import pytest
from console_terminal import Terminal
from kvm_node import (
    NAME,
    PATIENCE_S,
    Node,
    find_qemu,
    status,
)

from ganeti.objects.instance import FilledInstance

pytestmark = pytest.mark.skipif(
    not os.access(find_qemu(), os.X_OK), reason="QEMU (qemu-system-x86) is not installed"
)


def test_console_has_a_shell_and_restores_the_terminal(node: Node, guest: FilledInstance) -> None:
    node.start(guest)
    node.wait_booted(guest)
    terminal = Terminal(node, guest)
    try:
        terminal.wait_for("Ctrl-] closes it")
        terminal.wait_for(f"tiny: {NAME}")
        assert terminal.raw()
        terminal.type("echo answer $((6 * 7))\r")
        terminal.wait_for("answer 42")
        second = Terminal(node, guest)
        try:
            second.wait_for(f"the console of instance {NAME} is in use by process")
            assert second.child.wait(PATIENCE_S) == 1
        finally:
            second.close()
        terminal.type("\x1d")
        assert terminal.child.wait(PATIENCE_S) == 0
        assert terminal.restored()
    finally:
        terminal.close()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        terminal = Terminal(node, guest)
        try:
            terminal.wait_for(f"tiny: {NAME}")
            terminal.child.send_signal(number)
            assert terminal.child.wait(PATIENCE_S) == 128 + number
            assert terminal.restored()
        finally:
            terminal.close()
    terminal = Terminal(node, guest)
    try:
        terminal.wait_for(f"tiny: {NAME}")
        node.shutdown(guest)
        assert terminal.child.wait(PATIENCE_S) == 0
        assert terminal.restored()
    finally:
        terminal.close()
    assert node.leftovers() == []


def test_console_wakes_a_paused_guest(node: Node, guest: FilledInstance) -> None:
    node.start(guest, paused=True)
    terminal = Terminal(node, guest)
    try:
        terminal.wait_for("was paused; it runs now")
        terminal.wait_for(f"tiny: {NAME} boot 1-")
    finally:
        terminal.close()
    assert status(node, guest) == "running"


def test_console_of_a_stopped_guest(node: Node, guest: FilledInstance) -> None:
    terminal = Terminal(node, guest)
    try:
        terminal.wait_for("kvm-console-wrapper: error: ")
        assert terminal.child.wait(PATIENCE_S) == 1
        assert terminal.restored()
    finally:
        terminal.close()
