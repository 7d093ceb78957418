"""HTTP/1.1 messages: read the head of a request, write the head of an answer.

These are pure functions over bytes, without sockets; :mod:`ganeti.http.event_server` uses them. The
reader is strict where two programs could otherwise interpret a message differently: see
:mod:`ganeti.http.head`; and a body has one length.

Source: RFC 9110 *HTTP Semantics*, RFC 9112 *HTTP/1.1*.
"""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import unquote_to_bytes, urlsplit

from ganeti import errors
from ganeti.http import head

MAX_HEAD_BYTES = 1 << 16
MAX_BODY_BYTES = 10 << 20

JSON = "application/json"

# All but the tab, which may stand between the parts of a line.
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


class Refused(errors.GenericError):
    """A request which is answered with an error.

    :ivar status: HTTP status of the answer.
    :ivar headers: headers of the answer.
    :ivar members: further members of the object which is the body of the answer.
    """

    def __init__(
        self,
        status: int,
        message: str = "",
        *,
        headers: Sequence[tuple[str, str]] = (),
        members: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(message or HTTPStatus(status).phrase)
        self.status = status
        self.headers = tuple(headers)
        self.members = dict(members or {})


class Head(NamedTuple):
    """The head of a request.

    :ivar line: the first line, for the log.
    :ivar path: the path with percent signs; :func:`decode_path` decodes it.
    :ivar headers: by name in lower case; values of repeated headers are joined with commas.
    :ivar length: length of the body in bytes; -1 if it is sent in chunks.
    :ivar old: the version is HTTP/1.0, which has no chunks.
    """

    line: str
    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    length: int
    keep_alive: bool
    expects_continue: bool
    old: bool = False


class Response:
    """An answer.

    :ivar body: the whole body, or an iterator over its parts.
    """

    __slots__ = ("body", "headers", "status")

    def __init__(
        self,
        status: int,
        body: bytes | AsyncIterator[bytes] = b"",
        headers: Sequence[tuple[str, str]] = (),
    ) -> None:
        self.status = status
        self.body = body
        self.headers = list(headers)


def parse_head(data: bytes) -> Head:
    """Read the head of a request, without the empty line at its end.

    :raises Refused: 400 if it is not a head; 413, 431, 501 or 505 if the request is not supported.
    """
    try:
        line, method, target, minor, headers = head.parse_raw_head(data)
    except head.HeadError as err:
        raise Refused(err.status, str(err)) from err
    if minor and "host" not in headers:
        raise Refused(400, "the request has no Host header")
    path, query = _target(target)
    options = {word.strip().lower() for word in headers.get("connection", "").split(",")}
    keep_alive = "close" not in options if minor else "keep-alive" in options
    return Head(
        line,
        method,
        path,
        query,
        headers,
        _length(headers),
        keep_alive,
        bool(minor) and headers.get("expect", "").lower() == "100-continue",
        not minor,
    )


def _target(target: str) -> tuple[str, str]:
    if not target.startswith("/"):
        try:
            parts = urlsplit(target)
        except ValueError:
            parts = urlsplit("")
        if parts.scheme not in ("http", "https"):
            raise Refused(400, f"not a path: {target[:80]!r}")
        return parts.path or "/", parts.query
    path, _, query = target.partition("#")[0].partition("?")
    return path, query


def _length(headers: Mapping[str, str]) -> int:
    coding = headers.get("transfer-encoding")
    length = headers.get("content-length")
    if coding is not None:
        if length is not None:
            raise Refused(400, "the request has both Content-Length and Transfer-Encoding")
        if coding.lower() != "chunked":
            raise Refused(501, f"transfer encoding {coding[:40]!r} is not supported")
        return -1
    if length is None:
        return 0
    if not (length.isascii() and length.isdigit()):
        raise Refused(400, f"Content-Length is not a number: {length[:40]!r}")
    # A number with more digits is too large in any case.
    if len(length) > 18 or int(length) > MAX_BODY_BYTES:
        raise Refused(413, f"a request body may have {MAX_BODY_BYTES} bytes")
    return int(length)


def parse_introduction(line: bytes) -> str:
    """Return the address of the client from the line with which a proxy begins a connection.

    Source: *The PROXY protocol*, version 1, by the authors of HAProxy.

    :raises Refused: the line is not of that protocol.
    """
    words = line.decode("latin-1").rstrip("\r\n").split(" ")
    if len(words) != 6 or words[0] != "PROXY" or words[1] not in ("TCP4", "TCP6"):
        raise Refused(400, f"the connection must begin with a PROXY line, not {line[:120]!r}")
    return words[2]


def introduction(client: str, server: str, port: int) -> bytes:
    """Return the line which :func:`parse_introduction` reads, with 0 as port of the client."""
    return f"PROXY TCP4 {client} {server} 0 {port}\r\n".encode()


def chunk_size(line: bytes) -> int:
    """Return the size from the first line of a chunk.

    :param line: without the CR LF at its end.
    :raises Refused: the line does not begin with a size, or has a control character, which other
        programs take for its end.
    """
    if _CONTROL.search(line):
        raise Refused(400, "the size of a chunk is followed by a control character")
    digits = line.partition(b";")[0].strip()
    if not re.fullmatch(rb"[0-9a-fA-F]{1,16}", digits):
        raise Refused(400, "a chunk of the body does not begin with its size")
    return int(digits, 16)


def decode_path(path: str) -> str:
    """Decode the percent signs of a path.

    :raises Refused: 400 when the path is not UTF-8; 404 when it has an encoded slash, which belongs
        to a name, and no resource has a name with one.
    """
    if "%2f" in path.lower():
        raise Refused(404, f"there is no resource {path[:100]}: no name has a slash (%2F)")
    try:
        # The path was decoded as Latin-1, so this returns its bytes.
        return unquote_to_bytes(path.encode("latin-1")).decode("utf-8")
    except UnicodeDecodeError as err:
        raise Refused(400, "the path is not UTF-8") from err


def parse_query(query: str) -> dict[str, list[str]]:
    """Return the arguments of a query string by name; a name may occur several times.

    :raises Refused: the query is not UTF-8.
    """
    found: dict[str, list[str]] = {}
    for piece in query.split("&") if query else ():
        if not piece:
            continue
        name, _, value = piece.replace("+", " ").partition("=")
        try:
            key = unquote_to_bytes(name.encode("latin-1")).decode("utf-8")
            text = unquote_to_bytes(value.encode("latin-1")).decode("utf-8")
        except UnicodeDecodeError as err:
            raise Refused(400, "the query is not UTF-8") from err
        found.setdefault(key, []).append(text)
    return found


_REASONS = {status.value: status.phrase for status in HTTPStatus}


def render_head(
    status: int,
    headers: Sequence[tuple[str, str]],
    *,
    length: int | None,
    close: bool,
    now: float,
    chunked: bool = False,
) -> bytes:
    """Return the head of an answer.

    :param length: length of the body in bytes; None if it is unknown.
    :param chunked: the body is sent in chunks. A body without length and chunks ends with the
        connection.
    :param now: the time in seconds since 1970.
    """
    lines = [f"HTTP/1.1 {status} {_REASONS.get(status, 'Unknown')}"]
    lines += [f"{name}: {value}" for name, value in headers]
    lines.append(f"Date: {_date(int(now))}")
    if chunked:
        lines.append("Transfer-Encoding: chunked")
    elif length is not None and status not in (204, 304):
        lines.append(f"Content-Length: {length}")
    lines.append(f"Connection: {_connection(status, close)}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")


def _connection(status: int, close: bool) -> str:
    if status == HTTPStatus.SWITCHING_PROTOCOLS:
        return "Upgrade"
    return "close" if close else "keep-alive"


_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_last_date = (-1, "")


def _date(second: int) -> str:
    """Return the date as text; cached, because it is sent many times per second."""
    global _last_date
    if _last_date[0] != second:
        _last_date = second, _date_text(time.gmtime(second))
    return _last_date[1]


def _date_text(at: time.struct_time) -> str:
    """Return a date as RFC 9110 has it; the module *email* for it needs 1 MiB."""
    return (
        f"{_DAYS[at.tm_wday]}, {at.tm_mday:02} {_MONTHS[at.tm_mon - 1]} {at.tm_year:04}"
        f" {at.tm_hour:02}:{at.tm_min:02}:{at.tm_sec:02} GMT"
    )
