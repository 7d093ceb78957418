"""The file ``audit.log``: lines of which nobody can change one without changing all later ones.

A line is a JSON object. Its ``prev`` is the SHA-256 checksum of the line before, without its new
line; 64 zeros in the first line of all. Its ``n`` counts the lines, also over several files. What
else is in a line is the affair of the writer (:mod:`ganeti.master.audit`).

Who can write the file can also make a new chain, or cut off its end. So keep the checksum of the
last line elsewhere, for example in the log of another machine.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ganeti import errors
from ganeti.wire import json

#: The ``prev`` of the first line.
NOTHING: Final = "0" * 64
_MODE: Final = 0o600
# So many bytes at the end of the file contain its last line.
_TAIL_BYTES: Final = 1 << 20

_log = logging.getLogger(__name__)


class Chain:
    """The end of an audit log, to which lines are added.

    :ivar number: number of the last line.
    :ivar prev: checksum of the last line.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.number, self.prev = 0, NOTHING

    def open(self) -> None:
        """Continue after the last line of the file; remove a line without its end.

        Only a crash leaves such a line.

        :raises OSError: the file cannot be read.
        """
        self.number, self.prev = _last(self.path)

    def add(self, entries: Iterable[Mapping[str, Any]]) -> None:
        """Append a line for each entry; all of them or none.

        :raises OSError: they cannot be written; file and object are as before.
        """
        number, prev, lines = self.number, self.prev, []
        for entry in entries:
            number += 1
            text = json.dumps({"n": number, **entry, "prev": prev}).encode()
            prev = hashlib.sha256(text).hexdigest()
            lines.append(text + b"\n")
        append(self.path, b"".join(lines))
        self.number, self.prev = number, prev


def append(path: str, data: bytes) -> None:
    """Append to a file which may have been rotated; nothing is appended when that fails.

    :raises OSError: it cannot be written; the file is as before.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    fd = os.open(path, flags, _MODE)
    try:
        size = os.fstat(fd).st_size
        try:
            written = 0
            while written < len(data):
                written += os.write(fd, data[written:])
        except OSError:
            os.ftruncate(fd, size)
            raise
    finally:
        os.close(fd)


def _last(path: str) -> tuple[int, str]:
    """Return the number and the checksum of the last line; remove a line without its end."""
    try:
        with open(path, "r+b") as stream:
            size = stream.seek(0, os.SEEK_END)
            start = max(0, size - _TAIL_BYTES)
            stream.seek(start)
            data = stream.read()
            end = data.rfind(b"\n") + 1
            if end < len(data):
                _log.warning("removing an incomplete line at the end of %s", path)
                stream.truncate(start + end)
    except FileNotFoundError:
        return 0, NOTHING
    lines = data[:end].splitlines()
    if not lines:
        return 0, NOTHING
    try:
        number = int(json.loads(lines[-1])["n"])
    except (errors.ParseError, KeyError, TypeError, ValueError):
        number = 0  # the verification finds that line
    return number, hashlib.sha256(lines[-1]).hexdigest()


class Problem(NamedTuple):
    """What is wrong with an audit log.

    :ivar place: file and number of the line in it.
    """

    place: str
    text: str


def verify(files: Sequence[str]) -> Iterator[tuple[dict[str, Any], Problem | None]]:
    """Read audit logs, oldest file first, and check that each line belongs after the one before.

    The first line of the first file may belong after an older file that was removed.

    :returns: each line as a dictionary (empty if it cannot be read), and what is wrong with it.
    :raises OSError: a file cannot be read.
    """
    prev: str | None = None
    number: int | None = None
    for path in files:
        with open(path, "rb") as stream:
            for place, raw in enumerate(stream, 1):
                line = raw.rstrip(b"\n")
                data, text = _read(line)
                if text is None and prev is not None and data["prev"] != prev:
                    text = "it does not belong after the line before: a line was changed or removed"
                elif text is None and number is not None and data["n"] != number + 1:
                    text = f"its number is {data['n']}, but must be {number + 1}"
                yield data, None if text is None else Problem(f"{path}:{place}", text)
                prev = hashlib.sha256(line).hexdigest()
                number = data.get("n", number)


def _read(line: bytes) -> tuple[dict[str, Any], str | None]:
    try:
        data = json.loads(line)
    except errors.ParseError as err:
        return {}, f"it cannot be read: {err}"
    if (
        not isinstance(data, dict)
        or not isinstance(data.get("n"), int)
        or not isinstance(data.get("prev"), str)
    ):
        return {}, "it is no line of an audit log"
    return data, None
