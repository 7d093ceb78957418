"""The control socket: what is understood, and what is refused."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest

from ganeti import errors
from ganeti.luxi import protocol
from ganeti.metad.control import Control
from ganeti.metad.guests import Guests
from ganeti.utils import net

DESCRIPTION = {
    "name": "web1",
    "os": "debian",
    "osparams_secret": {"password": "hush"},
    "nics": [{"name": "ganeti:communication:web1", "ip": "169.254.0.7"}],
}


@pytest.fixture
def control():
    return Control(Guests(now=lambda: 5.0))


def call(control, method, *args):
    message = protocol.encode_request(method, list(args)).removesuffix(protocol.ETX)
    return protocol.parse_answer(control.answer(message).removesuffix(protocol.ETX))


def test_echo(control):
    assert call(control, "Echo", "hello") == "hello"


def test_the_life_of_a_guest(control, caplog):
    caplog.set_level("DEBUG")
    assert call(control, "UpdateConfig", {**DESCRIPTION, "helper": {"task": "install"}}) is None
    assert call(control, "ListInstances") == [["web1", "169.254.0.7", "debian", "install", None]]
    assert call(control, "ReadReport", "web1") == {
        "contact": None,
        "started": False,
        "exit_code": None,
        "log": "",
    }
    assert call(control, "RemoveInstance", "web1") is True
    assert call(control, "RemoveInstance", "web1") is False
    assert call(control, "ReadReport", "web1") is None
    assert "hush" not in caplog.text


@pytest.mark.parametrize(
    ("method", "args", "fragment"),
    [
        ("Shutdown", [], "no method 'Shutdown'"),
        ("Echo", [], "takes 1 argument, not 0"),
        ("ListInstances", ["x"], "takes 0 arguments, not 1"),
        ("UpdateConfig", [{"name": "web1"}], "no interface"),
        ("UpdateConfig", [[]], "dictionary"),
        ("RemoveInstance", [5], "is a string"),
    ],
)
def test_what_is_refused(control, method, args, fragment):
    with pytest.raises(errors.ParameterError, match=fragment):
        call(control, method, *args)


@pytest.mark.parametrize("message", [b"", b"{", b"[]", b'{"method": "Echo"}', None])
def test_what_is_no_request(control, message):
    with pytest.raises(errors.RequestError):
        protocol.parse_answer(control.answer(message).removesuffix(protocol.ETX))
    assert call(control, "Echo", "still here") == "still here"


@pytest.mark.parametrize("depth", [1, 60])
def test_sockets_of_every_path_are_served(tmp_path: Path, depth: int, control: Control) -> None:
    """A long path is bound through a name below /proc/self/fd, which means another file later."""
    directory = tmp_path.joinpath(*["long"] * depth)
    directory.mkdir(parents=True)
    path = str(directory / "control")
    listener = net.unix_listen(path)
    # The descriptor of the directory is used for something else by now.
    with open(os.devnull, "rb"):
        asyncio.run(_serve_once(control, listener, path))
    assert os.path.exists(path), "the daemon which started next may have made it"


async def _serve_once(control: Control, listener: socket.socket, path: str) -> None:
    await control.start(listener)
    client = await asyncio.to_thread(net.unix_connect, path, 60.0)
    reader, writer = await asyncio.open_connection(sock=client)
    writer.write(protocol.encode_request("Echo", ["hello"]))
    answer = await reader.readuntil(protocol.ETX)
    assert protocol.parse_answer(answer[:-1]) == "hello"
    writer.close()
    await control.stop()
