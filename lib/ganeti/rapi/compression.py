"""Compressed answers (gzip), for clients which ask for them.

Lists in JSON are compressed to a seventh. The level is 1: on two processors of 2026 it costs 4 ms
for each MiB of a list of instances and leaves 13.7 %, level 6 costs 8 ms and leaves 11.4 %, level 9
25 ms and 11.2 %. A small answer is compressed at once (0.02 ms for 6 KB); a larger one in a thread,
so that other clients do not wait for it, and only a few of these at the same time.

An answer with a secret is never compressed. Who can make somebody else's browser request it with a
text of his choice, and see the lengths of encrypted answers, could guess the secret from them
(BREACH). Operations say so (:attr:`ganeti.rapi.declare.Read.secret`), or set
:attr:`ganeti.rapi.call.Call.secret`.

A compressed answer has an entity tag of its own, which ends with :data:`_SUFFIX`, because a strong
tag stands for one sequence of bytes. Operations see only the tags of plain answers
(:func:`negotiate`): in ``If-Match``, which means the state of the object, both are the same; in
``If-None-Match`` that of a compressed answer counts if the client takes one now.

Source: RFC 9110, sections 8.4.1.3 *Gzip Coding*, 8.8.3.3 *Example: Entity Tags Varying on
Content-Negotiated Resources*, 12.5.3 *Accept-Encoding* and 17.6.
"""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import Mapping
from typing import Final, NamedTuple

#: Smaller answers need one packet or two in any case.
LEAST_BYTES: Final = 4096
#: Header of a compressed answer.
HEADER: Final = ("Content-Encoding", "gzip")
_LEVEL: Final = 1
# With this, zlib writes the format of gzip, without a time: the same bytes each time.
_GZIP_FORMAT: Final = 31
_THREAD_BYTES: Final = 1 << 17
_SUFFIX: Final = "-gzip"
_SUFFIXED: Final = re.compile(rf'"([^"]*){_SUFFIX}"')
_QUALITY: Final = re.compile(r"q\s*=\s*([01](?:\.[0-9]{0,3})?)", re.IGNORECASE)

# Memory and processors belong to other clients, too.
_large = asyncio.Semaphore(2)


def wanted(accept: str | None) -> bool:
    """Return whether a client wants gzip, and does not like the plain answer better.

    :param accept: ``Accept-Encoding``; None for a client which does not send it.
    """
    if not accept:
        return False
    qualities: dict[str, float] = {}
    for word in accept.split(","):
        coding, *parameters = word.split(";")
        quality = 1.0
        for parameter in parameters:
            match = _QUALITY.fullmatch(parameter.strip())
            quality = min(1.0, float(match[1])) if match else 0.0
        name = coding.strip().lower()
        qualities["gzip" if name == "x-gzip" else name] = quality
    gzip = qualities.get("gzip", qualities.get("*", 0.0))
    return gzip > 0 and gzip >= qualities.get("identity", 0.0)


async def compressed(body: bytes) -> bytes:
    """Return a body in gzip; the same one for the same body."""
    if len(body) < _THREAD_BYTES:
        return _compress(body)
    async with _large:
        return await asyncio.to_thread(_compress, body)


def _compress(body: bytes) -> bytes:
    return zlib.compress(body, _LEVEL, _GZIP_FORMAT)


class Coding(NamedTuple):
    """Which forms of an answer a client takes, and has.

    :ivar gzip: it takes a compressed one.
    :ivar held: ``If-None-Match`` as it was sent; empty without it.
    """

    gzip: bool = False
    held: str = ""

    def tag_of_held(self, etag: str) -> str:
        """Return the entity tag of the form which the client has, when it has not changed."""
        coded = tag_of(etag)
        return coded if coded in self.held and etag not in self.held else etag


def negotiate(headers: Mapping[str, str]) -> tuple[Mapping[str, str], Coding]:
    """Return the headers of a request as operations see them, and what the client takes."""
    coding = Coding(wanted(headers.get("accept-encoding")), headers.get("if-none-match", ""))
    changed = {}
    for name in ("if-match", "if-none-match"):
        tags = headers.get(name, "")
        if _SUFFIX in tags:
            plain = name == "if-match" or coding.gzip
            changed[name] = _SUFFIXED.sub(r'"\1"' if plain else '""', tags)
    return ({**headers, **changed} if changed else headers), coding


def tag_of(etag: str) -> str:
    """Return the entity tag of the compressed form of an answer."""
    return f'{etag[:-1]}{_SUFFIX}"' if etag.endswith('"') else etag
