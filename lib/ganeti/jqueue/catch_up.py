"""Comparison of a master candidate's copy with the queue, and the steps which make them equal.

The comparison is made for a node that has just become a candidate, for one that comes back after a
failure, and for every candidate when the master daemon starts, because nothing records what an
earlier daemon still had to send. Then only the differences are sent. The archive is compared, too,
so that the next master has it.

A candidate may have jobs which the master does not have, when an administrator made a node with
older data the master. Such jobs could run or be listed later, so the copy is emptied and sent anew.
But a job which the master must have had is lost or damaged here. Then nothing is sent in its place,
and it is fetched (:mod:`.restore`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from ganeti import errors
from ganeti.jobstore import inventory as queue_inventory
from ganeti.jobstore.files import archive_file, job_file, job_id_of
from ganeti.jobstore.inventory import Inventory
from ganeti.jobstore.store import QueueStore
from ganeti.jqueue.restore import is_damaged

_log = logging.getLogger(__name__)

# Number of job ids which a line of the log names.
_MAX_NAMED = 10

_T = TypeVar("_T")


class CatchUpPlan(NamedTuple):
    """The steps which make a copy equal to this node's queue.

    :ivar purge: the copy must be emptied before everything else.
    :ivar first: content of small files which have to be sent first, by name.
    :ivar names: names of files to send after `first`.
    :ivar moved: ids of jobs to be archived after `names`.
    :ivar drained: the drain flag to be set; None when it is right already.
    """

    purge: bool
    first: dict[str, str]
    names: list[str]
    moved: list[int]
    drained: bool | None


class LocalQueue:
    """The queue directory of this node, for comparisons. Used by several threads.

    :param had: tells whether this node has had a job of this id.
    :param restore: brings jobs back whose files are lost or damaged here.
    """

    def __init__(
        self,
        store: QueueStore,
        had: Callable[[int], bool] = lambda _job_id: False,
        restore: Callable[[Sequence[int]], None] = lambda _job_ids: None,
    ) -> None:
        self._store = store
        self.had = had
        self.restore = restore
        self._lock = threading.Lock()
        self._latest: tuple[float, Inventory] | None = None

    def drained(self) -> bool:
        """Return True if the queue is marked to take no new jobs."""
        return self._store.drained()

    def inventory(self, since: float) -> Inventory:
        """Return an inventory of the directory, which is not older than `since`.

        Candidates which need an inventory at the same time share it.

        :param since: seconds of the monotonic clock.
        :raises errors.JobQueueError: the directory cannot be read.
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
        """Return the size in bytes of each job's file in a part of the archive, by job id.

        :raises errors.JobQueueError: the directory cannot be read.
        """
        return self._reading(lambda: queue_inventory.sizes_of_part(self._store.directory, part))

    def read(self, name: str) -> str | None:
        """Return the newest content of a file by its name; None when there is no such file.

        A job that was archived meanwhile is found under its old name.

        :raises errors.JobQueueError: the directory cannot be read.
        """
        text = self._reading(lambda: self._store.read_published(name))
        # A file with bytes which are not text is damaged, and no message can carry it.
        return None if text is None or not _is_text(text) else text

    def is_damaged(self, job_id: int, name: str) -> bool:
        """Tell whether the file of a job cannot be read here, or holds no such job."""
        try:
            return is_damaged(job_id, self._store.read_published(name))
        except OSError:
            return True

    def _reading(self, read: Callable[[], _T]) -> _T:
        try:
            return read()
        except OSError as err:
            raise errors.JobQueueError(
                f"cannot read the job queue in {self._store.directory}: {err}"
            ) from err


def plan(
    candidate: str, here: LocalQueue, since: float, ask: Callable[[Sequence[int]], Inventory]
) -> CatchUpPlan:
    """Compare a candidate's copy with this node's queue.

    :param candidate: its name in the log.
    :param since: monotonic time at which this process had sent it nothing, or began to fail.
    :param ask: returns the candidate's inventory, with the jobs in these parts of the archive.
    :raises errors.GenericError: one of the two directories cannot be read.
    """
    there = ask(())
    mine = here.inventory(since)
    found = queue_inventory.compare(
        mine, there, lambda job_id: here.read(archive_file(job_id)) is not None
    )
    drained = None if mine.drained == there.drained else mine.drained
    missing = [job_id for job_id in found.unknown if here.read(job_file(job_id)) is None]
    lost = {job_id for job_id in missing if here.had(job_id)}
    damaged = {
        job_id
        for name in found.files
        if (job_id := job_id_of(name)) in there.live and here.is_damaged(job_id, name)
    }
    if lost or damaged:
        _log.error(
            "job queue: candidate %s has jobs whose files are damaged or missing here: %s",
            candidate,
            ", ".join(map(str, sorted(lost | damaged)[:_MAX_NAMED])),
        )
        here.restore(sorted(lost | damaged))
    unknown = [job_id for job_id in missing if job_id not in lost]
    if unknown:
        _log.warning(
            "job queue: candidate %s has jobs which do not exist (%s); its copy is emptied and"
            " sent anew",
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
    names = [
        name
        for name in (*found.files, *map(job_file, found.moved))
        if name not in first and job_id_of(name) not in damaged
    ]
    for part in found.parts:
        names += _archived(here, part, theirs.get(part, {}), set(found.moved))
    if names:
        _log.info("job queue: candidate %s lacks %d files", candidate, len(names))
    return CatchUpPlan(bool(unknown), first, names, found.moved, drained)


def _archived(here: LocalQueue, part: int, sizes: Mapping[int, int], moved: set[int]) -> list[str]:
    """Return the files of a part of the archive which a candidate lacks.

    Damaged files of this node are not among them: they are restored.

    :param sizes: id of a job in this part of the candidate's archive -> size of its file.
    :param moved: jobs which the candidate archives itself.
    """
    differing = [
        job_id
        for job_id, size in sorted(here.sizes_of_part(part).items())
        if sizes.get(job_id) != size and job_id not in moved
    ]
    damaged = {
        job_id
        for job_id in differing
        if job_id in sizes and here.is_damaged(job_id, archive_file(job_id))
    }
    if damaged:
        here.restore(sorted(damaged))
    return [archive_file(job_id) for job_id in differing if job_id not in damaged]


def _is_text(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
