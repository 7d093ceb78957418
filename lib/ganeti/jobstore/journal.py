"""The journal of a queue directory: one flush makes the content of many files durable.

A journal is a file ``journal-N``, a sequence of records::

    GJ1 <crc32 of the payload> <bytes in the payload>\\n<payload>\\n

whose payload is one line of JSON, ``{"files": [[name, bytes], ...], "archive": [ids]}``, followed
by the contents of these files. An incomplete record at the end was never acknowledged and is
dropped. The first record of a journal says how much of its predecessor counts (``"after"``), so
that a record whose flush failed, and which was therefore reported as failed, cannot come back
later.

:class:`JournalWriter` belongs to a :class:`~ganeti.jobstore.store.QueueStore`; the functions read
the journals of any directory.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ganeti import ht
from ganeti.constants import job as const
from ganeti.jobstore.files import SERIAL, job_id_of
from ganeti.utils import fs
from ganeti.wire import json

_log = logging.getLogger(__name__)

_JOURNAL_FILE = re.compile(r"journal-([0-9]+)\Z")
_HEADER = re.compile(rb"GJ1 ([0-9a-f]{8}) ([0-9]{1,12})\n")


def journal_file(number: int) -> str:
    """Return the name of a journal, relative to the queue directory."""
    return f"journal-{number}"


class JournalWriter:
    """Appends records to journals of one directory.

    One thread appends; others may read the attributes and properties.

    :param max_bytes: a journal above this size is replaced by a new one at the next record.
    :param give: sets mode and owner of a new file, given as file descriptor.
    :param fault: called with a name before every write and flush; tests let it raise
        :exc:`OSError`.
    :ivar number: number of the newest journal; 0 when there has been none.
    """

    def __init__(
        self,
        directory: str,
        *,
        max_bytes: int,
        give: Callable[[int], None],
        fault: Callable[[str], None],
    ) -> None:
        self._directory = directory
        self._max_bytes = max_bytes
        self._give = give
        self._fault = fault
        self.number = 0
        self._fd: int | None = None
        self._good_bytes = 0
        # How much of the last closed journal counts: (number, bytes). Goes into the next record.
        self._after: tuple[int, int] | None = None

    @property
    def in_use(self) -> int | None:
        """Number of the journal which takes the next record; None when that will be a new one."""
        return None if self._fd is None else self.number

    @property
    def removed(self) -> bool:
        """True if the journal in use was removed from the directory by another process."""
        fd = self._fd
        if fd is not None:
            # Another thread may just have closed it, for a new one.
            with contextlib.suppress(OSError):
                return os.fstat(fd).st_nlink == 0
        return False

    def append(self, files: Mapping[str, str], archive: Sequence[int]) -> None:
        """Append a record and flush it.

        :param files: content by name in the queue directory.
        :param archive: ids of jobs to be archived.
        :raises OSError: the record does not count.
        """
        if self._fd is not None and self._good_bytes >= self._max_bytes:
            self.close()
        if self._fd is None:
            self._begin()
        self._append(encode_record(files, archive, self._after))
        self._after = None

    def close(self) -> None:
        """Let the next record begin a new journal."""
        if self._fd is not None:
            fd, self._fd = self._fd, None
            self._after = self._after or (self.number, self._good_bytes)
            os.close(fd)

    def abandon(self) -> None:
        """Close the journal for ever, because another process uses the directory now."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def __del__(self) -> None:
        self.abandon()

    def _begin(self) -> None:
        number = self.number + 1
        path = f"{self._directory}/{journal_file(number)}"
        self._fault("create journal")
        fd = os.open(
            path,
            os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW,
            const.QUEUE_FILE_MODE,
        )
        try:
            self._give(fd)
            self._fault("flush directory")
            fs.flush_dir(self._directory)
        except OSError:
            os.close(fd)
            with contextlib.suppress(OSError):
                fs.remove_file(path)
            raise
        self._fd = fd
        self.number = number
        self._good_bytes = 0

    def _append(self, record: bytes) -> None:
        assert self._fd is not None
        try:
            self._fault("write journal")
            os.lseek(self._fd, self._good_bytes, os.SEEK_SET)
            write_all(self._fd, record)
        except OSError:
            # No flush was tried, so it is enough to cut the incomplete record off.
            self._cut(abandon=False)
            raise
        try:
            self._fault("flush journal")
            os.fdatasync(self._fd)
        except OSError:
            # The content of the disk is unknown now; this journal takes no further record.
            self._cut(abandon=True)
            raise
        self._good_bytes += len(record)

    def _cut(self, *, abandon: bool) -> None:
        assert self._fd is not None
        try:
            os.ftruncate(self._fd, self._good_bytes)
        except OSError:
            abandon = True
        if abandon:
            self._after = (self.number, self._good_bytes)
            self.close()


def write_all(fd: int, data: bytes) -> None:
    """Write all of `data` to a file descriptor.

    :raises OSError: a part of it may have been written.
    """
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def encode_record(
    files: Mapping[str, str], archive: Sequence[int], after: tuple[int, int] | None
) -> bytes:
    """Return a record.

    :param after: number of the journal before, and how many bytes of it count; None unless this is
        the first record of a journal with a predecessor.
    """
    contents = [(name, text.encode("utf-8", "surrogateescape")) for name, text in files.items()]
    head: dict[str, Any] = {"files": [[name, len(data)] for name, data in contents]}
    if archive:
        head["archive"] = list(archive)
    if after is not None:
        head["after"] = list(after)
    payload = b"".join([json.dumps(head).encode("ascii"), b"\n", *(data for _, data in contents)])
    return b"GJ1 %08x %d\n%s\n" % (zlib.crc32(payload), len(payload), payload)


class JournalContent(NamedTuple):
    """The part of a journal that counts.

    :ivar files: newest content of each file, by name in the queue directory.
    :ivar archived: ids of the jobs which were archived.
    """

    number: int
    files: dict[str, str]
    archived: list[int]


class _Record(NamedTuple):
    """A record; `end` is the position after it in the journal."""

    end: int
    head: dict[str, Any]
    files: dict[str, str]


def has_journals(directory: str) -> bool:
    """Return True if a process writes this queue now, or left changes for the next one."""
    try:
        return any(map(_JOURNAL_FILE.match, os.listdir(directory)))
    except (FileNotFoundError, NotADirectoryError):
        return False


def journaled_serial(directory: str) -> int:
    """Return the highest job id in the journals; 0 for none.

    These ids were acknowledged and may be missing in the files. A program which reads the files
    *after* this call misses no id.

    :raises OSError: a journal cannot be read.
    """
    highest = 0
    for content in read_journals(directory, os.listdir(directory)):
        for name, text in content.files.items():
            job_id = job_id_of(name)
            if job_id is not None:
                highest = max(highest, job_id)
            elif name == SERIAL and ht.JobId(text.strip()):
                highest = max(highest, int(text))
    return highest


def read_journals(directory: str, names: Iterable[str]) -> list[JournalContent]:
    """Return the parts that count of the journals among these names, oldest first.

    A journal which is removed meanwhile has become files and is left out.

    :raises OSError: a journal cannot be read.
    """
    records: dict[int, list[_Record]] = {}
    valid_bytes: dict[int, int] = {}
    for number in sorted(int(match[1]) for name in names if (match := _JOURNAL_FILE.match(name))):
        try:
            content = fs.read_bytes(f"{directory}/{journal_file(number)}")
        except FileNotFoundError:
            continue
        records[number], valid_bytes[number] = _parse(content)
        if valid_bytes[number] < len(content):
            _log.info(
                "job queue: journal-%d ends with %d bytes that were never acknowledged",
                number,
                len(content) - valid_bytes[number],
            )
    for found in records.values():
        for record in found:
            if record.head.get("after"):
                number, good = record.head["after"]
                valid_bytes[number] = good
    counted = []
    for number, found in records.items():
        files: dict[str, str] = {}
        archived: list[int] = []
        for record in found:
            if record.end > valid_bytes[number]:
                break
            files.update(record.files)
            archived.extend(record.head.get("archive", ()))
        counted.append(JournalContent(number, files, archived))
    return counted


def _parse(content: bytes) -> tuple[list[_Record], int]:
    """Return the records up to the first incomplete one, and the number of bytes they take."""
    found = []
    position = 0
    while position < len(content):
        match = _HEADER.match(content, position)
        if match is None:
            break
        start = match.end()
        size = int(match[2])
        payload = content[start : start + size]
        end = start + size + 1
        if len(payload) < size or content[end - 1 : end] != b"\n":
            break
        if zlib.crc32(payload) != int(match[1], 16):
            break
        head_line, _, rest = payload.partition(b"\n")
        head = json.loads(head_line)
        files = {}
        offset = 0
        for name, length in head["files"]:
            files[name] = rest[offset : offset + length].decode("utf-8", "surrogateescape")
            offset += length
        found.append(_Record(end, head, files))
        position = end
    return found, position
