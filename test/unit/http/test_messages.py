"""Heads of HTTP messages: what is understood, what is refused and how."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.http import messages
from ganeti.http.messages import Refused, parse_head


def head(*lines: str) -> bytes:
    return "\r\n".join(lines).encode("latin-1")


def test_a_head() -> None:
    found = parse_head(
        head(
            "PUT /2/a%20b?x=1&y HTTP/1.1",
            "Host: h",
            "X-One:  a ",
            "x-one: b",
            "Content-Length: 12",
            "Expect: 100-continue",
        )
    )
    assert (found.method, found.path, found.query) == ("PUT", "/2/a%20b", "x=1&y")
    assert found.headers["x-one"] == "a, b" and found.length == 12
    assert found.keep_alive and found.expects_continue


@pytest.mark.parametrize(
    ("lines", "keep"),
    [
        (["GET / HTTP/1.1", "Host: h", "Connection: Close"], False),
        (["GET / HTTP/1.1", "Host: h", "Connection: x, keep-alive"], True),
        (["GET / HTTP/1.0"], False),
        (["GET / HTTP/1.0", "Connection: keep-alive"], True),
    ],
)
def test_whether_the_connection_stays(lines: list[str], keep: bool) -> None:
    assert parse_head(head(*lines)).keep_alive is keep


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        ("/2?a?b", "/2", "a?b"),
        ("/2#x?y", "/2", ""),
        ("https://host:5080/2/info?a=1", "/2/info", "a=1"),
        ("http://host", "/", ""),
    ],
)
def test_targets(target: str, path: str, query: str) -> None:
    found = parse_head(head(f"GET {target} HTTP/1.1", "Host: h"))
    assert (found.path, found.query) == (path, query)


@pytest.mark.parametrize(
    ("lines", "status", "fragment"),
    [
        (["nonsense"], 400, "first line"),
        (["GET / HTTP/1.1 x", "Host: h"], 400, "first line"),
        (["GET  / HTTP/1.1", "Host: h"], 400, "first line"),
        (["GET / HTTP/2.0", "Host: h"], 505, "2.0"),
        (["GET / HTTP/1.1"], 400, "no Host"),
        (["GET * HTTP/1.1", "Host: h"], 400, "not a path"),
        (["GET x://y HTTP/1.1", "Host: h"], 400, "not a path"),
        (["GET / HTTP/1.1", "Host : h"], 400, "not a header"),
        (["GET / HTTP/1.1", "Host: h", " folded"], 400, "not a header"),
        (["GET / HTTP/1.1", "Host: h\nX: y"], 400, "not a header"),
        (["GET / HTTP/1.1", "Host: h\rX: y"], 400, "not a header"),
        (["GET / HTTP/1.1", "Host: h\r"], 400, "not a header"),
        (["GET / HTTP/1.1", "Host: h", "X: a\0b"], 400, "not a header"),
        (["GET / HTTP/1.1", "Host: h", "X: a\x1b[2Jb"], 400, "not a header"),
        (["GET / HTTP/1.1\r", "Host: h"], 400, "first line"),
        (["GET /\r HTTP/1.1", "Host: h"], 400, "first line"),
        (["GET /\x1b HTTP/1.1", "Host: h"], 400, "first line"),
        (["GET / HTTP/1.1", "Host: h", "Host: i"], 400, "host occurs twice"),
        (["GET / HTTP/1.1", "Host: h", "Content-Length: 1", "Content-Length: 2"], 400, "twice"),
        (["GET / HTTP/1.1", "Host: h", "Content-Length: -1"], 400, "not a number"),
        (["GET / HTTP/1.1", "Host: h", "Content-Length: 1_0"], 400, "not a number"),
        (["GET / HTTP/1.1", "Host: h", "Content-Length: " + "9" * 5000], 413, "10485760"),
        (["GET / HTTP/1.1", "Host: h", "Content-Length: 10485761"], 413, "10485760"),
        (
            ["GET / HTTP/1.1", "Host: h", "Content-Length: 1", "Transfer-Encoding: chunked"],
            400,
            "both",
        ),
        (["GET / HTTP/1.1", "Host: h", "Transfer-Encoding: gzip, chunked"], 501, "gzip"),
        (["GET / HTTP/1.1", "Host: h", *(f"X{number}: y" for number in range(100))], 431, "100"),
    ],
)
def test_refusals(lines: list[str], status: int, fragment: str) -> None:
    with pytest.raises(Refused, match=fragment) as caught:
        parse_head(head(*lines))
    assert caught.value.status == status


@given(st.binary(max_size=300))
def test_any_bytes_are_understood_or_refused(data: bytes) -> None:
    try:
        parse_head(data)
    except Refused as err:
        assert 400 <= err.status < 600


@given(st.text(alphabet=st.characters(max_codepoint=255), max_size=60))
def test_any_query_is_understood_or_refused(text: str) -> None:
    try:
        found = messages.parse_query(text)
    except Refused as err:
        assert err.status == 400
    else:
        assert all(values for values in found.values())


def test_query_arguments() -> None:
    assert messages.parse_query("tag=a&tag=b+c&x&y=%C3%A4&&z==") == {
        "tag": ["a", "b c"],
        "x": [""],
        "y": ["\xe4"],
        "z": ["="],
    }
    with pytest.raises(Refused):
        messages.parse_query("x=%ff")


def test_paths() -> None:
    assert messages.decode_path("/a%2Eb/%C3%A4") == "/a.b/\xe4"
    with pytest.raises(Refused):
        messages.decode_path("/%ff")


@pytest.mark.parametrize("path", ["/2%2finfo", "/2%2Finfo", "/2/instances%2Fweb/info"])
def test_an_encoded_slash_separates_no_names(path: str) -> None:
    """A proxy in front which allows some paths only takes it for a part of a name."""
    with pytest.raises(Refused) as caught:
        messages.decode_path(path)
    assert caught.value.status == 404


@pytest.mark.parametrize(("line", "size"), [(b"a", 10), (b"0010;x=y", 16), (b"1 ;\tx", 1)])
def test_chunks(line: bytes, size: int) -> None:
    assert messages.chunk_size(line) == size


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"-1",
        b"x",
        b"1" * 17,
        b"+1",
        b"1;\n",
        b"1;a\nb",
        b"1;x=\r",
        b"1\r",
        b'1;a="\n"',
        b"1;\0",
    ],
)
def test_chunks_without_a_size(line: bytes) -> None:
    with pytest.raises(Refused):
        messages.chunk_size(line)


def test_answers() -> None:
    text = messages.render_head(200, [("X", "y")], length=5, close=False, now=0.0).decode()
    assert text == (
        "HTTP/1.1 200 OK\r\nX: y\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\n"
        "Content-Length: 5\r\nConnection: keep-alive\r\n\r\n"
    )
    assert b"Content-Length" not in messages.render_head(304, [], length=0, close=True, now=0.0)
    assert b"chunked" in messages.render_head(
        200, [], length=None, close=True, now=0.0, chunked=True
    )
