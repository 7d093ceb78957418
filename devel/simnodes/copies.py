"""What simulated nodes answer about the configuration, the job queue, ssconf, and the master."""

from __future__ import annotations

import hashlib
from typing import Any

from devel.simnodes.answers import answers
from devel.simnodes.state import SimNode
from ganeti import errors
from ganeti.backend.cluster import config_file
from ganeti.configfile.content import Change
from ganeti.constants import failover, ssconf
from ganeti.jobstore import audit, inventory
from ganeti.jobstore.files import SERIAL, VERSION, job_id_of
from ganeti.objects.transfer import MasterStatus, MasterVote, WatchdogStatus
from ganeti.platform import master_epoch
from ganeti.utils import clock
from ganeti.wire import calls
from ganeti.wire.calls.base import FileDetails
from ganeti.wire.calls.cluster import OTHER_HISTORY

_CONFIG = "/config.data"


def _master(node: SimNode) -> str:
    return node.copies.ssconf.get(ssconf.MASTER_NODE, "").strip()


# -- ssconf and files ------------------------------------------------------------------------------


@answers(calls.WRITE_SSCONF_FILES)
def write_ssconf(node: SimNode, values: dict[str, str]) -> None:
    """Replace values."""
    node.copies.ssconf.update(values)


@answers(calls.MASTER_NODE_NAME)
def master_node_name(node: SimNode) -> str:
    """Return the name of the master.

    :raises ConfigurationError: the node knows none.
    """
    name = _master(node)
    if not name:
        raise errors.ConfigurationError("this node has no ssconf files")
    return name


@answers(calls.UPLOAD_FILE)
def upload(node: SimNode, file: FileDetails) -> None:
    """Replace a file."""
    if file.path.endswith(_CONFIG):
        node.copies.text = node.fleet.shared(file.content.encode())
        node.copies.journal = b""
        node.copies.config_epoch = node.copies.epoch
    else:
        node.copies.files[file.path] = file.content


@answers(calls.UPLOAD_FILE_SINGLE)
def upload_single(node: SimNode, path: str, content: str, **_args: Any) -> None:
    """Replace a file, in the published form of the call."""
    upload(node, FileDetails(path, content, 0, "", "", clock.now(), clock.now()))


# -- configuration ---------------------------------------------------------------------------------


@answers(calls.CONFIG_READ)
def read(node: SimNode) -> str:
    """Return the text of the copy.

    :raises ConfigurationError: there is none.
    """
    if not node.copies.config:
        raise errors.ConfigurationError("this node has no configuration")
    return node.copies.config_text.decode()


@answers(calls.CONFIG_REWRITE)
def rewrite(
    node: SimNode,
    base_bytes: int,
    base_end: str,
    parts: list[Any],
    new_bytes: int,
    ssconf: dict[str, str] | None,
    history: list[Any] | None,
) -> bool | str:
    """Make the new text from the present one; False when the present one is another.

    :returns: ``OTHER_HISTORY`` if the records of the change do not fit.

    :raises ConfigurationError: the parts do not add up.
    """
    done = _rewrite(node, base_bytes, base_end, parts, new_bytes, ssconf)
    if not done or history is None:
        return done
    oldest, name, offset, _was, text = history
    files = node.copies.history
    if len(files.get(name, "")) != offset:
        return OTHER_HISTORY
    files[name] = files.get(name, "") + text
    for other in [one for one in files if one < oldest]:
        del files[other]
    return True


def _rewrite(
    node: SimNode,
    base_bytes: int,
    base_end: str,
    parts: list[Any],
    new_bytes: int,
    ssconf: dict[str, str] | None,
) -> bool:
    copies = node.copies
    if ssconf:
        copies.ssconf.update(ssconf)
    if node.keeps_journal or copies.journal:
        made = [part.encode() if isinstance(part, str) else (part[0], part[1]) for part in parts]
        wanted = Change(base_bytes, base_end.encode(), made, new_bytes)
        try:
            done = copies.change_config(wanted, journal=node.keeps_journal)
        except ValueError as err:
            raise errors.ConfigurationError(str(err)) from err
        if done is not None:
            copies.config_epoch = copies.epoch
        return done is not None
    if len(copies.text) != base_bytes or not copies.text.endswith(base_end.encode()):
        return False
    try:
        text = node.fleet.rewritten(copies.text, parts)
    except ValueError as err:
        raise errors.ConfigurationError(str(err)) from err
    if len(text) != new_bytes:
        raise errors.ConfigurationError(f"the parts are {len(text)} bytes, not {new_bytes}")
    copies.text, copies.config_epoch = text, copies.epoch
    return True


@answers(calls.CONFIG_HISTORY_DIGESTS)
def history_digests(node: SimNode) -> dict[str, tuple[int, str]]:
    """Describe the files of the history."""
    return {
        name: (len(text), hashlib.sha256(text.encode()).hexdigest())
        for name, text in node.copies.history.items()
    }


@answers(calls.CONFIG_HISTORY_READ)
def read_history(node: SimNode, name: str) -> str:
    """Return a file of the history.

    :raises ConfigurationError: there is none.
    """
    try:
        return node.copies.history[name]
    except KeyError:
        raise errors.ConfigurationError(f"there is no {name}") from None


@answers(calls.CONFIG_HISTORY_WRITE)
def write_history(node: SimNode, name: str, offset: int, content: str, remove: list[str]) -> None:
    """Replace a file of the history from an offset on."""
    files = node.copies.history
    if content:
        files[name] = files.get(name, "")[:offset] + content
    for other in remove:
        files.pop(other, None)


@answers(calls.AUDIT_EXTEND)
def extend_audit(
    node: SimNode, number: int, checksum: str, lines: str, apart: bool
) -> tuple[int, str]:
    """Keep the end of the audit log."""
    copies = node.copies
    if lines and (apart or copies.audit_end == (number, checksum)):
        copies.audit_end = audit.end_of(lines.encode().splitlines()[-1])
    return copies.audit_end


@answers(calls.MASTER_VOTE)
def vote(node: SimNode) -> MasterVote:
    """Describe the copies."""
    copies, text = node.copies, node.copies.config_text
    return MasterVote(
        master=_master(node),
        epoch=str(copies.epoch),
        config_epoch=str(copies.config_epoch),
        config_serial=config_file.serial_of(text) if text else 0,
        config_digest=hashlib.sha256(text).hexdigest() if text else "",
        queue_epoch=str(copies.queue_epoch),
        last_job=_last_job(node),
    )


def _last_job(node: SimNode) -> int:
    jobs = [job_id_of(name.rpartition("/")[2]) or 0 for name in node.copies.queue]
    return max(int(node.copies.queue.get(SERIAL, "0").strip() or 0), *jobs, 0)


@answers(calls.MASTER_CLAIM)
def claim(node: SimNode, epoch: str) -> MasterVote:
    """Promise to obey an epoch.

    :raises StaleEpochError: a higher one was promised.
    """
    wanted = master_epoch.parse(epoch)
    if wanted < node.copies.epoch:
        raise master_epoch.StaleEpochError(wanted, node.copies.epoch)
    node.copies.epoch = wanted
    return vote(node)


@answers(calls.MASTER_STATUS)
def master_status(node: SimNode) -> MasterStatus:
    """Tell which master the node knows; no master daemon runs on it."""
    return MasterStatus(
        master=_master(node),
        epoch=str(node.copies.epoch),
        daemon=failover.STOPPED,
        watching=False,
    )


@answers(calls.WATCHDOG_STATUS)
def watchdog_status(_node: SimNode) -> WatchdogStatus:
    """Tell that the node has no hardware watchdog."""
    return WatchdogStatus(state="none")


@answers(calls.NODE_DEMOTE_FROM_MC)
def demote(node: SimNode) -> None:
    """Remove the copies of configuration and queue."""
    node.copies.config = node.copies.journal = b""
    node.copies.queue.clear()


# -- job queue -------------------------------------------------------------------------------------


def _relative(name: str) -> str:
    return name.partition("/queue/")[2] or name


def _write(node: SimNode, texts: dict[str, str]) -> None:
    copies = node.copies
    if VERSION not in texts and VERSION not in copies.queue:
        raise errors.JobQueueError("there is no copy of the job queue here")
    copies.queue.update(texts)
    copies.queue_epoch = copies.epoch


@answers(calls.JOBQUEUE_UPDATE)
def update(node: SimNode, file_name: str, content: str) -> None:
    """Replace a file of the queue."""
    node.copies.queue[_relative(file_name)] = content
    node.copies.queue_epoch = node.copies.epoch


@answers(calls.JOBQUEUE_UPDATE_MANY)
def update_many(node: SimNode, files: list[tuple[str, str]]) -> None:
    """Replace several files of the queue.

    :raises JobQueueError: there is no copy to which changes could be made.
    """
    _write(node, {_relative(name): text for name, text in files})


@answers(calls.JOBQUEUE_RENAME)
def rename(node: SimNode, rename: list[list[str]]) -> list[None]:
    """Move files, usually into the archive.

    :raises JobQueueError: a file exists under neither name.
    """
    queue = node.copies.queue
    for old, new in ((_relative(old), _relative(new)) for old, new in rename):
        if old in queue:
            queue[new] = queue.pop(old)
        elif new not in queue:
            raise errors.JobQueueError(f"job file {old} does not exist")
    return [None] * len(rename)


@answers(calls.JOBQUEUE_READ)
def read_queue(node: SimNode, names: list[str]) -> dict[str, str]:
    """Return the content of those files which exist."""
    queue = node.copies.queue
    return {name: queue[_relative(name)] for name in names if _relative(name) in queue}


@answers(calls.JOBQUEUE_INVENTORY)
def take_inventory(node: SimNode, parts: list[int]) -> dict[str, Any]:
    """List the content of the queue."""
    queue = node.copies.queue
    live: dict[int, str] = {}
    archive: dict[int, dict[int, int]] = {}
    for name, text in queue.items():
        directory, _, base = name.rpartition("/")
        number = job_id_of(base)
        if number is None:
            continue
        if directory:
            archive.setdefault(int(directory.rpartition("/")[2]), {})[number] = len(text.encode())
        else:
            live[number] = inventory.digest(text.encode())
    return inventory.Inventory(
        live,
        {name: queue.get(name) for name in (SERIAL, VERSION)},
        node.copies.drained,
        {part: inventory.part_digest(sizes) for part, sizes in archive.items()},
        {part: archive.get(part, {}) for part in parts},
    ).to_wire()


@answers(calls.JOBQUEUE_PURGE)
def purge(node: SimNode) -> None:
    """Remove all jobs."""
    queue = node.copies.queue
    node.copies.queue = {name: queue[name] for name in (SERIAL, VERSION) if name in queue}


@answers(calls.JOBQUEUE_SET_DRAIN_FLAG)
def set_drained(node: SimNode, flag: bool) -> None:
    """Note that the queue accepts no jobs, or that it does."""
    node.copies.drained = flag
