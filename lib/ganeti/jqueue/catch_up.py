"""What a master candidate lacks of the queue, worked out by comparing both directories.

Asked for a candidate that has just become one, that was away, and, when the master daemon starts,
for every one: what an earlier daemon still had to send is known to nobody any more. Only what
differs is sent then. The archive belongs to it: a successor of this master shall find it.

A candidate may have jobs of which the master knows nothing, when somebody made a node with older
data the master. They could run or be listed there one day, so such a copy is emptied and sent anew.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from ganeti import errors
from ganeti.jobstore import inventory as queue_inventory
from ganeti.jobstore.inventory import Inventory
from ganeti.jobstore.store import QueueStore, archive_file, job_file

_log = logging.getLogger(__name__)

# How many job ids a line of the log names.
_MAX_NAMED = 10

_T = TypeVar("_T")


class CatchUpPlan(NamedTuple):
    """What has to happen for a copy to be the same.

    :ivar purge: the copy must be emptied before.
    :ivar first: content of small files which have to be there first, by name.
    :ivar names: files to send after that.
    :ivar moved: jobs to be archived after that.
    :ivar drained: set the drain flag so; None when it is right.
    """

    purge: bool
    first: dict[str, str]
    names: list[str]
    moved: list[int]
    drained: bool | None


class LocalQueue:
    """The queue of this node, as far as it is on disk. Used by several threads."""

    def __init__(self, store: QueueStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._latest: tuple[float, Inventory] | None = None

    def inventory(self, since: float) -> Inventory:
        """What the directory holds, looked at not before `since` (monotonic seconds).

        Candidates which want it at the same time share it.

        :raises errors.JobQueueError: it cannot be read; so for those below.
        """
        with self._lock:
            if self._latest is None or self._latest[0] < since:
                looked = time.monotonic()
                self._latest = (
                    looked,
                    self._reading(lambda: queue_inventory.take(self._store.directory)),
                )
            return self._latest[1]

    def sizes_of_part(self, part: int) -> dict[int, int]:
        """Size of each job's file in a part of the archive."""
        return self._reading(lambda: queue_inventory.sizes_of_part(self._store.directory, part))

    def read(self, name: str) -> str | None:
        """Newest content of a file by its name in the directory; None when there is none.

        A job that was archived meanwhile is found under its old name.
        """
        text = self._reading(lambda: self._store.read_published(name))
        # A file with other bytes than text was damaged by something; no message can carry it.
        return None if text is None or not _is_text(text) else text

    def _reading(self, look: Callable[[], _T]) -> _T:
        try:
            return look()
        except OSError as err:
            raise errors.JobQueueError(
                f"cannot read the job queue in {self._store.directory}: {err}"
            ) from err


def plan(
    candidate: str, here: LocalQueue, since: float, ask: Callable[[Sequence[int]], Inventory]
) -> CatchUpPlan:
    """Compare a candidate's copy with this node's queue.

    :param since: when this process did not send it anything yet, or began to fail to.
    :param ask: what the candidate has; with the jobs in these parts of the archive.
    :raises errors.GenericError: one of the two cannot be read.
    """
    there = ask(())
    mine = here.inventory(since)
    found = queue_inventory.compare(
        mine, there, lambda job_id: here.read(archive_file(job_id)) is not None
    )
    drained = None if mine.drained == there.drained else mine.drained
    unknown = [job_id for job_id in found.unknown if here.read(job_file(job_id)) is None]
    if unknown:
        _log.warning(
            "job queue: candidate %s has jobs which do not exist (%s); its copy is made anew",
            candidate,
            ", ".join(map(str, unknown[:_MAX_NAMED])),
        )
        nothing = Inventory({}, dict.fromkeys(mine.plain), mine.drained, {}, {})
        found = queue_inventory.compare(mine, nothing, lambda job_id: False)
        theirs: dict[int, dict[int, int]] = {}
    else:
        theirs = ask(found.parts).archived if found.parts else {}
    first = {
        name: text for name, text in mine.plain.items() if name in found.files and text is not None
    }
    names = [name for name in (*found.files, *map(job_file, found.moved)) if name not in first]
    moved = set(found.moved)
    for part in found.parts:
        sizes = theirs.get(part, {})
        names += [
            archive_file(job_id)
            for job_id, size in sorted(here.sizes_of_part(part).items())
            if sizes.get(job_id) != size and job_id not in moved
        ]
    if names:
        _log.info("job queue: candidate %s lacks %d files", candidate, len(names))
    return CatchUpPlan(bool(unknown), first, names, found.moved, drained)


def _is_text(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
