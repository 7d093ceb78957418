"""What the watcher remembers about a node group from one run to the next.

The file is JSON: ``{"node": {NAME: {"bootid": TEXT}}, "instance": {NAME: {"restart_count": NUMBER,
"restart_when": SECONDS}}}``. It is on the node which was the master; a new master begins without
it, which costs at most one more activation of disks. A damaged file counts as an empty one, so that
it never stops the watcher.

Source: ganeti-watcher(8), *FILES*.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ganeti import errors
from ganeti.utils import fs
from ganeti.wire import json

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Memory:
    """The memory of one node group.

    :ivar boot_ids: name of a node -> its boot ID when its disks were activated last.
    :ivar restarts: name of an instance -> number of restarts, and the time of the last one in
        seconds since 1970.
    """

    boot_ids: dict[str, str] = field(default_factory=dict)
    restarts: dict[str, tuple[int, float]] = field(default_factory=dict)

    def restarts_of(self, instance: str, now: float) -> tuple[int, float]:
        """Return how often an instance was restarted, and when last.

        A time in the future means that the clock was set back; it counts as now.
        """
        count, last = self.restarts.get(instance, (0, 0.0))
        return count, min(last, now)

    def note_restart(self, instance: str, now: float) -> None:
        """Remember that an instance is restarted now."""
        self.restarts[instance] = (self.restarts_of(instance, now)[0] + 1, now)

    def forget(
        self, nodes: Iterable[str], instances: Iterable[str], now: float, forget_s: float
    ) -> None:
        """Forget what does not exist any more, and restarts which are older than `forget_s`.

        :param nodes: names of the nodes which exist.
        :param instances: names of the instances which exist.
        """
        known_nodes, known = set(nodes), set(instances)
        self.boot_ids = {name: one for name, one in self.boot_ids.items() if name in known_nodes}
        self.restarts = {
            name: (count, min(last, now))
            for name, (count, last) in self.restarts.items()
            if name in known and min(last, now) + forget_s > now
        }


def load(path: str) -> Memory:
    """Read the memory from a file; a missing or damaged one counts as empty.

    :raises OSError: the file exists, but cannot be read.
    """
    try:
        data = json.loads(fs.read_file(path))
    except FileNotFoundError:
        return Memory()
    except (errors.ParseError, UnicodeDecodeError) as err:
        _log.warning("%s is damaged and is made again: %s", path, err)
        return Memory()
    return Memory(
        {
            name: entry["bootid"]
            for name, entry in _entries(data, "node")
            if isinstance(entry.get("bootid"), str)
        },
        {
            name: (entry["restart_count"], float(entry["restart_when"]))
            for name, entry in _entries(data, "instance")
            if isinstance(entry.get("restart_count"), int)
            and _is_number(entry["restart_count"])
            and _is_number(entry.get("restart_when"))
        },
    )


def _entries(data: Any, kind: str) -> Iterable[tuple[str, dict[str, Any]]]:
    part = data.get(kind) if isinstance(data, dict) else None
    if not isinstance(part, dict):
        return []
    return [(name, entry) for name, entry in part.items() if isinstance(entry, dict)]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 2**53


def store(path: str, memory: Memory) -> None:
    """Write the memory to a file.

    :raises OSError: it cannot be written; the old file stays.
    """
    data = {
        "node": {name: {"bootid": boot_id} for name, boot_id in memory.boot_ids.items()},
        "instance": {
            name: {"restart_count": count, "restart_when": last}
            for name, (count, last) in memory.restarts.items()
        },
    }
    fs.write_file(path, json.dumps(data) + "\n", mode=0o600)
