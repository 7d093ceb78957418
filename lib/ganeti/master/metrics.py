"""What the master daemon has measured, and its present state in numbers.

The monitoring daemon of the master's node publishes it for Prometheus (``/metrics``). Durations and
counts come from the modules which measure them (:mod:`ganeti.utils.metrics`); the state is read
when it is asked for, and costs no call to a node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ganeti.utils import metrics

if TYPE_CHECKING:
    from ganeti.cmdlib.base import MasterContext

GAUGE = "gauge"


def measured(context: MasterContext) -> list[dict[str, Any]]:
    """Return all metrics of the master daemon, as :func:`ganeti.utils.metrics.snapshot` does.

    A metric of kind ``gauge`` has series like a counter.
    """
    lagging: dict[str, int] = {}
    for kinds in context.config.lagging().values():
        for kind in kinds:
            lagging[kind] = lagging.get(kind, 0) + 1
    rows = context.locks.table()
    waiting = {owner for row in rows for _mode, owners in row.pending for owner in owners}
    return [
        *metrics.snapshot(),
        _gauge(
            "ganeti_cluster_nodes_lagging",
            "Nodes which do not have the newest configuration or the newest ssconf files yet",
            "file",
            lagging or {"config": 0, "ssconf": 0},
        ),
        _gauge(
            "ganeti_cluster_lock_owners",
            "Jobs which hold locks, and jobs which wait for locks",
            "state",
            {"holding": len(context.locks.owners()), "waiting": len(waiting)},
        ),
        *_commit_age(context),
        _gauge(
            "ganeti_master_queue",
            "Whether the job queue pauses, because jobs cannot be executed",
            "state",
            {"paused": int(context.queue is not None and context.queue.paused() is not None)},
        ),
    ]


def _commit_age(context: MasterContext) -> list[dict[str, Any]]:
    """Return the time since the last confirmation; [] where nobody is asked for one."""
    age_s = context.commit_age()
    if age_s is None:
        return []
    return [
        {
            "name": "ganeti_master_commit_confirmed_age_seconds",
            "kind": GAUGE,
            "help": "Time since a majority of the candidates confirmed that this master can commit",
            "labels": [],
            "series": [[[], round(age_s, 3)]],
        }
    ]


def _gauge(name: str, help_text: str, label: str, values: dict[str, int]) -> dict[str, Any]:
    return {
        "name": name,
        "kind": GAUGE,
        "help": help_text,
        "labels": [label],
        "series": [[[value], number] for value, number in values.items()],
    }
