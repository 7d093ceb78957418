"""The live jobs of the queue, and the lock which guards them.

:class:`JobTable` is the state which the parts of the queue share: :mod:`.queue` adds and archives
jobs, :mod:`.scheduler` executes and ends them, :mod:`.publisher` shows committed states to clients.
All of them change it with :attr:`JobTable.lock` held, and never hold that lock during disk or
network I/O.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from ganeti import errors
from ganeti.constants import job as const
from ganeti.jobstore.store import QueueStore
from ganeti.jqueue import job as jobs
from ganeti.locking import Owner

_log = logging.getLogger(__name__)


class JobTable:
    """Jobs in memory, and access to the archived ones.

    :param now: the time as ``(seconds, microseconds)`` since the epoch.
    :param livelock: file which this process keeps locked; names the process in job files.
    :ivar lock: guards this table, every job in it, and the state of the queue's other parts.
    :ivar jobs: live jobs by id, those included whose first commit is under way.
    :ivar serial: the highest job id given out so far.
    :ivar skipped: the first and the last job id which the master before may have given out.
    :ivar lost: why a job could not be read at the start, by id.
    :ivar unfinished: number of jobs which have not ended.
    :ivar stopping: the queue starts no opcode and takes no job any more.
    """

    def __init__(
        self, store: QueueStore, *, now: Callable[[], tuple[int, int]], livelock: str | None
    ) -> None:
        self.store = store
        self.now = now
        self.livelock = livelock
        self.lock = threading.RLock()
        self.jobs: dict[int, jobs.QueuedJob] = {}
        self.skipped = (0, 0)
        self.lost: dict[int, str] = {}
        self.serial = 0
        self.unfinished = 0
        self.stopping = False

    def skip_ids(self) -> None:
        """Leave out the job ids which the master before may have given out."""
        self.skipped = (self.serial + 1, self.serial + const.JOB_ID_GAP)
        self.serial += const.JOB_ID_GAP

    def had(self, job_id: int) -> bool:
        """Return True if a job of this id was here at some time."""
        first, last = self.skipped
        return job_id <= self.serial and not first <= job_id <= last

    def known(self, job_id: int) -> jobs.QueuedJob | None:
        """Return a live job whose first commit is done; None for any other id. Needs the lock."""
        job = self.jobs.get(job_id)
        return None if job is None or job.new else job

    def archived(self, job_id: int) -> jobs.QueuedJob | None:
        """Read a job from the archive; None when it is not there or cannot be read."""
        try:
            text = self.store.read_archived(job_id)
            return None if text is None else jobs.decode(text, archived=True)
        except (OSError, errors.JobFileCorrupted) as err:
            _log.warning("archived job %d cannot be read: %s", job_id, err)
            return None

    def status_of(self, job_id: int) -> str | None:
        """Return the present state of a live or archived job; None when there is no such job."""
        job = self.jobs.get(job_id)
        if job is None:
            job = self.archived(job_id)
        return None if job is None else job.status

    def owner(self, job_id: int) -> Owner:
        """Return the name under which a job owns locks.

        The worker of the master daemon releases the locks of a job which has a process of its own.
        """
        return Owner(job_id, f"job-{job_id}", self.livelock)
