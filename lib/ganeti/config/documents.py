"""The documents which programs keep in a cluster: their names, their size, their entity tags.

The REST resource ``/2/documents`` reads and writes them under conditions (RFC 9110, section 13.1).
A cluster of two nodes may use one in another cluster as its witness
(``doc/design-auto-failover.rst``).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection
from typing import Final

from ganeti import errors
from ganeti.objects import KeptDocument
from ganeti.wire import json

#: A document is small, because every commit of the configuration carries it to all candidates.
MAX_BYTES: Final = 16 * 1024
MAX_DOCUMENTS: Final = 100
#: The tag which every document matches.
ANY: Final = "*"

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


def check_name(name: str) -> None:
    """Check the name of a document.

    :raises ParameterError: no document may have it.
    """
    if not _NAME.fullmatch(name):
        raise errors.ParameterError(
            f"{name!r:.100} cannot be the name of a document. Allowed are at most 64 letters,"
            " digits, '-', '_' and '.', a letter or digit first."
        )


def check(name: str, text: str) -> None:
    """Check the name and the content of a document.

    :raises ParameterError: the name is not allowed, or the content is too long or no JSON object.
    """
    check_name(name)
    if len(text) > MAX_BYTES:
        raise errors.ParameterError(
            f"the document has {len(text)} bytes; at most {MAX_BYTES} are allowed"
        )
    try:
        content = json.loads_strict(text)
    except errors.ParseError as err:
        raise errors.ParameterError(f"the document is not JSON: {err}") from err
    if not isinstance(content, dict):
        raise errors.ParameterError("the document must be a JSON object")


def tag(document: KeptDocument) -> str:
    """Return the strong entity tag of a document; another one after each replacement.

    The hash keeps the tag unique when an old configuration was restored, and serial numbers
    therefore occur again.
    """
    digest = hashlib.blake2b(document.text.encode(), digest_size=9).hexdigest()
    return f'"{document.uuid[:8]}-{document.serial_no}-{digest}"'


def matches(document: KeptDocument, tags: Collection[str]) -> bool:
    """Return whether a document is the one which a write is to replace."""
    return ANY in tags or tag(document) in tags
