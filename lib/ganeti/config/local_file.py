"""The file of the configuration on the disk of the master, as the store writes it."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ganeti.config.text import Pieces, change_between
from ganeti.configfile import files
from ganeti.configfile.content import Change

log = logging.getLogger(__name__)

#: Writes a whole text to a file, atomically and durably.
Writer = Callable[[str, Pieces], None]
#: Changes a file durably; see :func:`ganeti.configfile.files.change`.
Changer = Callable[[str, Change], bool]

# A larger change is written as a whole file.
_MAX_CHANGE_BYTES = 1 << 18


class LocalFile:
    """Writes each state to the file: as a change of the state before, if the file is large.

    :ivar path: of the file.
    """

    def __init__(
        self,
        path: str,
        write: Writer = files.write_config_file,
        change: Changer | None = None,
        change_from_bytes: int | None = None,
    ) -> None:
        """:param write: writes text to the file, atomically and durably.
        :param change: makes a file from the one before it; None replaces the file with each state.
        :param change_from_bytes: smaller files are replaced in any case; None for
            :data:`ganeti.configfile.files.JOURNAL_FROM_BYTES`.
        """
        self.path = path
        self._write = write
        self._change = change
        self._change_from_bytes = change_from_bytes
        # The text on the disk; None when that is not certain.
        self._text: Pieces | None = None

    def write(self, text: Pieces) -> None:
        """Make a state durable.

        :raises OSError: it could not be written; nothing was changed.
        """
        # After an error the next state is written as a whole.
        base, self._text = self._text, None
        if not self._changed(base, text):
            self._write(self.path, text)
        self._text = text

    def _changed(self, base: Pieces | None, text: Pieces) -> bool:
        if base is None or self._change is None or sum(map(len, base)) < self._smallest():
            return False
        wanted = change_between(base, text)
        if wanted.fresh_bytes > _MAX_CHANGE_BYTES:
            return False
        try:
            if self._change(self.path, wanted):
                return True
            reason = "it has another length or end"
        except ValueError as err:
            reason = str(err)
        log.warning(
            "%s is not what was written last (%s). The whole configuration is written.",
            self.path,
            reason,
        )
        return False

    def _smallest(self) -> int:
        if self._change_from_bytes is None:
            return files.JOURNAL_FROM_BYTES
        return self._change_from_bytes

    def adopt(self, text: Pieces) -> bool:
        """Tell whether the file has exactly this text; then a change of it may follow."""
        try:
            content = memoryview(files.read(self.path))
        except OSError:
            return False
        place = 0
        for piece in text:
            if content[place : place + len(piece)] != piece:
                return False
            place += len(piece)
        if place == len(content):
            self._text = text
        return self._text is text

    def forget(self) -> None:
        """Write the next state as a whole, even if somebody else has changed the file."""
        self._text = None
