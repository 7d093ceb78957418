"""Strangers get no answer; they are counted."""

from __future__ import annotations

import hashlib
import hmac
import json
import sys
from pathlib import Path

import pytest

from ganeti.confd import protocol, responder
from ganeti.confd.queries import ConfigFacts
from ganeti.constants import confd as const

sys.path.insert(0, str(Path(__file__).parents[1] / "config"))
from samples import small_cluster  # noqa: E402

KEY, NOW, TICK = b"k1", 1_000_000.0, 5_000.0


@pytest.fixture
def one() -> responder.Responder:
    made = responder.Responder()
    made.use_key(KEY, TICK, keep_old_s=60)
    made.facts = ConfigFacts(small_cluster(1))
    return made


def request(key: bytes = KEY, now: float = NOW, *, kind: int = 0, rsalt: str = "r") -> bytes:
    return protocol.pack_request(key, protocol.ConfdRequest(kind, None, rsalt), now)


def test_an_answer(one: responder.Responder) -> None:
    answer = one.answer(request(), NOW, TICK)
    assert answer is not None
    assert protocol.unpack_reply([KEY], answer) == ("r", protocol.ConfdReply(0, 3010000, 0))
    assert one.counts == {responder.ANSWERED: 1}


@pytest.mark.parametrize(
    ("datagram", "why"),
    [
        (b"hello", responder.BAD_MAGIC),
        (b"plj0{", responder.MALFORMED),
        (request(b"other"), responder.BAD_SIGNATURE),
        (request(now=NOW - const.MAX_CLOCK_SKEW_S - 1), responder.BAD_SALT),
        (request(now=NOW + const.MAX_CLOCK_SKEW_S + 1), responder.BAD_SALT),
        (protocol.pack(KEY, "yesterday", {}), responder.BAD_SALT),
        (protocol.pack(KEY, "9" * 400, {}), responder.BAD_SALT),
        (protocol.pack(KEY, "\u0661", {}), responder.BAD_SALT),
        (protocol.pack(KEY, str(int(NOW)), {"protocol": 1}), responder.MALFORMED),
    ],
)
def test_silence(one: responder.Responder, datagram: bytes, why: str) -> None:
    assert one.answer(datagram, NOW, TICK) is None
    assert one.counts == {why: 1}


@pytest.mark.parametrize("skew_s", [-const.MAX_CLOCK_SKEW_S, const.MAX_CLOCK_SKEW_S])
def test_the_clocks_may_differ_a_little(one: responder.Responder, skew_s: float) -> None:
    assert one.answer(request(now=NOW + skew_s), NOW, TICK) is not None


def test_a_replay_gets_no_answer_as_long_as_its_time_is_good(one: responder.Responder) -> None:
    ahead = request(now=NOW + const.MAX_CLOCK_SKEW_S)
    assert one.answer(ahead, NOW, TICK) is not None
    for later in (0, 1, 299, 600):
        assert one.answer(ahead, NOW + later, TICK + later) is None
    assert one.counts[responder.REPLAYED] == 4
    assert one.answer(ahead, NOW + 601, TICK + 601) is None
    assert one.counts[responder.BAD_SALT] == 1
    # What was seen is forgotten once it can do no harm.
    assert one.answer(request(now=NOW + 2000, rsalt="x"), NOW + 2000, TICK + 2000) is not None
    assert len(one._seen) == 1


def test_a_client_sends_its_datagram_again_because_the_answer_was_lost(
    one: responder.Responder,
) -> None:
    """It gets the answer again, and nobody else does, nor does it without end."""
    here, elsewhere = ("192.0.2.7", 4000), ("192.0.2.8", 4000)
    datagram = request()
    first = one.answer(datagram, NOW, TICK, here)
    assert first is not None
    assert one.answer(datagram, NOW, TICK + 1, elsewhere) is None
    for _again in range(responder.MOST_ANSWERS - 1):
        assert one.answer(datagram, NOW, TICK + 1, here) == first
    assert one.answer(datagram, NOW, TICK + 1, here) is None
    assert one.counts == {responder.ANSWERED: responder.MOST_ANSWERS, responder.REPLAYED: 2}


def test_the_clock_is_put_forward_and_back(one: responder.Responder) -> None:
    """What was answered before is not a fresh request afterwards."""
    seen = request(now=NOW)
    assert one.answer(seen, NOW, TICK) is not None
    day = 86400
    assert one.answer(seen, NOW + day, TICK + 1) is None
    assert one.answer(request(now=NOW + day, rsalt="x"), NOW + day, TICK + 2) is not None
    assert one.answer(seen, NOW, TICK + 3) is None
    assert one.counts[responder.REPLAYED] == 1
    # Nor does an old key live longer.
    one.use_key(b"k2", TICK + 4, keep_old_s=60)
    assert one.answer(request(KEY, now=NOW - day, rsalt="y"), NOW - day, TICK + 65) is None
    assert one.answer(request(b"k2", now=NOW - day, rsalt="z"), NOW - day, TICK + 66) is not None


def test_the_key_before_is_good_for_a_while(one: responder.Responder) -> None:
    one.use_key(b"k2", TICK, keep_old_s=60)
    assert one.answer(request(b"k2", rsalt="1"), NOW, TICK) is not None
    old = one.answer(request(KEY, rsalt="2"), NOW, TICK)
    assert old is not None and protocol.unpack_reply([KEY], old)[0] == "2"
    assert one.answer(request(KEY, rsalt="3"), NOW + 61, TICK + 61) is None
    one.use_key(None, TICK, keep_old_s=60)
    assert one.answer(request(b"k2", rsalt="4"), NOW, TICK) is None


def test_without_configuration_everything_is_an_error(one: responder.Responder) -> None:
    one.facts = None
    answer = one.answer(request(), NOW, TICK)
    assert answer is not None
    assert protocol.unpack_reply([KEY], answer)[1] == protocol.ConfdReply(
        1, const.ERROR_INTERNAL, 0
    )


def test_an_answer_that_fits_no_datagram(one: responder.Responder) -> None:
    one.facts = ConfigFacts(small_cluster(1, osparams={"noop": {"big": "x" * 70000}}))
    asked = protocol.pack_request(KEY, protocol.ConfdRequest(10, "", "r"), NOW)
    answer = one.answer(asked, NOW, TICK)
    assert answer is not None and len(answer) < 1000
    reply = protocol.unpack_reply([KEY], answer)[1]
    assert reply.status == const.STATUS_ERROR and "datagram" in reply.answer
    assert one.counts == {responder.TOO_LARGE: 1}


def by_hand(text: str, *, indent: int | None = None) -> bytes:
    """Sign a message as a client in another language does; our own writer has no part in it."""
    salt = str(int(NOW))
    signature = hmac.new(KEY, (salt + text).encode(), hashlib.sha1).hexdigest()
    envelope = {"msg": text, "salt": salt, "hmac": signature}
    return b"plj0" + json.dumps(envelope, indent=indent).encode() + b"\n"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        # The order of the keys, and the line end, of the design of Ganeti 2.1.
        ('{"type": 1, "rsalt": "r", "protocol": 1, "query": "node1.example.com"}\n', 0),
        ('{"protocol":1,"query":"","rsalt":"r","type":3}', "node1.example.com"),
        ('{"protocol":1,"query":null,"rsalt":"r","type":3}', "node1.example.com"),
        ('{"protocol":1,"query":{"3":[0]},"rsalt":"r","type":3}', ["node1.example.com"]),
        (
            '{\n "protocol": 1,\n "type": 1,\n "query": "node1\\u002eexample.com", "rsalt": "r"\n}',
            0,
        ),
        ('{"type":3,"rsalt":"r","protocol":1,"query":"","client":"of ours"}', "node1.example.com"),
        # What confd-client of Ganeti 3.0 sends.
        ('{"protocol": 1, "type": 0, "rsalt": "r"}\n', 3010000),
        ('{"protocol": 1, "type": 3, "rsalt": "r"}\n', "node1.example.com"),
        (
            '{"protocol": 1, "type": 3, "query": {"3": ["0", "1", "2"]}, "rsalt": "r"}\n',
            ["node1.example.com", "192.0.2.250", "192.0.2.1"],
        ),
        ('{"protocol": 1, "type": 1, "query": "node1.example.com", "rsalt": "r"}\n', 0),
        ('{"protocol": 1, "type": 4, "rsalt": "r"}\n', ["192.0.2.1"]),
        ('{"protocol": 1, "type": 5, "rsalt": "r"}\n', ["192.0.2.1"]),
        ('{"protocol": 1, "type": 6, "rsalt": "r"}\n', []),
        ('{"protocol": 1, "type": 2, "query": {"2": null}, "rsalt": "r"}\n', []),
        # Other forms which the daemon of Ganeti 3.0 answers.
        ('{"protocol":1.0,"type":3.0,"query":{"3":[1.0]},"rsalt":"r"}', ["192.0.2.250"]),
        ('{"protocol":1,"type":2,"query":{},"rsalt":"r"}', []),
    ],
)
# The texts are those of the clients and of the daemon of Debian 12, which were tried.
@pytest.mark.parametrize("indent", [None, 1])
def test_requests_as_other_clients_write_them(
    one: responder.Responder, text: str, answer: object, indent: int | None
) -> None:
    found = one.answer(by_hand(text, indent=indent), NOW, TICK)
    assert found is not None
    salt, reply = protocol.unpack_reply([KEY], found)
    assert (salt, reply.status, reply.answer) == ("r", 0, answer)


def test_a_signature_in_capital_letters(one: responder.Responder) -> None:
    """The daemon of Ganeti 3.0 answers it. It is no way to send one request twice."""
    small = by_hand('{"type":0,"rsalt":"r","protocol":1}')
    envelope = json.loads(small[4:])
    large = b"plj0" + json.dumps({**envelope, "hmac": envelope["hmac"].upper()}).encode()
    assert one.answer(large, NOW, TICK) is not None
    assert one.answer(small, NOW, TICK) is None
    assert one.counts == {responder.ANSWERED: 1, responder.REPLAYED: 1}
