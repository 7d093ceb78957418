"""The text of a configuration, kept in pieces.

The text of each object is kept until the object changes, and about a hundred objects share a chunk.
A commit encodes the changed objects and joins their chunks again; the rest, which is megabytes in a
large cluster, stays the same bytes objects and is neither encoded nor copied.

Because chunks stay the same objects, two texts can be compared by the identity of their chunks:
:func:`difference` returns how one file becomes the other without reading their contents.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from ganeti.config import damaged
from ganeti.config.transaction import CLUSTER, KINDS, OWN_KINDS
from ganeti.objects import ConfigData, codec
from ganeti.wire import json

# Objects in a chunk: few enough that one is joined quickly, many enough that a file of 40,000
# objects has only some hundred chunks.
CHUNK: Final = 128

# A piece up to this length in bytes is sent as text, not as a reference to the old file.
_SHORT: Final = 64

_OPENING: Final = {kind: b',"%s":{' % kind.encode() for kind in KINDS}

Pieces = tuple[bytes, ...]

# A part of a new file: offset and length in the old one, or new bytes.
Part = tuple[int, int] | bytes


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


class _Table:
    """Texts of the objects of one kind, in chunks."""

    def __init__(self, objects: dict[str, Any]) -> None:
        self._chunks: list[dict[str, bytes]] = []
        self._joined: list[bytes | None] = []
        self._place: dict[str, int] = {}
        for uuid, obj in objects.items():
            self.put(uuid, obj)

    def put(self, uuid: str, obj: Any) -> None:
        """Add or replace the text of an object; None removes it."""
        place = self._place.get(uuid)
        if obj is None:
            if place is not None:
                del self._place[uuid], self._chunks[place][uuid]
                self._joined[place] = None
            return
        if place is None:
            if not self._chunks or len(self._chunks[-1]) >= CHUNK:
                self._chunks.append({})
                self._joined.append(None)
            place = self._place[uuid] = len(self._chunks) - 1
        self._chunks[place][uuid] = b'"%s":%s' % (uuid.encode(), _encode(codec.to_dict(obj)))
        self._joined[place] = None

    def pieces(self) -> list[bytes]:
        """Return the texts of the chunks; each but the first begins with a comma."""
        found: list[bytes] = []
        for place, joined in enumerate(self._joined):
            if joined is None or (joined[:1] == b",") is not bool(found):
                start = b"," if found and self._chunks[place] else b""
                joined = start + b",".join(self._chunks[place].values())
                self._joined[place] = joined
            if joined:
                found.append(joined)
        return found


def _encode(value: Any) -> bytes:
    return json.dumps(value).encode()


def difference(old: Sequence[bytes], new: Sequence[bytes]) -> list[Part]:
    """Compute how to make a file from the one before it.

    :returns: the parts of the new file in order. Adjacent parts of the old file are joined.
    """
    offsets: dict[int, int] = {}
    at: dict[int, bytes] = {}
    offset = 0
    for piece in old:
        offsets[id(piece)] = offset
        at[offset] = piece
        offset += len(piece)
    parts: list[Part] = []
    for piece in new:
        # The pieces of both texts exist, so the same identity means the same bytes. A piece which
        # occurs several times may be taken from any place, preferably from the end of the last
        # part.
        last = parts[-1] if parts else None
        if isinstance(last, tuple) and at.get(sum(last)) is piece:
            parts[-1] = (last[0], last[1] + len(piece))
        elif id(piece) in offsets and len(piece) > _SHORT:
            parts.append((offsets[id(piece)], len(piece)))
        elif isinstance(last, bytes):
            parts[-1] = last + piece
        else:
            parts.append(piece)
    return parts
