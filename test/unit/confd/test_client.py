"""The client: the newest of many answers, and what is no answer."""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from ganeti import errors
from ganeti.confd import protocol
from ganeti.confd.client import Client, Conversation
from ganeti.platform import paths

KEY = b"key\n"


def talk() -> Conversation:
    numbers = itertools.count(1)
    return Conversation(KEY, 3, None, new_salt=lambda: f"salt{next(numbers)}")


def reply(datagram: bytes, status: int, answer: object, serial: int, key: bytes = KEY) -> bytes:
    request = protocol.parse_request(protocol.unpack([KEY], datagram).message)
    return protocol.pack_reply(key, request, protocol.ConfdReply(status, answer, serial))


def test_the_highest_serial_wins_in_any_order() -> None:
    for order in itertools.permutations((5, 7, 6)):
        one = talk()
        asked = [one.datagram(f"peer{serial}", 0) for serial in order]
        for datagram, serial in zip(asked, order, strict=True):
            assert one.take(reply(datagram, 0, f"answer{serial}", serial))
        assert one.complete
        assert one.best == (protocol.ConfdReply(0, "answer7", 7), "peer7")


def test_a_daemon_without_configuration_does_not_count() -> None:
    one = talk()
    knows, empty = one.datagram("knows", 0), one.datagram("empty", 0)
    one.take(reply(knows, 0, 3010000, 0))
    one.take(reply(empty, 1, 1, 0))
    assert one.best is not None and one.best[1] == "knows"


def test_what_is_no_answer_to_this_question_is_ignored() -> None:
    one, other = talk(), talk()
    datagram = one.datagram("peer", 0)
    other.datagram("peer", 0)
    stranger = other.datagram("second", 0)
    assert not one.take(b"garbage")
    assert not one.take(reply(datagram, 0, "x", 1, key=b"wrong"))
    assert not one.take(reply(stranger, 0, "x", 1))
    assert one.take(reply(datagram, 0, "good", 1))
    assert not one.take(reply(datagram, 0, "again", 9)), "a second answer of the same peer"
    assert one.best == (protocol.ConfdReply(0, "good", 1), "peer")
    assert one.ignored == 4


@contextmanager
def daemons(answers: Sequence[bytes | int | None]) -> Iterator[tuple[list[str], int]]:
    """Peers 127.0.0.1, .2, ...: an int answers with that serial, bytes say that, None is mute."""
    sockets = []
    port = 0
    for number in range(len(answers)):
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.bind((f"127.0.0.{number + 1}", port))
        port = sock.getsockname()[1]
        sockets.append(sock)

    def serve(sock: socket.socket, what: bytes | int | None) -> None:
        while True:
            datagram, peer = sock.recvfrom(8192)
            if datagram == b"end":
                return
            if isinstance(what, int):
                sock.sendto(reply(datagram, 0, what, what), peer)
            elif what is not None:
                sock.sendto(what, peer)

    threads = [
        threading.Thread(target=serve, args=pair) for pair in zip(sockets, answers, strict=True)
    ]
    for thread in threads:
        thread.start()
    try:
        yield [f"127.0.0.{number + 1}" for number in range(len(answers))], port
    finally:
        for sock in sockets:
            sock.sendto(b"end", sock.getsockname())
        for thread in threads:
            thread.join()
        for sock in sockets:
            sock.close()


def test_many_are_asked() -> None:
    with daemons([3, 9, b"garbage", 4]) as (peers, port):
        answer = Client(
            KEY,
            peers,
            port=port,
            settle_s=5,
            expire_s=5,
            sample=lambda all_, count: list(all_)[:count],
        ).query(3, coverage=2)
        assert (answer.answer, answer.peer, answer.asked, answer.answers) == (9, peers[1], 2, 2)
        assert answer.ok
        full = Client(KEY, peers, port=port, settle_s=0.05, expire_s=60).query(3)
        assert full.asked == 4 and full.answers >= 1


def test_a_question_expires() -> None:
    with daemons([None, b"garbage"]) as (peers, port):
        client = Client(KEY, peers, port=port, expire_s=0.1)
        with pytest.raises(errors.ConfdClientError, match=r"none of .* answered within 0.1 s"):
            client.query(0)


def test_nobody_to_ask() -> None:
    with pytest.raises(errors.ConfdClientError, match="no master candidate"):
        Client(KEY, [], port=1).query(0)


def test_of_this_node(tmp_path: Path) -> None:
    here = paths.Paths(str(tmp_path))
    Path(here.data_dir).mkdir(parents=True)
    with pytest.raises(errors.ConfdClientError, match=r"cannot read .*hmac.key"):
        Client.of_this_node(here)
    Path(here.hmac_key).write_bytes(KEY)
    Path(here.ssconf_file("master_candidates_ips")).write_text("127.0.0.1\n127.0.0.2\n")
    assert Client.of_this_node(here)._peers == ["127.0.0.1", "127.0.0.2"]
