"""Fetch newer copies of the configuration and the job queue from another node.

A master daemon which ends suddenly may leave data on its node which no other node has. When that
daemon cannot be started again, but the node daemon beside it answers, a node which becomes master
fetches the data instead of losing them.

The caller holds the promises of a majority: no older master writes the files which are read here.
Everything which is fetched is at least as new as what it replaces. A copy gets the new epoch only
after it is complete, so that an interruption leaves a copy which counts as the old one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from ganeti import errors
from ganeti.config.members import Members, members_of
from ganeti.configfile.files import write_config_file
from ganeti.jobstore import inventory as queue_inventory
from ganeti.jobstore.copy import APPLY_AFTER_S
from ganeti.jobstore.files import archive_file, job_file, job_id_of
from ganeti.jobstore.inventory import Inventory
from ganeti.jobstore.store import QueueStore
from ganeti.platform import master_epoch, paths
from ganeti.platform.master_epoch import Epoch
from ganeti.rpc import AddressRunner
from ganeti.utils import fs
from ganeti.wire.calls import CONFIG_READ, JOBQUEUE_INVENTORY, JOBQUEUE_READ, Call

# Number of files which are read with one call.
_FILES: Final = 50
# The node daemon here may still have the copy of the queue open, for a moment.
_LOCK_WAIT_S: Final = 10.0
# A process of the other node writes what it has received last within APPLY_AFTER_S.
_PAUSE_S: Final = 2 * APPLY_AFTER_S


class Source(NamedTuple):
    """The node which has the newer copy."""

    runner: AddressRunner
    name: str
    address: str

    def call(self, call: Call, **args: Any) -> Any:
        """Call the node.

        :raises RpcError: the call failed.
        """
        return self.runner.call_addresses(call, {self.name: self.address}, **args)[
            self.name
        ].payload()


def fetch_config(source: Source, epoch: Epoch, check: Callable[[Members], None]) -> None:
    """Replace the configuration of this node by that of another one.

    :param epoch: which this node and the other one have promised.
    :param check: gets the nodes in the new configuration, and raises an error to refuse it.
    :raises RpcError: the node does not answer.
    :raises ConfigurationError: it has no usable configuration; nothing was changed.
    :raises OSError: the file cannot be written; nothing was changed.
    """
    text: str = source.call(CONFIG_READ)
    check(members_of(text, f"the configuration of {source.name}"))
    with master_epoch.writing(master_epoch.CONFIG, epoch):
        write_config_file(paths.current().cluster_conf_file, text.encode("utf-8"))


def fetch_jobs(
    source: Source,
    epoch: Epoch,
    copies: tuple[Epoch, Epoch],
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Take over the jobs of another node, archived ones included.

    A damaged copy of a job is never taken. When the same master wrote the queues of both nodes,
    jobs which only this node has stay, and of two copies of a job the one which got further is
    taken. Otherwise the queue of this node is an older one, and becomes equal to the other.

    :param epoch: which this node and the other one have promised.
    :param copies: the epochs of the queues of this node and of the other one.
    :raises RpcError: the node does not answer, or a master daemon still runs there.
    :raises JobQueueError: the queue here cannot be written.
    """
    # Job ids which the other master gave out last may be in no copy. So the queue keeps the epoch
    # of that master, and the master daemon here leaves a gap.
    with master_epoch.writing(master_epoch.OTHER, epoch):
        store = QueueStore(paths.current().queue_dir, lock_wait_s=_LOCK_WAIT_S)
        store.open()
        try:
            copier = _Copier(source, store, copies[0] == copies[1])
            while copier.copy():
                sleep(_PAUSE_S)
        finally:
            store.close()
    master_epoch.adopt_queue(epoch, copies[1])


class _Copier:
    """Makes the queue of this node equal to that of another one."""

    def __init__(self, source: Source, store: QueueStore, same_history: bool) -> None:
        self._source = source
        self._store = store
        self._same_history = same_history
        self._passes = 0

    def copy(self) -> bool:
        """Fetch the files which differ; return whether the other node may get more of them."""
        self._passes += 1
        # The node refuses this while it runs a master daemon, which has more than its files.
        self._read([])
        there = self._inventory(())
        here = queue_inventory.take(self._store.directory)
        found = queue_inventory.compare(
            there, here, lambda job_id: bool(self._read([archive_file(job_id)]))
        )
        names = [name for name in found.files if job_id_of(name) is not None]
        if found.parts:
            sizes = self._inventory(found.parts).archived
            for part in found.parts:
                own = queue_inventory.sizes_of_part(self._store.directory, part)
                names += [
                    archive_file(job_id)
                    for job_id, size in sorted(sizes.get(part, {}).items())
                    if own.get(job_id) != size and job_id not in found.moved
                ]
        # The highest job id comes last: until then this copy counts as the older one.
        changed = self._take(names + [name for name in found.files if job_id_of(name) is None])
        if found.moved:
            self._store.commit({}, found.moved)
        self._store.apply()
        if found.unknown and not self._same_history:
            for job_id in found.unknown:
                fs.remove_file(f"{self._store.directory}/{job_file(job_id)}")
            fs.flush_dir(self._store.directory)
        # Always twice: another process of that node may have had some changes in memory.
        return self._passes == 1 or changed or bool(found.moved)

    def _inventory(self, parts: Sequence[int]) -> Inventory:
        return Inventory.from_wire(self._source.call(JOBQUEUE_INVENTORY, parts=list(parts)))

    def _read(self, names: Sequence[str]) -> dict[str, str]:
        found: dict[str, str] = self._source.call(JOBQUEUE_READ, names=list(names))
        return found

    def _read_each(self, names: Sequence[str]) -> dict[str, str]:
        """Read files one by one, without those which cannot be read."""
        found = {}
        for name in names:
            try:
                found.update(self._read([name]))
            except errors.NodeCallFailed:
                continue
        return found

    def _take(self, names: Sequence[str]) -> bool:
        changed = False
        for place in range(0, len(names), _FILES):
            chunk = names[place : place + _FILES]
            try:
                found = self._read(chunk)
            except errors.NodeCallFailed:
                # One file cannot be read there.
                found = self._read_each(chunk)
            better = {name: text for name, text in found.items() if self._is_better(name, text)}
            if better:
                self._store.commit(better)
                changed = True
        return changed

    def _is_better(self, name: str, text: str) -> bool:
        """Tell whether the other node's copy of a file replaces the one of this node."""
        # The main function of the command imports this module; the queue is needed here only.
        from ganeti.jqueue.restore import copy_of

        job_id = job_id_of(name.rpartition("/")[2])
        if job_id is None:
            return True
        theirs = copy_of(job_id, "", name, text)
        own = copy_of(job_id, "", name, self._store.read_published(name))
        if theirs is None:
            return False
        return own is None or not self._same_history or theirs > own
