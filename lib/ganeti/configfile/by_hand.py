"""What an administrator can do when the journal does not belong to the file ``config.data``.

The file was edited, restored or replaced by hand, while a journal beside it had changes which the
file lacks. Two ways out are here: to go on with the file and without these changes, or to go back
to a copy of the file to which the journal belongs, and to the changes. Nothing is removed: the
journal, or the edited file, gets another name.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from typing import NamedTuple

from ganeti.configfile import files
from ganeti.configfile import journal as records
from ganeti.utils import fs

# Editors and programs which restore files leave copies with such names beside the file.
_COPIES = ("*", ".*")


class JournalChange(NamedTuple):
    """A change in a journal.

    :ivar serial_no: of the state after it; None if that is not known.
    :ivar new_text: what is new in the text, without what it takes from the text before.
    """

    serial_no: int | None
    new_text: str


class Finding(NamedTuple):
    """What is beside the file of a configuration.

    :ivar exists: there is a journal.
    :ivar serial_no: serial number at the end of the file; None if there is none.
    :ivar belongs: the journal belongs to the file.
    :ivar changes: those which the file lacks, when the journal belongs to it; otherwise all.
    :ivar bases: copies of the file to which the journal belongs.
    :ivar set_aside: journals which were set aside earlier.
    """

    exists: bool
    serial_no: int | None
    belongs: bool
    changes: Sequence[JournalChange]
    bases: Sequence[str]
    set_aside: Sequence[str]


def look(path: str) -> Finding:
    """Look at a configuration and its journal; nothing is changed.

    :param path: of the file.
    :raises OSError: one of them cannot be read.
    """
    journal = files.read_journal(path)
    start: int | None = 0
    serial_no = None
    if os.path.exists(path):
        with files.file_alone(path) as alone:
            serial_no = records.serial_of_end(alone.end())
            start = records.belonging(journal or b"", alone.is_base, alone.end()).start
            try:
                alone.state(journal or b"")
            except files.OtherBaseError:
                start = None
    else:
        start = None
    changes = [
        JournalChange(_serial_after(entry), _new_text(entry))
        for entry in records.records(journal or b"", start or 0)
        if entry.change is not None
    ]
    return Finding(
        journal is not None,
        serial_no,
        journal is None or start is not None,
        changes,
        () if journal is None or start is not None else copies_with(path),
        sorted(files.set_aside_journals(path)),
    )


def _serial_after(entry: records.Entry) -> int | None:
    after = records.serial_of_end(entry.new_end)
    if after is None and entry.change is not None:
        before = records.serial_of_end(entry.change.base_end)
        after = None if before is None else before + 1
    return after


def _new_text(entry: records.Entry) -> str:
    parts = entry.change.parts if entry.change is not None else ()
    return " ... ".join(part.decode("utf-8") for part in parts if isinstance(part, bytes))


def copies_with(path: str) -> list[str]:
    """Return the copies beside a file to which its journal belongs."""
    directory, name = os.path.split(path)
    found = set()
    for before in _COPIES:
        found |= set(glob.glob(f"{glob.escape(directory)}/{before}{glob.escape(name)}*"))
        found |= set(glob.glob(f"{glob.escape(directory)}/{before}{glob.escape(name)}*/*"))
    return sorted(
        other
        for other in found - {path, files.journal_of(path)}
        if os.path.isfile(other) and _is_base(other, path)
    )


def _is_base(copy: str, path: str) -> bool:
    try:
        with_changes(path, copy)
    except OSError:
        return False
    return True


def with_changes(path: str, copy: str) -> bytes:
    """Return the text which a copy of a file and the journal of the file make.

    :raises OtherBaseError: the journal does not belong to the copy.
    :raises OSError: one of them cannot be read.
    """
    journal = files.read_journal(path) or b""
    with files.file_alone(copy) as alone:
        state = alone.state(journal)
        if not state.in_use:
            raise files.OtherBaseError(copy, None, records.serial_of_end(alone.end()))
        return b"".join(alone.chunks(state.content.parts))


def go_back(path: str, copy: str) -> str | None:
    """Replace a file by a copy of it with the changes in the journal.

    The caller has the lock of the configuration.

    :returns: the path under which the present file is kept; None if there was none.
    :raises OtherBaseError: the journal does not belong to the copy; nothing was changed.
    :raises OSError: nothing was changed.
    """
    text = with_changes(path, copy)
    kept = None
    if os.path.exists(path):
        kept = fs.free_name(f"{path}.replaced")
        fs.write_file(kept, fs.read_bytes(path), mode=0o600)
    files.write_config_file(path, text)
    return kept
