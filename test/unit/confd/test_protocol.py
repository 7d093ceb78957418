"""Datagrams: what is signed, and what is refused."""

from __future__ import annotations

import hashlib
import hmac
import json

import pytest

from ganeti import errors
from ganeti.confd import protocol

KEY = b"secret\n"


def test_a_request_has_the_published_form() -> None:
    datagram = protocol.pack_request(KEY, protocol.ConfdRequest(1, "node1", "abc"), 1000.9)
    assert datagram[:4] == b"plj0"
    envelope = json.loads(datagram[4:])
    assert envelope["salt"] == "1000"
    assert json.loads(envelope["msg"]) == {
        "protocol": 1,
        "type": 1,
        "rsalt": "abc",
        "query": "node1",
    }
    text = (envelope["salt"] + envelope["msg"]).encode()
    assert envelope["hmac"] == hmac.new(KEY, text, hashlib.sha1).hexdigest()


def test_a_query_may_be_absent() -> None:
    datagram = protocol.pack_request(KEY, protocol.ConfdRequest(0, None, "abc"), 1000)
    request = protocol.parse_request(protocol.unpack([KEY], datagram).message)
    assert request == protocol.ConfdRequest(0, None, "abc")


def test_an_answer_carries_the_salt_of_its_request() -> None:
    request = protocol.ConfdRequest(0, None, "abc")
    datagram = protocol.pack_reply(KEY, request, protocol.ConfdReply(0, ["x"], 7))
    assert protocol.unpack_reply([KEY], datagram) == ("abc", protocol.ConfdReply(0, ["x"], 7))


@pytest.mark.parametrize(
    ("datagram", "kind"),
    [
        (b"", errors.ConfdMagicError),
        (b"plj1{}", errors.ConfdMagicError),
        (b"plj0", errors.ConfdClientError),
        (b"plj0\xff\xfe", errors.ConfdClientError),
        (b"plj0[]", errors.ConfdClientError),
        (b'plj0{"salt": 1, "msg": "{}", "hmac": "x"}', errors.ConfdClientError),
        ('plj0{"salt": "1", "msg": "{}", "hmac": "\xe4"}'.encode(), protocol.BadSignature),
        (b'plj0{"salt": "1", "msg": "{}", "hmac": ""}', protocol.BadSignature),
    ],
)
def test_what_is_no_datagram_is_refused(datagram: bytes, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        protocol.unpack([KEY], datagram)


def test_another_key_or_a_changed_byte_is_refused() -> None:
    datagram = protocol.pack_request(KEY, protocol.ConfdRequest(0, None, "abc"), 1000)
    with pytest.raises(protocol.BadSignature):
        protocol.unpack([b"other"], datagram)
    with pytest.raises(protocol.BadSignature):
        protocol.unpack([KEY], datagram.replace(b'"1000"', b'"1001"'))
    assert protocol.unpack([b"other", KEY], datagram).key == KEY


@pytest.mark.parametrize(
    "message",
    [
        [],
        {"protocol": 2, "type": 0, "rsalt": "x"},
        {"protocol": 1, "type": "0", "rsalt": "x"},
        {"protocol": 1, "type": True, "rsalt": "x"},
        {"protocol": 1, "type": 0.5, "rsalt": "x"},
        {"protocol": 1, "type": 0},
    ],
)
def test_requests_that_cannot_be_answered(message: object) -> None:
    with pytest.raises(errors.ConfdClientError):
        protocol.parse_request(message)


@pytest.mark.parametrize(
    "message",
    [
        [],
        {"protocol": 1, "status": 0, "serial": 1},
        {"protocol": 1, "status": 0, "answer": 1},
        {"protocol": 9, "status": 0, "answer": 1, "serial": 1},
    ],
)
def test_answers_that_are_none(message: object) -> None:
    with pytest.raises(errors.ConfdClientError):
        protocol.unpack_reply([KEY], protocol.pack(KEY, "abc", message))
