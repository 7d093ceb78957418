"""The files of the history of the configuration: a master writes them, candidates keep copies.

What is in a record is the affair of :mod:`ganeti.config.history`. Here counts only that a file is a
header line and then one line of JSON for each commit, and that a record names the state which it
made (``serial`` and ``time``) and the one before (``was``, a list of both). A *state* below is such
a pair: serial number, and time in seconds since 1970.

A candidate has the same files as the master, byte by byte. It gets the records of a commit together
with the commit (:func:`add`); where that does not fit, the master compares and sends the rest
(:func:`digests`, :func:`put`). A node which becomes master takes from others what it lacks
(:func:`reach`, :func:`put_below`).
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from ganeti import errors
from ganeti.utils import fs
from ganeti.wire import json

PREFIX: Final = "commits-"
FILE_MODE: Final = 0o600
DIR_MODE: Final = 0o700
APPEND: Final = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW

_NAME: Final = re.compile(r"commits-[0-9]{12,18}")
_BLOCK: Final = 1 << 16

State = tuple[int, float]


class Addition(NamedTuple):
    """Records which a commit has added to the newest file.

    :ivar oldest: name of the oldest file which the master still has.
    :ivar name: the file; ``offset`` is its size before, 0 for a new file.
    :ivar was: serial number and time of the state before the first record.
    :ivar text: what was added.
    """

    oldest: str
    name: str
    offset: int
    was: State
    text: str


class Section(NamedTuple):
    """Records of one file, the oldest first.

    :ivar header: the first line of the file; neither it nor ``lines`` have their new lines.
    """

    header: bytes
    lines: list[bytes]


def name_of(serial: int) -> str:
    """Return the name of a file whose first record made the state with this serial number."""
    return f"{PREFIX}{serial:012d}"


def first_serial(name: str) -> int:
    """Return the serial number in the name of a file."""
    return int(name[len(PREFIX) :])


def is_name(name: object) -> bool:
    """Tell whether a file of the history may have this name."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def names(directory: str) -> list[str]:
    """List the files, the oldest first; none if there is no directory."""
    try:
        return [name for name in fs.list_visible(directory) if is_name(name)]
    except FileNotFoundError:
        return []


# -- on a candidate --------------------------------------------------------------------------------


def add(directory: str, addition: Addition, owner: tuple[int, int] = (-1, -1)) -> bool:
    """Add the records of a commit, if they belong after the last record here.

    :param owner: user and group of a new file, as for :func:`os.chown`.
    :returns: False if they do not; then nothing was changed.
    :raises OSError: the files cannot be read or written.
    """
    present = names(directory)
    path = f"{directory}/{addition.name}"
    if not present:
        fits = addition.offset == 0 and addition.oldest == addition.name
    elif addition.offset:
        fits = present[-1] == addition.name and os.stat(path).st_size == addition.offset
    else:
        fits = present[-1] < addition.name
    if present and fits:
        fits = _last_state(f"{directory}/{present[-1]}") == addition.was
    if not fits:
        return False
    put(directory, addition.name, addition.offset, addition.text.encode(), owner=owner)
    for name in present:
        if name < addition.oldest:
            fs.remove_file(f"{directory}/{name}")
    return True


def put(
    directory: str, name: str, offset: int, content: bytes, *, owner: tuple[int, int] = (-1, -1)
) -> None:
    """Replace a file from an offset on.

    :raises OSError: it cannot be written, or is shorter than the offset.
    """
    fs.make_dirs(directory, DIR_MODE, uid=owner[0], gid=owner[1])
    path = f"{directory}/{name}"
    is_new = not os.path.exists(path)
    fd = os.open(path, APPEND | os.O_CREAT, FILE_MODE)
    try:
        if is_new and owner != (-1, -1):
            os.fchown(fd, *owner)
        if os.fstat(fd).st_size < offset:
            raise OSError(f"{path} has less than {offset} bytes")
        os.ftruncate(fd, offset)
        written = 0
        while written < len(content):
            written += os.write(fd, content[written:])
    except OSError:
        os.ftruncate(fd, min(offset, os.fstat(fd).st_size))
        raise
    finally:
        os.close(fd)


def digests(directory: str) -> dict[str, tuple[int, str]]:
    """Return the size in bytes and the SHA-256 checksum of each file.

    :raises OSError: a file cannot be read.
    """
    found = {}
    for name in names(directory):
        content = fs.read_bytes(f"{directory}/{name}")
        found[name] = (len(content), digest(content))
    return found


def digest(content: bytes) -> str:
    """Return the checksum in the answer of :func:`digests`."""
    return hashlib.sha256(content).hexdigest()


def _last_state(path: str) -> State | None:
    """Return the state which the last record of a file made; None without one."""
    with open(path, "rb") as stream:
        size, length = stream.seek(0, os.SEEK_END), _BLOCK
        data = b""
        while b"\n" not in data[:-1] and len(data) < size:
            stream.seek(max(0, size - length))
            data = stream.read()
            length *= 8
    lines = data.split(b"\n")
    if len(lines) < 2 or lines[-1]:
        return None
    try:
        record = json.loads(lines[-2])
        return int(record["serial"]), float(record["time"])
    except (errors.ParseError, KeyError, TypeError, ValueError):
        return None


# -- completing the history of a new master --------------------------------------------------------


def section_of(content: bytes) -> Section:
    """Take a file apart; an incomplete last line is left out."""
    header, *lines = content.split(b"\n")
    return Section(header, lines[:-1])


def joined(section: Section, point: State) -> tuple[Section, State]:
    """Return those records at the end of a section which lead to a state without a gap.

    :param point: the state after the last of them; records of later states are left out.
    :returns: the records, and the state before the first one; `point` itself if there are none.
    """
    end = start = None
    for place in range(len(section.lines) - 1, -1, -1):
        try:
            record: Any = json.loads(section.lines[place])
            made = (int(record["serial"]), float(record["time"]))
            was = (int(record["was"][0]), float(record["was"][1]))
        except (errors.ParseError, KeyError, IndexError, TypeError, ValueError):
            break
        if end is None and made[0] > point[0]:
            continue
        if made != point:
            break
        end = place if end is None else end
        start, point = place, was
    if start is None or end is None:
        return Section(section.header, []), point
    return Section(section.header, section.lines[start : end + 1]), point


def reach(directory: str, point: State) -> State:
    """Return the oldest state to which the records lead back from a state without a gap.

    :raises OSError: a file cannot be read.
    """
    for name in reversed(names(directory)):
        section = section_of(fs.read_bytes(f"{directory}/{name}"))
        _found, before = joined(section, point)
        if before == point and section.lines:
            break
        point = before
    return point


def put_below(directory: str, newest: State, older: Sequence[tuple[str, Section]]) -> None:
    """Replace all records before a gap by those of another node.

    :param newest: the present state; the records which lead back from it to the gap stay.
    :param older: name of a file and its records, the oldest first; the last one leads to the state
        before the gap.
    :raises OSError: a file cannot be written; the files are as before.
    """
    made = f"{directory}.new"
    shutil.rmtree(made, ignore_errors=True)
    fs.make_dirs(made, DIR_MODE)
    for name, section in (*older, *_until_gap(directory, newest)):
        put(made, name, 0, b"\n".join([section.header, *section.lines, b""]))
    former = f"{directory}.old"
    shutil.rmtree(former, ignore_errors=True)
    if os.path.isdir(directory):
        os.rename(directory, former)
    os.rename(made, directory)
    shutil.rmtree(former, ignore_errors=True)


def _until_gap(directory: str, newest: State) -> Iterator[tuple[str, Section]]:
    """Return the present records up to a state, the oldest first."""
    point: State = newest
    found: list[tuple[str, Section]] = []
    for name in reversed(names(directory)):
        section = section_of(fs.read_bytes(f"{directory}/{name}"))
        kept, before = joined(section, point)
        if kept.lines:
            serial = json.loads(kept.lines[0])["serial"]
            found.insert(0, (name_of(serial), kept))
        if before == point and section.lines:
            break
        point = before
    return iter(found)
