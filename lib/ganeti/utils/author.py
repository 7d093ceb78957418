"""Who submitted a job: the person and the program, as the reason trail of its opcodes says.

A reason trail is a list of ``[source, text, nanoseconds since 1970]``. Each user may send one, and
other programs may have written other values, so everything is checked here before it is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ganeti import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

# Beginning of the source of an entry -> the program, if the rest of the source does not name it.
_PROGRAMS = {
    "gnt:client:": "",
    "gnt:library:rlib2:": "REST",
    "gnt:watcher": "watcher",
    "gnt:daemon:masterd": "master",
}


def entries(trail: object) -> Iterator[Sequence[Any]]:
    """Iterate over the entries of a reason trail which have the right shape."""
    for entry in trail if isinstance(trail, (list, tuple)) else ():
        if isinstance(entry, (list, tuple)) and len(entry) == 3:
            yield entry


def program(trail: object) -> str:
    """Return the program which submitted a job, such as ``gnt-instance`` or ``REST``.

    :param trail: the reason trail of an opcode.
    :returns: an empty text when it is not known.
    """
    for source, _text, _time in entries(trail):
        for start, word in _PROGRAMS.items():
            if isinstance(source, str) and source.startswith(start):
                return word or source.removeprefix(start)
    return ""
