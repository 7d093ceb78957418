"""The serial console's parts; with a terminal and a guest in test/scenario/test_qemu_console.py."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti.helpers import kvm_console


@pytest.mark.parametrize(
    "word, path",
    [
        ("UNIX-CONNECT:/run/a.serial", "/run/a.serial"),
        ("unix:/run/a", "/run/a"),
        ("/run/with:colon", "/run/with:colon"),
    ],
)
def test_socket_path(word: str, path: str) -> None:
    assert kvm_console.socket_path(word) == path


@pytest.mark.parametrize("word", ["TCP:host:5", "relative", ""])
def test_no_socket_path(word: str) -> None:
    with pytest.raises(kvm_console.ConsoleError, match="is not a socket"):
        kvm_console.socket_path(word)


def test_escape() -> None:
    assert kvm_console.parse_escape("STDIO,raw,echo=0,escape=0x1d") == b"\x1d"
    assert kvm_console.parse_escape("STDIO,raw") == b""
    with pytest.raises(kvm_console.ConsoleError, match="escape '0x1ff' is not a byte"):
        kvm_console.parse_escape("escape=0x1ff")


class Ends:
    """A guest's socket, a keyboard and a screen."""

    def __init__(self) -> None:
        self.guest, self.here = socket.socketpair()
        self.input, self.keyboard = os.pipe()
        self.screen, self.output = os.pipe()

    def copy(self, escape: bytes = b"\x1d") -> str:
        return kvm_console.copy(self.here, self.input, self.output, escape)


@pytest.fixture
def ends() -> Iterator[Ends]:
    made = Ends()
    yield made
    made.guest.close()
    made.here.close()
    for fd in (made.input, made.keyboard, made.screen, made.output):
        try:
            os.close(fd)
        except OSError:
            continue


def test_escape_ends_and_what_comes_before_is_sent(ends: Ends) -> None:
    ends.guest.sendall(b"login: ")
    os.write(ends.keyboard, b"root\r\x1dnever")
    assert ends.copy() == "escape"
    assert ends.guest.recv(100) == b"root\r"


def test_guest_closes(ends: Ends) -> None:
    ends.guest.sendall(b"bye")
    ends.guest.close()
    assert ends.copy() == "closed"
    assert os.read(ends.screen, 100) == b"bye"


def test_end_of_input_waits_for_the_answer(ends: Ends) -> None:
    os.write(ends.keyboard, b"uptime\n\x1d")
    os.close(ends.keyboard)
    ends.guest.sendall(b"up 5 s")
    assert ends.copy(b"") == "end"
    assert ends.guest.recv(100) == b"uptime\n\x1d"
    assert os.read(ends.screen, 100) == b"up 5 s"


def test_only_one_console(tmp_path: Path) -> None:
    serial = str(tmp_path / "web1.serial")
    with kvm_console.exclusive(serial, "web1"):
        with (
            pytest.raises(kvm_console.ConsoleError, match=f"in use by process {os.getpid()}"),
            kvm_console.exclusive(serial, "web1"),
        ):
            pass
    with kvm_console.exclusive(serial, "web1"):
        pass


def test_nobody_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = f"{tmp_path}/web1"
    words = ["socat", "web1", f"{path}.monitor", "STDIO,raw,escape=0x1d"]
    assert kvm_console.main([*words, f"UNIX-CONNECT:{path}.serial"]) == 1
    assert "instance web1 has no console" in capsys.readouterr().err
    assert kvm_console.main([*words, "TCP:x:1"]) == 1
    with pytest.raises(SystemExit) as usage:
        kvm_console.main(["socat"])
    assert usage.value.code == 2
