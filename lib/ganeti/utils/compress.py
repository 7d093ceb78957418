"""Which program compresses a stream of data, and which one undoes it; pure.

``none`` is always there; the others are among the cluster's compression tools. A tool nobody has
heard of is called by its name to compress and with ``-d`` to decompress.
"""

from __future__ import annotations

from typing import Final

NONE: Final = "none"
_GZIP: Final = "gzip"

_EXPORT: Final = {
    "gzip": [_GZIP, "-1", "-c"],
    "gzip-fast": [_GZIP, "-1", "-c"],
    "gzip-slow": [_GZIP, "-c"],
    "lzop": ["lzop", "-c"],
}
_IMPORT: Final = {
    "gzip": [_GZIP, "-d", "-c"],
    "gzip-fast": [_GZIP, "-d", "-c"],
    "gzip-slow": [_GZIP, "-d", "-c"],
    "lzop": ["lzop", "-d", "-c"],
}


def export_argv(tool: str) -> list[str] | None:
    """The program that compresses; None when nothing is to be compressed."""
    return None if tool == NONE else list(_EXPORT.get(tool, [tool]))


def import_argv(tool: str) -> list[str] | None:
    """The program that decompresses."""
    return None if tool == NONE else list(_IMPORT.get(tool, [tool, "-d"]))
