"""Read the head of an HTTP/1 request: one rule for the node daemon and the daemons with REST.

The reader is strict where two programs could otherwise interpret a message differently: lines end
with CRLF and have no other control characters, a header has no blank before its colon and no
second line, and a header which decides about the rest of the request occurs once.

Source: RFC 9110 *HTTP Semantics*, RFC 9112 *HTTP/1.1*.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from ganeti import errors

MAX_HEADERS = 100

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# RFC 9110, section 5.5: these are dangerous in a value, because other programs end a line there.
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_REQUEST_LINE = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+) ([^\x00-\x20\x7f]+) HTTP/(\d)\.(\d)")
_ONCE = frozenset(("authorization", "content-length", "content-type", "host"))


class HeadError(errors.GenericError):
    """The head of a request cannot be read.

    :ivar status: HTTP status of the answer: 400, 431 or 505.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class RawHead(NamedTuple):
    """The head of a request, before anything is done with it.

    :ivar line: the first line, for the log.
    :ivar target: path and query, as sent.
    :ivar minor: the second number of the version: 0 for HTTP/1.0.
    :ivar headers: by name in lower case; values of repeated headers are joined with commas.
    """

    line: str
    method: str
    target: str
    minor: int
    headers: dict[str, str]


def parse_raw_head(data: bytes) -> RawHead:
    """Read the head of a request, without the empty line at its end.

    :raises HeadError: 400 if it is not a head; 431 for too many headers; 505 for another version.
    """
    # In Latin-1 every byte is a character.
    lines = data.decode("latin-1").split("\r\n")
    match = _REQUEST_LINE.fullmatch(lines[0])
    if match is None:
        raise HeadError(400, "the first line is not that of an HTTP request")
    method, target, major, minor = match.groups()
    if major != "1":
        raise HeadError(505, f"HTTP version {major}.{minor} is not supported")
    return RawHead(lines[0], method, target, int(minor), _headers(lines[1:]))


def _headers(lines: Sequence[str]) -> dict[str, str]:
    if len(lines) > MAX_HEADERS:
        raise HeadError(431, f"the request has more than {MAX_HEADERS} headers")
    found: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or _TOKEN.fullmatch(name) is None or _CONTROL.search(value):
            raise HeadError(400, f"not a header: {line[:80]!r}")
        name, value = name.lower(), value.strip(" \t")
        if name in found:
            if name in _ONCE:
                raise HeadError(400, f"header {name} occurs twice")
            value = f"{found[name]}, {value}"
        found[name] = value
    return found
