"""Addresses for guests: who gets which, and what is ignored."""

from __future__ import annotations

import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.metad import dhcp, guests
from ganeti.metad.guests import Guests

MAC = bytes.fromhex("525400000007")
IP = "169.254.3.7"


@pytest.fixture
def known():
    found = Guests()
    found.update(
        guests.parse(
            {
                "name": "web1",
                "nics": [
                    {"name": "ganeti:communication:web1", "ip": IP, "mac": "52:54:00:00:00:07"}
                ],
            }
        )
    )
    return found


def request(kind, *options, mac=MAC, client="0.0.0.0"):
    head = struct.pack(
        "!BBBBIHH4s4s4s4s16s64s128s",
        1,
        1,
        6,
        0,
        0xABCD,
        0,
        0x8000,
        socket.inet_aton(client),
        b"",
        b"",
        b"",
        mac,
        b"",
        b"",
    )
    body = b"".join(
        bytes([code, len(value)]) + value for code, value in ((53, bytes([kind])), *options)
    )
    return head + b"\x63\x82\x53\x63" + body + b"\xff"


def answer(known, data):
    parsed = dhcp.parse_request(data)
    assert parsed is not None
    return dhcp.reply(parsed, known)


def options_of(message):
    found, at = {}, 240
    while message[at] != 255:
        found[message[at]] = message[at + 2 : at + 2 + message[at + 1]]
        at += 2 + message[at + 1]
    return found


def test_an_offer_and_its_confirmation(known):
    offer = answer(known, request(dhcp.DISCOVER))
    assert offer is not None
    assert struct.unpack_from("!I", offer, 4) == (0xABCD,)
    assert socket.inet_ntoa(offer[16:20]) == IP and offer[28:34] == MAC
    found = options_of(offer)
    assert found[53] == bytes([dhcp.OFFER])
    assert found[1] == socket.inet_aton("255.255.0.0")
    assert 3 not in found and 6 not in found  # no router, no name server
    confirmed = answer(known, request(dhcp.REQUEST, (50, socket.inet_aton(IP)), (54, found[54])))
    assert confirmed is not None and options_of(confirmed)[53] == bytes([dhcp.ACK])


def test_a_renewal_has_the_address_in_its_head(known):
    confirmed = answer(known, request(dhcp.REQUEST, client=IP))
    assert confirmed is not None and options_of(confirmed)[53] == bytes([dhcp.ACK])


def test_another_address_is_refused(known):
    refused = answer(known, request(dhcp.REQUEST, (50, socket.inet_aton("10.0.0.1"))))
    assert refused is not None and options_of(refused)[53] == bytes([dhcp.NAK])
    assert refused[16:20] == bytes(4)


def test_strangers_and_other_servers_get_no_answer(known):
    assert answer(known, request(dhcp.DISCOVER, mac=bytes(6))) is None
    other = (54, socket.inet_aton("10.0.0.1"))
    assert answer(known, request(dhcp.REQUEST, (50, socket.inet_aton(IP)), other)) is None
    assert answer(known, request(7)) is None


@given(st.binary(max_size=400))
def test_noise_is_no_request(data):
    assert dhcp.parse_request(data) is None


@given(st.binary(max_size=80))
def test_noise_in_the_options_does_no_harm(data):
    whole = request(dhcp.DISCOVER)
    dhcp.parse_request(whole[:240] + data)


@pytest.mark.parametrize("length", [0, 10, 239, 240, 242])
def test_a_request_that_was_cut(length):
    assert dhcp.parse_request(request(dhcp.DISCOVER)[:length]) is None
