"""Functions which ``cfgshell``, ``cfgupgrade`` and ``sanitize-config`` share.

These programs work on the file of a configuration. They read it at any time, and write it only
while no master daemon uses it.
"""

from __future__ import annotations

import contextlib
import os
import sys
from contextlib import AbstractContextManager
from typing import Any

from ganeti import errors
from ganeti.config import verify
from ganeti.configfile import files as configfile
from ganeti.constants import job
from ganeti.constants import ssconf as ssconf_const
from ganeti.jobstore import files
from ganeti.jobstore.journal import read_journals
from ganeti.objects import ConfigData, codec
from ganeti.platform import machine, master_epoch, paths
from ganeti.utils import clock, filelock, fs
from ganeti.wire import json

#: Largest number of jobs which an error names.
_MAX_NAMED = 10


def say(text: str) -> None:
    """Print a message to standard error; standard output is for results."""
    print(text, file=sys.stderr, flush=True)


def read_raw(path: str) -> Any:
    """Read a file as JSON; the content is not checked.

    :raises ConfigurationError: the file cannot be read, or is not JSON.
    """
    try:
        return json.loads(configfile.read(path))
    except OSError as err:
        raise errors.ConfigurationError(
            f"cannot read {err.filename or path}: {err.strerror}"
        ) from err
    except errors.ParseError as err:
        raise errors.ConfigurationError(f"{path}: {err}") from err


def refuse_while_master_runs(data_dir: str) -> None:
    """Check that no master daemon uses a configuration.

    :param data_dir: directory of the configuration.
    :raises ConfigurationError: a master daemon uses it.
    """
    lock = f"{data_dir}/queue/lock"
    if os.path.exists(lock) and filelock.is_locked(lock):
        raise errors.ConfigurationError(
            f"a master daemon uses the configuration in {data_dir}. Stop it first."
        )


def refuse_unfinished_jobs(data_dir: str) -> None:
    """Check that no job waits in the queue to be run by a master daemon of another version.

    Source: Ganeti design 2.0, *Ganeti updates*.

    :param data_dir: directory of the configuration and of the queue, which is only read.
    :raises ConfigurationError: a job has not ended, or the queue cannot be read.
    """
    left = [str(job_id) for job_id in unfinished_jobs(data_dir)]
    if left:
        more = f" and {len(left) - _MAX_NAMED} more" if len(left) > _MAX_NAMED else ""
        raise errors.ConfigurationError(
            f"the job queue has jobs which have not ended: {', '.join(left[:_MAX_NAMED])}{more}."
            " Start the master daemon of the former version, use 'gnt-cluster queue drain', wait"
            " for the jobs or cancel them, and stop the daemon again."
        )


def unfinished_jobs(data_dir: str) -> list[int]:
    """Return the jobs of a queue which have not ended; a job which cannot be understood counts.

    :param data_dir: directory of the configuration and of the queue, which is only read.
    :raises ConfigurationError: the queue cannot be read.
    """
    directory = f"{data_dir}/queue"
    if not os.path.isdir(directory):
        return []
    texts: dict[int, bytes | str] = {}
    try:
        for job_id in files.ids_in(directory):
            texts[job_id] = fs.read_bytes(f"{directory}/{files.job_file(job_id)}")
        # What a master daemon has not written into the files of the jobs before it was killed.
        for journal in read_journals(directory, os.listdir(directory)):
            for name, text in journal.files.items():
                changed = files.job_id_of(name)
                if changed is not None:
                    texts[changed] = text
            for job_id in journal.archived:
                texts.pop(job_id, None)
    except (OSError, errors.GenericError) as err:
        raise errors.ConfigurationError(f"cannot read the job queue in {directory}: {err}") from err
    return [job_id for job_id, text in sorted(texts.items()) if not _has_ended(text)]


def _has_ended(text: bytes | str) -> bool:
    """Return True if the job in a file has ended.

    A file which cannot be understood counts as no.
    """
    try:
        return all(op["status"] in job.FINALIZED for op in json.loads(text)["ops"])
    except (errors.ParseError, LookupError, TypeError):
        return False


def refuse_elsewhere(data_dir: str) -> None:
    """Check that this machine is the master of its cluster.

    :param data_dir: directory of the configuration and of the ssconf files.
    :raises ConfigurationError: another machine is the master.
    """
    path = f"{data_dir}/{ssconf_const.FILE_PREFIX}{ssconf_const.MASTER_NODE}"
    try:
        master = fs.read_file(path).strip()
    except OSError as err:
        raise errors.ConfigurationError(f"cannot read {path}: {err.strerror}") from err
    own = machine.current().hostname()
    if master.lower() != own:
        raise errors.ConfigurationError(
            f"this machine ({own}) is not the master; the master is {master}. On other machines"
            " the file is a copy, which the master replaces."
        )


def problems_of(config: dict[str, Any]) -> tuple[ConfigData, list[str]]:
    """Decode a configuration of this version, and look for contradictions.

    :returns: the objects, and a text for each contradiction.
    :raises ConfigurationError: a value has the wrong type; the message has its path.
    """
    data = codec.from_dict(ConfigData, config)
    return data, verify.check(data)


def backup(path: str, label: str) -> str:
    """Copy a configuration, with what is in its journal, to ``<path>.backup-<label>``.

    The copy has the mode of the file. If that file exists, a number is appended to the name.

    :returns: the path of the copy.
    :raises OSError: the copy could not be written.
    """
    target = fs.free_name(f"{path}.backup-{label}")
    fs.write_file(target, configfile.read(path), mode=os.stat(path).st_mode & 0o777)
    return target


def write(path: str, config: dict[str, Any]) -> None:
    """Write a configuration; the new file has the owner of the old one.

    :raises OSError: the file could not be written, and the old one is unchanged.
    :raises LockError: another process writes the file.
    """
    before = os.stat(path)
    with lock_of(path):
        configfile.write_config_file(path, json.dumps(config).encode() + b"\n")
    if (before.st_uid, before.st_gid) != (os.geteuid(), os.getegid()):
        os.chown(path, before.st_uid, before.st_gid)


def lock_of(path: str) -> AbstractContextManager[None]:
    """Return the lock of those who write a configuration: the node daemon may be folding in.

    The configuration of another directory has none.
    """
    own = path == paths.current().cluster_conf_file
    return master_epoch.config_lock() if own else contextlib.nullcontext()


def next_serial(config: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration with the next serial number and the current time.

    Nodes prefer the copy with the highest serial number.
    """
    return {**config, "serial_no": config["serial_no"] + 1, "mtime": clock.now()}
