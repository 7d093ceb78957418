"""Balancing the cluster without being asked, where the administrator has switched it on.

Each run of the watcher on the master makes at most one set of moves, which share no node; the next
run continues. Nothing is moved

- while the watcher pauses or the job queue is drained, which end the run before;
- while a job that moves an instance or replaces disks waits or runs;
- in a node group with a node which is drained or in maintenance;
- when the moves of the last hour are as many as permitted, or the score would gain too little.

Instances on an offline node stay where they are: they need repair, not balance.

Source: manual pages **gnt-cluster** and **ganeti-watcher**; ``doc/design-htools.rst``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ganeti import errors
from ganeti.constants import balance as const
from ganeti.constants import query
from ganeti.htools import balance as search
from ganeti.htools import score
from ganeti.htools.cluster import Cluster
from ganeti.utils import clock, fs
from ganeti.wire import json

if TYPE_CHECKING:
    from ganeti.luxi.client import Client

_log = logging.getLogger(__name__)

_HOUR_S = 3600.0
_UNFINISHED = [
    "|",
    *(["=", "status", one] for one in ("queued", "waiting", "canceling", "running")),
]
#: Jobs which move instances or their disks, or are about to submit such jobs.
_MOVING = (
    "GROUP_EVACUATE", "INSTANCE_CHANGE_GROUP", "INSTANCE_FAILOVER", "INSTANCE_MIGRATE",
    "INSTANCE_MOVE", "INSTANCE_RECREATE_DISKS", "INSTANCE_REPLACE_DISKS", "NODE_EVACUATE",
    "NODE_MIGRATE",
)  # fmt: skip
#: Where a move comes from, in the reason trail of its opcodes.
REASON_SOURCE = "gnt:watcher:auto-balance"


def run(client: Client, memory_file: str, *, dry_run: bool) -> list[int]:
    """Balance the cluster as far as its settings permit now.

    :param memory_file: has the times of earlier moves.
    :param dry_run: only print the moves.
    :returns: the jobs which were submitted.
    :raises errors.GenericError: the cluster cannot be read, or a job is refused.
    :raises OSError: the file cannot be read or written.
    """
    settings = client.query_cluster_info().get("auto_balance")
    if not settings:
        return []
    now = clock.now()
    made = recent(load(memory_file), now)
    left = int(settings[const.MOVES_PER_HOUR]) - len(made)
    reason = _postponed(client, left)
    if reason is not None:
        _log.debug("the cluster is not balanced now: %s", reason)
        return []
    jobs: list[int] = []
    for moves in plan(_load_cluster(), _resting_groups(client), settings, left):
        for text, opcodes in moves:
            if dry_run:
                print(f"automatic balance: {text}")
                continue
            _log.info("automatic balance: %s", text)
            # Noted before the job exists: an end in between must not permit more moves.
            made.append(now)
            store(memory_file, made)
            jobs.append(client.submit_job(opcodes))
    return jobs


def _postponed(client: Client, left: int) -> str | None:
    """Return why nothing may be moved at this moment; None when it may."""
    if left <= 0:
        return "the moves of the last hour are as many as permitted"
    (drained,) = client.query_config_values(["drain_flag"])
    if drained:
        return "the job queue is drained"
    rows = client.query(query.JOB, ["id", "summary"], _UNFINISHED)["data"]
    for (_status, number), (_state, summary) in rows:
        if any(one.startswith(_MOVING) for one in summary or ()):
            return f"job {number} moves instances ({', '.join(summary)})"
    return None


def _load_cluster() -> Cluster:
    from ganeti.client.htools import luxi
    from ganeti.htools import cluster as model

    found = luxi.load("")
    model.prepare(found)
    return found


def _resting_groups(client: Client) -> frozenset[str]:
    """Return the UUIDs of the node groups in which a node is drained or in maintenance."""
    found = client.query(query.NODE, ["group.uuid", "drained", "maintenance"])
    return frozenset(
        group for (_a, group), (_b, drained), (_c, maintenance) in found["data"]
        if drained or maintenance
    )  # fmt: skip


def plan(
    whole: Cluster, resting: frozenset[str], settings: Mapping[str, Any], left: int
) -> list[list[tuple[str, list[Any]]]]:
    """Choose the moves.

    :param whole: the cluster, prepared.
    :param resting: UUIDs of the groups in which nothing is moved.
    :param left: the most moves.
    :returns: for each group its moves: a text for the log, and the opcodes.
    """
    from ganeti.client.htools import execute

    found = []
    for group in whole.groups:
        if group.uuid in resting or left <= 0:
            continue
        cluster = whole.only(group.index)
        for instance in cluster.instances:
            if any(cluster.nodes[index].offline for index in instance.nodes):
                instance.movable = False
        before, steps = _steps(cluster, left, float(settings[const.MIN_GAIN]))
        moves = []
        for chosen in steps:
            name = cluster.instances[chosen.instance].name
            nodes = ", ".join(cluster.nodes[i].name for i in chosen.after if i >= 0)
            text = (
                f"instance {name} goes to {nodes}; the score of group {group.name} improves from"
                f" {before:.8f} to {chosen.score:.8f}"
            )
            trail = [[REASON_SOURCE, text, time.time_ns()]]
            moves.append((text, execute.opcodes_with(chosen, cluster, {"reason": trail})))
            before = chosen.score
        if moves:
            found.append(moves)
        left -= len(moves)
    return found


def _steps(cluster: Cluster, most: int, min_gain: float) -> tuple[float, list[search.Step]]:
    """Return the first moves of a solution which share no node, when they gain enough together."""
    state = search.start(cluster)
    before = state.score
    steps: list[search.Step] = []
    used: frozenset[int] = frozenset()
    offset = score.optimal_offset(cluster.nodes)
    # A single move which gains next to nothing is not worth a copy of its disks.
    options = search.Options(min_gain=min_gain, min_gain_limit=float("inf"))
    for step in search.run(state, options, max_steps=most, offset=offset):
        if not used.isdisjoint(step.involved):
            break
        used |= step.involved
        steps.append(step)
    return before, steps


# -- memory ----------------------------------------------------------------------------------------


def recent(times: Sequence[float], now: float) -> list[float]:
    """Return the times within the last hour.

    A time in the future means that the clock was set back.
    """
    return [min(one, now) for one in times if min(one, now) + _HOUR_S > now]


def load(path: str) -> list[float]:
    """Read the times of earlier moves; a missing or damaged file counts as no move.

    :raises OSError: the file exists, but cannot be read.
    """
    try:
        data = json.loads(fs.read_file(path))
    except FileNotFoundError:
        return []
    except (errors.ParseError, UnicodeDecodeError) as err:
        _log.warning("%s is damaged and is made again: %s", path, err)
        return []
    if not isinstance(data, list):
        return []
    return [float(one) for one in data if isinstance(one, int | float) and 0 <= one < 2**53]


def store(path: str, times: Sequence[float]) -> None:
    """Write the times of the moves.

    :raises OSError: the file cannot be written; the old one stays.
    """
    fs.write_file(path, json.dumps(list(times)) + "\n", mode=0o600)
