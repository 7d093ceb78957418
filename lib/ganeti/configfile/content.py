"""The text of a configuration as parts of a file and new bytes, and how one text becomes the next.

A change of a large configuration is small, so it is described by what stays: parts of the text
before it. Such descriptions can be applied one after the other without reading the file, and the
kernel copies the parts when the text is written.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

#: A part of a new text: offset and length in the old one, or new bytes.
Part = tuple[int, int] | bytes


class Change(NamedTuple):
    """How to make the next text from the one before.

    :ivar base_bytes: length of the text before.
    :ivar base_end: end of the text before; it has serial number and time, so length and end
        identify the text.
    :ivar parts: the new text.
    :ivar new_bytes: length of the new text.
    """

    base_bytes: int
    base_end: bytes
    parts: Sequence[Part]
    new_bytes: int

    @property
    def fresh_bytes(self) -> int:
        """How many bytes of the new text are not in the old one."""
        return sum(len(part) for part in self.parts if isinstance(part, bytes))


class Content:
    """A text whose parts are ranges of one file, or bytes in memory.

    :ivar parts: the text; offsets are those in the file.
    :ivar size: length in bytes.
    """

    def __init__(self, parts: Iterable[Part]) -> None:
        self.parts: list[Part] = []
        for part in parts:
            last = self.parts[-1] if self.parts else None
            if isinstance(part, tuple) and isinstance(last, tuple) and sum(last) == part[0]:
                self.parts[-1] = (last[0], last[1] + part[1])
            elif isinstance(part, bytes) and isinstance(last, bytes):
                self.parts[-1] = last + part
            elif _length(part):
                self.parts.append(part)
        self._starts = [0]
        for part in self.parts:
            self._starts.append(self._starts[-1] + _length(part))
        self.size = self._starts.pop()

    @classmethod
    def of_file(cls, size: int) -> Content:
        """Return the text of a whole file of this length."""
        return cls([(0, size)])

    def changed(self, parts: Iterable[Part]) -> Content:
        """Return the text which a change makes of this one.

        :raises ValueError: a part is not inside this text.
        """

        def found() -> Iterator[Part]:
            for part in parts:
                if isinstance(part, bytes):
                    yield part
                else:
                    yield from self.cut(*part)

        return Content(found())

    def cut(self, offset: int, length: int) -> Iterator[Part]:
        """Return a range of this text as parts.

        :raises ValueError: the range is not inside this text.
        """
        if not 0 <= offset <= offset + length <= self.size:
            raise ValueError(f"{length} bytes at {offset} are not in a text of {self.size} bytes")
        place = bisect.bisect_right(self._starts, offset) - 1
        while length:
            part, inside = self.parts[place], offset - self._starts[place]
            taken = min(length, _length(part) - inside)
            if isinstance(part, bytes):
                yield part[inside : inside + taken]
            else:
                yield (part[0] + inside, taken)
            place, offset, length = place + 1, offset + taken, length - taken


def _length(part: Part) -> int:
    return len(part) if isinstance(part, bytes) else part[1]
