"""This node's word about who is master: its vote, its promise to a new one, and its demotion.

A vote changes nothing and is given to anybody of the cluster. A promise is for ever: from then on
nobody with a lower epoch is obeyed here (:mod:`ganeti.platform.master_epoch`), and what the answer
says about configuration and queue cannot be overtaken by an older master any more.
"""

from __future__ import annotations

import hashlib
import os
import re

from ganeti import errors
from ganeti.backend.cluster import config_file, jobqueue, ssconf
from ganeti.backend.registry import serves
from ganeti.constants import ssconf as ssconf_const
from ganeti.jobstore.store import journaled_serial
from ganeti.objects.transfer import MasterVote
from ganeti.platform import machine, master_epoch, paths
from ganeti.utils import daemonize, fs
from ganeti.wire import calls

_JOB = re.compile(r"job-([0-9]{1,16})")
#: Added to the name of a configuration that this node gave up.
DEMOTED_SUFFIX = ".demoted"


def last_job(directory: str) -> int:
    """The highest job id that the queue in a directory has given away; 0 without a queue.

    :raises JobQueueError: it cannot be read.
    """
    if not os.path.isdir(directory):
        return 0
    try:
        # Acknowledged jobs need not have files yet. First, because what leaves a journal is there.
        highest = journaled_serial(directory)
    except OSError as err:
        raise errors.JobQueueError(f"cannot read the job queue in {directory}: {err}") from err
    try:
        highest = max(highest, int(fs.read_file(f"{directory}/serial").strip() or "0"))
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as err:
        raise errors.JobQueueError(f"cannot read {directory}/serial: {err}") from err
    for name in os.listdir(directory):
        found = _JOB.fullmatch(name)
        if found is not None:
            highest = max(highest, int(found[1]))
    return highest


@serves(calls.MASTER_VOTE)
def vote() -> MasterVote:
    """What is here and whom this node takes for the master.

    :raises ConfigurationError: a file is damaged, so nothing can be said.
    """
    here = paths.current()
    memory = master_epoch.read()
    config, digest = _config(memory)
    return MasterVote(
        master=ssconf.read(ssconf_const.MASTER_NODE),
        epoch=str(memory.epoch),
        config_epoch=str(config[0]),
        config_serial=config[1],
        config_digest=digest,
        queue_epoch=str(memory.queue),
        last_job=last_job(here.queue_dir),
    )


def _config(memory: master_epoch.MasterState) -> tuple[tuple[master_epoch.Epoch, int], str]:
    """The newest configuration that is or was here, and the digest of its content."""
    path = paths.current().cluster_conf_file
    try:
        with open(path, "rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
    except FileNotFoundError:
        return memory.demoted, ""
    except OSError as err:
        raise errors.ConfigurationError(f"cannot read {path}: {err.strerror}") from err
    found = (memory.config, config_file.serial_of_file(path))
    return (found, digest) if found >= memory.demoted else (memory.demoted, "")


@serves(calls.MASTER_CLAIM)
def claim(epoch: str) -> MasterVote:
    """Promise to obey nobody below an epoch.

    :raises StaleEpochError: a higher one was promised.
    :raises ParseError: not an epoch.
    """
    master_epoch.claim(master_epoch.parse(epoch))
    return vote()


@serves(calls.NODE_DEMOTE_FROM_MC)
def demote() -> None:
    """Give up the copies that a master candidate has.

    The configuration stays beside its place, for people; the queue's files are removed.

    :raises ConfigurationError: this node is the master; nothing was changed.
    """
    here = paths.current()
    if ssconf.read(ssconf_const.MASTER_NODE).lower() == machine.current().hostname():
        raise errors.ConfigurationError("this node is the master and stays a master candidate")
    if daemonize.read_pid(here.pid_file("ganeti-masterd")) is not None:
        raise errors.ConfigurationError(
            "the master daemon runs on this node, so it stays a master candidate"
        )
    path = here.cluster_conf_file
    if os.path.exists(path):
        master_epoch.give_up_config(config_file.serial_of_file(path))
        os.replace(path, path + DEMOTED_SUFFIX)
        fs.flush_dir(here.data_dir)
    jobqueue.remove_jobs()
