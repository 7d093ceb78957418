"""No datagram ends the daemon: signed or not, it is answered or counted, and causes no error."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ganeti.confd import protocol, responder
from ganeti.confd.client import Conversation
from ganeti.confd.queries import ConfigFacts
from ganeti.constants import confd as const
from ganeti.server import confd as server

sys.path.insert(0, str(Path(__file__).parents[1] / "config"))
from samples import small_cluster  # noqa: E402

KEY, NOW, TICK = b"k1", 1_000_000.0, 5_000.0
FACTS = ConfigFacts(small_cluster(2))

# Text as JSON can express it: with half surrogate pairs, NUL and characters of all planes.
TEXT = st.text(st.characters(codec=None), max_size=20) | st.sampled_from(
    [
        "\ud800",
        "\udfff",
        "",
        "\0",
        str(int(NOW)),
        "9" * 5000,
        "/nodes/0",
        "/cluster/tags/" + "1" * 5000,
    ]
)
NUMBER = st.integers() | st.sampled_from([1, -1, 10**4000, 2**64, *range(12)])
VALUE = st.recursive(
    st.none() | st.booleans() | NUMBER | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=10,
)
QUERY = VALUE | st.dictionaries(
    st.sampled_from([const.KEY_IP, const.KEY_IPLIST, const.KEY_LINK, const.KEY_FIELDS]),
    VALUE | st.lists(VALUE, max_size=3),
)
MESSAGE = VALUE | st.fixed_dictionaries(
    {"protocol": st.just(const.PROTOCOL_VERSION) | VALUE, "type": st.integers(-1, 12) | VALUE},
    optional={"rsalt": TEXT | VALUE, "query": QUERY},
)
ENVELOPE = VALUE | st.fixed_dictionaries(
    {}, optional={"salt": TEXT | VALUE, "msg": TEXT | VALUE, "hmac": TEXT | VALUE}
)
UNSIGNED = (
    st.binary(max_size=200)
    | st.binary(max_size=200).map(const.MAGIC.__add__)
    | ENVELOPE.map(lambda value: const.MAGIC + json.dumps(value).encode())
)
# A client of ours which has a defect, or a holder of the key with bad intentions.
SIGNED = st.builds(
    lambda salt, message: protocol.pack(KEY, salt, message),
    st.just(str(int(NOW))),
    MESSAGE,
)


def fresh() -> responder.Responder:
    made = responder.Responder()
    made.use_key(KEY, TICK, keep_old_s=60)
    made.facts = FACTS
    return made


@settings(max_examples=300, deadline=None)
@given(UNSIGNED)
def test_any_unsigned_datagram_is_only_counted(datagram: bytes) -> None:
    one = fresh()
    assert one.answer(datagram, NOW, TICK) is None
    assert sum(one.counts.values()) == 1 and not one.counts[responder.FAILED]


@settings(max_examples=300, deadline=None)
@given(SIGNED)
def test_any_signed_datagram_is_answered_or_counted(datagram: bytes) -> None:
    one = fresh()
    answer = one.answer(datagram, NOW, TICK)
    assert sum(one.counts.values()) == 1 and not one.counts[responder.FAILED]
    if answer is not None:
        protocol.unpack_reply([KEY], answer)


@pytest.mark.parametrize(
    "datagram",
    [
        rb'plj0{"salt":"\ud800","msg":"","hmac":""}',
        rb'plj0{"salt":"1","msg":"\udfff","hmac":""}',
        protocol.pack(KEY, str(int(NOW)), {"protocol": 1, "type": 0, "rsalt": "\ud800"}),
        b'plj0{"salt":' + b"[" * 900,
        b'plj0{"salt":' + b"9" * 5000 + b"}",
    ],
)
def test_datagrams_which_ended_the_daemon_once(datagram: bytes) -> None:
    one = fresh()
    assert one.answer(datagram, NOW, TICK) is None
    assert one.counts == {responder.MALFORMED: 1}


def test_an_index_of_thousands_of_digits_is_a_wrong_argument() -> None:
    one = fresh()
    request = protocol.ConfdRequest(const.REQ_CONFIG, "/cluster/tags/" + "1" * 5000, "r")
    answer = one.answer(protocol.pack_request(KEY, request, NOW), NOW, TICK)
    assert answer is not None
    reply = protocol.unpack_reply([KEY], answer)[1]
    assert (reply.status, reply.answer) == (const.STATUS_ERROR, const.ERROR_ARGUMENT)


class Broken(ConfigFacts):
    """A configuration about which every question fails."""

    def reply(self, request: protocol.ConfdRequest) -> protocol.ConfdReply:
        raise KeyError("a defect of the program")


def test_an_unforeseen_error_is_counted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    one = fresh()
    one.facts = Broken(small_cluster(1))
    for number in range(3):
        request = protocol.ConfdRequest(const.REQ_PING, None, str(number))
        assert one.answer(protocol.pack_request(KEY, request, NOW), NOW, TICK) is None
    assert one.counts == {responder.FAILED: 3}
    assert len([record for record in caplog.records if record.exc_info]) == 1
    one.facts = FACTS
    request = protocol.ConfdRequest(const.REQ_PING, None, "x")
    assert one.answer(protocol.pack_request(KEY, request, NOW), NOW, TICK) is not None


def test_the_socket_is_served_after_a_bad_datagram(monkeypatch: pytest.MonkeyPatch) -> None:
    """One burst with the datagram of a foreign program and a good one: the good one is answered."""
    one = fresh()
    monkeypatch.setattr("ganeti.utils.clock.now", lambda: NOW)
    monkeypatch.setattr("ganeti.utils.clock.monotonic", lambda: TICK)
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sock,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client,
    ):
        sock.bind(("127.0.0.1", 0))
        client.settimeout(60)
        client.sendto(rb'plj0{"salt":"\ud800","msg":"","hmac":""}', sock.getsockname())
        request = protocol.ConfdRequest(const.REQ_PING, None, "good")
        client.sendto(protocol.pack_request(KEY, request, NOW), sock.getsockname())
        server._serve(sock, one)
        assert protocol.unpack_reply([KEY], client.recv(65536))[0] == "good"


def test_a_client_ignores_such_datagrams() -> None:
    """A client waits on an open port, too, so that everybody can send to it."""
    talk = Conversation(KEY, const.REQ_PING, None, new_salt=lambda: "s")
    talk.datagram("127.0.0.1", NOW)
    assert not talk.take(rb'plj0{"salt":"\ud800","msg":"","hmac":""}')
    assert talk.ignored == 1
