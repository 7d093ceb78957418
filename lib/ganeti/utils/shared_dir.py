"""Find out whether two machines see the same directory: one makes a file, the other looks for it.

A path says nothing: several machines may have mounted one file system there, or each its own. A
file with a new, random name (a *mark*) decides. Its name has never been looked up before, so that
no cache of a network file system has an answer of the past. The file is empty, because its name is
the whole answer, and nothing is flushed, because nobody needs the answer after a power failure.

A mark is removed after the comparison. What an interrupted one has left, the next mark in the
directory removes when it is older than an hour by the clock of the file system. When the directory
of an instance is removed, its marks go with it.
"""

from __future__ import annotations

import os
import re

from ganeti import TYPE_CHECKING
from ganeti.utils import fs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

#: Begin of the names of marks; the dot hides them from lists of visible files.
PREFIX = ".same-directory."
_STALE_S = 3600
_WORD = re.compile(r"[0-9A-Za-z-]{1,100}", re.ASCII)


def mark_name(token: str, key: str) -> str:
    """Return the name of a mark.

    :param token: of one comparison, random.
    :param key: of the machine, such as its UUID.
    :raises ValueError: one of them has characters which such a name cannot have.
    """
    for word in (token, key):
        if not _WORD.fullmatch(word):
            raise ValueError(f"{word!r:.80} cannot be a part of the name of a mark")
    return f"{PREFIX}{token}.{key}"


def mark(directory: str, token: str, key: str) -> None:
    """Make a mark in a directory of this machine, and remove marks which were forgotten there.

    :raises OSError: the directory does not exist, or cannot be written.
    """
    name = mark_name(token, key)
    fd = os.open(f"{directory}/{name}", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        now = os.fstat(fd).st_mtime
    finally:
        os.close(fd)
    for other in os.listdir(directory):
        if other.startswith(PREFIX) and other != name:
            path = f"{directory}/{other}"
            try:
                stale = os.stat(path).st_mtime < now - _STALE_S
            except FileNotFoundError:
                continue
            if stale:
                fs.remove_file(path)


def seen(directory: str, token: str, keys: Iterable[str]) -> list[str]:
    """Return those keys whose marks are in a directory; a missing directory has none.

    :raises OSError: it is not known, because the directory cannot be read.
    """
    found = []
    for key in keys:
        try:
            os.lstat(f"{directory}/{mark_name(token, key)}")
        except (FileNotFoundError, NotADirectoryError):
            continue
        found.append(key)
    return found


def unmark(directory: str, token: str, key: str) -> None:
    """Remove a mark; one which is not there is not an error.

    :raises OSError: it cannot be removed.
    """
    try:
        fs.remove_file(f"{directory}/{mark_name(token, key)}")
    except NotADirectoryError:
        return


def groups(sees: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Sort machines into groups which have one directory.

    :param sees: machine -> the machines whose marks it sees, in any order. One direction is enough.
    :returns: each machine once, in the order of ``sees``.
    """
    leader = {machine: machine for machine in sees}

    def top(machine: str) -> str:
        while leader[machine] != machine:
            machine = leader[machine]
        return machine

    for machine, others in sees.items():
        for other in others:
            if other in leader:
                leader[top(other)] = top(machine)
    found: dict[str, list[str]] = {}
    for machine in sees:
        found.setdefault(top(machine), []).append(machine)
    return list(found.values())


def group_of(machine: str, found: Sequence[Sequence[str]]) -> Sequence[str]:
    """Return the group of a machine; only itself when it is in none."""
    return next((one for one in found if machine in one), (machine,))
