"""Metrics of this node besides the collectors, and of the cluster on its master.

They cost no call to a node: which daemons run is in their PID files, and the master answers from
the configuration and the queue. What the master was asked is kept for :data:`KEEP_S`.
"""

from __future__ import annotations

import collections
import logging
from collections.abc import Callable
from typing import Any, Final

from ganeti import errors
from ganeti.constants import job as job_const
from ganeti.constants import query as query_const
from ganeti.luxi import client as luxi
from ganeti.mond.openmetrics import GAUGE, Family
from ganeti.platform import paths
from ganeti.utils import clock, filelock

_log = logging.getLogger(__name__)

#: How long the answers of the master count, in seconds.
KEEP_S: Final = 15.0
_MASTER_TIMEOUT_S: Final = 10.0

_DAEMONS: Final = (
    "ganeti-confd", "ganeti-failoverd", "ganeti-kvmd", "ganeti-masterd", "ganeti-metad",
    "ganeti-noded", "ganeti-rapi", "ganeti-watchdogd",
)  # fmt: skip
_UNFINISHED: Final = tuple(
    status for status in job_const.STATUSES if status not in job_const.FINALIZED
)


def daemons() -> Family:
    """Whether each daemon of this node runs."""
    family = Family("ganeti_node_daemon_up", GAUGE, "Whether a daemon runs on this node")
    for name in _DAEMONS:
        try:
            family.add(int(filelock.is_locked(paths.current().pid_file(name))), daemon=name)
        except OSError as err:
            _log.debug("%s: %s", name, err)
    return family


class ClusterState:
    """Asks the master daemon, when it runs on this node.

    :param connect: makes a client of the master.
    :param is_master: says whether this node is the master.
    """

    def __init__(
        self,
        *,
        connect: Callable[[], luxi.Client] = lambda: luxi.Client(
            connect_timeout_s=0.0, timeout_s=_MASTER_TIMEOUT_S
        ),
        is_master: Callable[[], bool],
        monotonic: Callable[[], float] = clock.monotonic,
    ) -> None:
        self._connect = connect
        self._is_master = is_master
        self._monotonic = monotonic
        self._kept: tuple[float, list[Family]] | None = None

    def families(self) -> list[Family]:
        """Return the metrics of the cluster; of a node which is not the master, that it is not."""
        master = Family("ganeti_node_is_master", GAUGE, "Whether this node is the master")
        master.add(int(self._is_master()))
        if not self._is_master():
            return [master]
        now = self._monotonic()
        if self._kept is None or now - self._kept[0] >= KEEP_S:
            self._kept = (now, self._ask())
        return [master, *self._kept[1]]

    def _ask(self) -> list[Family]:
        answers = Family(
            "ganeti_cluster_master_answers", GAUGE, "Whether the master daemon answers"
        )
        try:
            with self._connect() as client:
                found = [_jobs(client), _instances(client), _nodes(client)]
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
