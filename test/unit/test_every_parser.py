"""Every parser of texts from outside either understands a text or refuses it with an error of ours.

The texts are random ones, and good ones with random changes. The examples are the same in each run;
``make check-long`` tries more of them.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ganeti import errors
from ganeti.bootstrap import join_protocol
from ganeti.cmdlib.ops.transfer import export_description
from ganeti.http import messages
from ganeti.hypervisor.kvm import parse as kvm
from ganeti.jobstore.inventory import Inventory
from ganeti.jqueue import job as jobs
from ganeti.luxi import protocol as luxi
from ganeti.metad import dhcp, guests
from ganeti.platform import master_epoch
from ganeti.query import filter as query_filter
from ganeti.rapi import passwords, users
from ganeti.storage.drbd import parse as drbd
from ganeti.storage.lvm import parse as lvm
from ganeti.utils import linear_re, text
from ganeti.wire import json as wire_json
from ganeti.wire.calls import base

DATA = Path(__file__).parents[1] / "data"
LONG = bool(os.environ.get("GANETI_LONG"))


class Parser(NamedTuple):
    """A parser of a text, of bytes, or of a JSON value, and texts which it understands."""

    parse: Callable[[Any], Any]
    good: tuple[Any, ...]


def _understand_password(value: str) -> None:
    passwords.matches(passwords.parse(value), "user\udc80", "word\ud800")


def _received(value: str) -> str:
    """Return a text as it stands in the head of a request: a character for each byte."""
    return value.encode("utf-8", "surrogatepass").decode("latin-1")


TEXTS: dict[str, Parser] = {
    "epoch": Parser(master_epoch.parse, ("4 0b1541c6-5529-436d-a9c4-89fe65e248c5",)),
    "export": Parser(
        lambda value: export_description.parse(value, lambda _line: None),
        ("[export]\nversion = 0\n[instance]\nname = a\ndisk_count = 1\ndisk0_size = 5\n",),
    ),
    "filter": Parser(query_filter.parse, ('(name == "a" and not x) or m/y/i in tags',)),
    "join token": Parser(join_protocol.decode_token, ("gj1-abcdefgh",)),
    "password": Parser(
        _understand_password,
        ("word", "{HA1}" + "0" * 32, "{SCRYPT}16384,8,1$c2FsdA==$aGFzaA==", "{cleartext}x"),
    ),
    "path": Parser(lambda value: messages.decode_path(_received(value)), ("/2/instances/web%20a",)),
    "pattern": Parser(
        lambda value: linear_re.Pattern(value).search("aab" * 10), ("^(a|b)+[c-e]{2,3}$",)
    ),
    "query": Parser(lambda value: messages.parse_query(_received(value)), ("a=1&b=%20&a=2",)),
    "size": Parser(text.parse_unit, ("1.5g", "512", "3 TiB")),
    "users": Parser(users.parse, ("eve word write\n# x\nbob {HA1}" + "0" * 32 + " read,write\n",)),
    "drbd proc": Parser(
        drbd.parse_proc,
        (
            "version: 8.4.11 (api:1/proto:86-101)\n 0: cs:Connected ro:Primary/Secondary"
            " ds:UpToDate/UpToDate C r-----\n    ns:0 nr:0\n",
        ),
    ),
    "drbd version": Parser(drbd.parse_version, ("version: 8.4.11 (api:1/proto:86-101)\n",)),
    "drbd show": Parser(
        drbd.parse_show,
        (
            'resource r0 {\n net {\n  cram-hmac-alg "md5";\n }\n'
            " _this_host {\n device minor 0;\n }\n}\n",
        ),
    ),
    "lvs": Parser(lvm.parse_lvs, ("  xenvg|a|-wi-ao----|4.00|a(0)|\n",)),
    "pvs": Parser(lvm.parse_pvs, ("  /dev/sda|xenvg|10.0|5.0|a--|\n",)),
    "vgs": Parser(lvm.parse_vgs, ("  xenvg|10.0|5.0|1|\n",)),
    "qemu version": Parser(kvm.parse_version, ("QEMU emulator version 7.2.1 (Debian)",)),
    "qemu machines": Parser(kvm.parse_default_machine, ("pc  Standard PC (default)\n",)),
}
BYTES: dict[str, Parser] = {
    "HTTP head": Parser(
        messages.parse_head, (b"GET /2/info?x=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 5",)
    ),
    "introduction": Parser(messages.parse_introduction, (b"GUEST 169.254.0.7\r\n",)),
    "LUXI request": Parser(luxi.parse_request, (b'{"method": "Query", "args": [1, "x"]}',)),
    "LUXI answer": Parser(luxi.parse_answer, (b'{"success": true, "result": [1]}',)),
    "JSON": Parser(wire_json.loads, (b'{"a": [1, 2.5, "\\u00e4", null, true]}',)),
    "DHCP": Parser(dhcp.parse_request, (b"\1\1\6\0" + bytes(232) + b"c\x82Sc5\x01\x01\xff",)),
    "command line": Parser(kvm.parse_command_line, (b"qemu\0-name\0web\0-pidfile\0/x\0",)),
    "job": Parser(
        lambda value: jobs.decode(value.decode("utf-8", "surrogateescape")),
        (b'{"id": 1, "ops": [{"input": {"OP_ID": "OP_TEST_DELAY", "duration": 1}}]}',),
    ),
}
VALUES: dict[str, Parser] = {
    "guest": Parser(
        guests.parse,
        ({"name": "web", "os": "d", "nics": [{"name": "x", "ip": "169.254.0.7"}]},),
    ),
    "inventory": Parser(
        Inventory.from_wire,
        (
            {
                "live": {"1": "a-b"},
                "plain": {"serial": "1", "version": "1"},
                "drained": False,
                "archive": {"0": "x"},
                "archived": {"0": {"1": 5}},
            },
        ),
    ),
    "compressed text": Parser(base.decompress, ([0, "x"], base.compress("y" * 100_000))),
}


def try_out(parser: Parser, value: Any) -> None:
    """Parse; errors of ours are the right answer to what is wrong."""
    with contextlib.suppress(errors.GenericError, messages.Refused):
        parser.parse(value)


def changed(good: bytes, chance: random.Random) -> bytes:
    """Return a text with some changes: parts doubled, removed, replaced."""
    data = bytearray(good)
    for _ in range(chance.randint(1, 4)):
        place = chance.randrange(len(data) + 1)
        length = chance.randint(0, 8)
        data[place : place + length] = chance.choice(
            (
                b"",
                data[place : place + length] * chance.randint(2, 50),
                bytes(chance.randrange(256) for _ in range(length)),
                chance.choice((b"\0", b"\n", b"-1", b"99999999999999999999", b"1e999", b"\\ud800")),
            )
        )
    return bytes(data)


OUR_SETTINGS = settings(
    max_examples=500 if LONG else 60,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
ANY_TEXT = st.text(st.characters(codec=None), max_size=200)
ANY_VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)


@pytest.mark.larger
@pytest.mark.parametrize("name", TEXTS)
def test_texts(name: str) -> None:
    parser = TEXTS[name]

    @OUR_SETTINGS
    @given(ANY_TEXT, st.integers(0, 1 << 32))
    def check(value: str, seed: int) -> None:
        try_out(parser, value)
        for good in parser.good:
            data = changed(good.encode(), random.Random(seed))
            try_out(parser, data.decode("utf-8", "surrogateescape"))

    check()


@pytest.mark.larger
@pytest.mark.parametrize("name", BYTES)
def test_bytes(name: str) -> None:
    parser = BYTES[name]

    @OUR_SETTINGS
    @given(st.binary(max_size=400), st.integers(0, 1 << 32))
    def check(value: bytes, seed: int) -> None:
        try_out(parser, value)
        for good in parser.good:
            try_out(parser, changed(good, random.Random(seed)))

    check()


@pytest.mark.larger
@pytest.mark.parametrize("name", VALUES)
def test_values(name: str) -> None:
    parser = VALUES[name]

    @OUR_SETTINGS
    @given(ANY_VALUE, st.integers(0, 1 << 32))
    def check(value: Any, seed: int) -> None:
        try_out(parser, value)
        for good in parser.good:
            with contextlib.suppress(ValueError):
                try_out(parser, json.loads(changed(json.dumps(good).encode(), random.Random(seed))))
            if isinstance(good, dict):
                key = random.Random(seed).choice(sorted(good))
                try_out(parser, {**good, key: value})

    check()
