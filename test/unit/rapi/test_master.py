"""Asking the master without a thread: connections that are lent, broken, refused."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ganeti import errors
from ganeti.luxi import protocol as wire
from ganeti.platform import paths
from ganeti.rapi.master import Master
from ganeti.utils import net


class Peer:
    """A master on a real socket; each connection answers `count` requests and then closes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.connections = 0
        self.requests: list[tuple[str, list[Any]]] = []
        self.count = 1_000_000
        self.silent = False
        self.raw: bytes | None = None
        self._listener = net.unix_listen(str(path))
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _address = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: Any) -> None:
        splitter = wire.Splitter()
        done = 0
        with sock:
            while done < self.count:
                data = sock.recv(65536)
                if not data:
                    return
                for message in splitter.feed(data):
                    method, args, _trace = wire.parse_request(message or b"")
                    self.requests.append((method, args))
                    done += 1
                    if self.silent:
                        continue
                    answer = self.raw or wire.encode_answer([method, args])
                    for place in range(0, len(answer), 100_000):
                        sock.sendall(answer[place : place + 100_000])

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[Peer]:
    found = Peer(tmp_path / "master")
    yield found
    found.close()


def ask(peer: Peer, *questions: tuple[Any, ...], timeout_s: float = 60.0) -> list[Any]:
    """Ask one after the other on one Master."""

    async def body() -> list[Any]:
        master = Master(str(peer.path), timeout_s=timeout_s)
        try:
            return [await master.call(*question) for question in questions]
        finally:
            master.close()

    return asyncio.run(body())


def test_a_connection_is_used_again(peer: Peer) -> None:
    assert ask(peer, ("Query", 1), ("Query", "x" * 3_000_000))[0] == ["Query", [1]]
    assert peer.connections == 1


def test_many_at_once(peer: Peer) -> None:
    async def body() -> None:
        master = Master(str(peer.path))
        found = await asyncio.gather(*(master.call("Query", number) for number in range(100)))
        assert [args for _method, (args,) in found] == list(range(100))
        await asyncio.gather(*(master.call("Query", number) for number in range(20)))
        master.close()

    asyncio.run(body())
    assert peer.connections <= 120


def test_a_stale_connection(peer: Peer) -> None:
    """A question is asked again, a change never is."""
    peer.count = 1
    assert len(ask(peer, ("Query", 1), ("Query", 2), ("Query", 3))) == 3
    assert [args for _method, args in peer.requests] == [[1], [2], [3]]


def test_a_change_is_not_sent_twice(peer: Peer) -> None:
    peer.silent = True
    peer.count = 1
    with pytest.raises(errors.ConnectionClosedError):
        ask(peer, ("SubmitJob", []))
    assert len(peer.requests) == 1
    peer.silent = False
    with pytest.raises(errors.ConnectionClosedError):
        ask(peer, ("Query", 1), ("SubmitJob", []))
    assert [method for method, _args in peer.requests[1:]] == ["Query"]


def test_nobody_there(tmp_path: Path) -> None:
    def call(path: Path) -> None:
        asyncio.run(Master(str(path)).call("Query"))

    with (
        paths.override(paths.Paths(str(tmp_path))),
        pytest.raises(errors.NoMasterError, match="not part of a cluster"),
    ):
        call(tmp_path / "nothing")
    file = tmp_path / "file"
    file.touch()
    with pytest.raises((errors.LuxiError, errors.NoMasterError)):
        call(file / "x")


def test_no_answer(peer: Peer) -> None:
    peer.silent = True
    with pytest.raises(errors.LuxiTimeout):
        ask(peer, ("Query",), timeout_s=0.05)


def test_nonsense(peer: Peer) -> None:
    peer.raw = b"nonsense" + wire.ETX
    with pytest.raises(errors.ProtocolError):
        ask(peer, ("Query",))
    peer.raw = wire.encode_error(errors.OpPrereqError("no", errors.ECODE_NOENT))
    with pytest.raises(errors.OpPrereqError, match="no"):
        ask(peer, ("Query",))
