"""The part of this node in the choice of a master: vote, promise, and demotion of a candidate.

A vote changes nothing; every node of the cluster may ask for it. A promise is permanent: from then
on this node refuses every master with a lower epoch (:mod:`ganeti.platform.master_epoch`), so that
an older master cannot change the configuration or the queue which the answer describes.

Source: Ganeti design 2.0, *Master startup/failover*; ``doc/design-master-role.rst``.
"""

from __future__ import annotations

import os
import shutil

from ganeti import errors, ht
from ganeti.backend.cluster import config_file, jobqueue, ssconf
from ganeti.backend.registry import serves
from ganeti.configfile import files
from ganeti.constants import ssconf as ssconf_const
from ganeti.jobstore.files import job_id_of
from ganeti.jobstore.journal import journaled_serial
from ganeti.objects.transfer import MasterVote
from ganeti.platform import machine, master_epoch, paths
from ganeti.utils import daemonize, fs
from ganeti.wire import calls

#: Added to the name of a configuration that this node gave up.
DEMOTED_SUFFIX = ".demoted"


def last_job(directory: str) -> int:
    """Return the highest job id which the queue in a directory has assigned; 0 without a queue.

    :raises JobQueueError: a file of the queue cannot be read.
    """
    if not os.path.isdir(directory):
        return 0
    try:
        # Acknowledged jobs may be in a journal only. It is read first, because the records which
        # leave a journal are in files by then.
        highest = journaled_serial(directory)
    except OSError as err:
        raise errors.JobQueueError(f"cannot read the job queue in {directory}: {err}") from err
    try:
        text = fs.read_file(f"{directory}/serial").strip() or "0"
        if not ht.JobId(text):
            raise ValueError("it contains no job id")
        highest = max(highest, int(text))
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as err:
        raise errors.JobQueueError(f"cannot read {directory}/serial: {err}") from err
    for name in os.listdir(directory):
        highest = max(highest, job_id_of(name) or 0)
    return highest


@serves(calls.MASTER_VOTE)
def vote() -> MasterVote:
    """Describe the copies on this node, and which node it regards as master.

    :raises ConfigurationError: a file is damaged.
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
    """Return serial and digest of the newest configuration which is or was on this node."""
    path = paths.current().cluster_conf_file
    try:
        with files.opened(path) as snapshot:
            digest = snapshot.digest("sha256")
            found = (memory.config, config_file.serial_of_snapshot(snapshot))
    except FileNotFoundError:
        return memory.demoted, ""
    except OSError as err:
        raise config_file.cannot_read(path, err) from err
    return (found, digest) if found >= memory.demoted else (memory.demoted, "")


@serves(calls.MASTER_CLAIM)
def claim(epoch: str) -> MasterVote:
    """Promise to refuse every master with a lower epoch.

    :raises StaleEpochError: a higher one was promised.
    :raises ParseError: the text is not an epoch.
    """
    master_epoch.claim(master_epoch.parse(epoch))
    return vote()


@serves(calls.NODE_DEMOTE_FROM_MC)
def demote() -> None:
    """Remove what only master candidates have: the configuration, its history, and the job queue.

    The master calls after a majority of the candidates has the configuration in which this node is
    none. The node remembers which configuration it had, for later votes.

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
        master_epoch.give_up_config(config_file.highest_serial(path))
    # Earlier versions kept the copy under another name.
    fs.remove_file(path + DEMOTED_SUFFIX)
    # The node daemon may be folding in the journal.
    with master_epoch.config_lock():
        files.remove(path)
    # A former master has earlier configurations, with their secrets.
    if os.path.isdir(here.cluster_conf_history_dir):
        shutil.rmtree(here.cluster_conf_history_dir)
    fs.flush_dir(here.data_dir)
    jobqueue.remove_jobs()
