"""The text of a record which a program keeps in a file between its runs.

A record is a data class; its text is JSON with a number of the format. Two releases may read it, so
a later one may add fields, which an earlier one ignores, but never changes the meaning of those
that there are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ganeti import errors
from ganeti.objects import codec
from ganeti.utils import fs
from ganeti.wire import json

T = TypeVar("T")

_FORMAT = 1
_KEY = "format"


def read(path: str, parse: Callable[[str, str], T]) -> T | None:
    """Return the record in a file; None if there is no file.

    :param parse: gets the text, and the path for messages.
    :raises ConfigurationError: the file cannot be understood.
    :raises OSError: it cannot be read.
    """
    try:
        text = fs.read_file(path)
    except FileNotFoundError:
        return None
    return parse(text, path)


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
