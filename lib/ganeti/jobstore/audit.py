"""The file ``audit.log``: lines of which nobody can change one without changing all later ones.

A line is a JSON object. Its ``prev`` is the SHA-256 checksum of the line before, without its new
line; 64 zeros in the first line of all. Its ``n`` counts the lines. What else is in a line is the
affair of the writer (:mod:`ganeti.master.audit`).

The chain goes on over several files: **logrotate** may rename the file at any time, to
``audit.log.1`` or ``audit.log-20261123``, and compress it later. A writer which starts when the
file is missing or empty goes on after the last line of the newest renamed one.

The other master candidates have copies of the lines (:func:`extend`), so the chain goes on when one
of them becomes master. Lines of another chain, of a master which was replaced before it had sent
them, are set aside: ``audit.log`` becomes ``audit.log.apart-1``.

Who can write the file can also make a new chain, or cut off its end. So keep the checksum of the
last line elsewhere, for example in the log of another machine.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import logging
import os
import re
import zlib
from collections import deque
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import IO, Any, Final, NamedTuple

from ganeti import errors
from ganeti.wire import json

#: The ``prev`` of the first line.
NOTHING: Final = "0" * 64
_MODE: Final = 0o600
# Number of bytes at the end of the file which contain its last line.
_TAIL_BYTES: Final = 1 << 20
#: Number of lines which :func:`newest_lines` keeps in memory.
MOST_LINES: Final = 10_000

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
        """Continue after the last line of all; remove a line without its end.

        Only a crash leaves such a line.

        :raises OSError: a file cannot be read.
        """
        found = _last(self.path)
        if found is None:
            found = _last_renamed(self.path)
        self.number, self.prev = found or (0, NOTHING)

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


def extend(path: str, end: tuple[int, str], data: bytes, *, apart: bool) -> tuple[int, str]:
    """Add lines of another node to the chain here, if they belong after its last line.

    :param end: number and checksum of the line before the first of them.
    :param apart: set the lines which are here aside, and begin with these.
    :returns: number and checksum of the last line which is here then.
    :raises OSError: the file cannot be read or written.
    """
    if apart:
        _set_apart(path)
    chain = Chain(path)
    chain.open()
    if (chain.number, chain.prev) != end and not apart:
        return chain.number, chain.prev
    if data:
        append(path, data)
        chain.open()
    return chain.number, chain.prev


def _set_apart(path: str) -> None:
    """Rename all files of the chain, so that they belong to no chain any more."""
    for one in files(path):
        number = 1
        while os.path.exists(f"{one}.apart-{number}"):
            number += 1
        os.rename(one, f"{one}.apart-{number}")


def lines_after(path: str, end: tuple[int, str]) -> list[bytes] | None:
    """Return the lines after one line of the chain, the oldest first.

    :param end: number and checksum of that line; ``(0, NOTHING)`` for all lines which are there.
    :returns: None if the chain does not have that line.
    :raises OSError: a file cannot be read.
    """
    found: list[bytes] = []
    for one in reversed(files(path)):
        lines = list(_lines(one))
        first = _number(lines[0]) if lines else 0
        if first > end[0] + 1:
            found[:0] = lines
            continue
        for place in range(len(lines) - 1, -1, -1):
            if hashlib.sha256(lines[place]).hexdigest() == end[1]:
                return lines[place + 1 :] + found
        if lines and first == end[0] + 1 and _read(lines[0])[0].get("prev") == end[1]:
            return lines + found
        found[:0] = lines
    return found if end == (0, NOTHING) else None


def end_of(line: bytes) -> tuple[int, str]:
    """Return the number and the checksum of a line."""
    line = line.rstrip(b"\n")
    return _number(line), hashlib.sha256(line).hexdigest()


def recent_lines(path: str, max_bytes: int) -> tuple[list[dict[str, Any]], bool]:
    """Return the last lines of the chain as dictionaries, and whether these are all.

    :param max_bytes: how much of the files is read, roughly.
    :raises OSError: a file cannot be read.
    """
    found: list[dict[str, Any]] = []
    left = max_bytes
    for one in reversed(files(path)):
        lines = list(_lines(one))
        size = sum(map(len, lines))
        read = len(lines)
        while lines and size > left:
            size -= len(lines.pop(0))
        found[:0] = [_read(line)[0] for line in lines]
        left -= size
        if len(lines) < read:
            return found, False
    return found, True


def newest_lines(path: str, before: int | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """Iterate over the lines of the chain, the newest first.

    A file is read when its lines are needed, and of each only the last lines before `before`; at
    most :data:`MOST_LINES` lines are kept at a time.

    :param before: only lines with smaller numbers.
    :returns: the number of each line, and the line as a dictionary, empty if it cannot be read.
    :raises OSError: a file cannot be read.
    """
    for one in reversed(files(path)):
        first = _first_number(one)
        if first is None:
            continue
        end = before
        while end is None or end > first:
            most = None if end is None else end - first
            numbered = enumerate(islice(_lines(one), most), start=first)
            end = yield from _read_backwards(deque(numbered, MOST_LINES))
        # A file may be renamed meanwhile: no line is returned twice.
        before = first if before is None else min(before, first)


def _read_backwards(
    lines: Collection[tuple[int, bytes]],
) -> Generator[tuple[int, dict[str, Any]], None, int]:
    """Yield lines, the last one first; return the number of the first one, 0 without lines."""
    number = 0
    for number, line in sorted(lines, reverse=True):
        yield number, _read(line)[0]
    return number


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


def files(path: str) -> list[str]:
    """List the files of the chain which exist, the oldest one first: renamed ones, then `path`.

    Their order is that of their first lines. One whose first line cannot be read comes before all
    others, so that the verification reports it; an empty one is left out.

    :raises OSError: the directory or a file cannot be read.
    """
    directory, name = os.path.split(path)
    pattern = re.compile(re.escape(name) + r"([.-]\d+)(\.gz)?")
    numbers = {}
    try:
        names = os.listdir(directory or ".")
    except FileNotFoundError:
        names = []
    for other in names:
        if pattern.fullmatch(other) is not None:
            renamed = os.path.join(directory, other)
            number = _first_number(renamed)
            if number is not None:
                numbers[renamed] = number
    found = sorted(numbers, key=lambda one: (numbers[one], one))
    return [*found, path] if os.path.exists(path) else found


def _first_number(path: str) -> int | None:
    """Return the number of the first line of a file: 0 if unreadable, None without a line."""
    return next(map(_number, _lines(path)), None)


def _lines(path: str) -> Iterator[bytes]:
    """Read the lines of a file, which may be compressed, without their new lines.

    :raises OSError: it cannot be read.
    """
    try:
        with _open(path) as stream:
            for raw in stream:
                yield raw.rstrip(b"\n")
    except (EOFError, zlib.error) as err:
        raise OSError(errno.EIO, f"damaged compressed file: {err}", path) from err


def _open(path: str) -> IO[bytes] | gzip.GzipFile:
    if not path.endswith(".gz"):
        return open(path, "rb")
    return gzip.open(path)


def _last_renamed(path: str) -> tuple[int, str] | None:
    """Return the number and the checksum of the last line of the newest renamed file."""
    renamed = [one for one in files(path) if one != path]
    line = None
    for line in _lines(renamed[-1]) if renamed else ():  # noqa: B007  the last one counts
        pass
    return None if line is None else (_number(line), hashlib.sha256(line).hexdigest())


def _number(line: bytes) -> int:
    data, _problem = _read(line)
    number = data.get("n")
    return number if isinstance(number, int) else 0  # the verification finds such a line


def _last(path: str) -> tuple[int, str] | None:
    """Return the number and the checksum of the last line; remove a line without its end.

    :returns: None if there is no line, or no file.
    """
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
        return None
    lines = data[:end].splitlines()
    if not lines:
        return None
    return _number(lines[-1]), hashlib.sha256(lines[-1]).hexdigest()


class Problem(NamedTuple):
    """What is wrong with an audit log.

    :ivar place: file and number of the line in it.
    """

    place: str
    text: str


def verify(files: Sequence[str]) -> Iterator[tuple[dict[str, Any], Problem | None]]:
    """Read audit logs, oldest file first, and check that each line belongs after the one before.

    The first line of the first file may belong after an older file that was removed.

    :param files: paths; one whose name ends with ``.gz`` is compressed.
    :returns: each line as a dictionary (empty if it cannot be read), and what is wrong with it.
    :raises OSError: a file cannot be read.
    """
    prev: str | None = None
    number: int | None = None
    for path in files:
        for place, line in enumerate(_lines(path), 1):
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
        return {}, "it is not a line of an audit log"
    return data, None
