"""Errors of the loaders for data of another form."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ganeti import errors


@contextlib.contextmanager
def checked(what: str) -> Iterator[None]:
    """Turn the errors of reading values of wrong types into :class:`~ganeti.errors.ParseError`.

    The loaders check what they use most, with messages which name the object. Everything else, deep
    in a document, is found by its use.

    :param what: the document, for the message.
    """
    try:
        yield
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as err:
        raise errors.ParseError(f"{what}: a value has another form: {err!r:.200}") from err
