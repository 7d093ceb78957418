"""The format of ``config.data.journal``: one record for each change since the file was written.

A record is a line with the checksum and the length of what follows, and a line of JSON. There are
two kinds of records::

    GC1 <crc32 of the JSON> <bytes of the JSON>\\n
    {"file": [<bytes>, <crc32>], "stamps": [<device>, ...], "from": <position>}\\n

    GC1 <crc32 of the JSON> <bytes of the JSON>\\n
    {"base": [<bytes>, <end>], "parts": [<text>, [<offset>, <length>], ...], "bytes": <bytes>,
     "end": <text>}\\n

The first one names a *base*: the file with this length and checksum has all changes before a
position of the journal, and those behind it follow the file. A journal begins with one. Who is
about to replace the file appends another one before, so the journal knows both files. ``stamps``
are those of the file (:class:`Base`), which spare the checksum.

The second one is a change: ``base`` is the length and the end of the text before, ``parts`` the new
text (see :data:`ganeti.configfile.content.Part`), ``bytes`` its length, ``end`` its end.

A change counts if its checksum is right and it follows the state which the file and the records
before it make. The first one which does not count ends the journal; what is behind it was never
acknowledged, or is damaged. A journal without a base is one of an earlier version: it may begin
with changes which the file has already, which are skipped.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from ganeti import errors
from ganeti.configfile.content import Change, Content, Part
from ganeti.wire import json

#: So much of the end of a text has its serial number and time.
END_BYTES: Final = 200
# The configuration store writes the serial number last.
_LAST_SERIAL: Final = re.compile(rb'[,{]\s*"serial_no":\s*([0-9]{1,15})\s*\}\s*\Z')

_HEADER: Final = re.compile(rb"GC1 ([0-9a-f]{8}) ([0-9]{1,9})\n")

#: Reads a range, offset and length, of the file to which a journal belongs.
ReadRange = Callable[[int, int], bytes]


class Base(NamedTuple):
    """A file which a journal knows.

    :ivar size: its length in bytes.
    :ivar checksum: CRC-32 of its content.
    :ivar stamps: device, inode, times of modification and change in ns; empty when they were not
        known yet. A file with these stamps and this length was not written since.
    :ivar start: position in the journal behind the last record whose change the file has.
    """

    size: int
    checksum: int
    stamps: tuple[int, ...]
    start: int


def encode(change: Change, end: bytes = b"") -> bytes:
    """Return the record of a change.

    :param end: the end of the new text, :data:`END_BYTES` of it.
    :raises UnicodeDecodeError: the texts are not UTF-8.
    """
    return _record(
        {
            "base": [change.base_bytes, change.base_end.decode("utf-8")],
            "parts": [
                part.decode("utf-8") if isinstance(part, bytes) else list(part)
                for part in change.parts
            ],
            "bytes": change.new_bytes,
            # It may begin inside of a character.
            "end": end.decode("utf-8", "ignore"),
        }
    )


def encode_base(base: Base) -> bytes:
    """Return the record of a base."""
    return _record(
        {
            "file": [base.size, f"{base.checksum:08x}"],
            "stamps": list(base.stamps),
            "from": base.start,
        }
    )


def _record(value: dict[str, Any]) -> bytes:
    payload = json.dumps(value).encode("utf-8")
    return b"GC1 %08x %d\n%s\n" % (zlib.crc32(payload), len(payload), payload)


class Entry(NamedTuple):
    """A record whose checksum is right.

    :ivar change: None for a base.
    :ivar new_end: the end of the text after the change; empty in journals of earlier versions.
    :ivar place: position behind the record.
    """

    change: Change | None
    base: Base | None
    new_end: bytes
    place: int


def records(journal: bytes, start: int = 0) -> Iterator[Entry]:
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
        entry = _decode(payload, start)
        if entry is None:
            return
        yield entry


def _decode(payload: bytes, place: int = 0) -> Entry | None:
    try:
        found: dict[str, Any] = json.loads(payload)
        if "file" in found:
            size, checksum = found["file"]
            stamps = tuple(map(int, found["stamps"]))
            base = Base(int(size), int(checksum, 16), stamps, int(found["from"]))
            return Entry(None, base, b"", place)
        size, end = found["base"]
        parts: list[Part] = [
            part.encode("utf-8") if isinstance(part, str) else (int(part[0]), int(part[1]))
            for part in found["parts"]
        ]
        change = Change(int(size), end.encode("utf-8"), parts, int(found["bytes"]))
        return Entry(change, None, found.get("end", "").encode("utf-8"), place)
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
    for entry in records(journal, 0 if state.ended else state.read):
        if state.ended:
            break
        change, end = entry.change, entry.place
        after = state.content if change is None else applied(state.content, change, read)
        if after is None and state.in_use:
            state = state._replace(ended=True)
        elif state.in_use or (after is not None and change is not None):
            state = state._replace(content=after or state.content, read=end)
        else:
            state = state._replace(read=end, skipped=end)
    return state


def serial_of_end(end: bytes) -> int | None:
    """Return the serial number in the end of a text; None if it has none there."""
    found = _LAST_SERIAL.search(end)
    return None if found is None else int(found[1])


class Belonging(NamedTuple):
    """Whether a journal belongs to a file.

    :ivar start: where the records begin which the file lacks; None if the journal belongs to
        another file.
    :ivar serial_no: of the last state in the journal; None if that is not known.
    :ivar has_base: the journal says to which files it belongs.
    """

    start: int | None
    serial_no: int | None
    has_base: bool = True


def belonging(journal: bytes, is_base: Callable[[Base], bool], end: bytes) -> Belonging:
    """Look whether a journal belongs to a file.

    That is so if the file is one of the bases of the journal, or if its end is the one of the last
    state in the journal: serial number and time are the same, so it has all changes.

    :param is_base: tells whether the file is this base.
    :param end: the end of the file, :data:`END_BYTES` of it.
    """
    entries = list(records(journal))
    changes = [entry for entry in entries if entry.change is not None]
    last = changes[-1] if changes else None
    serial_no = None
    if last is not None and last.change is not None:
        before = serial_of_end(last.change.base_end)
        serial_no = serial_of_end(last.new_end) or (before and before + 1)
    bases = [entry.base for entry in entries if entry.base is not None]
    if not bases:
        return Belonging(0, serial_no, has_base=False)
    for base in reversed(bases):
        if is_base(base):
            return Belonging(base.start, serial_no)
    if last is None or (last.new_end and end.endswith(last.new_end)):
        return Belonging(entries[-1].place, serial_no)
    return Belonging(None, serial_no)


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
