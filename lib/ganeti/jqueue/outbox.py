"""What one candidate lacks of the job queue, cut into messages."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence

# Size of a message in bytes. A node daemon takes requests of 10 MiB, and JSON needs more space than
# the content of the files.
MESSAGE_BYTES = 4 << 20
# Number of files in a portion. Files that a candidate lacks are sent in portions, together with the
# changes of that time.
_BACKLOG_FILES = 500


@dataclasses.dataclass(slots=True)
class QueueMessage:
    """A message to a candidate.

    :ivar files: content by file name.
    :ivar size: of the content, in bytes.
    :ivar names: of files whose content is read just before the message is sent.
    :ivar archived: ids of jobs to be archived after the files were written.
    :ivar number: of the last commit which the candidate has completely afterwards; None if this is
        not the last message of a commit.
    """

    files: dict[str, str]
    size: int
    names: Sequence[str]
    archived: list[int]
    number: int | None

    def read(self, read: Callable[[str], str | None]) -> None:
        """Add the content of the files in :attr:`names`; those which do not fit stay there.

        Content that is read now is at least as new as every change before.

        :param read: returns the content of a file, or None if it does not exist any more.
        """
        for place, name in enumerate(self.names):
            text = read(name)
            if text is None:
                continue
            if self.files and self.size + len(text) > MESSAGE_BYTES:
                self.names = self.names[place:]
                return
            self.files[name] = text
            self.size += len(text)
        self.names = ()


class Outbox:
    """Changes and files which are to be sent to a candidate. Not thread-safe.

    :ivar number: of the last commit in it.
    :ivar ended: everything in it belongs to jobs that have ended.
    """

    def __init__(self) -> None:
        # Names of files that the candidate lacks.
        self._backlog: collections.deque[str] = collections.deque()
        self._files: dict[str, str] = {}
        self._archived: list[int] = []
        self.number = 0
        self.ended = True

    @property
    def empty(self) -> bool:
        """There is nothing to be sent."""
        return not (self._backlog or self._files or self._archived)

    def add(
        self, files: Mapping[str, str], archived: Iterable[int], number: int, *, ended: bool
    ) -> None:
        """Add the content of a commit."""
        self.ended = self.ended and ended
        self._files.update(files)
        self._archived.extend(archived)
        self.number = number

    def add_lacking(
        self, first: Mapping[str, str], names: Iterable[str], archived: list[int]
    ) -> None:
        """Add what a comparison has found.

        :param first: files which come before all others, because a node takes no changes to a copy
            which it does not have.
        :param names: of further files.
        :param archived: jobs which come before those of later commits.
        """
        # Files that changed meanwhile are to be sent already, in their newest form.
        self._backlog = collections.deque(name for name in names if name not in self._files)
        self._files = {**first, **self._files}
        self._archived = archived + self._archived

    def forget_backlog(self) -> None:
        """Forget the files which a comparison has found: the next one finds them again."""
        self._backlog.clear()

    def take(self) -> QueueMessage:
        """Take the next message."""
        files, size = self._take_files()
        names = self._take_backlog() if size < MESSAGE_BYTES and not self._files else []
        archived, number = self._take_rest()
        self.ended = not self._files
        return QueueMessage(files, size, names, archived, number)

    def put_back(self, message: QueueMessage) -> None:
        """Take back a message which was not sent."""
        self._files = {**message.files, **self._files}
        self._archived = message.archived + self._archived

    def put_back_rest(self, message: QueueMessage) -> None:
        """Take back what did not fit into a message, and what may follow only after that."""
        self._backlog.extendleft(reversed(message.names))
        self._archived = message.archived + self._archived

    def _take_files(self) -> tuple[dict[str, str], int]:
        """Take as many changed files as fit into a message; return them and their size in bytes."""
        files: dict[str, str] = {}
        size = 0
        for name, text in self._files.items():
            if files and size + len(text) > MESSAGE_BYTES:
                break
            files[name] = text
            size += len(text)
        if len(files) == len(self._files):
            self._files = {}
        else:
            for name in files:
                del self._files[name]
        return files, size

    def _take_backlog(self) -> list[str]:
        return [self._backlog.popleft() for _ in range(min(len(self._backlog), _BACKLOG_FILES))]

    def _take_rest(self) -> tuple[list[int], int | None]:
        """Take the ids to be archived and the number of the last commit, with the last message.

        Earlier messages have neither, because jobs are archived after all files are sent.
        """
        if self._files or self._backlog:
            return [], None
        archived, self._archived = self._archived, []
        return archived, self.number
