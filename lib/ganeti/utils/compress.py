"""The programs which compress and decompress a stream of data. Pure functions.

``none`` stands for no compression; other tools must be among the compression tools of the cluster.
A tool that this module does not know is run without arguments to compress, and with ``-d`` to
decompress.
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
    """Return the command that compresses; None for the tool ``none``."""
    return None if tool == NONE else list(_EXPORT.get(tool, [tool]))


def import_argv(tool: str) -> list[str] | None:
    """Return the command that decompresses; None for the tool ``none``."""
    return None if tool == NONE else list(_IMPORT.get(tool, [tool, "-d"]))
