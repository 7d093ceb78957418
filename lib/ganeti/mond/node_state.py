"""Metrics of this node besides the collectors, and of the cluster on its master.

Which daemons run is in their PID files, and the master answers from the configuration, the queue
and its own measurements, which costs no call to a node; that is kept for :data:`KEEP_S`. What the
nodes must be asked for, the guests and the free capacity, is asked in the background, at most every
:data:`LIVE_S`, however many programs read: a node which hangs delays no reader.
"""

from __future__ import annotations

import collections
import logging
import threading
from collections.abc import Callable
from typing import Any, Final

from ganeti import errors
from ganeti.constants import instance as instance_const
from ganeti.constants import job as job_const
from ganeti.constants import query as query_const
from ganeti.luxi import client as luxi
from ganeti.mond import openmetrics
from ganeti.mond.openmetrics import GAUGE, Family
from ganeti.platform import paths, watcher_files
from ganeti.utils import clock, filelock, shortage

_log = logging.getLogger(__name__)

#: How long the answers of the master count, in seconds.
KEEP_S: Final = 15.0
#: How long what the nodes have answered counts, in seconds.
LIVE_S: Final = 60.0
_MASTER_TIMEOUT_S: Final = 10.0
_LIVE_TIMEOUT_S: Final = 120.0
_MIB: Final = 1 << 20

_DAEMONS: Final = (
    "ganeti-confd", "ganeti-failoverd", "ganeti-kvmd", "ganeti-masterd", "ganeti-metad",
    "ganeti-noded", "ganeti-rapi", "ganeti-watchdogd",
)  # fmt: skip
_UNFINISHED: Final = tuple(
    status for status in job_const.STATUSES if status not in job_const.FINALIZED
)


def daemons() -> Family:
    """Return for each daemon of this node whether it runs."""
    family = Family("ganeti_node_daemon_up", GAUGE, "Whether a daemon runs on this node")
    for name in _DAEMONS:
        try:
            family.add(int(filelock.is_locked(paths.current().pid_file(name))), daemon=name)
        except OSError as err:
            _log.debug("%s: %s", name, err)
    return family


def watcher() -> Family:
    """Return when the watcher of this node was complete last."""
    family = Family(
        "ganeti_node_watcher_complete_timestamp_seconds",
        GAUGE,
        "Time of the last complete run of the watcher on this node, since 1970",
        "seconds",
    )
    family.add(watcher_files.completed_at(paths.current().watcher_complete_file))
    return family


class ClusterState:
    """Asks the master daemon, when it runs on this node.

    :param connect: makes a client of the master.
    :param is_master: says whether this node is the master.
    """

    def __init__(
        self,
        *,
        connect: Callable[[float], luxi.Client] = lambda timeout_s: luxi.Client(
            connect_timeout_s=0.0, timeout_s=timeout_s
        ),
        is_master: Callable[[], bool],
        monotonic: Callable[[], float] = clock.monotonic,
    ) -> None:
        self._connect = connect
        self._is_master = is_master
        self._monotonic = monotonic
        self._kept: tuple[float, list[Family]] | None = None
        self._live: tuple[float, list[Family]] | None = None
        self._lock = threading.Lock()
        # Readers who come while the master is asked wait for the same answer.
        self._ask_lock = threading.Lock()
        self._asking: threading.Thread | None = None

    def families(self) -> list[Family]:
        """Return the metrics of the cluster; of a node which is not the master, that it is not."""
        master = Family("ganeti_node_is_master", GAUGE, "Whether this node is the master")
        master.add(int(self._is_master()))
        if not self._is_master():
            return [master]
        with self._ask_lock:
            now = self._monotonic()
            if self._kept is None or now - self._kept[0] >= KEEP_S:
                self._kept = (now, self._ask())
            kept = self._kept[1]
        return [master, *kept, *self._of_nodes(now)]

    def _of_nodes(self, now: float) -> list[Family]:
        """Return what the nodes have answered; begin to ask them again when that is old."""
        with self._lock:
            live = self._live
            if self._asking is None and (live is None or now - live[0] >= LIVE_S):
                self._asking = shortage.start_thread(self._ask_nodes, now, name="live")
        # After several failures the last answer says nothing about the present state.
        return live[1] if live is not None and now - live[0] < 5 * LIVE_S else []

    def _ask_nodes(self, now: float) -> None:
        found: list[Family] | None = None
        try:
            with self._connect(_LIVE_TIMEOUT_S) as client:
                found = [*_guests(client), *_capacity(client)]
        except errors.GenericError as err:
            _log.debug("cannot ask for guests and capacity: %s", err)
        with self._lock:
            self._asking = None
            if found is not None:
                self._live = (now, found)

    def wait(self, timeout_s: float) -> None:
        """Wait until the nodes have been asked, if they are being asked."""
        asking = self._asking
        if asking is not None:
            asking.join(timeout_s)

    def _ask(self) -> list[Family]:
        answers = Family(
            "ganeti_cluster_master_answers", GAUGE, "Whether the master daemon answers"
        )
        try:
            with self._connect(_MASTER_TIMEOUT_S) as client:
                found = [_jobs(client), _instances(client), _nodes(client), _rounds(client)]
                found += openmetrics.of_master(client.query_metrics())
        except errors.GenericError as err:
            _log.debug("the master daemon does not answer: %s", err)
            answers.add(0)
            return [answers]
        answers.add(1)
        return [answers, *found]


def _rows(client: luxi.Client, what: str, fields: list[str], qfilter: Any = None) -> list[Any]:
    """Return the values of all objects of a kind."""
    answer = client.query(what, fields, qfilter)
    return [[value for _status, value in row] for row in answer["data"]]


def _jobs(client: luxi.Client) -> Family:
    family = Family("ganeti_cluster_jobs", GAUGE, "Jobs which have not ended, by their status")
    qfilter = ["|", *(["==", "status", status] for status in _UNFINISHED)]
    counts = collections.Counter(
        row[0] for row in _rows(client, query_const.JOB, ["status"], qfilter)
    )
    for status in _UNFINISHED:
        family.add(counts[status], status=status)
    return family


def _instances(client: luxi.Client) -> Family:
    family = Family(
        "ganeti_cluster_instances", GAUGE, "Instances, by the state which they should have"
    )
    rows = _rows(client, query_const.INSTANCE, ["admin_state"])
    for state, count in sorted(collections.Counter(row[0] for row in rows).items()):
        family.add(count, admin_state=str(state))
    return family


def _nodes(client: luxi.Client) -> Family:
    family = Family("ganeti_cluster_nodes", GAUGE, "Nodes, by their role")
    rows = _rows(client, query_const.NODE, ["role"])
    names = {
        "M": "master", "C": "candidate", "R": "regular", "D": "drained", "O": "offline",
    }  # fmt: skip
    counts = collections.Counter(row[0] for row in rows)
    for letter, name in names.items():
        family.add(counts[letter], role=name)
    return family


def _rounds(client: luxi.Client) -> Family:
    family = Family(
        "ganeti_cluster_watcher_round_timestamp_seconds",
        GAUGE,
        "Time of the last complete round of the watcher for a node group, since 1970",
        "seconds",
    )
    for name, uuid in _rows(client, query_const.GROUP, ["name", "uuid"]):
        complete = paths.current().watcher_group_complete_file(uuid)
        family.add(watcher_files.completed_at(complete), group=str(name))
    return family


def _guests(client: luxi.Client) -> list[Family]:
    states = Family(
        "ganeti_cluster_instance_states",
        GAUGE,
        "Instances, by the state which their nodes report",
    )
    halted = Family(
        "ganeti_cluster_instance_halted",
        GAUGE,
        "Instances whose guest lives and does not run, with the state in its hypervisor",
    )
    rows = _rows(client, query_const.INSTANCE, ["name", "status", "guest_state"])
    for status, count in sorted(collections.Counter(str(row[1]) for row in rows).items()):
        states.add(count, status=status)
    for name, _status, guest_state in rows:
        if guest_state not in (None, *instance_const.GUEST_NOT_HALTED):
            halted.add(1, instance=str(name), state=str(guest_state))
    return [states, halted]


def _capacity(client: luxi.Client) -> list[Family]:
    families = [
        Family(f"ganeti_cluster_node_{what}_bytes", GAUGE, text, "bytes")
        for what, text in (
            ("memory", "Memory of a node"),
            ("memory_free", "Memory of a node which guests can get"),
            ("storage", "Space for disks on a node"),
            ("storage_free", "Space for disks on a node which is free"),
        )
    ]
    fields = ["name", "mtotal", "mfree", "dtotal", "dfree"]
    for name, *sizes_mib in _rows(client, query_const.NODE, fields):
        for family, size in zip(families, sizes_mib, strict=True):
            family.add(size * _MIB if isinstance(size, int | float) else None, node=str(name))
    return families
