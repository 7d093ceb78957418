"""Framing of the master's socket."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ganeti import errors
from ganeti.luxi import protocol

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(deadline=None)
@given(st.lists(st.lists(_JSON, max_size=3), max_size=6), st.data())
def test_messages_survive_any_cut(argument_lists: list[list[object]], data: st.DataObject) -> None:
    stream = b"".join(protocol.encode_request("M", args) for args in argument_lists)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    splitter = protocol.Splitter()
    found = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += splitter.feed(stream[start:end])
    assert [protocol.parse_request(message or b"") for message in found] == [
        ("M", args, "") for args in argument_lists
    ]
    assert not splitter.partial


@settings(deadline=None)
@given(
    st.lists(st.binary(max_size=40).filter(lambda part: b"\x03" not in part), max_size=8),
    st.integers(1, 7),
)
def test_large_messages_are_dropped_and_the_rest_kept(parts: list[bytes], step: int) -> None:
    stream = b"".join(part + b"\x03" for part in parts)
    splitter = protocol.Splitter(limit_bytes=20)
    found = []
    for start in range(0, len(stream), step):
        found += splitter.feed(stream[start : start + step])
    assert found == [part if len(part) <= 20 else None for part in parts]


def test_a_dropped_message_is_not_kept_in_memory() -> None:
    splitter = protocol.Splitter(limit_bytes=1000)
    for _ in range(100):
        assert splitter.feed(b"x" * 1000) == []
    assert splitter._parts == []
    assert splitter.feed(b"\x03{}\x03") == [None, b"{}"]


@pytest.mark.parametrize(
    ("message", "refusal"),
    [
        (b"notjson", "JSON"),
        (b"", "JSON"),
        (b"\xff\xfe", "UTF-8"),
        (b"[]", "object"),
        (b"{}", "'method'"),
        (b'{"method":"M"}', "'args'"),
        (b'{"method":5,"args":[]}', "not a string"),
        (b'{"method":"M","args":{"a":1}}', "not a list"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_what_is_no_request_is_refused_in_words(message: bytes, refusal: str) -> None:
    with pytest.raises(errors.ParseError, match=refusal):
        protocol.parse_request(message)


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_garbage_raises_nothing_else(message: bytes) -> None:
    try:
        protocol.parse_request(message)
    except errors.ParseError:
        pass


@pytest.mark.parametrize("args", [b"null", b"{}", b"[]"])
def test_empty_arguments_in_all_spellings(args: bytes) -> None:
    assert protocol.parse_request(b'{"method":"M","args":%s}' % args) == ("M", [], "")


def test_the_original_sends_its_version_and_we_do_not_mind() -> None:
    recorded = b'{"method": "QueryClusterInfo", "args": [], "version": 3000000}'
    assert protocol.parse_request(recorded) == ("QueryClusterInfo", [], "")


def test_the_span_of_the_client_travels_with_its_request() -> None:
    span = f"00-{'a' * 32}-{'b' * 16}-01"
    request = protocol.encode_request("M", [1], span)[:-1]
    assert protocol.parse_request(request) == ("M", [1], span)
    # Without a trace, the bytes are the published ones.
    assert b"trace" not in protocol.encode_request("M", [1])


@pytest.mark.parametrize("value", [b"5", b"null", b'""', b'"00-1-2-3"', b'["x"]', b"{}"])
def test_a_span_that_cannot_be_read_does_not_matter(value: bytes) -> None:
    message = b'{"method":"M","args":[],"traceparent":%s}' % value
    assert protocol.parse_request(message) == ("M", [], "")


def test_answers_come_back_as_what_they_were() -> None:
    assert protocol.parse_answer(protocol.encode_answer([1, None, "ü\x03"])[:-1]) == [
        1,
        None,
        "ü\x03",
    ]
    with pytest.raises(errors.OpPrereqError) as caught:
        protocol.parse_answer(
            protocol.encode_error(errors.OpPrereqError("no", "unknown_entity"))[:-1]
        )
    assert caught.value.ecode == "unknown_entity"
    with pytest.raises(errors.JobQueueFull):
        protocol.parse_answer(protocol.encode_error(errors.JobQueueFull())[:-1])
    with pytest.raises(errors.RequestError, match="failed to parse request: why"):
        protocol.parse_answer(protocol.encode_refusal("why")[:-1])


def test_an_error_with_odd_arguments_still_arrives() -> None:
    with pytest.raises(errors.GenericError, match="object"):
        protocol.parse_answer(protocol.encode_error(errors.GenericError(object()))[:-1])


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"nonsense", errors.ProtocolError),
        (b"[]", errors.ProtocolError),
        (b'{"success":true}', errors.ProtocolError),
        (b'{"success":true,"result":1,"version":2}', errors.LuxiError),
        (b'{"success":false,"result":["NoSuchError",["x"]]}', errors.RequestError),
    ],
)
def test_strange_answers(answer: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        protocol.parse_answer(answer)


def test_an_answer_with_our_version_or_none_is_taken() -> None:
    for extra in ({}, {"version": protocol.VERSION}):
        answer = json.dumps({"success": True, "result": 5, **extra}).encode()
        assert protocol.parse_answer(answer) == 5


def test_a_request_of_too_many_values_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol.json, "MAX_ITEMS", 1000)
    with pytest.raises(errors.ParseError, match="more than 1000 values"):
        protocol.parse_request(b'{"method": "M", "args": [' + b"[]," * 1000 + b"1]}")
