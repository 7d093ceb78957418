"""The text of a configuration, kept in pieces.

About a hundred objects share a chunk. A commit encodes the changed objects and replaces their texts
in the chunks; the rest, which is megabytes in a large cluster, stays the same bytes objects and is
neither encoded nor copied.

Because chunks stay the same objects, two texts can be compared by the identity of their chunks:
:func:`difference` returns how one file becomes the other without reading their contents.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from ganeti.config import damaged
from ganeti.config.draft import CLUSTER, KINDS, OWN_KINDS
from ganeti.configfile.content import Change, Part
from ganeti.objects import ConfigData, codec
from ganeti.wire import json

# Objects in a chunk: few enough that one is joined quickly, many enough that a file of 40,000
# objects has only some hundred chunks.
CHUNK: Final = 128

# A piece up to this length in bytes is sent as text, not as a reference to the old file.
_SHORT: Final = 64

_OPENING: Final = {kind: b',"%s":{' % kind.encode() for kind in KINDS}

Pieces = tuple[bytes, ...]


class ConfigText:
    """The text of a configuration, kept object by object."""

    def __init__(self, data: ConfigData) -> None:
        self._tables = {kind: _Table(getattr(data, kind)) for kind in KINDS}
        self._cluster = _encode(codec.to_dict(data.cluster))

    def render(self, data: ConfigData, changed: Iterable[tuple[str, str]]) -> Pieces:
        """Return the text of a state which differs from the one before in these objects only."""
        for kind, uuid in changed:
            if (kind, uuid) == CLUSTER:
                self._cluster = _encode(codec.to_dict(data.cluster))
            else:
                self._tables[kind].put(uuid, getattr(data, kind).get(uuid))
        root = _encode(
            {
                **({damaged.KEY: data.damaged} if data.damaged else {}),
                "version": data.version,
                "ctime": data.ctime,
                "mtime": data.mtime,
                "serial_no": data.serial_no,
            }
        )
        pieces = [b'{"cluster":', self._cluster]
        for kind in KINDS:
            table = self._tables[kind].pieces()
            if kind in OWN_KINDS and not table:
                continue
            pieces.append(_OPENING[kind])
            pieces += table
            pieces.append(b"}")
        pieces.append(b",%s\n" % root[1:])
        return tuple(pieces)


class _Chunk:
    """Texts of some objects.

    :ivar lengths: UUID -> length of the text of the object, in their order.
    :ivar text: the texts with commas between them. It begins with a comma, except in the first
        chunk of a table.
    """

    __slots__ = ("lengths", "text")

    def __init__(self, texts: Iterable[tuple[str, bytes]]) -> None:
        found = dict(texts)
        self.lengths = {uuid: len(text) for uuid, text in found.items()}
        self.text = b",".join(found.values())

    def put(self, uuid: str, text: bytes) -> None:
        """Add or replace the text of an object."""
        if uuid in self.lengths:
            begin = self._begin(uuid)
            end = begin + self.lengths[uuid]
            self.text = b"%s%s%s" % (self.text[:begin], text, self.text[end:])
        else:
            self.text = b"%s,%s" % (self.text, text) if self.lengths else text
        self.lengths[uuid] = len(text)

    def remove(self, uuid: str) -> None:
        """Remove the text of an object, with one comma."""
        begin = self._begin(uuid)
        end = begin + self.lengths[uuid]
        if end < len(self.text):
            end += 1
        elif begin:
            begin -= 1
        self.text = self.text[:begin] + self.text[end:]
        del self.lengths[uuid]

    def _begin(self, uuid: str) -> int:
        before = itertools.takewhile(lambda one: one != uuid, self.lengths)
        return int(self.text[:1] == b",") + sum(self.lengths[one] + 1 for one in before)


class _Table:
    """Texts of the objects of one kind, in chunks.

    A text is only in its chunk: another copy of each would take as much memory as the whole file.
    """

    def __init__(self, objects: dict[str, Any]) -> None:
        self._chunks: list[_Chunk] = []
        # UUID -> number of the chunk.
        self._place: dict[str, int] = {}
        left = iter(objects.items())
        while some := list(itertools.islice(left, CHUNK)):
            self._place.update((uuid, len(self._chunks)) for uuid, _ in some)
            self._chunks.append(_Chunk((uuid, _entry(uuid, obj)) for uuid, obj in some))

    def put(self, uuid: str, obj: Any) -> None:
        """Add or replace the text of an object; None removes it."""
        place = self._place.get(uuid)
        if obj is None:
            if place is not None:
                del self._place[uuid]
                self._chunks[place].remove(uuid)
            return
        if place is None:
            if not self._chunks or len(self._chunks[-1].lengths) >= CHUNK:
                self._chunks.append(_Chunk(()))
            place = self._place[uuid] = len(self._chunks) - 1
        self._chunks[place].put(uuid, _entry(uuid, obj))

    def pieces(self) -> list[bytes]:
        """Return the texts of the chunks; each but the first begins with a comma."""
        found: list[bytes] = []
        for chunk in self._chunks:
            if not chunk.lengths:
                continue
            has_comma = chunk.text[:1] == b","
            if has_comma and not found:
                chunk.text = chunk.text[1:]
            elif found and not has_comma:
                chunk.text = b",%s" % chunk.text
            found.append(chunk.text)
        return found


def _entry(uuid: str, obj: Any) -> bytes:
    return b'"%s":%s' % (uuid.encode(), _encode(codec.to_dict(obj)))


def _encode(value: Any) -> bytes:
    # ASCII only, so that a text may be cut at any place.
    return json.dumps(value).encode("ascii")


def change_between(old: Pieces, new: Pieces) -> Change:
    """Return how to make a file from the one before it."""
    return Change(sum(map(len, old)), old[-1], difference(old, new), sum(map(len, new)))


def difference(old: Sequence[bytes], new: Sequence[bytes]) -> list[Part]:
    """Compute how to make a file from the one before it.

    :returns: the parts of the new file in order. Adjacent parts of the old file are joined. A chunk
        of which a part changed refers to the rest of the chunk which it replaces.
    """
    offsets: dict[int, int] = {}
    at: dict[int, bytes] = {}
    offset = 0
    for piece in old:
        offsets[id(piece)] = offset
        at[offset] = piece
        offset += len(piece)
    kept = {id(piece) for piece in new}
    parts: list[Part] = []
    # Where in the old file the next piece is, if nothing was inserted or left out.
    expected = 0
    for piece in new:
        # The pieces of both texts exist, so the same identity means the same bytes. A piece which
        # occurs several times may be taken from any place, preferably from the end of the last
        # part.
        place, before = expected, at.get(expected, b"")
        if before is not piece and id(piece) in offsets:
            place, before = offsets[id(piece)], piece
        if before is piece:
            if len(piece) > _SHORT or _continues(parts, place):
                _add(parts, (place, len(piece)))
            else:
                _add(parts, piece)
        elif id(before) in kept:
            # The old piece comes later; this one is inserted before it.
            _add(parts, piece)
            continue
        else:
            for part in _refined(place, before, piece):
                _add(parts, part)
        expected = place + len(before)
    return parts


def _continues(parts: Sequence[Part], place: int) -> bool:
    last = parts[-1] if parts else None
    return isinstance(last, tuple) and sum(last) == place


def _add(parts: list[Part], part: Part) -> None:
    last = parts[-1] if parts else None
    if isinstance(part, tuple) and isinstance(last, tuple) and sum(last) == part[0]:
        parts[-1] = (last[0], last[1] + part[1])
    elif isinstance(part, bytes) and isinstance(last, bytes):
        parts[-1] = last + part
    else:
        parts.append(part)


def _refined(place: int, before: bytes, piece: bytes) -> Iterator[Part]:
    """Make a piece from the one before it, with which it has beginning and end in common."""
    start = _common(before, piece)
    most = min(len(before), len(piece)) - start
    end = _common(before[::-1][:most], piece[::-1][:most])
    if start <= _SHORT:
        start = 0
    if end <= _SHORT:
        end = 0
    if start:
        yield (place, start)
    if len(piece) > start + end:
        yield piece[start : len(piece) - end]
    if end:
        yield (place + len(before) - end, end)


def _common(one: bytes, other: bytes) -> int:
    """Return how many bytes at the beginning of two texts are the same."""
    same, most = 0, min(len(one), len(other))
    while same < most:
        middle = (same + most + 1) // 2
        if one[same:middle] == other[same:middle]:
            same = middle
        else:
            most = middle - 1
    return same
