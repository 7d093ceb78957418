"""The format of ``config.data.journal``: one record for each change since the file was written.

A record is a line with the checksum and the length of what follows, and a line of JSON::

    GC1 <crc32 of the JSON> <bytes of the JSON>\\n
    {"base": [<bytes>, <end>], "parts": [<text>, [<offset>, <length>], ...], "bytes": <bytes>}\\n

``base`` is the length and the end of the text before the change, ``parts`` the new text (see
:data:`ganeti.configfile.content.Part`), ``bytes`` its length.

A record counts if its checksum is right and it follows the state which the file and the records
before it make. So a journal may begin with records which the file has already: they are skipped.
The first record after that which does not count ends the journal; what is behind it was never
acknowledged, or is damaged.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from ganeti import errors
from ganeti.configfile.content import Change, Content, Part
from ganeti.wire import json

_HEADER: Final = re.compile(rb"GC1 ([0-9a-f]{8}) ([0-9]{1,9})\n")

#: Reads a range, offset and length, of the file to which a journal belongs.
ReadRange = Callable[[int, int], bytes]


def encode(change: Change) -> bytes:
    """Return the record of a change.

    :raises UnicodeDecodeError: the texts are not UTF-8.
    """
    payload = json.dumps(
        {
            "base": [change.base_bytes, change.base_end.decode("utf-8")],
            "parts": [
                part.decode("utf-8") if isinstance(part, bytes) else list(part)
                for part in change.parts
            ],
            "bytes": change.new_bytes,
        }
    ).encode("utf-8")
    return b"GC1 %08x %d\n%s\n" % (zlib.crc32(payload), len(payload), payload)


def records(journal: bytes, start: int = 0) -> Iterator[tuple[Change, int]]:
    """Iterate over the records whose checksum is right, each with the position after it.

    The iteration ends at the first one which is incomplete or damaged.
    """
    while (header := _HEADER.match(journal, start)) is not None:
        begin = header.end()
        end = begin + int(header[2])
        payload = journal[begin:end]
        if journal[end : end + 1] != b"\n" or zlib.crc32(payload) != int(header[1], 16):
            return
        start = end + 1
        change = _decode(payload)
        if change is None:
            return
        yield change, start


def _decode(payload: bytes) -> Change | None:
    try:
        found: dict[str, Any] = json.loads(payload)
        size, end = found["base"]
        parts: list[Part] = [
            part.encode("utf-8") if isinstance(part, str) else (int(part[0]), int(part[1]))
            for part in found["parts"]
        ]
        return Change(int(size), end.encode("utf-8"), parts, int(found["bytes"]))
    except (errors.ParseError, LookupError, TypeError, ValueError, OverflowError, AttributeError):
        return None


class State(NamedTuple):
    """What a file and its journal make together.

    :ivar content: the text, as parts of the file and of the records.
    :ivar read: bytes of the journal which were understood, from its beginning.
    :ivar skipped: bytes of records at its beginning which the file has already, or which do not
        belong to it.
    :ivar ended: it has a record which does not follow; the journal takes no further one.
    """

    content: Content
    read: int = 0
    skipped: int = 0
    ended: bool = False

    @property
    def in_use(self) -> bool:
        """True if the journal has a change which the file lacks."""
        return self.read > self.skipped


def advance(state: State, journal: bytes, read: ReadRange) -> State:
    """Apply the records of a journal which a state does not have yet.

    :param journal: the whole journal.
    :param read: reads the file.
    """
    for change, end in records(journal, 0 if state.ended else state.read):
        if state.ended:
            break
        after = applied(state.content, change, read)
        if after is not None:
            state = state._replace(content=after, read=end)
        elif state.in_use:
            state = state._replace(ended=True)
        else:
            state = state._replace(read=end, skipped=end)
    return state


def applied(content: Content, change: Change, read: ReadRange) -> Content | None:
    """Return the text after a change; None if the change does not follow this text."""
    if not is_base(content, change, read):
        return None
    try:
        after = content.changed(change.parts)
    except ValueError:
        return None
    return after if after.size == change.new_bytes else None


def is_base(content: Content, change: Change, read: ReadRange) -> bool:
    """Tell whether a change begins with this text."""
    length = len(change.base_end)
    return (
        content.size == change.base_bytes
        and content.size >= length
        and joined(content.cut(content.size - length, length), read) == change.base_end
    )


def joined(parts: Iterator[Part], read: ReadRange) -> bytes:
    """Return the bytes of some parts."""
    return b"".join(part if isinstance(part, bytes) else read(*part) for part in parts)
