"""The record of an operation, in a file between the runs of a program.

A record is a data class; its text is JSON with a number of the format. Two releases may read it, so
a later one may add fields, which an earlier one ignores, but never changes the meaning of those
that there are.

Beside the file there is a copy, because nobody can go on, nor back, without the record: a disk may
damage a file, and so may an editor.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from ganeti import errors
from ganeti.objects import codec
from ganeti.utils import fs
from ganeti.wire import json

T = TypeVar("T")

_FORMAT = 1
_KEY = "format"


def to_text(record: Any) -> str:
    """Return the text of a record."""
    return json.dumps_pretty({_KEY: _FORMAT, **codec.to_dict(record)})


def from_text(cls: type[T], text: str, path: str, what: str) -> T:
    """Read the text of a record.

    :param path: of the file, for messages.
    :param what: the record, as a noun with its article, for messages.
    :raises ConfigurationError: it has another form.
    """
    try:
        values = json.loads(text)
        if not isinstance(values, dict) or values.pop(_KEY, None) != _FORMAT:
            raise errors.ConfigurationError(f"{path} is not {what} of this release")
        return codec.from_any_release(cls, values)
    except errors.ParseError as err:
        raise errors.ConfigurationError(f"{path}: {err}") from err


class RecordFile(Generic[T]):
    """The file of a record, and its copy.

    :param parse: makes a record of the text of the file; gets the path, too, for messages.
    :param by_hand: what a person has to do when both are damaged, a sentence.
    """

    def __init__(self, path: str, parse: Callable[[str, str], T], by_hand: str = "") -> None:
        self.path = path
        self.copy = f"{path}.copy"
        self._parse = parse
        self._by_hand = by_hand

    def read(self) -> T | None:
        """Return the record; None if there is no file.

        :raises ConfigurationError: the file cannot be understood; the message says what to do.
        :raises OSError: it cannot be read.
        """
        try:
            text = fs.read_file(self.path)
        except FileNotFoundError:
            return None
        try:
            return self._parse(text, self.path)
        except errors.ConfigurationError as err:
            raise errors.ConfigurationError(f"{err}. {self._way_out()}") from err

    def _way_out(self) -> str:
        try:
            self._parse(fs.read_file(self.copy), self.copy)
        except (errors.ConfigurationError, OSError):
            return f"There is no whole copy of it. {self._by_hand}".rstrip()
        return (
            f"Its copy is whole: 'cp {self.copy} {self.path}', and repeat the command. A step which"
            " was complete may be done once more, which does no harm"
        )

    def write(self, record: T) -> None:
        """Replace the record, and then its copy; both are on the disk when this returns.

        :raises OSError: it cannot be written; the one before is unchanged.
        """
        text = to_text(record)
        fs.write_file(self.path, text, mode=0o600)
        fs.write_file(self.copy, text, mode=0o600)

    def note(self, before: T, **changes: Any) -> T:
        """Write the record with changed fields, and return it.

        :raises OSError: it cannot be written; the one before is unchanged.
        """
        record: T = dataclasses.replace(before, **changes)  # type: ignore[type-var]
        self.write(record)
        return record

    def remove(self) -> None:
        """Remove the record, because the operation is complete or taken back.

        :raises OSError: it cannot be removed.
        """
        # A copy which is left has no meaning.
        fs.remove_file(self.path)
        fs.remove_file(self.copy)
        fs.flush_dir(os.path.dirname(self.path))
