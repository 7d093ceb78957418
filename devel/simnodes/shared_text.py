"""The text of a configuration which many simulated nodes have.

A text of 1,000 nodes has 36 MB. A real node writes a change of it to a file, and a simulated one
must not take longer than that for its answer, so a change is only noted until somebody reads the
text.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ganeti.configfile.content import Content, Part

# With more parts than this, a text is joined.
_MAX_PARTS: Final = 2_000


class SharedText:
    """A text, or the changes which lead to it from an earlier one. It does not change itself."""

    __slots__ = ("_base", "_content")

    def __init__(self, text: bytes) -> None:
        self._base = text
        self._content = Content.of_file(len(text))

    def __len__(self) -> int:
        return self._content.size

    def endswith(self, end: bytes) -> bool:
        """Tell whether the text has this end."""
        if len(end) > len(self):
            return False
        return self._joined(self._content.cut(len(self) - len(end), len(end))) == end

    def changed(self, parts: Iterable[Part]) -> SharedText:
        """Return the text which a change makes of this one.

        :raises ValueError: a part is not inside this text.
        """
        if len(self._content.parts) > _MAX_PARTS:
            self.whole()
        other = SharedText(self._base)
        other._content = self._content.changed(parts)
        return other

    def whole(self) -> bytes:
        """Return the text; the same object each time."""
        if self._content.parts != Content.of_file(len(self._base)).parts:
            self._base = self._joined(self._content.parts)
            self._content = Content.of_file(len(self._base))
        return self._base

    def _joined(self, parts: Iterable[Part]) -> bytes:
        view = memoryview(self._base)
        return b"".join(
            part if isinstance(part, bytes) else view[part[0] : part[0] + part[1]] for part in parts
        )
