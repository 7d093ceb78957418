"""Every parser of texts from outside understands a text or refuses it with an error of ours.

The texts are random ones, and good ones with random changes (:mod:`fakes.parsers`). The examples
are the same in each run; ``make check-long`` tries more of them. The last tests compare the tables
with the code, so that no parser can be without such a test.
"""

from __future__ import annotations

import ast
import contextlib
import json
import os
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ganeti
from fakes.parsers import ALL, BYTES, TEXTS, VALUES, Parser
from ganeti import errors
from ganeti.http import messages

TEST = Path(__file__).parents[1]
LIB = Path(ganeti.__file__).parent
LONG = bool(os.environ.get("GANETI_LONG"))


def try_out(parser: Parser, value: Any) -> None:
    """Parse; errors of ours are the right answer to what is wrong."""
    with contextlib.suppress(errors.GenericError, messages.Refused, *parser.refusals):
        parser.parse(value)


#: What is put into good texts: zero bytes, numbers too large or not ASCII, half surrogates.
ODD = (
    b"\0",
    b"\n",
    b"-1",
    b"99999999999999999999",
    b"9" * 5000,
    b"1e999",
    b"nan",
    b"\\ud800",
    b"\xed\xa0\x80",
    "\u00b2".encode(),
    "\u0663".encode(),
    b"null",
    b"[]",
    b"{}",
)


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
                chance.choice(ODD),
            )
        )
    return bytes(data)


#: What is put in the place of values in documents.
JUNK = (None, True, -1, 1.5, 1 << 64, 10**400, float("nan"), "", "\0", "\ud800", [], [1], {}, [[]])


def exchanged(good: Any, chance: random.Random) -> Any:
    """Return a copy of a document with another value, or none, at one place."""
    copy = json.loads(json.dumps(good))
    places = list(_places(copy))
    if not places:
        return chance.choice(JUNK)
    container, key = chance.choice(places)
    if chance.random() < 0.2:
        del container[key]
    else:
        container[key] = chance.choice(JUNK)
    return copy


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container in a document, with each key of it."""
    if not isinstance(value, (dict, list)):
        return
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield value, key
        yield from _places(value[key])


def _document(good: str | bytes) -> Any:
    """Return the value of a JSON text; None if it is another text, or no container."""
    with contextlib.suppress(ValueError):
        found = json.loads(good)
        if isinstance(found, (dict, list)):
            return found
    return None


OUR_SETTINGS = settings(
    max_examples=500 if LONG else 25,
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
            if (document := _document(good)) is not None:
                try_out(parser, json.dumps(exchanged(document, random.Random(seed))))

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
            if (document := _document(good)) is not None:
                text = json.dumps(exchanged(document, random.Random(seed)))
                try_out(parser, text.encode())

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
            try_out(parser, exchanged(good, random.Random(seed)))
            if isinstance(good, dict):
                key = random.Random(seed).choice(sorted(good))
                try_out(parser, {**good, key: value})

    check()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("qemu version", f"QEMU emulator version 7.{'9' * 5000}.1"),
        ("filter", f"serial_no == {'9' * 5000}"),
        ("option value: filter action", "RATE_LIMIT \u00b2"),
        ("exit code", b"9" * 5000),
        (
            "history",
            b'{"format": 1, "version": 1}\n{"serial": 2, "time": 1, "was": [1, 1], "job": 1,'
            b' "op": "", "source": "", "reason": "", "changes": [["n", "u", "n", null, null,'
            b' ["x"]]]}\n',
        ),
        ("device changes", [["\u00b2", {}]]),
        ("hooks", [["a"]]),
    ],
)
def test_texts_which_ended_in_a_traceback_once(name: str, value: Any) -> None:
    with pytest.raises((errors.GenericError, messages.Refused)):
        ALL[name].parse(value)


# -- none is left out ------------------------------------------------------------------------------

_NAME = re.compile(r"_?(parse|decode|loads|unpack)(_\w+)?|_?parsed|from_(wire|description)")

#: Parsers which no table has: the reason, or the file of their own test with random input.
ELSEWHERE = {
    "cli/parser.py:parse": "argparse reads the words of the user's own command line",
    "burnin/options.py:parse": "likewise",
    "client/htools/options.py:parse": "likewise",
    "helpers/import_export.py:parse_options": "likewise",
    "helpers/kvm_incoming.py:parse_options": "likewise",
    "helpers/xen_transfer.py:parse_options": "likewise",
    "tools/move_instance.py:parse_options": "likewise",
    "confd/protocol.py:_parse": "unit/confd/test_random_datagrams.py",
    "confd/protocol.py:parse_request": "unit/confd/test_random_datagrams.py",
    "confd/protocol.py:unpack": "unit/confd/test_random_datagrams.py",
    "confd/protocol.py:unpack_reply": "unit/confd/test_random_datagrams.py",
    "objects/address_pool.py:_parsed": "unit/objects/test_address_pool.py",
    "cli/value_types.py:parse_keyval_file": "its lines are parse_keyval_lines",
    "objects/codec.py:_Value.decode": "it makes code, from annotations",
    "wire/calls/base.py:Encoding.decode": "abstract",
}


def parsers_of_the_code() -> set[str]:
    """Each function whose name says that it reads something: ``path:qualified name``."""

    def walk(node: ast.AST, path: str, prefix: str) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
                if isinstance(child, ast.FunctionDef) and _NAME.fullmatch(child.name):
                    yield f"{path}:{prefix}{child.name}"
                inner = "<locals>." if isinstance(child, ast.FunctionDef) else ""
                yield from walk(child, path, f"{prefix}{child.name}.{inner}")
            else:
                yield from walk(child, path, prefix)

    texts = {path: path.read_text() for path in LIB.rglob("*.py")}
    return {
        name
        for path, text in texts.items()
        if any(_NAME.fullmatch(name) for name in re.findall(r"\bdef (\w+)", text))
        for name in walk(ast.parse(text), str(path.relative_to(LIB)), "")
    }


def reached() -> set[str]:
    """The functions which run when every parser of the tables gets its good texts."""
    found: set[str] = set()

    def profile(frame: Any, event: str, _arg: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(LIB)):
            path = Path(frame.f_code.co_filename).relative_to(LIB)
            found.add(f"{path}:{frame.f_code.co_qualname}")

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        for parser in ALL.values():
            for good in parser.good:
                try_out(parser, good)
    finally:
        sys.setprofile(before)
    return found


def test_every_parser_of_the_code_is_tried_with_random_texts() -> None:
    """A new one needs an entry in :mod:`fakes.parsers`, or a test of its own and a line here."""
    known = parsers_of_the_code()
    assert len(known) > 100
    assert sorted(known - reached() - set(ELSEWHERE)) == []
    assert sorted(set(ELSEWHERE) - known) == [], "they are not in the code any more"
    for name, where in ELSEWHERE.items():
        if where.endswith(".py"):
            text = (TEST / where).read_text()
            module = name.partition(":")[0].removesuffix(".py").rpartition("/")[2]
            assert "hypothesis" in text and module in text, (name, where)


def test_each_name_stands_for_one_parser() -> None:
    assert len(ALL) == len(TEXTS) + len(BYTES) + len(VALUES)


@pytest.mark.parametrize("name", ALL)
def test_good_texts_are_understood(name: str) -> None:
    """Otherwise the random changes would begin with something that is refused anyway."""
    for good in ALL[name].good:
        ALL[name].parse(good)
