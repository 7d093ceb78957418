"""Names of the files in the queue directory.

These names are published: other programs read ``job-N``, ``serial``, ``version``, ``drain`` and
``archive/`` (Ganeti design 2.0, *Queue structure*).
"""

from __future__ import annotations

import os
import re

from ganeti import ht
from ganeti.constants import job as const

SERIAL = "serial"
VERSION = "version"
DRAIN = "drain"
ARCHIVE = "archive"
#: Folder of job files which could not be understood, for the administrator.
DAMAGED = "damaged"

# A number with more digits is that of no job (ht.MAX_JOB_ID).
_JOB_FILE = re.compile(r"job-([1-9][0-9]{0,15}|0)\Z")


def job_file(job_id: int) -> str:
    """Return the name of a live job's file, relative to the queue directory."""
    return f"job-{job_id}"


def archive_file(job_id: int) -> str:
    """Return the name of an archived job's file, relative to the queue directory."""
    return f"{ARCHIVE}/{job_id // const.JOBS_PER_ARCHIVE_DIR}/job-{job_id}"


def damaged_file(job_id: int) -> str:
    """Return the name of a job's file which was set aside, relative to the queue directory."""
    return f"{DAMAGED}/job-{job_id}"


def job_id_of(name: str) -> int | None:
    """Return the id of the live job to which a file belongs; None for any other file."""
    match = _JOB_FILE.fullmatch(name)
    return None if match is None or int(match[1]) > ht.MAX_JOB_ID else int(match[1])


def ids_in(directory: str) -> list[int]:
    """Return the ids of the jobs whose files are in a directory, ascending.

    :raises OSError: it cannot be read.
    """
    with os.scandir(directory) as entries:
        return sorted(
            job_id
            for entry in entries
            if (job_id := job_id_of(entry.name)) is not None
            and not entry.is_dir(follow_symlinks=False)
        )
