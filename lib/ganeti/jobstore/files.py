"""Names of the files in the queue directory.

These names are published: other programs read ``job-N``, ``serial``, ``version``, ``drain`` and
``archive/`` (Ganeti design 2.0, *Queue structure*).
"""

from __future__ import annotations

import os
import re

from ganeti.constants import job as const

SERIAL = "serial"
VERSION = "version"
DRAIN = "drain"
ARCHIVE = "archive"

_JOB_FILE = re.compile(r"job-([1-9][0-9]*|0)\Z")


def job_file(job_id: int) -> str:
    """Return the name of a live job's file, relative to the queue directory."""
    return f"job-{job_id}"


def archive_file(job_id: int) -> str:
    """Return the name of an archived job's file, relative to the queue directory."""
    return f"{ARCHIVE}/{job_id // const.JOBS_PER_ARCHIVE_DIR}/job-{job_id}"


def job_id_of(name: str) -> int | None:
    """Return the id of the live job to which a file belongs; None for any other file."""
    match = _JOB_FILE.match(name)
    return None if match is None else int(match[1])


def ids_in(directory: str) -> list[int]:
    """Return the ids of the jobs whose files are in a directory, ascending.

    :raises OSError: it cannot be read.
    """
    with os.scandir(directory) as entries:
        return sorted(
            int(match[1])
            for entry in entries
            if (match := _JOB_FILE.match(entry.name)) and not entry.is_dir()
        )
